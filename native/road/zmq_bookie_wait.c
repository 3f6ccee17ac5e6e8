/* zmq_bookie_wait.c: see zmq_bookie_wait.h.
 *
 * The order within a turn is the contract:
 *
 *   1. what is durable is told, so that an answer never leaves before, and a failure ends the wait behind it;
 *   2. sockets are received dry. A send does ZeroMQ's housekeeping and may swallow the change that a descriptor tells
 *      of, so a wait is right only when nothing was sent since each socket said that it is empty;
 *   3. the commit thread is kicked for what was taken;
 *   4. only then is waited.
 */
#include "road/zmq_bookie_wait.h"

#include "base/errors.h"
#include "base/wait_set.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Received from one socket before the others, and before the journal is looked at again: so answers are late by no more. */
#define BODIES_PER_DRAIN_MAX 64u
#define BYTES_PER_DRAIN_MAX ((size_t)2 << 20)

struct ebk_bookie_wait {
    struct ebk_zmq_accepted *links;
    void **sockets;
    bool *is_dry; /* By socket: empty, and nothing was sent since. */
    uint32_t socket_count;
    int set;
};

_Static_assert(sizeof ((struct ebk_bookie_wait_outcome *)0)->ready == EBK_WAIT_READY_MAX * sizeof(int),
               "all have a place");

void ebk_bookie_wait_free(struct ebk_bookie_wait *wait)
{
    if (wait == NULL) return;
    if (wait->set >= 0) close(wait->set);
    free(wait->sockets);
    free(wait->is_dry);
    free(wait);
}

struct ebk_bookie_wait *ebk_bookie_wait_new(struct ebk_zmq_accepted *links, void *const *sockets, uint32_t socket_count,
                                            const int *descriptors, const uint8_t *meanings, uint32_t descriptor_count)
{
    struct ebk_bookie_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) return NULL;
    wait->links = links;
    wait->socket_count = socket_count;
    wait->sockets = calloc(socket_count + 1, sizeof *wait->sockets);
    wait->is_dry = calloc(socket_count + 1, sizeof *wait->is_dry);
    wait->set = ebk_wait_set_open();
    bool is_made = wait->sockets != NULL && wait->is_dry != NULL && wait->set >= 0;
    if (is_made) memcpy(wait->sockets, sockets, socket_count * sizeof *sockets);
    for (uint32_t i = 0; is_made && i < descriptor_count; i++)
        is_made = ebk_wait_set_add(wait->set, descriptors[i], meanings[i]);
    if (is_made) return wait;
    ebk_bookie_wait_free(wait);
    return NULL;
}

/* Send what is due. False: one could not be sent, and stands in the outcome. */
static bool tell(struct ebk_bookie_wait *wait, struct ebk_add_path *path, struct ebk_bookie_wait_outcome *outcome)
{
    uint32_t answers;
    while (ebk_add_path_next(path, &outcome->link, &answers, &outcome->message, &outcome->size)) {
        if (!ebk_zmq_accepted_send(wait->links, outcome->link, outcome->message, outcome->size)) return false;
        memset(wait->is_dry, 0, wait->socket_count * sizeof *wait->is_dry);
    }
    struct ebk_tail_path *readers = ebk_add_path_tail(path);
    while (readers != NULL && ebk_tail_next(readers, &outcome->link)) {
        ebk_tail_make(readers, ebk_zmq_accepted_room(wait->links, outcome->link), &outcome->message, &outcome->size);
        if (!ebk_zmq_accepted_send(wait->links, outcome->link, outcome->message, outcome->size)) return false;
        memset(wait->is_dry, 0, wait->socket_count * sizeof *wait->is_dry);
    }
    return true;
}

/* Receive from every socket that may have something. Returns a reason to end the wait, or 0. */
static int drain(struct ebk_bookie_wait *wait, struct ebk_add_path *path, struct ebk_bookie_wait_outcome *outcome)
{
    for (uint32_t i = 0; i < wait->socket_count; i++) {
        if (wait->is_dry[i]) continue;
        const int found =
            ebk_zmq_accepted_drain(wait->links, wait->sockets[i], path, BODIES_PER_DRAIN_MAX, BYTES_PER_DRAIN_MAX);
        wait->is_dry[i] = found == EBK_ZMQ_EMPTY;
        if (found != EBK_ZMQ_HELD) continue;
        outcome->socket = (int)i;
        return EBK_BOOKIE_WAIT_HELD;
    }
    return 0;
}

