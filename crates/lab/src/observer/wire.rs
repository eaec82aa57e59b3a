//! What an observer sees of a connection: TCP segments.

use super::trace::{Message, Trace};
use packetlane::Engine;
use packetlane::bip324::Session;
use packetlane::bip324::shape::{Priority, Shape, Shaped, Shaper};
use packetlane_p2p::message_type::VERSION;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use std::time::Duration;

/// Bytes of a full segment: an Ethernet frame's, less the headers of IPv4 and of TCP with timestamps.
pub(crate) const FULL_SEGMENT: u32 = 1448;

/// Longest garbage that is sent, in bytes (`HandshakeConfig::random`).
const MAX_GARBAGE_SENT: usize = 4094;

/// A segment that carries data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Microseconds since the recording began.
    pub(crate) at: u64,
    /// Whether it leaves the recording node.
    pub(crate) sent: bool,
    /// Bytes of data.
    pub(crate) len: u32,
}

/// What an observer sees of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observed {
    /// In the order of time.
    pub(crate) segments: Vec<Segment>,
    /// From the beginning to the end, in microseconds since the recording began.
    pub(crate) span: (u64, u64),
    /// What shaping added, in each direction that is shaped.
    pub(crate) shaped: Vec<Shaped>,
    /// Bytes of messages in the directions that are shaped.
    pub(crate) shaped_bytes: u64,
}

/// Which directions are shaped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// What the recording node sends.
    Own,
    Both,
}

impl Observed {
    /// The segments of a trace whose directions are shaped like this. `seed` determines decoys.
    ///
    /// Without a shape, each message has segments of its own: Bitcoin Core makes a system call for each.
    /// With one, messages that are sent within a millisecond are one flight.
    pub(crate) fn of(trace: &Trace, engine: Engine, shape: Shape, sides: Sides, seed: u8) -> Self {
        let mut observed = Self {
            span: (trace.start(), trace.end()),
            ..Self::default()
        };
        observed.handshake(trace, seed);
        for sent in [true, false] {
            let messages: Vec<_> = trace.messages.iter().filter(|m| m.sent == sent).collect();
            if shape == Shape::NONE || !sent && sides == Sides::Own {
                for message in messages {
                    observed.write(message.at, sent, message.wire_len());
                }
                continue;
            }
            let shaper = Shaper::new(shape, engine, [seed.wrapping_mul(2) | u8::from(sent); 32]);
            observed.shape(&messages, sent, shaper);
        }
        observed.segments.sort_by_key(|segment| segment.at);
        observed
    }

    /// Adds the handshake, if the trace begins with the connection: keys with garbage of random length,
    /// terminators and version packets.
    fn handshake(&mut self, trace: &Trace, seed: u8) {
        const KEY: usize = 64;
        const END: usize = 16 + Session::OVERHEAD;
        let Some(first) = trace.messages.first() else {
            return;
        };
        if first.message_type != VERSION {
            return;
        }
        let mut rng = StdRng::seed_from_u64(seed.into());
        let mut garbage = || rng.random_range(0..=MAX_GARBAGE_SENT);
        // The side that opened the connection sends its version first.
        for (sent, len) in [
            (first.sent, KEY + garbage()),
            (!first.sent, KEY + garbage() + END),
            (first.sent, END),
        ] {
            self.write(first.at, sent, len);
        }
    }

    /// Sends the messages of one direction through a shaper.
    fn shape(&mut self, messages: &[&Message], sent: bool, mut shaper: Shaper) {
        let (start, end) = self.span;
        for flight in messages.chunk_by(|one, next| one.at == next.at) {
            let now = flight[0].at;
            self.wake(&mut shaper, now - start, sent);
            for message in flight {
                let priority = match message.is_about_block() {
                    true => Priority::Urgent,
                    false => Priority::Normal,
                };
                let now = Duration::from_micros(now - start);
                shaper.push(now, message.wire_len(), priority);
                self.shaped_bytes += message.wire_len() as u64;
            }
            self.turn(&mut shaper, now - start, sent);
        }
        self.wake(&mut shaper, end - start, sent);
        self.shaped.push(shaper.counts());
    }

    /// Runs a shaper until this time.
    fn wake(&mut self, shaper: &mut Shaper, until: u64, sent: bool) {
        while let Some(at) = shaper.wake_at().map(|at| at.as_micros() as u64)
            && at < until
        {
            self.turn(shaper, at, sent);
        }
    }

    fn turn(&mut self, shaper: &mut Shaper, now: u64, sent: bool) {
        while shaper.decoy(Duration::from_micros(now)).is_some() {}
        let bytes = shaper.released();
        shaper.written(bytes);
        self.write(self.span.0 + now, sent, bytes);
    }

    /// Adds the segments of one write.
    fn write(&mut self, at: u64, sent: bool, bytes: usize) {
        let mut rest = bytes as u64;
        while rest > 0 {
            let len = rest.min(FULL_SEGMENT.into()) as u32;
            self.segments.push(Segment { at, sent, len });
            rest -= u64::from(len);
        }
    }

    /// The part of these seconds since the connection began.
    pub(crate) fn part(&self, seconds: std::ops::Range<u64>) -> &[Segment] {
        let at = |second: u64| {
            let time = self.span.0 + second * 1_000_000;
            self.segments.partition_point(|segment| segment.at < time)
        };
        &self.segments[at(seconds.start)..at(seconds.end)]
    }

    /// How many whole seconds the connection lasts.
    pub(crate) fn seconds(&self) -> u64 {
        (self.span.1 - self.span.0) / 1_000_000
    }

    /// Bytes in each second, both directions together.
    pub(crate) fn bytes_per_second(&self) -> Vec<f64> {
        let mut bytes = vec![0.0; self.seconds() as usize + 1];
        for segment in &self.segments {
            let second = (segment.at - self.span.0) / 1_000_000;
            if let Some(bytes) = bytes.get_mut(second as usize) {
                *bytes += f64::from(segment.len);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace::recorded;
    use super::*;
    use packetlane::bip324::shape::Pace;

    /// Shaping moves bytes and adds decoys, and loses none.
    #[test]
    fn all_bytes_are_seen() {
        let engine = Engine::detect().unwrap();
        let trace = &recorded()[0];
        let bytes = |observed: &Observed| -> u64 {
            observed
                .segments
                .iter()
                .map(|segment| u64::from(segment.len))
                .sum()
        };
        let plain = Observed::of(trace, engine, Shape::NONE, Sides::Both, 1);
        let messages: usize = trace.messages.iter().map(Message::wire_len).sum();
        let handshake = bytes(&plain) - messages as u64;
        assert!((200..10_000).contains(&handshake), "{handshake}");
        let shape = Shape {
            pad: true,
            cover: true,
            pace: Pace::Immediate,
            bytes_per_day: 50_000_000,
            ..Shape::NONE
        };
        for sides in [Sides::Own, Sides::Both] {
            let shaped = Observed::of(trace, engine, shape, sides, 1);
            let decoys: u64 = shaped.shaped.iter().map(|counts| counts.decoy_bytes).sum();
            assert_eq!(bytes(&shaped), handshake + messages as u64 + decoys);
            assert!(decoys > 0);
        }
    }
}
