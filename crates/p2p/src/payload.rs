//! Message payloads. Decoding checks every length against the available bytes. Integers are
//! little-endian.

use packetlane::bitcoin::Network;
use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::time::SystemTime;

/// The protocol version that we send. Its newest features are `addrv2` (BIP155) and `wtxidrelay`
/// (BIP339).
pub const PROTOCOL_VERSION: i32 = 70016;

/// Maximum number of headers in a `headers` message. A message with fewer is the last.
pub const MAX_HEADERS: usize = 2000;

/// Maximum number of entries in `inv`, `getdata` and `notfound`.
pub const MAX_INVENTORY: usize = 50_000;

/// Maximum number of hashes in the locator of a `getheaders` message.
pub const MAX_LOCATOR: usize = 101;

/// Maximum length of a user agent that nodes accept, in bytes.
pub const MAX_USER_AGENT_LEN: usize = 256;

/// Length of a block header, in bytes.
pub const BLOCK_HEADER_LEN: usize = 80;

/// Length of a header in a `headers` message, in bytes: a count of transactions follows it.
pub const HEADERS_ENTRY_LEN: usize = BLOCK_HEADER_LEN + 1;

/// Length of an entry of `inv`, `getdata` and `notfound`, in bytes.
pub const INVENTORY_ENTRY_LEN: usize = 36;

/// Seconds since 1970-01-01 (Unix time), as in headers and addresses.
#[must_use]
pub fn unix_time() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| {
        u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
    })
}

/// The service bits of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Services(pub u64);

impl Services {
    /// Serves all blocks.
    pub const NETWORK: Self = Self(1);
    /// Serves blocks and transactions with their witnesses (BIP144).
    pub const WITNESS: Self = Self(1 << 3);
    /// Serves the latest 288 blocks (BIP159).
    pub const NETWORK_LIMITED: Self = Self(1 << 10);
    /// Speaks v2 (BIP324).
    pub const P2P_V2: Self = Self(1 << 11);

    /// The union of both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of the bits that are set, lowest first.
    #[must_use]
    pub fn names(self) -> Vec<String> {
        let bits = (0..u64::BITS).filter(|bit| self.0 >> bit & 1 == 1);
        bits.map(|bit| Self::name(bit).map_or_else(|| format!("bit {bit}"), str::to_owned))
            .collect()
    }

    /// The name of a bit, if it is in use.
    fn name(bit: u32) -> Option<&'static str> {
        Some(match bit {
            0 => "NETWORK",
            1 => "GETUTXO",
            2 => "BLOOM",
            3 => "WITNESS",
            4 => "XTHIN",
            6 => "COMPACT_FILTERS",
            10 => "NETWORK_LIMITED",
            11 => "P2P_V2",
            _ => return None,
        })
    }
}

impl fmt::Display for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("none"),
            _ => f.write_str(&self.names().join(", ")),
        }
    }
}

/// A `version` message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The highest protocol version that the sender supports.
    pub protocol: i32,
    /// What the sender serves.
    pub services: Services,
    /// Seconds since 1970-01-01 (Unix time).
    pub time: i64,
    /// Random number by which a node detects a connection to itself.
    pub nonce: u64,
    /// As the peer sent it. Use [`printable`] before printing it.
    pub user_agent: Vec<u8>,
    /// The height of the sender's latest block.
    pub start_height: i32,
    /// Whether the peer should announce transactions (BIP37).
    pub relay: bool,
}

