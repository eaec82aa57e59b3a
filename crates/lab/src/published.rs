//! Figures that others have published, and what is wrong with each.
//!
//! None of these is measured by this program: they come from other machines,
//! and some from other work than the name says. The report shows them in a
//! table of their own, never in one row with ours, and with their caveats.
//!
//! The GPU figures come from one message to the Bitcoin development mailing
//! list. Its "BIP324" is the AEAD with a framing of its own, as its source code
//! shows, and the build behind its fastest figures encrypted wrongly.
//!
//! Of double SHA-256 bllvm has published batches and, in passing, what Bitcoin Core
//! takes. The function that the batches name did not run in them; what that takes
//! stands here too.
//!
//! Of QUIC packets there are figures of 2018, of what header protection adds and of where
//! a sender's time goes.
//!
//! The figures of our own notes are from a machine that is probably not yours, of
//! programs that this one cannot link to.

use crate::report::Published;

const MAIL: &str = "V. Chkheidze, \"BIP324 transport performance: CPU baseline, GPU offload, \
    batching and latency tradeoffs\", bitcoindev mailing list, 23 March 2026 (UltrafastSecp256k1; \
    CPU x86-64, GPU RTX 5060 Ti), https://groups.google.com/g/bitcoindev/c/SZZftdsfFNs";

const NOTES: &str = "Packetlane's own notes of November 2026: one pinned core of an Intel Emerald \
    Rapids VM at about 3.0 GHz, median of three runs";

const CORE: &str = "Bitcoin Core's own benchmark, as bllvm's comparison of 8 November 2025 quotes \
    it";

/// For all that the message says of packets.
const NOT_BIP324: &str = "Not BIP324: no length cipher, no header byte, no rekey, no garbage, no \
    network magic in the key derivation, one key for everything; the official vectors fail.";

const MEBIBYTES: &str = "Its MB/s and GB/s are MiB/s and GiB/s: in powers of ten the figure is 5 \
    or 7 % higher.";

const KERNELS: &str = "GPU kernels only, and one random key and nonce for each packet.";

const NO_TRAVEL: &str = "Left out: the copies to the device and back, and what the host does \
    before and after. Packets in the order of their arrival, which keeps 13.5 % of the lanes \
    busy.";

const WRONG_TAGS: &str = "The GPU's tags are wrong unless the length is a multiple of 16.";

const WRONG_OUTPUT: &str = "The build produced a wrong keystream and wrong tags; its own \
    changelog calls the results invalid.";

const NINETEEN: &str = "Counts 19 bytes a packet; BIP324 has 20 (length 3, header 1, tag 16).";

const PER_BYTE: &str = "Bitcoin Core's benchmark counts ns per byte, which bllvm reads as ns per \
    hash (5.1 and 1.55); this is per hash.";

const BLLVM: &str = "bllvm, \"Bitcoin Core vs BLLVM Performance Comparison\", 8 November 2025 \
    (docs/history/benchmarks/CORE_PERFORMANCE_COMPARISON.md of bllvm-consensus, kept in \
    https://github.com/BTCDecoded/blvm-docs)";

/// What its table of batches says: messages of 1 KiB, hashed together, and the time a
/// hash, in ns.
const BLLVM_BATCHES: [(usize, f64); 5] = [
    (8, 10_770.0),
    (16, 8330.0),
    (32, 3840.0),
    (64, 2210.0),
    (128, 1350.0),
];

const NOT_AVX2: &str = "No AVX2: the function of that name is never reached, and rayon spreads \
    sequential hashes over threads, whose start the small batches pay.";

const SINGLE_OR_DOUBLE: &str = "It returns double hashes where single ones are asked for, and its \
    Merkle nodes are hashed once where Bitcoin hashes twice.";

const WINQUIC: &str = "Published 2018, of WinQuic in user mode";

const QUICLY: &str = "Published 2018, of quicly with OpenSSL";

