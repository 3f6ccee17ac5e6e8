/* store_copy.c: compaction: what lives of some entry logs is copied into a new one, so that they can go.
 *
 *     begin    plan on the loop's thread: which entries have their newest copy in a source, and the new index
 *              (store_copy_plan.c)
 *     slice    in a thread of its own: read, check against the new index, write; at the end sync, rename, sync directory
 *     commit   on the loop's thread: the index names the new log, the sources leave
 *     ...      the next flush carries the ledger states of the sources, and its roll names the new log
 *     remove   the files go (ebk_store_remove_left)
 *
 * So the order is copy, sync, index, delete (I47), and a crash anywhere leaves every entry in at least one log that a
 * start reads. A source of which a byte cannot be read or believed ends the copying, and is left alone from then on:
 * what it hides may be repaired, and must not be forgotten (ST35).
 */
#define _GNU_SOURCE
#include "store/store_copy_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- life --------------------------------------------------------------------------- */

void ebk_copy_free(struct ebk_copy *copy)
{
    if (copy->has_thread) pthread_join(copy->thread, NULL);
    struct ebk_io *io = copy->flush.io;
    for (uint32_t i = 0; i < copy->source_count; i++)
        if (copy->sources[i].file >= 0) (void)io->close(io, copy->sources[i].file);
    if (copy->writer.chunk != NULL) {
        if (copy->writer.file >= 0) (void)io->close(io, copy->writer.file);
        /* It may hold the last room of a full device. */
        if (!copy->is_over && copy->owner == getpid()) (void)io->unlink(io, copy->tmp);
    }
    free(copy->flush.states);
    free(copy->flush.index);
    free(copy->parts);
    free(copy->chunk);
    free(copy->bytes);
    free(copy->states);
    free(copy);
}

static void forget(struct ebk_store *store)
{
    ebk_copy_free(store->copy);
    store->copy = NULL;
}

static struct ebk_log *find_log(const struct ebk_store *store, uint32_t log_id)
{
    for (uint32_t i = 0; i < store->log_count; i++)
        if (store->logs[i]->descriptor.log_id == log_id) return store->logs[i];
    return NULL;
}

int ebk_store_copy_begin(struct ebk_store *store, const uint32_t *log_ids, uint32_t count, uint32_t directory)
{
    if (store->copy != NULL) return EBK_FULL;
    if (count == 0 || count > EBK_COPY_SOURCES_MAX || directory >= store->directory_count) return EBK_USAGE;
    if (store->log_id_last == EBK_LOG_ID_MAX) {
        snprintf(store->failure, sizeof store->failure, "entry log ids are used up");
        return EBK_FAILED;
    }
    struct ebk_copy *copy = calloc(1, sizeof *copy);
    if (copy == NULL) return EBK_NO_MEMORY;
    copy->store = store;
    copy->owner = getpid();
    copy->flush.io = store->io;
    copy->flush.directory = store->directories[directory];
    copy->flush.directory_number = directory;
    copy->flush.descriptor.version = ebk_store_log_version(store);
    copy->flush.descriptor.part_count = 1;
    copy->writer.file = -1;
    for (uint32_t i = 0; i < count; i++) {
        struct ebk_log *log = find_log(store, log_ids[i]);
        if (log == NULL || log->is_damaged || log->leaves_with != 0 || ebk_store_is_held_back(store, log_ids[i]) ||
            ebk_copy_source_of(copy, log) < copy->source_count) {
            free(copy);
            return EBK_DAMAGED;
        }
        copy->sources[copy->source_count++] = (struct source){.log = log, .directory = store->directories[log->directory],
                                                              .descriptor = log->descriptor, .file = -1};
    }
    copy->bad_source = copy->source_count;
    int refused = ebk_copy_plan(copy);
    copy->flush.states = calloc(1, 1);
    copy->bytes = malloc(EBK_LOG_CHUNK_BYTES + EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX);
    if (posix_memalign((void **)&copy->chunk, EBK_IO_ALIGNMENT, EBK_LOG_CHUNK_BYTES) != 0) copy->chunk = NULL;
    if (copy->chunk == NULL || copy->bytes == NULL || copy->flush.states == NULL) refused = EBK_NO_MEMORY;
    store->copy = copy;
    if (refused < 0) {
        forget(store);
        return refused;
    }
    struct ebk_descriptor *descriptor = &copy->flush.descriptor;
    store->log_id_last += 1;
    descriptor->log_id = store->log_id_last; /* Mark and previous_id stay 0: it is no flush. */
    memcpy(descriptor->cluster_token, store->settings.cluster_token, 16);
    memcpy(descriptor->incarnation, store->settings.incarnation, 16);
    ebk_log_seal(&copy->flush);
    ebk_log_path(copy->flush.directory, descriptor->log_id, true, copy->tmp);
    copy->index_of = (struct ebk_log){.descriptor = *descriptor, .index = copy->flush.index, .file = -1};
    copy->run_at = copy->flush.index;
    return EBK_OK;
}

