//! Blocks and transactions of the load, valid on regtest. Anyone can spend their coins: each script
//! is the hash of a witness script that is just `OP_TRUE`. A node validates everything except
//! signatures, since there are none.

use crate::rates::exponential;
use bitcoin::absolute::LockTime;
use bitcoin::bip152::HeaderAndShortIds;
use bitcoin::block::{Header, Version};
use bitcoin::consensus::serialize;
use bitcoin::constants::genesis_block;
use bitcoin::hashes::Hash;
use bitcoin::opcodes::all::OP_RETURN;
use bitcoin::script::{Builder, PushBytesBuf};
use bitcoin::{
    Amount, Block, BlockHash, OutPoint, ScriptBuf, Sequence, Target, Transaction, TxIn,
    TxMerkleNode, TxOut, Txid, Witness, Wtxid, transaction,
};
use packetlane_p2p::payload::MAX_HEADERS;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Number of blocks after which a coinbase can be spent.
const MATURITY: usize = 100;

/// Blocks between halvings of the subsidy, on regtest.
const HALVING: usize = 150;

/// Number of coinbases that are split into coins at the start.
const SPLIT: usize = 10;

/// Maximum number of outputs per coinbase that is split. This many take 86 kB.
const OUTPUTS: u64 = 2000;

/// Minimum value of a coin at the start, in satoshis: pays the fees of about 10 average
/// transactions.
const COIN: u64 = 50_000;

/// Minimum subsidy that makes enough coins, in satoshis.
const MIN_SUBSIDY: u64 = 20 * COIN;

/// Fee in satoshis per byte. Nodes relay from 0.1 or 1 upwards.
const FEE_RATE: u64 = 2;

/// Minimum value of an output, in satoshis. Nodes treat values below 330 as dust.
const MIN_OUTPUT: u64 = 1000;

/// Maximum length of a transaction, in bytes. Nodes relay up to 100,000.
const MAX_TRANSACTION: usize = 90_000;

/// Maximum weight of the transactions in a block. Consensus allows 4,000,000 for the whole block.
const MAX_BLOCK_WEIGHT: u64 = 3_900_000;

/// Number of transactions kept to answer `getdata`. Peers ask within a minute or two.
const KEPT_TRANSACTIONS: usize = 20_000;

/// Number of blocks kept, for the same purpose.
const KEPT_BLOCKS: usize = 20;

/// Below this number of coins a block is due: it turns outputs into coins.
const MIN_COINS: usize = 1000;

/// A transaction that we made.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) transaction: Transaction,
    pub(crate) txid: Txid,
    pub(crate) wtxid: Wtxid,
    /// Encoded as in a `tx` message.
    pub(crate) bytes: Vec<u8>,
    /// In satoshis.
    fee: u64,
    /// Whether the node has requested it, and whether it has announced it.
    pub(crate) fetched: AtomicBool,
    pub(crate) relayed: AtomicBool,
}

/// A block that we made, in the forms that nodes request.
#[derive(Debug)]
pub(crate) struct Mined {
    pub(crate) block: Block,
    pub(crate) hash: BlockHash,
    pub(crate) bytes: Vec<u8>,
    /// Encoded as in a `cmpctblock` message.
    pub(crate) compact: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Coin {
    place: OutPoint,
    value: u64,
}

/// The node's chain and what we have added to it.
#[derive(Debug)]
pub(crate) struct Chain {
    headers: Vec<Header>,
    heights: HashMap<BlockHash, usize>,
    mined: VecDeque<Arc<Mined>>,
    /// With the heights from which they can be spent.
    coinbases: VecDeque<(usize, Coin)>,
    /// Confirmed coins, oldest first.
    coins: VecDeque<Coin>,
    /// Unconfirmed transactions, oldest first.
    waiting: VecDeque<Arc<Made>>,
    /// The latest transactions, oldest first; and the number of the first of them.
    made: VecDeque<Arc<Made>>,
    first: u64,
    by_txid: HashMap<Txid, Arc<Made>>,
    by_wtxid: HashMap<Wtxid, Arc<Made>>,
    script: ScriptBuf,
    witness: Witness,
    rng: StdRng,
}

impl Chain {
    /// A chain with only the network's genesis block.
    pub(crate) fn new(network: bitcoin::Network, seed: u64) -> Self {
        let genesis = genesis_block(network).header;
        let script = Builder::new()
            .push_opcode(bitcoin::opcodes::OP_TRUE)
            .into_script();
        Self {
            headers: vec![genesis],
            heights: HashMap::from([(genesis.block_hash(), 0)]),
            mined: VecDeque::new(),
            coinbases: VecDeque::new(),
            coins: VecDeque::new(),
            waiting: VecDeque::new(),
            made: VecDeque::new(),
            first: 0,
            by_txid: HashMap::new(),
            by_wtxid: HashMap::new(),
            witness: Witness::from_slice(&[script.as_bytes()]),
            script: ScriptBuf::new_p2wsh(&script.wscript_hash()),
            rng: StdRng::seed_from_u64(seed),
        }
    }

