//! The implementations that are measured: ours, and the libraries that people
//! would otherwise use.
//!
//! A library of bare ciphers takes part as the whole packet that a user would
//! build from it: our session around one call of the library per packet
//! ([`OneByOne`]). The `bip324` crate brings a session of its own. All get the
//! same keys, so all must produce the same bytes.

use crate::report::OURS;
use crate::traffic::Turn;
use packetlane::bip324::{
    ELLSWIFT_LEN, Handshake, HandshakeConfig, Inbound, Keypair, Network, OVERHEAD, Outbound,
    PacketKind, Progress, Role, Session, SessionKeys, TERMINATOR_LEN,
};
use packetlane::{Backend, Batch, Engine, Job, Key, Nonce, Outcome, TAG_LEN};

/// The secret keys of the two sides, for every implementation.
const SECRETS: [[u8; 32]; 2] = [[0x32; 32], [0x4b; 32]];

/// One call per packet of an AEAD library.
pub trait Library {
    /// Its name in the tables.
    const NAME: &'static str;
    /// What it makes of a key before the first packet.
    type Prepared;
    /// Prepares a key.
    fn precompute_keystream(key: &Key) -> Self::Prepared;
    /// Encrypts `text` and returns the tag.
    fn seal(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN];
    /// Decrypts `text_and_tag` if the tag is right, and says whether it is.
    fn open(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text_and_tag: &mut [u8]) -> bool;
}

/// `ring`.
pub struct Ring;

/// `aws-lc-rs`, which has the same interface.
pub struct AwsLcRs;

macro_rules! like_ring {
    ($library:ident, $name:literal, $($path:ident)::+) => {
        impl Library for $library {
            const NAME: &'static str = $name;
            type Prepared = $($path)::+::LessSafeKey;

            fn precompute_keystream(key: &Key) -> Self::Prepared {
                use $($path)::+::{CHACHA20_POLY1305, LessSafeKey, UnboundKey};
                LessSafeKey::new(UnboundKey::new(&CHACHA20_POLY1305, key).expect("32 bytes"))
            }

            fn seal(
                key: &mut Self::Prepared,
                nonce: &Nonce,
                aad: &[u8],
                text: &mut [u8],
            ) -> [u8; TAG_LEN] {
                use $($path)::+::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), text);
                tag.expect("a short text").as_ref().try_into().expect("16 bytes")
            }

            fn open(
                key: &mut Self::Prepared,
                nonce: &Nonce,
                aad: &[u8],
                text_and_tag: &mut [u8],
            ) -> bool {
                use $($path)::+::{Aad, Nonce};
                let nonce = Nonce::assume_unique_for_key(*nonce);
                key.open_in_place(nonce, Aad::from(aad), text_and_tag).is_ok()
            }
        }
    };
}

like_ring!(Ring, "ring", ring::aead);
like_ring!(AwsLcRs, "aws-lc-rs", aws_lc_rs::aead);

/// RustCrypto's `chacha20poly1305`, with default flags.
pub struct RustCrypto;

impl Library for RustCrypto {
    const NAME: &'static str = "rustcrypto";
    type Prepared = chacha20poly1305::ChaCha20Poly1305;

    fn precompute_keystream(key: &Key) -> Self::Prepared {
        use chacha20poly1305::KeyInit;
        Self::Prepared::new(key.into())
    }

    fn seal(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        use chacha20poly1305::AeadInOut;
        let tag = key.encrypt_inout_detached(nonce.into(), aad, text.into());
        tag.expect("a short text").into()
    }

    fn open(key: &mut Self::Prepared, nonce: &Nonce, aad: &[u8], text_and_tag: &mut [u8]) -> bool {
        use chacha20poly1305::AeadInOut;
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        let tag: [u8; TAG_LEN] = (&*tag).try_into().expect("16 bytes");
        key.decrypt_inout_detached(nonce.into(), aad, text.into(), &tag.into())
            .is_ok()
    }
}

/// OpenSSL through EVP, one context per key.
#[cfg(feature = "openssl")]
pub struct OpenSsl;

#[cfg(feature = "openssl")]
impl Library for OpenSsl {
    const NAME: &'static str = "openssl";
    type Prepared = [openssl::cipher_ctx::CipherCtx; 2];

