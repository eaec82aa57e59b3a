//! The programs of `bpf/peers.bpf.c` in the kernel: loading them, attaching them to places in the
//! node's program, and reading what they saw.

use super::arguments::{Argument, Place, SECOND_ARGUMENT};
use super::binary::{MAX_TRACEPOINTS, Places, Tracepoint};
use super::cost::{CallCost, ProbeCost};
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

/// The compiled programs. `tools/bpf` makes them.
const PROGRAMS: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/bpf/peers.bpf.o"));

/// Names of the programs, which are those of their functions.
const ENTER: &str = "enter";
const LEAVE: &str = "leave";
const TRACEPOINT: &str = "tracepoint";
/// The program that runs when a CPU changes threads, and the place in the kernel where it does.
const SWITCHED: &str = "switched";
const SWITCH: &str = "sched_switch";

/// The two functions, as the programs number them.
const RECEIVING: u64 = 0;
const SENDING: u64 = 1;

/// Places in their `settings`, and in their `counts`.
const SECOND_ARGUMENT_AT: u32 = 0;
const CALL_NS: u32 = 1;
const HIT_NS: u32 = 2;
const OPENED_NS: u32 = 3;
const LOST: u32 = 0;
const SPENT_NS: u32 = 1;
const BETWEEN_NS: u32 = 2;
const BESIDE_NS: u32 = 3;
const BESIDES: u32 = 4;

/// The place behind those for tracepoints that the programs have: none's.
const NO_SITE: u64 = MAX_TRACEPOINTS as u64;
/// Arguments of a tracepoint that they read.
const MAX_ARGUMENTS: usize = 6;
/// Length of their `struct site` and of its arguments, in bytes.
const SITE_LEN: usize = 8 + MAX_ARGUMENTS * ARGUMENT_LEN;
const ARGUMENT_LEN: usize = 16;
/// Length of their `struct visits`.
pub(super) const VISITS_LEN: usize = 8 + 2 * 24;

/// The calls for one peer, by function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Visits {
    /// Its number, or -1 as long as the programs do not know that.
    pub(super) peer: i64,
    pub(super) receiving: Calls,
    pub(super) sending: Calls,
}

impl Visits {
    /// Reads the programs' `struct visits`.
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

    /// What has come since `earlier`, which another object may have had at the same address.
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

    /// How many calls.
    pub(super) fn count(self) -> u64 {
        self.receiving.count.saturating_add(self.sending.count)
    }
}

/// What the programs count.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Events for which there was no room.
    pub(super) lost: u64,
    /// Nanoseconds that the probes at tracepoints have taken.
    pub(super) hits_ns: u64,
    /// Nanoseconds of CPU time from the end of a call to the beginning of the next.
    pub(super) between_ns: u64,
    /// The same between the two calls for one peer, where the node does nothing; and how often.
    pub(super) beside_ns: u64,
    pub(super) besides: u64,
}

impl Counts {
    /// What was counted since `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            lost: self.lost - earlier.lost,
            hits_ns: self.hits_ns - earlier.hits_ns,
            between_ns: self.between_ns - earlier.between_ns,
            beside_ns: self.beside_ns - earlier.beside_ns,
            besides: self.besides - earlier.besides,
        }
    }
}

/// Nanoseconds since boot, by the programs' clock.
pub(super) fn since_boot_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).cast_unsigned()
}

/// What the tracepoints are for.
const INBOUND_MESSAGE: u32 = 1;
const OUTBOUND_MESSAGE: u32 = 2;
const CONNECTED: u32 = 3;
const DISCONNECTED: u32 = 4;

