//! Two recordings beside each other.

use super::rows::{Compared, Figures, Report, SlotRow, TypeRow};
use std::collections::BTreeMap;

/// The figures of `now` beside those of `before`: of all peers, of each kind, and of each type of
/// message, in the order of `now`.
pub(super) fn compare(now: &Report, before: &Report) -> Vec<Compared> {
    let mut rows = Vec::new();
    let figures = |what: &str, now: Option<Figures>, before: Option<Figures>| {
        let error = |of: Option<Figures>| of.and_then(|figures| figures.error);
        let differs = match (now, before, error(now), error(before)) {
            (Some(now), Some(before), Some(a), Some(b)) => {
                Some((now.mean - before.mean).abs() > 2.0 * a.hypot(b))
            }
            _ => None,
        };
        Compared {
            what: what.to_owned(),
            unit: "us/s",
            before: before.map(|figures| figures.mean),
            now: now.map(|figures| figures.mean),
            differs,
        }
    };
    let plain = |what: String, unit, now: Option<f64>, before: Option<f64>| Compared {
        what,
        unit,
        before,
        now,
        differs: None,
    };
    rows.push(figures("all peers together", now.together, before.together));
    let thread = |report: &Report| report.thread.map(|thread| thread.us_per_second);
    rows.push(plain(
        "message thread, by its own clock".into(),
        "us/s",
        thread(now),
        thread(before),
    ));
    for slot in named(&now.slots, &before.slots, |row| row.slot.to_owned()) {
        let cpu = |row: Option<&SlotRow>| row.and_then(|row| row.cpu);
        rows.push(figures(
            &format!("{}: mean", slot.0),
            cpu(slot.1),
            cpu(slot.2),
        ));
        let count = |row: Option<&SlotRow>| row.map(|row| row.connections as f64);
        rows.push(plain(
            format!("{}: connections", slot.0),
            "",
            count(slot.1),
            count(slot.2),
        ));
    }
    let name = |row: &TypeRow| {
        let preposition = if row.direction == "sent" {
            "to"
        } else {
            "from"
        };
        format!("{} {preposition} {} peers", row.message_type, row.relay)
    };
    for (what, one, other) in named(&now.types, &before.types, name) {
        let each = |row: Option<&TypeRow>| row.and_then(|row| row.cpu.map(|cpu| cpu.mean));
        if one.is_some_and(|row| row.cpu.is_some()) || other.is_some_and(|row| row.cpu.is_some()) {
            rows.push(plain(format!("{what}: each"), "us", each(one), each(other)));
        }
        let counted = now.counted && before.counted;
        let rate = |row: Option<&TypeRow>, report: &Report| {
            let amount = match counted {
                true => row?.count? as f64,
                false => row?.bytes as f64,
            };
            Some(amount / report.observed_seconds.max(f64::MIN_POSITIVE))
        };
        let unit = match counted {
            true => "msgs/s",
            false => "B/s",
        };
        rows.push(plain(what, unit, rate(one, now), rate(other, before)));
    }
    let took = |report: &Report| {
        let blocks = report.blocks.as_ref()?;
        Some(blocks.took_seconds.median)
    };
    rows.push(plain(
        "blocks: median from the first announcement until connected".into(),
        "s",
        took(now),
        took(before),
    ));
    rows.retain(|row| row.now.is_some() || row.before.is_some());
    rows
}

/// The rows of both lists by name: those of the first list in its order, then the others.
fn named<'r, R>(
    now: &'r [R],
    before: &'r [R],
    name: impl Fn(&R) -> String,
) -> Vec<(String, Option<&'r R>, Option<&'r R>)> {
    let mut others: BTreeMap<String, &R> = before.iter().map(|row| (name(row), row)).collect();
    let mut rows = Vec::new();
    for row in now {
        let name = name(row);
        let other = others.remove(&name);
        rows.push((name, Some(row), other));
    }
    rows.extend(
        others
            .into_iter()
            .map(|(name, row)| (name, None, Some(row))),
    );
    rows
}
