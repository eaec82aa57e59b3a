/* An echo server on epoll. In each turn one call opens the packets of all clients, and one call seals
 * all answers. The same program as packetlane's examples/event_loop.rs.
 *
 *     cc server.c $(pkg-config --cflags --libs packetlane) -o server
 *     ./server PORT [CLIENTS]   on 127.0.0.1, regtest; port 0 picks a free one. Exits after that
 *                               many clients have disconnected.
 */

#define _GNU_SOURCE
#include <packetlane.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    /* Maximum bytes of one read. */
    READ_LEN = 16 * 1024,
    /* A client with this many unread bytes of answers is neither read nor answered. */
    MAX_UNREAD = 1024 * 1024,
    EVENTS = 1024,
};

/* Bytes that the socket has not accepted yet. */
struct kept {
    uint8_t *bytes;
    size_t begin, end, capacity;
};

struct client {
    int fd;
    /* Exactly one of the two is set. */
    packetlane_handshake *handshake;
    packetlane_session *session;
    /* Sent before the packets of this turn. */
    struct kept kept;
    /* The packets of this turn, all adjacent because clients are answered one after another. */
    packetlane_slot slot;
    int has_slot;
    /* Whether it may be readable or writable: edge-triggered epoll reports each once. */
    int is_ready, is_over, has_more;
    struct client *next_ready;
};

static packetlane_engine *engine;
static packetlane_open_batch *incoming;
static packetlane_seal_batch *outgoing;
/* The ready clients, in the order in which epoll reported them. */
static struct client *first_ready, **last_ready = &first_ready;

/* Exits if a call failed. */
static void must(packetlane_status status) {
    if (status != PACKETLANE_OK) {
        fprintf(stderr, "%s\n", packetlane_error_message());
        exit(1);
    }
}

static void make_ready(struct client *client) {
    if (client->is_ready)
        return;
    client->is_ready = 1;
    client->next_ready = NULL;
    *last_ready = client;
    last_ready = &client->next_ready;
}

static struct client *take_ready(void) {
    struct client *client = first_ready;
    if (client != NULL) {
        first_ready = client->next_ready;
        if (first_ready == NULL)
            last_ready = &first_ready;
        client->is_ready = 0;
    }
    return client;
}

static void keep(struct kept *kept, const uint8_t *bytes, size_t len) {
    if (kept->begin == kept->end)
        kept->begin = kept->end = 0;
    if (kept->capacity - kept->end < len) {
        kept->capacity = 2 * (kept->end + len);
        kept->bytes = realloc(kept->bytes, kept->capacity);
        if (kept->bytes == NULL)
            abort();
    }
    if (len > 0)
        memcpy(kept->bytes + kept->end, bytes, len);
    kept->end += len;
}

static size_t unread(const struct client *client) {
    size_t in_batch = client->has_slot ? packetlane_slot_wire_len(&client->slot) : 0;
    return client->kept.end - client->kept.begin + in_batch;
}

/* Continues after a call for a handshake. Like the functions below, returns 0 if the connection must
 * close. */
static int handshake_advanced(struct client *client, packetlane_status status,
                              packetlane_progress progress) {
    const uint8_t *output;
    size_t output_len;
    must(packetlane_handshake_output(client->handshake, &output, &output_len));
    keep(&client->kept, output, output_len);
    if (status != PACKETLANE_OK || progress == PACKETLANE_V1)
        return 0;
    if (progress == PACKETLANE_COMPLETE) {
        must(packetlane_handshake_take_session(client->handshake, &client->session));
        packetlane_handshake_free(client->handshake);
        client->handshake = NULL;
    }
    return 1;
}

/* Reads once, into the batch. */
static int read_client(struct client *client) {
    client->has_more = 1;
    if (unread(client) >= MAX_UNREAD)
        return 1;
    uint8_t *room;
    must(packetlane_open_batch_room(incoming, READ_LEN, &room));
    ssize_t len = recv(client->fd, room, READ_LEN, 0);
    if (len == 0)
        return 0;
    if (len < 0) {
        if (errno != EAGAIN)
            return 0;
        client->has_more = 0;
        len = 0;
    }
    if (client->handshake != NULL) {
        packetlane_progress progress;
        packetlane_status status = packetlane_handshake_receive_batched(
            client->handshake, incoming, room, (size_t)len, &progress);
        if (!handshake_advanced(client, status, progress))
            return 0;
        if (client->session == NULL)
            return 1;
        /* Packets may have arrived with its last bytes. */
        len = 0;
    }
    return packetlane_session_received(client->session, incoming, (size_t)len, NULL) ==
           PACKETLANE_OK;
}

/* Answers every packet while the client reads its answers; defers the rest. */
static int answer(struct client *client) {
    if (client->session == NULL) {
        packetlane_progress progress;
        packetlane_status status =
            packetlane_handshake_take_keys(client->handshake, incoming, &progress);
        /* If it is complete now, its packets belong to the next turn. */
        return handshake_advanced(client, status, progress);
    }
    while (unread(client) < MAX_UNREAD) {
        const uint8_t *contents;
        size_t len;
        packetlane_slot slot;
        packetlane_status status =
            packetlane_session_next_packet(client->session, incoming, &contents, &len);
        if (status == PACKETLANE_END)
            return 1;
        if (status != PACKETLANE_OK ||
            packetlane_session_push(client->session, outgoing, PACKETLANE_GENUINE, contents, len,
                                    &slot) != PACKETLANE_OK)
            return 0;
        if (!client->has_slot)
            client->slot = slot;
        else if (!packetlane_slot_join(&client->slot, &slot))
            return 0;
        client->has_slot = 1;
    }
    return packetlane_session_defer(client->session, incoming) == PACKETLANE_OK;
}

