//! `bip324.turn`: one turn of a server's event loop, in batches and one packet at a time.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Contender, Plan, in_turn};
use crate::picture::{Bottom, Picture};
use crate::record::{Metric, record};
use crate::report::{Case, OURS, Report};
use crate::rivals::ours::ONE_AT_A_TIME;
use crate::sentence::Figure;
use crate::workload::packets::PREPARED_BYTES;
use packetlane::bip324::{Connection, Outbound, PacketKind, Role, Session, SessionKeys};
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch, SealBatch};
use std::io::{self, ErrorKind, IoSlice};

const SESSIONS: [usize; 6] = [1, 4, 8, 16, 64, 200];
const BYTES: [usize; 2] = [61, 400];

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.turn",
    description: "One turn of an event loop: a packet of each session, opened and answered",
    cases,
    headline: Headline {
        case: "sessions=64 bytes=61",
        metric: "time_per_packet",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::log("sessions", "sessions")),
        facets: &["bytes"],
        ..Picture::new("time_per_packet", "One turn of an event loop")
    }],
    words,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let mut tasks = Vec::new();
    for bytes in BYTES {
        for sessions in SESSIONS {
            if bench.quick && (bytes != BYTES[0] || ![1, 8, 64].contains(&sessions)) {
                continue;
            }
            let timed = "thread CPU time of a server to receive a packet of each session and \
                         answer it with the same contents, without system calls: from the bytes \
                         read from a socket to the bytes for it";
            let case = EXPERIMENT
                .case(timed)
                .with("sessions", sessions)
                .with("bytes", bytes);
            tasks.push(Task::new(case, move |case, plan, report| {
                run(engine, (sessions, bytes), case, plan, report);
            }));
        }
    }
    tasks
}

fn run(
    engine: Engine,
    (sessions, bytes): (usize, usize),
    case: &Case,
    plan: &Plan,
    report: &mut Report,
) {
    let backend = engine.backend().name();
    let mut answers = [Vec::new(), Vec::new()];
    let [batches, single] = &mut answers;
    let mut contenders = [
        contender(
            OURS,
            backend,
            Clients::new(engine, sessions, bytes),
            {
                let mut server = InBatches::new(engine, sessions);
                move |wires: &[u8], socket: &mut Socket<'_>| server.turn(wires, socket)
            },
            batches,
        ),
        contender(
            ONE_AT_A_TIME,
            backend,
            Clients::new(engine, sessions, bytes),
            {
                let mut server = OneAtATime::new(engine, sessions);
                move |wires: &[u8], socket: &mut Socket<'_>| server.turn(wires, socket)
            },
            single,
        ),
    ];
    let samples = in_turn(&mut contenders, plan);
    drop(contenders);
    let [batches, single] = answers;
    assert!(batches == single, "the answers differ");
    let metrics = [Metric::time("time_per_packet", "ns", sessions)];
    record(report, case, &metrics, &samples);
}

/// Stands for writing to a socket: takes all pieces.
type Socket<'a> = dyn FnMut(&[IoSlice<'_>]) -> io::Result<usize> + 'a;

/// A server's turns. The answers of a first turn are appended to `answers`.
fn contender<'a>(
    name: &str,
    backend: &str,
    mut clients: Clients,
    mut turn: impl FnMut(&[u8], &mut Socket<'_>) + 'a,
    answers: &mut Vec<u8>,
) -> Contender<'a> {
    let mut wire = Vec::new();
    clients.seal(&mut wire);
    turn(&wire, &mut |pieces| Ok(append(pieces, answers)));
    assert_eq!(answers.len(), wire.len(), "{name}: answers are missing");
    let calls = (PREPARED_BYTES / wire.len()).clamp(1, 4096);
    Contender::with_input(
        name,
        backend,
        vec![Vec::new(); calls],
        calls,
        move |wires: &mut Vec<Vec<u8>>, calls| {
            for wire in &mut wires[..calls] {
                wire.clear();
                clients.seal(wire);
            }
        },
        move |wires, call| {
            let mut len = 0;
            turn(&wires[call], &mut |pieces| {
                let written = pieces.iter().map(|piece| piece.len()).sum();
                len += written;
                Ok(written)
            });
            len
        },
    )
}

