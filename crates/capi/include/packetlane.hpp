// Packetlane for C++20: packetlane.h with RAII handles, spans instead of pointers and lengths, and
// errors as exceptions of one type.
//
// The rules of packetlane.h apply. All types except `slot` can be moved but not copied. A returned
// span is borrowed: it is valid until the next non-const call on that batch (or handshake).

#ifndef PACKETLANE_HPP
#define PACKETLANE_HPP

#include "packetlane.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace packetlane {

using bytes = std::span<const std::uint8_t>;
using hash = std::array<std::uint8_t, 32>;
using slot = packetlane_slot;
/// A network's magic, in wire order.
using magic = std::array<std::uint8_t, 4>;

/// Text as bytes, for examples and tests.
inline bytes as_bytes(std::string_view text) {
    return {reinterpret_cast<const std::uint8_t *>(text.data()), text.size()};
}

namespace detail {

constexpr magic to_magic(const char (&text)[5]) {
    return {static_cast<std::uint8_t>(text[0]), static_cast<std::uint8_t>(text[1]),
            static_cast<std::uint8_t>(text[2]), static_cast<std::uint8_t>(text[3])};
}

} // namespace detail

inline constexpr magic mainnet = detail::to_magic(PACKETLANE_MAGIC_MAINNET);
inline constexpr magic testnet3 = detail::to_magic(PACKETLANE_MAGIC_TESTNET3);
inline constexpr magic testnet4 = detail::to_magic(PACKETLANE_MAGIC_TESTNET4);
inline constexpr magic signet = detail::to_magic(PACKETLANE_MAGIC_SIGNET);
inline constexpr magic regtest = detail::to_magic(PACKETLANE_MAGIC_REGTEST);

/// Thrown by every function here whose call fails.
class error : public std::exception {
  public:
    explicit error(packetlane_status status) : error(status, packetlane_error_message()) {}
    error(packetlane_status status, const char *words) : status_(status), words_(words) {}
    packetlane_status status() const noexcept { return status_; }
    const char *what() const noexcept override { return words_.c_str(); }

  private:
    packetlane_status status_;
    std::string words_;
};

namespace detail {

inline void check(packetlane_status status) {
    if (status != PACKETLANE_OK)
        throw error(status);
}

/// Returns whether an item was taken.
inline bool check_next(packetlane_status status) {
    if (status == PACKETLANE_END)
        return false;
    check(status);
    return true;
}

/// Owns a handle.
template <typename T, void (*Free)(T *)> class handle {
  public:
    handle() = default;
    explicit handle(T *raw) : raw_(raw) {}
    T *get() const noexcept { return raw_.get(); }

  private:
    struct deleter {
        void operator()(T *raw) const noexcept { Free(raw); }
    };
    std::unique_ptr<T, deleter> raw_;
};

} // namespace detail

/// See packetlane_engine. Threads may share one.
class engine {
  public:
    engine() : handle_(make([](auto out) { return packetlane_engine_detect(out); })) {}
    explicit engine(const char *backend)
        : handle_(make([=](auto out) { return packetlane_engine_named(backend, out); })) {}
    std::string_view backend() const { return packetlane_engine_backend(get()); }
    const packetlane_engine *get() const noexcept { return handle_.get(); }

  private:
    template <typename F> static packetlane_engine *make(F call) {
        packetlane_engine *raw = nullptr;
        detail::check(call(&raw));
        return raw;
    }
    detail::handle<packetlane_engine, packetlane_engine_free> handle_;
};