/* ---- copying, in a thread of its own ------------------------------------------------- */

static int bad(struct ebk_copy *copy, uint32_t source, const char *what, int64_t error)
{
    const bool is_want = ebk_is_want(error); /* It ends the copying, and says nothing of the source. */
    if (!is_want) copy->bad_source = source;
    snprintf(copy->flush.text, sizeof copy->flush.text, "entry log %08x.elog: %s%s%s",
             copy->sources[source].descriptor.log_id, what, error < 0 ? ": " : "", error < 0 ? strerror((int)-error) : "");
    return is_want ? EBK_IO : EBK_DAMAGED;
}

static int open_source(struct ebk_copy *copy, uint32_t number)
{
    struct source *source = &copy->sources[number];
    char path[EBK_PATH_BYTES_MAX];
    if (source->file >= 0) return EBK_OK;
    ebk_log_path(source->directory, source->descriptor.log_id, false, path);
    source->file = copy->flush.io->open(copy->flush.io, path, EBK_OPEN_READ);
    if (source->file >= 0) return EBK_OK;
    const int error = source->file;
    source->file = -1;
    return bad(copy, number, "cannot be opened", error);
}

/* Move the cursor onto the next entry of the new log, the first one of its next run behind the last of one. */
static void next_entry(struct ebk_copy *copy)
{
    if (copy->cursor.runs != NULL && ebk_cursor_has(&copy->cursor)) ebk_cursor_next(&copy->cursor);
    if (copy->cursor.runs != NULL && ebk_cursor_has(&copy->cursor)) return;
    const uint8_t *end = copy->flush.index + copy->flush.descriptor.index_size;
    if (copy->run_at == end) return;
    const bool is_sound = ebk_run_read(&copy->index_of, &copy->run_at, end, &copy->ledger_id, &copy->run);
    EBK_ASSERT(is_sound);
    ebk_cursor_over_runs(&copy->cursor, &copy->run, 1, copy->run.first);
}

/* Copy the next entries of the part at hand: as many as fit one read. */
static int copy_some(struct ebk_copy *copy)
{
    const struct part *part = &copy->parts[copy->part_at];
    int refused = open_source(copy, part->source);
    if (refused < 0) return refused;
    EBK_ASSERT(copy->part_at < copy->part_count && part->source < copy->source_count && copy->part_done < part->size);
    const uint64_t left = part->size - copy->part_done;
    size_t size = left < EBK_LOG_CHUNK_BYTES ? (size_t)left : EBK_LOG_CHUNK_BYTES;
    if (size < copy->cursor.size) size = copy->cursor.size;
    const int64_t got = copy->flush.io->read(copy->flush.io, copy->sources[part->source].file, copy->bytes, size,
                                             part->offset + copy->part_done);
    if (got != (int64_t)size) return bad(copy, part->source, "cannot be read where its index says", got < 0 ? got : 0);
    size_t done = 0;
    while (done < size && size - done >= copy->cursor.size) { /* The last one may stand in the next read. */
        struct ebk_frame_facts facts;
        const uint32_t entry_size = copy->cursor.size;
        if (ebk_frame_scan(copy->bytes + done, entry_size, &facts) != EBK_FRAME_SOUND || facts.count != 1 ||
            facts.ledger_id != copy->ledger_id || facts.first_entry != copy->cursor.id)
            return bad(copy, part->source, "an entry is not what its index says", 0);
        done += entry_size;
        next_entry(copy);
    }
    EBK_ASSERT(done > 0 && done <= left);
    const int64_t written = ebk_log_append(&copy->writer, copy->bytes, done);
    if (written < 0) return ebk_log_fail(&copy->flush, "writing it", written);
    copy->part_done += done;
    copy->bytes_copied += done;
    if (copy->part_done == part->size) {
        copy->part_at += 1;
        copy->part_done = 0;
    }
    return EBK_OK;
}

