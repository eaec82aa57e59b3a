/*
 * Packetlane: BIP324 (Bitcoin's v2 encrypted transport), QUIC packet protection and double SHA-256,
 * over whole batches of packets and messages. Link with -lpacketlane, or as pkg-config says.
 *
 * This file is made from the sources of packetlane-capi, for C11 and C++. Do not edit it:
 * `PACKETLANE_RENEW_HEADER=1 cargo test -p packetlane-capi --test header` writes it again.
 *
 * The packets of one turn of an event loop, whichever sessions they belong to, lie in one batch. An
 * engine seals or opens them all at once, in place, and each has its own outcome:
 *
 *     for each connection:        packetlane_handshake_config_init(&config, sizeof config), config.magic,
 *                                 packetlane_handshake_initiator() or _responder()
 *     until PACKETLANE_COMPLETE:  packetlane_handshake_output(), write(), read(),
 *                                 packetlane_handshake_receive(handshake, ..., &progress)
 *     then:                       packetlane_handshake_output(), write(),
 *                                 packetlane_handshake_take_session(handshake, &session)
 *     or, with a peer of v1:      packetlane_v1_encode_header(), packetlane_v1_decode()
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
 * The rules, for all functions:
 *
 * 1. Errors. A function that can fail returns packetlane_status, and 0 is good. "Fails with" lists what
 *    it returns besides PACKETLANE_NULL_ARGUMENT (rule 4), PACKETLANE_PANIC and PACKETLANE_POISONED
 *    (rule 6). A function that only reads returns what it reads: 0, false or NULL for a handle that is
 *    NULL or poisoned. packetlane_error_message describes a thread's last error. Unless it says
 *    otherwise, a call that fails has changed nothing and written nothing to its results.
 * 2. Handles. A function whose last argument is a pointer to a pointer to a handle type gives a
 *    handle, which the caller owns. It is freed by the function of its type's name with _free, once:
 *    a handle that is freed twice, or used afterwards, cannot be recognised. Freeing NULL is fine.
 *    Handles are freed in any order; none needs another to live on.
 * 3. Memory. What a function is given, it reads during the call and keeps no pointer to. A pointer
 *    that a function gives (`const uint8_t **`, `uint8_t **`, or in a struct) is borrowed: from the
 *    handle whose function it is, or from the batch if there is one. It is valid until the next call
 *    that takes that handle without const, or until the handle is freed. Results must not overlap
 *    what is read. Strings end with a zero.
 * 4. NULL. A handle, a result or a string that is NULL is PACKETLANE_NULL_ARGUMENT, and so is a
 *    pointer whose length is not 0: packetlane_error_message names it. With length 0 a pointer may be
 *    NULL. Where NULL means something, the function says so.
 * 5. Threads. A handle may move to another thread, but no two threads may use it at once, unless
 *    both only read (const). An engine may be used by all at once. After fork(), no more than one of
 *    the two processes may use a handshake or a session: both would encrypt different packets with
 *    the same nonces. No call notices that.
 * 6. Faults. No panic of the library and no exception leaves a function. Where the library has a
 *    fault the function returns PACKETLANE_PANIC, and the handles that it took without const are
 *    poisoned: all that is left to do with them is to free them. The panic is reported on standard
 *    error, too. If memory runs out, the process ends.
 * 7. Enums are passed to functions as uint32_t, and any other value is PACKETLANE_WRONG_VALUE.
 * 8. Versions. Functions, and numbers of statuses, stay what they are as long as the shared library
 *    is called libpacketlane.so.0; there may be more of them later.
 */

#ifndef PACKETLANE_H
#define PACKETLANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The magic of each network, 4 bytes in the order of the wire: memcpy(config.magic,
// PACKETLANE_MAGIC_MAINNET, 4). The signet is the default one; others have a magic of their own.
#define PACKETLANE_MAGIC_MAINNET "\xf9\xbe\xb4\xd9"
#define PACKETLANE_MAGIC_TESTNET3 "\x0b\x11\x09\x07"
#define PACKETLANE_MAGIC_TESTNET4 "\x1c\x16\x3f\x28"
#define PACKETLANE_MAGIC_SIGNET "\x0a\x03\xcf\x40"
#define PACKETLANE_MAGIC_REGTEST "\xfa\xbf\xb5\xda"


// From so many waiting bytes on, more packets make no batch faster: seal then, and read no more in
// one turn.
#define PACKETLANE_ENOUGH_BYTES 262144

// As a length of garbage: random bytes, 0 to 4095 of them.
#define PACKETLANE_RANDOM_GARBAGE 65536

// Length of the header in front of a payload of v1, in bytes.
#define PACKETLANE_V1_HEADER_LEN 24

// Longest payload of v1, in bytes.
#define PACKETLANE_V1_MAX_PAYLOAD_LEN 4000000

