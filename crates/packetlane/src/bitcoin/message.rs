//! Messages in packets: a type of one byte or of thirteen, then the payload
//! (BIP324, "v2 Bitcoin P2P message structure").
//!
//! The codec works on bytes; what a payload means is the caller's. Which type has which byte is a
//! [`MessageTable`]; the methods of [`MessageType`] use Bitcoin's.
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

/// The first byte of contents whose type is spelt out in the next twelve.
const LONG_TYPE: u8 = 0;

/// Short ids, from 1 on. The first 28 are BIP324's own table. The others are
/// those of `bip-0324/message_type_ids.md` in the BIPs repository (read November
/// 2026): 29 to 36 of BIP183 (proposed, pull request 1923) and 37 of BIP434.
/// That list calls itself not authoritative, so they are understood but not
/// sent: a peer that does not know one would drop the message.
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

/// Bitcoin's table: BIP324's own ids, and those that are understood and not sent.
static BITCOIN: MessageTable = MessageTable::new(&short_ids::<BIP324_IDS>(0))
    .with_receive_only(&short_ids::<{ SHORT_IDS.len() - BIP324_IDS }>(BIP324_IDS));

/// `N` of [`SHORT_IDS`], from index `first` on, with their ids.
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

/// The type of a message: up to twelve characters, as v1 and BIP324 spell it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageType {
    /// Padded with zeros.
    name: [u8; MessageType::MAX_LEN],
}

impl MessageType {
    /// Longest name of a message type, in bytes.
    pub const MAX_LEN: usize = 12;

    /// The type called `name`, for constants.
    ///
    /// # Panics
    ///
    /// If the name is malformed: in a constant, when it is compiled.
    #[must_use]
    pub const fn literal(name: &str) -> Self {
        let bytes = name.as_bytes();
        assert!(bytes.len() <= MessageType::MAX_LEN, "at most 12 characters");
        let mut padded = [0; MessageType::MAX_LEN];
        let mut i = 0;
        while i < bytes.len() {
            assert!(is_name_byte(bytes[i]), "printable ASCII");
            padded[i] = bytes[i];
            i += 1;
        }
        Self { name: padded }
    }

    /// The type called `name`.
    ///
    /// # Errors
    ///
    /// If it has more than 12 bytes or one that is no printable ASCII.
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

    /// The type in a field of 12 bytes, padded with zeros, as in the header of
    /// v1 and in BIP324's long form.
    ///
    /// # Errors
    ///
    /// If a byte before the padding is no printable ASCII, or one in the padding
    /// no zero.
    pub fn from_padded(field: &[u8; MessageType::MAX_LEN]) -> Result<Self, MessageError> {
        let length = field.iter().position(|&byte| byte == 0);
        let (name, padding) = field.split_at(length.unwrap_or(MessageType::MAX_LEN));
        if padding.iter().any(|&byte| byte != 0) {
            return Err(MessageError::TypePadding);
        }
        Self::new(name)
    }

    /// The field of 12 bytes, padded with zeros.
    #[must_use]
    pub const fn padded(&self) -> &[u8; MessageType::MAX_LEN] {
        &self.name
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        let length = self.name.iter().position(|&byte| byte == 0);
        let name = &self.name[..length.unwrap_or(MessageType::MAX_LEN)];
        core::str::from_utf8(name).expect("every constructor admits ASCII only")
    }

    /// The types that nodes send: those with a short id, assigned by BIP324 or since, and those
    /// without one.
    #[must_use]
    pub fn known() -> &'static [Self] {
        &KNOWN_TYPES
    }

    /// The id of one byte by which Bitcoin's nodes send this type: the one that BIP324's own table
    /// has for it, which every peer understands.
    #[must_use]
    pub fn short_id(&self) -> Option<u8> {
        BITCOIN.short_id(*self)
    }

    /// The type to which `id` has been assigned, if to one: by BIP324, or since. Of the
    /// latter [`MessageType::short_id`] knows nothing: they are understood and not sent.
    #[must_use]
    pub fn from_short_id(id: u8) -> Option<Self> {
        BITCOIN.message_type(id)
    }

    /// Appends the contents that carry a message of this type to `out`: the short form where
    /// BIP324's own table has an id for the type, else the long one.
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) {
        BITCOIN.encode(*self, payload, out);
    }

    /// The message in a packet's contents: its type and its payload.
    ///
    /// # Errors
    ///
    /// See [`MessageError`]. Contents of a peer go through [`Ignored::decode`], which keeps the
    /// connection, as nodes do.
    #[inline]
    pub fn decode(contents: &[u8]) -> Result<(Self, &[u8]), MessageError> {
        BITCOIN.decode(contents)
    }

    /// Length of the contents that carry a message of this type, in bytes.
    #[must_use]
    pub fn encoded_len(&self, payload_len: usize) -> usize {
        BITCOIN.encoded_len(*self, payload_len)
    }

    /// The beginning of the contents that carry a message of this type.
    #[inline]
    pub(crate) fn encoded(self) -> EncodedType {
        BITCOIN.encoded(self)
    }
}

