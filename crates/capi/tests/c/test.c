/* Tests the promises of packetlane.h from C: round trips, and the error for every mistake. Needs a
 * library built with the feature `test-panic`. Run by ../../check. */

#include "packetlane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS(condition)                                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s (last error: %s)\n", __FILE__, __LINE__, #condition, \
                    packetlane_error_message());                                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define OK(call) IS((call) == PACKETLANE_OK)
/* The call fails with this status and sets a message, which names nothing that exists only in Rust. */
#define FAILS(status, call)                                                                        \
    do {                                                                                           \
        IS((call) == PACKETLANE_##status);                                                         \
        IS(packetlane_error_message()[0] != '\0');                                                 \
        IS(strstr(packetlane_error_message(), "::") == NULL);                                      \
        IS(strstr(packetlane_error_message(), "()") == NULL);                                      \
    } while (0)
/* The call fails because this argument is NULL. */
#define IS_NULL(argument, call)                                                                    \
    do {                                                                                           \
        FAILS(NULL_ARGUMENT, call);                                                                \
        IS(strcmp(packetlane_error_message(), "argument `" argument "` is NULL") == 0);            \
    } while (0)
#define SAYS(words) IS(strstr(packetlane_error_message(), words) != NULL)

/* From the feature `test-panic`. */
packetlane_status packetlane_test_panic(packetlane_session *session);

static const uint8_t *const MAGIC = (const uint8_t *)PACKETLANE_MAGIC_REGTEST;
static packetlane_engine *engine;

static void handshake_pair(packetlane_handshake **a, packetlane_handshake **b) {
    packetlane_handshake_config config;
    OK(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, MAGIC, 4);
    OK(packetlane_handshake_initiator(engine, &config, a));
    OK(packetlane_handshake_responder(engine, &config, b));
}

static packetlane_progress carry(packetlane_handshake *from, packetlane_handshake *to) {
    const uint8_t *bytes;
    size_t len;
    packetlane_progress progress = PACKETLANE_WAITING;
    OK(packetlane_handshake_output(from, &bytes, &len));
    /* In pieces, as from a socket. */
    for (size_t at = 0; at < len; at += 1000)
        OK(packetlane_handshake_receive(to, bytes + at, len - at < 1000 ? len - at : 1000, &progress));
    return progress;
}

static void session_pair(packetlane_session **a, packetlane_session **b) {
    packetlane_handshake *from, *to;
    handshake_pair(&from, &to);
    FAILS(NOT_READY, packetlane_handshake_take_session(from, a));
    IS(carry(from, to) == PACKETLANE_WAITING);
    IS(carry(to, from) == PACKETLANE_COMPLETE);
    IS(carry(from, to) == PACKETLANE_COMPLETE);
    OK(packetlane_handshake_take_session(from, a));
    OK(packetlane_handshake_take_session(to, b));
    FAILS(NOT_READY, packetlane_handshake_take_session(to, b));
    packetlane_progress progress;
    FAILS(ENDED, packetlane_handshake_receive(to, (const uint8_t *)"x", 1, &progress));
    packetlane_handshake_free(from);
    packetlane_handshake_free(to);
    uint8_t one[32], other[32];
    OK(packetlane_session_id(*a, one));
    OK(packetlane_session_id(*b, other));
    IS(memcmp(one, other, 32) == 0);
}

static void engines(void) {
    packetlane_engine *other = NULL;
    IS_NULL("engine", packetlane_engine_detect(NULL));
    IS_NULL("name", packetlane_engine_named(NULL, &other));
    FAILS(BACKEND_UNKNOWN, packetlane_engine_named("mmx", &other));
    SAYS("mmx");
    IS(other == NULL);
    OK(packetlane_engine_named("portable", &other));
    IS(strcmp(packetlane_engine_backend(other), "portable") == 0);
    IS(packetlane_engine_backend(NULL) == NULL);
    packetlane_engine_free(other);
    packetlane_engine_free(NULL);
    packetlane_handshake_free(NULL);
    packetlane_session_free(NULL);
    packetlane_seal_batch_free(NULL);
    packetlane_open_batch_free(NULL);
    packetlane_key_pool_free(NULL);
    packetlane_quic_secret_free(NULL);
    packetlane_quic_sealer_free(NULL);
    packetlane_quic_opener_free(NULL);
    packetlane_quic_seal_batch_free(NULL);
    packetlane_quic_open_batch_free(NULL);
}

static void statuses(void) {
    IS(strcmp(packetlane_status_message(PACKETLANE_OK), "success") == 0);
    IS(strstr(packetlane_status_message(PACKETLANE_BAD_TAG), "tag") != NULL);
    IS(strcmp(packetlane_status_message(-1), "unknown status") == 0);
    IS(strcmp(packetlane_status_message(9999), "unknown status") == 0);
}

static void handshakes(void) {
    packetlane_handshake_config config;
    packetlane_handshake *handshake = NULL, *other = NULL;
    packetlane_progress progress;
    const uint8_t *bytes;
    size_t len;
    IS_NULL("config", packetlane_handshake_config_init(NULL, sizeof config));
    FAILS(WRONG_LENGTH, packetlane_handshake_config_init(&config, sizeof config - 1));
    OK(packetlane_handshake_config_init(&config, sizeof config));
    IS(config.size == sizeof config && config.receive_limit == 4000013);
    /* The magic was not set. */
    FAILS(ZERO_MAGIC, packetlane_handshake_initiator(engine, &config, &handshake));
    SAYS("00000000");
    FAILS(ZERO_MAGIC, packetlane_handshake_responder(engine, &config, &handshake));
    IS(handshake == NULL);
    memcpy(config.magic, MAGIC, 4);
    IS_NULL("engine", packetlane_handshake_initiator(NULL, &config, &handshake));
    IS_NULL("settings", packetlane_handshake_initiator(engine, NULL, &handshake));
    IS_NULL("handshake", packetlane_handshake_initiator(engine, &config, NULL));
    config.size = 8;
    FAILS(WRONG_LENGTH, packetlane_handshake_initiator(engine, &config, &handshake));
    config.size = sizeof config;
    static const uint8_t ZEROS[4096];
    config.secret = ZEROS;
    FAILS(SECRET_KEY, packetlane_handshake_initiator(engine, &config, &handshake));
    FAILS(SECRET_KEY, packetlane_handshake_responder(engine, &config, &handshake));
    config.secret = NULL;
    config.garbage_len = 1;
    IS_NULL("settings->garbage", packetlane_handshake_initiator(engine, &config, &handshake));
    config.garbage = ZEROS;
    config.garbage_len = 4096;
    FAILS(GARBAGE_TOO_LONG, packetlane_handshake_initiator(engine, &config, &handshake));
    SAYS("4096");
    config.decoys_len = 1;
    config.garbage_len = 0;
    IS_NULL("settings->decoys", packetlane_handshake_initiator(engine, &config, &handshake));

    /* All fields set: secrets, garbage, decoys and a version packet. */
    uint8_t secret[32] = {[31] = 7}, auxiliary[32] = {9};
    packetlane_bytes decoys[2] = {{(const uint8_t *)"noise", 5}, {NULL, 0}};
    config.secret = secret;
    config.auxiliary = auxiliary;
    config.garbage_len = 100;
    config.decoys = decoys;
    config.decoys_len = 2;
    config.version = (const uint8_t *)"v";
    config.version_len = 1;
    OK(packetlane_handshake_initiator(engine, &config, &handshake));
    OK(packetlane_handshake_output(handshake, &bytes, &len));
    IS(len == 64 + 100);
    uint8_t first[64];
    memcpy(first, bytes, 64);
    OK(packetlane_handshake_output(handshake, &bytes, &len));
    IS(len == 0);
    FAILS(CLOSED_UNANSWERED, packetlane_handshake_closed(handshake));
    OK(packetlane_handshake_receive(handshake, first, 1, &progress));
    FAILS(CLOSED, packetlane_handshake_closed(handshake));
    IS_NULL("handshake", packetlane_handshake_closed(NULL));
    packetlane_handshake_free(handshake);
    /* A peer that speaks v1 first. */
    OK(packetlane_handshake_initiator(engine, &config, &handshake));
    uint8_t v1_version[16];
    memcpy(v1_version, config.magic, 4);
    memcpy(v1_version + 4, "version\0\0\0\0", 12);
    OK(packetlane_handshake_receive(handshake, v1_version, 15, &progress));
    FAILS(CLOSED_UNANSWERED, packetlane_handshake_closed(handshake));
    FAILS(ANSWERED_V1, packetlane_handshake_receive(handshake, v1_version + 15, 1, &progress));
    FAILS(CLOSED_UNANSWERED, packetlane_handshake_closed(handshake));
    packetlane_handshake_free(handshake);
    /* The same secrets give the same key. */
    OK(packetlane_handshake_initiator(engine, &config, &handshake));
    OK(packetlane_handshake_output(handshake, &bytes, &len));
    IS(memcmp(first, bytes, 64) == 0);
    packetlane_handshake_free(handshake);

    /* The handshake completes with those decoys. */
    OK(packetlane_handshake_initiator(engine, &config, &handshake));
    OK(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, MAGIC, 4);
    OK(packetlane_handshake_responder(engine, &config, &other));
    carry(handshake, other);
    IS(carry(other, handshake) == PACKETLANE_COMPLETE);
    IS(carry(handshake, other) == PACKETLANE_COMPLETE);
    /* Sessions that were not taken are freed with their handshake. */
    packetlane_handshake_free(handshake);
    packetlane_handshake_free(other);

    /* v1 on this network and on another. */
    static const uint8_t V1[] = "\xfa\xbf\xb5\xdaversion\0\0\0\0\0and more";
    OK(packetlane_handshake_responder(engine, &config, &handshake));
    FAILS(NOT_READY, packetlane_handshake_v1_bytes(handshake, &bytes, &len));
    OK(packetlane_handshake_receive(handshake, V1, sizeof V1 - 1, &progress));
    IS(progress == PACKETLANE_V1);
    OK(packetlane_handshake_v1_bytes(handshake, &bytes, &len));
    IS(len == sizeof V1 - 1 && memcmp(bytes, V1, len) == 0);
    FAILS(NOT_READY, packetlane_handshake_take_session(handshake, &(packetlane_session *){NULL}));
    packetlane_handshake_free(handshake);
    config.magic[0] = 1;
    OK(packetlane_handshake_responder(engine, &config, &handshake));
    FAILS(V1_OTHER_NETWORK, packetlane_handshake_receive(handshake, V1, sizeof V1 - 1, &progress));
    SAYS("regtest");
    FAILS(ENDED, packetlane_handshake_receive(handshake, V1, 1, &progress));
    packetlane_handshake_free(handshake);

    /* Noise. */
    OK(packetlane_handshake_initiator(engine, &config, &handshake));
    uint8_t noise[64 + 4111];
    memset(noise, 3, sizeof noise);
    IS_NULL("bytes", packetlane_handshake_receive(handshake, NULL, 1, &progress));
    IS_NULL("progress", packetlane_handshake_receive(handshake, noise, 1, NULL));
    IS_NULL("handshake", packetlane_handshake_receive(NULL, noise, 1, &progress));
    OK(packetlane_handshake_receive(handshake, NULL, 0, &progress));
    FAILS(NO_TERMINATOR, packetlane_handshake_receive(handshake, noise, sizeof noise, &progress));
    packetlane_handshake_free(handshake);
}

static packetlane_seal_batch *outgoing;
static packetlane_open_batch *incoming;

/* The keys of several handshakes are computed together. */
static void handshakes_in_a_batch(void) {
    enum { COUNT = 9 };
    packetlane_handshake_config config;
    packetlane_handshake *from[COUNT], *to[COUNT];
    packetlane_key_pool *pool = NULL;
    packetlane_progress progress;
    const uint8_t *bytes;
    size_t len;
    OK(packetlane_handshake_config_init(&config, sizeof config));
    IS_NULL("engine", packetlane_key_pool_new(NULL, 4, &pool));
    IS_NULL("pool", packetlane_key_pool_new(engine, 4, NULL));
    OK(packetlane_key_pool_new(engine, 4, &pool));
    FAILS(ZERO_MAGIC, packetlane_handshake_initiator_from(engine, &config, pool, from));
    memcpy(config.magic, MAGIC, 4);
    IS_NULL("pool", packetlane_handshake_initiator_from(engine, &config, NULL, from));
    for (int i = 0; i < COUNT; i++) {
        OK(packetlane_handshake_initiator_from(engine, &config, pool, &from[i]));
        OK(packetlane_handshake_responder(engine, &config, &to[i]));
    }
    packetlane_key_pool_free(pool);
    IS_NULL("batch", packetlane_handshake_receive_batched(to[0], NULL, NULL, 0, &progress));
    IS_NULL("batch", packetlane_handshake_take_keys(to[0], NULL, &progress));
    IS_NULL("progress", packetlane_handshake_take_keys(to[0], incoming, NULL));
    for (int turn = 0; turn < 2; turn++) {
        packetlane_handshake **sends = turn == 0 ? from : to, **receives = turn == 0 ? to : from;
        for (int i = 0; i < COUNT; i++) {
            OK(packetlane_handshake_output(sends[i], &bytes, &len));
            /* The last one receives its bytes in the batch's room. */
            if (i == COUNT - 1) {
                uint8_t *room;
                OK(packetlane_open_batch_room(incoming, len, &room));
                memcpy(room, bytes, len);
                bytes = room;
            }
            OK(packetlane_handshake_receive_batched(receives[i], incoming, bytes, len, &progress));
            IS(progress == PACKETLANE_WAITING);
            FAILS(NOT_OPENED, packetlane_handshake_take_keys(receives[i], incoming, &progress));
        }
        OK(packetlane_open_batch_open(incoming, engine));
        for (int i = 0; i < COUNT; i++) {
            /* The first one does not take its keys, and computes them itself. */
            if (i > 0) {
                OK(packetlane_handshake_take_keys(receives[i], incoming, &progress));
                IS(progress == (turn == 0 ? PACKETLANE_WAITING : PACKETLANE_COMPLETE));
            }
        }
        OK(packetlane_open_batch_clear(incoming));
        OK(packetlane_handshake_receive(receives[0], NULL, 0, &progress));
        IS(progress == (turn == 0 ? PACKETLANE_WAITING : PACKETLANE_COMPLETE));
    }
    for (int i = 0; i < COUNT; i++) {
        IS(carry(from[i], to[i]) == PACKETLANE_COMPLETE);
        packetlane_session *a, *b;
        OK(packetlane_handshake_take_session(from[i], &a));
        OK(packetlane_handshake_take_session(to[i], &b));
        uint8_t one[32], other[32];
        OK(packetlane_session_id(a, one));
        OK(packetlane_session_id(b, other));
        IS(memcmp(one, other, 32) == 0);
        packetlane_session_free(a);
        packetlane_session_free(b);
        packetlane_handshake_free(from[i]);
        packetlane_handshake_free(to[i]);
    }
}

/* Copies the sealed packets of a slot. */
static size_t sealed(const packetlane_slot *slot, uint8_t *copy) {
    const uint8_t *wire;
    size_t len;
    OK(packetlane_seal_batch_wire(outgoing, slot, &wire, &len));
    IS(len == packetlane_slot_wire_len(slot));
    memcpy(copy, wire, len);
    return len;
}

static void sessions(void) {
    packetlane_session *alice, *bob;
    session_pair(&alice, &bob);
    packetlane_slot slot, next;
    const uint8_t *bytes;
    size_t len, added;
    uint8_t *place;
    packetlane_message message;
    uint8_t id[32] = {1}, wire[1 << 12];

    /* Mistakes without effect. */
    IS_NULL("session", packetlane_session_id(NULL, id));
    IS_NULL("id", packetlane_session_id(alice, NULL));
    IS_NULL("session", packetlane_session_push(NULL, outgoing, 0, NULL, 0, &slot));
    IS_NULL("batch", packetlane_session_push(alice, NULL, 0, NULL, 0, &slot));
    IS_NULL("contents", packetlane_session_push(alice, outgoing, 0, NULL, 1, &slot));
    IS_NULL("slot", packetlane_session_push(alice, outgoing, 0, NULL, 0, NULL));
    FAILS(WRONG_VALUE, packetlane_session_push(alice, outgoing, 2, NULL, 0, &slot));
    FAILS(WRONG_LENGTH, packetlane_session_push(alice, outgoing, 0, id, SIZE_MAX, &slot));
    FAILS(CONTENTS_TOO_LONG, packetlane_session_begin(alice, outgoing, 0, 1 << 24, &place));
    SAYS("16777216");
    packetlane_bytes many[3] = {{id, 5}, {NULL, 0}, {id, 32}}, wrong[2] = {{id, 5}, {NULL, 1}};
    IS_NULL("session", packetlane_session_push_many(NULL, outgoing, 0, many, 3, &slot));
    IS_NULL("batch", packetlane_session_push_many(alice, NULL, 0, many, 3, &slot));
    IS_NULL("contents", packetlane_session_push_many(alice, outgoing, 0, NULL, 1, &slot));
    IS_NULL("contents[1].data", packetlane_session_push_many(alice, outgoing, 0, wrong, 2, &slot));
    IS_NULL("slot", packetlane_session_push_many(alice, outgoing, 0, many, 3, NULL));
    FAILS(WRONG_VALUE, packetlane_session_push_many(alice, outgoing, 2, many, 3, &slot));
    FAILS(WRONG_LENGTH, packetlane_session_push_many(alice, outgoing, 0, many, SIZE_MAX, &slot));
    IS_NULL("contents", packetlane_session_begin(alice, outgoing, 0, 1, NULL));
    FAILS(WRONG_VALUE, packetlane_session_begin(alice, outgoing, 2, 1, &place));
    FAILS(STALE_SLOT, packetlane_session_commit(alice, outgoing, &slot));
    IS_NULL("slot", packetlane_session_commit(alice, outgoing, NULL));
    FAILS(MESSAGE_TYPE, packetlane_session_push_message(alice, outgoing, "", NULL, 0, &slot));
    FAILS(MESSAGE_TYPE, packetlane_session_push_message(alice, outgoing, "thirteenchars", NULL, 0, &slot));
    FAILS(MESSAGE_TYPE, packetlane_session_push_message(alice, outgoing, "a\x01", NULL, 0, &slot));
    IS_NULL("type_name", packetlane_session_push_message(alice, outgoing, NULL, NULL, 0, &slot));
    IS_NULL("payload", packetlane_session_begin_message(alice, outgoing, "a", 0, NULL));
    FAILS(MESSAGE_TYPE, packetlane_session_begin_message(alice, outgoing, "", 0, &place));
    IS(packetlane_seal_batch_packets(outgoing) == 0 && packetlane_seal_batch_bytes(outgoing) == 0);
    IS_NULL("batch", packetlane_seal_batch_new(NULL));
    IS_NULL("batch", packetlane_seal_batch_seal(NULL, engine));
    IS_NULL("engine", packetlane_seal_batch_seal(outgoing, NULL));
    IS_NULL("batch", packetlane_seal_batch_clear(NULL));
    IS_NULL("batch", packetlane_open_batch_new(NULL));
    IS_NULL("batch", packetlane_open_batch_open(NULL, engine));
    IS_NULL("engine", packetlane_open_batch_open(incoming, NULL));
    IS_NULL("room", packetlane_open_batch_room(incoming, 1, NULL));
    IS_NULL("session", packetlane_session_defer(NULL, incoming));
    IS_NULL("session", packetlane_session_set_receive_limit(NULL, 1));
    IS(packetlane_session_decoys(NULL) == 0 && packetlane_session_buffered(NULL) == 0);
    IS(packetlane_session_ignored(NULL) == 0);
    IS(!packetlane_session_needs_turn(NULL) && packetlane_seal_batch_packets(NULL) == 0);

    /* A message, a decoy, a message written in place, two packets that are none, and a last one, as one
       write. */
    OK(packetlane_session_push_message(alice, outgoing, "ping", (const uint8_t *)"12345678", 8, &slot));
    OK(packetlane_session_push(alice, outgoing, PACKETLANE_DECOY, id, 10, &next));
    IS(packetlane_slot_join(&slot, &next));
    IS(!packetlane_slot_join(&slot, &next));
    IS(!packetlane_slot_join(NULL, &next) && !packetlane_slot_join(&slot, NULL));
    OK(packetlane_session_begin_message(alice, outgoing, "sendaddrv2", 3, &place));
    memcpy(place, "abc", 3);
    OK(packetlane_session_commit(alice, outgoing, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_push(alice, outgoing, PACKETLANE_GENUINE, NULL, 0, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_push(alice, outgoing, PACKETLANE_GENUINE, (const uint8_t *)"\x7f", 1, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_push_message(alice, outgoing, "tx", NULL, 0, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_begin(alice, outgoing, PACKETLANE_GENUINE, 4, &place));
    memcpy(place, "\x12xyz", 4);
    OK(packetlane_session_commit(alice, outgoing, &next));
    FAILS(STALE_SLOT, packetlane_session_commit(alice, outgoing, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_push_many(alice, outgoing, PACKETLANE_DECOY, many, 3, &next));
    IS(packetlane_slot_join(&slot, &next));
    OK(packetlane_session_push_many(alice, outgoing, PACKETLANE_DECOY, NULL, 0, &next));
    IS(packetlane_slot_join(&slot, &next));
    IS(packetlane_seal_batch_packets(outgoing) == 10);
    FAILS(NOT_SEALED, packetlane_seal_batch_wire(outgoing, &slot, &bytes, &len));
    OK(packetlane_seal_batch_seal(outgoing, engine));
    IS_NULL("of", packetlane_seal_batch_wire(outgoing, NULL, &bytes, &len));
    IS_NULL("bytes", packetlane_seal_batch_wire(outgoing, &slot, NULL, &len));
    size_t wire_len = sealed(&slot, wire);
    IS(wire_len == 10 * 20 + 9 + 10 + 16 + 0 + 1 + 1 + 4 + 37);

    /* A slot that was tampered with causes a panic at worst, which is caught. */
    packetlane_slot forged = slot;
    memset(&forged.place, 0xff, sizeof forged.place);
    IS(packetlane_seal_batch_wire(outgoing, &forged, &bytes, &len) != PACKETLANE_OK);
    wire_len = sealed(&slot, wire);
    OK(packetlane_seal_batch_clear(outgoing));
    FAILS(STALE_SLOT, packetlane_seal_batch_wire(outgoing, &slot, &bytes, &len));
    OK(packetlane_seal_batch_shrink(outgoing, 0));

    /* Received in two parts, through two rooms. */
    FAILS(WRONG_LENGTH, packetlane_session_received(bob, incoming, 1, &added));
    SAYS("room of 0");
    OK(packetlane_open_batch_room(incoming, 100, &place));
    memcpy(place, wire, 40);
    FAILS(WRONG_LENGTH, packetlane_session_received(bob, incoming, 101, &added));
    OK(packetlane_session_received(bob, incoming, 40, &added));
    IS(added == 1 && packetlane_session_buffered(bob) > 0 && packetlane_open_batch_bytes(incoming) > 0);
    FAILS(WRONG_LENGTH, packetlane_session_received(bob, incoming, 1, &added));
    OK(packetlane_session_feed(bob, incoming, wire + 40, wire_len - 40, &added));
    IS(added == 9 && packetlane_open_batch_packets(incoming) == 10);
    IS_NULL("bytes", packetlane_session_feed(bob, incoming, NULL, 1, NULL));
    OK(packetlane_session_feed(bob, incoming, NULL, 0, NULL));
    FAILS(NOT_OPENED, packetlane_session_next_packet(bob, incoming, &bytes, &len));
    FAILS(NOT_OPENED, packetlane_session_defer(bob, incoming));
    OK(packetlane_open_batch_open(incoming, engine));
    IS_NULL("contents", packetlane_session_next_packet(bob, incoming, NULL, &len));
    IS_NULL("message", packetlane_session_next_message(bob, incoming, NULL));
    OK(packetlane_session_next_message(bob, incoming, &message));
    IS(strcmp(message.message_type, "ping") == 0 && message.payload_len == 8);
    IS(memcmp(message.payload, "12345678", 8) == 0);
    OK(packetlane_session_next_message(bob, incoming, &message));
    IS(strcmp(message.message_type, "sendaddrv2") == 0 && memcmp(message.payload, "abc", 3) == 0);
    IS(packetlane_session_ignored(bob) == 0);
    OK(packetlane_session_next_message(bob, incoming, &message));
    IS(strcmp(message.message_type, "tx") == 0 && message.payload_len == 0);
    IS(packetlane_session_decoys(bob) == 1 && packetlane_session_ignored(bob) == 2);

    /* The last one is deferred to another turn. */
    OK(packetlane_session_defer(bob, incoming));
    IS(packetlane_session_decoys(bob) == 4);
    IS(packetlane_session_next_packet(bob, incoming, &bytes, &len) == PACKETLANE_END);
    OK(packetlane_open_batch_clear(incoming));
    IS(packetlane_session_needs_turn(bob));
    OK(packetlane_session_received(bob, incoming, 0, NULL));
    OK(packetlane_open_batch_open(incoming, engine));
    OK(packetlane_session_next_packet(bob, incoming, &bytes, &len));
    IS(len == 4 && memcmp(bytes, "\x12xyz", 4) == 0);
    IS(packetlane_session_next_packet(bob, incoming, &bytes, &len) == PACKETLANE_END);
    IS(!packetlane_session_needs_turn(bob));
    OK(packetlane_open_batch_clear(incoming));
    OK(packetlane_open_batch_shrink(incoming, 0));

    /* A forged packet ends only its own session. */
    packetlane_session *carol, *dave;
    session_pair(&carol, &dave);
    uint8_t good[100], bad[100];
    OK(packetlane_session_push(alice, outgoing, 0, id, 32, &slot));
    OK(packetlane_session_push(carol, outgoing, 0, id, 32, &next));
    IS(!packetlane_slot_join(&slot, &next));
    OK(packetlane_seal_batch_seal(outgoing, engine));
    size_t good_len = sealed(&slot, good), bad_len = sealed(&next, bad);
    bad[20] ^= 1;
    OK(packetlane_session_feed(bob, incoming, good, good_len, NULL));
    OK(packetlane_session_feed(dave, incoming, bad, bad_len, NULL));
    OK(packetlane_open_batch_open(incoming, engine));
    FAILS(BAD_TAG, packetlane_session_next_packet(dave, incoming, &bytes, &len));
    FAILS(BAD_TAG, packetlane_session_next_packet(dave, incoming, &bytes, &len));
    FAILS(BAD_TAG, packetlane_session_feed(dave, incoming, bad, 1, NULL));
    FAILS(BAD_TAG, packetlane_session_defer(dave, incoming));
    OK(packetlane_session_next_packet(bob, incoming, &bytes, &len));
    IS(len == 32 && memcmp(bytes, id, 32) == 0);
    packetlane_session_free(carol);
    packetlane_session_free(dave);

    /* A batch that is cleared with packets in it, and one from another turn. */
    OK(packetlane_seal_batch_clear(outgoing));
    OK(packetlane_session_push(alice, outgoing, 0, id, 32, &slot));
    OK(packetlane_seal_batch_seal(outgoing, engine));
    good_len = sealed(&slot, good);
    OK(packetlane_session_feed(bob, incoming, good, good_len, NULL));
    OK(packetlane_open_batch_clear(incoming));
    FAILS(NOT_IN_BATCH, packetlane_session_next_packet(bob, incoming, &bytes, &len));
    FAILS(NOT_IN_BATCH, packetlane_session_feed(bob, incoming, good, 1, NULL));
    packetlane_session_free(alice);
    packetlane_session_free(bob);

    /* More than the receive limit. */
    session_pair(&alice, &bob);
    OK(packetlane_seal_batch_clear(outgoing));
    OK(packetlane_session_set_receive_limit(bob, 31));
    OK(packetlane_session_push(alice, outgoing, 0, id, 32, &slot));
    OK(packetlane_seal_batch_seal(outgoing, engine));
    good_len = sealed(&slot, good);
    FAILS(RECEIVE_LIMIT, packetlane_session_feed(bob, incoming, good, good_len, NULL));
    SAYS("limit is 31");

    /* A panic is caught and poisons the handles it may have changed. */
    FAILS(PANIC, packetlane_test_panic(alice));
    SAYS("a test asked for this");
    FAILS(POISONED, packetlane_session_push(alice, outgoing, 0, id, 32, &slot));
    FAILS(POISONED, packetlane_session_id(alice, id));
    IS(packetlane_session_decoys(alice) == 0);
    packetlane_session_free(alice);
    packetlane_session_free(bob);
}

static void quic(void) {
    packetlane_quic_secret *secret = NULL, *client, *server;
    uint8_t bytes[48] = {5}, *room;
    packetlane_quic_sealer *sealer;
    packetlane_quic_opener *opener, *stranger;
    packetlane_quic_seal_batch *seal;
    packetlane_quic_open_batch *open;
    packetlane_slot slot, other;
    packetlane_quic_packet packet;
    const uint8_t *wire;
    size_t len, at;
    FAILS(WRONG_VALUE, packetlane_quic_secret_new(3, 1, bytes, 32, &secret));
    FAILS(WRONG_VALUE, packetlane_quic_secret_new(0, 7, bytes, 32, &secret));
    FAILS(WRONG_LENGTH, packetlane_quic_secret_new(PACKETLANE_QUIC_AES_256_GCM, 1, bytes, 32, &secret));
    SAYS("48");
    IS_NULL("bytes", packetlane_quic_secret_new(0, 1, NULL, 32, &secret));
    IS_NULL("secret", packetlane_quic_secret_new(0, 1, bytes, 32, NULL));
    IS_NULL("server", packetlane_quic_secret_initial(1, bytes, 8, &client, NULL));
    OK(packetlane_quic_secret_initial(1, bytes, 8, &client, &server));
    OK(packetlane_quic_seal_batch_new(&seal));
    OK(packetlane_quic_open_batch_new(&open));
    for (uint32_t suite = 0; suite < 3; suite++) {
        OK(packetlane_quic_secret_new(suite, 0x6b3343cf, bytes, suite == 1 ? 48 : 32, &secret));
        OK(packetlane_quic_sealer_new(secret, &sealer));
        OK(packetlane_quic_opener_new(secret, &opener));
        OK(packetlane_quic_opener_new(server, &stranger));
        packetlane_quic_secret_free(secret);
        IS(!packetlane_quic_sealer_needs_key_update(sealer));

        static const uint8_t HEADER[2] = {0x40, 0}, SECOND[2] = {0x40, 1};
        const uint8_t *payload = (const uint8_t *)"frames";
        FAILS(QUIC_HEADER_TOO_SHORT, packetlane_quic_sealer_push(sealer, seal, 0, HEADER, 1, payload, 6, &slot));
        FAILS(QUIC_HEADER_NUMBER, packetlane_quic_sealer_push(sealer, seal, 1, HEADER, 2, payload, 6, &slot));
        FAILS(QUIC_PAYLOAD_TOO_SHORT, packetlane_quic_sealer_push(sealer, seal, 0, HEADER, 2, payload, 2, &slot));
        FAILS(QUIC_NUMBER_TOO_LARGE, packetlane_quic_sealer_push(sealer, seal, 1ULL << 62, HEADER, 2, payload, 6, &slot));
        IS_NULL("header", packetlane_quic_sealer_push(sealer, seal, 0, NULL, 2, payload, 6, &slot));
        OK(packetlane_quic_sealer_push(sealer, seal, 0, HEADER, 2, payload, 6, &slot));
        FAILS(QUIC_NUMBER_USED, packetlane_quic_sealer_push(sealer, seal, 0, HEADER, 2, payload, 6, &other));
        OK(packetlane_quic_sealer_update_keys(sealer));
        uint8_t *place;
        OK(packetlane_quic_sealer_reserve(sealer, seal, 1, SECOND, 2, 5, &other, &place));
        memcpy(place, "after", 5);
        FAILS(NOT_SEALED, packetlane_quic_seal_batch_wire(seal, &slot, &wire, &len));
        OK(packetlane_quic_seal_batch_seal(seal, engine));

        /* One datagram of both, then a forged one. */
        FAILS(WRONG_LENGTH, packetlane_quic_open_batch_received(open, 1, &at));
        OK(packetlane_quic_open_batch_room(open, 100, &room));
        OK(packetlane_quic_seal_batch_wire(seal, &slot, &wire, &len));
        IS(len == 2 + 6 + 16);
        memcpy(room, wire, len);
        OK(packetlane_quic_seal_batch_wire(seal, &other, &wire, &len));
        IS(len == 2 + 5 + 16);
        memcpy(room + 24, wire, 23);
        memcpy(room + 47, wire, 23);
        room[60] ^= 1;
        OK(packetlane_quic_open_batch_received(open, 70, &at));
        packetlane_slot first, second, third;
        FAILS(WRONG_LENGTH, packetlane_quic_opener_push(opener, open, at, 71, 1, &first));
        FAILS(WRONG_LENGTH, packetlane_quic_opener_push(opener, open, SIZE_MAX, 71, 1, &first));
        FAILS(QUIC_PACKET_TOO_SHORT, packetlane_quic_opener_push(opener, open, at, 20, 1, &first));
        IS_NULL("slot", packetlane_quic_opener_push(opener, open, at, 24, 1, NULL));
        OK(packetlane_quic_opener_push(opener, open, at, 24, 1, &first));
        OK(packetlane_quic_opener_push(opener, open, at + 24, 23, 1, &second));
        OK(packetlane_quic_opener_push(opener, open, at + 47, 23, 1, &third));
        FAILS(NOT_OPENED, packetlane_quic_opener_take(opener, open, &first, &packet));
        OK(packetlane_quic_open_batch_open(open, engine));
        FAILS(QUIC_OTHER_OPENER, packetlane_quic_opener_take(stranger, open, &first, &packet));
        OK(packetlane_quic_opener_take(opener, open, &first, &packet));
        IS(packet.number == 0 && packet.header_len == 2 && packet.payload_len == 6 && !packet.key_update);
        IS(memcmp(packet.payload, "frames", 6) == 0);
        OK(packetlane_quic_opener_take(opener, open, &second, &packet));
        IS(packet.number == 1 && packet.key_update && memcmp(packet.payload, "after", 5) == 0);
        FAILS(BAD_TAG, packetlane_quic_opener_take(opener, open, &third, &packet));
        IS(packetlane_quic_opener_forged(opener) == 1 && packetlane_quic_opener_expected(opener) == 2);
        OK(packetlane_quic_opener_set_expected(opener, 9));
        IS(packetlane_quic_opener_expected(opener) == 9);
        OK(packetlane_quic_opener_drop_previous_keys(opener));
        OK(packetlane_quic_open_batch_clear(open));
        FAILS(STALE_SLOT, packetlane_quic_opener_take(opener, open, &first, &packet));
        OK(packetlane_quic_seal_batch_clear(seal));
        FAILS(STALE_SLOT, packetlane_quic_seal_batch_wire(seal, &slot, &wire, &len));
        packetlane_quic_sealer_free(sealer);
        packetlane_quic_opener_free(opener);
        packetlane_quic_opener_free(stranger);
    }
    packetlane_quic_secret_free(client);
    packetlane_quic_secret_free(server);
    packetlane_quic_seal_batch_free(seal);
    packetlane_quic_open_batch_free(open);
}

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t limit) {
    random_state = random_state * 1664525 + 1013904223;
    return (random_state >> 8) % limit;
}

/* What a program does after PACKETLANE_V1. src/tests.rs compares with Rust. */
static void v1(void) {
    static const uint8_t ZEROS[4] = {0};
    uint8_t header[PACKETLANE_V1_HEADER_LEN];
    packetlane_message message;
    size_t taken = 99;
    uint64_t ignored = 99;
    IS_NULL("magic", packetlane_v1_encode_header(NULL, "ping", NULL, 0, header));
    IS_NULL("type_name", packetlane_v1_encode_header(MAGIC, NULL, NULL, 0, header));
    IS_NULL("payload", packetlane_v1_encode_header(MAGIC, "ping", NULL, 1, header));
    IS_NULL("header", packetlane_v1_encode_header(MAGIC, "ping", NULL, 0, NULL));
    FAILS(ZERO_MAGIC, packetlane_v1_encode_header(ZEROS, "ping", NULL, 0, header));
    FAILS(MESSAGE_TYPE, packetlane_v1_encode_header(MAGIC, "", NULL, 0, header));
    FAILS(MESSAGE_TYPE, packetlane_v1_encode_header(MAGIC, "thirteenchars", NULL, 0, header));
    FAILS(CONTENTS_TOO_LONG, packetlane_v1_encode_header(MAGIC, "tx", header, PACKETLANE_V1_MAX_PAYLOAD_LEN + 1, header));
    SAYS("4000001");
    FAILS(CONTENTS_TOO_LONG, packetlane_v1_encode_header(MAGIC, "tx", NULL, SIZE_MAX, header));

    /* The bytes of an empty message, verack, are well known. */
    OK(packetlane_v1_encode_header((const uint8_t *)PACKETLANE_MAGIC_MAINNET, "verack", NULL, 0, header));
    IS(memcmp(header, "\xf9\xbe\xb4\xd9verack\0\0\0\0\0\0\0\0\0\0\x5d\xf6\xe0\xe2", sizeof header) == 0);

    IS_NULL("magic", packetlane_v1_decode(NULL, header, 1, &message, &taken, &ignored));
    IS_NULL("bytes", packetlane_v1_decode(MAGIC, NULL, 1, &message, &taken, &ignored));
    IS_NULL("message", packetlane_v1_decode(MAGIC, header, 1, NULL, &taken, &ignored));
    IS_NULL("taken", packetlane_v1_decode(MAGIC, header, 1, &message, NULL, &ignored));
    FAILS(ZERO_MAGIC, packetlane_v1_decode(ZEROS, header, 1, &message, &taken, &ignored));
    FAILS(V1_OTHER_NETWORK, packetlane_v1_decode(MAGIC, header, sizeof header, &message, &taken, NULL));
    SAYS("main");
    IS(taken == 99 && ignored == 99);
    OK(packetlane_v1_encode_header(MAGIC, "tx", NULL, 0, header));
    memcpy(header + 16, "\x01\x09\x3d\x00", 4);
    FAILS(RECEIVE_LIMIT, packetlane_v1_decode(MAGIC, header, sizeof header, &message, &taken, NULL));
    SAYS("4000001");
    IS(packetlane_v1_decode(MAGIC, NULL, 0, &message, &taken, &ignored) == PACKETLANE_END);
    IS(taken == 0 && ignored == 0);

    /* A stream of messages, every fifth of them damaged, that comes in pieces: into memory of exactly
       their length, which the sanitizers watch. */
    enum { COUNT = 1000, MAX = 300 };
    static uint8_t stream[COUNT * (PACKETLANE_V1_HEADER_LEN + MAX)];
    size_t len = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        uint8_t payload[MAX];
        uint32_t payload_len = 1 + random_below(MAX);
        for (uint32_t at = 0; at < payload_len; at++)
            payload[at] = (uint8_t)random_below(256);
        OK(packetlane_v1_encode_header(MAGIC, i % 2 ? "tx" : "cmpctblock", payload, payload_len, stream + len));
        memcpy(stream + len + sizeof header, payload, payload_len);
        len += sizeof header + payload_len;
        if (i % 5 == 4)
            stream[len - 1 - random_below(payload_len)] ^= 1;
    }
    size_t begin = 0, end = 0, messages = 0;
    uint64_t dropped = 0;
    while (end < len) {
        end += 1 + random_below(1000);
        end = end < len ? end : len;
        for (;;) {
            uint8_t *copy = malloc(end - begin + 1);
            IS(copy != NULL);
            memcpy(copy, stream + begin, end - begin);
            packetlane_status status = packetlane_v1_decode(MAGIC, copy, end - begin, &message, &taken, &ignored);
            IS(taken <= end - begin);
            dropped += ignored;
            begin += taken;
            if (status == PACKETLANE_END) {
                free(copy);
                break;
            }
            OK(status);
            IS(strcmp(message.message_type, (messages + dropped) % 2 ? "tx" : "cmpctblock") == 0);
            IS(message.payload + message.payload_len == copy + taken);
            IS(memcmp(message.payload, stream + begin - message.payload_len, message.payload_len) == 0);
            messages++;
            free(copy);
        }
    }
    IS(begin == len && messages == COUNT * 4 / 5 && dropped == COUNT / 5);

    /* After PACKETLANE_V1. */
    packetlane_handshake *responder;
    packetlane_handshake_config config;
    packetlane_progress progress;
    const uint8_t *bytes;
    OK(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, MAGIC, 4);
    OK(packetlane_handshake_responder(engine, &config, &responder));
    OK(packetlane_v1_encode_header(MAGIC, "version", NULL, 0, header));
    OK(packetlane_handshake_receive(responder, header, sizeof header, &progress));
    IS(progress == PACKETLANE_V1);
    OK(packetlane_handshake_v1_bytes(responder, &bytes, &len));
    OK(packetlane_v1_decode(MAGIC, bytes, len, &message, &taken, NULL));
    IS(strcmp(message.message_type, "version") == 0 && message.payload_len == 0 && taken == len);
    packetlane_handshake_free(responder);
}

static void hashes(void) {
    /* The double SHA-256 of nothing. */
    static const uint8_t NOTHING[32] = {0x5d, 0xf6, 0xe0, 0xe2, 0x76, 0x13, 0x59, 0xd3, 0x0a, 0x82, 0x75,
                                        0x05, 0x8e, 0x29, 0x9f, 0xcc, 0x03, 0x81, 0x53, 0x45, 0x45, 0xf5,
                                        0x5c, 0xf4, 0x3e, 0x41, 0x98, 0x3f, 0x5d, 0x4c, 0x94, 0x56};
    enum { COUNT = 600 };
    static uint8_t nodes[COUNT * 64], digests[COUNT * 32], others[COUNT * 32];
    packetlane_bytes messages[COUNT];
    for (size_t i = 0; i < sizeof nodes; i++)
        nodes[i] = (uint8_t)(i * i >> 5);
    for (size_t i = 0; i < COUNT; i++)
        messages[i] = (packetlane_bytes){nodes + 64 * i, 64};
    OK(packetlane_sha256d_many(engine, messages, COUNT, digests));
    OK(packetlane_sha256d_64(engine, nodes, COUNT, others));
    IS(memcmp(digests, others, sizeof digests) == 0);
    messages[0] = (packetlane_bytes){NULL, 0};
    OK(packetlane_sha256d_many(engine, messages, 1, digests));
    IS(memcmp(digests, NOTHING, 32) == 0);
    messages[0].len = 1;
    IS_NULL("messages[0].data", packetlane_sha256d_many(engine, messages, 1, digests));
    IS_NULL("engine", packetlane_sha256d_many(NULL, NULL, 0, NULL));
    IS_NULL("messages", packetlane_sha256d_many(engine, NULL, 1, digests));
    IS_NULL("digests", packetlane_sha256d_64(engine, nodes, 1, NULL));
    FAILS(WRONG_LENGTH, packetlane_sha256d_64(engine, nodes, SIZE_MAX, digests));
    OK(packetlane_sha256d_many(engine, NULL, 0, NULL));

    uint8_t root[32];
    bool mutated = true;
    OK(packetlane_merkle_root(engine, nodes, 2, root, &mutated));
    IS(memcmp(root, others, 32) == 0 && !mutated);
    memcpy(nodes + 32, nodes, 32);
    OK(packetlane_merkle_root(engine, nodes, 2, root, &mutated));
    IS(mutated);
    OK(packetlane_merkle_root(engine, nodes, 1, root, NULL));
    IS(memcmp(root, nodes, 32) == 0);
    IS_NULL("root", packetlane_merkle_root(engine, nodes, 1, NULL, NULL));
}

int main(void) {
    IS(packetlane_error_message()[0] == '\0');
    OK(packetlane_engine_detect(&engine));
    OK(packetlane_seal_batch_new(&outgoing));
    OK(packetlane_open_batch_new(&incoming));
    statuses();
    engines();
    handshakes();
    handshakes_in_a_batch();
    sessions();
    quic();
    v1();
    hashes();
    packetlane_seal_batch_free(outgoing);
    packetlane_open_batch_free(incoming);
    printf("the C test passes on %s\n", packetlane_engine_backend(engine));
    packetlane_engine_free(engine);
    return 0;
}
