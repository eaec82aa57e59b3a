//! The experiments on QUIC packet protection: packets of one size, what masking their
//! headers adds, and what share of a core a link takes.
//!
//! Ours protects all packets of a call in one [`Batch`]. The libraries do what quinn
//! does with them: through rustls's traits, one packet after another, AEAD and header
//! protection in two calls. All have the same secrets, put the same bytes on the wire
//! and open each other's.

use crate::experiments::{Bench, Task};
use crate::measure::{Contender, Metric, Plan, Samples, in_turn, record, record_added};
use crate::report::{Case, Report};
use crate::rivals::{Ours, ours};
use packetlane::quic::{
    Batch, Opener, Sealer, Secret, ShortHeader, Suite, Version, decode_packet_number,
    encode_packet_number,
};
use packetlane::{Engine, Slot, TAG_LEN};
use rustls::crypto::CryptoProvider;
use rustls::quic::{DirectionalKeys, Keys};
use rustls::{CipherSuite, Side, Tls13CipherSuite};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;

/// Payloads, in bytes: those of the published table, and the packet of the largest
/// datagram that every path carries.
const SIZES: [usize; 9] = [4, 16, 64, 256, 600, 1000, 1200, 1280, 1450];

/// Packets in a batch.
const BATCHES: [usize; 4] = [1, 4, 16, 64];

/// The batches without header protection.
const UNMASKED_BATCHES: [usize; 2] = [1, 16];

/// What a quick run is about, and what the other experiments hold.
const QUICK_SIZES: [usize; 2] = [64, 1280];
const BATCH: usize = 16;
const BYTES: usize = 1280;

/// Speeds of links, in Gbit/s.
const LINKS: [usize; 4] = [1, 5, 10, 25];

const CONNECTION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

/// Where the packet number of a short header lies, and how long it is.
const PN_OFFSET: usize = 1 + CONNECTION_ID.len();
const PN_LEN: usize = 2;
const HEADER_LEN: usize = PN_OFFSET + PN_LEN;

/// How many packets are on their way: so many that their numbers take [`PN_LEN`] bytes. The
/// first of them has this number.
const UNACKED: u64 = 1000;

/// Where the sample for the mask lies: as if the number had four bytes.
const SAMPLE: std::ops::Range<usize> = PN_OFFSET + 4..PN_OFFSET + 4 + 16;

/// Inputs prepared for opening take about this much memory, as in `bip324.packet`.
const PREPARED_BYTES: usize = 512 << 10;

/// A suite's name in a case.
fn name(suite: Suite) -> &'static str {
    match suite {
        Suite::Aes128Gcm => "aes128gcm",
        Suite::Aes256Gcm => "aes256gcm",
        _ => "chacha20poly1305",
    }
}

/// Its name in TLS.
pub(crate) fn tls_name(suite: Suite) -> CipherSuite {
    match suite {
        Suite::Aes128Gcm => CipherSuite::TLS13_AES_128_GCM_SHA256,
        Suite::Aes256Gcm => CipherSuite::TLS13_AES_256_GCM_SHA384,
        _ => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    }
}

/// A provider's cipher suite.
pub(crate) fn cipher_suite(provider: &CryptoProvider, suite: Suite) -> &'static Tls13CipherSuite {
    let mut all = provider.cipher_suites.iter();
    all.find_map(|one| {
        one.tls13()
            .filter(|one| one.common.suite == tls_name(suite))
    })
    .expect("a suite that every provider has")
}

/// The packets of one case.
#[derive(Clone, Copy)]
struct Shape {
    suite: Suite,
    bytes: usize,
    batch: usize,
    /// Whether headers are protected.
    masked: bool,
}

impl Shape {
    fn packet_len(self) -> usize {
        HEADER_LEN + self.bytes + TAG_LEN
    }

    /// Payloads of a whole batch, one behind the other.
    fn payloads(self) -> Vec<u8> {
        let all = 0..self.bytes * self.batch;
        all.map(|place| ((place * 0x9d) ^ (place >> 8)) as u8)
            .collect()
    }
}

