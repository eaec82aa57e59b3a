//! `bip324.primitives`: the parts of the cipher.

use crate::experiment::{Bench, Experiment, Headline, Task};
use crate::measure::{Contender, in_turn};
use crate::picture::{Bottom, Picture};
use crate::quantity;
use crate::record::{Metric, record};
use crate::report::OURS;
use crate::rivals::aead::{Bare, bare_aeads};
use crate::rivals::ours::{Ours, ours};
use crate::sentence::Figure;
use crate::traffic::Turn;
use crate::workload::packets::{PREPARED_BYTES, SIZES};
use packetlane::TAG_LEN;
use packetlane::bip324::SessionKeys;
use packetlane::bitcoin::Network;
use packetlane::bitcoin::message::MessageType;
use std::slice;

pub(crate) static EXPERIMENT: Experiment = Experiment {
    name: "bip324.primitives",
    description: "The parts of the cipher, one by one",
    cases,
    headline: Headline {
        case: "primitive=aead_seal bytes=1024",
        metric: "time",
    },
    sentence,
    pictures: &[Picture {
        x: Some(Bottom::BYTES),
        facets: &["primitive"],
        log_y: true,
        ..Picture::new("time", "One part of the cipher")
    }],
    ..Experiment::EMPTY
};

fn cases(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick {
        &[61, 1024, 16_384]
    } else {
        &SIZES
    };
    let copied: &[usize] = if bench.quick {
        &[16_384]
    } else {
        &[4096, 16_384, 65_536, 1_048_576]
    };
    let one_call = "thread CPU time of one call with a prepared key";
    let primitives: [(&str, &[usize], &str, Build); 6] = [
        (
            "chacha20",
            sizes,
            "thread CPU time of the stream cipher, including setup",
            chacha20,
        ),
        (
            "poly1305",
            sizes,
            "thread CPU time of one tag, including setup",
            poly1305,
        ),
        ("aead_seal", sizes, one_call, aead_seal),
        ("aead_open", sizes, one_call, aead_open),
        (
            "hkdf",
            &[32],
            "thread CPU time of all of a session's keys from a shared secret",
            hkdf,
        ),
        (
            "copy",
            copied,
            "thread CPU time to copy a message into a packet's contents, 4 bytes after the \
             message modulo the page size, where `rep movsb` is slow; compared with one memcpy, \
             and with memcpy in pieces",
            copy,
        ),
    ];
    let mut tasks = Vec::new();
    for (primitive, sizes, timed, contenders) in primitives {
        for &bytes in sizes {
            let case = EXPERIMENT
                .case(timed)
                .with("primitive", primitive)
                .with("bytes", bytes);
            tasks.push(Task::new(case, move |case, plan, report| {
                let ours = ours(bench.engine, bench.quick);
                let samples = in_turn(&mut contenders(&ours, bytes), plan);
                record(report, case, &[Metric::time("time", "ns", 1)], &samples);
            }));
        }
    }
    tasks
}

/// Creates the contenders of one primitive at one size.
type Build = fn(&[Ours], usize) -> Vec<Contender<'static>>;

const KEY: [u8; 32] = [0x42; 32];
const NONCE: [u8; 12] = [0x24; 12];

fn chacha20(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    use chacha20::cipher::{KeyIvInit, StreamCipher};
    let rustcrypto = |text: &mut [u8]| {
        chacha20::ChaCha20::new(&KEY.into(), &NONCE.into()).apply_keystream(text);
    };
    let ours = ours.iter().map(|ours| {
        let backend = ours.engine.backend();
        let mut text = vec![0; bytes];
        backend.kernels().chacha20(&KEY, &NONCE, 0, &mut text);
        rustcrypto(&mut text);
        assert!(text.iter().all(|&byte| byte == 0), "the streams differ");
        Contender::new(&ours.name, backend.name(), move || {
            backend.kernels().chacha20(&KEY, &NONCE, 0, &mut text);
        })
    });
    let mut text = vec![0; bytes];
    let theirs = Contender::new("rustcrypto", "", move || rustcrypto(&mut text));
    ours.chain([theirs]).collect()
}

fn poly1305(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    use poly1305::{Poly1305, universal_hash::KeyInit};
    let message = Turn::uniform(1, bytes);
    let message = message.genuine().next().expect("one packet").to_vec();
    let rustcrypto = |message: &[u8]| -> [u8; 16] {
        Poly1305::new(&KEY.into()).compute_unpadded(message).into()
    };
    let ours = ours.iter().map(|ours| {
        let backend = ours.engine.backend();
        let tag = backend.kernels().poly1305(&KEY, &message);
        assert_eq!(tag, rustcrypto(&message), "the tags differ");
        let message = message.clone();
        Contender::new(&ours.name, backend.name(), move || {
            backend.kernels().poly1305(&KEY, &message)
        })
    });
    let text = message.clone();
    let theirs = Contender::new("rustcrypto", "", move || rustcrypto(&text));
    ours.chain([theirs]).collect()
}

