/* store_flush.c: the frozen half of the write cache into entry logs, one for each directory that takes part.
 *
 *     freeze ─▶ a log for each directory, written, synced, renamed, its directory synced ─▶ all of them? ─▶ taken in
 *                                                                                └── one failed: none counts
 *
 * The logs of one flush have ids one behind the other, and each says which part it is, of how many. Only all of them
 * together hold what the mark promises, so the mark is that of the newest flush of which every log is there: one
 * directory alone never moves it (I45, scenario 44). The ledger states and the roll are in the first log, whole: what of
 * a flush a crash leaves is either all states or none.
 */
#define _GNU_SOURCE
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/id_ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what is written ----------------------------------------------------------------- */

/* Ledger states, behind them the marks of journals, where there are several, and the roll: the ids of all logs that are there and stay. A log that leaves is not in it
 * once the states that it holds are among these. */
static int add_states(struct ebk_store *store, struct ebk_flush *flush)
{
    struct ebk_id_ranges roll = {0};
    int refused = EBK_OK;
    for (uint32_t i = 0; i < store->log_count && refused == EBK_OK; i++) {
        const struct ebk_log *log = store->logs[i];
        const bool is_gone = log->leaves_with != 0 && log->leaves_with <= store->freeze_count;
        if (!is_gone) refused = ebk_id_ranges_add(&roll, log->descriptor.log_id, log->descriptor.log_id);
    }
    const size_t marks_at = store->frozen_states_size;
    const size_t roll_at = marks_at + (size_t)store->frozen_marks_count * EBK_LOG_STATE_BYTES;
    const size_t size = roll_at + (size_t)roll.count * EBK_LOG_STATE_BYTES;
    flush->states = refused < 0 ? NULL : calloc(1, size + 1);
    if (flush->states != NULL) {
        memcpy(flush->states, store->frozen_states, marks_at);
        for (uint32_t i = 0; i < store->frozen_marks_count; i++) {
            uint8_t *item = flush->states + marks_at + (size_t)i * EBK_LOG_STATE_BYTES;
            ebk_store_u64(item, i);
            ebk_store_u64(item + 8, store->frozen_marks[i]);
        }
        for (uint32_t i = 0; i < roll.count; i++) {
            uint8_t *item = flush->states + roll_at + (size_t)i * EBK_LOG_STATE_BYTES;
            ebk_store_u64(item, roll.ranges[i].first);
            ebk_store_u64(item + 8, roll.ranges[i].last);
        }
        flush->descriptor.roll_count = roll.count;
        flush->descriptor.journal_count = store->frozen_marks_count;
        flush->descriptor.states_size = size;
    }
    ebk_id_ranges_clear(&roll);
    return flush->states == NULL ? EBK_NO_MEMORY : EBK_OK;
}

static uint32_t newest_that_stays(const struct ebk_store *store)
{
    for (uint32_t i = store->log_count; i > 0; i--)
        if (store->logs[i - 1]->leaves_with == 0) return store->logs[i - 1]->descriptor.log_id;
    return 0;
}

static void forget_flushes(struct ebk_store *store)
{
    for (uint32_t i = 0; i < store->flush_count; i++) {
        free(store->flushes[i].states);
        free(store->flushes[i].index);
    }
    store->flush_count = 0;
}

/* Deal the ledgers of the frozen half to the directories: a flush for each that gets one, and one at least. */
static void deal(struct ebk_store *store, uint32_t directories)
{
    const struct ebk_cache *cache = &store->halves[1 - store->active];
    uint32_t numbers[EBK_DIRECTORIES_MAX], slot_count = 0;
    bool is_used[EBK_DIRECTORIES_MAX] = {false};
    for (uint32_t i = 0; i < store->directory_count; i++)
        if (directories >> i & 1) numbers[slot_count++] = i;
    EBK_ASSERT(slot_count > 0);
    bool is_any = false;
    for (uint32_t i = 0; i < cache->ledger_count; i++)
        if (cache->ledgers[i].count > 0) is_any = is_used[ebk_ledger_slot(cache->ledgers[i].ledger_id, slot_count)] = true;
    if (!is_any) is_used[0] = true; /* Ledger states alone. */
    forget_flushes(store);
    for (uint32_t slot = 0; slot < slot_count; slot++) {
        if (!is_used[slot]) continue;
        store->flushes[store->flush_count++] = (struct ebk_flush){
            .io = store->io,
            .directory = store->directories[numbers[slot]],
            .directory_number = numbers[slot],
            .cache = cache,
            .slot = slot,
            .slot_count = slot_count,
            .store = store,
        };
    }
}

/* Give each part its file; each attempt has its own ids. */
static int prepare(struct ebk_store *store, uint32_t directories)
{
    EBK_ASSERT(store->is_frozen && !store->is_flushed && store->flush_state == EBK_FLUSH_NONE);
    deal(store, directories);
    if (store->log_id_last > EBK_LOG_ID_MAX - store->flush_count) {
        snprintf(store->failure, sizeof store->failure, "entry log ids are used up");
        return EBK_FAILED;
    }
    const uint32_t previous_id = newest_that_stays(store);
    int refused = EBK_OK;
    for (uint32_t i = 0; i < store->flush_count && refused == EBK_OK; i++) {
        struct ebk_flush *flush = &store->flushes[i];
        flush->descriptor = (struct ebk_descriptor){
            .version = ebk_store_log_version(store),
            .log_id = ++store->log_id_last,
            .previous_id = previous_id,
            .mark = store->frozen_mark,
            .part = i,
            .part_count = store->flush_count,
        };
        memcpy(flush->descriptor.cluster_token, store->settings.cluster_token, 16);
        memcpy(flush->descriptor.incarnation, store->settings.incarnation, 16);
        if (i == 0) refused = add_states(store, flush);
        else if ((flush->states = calloc(1, 1)) == NULL) refused = EBK_NO_MEMORY;
    }
    if (refused < 0) snprintf(store->failure, sizeof store->failure, "memory for the states of a flush was refused");
    return refused;
}

