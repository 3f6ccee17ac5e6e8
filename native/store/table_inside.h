/* table_inside.h: what the sources of the ledger table know of each other; no other file includes it.
 *
 *   table.c         rows, which of them are dirty, and the ranges of dropped ledgers
 *   table_states.c  the stored states of both: packed for an entry log, and taken in from one
 *
 *     numbers  | . | 7 | . | . | 3 | ...      ledger to row number
 *                    |
 *     slabs  [ rows 0..1023 ][ rows 1024..2047 ] ...
 */
#ifndef EBK_TABLE_INSIDE_H
#define EBK_TABLE_INSIDE_H

#include "base/id_ranges.h"
#include "base/row_map.h"
#include "store/table.h"

#include <stdint.h>

#define SLAB_ROWS 1024u
#define NO_ENTRY (-1)
#define NO_LEDGER UINT64_MAX /* in a row that no ledger has */
#define DIRTY_END UINT32_MAX

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

static inline struct ebk_ledger_row *row_at(const struct ebk_table *table, uint32_t number)
{
    return &table->slabs[number / SLAB_ROWS][number % SLAB_ROWS];
}

/* Ids ascending, for qsort. */
static inline int compare_ids(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/* table.c */
/* The row of a clean ledger goes; its memory is used again. */
void ebk_table_remove_row(struct ebk_table *table, struct ebk_ledger_row *row);
/* Take the first dirty row out of the list; NULL when there is none. */
struct ebk_ledger_row *ebk_table_pop_dirty(struct ebk_table *table);
/* The dropped range that begins with this id is in no entry log as it is now. EBK_OK or EBK_NO_MEMORY. */
int ebk_table_note_range(struct ebk_table *table, uint64_t id);
/* The ledger is in no range any more. The rest of a range that is not written yet is found by its own id: that of the
 * whole range may be before it. EBK_OK or EBK_NO_MEMORY. */
int ebk_table_cut_out(struct ebk_table *table, uint64_t id);

#endif
