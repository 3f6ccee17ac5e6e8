/* waiter.c: see waiter.h. */
#include "road/waiter.h"

#include "base/errors.h"
#include "base/wait_set.h"

#include <stdlib.h>
#include <unistd.h>

struct watched {
    struct ebk_near *near;
    int fd;
};

struct ebk_waiter {
    int set;
    struct ebk_turns *turns;
    struct watched *watched;
    uint32_t watched_count, watched_room;
};

struct ebk_waiter *ebk_waiter_new(struct ebk_turns *turns)
{
    struct ebk_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) return NULL;
    waiter->turns = turns;
    waiter->set = ebk_wait_set_open();
    if (waiter->set < 0 || ebk_waiter_add(waiter, ebk_turns_fileno(turns), NULL) != EBK_OK) {
        ebk_waiter_free(waiter);
        return NULL;
    }
    return waiter;
}

void ebk_waiter_free(struct ebk_waiter *waiter)
{
    if (waiter == NULL) return;
    if (waiter->set >= 0) close(waiter->set);
    free(waiter->watched);
    free(waiter);
}

int ebk_waiter_add(struct ebk_waiter *waiter, int fd, struct ebk_near *near)
{
    if (waiter->watched_count == waiter->watched_room) {
        const uint32_t wider = waiter->watched_room ? waiter->watched_room * 2 : 16;
        struct watched *grown = realloc(waiter->watched, wider * sizeof *grown);
        if (grown == NULL) return EBK_NO_MEMORY;
        waiter->watched = grown;
        waiter->watched_room = wider;
    }
    if (!ebk_wait_set_add(waiter->set, fd, waiter->watched_count)) return EBK_IO;
    waiter->watched[waiter->watched_count++] = (struct watched){.near = near, .fd = fd};
    return EBK_OK;
}

/* No clock decides anything here; but what the caller gave for the whole must hold for all waits together. */
int ebk_waiter_wait(struct ebk_waiter *waiter, int timeout_ms, int *ready, uint32_t room)
{
    EBK_ASSERT(room > 1);
    const int most = room - 1 < EBK_WAIT_READY_MAX ? (int)room - 1 : EBK_WAIT_READY_MAX;
    int64_t now_ns = ebk_wait_now_ns();
    const int64_t end_ns = timeout_ms < 0 ? INT64_MAX : now_ns + (int64_t)timeout_ms * 1000000;
    for (;;) {
        struct ebk_ready events[EBK_WAIT_READY_MAX];
        const int64_t news_ns = ebk_turns_due_ns(waiter->turns, now_ns);
        const int64_t until_ns = news_ns < end_ns ? news_ns : end_ns;
        const int left = until_ns <= now_ns || ebk_turns_have_more(waiter->turns) ? 0 : until_ns == INT64_MAX ? -1 : ebk_wait_ms(now_ns, until_ns);
        const int found = ebk_wait_set_look(waiter->set, left, events, most);
        if (found < 0) return 0;
        uint32_t count = 0;
        for (int i = 0; i < found; i++) {
            const struct watched *watched = &waiter->watched[events[i].meaning];
            if (watched->fd == ebk_turns_fileno(waiter->turns))
                ebk_turns_heard(waiter->turns);
            else if (watched->near == NULL || ebk_near_concerns_node(watched->near))
                ready[count++] = watched->fd;
        }
        now_ns = ebk_wait_now_ns();
        ebk_turns_take(waiter->turns, now_ns);
        if (ebk_turns_due_ns(waiter->turns, now_ns) <= now_ns) ready[count++] = ebk_turns_fileno(waiter->turns);
        if (count > 0 || now_ns >= end_ns) return (int)count;
    }
}
