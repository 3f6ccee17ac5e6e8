/* yield.h: a flush lets the journals go first.
 *
 * Both want the same device, and a flush that writes as fast as it can leaves a journal a
 * fifth of it: appends then take as long as the flush does. So a journal says in a word
 * while it has groups to write, and a flush waits between its chunks until no journal has,
 * or until so much was put meanwhile that the write cache needs its room back.
 *
 *     word | enough 1 | awaited 1 | 14 unused | a bit per journal 16 |
 *
 * Any thread; the word outlives its users.
 */
#ifndef EBK_YIELD_H
#define EBK_YIELD_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EBK_YIELD_ENOUGH (1u << 31)
#define EBK_YIELD_AWAITED (1u << 30)
#define EBK_YIELD_JOURNALS 0xFFFFu

/* After a change that a thread may wait for; before: the word without it. */
static inline void ebk_yield_wake(_Atomic uint32_t *word, uint32_t before)
{
    if (!(before & EBK_YIELD_AWAITED)) return;
    atomic_fetch_and(word, ~EBK_YIELD_AWAITED);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static inline void ebk_yield_busy(_Atomic uint32_t *word, uint32_t bit)
{
    if (!(atomic_load_explicit(word, memory_order_relaxed) & bit)) atomic_fetch_or(word, bit);
}

static inline void ebk_yield_idle(_Atomic uint32_t *word, uint32_t bit)
{
    if (atomic_load_explicit(word, memory_order_relaxed) & bit) ebk_yield_wake(word, atomic_fetch_and(word, ~bit));
}

static inline void ebk_yield_enough(_Atomic uint32_t *word)
{
    ebk_yield_wake(word, atomic_fetch_or(word, EBK_YIELD_ENOUGH));
}

static inline void ebk_yield_wait(_Atomic uint32_t *word)
{
    for (;;) {
        const uint32_t seen = atomic_fetch_or(word, EBK_YIELD_AWAITED) | EBK_YIELD_AWAITED;
        if (!(seen & EBK_YIELD_JOURNALS) || (seen & EBK_YIELD_ENOUGH)) return;
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    }
}

#endif
