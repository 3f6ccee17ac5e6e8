/* store_rebuild.c: indexes that are lost are made again while the store serves (ST38, ST13).
 *
 *     start   runs that are whole are taken in; what lies between them is a hole, and dark: nothing that may have stood
 *             there is absent (store_load.c)
 *     slice   in a thread of its own: the next bytes of a hole are read and looked through (store_scan.c)
 *     poll    on the loop's thread: what was found goes into the index, so many runs at a time, beneath the copies that
 *             newer logs have
 *     ...     behind the last hole of a log: if everything is there, in order, its holes end, and it may be compacted;
 *             else all of them stay dark, and it stays as it is
 *
 * Nothing of it is written: a stop in between leaves the log as it was, and the next start begins anew. The newest log comes
 * first. One that is older is not compacted meanwhile: its copy of an entry would get a newer log's number, and win over the
 * one that is still in the dark.
 */
#define _GNU_SOURCE
#include "store/store_scan_inside.h"

#include "base/errors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RUNS_PER_POLL 1024u /* Taken in at once. */

/* ---- life --------------------------------------------------------------------------- */

void ebk_store_rebuild_end(struct ebk_store *store)
{
    struct ebk_scan *scan = store->scan;
    if (scan == NULL) return;
    if (scan->has_thread) pthread_join(scan->thread, NULL);
    if (scan->file >= 0) (void)store->io->close(store->io, scan->file);
    free(scan->maker.index);
    free(scan->window);
    free(scan);
    store->scan = NULL;
}

static int begin(struct ebk_store *store)
{
    struct ebk_scan *scan = calloc(1, sizeof *scan);
    if (scan == NULL) return EBK_NO_MEMORY;
    scan->store = store;
    scan->io = store->io;
    scan->file = -1;
    scan->window = malloc(EBK_SCAN_WINDOW_BYTES);
    store->scan = scan;
    if (scan->window != NULL) return EBK_OK;
    ebk_store_rebuild_end(store);
    return EBK_NO_MEMORY;
}

static void begin_hole(struct ebk_scan *scan, uint32_t number)
{
    struct ebk_store *store = scan->store;
    struct ebk_log *log = store->holes[number].log;
    if (log != scan->log) {
        if (scan->file >= 0) (void)store->io->close(store->io, scan->file);
        scan->file = -1;
        scan->log = log;
        scan->log_id = log->descriptor.log_id;
        ebk_log_path(store->directories[log->directory], log->descriptor.log_id, false, scan->path);
    }
    scan->hole_number = number;
    scan->hole = store->holes[number];
    scan->has_begun = scan->is_front_over = scan->is_over = false;
}

void ebk_store_rebuild_left(const struct ebk_store *store, struct ebk_rebuild_left *left)
{
    const struct ebk_log *before = NULL;
    *left = (struct ebk_rebuild_left){0};
    for (uint32_t i = 0; i < store->hole_count; i++) {
        const struct ebk_hole *hole = &store->holes[i];
        if (!hole->is_pending) continue;
        left->logs += hole->log != before;
        left->bytes += hole->end - hole->begin;
        before = hole->log;
    }
}

/* ---- slices ---------------------------------------------------------------------------- */

static void *run_slice(void *argument)
{
    struct ebk_scan *scan = argument;
    const uint64_t one = 1;
    scan->result = ebk_scan_slice(scan);
    const int event_file = scan->store->rebuild_event_file;
    atomic_store_explicit(&scan->state, EBK_FLUSH_ENDED, memory_order_release);
    const ssize_t written = write(event_file, &one, sizeof one);
    EBK_ASSERT(written == sizeof one);
    return NULL;
}

int ebk_store_rebuild_slice(struct ebk_store *store, uint64_t bytes, bool threaded)
{
    const uint32_t next = ebk_store_next_hole(store);
    if (store->scan != NULL && (store->scan->state != EBK_FLUSH_NONE || store->scan->is_taking)) return EBK_FULL;
    if (next == store->hole_count) return EBK_END;
    if (store->scan == NULL && begin(store) < 0) return EBK_NO_MEMORY;
    struct ebk_scan *scan = store->scan;
    if (scan->log == NULL || scan->is_over) begin_hole(scan, next);
    scan->slice_bytes = bytes;
    scan->bytes_done = 0;
    scan->is_handed_over = false;
    scan->state = EBK_FLUSH_RUNNING;
    if (!threaded) {
        (void)run_slice(scan);
        return EBK_OK;
    }
    if (pthread_create(&scan->thread, NULL, run_slice, scan) != 0) {
        scan->state = EBK_FLUSH_NONE;
        return EBK_NO_MEMORY;
    }
    scan->has_thread = true;
    return EBK_OK;
}

int ebk_store_rebuild_event_file(const struct ebk_store *store)
{
    return store->rebuild_event_file;
}

/* ---- taking in -------------------------------------------------------------------------- */

/* The runs that the slice has found become the log's: those in the index point into them from then on. */
static int hand_over(struct ebk_scan *scan)
{
    struct ebk_rescue *rescue = scan->log->rescue;
    struct ebk_run_maker *maker = &scan->maker;
    if (!scan->is_handed_over || maker->size == 0) return EBK_OK;
    struct ebk_found_runs *found = realloc(rescue->found, (rescue->found_count + 1) * sizeof *found);
    if (found == NULL) return EBK_NO_MEMORY;
    rescue->found = found;
    uint8_t *smaller = realloc(maker->index, maker->size);
    found[rescue->found_count++] = (struct ebk_found_runs){.bytes = smaller != NULL ? smaller : maker->index, .size = maker->size};
    rescue->entries += scan->entries;
    maker->index = NULL;
    maker->size = maker->capacity = 0;
    maker->run_count = 0;
    scan->entries = 0;
    scan->taken = 0;
    return EBK_OK;
}

