//! A device for tests that runs on the CPU, in a random order, and fails on demand.
//!
//! Commands do not run when they are queued. They stay in their stream until the host waits for the
//! stream or asks whether it is done. Then streams advance one step at a time, in pseudo-random
//! order; a copy may be half done when another stream advances. Code that relies on an order that
//! it did not ask for gets wrong bytes, the same ones for the same seed.
//!
//! Its kernels either compute with `lanes` what the descriptors in device memory specify, or
//! execute the shipped PTX with [`Module`], with threads in a permuted order.

#![allow(
    unsafe_code,
    reason = "it implements an unsafe trait, over raw pointers"
)]

use crate::{Memory, Module, Order};
use core::ptr::NonNull;
use packetlane_gpu::driver::{Address, Arg, BLOCK_THREADS, Driver, Handle, Processors};
use packetlane_gpu::{GpuError, PTX};
use packetlane_lanes::{Backend, Job, Outcome, TAG_LEN, Work};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

// The layout of the kernels' data in device memory, as in `packetlane.cu`: lengths in bytes of a
// packet's descriptor, a key entry, a chunk's descriptor, a chunk's partial result, and the text of
// a chunk. A device knows its kernels' layout, not the host's.
const PACKET_LEN: usize = 16;
const KEY_LEN: usize = 48;
const CHUNK_LEN: usize = 8;
const PARTIAL_LEN: usize = 24;
const CHUNK_TEXT: u32 = 255 * 64;

/// A call that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Call {
    /// Allocating device memory.
    Alloc,
    /// Allocating page-locked memory.
    AllocPinned,
    /// Creating a stream.
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
    /// Querying whether a stream is done.
    IsDone,
    /// Waiting for a stream.
    Wait,
    /// Creating an event.
    Event,
    /// Queueing an event in a stream.
    Record,
    /// Querying the time between two events.
    Seconds,
}

impl Call {
    /// All calls.
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

/// A device for tests. A clone is a handle to the same device.
#[derive(Clone)]
pub struct StandIn(Arc<Mutex<Inner>>);

/// The resources of a [`StandIn`] that were allocated and not freed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Allocations of device memory.
    pub device: usize,
    /// Allocations of page-locked memory.
    pub pinned: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
}

/// 64 bytes of page-locked memory, for the alignment.
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code, reason = "used as memory")] [u8; 64]);

/// Host memory that queued commands refer to.
#[derive(Clone, Copy, Debug)]
struct Host(*mut u8);

// SAFETY: The pointer is dereferenced only while the callers of `Driver` promise that it is
// valid, from whichever thread drives the device.
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
    /// When each event was recorded, if it was.
    events: BTreeMap<Handle, Option<u64>>,
    next_handle: Handle,
    clock: u64,
    counts: BTreeMap<Call, usize>,
    fail: Option<(Call, usize, GpuError)>,
    lost: Option<GpuError>,
    /// Number of allocations of device memory that held something other than zeros when freed.
    unclean: usize,
    kernels: Kernels,
}

/// The effect of a launch.
enum Kernels {
    /// Computes with `lanes`.
    Lanes,
    /// Executes the PTX.
    Ptx(Arc<Module>),
    /// Computes with `lanes`, but flips one bit of each packet.
    Spoilt,
    /// Nothing.
    Idle,
}

impl StandIn {
    /// A device whose order depends on `seed`.
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

    /// A device that executes the shipped PTX, which is far slower.
    ///
    /// # Panics
    ///
    /// If the PTX cannot be parsed.
    #[must_use]
    pub fn with_ptx(seed: u64) -> Self {
        static MODULE: OnceLock<Arc<Module>> = OnceLock::new();
        let parse = || Arc::new(Module::parse(PTX).expect("the shipped PTX is valid"));
        let stand_in = Self::new(seed);
        stand_in.lock().kernels = Kernels::Ptx(MODULE.get_or_init(parse).clone());
        stand_in
    }

    /// Makes a call of this kind fail: the `at`th from now, counted from 0. A lack of memory is
    /// temporary. After any other error every call fails, and queued commands are done in part
    /// or not at all.
    pub fn fail(&self, call: Call, at: usize, error: GpuError) {
        let mut inner = self.lock();
        let at = at + inner.counts.get(&call).copied().unwrap_or(0);
        inner.fail = Some((call, at, error));
    }

    /// From now on, kernels do nothing and report no error.
    pub fn idle(&self) {
        self.lock().kernels = Kernels::Idle;
    }

    /// From now on, kernels flip a bit of each packet and report no error.
    pub fn spoil(&self) {
        self.lock().kernels = Kernels::Spoilt;
    }

    /// The number of calls of this kind so far.
    #[must_use]
    pub fn count(&self, call: Call) -> usize {
        self.lock().counts.get(&call).copied().unwrap_or(0)
    }

    /// The resources that are allocated now.
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

    /// Whether device memory contains 16 consecutive bytes of any of these secrets.
    #[must_use]
    pub fn device_has(&self, secrets: &[Vec<u8>]) -> bool {
        let inner = self.lock();
        inner.memory.values().any(|memory| has(memory, secrets))
    }

    /// Whether page-locked memory contains 16 consecutive bytes of any of these secrets.
    ///
    /// # Panics
    ///
    /// If a queued command may write that memory.
    #[must_use]
    pub fn pinned_has(&self, secrets: &[Vec<u8>]) -> bool {
        let inner = self.lock();
        assert!(inner.lost.is_some() || inner.streams.values().all(VecDeque::is_empty));
        inner.pinned.values().any(|&(host, len)| {
            // SAFETY: The memory has `len` bytes, and its owner does not write them during this
            // call.
            has(unsafe { core::slice::from_raw_parts(host.0, len) }, secrets)
        })
    }

