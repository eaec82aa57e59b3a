/*
 * Packetlane: BIP324 (Bitcoin's v2 encrypted transport), QUIC packet protection and double SHA-256
 * over batches of packets and messages. Link with -lpacketlane, or use pkg-config.
 *
 * Generated from the sources of packetlane-capi, for C11 and C++. Do not edit. Regenerate it with
 * `PACKETLANE_RENEW_HEADER=1 cargo test -p packetlane-capi --test header`.
 *
 * A batch holds the packets of one turn of an event loop, from any number of sessions. An engine
 * seals or opens all of them in one call, in place. Each packet has its own result:
 *
 *     for each connection:        packetlane_handshake_config_init(&config, sizeof config), config.magic,
 *                                 packetlane_handshake_initiator() or _responder()
 *     until PACKETLANE_COMPLETE:  packetlane_handshake_output(), write(), read(),
 *                                 packetlane_handshake_receive(handshake, ..., &progress)
 *     then:                       packetlane_handshake_output(), write(),
 *                                 packetlane_handshake_take_session(handshake, &session)
 *     or, with a v1 peer:         packetlane_v1_encode_header(), packetlane_v1_decode()
 *     with many handshakes:       packetlane_handshake_receive_batched(), ..._take_keys() and
 *                                 ..._initiator_from() compute the keys of several together
 *
 *     for each message to send:   packetlane_session_push_message(session, batch, ..., &slot)
 *     once:                       packetlane_seal_batch_seal(batch, engine)
 *     for each slot:              packetlane_seal_batch_wire(batch, &slot, &bytes, &len), write()
 *     once:                       packetlane_seal_batch_clear(batch)
 *
 *     for each readable socket:   packetlane_open_batch_room(batch, ..., &room), read(),
 *                                 packetlane_session_received(session, batch, len, NULL)
 *     once:                       packetlane_open_batch_open(batch, engine)
 *     for each session:           packetlane_session_next_message(session, batch, &message) until
 *                                 it returns PACKETLANE_END
 *     once:                       packetlane_open_batch_clear(batch)
 *
 * Rules for all functions:
 *
 * 1. Errors. A function that can fail returns a packetlane_status; 0 is success. "Fails with" lists
 *    the errors besides PACKETLANE_NULL_ARGUMENT (rule 4), PACKETLANE_PANIC and PACKETLANE_POISONED
 *    (rule 6). Other functions return their value directly: 0, false or NULL if the handle is NULL or
 *    poisoned. packetlane_error_message describes the last error of the calling thread. Unless its
 *    comment says otherwise, a call that fails has no effect and writes no output.
 * 2. Handles. A function whose last argument is a pointer to a pointer to a handle type creates a
 *    handle. The caller owns it and frees it once, with the _free function of its type. The library
 *    cannot detect a double free or a use after free. Freeing NULL does nothing. Handles can be freed
 *    in any order: none needs another one to stay alive.
 * 3. Memory. A function reads its inputs during the call and keeps no pointer to them. A pointer that
 *    a function returns (`const uint8_t **`, `uint8_t **`, or a field of a struct) is borrowed: from
 *    the batch if the function takes one, otherwise from the function's handle. It is valid until the
 *    next call that takes that handle as non-const, or until the handle is freed. Outputs must not
 *    overlap inputs. Strings are NUL-terminated.
 * 4. NULL. A NULL handle, output or string, or a NULL pointer with a non-zero length, gives
 *    PACKETLANE_NULL_ARGUMENT, and packetlane_error_message names the argument. With length 0, a
 *    pointer may be NULL. Where NULL has a meaning, the function's comment says so.
 * 5. Threads. A handle may move between threads. Two threads may use it at the same time only if both
 *    calls take it as const. Any number of threads may share an engine. After fork(), only one of the
 *    two processes may use a handshake or a session: otherwise both encrypt different packets with the
 *    same nonces. The library does not detect this.
 * 6. Panics. No panic and no exception leaves a function. If the library has a bug, the function
 *    returns PACKETLANE_PANIC and poisons the handles that it took as non-const: these can only be
 *    freed. The panic is also reported on standard error. If memory runs out, the process aborts.
 * 7. Enums. Functions take enums as uint32_t. Any other value gives PACKETLANE_WRONG_VALUE.
 * 8. Versions. Functions and status numbers do not change while the shared library is named
 *    libpacketlane.so.0. Later versions may add more.
 */

#ifndef PACKETLANE_H
#define PACKETLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The magic of each network, 4 bytes in wire order: memcpy(config.magic, PACKETLANE_MAGIC_MAINNET, 4).
// The signet is the default one; custom signets have their own magic.
#define PACKETLANE_MAGIC_MAINNET "\xf9\xbe\xb4\xd9"
#define PACKETLANE_MAGIC_TESTNET3 "\x0b\x11\x09\x07"
#define PACKETLANE_MAGIC_TESTNET4 "\x1c\x16\x3f\x28"
#define PACKETLANE_MAGIC_SIGNET "\x0a\x03\xcf\x40"
#define PACKETLANE_MAGIC_REGTEST "\xfa\xbf\xb5\xda"


// A batch of this many bytes is as fast as batches get: seal it, or stop reading in this turn.
#define PACKETLANE_ENOUGH_BYTES 262144

// Garbage length that selects 0 to 4094 random bytes.
#define PACKETLANE_RANDOM_GARBAGE 65536

// Length of a v1 message header, in bytes.
#define PACKETLANE_V1_HEADER_LEN 24

// Maximum v1 payload length, in bytes.
#define PACKETLANE_V1_MAX_PAYLOAD_LEN 4000000