    fn precompute_keystream(key: &Key) -> Self::Prepared {
        use openssl::{cipher::Cipher, cipher_ctx::CipherCtx};
        let cipher = Some(Cipher::chacha20_poly1305());
        let mut contexts = [(); 2].map(|()| CipherCtx::new().expect("memory"));
        contexts[0]
            .encrypt_init(cipher, Some(key), None)
            .expect("32 bytes");
        contexts[1]
            .decrypt_init(cipher, Some(key), None)
            .expect("32 bytes");
        contexts
    }

    fn seal(
        [context, _]: &mut Self::Prepared,
        nonce: &Nonce,
        aad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_LEN] {
        context
            .encrypt_init(None, None, Some(nonce))
            .expect("12 bytes");
        if !aad.is_empty() {
            context.cipher_update(aad, None).expect("AAD");
        }
        let len = text.len();
        context
            .cipher_update_inplace(text, len)
            .expect("a stream cipher");
        context
            .cipher_final(&mut [])
            .expect("the end of a stream cipher");
        let mut tag = [0; TAG_LEN];
        context.tag(&mut tag).expect("16 bytes");
        tag
    }

    fn open(
        [_, context]: &mut Self::Prepared,
        nonce: &Nonce,
        aad: &[u8],
        text_and_tag: &mut [u8],
    ) -> bool {
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        context
            .decrypt_init(None, None, Some(nonce))
            .expect("12 bytes");
        context.set_tag(tag).expect("16 bytes");
        if !aad.is_empty() {
            context.cipher_update(aad, None).expect("AAD");
        }
        let len = text.len();
        context
            .cipher_update_inplace(text, len)
            .expect("a stream cipher");
        context.cipher_final(&mut []).is_ok()
    }
}

/// One of our engines, under the name that it has in the tables.
#[derive(Clone, Debug)]
pub struct Ours {
    /// [`OURS`], or that and what sets it apart.
    pub name: String,
    /// It.
    pub engine: Engine,
}

impl Ours {
    /// The name of its backend.
    #[must_use]
    pub fn backend(&self) -> &'static str {
        self.engine.backend().name()
    }

    /// Whether it differs from `engine` by IFMA alone.
    fn lacks_ifma(&self, engine: Engine) -> bool {
        self.engine != engine && self.backend() == engine.backend().name()
    }
}

/// `engine` under our plain name, then the less capable backends of this machine,
/// each under a name of its own; in a `quick` run those that few CPUs are left
/// with are not among them.
#[must_use]
pub fn ours(engine: Engine, quick: bool) -> Vec<Ours> {
    let lesser = Backend::ALL
        .iter()
        .take_while(|backend| **backend != engine.backend())
        .filter_map(|backend| Engine::on(*backend).ok());
    let mut all = vec![Ours {
        name: OURS.to_owned(),
        engine,
    }];
    let lesser = lesser.collect::<Vec<_>>().into_iter().rev();
    all.extend(lesser.map(|lesser| Ours {
        name: format!("{OURS}-{}", lesser.backend().name()),
        engine: lesser,
    }));
    for one in &mut all {
        if one.lacks_ifma(engine) {
            one.name += "-noifma";
        }
    }
    all.retain(|one| !quick || !one.lacks_ifma(engine));
    all
}

/// A bare AEAD with a prepared key, without AAD.
pub trait Bare {
    /// Its name in the tables.
    fn name(&self) -> &str;
    /// What it runs on, where it says so.
    fn backend(&self) -> &'static str;
    /// Seals all but the last 16 bytes, which become the tag.
    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]);
    /// Opens, and says whether the tag was right.
    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool;
}

struct OurBare(Ours, Key);

impl Bare for OurBare {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn backend(&self) -> &'static str {
        self.0.backend()
    }

    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) {
        let text = 0..text_and_tag.len() - TAG_LEN;
        self.0
            .engine
            .seal_single(&self.1, *nonce, text_and_tag, 0..0, text);
    }

    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool {
        let text = 0..text_and_tag.len() - TAG_LEN;
        let engine = self.0.engine;
        engine.open_single(&self.1, *nonce, text_and_tag, 0..0, text)
    }
}

struct LibraryBare<L: Library>(L::Prepared);

impl<L: Library> Bare for LibraryBare<L> {
    fn name(&self) -> &str {
        L::NAME
    }

    fn backend(&self) -> &'static str {
        ""
    }

    fn seal(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) {
        let (text, tag) = text_and_tag.split_at_mut(text_and_tag.len() - TAG_LEN);
        tag.copy_from_slice(&L::seal(&mut self.0, nonce, &[], text));
    }

    fn open(&mut self, nonce: &Nonce, text_and_tag: &mut [u8]) -> bool {
        L::open(&mut self.0, nonce, &[], text_and_tag)
    }
}