/* Put runs of one ledger into the index, those that follow each other; a ledger that was dropped meanwhile stays out. */
static int take_ledger(struct ebk_scan *scan, const struct ebk_found_runs *found, const struct ebk_table *table, uint32_t *count)
{
    struct ebk_run runs[RUNS_PER_POLL];
    uint32_t run_count = 0;
    uint64_t ledger_id = 0;
    const uint8_t *at = found->bytes + scan->taken, *end = found->bytes + found->size;
    while (at < end && *count + run_count < RUNS_PER_POLL) {
        const uint8_t *next = at;
        uint64_t other;
        const bool is_sound = ebk_found_run_read(scan->log, &next, end, &other, &runs[run_count]);
        EBK_ASSERT(is_sound); /* A run maker made it. */
        if (run_count > 0 && other != ledger_id) break;
        ledger_id = other;
        run_count += 1;
        at = next;
    }
    if (table == NULL || !ebk_table_is_dropped(table, ledger_id)) {
        const int refused = ebk_index_insert(&scan->store->index, ledger_id, runs, run_count);
        if (refused < 0) return refused;
    }
    scan->taken = (size_t)(at - found->bytes);
    *count += run_count;
    return EBK_OK;
}

/* 1 while more is to be taken in. */
static int take_in(struct ebk_scan *scan, const struct ebk_table *table)
{
    const struct ebk_rescue *rescue = scan->log->rescue;
    uint32_t count = 0;
    if (rescue->found_count == 0) return 0;
    const struct ebk_found_runs *found = &rescue->found[rescue->found_count - 1];
    while (scan->taken < found->size && count < RUNS_PER_POLL) {
        const int refused = take_ledger(scan, found, table, &count);
        if (refused < 0) return refused;
    }
    return scan->taken < found->size;
}

/* The last hole of the log was looked through: what is known of it from now on. */
void ebk_store_judge_log(struct ebk_store *store, struct ebk_log *log)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    struct ebk_rescue *rescue = log->rescue;
    rescue->is_whole = rescue->is_filled && rescue->entries == descriptor->entry_count;
    if (rescue->is_whole) {
        ebk_store_close_holes(store, log); /* Nothing else was in them. */
        log->is_damaged = false;
    }
    ebk_store_tell(store, log, "%llu of %llu entries were found by %sa scan%s", (unsigned long long)rescue->entries,
                   (unsigned long long)descriptor->entry_count,
                   rescue->joined > 0 ? "what is left of both copies of its index and by " : "",
                   rescue->is_whole ? "; it is copied into a new log soon" : "");
}

static void end_hole(struct ebk_scan *scan, struct ebk_rebuild_piece *piece)
{
    struct ebk_store *store = scan->store;
    struct ebk_log *log = scan->log;
    if (!ebk_scan_has_filled(scan)) {
        log->rescue->is_filled = false;
        ebk_store_tell(store, log, "at offset %llu: %llu bytes of its entries are damaged or cut off, and no index says what "
                       "they were: what is not found elsewhere is unreadable", (unsigned long long)scan->good,
                       (unsigned long long)ebk_scan_bytes_lost(scan));
    }
    store->holes[scan->hole_number].is_pending = false;
    const uint32_t next = ebk_store_next_hole(store);
    piece->is_log_over = next == store->hole_count || store->holes[next].log != log;
    if (piece->is_log_over) ebk_store_judge_log(store, log);
    piece->is_whole = log->rescue->is_whole;
}

int ebk_store_rebuild_poll(struct ebk_store *store, const struct ebk_table *table, struct ebk_rebuild_piece *piece)
{
    struct ebk_scan *scan = store->scan;
    *piece = (struct ebk_rebuild_piece){0};
    if (scan == NULL) return EBK_END;
    if (!scan->is_taking) {
        const int state = atomic_load_explicit(&scan->state, memory_order_acquire);
        if (state == EBK_FLUSH_NONE) return EBK_END;
        if (state == EBK_FLUSH_RUNNING) return EBK_FULL;
        if (scan->has_thread) pthread_join(scan->thread, NULL);
        scan->has_thread = false;
        uint64_t wakes;
        (void)!read(store->rebuild_event_file, &wakes, sizeof wakes);
        if (scan->result < 0) {
            scan->state = EBK_FLUSH_NONE; /* The next slice continues. */
            snprintf(store->failure, sizeof store->failure, "%s", scan->result == EBK_IO ? scan->text : "memory was refused");
            return scan->result;
        }
        if (hand_over(scan) < 0) return EBK_NO_MEMORY; /* Polled once more, it is done. */
        scan->is_taking = true;
    }
    const int more = take_in(scan, table);
    if (more != 0) return more;
    scan->is_taking = false;
    scan->state = EBK_FLUSH_NONE;
    piece->log_id = scan->log->descriptor.log_id;
    piece->bytes = scan->bytes_done;
    if (!scan->is_over) return EBK_OK;
    end_hole(scan, piece);
    if (ebk_store_next_hole(store) == store->hole_count) ebk_store_rebuild_end(store);
    return EBK_OK;
}
