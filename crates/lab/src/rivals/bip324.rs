//! Whole BIP324 packets, and handshakes.
//!
//! A library that offers only an AEAD is measured as the whole packet that its user would build:
//! our session with one library call per packet ([`OneByOne`]). The `bip324` crate has its own
//! sessions. All use the same keys, so all must produce the same bytes.

#[cfg(feature = "rivals")]
use super::aead::AwsLcRs;
#[cfg(feature = "openssl")]
use super::aead::OpenSsl;
use super::aead::{Library, Ring, RustCrypto};
use super::ours::{ONE_AT_A_TIME, Ours};
use crate::traffic::Turn;
use packetlane::bip324::{
    Handshake, HandshakeConfig, Inbound, Keypair, Outbound, PacketKind, Progress, Role, Session,
    SessionKeys,
};
use packetlane::bitcoin::Network;
use packetlane::internals::run_pending;
use packetlane::{Batch, Engine, Key, OpenBatch, SealBatch, TAG_LEN};
use packetlane_lanes::{Job, Outcome};
use rand::Rng as _;

/// The secret keys of the two sides, for every implementation.
const SECRETS: [[u8; 32]; 2] = [[0x32; 32], [0x4b; 32]];

/// Seals and opens batches of our sessions.
pub(crate) trait Runner {
    /// Whether it uses the precomputed keystream of our sessions. Otherwise, they precompute none.
    const USES_PRECOMPUTED_KEYSTREAM: bool;

    /// Seals the pending packets.
    fn seal(&mut self, batch: &mut SealBatch);
    /// Opens the pending packets.
    fn open(&mut self, batch: &mut OpenBatch);
}

impl Runner for Engine {
    const USES_PRECOMPUTED_KEYSTREAM: bool = true;

    fn seal(&mut self, batch: &mut SealBatch) {
        Engine::seal(self, batch);
    }

    fn open(&mut self, batch: &mut OpenBatch) {
        Engine::open(self, batch);
    }
}

/// A library that is called once per packet. Like a session, it keeps its prepared keys from turn
/// to turn and reads each when it is needed. So the keys of many sessions pass through the caches
/// once per turn.
pub(crate) struct OneByOne<L: Library> {
    keys: Vec<(Key, L::Prepared)>,
}

impl<L: Library> Default for OneByOne<L> {
    fn default() -> Self {
        Self { keys: Vec::new() }
    }
}

impl<L: Library> OneByOne<L> {
    /// Prepares the batch's key `index`, unless it is unchanged since the last turn.
    fn prepare(&mut self, keys: &[Key], index: usize) {
        let key = &keys[index];
        match self.keys.get_mut(index) {
            Some((known, _)) if known == key => {}
            Some(place) => *place = (*key, L::prepare(key)),
            None => self.keys.push((*key, L::prepare(key))),
        }
    }

    fn run<Direction>(
        &mut self,
        batch: &mut Batch<Direction>,
        one: impl Fn(&mut L::Prepared, &Job, &[u8], &mut [u8]) -> Outcome,
    ) {
        let packets = batch.len();
        run_pending(batch, |pending| {
            assert_eq!(pending.jobs.len(), packets, "packets already processed");
            let mut prepared = 0;
            for (job, outcome) in pending.jobs.iter().zip(pending.outcomes) {
                assert_eq!(
                    job.aad_len, 0,
                    "these sessions have no AAD after their handshake"
                );
                while prepared <= job.key {
                    self.prepare(pending.keys, prepared);
                    prepared += 1;
                }
                let text = job.text as usize;
                let text_and_tag = &mut pending.bytes[text..text + job.text_len as usize + TAG_LEN];
                *outcome = one(&mut self.keys[job.key].1, job, &[], text_and_tag);
            }
        });
    }
}

impl<L: Library> Runner for OneByOne<L> {
    const USES_PRECOMPUTED_KEYSTREAM: bool = false;

    fn seal(&mut self, batch: &mut SealBatch) {
        self.run(batch, |key, job, aad, text_and_tag| {
            let (text, tag) = text_and_tag.split_at_mut(job.text_len as usize);
            tag.copy_from_slice(&L::seal(key, &job.nonce, aad, text));
            Outcome::Sealed
        });
    }

    fn open(&mut self, batch: &mut OpenBatch) {
        self.run(batch, |key, job, aad, text_and_tag| {
            match L::open(key, &job.nonce, aad, text_and_tag) {
                true => Outcome::Authentic,
                false => Outcome::BadTag,
            }
        });
    }
}

