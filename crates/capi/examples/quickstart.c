/* Two sessions in memory exchange a message: the quick start of README.md. */

#include "turn.h"

#include <string.h>

/* Carries what `from` has to send to `to`, as your sockets would. Returns how far `to` is. */
static packetlane_progress carry(packetlane_handshake *from, packetlane_handshake *to) {
    const uint8_t *bytes;
    size_t len;
    packetlane_progress progress;
    MUST(packetlane_handshake_output(from, &bytes, &len));
    MUST(packetlane_handshake_receive(to, bytes, len, &progress));
    return progress;
}

int main(void) {
    packetlane_engine *engine;
    MUST(packetlane_engine_detect(&engine));

    packetlane_handshake_config config;
    MUST(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, "\xf9\xbe\xb4\xd9", 4); /* the main network */
    packetlane_handshake *alice_begins, *bob_begins;
    MUST(packetlane_handshake_initiator(engine, &config, &alice_begins));
    MUST(packetlane_handshake_responder(engine, &config, &bob_begins));
    carry(alice_begins, bob_begins);
    carry(bob_begins, alice_begins);
    if (carry(alice_begins, bob_begins) != PACKETLANE_COMPLETE)
        return 1;
    packetlane_session *alice, *bob;
    MUST(packetlane_handshake_take_session(alice_begins, &alice));
    MUST(packetlane_handshake_take_session(bob_begins, &bob));
    packetlane_handshake_free(alice_begins);
    packetlane_handshake_free(bob_begins);

    packetlane_seal_batch *outgoing; /* one for all sessions of an event loop */
    MUST(packetlane_seal_batch_new(&outgoing));
    packetlane_slot slot;
    MUST(packetlane_session_push_message(alice, outgoing, "ping", (const uint8_t *)"8 bytes.", 8, &slot));
    MUST(packetlane_seal_batch_seal(outgoing, engine)); /* all packets of all sessions at once */
    const uint8_t *wire;
    size_t wire_len; /* a socket writes straight from the batch */
    MUST(packetlane_seal_batch_wire(outgoing, &slot, &wire, &wire_len));

    packetlane_open_batch *incoming;
    MUST(packetlane_open_batch_new(&incoming));
    MUST(packetlane_session_feed(bob, incoming, wire, wire_len, NULL));
    MUST(packetlane_open_batch_open(incoming, engine));
    packetlane_message message;
    MUST(packetlane_session_next_message(bob, incoming, &message));
    printf("BIP324 from C: %s with %zu bytes of payload, %zu on the wire\n", message.message_type,
           message.payload_len, wire_len);

    packetlane_open_batch_free(incoming);
    packetlane_seal_batch_free(outgoing);
    packetlane_session_free(alice);
    packetlane_session_free(bob);
    packetlane_engine_free(engine);
    return 0;
}
