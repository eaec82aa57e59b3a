//! A v1 peer that completes the handshake, sends some pings and then only reads, until the node
//! disconnects.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

/// What the peer wants from the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// Transactions: the relay flag of its `version` (BIP37).
    pub(crate) transactions: bool,
    /// Blocks announced with `headers` instead of `inv` (BIP130).
    pub(crate) headers: bool,
    /// How many pings it sends.
    pub(crate) pings: u64,
}

/// Runs such a peer in a thread. Either side may have opened the connection.
pub(crate) fn start(stream: TcpStream, wants: Wants) {
    // The thread ends with its connection.
    thread::spawn(move || live(stream, wants));
}

fn live(mut stream: TcpStream, wants: Wants) -> io::Result<()> {
    let mut said = Vec::new();
    push(&mut said, "version", &version(wants));
    for message_type in ["wtxidrelay", "sendaddrv2", "verack"] {
        push(&mut said, message_type, &[]);
    }
    if wants.headers {
        push(&mut said, "sendheaders", &[]);
    }
    for nonce in 0..wants.pings {
        push(&mut said, "ping", &nonce.to_le_bytes());
    }
    stream.write_all(&said)?;
    let mut bytes = [0; 16 << 10];
    while stream.read(&mut bytes)? > 0 {}
    Ok(())
}

fn push(wire: &mut Vec<u8>, message_type: &'static str, payload: &[u8]) {
    let magic = Network::Regtest.magic();
    v1::Message::new(MessageType::literal(message_type), payload).encode(magic, wire);
}

fn version(wants: Wants) -> Vec<u8> {
    const PROTOCOL: u32 = 70016;
    // NODE_NETWORK and NODE_WITNESS, which the node requires of outbound peers.
    const SERVICES: u64 = 9;
    let mut payload = PROTOCOL.to_le_bytes().to_vec();
    payload.extend(SERVICES.to_le_bytes());
    // Time, two addresses, and the nonce for detecting connections to itself.
    payload.extend([0; 8 + 26 + 26]);
    payload.extend(rand::random::<u64>().to_le_bytes());
    // An empty user agent, height 0.
    payload.extend([0; 1 + 4]);
    payload.push(u8::from(wants.transactions));
    payload
}
