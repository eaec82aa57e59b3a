// A library that passes for the CUDA driver's: device memory is the CPU's, everything is
// done at once, and the kernels are their source as C++, the threads of a warp as coroutines
// that switch at shuffles. What a call gets is checked as far as the driver would.
//
// FAKE_CUDA says how it behaves: "init=CODE" and "load=CODE" (what cuInit and
// cuModuleLoadData answer), "devices=N", "memory=BYTES", "lose=N" (the device is lost at the
// Nth launch).
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <string>
#include <vector>

#include "packetlane.cu"

namespace {

const int INVALID = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, LOST = 719;

long long setting(const char *name, long long otherwise) {
    const char *settings = getenv("FAKE_CUDA");
    const char *found = settings ? strstr(settings, name) : nullptr;
    return found ? atoll(found + strlen(name) + 1) : otherwise;
}

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "libcuda: %s\n", what);
    _Exit(3);
}

bool started = false, lost = false;
int retained = 0, launches = 0;
thread_local void *current = nullptr;
char context, module_, name_[] = "a device without hardware";
std::map<u64, size_t> device, pinned;
std::map<void *, double> events;
std::map<void *, bool> streams;
size_t used = 0;

// What every call needs that is about the device.
#define ENTER                                                                                      \
    if (!started || current != &context || retained != 1)                                          \
        fail("a call without a context");                                                          \
    if (lost)                                                                                      \
        return LOST;

bool within(const std::map<u64, size_t> &blocks, u64 at, size_t len) {
    auto found = blocks.upper_bound(at);
    if (found == blocks.begin())
        return false;
    --found;
    return at + len <= found->first + found->second;
}

void check(bool right, const char *what) {
    if (!right)
        fail(what);
}

// --- Kernels.

enum State { READY, WAITING, ENDED };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(64 << 10);
    State state = ENDED;
    u32 value, from, width, answer;
};

const u32 WARP = 32;
std::vector<Fiber> fibers(WARP);
ucontext_t scheduler;
u32 first_thread = 0, lane = 0;

struct Arguments {
    u8 *bytes;
    const Packet *packets;
    const Key *keys;
    u32 count;
    u8 *verdicts;
    const Chunk *chunks;
    u32 chunk_count;
    u64 *partial;
} arguments;

struct Entry {
    const char *name;
    int parameters;
    void (*body)();
};

#define LIST_OF arguments.bytes, arguments.packets, arguments.keys, arguments.count, arguments.verdicts
#define CALL_LIST(name) {#name, 5, [] { name(LIST_OF); }}
#define CALL_CHUNKS(name)                                                                          \
    {#name, 8, [] { name(LIST_OF, arguments.chunks, arguments.chunk_count, arguments.partial); }}

Entry entries[] = {
    CALL_LIST(seal_1), CALL_LIST(open_1), CALL_LIST(seal_4), CALL_LIST(open_4),
    CALL_LIST(seal_32), CALL_LIST(open_32), CALL_CHUNKS(seal_chunks), CALL_CHUNKS(open_chunks),
    CALL_CHUNKS(seal_combine), CALL_CHUNKS(open_combine), CALL_CHUNKS(open_decrypt),
};

const Entry *running;

void fiber_main() {
    running->body();
    fibers[lane].state = ENDED;
    swapcontext(&fibers[lane].context, &scheduler);
}

void run_warp() {
    for (Fiber &fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, fiber_main, 0);
        fiber.state = READY;
    }
    while (true) {
        u32 waiting = 0;
        for (lane = 0; lane < WARP; lane++)
            if (fibers[lane].state == READY)
                swapcontext(&scheduler, &fibers[lane].context);
        for (Fiber &fiber : fibers)
            waiting += fiber.state == WAITING;
        if (waiting == 0)
            return;
        check(waiting == WARP, "threads ended while others of their warp shuffle");
        for (u32 i = 0; i < WARP; i++)
            fibers[i].answer = fibers[i / fibers[i].width * fibers[i].width + fibers[i].from % fibers[i].width].value;
        for (Fiber &fiber : fibers)
            fiber.state = READY;
    }
}

} // namespace