static int read_states(struct ebk_copy *copy)
{
    for (uint32_t i = 0; i < copy->source_count; i++) {
        const struct ebk_descriptor *descriptor = &copy->sources[i].descriptor;
        const int refused = open_source(copy, i);
        if (refused < 0) return refused;
        uint8_t *states = ebk_log_read_states(copy->flush.io, copy->sources[i].file, descriptor);
        if (states == NULL) return bad(copy, i, "its ledger states cannot be read", 0);
        const size_t size = ebk_ledger_states_size(descriptor);
        uint8_t *all = realloc(copy->states, copy->states_size + size + 1);
        if (all != NULL) {
            copy->states = all;
            memcpy(all + copy->states_size, states, size);
            copy->states_size += size;
        }
        free(states);
        if (all == NULL) return EBK_NO_MEMORY;
    }
    return EBK_OK;
}

static int finish_file(struct ebk_copy *copy)
{
    int64_t written = 0;
    if (copy->flush.descriptor.entry_count == 0) return EBK_OK;
    written = ebk_log_write_tail(&copy->writer, &copy->flush);
    const int refused = ebk_log_end(&copy->flush, &copy->writer, written);
    return refused < 0 ? refused : ebk_log_publish(&copy->flush, copy->tmp);
}

static int begin_file(struct ebk_copy *copy)
{
    int refused = ebk_log_create(&copy->flush, &copy->writer, copy->tmp, copy->chunk);
    if (refused < 0) return refused;
    const int64_t written = ebk_log_write_head(&copy->writer, &copy->flush);
    next_entry(copy);
    return written < 0 ? ebk_log_fail(&copy->flush, "writing it", written) : EBK_OK;
}

static int copy_slice(struct ebk_copy *copy)
{
    int refused = EBK_OK;
    copy->bytes_copied = 0;
    if (copy->flush.descriptor.entry_count > 0 && copy->writer.chunk == NULL) refused = begin_file(copy);
    while (refused == EBK_OK && copy->part_at < copy->part_count && copy->bytes_copied < copy->slice_bytes)
        refused = copy_some(copy);
    if (refused < 0 || copy->part_at < copy->part_count) return refused;
    refused = read_states(copy);
    if (refused == EBK_OK) refused = finish_file(copy);
    copy->is_over = refused == EBK_OK;
    return refused;
}

static void *run_slice(void *argument)
{
    struct ebk_copy *copy = argument;
    const uint64_t one = 1;
    copy->flush.result = copy_slice(copy);
    atomic_store_explicit(&copy->state, EBK_FLUSH_ENDED, memory_order_release);
    const ssize_t written = write(copy->store->copy_event_file, &one, sizeof one);
    EBK_ASSERT(written == sizeof one);
    return NULL;
}

int ebk_store_copy_slice(struct ebk_store *store, uint64_t bytes, bool threaded)
{
    struct ebk_copy *copy = store->copy;
    EBK_ASSERT(copy != NULL && copy->state == EBK_FLUSH_NONE && !copy->is_over);
    copy->slice_bytes = bytes;
    copy->state = EBK_FLUSH_RUNNING;
    if (!threaded) {
        (void)run_slice(copy);
        return EBK_OK;
    }
    if (pthread_create(&copy->thread, NULL, run_slice, copy) != 0) {
        copy->state = EBK_FLUSH_NONE;
        return EBK_NO_MEMORY;
    }
    copy->has_thread = true;
    return EBK_OK;
}

int ebk_store_copy_event_file(const struct ebk_store *store)
{
    return store->copy_event_file;
}

int ebk_store_copy_poll(struct ebk_store *store, uint64_t *bytes)
{
    struct ebk_copy *copy = store->copy;
    if (copy == NULL) return EBK_END;
    const int state = atomic_load_explicit(&copy->state, memory_order_acquire);
    if (state != EBK_FLUSH_ENDED) return EBK_FULL;
    if (copy->has_thread) pthread_join(copy->thread, NULL);
    copy->has_thread = false;
    copy->state = EBK_FLUSH_NONE;
    uint64_t wakes;
    (void)!read(store->copy_event_file, &wakes, sizeof wakes);
    *bytes = copy->bytes_copied;
    if (copy->flush.result == EBK_OK) return copy->is_over;
    snprintf(store->failure, sizeof store->failure, "%s", copy->flush.text);
    const int refused = copy->flush.result;
    if (copy->bad_source < copy->source_count) copy->sources[copy->bad_source].log->is_damaged = true;
    forget(store);
    return refused;
}

