//! Messages in packets: a type of 1 or 13 bytes, then the payload (BIP324, "v2 Bitcoin P2P message
//! structure").
//!
//! Payloads are not parsed. A [`MessageTable`] maps types to their one-byte ids; the methods of
//! [`MessageType`] use Bitcoin's table.
//!
//! ```
//! use packetlane::bitcoin::message::MessageType;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // A type without a short id takes 13 bytes.
//! let sendaddrv2 = MessageType::new(b"sendaddrv2")?;
//! let mut contents = Vec::new();
//! sendaddrv2.encode(b"", &mut contents);
//! assert_eq!(contents.len(), 13);
//! assert_eq!(MessageType::decode(&contents)?, (sendaddrv2, &b""[..]));
//! # Ok(())
//! # }
//! ```

use crate::copy::append;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::fmt;

/// First byte of contents whose type is spelt out in the next twelve bytes.
const LONG_TYPE: u8 = 0;

/// Short ids, from 1. The first 28 are BIP324's own table. The others are from
/// `bip-0324/message_type_ids.md` in the BIPs repository (read November 2026): 29 to 36 for BIP183
/// (proposed, pull request 1923) and 37 for BIP434. That list states that it is not authoritative,
/// so these ids are understood but not sent: a peer that does not know one would drop the message.
const SHORT_IDS: [&str; 37] = [
    "addr",
    "block",
    "blocktxn",
    "cmpctblock",
    "feefilter",
    "filteradd",
    "filterclear",
    "filterload",
    "getblocks",
    "getblocktxn",
    "getdata",
    "getheaders",
    "headers",
    "inv",
    "mempool",
    "merkleblock",
    "notfound",
    "ping",
    "pong",
    "sendcmpct",
    "tx",
    "getcfilters",
    "cfilter",
    "getcfheaders",
    "cfheaders",
    "getcfcheckpt",
    "cfcheckpt",
    "addrv2",
    "uproof",
    "getuproof",
    "uttls",
    "getuttls",
    "usummary",
    "utreexotx",
    "uroot",
    "geturoot",
    "feature",
];

/// Types that nodes send and that have no short id.
const LONG_TYPES: [&str; 8] = [
    "version",
    "verack",
    "getaddr",
    "sendheaders",
    "sendaddrv2",
    "wtxidrelay",
    "sendtxrcncl",
    "reject",
];

/// How many of [`SHORT_IDS`] every peer understands.
const BIP324_IDS: usize = 28;

/// The types of [`SHORT_IDS`], then those of [`LONG_TYPES`].
static KNOWN_TYPES: [MessageType; SHORT_IDS.len() + LONG_TYPES.len()] = {
    let mut types = [MessageType::literal(""); SHORT_IDS.len() + LONG_TYPES.len()];
    let mut i = 0;
    while i < types.len() {
        types[i] = MessageType::literal(match i < SHORT_IDS.len() {
            true => SHORT_IDS[i],
            false => LONG_TYPES[i - SHORT_IDS.len()],
        });
        i += 1;
    }
    types
};

/// Bitcoin's table: the ids of BIP324 itself, and those that are understood but not sent.
static BITCOIN: MessageTable = MessageTable::new(&short_ids::<BIP324_IDS>(0))
    .with_receive_only(&short_ids::<{ SHORT_IDS.len() - BIP324_IDS }>(BIP324_IDS));

/// Returns `N` of [`SHORT_IDS`], starting at index `first`, with their ids.
const fn short_ids<const N: usize>(first: usize) -> [(u8, MessageType); N] {
    let mut ids = [(0, MessageType::literal("")); N];
    let mut i = 0;
    while i < N {
        let index = first + i;
        ids[i] = (index as u8 + 1, MessageType::literal(SHORT_IDS[index]));
        i += 1;
    }
    ids
}

/// The type of a message: a name of up to twelve characters, as in v1 and BIP324.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType {
    /// The name, padded with zeros.
    name: [u8; MessageType::MAX_LEN],
}

impl MessageType {
    /// Maximum length of a type's name, in bytes.
    pub const MAX_LEN: usize = 12;

