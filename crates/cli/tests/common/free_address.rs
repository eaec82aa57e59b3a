//! Addresses for servers that a test starts and tells where to listen.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// A loopback address where nothing listens now.
///
/// The port is below 32768, where the system's own choice begins, so the system gives it to nobody
/// else before the server listens. No address is returned twice in a process.
pub(crate) fn free_address() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    loop {
        // Tests that run at the same time start far apart.
        let number = process::id()
            .wrapping_mul(257)
            .wrapping_add(ASKED.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + (number % 20_000) as u16;
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            return listener.local_addr().expect("an address that was bound");
        }
    }
}
