/* store.c: the entry store as one: its life, puts and drops. */
#define _GNU_SOURCE
#include "store/store_inside.h"

#include "base/errors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A flush begins when so much was journaled as a half keeps; what is put until it is frozen, and the gaps between frames,
 * come on top. So much of it more is kept while it can be read. */
#define KEPT_BEYOND 8u

/* ---- life --------------------------------------------------------------------------- */

void ebk_store_close(struct ebk_store *store)
{
    ebk_yield_enough(&store->yield_word);
    ebk_store_flush_end(store);
    ebk_store_rebuild_end(store);
    if (store->copy != NULL) ebk_copy_free(store->copy); /* Its thread needs the names of the directories. */
    for (uint32_t i = 0; i < store->log_count; i++) {
        if (store->logs[i]->file >= 0) (void)store->io->close(store->io, store->logs[i]->file);
        ebk_log_free(store->logs[i]);
    }
    free(store->logs);
    ebk_index_close(&store->index);
    ebk_cache_close(&store->halves[0]);
    ebk_cache_close(&store->halves[1]);
    free(store->frozen_states);
    free(store->pieces);
    free(store->holes);
    free(store->directories);
    if (store->event_file >= 0) close(store->event_file);
    if (store->copy_event_file >= 0) close(store->copy_event_file);
    if (store->rebuild_event_file >= 0) close(store->rebuild_event_file);
    free(store);
}

static int keep_directories(struct ebk_store *store, const char *const *directories, uint32_t count, char *text,
                            size_t room)
{
    if (count == 0 || count > EBK_DIRECTORIES_MAX) {
        snprintf(text, room, "%u directories: 1 to %d are allowed", count, EBK_DIRECTORIES_MAX);
        return EBK_USAGE;
    }
    store->directories = calloc(count, sizeof *store->directories);
    if (store->directories == NULL) return EBK_NO_MEMORY;
    for (; store->directory_count < count; store->directory_count++) {
        const char *directory = directories[store->directory_count];
        if (strlen(directory) >= sizeof *store->directories) {
            snprintf(text, room, "directory %.64s...: its path is longer than %zu bytes", directory,
                     sizeof *store->directories - 1);
            return EBK_USAGE;
        }
        strcpy(store->directories[store->directory_count], directory);
    }
    return EBK_OK;
}

int ebk_store_open(struct ebk_io *io, const char *const *directories, uint32_t directory_count,
                   const struct ebk_store_settings *settings, struct ebk_store **out, char *text, size_t room)
{
    struct ebk_store *store = calloc(1, sizeof *store);
    if (store == NULL) return EBK_NO_MEMORY;
    store->io = io;
    store->settings = *settings;
    store->event_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    store->copy_event_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    store->rebuild_event_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    text[0] = 0;
    const int system_error =
        store->event_file < 0 || store->copy_event_file < 0 || store->rebuild_event_file < 0 ? errno : 0;
    int refused = keep_directories(store, directories, directory_count, text, room);
    if (refused == EBK_OK && system_error != 0) {
        snprintf(text, room, "descriptors of its flushes: %s", strerror(system_error));
        refused = EBK_IO;
    }
    if (refused == EBK_OK && (ebk_cache_open(&store->halves[0], settings->half_bytes_max) < 0 ||
                              ebk_cache_open(&store->halves[1], settings->half_bytes_max) < 0)) {
        snprintf(text, room, "write cache of two times %llu bytes", (unsigned long long)settings->half_bytes_max);
        refused = EBK_NO_MEMORY;
    }
    if (refused == EBK_OK) refused = ebk_store_load(store, text, room);
    if (refused < 0) {
        ebk_store_close(store);
        return refused;
    }
    *out = store;
    return EBK_OK;
}

const char *ebk_store_report(const struct ebk_store *store, uint32_t number)
{
    return number < store->report_count ? store->reports[number] : NULL;
}

uint32_t ebk_store_log_count(const struct ebk_store *store)
{
    return store->log_count;
}

uint32_t ebk_store_log_id(const struct ebk_store *store, uint32_t log)
{
    EBK_ASSERT(log < store->log_count);
    return store->logs[log]->descriptor.log_id;
}

uint32_t ebk_store_log_directory(const struct ebk_store *store, uint32_t log)
{
    EBK_ASSERT(log < store->log_count);
    return store->logs[log]->directory;
}

size_t ebk_store_states(const struct ebk_store *store, uint32_t log, const uint8_t **states)
{
    EBK_ASSERT(log < store->log_count);
    *states = store->logs[log]->states;
    const struct ebk_descriptor *descriptor = &store->logs[log]->descriptor;
    return *states == NULL ? 0 : ebk_ledger_states_size(descriptor);
}

