//! The version of the shared library's symbols: the soname that `tools/install` or cargo-c gives it. One that
//! `cargo build` makes has none, so that programs find it by its file name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|it| it == value);
    // The linker that rustc brings for this target, lld, cannot give versions beside the list of
    // symbols that rustc hands it. GNU ld can.
    if is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
        println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
    }
}
