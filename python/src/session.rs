//! Handshakes, sessions, and the messages in their packets.

use crate::batch::{Engine, OpenBatch, SealBatch, Slot};
use crate::error;
use packetlane::bip324::{
    self, HandshakeConfig, HandshakeError, KeyPool, Keypair, OpenError, PacketKind, Progress,
    SealError,
};
use packetlane::bitcoin::message::MessageType;
use packetlane::bitcoin::{Network, v1};
use packetlane::internals::Draft;
use packetlane::{OpenBatch as Opening, SealBatch as Sealing};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyList, PyMemoryView, PyString};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A network's magic, given by the network's name in node software or as four bytes.
#[derive(Clone, Copy)]
pub(crate) struct Magic(pub(crate) [u8; 4]);

impl Magic {
    pub(crate) const MAIN: Self = Self(Network::Mainnet.magic());

    /// Its network. An unknown magic is a custom signet.
    pub(crate) fn network(self) -> Network {
        Network::from_magic(self.0).unwrap_or(Network::Signet)
    }
}

impl<'py> FromPyObject<'_, 'py> for Magic {
    type Error = PyErr;

    fn extract(network: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(name) = network.cast::<PyString>() {
            let name = name.to_string();
            let found = Network::ALL.iter().find(|one| one.name() == name);
            return found.map(|network| Self(network.magic())).ok_or_else(|| {
                let names = Network::ALL.map(Network::name).join(", ");
                PyValueError::new_err(format!("unknown network {name:?}, expected one of {names}"))
            });
        }
        let bytes = Input::new(&network)?.to_vec(network.py())?;
        let len = bytes.len();
        let wrong = |_| PyValueError::new_err(format!("a magic has 4 bytes, not {len}"));
        match <[u8; 4]>::try_from(bytes).map_err(wrong)? {
            [0, 0, 0, 0] => Err(PyValueError::new_err(
                "a magic of zeros, which no network uses",
            )),
            magic => Ok(Self(magic)),
        }
    }
}

/// A call that may seal or open at least this many bytes releases the GIL. With fewer bytes, releasing it takes
/// longer than the call.
const LONG: usize = 32 * 1024;

/// Calls `run`, which handles `len` bytes. Releases the GIL if `len` is at least [`LONG`].
pub(crate) fn with_others<T: Send>(
    py: Python<'_>,
    len: usize,
    run: impl FnOnce() -> T + Send,
) -> T {
    match len >= LONG {
        true => py.detach(run),
        false => run(),
    }
}

/// Bytes from Python: a `bytes` object, which needs no buffer protocol, or any other buffer.
pub(crate) enum Input<'py> {
    Bytes(Bound<'py, PyBytes>),
    Buffer(PyBuffer<u8>),
}

impl<'py> Input<'py> {
    pub(crate) fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes.clone())),
            Err(_) => Ok(Self::Buffer(PyBuffer::get(object)?)),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes().len(),
            Self::Buffer(buffer) => buffer.len_bytes(),
        }
    }

    pub(crate) fn to_vec(&self, py: Python<'_>) -> PyResult<Vec<u8>> {
        self.bytes(py).map(Cow::into_owned)
    }

    /// The bytes. A buffer other than `bytes` is copied, because it may be mutable.
    fn bytes(&self, py: Python<'_>) -> PyResult<Cow<'_, [u8]>> {
        match self {
            Self::Bytes(bytes) => Ok(Cow::Borrowed(bytes.as_bytes())),
            Self::Buffer(buffer) => buffer.to_vec(py).map(Cow::Owned),
        }
    }

    /// Calls `run` with the [bytes](Self::bytes).
    pub(crate) fn with<T>(&self, py: Python<'_>, run: impl FnOnce(&[u8]) -> T) -> PyResult<T> {
        Ok(run(&self.bytes(py)?))
    }
}

/// Each element of an iterable.
pub(crate) fn inputs<'py>(list: &Bound<'py, PyAny>) -> PyResult<Vec<Input<'py>>> {
    match list.cast::<PyList>() {
        Ok(list) => list.iter().map(|one| Input::new(&one)).collect(),
        Err(_) => list.try_iter()?.map(|one| Input::new(&one?)).collect(),
    }
}

