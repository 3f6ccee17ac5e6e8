/* loop_wait.c: see loop_wait.h.
 *
 * The order within a turn is the contract:
 *
 *   1. what is durable is answered, so that an answer never leaves before, and a failure ends the wait behind it;
 *   2. sockets are received dry. A send does ZeroMQ's housekeeping and may swallow the change that a descriptor shows, so
 *      a wait is right only when nothing was sent since each socket said that it is empty;
 *   3. answers are counted by that, and adds take their turn behind them: they seal and send;
 *   4. the journals are kicked for what was taken;
 *   5. only then is waited. A turn that ends the wait looks at the descriptors, too, or one busy link would starve them.
 */
#include "road/loop_wait.h"

#include "base/errors.h"
#include "base/wait_set.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Received from one socket before the others, and before the journals are looked at again: so answers are late by no
 * more. Bodies of accepted links are adds, those of dialled links answers. */
#define ACCEPTED_PER_DRAIN_MAX 64u
#define DIALLED_PER_DRAIN_MAX 256u
#define BYTES_PER_DRAIN_MAX ((size_t)2 << 20)

enum kind { OTHER, NEAR, JOURNAL, ADDS, ACCEPTED, DIALLED };

struct watched {
    enum kind kind;
    int descriptor;
    struct ebk_near *near;
    void *socket;
    bool is_dry; /* the socket is empty, and nothing was sent on it since */
    uint64_t link, taken_bytes;
    uint8_t prefix[24];
};

struct ebk_loop_wait {
    struct ebk_loop_parts parts;
    int set;
    uint32_t count, room;
    struct watched *watched;
};

/* One wait. */
struct run {
    struct ebk_loop_wait *wait;
    const struct ebk_loop_terms *terms;
    struct ebk_loop_outcome *outcome;
    struct ebk_tail_path *readers;
    uint64_t bytes_before, records_before; /* of the path */
    int64_t until_ns, news_ns;
    bool is_late; /* Python owes something, and until_ns says so */
};

_Static_assert(sizeof ((struct ebk_loop_outcome *)0)->ready == EBK_WAIT_READY_MAX * sizeof(int), "all have a place");

/* ---- what is watched ------------------------------------------------------------------- */

void ebk_loop_wait_free(struct ebk_loop_wait *wait)
{
    if (wait == NULL) return;
    if (wait->set >= 0) close(wait->set);
    free(wait->watched);
    free(wait);
}

static int watch(struct ebk_loop_wait *wait, const struct watched *what)
{
    if (wait->count == wait->room) {
        const uint32_t wider = wait->room ? wait->room * 2 : 16;
        struct watched *grown = realloc(wait->watched, wider * sizeof *grown);
        if (grown == NULL) return EBK_NO_MEMORY;
        wait->watched = grown;
        wait->room = wider;
    }
    if (!ebk_wait_set_add(wait->set, what->descriptor, wait->count)) return EBK_IO;
    wait->watched[wait->count] = *what;
    return (int)wait->count++;
}

struct ebk_loop_wait *ebk_loop_wait_new(const struct ebk_loop_parts *parts)
{
    EBK_ASSERT(parts->dialled == NULL || (parts->answers != NULL && parts->links != NULL && parts->turns != NULL));
    struct ebk_loop_wait *wait = calloc(1, sizeof *wait);
    if (wait == NULL) return NULL;
    wait->parts = *parts;
    wait->set = ebk_wait_set_open();
    bool is_made = wait->set >= 0;
    if (is_made && parts->turns != NULL) {
        const struct watched adds = {.kind = ADDS, .descriptor = ebk_turns_fileno(parts->turns)};
        is_made = watch(wait, &adds) >= 0;
    }
    if (is_made) return wait;
    ebk_loop_wait_free(wait);
    return NULL;
}

int ebk_loop_wait_accept(struct ebk_loop_wait *wait, void *socket, int descriptor)
{
    EBK_ASSERT(wait->parts.accepted != NULL);
    const struct watched what = {.kind = ACCEPTED, .descriptor = descriptor, .socket = socket};
    return watch(wait, &what);
}