/// Every bare AEAD with `key`, ours first.
#[must_use]
pub fn bare_aeads(ours: &[Ours], key: &Key) -> Vec<Box<dyn Bare>> {
    let ours = ours
        .iter()
        .map(|ours| -> Box<dyn Bare> { Box::new(OurBare(ours.clone(), *key)) });
    let libraries: Vec<Box<dyn Bare>> = vec![
        Box::new(LibraryBare::<Ring>(Ring::precompute_keystream(key))),
        Box::new(LibraryBare::<AwsLcRs>(AwsLcRs::precompute_keystream(key))),
        Box::new(LibraryBare::<RustCrypto>(RustCrypto::precompute_keystream(
            key,
        ))),
        #[cfg(feature = "openssl")]
        Box::new(LibraryBare::<OpenSsl>(OpenSsl::precompute_keystream(key))),
    ];
    ours.chain(libraries).collect()
}

/// What seals and opens batches.
pub trait Runner {
    /// Whether it has a use for keystream that our sessions compute ahead. Where it
    /// has none, they shall not spend time on it.
    const TAKES_KEYSTREAM: bool;

    /// Seals what is pending.
    fn seal(&mut self, batch: &mut Batch);
    /// Opens what is pending.
    fn open(&mut self, batch: &mut Batch);
}

impl Runner for Engine {
    const TAKES_KEYSTREAM: bool = true;

    fn seal(&mut self, batch: &mut Batch) {
        Engine::seal(self, batch);
    }

    fn open(&mut self, batch: &mut Batch) {
        Engine::open(self, batch);
    }
}

/// A library that is called once per packet. It keeps the keys that it has
/// prepared from turn to turn, as a session would, and looks at each when it
/// needs it, so that many sessions' keys pass through the caches once a turn.
pub struct OneByOne<L: Library> {
    keys: Vec<(Key, L::Prepared)>,
}

impl<L: Library> Default for OneByOne<L> {
    fn default() -> Self {
        Self { keys: Vec::new() }
    }
}

impl<L: Library> OneByOne<L> {
    /// Prepares the batch's key `index` if it is not that of the turn before.
    fn precompute_keystream(&mut self, keys: &[Key], index: usize) {
        let key = &keys[index];
        match self.keys.get_mut(index) {
            Some((known, _)) if known == key => {}
            Some(place) => *place = (*key, L::precompute_keystream(key)),
            None => self.keys.push((*key, L::precompute_keystream(key))),
        }
    }

    fn run(
        &mut self,
        batch: &mut Batch,
        one: impl Fn(&mut L::Prepared, &Job, &[u8], &mut [u8]) -> Outcome,
    ) {
        batch.run_with(|pending| {
            let mut prepared = 0;
            for (job, outcome) in pending.jobs.iter().zip(pending.outcomes) {
                assert_eq!(
                    job.aad_len, 0,
                    "these sessions have no AAD after their handshake"
                );
                while prepared <= job.key as usize {
                    self.precompute_keystream(pending.secrets.keys, prepared);
                    prepared += 1;
                }
                let text = job.text as usize;
                let text_and_tag = &mut pending.bytes[text..text + job.text_len as usize + TAG_LEN];
                *outcome = one(&mut self.keys[job.key as usize].1, job, &[], text_and_tag);
            }
        });
    }
}

impl<L: Library> Runner for OneByOne<L> {
    const TAKES_KEYSTREAM: bool = false;

    fn seal(&mut self, batch: &mut Batch) {
        self.run(batch, |key, job, aad, text_and_tag| {
            let (text, tag) = text_and_tag.split_at_mut(job.text_len as usize);
            tag.copy_from_slice(&L::seal(key, &job.nonce, aad, text));
            Outcome::Sealed
        });
    }

    fn open(&mut self, batch: &mut Batch) {
        self.run(batch, |key, job, aad, text_and_tag| {
            match L::open(key, &job.nonce, aad, text_and_tag) {
                true => Outcome::Authentic,
                false => Outcome::BadTag,
            }
        });
    }
}

/// One end of a connection that is measured.
pub trait Peer {
    /// Seals a turn's packets and hands what goes over the wire to `send`, in as
    /// many parts as the implementation likes.
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8]));

    /// Opens whole packets and hands the contents of the genuine ones to `each`,
    /// in order.
    ///
    /// # Panics
    ///
    /// If a packet cannot be opened.
    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8]));
}

