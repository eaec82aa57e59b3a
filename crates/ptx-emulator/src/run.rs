//! Runs a launch of a kernel: blocks and warps one at a time, and each thread of a warp up to its
//! next shuffle.

use std::fmt;

use crate::memory::{AccessError, Memory, mix};
use crate::parse::{Binary, Compare, Kernel, Module, Op, Place, Special, Width, cut};

/// The order in which blocks, warps and threads run between two shuffles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// In ascending order.
    Forward,
    /// In descending order.
    Reversed,
    /// In a new random order each time, from a seed.
    Permuted(u64),
}

/// Why a launch ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The module has no entry of this name.
    NoSuchEntry,
    /// The number of parameters is wrong, or one has the wrong size.
    Parameters,
    /// A block has no threads or more than the entry allows, or the launch has too many.
    Threads,
    /// An instruction reads a register that was never written.
    UninitialisedRegister,
    /// A load or store failed at this address.
    Access(AccessError, u64),
    /// Not all threads of the warp reach the same shuffle.
    Divergent,
    /// A shuffle whose mask does not include all threads of the warp.
    Members(u32),
    /// A thread executed more than 2^30 instructions.
    Endless,
}

/// A launch that failed. Bytes written before that stay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Why it failed.
    pub cause: Cause,
    /// The line in the module, from 1; 0 if the launch did not start.
    pub line: usize,
    /// The instruction.
    pub instruction: String,
    /// The index of the thread in the launch.
    pub thread: u32,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "line {}, thread {}: {}: ",
            self.line, self.thread, self.instruction
        )?;
        match &self.cause {
            Cause::NoSuchEntry => write!(f, "the module has no entry of this name"),
            Cause::Parameters => write!(f, "the parameters do not match the entry's"),
            Cause::Threads => write!(f, "the entry does not allow this number of threads"),
            Cause::UninitialisedRegister => write!(f, "reads a register that was never written"),
            Cause::Access(why, address) => write!(f, "address {address:#x} is {why}"),
            Cause::Divergent => write!(f, "not all threads of the warp reach this shuffle"),
            Cause::Members(mask) => {
                write!(f, "the shuffle's mask is {mask:#x}, not the whole warp")
            }
            Cause::Endless => write!(f, "the thread executed more than 2^30 instructions"),
        }
    }
}

impl std::error::Error for Fault {}

const WARP: u32 = 32;
/// A thread that has executed this many instructions is considered endless.
const MAX_STEPS: u64 = 1 << 30;
/// The content of a register that was never written. A value equal to it by chance (1 in 2^64)
/// is mistaken for it.
const NEVER: u64 = 0x5bd1_e995_9ac7_f04d;

#[inline(always)]
fn sign_extended(value: u64, width: Width) -> i64 {
    match width {
        Width::Pred => value as i64,
        Width::B16 => value as i16 as i64,
        Width::B32 => value as i32 as i64,
        Width::B64 => value as i64,
    }
}

/// Why a thread stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Shuffle,
    End,
}

struct Thread {
    /// Its index in the launch; the next field is that in its block.
    index: u32,
    tid: u32,
    pc: usize,
    carry: bool,
    steps: u64,
    /// Digest of its branches and addresses.
    trace: u64,
    values: Vec<u64>,
}

struct Launch<'a> {
    kernel: &'a Kernel,
    params: &'a [u64],
    block: u32,
    /// The number of thread 0 in `Memory`.
    first_number: u32,
}

