//! io_uring: what many sockets have received comes by itself, and what many are to send goes in one
//! system call.
//!
//! The edge to the kernel: all `unsafe` of this crate is here.

#![expect(unsafe_code, reason = "io_uring shares memory with the kernel")]

use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Requests that are submitted at once at most. More are submitted in several calls.
const ENTRIES: u32 = 1024;

/// Completions that wait at most before the kernel keeps them elsewhere.
const COMPLETIONS: u32 = 4 * ENTRIES;

/// Buffers that the kernel fills, a power of two, and their length: most messages are small. They
/// are emptied as soon as they are seen.
const BUFFERS: u16 = 4096;
const BUFFER_LEN: usize = 2048;

/// The only group of buffers.
const GROUP: u16 = 0;

/// The kind of a request, in the highest bits of its number.
mod kind {
    pub(super) const SHIFT: u32 = 62;
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const SEND: u64 = 1;
    pub(super) const POLL: u64 = 2;
    pub(super) const CANCEL: u64 = 3;
}

/// Linux's numbers.
const POLLIN: u32 = 1;
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;
const ECANCELED: i32 = 125;
const ENOBUFS: i32 = 105;
const ETIME: i32 = 62;
const EBUSY: i32 = 16;
const EAGAIN: i32 = 11;

/// What has come.
#[derive(Debug)]
pub(crate) enum Happened<'a> {
    /// Bytes from a socket, or its end if there are none.
    Received {
        /// As given to [`Ring::receive`].
        user: u64,
        bytes: io::Result<&'a [u8]>,
        /// Whether more come by themselves. Otherwise it is to be asked for them again.
        more: bool,
    },
    /// The event queue of all else has something.
    Events,
}

/// A completion that has not been told.
struct Seen {
    number: u64,
    result: i32,
    flags: u32,
}

