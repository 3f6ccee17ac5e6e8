/* ahead.c: see ahead.h. */
#define _GNU_SOURCE
#include "road/ahead.h"

#include "base/errors.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void ebk_ahead_begin(struct ebk_ahead *ahead, int64_t lac, uint64_t length)
{
    atomic_store(&ahead->lac, lac);
    atomic_store(&ahead->length, length);
}

/* The users' threads have to look again. */
static void announce(struct ebk_ahead *ahead)
{
    atomic_fetch_add(&ahead->moves, 1);
    if (atomic_load(&ahead->awaiting) > 0)
        syscall(SYS_futex, &ahead->moves, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void ebk_ahead_show(struct ebk_ahead *ahead, int64_t lac, uint64_t length)
{
    EBK_ASSERT(lac > atomic_load(&ahead->lac) && length >= atomic_load(&ahead->length)); /* It never goes back. */
    atomic_store(&ahead->length, length);
    atomic_store(&ahead->lac, lac);
    announce(ahead);
}

void ebk_ahead_close(struct ebk_ahead *ahead)
{
    atomic_store(&ahead->is_closed, true);
    announce(ahead);
}

int64_t ebk_ahead_lac(const struct ebk_ahead *ahead, uint64_t *length)
{
    const int64_t lac = atomic_load(&ahead->lac);
    *length = atomic_load(&ahead->length);
    return lac;
}

int ebk_ahead_await(struct ebk_ahead *ahead, int64_t entry_id, bool is_alone, int timeout_ms)
{
    const struct timespec timeout = {.tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L};
    atomic_store(&ahead->is_late, is_alone);
    atomic_fetch_add(&ahead->awaiting, 1);
    /* The word is read before what it tells of: a thread that moves it between look and sleep ends the sleep. */
    uint32_t seen = atomic_load(&ahead->moves);
    int answer = 0;
    long slept = 0;
    for (;;) {
        if (atomic_load(&ahead->lac) >= entry_id)
            answer = 1;
        else if (atomic_load(&ahead->is_closed))
            answer = EBK_FAILED;
        if (answer != 0 || slept != 0) break;
        slept = syscall(SYS_futex, &ahead->moves, FUTEX_WAIT_PRIVATE, seen, &timeout, NULL, 0);
        if (slept != 0 && errno == EAGAIN) slept = 0;
        seen = atomic_load(&ahead->moves);
    }
    atomic_fetch_sub(&ahead->awaiting, 1);
    return answer;
}
