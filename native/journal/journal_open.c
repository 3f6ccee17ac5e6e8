/* journal_open.c: a journal is opened on its directory, finds its tail, and is closed.
 *
 *     settings ─▶ memory ─▶ lock ─▶ names and headers ─▶ direct I/O? ─▶ tail ─▶ threads
 *
 * A failure on the way gives everything back and reports where and why.
 */
#include "journal/journal_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH_ROOM 32 /* "/journal-" and 16 digits, and the end */

/* Bounded address space, touched as used; NULL when refused. */
static void *reserve(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static void give_back(void *memory, size_t size)
{
    if (memory != NULL) munmap(memory, size);
}

void ebk_journal_release(struct ebk_journal *journal)
{
    struct ebk_io *io = journal->io;
    if (journal->file >= 0) io->close(io, journal->file);
    if (journal->next_state == NEXT_READY) io->close(io, journal->next_file);
    if (journal->used_file >= 0) io->close(io, journal->used_file);
    if (journal->lock_file >= 0) io->close(io, journal->lock_file);
    if (journal->event >= 0) close(journal->event);
    give_back(journal->slots, SLOT_COUNT * sizeof *journal->slots);
    give_back(journal->copies, SLOT_COUNT * sizeof *journal->copies);
    give_back(journal->buffer, GROUP_BUFFER_BYTES);
    give_back(journal->jobs[1].buffer, GROUP_BUFFER_BYTES);
    give_back(journal->zeros, ZERO_BYTES);
    free(journal->files);
    free(journal);
}

void ebk_journal_close(struct ebk_journal *journal)
{
    if (journal == NULL) return;
    if (journal->owner == getpid()) {
        ebk_journal_stop_threads(journal);
        while (!journal->settings.threaded && ebk_journal_commit(journal) > 0) continue;
    }
    ebk_journal_release(journal);
}

int ebk_journal_check_settings(const struct ebk_journal_settings *settings, const char *directory,
                               struct ebk_journal_fault *fault)
{
    if (strlen(directory) == 0 || strlen(directory) + PATH_ROOM > EBK_JOURNAL_PATH_BYTES)
        return ebk_fault_set(fault, EBK_USAGE, 0, "", 0, "the directory's path must have 1 to %d bytes",
                             EBK_JOURNAL_PATH_BYTES - PATH_ROOM);
    if (settings->file_bytes < EBK_JOURNAL_FILE_BYTES_MIN || settings->file_bytes % BLOCK_BYTES != 0 ||
        settings->file_bytes > UINT32_MAX)
        return ebk_fault_set(fault, EBK_USAGE, 0, directory, 0,
                             "file_bytes is %" PRIu64 "; allowed is a multiple of %u from %u to 4 GiB",
                             settings->file_bytes, BLOCK_BYTES, EBK_JOURNAL_FILE_BYTES_MIN);
    if (settings->file_bytes_max != 0 &&
        (settings->file_bytes_max < settings->file_bytes || settings->file_bytes_max % BLOCK_BYTES != 0 ||
         settings->file_bytes_max > UINT32_MAX))
        return ebk_fault_set(fault, EBK_USAGE, 0, directory, 0,
                             "file_bytes_max is %" PRIu64 "; allowed is a multiple of %u from file_bytes to 4 GiB",
                             settings->file_bytes_max, BLOCK_BYTES);
    if (settings->file_count_max == 1 || settings->file_count_max == 2)
        return ebk_fault_set(fault, EBK_USAGE, 0, directory, 0, "file_count_max is %u; allowed is 3 or more",
                             settings->file_count_max);
    return EBK_OK;
}

struct ebk_journal *ebk_journal_make(struct ebk_io *io, const char *directory,
                                     const struct ebk_journal_settings *settings, struct ebk_journal_fault *fault)
{
    struct ebk_journal *journal = aligned_alloc(CACHE_LINE_BYTES, sizeof *journal);
    ebk_fault_set(fault, EBK_NO_MEMORY, 0, directory, 0, "memory for it was refused");
    if (journal == NULL) return NULL;
    memset(journal, 0, sizeof *journal);
    journal->io = io;
    journal->settings = *settings;
    if (settings->file_count_max == 0) journal->settings.file_count_max = FILE_COUNT_DEFAULT;
    if (settings->file_bytes_max == 0) journal->settings.file_bytes_max = settings->file_bytes;
    snprintf(journal->directory, sizeof journal->directory, "%s", directory);
    journal->owner = getpid();
    journal->file = journal->lock_file = journal->event = journal->next_file = journal->used_file = -1;
    journal->armed = 1;
    memcpy(journal->identity, settings->identity, sizeof journal->identity);
    pthread_mutex_init(&journal->submit_lock, NULL);
    pthread_mutex_init(&journal->files_lock, NULL);
    pthread_cond_init(&journal->files_changed, NULL);
    journal->slots = reserve(SLOT_COUNT * sizeof *journal->slots);
    journal->copies = reserve(SLOT_COUNT * sizeof *journal->copies);
    journal->buffer = journal->jobs[0].buffer = reserve(GROUP_BUFFER_BYTES);
    journal->jobs[1].buffer = reserve(GROUP_BUFFER_BYTES);
    journal->zeros = reserve(ZERO_BYTES);
    journal->files = calloc(journal->settings.file_count_max, sizeof *journal->files);
    bool is_whole = journal->slots != NULL && journal->copies != NULL && journal->buffer != NULL && journal->jobs[1].buffer != NULL && journal->zeros != NULL &&
                    journal->files != NULL;
    if (is_whole && settings->threaded && (journal->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0) {
        is_whole = false;
        ebk_fault_set(fault, EBK_IO, errno, directory, 0, "a descriptor for its threads was refused");
    }
    if (is_whole) return journal;
    ebk_journal_release(journal);
    return NULL;
}

int ebk_journal_take_directory(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    int error = io->make_directory(io, journal->directory);
    if (error < 0)
        return ebk_fault_set(fault, EBK_IO, -error, journal->directory, 0, "the directory cannot be made or used");
    snprintf(path, sizeof path, "%s", journal->directory);
    char *slash = strrchr(path, '/');
    if (slash == NULL)
        snprintf(path, sizeof path, ".");
    else
        slash[slash == path ? 1 : 0] = 0;
    error = io->sync_directory(io, path);
    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, path, 0, "the directory above cannot be synced");
    int size = snprintf(path, sizeof path, "%.*s/LOCK", EBK_JOURNAL_PATH_BYTES - PATH_ROOM, journal->directory);
    EBK_ASSERT(size > 0 && size < EBK_JOURNAL_PATH_BYTES);
    journal->lock_file = io->lock(io, path);
    if (journal->lock_file == -EWOULDBLOCK)
        return ebk_fault_set(fault, EBK_LOCKED, 0, journal->directory, 0, "another handle or process has it open");
    if (journal->lock_file < 0)
        return ebk_fault_set(fault, EBK_IO, -journal->lock_file, path, 0, "the lock cannot be taken");
    return EBK_OK;
}

/* Follow the groups of the file being written to its tail (see journal_replay.c for the rule). */
static int find_tail(struct ebk_journal *journal, const struct journal_file *entry, const char *path,
                     struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    struct group_header group;
    bool has_any = entry->start_token != 0; /* Then the header has the numbers of the first group. */
    if (has_any) {
        journal->opened_token = entry->start_token - 1;
        journal->sequence = entry->start_sequence - 1;
    }
    journal->offset = BLOCK_BYTES;
    for (;;) {
        int valid = ebk_group_read(io, journal->file, journal->seed, entry->generation, journal->offset, entry->bytes,
                                   journal->buffer, &group);
        if (valid < 0)
            return ebk_fault_set(fault, EBK_IO, -valid, path, journal->offset, "the file cannot be read");
        if (!valid) break;
        if (has_any && (group.sequence != journal->sequence + 1 || group.previous_crc != journal->previous_crc ||
                        group.first_token != journal->opened_token + 1))
            return ebk_fault_set(fault, EBK_DAMAGED, 0, path, journal->offset, "a group does not follow the one before");
        has_any = true;
        journal->sequence = group.sequence;
        journal->previous_crc = group.crc;
        journal->opened_token = group.first_token + group.record_count - 1;
        journal->offset += round_up(group.group_bytes, BLOCK_BYTES);
    }
    int64_t later = ebk_group_find(io, journal->file, journal->seed, entry->generation, journal->offset + BLOCK_BYTES,
                                   entry->bytes, journal->buffer, &group);
    if (later < 0) return ebk_fault_set(fault, EBK_IO, (int)-later, path, journal->offset, "the file cannot be read");
    if (later > 0)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, journal->offset,
                             "a group is not what was written, and a later one at %" PRId64 " is", later);
    return EBK_OK;
}

