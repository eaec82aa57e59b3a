//! A device without hardware: it runs on the CPU, in an order of its own, and fails on
//! demand.
//!
//! Nothing is done when it is asked for. A command stays in its stream until the host waits
//! for the stream or asks whether it is done. Then the streams advance by one step at a time,
//! in a pseudo-random order; a copy may be half done when another stream advances. So code
//! that relies on an order that it has not asked for gets wrong bytes, and the same ones for
//! the same seed.
//!
//! Its kernels do with `lanes` what the descriptors in its memory say; or they are the PTX
//! that ships, executed by [`ptx`](crate::ptx), in a permuted order of threads.

use crate::driver::{Address, Arg, BLOCK_THREADS, Driver, Handle, Processors};
use crate::error::GpuError;
use crate::kernels::{CHUNK_LEN, CHUNK_TEXT, KEY_LEN, PACKET_LEN, PARTIAL_LEN, PTX};
use crate::ptx::{Memory, Module, Order};
use core::ptr::NonNull;
use packetlane_lanes::{Backend, Job, Outcome, Secrets, TAG_LEN, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Taking device memory.
    Alloc,
    /// Taking page-locked memory.
    AllocPinned,
    /// Making a stream.
    Stream,
    /// A copy to the device.
    CopyIn,
    /// A copy from the device.
    CopyOut,
    /// A copy within the device.
    CopyWithin,
    /// Filling with zeros.
    Zero,
    /// A launch.
    Launch,
    /// Asking whether a stream is done.
    IsDone,
    /// Waiting for a stream.
    Wait,
    /// Making an event.
    Event,
    /// Adding an event to a stream.
    Record,
    /// Asking for the time between two events.
    Seconds,
}

impl Call {
    /// All of them.
    pub const ALL: [Call; 13] = [
        Call::Alloc,
        Call::AllocPinned,
        Call::Stream,
        Call::CopyIn,
        Call::CopyOut,
        Call::CopyWithin,
        Call::Zero,
        Call::Launch,
        Call::IsDone,
        Call::Wait,
        Call::Event,
        Call::Record,
        Call::Seconds,
    ];
}

/// A device without hardware. Clones are the same one.
#[derive(Clone)]
pub struct StandIn(Arc<Mutex<Inner>>);

/// What has been taken of a [`StandIn`] and not been given back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Pieces of device memory.
    pub device: usize,
    /// Pieces of page-locked memory.
    pub pinned: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
}

/// A line of page-locked memory, for its alignment.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code, reason = "it is memory")] [u8; 64]);

/// Host memory that work refers to.
#[derive(Clone, Copy, Debug)]
struct Host(*mut u8);

// SAFETY: it is dereferenced only while `Driver`'s callers promise that it may be, from
// whichever thread drives the stand-in.
unsafe impl Send for Host {}

