//! The layout of packet headers (RFC 9000, section 17), packet numbers (RFC 9000, appendices
//! A.2 and A.3), and header protection (RFC 9001, section 5.4).

use super::version::Version;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::TAG_LEN;

/// Length of the ciphertext sample from which header protection derives its mask, in bytes (RFC
/// 9001, section 5.4.2).
pub(super) const SAMPLE_LEN: usize = 16;

/// Maximum length of a packet number on the wire, in bytes.
pub(super) const MAX_NUMBER_LEN: usize = 4;

/// Bits of a header's first byte (RFC 9000, section 17).
const LONG: u8 = 0x80;
pub(super) const FIXED: u8 = 0x40;
pub(super) const SPIN: u8 = 0x20;
pub(super) const KEY_PHASE: u8 = 0x04;
const NUMBER_LEN: u8 = 0x03;

/// The bits of the first byte that header protection masks.
const LONG_MASK: u8 = 0x0f;
const SHORT_MASK: u8 = 0x1f;

/// The mask of header protection, little-endian: its lowest byte is XORed into the header's
/// first byte, the next four into the packet number. The upper three are ignored.
pub(super) type Mask = u64;

/// Whether a header with this first byte is short. Header protection does not mask that bit.
pub(super) fn is_short(first: u8) -> bool {
    first & LONG == 0
}

/// Whether a reserved bit is set in the first byte of an unprotected header.
pub(super) fn has_reserved_bits(first: u8) -> bool {
    first & if is_short(first) { 0x18 } else { 0x0c } != 0
}

/// The length of the packet number, in bytes, from the first byte of an unprotected header.
#[inline]
pub(super) fn number_len(first: u8) -> usize {
    usize::from(first & NUMBER_LEN) + 1
}

/// The range of the sample in a packet of `packet_len` bytes. The sample starts four bytes
/// after `pn_offset`, the start of the packet number, whatever that number's length.
///
/// # Errors
///
/// If the packet ends before the sample.
#[inline]
pub(super) fn sample(packet_len: usize, pn_offset: usize) -> Result<Range<usize>, HeaderError> {
    let start = pn_offset
        .checked_add(MAX_NUMBER_LEN)
        .ok_or(HeaderError::TooShort)?;
    let end = start.checked_add(SAMPLE_LEN).ok_or(HeaderError::TooShort)?;
    // The first byte of the header comes before the packet number.
    if pn_offset == 0 || end > packet_len {
        return Err(HeaderError::TooShort);
    }
    Ok(start..end)
}

/// The bits of a mask that apply to this first byte of an unprotected header.
#[inline]
fn first_bits(first: u8) -> u8 {
    if is_short(first) {
        SHORT_MASK
    } else {
        LONG_MASK
    }
}

/// The bits of a mask that apply to a header with this unprotected first byte.
#[inline]
pub(super) fn masked_bits(first: u8) -> Mask {
    let number_bits = u32::MAX >> (32 - 8 * number_len(first));
    Mask::from(first_bits(first)) | Mask::from(number_bits) << 8
}

/// Protects the header at the start of `packet`.
#[inline]
pub(super) fn protect(packet: &mut [u8], pn_offset: usize, mask: Mask) {
    let (header, rest) = packet.split_at_mut(pn_offset);
    protect_parts(&mut header[0], &mut rest[..MAX_NUMBER_LEN], mask);
}

/// Unprotects the header at the start of `packet`. Returns the truncated packet number, and its
/// length in bytes.
#[inline]
pub(super) fn unprotect(packet: &mut [u8], pn_offset: usize, mask: Mask) -> (u32, usize) {
    let (header, rest) = packet.split_at_mut(pn_offset);
    let number = rest
        .first_chunk_mut()
        .expect("the sample lies at least four bytes after the packet number's start");
    unprotect_parts(&mut header[0], &mut number[..], mask);
    let len = number_len(header[0]);
    (u32::from_be_bytes(*number) >> (32 - 8 * len), len)
}

/// Protects a header's first byte and packet number. `number` may be longer or shorter than the
/// packet number; only the bytes that both have are masked.
#[inline]
pub(super) fn protect_parts(first: &mut u8, number: &mut [u8], mask: Mask) {
    let mask = mask & masked_bits(*first);
    xor(first, number, mask);
}

