/* waiter.c: how a loop with near bookies waits, and what it does meanwhile.
 *
 * A journal that tells durability concerns first of all the adds that wait for it. Where
 * nobody else does, its node is not stepped: the second of three journals ends an append,
 * and what the third one says afterwards moves nothing.
 */
#define _GNU_SOURCE
#include "errors.h"
#include "local_adds.h"
#include "local_inside.h"
#include "wait_set.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct ebk_near {
    struct ebk_add_path *path; /* NULL: it has left */
    uint64_t durable;          /* as far as it was when it left */
    uint64_t bytes_seen;       /* of the path, when its node was stepped last */
    bool is_open, is_told;
};

struct watched {
    struct ebk_near *near;
    int fd;
};

struct ebk_waiter {
    int set;
    struct ebk_wake wake;
    struct watched *watched;
    uint32_t watched_count, watched_room;
    struct ebk_local_adds **adds;
    uint32_t adds_count, adds_room;
};

/* ---- near bookies ---------------------------------------------------------------------- */

struct ebk_near *ebk_near_new(struct ebk_add_path *path)
{
    struct ebk_near *near = calloc(1, sizeof *near);
    if (near != NULL) near->path = path;
    return near;
}

void ebk_near_free(struct ebk_near *near)
{
    free(near);
}

void ebk_near_show(struct ebk_near *near, bool is_open, bool is_told)
{
    near->is_open = is_open && near->path != NULL;
    near->is_told = is_told;
    if (near->path != NULL) near->bytes_seen = ebk_add_path_bytes(near->path);
}

void ebk_near_leave(struct ebk_near *near)
{
    if (near->path != NULL) near->durable = ebk_add_path_durable(near->path);
    near->path = NULL;
    near->is_open = false;
}

bool ebk_near_is_open(const struct ebk_near *near)
{
    return near->is_open;
}

bool ebk_near_is_followed(const struct ebk_near *near, uint64_t ledger_id)
{
    const struct ebk_tail_path *readers = near->path == NULL ? NULL : ebk_add_path_tail(near->path);
    return readers != NULL && ebk_tail_is_followed(readers, ledger_id);
}

struct ebk_add_path *ebk_near_path(const struct ebk_near *near)
{
    EBK_ASSERT(near->path != NULL);
    return near->path;
}

uint64_t ebk_near_durable(const struct ebk_near *near)
{
    return near->path != NULL ? ebk_add_path_durable(near->path) : near->durable;
}

/* Its journal's descriptor is ready: whether its node has to be stepped for it. */
static bool concerns_node(struct ebk_near *near)
{
    if (near == NULL || near->path == NULL || near->is_told) return true;
    ebk_add_path_clear(near->path);
    return ebk_add_path_has_failed(near->path) || ebk_add_path_pending(near->path) > 0 ||
           ebk_add_path_bytes(near->path) - near->bytes_seen >= EBK_LOCAL_UNSEEN_BYTES_MAX;
}

int ebk_near_event(const struct ebk_near *near, uint32_t part)
{
    return near->path != NULL ? ebk_add_path_event(near->path, part) : -1;
}

/* ---- the waiter ------------------------------------------------------------------------ */

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

int ebk_waiter_begin(struct ebk_waiter *waiter, struct ebk_local_adds *adds)
{
    if (!widen((void **)&waiter->adds, waiter->adds_count, &waiter->adds_room, sizeof *waiter->adds))
        return EBK_NO_MEMORY;
    waiter->adds[waiter->adds_count++] = adds;
    return EBK_OK;
}

void ebk_waiter_end(struct ebk_waiter *waiter, const struct ebk_local_adds *adds)
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

static void take_turns(struct ebk_waiter *waiter)
{
    for (uint32_t i = 0; i < waiter->adds_count; i++) ebk_local_adds_turn(waiter->adds[i]);
}

/* Whether a core has to hear of something now, or else (*is_late) soon. */
static bool has_news(const struct ebk_waiter *waiter, int64_t now, bool *is_late)
{
    bool found = false;
    for (uint32_t i = 0; i < waiter->adds_count; i++) found |= ebk_local_adds_has_news(waiter->adds[i], now, is_late);
    return found;
}

static bool has_more(const struct ebk_waiter *waiter)
{
    for (uint32_t i = 0; i < waiter->adds_count; i++)
        if (ebk_local_adds_has_more(waiter->adds[i])) return true;
    return false;
}

/* No clock decides anything here; but what the caller gave for the whole must hold for all waits together. */
static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int ebk_waiter_wait(struct ebk_waiter *waiter, int timeout_ms, int *ready, uint32_t room)
{
    EBK_ASSERT(room > 1);
    const int most = room - 1 < EBK_WAIT_READY_MAX ? (int)room - 1 : EBK_WAIT_READY_MAX;
    int64_t now = now_ms();
    const int64_t end = now + timeout_ms;
    for (;;) {
        struct ebk_ready events[EBK_WAIT_READY_MAX];
        bool is_late = false;
        int left = timeout_ms < 0 ? -1 : now < end ? (int)(end - now) : 0;
        if (has_news(waiter, now, &is_late) || has_more(waiter))
            left = 0;
        else if (is_late && (left < 0 || left > EBK_LOCAL_TELL_MS))
            left = EBK_LOCAL_TELL_MS;
        const int found = ebk_wait_set_look(waiter->set, left, events, most);
        if (found < 0) return 0;
        uint32_t count = 0;
        for (int i = 0; i < found; i++) {
            const struct watched *watched = &waiter->watched[events[i].meaning];
            if (watched->fd == waiter->wake.descriptor)
                ebk_wake_heard(&waiter->wake);
            else if (concerns_node(watched->near))
                ready[count++] = watched->fd;
        }
        take_turns(waiter);
        now = now_ms();
        if (has_news(waiter, now, &is_late)) ready[count++] = waiter->wake.descriptor;
        if (count > 0 || (timeout_ms >= 0 && now >= end)) return (int)count;
    }
}
