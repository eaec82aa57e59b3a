//! `include/packetlane.h` matches its sources.

use packetlane::bitcoin::Network;
use std::path::Path;

/// In the order of the header.
const SOURCES: [&str; 8] = [
    "status",
    "engine",
    "batch",
    "session",
    "handshake",
    "v1",
    "quic",
    "hash",
];

/// Names in the header that it does not define.
const ENVIRONMENT: [&str; 3] = [
    "PACKETLANE_BACKEND",
    "PACKETLANE_RENEW_HEADER",
    "PACKETLANE_H",
];

#[test]
fn the_header_is_current() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join(format!("src/{source}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/packetlane.h");
    if std::env::var_os("PACKETLANE_RENEW_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    let line = committed
        .lines()
        .zip(made.lines())
        .position(|(a, b)| a != b);
    assert!(
        committed == made,
        "include/packetlane.h does not match its sources, first at line {}. Regenerate it: \
         PACKETLANE_RENEW_HEADER=1 cargo test -p packetlane-capi --test header",
        1 + line.unwrap_or(committed.lines().count().min(made.lines().count()))
    );
}

fn header() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join("include/packetlane.h")).unwrap()
}

/// `cbindgen.toml` repeats them.
#[test]
fn magics_are_those_of_the_library() {
    let header = header();
    for network in Network::ALL {
        let name = format!("{network:?}").to_uppercase();
        let bytes: String = network
            .magic()
            .map(|byte| format!("\\x{byte:02x}"))
            .concat();
        let line = format!("#define PACKETLANE_MAGIC_{name} \"{bytes}\"\n");
        assert!(header.contains(&line), "packetlane.h lacks {line}");
    }
    let count = header.matches("#define PACKETLANE_MAGIC_").count();
    assert_eq!(count, Network::ALL.len());
}

/// The comment of every function lists its errors ("Fails with ...", "Fails like ..."), and every status
/// it names exists.
#[test]
fn every_function_names_its_errors() {
    let header = header();
    let mut comment = String::new();
    let mut functions = 0;
    for line in header.lines() {
        if let Some(words) = line.strip_prefix("//") {
            comment.push_str(words);
            continue;
        }
        if let Some(rest) = line.strip_prefix("packetlane_status ") {
            functions += 1;
            assert!(
                comment.contains(" Fails "),
                "the comment lists no errors: {rest}"
            );
        }
        comment.clear();
    }
    assert!(functions > 40, "{functions}");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for word in header.split(|c| !is_word(c)) {
        if word.starts_with("PACKETLANE_") && !ENVIRONMENT.contains(&word) {
            let defined = [format!("  {word} = "), format!("#define {word} ")];
            let is_defined = defined.iter().any(|text| header.contains(text));
            assert!(
                is_defined,
                "packetlane.h mentions {word} but does not define it"
            );
        }
    }
}

/// `SOURCES` lists every file of the interface.
#[test]
fn no_source_is_forgotten() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            !text.contains("no_mangle") || SOURCES.contains(&name),
            "src/{name}.rs is not in the header"
        );
    }
}
