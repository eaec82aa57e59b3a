// The BPF programs of the probes. `tools/bpf` compiles this file to peers.bpf.o.
//
// Two functions of the node are observed at entry and return: one processes messages from a peer,
// the other sends to it. The message thread calls both for every peer at every wake-up. Their cost
// is summed up here for each peer. An event is emitted for each call that processed a message, each
// message sent and each change of a connection.
//
// The second argument of both functions is the peer's object. The peer's id is not read from the
// object, whose layout differs between builds. It comes from the tracepoint of a message, which is
// reached within such a call.
//
// The cost of the probes within a call is subtracted from it. The loading program measures the
// constant part beforehand; the variable part is measured here.
//
// This file includes nothing, so that clang alone can compile it. It does not depend on the CPU's
// registers: the loading program provides the locations of all arguments.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))

struct task_struct;

// From linux/bpf.h.
enum { HASH = 1, ARRAY = 2, RINGBUF = 27 };
enum { ANY = 0, NOEXIST = 1 };
static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static u64 (*ktime_get_ns)(void) = (void *)5;
static u64 (*get_current_pid_tgid)(void) = (void *)14;
static long (*probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*probe_read_user_str)(void *to, u32 size, const void *from) = (void *)114;
static void *(*ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ringbuf_submit)(void *data, u64 flags) = (void *)132;
static struct task_struct *(*get_current_task)(void) = (void *)158; // typed
static u64 (*get_attach_cookie)(void *context) = (void *)174;

// The kernel fields that are read. They are relocated with the kernel's type information (BTF).
struct rq {
	u64 clock;
	u64 clock_task;
} __attribute__((preserve_access_index));
struct cfs_rq {
	struct rq *rq;
} __attribute__((preserve_access_index));
struct sched_entity {
	u64 exec_start;
	u64 sum_exec_runtime;
	struct cfs_rq *cfs_rq;
} __attribute__((preserve_access_index));
struct task_struct {
	int pid;
	struct sched_entity se;
} __attribute__((preserve_access_index));

// ---- Shared with the loading program: `src/probes/kernel.rs` must match.

// Location of a tracepoint's argument.
struct argument {
	u8 place; // 0: no argument; 1: a constant; 2: a register; 3: memory at a register
	u8 shift; // 64 minus its number of bits
	u8 is_signed;
	u8 reserved;
	u32 register_at; // offset of the register in the kernel's `pt_regs`
	s64 value;       // the constant, or the offset of the memory
};

// A place in the node's code with a tracepoint.
struct site {
	u32 event;
	u32 reserved;
	struct argument arguments[6];
};

// Event types, and purposes of sites.
enum {
	INBOUND_MESSAGE = 1,
	OUTBOUND_MESSAGE = 2,
	CONNECTED = 3,
	DISCONNECTED = 4,
	VERSION = 5,	   // only an event
	BLOCK_MESSAGE = 6, // only an event
	BLOCK_CONNECTED = 7,
	TRANSACTION_ADDED = 8, // only a purpose
};

// Types of inventory entries for blocks (BIP152): 2 is a block, 3 a filtered one, 4 a compact one.
enum { MSG_BLOCK = 2, MSG_CMPCT_BLOCK = 4, MSG_WITNESS_FLAG = 1 << 30 };

// How much of a message about a block is reported: all of `headers` with 8 headers, the most that
// announce blocks, and of `getdata` for 16 blocks, the most that Bitcoin Core requests at a time.
enum { BLOCK_START_LEN = 656 };

// Transaction entries of an `inv`, by txid or wtxid (BIP339).
enum { MSG_TX = 1, MSG_WTX = 5 };

// The two functions, as cookies of the probes at entry and return; and none.
enum { RECEIVING = 0, SENDING = 1, NEITHER = 2 };

// Indices into `settings`.
enum {
	SECOND_ARGUMENT = 0, // offset of the register with a function's second argument
	CALL_NS = 1,	     // overhead of the entry and return probes that a call includes
	HIT_NS = 2,	     // overhead of a tracepoint's probe, excluding its program
	OPENED_NS = 3,	     // when the window was opened; 0 if none is open
	// Upper limit of the probes' own time outside of a call. Longer times include an interrupt or
	// steal time. A shorter negative run time comes from probes that took a little less than usual.
	MAX_PROBES_NS = 4,
};