/// One end of a connection.
pub(crate) trait Peer {
    /// Seals a turn's packets and passes the wire bytes to `send`, in any number of parts.
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8]));

    /// Opens complete packets and passes the contents of the genuine ones to `each`, in order.
    ///
    /// # Panics
    ///
    /// If a packet cannot be opened.
    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8]));
}

/// Our session, with `R` to run its batches.
pub(crate) struct OurPeer<R> {
    runner: R,
    sealing: SealBatch,
    opening: OpenBatch,
    outbound: Outbound,
    inbound: Inbound,
}

impl<R: Runner> Peer for OurPeer<R> {
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8])) {
        for part in turn.parts() {
            self.sealing.clear();
            let slot = self.outbound.push_many(&mut self.sealing, part);
            let slot = slot.expect("contents of at most 2^24 - 1 bytes");
            self.runner.seal(&mut self.sealing);
            send(self.sealing.wire(&slot).expect("sealed packets"));
        }
    }

    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8])) {
        for received in wire.chunks(OpenBatch::ENOUGH_BYTES) {
            self.opening.clear();
            let added = self.inbound.feed(&mut self.opening, received);
            added.expect("packets of an honest peer");
            self.runner.open(&mut self.opening);
            for contents in self.inbound.packets(&self.opening) {
                each(contents.expect("an authentic packet"));
            }
        }
    }
}

/// Our session without batches: each packet is sealed or opened separately.
struct OneAtATime {
    session: Session,
    wire: Vec<u8>,
}

impl Peer for OneAtATime {
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8])) {
        for part in turn.parts() {
            self.wire.clear();
            for (kind, contents) in part {
                let sealed = self.session.outbound.seal(kind, contents, &mut self.wire);
                sealed.expect("contents of at most 2^24 - 1 bytes");
            }
            send(&self.wire);
        }
    }

    fn open(&mut self, mut wire: &[u8], each: &mut dyn FnMut(&[u8])) {
        let inbound = &mut self.session.inbound;
        while let Some(contents) = inbound.open(&mut wire).expect("an authentic packet") {
            each(contents);
        }
    }
}

/// The `bip324` crate: its ciphers, with one reused buffer.
pub(crate) struct Bip324Crate {
    session: bip324::CipherSession,
    buffer: Vec<u8>,
}