impl MessageType {
    const fn is_empty(&self) -> bool {
        self.name[0] == 0
    }

    /// Where a [`MessageTable`] begins to look for it.
    const fn hash(&self) -> usize {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.name;
        let words = [[a, b, c, d], [e, f, g, h], [i, j, k, l]];
        let sum = u32::from_le_bytes(words[0])
            .wrapping_add(u32::from_le_bytes(words[1]).rotate_left(11))
            .wrapping_add(u32::from_le_bytes(words[2]).rotate_left(22));
        // Fibonacci hashing: the upper bits depend on all others.
        (sum.wrapping_mul(0x9e37_79b9) >> 16) as usize % SENT_PLACES
    }

    /// As `==`, which constants cannot call.
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

/// Printable ASCII, and DEL, as Bitcoin Core admits them.
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

/// A type as it begins the contents of a packet.
type EncodedType = ArrayVec<u8, { 1 + MessageType::MAX_LEN }>;

/// The short ids of a network's message types: one byte in place of 13.
///
/// Sessions and [`MessageType`] use Bitcoin's. For another network, encode messages here and push
/// them as the contents of genuine packets:
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
    /// The type of each id; an empty name where it has none.
    types: [MessageType; 256],
    /// A hash table of the ids that are sent: each at the first free place from the hash of its type
    /// on. 0 where there is none.
    sent: [u8; SENT_PLACES],
}

/// Twice as many as there are ids, so that a search ends soon. A power of two.
const SENT_PLACES: usize = 512;

impl MessageTable {
    /// Bitcoin's table: 28 ids that are sent, and those above that are only understood.
    pub const BITCOIN: &'static Self = &BITCOIN;

    /// A table with these ids and types.
    ///
    /// # Panics
    ///
    /// If an id is 0, which begins a type in full, if an id or a type occurs twice, or if a type
    /// is empty. In a constant, when it is compiled.
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

    /// The same table, which also understands these ids and does not send them: for ids that not
    /// every peer knows.
    ///
    /// # Panics
    ///
    /// As [`MessageTable::new`].
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
        assert!(id != LONG_TYPE, "id 0 begins a type in full: take another");
        assert!(!message_type.is_empty(), "a type in a table needs a name");
        let mut other = 0;
        while other < self.types.len() {
            let is_same = self.types[other].equals(&message_type);
            assert!(!is_same, "a type has two ids: give it one");
            other += 1;
        }
        let place = &mut self.types[id as usize];
        assert!(place.is_empty(), "an id has two types: give it one");
        *place = message_type;
    }

    /// The id by which a type is sent, if it has one.
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

    /// The type of an id, if it has one.
    #[must_use]
    pub fn message_type(&self, id: u8) -> Option<MessageType> {
        let message_type = self.types[usize::from(id)];
        (!message_type.is_empty()).then_some(message_type)
    }

    /// Appends the contents that carry a message to `out`: the short form if the type has an id
    /// that is sent, else the long one.
    pub fn encode(&self, message_type: MessageType, payload: &[u8], out: &mut Vec<u8>) {
        let encoded = self.encoded(message_type);
        out.reserve(encoded.len().saturating_add(payload.len()));
        out.extend_from_slice(&encoded);
        append(out, payload);
    }

    /// The message in a packet's contents: its type and its payload.
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

    /// Length of the contents that carry a message, in bytes.
    #[must_use]
    pub fn encoded_len(&self, message_type: MessageType, payload_len: usize) -> usize {
        payload_len.saturating_add(self.encoded(message_type).len())
    }

    /// The beginning of the contents that carry a message of this type.
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

/// What a peer has sent that is no message: dropped and counted.
///
/// Such a message does not end the connection, as in Bitcoin Core (`CNode::ReceiveMsgBytes`,
/// where a transport rejects a message): later versions of the protocol may have types that this
/// one does not know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// How many.
    pub messages: u64,
    /// Their length on the wire, in bytes.
    pub bytes: u64,
}

impl Ignored {
    /// The message in the contents of a peer's packet, which has `wire_len` bytes on the wire.
    /// `None` if it is empty, or its type unknown or malformed: then it is counted.
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

/// Why bytes are no message, or no type of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The contents are empty: not even a type.
    Empty,
    /// The id has not been assigned to any type.
    UnknownId {
        /// The id.
        id: u8,
    },
    /// The contents end within a type of 12 bytes.
    TypeCut {
        /// How many bytes of it are there.
        length: usize,
    },
    /// The name of a type is longer than 12 bytes.
    TypeTooLong {
        /// Its length, in bytes.
        length: usize,
    },
    /// The name of a type has a byte that is no printable ASCII.
    TypeByte {
        /// The byte.
        byte: u8,
    },
    /// Something other than zeros follows the name of a type in its field.
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
                write!(f, "a message type of {length} bytes: 12 are the most")
            }
            Self::TypeByte { byte } => {
                write!(
                    f,
                    "a message type has the byte 0x{byte:02x}, which is no printable ASCII"
                )
            }
            Self::TypePadding => {
                f.write_str("a message type is followed by something other than zeros")
            }
        }
    }
}

impl core::error::Error for MessageError {}