/// Why the programs are not in the kernel or not at their places.
#[derive(Debug)]
#[non_exhaustive]
pub enum KernelError {
    /// The kernel does not describe its types, without which a thread's run time is not found.
    NoBtf,
    /// The kernel has no probes in user programs, or does not show them here.
    NoUprobes(io::Error),
    /// The process may not load programs.
    NoPermission,
    /// The kernel refused a program.
    Load(Box<dyn std::error::Error + Send + Sync>),
    /// A program was not attached to the node.
    Attach {
        /// To what.
        place: String,
        /// What the kernel said.
        error: io::Error,
    },
    /// What the programs saw cannot be read.
    Read(MapError),
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoBtf => f.write_str(
                "this kernel does not describe its types (no /sys/kernel/btf/vmlinux, \
                 CONFIG_DEBUG_INFO_BTF): probes cannot tell CPU time; use --rpc",
            ),
            Self::NoUprobes(error) => write!(
                f,
                "this kernel has no probes in programs, or hides them in this container \
                 (/sys/bus/event_source/devices/uprobe: {error}); use --rpc"
            ),
            Self::NoPermission => f.write_str(
                "probes need root, or CAP_SYS_ADMIN and CAP_SYS_PTRACE (on a kernel older than July \
                 2025, CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE); or use --rpc",
            ),
            Self::Load(error) => write!(f, "the kernel refuses the probes' program: {error}"),
            Self::Attach { place, error } => {
                write!(f, "no probe could be attached to {place}: {error}")
            }
            Self::Read(error) => write!(f, "what the probes saw cannot be read: {error}"),
        }
    }
}

impl std::error::Error for KernelError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(&**error),
            Self::NoUprobes(error) | Self::Attach { error, .. } => Some(error),
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

/// Takes probes away. For each the kernel waits until no CPU is in it: for all at the same time.
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

/// The programs, loaded and, where they watch connections, attached.
pub(super) struct Kernel {
    ebpf: Ebpf,
    /// It remembers how far it was read.
    events: RingBuf<MapData>,
    pmu: UprobePmu,
    /// The node's program file, and its process.
    program: PathBuf,
    pid: u32,
    places: Places,
    /// Probes that stay: they tell which peers there are, and of which kind.
    lasting: Vec<Attached>,
    /// Probes of the window that is open.
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
        settings.set(SECOND_ARGUMENT_AT, u64::from(SECOND_ARGUMENT), 0)?;
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

    /// Attaches the probes that stay, which watch connections. `cost` is what they all cost.
    pub(super) fn stay(&mut self, cost: ProbeCost) -> Result<(), KernelError> {
        self.cost = cost;
        self.set_outside(2 * cost.call.outside_ns)?;
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        settings.set(HIT_NS, cost.hit_ns, 0)?;
        self.lasting = self.attach_tracepoints(|event| event != OUTBOUND_MESSAGE)?;
        Ok(())
    }

    /// Has the programs see when a CPU changes threads.
    pub(super) fn attach_switches(&mut self) -> Result<(), KernelError> {
        let program = switched(&mut self.ebpf)?;
        let link = program.attach().and_then(|link| program.take_link(link));
        self.switches = Some(link.map_err(not_loaded)?);
        Ok(())
    }

