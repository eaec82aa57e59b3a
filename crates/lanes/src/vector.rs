//! What an algorithm may ask of a vector unit.
//!
//! An algorithm is written once, generic over these traits, marked
//! `#[inline(always)]`. A file of [`crate::isa`] implements the traits for one
//! instruction set and calls the algorithm from a function that has that
//! instruction set enabled, so that everything is inlined into it.
//!
//! A value of an implementing type is a *proof* that this CPU can run its
//! instructions: who makes one vouches for it. That is what makes the methods safe
//! to call, and why nothing here carries `#[target_feature]`.

/// Arithmetic on 32-bit words, one per lane: what the rounds of ChaCha20 and SHA-256
/// are made of. Plain Rust has it for one lane too.
pub(crate) trait Arithmetic: Copy {
    /// One vector.
    type Word: Copy;

    /// The same word in every lane.
    fn splat(self, word: u32) -> Self::Word;

    /// Lane-wise sum modulo 2^32.
    fn add(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise exclusive or.
    fn xor(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise and.
    fn and(self, a: Self::Word, b: Self::Word) -> Self::Word;

    /// Lane-wise rotation to the left by `N` bits, 0 < `N` < 32.
    fn rotate_left<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// Lane-wise shift to the right by `N` bits, 0 < `N` < 32.
    fn shift_right<const N: i32>(self, a: Self::Word) -> Self::Word;

    /// `a`, without the compiler knowing how it has come about. It takes sums apart and
    /// adds in the order in which it finds the numbers, so that the last one to be known
    /// is added first and waits for the others: 11 cycles a round of SHA-256 on a Zen 5
    /// instead of 9. Where registers are few, there is nothing to gain.
    #[inline(always)]
    fn in_order(self, a: Self::Word) -> Self::Word {
        a
    }

    /// Each bit of `b` where `a` has a 1, of `c` where it has a 0.
    #[inline(always)]
    fn choose(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(c, self.and(a, self.xor(b, c)))
    }

    /// Each bit as two at least of the three have it.
    #[inline(always)]
    fn majority(self, a: Self::Word, b: Self::Word, c: Self::Word) -> Self::Word {
        self.xor(b, self.and(self.xor(a, b), self.xor(b, c)))
    }
}

/// Vectors of 32-bit words, and the ways between them and memory.
pub(crate) trait Words: Arithmetic {
    /// How many words one vector holds; at most [`MAX_LANES`].
    const LANES: usize;

    /// The same instruction set with fewer lanes, for less work at a time; the
    /// same as `Self` where there is nothing to gain.
    type Narrow: Words;

    /// The narrower one.
    fn narrow(self) -> Self::Narrow;

    /// The first `LANES` words of `words`, one in each lane.
    fn load(self, words: &[u32]) -> Self::Word;

    /// The reverse of [`Words::load`].
    fn store(self, word: Self::Word, words: &mut [u32]);

    /// Turns 16 bytes of each lane into four vectors: lane `l` of vector `w` is the
    /// big-endian word at byte `4w` behind `places[l]`. Reads the first `LANES`
    /// places.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load_big_endian(self, places: &[*const u8], offset: usize) -> [Self::Word; 4];

    /// The reverse, for places `stride` bytes apart.
    ///
    /// # Safety
    ///
    /// There must be `LANES` times 16 bytes that may be written.
    unsafe fn store_big_endian(self, words: [Self::Word; 4], place: *mut u8, stride: usize);

    /// Turns four words of each lane's place, from byte `AT` on, into four vectors: lane
    /// `l` of vector `w` is little-endian word `AT / 4 + w` of `places[first + l]`.
    fn gather<const AT: usize, const N: usize>(
        self,
        places: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [Self::Word; 4];

    /// Turns one row of four words per lane into four vectors: lane `l` of
    /// vector `w` is `rows[first + l][w]`.
    fn rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [Self::Word; 4];

    /// The number of each lane, from 0 on.
    fn numbers(self) -> Self::Word;

    /// Turns sixteen vectors into `LANES` blocks of 64 bytes: bytes `4w..4w + 4`
    /// of block `l` are lane `l` of vector `w`, little-endian. Writes them to
    /// `blocks` or, with `XOR`, exclusive-ors them into what is there.
    ///
    /// # Safety
    ///
    /// `blocks` must point to `LANES` blocks that may be written and, with `XOR`,
    /// read.
    unsafe fn scatter<const XOR: bool>(self, words: &[Self::Word; 16], blocks: *mut [u8; 64]);

    /// Exclusive-ors as much of `block` as `text` is long, at most 64 bytes,
    /// into `text`. (Here and below: what sets do that have no masks for bytes.)
    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        crate::isa::portable::xor_bytes(text, block);
    }

    /// The same, and returns what the text has become, padded with zeros.
    #[inline(always)]
    fn xor_padded(self, text: &mut [u8], block: &[u8; 64]) -> [u8; 64] {
        let mut result = self.padded(text);
        self.xor_bytes(&mut result[..text.len()], block);
        text.copy_from_slice(&result[..text.len()]);
        result
    }

    /// A text of at most 64 bytes, padded with zeros.
    #[inline(always)]
    fn padded(self, text: &[u8]) -> [u8; 64] {
        let mut padded = [0; 64];
        padded[..text.len()].copy_from_slice(text);
        padded
    }
}

/// Vectors of rows of four words, as a state of ChaCha20 has four, of several blocks
/// beside each other.
pub(crate) trait Rows: Arithmetic {
    /// How many blocks there are; at most [`MAX_LANES`] / 3.
    const BLOCKS: usize;

    /// How many such vectors side by side are sooner than lanes: 2, or 3, and then they leave
    /// time to hash a long packet beside them. 1 for what is several vectors already.
    const BESIDE: usize;

    /// The same row of every block.
    fn row(self, row: &[u32; 4]) -> Self::Word;

    /// Adds its number to the first word of each block, from 0 on.
    fn number(self, row: Self::Word) -> Self::Word;

    /// Rows whose word i is word i + `N`, modulo 4, of these.
    fn turn<const N: usize>(self, row: Self::Word) -> Self::Word;

    /// Writes `BLOCKS` blocks, each as its rows one behind the other.
    ///
    /// # Safety
    ///
    /// There must be so many that may be written.
    unsafe fn store_rows(self, rows: [Self::Word; 4], blocks: *mut [u8; 64]);
}

impl<R: Rows> Rows for Pair<R> {
    const BLOCKS: usize = 2 * R::BLOCKS;
    const BESIDE: usize = 1;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [R::Word; 2] {
        [self.0.row(row); 2]
    }

    #[inline(always)]
    fn number(self, [a, b]: [R::Word; 2]) -> [R::Word; 2] {
        let behind = self.0.row(&[R::BLOCKS as u32, 0, 0, 0]);
        [self.0.number(a), self.0.add(self.0.number(b), behind)]
    }

    #[inline(always)]
    fn turn<const N: usize>(self, [a, b]: [R::Word; 2]) -> [R::Word; 2] {
        [self.0.turn::<N>(a), self.0.turn::<N>(b)]
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [[R::Word; 2]; 4], blocks: *mut [u8; 64]) {
        // SAFETY: the caller vouches for twice the blocks of `R`.
        unsafe {
            self.0.store_rows([a[0], b[0], c[0], d[0]], blocks);
            let blocks = blocks.add(R::BLOCKS);
            self.0.store_rows([a[1], b[1], c[1], d[1]], blocks);
        }
    }
}

/// Three vectors of rows side by side.
#[derive(Clone, Copy)]
pub(crate) struct Triple<R>(pub(crate) R);

/// Applies a method to the three vectors.
macro_rules! all_three {
    ($self:ident.$method:ident $(::<$n:ident>)? ($($arg:expr),+)) => {
        [
            $self.0.$method $(::<$n>)? ($($arg[0]),+),
            $self.0.$method $(::<$n>)? ($($arg[1]),+),
            $self.0.$method $(::<$n>)? ($($arg[2]),+),
        ]
    };
}

impl<R: Arithmetic> Arithmetic for Triple<R> {
    type Word = [R::Word; 3];

    #[inline(always)]
    fn splat(self, word: u32) -> [R::Word; 3] {
        [self.0.splat(word); 3]
    }

    #[inline(always)]
    fn add(self, a: [R::Word; 3], b: [R::Word; 3]) -> [R::Word; 3] {
        all_three!(self.add(a, b))
    }

    #[inline(always)]
    fn xor(self, a: [R::Word; 3], b: [R::Word; 3]) -> [R::Word; 3] {
        all_three!(self.xor(a, b))
    }

    #[inline(always)]
    fn and(self, a: [R::Word; 3], b: [R::Word; 3]) -> [R::Word; 3] {
        all_three!(self.and(a, b))
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: [R::Word; 3]) -> [R::Word; 3] {
        all_three!(self.rotate_left::<N>(a))
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: [R::Word; 3]) -> [R::Word; 3] {
        all_three!(self.shift_right::<N>(a))
    }
}

impl<R: Rows> Rows for Triple<R> {
    const BLOCKS: usize = 3 * R::BLOCKS;
    const BESIDE: usize = 1;

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [R::Word; 3] {
        [self.0.row(row); 3]
    }

    #[inline(always)]
    fn number(self, [a, b, c]: [R::Word; 3]) -> [R::Word; 3] {
        let [a, b] = Pair(self.0).number([a, b]);
        let behind = self.0.row(&[2 * R::BLOCKS as u32, 0, 0, 0]);
        [a, b, self.0.add(self.0.number(c), behind)]
    }

    #[inline(always)]
    fn turn<const N: usize>(self, row: [R::Word; 3]) -> [R::Word; 3] {
        let [a, b, c] = row;
        [
            self.0.turn::<N>(a),
            self.0.turn::<N>(b),
            self.0.turn::<N>(c),
        ]
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [[R::Word; 3]; 4], mut blocks: *mut [u8; 64]) {
        // SAFETY: the caller vouches for three times the blocks of `R`.
        unsafe {
            for i in 0..3 {
                self.0.store_rows([a[i], b[i], c[i], d[i]], blocks);
                blocks = blocks.add(R::BLOCKS);
            }
        }
    }
}

/// Applies a method to both vectors of a pair.
macro_rules! both {
    ($self:ident.$method:ident $(::<$n:ident>)? ($($arg:expr),+)) => {
        [
            $self.0.$method $(::<$n>)? ($($arg[0]),+),
            $self.0.$method $(::<$n>)? ($($arg[1]),+),
        ]
    };
}

/// Two vectors side by side.
///
/// An addition takes two cycles on a Zen 5, and one state of ChaCha20 has no more
/// than four chains of them that are independent; a second state fills the time
/// that the first one waits, even where the registers do not hold both.
#[derive(Clone, Copy)]
pub(crate) struct Pair<W>(pub(crate) W);

impl<W: Arithmetic> Arithmetic for Pair<W> {
    type Word = [W::Word; 2];

    #[inline(always)]
    fn splat(self, word: u32) -> [W::Word; 2] {
        [self.0.splat(word); 2]
    }

    #[inline(always)]
    fn add(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.add(a, b))
    }

    #[inline(always)]
    fn xor(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.xor(a, b))
    }

