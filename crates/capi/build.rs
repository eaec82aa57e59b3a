//! Gives the shared library's symbols a version: the soname set by `tools/install` or cargo-c. A library
//! from plain `cargo build` has no soname, and programs find it by its file name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|it| it == value);
    // rustc's bundled linker for this target, lld, cannot add versions to the symbol list that rustc
    // passes. GNU ld can.
    if is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
    }
}
