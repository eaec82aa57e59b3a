//! Decisions taken from an input: lengths, cuts, damage.

/// Bytes from which decisions are taken; zeros after their end.
pub(crate) struct Input<'d> {
    pub(crate) rest: &'d [u8],
}

impl<'d> Input<'d> {
    pub(crate) fn byte(&mut self) -> u8 {
        match self.rest.split_first() {
            Some((&byte, rest)) => {
                self.rest = rest;
                byte
            }
            None => 0,
        }
    }

    /// A number below `bound`, which must be at least 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(u16::from_le_bytes([self.byte(), self.byte()])) % bound
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn bytes(&mut self, max: usize) -> &'d [u8] {
        let len = self.below(max + 1).min(self.rest.len());
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        bytes
    }

    /// Up to `max` pseudo-random bytes. Consumes two bytes of the input.
    pub(crate) fn noise(&mut self, max: usize) -> Vec<u8> {
        let len = self.below(max + 1);
        (0..len).map(|i| (i * i / 3 + len) as u8).collect()
    }

    /// Takes the bytes of one read, at least one, from the front of `stream`.
    pub(crate) fn piece<'s>(&mut self, stream: &mut &'s [u8]) -> &'s [u8] {
        let len = match self.byte() {
            0 => stream.len(),
            len @ 1..128 => usize::from(len),
            len => 30 * usize::from(len - 127),
        };
        let (piece, rest) = stream.split_at(len.min(stream.len()));
        *stream = rest;
        piece
    }

    /// Flips bits of one byte of `stream`. Returns the byte's offset, if one was changed.
    pub(crate) fn damage(&mut self, stream: &mut [u8]) -> Option<usize> {
        let mask = self.byte();
        let place = self.below(stream.len().max(1));
        *stream.get_mut(place)? ^= mask;
        (mask != 0).then_some(place)
    }
}
