//! io_uring: many sockets receive without a system call each, and many sends share one system call.
//!
//! All `unsafe` code of this crate is in this file.

#![expect(unsafe_code, reason = "io_uring shares memory with the kernel")]

use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io::{self, ErrorKind};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

/// Entries of the submission queue. More requests take several system calls.
const ENTRIES: u32 = 1024;

/// Entries of the completion queue, beyond which the kernel buffers completions itself.
const COMPLETIONS: u32 = 4 * ENTRIES;

/// Number of receive buffers, a power of two, and the length of each. Most messages are small, and
/// a buffer is emptied as soon as its completion is handled.
const BUFFERS: u16 = 4096;
const BUFFER_LEN: usize = 2048;

/// The id of the only buffer group.
const GROUP: u16 = 0;

/// The kind of a request, stored in the two highest bits of its user data.
mod kind {
    pub(super) const SHIFT: u32 = 62;
    pub(super) const RECEIVE: u64 = 0;
    pub(super) const SEND: u64 = 1;
    pub(super) const POLL: u64 = 2;
    pub(super) const CANCEL: u64 = 3;
}

/// Linux constants.
const POLLIN: u32 = 1;
const MSG_DONTWAIT: i32 = 0x40;
const MSG_NOSIGNAL: i32 = 0x4000;
const ECANCELED: i32 = 125;
const ENOBUFS: i32 = 105;
const ETIME: i32 = 62;
const EBUSY: i32 = 16;
const EAGAIN: i32 = 11;

/// Something that the ring reports.
#[derive(Debug)]
pub(crate) enum RingEvent<'a> {
    /// Bytes from a socket; empty at the end of the stream.
    Received {
        /// The number given to [`Ring::receive`].
        user: u64,
        bytes: io::Result<&'a [u8]>,
        /// Whether the request stays active. Otherwise it must be submitted again.
        more: bool,
    },
    /// The event queue has events.
    PollReady,
}

/// A completion that is not handled yet.
struct Completion {
    number: u64,
    result: i32,
    flags: u32,
}

/// An io_uring with its receive buffers.
pub(crate) struct Ring {
    // Declared before `buffers`, so that it is dropped first.
    ring: IoUring,
    buffers: Buffers,
    completions: Vec<Completion>,
    events: RawFd,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring").finish_non_exhaustive()
    }
}

