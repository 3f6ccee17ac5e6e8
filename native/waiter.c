/* waiter.c: see waiter.h. */
#include "waiter.h"

#include "errors.h"
#include "link_inside.h"
#include "wait_set.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct watched {
    struct ebk_near *near;
    int fd;
};

struct ebk_waiter {
    int set;
    struct ebk_wake wake;
    struct watched *watched;
    uint32_t watched_count, watched_room;
    struct ebk_link_adds **adds;
    uint32_t adds_count, adds_room;
};

/* Room for one more of `size` bytes. */
static bool widen(void **array, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room) return true;
    const uint32_t wider = *room ? *room * 2 : 16;
    void *grown = realloc(*array, wider * size);
    if (grown == NULL) return false;
    *array = grown;
    *room = wider;
    return true;
}

struct ebk_waiter *ebk_waiter_new(void)
{
    struct ebk_waiter *waiter = calloc(1, sizeof *waiter);
    if (waiter == NULL) return NULL;
    waiter->set = ebk_wait_set_open();
    if (!ebk_wake_open(&waiter->wake) || waiter->set < 0 ||
        ebk_waiter_add(waiter, waiter->wake.descriptor, NULL) != EBK_OK) {
        ebk_waiter_free(waiter);
        return NULL;
    }
    return waiter;
}

void ebk_waiter_free(struct ebk_waiter *waiter)
{
    if (waiter == NULL) return;
    ebk_wake_close(&waiter->wake);
    if (waiter->set >= 0) close(waiter->set);
    free(waiter->watched);
    free(waiter->adds);
    free(waiter);
}

int ebk_waiter_add(struct ebk_waiter *waiter, int fd, struct ebk_near *near)
{
    if (!widen((void **)&waiter->watched, waiter->watched_count, &waiter->watched_room, sizeof *waiter->watched))
        return EBK_NO_MEMORY;
    if (!ebk_wait_set_add(waiter->set, fd, waiter->watched_count)) return EBK_IO;
    waiter->watched[waiter->watched_count++] = (struct watched){.near = near, .fd = fd};
    return EBK_OK;
}

int ebk_waiter_begin(struct ebk_waiter *waiter, struct ebk_link_adds *adds)
{
    if (!widen((void **)&waiter->adds, waiter->adds_count, &waiter->adds_room, sizeof *waiter->adds))
        return EBK_NO_MEMORY;
    waiter->adds[waiter->adds_count++] = adds;
    return EBK_OK;
}

void ebk_waiter_end(struct ebk_waiter *waiter, const struct ebk_link_adds *adds)
{
    for (uint32_t i = 0; i < waiter->adds_count; i++)
        if (waiter->adds[i] == adds) {
            waiter->adds_count -= 1; /* The others keep their order: they take turns in it. */
            memmove(&waiter->adds[i], &waiter->adds[i + 1], (waiter->adds_count - i) * sizeof *waiter->adds);
            return;
        }
}

void ebk_waiter_wake(struct ebk_waiter *waiter)
{
    ebk_wake_up(&waiter->wake);
}

int ebk_waiter_fileno(const struct ebk_waiter *waiter)
{
    return waiter->wake.descriptor;
}

static void take_turns(struct ebk_waiter *waiter, int64_t now_ns)
{
    for (uint32_t i = 0; i < waiter->adds_count; i++) ebk_link_adds_turn(waiter->adds[i], NULL, now_ns);
}

/* When a core has to hear of something: now or earlier, at once; INT64_MAX, there is nothing. */
static int64_t due_ns(const struct ebk_waiter *waiter, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (uint32_t i = 0; i < waiter->adds_count; i++) {
        const int64_t of_adds = ebk_link_adds_due_ns(waiter->adds[i], now_ns);
        if (of_adds < due_ns) due_ns = of_adds;
    }
    return due_ns;
}

static bool has_more(const struct ebk_waiter *waiter)
{
    for (uint32_t i = 0; i < waiter->adds_count; i++)
        if (ebk_link_adds_has_more(waiter->adds[i], NULL)) return true;
    return false;
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
        const int64_t news_ns = due_ns(waiter, now_ns);
        const int64_t until_ns = news_ns < end_ns ? news_ns : end_ns;
        const int left = until_ns <= now_ns || has_more(waiter) ? 0 : until_ns == INT64_MAX ? -1 : ebk_wait_ms(now_ns, until_ns);
        const int found = ebk_wait_set_look(waiter->set, left, events, most);
        if (found < 0) return 0;
        uint32_t count = 0;
        for (int i = 0; i < found; i++) {
            const struct watched *watched = &waiter->watched[events[i].meaning];
            if (watched->fd == waiter->wake.descriptor)
                ebk_wake_heard(&waiter->wake);
            else if (watched->near == NULL || ebk_near_concerns_node(watched->near))
                ready[count++] = watched->fd;
        }
        now_ns = ebk_wait_now_ns();
        take_turns(waiter, now_ns);
        if (due_ns(waiter, now_ns) <= now_ns) ready[count++] = waiter->wake.descriptor;
        if (count > 0 || now_ns >= end_ns) return (int)count;
    }
}
