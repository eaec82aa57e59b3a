//! Recordings that are kept for long: limits on their size and age, restarts of the recorder, and
//! reports on a period.

mod synthetic;

use packetlane_p2p::payload::BlockHash;
use packetlane_peers::file::{Limits, WriteError, Writer, read};
use packetlane_peers::report::Report;
use packetlane_peers::show::{html, text};
use packetlane_peers::tally::{MAX_DAYS, MAX_TYPES, OTHER_TYPE, Slot, Tally};
use packetlane_peers::{
    BlockStep, Calls, Connection, ConnectionType, Cost, Event, Period, Record, Time,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};
use synthetic::{Folder, START, Synthetic};

const DAY: Time = 86_400_000_000;

fn at(time: Time, event: Event) -> Record {
    Record { time, event }
}

fn connected(peer: i64, since: Option<Time>) -> Event {
    Event::Connected {
        peer,
        connection: Connection {
            address: format!("192.0.2.{peer}:8333"),
            kind: ConnectionType::Inbound,
            network: None,
            transport: None,
            relay: Some(true),
            user_agent: Some(format!("/peer:{peer}/")),
            since,
        },
    }
}

/// A window of a second with a message and calls of each peer.
fn window(start: Time, peers: &[i64]) -> Vec<Record> {
    let end = start + 1_000_000;
    let calls = Calls {
        count: 10,
        cost: Cost {
            wall_ns: 3_000_000,
            cpu_ns: 2_000_000,
        },
    };
    let mut records = Vec::new();
    for &peer in peers {
        let received = Event::Received {
            peer,
            message_type: "inv".into(),
            bytes: 100,
            cost: Some(calls.cost),
            added: None,
        };
        records.push(at(start + 500_000, received));
        let event = Event::Calls {
            peer,
            receiving: calls,
            sending: Calls::default(),
        };
        records.push(at(end, event));
    }
    let thread = Event::Thread {
        name: "b-msghand".into(),
        cpu_ns: 9_000_000,
    };
    records.push(at(end, thread));
    let event = Event::Window {
        start,
        lost: 0,
        probes_ns: 0,
        stolen_ns: 0,
    };
    records.push(at(end, event));
    records
}

fn add(writer: &mut Writer, records: &[Record]) {
    for record in records {
        writer.add(record).expect("written");
    }
}

fn read_all(path: &Path) -> Vec<Record> {
    let records: Result<Vec<_>, _> = read(path).expect("a recording").collect();
    records.unwrap_or_else(|error| panic!("{error}"))
}

fn tally_of(path: &Path, period: Period) -> Tally {
    let mut tally = Tally::new();
    let records = read(path).expect("a recording").within(period);
    records.tally(&mut tally, |error| panic!("{error}"));
    tally
}

/// Names of the files in a folder, sorted.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).expect("a folder").flatten();
    let mut names: Vec<_> = entries
        .map(|entry| entry.file_name().into_string().expect("UTF-8"))
        .collect();
    names.sort();
    names
}

fn size(path: &Path) -> u64 {
    let entries = fs::read_dir(path).expect("a folder").flatten();
    entries
        .map(|entry| entry.metadata().expect("a file").len())
        .sum()
}

/// A folder with a link to a file outside, and the writer's error on it, which must be one line and
/// change nothing.
fn refusal(path: &Path) -> String {
    let before = names(path);
    let error = Writer::append(path).expect_err("refused");
    assert!(matches!(error, WriteError::Refused { .. }), "{error:?}");
    let error = error.to_string();
    assert!(!error.contains('\n'), "{error}");
    let begin = format!("cannot continue the recording {}: ", path.display());
    assert!(error.starts_with(&begin), "{error}");
    assert_eq!(names(path), before, "{error}");
    error
}

