//! Runs the kernels' PTX with `packetlane_ptx_emulator`.

use packetlane_ptx_emulator::{Memory, Module, Order};

use super::{Batch, Class, Device};

/// The emulated device, its number of executed instructions, and the trace of its last run.
pub(crate) struct Emulated {
    pub(crate) module: Module,
    pub(crate) order: Order,
    pub(crate) steps: u64,
    pub(crate) trace: u64,
}

impl Emulated {
    /// A device for this module text.
    pub(crate) fn new(ptx: &str, order: Order) -> Emulated {
        let module = Module::parse(ptx).unwrap_or_else(|error| panic!("{error}"));
        Emulated {
            module,
            order,
            steps: 0,
            trace: 0,
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
        let mut memory = Memory::default();
        let mut upload = |bytes: &[u8]| {
            let address = memory.alloc(bytes.len());
            memory.write(address, bytes).expect("just allocated");
            address
        };
        let arena = upload(bytes);
        let (packets, keys) = (upload(&batch.packets()), upload(&batch.keys()));
        let chunks = batch.chunks();
        let chunk_count = chunks.len() / 8;
        let chunks = upload(&chunks);
        let count = batch.jobs.len();
        // The host writes neither, so bytes that a kernel omits are found.
        let (verdicts, partial) = (memory.alloc(count), memory.alloc(chunk_count * 24));

        let mut params = vec![arena, packets, keys, count as u64, verdicts];
        let mut units = count;
        if class == Class::Chunks {
            params.extend([chunks, chunk_count as u64, partial]);
            units = chunk_count;
        }
        let (entries, threads) = class.entries(open);
        let grid = (units as u32 * threads).div_ceil(128);
        for entry in entries {
            let steps = self
                .module
                .launch(entry, grid, 128, &params, &mut memory, self.order);
            self.steps += steps.map_err(|fault| format!("{entry}: {fault}"))?;
        }
        self.trace = memory.trace();
        let (mut out, mut said) = (vec![0; bytes.len()], vec![0; count]);
        memory
            .read(arena, &mut out)
            .map_err(|error| format!("the arena: {error}"))?;
        memory
            .read(verdicts, &mut said)
            .map_err(|error| format!("the verdicts: {error}"))?;
        Ok((out, said))
    }
}
