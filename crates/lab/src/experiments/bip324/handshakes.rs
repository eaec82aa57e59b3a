//! `bip324.handshakes`: the expensive steps of many handshakes at once.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Contender, in_turn};
use crate::picture::{Bottom, Picture};
use crate::published::{Figures, MAIL};
use crate::record::{Metric, record};
use crate::report::OURS;
use crate::rivals::bip324::{bip324_handshake, fresh_config, shake_hands, start};
use crate::sentence::Figure;
use bip324::Role::{Initiator, Responder};
use packetlane::bip324::{Connection, HandshakeConfig, KeyPool, Keypair, Role};
use packetlane::internals::shared_secrets;
use packetlane::{Engine, OpenBatch, SealBatch};
use secp256k1::ellswift::{ElligatorSwift, ElligatorSwiftParty};
use secp256k1::{All, Secp256k1, SecretKey};
use std::io::{IoSlice, Write};

/// Numbers of handshakes computed together.
const BATCHES: [usize; 7] = [1, 2, 4, 8, 16, 64, 1024];

const HANDSHAKES_AT_A_TIME: Bottom = Bottom::log("batch", "handshakes at a time");

/// The crate's libsecp256k1, which computes one key at a time.
const LIBSECP256K1: &str = "libsecp256k1";

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.handshakes",
    description: "The expensive steps of many handshakes at once",
    cases,
    headline: Headline {
        case: "step=both_sides batch=64",
        metric: "time_per_handshake",
    },
    sentence,
    pictures: &[Picture {
        facets: &["step"],
        x: Some(HANDSHAKES_AT_A_TIME),
        ..Picture::new("time_per_handshake", "Handshakes, many at once")
    }],
    words,
    published,
    ..Experiment::EMPTY
};

/// A step's name, what is timed, and who computes so many.
type Step = (
    &'static str,
    &'static str,
    fn(Engine, usize) -> Vec<Contender<'static>>,
);

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let batches: &[usize] = if bench.quick { &[1, 8, 64] } else { &BATCHES };
    let steps: [Step; 3] = [
        (
            "create",
            "thread CPU time to create secret keys and their ElligatorSwift public keys",
            create,
        ),
        (
            "xdh",
            "thread CPU time of the shared secrets from our keys and those of peers",
            xdh,
        ),
        (
            "both_sides",
            "thread CPU time of both sides together, from key creation to two sessions, without \
             garbage",
            both_sides,
        ),
    ];
    let task = |(step, timed, contenders): Step, batch| {
        let case = EXPERIMENT
            .case(timed)
            .with("step", step)
            .with("batch", batch);
        Task::new(case, move |case, plan, report| {
            let samples = in_turn(&mut contenders(engine, batch), plan);
            let metric = Metric::time("time_per_handshake", "us", batch);
            record(report, case, &[metric], &samples);
        })
    };
    let all = steps.into_iter();
    all.flat_map(|step| batches.iter().map(move |&batch| task(step, batch)))
        .collect()
}

/// A random secret key.
fn secret() -> [u8; 32] {
    **fresh_config(Engine::portable()).secret
}

fn create(engine: Engine, batch: usize) -> Vec<Contender<'static>> {
    let context = Secp256k1::new();
    // Both must encode a key that the other understands.
    let mut pool = KeyPool::new(engine, batch);
    pool.fill().expect("entropy");
    let ours = pool.take().expect("a key");
    let theirs = libsecp256k1_create(&context);
    let shared = ours.shared_secret(&theirs.1.to_array(), Role::Initiator);
    let encoded = ElligatorSwift::from_array(*ours.public());
    assert_eq!(**shared, libsecp256k1_xdh(encoded, theirs.1, &theirs.0));
    vec![
        Contender::new(OURS, engine.backend().name(), move || {
            let mut pool = KeyPool::new(engine, batch);
            pool.fill().expect("entropy");
            pool
        }),
        Contender::new(LIBSECP256K1, "", move || {
            let create = || libsecp256k1_create(&context);
            (0..batch).map(|_| create()).collect::<Vec<_>>()
        }),
    ]
}

/// As its users do.
fn libsecp256k1_create(context: &Secp256k1<All>) -> (SecretKey, ElligatorSwift) {
    let key = SecretKey::from_slice(&secret()).expect("a secret key");
    let encoded = ElligatorSwift::from_seckey(context, key, Some(secret()));
    (key, encoded)
}

/// The secret that the responder shares.
fn libsecp256k1_xdh(
    initiator: ElligatorSwift,
    responder: ElligatorSwift,
    secret: &SecretKey,
) -> [u8; 32] {
    let party = ElligatorSwiftParty::B;
    ElligatorSwift::shared_secret(initiator, responder, *secret, party, None).to_secret_bytes()
}

