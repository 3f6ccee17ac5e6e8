/* store_index.c: runs of entries by ledger: in which logs the entries of a ledger are, and what an index section adds. */
#include "store/store_inside.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

#define LEDGERS_MIN 16u

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
    EBK_ASSERT(index->ledger_count <= index->ledger_capacity && index->numbers.count == index->ledger_count);
    return ledger;
}

static struct ebk_chain *chain_for(struct ebk_indexed_ledger *ledger, const struct ebk_run *run)
{
    struct ebk_chain *chains = chains_of(ledger);
    if (ledger->count > 0) {
        struct ebk_chain *newest = &chains[ledger->count - 1];
        EBK_ASSERT(newest->count > 0);
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
    EBK_ASSERT(run->count > 0 && run->first <= run->last && run->log != NULL);
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
    EBK_ASSERT(chain->count < chain->capacity);
    EBK_ASSERT(chain->count == 0 || chain->runs[chain->count - 1].last < run->first);
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
    EBK_ASSERT(number < index->ledger_count);
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
    EBK_ASSERT(index->numbers.count == index->ledger_count);
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

/* Forget the ledger's runs whose entries are all in newer logs, and have as few chains as possible. */
static int settle(struct ebk_indexed_ledger *ledger)
{
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
    return flatten(ledger);
}

int ebk_index_prune(struct ebk_index *index)
{
    for (uint32_t i = 0; i < index->ledger_count; i++)
        if (settle(&index->ledgers[i]) < 0) return EBK_NO_MEMORY;
    return EBK_OK;
}

/* ---- runs that come late ------------------------------------------------------------------ */

/* The first run of the chain that ends at `id` or above; count when there is none. */
static uint32_t first_from(const struct ebk_chain *chain, int64_t id)
{
    uint32_t low = 0, high = chain->count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (chain->runs[middle].last < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Whether they ascend, and nothing of them is in the chain: then it does not matter which is newer. */
static bool are_apart(const struct ebk_chain *chain, const struct ebk_run *runs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t at = first_from(chain, runs[i].first);
        if (at < chain->count && chain->runs[at].first <= runs[i].last) return false;
        if (i > 0 && runs[i].first <= runs[i - 1].last) return false;
    }
    return true;
}

static int merge(struct ebk_chain *chain, const struct ebk_run *runs, uint32_t count)
{
    if (chain->count + count > chain->capacity) {
        const uint32_t needed = chain->count + count, capacity = chain->capacity * 2 > needed ? chain->capacity * 2 : needed;
        struct ebk_run *more = realloc(chain->runs, capacity * sizeof *more);
        if (more == NULL) return EBK_NO_MEMORY;
        chain->runs = more;
        chain->capacity = capacity;
    }
    uint32_t left = chain->count;
    for (uint32_t i = count; i > 0; i--) { /* From behind, so that each of the others moves once. */
        const uint32_t at = first_from(&(struct ebk_chain){.runs = chain->runs, .count = left}, runs[i - 1].first);
        memmove(chain->runs + at + i, chain->runs + at, (left - at) * sizeof *chain->runs);
        chain->runs[at + i - 1] = runs[i - 1];
        /* Whichever stands behind it stands where it stays. */
        EBK_ASSERT(at == 0 || chain->runs[at - 1].last < runs[i - 1].first);
        EBK_ASSERT(at + i == chain->count + count || runs[i - 1].last < chain->runs[at + i].first);
        left = at;
    }
    chain->count += count;
    EBK_ASSERT(chain->count <= chain->capacity);
    return EBK_OK;
}

static int compare_ages(const void *a, const void *b)
{
    const struct ebk_run *one = a, *other = b;
    const uint32_t one_id = one->log->descriptor.log_id, other_id = other->log->descriptor.log_id;
    if (one_id != other_id) return one_id < other_id ? -1 : 1;
    return one->offset < other->offset ? -1 : one->offset > other->offset;
}

/* Chains of `total` runs that stand from the oldest to the newest, as a start makes them. NULL: memory was refused. */
static struct ebk_chain *chain_up(const struct ebk_run *runs, uint32_t total, uint32_t *chain_count)
{
    struct ebk_chain *chains = calloc(total, sizeof *chains);
    uint32_t count = 0;
    for (uint32_t begin = 0, end = 0; chains != NULL && begin < total; begin = end) {
        for (end = begin + 1; end < total && runs[end - 1].last < runs[end].first;) end += 1;
        struct ebk_run *own = malloc((end - begin) * sizeof *own);
        if (own == NULL) {
            while (count > 0) free(chains[--count].runs);
            free(chains);
            return NULL;
        }
        memcpy(own, runs + begin, (end - begin) * sizeof *own);
        chains[count++] = (struct ebk_chain){.runs = own, .count = end - begin, .capacity = end - begin};
    }
    *chain_count = count;
    return chains;
}

/* Several places have the same ids: all runs of the ledger are put in order once more. */
static int insert_by_age(struct ebk_indexed_ledger *ledger, const struct ebk_run *runs, uint32_t count)
{
    uint32_t total = count, chain_count = 0;
    for (uint32_t i = 0; i < ledger->count; i++) total += chains_of(ledger)[i].count;
    struct ebk_run *all = malloc(total * sizeof *all);
    if (all == NULL) return EBK_NO_MEMORY;
    uint32_t filled = 0;
    for (uint32_t i = 0; i < ledger->count; i++) {
        memcpy(all + filled, chains_of(ledger)[i].runs, chains_of(ledger)[i].count * sizeof *all);
        filled += chains_of(ledger)[i].count;
    }
    EBK_ASSERT(filled + count == total && count > 0);
    memcpy(all + filled, runs, count * sizeof *all);
    qsort(all, total, sizeof *all, compare_ages);
    struct ebk_chain *chains = chain_up(all, total, &chain_count);
    free(all);
    if (chains == NULL) return EBK_NO_MEMORY;
    free_chains(ledger);
    ledger->many = chains;
    ledger->has_many = true;
    ledger->count = chain_count;
    return EBK_OK;
}

int ebk_index_insert(struct ebk_index *index, uint64_t ledger_id, const struct ebk_run *runs, uint32_t count)
{
    struct ebk_indexed_ledger *ledger = find_or_make(index, ledger_id);
    if (ledger == NULL) return EBK_NO_MEMORY;
    const bool is_one = ledger->count == 1 && are_apart(chains_of(ledger), runs, count);
    if ((is_one ? merge(chains_of(ledger), runs, count) : insert_by_age(ledger, runs, count)) < 0) {
        if (ledger->count == 0) ebk_index_drop(index, ledger_id);
        return EBK_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; i++) runs[i].log->live_bytes += runs[i].bytes;
    if (!is_one) (void)settle(ledger); /* Refused memory: several chains serve as well. */
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
        struct ebk_run *runs = NULL;
        uint32_t run_count = 0, capacity = 0;
        for (const uint8_t *next = at; next < end; at = next) {
            struct ebk_run run;
            uint64_t ledger_id;
            const bool is_sound = ebk_run_read(log, &next, end, &ledger_id, &run);
            EBK_ASSERT(is_sound && ledger_id >= ledger_ids[i]);
            if (ledger_id != ledger_ids[i]) break;
            if (run_count == capacity) {
                capacity = capacity ? capacity * 2 : 1;
                struct ebk_run *more = realloc(runs, capacity * sizeof *runs);
                if (more == NULL) {
                    free(runs);
                    return EBK_NO_MEMORY;
                }
                runs = more;
            }
            runs[run_count++] = run;
        }
        /* A flush that was taken in meanwhile has a higher number, and newer copies. */
        const int refused = had && run_count > 0 ? ebk_index_insert(index, ledger_ids[i], runs, run_count) : EBK_OK;
        free(runs);
        if (refused < 0) return refused;
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

void ebk_index_close(struct ebk_index *index)
{
    for (uint32_t i = 0; i < index->ledger_count; i++) free_chains(&index->ledgers[i]);
    free(index->ledgers);
    ebk_row_map_clear(&index->numbers);
    *index = (struct ebk_index){0};
}

/* Walk the index section: its runs tile the entries, ledger by ledger. add: put them into the index. frozen: NULL,
 * or what was written as this log, of which ledgers may have been dropped since (scenario 51). */
static int walk_index(struct ebk_store *store, const struct ebk_log *log, const struct ebk_cache *frozen, bool add)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint8_t *at = log->index, *end = log->index + descriptor->index_size;
    uint64_t ledger_before = 0, offset = ebk_entries_offset(descriptor), entries = 0;
    int64_t last_before = -1;
    for (uint32_t i = 0; i < descriptor->run_count; i++) {
        uint64_t ledger_id;
        struct ebk_run run;
        if (!ebk_run_read(log, &at, end, &ledger_id, &run)) return EBK_DAMAGED;
        const bool is_next_ledger = i == 0 || ledger_id > ledger_before;
        if (!is_next_ledger && (ledger_id != ledger_before || run.first <= last_before)) return EBK_DAMAGED;
        if (run.offset != offset) return EBK_DAMAGED;
        offset += run.bytes;
        entries += run.count;
        ledger_before = ledger_id;
        last_before = run.last;
        if (!add || (frozen != NULL && ebk_cache_find(frozen, ledger_id) == NULL)) continue;
        if (ebk_index_add(&store->index, ledger_id, &run) < 0) return EBK_NO_MEMORY;
    }
    return at == end && offset == ebk_entries_end(descriptor) && entries == descriptor->entry_count ? EBK_OK
                                                                                                     : EBK_DAMAGED;
}

int ebk_store_index_log(struct ebk_store *store, struct ebk_log *log, const struct ebk_cache *frozen)
{
    const int sound = walk_index(store, log, frozen, false);
    return sound < 0 ? sound : walk_index(store, log, frozen, true);
}
