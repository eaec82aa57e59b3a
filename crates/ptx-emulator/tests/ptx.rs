//! Errors that the PTX emulator reports, on kernels of a few lines.

use packetlane_ptx_emulator::{AccessError, Cause, Fault, Memory, Module, Order};

/// A kernel with a pointer, a number, and these instructions. `%r1` is the thread's number,
/// `%rd2` the pointer plus four times that.
fn kernel(instructions: &str) -> String {
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\n.visible .entry k(\n\
         .param .u64 k_param_0,\n.param .u32 k_param_1\n)\n.maxntid 64, 1, 1\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<9>;\n.reg .b64 %rd<9>;\n\
         ld.param.u64 %rd1, [k_param_0];\nmov.u32 %r1, %tid.x;\n\
         mul.wide.u32 %rd2, %r1, 4;\nadd.s64 %rd2, %rd1, %rd2;\n\
         {instructions}\nret;\n}}\n"
    )
}

/// Runs it with 64 threads and returns its memory.
fn run(instructions: &str) -> Result<Vec<u32>, Fault> {
    let module = Module::parse(&kernel(instructions)).unwrap_or_else(|error| panic!("{error}"));
    let mut results = [Order::Forward, Order::Reversed, Order::Permuted(3)].map(|order| {
        let mut memory = Memory::default();
        let words = memory.alloc(256);
        memory.write(words, &[0; 256]).expect("just allocated");
        module.launch("k", 1, 64, &[words, 64], &mut memory, order)?;
        let mut bytes = [0; 256];
        memory.read(words, &mut bytes).expect("it was written");
        let words = bytes.chunks_exact(4);
        Ok(words
            .map(|w| u32::from_le_bytes(w.try_into().expect("4")))
            .collect())
    });
    // The order of the threads changes neither the result nor the error.
    let cause = |result: &Result<Vec<u32>, Fault>| {
        result.clone().map_err(|fault| match fault.cause {
            Cause::Access(why, _) => Cause::Access(why, 0),
            cause => cause,
        })
    };
    assert_eq!(cause(&results[0]), cause(&results[1]));
    assert_eq!(cause(&results[0]), cause(&results[2]));
    std::mem::replace(&mut results[0], Ok(Vec::new()))
}

fn access(instructions: &str) -> AccessError {
    match run(instructions).expect_err("it is refused").cause {
        Cause::Access(why, _) => why,
        cause => panic!("{cause:?}"),
    }
}

#[test]
fn valid_kernels_run() {
    let squares =
        run("mul.lo.s32 %r2, %r1, %r1;\nst.global.u32 [%rd2], %r2;").expect("it is right");
    assert_eq!(squares, (0..64).map(|i| i * i).collect::<Vec<_>>());
    // Each thread gets the number of the lane to its left, in segments of four.
    let left = "add.s32 %r2, %r1, -1;\nshfl.sync.idx.b32 %r3|%p1, %r1, %r2, 7199, -1;\nst.global.u32 [%rd2], %r3;";
    let wanted = (0..64).map(|i| if i % 4 == 0 { i + 3 } else { i - 1 });
    assert_eq!(run(left).expect("it is right"), wanted.collect::<Vec<_>>());
}

#[test]
fn access_outside_of_an_allocation() {
    assert_eq!(
        access("ld.global.u32 %r2, [%rd2+256];"),
        AccessError::Outside
    );
    assert_eq!(access("ld.global.u32 %r2, [%rd2+4];"), AccessError::Outside);
}

#[test]
fn misaligned_words() {
    assert_eq!(
        access("ld.global.u32 %r2, [%rd1+2];"),
        AccessError::Misaligned
    );
    assert_eq!(
        access("ld.global.v4.u32 {%r2, %r3, %r4, %r5}, [%rd1+8];"),
        AccessError::Misaligned
    );
}