/// The inverse of [`protect_parts`].
#[inline]
pub(super) fn unprotect_parts(first: &mut u8, number: &mut [u8], mask: Mask) {
    // The length of the packet number is masked too, so the first byte comes first.
    let [first_mask, ..] = mask.to_le_bytes();
    let unmasked = *first ^ first_mask & first_bits(*first);
    xor(first, number, mask & masked_bits(unmasked));
}

#[inline]
fn xor(first: &mut u8, number: &mut [u8], mask: Mask) {
    let [first_mask, number_mask @ .., _, _, _] = mask.to_le_bytes();
    *first ^= first_mask;
    if let Some(number) = number.first_chunk_mut() {
        // As one 32-bit number, because a branch on the length would often be mispredicted.
        let all = u32::from_le_bytes(*number) ^ u32::from_le_bytes(number_mask);
        *number = all.to_le_bytes();
        return;
    }
    for (byte, mask) in number.iter_mut().zip(number_mask) {
        *byte ^= mask;
    }
}

/// Copies a header or a connection ID to `place`, which has the same length. Uses two copies of
/// fixed size that may overlap: a call to `memcpy` would take as long as all other steps of
/// adding a packet.
#[inline]
pub(super) fn copy(bytes: &[u8], place: &mut [u8]) {
    fn ends<const N: usize>(bytes: &[u8], place: &mut [u8]) -> Option<()> {
        let (front, back) = (bytes.first_chunk::<N>()?, bytes.last_chunk::<N>()?);
        *place.first_chunk_mut()? = *front;
        *place.last_chunk_mut()? = *back;
        Some(())
    }
    let copied = match bytes.len() {
        4..8 => ends::<4>(bytes, place),
        8..16 => ends::<8>(bytes, place),
        16..=32 => ends::<16>(bytes, place),
        _ => None,
    };
    if copied.is_none() {
        place.copy_from_slice(bytes);
    }
}

/// A packet number and its encoding for the wire: the low 1 to 4 bytes, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketNumber {
    number: u64,
    /// The low `len` bytes of the number, followed by zeros.
    bytes: [u8; MAX_NUMBER_LEN],
    len: u8,
}

impl PacketNumber {
    /// The largest packet number, 2^62 - 1 (RFC 9000, section 12.3).
    pub const MAX: u64 = (1 << 62) - 1;

    /// Encodes packet number `number` in the fewest bytes from which a receiver can recover it (RFC
    /// 9000, appendix A.2). `largest_acked` is the largest packet number that the receiver has
    /// acknowledged in this packet number space, `None` if there is none.
    ///
    /// Returns `None` if four bytes are too few, or if `number` is not above `largest_acked` or is
    /// above [`PacketNumber::MAX`].
    #[must_use]
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "keeps the low bytes")]
    pub fn encode(number: u64, largest_acked: Option<u64>) -> Option<Self> {
        let unacked = match largest_acked {
            Some(largest) => number.checked_sub(largest)?,
            None => number.checked_add(1)?,
        };
        if unacked == 0 || number > Self::MAX {
            return None;
        }
        // The encoding must cover twice the number of packets that are unacknowledged.
        let len = (1..=MAX_NUMBER_LEN as u8).find(|len| unacked <= 1 << (8 * len - 1))?;
        Some(Self {
            number,
            bytes: ((number as u32) << (32 - 8 * len)).to_be_bytes(),
            len,
        })
    }

    /// Recovers a packet number from its low `len` bytes, `truncated` (RFC 9000, appendix A.3).
    /// Returns the number with these low bytes that is nearest to `expected`, which is the largest
    /// number received in this packet number space, plus 1.
    ///
    /// # Panics
    ///
    /// If `len` is not 1 to 4, if `truncated` has more bytes than that, or if `expected` is above
    /// [`PacketNumber::MAX`] + 1.
    #[must_use]
    #[inline]
    pub fn decode(expected: u64, truncated: u32, len: usize) -> u64 {
        assert!((1..=MAX_NUMBER_LEN).contains(&len) && expected <= Self::MAX + 1);
        assert!(u64::from(truncated) < 1 << (8 * len));
        nearest_number(expected, truncated, len)
    }

    /// The full packet number.
    #[must_use]
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The length, as encoded in the low two bits of a header's first byte.
    #[inline]
    pub(super) fn first_bits(&self) -> u8 {
        self.len - 1
    }

    /// Writes the encoding to the first four bytes of `place`. Bytes after the encoding are set
    /// to zero.
    #[inline]
    pub(super) fn write(&self, place: &mut [u8]) {
        place[..MAX_NUMBER_LEN].copy_from_slice(&self.bytes);
    }

    /// The encoding, for the end of the header. The low two bits of the header's first byte
    /// must be its length less 1.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// Like [`PacketNumber::decode`], without checks of its arguments.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "keeps the low bits")]
