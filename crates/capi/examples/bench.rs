//! bench.c without the C interface: 200 sessions exchange one message of 61 bytes in each direction per
//! turn, in one batch per direction. As in a real program, sessions stay in the box the handshake made,
//! and the compiler does not know message lengths. Prints the CPU time of sealing and opening one packet,
//! in nanoseconds.
//!
//! The argument is the duration in seconds. Run both with `crates/capi/bench`.

use core::hint::black_box;
use packetlane::bip324::{Handshake, HandshakeConfig, PacketKind, Progress, Session};
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch, SealBatch};
use rustix::time::{ClockId, clock_gettime};

const SESSIONS: usize = 200;
const LEN: usize = 61;

fn cpu_time() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    #[allow(clippy::cast_precision_loss, reason = "seconds of a benchmark")]
    let time = now.tv_sec as f64 + 1e-9 * now.tv_nsec as f64;
    time
}

fn connect_pair(engine: Engine) -> [Box<Session>; 2] {
    let config =
        || HandshakeConfig::random(Network::Mainnet.magic(), engine).expect("random bytes");
    let mut a = Handshake::initiator(config()).expect("an initiator");
    let mut b = Handshake::responder(config()).expect("a responder");
    b.receive(&a.take_output()).expect("a key");
    let Ok(Progress::Complete(near)) = a.receive(&b.take_output()) else {
        panic!("the handshake ends")
    };
    let Ok(Progress::Complete(far)) = b.receive(&a.take_output()) else {
        panic!("the handshake ends")
    };
    [near, far]
}

struct Batches {
    engine: Engine,
    outgoing: SealBatch,
    incoming: OpenBatch,
}

impl Batches {
    /// Sends a message from each session of `from` to its peer.
    fn one_way(&mut self, from: &mut [Box<Session>], to: &mut [Box<Session>]) {
        let Self {
            engine,
            outgoing,
            incoming,
        } = self;
        // Hides the length from the compiler.
        let contents = black_box(&[7; LEN][..]);
        let slots: [_; SESSIONS] = core::array::from_fn(|i| {
            let outbound = &mut from[i].outbound;
            let pushed = outbound.push(outgoing, PacketKind::Genuine, contents);
            pushed.expect("room")
        });
        engine.seal(outgoing);
        for (slot, session) in slots.iter().zip(&mut *to) {
            // Copies what sockets would carry.
            let wire = outgoing.wire(slot).expect("sealed");
            incoming.room(wire.len()).copy_from_slice(wire);
            let received = session.inbound.receive(incoming, wire.len());
            received.expect("room");
        }
        engine.open(incoming);
        for session in to {
            let packets = session.inbound.packets(incoming);
            let right = packets.filter(|packet| matches!(packet, &Ok(&[7, ..])));
            assert_eq!(right.count(), 1, "a message was lost");
        }
        outgoing.clear();
        incoming.clear();
    }
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(1.0, |argument| {
        argument.parse().expect("a number of seconds")
    });
    let engine = Engine::detect().expect("a backend of this CPU");
    let mut batches = Batches {
        engine,
        outgoing: SealBatch::new(),
        incoming: OpenBatch::new(),
    };
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..SESSIONS {
        let [one, other] = connect_pair(engine);
        near.push(one);
        far.push(other);
    }
    let mut turns = |count: usize| {
        for _ in 0..count {
            batches.one_way(&mut near, &mut far);
            batches.one_way(&mut far, &mut near);
        }
    };
    turns(100);
    let begun = cpu_time();
    let mut packets = 0_u32;
    loop {
        turns(20);
        packets += 20 * 2 * 200;
        let spent = cpu_time() - begun;
        if spent >= seconds {
            println!("{:.1}", 1e9 * spent / f64::from(packets));
            return;
        }
    }
}
