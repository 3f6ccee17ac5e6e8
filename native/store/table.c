/* table.c: rows in slabs that never move, found by their ledgers through a row map; and the ranges of dropped ledgers.
 *
 * It decides which ledger has a row, which rows and ranges are dirty, and when a dropped ledger leaves its row. What is
 * stored of them is table_states.c's.
 */
#include "store/table_inside.h"

#include "base/errors.h"
#include "wire/entry_digest.h"

#include <stdbool.h>
#include <stdlib.h>

#define LEDGERS_LIMIT (1u << 30)
#define RESERVE_SHARE 16u /* One row in so many is kept for fences and recovery. */

_Static_assert(sizeof(struct ebk_ledger_row) == 64, "a row is one cache line");

static uint32_t slab_count(uint32_t rows)
{
    return (rows + SLAB_ROWS - 1) / SLAB_ROWS;
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

void ebk_table_remove_row(struct ebk_table *table, struct ebk_ledger_row *row)
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

struct ebk_ledger_row *ebk_table_pop_dirty(struct ebk_table *table)
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

int ebk_table_note_range(struct ebk_table *table, uint64_t id)
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

int ebk_table_cut_out(struct ebk_table *table, uint64_t id)
{
    const struct ebk_id_range *range = ebk_id_ranges_find(&table->dropped, id);
    if (range == NULL) return EBK_OK;
    if (id < range->last && ebk_table_note_range(table, id + 1) < 0) return EBK_NO_MEMORY;
    return ebk_id_ranges_cut(&table->dropped, id);
}

int ebk_table_drop_range(struct ebk_table *table, uint64_t first, uint64_t last)
{
    EBK_ASSERT(first <= last && last <= INT64_MAX);
    if (ebk_table_note_range(table, first) < 0 || ebk_id_ranges_add(&table->dropped, first, last) < 0)
        return EBK_NO_MEMORY;
    int refused = EBK_OK;
    if (last - first < ebk_table_count(table)) {
        for (uint64_t id = first; refused == EBK_OK && id <= last; id++)
            if (ebk_table_find(table, id) != NULL) refused = ebk_table_cut_out(table, id);
        return refused;
    }
    for (uint32_t number = 0; refused == EBK_OK && number < table->row_count; number++) {
        const uint64_t id = row_at(table, number)->ledger_id;
        if (id >= first && id <= last) refused = ebk_table_cut_out(table, id);
    }
    return refused;
}

/* The ledger's row goes into the ranges; one that stood there all along is in an entry log as it is. */
static int retire(struct ebk_table *table, struct ebk_ledger_row *row)
{
    const bool was_there = ebk_id_ranges_find(&table->dropped, row->ledger_id) != NULL;
    if (!was_there) {
        if (ebk_table_note_range(table, row->ledger_id) < 0) return EBK_NO_MEMORY;
        if (ebk_id_ranges_add(&table->dropped, row->ledger_id, row->ledger_id) < 0) return EBK_NO_MEMORY;
    }
    ebk_table_remove_row(table, row);
    return EBK_OK;
}

int ebk_table_retire(struct ebk_table *table, uint64_t durable)
{
    int refused = EBK_OK;
    uint32_t kept = DIRTY_END, kept_count = 0, number = table->dirty_head;
    struct ebk_ledger_row *row;
    for (; (row = ebk_table_pop_dirty(table)) != NULL; number = table->dirty_head) {
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

uint32_t ebk_table_dirty_count(const struct ebk_table *table)
{
    return 2 * table->dirty_count + table->dirty_id_count;
}