// The result of a call. PACKETLANE_OK and PACKETLANE_END are not errors. Numbers are never reused.
typedef enum {
  // Success.
  PACKETLANE_OK = 0,
  // Nothing left to take. Not an error: packetlane_error_message does not change.
  PACKETLANE_END = 1,
  // A NULL handle or output, or a NULL pointer with a non-zero length. packetlane_error_message
  // names the argument.
  PACKETLANE_NULL_ARGUMENT = 10,
  // A length is not what the function requires, or is more than the last room.
  PACKETLANE_WRONG_LENGTH = 11,
  // An integer is not a value of its enum.
  PACKETLANE_WRONG_VALUE = 12,
  // A bug in the library, which packetlane_error_message describes: please report it. Or a slot
  // that did not come from the library. The handles that the call could change are poisoned.
  PACKETLANE_PANIC = 13,
  // An earlier call on this handle returned PACKETLANE_PANIC. The handle can only be freed.
  PACKETLANE_POISONED = 14,
  // An error that has no number in this version of the interface.
  PACKETLANE_OTHER = 15,
  // The handshake is not complete, or its session was already taken.
  PACKETLANE_NOT_READY = 20,
  // The handshake has ended and accepts no more bytes.
  PACKETLANE_ENDED = 21,
  // The slot belongs to an earlier turn of the batch, or to another batch.
  PACKETLANE_STALE_SLOT = 22,
  // The slot's packets are not sealed yet. Plaintext must not reach a socket.
  PACKETLANE_NOT_SEALED = 23,
  // The packets are not opened yet. They stay in the batch.
  PACKETLANE_NOT_OPENED = 24,
  // The session's packets are not in this batch: it is the wrong batch, or it was cleared before
  // they were taken or deferred. From packetlane_session_received, this ends the session.
  PACKETLANE_NOT_IN_BATCH = 25,
  // The slot covers several packets, and each has its own result.
  PACKETLANE_SEVERAL_PACKETS = 26,
  // The batch is full. From packetlane_session_received, this ends the session.
  PACKETLANE_BATCH_FULL = 27,
  // The contents are longer than a packet allows (16,777,215 bytes), or a v1 payload is longer than
  // PACKETLANE_V1_MAX_PAYLOAD_LEN.
  PACKETLANE_CONTENTS_TOO_LONG = 28,
  // The session's packet counters are exhausted.
  PACKETLANE_EXHAUSTED = 29,
  // A message type is not 1 to 12 printable ASCII characters.
  PACKETLANE_MESSAGE_TYPE = 30,
  // The secret key is zero or not below the order of secp256k1.
  PACKETLANE_SECRET_KEY = 31,
  // More than 4095 bytes of garbage.
  PACKETLANE_GARBAGE_TOO_LONG = 32,
  // The operating system returned no random bytes.
  PACKETLANE_NO_ENTROPY = 33,
  // No backend has that name.
  PACKETLANE_BACKEND_UNKNOWN = 34,
  // This CPU lacks that backend's instructions.
  PACKETLANE_BACKEND_UNAVAILABLE = 35,
  // The magic was not set: it is 00000000, which no network uses.
  PACKETLANE_ZERO_MAGIC = 36,
  // A packet's tag is wrong: it was corrupted or forged in transit. Ends a BIP324 session. A QUIC
  // packet is dropped.
  PACKETLANE_BAD_TAG = 50,
  // The peer announced contents above the receive limit, or a v1 payload above
  // PACKETLANE_V1_MAX_PAYLOAD_LEN. Ends the connection.
  PACKETLANE_RECEIVE_LIMIT = 51,
  // A BIP324 packet is too short for its header and tag. Ends the session.
  PACKETLANE_PACKET_TOO_SHORT = 52,
  // No garbage terminator in 4111 bytes: the peer does not speak BIP324 on this network.
  PACKETLANE_NO_TERMINATOR = 53,
  // The peer speaks v1 on another network, or another protocol.
  PACKETLANE_V1_OTHER_NETWORK = 54,
  // The peer closed the connection during the handshake.
  PACKETLANE_CLOSED = 55,
  // The peer closed the connection before it answered: it may speak only v1.
  PACKETLANE_CLOSED_UNANSWERED = 56,
  // The peer answered with v1: it speaks only v1. Reconnect and speak v1.
  PACKETLANE_ANSWERED_V1 = 58,
  // QUIC: the packet number is not greater than all earlier ones.
  PACKETLANE_QUIC_NUMBER_USED = 70,
  // QUIC: the packet number is above 2^62 - 1.
  PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71,
  // QUIC: the header has no room for its packet number.
  PACKETLANE_QUIC_HEADER_TOO_SHORT = 72,
  // QUIC: the header does not end with the packet number.
  PACKETLANE_QUIC_HEADER_NUMBER = 73,
  // QUIC: the payload is too short for header protection: pad it.
  PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74,
  // QUIC: the key has reached its limit of sealed packets: update keys.
  PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75,
  // QUIC: the packet is too short for a sample or a tag: drop it.
  PACKETLANE_QUIC_PACKET_TOO_SHORT = 76,
  // QUIC: more packets failed to open than the keys allow: close the connection with
  // AEAD_LIMIT_REACHED.
  PACKETLANE_QUIC_INTEGRITY_LIMIT = 77,
  // QUIC: a reserved bit is set: close the connection with PROTOCOL_VIOLATION.
  PACKETLANE_QUIC_RESERVED_BITS = 78,
  // QUIC: a packet used newer keys than a later one, or older keys than an earlier one: close the
  // connection with KEY_UPDATE_ERROR.
  PACKETLANE_QUIC_KEY_UPDATE = 79,
  // QUIC: another opener added the slot's packet.
  PACKETLANE_QUIC_OTHER_OPENER = 80,
} packetlane_status;

