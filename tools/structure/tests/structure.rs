//! Architecture rules (ARCHITECTURE.md, "Who may import whom").

use cargo_toml::Manifest;
use packetlane_structure::{Imports, public_names, read_public_names};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The crates in order: each may depend only on those before it.
const CRATES: [&str; 12] = [
    "files",
    "lanes",
    "gpu",
    "ptx-emulator",
    "packetlane",
    "capi",
    "p2p",
    "gateway",
    "lab",
    "loadgen",
    "peers",
    "cli",
];

/// The layers of `lanes` in order: each may import only itself and those before it.
const LANES: [&[&str]; 8] = [
    &["job.rs", "wipe.rs"],
    &["vector/"],
    &["kernels/"],
    &["calibrate.rs"],
    &["isa/"],
    &["aes_keys.rs", "aead/", "secp256k1.rs", "sha256/"],
    &["gcm.rs", "header_protection.rs"],
    &["backend.rs"],
];

/// The strategies in `lanes/src/aead`. None may call another.
const STRATEGIES: [&str; 3] = ["aead/single.rs", "aead/long.rs", "aead/lanes.rs"];

/// Names of instruction sets, or parts of them.
const INSTRUCTION_SETS: [&str; 12] = [
    "x86",
    "aarch64",
    "sse",
    "avx",
    "neon",
    "vaes",
    "ifma",
    "_mm",
    "__m",
    "target_feature",
    "target_arch",
    "asm",
];

/// Competitors of our libraries. Only the lab may depend on them.
const RIVALS: [&str; 9] = [
    "aws-lc-rs",
    "bip324",
    "bitcoin",
    "bitcoin_hashes",
    "chacha20",
    "chacha20poly1305",
    "openssl",
    "poly1305",
    "ring",
];

/// Maximum number of public names in `packetlane`. Each is a promise to every user: prefer a method
/// or an associated constant to a new name.
const MAX_PUBLIC_NAMES: usize = 93;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn imports(name: &str) -> Imports {
    Imports::of_crate(&root().join("crates").join(name))
}

fn nothing(found: &[String], rule: &str) {
    assert!(found.is_empty(), "{rule}, but {}", found.join("; "));
}

#[test]
fn files_have_no_import_cycle() {
    for name in CRATES {
        if let Some(circle) = imports(name).circle() {
            panic!("{name}: import cycle: {}", circle.join(" -> "));
        }
    }
}

#[test]
fn crates_depend_on_lower_ones() {
    for (rank, name) in CRATES.iter().enumerate() {
        let manifest = Manifest::from_path(root().join("crates").join(name).join("Cargo.toml"));
        let manifest = manifest.expect("a manifest");
        for dependency in manifest.dependencies.keys() {
            let own = match dependency.as_str() {
                "packetlane" => Some("packetlane"),
                other => other.strip_prefix("packetlane-"),
            };
            if let Some(own) = own {
                assert!(
                    *name != "peers" || ["packetlane", "files", "p2p"].contains(&own),
                    "peers must not depend on the lab, the gateway or loadgen"
                );
                assert!(
                    *name != "p2p" || own == "packetlane" || own == "files",
                    "p2p must not depend on its users"
                );
                assert!(
                    *name != "loadgen" || own == "packetlane" || own == "p2p",
                    "loadgen must not depend on what measures it"
                );
                assert!(
                    own != "capi" && (*name != "capi" || own == "packetlane"),
                    "capi depends only on packetlane, and no crate depends on capi"
                );
                assert!(
                    own != "ptx-emulator",
                    "ptx-emulator is for tests only, but {name} ships with it"
                );
                let place = CRATES.iter().position(|one| *one == own);
                assert!(
                    place.is_some_and(|place| place < rank),
                    "{name} depends on {dependency}"
                );
            }
            let is_rival = RIVALS.contains(&dependency.as_str());
            // Except rust-bitcoin, with which loadgen makes blocks and transactions.
            let makes_blocks = *name == "loadgen" && dependency == "bitcoin";
            assert!(
                !is_rival || *name == "lab" || makes_blocks,
                "{name} depends on the competitor {dependency}"
            );
        }
    }
}