#[test]
fn threads_that_race_for_a_byte() {
    // All write the same byte; one reads what another writes; a word overlaps its neighbour.
    assert_eq!(access("st.global.u8 [%rd1], %r1;"), AccessError::Race);
    assert_eq!(
        access("ld.global.u32 %r2, [%rd1];\nst.global.u32 [%rd2], %r2;"),
        AccessError::Race
    );
    assert_eq!(
        access(
            "and.b32 %r2, %r1, 1;\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra $A;\n\
         st.global.u8 [%rd2], %r1;\nbra $B;\n$A:\nst.global.u64 [%rd2], %rd1;\n$B:"
        ),
        AccessError::Race
    );
    // All may read the same byte, and neighbouring bytes do not conflict.
    run("ld.global.u32 %r2, [%rd1];").expect("reading is free");
    run("cvt.u64.u32 %rd3, %r1;\nadd.s64 %rd3, %rd1, %rd3;\nst.global.u8 [%rd3], %r1;")
        .expect("each its own");
}

#[test]
fn uninitialised_registers() {
    let fault = run("add.s32 %r2, %r3, 1;").expect_err("it is refused");
    assert_eq!(fault.cause, Cause::UninitialisedRegister);
    assert_eq!(fault.instruction, "add.s32 %r2, %r3, 1;");
    assert_eq!(fault.line, 18);
}

#[test]
fn threads_that_miss_a_shuffle() {
    let half =
        "setp.lt.u32 %p1, %r1, 40;\n@%p1 bra $A;\nshfl.sync.idx.b32 %r3|%p2, %r1, 0, 31, -1;\n$A:";
    assert_eq!(
        run(half).expect_err("it is refused").cause,
        Cause::Divergent
    );
    let members = "shfl.sync.idx.b32 %r3|%p2, %r1, 0, 31, 1;";
    assert_eq!(
        run(members).expect_err("it is refused").cause,
        Cause::Members(1)
    );
}

#[test]
fn uninitialised_or_freed_memory() {
    let module = Module::parse(&kernel("ld.global.u32 %r2, [%rd1];")).expect("it is known");
    let mut memory = Memory::default();
    let words = memory.alloc(256);
    let launch = |memory: &mut Memory| {
        let fault = module.launch("k", 1, 64, &[words, 64], memory, Order::Forward);
        fault.expect_err("it is refused").cause
    };
    let cause = Cause::Access(AccessError::Uninitialised, words);
    assert_eq!(launch(&mut memory), cause);
    assert_eq!(
        memory.read(words, &mut [0]),
        Err(AccessError::Uninitialised)
    );
    memory.free(words).expect("it is there");
    assert_eq!(memory.contents().map(<[u8]>::len).sum::<usize>(), 0);
    assert_eq!(
        launch(&mut memory),
        Cause::Access(AccessError::Outside, words)
    );
}

#[test]
fn launches_with_wrong_parameters() {
    let module = Module::parse(&kernel("")).expect("it is known");
    let launch = |entry: &str, block: u32, params: &[u64]| {
        let launched = module.launch(
            entry,
            1,
            block,
            params,
            &mut Memory::default(),
            Order::Forward,
        );
        launched.map_err(|fault| fault.cause)
    };
    assert_eq!(launch("k", 64, &[0, 1]), Ok(64 * 5));
    assert_eq!(launch("other", 64, &[0, 1]), Err(Cause::NoSuchEntry));
    assert_eq!(launch("k", 64, &[0]), Err(Cause::Parameters));
    assert_eq!(launch("k", 64, &[0, 1 << 32]), Err(Cause::Parameters));
    assert_eq!(launch("k", 96, &[0, 1]), Err(Cause::Threads));
    assert_eq!(launch("k", 33, &[0, 1]), Err(Cause::Threads));
}

#[test]
fn unsupported_lines_are_reported() {
    for (line, why) in [
        (
            "brev.b32 %r2, %r1;",
            "unsupported instruction: no kernel has it",
        ),
        (
            "@%p1 add.s32 %r2, %r1, 1;",
            "only branches may have a condition",
        ),
        ("bra $nowhere;", "the label does not exist"),
        ("add.s32 %r2, %r99, 1;", "expected a register or a constant"),
        (
            "ld.param.u32 %r2, [k_param_0];",
            "the parameter does not have this size",
        ),
    ] {
        let error = Module::parse(&kernel(line))
            .err()
            .expect("it must be refused");
        assert_eq!(
            (error.line, error.text.as_str(), error.why),
            (18, line, why)
        );
    }
}