#[derive(Debug)]
enum Command {
    In(Address, Host, usize),
    Out(Host, Address, usize),
    Within(Address, Address, usize),
    Zero(Address, usize),
    Launch(&'static str, u32, Vec<Arg>),
    Record(Handle),
}

struct Inner {
    random: u64,
    memory: BTreeMap<Address, Vec<u8>>,
    next_address: Address,
    pinned: BTreeMap<usize, (Host, usize)>,
    streams: BTreeMap<Handle, VecDeque<Command>>,
    /// When each event was.
    events: BTreeMap<Handle, Option<u64>>,
    next_handle: Handle,
    clock: u64,
    counts: BTreeMap<Call, usize>,
    fail: Option<(Call, usize, GpuError)>,
    lost: Option<GpuError>,
    /// Blocks of memory that were given back with something else than zeros in them.
    unclean: usize,
    kernels: Kernels,
}

/// What a launch does.
enum Kernels {
    /// What `lanes` does.
    Lanes,
    /// What the PTX says.
    Ptx(Arc<Module>),
    /// What `lanes` does, with one bit of each packet wrong.
    Spoilt,
    /// Nothing.
    Idle,
}

impl StandIn {
    /// One whose order is that of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random: seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            memory: BTreeMap::new(),
            next_address: 1 << 32,
            pinned: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            next_handle: 1,
            clock: 0,
            counts: BTreeMap::new(),
            fail: None,
            lost: None,
            unclean: 0,
            kernels: Kernels::Lanes,
        })))
    }

    /// One that executes the PTX that ships, which is far slower.
    ///
    /// # Panics
    ///
    /// If that cannot be parsed.
    #[must_use]
    pub fn with_ptx(seed: u64) -> Self {
        static MODULE: OnceLock<Arc<Module>> = OnceLock::new();
        let parse = || Arc::new(Module::parse(PTX).expect("the PTX that ships"));
        let stand_in = Self::new(seed);
        stand_in.lock().kernels = Kernels::Ptx(MODULE.get_or_init(parse).clone());
        stand_in
    }

    /// Lets the `at`th call of this kind from now on fail, counted from 0. A lack of memory
    /// passes; after any other error every call fails, and what waited is done in part or
    /// not at all.
    pub fn fail(&self, call: Call, at: usize, error: GpuError) {
        let mut inner = self.lock();
        let at = at + inner.counts.get(&call).copied().unwrap_or(0);
        inner.fail = Some((call, at, error));
    }

    /// Lets kernels do nothing from now on, and nobody say so.
    pub fn idle(&self) {
        self.lock().kernels = Kernels::Idle;
    }

    /// Lets kernels get a bit of each packet wrong from now on, and nobody say so.
    pub fn spoil(&self) {
        self.lock().kernels = Kernels::Spoilt;
    }

    /// How many calls of a kind there have been.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// What is held of it.
    #[must_use]
    pub fn held(&self) -> Held {
        let inner = self.lock();
        Held {
            device: inner.memory.len(),
            pinned: inner.pinned.len(),
            streams: inner.streams.len(),
            events: inner.events.len(),
        }
    }

    /// Whether any of these secrets, of which 16 bytes are looked for, lies anywhere in its
    /// device memory.
    #[must_use]
    pub fn device_has(&self, secrets: &[Vec<u8>]) -> bool {
        let inner = self.lock();
        inner.memory.values().any(|memory| has(memory, secrets))
    }

    /// The same of its page-locked memory.
    ///
    /// # Panics
    ///
    /// If work waits that may write it.
    #[must_use]
    pub fn pinned_has(&self, secrets: &[Vec<u8>]) -> bool {
        let inner = self.lock();
        assert!(inner.lost.is_some() || inner.streams.values().all(VecDeque::is_empty));
        inner.pinned.values().any(|&(host, len)| {
            // SAFETY: it has so many bytes, and its holder does not write them while a test
            // asks.
            has(unsafe { core::slice::from_raw_parts(host.0, len) }, secrets)
        })
    }

    /// How many blocks of device memory were given back with something else than zeros in
    /// them while the device was there.
    #[must_use]
    pub fn unclean(&self) -> usize {
        self.lock().unclean
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether 16 bytes of one of `secrets` lie in `memory`, most of which is zeros.
fn has(memory: &[u8], secrets: &[Vec<u8>]) -> bool {
    const STEP: usize = 256;
    let first = |bytes: &[u8]| usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let mut begins = vec![false; 1 << 16];
    secrets
        .iter()
        .for_each(|secret| begins[first(secret)] = true);
    (0..memory.len()).step_by(STEP).any(|start| {
        let end = (start + STEP).min(memory.len());
        if memory[start..end].iter().all(|&byte| byte == 0) {
            return false;
        }
        // Those that end in this step, or begin in it.
        let around = &memory[start.saturating_sub(15)..(end + 15).min(memory.len())];
        around.windows(16).any(|window| {
            begins[first(window)] && secrets.iter().any(|secret| secret[..16] == *window)
        })
    })
}

impl Inner {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 16) % bound as u64) as usize
    }

    /// Counts a call, and lets it fail if it is to.
    fn call(&mut self, call: Call) -> Result<(), GpuError> {
        let count = self.counts.entry(call).or_default();
        let at = *count;
        *count += 1;
        if let Some(error) = &self.lost {
            return Err(error.clone());
        }
        match &self.fail {
            Some((which, when, error)) if (*which, *when) == (call, at) => {
                let error = error.clone();
                if error.is_final() {
                    for _ in 0..self.below(12) {
                        self.step();
                    }
                    self.streams.values_mut().for_each(VecDeque::clear);
                    self.lost = Some(error.clone());
                }
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Lets some stream that has work do a step of it.
    fn step(&mut self) {
        let busy = self.streams.iter().filter(|(_, work)| !work.is_empty());
        let busy: Vec<Handle> = busy.map(|(&handle, _)| handle).collect();
        if busy.is_empty() {
            return;
        }
        let stream = busy[self.below(busy.len())];
        let work = self.streams.get_mut(&stream).and_then(VecDeque::pop_front);
        let work = work.expect("it has some");
        self.clock += 1;
        // A part of a copy, sometimes.
        let part = |inner: &mut Self, len: usize| match inner.below(3) {
            0 if len > 1 => 1 + inner.below(len - 1),
            _ => len,
        };
        let rest = match work {
            Command::In(to, from, len) => {
                let part = part(self, len);
                // SAFETY: `copy_in`'s caller promises that it may be read until the stream
                // is done.
                let bytes = unsafe { core::slice::from_raw_parts(from.0, part) };
                self.device(to, part).copy_from_slice(bytes);
                let from = Host(from.0.wrapping_add(part));
                (part < len).then_some(Command::In(to + part as u64, from, len - part))
            }
            Command::Out(to, from, len) => {
                let part = part(self, len);
                let bytes = self.device(from, part);
                // SAFETY: `copy_out`'s caller promises that it may be written until the
                // stream is done.
                unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to.0, part) };
                let to = Host(to.0.wrapping_add(part));
                (part < len).then_some(Command::Out(to, from + part as u64, len - part))
            }
            Command::Within(to, from, len) => {
                let bytes = self.device(from, len).to_vec();
                self.device(to, len).copy_from_slice(&bytes);
                None
            }
            Command::Zero(at, len) => {
                self.device(at, len).fill(0);
                None
            }
            Command::Launch(entry, blocks, args) => {
                match &self.kernels {
                    Kernels::Lanes | Kernels::Spoilt => self.launch(entry, blocks, &args),
                    Kernels::Ptx(module) => self.launch_ptx(&module.clone(), entry, blocks, &args),
                    Kernels::Idle => {}
                }
                None
            }
            Command::Record(event) => {
                let clock = self.clock;
                self.events.insert(event, Some(clock));
                None
            }
        };
        if let Some(rest) = rest {
            let work = self.streams.get_mut(&stream).expect("it is there");
            work.push_front(rest);
        }
    }

    fn add(&mut self, stream: Handle, work: Command) {
        let stream = self.streams.get_mut(&stream).expect("a stream");
        stream.push_back(work);
    }

    fn device(&mut self, at: Address, len: usize) -> &mut [u8] {
        let found = self.memory.range_mut(..=at).next_back();
        let (start, memory) = found.expect("an address of device memory");
        let offset = (at - start) as usize;
        memory
            .get_mut(offset..offset + len)
            .unwrap_or_else(|| panic!("{len} bytes at {at:#x}: beyond the end of their memory"))
    }

    fn word(&mut self, at: Address) -> u32 {
        let bytes = self.device(at, 4);
        u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    }

    /// Executes PTX on the one block of memory that a launch is about.
    fn launch_ptx(&mut self, module: &Module, entry: &str, blocks: u32, args: &[Arg]) {
        let first = match args[0] {
            Arg::Pointer(at) => at,
            Arg::U32(_) => panic!("the first parameter of {entry} is a pointer"),
        };
        let found = self.memory.range(..=first).next_back();
        let (start, bytes) = found.expect("an address of device memory");
        let (start, len) = (*start, bytes.len());
        let mut memory = Memory::new();
        let at = memory.alloc(len);
        memory.write(at, bytes).expect("as long");
        let params: Vec<u64> = args
            .iter()
            .map(|arg| match *arg {
                Arg::Pointer(pointer) => at + pointer - start,
                Arg::U32(number) => number.into(),
            })
            .collect();
        let order = Order::Permuted(self.below(1 << 20) as u64);
        let launched = module.launch(entry, blocks, BLOCK_THREADS, &params, &mut memory, order);
        if let Err(fault) = launched {
            panic!("{entry}: {fault}");
        }
        let bytes = self.device(start, len);
        memory.read(at, bytes).expect("as long");
    }

    /// What the kernel `entry` does.
    fn launch(&mut self, entry: &str, blocks: u32, args: &[Arg]) {
        let pointer = |index: usize| match args[index] {
            Arg::Pointer(at) => at,
            Arg::U32(_) => panic!("parameter {index} of {entry} is a pointer"),
        };
        let number = |index: usize| match args[index] {
            Arg::U32(number) => number,
            Arg::Pointer(_) => panic!("parameter {index} of {entry} is a number"),
        };
        let (bytes, packets, keys, verdicts) = (pointer(0), pointer(1), pointer(2), pointer(4));
        let count = number(3);
        let threads = blocks * BLOCK_THREADS;
        let packets = |packet: u32| packets + u64::from(packet) * PACKET_LEN as u64;
        let verdict = |packet: u32| verdicts + u64::from(packet);
        let (op, way) = entry.split_once('_').expect("two words");
        if let Ok(each) = way.parse::<u32>() {
            assert_eq!(args.len(), 5);
            assert!(count > 0 && threads >= count * each && threads - count * each < BLOCK_THREADS);
            for packet in 0..count {
                let right = self.packet(op, bytes, packets(packet), keys, true);
                self.device(verdict(packet), 1)[0] = u8::from(right);
            }
            return;
        }
        assert_eq!(args.len(), 8);
        let (chunks, chunk_count, partial) = (pointer(5), number(6), pointer(7));
        assert!(threads >= 32 * chunk_count && threads - 32 * chunk_count < BLOCK_THREADS);
        let mut chunk = 0;
        for packet in 0..count {
            let len = self.word(packets(packet) + 4);
            for number in 0..len.div_ceil(CHUNK_TEXT).max(1) {
                let at = chunks + (chunk * CHUNK_LEN) as u64;
                assert_eq!(self.word(at), packet);
                assert_eq!(self.word(at + 4), number * CHUNK_TEXT);
                if way == "chunks" {
                    // As secret as the key.
                    let entry = u64::from(self.word(packets(packet) + 8));
                    let key = self
                        .device(keys + entry * KEY_LEN as u64, PARTIAL_LEN)
                        .to_vec();
                    let at = partial + (chunk * PARTIAL_LEN) as u64;
                    self.device(at, PARTIAL_LEN).copy_from_slice(&key);
                }
                chunk += 1;
            }
            let right = match (op, way) {
                ("seal", "combine") => self.packet(op, bytes, packets(packet), keys, true),
                ("open", "combine") => self.packet(op, bytes, packets(packet), keys, false),
                ("open", "decrypt") if self.device(verdict(packet), 1)[0] == 1 => {
                    assert!(self.packet(op, bytes, packets(packet), keys, true));
                    continue;
                }
                _ => continue,
            };
            self.device(verdict(packet), 1)[0] = u8::from(right);
        }
        assert_eq!(chunk, chunk_count as usize);
    }

    /// Seals or opens one packet, and writes what comes out if it is to. Says whether it is
    /// right.
    fn packet(
        &mut self,
        op: &str,
        bytes: Address,
        at: Address,
        keys: Address,
        write: bool,
    ) -> bool {
        let [text, text_len, entry, counter] = [0, 4, 8, 12].map(|offset| self.word(at + offset));
        let entry = keys + u64::from(entry) * KEY_LEN as u64;
        let key: [u8; 32] = self.device(entry, 32).try_into().expect("32 bytes");
        let mut nonce = [0; 12];
        nonce[..4].copy_from_slice(&counter.to_le_bytes());
        nonce[4..].copy_from_slice(self.device(entry + 32, 8));
        let [aad, aad_len] = [40, 44].map(|offset| self.word(entry + offset));
        let len = text_len as usize + TAG_LEN;
        let mut packet = self.device(bytes + u64::from(text), len).to_vec();
        packet.extend_from_slice(self.device(bytes + u64::from(aad), aad_len as usize));
        let job = Job {
            text_len,
            aad: text_len + TAG_LEN as u32,
            aad_len,
            nonce,
            ..Job::default()
        };
        let run = match op {
            "seal" => Backend::seal,
            "open" => Backend::open,
            _ => panic!("no kernel of ours"),
        };
        let keys = [key];
        let mut outcome = [Outcome::Pending];
        run(
            Backend::Portable,
            Work {
                bytes: &mut packet,
                secrets: Secrets::from(&keys[..]),
                jobs: &[job],
                outcomes: &mut outcome,
            },
        );
        if write && outcome[0] != Outcome::BadTag {
            packet[0] ^= u8::from(matches!(self.kernels, Kernels::Spoilt));
            self.device(bytes + u64::from(text), len)
                .copy_from_slice(&packet[..len]);
        }
        outcome[0] != Outcome::BadTag
    }

    /// Whether work waits that refers to memory of `len` bytes at `start`, on either side.
    fn is_used(&self, start: usize, len: usize, device: bool) -> bool {
        let within = |at: usize| (start..start + len).contains(&at);
        let address = |at: &Address| device && within(*at as usize);
        let host = |host: &Host| !device && within(host.0.addr());
        let mut waiting = self.streams.values().flatten();
        waiting.any(|work| match work {
            Command::In(to, from, _) => address(to) || host(from),
            Command::Out(to, from, _) => host(to) || address(from),
            Command::Within(to, from, _) => address(to) || address(from),
            Command::Zero(at, _) => address(at),
            Command::Launch(_, _, args) => args
                .iter()
                .any(|arg| matches!(arg, Arg::Pointer(at) if address(at))),
            Command::Record(_) => false,
        })
    }
}