/// The header of a packet.
fn header(number: u64) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[0] = 0x40 | (PN_LEN as u8 - 1);
    header[1..PN_OFFSET].copy_from_slice(&CONNECTION_ID);
    header[PN_OFFSET..].copy_from_slice(&number.to_be_bytes()[8 - PN_LEN..]);
    header
}

/// One that seals batches.
trait Seals {
    /// Seals the next batch. Its payloads are `payloads`, or what lies in its memory: who
    /// sends writes frames there.
    fn seal(&mut self, payloads: Option<&[u8]>);

    /// Says whether to protect the headers of the next batches.
    fn mask(&mut self, on: bool);

    /// The packets of the last batch, one behind the other.
    fn wire(&self) -> &[u8];
}

/// One that opens batches, of which it keeps several.
trait Opens {
    /// Takes a batch's packets, as from a socket, in place of an earlier batch.
    fn receive(&mut self, place: usize, wire: &[u8]);

    /// Opens that batch and shows what it carries.
    ///
    /// # Panics
    ///
    /// If a packet is forged.
    fn open(&mut self, place: usize, each: &mut dyn FnMut(&[u8]));
}

/// One direction of ours.
struct OurSealer {
    engine: Engine,
    shape: Shape,
    secret: Secret,
    sealer: Sealer,
    batch: Batch,
    number: u64,
}

impl OurSealer {
    fn new(engine: Engine, shape: Shape) -> Self {
        let secret = secret(shape.suite);
        Self {
            engine,
            shape,
            sealer: Sealer::new(secret.clone()),
            secret,
            batch: Batch::new(),
            number: UNACKED,
        }
    }
}

impl Seals for OurSealer {
    fn seal(&mut self, payloads: Option<&[u8]>) {
        // A long measurement is many connections.
        if self.sealer.needs_key_update() {
            self.sealer = Sealer::new(self.secret.clone());
        }
        let Shape { bytes, batch, .. } = self.shape;
        self.batch.clear();
        for packet in 0..batch {
            let number = encode_packet_number(self.number, Some(self.number - UNACKED));
            let header = ShortHeader {
                destination: &CONNECTION_ID,
                spin: false,
                number: number.expect("it is near"),
            };
            let reserved = self.sealer.reserve_short(&mut self.batch, &header, bytes);
            let (_, place) = reserved.expect("a sound packet");
            if let Some(payloads) = payloads {
                place.copy_from_slice(&payloads[packet * bytes..][..bytes]);
            }
            self.number += 1;
        }
        match self.shape.masked {
            true => self.engine.seal(&mut self.batch),
            false => self.batch.seal_payloads(&self.engine),
        }
    }

    fn mask(&mut self, on: bool) {
        self.shape.masked = on;
    }

    fn wire(&self) -> &[u8] {
        self.batch.bytes()
    }
}

struct OurOpener {
    engine: Engine,
    packet_len: usize,
    opener: Opener,
    batches: Vec<Batch>,
    slots: Vec<Slot>,
}

impl OurOpener {
    fn new(engine: Engine, shape: Shape, batches: usize) -> Self {
        Self {
            engine,
            packet_len: shape.packet_len(),
            opener: Opener::new(secret(shape.suite)),
            batches: (0..batches).map(|_| Batch::new()).collect(),
            slots: Vec::with_capacity(shape.batch),
        }
    }
}

impl Opens for OurOpener {
    fn receive(&mut self, place: usize, wire: &[u8]) {
        self.batches[place].clear();
        self.batches[place].feed(wire);
    }

    fn open(&mut self, place: usize, each: &mut dyn FnMut(&[u8])) {
        let batch = &mut self.batches[place];
        let mut start = 0;
        while start < batch.bytes().len() {
            let end = start + self.packet_len;
            let slot = self.opener.push(batch, start..end, PN_OFFSET);
            self.slots.push(slot.expect("a packet with a sample"));
            start = end;
        }
        self.engine.open(batch);
        for slot in self.slots.drain(..) {
            let packet = self.opener.take(batch, slot);
            each(packet.expect("an authentic packet").payload);
        }
    }
}

/// One direction of a library below rustls's traits.
struct RustlsSealer {
    keys: DirectionalKeys,
    shape: Shape,
    wire: Vec<u8>,
    number: u64,
}

