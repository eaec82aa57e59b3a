//! The kernels' source as C++ on the CPU, under sanitizers and with the threads of a warp in
//! other orders, against RustCrypto and `lanes`.

mod kernels;

use kernels::host_cpp::{HostCpp, SOURCE, compile, compiler};
use kernels::{Class, check, every_length, long, with_aad};
use std::process::Command;

#[test]
fn source_as_cpp_under_sanitizers() {
    let compiler = match compiler() {
        Ok(compiler) => compiler,
        Err(why) => return println!("NOT RUN: the kernels as C++ under sanitizers: {why}"),
    };
    let mut device = HostCpp::build(compiler, "-O1", "kernels", SOURCE);
    for (i, class) in Class::ALL.into_iter().enumerate() {
        let batches = [every_length(i as u64), with_aad(i as u64), long(i as u64)];
        for (order, (batch, mut noise)) in batches.into_iter().enumerate() {
            device.order = [1, 0, 77][(i + order) % 3];
            let start = std::time::Instant::now();
            check(&mut device, &mut noise, class, &batch).unwrap_or_else(|error| panic!("{error}"));
            println!(
                "{class:?}, {} packets: {:?}",
                batch.jobs.len(),
                start.elapsed()
            );
        }
    }
}

#[test]
fn poly1305_at_its_bounds() {
    let compiler = match compiler() {
        Ok(compiler) => compiler,
        Err(why) => return println!("NOT RUN: the kernels' Poly1305 at its bounds: {why}"),
    };
    // A correct implementation, and one that drops a carry, which must be noticed.
    let fault = SOURCE.replacen("    add(h, above, 0, 0, 0, 0);", "    h[0] += above;", 1);
    assert!(fault != SOURCE, "the fault still applies");
    for (name, source, right) in [
        ("poly1305", SOURCE, true),
        ("poly1305-fault", &fault, false),
    ] {
        let program = compile(compiler, "-O1", name, source, "poly1305.cpp");
        let output = Command::new(program)
            .output()
            .expect("the program just built");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), right, "{name}: {said}");
    }
}
