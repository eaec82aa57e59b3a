//! What holds for every call from C: no panic leaves it, NULL is refused, and a handle that a
//! panic may have left half changed is not used again.
//!
//! The functions here are unsafe for what only the caller in C can know. What that is stands at
//! the top of the header.

use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::any::Any;
use core::fmt::Display;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The handles whose values a call may change, at most two: where each says that it is poisoned.
pub(crate) struct Used([Option<NonNull<bool>>; 2]);

/// Runs the body of a function that C has called.
#[inline]
pub(crate) fn call(body: impl FnOnce(&mut Used) -> Result<(), Error>) -> packetlane_status {
    let mut used = Used([None; 2]);
    // Whatever the body holds through handles is not seen again after a panic: those that it could
    // change are poisoned.
    match catch_unwind(AssertUnwindSafe(|| body(&mut used))) {
        Ok(Ok(())) => PACKETLANE_OK,
        Ok(Err(error)) => error.status(),
        Err(panic) => {
            for poisoned in used.0.into_iter().flatten() {
                // SAFETY: a field of a handle that `change` was given, whose value the body, which
                // alone had it, does not use any longer.
                unsafe { poisoned.write(true) };
            }
            panicked(panic)
        }
    }
}

/// As [`call`], for the next of several things to take.
#[inline]
pub(crate) fn call_next(
    body: impl FnOnce(&mut Used) -> Result<Option<()>, Error>,
) -> packetlane_status {
    let mut is_end = false;
    let status = call(|used| {
        is_end = body(used)?.is_none();
        Ok(())
    });
    if is_end { PACKETLANE_END } else { status }
}

/// Runs the body of a function that returns what it reads; `nothing` where it cannot.
#[inline]
pub(crate) fn read<T>(nothing: T, body: impl FnOnce() -> Result<T, Error>) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(_)) => nothing,
        Err(panic) => {
            panicked(panic);
            nothing
        }
    }
}

#[cold]
fn panicked(panic: Box<dyn Any + Send>) -> packetlane_status {
    let message = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(message), _) => message,
        (None, Some(message)) => message.as_str(),
        (None, None) => "a panic without a message",
    };
    let status = Error::new(PACKETLANE_PANIC, message).status();
    // What was thrown may panic when it is dropped; what that throws is left alone.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        core::mem::forget(panic);
    }
    status
}

/// What lies behind a handle: a value, and whether a panic may have left it half changed. That comes
/// first, in the cache line of what a call needs next: with hundreds of sessions each line is a miss.
#[repr(C)]
pub(crate) struct Guarded<T> {
    poisoned: bool,
    value: T,
}

/// A type that C has pointers to, and cannot look into.
pub(crate) trait Handle {
    type Value;
    fn new(guarded: Guarded<Self::Value>) -> Self;
    fn guarded(&self) -> &Guarded<Self::Value>;
    fn guarded_mut(&mut self) -> &mut Guarded<Self::Value>;
}

/// `handle!(name: Value)`: what `struct name(Guarded<Value>)` is to this module. The struct itself
/// is written out, where cbindgen sees it.
macro_rules! handle {
    ($name:ident: $value:ty) => {
        impl crate::handle::Handle for $name {
            type Value = $value;

            #[inline]
            fn new(guarded: crate::handle::Guarded<$value>) -> Self {
                Self(guarded)
            }

            #[inline]
            fn guarded(&self) -> &crate::handle::Guarded<$value> {
                &self.0
            }

            #[inline]
            fn guarded_mut(&mut self) -> &mut crate::handle::Guarded<$value> {
                &mut self.0
            }
        }
    };
}

/// `change!(used, session)` is [`change`], `look!(engine)` is [`look`], and so on, for an argument by its
/// name in the header: what an error about it says.
macro_rules! change {
    ($used:ident, $argument:ident) => {
        crate::handle::change($used, $argument, stringify!($argument))
    };
}
macro_rules! look {
    ($argument:ident) => {
        crate::handle::look($argument, stringify!($argument))
    };
}
macro_rules! place {
    ($argument:ident) => {
        crate::handle::place($argument, stringify!($argument))
    };
}
macro_rules! list {
    ($argument:ident, $len:ident) => {
        crate::handle::list($argument, $len, stringify!($argument))
    };
}

/// What a NULL is told that the header does not allow.
#[cold]
pub(crate) fn null(name: impl Display) -> Error {
    let message = format_args!("argument `{name}` is NULL");
    Error::new(PACKETLANE_NULL_ARGUMENT, message)
}

