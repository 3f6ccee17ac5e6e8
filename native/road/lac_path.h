/* lac_path.h: the LACs of idle writers, of many ledgers in one message (P6.2): durable ones, and hints.
 *
 * As add_path.h, a shortcut, never a second opinion: embedbk/core/lac_answers.py says what
 * becomes of each of them. A message is taken when all in it is common, and passed whole
 * otherwise, its bytes unchanged. None of them is answered.
 *
 * One thread, the bookie's loop; what the terms name is borrowed for the call.
 */
#ifndef EBK_LAC_PATH_H
#define EBK_LAC_PATH_H

#include "journal/journals.h"
#include "road/tail_path.h"
#include "store/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
/* Numbers of embedbk/codec: messages.py, journal_records.py. */
enum {
    EBK_KIND_EXPLICIT_LACS = 16,
    EBK_KIND_LAC_HINTS = 17,
    EBK_RECORD_EXPLICIT_LAC = 3,
    EBK_LAC_BYTES = 40,    /* one LAC among others */
    EBK_LACS_MAX = 256     /* in one message */
};
/* cffi:end */

struct ebk_lac_terms {
    struct ebk_table *table;
    struct ebk_journals *journals;
    struct ebk_tail_path *tail; /* wakes waiting readers; NULL or closed: nothing is taken */
    const uint8_t *incarnation;
    uint32_t slots_kept; /* of the journals' queue */
};

/* This kind of message is offered here. */
bool ebk_is_lacs(int kind);
/* Offer a message of that kind, without frames. *records: how many were queued. False: it is passed, nothing was changed. */
bool ebk_lac_path_take(const struct ebk_lac_terms *terms, const uint8_t *message, size_t size, uint32_t *records);

#endif
