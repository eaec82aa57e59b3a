// A program that looks like a node to the probes: a thread `b-msghand` that calls two virtual
// functions for each peer at every wake-up, and tracepoints with the names and arguments of Bitcoin
// Core's. It prints that it is ready, starts when it reads the line `go`, pauses at another line,
// and ends at end of input. It measures its calls itself and prints at the end, for each peer: id,
// then calls, wall time and CPU time (in nanoseconds) of receiving and of sending, and the messages
// received.
//
// Arguments: number of peers, milliseconds between wake-ups, amount of work in per cent.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <pthread.h>
#include <string>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

// The start of a section that shows tools whether a program was moved after linking.
asm(".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"
    ".weak _.stapsdt.base\n"
    ".hidden _.stapsdt.base\n"
    "_.stapsdt.base: .space 1\n"
    ".popsection\n");

#define SEMAPHORE(name) \
    extern "C" { __attribute__((section(".probes"), used)) unsigned short net_##name##_semaphore; }

// A tracepoint: an instruction that does nothing, and a note with its address and arguments.
#define TRACEPOINT(name, a, b, c, d, e, f)                                                       \
    do {                                                                                         \
        if (*(volatile unsigned short*)&net_##name##_semaphore == 0) break;                      \
        asm volatile("990: nop\n"                                                                \
                     ".pushsection .note.stapsdt,\"\",\"note\"\n"                                \
                     ".balign 4\n"                                                               \
                     ".4byte 992f-991f, 994f-993f, 3\n"                                          \
                     "991: .asciz \"stapsdt\"\n"                                                 \
                     "992: .balign 4\n"                                                          \
                     "993: .8byte 990b, _.stapsdt.base, net_" #name "_semaphore\n"               \
                     ".asciz \"net\"\n"                                                          \
                     ".asciz \"" #name "\"\n"                                                    \
                     ".asciz \"-8@%0 8@%1 8@%2 8@%3 8@%4 8@%5\"\n"                               \
                     "994: .balign 4\n"                                                          \
                     ".popsection\n"                                                             \
                     :                                                                           \
                     : "nor"((int64_t)(a)), "nor"(b), "nor"(c), "nor"(d), "nor"((uint64_t)(e)),  \
                       "nor"((uint64_t)(f)));                                                    \
    } while (0)

SEMAPHORE(inbound_message)
SEMAPHORE(outbound_message)
SEMAPHORE(inbound_connection)
SEMAPHORE(outbound_connection)
SEMAPHORE(closed_connection)

struct Times {
    uint64_t calls = 0, wall = 0, cpu = 0;
};

static uint64_t nanoseconds(clockid_t clock)
{
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ULL + time.tv_nsec;
}

// Adds its own lifetime to `times`.
struct Timer {
    Times& times;
    uint64_t wall = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    explicit Timer(Times& times) : times(times) {}
    ~Timer()
    {
        times.calls += 1;
        times.cpu += nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
        times.wall += nanoseconds(CLOCK_MONOTONIC) - wall;
    }
};

static int work = 100; // per cent

static void spin(uint64_t ns)
{
    if (work == 0) return;
    const uint64_t end = nanoseconds(CLOCK_THREAD_CPUTIME_ID) + ns * work / 100;
    while (nanoseconds(CLOCK_THREAD_CPUTIME_ID) < end) {}
}

struct Peer {
    int64_t before[7] = {}; // padding: the id is not at an obvious offset
    int64_t id;
    std::string address, type;
    uint64_t turns = 0, messages = 0;
    Times receiving, sending;
};

struct Events {
    virtual ~Events() = default;
    virtual bool Receive(Peer& peer, std::atomic<bool>& stop) = 0;
    virtual bool Send(Peer& peer) = 0;
};

struct Node : Events {
    bool Receive(Peer& peer, std::atomic<bool>& stop) override;
    bool Send(Peer& peer) override;
};

__attribute__((noinline)) bool Node::Receive(Peer& peer, std::atomic<bool>& stop)
{
    Timer timer{peer.receiving};
    peer.turns += 1;
    if (stop) return false;
    // The first peers get more messages than the last ones.
    if (peer.turns % (2 + peer.id % 7) != 0) return false;
    const bool is_version = peer.messages == 0;
    const char* type = is_version ? "version" : peer.messages % 3 ? "inv" : "tx";
    // A `version`: after 80 bytes the user agent, then the height, and last the relay flag.
    static unsigned char payload[400];
    static const char agents[2][100] = {
        "/fake:0.1/", "/a-name-that-is-longer-than-what-is-kept:0.1/(of-more-than-eighty-letters;-they-are-ninety)/"};
    const char* agent = agents[peer.id % 2];
    const size_t agent_len = strlen(agent);
    payload[80] = agent_len;
    memcpy(payload + 81, agent, agent_len);
    const size_t version_len = 81 + agent_len + 5;
    payload[version_len - 1] = peer.id % 2;
    const size_t len = is_version ? version_len : 36 + peer.messages % 300;
    TRACEPOINT(inbound_message, peer.id, peer.address.c_str(), peer.type.c_str(), type, len, payload);
    // Every 50th call waits, as for a disk.
    if (work && peer.messages % 50 == 49) usleep(2000);
    spin(type[0] == 't' ? 300000 : 40000 + 1000 * (peer.id % 10));
    peer.messages += 1;
    return false;
}

__attribute__((noinline)) bool Node::Send(Peer& peer)
{
    Timer timer{peer.sending};
    spin(3000);
    if (peer.turns % 20 == 0) {
        static unsigned char payload[100];
        TRACEPOINT(outbound_message, peer.id, peer.address.c_str(), peer.type.c_str(), "ping", 8, payload);
        spin(10000);
    }
    return true;
}

__attribute__((noinline)) static void connection(const Peer& peer, bool inbound, uint64_t network)
{
    if (inbound) {
        TRACEPOINT(inbound_connection, peer.id, peer.address.c_str(), peer.type.c_str(), network, 1, 0);
    } else {
        TRACEPOINT(outbound_connection, peer.id, peer.address.c_str(), peer.type.c_str(), network, 1, 0);
    }
}

__attribute__((noinline)) static void closed(const Peer& peer)
{
    TRACEPOINT(closed_connection, peer.id, peer.address.c_str(), peer.type.c_str(), (uint64_t)1, 0, 0);
}

int main(int argc, char** argv)
{
    const int peers = argc > 1 ? atoi(argv[1]) : 10;
    const int pause = argc > 2 ? atoi(argv[2]) : 20;
    if (argc > 3) work = atoi(argv[3]);
    std::atomic<bool> stop{false};
    std::unique_ptr<Events> node = std::make_unique<Node>();
    std::vector<std::unique_ptr<Peer>> all, gone;
    for (int id = 0; id < peers; id++) {
        auto peer = std::make_unique<Peer>();
        peer->id = 1000 + id;
        peer->address = "10.0.0." + std::to_string(id) + ":8333";
        peer->type = id % 3 == 0 ? "outbound-full-relay" : "inbound";
        all.push_back(std::move(peer));
    }
    std::atomic<bool> go{false};
    std::thread messages([&] {
        pthread_setname_np(pthread_self(), "b-msghand");
        for (uint64_t turn = 1; !stop; turn++) {
            while (!go && !stop) usleep(1000);
            for (auto& peer : all) {
                node->Receive(*peer, stop);
                node->Send(*peer);
            }
            // Now and then the last peer disconnects and another one connects.
            if (turn % 40 == 0) {
                closed(*all.back());
                gone.push_back(std::move(all.back()));
                all.pop_back();
                auto peer = std::make_unique<Peer>();
                peer->id = 2000 + turn;
                peer->address = "[2001:db8::1]:8333";
                peer->type = "inbound";
                connection(*peer, peer->type == "inbound", 2);
                all.push_back(std::move(peer));
            }
            usleep(pause * 1000);
        }
    });
    printf("ready\n");
    fflush(stdout);
    char line[16];
    while (fgets(line, sizeof line, stdin)) go = strcmp(line, "go\n") == 0;
    stop = true;
    messages.join();
    for (auto& peer : all) gone.push_back(std::move(peer));
    for (const auto& peer : gone) {
        const auto &in = peer->receiving, &out = peer->sending;
        printf("%lld %llu %llu %llu %llu %llu %llu %llu\n", (long long)peer->id,
               (unsigned long long)in.calls, (unsigned long long)in.wall, (unsigned long long)in.cpu,
               (unsigned long long)out.calls, (unsigned long long)out.wall,
               (unsigned long long)out.cpu, (unsigned long long)peer->messages);
    }
    return 0;
}
