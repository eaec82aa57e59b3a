/* CPU time of sealing and opening one packet. 200 sessions exchange one message of 61 bytes in each
 * direction per turn, in one batch per direction. bench.rs does the same in Rust. Run both with
 * `crates/capi/bench`.
 *
 *     bench SECONDS
 */

#define _POSIX_C_SOURCE 200809L
#include <packetlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SESSIONS = 200, LEN = 61 };

/* Exits if a call failed. */
static void must(packetlane_status status) {
    if (status != PACKETLANE_OK) {
        fprintf(stderr, "%s\n", packetlane_error_message());
        exit(1);
    }
}

static double cpu_time(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static packetlane_engine *engine;
static packetlane_seal_batch *outgoing;
static packetlane_open_batch *incoming;
static packetlane_session *near[SESSIONS], *far[SESSIONS];
static uint8_t contents[LEN];

static void carry(packetlane_handshake *from, packetlane_handshake *to) {
    const uint8_t *bytes;
    size_t len;
    packetlane_progress progress;
    must(packetlane_handshake_output(from, &bytes, &len));
    must(packetlane_handshake_receive(to, bytes, len, &progress));
}

static void connect_pair(int i) {
    packetlane_handshake_config config;
    packetlane_handshake *a, *b;
    must(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, PACKETLANE_MAGIC_MAINNET, 4);
    must(packetlane_handshake_initiator(engine, &config, &a));
    must(packetlane_handshake_responder(engine, &config, &b));
    carry(a, b);
    carry(b, a);
    carry(a, b);
    must(packetlane_handshake_take_session(a, &near[i]));
    must(packetlane_handshake_take_session(b, &far[i]));
    packetlane_handshake_free(a);
    packetlane_handshake_free(b);
}

/* Sends a message from each session of `from` to its peer. */
static void one_way(packetlane_session **from, packetlane_session **to) {
    packetlane_slot slots[SESSIONS];
    for (int i = 0; i < SESSIONS; i++)
        must(packetlane_session_push(from[i], outgoing, PACKETLANE_GENUINE, contents, LEN, &slots[i]));
    must(packetlane_seal_batch_seal(outgoing, engine));
    for (int i = 0; i < SESSIONS; i++) {
        /* Copies what sockets would carry. */
        const uint8_t *wire;
        uint8_t *room;
        size_t len;
        must(packetlane_seal_batch_wire(outgoing, &slots[i], &wire, &len));
        must(packetlane_open_batch_room(incoming, len, &room));
        memcpy(room, wire, len);
        must(packetlane_session_received(to[i], incoming, len, NULL));
    }
    must(packetlane_open_batch_open(incoming, engine));
    for (int i = 0; i < SESSIONS; i++) {
        const uint8_t *opened;
        size_t len;
        packetlane_status status;
        int packets = 0;
        while ((status = packetlane_session_next_packet(to[i], incoming, &opened, &len)) ==
               PACKETLANE_OK)
            packets += len == LEN && opened[0] == contents[0];
        if (status != PACKETLANE_END || packets != 1) {
            fprintf(stderr, "a message was lost\n");
            exit(1);
        }
    }
    must(packetlane_seal_batch_clear(outgoing));
    must(packetlane_open_batch_clear(incoming));
}

static void turns(int count) {
    for (int i = 0; i < count; i++) {
        one_way(near, far);
        one_way(far, near);
    }
}

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    must(packetlane_engine_detect(&engine));
    must(packetlane_seal_batch_new(&outgoing));
    must(packetlane_open_batch_new(&incoming));
    for (int i = 0; i < SESSIONS; i++)
        connect_pair(i);
    memset(contents, 7, LEN);
    turns(100);
    double begun = cpu_time(), spent;
    long packets = 0;
    do {
        turns(20);
        packets += 20 * 2 * SESSIONS;
        spent = cpu_time() - begun;
    } while (spent < seconds);
    printf("%.1f\n", 1e9 * spent / (double)packets);
    for (int i = 0; i < SESSIONS; i++) {
        packetlane_session_free(near[i]);
        packetlane_session_free(far[i]);
    }
    packetlane_seal_batch_free(outgoing);
    packetlane_open_batch_free(incoming);
    packetlane_engine_free(engine);
    return 0;
}
