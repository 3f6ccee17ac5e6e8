/* journal.c: the queue, group commit and the two threads.
 *
 *     submit ─▶ slots ring ─▶ commit_group(): gather, build, one write ─▶ durable, event
 *
 * Whatever arrived while one synced write was under way is the next group: no timer (T1).
 * The same commit_group() runs on the commit thread or, unthreaded, under step().
 *
 *     durable      submitted
 *        │             │        slots[token % SLOT_COUNT], durable < token <= submitted
 *     ───┴─────────────┴───▶    token
 */
#define _GNU_SOURCE
#include "journal_inside.h"

#include "crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIND_MAX 65535u
#define COMMIT_PRIORITY 1
#define PATH_ROOM 32 /* "/journal-" and 16 digits, and the end */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

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

/* ---- telling the other side -------------------------------------------------------- */

/* Something changed for those who wait: a group is durable, or none ever will be again. */
static void announce(struct ebk_journal *journal)
{
    atomic_fetch_add(&journal->durable_word, 1);
    if (atomic_load(&journal->waiting)) futex_wake(&journal->durable_word);
    if (journal->event >= 0 && atomic_exchange(&journal->armed, 0)) {
        const uint64_t one = 1;
        ssize_t put = write(journal->event, &one, sizeof one);
        EBK_ASSERT(put == sizeof one); /* The count cannot overflow: it is set once between reaps. */
    }
}

/* The journal ends here (P7.6): say why, once, and acknowledge nothing any more. */
static int fail(struct ebk_journal *journal, int code, int system_error, uint64_t generation, uint64_t offset,
                const char *reason)
{
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, "journal-", generation, path);
    ebk_fault_set(&journal->fault, code, system_error, path, offset, "%s", reason);
    atomic_store(&journal->failed, code);
    announce(journal);
    return EBK_FAILED;
}

int ebk_journal_failure(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int code = atomic_load(&journal->failed);
    if (code != EBK_OK) *fault = journal->fault;
    return code;
}

/* ---- submitting -------------------------------------------------------------------- */

static int64_t submit(struct ebk_journal *journal, uint32_t kind, uint64_t ledger_id, const void *head,
                      size_t head_size, const void *tail, size_t tail_size, bool copied)
{
    if (kind > KIND_MAX || head_size > journal->record_bytes_max || tail_size > journal->record_bytes_max ||
        head_size + tail_size > journal->record_bytes_max)
        return EBK_USAGE;
    pthread_mutex_lock(&journal->submit_lock);
    uint64_t token = atomic_load_explicit(&journal->submitted, memory_order_relaxed) + 1;
    int64_t answer = (int64_t)token;
    if (atomic_load(&journal->failed) != EBK_OK) {
        answer = EBK_FAILED;
    } else if (token - atomic_load(&journal->durable) > SLOT_COUNT) {
        answer = EBK_FULL;
    } else {
        struct slot *slot = &journal->slots[token % SLOT_COUNT];
        slot->kind = kind;
        slot->ledger_id = ledger_id;
        slot->piece[0] = head;
        slot->piece_size[0] = (uint32_t)head_size;
        slot->piece[1] = tail;
        slot->piece_size[1] = (uint32_t)tail_size;
        if (copied && head_size > 0) slot->piece[0] = memcpy(slot->copy, head, head_size);
        atomic_fetch_add_explicit(&journal->bytes_submitted, head_size + tail_size, memory_order_relaxed);
        atomic_store(&journal->submitted, token);
    }
    pthread_mutex_unlock(&journal->submit_lock);
    return answer;
}

int64_t ebk_journal_submit(struct ebk_journal *journal, uint32_t kind, uint64_t ledger_id, const void *head,
                           size_t head_size, const void *tail, size_t tail_size)
{
    return submit(journal, kind, ledger_id, head, head_size, tail, tail_size, false);
}

int64_t ebk_journal_submit_copy(struct ebk_journal *journal, uint32_t kind, uint64_t ledger_id, const void *data,
                                size_t size)
{
    if (size > EBK_JOURNAL_COPY_BYTES_MAX) return EBK_USAGE;
    return submit(journal, kind, ledger_id, data, size, NULL, 0, true);
}

void ebk_journal_kick(struct ebk_journal *journal)
{
    atomic_fetch_add(&journal->kicks, 1);
    if (atomic_load(&journal->sleeping)) futex_wake(&journal->kicks);
}

/* ---- group commit ------------------------------------------------------------------ */

static uint64_t body_size(const struct slot *slot)
{
    return (uint64_t)slot->piece_size[0] + slot->piece_size[1];
}