impl Peer for Bip324Crate {
    fn seal(&mut self, turn: &Turn, send: &mut dyn FnMut(&[u8])) {
        for part in turn.parts() {
            let mut at = 0;
            for (kind, contents) in part {
                let kind = match kind {
                    PacketKind::Genuine => bip324::PacketType::Genuine,
                    PacketKind::Decoy => bip324::PacketType::Decoy,
                };
                let end = at + contents.len() + Session::OVERHEAD;
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
    }

    fn open(&mut self, wire: &[u8], each: &mut dyn FnMut(&[u8])) {
        // Like ours: copies the bytes, as if read from a socket.
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

/// An implementation of whole packets.
pub(crate) struct Implementation {
    /// The name in the tables.
    pub(crate) name: String,
    /// What it runs on. Empty if unknown.
    pub(crate) backend: &'static str,
    connect: Box<dyn Fn() -> [Box<dyn Peer>; 2]>,
}

impl Implementation {
    /// Both ends of a new connection, initiator first. The keys are always the same.
    #[must_use]
    pub(crate) fn connect(&self) -> [Box<dyn Peer>; 2] {
        (self.connect)()
    }
}

/// All implementations of whole packets, ours first, including our best one without batches.
///
/// # Panics
///
/// If `ours` is empty, since the libraries need our sessions.
#[must_use]
pub(crate) fn implementations(ours: &[Ours]) -> Vec<Implementation> {
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
        Implementation {
            name: ONE_AT_A_TIME.to_owned(),
            backend: ours[0].backend(),
            connect: Box::new(move || {
                sessions(engine).map(|session| -> Box<dyn Peer> {
                    let wire = Vec::new();
                    Box::new(OneAtATime { session, wire })
                })
            }),
        },
        one_by_one::<Ring>(engine),
        #[cfg(feature = "rivals")]
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

/// Both ends of our sessions on `engine`.
#[must_use]
pub(crate) fn peers(engine: Engine) -> [Box<dyn Peer>; 2] {
    our_peers(engine, || engine)
}

/// Both ends of our sessions, each with its own runner.
fn our_peers<R: Runner + 'static>(engine: Engine, runner: impl Fn() -> R) -> [Box<dyn Peer>; 2] {
    sessions(engine).map(|mut session| -> Box<dyn Peer> {
        session
            .outbound
            .set_precomputed_keystream(R::USES_PRECOMPUTED_KEYSTREAM);
        session
            .inbound
            .set_precomputed_keystream(R::USES_PRECOMPUTED_KEYSTREAM);
        Box::new(OurPeer {
            runner: runner(),
            sealing: SealBatch::new(),
            opening: OpenBatch::new(),
            outbound: session.outbound,
            inbound: session.inbound,
        })
    })
}

/// Two of our sessions after their version packets, initiator first, with the keys that all
/// implementations share.
#[must_use]
pub(crate) fn sessions(engine: Engine) -> [Session; 2] {
    let [initiator, responder] = SECRETS.map(|secret| {
        let handshake = bip324_start(Fixed(secret), bip324::Role::Initiator);
        let mut public = [0; Keypair::ELLSWIFT_LEN];
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
        let mut batch = OpenBatch::new();
        let inbound = &mut ends[to].inbound;
        assert_eq!(inbound.feed(&mut batch, &version), Ok(1));
        engine.open(&mut batch);
        assert_eq!(inbound.packets(&batch).next(), Some(Ok(&[][..])));
    }
    ends
}

/// A random generator that always yields the same secret key.
struct Fixed([u8; 32]);

impl bip324::FillBytes for Fixed {
    fn fill_bytes(&mut self, dest: &mut [u8; 32]) {
        *dest = self.0;
    }
}

/// Starts a handshake of the `bip324` crate with a given secret.
fn bip324_start(mut secret: Fixed, role: bip324::Role) -> bip324::Handshake<bip324::Initialized> {
    let curve = secp256k1::Secp256k1::signing_only();
    let magic = Network::Mainnet.magic();
    bip324::Handshake::new_with_rng(magic, role, &mut secret, &curve).expect("a secret key")
}

/// Both ends of the `bip324` crate, with the keys of [`sessions`].
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
pub(crate) fn bip324_handshake(
    initiator: bip324::Handshake<bip324::Initialized>,
    responder: bip324::Handshake<bip324::Initialized>,
) -> [bip324::CipherSession; 2] {
    const VERSION_LEN: usize = SessionKeys::TERMINATOR_LEN + Session::OVERHEAD;
    let mut keys = [[0; Keypair::ELLSWIFT_LEN]; 2];
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
        let (terminator, packet) = version.split_at_mut(SessionKeys::TERMINATOR_LEN);
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

/// Both sides of our handshake, in memory, without garbage unless configured.
///
/// # Panics
///
/// If it fails.
#[must_use]
pub(crate) fn shake_hands(
    initiator: HandshakeConfig,
    responder: HandshakeConfig,
) -> [Box<Session>; 2] {
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

/// Fresh secrets, from the same generator as `bip324`'s; no garbage.
pub(crate) fn fresh_config(engine: Engine) -> HandshakeConfig {
    let mut secrets = [[0; 32]; 2];
    let mut rng = rand::rng();
    secrets.iter_mut().for_each(|secret| rng.fill_bytes(secret));
    HandshakeConfig::new(Network::Mainnet.magic(), engine, secrets[0], secrets[1])
}

/// Starts a handshake of the `bip324` crate, as its users do.
pub(crate) fn start(role: bip324::Role) -> bip324::Handshake<bip324::Initialized> {
    bip324::Handshake::new(Network::Mainnet.magic(), role).expect("entropy")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rivals::ours::ours;
    use crate::traffic::Profile;

    /// All implementations produce the same wire bytes and open them, over several rekeys.
    #[test]
    fn all_agree() {
        let mut turns = Profile::mail().turns(20, 64, 20);
        // Turns that our session would process without a batch.
        turns.extend(Profile::mail().turns(20, 1, 0));
        // A turn that is sent in parts.
        turns.extend(Profile::mail().turns(1, 4 * SealBatch::ENOUGH_BYTES / 325, 0));
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
        let others = if cfg!(feature = "openssl") { 6 } else { 5 };
        assert_eq!(wires.len(), ours.len() + others);
    }
}
