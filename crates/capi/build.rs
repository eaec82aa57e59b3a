//! The shared library's name and the version of its symbols.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |variable: &str, value: &str| std::env::var(variable).is_ok_and(|it| it == value);
    // The linker that rustc brings for this target, lld, cannot give versions beside the list of
    // symbols that rustc hands it. GNU ld can.
    if is("CARGO_CFG_TARGET_OS", "linux") {
        println!("cargo:rustc-cdylib-link-arg=-fuse-ld=bfd");
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpacketlane.so.0");
        // Each symbol has the version `libpacketlane.so.0`.
        println!("cargo:rustc-cdylib-link-arg=-Wl,--default-symver");
    }
}