    /// How many allocations of device memory held something other than zeros when freed, not
    /// counting those freed after the device was lost.
    #[must_use]
    pub fn unclean(&self) -> usize {
        self.lock().unclean
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether `memory`, most of which is zeros, contains 16 consecutive bytes of one of `secrets`.
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
        // With the bytes around this step, for matches that cross its borders.
        let around = &memory[start.saturating_sub(15)..(end + 15).min(memory.len())];
        around.windows(16).any(|window| {
            begins[first(window)] && secrets.iter().any(|secret| secret[..16] == *window)
        })
    })
}

impl Inner {
    /// A random number below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        ((self.random >> 16) % bound as u64) as usize
    }

    /// Counts a call. Returns an error if it must fail.
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

    /// Advances a random stream that has commands by one step.
    fn step(&mut self) {
        let busy = self.streams.iter().filter(|(_, work)| !work.is_empty());
        let busy: Vec<Handle> = busy.map(|(&handle, _)| handle).collect();
        if busy.is_empty() {
            return;
        }
        let stream = busy[self.below(busy.len())];
        let work = self.streams.get_mut(&stream).and_then(VecDeque::pop_front);
        let work = work.expect("the stream has work");
        self.clock += 1;
        // Sometimes only part of a copy.
        let part = |inner: &mut Self, len: usize| match inner.below(3) {
            0 if len > 1 => 1 + inner.below(len - 1),
            _ => len,
        };
        let rest = match work {
            Command::In(to, from, len) => {
                let part = part(self, len);
                // SAFETY: `copy_in`'s caller promises that the source may be read until the
                // stream is done.
                let bytes = unsafe { core::slice::from_raw_parts(from.0, part) };
                self.device(to, part).copy_from_slice(bytes);
                let from = Host(from.0.wrapping_add(part));
                (part < len).then_some(Command::In(to + part as u64, from, len - part))
            }
            Command::Out(to, from, len) => {
                let part = part(self, len);
                let bytes = self.device(from, part);
                // SAFETY: `copy_out`'s caller promises that the destination may be written
                // until the stream is done.
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
            let work = self.streams.get_mut(&stream).expect("the stream exists");
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
            .unwrap_or_else(|| panic!("{len} bytes at {at:#x}: beyond the end of the allocation"))
    }

    fn word(&mut self, at: Address) -> u32 {
        let bytes = self.device(at, 4);
        u32::from_le_bytes(bytes.try_into().expect("4 bytes"))
    }

    /// Executes a PTX kernel on the one allocation that holds everything for a launch.
    fn launch_ptx(&mut self, module: &Module, entry: &str, blocks: u32, args: &[Arg]) {
        let first = match args[0] {
            Arg::Pointer(at) => at,
            Arg::U32(_) => panic!("the first parameter of {entry} is a pointer"),
        };
        let found = self.memory.range(..=first).next_back();
        let (start, bytes) = found.expect("an address of device memory");
        let (start, len) = (*start, bytes.len());
        let mut memory = Memory::default();
        let at = memory.alloc(len);
        memory.write(at, bytes).expect("the same length");
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
        memory.read(at, bytes).expect("the same length");
    }

    /// Computes with `lanes` what the kernel `entry` does.
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
        let (op, kind) = entry.split_once('_').expect("two words");
        if let Ok(each) = kind.parse::<u32>() {
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
                if kind == "chunks" {
                    // Partial results are as secret as the key.
                    let entry = u64::from(self.word(packets(packet) + 8));
                    let key = self
                        .device(keys + entry * KEY_LEN as u64, PARTIAL_LEN)
                        .to_vec();
                    let at = partial + (chunk * PARTIAL_LEN) as u64;
                    self.device(at, PARTIAL_LEN).copy_from_slice(&key);
                }
                chunk += 1;
            }
            let right = match (op, kind) {
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

    /// Seals or opens one packet, and writes the result if asked to. Returns whether the packet
    /// is authentic.
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
            "seal" => packetlane_lanes::Kernels::seal,
            "open" => packetlane_lanes::Kernels::open,
            _ => panic!("unknown kernel"),
        };
        let keys = [key];
        let mut outcome = [Outcome::Pending];
        run(
            Backend::Portable.kernels(),
            Work {
                bytes: &mut packet,
                keys: &keys[..],
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

    /// Whether a queued command uses the `len` bytes at `start`, in device memory or in host
    /// memory.
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

// SAFETY: Page-locked memory is a zeroed allocation of its own. A stream counts as done only
// when its queue is empty: a partly done copy is still in the queue, and a lost device runs
// nothing.
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
        let memory = inner.memory.remove(&at).expect("it was allocated");
        assert!(
            !inner.is_used(at as usize, memory.len(), true),
            "a queued command uses the memory"
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
        let (host, len) = inner
            .pinned
            .remove(&at.addr().get())
            .expect("it was allocated");
        assert!(
            !inner.is_used(host.0.addr(), len, false),
            "a queued command uses the memory"
        );
        let lines =
            core::ptr::slice_from_raw_parts_mut(host.0.cast::<Line>(), len.div_ceil(64).max(1));
        // SAFETY: The pointer came from such a box, and its owner frees it.
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
        assert!(work.is_empty(), "the stream has queued commands");
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
        let [from, to] =
            [from, to].map(|event| inner.events[&event].expect("the event was recorded"));
        Ok((to - from) as f64 * 1e-6)
    }
}
