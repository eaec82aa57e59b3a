//! Texts that one call tags together.

/// Maximum wait of a lane, in bytes. All messages of a call end together, so the lane of a shorter
/// message waits at the start and reads these zeros.
pub(super) const MAX_WAIT: usize = 1024;
pub(super) static ZEROS: [u8; MAX_WAIT + 16 * LANES_PER_TEXT] = [0; MAX_WAIT + 16 * LANES_PER_TEXT];

/// How many lanes a long text is spread over in [`in_four_lanes`](super::in_four_lanes).
pub(crate) const LANES_PER_TEXT: usize = 4;

/// The 16 bytes from byte 16 - n on are a mask of the first n bytes of a block.
pub(super) static BLOCK_MASKS: [u8; 32] = {
    let mut masks = [0; 32];
    masks
        .first_chunk_mut::<16>()
        .unwrap()
        .copy_from_slice(&[0xff; 16]);
    masks
};

/// A message to tag as an AEAD does: AAD and ciphertext, each padded with zeros, and their
/// lengths (RFC 8439, section 2.8).
#[derive(Clone, Copy)]
pub(crate) struct Text {
    /// Start of the ciphertext.
    pub(crate) start: *const u8,
    /// Length of the ciphertext, in bytes; not 0.
    pub(crate) len: u32,
    /// Start of the AAD.
    pub(crate) aad: *const u8,
    /// Length of the AAD, in bytes; at most [`MAX_AAD`].
    pub(crate) aad_len: u32,
    /// Index of its one-time key and of its tag.
    pub(crate) index: usize,
}

/// Maximum length of the AAD of a message in lanes, in bytes: two blocks, enough for QUIC's short
/// headers.
pub(crate) const MAX_AAD: usize = 32;

/// How many bytes after the AAD a kernel may read, because it reads the last block whole.
pub(crate) const AAD_OVERREAD: usize = 15;

impl Text {
    /// No text, without AAD.
    pub(crate) const NONE: Self = Self {
        start: core::ptr::null(),
        len: 0,
        aad: core::ptr::null(),
        aad_len: 0,
        index: 0,
    };

    /// Returns how many blocks of 16 bytes precede the last one.
    #[inline(always)]
    pub(super) fn blocks_before_last(&self) -> usize {
        (self.len as usize - 1) / 16
    }
}

/// Returns how many of `texts` one call can tag with `lanes` lanes. The texts are sorted from the
/// longest to the shortest, in blocks of 16 bytes. If any of them has AAD, all must have the same
/// number of blocks: then no lane waits, and the lane's initial accumulator can be the hash of the
/// AAD.
pub(crate) fn group(texts: &[Text], lanes: usize) -> usize {
    let Some(longest) = texts.first() else {
        return 0;
    };
    let shortest = longest.len.saturating_sub(MAX_WAIT as u32 - 32);
    let texts = texts.iter().take(lanes);
    let shares_lanes = |text: &&Text| match (longest.aad_len, text.aad_len) {
        (0, 0) => text.len >= shortest,
        _ => text.blocks_before_last() == longest.blocks_before_last(),
    };
    texts.take_while(shares_lanes).count()
}