    /// Creates the type called `name`, for use in constants.
    ///
    /// # Panics
    ///
    /// If the name is malformed; in a constant, at compile time.
    #[must_use]
    pub const fn literal(name: &str) -> Self {
        let bytes = name.as_bytes();
        assert!(
            bytes.len() <= MessageType::MAX_LEN,
            "a message type has at most 12 characters"
        );
        let mut padded = [0; MessageType::MAX_LEN];
        let mut i = 0;
        while i < bytes.len() {
            assert!(is_name_byte(bytes[i]), "printable ASCII");
            padded[i] = bytes[i];
            i += 1;
        }
        Self { name: padded }
    }

    /// Creates the type called `name`.
    ///
    /// # Errors
    ///
    /// If it has more than 12 bytes, or a byte that is not printable ASCII.
    pub fn new(name: &[u8]) -> Result<Self, MessageError> {
        let mut padded = [0; MessageType::MAX_LEN];
        padded
            .get_mut(..name.len())
            .ok_or(MessageError::TypeTooLong { length: name.len() })?
            .copy_from_slice(name);
        match name.iter().find(|&&byte| !is_name_byte(byte)) {
            Some(&byte) => Err(MessageError::TypeByte { byte }),
            None => Ok(Self { name: padded }),
        }
    }

    /// Creates the type from a 12-byte field, padded with zeros, as in a v1 header and in BIP324's
    /// long encoding.
    ///
    /// # Errors
    ///
    /// If a byte before the padding is not printable ASCII, or a padding byte is not zero.
    pub fn from_padded(field: &[u8; MessageType::MAX_LEN]) -> Result<Self, MessageError> {
        let length = field.iter().position(|&byte| byte == 0);
        let (name, padding) = field.split_at(length.unwrap_or(MessageType::MAX_LEN));
        if padding.iter().any(|&byte| byte != 0) {
            return Err(MessageError::TypePadding);
        }
        Self::new(name)
    }

    /// Returns the 12-byte field, padded with zeros.
    #[must_use]
    pub const fn padded(&self) -> &[u8; MessageType::MAX_LEN] {
        &self.name
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        let length = self.name.iter().position(|&byte| byte == 0);
        let name = &self.name[..length.unwrap_or(MessageType::MAX_LEN)];
        core::str::from_utf8(name).expect("every constructor admits ASCII only")
    }

    /// Returns the types that nodes send: those with a short id, assigned by BIP324 or later, and
    /// those without one.
    #[must_use]
    pub fn known() -> &'static [Self] {
        &KNOWN_TYPES
    }

    /// Returns the one-byte id that Bitcoin nodes use to send this type: the one in BIP324's own
    /// table, which every peer understands.
    #[must_use]
    pub fn short_id(&self) -> Option<u8> {
        BITCOIN.short_id(*self)
    }

    /// Returns the type that `id` is assigned to, by BIP324 or later. Ids assigned later are
    /// understood but not sent, so [`MessageType::short_id`] does not return them.
    #[must_use]
    pub fn from_short_id(id: u8) -> Option<Self> {
        BITCOIN.message_type(id)
    }

    /// Appends the contents that carry a message of this type to `out`: in the short encoding if
    /// BIP324's own table has an id for the type, otherwise in the long one.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        BITCOIN.encode(*self, payload, out);
    }

    /// Returns the message in a packet's contents: its type and its payload.
    ///
    /// # Errors
    ///
    /// See [`MessageError`]. For contents from a peer, use [`Ignored::decode`], which drops bad
    /// messages and keeps the connection open, as nodes do.
    #[inline]
    pub fn decode(contents: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        BITCOIN.decode(contents)
    }

    /// Returns the length of the contents that carry a message of this type, in bytes.
    #[must_use]
    pub fn encoded_len(&self, payload_len: usize) -> usize {
        BITCOIN.encoded_len(*self, payload_len)
    }

    /// Returns the encoded type, which begins the contents.
    #[inline]
    pub(crate) fn encoded(self) -> EncodedType {
        BITCOIN.encoded(self)
    }
}

impl MessageType {
    const fn is_empty(&self) -> bool {
        self.name[0] == 0
    }

    /// Returns the index at which a [`MessageTable`] starts its search.
    const fn hash(&self) -> usize {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.name;
        let words = [[a, b, c, d], [e, f, g, h], [i, j, k, l]];
        let sum = u32::from_le_bytes(words[0])
            .wrapping_add(u32::from_le_bytes(words[1]).rotate_left(11))
            .wrapping_add(u32::from_le_bytes(words[2]).rotate_left(22));
        // Fibonacci hashing: the upper bits depend on all others.
        (sum.wrapping_mul(0x9e37_79b9) >> 16) as usize % SENT_PLACES
    }

