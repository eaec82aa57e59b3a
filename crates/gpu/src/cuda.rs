//! CUDA, through the driver's own interface.
//!
//! The functions are looked up in the driver's library when a device is asked for, with
//! the signatures of `cudarc`'s bindings, but not through its functions: those panic
//! where the library or one of them is missing, and turn a status that is newer than the
//! bindings into an enum that has no such value. Here both are errors.

use crate::driver::{Address, Arg, BLOCK_THREADS, Driver, Handle, Processors};
use crate::error::{GPU_VARIABLE, GpuError};
use crate::kernels::{ENTRIES, PTX};
use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr::NonNull;
use cudarc::driver::sys;
use std::ffi::CString;

/// `CUresult`s that mean something to us.
mod status {
    pub(super) const SUCCESS: u32 = 0;
    pub(super) const OUT_OF_MEMORY: u32 = 2;
    /// A library that is there to be linked against, not to be used.
    pub(super) const STUB_LIBRARY: u32 = 34;
    pub(super) const NO_DEVICE: u32 = 100;
    pub(super) const NOT_READY: u32 = 600;
}

macro_rules! calls {
    ($($name:ident($($argument:ty),*);)*) => {
        /// The driver's functions.
        #[allow(non_snake_case, reason = "they are called so")]
        struct Calls {
            $($name: unsafe extern "C" fn($($argument),*) -> c_uint,)*
        }

        impl Calls {
            /// Looks them all up.
            ///
            /// # Safety
            ///
            /// The driver's library is there.
            unsafe fn load() -> Result<Self, GpuError> {
                // SAFETY: the caller's promise.
                let library = unsafe { sys::culib() };
                Ok(Self {
                    $($name: {
                        // The signature is the bindings', but for the result, which is
                        // an enum of 32 bits there.
                        let _: unsafe fn($($argument),*) -> sys::CUresult = sys::$name;
                        let call = stringify!($name);
                        let name = concat!(stringify!($name), "\0").as_bytes();
                        // SAFETY: the driver's function of this name has this signature.
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

/// What a status says of a device that runs.
fn check(call: &'static str, code: c_uint) -> Result<(), GpuError> {
    match code {
        status::SUCCESS => Ok(()),
        _ => Err(GpuError::Lost { call, code }),
    }
}

/// What a status says before there is a device to be lost.
fn check_start(call: &'static str, code: c_uint) -> Result<(), GpuError> {
    check(call, code).map_err(|_| GpuError::DriverFailed { call, code })
}

/// One device that the driver has: not more than its number, so it costs nothing to name.
struct Device {
    calls: Calls,
    device: sys::CUdevice,
}

impl Device {
    /// The device that `PACKETLANE_GPU` picks, or the first.
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
        // SAFETY: loading NVIDIA's library runs its initialisers, as in every program
        // that uses it.
        if !unsafe { sys::is_culib_present() } {
            return Err(GpuError::NoDriver);
        }
        // SAFETY: it is.
        let calls = unsafe { Calls::load() }?;
        // SAFETY: 0 is the only flag there is.
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

/// The name of the device that `Gpu::detect` would take, without
/// taking it: no context is made and no kernel compiled.
///
/// # Errors
///
/// If there is none.
pub fn device_name() -> Result<String, GpuError> {
    Device::find()?.name()
}

/// A device of CUDA's, with the kernels loaded.
pub struct Cuda {
    calls: Calls,
    device: sys::CUdevice,
    context: sys::CUcontext,
    module: sys::CUmodule,
    functions: Vec<(&'static str, sys::CUfunction)>,
    name: String,
}

// SAFETY: the driver may be called from any thread. The handles are used with the context
// that they belong to, which every call makes the thread's current one.
unsafe impl Send for Cuda {}
// SAFETY: as above.
unsafe impl Sync for Cuda {}

impl Cuda {
    /// The device that `PACKETLANE_GPU` picks, or the first. The driver compiles the
    /// kernels for it, which takes some time when it does so first.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot be used.
    pub fn open() -> Result<Self, GpuError> {
        let found = Device::find()?;
        let name = found.name()?;
        let Device { calls, device } = found;
        let mut context = core::ptr::null_mut();
        // SAFETY: it writes a handle.
        let code = unsafe { (calls.cuDevicePrimaryCtxRetain)(&mut context, device) };
        check_start("cuDevicePrimaryCtxRetain", code)?;
        // From here on, drop gives back what there is.
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

    /// Makes the device's context this thread's current one.
    fn enter(&self) -> Result<(), GpuError> {
        // SAFETY: the context is held until drop.
        check("cuCtxSetCurrent", unsafe {
            (self.calls.cuCtxSetCurrent)(self.context)
        })
    }
}

impl Drop for Cuda {
    fn drop(&mut self) {
        // What fails here the end of the process gives back.
        if self.enter().is_ok() && !self.module.is_null() {
            // SAFETY: it was loaded, and nothing runs any more: who held streams is gone.
            unsafe { (self.calls.cuModuleUnload)(self.module) };
        }
        // SAFETY: it was retained once.
        unsafe { (self.calls.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// A handle as the driver's pointer, which it was.
fn pointer<T>(handle: Handle) -> *mut T {
    core::ptr::with_exposed_provenance_mut(handle)
}

// SAFETY: the driver's manual. Page-locked memory is aligned to a page and zeroed here. A
// stream is done when its copies are.
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
        // SAFETY: it writes an address.
        match unsafe { (self.calls.cuMemAlloc_v2)(&mut at, len) } {
            status::OUT_OF_MEMORY => Err(GpuError::OutOfMemory { bytes: len }),
            code => check("cuMemAlloc", code).map(|()| at),
        }
    }

    unsafe fn free(&self, at: Address) {
        if self.enter().is_ok() {
            // SAFETY: the caller's promise. What a lost device keeps, it keeps.
            unsafe { (self.calls.cuMemFree_v2)(at) };
        }
    }

    fn alloc_pinned(&self, len: usize) -> Result<NonNull<u8>, GpuError> {
        self.enter()?;
        let mut at = core::ptr::null_mut();
        // Flags 0: not write-combined, since the CPU reads it.
        // SAFETY: it writes a pointer.
        match unsafe { (self.calls.cuMemHostAlloc)(&mut at, len, 0) } {
            status::OUT_OF_MEMORY => return Err(GpuError::OutOfMemory { bytes: len }),
            code => check("cuMemHostAlloc", code)?,
        }
        let at = NonNull::new(at.cast::<u8>()).ok_or(GpuError::OutOfMemory { bytes: len })?;
        // SAFETY: it has so many bytes, which nobody else knows of.
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
        /// It does not wait for the stream that other libraries use by default.
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
        // The driver wants a pointer to each, and copies them before it returns.
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
