//! A node's RPC with one peer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

/// A node's RPC that answers every look with another byte count: 1 peer, of which each look has
/// 1000 bytes of `tx` more. It ends after so many looks.
pub(crate) fn rpc(looks: u64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address").to_string();
    thread::spawn(move || {
        for look in 1..=looks {
            let (stream, _) = listener.accept().expect("a client");
            let mut reader = BufReader::new(&stream);
            let (mut line, mut length) = (String::new(), 0);
            while line != "\r\n" {
                line.clear();
                reader.read_line(&mut line).expect("a request");
                let header = line.to_ascii_lowercase();
                if let Some(value) = header.strip_prefix("content-length: ") {
                    length = value.trim().parse().expect("a length");
                }
            }
            reader.read_exact(&mut vec![0; length]).expect("its body");
            let peer = serde_json::json!({"id": 7, "addr": "192.0.2.7:8333", "network": "ipv4",
                "version": 70016, "relaytxes": true, "conntime": 1_700_000_000,
                "connection_type": "inbound", "transport_protocol_type": "v2",
                "bytesrecv_per_msg": {"tx": 1000 * look}, "bytessent_per_msg": {}});
            let body = serde_json::json!({"result": [peer], "error": null}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    address
}
