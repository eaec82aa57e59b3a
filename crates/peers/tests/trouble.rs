//! Failures of probes: each gives a one-line error or a count, and the node keeps running without a
//! probe.
#![cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]

mod fake;
mod machine;

use fake::Fake;
use machine::{attach, is_root, not_run};
use packetlane_peers::probes::Probes;
use packetlane_peers::{Event, Process, ProcessError, Record, Source as _};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the message says that a user lacks.
const CAPABILITIES: &str = "CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH";

/// What a probe changes, in bytes: on ARM a whole instruction.
const PROBE_LEN: usize = if cfg!(target_arch = "aarch64") { 4 } else { 1 };

/// Number of probes in the program: the places where its code in memory differs from its file.
fn probes_in(pid: u32) -> usize {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap();
    let file = std::fs::read(&program).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut differ = 0;
    for line in maps.lines().filter(|line| line.contains(" r-xp ")) {
        if !line.ends_with(program.to_str().unwrap()) {
            continue;
        }
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let (start, rest) = line.split_once('-').unwrap();
        let mut fields = rest.split(' ');
        let (start, end) = (hex(start), hex(fields.next().unwrap()));
        let offset = hex(fields.nth(1).unwrap()) as usize;
        let mut code = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut code, start).unwrap();
        let in_file = &file[offset..file.len().min(offset + code.len())];
        differ += code
            .chunks(PROBE_LEN)
            .zip(in_file.chunks(PROBE_LEN))
            .filter(|(one, other)| one != other)
            .count();
    }
    differ
}

/// Observes the node for a while. Returns the number of lost events.
fn watch(probes: &mut Probes, millis: u64, take: &mut dyn FnMut(Record)) -> u64 {
    let mut lost = 0;
    let window = Duration::from_millis(millis);
    let take = &mut |record: Record| {
        if let Event::Window { lost: more, .. } = record.event {
            lost += more;
        }
        take(record);
    };
    probes.watch(window, &|| true, take).unwrap();
    lost
}

#[test]
fn no_probe_stays_behind() {
    const TEST: &str = "no probe stays behind";
    let Some(mut fake) = Fake::start(TEST, &[3, 5, 10]) else {
        return;
    };
    let Some(mut probes) = attach(fake.pid(), TEST) else {
        return;
    };
    fake.go();
    let pid = fake.pid();
    // Between windows, the probes at tracepoints stay attached. Each tracepoint has a semaphore.
    let between = probes_in(pid);
    let mut within = 0;
    watch(&mut probes, 300, &mut |_| {
        within = within.max(probes_in(pid))
    });
    assert!(within >= between + 2, "{within} {between}");
    probes.rest();
    assert_eq!(probes_in(pid), between);
    drop(probes);
    assert_eq!(probes_in(pid), 0);
}

/// A process that dies while its probes are attached: run as a child by the next test.
#[test]
#[ignore = "part of another test"]
fn dies_in_a_window() {
    let pid = std::env::var("PACKETLANE_TEST_NODE")
        .unwrap()
        .parse()
        .unwrap();
    let mut probes = Probes::attach(Process::with_pid(pid).unwrap()).unwrap();
    let mut is_first = true;
    watch(&mut probes, 60_000, &mut |_| {
        if std::mem::take(&mut is_first) {
            println!("\nattached");
        }
    });
}

/// Runs one test of this program in a child.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture"]);
    command
}

#[test]
fn no_probe_stays_behind_after_kill_9() {
    const TEST: &str = "no probe stays behind after kill -9";
    let Some(mut fake) = Fake::start(TEST, &[3, 5, 10]) else {
        return;
    };
    if attach(fake.pid(), TEST).is_none() {
        return;
    }
    fake.go();
    let mut child = this_test("dies_in_a_window")
        .env("PACKETLANE_TEST_NODE", fake.pid().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut lines = std::io::BufRead::lines(output);
    assert!(lines.any(|line| line.unwrap() == "attached"));
    assert!(probes_in(fake.pid()) > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    // The kernel removes them when the last file descriptor of the process is closed.
    let gone = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        probes_in(fake.pid()) == 0
    });
    assert!(gone, "{} are left", probes_in(fake.pid()));
    assert!(!fake.end().is_empty());
}

/// A node that ends between windows or in one, and whose parent has not yet waited for it.
#[test]
fn a_node_that_was_killed() {
    const TEST: &str = "a node that was killed";
    for in_window in [false, true] {
        let Some(mut fake) = Fake::start(TEST, &[3, 5, 10]) else {
            return;
        };
        let Some(mut probes) = attach(fake.pid(), TEST) else {
            return;
        };
        fake.go();
        watch(&mut probes, 300, &mut |_| {});
        if !in_window {
            probes.rest();
        }
        fake.kill();
        let window = Duration::from_secs(1);
        let error = probes.watch(window, &|| true, &mut |_| {}).unwrap_err();
        let ended = format!("the node, process {}, has ended", fake.pid());
        assert_eq!(error.to_string(), ended, "{in_window}");
        assert!(error.cause().is::<ProcessError>());
    }
}

#[test]
fn two_hundred_peers() {
    const TEST: &str = "two hundred peers";
    let Some(mut fake) = Fake::start(TEST, &[200, 20, 0]) else {
        return;
    };
    let Some(mut probes) = attach(fake.pid(), TEST) else {
        return;
    };
    let mut calls = BTreeMap::<i64, u64>::new();
    let mut take = |record: Record| {
        if let Event::Calls {
            peer, receiving, ..
        } = record.event
        {
            *calls.entry(peer).or_default() += receiving.count;
        }
    };
    fake.go();
    let lost = watch(&mut probes, 1500, &mut take);
    assert_eq!((lost, calls.len() >= 200), (0, true), "{calls:?}");
    assert!(calls.values().filter(|count| **count > 10).count() >= 199);
}

