//! Every end receives a prefix of what was sent, and all of it if both ends closed in order.

use crate::load::{Load, Mix, Route};
use crate::{LIMIT, alone, any_port, has_files, is_full, say, seed, settings};
use packetlane::bip324::shape::{Shape, Shaped};
use packetlane_gateway::{Event, Gateway, Inbound, Peer, Settings};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Maximum ends at a time.
const AT_ONCE: usize = 300;

/// Counts of events by name.
type Told = Arc<Mutex<BTreeMap<String, u64>>>;

fn start(settings: Settings, told: &Told) -> Gateway {
    let told = Arc::clone(told);
    let tell = move |_: &Peer, event: &Event| {
        let name = match event {
            Event::Closed(close) => close.name().into(),
            Event::Refused(refusal) => format!("refused {}", refusal.name()),
            Event::Connected => "connected".into(),
            _ => "fell back".into(),
        };
        *told.lock().unwrap().entry(name).or_default() += 1;
    };
    Gateway::start(settings, tell).unwrap()
}

#[test]
fn every_byte_is_right() {
    check(if is_full() { 10_000 } else { 3000 }, 30, &[Shape::NONE]);
}

/// With budgets that are rarely spent, so that there are many decoys: sessions rekey in the middle.
#[test]
fn every_byte_of_shaped_connections_is_right() {
    const BUDGET: u64 = 20_000_000_000;
    let ms = Duration::from_millis;
    let shapes = [
        Shape::pad(BUDGET, ms(0)),
        Shape::cover(BUDGET, ms(50)),
        Shape::constant(BUDGET, ms(10)),
        Shape::cover(BUDGET, ms(0)),
        Shape {
            delay_urgent: true,
            ..Shape::constant(BUDGET / 100, ms(200))
        },
        Shape::NONE,
    ];
    check(if is_full() { 10_000 } else { 1500 }, 300, &shapes);
}

/// Connections in both directions and over both transports end anywhere, while settings change, the
/// node stops and returns, and another gateway takes over.
fn check(connections: u64, messages: usize, shapes: &[Shape]) {
    if !has_files() {
        return;
    }
    let _alone = alone();
    let mix = Mix {
        seed: seed(),
        is_rough: true,
        messages,
        both_ways: true,
    };
    say(format_args!("seed {}", mix.seed));
    let mut load = Load::new(mix).unwrap();
    let told = Told::default();
    let mut settings = settings();
    settings.socks = Some(any_port());
    settings.inbound = vec![Inbound::new(any_port(), load.node())];
    let mut gateway = start(settings.clone(), &told);
    // With the ports that the system chose.
    let settings = gateway.settings().clone();
    let (inbound, socks) = (settings.inbound[0].listen, settings.socks.unwrap());

    let mut before = None;
    let mut dead_until = None;
    let started = Instant::now();
    let mut changed = 0;
    while load.begun() < connections || !load.is_over() {
        while load.begun() < connections && load.open() < AT_ONCE {
            let to = match load.script_of_next().route {
                Route::Inbound => inbound,
                Route::Outbound => socks,
            };
            load.begin(to).unwrap();
        }
        load.turn().unwrap();
        let begun = load.begun();
        let part = |of_ten: u64| begun > connections * of_ten / 10;
        if load.begun() / 50 > changed {
            changed = load.begun() / 50;
            let mut other = gateway.settings().clone();
            other.limits.queued = [1 << 20, 3000, 1][changed as usize % 3];
            other.limits.batch = [1 << 16, 1][changed as usize % 2];
            other.shape = shapes[changed as usize % shapes.len()];
            gateway.change(other).unwrap();
        }
        if part(3) && dead_until.is_none() {
            load.kill_node();
            dead_until = Some((Instant::now() + Duration::from_millis(300), true));
        }
        if let Some((until, is_dead @ true)) = &mut dead_until
            && Instant::now() > *until
        {
            *is_dead = load.revive_node().is_err();
        }
        if part(6) && before.is_none() {
            let other = start(settings.clone(), &told);
            load.may_miss = true;
            gateway.drain();
            before = Some(std::mem::replace(&mut gateway, other));
        }
    }
    let totals = load.finish();
    let mut shaped = Shaped::default();
    let turns = [
        gateway.turns(),
        before.as_ref().map_or(Vec::new(), Gateway::turns),
    ]
    .concat();
    turns.iter().for_each(|turns| shaped.add(&turns.shaped));
    say(format_args!(
        "{totals:?} in {:.1} s; {:?}; {shaped:?}",
        started.elapsed().as_secs_f64(),
        told.lock().unwrap()
    ));
    assert_eq!(shaped.decoys > 0, shapes != [Shape::NONE]);
    assert!(totals.whole > connections / 5, "few are checked to the end");
    assert!(totals.untouched <= 10, "lost between two gateways");
    let before = before.unwrap();
    let until = Instant::now() + LIMIT;
    while !(before.has_ended() && gateway.peers().is_empty()) {
        assert!(Instant::now() < until, "{:?}", gateway.peers());
        std::thread::sleep(Duration::from_millis(10));
    }
    let kinds = told.lock().unwrap();
    for kind in ["peer", "node", "protocol", "node-protocol", "fell back"] {
        assert!(kinds.contains_key(kind), "none {kind}: {kinds:?}");
    }
    drop((kinds, before));
    gateway.stop().unwrap();
}
