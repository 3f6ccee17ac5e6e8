/* table.c: rows in slabs that never move, found by their ledgers through a row map.
 *
 *     numbers  | . | 7 | . | . | 3 | ...      ledger to row number
 *                    |
 *     slabs  [ rows 0..1023 ][ rows 1024..2047 ] ...
 */
#include "store/table.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/id_ranges.h"
#include "base/row_map.h"
#include "wire/entry_digest.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_ROWS 1024u
#define LEDGERS_LIMIT (1u << 30)
#define NO_ENTRY (-1)

#define STATE_FENCED 1u
#define STATE_IN_LIMBO 2u
#define STATE_DROPPED 4u
#define STATE_HAS_KEY 8u
#define STATE_RANGE 16u /* of all ledgers from ledger_id to last_entry */
#define STATE_FLAGS 31u
#define STATE_DROPPED_RANGE (STATE_FENCED | STATE_IN_LIMBO | STATE_DROPPED | STATE_RANGE)

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

#define RESERVE_SHARE 16u /* One row in so many is kept for fences and recovery. */
#define DIRTY_END UINT32_MAX
#define NO_LEDGER UINT64_MAX /* in a row that no ledger has */

struct ebk_table {
    struct ebk_ledger_row **slabs; /* rows_max / SLAB_ROWS pointers, rounded up */
    struct ebk_row_map numbers; /* of the rows that a ledger has */
    uint32_t row_count;  /* rows ever used; of these free_count stand in a list from free_head */
    uint32_t ledgers_max, rows_max, free_count, free_head;
    uint32_t dirty_count, dirty_head; /* a list through dirty_next: row number + 1, DIRTY_END behind the last */
    struct ebk_id_ranges dropped;
    uint64_t *dirty_ids; /* of dropped ranges that are in no entry log as they are now */
    uint32_t dirty_id_count, dirty_id_capacity;
};

static uint32_t slab_count(uint32_t rows)
{
    return (rows + SLAB_ROWS - 1) / SLAB_ROWS;
}

static struct ebk_ledger_row *row_at(const struct ebk_table *table, uint32_t number)
{
    return &table->slabs[number / SLAB_ROWS][number % SLAB_ROWS];
}

static uint64_t id_of(const void *table, uint32_t number)
{
    return row_at(table, number)->ledger_id;
}