int ebk_loop_wait_dial(struct ebk_loop_wait *wait, void *socket, int descriptor, uint64_t link, const uint8_t *prefix)
{
    EBK_ASSERT(wait->parts.dialled != NULL);
    struct watched what = {.kind = DIALLED, .descriptor = descriptor, .socket = socket, .link = link};
    memcpy(what.prefix, prefix, sizeof what.prefix);
    return watch(wait, &what);
}

int ebk_loop_wait_journal(struct ebk_loop_wait *wait, int descriptor)
{
    const struct watched what = {.kind = JOURNAL, .descriptor = descriptor};
    return watch(wait, &what);
}

int ebk_loop_wait_other(struct ebk_loop_wait *wait, int descriptor, struct ebk_near *near)
{
    const struct watched what = {.kind = near == NULL ? OTHER : NEAR, .descriptor = descriptor, .near = near};
    return watch(wait, &what);
}

static void wet(struct ebk_loop_wait *wait, enum kind kind)
{
    for (uint32_t i = 0; i < wait->count; i++)
        if (wait->watched[i].kind == kind) wait->watched[i].is_dry = false;
}

static bool is_dry(const struct ebk_loop_wait *wait)
{
    for (uint32_t i = 0; i < wait->count; i++)
        if (wait->watched[i].kind >= ACCEPTED && !wait->watched[i].is_dry) return false;
    return true;
}

/* ---- a turn ---------------------------------------------------------------------------- */

/* Answer durable adds, and readers that wait for entries. Returns a reason to end the wait, or 0. */
static int answer(struct run *run)
{
    struct ebk_add_path *const path = run->terms->path;
    struct ebk_zmq_accepted *const links = run->wait->parts.accepted;
    struct ebk_loop_outcome *const outcome = run->outcome;
    if (run->readers != NULL) ebk_tail_set_now(run->readers, ebk_wait_now_ns());
    const uint64_t durable = ebk_add_path_durable(path);
    run->is_late |= ebk_add_path_reap(path, durable) > 0;
    uint32_t answers;
    while (ebk_add_path_next(path, &outcome->link, &answers, &outcome->message, &outcome->size)) {
        if (!ebk_zmq_accepted_send(links, outcome->link, outcome->message, outcome->size)) return EBK_LOOP_UNSENT;
        wet(run->wait, ACCEPTED);
    }
    while (run->readers != NULL && ebk_tail_next(run->readers, &outcome->link)) {
        ebk_tail_make(run->readers, ebk_zmq_accepted_room(links, outcome->link), &outcome->message, &outcome->size);
        if (!ebk_zmq_accepted_send(links, outcome->link, outcome->message, outcome->size)) return EBK_LOOP_UNSENT;
        wet(run->wait, ACCEPTED);
    }
    const bool is_awaited = run->terms->awaits_journal && durable > run->terms->durable;
    return is_awaited || ebk_add_path_has_failed(path) ? EBK_LOOP_JOURNAL : 0;
}

static int receive_accepted(struct run *run, struct watched *from)
{
    const int found = ebk_zmq_accepted_drain(run->wait->parts.accepted, from->socket, run->terms->path,
                                             ACCEPTED_PER_DRAIN_MAX, BYTES_PER_DRAIN_MAX);
    from->is_dry = found == EBK_ZMQ_EMPTY;
    return found == EBK_ZMQ_HELD ? EBK_LOOP_HELD_ACCEPTED : 0;
}

static int receive_dialled(struct run *run, struct watched *from)
{
    const struct ebk_loop_parts *const parts = &run->wait->parts;
    const int found = ebk_zmq_dialled_drain(parts->dialled, from->socket, from->link, from->prefix, parts->answers,
                                            DIALLED_PER_DRAIN_MAX, BYTES_PER_DRAIN_MAX);
    from->taken_bytes += ebk_zmq_dialled_state(parts->dialled)->taken_bytes;
    from->is_dry = found == EBK_ZMQ_EMPTY;
    return found == EBK_ZMQ_HELD ? EBK_LOOP_HELD_DIALLED : 0;
}

