//! PROXY protocol version 2, with which a load balancer tells who has connected to it (HAProxy's
//! `proxy-protocol.txt`). Version 1, a text format, is refused: its end would have to be searched
//! for.

use crate::address::mapped;
use ppp::v2::{Addresses, Builder, Command, Header, IPv4, IPv6, ParseError, Protocol, Version};
use std::net::{IpAddr, SocketAddr};

/// Length of the part that says how long the rest is.
const FIXED: usize = 16;

/// Maximum length of the rest. IPv6 addresses and ports take 36 bytes; all extra fields about a TLS
/// client take a few hundred more.
const MAX_ADDRESSES_LEN: usize = 2048;

/// The header of a connection of `client` to `server`. If one of them has an IPv4 address and the
/// other an IPv6 address, the first is written as IPv4-mapped.
pub(crate) fn header(client: SocketAddr, server: SocketAddr) -> Vec<u8> {
    let ports = (client.port(), server.port());
    let addresses = match (client.ip().to_canonical(), server.ip().to_canonical()) {
        (IpAddr::V4(client), IpAddr::V4(server)) => {
            Addresses::IPv4(IPv4::new(client, server, ports.0, ports.1))
        }
        (client, server) => {
            let [client, server] = [client, server].map(mapped);
            Addresses::IPv6(IPv6::new(client, server, ports.0, ports.1))
        }
    };
    let command = Version::Two | Command::Proxy;
    let header = Builder::with_addresses(command, Protocol::Stream, addresses).build();
    // Fails only if more is added to it than fits.
    header.unwrap_or_default()
}

/// What is wrong with a PROXY protocol header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyProtocolError {
    /// It does not start as a header of version 2.
    #[error("not a version 2 header")]
    Version,
    /// It is invalid, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// The part after the first 16 bytes is longer than 2048 bytes.
    #[error("{0} bytes of addresses (at most {MAX_ADDRESSES_LEN})")]
    TooLong(usize),
    /// The connection ended within the header.
    #[error("the connection ended within the header")]
    Ended,
}

/// What the bytes of a header received so far say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// So many bytes are missing, as far as known. No more may be read, because the bytes after the
    /// header are the peer's.
    Missing(usize),
    /// The header is complete. The client's address is `None` if the balancer connects on its own
    /// behalf, does not know the address, or sends one that is not TCP; use the socket's address
    /// then.
    Client(Option<SocketAddr>),
}

/// Parses the bytes of a header received so far. Reports errors as early as possible.
pub(crate) fn parse(bytes: &mut [u8]) -> Result<Progress, ProxyProtocolError> {
    let is_defined = match bytes.get_mut(12..14) {
        // The family is to be ignored, whatever it is.
        Some([command, family]) if *command == Version::Two | Command::Local => {
            *family = 0;
            true
        }
        // A family without a transport, or the reverse, is not.
        Some([_, family]) => (*family >> 4 == 0) == (*family & 0x0f == 0),
        _ => true,
    };
    let invalid = |error: ParseError| Err(ProxyProtocolError::Invalid(error.to_string()));
    let header = match Header::try_from(&*bytes) {
        Err(ParseError::Incomplete(len)) => return Ok(Progress::Missing(FIXED - len)),
        Err(ParseError::Partial(_, len)) if len > MAX_ADDRESSES_LEN => {
            return Err(ProxyProtocolError::TooLong(len));
        }
        Ok(_) | Err(ParseError::Partial(..)) if !is_defined => {
            return invalid(ParseError::Protocol(bytes[13]));
        }
        Err(ParseError::Partial(have, len)) => return Ok(Progress::Missing(len - have)),
        Err(ParseError::Prefix | ParseError::Version(_)) => {
            return Err(ProxyProtocolError::Version);
        }
        Err(error) => return invalid(error),
        Ok(header) => header,
    };
    Ok(Progress::Client(
        match (header.command, header.protocol, header.addresses) {
            (Command::Proxy, Protocol::Stream, Addresses::IPv4(addresses)) => {
                Some((addresses.source_address, addresses.source_port).into())
            }
            (Command::Proxy, Protocol::Stream, Addresses::IPv6(addresses)) => {
                let client = addresses.source_address.to_canonical();
                Some((client, addresses.source_port).into())
            }
            _ => None,
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ppp::v2::PROTOCOL_PREFIX;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn wire(command: u8, kind: u8, following: &[u8]) -> Vec<u8> {
        let len = (following.len() as u16).to_be_bytes();
        [PROTOCOL_PREFIX, &[command, kind], &len, following].concat()
    }

    /// Reads as from a socket that returns at most `pieces` bytes at a time. Returns the number of
    /// bytes read and the client's address.
    fn read(wire: &[u8], pieces: usize) -> Result<(usize, Option<SocketAddr>), ProxyProtocolError> {
        let mut header = Vec::new();
        loop {
            let missing = match parse(&mut header)? {
                Progress::Missing(missing) => missing,
                Progress::Client(client) => return Ok((header.len(), client)),
            };
            let rest = &wire[header.len()..];
            match missing.min(pieces).min(rest.len()) {
                0 => return Err(ProxyProtocolError::Ended),
                len => header.extend_from_slice(&rest[..len]),
            }
        }
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
            (0x21, 0x32, &[b'/'; 216], None),
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
        use ParseError::{AddressFamily, Command, InvalidAddresses, Protocol};
        use ProxyProtocolError::{TooLong, Version};
        let invalid = |error: ParseError| ProxyProtocolError::Invalid(error.to_string());
        for (wire, expected) in [
            (b"PROXY TCP4 1.2.3.4 1.2.3.5 1 2\r\n".to_vec(), Version),
            (vec![0xfa, 0xbf, 0xb5, 0xda], Version),
            (wire(0x11, 0x11, &[0; 12]), Version),
            (wire(0x31, 0x11, &[0; 12]), Version),
            (wire(0x22, 0x11, &[0; 12]), invalid(Command(2))),
            (wire(0x21, 0x10, &[0; 12]), invalid(Protocol(0x10))),
            (wire(0x21, 0x13, &[0; 12]), invalid(Protocol(3))),
            (wire(0x21, 0x01, &[0; 12]), invalid(Protocol(0x01))),
            (wire(0x21, 0x33, &[0; 216]), invalid(Protocol(3))),
            (wire(0x21, 0x41, &[0; 12]), invalid(AddressFamily(0x40))),
            (
                wire(0x21, 0x11, &[0; 11]),
                invalid(InvalidAddresses(11, 12)),
            ),
            (
                wire(0x21, 0x21, &[0; 35]),
                invalid(InvalidAddresses(35, 36)),
            ),
            (
                wire(0x21, 0x12, &[0; 11]),
                invalid(InvalidAddresses(11, 12)),
            ),
            (wire(0x21, 0x32, &[]), invalid(InvalidAddresses(0, 216))),
            (wire(0x21, 0x11, &[0; 2049]), TooLong(2049)),
            (wire(0x20, 0x00, &[0; 65535]), TooLong(65535)),
        ] {
            for pieces in [1, 3, 16, usize::MAX] {
                assert_eq!(read(&wire, pieces), Err(expected.clone()));
            }
        }
    }
}
