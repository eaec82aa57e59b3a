//! Errors of a device.

use core::fmt;

/// Name of the environment variable that selects a device by its number, or `off` for none.
pub const GPU_VARIABLE: &str = "PACKETLANE_GPU";

/// Why a batch, or the rest of one, did not run on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuError {
    /// There is no NVIDIA driver on this machine.
    NoDriver,
    /// The driver finds no device.
    NoDevice,
    /// The driver does not start, or denies access to the device.
    DriverFailed {
        /// The driver call that failed.
        call: &'static str,
        /// The driver's status code (`CUresult`).
        code: u32,
    },
    /// `PACKETLANE_GPU` is `off`.
    Off,
    /// `PACKETLANE_GPU` is neither `off` nor a number.
    BadSetting(String),
    /// `PACKETLANE_GPU` selects a device that does not exist.
    NoSuchDevice {
        /// The selected number.
        index: u32,
        /// Number of devices.
        count: u32,
    },
    /// The driver lacks a function, because it is older than CUDA 12.
    OldDriver {
        /// The missing function.
        call: &'static str,
    },
    /// The driver rejects the kernels.
    BadKernels {
        /// The driver call that failed.
        call: &'static str,
        /// The driver's status code (`CUresult`).
        code: u32,
    },
    /// The device, or this machine's page-locked memory, is full. The next batch may fit.
    OutOfMemory {
        /// How many bytes were requested.
        bytes: usize,
    },
    /// Another batch is on the device.
    Busy,
    /// The device failed, and is not used again by this process.
    Lost {
        /// The driver call that reported the failure.
        call: &'static str,
        /// The driver's status code (`CUresult`).
        code: u32,
    },
    /// A kernel ended without a verdict on a packet. The device is not used again by this process.
    Undone,
}

impl GpuError {
    /// Whether the device is unusable from now on. True for every error except
    /// [`GpuError::OutOfMemory`] and [`GpuError::Busy`].
    #[must_use]
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::OutOfMemory { .. } | Self::Busy)
    }
}

impl fmt::Display for GpuError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver => f.write_str("no CUDA device: no NVIDIA driver is installed"),
            Self::NoDevice => f.write_str("no CUDA device: the driver finds no device"),
            Self::DriverFailed { call, code } => write!(
                f,
                "no CUDA device: the NVIDIA driver does not start ({call}: error {code}); see \
                 what nvidia-smi says"
            ),
            Self::Off => write!(f, "no CUDA device: {GPU_VARIABLE} is off"),
            Self::BadSetting(text) => write!(
                f,
                "no CUDA device: {GPU_VARIABLE} takes off or a device's number, not \"{text}\""
            ),
            Self::NoSuchDevice { index, count } => write!(
                f,
                "no CUDA device {index}: the driver finds {count}, numbered from 0; set \
                 {GPU_VARIABLE} to one of them"
            ),
            Self::OldDriver { call } => write!(
                f,
                "the NVIDIA driver is too old, it has no {call}: install one of CUDA 12 or newer"
            ),
            Self::BadKernels { call, code } => write!(
                f,
                "the NVIDIA driver refuses the kernels ({call}: error {code}): they need a \
                 driver of CUDA 12 or newer and a device of compute capability 7.5 or higher"
            ),
            Self::OutOfMemory { bytes } => write!(
                f,
                "no room for {bytes} bytes on the CUDA device or in page-locked memory: use \
                 smaller batches or fewer streams"
            ),
            Self::Busy => f.write_str("the CUDA device is running another batch"),
            Self::Lost { call, code } => write!(
                f,
                "the CUDA device failed ({call}: error {code}) and is not used again; the CPU \
                 does what it left undone"
            ),
            Self::Undone => f.write_str(
                "the CUDA device left a packet without a verdict and is not used again; the \
                 CPU does what it left undone",
            ),
        }
    }
}

impl core::error::Error for GpuError {}
