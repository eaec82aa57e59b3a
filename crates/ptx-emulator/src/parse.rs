//! Parses the text of a PTX module into the form that `run` executes. Registers and constants get
//! indices into one array, labels become instruction indices, and every instruction is decoded
//! once.

use std::collections::HashMap;
use std::fmt;

/// A parsed PTX module.
pub struct Module {
    pub(crate) kernels: HashMap<String, Kernel>,
}

/// One `.entry` (kernel).
#[derive(Default)]
pub(crate) struct Kernel {
    /// For each parameter, whether it has eight bytes. The others have four.
    pub(crate) params: Vec<bool>,
    pub(crate) max_threads: u32,
    /// Number of places in a thread's array of values. Constants are at its end.
    pub(crate) places: usize,
    pub(crate) constants: Vec<u64>,
    pub(crate) code: Vec<Op>,
    /// The line number of each instruction, from 1, and its text.
    pub(crate) lines: Vec<(usize, String)>,
}

/// The index of a register or constant in a thread's array of values.
pub(crate) type Place = u32;

/// The width of an instruction's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    Pred,
    B16,
    B32,
    B64,
}

/// Truncates a value to a width.
#[inline(always)]
pub(crate) fn cut(value: u64, width: Width) -> u64 {
    match width {
        Width::Pred => value & 1,
        Width::B16 => value as u16 as u64,
        Width::B32 => value as u32 as u64,
        Width::B64 => value,
    }
}

/// Operations on two values. The result is truncated to the instruction's width.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Min,
    Max,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Special {
    Tid,
    Ntid,
    Ctaid,
}

/// An instruction. It writes `d` and reads the other operands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Binary {
        op: Binary,
        width: Width,
        d: Place,
        a: Place,
        b: Place,
    },
    /// a + b, with carry in and carry out if the fields say so.
    Add {
        carry_in: bool,
        carry_out: bool,
        d: Place,
        a: Place,
        b: Place,
    },
    /// a * b + c. A wide product is that of two operands of half the width.
    Multiply {
        width: Width,
        d: Place,
        a: Place,
        b: Place,
        c: Place,
    },
    Not {
        width: Width,
        d: Place,
        a: Place,
    },
    Neg {
        width: Width,
        d: Place,
        a: Place,
    },
    /// a rotated to the left by b bits (modulo 32).
    Rotate {
        d: Place,
        a: Place,
        b: Place,
    },
    /// Bits c to c + 31 of the 64-bit number b:a; c is at most 32.
    Funnel {
        d: Place,
        a: Place,
        b: Place,
        c: Place,
    },
    /// b, with its `len` bits from bit `from` on replaced by the low bits of a.
    Insert {
        d: Place,
        a: Place,
        b: Place,
        from: Place,
        len: Place,
    },
    Compare {
        op: Compare,
        signed: bool,
        width: Width,
        d: Place,
        a: Place,
        b: Place,
    },
    Select {
        d: Place,
        a: Place,
        b: Place,
        p: Place,
    },
    /// a, truncated to a width.
    Move {
        width: Width,
        d: Place,
        a: Place,
    },
    Special {
        d: Place,
        what: Special,
    },
    Param {
        d: Place,
        index: u32,
    },
    /// Loads words of `bytes` bytes: one word, or two or four adjacent words of 4 bytes.
    Load {
        bytes: u8,
        count: u8,
        d: [Place; 4],
        address: Place,
        offset: i32,
    },
    Store {
        bytes: u8,
        count: u8,
        a: [Place; 4],
        address: Place,
        offset: i32,
    },
    Branch {
        to: u32,
    },
    BranchIf {
        p: Place,
        unless: bool,
        to: u32,
    },
    /// The value a of lane b; `clamp` gives the segment's size.
    Shuffle {
        d: Place,
        a: Place,
        b: Place,
        clamp: Place,
        members: Place,
    },
    Return,
}

/// A line that is not supported or malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line number, from 1.
    pub line: usize,
    /// The text of the line.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}: {}", self.line, self.text, self.why)
    }
}

impl std::error::Error for ParseError {}