/// Bindings for other languages depend only on the library, and no crate depends on them.
#[test]
fn python_depends_on_packetlane_alone() {
    let manifest = Manifest::from_path(root().join("python/Cargo.toml")).expect("a manifest");
    let dependencies: Vec<_> = manifest.dependencies.keys().collect();
    assert_eq!(dependencies, ["packetlane", "pyo3"]);
    if let Some(circle) = Imports::of_crate(&root().join("python")).circle() {
        panic!("python: import cycle: {}", circle.join(" -> "));
    }
}

/// The layer of a file in `lanes`. The crate's root is above all layers.
fn layer(file: &str) -> usize {
    let place = LANES
        .iter()
        .position(|layer| layer.iter().any(|prefix| file.starts_with(prefix)));
    place.unwrap_or(LANES.len())
}

#[test]
fn layers_of_lanes_import_lower_ones() {
    let lanes = imports("lanes");
    for file in lanes.of.keys() {
        assert!(
            layer(file) < LANES.len() || file == "lib.rs",
            "lanes: {file} is in no layer: add it to {}",
            file!()
        );
        nothing(
            &lanes.between(|one| one == file, |other| layer(other) > layer(file)),
            "a layer of lanes imports only lower ones",
        );
    }
}

/// The sources in `peers` emit records and must not import what consumes them.
#[test]
fn sources_do_not_import_consumers() {
    let peers = imports("peers");
    let is_source = |file: &str| {
        let prefixes = [
            "probes/",
            "rpc.rs",
            "record.rs",
            "block_messages.rs",
            "source.rs",
            "process.rs",
        ];
        prefixes.iter().any(|prefix| file.starts_with(prefix))
    };
    let is_made = |file: &str| !is_source(file) && file != "lib.rs";
    assert!(peers.of.keys().any(|file| is_source(file)));
    nothing(
        &peers.between(is_source, is_made),
        "a source of peers must not import what consumes its records",
    );
}

#[test]
fn kernels_name_no_instruction_set() {
    let lanes = imports("lanes");
    for (file, words) in lanes
        .words
        .iter()
        .filter(|(file, _)| file.starts_with("kernels/"))
    {
        for word in words {
            let names = INSTRUCTION_SETS.iter().find(|set| word.starts_with(*set));
            assert!(
                names.is_none(),
                "lanes/src/{file} names an instruction set: {word}"
            );
        }
    }
}

#[test]
fn no_strategy_calls_another() {
    let is_strategy = |file: &str| STRATEGIES.contains(&file);
    let lanes = imports("lanes");
    assert!(STRATEGIES.iter().all(|file| lanes.of.contains_key(*file)));
    nothing(
        &lanes.between(is_strategy, is_strategy),
        "no strategy of aead calls another",
    );
}

/// The thresholds among the constants defined in a text: those named MIN, MAX or THRESHOLD.
fn thresholds(text: &str) -> impl Iterator<Item = &str> {
    let constant = |line| {
        let (before, after): (&str, &str) = str::split_once(line, "const ")?;
        let is_constant = before.trim().is_empty() || before.trim().starts_with("pub");
        let (name, _) = after.split_once(':')?;
        let is_threshold =
            name.starts_with("MIN_") || name.starts_with("MAX_") || name.ends_with("_THRESHOLD");
        (is_constant && is_threshold).then_some(name)
    };
    text.lines().filter_map(constant)
}