// Indices into `counts`.
enum {
	LOST = 0,     // events lost because the ring was full
	SPENT_NS = 1, // time spent at tracepoints
	// Run time between the end of a call and the start of the next: the probes and the thread's
	// loop.
	BETWEEN_NS = 2,
	// The same, only between the two calls for a peer when the first found no message; and how
	// often. The node does nothing there, so this is the probes' cost in this node.
	IDLE_GAP_NS = 3,
	IDLE_GAPS = 4,
};

struct calls {
	u64 count;
	u64 wall_ns;
	u64 cpu_ns;
};

// The calls for one peer since the reading program last cleared them.
struct visits {
	s64 peer; // its id, or -1 as long as it is unknown
	struct calls calls[2];
};

struct message_event {
	u32 event;
	// 1 if it is an `inv` of transactions to a peer, or if processing it added a transaction to
	// the mempool or a block to the chain.
	u32 flag;
	u64 time_ns;
	s64 peer;
	u64 bytes;
	u64 wall_ns;
	u64 cpu_ns;
	char type[16];
};

// A peer's `version`.
struct version_event {
	u32 event;
	u32 reserved;
	u64 time_ns;
	s64 peer;
	u64 bytes;
	// These two determine whether the peer wants transactions.
	u8 user_agent_len;
	u8 last_byte;
	u8 reserved_too[6];
	char user_agent[80]; // its start, zero-terminated
};

// A message about a block, or several.
struct block_event {
	u32 event;
	u32 received; // 0 if sent to the peer
	u64 time_ns;
	s64 peer;
	u64 bytes; // length of the payload
	char type[16];
	u8 start[BLOCK_START_LEN]; // of the payload; 0 beyond its end
};

// The node has added a block to its chain.
struct connected_event {
	u32 event;
	u32 reserved;
	u64 time_ns;
	s64 peer; // always -1
	u64 height;
	u64 transactions;
	u64 took_ns;
	u8 hash[32];
};

struct connection_event {
	u32 event;
	u32 is_new; // 0 if the peer was connected before
	u64 time_ns;
	s64 peer;
	u64 network;
	u64 has_network;
	char kind[24];
	char address[80];
	u64 object;
	struct visits visits; // the totals when it disconnected
};

// ---- Maps

struct {
	int (*type)[ARRAY];
	int (*max_entries)[64];
	u32 *key;
	struct site *value;
} sites SEC(".maps");

struct {
	int (*type)[ARRAY];
	int (*max_entries)[5];
	u32 *key;
	u64 *value;
} settings SEC(".maps");

// The current or last call of each thread.
struct call {
	u64 node;
	u64 function;
	u64 start_ns;
	u64 start_cpu_ns; // the thread's run time at the start
	u64 ended_ns;	  // when the previous call ended
	u64 ended_cpu_ns;
	u64 follows_idle; // whether that was this peer's receiving call and found no message
	u64 probes_ns;	  // cost of tracepoint probes within the call
	// How far this clock is ahead of the scheduler's; and the run time that was counted in
	// excess so far.
	u64 ahead_ns;
	u64 debt_ns;
	s64 peer;
	u64 has_message;
	u64 has_added; // whether it added a transaction or a block
	u64 bytes;
	char type[16];
};

struct {
	int (*type)[HASH];
	int (*max_entries)[64];
	u32 *key;
	struct call *value;
} in_call SEC(".maps");

// Calls for each peer, by the address of its object.
struct {
	int (*type)[HASH];
	int (*max_entries)[4096];
	u64 *key;
	struct visits *value;
} visited SEC(".maps");

// The address of a peer's object, by the peer's id where it is known.
struct {
	int (*type)[HASH];
	int (*max_entries)[4096];
	s64 *key;
	u64 *value;
} objects SEC(".maps");

// Peers that were reported to the reading program.
struct {
	int (*type)[HASH];
	int (*max_entries)[4096];
	s64 *key;
	u8 *value;
} reported SEC(".maps");

struct {
	int (*type)[RINGBUF];
	int (*max_entries)[8 * 1024 * 1024];
} events SEC(".maps");