#[test]
fn each_part_begins_with_the_connected_peers() {
    let folder = Folder::new("repeated");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    add(&mut writer, &[at(START, connected(1, Some(START - 5)))]);
    add(&mut writer, &[at(START, connected(2, None))]);
    add(&mut writer, &[at(START + 1, connected(3, None))]);
    add(&mut writer, &window(START, &[1, 2, 3]));
    add(
        &mut writer,
        &[at(START + DAY, Event::Disconnected { peer: 2 })],
    );
    writer.flush().expect("written");
    writer.flush().expect("nothing to write");
    add(&mut writer, &window(START + DAY, &[1, 3]));
    let all = 3 + 8 + 1 + 6;
    assert_eq!(writer.finish().expect("finished"), all);
    assert_eq!(names(&path), ["000001.parquet", "000002.parquet"]);
    let second = read_all(&path.join("000002.parquet"));
    let time = START + DAY + 500_000;
    assert_eq!(second[0], at(time, connected(1, Some(START - 5))));
    assert_eq!(second[1], at(time, connected(3, None)));
    assert_eq!(second[2..], window(START + DAY, &[1, 3]));
    // No connection more, with or without the first part.
    let tally = tally_of(&path, Period::ALL);
    assert_eq!(tally.slots()[&Slot::InboundFullRelay].connections, 3);
    fs::remove_file(path.join("000001.parquet")).expect("removed");
    let tally = tally_of(&path, Period::ALL);
    let slot = &tally.slots()[&Slot::InboundFullRelay];
    assert_eq!((slot.connections, slot.short), (2, 0));
    let agents: Vec<_> = tally.agents().into_keys().collect();
    assert_eq!(agents, ["/peer:1/", "/peer:3/"]);
}

/// Whatever is recorded, and whatever the earlier parts look like.
#[test]
fn a_recording_stays_within_its_size() {
    let folder = Folder::new("size");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    let mut records = Vec::new();
    let run = Synthetic {
        seconds: 60,
        ..Synthetic::of_60()
    };
    run.run(|record| records.push(record));
    for record in &records {
        writer.add(record).expect("written");
        if matches!(record.event, Event::Window { .. }) {
            writer.flush().expect("written");
        }
    }
    writer.finish().expect("finished");
    assert!(size(&path) > 400_000, "{}", size(&path));
    let whole = size(&path);
    for max_bytes in [whole / 2, 120_000] {
        let limits = Limits {
            max_bytes: Some(max_bytes),
            keep: None,
        };
        let writer = Writer::append(&path).expect("a recording");
        let mut writer = writer.with_limits(limits).expect("deleted");
        assert!(size(&path) <= max_bytes, "at once");
        for record in &records {
            writer.add(record).expect("written");
            if matches!(record.event, Event::Window { .. }) {
                writer.flush().expect("written");
                assert!(size(&path) <= max_bytes);
            }
        }
        // Messages with different types take most space.
        for number in 0..8000 {
            let event = Event::Sent {
                peer: number,
                message_type: format!("{number:x<200}"),
                bytes: number as u64 * 0x1234_5678_9abc,
            };
            let time = records.last().expect("a record").time;
            writer.add(&at(time, event)).expect("written");
            if number % 100 == 0 {
                assert!(size(&path) <= max_bytes);
            }
        }
        writer.finish().expect("finished");
        assert!(size(&path) <= max_bytes);
        // It is used, too, and what is left can be read.
        assert!(size(&path) > max_bytes * 3 / 4, "{}", size(&path));
        let left = read_all(&path);
        assert!(left.len() > 100, "{}", left.len());
        // All peers are still known.
        let kinds: Vec<_> = tally_of(&path, Period::ALL).slots().into_keys().collect();
        assert!(kinds.len() >= 4, "{kinds:?}");
    }
}

#[test]
fn a_part_that_is_too_large_alone_is_refused() {
    let folder = Folder::new("tiny");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    add(&mut writer, &window(START, &[1]));
    writer.flush().expect("written");
    let limits = Limits {
        max_bytes: Some(100),
        keep: None,
    };
    let mut writer = writer.with_limits(limits).expect("nothing to delete");
    let error = writer
        .add(&at(START, connected(1, None)))
        .expect_err("full");
    assert!(
        error
            .to_string()
            .ends_with("larger than the recording may be"),
        "{error}"
    );
    assert_eq!(names(&path), ["000001.parquet"], "nothing was deleted");
}

