/* zmq_accepted.c: see zmq_accepted.h. */
#include "road/zmq_accepted.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/envelope.h"
#include "wire/zmq_calls.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define ROUTE_BYTES 5u    /* a ROUTER's own: a zero, then 32 bits */
#define LINKS_MIN 8u

struct link {
    void *socket;
    uint64_t number;
    uint64_t taken_bytes, sent_bytes; /* since it was last told of */
    uint64_t room_bytes;              /* that may still be sent */
    uint32_t route;
    bool has_moved;
    uint8_t prefix[EBK_ENVELOPE_PREFIX_BYTES];
};

struct ebk_zmq_accepted {
    struct link *links;
    uint32_t count, room;
    uint32_t moved_count;
    uint64_t taken_most; /* by one link, since any was told of */
    struct ebk_zmq_message body, tail; /* of held */
    struct ebk_zmq_accepted_held held;
};

/* ---- links ---------------------------------------------------------------------------- */

struct ebk_zmq_accepted *ebk_zmq_accepted_new(void)
{
    EBK_ASSERT(ebk_zmq.is_loaded);
    struct ebk_zmq_accepted *links = calloc(1, sizeof *links);
    if (links != NULL) {
        (void)ebk_zmq.init(&links->body);
        (void)ebk_zmq.init(&links->tail);
    }
    return links;
}

void ebk_zmq_accepted_free(struct ebk_zmq_accepted *links)
{
    if (links == NULL) return;
    (void)ebk_zmq.close(&links->body);
    (void)ebk_zmq.close(&links->tail);
    free(links->links);
    free(links);
}

int ebk_zmq_accepted_up(struct ebk_zmq_accepted *links, void *socket, uint64_t number, const uint8_t *route,
                        size_t route_size, const uint8_t *prefix)
{
    if (route_size != ROUTE_BYTES || route[0] != 0) return EBK_USAGE;
    if (links->count == links->room) {
        const uint32_t room = links->room ? links->room * 2 : LINKS_MIN;
        struct link *wider = realloc(links->links, room * sizeof *wider);
        if (wider == NULL) return EBK_NO_MEMORY;
        links->links = wider;
        links->room = room;
    }
    struct link *link = &links->links[links->count++];
    *link = (struct link){.socket = socket, .number = number, .route = ebk_load_u32(route + 1)};
    memcpy(link->prefix, prefix, EBK_ENVELOPE_PREFIX_BYTES);
    return EBK_OK;
}

void ebk_zmq_accepted_down(struct ebk_zmq_accepted *links, uint64_t number)
{
    for (uint32_t i = 0; i < links->count; i++) {
        if (links->links[i].number != number) continue;
        EBK_ASSERT(!links->links[i].has_moved || links->moved_count > 0);
        if (links->links[i].has_moved) links->moved_count -= 1;
        links->links[i] = links->links[--links->count];
        return;
    }
}

static struct link *link_of(struct ebk_zmq_accepted *links, uint64_t number)
{
    for (uint32_t i = 0; i < links->count; i++)
        if (links->links[i].number == number) return &links->links[i];
    return NULL;
}

static void set_moved(struct ebk_zmq_accepted *links, struct link *link)
{
    if (!link->has_moved) links->moved_count += 1;
    link->has_moved = true;
    EBK_ASSERT(links->moved_count > 0 && links->moved_count <= links->count);
}

/* A search from the start is right for the few links that a bookie has; the one found moves to the front, so that
 * those that talk are found at once. */
static struct link *find_link(struct ebk_zmq_accepted *links, const void *socket, const uint8_t *route, size_t size)
{
    if (size != ROUTE_BYTES || route[0] != 0) return NULL; /* A peer may name its route as it likes (T4). */
    const uint32_t wanted = ebk_load_u32(route + 1);
    for (uint32_t i = 0; i < links->count; i++) {
        if (links->links[i].route != wanted || links->links[i].socket != socket) continue;
        if (i > 0) {
            const struct link found = links->links[i];
            links->links[i] = links->links[i / 2];
            links->links[i / 2] = found;
            return &links->links[i / 2];
        }
        return &links->links[i];
    }
    return NULL;
}

/* ---- receiving ------------------------------------------------------------------------ */

static void hold(struct ebk_zmq_accepted *links, const uint8_t *route, size_t route_size, size_t tail_size, int more)
{
    struct ebk_zmq_accepted_held *held = &links->held;
    held->route_size = route_size <= sizeof held->route ? (uint32_t)route_size : 0;
    memcpy(held->route, route, held->route_size);
    held->more = more;
    held->descriptor = ebk_zmq.get(&links->body, EBK_ZMQ_SOURCE);
    held->data = ebk_zmq.data(&links->body);
    held->size = ebk_zmq.size(&links->body);
    held->tail = ebk_zmq.data(&links->tail);
    held->tail_size = tail_size;
}

