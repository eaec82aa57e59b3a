//! Guarantees of every call from C: no panic crosses it, NULL is refused, and a handle that a panic
//! may have left inconsistent is not used again.
//!
//! The functions here are unsafe because only the C caller can uphold the rules at the top of the
//! header.

use crate::status::{Error, packetlane_status, packetlane_status::*};
use core::any::Any;
use core::fmt::Display;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use core::slice;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The `poisoned` flags of the handles that a call may change, at most two.
pub(crate) struct Used([Option<NonNull<bool>>; 2]);

/// Runs the body of a function called from C.
#[inline]
pub(crate) fn call(body: impl FnOnce(&mut Used) -> Result<(), Error>) -> packetlane_status {
    let mut used = Used([None; 2]);
    // Unwind safe: the handles that the body could change are poisoned after a panic.
    match catch_unwind(AssertUnwindSafe(|| body(&mut used))) {
        Ok(Ok(())) => PACKETLANE_OK,
        Ok(Err(error)) => error.status(),
        Err(panic) => {
            for poisoned in used.0.into_iter().flatten() {
                // SAFETY: a field of a handle passed to `change`. Only the body used it, and the body
                // has ended.
                unsafe { poisoned.write(true) };
            }
            panicked(panic)
        }
    }
}

/// Like [`call`], for functions that take the next item: `None` is `PACKETLANE_END`.
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

/// Runs the body of a function that returns its value directly, or `nothing` on an error.
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
    // Dropping the panic payload may panic again; the second payload is leaked.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        core::mem::forget(panic);
    }
    status
}

/// The value of a handle, and whether a panic may have left it inconsistent. The flag comes first, so
/// that it shares a cache line with the fields a call reads next: with hundreds of sessions every line
/// is a cache miss.
#[repr(C)]
pub(crate) struct Guarded<T> {
    poisoned: bool,
    value: T,
}

/// An opaque type that C has pointers to.
pub(crate) trait Handle {
    type Value;
    fn new(guarded: Guarded<Self::Value>) -> Self;
    fn guarded(&self) -> &Guarded<Self::Value>;
    fn guarded_mut(&mut self) -> &mut Guarded<Self::Value>;
}

/// `handle!(name: Value)` implements [`Handle`] for `struct name(Guarded<Value>)`. The struct itself is
/// written out for cbindgen.
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

/// `change!(used, session)` calls [`change`], `look!(engine)` calls [`look`], and so on, with the
/// argument's name for error messages.
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

/// The error for a NULL argument.
#[cold]
pub(crate) fn null(name: impl Display) -> Error {
    let message = format_args!("argument `{name}` is NULL");
    Error::new(PACKETLANE_NULL_ARGUMENT, message)
}

/// Borrows the value of a handle mutably. If the call panics, the handle is poisoned.
///
/// # Safety
///
/// `handle` is NULL, or came from [`give`] and is not freed, and nothing else uses it during the call.
/// A call changes at most two handles.
#[inline]
pub(crate) unsafe fn change<'a, H: Handle + 'a>(
    used: &mut Used,
    handle: *mut H,
    name: &str,
) -> Result<&'a mut H::Value, Error> {
    // SAFETY: the caller's promise: NULL, or a live, aligned value that nothing else uses.
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

/// Borrows the value of a handle.
///
/// # Safety
///
/// `handle` is NULL, or came from [`give`] and is not freed, and nothing changes it while the result
/// lives.
#[inline]
pub(crate) unsafe fn look<'a, H: Handle + 'a>(
    handle: *const H,
    name: &str,
) -> Result<&'a H::Value, Error> {
    // SAFETY: the caller's promise: NULL, or a live, aligned value that nothing changes.
    let handle = unsafe { handle.as_ref() };
    let guarded = handle.ok_or_else(|| null(name))?.guarded();
    if guarded.poisoned {
        return Err(PACKETLANE_POISONED.into());
    }
    Ok(&guarded.value)
}

/// Creates a handle, owned by C until [`free`].
pub(crate) fn give<H: Handle>(out: &mut MaybeUninit<*mut H>, value: H::Value) {
    let poisoned = false;
    out.write(Box::into_raw(Box::new(H::new(Guarded { poisoned, value }))));
}

/// Frees a handle, poisoned or not. Does nothing for NULL.
///
/// # Safety
///
/// `handle` is NULL, or came from [`give`] and is not freed, and nothing uses it now or later.
pub(crate) unsafe fn free<H: Handle>(handle: *mut H) {
    if handle.is_null() {
        return;
    }
    let _ = call(|_| {
        // SAFETY: `give` made it from a box, and by the caller's promise it was not freed.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}

/// Borrows an output. Checked before a call does anything, so that a call without a place for its
/// result has no effect.
///
/// # Safety
///
/// `out` is NULL, or aligned and valid for writing a `T`, and nothing else uses it while the result
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

/// Borrows `len` values at `pointer`.
///
/// # Safety
///
/// `pointer` is NULL, or aligned and valid for reading `len` values that nothing changes while the
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
        // SAFETY: not NULL, the caller's promise, and at most `isize::MAX` bytes.
        _ => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// Borrows `len` values at `pointer` mutably.
///
/// # Safety
///
/// `pointer` is NULL, or aligned and valid for reading and writing `len` values that nothing else uses
/// while the result lives. Every byte sequence is a valid `T`.
#[inline]
pub(crate) unsafe fn list_mut<'a, T>(
    pointer: *mut T,
    len: usize,
    name: impl Display,
) -> Result<&'a mut [T], Error> {
    check_list(pointer, len, name)?;
    match len {
        0 => Ok(&mut []),
        // SAFETY: not NULL, the caller's promise, and at most `isize::MAX` bytes.
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
    let message = format_args!("argument `{name}`: length {len} is larger than any allocation");
    Error::new(PACKETLANE_WRONG_LENGTH, message)
}

/// Returns bytes to C as a pointer and a length.
#[inline]
pub(crate) fn say(
    bytes: &[u8],
    (pointer, len): (&mut MaybeUninit<*const u8>, &mut MaybeUninit<usize>),
) {
    pointer.write(bytes.as_ptr());
    len.write(bytes.len());
}
