//! One packet at a time.

use super::keystream::{is_whole, with_first_blocks, xor_text};
use super::packet::{Aad, Packet};
use super::stitched;
use super::strategy::{TILE, is_stitched};
use super::tag::{tag, update};
use crate::isa::Set;
use crate::job::{
    BLOCK_LEN, Block, Job, Key, Nonce, Outcome, TAG_LEN, split_one_time_key, verdict,
};
use crate::kernels::chacha20::{Keystream, counter_row, mask, row_of_sample};
use crate::kernels::chacha20poly1305::ShortText;
use crate::kernels::poly1305::Poly1305;

/// Encrypts the text of a job and writes its tag.
#[inline]
pub(crate) fn seal(set: Set, bytes: &mut [u8], key: &Key, job: &Job) {
    let tag = seal_packet(&Packet::of(job, key), set, bytes);
    bytes[job.tag()].copy_from_slice(&tag);
}

/// Like [`seal`], for a long text: the text after its first block is read from `source`. Ciphertext
/// is hashed while it is in the cache, in pieces of [`TILE`] bytes.
#[inline(never)]
pub(super) fn seal_from(set: Set, bytes: &mut [u8], key: &Key, job: &Job, source: &[u8]) {
    let packet = Packet::of(job, key);
    let (key, nonce, len) = (packet.key, packet.nonce, packet.text.len());
    assert_eq!(
        source.len() + BLOCK_LEN,
        len,
        "the source holds the rest of the text"
    );
    let (mut poly1305, mut at) = (Poly1305::idle(), 0);
    with_first_blocks(set, key, nonce, len, |blocks| {
        let (one_time_key, blocks) = split_one_time_key(blocks);
        packet.start_tag(set, bytes, &mut poly1305, one_time_key);
        at = BLOCK_LEN * blocks.len();
        let text = &mut bytes[packet.text.clone()][..at];
        if at > 0 {
            text[BLOCK_LEN..].copy_from_slice(&source[..at - BLOCK_LEN]);
        }
        set.xor_blocks(text, blocks);
    });
    let mut hashed = 0;
    while at < len {
        let end = len.min(at + TILE);
        let text = &mut bytes[packet.text.clone()][..end];
        if at > 0 {
            text[at..at + BLOCK_LEN].copy_from_slice(&source[at - BLOCK_LEN..at]);
        }
        let (source, counter) = (&source[at..end - BLOCK_LEN], 1 + (at / BLOCK_LEN) as u32);
        set.xor_keystream(key, nonce, counter, Some(source), &mut text[at..]);
        at = end;
        if at < len {
            update(set, &mut poly1305, &text[hashed..]);
            hashed = at;
        }
    }
    let tag = packet.finish_tag(set, bytes, &mut poly1305, hashed);
    bytes[job.tag()].copy_from_slice(&tag);
}

/// Decrypts the text of a job if its tag is correct.
#[inline]
pub(crate) fn open(set: Set, bytes: &mut [u8], key: &Key, job: &Job) -> Outcome {
    open_packet(&Packet::of(job, key), set, bytes)
}

/// Encrypts the text of a job and writes its tag. While hashing the ciphertext, computes the
/// keystream block of `header_key` whose counter and nonce are the 16 bytes at `sample`. Returns
/// the block's first 8 bytes as a little-endian number. Returns `None` and does nothing if the
/// sample does not lie in the text.
pub(crate) fn seal_and_mask(
    set: Set,
    bytes: &mut [u8],
    (key, job): (&Key, &Job),
    (header_key, sample): (&Key, usize),
) -> Option<u64> {
    let packet = Packet::of(job, key);
    if sample < packet.text.start || sample + 16 > packet.text.end {
        return None;
    }
    let (mut keystream, mut poly1305) = (Keystream::new(), Poly1305::idle());
    let mut hashed = 0;
    if set.is_stitched() {
        hashed = encrypt_stitched(&packet, set, bytes, &mut poly1305, &mut keystream);
    } else {
        let (key, nonce, len) = (packet.key, packet.nonce, packet.text.len());
        with_first_blocks(set, key, nonce, len, |blocks| {
            let (one_time_key, blocks) = split_one_time_key(blocks);
            xor_text(set, key, nonce, &mut bytes[packet.text.clone()], blocks);
            packet.start_tag(set, bytes, &mut poly1305, one_time_key);
        });
    }
    let row = row_of_sample(bytes[sample..].first_chunk().expect("16 bytes"));
    let (unhashed, _) = bytes[job.text()][hashed..].as_chunks();
    let (hash, header_key) = (&mut poly1305, (header_key, &row));
    let more = set.stitched_rows(header_key, 1, &mut keystream, 0, hash, unhashed);
    let tag = packet.finish_tag(set, bytes, hash, hashed + more);
    bytes[job.tag()].copy_from_slice(&tag);
    Some(mask(&keystream))
}

