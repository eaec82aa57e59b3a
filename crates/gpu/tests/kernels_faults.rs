//! Faults planted into the kernels. The source as C++, the PTX, or both must find each one; the
//! table also records which.

mod kernels;

use kernels::emulated::Emulated;
use kernels::host_cpp::{HostCpp, SOURCE, compiler};
use kernels::{Batch, Class, Device, Noise, PTX, check, shape};
use packetlane_ptx_emulator::Order;

/// Changes the lines of an entry.
type Change = fn(&mut Vec<String>);

struct Fault {
    what: &'static str,
    class: Class,
    /// In the source: text that occurs once, and its replacement.
    source: Option<(&'static str, &'static str)>,
    /// In the PTX: an entry, and the change to it.
    ptx: Option<(&'static str, Change)>,
    /// Whether the C++ and the PTX find it.
    caught: (bool, bool),
}

const FAULTS: [Fault; 10] = [
    Fault {
        what: "a wrong rotation in ChaCha20",
        class: Class::One,
        source: Some(("b = rotate(b ^ c, 7)", "b = rotate(b ^ c, 9)")),
        ptx: Some(("seal_1", |lines| {
            let at = find(lines, 0, |line| {
                line.starts_with("shf.l.wrap.b32") && line.ends_with(", 7;")
            });
            lines[at] = lines[at].replace(", 7;", ", 9;");
        })),
        caught: (true, true),
    },
    Fault {
        what: "the lanes' sums put together without a shuffle",
        class: Class::Four,
        source: Some(("shuffle(h[i], lane - step, LANES)", "h[i]")),
        ptx: Some(("seal_4", |lines| {
            // After the shuffles that distribute the key and rotate the sums by one lane.
            let first = find(lines, 0, |line| line.starts_with("shfl.sync"));
            let at = find(lines, first + 13, |line| line.starts_with("shfl.sync"));
            without_shuffle(lines, at);
        })),
        caught: (true, true),
    },
    Fault {
        what: "lanes that do not wait for the verdict",
        class: Class::Warp,
        source: Some(("if (shuffle(right, LANES - 1, LANES))", "if (i < count)")),
        ptx: Some(("open_32", |lines| {
            let at = lines.iter().rposition(|line| line.starts_with("shfl.sync"));
            without_shuffle(lines, at.expect("open_32 shuffles"));
        })),
        caught: (true, true),
    },
    Fault {
        what: "a thread that leaves before a shuffle",
        class: Class::Four,
        source: Some((
            "    const bool last_lane = thread_index() % LANES == LANES - 1;\n    Packet packet",
            "    const bool last_lane = thread_index() % LANES == LANES - 1;\n    if (i >= count) return;\n    Packet packet",
        )),
        ptx: Some(("seal_4", |lines| {
            let end = lines.iter().rposition(|line| line.starts_with("$L"));
            let end = lines[end.expect("a label")]
                .trim_end_matches(':')
                .to_string();
            let at = find(lines, 0, |line| line.starts_with("shfl.sync"));
            let leave = [
                ".reg .pred %gone<1>;".to_string(),
                ".reg .b32 %tid<1>;".to_string(),
                "mov.u32 %tid0, %tid.x;".to_string(),
                "setp.eq.s32 %gone0, %tid0, 5;".to_string(),
                format!("@%gone0 bra {end};"),
            ];
            lines.splice(at..at, leave);
        })),
        caught: (true, true),
    },
    Fault {
        what: "a last block of 63 bytes taken for a whole one",
        class: Class::Four,
        source: Some(("    if (n == 64) {", "    if (n >= 63) {")),
        ptx: Some(("seal_4", |lines| {
            let at = find(lines, 0, |line| {
                line.starts_with("setp.gt.u32") && line.ends_with(", 63;")
            });
            lines[at] = lines[at].replace(", 63;", ", 62;");
        })),
        caught: (true, true),
    },
    Fault {
        what: "a text's last byte left out after whole blocks",
        class: Class::Four,
        source: Some(("len / 64 + (len % 64 != 0)", "len / 64 + (len % 64 > 1)")),
        ptx: Some(("seal_4", |lines| {
            // The condition occurs in several places.
            for at in 0..lines.len() {
                if lines[at].starts_with("and.b32") && lines[at].ends_with(", 63;") {
                    let at = find(lines, at, |line| line.starts_with("setp.ne.s32"));
                    lines[at] = lines[at]
                        .replace("setp.ne.s32", "setp.gt.s32")
                        .replace(", 0;", ", 1;");
                }
            }
        })),
        caught: (true, true),
    },
    Fault {
        what: "the last block absorbed without padding it",
        class: Class::One,
        source: Some((
            "                m.w[i] = q.w[i] & mask(i, n);\n",
            "                m.w[i] = q.w[i];\n",
        )),
        ptx: Some(("seal_1", |lines| {
            // The first sum with a word that was masked by another word, not by a constant.
            let masked = |lines: &[String], at: usize| {
                let word = lines[at]
                    .trim_end_matches(';')
                    .rsplit(' ')
                    .next()
                    .expect("an operand")
                    .to_string();
                let made = format!("and.b32 \t{word}, ");
                let made_too = format!("and.b32  \t{word}, ");
                lines.iter().position(|line| {
                    (line.starts_with(&made) || line.starts_with(&made_too))
                        && line.matches("%r").count() == 3
                })
            };
            let at = (0..lines.len())
                .filter(|at| lines[*at].starts_with("add.cc.u32"))
                .find_map(|at| masked(lines, at))
                .expect("a piece's padding");
            let operands: Vec<String> = lines[at].split("%r").skip(1).map(number).collect();
            lines[at] = format!("mov.u32 %r{}, %r{};", operands[0], operands[1]);
        })),
        caught: (true, true),
    },
    Fault {
        what: "a carry lost in Poly1305",
        class: Class::One,
        // In C++ the carries are different code.
        source: None,
        ptx: Some(("seal_1", |lines| {
            let at = lines
                .iter()
                .rposition(|line| line.starts_with("addc.cc.u32"));
            let at = at.expect("a sum with carry");
            lines[at] = lines[at].replace("addc.cc", "add.cc");
        })),
        caught: (false, true),
    },
    Fault {
        what: "one byte read behind the last tag",
        class: Class::One,
        source: Some((
            "last = load_bytes(p - skew + 16, 0, skew)",
            "last = load_bytes(p - skew + 16, 0, skew + 1)",
        )),
        ptx: Some(("open_1", |lines| {
            // A piece needs at most byte 18 after a word.
            for line in lines
                .iter_mut()
                .filter(|line| line.starts_with("ld.global.u8"))
            {
                *line = line.replace("+18]", "+19]");
            }
        })),
        caught: (true, true),
    },
    Fault {
        // It would overwrite what other threads wrote in between, but here no thread runs in
        // between. Only the check for two threads accessing the same byte finds it.
        what: "an edge written with a neighbour's bytes in the same word",
        class: Class::Four,
        source: Some((
            "    store_bytes(p - skew, skew, 4, x[0] << (8 * skew));\n",
            "    words[0] = (words[0] & ((1u << (8 * skew)) - 1)) | x[0] << (8 * skew);\n",
        )),
        ptx: Some(("seal_4", |lines| {
            let at = find(lines, 0, |line| {
                line.starts_with("st.global.u8") && line.contains("+1]")
            });
            let word = lines[at]
                .split(['[', '+'])
                .nth(1)
                .expect("an address")
                .to_string();
            let rewrite = [
                ".reg .b32 %word<1>;".to_string(),
                format!("ld.global.u32 %word0, [{word}];"),
                format!("st.global.u32 [{word}], %word0;"),
            ];
            lines.splice(at..at, rewrite);
        })),
        caught: (false, true),
    },
];

/// The first line from `from` on that satisfies a condition.
fn find(lines: &[String], from: usize, holds: impl Fn(&str) -> bool) -> usize {
    let at = lines[from..].iter().position(|line| holds(line));
    from + at.expect("the fault still applies to the PTX")
}

/// The digits at the start of a text.
fn number(text: &str) -> String {
    text.chars().take_while(char::is_ascii_digit).collect()
}

/// Makes each lane keep its own value.
fn without_shuffle(lines: &mut [String], at: usize) {
    let registers: Vec<String> = lines[at].split("%r").skip(1).map(number).collect();
    lines[at] = format!("mov.u32 %r{}, %r{};", registers[0], registers[1]);
}

/// The module with one entry changed.
fn patched_ptx(entry: &str, change: Change) -> String {
    let start = PTX.find(&format!(".entry {entry}(")).expect("the entry");
    let end = start + PTX[start..].find("\n}").expect("the entry's end");
    let mut lines: Vec<String> = PTX[start..end]
        .lines()
        .map(|line| {
            if line.starts_with('.') {
                line.to_string()
            } else {
                line.trim_start().to_string()
            }
        })
        .collect();
    let before = lines.clone();
    change(&mut lines);
    assert!(lines != before, "the fault still applies to {entry}");
    format!("{}{}{}", &PTX[..start], lines.join("\n"), &PTX[end..])
}

fn patched_source(from: &str, to: &str) -> String {
    // If a line occurs twice, as for loads and stores of pieces and blocks, both are changed.
    assert!(
        SOURCE.contains(from),
        "the fault still applies to the source: {from}"
    );
    SOURCE.replace(from, to)
}

/// Adjacent packets at all alignments. The last tag is not aligned.
fn batch(noise: &mut Noise) -> Batch {
    let mut shapes = Vec::new();
    let mut end = 0;
    for i in 0..91 {
        let len = match i {
            0..=68 => i,
            90 => 77,
            _ => 100 + noise.below(400),
        };
        shapes.push(shape(0, len, end % 16));
        end += len + 16;
    }
    Batch::new(noise, &shapes)
}

/// Returns what the tests find wrong with a device, if anything.
fn finds(device: &mut dyn Device, class: Class) -> Option<String> {
    let mut noise = Noise(9);
    let batch = batch(&mut noise);
    check(device, &mut noise, class, &batch).err()
}

#[test]
fn planted_faults_are_caught() {
    let compiler = compiler();
    if let Err(why) = &compiler {
        println!("NOT RUN: planted faults in the kernels as C++: {why}");
    }
    if let Ok(compiler) = compiler {
        let mut device = HostCpp::build(compiler, "-O0", "sound", SOURCE);
        device.order = 5;
        for class in Class::ALL {
            assert_eq!(finds(&mut device, class), None, "nothing is planted");
        }
    }
    for class in Class::ALL {
        let mut device = Emulated::new(PTX, Order::Permuted(5));
        assert_eq!(finds(&mut device, class), None, "nothing is planted");
    }
    for (i, fault) in FAULTS.iter().enumerate() {
        println!("{}:", fault.what);
        if let (Some((from, to)), Ok(compiler)) = (fault.source, compiler.as_ref()) {
            let source = patched_source(from, to);
            let mut device = HostCpp::build(compiler, "-O0", &format!("fault-{i}"), &source);
            device.order = 5;
            let found = finds(&mut device, fault.class);
            println!("    C++: {}", found.as_deref().unwrap_or("not noticed"));
            assert_eq!(found.is_some(), fault.caught.0, "{} in C++", fault.what);
        }
        if let Some((entry, change)) = fault.ptx {
            let mut device = Emulated::new(&patched_ptx(entry, change), Order::Permuted(5));
            let found = finds(&mut device, fault.class);
            println!("    PTX: {}", found.as_deref().unwrap_or("not noticed"));
            assert_eq!(found.is_some(), fault.caught.1, "{} in the PTX", fault.what);
        }
        assert!(fault.caught.0 || fault.caught.1, "{} is caught", fault.what);
    }
}
