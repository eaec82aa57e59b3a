//! Recordings in Parquet: they can be read back however the writer ended, and anything else gives a
//! one-line error.

mod synthetic;

use packetlane_peers::file::{COLUMNS, Kind, ReadCause, Writer, read};
use packetlane_peers::{
    Calls, Connection, ConnectionType, Cost, Event, Network, Record, Transport,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use synthetic::{Folder, START, Synthetic};

/// Environment variable with the task of a test that runs this program as a child.
const CHILD: &str = "PACKETLANE_PEERS_CHILD";

fn every_kind() -> Vec<Record> {
    let connection = |relay, network, transport, since| Connection {
        address: "[2001:db8::1]:8333".into(),
        kind: ConnectionType::Inbound,
        network,
        transport,
        relay,
        user_agent: relay.map(|_| "/Satoshi:28.0.0/".into()),
        since,
    };
    let calls = |count| Calls {
        count,
        cost: Cost {
            wall_ns: 3 * count,
            cpu_ns: 2 * count,
        },
    };
    let full = connection(
        Some(true),
        Some(Network::Onion),
        Some(Transport::V2),
        Some(7),
    );
    let bare = connection(None, None, None, None);
    let mut events = vec![
        Event::Connected {
            peer: 3,
            connection: full,
        },
        Event::Connected {
            peer: i64::MAX,
            connection: bare,
        },
        Event::Received {
            peer: 3,
            message_type: "tx".into(),
            bytes: 400,
            cost: Some(Cost {
                wall_ns: 12,
                cpu_ns: 0,
            }),
            added: None,
        },
        Event::Received {
            peer: -1,
            message_type: String::new(),
            bytes: 0,
            cost: None,
            added: None,
        },
        Event::Sent {
            peer: 3,
            message_type: "ünï".into(),
            bytes: 1 << 40,
        },
        Event::Bytes {
            peer: 3,
            received: true,
            message_type: "tx".into(),
            bytes: 1 << 41,
        },
        Event::Bytes {
            peer: -1,
            received: false,
            message_type: "*other*".into(),
            bytes: 1,
        },
        Event::Calls {
            peer: 3,
            receiving: calls(5),
            sending: calls(1 << 33),
        },
        Event::Thread {
            name: "b-msghand".into(),
            cpu_ns: 99,
        },
        Event::Window {
            start: START,
            lost: 2,
            probes_ns: 77,
            stolen_ns: 88,
        },
        Event::Disconnected { peer: 3 },
        Event::Started,
    ];
    for kind in ConnectionType::ALL {
        let mut other = connection(Some(false), Some(Network::I2p), Some(Transport::V1), None);
        other.kind = kind;
        events.push(Event::Connected {
            peer: 0,
            connection: other,
        });
    }
    let records = events.into_iter().zip(START..);
    records
        .map(|(event, time)| Record { time, event })
        .collect()
}

fn write(folder: &Path, records: &[Record]) {
    let mut writer = Writer::create(folder).expect("a folder");
    for record in records {
        writer.add(record).expect("written");
    }
    assert_eq!(writer.finish().expect("finished"), records.len() as u64);
}

fn read_all(path: &Path) -> Vec<Record> {
    let records: Result<Vec<_>, _> = read(path).expect("a recording").collect();
    records.unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn what_is_written_is_read_back() {
    let folder = Folder::new("round");
    let path = folder.0.join("a.parquet");
    write(&path, &every_kind());
    assert_eq!(read_all(&path), every_kind());
    assert_eq!(read_all(&path.join("000001.parquet")), every_kind());
    // An empty recording has the columns.
    let empty = folder.0.join("empty.parquet");
    write(&empty, &[]);
    assert_eq!(read_all(&empty), []);
    let error = Writer::create(&path).expect_err("it exists");
    assert!(
        error
            .to_string()
            .ends_with("already exists: choose another name"),
        "{error}"
    );
    // Names and other texts are cut at their maximum length.
    let long = Record {
        time: u64::MAX,
        event: Event::Thread {
            name: "ü".repeat(1000),
            cpu_ns: u64::MAX,
        },
    };
    let path = folder.0.join("long.parquet");
    write(&path, &[long]);
    let [record] = &read_all(&path)[..] else {
        panic!("one record")
    };
    assert_eq!(record.time, i64::MAX as u64);
    let Event::Thread { name, cpu_ns } = &record.event else {
        panic!("a thread")
    };
    assert_eq!((name.len(), *cpu_ns), (256, i64::MAX as u64));
}

/// Every column, read by other programs: their sums are ours.
#[test]
fn other_programs_read_it() {
    let folder = Folder::new("others");
    let path = folder.0.join("a.parquet");
    let run = Synthetic {
        seconds: 20,
        ..Synthetic::of_60()
    };
    let mut records = Vec::new();
    run.run(|record| records.push(record));
    // In several parts.
    fs::create_dir(&path).expect("a folder");
    let third = records.len() / 3;
    for (part, records) in [&records[..third], &records[third..]]
        .into_iter()
        .enumerate()
    {
        let one = folder.0.join(format!("{part}.parquet"));
        write(&one, records);
        let part = path.join(format!("{:06}.parquet", part + 1));
        fs::rename(one.join("000001.parquet"), part).expect("moved");
    }
    assert_eq!(read_all(&path), records);
    let mut sums = [0; 4];
    for record in &records {
        sums[0] += 1;
        sums[1] += record.time - START;
        match &record.event {
            Event::Received { bytes, cost, .. } => {
                sums[2] += bytes;
                sums[3] += cost.expect("a cost").cpu_ns;
            }
            Event::Sent { bytes, .. } => sums[2] += bytes,
            Event::Thread { cpu_ns, .. } => sums[3] += cpu_ns,
            _ => {}
        }
    }
    let expected = format!("{} {} {} {}", sums[0], sums[1], sums[2], sums[3]);
    let programs = [
        (
            "pandas",
            "import pandas as p; d=p.read_parquet(F); t=d.time.astype('int64')\n\
             assert str(d.time.dt.tz)=='UTC' and str(d.time.dtype)=='datetime64[us, UTC]', d.time.dtype\n\
             print(len(d), int((t-S).sum()), int(d.bytes.sum()), int(d.cpu_ns.sum()))",
        ),
        (
            "polars",
            "import polars as p; d=p.read_parquet(F)\n\
             print(len(d), (d['time'].to_physical()-S).sum(), d['bytes'].sum(), d['cpu_ns'].sum())",
        ),
        (
            "duckdb",
            "import duckdb as d\n\
             print(*d.sql(f\"SELECT count(*), sum(epoch_us(time)-{S}), sum(bytes), sum(cpu_ns) FROM '{F}/*.parquet'\").fetchall()[0])",
        ),
    ];
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    for (library, script) in programs {
        let there = Command::new(&python)
            .args(["-c", &format!("import {library}")])
            .output();
        if !there.is_ok_and(|output| output.status.success()) {
            println!("NOT RUN: {library} reads a recording: {python} has no {library}");
            continue;
        }
        let script = format!(
            "F={:?}\nS={START}\n{script}",
            path.to_str().expect("a name")
        );
        let output = Command::new(&python)
            .args(["-c", &script])
            .output()
            .expect("Python");
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(said.trim(), expected, "{library}: {errors}");
        println!("{library} reads a recording");
    }
}

/// The guide's table of columns is that of the program.
#[test]
fn the_guide_has_all_columns() {
    let guide = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/guide/peers-data.md"
    );
    let guide = fs::read_to_string(guide).expect("the guide");
    let mut table = String::new();
    for (name, kind, meaning) in COLUMNS {
        let kind = match kind {
            Kind::Integer => "64-bit integer",
            Kind::Time => "microseconds since 1970, UTC",
            Kind::Text => "text",
            Kind::Flag => "boolean",
        };
        table += &format!("| `{name}` | {kind} | {meaning} |\n");
    }
    assert!(guide.contains(&table), "not in the guide:\n{table}");
}

/// What a child of these tests does: writes records in small parts until it is killed, and prints
/// how many are in complete parts.
fn child(folder: &Path, records: u64) {
    use std::io::Write;
    let mut writer = Writer::create(folder)
        .expect("a folder")
        .with_part_rows(5000);
    let mut safe = 0;
    for number in 0..records {
        if let Err(error) = writer.add(&numbered(number)) {
            println!("failed {error}");
            return;
        }
        if writer.records() > safe {
            safe = writer.records();
            let _ = writeln!(std::io::stdout(), "safe {safe}");
        }
    }
    match writer.finish() {
        Ok(safe) => println!("safe {safe}"),
        Err(error) => println!("failed {error}"),
    }
}

fn numbered(number: u64) -> Record {
    Record {
        time: START + number,
        event: Event::Received {
            peer: (number % 125) as i64,
            message_type: ["inv", "tx", "ping", "getdata"][number as usize % 4].into(),
            bytes: number % 1000,
            cost: Some(Cost {
                wall_ns: number % 77_777,
                cpu_ns: number % 55_555,
            }),
            added: None,
        },
    }
}

/// Runs this test alone in a new process, with [`CHILD`] set.
fn again(test: &str, folder: &Path, records: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env(CHILD, format!("{records} {}", folder.display()));
    command.stdout(Stdio::piped());
    command
}

/// In a child: does its task and returns true.
fn is_child() -> bool {
    let Ok(task) = std::env::var(CHILD) else {
        return false;
    };
    let (records, folder) = task.split_once(' ').expect("two words");
    child(Path::new(folder), records.parse().expect("a number"));
    true
}

fn last_safe(said: &str) -> u64 {
    let mut safe = said.lines().filter_map(|line| line.rsplit_once("safe "));
    safe.next_back()
        .map_or(0, |(_, number)| number.parse().expect("a number"))
}

#[test]
fn a_writer_that_is_killed_leaves_whole_parts() {
    if is_child() {
        return;
    }
    let folder = Folder::new("killed");
    let mut rng = StdRng::seed_from_u64(9);
    let mut lengths = Vec::new();
    for turn in 0..30 {
        let path = folder.0.join(format!("{turn}.parquet"));
        let test = "a_writer_that_is_killed_leaves_whole_parts";
        let mut child = again(test, &path, u64::MAX).spawn().expect("a child");
        std::thread::sleep(Duration::from_micros(rng.random_range(20_000..150_000)));
        // SIGKILL.
        child.kill().expect("killed");
        let output = child.wait_with_output().expect("waited");
        let safe = last_safe(&String::from_utf8_lossy(&output.stdout));
        if !path.exists() {
            lengths.push(0);
            continue;
        }
        let mut count = 0;
        match read(&path) {
            Ok(records) => {
                for record in records {
                    let record = record.unwrap_or_else(|error| panic!("{error}"));
                    assert_eq!(record, numbered(count));
                    count += 1;
                }
            }
            Err(error) => assert_eq!(safe, 0, "{error}"),
        }
        // A part may have been renamed just before the child could print it.
        assert!(
            count == safe || count == safe + 5000,
            "{count}, {safe} said"
        );
        lengths.push(count);
        fs::remove_dir_all(&path).expect("removed");
    }
    assert!(
        lengths.iter().filter(|count| **count > 0).count() > 15,
        "{lengths:?}"
    );
}

/// A small file system stands for a full disk.
#[test]
fn a_full_disk_leaves_what_was_written() {
    if is_child() {
        return;
    }
    let folder = Folder::new("full");
    let disk = folder.0.join("disk");
    fs::create_dir(&disk).expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
        .arg(&disk)
        .output();
    if !mounted.is_ok_and(|output| output.status.success()) {
        println!("NOT RUN: a recording on a full disk: no right to mount a small one");
        return;
    }
    let path = disk.join("a.parquet");
    let test = "a_full_disk_leaves_what_was_written";
    let output = again(test, &path, 10_000_000).output().expect("a child");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let count = read(&path).map(Iterator::count);
    let all = read(&path).map(|records| records.filter(Result::is_ok).count());
    let left: Vec<_> = fs::read_dir(&disk)
        .expect("the disk")
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    let unmounted = Command::new("umount").arg(&disk).output().expect("umount");
    assert!(unmounted.status.success());
    assert!(
        said.contains("failed cannot write") && said.contains("No space left"),
        "{said}"
    );
    let safe = last_safe(&said);
    assert!(safe >= 5000, "{said}");
    assert_eq!(count.expect("a recording") as u64, safe);
    assert_eq!(all.expect("a recording") as u64, safe);
    assert_eq!(left, ["a.parquet"], "the part that did not fit is removed");
}

/// Peak memory of this process, in bytes.
fn high_water() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Runs in a child, so that only its own memory counts. 10 million records in a release build or
/// with PACKETLANE_MANY set; without optimization this takes half a minute.
#[test]
fn ten_million_records_in_bounded_memory() {
    const TEST: &str = "ten_million_records_in_bounded_memory";
    if let Ok(task) = std::env::var(CHILD) {
        let (records, folder) = task.split_once(' ').expect("two words");
        let (records, path) = (records.parse::<u64>().expect("a number"), Path::new(folder));
        let begun = Instant::now();
        let mut writer = Writer::create(path).expect("a folder");
        for number in 0..records {
            writer.add(&numbered(number)).expect("written");
        }
        assert_eq!(writer.finish().expect("finished"), records);
        let (written, wrote) = (begun.elapsed(), high_water());
        let mut next = 0;
        for record in read(path).expect("a recording") {
            let record = record.expect("whole");
            assert!(record == numbered(next), "{record:?}");
            next += 1;
        }
        assert_eq!(next, records);
        let (Some(wrote), Some(had)) = (wrote, high_water()) else {
            println!("NOT RUN: the memory of 10 million records: no /proc/self/status");
            return;
        };
        let files = fs::read_dir(path).expect("a folder").flatten();
        let bytes: u64 = files
            .map(|file| file.metadata().expect("a file").len())
            .sum();
        println!(
            "{records} records: {written:.1?} to write, {:.1?} to read, {:.1} bytes each, {} MiB of memory to write, {} MiB in all",
            begun.elapsed() - written,
            bytes as f64 / records as f64,
            wrote >> 20,
            had >> 20,
        );
        assert!(had < 160 << 20, "{} MiB", had >> 20);
        return;
    }
    let folder = Folder::new("many");
    let output = again(TEST, &folder.0.join("a.parquet"), 10_000_000)
        .output()
        .expect("a child");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    for line in said
        .lines()
        .filter(|line| line.contains("records:") || line.contains("NOT RUN"))
    {
        println!("{line}");
    }
    assert!(
        said.contains("10000000 records:") || said.contains("NOT RUN"),
        "{said}"
    );
}

fn error_of(path: &Path) -> String {
    let error = match read(path) {
        Err(error) => error,
        Ok(records) => records.filter_map(Result::err).next().expect("an error"),
    };
    let error = error.to_string();
    assert!(!error.contains('\n'), "one line: {error}");
    assert!(
        error.contains(
            path.file_name()
                .and_then(|name| name.to_str())
                .expect("a name")
        ),
        "{error}"
    );
    error
}

#[test]
fn other_files_are_errors() {
    let folder = Folder::new("errors");
    let at = |name: &str| folder.0.join(name);
    assert!(error_of(&at("absent")).contains("No such file"));
    fs::create_dir(at("nothing")).expect("a folder");
    assert!(error_of(&at("nothing")).ends_with("no .parquet files in this folder"));
    fs::write(at("text"), "not Parquet, but long enough to look").expect("written");
    assert!(error_of(&at("text")).contains("not an intact, uncompressed Parquet file"));
    let mkfifo = Command::new("mkfifo").arg(at("fifo.parquet")).status();
    assert!(mkfifo.expect("mkfifo").success());
    assert!(error_of(&at("fifo.parquet")).ends_with("it is a FIFO, not a file"));
    fs::write(at("\u{1b}[2K\u{202e}"), "").expect("written");
    let records = read(&at("\u{1b}[2K\u{202e}")).expect("a file");
    let error = records.filter_map(Result::err).next().expect("an error");
    assert!(
        error.to_string().contains(r"/\u{1b}[2K\u{202e}: "),
        "{error}"
    );
    fs::write(at("zero"), "").expect("written");
    error_of(&at("zero"));
}

/// An unreadable part is named, and the other parts are read.
#[test]
fn a_damaged_part_leaves_the_others() {
    let folder = Folder::new("one-damaged");
    let path = folder.0.join("a.parquet");
    let mut writer = Writer::create(&path).expect("a folder").with_part_rows(4);
    for record in &every_kind() {
        writer.add(record).expect("written");
    }
    writer.finish().expect("finished");
    let second = path.join("000002.parquet");
    let whole = fs::read(&second).expect("a part");
    let mut others = read_all(&path.join("000001.parquet"));
    for part in 3..=5 {
        others.extend(read_all(&path.join(format!("{part:06}.parquet"))));
    }
    let look = |what: &str| {
        let (mut read_records, mut errors) = (Vec::new(), Vec::new());
        for record in read(&path).expect("a recording") {
            match record {
                Ok(record) => read_records.push(record),
                Err(error) => errors.push(error),
            }
        }
        assert_eq!(read_records, others, "{what}");
        let [error] = &errors[..] else {
            panic!("{what}: {errors:?}")
        };
        assert_eq!(error.path, second, "{what}");
    };
    fs::write(&second, &whole[..whole.len() / 2]).expect("written");
    look("cut");
    fs::write(&second, "").expect("written");
    look("empty");
    let mut damaged = whole.clone();
    damaged[4..60].fill(0xff);
    fs::write(&second, damaged).expect("written");
    look("damaged");
    fs::remove_file(&second).expect("removed");
    let mkfifo = Command::new("mkfifo").arg(&second).status();
    assert!(mkfifo.expect("mkfifo").success());
    look("a FIFO");
    fs::remove_file(&second).expect("removed");
    fs::create_dir(&second).expect("a folder");
    look("a folder");
}

/// The folder of a recording may be writable by another user than the writer.
#[cfg(unix)]
#[test]
fn a_planted_link_is_not_followed() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("planted");
    let path = folder.0.join("a.parquet");
    let target = folder.0.join("target");
    fs::write(&target, "precious").expect("written");
    symlink(&target, folder.0.join("a.parquet.unfinished")).expect("a link");
    let mut writer = Writer::create(&path).expect("a folder").with_part_rows(4);
    symlink(&target, path.join("000001.parquet")).expect("a link");
    let records: Vec<_> = (0..18).map(numbered).collect();
    for record in &records {
        writer.add(record).expect("written");
    }
    writer.finish().expect("finished");
    assert_eq!(read_all(&path), records);
    assert_eq!(fs::read(&target).expect("the target"), b"precious");
    // Only parts are left. The planted link is unchanged or replaced.
    for entry in fs::read_dir(&path).expect("a folder").flatten() {
        let is_file = entry.file_type().expect("a type").is_file();
        let name = entry.file_name().into_string().expect("UTF-8");
        assert!(
            is_file && name.len() == 14 && name.ends_with(".parquet"),
            "{name}"
        );
    }
    assert_eq!(fs::read_dir(&folder.0).expect("a folder").count(), 3);
    // A link in place of the recording itself.
    let link = folder.0.join("link.parquet");
    symlink(folder.0.join("nowhere"), &link).expect("a link");
    Writer::create(&link).expect_err("a link");
    assert!(!folder.0.join("nowhere").exists());
}

