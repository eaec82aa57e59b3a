//! The BPF programs of `bpf/peers.bpf.c`: loads them, attaches them to places in the node's
//! executable, and reads their results.

use super::arguments::Argument;
use super::binary::{MAX_TRACEPOINTS, Places, Tracepoint};
use super::cost::{CallCost, ProbeCost};
use super::machine::{self, Place};
use super::perf::{Attached, UprobeKind, UprobePmu};
use crate::record::{Calls, Cost};
use aya::maps::{Array, HashMap, MapData, MapError, RingBuf};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, ProgramError, UProbe};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// The compiled programs, built by `tools/bpf`.
const PROGRAMS: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/peers.bpf.o"));

/// Names of the programs: those of their C functions.
const ENTER: &str = "enter";
const LEAVE: &str = "leave";
const TRACEPOINT: &str = "tracepoint";
/// The program that runs at every context switch, and the kernel tracepoint it attaches to.
const SWITCHED: &str = "switched";
const SWITCH: &str = "sched_switch";

/// The two functions, as numbered in the programs.
const RECEIVING: u64 = 0;
const SENDING: u64 = 1;

/// Indices into the programs' `settings` and `counts`.
const SECOND_ARGUMENT_AT: u32 = 0;
const CALL_NS: u32 = 1;
const HIT_NS: u32 = 2;
const OPENED_NS: u32 = 3;
const MAX_PROBES_NS: u32 = 4;
const LOST: u32 = 0;
const SPENT_NS: u32 = 1;
const BETWEEN_NS: u32 = 2;
const IDLE_GAP_NS: u32 = 3;
const IDLE_GAPS: u32 = 4;

/// An index into `sites` without a tracepoint.
const NO_SITE: u64 = MAX_TRACEPOINTS as u64;
/// Number of tracepoint arguments in the programs' `struct site`.
const MAX_ARGUMENTS: usize = 6;
/// Sizes of the programs' `struct site` and `struct argument`, in bytes.
const SITE_LEN: usize = 8 + MAX_ARGUMENTS * ARGUMENT_LEN;
const ARGUMENT_LEN: usize = 16;
/// Size of the programs' `struct visits`, in bytes.
pub(super) const VISITS_LEN: usize = 8 + 2 * 24;

/// Calls for one peer, by function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visits {
    /// The peer's id, or -1 as long as the programs do not know it.
    pub(super) peer: i64,
    pub(super) receiving: Calls,
    pub(super) sending: Calls,
}

impl Visits {
    /// Parses the programs' `struct visits`.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut numbers = bytes
            .as_chunks()
            .0
            .iter()
            .map(|bytes| u64::from_ne_bytes(*bytes));
        let mut next = || numbers.next().unwrap_or_default();
        let peer = next().cast_signed();
        let mut calls = || Calls {
            count: next(),
            cost: Cost {
                wall_ns: next(),
                cpu_ns: next(),
            },
        };
        Self {
            peer,
            receiving: calls(),
            sending: calls(),
        }
    }

    /// The calls since `earlier`, which may belong to a previous object at the same address.
    pub(super) fn since(self, earlier: Self) -> Self {
        let less = |calls: Calls, earlier: Calls| {
            Some(Calls {
                count: calls.count.checked_sub(earlier.count)?,
                cost: Cost {
                    wall_ns: calls.cost.wall_ns.checked_sub(earlier.cost.wall_ns)?,
                    cpu_ns: calls.cost.cpu_ns.checked_sub(earlier.cost.cpu_ns)?,
                },
            })
        };
        let receiving = less(self.receiving, earlier.receiving);
        match (receiving, less(self.sending, earlier.sending)) {
            (Some(receiving), Some(sending)) => Self {
                receiving,
                sending,
                ..self
            },
            _ => self,
        }
    }

    /// The number of calls.
    pub(super) fn count(self) -> u64 {
        self.receiving.count.saturating_add(self.sending.count)
    }
}

/// The programs' counters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Events lost because the ring was full.
    pub(super) lost: u64,
    /// Nanoseconds spent in probes at tracepoints.
    pub(super) hits_ns: u64,
    /// CPU nanoseconds between the end of a call and the start of the next.
    pub(super) between_ns: u64,
    /// The same, only between the two calls for one peer, where the node does nothing; and how
    /// often.
    pub(super) idle_gap_ns: u64,
    pub(super) idle_gaps: u64,
}

