/* seat.c: see seat.h. */
#include "road/seat.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "road/add_path.h"
#include "road/link_tray.h"
#include "road/near.h"
#include "store/table.h"
#include "wire/envelope.h"
#include "wire/frame_header.h"
#include "wire/message.h"
#include "wire/zmq_calls.h"
#include "wire/zmq_send.h"

#include <string.h>

#define HEADS_BYTES_MAX (EBK_ENVELOPE_BYTES + EBK_MESSAGE_HEADER_BYTES + EBK_LINK_CONTROL_BYTES_MAX + EBK_FRAME_HEADER_BYTES)
/* The largest body with a frame, without its envelope: a link must have room for it before a frame is sealed. */
#define BODY_BYTES_MAX (EBK_FRAME_BYTES_MAX + HEADS_BYTES_MAX)

/* ---- over a link ----------------------------------------------------------------------- */

/* The header of a frame (WIRE.md 2), with the LAC that was the newest when it was sealed. */
static void make_frame_head(struct ebk_seat_add *add)
{
    const struct ebk_packed *const packed = add->packed;
    uint8_t *const to = add->head;
    add->has_head = true;
    const struct ebk_frame_facts facts = {.ledger_id = add->ledger_id, .count = packed->count,
                                          .first_entry = packed->first_entry, .last_entry = packed->last_entry};
    ebk_frame_header_write(to, &facts, packed->size);
    to[EBK_FRAME_AT_FLAGS] |= EBK_FRAME_FLAG_LAC;
    ebk_store_u64(to + EBK_FRAME_AT_LAC, (uint64_t)add->lac);
    ebk_store_u64(to + EBK_FRAME_AT_LAC_LENGTH, add->lac_length);
    memcpy(to + EBK_FRAME_AT_KEY, add->key, EBK_KEY_BYTES);
    ebk_store_u32(to + EBK_FRAME_AT_CRC, ebk_crc32c(0, to, EBK_FRAME_AT_CRC));
}

/* Heads and frame as one part. */
static int send_copied(void *socket, const uint8_t *heads, size_t heads_size, const struct ebk_packed *packed)
{
    struct ebk_zmq_message message;
    if (ebk_zmq.init_size(&message, heads_size + packed->size) < 0) return EBK_NO_MEMORY;
    uint8_t *to = ebk_zmq.data(&message);
    memcpy(to, heads, heads_size);
    memcpy(to + heads_size, packed->body, packed->size);
    while (ebk_zmq.send(&message, socket, EBK_ZMQ_DONTWAIT) < 0) {
        if (ebk_zmq.last_error() == EINTR) continue;
        (void)ebk_zmq.close(&message);
        return EBK_FULL;
    }
    return EBK_OK;
}

/* One request: envelope, message header, control part, frame. False: nothing was sent. */
static bool ask(const struct ebk_link_seat *seat, struct ebk_sending_link *link, struct ebk_seat_add *add)
{
    uint8_t heads[HEADS_BYTES_MAX];
    const struct ebk_packed *const packed = add->packed;
    EBK_ASSERT(packed->body != NULL && packed->size <= EBK_FRAME_BYTES_MAX);
    EBK_ASSERT(seat->control_size <= EBK_LINK_CONTROL_BYTES_MAX);
    uint8_t *const message = heads + EBK_ENVELOPE_BYTES;
    uint8_t *end = message + EBK_MESSAGE_HEADER_BYTES;
    memcpy(end, seat->control, seat->control_size);
    end += seat->control_size;
    (void)ebk_message_seal_with(message, EBK_KIND_ADD_REQUEST, 1, EBK_FRAME_HEADER_BYTES + packed->size, add->request_id, end);
    if (!add->has_head) make_frame_head(add);
    memcpy(end, add->head, EBK_FRAME_HEADER_BYTES);
    end += EBK_FRAME_HEADER_BYTES;
    const size_t body_size = (size_t)(end - message) + packed->size;
    EBK_ASSERT(end <= heads + sizeof heads && body_size <= link->room); /* It is open: for a largest frame. */
    memcpy(heads, link->prefix, EBK_ENVELOPE_PREFIX_BYTES);
    ebk_store_u32(heads + EBK_ENVELOPE_AT_LENGTH, (uint32_t)body_size);
    ebk_store_u32(heads + EBK_ENVELOPE_AT_CRC, ebk_crc32c(0, heads, EBK_ENVELOPE_AT_CRC));
    const size_t heads_size = (size_t)(end - heads);
    link->is_used = true;
    int code;
    if (link->socket == NULL)
        code = ebk_link_tray_put(link->tray, message, (uint32_t)(end - message), packed->body, packed->size);
    else if (packed->size <= EBK_LINK_COPIED_BYTES_MAX)
        code = send_copied(link->socket, heads, heads_size, packed);
    else
        code = ebk_zmq_send_frame(link->socket, heads, heads_size, packed->body, packed->size);
    if (code != EBK_OK) return false;
    link->sent += body_size;
    link->room -= body_size;
    return true;
}

/* ---- to a bookie of this loop ---------------------------------------------------------- */

static enum ebk_seat_room near_room(const struct ebk_near *near)
{
    if (!ebk_near_is_open(near)) return EBK_SEAT_GONE;
    return ebk_add_path_has_room(ebk_near_path(near), EBK_FRAME_BYTES_MAX) ? EBK_SEAT_OPEN : EBK_SEAT_FULL;
}

static uint64_t store_near(const struct ebk_near *near, const struct ebk_seat_add *add)
{
    const struct ebk_packed *const packed = add->packed;
    const struct ebk_add stored = {
        .ledger_id = add->ledger_id, .first = packed->first_entry, .last = packed->last_entry,
        .count = packed->count, .body = packed->body, .body_size = packed->size, .key = add->key,
        .has_lac = true, .lac = add->lac, .lac_length = add->lac_length};
    struct ebk_add_path *const path = ebk_near_path(near);
    return ebk_add_path_is_common(path, &stored) ? ebk_add_path_store(path, &stored) : 0;
}

/* ---- either ---------------------------------------------------------------------------- */

enum ebk_seat_room ebk_seat_room(const struct ebk_link_seat *seat, struct ebk_links *links)
{
    if (seat->near != NULL) return near_room(seat->near);
    const struct ebk_sending_link *link = links == NULL ? NULL : ebk_links_find(links, seat->link);
    if (link == NULL) return EBK_SEAT_GONE;
    return link->room >= BODY_BYTES_MAX ? EBK_SEAT_OPEN : EBK_SEAT_FULL;
}

bool ebk_seat_send(const struct ebk_link_seat *seat, struct ebk_links *links, struct ebk_seat_add *add, uint64_t *token)
{
    if (seat->near != NULL) return (*token = store_near(seat->near, add)) != 0;
    struct ebk_sending_link *link = ebk_links_find(links, seat->link);
    EBK_ASSERT(link != NULL); /* It is open. */
    *token = 0;
    return ask(seat, link, add);
}

void ebk_seat_flush(const struct ebk_link_seat *seat)
{
    if (seat->near != NULL && ebk_near_is_open(seat->near)) ebk_add_path_kick(ebk_near_path(seat->near));
}
