//! Reads the ids of peers from their objects in the node's memory.
//!
//! A call gives the address of a peer's object but not its id. A message gives both, so a peer that
//! has sent or received one is known. From several such peers we learn the offset of the id within
//! the object: the one place where all of them hold theirs. The id of a silent peer is then read
//! from there.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// How much of an object is searched, in bytes.
const SEARCHED: usize = 8192;

/// Minimum number of peers that must agree on the offset.
const WITNESSES: usize = 3;

/// A value that exceeds all known ids by more than this is not an id.
const MAX_AHEAD: i64 = 100_000;

/// Whether this process may read them from the memory of process `pid`.
pub(super) fn are_readable(pid: u32) -> bool {
    memory(pid).is_ok()
}

fn memory(pid: u32) -> io::Result<File> {
    File::open(format!("/proc/{pid}/mem"))
}

/// Peer ids by the addresses of their objects.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    of: BTreeMap<u64, i64>,
    offset: Option<u64>,
}

impl Numbers {
    /// The id of the peer with this object, if known.
    pub(super) fn get(&self, object: u64) -> Option<i64> {
        self.of.get(&object).copied()
    }

    /// Records what a message has shown.
    pub(super) fn learned(&mut self, object: u64, number: i64) {
        self.of.retain(|_, known| *known != number);
        self.of.insert(object, number);
    }

    /// Removes a peer that has disconnected: its object no longer exists.
    pub(super) fn forget(&mut self, number: i64) {
        self.of.retain(|_, known| *known != number);
    }

    /// Reads the id of the peer with this object from the memory of process `pid`. `None` if the
    /// offset is not known yet or the value there cannot be an id.
    pub(super) fn read(&mut self, pid: u32, object: u64) -> Option<i64> {
        let memory = memory(pid).ok()?;
        if self.offset.is_none() {
            self.offset = self.find(&memory);
        }
        let mut bytes = [0; 8];
        memory
            .read_exact_at(&mut bytes, object.checked_add(self.offset?)?)
            .ok()?;
        let number = i64::from_ne_bytes(bytes);
        let highest = self.of.values().max()?;
        let is_new = self.of.values().all(|known| *known != number);
        if number < 0 || number > highest + MAX_AHEAD || !is_new {
            return None;
        }
        self.of.insert(object, number);
        Some(number)
    }

    /// The offset at which all known objects hold their ids.
    fn find(&self, memory: &File) -> Option<u64> {
        if self.of.len() < WITNESSES {
            return None;
        }
        let mut left: Option<Vec<usize>> = None;
        for (object, number) in &self.of {
            let mut bytes = vec![0; SEARCHED];
            // An object may be shorter, followed by unmapped memory.
            let len = memory.read_at(&mut bytes, *object).ok()?;
            let has_it = |place: &usize| {
                bytes[..len].chunks_exact(8).nth(*place) == Some(&number.to_ne_bytes()[..])
            };
            let places = left.unwrap_or_else(|| (0..SEARCHED / 8).collect());
            left = Some(places.into_iter().filter(has_it).collect());
        }
        match left?[..] {
            [place] => Some(8 * place as u64),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mimics a node's object: the id lies among other values.
    fn object(number: i64) -> Box<[i64; 64]> {
        let mut object = Box::new([7; 64]);
        object[41] = number;
        object
    }

    #[test]
    fn the_number_of_a_silent_peer_is_read() {
        let pid = std::process::id();
        let peers = [3, 8, 12, 15].map(object);
        let address = |peer: &[i64; 64]| std::ptr::from_ref(peer) as u64;
        let mut numbers = Numbers::default();
        for peer in &peers[..2] {
            numbers.learned(address(peer), peer[41]);
        }
        assert_eq!(
            numbers.read(pid, address(&peers[3])),
            None,
            "two are too few"
        );
        numbers.learned(address(&peers[2]), 12);
        assert_eq!(numbers.read(pid, address(&peers[3])), Some(15));
        assert_eq!(numbers.get(address(&peers[3])), Some(15));
        // An object that holds the id of another peer, or no valid id, is rejected.
        assert_eq!(numbers.read(pid, address(&object(8))), None);
        assert_eq!(numbers.read(pid, address(&object(-1))), None);
        assert_eq!(numbers.read(pid, address(&object(1 << 40))), None);
        numbers.forget(15);
        assert_eq!(numbers.get(address(&peers[3])), None);
    }
}