impl Counts {
    /// The difference to `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            hits_ns: self.hits_ns - earlier.hits_ns,
            between_ns: self.between_ns - earlier.between_ns,
            idle_gap_ns: self.idle_gap_ns - earlier.idle_gap_ns,
            idle_gaps: self.idle_gaps - earlier.idle_gaps,
        }
    }
}

/// Nanoseconds since boot, by the clock that the programs use.
pub(super) fn since_boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

/// Event types, and purposes of tracepoints.
const INBOUND_MESSAGE: u32 = 1;
const OUTBOUND_MESSAGE: u32 = 2;
const CONNECTED: u32 = 3;
const DISCONNECTED: u32 = 4;
const BLOCK_CONNECTED: u32 = 7;
const TRANSACTION_ADDED: u32 = 8;

/// Why the programs could not be loaded or attached.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel has no type information (BTF), which is needed to find a thread's run time.
    NoBtf,
    /// The kernel has no uprobes, or hides them from this process.
    NoUprobes(io::Error),
    /// The kernel does not record how long a thread has run.
    NoThreadTimes(io::Error),
    /// This process may not load BPF programs.
    NoPermission,
    /// The kernel rejected a program.
    Load(Box<dyn std::error::Error + Send + Sync>),
    /// A program could not be attached to the node.
    Attach {
        /// Where.
        place: String,
        /// The kernel's error.
        error: io::Error,
    },
    /// The programs' results cannot be read.
    Read(MapError),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBtf => f.write_str(
                "probes cannot measure CPU time on this kernel: it has no type information \
                 (/sys/kernel/btf/vmlinux); it needs CONFIG_DEBUG_INFO_BTF and CONFIG_BPF_SYSCALL; \
                 use --rpc",
            ),
            Self::NoUprobes(error) => write!(
                f,
                "this kernel has no uprobes, or this container hides them \
                 (/sys/bus/event_source/devices/uprobe: {error}); it needs CONFIG_UPROBES and \
                 CONFIG_UPROBE_EVENTS; use --rpc"
            ),
            Self::NoThreadTimes(error) => write!(
                f,
                "this kernel does not say how long a thread has run (/proc/self/schedstat: \
                 {error}); it needs CONFIG_SCHED_INFO; use --rpc"
            ),
            Self::NoPermission => f.write_str(
                "probes need root, or CAP_SYS_ADMIN, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH (before \
                 July 2025's kernels, CAP_BPF and CAP_PERFMON in place of CAP_SYS_ADMIN); or use \
                 --rpc",
            ),
            Self::Load(error) => write!(
                f,
                "the kernel rejects the probes' BPF program, which needs Linux 5.15 with \
                 CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS: {error}"
            ),
            Self::Attach { place, error } => {
                write!(f, "cannot attach a probe to {place}: {error}")
            }
            Self::Read(error) => write!(f, "cannot read the probes' results: {error}"),
        }
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            Self::NoUprobes(error) | Self::NoThreadTimes(error) | Self::Attach { error, .. } => {
                Some(error)
            }
            Self::Read(error) => Some(error),
            Self::NoBtf | Self::NoPermission => None,
        }
    }
}

impl From<MapError> for KernelError {
    fn from(error: MapError) -> Self {
        Self::Read(error)
    }
}

/// Removes probes. The kernel waits until no CPU runs them: once for all, not for each.
fn detach(probes: Vec<Attached>) {
    std::thread::scope(|scope| {
        for probe in probes {
            scope.spawn(move || drop(probe));
        }
    });
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let mut probes = std::mem::take(&mut self.window);
        probes.append(&mut self.lasting);
        detach(probes);
    }
}

/// The programs: loaded, and attached where they observe connections.
pub(super) struct Kernel {
    ebpf: Ebpf,
    /// The ring of events. It remembers the read position.
    events: RingBuf<MapData>,
    pmu: UprobePmu,
    /// The node's executable, and its PID.
    program: PathBuf,
    pid: u32,
    places: Places,
    /// Permanent probes, at tracepoints.
    lasting: Vec<Attached>,
    /// Probes of the current window.
    window: Vec<Attached>,
    switches: Option<BtfTracePointLink>,
    cost: ProbeCost,
    call: CallCost,
}