// The progress of a handshake.
typedef enum {
  // It needs more bytes from the peer.
  PACKETLANE_WAITING = 0,
  // Responder: the peer speaks v1. packetlane_handshake_v1_bytes returns all bytes it sent, for
  // packetlane_v1_decode. Nothing was sent to it.
  PACKETLANE_V1 = 1,
  // Complete: send the bytes of packetlane_handshake_output, then take the session.
  PACKETLANE_COMPLETE = 2,
} packetlane_progress;

// The kind of a packet.
typedef enum {
  // The contents are a message.
  PACKETLANE_GENUINE = 0,
  // The contents are meaningless, and the receiver drops them.
  PACKETLANE_DECOY = 1,
} packetlane_packet_kind;

// The packet protection algorithms, each named by a TLS cipher suite.
typedef enum {
  // TLS_AES_128_GCM_SHA256, also used by Initial packets. Secrets have 32 bytes.
  PACKETLANE_QUIC_AES_128_GCM = 0,
  // TLS_AES_256_GCM_SHA384. Secrets have 48 bytes.
  PACKETLANE_QUIC_AES_256_GCM = 1,
  // TLS_CHACHA20_POLY1305_SHA256. Secrets have 32 bytes.
  PACKETLANE_QUIC_CHACHA20_POLY1305 = 2,
} packetlane_quic_suite;

// Seals and opens batches with one instruction set of the CPU. It is immutable and holds no secrets,
// so threads may share it. Handshakes and sessions made with it do not need it to stay alive.
typedef struct packetlane_engine packetlane_engine;

// One side of a handshake.
typedef struct packetlane_handshake packetlane_handshake;

// Keys for the next handshakes. Several computed at once take half the time each, or less.
typedef struct packetlane_key_pool packetlane_key_pool;

// Packets to open, from any number of sessions: the bytes received in one turn of an event loop.
typedef struct packetlane_open_batch packetlane_open_batch;

// QUIC packets to open, from any number of connections and of any suites.
typedef struct packetlane_quic_open_batch packetlane_quic_open_batch;

// The receiving side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT. It follows the
// peer's key updates. It does not detect duplicate packets.
typedef struct packetlane_quic_opener packetlane_quic_opener;

// QUIC packets to seal, from any number of connections and of any suites.
typedef struct packetlane_quic_seal_batch packetlane_quic_seal_batch;

// The sending side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
typedef struct packetlane_quic_sealer packetlane_quic_sealer;

// A traffic secret: the source of all keys of one direction at one encryption level.
typedef struct packetlane_quic_secret packetlane_quic_secret;

// Packets to seal, from any number of sessions: the outgoing packets of one turn of an event loop.
typedef struct packetlane_seal_batch packetlane_seal_batch;

// An established BIP324 session, from packetlane_handshake_take_session.
typedef struct packetlane_session packetlane_session;

// The place of one packet in a batch, or of adjacent packets of one session. A plain value: copy it
// freely, it needs no cleanup. It is valid until its batch is cleared. After that, or with another
// batch, it is refused with PACKETLANE_STALE_SLOT.
typedef struct {
  // Private.
  size_t place[4];
  uint64_t owner[2];
} packetlane_slot;

// A byte string owned by the caller.
typedef struct {
  // Its first byte.
  const uint8_t *data;
  // Its length in bytes.
  size_t len;
} packetlane_bytes;

// A message from packetlane_session_next_message or packetlane_v1_decode.
typedef struct {
  // The message type as a string, such as "ping".
  char message_type[13];
  // The payload, inside the batch or inside the bytes given to packetlane_v1_decode.
  const uint8_t *payload;
  // Length of the payload, in bytes.
  size_t payload_len;
} packetlane_message;

// The secrets and settings of a handshake. packetlane_handshake_config_init sets every field to a
// default that suits most programs, except the magic: it starts as 00000000, which is refused, and
// must be set. Data behind the pointers is copied.
typedef struct {
  // The size of this struct when the program was compiled. Later versions may add fields at the end
  // and still accept the shorter struct.
  size_t size;
  // The network's magic, in wire order: PACKETLANE_MAGIC_MAINNET and so on.
  uint8_t magic[4];
  // The secret key: 32 random bytes, new for each connection. NULL: from the operating system.
  const uint8_t *secret;
  // 32 random bytes that select the encoding of the public key. NULL: from the operating system.
  const uint8_t *auxiliary;
  // Bytes to send after the public key. They hide the length of the handshake.
  const uint8_t *garbage;
  // Length of the garbage, at most 4095. PACKETLANE_RANDOM_GARBAGE: random length and bytes.
  size_t garbage_len;
  // Contents of decoys to send before the version packet.
  const packetlane_bytes *decoys;
  // Number of decoys.
  size_t decoys_len;
  // Contents of the version packet. BIP324 defines none yet.
  const uint8_t *version;
  // Length of the version packet's contents.
  size_t version_len;
  // Longest contents accepted from the peer, in bytes. Default: 4,000,013, the largest message of the
  // network with its type.
  size_t receive_limit;
} packetlane_handshake_config;

// A packet from packetlane_quic_opener_take.
typedef struct {
  // The packet number.
  uint64_t number;
  // The unprotected header, inside the batch.
  const uint8_t *header;
  // Length of the header, in bytes.
  size_t header_len;
  // The payload (the frames), inside the batch.
  const uint8_t *payload;
  // Length of the payload, in bytes.
  size_t payload_len;
  // Whether this is the first packet of a new key phase: the peer has updated its keys. Unless this
  // side began the update, call packetlane_quic_sealer_update_keys before acknowledging the packet.
  bool key_update;
} packetlane_quic_packet;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// A short description of a status, as a static string. "unknown status" for any other number.
const char *packetlane_status_message(int status);

