//! Traffic shaping towards a v2 peer.

use crate::close::Close;
use packetlane::bip324::shape::{Priority, Shape, Shaped, Shaper};
use packetlane::bip324::{Connection, ConnectionError, PacketKind};
use packetlane::bitcoin::message::MessageType;
use packetlane::{Engine, SealBatch};
use packetlane_p2p::message_type::is_about_block;
use std::io::{self, IoSlice};
use std::time::{Duration, Instant};

/// A shaper with the gateway's clock.
#[derive(Debug)]
pub(crate) struct Shaping {
    shaper: Shaper,
    started: Instant,
}

impl Shaping {
    /// Shapes a connection whose handshake is done. What it has queued is the first flight.
    pub(crate) fn new(
        shape: Shape,
        engine: Engine,
        connection: &Connection,
        now: Instant,
    ) -> Result<Self, Close> {
        let shaper = Shaper::random(shape, engine).map_err(ConnectionError::Handshake);
        let mut shaping = Self {
            shaper: shaper.map_err(Close::Protocol)?,
            started: now,
        };
        let queued = connection.outbox.len();
        shaping
            .shaper
            .push(Duration::ZERO, queued, Priority::Urgent);
        Ok(shaping)
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Counts a message that was added to the outbox.
    pub(crate) fn push(
        &mut self,
        message_type: MessageType,
        payload: &[u8],
        wire_len: usize,
        now: Instant,
    ) {
        let priority = match is_about_block(message_type, payload) {
            true => Priority::Urgent,
            false => Priority::Normal,
        };
        self.shaper.push(self.since_start(now), wire_len, priority);
    }

    /// Adds decoys to the connection, until `queued` bytes are queued. What may be written now is
    /// decided then.
    pub(crate) fn add_decoys(
        &mut self,
        connection: &mut Connection,
        outgoing: &mut SealBatch,
        queued: usize,
        now: Instant,
    ) -> Result<(), Close> {
        // The peer does not read: decoys would only wait.
        if self.shaper.released() > 0 {
            return Ok(());
        }
        let now = self.since_start(now);
        // As long as the queue is full, the node is not read, and its next message may be a block.
        if connection.outbox.len() >= queued {
            self.shaper.flush(now);
        }
        while let Some(len) = self.shaper.decoy(now)
            && let Some(session) = connection.session_mut()
        {
            // The peer reads it: no bytes of others may be in there.
            let decoy = session
                .outbound
                .push_with(outgoing, PacketKind::Decoy, len, |contents| {
                    contents.fill(0);
                });
            let slot = decoy.map_err(|error| Close::Protocol(error.into()))?;
            connection.outbox.push(slot);
            if connection.outbox.len() >= queued {
                break;
            }
        }
        Ok(())
    }

    /// Writes as many bytes of `pieces` as may leave now.
    pub(crate) fn write(
        &mut self,
        pieces: &[IoSlice<'_>],
        write: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let released = self.shaper.released();
        if released == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut left = released;
        let whole = pieces.iter().take_while(|piece| {
            let fits = piece.len() <= left;
            left = left.saturating_sub(piece.len());
            fits
        });
        let written = match (whole.count(), pieces) {
            (0, [first, ..]) => write(&[IoSlice::new(&first[..released])])?,
            (whole, pieces) => write(&pieces[..whole])?,
        };
        self.shaper.written(written);
        Ok(written)
    }

    /// Whether everything that may leave now was written.
    pub(crate) fn is_written(&self) -> bool {
        self.shaper.released() == 0
    }

    /// When the link needs a turn for the shaper. None as long as the peer does not read.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        let wake_at = self.shaper.wake_at().filter(|_| self.is_written())?;
        self.started.checked_add(wake_at)
    }

    pub(crate) fn counts(&self) -> Shaped {
        self.shaper.counts()
    }
}
