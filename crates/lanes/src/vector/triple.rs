//! Three vectors of rows, used as one.

use super::pair::Pair;
use super::rows::Rows;
use super::u32_lanes::Arithmetic;

/// Three interleaved vectors; see [`Pair`].
#[derive(Clone, Copy)]
pub(crate) struct Triple<R>(pub(crate) R);

/// Applies a method to all three vectors.
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

    #[inline(always)]
    fn row(self, row: &[u32; 4]) -> [R::Word; 3] {
        [self.0.row(row); 3]
    }

    #[inline(always)]
    fn add_block_numbers(self, [a, b, c]: [R::Word; 3]) -> [R::Word; 3] {
        let [a, b] = Pair(self.0).add_block_numbers([a, b]);
        let offset = self.0.row(&[2 * R::BLOCKS as u32, 0, 0, 0]);
        [a, b, self.0.add(self.0.add_block_numbers(c), offset)]
    }

    #[inline(always)]
    fn rotate_row<const N: usize>(self, row: [R::Word; 3]) -> [R::Word; 3] {
        let [a, b, c] = row;
        [
            self.0.rotate_row::<N>(a),
            self.0.rotate_row::<N>(b),
            self.0.rotate_row::<N>(c),
        ]
    }

    #[inline(always)]
    unsafe fn store_rows(self, [a, b, c, d]: [[R::Word; 3]; 4], mut blocks: *mut [u8; 64]) {
        // SAFETY: the caller guarantees three times `R::BLOCKS` writable blocks, and each call
        // writes the next `R::BLOCKS` of them.
        unsafe {
            for i in 0..3 {
                self.0.store_rows([a[i], b[i], c[i], d[i]], blocks);
                blocks = blocks.add(R::BLOCKS);
            }
        }
    }
}