/// The id of this process, cached because the system call takes longer than a push.
static PROCESS: AtomicU32 = AtomicU32::new(0);

#[pyfunction]
fn set_process() {
    PROCESS.store(std::process::id(), Ordering::Relaxed);
}

/// Caches the id of this process, and of every process forked from it.
pub(crate) fn follow_forks(py: Python<'_>) -> PyResult<()> {
    set_process();
    let os = py.import("os")?;
    // Windows has no fork.
    if os.hasattr("register_at_fork")? {
        let hook = [("after_in_child", wrap_pyfunction!(set_process, py)?)].into_py_dict(py)?;
        os.call_method("register_at_fork", (), Some(&hook))?;
    }
    Ok(())
}

/// The process that created a handshake or a session. No other process may use it: after a fork, parent
/// and child would encrypt different packets with the same nonces.
#[derive(Clone, Copy)]
struct Owner(u32);

impl Owner {
    fn new() -> Self {
        Self(PROCESS.load(Ordering::Relaxed))
    }

    fn check(self) -> PyResult<()> {
        let (Self(owner), Self(current)) = (self, Self::new());
        if owner == current {
            return Ok(());
        }
        Err(error::Error::new_err(format!(
            "this connection belongs to process {owner}, but this is process {current}: after a fork, both would \
             encrypt with the same nonces. Connect after the fork"
        )))
    }
}

/// One side of a BIP324 handshake, without sockets.
///
/// A handshake and its session belong to the process that created them. A forked process that uses them
/// gets an ``Error``.
#[pyclass(module = "packetlane")]
pub(crate) struct Handshake {
    inner: bip324::Handshake,
    owner: Owner,
}

/// The keys of the next handshakes that connect: several at once take less time each.
static KEYS: Mutex<Option<KeyPool>> = Mutex::new(None);

fn next_key(engine: packetlane::Engine) -> Result<Keypair, HandshakeError> {
    let mut keys = KEYS.lock().unwrap_or_else(PoisonError::into_inner);
    keys.get_or_insert_with(|| KeyPool::new(engine, 32))
        .take_or_compute()
}

fn config(
    py: Python<'_>,
    network: Magic,
    engine: Option<&Bound<'_, Engine>>,
    garbage: Option<&Bound<'_, PyAny>>,
    decoys: Option<&Bound<'_, PyAny>>,
    receive_limit: Option<usize>,
) -> PyResult<HandshakeConfig> {
    let engine = match engine {
        Some(engine) => engine.get().inner,
        None => packetlane::Engine::detect().map_err(error::backend)?,
    };
    let mut config = HandshakeConfig::random(network.0, engine).map_err(error::handshake)?;
    if let Some(garbage) = garbage {
        config.garbage = Input::new(garbage)?.to_vec(py)?;
    }
    if let Some(decoys) = decoys {
        let decoys = inputs(decoys)?;
        config.decoys = decoys
            .iter()
            .map(|decoy| decoy.to_vec(py))
            .collect::<PyResult<_>>()?;
    }
    if let Some(limit) = receive_limit {
        config.receive_limit = limit;
    }
    Ok(config)
}

