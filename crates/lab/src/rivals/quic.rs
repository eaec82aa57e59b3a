//! QUIC packet protection: ours, which protects all packets of a call in one batch, and libraries
//! through rustls's traits.
//!
//! The libraries are used as quinn uses them: one packet after another, with separate calls for
//! AEAD and header protection. All use the same secrets, so all must produce the same wire bytes
//! and open each other's.

use super::ours::{Ours, ours};
use packetlane::quic::{
    HeaderKey, OpenBatch, Opener, PacketNumber, SealBatch, Sealer, Secret, ShortHeader, Suite,
    Version,
};
use packetlane::{Engine, Slot, TAG_LEN};
use rustls::crypto::CryptoProvider;
use rustls::quic::{DirectionalKeys, Keys};
use rustls::{CipherSuite, Side, Tls13CipherSuite};
use std::ops::Range;

const CONNECTION_ID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];

/// Offset and length of the packet number in a short header.
const PN_OFFSET: usize = 1 + CONNECTION_ID.len();
const PN_LEN: usize = 2;
pub(crate) const HEADER_LEN: usize = PN_OFFSET + PN_LEN;

/// Number of unacknowledged packets, such that packet numbers take [`PN_LEN`] bytes. Also the
/// number of the first packet.
const UNACKED: u64 = 1000;

/// Position of the sample for the mask: as if the packet number had four bytes.
const SAMPLE: Range<usize> = PN_OFFSET + 4..PN_OFFSET + 4 + HeaderKey::SAMPLE_LEN;

/// A suite's name in a case.
pub(crate) fn suite_name(suite: Suite) -> &'static str {
    match suite {
        Suite::Aes128Gcm => "aes128gcm",
        Suite::Aes256Gcm => "aes256gcm",
        _ => "chacha20poly1305",
    }
}

/// A suite's name in TLS.
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
pub(crate) struct Shape {
    pub(crate) suite: Suite,
    pub(crate) bytes: usize,
    pub(crate) batch: usize,
    /// Whether headers are protected.
    pub(crate) masked: bool,
}

impl Shape {
    pub(crate) fn packet_len(self) -> usize {
        HEADER_LEN + self.bytes + TAG_LEN
    }

    /// The payloads of a batch, one after the other.
    pub(crate) fn payloads(self) -> Vec<u8> {
        let all = 0..self.bytes * self.batch;
        all.map(|place| ((place * 0x9d) ^ (place >> 8)) as u8)
            .collect()
    }
}

/// The short header of the packet with this number.
fn header(number: u64) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[0] = 0x40 | (PN_LEN as u8 - 1);
    header[1..PN_OFFSET].copy_from_slice(&CONNECTION_ID);
    header[PN_OFFSET..].copy_from_slice(&number.to_be_bytes()[8 - PN_LEN..]);
    header
}

/// Seals batches.
pub(crate) trait Seals {
    /// Seals the next batch. The payloads are `payloads`, or already in its memory, where a sender
    /// writes its frames.
    fn seal(&mut self, payloads: Option<&[u8]>);

    /// Enables or disables header protection for the next batches.
    fn mask(&mut self, on: bool);

    /// The packets of the last batch, one after the other.
    fn wire(&self) -> &[u8];
}

/// Opens batches, of which it holds several.
pub(crate) trait Opens {
    /// Stores the packets of a batch, as if read from a socket, in place of an earlier batch.
    fn receive(&mut self, place: usize, wire: &[u8]);

    /// Opens that batch and passes its payloads to `each`.
    ///
    /// # Panics
    ///
    /// If a packet is forged.
    fn open(&mut self, place: usize, each: &mut dyn FnMut(&[u8]));
}

/// Our sender.
struct OurSealer {
    engine: Engine,
    shape: Shape,
    secret: Secret,
    sealer: Sealer,
    batch: SealBatch,
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
            batch: SealBatch::new(),
            number: UNACKED,
        }
    }
}