/// What the first of these says header protection adds, in per cent, by the bytes of a
/// packet.
const WINQUIC_MASKS: [(usize, f64); 8] = [
    (4, 33.0),
    (16, 35.0),
    (64, 32.0),
    (256, 27.0),
    (600, 16.0),
    (1000, 13.0),
    (1200, 12.0),
    (1450, 10.0),
];

const MASKS_ALONE: &str = "Its AEAD seals one packet after another: only its header masks are \
    computed together.";

/// All published figures, by experiment.
pub fn all() -> Vec<Published> {
    let mut figures = Vec::new();
    let mut add = |experiment: &str,
                   case: &str,
                   (metric, value, unit): (&str, f64, &str),
                   source: &str,
                   caveats: &[&str]| {
        figures.push(Published {
            experiment: experiment.to_owned(),
            case: case.to_owned(),
            metric: metric.to_owned(),
            unit: unit.to_owned(),
            value,
            source: source.to_owned(),
            caveat: caveats.join(" "),
        });
    };
    let rate = |value| ("packets_per_second", value, "packets/s");
    let goodput = |value| ("goodput", value, "MB/s");

    let mixed = "bip324.mixed";
    let cpu = "CPU, one thread";
    let first = "GPU, batch of 128 Ki packets, first build";
    let second = "GPU, batch of 128 Ki packets, second build";
    add(mixed, cpu, rate(715e3), MAIL, &[NOT_BIP324]);
    add(mixed, cpu, goodput(221.0), MAIL, &[NOT_BIP324, MEBIBYTES]);
    add(mixed, cpu, ("overhead", 5.5, "%"), MAIL, &[NINETEEN]);
    let gpu = [NOT_BIP324, KERNELS, WRONG_TAGS];
    let gpu_bytes = [NOT_BIP324, KERNELS, WRONG_TAGS, MEBIBYTES];
    add(mixed, first, rate(12.78e6), MAIL, &gpu);
    add(mixed, first, goodput(3900.0), MAIL, &gpu_bytes);
    let wrong = [NOT_BIP324, KERNELS, WRONG_OUTPUT];
    let wrong_bytes = [NOT_BIP324, KERNELS, WRONG_OUTPUT, MEBIBYTES];
    add(mixed, second, rate(21.37e6), MAIL, &wrong);
    add(mixed, second, goodput(6600.0), MAIL, &wrong_bytes);
    let whole_way = [NOT_BIP324, WRONG_TAGS, MEBIBYTES];
    let end_to_end = "GPU, end to end with transfers, lower and upper figure";
    for value in [3200.0, 3600.0] {
        add(mixed, end_to_end, goodput(value), MAIL, &whole_way);
    }
    add(
        mixed,
        "GPU, several streams against one",
        ("speed_up", 1.37, "times"),
        MAIL,
        &gpu,
    );
    add(
        mixed,
        "GPU, 20 % of packets decoys",
        ("loss_to_decoys", 1.4, "%"),
        MAIL,
        &gpu,
    );

    let latency = "bip324.latency";
    let time = |value| ("time_per_packet", value, "ns");
    add(latency, "GPU, one packet", time(17_600.0), MAIL, &gpu);
    add(latency, "GPU, batch of 64", time(500.0), MAIL, &gpu);
    add(latency, "GPU, batches from 1024", time(63.0), MAIL, &gpu);
    for value in [4096.0, 16384.0] {
        add(
            latency,
            "GPU, best batch size, lower and upper figure",
            ("batch", value, "packets"),
            MAIL,
            &gpu,
        );
    }

    let aside = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL];
    let bytes = [NOT_BIP324, KERNELS, WRONG_TAGS, NO_TRAVEL, MEBIBYTES];
    let kernel = "gpu.kernel";
    add(kernel, first, rate(12.78e6), MAIL, &aside);
    add(kernel, first, goodput(3900.0), MAIL, &bytes);
    let wrong = [NOT_BIP324, KERNELS, WRONG_OUTPUT, NO_TRAVEL];
    add(kernel, second, rate(21.37e6), MAIL, &wrong);
    let wrong_bytes = [NOT_BIP324, KERNELS, WRONG_OUTPUT, NO_TRAVEL, MEBIBYTES];
    add(kernel, second, goodput(6600.0), MAIL, &wrong_bytes);
    let times = [("one packet", 17_600.0), ("batches from 1024", 63.0)];
    for (case, value) in times {
        add("gpu.latency", case, time(value), MAIL, &aside);
    }
    for value in [3200.0, 3600.0] {
        add("gpu.transfer", end_to_end, goodput(value), MAIL, &whole_way);
    }
    let several = ("speedup", 1.37, "x");
    let case = "several streams against one";
    add(
        "gpu.streams",
        case,
        several,
        MAIL,
        &[NOT_BIP324, WRONG_TAGS],
    );
    let loss = ("loss_to_decoys", 1.4, "%");
    add("gpu.decoys", "20 % of packets decoys", loss, MAIL, &aside);
    for value in [4096.0, 16384.0] {
        let case = "best batch size, lower and upper figure";
        let best = ("best_batch", value, "packets");
        add("gpu.batch", case, best, MAIL, &aside);
    }

    let handshake = "bip324.handshake";
    let micros = |value| ("time", value, "us");
    add(handshake, "create a key", micros(53.0), MAIL, &[]);
    add(handshake, "shared secret (XDH)", micros(30.0), MAIL, &[]);
    add(
        handshake,
        "both sides",
        micros(172.0),
        MAIL,
        &[
            "Its session keys are derived without the network magic. Our own measurement of it: 186 us, on the machine of our notes.",
        ],
    );
    let elsewhere = ["Another machine."];
    add(
        handshake,
        "both sides, Bitcoin Core",
        micros(233.0),
        NOTES,
        &elsewhere,
    );
    add(
        handshake,
        "both sides, btcd",
        micros(1052.0),
        NOTES,
        &elsewhere,
    );

    let packet = "bip324.packet";
    for (who, figures) in [
        (
            "Bitcoin Core, August 2026",
            [(64, 520.0), (256, 975.0), (1024, 2798.0)],
        ),
        (
            "btcd v2transport 1.1.0",
            [(61, 893.0), (250, 1155.0), (1024, 2058.0)],
        ),
    ] {
        for (bytes, value) in figures {
            let case = format!("{who}: seal {bytes} bytes");
            add(packet, &case, time(value), NOTES, &elsewhere);
        }
    }
    for (bytes, value) in [(64, 391.0), (256, 750.0), (1024, 2179.0)] {
        let case = format!("UltrafastSecp256k1: seal {bytes} bytes");
        add(
            packet,
            &case,
            time(value),
            NOTES,
            &["Another machine.", NOT_BIP324],
        );
    }

    let many = "sha256d.many";
    let hash = |value| ("time_per_hash", value, "ns");
    add(
        many,
        "Bitcoin Core, SHA-256 of 32 bytes",
        hash(163.0),
        CORE,
        &[
            "Another machine.",
            PER_BYTE,
            "A single hash, not a double one.",
        ],
    );
    for (batch, value) in BLLVM_BATCHES {
        let case = format!("bllvm, \"AVX2 8-way\": bytes=1024 batch={batch}");
        add(
            many,
            &case,
            hash(value),
            BLLVM,
            &["Another machine.", NOT_AVX2],
        );
    }
    add(
        many,
        "bllvm, its AVX2 function where it is reached",
        hash(5860.0),
        NOTES,
        &["Another machine.", SINGLE_OR_DOUBLE],
    );
    for (bytes, value) in [(80, 119.0), (1024, 385.0)] {
        let case = format!("Intel's multi-buffer library: {bytes} bytes");
        add(many, &case, hash(value), NOTES, &elsewhere);
    }

    let d64 = "sha256d.d64";
    let caveats = ["Another machine.", PER_BYTE];
    add(d64, "Bitcoin Core, 64 bytes", hash(99.0), CORE, &caveats);
    for value in [100.0, 107.0] {
        let case = "Bitcoin Core's two-way SHA-NI, lower and upper figure";
        add(d64, case, hash(value), NOTES, &elsewhere);
    }

    let quic = "quic.packet";
    let one = "picotls fusion: suite=aes128gcm op=seal bytes=1280";
    add(quic, one, time(244.0), NOTES, &elsewhere);
    let batches = ["Another machine.", MASKS_ALONE];
    for (suite, value) in [("aes128gcm", 104.0), ("chacha20poly1305", 518.0)] {
        let case =
            format!("Intel's multi-buffer library: suite={suite} op=seal bytes=1280 batch=16");
        add(quic, &case, time(value), NOTES, &batches);
    }
    add(quic, "quicly with OpenSSL", time(585.0), QUICLY, &elsewhere);

    let mask = "quic.mask";
    let overhead = |value| ("overhead", value, "%");
    for (bytes, value) in WINQUIC_MASKS {
        let case = format!("WinQuic: bytes={bytes}");
        add(mask, &case, overhead(value), WINQUIC, &elsewhere);
    }
    for (what, value) in [("at first", 10.0), ("then (607 ns a packet)", 3.8)] {
        let case = format!("quicly with OpenSSL, {what}");
        add(mask, &case, overhead(value), QUICLY, &elsewhere);
    }
    for (who, value) in [
        ("picotls fusion: suite=aes128gcm bytes=4", 44.0),
        ("picotls fusion: suite=aes128gcm bytes=1280", 0.2),
    ] {
        add(mask, who, overhead(value), NOTES, &elsewhere);
    }
    for (suite, value) in [("aes128gcm", 2.5), ("chacha20poly1305", 3.0)] {
        let case = format!("Intel's multi-buffer library: suite={suite} bytes=1280 batch=16");
        add(mask, &case, overhead(value), NOTES, &batches);
    }

    let path = "quic.send_path";
    for (stage, value) in [
        ("UDP send", 64.7),
        ("encryption", 22.5),
        ("packet building", 7.0),
        ("rest", 5.8),
    ] {
        let case = format!("WinQuic: {stage}");
        add(path, &case, ("share", value, "%"), WINQUIC, &elsewhere);
    }
    for (stage, value) in [
        ("AEAD", 24.6),
        ("header protection", 0.9),
        ("kernel", 23.5),
        ("copies", 6.0),
        ("quinn and runtime", 44.0),
    ] {
        let case = format!("quinn: {stage}");
        add(path, &case, ("share", value, "%"), NOTES, &elsewhere);
    }
    figures
}

/// The published figures that belong beside the given experiments.
pub fn beside(experiments: &[&str]) -> Vec<Published> {
    all()
        .into_iter()
        .filter(|figure| experiments.contains(&figure.experiment.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_source_and_the_invalid_ones_say_so() {
        for figure in all() {
            assert!(!figure.source.is_empty(), "{figure:?}");
            if figure.value == 21.37e6 || figure.value == 6600.0 {
                assert!(figure.caveat.contains("invalid"), "{figure:?}");
            }
        }
        assert!(
            beside(&["bip324.latency"])
                .iter()
                .all(|figure| figure.experiment == "bip324.latency")
        );
        assert!(beside(&["sha256d.files"]).is_empty());
    }

    #[test]
    fn a_single_hash_is_not_shown_as_a_double_one() {
        let figures = beside(&["sha256d.many", "sha256d.d64"]);
        let core = figures.iter().filter(|figure| figure.source == CORE);
        let single: Vec<(f64, bool)> = core
            .map(|figure| (figure.value, figure.caveat.contains("single hash")))
            .collect();
        assert_eq!(single, [(163.0, true), (99.0, false)]);
    }
}
