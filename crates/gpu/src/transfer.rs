//! A transfer: a stream, staging memory on the host, and device memory, through which pieces are
//! transferred.

use crate::driver::{Address, DeviceMemory, Event, PinnedMemory, Shared, Stream};
use crate::error::GpuError;
use crate::kernels::{Op, launches};
use crate::piece::{MAX_PIECE, Piece, Texts};
use crate::timings::Timings;
use crate::wipe::wipe;
use packetlane_lanes::{Job, Outcome};

/// Returns how much memory to allocate for `len` bytes. Allocating page-locked memory is slow, so a
/// transfer should grow rarely.
fn capacity(len: usize) -> usize {
    const STEP: usize = 1 << 20;
    match len {
        0..=MAX_PIECE => len.next_power_of_two().max(STEP),
        _ => len.next_multiple_of(STEP),
    }
}

/// A transfer. It waits for its stream before its memory is accessed or freed.
pub(crate) struct Transfer {
    driver: Shared,
    stream: Stream,
    staging: Option<PinnedMemory>,
    device: Option<DeviceMemory>,
    /// Before and after the copy to the device, after the kernels, after the copy back.
    events: Option<[Event; 4]>,
    timed: bool,
    op: Op,
    pub(crate) piece: Piece,
    state: State,
    /// How many bytes of staging, and of device memory, may hold secrets.
    staged: usize,
    on_device: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// No work is in flight, and both memories are clean.
    Idle,
    /// All of its work has been queued.
    UnderWay,
    /// The uploaded piece has run, and can be fetched or run again.
    Resident,
    /// An error occurred: its work is not queued completely, or not known to be done.
    Broken,
}

impl Transfer {
    pub(crate) fn new(driver: &Shared) -> Result<Self, GpuError> {
        Ok(Self {
            driver: driver.clone(),
            stream: Stream::new(driver)?,
            staging: None,
            device: None,
            events: None,
            timed: false,
            op: Op::Seal,
            piece: Piece::new(),
            state: State::Idle,
            staged: 0,
            on_device: 0,
        })
    }

    /// Allocates memory for the piece, and returns the staging to be written.
    pub(crate) fn stage(&mut self) -> Result<(&mut Piece, &mut [u8]), GpuError> {
        debug_assert!(self.state == State::Idle);
        let layout = self.piece.layout;
        if self
            .staging
            .as_ref()
            .is_none_or(|had| had.bytes().len() < layout.staged)
        {
            // Frees the old one first: there may be no room for both.
            self.staging = None;
            self.staging = Some(PinnedMemory::new(&self.driver, capacity(layout.staged))?);
        }
        if self
            .device
            .as_ref()
            .is_none_or(|had| had.len() < layout.device)
        {
            self.device = None;
            self.device = Some(DeviceMemory::new(&self.driver, capacity(layout.device))?);
        }
        self.staged = layout.staged;
        let staging = self.staging.as_mut().expect("allocated above");
        Ok((&mut self.piece, &mut staging.bytes_mut()[..layout.staged]))
    }

    /// Queues all work of the piece: copy to the device, kernels, copy back, wipe. A piece of a
    /// pinned arena is copied from `front`, and back to `back`.
    ///
    /// # Safety
    ///
    /// If the piece is a range of a pinned arena, both pointers must point to page-locked memory of
    /// this driver that contains the range. Nobody may access that range or free the memory before
    /// the transfer is idle again.
    pub(crate) unsafe fn start(
        &mut self,
        op: Op,
        arena: Option<(*const u8, *mut u8)>,
        timed: bool,
    ) -> Result<(), GpuError> {
        self.op = op;
        self.timed = timed;
        if timed && self.events.is_none() {
            let event = || Event::new(&self.driver);
            self.events = Some([event()?, event()?, event()?, event()?]);
        }
        // Until all of it has been queued.
        self.state = State::Broken;
        self.on_device = self.piece.layout.device;
        let record = |event: usize| match &self.events {
            Some(events) if timed => events[event].record(&self.stream),
            _ => Ok(()),
        };
        record(0)?;
        // SAFETY: the caller's promise, with `Run::send`'s.
        unsafe { self.copy_in(arena)? };
        record(1)?;
        // SAFETY: as above.
        unsafe { self.launch()? };
        record(2)?;
        // SAFETY: as above.
        unsafe { self.copy_out(arena)? };
        record(3)?;
        let (stream, device) = (self.stream.handle(), self.device().at());
        // SAFETY: the device memory is at least as long, and lives until the stream is done.
        unsafe { self.driver.zero(stream, device, self.on_device)? };
        self.state = State::UnderWay;
        Ok(())
    }

