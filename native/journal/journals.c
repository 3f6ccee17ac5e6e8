/* journals.c: several journals behind one count of tokens.
 *
 * A ring has, for each token that is not durable yet, the journal that it went to; beside it stands how far each journal
 * was at the newest durable token. Acknowledgements come in the order of tokens: otherwise a token alone would not show
 * what is durable, and everything that compares one (core, add path, table, log mark) would need a vector instead.
 */
#include "journal/journals.h"

#include "base/errors.h"
#include "base/id_map.h"

#include <stdlib.h>

#define RING (EBK_JOURNAL_SLOT_COUNT)

_Static_assert((RING & (RING - 1)) == 0, "places in the ring are tokens, masked");
_Static_assert(EBK_JOURNALS_MAX <= UINT8_MAX, "a journal's number is one byte of the ring");

struct part {
    struct ebk_journal *journal;
    uint64_t mark; /* own token of its last record at or below `durable` */
    bool is_unkicked;
};

struct ebk_journals {
    uint32_t count;
    uint64_t next_token, durable; /* of all; not used with one journal */
    struct part parts[EBK_JOURNALS_MAX];
    uint8_t owners[RING]; /* of the tokens behind durable: which journal */
};

struct ebk_journals *ebk_journals_new(struct ebk_journal *const *parts, uint32_t count)
{
    if (count == 0 || count > EBK_JOURNALS_MAX) return NULL;
    struct ebk_journals *journals = calloc(1, sizeof *journals);
    if (journals == NULL) return NULL;
    journals->count = count;
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t mark = ebk_journal_next_token(parts[i]) - 1;
        journals->parts[i] = (struct part){.journal = parts[i], .mark = mark};
        journals->durable += mark;
    }
    journals->next_token = journals->durable + 1;
    return journals;
}

void ebk_journals_free(struct ebk_journals *journals)
{
    free(journals);
}

/* ---- queueing ------------------------------------------------------------------------- */

uint32_t ebk_journals_part(const struct ebk_journals *journals, uint64_t ledger_id)
{
    return journals->count == 1 ? 0 : ebk_id_map_hash(ledger_id) % journals->count;
}

uint64_t ebk_journals_note(struct ebk_journals *journals, uint32_t part)
{
    EBK_ASSERT(part < journals->count);
    journals->parts[part].is_unkicked = true;
    if (journals->count == 1) return ebk_journal_next_token(journals->parts[0].journal) - 1;
    EBK_ASSERT(journals->next_token - 1 - journals->durable < RING);
    EBK_ASSERT(journals->durable < journals->next_token);
    journals->owners[journals->next_token & (RING - 1)] = (uint8_t)part;
    return journals->next_token++;
}

bool ebk_journals_has_room(struct ebk_journals *journals, uint32_t kept)
{
    const uint64_t last = ebk_journals_next_token(journals) - 1, durable = ebk_journals_durable(journals);
    EBK_ASSERT(kept < RING && durable <= last && last - durable <= RING);
    return last - durable < RING - kept;
}

/* A record was queued in this journal; returns its token over all. With one journal that is its own token. */
static int64_t noted(struct ebk_journals *journals, uint32_t part, int64_t own)
{
    EBK_ASSERT(own > 0 && part < journals->count);
    if (journals->count > 1) return (int64_t)ebk_journals_note(journals, part);
    journals->parts[0].is_unkicked = true;
    return own;
}

int64_t ebk_journals_submit(struct ebk_journals *journals, uint32_t kind, uint64_t ledger_id, const void *head,
                            size_t head_size, const void *tail, size_t tail_size)
{
    if (journals->count > 1 && !ebk_journals_has_room(journals, 0)) return EBK_FULL;
    const uint32_t part = ebk_journals_part(journals, ledger_id);
    EBK_ASSERT(part < journals->count);
    const int64_t own =
        ebk_journal_submit(journals->parts[part].journal, kind, ledger_id, head, head_size, tail, tail_size);
    return own < 0 ? own : noted(journals, part, own);
}

