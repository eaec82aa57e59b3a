//! A peer over v1 that introduces itself and then only reads, for as long as the node stays.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;

/// What the peer asks the node for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wants {
    /// Transactions: the relay flag of its `version` (BIP 37).
    pub(crate) transactions: bool,
    /// Blocks announced by `headers`, not by `inv` (BIP 130).
    pub(crate) headers: bool,
}

/// Runs such a peer in a thread. Either side may have connected.
pub(crate) fn start(stream: TcpStream, wants: Wants) {
    // It ends with its connection.
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
    // NODE_NETWORK and NODE_WITNESS, which the node wants of those to whom it connects.
    const SERVICES: u64 = 9;
    let mut payload = PROTOCOL.to_le_bytes().to_vec();
    payload.extend(SERVICES.to_le_bytes());
    // The time, two addresses, and the nonce, by which the node knows itself.
    payload.extend([0; 8 + 26 + 26]);
    payload.extend(rand::random::<u64>().to_le_bytes());
    // No user agent; no blocks.
    payload.extend([0; 1 + 4]);
    payload.push(u8::from(wants.transactions));
    payload
}