    #[inline(always)]
    fn and(self, a: [W::Word; 2], b: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.and(a, b))
    }

    #[inline(always)]
    fn rotate_left<const N: i32>(self, a: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.rotate_left::<N>(a))
    }

    #[inline(always)]
    fn shift_right<const N: i32>(self, a: [W::Word; 2]) -> [W::Word; 2] {
        both!(self.shift_right::<N>(a))
    }
}

impl<W: Words> Words for Pair<W> {
    const LANES: usize = 2 * W::LANES;
    type Narrow = W;

    #[inline(always)]
    fn narrow(self) -> W {
        self.0
    }

    #[inline(always)]
    fn load(self, words: &[u32]) -> [W::Word; 2] {
        [self.0.load(words), self.0.load(&words[W::LANES..])]
    }

    #[inline(always)]
    fn store(self, word: [W::Word; 2], words: &mut [u32]) {
        self.0.store(word[0], words);
        self.0.store(word[1], &mut words[W::LANES..]);
    }

    #[inline(always)]
    unsafe fn load_big_endian(self, places: &[*const u8], offset: usize) -> [[W::Word; 2]; 4] {
        // SAFETY: the caller vouches for all lanes.
        let (a, b) = unsafe {
            (
                self.0.load_big_endian(places, offset),
                self.0.load_big_endian(&places[W::LANES..], offset),
            )
        };
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    unsafe fn store_big_endian(self, words: [[W::Word; 2]; 4], place: *mut u8, stride: usize) {
        let [w, x, y, z] = words;
        // SAFETY: the caller vouches for twice the lanes of `W`.
        unsafe {
            self.0
                .store_big_endian([w[0], x[0], y[0], z[0]], place, stride);
            let place = place.add(W::LANES * stride);
            self.0
                .store_big_endian([w[1], x[1], y[1], z[1]], place, stride);
        }
    }

    #[inline(always)]
    fn gather<const AT: usize, const N: usize>(
        self,
        places: &[&[u8; N]; MAX_LANES],
        first: usize,
    ) -> [[W::Word; 2]; 4] {
        let a = self.0.gather::<AT, N>(places, first);
        let b = self.0.gather::<AT, N>(places, first + W::LANES);
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    fn rows(self, rows: &[[u32; 4]; MAX_LANES], first: usize) -> [[W::Word; 2]; 4] {
        let a = self.0.rows(rows, first);
        let b = self.0.rows(rows, first + W::LANES);
        [[a[0], b[0]], [a[1], b[1]], [a[2], b[2]], [a[3], b[3]]]
    }

    #[inline(always)]
    fn numbers(self) -> [W::Word; 2] {
        let numbers = self.0.numbers();
        let lanes = W::LANES as u32;
        [numbers, self.0.add(numbers, self.0.splat(lanes))]
    }

    #[inline(always)]
    unsafe fn scatter<const XOR: bool>(self, words: &[[W::Word; 2]; 16], blocks: *mut [u8; 64]) {
        // A loop and not `map`: a closure would not be inlined everywhere.
        let mut halves = [[words[0][0]; 16]; 2];
        for (w, &[a, b]) in words.iter().enumerate() {
            (halves[0][w], halves[1][w]) = (a, b);
        }
        // SAFETY: the caller vouches for twice the lanes of `W`.
        unsafe {
            self.0.scatter::<XOR>(&halves[0], blocks);
            self.0.scatter::<XOR>(&halves[1], blocks.add(W::LANES));
        }
    }

    #[inline(always)]
    fn xor_bytes(self, text: &mut [u8], block: &[u8; 64]) {
        self.0.xor_bytes(text, block);
    }

    #[inline(always)]
    fn xor_padded(self, text: &mut [u8], block: &[u8; 64]) -> [u8; 64] {
        self.0.xor_padded(text, block)
    }

    #[inline(always)]
    fn padded(self, text: &[u8]) -> [u8; 64] {
        self.0.padded(text)
    }
}

/// Vectors of 64-bit numbers, one per lane: what limbs are kept in.
pub(crate) trait Longs: Copy {
    /// How many numbers one vector holds; at most [`MAX_TAGS`].
    const LANES: usize;

    /// One vector.
    type Long: Copy;

    /// The same number in every lane.
    fn splat(self, value: u64) -> Self::Long;

    /// A number for each lane; reads the first `LANES`.
    fn per_lane(self, values: &[u64]) -> Self::Long;

    /// `long` in the first `lanes` lanes and 0 in the others.
    fn first(self, lanes: usize, long: Self::Long) -> Self::Long;

    /// The number in each lane; writes the first `LANES`.
    fn store(self, long: Self::Long, values: &mut [u64]);

    /// The 16 bytes `offset` bytes behind each place, as two little-endian
    /// numbers. Reads the first `LANES` places.
    ///
    /// # Safety
    ///
    /// Those bytes must be readable.
    unsafe fn load(self, places: &[*const u8], offset: usize) -> (Self::Long, Self::Long);

    /// The 16 bytes of block l of a run of `LANES` blocks as two little-endian
    /// numbers in lane l.
    ///
    /// # Safety
    ///
    /// The run at `blocks` must be readable.
    unsafe fn load_run(self, blocks: *const u8) -> (Self::Long, Self::Long);

    /// Runs of four blocks of 16 bytes: lane l gets block l modulo 4 of the run
    /// `offset` bytes behind place l / 4, as two little-endian numbers. Reads the
    /// first `LANES` / 4 places.
    ///
    /// # Safety
    ///
    /// Those runs must be readable.
    unsafe fn load_fours(self, places: &[*const u8], offset: usize) -> (Self::Long, Self::Long);

    /// In every lane the sum modulo 2^64 of the four lanes of which it is one: the
    /// first four, the second four and so on.
    fn sum_fours(self, a: Self::Long) -> Self::Long;

    /// The sum of all lanes modulo 2^64.
    fn sum(self, a: Self::Long) -> u64;

    /// Lane-wise sum modulo 2^64.
    fn add(self, a: Self::Long, b: Self::Long) -> Self::Long;

    /// 1 where `sum`, which is `a` and another number modulo 2^64, is below `a`:
    /// what did not fit.
    fn carry(self, a: Self::Long, sum: Self::Long) -> Self::Long;

    /// Lane-wise and.
    fn and(self, a: Self::Long, b: Self::Long) -> Self::Long;

    /// Lane-wise or.
    fn or(self, a: Self::Long, b: Self::Long) -> Self::Long;

    /// Lane-wise shift to the left by `N` bits.
    fn shift_left<const N: u32>(self, a: Self::Long) -> Self::Long;

    /// Lane-wise shift to the right by `N` bits.
    fn shift_right<const N: u32>(self, a: Self::Long) -> Self::Long;
}

/// Numbers of 64 bits that are made of words: the way from ChaCha20's registers into
/// Poly1305's.
pub(crate) trait OfWords<V: Words>: Longs {
    /// `low` + 2^32 `high`, lane by lane.
    fn of_words(self, low: V::Word, high: V::Word) -> Self::Long;
}

/// Two vectors of numbers side by side: the instructions of one fill the time that
/// the other's take.
impl<L: Longs> Longs for Pair<L> {
    const LANES: usize = 2 * L::LANES;
    type Long = [L::Long; 2];

    #[inline(always)]
    fn splat(self, value: u64) -> [L::Long; 2] {
        [self.0.splat(value); 2]
    }

    #[inline(always)]
    fn per_lane(self, values: &[u64]) -> [L::Long; 2] {
        [
            self.0.per_lane(values),
            self.0.per_lane(&values[L::LANES..]),
        ]
    }

    #[inline(always)]
    fn first(self, lanes: usize, long: [L::Long; 2]) -> [L::Long; 2] {
        [
            self.0.first(lanes.min(L::LANES), long[0]),
            self.0.first(lanes.saturating_sub(L::LANES), long[1]),
        ]
    }

    #[inline(always)]
    fn store(self, long: [L::Long; 2], values: &mut [u64]) {
        self.0.store(long[0], values);
        self.0.store(long[1], &mut values[L::LANES..]);
    }

    #[inline(always)]
    unsafe fn load(self, places: &[*const u8], offset: usize) -> ([L::Long; 2], [L::Long; 2]) {
        // SAFETY: the caller vouches for all lanes.
        let (a, b) = unsafe {
            (
                self.0.load(places, offset),
                self.0.load(&places[L::LANES..], offset),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    unsafe fn load_run(self, blocks: *const u8) -> ([L::Long; 2], [L::Long; 2]) {
        // SAFETY: the caller vouches for twice the lanes of `L`.
        let (a, b) = unsafe {
            (
                self.0.load_run(blocks),
                self.0.load_run(blocks.add(16 * L::LANES)),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    unsafe fn load_fours(
        self,
        places: &[*const u8],
        offset: usize,
    ) -> ([L::Long; 2], [L::Long; 2]) {
        // SAFETY: the caller vouches for all places.
        let (a, b) = unsafe {
            (
                self.0.load_fours(places, offset),
                self.0.load_fours(&places[L::LANES / 4..], offset),
            )
        };
        ([a.0, b.0], [a.1, b.1])
    }

    #[inline(always)]
    fn sum_fours(self, a: [L::Long; 2]) -> [L::Long; 2] {
        [self.0.sum_fours(a[0]), self.0.sum_fours(a[1])]
    }

    #[inline(always)]
    fn sum(self, a: [L::Long; 2]) -> u64 {
        self.0.sum(self.0.add(a[0], a[1]))
    }

    #[inline(always)]
    fn add(self, a: [L::Long; 2], b: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.add(a, b))
    }

    #[inline(always)]
    fn carry(self, a: [L::Long; 2], sum: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.carry(a, sum))
    }

    #[inline(always)]
    fn and(self, a: [L::Long; 2], b: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.and(a, b))
    }

    #[inline(always)]
    fn or(self, a: [L::Long; 2], b: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.or(a, b))
    }

    #[inline(always)]
    fn shift_left<const N: u32>(self, a: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.shift_left::<N>(a))
    }

    #[inline(always)]
    fn shift_right<const N: u32>(self, a: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.shift_right::<N>(a))
    }
}

/// Multiplication of limbs of 44 bits, whose products need more than 64: their
/// low and high 52 bits come apart.
pub(crate) trait Limbs44: Longs {
    /// `sum` + the low 52 bits of `a * b`, of which only 52 bits count.
    fn multiply_add_low(self, sum: Self::Long, a: Self::Long, b: Self::Long) -> Self::Long;

    /// `sum` + what is above the low 52 bits of that product.
    fn multiply_add_high(self, sum: Self::Long, a: Self::Long, b: Self::Long) -> Self::Long;
}

/// Multiplication of limbs of 26 bits, whose products fit 64.
pub(crate) trait Limbs26: Longs {
    /// The same number in every lane, without the compiler knowing it. Where it
    /// knows that numbers are below 2^32, it takes their product for one of 64
    /// bits, forgets in the next loop why that was the same, and emulates it: twice
    /// the instructions. So what leads to a factor must not be bounded by
    /// constants.
    #[inline(always)]
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    fn unknown(self, mut value: u64) -> Self::Long {
        // SAFETY: no instruction.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            core::arch::asm!("/* {} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags));
        }
        self.splat(value)
    }

    /// Lane-wise product of the low 32 bits.
    fn multiply(self, a: Self::Long, b: Self::Long) -> Self::Long;
}

impl<L: Limbs44> Limbs44 for Pair<L> {
    #[inline(always)]
    fn multiply_add_low(self, sum: [L::Long; 2], a: [L::Long; 2], b: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.multiply_add_low(sum, a, b))
    }

