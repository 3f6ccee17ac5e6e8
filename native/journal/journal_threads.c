/* journal_threads.c: the threads of a journal: which there are, when each sleeps, and how they end.
 *
 * One commits, one builds the next group when much is queued, and one prepares files ahead. What they do is
 * decided by journal_commit.c and journal_files.c.
 */
#define _GNU_SOURCE
#include "journal/journal_inside.h"

#include "base/futex.h"
#include "base/yield.h"

#include <sched.h>
#include <signal.h>

#define COMMIT_PRIORITY 1
#define STALL_TRY_MS 200 /* While there is no room, it is asked for this often, and whenever a trim may have made some. */

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
            ebk_futex_wait(&journal->builds_asked, asked);
            continue;
        }
        EBK_ASSERT(asked - atomic_load(&journal->builds_done) == 1 && journal->build_index < 2);
        ebk_journal_build(journal, &journal->jobs[journal->build_index]);
        atomic_store(&journal->builds_done, asked);
        ebk_futex_wake(&journal->builds_done);
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
            ebk_futex_wait_ms(&journal->stall_word, stall_seen, STALL_TRY_MS);
            continue;
        }
        atomic_store(&journal->sleeping, 1);
        ebk_futex_wait(&journal->kicks, seen); /* Returns at once if a kick came since `seen`. */
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
        ebk_journal_try_again(journal);
        pthread_join(journal->commit_thread, NULL);
        journal->is_commit_running = false;
    }
    if (journal->is_build_running) {
        atomic_store(&journal->stop_building, true);
        atomic_fetch_add(&journal->builds_asked, 1);
        ebk_futex_wake(&journal->builds_asked);
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
