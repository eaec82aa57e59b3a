//! A v2 transport (BIP324) for software that speaks v1.
//!
//! In front of a node: peers connect to the gateway, by v2 or by v1. Once a peer has shaken hands,
//! the gateway connects to the node for it. Behind a node: the gateway is the node's proxy, and
//! connects to peers by v2, or by v1 if they speak nothing else. Either way it carries messages
//! from one to the other: those of a v2 peer are opened and framed for v1, and the other way round;
//! the bytes of a v1 peer pass as they are.
//!
//! In the order in which to read: `settings.rs`, `translate.rs` (one message, from one framing to
//! the other), `link.rs` (one peer and its connection to the node), `worker.rs` (the turn of all
//! links), `gateway.rs` (the threads). `door.rs` is where they accept, `budget.rs` what all links may
//! take together; `socks.rs` and `dial.rs` are for the node's proxy, `proxy_protocol.rs` for a balancer before the gateway.

#[macro_use]
mod names;

mod account;
mod address;
mod budget;
mod dial;
mod door;
mod gateway;
mod link;
mod proxy_protocol;
mod queue;
mod ring;
mod settings;
mod socks;
mod translate;
mod worker;

/// The example there is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use account::{Account, Passed, TypeCount};
pub use budget::{Direction, Refusal};
pub use gateway::{Gateway, GatewayError};
pub use link::{Close, Transport};
pub use proxy_protocol::ProxyProtocolError;
pub use settings::{Inbound, Io, Limits, Settings};
pub use socks::{SocksError, SocksUser, Target};
pub use worker::{Event, Peer, Turns};