#[pymethods]
impl Handshake {
    /// The side that connects. ``take_output`` returns its first bytes immediately.
    #[staticmethod]
    #[pyo3(
        signature = (
            network=Magic::MAIN, *, engine=None, garbage=None, decoys=None, receive_limit=None
        ),
        text_signature = "(network='main', *, engine=None, garbage=None, decoys=None, \
            receive_limit=None)"
    )]
    fn initiator(
        py: Python<'_>,
        network: Magic,
        engine: Option<&Bound<'_, Engine>>,
        garbage: Option<&Bound<'_, PyAny>>,
        decoys: Option<&Bound<'_, PyAny>>,
        receive_limit: Option<usize>,
    ) -> PyResult<Self> {
        let mut config = config(py, network, engine, garbage, decoys, receive_limit)?;
        config.keypair = Some(next_key(config.engine).map_err(error::handshake)?);
        let inner = bip324::Handshake::initiator(config).map_err(error::handshake)?;
        Ok(Self {
            inner,
            owner: Owner::new(),
        })
    }

    /// The side that accepts. It also recognises v1 peers.
    #[staticmethod]
    #[pyo3(
        signature = (
            network=Magic::MAIN, *, engine=None, garbage=None, decoys=None, receive_limit=None
        ),
        text_signature = "(network='main', *, engine=None, garbage=None, decoys=None, \
            receive_limit=None)"
    )]
    fn responder(
        py: Python<'_>,
        network: Magic,
        engine: Option<&Bound<'_, Engine>>,
        garbage: Option<&Bound<'_, PyAny>>,
        decoys: Option<&Bound<'_, PyAny>>,
        receive_limit: Option<usize>,
    ) -> PyResult<Self> {
        let config = config(py, network, engine, garbage, decoys, receive_limit)?;
        let inner = bip324::Handshake::responder(config).map_err(error::handshake)?;
        Ok(Self {
            inner,
            owner: Owner::new(),
        })
    }

    /// Returns the bytes to send to the peer now, each byte once.
    fn take_output<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.owner.check()?;
        Ok(PyBytes::new(py, &self.inner.take_output()))
    }

    /// Processes bytes from the peer. Returns ``None`` if it needs more bytes, a ``Session`` when it is
    /// complete, or ``V1`` if the peer speaks v1.
    ///
    /// With a batch, the exchange of keys waits in it for those of other handshakes: ``Engine.open`` computes
    /// all of them together, in less time. Then call ``take_keys``, before the batch is cleared.
    #[pyo3(signature = (data, batch=None))]
    fn receive<'py>(
        &mut self,
        data: &Bound<'py, PyAny>,
        batch: Option<&Bound<'py, OpenBatch>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.owner.check()?;
        let py = data.py();
        let mut batch = batch.map(|batch| batch.try_borrow_mut()).transpose()?;
        let batch = batch
            .as_mut()
            .map(|batch| batch.state.change())
            .transpose()?;
        let progress = Input::new(data)?.with(py, |data| match batch {
            Some(batch) => self.inner.receive_batched(batch, data),
            None => self.inner.receive(data),
        })?;
        self.progress(py, progress)
    }

    /// Takes the keys that the batch has computed, if the handshake waits for them. Returns what ``receive``
    /// does.
    fn take_keys<'py>(
        &mut self,
        batch: &Bound<'py, OpenBatch>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.owner.check()?;
        let progress = self.inner.take_keys(batch.try_borrow()?.state.get());
        self.progress(batch.py(), progress)
    }

    /// The exception for a peer that closed the connection at this point.
    fn closed<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        let error = error::handshake(self.inner.closed());
        error.into_value(py).into_bound(py).into_any()
    }
}

impl Handshake {
    fn progress<'py>(
        &self,
        py: Python<'py>,
        progress: Result<Progress, HandshakeError>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let owner = self.owner;
        Ok(match progress.map_err(error::handshake)? {
            Progress::Waiting => None,
            Progress::Complete(inner) => Some(Bound::new(py, Session { inner, owner })?.into_any()),
            Progress::V1(received) => {
                let received = PyBytes::new(py, &received).unbind();
                Some(Bound::new(py, V1 { received })?.into_any())
            }
        })
    }
}

/// The peer speaks v1. Nothing was sent to it.
#[pyclass(frozen, module = "packetlane")]
pub(crate) struct V1 {
    /// All bytes it has sent, for a ``V1Decoder``.
    #[pyo3(get)]
    received: Py<PyBytes>,
}

/// An established session, with both directions.
#[pyclass(module = "packetlane")]
pub(crate) struct Session {
    inner: Box<bip324::Session>,
    owner: Owner,
}

/// Adds a packet.
fn push(
    session: &mut bip324::Session,
    batch: &mut Sealing,
    py: Python<'_>,
    kind: PacketKind,
    contents: &Input<'_>,
) -> PyResult<packetlane::Slot> {
    let outbound = &mut session.outbound;
    match contents {
        Input::Bytes(bytes) => {
            let bytes = bytes.as_bytes();
            with_others(py, bytes.len(), || outbound.push(batch, kind, bytes)).map_err(error::seal)
        }
        Input::Buffer(buffer) => {
            let draft = Draft::begin(outbound, batch, buffer.len_bytes()).map_err(error::seal)?;
            buffer.copy_to_slice(py, draft.contents(batch).map_err(error::seal)?)?;
            draft.commit(outbound, batch, kind).map_err(error::seal)
        }
    }
}

