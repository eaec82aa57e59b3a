//! The CUDA backend: kernels for ChaCha20-Poly1305 over batches of packets.

#[cfg(feature = "emulate")]
pub mod ptx;