/* How many of the queued records make the next group, of at most `room` bytes. *bytes: its size before padding. */
static uint32_t gather(const struct ebk_journal *journal, uint64_t first, uint64_t last, uint64_t room, uint64_t *bytes)
{
    uint32_t count = 0;
    *bytes = sizeof(struct group_header);
    for (uint64_t token = first; token <= last; token++, count++) {
        uint64_t more = record_extent(body_size(&journal->slots[token % SLOT_COUNT]));
        uint64_t cap = count == 0 ? GROUP_BUFFER_BYTES : GROUP_BYTES_CAP;
        if (*bytes + more > (room < cap ? room : cap)) break;
        *bytes += more;
    }
    return count;
}

/* Lay the group out in the buffer, ready to be written at journal->offset. The sums are taken over the copy,
 * so that a caller who changes borrowed bytes cannot make a record that fails its own checksum. */
static struct group_header build(struct ebk_journal *journal, uint64_t first, uint32_t count, uint64_t bytes)
{
    uint64_t at = sizeof(struct group_header);
    uint32_t records_crc = 0;
    for (uint32_t index = 0; index < count; index++) {
        const struct slot *slot = &journal->slots[(first + index) % SLOT_COUNT];
        struct record_header *record = (struct record_header *)(journal->buffer + at);
        uint8_t *body = (uint8_t *)(record + 1);
        *record = (struct record_header){.size = (uint32_t)body_size(slot), .kind = (uint16_t)slot->kind,
                                         .index = index, .ledger_id = slot->ledger_id};
        for (int i = 0; i < 2; i++) {
            if (slot->piece_size[i] > 0) memcpy(body, slot->piece[i], slot->piece_size[i]);
            body += slot->piece_size[i];
        }
        record->crc = ebk_journal_record_crc(journal->seed, journal->offset + at, record);
        records_crc = ebk_crc32c(records_crc, &record->crc, sizeof record->crc);
        at += record_extent(record->size);
        memset(body, 0, (size_t)(journal->buffer + at - body));
    }
    EBK_ASSERT(at == bytes);
    memset(journal->buffer + at, 0, round_up(at, BLOCK_BYTES) - at);
    struct group_header group = {.magic = GROUP_MAGIC, .generation = journal->generation, .position = journal->offset,
                                 .sequence = journal->sequence + 1, .first_token = first, .record_count = count,
                                 .group_bytes = (uint32_t)bytes, .records_crc = records_crc,
                                 .previous_crc = journal->previous_crc};
    group.crc = ebk_journal_group_crc(journal->seed, &group);
    memcpy(journal->buffer, &group, sizeof group);
    return group;
}

static int fail_roll(struct ebk_journal *journal, int system_error)
{
    return fail(journal, ebk_code_of(system_error), system_error, journal->generation, journal->offset,
                "the file is full and no next one could be made");
}

/* Go on in the next file. A threaded journal waits for the one who prepares; a refusal is asked about once more,
 * because room may have been made since. */
static int roll(struct ebk_journal *journal)
{
    pthread_mutex_lock(&journal->files_lock);
    if (journal->file_count == journal->settings.file_count_max) {
        pthread_mutex_unlock(&journal->files_lock);
        return fail(journal, EBK_NO_SPACE, 0, journal->generation, journal->offset,
                    "file_count_max files are full and none is trimmed");
    }
    if (journal->next_state == NEXT_REFUSED) journal->next_state = NEXT_MISSING;
    if (!journal->settings.threaded && journal->next_state == NEXT_MISSING) {
        pthread_mutex_unlock(&journal->files_lock);
        ebk_journal_prepare(journal);
        pthread_mutex_lock(&journal->files_lock);
    }
    pthread_cond_broadcast(&journal->files_changed);
    while (journal->next_state == NEXT_MISSING) pthread_cond_wait(&journal->files_changed, &journal->files_lock);
    int refused = journal->next_state == NEXT_REFUSED ? journal->next_error : 0;
    int old = journal->file;
    if (!refused) {
        journal->files[journal->file_count++] = journal->next;
        journal->file = journal->next_file;
        journal->file_bytes = journal->next.bytes;
        journal->generation = journal->next.generation;
        journal->next_state = NEXT_MISSING;
        pthread_cond_broadcast(&journal->files_changed);
    }
    pthread_mutex_unlock(&journal->files_lock);
    if (refused) return fail_roll(journal, refused);
    journal->io->close(journal->io, old);
    journal->offset = BLOCK_BYTES;
    journal->seed = ebk_journal_seed(journal->identity, journal->generation);
    return EBK_OK;
}