struct {
	int (*type)[ARRAY];
	int (*max_entries)[5];
	u32 *key;
	u64 *value;
} counts SEC(".maps");

// ---- Programs

static __attribute__((always_inline)) u64 setting(u32 which)
{
	u64 *value = map_lookup(&settings, &which);
	return value ? *value : 0;
}

static __attribute__((always_inline)) void add_to_count(u32 which, u64 more)
{
	u64 *count = map_lookup(&counts, &which);
	if (count)
		__sync_fetch_and_add(count, more);
}

static void *reserve(u64 size)
{
	void *event = ringbuf_reserve(&events, size, 0);
	if (!event)
		add_to_count(LOST, 1);
	return event;
}

static __attribute__((always_inline)) u64 argument(void *context, const struct argument *from)
{
	u64 value = 0;
	if (from->place == 1)
		return from->value;
	if (from->place == 0)
		return 0;
	probe_read_kernel(&value, sizeof value, context + from->register_at);
	if (from->place == 3) {
		u64 address = value + from->value;
		value = 0;
		probe_read_user(&value, sizeof value, (void *)address);
	}
	value <<= from->shift & 63;
	if (from->is_signed)
		return (s64)value >> (from->shift & 63);
	return value >> (from->shift & 63);
}

// Run time of the current thread. The kernel updates its sum at ticks and context switches. The
// time since then is added here, by the scheduler's own clock. Steal time does not count, but the
// kernel notices it only at the next update.
static __attribute__((always_inline)) u64 run_ns(struct call *call, u64 now)
{
	struct task_struct *task = get_current_task();
	struct rq *rq = task->se.cfs_rq->rq;
	if (!call->ahead_ns)
		call->ahead_ns = now - rq->clock;
	return task->se.sum_exec_runtime + rq->clock_task - task->se.exec_start + now -
	       call->ahead_ns - rq->clock;
}

// Run time between two moments.
static __attribute__((always_inline)) u64 run_since(struct call *call, u64 start_ns, u64 end_ns)
{
	s64 ns = end_ns - start_ns;
	if (ns >= 0)
		return ns;
	// The kernel has noticed steal time from before the start.
	if (-ns > (s64)setting(MAX_PROBES_NS))
		call->debt_ns -= ns;
	return 0;
}

// Subtracts steal time that was counted as run time before. The next intervals bear it, since it is
// unknown which ones included it.
static __attribute__((always_inline)) u64 pay(struct call *call, u64 ns)
{
	u64 paid_ns = call->debt_ns < ns ? call->debt_ns : ns;
	call->debt_ns -= paid_ns;
	return ns - paid_ns;
}

SEC("uprobe/enter")
int enter(void *context)
{
	u32 thread = get_current_pid_tgid();
	struct call *call = map_lookup(&in_call, &thread);
	if (!call) {
		struct call first = { .function = NEITHER };
		map_update(&in_call, &thread, &first, NOEXIST);
		call = map_lookup(&in_call, &thread);
		if (!call)
			return 0;
	}
	u64 node_before = call->node;
	probe_read_kernel(&call->node, sizeof call->node,
			  context + (setting(SECOND_ARGUMENT) & 0xff));
	call->function = get_attach_cookie(context) & 1;
	call->follows_idle = call->node == node_before && call->function == SENDING &&
			  !call->has_message;
	call->probes_ns = 0;
	call->peer = -1;
	call->has_message = 0;
	call->has_added = 0;
	// Last, so that the call includes as little of this program as possible.
	call->start_ns = ktime_get_ns();
	call->start_cpu_ns = run_ns(call, call->start_ns);
	return 0;
}

// Adds the thread's run time since its previous call.
static __attribute__((always_inline)) void between(struct call *call)
{
	u64 ns = run_since(call, call->ended_cpu_ns, call->start_cpu_ns);
	add_to_count(BETWEEN_NS, pay(call, ns));
	if (call->follows_idle && ns < setting(MAX_PROBES_NS)) {
		add_to_count(IDLE_GAP_NS, ns);
		add_to_count(IDLE_GAPS, 1);
	}
}

