//! A load on Bitcoin Core, if the environment variable `BITCOIND_EXE` names it. Compares with the
//! node's own view of its peers, mempool and chain.

#[path = "../../peers/tests/core/mod.rs"]
mod core;
#[path = "../../peers/tests/machine/not_run.rs"]
mod machine;

use self::core::load::options;
use self::core::{Build, Core};
use packetlane_loadgen::{Kind, run};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const PEERS: usize = 20;
const KINDS: &str = "full-relay,block-relay-only,silent,slow,churning";

#[test]
fn bitcoin_core_validates_and_relays() {
    let Some(node) = Core::start("a load on Bitcoin Core", Build::Plain) else {
        return;
    };
    const SECONDS: u64 = 40;
    let options = options(&node, PEERS, KINDS, Duration::from_secs(SECONDS));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut most_in_mempool = 0;
    let mut best = Vec::new();
    let mut second = 0;
    let loaded = run(&options, std::future::pending(), |_| {
        second += 1;
        let mempool = node.call("getmempoolinfo")["size"].as_u64().unwrap();
        most_in_mempool = most_in_mempool.max(mempool);
        let peers = node.call("getpeerinfo").as_array().unwrap().clone();
        if peers.len() > best.len() {
            best = peers;
        }
    });
    let outcome = runtime.block_on(loaded).unwrap();
    let totals = &outcome.totals;
    assert!(second as u64 >= SECONDS - 2, "{second}");
    assert_eq!(totals.reached, PEERS, "{totals}");

    // All are connected, except those about to reconnect.
    let mut seen = BTreeMap::<(String, String), Vec<&Value>>::new();
    for peer in &best {
        let (_, kind) = peer["subver"].as_str().unwrap().split_once('(').unwrap();
        let kind = kind.trim_end_matches(")/").to_owned();
        let transport = peer["transport_protocol_type"].as_str().unwrap().to_owned();
        seen.entry((kind, transport)).or_default().push(peer);
    }
    for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Stalling) {
        for transport in ["v1", "v2"] {
            let peers = &seen[&(kind.name().to_owned(), transport.to_owned())];
            let least = if kind == Kind::Churning { 1 } else { 2 };
            assert!(
                (least..=2).contains(&peers.len()),
                "{kind} {transport}: {}",
                peers.len()
            );
            for peer in peers {
                let relays = peer["relaytxes"].as_bool().unwrap();
                assert_eq!(relays, kind != Kind::BlockRelayOnly, "{kind}: {peer}");
            }
        }
    }
    let of = |kind: Kind| totals.kinds.get(&kind).unwrap();
    for kind in [Kind::FullRelay, Kind::BlockRelayOnly, Kind::Silent] {
        assert_eq!((of(kind).opened, of(kind).failed), (4, 0), "{totals}");
    }
    assert!(of(Kind::Churning).opened > 4, "{totals}");

    // Transactions were requested, validated and relayed to other peers. Blocks are those of the
    // load.
    assert!(most_in_mempool > 100, "{most_in_mempool}");
    assert!(totals.fetched * 2 > totals.made, "{totals}");
    // The node announces a transaction to random peers first, and not to those that have it by
    // then.
    assert!(totals.relayed > 20 && totals.mined > 0, "{totals}");
    let (height, agrees) = outcome.tip.unwrap();
    assert!(agrees, "{totals}");
    assert_eq!(node.call("getblockcount"), height);

    // A second load extends the chain of the first.
    let mut again = options.clone();
    again.duration = Duration::from_secs(3);
    let outcome = runtime
        .block_on(run(&again, std::future::pending(), |_| {}))
        .unwrap();
    let (end, agrees) = outcome.tip.unwrap();
    assert!(end > height + 100 && agrees);
}

/// The node requests each new block from the stalling peer and waits for it, until that peer leaves.
#[test]
fn bitcoin_core_waits_for_a_stalled_block() {
    let Some(node) = Core::start("a stalled block on Bitcoin Core", Build::Plain) else {
        return;
    };
    let mut options = options(
        &node,
        3,
        "full-relay,block-relay-only",
        Duration::from_secs(40),
    );
    options.stall = true;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    // Seconds in which the stalling peer, and any other, had blocks in flight.
    let (mut stalled, mut others) = (0, 0);
    let loaded = run(&options, std::future::pending(), |_| {
        for peer in node.call("getpeerinfo").as_array().unwrap() {
            let waits = !peer["inflight"].as_array().unwrap().is_empty();
            match peer["subver"].as_str().unwrap().contains("stalling") {
                true => stalled += u32::from(waits),
                false => others += u32::from(waits),
            }
        }
    });
    let outcome = runtime.block_on(loaded).unwrap();
    let totals = &outcome.totals;
    println!("{stalled} s stalled, {others} s of others\n{totals}");
    assert_eq!((totals.reached, others), (3, 0), "{totals}");
    assert!(stalled >= 30 && totals.mined > 1, "{stalled} s\n{totals}");
    let (height, agrees) = outcome.tip.unwrap();
    assert!(agrees, "{totals}");
    assert_eq!(node.call("getblockcount"), height);
}
