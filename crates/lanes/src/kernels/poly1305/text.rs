//! Texts that are tagged together, and which of them can be.

/// Messages up to this much shorter than the longest of their group are tagged
/// beside it, in bytes: a lane that waits for its message to begin reads zeros,
/// and these are they.
pub(super) const MAX_WAIT: usize = 1024;
pub(super) static ZEROS: [u8; MAX_WAIT + 16 * LANES_PER_TEXT] = [0; MAX_WAIT + 16 * LANES_PER_TEXT];

/// How many lanes take a long text together in [`tags_of_long`].
pub(crate) const LANES_PER_TEXT: usize = 4;

/// From byte 16 - n on, a mask of the first n of 16 bytes.
pub(super) static FIRST: [u8; 32] = {
    let mut masks = [0; 32];
    masks
        .first_chunk_mut::<16>()
        .unwrap()
        .copy_from_slice(&[0xff; 16]);
    masks
};

/// A message whose tag is to be computed as an AEAD's: AAD and text, each padded with
/// zeros, and their lengths.
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Where the text begins.
    pub(crate) start: *const u8,
    /// Its length, in bytes; not 0.
    pub(crate) len: u32,
    /// Where the AAD lies.
    pub(crate) aad: *const u8,
    /// Its length, in bytes; at most [`MAX_AAD`].
    pub(crate) aad_len: u32,
    /// Which of the keys and tags is its own.
    pub(crate) index: usize,
}

/// The longest AAD of a message that shares lanes, in bytes: two blocks, which holds
/// QUIC's short headers.
pub(crate) const MAX_AAD: usize = 32;

/// So many bytes behind AAD are read, as its last block is read whole.
pub(crate) const BEHIND_AAD: usize = 15;

impl Text {
    /// How many blocks of 16 bytes come before its last one.
    #[inline(always)]
    pub(super) fn blocks_before_last(&self) -> usize {
        (self.len as usize - 1) / 16
    }
}

/// How many of `texts`, which go from the longest to the shortest, [`tags`] takes
/// at once in so many lanes. Where there is AAD, all have as many blocks, so that no
/// lane waits, and its accumulator can begin with what the AAD made of it.
pub(crate) fn group(texts: &[Text], lanes: usize) -> usize {
    let Some(longest) = texts.first() else {
        return 0;
    };
    let shortest = longest.len.saturating_sub(MAX_WAIT as u32 - 32);
    let texts = texts.iter().take(lanes);
    let beside = |text: &&Text| match (longest.aad_len, text.aad_len) {
        (0, 0) => text.len >= shortest,
        _ => text.blocks_before_last() == longest.blocks_before_last(),
    };
    texts.take_while(beside).count()
}