/// Our session, around whatever runs its batches.
pub struct OurPeer<R> {
    runner: R,
    batch: Batch,
    outbound: Outbound,
    inbound: Inbound,
}

impl<R: Runner> Peer for OurPeer<R> {
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8])) {
        self.batch.clear();
        let mut whole: Option<packetlane::Slot> = None;
        for (kind, contents) in turn.packets() {
            if self.batch.bytes_used() >= Batch::ENOUGH_BYTES {
                self.send(whole.take(), send);
            }
            let slot = self.outbound.push(&mut self.batch, kind, contents);
            let slot = slot.expect("contents of at most 2^24 - 1 bytes");
            whole = Some(match whole {
                None => slot,
                Some(before) => before.join(&slot).expect("one session alone"),
            });
        }
        self.send(whole, send);
    }

    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8])) {
        for received in wire.chunks(Batch::ENOUGH_BYTES) {
            self.batch.clear();
            self.inbound.feed(&mut self.batch, received);
            self.runner.open(&mut self.batch);
            for contents in self.inbound.packets(&self.batch) {
                each(contents.expect("an authentic packet"));
            }
        }
    }
}

impl<R: Runner> OurPeer<R> {
    /// Seals what waits and sends it.
    fn send(&mut self, packets: Option<packetlane::Slot>, send: &mut dyn FnMut(&[u8])) {
        self.runner.seal(&mut self.batch);
        if let Some(packets) = packets {
            send(self.batch.wire(&packets));
        }
        self.batch.clear();
    }
}

/// The `bip324` crate: its ciphers, into and out of one buffer that is kept.
pub struct Bip324Crate {
    session: bip324::CipherSession,
    buffer: Vec<u8>,
}

impl Peer for Bip324Crate {
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8])) {
        let mut at = 0;
        for (kind, contents) in turn.packets() {
            let kind = match kind {
                PacketKind::Genuine => bip324::PacketType::Genuine,
                PacketKind::Decoy => bip324::PacketType::Decoy,
            };
            // In parts, as ours.
            if at >= Batch::ENOUGH_BYTES {
                send(&self.buffer[..at]);
                at = 0;
            }
            let end = at + contents.len() + OVERHEAD;
            if self.buffer.len() < end {
                self.buffer.resize(end, 0);
            }
            let place = &mut self.buffer[at..end];
            let sealed = self.session.outbound().encrypt(contents, place, kind, None);
            sealed.expect("a buffer that is long enough");
            at = end;
        }
        send(&self.buffer[..at]);
    }

    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8])) {
        // As ours: what a socket would have written.
        if self.buffer.len() < wire.len() {
            self.buffer.resize(wire.len(), 0);
        }
        self.buffer[..wire.len()].copy_from_slice(wire);
        let mut rest = &mut self.buffer[..wire.len()];
        while let Some((&mut length, packets)) = rest.split_first_chunk_mut() {
            let length = self.session.inbound().decrypt_packet_len(length);
            let (packet, behind) = packets.split_at_mut(length);
            let opened = self.session.inbound().decrypt_in_place(packet, None);
            let (kind, contents) = opened.expect("an authentic packet");
            if kind == bip324::PacketType::Genuine {
                each(&contents[1..]);
            }
            rest = behind;
        }
    }
}

/// An implementation of whole packets: its name, what it ran on, and how to make
/// the two ends of a connection.
pub struct Implementation {
    /// Its name in the tables.
    pub name: String,
    /// What it ran on, where it says so.
    pub backend: &'static str,
    connect: Box<dyn Fn() -> [Box<dyn Peer>; 2]>,
}

impl Implementation {
    /// Two ends of a new connection: initiator, responder. The keys are always
    /// the same.
    #[must_use]
    pub fn connect(&self) -> [Box<dyn Peer>; 2] {
        (self.connect)()
    }
}

/// Every implementation of whole packets, ours first.
///
/// # Panics
///
/// If there is none of ours: the libraries need our sessions.
#[must_use]
pub fn implementations(ours: &[Ours]) -> Vec<Implementation> {
    fn one_by_one<L: Library + 'static>(engine: Engine) -> Implementation {
        Implementation {
            name: L::NAME.to_owned(),
            backend: "",
            connect: Box::new(move || our_peers(engine, OneByOne::<L>::default)),
        }
    }
    let by_ours = ours.iter().map(|ours| {
        let engine = ours.engine;
        Implementation {
            name: ours.name.clone(),
            backend: ours.backend(),
            connect: Box::new(move || peers(engine)),
        }
    });
    let engine = ours[0].engine;
    let by_others = [
        one_by_one::<Ring>(engine),
        one_by_one::<AwsLcRs>(engine),
        one_by_one::<RustCrypto>(engine),
        #[cfg(feature = "openssl")]
        one_by_one::<OpenSsl>(engine),
        Implementation {
            name: "bip324".to_owned(),
            backend: "",
            connect: Box::new(bip324_crate),
        },
    ];
    by_ours.chain(by_others).collect()
}