// What became of a call. 0 is good, and so is PACKETLANE_END. Numbers are never given again to
// another cause.
typedef enum {
  // It did what it should.
  PACKETLANE_OK = 0,
  // There is nothing more to take. No error: packetlane_error_message is as before.
  PACKETLANE_END = 1,
  // A handle is NULL, or a pointer whose length is not zero, or one to be written through:
  // packetlane_error_message names the argument.
  PACKETLANE_NULL_ARGUMENT = 10,
  // A length is not what the function asks for, or more than the last room.
  PACKETLANE_WRONG_LENGTH = 11,
  // An integer has none of the values of its enum.
  PACKETLANE_WRONG_VALUE = 12,
  // The library has a fault, which packetlane_error_message describes: please report it. Or a
  // slot is none that the library gave. The handles that the call could change are poisoned.
  PACKETLANE_PANIC = 13,
  // An earlier call on this handle returned PACKETLANE_PANIC. It can only be freed.
  PACKETLANE_POISONED = 14,
  // An error that this version of the interface has no number for.
  PACKETLANE_OTHER = 15,
  // The handshake is not complete, or its session has been taken.
  PACKETLANE_NOT_READY = 20,
  // The handshake has ended: it takes no more bytes.
  PACKETLANE_ENDED = 21,
  // The slot is of an earlier turn of the batch, or of another batch.
  PACKETLANE_STALE_SLOT = 22,
  // Packets of the slot are not sealed: plaintext must not reach a socket.
  PACKETLANE_NOT_SEALED = 23,
  // The packets are not opened yet. They still wait in the batch.
  PACKETLANE_NOT_OPENED = 24,
  // The session's packets are not in this batch: it is another one, or was cleared before they
  // were taken or deferred. In packetlane_session_received this ends the session.
  PACKETLANE_NOT_IN_BATCH = 25,
  // The slot is of several packets, of which each has its own outcome.
  PACKETLANE_SEVERAL_PACKETS = 26,
  // The batch has no room left. In packetlane_session_received this ends the session.
  PACKETLANE_BATCH_FULL = 27,
  // The contents do not fit a packet, which carries at most 16,777,215 bytes; or a payload has more
  // than PACKETLANE_V1_MAX_PAYLOAD_LEN bytes, for v1.
  PACKETLANE_CONTENTS_TOO_LONG = 28,
  // The packet counters of the session are spent.
  PACKETLANE_EXHAUSTED = 29,
  // The type of a message is not 1 to 12 printable ASCII characters.
  PACKETLANE_MESSAGE_TYPE = 30,
  // The secret key is zero or not below the order of secp256k1.
  PACKETLANE_SECRET_KEY = 31,
  // More than 4095 bytes of garbage.
  PACKETLANE_GARBAGE_TOO_LONG = 32,
  // The operating system gave no random bytes.
  PACKETLANE_NO_ENTROPY = 33,
  // There is no backend of that name.
  PACKETLANE_BACKEND_UNKNOWN = 34,
  // This CPU lacks the instructions of that backend.
  PACKETLANE_BACKEND_UNAVAILABLE = 35,
  // The magic is 00000000, which is no network's: it was not set.
  PACKETLANE_ZERO_MAGIC = 36,
  // A packet's tag is wrong: it was damaged or forged on its way. Ends a session of BIP324. A
  // packet of QUIC is dropped.
  PACKETLANE_BAD_TAG = 50,
  // The peer announced contents above the receive limit, or a payload of v1 above
  // PACKETLANE_V1_MAX_PAYLOAD_LEN. Ends the connection.
  PACKETLANE_RECEIVE_LIMIT = 51,
  // A packet of BIP324 is too short for its header and tag. Ends the session.
  PACKETLANE_PACKET_TOO_SHORT = 52,
  // Not the garbage terminator in 4111 bytes: the peer does not speak BIP324 on this network.
  PACKETLANE_NO_TERMINATOR = 53,
  // The peer speaks v1 on another network, or something else than v1.
  PACKETLANE_V1_OTHER_NETWORK = 54,
  // The peer closed the connection during the handshake.
  PACKETLANE_CLOSED = 55,
  // The peer closed the connection before it answered: it may speak v1 only.
  PACKETLANE_CLOSED_UNANSWERED = 56,
  // The peer answered by v1: it speaks v1 only. Connect again and speak v1.
  PACKETLANE_ANSWERED_V1 = 58,
  // QUIC: the packet number is not above those before it.
  PACKETLANE_QUIC_NUMBER_USED = 70,
  // QUIC: the packet number is above 2^62 - 1.
  PACKETLANE_QUIC_NUMBER_TOO_LARGE = 71,
  // QUIC: the header has no room for its packet number.
  PACKETLANE_QUIC_HEADER_TOO_SHORT = 72,
  // QUIC: the header does not end in the packet number.
  PACKETLANE_QUIC_HEADER_NUMBER = 73,
  // QUIC: the payload is too short for header protection: pad it.
  PACKETLANE_QUIC_PAYLOAD_TOO_SHORT = 74,
  // QUIC: the key has sealed as many packets as it may: update keys.
  PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT = 75,
  // QUIC: the packet is too short to have a sample, or a tag: drop it.
  PACKETLANE_QUIC_PACKET_TOO_SHORT = 76,
  // QUIC: more packets failed to open than keys allow: end the connection with
  // AEAD_LIMIT_REACHED.
  PACKETLANE_QUIC_INTEGRITY_LIMIT = 77,
  // QUIC: a reserved bit is set: end the connection with PROTOCOL_VIOLATION.
  PACKETLANE_QUIC_RESERVED_BITS = 78,
  // QUIC: new keys for a lower packet number than older keys, or the other way round: end the
  // connection with KEY_UPDATE_ERROR.
  PACKETLANE_QUIC_KEY_UPDATE = 79,
  // QUIC: the slot is of a packet that another opener added.
  PACKETLANE_QUIC_OTHER_OPENER = 80,
} packetlane_status;