impl Module {
    /// Parses a module. Only parameters, registers and the instructions in `packetlane.ptx` are
    /// supported; anything else is an error.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let mut kernels = HashMap::new();
        let mut entry: Option<Entry> = None;
        for (index, full) in text.lines().enumerate() {
            let line = full.split("//").next().unwrap_or_default().trim();
            let fail = |why| ParseError {
                line: index + 1,
                text: line.to_string(),
                why,
            };
            match &mut entry {
                None => {
                    if let Some(rest) = line.strip_prefix(".visible .entry ") {
                        entry = Some(Entry::new(rest.trim_end_matches('(')));
                    } else if !(line.is_empty()
                        || line.starts_with(".version ")
                        || line.starts_with(".target ")
                        || line == ".address_size 64")
                    {
                        return Err(fail("only .entry is supported at this level"));
                    }
                }
                Some(open) => {
                    if line == "}" {
                        let closed = entry.take().expect("an entry is open");
                        let name = closed.name.clone();
                        kernels.insert(
                            name,
                            closed.finish().map_err(|(line, why)| ParseError {
                                line,
                                text: text
                                    .lines()
                                    .nth(line - 1)
                                    .unwrap_or_default()
                                    .trim()
                                    .to_string(),
                                why,
                            })?,
                        );
                    } else {
                        open.line(index + 1, line).map_err(fail)?;
                    }
                }
            }
        }
        match entry {
            None => Ok(Module { kernels }),
            Some(_) => Err(ParseError {
                line: text.lines().count(),
                text: String::new(),
                why: "the module ends within an entry",
            }),
        }
    }
}

type Parsed<T> = Result<T, &'static str>;

/// An entry that is being parsed.
struct Entry {
    name: String,
    kernel: Kernel,
    /// Banks of registers: prefix (`%rd`), first place, and number.
    banks: Vec<(String, u32, u32)>,
    constants: HashMap<u64, Place>,
    labels: HashMap<String, u32>,
    /// Branches: instruction index and label.
    branches: Vec<(usize, String)>,
}

/// Constants are numbered from here until the number of registers is known.
const CONSTANT: u32 = 1 << 31;

impl Entry {
    fn new(name: &str) -> Entry {
        Entry {
            name: name.to_string(),
            kernel: Kernel {
                max_threads: 1024,
                ..Kernel::default()
            },
            banks: Vec::new(),
            constants: HashMap::new(),
            labels: HashMap::new(),
            branches: Vec::new(),
        }
    }

