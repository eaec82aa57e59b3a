//! SOCKS5 (RFC 1928, passwords as in RFC 1929): the server that nodes use, and the client for an
//! upstream proxy that reaches .onion names (Tor).

use sha2::{Digest, Sha256};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use zeroize::{Zeroize as _, Zeroizing};

const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
const CONNECT: u8 = 1;

/// Tor's RESOLVE extension (socks-extensions.txt): returns an address for a name. btcd uses it for
/// every name.
const RESOLVE: u8 = 0xf0;

/// Authentication methods.
mod method {
    pub(super) const NONE: u8 = 0;
    pub(super) const PASSWORD: u8 = 2;
    pub(super) const REFUSED: u8 = 0xff;
}

/// Address types (ATYP).
mod address_type {
    pub(super) const IPV4: u8 = 1;
    pub(super) const NAME: u8 = 3;
    pub(super) const IPV6: u8 = 4;
}

/// A reply code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply(u8);

impl Reply {
    pub(crate) const SUCCEEDED: Self = Self(0);
    pub(crate) const FAILED: Self = Self(1);
    pub(crate) const HOST_UNREACHABLE: Self = Self(4);
    pub(crate) const REFUSED: Self = Self(5);
    const COMMAND: Self = Self(7);
    const ADDRESS_KIND: Self = Self(8);

    /// The reply on the wire: with the address of a name that was to be resolved, else with zeros, as
    /// the bound address means nothing to the client.
    pub(crate) fn wire(self, resolved: Option<IpAddr>) -> Vec<u8> {
        let mut wire = vec![VERSION, self.0, 0];
        let address = resolved.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        Target::Address((address, 0).into()).encode(&mut wire);
        wire
    }
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An IP address and a port.
    Address(SocketAddr),
    /// A name of at most 255 bytes, and a port.
    Name(String, u16),
}

impl Target {
    /// Appends its wire format.
    fn encode(&self, output: &mut Vec<u8>) {
        let port = match self {
            Self::Address(SocketAddr::V4(address)) => {
                output.push(address_type::IPV4);
                output.extend(address.ip().octets());
                address.port()
            }
            Self::Address(SocketAddr::V6(address)) => {
                output.push(address_type::IPV6);
                output.extend(address.ip().octets());
                address.port()
            }
            Self::Name(name, port) => {
                // Its length came in one byte.
                output.extend([address_type::NAME, name.len() as u8]);
                output.extend(name.as_bytes());
                *port
            }
        };
        output.extend(port.to_be_bytes());
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            // Escaped: the client chooses the name, and it must not control a terminal.
            Self::Name(name, port) => write!(f, "{}:{port}", name.escape_default()),
        }
    }
}

/// What is wrong with a SOCKS message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SocksError {
    /// It does not start with version 5.
    #[error("not SOCKS5: the first byte is {0:#04x}")]
    Version(u8),
    /// The client offers none of the supported authentication methods, or the proxy accepted none.
    #[error("SOCKS5: no common authentication method")]
    Method,
    /// The client's user or password differs from [`Settings::socks_user`].
    ///
    /// [`Settings::socks_user`]: crate::Settings::socks_user
    #[error("SOCKS5: wrong user or password")]
    Password,
    /// A command other than CONNECT and Tor's RESOLVE.
    #[error("SOCKS5 command {0} is not supported (only CONNECT and RESOLVE)")]
    Command(u8),
    /// An unknown address type, or a name that is not ASCII.
    #[error("SOCKS5: not an IP address or an ASCII name")]
    Address,
    /// The upstream proxy refused, with this reply code.
    #[error("the upstream proxy could not connect (SOCKS5 reply {0})")]
    Refused(u8),
    /// The upstream proxy sent data after its reply.
    #[error("the upstream proxy sent data after its SOCKS5 reply")]
    Trailing,
}

