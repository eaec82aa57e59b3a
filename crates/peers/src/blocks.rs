//! Blocks: which peer announces and delivers them, how long that takes, and who stalls.
//!
//! The messages about blocks say what happened: a peer announces a block (`inv`, `headers`,
//! `cmpctblock`), the node requests it or the part that it lacks (`getdata`, `getblocktxn`), the
//! peer delivers (`block`, `blocktxn`), and the node connects it to its chain. A peer stalls if it
//! owes the node a block that this still needs, and for [`STALL`] has answered no request.
//!
//! Memory: [`MAX_BLOCKS`] blocks that the node wanted, and [`MAX_PENDING`] announced ones for each
//! peer, since a peer can invent hashes.

use crate::record::{BlockStep, Time};
use crate::statistics::Distribution;
use packetlane_p2p::payload::BlockHash;
use std::collections::{BTreeMap, VecDeque};

/// How long a peer may owe a block and answer nothing before it counts as stalling, in microseconds.
/// A block of 2 MB takes that long at 200 kB/s.
pub const STALL: Time = 10_000_000;

/// Maximum number of blocks that are kept one by one: two weeks.
pub const MAX_BLOCKS: usize = 2016;

/// Maximum number of blocks, announced by one peer first, that the node has not asked for.
pub const MAX_PENDING: usize = 16;

/// Maximum number of stalls that are listed, and of ended ones that are kept one by one.
pub const MAX_STALLS: usize = 100;

/// Maximum number of requests that are kept for a block. Bitcoin Core has at most three at a time.
const MAX_REQUESTS: usize = 16;

/// Maximum number of blocks that a peer owes. Bitcoin Core asks a peer for at most 16 at a time.
const MAX_OPEN: usize = 64;

/// Maximum number of peers that are remembered for announcing a block.
const MAX_ANNOUNCERS: usize = 16;

/// The first announcement of a block, or a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct By {
    /// The node's id of the peer.
    pub peer: i64,
    /// When.
    pub time: Time,
    /// How.
    pub step: BlockStep,
}

/// A request of the node for a block, or for a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The peer and the time. The step is one of the two requests.
    pub by: By,
    /// When it ended: by an answer, because the block came from elsewhere, or because the peer left.
    pub ended: Option<Time>,
}

/// A block that the node has requested, or that was announced to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its height, once it is connected.
    pub height: Option<u64>,
    /// The peers that announced it before it was connected, in order of time: at most 16, each by its
    /// first announcement.
    pub announcers: Vec<By>,
    /// The node's requests, in order of time.
    pub requests: Vec<Request>,
    /// The first `cmpctblock`.
    pub compact: Option<By>,
    /// The message that completed it.
    pub delivered: Option<By>,
    /// When it was connected.
    pub connected: Option<Time>,
    /// Whether the node wanted it, so that it is among the [`MAX_BLOCKS`].
    wanted: bool,
    /// Whether the peer that delivered it was credited.
    credited: bool,
}

impl Block {
    /// The first announcement.
    #[must_use]
    pub fn announced(&self) -> Option<By> {
        self.announcers.first().copied()
    }

    /// The transactions that its compact form lacked. `None` if it came whole, or is incomplete.
    #[must_use]
    pub fn missing(&self) -> Option<u64> {
        let by = self
            .delivered
            .filter(|by| by.step != BlockStep::Delivered)?;
        let missing = self.requests.iter().filter(|one| one.by.peer == by.peer);
        let mut missing = missing.filter_map(|one| match one.by.step {
            BlockStep::RequestedMissing(count) => Some(count),
            _ => None,
        });
        Some(missing.next_back().unwrap_or_default())
    }

    /// How long it took from its first announcement until it was connected, in microseconds.
    #[must_use]
    pub fn took(&self) -> Option<Time> {
        Some(self.connected?.saturating_sub(self.announced()?.time))
    }
}