    pub(crate) fn height(&self) -> usize {
        self.headers.len() - 1
    }

    pub(crate) fn tip(&self) -> &Header {
        &self.headers[self.height()]
    }

    /// The hashes of the latest blocks, newest first, then the genesis block.
    pub(crate) fn locator(&self) -> Vec<BlockHash> {
        let last = self.headers.iter().rev().take(10);
        last.chain(&self.headers[..1])
            .map(Header::block_hash)
            .collect()
    }

    /// At most [`MAX_HEADERS`] headers after the first known block of `locator`. Empty if none is
    /// known.
    pub(crate) fn headers_after(&self, locator: &[BlockHash]) -> &[Header] {
        let known = locator.iter().find_map(|hash| self.heights.get(hash));
        let after = known.map_or(&[][..], |height| &self.headers[height + 1..]);
        &after[..after.len().min(MAX_HEADERS)]
    }

    /// The last `count` headers, or fewer if there are not as many.
    pub(crate) fn last_headers(&self, count: usize) -> &[Header] {
        &self.headers[self.headers.len().saturating_sub(count)..]
    }

    /// The hash of a random block except the genesis block, if there is one.
    pub(crate) fn any_block(&self, rng: &mut StdRng) -> Option<BlockHash> {
        let height = rng.random_range(1..=self.height().max(1));
        self.headers.get(height).map(Header::block_hash)
    }

    /// The longest of our latest blocks.
    pub(crate) fn longest_block(&self) -> Option<BlockHash> {
        let longest = self.mined.iter().max_by_key(|mined| mined.bytes.len());
        longest.map(|mined| mined.hash)
    }

    /// Adds a header from the node.
    pub(crate) fn add_header(&mut self, header: Header) -> Result<(), ChainError> {
        if header.prev_blockhash != self.tip().block_hash() {
            let height = self.headers.len();
            return Err(ChainError::Unconnected { height });
        }
        self.heights.insert(header.block_hash(), self.headers.len());
        self.headers.push(header);
        Ok(())
    }

    /// Makes the blocks that create the first coins, to be sent to the node. `now` is in seconds
    /// since 1970.
    pub(crate) fn start(&mut self, now: u32) -> Result<Vec<Arc<Mined>>, ChainError> {
        let subsidy = subsidy(self.headers.len() + SPLIT);
        if subsidy < MIN_SUBSIDY {
            return Err(ChainError::PoorChain {
                height: self.height(),
            });
        }
        let mut blocks: Vec<_> = (1..MATURITY + SPLIT).map(|_| self.mine(now)).collect();
        // There are no other coins: all except the latest block's were just created.
        while let Some(coin) = self.coins.pop_front() {
            let outputs = (coin.value / COIN).clamp(1, OUTPUTS);
            let value = coin.value.saturating_sub(FEE_RATE * 50 * outputs) / outputs;
            let fee = coin.value - outputs * value;
            let outputs = (0..outputs).map(|_| self.output(value)).collect();
            let made = Made::new(self.spend(&[coin], outputs), fee);
            self.waiting.push_back(Arc::new(made));
        }
        blocks.push(self.mine(now));
        Ok(blocks)
    }

