//! CUDA, through the driver API.
//!
//! The functions are looked up in the driver's library when a device is opened. Their
//! signatures are those of `cudarc`'s bindings, but its functions are not used: they panic if
//! the library or a function is missing, and convert a status code that is newer than the
//! bindings into an invalid enum value. Here both are errors.

use crate::driver::{Address, Arg, BLOCK_THREADS, Driver, Handle, Processors};
use crate::error::{GPU_VARIABLE, GpuError};
use crate::kernels::{ENTRIES, PTX};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use cudarc::driver::sys;
use std::ffi::CString;

/// The `CUresult` codes that are handled separately.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const OUT_OF_MEMORY: u32 = 2;
    /// A stub library: it exists for linking only.
    pub(super) const STUB_LIBRARY: u32 = 34;
    pub(super) const NO_DEVICE: u32 = 100;
    pub(super) const NOT_READY: u32 = 600;
}

macro_rules! calls {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The driver's functions.
        #[allow(non_snake_case, reason = "the driver API's names")]
        struct Calls {
            $($name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
        }

        impl Calls {
            /// Looks up all functions.
            ///
            /// # Safety
            ///
            /// The driver's library is present.
            unsafe fn load() -> Result<Self, GpuError> {
                // SAFETY: The caller guarantees that the library is present.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // Checks the bindings' signature. Its result is a 32-bit enum; we use
                        // an integer.
                        let _: unsafe fn($($argument),*) -> sys::CUresult = sys::$name;
                        let call = stringify!($name);
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: The driver's function of this name has this signature.
                        let found = unsafe { library.get(name) };
                        *found.map_err(|_| GpuError::OldDriver { call })?
                    },)*
                })
            }
        }
    };
}

calls! {
    cuInit(c_uint);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGet(*mut sys::CUdevice, c_int);
    cuDeviceGetName(*mut c_char, c_int, sys::CUdevice);
    cuDeviceGetAttribute(*mut c_int, sys::CUdevice_attribute, sys::CUdevice);
    cuDevicePrimaryCtxRetain(*mut sys::CUcontext, sys::CUdevice);
    cuDevicePrimaryCtxRelease_v2(sys::CUdevice);
    cuCtxSetCurrent(sys::CUcontext);
    cuModuleLoadData(*mut sys::CUmodule, *const c_void);
    cuModuleUnload(sys::CUmodule);
    cuModuleGetFunction(*mut sys::CUfunction, sys::CUmodule, *const c_char);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut sys::CUdeviceptr, usize);
    cuMemFree_v2(sys::CUdeviceptr);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFreeHost(*mut c_void);
    cuStreamCreate(*mut sys::CUstream, c_uint);
    cuStreamDestroy_v2(sys::CUstream);
    cuStreamQuery(sys::CUstream);
    cuStreamSynchronize(sys::CUstream);
    cuMemcpyHtoDAsync_v2(sys::CUdeviceptr, *const c_void, usize, sys::CUstream);
    cuMemcpyDtoHAsync_v2(*mut c_void, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemcpyDtoDAsync_v2(sys::CUdeviceptr, sys::CUdeviceptr, usize, sys::CUstream);
    cuMemsetD8Async(sys::CUdeviceptr, core::ffi::c_uchar, usize, sys::CUstream);
    cuLaunchKernel(
        sys::CUfunction,
        c_uint, c_uint, c_uint,
        c_uint, c_uint, c_uint,
        c_uint,
        sys::CUstream,
        *mut *mut c_void,
        *mut *mut c_void
    );
    cuEventCreate(*mut sys::CUevent, c_uint);
    cuEventDestroy_v2(sys::CUevent);
    cuEventRecord(sys::CUevent, sys::CUstream);
    cuEventElapsedTime(*mut f32, sys::CUevent, sys::CUevent);
}

/// Converts a status code of an open device.
fn check(call: &'static str, code: c_uint) -> Result<(), GpuError> {
    match code {
        status::SUCCESS => Ok(()),
        _ => Err(GpuError::Lost { call, code }),
    }
}