int ebk_zmq_accepted_drain(struct ebk_zmq_accepted *links, void *socket, struct ebk_add_path *path, uint32_t bodies_max,
                           size_t bytes_max)
{
    struct ebk_zmq_message route;
    size_t bytes = 0;
    (void)ebk_zmq.init(&route);
    int result = EBK_ZMQ_BOUND;
    for (uint32_t bodies = 0; bodies < bodies_max && bytes < bytes_max; bodies++) {
        /* Parts of one message come together, and a receive replaces what its message held. */
        if (!ebk_zmq_receive(&route, socket) || !ebk_zmq_receive(&links->body, socket)) {
            result = EBK_ZMQ_EMPTY;
            break;
        }
        int more = ebk_zmq.more(&links->body);
        size_t tail_size = 0;
        if (more) {
            if (!ebk_zmq_receive(&links->tail, socket)) {
                result = EBK_ZMQ_EMPTY;
                break;
            }
            more = ebk_zmq.more(&links->tail);
            tail_size = ebk_zmq.size(&links->tail);
        }
        const uint8_t *data = ebk_zmq.data(&links->body);
        const size_t size = ebk_zmq.size(&links->body);
        struct link *link = find_link(links, socket, ebk_zmq.data(&route), ebk_zmq.size(&route));
        bytes += size + tail_size;
        if (!more && link != NULL && path != NULL && ebk_envelope_is_body(link->prefix, data, size, tail_size) &&
            ebk_add_path_take(path, link->number, data + EBK_ENVELOPE_BYTES, size - EBK_ENVELOPE_BYTES,
                              ebk_zmq.data(&links->tail), tail_size) == EBK_ADD_TAKEN) {
            link->taken_bytes += size - EBK_ENVELOPE_BYTES + tail_size;
            if (link->taken_bytes > links->taken_most) links->taken_most = link->taken_bytes;
            set_moved(links, link);
            continue;
        }
        hold(links, ebk_zmq.data(&route), ebk_zmq.size(&route), tail_size, more);
        result = EBK_ZMQ_HELD;
        break;
    }
    (void)ebk_zmq.close(&route);
    return result;
}

const struct ebk_zmq_accepted_held *ebk_zmq_accepted_held(const struct ebk_zmq_accepted *links)
{
    return &links->held;
}

/* ---- sending -------------------------------------------------------------------------- */

static bool send_part(void *socket, struct ebk_zmq_message *message, int flags)
{
    while (ebk_zmq.send(message, socket, flags | EBK_ZMQ_DONTWAIT) < 0)
        if (ebk_zmq.last_error() != EINTR) return false;
    return true;
}

int ebk_zmq_accepted_send(struct ebk_zmq_accepted *links, uint64_t number, const uint8_t *body, size_t size)
{
    struct link *link = link_of(links, number);
    struct ebk_zmq_message route, message;
    if (link == NULL || size > link->room_bytes || ebk_zmq.init_size(&message, EBK_ENVELOPE_BYTES + size) < 0) return 0;
    uint8_t *envelope = ebk_zmq.data(&message);
    memcpy(envelope, link->prefix, EBK_ENVELOPE_PREFIX_BYTES);
    ebk_store_u32(envelope + EBK_ENVELOPE_AT_LENGTH, (uint32_t)size);
    ebk_store_u32(envelope + EBK_ENVELOPE_AT_CRC, ebk_crc32c(0, envelope, EBK_ENVELOPE_AT_CRC));
    memcpy(envelope + EBK_ENVELOPE_BYTES, body, size);
    if (ebk_zmq.init_size(&route, ROUTE_BYTES) < 0) {
        (void)ebk_zmq.close(&message);
        return 0;
    }
    uint8_t *name = ebk_zmq.data(&route);
    name[0] = 0;
    ebk_store_u32(name + 1, link->route);
    /* A ROUTER refuses a route that is gone or full, and behind a route it takes its body. */
    if (!send_part(link->socket, &route, EBK_ZMQ_MORE) || !send_part(link->socket, &message, 0)) {
        (void)ebk_zmq.close(&route);
        (void)ebk_zmq.close(&message);
        return 0;
    }
    link->room_bytes -= size;
    link->sent_bytes += size;
    set_moved(links, link);
    return 1;
}

void ebk_zmq_accepted_set_room(struct ebk_zmq_accepted *links, uint64_t number, uint64_t bytes)
{
    struct link *link = link_of(links, number);
    if (link != NULL) link->room_bytes = bytes;
}

uint64_t ebk_zmq_accepted_room(struct ebk_zmq_accepted *links, uint64_t number)
{
    const struct link *link = link_of(links, number);
    return link == NULL ? 0 : link->room_bytes;
}

/* ---- telling -------------------------------------------------------------------------- */

int ebk_zmq_accepted_moved(struct ebk_zmq_accepted *links, uint64_t *number, uint64_t *taken, uint64_t *sent)
{
    for (uint32_t i = 0; links->moved_count > 0 && i < links->count; i++) {
        struct link *link = &links->links[i];
        if (!link->has_moved) continue;
        *number = link->number;
        *taken = link->taken_bytes;
        *sent = link->sent_bytes;
        link->taken_bytes = link->sent_bytes = 0;
        link->has_moved = false;
        links->moved_count -= 1;
        return 1;
    }
    links->taken_most = 0;
    return 0;
}

uint64_t ebk_zmq_accepted_taken_most(const struct ebk_zmq_accepted *links)
{
    return links->taken_most;
}
