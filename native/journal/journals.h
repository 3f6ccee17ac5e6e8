/* journals.h: the journals of one bookie as one sequence of tokens.
 *
 * Each journal has records, a device and threads of its own, and makes its records durable in its own order. A record
 * goes to the journal of its ledger, so all of one ledger, its fences too, stay in order and in one place. Over all of
 * them counts one token: the n-th record that was queued has token n, whatever journal it is in. A journal gives out its
 * own tokens densely, so the token of a record is the sum of what all journals have given out with it, also across
 * restarts; with one journal both are the same.
 *
 *     journal 1   1   .   2   .   .   3       own tokens
 *     journal 2   .   1   .   2   3   .
 *     token       1   2   3   4   5   6       durable: the largest one up to which every journal is through
 *
 * One thread, the bookie's loop. The journals are borrowed and must outlive this.
 */
#ifndef EBK_JOURNALS_H
#define EBK_JOURNALS_H

#include "base/gil.h"
#include "journal/journal.h"

#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define EBK_JOURNALS_MAX 16

struct ebk_journals;

/* Everything in them is durable and was replayed. NULL when memory is refused, or for more than EBK_JOURNALS_MAX. */
struct ebk_journals *ebk_journals_new(struct ebk_journal *const *parts, uint32_t count);
void ebk_journals_free(struct ebk_journals *journals);

/* The journal that a ledger's records go to; always the same one. */
EBK_SHORT uint32_t ebk_journals_part(const struct ebk_journals *journals, uint64_t ledger_id);
/* A record was queued in this one by other means: its token. Only when one has room (ebk_journals_has_room()). */
EBK_SHORT uint64_t ebk_journals_note(struct ebk_journals *journals, uint32_t part);
/* Room for more than `kept` records: EBK_JOURNAL_SLOT_COUNT wait at most, in all journals together. */
EBK_SHORT bool ebk_journals_has_room(struct ebk_journals *journals, uint32_t kept);
/* As ebk_journal_submit(), to the journal of the ledger. */
EBK_SHORT int64_t ebk_journals_submit(struct ebk_journals *journals, uint32_t kind, uint64_t ledger_id, const void *head,
                                      size_t head_size, const void *tail, size_t tail_size);
/* As ebk_journal_submit_copy(), to the journal of the ledger. */
EBK_SHORT int64_t ebk_journals_submit_copy(struct ebk_journals *journals, uint32_t kind, uint64_t ledger_id, const void *data,
                                           size_t size);
/* Wake the commit threads of those that got something since the last time. */
EBK_SHORT void ebk_journals_kick(struct ebk_journals *journals);

/* Every record up to this token is durable. Never falls. A journal that is slow holds the others back. */
EBK_SHORT uint64_t ebk_journals_durable(struct ebk_journals *journals);
/* As durable; also clears the event descriptors and asks for them to be set by the next groups. */
EBK_SHORT uint64_t ebk_journals_reap(struct ebk_journals *journals);
/* The last answer of `durable`, as the own token of one journal: its mark (I45). */
EBK_SHORT uint64_t ebk_journals_mark(const struct ebk_journals *journals, uint32_t part);
/* The own token of the last record of one journal among those up to `token`, which was given out. */
EBK_SHORT uint64_t ebk_journals_own(const struct ebk_journals *journals, uint32_t part, uint64_t token);

EBK_SHORT uint64_t ebk_journals_next_token(const struct ebk_journals *journals);
EBK_SHORT uint64_t ebk_journals_queued_bytes(const struct ebk_journals *journals);
/* As ebk_journal_event(), of one of them; -1 for one that is not there. */
EBK_SHORT int ebk_journals_event(const struct ebk_journals *journals, uint32_t part);
/* EBK_OK while all work; else the code of one that does not, with *fault set: then none of them is to be used (P7.6). */
EBK_SHORT int ebk_journals_failure(struct ebk_journals *journals, struct ebk_journal_fault *fault);
/* cffi:end */

#endif
