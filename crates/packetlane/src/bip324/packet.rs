//! The format of a packet (BIP324, "Packet encryption"): an encrypted length, a header byte, the
//! contents, a tag. Also the lengths of what precedes the first packet.

use packetlane_lanes::TAG_LEN;

/// Length of the encrypted length field, in bytes. It is little-endian.
pub(super) const LENGTH_LEN: usize = 3;

/// Length of the header byte, in bytes.
pub(super) const HEADER_LEN: usize = 1;

/// How much longer a packet is than its contents, in bytes: length field, header byte and tag.
pub(super) const OVERHEAD: usize = LENGTH_LEN + HEADER_LEN + TAG_LEN;

/// Maximum length of contents, in bytes: the length field has 24 bits.
pub(super) const MAX_CONTENTS_LEN: usize = (1 << 24) - 1;

/// Length of a garbage terminator, in bytes.
pub(super) const TERMINATOR_LEN: usize = 16;

/// Maximum length of a side's garbage, in bytes.
pub(super) const MAX_GARBAGE_LEN: usize = 4095;

/// The bit of the header byte that marks a decoy. The other bits have no meaning: they are sent as
/// 0 and ignored.
const IGNORE_BIT: u8 = 0x80;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Carries a message (or is the version packet).
    Genuine,
    /// Carries nothing; the receiver drops it.
    Decoy,
}

impl PacketKind {
    /// Returns the header byte of a packet of this kind.
    #[inline]
    pub(super) fn header(self) -> u8 {
        match self {
            PacketKind::Genuine => 0,
            PacketKind::Decoy => IGNORE_BIT,
        }
    }

    /// Returns the kind of a packet with this header byte. Only the top bit counts.
    #[inline]
    pub(super) fn from_header(header: u8) -> Self {
        if header & IGNORE_BIT == 0 {
            PacketKind::Genuine
        } else {
            PacketKind::Decoy
        }
    }
}
