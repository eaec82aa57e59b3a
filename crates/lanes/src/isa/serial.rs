//! Shared by the SHA-256 instructions of all architectures: the kernels that hash one message, or
//! two interleaved.

/// Defines [`Serial`](crate::kernels::sha256::Serial) kernels from functions of the calling file,
/// which are compiled with `$features` too: `load`, `store` and `store_digest` of a `State`;
/// `state_words`; `block`, `half_block` and `digest_block`, which return `Words`; `four`, `add`,
/// `next_words` and `four_rounds`.
#[allow(unused_macros, reason = "not every target has SHA-256 instructions")]
macro_rules! serial_kernels {
    ($features:literal) => {
        use crate::kernels::sha256::{BLOCK_LEN, INITIAL_STATE, K, PADDING_64, Stream};

        static SERIAL: Serial = Serial {
            one,
            two,
            hash64,
            hash32,
        };

        /// # Safety
        ///
        /// The CPU must have the instructions, and `blocks` blocks must be readable at each
        /// `next_block`.
        #[target_feature(enable = $features)]
        unsafe fn one(stream: &mut Stream, blocks: usize) {
            let mut states = [load(&stream.state)];
            for _ in 0..blocks {
                // SAFETY: the caller guarantees `blocks` readable blocks at each `next_block`, which
                // moves on by one block at a time.
                let w = unsafe { block(stream.next_block) };
                stream.next_block = stream.next_block.wrapping_add(BLOCK_LEN);
                states = compress(states, [w]);
            }
            store(states[0], &mut stream.state);
        }

        /// # Safety
        ///
        /// The CPU must have the instructions, and `blocks` blocks must be readable at each
        /// `next_block`.
        #[target_feature(enable = $features)]
        unsafe fn two(a: &mut Stream, b: &mut Stream, blocks: usize) {
            let mut states = [load(&a.state), load(&b.state)];
            for _ in 0..blocks {
                // SAFETY: the caller guarantees `blocks` readable blocks at each `next_block`, which
                // moves on by one block at a time.
                let w = unsafe { [block(a.next_block), block(b.next_block)] };
                a.next_block = a.next_block.wrapping_add(BLOCK_LEN);
                b.next_block = b.next_block.wrapping_add(BLOCK_LEN);
                states = compress(states, w);
            }
            store(states[0], &mut a.state);
            store(states[1], &mut b.state);
        }

        /// # Safety
        ///
        /// The CPU must have the instructions. `count` messages must be readable and `count` digests
        /// writable.
        #[target_feature(enable = $features)]
        unsafe fn hash64(messages: *const [u8; 64], digests: *mut Digest, count: usize) {
            let message = |i: usize| messages.wrapping_add(i).cast::<u8>();
            // SAFETY: the caller guarantees `count` messages and digests, and the indices are below
            // `count`. Messages are read before digests of the same or a higher index are written.
            unsafe {
                for i in (0..count - count % 2).step_by(2) {
                    let [a, b] = hash64_of([block(message(i)), block(message(i + 1))]);
                    store_digest(a, digests.add(i));
                    store_digest(b, digests.add(i + 1));
                }
                if count % 2 == 1 {
                    let [a] = hash64_of([block(message(count - 1))]);
                    store_digest(a, digests.add(count - 1));
                }
            }
        }

        /// # Safety
        ///
        /// The CPU must have the instructions. `count` messages must be readable and `count` digests
        /// writable.
        #[target_feature(enable = $features)]
        unsafe fn hash32(messages: *const [u8; 32], digests: *mut Digest, count: usize) {
            // SAFETY: the caller guarantees `count` messages and digests, and the indices are below
            // `count`. Messages are read before digests of the same or a higher index are written.
            unsafe {
                for i in (0..count - count % 2).step_by(2) {
                    let w = [half_block(messages.add(i)), half_block(messages.add(i + 1))];
                    let [a, b] = compress([load(&INITIAL_STATE); 2], w);
                    store_digest(a, digests.add(i));
                    store_digest(b, digests.add(i + 1));
                }
                if count % 2 == 1 {
                    let w = half_block(messages.add(count - 1));
                    let [a] = compress([load(&INITIAL_STATE)], [w]);
                    store_digest(a, digests.add(count - 1));
                }
            }
        }

        /// Computes the double hash of 64-byte messages.
        #[target_feature(enable = $features)]
        #[inline]
        fn hash64_of<const N: usize>(messages: [Words; N]) -> [State; N] {
            let start = [load(&INITIAL_STATE); N];
            let first = compress_constant(compress(start, messages), &PADDING_64);
            let mut w = messages;
            for n in 0..N {
                w[n] = digest_block(state_words(first[n]));
            }
            compress(start, w)
        }

        /// Returns the states after one more block each (FIPS 180-4, section 6.2.2).
        #[target_feature(enable = $features)]
        #[inline]
        fn compress<const N: usize>(before: [State; N], mut w: [Words; N]) -> [State; N] {
            let mut states = before;
            for i in 0..4 {
                let mut kw = [before[0][0]; N];
                for (kw, w) in kw.iter_mut().zip(&w) {
                    *kw = add(w[i], four(&K, i));
                }
                four_rounds(&mut states, kw);
            }
            for sixteen in 1..4 {
                for i in 0..4 {
                    let mut kw = [before[0][0]; N];
                    for n in 0..N {
                        w[n][i] = next_words([
                            w[n][i],
                            w[n][(i + 1) % 4],
                            w[n][(i + 2) % 4],
                            w[n][(i + 3) % 4],
                        ]);
                        kw[n] = add(w[n][i], four(&K, 4 * sixteen + i));
                    }
                    four_rounds(&mut states, kw);
                }
            }
            sums(states, before)
        }

        /// Returns the states after a block that is the same for all messages. `kw` is its message
        /// schedule plus the round constants.
        #[target_feature(enable = $features)]
        #[inline]
        fn compress_constant<const N: usize>(before: [State; N], kw: &[u32; 64]) -> [State; N] {
            let mut states = before;
            for i in 0..16 {
                four_rounds(&mut states, [four(kw, i); N]);
            }
            sums(states, before)
        }

        #[target_feature(enable = $features)]
        #[inline]
        fn sums<const N: usize>(mut a: [State; N], b: [State; N]) -> [State; N] {
            for n in 0..N {
                a[n] = [add(a[n][0], b[n][0]), add(a[n][1], b[n][1])];
            }
            a
        }
    };
}
