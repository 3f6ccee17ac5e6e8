/* table.c: rows in slabs that never move, found through an open-addressing index.
 *
 *     slots  | 0 | 7 | . | . | 3 | ...      row number + 1, or 0; at most half are used
 *                  |
 *     slabs  [ rows 0..1023 ][ rows 1024..2047 ] ...
 */
#include "table.h"

#include "bytes.h"
#include "errors.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_ROWS 1024u
#define SLOTS_MIN 64u
#define LEDGERS_LIMIT (1u << 30)
#define NO_ENTRY (-1)

#define STATE_FENCED 1u
#define STATE_IN_LIMBO 2u
#define STATE_DROPPED 4u
#define STATE_HAS_KEY 8u
#define STATE_FLAGS 15u

/* Where the numbers of a stored state stand. */
#define AT_LEDGER 0
#define AT_LAST 8
#define AT_LAC 16
#define AT_LAC_LENGTH 24
#define AT_KEY 32
#define AT_FLAGS 48
#define AT_RESERVED 49

_Static_assert(sizeof(struct ebk_ledger_row) == 64, "a row is one cache line");
_Static_assert(AT_RESERVED + 7 == EBK_STATE_BYTES, "a state has no room left");

struct ebk_table {
    struct ebk_ledger_row **slabs; /* ledgers_max / SLAB_ROWS pointers, rounded up */
    uint32_t *slots;
    uint32_t slot_count; /* a power of two */
    uint32_t row_count, rows_max, dirty_count;
};

static uint32_t slab_count(uint32_t rows)
{
    return (rows + SLAB_ROWS - 1) / SLAB_ROWS;
}

static struct ebk_ledger_row *row_at(const struct ebk_table *table, uint32_t number)
{
    return &table->slabs[number / SLAB_ROWS][number % SLAB_ROWS];
}

/* Ledger ids are dense: the finaliser of splitmix64 spreads them. */
static uint32_t hash(uint64_t id)
{
    id = (id ^ (id >> 30)) * 0xBF58476D1CE4E5B9u;
    id = (id ^ (id >> 27)) * 0x94D049BB133111EBu;
    return (uint32_t)(id ^ (id >> 31));
}

/* The slot that holds the ledger, or the free one where it belongs. */
static uint32_t find_slot(const struct ebk_table *table, uint64_t ledger_id)
{
    const uint32_t mask = table->slot_count - 1;
    uint32_t slot = hash(ledger_id) & mask;
    while (table->slots[slot] != 0 && row_at(table, table->slots[slot] - 1)->ledger_id != ledger_id)
        slot = (slot + 1) & mask;
    return slot;
}

struct ebk_table *ebk_table_new(uint32_t ledgers_max)
{
    EBK_ASSERT(ledgers_max >= 1 && ledgers_max <= LEDGERS_LIMIT);
    struct ebk_table *table = calloc(1, sizeof *table);
    if (table == NULL) return NULL;
    table->rows_max = ledgers_max;
    table->slot_count = SLOTS_MIN;
    table->slabs = calloc(slab_count(ledgers_max), sizeof *table->slabs);
    table->slots = calloc(table->slot_count, sizeof *table->slots);
    if (table->slabs == NULL || table->slots == NULL) {
        ebk_table_free(table);
        return NULL;
    }
    return table;
}

void ebk_table_free(struct ebk_table *table)
{
    if (table == NULL) return;
    for (uint32_t i = 0; table->slabs != NULL && i < slab_count(table->row_count); i++) free(table->slabs[i]);
    free(table->slabs);
    free(table->slots);
    free(table);
}

struct ebk_ledger_row *ebk_table_get(const struct ebk_table *table, uint64_t ledger_id)
{
    const uint32_t number = table->slots[find_slot(table, ledger_id)];
    return number == 0 ? NULL : row_at(table, number - 1);
}

/* Twice as many slots, so that at most half are ever used. */
static int grow_slots(struct ebk_table *table)
{
    uint32_t *before = table->slots;
    uint32_t *slots = calloc((size_t)table->slot_count * 2, sizeof *slots);
    if (slots == NULL) return EBK_NO_MEMORY;
    table->slots = slots;
    table->slot_count *= 2;
    for (uint32_t number = 0; number < table->row_count; number++)
        slots[find_slot(table, row_at(table, number)->ledger_id)] = number + 1;
    free(before);
    return EBK_OK;
}

int ebk_table_create(struct ebk_table *table, uint64_t ledger_id, struct ebk_ledger_row **row)
{
    EBK_ASSERT(ledger_id <= INT64_MAX);
    if (table->row_count == table->rows_max) return EBK_FULL;
    if (table->row_count >= table->slot_count / 2 && grow_slots(table) < 0) return EBK_NO_MEMORY;
    struct ebk_ledger_row **slab = &table->slabs[table->row_count / SLAB_ROWS];
    if (table->row_count % SLAB_ROWS == 0) {
        EBK_ASSERT(*slab == NULL);
        *slab = calloc(SLAB_ROWS, sizeof **slab);
        if (*slab == NULL) return EBK_NO_MEMORY;
    }
    const uint32_t slot = find_slot(table, ledger_id);
    EBK_ASSERT(table->slots[slot] == 0);
    *row = row_at(table, table->row_count);
    (*row)->ledger_id = ledger_id;
    (*row)->last_entry = (*row)->lac = NO_ENTRY;
    table->row_count += 1;
    table->slots[slot] = table->row_count;
    return EBK_OK;
}