impl RustlsSealer {
    fn new(tls: &'static Tls13CipherSuite, shape: Shape) -> Self {
        Self {
            keys: keys(tls, Side::Client).local,
            shape,
            wire: vec![0; shape.packet_len() * shape.batch],
            number: UNACKED,
        }
    }
}

impl Seals for RustlsSealer {
    fn seal(&mut self, payloads: Option<&[u8]>) {
        let bytes = self.shape.bytes;
        let packets = self.wire.chunks_exact_mut(self.shape.packet_len());
        for (place, packet) in packets.enumerate() {
            let (head, rest) = packet.split_at_mut(HEADER_LEN);
            let (payload, tag) = rest.split_at_mut(bytes);
            head.copy_from_slice(&header(self.number));
            if let Some(payloads) = payloads {
                payload.copy_from_slice(&payloads[place * bytes..][..bytes]);
            }
            let sealed = self
                .keys
                .packet
                .encrypt_in_place(self.number, head, payload);
            tag.copy_from_slice(sealed.expect("a short packet").as_ref());
            if self.shape.masked {
                // As quinn takes a packet apart.
                let (head, sample) = packet.split_at_mut(SAMPLE.start);
                let (first, rest) = head.split_first_mut().expect("a header");
                let number = &mut rest[PN_OFFSET - 1..HEADER_LEN - 1];
                let sample = &sample[..SAMPLE.len()];
                let masked = self.keys.header.encrypt_in_place(sample, first, number);
                masked.expect("a sample");
            }
            self.number += 1;
        }
    }

    fn mask(&mut self, on: bool) {
        self.shape.masked = on;
    }

    fn wire(&self) -> &[u8] {
        &self.wire
    }
}

struct RustlsOpener {
    keys: DirectionalKeys,
    packet_len: usize,
    expected: u64,
    batches: Vec<Vec<u8>>,
}

impl RustlsOpener {
    fn new(tls: &'static Tls13CipherSuite, shape: Shape, batches: usize) -> Self {
        Self {
            keys: keys(tls, Side::Server).remote,
            packet_len: shape.packet_len(),
            expected: 0,
            batches: vec![Vec::new(); batches],
        }
    }
}

impl Opens for RustlsOpener {
    fn receive(&mut self, place: usize, wire: &[u8]) {
        self.batches[place].clear();
        self.batches[place].extend_from_slice(wire);
    }

    fn open(&mut self, place: usize, each: &mut dyn FnMut(&[u8])) {
        for packet in self.batches[place].chunks_exact_mut(self.packet_len) {
            let (head, sample) = packet.split_at_mut(SAMPLE.start);
            let (first, rest) = head.split_first_mut().expect("a header");
            let number = &mut rest[PN_OFFSET - 1..];
            let sample = &sample[..SAMPLE.len()];
            // Which of its four bytes are the number's rustls finds out.
            let unmasked = self.keys.header.decrypt_in_place(sample, first, number);
            unmasked.expect("a sample");
            let len = usize::from(*first & 3) + 1;
            let truncated = number[..len]
                .iter()
                .fold(0, |number, &byte| number << 8 | u32::from(byte));
            let number = decode_packet_number(self.expected, truncated, len);
            let (head, payload) = packet.split_at_mut(PN_OFFSET + len);
            let opened = self.keys.packet.decrypt_in_place(number, head, payload);
            each(opened.expect("an authentic packet"));
            self.expected = self.expected.max(number + 1);
        }
    }
}

/// The keys of one side: those of Initial packets, but of any suite.
fn keys(tls: &'static Tls13CipherSuite, side: Side) -> Keys {
    let algorithm = tls.quic.expect("a suite for QUIC");
    Keys::initial(
        rustls::quic::Version::V1,
        tls,
        algorithm,
        &CONNECTION_ID,
        side,
    )
}

/// The client's secret that [`keys`] come from, derived as rustls derives it (RFC 9001,
/// section 5.2), since it gives none away.
fn secret(suite: Suite) -> Secret {
    const SALT: [u8; 20] = [
        0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8, 0x0c,
        0xad, 0xcc, 0xbb, 0x7f, 0x0a,
    ];
    const LABEL: &[u8] = b"tls13 client in";
    let tls = cipher_suite(&rustls::crypto::ring::default_provider(), suite);
    let hkdf = tls.hkdf_provider;
    let expander = hkdf.extract_from_secret(Some(&SALT), &CONNECTION_ID);
    let lengths = [0, suite.secret_len() as u8, LABEL.len() as u8];
    let block = expander.expand_block(&[&lengths, LABEL, &[0]]);
    Secret::new(suite, Version::V1, block.as_ref()).expect("as long as the hash")
}

