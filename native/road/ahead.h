/* ahead.h: acknowledgements as users' threads see them, before the host's thread has told anybody in Python.
 *
 * One thread, the loop's, shows how far they are; any thread may look, and sleep until an
 * entry is among them. A thread that sleeps here wakes without the GIL.
 */
#ifndef EBK_AHEAD_H
#define EBK_AHEAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ebk_ahead {
    _Atomic int64_t lac;
    _Atomic uint64_t length;
    _Atomic uint32_t moves, awaiting; /* futex: rises with lac, and at the end; its sleepers */
    _Atomic bool is_closed;
    _Atomic bool is_late; /* only threads in ebk_ahead_await are waiting, so Python may be notified later */
};

void ebk_ahead_begin(struct ebk_ahead *ahead, int64_t lac, uint64_t length);
/* Show a higher LAC. */
void ebk_ahead_show(struct ebk_ahead *ahead, int64_t lac, uint64_t length);
/* The LAC rises no more; waiting threads get EBK_FAILED. */
void ebk_ahead_close(struct ebk_ahead *ahead);
/* Any thread: the LAC, and the length up to there at least. */
int64_t ebk_ahead_lac(const struct ebk_ahead *ahead, uint64_t *length);
/* Any thread: wait until the entry is acknowledged. is_alone: no other waiter needs the LAC in Python.
 * Returns 1: it is; 0: not yet, after timeout_ms or a signal; EBK_FAILED: it is closed. */
int ebk_ahead_await(struct ebk_ahead *ahead, int64_t entry_id, bool is_alone, int timeout_ms);

#endif