impl Version {
    /// Encodes the payload. The network addresses, which nodes ignore, are zero.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.protocol.to_le_bytes());
        out.extend_from_slice(&self.services.0.to_le_bytes());
        out.extend_from_slice(&self.time.to_le_bytes());
        // The network addresses of both sides: services, IP, port.
        out.extend_from_slice(&[0; 26]);
        out.extend_from_slice(&[0; 26]);
        out.extend_from_slice(&self.nonce.to_le_bytes());
        put_compact_size(self.user_agent.len() as u64, &mut out);
        out.extend_from_slice(&self.user_agent);
        out.extend_from_slice(&self.start_height.to_le_bytes());
        out.push(u8::from(self.relay));
        out
    }

    /// Decodes a payload. Ignores the network addresses and bytes after the last field.
    ///
    /// # Errors
    ///
    /// [`PayloadError::Cut`], [`PayloadError::Padded`], or [`PayloadError::TooMany`] for a user
    /// agent longer than [`MAX_USER_AGENT_LEN`].
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let mut rest = payload;
        let protocol = i32::from_le_bytes(*take(&mut rest)?);
        let services = Services(u64::from_le_bytes(*take(&mut rest)?));
        let time = i64::from_le_bytes(*take(&mut rest)?);
        let _addresses: &[u8; 52] = take(&mut rest)?;
        let nonce = u64::from_le_bytes(*take(&mut rest)?);
        let length = take_count(&mut rest, MAX_USER_AGENT_LEN)?;
        let (user_agent, tail) = rest.split_at_checked(length).ok_or(PayloadError::Cut)?;
        rest = tail;
        let start_height = i32::from_le_bytes(*take(&mut rest)?);
        Ok(Self {
            protocol,
            services,
            time,
            nonce,
            user_agent: user_agent.to_vec(),
            start_height,
            // Before BIP37 the message ended here. Later protocol versions may append fields, which
            // are ignored.
            relay: rest.first() != Some(&0),
        })
    }
}

/// The start of a `version`, which every node sends: all that a relay needs of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionStart {
    /// What the sender serves.
    pub services: Services,
    /// The IP address at which the sender sees the receiver.
    pub receiver: IpAddr,
}

impl VersionStart {
    /// Decodes the start of a payload: protocol version (4 bytes), services (8), time (8), and the
    /// receiver's services (8) and IP address (16).
    ///
    /// # Errors
    ///
    /// [`PayloadError::Cut`].
    pub fn decode(payload: &[u8]) -> Result<Self, PayloadError> {
        let mut rest = payload;
        let _protocol: &[u8; 4] = take(&mut rest)?;
        let services = Services(u64::from_le_bytes(*take(&mut rest)?));
        let _time_and_services: &[u8; 16] = take(&mut rest)?;
        let receiver = Ipv6Addr::from(*take::<16>(&mut rest)?).to_canonical();
        Ok(Self { services, receiver })
    }
}

/// The hash of a block, in SHA-256's byte order. It is displayed with its bytes reversed, as usual
/// in Bitcoin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub [u8; 32]);

impl BlockHash {
    /// Parses a displayed hash.
    const fn literal(text: &str) -> Self {
        let text = text.as_bytes();
        assert!(text.len() == 64, "32 bytes");
        let mut hash = [0; 32];
        let mut i = 0;
        while i < 32 {
            hash[31 - i] = 16 * digit(text[2 * i]) + digit(text[2 * i + 1]);
            i += 1;
        }
        Self(hash)
    }

    /// Parses a displayed hash: 64 hexadecimal digits. `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (index, byte) in hash.iter_mut().rev().enumerate() {
            *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
        }
        Some(Self(hash))
    }

    /// The hash of a block's header.
    fn of(header: &[u8; BLOCK_HEADER_LEN]) -> Self {
        Self(Sha256::digest(Sha256::digest(header)).into())
    }

    /// The hash of the network's genesis block, if the network is known.
    #[must_use]
    pub fn genesis(network: Network) -> Option<Self> {
        const MAIN: BlockHash =
            BlockHash::literal("000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f");
        const TESTNET3: BlockHash =
            BlockHash::literal("000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943");
        const TESTNET4: BlockHash =
            BlockHash::literal("00000000da84f2bafbbc53dee25a72ae507ff4914b867c565be350b0da8bf043");
        const SIGNET: BlockHash =
            BlockHash::literal("00000008819873e925422c1ff0f99f7cc9bbb232af63a077a480a3633bee1ef6");
        const REGTEST: BlockHash =
            BlockHash::literal("0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206");
        Some(match network {
            Network::Mainnet => MAIN,
            Network::Testnet3 => TESTNET3,
            Network::Testnet4 => TESTNET4,
            Network::Signet => SIGNET,
            Network::Regtest => REGTEST,
            _ => return None,
        })
    }
}