/// What this build leaves out, in a line for the reader; nothing if nothing.
#[must_use]
pub const fn left_out() -> Option<&'static str> {
    if cfg!(feature = "openssl") {
        None
    } else {
        Some("openssl is not in this build: add --features openssl (needs OpenSSL's headers)")
    }
}

/// Two ends of our sessions, around `engine`.
#[must_use]
pub fn peers(engine: Engine) -> [Box<dyn Peer>; 2] {
    our_peers(engine, || engine)
}

/// Two ends of our sessions, around runners of one kind.
fn our_peers<R: Runner + 'static>(engine: Engine, runner: impl Fn() -> R) -> [Box<dyn Peer>; 2] {
    sessions(engine).map(|mut session| -> Box<dyn Peer> {
        session
            .outbound
            .set_precomputed_keystream(R::TAKES_KEYSTREAM);
        session
            .inbound
            .set_precomputed_keystream(R::TAKES_KEYSTREAM);
        Box::new(OurPeer {
            runner: runner(),
            batch: Batch::new(),
            outbound: session.outbound,
            inbound: session.inbound,
        })
    })
}

/// Two of our sessions with the keys that all implementations share, behind
/// their version packets: initiator, responder.
#[must_use]
pub fn sessions(engine: Engine) -> [Session; 2] {
    let [initiator, responder] = SECRETS.map(|secret| {
        let handshake = bip324_start(Fixed(secret), bip324::Role::Initiator);
        let mut public = [0; ELLSWIFT_LEN];
        handshake.send_key(None, &mut public).expect("64 bytes");
        Keypair::from_parts(&secret, public).expect("a secret key")
    });
    let shared = initiator.shared_secret(responder.public(), Role::Initiator);
    let keys = SessionKeys::derive(&shared, Network::Mainnet.magic());
    let mut ends =
        [Role::Initiator, Role::Responder].map(|role| Session::from_keys(engine, &keys, role));
    for (from, to) in [(0, 1), (1, 0)] {
        let mut version = Vec::new();
        let sealed = ends[from]
            .outbound
            .seal(PacketKind::Genuine, &[], &mut version);
        sealed.expect("an empty packet");
        let mut batch = Batch::new();
        let inbound = &mut ends[to].inbound;
        inbound.feed(&mut batch, &version);
        engine.open(&mut batch);
        assert_eq!(inbound.packets(&batch).next(), Some(Ok(&[][..])));
    }
    ends
}

/// A source of randomness that always yields the same secret key.
struct Fixed([u8; 32]);

impl bip324::FillBytes for Fixed {
    fn fill_bytes(&mut self, dest: &mut [u8; 32]) {
        *dest = self.0;
    }
}

/// The beginning of a handshake of the `bip324` crate with a given secret.
fn bip324_start(mut secret: Fixed, role: bip324::Role) -> bip324::Handshake<bip324::Initialized> {
    let curve = secp256k1::Secp256k1::signing_only();
    let magic = Network::Mainnet.magic();
    bip324::Handshake::new_with_rng(magic, role, &mut secret, &curve).expect("a secret key")
}

/// Two ends of the `bip324` crate with the keys of [`sessions`].
fn bip324_crate() -> [Box<dyn Peer>; 2] {
    let roles = [bip324::Role::Initiator, bip324::Role::Responder];
    let [first, second] = [0, 1].map(|i| bip324_start(Fixed(SECRETS[i]), roles[i]));
    bip324_handshake(first, second).map(|session| -> Box<dyn Peer> {
        Box::new(Bip324Crate {
            session,
            buffer: Vec::new(),
        })
    })
}

