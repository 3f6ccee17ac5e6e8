/* table.h: one row per ledger that a bookie knows, shared by add path and core.
 *
 * Memory only, one thread: the bookie's loop. A row stays where it is until the ledger
 * was dropped and is retired, between two steps of the core. embedbk/core/bookie.py gives
 * rows their meaning; the plain Python form of this file, with the layout of the
 * stored states, is embedbk/core/ledger_table.py.
 */
#ifndef EBK_TABLE_H
#define EBK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

#define EBK_KEY_BYTES 16
/* Bytes of one stored state: embedbk/storage/STORAGE.md. */
#define EBK_STATE_BYTES 56

/* cffi:begin */
struct ebk_ledger_row {
    uint64_t ledger_id;
    int64_t last_entry;  /* highest entry id accepted since it was dropped, if it was; -1 before the first */
    int64_t lac;         /* with lac_length a pair that never falls; -1: nothing confirmed */
    uint64_t lac_length;
    uint64_t last_token; /* journal token of the last record queued for the ledger; 0: none since start */
    uint8_t key[16];     /* valid when has_key */
    uint8_t is_fenced, in_limbo, is_dropped;
    uint8_t has_key : 1;
    uint8_t is_awaited : 1; /* a reader may wait for a newer LAC: notify the core when it rises */
    uint32_t dirty_next; /* the table's own: 0 while the row is clean; ebk_table_mark_dirty() */
};
struct ebk_table;

/* An empty table for at most ledgers_max ledgers (1 to 2^30), and a reserve of a sixteenth for those that must not be
 * refused. NULL when memory is refused. */
struct ebk_table *ebk_table_new(uint32_t ledgers_max);
void ebk_table_free(struct ebk_table *table);

/* Find the row of a ledger: EBK_OK with *row, NULL for one that was never heard of. A ledger of the dropped ranges gets
 * a row again (fenced, in limbo, dropped) until it is retired; EBK_FULL or EBK_NO_MEMORY when there is none left. */
EBK_SHORT int ebk_table_get(struct ebk_table *table, uint64_t ledger_id, struct ebk_ledger_row **row);
/* A new row; the ledger has none yet. Returns EBK_OK; EBK_FULL at ledgers_max, or with from_reserve when the reserve
 * is used up too; or EBK_NO_MEMORY. */
EBK_SHORT int ebk_table_create(struct ebk_table *table, uint64_t ledger_id, bool from_reserve,
                               struct ebk_ledger_row **row);
/* Whether the ledger was dropped, by its row or its range. */
EBK_SHORT bool ebk_table_is_dropped(const struct ebk_table *table, uint64_t ledger_id);
/* The row changed since its state was last taken. */
EBK_SHORT void ebk_table_mark_dirty(struct ebk_table *table, struct ebk_ledger_row *row);

/* One number for several ledgers: first + i for each bit i of mask (bit i % 8 of byte i / 8). It is another one, but for a
 * chance of 2^-64, once a record was queued for one of them, or one was dropped, or with another seed. *last_token: the
 * highest of their last tokens. Makes no row. */
uint64_t ebk_table_number(const struct ebk_table *table, uint64_t first, const uint8_t *mask, uint32_t mask_bytes,
                          uint64_t seed, uint64_t *last_token);

EBK_SHORT uint32_t ebk_table_count(const struct ebk_table *table);
/* All ledger ids that have a row, ascending; room is for ebk_table_count() of them. */
void ebk_table_ids(const struct ebk_table *table, uint64_t *ids);
/* Those in limbo and not dropped, ascending, at most `room`; returns how many there are. */
uint32_t ebk_table_limbo(const struct ebk_table *table, uint64_t *ids, uint32_t room);
/* Bytes that the table holds from the system. */
size_t ebk_table_resident(const struct ebk_table *table);

/* Dropped ledgers whose record (last_token) is durable leave their rows and become part of the dropped ranges, where
 * they stay fenced, in limbo and without data for ever. Pointers to their rows are invalid then. Looks at dirty rows
 * only. Returns EBK_OK or EBK_NO_MEMORY (the rest keep their rows). */
int ebk_table_retire(struct ebk_table *table, uint64_t durable);
/* The ledgers from first to last that have no row are dropped: fenced, in limbo and without data for ever. EBK_OK or
 * EBK_NO_MEMORY (some may be dropped then). */
int ebk_table_drop_range(struct ebk_table *table, uint64_t first, uint64_t last);
/* Ranges of dropped ledgers that have no rows. */
EBK_SHORT uint32_t ebk_table_range_count(const struct ebk_table *table);
/* ebk_table_range_count() pairs (first, last), ascending. */
void ebk_table_ranges(const struct ebk_table *table, uint64_t *bounds);

/* At most so many states will be taken; what a row that came back cuts off its range is one, too. */
EBK_SHORT uint32_t ebk_table_dirty_count(const struct ebk_table *table);
/* Pack the states of the dirty rows and ranges, by ascending ledger id, a range before a row; they are clean then.
 * Room is for ebk_table_dirty_count() states. Returns how many were packed, or EBK_NO_MEMORY (nothing taken). */
int64_t ebk_table_take_dirty(struct ebk_table *table, uint8_t *states);
/* Make the ledgers of these stored states dirty, so that their newest states are taken next. EBK_OK or EBK_NO_MEMORY. */
int ebk_table_touch(struct ebk_table *table, const uint8_t *states, size_t count);
/* Take count stored states in. Returns EBK_OK; EBK_DAMAGED when one is impossible (nothing was taken in);
 * EBK_FULL or EBK_NO_MEMORY (those before were taken in). */
int ebk_table_load(struct ebk_table *table, const uint8_t *states, size_t count);
/* cffi:end */

/* The row that the ledger has now, or NULL; nothing is made for a dropped one. */
struct ebk_ledger_row *ebk_table_find(const struct ebk_table *table, uint64_t ledger_id);

#endif