void ebk_store_forget_states(struct ebk_store *store)
{
    for (uint32_t i = 0; i < store->log_count; i++) {
        free(store->logs[i]->states);
        store->logs[i]->states = NULL;
    }
}

uint64_t ebk_store_mark(const struct ebk_store *store)
{
    return store->mark;
}

uint32_t ebk_store_journal_marks(const struct ebk_store *store, uint64_t *marks)
{
    memcpy(marks, store->journal_marks, store->journal_count * sizeof *marks);
    return store->journal_count;
}

uint64_t ebk_store_entry_count(const struct ebk_store *store)
{
    return store->entry_count;
}

/* ---- write cache -------------------------------------------------------------------- */

int ebk_store_put(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, uint32_t count,
                  const uint8_t *body, size_t size, const uint8_t **copy)
{
    const int code = ebk_cache_put(&store->halves[store->active], ledger_id, first, last, count, body, size, copy);
    if (ebk_store_active_bytes(store) >= store->yield_bytes_max && !store->is_pressed) {
        store->is_pressed = true;
        ebk_yield_enough(&store->yield_word);
    }
    return code;
}

void *ebk_store_yield_word(struct ebk_store *store, uint64_t bytes_max)
{
    store->yield_bytes_max = bytes_max;
    return &store->yield_word;
}

void ebk_store_drop(struct ebk_store *store, uint64_t ledger_id)
{
    ebk_index_drop(&store->index, ledger_id);
    ebk_cache_drop(&store->halves[store->active], ledger_id, true);
    ebk_cache_drop(&store->halves[1 - store->active], ledger_id, false);
}

void ebk_store_drop_dead(struct ebk_store *store, const struct ebk_table *table)
{
    for (uint32_t i = store->index.ledger_count; i > 0; i--) { /* From behind: the last one takes a dropped one's place. */
        const uint64_t ledger_id = store->index.ledgers[i - 1].ledger_id;
        if (ebk_table_is_dropped(table, ledger_id)) ebk_store_drop(store, ledger_id);
    }
    const struct ebk_cache *cache = &store->halves[store->active];
    for (uint32_t i = 0; i < cache->ledger_count; i++)
        if (ebk_table_is_dropped(table, cache->ledgers[i].ledger_id)) ebk_store_drop(store, cache->ledgers[i].ledger_id);
}

uint64_t ebk_store_active_bytes(const struct ebk_store *store)
{
    return store->halves[store->active].used;
}

uint64_t ebk_store_cached_bytes(const struct ebk_store *store)
{
    return ebk_store_active_bytes(store) + (store->is_flushed ? 0 : store->halves[1 - store->active].used);
}

int ebk_store_freeze(struct ebk_store *store, const uint8_t *states, size_t states_size, uint64_t mark,
                     const uint64_t *journal_marks, uint32_t journal_count)
{
    if (store->is_frozen) return EBK_FULL;
    EBK_ASSERT(mark >= store->mark); /* The log mark never falls (I45). */
    uint8_t *copy = malloc(states_size + 1);
    if (copy == NULL) return EBK_NO_MEMORY;
    memcpy(copy, states, states_size);
    free(store->frozen_states);
    store->frozen_states = copy;
    store->frozen_states_size = states_size;
    store->frozen_mark = mark;
    EBK_ASSERT(journal_count <= EBK_MARKS_MAX);
    if (journal_count > 0) memcpy(store->frozen_marks, journal_marks, journal_count * sizeof *journal_marks);
    store->frozen_marks_count = journal_count;
    store->freeze_count += 1;
    ebk_cache_sort(&store->halves[store->active]);
    ebk_cache_reset(&store->halves[1 - store->active], store->settings.half_bytes_kept);
    store->is_flushed = false;
    store->active = 1 - store->active;
    EBK_ASSERT(ebk_store_active_bytes(store) == 0);
    store->is_pressed = false;
    atomic_fetch_and(&store->yield_word, ~EBK_YIELD_ENOUGH);
    store->is_frozen = true;
    return EBK_OK;
}

void ebk_store_release(struct ebk_store *store)
{
    EBK_ASSERT(store->is_frozen && store->is_flushed);
    struct ebk_cache *half = &store->halves[1 - store->active];
    const uint64_t kept = store->settings.half_bytes_kept;
    if (half->used > kept + kept / KEPT_BEYOND) ebk_cache_reset(half, kept); /* Else the newest entries are read from it. */
    store->is_frozen = false;
}

const char *ebk_store_failure(const struct ebk_store *store)
{
    return store->failure;
}
