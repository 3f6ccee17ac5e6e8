/* wait_set.c: see wait_set.h. */
#define _GNU_SOURCE
#include "base/wait_set.h"

#include "base/errors.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MS_MAX 60000

int ebk_wait_set_open(void)
{
    return epoll_create1(EPOLL_CLOEXEC);
}

bool ebk_wait_set_add(int set, int descriptor, uint32_t meaning)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)meaning << 32 | (uint32_t)descriptor};
    return epoll_ctl(set, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

int ebk_wait_set_look(int set, int milliseconds, struct ebk_ready ready[static EBK_WAIT_READY_MAX], int most)
{
    struct epoll_event found[EBK_WAIT_READY_MAX];
    EBK_ASSERT(most > 0 && most <= EBK_WAIT_READY_MAX);
    const int count = epoll_wait(set, found, most, milliseconds);
    if (count < 0) EBK_ASSERT(errno == EINTR);
    for (int i = 0; i < count; i++)
        ready[i] = (struct ebk_ready){.meaning = (uint32_t)(found[i].data.u64 >> 32),
                                      .descriptor = (int)(uint32_t)found[i].data.u64};
    return count;
}

int64_t ebk_wait_now_ns(void)
{
    struct timespec now;
    const int code = clock_gettime(CLOCK_BOOTTIME, &now);
    EBK_ASSERT(code == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int ebk_wait_ms(int64_t from_ns, int64_t until_ns)
{
    if (until_ns <= from_ns) return 0;
    if ((until_ns - from_ns) / 1000000 >= WAIT_MS_MAX) return WAIT_MS_MAX;
    return (int)((until_ns - from_ns + 999999) / 1000000);
}

bool ebk_wake_open(struct ebk_wake *wake)
{
    *wake = (struct ebk_wake){.descriptor = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    return wake->descriptor >= 0;
}

void ebk_wake_close(struct ebk_wake *wake)
{
    if (wake->descriptor >= 0) close(wake->descriptor);
}

void ebk_wake_up(struct ebk_wake *wake)
{
    if (atomic_exchange(&wake->is_up, true)) return;
    const uint64_t one = 1;
    const ssize_t put = write(wake->descriptor, &one, sizeof one);
    EBK_ASSERT(put == sizeof one); /* The count cannot overflow: it is written once between two readings. */
}

void ebk_wake_heard(struct ebk_wake *wake)
{
    uint64_t count;
    if (read(wake->descriptor, &count, sizeof count) < 0) EBK_ASSERT(errno == EAGAIN || errno == EINTR);
    atomic_store(&wake->is_up, false);
}
