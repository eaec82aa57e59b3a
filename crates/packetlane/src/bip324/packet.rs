//! The form of a packet (BIP324, "Packet encryption"): an encrypted length, a header byte,
//! the contents, a tag. Lengths of what comes before the first packet.

use packetlane_lanes::TAG_LEN;

/// Length of the encrypted length in front of a packet, in bytes. It is little-endian.
pub(super) const LENGTH_LEN: usize = 3;

/// Length of the header byte, in bytes.
pub(super) const HEADER_LEN: usize = 1;

/// Length of a packet beyond its contents: length, header and tag, in bytes.
pub(super) const OVERHEAD: usize = LENGTH_LEN + HEADER_LEN + TAG_LEN;

/// Longest contents that the format carries, in bytes: its length has 24 bits.
pub(super) const MAX_CONTENTS_LEN: usize = (1 << 24) - 1;

/// Length of a public key on the wire, in bytes.
pub(super) const ELLSWIFT_LEN: usize = 64;

/// Length of a garbage terminator, in bytes.
pub(super) const TERMINATOR_LEN: usize = 16;

/// Maximum length of a side's garbage, in bytes.
pub(super) const MAX_GARBAGE_LEN: usize = 4095;

/// The bit of the header byte that marks a decoy. The other bits mean nothing: they are
/// sent as 0 and ignored.
const IGNORE_BIT: u8 = 0x80;

/// What a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketKind {
    /// Its contents are a message (or the version packet's).
    Genuine,
    /// Its contents mean nothing; the receiver drops it.
    Decoy,
}

impl PacketKind {
    /// The header byte of a packet of this kind.
    #[inline]
    pub(super) fn header(self) -> u8 {
        match self {
            PacketKind::Genuine => 0,
            PacketKind::Decoy => IGNORE_BIT,
        }
    }

    /// The kind of a packet with this header byte. Only its top bit counts.
    #[inline]
    pub(super) fn from_header(header: u8) -> Self {
        if header & IGNORE_BIT == 0 {
            PacketKind::Genuine
        } else {
            PacketKind::Decoy
        }
    }
}