/// Another user who owns the parent folder may swap the recording between two parts.
#[cfg(unix)]
#[test]
fn a_part_never_lands_in_another_folder() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("swapped");
    let path = folder.0.join("a.parquet");
    let (moved, victim) = (folder.0.join("moved"), folder.0.join("victim"));
    fs::create_dir(&victim).expect("a folder");
    fs::write(victim.join("000002.parquet"), "precious").expect("written");
    let mut writer = Writer::create(&path).expect("a folder").with_part_rows(1);
    writer.add(&numbered(0)).expect("written");
    fs::rename(&path, &moved).expect("moved");
    symlink(&victim, &path).expect("a link");
    let error = writer.add(&numbered(1)).expect_err("swapped").to_string();
    let expected = format!(
        "cannot write {}/000002.parquet: the folder was moved or replaced",
        path.display()
    );
    assert_eq!(error, expected);
    let precious = fs::read(victim.join("000002.parquet")).expect("a file");
    assert_eq!(precious, b"precious");
    assert_eq!(fs::read_dir(&victim).expect("a folder").count(), 1);
    // Records in memory are written once the folder is back.
    fs::remove_file(&path).expect("removed");
    fs::rename(&moved, &path).expect("moved");
    assert_eq!(writer.finish().expect("finished"), 2);
    assert_eq!(read_all(&path), [numbered(0), numbered(1)]);
    // The folder was removed.
    let path = folder.0.join("gone.parquet");
    let mut writer = Writer::create(&path).expect("a folder").with_part_rows(1);
    fs::remove_dir(&path).expect("removed");
    let error = writer.add(&numbered(0)).expect_err("gone").to_string();
    assert!(error.contains("No such file or directory"), "{error}");
}