/* The group is on the device: move on, and tell. */
static void advance(struct ebk_journal *journal, const struct group_header *group, uint64_t extent, uint64_t bodies)
{
    if (journal->offset == BLOCK_BYTES) {
        pthread_mutex_lock(&journal->files_lock);
        struct journal_file *entry = &journal->files[journal->file_count - 1];
        EBK_ASSERT(entry->generation == group->generation);
        entry->first_token = group->first_token;
        entry->first_sequence = group->sequence;
        pthread_mutex_unlock(&journal->files_lock);
    }
    journal->offset += extent;
    journal->sequence = group->sequence;
    journal->previous_crc = group->crc;
    atomic_fetch_add_explicit(&journal->group_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->group_bytes, extent, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->bytes_durable, bodies, memory_order_relaxed);
    atomic_store(&journal->durable, group->first_token + group->record_count - 1);
    announce(journal);
}

/* Make one group of what is queued durable. Returns its records, 0 when nothing is queued, or EBK_FAILED. */
static int64_t commit_group(struct ebk_journal *journal)
{
    if (atomic_load(&journal->failed) != EBK_OK) return EBK_FAILED;
    uint64_t first = atomic_load(&journal->durable) + 1, last = atomic_load(&journal->submitted);
    if (first > last) return 0;
    uint64_t bytes;
    uint32_t count = gather(journal, first, last, journal->file_bytes - journal->offset, &bytes);
    if (count == 0) {
        int code = roll(journal);
        if (code < 0) return code;
        count = gather(journal, first, last, journal->file_bytes - journal->offset, &bytes);
        EBK_ASSERT(count > 0); /* submit() refused what no file can hold. */
    }
    struct group_header group = build(journal, first, count, bytes);
    uint64_t extent = round_up(bytes, BLOCK_BYTES), bodies = 0;
    EBK_ASSERT(journal->offset + extent <= journal->file_bytes);
    for (uint32_t i = 0; i < count; i++) bodies += body_size(&journal->slots[(first + i) % SLOT_COUNT]);

    int64_t wrote = journal->io->write(journal->io, journal->file, journal->buffer, extent, journal->offset);
    if (wrote < 0)
        return fail(journal, ebk_code_of((int)-wrote), (int)-wrote, journal->generation, journal->offset,
                    "a group could not be written");
    int synced = journal->direct ? 0 : journal->io->sync(journal->io, journal->file);
    if (synced < 0)
        return fail(journal, ebk_code_of(-synced), -synced, journal->generation, journal->offset,
                    "a group could not be synced");
    advance(journal, &group, extent, bodies);
    return count;
}

int64_t ebk_journal_step(struct ebk_journal *journal)
{
    EBK_ASSERT(!journal->settings.threaded);
    int64_t count = commit_group(journal);
    if (count == 0 && journal->next_state == NEXT_MISSING) ebk_journal_prepare(journal);
    return count;
}

/* ---- threads ----------------------------------------------------------------------- */

static void *run_commits(void *argument)
{
    struct ebk_journal *journal = argument;
    const struct sched_param parameters = {.sched_priority = COMMIT_PRIORITY};
    /* Asked for, never insisted on: without it a busy processor costs a tick per commit (T4). */
    if (pthread_setschedparam(pthread_self(), SCHED_RR, &parameters) == 0) atomic_store(&journal->realtime, true);
    for (;;) {
        uint32_t seen = atomic_load(&journal->kicks);
        int64_t count = commit_group(journal);
        if (count < 0) return NULL;
        if (count > 0) continue;
        if (atomic_load(&journal->stop_committing)) return NULL; /* Only when nothing is queued: close() commits the rest. */
        atomic_store(&journal->sleeping, 1);
        futex_wait(&journal->kicks, seen); /* Returns at once if a kick came since `seen`. */
        atomic_store(&journal->sleeping, 0);
    }
}

static void *run_prepares(void *argument)
{
    struct ebk_journal *journal = argument;
    pthread_mutex_lock(&journal->files_lock);
    while (!journal->stop_preparing) {
        bool has_excess = journal->trimmed_count > RECYCLED_COUNT_MAX;
        if (journal->next_state != NEXT_MISSING && !has_excess) {
            pthread_cond_wait(&journal->files_changed, &journal->files_lock);
            continue;
        }
        bool is_missing = journal->next_state == NEXT_MISSING;
        pthread_mutex_unlock(&journal->files_lock);
        if (is_missing) ebk_journal_prepare(journal);
        ebk_journal_tidy(journal);
        pthread_mutex_lock(&journal->files_lock);
    }
    pthread_mutex_unlock(&journal->files_lock);
    return NULL;
}

