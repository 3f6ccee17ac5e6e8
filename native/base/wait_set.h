/* wait_set.h: what a loop needs that waits in C: descriptors with their meanings, its clock, and its wake-up.
 *
 * Decides nothing: loop_wait.c says what a meaning is, and why a wait ends.
 *
 * One thread, the loop's, but for ebk_wake_up.
 */
#ifndef EBK_WAIT_SET_H
#define EBK_WAIT_SET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- descriptors: an epoll, -1 when the system refuses one */
int ebk_wait_set_open(void);
/* Wait for this one to be readable, until it is closed. False: the system refuses. */
bool ebk_wait_set_add(int set, int descriptor, uint32_t meaning);

struct ebk_ready {
    uint32_t meaning;
    int descriptor;
};

enum { EBK_WAIT_READY_MAX = 32 /* returned by one wait; the others are still ready */ };

/* Those that are ready, up to most of them, after milliseconds at the latest (below 0: without end). Returns how many,
 * or -1: a signal came. */
int ebk_wait_set_look(int set, int milliseconds, struct ebk_ready ready[static EBK_WAIT_READY_MAX], int most);

/* ---- time, of CLOCK_BOOTTIME as the loop's: its deadlines hold however often a wait is woken before. Nothing else is
 * decided by it. */
int64_t ebk_wait_now_ns(void);
/* From one time until another, rounded up: a wait that ends before its time would spin. At most a minute. */
int ebk_wait_ms(int64_t from_ns, int64_t until_ns);

/* ---- wake-up: a descriptor that is ready once any thread wanted it, and until the loop has cleared it */
struct ebk_wake {
    int descriptor;
    _Atomic bool is_up; /* on its way: a second one is not needed */
};

/* False: the system refuses. */
bool ebk_wake_open(struct ebk_wake *wake);
/* Also of one that could not be opened. */
void ebk_wake_close(struct ebk_wake *wake);
/* Any thread. */
void ebk_wake_up(struct ebk_wake *wake);
/* The loop looks at the reason only after this, not before: a thread that wakes it meanwhile writes again. */
void ebk_wake_heard(struct ebk_wake *wake);

#endif