/// A file that is cut anywhere, or has modified bytes, gives an error or records: never a panic,
/// and no memory for what it only claims.
#[test]
fn damaged_files_are_errors() {
    let folder = Folder::new("damaged");
    let path = folder.0.join("a.parquet");
    let mut records = every_kind();
    Synthetic {
        seconds: 1,
        ..Synthetic::of_60()
    }
    .run(|record| records.push(record));
    write(&path, &records);
    let whole = fs::read(path.join("000001.parquet")).expect("a part");
    let damaged = folder.0.join("damaged.parquet");
    let mut rng = StdRng::seed_from_u64(4);
    let take = |bytes: &[u8]| {
        fs::write(&damaged, bytes).expect("written");
        let mut errors = 0;
        match read(&damaged) {
            Err(_) => errors += 1,
            Ok(records) => {
                for record in records {
                    if let Err(error) = record {
                        assert!(!matches!(error.cause, ReadCause::Panicked), "{error}");
                        errors += 1;
                    }
                }
            }
        }
        errors
    };
    for _ in 0..300 {
        let cut = rng.random_range(0..whole.len());
        assert_eq!(take(&whole[..cut]), 1, "cut at {cut}");
    }
    let turns =
        std::env::var("PACKETLANE_FUZZ").map_or(4000, |turns| turns.parse().expect("a number"));
    let mut refused = 0;
    for _ in 0..turns {
        let mut bytes = whole.clone();
        for _ in 0..rng.random_range(1..4) {
            // The lengths are in the footer and at the start of pages.
            let place = match rng.random_bool(0.5) {
                true => rng.random_range(0..bytes.len()),
                false => rng.random_range(bytes.len().saturating_sub(4500)..bytes.len()),
            };
            bytes[place] = match rng.random_range(0..4) {
                0 => 0xff,
                1 => bytes[place] ^ 1 << rng.random_range(0..8),
                2 => 0,
                _ => rng.random(),
            };
        }
        refused += take(&bytes);
    }
    assert!(refused > turns / 10, "{refused} of {turns}");
    if let Some(had) = high_water() {
        assert!(had < 1 << 30, "{} MiB", had >> 20);
    }
}
