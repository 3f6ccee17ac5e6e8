/* near.h: a bookie as writers on the same loop reach it, past all messages (native/SHORTCUTS.md, "Near seats").
 *
 * What is stored there is stored by the lines that take a message (add_path.h). It has answered a frame when its journals
 * are durable up to the token that the frame was given.
 *
 * One thread, the loop's.
 */
#ifndef EBK_NEAR_H
#define EBK_NEAR_H

#include "base/gil.h"
#include "road/add_path.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
enum { EBK_NEAR_UNSEEN_BYTES_MAX = 1048576 }; /* stored in a bookie before its node looks at its write cache */

struct ebk_near;

/* A bookie of this loop; NULL without memory. path: borrowed until ebk_near_leave. */
struct ebk_near *ebk_near_new(struct ebk_add_path *path);
void ebk_near_free(struct ebk_near *near);
/* After each of its node's steps. is_open: common adds are taken; is_told: each rise of `durable` concerns the node. */
EBK_SHORT void ebk_near_show(struct ebk_near *near, bool is_open, bool is_told);
/* Its path is about to be closed: nothing is stored there any more, and nothing becomes durable. */
EBK_SHORT void ebk_near_leave(struct ebk_near *near);
/* The descriptor of one of its journals, -1 when it has none. */
EBK_SHORT int ebk_near_event(const struct ebk_near *near, uint32_t part);
/* cffi:end */

bool ebk_near_is_open(const struct ebk_near *near);
/* Wants a bookie that has not left; an open one has not. */
struct ebk_add_path *ebk_near_path(const struct ebk_near *near);
/* The token up to which the bookie is durable; for one that has left, as it was then. */
uint64_t ebk_near_durable(const struct ebk_near *near);
/* A reader waits there for a newer LAC of the ledger, or did lately; none does where the bookie has left. */
bool ebk_near_is_followed(const struct ebk_near *near, uint64_t ledger_id);
/* A journal's descriptor is ready: whether the bookie's node has to be stepped for it. */
bool ebk_near_concerns_node(struct ebk_near *near);

#endif
