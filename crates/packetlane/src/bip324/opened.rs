//! The packets that a receiving half has in a batch that an engine has opened: taken, or deferred to a
//! later turn.

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
    /// Keeps the packets of the batch that nobody took, for a later turn: they would be lost
    /// when the batch is cleared. For a peer that sends faster than it takes its answers;
    /// until it has taken some, read nothing more from it.
    ///
    /// # Errors
    ///
    /// As [`Inbound::packets`]: [`OpenError::NotOpened`] if the batch has not been opened; then nothing
    /// changes. A packet that cannot be opened ends the session, and packets before it are
    /// lost: take them instead if they matter.
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
        // All or none: what stays would be taken before what was deferred. Packets are opened
        // in the order in which they were added.
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

    /// The contents of the packets that [`Inbound::receive`] added to the batch and that
    /// nobody took yet, once the batch has been opened. Decoys are dropped and counted.
    ///
    /// After the last packet it yields the error that [`Inbound::receive`] returned, if one.
    // Always part of its caller: a value returned through memory would be written in pieces of 8 bytes and read
    // in pieces of 16, which waits until the pieces are in the cache.
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

    /// As [`Inbound::packets`], for programs that speak Bitcoin's protocol: each packet's message,
    /// its type and its payload. Packets that hold none are dropped and
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
    /// // Of a type that this version does not know.
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

    /// One step of [`Packets`]: where the next genuine packet's contents lie in
    /// the batch's arena.
    // Always part of its callers: most calls do little.
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
            // A mistake of the caller's leaves the packets where they are.
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

    /// What is wrong with packet number `packet` of the batch.
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

/// Iterator over the packets of one session in a batch; see
/// [`Inbound::packets`]. It ends after an error.
#[derive(Debug)]
struct Packets<'s, 'b> {
    inbound: &'s mut Inbound,
    batch: &'b OpenBatch,
    /// The packets that wait and have run. [`Inbound::next_packet`] does the same for each, but asks more.
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
        self.next_beside_run()
    }
}

impl<'b> Packets<'_, 'b> {
    /// The next packet that does not lie in the run, or what is wrong.
    #[inline(never)]
    fn next_beside_run(&mut self) -> Option<Result<&'b [u8], OpenError>> {
        self.run = [].iter().zip(&[]);
        if self.ended {
            return None;
        }
        let next = self.inbound.next_packet(self.batch)?;
        self.ended = next.is_err();
        Some(next.map(|contents| &self.batch.arena().bytes()[contents]))
    }
}

/// Iterator over the messages of one session in a batch; see [`Inbound::messages`]. It ends after
/// an error.
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