static bool is_dry(const struct ebk_bookie_wait *wait)
{
    for (uint32_t i = 0; i < wait->socket_count; i++)
        if (!wait->is_dry[i]) return false;
    return true;
}

/* Look at the descriptors, for so long. Returns a reason to end the wait, or 0. */
static int look(struct ebk_bookie_wait *wait, struct ebk_add_path *path, int milliseconds,
                struct ebk_bookie_wait_outcome *outcome)
{
    struct ebk_ready found[EBK_WAIT_READY_MAX];
    const int count = ebk_wait_set_look(wait->set, milliseconds, found, EBK_WAIT_READY_MAX);
    if (count < 0) return EBK_BOOKIE_WAIT_SIGNAL;
    for (int i = 0; i < count; i++) {
        if (found[i].meaning == EBK_WATCH_SOCKET)
            memset(wait->is_dry, 0, wait->socket_count * sizeof *wait->is_dry);
        else if (found[i].meaning == EBK_WATCH_JOURNAL)
            ebk_add_path_clear(path);
        else
            outcome->ready[outcome->ready_count++] = found[i].descriptor;
    }
    return outcome->ready_count > 0 ? EBK_BOOKIE_WAIT_READY : 0;
}

/* Polls that were parked meanwhile have a time limit, too. */
static int64_t until_of(const struct ebk_tail_path *readers, int64_t until_ns)
{
    const int64_t first_ns = readers == NULL ? INT64_MAX : ebk_tail_deadline(readers);
    return first_ns < until_ns ? first_ns : until_ns;
}

static bool is_any_woken(const struct ebk_tail_path *readers)
{
    uint64_t link;
    return readers != NULL && ebk_tail_next(readers, &link);
}

static int take_turns(struct ebk_bookie_wait *wait, const struct ebk_bookie_wait_terms *terms,
                      struct ebk_bookie_wait_outcome *outcome)
{
    struct ebk_add_path *const path = terms->path;
    struct ebk_tail_path *const readers = ebk_add_path_tail(path);
    const uint64_t bytes_before = ebk_add_path_bytes(path);
    const uint64_t records_before = ebk_add_path_records(path);
    int64_t until_ns = terms->until_ns;
    bool is_late = false; /* Something was taken or told, and nothing else done meanwhile. */
    for (;;) {
        if (readers != NULL) ebk_tail_set_now(readers, ebk_wait_now_ns());
        const uint64_t durable = ebk_add_path_durable(path);
        const bool has_told = ebk_add_path_reap(path, durable) > 0;
        if (!tell(wait, path, outcome)) return EBK_BOOKIE_WAIT_UNSENT;
        if ((terms->awaits_journal && durable > terms->durable) || ebk_add_path_has_failed(path))
            return EBK_BOOKIE_WAIT_JOURNAL;
        const int held = drain(wait, path, outcome);
        ebk_add_path_kick(path);
        if (held != 0) return held;
        if (ebk_add_path_bytes(path) - bytes_before >= terms->bytes_max ||
            ebk_zmq_accepted_taken_most(wait->links) >= terms->credit_bytes)
            return EBK_BOOKIE_WAIT_BOUND;
        const int64_t now_ns = ebk_wait_now_ns();
        if (!is_late && (has_told || ebk_add_path_records(path) != records_before)) {
            is_late = true;
            if (terms->duties_ns < until_ns - now_ns) until_ns = now_ns + terms->duties_ns;
        }
        const int64_t due_ns = until_of(readers, until_ns);
        if (now_ns >= due_ns) return EBK_BOOKIE_WAIT_DUE;
        if (is_any_woken(readers)) continue; /* And waits for nothing else. */
        const int ended = look(wait, path, is_dry(wait) ? ebk_wait_ms(now_ns, due_ns) : 0, outcome);
        if (ended != 0) return ended;
    }
}

int ebk_bookie_wait_run(struct ebk_bookie_wait *wait, const struct ebk_bookie_wait_terms *terms,
                        struct ebk_bookie_wait_outcome *outcome)
{
    memset(outcome, 0, sizeof *outcome);
    /* What was sent and received in between is not known here. */
    memset(wait->is_dry, 0, wait->socket_count * sizeof *wait->is_dry);
    const int reason = take_turns(wait, terms, outcome);
    /* Poll the other descriptors, too, or one busy link would starve them. */
    if (reason != EBK_BOOKIE_WAIT_READY) (void)look(wait, terms->path, 0, outcome);
    outcome->now_ns = ebk_wait_now_ns();
    return reason;
}
