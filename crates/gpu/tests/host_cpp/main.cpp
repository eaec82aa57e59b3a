// Runs the kernels as C++ on the CPU, for address and undefined-behaviour sanitizers: the
// threads of a warp are coroutines that switch at shuffles, in an order that can be chosen.
//
// Reads requests from standard input and answers each on standard output:
//   in:  a line "ORDER LANES COUNT BYTES CHUNKS ENTRY...", then the bytes, packets (16 each),
//        keys (48 each) and chunks (8 each). ORDER: 0 forward, 1 reversed, else a seed.
//   out: the bytes and a verdict for each packet.
// A kernel that does wrong ends the process with a word on standard error.
#include <sanitizer/common_interface_defs.h>
#include <ucontext.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "packetlane.cu"

namespace {

enum State { READY, WAITING, ENDED };

struct Fiber {
    ucontext_t context;
    std::vector<char> stack = std::vector<char>(256 << 10);
    void *fake_stack = nullptr;
    State state = ENDED;
    // What it waits with, and what it gets.
    u32 value, from, width, answer;
};

const u32 WARP = 32;
std::vector<Fiber> fibers(WARP);
ucontext_t scheduler;
void *scheduler_fake_stack = nullptr;
const void *scheduler_stack = nullptr;
size_t scheduler_stack_size = 0;
u32 first_thread = 0, current = 0;
void (*body)();

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "host_cpp: %s\n", what);
    exit(3);
}

// From the fiber to the scheduler.
void leave(bool for_ever) {
    Fiber &fiber = fibers[current];
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &fiber.fake_stack, scheduler_stack, scheduler_stack_size);
    swapcontext(&fiber.context, &scheduler);
    __sanitizer_finish_switch_fiber(fiber.fake_stack, nullptr, nullptr);
}

void fiber_main() {
    __sanitizer_finish_switch_fiber(nullptr, &scheduler_stack, &scheduler_stack_size);
    body();
    fibers[current].state = ENDED;
    leave(true);
}

void enter(u32 lane) {
    current = lane;
    Fiber &fiber = fibers[lane];
    __sanitizer_start_switch_fiber(&scheduler_fake_stack, fiber.stack.data(), fiber.stack.size());
    swapcontext(&scheduler, &fiber.context);
    __sanitizer_finish_switch_fiber(scheduler_fake_stack, nullptr, nullptr);
}

// SplitMix64.
struct Order {
    u64 state;

    u64 next() {
        u64 z = state += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    std::vector<u32> permutation(u32 count, u64 kind) {
        std::vector<u32> numbers(count);
        std::iota(numbers.begin(), numbers.end(), 0);
        for (u32 i = count; i-- > 1;)
            if (kind > 1)
                std::swap(numbers[i], numbers[next() % (i + 1)]);
        return kind == 1 ? std::vector<u32>(numbers.rbegin(), numbers.rend()) : numbers;
    }
};

void run_warp(Order &order, u64 kind) {
    for (Fiber &fiber : fibers) {
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        fiber.context.uc_link = nullptr;
        makecontext(&fiber.context, fiber_main, 0);
        fiber.fake_stack = nullptr;
        fiber.state = READY;
    }
    while (true) {
        for (u32 lane : order.permutation(WARP, kind))
            if (fibers[lane].state == READY)
                enter(lane);
        u32 waiting = 0;
        for (const Fiber &fiber : fibers)
            waiting += fiber.state == WAITING;
        if (waiting == 0)
            return;
        if (waiting != WARP)
            fail("threads ended while others of their warp shuffle");
        for (u32 lane = 0; lane < WARP; lane++) {
            Fiber &fiber = fibers[lane];
            if (fiber.width != fibers[0].width)
                fail("threads of a warp are at different shuffles");
            const u32 first = lane / fiber.width * fiber.width;
            fiber.answer = fibers[first + fiber.from % fiber.width].value;
        }
        for (Fiber &fiber : fibers)
            fiber.state = READY;
    }
}

// Exactly as long as it is: the sanitizer sees what goes beyond.
struct Buffer {
    u8 *bytes;
    size_t len;

    explicit Buffer(size_t len) : bytes((u8 *)malloc(len)), len(len) { memset(bytes, 0xa5, len); }
    ~Buffer() { free(bytes); }
    Buffer(const Buffer &) = delete;

    void read() {
        if (fread(bytes, 1, len, stdin) != len)
            fail("a request that is cut off");
    }
    void write() const { fwrite(bytes, 1, len, stdout); }
};

struct Request {
    u8 *bytes;
    const Packet *packets;
    const Key *keys;
    u32 count;
    u8 *verdicts;
    const Chunk *chunks;
    u32 chunk_count;
    u64 *partial;
} request;

#define LIST_OF request.bytes, request.packets, request.keys, request.count, request.verdicts
#define CALL_LIST(name) {#name, [] { name(LIST_OF); }}
#define CALL_CHUNKS(name) {#name, [] { name(LIST_OF, request.chunks, request.chunk_count, request.partial); }}

const std::vector<std::pair<std::string, void (*)()>> ENTRIES = {
    CALL_LIST(seal_1), CALL_LIST(open_1), CALL_LIST(seal_4), CALL_LIST(open_4),
    CALL_LIST(seal_32), CALL_LIST(open_32), CALL_CHUNKS(seal_chunks), CALL_CHUNKS(open_chunks),
    CALL_CHUNKS(seal_combine), CALL_CHUNKS(open_combine), CALL_CHUNKS(open_decrypt),
};

void launch(const std::string &name, u32 threads, u64 kind) {
    body = nullptr;
    for (const auto &entry : ENTRIES)
        if (entry.first == name)
            body = entry.second;
    if (!body)
        fail("no such entry");
    Order order{kind};
    for (u32 warp : order.permutation((threads + 127) / 128 * 4, kind)) {
        first_thread = warp * WARP;
        run_warp(order, kind);
    }
}

} // namespace

u32 thread_index() { return first_thread + current; }

u32 shuffle(u32 value, u32 from, u32 width) {
    Fiber &fiber = fibers[current];
    fiber.value = value, fiber.from = from, fiber.width = width;
    fiber.state = WAITING;
    leave(false);
    return fiber.answer;
}

int main() {
    char line[512];
    while (fgets(line, sizeof line, stdin)) {
        std::istringstream words(line);
        u64 kind, lanes, count, len, chunk_count;
        words >> kind >> lanes >> count >> len >> chunk_count;
        Buffer bytes(len), packets(count * 16), keys(count * 48), chunks(chunk_count * 8);
        Buffer partial(chunk_count * 24), verdicts(count);
        bytes.read(), packets.read(), keys.read(), chunks.read();
        request = {bytes.bytes, (const Packet *)packets.bytes, (const Key *)keys.bytes, (u32)count,
                   verdicts.bytes, (const Chunk *)chunks.bytes, (u32)chunk_count, (u64 *)partial.bytes};
        std::string entry;
        while (words >> entry)
            launch(entry, (u32)((chunk_count ? chunk_count : count) * lanes), kind);
        bytes.write(), verdicts.write();
        fflush(stdout);
    }
    return 0;
}