    fn line(&mut self, number: usize, line: &str) -> Parsed<()> {
        let ignored = [".pragma ", ".minnctapersm "];
        if line.is_empty()
            || line == ")"
            || line == "{"
            || ignored.iter().any(|i| line.starts_with(i))
        {
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(".param .") {
            self.kernel.params.push(match rest.split(' ').next() {
                Some("u64") => true,
                Some("u32") => false,
                _ => return Err("a parameter is a u32 or a u64"),
            });
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(".maxntid ") {
            let x = rest.split(',').next().and_then(|x| x.trim().parse().ok());
            self.kernel.max_threads = x.ok_or("expected a number of threads")?;
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix(".reg ") {
            return self.bank(rest);
        }
        if let Some(label) = line.strip_suffix(':') {
            self.labels
                .insert(label.to_string(), self.kernel.code.len() as u32);
            return Ok(());
        }
        let text = line
            .strip_suffix(';')
            .ok_or("an instruction must end with a semicolon")?;
        let op = self.instruction(text)?;
        self.kernel.code.push(op);
        self.kernel.lines.push((number, line.to_string()));
        Ok(())
    }

    /// Parses a bank of registers: `.b32 %r<12>;`
    fn bank(&mut self, text: &str) -> Parsed<()> {
        const WHY: &str = "expected a bank of registers";
        let name = text.split_whitespace().nth(1).ok_or(WHY)?;
        let (name, count) = name.trim_end_matches(">;").split_once('<').ok_or(WHY)?;
        let count: u32 = count.parse().map_err(|_| WHY)?;
        self.banks
            .push((name.to_string(), self.kernel.places as u32, count));
        self.kernel.places += count as usize;
        Ok(())
    }

    fn register(&self, name: &str) -> Option<Place> {
        let digits = name.find(|c: char| c.is_ascii_digit())?;
        let number: u32 = name[digits..].parse().ok()?;
        let (_, first, count) = self
            .banks
            .iter()
            .find(|(bank, ..)| *bank == name[..digits])?;
        (number < *count).then_some(first + number)
    }

    /// Parses a register or a constant, and truncates a constant to `width`.
    fn value(&mut self, text: &str, width: Width) -> Parsed<Place> {
        if let Some(place) = self.register(text) {
            return Ok(place);
        }
        let value: i128 = text
            .parse()
            .map_err(|_| "expected a register or a constant")?;
        let value = cut(value as u64, width);
        let next = CONSTANT + self.constants.len() as u32;
        Ok(*self.constants.entry(value).or_insert_with(|| {
            self.kernel.constants.push(value);
            next
        }))
    }

    fn written(&self, text: &str) -> Parsed<Place> {
        self.register(text).ok_or("expected a register")
    }

    /// Parses an address: `[%rd1+16]`
    fn address(&mut self, text: &str) -> Parsed<(Place, i32)> {
        const WHY: &str = "expected an address";
        let inner = text
            .strip_prefix('[')
            .and_then(|t| t.strip_suffix(']'))
            .ok_or(WHY)?;
        let (base, offset) = inner.split_once('+').unwrap_or((inner, "0"));
        Ok((self.written(base)?, offset.parse().map_err(|_| WHY)?))
    }

    fn instruction(&mut self, text: &str) -> Parsed<Op> {
        const UNKNOWN: &str = "unsupported instruction: no kernel has it";
        let (guard, text) = match text.strip_prefix('@') {
            None => (None, text),
            Some(guarded) => {
                let (guard, rest) = guarded.split_once(char::is_whitespace).ok_or(UNKNOWN)?;
                (Some(guard), rest.trim_start())
            }
        };
        let (name, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let operands = split(operands);
        let operand = |i: usize| operands.get(i).copied().ok_or("too few operands");
        if let Some(guard) = guard {
            if name != "bra" {
                return Err("only branches may have a condition");
            }
            let (unless, p) = guard
                .strip_prefix('!')
                .map_or((false, guard), |p| (true, p));
            self.branches
                .push((self.kernel.code.len(), operand(0)?.to_string()));
            return Ok(Op::BranchIf {
                p: self.written(p)?,
                unless,
                to: 0,
            });
        }

        let (stem, suffix) = name.rsplit_once('.').unwrap_or((name, ""));
        let width = match suffix {
            "pred" => Width::Pred,
            "b16" | "u16" | "s16" => Width::B16,
            "b32" | "u32" | "s32" => Width::B32,
            _ => Width::B64,
        };
        let signed = suffix.starts_with('s');
        let typed = |known: &[&str]| {
            if known.contains(&suffix) {
                Ok(())
            } else {
                Err(UNKNOWN)
            }
        };
        let binary = match stem {
            "add" => Some((Binary::Add, &["s32", "s64", "u32"][..])),
            "sub" => Some((Binary::Sub, &["s32", "s64"][..])),
            "mul.lo" => Some((Binary::Mul, &["s32", "s64"][..])),
            "and" => Some((Binary::And, &["b16", "b32", "b64", "pred"][..])),
            "or" => Some((Binary::Or, &["b16", "b32", "b64", "pred"][..])),
            "xor" => Some((Binary::Xor, &["b32", "b64", "pred"][..])),
            "shl" => Some((Binary::Shl, &["b32", "b64"][..])),
            "shr" => Some((Binary::Shr, &["u32", "u64"][..])),
            "min" => Some((Binary::Min, &["u32", "u64"][..])),
            "max" => Some((Binary::Max, &["u32", "u64"][..])),
            _ => None,
        };
        if let Some((op, types)) = binary {
            typed(types)?;
            // The distance of a shift is a 32-bit number.
            let shift = matches!(op, Binary::Shl | Binary::Shr);
            return Ok(Op::Binary {
                op,
                width,
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, if shift { Width::B32 } else { width })?,
            });
        }
        match name {
            "add.cc.u32" | "addc.cc.u32" | "addc.u32" => Ok(Op::Add {
                carry_in: name.starts_with("addc"),
                carry_out: name.contains(".cc"),
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, width)?,
            }),
            "mul.wide.u32" | "mul.wide.u16" | "mad.wide.u32" => Ok(Op::Multiply {
                width: if name.ends_with("16") {
                    Width::B32
                } else {
                    Width::B64
                },
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, width)?,
                c: if stem == "mad.wide" {
                    self.value(operand(3)?, Width::B64)?
                } else {
                    self.value("0", width)?
                },
            }),
            "mad.lo.s32" => Ok(Op::Multiply {
                width,
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, width)?,
                c: self.value(operand(3)?, width)?,
            }),
            "not.b16" | "not.b32" | "not.b64" | "not.pred" => Ok(Op::Not {
                width,
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
            }),
            "neg.s32" | "neg.s64" => Ok(Op::Neg {
                width,
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
            }),
            // With two equal words, a funnel shift is a rotation.
            "shf.l.wrap.b32" if operand(1)? == operand(2)? => Ok(Op::Rotate {
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(3)?, width)?,
            }),
            "shf.r.clamp.b32" => Ok(Op::Funnel {
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, width)?,
                c: self.value(operand(3)?, width)?,
            }),
            "bfi.b64" => Ok(Op::Insert {
                d: self.written(operand(0)?)?,
                a: self.value(operand(1)?, width)?,
                b: self.value(operand(2)?, width)?,
                from: self.value(operand(3)?, Width::B32)?,
                len: self.value(operand(4)?, Width::B32)?,
            }),
            "selp.b16" | "selp.u16" | "selp.b32" | "selp.u32" | "selp.b64" | "selp.u64" => {
                Ok(Op::Select {
                    d: self.written(operand(0)?)?,
                    a: self.value(operand(1)?, width)?,
                    b: self.value(operand(2)?, width)?,
                    p: self.written(operand(3)?)?,
                })
            }
            "mov.u16" | "mov.u32" | "mov.u64" | "mov.b32" | "mov.b64" => {
                let d = self.written(operand(0)?)?;
                let what = match operand(1)? {
                    "%tid.x" => Special::Tid,
                    "%ntid.x" => Special::Ntid,
                    "%ctaid.x" => Special::Ctaid,
                    other => {
                        return Ok(Op::Move {
                            width,
                            d,
                            a: self.value(other, width)?,
                        });
                    }
                };
                Ok(Op::Special { d, what })
            }
            "cvt.u32.u64" | "cvt.u64.u32" | "cvta.to.global.u64" => Ok(Op::Move {
                // The narrower of the two widths.
                width: if name.contains("32") {
                    Width::B32
                } else {
                    Width::B64
                },
                d: self.written(operand(0)?)?,
                a: self.written(operand(1)?)?,
            }),
            "ld.param.u32" | "ld.param.u64" => {
                let wanted = format!("[{}_param_", self.name);
                let index = operand(1)?
                    .strip_prefix(&wanted)
                    .and_then(|t| t.strip_suffix(']'));
                let index: u32 = index
                    .and_then(|t| t.parse().ok())
                    .ok_or("expected a parameter")?;
                if self.kernel.params.get(index as usize) != Some(&(width == Width::B64)) {
                    return Err("the parameter does not have this size");
                }
                Ok(Op::Param {
                    d: self.written(operand(0)?)?,
                    index,
                })
            }
            "bra" | "bra.uni" => {
                self.branches
                    .push((self.kernel.code.len(), operand(0)?.to_string()));
                Ok(Op::Branch { to: 0 })
            }
            "ret" => Ok(Op::Return),
            "shfl.sync.idx.b32" => {
                let d = operand(0)?.split('|').next().unwrap_or_default();
                Ok(Op::Shuffle {
                    d: self.written(d)?,
                    a: self.value(operand(1)?, width)?,
                    b: self.value(operand(2)?, width)?,
                    clamp: self.value(operand(3)?, width)?,
                    members: self.value(operand(4)?, width)?,
                })
            }
            _ if stem.starts_with("setp.") => {
                typed(&["s16", "u16", "s32", "u32", "s64", "u64"])?;
                let op = match &stem["setp.".len()..] {
                    "eq" => Compare::Eq,
                    "ne" => Compare::Ne,
                    "lt" => Compare::Lt,
                    "le" => Compare::Le,
                    "gt" => Compare::Gt,
                    "ge" => Compare::Ge,
                    _ => return Err(UNKNOWN),
                };
                Ok(Op::Compare {
                    op,
                    signed,
                    width,
                    d: self.written(operand(0)?)?,
                    a: self.value(operand(1)?, width)?,
                    b: self.value(operand(2)?, width)?,
                })
            }
            _ => {
                let (load, kind) = if let Some(kind) = name.strip_prefix("ld.global.") {
                    (true, kind)
                } else if let Some(kind) = name.strip_prefix("st.global.") {
                    (false, kind)
                } else {
                    return Err(UNKNOWN);
                };
                let (bytes, count) = match kind {
                    "u8" => (1, 1),
                    "u32" => (4, 1),
                    "u64" => (8, 1),
                    "v2.u32" => (4, 2),
                    "v4.u32" => (4, 4),
                    _ => return Err(UNKNOWN),
                };
                let (vector, address) = if load {
                    (operand(0)?, operand(1)?)
                } else {
                    (operand(1)?, operand(0)?)
                };
                let (address, offset) = self.address(address)?;
                let width = if bytes == 8 { Width::B64 } else { Width::B32 };
                let mut places = [0; 4];
                let parts = split(vector.trim_matches(|c| c == '{' || c == '}'));
                if parts.len() != count as usize {
                    return Err("the numbers of registers and values differ");
                }
                for (place, part) in places.iter_mut().zip(parts) {
                    *place = if load {
                        self.written(part)?
                    } else {
                        self.value(part, width)?
                    };
                }
                Ok(if load {
                    Op::Load {
                        bytes,
                        count,
                        d: places,
                        address,
                        offset,
                    }
                } else {
                    Op::Store {
                        bytes,
                        count,
                        a: places,
                        address,
                        offset,
                    }
                })
            }
        }
    }

    /// Converts labels to indexes, and moves constants after the registers.
    fn finish(mut self) -> Result<Kernel, (usize, &'static str)> {
        let registers = self.kernel.places as u32;
        for (at, label) in &self.branches {
            let target = *self
                .labels
                .get(label)
                .ok_or((self.kernel.lines[*at].0, "the label does not exist"))?;
            match &mut self.kernel.code[*at] {
                Op::Branch { to } | Op::BranchIf { to, .. } => *to = target,
                _ => unreachable!("only branches were noted"),
            }
        }
        // So that no thread runs past the end.
        self.kernel.code.push(Op::Return);
        let end = self.kernel.lines.last().map_or(1, |(line, _)| *line);
        self.kernel.lines.push((end, "(the end)".to_string()));
        for op in &mut self.kernel.code {
            for place in op.reads() {
                if *place >= CONSTANT {
                    *place = *place - CONSTANT + registers;
                }
            }
        }
        self.kernel.places += self.kernel.constants.len();
        Ok(self.kernel)
    }
}