/// One that takes part: ours on one engine, or a library.
enum Who {
    Ours(Ours),
    Library(&'static str, fn() -> CryptoProvider),
}

impl Who {
    fn name(&self) -> &str {
        match self {
            Who::Ours(ours) => &ours.name,
            Who::Library(name, _) => name,
        }
    }

    fn backend(&self) -> &'static str {
        match self {
            Who::Ours(ours) => ours.backend(),
            Who::Library(..) => "",
        }
    }

    fn sealer(&self, shape: Shape) -> Box<dyn Seals> {
        match self {
            Who::Ours(ours) => Box::new(OurSealer::new(ours.engine, shape)),
            Who::Library(_, provider) => {
                let tls = cipher_suite(&provider(), shape.suite);
                Box::new(RustlsSealer::new(tls, shape))
            }
        }
    }

    fn opener(&self, shape: Shape, batches: usize) -> Box<dyn Opens> {
        match self {
            Who::Ours(ours) => Box::new(OurOpener::new(ours.engine, shape, batches)),
            Who::Library(_, provider) => {
                let tls = cipher_suite(&provider(), shape.suite);
                Box::new(RustlsOpener::new(tls, shape, batches))
            }
        }
    }
}

/// These of ours, and the libraries.
fn with_libraries(ours: Vec<Ours>) -> Vec<Who> {
    let libraries = [
        Who::Library("rustls-ring", rustls::crypto::ring::default_provider),
        Who::Library(
            "rustls-aws-lc-rs",
            rustls::crypto::aws_lc_rs::default_provider,
        ),
    ];
    ours.into_iter().map(Who::Ours).chain(libraries).collect()
}

/// `engine` under our name, and the libraries.
fn best_alone(engine: Engine) -> Vec<Who> {
    with_libraries(ours(engine, true).into_iter().take(1).collect())
}

/// Lets everyone seal the same packets and open each other's, and returns them sealed.
///
/// # Panics
///
/// If anyone seals or opens them otherwise than the others.
fn checked(everyone: &[Who], shape: Shape) -> Vec<u8> {
    let payloads = shape.payloads();
    let mut expected: Option<Vec<u8>> = None;
    for who in everyone {
        let mut sealer = who.sealer(shape);
        sealer.seal(Some(&payloads));
        let expected = expected.get_or_insert_with(|| sealer.wire().to_vec());
        let same = *expected == sealer.wire();
        assert!(same, "{}: other bytes on the wire", who.name());
    }
    let wire = expected.unwrap_or_default();
    if shape.masked {
        for who in everyone {
            let mut opener = who.opener(shape, 1);
            opener.receive(0, &wire);
            let mut opened = Vec::new();
            opener.open(0, &mut |payload| opened.extend_from_slice(payload));
            assert!(opened == payloads, "{}: wrong contents", who.name());
        }
    }
    wire
}

/// A sealer in whose memory the payloads lie.
fn filled(who: &Who, shape: Shape) -> Box<dyn Seals> {
    let mut sealer = who.sealer(shape);
    sealer.seal(Some(&shape.payloads()));
    sealer
}

fn sealing(who: &Who, shape: Shape) -> Contender<'static> {
    let mut sealer = filled(who, shape);
    Contender::new(who.name(), who.backend(), move || sealer.seal(None))
}

fn opening<'a>(who: &Who, shape: Shape, wire: &'a [u8]) -> Contender<'a> {
    let calls = (PREPARED_BYTES / wire.len()).clamp(1, 4096);
    Contender::with_input(
        who.name(),
        who.backend(),
        who.opener(shape, calls),
        calls,
        |opener, calls| (0..calls).for_each(|call| opener.receive(call, wire)),
        |opener, call| {
            let mut len = 0;
            opener.open(call, &mut |payload| len += payload.len());
            len
        },
    )
}