// SAFETY: page-locked memory is a zeroed allocation of its own. A stream is done when
// nothing of it waits: a copy that is done in part waits, and after a loss nothing does.
unsafe impl Driver for StandIn {
    fn name(&self) -> String {
        "stand-in".to_owned()
    }

    fn memory(&self) -> Result<(usize, usize), GpuError> {
        match &self.lock().lost {
            Some(error) => Err(error.clone()),
            None => Ok((1 << 30, 1 << 31)),
        }
    }

    fn processors(&self) -> Option<Processors> {
        Some(Processors {
            count: 2,
            hertz: 1e9,
        })
    }

    fn alloc(&self, len: usize) -> Result<Address, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Alloc)?;
        let at = inner.next_address;
        inner.next_address += (len as u64).next_multiple_of(256) + 256;
        inner.memory.insert(at, vec![0; len]);
        Ok(at)
    }

    unsafe fn free(&self, at: Address) {
        let mut inner = self.lock();
        let memory = inner.memory.remove(&at).expect("it was taken");
        assert!(
            !inner.is_used(at as usize, memory.len(), true),
            "work waits that uses it"
        );
        let clean = memory.iter().all(|&byte| byte == 0);
        inner.unclean += usize::from(!clean && inner.lost.is_none());
    }

    fn alloc_pinned(&self, len: usize) -> Result<NonNull<u8>, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::AllocPinned)?;
        let lines = vec![Line([0; 64]); len.div_ceil(64).max(1)].into_boxed_slice();
        let at = Box::into_raw(lines).cast::<u8>();
        inner.pinned.insert(at.addr(), (Host(at), len));
        Ok(NonNull::new(at).expect("a box"))
    }

    unsafe fn free_pinned(&self, at: NonNull<u8>) {
        let mut inner = self.lock();
        let (host, len) = inner.pinned.remove(&at.addr().get()).expect("it was taken");
        assert!(
            !inner.is_used(host.0.addr(), len, false),
            "work waits that uses it"
        );
        let lines =
            core::ptr::slice_from_raw_parts_mut(host.0.cast::<Line>(), len.div_ceil(64).max(1));
        // SAFETY: it was made of such a box, and its holder gives it back.
        drop(unsafe { Box::from_raw(lines) });
    }

    fn stream(&self) -> Result<Handle, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Stream)?;
        inner.next_handle += 1;
        let handle = inner.next_handle;
        inner.streams.insert(handle, VecDeque::new());
        Ok(handle)
    }

    unsafe fn free_stream(&self, stream: Handle) {
        let work = self.lock().streams.remove(&stream).expect("a stream");
        assert!(work.is_empty(), "work waits in it");
    }

    unsafe fn copy_in(
        &self,
        stream: Handle,
        to: Address,
        from: *const u8,
        len: usize,
    ) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::CopyIn)?;
        inner.add(stream, Command::In(to, Host(from.cast_mut()), len));
        Ok(())
    }

    unsafe fn copy_out(
        &self,
        stream: Handle,
        to: *mut u8,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::CopyOut)?;
        inner.add(stream, Command::Out(Host(to), from, len));
        Ok(())
    }

    unsafe fn copy_within(
        &self,
        stream: Handle,
        to: Address,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::CopyWithin)?;
        inner.add(stream, Command::Within(to, from, len));
        Ok(())
    }

    unsafe fn zero(&self, stream: Handle, at: Address, len: usize) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Zero)?;
        inner.add(stream, Command::Zero(at, len));
        Ok(())
    }

    unsafe fn launch(
        &self,
        stream: Handle,
        entry: &'static str,
        blocks: u32,
        args: &[Arg],
    ) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Launch)?;
        inner.add(stream, Command::Launch(entry, blocks, args.to_vec()));
        Ok(())
    }

    unsafe fn is_done(&self, stream: Handle) -> Result<bool, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::IsDone)?;
        for _ in 0..inner.below(4) {
            inner.step();
        }
        Ok(inner.streams[&stream].is_empty())
    }

    unsafe fn wait(&self, stream: Handle) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Wait)?;
        while !inner.streams[&stream].is_empty() {
            inner.step();
        }
        Ok(())
    }

    fn event(&self) -> Result<Handle, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Event)?;
        inner.next_handle += 1;
        let handle = inner.next_handle;
        inner.events.insert(handle, None);
        Ok(handle)
    }

    unsafe fn free_event(&self, event: Handle) {
        self.lock().events.remove(&event).expect("an event");
    }

    unsafe fn record(&self, stream: Handle, event: Handle) -> Result<(), GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Record)?;
        inner.add(stream, Command::Record(event));
        Ok(())
    }

    unsafe fn seconds(&self, from: Handle, to: Handle) -> Result<f64, GpuError> {
        let mut inner = self.lock();
        inner.call(Call::Seconds)?;
        let [from, to] = [from, to].map(|event| inner.events[&event].expect("it has been"));
        Ok((to - from) as f64 * 1e-6)
    }
}
