/* journal_commit.c: group commit: what is queued becomes a group, and the group durable.
 *
 *     slots ring ─▶ ebk_journal_commit(): gather, build, one write ─▶ durable, event
 *                                          └─ meanwhile: build the next group, if much is queued
 *
 * It decides which records make a group and where it goes, and what a refused write, sync or file means: the end of the
 * journal, or a wait for room. Whatever arrived while one synced write was under way is the next group: no timer.
 * The same ebk_journal_commit() runs on the commit thread or, unthreaded, under step(). Files are journal_files.c's.
 */
#include "journal/journal_inside.h"

#include "base/crc32c.h"
#include "base/futex.h"
#include "base/yield.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- reporting to the other side --------------------------------------------------- */

/* Wake the waiting threads: a group is durable, or none ever will be again. */
static void announce(struct ebk_journal *journal)
{
    atomic_fetch_add(&journal->durable_word, 1);
    if (atomic_load(&journal->waiting)) ebk_futex_wake(&journal->durable_word);
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
void ebk_journal_build(const struct ebk_journal *journal, struct group_job *job)
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
    ebk_futex_wake(&journal->builds_asked);
}

static void wait_for_build(struct ebk_journal *journal)
{
    uint32_t asked = atomic_load(&journal->builds_asked), done;
    while ((done = atomic_load(&journal->builds_done)) != asked) {
        EBK_ASSERT(asked - done == 1);
        ebk_futex_wait(&journal->builds_done, done);
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
        ebk_journal_build(journal, job);
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

int64_t ebk_journal_step(struct ebk_journal *journal)
{
    EBK_ASSERT(!journal->settings.threaded);
    int64_t count = ebk_journal_commit(journal);
    if (count == 0 && journal->next_state == NEXT_MISSING) ebk_journal_prepare(journal);
    return count;
}