    #[inline(always)]
    fn multiply_add_high(
        self,
        sum: [L::Long; 2],
        a: [L::Long; 2],
        b: [L::Long; 2],
    ) -> [L::Long; 2] {
        both!(self.multiply_add_high(sum, a, b))
    }
}

impl<L: Limbs26> Limbs26 for Pair<L> {
    #[inline(always)]
    fn multiply(self, a: [L::Long; 2], b: [L::Long; 2]) -> [L::Long; 2] {
        both!(self.multiply(a, b))
    }
}

/// Vectors of blocks of 16 bytes, one block per lane, and instructions for them: what
/// AES and GHASH are made of.
pub(crate) trait AesBlocks: Copy {
    /// How many blocks one vector holds.
    const LANES: usize;

    /// Whether a group of blocks fits into the registers beside another, to be hashed while
    /// that is encrypted. Where it does not, encrypting all and then hashing all is faster.
    const ONE_PASS: bool;

    /// Whether a multiplication takes longer than the three instructions that Karatsuba's
    /// way has in its place.
    const KARATSUBA: bool;

    /// One vector.
    type Vector: Copy;

    /// Zeros.
    fn zero(self) -> Self::Vector;

    /// The same block in every lane.
    fn splat(self, block: &[u8; 16]) -> Self::Vector;

