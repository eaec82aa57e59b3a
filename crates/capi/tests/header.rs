//! `include/packetlane.h` is what its sources give.

use std::path::Path;

/// In the order in which a reader wants them.
const SOURCES: [&str; 7] = [
    "status",
    "engine",
    "batch",
    "session",
    "handshake",
    "quic",
    "hash",
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
        "include/packetlane.h differs from what the sources give, first in line {}. Renew it: \
         PACKETLANE_RENEW_HEADER=1 cargo test -p packetlane-capi --test header",
        1 + line.unwrap_or(committed.lines().count().min(made.lines().count()))
    );
}

/// Every file of the interface is one of those above.
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