impl Module {
    /// Launches an entry with `grid` blocks of `block` threads, a multiple of 32. Returns the
    /// total number of instructions executed.
    pub fn launch(
        &self,
        entry: &str,
        grid: u32,
        block: u32,
        params: &[u64],
        memory: &mut Memory,
        order: Order,
    ) -> Result<u64, Fault> {
        let refused = |cause| Fault {
            cause,
            line: 0,
            instruction: entry.to_string(),
            thread: 0,
        };
        let kernel = self
            .kernels
            .get(entry)
            .ok_or_else(|| refused(Cause::NoSuchEntry))?;
        if params.len() != kernel.params.len()
            || params
                .iter()
                .zip(&kernel.params)
                .any(|(value, wide)| !wide && *value > u32::MAX as u64)
        {
            return Err(refused(Cause::Parameters));
        }
        let threads = grid
            .checked_mul(block)
            .filter(|threads| (1..u32::MAX - 4).contains(threads));
        let threads = threads.filter(|_| block.is_multiple_of(WARP) && block <= kernel.max_threads);
        let threads = threads.ok_or_else(|| refused(Cause::Threads))?;
        let launch = Launch {
            kernel,
            params,
            block,
            first_number: memory.begin_launch(threads) + 1,
        };

        let mut permuter = Permuter { order, state: 0 };
        if let Order::Permuted(seed) = order {
            permuter.state = seed;
        }
        let mut warp: Vec<Thread> = (0..WARP)
            .map(|_| Thread {
                index: 0,
                tid: 0,
                pc: 0,
                carry: false,
                steps: 0,
                trace: 0,
                values: Vec::new(),
            })
            .collect();
        let mut steps = 0;
        for b in permuter.permutation(grid) {
            for w in permuter.permutation(block / WARP) {
                for (lane, thread) in warp.iter_mut().enumerate() {
                    thread.tid = w * WARP + lane as u32;
                    thread.index = b * block + thread.tid;
                    thread.pc = 0;
                    thread.steps = 0;
                    thread.trace = 0;
                    thread.values.clear();
                    thread
                        .values
                        .resize(kernel.places - kernel.constants.len(), NEVER);
                    thread.values.extend_from_slice(&kernel.constants);
                }
                launch.warp(&mut warp, memory, &mut permuter)?;
                for thread in &warp {
                    memory.end_thread(thread.index, thread.trace);
                }
                steps += warp.iter().map(|thread| thread.steps).sum::<u64>();
            }
        }
        Ok(steps)
    }
}