/* ---- taking it in -------------------------------------------------------------------- */

size_t ebk_store_copy_states(const struct ebk_store *store, const uint8_t **states)
{
    EBK_ASSERT(store->copy != NULL && store->copy->is_over);
    *states = store->copy->states;
    return store->copy->states_size;
}

static bool is_source(const struct ebk_log *log, const void *copy)
{
    return ebk_copy_source_of(copy, log) < ((const struct ebk_copy *)copy)->source_count;
}

int ebk_store_copy_commit(struct ebk_store *store)
{
    struct ebk_copy *copy = store->copy;
    EBK_ASSERT(copy != NULL && copy->is_over);
    struct ebk_log *log = NULL;
    if (copy->flush.descriptor.entry_count > 0) {
        log = calloc(1, sizeof *log);
        if (log == NULL) return EBK_NO_MEMORY;
        log->file = -1;
        log->directory = copy->flush.directory_number;
        log->descriptor = copy->flush.descriptor;
        log->index = copy->flush.index;
        const int refused = ebk_store_add_log(store, log);
        if (refused < 0) {
            free(log);
            return refused;
        }
        copy->flush.index = NULL;
    }
    uint32_t count;
    uint64_t *ids = ebk_copy_list_ledgers(copy, &count);
    const int refused = ids == NULL ? EBK_NO_MEMORY
                                    : ebk_index_replace(&store->index, ids, count, is_source, copy, log);
    free(ids);
    if (refused < 0) return refused; /* The index names both, or still the sources: they stay, and nothing is lost. */
    for (uint32_t i = 0; i < copy->source_count; i++) {
        EBK_ASSERT(copy->sources[i].log->live_bytes == 0);
        copy->sources[i].log->leaves_with = store->freeze_count + 1;
    }
    forget(store);
    return EBK_OK;
}

void ebk_store_copy_abandon(struct ebk_store *store)
{
    if (store->copy != NULL) forget(store);
}

uint32_t ebk_store_leaving(const struct ebk_store *store)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < store->log_count; i++) count += store->logs[i]->leaves_with != 0;
    return count;
}

uint32_t ebk_store_remove_left(struct ebk_store *store)
{
    uint32_t kept = 0, removed = 0;
    const uint64_t done = store->is_frozen && !store->is_flushed ? store->freeze_count - 1 : store->freeze_count;
    for (uint32_t i = 0; i < store->log_count; i++) {
        struct ebk_log *log = store->logs[i];
        char path[EBK_PATH_BYTES_MAX];
        if (log->leaves_with == 0 || log->leaves_with > done) {
            store->logs[kept++] = log;
            continue;
        }
        if (log->file >= 0) {
            (void)store->io->close(store->io, log->file);
            store->open_count -= 1;
        }
        ebk_log_path(store->directories[log->directory], log->descriptor.log_id, false, path);
        (void)store->io->unlink(store->io, path); /* Left behind it is on no roll: the next start takes it away. */
        EBK_ASSERT(log->live_bytes == 0 && store->entry_count >= log->descriptor.entry_count);
        store->entry_count -= log->descriptor.entry_count;
        ebk_log_free(log);
        removed += 1;
    }
    store->log_count = kept;
    return removed;
}

void ebk_store_log_facts(const struct ebk_store *store, uint32_t number, struct ebk_log_facts *facts)
{
    EBK_ASSERT(number < store->log_count);
    const struct ebk_log *log = store->logs[number];
    *facts = (struct ebk_log_facts){
        .log_id = log->descriptor.log_id,
        .directory = log->directory,
        .is_damaged = log->is_damaged,
        .is_leaving = log->leaves_with != 0,
        .is_held_back = ebk_store_is_held_back(store, log->descriptor.log_id),
        .is_rescued = log->rescue != NULL && log->rescue->is_whole,
        .file_bytes = log->descriptor.file_size,
        .entries_bytes = log->descriptor.entries_size,
        .live_bytes = log->live_bytes,
    };
}
