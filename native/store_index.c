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

static uint64_t id_of(const void *ledgers, uint32_t number)
{
    return ((const struct ebk_indexed_ledger *)ledgers)[number].ledger_id;
}

/* The ledger's number, or EBK_ROW_MAP_NONE. */
static uint32_t number_of(const struct ebk_index *index, uint64_t ledger_id)
{
    return ebk_row_map_get(&index->numbers, index->ledgers, id_of, ledger_id);
}

static struct ebk_chain *chains_of(struct ebk_indexed_ledger *ledger)
{
    return ledger->has_many ? ledger->many : &ledger->one;
}

const struct ebk_indexed_ledger *ebk_index_find(const struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = number_of(index, ledger_id);
    return number == EBK_ROW_MAP_NONE ? NULL : &index->ledgers[number];
}

static struct ebk_indexed_ledger *find_or_make(struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = number_of(index, ledger_id);
    if (number != EBK_ROW_MAP_NONE) return &index->ledgers[number];
    if (index->ledger_count == index->ledger_capacity) {
        const uint32_t capacity = index->ledger_capacity ? index->ledger_capacity * 2 : LEDGERS_MIN;
        struct ebk_indexed_ledger *ledgers = realloc(index->ledgers, capacity * sizeof *ledgers);
        if (ledgers == NULL) return NULL;
        index->ledgers = ledgers;
        index->ledger_capacity = capacity;
    }
    if (ebk_row_map_reserve(&index->numbers, index->ledgers, id_of) < 0) return NULL;
    ebk_row_map_add(&index->numbers, index->ledgers, id_of, ledger_id, index->ledger_count);
    struct ebk_indexed_ledger *ledger = &index->ledgers[index->ledger_count++];
    *ledger = (struct ebk_indexed_ledger){.ledger_id = ledger_id};
    return ledger;
}

static struct ebk_chain *chain_for(struct ebk_indexed_ledger *ledger, const struct ebk_run *run)
{
    struct ebk_chain *chains = chains_of(ledger);
    if (ledger->count > 0) {
        struct ebk_chain *newest = &chains[ledger->count - 1];
        if (newest->runs[newest->count - 1].last < run->first) return newest;
        chains = realloc(ledger->has_many ? ledger->many : NULL, (ledger->count + 1) * sizeof *chains);
        if (chains == NULL) return NULL;
        if (!ledger->has_many) chains[0] = ledger->one;
        ledger->many = chains;
        ledger->has_many = true;
    }
    chains[ledger->count] = (struct ebk_chain){0};
    return &chains[ledger->count]; /* Counted by the caller, once it holds a run. */
}

int ebk_index_add(struct ebk_index *index, uint64_t ledger_id, const struct ebk_run *run)
{
    struct ebk_indexed_ledger *ledger = find_or_make(index, ledger_id);
    struct ebk_chain *chain = ledger == NULL ? NULL : chain_for(ledger, run);
    if (chain == NULL) return EBK_NO_MEMORY;
    if (chain->count == chain->capacity) {
        const uint32_t capacity = chain->capacity ? chain->capacity * 2 : 1; /* Most have one. */
        struct ebk_run *runs = realloc(chain->runs, capacity * sizeof *runs);
        if (runs == NULL) return EBK_NO_MEMORY;
        chain->runs = runs;
        chain->capacity = capacity;
    }
    chain->runs[chain->count++] = *run;
    run->log->live_bytes += run->bytes;
    if (chain == &chains_of(ledger)[ledger->count]) ledger->count += 1;
    return EBK_OK;
}

static void let_go(struct ebk_run *run)
{
    EBK_ASSERT(run->log->live_bytes >= run->bytes);
    run->log->live_bytes -= run->bytes;
}

static void free_chains(struct ebk_indexed_ledger *ledger)
{
    for (uint32_t i = 0; i < ledger->count; i++) free(chains_of(ledger)[i].runs);
    if (ledger->has_many) free(ledger->many);
}

void ebk_index_drop(struct ebk_index *index, uint64_t ledger_id)
{
    const uint32_t number = number_of(index, ledger_id);
    if (number == EBK_ROW_MAP_NONE) return;
    struct ebk_indexed_ledger *ledger = &index->ledgers[number], *last = &index->ledgers[index->ledger_count - 1];
    for (uint32_t i = 0; i < ledger->count; i++)
        for (uint32_t j = 0; j < chains_of(ledger)[i].count; j++) let_go(&chains_of(ledger)[i].runs[j]);
    free_chains(ledger);
    ebk_row_map_remove(&index->numbers, index->ledgers, id_of, ledger_id);
    if (ledger != last) { /* The last one takes its place. */
        ebk_row_map_remove(&index->numbers, index->ledgers, id_of, last->ledger_id);
        ebk_row_map_add(&index->numbers, index->ledgers, id_of, last->ledger_id, number);
        *ledger = *last;
    }
    index->ledger_count -= 1;
}

/* Chains without runs go. */
static void drop_empty(struct ebk_indexed_ledger *ledger)
{
    struct ebk_chain *chains = chains_of(ledger);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < ledger->count; i++) {
        if (chains[i].count > 0) chains[kept++] = chains[i];
        else free(chains[i].runs);
    }
    ledger->count = kept;
}

static int compare_runs(const void *a, const void *b)
{
    const struct ebk_run *one = a, *other = b;
    return one->first < other->first ? -1 : one->first > other->first;
}

