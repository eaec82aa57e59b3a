//! Attaches uprobes with `perf_event_open(2)` and `bpf(2)`. The library that loads the programs can
//! attach uprobes too, but does not support a tracepoint's semaphore.

#![allow(unsafe_code, reason = "system calls that no library wraps")]

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Where the kernel describes its uprobes.
const PMU: &str = "/sys/bus/event_source/devices/uprobe";

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// `PERF_EVENT_IOC_ENABLE`.
const ENABLE: libc::Ioctl = 0x2400;
/// `BPF_LINK_CREATE`, and the link type of a perf event.
const LINK_CREATE: libc::c_long = 28;
const PERF_EVENT: u32 = 41;

/// At which end of a function a probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UprobeKind {
    /// At an instruction.
    Entry,
    /// At the return of the function that starts at an instruction.
    Return,
}

/// The kernel's encoding of uprobes.
#[derive(Clone, Copy, Debug)]
pub(super) struct UprobePmu {
    kind: u32,
    return_bit: u32,
    semaphore_shift: u32,
}

impl UprobePmu {
    pub(super) fn find() -> io::Result<Self> {
        let number = |name: &str, prefix: &str| -> io::Result<u32> {
            let text = fs::read_to_string(Path::new(PMU).join(name))?;
            let number = text.trim().strip_prefix(prefix).unwrap_or_default();
            let number = number.split('-').next().unwrap_or_default();
            let unknown = || io::Error::other(format!("{name} is {text:?}"));
            number.parse().map_err(|_| unknown())
        };
        Ok(Self {
            kind: number("type", "")?,
            return_bit: number("format/retprobe", "config:")?,
            semaphore_shift: number("format/ref_ctr_offset", "config:")?,
        })
    }

    /// A probe at `offset` in the executable `file`.
    pub(super) fn probe(
        self,
        kind: UprobeKind,
        file: &Path,
        offset: u64,
        semaphore: Option<u64>,
    ) -> Uprobe {
        let at_return = u64::from(kind == UprobeKind::Return) << self.return_bit;
        Uprobe {
            kind: self.kind,
            config: at_return | semaphore.unwrap_or(0) << self.semaphore_shift,
            // A file system path has no zero byte.
            file: CString::new(file.as_os_str().as_bytes()).unwrap_or_default(),
            offset,
        }
    }
}

/// The parameters of a uprobe.
pub(super) struct Uprobe {
    kind: u32,
    config: u64,
    file: CString,
    offset: u64,
}

/// The first version of the kernel's `struct perf_event_attr` that supports uprobes.
#[repr(C)]
struct PerfEventAttr {
    kind: u32,
    size: u32,
    config: u64,
    unused: [u64; 5],
    config1: u64,
    config2: u64,
}

/// The part of the kernel's `union bpf_attr` that creates a link.
#[repr(C)]
struct LinkAttr {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// An attached program. It is detached on drop, and when this process ends in any way.
#[derive(Debug)]
pub(super) struct Attached {
    _link: OwnedFd,
    _event: OwnedFd,
}

impl Attached {
    /// Attaches `program` at `place` in process `pid`. The program can read `cookie` when it runs.
    pub(super) fn new(
        place: &Uprobe,
        pid: u32,
        program: BorrowedFd<'_>,
        cookie: u64,
    ) -> io::Result<Self> {
        let attr = PerfEventAttr {
            kind: place.kind,
            size: size_of::<PerfEventAttr>() as u32,
            config: place.config,
            unused: [0; 5],
            config1: place.file.as_ptr() as u64,
            config2: place.offset,
        };
        let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
        // SAFETY: the call reads `attr`, of the size that it states, and the path, which ends with
        // a zero byte; both outlive the call. It writes nothing.
        let event = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attr,
                pid,
                -1,
                -1,
                CLOSE_ON_EXEC,
            )
        };
        let event = owned(event)?;
        let attr = LinkAttr {
            program: program.as_raw_fd().cast_unsigned(),
            target: event.as_raw_fd().cast_unsigned(),
            attach_type: PERF_EVENT,
            flags: 0,
            cookie,
        };
        // SAFETY: the call reads `attr`, of the size that is passed, which outlives the call. It
        // writes nothing.
        let link = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                LINK_CREATE,
                &raw const attr,
                size_of::<LinkAttr>(),
            )
        };
        let link = owned(link)?;
        // SAFETY: this request takes no pointer.
        if unsafe { libc::ioctl(event.as_raw_fd(), ENABLE, 0) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            _link: link,
            _event: event,
        })
    }
}

/// The file descriptor that a system call has opened, or its error.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(result) {
        // SAFETY: the kernel has just created it for this process, and nothing else owns it.
        Ok(fd @ 0..) => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}