    fn device(&self) -> &DeviceMemory {
        self.device.as_ref().expect("staged before")
    }

    fn staging(&self) -> &PinnedMemory {
        self.staging.as_ref().expect("staged before")
    }

    /// # Safety
    ///
    /// As for [`Transfer::start`].
    unsafe fn copy_in(&self, arena: Option<(*const u8, *mut u8)>) -> Result<(), GpuError> {
        let (stream, device) = (self.stream.handle(), self.device().at());
        let layout = self.piece.layout;
        // SAFETY: both memories are as long as the layout says; a transfer that is not idle
        // neither exposes nor frees its staging.
        unsafe {
            let staging = self.staging().pointer();
            self.driver
                .copy_in(stream, device, staging, layout.staged)?;
        }
        if let (Some(span), Some((front, _))) = (self.piece.texts.pinned(), arena) {
            let at = device + layout.bytes as u64;
            // SAFETY: the caller's promise.
            unsafe {
                let from = front.add(span.start);
                self.driver.copy_in(stream, at, from, span.len())?;
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The piece's data has been copied to the device, or its copy is queued.
    unsafe fn launch(&self) -> Result<(), GpuError> {
        let at = self.piece.layout.addresses(self.device().at());
        let stream = self.stream.handle();
        let chunk_count = self.piece.chunk_count;
        launches(
            self.op,
            &self.piece.starts,
            chunk_count,
            at,
            |entry, blocks, args| {
                // SAFETY: `launches` gives each kernel its parameters. The descriptors name
                // keys of the piece and bytes of its own range, as `Piece::write` made them.
                unsafe { self.driver.launch(stream, entry, blocks, args) }
            },
        )
    }

    /// # Safety
    ///
    /// As for [`Transfer::start`].
    unsafe fn copy_out(&self, arena: Option<(*const u8, *mut u8)>) -> Result<(), GpuError> {
        let (stream, device) = (self.stream.handle(), self.device().at());
        let layout = self.piece.layout;
        if let (Some(span), Some((_, back))) = (self.piece.texts.pinned(), arena) {
            let at = device + layout.bytes as u64;
            // SAFETY: the caller's promise.
            unsafe {
                let to = back.add(span.start);
                self.driver.copy_out(stream, to, at, span.len())?;
            }
        }
        // Verdicts, and after them the bytes, if they are in staging.
        let start = layout.verdicts;
        // SAFETY: as in `copy_in`.
        unsafe {
            let to = self.staging().pointer().add(start);
            let from = device + start as u64;
            self.driver
                .copy_out(stream, to, from, layout.staged - start)
        }
    }

    /// Copies the piece to the device, and from there to `pristine`, which has room for it, and
    /// waits.
    pub(crate) fn upload(&mut self, op: Op, pristine: &DeviceMemory) -> Result<(), GpuError> {
        let event = || Event::new(&self.driver);
        self.events = Some([event()?, event()?, event()?, event()?]);
        self.op = op;
        self.state = State::Broken;
        self.on_device = self.piece.layout.device;
        let copied = self.add_upload(pristine);
        // Waits for whatever was queued, before the memory may be freed.
        let done = self.stream.wait();
        copied.and(done)
    }

    fn add_upload(&self, pristine: &DeviceMemory) -> Result<(), GpuError> {
        // SAFETY: there is no arena. `upload` waits for the stream.
        unsafe { self.copy_in(None)? };
        self.copy_within(pristine.at(), self.device().at())
    }

    /// Copies the transferred data within device memory.
    fn copy_within(&self, to: Address, from: Address) -> Result<(), GpuError> {
        let staged = self.piece.layout.staged;
        // SAFETY: one is the transfer's memory, one has as much room, and neither is given back
        // before the stream has been waited for.
        unsafe {
            self.driver
                .copy_within(self.stream.handle(), to, from, staged)
        }
    }

    /// Runs the kernels on the uploaded piece. Returns their time in seconds.
    pub(crate) fn rerun(&mut self, pristine: &DeviceMemory) -> Result<f64, GpuError> {
        self.state = State::Broken;
        let added = self.add_rerun(pristine);
        let done = self.stream.wait();
        added.and(done)?;
        self.state = State::Resident;
        let [_, start, end, _] = self.events.as_ref().expect("created by `upload`");
        start.seconds_to(end)
    }

    fn add_rerun(&self, pristine: &DeviceMemory) -> Result<(), GpuError> {
        let [_, start, end, _] = self.events.as_ref().expect("created by `upload`");
        self.copy_within(self.device().at(), pristine.at())?;
        start.record(&self.stream)?;
        // SAFETY: the piece's data is on the device; `launch` guarantees the rest.
        unsafe { self.launch()? };
        end.record(&self.stream)
    }

    /// Passes the results of the last run to the caller.
    pub(crate) fn fetch(
        &mut self,
        bytes: &mut [u8],
        jobs: &[Job],
        outcomes: &mut [Outcome],
    ) -> Result<(), GpuError> {
        assert!(self.state == State::Resident, "nothing has run");
        // SAFETY: there is no arena. The stream is waited for below.
        let added = unsafe { self.copy_out(None) };
        let done = self.stream.wait();
        added.and(done)?;
        let staging = self.staging().bytes();
        self.piece.check(self.op, staging)?;
        self.piece
            .take(self.op, staging, bytes, jobs, |_| true, outcomes);
        Ok(())
    }

    /// Wipes the uploaded data.
    pub(crate) fn forget(&mut self, pristine: &DeviceMemory) {
        // SAFETY: it has the same length, and `abandon` waits before it may be freed.
        let added = unsafe {
            self.driver
                .zero(self.stream.handle(), pristine.at(), pristine.len())
        };
        // Nobody can read the memory of a lost device.
        let _ = added;
        self.state = State::Broken;
        self.abandon();
    }

    /// Whether all of its work is done.
    pub(crate) fn is_done(&mut self) -> Result<bool, GpuError> {
        let done = self.stream.is_done();
        if done.is_err() {
            self.state = State::Broken;
        }
        done
    }

    /// Waits until the piece has come back completely, passes it to `take` with the data in
    /// staging, and wipes.
    pub(crate) fn finish(
        &mut self,
        timings: &mut Timings,
        take: impl FnOnce(&Piece, &[u8]),
    ) -> Result<(), GpuError> {
        if self.state != State::UnderWay {
            return Err(GpuError::Undone);
        }
        let done = self.stream.wait().and_then(|()| {
            if self.timed
                && let Some([start, copied, computed, end]) = &self.events
            {
                timings.to_device += start.seconds_to(copied)?;
                timings.kernels += copied.seconds_to(computed)?;
                timings.from_device += computed.seconds_to(end)?;
            }
            self.piece.check(self.op, self.staging().bytes())
        });
        if done.is_err() {
            self.state = State::Broken;
            return done;
        }
        let layout = &self.piece.layout;
        let pinned = self.piece.texts.pinned().map_or(0, |span| span.len());
        timings.pieces += 1;
        timings.packets += self.piece.len();
        timings.bytes_to_device += layout.staged + pinned;
        timings.bytes_from_device += layout.staged - layout.verdicts + pinned;
        take(&self.piece, self.staging().bytes());
        // The zeros were queued last in the stream, so device memory is clean.
        self.on_device = 0;
        self.state = State::Idle;
        // Sealed packets are not secret, and have overwritten the plaintext. Bytes copied between
        // packets may be secret.
        let secret = match (self.op, &self.piece.texts) {
            (Op::Seal, Texts::Gathered | Texts::Pinned(_)) => self.piece.layout.keys_end,
            (Op::Seal, Texts::Copied(_)) | (Op::Open, _) => self.staged,
        };
        self.staged = self.staged.min(secret);
        self.wipe_staging();
        Ok(())
    }

    /// Ends all work in flight, and wipes.
    pub(crate) fn abandon(&mut self) {
        if self.state == State::Idle && self.staged == 0 && self.on_device == 0 {
            return;
        }
        // On a lost device nothing runs any more, and nobody else can read its memory.
        let _ = self.stream.wait();
        if let Some(device) = &self.device
            && self.on_device > 0
        {
            // SAFETY: as in `start`.
            let wiped = unsafe {
                self.driver
                    .zero(self.stream.handle(), device.at(), self.on_device)
            };
            let _ = wiped.and_then(|()| self.stream.wait());
        }
        self.on_device = 0;
        self.wipe_staging();
        self.state = State::Idle;
    }

    fn wipe_staging(&mut self) {
        if let Some(staging) = &mut self.staging {
            wipe(&mut staging.bytes_mut()[..self.staged]);
        }
        self.staged = 0;
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.abandon();
    }
}
