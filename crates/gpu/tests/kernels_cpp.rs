//! The kernels' source as C++ on the CPU, under sanitizers and with the threads of a warp
//! in other orders, against RustCrypto and `lanes`.

mod kernels;

use kernels::host_cpp::{HostCpp, SOURCE, compiler};
use kernels::{Class, check, every_length, long, with_aad};

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