SEC("uretprobe/leave")
int leave(void *context)
{
	u64 now = ktime_get_ns();
	u32 thread = get_current_pid_tgid();
	struct call *call = map_lookup(&in_call, &thread);
	if (!call || call->function != get_attach_cookie(context))
		return 0;
	u64 function = call->function;
	call->function = NEITHER;
	u64 probes_ns = setting(CALL_NS) + call->probes_ns;
	u64 wall_ns = now - call->start_ns;
	wall_ns -= probes_ns < wall_ns ? probes_ns : wall_ns;
	u64 run = run_ns(call, now);
	if (call->ended_ns > setting(OPENED_NS))
		between(call);
	call->ended_ns = now;
	call->ended_cpu_ns = run;
	u64 cpu_ns = run_since(call, call->start_cpu_ns + probes_ns, run);
	// Corrects the sums only, not this message.
	u64 charged_cpu_ns = pay(call, cpu_ns);
	struct visits *visits = map_lookup(&visited, &call->node);
	if (!visits) {
		struct visits first = { .peer = -1 };
		map_update(&visited, &call->node, &first, NOEXIST);
		visits = map_lookup(&visited, &call->node);
	}
	if (visits) {
		struct calls *calls = &visits->calls[function & 1];
		calls->count += 1;
		calls->wall_ns += wall_ns;
		calls->cpu_ns += charged_cpu_ns;
		if (call->peer != -1 && visits->peer != call->peer) {
			visits->peer = call->peer;
			map_update(&objects, &call->peer, &call->node, ANY);
		}
	}
	if (call->has_message) {
		struct message_event *event = reserve(sizeof *event);
		if (event) {
			event->event = INBOUND_MESSAGE;
			event->flag = call->has_added;
			event->time_ns = now;
			event->peer = call->peer;
			event->bytes = call->bytes;
			event->wall_ns = wall_ns;
			event->cpu_ns = cpu_ns < wall_ns ? cpu_ns : wall_ns;
			__builtin_memcpy(event->type, call->type, sizeof event->type);
			ringbuf_submit(event, 0);
		}
		u64 spent_ns = ktime_get_ns() - now;
		call->ended_cpu_ns += spent_ns;
		add_to_count(SPENT_NS, spent_ns);
	}
	return 0;
}

// At a context switch, the scheduler has just read its clock.
SEC("tp_btf/sched_switch")
int switched(u64 *arguments)
{
	u64 now = ktime_get_ns();
	struct task_struct *to = (void *)arguments[2];
	u32 thread = to->pid;
	struct call *call = map_lookup(&in_call, &thread);
	if (call)
		call->ahead_ns = now - to->se.cfs_rq->rq->clock;
	return 0;
}

// Reports a peer that has connected, or was connected before.
static __attribute__((always_inline)) void report_peer(void *context, const struct site *site,
						       s64 peer, u32 is_new)
{
	struct connection_event *event = reserve(sizeof *event);
	u8 one = 1;
	if (!event)
		return;
	map_update(&reported, &peer, &one, ANY);
	event->event = CONNECTED;
	event->is_new = is_new;
	event->time_ns = ktime_get_ns();
	event->peer = peer;
	event->has_network = is_new;
	event->network = is_new ? argument(context, &site->arguments[3]) : 0;
	__builtin_memset(event->kind, 0, sizeof event->kind);
	__builtin_memset(event->address, 0, sizeof event->address);
	probe_read_user_str(event->address, sizeof event->address,
			    (void *)argument(context, &site->arguments[1]));
	probe_read_user_str(event->kind, sizeof event->kind,
			    (void *)argument(context, &site->arguments[2]));
	event->object = 0;
	__builtin_memset(&event->visits, 0, sizeof event->visits);
	ringbuf_submit(event, 0);
}

// `object` and `visits` are null if unknown. An event is compared with null only once, right after
// it was reserved: the verifier of Linux 6.1 does not remember the result.
static __attribute__((always_inline)) void report_gone(s64 peer, const u64 *object,
						       const struct visits *visits)
{
	struct connection_event *event = reserve(sizeof *event);
	if (!event)
		return;
	event->event = DISCONNECTED;
	event->is_new = 0;
	event->time_ns = ktime_get_ns();
	event->peer = peer;
	event->network = 0;
	event->has_network = 0;
	__builtin_memset(event->kind, 0, sizeof event->kind);
	__builtin_memset(event->address, 0, sizeof event->address);
	event->object = object ? *object : 0;
	if (visits)
		event->visits = *visits;
	else
		__builtin_memset(&event->visits, 0, sizeof event->visits);
	ringbuf_submit(event, 0);
}