#[test]
fn old_parts_are_deleted_but_not_the_newest() {
    let folder = Folder::new("age");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    for turn in 0..5 {
        add(&mut writer, &window(START + turn * DAY, &[1]));
        writer.flush().expect("written");
    }
    writer.finish().expect("finished");
    let written = |name: &str, days: u64| {
        let file = File::options().append(true).open(path.join(name));
        let time = SystemTime::now() - Duration::from_secs(days * 86_400);
        file.expect("a part").set_modified(time).expect("set");
    };
    for (name, days) in [
        ("000001.parquet", 31),
        ("000002.parquet", 30),
        ("000003.parquet", 29),
        ("000004.parquet", 40),
        ("000005.parquet", 40),
    ] {
        written(name, days);
    }
    let month = Limits {
        max_bytes: None,
        keep: Some(Duration::from_secs(30 * 86_400)),
    };
    let writer = Writer::append(&path).expect("a recording");
    let writer = writer.with_limits(month).expect("deleted");
    let left = ["000003.parquet", "000004.parquet", "000005.parquet"];
    assert_eq!(names(&path), left);
    drop(writer);
    // One from the future is as old as the next.
    let future = File::options().append(true).open(path.join(left[0]));
    let later = SystemTime::now() + Duration::from_secs(86_400);
    future.expect("a part").set_modified(later).expect("set");
    let writer = Writer::append(&path).expect("a recording");
    let mut writer = writer.with_limits(month).expect("deleted");
    assert_eq!(names(&path), ["000005.parquet"]);
    // Nothing was recorded: no new part.
    writer.write_if_due().expect("nothing");
    assert_eq!(writer.finish().expect("finished"), 0);
    assert_eq!(names(&path), ["000005.parquet"]);
    let writer = Writer::append(&path).expect("a recording");
    let mut writer = writer.with_limits(month).expect("deleted");
    add(&mut writer, &window(START + 9 * DAY, &[1]));
    writer.finish().expect("finished");
    assert_eq!(names(&path), ["000006.parquet"]);
}

/// A clock that is set back makes nobody costlier, whenever a peer connected.
#[test]
fn a_clock_that_is_set_back() {
    const HOUR: Time = 3_600_000_000;
    let mut tally = Tally::new();
    let mut add = |records: Vec<Record>| records.iter().for_each(|record| tally.add(record));
    add(vec![at(START - HOUR, connected(1, Some(START - HOUR)))]);
    add(window(START, &[1]));
    add(vec![at(
        START + 1_500_000,
        connected(2, Some(START + 1_500_000)),
    )]);
    add(window(START + 2_000_000, &[1, 2]));
    let left = Event::Disconnected { peer: 1 };
    add(vec![at(START + 3_500_000, left)]);
    // In a window, which is dropped with all that it has.
    let mut last = window(START + 4_000_000, &[2]);
    last.iter_mut().for_each(|record| record.time -= HOUR);
    add(last);
    // One connects and leaves in the first window after that.
    add(vec![
        at(
            START - HOUR + 200_000,
            connected(3, Some(START - HOUR + 200_000)),
        ),
        at(START - HOUR + 700_000, Event::Disconnected { peer: 3 }),
    ]);
    for second in 0..10 {
        add(window(
            START - HOUR + second * 1_000_000,
            if second == 0 { &[2, 3] } else { &[2] },
        ));
    }
    assert_eq!(tally.windows(), 12);
    assert_eq!(
        tally.times().map(|(_, last)| last),
        Some(START - HOUR + 10_000_000)
    );
    let third = tally.left().find(|(number, _)| *number == 3).expect("left");
    assert_eq!(third.1.seen.observed, 500_000);
    let peers: Vec<_> = tally.peers().map(|(number, _)| number).collect();
    assert_eq!(peers, [2]);
    let (_, peer) = tally.peers().next().expect("connected");
    assert_eq!(peer.seen.observed, 11_000_000);
    assert_eq!(peer.cpu.per_second(), 2e6);
    let (_, left) = tally.left().find(|(number, _)| *number == 1).expect("left");
    assert_eq!(left.cpu.per_second(), 2e6);
}