    /// The same number in every lane, little-endian.
    fn splat_number(self, number: &u128) -> Self::Vector;

    /// The numbers of each lane, little-endian.
    fn numbers(self, numbers: &[u128]) -> Self::Vector;

    /// Blocks `first`, `first + 1` and so on.
    fn gather<const N: usize>(self, blocks: &[&[u8; 16]; N], first: usize) -> Self::Vector;

    /// Blocks that lie one behind the other.
    ///
    /// # Safety
    ///
    /// They must be readable.
    unsafe fn load(self, place: *const u8) -> Self::Vector;

    /// The first `len` of these bytes, all of them if it is more, and zeros.
    ///
    /// # Safety
    ///
    /// So many must be readable.
    unsafe fn load_first(self, place: *const u8, len: usize) -> Self::Vector;

    /// The reverse of [`load`](Self::load).
    ///
    /// # Safety
    ///
    /// The place must be writable.
    unsafe fn store(self, vector: Self::Vector, place: *mut u8);

    /// The reverse of [`load_first`](Self::load_first): writes no other bytes.
    ///
    /// # Safety
    ///
    /// So many must be writable.
    unsafe fn store_first(self, vector: Self::Vector, place: *mut u8, len: usize);

    /// The first `len` bytes, all of them if it is more, and zeros.
    fn first(self, vector: Self::Vector, len: usize) -> Self::Vector;