/// Packets of one size, sealed or opened, by suite and batch.
pub(crate) fn packet(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &QUICK_SIZES } else { &SIZES };
    let batches: &[usize] = if bench.quick { &[BATCH] } else { &BATCHES };
    let mut tasks = Vec::new();
    for suite in Suite::ALL {
        for op in ["seal", "open"] {
            for &bytes in sizes {
                for &batch in batches {
                    // Without masks only to see what those cost: when sealing.
                    let unmasked = op == "seal" && UNMASKED_BATCHES.contains(&batch);
                    for masked in [true, false] {
                        let shape = Shape {
                            suite,
                            bytes,
                            batch,
                            masked,
                        };
                        if masked || unmasked {
                            tasks.push(packet_task(bench, op, shape));
                        }
                    }
                }
            }
        }
    }
    tasks
}

fn packet_task<'a>(bench: &'a Bench, op: &'static str, shape: Shape) -> Task<'a> {
    let timed = match op {
        "seal" => {
            "thread CPU time to write the short headers of packets whose payloads lie in place, \
             to seal them and, with header_protection=on, to mask the headers; the libraries \
             through the traits that quinn calls, one packet after another"
        }
        _ => {
            "thread CPU time to unmask the headers of packets as a socket wrote them, to recover \
             their numbers, to open them and to visit the payloads; the libraries through the \
             traits that quinn calls, one packet after another"
        }
    };
    let case = Case::new("quic.packet", timed)
        .with("suite", name(shape.suite))
        .with("op", op)
        .with("bytes", shape.bytes)
        .with("batch", shape.batch)
        .with("header_protection", if shape.masked { "on" } else { "off" });
    Task::new(case, move |case, plan, report| {
        let everyone = with_libraries(ours(bench.engine, bench.quick));
        let wire = checked(&everyone, shape);
        let mut contenders: Vec<_> = everyone
            .iter()
            .map(|who| match op {
                "seal" => sealing(who, shape),
                _ => opening(who, shape, &wire),
            })
            .collect();
        let samples = in_turn(&mut contenders, plan);
        let metric = Metric::time("time_per_packet", "ns", shape.batch);
        record(report, case, &[metric], &samples);
    })
}

/// What masking headers adds to sealing packets, by their size.
pub(crate) fn mask(bench: &Bench) -> Vec<Task<'_>> {
    let sizes: &[usize] = if bench.quick { &QUICK_SIZES } else { &SIZES };
    let suites = if bench.quick {
        &Suite::ALL[..1]
    } else {
        &Suite::ALL[..]
    };
    let mut tasks = Vec::new();
    for &suite in suites {
        for &bytes in sizes {
            let timed = "what header protection adds to the thread CPU time of sealing packets, \
                         as in quic.packet: with and without it in turn";
            let case = Case::new("quic.mask", timed)
                .with("suite", name(suite))
                .with("bytes", bytes)
                .with("batch", BATCH);
            tasks.push(Task::new(case, move |case, plan, report| {
                run_mask(bench.engine, suite, bytes, (case, plan, report));
            }));
        }
    }
    tasks
}

fn run_mask(
    engine: Engine,
    suite: Suite,
    bytes: usize,
    (case, plan, report): (&Case, &Plan, &mut Report),
) {
    let shape = |masked| Shape {
        suite,
        bytes,
        batch: BATCH,
        masked,
    };
    let everyone = best_alone(engine);
    let mut contenders = Vec::new();
    for masked in [true, false] {
        checked(&everyone, shape(masked));
    }
    for who in &everyone {
        // One for both, right after each other: with memory of its own for each the figure
        // was up to twice as large.
        let sealer = Rc::new(RefCell::new(filled(who, shape(true))));
        for masked in [true, false] {
            let sealer = Rc::clone(&sealer);
            let seal = move || {
                let mut sealer = sealer.borrow_mut();
                sealer.mask(masked);
                sealer.seal(None);
            };
            contenders.push(Contender::new(who.name(), who.backend(), seal));
        }
    }
    let samples = in_turn(&mut contenders, plan);
    for [masked, bare] in samples.as_chunks().0 {
        record_added(report, case, "overhead", masked, bare);
    }
}