#[pymethods]
impl Session {
    /// The session id, 32 bytes. It is the same on both sides unless the connection is intercepted.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.inner.id())
    }

    /// The number of decoys dropped.
    #[getter]
    fn decoys(&self) -> u64 {
        self.inner.inbound.decoys()
    }

    /// The number of packets without a message that ``messages`` has dropped.
    #[getter]
    fn ignored(&self) -> u64 {
        self.inner.inbound.ignored().messages
    }

    /// The number of bytes held here: of an incomplete packet, and of deferred contents.
    #[getter]
    fn buffered(&self) -> usize {
        self.inner.inbound.buffered()
    }

    /// Whether packets are pending that arrived with the handshake or were deferred. If so, feed ``b""``.
    #[getter]
    fn needs_turn(&self) -> bool {
        self.inner.inbound.has_pending_input()
    }

    /// Sets the longest contents accepted, in bytes.
    fn set_receive_limit(&mut self, limit: usize) {
        self.inner.inbound.set_receive_limit(limit);
    }

    /// Adds a packet to the batch. Every added packet must be sealed and sent, in order.
    #[pyo3(signature = (batch, contents, *, decoy=false))]
    fn push(
        &mut self,
        batch: &Bound<'_, SealBatch>,
        contents: &Bound<'_, PyAny>,
        decoy: bool,
    ) -> PyResult<Slot> {
        self.owner.check()?;
        let kind = match decoy {
            false => PacketKind::Genuine,
            true => PacketKind::Decoy,
        };
        let contents = Input::new(contents)?;
        let mut batch = batch.try_borrow_mut()?;
        let (py, batch) = (batch.py(), batch.state.change()?);
        let inner = push(&mut self.inner, batch, py, kind, &contents)?;
        Ok(Slot { inner })
    }

    /// Adds a packet for each of ``contents``, all in one slot. Returns ``None`` if ``contents`` is empty.
    /// Adds all packets or none.
    fn push_many(
        &mut self,
        batch: &Bound<'_, SealBatch>,
        contents: &Bound<'_, PyAny>,
    ) -> PyResult<Option<Slot>> {
        self.owner.check()?;
        let contents = inputs(contents)?;
        let mut batch = batch.try_borrow_mut()?;
        let (py, batch) = (batch.py(), batch.state.change()?);
        if contents.is_empty() {
            return Ok(None);
        }
        // Check the lengths before copying anything.
        if let Some(long) = contents
            .iter()
            .find(|one| one.len() > bip324::Session::MAX_CONTENTS_LEN)
        {
            let length = long.len();
            return Err(error::seal(SealError::TooLong { length }));
        }
        let contents: Vec<_> = contents
            .iter()
            .map(|one| one.bytes(py))
            .collect::<PyResult<_>>()?;
        let len = contents.iter().map(|one| one.len()).sum();
        let packets = contents.iter().map(|one| (PacketKind::Genuine, &**one));
        let outbound = &mut self.inner.outbound;
        let slot = with_others(py, len, || outbound.push_many(batch, packets));
        let inner = slot.map_err(error::seal)?;
        Ok(Some(Slot { inner }))
    }

    /// Adds a packet with a message. Its type is encoded in the shortest form.
    #[pyo3(signature = (batch, message_type, payload=None))]
    fn push_message(
        &mut self,
        batch: &Bound<'_, SealBatch>,
        message_type: &str,
        payload: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Slot> {
        self.owner.check()?;
        let message_type = checked_type(message_type)?;
        let payload = payload.map(Input::new).transpose()?;
        let mut batch = batch.try_borrow_mut()?;
        let (py, batch) = (batch.py(), batch.state.change()?);
        let outbound = &mut self.inner.outbound;
        let inner = match &payload {
            None => outbound.push_message(batch, message_type, b""),
            Some(payload) => payload.with(py, |bytes| {
                with_others(py, bytes.len(), || {
                    outbound.push_message(batch, message_type, bytes)
                })
            })?,
        };
        let inner = inner.map_err(error::seal)?;
        Ok(Slot { inner })
    }

    /// Adds every packet completed by ``data`` to the batch and keeps the rest. Returns the number of
    /// packets added. An error ends the session.
    fn feed(&mut self, batch: &Bound<'_, OpenBatch>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        self.owner.check()?;
        let data = Input::new(data)?;
        let mut batch = batch.try_borrow_mut()?;
        let (py, batch) = (batch.py(), batch.state.change()?);
        let inbound = &mut self.inner.inbound;
        // A long packet may be opened by this call, including its bytes from earlier calls.
        let len = data.len() + inbound.buffered();
        let added = match &data {
            Input::Bytes(bytes) => {
                let bytes = bytes.as_bytes();
                with_others(py, len, || inbound.feed(batch, bytes))
            }
            Input::Buffer(buffer) => {
                let new = buffer.len_bytes();
                if new > Opening::MAX_BYTES - batch.bytes_used() {
                    return Err(error::open(OpenError::BatchFull));
                }
                buffer.copy_to_slice(py, batch.room(new))?;
                with_others(py, len, || inbound.receive(batch, new))
            }
        };
        added.map_err(error::open)
    }

    /// The contents of this session's packets in an opened batch, copied. Each packet is returned once.
    /// If a packet is invalid, this call returns the packets before it and the next call raises the error.
    fn packets<'py>(
        &mut self,
        batch: &Bound<'py, OpenBatch>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        self.owner.check()?;
        let (py, batch) = (batch.py(), batch.try_borrow()?);
        let packets = self.inner.inbound.packets(batch.state.get());
        take(packets, |contents| Ok(PyBytes::new(py, contents)))
    }

    /// Like ``packets``, but returns views into the arena instead of copies. The batch cannot change until
    /// all of them are released.
    fn views<'py>(
        &mut self,
        batch: &Bound<'py, OpenBatch>,
    ) -> PyResult<Vec<Bound<'py, PyMemoryView>>> {
        self.owner.check()?;
        let borrowed = batch.try_borrow()?;
        let packets = self.inner.inbound.packets(borrowed.state.get());
        take(packets, |contents| {
            PyMemoryView::from(borrowed.view(batch, contents)?.as_any())
        })
    }

    /// Like ``packets``, but returns message types and payloads. Packets without a message are dropped
    /// and counted (``ignored``), as nodes do.
    fn messages<'py>(&mut self, batch: &Bound<'py, OpenBatch>) -> PyResult<Vec<Message<'py>>> {
        self.owner.check()?;
        let (py, batch) = (batch.py(), batch.try_borrow()?);
        let messages = self.inner.inbound.messages(batch.state.get());
        take(messages, |(message_type, payload)| {
            Ok(message(py, message_type, payload))
        })
    }

    /// Keeps this session's packets that were not taken from the batch. ``feed(batch, b"")`` adds them again
    /// in a later turn.
    fn defer(&mut self, batch: &Bound<'_, OpenBatch>) -> PyResult<()> {
        self.owner.check()?;
        let batch = batch.try_borrow()?;
        let inbound = &mut self.inner.inbound;
        inbound.defer(batch.state.get()).map_err(error::open)
    }
}

