//! The RPC source, against a server with scripted answers and, if available, against Bitcoin Core.

mod core;
mod machine;

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::v1;
use packetlane_peers::report::Report;
use packetlane_peers::rpc::{
    Auth, Described, MAX_ANSWER, MAX_COUNTS, MAX_PEERS, MAX_TYPES, Rpc, RpcError,
};
use packetlane_peers::show::html::{self, Origin};
use packetlane_peers::show::text;
use packetlane_peers::tally::{Slot, Tally};
use packetlane_peers::{
    Connection, ConnectionType, Event, Network, Process, Record, Source, SourceError, Transport,
};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

/// Serves one answer per connection, then ends. Sends each request to the receiver.
fn serve(answers: Vec<Vec<u8>>) -> (String, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (asked, requests) = channel();
    std::thread::spawn(move || {
        for answer in answers {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(&stream);
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert_ne!(reader.read_line(&mut head).unwrap(), 0);
            }
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                (name.eq_ignore_ascii_case("content-length")).then(|| value.parse().unwrap())
            });
            let mut body = vec![0; length.unwrap()];
            reader.read_exact(&mut body).unwrap();
            let _ = asked.send(head + &String::from_utf8(body).unwrap());
            // The client may have closed the connection.
            let _ = (&stream).write_all(&answer);
        }
    });
    (address, requests)
}

