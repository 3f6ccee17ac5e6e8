/* table.h: one row per ledger that a bookie knows, shared by add path and core.
 *
 * Memory only, one thread: the bookie's loop. Rows stay where they are until the table
 * is freed, so that both sides may hold on to them. What a row means is decided in
 * embedbk/core/bookie.py; the plain Python form of this file, with the layout of the
 * stored states, is embedbk/core/ledger_table.py.
 */
#ifndef EBK_TABLE_H
#define EBK_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "gil.h"

#define EBK_KEY_BYTES 16
/* Bytes of one stored state: embedbk/storage/STORAGE.md. */
#define EBK_STATE_BYTES 56

/* cffi:begin */
struct ebk_ledger_row {
    uint64_t ledger_id;
    int64_t last_entry;  /* highest entry id accepted; -1 before the first */
    int64_t lac;         /* with lac_length a pair that never falls; -1: nothing confirmed */
    uint64_t lac_length;
    uint64_t last_token; /* journal token of the last record queued for the ledger; 0: none since start */
    uint8_t key[16];     /* valid when has_key */
    uint8_t is_fenced, in_limbo, is_dropped, has_key, is_dirty;
    uint8_t reserved[3];
};
struct ebk_table;

/* An empty table for at most ledgers_max ledgers (1 to 2^30). NULL when memory is refused. */
struct ebk_table *ebk_table_new(uint32_t ledgers_max);
void ebk_table_free(struct ebk_table *table);

/* The row of a ledger, or NULL. */
EBK_SHORT struct ebk_ledger_row *ebk_table_get(const struct ebk_table *table, uint64_t ledger_id);
/* A new row; the ledger has none yet. Returns EBK_OK, EBK_FULL at ledgers_max, or EBK_NO_MEMORY. */
EBK_SHORT int ebk_table_create(struct ebk_table *table, uint64_t ledger_id, struct ebk_ledger_row **row);

EBK_SHORT uint32_t ebk_table_count(const struct ebk_table *table);
/* All ledger ids, ascending; room is for ebk_table_count() of them. */
void ebk_table_ids(const struct ebk_table *table, uint64_t *ids);
/* Bytes that the table holds from the system. */
size_t ebk_table_resident(const struct ebk_table *table);

/* How many rows are dirty. */
EBK_SHORT uint32_t ebk_table_dirty_count(const struct ebk_table *table);
/* Pack the states of the dirty rows, by ascending ledger id, and make the rows clean.
 * Room is for ebk_table_dirty_count() states. Returns EBK_OK or EBK_NO_MEMORY (nothing taken). */
int ebk_table_take_dirty(struct ebk_table *table, uint8_t *states);
/* Take count stored states in. Returns EBK_OK; EBK_DAMAGED when one is impossible (nothing was taken in);
 * EBK_FULL or EBK_NO_MEMORY (those before were taken in). */
int ebk_table_load(struct ebk_table *table, const uint8_t *states, size_t count);
/* cffi:end */

#endif
