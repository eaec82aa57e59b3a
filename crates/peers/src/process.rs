//! Finds a node's process and reads the run time of its threads.

use packetlane_files::{Name, printable};
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Names of Bitcoin Core's executables.
const PROGRAMS: [&str; 3] = ["bitcoind", "bitcoin-node", "bitcoin-qt"];

/// The thread that processes received messages and creates those to send, for all peers.
pub const MESSAGE_THREAD: &str = "b-msghand";

/// The thread that reads and writes the sockets, and decrypts BIP324.
pub const NETWORK_THREAD: &str = "b-net";

/// Maximum number of nodes named in an error: any user can start more.
const MAX_NAMED: usize = 8;

/// A running node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// Start time in ticks since boot. Tells it from a later process with the same PID.
    started: u64,
}

/// Why no process was found.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// No node runs here.
    None,
    /// Several nodes run here.
    Several {
        /// Some of them, as [`Process::describe`] shows them, in order of PID.
        nodes: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// There is no process with this PID.
    NotThere {
        /// The PID.
        pid: u32,
    },
    /// The process has ended.
    Ended {
        /// The PID.
        pid: u32,
    },
    /// `/proc` cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(
                f,
                "no node is running on this machine: no process is named {}",
                PROGRAMS.join(" or ")
            ),
            Self::Several { nodes, more } => {
                write!(f, "several nodes are running: {}", nodes.join("; "))?;
                if *more > 0 {
                    write!(f, "; and {more} more")?;
                }
                f.write_str("; pass --pid PID")
            }
            Self::NotThere { pid } => write!(f, "no process has the PID {pid}"),
            Self::Ended { pid } => write!(f, "the node, process {pid}, has ended"),
            Self::Read { path, error } => write!(f, "cannot read {}: {error}", Name(path)),
        }
    }
}

impl std::error::Error for ProcessError {}

impl Process {
    /// The process `pid`.
    ///
    /// # Errors
    ///
    /// [`ProcessError::NotThere`].
    pub fn with_pid(pid: u32) -> Result<Self, ProcessError> {
        let started = started(pid).ok_or(ProcessError::NotThere { pid })?;
        Ok(Self { pid, started })
    }

