//! Headers: where a packet's parts lie (RFC 9000, section 17), packet numbers (its
//! appendices A.2 and A.3), and what header protection masks (RFC 9001, section 5.4).

use super::version::Version;
use core::fmt;
use core::ops::Range;
use packetlane_lanes::TAG_LEN;

/// Length of the sample of ciphertext that masks a header, in bytes (RFC 9001, section
/// 5.4.2).
pub const SAMPLE_LEN: usize = 16;

/// The largest packet number (RFC 9000, section 12.3).
pub const MAX_PACKET_NUMBER: u64 = (1 << 62) - 1;

/// The longest connection ID of versions 1 and 2, in bytes.
pub const MAX_CONNECTION_ID_LEN: usize = 20;

/// The longest packet number on the wire, in bytes.
pub(super) const MAX_NUMBER_LEN: usize = 4;

/// Bits of a header's first byte.
const LONG: u8 = 0x80;
pub(super) const FIXED: u8 = 0x40;
pub(super) const SPIN: u8 = 0x20;
pub(super) const KEY_PHASE: u8 = 0x04;
const NUMBER_LEN: u8 = 0x03;

/// What protection may change in the first byte: all that is not needed before.
const LONG_MASK: u8 = 0x0f;
const SHORT_MASK: u8 = 0x1f;

/// What header protection exclusive-ors: of the five lowest bytes the lowest into the
/// first byte, bit for bit, and the next ones into the packet number.
pub(super) type Mask = u64;

/// Whether a header that begins with `first` is a short one. Protection does not hide
/// that.
pub(super) fn is_short(first: u8) -> bool {
    first & LONG == 0
}

/// Whether a reserved bit is set in the first byte of an unprotected header.
pub(super) fn has_reserved_bits(first: u8) -> bool {
    first & if is_short(first) { 0x18 } else { 0x0c } != 0
}

/// The length of the packet number, in bytes, by the first byte of an unprotected
/// header.
#[inline]
pub(super) fn number_len(first: u8) -> usize {
    usize::from(first & NUMBER_LEN) + 1
}

/// The packet is too short to have a sample (RFC 9001, section 5.4.2): from the packet
/// number on it must have 20 bytes, tag included. A sender pads; a receiver drops it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort;

impl fmt::Display for TooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a packet has {} bytes or more from its packet number on",
            MAX_NUMBER_LEN + SAMPLE_LEN
        )
    }
}

impl core::error::Error for TooShort {}

/// Where the sample of a packet lies whose packet number begins at `pn_offset`: as if
/// the number had four bytes. `packet_len` is the length of the whole packet.
///
/// # Errors
///
/// If the packet ends before the sample does.
#[inline]
pub(super) fn sample(packet_len: usize, pn_offset: usize) -> Result<Range<usize>, TooShort> {
    let start = pn_offset.checked_add(MAX_NUMBER_LEN).ok_or(TooShort)?;
    let end = start.checked_add(SAMPLE_LEN).ok_or(TooShort)?;
    // A header has a first byte.
    if pn_offset == 0 || end > packet_len {
        return Err(TooShort);
    }
    Ok(start..end)
}

/// Which bits of a mask are for the first byte of an unprotected header.
#[inline]
fn first_bits(first: u8) -> u8 {
    if is_short(first) {
        SHORT_MASK
    } else {
        LONG_MASK
    }
}

/// Which bits of a mask are for a header with this unprotected first byte.
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

/// Unprotects the header at the start of `packet`. Returns the packet number as it was
/// sent, and its length in bytes.
#[inline]
pub(super) fn unprotect(packet: &mut [u8], pn_offset: usize, mask: Mask) -> (u32, usize) {
    let (header, rest) = packet.split_at_mut(pn_offset);
    let number = rest
        .first_chunk_mut()
        .expect("as long as the sample asks for");
    unprotect_parts(&mut header[0], &mut number[..], mask);
    let len = number_len(header[0]);
    (u32::from_be_bytes(*number) >> (32 - 8 * len), len)
}

/// Protects a header's first byte and its packet number. `number` may be longer than
/// the packet number is, or shorter: what it has is masked.
#[inline]
pub(super) fn protect_parts(first: &mut u8, number: &mut [u8], mask: Mask) {
    let mask = mask & masked_bits(*first);
    xor(first, number, mask);
}