/// The outgoing packets of one turn; see packetlane_seal_batch.
class seal_batch {
  public:
    seal_batch() {
        packetlane_seal_batch *raw = nullptr;
        detail::check(packetlane_seal_batch_new(&raw));
        handle_ = decltype(handle_)(raw);
    }
    void seal(const engine &engine) { detail::check(packetlane_seal_batch_seal(get(), engine.get())); }
    bytes wire(const slot &of) const {
        const std::uint8_t *data;
        std::size_t len;
        detail::check(packetlane_seal_batch_wire(get(), &of, &data, &len));
        return {data, len};
    }
    void clear() { detail::check(packetlane_seal_batch_clear(get())); }
    void shrink(std::size_t len) { detail::check(packetlane_seal_batch_shrink(get(), len)); }
    std::size_t packets() const { return packetlane_seal_batch_packets(get()); }
    std::size_t size() const { return packetlane_seal_batch_bytes(get()); }
    packetlane_seal_batch *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_seal_batch, packetlane_seal_batch_free> handle_;
};

/// The bytes received in one turn; see packetlane_open_batch.
class open_batch {
  public:
    open_batch() {
        packetlane_open_batch *raw = nullptr;
        detail::check(packetlane_open_batch_new(&raw));
        handle_ = decltype(handle_)(raw);
    }
    std::span<std::uint8_t> room(std::size_t len) {
        std::uint8_t *data;
        detail::check(packetlane_open_batch_room(get(), len, &data));
        return {data, len};
    }
    void open(const engine &engine) { detail::check(packetlane_open_batch_open(get(), engine.get())); }
    void clear() { detail::check(packetlane_open_batch_clear(get())); }
    void shrink(std::size_t len) { detail::check(packetlane_open_batch_shrink(get(), len)); }
    std::size_t packets() const { return packetlane_open_batch_packets(get()); }
    std::size_t size() const { return packetlane_open_batch_bytes(get()); }
    packetlane_open_batch *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_open_batch, packetlane_open_batch_free> handle_;
};

/// A received message. Its payload is inside the batch.
struct message {
    std::string type;
    bytes payload;
};

/// Extends `joined` by `next` if they are adjacent; see packetlane_slot_join.
inline bool join(slot &joined, const slot &next) { return packetlane_slot_join(&joined, &next); }

class session {
  public:
    explicit session(packetlane_session *raw) : handle_(raw) {}
    hash id() const {
        hash id;
        detail::check(packetlane_session_id(get(), id.data()));
        return id;
    }
    slot push(seal_batch &batch, bytes contents, packetlane_packet_kind kind = PACKETLANE_GENUINE) {
        slot added;
        detail::check(packetlane_session_push(get(), batch.get(), kind, contents.data(),
                                              contents.size(), &added));
        return added;
    }
    /// Adds all packets or none.
    slot push_many(seal_batch &batch, std::span<const packetlane_bytes> contents,
                   packetlane_packet_kind kind = PACKETLANE_GENUINE) {
        slot added;
        detail::check(packetlane_session_push_many(get(), batch.get(), kind, contents.data(),
                                                   contents.size(), &added));
        return added;
    }
    slot push_message(seal_batch &batch, const char *type, bytes payload = {}) {
        slot added;
        detail::check(packetlane_session_push_message(get(), batch.get(), type, payload.data(),
                                                      payload.size(), &added));
        return added;
    }
    /// Calls `write` with a span of `len` bytes inside the batch, all of which it must write.
    template <std::invocable<std::span<std::uint8_t>> Write>
    slot push_with(seal_batch &batch, std::size_t len, Write &&write,
                   packetlane_packet_kind kind = PACKETLANE_GENUINE) {
        slot added;
        std::uint8_t *place;
        detail::check(packetlane_session_begin(get(), batch.get(), kind, len, &place));
        std::forward<Write>(write)(std::span<std::uint8_t>{place, len});
        detail::check(packetlane_session_commit(get(), batch.get(), &added));
        return added;
    }
    std::size_t received(open_batch &batch, std::size_t len) {
        std::size_t packets;
        detail::check(packetlane_session_received(get(), batch.get(), len, &packets));
        return packets;
    }
    std::size_t feed(open_batch &batch, bytes data) {
        std::size_t packets;
        detail::check(
            packetlane_session_feed(get(), batch.get(), data.data(), data.size(), &packets));
        return packets;
    }
    /// Empty after the last packet.
    std::optional<bytes> next_packet(const open_batch &batch) {
        const std::uint8_t *data;
        std::size_t len;
        if (!detail::check_next(packetlane_session_next_packet(get(), batch.get(), &data, &len)))
            return std::nullopt;
        return bytes{data, len};
    }
    /// Empty after the last message. Packets without a message are dropped: see ignored().
    std::optional<message> next_message(const open_batch &batch) {
        packetlane_message taken;
        if (!detail::check_next(packetlane_session_next_message(get(), batch.get(), &taken)))
            return std::nullopt;
        return message{taken.message_type, {taken.payload, taken.payload_len}};
    }
    void defer(const open_batch &batch) { detail::check(packetlane_session_defer(get(), batch.get())); }
    bool needs_turn() const { return packetlane_session_needs_turn(get()); }
    void set_receive_limit(std::size_t limit) {
        detail::check(packetlane_session_set_receive_limit(get(), limit));
    }
    std::uint64_t decoys() const { return packetlane_session_decoys(get()); }
    std::uint64_t ignored() const { return packetlane_session_ignored(get()); }
    std::size_t buffered() const { return packetlane_session_buffered(get()); }
    packetlane_session *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_session, packetlane_session_free> handle_;
};

