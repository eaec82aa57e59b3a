//! A v2 transport (BIP324) for Bitcoin software that speaks only v1.
//!
//! In front of a node: peers connect to the gateway over v2 or v1, and the gateway connects to the
//! node for each peer whose handshake is done. Behind a node: the node uses the gateway as its
//! SOCKS5 proxy, and the gateway connects to peers over v2, or v1 if they speak nothing else. In
//! both cases it relays messages. Those of a v2 peer are decrypted and framed for v1, or the
//! reverse; the bytes of a v1 peer are relayed unchanged.
//!
//! Read the files in this order: `settings.rs`, `translate.rs` (one message between the two
//! framings), `link/` (one peer and its connection to the node), `turn.rs` (what a thread does with
//! the links that are ready), `lifecycle.rs` (how links begin and end), `worker.rs` (a thread's
//! event loop), `gateway.rs` (the threads). `reactor.rs` has the event queue, `listener.rs` accepts
//! connections, and `budget.rs` has the limits on all links together. `socks.rs` and `dial.rs`
//! serve the node's own connections, and `proxy_protocol.rs` a load balancer in front of the
//! gateway.

mod account;
mod address;
mod advertise;
mod budget;
mod close;
mod dial;
mod event;
mod gateway;
mod lifecycle;
mod link;
mod listener;
mod names;
mod proxy_protocol;
mod queue;
mod reactor;
mod settings;
mod socks;
mod stream;
mod translate;
mod turn;
mod worker;

/// Compiles the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use account::{Account, Traffic, Turns, TypeCount};
pub use address::{AddressSet, Network, NetworkError};
pub use budget::{Direction, Refusal, Usage};
pub use close::Close;
pub use event::{Event, NodeState, Peer, Transport};
pub use gateway::{Gateway, GatewayError};
pub use packetlane_p2p::address::{NodeAddress, NodeAddressError};
pub use proxy_protocol::ProxyProtocolError;
pub use settings::{Inbound, Limits, PeerSource, PerAddress, Settings, V2Only};
pub use socks::{Credentials, SocksError, Target};