impl SocksError {
    /// The reply for the client, if the exchange has come far enough for one.
    pub(crate) fn reply(self) -> Option<Reply> {
        match self {
            Self::Version(_) | Self::Method | Self::Password => None,
            Self::Command(_) => Some(Reply::COMMAND),
            Self::Address => Some(Reply::ADDRESS_KIND),
            Self::Refused(reply) => Some(Reply(reply)),
            Self::Trailing => Some(Reply::FAILED),
        }
    }
}

/// User and password (RFC 1929): those that SOCKS5 clients must show, or for an upstream proxy. A node
/// sends random ones so that Tor isolates its connections; they are accepted and passed on. Wiped on
/// drop.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials {
    user: Vec<u8>,
    password: Zeroizing<Vec<u8>>,
}

impl Credentials {
    /// Returns `None` unless user and password have 1 to 255 bytes each, as RFC 1929 requires.
    #[must_use]
    pub fn new(user: &[u8], password: &[u8]) -> Option<Self> {
        let fits = |field: &[u8]| (1..=255).contains(&field.len());
        (fits(user) && fits(password)).then(|| Self::received(user, password))
    }

    /// Those that a client has sent, each with its length in one byte.
    fn received(user: &[u8], password: &[u8]) -> Self {
        Self {
            user: user.to_vec(),
            password: password.to_vec().into(),
        }
    }

    /// Whether they are the same. Takes the same time wherever they differ.
    fn match_in_constant_time(&self, other: &Self) -> bool {
        let [one, other] = [self, other].map(|Self { user, password }| {
            let length = [user.len() as u8];
            Sha256::new()
                .chain_update(length)
                .chain_update(user)
                .chain_update(password)
                .finalize()
        });
        let differences = one.iter().zip(other).map(|(one, other)| one ^ other);
        differences.fold(0, |all, one| all | one) == 0
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials")
    }
}

/// Why a message cannot be handled: it is wrong, or (`None`) more bytes are needed.
type Stop = Option<SocksError>;

/// Takes a byte off the front of what has been received.
fn byte(rest: &mut &[u8]) -> Result<u8, Stop> {
    rest.split_off_first().copied().ok_or(None)
}

fn array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Stop> {
    let taken = rest.split_off(..N).and_then(|taken| taken.try_into().ok());
    taken.ok_or(None)
}

/// A field that starts with its length in one byte.
fn length_prefixed<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Stop> {
    let len = byte(rest)?;
    rest.split_off(..usize::from(len)).ok_or(None)
}

/// The version byte of every message except those about passwords.
fn version(rest: &mut &[u8]) -> Result<(), Stop> {
    match byte(rest)? {
        VERSION => Ok(()),
        other => Err(Some(SocksError::Version(other))),
    }
}

/// An address type, an address and a port.
fn target(rest: &mut &[u8]) -> Result<Target, Stop> {
    let wrong = Some(SocksError::Address);
    let ip: IpAddr = match byte(rest)? {
        address_type::IPV4 => array::<4>(rest)?.into(),
        address_type::IPV6 => array::<16>(rest)?.into(),
        address_type::NAME => {
            let name = length_prefixed(rest)?;
            let port = port(rest)?;
            let name = str::from_utf8(name).map_err(|_| wrong)?;
            return match name.parse::<IpAddr>() {
                Ok(ip) => Ok(Target::Address((ip.to_canonical(), port).into())),
                Err(_) if name.is_ascii() && !name.is_empty() => {
                    Ok(Target::Name(name.to_owned(), port))
                }
                Err(_) => Err(wrong),
            };
        }
        _ => return Err(wrong),
    };
    Ok(Target::Address((ip.to_canonical(), port(rest)?).into()))
}

fn port(rest: &mut &[u8]) -> Result<u16, Stop> {
    array(rest).map(u16::from_be_bytes)
}

