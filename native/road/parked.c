/* parked.c: see parked.h.
 *
 *     ledgers, by id ──▶ follow: asked_ns, polls ──▶ poll ─▶ poll        in the order of coming
 *                          ▲ older ... newer ▲                            (places from 1 on, 0: none)
 *                          └ listed by asked_ns, while that matters
 *
 * A follow is there while it has polls or was asked for lately.
 */
#include "road/parked.h"

#include "base/errors.h"
#include "base/id_map.h"

#include <stdlib.h>

struct slot {
    struct ebk_poll poll;
    uint32_t next; /* of the same ledger, of the same queue, or free */
};

struct follow {
    uint64_t ledger_id;
    int64_t asked_ns;
    uint32_t first, last;   /* polls */
    uint32_t older, newer;  /* listed; or the next free one in `newer` */
    bool is_listed;
};

struct ebk_parked {
    uint32_t polls_per_link_max;
    int64_t followed_ns, deadline_ns;
    struct slot *slots;
    uint32_t slot_room, free_slot, poll_count;
    struct follow *follows;
    uint32_t follow_room, free_follow, oldest, newest;
    struct ebk_id_map ledgers; /* -> follow */
    struct ebk_id_map links;   /* -> how many polls */
};

struct ebk_parked *ebk_parked_new(uint32_t polls_per_link_max, int64_t followed_ns)
{
    struct ebk_parked *parked = calloc(1, sizeof *parked);
    if (parked == NULL) return NULL;
    parked->polls_per_link_max = polls_per_link_max;
    parked->followed_ns = followed_ns;
    parked->deadline_ns = INT64_MAX;
    return parked;
}

void ebk_parked_free(struct ebk_parked *parked)
{
    if (parked == NULL) return;
    ebk_id_map_clear(&parked->ledgers);
    ebk_id_map_clear(&parked->links);
    free(parked->slots);
    free(parked->follows);
    free(parked);
}

/* ---- places --------------------------------------------------------------------------- */

/* Room for one more of `size` bytes; place 0 is never used. Returns the array, or NULL. */
static void *widened(void *array, uint32_t *room, size_t size)
{
    const uint32_t wider = *room ? *room * 2 : 16;
    void *grown = realloc(array, wider * size);
    if (grown != NULL) *room = wider;
    return grown;
}

static uint32_t take_slot(struct ebk_parked *parked)
{
    if (parked->free_slot == 0) {
        const uint32_t from = parked->slot_room ? parked->slot_room : 1;
        struct slot *slots = widened(parked->slots, &parked->slot_room, sizeof *slots);
        if (slots == NULL) return 0;
        parked->slots = slots;
        for (uint32_t place = parked->slot_room - 1; place >= from; place--) {
            slots[place].next = parked->free_slot;
            parked->free_slot = place;
        }
    }
    const uint32_t place = parked->free_slot;
    EBK_ASSERT(place != 0 && place < parked->slot_room);
    parked->free_slot = parked->slots[place].next;
    parked->slots[place].next = 0;
    return place;
}

static void free_slot(struct ebk_parked *parked, uint32_t place)
{
    EBK_ASSERT(place != 0 && place < parked->slot_room && place != parked->free_slot);
    parked->slots[place].next = parked->free_slot;
    parked->free_slot = place;
}

static uint32_t follow_of(const struct ebk_parked *parked, uint64_t ledger_id)
{
    const uint32_t found = ebk_id_map_get(&parked->ledgers, ledger_id);
    return found == EBK_ID_MAP_NONE ? 0 : found;
}

static uint32_t make_follow(struct ebk_parked *parked, uint64_t ledger_id)
{
    const uint32_t found = follow_of(parked, ledger_id);
    if (found != 0) return found;
    if (parked->free_follow == 0) {
        const uint32_t from = parked->follow_room ? parked->follow_room : 1;
        struct follow *follows = widened(parked->follows, &parked->follow_room, sizeof *follows);
        if (follows == NULL) return 0;
        parked->follows = follows;
        for (uint32_t place = parked->follow_room - 1; place >= from; place--) {
            follows[place].newer = parked->free_follow;
            parked->free_follow = place;
        }
    }
    const uint32_t place = parked->free_follow;
    EBK_ASSERT(place != 0 && place < parked->follow_room);
    if (ebk_id_map_add(&parked->ledgers, ledger_id, place) < 0) return 0;
    parked->free_follow = parked->follows[place].newer;
    parked->follows[place] = (struct follow){.ledger_id = ledger_id};
    return place;
}