u32 thread_index() { return first_thread + lane; }

u32 shuffle(u32 value, u32 from, u32 width) {
    Fiber &fiber = fibers[lane];
    fiber.value = value, fiber.from = from, fiber.width = width;
    fiber.state = WAITING;
    swapcontext(&fiber.context, &scheduler);
    return fiber.answer;
}

// --- The driver's functions, as its manual has them.

extern "C" {

int cuInit(unsigned flags) {
    check(flags == 0, "cuInit's flags");
    started = true;
    return (int)setting("init", 0);
}

int cuDeviceGetCount(int *count) { return *count = (int)setting("devices", 1), 0; }

int cuDeviceGet(int *which, int ordinal) {
    check(ordinal >= 0 && ordinal < setting("devices", 1), "the device's number");
    return *which = 7 + ordinal, 0;
}

int cuDeviceGetName(char *name, int len, int) {
    check(len > (int)sizeof name_, "room for a name");
    return strcpy(name, name_), 0;
}

int cuDeviceGetAttribute(int *value, int which, int) {
    // Clock rate in kHz, number of multiprocessors; 0 where a driver does not tell.
    *value = which == 13 ? 1980000 : which == 16 ? 132 : 0;
    return which == 13 || which == 16 ? 0 : 1;
}

int cuDevicePrimaryCtxRetain(void **made, int which) {
    check(which >= 7, "a device");
    retained++;
    return *made = &context, 0;
}

int cuDevicePrimaryCtxRelease_v2(int) { return retained--, 0; }

int cuCtxSetCurrent(void *made) {
    check(made == &context, "a context");
    return current = made, 0;
}

int cuModuleLoadData(void **made, const void *image) {
    ENTER
    check(strstr((const char *)image, ".visible .entry seal_1(") != nullptr, "PTX");
    *made = &module_;
    return (int)setting("load", 0);
}

int cuModuleUnload(void *made) {
    check(made == &module_, "a module");
    return 0;
}

int cuModuleGetFunction(void **function, void *made, const char *name) {
    ENTER
    check(made == &module_, "a module");
    for (Entry &entry : entries)
        if (!strcmp(entry.name, name))
            return *function = &entry, 0;
    return NOT_FOUND;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    ENTER
    *total = (size_t)setting("memory", 1 << 30);
    return *free = *total - used, 0;
}

int cuMemAlloc_v2(u64 *at, size_t len) {
    ENTER
    if (len == 0)
        return INVALID;
    if (used + len > (size_t)setting("memory", 1 << 30))
        return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (len + 255) / 256 * 256);
    memset(memory, 0xa5, len);
    used += len;
    return device[*at = (u64)memory] = len, 0;
}

int cuMemFree_v2(u64 at) {
    ENTER
    check(device.count(at), "device memory to free");
    used -= device[at];
    device.erase(at);
    return free((void *)at), 0;
}