/// Takes a message from the start of `bytes`, if it is complete, and handles it. Wipes it, because it
/// may contain a password.
fn take<T>(
    bytes: &mut Vec<u8>,
    handle: impl FnOnce(&mut &[u8]) -> Result<T, Stop>,
) -> Result<Option<T>, SocksError> {
    let mut rest = bytes.as_slice();
    let handled = match handle(&mut rest) {
        Ok(handled) => Ok(Some(handled)),
        Err(Some(error)) => Err(error),
        Err(None) => return Ok(None),
    };
    let len = bytes.len() - rest.len();
    bytes[..len].zeroize();
    bytes.drain(..len);
    handled
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SocksRequest {
    /// Connect to the target.
    Connect(Target),
    /// Look up an address of the target.
    Resolve(Target),
}

/// The server side of one connection.
#[derive(Debug, Default)]
pub(crate) struct Server {
    state: ServerState,
    pub(crate) credentials: Option<Credentials>,
}

#[derive(Clone, Copy, Debug, Default)]
enum ServerState {
    #[default]
    Greeting,
    Password,
    Request,
}

impl Server {
    /// Consumes complete messages from the start of `bytes` and appends the answers to `answers`.
    /// Returns the request once it is complete; the client then waits for a [`Reply`].
    ///
    /// If `user` is given, the client must show it. Otherwise the client may show any password, or
    /// none.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut Vec<u8>,
        user: Option<&Credentials>,
        answers: &mut Vec<u8>,
    ) -> Result<Option<SocksRequest>, SocksError> {
        while let Some(request) = take(bytes, |rest| self.step(rest, user, answers))? {
            if request.is_some() {
                return Ok(request);
            }
        }
        Ok(None)
    }

    /// Handles one message of the client's.
    fn step(
        &mut self,
        rest: &mut &[u8],
        user: Option<&Credentials>,
        answers: &mut Vec<u8>,
    ) -> Result<Option<SocksRequest>, Stop> {
        match self.state {
            ServerState::Greeting => {
                version(rest)?;
                let offered = length_prefixed(rest)?;
                let (method, state) = if offered.contains(&method::PASSWORD) {
                    (method::PASSWORD, ServerState::Password)
                } else if offered.contains(&method::NONE) && user.is_none() {
                    (method::NONE, ServerState::Request)
                } else {
                    answers.extend([VERSION, method::REFUSED]);
                    return Err(Some(SocksError::Method));
                };
                answers.extend([VERSION, method]);
                self.state = state;
                Ok(None)
            }
            ServerState::Password => {
                byte(rest)?;
                let name = length_prefixed(rest)?;
                let password = length_prefixed(rest)?;
                let shown = Credentials::received(name, password);
                match user {
                    Some(user) if !user.match_in_constant_time(&shown) => {
                        answers.extend([PASSWORD_VERSION, 1]);
                        return Err(Some(SocksError::Password));
                    }
                    // The password is for this server only, not for the upstream proxy.
                    Some(_) => {}
                    None => self.credentials = Some(shown),
                }
                answers.extend([PASSWORD_VERSION, 0]);
                self.state = ServerState::Request;
                Ok(None)
            }
            ServerState::Request => {
                version(rest)?;
                let request = match byte(rest)? {
                    CONNECT => SocksRequest::Connect,
                    RESOLVE => SocksRequest::Resolve,
                    other => return Err(Some(SocksError::Command(other))),
                };
                byte(rest)?;
                Ok(Some(request(target(rest)?)))
            }
        }
    }
}

/// The client side: a request to an upstream proxy.
#[derive(Debug)]
pub(crate) struct Client {
    state: ClientState,
    target: Target,
    credentials: Option<Credentials>,
}

#[derive(Clone, Copy, Debug)]
enum ClientState {
    Method,
    Password,
    Reply,
}

impl Client {
    /// Appends the first message to `output`.
    pub(crate) fn new(
        target: Target,
        credentials: Option<Credentials>,
        output: &mut Vec<u8>,
    ) -> Self {
        match credentials {
            // Offer both: some proxies accept no password. Tor prefers the password and isolates
            // circuits by it.
            Some(_) => output.extend([VERSION, 2, method::NONE, method::PASSWORD]),
            None => output.extend([VERSION, 1, method::NONE]),
        }
        Self {
            state: ClientState::Method,
            target,
            credentials,
        }
    }

