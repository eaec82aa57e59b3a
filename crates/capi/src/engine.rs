//! Engines.

use crate::handle::{Guarded, call, free, give, null, read};
use crate::status::{Error, packetlane_status};
use core::ffi::{CStr, c_char};
use packetlane::Engine;
use std::ffi::CString;

/// Seals and opens batches with one instruction set of the CPU. It is immutable and holds no secrets,
/// so threads may share it. Handshakes and sessions made with it do not need it to stay alive.
pub struct packetlane_engine(Guarded<Named>);
handle!(packetlane_engine: Named);

/// An engine and its backend's name as a C string.
pub(crate) struct Named {
    pub(crate) engine: Engine,
    name: CString,
}

impl From<Engine> for Named {
    fn from(engine: Engine) -> Self {
        let name = CString::new(engine.backend().name()).unwrap_or_default();
        Self { engine, name }
    }
}

/// Creates an engine with the best backend for this CPU, or with the one that the environment
/// variable PACKETLANE_BACKEND names.
///
/// Fails with PACKETLANE_BACKEND_UNKNOWN or PACKETLANE_BACKEND_UNAVAILABLE if the variable names a
/// backend that the library does not have or this CPU does not support.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_engine_detect(
    engine: *mut *mut packetlane_engine,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        let engine = unsafe { place!(engine)? };
        give(engine, Engine::detect()?.into());
        Ok(())
    })
}

/// Creates an engine with the backend `name`: "portable" on any CPU, "avx2" or "avx512" on x86-64,
/// "neon" on AArch64.
///
/// Fails with PACKETLANE_BACKEND_UNKNOWN, PACKETLANE_BACKEND_UNAVAILABLE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_engine_named(
    name: *const c_char,
    engine: *mut *mut packetlane_engine,
) -> packetlane_status {
    call(|_| {
        // SAFETY: the header's rules for outputs.
        let engine = unsafe { place!(engine)? };
        // SAFETY: the header's rules for strings.
        let name = unsafe { string(name, "name")? };
        give(engine, Engine::named(&name.to_string_lossy())?.into());
        Ok(())
    })
}

/// Returns the name of the engine's backend. The string lives as long as the engine. NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_engine_backend(
    engine: *const packetlane_engine,
) -> *const c_char {
    // SAFETY: the header's rules for handles.
    read(core::ptr::null(), || unsafe {
        Ok(look!(engine)?.name.as_ptr())
    })
}

/// Frees an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetlane_engine_free(engine: *mut packetlane_engine) {
    // SAFETY: the header's rules for handles.
    unsafe { free(engine) }
}

/// Borrows a C string.
///
/// # Safety
///
/// `string` is NULL, or NUL-terminated and unchanged while the result lives.
pub(crate) unsafe fn string<'a>(string: *const c_char, name: &str) -> Result<&'a CStr, Error> {
    if string.is_null() {
        return Err(null(name));
    }
    // SAFETY: not NULL, and the caller's promise.
    Ok(unsafe { CStr::from_ptr(string) })
}
