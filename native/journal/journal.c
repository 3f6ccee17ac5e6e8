/* journal.c: the queue, group commit and the threads.
 *
 *     submit ─▶ slots ring ─▶ ebk_journal_commit(): gather, build, one write ─▶ durable, event
 *                                                     └─ meanwhile: build the next group, if much is queued
 *
 * Whatever arrived while one synced write was under way is the next group: no timer.
 * The same ebk_journal_commit() runs on the commit thread or, unthreaded, under step().
 *
 *     durable      submitted
 *        │             │        slots[token % SLOT_COUNT], durable < token <= submitted
 *     ───┴─────────────┴───▶    token
 */
#define _GNU_SOURCE
#include "journal/journal_inside.h"

#include "base/crc32c.h"
#include "base/yield.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KIND_MAX 65535u
#define COMMIT_PRIORITY 1
#define STALL_TRY_MS 200 /* While there is no room, it is asked for this often, and whenever a trim may have made some. */

static void futex_wait(_Atomic uint32_t *word, uint32_t seen)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
}

static void futex_wait_ms(_Atomic uint32_t *word, uint32_t seen, long ms)
{
    const struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- telling the other side -------------------------------------------------------- */

/* Wake the waiting threads: a group is durable, or none ever will be again. */
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
    EBK_ASSERT(code < 0 && atomic_load(&journal->failed) == EBK_OK);
    ebk_journal_path(journal, FILE_PREFIX, generation, path);
    ebk_fault_set(&journal->fault, code, system_error, path, offset, "%s", reason);
    atomic_store(&journal->failed, code);
    announce(journal);
    return EBK_FAILED;
}

/* There is no room for what is queued, or nothing to make the next file with. Nothing of it was promised to anybody, so it
 * waits: what was durable is as it was, and the same bytes go to the same place when there is room (JOURNAL.md section 5). */
static int stall(struct ebk_journal *journal, int system_error)
{
    EBK_ASSERT(ebk_code_of(system_error) == EBK_NO_SPACE || ebk_is_want(-system_error));
    EBK_ASSERT(atomic_load(&journal->failed) == EBK_OK);
    atomic_store(&journal->stalled, system_error);
    atomic_fetch_add(&journal->stalls, 1);
    announce(journal);
    return EBK_NO_SPACE;
}