/// Keys for the next handshakes; see packetlane_key_pool.
class key_pool {
  public:
    key_pool(const engine &engine, std::size_t capacity) {
        packetlane_key_pool *raw = nullptr;
        detail::check(packetlane_key_pool_new(engine.get(), capacity, &raw));
        handle_ = decltype(handle_)(raw);
    }
    packetlane_key_pool *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_key_pool, packetlane_key_pool_free> handle_;
};

class handshake {
  public:
    /// The defaults of packetlane_handshake_config_init with this magic.
    static packetlane_handshake_config config(const packetlane::magic &magic) {
        packetlane_handshake_config config;
        detail::check(packetlane_handshake_config_init(&config, sizeof config));
        std::copy(magic.begin(), magic.end(), config.magic);
        return config;
    }
    static handshake initiator(const engine &engine, const packetlane_handshake_config &config) {
        return start(packetlane_handshake_initiator, engine, config);
    }
    static handshake initiator(const engine &engine, const packetlane_handshake_config &config,
                               key_pool &pool) {
        packetlane_handshake *raw = nullptr;
        detail::check(packetlane_handshake_initiator_from(engine.get(), &config, pool.get(), &raw));
        return handshake(raw);
    }
    static handshake responder(const engine &engine, const packetlane_handshake_config &config) {
        return start(packetlane_handshake_responder, engine, config);
    }
    packetlane_progress receive(bytes data) {
        packetlane_progress progress;
        detail::check(packetlane_handshake_receive(get(), data.data(), data.size(), &progress));
        return progress;
    }
    packetlane_progress receive(bytes data, open_batch &batch) {
        packetlane_progress progress;
        detail::check(packetlane_handshake_receive_batched(get(), batch.get(), data.data(),
                                                           data.size(), &progress));
        return progress;
    }
    packetlane_progress take_keys(const open_batch &batch) {
        packetlane_progress progress;
        detail::check(packetlane_handshake_take_keys(get(), batch.get(), &progress));
        return progress;
    }
    bytes output() {
        const std::uint8_t *data;
        std::size_t len;
        detail::check(packetlane_handshake_output(get(), &data, &len));
        return {data, len};
    }
    bytes v1_bytes() const {
        const std::uint8_t *data;
        std::size_t len;
        detail::check(packetlane_handshake_v1_bytes(get(), &data, &len));
        return {data, len};
    }
    session take_session() {
        packetlane_session *raw = nullptr;
        detail::check(packetlane_handshake_take_session(get(), &raw));
        return session(raw);
    }
    /// The error for a peer that closed the connection at this point.
    error closed() const { return error(packetlane_handshake_closed(get())); }
    packetlane_handshake *get() const noexcept { return handle_.get(); }

