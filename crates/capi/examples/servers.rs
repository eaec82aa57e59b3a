//! The CPU cost of a packet in the example echo servers, in C and in Rust. `crates/capi/bench` runs both.
//!
//! ```text
//! servers serve CLIENTS               the Rust server, like `server 0 CLIENTS` in C
//! servers load PID ADDRESS SECONDS    200 clients that each send one message of 61 bytes per turn to
//!                                     the server in process PID; prints the server's CPU time per
//!                                     message and answer, in nanoseconds
//! ```

use event_loop::serve;
use packetlane::bip324::{Connection, HandshakeConfig, PacketKind};
use packetlane::bitcoin::Network;
use packetlane::{Engine, OpenBatch, SealBatch};
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[allow(dead_code, unreachable_pub, reason = "an example of its own")]
#[path = "../../packetlane/examples/event_loop.rs"]
mod event_loop;

const CLIENTS: usize = 200;
const MESSAGE: [u8; 61] = [7; 61];

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

struct Client {
    socket: TcpStream,
    connection: Connection,
}

impl Client {
    fn new(engine: Engine, address: &str) -> Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let config = HandshakeConfig::random(Network::Regtest.magic(), engine)?;
        let connection = Connection::initiator(config)?;
        Ok(Self { socket, connection })
    }

    fn write(&mut self, outgoing: &SealBatch) -> Result<()> {
        let Self { socket, connection } = self;
        let write = |pieces: &[IoSlice<'_>]| socket.write_vectored(pieces);
        Ok(connection.outbox.write(outgoing, write)?)
    }

    fn read(&mut self, incoming: &mut OpenBatch) -> Result<()> {
        let len = self.socket.read(incoming.room(4096))?;
        if len == 0 {
            return Err(self.connection.closed().into());
        }
        self.connection.receive(incoming, len)?;
        Ok(())
    }
}

struct Load {
    engine: Engine,
    clients: Vec<Client>,
    incoming: OpenBatch,
    outgoing: SealBatch,
}

impl Load {
    fn connect(address: &str) -> Result<Self> {
        let engine = Engine::detect()?;
        let clients = (0..CLIENTS).map(|_| Client::new(engine, address));
        let mut load = Self {
            engine,
            clients: clients.collect::<Result<_>>()?,
            incoming: OpenBatch::new(),
            outgoing: SealBatch::new(),
        };
        for client in &mut load.clients {
            while client.connection.session().is_none() {
                client.write(&load.outgoing)?;
                client.read(&mut load.incoming)?;
            }
            client.write(&load.outgoing)?;
        }
        load.incoming.clear();
        Ok(load)
    }

    /// Every client sends a message and waits for the echo.
    fn turn(&mut self) -> Result<()> {
        let (incoming, outgoing) = (&mut self.incoming, &mut self.outgoing);
        for client in &mut self.clients {
            let connection = &mut client.connection;
            connection.push(outgoing, PacketKind::Genuine, &MESSAGE)?;
        }
        self.engine.seal(outgoing);
        for client in &mut self.clients {
            client.write(outgoing)?;
        }
        outgoing.clear();
        for client in &mut self.clients {
            client.read(incoming)?;
        }
        self.engine.open(incoming);
        for client in &mut self.clients {
            if client.connection.next_packet(incoming)? != Some(&MESSAGE) {
                return Err("the echo differs from the message".into());
            }
        }
        incoming.clear();
        Ok(())
    }
}

/// The CPU time of a process, in nanoseconds.
fn cpu_time(process: &str) -> Result<u64> {
    let times = std::fs::read_to_string(format!("/proc/{process}/schedstat"))?;
    let first = times.split(' ').next().unwrap_or_default();
    Ok(first.parse()?)
}

fn measure(process: &str, address: &str, seconds: f64) -> Result<()> {
    let mut load = Load::connect(address)?;
    for _ in 0..50 {
        load.turn()?;
    }
    let (begun, before) = (Instant::now(), cpu_time(process)?);
    let mut turns = 0;
    while begun.elapsed() < Duration::try_from_secs_f64(seconds)? {
        load.turn()?;
        turns += 1;
    }
    let spent = cpu_time(process)? - before;
    println!("{}", spent / (turns * CLIENTS as u64));
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match *arguments {
        ["serve", clients] => {
            let listener = mio::net::TcpListener::bind("127.0.0.1:0".parse()?)?;
            println!("listening on {}", listener.local_addr()?);
            serve(Engine::detect()?, listener, clients.parse()?)?;
            Ok(())
        }
        ["load", process, address, seconds] => measure(process, address, seconds.parse()?),
        _ => Err("usage: servers serve CLIENTS, or servers load PID ADDRESS SECONDS".into()),
    }
}
