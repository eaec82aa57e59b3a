// Two sessions in memory, with the C++ wrapper: messages in both directions, a forged packet, v1, QUIC
// and a Merkle root.
//
//     c++ -std=c++20 roundtrip.cpp $(pkg-config --cflags --libs packetlane) -o roundtrip && ./roundtrip

#include <packetlane.hpp>

#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

namespace {

void is(bool holds, const char *what) {
    if (!holds) {
        std::fprintf(stderr, "failed: %s\n", what);
        std::exit(1);
    }
}

template <typename F> void fails(packetlane_status status, F call) {
    try {
        call();
    } catch (const packetlane::error &error) {
        is(error.status() == status, error.what());
        return;
    }
    is(false, "expected an exception");
}

std::pair<packetlane::session, packetlane::session> sessions(const packetlane::engine &engine) {
    auto config = packetlane::handshake::config(packetlane::regtest);
    auto alice = packetlane::handshake::initiator(engine, config);
    auto bob = packetlane::handshake::responder(engine, config);
    is(bob.receive(alice.output()) == PACKETLANE_WAITING, "waiting");
    is(alice.receive(bob.output()) == PACKETLANE_COMPLETE, "complete");
    is(bob.receive(alice.output()) == PACKETLANE_COMPLETE, "complete");
    return {alice.take_session(), bob.take_session()};
}

void bip324(const packetlane::engine &engine) {
    auto [alice, bob] = sessions(engine);
    is(alice.id() == bob.id(), "the same session id");
    packetlane::seal_batch outgoing;
    packetlane::open_batch incoming;
    auto slot = alice.push_message(outgoing, "ping", packetlane::as_bytes("8 bytes."));
    is(packetlane::join(slot, alice.push(outgoing, {}, PACKETLANE_DECOY)), "adjacent packets");
    fails(PACKETLANE_NOT_SEALED, [&] { outgoing.wire(slot); });
    outgoing.seal(engine);
    bob.feed(incoming, outgoing.wire(slot));
    incoming.open(engine);
    auto message = bob.next_message(incoming);
    is(message && message->type == "ping" && message->payload.size() == 8, "the ping");
    is(!bob.next_message(incoming) && bob.decoys() == 1, "a decoy");

    outgoing.clear();
    fails(PACKETLANE_STALE_SLOT, [&] { outgoing.wire(slot); });
    auto answer = bob.push_with(outgoing, 3, [](std::span<std::uint8_t> contents) {
        std::fill(contents.begin(), contents.end(), std::uint8_t{7});
    });
    outgoing.seal(engine);
    auto wire = outgoing.wire(answer);
    std::vector<std::uint8_t> forged(wire.begin(), wire.end());
    forged.back() ^= 1;
    incoming.clear();
    alice.feed(incoming, forged);
    incoming.open(engine);
    fails(PACKETLANE_BAD_TAG, [&incoming, &alice = alice] { alice.next_packet(incoming); });
}

void v1() {
    auto wire = packetlane::v1::encode(packetlane::regtest, "ping", packetlane::as_bytes("8 bytes."));
    auto damaged = wire;
    damaged.back() ^= 1;
    wire.insert(wire.begin(), damaged.begin(), damaged.end());
    wire.push_back(packetlane::regtest[0]);
    packetlane::v1::decoder decoder(packetlane::regtest);
    packetlane::bytes received = wire;
    auto message = decoder.next(received);
    is(message && message->type == "ping" && message->payload.size() == 8, "the v1 ping");
    is(!decoder.next(received) && received.size() == 1 && decoder.ignored() == 1, "the start of another message");
    fails(PACKETLANE_V1_OTHER_NETWORK, [&] {
        packetlane::bytes other = wire;
        packetlane::v1::decoder(packetlane::mainnet).next(other);
    });
    fails(PACKETLANE_ZERO_MAGIC, [] { packetlane::v1::encode({}, "ping"); });
}

void quic(const packetlane::engine &engine) {
    auto id = packetlane::as_bytes("connection");
    auto [client, server] = packetlane::quic::secret::initial(1, id);
    packetlane::quic::sealer sealer(client);
    packetlane::quic::opener opener(client);
    packetlane::quic::seal_batch outgoing;
    packetlane::quic::open_batch incoming;
    const std::array<std::uint8_t, 2> header{0x40, 0};
    auto slot = sealer.push(outgoing, 0, header, packetlane::as_bytes("frames"));
    outgoing.seal(engine);
    auto wire = outgoing.wire(slot);
    auto room = incoming.room(1500);
    std::copy(wire.begin(), wire.end(), room.begin());
    auto at = incoming.received(wire.size());
    auto arrived = opener.push(incoming, at, wire.size(), 1);
    incoming.open(engine);
    auto packet = opener.take(incoming, arrived);
    is(packet.number == 0 && packet.payload_len == 6, "the packet");
}

} // namespace

int main() {
    static_assert(std::is_nothrow_move_constructible_v<packetlane::session>);
    static_assert(!std::is_copy_constructible_v<packetlane::session>);
    packetlane::engine engine;
    bip324(engine);
    v1();
    quic(engine);
    const std::array<packetlane::hash, 3> leaves{};
    is(packetlane::merkle_root(engine, leaves).second, "equal leaves are detected");
    fails(PACKETLANE_ZERO_MAGIC, [&] {
        packetlane::handshake::initiator(engine, packetlane::handshake::config({}));
    });
    fails(PACKETLANE_BACKEND_UNKNOWN, [] { packetlane::engine unknown("mmx"); });
    std::printf("C++: messages, a decoy and a forged packet of BIP324, v1 and QUIC, on %s\n",
                std::string(engine.backend()).c_str());
}