fn xdh(engine: Engine, batch: usize) -> Vec<Contender<'static>> {
    let keys: Vec<_> = (0..batch)
        .map(|_| {
            let ours = secret();
            let theirs = Keypair::new(&secret(), &secret()).expect("a secret key");
            (
                ours,
                Keypair::new(&ours, &secret()).expect("a secret key"),
                *theirs.public(),
            )
        })
        .collect();
    let parsed: Vec<_> = keys
        .iter()
        .map(|(secret, ours, theirs)| {
            let key = SecretKey::from_slice(secret).expect("a secret key");
            let [theirs, ours] = [*theirs, *ours.public()].map(ElligatorSwift::from_array);
            (theirs, ours, key)
        })
        .collect();
    let by_us = move || {
        let keys: Vec<_> = keys
            .iter()
            .map(|(_, ours, theirs)| (ours, theirs, Role::Responder))
            .collect();
        shared_secrets(engine, &keys)
    };
    let by_libsecp256k1 = move || {
        let keys = parsed.iter();
        keys.map(|(theirs, ours, key)| libsecp256k1_xdh(*theirs, *ours, key))
            .collect::<Vec<_>>()
    };
    let found: Vec<[u8; 32]> = by_us().iter().map(|secret| ***secret).collect();
    assert_eq!(found, by_libsecp256k1());
    vec![
        Contender::new(OURS, engine.backend().name(), by_us),
        Contender::new(LIBSECP256K1, "", by_libsecp256k1),
    ]
}

fn both_sides(engine: Engine, batch: usize) -> Vec<Contender<'static>> {
    let is_agreed = |[a, b]: &[Connection; 2]| {
        let id = |of: &Connection| of.session().map(|session| *session.id());
        id(a).is_some() && id(a) == id(b)
    };
    assert!(connect_all(engine, batch).iter().all(is_agreed));
    vec![
        Contender::new(OURS, engine.backend().name(), move || {
            connect_all(engine, batch)
        }),
        Contender::new(LIBSECP256K1, engine.backend().name(), move || {
            let pair = || shake_hands(fresh_config(engine), fresh_config(engine));
            (0..batch).map(|_| pair()).collect::<Vec<_>>()
        }),
        Contender::new("bip324", "", move || {
            let pair = || bip324_handshake(start(Initiator), start(Responder));
            (0..batch).map(|_| pair()).collect::<Vec<_>>()
        }),
    ]
}

/// Connects pairs of an initiator and a responder, each side with an event loop of its own.
fn connect_all(engine: Engine, pairs: usize) -> Vec<[Connection; 2]> {
    let mut pool = KeyPool::new(engine, 2 * pairs);
    pool.fill().expect("entropy");
    let mut config = || HandshakeConfig {
        keypair: pool.take(),
        batched: true,
        ..fresh_config(engine)
    };
    let mut all: Vec<[Connection; 2]> = (0..pairs)
        .map(|_| {
            let initiator = Connection::initiator(config()).expect("a sound configuration");
            let responder = Connection::responder(config()).expect("a sound configuration");
            [initiator, responder]
        })
        .collect();
    let (mut incoming, outgoing) = (OpenBatch::new(), SealBatch::new());
    let mut wire = Vec::new();
    // The side that receives in each turn.
    for here in [1, 0, 0, 1] {
        for pair in &mut all {
            wire.clear();
            let write = |pieces: &[IoSlice<'_>]| wire.write_vectored(pieces);
            let sent = pair[1 - here].outbox.write(&outgoing, write);
            sent.expect("a vector takes all");
            incoming.room(wire.len()).copy_from_slice(&wire);
            let received = pair[here].receive(&mut incoming, wire.len());
            received.expect("a handshake");
        }
        engine.open(&mut incoming);
        for pair in &mut all {
            let next = pair[here].next_packet(&incoming);
            assert_eq!(next, Ok(None));
        }
        incoming.clear();
    }
    all
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let step = words("step", figure.key("step"))?;
    let batch = figure.key("batch");
    Some(format!("{step}, {batch} at a time: {figure} each"))
}

fn words(key: &str, value: &str) -> Option<String> {
    let words = match (key, value) {
        ("step", "create") => "create one side's key",
        ("step", "xdh") => "agree on the shared secret",
        ("step", "both_sides") => "a whole handshake, both sides",
        _ => return None,
    };
    Some(words.to_owned())
}

fn published(figures: &mut Figures) {
    let micros = |value| ("time_per_handshake", value, "us");
    figures.add("create a key", micros(53.0), MAIL, &[]);
    figures.add("shared secret (XDH)", micros(30.0), MAIL, &[]);
    figures.add("both sides", micros(172.0), MAIL, &[]);
}