/* From every socket that may have something, up to the first message that is Python's. Returns that reason, or 0. */
static int receive(struct run *run)
{
    for (uint32_t i = 0; i < run->wait->count; i++) {
        struct watched *const from = &run->wait->watched[i];
        if (from->kind < ACCEPTED || from->is_dry) continue;
        const int held = from->kind == ACCEPTED ? receive_accepted(run, from) : receive_dialled(run, from);
        if (held == 0) continue;
        run->outcome->socket = i;
        return held;
    }
    return 0;
}

/* Adds count what was answered, then seal and send. */
static void take_adds(struct run *run)
{
    const struct ebk_loop_parts *const parts = &run->wait->parts;
    run->outcome->now_ns = ebk_wait_now_ns();
    run->news_ns = INT64_MAX;
    if (parts->turns == NULL) return;
    ebk_turns_take(parts->turns, run->outcome->now_ns);
    for (uint32_t i = 0; i < run->wait->count; i++) {
        struct watched *const socket = &run->wait->watched[i];
        if (socket->kind == DIALLED && ebk_links_has_used(parts->links, socket->link)) socket->is_dry = false;
    }
    run->news_ns = ebk_turns_due_ns(parts->turns, run->outcome->now_ns);
}

/* Whether a side received so much that Python has to act. */
static bool is_at_bound(const struct run *run)
{
    const struct ebk_loop_wait *const wait = run->wait;
    for (uint32_t i = 0; i < wait->count; i++)
        if (wait->watched[i].kind == DIALLED && wait->watched[i].taken_bytes >= run->terms->credit_bytes) return true;
    return run->terms->path != NULL &&
           (ebk_add_path_bytes(run->terms->path) - run->bytes_before >= run->terms->bytes_max ||
            ebk_zmq_accepted_taken_most(wait->parts.accepted) >= run->terms->credit_bytes);
}

static bool is_counted_due(const struct run *run)
{
    const struct ebk_loop_parts *const parts = &run->wait->parts;
    return parts->dialled != NULL && ebk_answers_state(parts->answers)->is_due;
}

/* Python has work that no peer waits for: to learn of what was taken here, or counted. */
static void note_late(struct run *run, bool was_late)
{
    const struct ebk_loop_parts *const parts = &run->wait->parts;
    if (run->terms->path != NULL) run->is_late |= ebk_add_path_records(run->terms->path) != run->records_before;
    if (parts->dialled != NULL) run->is_late |= ebk_answers_state(parts->answers)->untold > 0;
    const int64_t now_ns = run->outcome->now_ns;
    if (run->is_late && !was_late && run->terms->late_ns < run->until_ns - now_ns)
        run->until_ns = now_ns + run->terms->late_ns;
}

/* Returns a reason to end the wait, or 0. */
static int take_turn(struct run *run)
{
    const bool was_late = run->is_late;
    int reason = run->terms->path == NULL ? 0 : answer(run);
    if (reason != 0) return reason;
    reason = receive(run);
    take_adds(run);
    if (run->terms->path != NULL) ebk_add_path_kick(run->terms->path);
    note_late(run, was_late);
    if (reason == 0 && (is_counted_due(run) || run->news_ns <= run->outcome->now_ns)) reason = EBK_LOOP_NEWS;
    if (reason == 0 && is_at_bound(run)) reason = EBK_LOOP_BOUND;
    return reason;
}

/* ---- between turns --------------------------------------------------------------------- */

