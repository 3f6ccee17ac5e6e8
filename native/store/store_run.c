/* store_run.c: one run of entries as an index section holds it, and cursors that walk runs or spans in id order.
 *
 * A run's ids are dense, or a pattern of residues (a member's part of a striped ledger),
 * or coded one by one; its sizes are equal, or coded one by one. Behind each other, per
 * entry: the id's distance to the one before (coded ids only, not for the first), then
 * the size's difference to the one before (coded sizes only; the first from 0, zigzag).
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <string.h>

#define VARINT_BYTES_MAX 10u

bool ebk_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < VARINT_BYTES_MAX; i++) {
        if (*at == end) return false;
        const uint8_t byte = *(*at)++;
        sum |= (uint64_t)(byte & 0x7Fu) << (7 * i);
        if (byte < 0x80u) {
            *value = sum;
            return true;
        }
    }
    return false;
}

uint32_t ebk_varint_write(uint8_t *to, uint64_t value)
{
    uint32_t size = 0;
    for (; value >= 0x80u; value >>= 7) to[size++] = (uint8_t)(value | 0x80u);
    to[size++] = (uint8_t)value;
    return size;
}

static int64_t unzigzag(uint64_t value)
{
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1u);
}

static bool has_residue(const struct ebk_run *run, int64_t id)
{
    return (run->residues >> ((uint64_t)id % run->modulus)) & 1u;
}

/* Move to the next entry of the run that the cursor stands in (ordinal 0: onto its first).
 * False when the coded numbers are cut short or impossible; a run that was found sound never gives it. */
static bool step(struct ebk_cursor *cursor, const struct ebk_run *run)
{
    const uint8_t *end = run->coded + run->coded_size;
    uint64_t value;
    if (cursor->ordinal > 0) {
        cursor->offset += cursor->size;
        if (run->modulus == 1) {
            cursor->id += 1;
        } else if (run->modulus > 1) {
            do {
                if (cursor->id >= run->last) return false;
                cursor->id += 1;
            } while (!has_residue(run, cursor->id));
        } else {
            if (!ebk_varint_read(&cursor->coded, end, &value)) return false;
            if (value == 0 || value > (uint64_t)(run->last - cursor->id)) return false;
            cursor->id += (int64_t)value;
        }
    }
    if (run->sizes_equal) return true;
    if (!ebk_varint_read(&cursor->coded, end, &value)) return false;
    const int64_t size = (int64_t)cursor->size + unzigzag(value & UINT32_MAX);
    if (value > UINT32_MAX || size < (int64_t)EBK_ENTRY_OVERHEAD_BYTES ||
        size > (int64_t)(EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX))
        return false;
    cursor->size = (uint32_t)size;
    return true;
}

static bool enter_run(struct ebk_cursor *cursor, const struct ebk_run *run)
{
    cursor->ordinal = 0;
    cursor->coded = run->coded;
    cursor->offset = run->offset;
    cursor->id = run->first;
    cursor->size = run->sizes_equal ? run->bytes / run->count : 0;
    return step(cursor, run);
}

bool ebk_run_is_sound(const struct ebk_run *run)
{
    const uint64_t limit = EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX;
    if (run->count == 0 || run->count > EBK_RUN_ENTRIES_MAX || run->first < 0 || run->last < run->first) return false;
    if (run->modulus > EBK_MODULUS_MAX || run->sizes_equal > 1) return false;
    if (run->modulus >= 1 && !has_residue(run, run->first)) return false;
    const uint64_t average = run->bytes / run->count;
    if (average < EBK_ENTRY_OVERHEAD_BYTES || average > limit) return false;
    if (run->sizes_equal && average * run->count != run->bytes) return false;

    struct ebk_cursor cursor = {.runs = run, .count = 1};
    if (!enter_run(&cursor, run)) return false;
    uint64_t bytes = cursor.size;
    for (cursor.ordinal = 1; cursor.ordinal < run->count; cursor.ordinal++) {
        if (!step(&cursor, run)) return false;
        bytes += cursor.size;
    }
    if (cursor.id != run->last || bytes != run->bytes || cursor.coded != run->coded + run->coded_size) return false;
    return true;
}