// How far a handshake is.
typedef enum {
  // It needs more bytes from the peer.
  PACKETLANE_WAITING = 0,
  // Responder: the peer speaks v1. packetlane_handshake_v1_bytes has all that it sent, for
  // packetlane_v1_decode. Nothing has been sent to it.
  PACKETLANE_V1 = 1,
  // It is complete: send what packetlane_handshake_output gives, then take the session.
  PACKETLANE_COMPLETE = 2,
} packetlane_progress;

// What a packet is for.
typedef enum {
  // Its contents are a message.
  PACKETLANE_GENUINE = 0,
  // Its contents mean nothing: the receiver drops it.
  PACKETLANE_DECOY = 1,
} packetlane_packet_kind;

// The algorithms of packet protection. A TLS cipher suite names them together with a hash.
typedef enum {
  // TLS_AES_128_GCM_SHA256, and that of Initial packets. Secrets have 32 bytes.
  PACKETLANE_QUIC_AES_128_GCM = 0,
  // TLS_AES_256_GCM_SHA384. Secrets have 48 bytes.
  PACKETLANE_QUIC_AES_256_GCM = 1,
  // TLS_CHACHA20_POLY1305_SHA256. Secrets have 32 bytes.
  PACKETLANE_QUIC_CHACHA20_POLY1305 = 2,
} packetlane_quic_suite;

// Seals and opens batches, on one instruction set of the CPU. Threads may share one: it never
// changes and holds no secrets. What was made with it does not need it any longer.
typedef struct packetlane_engine packetlane_engine;

// One side of a handshake.
typedef struct packetlane_handshake packetlane_handshake;

// Packets of many sessions to open: what the sockets brought in one turn of an event loop.
typedef struct packetlane_open_batch packetlane_open_batch;

// QUIC packets of many connections, of any suites, to open.
typedef struct packetlane_quic_open_batch packetlane_quic_open_batch;

// The receiving side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT. It follows the
// key updates of its peer by itself. It does not tell whether a packet has come before.
typedef struct packetlane_quic_opener packetlane_quic_opener;

// QUIC packets of many connections, of any suites, to seal.
typedef struct packetlane_quic_seal_batch packetlane_quic_seal_batch;

// The sending side of a packet number space: Initial, Handshake, 0-RTT or 1-RTT.
typedef struct packetlane_quic_sealer packetlane_quic_sealer;

// A traffic secret, from which the keys of one direction at one encryption level are derived.
typedef struct packetlane_quic_secret packetlane_quic_secret;

// Packets of many sessions to seal: the outgoing packets of one turn of an event loop.
typedef struct packetlane_seal_batch packetlane_seal_batch;

// An established session of BIP324: packetlane_handshake_take_session gives it.
typedef struct packetlane_session packetlane_session;

// Where a packet, or a run of neighbours of one session, lies in a batch: a plain value, to be
// copied and forgotten at will. It is valid until its batch is cleared. Later, or with another
// batch, it is refused (PACKETLANE_STALE_SLOT).
typedef struct {
  // Not to be looked at or changed.
  size_t place[4];
  uint64_t owner[2];
} packetlane_slot;

// Bytes of the caller.
typedef struct {
  // Where.
  const uint8_t *data;
  // How many.
  size_t len;
} packetlane_bytes;

// A message that packetlane_session_next_message or packetlane_v1_decode took.
typedef struct {
  // Its type, such as "ping": a string.
  char message_type[13];
  // Its payload: in the batch, or in the bytes that packetlane_v1_decode was given.
  const uint8_t *payload;
  // Length of the payload, in bytes.
  size_t payload_len;
} packetlane_message;

// The secrets and settings of a handshake. packetlane_handshake_config_init gives each field the
// value that is right for most programs. Only the magic must be set: until then it is 00000000, which
// is refused. What it points to is copied.
typedef struct {
  // The size of this struct where the program was compiled. Later versions add fields behind the
  // last one, and take a shorter struct from programs that do not know them.
  size_t size;
  // The network's magic, in the order of the wire: PACKETLANE_MAGIC_MAINNET and so on.
  uint8_t magic[4];
  // The secret key: 32 random bytes, fresh for each connection. NULL: from the operating system.
  const uint8_t *secret;
  // 32 random bytes that choose the encoding of the public key. NULL: from the operating system.
  const uint8_t *auxiliary;
  // Bytes to send after the public key. They hide the length of the handshake.
  const uint8_t *garbage;
  // Their number, at most 4095. PACKETLANE_RANDOM_GARBAGE: from the operating system.
  size_t garbage_len;
  // Contents of decoys to send before the version packet.
  const packetlane_bytes *decoys;
  // Their number.
  size_t decoys_len;
  // Contents of the version packet. BIP324 defines none yet.
  const uint8_t *version;
  // Their length.
  size_t version_len;
  // Longest contents that are accepted from the peer, in bytes. 4,000,013: the largest message of
  // the network and its type.
  size_t receive_limit;
} packetlane_handshake_config;

// A packet that packetlane_quic_opener_take took.
typedef struct {
  // Its packet number.
  uint64_t number;
  // Its unprotected header, in the batch.
  const uint8_t *header;
  // Length of the header, in bytes.
  size_t header_len;
  // Its payload, the frames, in the batch.
  const uint8_t *payload;
  // Length of the payload, in bytes.
  size_t payload_len;
  // Whether it is the first of a new key phase: the peer has updated its keys. Unless this side
  // began, packetlane_quic_sealer_update_keys is due before the packet is acknowledged.
  bool key_update;
} packetlane_quic_packet;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// What a status is, in a few words: a string that stays. "unknown status" for any other number.
const char *packetlane_status_message(int status);

