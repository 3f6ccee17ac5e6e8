/* row_map.h: rows found by their ids: open addressing, at most half full, four bytes a slot, since the ids stand in
 * the rows. `id_of` returns the id of a row by its number; it is a constant of the caller's, so that it is inlined. */
#ifndef EBK_ROW_MAP_H
#define EBK_ROW_MAP_H

#include "base/errors.h"
#include "base/id_map.h"

#include <stdint.h>
#include <stdlib.h>

#define EBK_ROW_MAP_NONE UINT32_MAX
#define EBK_ROW_MAP_SLOTS_MIN 64u

struct ebk_row_map {
    uint32_t *slots; /* number of the row + 1; 0: free. NULL before the first row */
    uint32_t slot_count, count;
};

typedef uint64_t (*ebk_id_of)(const void *rows, uint32_t number);

/* The slot of the id, or the free one where it belongs. */
static inline uint32_t ebk_row_map_slot(const struct ebk_row_map *map, const void *rows, ebk_id_of id_of, uint64_t id)
{
    const uint32_t mask = map->slot_count - 1;
    uint32_t slot = ebk_id_map_hash(id) & mask;
    while (map->slots[slot] != 0 && id_of(rows, map->slots[slot] - 1) != id) slot = (slot + 1) & mask;
    return slot;
}

static inline uint32_t ebk_row_map_get(const struct ebk_row_map *map, const void *rows, ebk_id_of id_of, uint64_t id)
{
    return map->slots == NULL ? EBK_ROW_MAP_NONE : map->slots[ebk_row_map_slot(map, rows, id_of, id)] - 1;
}

/* Room for one row more. All rows of the map are where their numbers say. */
static inline int ebk_row_map_reserve(struct ebk_row_map *map, const void *rows, ebk_id_of id_of)
{
    if (map->slots != NULL && map->count < map->slot_count / 2) return EBK_OK;
    struct ebk_row_map wider = {.slot_count = map->slots == NULL ? EBK_ROW_MAP_SLOTS_MIN : map->slot_count * 2};
    wider.slots = calloc(wider.slot_count, sizeof *wider.slots);
    if (wider.slots == NULL) return EBK_NO_MEMORY;
    for (uint32_t i = 0; map->slots != NULL && i < map->slot_count; i++)
        if (map->slots[i] != 0)
            wider.slots[ebk_row_map_slot(&wider, rows, id_of, id_of(rows, map->slots[i] - 1))] = map->slots[i];
    free(map->slots);
    map->slots = wider.slots;
    map->slot_count = wider.slot_count;
    return EBK_OK;
}

/* Add a row whose id is not in the map yet; there is room. The row itself may be written later, before the next call. */
static inline void ebk_row_map_add(struct ebk_row_map *map, const void *rows, ebk_id_of id_of, uint64_t id,
                                   uint32_t number)
{
    EBK_ASSERT(map->count < map->slot_count / 2);
    const uint32_t slot = ebk_row_map_slot(map, rows, id_of, id);
    EBK_ASSERT(map->slots[slot] == 0);
    map->slots[slot] = number + 1;
    map->count += 1;
}

/* Take a row out that is in the map; what was pushed aside by it moves back, so that every search still ends at a free
 * slot. */
static inline void ebk_row_map_remove(struct ebk_row_map *map, const void *rows, ebk_id_of id_of, uint64_t id)
{
    const uint32_t mask = map->slot_count - 1;
    uint32_t hole = ebk_row_map_slot(map, rows, id_of, id);
    EBK_ASSERT(map->count > 0 && map->slots[hole] != 0);
    for (uint32_t at = (hole + 1) & mask; map->slots[at] != 0; at = (at + 1) & mask) {
        const uint32_t home = ebk_id_map_hash(id_of(rows, map->slots[at] - 1)) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* Its own place lies behind the hole. */
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole] = 0;
    map->count -= 1;
}

static inline void ebk_row_map_clear(struct ebk_row_map *map)
{
    free(map->slots);
    *map = (struct ebk_row_map){0};
}

#endif