static void take_ready(struct run *run, const struct ebk_ready *ready)
{
    EBK_ASSERT(ready->meaning < run->wait->count);
    struct watched *const found = &run->wait->watched[ready->meaning];
    EBK_ASSERT(found->descriptor == ready->descriptor);
    switch (found->kind) {
    case ADDS: ebk_turns_heard(run->wait->parts.turns); return;
    case JOURNAL: ebk_add_path_clear(run->terms->path); return;
    case ACCEPTED:
    case DIALLED: found->is_dry = false; return;
    case NEAR:
        if (!ebk_near_concerns_node(found->near)) return;
        break;
    case OTHER: break;
    }
    EBK_ASSERT(run->outcome->ready_count < EBK_WAIT_READY_MAX);
    run->outcome->ready[run->outcome->ready_count++] = found->descriptor;
}

/* Look at the descriptors, for so long. Returns a reason to end the wait, or 0. */
static int look(struct run *run, int milliseconds)
{
    struct ebk_ready found[EBK_WAIT_READY_MAX];
    const int count = ebk_wait_set_look(run->wait->set, milliseconds, found, EBK_WAIT_READY_MAX);
    if (count < 0) return EBK_LOOP_SIGNAL;
    for (int i = 0; i < count; i++) take_ready(run, &found[i]);
    return run->outcome->ready_count > 0 ? EBK_LOOP_READY : 0;
}

/* Polls of readers that became pending meanwhile have a time limit, too. */
static int64_t due_ns(const struct run *run)
{
    const int64_t reader_ns = run->readers == NULL ? INT64_MAX : ebk_tail_deadline(run->readers);
    return reader_ns < run->until_ns ? reader_ns : run->until_ns;
}

/* Another turn has something to do at once. */
static bool has_more(const struct run *run)
{
    uint64_t link;
    if (!is_dry(run->wait) || (run->readers != NULL && ebk_tail_next(run->readers, &link))) return true;
    return run->wait->parts.turns != NULL && ebk_turns_have_more(run->wait->parts.turns);
}

static int take_turns(struct run *run)
{
    for (;;) {
        int reason = take_turn(run);
        const int64_t now_ns = run->outcome->now_ns, until_ns = due_ns(run);
        const bool is_over = reason != 0 || now_ns >= until_ns;
        const bool waits = !is_over && !has_more(run);
        const int seen = look(run, waits ? ebk_wait_ms(now_ns, until_ns < run->news_ns ? until_ns : run->news_ns) : 0);
        if (reason == 0) reason = seen;
        if (reason == 0 && is_over) reason = EBK_LOOP_DUE;
        if (reason != 0) return reason;
    }
}

int ebk_loop_wait_run(struct ebk_loop_wait *wait, const struct ebk_loop_terms *terms, struct ebk_loop_outcome *outcome)
{
    struct ebk_add_path *const path = terms->path;
    EBK_ASSERT(path == NULL || wait->parts.accepted != NULL);
    memset(outcome, 0, sizeof *outcome);
    struct run run = {.wait = wait, .terms = terms, .outcome = outcome, .until_ns = terms->until_ns, .news_ns = INT64_MAX};
    outcome->now_ns = ebk_wait_now_ns();
    if (path != NULL) {
        run.readers = ebk_add_path_tail(path);
        run.bytes_before = ebk_add_path_bytes(path);
        run.records_before = ebk_add_path_records(path);
    }
    /* Then until_ns is for that already. */
    if (wait->parts.dialled != NULL) run.is_late = ebk_answers_state(wait->parts.answers)->untold > 0;
    for (uint32_t i = 0; i < wait->count; i++) {
        wait->watched[i].taken_bytes = 0;
        wait->watched[i].is_dry = false; /* What was sent and received in between is not known here. */
    }
    const int reason = take_turns(&run);
    if (reason == EBK_LOOP_READY) take_adds(&run); /* What became durable is not kept back by the nodes that are stepped now. */
    outcome->is_dry = is_dry(wait);
    outcome->has_news = run.news_ns <= outcome->now_ns;
    return reason;
}

uint64_t ebk_loop_wait_taken(const struct ebk_loop_wait *wait, uint32_t socket)
{
    EBK_ASSERT(socket < wait->count && wait->watched[socket].kind == DIALLED);
    return wait->watched[socket].taken_bytes;
}
