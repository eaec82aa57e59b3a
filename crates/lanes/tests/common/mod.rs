//! What the tests of this crate share.
#![allow(
    unsafe_code,
    dead_code,
    unreachable_pub,
    reason = "guard pages; a module of many tests, none of which uses all"
)]

use lanes::Backend;
use std::io::Write;

/// The backends that this machine has; says which it leaves out.
pub fn backends() -> Vec<Backend> {
    let (have, lack): (Vec<Backend>, Vec<Backend>) =
        Backend::ALL.iter().copied().partition(|b| b.is_available());
    for backend in lack {
        // Past the test harness, which hides what passing tests print.
        let _ = writeln!(
            std::io::stderr(),
            "NOT RUN: this CPU lacks the backend {}",
            backend.name()
        );
    }
    have
}

/// Bytes that end where an unmapped page begins: a kernel that reads or writes
/// beyond them is killed.
pub struct Guarded {
    map: *mut std::ffi::c_void,
    mapped: usize,
    len: usize,
}

const PAGE: usize = 4096;

impl Guarded {
    /// A copy of `bytes`, with an unmapped page before its first page and one
    /// behind its last byte.
    pub fn new(bytes: &[u8]) -> Self {
        use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect};
        let mapped = bytes.len().next_multiple_of(PAGE) + 2 * PAGE;
        // SAFETY: a fresh mapping, which overlaps nothing; the two pages that
        // are protected lie in it, one at either end.
        let map = unsafe {
            let map = mmap_anonymous(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
            .unwrap();
            mprotect(map, PAGE, MprotectFlags::empty()).unwrap();
            mprotect(map.byte_add(mapped - PAGE), PAGE, MprotectFlags::empty()).unwrap();
            map
        };
        let mut guarded = Self {
            map,
            mapped,
            len: bytes.len(),
        };
        guarded.bytes().copy_from_slice(bytes);
        guarded
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: `len` bytes before the last page lie in the writable middle
        // of the mapping, which lives as long as `self` and is borrowed from it.
        unsafe {
            let end = self.map.cast::<u8>().add(self.mapped - PAGE);
            std::slice::from_raw_parts_mut(end.sub(self.len), self.len)
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`; no borrow of it is left.
        unsafe { rustix::mm::munmap(self.map, self.mapped).unwrap() }
    }
}