static __attribute__((always_inline)) void disconnected(s64 peer)
{
	u64 *object = map_lookup(&objects, &peer);
	struct visits *visits = object ? map_lookup(&visited, object) : 0;
	// The id of the object's peer may be known to the reading program only.
	if (visits && visits->peer != peer && visits->peer != -1)
		visits = 0;
	report_gone(peer, object, visits);
	// Another peer's object may reuse this address.
	if (object && visits)
		map_delete(&visited, object);
	map_delete(&objects, &peer);
	map_delete(&reported, &peer);
}

static __attribute__((always_inline)) void version(const u8 *payload, s64 peer, u64 bytes)
{
	if (bytes <= 85)
		return;
	struct version_event *event = reserve(sizeof *event);
	if (!event)
		return;
	event->event = VERSION;
	event->reserved = 0;
	event->time_ns = ktime_get_ns();
	event->peer = peer;
	event->bytes = bytes;
	__builtin_memset(&event->user_agent_len, 0, 8 + sizeof event->user_agent);
	probe_read_user(&event->user_agent_len, 1, payload + 80);
	probe_read_user(&event->last_byte, 1, payload + bytes - 1);
	u64 len = event->user_agent_len;
	if (len >= sizeof event->user_agent)
		len = sizeof event->user_agent - 1;
	probe_read_user(event->user_agent, len, payload + 81);
	ringbuf_submit(event, 0);
}

// A message that the node processes: emitted as an event when the call ends.
static __attribute__((always_inline)) void inbound(struct call *call, const char *type, s64 peer,
						   u64 bytes)
{
	call->peer = peer;
	call->has_message = 1;
	call->bytes = bytes;
	__builtin_memcpy(call->type, type, sizeof call->type);
}

// Whether an `inv` announces transactions. Its last entry decides, since blocks come first.
static __attribute__((always_inline)) u32 announces_transactions(const u8 *payload, u64 bytes)
{
	u32 kind = 0;
	if (bytes <= 36)
		return 0;
	probe_read_user(&kind, sizeof kind, payload + bytes - 36);
	return kind == MSG_TX || kind == MSG_WTX;
}

static __attribute__((always_inline)) void outbound(const char *type, s64 peer, const u8 *payload,
						    u64 bytes)
{
	struct message_event *event = reserve(sizeof *event);
	if (!event)
		return;
	event->event = OUTBOUND_MESSAGE;
	event->flag = 0;
	event->time_ns = ktime_get_ns();
	event->peer = peer;
	event->bytes = bytes;
	event->wall_ns = 0;
	event->cpu_ns = 0;
	__builtin_memcpy(event->type, type, sizeof event->type);
	if (*(u64 *)type == 0x766e69) // "inv"
		event->flag = announces_transactions(payload, bytes);
	ringbuf_submit(event, 0);
}

// Whether the first entry of an `inv` or `getdata` is a block. Bitcoin Core puts blocks first.
static __attribute__((always_inline)) u32 begins_with_block(const u8 *payload, u64 bytes)
{
	u32 kind = 0;
	if (bytes <= 36)
		return 0;
	probe_read_user(&kind, sizeof kind, payload + 1);
	kind &= ~MSG_WITNESS_FLAG;
	return kind >= MSG_BLOCK && kind <= MSG_CMPCT_BLOCK;
}

// Whether a message announces, requests or delivers a block.
static __attribute__((always_inline)) u32 is_about_block(const char *type, u32 received,
							 const u8 *payload, u64 bytes)
{
	u64 first = ((u64 *)type)[0], second = ((u64 *)type)[1];
	if (!received && first == 0x61746164746567) // "getdata"
		return begins_with_block(payload, bytes);
	if (!received)
		return first == 0x6b636f6c62746567 && second == 0x6e7874; // "getblocktxn"
	if (first == 0x766e69) // "inv"
		return begins_with_block(payload, bytes);
	if (first == 0x73726564616568) // "headers": more of them synchronize, and announce nothing
		return bytes <= BLOCK_START_LEN;
	return (first == 0x6f6c627463706d63 && second == 0x6b63) || // "cmpctblock"
	       (first == 0x6b636f6c62 && second == 0) ||	    // "block"
	       (first == 0x6e78746b636f6c62 && second == 0);	    // "blocktxn"
}