    /// Makes a block of the unconfirmed transactions. Its time is `now`, or later if the chain
    /// requires it.
    pub(crate) fn mine(&mut self, now: u32) -> Arc<Mined> {
        let height = self.headers.len();
        let mut weight = 0;
        let mut transactions = Vec::new();
        let mut fees = 0;
        while let Some(made) = self.waiting.front() {
            weight += made.transaction.weight().to_wu();
            if weight > MAX_BLOCK_WEIGHT {
                break;
            }
            fees += made.fee;
            transactions.extend(self.waiting.pop_front());
        }
        let value = subsidy(height) + fees;
        let block = self.block(height, value, &transactions, now);

        for made in transactions {
            let outputs = made.transaction.output.iter().enumerate();
            let spendable = outputs.filter(|(_, output)| output.value.to_sat() >= MIN_OUTPUT);
            self.coins.extend(spendable.map(|(index, output)| Coin {
                place: OutPoint::new(made.txid, index as u32),
                value: output.value.to_sat(),
            }));
        }
        let coinbase = Coin {
            place: OutPoint::new(block.txdata[0].compute_txid(), 0),
            value,
        };
        self.coinbases.push_back((height + MATURITY, coinbase));
        while self
            .coinbases
            .front()
            .is_some_and(|(from, _)| *from <= height + 1)
        {
            self.coins
                .extend(self.coinbases.pop_front().map(|(_, coin)| coin));
        }
        let hash = block.block_hash();
        self.heights.insert(hash, height);
        self.headers.push(block.header);

        let compact = HeaderAndShortIds::from_block(&block, self.rng.next_u64(), 2, &[]);
        let mined = Arc::new(Mined {
            bytes: serialize(&block),
            // Cannot fail: version 2 exists, and no transactions are prefilled.
            compact: compact.map_or_else(|_| Vec::new(), |compact| serialize(&compact)),
            hash,
            block,
        });
        self.mined.push_back(Arc::clone(&mined));
        if self.mined.len() > KEPT_BLOCKS {
            self.mined.pop_front();
        }
        mined
    }

    fn block(&mut self, height: usize, value: u64, made: &[Arc<Made>], now: u32) -> Block {
        let mut extra = [0; 8];
        self.rng.fill_bytes(&mut extra);
        let coinbase = Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::ZERO,
            input: vec![TxIn {
                previous_output: OutPoint::null(),
                // BIP34's height, and random bytes for a unique txid.
                script_sig: Builder::new()
                    .push_int(height as i64)
                    .push_slice(extra)
                    .into_script(),
                sequence: Sequence::MAX,
                witness: Witness::from_slice(&[[0; 32]]),
            }],
            output: vec![self.output(value)],
        };
        let mut transactions = vec![coinbase];
        transactions.extend(made.iter().map(|made| made.transaction.clone()));
        let tip = self.tip();
        let mut last: Vec<_> = self
            .last_headers(11)
            .iter()
            .map(|header| header.time)
            .collect();
        last.sort_unstable();
        let mut block = Block {
            header: Header {
                version: Version::from_consensus(0x2000_0000),
                prev_blockhash: tip.block_hash(),
                merkle_root: TxMerkleNode::all_zeros(),
                time: now.max(last[last.len() / 2] + 1),
                bits: Target::MAX_ATTAINABLE_REGTEST.to_compact_lossy(),
                nonce: 0,
            },
            txdata: transactions,
        };
        // BIP141's witness commitment, in the coinbase.
        if let Some(root) = block.witness_root() {
            let commitment = Block::compute_witness_commitment(&root, &[0; 32]);
            let mut push = vec![0xaa, 0x21, 0xa9, 0xed];
            push.extend_from_slice(commitment.as_byte_array());
            block.txdata[0].output.push(data_output(push));
        }
        if let Some(root) = block.compute_merkle_root() {
            block.header.merkle_root = root;
        }
        // On average, every second hash meets the target.
        while block.header.validate_pow(block.header.target()).is_err() {
            block.header.nonce += 1;
        }
        block
    }