// Describes the last failed call of this thread in at most 255 characters, with the values involved:
// "contents of 20000000 bytes do not fit a packet, which carries at most 16777215". Empty if no call
// has failed. The string is valid until the next failed call of this thread. It never contains a key
// or contents.
const char *packetlane_error_message(void);

// Creates an engine with the best backend for this CPU, or with the one that the environment
// variable PACKETLANE_BACKEND names.
//
// Fails with PACKETLANE_BACKEND_UNKNOWN or PACKETLANE_BACKEND_UNAVAILABLE if the variable names a
// backend that the library does not have or this CPU does not support.
packetlane_status packetlane_engine_detect(packetlane_engine **engine);

// Creates an engine with the backend `name`: "portable" on any CPU, "avx2" or "avx512" on x86-64,
// "neon" on AArch64.
//
// Fails with PACKETLANE_BACKEND_UNKNOWN, PACKETLANE_BACKEND_UNAVAILABLE.
packetlane_status packetlane_engine_named(const char *name, packetlane_engine **engine);

// Returns the name of the engine's backend. The string lives as long as the engine. NULL for NULL.
const char *packetlane_engine_backend(const packetlane_engine *engine);

// Frees an engine.
void packetlane_engine_free(packetlane_engine *engine);

// Returns the length of the slot's packets on the wire, in bytes. 0 for NULL.
size_t packetlane_slot_wire_len(const packetlane_slot *of);

// Extends `joined` by `next` and returns true if both belong to the same session and `next` begins
// where `joined` ends. One write then sends both.
bool packetlane_slot_join(packetlane_slot *joined, const packetlane_slot *next);

// Creates an empty batch.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_seal_batch_new(packetlane_seal_batch **batch);

// Seals all unsealed packets in the batch, of all sessions, in place.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_seal_batch_seal(packetlane_seal_batch *batch,
                                             const packetlane_engine *engine);

// Returns the sealed packets of a slot, ready to write to the socket. The bytes are valid until the
// batch is cleared or changed.
//
// Fails with PACKETLANE_NOT_SEALED if the batch was not sealed after the packets were added, and with
// PACKETLANE_STALE_SLOT.
packetlane_status packetlane_seal_batch_wire(const packetlane_seal_batch *batch,
                                             const packetlane_slot *of,
                                             const uint8_t **bytes,
                                             size_t *len);

// Empties the batch for the next turn: drops all packets, wipes their keys and keeps the memory.
// Slots of the batch and pointers into it become invalid.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_seal_batch_clear(packetlane_seal_batch *batch);

// Frees memory beyond `bytes` bytes and the bytes in use. Otherwise a batch keeps the memory of its
// largest turn.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_seal_batch_shrink(packetlane_seal_batch *batch, size_t bytes);

// Returns the number of packets in the batch.
size_t packetlane_seal_batch_packets(const packetlane_seal_batch *batch);

// Returns the number of bytes of its packets. At PACKETLANE_ENOUGH_BYTES, seal the batch.
size_t packetlane_seal_batch_bytes(const packetlane_seal_batch *batch);

// Frees a batch.
void packetlane_seal_batch_free(packetlane_seal_batch *batch);

// Creates an empty batch.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_open_batch_new(packetlane_open_batch **batch);

// Returns room for `len` bytes that a socket will write. packetlane_session_received then takes them.
// The room is valid until the next call that changes the batch; a new room replaces the old one.
//
// Fails with PACKETLANE_BATCH_FULL if the batch would exceed 4 GiB.
packetlane_status packetlane_open_batch_room(packetlane_open_batch *batch,
                                             size_t len,
                                             uint8_t **room);

// Opens all unopened packets in the batch, of all sessions, in place. Each has its own result: a
// forged packet stays encrypted and affects no other session.
//
// Fails only as rules 4 and 6 describe. Taking a forged packet returns PACKETLANE_BAD_TAG.
packetlane_status packetlane_open_batch_open(packetlane_open_batch *batch,
                                             const packetlane_engine *engine);

// Empties the batch for the next turn; see packetlane_seal_batch_clear. Take or defer all packets
// first: a session whose packets are dropped here ends.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_open_batch_clear(packetlane_open_batch *batch);

// Frees memory; see packetlane_seal_batch_shrink.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_open_batch_shrink(packetlane_open_batch *batch, size_t bytes);

// Returns the number of packets in the batch.
size_t packetlane_open_batch_packets(const packetlane_open_batch *batch);

// Returns the number of bytes received into the batch. At PACKETLANE_ENOUGH_BYTES, leave the
// remaining sockets to the next turn.
size_t packetlane_open_batch_bytes(const packetlane_open_batch *batch);

// Frees a batch.
void packetlane_open_batch_free(packetlane_open_batch *batch);

// Copies the session id, 32 bytes, to `id`. It is the same on both sides unless the connection is
// intercepted. Users can compare it over another channel.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_session_id(const packetlane_session *session, uint8_t *id);

// Adds a packet with these contents to the batch and returns its slot, for
// packetlane_seal_batch_wire. `packet_kind` is a packetlane_packet_kind. Every added packet must be
// sealed and sent, in order, because it advances the counters of both sides. The call may seal the
// packet at once if that is faster (few or long packets); still call packetlane_seal_batch_seal.
//
// Fails with PACKETLANE_CONTENTS_TOO_LONG, PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED, or
// PACKETLANE_WRONG_VALUE for an unknown kind. Nothing is added then, and no counter advances.
packetlane_status packetlane_session_push(packetlane_session *session,
                                          packetlane_seal_batch *batch,
                                          uint32_t packet_kind,
                                          const uint8_t *contents,
                                          size_t contents_len,
                                          packetlane_slot *slot);