/// Both sides of a handshake of the `bip324` crate, without garbage.
///
/// # Panics
///
/// If it fails.
#[must_use]
pub fn bip324_handshake(
    initiator: bip324::Handshake<bip324::Initialized>,
    responder: bip324::Handshake<bip324::Initialized>,
) -> [bip324::CipherSession; 2] {
    const VERSION_LEN: usize = TERMINATOR_LEN + OVERHEAD;
    let mut keys = [[0; ELLSWIFT_LEN]; 2];
    let initiator = initiator.send_key(None, &mut keys[0]).expect("64 bytes");
    let responder = responder.send_key(None, &mut keys[1]).expect("64 bytes");
    let mut versions = [[0; VERSION_LEN]; 2];
    let send = |handshake: bip324::Handshake<bip324::SentKey<'static>>, theirs, version: &mut _| {
        let handshake = handshake.receive_key(theirs).expect("any key");
        let version: &mut [u8; VERSION_LEN] = version;
        handshake
            .send_version(version, None)
            .expect("room for a version packet")
    };
    let responder = send(responder, keys[0], &mut versions[1]);
    let initiator = send(initiator, keys[1], &mut versions[0]);
    let [from_initiator, from_responder] = versions;
    [(initiator, from_responder), (responder, from_initiator)].map(|(handshake, mut version)| {
        let (terminator, packet) = version.split_at_mut(TERMINATOR_LEN);
        let Ok(bip324::GarbageResult::FoundGarbage { mut handshake, .. }) =
            handshake.receive_garbage(terminator)
        else {
            panic!("no terminator")
        };
        let (length, packet) = packet.split_first_chunk_mut().expect("a packet");
        let length = handshake.decrypt_packet_len(*length).expect("a length");
        assert_eq!(length, packet.len());
        match handshake.receive_version(packet) {
            Ok(bip324::VersionResult::Complete { cipher }) => cipher,
            _ => panic!("no version packet"),
        }
    })
}

/// Both sides of our handshake, carried through in memory.
///
/// # Panics
///
/// If it fails.
#[must_use]
pub fn shake_hands(initiator: HandshakeConfig, responder: HandshakeConfig) -> [Box<Session>; 2] {
    let mut initiator = Handshake::initiator(initiator).expect("a sound configuration");
    let mut responder = Handshake::responder(responder).expect("a sound configuration");
    let step = |side: &mut Handshake, bytes: &[u8]| match side.receive(bytes) {
        Ok(Progress::Complete(session)) => Some(session),
        Ok(Progress::Waiting) => None,
        other => panic!("{other:?}"),
    };
    assert!(step(&mut responder, &initiator.take_output()).is_none());
    let ours = step(&mut initiator, &responder.take_output());
    let theirs = step(&mut responder, &initiator.take_output());
    [ours.expect("complete"), theirs.expect("complete")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Profile;

    /// All implementations produce the same bytes and open them, over several
    /// rekeys.
    #[test]
    fn all_agree() {
        let mut turns = Profile::mail().turns(20, 64, 20);
        // One that is sent in parts.
        turns.extend(Profile::mail().turns(1, 4 * Batch::ENOUGH_BYTES / 325, 0));
        let mut wires: Vec<(String, Vec<u8>)> = Vec::new();
        let ours = ours(Engine::detect().unwrap(), false);
        for implementation in implementations(&ours) {
            let [mut from, mut to] = implementation.connect();
            let mut wire = Vec::new();
            for turn in &turns {
                let mut opened = Vec::new();
                from.seal(turn, &mut |sealed| {
                    wire.extend_from_slice(sealed);
                    to.open(sealed, &mut |contents| opened.push(contents.to_vec()));
                });
                assert!(turn.genuine().eq(opened), "{}", implementation.name);
            }
            wires.push((implementation.name, wire));
        }
        for (name, wire) in &wires {
            assert!(*wire == wires[0].1, "{name}");
        }
        let others = if cfg!(feature = "openssl") { 5 } else { 4 };
        assert_eq!(wires.len(), ours.len() + others);
    }

    #[test]
    fn each_of_our_backends_has_a_name() {
        let names = |engine, quick| -> Vec<String> {
            let ours = ours(engine, quick).into_iter();
            ours.map(|ours| ours.name).collect()
        };
        assert_eq!(names(Engine::portable(), false), [OURS]);
        for &backend in Backend::ALL {
            let Ok(engine) = Engine::on(backend) else {
                continue;
            };
            let names = names(engine, false);
            assert_eq!(names[0], OURS);
            assert_eq!(names.len(), crate::report::distinct(names.clone()).len());
            assert!(names.iter().all(|name| crate::report::is_ours(name)));
        }
        let best = Engine::detect().unwrap();
        let quick = names(best, true);
        assert!(!quick.iter().any(|name| name.ends_with("noifma")));
    }
}