    /// Makes a transaction of about `length` bytes. `None` if there are no coins.
    pub(crate) fn transact(&mut self, length: usize) -> Option<Arc<Made>> {
        // Length with two inputs and two outputs, without a data output.
        const USUAL: usize = 186;
        let length = length.min(MAX_TRANSACTION);
        let inputs = if length < USUAL { 1 } else { 2 };
        if self.coins.len() < inputs {
            return None;
        }
        let coins: Vec<_> = self.coins.drain(..inputs).collect();
        let value: u64 = coins.iter().map(|coin| coin.value).sum();
        let fee = FEE_RATE * length.max(USUAL) as u64;
        // As many coins are created as are spent.
        let each = value.saturating_sub(fee) / inputs as u64;
        if each < MIN_OUTPUT {
            // Consumed by fees. The next ones may be larger.
            return self.transact(length);
        }
        let mut outputs: Vec<_> = (0..inputs).map(|_| self.output(each)).collect();
        let data = length.saturating_sub(USUAL + 12);
        if data > 0 {
            let mut bytes = vec![0; data];
            self.rng.fill_bytes(&mut bytes);
            outputs.push(data_output(bytes));
        }
        let fee = value - each * inputs as u64;
        let made = Arc::new(Made::new(self.spend(&coins, outputs), fee));
        self.waiting.push_back(Arc::clone(&made));
        self.made.push_back(Arc::clone(&made));
        self.by_txid.insert(made.txid, Arc::clone(&made));
        self.by_wtxid.insert(made.wtxid, Arc::clone(&made));
        if self.made.len() > KEPT_TRANSACTIONS
            && let Some(old) = self.made.pop_front()
        {
            self.first += 1;
            self.by_txid.remove(&old.txid);
            self.by_wtxid.remove(&old.wtxid);
        }
        Some(made)
    }

    /// Like [`Chain::transact`], with a random length around `mean`.
    pub(crate) fn transact_around(&mut self, mean: f64) -> Option<Arc<Made>> {
        let length = exponential(mean, &mut self.rng);
        self.transact(length as usize)
    }

    /// Whether a block is needed because coins run out.
    pub(crate) fn needs_block(&self) -> bool {
        self.coins.len() < MIN_COINS && !self.waiting.is_empty()
    }

    /// Total number of transactions made.
    pub(crate) fn made(&self) -> u64 {
        self.first + self.made.len() as u64
    }

    /// At most `max` transactions from number `from`, and the number of the next one. Skips those
    /// that are no longer kept.
    pub(crate) fn made_from(&self, from: u64, max: usize) -> (Vec<Arc<Made>>, u64) {
        let skip = from.saturating_sub(self.first) as usize;
        let found: Vec<_> = self.made.iter().skip(skip).take(max).cloned().collect();
        let next = from.max(self.first) + found.len() as u64;
        (found, next)
    }

    /// A random transaction of those kept.
    pub(crate) fn any_made(&self, rng: &mut StdRng) -> Option<&Arc<Made>> {
        let place = rng.random_range(0..self.made.len().max(1));
        self.made.get(place)
    }

    pub(crate) fn by_txid(&self, txid: &Txid) -> Option<&Arc<Made>> {
        self.by_txid.get(txid)
    }

    pub(crate) fn by_wtxid(&self, wtxid: &Wtxid) -> Option<&Arc<Made>> {
        self.by_wtxid.get(wtxid)
    }

    /// One of our blocks, if still kept.
    pub(crate) fn mined(&self, hash: &BlockHash) -> Option<&Arc<Mined>> {
        self.mined.iter().find(|mined| mined.hash == *hash)
    }

    /// Our latest block.
    pub(crate) fn last_mined(&self) -> Option<&Arc<Mined>> {
        self.mined.back()
    }

    fn output(&self, value: u64) -> TxOut {
        TxOut {
            value: Amount::from_sat(value),
            script_pubkey: self.script.clone(),
        }
    }

