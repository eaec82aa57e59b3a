//! Locations of a tracepoint's arguments. The notes of an executable give them in assembler syntax,
//! with length in bytes and sign: `8@%rax`, `-4@$5` and `8@-24(%rbp)` on x86-64; `8@x0`, `-4@5` and
//! `8@[x29, -24]` on 64-bit ARM.

use super::machine::{Machine, Place};

/// Location of an argument when its tracepoint is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Argument {
    pub(super) place: Place,
    /// Its length in bytes: 1, 2, 4 or 8.
    pub(super) len: u8,
    pub(super) is_signed: bool,
}

/// Parses the arguments of a tracepoint. `None` if a location is not supported.
pub(super) fn parse_arguments(machine: &Machine, text: &str) -> Option<Vec<Argument>> {
    // On ARM, a location has a space within brackets.
    let mut is_within = false;
    let arguments = text.split(|letter: char| {
        is_within = letter == '[' || is_within && letter != ']';
        !is_within && letter.is_ascii_whitespace()
    });
    let arguments = arguments.filter(|argument| !argument.is_empty());
    arguments
        .map(|argument| parse_argument(machine, argument))
        .collect()
}

fn parse_argument(machine: &Machine, text: &str) -> Option<Argument> {
    let (len, place) = text.split_once('@')?;
    let len: i8 = len.parse().ok()?;
    let place = (machine.place)(place)?;
    matches!(len.unsigned_abs(), 1 | 2 | 4 | 8).then_some(Argument {
        place,
        len: len.unsigned_abs(),
        is_signed: len < 0,
    })
}

#[cfg(test)]
mod tests {
    use super::super::machine::{AARCH64, X86_64};
    use super::*;

    fn argument(place: Place, len: u8, is_signed: bool) -> Argument {
        Argument {
            place,
            len,
            is_signed,
        }
    }

    fn memory(register: u32, offset: i64) -> Place {
        Place::Memory { register, offset }
    }

    #[test]
    fn every_kind_of_place() {
        assert_eq!(
            parse_arguments(&X86_64, "-8@%rax 8@-24(%rbp) 1@%r15b -4@$-5 8@(%rsp)"),
            Some(vec![
                argument(Place::Register(80), 8, true),
                argument(memory(32, -24), 8, false),
                argument(Place::Register(0), 1, false),
                argument(Place::Constant(-5), 4, true),
                argument(memory(152, 0), 8, false),
            ])
        );
        assert_eq!(
            parse_arguments(
                &AARCH64,
                "-8@x0 8@[x29, -24]  1@w30 -4@-5 8@[sp] 8@[sp, 16] 4@#7 8@xzr 8@sp"
            ),
            Some(vec![
                argument(Place::Register(0), 8, true),
                argument(memory(232, -24), 8, false),
                argument(Place::Register(240), 1, false),
                argument(Place::Constant(-5), 4, true),
                argument(memory(248, 0), 8, false),
                argument(memory(248, 16), 8, false),
                argument(Place::Constant(7), 4, false),
                argument(Place::Constant(0), 8, false),
                argument(Place::Register(248), 8, false),
            ])
        );
    }

    #[test]
    fn other_places_are_unsupported() {
        for machine in [&X86_64, &AARCH64] {
            assert_eq!(parse_arguments(machine, ""), Some(Vec::new()));
        }
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
            "8@x0",
            "8@[sp, 16]",
        ] {
            assert_eq!(parse_arguments(&X86_64, unknown), None, "{unknown}");
        }
        for unknown in [
            "8",
            "8@",
            "8@x31",
            "8@x01",
            "8@x+1",
            "8@d0",
            "8@[x0, x1]",
            "8@[x0, x1, lsl 3]",
            "8@[x0, w1, uxtw 3]",
            "8@[x0, 8]!",
            "8@[x0], 8",
            "8@[x0, #:lo12:symbol]",
            "8@[xzr]",
            "8@[x0, 8",
            "8@[",
            "3@x0",
            "8@%rax",
        ] {
            assert_eq!(parse_arguments(&AARCH64, unknown), None, "{unknown}");
        }
    }
}