    /// The only node that runs here, of any user. It is recognized by its file name alone, so show
    /// the user which one it is ([`Process::describe`]).
    ///
    /// # Errors
    ///
    /// [`ProcessError::None`], [`ProcessError::Several`], [`ProcessError::Read`].
    pub fn find() -> Result<Self, ProcessError> {
        let path = PathBuf::from("/proc");
        let entries = fs::read_dir(&path).map_err(|error| ProcessError::Read { path, error })?;
        let mut pids: Vec<u32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| is_node(*pid))
            .collect();
        pids.sort_unstable();
        // With -daemon, the process that was started forks the node, and ends when that runs.
        let parents: Vec<_> = pids.iter().filter_map(|pid| parent(*pid)).collect();
        pids.retain(|pid| !parents.contains(pid));
        match pids[..] {
            [] => Err(ProcessError::None),
            [pid] => Self::with_pid(pid),
            _ => {
                let named = pids.iter().take(MAX_NAMED);
                Err(ProcessError::Several {
                    nodes: named.map(|pid| describe(*pid)).collect(),
                    more: pids.len().saturating_sub(MAX_NAMED),
                })
            }
        }
    }

    /// The node that listens on a TCP port of this machine, if it is visible: seeing another user's
    /// needs root. `None` if several listen on that port, at different addresses.
    #[must_use]
    pub fn listening_on(port: u16) -> Option<Self> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        let tables: String = tables.into_iter().flatten().collect();
        // Fields: index, local address, remote address, state, and six later the socket's inode.
        let socket = |line: &str| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let (_, local) = fields.next()?.rsplit_once(':')?;
            let is_listening = fields.nth(1)? == "0A";
            let is_it = is_listening && u16::from_str_radix(local, 16) == Ok(port);
            let number = fields.nth(5)?;
            is_it.then(|| PathBuf::from(format!("socket:[{number}]")))
        };
        let sockets: Vec<PathBuf> = tables.lines().filter_map(socket).collect();
        let has_one = |pid: u32| {
            let files = fs::read_dir(format!("/proc/{pid}/fd"));
            let mut files = files.into_iter().flatten().flatten();
            files.any(|file| fs::read_link(file.path()).is_ok_and(|to| sockets.contains(&to)))
        };
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let mut nodes = pids.filter(|pid| is_node(*pid) && has_one(*pid));
        match (nodes.next(), nodes.next()) {
            (Some(pid), None) => Self::with_pid(pid).ok(),
            _ => None,
        }
    }

    /// The PID.
    #[must_use]
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// PID, executable and user, for display.
    #[must_use]
    pub fn describe(self) -> String {
        describe(self.pid)
    }

    /// The names of its threads and the CPU time that each has used, in nanoseconds.
    ///
    /// # Errors
    ///
    /// [`ProcessError::Ended`].
    pub fn threads(self) -> Result<Vec<Thread>, ProcessError> {
        let ended = ProcessError::Ended { pid: self.pid };
        if started(self.pid) != Some(self.started) {
            return Err(ended);
        }
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", self.pid)) else {
            return Err(ended);
        };
        // A thread can end after it was listed.
        let thread = |folder: PathBuf| {
            let tid = folder.file_name()?.to_str()?.parse().ok()?;
            let name = fs::read_to_string(folder.join("comm")).ok()?;
            let times = fs::read_to_string(folder.join("schedstat")).ok()?;
            Some(Thread {
                tid,
                name: name.trim_end().to_owned(),
                cpu_ns: times.split(' ').next()?.parse().ok()?,
            })
        };
        let folders = tasks.filter_map(|task| task.ok().map(|task| task.path()));
        Ok(folders.filter_map(thread).collect())
    }
}

/// A thread of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The thread's ID.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPU time that it has used, in nanoseconds.
    pub cpu_ns: u64,
}

/// CPU time between two snapshots, by name. Threads with the same name are added up.
#[must_use]
pub(crate) fn used(before: &[Thread], after: &[Thread]) -> Vec<(String, u64)> {
    let mut used = std::collections::BTreeMap::<_, u64>::new();
    for thread in after {
        let known = before.iter().find(|known| known.tid == thread.tid);
        let known = known.map_or(0, |known| known.cpu_ns);
        *used.entry(thread.name.clone()).or_default() += thread.cpu_ns.saturating_sub(known);
    }
    used.into_iter().collect()
}

/// Steal time since boot: how long a hypervisor withheld a CPU of this machine, in nanoseconds,
/// averaged over all CPUs. 0 if the kernel does not report it.
#[must_use]
pub fn stolen_ns() -> u64 {
    // USER_HZ: 100 on every current Linux architecture except Alpha.
    const TICK_NS: u64 = 10_000_000;
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let mut lines = text.lines();
    let all = lines.next().and_then(|line| line.strip_prefix("cpu "));
    let stolen = all.and_then(|line| line.split_ascii_whitespace().nth(7)?.parse::<u64>().ok());
    let cpus = lines
        .take_while(|line| line.starts_with("cpu"))
        .count()
        .max(1);
    stolen.unwrap_or(0).saturating_mul(TICK_NS) / cpus as u64
}

fn is_node(pid: u32) -> bool {
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    program.is_ok_and(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        // The kernel appends this if the file was replaced.
        let name = name.map(|name| name.strip_suffix(" (deleted)").unwrap_or(name));
        name.is_some_and(|name| PROGRAMS.contains(&name))
    })
}

fn describe(pid: u32) -> String {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let program = match fs::read_link(format!("/proc/{pid}/exe")) {
        Ok(path) => Name(&path).to_string(),
        Err(_) => printable(read("comm").unwrap_or_default().trim_end()),
    };
    // "Uid:", the real UID, and three others.
    let status = read("status").unwrap_or_default();
    let mut lines = status.lines();
    let uid = lines.find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next());
    let user = uid.map_or_else(|| "that has ended".to_owned(), user);
    format!("process {pid}, {program}, of {user}")
}

