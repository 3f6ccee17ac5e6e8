/* local_adds.h: adds of a writing handle to bookies of its own loop, without messages (P3.2, P3.3, P3.4).
 *
 * A shortcut, never a second opinion, on both sides: a frame goes this way where the
 * writer's core would send it to every seat and each bookie's core would store it. It
 * counts as acknowledged where the core would count it: when ack_quorum bookies have it
 * durable, in entry order. All else ends the shortcut: what is not acknowledged is given
 * back and goes through both cores from the beginning, as frames that are sent again do.
 * What "common" means, and why each check is enough, is in native/NATIVE.md.
 *
 *     packer ─seal─▶ stored by each near bookie (add_path.h) ─▶ ring ─▶ ack_quorum durable: LAC, packer, release
 *                       └─ not common, no seat: held ─────────────▶ given back, behind the ring
 *
 * One thread, the loop's, as the add paths, but for what says "any thread".
 */
#ifndef EBK_LOCAL_ADDS_H
#define EBK_LOCAL_ADDS_H

#include "add_path.h"
#include "gil.h"
#include "packer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_LOCAL_SEATS_MAX = 7,
    EBK_LOCAL_FRAMES_MAX = 64,           /* on their way at a time: a power of two */
    EBK_LOCAL_TURN_BYTES = 2097152,      /* stored in one go, before the loop looks at everything else again */
    EBK_LOCAL_UNSEEN_BYTES_MAX = 1048576, /* stored in a bookie before its node looks at its write cache */
    EBK_LOCAL_TELL_MS = 2                /* that the loop is told later, where nobody waits for being told */
};

struct ebk_near;
struct ebk_local_adds;
struct ebk_waiter;

struct ebk_local_settings {
    struct ebk_packer *packer;
    struct ebk_near *nears[7]; /* by seat */
    uint32_t seat_count;
    uint32_t ack_quorum;
    uint64_t ledger_id;
    uint8_t key[16];
    int64_t lac;               /* nothing above it is on its way */
    uint64_t lac_length;
    uint64_t bytes_max;        /* of frames on their way; one more may pass it */
};

struct ebk_local_facts {
    int64_t lac;
    uint64_t lac_length;
    uint64_t tokens[7];        /* by seat: the last that was given to a frame, 0 before the first */
    uint64_t durable[7];       /* by seat */
    uint32_t pending;          /* frames on their way */
    bool has_held;             /* one was sealed that cannot go this way */
    bool is_ending;            /* nothing more goes this way */
    uint32_t followed;         /* a bit for each seat where a reader waits (P6.2) */
};

/* ---- a bookie of this loop; NULL without memory. path: borrowed until ebk_near_leave. */
struct ebk_near *ebk_near_new(struct ebk_add_path *path);
void ebk_near_free(struct ebk_near *near);
/* After each of its node's steps. is_open: common adds are taken; is_told: each rise of `durable` concerns the node. */
EBK_SHORT void ebk_near_show(struct ebk_near *near, bool is_open, bool is_told);
/* Its path is about to be closed: nothing is stored there any more, and nothing becomes durable. */
EBK_SHORT void ebk_near_leave(struct ebk_near *near);
/* The descriptor of one of its journals, -1 when it has none. */
EBK_SHORT int ebk_near_event(const struct ebk_near *near, uint32_t part);

/* ---- adds of one handle; NULL without memory. packer and nears are borrowed. */
struct ebk_local_adds *ebk_local_adds_new(const struct ebk_local_settings *settings);
/* Nothing goes this way any more. What was not given back is released, and by nobody sent; who awaits, awaits no more. */
void ebk_local_adds_close(struct ebk_local_adds *adds);
/* Of closed ones, when nobody awaits. */
void ebk_local_adds_free(struct ebk_local_adds *adds);
/* Any thread: the LAC, told or not, and the length up to it. */
EBK_SHORT int64_t ebk_local_adds_lac(const struct ebk_local_adds *adds, uint64_t *length);
/* Any thread: wait until the entry is acknowledged. is_alone: nobody waits for what is told, so it may be told later.
 * Returns 1: it is; 0: not yet, after timeout_ms or a signal; EBK_FAILED: not this way, they are closed. */
int ebk_local_adds_await(struct ebk_local_adds *adds, int64_t entry_id, bool is_alone, int timeout_ms);
/* Nothing more goes this way; what is on its way goes on. */
EBK_SHORT void ebk_local_adds_end(struct ebk_local_adds *adds);
/* What there is to tell; it is told by that. */
EBK_SHORT void ebk_local_adds_tell(struct ebk_local_adds *adds, struct ebk_local_facts *facts);
/* The next frame that is not acknowledged, in entry order, which is owed an ebk_packer_release. 0: none is left. Only
 * of one that is ending. */
EBK_SHORT int ebk_local_adds_give(struct ebk_local_adds *adds, struct ebk_packed *frame);

/* Seal and store as far as allowed, and count what is durable: what the wait of a loop does, and who drives a loop
 * without one (a simulation). */
EBK_SHORT void ebk_local_adds_turn(struct ebk_local_adds *adds);
/* For who watches: the frame at this place, counted from the first one ever, with its tokens by seat. 0: it is not
 * on its way. The body stays the adds' own. */
EBK_SHORT int ebk_local_adds_show(const struct ebk_local_adds *adds, uint64_t place, struct ebk_packed *frame,
                                  uint64_t *tokens);

/* ---- waiting of the loop: as poll(), which takes the turns of adds meanwhile. */
struct ebk_waiter *ebk_waiter_new(void);
void ebk_waiter_free(struct ebk_waiter *waiter);
/* A descriptor that is waited for until it is closed. near: whose journal's it is, or NULL. A code of errors.h. */
int ebk_waiter_add(struct ebk_waiter *waiter, int fd, struct ebk_near *near);
/* Take the turns of these adds, or no longer. begin gives a code of errors.h. */
EBK_SHORT int ebk_waiter_begin(struct ebk_waiter *waiter, struct ebk_local_adds *adds);
EBK_SHORT void ebk_waiter_end(struct ebk_waiter *waiter, const struct ebk_local_adds *adds);
/* From any thread: a packer of those adds has something. */
EBK_SHORT void ebk_waiter_wake(struct ebk_waiter *waiter);
/* The descriptor that is ready when adds have something to tell. */
EBK_SHORT int ebk_waiter_fileno(const struct ebk_waiter *waiter);
/* Up to `room` ready descriptors, 0 after timeout_ms (below 0: never). A signal ends it early, with 0. */
int ebk_waiter_wait(struct ebk_waiter *waiter, int timeout_ms, int *ready, uint32_t room);
/* cffi:end */

#endif