// What was wrong in the last call of this thread that failed, with its figures, in at most 255
// characters: "contents of 20000000 bytes do not fit a packet, which carries at most 16777215". The
// string is valid until the next call of this thread that fails. Empty if none has. It never
// holds a key or contents.
const char *packetlane_error_message(void);

// Makes the engine for this CPU: the best that it has, or what the environment variable
// PACKETLANE_BACKEND names.
//
// Fails with PACKETLANE_BACKEND_UNKNOWN or PACKETLANE_BACKEND_UNAVAILABLE if that variable names a backend
// that this library or this CPU does not have.
packetlane_status packetlane_engine_detect(packetlane_engine **engine);

// Makes the engine on the backend called `name`: "portable" on every CPU; "avx2" or "avx512" on x86-64;
// "neon" on AArch64.
//
// Fails with PACKETLANE_BACKEND_UNKNOWN, PACKETLANE_BACKEND_UNAVAILABLE.
packetlane_status packetlane_engine_named(const char *name,
                                          packetlane_engine **engine);

// The name of its backend, a string that is valid as long as the engine. NULL for NULL.
const char *packetlane_engine_backend(const packetlane_engine *engine);

// Frees an engine.
void packetlane_engine_free(packetlane_engine *engine);

// Length of the slot's packets on the wire, in bytes. 0 for NULL.
size_t packetlane_slot_wire_len(const packetlane_slot *of);

// Adds `next` to `joined` and returns true, if it is of the same session and begins where `joined`
// ends: so that both go to the socket in one write.
bool packetlane_slot_join(packetlane_slot *joined, const packetlane_slot *next);

// Makes an empty batch.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_seal_batch_new(packetlane_seal_batch **batch);

// Seals all packets that wait in the batch, of all sessions, in place.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_seal_batch_seal(packetlane_seal_batch *batch,
                                             const packetlane_engine *engine);

// Says where the sealed packets of a slot lie, for the socket to write. The bytes are valid until
// the batch is cleared or changed.
//
// Fails with PACKETLANE_NOT_SEALED if the batch was not sealed since they were added, and with
// PACKETLANE_STALE_SLOT.
packetlane_status packetlane_seal_batch_wire(const packetlane_seal_batch *batch,
                                             const packetlane_slot *of,
                                             const uint8_t **bytes,
                                             size_t *len);

// Begins a new turn: forgets all packets, wipes their keys and keeps the memory. Slots and pointers
// from the batch are void.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_seal_batch_clear(packetlane_seal_batch *batch);

// Gives back memory beyond `bytes` bytes and those that are taken. A batch otherwise stays as large
// as its largest turn.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_seal_batch_shrink(packetlane_seal_batch *batch, size_t bytes);

// How many packets the batch holds.
size_t packetlane_seal_batch_packets(const packetlane_seal_batch *batch);

// How many bytes its packets take: at PACKETLANE_ENOUGH_BYTES it is time to seal.
size_t packetlane_seal_batch_bytes(const packetlane_seal_batch *batch);

// Frees a batch.
void packetlane_seal_batch_free(packetlane_seal_batch *batch);

// Makes an empty batch.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_open_batch_new(packetlane_open_batch **batch);

// Gives room for `len` bytes from a socket. What it wrote there, packetlane_session_received takes.
// The room is valid until the next call that changes the batch; a new room takes its place.
//
// Fails with PACKETLANE_BATCH_FULL if the batch would have more than 4 GiB.
packetlane_status packetlane_open_batch_room(packetlane_open_batch *batch,
                                             size_t len,
                                             uint8_t **room);

// Opens all packets that wait in the batch, of all sessions, in place. Each has its own outcome:
// one that is forged stays encrypted and affects no other session.
//
// Fails only by rules 4 and 6: a forged packet is PACKETLANE_BAD_TAG when it is taken.
packetlane_status packetlane_open_batch_open(packetlane_open_batch *batch,
                                             const packetlane_engine *engine);

// Begins a new turn, as packetlane_seal_batch_clear. Take or defer all packets first: the session
// of a packet that is lost ends.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_open_batch_clear(packetlane_open_batch *batch);

// Gives back memory; see packetlane_seal_batch_shrink.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_open_batch_shrink(packetlane_open_batch *batch, size_t bytes);

// How many packets the batch holds.
size_t packetlane_open_batch_packets(const packetlane_open_batch *batch);

// How many bytes were received into it: from PACKETLANE_ENOUGH_BYTES on, leave other sockets to
// the next turn.
size_t packetlane_open_batch_bytes(const packetlane_open_batch *batch);

// Frees a batch.
void packetlane_open_batch_free(packetlane_open_batch *batch);

// Copies the session id, 32 bytes, to `id`. It is equal on both sides unless the connection is
// intercepted: users may compare it over another channel.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_session_id(const packetlane_session *session, uint8_t *id);

