//! The numbers of peers, read from their objects in the node's memory.
//!
//! A call says which object it is for, not the peer's number. A message says both, so a peer that
//! has sent or got one is known. Where the number lies in an object is learned from such peers:
//! it is the place where all of them have theirs. Then a silent peer's is read there.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

/// How much of an object is searched, in bytes.
const SEARCHED: usize = 8192;

/// Peers whose numbers have to lie at one place for it to count.
const WITNESSES: usize = 3;

/// A number that exceeds all known ones by more is none.
const MAX_AHEAD: i64 = 100_000;

/// The numbers of peers by the addresses of their objects.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    of: BTreeMap<u64, i64>,
    offset: Option<u64>,
}

impl Numbers {
    /// The number of an object's peer, if it is known.
    pub(super) fn get(&self, object: u64) -> Option<i64> {
        self.of.get(&object).copied()
    }

    /// Takes in what a message has said.
    pub(super) fn learned(&mut self, object: u64, number: i64) {
        self.of.retain(|_, known| *known != number);
        self.of.insert(object, number);
    }

    /// The peer has gone, and its object with it.
    pub(super) fn forget(&mut self, number: i64) {
        self.of.retain(|_, known| *known != number);
    }

    /// Reads the number of an object's peer from the memory of the process `pid`. `None` if its
    /// place is not known yet, or if what lies there is no peer's number.
    pub(super) fn read(&mut self, pid: u32, object: u64) -> Option<i64> {
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
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

    /// The offset at which all known objects have their numbers.
    fn find(&self, memory: &File) -> Option<u64> {
        if self.of.len() < WITNESSES {
            return None;
        }
        let mut left: Option<Vec<usize>> = None;
        for (object, number) in &self.of {
            let mut bytes = vec![0; SEARCHED];
            // Objects may end before, with unmapped memory behind them.
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

    /// As an object of a node's: its number lies at some place among other values.
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
        // An object with the number of another peer, or with none, is no peer's.
        assert_eq!(numbers.read(pid, address(&object(8))), None);
        assert_eq!(numbers.read(pid, address(&object(-1))), None);
        assert_eq!(numbers.read(pid, address(&object(1 << 40))), None);
        numbers.forget(15);
        assert_eq!(numbers.get(address(&peers[3])), None);
    }
}
