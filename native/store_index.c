/* store_index.c: runs of entries by ledger, and cursors that walk them in id order.
 *
 * A run's ids are dense, or a pattern of residues (a member's part of a striped ledger),
 * or coded one by one; its sizes are equal, or coded one by one. Behind each other, per
 * entry: the id's distance to the one before (coded ids only, not for the first), then
 * the size's difference to the one before (coded sizes only; the first from 0, zigzag).
 */
#include "store_inside.h"

#include "errors.h"
#include "frame.h"

#include <stdlib.h>
#include <string.h>

#define CHAIN_RUNS_MIN 4u
#define LEDGERS_MIN 16u
#define VARINT_BYTES_MAX 10u

/* ---- numbers ------------------------------------------------------------------------ */

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

/* ---- one run ------------------------------------------------------------------------ */

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

/* ---- cursors ------------------------------------------------------------------------ */

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

/* ---- the index ---------------------------------------------------------------------- */

const struct ebk_indexed_ledger *ebk_index_find(const struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = ebk_id_map_get(&index->numbers, ledger_id);
    return number == EBK_ID_MAP_NONE ? NULL : &index->ledgers[number];
}

static struct ebk_indexed_ledger *find_or_make(struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = ebk_id_map_get(&index->numbers, ledger_id);
    if (number != EBK_ID_MAP_NONE) return &index->ledgers[number];
    if (index->ledger_count == index->ledger_capacity) {
        const uint32_t capacity = index->ledger_capacity ? index->ledger_capacity * 2 : LEDGERS_MIN;
        struct ebk_indexed_ledger *ledgers = realloc(index->ledgers, capacity * sizeof *ledgers);
        if (ledgers == NULL) return NULL;
        index->ledgers = ledgers;
        index->ledger_capacity = capacity;
    }
    if (ebk_id_map_add(&index->numbers, ledger_id, index->ledger_count) < 0) return NULL;
    struct ebk_indexed_ledger *ledger = &index->ledgers[index->ledger_count++];
    *ledger = (struct ebk_indexed_ledger){.ledger_id = ledger_id};
    return ledger;
}

static struct ebk_chain *chain_for(struct ebk_indexed_ledger *ledger, const struct ebk_run *run)
{
    if (ledger->count > 0) {
        struct ebk_chain *newest = &ledger->chains[ledger->count - 1];
        if (newest->runs[newest->count - 1].last < run->first) return newest;
    }
    struct ebk_chain *chains = realloc(ledger->chains, (ledger->count + 1) * sizeof *chains);
    if (chains == NULL) return NULL;
    ledger->chains = chains;
    ledger->chains[ledger->count] = (struct ebk_chain){0};
    return &ledger->chains[ledger->count]; /* Counted by the caller, once it holds a run. */
}

int ebk_index_add(struct ebk_index *index, uint64_t ledger_id, const struct ebk_run *run)
{
    struct ebk_indexed_ledger *ledger = find_or_make(index, ledger_id);
    struct ebk_chain *chain = ledger == NULL ? NULL : chain_for(ledger, run);
    if (chain == NULL) return EBK_NO_MEMORY;
    if (chain->count == chain->capacity) {
        const uint32_t capacity = chain->capacity ? chain->capacity * 2 : CHAIN_RUNS_MIN;
        struct ebk_run *runs = realloc(chain->runs, capacity * sizeof *runs);
        if (runs == NULL) return EBK_NO_MEMORY;
        chain->runs = runs;
        chain->capacity = capacity;
    }
    chain->runs[chain->count++] = *run;
    run->log->live_bytes += run->bytes;
    if (chain == &ledger->chains[ledger->count]) ledger->count += 1;
    return EBK_OK;
}

static void free_chains(struct ebk_indexed_ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) free(ledger->chains[i].runs);
    free(ledger->chains);
}

void ebk_index_drop(struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = ebk_id_map_get(&index->numbers, ledger_id);
    if (number == EBK_ID_MAP_NONE) return;
    struct ebk_indexed_ledger *ledger = &index->ledgers[number], *last = &index->ledgers[index->ledger_count - 1];
    for (uint32_t i = 0; i < ledger->count; i++)
        for (uint32_t j = 0; j < ledger->chains[i].count; j++) {
            struct ebk_run *run = &ledger->chains[i].runs[j];
            EBK_ASSERT(run->log->live_bytes >= run->bytes);
            run->log->live_bytes -= run->bytes;
        }
    free_chains(ledger);
    ebk_id_map_remove(&index->numbers, ledger_id);
    if (ledger != last) { /* The last one takes its place. */
        *ledger = *last;
        index->numbers.slots[ebk_id_map_slot(&index->numbers, ledger->ledger_id)].number = number;
    }
    index->ledger_count -= 1;
}

void ebk_index_close(struct ebk_index *index)
{
    for (uint32_t i = 0; i < index->ledger_count; i++) free_chains(&index->ledgers[i]);
    free(index->ledgers);
    ebk_id_map_clear(&index->numbers);
    *index = (struct ebk_index){0};
}