/// Encrypts a text whose AAD is detached. Returns the tag.
pub(crate) fn seal_detached(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    aad: &[u8],
    text: &mut [u8],
) -> [u8; TAG_LEN] {
    let packet = Packet {
        key,
        nonce,
        aad: Aad::Detached(aad),
        text: 0..text.len(),
    };
    seal_packet(&packet, set, text)
}

/// Decrypts a text whose AAD is detached, if the tag that follows the text is correct.
pub(crate) fn open_detached(
    set: Set,
    key: &Key,
    nonce: &Nonce,
    aad: &[u8],
    text_and_tag: &mut [u8],
) -> Outcome {
    let Some(text_len) = text_and_tag.len().checked_sub(TAG_LEN) else {
        return Outcome::BadTag;
    };
    let packet = Packet {
        key,
        nonce,
        aad: Aad::Detached(aad),
        text: 0..text_len,
    };
    open_packet(&packet, set, text_and_tag)
}

#[inline(always)]
fn seal_packet(packet: &Packet<'_>, set: Set, bytes: &mut [u8]) -> [u8; TAG_LEN] {
    if is_stitched(set, packet.blocks()) {
        return seal_stitched(packet, set, bytes);
    }
    with_first_blocks(set, packet.key, packet.nonce, packet.text.len(), |blocks| {
        let (one_time_key, blocks) = split_one_time_key(blocks);
        let text = &mut bytes[packet.text.clone()];
        xor_text(set, packet.key, packet.nonce, text, blocks);
        let text = &bytes[packet.text.clone()];
        tag(set, one_time_key, packet.aad(bytes), text)
    })
}

#[inline(always)]
fn open_packet(packet: &Packet<'_>, set: Set, bytes: &mut [u8]) -> Outcome {
    if is_stitched(set, packet.blocks()) {
        return open_stitched(packet, set, bytes);
    }
    with_first_blocks(set, packet.key, packet.nonce, packet.text.len(), |blocks| {
        let (one_time_key, blocks) = split_one_time_key(blocks);
        let text = &bytes[packet.text.clone()];
        let tag = tag(set, one_time_key, packet.aad(bytes), text);
        let outcome = packet.verdict(bytes, &tag);
        if outcome == Outcome::Authentic {
            let text = &mut bytes[packet.text.clone()];
            xor_text(set, packet.key, packet.nonce, text, blocks);
        }
        outcome
    })
}

// Not inlined: its caller serves short packets too, which should not pay for its stack frame.
#[inline(never)]
fn seal_stitched(packet: &Packet<'_>, set: Set, bytes: &mut [u8]) -> [u8; TAG_LEN] {
    let (mut keystream, mut poly1305) = (Keystream::new(), Poly1305::idle());
    let hashed = encrypt_stitched(packet, set, bytes, &mut poly1305, &mut keystream);
    packet.finish_tag(set, bytes, &mut poly1305, hashed)
}

/// Encrypts the text of a packet, and hashes part of the ciphertext. Returns how many bytes.
#[inline(always)]
fn encrypt_stitched(
    packet: &Packet<'_>,
    set: Set,
    bytes: &mut [u8],
    poly1305: &mut Poly1305,
    keystream: &mut Keystream,
) -> usize {
    let count = set.max_in_rows().min(packet.blocks());
    set.rows(packet.key, &counter_row(0, packet.nonce), count, keystream);
    let (one_time_key, blocks) = split_one_time_key(&keystream.blocks()[..count]);
    packet.start_tag(set, bytes, poly1305, one_time_key);
    let text = &mut bytes[packet.text.clone()];
    set.xor_blocks(text, blocks);
    stitched::encrypt_rest(
        packet,
        set,
        text,
        poly1305,
        keystream,
        count..packet.blocks(),
        None,
    )
}