#[test]
fn lost_events_are_counted() {
    const TEST: &str = "lost events are counted";
    let Some(mut fake) = Fake::start(TEST, &[200, 0, 0]) else {
        return;
    };
    if attach(fake.pid(), TEST).is_none() {
        return;
    }
    let process = Process::with_pid(fake.pid()).unwrap();
    let mut probes = Probes::with_ring(process, 4096).unwrap();
    fake.go();
    let mut messages = 0;
    let mut take = |record: Record| {
        messages += u64::from(matches!(
            record.event,
            Event::Received { .. } | Event::Sent { .. }
        ));
    };
    let lost = watch(&mut probes, 500, &mut take);
    assert!(messages > 0 && lost > 100, "{messages} {lost}");
}

#[test]
fn a_program_that_is_not_a_node() {
    let process = Process::with_pid(std::process::id()).unwrap();
    let error = Probes::attach(process).unwrap_err().to_string();
    assert!(
        error.contains("no tracepoint net:inbound_message"),
        "{error}"
    );
    assert!(!error.contains('\n'), "{error}");
}

/// Attaches probes and prints the result, for tests that run this one in another environment.
#[test]
#[ignore = "part of other tests"]
fn attaches() {
    let pid = std::env::var("PACKETLANE_TEST_NODE")
        .unwrap()
        .parse()
        .unwrap();
    match Probes::attach(Process::with_pid(pid).unwrap()) {
        Ok(mut probes) => {
            let mut peers = BTreeSet::new();
            watch(&mut probes, 300, &mut |record| {
                if let Event::Calls { peer, .. } = record.event {
                    peers.insert(peer);
                }
            });
            assert!(peers.len() >= 3, "{peers:?}");
            println!("\nit said: peers are seen");
        }
        Err(error) => println!("\nit said: {error}"),
    }
}

/// What `attaches` prints in this environment.
fn said(mut surroundings: Command, fake: &Fake) -> String {
    surroundings.env("PACKETLANE_TEST_NODE", fake.pid().to_string());
    let output = surroundings.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    let said = lines.find_map(|line| line.strip_prefix("it said: "));
    said.unwrap_or_else(|| panic!("{output:?}")).to_owned()
}

/// A copy of this test program in a folder that others can read. Removed on drop.
struct Copy(PathBuf);

impl Copy {
    fn of_this_test() -> Self {
        static COPIES: AtomicUsize = AtomicUsize::new(0);
        let copy = COPIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("packetlane-trouble-{}-{copy}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::copy(std::env::current_exe().unwrap(), &path).unwrap();
        Self(path)
    }

    /// The command that runs `attaches` in the copy.
    fn attaches(&self) -> String {
        let test = "--exact attaches --ignored --nocapture";
        format!("{} {test}", self.0.display())
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn missing_privileges_and_kernel_features_give_one_line() {
    const TEST: &str = "probes without permission, BTF or sysfs";
    if !is_root() {
        not_run(TEST, "it needs root, to take these away");
        return;
    }
    let Some(fake) = Fake::start(TEST, &[3, 5, 10]) else {
        return;
    };
    let exe = Copy::of_this_test();
    let hidden = |folder: &str| {
        shell(&format!(
            "exec unshare -m sh -c 'mount -t tmpfs none {folder} && exec {}'",
            exe.attaches()
        ))
    };
    let nobody = shell(&format!(
        "exec setpriv --reuid 65534 --clear-groups {}",
        exe.attaches()
    ));
    for (surroundings, expected) in [
        (nobody, CAPABILITIES),
        (hidden("/sys/kernel/btf"), "CONFIG_DEBUG_INFO_BTF"),
        (
            hidden("/sys/bus/event_source/devices"),
            "this container hides them",
        ),
    ] {
        let said = said(surroundings, &fake);
        assert!(said.contains(expected), "{said}");
    }
}

/// The documented capabilities suffice for a user who is not root, and fewer do not.
#[test]
fn the_documented_capabilities_suffice() {
    const TEST: &str = "probes with the documented capabilities";
    if !is_root() {
        not_run(TEST, "it needs root, to give capabilities to another user");
        return;
    }
    let Some(mut fake) = Fake::start(TEST, &[3, 5, 10]) else {
        return;
    };
    fake.go();
    let exe = Copy::of_this_test();
    let with = |capabilities: &str| {
        let script = format!(
            "exec setpriv --reuid 65534 --clear-groups --bounding-set -all,{capabilities} \
             --inh-caps -all,{capabilities} --ambient-caps -all,{capabilities} {}",
            exe.attaches()
        );
        said(shell(&script), &fake)
    };
    let all = "+sys_admin,+sys_ptrace,+dac_read_search";
    assert_eq!(with(all), "peers are seen");
    for too_few in [
        "+sys_admin,+sys_ptrace",
        "+sys_admin,+dac_read_search",
        "+sys_ptrace,+dac_read_search",
    ] {
        let said = with(too_few);
        assert!(said.contains(CAPABILITIES), "{too_few}: {said}");
    }
    // Enough before July 2025's kernels. On later ones the message names what is missing.
    let said = with("+bpf,+perfmon,+sys_ptrace,+dac_read_search");
    assert!(
        said == "peers are seen" || said.contains(CAPABILITIES),
        "{said}"
    );
}