// Adds `count` packets of one kind, like packetlane_session_push. They are adjacent in the batch and
// share one slot. Faster than one call per packet. Adds all of them or none.
//
// Fails like packetlane_session_push.
packetlane_status packetlane_session_push_many(packetlane_session *session,
                                               packetlane_seal_batch *batch,
                                               uint32_t packet_kind,
                                               const packetlane_bytes *contents,
                                               size_t count,
                                               packetlane_slot *slot);

// Begins a packet in place: the caller writes its `contents_len` bytes at `contents`, then calls
// packetlane_session_commit to add it. Write all bytes, because the memory holds data of earlier
// turns. The pointer is valid until the next call that changes the batch. A session has one such
// packet at a time; beginning another discards it.
//
// Fails like packetlane_session_push.
packetlane_status packetlane_session_begin(packetlane_session *session,
                                           packetlane_seal_batch *batch,
                                           uint32_t packet_kind,
                                           size_t contents_len,
                                           uint8_t **contents);

// Adds the packet begun by packetlane_session_begin or packetlane_session_begin_message.
//
// Fails with PACKETLANE_STALE_SLOT if no packet was begun, or if this is another batch or the batch was
// cleared since, and with PACKETLANE_EXHAUSTED.
packetlane_status packetlane_session_commit(packetlane_session *session,
                                            packetlane_seal_batch *batch,
                                            packetlane_slot *slot);

// Adds a packet with a message, like packetlane_session_push. The type, such as "ping", is encoded in
// the shortest form that all peers understand, followed by the payload.
//
// Fails with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable ASCII characters, and like
// packetlane_session_push.
packetlane_status packetlane_session_push_message(packetlane_session *session,
                                                  packetlane_seal_batch *batch,
                                                  const char *type_name,
                                                  const uint8_t *payload,
                                                  size_t payload_len,
                                                  packetlane_slot *slot);

// Begins a message in place, like packetlane_session_begin: the caller writes its `payload_len` bytes
// at `payload`.
//
// Fails like packetlane_session_push_message.
packetlane_status packetlane_session_begin_message(packetlane_session *session,
                                                   packetlane_seal_batch *batch,
                                                   const char *type_name,
                                                   size_t payload_len,
                                                   uint8_t **payload);

// Takes the first `len` bytes of the batch's last packetlane_open_batch_room, which the session's
// socket has written. Adds every packet that is now complete to the batch and keeps the rest for
// later. `packets`, if not NULL, is set to the number of packets added. With `len` 0 it adds the
// packets pending in the session (packetlane_session_needs_turn). The call may open packets at once if
// that is faster (few packets); still call packetlane_open_batch_open.
//
// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter or was already taken; this has no effect.
// The other errors end the session: PACKETLANE_RECEIVE_LIMIT, PACKETLANE_NOT_IN_BATCH,
// PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED. Packets before the error can still be taken. A session
// that has ended returns the error that ended it, such as PACKETLANE_BAD_TAG after a forged packet.
packetlane_status packetlane_session_received(packetlane_session *session,
                                              packetlane_open_batch *batch,
                                              size_t len,
                                              size_t *packets);

// Copies bytes into the batch and takes them like packetlane_session_received. The batch's room
// becomes invalid.
//
// Fails like packetlane_session_received, except for PACKETLANE_WRONG_LENGTH, which concerns the room.
// Returns PACKETLANE_BAD_TAG again if that error has ended the session.
packetlane_status packetlane_session_feed(packetlane_session *session,
                                          packetlane_open_batch *batch,
                                          const uint8_t *bytes,
                                          size_t len,
                                          size_t *packets);

// Returns whether the session may hold packets that need no more bytes from the peer: they arrived
// with the handshake or were deferred. If so, call packetlane_session_received with length 0, because
// the peer may wait for an answer before it sends more.
bool packetlane_session_needs_turn(const packetlane_session *session);

// Takes the session's next genuine packet from an opened batch and returns its contents, valid until
// the batch is cleared or changed. Returns PACKETLANE_END after the last packet.
//
// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH; these have no effect. Once all packets
// before an error are taken, fails with PACKETLANE_BAD_TAG or with the error of
// packetlane_session_received: the session has ended.
packetlane_status packetlane_session_next_packet(packetlane_session *session,
                                                 const packetlane_open_batch *batch,
                                                 const uint8_t **contents,
                                                 size_t *contents_len);

// Takes the session's next message, like packetlane_session_next_packet. Packets without a message
// (empty, or with an unknown short id or a malformed type) are dropped and counted
// (packetlane_session_ignored), as nodes do, because later protocol versions may add types.
//
// Returns PACKETLANE_END after the last message. Fails like packetlane_session_next_packet.
packetlane_status packetlane_session_next_message(packetlane_session *session,
                                                  const packetlane_open_batch *batch,
                                                  packetlane_message *message);

// Keeps the session's packets that were not taken from the batch for a later turn. Use it for a peer
// that sends faster than it reads its answers, and stop reading from the peer until it has caught up.
//
// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH; these have no effect. Fails with
// PACKETLANE_BAD_TAG or with the error of packetlane_session_received: the session has ended, and the
// packets before the failed one are lost. Take them instead if they matter.
packetlane_status packetlane_session_defer(packetlane_session *session,
                                           const packetlane_open_batch *batch);

// Sets the longest contents accepted, in bytes, starting with the next packet.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_session_set_receive_limit(packetlane_session *session, size_t limit);

// Returns the number of decoys dropped since the handshake.
uint64_t packetlane_session_decoys(const packetlane_session *session);