/// The AEADs. Checks that all seal a text to the same bytes and open it.
fn checked_aeads(ours: &[Ours], bytes: usize) -> Vec<(Box<dyn Bare>, Vec<u8>)> {
    let mut expected: Option<Vec<u8>> = None;
    let check = |mut aead: Box<dyn Bare>| {
        let mut text = vec![0x61; bytes + TAG_LEN];
        aead.seal(&NONCE, &mut text);
        let sealed = expected.get_or_insert_with(|| text.clone());
        assert!(*sealed == text, "{}: other bytes", aead.name());
        assert!(
            aead.open(&NONCE, &mut text),
            "{}: rejects its own packet",
            aead.name()
        );
        assert!(text[..bytes].iter().all(|&byte| byte == 0x61));
        (aead, sealed.clone())
    };
    bare_aeads(ours, &KEY).into_iter().map(check).collect()
}

fn aead_seal(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    checked_aeads(ours, bytes)
        .into_iter()
        .map(|(mut aead, mut text)| {
            Contender::new(aead.name().to_owned(), aead.backend(), move || {
                aead.seal(&NONCE, &mut text)
            })
        })
        .collect()
}

fn aead_open(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    let calls = (PREPARED_BYTES / (bytes + TAG_LEN)).clamp(1, 4096);
    checked_aeads(ours, bytes)
        .into_iter()
        .map(|(mut aead, sealed)| {
            Contender::with_input(
                aead.name().to_owned(),
                aead.backend(),
                vec![sealed.clone(); calls],
                calls,
                move |texts: &mut Vec<Vec<u8>>, calls| {
                    for text in &mut texts[..calls] {
                        text.copy_from_slice(&sealed);
                    }
                },
                move |texts, call| assert!(aead.open(&NONCE, &mut texts[call])),
            )
        })
        .collect()
}

fn hkdf(ours: &[Ours], _: usize) -> Vec<Contender<'static>> {
    const INFOS: [&[u8]; 6] = [
        b"initiator_L",
        b"initiator_P",
        b"responder_L",
        b"responder_P",
        b"garbage_terminators",
        b"session_id",
    ];
    fn salt() -> Vec<u8> {
        [b"bitcoin_v2_shared_secret", &Network::Mainnet.magic()[..]].concat()
    }
    /// The six outputs, by a library with `ring`'s interface.
    macro_rules! like_ring {
        ($hkdf:path) => {
            || {
                use $hkdf as hkdf;
                let key = hkdf::Salt::new(hkdf::HKDF_SHA256, &salt()).extract(&[3; 32]);
                let mut keys = [[0; 32]; 6];
                for (info, out) in INFOS.iter().zip(&mut keys) {
                    let okm = key.expand(slice::from_ref(info), hkdf::HKDF_SHA256);
                    okm.expect("32 bytes").fill(out).expect("32 bytes");
                }
                keys
            }
        };
    }
    let ring = like_ring!(ring::hkdf);
    let backend = ours[0].backend();
    let ours = || SessionKeys::derive(&[3; 32], Network::Mainnet.magic());
    assert_eq!(ring()[5], ours().session_id, "the keys differ");
    #[cfg(feature = "rivals")]
    let aws_lc_rs = like_ring!(aws_lc_rs::hkdf);
    #[cfg(feature = "rivals")]
    assert_eq!(ring(), aws_lc_rs(), "the keys differ");
    vec![
        Contender::new(OURS, backend, ours),
        Contender::new("ring", "", ring),
        #[cfg(feature = "rivals")]
        Contender::new("aws-lc-rs", "", aws_lc_rs),
    ]
}

/// Copies a message to the end of a vector.
type Write = Box<dyn Fn(&[u8], &mut Vec<u8>)>;

/// Ours copies in pieces of a fixed length. The others show the effect of that length.
fn copy(ours: &[Ours], bytes: usize) -> Vec<Contender<'static>> {
    const PAGE: usize = 4096;
    const BEHIND: usize = 4;
    let ping = MessageType::literal("ping");
    let id = ping.short_id().expect("BIP324 has one for it");
    let message = vec![0x61; bytes];
    let expected = [&[id], &message[..]].concat();
    // Aligns the payload as intended, whatever the allocator does.
    let contender = |name: String, backend: &'static str, write: Write| {
        let message = message.clone();
        let mut out: Vec<u8> = Vec::with_capacity(bytes + 2 * PAGE);
        let first = out.as_ptr().addr() + 1;
        let skipped = (message.as_ptr().addr() + BEHIND).wrapping_sub(first) % PAGE;
        out.resize(skipped, 0);
        write(&message, &mut out);
        assert!(out[skipped..] == expected, "{name}: other bytes");
        Contender::new(name, backend, move || {
            out.truncate(skipped);
            write(&message, &mut out);
            out.len()
        })
    };
    let memcpy = |name: String, piece: usize| {
        contender(
            name,
            "",
            Box::new(move |message, out| {
                out.push(id);
                for piece in message.chunks(piece) {
                    out.extend_from_slice(piece);
                }
            }),
        )
    };
    let encode = Box::new(move |message: &[u8], out: &mut Vec<u8>| ping.encode(message, out));
    let mut contenders = vec![
        contender(OURS.into(), ours[0].backend(), encode),
        memcpy("memcpy".into(), usize::MAX),
    ];
    // Below and above the threshold at which glibc uses `rep movsb` on CPUs with FSRM.
    contenders.extend([1024, 2048, 4032].map(|piece| memcpy(format!("memcpy-{piece}"), piece)));
    contenders
}

fn sentence(figure: &Figure<'_>) -> Option<String> {
    Some(format!(
        "{}, {} bytes: {figure}",
        quantity::words(figure.key("primitive")),
        figure.key("bytes")
    ))
}