// Adds a packet with these contents to the batch and says where, for packetlane_seal_batch_wire.
// `packet_kind` is one of packetlane_packet_kind. Every packet that is added must be sealed and sent, in
// order: the counters of both sides go on with it. Few packets, and long ones, may be sealed here
// already, which takes less time; call packetlane_seal_batch_seal all the same.
//
// Fails with PACKETLANE_CONTENTS_TOO_LONG, PACKETLANE_BATCH_FULL, PACKETLANE_EXHAUSTED, or
// PACKETLANE_WRONG_VALUE for another kind. Nothing is added and nothing counted then.
packetlane_status packetlane_session_push(packetlane_session *session,
                                          packetlane_seal_batch *batch,
                                          uint32_t packet_kind,
                                          const uint8_t *contents,
                                          size_t contents_len,
                                          packetlane_slot *slot);

// As packetlane_session_push, for `count` packets of one kind: one slot says where all of them are, as
// neighbours. It takes less time than a call for each. All are added, or none.
//
// Fails as packetlane_session_push.
packetlane_status packetlane_session_push_many(packetlane_session *session,
                                               packetlane_seal_batch *batch,
                                               uint32_t packet_kind,
                                               const packetlane_bytes *contents,
                                               size_t count,
                                               packetlane_slot *slot);

// Begins a packet whose `contents_len` bytes the caller writes at `contents`, where the packet will lie:
// all of them, for they show bytes of earlier turns. packetlane_session_commit adds it. The pointer is
// valid until the next call that changes the batch. A session has one such packet at a time: another one
// that is begun takes its place.
//
// Fails as packetlane_session_push.
packetlane_status packetlane_session_begin(packetlane_session *session,
                                           packetlane_seal_batch *batch,
                                           uint32_t packet_kind,
                                           size_t contents_len,
                                           uint8_t **contents);

// Adds the packet that packetlane_session_begin or packetlane_session_begin_message has begun.
//
// Fails with PACKETLANE_STALE_SLOT if none was, or if the batch is another one or was cleared since, and with
// PACKETLANE_EXHAUSTED.
packetlane_status packetlane_session_commit(packetlane_session *session,
                                            packetlane_seal_batch *batch,
                                            packetlane_slot *slot);

// Adds a packet with a message: its type, such as "ping", in the shortest form that every peer
// understands, then its payload. Otherwise as packetlane_session_push.
//
// Fails with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable ASCII characters, and as
// packetlane_session_push.
packetlane_status packetlane_session_push_message(packetlane_session *session,
                                                  packetlane_seal_batch *batch,
                                                  const char *type_name,
                                                  const uint8_t *payload,
                                                  size_t payload_len,
                                                  packetlane_slot *slot);

// As packetlane_session_begin, for a message: the caller writes its `payload_len` bytes at `payload`.
//
// Fails as packetlane_session_push_message.
packetlane_status packetlane_session_begin_message(packetlane_session *session,
                                                   packetlane_seal_batch *batch,
                                                   const char *type_name,
                                                   size_t payload_len,
                                                   uint8_t **payload);

// Takes the first `len` bytes of the batch's last packetlane_open_batch_room, which the session's
// socket has written: adds every packet that is now whole to the batch, and keeps the rest for
// later. `packets`, if not NULL, is how many it added. With `len` 0 it adds what waits in the
// session (packetlane_session_needs_turn). Few packets may be opened here already,
// which takes less time; call packetlane_open_batch_open all the same.
//
// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter, or was taken: nothing changes then. Other
// errors end the session: PACKETLANE_RECEIVE_LIMIT, PACKETLANE_NOT_IN_BATCH, PACKETLANE_BATCH_FULL,
// PACKETLANE_EXHAUSTED. Packets from before them can still be taken. A session that has ended gives the
// error that ended it again: PACKETLANE_BAD_TAG if a packet was forged.
packetlane_status packetlane_session_received(packetlane_session *session,
                                              packetlane_open_batch *batch,
                                              size_t len,
                                              size_t *packets);

// As packetlane_session_received, for bytes that are not in the batch's room: they are copied into the
// batch. The batch's room is void then.
//
// Fails as packetlane_session_received, but not with PACKETLANE_WRONG_LENGTH for a room; PACKETLANE_BAD_TAG
// again if that has ended the session.
packetlane_status packetlane_session_feed(packetlane_session *session,
                                          packetlane_open_batch *batch,
                                          const uint8_t *bytes,
                                          size_t len,
                                          size_t *packets);

// Whether packets may wait in the session for a turn, without another byte from the peer: they came
// with the handshake, or were deferred. Then call packetlane_session_received with 0: the peer may
// send nothing more until it has an answer.
bool packetlane_session_needs_turn(const packetlane_session *session);

// Takes the session's next genuine packet from the batch, which has been opened: says where its
// contents lie. They are valid until the batch is cleared or changed. Returns PACKETLANE_END after the
// last one.
//
// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH: nothing changes then. Fails with
// PACKETLANE_BAD_TAG, or with what packetlane_session_received has failed with, once the packets from
// before are taken: the session has ended.
packetlane_status packetlane_session_next_packet(packetlane_session *session,
                                                 const packetlane_open_batch *batch,
                                                 const uint8_t **contents,
                                                 size_t *contents_len);

// As packetlane_session_next_packet, for a packet's message: its type and its payload. Packets that
// hold no message (they are empty, or their type is unknown or malformed) are dropped and counted
// (packetlane_session_ignored), as nodes do: later versions of the protocol may have more types.
//
// Returns PACKETLANE_END after the last one. Fails as packetlane_session_next_packet.
packetlane_status packetlane_session_next_message(packetlane_session *session,
                                                  const packetlane_open_batch *batch,
                                                  packetlane_message *message);