const fn digit(byte: u8) -> u8 {
    match byte {
        b'0'..=b'9' => byte - b'0',
        b'a'..=b'f' => byte - b'a' + 10,
        _ => panic!("a hexadecimal digit"),
    }
}

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .rev()
            .try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A block header: the 80 bytes on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(pub [u8; BLOCK_HEADER_LEN]);

impl Header {
    /// The hash of the block.
    #[must_use]
    pub fn hash(&self) -> BlockHash {
        BlockHash::of(&self.0)
    }

    /// The hash of the block that it builds on.
    #[must_use]
    pub fn previous(&self) -> BlockHash {
        let mut previous = [0; 32];
        previous.copy_from_slice(&self.0[4..36]);
        BlockHash(previous)
    }
}

/// Encodes a `getheaders` for as many headers as possible after the first block of `locator` that
/// the peer knows.
#[must_use]
pub fn encode_getheaders(locator: &[BlockHash]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    put_compact_size(locator.len() as u64, &mut out);
    for known in locator {
        out.extend_from_slice(&known.0);
    }
    // No stop hash.
    out.extend_from_slice(&[0; 32]);
    out
}

/// Decodes the locator of a `getheaders` message. Ignores its protocol version and stop hash.
///
/// # Errors
///
/// See [`PayloadError`]; [`PayloadError::TooMany`] for more than [`MAX_LOCATOR`] hashes.
pub fn decode_getheaders(payload: &[u8]) -> Result<Vec<BlockHash>, PayloadError> {
    let mut rest = payload;
    let _protocol: &[u8; 4] = take(&mut rest)?;
    let count = take_count(&mut rest, MAX_LOCATOR)?;
    let mut locator = Vec::new();
    for _ in 0..count {
        locator.push(BlockHash(*take(&mut rest)?));
    }
    let _stop: &[u8; 32] = take(&mut rest)?;
    end(rest)?;
    Ok(locator)
}

/// Encodes the payload of a `headers` message.
#[must_use]
pub fn encode_headers(headers: &[Header]) -> Vec<u8> {
    let mut out = Vec::new();
    put_compact_size(headers.len() as u64, &mut out);
    for header in headers {
        out.extend_from_slice(&header.0);
        // The number of transactions, always 0.
        out.push(0);
    }
    out
}

/// Decodes the payload of a `headers` message. Does not check whether the headers form a chain.
///
/// # Errors
///
/// See [`PayloadError`]; [`PayloadError::TooMany`] for more than [`MAX_HEADERS`] headers, or a
/// header with transactions.
pub fn decode_headers(payload: &[u8]) -> Result<Vec<Header>, PayloadError> {
    let mut rest = payload;
    let count = take_count(&mut rest, MAX_HEADERS)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        headers.push(Header(*take(&mut rest)?));
        // The number of transactions.
        take_count(&mut rest, 0)?;
    }
    end(rest)?;
    Ok(headers)
}

/// The hash of the block in a `block` message.
///
/// # Errors
///
/// [`PayloadError::Cut`] if the header is incomplete.
pub fn block_hash(payload: &[u8]) -> Result<BlockHash, PayloadError> {
    payload
        .first_chunk()
        .map(BlockHash::of)
        .ok_or(PayloadError::Cut)
}

/// The type of an inventory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InventoryType(pub u32);

impl InventoryType {
    /// A transaction, by its txid.
    pub const TX: Self = Self(1);
    /// A block.
    pub const BLOCK: Self = Self(2);
    /// A block as `cmpctblock` (BIP152).
    pub const COMPACT_BLOCK: Self = Self(4);
    /// A transaction, by its wtxid (BIP339).
    pub const WTX: Self = Self(5);
    /// A transaction with its witness, by its txid (BIP144).
    pub const WITNESS_TX: Self = Self(0x4000_0001);
    /// A block with its witnesses (BIP144).
    pub const WITNESS_BLOCK: Self = Self(0x4000_0002);
}