// Returns the number of packets without a message that packetlane_session_next_message dropped.
uint64_t packetlane_session_ignored(const packetlane_session *session);

// Returns the number of bytes held in the session: of an incomplete packet, and of deferred contents.
size_t packetlane_session_buffered(const packetlane_session *session);

// Frees a session and wipes its keys.
void packetlane_session_free(packetlane_session *session);

// Sets every field to its default. `size` is `sizeof(packetlane_handshake_config)`, so that a later
// version of the library does not write past the end of the struct.
//
// Fails with PACKETLANE_WRONG_LENGTH if no version of this struct has that size.
packetlane_status packetlane_handshake_config_init(packetlane_handshake_config *config,
                                                   size_t size);

// Starts a handshake as the side that connects. packetlane_handshake_output returns its first bytes
// immediately.
//
// Fails with PACKETLANE_ZERO_MAGIC, PACKETLANE_SECRET_KEY, PACKETLANE_GARBAGE_TOO_LONG,
// PACKETLANE_NO_ENTROPY; PACKETLANE_CONTENTS_TOO_LONG for a decoy or the version packet; and
// PACKETLANE_WRONG_LENGTH for `size`.
packetlane_status packetlane_handshake_initiator(const packetlane_engine *engine,
                                                 const packetlane_handshake_config *settings,
                                                 packetlane_handshake **handshake);

// Creates a pool for at most `capacity` keys, without any. 32 suit most programs. A key is used once,
// and wiped. After fork() the child's pool drops its keys.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_key_pool_new(const packetlane_engine *engine,
                                          size_t capacity,
                                          packetlane_key_pool **pool);

// Frees a pool and wipes its keys.
void packetlane_key_pool_free(packetlane_key_pool *pool);

// Starts a handshake as the side that connects, with a key of the pool. If the pool is empty, it first
// computes twice as many keys as the last time, up to its capacity. The settings' `secret` and
// `auxiliary` are not used.
//
// Fails like packetlane_handshake_initiator.
packetlane_status packetlane_handshake_initiator_from(const packetlane_engine *engine,
                                                      const packetlane_handshake_config *settings,
                                                      packetlane_key_pool *pool,
                                                      packetlane_handshake **handshake);

// Starts a handshake as the side that accepts a connection. It sends nothing until it receives a byte
// that differs from the first message of v1.
//
// Fails like packetlane_handshake_initiator.
packetlane_status packetlane_handshake_responder(const packetlane_engine *engine,
                                                 const packetlane_handshake_config *settings,
                                                 packetlane_handshake **handshake);

// Processes any number of bytes from the peer and returns the progress (packetlane_progress).
// Afterwards packetlane_handshake_output may have bytes to send.
//
// Fails with PACKETLANE_NO_TERMINATOR, PACKETLANE_V1_OTHER_NETWORK, PACKETLANE_BAD_TAG,
// PACKETLANE_RECEIVE_LIMIT, or, for an initiator, PACKETLANE_ANSWERED_V1: reconnect and speak v1
// (packetlane_v1_encode_header). Each of these ends the handshake: close the connection. Fails with
// PACKETLANE_ENDED if the handshake had already ended.
packetlane_status packetlane_handshake_receive(packetlane_handshake *handshake,
                                               const uint8_t *bytes,
                                               size_t len,
                                               packetlane_progress *progress);

// Like packetlane_handshake_receive, but adds the exchange of keys to `batch`, where it waits for those
// of other handshakes: packetlane_open_batch_open computes all of them together, which takes half the
// time or less. Then call packetlane_handshake_take_keys, before the batch is cleared. If that is not
// done, the next call computes the keys alone. The bytes may lie in the batch's room.
//
// Fails like packetlane_handshake_receive.
packetlane_status packetlane_handshake_receive_batched(packetlane_handshake *handshake,
                                                       packetlane_open_batch *batch,
                                                       const uint8_t *bytes,
                                                       size_t len,
                                                       packetlane_progress *progress);

// Takes the keys that `batch` has computed, if the handshake waits for them. The progress is that of
// packetlane_handshake_receive, and packetlane_handshake_output may have bytes to send.
//
// Fails with PACKETLANE_NOT_OPENED if the batch was not opened, and like packetlane_handshake_receive.
packetlane_status packetlane_handshake_take_keys(packetlane_handshake *handshake,
                                                 const packetlane_open_batch *batch,
                                                 packetlane_progress *progress);

// Returns the bytes to send to the peer now, each byte once; none if there is nothing to send. They
// are valid until the next call that changes the handshake. After PACKETLANE_COMPLETE, send them
// before any packet of the session.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_handshake_output(packetlane_handshake *handshake,
                                              const uint8_t **bytes,
                                              size_t *len);

// Returns all bytes that a v1 peer has sent so far, for packetlane_v1_decode or another
// implementation of v1. They are valid until the handshake is freed.
//
// Fails with PACKETLANE_NOT_READY unless packetlane_handshake_receive has reported PACKETLANE_V1.
packetlane_status packetlane_handshake_v1_bytes(const packetlane_handshake *handshake,
                                                const uint8_t **bytes,
                                                size_t *len);

// Takes the session out of a completed handshake. Free the handshake afterwards. Packets may have
// arrived with its last bytes: see packetlane_session_needs_turn.
//
// Fails with PACKETLANE_NOT_READY if the handshake is not complete or the session was already taken.
packetlane_status packetlane_handshake_take_session(packetlane_handshake *handshake,
                                                    packetlane_session **session);

