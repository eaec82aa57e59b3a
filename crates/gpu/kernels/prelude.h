// What the kernels need from the machine they are compiled for: CUDA (NVRTC), or C++ on
// a CPU, where tests/host_cpp runs the threads of a block as coroutines.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// 16 bytes at an address that is a multiple of 16: one load, one store.
struct alignas(16) Quad {
    u32 w[4];
};

#ifdef __CUDACC__

// So many blocks of 128 threads shall fit on a multiprocessor, which has 65,536 registers:
// 7 leave a thread 72, 5 leave it 96.
#define KERNEL(name, blocks) extern "C" __global__ void __launch_bounds__(128, blocks) name
#define INLINE __device__ __forceinline__

INLINE u32 thread_index() { return blockIdx.x * blockDim.x + threadIdx.x; }

// `value` of another of the `width` threads that work together. All threads of the warp
// have to come here.
INLINE u32 shuffle(u32 value, u32 from, u32 width) {
    return __shfl_sync(0xffffffffu, value, from, width);
}

// Bits n to n + 32 of the two words, n at most 32.
INLINE u32 funnel(u32 low, u32 high, u32 n) { return __funnelshift_rc(low, high, n); }

// a b + c. A compiler that knows the two to be below 2^32 may make a 64-bit product of
// them, which is three.
INLINE u64 multiply(u32 a, u32 b, u64 c) {
    u64 d;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(d) : "r"(a), "r"(b), "l"(c));
    return d;
}

// a += b, five words with carry: five instructions, where C takes nine.
INLINE void add(u32 a[5], u32 b0, u32 b1, u32 b2, u32 b3, u32 b4) {
    asm("add.cc.u32 %0, %0, %5;\n\taddc.cc.u32 %1, %1, %6;\n\taddc.cc.u32 %2, %2, %7;\n\t"
        "addc.cc.u32 %3, %3, %8;\n\taddc.u32 %4, %4, %9;"
        : "+r"(a[0]), "+r"(a[1]), "+r"(a[2]), "+r"(a[3]), "+r"(a[4])
        : "r"(b0), "r"(b1), "r"(b2), "r"(b3), "r"(b4));
}

#else

#define KERNEL(name, blocks) extern "C" void name
#define INLINE static inline

u32 thread_index();
u32 shuffle(u32 value, u32 from, u32 width);

INLINE u32 funnel(u32 low, u32 high, u32 n) { return (u32)(((u64)high << 32 | low) >> n); }

INLINE u64 multiply(u32 a, u32 b, u64 c) { return (u64)a * b + c; }

INLINE void add(u32 a[5], u32 b0, u32 b1, u32 b2, u32 b3, u32 b4) {
    const u32 b[5] = {b0, b1, b2, b3, b4};
    u64 carry = 0;
    for (int i = 0; i < 5; i++) {
        carry += (u64)a[i] + b[i];
        a[i] = (u32)carry;
        carry >>= 32;
    }
}

#endif