    /// Attaches the probes of a window.
    pub(super) fn open_window(&mut self) -> Result<(), KernelError> {
        self.attach_switches()?;
        let mut window = self.attach_tracepoints(|event| event == OUTBOUND_MESSAGE)?;
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

    /// Tells the programs when the window was opened; 0: none is open.
    fn set_opened(&mut self, ns: u64) -> Result<(), KernelError> {
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        Ok(settings.set(OPENED_NS, ns, 0)?)
    }

    /// Attaches the probes at entry and return of a function: the return first, so that no call
    /// is seen to begin and never to end.
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

    /// Attaches the probes of the two functions to functions of the process `pid`.
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

    /// Attaches the program of tracepoints to a place that is none.
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

    /// Takes the probes of the window away, and those of [`Kernel::attach_switches`].
    pub(super) fn close_window(&mut self) {
        // The map has this place.
        let _ = self.set_opened(0);
        detach(std::mem::take(&mut self.window));
        self.switches = None;
    }

    fn attach_tracepoints(
        &mut self,
        wanted: impl Fn(u32) -> bool,
    ) -> Result<Vec<Attached>, KernelError> {
        let tracepoints = self.places.tracepoints.clone();
        let (program, pid) = (self.program.clone(), self.pid);
        let tracepoints = (0_u64..).zip(tracepoints.iter());
        tracepoints
            .filter(|(_, tracepoint)| wanted(event(tracepoint)))
            .map(|(index, tracepoint)| {
                let place = (tracepoint.offset, tracepoint.semaphore);
                let name = format!("the tracepoint net:{}", tracepoint.name);
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

    /// Gives each event that waits to `take`.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8])) {
        while let Some(event) = self.events.next() {
            take(&event);
        }
    }

    /// The calls for each peer since its object is there, by the object's address.
    pub(super) fn visits(&mut self) -> Result<Vec<(u64, Visits)>, KernelError> {
        let visited = self.visited()?;
        let read = |entry: Result<(u64, [u8; VISITS_LEN]), _>| {
            entry.map(|(object, bytes)| (object, Visits::read(&bytes)))
        };
        Ok(visited.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The calls for the peer with this object.
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

    /// Tells the programs whose object this is.
    pub(super) fn name(&mut self, object: u64, peer: i64) -> Result<(), KernelError> {
        let mut objects: HashMap<_, i64, u64> = map(&mut self.ebpf, "objects")?;
        Ok(objects.insert(peer, object, 0)?)
    }

    /// What the programs have counted so far.
    pub(super) fn counts(&mut self) -> Result<Counts, KernelError> {
        let counts: Array<_, u64> = map(&mut self.ebpf, "counts")?;
        Ok(Counts {
            lost: counts.get(&LOST, 0)?,
            hits_ns: counts.get(&SPENT_NS, 0)?,
            between_ns: counts.get(&BETWEEN_NS, 0)?,
            beside_ns: counts.get(&BESIDE_NS, 0)?,
            besides: counts.get(&BESIDES, 0)?,
        })
    }

    /// Tells the programs what is to be subtracted from a call, in a node in which the probes take
    /// `outside_ns` outside of it.
    pub(super) fn set_outside(&mut self, outside_ns: u64) -> Result<(), KernelError> {
        self.call = self.cost.call.with_outside(outside_ns);
        let inside_ns = self.call.inside_ns;
        let mut settings: Array<_, u64> = map(&mut self.ebpf, "settings")?;
        Ok(settings.set(CALL_NS, inside_ns, 0)?)
    }

    /// What the probes of a call cost now.
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

/// What a tracepoint is for.
fn event(tracepoint: &Tracepoint) -> u32 {
    match tracepoint.name.as_str() {
        "inbound_message" => INBOUND_MESSAGE,
        "outbound_message" => OUTBOUND_MESSAGE,
        "closed_connection" => DISCONNECTED,
        _ => CONNECTED,
    }
}

/// A tracepoint as the programs' `struct site`.
fn site(tracepoint: &Tracepoint) -> [u8; SITE_LEN] {
    let mut site = [0; SITE_LEN];
    site[..4].copy_from_slice(&event(tracepoint).to_ne_bytes());
    let places = site[8..].as_chunks_mut::<ARGUMENT_LEN>().0;
    for (place, argument) in places.iter_mut().zip(&tracepoint.arguments) {
        *place = self::argument(*argument);
    }
    site
}

/// An argument as the programs' `struct argument`.
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

/// The error of a program that was not loaded.
fn not_loaded(error: ProgramError) -> KernelError {
    match &error {
        ProgramError::LoadError { io_error, .. }
            if io_error.kind() == io::ErrorKind::PermissionDenied =>
        {
            KernelError::NoPermission
        }
        _ => KernelError::Load(error.into()),
    }
}

/// The error of maps that were not made.
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