/* One chain instead of several, where no two runs overlap: a read then walks one. */
static int flatten(struct ebk_indexed_ledger *ledger)
{
    const struct ebk_chain *chains = chains_of(ledger);
    uint32_t total = 0;
    for (uint32_t i = 0; i < ledger->count; i++) total += chains[i].count;
    if (ledger->count < 2) return EBK_OK;
    struct ebk_run *runs = malloc(total * sizeof *runs);
    if (runs == NULL) return EBK_NO_MEMORY;
    uint32_t count = 0;
    for (uint32_t i = 0; i < ledger->count; i++) {
        memcpy(runs + count, chains[i].runs, chains[i].count * sizeof *runs);
        count += chains[i].count;
    }
    qsort(runs, total, sizeof *runs, compare_runs);
    bool is_apart = true;
    for (uint32_t i = 1; i < total; i++) is_apart &= runs[i - 1].last < runs[i].first;
    if (!is_apart) {
        free(runs);
        return EBK_OK;
    }
    free_chains(ledger);
    ledger->count = 1;
    ledger->has_many = false;
    ledger->one = (struct ebk_chain){.runs = runs, .count = total, .capacity = total};
    return EBK_OK;
}

/* Take the runs of old logs out of a ledger; false when there were none. */
static bool take_out(struct ebk_indexed_ledger *ledger, bool (*is_old)(const struct ebk_log *log, const void *context),
                     const void *context)
{
    bool had = false;
    for (uint32_t i = 0; i < ledger->count; i++) {
        struct ebk_chain *chain = &chains_of(ledger)[i];
        uint32_t kept = 0;
        for (uint32_t j = 0; j < chain->count; j++) {
            if (!is_old(chain->runs[j].log, context)) {
                chain->runs[kept++] = chain->runs[j];
                continue;
            }
            let_go(&chain->runs[j]);
            had = true;
        }
        chain->count = kept;
    }
    drop_empty(ledger);
    return had;
}

int ebk_index_replace(struct ebk_index *index, const uint64_t *ledger_ids, uint32_t count,
                      bool (*is_old)(const struct ebk_log *log, const void *context), const void *context,
                      const struct ebk_log *log)
{
    const uint8_t *at = log == NULL ? NULL : log->index, *end = log == NULL ? NULL : at + log->descriptor.index_size;
    /* The new runs go in first, ledger by ledger, so that a refusal of memory leaves no entry without a place. */
    for (uint32_t i = 0; i < count; i++) {
        const struct ebk_indexed_ledger *ledger = ebk_index_find(index, ledger_ids[i]);
        bool had = false;
        for (uint32_t j = 0; ledger != NULL && j < ledger->count; j++) {
            const struct ebk_chain *chain = &ebk_indexed_chains(ledger)[j];
            for (uint32_t k = 0; k < chain->count; k++) had |= is_old(chain->runs[k].log, context);
        }
        for (const uint8_t *next = at; next < end; at = next) {
            struct ebk_run run;
            uint64_t ledger_id;
            const bool is_sound = ebk_run_read(log, &next, end, &ledger_id, &run);
            EBK_ASSERT(is_sound && ledger_id >= ledger_ids[i]);
            if (ledger_id != ledger_ids[i]) break;
            if (had && ebk_index_add(index, ledger_id, &run) < 0) return EBK_NO_MEMORY;
        }
    }
    EBK_ASSERT(at == end);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t number = number_of(index, ledger_ids[i]);
        if (number == EBK_ROW_MAP_NONE) continue;
        struct ebk_indexed_ledger *ledger = &index->ledgers[number];
        (void)take_out(ledger, is_old, context);
        if (ledger->count == 0) ebk_index_drop(index, ledger_ids[i]);
        else (void)flatten(ledger); /* Refused memory: several chains serve as well. */
    }
    return EBK_OK;
}

/* Whether each entry of the run is in one of the chains from `newer` on. */
static bool is_superseded(const struct ebk_indexed_ledger *ledger, uint32_t newer, const struct ebk_run *run)
{
    struct ebk_cursor cursor;
    for (ebk_cursor_over_runs(&cursor, run, 1, run->first); ebk_cursor_has(&cursor); ebk_cursor_next(&cursor)) {
        bool is_held = false;
        for (uint32_t i = newer; i < ledger->count && !is_held; i++) {
            struct ebk_cursor other;
            const struct ebk_chain *chain = &ebk_indexed_chains(ledger)[i];
            ebk_cursor_over_runs(&other, chain->runs, chain->count, cursor.id);
            is_held = ebk_cursor_has(&other) && other.id == cursor.id;
        }
        if (!is_held) return false;
    }
    return true;
}

int ebk_index_prune(struct ebk_index *index)
{
    for (uint32_t i = 0; i < index->ledger_count; i++) {
        struct ebk_indexed_ledger *ledger = &index->ledgers[i];
        for (uint32_t j = 0; j + 1 < ledger->count; j++) {
            struct ebk_chain *chain = &chains_of(ledger)[j];
            uint32_t kept = 0;
            for (uint32_t k = 0; k < chain->count; k++) {
                if (is_superseded(ledger, j + 1, &chain->runs[k])) let_go(&chain->runs[k]);
                else chain->runs[kept++] = chain->runs[k];
            }
            chain->count = kept;
        }
        drop_empty(ledger);
        if (flatten(ledger) < 0) return EBK_NO_MEMORY;
    }
    return EBK_OK;
}

void ebk_index_close(struct ebk_index *index)
{
    for (uint32_t i = 0; i < index->ledger_count; i++) free_chains(&index->ledgers[i]);
    free(index->ledgers);
    ebk_row_map_clear(&index->numbers);
    *index = (struct ebk_index){0};
}
