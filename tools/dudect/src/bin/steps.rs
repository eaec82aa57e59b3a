//! Executes kernels one instruction at a time (ptrace), each with two secrets, and compares the
//! addresses of all instructions and of all memory that they access. Covers AVX-512, which valgrind does
//! not support.
//!
//! `steps` runs all kernels on the AVX-512 backends of this CPU, and exits with status 77 if there are
//! none; `steps BACKEND [KERNEL...]` runs others.

use dudect::{BATCH, GcmPackets, LOCKSTEP, LONG, Packets, secret_keys};
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, raise};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use packetlane_lanes::{AesKey, Backend, MAX_KEY_LANES, PublicKey};
use std::collections::HashMap;
use std::error::Error;
use std::hint::black_box;
use std::io::Read as _;
use std::process::{Command, ExitCode, Stdio};

/// What is run. The last two leak, and must be found.
const KERNELS: [&str; 15] = [
    "seal",
    "open",
    "seal-lockstep",
    "open-lockstep",
    "seal-long",
    "open-long",
    "chacha20",
    "poly1305",
    "gcm-seal",
    "gcm-open",
    "aes-masks",
    "public-keys",
    "shared-x",
    "planted-branch",
    "planted-index",
];

/// Bytes of a secret: enough for every kernel.
const SECRET_LEN: usize = 20_000;

/// Stands for addresses in a vector register, which is not read: of a gather or a scatter.
const UNSEEN: u64 = u64::MAX;

type Failed = Box<dyn Error>;

/// The call of a kernel with a secret.
fn prepare(backend: Backend, kernel: &str, secret: &[u8]) -> Box<dyn FnMut()> {
    let kernels = backend.kernels();
    let packets = |shape, is_sealed| {
        let mut packets = Packets::new(shape);
        packets.fill(secret);
        if is_sealed {
            packets.seal(backend);
        }
        packets
    };
    let gcm = |is_sealed| {
        let mut packets = GcmPackets::new(LONG);
        packets.fill(secret);
        if is_sealed {
            packets.seal(backend);
        }
        packets
    };
    let seal = |shape| -> Box<dyn FnMut()> {
        let mut packets = packets(shape, false);
        Box::new(move || packets.seal(backend))
    };
    let open = |shape| -> Box<dyn FnMut()> {
        let mut packets = packets(shape, true);
        Box::new(move || packets.open(backend))
    };
    let (key, rest) = secret.split_first_chunk().expect("longer than a key");
    let (key, mut text) = (*key, rest[..1024].to_vec());
    match kernel {
        "seal" => seal(BATCH),
        "open" => open(BATCH),
        "seal-lockstep" => seal(LOCKSTEP),
        "open-lockstep" => open(LOCKSTEP),
        "seal-long" => seal(LONG),
        "open-long" => open(LONG),
        "chacha20" => Box::new(move || kernels.chacha20(&key, &[1; 12], 0, &mut text)),
        "poly1305" => Box::new(move || {
            black_box(kernels.poly1305(&key, &text));
        }),
        "gcm-seal" => {
            let mut packets = gcm(false);
            Box::new(move || packets.seal(backend))
        }
        "gcm-open" => {
            let mut packets = gcm(true);
            Box::new(move || packets.open(backend))
        }
        "aes-masks" => {
            let key = AesKey::aes256(&key);
            Box::new(move || kernels.aes_masks(&[0x5a; 16], &[&key], &[(0, 0); 16], &mut [0; 16]))
        }
        "public-keys" => {
            let keys = secret_keys(secret);
            Box::new(move || {
                let mut public = [PublicKey::default(); MAX_KEY_LANES];
                kernels.public_keys(&keys.each_ref(), &mut public);
                black_box(public);
            })
        }
        "shared-x" => {
            let keys = secret_keys(secret);
            Box::new(move || {
                let mut shared = [[0; 32]; MAX_KEY_LANES];
                kernels.shared_x(&keys.each_ref(), &[&[0x5a; 64]; MAX_KEY_LANES], &mut shared);
                black_box(shared);
            })
        }
        "planted-branch" => Box::new(move || {
            if black_box(key[0]) & 1 == 1 {
                black_box(key[1]);
            }
        }),
        _ => Box::new(move || {
            let table = black_box([1_u8; 256]);
            black_box(table[usize::from(black_box(key[0]))]);
        }),
    }
}

/// The process that is executed in steps: from its first signal to its second.
fn run(backend: Backend, kernel: &str, secret: usize) -> Result<(), Failed> {
    // Until the other process is attached.
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let mut bytes = vec![0; SECRET_LEN];
    if secret == 1 {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        for byte in &mut bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8 | 1;
        }
    }
    // What is computed only once.
    prepare(backend, kernel, &[7; SECRET_LEN])();
    let mut call = prepare(backend, kernel, &bytes);
    raise(Signal::SIGUSR1)?;
    call();
    raise(Signal::SIGUSR1)?;
    Ok(())
}