impl Ring {
    /// `events` is the epoll descriptor for everything else; it must stay open as long as the ring.
    ///
    /// # Errors
    ///
    /// io_uring is missing, too old or not allowed.
    pub(crate) fn new(events: RawFd) -> io::Result<Self> {
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(ENTRIES)?;
        let buffers = Buffers::new();
        // SAFETY: the entries are a page-aligned array of `BUFFERS` entries. `buffers` frees them
        // only after `drop` has unregistered them.
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
            completions: Vec::new(),
            events,
        };
        ring.watch();
        Ok(ring)
    }

    /// Submits a receive request: for one buffer if `once`, else until it is cancelled or fails.
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

    /// Cancels a receive request. A last `Received` reports when it has ended.
    pub(crate) fn cancel(&mut self, user: u64) {
        let request = opcode::AsyncCancel::new(kind::RECEIVE << kind::SHIFT | user).build();
        // SAFETY: the request refers to no memory.
        unsafe { self.push(&request.user_data(kind::CANCEL << kind::SHIFT)) };
    }

    /// Submits all queued requests. Must be called before a socket with requests is closed, because
    /// its descriptor may be reused.
    pub(crate) fn flush(&mut self) {
        while !self.ring.submission().is_empty() {
            // The kernel may accept the rest only after completions are consumed.
            let _ = self.ring.submit();
            let completions = self.ring.completion().map(|entry| completion(&entry));
            self.completions.extend(completions);
        }
    }

    /// Watches the event queue.
    fn watch(&mut self) {
        let request = opcode::PollAdd::new(Fd(self.events), POLLIN).build();
        // SAFETY: the request refers to no memory.
        unsafe { self.push(&request.user_data(kind::POLL << kind::SHIFT)) };
    }

    /// Sends as much as each socket accepts at once. Returns how much each accepted, in order.
    pub(crate) fn send_all(&mut self, sends: &[(RawFd, &[u8])]) -> Vec<io::Result<usize>> {
        let mut results = Vec::with_capacity(sends.len());
        for sends in sends.chunks(ENTRIES as usize) {
            self.send_some(sends, &mut results);
        }
        results
    }

    /// Sends at most `ENTRIES` requests.
    fn send_some(&mut self, sends: &[(RawFd, &[u8])], results: &mut Vec<io::Result<usize>>) {
        // Makes room for all of them.
        self.flush();
        let first = results.len();
        for (number, (socket, bytes)) in sends.iter().enumerate() {
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            let request = opcode::Send::new(Fd(*socket), bytes.as_ptr(), len)
                .flags(MSG_DONTWAIT | MSG_NOSIGNAL)
                .build();
            // SAFETY: `bytes` is borrowed until this function returns, and it returns only after
            // the kernel has finished every request.
            unsafe { self.push(&request.user_data(kind::SEND << kind::SHIFT | number as u64)) };
            results.push(Ok(0));
        }
        let mut left = sends.len();
        while left > 0 {
            if let Err(error) = self.ring.submit_and_wait(1)
                && error.kind() != ErrorKind::Interrupted
                && ![Some(EAGAIN), Some(EBUSY)].contains(&error.raw_os_error())
            {
                // The kernel may still read the bytes, so returning would be unsound.
                std::process::abort();
            }
            for entry in self.ring.completion() {
                if entry.user_data() >> kind::SHIFT == kind::SEND {
                    let number = (entry.user_data() & !(3 << kind::SHIFT)) as usize;
                    results[first + number] = result(entry.result());
                    left -= 1;
                } else {
                    self.completions.push(completion(&entry));
                }
            }
        }
    }

    /// Waits until something happens, at most for `most`, and calls `on_event` for each event.
    pub(crate) fn wait(
        &mut self,
        most: Duration,
        mut on_event: impl FnMut(RingEvent<'_>),
    ) -> io::Result<()> {
        let must_wait = self.completions.is_empty() && !most.is_zero();
        let time = Timespec::from(most);
        let submitted = match must_wait {
            true => {
                let arguments = SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(1, &arguments)
            }
            false => self.ring.submit(),
        };
        ignore_transient(submitted)?;
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(self.ring.completion().map(|entry| completion(&entry)));
        // The kernel delivers only about twenty completions per call (Linux 6.13). This call
        // fetches the rest without waiting.
        if self.ring.submission().taskrun() {
            let none = Timespec::new();
            let arguments = SubmitArgs::new().timespec(&none);
            let all = COMPLETIONS as usize;
            ignore_transient(self.ring.submitter().submit_with_args(all, &arguments))?;
            completions.extend(self.ring.completion().map(|entry| completion(&entry)));
        }
        for completion in completions.drain(..) {
            self.handle(&completion, &mut on_event);
        }
        // Keeps the allocation.
        self.completions = completions;
        self.buffers.publish();
        Ok(())
    }

    fn handle(&mut self, completion: &Completion, on_event: &mut impl FnMut(RingEvent<'_>)) {
        let user = completion.number & !(3 << kind::SHIFT);
        match completion.number >> kind::SHIFT {
            kind::RECEIVE => {
                let more = cqueue::more(completion.flags);
                let buffer = cqueue::buffer_select(completion.flags);
                let len = match result(completion.result) {
                    Ok(len) => len,
                    Err(error) => {
                        // No buffer was free, or the request was cancelled: the socket itself is
                        // fine.
                        let is_over = [Some(ENOBUFS), Some(ECANCELED)];
                        let bytes = match is_over.contains(&error.raw_os_error()) {
                            true => Err(ErrorKind::WouldBlock.into()),
                            false => Err(error),
                        };
                        return on_event(RingEvent::Received { user, bytes, more });
                    }
                };
                let bytes = match buffer {
                    Some(buffer) => self.buffers.bytes(buffer, len),
                    None => &[],
                };
                on_event(RingEvent::Received {
                    user,
                    bytes: Ok(bytes),
                    more,
                });
                if let Some(buffer) = buffer {
                    self.buffers.give_back(buffer);
                }
            }
            kind::POLL => {
                on_event(RingEvent::PollReady);
                self.watch();
            }
            _ => {}
        }
    }

    /// # Safety
    ///
    /// The memory that the request refers to must stay valid until its completion has arrived.
    unsafe fn push(&mut self, request: &squeue::Entry) {
        // SAFETY: guaranteed by the caller.
        while unsafe { self.ring.submission().push(request) }.is_err() {
            self.flush();
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if self.ring.submitter().unregister_buf_ring(GROUP).is_err() {
            // The kernel may still write to the buffers, so they are leaked.
            std::mem::forget(std::mem::replace(&mut self.buffers, Buffers::new()));
        }
    }
}

/// Treats these as success: a timeout, a signal, and a full completion queue.
fn ignore_transient(submitted: io::Result<usize>) -> io::Result<()> {
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

fn completion(entry: &cqueue::Entry) -> Completion {
    Completion {
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

/// The receive buffers, and the ring through which they are handed to the kernel.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    bytes: NonNull<u8>,
    /// Total number of buffers handed to the kernel, modulo 2^16.
    tail: u16,
}

// SAFETY: it owns its memory, which it shares only with the kernel.
unsafe impl Send for Buffers {}

impl Buffers {
    /// Layout of the entries, which must start at a page boundary.
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
            "the kernel returned a buffer of ours"
        );
        // SAFETY: the range lies within the zero-initialized allocation. The kernel writes to it
        // only after `give_back`, which takes `&mut self`.
        unsafe {
            let start = self.bytes.as_ptr().add(usize::from(buffer) * BUFFER_LEN);
            std::slice::from_raw_parts(start, len)
        }
    }

    /// Hands a buffer to the kernel, which sees it after [`Buffers::publish`].
    fn give_back(&mut self, buffer: u16) {
        let place = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: the index is within the entries, and the kernel reads an entry only once the tail
        // has passed it. The last two bytes of the first entry are the tail; the setters do not
        // touch them.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(place);
            let start = self.bytes.as_ptr().add(usize::from(buffer) * BUFFER_LEN);
            entry.set_addr(start as u64);
            entry.set_len(BUFFER_LEN as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes all buffers that were handed back visible to the kernel.
    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry and is aligned; the kernel reads it as an
        // atomic.
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

    /// `once` means one buffer, however much data there is.
    #[test]
    fn receive_once_uses_one_buffer() {
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
            // The second wait checks that nothing else arrives.
            for most in [Duration::from_secs(10), Duration::from_millis(20)] {
                let take = |event: RingEvent<'_>| {
                    if let RingEvent::Received { bytes, more, .. } = event {
                        assert!(!more);
                        received.extend_from_slice(bytes.unwrap());
                    }
                };
                ring.wait(most, take).unwrap();
            }
            assert!(received == sent[turn * BUFFER_LEN..][..BUFFER_LEN]);
        }
    }

    /// More data than there are buffers arrives in order, then the end of the stream.
    #[test]
    fn everything_received_is_reported() {
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
            let waited = ring.wait(most, |event| match event {
                RingEvent::Received { user, bytes, more } => {
                    assert_eq!(user, 5);
                    again |= !more;
                    match bytes {
                        Ok([]) => ended = true,
                        Ok(bytes) => received.extend_from_slice(bytes),
                        Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                    }
                }
                RingEvent::PollReady => woken += 1,
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
        let told = |event: RingEvent<'_>| woken += i32::from(matches!(event, RingEvent::PollReady));
        ring.wait(Duration::from_secs(10), told).unwrap();
        assert_eq!(woken, 1);
    }

    /// Each socket accepts what it can, with more sockets than fit into one submission.
    #[test]
    fn what_is_sent_arrives() {
        let (events, _other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        // Thirty sends per socket, because many systems allow a process only 1,024 files.
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
    fn cancelling_is_reported() {
        let (events, _other) = UnixStream::pair().unwrap();
        let Some(mut ring) = ring(&events) else {
            return;
        };
        let (here, mut there) = UnixStream::pair().unwrap();
        ring.receive(7, here.as_raw_fd(), false);
        ring.wait(Duration::ZERO, |event| panic!("{event:?}"))
            .unwrap();
        ring.cancel(7);
        let mut over = 0;
        ring.wait(Duration::from_secs(10), |event| match event {
            RingEvent::Received {
                user: 7,
                bytes: Err(_),
                more: false,
            } => over += 1,
            other => panic!("{other:?}"),
        })
        .unwrap();
        assert_eq!(over, 1);
        there.write_all(&[1]).unwrap();
        ring.wait(Duration::from_millis(20), |event| panic!("{event:?}"))
            .unwrap();
    }
}