/// An entry of an `inv`, `getdata` or `notfound` message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inventory {
    /// What it is.
    pub kind: InventoryType,
    /// Its hash, in SHA-256's byte order.
    pub hash: [u8; 32],
}

/// Encodes an `inv`, `getdata` or `notfound` message.
#[must_use]
pub fn encode_inventory(entries: &[Inventory]) -> Vec<u8> {
    let mut out = Vec::new();
    put_compact_size(entries.len() as u64, &mut out);
    for entry in entries {
        out.extend_from_slice(&entry.kind.0.to_le_bytes());
        out.extend_from_slice(&entry.hash);
    }
    out
}

/// Decodes an `inv`, `getdata` or `notfound` message.
///
/// # Errors
///
/// See [`PayloadError`]; [`PayloadError::TooMany`] for more than [`MAX_INVENTORY`] entries.
pub fn decode_inventory(payload: &[u8]) -> Result<Vec<Inventory>, PayloadError> {
    let mut rest = payload;
    let count = take_count(&mut rest, MAX_INVENTORY)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        let kind = InventoryType(u32::from_le_bytes(*take(&mut rest)?));
        let hash = *take(&mut rest)?;
        entries.push(Inventory { kind, hash });
    }
    end(rest)?;
    Ok(entries)
}

/// Decodes the nonce of a `ping` or `pong` message.
///
/// # Errors
///
/// [`PayloadError::Cut`] if there is none, as in pings before BIP31.
pub fn decode_nonce(payload: &[u8]) -> Result<u64, PayloadError> {
    let mut rest = payload;
    Ok(u64::from_le_bytes(*take(&mut rest)?))
}

/// Makes the peer's text safe to print: escapes everything except printable ASCII.
#[must_use]
pub fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

pub(crate) fn take<'b, const N: usize>(rest: &mut &'b [u8]) -> Result<&'b [u8; N], PayloadError> {
    let (chunk, tail) = rest.split_first_chunk().ok_or(PayloadError::Cut)?;
    *rest = tail;
    Ok(chunk)
}

/// Rejects bytes after the end of a payload.
fn end(rest: &[u8]) -> Result<(), PayloadError> {
    match rest.is_empty() {
        true => Ok(()),
        false => Err(PayloadError::Longer),
    }
}

/// Encodes a CompactSize.
pub(crate) fn put_compact_size(value: u64, out: &mut Vec<u8>) {
    match value {
        0..=0xfc => out.push(value as u8),
        0xfd..=0xffff => {
            out.push(0xfd);
            out.extend_from_slice(&(value as u16).to_le_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xfe);
            out.extend_from_slice(&(value as u32).to_le_bytes());
        }
        _ => {
            out.push(0xff);
            out.extend_from_slice(&value.to_le_bytes());
        }
    }
}

/// Decodes a CompactSize at the start of `rest`, and leaves what follows.
///
/// # Errors
///
/// [`PayloadError::Cut`], and [`PayloadError::Padded`] if it is not in its shortest form.
pub fn take_compact_size(rest: &mut &[u8]) -> Result<u64, PayloadError> {
    let [first] = *take(rest)?;
    let (value, shortest) = match first {
        0xfd => (u16::from_le_bytes(*take(rest)?).into(), 0xfd),
        0xfe => (u32::from_le_bytes(*take(rest)?).into(), 0x1_0000),
        0xff => (u64::from_le_bytes(*take(rest)?), 0x1_0000_0000),
        _ => (first.into(), 0),
    };
    match value < shortest {
        true => Err(PayloadError::Padded),
        false => Ok(value),
    }
}

/// Decodes a count, which must be at most `limit`.
pub(crate) fn take_count(rest: &mut &[u8], limit: usize) -> Result<usize, PayloadError> {
    let count = take_compact_size(rest)?;
    match usize::try_from(count) {
        Ok(count) if count <= limit => Ok(count),
        _ => Err(PayloadError::TooMany { count, limit }),
    }
}