static __attribute__((always_inline)) void about_block(const char *type, u32 received, s64 peer,
						       const u8 *payload, u64 bytes)
{
	struct block_event *event = reserve(sizeof *event);
	u32 len = bytes < BLOCK_START_LEN ? bytes : BLOCK_START_LEN;
	if (!event)
		return;
	event->event = BLOCK_MESSAGE;
	event->received = received;
	event->time_ns = ktime_get_ns();
	event->peer = peer;
	event->bytes = bytes;
	__builtin_memcpy(event->type, type, sizeof event->type);
	// If a page of it is not in memory, nothing is read.
	__builtin_memset(event->start, 0, sizeof event->start);
	probe_read_user(event->start, len, payload);
	ringbuf_submit(event, 0);
}

static __attribute__((always_inline)) void block_connected(void *context, const struct site *site)
{
	struct connected_event *event = reserve(sizeof *event);
	if (!event)
		return;
	event->event = BLOCK_CONNECTED;
	event->reserved = 0;
	event->time_ns = ktime_get_ns();
	event->peer = -1;
	event->height = argument(context, &site->arguments[1]);
	event->transactions = argument(context, &site->arguments[2]);
	event->took_ns = argument(context, &site->arguments[5]);
	__builtin_memset(event->hash, 0, sizeof event->hash);
	probe_read_user(event->hash, sizeof event->hash,
			(void *)argument(context, &site->arguments[0]));
	ringbuf_submit(event, 0);
}

static __attribute__((always_inline)) void hit(void *context, struct call *call)
{
	u32 index = get_attach_cookie(context);
	struct site *site = map_lookup(&sites, &index);
	if (!site || !site->event)
		return;
	if (site->event == BLOCK_CONNECTED || site->event == TRANSACTION_ADDED) {
		if (call && call->function == RECEIVING)
			call->has_added = 1;
		if (site->event == BLOCK_CONNECTED)
			block_connected(context, site);
		return;
	}
	s64 peer = argument(context, &site->arguments[0]);
	if (site->event == CONNECTED) {
		report_peer(context, site, peer, 1);
		return;
	}
	if (site->event == DISCONNECTED) {
		disconnected(peer);
		return;
	}
	if (!map_lookup(&reported, &peer))
		report_peer(context, site, peer, 0);
	u64 bytes = argument(context, &site->arguments[4]);
	const u8 *payload = (u8 *)argument(context, &site->arguments[5]);
	u32 received = site->event == INBOUND_MESSAGE;
	char type[16] __attribute__((aligned(8))) = {};
	probe_read_user_str(type, sizeof type, (void *)argument(context, &site->arguments[3]));
	// Also between windows: a block comes rarely, and a request for one may be long unanswered.
	if (is_about_block(type, received, payload, bytes))
		about_block(type, received, peer, payload, bytes);
	if (received) {
		// Also between windows: the version message determines the kind of a new peer.
		if (*(u64 *)type == 0x6e6f6973726576) // "version"
			version(payload, peer, bytes);
		if (setting(OPENED_NS) && call && call->function == RECEIVING)
			inbound(call, type, peer, bytes);
		return;
	}
	// A message sent while another is processed may be for any peer; one sent within the
	// sending function is for its own peer.
	if (call && call->function == SENDING)
		call->peer = peer;
	if (setting(OPENED_NS))
		outbound(type, peer, payload, bytes);
}

SEC("uprobe/tracepoint")
int tracepoint(void *context)
{
	u64 start_ns = ktime_get_ns();
	u32 thread = get_current_pid_tgid();
	struct call *call = map_lookup(&in_call, &thread);
	hit(context, call);
	u64 spent_ns = setting(HIT_NS) + ktime_get_ns() - start_ns;
	if (call)
		call->probes_ns += spent_ns;
	add_to_count(SPENT_NS, spent_ns);
	return 0;
}

// The kernel allows reading memory only to programs with a GPL-compatible license. MIT is one, but
// the kernel only accepts this string for it.
char license_of_this[] SEC("license") = "Dual MIT/GPL";
