//! One of the places through which pieces travel: a stream, staging memory on the host, and
//! device memory.

use crate::driver::{Address, DeviceMemory, Event, PinnedMemory, Shared, Stream};
use crate::error::GpuError;
use crate::kernels::{Op, launches};
use crate::piece::{MAX_PIECE, Piece, Texts};
use crate::timings::Timings;
use crate::wipe::wipe;
use packetlane_lanes::{Job, Outcome};

/// How much memory is taken for `len` bytes: to take page-locked memory takes long, so a
/// transfer should grow seldom.
fn capacity(len: usize) -> usize {
    const STEP: usize = 1 << 20;
    match len {
        0..=MAX_PIECE => len.next_power_of_two().max(STEP),
        _ => len.next_multiple_of(STEP),
    }
}

/// A transfer. Its stream is waited for before its memory is touched or given back.
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
    /// How much of staging, and of device memory, may hold secrets.
    staged: usize,
    on_device: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing of it is under way, and both memories are clean.
    Idle,
    /// All of its work has been added.
    UnderWay,
    /// What was uploaded has run, and is there to be fetched or to run again.
    Resident,
    /// Something went wrong: its work is not all there, or not known to be done.
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

    /// Makes room for what `piece` says, and returns the staging to be written.
    pub(crate) fn stage(&mut self) -> Result<(&mut Piece, &mut [u8]), GpuError> {
        debug_assert!(self.state == State::Idle);
        let layout = self.piece.layout;
        if self
            .staging
            .as_ref()
            .is_none_or(|had| had.bytes().len() < layout.staged)
        {
            // The old one first: there may be no room for both.
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
        let staging = self.staging.as_mut().expect("made above");
        Ok((&mut self.piece, &mut staging.bytes_mut()[..layout.staged]))
    }

    /// Adds all work of the piece to the stream: to the device, kernels, back, wiped. A
    /// piece of a pinned arena travels from `front` of it, and back to `back`.
    ///
    /// # Safety
    ///
    /// Where the piece is a range of a pinned arena, both pointers are to page-locked memory of this driver
    /// that has it, which nobody reads or writes in it, nor gives back, before the transfer is
    /// idle again.
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
        // Until all of it has been added.
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
    /// As [`Transfer::start`].
    unsafe fn copy_in(&self, arena: Option<(*const u8, *mut u8)>) -> Result<(), GpuError> {
        let (stream, device) = (self.stream.handle(), self.device().at());
        let layout = self.piece.layout;
        // SAFETY: both memories are as long as the layout says; a transfer that is not idle
        // neither shows nor gives back its staging.
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
    /// What the piece says has been or will be copied to the device before.
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
    /// As [`Transfer::start`].
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
        // Verdicts, and behind them the bytes, if they are in staging.
        let start = layout.verdicts;
        // SAFETY: as in `copy_in`.
        unsafe {
            let to = self.staging().pointer().add(start);
            let from = device + start as u64;
            self.driver
                .copy_out(stream, to, from, layout.staged - start)
        }
    }

    /// Copies the piece to the device, and what came there to `pristine`, which has room for
    /// it, and waits.
    pub(crate) fn upload(&mut self, op: Op, pristine: &DeviceMemory) -> Result<(), GpuError> {
        let event = || Event::new(&self.driver);
        self.events = Some([event()?, event()?, event()?, event()?]);
        self.op = op;
        self.state = State::Broken;
        self.on_device = self.piece.layout.device;
        let copied = self.add_upload(pristine);
        // Whatever was added, before the memory may be given back.
        let done = self.stream.wait();
        copied.and(done)
    }

    fn add_upload(&self, pristine: &DeviceMemory) -> Result<(), GpuError> {
        // SAFETY: there is no arena. What waits is waited for by `upload`.
        unsafe { self.copy_in(None)? };
        self.copy_within(pristine.at(), self.device().at())
    }

    /// Copies what travelled from one place of the device to another.
    fn copy_within(&self, to: Address, from: Address) -> Result<(), GpuError> {
        let staged = self.piece.layout.staged;
        // SAFETY: one is the transfer's memory, one has as much room, and neither is given back
        // before the stream has been waited for.
        unsafe {
            self.driver
                .copy_within(self.stream.handle(), to, from, staged)
        }
    }

    /// Runs the kernels on what was uploaded. Returns the seconds that they take.
    pub(crate) fn rerun(&mut self, pristine: &DeviceMemory) -> Result<f64, GpuError> {
        self.state = State::Broken;
        let added = self.add_rerun(pristine);
        let done = self.stream.wait();
        added.and(done)?;
        self.state = State::Resident;
        let [_, start, end, _] = self.events.as_ref().expect("made by `upload`");
        start.seconds_to(end)
    }

    fn add_rerun(&self, pristine: &DeviceMemory) -> Result<(), GpuError> {
        let [_, start, end, _] = self.events.as_ref().expect("made by `upload`");
        self.copy_within(self.device().at(), pristine.at())?;
        start.record(&self.stream)?;
        // SAFETY: what the piece says is on the device; the rest `launch` promises.
        unsafe { self.launch()? };
        end.record(&self.stream)
    }

    /// Hands out the results of the last run.
    pub(crate) fn fetch(
        &mut self,
        bytes: &mut [u8],
        jobs: &[Job],
        outcomes: &mut [Outcome],
    ) -> Result<(), GpuError> {
        assert!(self.state == State::Resident, "nothing has run");
        // SAFETY: there is no arena. What waits is waited for.
        let added = unsafe { self.copy_out(None) };
        let done = self.stream.wait();
        added.and(done)?;
        let staging = self.staging().bytes();
        self.piece.check(self.op, staging)?;
        self.piece
            .take(self.op, staging, bytes, jobs, |_| true, outcomes);
        Ok(())
    }

    /// Wipes what was uploaded.
    pub(crate) fn forget(&mut self, pristine: &DeviceMemory) {
        // SAFETY: it is as long, and `abandon` waits before it may be given back.
        let added = unsafe {
            self.driver
                .zero(self.stream.handle(), pristine.at(), pristine.len())
        };
        // A lost device has no memory that anybody can read.
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

    /// Waits until the piece has come back whole, gives it to `take` with what is in
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
        // The zeros that were written on the device came after all else in its stream.
        self.on_device = 0;
        self.state = State::Idle;
        // What has been sealed is no secret, and lies where the plaintext did. What was copied
        // between packets may be one.
        let secret = match (self.op, &self.piece.texts) {
            (Op::Seal, Texts::Gathered | Texts::Pinned(_)) => self.piece.layout.keys_end,
            (Op::Seal, Texts::Copied(_)) | (Op::Open, _) => self.staged,
        };
        self.staged = self.staged.min(secret);
        self.wipe_staging();
        Ok(())
    }

    /// Ends what is under way, whatever it was, and wipes.
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