impl Kernel {
    /// Loads the programs.
    pub(super) fn load(
        program: &Path,
        pid: u32,
        places: Places,
        ring: u32,
    ) -> Result<Self, KernelError> {
        if !Path::new("/sys/kernel/btf/vmlinux").exists() {
            return Err(KernelError::NoBtf);
        }
        let pmu = UprobePmu::find().map_err(KernelError::NoUprobes)?;
        std::fs::metadata("/proc/self/schedstat").map_err(KernelError::NoThreadTimes)?;
        let mut ebpf = EbpfLoader::new()
            .set_max_entries("events", ring)
            .load(PROGRAMS)
            .map_err(refused)?;
        for name in [ENTER, LEAVE, TRACEPOINT] {
            probe(&mut ebpf, name)?.load().map_err(not_loaded)?;
        }
        let btf = Btf::from_sys_fs().map_err(|_| KernelError::NoBtf)?;
        let switched: &mut BtfTracePoint = switched(&mut ebpf)?;
        switched.load(SWITCH, &btf).map_err(not_loaded)?;
        let mut settings: Array<_, u64> = map(&mut ebpf, "settings")?;
        settings.set(
            SECOND_ARGUMENT_AT,
            u64::from(machine::THIS.second_argument),
            0,
        )?;
        let mut sites: Array<_, [u8; SITE_LEN]> = map(&mut ebpf, "sites")?;
        for (index, tracepoint) in (0..).zip(places.tracepoints.iter()) {
            sites.set(index, site(tracepoint), 0)?;
        }
        let events = ebpf.take_map("events").ok_or_else(missing)?;
        Ok(Self {
            events: RingBuf::try_from(events)?,
            ebpf,
            pmu,
            program: program.to_owned(),
            pid,
            places,
            lasting: Vec::new(),
            window: Vec::new(),
            switches: None,
            cost: ProbeCost::default(),
            call: CallCost::default(),
        })
    }

    /// Attaches the permanent probes, those at tracepoints: they observe connections and blocks.
    /// `cost` is the cost of all probes.
    pub(super) fn stay(&mut self, cost: ProbeCost) -> Result<(), KernelError> {
        self.cost = cost;
        self.set_outside(2 * cost.call.outside_ns)?;
        self.set_limit(cost.call.limit_ns())?;
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        settings.set(HIT_NS, cost.hit_ns, 0)?;
        self.lasting = self.attach_tracepoints()?;
        Ok(())
    }

    /// Attaches the program that observes context switches.
    pub(super) fn attach_switches(&mut self) -> Result<(), KernelError> {
        let program = switched(&mut self.ebpf)?;
        let link = program.attach().and_then(|link| program.take_link(link));
        self.switches = Some(link.map_err(not_loaded)?);
        Ok(())
    }

    /// Attaches the probes of a window.
    pub(super) fn open_window(&mut self) -> Result<(), KernelError> {
        self.attach_switches()?;
        let mut window = Vec::new();
        let (program, pid) = (self.program.clone(), self.pid);
        let functions = [
            (
                RECEIVING,
                self.places.receiving,
                "the function that receives",
            ),
            (SENDING, self.places.sending, "the function that sends"),
        ];
        for (function, offset, name) in functions {
            window.extend(self.attach_ends(&program, pid, offset, function, name)?);
        }
        self.window = window;
        self.set_opened(since_boot_ns())
    }

    /// Tells the programs when the window was opened. 0 if none is open.
    fn set_opened(&mut self, ns: u64) -> Result<(), KernelError> {
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        Ok(settings.set(OPENED_NS, ns, 0)?)
    }

    /// Attaches the probes at entry and return of a function. The return comes first: otherwise a
    /// call could be seen to start but not to end.
    fn attach_ends(
        &mut self,
        program: &Path,
        pid: u32,
        offset: u64,
        function: u64,
        name: &str,
    ) -> Result<[Attached; 2], KernelError> {
        let mut attach =
            |what, kind| self.attach(what, kind, (program, pid), (offset, None), function, name);
        let leave = attach(LEAVE, UprobeKind::Return)?;
        Ok([leave, attach(ENTER, UprobeKind::Entry)?])
    }

    /// Attaches the probes of the two functions to functions of process `pid`.
    pub(super) fn attach_functions(
        &mut self,
        pid: u32,
        places: &[(PathBuf, u64); 2],
    ) -> Result<Vec<Attached>, KernelError> {
        let mut attached = Vec::new();
        for ((file, offset), function) in places.iter().zip([RECEIVING, SENDING]) {
            let name = "a function of this program";
            attached.extend(self.attach_ends(file, pid, *offset, function, name)?);
        }
        Ok(attached)
    }