    /// One lane replaced by a number, little-endian.
    fn with_lane(self, vector: Self::Vector, lane: usize, number: u128) -> Self::Vector;

    /// One lane replaced by the same of another vector.
    fn with_lane_of(self, vector: Self::Vector, lane: usize, other: Self::Vector) -> Self::Vector;

    /// One lane, and zeros in the others.
    fn only_lane(self, vector: Self::Vector, lane: usize) -> Self::Vector;

    /// The exclusive or of all lanes, as a little-endian number.
    fn sum(self, vector: Self::Vector) -> u128;

    /// The bytes of each block in reverse.
    fn reverse(self, vector: Self::Vector) -> Self::Vector;

    /// Adds to the last byte of each block, modulo 2^8.
    fn count(self, vector: Self::Vector, number: u8) -> Self::Vector;

    /// Exclusive or.
    fn xor(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// Bitwise and.
    fn and(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// A round of AES and its key (FIPS 197, section 5.1).
    fn round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// The last round of AES and its key.
    fn last_round(self, state: Self::Vector, key: Self::Vector) -> Self::Vector;

    /// In each lane the product of a half of `a` and one of `b` as polynomials: the
    /// upper half of `a` if bit 0 of `HALVES` is set, of `b` if bit 4 is.
    fn carry_less<const HALVES: i32>(self, a: Self::Vector, b: Self::Vector) -> Self::Vector;

    /// The halves of each block exchanged.
    fn swap(self, vector: Self::Vector) -> Self::Vector;
}

/// The most blocks of AES that any instruction set has in a vector.
pub(crate) const MAX_BLOCKS: usize = 4;

/// The most words that any instruction set offers at once.
pub(crate) const MAX_LANES: usize = 32;

/// The most messages that any instruction set tags at once.
pub(crate) const MAX_TAGS: usize = 16;
