/* tail_path.h: what readers at the end of a ledger cost a bookie with each add: the poll
 * that waits, the hint that ends it, and the answer with the entries (P6.2).
 *
 * As add_path.h, a shortcut, never a second opinion: embedbk/core/lac_answers.py says what
 * becomes of polls and hints, the common ones are taken here, and everything else is
 * passed, its bytes unchanged. There is one list of parked polls (parked.h) and one table:
 * the code that raises a LAC wakes from the same list, so nothing is handed over.
 *
 * One thread, the bookie's loop. Table, store and list are borrowed and must outlive it.
 */
#ifndef EBK_TAIL_PATH_H
#define EBK_TAIL_PATH_H

#include "base/gil.h"
#include "road/parked.h"
#include "store/store.h"
#include "store/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Numbers of embedbk/codec/messages.py. */
enum {
    EBK_KIND_LAC_REQUEST = 7,
    EBK_KIND_LAC_ANSWER = 8,
    EBK_KIND_EXPLICIT_LAC_REQUEST = 9,
    EBK_KIND_EXPLICIT_LAC_ANSWER = 10,
    EBK_TAIL_TOLD_MAX = 4096 /* hints that wait for their answers; more are passed */
};

struct ebk_tail_path;

struct ebk_tail_settings {
    struct ebk_table *table;
    struct ebk_store *store;
    struct ebk_parked *parked;
    uint8_t incarnation[16];
    uint32_t wait_ms_max;  /* a poll waits at most so long */
    uint32_t bytes_max;    /* of entries that come along with a LAC */
    uint64_t room_bytes;   /* that a link must have for them; with less the LAC is sent alone */
};

/* NULL when memory is refused. */
struct ebk_tail_path *ebk_tail_new(const struct ebk_tail_settings *settings);
void ebk_tail_free(struct ebk_tail_path *tail);

/* The loop's clock; and whether anything is taken. Nothing is, before this was said. */
EBK_SHORT void ebk_tail_begin(struct ebk_tail_path *tail, int64_t now_ns, bool is_open);
/* The clock alone. */
EBK_SHORT void ebk_tail_set_now(struct ebk_tail_path *tail, int64_t now_ns);

/* The link of the next answer. Returns 0 when none is due. */
EBK_SHORT int ebk_tail_next(const struct ebk_tail_path *tail, uint64_t *link);
/* Make that answer, for a link with so much room; it is due no more. *message is valid until the next call. May read
 * from an entry log. */
void ebk_tail_make(struct ebk_tail_path *tail, uint64_t room_bytes, const uint8_t **message, size_t *size);
/* A link with a poll that the host counts as not answered, and that was answered here. Returns 0: there is none. */
EBK_SHORT int ebk_tail_settled(struct ebk_tail_path *tail, uint64_t *link);
/* cffi:end */

/* Whether polls are woken here, so that the LAC of a ledger that a reader waits for may be raised. */
bool ebk_tail_is_open(const struct ebk_tail_path *tail);
/* A reader waits for a newer LAC of the ledger, or did lately. */
bool ebk_tail_is_followed(const struct ebk_tail_path *tail, uint64_t ledger_id);
/* When the first poll's time is over; INT64_MAX: never. */
int64_t ebk_tail_deadline(const struct ebk_tail_path *tail);
/* The row's LAC was raised. */
void ebk_tail_wake(struct ebk_tail_path *tail, struct ebk_ledger_row *row);
/* Offer a message without frames. False: it is passed, nothing was changed. */
bool ebk_tail_take(struct ebk_tail_path *tail, uint64_t link, const uint8_t *message, size_t size);

#endif
