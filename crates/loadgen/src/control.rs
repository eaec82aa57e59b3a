//! A separate connection that reads the node's chain and sends the first blocks.

use crate::chain::{Chain, Mined};
use crate::connection::{ConnectionError, Reader, Transport, Writer, open};
use crate::options::TrafficError;
use crate::payload;
use bitcoin::block::Header;
use packetlane::Engine;
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use packetlane_p2p::message_type::{BLOCK, GETHEADERS, HEADERS, PING, PONG, VERACK, VERSION};
use packetlane_p2p::payload::{MAX_HEADERS, unix_time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Timeout of an answer. Blocks may be queued before it.
const ANSWER: Duration = Duration::from_secs(60);

pub(crate) struct Control {
    reader: Reader,
    writer: Writer,
}

impl Control {
    /// Connects over v1, which every node speaks, and exchanges versions.
    pub(crate) async fn open(
        address: SocketAddr,
        network: Network,
        engine: Engine,
    ) -> Result<Self, ConnectionError> {
        let (reader, writer) = open(address, network, Transport::V1, false, engine).await?;
        let mut control = Self { reader, writer };
        // The nonces of this connection must not repeat.
        let mut rng = StdRng::seed_from_u64(u64::from(unix_time()));
        control
            .send(VERSION, &payload::version("control", false, 0, &mut rng))
            .await?;
        control.wait_for(VERSION).await?;
        control.send(VERACK, &[]).await?;
        control.wait_for(VERACK).await?;
        Ok(control)
    }

    /// Adds the node's headers to `chain`, which must start like the node's.
    pub(crate) async fn read_chain(&mut self, chain: &mut Chain) -> Result<(), TrafficError> {
        loop {
            let question = payload::getheaders(&chain.locator());
            self.send(GETHEADERS, &question).await?;
            let answer = self.wait_for(HEADERS).await?;
            let headers = payload::decode_headers(&answer).ok_or(TrafficError::Headers)?;
            let full = headers.len() == MAX_HEADERS;
            for header in headers {
                chain.add_header(header)?;
            }
            if !full {
                return Ok(());
            }
        }
    }

    /// Sends blocks and waits until the node has validated them.
    pub(crate) async fn send_blocks(
        &mut self,
        blocks: &[Arc<Mined>],
    ) -> Result<(), ConnectionError> {
        for mined in blocks {
            self.send(BLOCK, &mined.bytes).await?;
        }
        let nonce = StdRng::seed_from_u64(0).next_u64().to_le_bytes();
        self.send(PING, &nonce).await?;
        while self.wait_for(PONG).await? != nonce {}
        Ok(())
    }

    /// Whether `tip` is the tip of the node's best chain.
    pub(crate) async fn has(&mut self, tip: &Header) -> Result<bool, ConnectionError> {
        // Asked for the headers after `tip`, a node that has only its header would return none, too.
        let question = payload::getheaders(&[tip.prev_blockhash]);
        self.send(GETHEADERS, &question).await?;
        let answer = self.wait_for(HEADERS).await?;
        Ok(payload::decode_headers(&answer).as_deref() == Some(&[*tip]))
    }

    async fn send(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        match timeout(ANSWER, self.writer.send(message_type, payload)).await {
            Ok(sent) => sent.map(|_wire_len| ()).map_err(ConnectionError::from),
            Err(_) => Err(ConnectionError::NotReading),
        }
    }

    /// Waits for a message of this type and returns its payload.
    async fn wait_for(&mut self, wanted: MessageType) -> Result<Vec<u8>, ConnectionError> {
        let wait = async {
            loop {
                let message = self.reader.receive().await?;
                if message.message_type == wanted {
                    return Ok(message.payload);
                }
                if message.message_type == PING {
                    self.writer.send(PONG, &message.payload).await?;
                }
            }
        };
        match timeout(ANSWER, wait).await {
            Ok(found) => found,
            Err(_) => Err(ConnectionError::NoAnswer { wanted }),
        }
    }
}
