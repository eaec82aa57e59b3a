//! What differs between CPUs: executables, the places of arguments, and where a function is probed.
//!
//! It is data, and the header of an executable says which to use, so that every machine can examine
//! the executables of both CPUs.

/// Where an argument is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A constant with this value.
    Constant(i64),
    /// In the register at this offset in the kernel's `pt_regs`.
    Register(u32),
    /// In memory, at this offset from the address in a register.
    Memory { register: u32, offset: i64 },
}

/// A CPU type.
#[derive(Debug)]
pub(super) struct Machine {
    /// Name for display.
    pub(super) name: &'static str,
    /// Its number in the header of an executable.
    pub(super) elf_number: u16,
    /// Relocation type of a pointer to a place in the same file.
    pub(super) relative: u64,
    /// If a function starts with this instruction, the probe is put after it.
    pub(super) skipped: Option<[u8; 4]>,
    /// Offset of the register with a function's second argument in the kernel's `pt_regs`.
    pub(super) second_argument: u32,
    /// Parses the place of a tracepoint's argument.
    pub(super) place: fn(&str) -> Option<Place>,
}

/// All CPU types.
pub(super) const MACHINES: [&Machine; 2] = [&X86_64, &AARCH64];

/// The CPU type of this program.
pub(super) const THIS: &Machine = match cfg!(target_arch = "aarch64") {
    true => &AARCH64,
    false => &X86_64,
};

/// x86-64.
///
/// A function compiled with Intel CET starts with `endbr64`. A probe on it makes the kernel
/// single-step it, which takes twenty times as long as a probe on the next instruction, usually a
/// `push`, which the kernel emulates.
pub(super) static X86_64: Machine = Machine {
    name: "x86-64",
    elf_number: 62,
    relative: 8,
    skipped: Some([0xf3, 0x0f, 0x1e, 0xfa]),
    second_argument: RSI,
    place: x86_64_place,
};

/// 64-bit ARM.
///
/// The probe is always on the first instruction. A probe at the return replaces the return address
/// in `x30` when this instruction is reached, so it must come before the function saves `x30`, and
/// before `paciasp` signs it: the function's `autiasp` rejects an address that was replaced
/// afterwards, and the node crashes at its first call (tried with Linux 6.1). Before `paciasp`, the
/// replaced address is signed like any other. `bti c` needs no exception: the CPU accepts the
/// probe's `brk` as the target of a call, and skipping it would save nothing, since the kernel
/// single-steps whatever a function starts with. It emulates only branches and loads relative to
/// the program counter, and from Linux 6.13 on `nop`, the instruction of tracepoints.
pub(super) static AARCH64: Machine = Machine {
    name: "64-bit ARM",
    elf_number: 183,
    relative: 1027,
    skipped: None,
    second_argument: 8,
    place: aarch64_place,
};

/// `$5` (a constant), `%rax` (a register), `-24(%rbp)` (memory).
fn x86_64_place(text: &str) -> Option<Place> {
    if let Some(constant) = text.strip_prefix('$') {
        return Some(Place::Constant(constant.parse().ok()?));
    }
    let Some((offset, register)) = text.split_once('(') else {
        return Some(Place::Register(x86_64_register(text)?));
    };
    let register = x86_64_register(register.strip_suffix(')')?)?;
    let offset = match offset {
        "" => 0,
        number => number.parse().ok()?,
    };
    Some(Place::Memory { register, offset })
}

/// Offset of a register in `pt_regs`, by its name or that of a part that includes its lowest byte.
fn x86_64_register(name: &str) -> Option<u32> {
    const REGISTERS: [(&[&str], u32); 17] = [
        (&["r15", "r15d", "r15w", "r15b"], 0),
        (&["r14", "r14d", "r14w", "r14b"], 8),
        (&["r13", "r13d", "r13w", "r13b"], 16),
        (&["r12", "r12d", "r12w", "r12b"], 24),
        (&["rbp", "ebp", "bp", "bpl"], 32),
        (&["rbx", "ebx", "bx", "bl"], 40),
        (&["r11", "r11d", "r11w", "r11b"], 48),
        (&["r10", "r10d", "r10w", "r10b"], 56),
        (&["r9", "r9d", "r9w", "r9b"], 64),
        (&["r8", "r8d", "r8w", "r8b"], 72),
        (&["rax", "eax", "ax", "al"], 80),
        (&["rcx", "ecx", "cx", "cl"], 88),
        (&["rdx", "edx", "dx", "dl"], 96),
        (&["rsi", "esi", "si", "sil"], RSI),
        (&["rdi", "edi", "di", "dil"], 112),
        (&["rip"], 128),
        (&["rsp", "esp", "sp", "spl"], 152),
    ];
    let name = name.strip_prefix('%')?;
    let found = REGISTERS.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, offset)| *offset)
}

const RSI: u32 = 104;

/// `5` or `#5` (a constant), `x0` or `w0` (a register), `[x29, -24]` or `[sp]` (memory).
fn aarch64_place(text: &str) -> Option<Place> {
    let number = |text: &str| -> Option<i64> {
        let text = text.trim();
        text.strip_prefix('#').unwrap_or(text).parse().ok()
    };
    if let Some(memory) = text.strip_prefix('[') {
        let memory = memory.strip_suffix(']')?;
        let (register, offset) = memory.split_once(',').unwrap_or((memory, "0"));
        return Some(Place::Memory {
            register: aarch64_register(register.trim())?,
            offset: number(offset)?,
        });
    }
    match text {
        "xzr" | "wzr" => Some(Place::Constant(0)),
        _ => number(text)
            .map(Place::Constant)
            .or_else(|| Some(Place::Register(aarch64_register(text)?))),
    }
}

/// Offset of a register in `pt_regs`: `x0` to `x30`, or their lower halves, and `sp`.
fn aarch64_register(name: &str) -> Option<u32> {
    if matches!(name, "sp" | "wsp") {
        return Some(31 * 8);
    }
    let digits = name.strip_prefix(['x', 'w'])?;
    // Not what a number may have: a sign or leading zeros.
    let number: u32 = digits.parse().ok()?;
    (number <= 30 && digits == number.to_string()).then_some(8 * number)
}