// Keeps the session's packets that nobody took from the batch for a later turn: for a peer that
// sends faster than it takes its answers. Until it has taken some, read nothing more from it.
//
// Fails with PACKETLANE_NOT_OPENED or PACKETLANE_NOT_IN_BATCH: nothing changes then. Fails with
// PACKETLANE_BAD_TAG, or with what packetlane_session_received has failed with: the session has ended.
// Packets that were added before the one that failed are then lost: take them instead if they matter.
packetlane_status packetlane_session_defer(packetlane_session *session,
                                           const packetlane_open_batch *batch);

// Sets the longest contents that are accepted, in bytes, from the next packet on.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_session_set_receive_limit(packetlane_session *session, size_t limit);

// How many decoys have been dropped since the handshake.
uint64_t packetlane_session_decoys(const packetlane_session *session);

// How many packets packetlane_session_next_message has dropped because they hold no message.
uint64_t packetlane_session_ignored(const packetlane_session *session);

// How many bytes wait in the session: of a packet that has not come whole, and contents that were
// deferred.
size_t packetlane_session_buffered(const packetlane_session *session);

// Frees a session and wipes its keys.
void packetlane_session_free(packetlane_session *session);

// Gives every field its default. `size` is `sizeof(packetlane_handshake_config)`: a later version
// of the library writes no more than the program has room for.
//
// Fails with PACKETLANE_WRONG_LENGTH if no version of this struct has that size.
packetlane_status packetlane_handshake_config_init(packetlane_handshake_config *config,
                                                   size_t size);

// Starts a handshake as the side that connects. packetlane_handshake_output has its first bytes at
// once.
//
// Fails with PACKETLANE_ZERO_MAGIC, PACKETLANE_SECRET_KEY, PACKETLANE_GARBAGE_TOO_LONG,
// PACKETLANE_NO_ENTROPY; PACKETLANE_CONTENTS_TOO_LONG for a decoy or the version packet; and
// PACKETLANE_WRONG_LENGTH for `size`.
packetlane_status packetlane_handshake_initiator(const packetlane_engine *engine,
                                                 const packetlane_handshake_config *settings,
                                                 packetlane_handshake **handshake);

// Starts a handshake as the side that accepts a connection. Otherwise as
// packetlane_handshake_initiator. It sends nothing before it has received a byte that differs from
// v1's first message.
//
// Fails as packetlane_handshake_initiator.
packetlane_status packetlane_handshake_responder(const packetlane_engine *engine,
                                                 const packetlane_handshake_config *settings,
                                                 packetlane_handshake **handshake);

// Processes bytes from the peer, any number of them, and says how far it is
// (packetlane_progress). Then packetlane_handshake_output may have bytes to send.
//
// Fails with PACKETLANE_NO_TERMINATOR, PACKETLANE_V1_OTHER_NETWORK, PACKETLANE_BAD_TAG,
// PACKETLANE_RECEIVE_LIMIT, or, for an initiator, PACKETLANE_ANSWERED_V1: connect again and speak v1
// (packetlane_v1_encode_header). Each ends the handshake, and the connection. Fails with PACKETLANE_ENDED
// if the handshake had ended before.
packetlane_status packetlane_handshake_receive(packetlane_handshake *handshake,
                                               const uint8_t *bytes,
                                               size_t len,
                                               packetlane_progress *progress);

// Gives the bytes that must be sent to the peer now: each once, and none if there are none. They
// are valid until the next call that changes the handshake. At PACKETLANE_COMPLETE, send them before
// any packet of the session.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_handshake_output(packetlane_handshake *handshake,
                                              const uint8_t **bytes,
                                              size_t *len);

// Says where all bytes lie that the peer has sent, once it has turned out to speak v1: for
// packetlane_v1_decode, or another implementation of v1, to begin with. They are valid until the
// handshake is freed.
//
// Fails with PACKETLANE_NOT_READY unless packetlane_handshake_receive has reported PACKETLANE_V1.
packetlane_status packetlane_handshake_v1_bytes(const packetlane_handshake *handshake,
                                                const uint8_t **bytes,
                                                size_t *len);

// Takes the session of a handshake that is complete. Packets may have come with its last bytes: see
// packetlane_session_needs_turn. The handshake is then to be freed.
//
// Fails with PACKETLANE_NOT_READY if the handshake is not complete, or the session was taken.
packetlane_status packetlane_handshake_take_session(packetlane_handshake *handshake,
                                                    packetlane_session **session);

// What it means that the peer has closed the connection now, or has let its time pass. Give it 10
// seconds for its first byte.
//
// Fails always: with PACKETLANE_CLOSED_UNANSWERED if the peer may speak v1 only (connect again and speak
// v1), otherwise with PACKETLANE_CLOSED.
packetlane_status packetlane_handshake_closed(const packetlane_handshake *handshake);

// Frees a handshake and wipes its secrets.
void packetlane_handshake_free(packetlane_handshake *handshake);

// Writes the header of a v1 message, PACKETLANE_V1_HEADER_LEN bytes, to `header`. Send it, then the
// payload. `magic` is the network's, 4 bytes; `type_name` is the message's type, such as "ping".
//
// Fails with PACKETLANE_ZERO_MAGIC; with PACKETLANE_MESSAGE_TYPE if the type is not 1 to 12 printable
// ASCII characters; and with PACKETLANE_CONTENTS_TOO_LONG if the payload has more than
// PACKETLANE_V1_MAX_PAYLOAD_LEN bytes.
packetlane_status packetlane_v1_encode_header(const uint8_t *magic,
                                              const char *type_name,
                                              const uint8_t *payload,
                                              size_t payload_len,
                                              uint8_t *header);