pub(super) fn nearest_number(expected: u64, truncated: u32, len: usize) -> u64 {
    // The candidates are half below `next` and half from `next` on. So the distance from `next`
    // is a signed number of `len` bytes.
    let next = expected + 1;
    let shift = 32 - 8 * len;
    let distance = (truncated.wrapping_sub(next as u32) << shift).cast_signed() >> shift;
    let nearest = next.wrapping_add_signed(distance.into());
    if nearest <= PacketNumber::MAX {
        return nearest;
    }
    // The nearest candidate is out of range: take the one on the other side.
    let window = 1 << (8 * len);
    match nearest.cast_signed() < 0 {
        true => nearest.wrapping_add(window),
        false => nearest - window,
    }
}

/// The types of packets that [`Header::parse`] recognises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// Initial: the first packets of a connection, protected with [`Secret::initial`].
    ///
    /// [`Secret::initial`]: super::Secret::initial
    Initial,
    /// 0-RTT: data sent before the handshake is complete.
    ZeroRtt,
    /// Handshake: the packets that complete the TLS handshake.
    Handshake,
    /// Retry: not protected, but authenticated by a tag (see [`Version::verify_retry`]).
    ///
    /// [`Version::verify_retry`]: super::Version::verify_retry
    Retry,
    /// 1-RTT: packets of an established connection. Only these have a short header.
    OneRtt,
}

/// The parts of a header that are not protected: what a receiver needs to find the packet's
/// connection and keys (RFC 9000, section 17). None of it is authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'d> {
    /// The packet's type.
    pub packet_type: PacketType,
    /// The QUIC version; `None` for a short header, which has no version.
    pub version: Option<Version>,
    /// Whether the fixed bit is set. It must be, unless the connection has negotiated otherwise
    /// (RFC 9287).
    pub fixed_bit: bool,
    /// Destination Connection ID.
    pub dst_cid: &'d [u8],
    /// Source Connection ID; empty for a short header.
    pub src_cid: &'d [u8],
    /// The token of an Initial or a Retry packet; empty for others.
    pub token: &'d [u8],
    /// Offset of the packet number from the start of the packet, in bytes. A Retry packet has
    /// no packet number; this is the offset of its tag.
    pub pn_offset: usize,
    /// Length of the packet, in bytes. Another packet may follow in the datagram.
    pub packet_len: usize,
}

impl<'d> Header<'d> {
    /// Maximum length of a connection ID in versions 1 and 2, in bytes.
    pub const MAX_CONNECTION_ID_LEN: usize = 20;