    /// Attaches the tracepoint program to an instruction without a tracepoint.
    pub(super) fn attach_idle(
        &mut self,
        program: &Path,
        pid: u32,
        offset: u64,
    ) -> Result<Attached, KernelError> {
        let (place, name) = ((offset, None), "an instruction of this program");
        self.attach(
            TRACEPOINT,
            UprobeKind::Entry,
            (program, pid),
            place,
            NO_SITE,
            name,
        )
    }

    /// Removes the probes of the window and those of [`Kernel::attach_switches`].
    pub(super) fn close_window(&mut self) {
        // Cannot fail: the map has this index.
        let _ = self.set_opened(0);
        detach(std::mem::take(&mut self.window));
        self.switches = None;
    }

    fn attach_tracepoints(&mut self) -> Result<Vec<Attached>, KernelError> {
        let tracepoints = self.places.tracepoints.clone();
        let (program, pid) = (self.program.clone(), self.pid);
        let tracepoints = (0_u64..).zip(tracepoints.iter());
        tracepoints
            .map(|(index, tracepoint)| {
                let place = (tracepoint.offset, tracepoint.semaphore);
                let name = format!("the tracepoint {}", tracepoint.name);
                let process = (program.as_path(), pid);
                self.attach(TRACEPOINT, UprobeKind::Entry, process, place, index, &name)
            })
            .collect()
    }

