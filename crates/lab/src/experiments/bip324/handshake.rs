//! `bip324.handshake`: the steps of a handshake, and the whole handshake.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Contender, in_turn};
use crate::picture::Picture;
use crate::published::{FROM_ANOTHER_MACHINE, Figures, MAIL, NOTES};
use crate::record::{Metric, record};
use crate::report::OURS;
use crate::rivals::bip324::{bip324_handshake, fresh_config, shake_hands, start};
use crate::sentence::Figure;
use bip324::Role::{Initiator, Responder};
use packetlane::Engine;
use packetlane::bip324::{Keypair, Role, Session, SessionKeys};
use packetlane::bitcoin::Network;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.handshake",
    description: "The cost of setting up an encrypted connection",
    cases,
    headline: Headline {
        case: "step=both_sides",
        metric: "time",
    },
    sentence,
    pictures: &[Picture {
        facets: &["step"],
        ..Picture::new("time", "Handshake")
    }],
    words,
    published,
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let engine = bench.engine;
    let pair = |byte: u8| Keypair::new(&[byte; 32], &[byte; 32]).expect("a secret key");
    let task = |step: &str, timed: &str, contenders: fn(Engine) -> Vec<Contender<'static>>| {
        let case = EXPERIMENT.case(timed).with("step", step);
        Task::new(case, move |case, plan, report| {
            let samples = in_turn(&mut contenders(engine), plan);
            record(report, case, &[Metric::time("time", "us", 1)], &samples);
        })
    };
    // Both sides must derive the same keys.
    let (ours, theirs) = (pair(1), pair(2));
    assert_eq!(
        ours.shared_secret(theirs.public(), Role::Initiator),
        theirs.shared_secret(ours.public(), Role::Responder),
    );
    let [a, b] = shake_hands(fresh_config(engine), fresh_config(engine));
    assert_eq!(a.id(), b.id());
    let [a, b] = bip324_handshake(start(Initiator), start(Responder));
    assert_eq!(a.id(), b.id());

    vec![
        task(
            "create",
            "thread CPU time to create a secret key and its ElligatorSwift public key",
            |engine| {
                vec![
                    Contender::new(OURS, engine.backend().name(), move || {
                        let config = fresh_config(engine);
                        Keypair::new(&config.secret, &config.auxiliary).expect("a secret key")
                    }),
                    Contender::new("bip324", "", || start(Initiator)),
                ]
            },
        ),
        task(
            "xdh",
            "thread CPU time of the shared secret from our key and the peer's",
            |engine| {
                let pair = |byte: u8| Keypair::new(&[byte; 32], &[byte; 32]).expect("a secret key");
                let (ours, theirs) = (pair(1), pair(2));
                vec![Contender::new(OURS, engine.backend().name(), move || {
                    ours.shared_secret(theirs.public(), Role::Initiator)
                })]
            },
        ),
        task(
            "derive",
            "thread CPU time of HKDF and key setup of both ciphers, from the shared secret",
            |engine| {
                vec![Contender::new(OURS, engine.backend().name(), move || {
                    let keys = SessionKeys::derive(&[3; 32], Network::Mainnet.magic());
                    Session::from_keys(engine, &keys, Role::Initiator)
                })]
            },
        ),
        task(
            "both_sides",
            "thread CPU time of both sides together, from key creation to two sessions, without \
             garbage",
            |engine| {
                vec![
                    Contender::new(OURS, engine.backend().name(), move || {
                        shake_hands(fresh_config(engine), fresh_config(engine))
                    }),
                    Contender::new("bip324", "", || {
                        bip324_handshake(start(Initiator), start(Responder))
                    }),
                ]
            },
        ),
    ]
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    let step = match figure.key("step") {
        "both_sides" => "a whole handshake, both sides".to_owned(),
        step => words("step", step).unwrap_or(step.to_owned()),
    };
    Some(format!("{step}: {figure}"))
}

fn words(key: &str, value: &str) -> Option<String> {
    let words = match (key, value) {
        ("step", "create") => "create one side's key",
        ("step", "xdh") => "agree on the shared secret",
        ("step", "derive") => "derive the session keys",
        ("step", "both_sides") => "complete, both sides",
        _ => return None,
    };
    Some(words.to_owned())
}

fn published(figures: &mut Figures) {
    let micros = |value| ("time", value, "us");
    let caveat = "Its session keys are derived without the network magic. Our own measurement of \
                  it: 186 us, on the machine of our notes.";
    figures.add("create a key", micros(53.0), MAIL, &[]);
    figures.add("shared secret (XDH)", micros(30.0), MAIL, &[]);
    figures.add("both sides", micros(172.0), MAIL, &[caveat]);
    figures.add(
        "both sides, Bitcoin Core",
        micros(233.0),
        NOTES,
        FROM_ANOTHER_MACHINE,
    );
    figures.add(
        "both sides, btcd",
        micros(1052.0),
        NOTES,
        FROM_ANOTHER_MACHINE,
    );
}