static void unlist(struct ebk_parked *parked, uint32_t place)
{
    struct follow *follow = &parked->follows[place];
    if (!follow->is_listed) return;
    *(follow->older ? &parked->follows[follow->older].newer : &parked->oldest) = follow->newer;
    *(follow->newer ? &parked->follows[follow->newer].older : &parked->newest) = follow->older;
    follow->older = follow->newer = 0;
    follow->is_listed = false;
    EBK_ASSERT((parked->oldest == 0) == (parked->newest == 0));
}

/* Forget the ledger when no reader waits and none asked lately. */
static void leave(struct ebk_parked *parked, uint32_t place)
{
    struct follow *follow = &parked->follows[place];
    EBK_ASSERT((follow->first == 0) == (follow->last == 0));
    if (follow->is_listed || follow->first != 0) return;
    ebk_id_map_remove(&parked->ledgers, follow->ledger_id);
    follow->newer = parked->free_follow;
    parked->free_follow = place;
}

/* ---- parking -------------------------------------------------------------------------- */

uint32_t ebk_parked_of_link(const struct ebk_parked *parked, uint64_t link)
{
    const uint32_t count = ebk_id_map_get(&parked->links, link);
    return count == EBK_ID_MAP_NONE ? 0 : count;
}

static bool count_link(struct ebk_parked *parked, uint64_t link, int by)
{
    const uint32_t count = ebk_parked_of_link(parked, link);
    if (count > 0) ebk_id_map_remove(&parked->links, link); /* Which leaves room to put it back. */
    EBK_ASSERT((int64_t)count + by >= 0);
    const uint32_t now = (uint32_t)((int64_t)count + by);
    return now == 0 || ebk_id_map_add(&parked->links, link, now) == EBK_OK;
}

bool ebk_parked_park(struct ebk_parked *parked, const struct ebk_poll *poll)
{
    if (ebk_parked_of_link(parked, poll->link) >= parked->polls_per_link_max) return false;
    const uint32_t place = take_slot(parked);
    if (place == 0) return false;
    const uint32_t of = make_follow(parked, poll->ledger_id);
    if (of == 0 || !count_link(parked, poll->link, 1)) {
        free_slot(parked, place);
        if (of != 0) leave(parked, of);
        return false;
    }
    struct follow *follow = &parked->follows[of];
    EBK_ASSERT((follow->first == 0) == (follow->last == 0));
    parked->slots[place] = (struct slot){.poll = *poll};
    *(follow->last ? &parked->slots[follow->last].next : &follow->first) = place;
    follow->last = place;
    EBK_ASSERT(follow->first != 0 && parked->poll_count < parked->slot_room);
    parked->poll_count += 1;
    if (poll->until_ns < parked->deadline_ns) parked->deadline_ns = poll->until_ns;
    return true;
}

void ebk_parked_note_asked(struct ebk_parked *parked, uint64_t ledger_id, int64_t now_ns)
{
    const uint32_t place = make_follow(parked, ledger_id);
    if (place == 0) return;
    unlist(parked, place);
    struct follow *follow = &parked->follows[place];
    follow->asked_ns = now_ns;
    follow->is_listed = true;
    EBK_ASSERT(parked->newest == 0 || parked->follows[parked->newest].newer == 0);
    follow->older = parked->newest;
    *(parked->newest ? &parked->follows[parked->newest].newer : &parked->oldest) = place;
    parked->newest = place;
    for (int i = 0; i < 2; i++) { /* More go than come, so that none of long ago stays. */
        const uint32_t oldest = parked->oldest;
        if (now_ns - parked->follows[oldest].asked_ns < parked->followed_ns) break;
        unlist(parked, oldest);
        leave(parked, oldest);
    }
}

bool ebk_parked_is_awaited(const struct ebk_parked *parked, uint64_t ledger_id)
{
    const uint32_t place = follow_of(parked, ledger_id);
    return place != 0 && parked->follows[place].first != 0;
}

bool ebk_parked_is_followed(const struct ebk_parked *parked, uint64_t ledger_id, int64_t now_ns)
{
    const uint32_t place = follow_of(parked, ledger_id);
    if (place == 0) return false;
    const struct follow *follow = &parked->follows[place];
    return follow->first != 0 || (follow->is_listed && now_ns - follow->asked_ns < parked->followed_ns);
}

/* ---- waking --------------------------------------------------------------------------- */

static void put(struct ebk_parked *parked, struct ebk_poll_queue *queue, uint32_t place)
{
    EBK_ASSERT(place != 0 && (queue->count == 0) == (queue->first == 0));
    parked->slots[place].next = 0;
    *(queue->count ? &parked->slots[queue->last].next : &queue->first) = place;
    queue->last = place;
    queue->count += 1;
}

