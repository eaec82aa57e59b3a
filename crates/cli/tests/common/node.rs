//! A v1 peer.

use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Time limit for every wait of a peer.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

pub(crate) const REGTEST: [u8; 4] = Network::Regtest.magic();

/// Reads until the command closes the connection.
pub(crate) fn wait_for_close(stream: &mut TcpStream) -> io::Result<()> {
    io::copy(stream, &mut io::sink()).map(|_| ())
}

/// A v1 peer that behaves well unless told otherwise.
pub(crate) struct Node {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
    /// Nonces of pings that arrived while something else was expected.
    pings: Vec<Vec<u8>>,
}

impl Node {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            received: Vec::new(),
            pings: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, name: &str, payload: &[u8]) -> io::Result<()> {
        let mut bytes = Vec::new();
        v1::Message::new(MessageType::literal(name), payload).encode(REGTEST, &mut bytes);
        self.stream.write_all(&bytes)
    }

    pub(crate) fn receive(&mut self) -> io::Result<(String, Vec<u8>)> {
        loop {
            if let Some(message) =
                v1::Message::decode(REGTEST, &self.received).expect("what it sends")
            {
                let name = message.message_type.name().to_owned();
                let payload = message.payload.to_vec();
                let length = message.wire_len();
                self.received.drain(..length);
                return Ok((name, payload));
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                length => self.received.extend_from_slice(&bytes[..length]),
            }
        }
    }

    /// The next message with this name.
    pub(crate) fn expect(&mut self, expected: &str) -> io::Result<Vec<u8>> {
        loop {
            let (name, payload) = self.receive()?;
            if name == expected {
                return Ok(payload);
            }
            if name == "ping" {
                self.pings.push(payload);
            }
        }
    }

    pub(crate) fn introduce(&mut self) -> io::Result<()> {
        self.expect("version")?;
        self.send("version", &version(b"/fake:1.0/"))?;
        self.send("sendaddrv2", &[])?;
        self.send("verack", &[])?;
        self.expect("verack").map(|_| ())
    }

    /// Answers pings until the command closes the connection.
    pub(crate) fn answer_pings(&mut self) -> io::Result<()> {
        loop {
            for nonce in std::mem::take(&mut self.pings) {
                self.send("pong", &nonce)?;
            }
            let nonce = self.expect("ping")?;
            self.pings.push(nonce);
        }
    }
}

/// The payload of a `version` message.
pub(crate) fn version(user_agent: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    payload.extend_from_slice(&70016_i32.to_le_bytes());
    payload.extend_from_slice(&0x809_u64.to_le_bytes());
    payload.extend_from_slice(&[0; 8 + 26 + 26 + 8]);
    payload.push(user_agent.len() as u8);
    payload.extend_from_slice(user_agent);
    payload.extend_from_slice(&7_i32.to_le_bytes());
    payload.push(1);
    payload
}
