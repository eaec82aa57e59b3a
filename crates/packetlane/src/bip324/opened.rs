//! Takes or defers the packets that a receiving half has in an opened batch.

use super::error::OpenError;
use super::inbound::Inbound;
use super::packet::{HEADER_LEN, OVERHEAD, PacketKind};
use super::rekey::number_and_epoch;
use crate::batch::OpenBatch;
use crate::bitcoin::message::MessageType;
use core::iter::Zip;
use core::ops::Range;
use core::slice;
use packetlane_lanes::{Job, Outcome};

impl Inbound {
    /// Keeps the batch's packets that were not taken for a later turn; clearing the batch would
    /// lose them. Use it when a peer sends faster than it reads its answers, and read nothing more
    /// from that peer until it has read some.
    ///
    /// # Errors
    ///
    /// As for [`Inbound::packets`]. After [`OpenError::NotOpened`] (the batch has not been opened)
    /// nothing has changed. A packet that cannot be opened ends the session, and the packets before
    /// it are lost: take them instead if they matter.
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::{Engine, OpenBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
    /// # let mut bob = Session::from_keys(engine, &keys, Role::Responder);
    /// # let mut wire = Vec::new();
    /// # alice.outbound.seal(PacketKind::Genuine, b"one", &mut wire)?;
    /// # alice.outbound.seal(PacketKind::Genuine, b"two", &mut wire)?;
    /// let mut batch = OpenBatch::new();
    /// bob.inbound.feed(&mut batch, &wire)?;
    /// engine.open(&mut batch);
    /// assert_eq!(bob.inbound.packets(&batch).next(), Some(Ok(&b"one"[..])));
    /// bob.inbound.defer(&batch)?;
    ///
    /// batch.clear();
    /// assert!(bob.inbound.has_pending_input());
    /// bob.inbound.receive(&mut batch, 0)?;
    /// engine.open(&mut batch);
    /// assert_eq!(bob.inbound.packets(&batch).next(), Some(Ok(&b"two"[..])));
    /// # Ok(())
    /// # }
    /// ```
    pub fn defer(&mut self, batch: &OpenBatch) -> Result<(), OpenError> {
        // All or none: packets left in the batch would be taken before the deferred ones. Packets
        // are opened in the order in which they were added.
        let last = self.rest.last_waiting();
        if self.rest.turn == batch.arena().turn()
            && last.is_some_and(|last| batch.outcome(last) == Outcome::Pending)
        {
            return Err(OpenError::NotOpened);
        }
        while let Some(contents) = self.next_packet(batch) {
            let contents = batch.arena().bytes()[contents?].to_vec();
            self.rest.rare_mut().deferred.push(contents);
        }
        Ok(())
    }

    /// Returns the contents of the packets that [`Inbound::receive`] added to the batch and that
    /// were not taken yet. The batch must have been opened. Decoys are dropped and counted.
    ///
    /// If [`Inbound::receive`] returned an error, the iterator yields it after the last packet.
    // Always inlined: a value returned through memory would be written in 8-byte pieces and read in
    // 16-byte pieces, which stalls store forwarding.
    #[inline(always)]
    pub fn packets<'b>(
        &mut self,
        batch: &'b OpenBatch,
    ) -> impl Iterator<Item = Result<&'b [u8], OpenError>> {
        self.iter(batch)
    }

    #[inline(always)]
    fn iter<'s, 'b>(&'s mut self, batch: &'b OpenBatch) -> Packets<'s, 'b> {
        let rest = &self.rest;
        let waiting = match rest.turn == batch.arena().turn() && !rest.has_rare {
            true => rest.waiting.start as usize..rest.waiting.end as usize,
            false => 0..0,
        };
        Packets {
            run: batch.finished(waiting),
            inbound: self,
            batch,
            ended: false,
        }
    }

    /// Like [`Inbound::packets`], for programs that speak Bitcoin's protocol: returns the type and
    /// the payload of each packet's message. Packets that hold no valid message are dropped and
    /// [counted](Inbound::ignored).
    ///
    /// ```
    /// # use packetlane::bip324::{PacketKind, Role, Session, SessionKeys};
    /// # use packetlane::bitcoin::message::MessageType;
    /// # use packetlane::{Engine, OpenBatch, SealBatch};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let engine = Engine::detect()?;
    /// # let keys = SessionKeys::derive(&[1; 32], [0; 4]);
    /// # let mut alice = Session::from_keys(engine, &keys, Role::Initiator);
    /// # let mut bob = Session::from_keys(engine, &keys, Role::Responder);
    /// # let mut wire = Vec::new();
    /// // A message type that this version does not know.
    /// alice.outbound.seal(PacketKind::Genuine, &[127, 1, 2], &mut wire)?;
    /// let ping = MessageType::new(b"ping")?;
    /// let contents = [ping.short_id().unwrap(), 3];
    /// alice.outbound.seal(PacketKind::Genuine, &contents, &mut wire)?;
    /// let mut batch = OpenBatch::new();
    /// bob.inbound.feed(&mut batch, &wire)?;
    /// engine.open(&mut batch);
    /// let messages: Result<Vec<_>, _> = bob.inbound.messages(&batch).collect();
    /// assert_eq!(messages?, [(ping, &[3][..])]);
    /// assert_eq!(bob.inbound.ignored().messages, 1);
    /// # Ok(())
    /// # }
    /// ```
    #[inline(always)]
    pub fn messages<'b>(
        &mut self,
        batch: &'b OpenBatch,
    ) -> impl Iterator<Item = Result<(MessageType, &'b [u8]), OpenError>> {
        Messages {
            packets: self.iter(batch),
        }
    }

    /// One step of [`Packets`]: returns the range of the next genuine packet's contents in the
    /// batch's arena.
    // Always inlined: most calls do little.
    #[inline(always)]
    pub(super) fn next_packet(
        &mut self,
        batch: &OpenBatch,
    ) -> Option<Result<Range<usize>, OpenError>> {
        if self.rest.has_rare
            && let Some(next) = self.rest.next_rare(batch)
        {
            return next;
        }
        while let Some(packet) = self.rest.first_waiting() {
            // After a caller's mistake, the packets stay where they are.
            if self.rest.turn != batch.arena().turn() {
                return Some(Err(OpenError::NotInBatch));
            }
            if batch.outcome(packet) != Outcome::Authentic {
                return Some(Err(self.not_authentic(batch, packet)));
            }
            self.rest.remove_first_waiting();
            let text = batch.text(packet);
            match PacketKind::from_header(batch.arena().bytes()[text.start]) {
                PacketKind::Genuine => return Some(Ok(text.start + HEADER_LEN..text.end)),
                PacketKind::Decoy => self.rest.held.decoys += 1,
            }
        }
        self.rest.failed().map(Err)
    }

    /// Returns the error for packet number `packet` of the batch.
    #[cold]
    fn not_authentic(&mut self, batch: &OpenBatch, packet: usize) -> OpenError {
        match batch.outcome(packet) {
            Outcome::BadTag => {
                let (packet, epoch) = number_and_epoch(batch.nonce(packet));
                self.fail(OpenError::BadTag { packet, epoch })
            }
            _ => OpenError::NotOpened,
        }
    }
}