bool ebk_run_read(const struct ebk_log *log, const uint8_t **at, const uint8_t *end, uint64_t *ledger_id,
                  struct ebk_run *run)
{
    if ((size_t)(end - *at) < EBK_LOG_RUN_BYTES) return false;
    const uint8_t *head = *at;
    *ledger_id = ebk_load_u64(head);
    *run = (struct ebk_run){
        .first = (int64_t)ebk_load_u64(head + 8),
        .last = (int64_t)ebk_load_u64(head + 16),
        .residues = ebk_load_u64(head + 24),
        .offset = ebk_load_u64(head + 32),
        .coded = head + EBK_LOG_RUN_BYTES,
        .log = (struct ebk_log *)log,
        .bytes = ebk_load_u32(head + 40),
        .count = ebk_load_u32(head + 44),
        .coded_size = ebk_load_u32(head + 48),
        .modulus = head[52],
        .sizes_equal = head[53],
    };
    const size_t tail_bytes = ebk_run_tail_bytes(log->descriptor.version, run->modulus, run->residues);
    if ((uint64_t)run->coded_size + tail_bytes > (size_t)(end - run->coded)) return false;
    if (log->descriptor.version >= EBK_LOG_VERSION) run->digests = (uint8_t *)run->coded + run->coded_size;
    *at = run->coded + run->coded_size + tail_bytes;
    return ebk_run_is_sound(run);
}

static void enter_span(struct ebk_cursor *cursor)
{
    cursor->ordinal = 0;
    cursor->entry = cursor->spans[cursor->at].bytes;
    cursor->id = ebk_cache_entry_id(cursor->entry);
    cursor->size = ebk_cache_entry_size(cursor->entry);
}

static void enter(struct ebk_cursor *cursor)
{
    if (!ebk_cursor_has(cursor)) return;
    if (cursor->spans != NULL) {
        enter_span(cursor);
        return;
    }
    const bool is_sound = enter_run(cursor, &cursor->runs[cursor->at]);
    EBK_ASSERT(is_sound);
}

void ebk_cursor_next(struct ebk_cursor *cursor)
{
    const uint32_t in_it = cursor->spans ? cursor->spans[cursor->at].count : cursor->runs[cursor->at].count;
    cursor->ordinal += 1;
    if (cursor->ordinal == in_it) {
        cursor->at += 1;
        enter(cursor);
    } else if (cursor->spans != NULL) {
        cursor->entry += cursor->size;
        cursor->id = ebk_cache_entry_id(cursor->entry);
        cursor->size = ebk_cache_entry_size(cursor->entry);
    } else {
        const bool is_sound = step(cursor, &cursor->runs[cursor->at]);
        EBK_ASSERT(is_sound);
    }
}

static bool is_dense(const struct ebk_cursor *cursor)
{
    if (cursor->spans == NULL) return cursor->runs[cursor->at].modulus == 1;
    const struct ebk_span *span = &cursor->spans[cursor->at];
    return (uint64_t)(span->last - span->first) + 1 == span->count;
}

int64_t ebk_cursor_block_last(const struct ebk_cursor *cursor)
{
    if (!is_dense(cursor)) return cursor->id;
    return cursor->spans == NULL ? cursor->runs[cursor->at].last : cursor->spans[cursor->at].last;
}

void ebk_cursor_pass_block(struct ebk_cursor *cursor)
{
    if (!is_dense(cursor)) {
        ebk_cursor_next(cursor);
        return;
    }
    ebk_cursor_pass_run(cursor);
}

void ebk_cursor_pass_run(struct ebk_cursor *cursor)
{
    cursor->at += 1;
    enter(cursor);
}

/* Entries that all have one size and no gaps: no need to walk. */
static void jump(struct ebk_cursor *cursor, int64_t first)
{
    const struct ebk_run *run = &cursor->runs[cursor->at];
    if (run->modulus != 1 || !run->sizes_equal || cursor->id >= first) return;
    const uint64_t skipped = (uint64_t)(first - cursor->id);
    cursor->ordinal += (uint32_t)skipped;
    cursor->offset += skipped * cursor->size;
    cursor->id = first;
}

void ebk_cursor_over_spans(struct ebk_cursor *cursor, const struct ebk_span *spans, uint32_t count, int64_t first)
{
    uint32_t low = 0, high = count; /* The first span that ends at `first` or above. */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (spans[middle].last < first) low = middle + 1;
        else high = middle;
    }
    *cursor = (struct ebk_cursor){.spans = spans, .count = count, .at = low};
    enter(cursor);
    while (ebk_cursor_has(cursor) && cursor->id < first) ebk_cursor_next(cursor);
}

void ebk_cursor_over_runs(struct ebk_cursor *cursor, const struct ebk_run *runs, uint32_t count, int64_t first)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (runs[middle].last < first) low = middle + 1;
        else high = middle;
    }
    *cursor = (struct ebk_cursor){.runs = runs, .count = count, .at = low};
    enter(cursor);
    if (ebk_cursor_has(cursor)) jump(cursor, first);
    while (ebk_cursor_has(cursor) && cursor->id < first) ebk_cursor_next(cursor);
}
