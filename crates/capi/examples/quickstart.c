/* Two sessions in memory exchange a message.
 *
 *     cc quickstart.c $(pkg-config --cflags --libs packetlane) -o quickstart && ./quickstart
 */

#include <packetlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exits if a call failed. */
static void must(packetlane_status status) {
    if (status != PACKETLANE_OK) {
        fprintf(stderr, "%s\n", packetlane_error_message());
        exit(1);
    }
}

/* Passes the output of `from` to `to`, as your sockets would. Returns the progress of `to`. */
static packetlane_progress carry(packetlane_handshake *from, packetlane_handshake *to) {
    const uint8_t *bytes;
    size_t len;
    packetlane_progress progress;
    must(packetlane_handshake_output(from, &bytes, &len));
    must(packetlane_handshake_receive(to, bytes, len, &progress));
    return progress;
}

int main(void) {
    packetlane_engine *engine;
    must(packetlane_engine_detect(&engine));

    packetlane_handshake_config config;
    must(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, PACKETLANE_MAGIC_MAINNET, 4);
    packetlane_handshake *alice_begins, *bob_begins;
    must(packetlane_handshake_initiator(engine, &config, &alice_begins));
    must(packetlane_handshake_responder(engine, &config, &bob_begins));
    carry(alice_begins, bob_begins);
    carry(bob_begins, alice_begins);
    if (carry(alice_begins, bob_begins) != PACKETLANE_COMPLETE)
        return 1;
    packetlane_session *alice, *bob;
    must(packetlane_handshake_take_session(alice_begins, &alice));
    must(packetlane_handshake_take_session(bob_begins, &bob));
    packetlane_handshake_free(alice_begins);
    packetlane_handshake_free(bob_begins);

    packetlane_seal_batch *outgoing; /* one for all sessions of an event loop */
    must(packetlane_seal_batch_new(&outgoing));
    packetlane_slot slot;
    must(packetlane_session_push_message(alice, outgoing, "ping", (const uint8_t *)"8 bytes.", 8, &slot));
    must(packetlane_seal_batch_seal(outgoing, engine)); /* seals all packets of all sessions */
    const uint8_t *wire;
    size_t wire_len; /* write to the socket straight from the batch */
    must(packetlane_seal_batch_wire(outgoing, &slot, &wire, &wire_len));

    packetlane_open_batch *incoming;
    must(packetlane_open_batch_new(&incoming));
    must(packetlane_session_feed(bob, incoming, wire, wire_len, NULL));
    must(packetlane_open_batch_open(incoming, engine));
    packetlane_message message;
    must(packetlane_session_next_message(bob, incoming, &message));
    printf("BIP324 from C: %s with %zu bytes of payload, %zu on the wire\n", message.message_type,
           message.payload_len, wire_len);

    packetlane_open_batch_free(incoming);
    packetlane_seal_batch_free(outgoing);
    packetlane_session_free(alice);
    packetlane_session_free(bob);
    packetlane_engine_free(engine);
    return 0;
}
