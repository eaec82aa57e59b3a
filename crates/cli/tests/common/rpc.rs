//! A node's RPC with a few peers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::thread;

/// A node's RPC with peer 7, which receives 1000 more bytes of `tx` per query. It ends after this
/// many queries.
pub(crate) fn rpc(looks: u64) -> String {
    rpc_of(looks, &[(7, 1000)])
}

/// A node's RPC with these peers: their ids, and how many more bytes of `tx` each query reports.
pub(crate) fn rpc_of(looks: u64, peers: &'static [(u64, u64)]) -> String {
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
            let peers = peers.iter().map(|(id, bytes)| {
                serde_json::json!({"id": id, "addr": format!("192.0.2.{id}:8333"),
                    "network": "ipv4", "version": 70016, "relaytxes": true,
                    "conntime": 1_700_000_000, "connection_type": "inbound",
                    "transport_protocol_type": "v2", "bytesrecv_per_msg": {"tx": bytes * look},
                    "bytessent_per_msg": {}})
            });
            let peers: Vec<_> = peers.collect();
            let body = serde_json::json!({"result": peers, "error": null}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = (&stream).write_all((head + &body).as_bytes());
        }
    });
    address
}
