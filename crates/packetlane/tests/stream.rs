//! The adapter for tokio streams: dropped futures lose nothing, an end is reported once, and
//! nothing waits forever.

mod common;

use common::{MAGIC, Random, config, engine, noise, sessions};
use packetlane::bip324::stream::{Accepted, Reader, StreamError, Writer, connect, handshake};
use packetlane::bip324::{
    Handshake, HandshakeConfig, HandshakeError, OpenError, PacketKind, SealError, Session,
};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{
    AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf, duplex,
};

use PacketKind::{Decoy, Genuine};

/// One step of a scripted stream.
#[derive(Clone, Debug)]
enum Step {
    /// Reads or writes up to this many bytes.
    Bytes(usize),
    Pending,
    Fail(ErrorKind),
}

/// A stream that follows a script, then ends or accepts everything.
struct Scripted {
    incoming: VecDeque<u8>,
    reads: VecDeque<Step>,
    /// What reads do after the script.
    then: Step,
    outgoing: Vec<u8>,
    writes: VecDeque<Step>,
    flushes: VecDeque<Step>,
    /// Number of polls.
    polls: usize,
}

impl Scripted {
    fn new(incoming: &[u8]) -> Self {
        Self {
            incoming: incoming.iter().copied().collect(),
            reads: VecDeque::new(),
            then: Step::Bytes(usize::MAX),
            outgoing: Vec::new(),
            writes: VecDeque::new(),
            flushes: VecDeque::new(),
            polls: 0,
        }
    }
}

