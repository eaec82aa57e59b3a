//! Timings of a batch on the device.

/// Timings of a batch, in seconds. Except for `total`, they are sums over all pieces, which
/// overlap, and are 0 unless [`RunOptions::timed`](crate::RunOptions::timed) was set.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// From host memory to host memory, by the CPU's clock.
    pub total: f64,
    /// Copies to the device, by the device's clock.
    pub to_device: f64,
    /// Kernels, by the device's clock.
    pub kernels: f64,
    /// Copies from the device, by the device's clock.
    pub from_device: f64,
    /// Bytes copied to the device: packets, descriptors and keys.
    pub bytes_to_device: usize,
    /// Bytes copied from the device: packets and verdicts.
    pub bytes_from_device: usize,
    /// Packets that ran on the device.
    pub packets: usize,
    /// Packets that the CPU processed in the meantime.
    pub helped: usize,
    /// Number of pieces on the device.
    pub pieces: usize,
}
