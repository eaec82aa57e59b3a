//! A node's process: finding it, and the run time of its threads.

use packetlane_files::{Name, printable};
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

/// The names of the node's programs.
const PROGRAMS: [&str; 3] = ["bitcoind", "bitcoin-node", "bitcoin-qt"];

/// The thread that processes the messages of all peers and makes those that are sent.
pub const MESSAGE_THREAD: &str = "b-msghand";

/// The thread that reads and writes the sockets, and decrypts BIP324.
pub const NETWORK_THREAD: &str = "b-net";

/// How many nodes an error names, at most: any user can start as many as they like.
const MAX_NAMED: usize = 8;

/// A running node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process {
    pid: u32,
    /// When it was started, in ticks since boot: a process that has the same number later has
    /// another of these.
    started: u64,
}

/// Why there is no process to watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum ProcessError {
    /// None of the node's programs runs here.
    None,
    /// Several run.
    Several {
        /// Them, as [`Process::describe`] does, in order of their process numbers.
        nodes: Vec<String>,
        /// How many more there are.
        more: usize,
    },
    /// There is no process of this number.
    NotThere {
        /// The number.
        pid: u32,
    },
    /// The process has ended.
    Ended {
        /// Its number.
        pid: u32,
    },
    /// The file system of processes cannot be read.
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
                "no node runs here: there is no process called {}; name one by --pid",
                PROGRAMS.join(", ")
            ),
            Self::Several { nodes, more } => {
                write!(f, "several nodes run here: {}", nodes.join("; "))?;
                if *more > 0 {
                    write!(f, "; and {more} more")?;
                }
                f.write_str("; choose one by --pid")
            }
            Self::NotThere { pid } => write!(f, "there is no process {pid}"),
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

    /// The only node that runs here, whoever's it is: any program called as the node's counts, so
    /// say which it is ([`Process::describe`]).
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

    /// The node that listens on a TCP port of this machine, if it is seen: of another user's
    /// process it takes root to see that. None if several do, on different addresses.
    #[must_use]
    pub fn listening_on(port: u16) -> Option<Self> {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
        let tables: String = tables.into_iter().flatten().collect();
        // A line has its number, the local address, the remote one, the state, and, sixth after
        // that, the socket's number.
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

    /// Its number.
    #[must_use]
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Its number, program and user, for a person.
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
        // A thread can end between the list and its files.
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
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPU time that it has used, in nanoseconds.
    pub cpu_ns: u64,
}

/// What each thread has used between two looks, by name: threads of one name count together.
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

/// For how long a host has taken away a CPU of this machine since it started, in nanoseconds: the
/// mean of all CPUs. 0 if the kernel does not say.
#[must_use]
pub fn stolen_ns() -> u64 {
    // USER_HZ, on every architecture that Linux has today but Alpha.
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
        // The kernel says so of a program whose file was replaced.
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
    // "Uid:", the real one, and three more.
    let status = read("status").unwrap_or_default();
    let mut lines = status.lines();
    let uid = lines.find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next());
    let user = uid.map_or_else(|| "that has ended".to_owned(), user);
    format!("process {pid}, {program}, of {user}")
}

/// A user by name and number, or by number alone if only a name service knows the name.
fn user(uid: &str) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    // The name, a password that is not there, the number.
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

/// When a process was started, in ticks since boot.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name, in brackets, may have spaces and brackets in it. 20 fields follow.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