// Returns the error for a peer that closed the connection at this point, or timed out. Allow 10
// seconds for its first byte.
//
// Fails with PACKETLANE_CLOSED_UNANSWERED if the peer may speak only v1 (reconnect and speak v1),
// otherwise with PACKETLANE_CLOSED. It never returns PACKETLANE_OK.
packetlane_status packetlane_handshake_closed(const packetlane_handshake *handshake);

// Frees a handshake and wipes its secrets.
void packetlane_handshake_free(packetlane_handshake *handshake);

// Writes the header of a v1 message, PACKETLANE_V1_HEADER_LEN bytes, to `header`. Send the header,
// then the payload. `magic` is the network's 4 bytes; `type_name` is the message type, such as "ping".
//
// Fails with PACKETLANE_ZERO_MAGIC; with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable
// ASCII characters; and with PACKETLANE_CONTENTS_TOO_LONG if the payload has more than
// PACKETLANE_V1_MAX_PAYLOAD_LEN bytes.
packetlane_status packetlane_v1_encode_header(const uint8_t *magic,
                                              const char *type_name,
                                              const uint8_t *payload,
                                              size_t payload_len,
                                              uint8_t *header);

// Decodes the first complete message in `len` bytes from a v1 peer: the bytes of
// packetlane_handshake_v1_bytes and those received since. `taken` is the number of bytes consumed; start
// the next call after them. The payload is not copied: keep the bytes as long as the message. Messages
// with a wrong checksum or a malformed type are dropped, as nodes do; `ignored`, if not NULL, is set to
// their number.
//
// Returns PACKETLANE_END, with `taken` and `ignored` set, if no complete message is left: call again
// with the remaining bytes and those received after them. The remaining bytes are always fewer than
// PACKETLANE_V1_HEADER_LEN + PACKETLANE_V1_MAX_PAYLOAD_LEN.
//
// Fails with PACKETLANE_V1_OTHER_NETWORK if a message does not begin with `magic`, the network's 4
// bytes, and with PACKETLANE_RECEIVE_LIMIT if its payload is too long: close the connection. Fails with
// PACKETLANE_ZERO_MAGIC.
packetlane_status packetlane_v1_decode(const uint8_t *magic,
                                       const uint8_t *bytes,
                                       size_t len,
                                       packetlane_message *message,
                                       size_t *taken,
                                       uint64_t *ignored);

// Creates a secret from a TLS traffic secret. `of_suite` is a packetlane_quic_suite, `of_version` is 1,
// or 0x6b3343cf for version 2.
//
// Fails with PACKETLANE_WRONG_LENGTH if the suite's secrets have another length, and with
// PACKETLANE_WRONG_VALUE for an unknown suite or version.
packetlane_status packetlane_quic_secret_new(uint32_t of_suite,
                                             uint32_t of_version,
                                             const uint8_t *bytes,
                                             size_t len,
                                             packetlane_quic_secret **secret);

// Derives the client's and the server's Initial secrets from the Destination Connection ID of the
// client's first Initial packet.
//
// Fails with PACKETLANE_WRONG_VALUE for a version other than 1 and 0x6b3343cf.
packetlane_status packetlane_quic_secret_initial(uint32_t of_version,
                                                 const uint8_t *connection_id,
                                                 size_t len,
                                                 packetlane_quic_secret **client,
                                                 packetlane_quic_secret **server);

// Wipes and frees a secret.
void packetlane_quic_secret_free(packetlane_quic_secret *secret);

// Creates a sealer with the keys of `secret`, which may be freed afterwards.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_sealer_new(const packetlane_quic_secret *secret,
                                             packetlane_quic_sealer **sealer);

// Adds a packet to the batch and returns its slot. `header` is the unprotected header. It ends with the
// low 1 to 4 bytes of the packet number, as its first byte says, in network byte order. The Length of a
// long header counts the packet number, the payload and the tag of 16 bytes. The call sets the Key
// Phase bit of a short header.
//
// Fails with PACKETLANE_QUIC_NUMBER_USED, PACKETLANE_QUIC_NUMBER_TOO_LARGE,
// PACKETLANE_QUIC_HEADER_TOO_SHORT, PACKETLANE_QUIC_HEADER_NUMBER, PACKETLANE_QUIC_PAYLOAD_TOO_SHORT,
// PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT, PACKETLANE_BATCH_FULL. Nothing is added then, and no counter
// advances.
packetlane_status packetlane_quic_sealer_push(packetlane_quic_sealer *sealer,
                                              packetlane_quic_seal_batch *batch,
                                              uint64_t number,
                                              const uint8_t *header,
                                              size_t header_len,
                                              const uint8_t *payload,
                                              size_t payload_len,
                                              packetlane_slot *slot);

// Adds a packet like packetlane_quic_sealer_push, but lets the caller write the payload: all
// `payload_len` bytes at `payload`, before the batch is sealed.
//
// Fails like packetlane_quic_sealer_push.
packetlane_status packetlane_quic_sealer_reserve(packetlane_quic_sealer *sealer,
                                                 packetlane_quic_seal_batch *batch,
                                                 uint64_t number,
                                                 const uint8_t *header,
                                                 size_t header_len,
                                                 size_t payload_len,
                                                 packetlane_slot *slot,
                                                 uint8_t **payload);

// Switches to the next keys, starting with the next packet: begins a key update or follows the peer's.
// Only for 1-RTT packets.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_sealer_update_keys(packetlane_quic_sealer *sealer);

// Returns whether the key is close to its limit of sealed packets.
bool packetlane_quic_sealer_needs_key_update(const packetlane_quic_sealer *sealer);

// Frees a sealer and wipes its keys.
void packetlane_quic_sealer_free(packetlane_quic_sealer *sealer);

// Creates an empty batch.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_seal_batch_new(packetlane_quic_seal_batch **batch);

