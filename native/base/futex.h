/* futex.h: sleeping on a word of four bytes, for threads of one process.
 *
 * A wait returns when the word is no longer `seen`, at a wake, or early: whoever waits looks again.
 */
#ifndef EBK_FUTEX_H
#define EBK_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static inline void ebk_futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static inline void ebk_futex_wait_ms(_Atomic uint32_t *word, uint32_t seen, long ms)
{
    const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

/* Wake all that sleep on it. */
static inline void ebk_futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