    fn attach(
        &mut self,
        program: &str,
        kind: UprobeKind,
        (file, pid): (&Path, u32),
        (offset, semaphore): (u64, Option<u64>),
        cookie: u64,
        name: &str,
    ) -> Result<Attached, KernelError> {
        let failed = |error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => KernelError::NoPermission,
            _ => KernelError::Attach {
                place: name.to_owned(),
                error,
            },
        };
        let fd = probe(&mut self.ebpf, program)?.fd().map_err(not_loaded)?;
        let place = self.pmu.probe(kind, file, offset, semaphore);
        Attached::new(&place, pid, fd.as_fd(), cookie).map_err(failed)
    }

    /// Passes each pending event to `take`.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(event) = self.events.next() {
            take(&event);
        }
    }

    /// Calls for each peer over the lifetime of its object, by the object's address.
    pub(super) fn visits(&mut self) -> Result<Vec<(u64, Visits)>, KernelError> {
        let visited = self.visited()?;
        let read = |entry: Result<(u64, [u8; VISITS_LEN]), _>| {
            entry.map(|(object, bytes)| (object, Visits::read(&bytes)))
        };
        Ok(visited.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Calls for the peer with this object.
    pub(super) fn visits_of(&mut self, object: u64) -> Result<Visits, KernelError> {
        match self.visited()?.get(&object, 0) {
            Ok(visits) => Ok(Visits::read(&visits)),
            Err(MapError::KeyNotFound) => Ok(Visits::default()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the calls for the peer with this object.
    pub(super) fn forget(&mut self, object: u64) -> Result<(), KernelError> {
        Ok(self.visited()?.remove(&object)?)
    }

    fn visited(&mut self) -> Result<HashMap<&mut MapData, u64, [u8; VISITS_LEN]>, KernelError> {
        map(&mut self.ebpf, "visited")
    }

    /// Tells the programs which peer this object belongs to.
    pub(super) fn name(&mut self, object: u64, peer: i64) -> Result<(), KernelError> {
        let mut objects: HashMap<_, i64, u64> = map(&mut self.ebpf, "objects")?;
        Ok(objects.insert(peer, object, 0)?)
    }

    /// The counters so far.
    pub(super) fn counts(&mut self) -> Result<Counts, KernelError> {
        let counts: Array<_, u64> = map(&mut self.ebpf, "counts")?;
        Ok(Counts {
            lost: counts.get(&LOST, 0)?,
            hits_ns: counts.get(&SPENT_NS, 0)?,
            between_ns: counts.get(&BETWEEN_NS, 0)?,
            idle_gap_ns: counts.get(&IDLE_GAP_NS, 0)?,
            idle_gaps: counts.get(&IDLE_GAPS, 0)?,
        })
    }

    /// Tells the programs what to subtract from each call, for a node in which the probes take
    /// `outside_ns` outside of it.
    pub(super) fn set_outside(&mut self, outside_ns: u64) -> Result<(), KernelError> {
        self.call = self.cost.call.with_outside(outside_ns);
        let inside_ns = self.call.inside_ns;
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        Ok(settings.set(CALL_NS, inside_ns, 0)?)
    }

    /// Sets the upper limit of the probes' own time outside of a call.
    pub(super) fn set_limit(&mut self, ns: u64) -> Result<(), KernelError> {
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        Ok(settings.set(MAX_PROBES_NS, ns, 0)?)
    }

    /// The current cost of the probes of a call.
    pub(super) fn call_cost(&self) -> CallCost {
        self.call
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kernel")
            .field("program", &self.program)
            .field("pid", &self.pid)
            .finish_non_exhaustive()
    }
}

/// The event type of a tracepoint.
fn event(tracepoint: &Tracepoint) -> u32 {
    match tracepoint.name.as_str() {
        "inbound_message" => INBOUND_MESSAGE,
        "outbound_message" => OUTBOUND_MESSAGE,
        "closed_connection" => DISCONNECTED,
        "block_connected" => BLOCK_CONNECTED,
        "added" => TRANSACTION_ADDED,
        _ => CONNECTED,
    }
}

/// Encodes a tracepoint as the programs' `struct site`.
fn site(tracepoint: &Tracepoint) -> [u8; SITE_LEN] {
    let mut site = [0; SITE_LEN];
    site[..4].copy_from_slice(&event(tracepoint).to_ne_bytes());
    let places = site[8..].as_chunks_mut::<ARGUMENT_LEN>().0;
    for (place, argument) in places.iter_mut().zip(&tracepoint.arguments) {
        *place = self::argument(*argument);
    }
    site
}

/// Encodes an argument as the programs' `struct argument`.
fn argument(argument: Argument) -> [u8; ARGUMENT_LEN] {
    let (place, register, value) = match argument.place {
        Place::Constant(value) => (1, 0, value),
        Place::Register(register) => (2, register, 0),
        Place::Memory { register, offset } => (3, register, offset),
    };
    let mut bytes = [0; ARGUMENT_LEN];
    bytes[0] = place;
    bytes[1] = 64 - 8 * argument.len;
    bytes[2] = argument.is_signed.into();
    bytes[4..8].copy_from_slice(&register.to_ne_bytes());
    bytes[8..].copy_from_slice(&value.to_ne_bytes());
    bytes
}

fn probe<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut UProbe, KernelError> {
    let program = ebpf.program_mut(name);
    program.ok_or_else(missing)?.try_into().map_err(not_loaded)
}

fn switched(ebpf: &mut Ebpf) -> Result<&mut BtfTracePoint, KernelError> {
    let program = ebpf.program_mut(SWITCHED).ok_or_else(missing)?;
    program.try_into().map_err(not_loaded)
}

fn missing() -> KernelError {
    KernelError::Load("one of its parts is missing".into())
}

fn map<'e, M>(ebpf: &'e mut Ebpf, name: &str) -> Result<M, KernelError>
where
    M: TryFrom<&'e mut aya::maps::Map, Error = MapError>,
{
    Ok(M::try_from(ebpf.map_mut(name).ok_or_else(missing)?)?)
}

/// Converts the error of a program that was not loaded.
fn not_loaded(error: ProgramError) -> KernelError {
    match &error {
        ProgramError::LoadError { io_error, .. }
            if io_error.kind() == io::ErrorKind::PermissionDenied =>
        {
            KernelError::NoPermission
        }
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            let log = verifier_log.to_string();
            KernelError::Load(format!("{io_error}{}", verdict(&log)).into())
        }
        _ => KernelError::Load(error.into()),
    }
}

/// The verdict in the verifier's log, which has thousands of lines: the last one before its
/// statistics.
fn verdict(log: &str) -> String {
    let is_statistics = |line: &&str| {
        let starts = ["processed ", "verification time ", "stack depth "];
        starts.iter().any(|start| line.starts_with(start))
    };
    let mut lines = log.lines().map(str::trim).rev();
    let verdict = lines.find(|line| !line.is_empty() && !is_statistics(line));
    verdict.map_or_else(String::new, |verdict| format!(" ({verdict})"))
}

/// Converts the error of maps that were not created.
fn refused(error: EbpfError) -> KernelError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>()
            && error.kind() == io::ErrorKind::PermissionDenied
        {
            return KernelError::NoPermission;
        }
        cause = error.source();
    }
    KernelError::Load(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_verdict_is_one_line() {
        let log = "0: R1=ctx(off=0,imm=0)\n96: (95) exit\nUnreleased reference id=67\n\
                   verification time 211545 usec\nstack depth 80\nprocessed 1720 insns (limit 1)\n\n";
        assert_eq!(verdict(log), " (Unreleased reference id=67)");
        assert_eq!(verdict(""), "");
        assert_eq!(verdict("stack depth 80\n"), "");
    }
}