int64_t ebk_journals_submit_copy(struct ebk_journals *journals, uint32_t kind, uint64_t ledger_id, const void *data,
                                 size_t size)
{
    if (journals->count > 1 && !ebk_journals_has_room(journals, 0)) return EBK_FULL;
    const uint32_t part = ebk_journals_part(journals, ledger_id);
    const int64_t own = ebk_journal_submit_copy(journals->parts[part].journal, kind, ledger_id, data, size);
    return own < 0 ? own : noted(journals, part, own);
}

void ebk_journals_kick(struct ebk_journals *journals)
{
    for (uint32_t i = 0; i < journals->count; i++) {
        if (!journals->parts[i].is_unkicked) continue;
        journals->parts[i].is_unkicked = false;
        ebk_journal_kick(journals->parts[i].journal);
    }
}

/* ---- durability ----------------------------------------------------------------------- */

/* own: how far each journal is by itself. */
static uint64_t advance(struct ebk_journals *journals, const uint64_t *own)
{
    const uint64_t before = journals->durable;
    while (journals->durable + 1 < journals->next_token) {
        const uint32_t owner = journals->owners[(journals->durable + 1) & (RING - 1)];
        EBK_ASSERT(owner < journals->count && journals->parts[owner].mark <= own[owner]);
        if (journals->parts[owner].mark == own[owner]) break; /* Its record is not durable: nothing behind it counts. */
        journals->parts[owner].mark += 1;
        journals->durable += 1;
    }
    EBK_ASSERT(before <= journals->durable && journals->durable < journals->next_token);
    return journals->durable;
}

uint64_t ebk_journals_durable(struct ebk_journals *journals)
{
    uint64_t own[EBK_JOURNALS_MAX];
    if (journals->count == 1) return journals->parts[0].mark = ebk_journal_durable(journals->parts[0].journal);
    for (uint32_t i = 0; i < journals->count; i++) own[i] = ebk_journal_durable(journals->parts[i].journal);
    return advance(journals, own);
}

uint64_t ebk_journals_reap(struct ebk_journals *journals)
{
    uint64_t own[EBK_JOURNALS_MAX];
    if (journals->count == 1) return journals->parts[0].mark = ebk_journal_reap(journals->parts[0].journal);
    for (uint32_t i = 0; i < journals->count; i++) own[i] = ebk_journal_reap(journals->parts[i].journal);
    return advance(journals, own);
}

uint64_t ebk_journals_mark(const struct ebk_journals *journals, uint32_t part)
{
    EBK_ASSERT(part < journals->count);
    return journals->parts[part].mark;
}

uint64_t ebk_journals_own(const struct ebk_journals *journals, uint32_t part, uint64_t token)
{
    EBK_ASSERT(part < journals->count && token < ebk_journals_next_token(journals));
    if (journals->count == 1) return token;
    uint64_t own = journals->parts[part].mark;
    for (uint64_t each = journals->durable + 1; each <= token; each++)
        own += journals->owners[each & (RING - 1)] == part;
    EBK_ASSERT(own >= journals->parts[part].mark && own < ebk_journal_next_token(journals->parts[part].journal));
    return own;
}

/* ---- facts ---------------------------------------------------------------------------- */

uint64_t ebk_journals_next_token(const struct ebk_journals *journals)
{
    return journals->count == 1 ? ebk_journal_next_token(journals->parts[0].journal) : journals->next_token;
}

uint64_t ebk_journals_queued_bytes(const struct ebk_journals *journals)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < journals->count; i++) bytes += ebk_journal_queued_bytes(journals->parts[i].journal);
    return bytes;
}

int ebk_journals_failure(struct ebk_journals *journals, struct ebk_journal_fault *fault)
{
    for (uint32_t i = 0; i < journals->count; i++) {
        const int code = ebk_journal_failure(journals->parts[i].journal, fault);
        if (code != EBK_OK) return code;
    }
    return EBK_OK;
}

int ebk_journals_event(const struct ebk_journals *journals, uint32_t part)
{
    return part < journals->count ? ebk_journal_event(journals->parts[part].journal) : -1;
}