    /// Consumes complete messages from the start of `bytes` and appends what to send to `output`.
    /// Returns whether the proxy has connected.
    pub(crate) fn receive(
        &mut self,
        bytes: &mut Vec<u8>,
        output: &mut Vec<u8>,
    ) -> Result<bool, SocksError> {
        while let Some(connected) = take(bytes, |rest| self.step(rest, output))? {
            if connected {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Handles one message of the proxy's.
    fn step(&mut self, rest: &mut &[u8], output: &mut Vec<u8>) -> Result<bool, Stop> {
        match self.state {
            ClientState::Method => {
                version(rest)?;
                match (byte(rest)?, &self.credentials) {
                    (method::PASSWORD, Some(Credentials { user, password })) => {
                        output.push(PASSWORD_VERSION);
                        for field in [user.as_slice(), password.as_slice()] {
                            // Its length came in one byte.
                            output.push(field.len() as u8);
                            output.extend_from_slice(field);
                        }
                        self.state = ClientState::Password;
                    }
                    (method::NONE, _) => self.request(output),
                    _ => return Err(Some(SocksError::Method)),
                }
                Ok(false)
            }
            ClientState::Password => {
                byte(rest)?;
                match byte(rest)? {
                    0 => self.request(output),
                    _ => return Err(Some(SocksError::Method)),
                }
                Ok(false)
            }
            ClientState::Reply => {
                version(rest)?;
                let reply = Reply(byte(rest)?);
                byte(rest)?;
                // The address that the proxy bound is not needed, and may be of any kind.
                match (target(rest), reply) {
                    (Err(None), _) => Err(None),
                    (_, Reply::SUCCEEDED) => Ok(true),
                    (_, Reply(reply)) => Err(Some(SocksError::Refused(reply))),
                }
            }
        }
    }

    fn request(&mut self, output: &mut Vec<u8>) {
        output.extend([VERSION, CONNECT, 0]);
        self.target.encode(output);
        self.state = ClientState::Reply;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets() -> Vec<Target> {
        vec![
            Target::Address("203.0.113.5:8333".parse().unwrap()),
            Target::Address("[2001:db8::5]:18444".parse().unwrap()),
            Target::Name("seed.example".into(), 8333),
            Target::Name(format!("{}.onion", "a".repeat(56)), 1),
        ]
    }

    /// Runs the client against the server, one byte at a time.
    #[test]
    fn client_and_server_understand_each_other() {
        let credentials = Credentials {
            user: b"0123456789".to_vec(),
            password: vec![7; 255].into(),
        };
        for credentials in [None, Some(credentials)] {
            for target in targets() {
                let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
                let mut client = Client::new(target.clone(), credentials.clone(), &mut to_server);
                let mut server = Server::default();
                let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
                let asked = loop {
                    assert!(!to_server.is_empty() || !to_client.is_empty());
                    if !to_server.is_empty() {
                        at_server.push(to_server.remove(0));
                        if let Some(asked) = server
                            .receive(&mut at_server, None, &mut to_client)
                            .unwrap()
                        {
                            break asked;
                        }
                    }
                    if !to_client.is_empty() {
                        at_client.push(to_client.remove(0));
                        assert!(!client.receive(&mut at_client, &mut to_server).unwrap());
                    }
                };
                assert_eq!(asked, SocksRequest::Connect(target));
                assert_eq!(server.credentials, credentials);
                assert!(at_server.is_empty());
                let mut reply = Reply::SUCCEEDED.wire(None);
                reply.extend(b"more");
                assert!(client.receive(&mut reply, &mut to_server).unwrap());
                assert_eq!(reply, b"more", "what follows is the peer's");
            }
        }
    }

    #[test]
    fn malformed_requests_are_refused() {
        let ask = |bytes: &[u8]| {
            let mut answers = Vec::new();
            let answer = Server::default().receive(&mut bytes.to_vec(), None, &mut answers);
            (answer, answers)
        };
        assert_eq!(ask(b"GET /").0, Err(SocksError::Version(b'G')));
        assert_eq!(ask(&[4]).0, Err(SocksError::Version(4)));
        assert_eq!(ask(&[5, 1, 1]), (Err(SocksError::Method), vec![5, 0xff]));
        let bind = [5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 9];
        assert_eq!(ask(&bind).0, Err(SocksError::Command(2)));
        for of_kind in [
            &[2, 1, 2, 3, 4, 0, 9][..],
            &[3, 0, 0, 9],
            &[3, 2, 0xc3, 0xa9, 0, 9],
        ] {
            let request = [&[5, 1, 0, 5, 1, 0], of_kind].concat();
            assert_eq!(ask(&request).0, Err(SocksError::Address));
        }
        // An IPv4 address in any notation becomes one target, because v1-only peers are remembered
        // by target.
        let mapped = [&[0; 10][..], &[0xff, 0xff, 127, 0, 0, 1]].concat();
        for target in [
            &[&[1][..], &[127, 0, 0, 1]].concat(),
            &[&[4][..], &mapped].concat(),
            &[&[3, 9][..], b"127.0.0.1"].concat(),
            &[&[3, 16][..], b"::ffff:127.0.0.1"].concat(),
        ] {
            let request = [&[5, 1, 0, 5, 1, 0], &target[..], &[0, 9]].concat();
            let expected = Target::Address("127.0.0.1:9".parse().unwrap());
            assert_eq!(ask(&request).0, Ok(Some(SocksRequest::Connect(expected))));
        }
        assert_eq!(
            ask(b"\x05\x01\x00\x05\xf0\x00\x03\x02ab\x00\x00").0,
            Ok(Some(SocksRequest::Resolve(Target::Name("ab".into(), 0))))
        );
    }

    /// With a configured user, only its password is accepted, and it is not passed on to an
    /// upstream proxy.
    #[test]
    fn a_configured_password_is_required() {
        let long = [b'p'; 255];
        let user = Credentials::new(b"node", &long).unwrap();
        let show = |name: &[u8], password: &[u8]| {
            let mut bytes = vec![5, 2, 0, 2, 1, name.len() as u8];
            bytes.extend(name);
            bytes.push(password.len() as u8);
            bytes.extend(password);
            bytes.extend([5, 1, 0, 1, 127, 0, 0, 1, 0, 9]);
            let (mut server, mut answers) = (Server::default(), Vec::new());
            let asked = server.receive(&mut bytes, Some(&user), &mut answers);
            assert_eq!(server.credentials, None);
            // Consumed bytes are erased from the buffer.
            assert!(bytes.is_empty() || asked.is_err());
            (asked, answers)
        };
        let target = Target::Address("127.0.0.1:9".parse().unwrap());
        assert_eq!(
            show(b"node", &long),
            (Ok(Some(SocksRequest::Connect(target))), vec![5, 2, 1, 0])
        );
        for (name, password) in [
            (&b"node"[..], &long[..254]),
            (b"nodep", &long[..254]),
            (b"nod", &long),
            (b"", b""),
        ] {
            let refused = (Err(SocksError::Password), vec![5, 2, 1, 1]);
            assert_eq!(show(name, password), refused);
        }
        let mut answers = Vec::new();
        let without = Server::default().receive(&mut vec![5, 1, 0], Some(&user), &mut answers);
        assert_eq!((without, answers), (Err(SocksError::Method), vec![5, 0xff]));
        for (name, password) in [(&b""[..], &b"p"[..]), (b"n", b""), (&[b'n'; 256], b"p")] {
            assert!(Credentials::new(name, password).is_none());
        }
        assert_eq!(format!("{user:?}"), "Credentials");
    }

    #[test]
    fn an_upstream_refusal_is_reported() {
        let mut output = Vec::new();
        let mut client = Client::new(targets().remove(0), None, &mut output);
        let mut bytes = [&[5, 0][..], &[5, 4, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        let refused = SocksError::Refused(4);
        assert_eq!(client.receive(&mut bytes, &mut output), Err(refused));
        assert_eq!(refused.reply(), Some(Reply::HOST_UNREACHABLE));
    }
}