/// Converts a status code from before a device is open, so no device can be lost.
fn check_start(call: &'static str, code: c_uint) -> Result<(), GpuError> {
    check(call, code).map_err(|_| GpuError::DriverFailed { call, code })
}

/// A device of the driver, not yet opened. It is only a number.
struct Device {
    calls: Calls,
    device: sys::CUdevice,
}

impl Device {
    /// The device that `PACKETLANE_GPU` selects, or the first.
    fn find() -> Result<Self, GpuError> {
        let index = match std::env::var_os(GPU_VARIABLE) {
            None => 0,
            Some(text) => match text.to_string_lossy() {
                text if text == "off" => return Err(GpuError::Off),
                text => text
                    .parse()
                    .map_err(|_| GpuError::BadSetting(text.into_owned()))?,
            },
        };
        // SAFETY: Loading NVIDIA's library runs its initialisers, as in every program that uses
        // it.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        // SAFETY: The library is present.
        let calls = unsafe { Calls::load() }?;
        // SAFETY: Flags must be 0.
        match unsafe { (calls.cuInit)(0) } {
            status::SUCCESS => {}
            status::STUB_LIBRARY => return Err(GpuError::NoDriver),
            status::NO_DEVICE => return Err(GpuError::NoDevice),
            code => check_start("cuInit", code)?,
        }
        let mut count = 0;
        // SAFETY: it writes a number.
        check_start("cuDeviceGetCount", unsafe {
            (calls.cuDeviceGetCount)(&mut count)
        })?;
        let count = u32::try_from(count).unwrap_or(0);
        match (count, c_int::try_from(index)) {
            (0, _) => Err(GpuError::NoDevice),
            (_, Ok(ordinal)) if index < count => {
                let mut device = 0;
                // SAFETY: it writes a number.
                let code = unsafe { (calls.cuDeviceGet)(&mut device, ordinal) };
                check_start("cuDeviceGet", code)?;
                Ok(Self { calls, device })
            }
            _ => Err(GpuError::NoSuchDevice { index, count }),
        }
    }