enum why { BY_LAC, BY_TIME, BY_LINK, BY_FENCE };

static bool is_ended(const struct ebk_poll *poll, enum why why, int64_t value)
{
    switch (why) {
    case BY_LAC: return poll->after_lac < value;
    case BY_TIME: return poll->until_ns <= value;
    case BY_LINK: return poll->link == (uint64_t)value;
    default: return true;
    }
}

/* Those of one ledger that are ended, in their order; *earliest: the time of those that stay. */
static void take(struct ebk_parked *parked, uint32_t of, enum why why, int64_t value, struct ebk_poll_queue *queue,
                 int64_t *earliest)
{
    struct follow *follow = &parked->follows[of];
    uint32_t place = follow->first;
    follow->first = follow->last = 0;
    while (place != 0) {
        const uint32_t next = parked->slots[place].next;
        const struct ebk_poll *poll = &parked->slots[place].poll;
        if (is_ended(poll, why, value)) {
            (void)count_link(parked, poll->link, -1); /* Fewer needs no memory. */
            EBK_ASSERT(parked->poll_count > 0);
            parked->poll_count -= 1;
            put(parked, queue, place);
        } else {
            if (poll->until_ns < *earliest) *earliest = poll->until_ns;
            parked->slots[place].next = 0;
            *(follow->last ? &parked->slots[follow->last].next : &follow->first) = place;
            follow->last = place;
        }
        place = next;
    }
    leave(parked, of);
}

void ebk_parked_wake(struct ebk_parked *parked, uint64_t ledger_id, int64_t lac, bool is_fenced,
                     struct ebk_poll_queue *queue)
{
    int64_t earliest = INT64_MAX;
    const uint32_t of = follow_of(parked, ledger_id);
    if (of != 0 && parked->follows[of].first != 0)
        take(parked, of, is_fenced ? BY_FENCE : BY_LAC, lac, queue, &earliest);
}

/* A follow may leave meanwhile, and only the one that is looked at: its place is looked at first. */
static int64_t take_of_all(struct ebk_parked *parked, enum why why, int64_t value, struct ebk_poll_queue *queue)
{
    int64_t earliest = INT64_MAX;
    for (uint32_t of = 1; of < parked->follow_room; of++)
        if (follow_of(parked, parked->follows[of].ledger_id) == of && parked->follows[of].first != 0)
            take(parked, of, why, value, queue, &earliest);
    return earliest;
}

void ebk_parked_expire(struct ebk_parked *parked, int64_t now_ns, struct ebk_poll_queue *queue)
{
    parked->deadline_ns = take_of_all(parked, BY_TIME, now_ns, queue);
    EBK_ASSERT(parked->deadline_ns > now_ns && (parked->poll_count > 0 || parked->deadline_ns == INT64_MAX));
}

void ebk_parked_forget(struct ebk_parked *parked, uint64_t link, struct ebk_poll_queue *queue)
{
    if (ebk_parked_of_link(parked, link) > 0) (void)take_of_all(parked, BY_LINK, (int64_t)link, queue);
    EBK_ASSERT(ebk_parked_of_link(parked, link) == 0);
}

bool ebk_parked_queue(struct ebk_parked *parked, const struct ebk_poll *poll, struct ebk_poll_queue *queue)
{
    const uint32_t place = take_slot(parked);
    if (place == 0) return false;
    parked->slots[place].poll = *poll;
    put(parked, queue, place);
    return true;
}

struct ebk_poll *ebk_parked_at(struct ebk_parked *parked, uint32_t place, uint32_t *next)
{
    EBK_ASSERT(place != 0 && place < parked->slot_room);
    *next = parked->slots[place].next;
    return &parked->slots[place].poll;
}

bool ebk_parked_pop(struct ebk_parked *parked, struct ebk_poll_queue *queue, struct ebk_poll *poll)
{
    if (queue->count == 0) return false;
    const uint32_t place = queue->first;
    *poll = parked->slots[place].poll;
    queue->first = parked->slots[place].next;
    queue->count -= 1;
    EBK_ASSERT((queue->count == 0) == (queue->first == 0));
    if (queue->count == 0) *queue = (struct ebk_poll_queue){0};
    free_slot(parked, place);
    return true;
}

/* ---- asking --------------------------------------------------------------------------- */

int64_t ebk_parked_deadline(const struct ebk_parked *parked)
{
    return parked->deadline_ns;
}

uint32_t ebk_parked_count(const struct ebk_parked *parked)
{
    return parked->poll_count;
}

uint32_t ebk_parked_followed(const struct ebk_parked *parked)
{
    return parked->ledgers.count;
}
