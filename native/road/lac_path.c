/* lac_path.c: looks at every LAC of a message, then raises the row of each, and queues a record unless it is a hint.
 *
 *     message | header 32 | control: incarnation, LACs | ledger, lac, length, key | ...
 */
#include "road/lac_path.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/message_reader.h"

#include <string.h>

#define RECORD_BYTES 16u
#define AT_LEDGER 0
#define AT_LAC 8
#define AT_LENGTH 16
#define AT_KEY 24

_Static_assert(AT_KEY + EBK_KEY_BYTES == EBK_LAC_BYTES, "the key is the last field");

/* ExplicitLacs, LacHints: [incarnation, LACs], for this incarnation. NULL: it is not; else the LACs. */
static const uint8_t *read_lacs(const struct ebk_lac_terms *terms, struct ebk_message *message, uint32_t *count)
{
    struct ebk_control *const control = &message->control;
    const unsigned fields = ebk_read_array(control);
    ebk_read_incarnation(control, terms->incarnation);
    const uint8_t *const lacs = ebk_read_records(control, EBK_LAC_BYTES, count);
    return message->frame_count == 0 && fields == 2 && ebk_control_is_read(control) && *count <= EBK_LACS_MAX ? lacs : NULL;
}

/* The row says that the core would take it. */
static struct ebk_ledger_row *common_row(const struct ebk_lac_terms *terms, const uint8_t *from)
{
    const uint64_t ledger_id = ebk_load_u64(from + AT_LEDGER);
    if (ledger_id > INT64_MAX || ebk_load_u64(from + AT_LAC) > (uint64_t)EBK_LAC_MAX || ebk_load_u64(from + AT_LENGTH) > INT64_MAX) return NULL;
    struct ebk_ledger_row *row = ebk_table_find(terms->table, ledger_id);
    const bool is_common = row != NULL && row->has_key && memcmp(row->key, from + AT_KEY, EBK_KEY_BYTES) == 0 &&
                           !row->is_fenced && !row->in_limbo && !row->is_dropped;
    return is_common ? row : NULL;
}

bool ebk_is_lacs(int kind)
{
    return kind == EBK_KIND_EXPLICIT_LACS || kind == EBK_KIND_LAC_HINTS;
}

bool ebk_lac_path_take(const struct ebk_lac_terms *terms, const uint8_t *message, size_t size, uint32_t *records)
{
    uint32_t count;
    *records = 0;
    if (terms->tail == NULL || !ebk_tail_is_open(terms->tail)) return false;
    struct ebk_message read;
    if (!ebk_message_read(message, size, 0, &read)) return false;
    const uint8_t *const lacs = read_lacs(terms, &read, &count);
    if (lacs == NULL) return false;
    EBK_ASSERT(ebk_is_lacs(read.kind));
    const bool are_hints = read.kind == EBK_KIND_LAC_HINTS;
    if (!are_hints && !ebk_journals_has_room(terms->journals, terms->slots_kept + count)) return false;
    for (uint32_t i = 0; i < count; i++)
        if (common_row(terms, lacs + (size_t)i * EBK_LAC_BYTES) == NULL) return false;
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *const from = lacs + (size_t)i * EBK_LAC_BYTES;
        struct ebk_ledger_row *row = common_row(terms, from);
        const int64_t lac = (int64_t)ebk_load_u64(from + AT_LAC);
        if (lac < row->lac) continue; /* An older one says nothing. One that is known may be so by a hint only. */
        if (!are_hints) {
            const int64_t token = ebk_journals_submit_copy(terms->journals, EBK_RECORD_EXPLICIT_LAC, row->ledger_id,
                                                           from + AT_LAC, RECORD_BYTES);
            /* Refused only by a journal that has failed: nothing of it counts any more, and nothing was promised. */
            if (token < 0) return true;
            EBK_ASSERT((uint64_t)token > row->last_token);
            row->last_token = (uint64_t)token;
            ebk_table_mark_dirty(terms->table, row);
            *records += 1;
        }
        if (lac == row->lac) continue;
        row->lac = lac;
        row->lac_length = ebk_load_u64(from + AT_LENGTH);
        ebk_tail_wake(terms->tail, row);
    }
    return true;
}