/* Writes the kept bytes and the packets of this turn in one call. Keeps what the socket does not
 * accept, because the batch will be cleared. */
static int write_client(struct client *client) {
    const uint8_t *wire = NULL;
    size_t wire_len = 0;
    if (client->has_slot)
        must(packetlane_seal_batch_wire(outgoing, &client->slot, &wire, &wire_len));
    client->has_slot = 0;
    struct kept *kept = &client->kept;
    while (kept->begin < kept->end || wire_len > 0) {
        struct iovec pieces[2];
        int count = 0;
        if (kept->begin < kept->end)
            pieces[count++] = (struct iovec){kept->bytes + kept->begin, kept->end - kept->begin};
        if (wire_len > 0)
            pieces[count++] = (struct iovec){(void *)wire, wire_len};
        struct msghdr header = {.msg_iov = pieces, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(client->fd, &header, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN) {
            keep(kept, wire, wire_len);
            return 1;
        }
        if (sent <= 0)
            return 0;
        size_t of_kept = kept->end - kept->begin;
        of_kept = (size_t)sent < of_kept ? (size_t)sent : of_kept;
        kept->begin += of_kept;
        size_t of_wire = (size_t)sent - of_kept;
        if (of_wire > 0) {
            wire += of_wire;
            wire_len -= of_wire;
        }
    }
    return 1;
}

static void drop_client(struct client *client) {
    close(client->fd);
    packetlane_handshake_free(client->handshake);
    packetlane_session_free(client->session);
    free(client->kept.bytes);
    free(client);
}

/* One turn over the ready clients, up to a full batch. Returns how many clients disconnected. */
static int turn(void) {
    struct client *members[EVENTS];
    int count = 0, gone = 0;
    while (count < EVENTS && packetlane_open_batch_bytes(incoming) < PACKETLANE_ENOUGH_BYTES) {
        struct client *client = take_ready();
        if (client == NULL)
            break;
        client->is_over = !read_client(client);
        members[count++] = client;
    }
    /* Computes the keys of all handshakes, too. */
    must(packetlane_open_batch_open(incoming, engine));
    for (int i = 0; i < count; i++)
        if (!members[i]->is_over)
            members[i]->is_over = !answer(members[i]);
    must(packetlane_seal_batch_seal(outgoing, engine));
    for (int i = 0; i < count; i++)
        if (!members[i]->is_over)
            members[i]->is_over = !write_client(members[i]);
    for (int i = 0; i < count; i++) {
        struct client *client = members[i];
        if (client->is_over) {
            drop_client(client);
            gone++;
        } else if (unread(client) < MAX_UNREAD &&
                   (client->has_more || packetlane_session_needs_turn(client->session))) {
            make_ready(client);
        }
    }
    must(packetlane_open_batch_clear(incoming));
    must(packetlane_seal_batch_clear(outgoing));
    return gone;
}

static void accept_clients(int listener, int epoll, int *accepted, int limit) {
    while (*accepted < limit) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        ++*accepted;
        struct client *client = calloc(1, sizeof *client);
        if (client == NULL)
            abort();
        client->fd = fd;
        packetlane_handshake_config config;
        must(packetlane_handshake_config_init(&config, sizeof config));
        memcpy(config.magic, PACKETLANE_MAGIC_REGTEST, 4);
        must(packetlane_handshake_responder(engine, &config, &client->handshake));
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = client};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
            perror("epoll_ctl");
            exit(1);
        }
    }
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: server PORT [CLIENTS]\n");
        return 2;
    }
    int limit = argc > 2 ? atoi(argv[2]) : 2147483647;
    must(packetlane_engine_detect(&engine));
    must(packetlane_open_batch_new(&incoming));
    must(packetlane_seal_batch_new(&outgoing));

    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)atoi(argv[1])),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_len = sizeof address;
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &address_len) != 0) {
        perror("listen");
        return 1;
    }
    printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
    fflush(stdout);
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);

    int accepted = 0, gone = 0;
    while (gone < limit) {
        struct epoll_event events[EVENTS];
        int count = epoll_wait(epoll, events, EVENTS, first_ready != NULL ? 0 : -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr != NULL)
                make_ready(events[i].data.ptr);
            else
                accept_clients(listener, epoll, &accepted, limit);
        }
        if (first_ready != NULL)
            gone += turn();
        if (accepted == limit)
            epoll_ctl(epoll, EPOLL_CTL_DEL, listener, NULL);
    }
    close(epoll);
    close(listener);
    packetlane_open_batch_free(incoming);
    packetlane_seal_batch_free(outgoing);
    packetlane_engine_free(engine);
    printf("%d clients have disconnected\n", gone);
    return 0;
}