/* Make files[index] the one being written. */
static int go_on_in(struct ebk_journal *journal, uint32_t index, struct ebk_journal_fault *fault)
{
    const struct journal_file *entry = &journal->files[index];
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, entry->generation, path);
    journal->file = ebk_journal_open_file(journal, path);
    if (journal->file < 0) return ebk_fault_set(fault, EBK_IO, -journal->file, path, 0, "the file cannot be opened");
    journal->file_bytes = entry->bytes;
    journal->generation = entry->generation;
    journal->seed = ebk_journal_seed(journal->identity, entry->generation);
    journal->file_count = index + 1;
    int code = find_tail(journal, entry, path, fault);
    if (code < 0) return code;
    journal->opened_sequence = journal->sequence;
    journal->submitted = journal->durable = journal->opened_token;
    return EBK_OK;
}

/* A blank file behind the one being written is the next one; more of them, or one of another size, go. */
static int keep_next(struct ebk_journal *journal, uint32_t found, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    for (uint32_t i = journal->file_count; i < found; i++) {
        const struct journal_file *entry = &journal->files[i];
        ebk_journal_path(journal, FILE_PREFIX, entry->generation, path);
        int file = -1;
        if (journal->next_state != NEXT_READY && entry->bytes >= journal->settings.file_bytes &&
            entry->bytes <= journal->settings.file_bytes_max) {
            file = ebk_journal_open_file(journal, path);
            if (file < 0) return ebk_fault_set(fault, EBK_IO, -file, path, 0, "the file cannot be opened");
            journal->next_state = NEXT_READY;
            journal->next_file = file;
            journal->next = *entry;
            continue;
        }
        int error = io->unlink(io, path);
        if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, path, 0, "a blank file cannot be removed");
    }
    return EBK_OK;
}