impl Seals for OurSealer {
    fn seal(&mut self, payloads: Option<&[u8]>) {
        // A long measurement takes many connections.
        if self.sealer.needs_key_update() {
            self.sealer = Sealer::new(self.secret.clone());
        }
        let Shape { bytes, batch, .. } = self.shape;
        self.batch.clear();
        for packet in 0..batch {
            let number = PacketNumber::encode(self.number, Some(self.number - UNACKED));
            let header = ShortHeader {
                destination: &CONNECTION_ID,
                spin: false,
                number: number.expect("a number near the acknowledged one"),
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

/// Our receiver.
struct OurOpener {
    engine: Engine,
    packet_len: usize,
    opener: Opener,
    batches: Vec<OpenBatch>,
    slots: Vec<Slot>,
}

impl OurOpener {
    fn new(engine: Engine, shape: Shape, batches: usize) -> Self {
        Self {
            engine,
            packet_len: shape.packet_len(),
            opener: Opener::new(secret(shape.suite)),
            batches: (0..batches).map(|_| OpenBatch::new()).collect(),
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

/// A library's sender, through rustls's traits.
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
                // Split as quinn splits a packet.
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

/// A library's receiver, through rustls's traits.
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
            // rustls determines which of the four bytes belong to the number.
            let unmasked = self.keys.header.decrypt_in_place(sample, first, number);
            unmasked.expect("a sample");
            let len = usize::from(*first & 3) + 1;
            let truncated = number[..len]
                .iter()
                .fold(0, |number, &byte| number << 8 | u32::from(byte));
            let number = PacketNumber::decode(self.expected, truncated, len);
            let (head, payload) = packet.split_at_mut(PN_OFFSET + len);
            let opened = self.keys.packet.decrypt_in_place(number, head, payload);
            each(opened.expect("an authentic packet"));
            self.expected = self.expected.max(number + 1);
        }
    }
}

/// The keys of one side: derived like those of Initial packets, but for any suite.
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

/// The client's secret behind [`keys`]. Derived here (RFC 9001, section 5.2) because rustls does
/// not expose it.
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

/// An implementation: ours on one engine, or a library.
pub(crate) enum Implementation {
    Ours(Ours),
    Library(&'static str, fn() -> CryptoProvider),
}

impl Implementation {
    pub(crate) fn name(&self) -> &str {
        match self {
            Implementation::Ours(ours) => &ours.name,
            Implementation::Library(name, _) => name,
        }
    }

    pub(crate) fn backend(&self) -> &'static str {
        match self {
            Implementation::Ours(ours) => ours.backend(),
            Implementation::Library(..) => "",
        }
    }

    pub(crate) fn sealer(&self, shape: Shape) -> Box<dyn Seals> {
        match self {
            Implementation::Ours(ours) => Box::new(OurSealer::new(ours.engine, shape)),
            Implementation::Library(_, provider) => {
                let tls = cipher_suite(&provider(), shape.suite);
                Box::new(RustlsSealer::new(tls, shape))
            }
        }
    }

    pub(crate) fn opener(&self, shape: Shape, batches: usize) -> Box<dyn Opens> {
        match self {
            Implementation::Ours(ours) => Box::new(OurOpener::new(ours.engine, shape, batches)),
            Implementation::Library(_, provider) => {
                let tls = cipher_suite(&provider(), shape.suite);
                Box::new(RustlsOpener::new(tls, shape, batches))
            }
        }
    }
}

/// These of our implementations, then the libraries.
pub(crate) fn with_libraries(ours: Vec<Ours>) -> Vec<Implementation> {
    let libraries = vec![
        Implementation::Library("rustls-ring", rustls::crypto::ring::default_provider),
        #[cfg(feature = "rivals")]
        Implementation::Library(
            "rustls-aws-lc-rs",
            rustls::crypto::aws_lc_rs::default_provider,
        ),
    ];
    ours.into_iter()
        .map(Implementation::Ours)
        .chain(libraries)
        .collect()
}

/// `engine` as our only implementation, then the libraries.
pub(crate) fn best_alone(engine: Engine) -> Vec<Implementation> {
    with_libraries(ours(engine, true).into_iter().take(1).collect())
}