/// The addresses of all instructions that it executes between its signals, each followed by those of
/// the memory that the instruction accesses.
fn addresses(backend: Backend, kernel: &str, secret: usize) -> Result<Vec<u64>, Failed> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["run", &format!("{backend:?}"), kernel, &secret.to_string()])
        .stdin(Stdio::piped())
        .spawn()?;
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    ptrace::seize(pid, ptrace::Options::PTRACE_O_EXITKILL)?;
    // Whether it has done a step; otherwise it has raised its signal.
    let wait = || match waitpid(pid, None)? {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => Ok(true),
        WaitStatus::Stopped(_, Signal::SIGUSR1) => Ok(false),
        other => Err(Failed::from(format!("{kernel}: {other:?}"))),
    };
    drop(child.stdin.take());
    if wait()? {
        return Err(format!("{kernel}: a step before the first signal").into());
    }
    let mut known = HashMap::new();
    let mut addresses = Vec::new();
    loop {
        let registers = ptrace::getregs(pid)?;
        let at = registers.rip;
        let instruction = match known.get(&at) {
            Some(known) => *known,
            None => {
                let mut code = Vec::new();
                for word in [0, 8] {
                    let address = at + word;
                    code.extend(ptrace::read(pid, address as ptrace::AddressType)?.to_le_bytes());
                }
                let mut decoder = Decoder::with_ip(64, &code, at, DecoderOptions::NONE);
                *known.entry(at).or_insert(decoder.decode())
            }
        };
        addresses.push(at);
        accessed(&instruction, &registers, &mut addresses);
        ptrace::step(pid, None)?;
        if !wait()? {
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(addresses)
}

/// Appends the addresses of the memory that an instruction accesses.
fn accessed(
    instruction: &Instruction,
    registers: &nix::libc::user_regs_struct,
    addresses: &mut Vec<u64>,
) {
    if matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) {
        return;
    }
    for operand in 0..instruction.op_count() {
        let is_memory = matches!(
            instruction.op_kind(operand),
            OpKind::Memory | OpKind::MemorySegRSI | OpKind::MemoryESRDI
        );
        if !is_memory {
            continue;
        }
        let value = |register: Register, _, _| {
            Some(match register {
                Register::RAX => registers.rax,
                Register::RBX => registers.rbx,
                Register::RCX => registers.rcx,
                Register::RDX => registers.rdx,
                Register::RSI => registers.rsi,
                Register::RDI => registers.rdi,
                Register::RBP => registers.rbp,
                Register::RSP => registers.rsp,
                Register::R8 => registers.r8,
                Register::R9 => registers.r9,
                Register::R10 => registers.r10,
                Register::R11 => registers.r11,
                Register::R12 => registers.r12,
                Register::R13 => registers.r13,
                Register::R14 => registers.r14,
                Register::R15 => registers.r15,
                Register::FS => registers.fs_base,
                Register::GS => registers.gs_base,
                Register::CS | Register::DS | Register::ES | Register::SS => 0,
                // A vector of addresses.
                _ => return None,
            })
        };
        addresses.push(
            instruction
                .virtual_address(operand, 0, value)
                .unwrap_or(UNSEEN),
        );
    }
}

fn check(backend: Backend, kernels: &[&str]) -> Result<bool, Failed> {
    let mut is_well = true;
    for kernel in kernels {
        let [first, second] = [0, 1].map(|secret| addresses(backend, kernel, secret));
        let (first, second) = (first?, second?);
        let different = first.iter().zip(&second).position(|(a, b)| a != b);
        let is_alike = different.is_none() && first.len() == second.len();
        match (is_alike, kernel.starts_with("planted")) {
            (true, false) => {
                let unseen = first.iter().filter(|address| **address == UNSEEN).count();
                let seen = first.len() - unseen;
                println!(
                    "{backend:?} {kernel}: {seen} addresses alike, {unseen} vectors of them not seen"
                );
            }
            (false, true) => println!("{backend:?} {kernel}: found"),
            (true, true) => {
                is_well = false;
                println!("{backend:?} {kernel}: NOT FOUND");
            }
            (false, false) => {
                is_well = false;
                let place = different.unwrap_or(first.len().min(second.len()));
                let before = first[place.saturating_sub(1)];
                println!(
                    "{backend:?} {kernel}: DIFFERENT after {place} addresses, near {before:#x}"
                );
            }
        }
    }
    Ok(is_well)
}

fn find(name: &str) -> Result<Backend, Failed> {
    let all = Backend::ALL.iter().filter(|one| one.is_available());
    let mut all = all.copied();
    let found = all.find(|backend| format!("{backend:?}") == name);
    found.ok_or_else(|| format!("this CPU has no backend {name}").into())
}

fn main() -> Result<ExitCode, Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [run_it, backend, kernel, secret] = &arguments[..]
        && run_it == "run"
    {
        run(find(backend)?, kernel, secret.parse()?)?;
        return Ok(ExitCode::SUCCESS);
    }
    // The same addresses in all processes.
    personality::set(personality::get()? | Persona::ADDR_NO_RANDOMIZE)?;
    let mut is_well = true;
    if let [backend, kernels @ ..] = &arguments[..] {
        let kernels: Vec<&str> = match kernels {
            [] => KERNELS.to_vec(),
            some => some.iter().map(String::as_str).collect(),
        };
        is_well = check(find(backend)?, &kernels)?;
    } else {
        let all = [Backend::Avx512, Backend::Avx512Ifma];
        let backends: Vec<_> = all.iter().filter(|one| one.is_available()).collect();
        if backends.is_empty() {
            println!("this CPU has no AVX-512");
            return Ok(ExitCode::from(77));
        }
        for backend in backends {
            is_well &= check(*backend, &KERNELS)?;
        }
    }
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