  private:
    explicit handshake(packetlane_handshake *raw) : handle_(raw) {}
    template <typename F>
    static handshake start(F call, const engine &engine, const packetlane_handshake_config &config) {
        packetlane_handshake *raw = nullptr;
        detail::check(call(engine.get(), &config, &raw));
        return handshake(raw);
    }
    detail::handle<packetlane_handshake, packetlane_handshake_free> handle_;
};

namespace v1 {

/// Encodes a message: its header and its payload.
inline std::vector<std::uint8_t> encode(const magic &magic, const char *type, bytes payload = {}) {
    std::array<std::uint8_t, PACKETLANE_V1_HEADER_LEN> header;
    detail::check(packetlane_v1_encode_header(magic.data(), type, payload.data(), payload.size(),
                                              header.data()));
    std::vector<std::uint8_t> wire(header.begin(), header.end());
    wire.insert(wire.end(), payload.begin(), payload.end());
    return wire;
}

/// Decodes the messages of a v1 peer; see packetlane_v1_decode.
class decoder {
  public:
    explicit decoder(const magic &magic) : magic_(magic) {}
    /// Takes the next message from the front of `received`, which contains its payload. Empty if no
    /// message is complete: call again with the remaining bytes and those received after them.
    std::optional<message> next(bytes &received) {
        packetlane_message decoded;
        std::size_t taken;
        std::uint64_t ignored;
        bool is_whole =
            detail::check_next(packetlane_v1_decode(magic_.data(), received.data(), received.size(),
                                                    &decoded, &taken, &ignored));
        received = received.subspan(taken);
        ignored_ += ignored;
        if (!is_whole)
            return std::nullopt;
        return message{decoded.message_type, {decoded.payload, decoded.payload_len}};
    }
    /// The number of messages dropped for a wrong checksum or a malformed type.
    std::uint64_t ignored() const { return ignored_; }

  private:
    magic magic_;
    std::uint64_t ignored_ = 0;
};

} // namespace v1

namespace quic {

class secret {
  public:
    secret(packetlane_quic_suite suite, std::uint32_t version, bytes data) {
        packetlane_quic_secret *raw = nullptr;
        detail::check(packetlane_quic_secret_new(suite, version, data.data(), data.size(), &raw));
        handle_ = decltype(handle_)(raw);
    }
    /// The client's and the server's Initial secrets.
    static std::pair<secret, secret> initial(std::uint32_t version, bytes connection_id) {
        packetlane_quic_secret *client = nullptr, *server = nullptr;
        detail::check(packetlane_quic_secret_initial(version, connection_id.data(),
                                                     connection_id.size(), &client, &server));
        return {secret(client), secret(server)};
    }
    const packetlane_quic_secret *get() const noexcept { return handle_.get(); }

