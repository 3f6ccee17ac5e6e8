/* add_path.h: the common add of a bookie, from the message to its answer (P3.2, P3.4, P3.7).
 *
 * A shortcut, never a second opinion: it takes an add where embedbk/core/add_storing.py
 * would store it and answer OK when it is durable, and passes everything else, its
 * bytes unchanged. What "common" means, and why each check is enough, is in
 * native/SHORTCUTS.md.
 *
 *     take ─▶ write cache, journal, row ─▶ pending ┐ in the order of journal tokens
 *     reap(durable) ─▶ answers, one message a link ◀┘
 *
 * One thread, the bookie's loop, as table and store. Table, store and journals are
 * borrowed and must outlive it. The formats are embedbk/codec/WIRE.md 1 to 3.
 */
#ifndef EBK_ADD_PATH_H
#define EBK_ADD_PATH_H

#include "base/gil.h"
#include "journal/journals.h"
#include "road/tail_path.h"
#include "store/store.h"
#include "store/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
enum {
    EBK_ADD_PASSED = 0, /* not changed, not understood, not common: the core's */
    EBK_ADD_TAKEN = 1   /* stored and queued, its answer is pending; or taken by tail_path.h, lac_path.h */
};
/* Numbers of embedbk/codec: messages.py, journal_records.py. */
enum {
    EBK_KIND_ADD_REQUEST = 1,
    EBK_KIND_ADD_ANSWER = 2,
    EBK_KIND_ADD_ANSWERS = 12,
    EBK_RECORD_FRAME = 1,
    EBK_ADD_ANSWER_BYTES = 56,      /* one answer among several */
    EBK_ADD_ANSWERS_MAX = 16384,    /* in one message */
    EBK_ADD_PENDING_MAX = 65536,    /* taken and not told yet; more are passed */
    EBK_ADD_SLOTS_KEPT = 1024       /* of the journal's queue, for what is no normal add (P7.8) */
};

struct ebk_add_path;

struct ebk_add_path_settings {
    struct ebk_table *table;
    struct ebk_store *store;
    struct ebk_journals *journals;
    struct ebk_tail_path *tail; /* polls and hints are offered to it, and it wakes readers; NULL: the core does */
    uint8_t incarnation[16];
    uint64_t cache_bytes_max; /* of the active half of the write cache: a frame beyond is passed */
    uint64_t kick_bytes;      /* the commit thread is woken when so much was queued since the last kick */
};

/* NULL when memory is refused. */
struct ebk_add_path *ebk_add_path_new(const struct ebk_add_path_settings *settings);
void ebk_add_path_free(struct ebk_add_path *path);

/* Offer one message, `head` then `tail` (which may be empty; else it is the body of its frame and head the rest).
 * Both are borrowed for the call. Returns EBK_ADD_TAKEN, or EBK_ADD_PASSED: nothing was changed. */
EBK_SHORT
int ebk_add_path_take(struct ebk_add_path *path, uint64_t link, const uint8_t *head, size_t head_size,
                      const uint8_t *tail, size_t tail_size);

/* Wake the commit thread for what was taken since the last kick. Once per turn. */
EBK_SHORT void ebk_add_path_kick(struct ebk_add_path *path);

/* Everything up to `durable` can be answered. Returns how many answers are due in all. */
EBK_SHORT uint32_t ebk_add_path_reap(struct ebk_add_path *path, uint64_t durable);
/* Nothing pending will ever be durable (P7.6): it is answered `status`, and nothing is taken any more. */
EBK_SHORT uint32_t ebk_add_path_stop(struct ebk_add_path *path, uint8_t status);
/* The next message of what is due; *message is valid until the next call. *answers: how many stand in it.
 * Returns 0 when nothing is due; links come in the order of their first answer. */
EBK_SHORT
int ebk_add_path_next(struct ebk_add_path *path, uint64_t *link, uint32_t *answers, const uint8_t **message,
                      size_t *size);

/* The journal as it is now: what is durable, whether it failed; clear its event descriptor, which the next change sets.
 * */
EBK_SHORT uint64_t ebk_add_path_durable(const struct ebk_add_path *path);
EBK_SHORT int ebk_add_path_has_failed(const struct ebk_add_path *path);
EBK_SHORT void ebk_add_path_clear(struct ebk_add_path *path);

EBK_SHORT uint32_t ebk_add_path_pending(const struct ebk_add_path *path);
EBK_SHORT uint64_t ebk_add_path_records(const struct ebk_add_path *path); /* queued ever: frames, and LACs (lac_path.h) */
/* What they are in the journal: their bytes, and what a record costs beside. */
EBK_SHORT uint64_t ebk_add_path_bytes(const struct ebk_add_path *path);
/* cffi:end */

#define EBK_FRAME_BYTES_MAX ((1u << 20) + (64u << 10))

/* The parts of an add that decide. Key and body are borrowed. */
struct ebk_add {
    uint64_t request_id, nonce, seating;
    uint64_t ledger_id, lac_length;
    int64_t first, last, lac;
    uint32_t count, body_size;
    bool has_lac;
    const uint8_t *key, *body;
};

/* `take` in parts, for a caller that has an add without its message (seat.c). The row says that the core would store
 * it. */
bool ebk_add_path_is_common(const struct ebk_add_path *path, const struct ebk_add *add);
/* Room in the write cache and in the journal's queue. */
bool ebk_add_path_has_room(const struct ebk_add_path *path, uint32_t body_size);
/* Wants an add that is common and has room: check its digests, store and queue it. Nothing is pending for it: it is
 * durable when the journal is, up to the token that is returned; 0: refused, as by a digest. */
uint64_t ebk_add_path_store(struct ebk_add_path *path, const struct ebk_add *add);
/* What answers readers, or NULL. */
struct ebk_tail_path *ebk_add_path_tail(const struct ebk_add_path *path);
/* The descriptor of a journal whose tokens `store` gives, -1 for one that is not there. */
int ebk_add_path_event(const struct ebk_add_path *path, uint32_t part);

#endif