/// Windows of a source that does not measure CPU time make all CPU times too low: a report says so.
#[test]
fn windows_without_cpu_times() {
    let mut tally = Tally::new();
    for second in 0..4 {
        for record in window(START + second * 1_000_000, &[1]) {
            if second % 2 == 0 || !matches!(record.event, Event::Calls { .. }) {
                tally.add(&record);
            }
        }
    }
    assert_eq!(tally.untimed(), 2);
    let said = text::render(&Report::of(&tally));
    assert!(
        said.contains("CPU times are missing in 2 of 4 windows"),
        "{said}"
    );
    assert!(
        said.contains("Recorded from 2026-09-21 14:13 to 2026-09-21 14:13 UTC."),
        "{said}"
    );
}

/// Peers can invent types of messages, but not hide the known ones.
#[test]
fn invented_types_do_not_hide_others() {
    let mut tally = Tally::new();
    let message = |name: String| Event::Sent {
        peer: 1,
        message_type: name,
        bytes: 10,
    };
    for number in 0..300 {
        tally.add(&at(START + 1, message(format!("x{number}"))));
    }
    for name in ["tx", "block", "sendtxrcncl"] {
        tally.add(&at(START + 1, message(name.to_owned())));
    }
    for record in window(START, &[1]) {
        tally.add(&record);
    }
    let sent = tally.sent(|_| true);
    assert_eq!(sent.len(), MAX_TYPES + 1 + 3);
    assert_eq!(sent["tx"].messages.count, 1);
    assert_eq!(sent[OTHER_TYPE].messages.count, 200);
}

/// A stall is that of the peer that had the id then.
#[test]
fn a_stall_belongs_to_an_earlier_peer() {
    let mut tally = Tally::new();
    let mut add = |time: Time, event| tally.add(&at(time, event));
    let (block, step) = (BlockHash([7; 32]), BlockStep::Requested);
    let message = |step| Event::BlockMessage {
        peer: 1,
        block,
        step,
    };
    add(START, connected(1, Some(START)));
    add(START, message(BlockStep::Headers));
    add(START, message(step));
    window(START + 20_000_000, &[1])
        .into_iter()
        .for_each(|record| add(record.time, record.event));
    add(START + 30_000_000, Event::Started);
    let Event::Connected { connection, .. } = connected(1, Some(START + 40_000_000)) else {
        panic!("connected")
    };
    let connection = Connection {
        address: "198.51.100.9:8333".into(),
        ..connection
    };
    let another = Event::Connected {
        peer: 1,
        connection,
    };
    add(START + 40_000_000, another);
    for second in 40..60 {
        for record in window(START + second * 1_000_000, &[1]) {
            tally.add(&record);
        }
    }
    let report = Report::of(&tally);
    let rows = report.blocks.expect("a block").stall_rows;
    assert_eq!(rows.len(), 1, "{rows:?}");
    let address = rows[0].address.as_deref();
    assert!(
        address.is_some_and(|address| !address.starts_with("198")),
        "{rows:?}"
    );
    assert_eq!(tally.blocks().last_first(), None);
}

/// The ids of peers repeat after a restart of the node, which the recorder may not have seen.
#[test]
fn peers_of_an_earlier_run_have_ended() {
    let folder = Folder::new("restart");
    let path = folder.0.join("a.parquet");
    for run in 0..3 {
        let mut writer = Writer::append(&path).expect("a recording");
        let start = START + run * DAY;
        add(&mut writer, &[at(start, connected(1, Some(start)))]);
        for turn in 0..90 {
            add(&mut writer, &window(start + turn * 1_000_000, &[1, 2]));
        }
        // A connection of 10 seconds, which the end of the recorder cuts.
        let last = start + 90 * 1_000_000;
        add(&mut writer, &[at(last, connected(3, Some(last)))]);
        for turn in 0..10 {
            add(&mut writer, &window(last + turn * 1_000_000, &[1, 2, 3]));
        }
        writer.finish().expect("finished");
    }
    let records = read_all(&path);
    let started = records
        .iter()
        .filter(|record| record.event == Event::Started);
    assert_eq!(started.count(), 2);
    let tally = tally_of(&path, Period::ALL);
    let slots = tally.slots();
    let inbound = &slots[&Slot::InboundFullRelay];
    assert_eq!((inbound.connections, inbound.short), (3, 3));
    assert_eq!(slots[&Slot::Unknown].connections, 3);
    // The time without a recorder is not part of the recording.
    assert_eq!(tally.observed_share(), 1.0);
    assert_eq!(tally.observed().round(), 300.0);

    // In a period that begins between two runs, nobody is left of the first.
    let period = Period {
        since: START + DAY / 2,
        until: Time::MAX,
    };
    let tally = tally_of(&path, period);
    let inbound = &tally.slots()[&Slot::InboundFullRelay];
    assert_eq!((inbound.connections, inbound.short), (2, 2));
}