static int start_threads(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    sigset_t all, before; /* Signals are for the application's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&journal->commit_thread, NULL, run_commits, journal);
    journal->is_commit_running = error == 0;
    if (error == 0) {
        error = pthread_create(&journal->prepare_thread, NULL, run_prepares, journal);
        journal->is_prepare_running = error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return ebk_fault_set(fault, EBK_NO_MEMORY, error, journal->directory, 0, "a thread for it was refused");
    return EBK_OK;
}

/* The one who prepares stops last: the rest of the queue may still need a file. */
static void stop_threads(struct ebk_journal *journal)
{
    if (journal->is_commit_running) {
        atomic_store(&journal->stop_committing, true);
        ebk_journal_kick(journal);
        pthread_join(journal->commit_thread, NULL);
        journal->is_commit_running = false;
    }
    if (journal->is_prepare_running) {
        pthread_mutex_lock(&journal->files_lock);
        journal->stop_preparing = true;
        pthread_cond_broadcast(&journal->files_changed);
        pthread_mutex_unlock(&journal->files_lock);
        pthread_join(journal->prepare_thread, NULL);
        journal->is_prepare_running = false;
    }
}

/* ---- open and close ---------------------------------------------------------------- */

static void release(struct ebk_journal *journal)
{
    struct ebk_io *io = journal->io;
    if (journal->file >= 0) io->close(io, journal->file);
    if (journal->next_state == NEXT_READY) io->close(io, journal->next_file);
    if (journal->lock_file >= 0) io->close(io, journal->lock_file);
    if (journal->event >= 0) close(journal->event);
    give_back(journal->slots, SLOT_COUNT * sizeof *journal->slots);
    give_back(journal->buffer, GROUP_BUFFER_BYTES);
    give_back(journal->zeros, ZERO_BYTES);
    free(journal->files);
    free(journal);
}

void ebk_journal_close(struct ebk_journal *journal)
{
    if (journal == NULL) return;
    if (journal->owner == getpid()) {
        stop_threads(journal);
        while (!journal->settings.threaded && commit_group(journal) > 0) continue;
    }
    release(journal);
}

static int check_settings(const struct ebk_journal_settings *settings, const char *directory,
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
    if (settings->file_count_max == 1 || settings->file_count_max == 2)
        return ebk_fault_set(fault, EBK_USAGE, 0, directory, 0, "file_count_max is %u; allowed is 3 or more",
                             settings->file_count_max);
    return EBK_OK;
}

static struct ebk_journal *make(struct ebk_io *io, const char *directory, const struct ebk_journal_settings *settings)
{
    struct ebk_journal *journal = calloc(1, sizeof *journal);
    if (journal == NULL) return NULL;
    journal->io = io;
    journal->settings = *settings;
    if (settings->file_count_max == 0) journal->settings.file_count_max = FILE_COUNT_DEFAULT;
    snprintf(journal->directory, sizeof journal->directory, "%s", directory);
    journal->owner = getpid();
    journal->file = journal->lock_file = journal->event = journal->next_file = -1;
    journal->armed = 1;
    memcpy(journal->identity, settings->identity, sizeof journal->identity);
    pthread_mutex_init(&journal->submit_lock, NULL);
    pthread_mutex_init(&journal->files_lock, NULL);
    pthread_cond_init(&journal->files_changed, NULL);
    journal->slots = reserve(SLOT_COUNT * sizeof *journal->slots);
    journal->buffer = reserve(GROUP_BUFFER_BYTES);
    journal->zeros = reserve(ZERO_BYTES);
    journal->files = calloc(journal->settings.file_count_max, sizeof *journal->files);
    if (settings->threaded) journal->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    bool is_whole = journal->slots != NULL && journal->buffer != NULL && journal->zeros != NULL &&
                    journal->files != NULL && (journal->event >= 0 || !settings->threaded);
    if (is_whole) return journal;
    release(journal);
    return NULL;
}

/* The directory is there, its name durable, and ours alone. */
static int take_directory(struct ebk_journal *journal, struct ebk_journal_fault *fault)
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
    bool has_any = false;
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
    ebk_journal_path(journal, "journal-", entry->generation, path);
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
        ebk_journal_path(journal, "journal-", entry->generation, path);
        int file = -1;
        if (journal->next_state != NEXT_READY && entry->bytes == journal->settings.file_bytes) {
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
    if (code < 0) return code;
    uint32_t found = journal->file_count, index = 0;
    if (found == 0) {
        code = make_first_file(journal, fault);
        if (code < 0) return code;
        found = 1;
    }
    for (uint32_t i = 0; i < found; i++)
        if (journal->files[i].first_token != 0) index = i; /* The newest that has groups, or the oldest blank one. */
    code = go_on_in(journal, index, fault);
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
    int code = check_settings(settings, directory, fault);
    if (code < 0) return code;
    struct ebk_journal *journal = make(io, directory, settings);
    if (journal == NULL) return ebk_fault_set(fault, EBK_NO_MEMORY, errno, directory, 0, "memory for it was refused");
    code = take_directory(journal, fault);
    if (code == EBK_OK) code = open_files(journal, fault);
    if (code == EBK_OK && settings->threaded) code = start_threads(journal, fault);
    if (code < 0) {
        stop_threads(journal);
        release(journal);
        return code;
    }
    *out = journal;
    return EBK_OK;
}

/* ---- asking ------------------------------------------------------------------------ */

uint64_t ebk_journal_durable(const struct ebk_journal *journal)
{
    return atomic_load(&journal->durable);
}

uint64_t ebk_journal_reap(struct ebk_journal *journal)
{
    uint64_t count;
    if (journal->event >= 0 && read(journal->event, &count, sizeof count) < 0)
        EBK_ASSERT(errno == EAGAIN || errno == EINTR);
    /* Armed before durable is read: a group that ends in between sets the descriptor. */
    atomic_store(&journal->armed, 1);
    return atomic_load(&journal->durable);
}

int ebk_journal_wait(struct ebk_journal *journal, uint64_t token)
{
    EBK_ASSERT(journal->settings.threaded);
    int code = EBK_OK;
    atomic_fetch_add(&journal->waiting, 1);
    for (;;) {
        uint32_t seen = atomic_load(&journal->durable_word);
        if (atomic_load(&journal->durable) >= token) break;
        if (atomic_load(&journal->failed) != EBK_OK) {
            code = EBK_FAILED;
            break;
        }
        futex_wait(&journal->durable_word, seen);
    }
    atomic_fetch_sub(&journal->waiting, 1);
    return code;
}

int ebk_journal_event(const struct ebk_journal *journal)
{
    return journal->event;
}

uint64_t ebk_journal_next_token(const struct ebk_journal *journal)
{
    return atomic_load(&journal->submitted) + 1;
}

uint64_t ebk_journal_queued_bytes(const struct ebk_journal *journal)
{
    /* durable first: read the other way round, the difference could be negative. */
    uint64_t durable = atomic_load(&journal->bytes_durable);
    return atomic_load(&journal->bytes_submitted) - durable;
}

void ebk_journal_trim(struct ebk_journal *journal, uint64_t token)
{
    pthread_mutex_lock(&journal->files_lock);
    uint32_t count = journal->trimmed_count;
    /* A file ends where the next one begins; the newest with groups has no such neighbour and stays, so that
     * tokens go on rising after a restart. */
    while (count + 1 < journal->file_count && journal->files[count + 1].first_token != 0 &&
           journal->files[count + 1].first_token - 1 <= token)
        count += 1;
    journal->trimmed_count = count;
    if (journal->next_state == NEXT_REFUSED) journal->next_state = NEXT_MISSING; /* Room was made: try again. */
    pthread_cond_broadcast(&journal->files_changed);
    pthread_mutex_unlock(&journal->files_lock);
    if (!journal->settings.threaded) ebk_journal_tidy(journal);
}

void ebk_journal_facts(struct ebk_journal *journal, struct ebk_journal_facts *facts)
{
    pthread_mutex_lock(&journal->files_lock);
    *facts = (struct ebk_journal_facts){
        .direct = journal->direct,
        .realtime = atomic_load(&journal->realtime),
        .is_file_ready = journal->next_state == NEXT_READY,
        .prepare_error = journal->next_state == NEXT_REFUSED ? journal->next_error : 0,
        .generation = journal->files[journal->file_count - 1].generation,
        .file_count = journal->file_count,
        .trimmed_count = journal->trimmed_count,
        .first_token = journal->files[0].first_token,
        .group_count = atomic_load(&journal->group_count),
        .group_bytes = atomic_load(&journal->group_bytes),
        .record_bytes_max = journal->record_bytes_max,
    };
    pthread_mutex_unlock(&journal->files_lock);
}