#[test]
fn thresholds_of_aead_are_in_one_file() {
    let lanes = imports("lanes");
    let files = lanes.of.keys().filter(|file| file.starts_with("aead/"));
    let home = "aead/strategy.rs";
    let read = |file: &str| std::fs::read_to_string(root().join("crates/lanes/src").join(file));
    let text = read(home).expect("the home of thresholds");
    assert!(thresholds(&text).count() > 8);
    for file in files {
        let text = read(file).expect("a file that was read before");
        let found: Vec<_> = thresholds(&text).collect();
        assert!(
            file == home || found.is_empty(),
            "lanes/src/{file} has {found:?}: thresholds are in {home}"
        );
    }
    let planted =
        "    pub(super) const MIN_X: usize = 1;\nconst Y_THRESHOLD: u8 = 1; const LEN: u8 = MAX_Z;";
    assert_eq!(
        thresholds(planted).collect::<Vec<_>>(),
        ["MIN_X", "Y_THRESHOLD"]
    );
}

/// The name of a limit says whether it is a minimum or a maximum.
#[test]
fn limits_are_called_min_and_max() {
    let is_unclear = |word: &str| {
        ["MOST_", "MANY_", "FEW_"]
            .iter()
            .any(|old| word.starts_with(old))
            || word == "FEW"
    };
    for name in CRATES {
        for (file, words) in imports(name).words {
            let found = words.iter().find(|word| is_unclear(word));
            assert!(found.is_none(), "{name}/src/{file}: {found:?}");
        }
    }
}

#[test]
fn protocols_do_not_import_each_other() {
    let packetlane = imports("packetlane");
    let protocols = ["bip324/", "quic/", "sha256d/"];
    for protocol in protocols {
        assert!(
            packetlane.of.keys().any(|file| file.starts_with(protocol)),
            "{protocol}"
        );
        for other in protocols.iter().filter(|other| **other != protocol) {
            let found = packetlane.between(
                |file| file.starts_with(protocol),
                |file| file.starts_with(other),
            );
            nothing(&found, "a protocol must not import another");
        }
        // The modules below the protocols import none of them.
        let below = |file: &str| {
            ["arena", "batch", "engine", "bitcoin", "copy"]
                .iter()
                .any(|prefix| file.starts_with(prefix))
        };
        let found = packetlane.between(below, |file| file.starts_with(protocol));
        nothing(
            &found,
            "arena, batch, engine and bitcoin must not import a protocol",
        );
    }
}

#[test]
fn packetlane_has_few_public_names() {
    let names = public_names(&root().join("crates/packetlane"));
    println!("packetlane has {} public names:", names.len());
    for name in &names {
        println!("  {name}");
    }
    assert!(
        names.len() <= MAX_PUBLIC_NAMES,
        "packetlane has {} public names, more than {MAX_PUBLIC_NAMES}",
        names.len()
    );
}

#[test]
fn experiments_do_not_import_each_other() {
    let lab = imports("lab");
    let is_experiment = |file: &str| file.starts_with("experiments/") && !file.ends_with("mod.rs");
    assert!(lab.of.keys().filter(|file| is_experiment(file)).count() > 20);
    nothing(
        &lab.between(is_experiment, is_experiment),
        "an experiment must not import another",
    );
    // Only the registry imports experiments, and the output code names none.
    let others = |file: &str| !is_experiment(file) && file != "experiments/mod.rs";
    nothing(
        &lab.between(others, is_experiment),
        "only the registry may import experiments",
    );
    for (file, strings) in lab
        .strings
        .iter()
        .filter(|(file, _)| file.starts_with("show/"))
    {
        for area in ["bip324.", "quic.", "sha256d.", "gpu.", "gateway."] {
            let named = strings.iter().find(|string| string.starts_with(area));
            assert!(
                named.is_none(),
                "lab/src/{file} names an experiment: {named:?}"
            );
        }
    }
}

/// A crate with these files.
fn planted(files: &[(&str, &str)]) -> Imports {
    let files: BTreeMap<_, _> = files.iter().copied().collect();
    Imports::read("lib.rs", &|path| {
        files.get(path).map(|text| (*text).to_owned())
    })
}

