//! Locations of a tracepoint's arguments. The notes of an executable give them in assembler syntax:
//! `8@%rax` (a register, 8 bytes), `-4@$5` (a signed constant, 4 bytes), `8@-24(%rbp)` (memory).

/// Location of an argument when its tracepoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) place: Place,
    /// Its length in bytes: 1, 2, 4 or 8.
    pub(super) len: u8,
    pub(super) is_signed: bool,
}

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

/// Parses the arguments of a tracepoint. `None` if a location is not supported.
pub(super) fn parse_arguments(text: &str) -> Option<Vec<Argument>> {
    text.split_ascii_whitespace().map(parse_argument).collect()
}

fn parse_argument(text: &str) -> Option<Argument> {
    let (len, place) = text.split_once('@')?;
    let len: i8 = len.parse().ok()?;
    let place = match place.strip_prefix('$') {
        Some(constant) => Place::Constant(constant.parse().ok()?),
        None => parse_place(place)?,
    };
    matches!(len.unsigned_abs(), 1 | 2 | 4 | 8).then_some(Argument {
        place,
        len: len.unsigned_abs(),
        is_signed: len < 0,
    })
}

fn parse_place(text: &str) -> Option<Place> {
    let Some((offset, register)) = text.split_once('(') else {
        return Some(Place::Register(register(text)?));
    };
    let register = self::register(register.strip_suffix(')')?)?;
    let offset = match offset {
        "" => 0,
        number => number.parse().ok()?,
    };
    Some(Place::Memory { register, offset })
}

/// Offset of a register in `pt_regs` of x86-64 Linux, by its name or that of a part that includes
/// its lowest byte.
fn register(name: &str) -> Option<u32> {
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
        (&["rsi", "esi", "si", "sil"], SECOND_ARGUMENT),
        (&["rdi", "edi", "di", "dil"], 112),
        (&["rip"], 128),
        (&["rsp", "esp", "sp", "spl"], 152),
    ];
    let name = name.strip_prefix('%')?;
    let found = REGISTERS.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, offset)| *offset)
}

/// The register of a function's second argument: `rsi`.
pub(super) const SECOND_ARGUMENT: u32 = 104;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_place() {
        let argument = |place, len, is_signed| Argument {
            place,
            len,
            is_signed,
        };
        assert_eq!(
            parse_arguments("-8@%rax 8@-24(%rbp) 1@%r15b -4@$-5 8@(%rsp)"),
            Some(vec![
                argument(Place::Register(80), 8, true),
                argument(
                    Place::Memory {
                        register: 32,
                        offset: -24
                    },
                    8,
                    false
                ),
                argument(Place::Register(0), 1, false),
                argument(Place::Constant(-5), 4, true),
                argument(
                    Place::Memory {
                        register: 152,
                        offset: 0
                    },
                    8,
                    false
                ),
            ])
        );
        assert_eq!(parse_arguments(""), Some(Vec::new()));
        for unknown in [
            "8",
            "8@",
            "8@%ah",
            "8@%xmm0",
            "3@%rax",
            "-128@%rax",
            "8@(%rax,%rbx,8)",
            "8@symbol(%rip)",
            "8@4(%rax",
        ] {
            assert_eq!(parse_arguments(unknown), None, "{unknown}");
        }
    }
}