/// Applies `make` to each packet. An error is returned only if no packet comes before it; otherwise the
/// next call finds it again.
fn take<P, T>(
    packets: impl Iterator<Item = Result<P, OpenError>>,
    make: impl Fn(P) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let mut taken = Vec::new();
    for packet in packets {
        match packet {
            Ok(packet) => taken.push(make(packet)?),
            Err(error) if taken.is_empty() => return Err(error::open(error)),
            Err(_) => break,
        }
    }
    Ok(taken)
}

/// A message's type and payload as Python objects.
type Message<'py> = (Bound<'py, PyString>, Bound<'py, PyBytes>);

fn message<'py>(py: Python<'py>, message_type: MessageType, payload: &[u8]) -> Message<'py> {
    // Since CPython 3.12 interned strings are never freed, and a peer may invent any number of types.
    let message_type = match MessageType::known().contains(&message_type) {
        true => PyString::intern(py, message_type.name()),
        false => PyString::new(py, message_type.name()),
    };
    (message_type, PyBytes::new(py, payload))
}

/// The type of a message to send. The library itself accepts an empty type, because peers may send one.
fn checked_type(name: &str) -> PyResult<MessageType> {
    if name.is_empty() {
        let text = "the message type is empty, expected 1 to 12 printable ASCII characters";
        return Err(error::MessageError::new_err(text));
    }
    MessageType::new(name.as_bytes()).map_err(error::message)
}