// Seals all unsealed packets in the batch, payloads and headers, in place.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_seal_batch_seal(packetlane_quic_seal_batch *batch,
                                                  const packetlane_engine *engine);

// Returns the sealed packet of a slot; see packetlane_seal_batch_wire.
//
// Fails with PACKETLANE_NOT_SEALED, PACKETLANE_STALE_SLOT.
packetlane_status packetlane_quic_seal_batch_wire(const packetlane_quic_seal_batch *batch,
                                                  const packetlane_slot *of,
                                                  const uint8_t **bytes,
                                                  size_t *len);

// Empties the batch for the next turn; see packetlane_seal_batch_clear.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_seal_batch_clear(packetlane_quic_seal_batch *batch);

// Frees a batch.
void packetlane_quic_seal_batch_free(packetlane_quic_seal_batch *batch);

// Creates an opener with the keys of `secret`, which may be freed afterwards.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_opener_new(const packetlane_quic_secret *secret,
                                             packetlane_quic_opener **opener);

// Adds a packet to open and returns its slot, for packetlane_quic_opener_take. The packet is `len`
// bytes at offset `at` of the batch (packetlane_quic_open_batch_received). Its packet number is at
// offset `number_at` of the packet.
//
// Fails with PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with PACKETLANE_WRONG_LENGTH if
// the packet extends past the end of the batch.
packetlane_status packetlane_quic_opener_push(packetlane_quic_opener *opener,
                                              packetlane_quic_open_batch *batch,
                                              size_t at,
                                              size_t len,
                                              size_t number_at,
                                              packetlane_slot *slot);

// Takes a packet that this opener added, after its batch has been opened. Its pointers are valid until
// the batch is cleared or changed.
//
// Fails with PACKETLANE_BAD_TAG or PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with
// PACKETLANE_QUIC_INTEGRITY_LIMIT, PACKETLANE_QUIC_RESERVED_BITS, PACKETLANE_QUIC_KEY_UPDATE: close the
// connection as their comments say. Caller errors are PACKETLANE_NOT_OPENED, PACKETLANE_STALE_SLOT,
// PACKETLANE_QUIC_OTHER_OPENER, PACKETLANE_SEVERAL_PACKETS.
packetlane_status packetlane_quic_opener_take(packetlane_quic_opener *opener,
                                              const packetlane_quic_open_batch *batch,
                                              const packetlane_slot *of,
                                              packetlane_quic_packet *packet);

// Raises the next expected packet number. Needed because 0-RTT and 1-RTT packets share a packet number
// space but have separate openers.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_opener_set_expected(packetlane_quic_opener *opener,
                                                      uint64_t number);

// Returns the next expected packet number: the largest authenticated one plus 1.
uint64_t packetlane_quic_opener_expected(const packetlane_quic_opener *opener);

// Drops the keys from before the last key update. Call it some time after an update and before the
// next.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_opener_drop_previous_keys(packetlane_quic_opener *opener);

// Returns the number of packets that failed to open, under all keys of the opener.
uint64_t packetlane_quic_opener_forged(const packetlane_quic_opener *opener);

// Frees an opener and wipes its keys.
void packetlane_quic_opener_free(packetlane_quic_opener *opener);

// Creates an empty batch.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_open_batch_new(packetlane_quic_open_batch **batch);

// Returns room for `len` bytes that a socket will write; see packetlane_open_batch_room.
//
// Fails with PACKETLANE_BATCH_FULL.
packetlane_status packetlane_quic_open_batch_room(packetlane_quic_open_batch *batch,
                                                  size_t len,
                                                  uint8_t **room);

// Takes the first `len` bytes of the last room as a datagram and sets `at` to its offset in the batch.
// Call packetlane_quic_opener_push for each packet in it.
//
// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter or was already taken.
packetlane_status packetlane_quic_open_batch_received(packetlane_quic_open_batch *batch,
                                                      size_t len,
                                                      size_t *at);

// Opens all unopened packets in the batch, headers and payloads, in place.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_open_batch_open(packetlane_quic_open_batch *batch,
                                                  const packetlane_engine *engine);

// Empties the batch for the next turn; see packetlane_seal_batch_clear.
//
// Fails only as rules 4 and 6 describe.
packetlane_status packetlane_quic_open_batch_clear(packetlane_quic_open_batch *batch);

// Frees a batch.
void packetlane_quic_open_batch_free(packetlane_quic_open_batch *batch);

// Computes the double SHA-256 of `count` messages and writes 32 bytes for each to `digests`, in the
// byte order of SHA-256's output. (Nodes display hashes with their bytes reversed.)
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
packetlane_status packetlane_sha256d_many(const packetlane_engine *engine,
                                          const packetlane_bytes *messages,
                                          size_t count,
                                          uint8_t *digests);

// Computes the double SHA-256 of `count` consecutive inputs of 64 bytes, such as pairs of Merkle tree
// nodes. Writes 32 bytes for each to `digests`.
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
packetlane_status packetlane_sha256d_64(const packetlane_engine *engine,
                                        const uint8_t *pairs,
                                        size_t count,
                                        uint8_t *digests);

// Computes Bitcoin's Merkle root of `count` leaves of 32 bytes and writes it to the 32 bytes at
// `root`. The root of no leaves is all zeros. `mutated`, if not NULL, is set to whether both nodes of
// a pair are equal: the same root then also belongs to a shorter list (CVE-2012-2459).
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is larger than any allocation.
packetlane_status packetlane_merkle_root(const packetlane_engine *engine,
                                         const uint8_t *leaves,
                                         size_t count,
                                         uint8_t *root,
                                         bool *mutated);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PACKETLANE_H */
