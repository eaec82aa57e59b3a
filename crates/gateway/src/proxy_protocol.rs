//! The PROXY protocol, version 2, by which a balancer says who has connected to it: HAProxy's
//! `proxy-protocol.txt`. Version 1, which is text, is refused: its end has to be searched for.
//!
//! A header is 12 fixed bytes, a byte with version and command, one with family and transport, the
//! length of what follows in two bytes, and that: addresses, ports, and fields that are of no use
//! here.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes that every header has.
const FIXED: usize = 16;

/// Bytes that may follow them. IPv6 addresses and ports take 36; a balancer that tells all it knows
/// of a TLS client takes a few hundred more.
const MAX_ADDRESSES_LEN: usize = 2048;

const VERSION: u8 = 2;

/// What the header is for.
mod command {
    /// A connection of the balancer's own, such as a health check.
    pub(super) const LOCAL: u8 = 0;
    pub(super) const PROXY: u8 = 1;
}

/// Family and transport of the addresses: all that the specification knows.
mod family {
    pub(super) const UNSPEC: u8 = 0x00;
    pub(super) const TCP_IPV4: u8 = 0x11;
    pub(super) const UDP_IPV4: u8 = 0x12;
    pub(super) const TCP_IPV6: u8 = 0x21;
    pub(super) const UDP_IPV6: u8 = 0x22;
    pub(super) const UNIX_STREAM: u8 = 0x31;
    pub(super) const UNIX_DATAGRAM: u8 = 0x32;
}

/// What is wrong with a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyProtocolError {
    /// It does not begin as version 2 does.
    Signature,
    /// Another version than 2.
    Version(u8),
    /// Neither LOCAL (0) nor PROXY (1).
    Command(u8),
    /// Addresses of a kind that version 2 does not have.
    Family(u8),
    /// More than 2048 bytes follow its first 16.
    TooLong(usize),
    /// It has no room for the addresses that it says it has.
    TooShort(usize),
    /// The connection ended within it.
    Ended,
}

impl fmt::Display for ProxyProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("not a header of version 2"),
            Self::Version(version) => write!(f, "version {version}: only 2"),
            Self::Command(command) => write!(f, "command {command}: only LOCAL and PROXY"),
            Self::Family(family) => {
                write!(
                    f,
                    "addresses of kind {family:#04x}, which version 2 does not have"
                )
            }
            Self::TooLong(len) => {
                write!(f, "{len} bytes of addresses: at most {MAX_ADDRESSES_LEN}")
            }
            Self::TooShort(len) => write!(f, "{len} bytes of addresses: too few"),
            Self::Ended => f.write_str("the connection ended within the header"),
        }
    }
}

impl std::error::Error for ProxyProtocolError {}

/// What has come of a header.
#[derive(Debug, Default)]
pub(crate) struct Header {
    bytes: Vec<u8>,
}

impl Header {
    /// How many bytes are missing, as far as can be told: no more may be read, because what follows
    /// is the peer's. 0: it is whole.
    pub(crate) fn missing(&self) -> usize {
        let following = match self.bytes.first_chunk::<FIXED>() {
            Some(&[.., high, low]) => usize::from(u16::from_be_bytes([high, low])),
            None => 0,
        };
        FIXED + following - self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes bytes that have come, no more than were missing. Wrong ones are told at once.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<(), ProxyProtocolError> {
        self.bytes.extend_from_slice(bytes);
        let begun = self.bytes.len().min(SIGNATURE.len());
        if self.bytes[..begun] != SIGNATURE[..begun] {
            return Err(ProxyProtocolError::Signature);
        }
        if let Some(&[.., command, kind, high, low]) = self.bytes.first_chunk::<FIXED>() {
            let following = usize::from(u16::from_be_bytes([high, low]));
            check(command, kind, following)?;
        }
        Ok(())
    }

    /// Once it is whole: the client's address. None if the balancer speaks for itself, does not
    /// know, or tells one that is not of TCP: then it is the socket's.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        let (fixed, addresses) = self.bytes.split_first_chunk::<FIXED>()?;
        if fixed[12] & 0x0f == command::LOCAL {
            return None;
        }
        // Addresses of both ends, then their ports. The first of each is the client's.
        let port = |at: usize| Some(u16::from_be_bytes(*addresses.get(at..)?.first_chunk()?));
        match fixed[13] {
            family::TCP_IPV4 => {
                let client = Ipv4Addr::from(*addresses.first_chunk::<4>()?);
                Some((client, port(8)?).into())
            }
            family::TCP_IPV6 => {
                let client = Ipv6Addr::from(*addresses.first_chunk::<16>()?);
                Some((client.to_canonical(), port(32)?).into())
            }
            _ => None,
        }
    }
}