  private:
    explicit secret(packetlane_quic_secret *raw) : handle_(raw) {}
    detail::handle<packetlane_quic_secret, packetlane_quic_secret_free> handle_;
};

class seal_batch {
  public:
    seal_batch() {
        packetlane_quic_seal_batch *raw = nullptr;
        detail::check(packetlane_quic_seal_batch_new(&raw));
        handle_ = decltype(handle_)(raw);
    }
    void seal(const engine &engine) {
        detail::check(packetlane_quic_seal_batch_seal(get(), engine.get()));
    }
    bytes wire(const slot &of) const {
        const std::uint8_t *data;
        std::size_t len;
        detail::check(packetlane_quic_seal_batch_wire(get(), &of, &data, &len));
        return {data, len};
    }
    void clear() { detail::check(packetlane_quic_seal_batch_clear(get())); }
    packetlane_quic_seal_batch *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_quic_seal_batch, packetlane_quic_seal_batch_free> handle_;
};

class open_batch {
  public:
    open_batch() {
        packetlane_quic_open_batch *raw = nullptr;
        detail::check(packetlane_quic_open_batch_new(&raw));
        handle_ = decltype(handle_)(raw);
    }
    std::span<std::uint8_t> room(std::size_t len) {
        std::uint8_t *data;
        detail::check(packetlane_quic_open_batch_room(get(), len, &data));
        return {data, len};
    }
    /// The offset of the datagram, for opener::push.
    std::size_t received(std::size_t len) {
        std::size_t at;
        detail::check(packetlane_quic_open_batch_received(get(), len, &at));
        return at;
    }
    void open(const engine &engine) {
        detail::check(packetlane_quic_open_batch_open(get(), engine.get()));
    }
    void clear() { detail::check(packetlane_quic_open_batch_clear(get())); }
    packetlane_quic_open_batch *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_quic_open_batch, packetlane_quic_open_batch_free> handle_;
};

class sealer {
  public:
    explicit sealer(const secret &secret) {
        packetlane_quic_sealer *raw = nullptr;
        detail::check(packetlane_quic_sealer_new(secret.get(), &raw));
        handle_ = decltype(handle_)(raw);
    }
    slot push(seal_batch &batch, std::uint64_t number, bytes header, bytes payload) {
        slot added;
        detail::check(packetlane_quic_sealer_push(get(), batch.get(), number, header.data(),
                                                  header.size(), payload.data(), payload.size(),
                                                  &added));
        return added;
    }
    void update_keys() { detail::check(packetlane_quic_sealer_update_keys(get())); }
    bool needs_key_update() const { return packetlane_quic_sealer_needs_key_update(get()); }
    packetlane_quic_sealer *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_quic_sealer, packetlane_quic_sealer_free> handle_;
};

class opener {
  public:
    explicit opener(const secret &secret) {
        packetlane_quic_opener *raw = nullptr;
        detail::check(packetlane_quic_opener_new(secret.get(), &raw));
        handle_ = decltype(handle_)(raw);
    }
    slot push(open_batch &batch, std::size_t at, std::size_t len, std::size_t number_at) {
        slot added;
        detail::check(packetlane_quic_opener_push(get(), batch.get(), at, len, number_at, &added));
        return added;
    }
    packetlane_quic_packet take(const open_batch &batch, const slot &of) {
        packetlane_quic_packet packet;
        detail::check(packetlane_quic_opener_take(get(), batch.get(), &of, &packet));
        return packet;
    }
    void set_expected(std::uint64_t number) {
        detail::check(packetlane_quic_opener_set_expected(get(), number));
    }
    std::uint64_t expected() const { return packetlane_quic_opener_expected(get()); }
    void drop_previous_keys() { detail::check(packetlane_quic_opener_drop_previous_keys(get())); }
    std::uint64_t forged() const { return packetlane_quic_opener_forged(get()); }
    packetlane_quic_opener *get() const noexcept { return handle_.get(); }

  private:
    detail::handle<packetlane_quic_opener, packetlane_quic_opener_free> handle_;
};

} // namespace quic

/// The double SHA-256 of each message.
inline void sha256d(const engine &engine, std::span<const packetlane_bytes> messages,
                    std::span<hash> digests) {
    if (messages.size() != digests.size())
        throw error(PACKETLANE_WRONG_LENGTH, "the number of digests is not the number of messages");
    detail::check(packetlane_sha256d_many(engine.get(), messages.data(), messages.size(),
                                          digests.empty() ? nullptr : digests.front().data()));
}

/// The Merkle root of these leaves, and whether both nodes of a pair are equal.
inline std::pair<hash, bool> merkle_root(const engine &engine, std::span<const hash> leaves) {
    hash root;
    bool mutated;
    detail::check(packetlane_merkle_root(engine.get(),
                                         leaves.empty() ? nullptr : leaves.front().data(),
                                         leaves.size(), root.data(), &mutated));
    return {root, mutated};
}

} // namespace packetlane

#endif