fn http(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn peers(peers: &[Value]) -> Vec<u8> {
    let body = json!({"result": peers, "error": null, "id": "packetlane"});
    http("200 OK", &body.to_string())
}

/// A peer as in `getpeerinfo`, with some of the additional fields.
fn peer(id: i64, since: u64, received: Value, sent: Value) -> Value {
    json!({"id": id, "addr": format!("192.0.2.{id}:8333"), "network": "ipv4", "version": 70016,
        "relaytxes": true, "subver": "/a:1.0/", "conntime": since, "inbound": true, "connection_type": "inbound",
        "transport_protocol_type": "v2", "bytesrecv_per_msg": received,
        "bytessent_per_msg": sent, "minping": 0.1, "permissions": []})
}

fn password() -> Auth {
    Auth::Password {
        user: "u".to_owned(),
        password: "secret".to_owned(),
    }
}

fn connect(answers: Vec<Vec<u8>>) -> Result<Rpc, RpcError> {
    Rpc::connect(&serve(answers).0, password(), None)
}

fn watch(source: &mut dyn Source) -> Result<Vec<Event>, SourceError> {
    let mut records = Vec::new();
    source.watch(SHORT, &|| true, &mut |record| records.push(record))?;
    assert!(records.windows(2).all(|two| two[0].time <= two[1].time));
    Ok(records.into_iter().map(|record| record.event).collect())
}

fn bytes(peer: i64, received: bool, name: &str, bytes: u64) -> Event {
    let message_type = name.to_owned();
    Event::Bytes {
        peer,
        received,
        message_type,
        bytes,
    }
}

#[test]
fn what_changes_between_looks() {
    let looks = vec![
        peers(&[
            peer(0, 100, json!({"ping": 32, "tx": 400}), json!({"pong": 32})),
            peer(1, 200, json!({}), json!({"version": 150})),
        ]),
        // 1 has disconnected, 2 has connected.
        peers(&[
            peer(0, 100, json!({"ping": 64, "tx": 400}), json!({"pong": 64})),
            peer(2, 300, json!({"version": 126}), json!({})),
        ]),
        // The node has restarted. Id 0 is the same peer on a new connection. Id 2 has the same
        // address and time as before, but fewer bytes.
        peers(&[
            peer(0, 400, json!({"ping": 640}), json!({})),
            peer(2, 300, json!({"version": 126, "*other*": 5}), json!({})),
        ]),
        peers(&[peer(2, 300, json!({"version": 126}), json!({}))]),
    ];
    let (address, requests) = serve(looks);
    let mut rpc = Rpc::connect(&address, password(), None).unwrap();
    let request = requests.recv().unwrap();
    // "u:secret" in base64.
    assert!(
        request.to_lowercase().contains("authorization: basic "),
        "{request}"
    );
    assert!(request.contains("Basic dTpzZWNyZXQ="), "{request}");
    assert!(request.contains("\"getpeerinfo\""), "{request}");
    assert!(!format!("{rpc:?}").contains("secret"));
    assert!(rpc.abilities().contains("no message counts"));

    let first = watch(&mut rpc).unwrap();
    let connected = |peer: i64, since: u64| Event::Connected {
        peer,
        connection: Connection {
            address: format!("192.0.2.{peer}:8333"),
            kind: ConnectionType::Inbound,
            network: Some(Network::Ipv4),
            transport: Some(Transport::V2),
            relay: Some(true),
            user_agent: Some("/a:1.0/".to_owned()),
            since: Some(since * 1_000_000),
        },
    };
    let (window, first) = first.split_last().unwrap();
    assert!(matches!(window, Event::Window { lost: 0, .. }));
    assert_eq!(
        first,
        [
            connected(0, 100),
            connected(1, 200),
            Event::Disconnected { peer: 1 },
            bytes(0, true, "ping", 32),
            bytes(0, false, "pong", 32),
            connected(2, 300),
            bytes(2, true, "version", 126),
        ]
    );
    let second = watch(&mut rpc).unwrap();
    assert_eq!(
        second[..second.len() - 1],
        [
            Event::Disconnected { peer: 0 },
            connected(0, 400),
            bytes(0, true, "ping", 640),
            bytes(2, true, "*other*", 5),
        ]
    );
    let third = watch(&mut rpc).unwrap();
    assert_eq!(
        third[..third.len() - 1],
        [
            Event::Disconnected { peer: 0 },
            Event::Disconnected { peer: 2 },
            connected(2, 300),
            bytes(2, true, "version", 126),
        ]
    );
    for _ in 0..2 {
        assert_eq!(watch(&mut rpc).unwrap(), []);
    }
    let error = watch(&mut rpc).unwrap_err().to_string();
    assert!(
        error.contains(&address) && error.contains("does not answer"),
        "{error}"
    );
}

#[test]
fn what_is_not_known_yet() {
    let mut early = peer(3, 100, json!({}), json!({}));
    early["version"] = json!(0);
    early["relaytxes"] = json!(false);
    early["transport_protocol_type"] = json!("detecting");
    // A node before 0.21.
    let mut old = peer(4, 100, json!({"ping": 32}), json!({}));
    for name in ["network", "connection_type", "transport_protocol_type"] {
        old.as_object_mut().unwrap().remove(name);
    }
    let mut later = peer(3, 100, json!({}), json!({}));
    later["relaytxes"] = json!(false);
    let looks = vec![peers(&[early, old.clone()]), peers(&[later, old])];
    let mut rpc = connect(looks).unwrap();
    let events = watch(&mut rpc).unwrap();
    let known = |event: &Event| match event {
        Event::Connected {
            peer: 3,
            connection,
        } => Some((connection.relay, connection.transport)),
        Event::Window { .. } => None,
        other => panic!("{other:?}"),
    };
    let known: Vec<_> = events.iter().filter_map(known).collect();
    assert_eq!(known, [(None, None), (Some(false), Some(Transport::V2))]);
}

/// Messages are not counted: the report must not claim that there were none.
#[test]
fn a_tally_without_counts() {
    let looks = vec![
        peers(&[peer(0, 100, json!({}), json!({}))]),
        peers(&[peer(0, 100, json!({"tx": 5000}), json!({"inv": 70}))]),
    ];
    let mut rpc = connect(looks).unwrap();
    let mut tally = Tally::new();
    let mut add = |record: Record| tally.add(&record);
    rpc.watch(SHORT, &|| true, &mut add).unwrap();
    assert!(!tally.timed() && !tally.counted());
    let (_, peer) = tally.peers().next().unwrap();
    assert_eq!(peer.slot, Slot::InboundFullRelay);
    assert_eq!((peer.seen.received.bytes, peer.seen.sent.bytes), (5000, 70));
    let report = Report::of(&tally);
    assert_eq!(report.slots[0].received_per_second, None);
    assert!(report.slots[0].received_bytes_per_second > 0.0);
    let tx = report
        .types
        .iter()
        .find(|row| row.message_type == "tx")
        .unwrap();
    assert_eq!((tx.count, tx.bytes), (None, 5000));
    let said = text::render(&report);
    assert!(said.contains("no message counts"), "{said}");
    let row = said
        .lines()
        .find(|line| line.starts_with("inbound"))
        .unwrap();
    let cells: Vec<&str> = row.split_ascii_whitespace().collect();
    assert_eq!(cells[2..5], ["1", "-", "-"], "{row}");
    let origin = Origin {
        command: String::new(),
        files: Vec::new(),
    };
    assert!(html::render(&report, &origin).contains("<td>-</td><td>-</td>"));
}

#[test]
fn invalid_answers_are_errors() {
    let escape = "HTTP/1.1 200 OK\r\n\r\n\x1b[2J";
    let mut long_type = peer(0, 1, json!({}), json!({}));
    long_type["bytesrecv_per_msg"] = json!({"thirteenchars": 1});
    let mut negative = peer(0, 1, json!({}), json!({}));
    negative["bytessent_per_msg"] = json!({"tx": -1});
    let mut long_address = peer(0, 1, json!({}), json!({}));
    long_address["addr"] = json!("a".repeat(10_000));
    let types = |count: usize| -> Value {
        let names = (0..count).map(|number| (format!("type{number}"), json!(1)));
        Value::Object(names.collect())
    };
    let many_types = peer(0, 1, types(MAX_TYPES + 1), json!({}));
    let most_types = |id| peer(id, 1, types(MAX_TYPES), types(MAX_TYPES));
    let many_counts = (0..=(MAX_COUNTS / MAX_TYPES / 2) as i64).map(most_types);
    let many_counts: Vec<_> = many_counts.collect();
    // The same id again is another peer.
    let many_peers = vec![peer(0, 1, json!({}), json!({})); MAX_PEERS + 1];
    let refusal = json!({"result": null, "error": {"code": -28, "message": "Loading \u{1b}[2J"}});
    let deep = format!("{{\"result\":{}", "[".repeat(100_000));
    for (answer, expected) in [
        (
            http("401 Unauthorized", ""),
            "rejects the password of user u",
        ),
        (http("403 Forbidden", ""), "rejects the password of user u"),
        (http("200 OK", ""), "HTTP 200"),
        (http("404 Not Found", "nothing here"), "HTTP 404"),
        (
            http("302 Found\r\nLocation: http://192.0.2.1/", ""),
            "HTTP 302",
        ),
        (http("200 OK", "{}"), "neither a result nor an error"),
        (
            http("200 OK", "{\"result\": [{}], \"error\": null}"),
            "missing field",
        ),
        (http("200 OK", "{\"result\": 1}"), "invalid type"),
        (http("200 OK", &deep), "HTTP 200"),
        (
            http("500 Internal Server Error", &refusal.to_string()),
            r"Loading \u{1b}[2J (-28)",
        ),
        (peers(&[long_type]), "thirteenchars is not a message type"),
        (
            peers(&[many_types]),
            "a peer with more than 100 message types",
        ),
        (peers(&many_counts), "more than 200000 byte counts"),
        (peers(&many_peers), "more than 10000 peers"),
        (peers(&[negative]), "invalid value"),
        (peers(&[long_address]), "peer 0 has no valid address"),
        (escape.into(), "HTTP 200"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{".into(),
            "does not answer",
        ),
        ("SSH-2.0-none\r\n".into(), "does not answer"),
        (Vec::new(), "does not answer"),
    ] {
        let error = connect(vec![answer.clone()]).unwrap_err().to_string();
        let asked = String::from_utf8_lossy(&answer);
        assert!(error.contains(expected), "{asked:.100}: {error}");
        assert!(
            error.len() < 500 && !error.contains(char::is_control),
            "{error}"
        );
        assert!(!error.contains("secret"), "{error}");
    }
    // Longer than the limit, with and without a Content-Length.
    let long = " ".repeat(MAX_ANSWER as usize + 1);
    for head in ["HTTP/1.1 200 OK\r\n\r\n".to_owned(), String::new()] {
        let answer = match head.is_empty() {
            false => (head + &long).into_bytes(),
            true => http("200 OK", &long),
        };
        let error = connect(vec![answer]).unwrap_err();
        assert!(matches!(error, RpcError::TooLong { .. }), "{error}");
    }
}

#[test]
fn connection_errors_name_the_cause() {
    for address in [
        "",
        "localhost",
        ":8332",
        "u:p@127.0.0.1:8332",
        "127.0.0.1:99999",
        "a b:1",
    ] {
        let error = Rpc::connect(address, password(), None).unwrap_err();
        assert!(
            matches!(error, RpcError::Address { .. }),
            "{address}: {error}"
        );
    }
    let absent = Auth::Cookie("/nowhere/.cookie".into());
    let error = Rpc::connect("127.0.0.1:1", absent, None)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("/nowhere/.cookie") && error.contains("--rpc-cookie"),
        "{error}"
    );
    let cookie = Auth::default_cookie(18443).unwrap().to_string();
    assert!(
        cookie.contains(&["regtest", ".cookie"].join("/")),
        "{cookie}"
    );
}

/// A source with one window that knows little about a peer that was connected before. Holds that
/// peer's address.
struct Probes(&'static str);

impl Source for Probes {
    fn abilities(&self) -> &'static str {
        ""
    }

    fn watch(
        &mut self,
        _: Duration,
        _: &dyn Fn() -> bool,
        take: &mut dyn FnMut(Record),
    ) -> Result<(), SourceError> {
        for peer in [0, 9] {
            let event = Event::Connected {
                peer,
                connection: Connection {
                    address: self.0.to_owned(),
                    kind: ConnectionType::Inbound,
                    network: None,
                    transport: None,
                    relay: Some(false),
                    user_agent: None,
                    since: None,
                },
            };
            take(Record {
                time: u64::MAX,
                event,
            });
        }
        Ok(())
    }
}

#[test]
fn the_rpc_fills_in_what_probes_do_not_know() {
    let looks = vec![
        peers(&[]),
        peers(&[peer(0, 100, json!({}), json!({}))]),
        peers(&[]),
    ];
    let probes = Box::new(Probes("192.0.2.0:8333"));
    let mut described = Described::new(probes, connect(looks).unwrap());
    let events = watch(&mut described).unwrap();
    let known = |event: &Event| match event {
        Event::Connected { peer, connection } => Some((
            *peer,
            connection.transport,
            connection.relay,
            connection.since,
        )),
        _ => None,
    };
    let known: Vec<_> = events.iter().filter_map(known).collect();
    let since = Some(100_000_000);
    assert_eq!(
        known,
        [
            (0, Some(Transport::V2), Some(true), since),
            (0, Some(Transport::V2), Some(false), since),
            (9, None, Some(false), None),
        ]
    );
    // It was never seen.
    let events = watch(&mut described).unwrap();
    assert_eq!(events.last(), Some(&Event::Disconnected { peer: 0 }));
}

/// A node that is too busy to answer is observed further, and one that is another is not.
#[test]
fn the_rpc_fails_or_is_of_another_node() {
    let busy = || http("503 Service Unavailable", "Work queue depth exceeded");
    let known = || peers(&[peer(0, 100, json!({}), json!({}))]);
    let looks = || vec![known(), known(), busy(), known(), busy(), busy(), busy()];
    let probes = Box::new(Probes("192.0.2.0:8333"));
    let mut described = Described::new(probes, connect(looks()).unwrap());
    for _ in 0..5 {
        // What the RPC knows stays known.
        let events = watch(&mut described).unwrap();
        let transport = |event: &Event| match event {
            Event::Connected {
                peer: 0,
                connection,
            } => Some(connection.transport),
            _ => None,
        };
        let known = events.iter().filter_map(transport).next_back();
        assert_eq!(known, Some(Some(Transport::V2)));
    }
    let error = watch(&mut described).unwrap_err().to_string();
    assert!(
        error.contains("does not answer") && error.contains("503"),
        "{error}"
    );

    // Alone, it has a longer window then.
    let mut rpc = connect(looks()).unwrap();
    let windows = |events: Vec<Event>| {
        let is_window = |event: &&Event| matches!(event, Event::Window { .. });
        events.iter().filter(is_window).count()
    };
    for expected in [1, 0, 1, 0, 0] {
        assert_eq!(windows(watch(&mut rpc).unwrap()), expected);
    }
    watch(&mut rpc).unwrap_err();

    // An address that probes see cut.
    let name = "a".repeat(90);
    let mut named = peer(0, 100, json!({}), json!({}));
    named["addr"] = json!(name);
    let looks = vec![peers(&[named.clone()]), peers(&[named])];
    let cut: &'static str = name[..79].to_owned().leak();
    let mut described = Described::new(Box::new(Probes(cut)), connect(looks).unwrap());
    let events = watch(&mut described).unwrap();
    let is_whole = |event: &Event| matches!(event, Event::Connected { peer: 0, connection } if connection.address == name);
    assert_eq!(events.iter().filter(|event| is_whole(event)).count(), 2);

    let probes = Box::new(Probes("192.0.2.1:8333"));
    let mut described = Described::new(probes, connect(vec![known(), known()]).unwrap());
    let error = watch(&mut described).unwrap_err().to_string();
    assert!(error.contains("belongs to another node"), "{error}");
}

#[test]
fn bitcoin_core() {
    let Some(node) = core::Core::start("RPC source with Bitcoin Core", core::Build::Plain) else {
        return;
    };
    let process = Process::with_pid(node.pid()).unwrap();
    assert_eq!(Process::listening_on(node.rpc.port()), Some(process));
    // This test listens on a port too, but is not a node.
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port();
    assert_eq!(Process::listening_on(port), None);
    let wrong = Auth::Password {
        user: "u".to_owned(),
        password: "wrong".to_owned(),
    };
    let error = Rpc::connect(&node.rpc.to_string(), wrong, None).unwrap_err();
    assert!(matches!(error, RpcError::Unauthorized { .. }), "{error}");

    let auth = Auth::Password {
        user: "u".to_owned(),
        password: "p".to_owned(),
    };
    let mut rpc = Rpc::connect(&node.rpc.to_string(), auth, Some(process)).unwrap();
    // A v1 `version` and a ping, handmade.
    let mut stream = std::net::TcpStream::connect(node.listening).unwrap();
    let mut tally = Tally::new();
    let mut version = vec![0; 85];
    version[..4].copy_from_slice(&70016_u32.to_le_bytes());
    version.push(1);
    for (name, payload) in [
        ("version", &version[..]),
        ("verack", &[]),
        ("ping", &[7; 8]),
    ] {
        stream.write_all(&message(name, payload)).unwrap();
    }
    let mut take = |record: Record| tally.add(&record);
    rpc.watch(Duration::from_secs(1), &|| true, &mut take)
        .unwrap();
    let (_, peer) = tally.peers().next().expect("the peer");
    let connection = peer.connection.clone().unwrap();
    assert_eq!(connection.address, stream.local_addr().unwrap().to_string());
    assert_eq!(connection.kind, ConnectionType::Inbound);
    assert_eq!(connection.transport, Some(Transport::V1));
    assert_eq!(connection.network, Some(Network::Unroutable));
    assert_eq!(connection.relay, Some(true));
    let received = tally.received(|_| true);
    assert_eq!(received["version"].messages.bytes, 24 + 86);
    assert_eq!(received["ping"].messages.bytes, 24 + 8);
    assert!(tally.sent(|_| true)["pong"].messages.bytes >= 32);
    assert!(tally.message_thread().is_some());

    drop(stream);
    let mut gone = false;
    for _ in 0..50 {
        let take = &mut |record: Record| gone |= record.event == Event::Disconnected { peer: 0 };
        rpc.watch(Duration::from_millis(100), &|| true, take)
            .unwrap();
    }
    assert!(gone);
    drop(node);
    let error = watch(&mut rpc).unwrap_err().to_string();
    assert!(error.contains("has ended"), "{error}");
}

/// A v1 message on regtest.
fn message(name: &str, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let message_type = MessageType::new(name.as_bytes()).unwrap();
    v1::Message::new(message_type, payload)
        .encode(packetlane::bitcoin::Network::Regtest.magic(), &mut out);
    out
}