/// The reverse of [`protect_parts`].
#[inline]
pub(super) fn unprotect_parts(first: &mut u8, number: &mut [u8], mask: Mask) {
    // The length of the number is itself masked.
    let [first_mask, ..] = mask.to_le_bytes();
    let unmasked = *first ^ first_mask & first_bits(*first);
    xor(first, number, mask & masked_bits(unmasked));
}

#[inline]
fn xor(first: &mut u8, number: &mut [u8], mask: Mask) {
    let [first_mask, number_mask @ .., _, _, _] = mask.to_le_bytes();
    *first ^= first_mask;
    if let Some(number) = number.first_chunk_mut() {
        // As one number of 32 bits: how many bytes it has is hard to foresee.
        let all = u32::from_le_bytes(*number) ^ u32::from_le_bytes(number_mask);
        *number = all.to_le_bytes();
        return;
    }
    for (byte, mask) in number.iter_mut().zip(number_mask) {
        *byte ^= mask;
    }
}

/// Copies a header, or a connection ID, to a place of its length: in pieces that overlap,
/// where a call would take as long as the rest of what is done to add a packet.
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

/// A packet number, and as how many bytes it goes over the wire: its low 1 to 4, in
/// network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketNumber {
    number: u64,
    /// Its low `len` bytes, and zeros.
    bytes: [u8; MAX_NUMBER_LEN],
    len: u8,
}

impl PacketNumber {
    /// The number.
    #[must_use]
    #[inline]
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its length, as the first byte of a header has it.
    #[inline]
    pub(super) fn first_bits(&self) -> u8 {
        self.len - 1
    }

    /// Writes its bytes to the beginning of `place`, and zeros behind them up to the
    /// longest that it could be.
    #[inline]
    pub(super) fn write(&self, place: &mut [u8]) {
        place[..MAX_NUMBER_LEN].copy_from_slice(&self.bytes);
    }

    /// Its bytes, for the end of the header. The low two bits of the header's first
    /// byte are their number less 1.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }
}

/// Encodes packet number `number` in the fewest bytes from which a receiver can recover
/// it that has at least all packets up to `largest_acked` (RFC 9000, appendix A.2);
/// `None` if none has been acknowledged in its packet number space.
///
/// Returns `None` if four bytes do not do, or if `number` is not above `largest_acked`
/// or is above [`MAX_PACKET_NUMBER`].
#[must_use]
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the low bytes are meant")]
pub fn encode_packet_number(number: u64, largest_acked: Option<u64>) -> Option<PacketNumber> {
    let unacked = match largest_acked {
        Some(largest) => number.checked_sub(largest)?,
        None => number.checked_add(1)?,
    };
    if unacked == 0 || number > MAX_PACKET_NUMBER {
        return None;
    }
    // Twice as many numbers as may be on their way.
    let len = (1..=MAX_NUMBER_LEN as u8).find(|len| unacked <= 1 << (8 * len - 1))?;
    Some(PacketNumber {
        number,
        bytes: ((number as u32) << (32 - 8 * len)).to_be_bytes(),
        len,
    })
}

/// Recovers a packet number from its low `len` bytes, `truncated` (RFC 9000, appendix
/// A.3): of the numbers that end so, the one nearest to `expected`, which is the
/// largest that has come in its packet number space, plus 1.
///
/// # Panics
///
/// If `len` is not 1 to 4, `truncated` has more bytes, or `expected` is above
/// [`MAX_PACKET_NUMBER`] + 1.
#[must_use]
#[inline]
pub fn decode_packet_number(expected: u64, truncated: u32, len: usize) -> u64 {
    assert!((1..=MAX_NUMBER_LEN).contains(&len) && expected <= MAX_PACKET_NUMBER + 1);
    assert!(u64::from(truncated) < 1 << (8 * len));
    nearest_number(expected, truncated, len)
}

