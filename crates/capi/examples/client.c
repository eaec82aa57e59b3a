/* Connects to a node with v2: handshake, version and verack, ping and pong.
 *
 *     cc client.c $(pkg-config --cflags --libs packetlane) -o client
 *     ./client HOST PORT MAGIC   MAGIC is 8 hex digits in wire order: f9beb4d9 is mainnet,
 *                                fabfb5da is regtest
 */

#define _POSIX_C_SOURCE 200809L
#include <packetlane.h>

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { READ_LEN = 16 * 1024 };

/* Exits if a call failed. */
static void must(packetlane_status status) {
    if (status != PACKETLANE_OK) {
        fprintf(stderr, "%s\n", packetlane_error_message());
        exit(1);
    }
}

static int connect_to(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0) {
        fprintf(stderr, "%s: %s\n", host, gai_strerror(error));
        exit(1);
    }
    int fd = -1;
    for (struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next) {
        fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    if (fd < 0) {
        perror("connect");
        exit(1);
    }
    struct timeval patience = {.tv_sec = 20};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static void write_all(int fd, const uint8_t *bytes, size_t len) {
    while (len > 0) {
        ssize_t written = send(fd, bytes, len, MSG_NOSIGNAL);
        if (written <= 0) {
            perror("send");
            exit(1);
        }
        bytes += written;
        len -= (size_t)written;
    }
}

/* Runs the handshake and returns its session. */
static packetlane_session *shake_hands(int fd, const packetlane_engine *engine,
                                       const uint8_t magic[4]) {
    packetlane_handshake_config config;
    must(packetlane_handshake_config_init(&config, sizeof config));
    memcpy(config.magic, magic, 4);
    packetlane_handshake *handshake;
    must(packetlane_handshake_initiator(engine, &config, &handshake));
    packetlane_progress progress = PACKETLANE_WAITING;
    for (;;) {
        const uint8_t *bytes;
        size_t len;
        must(packetlane_handshake_output(handshake, &bytes, &len));
        write_all(fd, bytes, len);
        if (progress == PACKETLANE_COMPLETE)
            break;
        uint8_t received[4096];
        ssize_t got = recv(fd, received, sizeof received, 0);
        if (got <= 0) {
            /* After PACKETLANE_CLOSED_UNANSWERED a program would reconnect with v1. */
            packetlane_handshake_closed(handshake);
            fprintf(stderr, "%s\n", packetlane_error_message());
            exit(1);
        }
        must(packetlane_handshake_receive(handshake, received, (size_t)got, &progress));
    }
    packetlane_session *session;
    must(packetlane_handshake_take_session(handshake, &session));
    packetlane_handshake_free(handshake);
    return session;
}

static void put(uint8_t *at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> 8 * i);
}

/* A version message of protocol 70016 without services: 86 bytes plus the user agent. */
static size_t version_message(uint8_t payload[102]) {
    static const char AGENT[] = "/packetlane-c:0/";
    memset(payload, 0, 102);
    put(payload, 70016, 4);
    put(payload + 12, (uint64_t)time(NULL), 8);
    put(payload + 72, 0x7061636b65746c61, 8); /* nonce */
    payload[80] = sizeof AGENT - 1;
    memcpy(payload + 81, AGENT, sizeof AGENT - 1);
    return 81 + sizeof AGENT - 1 + 5; /* start height, relay */
}

struct peer {
    int fd;
    const packetlane_engine *engine;
    packetlane_session *session;
    packetlane_seal_batch *outgoing;
};

/* Sends one message in a turn of its own. */
static void send_message(struct peer *peer, const char *type, const uint8_t *payload, size_t len) {
    packetlane_slot slot;
    const uint8_t *wire;
    size_t wire_len;
    must(packetlane_session_push_message(peer->session, peer->outgoing, type, payload, len, &slot));
    must(packetlane_seal_batch_seal(peer->outgoing, peer->engine));
    must(packetlane_seal_batch_wire(peer->outgoing, &slot, &wire, &wire_len));
    write_all(peer->fd, wire, wire_len);
    must(packetlane_seal_batch_clear(peer->outgoing));
}

int main(int argc, char **argv) {
    uint8_t magic[4];
    if (argc != 4 || strlen(argv[3]) != 8 ||
        sscanf(argv[3], "%2hhx%2hhx%2hhx%2hhx", &magic[0], &magic[1], &magic[2], &magic[3]) != 4) {
        fprintf(stderr, "usage: client HOST PORT MAGIC, for example: client 127.0.0.1 8333 f9beb4d9\n");
        return 2;
    }
    packetlane_engine *engine;
    must(packetlane_engine_detect(&engine));
    struct peer peer = {.fd = connect_to(argv[1], argv[2]), .engine = engine};
    peer.session = shake_hands(peer.fd, engine, magic);
    must(packetlane_seal_batch_new(&peer.outgoing));
    packetlane_open_batch *incoming;
    must(packetlane_open_batch_new(&incoming));

    uint8_t id[32];
    must(packetlane_session_id(peer.session, id));
    printf("v2 with %s:%s, session id ", argv[1], argv[2]);
    for (int i = 0; i < 32; i++)
        printf("%02x", id[i]);
    printf("\n");

    uint8_t version[102];
    send_message(&peer, "version", version, version_message(version));
    static const uint8_t NONCE[8] = "8 bytes";
    size_t received = 0; /* Packets may have arrived with the handshake. */
    int is_done = 0;
    while (!is_done) {
        must(packetlane_session_received(peer.session, incoming, received, NULL));
        must(packetlane_open_batch_open(incoming, engine));
        packetlane_message message;
        packetlane_status status;
        while ((status = packetlane_session_next_message(peer.session, incoming, &message)) !=
               PACKETLANE_END) {
            must(status);
            printf("received %s (%zu bytes)\n", message.message_type, message.payload_len);
            if (strcmp(message.message_type, "version") == 0) {
                send_message(&peer, "verack", NULL, 0);
            } else if (strcmp(message.message_type, "verack") == 0) {
                send_message(&peer, "ping", NONCE, sizeof NONCE);
            } else if (strcmp(message.message_type, "ping") == 0) {
                send_message(&peer, "pong", message.payload, message.payload_len);
            } else if (strcmp(message.message_type, "pong") == 0 &&
                       message.payload_len == sizeof NONCE &&
                       memcmp(message.payload, NONCE, sizeof NONCE) == 0) {
                is_done = 1;
            }
        }
        must(packetlane_open_batch_clear(incoming));
        if (is_done)
            break;
        uint8_t *room;
        must(packetlane_open_batch_room(incoming, READ_LEN, &room));
        ssize_t got = recv(peer.fd, room, READ_LEN, 0);
        if (got <= 0) {
            fprintf(stderr, "%s\n", got == 0 ? "the node closed the connection" : "no answer");
            return 1;
        }
        received = (size_t)got;
    }
    printf("received the pong\n");
    close(peer.fd);
    packetlane_open_batch_free(incoming);
    packetlane_seal_batch_free(peer.outgoing);
    packetlane_session_free(peer.session);
    packetlane_engine_free(engine);
    return 0;
}
