/* store_copy_plan.c: what a compaction copies: the entries whose newest copy is in a source, in the order of the new log,
 * and the index that it will have.
 */
#define _GNU_SOURCE
#include "store/store_copy_inside.h"

#include "base/errors.h"

#include <stdlib.h>

#define PARTS_MIN 64u

uint32_t ebk_copy_source_of(const struct ebk_copy *copy, const struct ebk_log *log)
{
    for (uint32_t i = 0; i < copy->source_count; i++)
        if (copy->sources[i].log == log) return i;
    return copy->source_count;
}

static int add_part(struct ebk_copy *copy, uint32_t source, uint64_t offset, uint64_t size)
{
    if (copy->part_count > 0) {
        struct part *last = &copy->parts[copy->part_count - 1];
        if (last->source == source && last->offset + last->size == offset) {
            last->size += size;
            return EBK_OK;
        }
    }
    if (copy->part_count == copy->part_capacity) {
        const uint32_t capacity = copy->part_capacity ? copy->part_capacity * 2 : PARTS_MIN;
        struct part *parts = realloc(copy->parts, capacity * sizeof *parts);
        if (parts == NULL) return EBK_NO_MEMORY;
        copy->parts = parts;
        copy->part_capacity = capacity;
    }
    copy->parts[copy->part_count++] = (struct part){.source = source, .offset = offset, .size = size};
    return EBK_OK;
}

/* A ledger of which no two logs hold the same stretch of ids: its runs move as they are. */
static int plan_runs(struct ebk_copy *copy, struct ebk_run_maker *maker, const struct ebk_indexed_ledger *ledger)
{
    const struct ebk_chain *chain = ebk_indexed_chains(ledger);
    for (uint32_t i = 0; i < chain->count; i++) {
        const struct ebk_run *run = &chain->runs[i];
        const uint32_t source = ebk_copy_source_of(copy, run->log);
        if (source == copy->source_count) continue;
        int refused = ebk_run_maker_copy(maker, ledger->ledger_id, run);
        if (refused == EBK_OK) refused = add_part(copy, source, run->offset, run->bytes);
        if (refused < 0) return refused;
        copy->flush.descriptor.entry_count += run->count;
    }
    return EBK_OK;
}

/* What a flush that is not taken in yet writes of the ledger, or NULL. Its log has a lower number than the copy, though its
 * entries are newer: those are not copied. */
static const struct ebk_cached_ledger *frozen_part(const struct ebk_copy *copy, uint64_t ledger_id)
{
    const struct ebk_store *store = copy->store;
    if (!store->is_frozen || store->is_flushed) return NULL;
    const struct ebk_cached_ledger *cached = ebk_cache_find(&store->halves[1 - store->active], ledger_id);
    return cached == NULL || cached->count == 0 ? NULL : cached;
}

/* A ledger of which several places hold the same ids: only what no newer one holds is copied, entry by entry. */
static int plan_entries(struct ebk_copy *copy, struct ebk_run_maker *maker, const struct ebk_indexed_ledger *ledger,
                        const struct ebk_cached_ledger *frozen)
{
    struct ebk_cursor *cursors = malloc((ledger->count + 1) * sizeof *cursors);
    if (cursors == NULL) return EBK_NO_MEMORY;
    uint32_t count = 0; /* Newest first. */
    if (frozen != NULL) ebk_cursor_over_spans(&cursors[count++], ebk_cached_spans(frozen), frozen->count, 0);
    for (uint32_t i = ledger->count; i > 0; i--)
        ebk_cursor_over_runs(&cursors[count++], ebk_indexed_chains(ledger)[i - 1].runs, ebk_indexed_chains(ledger)[i - 1].count, 0);
    int refused = EBK_OK;
    while (refused == EBK_OK) {
        const struct ebk_cursor *newest = NULL;
        for (uint32_t i = 0; i < count; i++)
            if (ebk_cursor_has(&cursors[i]) && (newest == NULL || cursors[i].id < newest->id)) newest = &cursors[i];
        if (newest == NULL) break;
        const bool is_frozen = newest->spans != NULL;
        const uint32_t source = is_frozen ? copy->source_count : ebk_copy_source_of(copy, newest->runs[newest->at].log);
        const int64_t id = newest->id;
        if (source < copy->source_count) {
            refused = ebk_run_maker_add(maker, ledger->ledger_id, id, newest->size, NULL);
            if (refused == EBK_OK) refused = add_part(copy, source, newest->offset, newest->size);
            copy->flush.descriptor.entry_count += 1;
        }
        for (uint32_t i = 0; i < count; i++)
            while (ebk_cursor_has(&cursors[i]) && cursors[i].id == id) ebk_cursor_next(&cursors[i]);
    }
    free(cursors);
    return refused;
}

