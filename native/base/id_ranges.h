/* id_ranges.h: a set of 64-bit ids as ascending ranges that neither overlap nor touch. Costs follow the number of
 * ranges, whatever they span. */
#ifndef EBK_ID_RANGES_H
#define EBK_ID_RANGES_H

#include "base/errors.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EBK_ID_RANGES_MIN 16u

struct ebk_id_range {
    uint64_t first, last; /* both included */
};

struct ebk_id_ranges {
    struct ebk_id_range *ranges; /* NULL before the first id */
    uint32_t count, capacity;
};

/* The first range that ends at id or above; count when there is none. */
static inline uint32_t ebk_id_ranges_at(const struct ebk_id_ranges *set, uint64_t id)
{
    uint32_t low = 0, high = set->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (set->ranges[middle].last < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The range that holds id, or NULL. */
static inline const struct ebk_id_range *ebk_id_ranges_find(const struct ebk_id_ranges *set, uint64_t id)
{
    const uint32_t at = ebk_id_ranges_at(set, id);
    return at < set->count && set->ranges[at].first <= id ? &set->ranges[at] : NULL;
}

/* Room for one range more, wherever it goes. */
static inline int ebk_id_ranges_reserve(struct ebk_id_ranges *set)
{
    if (set->count < set->capacity) return EBK_OK;
    const uint32_t capacity = set->capacity ? set->capacity * 2 : EBK_ID_RANGES_MIN;
    struct ebk_id_range *ranges = realloc(set->ranges, capacity * sizeof *ranges);
    if (ranges == NULL) return EBK_NO_MEMORY;
    set->ranges = ranges;
    set->capacity = capacity;
    return EBK_OK;
}

/* Add first..last, whatever of it is there already. Ids stay below UINT64_MAX. */
static inline int ebk_id_ranges_add(struct ebk_id_ranges *set, uint64_t first, uint64_t last)
{
    EBK_ASSERT(first <= last && last < UINT64_MAX);
    if (ebk_id_ranges_reserve(set) < 0) return EBK_NO_MEMORY;
    const uint32_t begin = ebk_id_ranges_at(set, first > 0 ? first - 1 : 0); /* A range that only touches joins, too. */
    uint32_t end = begin;
    for (; end < set->count && set->ranges[end].first <= last + 1; end++) {
        if (set->ranges[end].first < first) first = set->ranges[end].first;
        if (set->ranges[end].last > last) last = set->ranges[end].last;
    }
    if (end != begin + 1)
        memmove(set->ranges + begin + 1, set->ranges + end, (set->count - end) * sizeof *set->ranges);
    set->ranges[begin] = (struct ebk_id_range){.first = first, .last = last};
    set->count = set->count + 1 - (end - begin);
    EBK_ASSERT(begin < set->count && set->count <= set->capacity);
    EBK_ASSERT(begin == 0 || set->ranges[begin - 1].last + 1 < first); /* They do not touch. */
    EBK_ASSERT(begin + 1 == set->count || last + 1 < set->ranges[begin + 1].first);
    return EBK_OK;
}

/* Take one id out, if it is there. */
static inline int ebk_id_ranges_cut(struct ebk_id_ranges *set, uint64_t id)
{
    const uint32_t at = ebk_id_ranges_at(set, id);
    if (at == set->count || set->ranges[at].first > id) return EBK_OK;
    if (ebk_id_ranges_reserve(set) < 0) return EBK_NO_MEMORY;
    const struct ebk_id_range whole = set->ranges[at];
    const uint32_t parts = (whole.first < id) + (id < whole.last);
    EBK_ASSERT(whole.first <= id && id <= whole.last);
    memmove(set->ranges + at + parts, set->ranges + at + 1, (set->count - at - 1) * sizeof *set->ranges);
    set->count = set->count - 1 + parts;
    if (whole.first < id) set->ranges[at] = (struct ebk_id_range){.first = whole.first, .last = id - 1};
    if (id < whole.last) set->ranges[at + parts - 1] = (struct ebk_id_range){.first = id + 1, .last = whole.last};
    return EBK_OK;
}

static inline void ebk_id_ranges_clear(struct ebk_id_ranges *set)
{
    free(set->ranges);
    *set = (struct ebk_id_ranges){0};
}

#endif