    /// Like `==`, but usable in constants.
    const fn equals(&self, other: &Self) -> bool {
        let mut i = 0;
        while i < Self::MAX_LEN {
            if self.name[i] != other.name[i] {
                return false;
            }
            i += 1;
        }
        true
    }
}

/// Whether a name may contain `byte`: printable ASCII, and DEL, as in Bitcoin Core.
const fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b' '..=0x7f)
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageType({:?})", self.name())
    }
}

/// An encoded type: the first bytes of a packet's contents.
type EncodedType = ArrayVec<u8, { 1 + MessageType::MAX_LEN }>;

/// The short ids of a network's message types: one byte instead of 13.
///
/// Sessions and [`MessageType`] use Bitcoin's. For another network, encode messages with its table
/// and push them as the contents of genuine packets:
///
/// ```
/// use packetlane::bitcoin::message::{MessageTable, MessageType};
///
/// const QUORUM: MessageType = MessageType::literal("quorum");
/// static TABLE: MessageTable = MessageTable::new(&[(128, QUORUM)]);
///
/// let mut contents = Vec::new();
/// TABLE.encode(QUORUM, b"payload", &mut contents);
/// assert_eq!(contents[0], 128);
/// assert_eq!(TABLE.decode(&contents), Ok((QUORUM, &b"payload"[..])));
/// // Bitcoin has no such id.
/// assert!(MessageType::decode(&contents).is_err());
/// ```
pub struct MessageTable {
    /// The type of each id; an empty name if it has none.
    types: [MessageType; 256],
    /// A hash table of the ids that are sent, with linear probing from the hash of the type. 0
    /// marks a free entry.
    sent: [u8; SENT_PLACES],
}

/// Twice the number of ids, so that searches are short. A power of two.
const SENT_PLACES: usize = 512;

impl MessageTable {
    /// Bitcoin's table: 28 ids that are sent, and further ids that are only understood.
    pub const BITCOIN: &'static Self = &BITCOIN;

    /// Creates a table of these ids and types.
    ///
    /// # Panics
    ///
    /// If an id is 0, which marks the long encoding; if an id or a type occurs twice; or if a type
    /// is empty. In a constant, at compile time.
    #[must_use]
    pub const fn new(types: &[(u8, MessageType)]) -> Self {
        let mut table = Self {
            types: [MessageType::literal(""); 256],
            sent: [0; SENT_PLACES],
        };
        let mut i = 0;
        while i < types.len() {
            let (id, message_type) = types[i];
            table.assign(id, message_type);
            let mut place = message_type.hash();
            while table.sent[place] != 0 {
                place = (place + 1) % SENT_PLACES;
            }
            table.sent[place] = id;
            i += 1;
        }
        table
    }

    /// Returns the table with further ids that it understands but does not send, for ids that not
    /// every peer knows.
    ///
    /// # Panics
    ///
    /// As for [`MessageTable::new`].
    #[must_use]
    pub const fn with_receive_only(mut self, types: &[(u8, MessageType)]) -> Self {
        let mut i = 0;
        while i < types.len() {
            let (id, message_type) = types[i];
            self.assign(id, message_type);
            i += 1;
        }
        self
    }

    const fn assign(&mut self, id: u8, message_type: MessageType) {
        assert!(
            id != LONG_TYPE,
            "id 0 marks the long encoding: use another id"
        );
        assert!(!message_type.is_empty(), "a type in a table needs a name");
        let mut other = 0;
        while other < self.types.len() {
            let is_same = self.types[other].equals(&message_type);
            assert!(!is_same, "a type has two ids: assign one");
            other += 1;
        }
        let place = &mut self.types[id as usize];
        assert!(place.is_empty(), "an id has two types: assign one");
        *place = message_type;
    }

    /// Returns the id that a type is sent with, if it has one.
    #[must_use]
    pub fn short_id(&self, message_type: MessageType) -> Option<u8> {
        let mut place = message_type.hash();
        loop {
            match self.sent[place] {
                0 => return None,
                id if self.types[usize::from(id)] == message_type => return Some(id),
                _ => place = (place + 1) % SENT_PLACES,
            }
        }
    }

    /// Returns the type of an id, if it has one.
    #[must_use]
    pub fn message_type(&self, id: u8) -> Option<MessageType> {
        let message_type = self.types[usize::from(id)];
        (!message_type.is_empty()).then_some(message_type)
    }