#[test]
fn only_own_recordings_are_continued() {
    let folder = Folder::new("foreign");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::append(&path).expect("created");
    add(&mut writer, &window(START, &[1]));
    let busy = refusal(&path);
    assert!(busy.ends_with("another process writes to it"), "{busy}");
    writer.finish().expect("finished");
    let part = fs::read(path.join("000001.parquet")).expect("a part");
    let precious = folder.0.join("precious");
    fs::write(&precious, "precious").expect("written");

    for name in ["notes.txt", "1.parquet", "a.parquet", ".000002.parquet"] {
        fs::write(path.join(name), &part).expect("written");
        let error = refusal(&path);
        assert!(
            error.ends_with(&format!("{name} is no part of it")),
            "{error}"
        );
        fs::remove_file(path.join(name)).expect("removed");
    }
    #[cfg(unix)]
    for name in ["000000.parquet", ".000002.parquet.unfinished"] {
        std::os::unix::fs::symlink(&precious, path.join(name)).expect("a link");
        let error = refusal(&path);
        assert!(error.contains("is a symbolic link, not a file"), "{error}");
        fs::remove_file(path.join(name)).expect("removed");
    }
    fs::create_dir(path.join("000002.parquet")).expect("a folder");
    assert!(refusal(&path).contains("is a folder, not a file"));
    fs::remove_dir(path.join("000002.parquet")).expect("removed");
    for damaged in [&part[..part.len() / 2], b"", b"PAR1"] {
        fs::write(path.join("000002.parquet"), damaged).expect("written");
        let error = refusal(&path);
        assert!(error.contains("000002.parquet: not an intact"), "{error}");
    }
    fs::remove_file(path.join("000002.parquet")).expect("removed");
    // A file, or a link to a recording.
    let error = Writer::append(&precious).expect_err("a file").to_string();
    assert!(
        error.starts_with("cannot continue the recording"),
        "{error}"
    );
    #[cfg(unix)]
    {
        let link = folder.0.join("link.parquet");
        std::os::unix::fs::symlink(&path, &link).expect("a link");
        Writer::append(&link).expect_err("a link");
    }
    assert_eq!(fs::read(&precious).expect("a file"), b"precious");

    // What a killed writer has not finished is in the way of the next part.
    let unfinished = path.join(".000002.parquet.unfinished");
    fs::write(&unfinished, &part[..100]).expect("written");
    let mut writer = Writer::append(&path).expect("a recording");
    assert!(!unfinished.exists());
    add(&mut writer, &window(START + DAY, &[1]));
    assert_eq!(writer.finish().expect("finished"), 4);
    assert_eq!(names(&path), ["000001.parquet", "000002.parquet"]);
    // An empty folder.
    let empty = folder.0.join("empty.parquet");
    fs::create_dir(&empty).expect("a folder");
    let writer = Writer::append(&empty).expect("a folder");
    writer.finish().expect("finished");
    assert_eq!(names(&empty), ["000001.parquet"]);
}

/// While a recording is read, its writer deletes old parts.
#[test]
fn a_part_that_is_deleted_while_reading_is_no_damage() {
    let folder = Folder::new("vanishing");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    for turn in 0..3 {
        add(&mut writer, &window(START + turn * DAY, &[1]));
        writer.flush().expect("written");
    }
    writer.finish().expect("finished");
    let records = read(&path).expect("a recording");
    fs::remove_file(path.join("000001.parquet")).expect("removed");
    fs::remove_file(path.join("000003.parquet")).expect("removed");
    let records: Vec<_> = records.map(|record| record.expect("whole")).collect();
    assert_eq!(records, window(START + DAY, &[1]));
    let one = read(&path.join("000002.parquet")).expect("a part");
    fs::remove_file(path.join("000002.parquet")).expect("removed");
    let error = one.filter_map(Result::err).next().expect("an error");
    assert!(error.is_not_found(), "{error}");
}

