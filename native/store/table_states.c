/* table_states.c: the states of ledgers as entry logs store them (embedbk/storage/STORAGE.md).
 *
 * It decides what a stored state says, which are impossible, and how several of one ledger become one. Which rows and
 * ranges are dirty is table.c's.
 */
#include "store/table_inside.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

_Static_assert(AT_RESERVED + 7 == EBK_STATE_BYTES, "a state has no room left");

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
        if (!row->is_dropped && ebk_table_cut_out(table, row->ledger_id) < 0) return EBK_NO_MEMORY;
        number = row->dirty_next;
    }
    int64_t count = 0;
    uint32_t kept = DIRTY_END, kept_count = 0, number = table->dirty_head;
    for (struct ebk_ledger_row *row; (row = ebk_table_pop_dirty(table)) != NULL; number = table->dirty_head) {
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
        if (ebk_table_note_range(table, table->dropped.ranges[at].first) < 0) return EBK_NO_MEMORY;
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

/* A fence stays, the LAC pair only rises; limbo and the last entry are those of the newest state: a ledger that was
 * dropped and is held again has its entries from then on. */
static void merge(struct ebk_ledger_row *row, const uint8_t *state)
{
    const uint8_t flags = state[AT_FLAGS];
    const int64_t last = (int64_t)ebk_load_u64(state + AT_LAST), lac = (int64_t)ebk_load_u64(state + AT_LAC);
    const uint64_t lac_length = ebk_load_u64(state + AT_LAC_LENGTH);
    row->is_fenced |= (flags & STATE_FENCED) != 0;
    row->in_limbo = (flags & STATE_IN_LIMBO) != 0;
    row->last_entry = last;
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
            if (row != NULL) ebk_table_remove_row(table, row);
        }
        return EBK_OK;
    }
    for (uint32_t number = 0; number < table->row_count; number++) {
        struct ebk_ledger_row *row = row_at(table, number);
        if (row->ledger_id >= first && row->ledger_id <= last) ebk_table_remove_row(table, row);
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
