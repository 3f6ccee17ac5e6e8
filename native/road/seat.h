/* seat.h: what a seat is for the adds of a writing handle (link_adds.h): a receiver of frames, which answers them.
 *
 *     table ─▶ room? ─▶ send ─┬─▶ a dialled link: envelope, message, frame; its answers come through answers.h
 *                            ├─▶ a link of a simulated cluster: the same message, on a tray
 *                            └─▶ a bookie of this loop: stored there; it has answered when its journals are durable
 *
 * They know which kind only by these calls.
 */
#ifndef EBK_SEAT_H
#define EBK_SEAT_H

#include "road/links.h"
#include "wire/frame_header.h"
#include "wire/packer.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_LINK_CONTROL_BYTES_MAX = 64,  /* of an AddRequest */
    EBK_LINK_COPIED_BYTES_MAX = 16383 /* of a frame that is copied behind its heads; a longer one goes by reference */
};

struct ebk_near;

struct ebk_link_seat {
    struct ebk_near *near; /* a bookie of this loop, borrowed; NULL: it is reached over the link */
    uint64_t link;
    uint64_t seating;
    uint32_t slot; /* where the table counts what it answers */
    uint8_t control[64]; /* the control part of each of its requests (codec/add_messages.py) */
    uint32_t control_size;
};
/* cffi:end */

enum ebk_seat_room {
    EBK_SEAT_GONE, /* nothing goes there any more */
    EBK_SEAT_FULL, /* not now */
    EBK_SEAT_OPEN  /* for a largest frame */
};

/* One frame, as every seat gets it. */
struct ebk_seat_add {
    uint64_t ledger_id;
    const uint8_t *key;
    const struct ebk_packed *packed;
    int64_t lac;
    uint64_t lac_length;
    uint64_t request_id; /* of this seat */
    uint8_t head[EBK_FRAME_HEADER_BYTES]; /* of the frame, made for the first seat that needs one */
    bool has_head;
};

/* links: NULL where there is none. */
enum ebk_seat_room ebk_seat_room(const struct ebk_link_seat *seat, struct ebk_links *links);
/* Wants an open seat. *token: of a near bookie, up to where it has to be durable. False: nothing was sent, or its core
 * has to decide. */
bool ebk_seat_send(const struct ebk_link_seat *seat, struct ebk_links *links, struct ebk_seat_add *add, uint64_t *token);
/* Call it after the sends of a turn. */
void ebk_seat_flush(const struct ebk_link_seat *seat);

#endif