static int make_first_file(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int error = ebk_journal_prepare(journal);
    if (error < 0)
        return ebk_fault_set(fault, ebk_code_of(-error), -error, journal->directory, 0, "the first file cannot be made");
    journal->files[0] = journal->next;
    journal->io->close(journal->io, journal->next_file);
    journal->next_state = NEXT_MISSING;
    return EBK_OK;
}

static int open_files(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int code = ebk_journal_find_files(journal, fault);
    if (code == EBK_OK) code = ebk_journal_probe_direct(journal, fault);
    if (code == EBK_OK) code = ebk_journal_open_used(journal, fault);
    if (code < 0) return code;
    ebk_journal_find_used(journal);
    uint32_t found = journal->file_count, index = 0;
    if (found == 0) {
        code = make_first_file(journal, fault);
        if (code < 0) return code;
        found = 1;
    }
    for (uint32_t i = 0; i < found; i++)
        if (journal->files[i].first_token != 0) index = i; /* The newest that has groups, or the oldest blank one. */
    code = go_on_in(journal, index, fault);
    if (code == EBK_OK) code = ebk_journal_compare_used(journal, fault);
    if (code < 0) return code;
    uint64_t least = journal->file_bytes < journal->settings.file_bytes ? journal->file_bytes : journal->settings.file_bytes;
    uint64_t room = least - BLOCK_BYTES - sizeof(struct group_header) - sizeof(struct record_header);
    journal->record_bytes_max = room < EBK_JOURNAL_RECORD_BYTES_MAX ? room : EBK_JOURNAL_RECORD_BYTES_MAX;
    return keep_next(journal, found, fault);
}

int ebk_journal_open(struct ebk_io *io, const char *directory, const struct ebk_journal_settings *settings,
                     struct ebk_journal **out, struct ebk_journal_fault *fault)
{
    *out = NULL;
    int code = ebk_journal_check_settings(settings, directory, fault);
    if (code < 0) return code;
    struct ebk_journal *journal = ebk_journal_make(io, directory, settings, fault);
    if (journal == NULL) return fault->code;
    code = ebk_journal_take_directory(journal, fault);
    if (code == EBK_OK) code = open_files(journal, fault);
    if (code == EBK_OK && settings->threaded) code = ebk_journal_start_threads(journal, fault);
    if (code < 0) {
        ebk_journal_stop_threads(journal);
        ebk_journal_release(journal);
        return code;
    }
    *out = journal;
    return EBK_OK;
}