/// The same without checking its arguments.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
pub(super) fn nearest_number(expected: u64, truncated: u32, len: usize) -> u64 {
    // As many numbers lie above `expected` as below, itself included: from the next one
    // on it is how far there is to go, as a number of `len` bytes with a sign.
    let next = expected + 1;
    let shift = 32 - 8 * len;
    let distance = (truncated.wrapping_sub(next as u32) << shift).cast_signed() >> shift;
    let nearest = next.wrapping_add_signed(distance.into());
    if nearest <= MAX_PACKET_NUMBER {
        return nearest;
    }
    // No packet has such a number: it is the one on the other side.
    let window = 1 << (8 * len);
    match nearest.cast_signed() < 0 {
        true => nearest.wrapping_add(window),
        false => nearest - window,
    }
}

/// The kinds of packets that [`Header::parse`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketType {
    /// Initial: the first of a connection, protected with [`Secret::initial`].
    ///
    /// [`Secret::initial`]: super::Secret::initial
    Initial,
    /// 0-RTT: data before the handshake is done.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// Retry: not protected, but with a tag (see [`verify_retry`]).
    ///
    /// [`verify_retry`]: super::verify_retry
    Retry,
    /// 1-RTT: the packets of an established connection, the only ones with a short
    /// header.
    OneRtt,
}

/// The parts of a header that are not protected: what is needed to find a packet's
/// connection and keys (RFC 9000, section 17). Nothing in it has been authenticated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'d> {
    /// What kind of packet it is.
    pub packet_type: PacketType,
    /// Its version; a short header does not say it.
    pub version: Option<Version>,
    /// Whether the fixed bit is set, as it must be unless the connection has agreed on
    /// greasing it (RFC 9287).
    pub fixed_bit: bool,
    /// Destination Connection ID.
    pub dst_cid: &'d [u8],
    /// Source Connection ID; empty for a short header.
    pub src_cid: &'d [u8],
    /// The token of an Initial or a Retry packet; empty for others.
    pub token: &'d [u8],
    /// Where the packet number begins, in bytes from the start of the packet. A Retry
    /// packet has none: there, where its tag begins.
    pub pn_offset: usize,
    /// Length of the packet, in bytes. In the datagram another packet may follow.
    pub packet_len: usize,
}

impl<'d> Header<'d> {
    /// Finds the parts of the packet that `datagram` begins with. A short header does
    /// not say how long its connection ID is: `cid_len` is the length, in bytes, of
    /// those that this endpoint hands out.
    ///
    /// # Errors
    ///
    /// See [`HeaderError`]. The rest of the datagram cannot be read then.
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

/// The type of a packet with a long header that begins with `first`.
fn packet_type(version: Version, first: u8) -> PacketType {
    use PacketType::{Handshake, Initial, Retry, ZeroRtt};
    let types = match version {
        Version::V1 => [Initial, ZeroRtt, Handshake, Retry],
        Version::V2 => [Retry, Initial, ZeroRtt, Handshake],
    };
    types[usize::from(first >> 4 & 3)]
}

/// Takes what it reads from the front.
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
        if len > MAX_CONNECTION_ID_LEN {
            return Err(HeaderError::ConnectionId { len });
        }
        self.take(len)
    }

    /// A variable-length integer (RFC 9000, section 16).
    fn variable_length(&mut self) -> Result<u64, HeaderError> {
        let first = self.byte()?;
        let more = self.take((1 << (first >> 6)) - 1)?;
        Ok(more.iter().fold(u64::from(first & 0x3f), |value, &byte| {
            value << 8 | u64::from(byte)
        }))
    }
}

/// Why a header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeaderError {
    /// The datagram ends before the header does, or before the length that it says.
    Truncated,
    /// Its version is not known. 0 is a Version Negotiation packet.
    Version {
        /// What the Version field says.
        number: u32,
    },
    /// A connection ID is longer than [`MAX_CONNECTION_ID_LEN`].
    ConnectionId {
        /// Its length, in bytes.
        len: usize,
    },
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the datagram ends before the packet does"),
            Self::Version { number: 0 } => f.write_str("a Version Negotiation packet"),
            Self::Version { number } => write!(f, "QUIC version {number:#010x} is not known"),
            Self::ConnectionId { len } => write!(
                f,
                "a connection ID of {len} bytes; at most {MAX_CONNECTION_ID_LEN} are allowed"
            ),
        }
    }
}

impl core::error::Error for HeaderError {}
