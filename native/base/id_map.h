/* id_map.h: 64-bit ids to 32-bit numbers; open addressing, at most half full. */
#ifndef EBK_ID_MAP_H
#define EBK_ID_MAP_H

#include "base/errors.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EBK_ID_MAP_NONE UINT32_MAX
#define EBK_ID_MAP_SLOTS_MIN 64u

struct ebk_id_slot {
    uint64_t id;
    uint32_t number; /* EBK_ID_MAP_NONE: free */
};

struct ebk_id_map {
    struct ebk_id_slot *slots; /* NULL before the first id */
    uint32_t slot_count, count;
};

/* Ids are dense: the finaliser of splitmix64 spreads them. */
static inline uint32_t ebk_id_map_hash(uint64_t id)
{
    id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9u;
    id = (id ^ (id >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(id ^ (id >> 31));
}

static inline uint32_t ebk_id_map_slot(const struct ebk_id_map *map, uint64_t id)
{
    uint32_t slot = ebk_id_map_hash(id) & (map->slot_count - 1);
    while (map->slots[slot].number != EBK_ID_MAP_NONE && map->slots[slot].id != id)
        slot = (slot + 1) & (map->slot_count - 1);
    return slot;
}

static inline uint32_t ebk_id_map_get(const struct ebk_id_map *map, uint64_t id)
{
    return map->slots == NULL ? EBK_ID_MAP_NONE : map->slots[ebk_id_map_slot(map, id)].number;
}

static inline int ebk_id_map_grow(struct ebk_id_map *map)
{
    struct ebk_id_map wider = {.slot_count = map->slots == NULL ? EBK_ID_MAP_SLOTS_MIN : map->slot_count * 2};
    wider.slots = malloc((size_t)wider.slot_count * sizeof *wider.slots);
    if (wider.slots == NULL) return EBK_NO_MEMORY;
    memset(wider.slots, 0xFF, (size_t)wider.slot_count * sizeof *wider.slots);
    for (uint32_t i = 0; map->slots != NULL && i < map->slot_count; i++)
        if (map->slots[i].number != EBK_ID_MAP_NONE)
            wider.slots[ebk_id_map_slot(&wider, map->slots[i].id)] = map->slots[i];
    free(map->slots);
    map->slots = wider.slots;
    map->slot_count = wider.slot_count;
    return EBK_OK;
}

/* The id is not in the map yet. */
static inline int ebk_id_map_add(struct ebk_id_map *map, uint64_t id, uint32_t number)
{
    EBK_ASSERT(number != EBK_ID_MAP_NONE);
    if ((map->slots == NULL || map->count >= map->slot_count / 2) && ebk_id_map_grow(map) < 0) return EBK_NO_MEMORY;
    const uint32_t slot = ebk_id_map_slot(map, id);
    EBK_ASSERT(map->slots[slot].number == EBK_ID_MAP_NONE && map->count < map->slot_count / 2);
    map->slots[slot] = (struct ebk_id_slot){.id = id, .number = number};
    map->count += 1;
    return EBK_OK;
}

/* Take an id out that is in the map. */
static inline void ebk_id_map_remove(struct ebk_id_map *map, uint64_t id)
{
    const uint32_t mask = map->slot_count - 1;
    uint32_t hole = ebk_id_map_slot(map, id);
    EBK_ASSERT(map->count > 0 && map->slots[hole].number != EBK_ID_MAP_NONE);
    for (uint32_t at = (hole + 1) & mask; map->slots[at].number != EBK_ID_MAP_NONE; at = (at + 1) & mask) {
        const uint32_t home = ebk_id_map_hash(map->slots[at].id) & mask;
        if (((at - home) & mask) < ((at - hole) & mask)) continue; /* Its own place lies behind the hole. */
        map->slots[hole] = map->slots[at];
        hole = at;
    }
    map->slots[hole].number = EBK_ID_MAP_NONE;
    map->count -= 1;
}

static inline void ebk_id_map_clear(struct ebk_id_map *map)
{
    free(map->slots);
    *map = (struct ebk_id_map){0};
}

#endif