// Takes the first whole message from `len` bytes of a peer that speaks v1: those of
// packetlane_handshake_v1_bytes, and what came after them. `taken` is how many of these bytes are done
// with: the next call begins after them. The payload is not copied: keep the bytes as long as the message.
// Messages with a wrong checksum or a malformed type are dropped, as nodes do; `ignored`, if not NULL, is
// how many.
//
// Returns PACKETLANE_END, with `taken` and `ignored`, if no message is whole: call again when more bytes
// have come after those that are not taken. Those are less than PACKETLANE_V1_HEADER_LEN +
// PACKETLANE_V1_MAX_PAYLOAD_LEN bytes.
//
// Fails with PACKETLANE_V1_OTHER_NETWORK if a message does not begin with `magic`, the network's 4 bytes,
// and with PACKETLANE_RECEIVE_LIMIT if its payload is too long: end the connection. Fails with
// PACKETLANE_ZERO_MAGIC.
packetlane_status packetlane_v1_decode(const uint8_t *magic,
                                       const uint8_t *bytes,
                                       size_t len,
                                       packetlane_message *message,
                                       size_t *taken,
                                       uint64_t *ignored);

// Takes a traffic secret from TLS, for one of packetlane_quic_suite and a version by its number: 1, or
// 0x6b3343cf for version 2.
//
// Fails with PACKETLANE_WRONG_LENGTH if the suite's secrets have another length, and with
// PACKETLANE_WRONG_VALUE for another suite or version.
packetlane_status packetlane_quic_secret_new(uint32_t of_suite,
                                             uint32_t of_version,
                                             const uint8_t *bytes,
                                             size_t len,
                                             packetlane_quic_secret **secret);

// Derives the client's and the server's secret of Initial packets from the Destination Connection ID
// of the client's first one.
//
// Fails with PACKETLANE_WRONG_VALUE for another version than 1 and 0x6b3343cf.
packetlane_status packetlane_quic_secret_initial(uint32_t of_version,
                                                 const uint8_t *connection_id,
                                                 size_t len,
                                                 packetlane_quic_secret **client,
                                                 packetlane_quic_secret **server);

// Frees a secret and wipes it.
void packetlane_quic_secret_free(packetlane_quic_secret *secret);

// Makes the sealer with the keys of `secret`, which may be freed.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_sealer_new(const packetlane_quic_secret *secret,
                                             packetlane_quic_sealer **sealer);

// Adds a packet to the batch and says where. `header` is the unprotected header, which ends in the
// packet number: its 1 to 4 low bytes, as the header's first byte says, in network order. A long
// header's Length counts number, payload and a tag of 16 bytes. In a short header the Key Phase bit
// is set here.
//
// Fails with PACKETLANE_QUIC_NUMBER_USED, PACKETLANE_QUIC_NUMBER_TOO_LARGE,
// PACKETLANE_QUIC_HEADER_TOO_SHORT, PACKETLANE_QUIC_HEADER_NUMBER, PACKETLANE_QUIC_PAYLOAD_TOO_SHORT,
// PACKETLANE_QUIC_CONFIDENTIALITY_LIMIT, PACKETLANE_BATCH_FULL. Nothing is added and nothing counted then.
packetlane_status packetlane_quic_sealer_push(packetlane_quic_sealer *sealer,
                                              packetlane_quic_seal_batch *batch,
                                              uint64_t number,
                                              const uint8_t *header,
                                              size_t header_len,
                                              const uint8_t *payload,
                                              size_t payload_len,
                                              packetlane_slot *slot);

// As packetlane_quic_sealer_push, with `payload_len` bytes at `payload` for the caller to write: all of
// them, before the batch is sealed.
//
// Fails as packetlane_quic_sealer_push.
packetlane_status packetlane_quic_sealer_reserve(packetlane_quic_sealer *sealer,
                                                 packetlane_quic_seal_batch *batch,
                                                 uint64_t number,
                                                 const uint8_t *header,
                                                 size_t header_len,
                                                 size_t payload_len,
                                                 packetlane_slot *slot,
                                                 uint8_t **payload);

// Takes the next keys, from the next packet on: begins a key update, or follows the peer's. Only
// for 1-RTT packets.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_sealer_update_keys(packetlane_quic_sealer *sealer);

// Whether the key has sealed nearly as many packets as it may.
bool packetlane_quic_sealer_needs_key_update(const packetlane_quic_sealer *sealer);

// Frees a sealer and wipes its keys.
void packetlane_quic_sealer_free(packetlane_quic_sealer *sealer);

// Makes an empty batch.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_seal_batch_new(packetlane_quic_seal_batch **batch);

// Seals all packets that wait in the batch, payloads and headers, in place.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_seal_batch_seal(packetlane_quic_seal_batch *batch,
                                                  const packetlane_engine *engine);

// Says where the sealed packet of a slot lies; as packetlane_seal_batch_wire.
//
// Fails with PACKETLANE_NOT_SEALED, PACKETLANE_STALE_SLOT.
packetlane_status packetlane_quic_seal_batch_wire(const packetlane_quic_seal_batch *batch,
                                                  const packetlane_slot *of,
                                                  const uint8_t **bytes,
                                                  size_t *len);