/// Iterator over the packets of one session in a batch; see [`Inbound::packets`]. Ends after an
/// error.
#[derive(Debug)]
struct Packets<'s, 'b> {
    inbound: &'s mut Inbound,
    batch: &'b OpenBatch,
    /// The waiting packets that have run. A fast path: [`Inbound::next_packet`] would return the
    /// same, with more checks.
    run: Zip<slice::Iter<'b, Job>, slice::Iter<'b, Outcome>>,
    ended: bool,
}

impl<'b> Iterator for Packets<'_, 'b> {
    type Item = Result<&'b [u8], OpenError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.batch.arena().bytes();
        while let Some((job, Outcome::Authentic)) = self.run.next() {
            self.inbound.rest.waiting.start += 1;
            let text = &bytes[job.text as usize..][..job.text_len as usize];
            if let Some((&header, contents)) = text.split_first()
                && PacketKind::from_header(header) == PacketKind::Genuine
            {
                return Some(Ok(contents));
            }
            self.inbound.rest.held.decoys += 1;
        }
        if self.inbound.rest.waiting.is_empty() && !self.inbound.rest.has_rare {
            return None;
        }
        self.next_outside_run()
    }
}

impl<'b> Packets<'_, 'b> {
    /// Returns the next packet that is not in `run`, or the error.
    #[inline(never)]
    fn next_outside_run(&mut self) -> Option<Result<&'b [u8], OpenError>> {
        self.run = [].iter().zip(&[]);
        if self.ended {
            return None;
        }
        let next = self.inbound.next_packet(self.batch)?;
        self.ended = next.is_err();
        Some(next.map(|contents| &self.batch.arena().bytes()[contents]))
    }
}

/// Iterator over the messages of one session in a batch; see [`Inbound::messages`]. Ends after an
/// error.
#[derive(Debug)]
struct Messages<'s, 'b> {
    packets: Packets<'s, 'b>,
}

impl<'b> Iterator for Messages<'_, 'b> {
    type Item = Result<(MessageType, &'b [u8]), OpenError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let contents = match self.packets.next()? {
                Ok(contents) => contents,
                Err(error) => return Some(Err(error)),
            };
            let ignored = &mut self.packets.inbound.rest.held.ignored;
            if let Some(message) = ignored.decode(contents, contents.len() + OVERHEAD) {
                return Some(Ok(message));
            }
        }
    }
}