    fn spend(&self, coins: &[Coin], output: Vec<TxOut>) -> Transaction {
        let input = coins.iter().map(|coin| TxIn {
            previous_output: coin.place,
            script_sig: ScriptBuf::new(),
            sequence: Sequence::MAX,
            witness: self.witness.clone(),
        });
        Transaction {
            version: transaction::Version::TWO,
            lock_time: LockTime::ZERO,
            input: input.collect(),
            output,
        }
    }
}

impl Made {
    fn new(transaction: Transaction, fee: u64) -> Self {
        Self {
            fee,
            txid: transaction.compute_txid(),
            wtxid: transaction.compute_wtxid(),
            bytes: serialize(&transaction),
            transaction,
            fetched: AtomicBool::new(false),
            relayed: AtomicBool::new(false),
        }
    }
}

/// An output that holds only data.
fn data_output(bytes: Vec<u8>) -> TxOut {
    // A push has at most 4 GiB.
    let push = PushBytesBuf::try_from(bytes).unwrap_or_default();
    TxOut {
        value: Amount::ZERO,
        script_pubkey: Builder::new()
            .push_opcode(OP_RETURN)
            .push_slice(push)
            .into_script(),
    }
}

/// The block subsidy in satoshis, on regtest.
fn subsidy(height: usize) -> u64 {
    let halvings = (height / HALVING).min(63);
    5_000_000_000 >> halvings
}

/// Why no blocks can be built on the node's chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainError {
    /// The node's header for this height does not follow the one before it.
    Unconnected {
        /// The height.
        height: usize,
    },
    /// At this height the subsidy is too low to make coins from.
    PoorChain {
        /// The height of the node's chain.
        height: usize,
    },
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unconnected { height } => write!(
                f,
                "the node's header for height {height} does not follow the one before it"
            ),
            Self::PoorChain { height } => write!(
                f,
                "the node's chain has {height} blocks, where the block subsidy is too low to make \
                 coins: start the node with an empty data directory",
            ),
        }
    }
}

impl std::error::Error for ChainError {}

#[cfg(test)]
mod tests {
    use super::*;
    use bitcoin::consensus::deserialize;
    use std::collections::HashSet;

    const NOW: u32 = 1_790_000_000;

    fn started() -> (Chain, Vec<Arc<Mined>>) {
        let mut chain = Chain::new(bitcoin::Network::Regtest, 1);
        let blocks = chain.start(NOW).unwrap();
        (chain, blocks)
    }

    /// Checks what a node checks of blocks after `spendable` coins. Returns the coins that remain.
    fn check(
        blocks: &[Arc<Mined>],
        mut previous: Header,
        mut height: usize,
        spendable: &mut HashMap<OutPoint, (u64, usize)>,
    ) {
        for mined in blocks {
            height += 1;
            let block: Block = deserialize(&mined.bytes).unwrap();
            assert_eq!(block.header.prev_blockhash, previous.block_hash());
            assert!(block.check_merkle_root() && block.check_witness_commitment());
            assert!(
                block
                    .header
                    .validate_pow(Target::MAX_ATTAINABLE_REGTEST)
                    .is_ok()
            );
            // The library does not decode heights that are encoded as an opcode.
            assert!(height <= 16 || block.bip34_block_height() == Ok(height as u64));
            assert!(block.weight().to_wu() <= 4_000_000);
            let mut fees = 0;
            for (index, transaction) in block.txdata.iter().enumerate() {
                let out: u64 = transaction
                    .output
                    .iter()
                    .map(|output| output.value.to_sat())
                    .sum();
                if index > 0 {
                    let spent = transaction.input.iter().map(|input| {
                        let (value, from) = spendable.remove(&input.previous_output).unwrap();
                        assert!(from <= height, "not mature");
                        value
                    });
                    fees += spent.sum::<u64>() - out;
                }
                let from = if index == 0 { height + 100 } else { height };
                for (index, output) in transaction.output.iter().enumerate() {
                    let place = OutPoint::new(transaction.compute_txid(), index as u32);
                    spendable.insert(place, (output.value.to_sat(), from));
                }
            }
            let paid: u64 = block.txdata[0]
                .output
                .iter()
                .map(|output| output.value.to_sat())
                .sum();
            assert_eq!(paid, subsidy(height) + fees);
            previous = block.header;
        }
    }