/// What share of a core it takes to seal all packets of a link.
pub(crate) fn link(bench: &Bench) -> Vec<Task<'_>> {
    let mut tasks = Vec::new();
    for suite in Suite::ALL {
        let shape = Shape {
            suite,
            bytes: BYTES,
            batch: BATCH,
            masked: true,
        };
        // All links of a suite follow from one measurement.
        let measured = Rc::new(OnceCell::new());
        for gbit in LINKS {
            if bench.quick && (suite != Suite::Aes128Gcm || gbit != 10) {
                continue;
            }
            let timed = format!(
                "computed: the thread CPU time of sealing {BYTES} bytes, batch {BATCH}, with \
                 header protection, as in quic.packet, times the packets of so many Gbit/s of \
                 payload; 100 % is all of one core"
            );
            let case = Case::new("quic.link", &timed)
                .with("gbit", gbit)
                .with("suite", name(suite));
            let measured = Rc::clone(&measured);
            tasks.push(Task::new(case, move |case, plan, report| {
                let samples: &Vec<Samples> = measured.get_or_init(|| {
                    let everyone = best_alone(bench.engine);
                    checked(&everyone, shape);
                    let mut contenders: Vec<_> =
                        everyone.iter().map(|who| sealing(who, shape)).collect();
                    in_turn(&mut contenders, plan)
                });
                let packets_per_second = gbit as f64 * 1e9 / 8.0 / BYTES as f64;
                let metric = Metric::share_of_core("share_of_core", BATCH, packets_per_second);
                record(report, case, &[metric], samples);
            }));
        }
    }
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::{Options, run};
    use crate::report::OURS;

    /// Every shape, several batches long, so that packet numbers grow; and damage shows.
    #[test]
    fn all_agree() {
        let everyone = with_libraries(ours(Engine::detect().unwrap(), false));
        for suite in Suite::ALL {
            for bytes in [4, 64, 1280] {
                for batch in [1, 5] {
                    for masked in [true, false] {
                        let shape = Shape {
                            suite,
                            bytes,
                            batch,
                            masked,
                        };
                        let wire = checked(&everyone, shape);
                        assert_eq!(wire.len(), shape.packet_len() * batch);
                    }
                }
            }
        }
    }

    #[test]
    fn nobody_opens_a_damaged_packet() {
        let shape = Shape {
            suite: Suite::Aes128Gcm,
            bytes: 64,
            batch: 3,
            masked: true,
        };
        let everyone = with_libraries(ours(Engine::detect().unwrap(), true));
        let mut wire = checked(&everyone, shape);
        wire[shape.packet_len() + HEADER_LEN + 40] ^= 1;
        for who in &everyone {
            let mut opener = who.opener(shape, 1);
            opener.receive(0, &wire);
            let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                opener.open(0, &mut |_| {});
            }));
            assert!(opened.is_err(), "{}", who.name());
        }
    }

    /// The whole of a quick run, checks included.
    #[test]
    fn every_experiment_runs_and_names_its_rivals() {
        let cases = [
            (
                "quic.packet",
                "suite=aes128gcm op=seal bytes=1280 batch=16 header_protection=on",
            ),
            (
                "quic.packet",
                "suite=chacha20poly1305 op=open bytes=64 batch=16 header_protection=on",
            ),
            ("quic.link", "gbit=10 suite=aes128gcm"),
            ("quic.mask", "suite=aes128gcm bytes=64 batch=16"),
        ];
        let options = Options {
            experiments: ["quic.packet", "quic.link", "quic.mask"]
                .map(str::to_owned)
                .into(),
            quick: true,
            ..Options::default()
        };
        let report = run(Engine::detect().unwrap(), &options).unwrap();
        for (experiment, case) in cases {
            let row = report.rows.iter().find(|row| {
                row.experiment == experiment && row.case == case && row.implementation == OURS
            });
            let row = row.unwrap_or_else(|| panic!("{experiment} {case}"));
            assert!(!row.timed.is_empty());
            for rival in ["rustls-ring", "rustls-aws-lc-rs"] {
                let compared = report.ratio(row, rival).is_some();
                assert_eq!(compared, experiment != "quic.mask", "{experiment}: {rival}");
            }
        }
    }
}