int cuMemHostAlloc(void **at, size_t len, unsigned flags) {
    ENTER
    // Write-combined memory is slow to read.
    check(flags == 0, "cuMemHostAlloc's flags");
    void *memory = mmap(nullptr, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(memory != MAP_FAILED, "memory");
    memset(memory, 0xa5, len);
    return pinned[(u64)(*at = memory)] = len, 0;
}

int cuMemFreeHost(void *at) {
    ENTER
    check(pinned.count((u64)at), "page-locked memory to free");
    munmap(at, pinned[(u64)at]);
    return pinned.erase((u64)at), 0;
}

int cuStreamCreate(void **made, unsigned flags) {
    ENTER
    check(flags == 1, "a stream that waits for no other");
    return streams[*made = malloc(1)] = true, 0;
}

int cuStreamDestroy_v2(void *stream) {
    ENTER
    check(streams.erase(stream), "a stream to destroy");
    return free(stream), 0;
}

int cuStreamQuery(void *stream) {
    ENTER
    check(streams.count(stream), "a stream");
    // Not yet, every other time.
    return (streams[stream] = !streams[stream]) ? 0 : 600;
}

int cuStreamSynchronize(void *stream) {
    ENTER
    check(streams.count(stream), "a stream");
    return 0;
}

int cuMemcpyHtoDAsync_v2(u64 to, const void *from, size_t len, void *stream) {
    ENTER
    check(streams.count(stream) && within(device, to, len), "where a copy goes to");
    check(within(pinned, (u64)from, len), "where a copy comes from");
    return memcpy((void *)to, from, len), 0;
}

int cuMemcpyDtoHAsync_v2(void *to, u64 from, size_t len, void *stream) {
    ENTER
    check(streams.count(stream) && within(pinned, (u64)to, len), "where a copy goes to");
    check(within(device, from, len), "where a copy comes from");
    return memcpy(to, (void *)from, len), 0;
}

int cuMemcpyDtoDAsync_v2(u64 to, u64 from, size_t len, void *stream) {
    ENTER
    check(streams.count(stream) && within(device, to, len), "where a copy goes to");
    check(within(device, from, len), "where a copy comes from");
    return memcpy((void *)to, (void *)from, len), 0;
}

int cuMemsetD8Async(u64 at, unsigned char byte, size_t len, void *stream) {
    ENTER
    check(streams.count(stream) && within(device, at, len), "what is to be filled");
    return memset((void *)at, byte, len), 0;
}

int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *stream, void **parameters, void **extra) {
    ENTER
    if (launches++ == setting("lose", -1)) {
        lost = true;
        return LOST;
    }
    check(x > 0 && y == 1 && z == 1 && threads == 128 && threads_y == 1 && threads_z == 1, "a grid");
    check(shared == 0 && extra == nullptr && streams.count(stream), "a launch");
    running = (const Entry *)function;
    check(running >= entries && running < entries + 11, "a function");
    const auto pointer = [&](int i) { return *(u64 *)parameters[i]; };
    const auto number = [&](int i) { return *(u32 *)parameters[i]; };
    arguments = {(u8 *)pointer(0), (const Packet *)pointer(1), (const Key *)pointer(2), number(3), (u8 *)pointer(4),
                 nullptr, 0, nullptr};
    check(within(device, pointer(0), 1) && within(device, pointer(1), 16 * (size_t)number(3)), "packets");
    check(within(device, pointer(2), 48) && within(device, pointer(4), number(3)), "keys and verdicts");
    if (running->parameters == 8) {
        arguments.chunks = (const Chunk *)pointer(5);
        arguments.chunk_count = number(6);
        arguments.partial = (u64 *)pointer(7);
        check(within(device, pointer(5), 8 * (size_t)number(6)), "chunks");
        check(within(device, pointer(7), 24 * (size_t)number(6)), "what is kept of chunks");
    }
    for (u32 warp = 0; warp < x * 4; warp++) {
        first_thread = warp * WARP;
        run_warp();
    }
    return 0;
}

int cuEventCreate(void **made, unsigned flags) {
    ENTER
    check(flags == 0, "an event that takes the time");
    return events[*made = malloc(1)] = 0, 0;
}

int cuEventDestroy_v2(void *event) {
    ENTER
    check(events.erase(event), "an event to destroy");
    return free(event), 0;
}

int cuEventRecord(void *event, void *stream) {
    ENTER
    check(events.count(event) && streams.count(stream), "an event");
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return events[event] = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6, 0;
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    ENTER
    check(events.count(from) && events.count(to), "two events");
    return *milliseconds = (float)(events[to] - events[from]), 0;
}
}