#[test]
fn planted_cycles_are_found() {
    let circle = |a: &str, b: &str| {
        planted(&[
            ("lib.rs", "mod a; mod b; pub use a::A;"),
            ("a.rs", a),
            ("b.rs", b),
        ])
        .circle()
    };
    let a = "use crate::b::B; pub struct A;";
    assert_eq!(circle(a, "pub struct B;"), None);
    for b in [
        "pub struct B; use crate::a::A;",
        "pub struct B; use super::a;",
        // Through a re-export of the root.
        "pub struct B; use crate::A;",
        "pub struct B; fn f() { crate::A; }",
        "pub struct B; type T = Vec<super::a::A>;",
        "pub struct B; macro_rules! m { () => { $crate::a::A }; } ",
        "pub struct B; macro_rules! m { () => { use crate::a::{A}; }; } ",
        "pub struct B; mod inside { use super::super::a::A; }",
    ] {
        let found = circle(a, b).unwrap_or_else(|| panic!("{b}"));
        assert_eq!(found, ["a.rs", "b.rs"], "{b}");
    }
    for b in [
        "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }",
        "pub struct B; #[cfg(test)] use crate::a::A;",
        "pub struct B; // use crate::a::A;",
        "pub struct B; use other::a::A;",
    ] {
        assert_eq!(circle(a, b), None, "{b}");
    }
    // Files of a module that is declared within a file.
    let inline = planted(&[
        ("lib.rs", "mod p { mod a; mod b; }"),
        ("p/a.rs", "use super::b; use crate::p::b::B;"),
        ("p/b.rs", "use crate::p::a; pub struct B;"),
    ]);
    assert_eq!(inline.circle().expect("a circle"), ["p/a.rs", "p/b.rs"]);
    // A child uses an item of its parent, which uses the child.
    let parent = |text| {
        planted(&[
            ("lib.rs", "mod p;"),
            ("p/mod.rs", text),
            ("p/c.rs", "use super::P; pub struct C;"),
        ])
    };
    assert!(
        parent("mod c; pub use c::C; pub struct P;")
            .circle()
            .is_some()
    );
    assert!(parent("mod c; pub struct P;").circle().is_none());
}

#[test]
fn planted_words_are_found() {
    let imports = planted(&[
        ("lib.rs", "mod k;"),
        (
            "k.rs",
            "/// avx512 is fine here. \n fn f() { let s = \"gpu.kernel\"; g::<_mm512>(s) }",
        ),
    ]);
    assert!(imports.words["k.rs"].contains("_mm512"));
    assert!(!imports.words["k.rs"].contains("avx512"));
    assert!(imports.strings["k.rs"].contains("gpu.kernel"));
}

#[test]
fn planted_public_names_are_found() {
    let names = |root: &str| {
        let root = root.to_owned();
        let names = read_public_names(&|path| match path {
            "lib.rs" => Some(root.clone()),
            "a.rs" => Some("pub struct A; pub(crate) struct B; pub fn f() {} mod inner {}".into()),
            _ => None,
        });
        names.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(names("mod a;"), [""; 0]);
    assert_eq!(names("pub mod a;"), ["a::A", "a::f"]);
    assert_eq!(names("mod a; pub use a::{A, A as Again};"), ["a::A"]);
    assert_eq!(
        names("pub mod a; pub use a::A; pub use a as b;"),
        ["a::A", "a::f"]
    );
    assert_eq!(names("mod a; pub mod c { pub use super::a::A; }"), ["a::A"]);
    assert_eq!(
        names("pub use other::Thing; use other::Hidden;"),
        ["other::Thing"]
    );
    assert_eq!(names("pub const C: u8 = 1; const D: u8 = 1;"), ["C"]);
    assert_eq!(names("#[cfg(test)] pub mod a; pub type T = u8;"), ["T"]);
    assert_eq!(names("#[cfg(feature = \"internals\")] pub mod a;"), [""; 0]);
    assert_eq!(
        names("#[cfg(feature = \"std\")] pub mod a;"),
        ["a::A", "a::f"]
    );
}