/// Splits operands at commas outside of brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    if !text.trim().is_empty() {
        parts.push(text[from..].trim());
    }
    parts
}

impl Op {
    /// The places that an instruction reads.
    fn reads(&mut self) -> Vec<&mut Place> {
        match self {
            Op::Binary { a, b, .. }
            | Op::Add { a, b, .. }
            | Op::Rotate { a, b, .. }
            | Op::Compare { a, b, .. } => vec![a, b],
            Op::Multiply { a, b, c, .. } | Op::Funnel { a, b, c, .. } => vec![a, b, c],
            Op::Not { a, .. } | Op::Neg { a, .. } | Op::Move { a, .. } => vec![a],
            Op::Insert {
                a, b, from, len, ..
            } => vec![a, b, from, len],
            Op::Select { a, b, p, .. } => vec![a, b, p],
            Op::Special { .. } | Op::Param { .. } | Op::Branch { .. } | Op::Return => Vec::new(),
            Op::Load { address, .. } => vec![address],
            Op::Store {
                a, count, address, ..
            } => {
                let mut places: Vec<&mut Place> = a[..*count as usize].iter_mut().collect();
                places.push(address);
                places
            }
            Op::BranchIf { p, .. } => vec![p],
            Op::Shuffle {
                a,
                b,
                clamp,
                members,
                ..
            } => vec![a, b, clamp, members],
        }
    }
}