/// A request of a peer that has answered nothing for longer than [`STALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The block.
    pub block: BlockHash,
    /// The node's id of the peer.
    pub peer: i64,
    /// When the node asked, or the peer answered another request after that.
    pub since: Time,
    /// When it ended. `None` if the node still waits.
    pub ended: Option<Time>,
}

/// What a peer has done for blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given {
    /// Blocks that it was the first to announce.
    pub first: u64,
    /// Blocks that it delivered.
    pub delivered: u64,
    /// Requests that it answered, and how long that took in total, in microseconds.
    pub answered: u64,
    /// See [`Given::answered`].
    pub answering: Time,
    /// Its stalls that have ended, and how long they took in total, in microseconds.
    pub stalls: u64,
    /// See [`Given::stalls`].
    pub stalled: Time,
    /// Blocks that it announced first of all connected peers, and that the node has not asked for.
    pending: VecDeque<BlockHash>,
    /// Blocks that it owes.
    open: Vec<BlockHash>,
    /// The type of its last message about a block, if it answered a request.
    asked: Option<&'static str>,
    /// When it last answered a request.
    last_answer: Time,
}

/// How the connected blocks came.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Connected blocks.
    pub connected: u64,
    /// Of these, those that came as `cmpctblock`.
    pub compact: u64,
    /// Of these, those that lacked no transaction.
    pub complete: u64,
    /// Transactions that the others lacked.
    pub missing: u64,
    /// Transactions in all that came as `cmpctblock`.
    pub transactions: u64,
    /// Microseconds from the first announcement until a block was connected, where there was one.
    pub took: Distribution,
    /// Nanoseconds that connecting a block took, without fetching it.
    pub connecting: Distribution,
    /// Ended stalls.
    pub stalls: u64,
    /// Their length in total, in microseconds.
    pub stalled: Time,
}

/// All blocks that were seen.
#[derive(Clone, Debug, Default)]
pub struct Blocks {
    known: BTreeMap<BlockHash, Block>,
    /// The blocks that the node wanted, in order of time.
    wanted: VecDeque<BlockHash>,
    given: BTreeMap<i64, Given>,
    stalls: VecDeque<Stall>,
    sums: Sums,
    /// The first announcement of the block that was connected last.
    last_first: Option<By>,
}

impl Blocks {
    /// How the connected blocks came.
    #[must_use]
    pub fn sums(&self) -> &Sums {
        &self.sums
    }

    /// What is known about a block.
    #[must_use]
    pub fn get(&self, hash: BlockHash) -> Option<&Block> {
        self.known.get(&hash)
    }

    /// The blocks that the node wanted, the latest request first.
    pub fn latest(&self) -> impl Iterator<Item = (BlockHash, &Block)> {
        let wanted = self.wanted.iter().rev();
        wanted.filter_map(|hash| Some((*hash, self.known.get(hash)?)))
    }

    /// What a connected peer has given so far. `None` if nothing.
    #[must_use]
    pub fn given(&self, peer: i64) -> Option<&Given> {
        self.given.get(&peer)
    }

    /// The first announcement of the block that was connected last.
    #[must_use]
    pub fn last_first(&self) -> Option<By> {
        self.last_first
    }