impl Launch<'_> {
    fn warp(
        &self,
        warp: &mut [Thread],
        memory: &mut Memory,
        permuter: &mut Permuter,
    ) -> Result<(), Fault> {
        loop {
            let mut stops = [Stop::End; WARP as usize];
            for lane in permuter.permutation(WARP) {
                let thread = &mut warp[lane as usize];
                stops[lane as usize] = self
                    .thread(thread, memory)
                    .map_err(|cause| self.fault(thread, cause))?;
            }
            if stops.iter().all(|stop| *stop == Stop::End) {
                return Ok(());
            }
            let waiting = stops
                .iter()
                .position(|stop| *stop == Stop::Shuffle)
                .unwrap_or(0);
            let divergent = |i: usize| stops[i] != Stop::Shuffle || warp[i].pc != warp[waiting].pc;
            if (0..warp.len()).any(divergent) {
                return Err(self.fault(&warp[waiting], Cause::Divergent));
            }
            self.shuffle(warp)
                .map_err(|(lane, cause)| self.fault(&warp[lane], cause))?;
        }
    }

    fn fault(&self, thread: &Thread, cause: Cause) -> Fault {
        let (line, instruction) = self.kernel.lines[thread.pc].clone();
        Fault {
            cause,
            line,
            instruction,
            thread: thread.index,
        }
    }

    /// Exchanges the values of threads, all of which are at the same shuffle.
    fn shuffle(&self, warp: &mut [Thread]) -> Result<(), (usize, Cause)> {
        let Op::Shuffle {
            d,
            a,
            b,
            clamp,
            members,
        } = self.kernel.code[warp[0].pc]
        else {
            unreachable!("threads stop only at shuffles")
        };
        let mut results = [0; WARP as usize];
        for lane in 0..warp.len() {
            let get = |thread: &Thread, place| read(thread, place).map_err(|cause| (lane, cause));
            let mask = get(&warp[lane], members)? as u32;
            if mask != u32::MAX {
                return Err((lane, Cause::Members(mask)));
            }
            // Bits 8 to 12 of `clamp` mask the lane number's bits that stay; bits 0 to 4 are
            // the highest lane of the segment.
            let (from, clamp) = (
                get(&warp[lane], b)? as usize & 31,
                get(&warp[lane], clamp)? as usize,
            );
            let segment = clamp >> 8 & 31;
            let first = lane & segment;
            let source = first | (from & !segment);
            let in_range = source <= first | (clamp & 31 & !segment);
            results[lane] = get(&warp[if in_range { source } else { lane }], a)?;
        }
        for (thread, result) in warp.iter_mut().zip(results) {
            thread.values[d as usize] = result;
            thread.pc += 1;
        }
        Ok(())
    }

    /// Runs a thread to its next shuffle or to its end.
    fn thread(&self, thread: &mut Thread, memory: &mut Memory) -> Result<Stop, Cause> {
        let number = self.first_number + thread.index;
        let code = &self.kernel.code[..];
        loop {
            thread.steps += 1;
            if thread.steps > MAX_STEPS {
                return Err(Cause::Endless);
            }
            let (d, value) = match code[thread.pc] {
                Op::Binary { op, width, d, a, b } => {
                    let (a, b) = (read(thread, a)?, read(thread, b)?);
                    let bits = if width == Width::B64 { 64 } else { 32 };
                    let value = match op {
                        Binary::Add => a.wrapping_add(b),
                        Binary::Sub => a.wrapping_sub(b),
                        Binary::Mul => a.wrapping_mul(b),
                        Binary::And => a & b,
                        Binary::Or => a | b,
                        Binary::Xor => a ^ b,
                        // A shift by the width or more leaves no bits.
                        Binary::Shl => {
                            if b < bits {
                                a << b
                            } else {
                                0
                            }
                        }
                        Binary::Shr => {
                            if b < bits {
                                a >> b
                            } else {
                                0
                            }
                        }
                        Binary::Min => a.min(b),
                        Binary::Max => a.max(b),
                    };
                    (d, cut(value, width))
                }
                Op::Add {
                    carry_in,
                    carry_out,
                    d,
                    a,
                    b,
                } => {
                    let sum =
                        read(thread, a)? + read(thread, b)? + (carry_in && thread.carry) as u64;
                    if carry_out {
                        thread.carry = sum >> 32 != 0;
                    }
                    (d, sum as u32 as u64)
                }
                Op::Multiply { width, d, a, b, c } => {
                    let product = read(thread, a)?.wrapping_mul(read(thread, b)?);
                    (d, cut(product.wrapping_add(read(thread, c)?), width))
                }
                Op::Not { width, d, a } => (d, cut(!read(thread, a)?, width)),
                Op::Neg { width, d, a } => (d, cut(read(thread, a)?.wrapping_neg(), width)),
                Op::Rotate { d, a, b } => {
                    let by = read(thread, b)? as u32 & 31;
                    (d, (read(thread, a)? as u32).rotate_left(by) as u64)
                }
                Op::Funnel { d, a, b, c } => {
                    let words = read(thread, b)? << 32 | read(thread, a)?;
                    (d, (words >> read(thread, c)?.min(32)) as u32 as u64)
                }
                Op::Insert { d, a, b, from, len } => {
                    let (from, len) = (read(thread, from)? & 255, read(thread, len)? & 255);
                    let ones = if len < 64 { (1 << len) - 1 } else { u64::MAX };
                    let (ones, a) = if from < 64 {
                        (ones << from, read(thread, a)? << from)
                    } else {
                        (0, 0)
                    };
                    (d, read(thread, b)? & !ones | a & ones)
                }
                Op::Compare {
                    op,
                    signed,
                    width,
                    d,
                    a,
                    b,
                } => {
                    let (a, b) = (read(thread, a)?, read(thread, b)?);
                    let order = if signed {
                        sign_extended(a, width).cmp(&sign_extended(b, width))
                    } else {
                        a.cmp(&b)
                    };
                    let holds = match op {
                        Compare::Eq => order.is_eq(),
                        Compare::Ne => order.is_ne(),
                        Compare::Lt => order.is_lt(),
                        Compare::Le => order.is_le(),
                        Compare::Gt => order.is_gt(),
                        Compare::Ge => order.is_ge(),
                    };
                    (d, holds as u64)
                }
                Op::Select { d, a, b, p } => {
                    // Both are read, because a driver's compiler may evaluate either.
                    let (a, b) = (read(thread, a)?, read(thread, b)?);
                    (d, if read(thread, p)? != 0 { a } else { b })
                }
                Op::Move { width, d, a } => (d, cut(read(thread, a)?, width)),
                Op::Special { d, what } => (
                    d,
                    match what {
                        Special::Tid => thread.tid,
                        Special::Ntid => self.block,
                        Special::Ctaid => thread.index / self.block,
                    } as u64,
                ),
                Op::Param { d, index } => (d, self.params[index as usize]),
                Op::Load {
                    bytes,
                    count,
                    d,
                    address,
                    offset,
                } => {
                    let address = read(thread, address)?.wrapping_add_signed(offset as i64);
                    thread.trace = mix(thread.trace, address);
                    let failed = |why| Cause::Access(why, address);
                    let mut values = [0; 4];
                    match (bytes, count) {
                        (1, _) => {
                            values[0] = memory.load::<1>(number, address).map_err(failed)?[0] as u64
                        }
                        (8, _) => {
                            values[0] =
                                u64::from_le_bytes(memory.load(number, address).map_err(failed)?)
                        }
                        (_, 1) => words(
                            &mut values,
                            &memory.load::<4>(number, address).map_err(failed)?,
                        ),
                        (_, 2) => words(
                            &mut values,
                            &memory.load::<8>(number, address).map_err(failed)?,
                        ),
                        (..) => words(
                            &mut values,
                            &memory.load::<16>(number, address).map_err(failed)?,
                        ),
                    }
                    for (d, value) in d.iter().zip(values).take(count as usize) {
                        thread.values[*d as usize] = value;
                    }
                    thread.pc += 1;
                    continue;
                }
                Op::Store {
                    bytes,
                    count,
                    a,
                    address,
                    offset,
                } => {
                    let address = read(thread, address)?.wrapping_add_signed(offset as i64);
                    thread.trace = mix(thread.trace, address);
                    let mut quad = [0; 16];
                    for i in 0..count as usize {
                        let value = read(thread, a[i])?.to_le_bytes();
                        let bytes = bytes as usize;
                        quad[i * bytes..(i + 1) * bytes].copy_from_slice(&value[..bytes]);
                    }
                    let first = |n: usize| &quad[..n];
                    match bytes as usize * count as usize {
                        1 => memory.store::<1>(number, address, [quad[0]]),
                        4 => memory.store::<4>(
                            number,
                            address,
                            first(4).try_into().expect("4 bytes"),
                        ),
                        8 => memory.store::<8>(
                            number,
                            address,
                            first(8).try_into().expect("8 bytes"),
                        ),
                        _ => memory.store::<16>(number, address, quad),
                    }
                    .map_err(|why| Cause::Access(why, address))?;
                    thread.pc += 1;
                    continue;
                }
                Op::Branch { to } => {
                    thread.pc = to as usize;
                    continue;
                }
                Op::BranchIf { p, unless, to } => {
                    let taken = (read(thread, p)? != 0) != unless;
                    thread.trace = mix(thread.trace, taken as u64);
                    thread.pc = if taken { to as usize } else { thread.pc + 1 };
                    continue;
                }
                Op::Shuffle { .. } => return Ok(Stop::Shuffle),
                Op::Return => return Ok(Stop::End),
            };
            thread.values[d as usize] = value;
            thread.pc += 1;
        }
    }
}

#[inline(always)]
fn read(thread: &Thread, place: Place) -> Result<u64, Cause> {
    let value = thread.values[place as usize];
    if value == NEVER {
        Err(Cause::UninitialisedRegister)
    } else {
        Ok(value)
    }
}

#[inline(always)]
fn words(values: &mut [u64; 4], bytes: &[u8]) {
    for (value, word) in values.iter_mut().zip(bytes.chunks_exact(4)) {
        *value = u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as u64;
    }
}

/// Generates the permutations of a launch.
struct Permuter {
    order: Order,
    state: u64,
}

impl Permuter {
    fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (0..count).collect();
        match self.order {
            Order::Forward => {}
            Order::Reversed => numbers.reverse(),
            Order::Permuted(_) => {
                for i in (1..numbers.len()).rev() {
                    numbers.swap(i, (self.next() % (i as u64 + 1)) as usize);
                }
            }
        }
        numbers
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