// Begins a new turn; as packetlane_seal_batch_clear.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_seal_batch_clear(packetlane_quic_seal_batch *batch);

// Frees a batch.
void packetlane_quic_seal_batch_free(packetlane_quic_seal_batch *batch);

// Makes the opener with the keys of `secret`, which may be freed.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_opener_new(const packetlane_quic_secret *secret,
                                             packetlane_quic_opener **opener);

// Adds a packet to open, and says by which slot packetlane_quic_opener_take gives it. It lies in the
// batch: `len` bytes, `at` bytes behind its beginning (packetlane_quic_open_batch_received). Its
// packet number begins `number_at` bytes behind the packet's own.
//
// Fails with PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with PACKETLANE_WRONG_LENGTH if the
// batch has no such bytes.
packetlane_status packetlane_quic_opener_push(packetlane_quic_opener *opener,
                                              packetlane_quic_open_batch *batch,
                                              size_t at,
                                              size_t len,
                                              size_t number_at,
                                              packetlane_slot *slot);

// Takes a packet that this opener added, once its batch has been opened. Where it lies is valid until
// the batch is cleared or changed.
//
// Fails with PACKETLANE_BAD_TAG or PACKETLANE_QUIC_PACKET_TOO_SHORT: drop the packet. Fails with
// PACKETLANE_QUIC_INTEGRITY_LIMIT, PACKETLANE_QUIC_RESERVED_BITS, PACKETLANE_QUIC_KEY_UPDATE: end the
// connection, as their comments say. Mistakes of the caller are PACKETLANE_NOT_OPENED,
// PACKETLANE_STALE_SLOT, PACKETLANE_QUIC_OTHER_OPENER, PACKETLANE_SEVERAL_PACKETS.
packetlane_status packetlane_quic_opener_take(packetlane_quic_opener *opener,
                                              const packetlane_quic_open_batch *batch,
                                              const packetlane_slot *of,
                                              packetlane_quic_packet *packet);

// Raises the packet number that is expected next: 0-RTT and 1-RTT packets share their numbers, and
// each has an opener.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_opener_set_expected(packetlane_quic_opener *opener,
                                                      uint64_t number);

// The packet number that is expected next: the largest that was authentic, plus 1.
uint64_t packetlane_quic_opener_expected(const packetlane_quic_opener *opener);

// Drops the keys from before the last key update, some time after it and before the next.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_opener_drop_previous_keys(packetlane_quic_opener *opener);

// How many packets failed to open, under all its keys.
uint64_t packetlane_quic_opener_forged(const packetlane_quic_opener *opener);

// Frees an opener and wipes its keys.
void packetlane_quic_opener_free(packetlane_quic_opener *opener);

// Makes an empty batch.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_open_batch_new(packetlane_quic_open_batch **batch);

// Gives room for `len` bytes from a socket; as packetlane_open_batch_room.
//
// Fails with PACKETLANE_BATCH_FULL.
packetlane_status packetlane_quic_open_batch_room(packetlane_quic_open_batch *batch,
                                                  size_t len,
                                                  uint8_t **room);

// Takes the first `len` bytes of the last room, a datagram, and says how many bytes behind the
// batch's beginning they lie: `at` for packetlane_quic_opener_push, which is called for each packet in
// it.
//
// Fails with PACKETLANE_WRONG_LENGTH if that room is shorter, or was taken.
packetlane_status packetlane_quic_open_batch_received(packetlane_quic_open_batch *batch,
                                                      size_t len,
                                                      size_t *at);

// Opens all packets that wait in the batch, headers and payloads, in place.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_open_batch_open(packetlane_quic_open_batch *batch,
                                                  const packetlane_engine *engine);

// Begins a new turn; as packetlane_seal_batch_clear.
//
// Fails only by rules 4 and 6.
packetlane_status packetlane_quic_open_batch_clear(packetlane_quic_open_batch *batch);

// Frees a batch.
void packetlane_quic_open_batch_free(packetlane_quic_open_batch *batch);

// Computes the double SHA-256 of `count` messages, many at once, and writes 32 bytes for each to
// `digests`, in the order of the hash function's output. (Nodes show hashes with their bytes reversed.)
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is more than memory can hold.
packetlane_status packetlane_sha256d_many(const packetlane_engine *engine,
                                          const packetlane_bytes *messages,
                                          size_t count,
                                          uint8_t *digests);

// Computes the double SHA-256 of `count` pairs of nodes of a Merkle tree: 64 bytes each, one after
// the other. Writes 32 bytes for each to `digests`.
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is more than memory can hold.
packetlane_status packetlane_sha256d_64(const packetlane_engine *engine,
                                        const uint8_t *pairs,
                                        size_t count,
                                        uint8_t *digests);

// Computes the Merkle root of `count` leaves, 32 bytes each, as Bitcoin does, and writes it to the
// 32 bytes at `root`. The root of no leaves is all zeros. `mutated`, if not NULL, is whether two
// nodes of a pair are equal: then the same root also belongs to a shorter list (CVE-2012-2459).
//
// Fails with PACKETLANE_WRONG_LENGTH if `count` is more than memory can hold.
packetlane_status packetlane_merkle_root(const packetlane_engine *engine,
                                         const uint8_t *leaves,
                                         size_t count,
                                         uint8_t *root,
                                         bool *mutated);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PACKETLANE_H */