/// Checks what stands in a header's first bytes.
fn check(command: u8, kind: u8, following: usize) -> Result<(), ProxyProtocolError> {
    if command >> 4 != VERSION {
        return Err(ProxyProtocolError::Version(command >> 4));
    }
    if following > MAX_ADDRESSES_LEN {
        return Err(ProxyProtocolError::TooLong(following));
    }
    let least = match (command & 0x0f, kind) {
        // What follows is not looked at, whatever its kind.
        (command::LOCAL, _) | (command::PROXY, family::UNSPEC) => 0,
        // Valid, and none that a peer connects by: as if unspecified.
        (
            command::PROXY,
            family::UDP_IPV4 | family::UDP_IPV6 | family::UNIX_STREAM | family::UNIX_DATAGRAM,
        ) => 0,
        (command::PROXY, family::TCP_IPV4) => 12,
        (command::PROXY, family::TCP_IPV6) => 36,
        (command::PROXY, other) => return Err(ProxyProtocolError::Family(other)),
        (other, _) => return Err(ProxyProtocolError::Command(other)),
    };
    match following < least {
        true => Err(ProxyProtocolError::TooShort(following)),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire(command: u8, kind: u8, following: &[u8]) -> Vec<u8> {
        let len = (following.len() as u16).to_be_bytes();
        [&SIGNATURE[..], &[command, kind], &len, following].concat()
    }

    /// Reads as a socket would, which has no more than `pieces` bytes at a time. The bytes read, and
    /// who is the client.
    fn read(wire: &[u8], pieces: usize) -> Result<(usize, Option<SocketAddr>), ProxyProtocolError> {
        let mut header = Header::default();
        let mut read = 0;
        while header.missing() > 0 {
            let len = header.missing().min(pieces).min(wire.len() - read);
            if len == 0 {
                return Err(ProxyProtocolError::Ended);
            }
            header.push(&wire[read..read + len])?;
            read += len;
        }
        Ok((read, header.client()))
    }

    #[test]
    fn clients_are_told_and_nothing_is_read_beyond() {
        let v4 = [203, 0, 113, 5, 192, 0, 2, 1, 0x30, 0x39, 0x20, 0x8d];
        let v6: Vec<u8> = [
            &"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets()[..],
            &[9; 16],
            &[0x30, 0x39, 0x20, 0x8d],
        ]
        .concat();
        let mapped: Vec<u8> = [
            &Ipv4Addr::new(203, 0, 113, 5).to_ipv6_mapped().octets()[..],
            &[9; 16],
            &[0x30, 0x39, 0x20, 0x8d],
        ]
        .concat();
        let more = [&v4[..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        let longest = [&v4[..], &[0; MAX_ADDRESSES_LEN - 12]].concat();
        let client = |text: &str| Some(text.parse::<SocketAddr>().unwrap());
        for (command, kind, following, expected) in [
            (0x21, 0x11, &v4[..], client("203.0.113.5:12345")),
            (0x21, 0x21, &v6, client("[2001:db8::7]:12345")),
            (0x21, 0x21, &mapped, client("203.0.113.5:12345")),
            (0x21, 0x11, &more, client("203.0.113.5:12345")),
            (0x21, 0x11, &longest, client("203.0.113.5:12345")),
            (0x21, 0x00, &[], None),
            (0x21, 0x00, &[1, 2, 3], None),
            // Over UDP and UNIX sockets: as if unspecified.
            (0x21, 0x12, &v4, None),
            (0x21, 0x22, &v6, None),
            (0x21, 0x31, &[b'/'; 216], None),
            (0x21, 0x32, &[], None),
            (0x20, 0x00, &[], None),
            (0x20, 0x11, &v4, None),
            (0x20, 0x99, &[1], None),
        ] {
            let header = wire(command, kind, following);
            let with_more = [&header[..], b"of the peer"].concat();
            for pieces in 1..=header.len() {
                let read = read(&with_more, pieces).unwrap();
                assert_eq!(read, (header.len(), expected), "{command:x} {kind:x}");
            }
            for end in 0..header.len() {
                let read = read(&header[..end], usize::MAX);
                assert_eq!(read, Err(ProxyProtocolError::Ended));
            }
        }
    }

    #[test]
    fn wrong_headers() {
        use ProxyProtocolError::{Command, Family, Signature, TooLong, TooShort, Version};
        for (wire, expected) in [
            (b"PROXY TCP4 1.2.3.4 1.2.3.5 1 2\r\n".to_vec(), Signature),
            (vec![0xfa, 0xbf, 0xb5, 0xda], Signature),
            (wire(0x11, 0x11, &[0; 12]), Version(1)),
            (wire(0x31, 0x11, &[0; 12]), Version(3)),
            (wire(0x22, 0x11, &[0; 12]), Command(2)),
            (wire(0x21, 0x10, &[0; 12]), Family(0x10)),
            (wire(0x21, 0x13, &[0; 12]), Family(0x13)),
            (wire(0x21, 0x01, &[0; 12]), Family(0x01)),
            (wire(0x21, 0x33, &[0; 216]), Family(0x33)),
            (wire(0x21, 0x41, &[0; 12]), Family(0x41)),
            (wire(0x21, 0x11, &[0; 11]), TooShort(11)),
            (wire(0x21, 0x21, &[0; 35]), TooShort(35)),
            (wire(0x21, 0x11, &[0; 2049]), TooLong(2049)),
            (wire(0x20, 0x00, &[0; 65535]), TooLong(65535)),
        ] {
            for pieces in [1, 3, 16, usize::MAX] {
                assert_eq!(read(&wire, pieces), Err(expected));
            }
        }
    }
}