    /// Parses the first packet of `datagram`. A short header does not hold the length of its
    /// connection ID, so `cid_len` gives it, in bytes: the length of the connection IDs that
    /// this endpoint issues.
    ///
    /// # Errors
    ///
    /// See [`HeaderError`]. The rest of the datagram cannot be parsed then.
    pub fn parse(datagram: &'d [u8], cid_len: usize) -> Result<Self, HeaderError> {
        let mut reader = Reader {
            bytes: datagram,
            at: 0,
        };
        let first = reader.byte()?;
        let fixed_bit = first & FIXED != 0;
        if is_short(first) {
            let dst_cid = reader.take(cid_len)?;
            return Ok(Self {
                packet_type: PacketType::OneRtt,
                version: None,
                fixed_bit,
                dst_cid,
                src_cid: &[],
                token: &[],
                pn_offset: reader.at,
                packet_len: datagram.len(),
            });
        }
        let number = reader
            .take(4)?
            .iter()
            .fold(0, |number, &byte| number << 8 | u32::from(byte));
        let version = Version::from_number(number).ok_or(HeaderError::Version { number })?;
        let dst_cid = reader.connection_id()?;
        let src_cid = reader.connection_id()?;
        let packet_type = packet_type(version, first);
        let mut header = Self {
            packet_type,
            version: Some(version),
            fixed_bit,
            dst_cid,
            src_cid,
            token: &[],
            pn_offset: 0,
            packet_len: datagram.len(),
        };
        if packet_type == PacketType::Retry {
            let rest = datagram.len() - reader.at;
            let token = rest.checked_sub(TAG_LEN).ok_or(HeaderError::Truncated)?;
            header.token = reader.take(token)?;
            header.pn_offset = reader.at;
            return Ok(header);
        }
        if packet_type == PacketType::Initial {
            let len = reader.variable_length()?;
            header.token = reader.take_u64(len)?;
        }
        let len = reader.variable_length()?;
        header.pn_offset = reader.at;
        reader.take_u64(len)?;
        header.packet_len = reader.at;
        Ok(header)
    }
}

/// The type of a packet whose long header starts with `first`.
fn packet_type(version: Version, first: u8) -> PacketType {
    use PacketType::{Handshake, Initial, Retry, ZeroRtt};
    let types = match version {
        Version::V1 => [Initial, ZeroRtt, Handshake, Retry],
        Version::V2 => [Retry, Initial, ZeroRtt, Handshake],
    };
    types[usize::from(first >> 4 & 3)]
}

/// Reads fields from the front of a datagram.
struct Reader<'d> {
    bytes: &'d [u8],
    at: usize,
}

impl<'d> Reader<'d> {
    fn take(&mut self, len: usize) -> Result<&'d [u8], HeaderError> {
        let rest = &self.bytes[self.at..];
        let taken = rest.get(..len).ok_or(HeaderError::Truncated)?;
        self.at += len;
        Ok(taken)
    }

    fn take_u64(&mut self, len: u64) -> Result<&'d [u8], HeaderError> {
        self.take(usize::try_from(len).map_err(|_| HeaderError::Truncated)?)
    }

    fn byte(&mut self) -> Result<u8, HeaderError> {
        Ok(self.take(1)?[0])
    }

    fn connection_id(&mut self) -> Result<&'d [u8], HeaderError> {
        let len = usize::from(self.byte()?);
        if len > Header::MAX_CONNECTION_ID_LEN {
            return Err(HeaderError::ConnectionId { len });
        }
        self.take(len)
    }

    /// Reads a variable-length integer (RFC 9000, section 16).
    fn variable_length(&mut self) -> Result<u64, HeaderError> {
        let first = self.byte()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        Ok(more.iter().fold(u64::from(first & 0x3f), |value, &byte| {
            value << 8 | u64::from(byte)
        }))
    }
}

/// Why a header cannot be parsed, protected or unprotected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The datagram ends before the header, or before the packet's Length.
    Truncated,
    /// The version is not supported. 0 means a Version Negotiation packet.
    Version {
        /// The value of the Version field.
        number: u32,
    },
    /// A connection ID is longer than [`Header::MAX_CONNECTION_ID_LEN`].
    ConnectionId {
        /// The length, in bytes.
        len: usize,
    },
    /// The packet is too short for a sample (RFC 9001, section 5.4.2). It needs 20 bytes from the
    /// start of its packet number, tag included. A sender must pad it, a receiver must drop it.
    TooShort,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the datagram ends before the packet does"),
            Self::Version { number: 0 } => {
                f.write_str("the packet is a Version Negotiation packet")
            }
            Self::Version { number } => write!(f, "QUIC version {number:#010x} is not supported"),
            Self::ConnectionId { len } => write!(
                f,
                "the connection ID has {len} bytes; at most {} are allowed",
                Header::MAX_CONNECTION_ID_LEN
            ),
            Self::TooShort => write!(
                f,
                "the packet is too short: it needs {} bytes from the start of its packet number",
                MAX_NUMBER_LEN + SAMPLE_LEN
            ),
        }
    }
}

impl core::error::Error for HeaderError {}