    #[test]
    fn blocks_are_valid_and_make_coins() {
        let (mut chain, blocks) = started();
        let genesis = genesis_block(bitcoin::Network::Regtest).header;
        let mut spendable = HashMap::new();
        check(&blocks, genesis, 0, &mut spendable);
        // And the next coinbase.
        assert_eq!(chain.coins.len(), SPLIT * OUTPUTS as usize + 1);
        assert_eq!(chain.height(), blocks.len());

        let before = *chain.tip();
        for length in [1, 185, 186, 198, 199, 743, 20_000, 1_000_000] {
            let made = chain.transact(length).unwrap();
            let expected = length.clamp(99, MAX_TRANSACTION);
            let error = made.bytes.len().abs_diff(expected);
            assert!(error <= 87, "{length}: {}", made.bytes.len());
            assert!(length < 199 || error <= 8, "{length}: {}", made.bytes.len());
            assert_eq!(chain.by_wtxid(&made.wtxid).unwrap().txid, made.txid);
            assert!(made.fee > 0);
        }
        assert_eq!(chain.made(), 8);
        let mined = chain.mine(NOW);
        assert_eq!(mined.block.txdata.len(), 1 + 8);
        check(&[mined], before, blocks.len(), &mut spendable);
    }

    #[test]
    fn the_same_seed_makes_the_same_blocks() {
        let blocks = |seed| {
            let mut chain = Chain::new(bitcoin::Network::Regtest, seed);
            let blocks = chain.start(NOW).unwrap();
            let made = chain.transact_around(700.0).unwrap();
            (blocks.last().unwrap().hash, made.txid)
        };
        assert_eq!(blocks(1), blocks(1));
        assert_ne!(blocks(1), blocks(2));
    }

    #[test]
    fn coins_run_out_and_come_back_with_a_block() {
        let (mut chain, _) = started();
        let mut seen = HashSet::new();
        while let Some(made) = chain.transact(200) {
            for input in &made.transaction.input {
                assert!(seen.insert(input.previous_output), "a coin is spent once");
            }
        }
        assert!(chain.needs_block());
        // More transactions than fit in one block.
        while !chain.waiting.is_empty() {
            let weight = chain.mine(NOW).block.weight().to_wu();
            assert!(weight <= 4_000_000, "{weight}");
        }
        assert!(!chain.needs_block() && chain.transact(200).is_some());
        assert!(chain.made.len() <= KEPT_TRANSACTIONS);
    }

    #[test]
    fn a_long_chain_is_refused() {
        let mut chain = Chain::new(bitcoin::Network::Regtest, 1);
        let mut height = 0;
        while chain.start(NOW).is_ok() {
            height = chain.height();
            // A new load, which knows of no coins.
            chain.coins.clear();
            chain.coinbases.clear();
        }
        let error = ChainError::PoorChain { height };
        assert_eq!(chain.start(NOW).unwrap_err(), error);
        assert!(subsidy(height) < 4 * MIN_SUBSIDY);
    }

    #[test]
    fn transactions_are_numbered() {
        let (mut chain, _) = started();
        let all: Vec<_> = (0..5).map(|_| chain.transact(300).unwrap().wtxid).collect();
        let ids = |(made, next): (Vec<Arc<Made>>, u64)| {
            (made.iter().map(|made| made.wtxid).collect::<Vec<_>>(), next)
        };
        assert_eq!(ids(chain.made_from(0, 3)), (all[..3].to_vec(), 3));
        assert_eq!(ids(chain.made_from(3, 9)), (all[3..].to_vec(), 5));
        assert_eq!(ids(chain.made_from(5, 9)), (vec![], 5));
    }
}
