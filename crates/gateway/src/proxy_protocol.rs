//! PROXY protocol version 2, with which a load balancer tells who has connected to it (HAProxy's
//! `proxy-protocol.txt`). Version 1, a text format, is refused: its end would have to be searched
//! for.
//!
//! A header has 12 fixed bytes, a byte for version and command, a byte for family and transport,
//! two bytes for the length of the rest, and the rest: addresses, ports, and extra fields that are
//! ignored here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Length of the fixed part.
const FIXED: usize = 16;

/// Maximum length of the rest. IPv6 addresses and ports take 36 bytes; all extra fields about a TLS
/// client take a few hundred more.
const MAX_ADDRESSES_LEN: usize = 2048;

const VERSION: u8 = 2;

/// Commands.
mod command {
    /// A connection of the load balancer itself, such as a health check.
    pub(super) const LOCAL: u8 = 0;
    pub(super) const PROXY: u8 = 1;
}

/// Family and transport of the addresses: all values that the specification defines.
mod family {
    pub(super) const UNSPEC: u8 = 0x00;
    pub(super) const TCP_IPV4: u8 = 0x11;
    pub(super) const UDP_IPV4: u8 = 0x12;
    pub(super) const TCP_IPV6: u8 = 0x21;
    pub(super) const UDP_IPV6: u8 = 0x22;
    pub(super) const UNIX_STREAM: u8 = 0x31;
    pub(super) const UNIX_DATAGRAM: u8 = 0x32;
}

/// The header of a connection of `client` to `server`. If one of them has an IPv4 address and the
/// other an IPv6 address, the first is written as IPv4-mapped.
pub(crate) fn header(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let mut header = SIGNATURE.to_vec();
    header.push(VERSION << 4 | command::PROXY);
    let mut addresses = Vec::new();
    match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            header.push(family::TCP_IPV4);
            addresses.extend_from_slice(&client.octets());
            addresses.extend_from_slice(&server.octets());
        }
        (client, server) => {
            header.push(family::TCP_IPV6);
            for ip in [client, server] {
                let ip = match ip {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                addresses.extend_from_slice(&ip.octets());
            }
        }
    }
    addresses.extend_from_slice(&client.port().to_be_bytes());
    addresses.extend_from_slice(&server.port().to_be_bytes());
    header.extend_from_slice(&(addresses.len() as u16).to_be_bytes());
    header.append(&mut addresses);
    header
}

/// What is wrong with a PROXY protocol header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProxyProtocolError {
    /// It does not start with the signature of version 2.
    Signature,
    /// Its version is not 2.
    Version(u8),
    /// Its command is neither LOCAL (0) nor PROXY (1).
    Command(u8),
    /// Its address family is not defined in version 2.
    Family(u8),
    /// The part after the first 16 bytes is longer than 2048 bytes.
    TooLong(usize),
    /// It is too short for its addresses.
    TooShort(usize),
    /// The connection ended within the header.
    Ended,
}

impl fmt::Display for ProxyProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signature => f.write_str("not a version 2 header"),
            Self::Version(version) => write!(f, "version {version} is not supported (only 2)"),
            Self::Command(command) => write!(f, "unknown command {command}"),
            Self::Family(family) => {
                write!(f, "unknown address family {family:#04x}")
            }
            Self::TooLong(len) => {
                write!(f, "{len} bytes of addresses (at most {MAX_ADDRESSES_LEN})")
            }
            Self::TooShort(len) => write!(f, "{len} bytes are too few for the addresses"),
            Self::Ended => f.write_str("the connection ended within the header"),
        }
    }
}

impl std::error::Error for ProxyProtocolError {}

/// The bytes of a header received so far.
#[derive(Debug, Default)]
pub(crate) struct Header {
    bytes: Vec<u8>,
}

impl Header {
    /// How many bytes are missing, as far as known; 0 if the header is complete. No more may be
    /// read, because the bytes after the header are the peer's.
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

    /// Appends received bytes, at most as many as are missing. Reports errors as early as possible.
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

    /// The client's address in a complete header. `None` if the balancer connects on its own
    /// behalf, does not know the address, or sends one that is not TCP; use the socket's address
    /// then.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        let (fixed, addresses) = self.bytes.split_first_chunk::<FIXED>()?;
        if fixed[12] & 0x0f == command::LOCAL {
            return None;
        }
        // Both addresses come first, then both ports; the client's is the first of each.
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

/// Checks the fixed part of a header.
fn check(command: u8, kind: u8, following: usize) -> Result<(), ProxyProtocolError> {
    if command >> 4 != VERSION {
        return Err(ProxyProtocolError::Version(command >> 4));
    }
    if following > MAX_ADDRESSES_LEN {
        return Err(ProxyProtocolError::TooLong(following));
    }
    let least = match (command & 0x0f, kind) {
        // The rest is ignored, whatever its family.
        (command::LOCAL, _) | (command::PROXY, family::UNSPEC) => 0,
        // Valid, but not TCP: treated as unspecified.
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

    /// Reads as from a socket that returns at most `pieces` bytes at a time. Returns the number of
    /// bytes read and the client's address.
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
    fn the_client_is_found_and_nothing_beyond_the_header_is_read() {
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
            // UDP and UNIX sockets are treated as unspecified.
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
    fn invalid_headers_are_refused() {
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
