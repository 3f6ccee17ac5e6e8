/* lock.h: a lock of four bytes, for what there may be very many of: a pthread mutex has forty.
 *
 * Zeroed memory is a free lock. Taken by one thread, given by the same, never twice; a waiting thread sleeps
 * in the kernel. Not for other processes, and of no use to the child of a fork.
 */
#ifndef EBK_LOCK_H
#define EBK_LOCK_H

#include "base/errors.h"

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EBK_LOCK_FREE = 0, EBK_LOCK_TAKEN = 1, EBK_LOCK_AWAITED = 2 /* taken, and a thread may sleep */ };

struct ebk_lock {
    uint32_t state;
};

/* Take it at once (1), or not at all (0). */
static inline int ebk_lock_try(struct ebk_lock *lock)
{
    uint32_t found = EBK_LOCK_FREE;
    return __atomic_compare_exchange_n(&lock->state, &found, EBK_LOCK_TAKEN, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline void ebk_lock_take(struct ebk_lock *lock)
{
    if (ebk_lock_try(lock)) return;
    /* A thread that has slept takes it as awaited: others may wait, and one wake too many costs less than one too few.
     * A wait that ends early, by a signal or because the state moved, goes round once more. */
    while (__atomic_exchange_n(&lock->state, EBK_LOCK_AWAITED, __ATOMIC_ACQUIRE) != EBK_LOCK_FREE)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, EBK_LOCK_AWAITED, NULL, NULL, 0);
}

static inline void ebk_lock_give(struct ebk_lock *lock)
{
    const uint32_t was = __atomic_exchange_n(&lock->state, EBK_LOCK_FREE, __ATOMIC_RELEASE);
    EBK_ASSERT(was != EBK_LOCK_FREE);
    if (was == EBK_LOCK_AWAITED) syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

#endif