/* ---- writing -------------------------------------------------------------------------- */

static void end_one(struct ebk_store *store)
{
    const uint64_t one = 1;
    const uint32_t left = atomic_fetch_sub_explicit(&store->flush_left, 1, memory_order_acq_rel);
    EBK_ASSERT(left > 0 && left <= store->flush_count);
    if (left > 1) return;
    atomic_store_explicit(&store->flush_state, EBK_FLUSH_ENDED, memory_order_release);
    const ssize_t written = write(store->event_file, &one, sizeof one);
    EBK_ASSERT(written == sizeof one);
}

static void *run_flush(void *argument)
{
    struct ebk_flush *flush = argument;
    ebk_log_flush(flush);
    end_one(flush->store);
    return NULL;
}

static void begin(struct ebk_store *store)
{
    EBK_ASSERT(store->flush_count > 0 && store->flush_count <= store->directory_count);
    store->flush_left = store->flush_count;
    store->flush_state = EBK_FLUSH_RUNNING;
}

int ebk_store_flush_start(struct ebk_store *store, uint32_t directories)
{
    const int refused = prepare(store, directories);
    if (refused < 0) return refused;
    begin(store);
    for (uint32_t i = 0; i < store->flush_count; i++) {
        struct ebk_flush *flush = &store->flushes[i];
        flush->has_thread = pthread_create(&flush->thread, NULL, run_flush, flush) == 0;
        if (flush->has_thread) continue;
        flush->result = EBK_NO_MEMORY;
        snprintf(flush->text, sizeof flush->text, "the flush got no thread");
        end_one(store);
    }
    return EBK_OK;
}

int ebk_store_flush_now(struct ebk_store *store, uint32_t directories)
{
    const int refused = prepare(store, directories);
    if (refused < 0) return refused;
    begin(store);
    for (uint32_t i = 0; i < store->flush_count; i++) (void)run_flush(&store->flushes[i]);
    return EBK_OK;
}

int ebk_store_event_file(const struct ebk_store *store)
{
    return store->event_file;
}

/* ---- taking it in --------------------------------------------------------------------- */

static void join(struct ebk_store *store)
{
    for (uint32_t i = 0; i < store->flush_count; i++) {
        if (store->flushes[i].has_thread) pthread_join(store->flushes[i].thread, NULL);
        store->flushes[i].has_thread = false;
    }
}

void ebk_store_flush_end(struct ebk_store *store)
{
    join(store);
    forget_flushes(store);
}

/* One log that was written joins the others. */
static int take_in(struct ebk_store *store, struct ebk_flush *flush)
{
    struct ebk_log *log = calloc(1, sizeof *log);
    if (log == NULL) return EBK_NO_MEMORY;
    log->file = -1;
    log->directory = flush->directory_number;
    log->descriptor = flush->descriptor;
    log->index = flush->index;
    int refused = ebk_store_add_log(store, log);
    if (refused < 0) {
        free(log);
        return refused;
    }
    flush->index = NULL;
    return ebk_store_index_log(store, log, &store->halves[1 - store->active]);
}

/* One log of the flush failed: all are worth nothing, and what they hold is written once more. Should a file
 * survive this, a start finds a flush with a log missing, or a log on no roll. */
static int give_up(struct ebk_store *store, const struct ebk_flush *failed)
{
    const int code = failed->result;
    snprintf(store->failure, sizeof store->failure, "%s%s%s", store->directory_count > 1 ? failed->directory : "",
             store->directory_count > 1 ? ": " : "", failed->text);
    for (uint32_t i = 0; i < store->flush_count; i++) {
        const struct ebk_flush *flush = &store->flushes[i];
        char path[EBK_PATH_BYTES_MAX]; /* One that failed has it when it was its directory that could not be synced. */
        ebk_log_path(flush->directory, flush->descriptor.log_id, false, path);
        (void)store->io->unlink(store->io, path);
    }
    return code;
}

int ebk_store_flush_finish(struct ebk_store *store)
{
    const int state = atomic_load_explicit(&store->flush_state, memory_order_acquire);
    if (state == EBK_FLUSH_NONE) return EBK_END;
    if (state == EBK_FLUSH_RUNNING) return EBK_FULL;
    uint64_t wakes;
    join(store);
    (void)!read(store->event_file, &wakes, sizeof wakes);
    store->flush_state = EBK_FLUSH_NONE;
    for (uint32_t i = 0; i < store->flush_count; i++)
        if (store->flushes[i].result < 0) return give_up(store, &store->flushes[i]);
    int refused = EBK_OK;
    for (uint32_t i = 0; i < store->flush_count && refused == EBK_OK; i++) refused = take_in(store, &store->flushes[i]);
    if (refused < 0) {
        snprintf(store->failure, sizeof store->failure, "the index of a new entry log was not taken in");
        return refused;
    }
    EBK_ASSERT(store->frozen_mark >= store->mark); /* The log mark never falls (I45). */
    memcpy(store->journal_marks, store->frozen_marks, sizeof store->journal_marks);
    store->journal_count = store->frozen_marks_count;
    store->mark = store->frozen_mark; /* All of its logs are durable, in every directory (I45). */
    store->is_flushed = true;
    return EBK_OK;
}

int ebk_store_flush_code(const struct ebk_store *store, uint32_t directory)
{
    for (uint32_t i = 0; i < store->flush_count; i++)
        if (store->flushes[i].directory_number == directory) return store->flushes[i].result;
    return EBK_OK;
}