/// The figures of a period are those of a recording of that period alone, except for what is known
/// about earlier peers.
#[test]
fn a_report_on_a_period() {
    let folder = Folder::new("period");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder");
    let minute = 60_000_000;
    add(&mut writer, &[at(START, connected(1, Some(START - DAY)))]);
    add(&mut writer, &[at(START, connected(2, Some(START)))]);
    for turn in 0..100 {
        let start = START + turn * minute;
        let mut records = window(start, &[1, 2]);
        if turn == 20 {
            records.insert(0, at(start, Event::Disconnected { peer: 2 }));
        }
        if turn == 40 {
            records.insert(0, at(start, connected(3, Some(start))));
        }
        add(&mut writer, &records);
        if turn % 4 == 3 {
            writer.flush().expect("written");
        }
    }
    writer.finish().expect("finished");
    assert_eq!(names(&path).len(), 25);
    let period = |since: u64, until: u64| Period {
        since: START + since * minute,
        until: START + until * minute,
    };
    for (period, windows, addresses) in [
        (period(0, 100), 100, 3),
        (period(10, 15), 5, 2),
        (period(50, 60), 10, 2),
        (period(30, 35), 5, 1),
        // Peer 2 is connected for a second.
        (period(0, 1), 1, 2),
        (period(99, 500), 1, 2),
        (period(200, 300), 0, 0),
        (Period::ALL, 100, 3),
    ] {
        let tally = tally_of(&path, period);
        assert_eq!(tally.windows(), windows, "{period:?}");
        assert_eq!(tally.agents().len(), addresses, "{period:?}");
        let inv = tally.received(|_| true).get("inv").cloned();
        let inv = inv.unwrap_or_default();
        // In each window, peers 1 and 2 are active.
        assert_eq!(inv.messages.count, 2 * windows, "{period:?}");
        assert_eq!(inv.processed.count, 2 * windows, "{period:?}");
        let (first, last) = tally.times().unwrap_or((period.since, period.until));
        assert!(first >= period.since && last <= period.until, "{period:?}");
    }
    // A window that is cut by either end is left out.
    let half = Period {
        since: START + minute + 1,
        until: START + 3 * minute + 500_000,
    };
    assert_eq!(tally_of(&path, half).windows(), 1);

    // Parts outside of it are not read.
    for part in (1..=5).chain(21..=25) {
        fs::write(path.join(format!("{part:06}.parquet")), "damaged").expect("written");
    }
    let tally = tally_of(&path, period(50, 55));
    assert_eq!((tally.windows(), tally.agents().len()), (5, 2));
}

/// A recording without repeated connections, as earlier versions have written.
#[test]
fn a_period_of_an_old_recording() {
    let folder = Folder::new("old");
    let path = folder.0.join("a.parquet");
    fs::create_dir(&path).expect("a folder");
    let minute = 60_000_000;
    for turn in 0..20 {
        let other = folder.0.join(format!("{turn}"));
        let mut writer = Writer::create(&other).expect("a folder");
        if turn == 0 {
            add(&mut writer, &[at(START, connected(1, Some(START - DAY)))]);
        }
        add(&mut writer, &window(START + turn * minute, &[1]));
        writer.finish().expect("finished");
        let name = format!("{:06}.parquet", turn + 1);
        fs::rename(other.join("000001.parquet"), path.join(name)).expect("moved");
    }
    let period = Period {
        since: START + 15 * minute,
        until: Time::MAX,
    };
    let tally = tally_of(&path, period);
    assert_eq!(tally.windows(), 5);
    assert!(tally.agents().contains_key("/peer:1/"));
}