struct ebk_table *ebk_table_new(uint32_t ledgers_max)
{
    EBK_ASSERT(ledgers_max >= 1 && ledgers_max <= LEDGERS_LIMIT);
    struct ebk_table *table = calloc(1, sizeof *table);
    if (table == NULL) return NULL;
    table->ledgers_max = ledgers_max;
    table->rows_max = ledgers_max + ledgers_max / RESERVE_SHARE + 1;
    table->dirty_head = DIRTY_END;
    table->slabs = calloc(slab_count(table->rows_max), sizeof *table->slabs);
    if (table->slabs == NULL) {
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
    ebk_row_map_clear(&table->numbers);
    free(table->dirty_ids);
    ebk_id_ranges_clear(&table->dropped);
    free(table);
}

struct ebk_ledger_row *ebk_table_find(const struct ebk_table *table, uint64_t ledger_id)
{
    const uint32_t number = ebk_row_map_get(&table->numbers, table, id_of, ledger_id);
    EBK_ASSERT(number == EBK_ROW_MAP_NONE || number < table->row_count);
    return number == EBK_ROW_MAP_NONE ? NULL : row_at(table, number);
}

int ebk_table_get(struct ebk_table *table, uint64_t ledger_id, struct ebk_ledger_row **row)
{
    *row = ebk_table_find(table, ledger_id);
    if (*row != NULL || ebk_id_ranges_find(&table->dropped, ledger_id) == NULL) return EBK_OK;
    const int refused = ebk_table_create(table, ledger_id, true, row);
    if (refused < 0) return refused;
    (*row)->is_fenced = (*row)->in_limbo = (*row)->is_dropped = 1;
    ebk_table_mark_dirty(table, *row); /* So that it is retired again. */
    return EBK_OK;
}

bool ebk_table_is_dropped(const struct ebk_table *table, uint64_t ledger_id)
{
    const struct ebk_ledger_row *row = ebk_table_find(table, ledger_id);
    return row != NULL ? row->is_dropped != 0 : ebk_id_ranges_find(&table->dropped, ledger_id) != NULL;
}

/* The number of a row that no ledger has; its slab is there. */
static int take_row(struct ebk_table *table, uint32_t *number)
{
    if (table->free_count > 0) {
        *number = table->free_head;
        EBK_ASSERT(*number < table->row_count && row_at(table, *number)->ledger_id == NO_LEDGER);
        table->free_head = row_at(table, *number)->dirty_next;
        table->free_count -= 1;
        return EBK_OK;
    }
    EBK_ASSERT(table->row_count < table->rows_max);
    struct ebk_ledger_row **slab = &table->slabs[table->row_count / SLAB_ROWS];
    if (table->row_count % SLAB_ROWS == 0) {
        EBK_ASSERT(*slab == NULL);
        *slab = calloc(SLAB_ROWS, sizeof **slab);
        if (*slab == NULL) return EBK_NO_MEMORY;
    }
    *number = table->row_count++;
    return EBK_OK;
}

int ebk_table_create(struct ebk_table *table, uint64_t ledger_id, bool from_reserve, struct ebk_ledger_row **row)
{
    EBK_ASSERT(ledger_id <= INT64_MAX);
    const uint32_t used = ebk_table_count(table);
    if (used >= (from_reserve ? table->rows_max : table->ledgers_max)) return EBK_FULL;
    if (ebk_row_map_reserve(&table->numbers, table, id_of) < 0) return EBK_NO_MEMORY;
    uint32_t number;
    if (take_row(table, &number) < 0) return EBK_NO_MEMORY;
    ebk_row_map_add(&table->numbers, table, id_of, ledger_id, number);
    *row = row_at(table, number);
    /* Polls may be parked from before there was a row; the core finds out. */
    EBK_ASSERT(table->numbers.count == ebk_table_count(table) && ebk_table_count(table) == used + 1);
    **row = (struct ebk_ledger_row){.ledger_id = ledger_id, .last_entry = NO_ENTRY, .lac = NO_ENTRY, .is_awaited = 1};
    return EBK_OK;
}

/* The row of a clean ledger goes; its memory is used again. */
static void remove_row(struct ebk_table *table, struct ebk_ledger_row *row)
{
    EBK_ASSERT(row->dirty_next == 0 && table->free_count < table->row_count);
    const uint32_t number = ebk_row_map_get(&table->numbers, table, id_of, row->ledger_id);
    EBK_ASSERT(number < table->row_count && row_at(table, number) == row);
    ebk_row_map_remove(&table->numbers, table, id_of, row->ledger_id);
    row->ledger_id = NO_LEDGER;
    row->dirty_next = table->free_head;
    table->free_head = number;
    table->free_count += 1;
    EBK_ASSERT(table->numbers.count == ebk_table_count(table));
}

void ebk_table_mark_dirty(struct ebk_table *table, struct ebk_ledger_row *row)
{
    if (row->dirty_next != 0) return;
    const uint32_t number = ebk_row_map_get(&table->numbers, table, id_of, row->ledger_id);
    EBK_ASSERT(number < table->row_count);
    EBK_ASSERT((table->dirty_count == 0) == (table->dirty_head == DIRTY_END));
    row->dirty_next = table->dirty_head;
    table->dirty_head = number + 1;
    table->dirty_count += 1;
    EBK_ASSERT(table->dirty_count <= ebk_table_count(table));
}

/* Take the first dirty row out of the list; NULL when there is none. */
static struct ebk_ledger_row *pop_dirty(struct ebk_table *table)
{
    if (table->dirty_head == DIRTY_END) return NULL;
    EBK_ASSERT(table->dirty_count > 0 && table->dirty_head <= table->row_count);
    struct ebk_ledger_row *row = row_at(table, table->dirty_head - 1);
    EBK_ASSERT(row->dirty_next != 0);
    table->dirty_head = row->dirty_next;
    table->dirty_count -= 1;
    row->dirty_next = 0;
    return row;
}

uint64_t ebk_table_number(const struct ebk_table *table, uint64_t first, const uint8_t *mask, uint32_t mask_bytes,
                          uint64_t seed, uint64_t *last_token)
{
    uint64_t number = 0;
    *last_token = 0;
    for (uint32_t i = 0; i < 8 * mask_bytes; i++) {
        if ((mask[i / 8] >> i % 8 & 1) == 0) continue;
        const struct ebk_ledger_row *row = ebk_table_find(table, first + i);
        if (row == NULL) continue;
        /* The token alone would not do: a dropped ledger without a row gets one back whose token is 0. */
        number += ebk_mix64(ebk_mix64(row->ledger_id + seed) ^ (row->last_token << 1 | row->is_dropped));
        if (row->last_token > *last_token) *last_token = row->last_token;
    }
    return number;
}

uint32_t ebk_table_count(const struct ebk_table *table)
{
    return table->row_count - table->free_count;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

void ebk_table_ids(const struct ebk_table *table, uint64_t *ids)
{
    uint32_t count = 0;
    bool is_sorted = true; /* Ledgers usually come in the order of their ids. */
    for (uint32_t number = 0; number < table->row_count; number++) {
        const uint64_t ledger_id = row_at(table, number)->ledger_id;
        if (ledger_id == NO_LEDGER) continue;
        is_sorted &= count == 0 || ids[count - 1] < ledger_id;
        ids[count++] = ledger_id;
    }
    if (!is_sorted) qsort(ids, count, sizeof *ids, compare_ids);
}

uint32_t ebk_table_limbo(const struct ebk_table *table, uint64_t *ids, uint32_t room)
{
    uint32_t count = 0;
    for (uint32_t number = 0; number < table->row_count; number++) {
        const struct ebk_ledger_row *row = row_at(table, number);
        if (row->ledger_id == NO_LEDGER || !row->in_limbo || row->is_dropped) continue;
        if (count < room) ids[count] = row->ledger_id;
        count += 1;
    }
    if (count > 1 && count <= room) qsort(ids, count, sizeof *ids, compare_ids);
    return count;
}

size_t ebk_table_resident(const struct ebk_table *table)
{
    return sizeof *table + slab_count(table->rows_max) * sizeof *table->slabs +
           (size_t)table->numbers.slot_count * sizeof *table->numbers.slots +
           (size_t)slab_count(table->row_count) * SLAB_ROWS * sizeof(struct ebk_ledger_row) +
           (size_t)table->dropped.capacity * sizeof *table->dropped.ranges +
           (size_t)table->dirty_id_capacity * sizeof *table->dirty_ids;
}

/* ---- dropped ranges ----------------------------------------------------------------- */

static int note_dirty_id(struct ebk_table *table, uint64_t id)
{
    if (table->dirty_id_count == table->dirty_id_capacity) {
        const uint32_t capacity = table->dirty_id_capacity ? table->dirty_id_capacity * 2 : 64;
        uint64_t *ids = realloc(table->dirty_ids, capacity * sizeof *ids);
        if (ids == NULL) return EBK_NO_MEMORY;
        table->dirty_ids = ids;
        table->dirty_id_capacity = capacity;
    }
    table->dirty_ids[table->dirty_id_count++] = id;
    return EBK_OK;
}

/* The ledger is in no range any more. The rest of a range that is not written yet is found by its own id: that of the
 * whole range may be before it. */
static int cut_out(struct ebk_table *table, uint64_t id)
{
    const struct ebk_id_range *range = ebk_id_ranges_find(&table->dropped, id);
    if (range == NULL) return EBK_OK;
    if (id < range->last && note_dirty_id(table, id + 1) < 0) return EBK_NO_MEMORY;
    return ebk_id_ranges_cut(&table->dropped, id);
}

int ebk_table_drop_range(struct ebk_table *table, uint64_t first, uint64_t last)
{
    EBK_ASSERT(first <= last && last <= INT64_MAX);
    if (note_dirty_id(table, first) < 0 || ebk_id_ranges_add(&table->dropped, first, last) < 0) return EBK_NO_MEMORY;
    int refused = EBK_OK;
    if (last - first < ebk_table_count(table)) {
        for (uint64_t id = first; refused == EBK_OK && id <= last; id++)
            if (ebk_table_find(table, id) != NULL) refused = cut_out(table, id);
        return refused;
    }
    for (uint32_t number = 0; refused == EBK_OK && number < table->row_count; number++) {
        const uint64_t id = row_at(table, number)->ledger_id;
        if (id >= first && id <= last) refused = cut_out(table, id);
    }
    return refused;
}

/* The ledger's row goes into the ranges; one that stood there all along is in an entry log as it is. */
static int retire(struct ebk_table *table, struct ebk_ledger_row *row)
{
    const bool was_there = ebk_id_ranges_find(&table->dropped, row->ledger_id) != NULL;
    if (!was_there) {
        if (note_dirty_id(table, row->ledger_id) < 0) return EBK_NO_MEMORY;
        if (ebk_id_ranges_add(&table->dropped, row->ledger_id, row->ledger_id) < 0) return EBK_NO_MEMORY;
    }
    remove_row(table, row);
    return EBK_OK;
}

int ebk_table_retire(struct ebk_table *table, uint64_t durable)
{
    int refused = EBK_OK;
    uint32_t kept = DIRTY_END, kept_count = 0, number = table->dirty_head;
    struct ebk_ledger_row *row;
    for (; (row = pop_dirty(table)) != NULL; number = table->dirty_head) {
        if (refused == EBK_OK && row->is_dropped && row->last_token <= durable) {
            refused = retire(table, row);
            if (refused == EBK_OK) continue;
        }
        row->dirty_next = kept;
        kept = number;
        kept_count += 1;
    }
    table->dirty_head = kept;
    table->dirty_count = kept_count;
    return refused;
}

uint32_t ebk_table_range_count(const struct ebk_table *table)
{
    return table->dropped.count;
}

void ebk_table_ranges(const struct ebk_table *table, uint64_t *bounds)
{
    for (uint32_t i = 0; i < table->dropped.count; i++) {
        bounds[2 * i] = table->dropped.ranges[i].first;
        bounds[2 * i + 1] = table->dropped.ranges[i].last;
    }
}

/* ---- states ------------------------------------------------------------------------- */

uint32_t ebk_table_dirty_count(const struct ebk_table *table)
{
    return 2 * table->dirty_count + table->dirty_id_count;
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

static void pack_range(const struct ebk_id_range *range, uint8_t *to)
{
    const struct ebk_ledger_row row = {
        .ledger_id = range->first, .last_entry = (int64_t)range->last, .lac = NO_ENTRY,
    };
    pack(&row, to);
    to[AT_FLAGS] = STATE_DROPPED_RANGE;
}

/* By ledger id, a range first: the row that stands behind it is newer. */
static int compare_states(const void *a, const void *b)
{
    const uint8_t *one = a, *other = b;
    const uint64_t id = ebk_load_u64(one + AT_LEDGER), other_id = ebk_load_u64(other + AT_LEDGER);
    if (id != other_id) return id < other_id ? -1 : 1;
    return (other[AT_FLAGS] & STATE_RANGE) - (one[AT_FLAGS] & STATE_RANGE);
}

int64_t ebk_table_take_dirty(struct ebk_table *table, uint8_t *states)
{
    for (uint32_t number = table->dirty_head; number != DIRTY_END;) { /* A ledger that came back is dropped no more. */
        const struct ebk_ledger_row *row = row_at(table, number - 1);
        if (!row->is_dropped && cut_out(table, row->ledger_id) < 0) return EBK_NO_MEMORY;
        number = row->dirty_next;
    }
    int64_t count = 0;
    uint32_t kept = DIRTY_END, kept_count = 0, number = table->dirty_head;
    for (struct ebk_ledger_row *row; (row = pop_dirty(table)) != NULL; number = table->dirty_head) {
        pack(row, states + count++ * EBK_STATE_BYTES);
        if (!row->is_dropped) continue;
        row->dirty_next = kept; /* Not retired yet: it stays where ebk_table_retire() looks. */
        kept = number;
        kept_count += 1;
    }
    table->dirty_head = kept;
    table->dirty_count = kept_count;
    if (table->dirty_id_count > 1) qsort(table->dirty_ids, table->dirty_id_count, sizeof(uint64_t), compare_ids);
    const struct ebk_id_range *packed = NULL;
    for (uint32_t i = 0; i < table->dirty_id_count; i++) {
        const struct ebk_id_range *range = ebk_id_ranges_find(&table->dropped, table->dirty_ids[i]);
        if (range == NULL || range == packed) continue;
        packed = range;
        pack_range(range, states + count++ * EBK_STATE_BYTES);
    }
    table->dirty_id_count = 0;
    if (count > 1) qsort(states, (size_t)count, EBK_STATE_BYTES, compare_states);
    return count;
}

/* All present ranges that meet first..last are dirty. */
static int touch_ranges(struct ebk_table *table, uint64_t first, uint64_t last)
{
    for (uint32_t at = ebk_id_ranges_at(&table->dropped, first);
         at < table->dropped.count && table->dropped.ranges[at].first <= last; at++)
        if (note_dirty_id(table, table->dropped.ranges[at].first) < 0) return EBK_NO_MEMORY;
    return EBK_OK;
}

int ebk_table_touch(struct ebk_table *table, const uint8_t *states, size_t count)
{
    for (const uint8_t *state = states; state < states + count * EBK_STATE_BYTES; state += EBK_STATE_BYTES) {
        const uint64_t first = ebk_load_u64(state + AT_LEDGER);
        const uint64_t last = state[AT_FLAGS] & STATE_RANGE ? ebk_load_u64(state + AT_LAST) : first;
        struct ebk_ledger_row *row = last == first ? ebk_table_find(table, first) : NULL;
        if (row != NULL) ebk_table_mark_dirty(table, row);
        if (touch_ranges(table, first, last) < 0) return EBK_NO_MEMORY;
    }
    return EBK_OK;
}

static bool is_possible(const uint8_t *state)
{
    if (ebk_load_u64(state + AT_LEDGER) > INT64_MAX || (state[AT_FLAGS] & ~STATE_FLAGS) != 0) return false;
    if ((int64_t)ebk_load_u64(state + AT_LAST) < NO_ENTRY || (int64_t)ebk_load_u64(state + AT_LAC) < NO_ENTRY)
        return false;
    if ((state[AT_FLAGS] & STATE_RANGE) != 0 &&
        (state[AT_FLAGS] != STATE_DROPPED_RANGE || ebk_load_u64(state + AT_LAST) < ebk_load_u64(state + AT_LEDGER) ||
         ebk_load_u64(state + AT_LAST) > INT64_MAX))
        return false;
    for (int i = AT_RESERVED; i < EBK_STATE_BYTES; i++)
        if (state[i] != 0) return false;
    return true;
}

/* A fence stays, marks only rise; limbo is that of the newest state. */
static void merge(struct ebk_ledger_row *row, const uint8_t *state)
{
    const uint8_t flags = state[AT_FLAGS];
    const int64_t last = (int64_t)ebk_load_u64(state + AT_LAST), lac = (int64_t)ebk_load_u64(state + AT_LAC);
    const uint64_t lac_length = ebk_load_u64(state + AT_LAC_LENGTH);
    row->is_fenced |= (flags & STATE_FENCED) != 0;
    row->in_limbo = (flags & STATE_IN_LIMBO) != 0;
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

/* Every ledger of the range is dropped: older states of its ledgers say less. No row is dirty yet. */
static int load_range(struct ebk_table *table, uint64_t first, uint64_t last)
{
    if (ebk_id_ranges_add(&table->dropped, first, last) < 0) return EBK_NO_MEMORY;
    if (last - first < ebk_table_count(table)) {
        for (uint64_t id = first; id <= last; id++) {
            struct ebk_ledger_row *row = ebk_table_find(table, id);
            if (row != NULL) remove_row(table, row);
        }
        return EBK_OK;
    }
    for (uint32_t number = 0; number < table->row_count; number++) {
        struct ebk_ledger_row *row = row_at(table, number);
        if (row->ledger_id >= first && row->ledger_id <= last) remove_row(table, row);
    }
    return EBK_OK;
}

int ebk_table_load(struct ebk_table *table, const uint8_t *states, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!is_possible(states + i * EBK_STATE_BYTES)) return EBK_DAMAGED;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *state = states + i * EBK_STATE_BYTES;
        const uint64_t ledger_id = ebk_load_u64(state + AT_LEDGER);
        if (state[AT_FLAGS] & STATE_DROPPED) { /* In an entry log, so durable: no row is needed. */
            const bool is_range = (state[AT_FLAGS] & STATE_RANGE) != 0;
            const int refused = load_range(table, ledger_id, is_range ? ebk_load_u64(state + AT_LAST) : ledger_id);
            if (refused < 0) return refused;
            continue;
        }
        struct ebk_ledger_row *row = ebk_table_find(table, ledger_id);
        if (row == NULL) {
            int refused = ebk_table_create(table, ledger_id, true, &row);
            if (refused < 0) return refused;
        }
        merge(row, state);
        if (ebk_id_ranges_cut(&table->dropped, ledger_id) < 0) return EBK_NO_MEMORY;
    }
    return EBK_OK;
}