/// Encodes a message as the contents of a v2 packet.
#[pyfunction]
#[pyo3(name = "encode_message", signature = (message_type, payload=None))]
pub(crate) fn encode<'py>(
    py: Python<'py>,
    message_type: &str,
    payload: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let message_type = checked_type(message_type)?;
    let payload = payload.map(|payload| Input::new(payload)?.to_vec(py));
    let mut contents = Vec::new();
    message_type.encode(&payload.transpose()?.unwrap_or_default(), &mut contents);
    Ok(PyBytes::new(py, &contents))
}

/// Decodes the message in the contents of a v2 packet. Returns its type and its payload.
#[pyfunction]
#[pyo3(name = "decode_message")]
pub(crate) fn decode<'py>(contents: &Bound<'py, PyAny>) -> PyResult<(String, Bound<'py, PyBytes>)> {
    let py = contents.py();
    Input::new(contents)?.with(py, |contents| {
        let (message_type, payload) = MessageType::decode(contents).map_err(error::message)?;
        Ok((message_type.name().to_owned(), PyBytes::new(py, payload)))
    })?
}

/// Encodes a message with the framing of v1, the unencrypted transport.
#[pyfunction]
#[pyo3(signature = (network, message_type, payload=None))]
pub(crate) fn encode_v1<'py>(
    py: Python<'py>,
    network: Magic,
    message_type: &str,
    payload: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let message_type = checked_type(message_type)?;
    let payload = payload.map(|payload| Input::new(payload)?.to_vec(py));
    let payload = payload.transpose()?.unwrap_or_default();
    if payload.len() > v1::Message::MAX_PAYLOAD_LEN {
        let (len, most) = (payload.len(), v1::Message::MAX_PAYLOAD_LEN);
        let text = format!("a payload of {len} bytes, the limit is {most}");
        return Err(error::MessageError::new_err(text));
    }
    let mut wire = Vec::new();
    v1::Message::new(message_type, &payload).encode(network.0, &mut wire);
    Ok(PyBytes::new(py, &wire))
}

/// Decodes the messages of a v1 peer.
///
/// A message with a wrong checksum or a malformed type is dropped and counted, as nodes do.
#[pyclass(module = "packetlane")]
pub(crate) struct V1Decoder {
    inner: v1::Decoder,
    /// Bytes of an incomplete message.
    buffer: Vec<u8>,
    failed: Option<v1::Error>,
}

#[pymethods]
impl V1Decoder {
    #[new]
    #[pyo3(
        signature = (network=Magic::MAIN),
        text_signature = "(network='main')"
    )]
    fn new(network: Magic) -> Self {
        Self {
            inner: v1::Decoder::new(network.0),
            buffer: Vec::new(),
            failed: None,
        }
    }

    /// Returns the messages completed by ``data``, each as its type and its payload. Raises
    /// ``MessageError`` if the connection must end: another network, or a payload above the limit. If
    /// messages come before the error, this call returns them and the next call raises it.
    fn receive<'py>(&mut self, data: &Bound<'py, PyAny>) -> PyResult<Vec<Message<'py>>> {
        let py = data.py();
        let mut messages = Vec::new();
        if self.failed.is_none() {
            let buffer = &mut self.buffer;
            Input::new(data)?.with(py, |data| buffer.extend_from_slice(data))?;
            let mut rest = &buffer[..];
            loop {
                match self.inner.next(&mut rest) {
                    Ok(Some(one)) => messages.push(message(py, one.message_type, one.payload)),
                    Ok(None) => break,
                    Err(error) => {
                        self.failed = Some(error);
                        rest = &[];
                        break;
                    }
                }
            }
            let taken = buffer.len() - rest.len();
            buffer.drain(..taken);
            if buffer.is_empty() {
                *buffer = Vec::new();
            }
        }
        match self.failed {
            Some(error) if messages.is_empty() => {
                Err(error::MessageError::new_err(error.to_string()))
            }
            _ => Ok(messages),
        }
    }

    /// The number of bytes held here, of an incomplete message.
    #[getter]
    fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// The number of messages dropped.
    #[getter]
    fn ignored(&self) -> u64 {
        self.inner.ignored().messages
    }
}