/// Appends what a server writes. Returns the number of bytes.
fn append(pieces: &[IoSlice<'_>], answers: &mut Vec<u8>) -> usize {
    let before = answers.len();
    for piece in pieces {
        answers.extend_from_slice(piece);
    }
    answers.len() - before
}

fn sessions(engine: Engine, count: usize, role: Role) -> impl Iterator<Item = Session> {
    (0..count).map(move |number| {
        let mut secret = [0; 32];
        secret[..8].copy_from_slice(&(number as u64).to_le_bytes());
        let keys = SessionKeys::derive(&secret, Network::Mainnet.magic());
        Session::from_keys(engine, &keys, role)
    })
}

/// The clients' sending ends.
struct Clients {
    ends: Vec<Outbound>,
    contents: Vec<u8>,
}

impl Clients {
    fn new(engine: Engine, count: usize, bytes: usize) -> Self {
        let ends = sessions(engine, count, Role::Initiator).map(|session| session.outbound);
        Self {
            ends: ends.collect(),
            contents: (0..bytes).map(|at| at as u8).collect(),
        }
    }

    /// Appends a packet of each client.
    fn seal(&mut self, wire: &mut Vec<u8>) {
        for end in &mut self.ends {
            end.seal(PacketKind::Genuine, &self.contents, wire)
                .expect("short contents");
        }
    }
}

/// A server with one batch per turn in each direction.
struct InBatches {
    engine: Engine,
    connections: Vec<Connection>,
    incoming: OpenBatch,
    outgoing: SealBatch,
}

impl InBatches {
    fn new(engine: Engine, count: usize) -> Self {
        let sessions = sessions(engine, count, Role::Responder);
        Self {
            engine,
            connections: sessions.map(Connection::from).collect(),
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
        }
    }

    fn turn(&mut self, wires: &[u8], socket: &mut Socket<'_>) {
        let len = wires.len() / self.connections.len();
        for (connection, wire) in self.connections.iter_mut().zip(wires.chunks(len)) {
            self.incoming.room(len).copy_from_slice(wire);
            let added = connection.receive(&mut self.incoming, len);
            assert_eq!(added, Ok(1));
        }
        self.engine.open(&mut self.incoming);
        for connection in &mut self.connections {
            while let Some(contents) = connection.next_packet(&self.incoming).expect("authentic") {
                connection
                    .push(&mut self.outgoing, PacketKind::Genuine, contents)
                    .expect("short contents");
            }
        }
        self.engine.seal(&mut self.outgoing);
        for connection in &mut self.connections {
            let written = connection
                .outbox
                .write(&self.outgoing, |pieces| socket(pieces));
            written.expect("all is sealed");
        }
        self.incoming.clear();
        self.outgoing.clear();
    }
}

/// A server without batches: each session has the bytes that its socket has not accepted yet.
struct OneAtATime {
    sessions: Vec<(Session, Vec<u8>)>,
    received: Vec<u8>,
}

impl OneAtATime {
    fn new(engine: Engine, count: usize) -> Self {
        Self {
            sessions: sessions(engine, count, Role::Responder)
                .map(|session| (session, Vec::new()))
                .collect(),
            received: Vec::new(),
        }
    }

    fn turn(&mut self, wires: &[u8], socket: &mut Socket<'_>) {
        let len = wires.len() / self.sessions.len();
        self.received.resize(len, 0);
        for ((session, unsent), wire) in self.sessions.iter_mut().zip(wires.chunks(len)) {
            self.received.copy_from_slice(wire);
            let mut bytes = &self.received[..];
            while let Some(contents) = session.inbound.open(&mut bytes).expect("authentic") {
                session
                    .outbound
                    .seal(PacketKind::Genuine, contents, unsent)
                    .expect("short contents");
            }
            while !unsent.is_empty() {
                match socket(&[IoSlice::new(unsent)]) {
                    Ok(0) => panic!("the socket accepts nothing"),
                    Ok(written) => drop(unsent.drain(..written)),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "a server's turn over {} sessions, one {}-byte packet of each opened and answered: \
         {figure} per packet",
        figure.key("sessions"),
        figure.key("bytes")
    ))
}

fn words(key: &str, value: &str) -> Option<String> {
    (key == "bytes").then(|| format!("{value} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use packetlane::bip324::Session;

    /// With both kinds of servers, over more than one rekey.
    #[test]
    fn both_servers_answer_alike() {
        let engine = Engine::detect().unwrap();
        for (count, bytes) in [(1, 61), (5, 0), (16, 400)] {
            let mut clients = Clients::new(engine, count, bytes);
            let mut batches = InBatches::new(engine, count);
            let mut single = OneAtATime::new(engine, count);
            for _ in 0..230 {
                let (mut wire, mut one, mut other) = (Vec::new(), Vec::new(), Vec::new());
                clients.seal(&mut wire);
                batches.turn(&wire, &mut |pieces| Ok(append(pieces, &mut one)));
                single.turn(&wire, &mut |pieces| Ok(append(pieces, &mut other)));
                assert_eq!(one.len(), count * (bytes + Session::OVERHEAD));
                assert!(one == other);
            }
        }
    }
}
