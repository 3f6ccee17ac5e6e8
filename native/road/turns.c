/* turns.c: see turns.h. */
#include "road/turns.h"

#include "base/errors.h"
#include "base/wait_set.h"
#include "road/link_adds.h"

#include <stdlib.h>
#include <string.h>

struct ebk_turns {
    struct ebk_wake wake;
    struct ebk_link_adds **adds; /* in the order of their turns */
    uint32_t count, room;
};

struct ebk_turns *ebk_turns_new(void)
{
    struct ebk_turns *turns = calloc(1, sizeof *turns);
    if (turns == NULL) return NULL;
    if (ebk_wake_open(&turns->wake)) return turns;
    free(turns);
    return NULL;
}

void ebk_turns_free(struct ebk_turns *turns)
{
    if (turns == NULL) return;
    ebk_wake_close(&turns->wake);
    free(turns->adds);
    free(turns);
}

int ebk_turns_begin(struct ebk_turns *turns, struct ebk_link_adds *adds)
{
    if (turns->count == turns->room) {
        const uint32_t wider = turns->room ? turns->room * 2 : 8;
        struct ebk_link_adds **grown = realloc(turns->adds, wider * sizeof *grown);
        if (grown == NULL) return EBK_NO_MEMORY;
        turns->adds = grown;
        turns->room = wider;
    }
    for (uint32_t i = 0; i < turns->count; i++) EBK_ASSERT(turns->adds[i] != adds); /* One turn for each. */
    EBK_ASSERT(adds != NULL && turns->count < turns->room);
    turns->adds[turns->count++] = adds;
    return EBK_OK;
}

void ebk_turns_end(struct ebk_turns *turns, const struct ebk_link_adds *adds)
{
    for (uint32_t i = 0; i < turns->count; i++)
        if (turns->adds[i] == adds) {
            turns->count -= 1; /* The others keep their order. */
            memmove(&turns->adds[i], &turns->adds[i + 1], (turns->count - i) * sizeof *turns->adds);
            return;
        }
}

void ebk_turns_wake(struct ebk_turns *turns)
{
    ebk_wake_up(&turns->wake);
}

int ebk_turns_fileno(const struct ebk_turns *turns)
{
    return turns->wake.descriptor;
}

void ebk_turns_heard(struct ebk_turns *turns)
{
    ebk_wake_heard(&turns->wake);
}

void ebk_turns_take(struct ebk_turns *turns, int64_t now_ns)
{
    if (atomic_load(&turns->wake.is_up)) ebk_turns_heard(turns);
    for (uint32_t i = 0; i < turns->count; i++) ebk_link_adds_turn(turns->adds[i], now_ns);
}

int64_t ebk_turns_due_ns(const struct ebk_turns *turns, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (uint32_t i = 0; i < turns->count; i++) {
        const int64_t of_adds = ebk_link_adds_due_ns(turns->adds[i], now_ns);
        if (of_adds < due_ns) due_ns = of_adds;
    }
    return due_ns;
}

bool ebk_turns_have_more(const struct ebk_turns *turns)
{
    for (uint32_t i = 0; i < turns->count; i++)
        if (ebk_link_adds_has_more(turns->adds[i])) return true;
    return false;
}