/// The value of a handle, to be changed. If the call panics, the handle is poisoned.
///
/// # Safety
///
/// `handle` is NULL, or was given by [`give`] and not freed, and nobody else uses it while the call
/// lasts. No call changes more than two.
#[inline]
pub(crate) unsafe fn change<'a, H: Handle + 'a>(
    used: &mut Used,
    handle: *mut H,
    name: &str,
) -> Result<&'a mut H::Value, Error> {
    // SAFETY: the caller's promise: a live and aligned value that nobody else uses, or NULL.
    let handle = unsafe { handle.as_mut() };
    let Guarded { poisoned, value } = handle.ok_or_else(|| null(name))?.guarded_mut();
    if *poisoned {
        return Err(PACKETLANE_POISONED.into());
    }
    let [first, second] = &mut used.0;
    let free = if first.is_none() { first } else { second };
    *free = Some(NonNull::from(poisoned));
    Ok(value)
}

/// The value of a handle, to be read.
///
/// # Safety
///
/// `handle` is NULL, or was given by [`give`] and not freed, and nobody changes it while the result
/// lives.
#[inline]
pub(crate) unsafe fn look<'a, H: Handle + 'a>(
    handle: *const H,
    name: &str,
) -> Result<&'a H::Value, Error> {
    // SAFETY: the caller's promise: a live and aligned value that nobody changes, or NULL.
    let handle = unsafe { handle.as_ref() };
    let guarded = handle.ok_or_else(|| null(name))?.guarded();
    if guarded.poisoned {
        return Err(PACKETLANE_POISONED.into());
    }
    Ok(&guarded.value)
}

/// Makes a handle. C has it then, until [`free`].
pub(crate) fn give<H: Handle>(out: &mut MaybeUninit<*mut H>, value: H::Value) {
    let poisoned = false;
    out.write(Box::into_raw(Box::new(H::new(Guarded { poisoned, value }))));
}

/// Frees a handle, poisoned or not. NULL is fine.
///
/// # Safety
///
/// `handle` is NULL, or was given by [`give`] and not freed, and nobody uses it now or later.
pub(crate) unsafe fn free<H: Handle>(handle: *mut H) {
    if handle.is_null() {
        return;
    }
    let _ = call(|_| {
        // SAFETY: `give` made it of a box, which by the caller's promise nobody has taken back.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}

/// A place that a call writes to. It is asked for before anything is done, so that a call that
/// cannot give its result changes nothing.
///
/// # Safety
///
/// `out` is NULL, or aligned and valid for writing a `T`, and nobody else uses it while the result
/// lives.
#[inline]
pub(crate) unsafe fn place<'a, T>(
    out: *mut T,
    name: &str,
) -> Result<&'a mut MaybeUninit<T>, Error> {
    // SAFETY: the caller's promise. `MaybeUninit` has the layout of `T`, and may be uninitialised.
    let out = unsafe { out.cast::<MaybeUninit<T>>().as_mut() };
    out.ok_or_else(|| null(name))
}

/// `len` values from `pointer` on, to be read.
///
/// # Safety
///
/// `pointer` is NULL, or aligned and valid for reading `len` values, which nobody changes while the
/// result lives.
#[inline]
pub(crate) unsafe fn list<'a, T>(
    pointer: *const T,
    len: usize,
    name: impl Display,
) -> Result<&'a [T], Error> {
    check_list(pointer, len, name)?;
    match len {
        0 => Ok(&[]),
        // SAFETY: not NULL; the caller's promise; and no more bytes than `isize` counts.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// `len` values from `pointer` on, to be written over.
///
/// # Safety
///
/// `pointer` is NULL, or aligned and valid for reading and writing `len` values, which nobody else
/// uses while the result lives. Every sequence of bytes is a `T`.
#[inline]
pub(crate) unsafe fn list_mut<'a, T>(
    pointer: *mut T,
    len: usize,
    name: impl Display,
) -> Result<&'a mut [T], Error> {
    check_list(pointer, len, name)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: not NULL; the caller's promise; and no more bytes than `isize` counts.
        _ => Ok(unsafe { slice::from_raw_parts_mut(pointer, len) }),
    }
}

#[inline]
fn check_list<T>(pointer: *const T, len: usize, name: impl Display) -> Result<(), Error> {
    if len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(too_long(len, name));
    }
    if pointer.is_null() && len > 0 {
        return Err(null(name));
    }
    Ok(())
}

#[cold]
fn too_long(len: usize, name: impl Display) -> Error {
    let message = format_args!("argument `{name}` with a length of {len}: no memory is so large");
    Error::new(PACKETLANE_WRONG_LENGTH, message)
}

/// Says where bytes lie, that C may read.
#[inline]
pub(crate) fn say(
    bytes: &[u8],
    (pointer, len): (&mut MaybeUninit<*const u8>, &mut MaybeUninit<usize>),
) {
    pointer.write(bytes.as_ptr());
    len.write(bytes.len());
}