/// Sockets that receive, and requests to send.
pub(crate) struct Ring {
    // Before the buffers: they outlive it.
    ring: IoUring,
    buffers: Buffers,
    seen: Vec<Seen>,
    events: RawFd,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// `events` is the event queue of all else: it must stay open as long as the ring.
    ///
    /// # Errors
    ///
    /// Where the kernel has no io_uring, or an old one, or does not allow it.
    pub(crate) fn new(events: RawFd) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        let buffers = Buffers::new();
        // SAFETY: the entries are a page-aligned array of `BUFFERS` entries, which is freed by
        // `buffers`, and that is after the ring has given them up (`drop`).
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                BUFFERS,
                GROUP,
                0,
            )?;
        }
        let mut ring = Self {
            ring,
            buffers,
            seen: Vec::new(),
            events,
        };
        ring.watch();
        Ok(ring)
    }

    /// Asks for what a socket receives: a buffer, or all until it is told that no more comes by itself.
    /// `user` has 62 bits.
    pub(crate) fn receive(&mut self, user: u64, socket: RawFd, once: bool) {
        let request = match once {
            true => opcode::Recv::new(Fd(socket), std::ptr::null_mut(), BUFFER_LEN as u32)
                .buf_group(GROUP)
                .build()
                .flags(squeue::Flags::BUFFER_SELECT),
            false => opcode::RecvMulti::new(Fd(socket), GROUP).build(),
        };
        // SAFETY: the kernel writes to registered buffers only.
        unsafe { self.push(&request.user_data(kind::RECEIVE << kind::SHIFT | user)) };
    }

    /// Asks for no more. It is told when that is so.
    pub(crate) fn cancel(&mut self, user: u64) {
        let request = opcode::AsyncCancel::new(kind::RECEIVE << kind::SHIFT | user).build();
        // SAFETY: no memory is named.
        unsafe { self.push(&request.user_data(kind::CANCEL << kind::SHIFT)) };
    }

    /// Passes on what was asked. To be called before a socket is closed that was asked of: its number
    /// may be another's then.
    pub(crate) fn flush(&mut self) {
        while !self.ring.submission().is_empty() {
            // What the kernel does not take now, it does when completions have been seen.
            let _ = self.ring.submit();
            let seen = self.ring.completion().map(|entry| self::seen(&entry));
            self.seen.extend(seen);
        }
    }

    /// Watches the event queue of all else.
    fn watch(&mut self) {
        let request = opcode::PollAdd::new(Fd(self.events), POLLIN).build();
        // SAFETY: no memory is named.
        unsafe { self.push(&request.user_data(kind::POLL << kind::SHIFT)) };
    }

    /// Sends to each socket what it takes at once. How much each has taken, in order.
    pub(crate) fn send_all(&mut self, sends: &[(RawFd, &[u8])]) -> Vec<io::Result<usize>> {
        let mut results = Vec::with_capacity(sends.len());
        for sends in sends.chunks(ENTRIES as usize) {
            self.send_some(sends, &mut results);
        }
        results
    }

    /// No more than there are entries.
    fn send_some(&mut self, sends: &[(RawFd, &[u8])], results: &mut Vec<io::Result<usize>>) {
        // So that there is room for all of them.
        self.flush();
        let first = results.len();
        for (number, (socket, bytes)) in sends.iter().enumerate() {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let request = opcode::Send::new(Fd(*socket), bytes.as_ptr(), len)
                .flags(MSG_DONTWAIT | MSG_NOSIGNAL)
                .build();
            // SAFETY: `bytes` is borrowed until this function returns, and it does not return
            // before the kernel is done with every one of them.
            unsafe { self.push(&request.user_data(kind::SEND << kind::SHIFT | number as u64)) };
            results.push(Ok(0));
        }
        let mut left = sends.len();
        while left > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != ErrorKind::Interrupted
                && ![Some(EAGAIN), Some(EBUSY)].contains(&error.raw_os_error())
            {
                // The kernel may still read the bytes, so there is no way back from here.
                std::process::abort();
            }
            for entry in self.ring.completion() {
                if entry.user_data() >> kind::SHIFT == kind::SEND {
                    let number = (entry.user_data() & !(3 << kind::SHIFT)) as usize;
                    results[first + number] = result(entry.result());
                    left -= 1;
                } else {
                    self.seen.push(seen(&entry));
                }
            }
        }
    }

    /// Waits until something happens, for `most` at most, and tells what did.
    pub(crate) fn wait(
        &mut self,
        most: Duration,
        mut tell: impl FnMut(Happened<'_>),
    ) -> io::Result<()> {
        let wants = self.seen.is_empty() && !most.is_zero();
        let time = Timespec::from(most);
        let submitted = match wants {
            true => {
                let arguments = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            false => self.ring.submit(),
        };
        passed(submitted)?;
        let mut seen = std::mem::take(&mut self.seen);
        seen.extend(self.ring.completion().map(|entry| self::seen(&entry)));
        // By itself the kernel tells of some twenty at a time (Linux 6.13): the rest in one call, which
        // waits for no more.
        if self.ring.submission().taskrun() {
            let none = Timespec::new();
            let arguments = SubmitArgs::new().timespec(&none);
            let all = COMPLETIONS as usize;
            passed(self.ring.submitter().submit_with_args(all, &arguments))?;
            seen.extend(self.ring.completion().map(|entry| self::seen(&entry)));
        }
        for seen in seen.drain(..) {
            self.tell(&seen, &mut tell);
        }
        // Its memory is for the next ones.
        self.seen = seen;
        self.buffers.publish();
        Ok(())
    }

    fn tell(&mut self, seen: &Seen, tell: &mut impl FnMut(Happened<'_>)) {
        let user = seen.number & !(3 << kind::SHIFT);
        match seen.number >> kind::SHIFT {
            kind::RECEIVE => {
                let more = cqueue::more(seen.flags);
                let buffer = cqueue::buffer_select(seen.flags);
                let len = match result(seen.result) {
                    Ok(len) => len,
                    Err(error) => {
                        // Without a buffer, or cancelled: the socket has not failed.
                        let is_over = [Some(ENOBUFS), Some(ECANCELED)];
                        let bytes = match is_over.contains(&error.raw_os_error()) {
                            true => Err(ErrorKind::WouldBlock.into()),
                            false => Err(error),
                        };
                        return tell(Happened::Received { user, bytes, more });
                    }
                };
                let bytes = match buffer {
                    Some(buffer) => self.buffers.bytes(buffer, len),
                    None => &[],
                };
                tell(Happened::Received {
                    user,
                    bytes: Ok(bytes),
                    more,
                });
                if let Some(buffer) = buffer {
                    self.buffers.give_back(buffer);
                }
            }
            kind::POLL => {
                tell(Happened::Events);
                self.watch();
            }
            _ => {}
        }
    }

    /// # Safety
    ///
    /// The memory that the request names must be valid until its completion has come.
    unsafe fn push(&mut self, request: &squeue::Entry) {
        // SAFETY: the caller says so.
        while unsafe { self.ring.submission().push(request) }.is_err() {
            self.flush();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.ring.submitter().unregister_buf_ring(GROUP).is_err() {
            // The kernel may still write to them: they are never freed.
            std::mem::forget(std::mem::replace(&mut self.buffers, Buffers::new()));
        }
    }
}

/// What is no failure: that time is over, that there was a signal, or that completions have to be seen
/// first.
fn passed(submitted: io::Result<usize>) -> io::Result<()> {
    match submitted {
        Err(error)
            if error.kind() == ErrorKind::Interrupted
                || [Some(ETIME), Some(EBUSY)].contains(&error.raw_os_error()) =>
        {
            Ok(())
        }
        result => result.map(drop),
    }
}

fn seen(entry: &cqueue::Entry) -> Seen {
    Seen {
        number: entry.user_data(),
        result: entry.result(),
        flags: entry.flags(),
    }
}

fn result(result: i32) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(len) => Ok(len),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

/// Buffers that the kernel fills, and the ring by which it is given them.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    /// Entries that the kernel has been given, from the beginning, and those that it has been told.
    tail: u16,
}

// SAFETY: it owns its memory; only the kernel knows of it, too.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Of the entries, which begin at a page.
    const ENTRIES: Layout = {
        let len = BUFFERS as usize * size_of::<BufRingEntry>();
        match Layout::from_size_align(len, 4096) {
            Ok(layout) => layout,
            Err(_) => panic!("a layout"),
        }
    };
    const BYTES: Layout = match Layout::from_size_align(BUFFERS as usize * BUFFER_LEN, 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a layout"),
    };

    fn new() -> Self {
        // SAFETY: neither layout is empty.
        let (entries, bytes) = unsafe { (alloc_zeroed(Self::ENTRIES), alloc_zeroed(Self::BYTES)) };
        let entries = NonNull::new(entries.cast::<BufRingEntry>());
        let (Some(entries), Some(bytes)) = (entries, NonNull::new(bytes)) else {
            handle_alloc_error(Self::BYTES);
        };
        let mut buffers = Self {
            entries,
            bytes,
            tail: 0,
        };
        for buffer in 0..BUFFERS {
            buffers.give_back(buffer);
        }
        buffers.publish();
        buffers
    }

    /// The first `len` bytes of a buffer that the kernel has filled.
    fn bytes(&self, buffer: u16, len: usize) -> &[u8] {
        assert!(
            buffer < BUFFERS && len <= BUFFER_LEN,
            "the kernel has one of ours"
        );
        // SAFETY: it lies within the memory, which was zeroed at first, and the kernel does not
        // write to it before it is given back, for which `self` must be borrowed for change.
        unsafe {
            let start = self.bytes.as_ptr().add(usize::from(buffer) * BUFFER_LEN);
            std::slice::from_raw_parts(start, len)
        }
    }

    /// Gives a buffer to the kernel, which learns of it by [`Buffers::publish`].
    fn give_back(&mut self, buffer: u16) {
        let place = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: the place is within the entries, and the kernel reads it only after the tail has
        // passed it. The last two bytes of the first entry are the tail: the setters leave them.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(place);
            let start = self.bytes.as_ptr().add(usize::from(buffer) * BUFFER_LEN);
            entry.set_addr(start as u64);
            entry.set_len(BUFFER_LEN as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Tells the kernel of all that it was given.
    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, is aligned, and is read by the kernel as an
        // atomic number.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr());
            AtomicU16::from_ptr(tail.cast_mut()).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // SAFETY: both were allocated with these layouts.
        unsafe {
            dealloc(self.entries.as_ptr().cast(), Self::ENTRIES);
            dealloc(self.bytes.as_ptr(), Self::BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    fn ring(events: &UnixStream) -> Option<Ring> {
        match Ring::new(events.as_raw_fd()) {
            Ok(ring) => Some(ring),
            Err(error) => {
                println!("NOT RUN: io_uring: {error}");
                None
            }
        }
    }

    /// Once means one buffer, however much there is.
    #[test]
    fn one_buffer_is_told() {
        let (events, _other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..5 * BUFFER_LEN).map(|at| (at / 7) as u8).collect();
        there.write_all(&sent).unwrap();
        for turn in 0..3 {
            ring.receive(5, here.as_raw_fd(), true);
            let mut received = Vec::new();
            // A second time, to see that no more comes.
            for most in [Duration::from_secs(10), Duration::from_millis(20)] {
                let take = |happened: Happened<'_>| {
                    if let Happened::Received { bytes, more, .. } = happened {
                        assert!(!more);
                        received.extend_from_slice(bytes.unwrap());
                    }
                };
                ring.wait(most, take).unwrap();
            }
            assert!(received == sent[turn * BUFFER_LEN..][..BUFFER_LEN]);
        }
    }

    /// More bytes than there are buffers, in order; then the end.
    #[test]
    fn what_comes_is_told() {
        let (events, mut other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        let sent: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 7) as u8).collect();
        let expected = sent.clone();
        let writer = std::thread::spawn(move || there.write_all(&sent).unwrap());
        ring.receive(5, here.as_raw_fd(), false);
        let (mut received, mut ended, mut woken) = (Vec::new(), false, 0);
        while !ended {
            let mut again = false;
            let most = Duration::from_secs(10);
            let waited = ring.wait(most, |happened| match happened {
                Happened::Received { user, bytes, more } => {
                    assert_eq!(user, 5);
                    again |= !more;
                    match bytes {
                        Ok([]) => ended = true,
                        Ok(bytes) => received.extend_from_slice(bytes),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                Happened::Events => woken += 1,
            });
            waited.unwrap();
            if again && !ended {
                ring.receive(5, here.as_raw_fd(), false);
            }
        }
        assert!(received == expected);
        writer.join().unwrap();
        assert_eq!(woken, 0);
        other.write_all(&[1]).unwrap();
        let told =
            |happened: Happened<'_>| woken += i32::from(matches!(happened, Happened::Events));
        ring.wait(Duration::from_secs(10), told).unwrap();
        assert_eq!(woken, 1);
    }

    /// As much as each socket takes, for more sockets than fit into one submission.
    #[test]
    fn what_is_sent_arrives() {
        let (events, _other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        // Thirty times each: many systems allow a process 1,024 files.
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let bytes: Vec<u8> = (0..100).collect();
        let sends: Vec<_> = (0..3000)
            .map(|number| {
                let (here, _) = &pairs[number % pairs.len()];
                (here.as_raw_fd(), &bytes[number / pairs.len()..])
            })
            .collect();
        let results = ring.send_all(&sends);
        assert_eq!(results.len(), sends.len());
        for (result, (_, sent)) in results.into_iter().zip(&sends) {
            assert_eq!(result.unwrap(), sent.len());
        }
        for (_, there) in &pairs {
            for first in 0..30 {
                let mut read = vec![0; bytes.len() - first];
                let mut there = there;
                there.read_exact(&mut read).unwrap();
                assert_eq!(read, bytes[first..]);
            }
        }
        let much = vec![1; 100_000_000];
        let full = [(pairs[0].0.as_raw_fd(), &much[..])];
        let taken = ring.send_all(&full)[0].as_ref().map(|len| *len).unwrap();
        assert!(taken > 0 && taken < much.len());
        let error = ring.send_all(&full).remove(0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let error = ring
            .send_all(&[(here.as_raw_fd(), &bytes)])
            .remove(0)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_cancelled_socket_is_told() {
        let (events, _other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        ring.receive(7, here.as_raw_fd(), false);
        ring.wait(Duration::ZERO, |happened| panic!("{happened:?}"))
            .unwrap();
        ring.cancel(7);
        let mut over = 0;
        ring.wait(Duration::from_secs(10), |happened| match happened {
            Happened::Received {
                user: 7,
                bytes: Err(_),
                more: false,
            } => over += 1,
            other => panic!("{other:?}"),
        })
        .unwrap();
        assert_eq!(over, 1);
        there.write_all(&[1]).unwrap();
        ring.wait(Duration::from_millis(20), |happened| panic!("{happened:?}"))
            .unwrap();
    }
}
