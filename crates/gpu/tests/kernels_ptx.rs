//! The PTX that ships, executed on the CPU, against RustCrypto and `lanes`.

mod kernels;

use gpu::ptx::{Memory, Module, Order};
use kernels::{Batch, Class, Device, Noise, PTX, check, shape};

/// The emulated device, and how many instructions it took.
struct Emulated {
    module: Module,
    order: Order,
    steps: u64,
}

impl Emulated {
    fn new(order: Order) -> Emulated {
        let module = Module::parse(PTX).unwrap_or_else(|error| panic!("{error}"));
        Emulated {
            module,
            order,
            steps: 0,
        }
    }
}

impl Device for Emulated {
    fn run(
        &mut self,
        class: Class,
        open: bool,
        batch: &Batch,
        bytes: &[u8],
    ) -> Result<(Vec<u8>, Vec<u8>), String> {
        let mut memory = Memory::new();
        let mut upload = |bytes: &[u8]| {
            let address = memory.alloc(bytes.len());
            memory.write(address, bytes).expect("just allocated");
            address
        };
        let (arena, packets, keys) = (
            upload(bytes),
            upload(&batch.packets()),
            upload(&batch.keys()),
        );
        let chunks = batch.chunks();
        let chunk_count = chunks.len() / 8;
        let chunks = upload(&chunks);
        let count = batch.jobs.len();
        // Neither is written by the host: what a kernel leaves out is found.
        let (verdicts, partial) = (memory.alloc(count), memory.alloc(chunk_count * 24));
        let mut params = vec![arena, packets, keys, count as u64, verdicts];
        let mut warps = count;
        if class == Class::Chunks {
            params.extend([chunks, chunk_count as u64, partial]);
            warps = chunk_count;
        }
        let (entries, threads) = class.entries(open);
        let grid = (warps as u32 * threads).div_ceil(128);
        for entry in entries {
            let steps = self
                .module
                .launch(entry, grid, 128, &params, &mut memory, self.order);
            self.steps += steps.map_err(|fault| format!("{entry}: {fault}"))?;
        }
        let (mut out, mut said) = (vec![0; bytes.len()], vec![0; count]);
        memory
            .read(arena, &mut out)
            .map_err(|error| error.to_string())?;
        memory
            .read(verdicts, &mut said)
            .map_err(|error| error.to_string())?;
        Ok((out, said))
    }
}

fn passes(device: &mut Emulated, noise: &mut Noise, class: Class, batch: &Batch) {
    check(device, noise, class, batch).unwrap_or_else(|error| panic!("{error}"));
}

/// Every length to 1100, beside each other with nothing between: any alignment comes up.
fn every_length(class: Class) {
    let mut noise = Noise(1);
    let shapes: Vec<_> = (0..=1100)
        .map(|len| {
            shape(
                if len % 3 == 0 { len % 41 } else { 0 },
                len,
                noise.below(16),
            )
        })
        .collect();
    let batch = Batch::new(&mut noise, &shapes);
    let mut device = Emulated::new(Order::Permuted(7));
    let start = std::time::Instant::now();
    passes(&mut device, &mut noise, class, &batch);
    println!(
        "{class:?}: {} million instructions, {:?}",
        device.steps / 1_000_000,
        start.elapsed()
    );
}

#[test]
fn every_length_in_a_thread() {
    every_length(Class::One);
}

#[test]
fn every_length_in_four_threads() {
    every_length(Class::Four);
}

#[test]
fn every_length_in_a_warp() {
    every_length(Class::Warp);
}

#[test]
fn every_length_in_chunks() {
    every_length(Class::Chunks);
}