static void try_again(struct ebk_journal *journal)
{
    atomic_fetch_add(&journal->stall_word, 1);
    futex_wake(&journal->stall_word);
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
    EBK_ASSERT(token > journal->durable_seen);
    int64_t answer = (int64_t)token;
    if (atomic_load(&journal->failed) != EBK_OK) {
        answer = EBK_FAILED;
    } else if (token - journal->durable_seen > SLOT_COUNT &&
               token - (journal->durable_seen = atomic_load(&journal->durable)) > SLOT_COUNT) {
        answer = EBK_FULL;
    } else {
        EBK_ASSERT(token - journal->durable_seen <= SLOT_COUNT); /* The slot's last record is durable. */
        EBK_ASSERT(!copied || head_size <= EBK_JOURNAL_COPY_BYTES_MAX);
        if (copied && head_size > 0) head = memcpy(journal->copies[token % SLOT_COUNT], head, head_size);
        journal->slots[token % SLOT_COUNT] = (struct slot){
            .piece = {head, tail}, .ledger_id = ledger_id, .kind = kind,
            .piece_size = {(uint32_t)head_size, (uint32_t)tail_size},
        };
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

/* How many of the queued records make the next group, of at most `room` bytes; 0: none fits. */
static uint32_t gather(const struct ebk_journal *journal, struct group_job *job, uint64_t last, uint64_t room)
{
    job->count = 0;
    job->bytes = sizeof(struct group_header);
    job->bodies = 0;
    for (uint64_t token = job->first; token <= last; token++, job->count++) {
        uint64_t body = body_size(&journal->slots[token % SLOT_COUNT]), more = record_extent(body);
        uint64_t cap = job->count == 0 ? GROUP_BUFFER_BYTES : GROUP_BYTES_CAP;
        if (job->bytes + more > (room < cap ? room : cap)) break;
        job->bytes += more;
        job->bodies += body;
    }
    EBK_ASSERT(job->bytes <= GROUP_BUFFER_BYTES && job->bodies < job->bytes);
    EBK_ASSERT(job->count == 0 || (job->bytes <= room && job->first + job->count - 1 <= last));
    return job->count;
}

/* Give the next group its place. The next group goes behind it, whether this one is durable or not: if it never is,
 * the journal has failed, and nothing is written behind it. */
static void place(struct ebk_journal *journal, struct group_job *job)
{
    EBK_ASSERT(job->count > 0 && journal->offset >= BLOCK_BYTES && journal->offset % BLOCK_BYTES == 0);
    job->position = journal->offset;
    job->sequence = journal->sequence + 1;
    journal->offset += round_up(job->bytes, BLOCK_BYTES);
    journal->sequence += 1;
    EBK_ASSERT(journal->offset <= journal->file_bytes);
}

/* Lay the group out in its buffer, ready to be written. The sums are taken over the copy, so that a caller who
 * changes borrowed bytes cannot make a record that fails its own checksum. */
static void build(const struct ebk_journal *journal, struct group_job *job)
{
    uint64_t at = sizeof(struct group_header);
    uint32_t records_crc = 0;
    EBK_ASSERT(job->count > 0 && job->bytes <= GROUP_BUFFER_BYTES && job->position >= BLOCK_BYTES);
    for (uint32_t index = 0; index < job->count; index++) {
        const struct slot *slot = &journal->slots[(job->first + index) % SLOT_COUNT];
        struct record_header *record = (struct record_header *)(job->buffer + at);
        uint8_t *body = (uint8_t *)(record + 1);
        *record = (struct record_header){.size = (uint32_t)body_size(slot), .kind = (uint16_t)slot->kind,
                                         .index = index, .ledger_id = slot->ledger_id};
        for (int i = 0; i < 2; i++) {
            if (slot->piece_size[i] > 0) memcpy(body, slot->piece[i], slot->piece_size[i]);
            body += slot->piece_size[i];
        }
        record->crc = ebk_journal_record_crc(journal->seed, job->position + at, record);
        records_crc = ebk_crc32c(records_crc, &record->crc, sizeof record->crc);
        at += record_extent(record->size);
        memset(body, 0, (size_t)(job->buffer + at - body));
    }
    EBK_ASSERT(at == job->bytes);
    memset(job->buffer + at, 0, round_up(at, BLOCK_BYTES) - at);
    job->header = (struct group_header){.magic = GROUP_MAGIC, .generation = journal->generation,
                                        .position = job->position, .sequence = job->sequence,
                                        .first_token = job->first, .record_count = job->count,
                                        .group_bytes = (uint32_t)job->bytes, .records_crc = records_crc,
                                        .previous_crc = job->previous_crc};
    job->header.crc = ebk_journal_group_crc(journal->seed, &job->header);
    memcpy(job->buffer, &job->header, sizeof job->header);
}

static int refuse_roll(struct ebk_journal *journal, int system_error)
{
    if (ebk_code_of(system_error) == EBK_NO_SPACE || ebk_is_want(-system_error)) return stall(journal, system_error);
    return fail(journal, ebk_code_of(system_error), system_error, journal->generation, journal->offset,
                "the file is full and no next one could be made");
}

/* Go on in the next file. A threaded journal waits for the thread that prepares it; a refusal is asked about once more,
 * because room may have been made since. */
static int roll(struct ebk_journal *journal)
{
    pthread_mutex_lock(&journal->files_lock);
    if (journal->file_count == journal->settings.file_count_max && journal->trimmed_count == 0) {
        pthread_mutex_unlock(&journal->files_lock);
        return stall(journal, ENOSPC); /* Until a file is trimmed. */
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
    if (!refused && ebk_journal_has_excess(journal)) {
        pthread_mutex_unlock(&journal->files_lock);
        ebk_journal_tidy(journal);
        pthread_mutex_lock(&journal->files_lock);
    }
    int old = journal->file;
    if (!refused) {
        EBK_ASSERT(journal->file_count < journal->settings.file_count_max);
        EBK_ASSERT(journal->next.generation > journal->generation && journal->next.bytes >= EBK_JOURNAL_FILE_BYTES_MIN);
        journal->files[journal->file_count++] = journal->next;
        journal->file = journal->next_file;
        journal->file_bytes = journal->next.bytes;
        journal->generation = journal->next.generation;
        journal->next_state = NEXT_MISSING;
        pthread_cond_broadcast(&journal->files_changed);
    }
    pthread_mutex_unlock(&journal->files_lock);
    if (refused) return refuse_roll(journal, refused);
    journal->io->close(journal->io, old);
    journal->offset = BLOCK_BYTES;
    journal->seed = ebk_journal_seed(journal->identity, journal->generation);
    return EBK_OK;
}

/* The group is on the device: tell. */
static void settle(struct ebk_journal *journal, const struct group_job *job)
{
    EBK_ASSERT(job->count > 0 && job->sequence <= journal->sequence);
    if (job->position == BLOCK_BYTES) {
        pthread_mutex_lock(&journal->files_lock);
        struct journal_file *entry = &journal->files[journal->file_count - 1];
        EBK_ASSERT(entry->generation == job->header.generation && entry->first_token == 0);
        entry->first_token = job->first;
        entry->first_sequence = job->sequence;
        pthread_mutex_unlock(&journal->files_lock);
    }
    atomic_fetch_add_explicit(&journal->group_count, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->group_bytes, round_up(job->bytes, BLOCK_BYTES), memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->bytes_durable, job->bodies, memory_order_relaxed);
    /* Without a gap, and never above what was queued. */
    EBK_ASSERT(job->first == atomic_load(&journal->durable) + 1);
    EBK_ASSERT(job->first + job->count - 1 <= atomic_load(&journal->submitted));
    atomic_store(&journal->durable, job->first + job->count - 1);
    announce(journal);
}

/* Plan the next group of what is queued behind token `before`, in the present file or the next one.
 * Returns its records, 0 when nothing is queued, EBK_NO_SPACE or EBK_FAILED. */
static int64_t plan(struct ebk_journal *journal, struct group_job *job, uint64_t before)
{
    uint64_t last = atomic_load(&journal->submitted);
    EBK_ASSERT(before <= last && last - before <= SLOT_COUNT);
    EBK_ASSERT(journal->held == NULL && !journal->is_ahead); /* What is planned is written before more is. */
    job->first = before + 1;
    if (job->first > last) return 0;
    if (gather(journal, job, last, journal->file_bytes - journal->offset) == 0) {
        int code = roll(journal);
        if (code < 0) return code;
        uint32_t count = gather(journal, job, last, journal->file_bytes - journal->offset);
        EBK_ASSERT(count > 0); /* submit() refused what no file can hold. */
    }
    bool is_written = false;
    int error = journal->offset == BLOCK_BYTES
                    ? ebk_journal_note(journal, job->buffer, journal->generation, job->first, &is_written) : 0;
    if (error < 0 && !is_written && ebk_code_of(-error) == EBK_NO_SPACE) return stall(journal, -error);
    if (error < 0)
        return fail(journal, ebk_code_of(-error), -error, journal->generation, BLOCK_BYTES,
                    "that the file is used could not be noted");
    place(journal, job);
    return job->count;
}

/* While `job` is written, let the build thread make the group behind it, if that is worth the waking. Both stand in
 * one file, one behind the other, and only one of them is on its way to the device at any time (JOURNAL.md, 4). */
static void build_ahead(struct ebk_journal *journal, const struct group_job *job)
{
    struct group_job *next = &journal->jobs[journal->job_index ^ 1];
    if (!journal->is_build_running) return;
    next->first = job->first + job->count;
    if (gather(journal, next, atomic_load(&journal->submitted), journal->file_bytes - journal->offset) == 0) return;
    if (next->bytes < OVERLAP_BYTES_MIN) return; /* More may arrive while this one is written: gather then. */
    EBK_ASSERT(!journal->is_ahead);
    place(journal, next);
    EBK_ASSERT(next->position == job->position + round_up(job->bytes, BLOCK_BYTES));
    EBK_ASSERT(next->sequence == job->sequence + 1);
    next->previous_crc = job->header.crc;
    journal->is_ahead = true;
    journal->build_index = journal->job_index ^ 1;
    atomic_fetch_add(&journal->builds_asked, 1);
    futex_wake(&journal->builds_asked);
}

static void wait_for_build(struct ebk_journal *journal)
{
    uint32_t asked = atomic_load(&journal->builds_asked), done;
    while ((done = atomic_load(&journal->builds_done)) != asked) {
        EBK_ASSERT(asked - done == 1);
        futex_wait(&journal->builds_done, done);
    }
}

/* Plan and build the next group, unless one that found no room is there. Returns as plan(). */
static int64_t prepare_group(struct ebk_journal *journal)
{
    EBK_ASSERT(journal->job_index < 2);
    struct group_job *job = &journal->jobs[journal->job_index];
    if (journal->held != NULL) return journal->held->count;
    if (journal->is_ahead) {
        wait_for_build(journal);
        journal->is_ahead = false;
        atomic_fetch_add_explicit(&journal->overlap_count, 1, memory_order_relaxed);
    } else {
        int64_t count = plan(journal, job, atomic_load(&journal->durable));
        if (count <= 0) return count;
        job->previous_crc = journal->previous_crc;
        build(journal, job);
    }
    journal->previous_crc = job->header.crc;
    if (journal->busy_word != NULL) ebk_yield_busy(journal->busy_word, journal->busy_bit);
    build_ahead(journal, job);
    journal->job_index ^= 1;
    journal->held = job;
    return job->count;
}

int64_t ebk_journal_commit(struct ebk_journal *journal)
{
    if (atomic_load(&journal->failed) != EBK_OK) return EBK_FAILED;
    const int64_t count = prepare_group(journal);
    if (count <= 0) return count;
    const struct group_job *job = journal->held;
    EBK_ASSERT(job != NULL && job->header.generation == journal->generation);
    EBK_ASSERT(job->position + round_up(job->bytes, BLOCK_BYTES) <= journal->file_bytes);
    int64_t wrote = journal->io->write(journal->io, journal->file, job->buffer, round_up(job->bytes, BLOCK_BYTES),
                                       job->position);
    if (wrote < 0 && ebk_code_of((int)-wrote) == EBK_NO_SPACE) return stall(journal, (int)-wrote);
    if (wrote < 0)
        return fail(journal, ebk_code_of((int)-wrote), (int)-wrote, journal->generation, job->position,
                    "a group could not be written");
    int synced = journal->dsync ? 0 : journal->io->sync(journal->io, journal->file);
    if (synced < 0)
        return fail(journal, ebk_code_of(-synced), -synced, journal->generation, job->position,
                    "a group could not be synced");
    journal->held = NULL;
    atomic_store(&journal->stalled, 0);
    settle(journal, job);
    return count;
}

void ebk_journal_show_busy(struct ebk_journal *journal, void *word, uint32_t number)
{
    EBK_ASSERT(number < 16 && journal->settings.threaded);
    journal->busy_bit = 1u << number;
    atomic_store(&journal->busy_word, (_Atomic uint32_t *)word);
}

int64_t ebk_journal_step(struct ebk_journal *journal)
{
    EBK_ASSERT(!journal->settings.threaded);
    int64_t count = ebk_journal_commit(journal);
    if (count == 0 && journal->next_state == NEXT_MISSING) ebk_journal_prepare(journal);
    return count;
}

/* ---- threads ----------------------------------------------------------------------- */

/* Asked for, never insisted on: without it a busy processor costs a tick per commit. */
static bool become_realtime(void)
{
    const struct sched_param parameters = {.sched_priority = COMMIT_PRIORITY};
    return pthread_setschedparam(pthread_self(), SCHED_RR, &parameters) == 0;
}

static void *run_builds(void *argument)
{
    struct ebk_journal *journal = argument;
    (void)become_realtime(); /* A commit waits for it. */
    for (;;) {
        uint32_t asked = atomic_load(&journal->builds_asked);
        if (atomic_load(&journal->stop_building)) return NULL;
        if (asked == atomic_load(&journal->builds_done)) {
            futex_wait(&journal->builds_asked, asked);
            continue;
        }
        EBK_ASSERT(asked - atomic_load(&journal->builds_done) == 1 && journal->build_index < 2);
        build(journal, &journal->jobs[journal->build_index]);
        atomic_store(&journal->builds_done, asked);
        futex_wake(&journal->builds_done);
    }
}

static void *run_commits(void *argument)
{
    struct ebk_journal *journal = argument;
    if (become_realtime()) atomic_store(&journal->realtime, true);
    for (;;) {
        uint32_t seen = atomic_load(&journal->kicks), stall_seen = atomic_load(&journal->stall_word);
        int64_t count = ebk_journal_commit(journal);
        if (count > 0) continue;
        if (journal->busy_word != NULL) ebk_yield_idle(journal->busy_word, journal->busy_bit);
        if (count < 0 && count != EBK_NO_SPACE) return NULL;
        if (atomic_load(&journal->stop_committing)) return NULL; /* Only when nothing is queued: close() commits the rest. */
        if (count == EBK_NO_SPACE) {
            futex_wait_ms(&journal->stall_word, stall_seen, STALL_TRY_MS);
            continue;
        }
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
        bool has_excess = ebk_journal_has_excess(journal);
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

int ebk_journal_start_threads(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    sigset_t all, before; /* Signals are for the application's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&journal->build_thread, NULL, run_builds, journal);
    journal->is_build_running = error == 0;
    if (error == 0) {
        error = pthread_create(&journal->commit_thread, NULL, run_commits, journal);
        journal->is_commit_running = error == 0;
    }
    if (error == 0) {
        error = pthread_create(&journal->prepare_thread, NULL, run_prepares, journal);
        journal->is_prepare_running = error == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return ebk_fault_set(fault, EBK_NO_MEMORY, error, journal->directory, 0, "a thread for it was refused");
    return EBK_OK;
}

/* The preparing thread stops last: the rest of the queue may still need a file. */
void ebk_journal_stop_threads(struct ebk_journal *journal)
{
    if (journal->is_commit_running) {
        atomic_store(&journal->stop_committing, true);
        ebk_journal_kick(journal);
        try_again(journal);
        pthread_join(journal->commit_thread, NULL);
        journal->is_commit_running = false;
    }
    if (journal->is_build_running) {
        atomic_store(&journal->stop_building, true);
        atomic_fetch_add(&journal->builds_asked, 1);
        futex_wake(&journal->builds_asked);
        pthread_join(journal->build_thread, NULL);
        journal->is_build_running = false;
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
    const uint64_t durable = atomic_load(&journal->durable);
    EBK_ASSERT(durable <= atomic_load(&journal->submitted));
    return durable;
}

int ebk_journal_wait(struct ebk_journal *journal, uint64_t token)
{
    EBK_ASSERT(journal->settings.threaded);
    int code = EBK_OK;
    const uint32_t stalls = atomic_load(&journal->stalls);
    atomic_fetch_add(&journal->waiting, 1);
    try_again(journal);
    for (;;) {
        uint32_t seen = atomic_load(&journal->durable_word);
        if (atomic_load(&journal->durable) >= token) break;
        if (atomic_load(&journal->stalls) != stalls && atomic_load(&journal->stalled) != 0) {
            code = EBK_NO_SPACE;
            break;
        }
        if (atomic_load(&journal->failed) != EBK_OK) {
            code = EBK_FAILED;
            break;
        }
        futex_wait(&journal->durable_word, seen);
    }
    const uint32_t waited = atomic_fetch_sub(&journal->waiting, 1);
    EBK_ASSERT(waited > 0);
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
    EBK_ASSERT(journal->trimmed_count <= count && count < journal->file_count); /* What is trimmed stays so. */
    journal->trimmed_count = count;
    if (journal->next_state == NEXT_REFUSED) journal->next_state = NEXT_MISSING; /* Room was made: try again. */
    pthread_cond_broadcast(&journal->files_changed);
    pthread_mutex_unlock(&journal->files_lock);
    if (!journal->settings.threaded) ebk_journal_tidy(journal);
    if (atomic_load(&journal->stalled) != 0) try_again(journal);
}

void ebk_journal_facts(struct ebk_journal *journal, struct ebk_journal_facts *facts)
{
    const int stalled = atomic_load(&journal->stalled);
    pthread_mutex_lock(&journal->files_lock);
    *facts = (struct ebk_journal_facts){
        .direct = journal->direct,
        .dsync = journal->dsync,
        .realtime = atomic_load(&journal->realtime),
        .is_file_ready = journal->next_state == NEXT_READY,
        .prepare_error = stalled != 0 ? stalled : journal->next_error,
        .is_stalled = stalled != 0,
        .generation = journal->files[journal->file_count - 1].generation,
        .file_count = journal->file_count,
        .trimmed_count = journal->trimmed_count,
        .first_token = journal->files[0].first_token,
        .group_count = atomic_load(&journal->group_count),
        .group_bytes = atomic_load(&journal->group_bytes),
        .overlap_count = atomic_load(&journal->overlap_count),
        .record_bytes_max = journal->record_bytes_max,
    };
    pthread_mutex_unlock(&journal->files_lock);
}