#[test]
fn figures_by_day() {
    let mut tally = Tally::new();
    // 2026-09-21 14:13:20 UTC.
    tally.add(&at(START, connected(1, Some(START - 1))));
    for hour in 0..48 {
        let peers: &[i64] = match hour < 24 {
            true => &[1],
            false => &[1, 2, 3],
        };
        for record in window(START + hour * 3_600_000_000, peers) {
            tally.add(&record);
        }
        // One on the second day took two seconds.
        let (block, time) = (BlockHash([hour as u8; 32]), START + hour * 3_600_000_000);
        if hour == 12 {
            let step = BlockStep::Headers;
            let announced = Event::BlockMessage {
                peer: 1,
                block,
                step,
            };
            tally.add(&at(time + 2_000_000, announced));
        }
        if hour % 12 == 0 {
            let connected = Event::BlockConnected {
                block,
                height: hour,
                transactions: 1,
                took_ns: 1,
            };
            tally.add(&at(time + 4_000_000, connected));
        }
    }
    let report = Report::of(&tally);
    let dates: Vec<_> = report.days.iter().map(|day| day.date.as_str()).collect();
    assert_eq!(dates, ["2026-09-21", "2026-09-22", "2026-09-23"]);
    let [first, second, third] = &report.days[..] else {
        panic!("three days")
    };
    assert_eq!((first.peers, third.peers), (1.0, 3.0));
    assert_eq!(first.cpu_mean, Some(2000.0));
    assert_eq!(third.cpu_mean, Some(6000.0));
    assert!((second.recorded_hours - 24.0).abs() < 0.01);
    assert!((second.observed_share - 1.0 / 3600.0).abs() < 1e-5);
    assert_eq!(first.thread, Some(9000.0));
    assert_eq!(first.received_per_day, Some(86_400.0));
    assert_eq!(third.received_bytes_per_day, 300.0 * 86_400.0);
    assert_eq!([first, second, third].map(|day| day.blocks), [1, 2, 1]);
    assert!((second.block_seconds.unwrap() - 2.0).abs() < 0.02);
    assert_eq!(first.block_seconds, None);
    let origin = html::Origin {
        command: String::new(),
        files: Vec::new(),
    };
    for shown in [text::render(&report), html::render(&report, &origin)] {
        assert!(shown.contains("By day (UTC)"), "{shown}");
        assert!(shown.contains("2026-09-22"), "{shown}");
    }
    assert!(report.to_json().contains("\"date\": \"2026-09-22\""));

    // A single day needs no table.
    let mut tally = Tally::new();
    window(START, &[1])
        .iter()
        .for_each(|record| tally.add(record));
    let report = Report::of(&tally);
    assert!(report.days.is_empty());
    assert!(!text::render(&report).contains("By day"));

    // Any times, also those of a damaged file.
    for day in [0, 5, 3, 1 << 20, 2].into_iter().chain(10..1000) {
        window(day * DAY, &[1])
            .iter()
            .for_each(|record| tally.add(record));
    }
    let report = Report::of(&tally);
    assert_eq!(report.days.len(), MAX_DAYS);
    assert!(text::render(&report).contains("Only the last 400 days are listed."));
}

/// Counters for Prometheus: a connection whose kind becomes known takes nothing from another kind.
#[test]
fn sums_by_kind_never_decrease() {
    let mut tally = Tally::new();
    let mut before = BTreeMap::new();
    let run = Synthetic {
        seconds: 60,
        short_per_second: 1.0,
        ..Synthetic::of_60()
    };
    let mut turn = 0;
    run.run(|mut record| {
        // Every other peer's kind is known late.
        if let Event::Connected { peer, connection } = &mut record.event
            && *peer % 2 == 0
        {
            connection.relay = None;
        }
        tally.add(&record);
        if !matches!(record.event, Event::Window { .. }) {
            return;
        }
        turn += 1;
        if turn == 20 {
            for peer in 8..38 {
                tally.add(&at(record.time, connected(peer, None)));
            }
        }
        for (slot, seen) in tally.kinds() {
            let sums = [
                seen.cpu_ns(),
                seen.received.count,
                seen.sent.bytes,
                seen.observed,
            ];
            let earlier = before.insert(*slot, sums).unwrap_or_default();
            assert!(sums.iter().zip(earlier).all(|(now, before)| *now >= before));
        }
        let all: u64 = before.values().map(|sums| sums[0]).sum();
        let slots: u64 = tally.slots().values().map(|cost| cost.seen.cpu_ns()).sum();
        assert_eq!(all, slots);
    });
    assert!(before.len() > 3, "{before:?}");
}