uint32_t ebk_table_count(const struct ebk_table *table)
{
    return table->row_count;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

void ebk_table_ids(const struct ebk_table *table, uint64_t *ids)
{
    for (uint32_t number = 0; number < table->row_count; number++) ids[number] = row_at(table, number)->ledger_id;
    qsort(ids, table->row_count, sizeof *ids, compare_ids);
}

size_t ebk_table_resident(const struct ebk_table *table)
{
    return sizeof *table + slab_count(table->rows_max) * sizeof *table->slabs +
           (size_t)table->slot_count * sizeof *table->slots +
           (size_t)slab_count(table->row_count) * SLAB_ROWS * sizeof(struct ebk_ledger_row);
}

/* Counted afresh: `is_dirty` is set from both sides of the house. */
uint32_t ebk_table_dirty_count(const struct ebk_table *table)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < table->row_count; number++) count += row_at(table, number)->is_dirty != 0;
    return count;
}

static void pack(const struct ebk_ledger_row *row, uint8_t *to)
{
    memset(to, 0, EBK_STATE_BYTES);
    ebk_store_u64(to + AT_LEDGER, row->ledger_id);
    ebk_store_u64(to + AT_LAST, (uint64_t)row->last_entry);
    ebk_store_u64(to + AT_LAC, (uint64_t)row->lac);
    ebk_store_u64(to + AT_LAC_LENGTH, row->lac_length);
    if (row->has_key) memcpy(to + AT_KEY, row->key, EBK_KEY_BYTES);
    to[AT_FLAGS] = (uint8_t)((row->is_fenced ? STATE_FENCED : 0) | (row->in_limbo ? STATE_IN_LIMBO : 0) |
                             (row->is_dropped ? STATE_DROPPED : 0) | (row->has_key ? STATE_HAS_KEY : 0));
}

static int compare_rows(const void *a, const void *b)
{
    const struct ebk_ledger_row *one = *(struct ebk_ledger_row *const *)a, *other = *(struct ebk_ledger_row *const *)b;
    return one->ledger_id < other->ledger_id ? -1 : one->ledger_id > other->ledger_id;
}

int ebk_table_take_dirty(struct ebk_table *table, uint8_t *states)
{
    const uint32_t count = ebk_table_dirty_count(table);
    if (count == 0) return EBK_OK;
    struct ebk_ledger_row **dirty = malloc(count * sizeof *dirty);
    if (dirty == NULL) return EBK_NO_MEMORY;
    uint32_t found = 0;
    for (uint32_t number = 0; number < table->row_count; number++)
        if (row_at(table, number)->is_dirty) dirty[found++] = row_at(table, number);
    EBK_ASSERT(found == count);
    qsort(dirty, count, sizeof *dirty, compare_rows);
    for (uint32_t i = 0; i < count; i++) {
        pack(dirty[i], states + (size_t)i * EBK_STATE_BYTES);
        dirty[i]->is_dirty = 0;
    }
    free(dirty);
    return EBK_OK;
}

static bool is_possible(const uint8_t *state)
{
    if (ebk_load_u64(state + AT_LEDGER) > INT64_MAX || (state[AT_FLAGS] & ~STATE_FLAGS) != 0) return false;
    if ((int64_t)ebk_load_u64(state + AT_LAST) < NO_ENTRY || (int64_t)ebk_load_u64(state + AT_LAC) < NO_ENTRY)
        return false;
    for (int i = AT_RESERVED; i < EBK_STATE_BYTES; i++)
        if (state[i] != 0) return false;
    return true;
}

/* A fence stays and what rises only rises; limbo and drop are as the newest state says. */
static void merge(struct ebk_ledger_row *row, const uint8_t *state)
{
    const uint8_t flags = state[AT_FLAGS];
    const int64_t last = (int64_t)ebk_load_u64(state + AT_LAST), lac = (int64_t)ebk_load_u64(state + AT_LAC);
    const uint64_t lac_length = ebk_load_u64(state + AT_LAC_LENGTH);
    row->is_fenced |= (flags & STATE_FENCED) != 0;
    row->in_limbo = (flags & STATE_IN_LIMBO) != 0;
    row->is_dropped = (flags & STATE_DROPPED) != 0;
    if (last > row->last_entry) row->last_entry = last;
    if (lac > row->lac || (lac == row->lac && lac_length > row->lac_length)) {
        row->lac = lac;
        row->lac_length = lac_length;
    }
    if (flags & STATE_HAS_KEY) {
        memcpy(row->key, state + AT_KEY, EBK_KEY_BYTES);
        row->has_key = 1;
    }
}

int ebk_table_load(struct ebk_table *table, const uint8_t *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_possible(states + i * EBK_STATE_BYTES)) return EBK_DAMAGED;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *state = states + i * EBK_STATE_BYTES;
        struct ebk_ledger_row *row = ebk_table_get(table, ebk_load_u64(state + AT_LEDGER));
        if (row == NULL) {
            int refused = ebk_table_create(table, ebk_load_u64(state + AT_LEDGER), &row);
            if (refused < 0) return refused;
        }
        merge(row, state);
    }
    return EBK_OK;
}
