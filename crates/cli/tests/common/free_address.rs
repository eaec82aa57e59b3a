//! Addresses for servers that a test starts, and that are told where to listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// An address on the loopback interface where nothing listens now.
///
/// The system does not give its port to anybody who asks for any (those begin at 32768), so none is
/// taken before the server has it, and none is answered twice in a process.
pub(crate) fn free_address() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        // Tests that run at the same time begin far from each other.
        let number = process::id()
            .wrapping_mul(257)
            .wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr().expect("an address that was bound");
        }
    }
}
