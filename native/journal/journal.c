/* journal.c: the queue of records, and what is known of it.
 *
 * It gives each record its token and its slot, and says what is durable, what waits and what failed. What becomes of the
 * queue is decided by journal_commit.c, on which thread by journal_threads.c.
 *
 *     durable      submitted
 *        │             │        slots[token % SLOT_COUNT], durable < token <= submitted
 *     ───┴─────────────┴───▶    token
 */
#include "journal/journal_inside.h"

#include "base/futex.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define KIND_MAX 65535u

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
    if (atomic_load(&journal->sleeping)) ebk_futex_wake(&journal->kicks);
}

void ebk_journal_show_busy(struct ebk_journal *journal, void *word, uint32_t number)
{
    EBK_ASSERT(number < 16 && journal->settings.threaded);
    journal->busy_bit = 1u << number;
    atomic_store(&journal->busy_word, (_Atomic uint32_t *)word);
}

/* ---- asking ------------------------------------------------------------------------ */

int ebk_journal_failure(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int code = atomic_load(&journal->failed);
    if (code != EBK_OK) *fault = journal->fault;
    return code;
}

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

void ebk_journal_try_again(struct ebk_journal *journal)
{
    atomic_fetch_add(&journal->stall_word, 1);
    ebk_futex_wake(&journal->stall_word);
}

int ebk_journal_wait(struct ebk_journal *journal, uint64_t token)
{
    EBK_ASSERT(journal->settings.threaded);
    int code = EBK_OK;
    const uint32_t stalls = atomic_load(&journal->stalls);
    atomic_fetch_add(&journal->waiting, 1);
    ebk_journal_try_again(journal);
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
        ebk_futex_wait(&journal->durable_word, seen);
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
    if (atomic_load(&journal->stalled) != 0) ebk_journal_try_again(journal);
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
