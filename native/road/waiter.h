/* waiter.h: the wait of a loop with bookies on it: as poll(), which takes the turns of adds meanwhile. */
#ifndef EBK_WAITER_H
#define EBK_WAITER_H

#include "base/gil.h"
#include "road/near.h"
#include "road/turns.h"

#include <stdint.h>

/* cffi:begin */
struct ebk_waiter;

/* Takes these turns while it waits; they are borrowed, and none of their seats is reached over a link. NULL without memory
 * or a descriptor. */
struct ebk_waiter *ebk_waiter_new(struct ebk_turns *turns);
void ebk_waiter_free(struct ebk_waiter *waiter);
/* A descriptor that is waited for until it is closed. near: whose journal's it is, or NULL. A code of errors.h. */
int ebk_waiter_add(struct ebk_waiter *waiter, int fd, struct ebk_near *near);
/* Up to `room` ready descriptors, that of the turns among them when adds have something to tell; 0 after timeout_ms (below 0: never). A signal ends it early, with 0. */
int ebk_waiter_wait(struct ebk_waiter *waiter, int timeout_ms, int *ready, uint32_t room);
/* cffi:end */

#endif