impl AsyncRead for Scripted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.polls += 1;
        match self.reads.pop_front().unwrap_or(self.then.clone()) {
            Step::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Step::Fail(kind) => Poll::Ready(Err(kind.into())),
            Step::Bytes(most) => {
                let len = most.min(buffer.remaining()).min(self.incoming.len());
                let bytes: Vec<_> = self.incoming.drain(..len).collect();
                buffer.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl AsyncWrite for Scripted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.polls += 1;
        match self.writes.pop_front().unwrap_or(Step::Bytes(usize::MAX)) {
            Step::Pending => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Step::Fail(kind) => Poll::Ready(Err(kind.into())),
            Step::Bytes(most) => {
                let len = most.min(bytes.len());
                self.outgoing.extend(&bytes[..len]);
                Poll::Ready(Ok(len))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.polls += 1;
        match self.flushes.pop_front() {
            Some(Step::Pending) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Some(Step::Fail(kind)) => Poll::Ready(Err(kind.into())),
            _ => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Polls `future` once and drops it.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn dressed(seed: u64) -> HandshakeConfig {
    HandshakeConfig {
        garbage: noise(seed, 1000),
        decoys: vec![noise(seed, 2000), vec![]],
        ..config(engine(), seed)
    }
}

fn v2(accepted: Accepted) -> Session {
    match accepted {
        Accepted::V2(session) => *session,
        Accepted::V1(bytes) => panic!("v1: {bytes:?}"),
    }
}

async fn shake(
    a: &mut DuplexStream,
    b: &mut DuplexStream,
    configs: [HandshakeConfig; 2],
) -> (Session, Session) {
    let [ours, theirs] = configs;
    let (initiator, responder) = tokio::join!(
        handshake(
            a,
            Handshake::initiator(ours).unwrap(),
            Handshake::DEFAULT_TIMEOUT
        ),
        handshake(
            b,
            Handshake::responder(theirs).unwrap(),
            Handshake::DEFAULT_TIMEOUT
        ),
    );
    (v2(initiator.unwrap()), v2(responder.unwrap()))
}

/// Messages in both directions after the handshake, through pipes of many capacities, some
/// smaller than what a side sends before it reads.
#[tokio::test(start_paused = true)]
async fn a_session_over_a_pipe() {
    for width in [1, 7, 100, 1500, 64 * 1024] {
        let (mut a, mut b) = duplex(width);
        let (ours, theirs) = shake(&mut a, &mut b, [dressed(1), dressed(2)]).await;
        assert_eq!(ours.id(), theirs.id());
        let messages: Vec<_> = (0..300)
            .map(|i| noise(i, (i as usize * 37) % 900))
            .collect();
        let talk = async |session: Session, stream: DuplexStream| {
            let (read, write) = tokio::io::split(stream);
            let mut reader = Reader::new(read, engine(), session.inbound);
            let mut writer = Writer::new(write, engine(), session.outbound);
            let send = async {
                for (i, message) in messages.iter().enumerate() {
                    writer.push(Decoy, &[0; 10]).unwrap();
                    match i % 3 {
                        0 => writer.write(Genuine, message).await.unwrap(),
                        _ => writer.push(Genuine, message).unwrap(),
                    }
                }
                writer.flush().await.unwrap();
            };
            let receive = async {
                for message in &messages {
                    assert_eq!(reader.read().await.unwrap(), message);
                }
                assert_eq!(reader.decoys(), messages.len() as u64);
            };
            tokio::join!(send, receive);
        };
        tokio::join!(talk(ours, a), talk(theirs, b));
    }
}

/// Both sides send more in the handshake than the pipe holds, so each must read while it
/// writes.
#[tokio::test(start_paused = true)]
async fn large_handshakes_do_not_deadlock() {
    let large = |seed| HandshakeConfig {
        garbage: noise(seed, 4095),
        decoys: vec![noise(seed, 300_000); 2],
        ..config(engine(), seed)
    };
    for width in [1024, 64 * 1024] {
        let (mut a, mut b) = duplex(width);
        let (ours, theirs) = shake(&mut a, &mut b, [large(1), large(2)]).await;
        assert_eq!(ours.id(), theirs.id());
    }
}

/// Packets that arrive in the same read as the handshake's end.
#[tokio::test]
async fn packets_after_the_handshake_are_read() {
    let [ours, theirs] = [config(engine(), 1), config(engine(), 2)];
    let mut craft = common::craft_initiator(&theirs, &ours);
    let mut bytes = [&craft.public[..], &craft.terminator].concat();
    for contents in [&b"version"[..], b"first", b"second"] {
        bytes.extend(craft.forge.packet(0, b"", contents));
    }
    let mut stream = Scripted::new(&bytes);
    let responder = Handshake::responder(ours).unwrap();
    let session = v2(
        handshake(&mut stream, responder, Handshake::DEFAULT_TIMEOUT)
            .await
            .unwrap(),
    );
    let polls = stream.polls;
    let mut reader = Reader::new(stream, engine(), session.inbound);
    assert_eq!(reader.read().await.unwrap(), b"first");
    assert_eq!(reader.read().await.unwrap(), b"second");
    let closed = reader.read().await.unwrap_err();
    assert!(matches!(
        closed,
        StreamError::Closed {
            within_packet: false
        }
    ));
    assert!(polls > 0);
}

fn wire_of(sender: &mut Session, messages: &[Vec<u8>]) -> Vec<u8> {
    let mut wire = Vec::new();
    for message in messages {
        sender.outbound.seal(Decoy, b"", &mut wire).unwrap();
        sender.outbound.seal(Genuine, message, &mut wire).unwrap();
    }
    wire
}

/// Every read is dropped at every await, and there is one before each byte.
#[test]
fn dropped_reads_lose_nothing() {
    let messages: Vec<_> = (0..250).map(|i| noise(i, i as usize % 40)).collect();
    for mode in 0..3 {
        let (mut sender, receiver) = sessions(engine(), 1);
        let wire = wire_of(&mut sender, &messages);
        let mut stream = Scripted::new(&wire);
        let mut random = Random::new(mode);
        for _ in 0..wire.len() {
            let most = [1, 1 + random.below(30), 1 + random.below(2000)];
            stream
                .reads
                .extend([Step::Pending, Step::Bytes(most[mode as usize])]);
        }
        let mut reader = Reader::new(stream, engine(), receiver.inbound);
        let mut got = Vec::new();
        let mut dropped = 0;
        while got.len() < messages.len() {
            match poll_once(reader.read()) {
                Poll::Ready(Ok(contents)) => got.push(contents.to_vec()),
                Poll::Ready(Err(error)) => panic!("{error}"),
                Poll::Pending => dropped += 1,
            }
        }
        assert_eq!(got, messages);
        assert_eq!(reader.decoys(), 250);
        assert!(dropped > 10, "{dropped}");
    }
}

/// Every write and flush is dropped at every await, with packets queued in between.
#[test]
fn dropped_flushes_lose_nothing() {
    for mode in 0..3_usize {
        let (sender, mut receiver) = sessions(engine(), 1);
        let mut stream = Scripted::new(b"");
        let mut random = Random::new(1);
        for _ in 0..20_000 {
            let most = [1, 1 + random.below(30), 1 + random.below(2000)];
            stream
                .writes
                .extend([Step::Pending, Step::Bytes(most[mode])]);
            stream.flushes.push_back(Step::Pending);
            stream.flushes.push_back(Step::Bytes(0));
        }
        let mut writer = Writer::new(&mut stream, engine(), sender.outbound);
        let messages: Vec<_> = (0..250).map(|i| noise(i, i as usize % 40)).collect();
        let mut queue = messages.iter();
        let mut dropped = 0;
        loop {
            let mut ended = false;
            for _ in 0..random.below(4) {
                match queue.next() {
                    Some(message) => writer.push(Genuine, message).unwrap(),
                    None => ended = true,
                }
            }
            match poll_once(writer.flush()) {
                Poll::Ready(Ok(())) if ended => break,
                Poll::Ready(result) => result.unwrap(),
                Poll::Pending => dropped += 1,
            }
        }
        drop(writer);
        assert!(dropped > 10, "{dropped}");
        let got = common::turn(&mut receiver, engine(), &stream.outgoing);
        assert_eq!(got, (messages, None));
    }
}

/// A flush with nothing queued sends nothing. A stream that accepts no bytes is an error, not
/// an endless loop.
#[tokio::test]
async fn flushes_without_effect() {
    let (sender, _) = sessions(engine(), 1);
    let mut stream = Scripted::new(b"");
    stream
        .writes
        .extend([Step::Bytes(0), Step::Fail(ErrorKind::BrokenPipe)]);
    let mut writer = Writer::new(&mut stream, engine(), sender.outbound);
    writer.flush().await.unwrap();
    let refused = writer.push(Genuine, &vec![0; 1 << 24]);
    assert_eq!(refused, Err(SealError::TooLong { length: 1 << 24 }));
    let error = writer.write(Genuine, b"x").await.unwrap_err();
    assert!(matches!(error, StreamError::Io(e) if e.kind() == ErrorKind::WriteZero));
    let error = writer.flush().await.unwrap_err();
    assert!(matches!(error, StreamError::Io(e) if e.kind() == ErrorKind::BrokenPipe));
    writer.flush().await.unwrap();
    drop(writer);
    assert_eq!(
        stream.outgoing.len(),
        1 + packetlane::bip324::Session::OVERHEAD
    );
}

/// The end of a stream, between packets, within one, by an error, by a bad tag: reported once,
/// after which the stream is not polled again.
#[tokio::test]
async fn an_end_is_reported_once() {
    let start = || {
        let (mut sender, receiver) = sessions(engine(), 1);
        (wire_of(&mut sender, &[b"only".to_vec()]), receiver.inbound)
    };
    type Check = fn(StreamError) -> bool;
    let cases: [(&str, Check); 5] = [
        ("end", |e| {
            matches!(
                e,
                StreamError::Closed {
                    within_packet: false
                }
            )
        }),
        ("within", |e| {
            matches!(
                e,
                StreamError::Closed {
                    within_packet: true
                }
            )
        }),
        (
            "reset",
            |e| matches!(e, StreamError::Io(e) if e.kind() == ErrorKind::ConnectionReset),
        ),
        ("tag", |e| {
            matches!(e, StreamError::Open(OpenError::BadTag { .. }))
        }),
        ("long", |e| {
            matches!(e, StreamError::Open(OpenError::TooLong { .. }))
        }),
    ];
    for (case, check) in cases {
        let (mut wire, mut inbound) = start();
        let second = wire.clone();
        match case {
            "within" => wire.extend(&second[..1]),
            "tag" => wire.extend(second),
            "long" => {
                wire.extend(second);
                inbound.set_receive_limit(4);
            }
            _ => {}
        }
        let mut stream = Scripted::new(&wire);
        if case == "reset" {
            stream.reads.push_back(Step::Bytes(1000));
            stream.then = Step::Fail(ErrorKind::ConnectionReset);
        }
        let mut reader = Reader::new(&mut stream, engine(), inbound);
        assert_eq!(reader.read().await.unwrap(), b"only");
        let error = reader.read().await.unwrap_err();
        assert!(!error.to_string().is_empty());
        match case {
            // A random length may be large.
            "tag" => assert!(matches!(
                error,
                StreamError::Open(_) | StreamError::Closed { .. }
            )),
            _ => assert!(check(error), "{case}"),
        }
        for _ in 0..10 {
            let ended = reader.read().await.unwrap_err();
            assert!(matches!(ended, StreamError::Ended), "{case}");
        }
        drop(reader);
        assert!(stream.polls <= 2, "{case}: asked {} times", stream.polls);
    }
}

/// An interrupted read is repeated.
#[tokio::test]
async fn interrupted_reads_are_repeated() {
    let (mut sender, receiver) = sessions(engine(), 1);
    let mut stream = Scripted::new(&wire_of(&mut sender, &[b"only".to_vec()]));
    let interrupted = Step::Fail(ErrorKind::Interrupted);
    stream
        .reads
        .extend([interrupted.clone(), Step::Bytes(10), interrupted]);
    let mut reader = Reader::new(&mut stream, engine(), receiver.inbound);
    assert_eq!(reader.read().await.unwrap(), b"only");
}

/// The clock is tokio's, and advances only when all tasks wait.
#[tokio::test(start_paused = true)]
async fn a_silent_peer_times_out() {
    assert_eq!(Handshake::DEFAULT_TIMEOUT, Duration::from_secs(60));
    for bytes in [0, 10, 64, 2000] {
        let (mut a, mut b) = duplex(100_000);
        b.write_all(&noise(1, bytes)).await.unwrap();
        let started = tokio::time::Instant::now();
        let initiator = Handshake::initiator(dressed(1)).unwrap();
        let error = handshake(&mut a, initiator, Duration::from_secs(5)).await;
        let Err(StreamError::HandshakeTimeout {
            timeout,
            may_speak_v1,
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(timeout, Duration::from_secs(5));
        assert_eq!(may_speak_v1, bytes == 0);
        assert_eq!(started.elapsed(), Duration::from_secs(5));
    }
    // A peer that reads nothing.
    let (mut a, _b) = duplex(10);
    let initiator = Handshake::initiator(dressed(1)).unwrap();
    let error = handshake(&mut a, initiator, Duration::from_secs(5)).await;
    assert!(matches!(error, Err(StreamError::HandshakeTimeout { .. })));
    // A peer that sends garbage forever: at four bytes per second it does not reach the limit
    // in time.
    let (mut a, mut b) = duplex(100_000);
    let drip = async {
        for i in 0.. {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if b.write_all(&noise(i, 4)).await.is_err() {
                break;
            }
        }
    };
    let initiator = Handshake::initiator(dressed(1)).unwrap();
    let run = handshake(&mut a, initiator, Handshake::DEFAULT_TIMEOUT);
    tokio::select! {
        error = run => assert!(matches!(error, Err(StreamError::HandshakeTimeout { .. }))),
        () = drip => panic!("it does not end"),
    }
}

/// Peers that close, stay silent or answer in v1 are dialled again with v1, and no others. Silence
/// is tolerated for as long as an answer may take.
#[tokio::test(start_paused = true)]
async fn peers_that_may_speak_v1_are_connected_to_again() {
    let version = [&MAGIC[..], b"version\0\0\0\0\0 and more"].concat();
    let second = Duration::from_secs(1);
    // What the peer sends, whether it closes then, and after which time v1 is tried.
    for (says, closes, falls_back) in [
        (&b""[..], true, Some(0)),
        (&version, false, Some(0)),
        (&version[..7], true, Some(0)),
        (&version[..7], false, Some(10)),
        (b"", false, Some(10)),
        (b"x", false, None),
        (b"x", true, None),
    ] {
        let mut peers = Vec::new();
        let dial = || {
            let (here, there) = duplex(100_000);
            peers.push(there);
            let there = peers.last_mut().unwrap();
            let speak = async {
                there.write_all(says).await?;
                match closes {
                    true => there.shutdown().await,
                    false => Ok(()),
                }
            };
            let spoken = pin!(speak).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(spoken, Poll::Ready(Ok(()))));
            std::future::ready(Ok(here))
        };
        let begun = tokio::time::Instant::now();
        let connected = connect(dial, dressed(1), 60 * second).await;
        match falls_back {
            Some(seconds) => {
                let (_, accepted) = connected.unwrap();
                assert!(matches!(accepted, Accepted::V1(bytes) if bytes.is_empty()));
                assert_eq!(begun.elapsed(), seconds * second, "{says:?}");
                assert_eq!(peers.len(), 2);
            }
            None => {
                assert!(!connected.unwrap_err().may_speak_v1());
                assert_eq!(peers.len(), 1);
            }
        }
    }
}

#[tokio::test]
async fn a_v1_peer_is_handed_back() {
    let mut message = [&MAGIC[..], b"version\0\0\0\0\0"].concat();
    message.extend(noise(1, 100));
    for piece in [1, 5, 16, 17, 200] {
        let (mut a, mut b) = duplex(1000);
        let responder = Handshake::responder(dressed(1)).unwrap();
        let speak = async {
            for piece in message.chunks(piece) {
                a.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (accepted, ()) = tokio::join!(
            handshake(&mut b, responder, Handshake::DEFAULT_TIMEOUT),
            speak
        );
        let Ok(Accepted::V1(mut bytes)) = accepted else {
            panic!("{accepted:?}");
        };
        assert!(bytes.len() >= 16);
        drop(a);
        b.read_to_end(&mut bytes).await.unwrap();
        assert_eq!(bytes, message);
    }
    // Nothing was sent to the v1 peer.
    let mut stream = Scripted::new(&message);
    let responder = Handshake::responder(dressed(1)).unwrap();
    let accepted = handshake(&mut stream, responder, Handshake::DEFAULT_TIMEOUT).await;
    assert!(matches!(accepted, Ok(Accepted::V1(bytes)) if bytes == message));
    assert!(stream.outgoing.is_empty());
}

/// However a peer closes before it has answered, the caller may try v1.
#[tokio::test]
async fn closed_before_an_answer() {
    type Script = fn(&mut Scripted);
    let before: [(&str, Script); 6] = [
        ("end", |_| {}),
        ("end later", |s| s.reads.push_back(Step::Pending)),
        ("reset", |s| s.then = Step::Fail(ErrorKind::ConnectionReset)),
        ("aborted", |s| {
            s.then = Step::Fail(ErrorKind::ConnectionAborted)
        }),
        ("reset as we write", |s| {
            s.reads.extend([const { Step::Pending }; 5]);
            s.writes.push_back(Step::Bytes(3));
            s.writes.push_back(Step::Fail(ErrorKind::ConnectionReset));
        }),
        ("hung up as we write", |s| {
            s.reads.extend([const { Step::Pending }; 5]);
            s.writes.push_back(Step::Fail(ErrorKind::BrokenPipe));
        }),
    ];
    for (case, script) in before {
        for answered in [false, true] {
            let mut stream = Scripted::new(if answered { &[7] } else { &[] });
            if answered {
                stream.reads.push_back(Step::Bytes(1));
            }
            script(&mut stream);
            let initiator = Handshake::initiator(dressed(1)).unwrap();
            let error = handshake(&mut stream, initiator, Handshake::DEFAULT_TIMEOUT).await;
            let Err(StreamError::Handshake(error)) = error else {
                panic!("{case}: {error:?}");
            };
            // If a write fails, it fails before the answer is read.
            let expected = match answered && !case.ends_with("write") {
                true => HandshakeError::Closed,
                false => HandshakeError::ClosedUnanswered,
            };
            assert_eq!(error, expected, "{case}");
        }
        let mut stream = Scripted::new(b"x");
        stream.reads.push_back(Step::Bytes(1));
        script(&mut stream);
        let responder = Handshake::responder(dressed(1)).unwrap();
        let error = handshake(&mut stream, responder, Handshake::DEFAULT_TIMEOUT).await;
        let closed = HandshakeError::Closed;
        assert!(
            matches!(error, Err(StreamError::Handshake(e)) if e == closed),
            "{case}"
        );
    }
    // Other errors are returned as they are, and an interruption is not an error.
    let mut stream = Scripted::new(b"");
    stream.then = Step::Fail(ErrorKind::PermissionDenied);
    let initiator = Handshake::initiator(dressed(1)).unwrap();
    let error = handshake(&mut stream, initiator, Handshake::DEFAULT_TIMEOUT).await;
    assert!(matches!(error, Err(StreamError::Io(e)) if e.kind() == ErrorKind::PermissionDenied));
    let mut stream = Scripted::new(b"");
    stream.reads.push_back(Step::Fail(ErrorKind::Interrupted));
    stream.writes.push_back(Step::Fail(ErrorKind::Interrupted));
    let initiator = Handshake::initiator(dressed(1)).unwrap();
    let error = handshake(&mut stream, initiator, Handshake::DEFAULT_TIMEOUT).await;
    let unanswered = HandshakeError::ClosedUnanswered;
    assert!(matches!(error, Err(StreamError::Handshake(e)) if e == unanswered));
    assert_eq!(stream.outgoing.len(), 64 + 1000);
}

/// Bytes from a peer that end in a protocol error.
#[tokio::test]
async fn handshake_errors_are_returned() {
    let mut stream = Scripted::new(&noise(1, 64 + 4111));
    let initiator = Handshake::initiator(dressed(1)).unwrap();
    let error = handshake(&mut stream, initiator, Handshake::DEFAULT_TIMEOUT).await;
    let Err(StreamError::Handshake(HandshakeError::NoTerminator)) = error else {
        panic!("{error:?}");
    };
}