    /// Appends the contents that carry a message to `out`: in the short encoding if the type has an
    /// id that is sent, otherwise in the long one.
    pub fn encode(&self, message_type: MessageType, payload: &[u8], out: &mut Vec<u8>) {
        let encoded = self.encoded(message_type);
        out.reserve(encoded.len().saturating_add(payload.len()));
        out.extend_from_slice(&encoded);
        append(out, payload);
    }

    /// Returns the message in a packet's contents: its type and its payload.
    ///
    /// # Errors
    ///
    /// See [`MessageError`].
    #[inline]
    pub fn decode<'c>(&self, contents: &'c [u8]) -> Result<(MessageType, &'c [u8]), MessageError> {
        let (&id, rest) = contents.split_first().ok_or(MessageError::Empty)?;
        if id != LONG_TYPE {
            let message_type = self.message_type(id);
            return Ok((message_type.ok_or(MessageError::UnknownId { id })?, rest));
        }
        let (field, payload) = rest
            .split_first_chunk()
            .ok_or(MessageError::TypeCut { length: rest.len() })?;
        Ok((MessageType::from_padded(field)?, payload))
    }

    /// Returns the length of the contents that carry a message, in bytes.
    #[must_use]
    pub fn encoded_len(&self, message_type: MessageType, payload_len: usize) -> usize {
        payload_len.saturating_add(self.encoded(message_type).len())
    }

    /// Returns the encoded type, which begins the contents.
    #[inline]
    fn encoded(&self, message_type: MessageType) -> EncodedType {
        let mut encoded = ArrayVec::new();
        match self.short_id(message_type) {
            Some(id) => encoded.push(id),
            None => {
                encoded.push(LONG_TYPE);
                encoded.extend(message_type.name);
            }
        }
        encoded
    }
}

impl fmt::Debug for MessageTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = (0..=u8::MAX).filter_map(|id| Some((id, self.message_type(id)?)));
        f.debug_map().entries(ids).finish()
    }
}

/// Counts what a peer sent that is no valid message, and was dropped.
///
/// Such a message does not end the connection, as in Bitcoin Core (`CNode::ReceiveMsgBytes`, where
/// a transport rejects a message): later versions of the protocol may use types that this one does
/// not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// Number of dropped messages.
    pub messages: u64,
    /// Their total length on the wire, in bytes.
    pub bytes: u64,
}

impl Ignored {
    /// Returns the message in the contents of a peer's packet, whose length on the wire is
    /// `wire_len`. Returns `None` and counts the packet if it is empty, or if its type is unknown
    /// or malformed.
    #[inline]
    pub fn decode<'c>(
        &mut self,
        contents: &'c [u8],
        wire_len: usize,
    ) -> Option<(MessageType, &'c [u8])> {
        match MessageType::decode(contents) {
            Ok(message) => Some(message),
            Err(_) => {
                self.count(wire_len);
                None
            }
        }
    }

    #[cold]
    pub(super) fn count(&mut self, wire_len: usize) {
        self.messages += 1;
        self.bytes += wire_len as u64;
    }
}

/// Why bytes are not a message or not a message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The contents are empty, without even a type.
    Empty,
    /// The id is not assigned to any type.
    UnknownId {
        /// The id.
        id: u8,
    },
    /// The contents end within a 12-byte type.
    TypeCut {
        /// How many bytes of the type are present.
        length: usize,
    },
    /// The name of a type is longer than 12 bytes.
    TypeTooLong {
        /// Its length, in bytes.
        length: usize,
    },
    /// The name of a type contains a byte that is not printable ASCII.
    TypeByte {
        /// The byte.
        byte: u8,
    },
    /// The name of a type is followed by bytes other than zeros in its field.
    TypePadding,
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the packet is empty: a message has at least a type"),
            Self::UnknownId { id } => write!(f, "no message type has the short id {id}"),
            Self::TypeCut { length } => {
                write!(
                    f,
                    "the packet ends after {length} of 12 bytes of the message type"
                )
            }
            Self::TypeTooLong { length } => {
                write!(f, "a message type of {length} bytes: the maximum is 12")
            }
            Self::TypeByte { byte } => {
                write!(
                    f,
                    "a message type has the byte 0x{byte:02x}, which is not printable ASCII"
                )
            }
            Self::TypePadding => {
                f.write_str("a message type is followed by something other than zeros")
            }
        }
    }
}

impl core::error::Error for MessageError {}