/// What is wrong with a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// The payload ends too early.
    Cut,
    /// The payload has bytes after its end.
    Longer,
    /// A count is not in its shortest form.
    Padded,
    /// A count exceeds the protocol's limit.
    TooMany {
        /// The count.
        count: u64,
        /// The limit.
        limit: usize,
    },
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut => f.write_str("it ends too early"),
            Self::Longer => f.write_str("bytes follow its end"),
            Self::Padded => f.write_str("a count is not in its shortest form"),
            Self::TooMany { count, limit } => {
                write!(
                    f,
                    "it claims {count} entries or bytes; the limit is {limit}"
                )
            }
        }
    }
}

impl std::error::Error for PayloadError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        Version {
            protocol: 70015,
            services: Services(0x409),
            time: 1_700_000_000,
            nonce: 0x1122_3344_5566_7788,
            user_agent: b"/test:1.0/".to_vec(),
            start_height: 800_000,
            relay: false,
        }
    }

    #[test]
    fn a_version_round_trips_and_its_prefixes_are_rejected() {
        let payload = version().encode();
        assert_eq!(Version::decode(&payload), Ok(version()));
        // The last byte, which BIP37 added, may be missing.
        let (_, old) = payload.split_last().unwrap();
        assert!(Version::decode(old).unwrap().relay);
        for len in 0..old.len() {
            assert_eq!(
                Version::decode(&old[..len]),
                Err(PayloadError::Cut),
                "{len}"
            );
        }
        let mut long = version();
        long.user_agent = vec![b'a'; 257];
        let limit = 256;
        assert_eq!(
            Version::decode(&long.encode()),
            Err(PayloadError::TooMany { count: 257, limit })
        );
    }

    #[test]
    fn a_version_starts_with_what_a_relay_needs() {
        let mut payload = version().encode();
        payload[28..44].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 203, 0, 113, 5]);
        let start = VersionStart {
            services: Services(0x409),
            receiver: [203, 0, 113, 5].into(),
        };
        assert_eq!(VersionStart::decode(&payload[..44]), Ok(start));
        for len in 0..44 {
            let cut = VersionStart::decode(&payload[..len]);
            assert_eq!(cut, Err(PayloadError::Cut));
        }
    }

    #[test]
    fn a_count_has_one_form_and_a_limit() {
        for count in [0, 0xfc, 0xfd, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000] {
            let mut bytes = Vec::new();
            put_compact_size(count as u64, &mut bytes);
            let mut rest = &bytes[..];
            assert_eq!(take_count(&mut rest, count), Ok(count));
            assert!(rest.is_empty());
            if count > 0 {
                let limit = count - 1;
                let count = count as u64;
                let error = PayloadError::TooMany { count, limit };
                assert_eq!(take_count(&mut &bytes[..], limit), Err(error));
            }
            for len in 0..bytes.len() {
                assert_eq!(
                    take_count(&mut &bytes[..len], count),
                    Err(PayloadError::Cut)
                );
            }
        }
        for padded in [&[0xfd, 0xfc, 0][..], &[0xfe, 0xff, 0xff, 0, 0]] {
            assert_eq!(
                take_count(&mut &padded[..], 100_000),
                Err(PayloadError::Padded)
            );
        }
        let padded = [0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
        assert_eq!(take_count(&mut &padded[..], 1), Err(PayloadError::Padded));
    }

    /// The header of the main network's genesis block is well known.
    #[test]
    fn the_header_of_the_genesis_block_has_its_hash() {
        let mut header = [0; 80];
        header[0] = 1;
        let merkle_root =
            BlockHash::literal("4a5e1e4baab89f3a32518a88c31bc87f618f76673e2cc77ab2127b7afdeda33b");
        header[36..68].copy_from_slice(&merkle_root.0);
        header[68..72].copy_from_slice(&1_231_006_505_u32.to_le_bytes());
        header[72..76].copy_from_slice(&0x1d00_ffff_u32.to_le_bytes());
        header[76..80].copy_from_slice(&2_083_236_893_u32.to_le_bytes());
        let genesis = BlockHash::genesis(Network::Mainnet).unwrap();
        assert_eq!(block_hash(&header), Ok(genesis));
        assert_eq!(block_hash(&header[..79]), Err(PayloadError::Cut));
        let text = "000000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f";
        assert_eq!(genesis.to_string(), text);
        assert_eq!(BlockHash::parse(text), Some(genesis));
        for wrong in [
            "",
            &text[1..],
            "0x0000000019d6689c085ae165831e934ff763ae46a2a6c172b3f1b60a8ce26f",
        ] {
            assert_eq!(BlockHash::parse(wrong), None, "{wrong}");
        }

        // A `headers` message with that header alone.
        let mut payload = vec![1];
        payload.extend_from_slice(&header);
        payload.push(0);
        let headers = decode_headers(&payload).unwrap();
        assert_eq!(headers.len(), 1);
        assert_eq!(headers[0].hash(), genesis);
        assert_eq!(headers[0].previous(), BlockHash([0; 32]));
        assert_eq!(encode_headers(&headers), payload);
        for len in 0..payload.len() {
            assert_eq!(decode_headers(&payload[..len]), Err(PayloadError::Cut));
        }
        payload.push(0);
        assert_eq!(decode_headers(&payload), Err(PayloadError::Longer));
        // First more headers than the payload holds, then more than the protocol allows.
        assert_eq!(decode_headers(&[0xfd, 0xd0, 7]), Err(PayloadError::Cut));
        assert!(matches!(
            decode_headers(&[0xfd, 0xd1, 7]),
            Err(PayloadError::TooMany { count: 2001, .. })
        ));
    }

    #[test]
    fn every_network_has_a_genesis_block() {
        for network in Network::ALL {
            assert!(BlockHash::genesis(network).is_some(), "{}", network.name());
        }
    }

    #[test]
    fn an_inventory_round_trips() {
        let entry = |kind, byte| Inventory {
            kind,
            hash: [byte; 32],
        };
        let entries = [
            entry(InventoryType::WITNESS_BLOCK, 1),
            entry(InventoryType::WTX, 2),
        ];
        let payload = encode_inventory(&entries);
        assert_eq!(payload.len(), 1 + 2 * INVENTORY_ENTRY_LEN);
        assert_eq!(decode_inventory(&payload), Ok(entries.to_vec()));
        assert_eq!(decode_inventory(&payload[..72]), Err(PayloadError::Cut));
        assert_eq!(decode_inventory(&[0]), Ok(Vec::new()));
        assert!(matches!(
            decode_inventory(&[0xfe, 0xff, 0xff, 0xff, 0xff]),
            Err(PayloadError::TooMany { .. })
        ));
    }

    #[test]
    fn a_locator_round_trips_and_has_a_limit() {
        let locator = [BlockHash([1; 32]), BlockHash([2; 32])];
        let payload = encode_getheaders(&locator);
        assert_eq!(decode_getheaders(&payload), Ok(locator.to_vec()));
        for length in 0..payload.len() {
            let cut = decode_getheaders(&payload[..length]);
            assert_eq!(cut, Err(PayloadError::Cut), "{length}");
        }
        let longer = [&payload[..], &[0]].concat();
        assert_eq!(decode_getheaders(&longer), Err(PayloadError::Longer));
        let many = encode_getheaders(&[BlockHash([0; 32]); MAX_LOCATOR + 1]);
        let (count, limit) = (102, MAX_LOCATOR);
        let error = PayloadError::TooMany { count, limit };
        assert_eq!(decode_getheaders(&many), Err(error));
    }

    #[test]
    fn services_are_named() {
        assert_eq!(Services(0).to_string(), "none");
        assert_eq!(
            Services(0x0400_0c09).to_string(),
            "NETWORK, WITNESS, NETWORK_LIMITED, P2P_V2, bit 26"
        );
    }

    #[test]
    fn a_peers_text_cannot_control_the_terminal() {
        assert_eq!(printable(b"/a:1/\x1b[2J\xff"), r"/a:1/\x1b[2J\xff");
    }
}