#[inline(never)]
fn open_stitched(packet: &Packet<'_>, set: Set, bytes: &mut [u8]) -> Outcome {
    let (mut keystream, mut poly1305) = (Keystream::new(), Poly1305::idle());
    let (row, count) = (
        counter_row(0, packet.nonce),
        stitched::first_blocks(packet, set),
    );
    set.rows(packet.key, &row, count, &mut keystream);
    let (one_time_key, front) = split_one_time_key(&keystream.blocks()[..count]);
    packet.start_tag(set, bytes, &mut poly1305, one_time_key);
    stitched::decrypt(packet, set, bytes, &mut poly1305, [front, &[]])
}

/// [`seal`] for a packet with precomputed `keystream`, from block 0 on. There must be at least one
/// block.
#[inline]
pub(crate) fn seal_precomputed(
    set: Set,
    bytes: &mut [u8],
    (key, keystream): (&Key, &[Block]),
    job: &Job,
) {
    let (one_time_key, blocks) = split_one_time_key(keystream);
    let tag = match blocks {
        [block, ..] if job.is_short() => {
            let mut poly1305 = Poly1305::new(one_time_key);
            ShortText::of(bytes, job, block).encrypt(&mut poly1305);
            poly1305.update_lengths(0, job.text_len.into());
            poly1305.finish()
        }
        _ if set.is_stitched() && !is_whole(job, blocks) => {
            let (packet, mut poly1305) = (Packet::of(job, key), Poly1305::idle());
            packet.start_tag(set, bytes, &mut poly1305, one_time_key);
            set.xor_blocks(&mut bytes[job.text()], blocks);
            let (rest, mut keystream) = (1 + blocks.len()..packet.blocks(), Keystream::new());
            let (text, hash, keystream) = (&mut bytes[job.text()], &mut poly1305, &mut keystream);
            let hashed = stitched::encrypt_rest(&packet, set, text, hash, keystream, rest, None);
            packet.finish_tag(set, bytes, hash, hashed)
        }
        _ => {
            xor_text(set, key, &job.nonce, &mut bytes[job.text()], blocks);
            tag(set, one_time_key, &bytes[job.aad()], &bytes[job.text()])
        }
    };
    bytes[job.tag()].copy_from_slice(&tag);
}

/// [`open`] for a packet with precomputed `keystream`, from block 0 on. There must be at least one
/// block.
#[inline]
pub(crate) fn open_precomputed(
    set: Set,
    bytes: &mut [u8],
    (key, keystream): (&Key, &[Block]),
    job: &Job,
) -> Outcome {
    let (one_time_key, blocks) = split_one_time_key(keystream);
    if set.is_stitched() && !is_whole(job, blocks) {
        let (packet, mut poly1305) = (Packet::of(job, key), Poly1305::idle());
        packet.start_tag(set, bytes, &mut poly1305, one_time_key);
        return stitched::decrypt(&packet, set, bytes, &mut poly1305, [blocks, &[]]);
    }
    if job.is_short()
        && let [block, ..] = blocks
    {
        let mut text = ShortText::of(bytes, job, block);
        let mut poly1305 = Poly1305::new(one_time_key);
        text.hash(&mut poly1305);
        poly1305.update_lengths(0, job.text_len.into());
        let outcome = verdict(text.tag(), &poly1305.finish());
        if outcome == Outcome::Authentic {
            text.decrypt();
        }
        return outcome;
    }
    let tag = tag(set, one_time_key, &bytes[job.aad()], &bytes[job.text()]);
    let outcome = verdict(&bytes[job.tag()], &tag);
    if outcome == Outcome::Authentic {
        xor_text(set, key, &job.nonce, &mut bytes[job.text()], blocks);
    }
    outcome
}