static int compare_ids(const void *a, const void *b)
{
    const uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return one < other ? -1 : one > other;
}

/* Ledgers of the runs of `log` in `size` bytes: of its index block, or of what a scan found. Returns the number of ids. */
static size_t list_ledgers(struct ebk_log *log, const uint8_t *at, size_t size, bool is_found, uint64_t *ids, size_t found)
{
    for (const uint8_t *end = at + size; at < end;) {
        struct ebk_run run;
        uint64_t ledger_id;
        const bool is_sound = is_found ? ebk_found_run_read(log, &at, end, &ledger_id, &run)
                                       : ebk_run_read(log, &at, end, &ledger_id, &run);
        EBK_ASSERT(is_sound); /* It was when the log was taken in; one that was not is damaged, and no source. */
        if (found == 0 || ids[found - 1] != ledger_id) ids[found++] = ledger_id;
    }
    return found;
}

/* Bytes of the runs in the log's index block. */
static size_t index_bytes(const struct ebk_log *log)
{
    return log->rescue == NULL ? log->descriptor.index_size : log->rescue->joined;
}

uint64_t *ebk_copy_list_ledgers(const struct ebk_copy *copy, uint32_t *count)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < copy->source_count; i++) {
        const struct ebk_rescue *rescue = copy->sources[i].log->rescue;
        bytes += index_bytes(copy->sources[i].log);
        for (uint32_t j = 0; rescue != NULL && j < rescue->found_count; j++) bytes += rescue->found[j].size;
    }
    uint64_t *ids = malloc((bytes / EBK_LOG_RUN_BYTES + 1) * sizeof *ids);
    size_t found = 0, kept = 0;
    for (uint32_t i = 0; ids != NULL && i < copy->source_count; i++) {
        struct ebk_log *log = copy->sources[i].log;
        const struct ebk_rescue *rescue = log->rescue;
        found = list_ledgers(log, log->index, index_bytes(log), false, ids, found);
        for (uint32_t j = 0; rescue != NULL && j < rescue->found_count; j++)
            found = list_ledgers(log, rescue->found[j].bytes, rescue->found[j].size, true, ids, found);
    }
    if (ids != NULL && found > 1) qsort(ids, found, sizeof *ids, compare_ids);
    for (size_t i = 0; ids != NULL && i < found; i++)
        if (kept == 0 || ids[kept - 1] != ids[i]) ids[kept++] = ids[i];
    *count = (uint32_t)kept;
    return ids;
}

int ebk_copy_plan(struct ebk_copy *copy)
{
    uint32_t count;
    uint64_t *ids = ebk_copy_list_ledgers(copy, &count);
    struct ebk_run_maker *maker = calloc(1, sizeof *maker);
    int refused = ids == NULL || maker == NULL ? EBK_NO_MEMORY : EBK_OK;
    if (maker != NULL) maker->offset = EBK_LOG_BLOCK_BYTES; /* No states stand before its entries. */
    for (uint32_t i = 0; i < count && refused == EBK_OK; i++) {
        const struct ebk_indexed_ledger *ledger = ebk_index_find(&copy->store->index, ids[i]);
        if (ledger == NULL) continue; /* Dropped. */
        const uint64_t before = copy->flush.descriptor.entry_count;
        const struct ebk_cached_ledger *frozen = frozen_part(copy, ids[i]);
        refused = ledger->count == 1 && frozen == NULL ? plan_runs(copy, maker, ledger)
                                                       : plan_entries(copy, maker, ledger, frozen);
        if (refused == EBK_OK) refused = ebk_run_maker_end(maker);
        copy->flush.descriptor.ledger_count += copy->flush.descriptor.entry_count > before;
    }
    if (maker != NULL) {
        copy->flush.index = maker->index;
        copy->flush.descriptor.run_count = maker->run_count;
        copy->flush.descriptor.entries_size = maker->offset - EBK_LOG_BLOCK_BYTES;
        copy->flush.descriptor.index_size = maker->size;
    }
    free(maker);
    free(ids);
    return refused;
}