/// A user's name and UID. Only the UID if `/etc/passwd` does not list it.
fn user(uid: &str) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // Name, password placeholder, UID.
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| printable(name))
    });
    name.map_or_else(
        || format!("user {uid}"),
        |name| format!("user {name} ({uid})"),
    )
}

/// The process that started it.
fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The fields of `/proc/PID/stat` after the name, which may itself contain spaces and parentheses.
fn stat(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    Some(fields.to_owned())
}

/// Start time of a process in ticks since boot. `None` if it has ended or is about to.
fn started(pid: u32) -> Option<u64> {
    /// The kernel's flag of a thread that exits. A process keeps it until its parent has waited
    /// for it.
    const PF_EXITING: u64 = 4;
    let fields = stat(pid)?;
    // The flags are field 7, and the start time field 20.
    let mut fields = fields.split_ascii_whitespace();
    let flags: u64 = fields.nth(6)?.parse().ok()?;
    let started = fields.nth(12)?.parse().ok()?;
    (flags & PF_EXITING == 0).then_some(started)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    #[test]
    fn users() {
        assert_eq!(user("0"), "user root (0)");
        assert_eq!(user("4294967294"), "user 4294967294");
    }

    #[test]
    fn this_process() {
        let this = Process::with_pid(std::process::id()).unwrap();
        let before = this.threads().unwrap();
        let mut sum = 0_u64;
        for number in 0..3_000_000_u64 {
            sum = std::hint::black_box(sum ^ number);
        }
        let after = this.threads().unwrap();
        assert!(used(&before, &after).iter().any(|(_, ns)| *ns > 100_000));
        assert!(matches!(
            Process { started: 1, ..this }.threads(),
            Err(ProcessError::Ended { .. })
        ));
        let said = this.describe();
        let program = std::env::current_exe().unwrap();
        let expected = format!("process {}, {}, of user ", this.pid, program.display());
        assert!(said.starts_with(&expected), "{said}");
        assert!(matches!(
            Process::with_pid(u32::MAX),
            Err(ProcessError::NotThere { .. })
        ));
    }

    /// With -daemon, a node is the child of a process with the same program.
    #[test]
    fn the_parent_of_a_node_is_none() {
        let folder = std::env::temp_dir().join(format!("packetlane-fork-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("bitcoind");
        fs::copy("/bin/sh", &program).unwrap();
        let child = "echo $$; while kill -0 $PPID 2>/dev/null; do sleep 0.05; done";
        let mut parent = Command::new(&program)
            .args(["-c", "\"$0\" -c \"$1\" & wait"])
            .args([program.as_os_str(), child.as_ref()])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = String::new();
        let mut output = BufReader::new(parent.stdout.take().unwrap());
        output.read_line(&mut child).unwrap();
        // Other nodes may run here.
        let (nodes, more) = match Process::find() {
            Ok(process) => (vec![process.describe()], 0),
            Err(ProcessError::Several { nodes, more }) => (nodes, more),
            Err(error) => panic!("{error}"),
        };
        parent.kill().unwrap();
        parent.wait().unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let has = |pid: &str| {
            nodes
                .iter()
                .any(|node| node.starts_with(&format!("process {pid},")))
        };
        assert!(more > 0 || has(child.trim()), "{nodes:?} {child}");
        assert!(!has(&parent.id().to_string()), "{nodes:?}");
    }

    /// A process has ended although its parent has not yet waited for it.
    #[test]
    fn a_zombie() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = Process::with_pid(child.id()).unwrap();
        process.threads().unwrap();
        drop(child.stdin.take());
        let end = Instant::now() + Duration::from_secs(10);
        while !matches!(process.threads(), Err(ProcessError::Ended { .. })) {
            assert!(Instant::now() < end);
            sleep(Duration::from_millis(1));
        }
        child.wait().unwrap();
    }
}