    fn name(&self) -> Result<String, GpuError> {
        let mut name = [0_u8; 256];
        // SAFETY: it writes a string with its zero into so many bytes.
        let code =
            unsafe { (self.calls.cuDeviceGetName)(name.as_mut_ptr().cast(), 255, self.device) };
        check_start("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }
}

/// The name of the device that `Gpu::detect` would use. Does not open it: no context is created
/// and no kernel compiled.
///
/// # Errors
///
/// If there is no device.
pub fn device_name() -> Result<String, GpuError> {
    Device::find()?.name()
}

/// An open CUDA device with the kernels loaded.
pub struct Cuda {
    calls: Calls,
    device: sys::CUdevice,
    context: sys::CUcontext,
    module: sys::CUmodule,
    functions: Vec<(&'static str, sys::CUfunction)>,
    name: String,
}

// SAFETY: The driver API is thread-safe. The handles are used with the context they belong to,
// because every call makes that context current on its thread.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// Opens the device that `PACKETLANE_GPU` selects, or the first. The driver compiles the
    /// kernels for it; the first time that takes a while.
    ///
    /// # Errors
    ///
    /// If there is no device, or if it cannot be used.
    pub fn open() -> Result<Self, GpuError> {
        let found = Device::find()?;
        let name = found.name()?;
        let Device { calls, device } = found;
        let mut context = core::ptr::null_mut();
        // SAFETY: it writes a handle.
        let code = unsafe { (calls.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check_start("cuDevicePrimaryCtxRetain", code)?;
        // From here on, drop releases what was acquired.
        let mut cuda = Self {
            calls,
            device,
            context,
            module: core::ptr::null_mut(),
            functions: Vec::new(),
            name,
        };
        cuda.enter()?;
        let call = "cuModuleLoadData";
        let kernels = CString::new(PTX).expect("text without zeros");
        // SAFETY: it reads text with a zero at its end and writes a handle.
        let code =
            unsafe { (cuda.calls.cuModuleLoadData)(&mut cuda.module, kernels.as_ptr().cast()) };
        if code != status::SUCCESS {
            return Err(GpuError::BadKernels { call, code });
        }
        for entry in ENTRIES {
            let call = "cuModuleGetFunction";
            let name = CString::new(entry).expect("a name without zeros");
            let mut function = core::ptr::null_mut();
            // SAFETY: it reads a string with its zero and writes a handle; the module is
            // loaded.
            let code = unsafe {
                (cuda.calls.cuModuleGetFunction)(&mut function, cuda.module, name.as_ptr())
            };
            if code != status::SUCCESS {
                return Err(GpuError::BadKernels { call, code });
            }
            cuda.functions.push((entry, function));
        }
        Ok(cuda)
    }

    /// Makes the device's context current on this thread.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is held until drop.
        check("cuCtxSetCurrent", unsafe {
            (self.calls.cuCtxSetCurrent)(self.context)
        })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // If this fails, the end of the process releases everything.
        if self.enter().is_ok() && !self.module.is_null() {
            // SAFETY: The module was loaded, and no kernel runs: all streams were dropped
            // before.
            unsafe { (self.calls.cuModuleUnload)(self.module) };
        }
        // SAFETY: it was retained once.
        unsafe { (self.calls.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// A handle as the driver's pointer, from which it was made.
fn pointer<T>(handle: Handle) -> *mut T {
    core::ptr::with_exposed_provenance_mut(handle)
}

// SAFETY: As documented in the driver API. Page-locked memory is page-aligned and zeroed here.
// A stream is done only when its copies are.
unsafe impl Driver for Cuda {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn memory(&self) -> Result<(usize, usize), GpuError> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        let code = unsafe { (self.calls.cuMemGetInfo_v2)(&mut free, &mut total) };
        check("cuMemGetInfo", code)?;
        Ok((free, total))
    }

    fn processors(&self) -> Option<Processors> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        };
        let ask = |attribute| {
            let mut value = 0;
            // SAFETY: it writes a number.
            let code =
                unsafe { (self.calls.cuDeviceGetAttribute)(&mut value, attribute, self.device) };
            (code == status::SUCCESS && value > 0).then_some(value)
        };
        let count = ask(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let kilohertz = ask(CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?;
        Some(Processors {
            count: count.unsigned_abs(),
            hertz: 1e3 * f64::from(kilohertz),
        })
    }

    fn alloc(&self, len: usize) -> Result<Address, GpuError> {
        self.enter()?;
        let mut at = 0;
        // SAFETY: It writes an address.
        match unsafe { (self.calls.cuMemAlloc_v2)(&mut at, len) } {
            status::OUT_OF_MEMORY => Err(GpuError::OutOfMemory { bytes: len }),
            code => check("cuMemAlloc", code).map(|()| at),
        }
    }

    unsafe fn free(&self, at: Address) {
        if self.enter().is_ok() {
            // SAFETY: The caller's promise. A lost device's memory cannot be freed.
            unsafe { (self.calls.cuMemFree_v2)(at) };
        }
    }

    fn alloc_pinned(&self, len: usize) -> Result<NonNull<u8>, GpuError> {
        self.enter()?;
        let mut at = core::ptr::null_mut();
        // Flags 0: not write-combined, because the CPU reads it.
        // SAFETY: it writes a pointer.
        match unsafe { (self.calls.cuMemHostAlloc)(&mut at, len, 0) } {
            status::OUT_OF_MEMORY => return Err(GpuError::OutOfMemory { bytes: len }),
            code => check("cuMemHostAlloc", code)?,
        }
        let at = NonNull::new(at.cast::<u8>()).ok_or(GpuError::OutOfMemory { bytes: len })?;
        // SAFETY: The allocation has `len` bytes, and only this function knows its address.
        unsafe { at.write_bytes(0, len) };
        Ok(at)
    }

    unsafe fn free_pinned(&self, at: NonNull<u8>) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            unsafe { (self.calls.cuMemFreeHost)(at.as_ptr().cast()) };
        }
    }

    fn stream(&self) -> Result<Handle, GpuError> {
        /// Does not synchronise with the default stream, which other libraries use.
        const NON_BLOCKING: c_uint = 1;
        self.enter()?;
        let mut stream: sys::CUstream = core::ptr::null_mut();
        // SAFETY: it writes a handle.
        let code = unsafe { (self.calls.cuStreamCreate)(&mut stream, NON_BLOCKING) };
        check("cuStreamCreate", code)?;
        Ok(stream.expose_provenance())
    }

    unsafe fn free_stream(&self, stream: Handle) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            unsafe { (self.calls.cuStreamDestroy_v2)(pointer(stream)) };
        }
    }

    unsafe fn copy_in(
        &self,
        stream: Handle,
        to: Address,
        from: *const u8,
        len: usize,
    ) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyHtoDAsync", unsafe {
            (self.calls.cuMemcpyHtoDAsync_v2)(to, from.cast(), len, pointer(stream))
        })
    }

    unsafe fn copy_out(
        &self,
        stream: Handle,
        to: *mut u8,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyDtoHAsync", unsafe {
            (self.calls.cuMemcpyDtoHAsync_v2)(to.cast(), from, len, pointer(stream))
        })
    }

    unsafe fn copy_within(
        &self,
        stream: Handle,
        to: Address,
        from: Address,
        len: usize,
    ) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuMemcpyDtoDAsync", unsafe {
            (self.calls.cuMemcpyDtoDAsync_v2)(to, from, len, pointer(stream))
        })
    }

    unsafe fn zero(&self, stream: Handle, at: Address, len: usize) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuMemsetD8Async", unsafe {
            (self.calls.cuMemsetD8Async)(at, 0, len, pointer(stream))
        })
    }

    unsafe fn launch(
        &self,
        stream: Handle,
        entry: &'static str,
        blocks: u32,
        args: &[Arg],
    ) -> Result<(), GpuError> {
        self.enter()?;
        let function = self.functions.iter().find(|(name, _)| *name == entry);
        let (_, function) = function.expect("all entries were loaded");
        // The driver takes a pointer to each parameter, and copies it before it returns.
        let mut pointers = args
            .iter()
            .map(|arg| match arg {
                Arg::Pointer(at) => core::ptr::from_ref(at).cast_mut().cast(),
                Arg::U32(number) => core::ptr::from_ref(number).cast_mut().cast(),
            })
            .collect::<Vec<*mut c_void>>();
        // SAFETY: the caller's promise; the driver only reads the parameters.
        check("cuLaunchKernel", unsafe {
            (self.calls.cuLaunchKernel)(
                *function,
                blocks,
                1,
                1,
                BLOCK_THREADS,
                1,
                1,
                0,
                pointer(stream),
                pointers.as_mut_ptr(),
                core::ptr::null_mut(),
            )
        })
    }

    unsafe fn is_done(&self, stream: Handle) -> Result<bool, GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        match unsafe { (self.calls.cuStreamQuery)(pointer(stream)) } {
            status::NOT_READY => Ok(false),
            code => check("cuStreamQuery", code).map(|()| true),
        }
    }

    unsafe fn wait(&self, stream: Handle) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuStreamSynchronize", unsafe {
            (self.calls.cuStreamSynchronize)(pointer(stream))
        })
    }

    fn event(&self) -> Result<Handle, GpuError> {
        self.enter()?;
        let mut event: sys::CUevent = core::ptr::null_mut();
        // SAFETY: it writes a handle.
        check("cuEventCreate", unsafe {
            (self.calls.cuEventCreate)(&mut event, 0)
        })?;
        Ok(event.expose_provenance())
    }

    unsafe fn free_event(&self, event: Handle) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise.
            unsafe { (self.calls.cuEventDestroy_v2)(pointer(event)) };
        }
    }

    unsafe fn record(&self, stream: Handle, event: Handle) -> Result<(), GpuError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        check("cuEventRecord", unsafe {
            (self.calls.cuEventRecord)(pointer(event), pointer(stream))
        })
    }

    unsafe fn seconds(&self, from: Handle, to: Handle) -> Result<f64, GpuError> {
        self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: the caller's promise; it writes a number.
        check("cuEventElapsedTime", unsafe {
            (self.calls.cuEventElapsedTime)(&mut milliseconds, pointer(from), pointer(to))
        })?;
        Ok(f64::from(milliseconds) / 1000.0)
    }
}