    /// Stalls that have ended: the latest, in order of time.
    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        self.stalls.iter().copied()
    }

    /// Requests that are unanswered at `now`, of blocks that the node still needs, to peers that have
    /// answered nothing for [`STALL`]: the longest, at most [`MAX_STALLS`].
    #[must_use]
    pub fn stalling(&self, now: Time) -> Vec<Stall> {
        let peers = self.given.keys();
        let mut stalls: Vec<Stall> = peers
            .flat_map(|peer| self.stalling_of(*peer, now))
            .collect();
        stalls.sort_by_key(|stall| stall.since);
        stalls.truncate(MAX_STALLS);
        stalls
    }

    /// The same for one peer.
    pub(crate) fn stalling_of(&self, peer: i64, now: Time) -> Vec<Stall> {
        let Some(given) = self.given.get(&peer) else {
            return Vec::new();
        };
        let oldest = |hash: &BlockHash| {
            let requests = self.known.get(hash)?.requests.iter();
            let mut open = requests.filter(|one| one.ended.is_none() && one.by.peer == peer);
            let since = open.next()?.by.time.max(given.last_answer);
            (now.saturating_sub(since) >= STALL).then_some(Stall {
                block: *hash,
                peer,
                since,
                ended: None,
            })
        };
        given.open.iter().filter_map(oldest).collect()
    }

    /// Whether the peer's last message about a block is of this type and answered a request. That is
    /// the message whose other record comes now: a second one is not meant.
    pub(crate) fn was_asked(&mut self, peer: i64, message_type: &str) -> bool {
        let given = self.given.get_mut(&peer);
        given.is_some_and(|given| given.asked.take() == Some(message_type))
    }

    /// Marks a gap: records after `time` are missing. Answers may be among them, so no peer owes
    /// anything any more. Those that stalled until then have stalled.
    pub(crate) fn gap(&mut self, time: Time) {
        for given in self.given.values_mut() {
            given.asked = None;
        }
        let open = self.given.values().flat_map(|given| given.open.clone());
        for hash in open.collect::<Vec<_>>() {
            let _ = self.end(hash, time, |_| true);
        }
    }

    /// Adds a message.
    pub(crate) fn message(&mut self, hash: BlockHash, by: By) {
        match by.step {
            BlockStep::Inv | BlockStep::Headers | BlockStep::Compact => self.announced(hash, by),
            BlockStep::Requested | BlockStep::RequestedMissing(_) => {
                let block = self.want(hash);
                if block.connected.is_some() || block.requests.len() >= MAX_REQUESTS {
                    return;
                }
                block.requests.push(Request { by, ended: None });
                let open = &mut self.given.entry(by.peer).or_default().open;
                if open.len() < MAX_OPEN && !open.contains(&hash) {
                    open.push(hash);
                }
            }
            BlockStep::Delivered | BlockStep::DeliveredMissing => {
                let was_asked = self.answered(hash, by);
                // Anyone can send any block: only those that the node waits for are kept.
                let waits = |block: &&mut Block| block.connected.is_none();
                let Some(block) = self.known.get_mut(&hash).filter(waits) else {
                    return;
                };
                if block.delivered.is_none() || was_asked && !block.credited {
                    block.delivered = Some(by);
                }
                if was_asked {
                    self.credit(hash);
                }
            }
        }
    }

    /// Counts a block for the peer that delivered it.
    fn credit(&mut self, hash: BlockHash) {
        if let Some(block) = self.known.get_mut(&hash)
            && let Some(by) = block.delivered
            && !std::mem::replace(&mut block.credited, true)
            && let Some(given) = self.given.get_mut(&by.peer)
        {
            given.delivered += 1;
        }
    }

    fn announced(&mut self, hash: BlockHash, by: By) {
        // A `cmpctblock` that was asked for announces nothing.
        let is_answer = by.step == BlockStep::Compact && self.answered(hash, by);
        let is_new = !self.known.contains_key(&hash);
        let block = self.known.entry(hash).or_default();
        if block.connected.is_some() {
            return;
        }
        if by.step == BlockStep::Compact && block.compact.is_none() {
            block.compact = Some(by);
        }
        if is_answer {
            return;
        }
        if block.announcers.iter().any(|known| known.peer == by.peer) {
            return;
        }
        if block.announcers.len() < MAX_ANNOUNCERS {
            block.announcers.push(by);
        }
        let given = self.given.entry(by.peer).or_default();
        if !is_new {
            return;
        }
        given.pending.push_back(hash);
        if given.pending.len() > MAX_PENDING
            && let Some(oldest) = given.pending.pop_front()
        {
            self.hand_on(oldest, by.peer);
        }
    }

    /// Takes a block that the node has not asked for from the peer that announced it first. The next
    /// one that announced it is the first then.
    fn hand_on(&mut self, hash: BlockHash, peer: i64) {
        let Some(block) = self.known.get_mut(&hash).filter(|block| !block.wanted) else {
            return;
        };
        let given = &mut self.given;
        let announcers = &mut block.announcers;
        announcers.retain(|by| by.peer != peer && given.contains_key(&by.peer));
        let next = announcers.first().and_then(|by| given.get_mut(&by.peer));
        match next {
            Some(next) if next.pending.len() < MAX_PENDING => next.pending.push_back(hash),
            _ => {
                self.known.remove(&hash);
            }
        }
    }

    /// The block, which the node wants. Its first announcement counts from now on.
    fn want(&mut self, hash: BlockHash) -> &mut Block {
        let known = self.known.entry(hash).or_default();
        if !std::mem::replace(&mut known.wanted, true) {
            if let Some(first) = known.announced() {
                let given = self.given.entry(first.peer).or_default();
                given.first += 1;
                given.pending.retain(|pending| *pending != hash);
            }
            self.wanted.push_back(hash);
            if self.wanted.len() > MAX_BLOCKS
                && let Some(oldest) = self.wanted.pop_front()
                && let Some(block) = self.known.remove(&oldest)
            {
                for request in &block.requests {
                    if let Some(given) = self.given.get_mut(&request.by.peer) {
                        given.open.retain(|open| *open != oldest);
                    }
                }
            }
        }
        self.known.entry(hash).or_default()
    }

    /// Ends the requests that a message answers. Returns whether there were any.
    fn answered(&mut self, hash: BlockHash, by: By) -> bool {
        let answers = |asked: BlockStep| match by.step {
            BlockStep::DeliveredMissing => matches!(asked, BlockStep::RequestedMissing(_)),
            BlockStep::Compact => asked == BlockStep::Requested,
            _ => true,
        };
        let ended = self.end(hash, by.time, |one| {
            one.peer == by.peer && answers(one.step)
        });
        let given = self.given.entry(by.peer).or_default();
        given.asked = (!ended.is_empty()).then(|| by.step.message_type());
        if let Some(first) = ended.first() {
            given.last_answer = by.time;
            given.answered += 1;
            given.answering = given
                .answering
                .saturating_add(by.time.saturating_sub(first.time));
        }
        !ended.is_empty()
    }

    /// Ends the unanswered requests for a block that `which` accepts, and returns them.
    fn end(&mut self, hash: BlockHash, time: Time, which: impl Fn(&By) -> bool) -> Vec<By> {
        let mut ended = Vec::new();
        let Some(block) = self.known.get_mut(&hash) else {
            return ended;
        };
        for request in &mut block.requests {
            if request.ended.is_none() && which(&request.by) {
                request.ended = Some(time);
                ended.push(request.by);
            }
        }
        let still = |peer| {
            let mut requests = block.requests.iter();
            requests.any(|one| one.ended.is_none() && one.by.peer == peer)
        };
        for by in &ended {
            // A peer that has left was removed.
            let Some(given) = self.given.get_mut(&by.peer) else {
                continue;
            };
            if !still(by.peer) {
                given.open.retain(|open| *open != hash);
            }
            let since = by.time.max(given.last_answer);
            let length = time.saturating_sub(since);
            if length < STALL {
                continue;
            }
            given.stalls += 1;
            given.stalled = given.stalled.saturating_add(length);
            self.sums.stalls += 1;
            self.sums.stalled = self.sums.stalled.saturating_add(length);
            if self.stalls.len() == MAX_STALLS {
                self.stalls.pop_front();
            }
            self.stalls.push_back(Stall {
                block: hash,
                peer: by.peer,
                since,
                ended: Some(time),
            });
        }
        ended
    }

    /// Adds a block that the node has connected.
    pub(crate) fn connected(
        &mut self,
        hash: BlockHash,
        time: Time,
        height: u64,
        transactions: u64,
        took_ns: u64,
    ) -> Option<&Block> {
        let block = self.want(hash);
        if block.connected.is_some() {
            // Again, after a reorganization.
            return None;
        }
        block.height = Some(height);
        block.connected = Some(time);
        if block.delivered.is_none()
            && let Some(compact) = block.compact
        {
            block.delivered = Some(compact);
        }
        self.credit(hash);
        let _ = self.end(hash, time, |_| true);
        let block = self.known.get(&hash)?;
        let sums = &mut self.sums;
        sums.connected += 1;
        sums.connecting.add(took_ns as f64, 1.0);
        if let Some(took) = block.took() {
            sums.took.add(took as f64, 1.0);
        }
        if let Some(missing) = block.missing() {
            sums.compact += 1;
            sums.complete += u64::from(missing == 0);
            sums.missing = sums.missing.saturating_add(missing);
            sums.transactions = sums.transactions.saturating_add(transactions);
        }
        if let Some(first) = block.announced() {
            self.last_first = Some(first);
        }
        Some(block)
    }

    /// Removes a peer that has left, and returns what it gave. The node asks others for what it
    /// owed.
    pub(crate) fn left(&mut self, peer: i64, time: Time) -> Given {
        let open = self.given.get(&peer).map(|given| given.open.clone());
        for hash in open.unwrap_or_default() {
            let _ = self.end(hash, time, |by| by.peer == peer);
        }
        let given = self.given.remove(&peer).unwrap_or_default();
        for hash in &given.pending {
            self.hand_on(*hash, peer);
        }
        self.last_first = self.last_first.filter(|by| by.peer != peer);
        given
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BlockStep::{
        Compact, Delivered, DeliveredMissing, Headers, Inv, Requested, RequestedMissing,
    };

    const SECOND: Time = 1_000_000;

    /// A step: peer, second, block, what.
    fn add(blocks: &mut Blocks, (peer, second, block, step): (i64, u64, u8, BlockStep)) {
        let time = second * SECOND;
        blocks.message(BlockHash([block; 32]), By { peer, time, step });
    }

    fn connect(blocks: &mut Blocks, block: u8, second: u64) {
        blocks.connected(
            BlockHash([block; 32]),
            second * SECOND,
            block.into(),
            100,
            5_000_000,
        );
    }

    #[test]
    fn who_gave_what() {
        let mut blocks = Blocks::default();
        // 1: compact from peer 1 without asking, lacking nothing. 2: compact from peer 2, lacking 7.
        // 3: whole from peer 3, announced by 1 first.
        for step in [(1, 10, 1, Compact), (2, 11, 1, Headers)] {
            add(&mut blocks, step);
        }
        connect(&mut blocks, 1, 12);
        for step in [
            (2, 20, 2, Compact),
            (2, 20, 2, RequestedMissing(7)),
            (2, 23, 2, DeliveredMissing),
        ] {
            add(&mut blocks, step);
        }
        connect(&mut blocks, 2, 23);
        for step in [
            (1, 30, 3, Inv),
            (3, 31, 3, Headers),
            (3, 31, 3, Requested),
            (3, 33, 3, Delivered),
            // As cmpctblock on request: no announcement.
            (2, 33, 4, Headers),
            (2, 33, 4, Requested),
            (2, 34, 4, Compact),
        ] {
            add(&mut blocks, step);
        }
        connect(&mut blocks, 3, 34);
        connect(&mut blocks, 4, 34);
        // Late, and a reorganization.
        add(&mut blocks, (2, 40, 3, Headers));
        connect(&mut blocks, 3, 41);
        let sums = blocks.sums();
        assert_eq!((sums.connected, sums.compact, sums.complete), (4, 3, 2));
        assert_eq!((sums.missing, sums.transactions, sums.stalls), (7, 300, 0));
        assert_eq!(sums.took.max(), 4e6);
        let given = |peer| {
            let given = blocks.given(peer).expect("known");
            (
                given.first,
                given.delivered,
                given.answered,
                given.answering,
            )
        };
        assert_eq!(given(1), (2, 1, 0, 0));
        assert_eq!(given(2), (2, 2, 2, 4 * SECOND));
        assert_eq!(given(3), (0, 1, 1, 2 * SECOND));
        assert_eq!(blocks.last_first().map(|by| by.peer), Some(2));
        let latest = blocks
            .latest()
            .map(|(_, block)| (block.height, block.missing(), block.announcers.len()));
        assert_eq!(
            latest.collect::<Vec<_>>(),
            [
                (Some(4), Some(0), 1),
                (Some(3), None, 2),
                (Some(2), Some(7), 1),
                (Some(1), Some(0), 2)
            ]
        );
        let third = blocks.latest().nth(1).expect("a block").1;
        assert_eq!(third.took(), Some(4 * SECOND));
    }

    /// Answers may be lost: nobody owes anything after a gap.
    #[test]
    fn a_gap_ends_requests() {
        let mut blocks = Blocks::default();
        for step in [(1, 10, 1, Headers), (1, 10, 1, Requested)] {
            add(&mut blocks, step);
        }
        blocks.gap(15 * SECOND);
        assert_eq!(blocks.stalling(60 * SECOND), []);
        connect(&mut blocks, 1, 60);
        assert_eq!(blocks.sums().stalls, 0);
        // What was a stall before is one.
        add(&mut blocks, (1, 60, 2, Requested));
        blocks.gap(75 * SECOND);
        assert_eq!(blocks.stalling(90 * SECOND), []);
        assert_eq!(
            (blocks.sums().stalls, blocks.sums().stalled),
            (1, 15 * SECOND)
        );
    }

    /// The first announcement counts of those that are connected still.
    #[test]
    fn who_announced_first_of_those_left() {
        let mut blocks = Blocks::default();
        for peer in [1, 2, 3] {
            add(&mut blocks, (peer, 10, 1, Headers));
        }
        blocks.left(2, 11 * SECOND);
        blocks.left(1, 12 * SECOND);
        // Those that are too many are the next peer's.
        for block in 2..20 {
            add(&mut blocks, (3, 13, block, Headers));
            add(&mut blocks, (4, 14, block, Headers));
        }
        connect(&mut blocks, 2, 20);
        let given = |peer| blocks.given(peer).map(|given| given.first);
        assert_eq!([given(3), given(4)], [Some(0), Some(1)]);
        let (_, block) = blocks.latest().next().expect("a block");
        assert_eq!(block.announced().map(|by| by.peer), Some(4));
        assert_eq!(blocks.last_first().map(|by| by.peer), Some(4));
        blocks.left(4, 21 * SECOND);
        assert_eq!(blocks.last_first(), None);
    }

    #[test]
    fn who_stalls() {
        let mut blocks = Blocks::default();
        for step in [
            (1, 10, 1, Headers),
            (1, 10, 1, Requested),
            (2, 12, 1, Headers),
            // Two requests of one block, and one of another that is answered.
            (2, 13, 1, Requested),
            (3, 13, 2, Requested),
            (3, 20, 2, Delivered),
        ] {
            add(&mut blocks, step);
        }
        assert_eq!(blocks.stalling(19 * SECOND), []);
        let stalling = |blocks: &Blocks, second: u64| -> Vec<i64> {
            let stalls = blocks.stalling(second * SECOND).into_iter();
            stalls.map(|stall| stall.peer).collect()
        };
        assert_eq!(stalling(&blocks, 20), [1]);
        assert_eq!(stalling(&blocks, 23), [1, 2]);
        // A peer that delivers one of many blocks every few seconds does not stall.
        for block in 10..26 {
            add(&mut blocks, (7, 20, block, Requested));
        }
        for block in 10..25 {
            let second = 20 + 3 * u64::from(block - 9);
            add(&mut blocks, (7, second, block, Delivered));
        }
        assert_eq!(stalling(&blocks, 74), [1, 2]);
        assert_eq!(stalling(&blocks, 75), [1, 2, 7]);
        add(&mut blocks, (7, 76, 25, Delivered));
        assert_eq!(blocks.sums().stalls, 1);
        blocks.left(7, 80 * SECOND);
        // It leaves, and the other one delivers.
        let gone = blocks.left(1, 85 * SECOND);
        assert_eq!((gone.stalls, gone.stalled, gone.first), (1, 75 * SECOND, 1));
        assert_eq!(stalling(&blocks, 90), [2]);
        add(&mut blocks, (2, 100, 1, Delivered));
        connect(&mut blocks, 1, 101);
        assert!(stalling(&blocks, 200).is_empty());
        let ended: Vec<_> = blocks
            .stalls()
            .map(|stall| (stall.peer, stall.ended))
            .collect();
        let ends = [(7, 76), (1, 85), (2, 100)];
        assert_eq!(
            ended,
            ends.map(|(peer, second)| (peer, Some(second * SECOND)))
        );
        assert_eq!(blocks.sums().stalls, 3);
        // From elsewhere, after a stall: that ends it, too.
        for step in [
            (4, 150, 3, Requested),
            (2, 170, 3, Requested),
            (2, 171, 3, Delivered),
        ] {
            add(&mut blocks, step);
        }
        connect(&mut blocks, 3, 172);
        assert_eq!(blocks.given(4).expect("known").stalls, 1);
        let stall = blocks.stalls().last().expect("a stall");
        assert_eq!(
            blocks.get(stall.block).and_then(|block| block.height),
            Some(3)
        );
    }

    /// Peers can invent any number of blocks, and leave.
    #[test]
    fn invented_blocks_take_little_memory() {
        let mut blocks = Blocks::default();
        let mut hash = [0; 32];
        for number in 0..100_000_u64 {
            hash[..8].copy_from_slice(&number.to_le_bytes());
            let by = By {
                peer: (number % 50).cast_signed(),
                time: number,
                step: Headers,
            };
            blocks.message(BlockHash(hash), by);
        }
        assert_eq!(blocks.known.len(), 50 * MAX_PENDING);
        for peer in 0..50 {
            blocks.left(peer, 0);
        }
        assert!(blocks.known.is_empty() && blocks.given.is_empty());
        // Blocks that the node wants, and never gets.
        for number in 0..100_000_u64 {
            hash[..8].copy_from_slice(&number.to_le_bytes());
            let by = By {
                peer: 1,
                time: number,
                step: Requested,
            };
            blocks.message(BlockHash(hash), by);
        }
        assert_eq!(blocks.known.len(), MAX_BLOCKS);
        // Those that are not kept are not owed: a new one can be.
        assert!(blocks.given[&1].open.len() <= MAX_OPEN);
        for number in 0..MAX_BLOCKS as u64 {
            hash[..8].copy_from_slice(&(1 << 40 | number).to_le_bytes());
            blocks.connected(BlockHash(hash), number, number, 1, 1);
        }
        assert!(blocks.given[&1].open.is_empty());
        // Blocks that nobody asked for are not kept.
        let before = blocks.wanted.len();
        for number in 0..5000_u64 {
            hash[..8].copy_from_slice(&(1 << 50 | number).to_le_bytes());
            let by = By {
                peer: 2,
                time: number,
                step: DeliveredMissing,
            };
            blocks.message(BlockHash(hash), by);
        }
        assert_eq!(
            (
                blocks.wanted.len(),
                blocks.given(2).expect("known").delivered
            ),
            (before, 0)
        );
    }
}
