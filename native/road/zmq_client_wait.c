/* zmq_client_wait.c: see zmq_client_wait.h.
 *
 * A wait is right only when each socket said that it is empty since anything was sent on
 * it: a send does ZeroMQ's housekeeping, and may swallow the change that a descriptor
 * tells of. So each is received dry once, and then when its descriptor tells, or when adds
 * were sent on it.
 */
#include "road/zmq_client_wait.h"

#include "base/errors.h"
#include "base/wait_set.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BODIES_PER_DRAIN_MAX 256u
#define BYTES_PER_DRAIN_MAX ((size_t)2 << 20)
#define OTHER UINT32_MAX
#define WAKE (UINT32_MAX - 1)

struct heard_link {
    struct ebk_client_wait_link is;
    uint64_t taken_bytes;
    bool is_dry;
};

struct ebk_client_wait {
    struct ebk_zmq_dialled *drain;
    struct ebk_answers *answers;
    struct ebk_links *sending;
    struct ebk_turns *turns;
    int set;
    uint32_t link_count;
    struct heard_link links[];
};

_Static_assert(sizeof ((struct ebk_client_wait_outcome *)0)->ready == EBK_WAIT_READY_MAX * sizeof(int),
               "all have a place");

void ebk_client_wait_free(struct ebk_client_wait *wait)
{
    if (wait == NULL) return;
    if (wait->set >= 0) close(wait->set);
    free(wait);
}

struct ebk_client_wait *ebk_client_wait_new(struct ebk_zmq_dialled *drain, struct ebk_answers *answers,
                                            struct ebk_links *sending, struct ebk_turns *turns,
                                            const struct ebk_client_wait_link *links, uint32_t link_count,
                                            const int *others, uint32_t other_count)
{
    struct ebk_client_wait *wait = calloc(1, sizeof *wait + link_count * sizeof *wait->links);
    if (wait == NULL) return NULL;
    wait->drain = drain;
    wait->answers = answers;
    wait->sending = sending;
    wait->turns = turns;
    wait->link_count = link_count;
    wait->set = ebk_wait_set_open();
    bool is_made = wait->set >= 0 && ebk_wait_set_add(wait->set, ebk_turns_fileno(turns), WAKE);
    for (uint32_t i = 0; is_made && i < link_count; i++) {
        wait->links[i].is = links[i];
        is_made = ebk_wait_set_add(wait->set, links[i].descriptor, i);
    }
    for (uint32_t i = 0; is_made && i < other_count; i++) is_made = ebk_wait_set_add(wait->set, others[i], OTHER);
    if (is_made) return wait;
    ebk_client_wait_free(wait);
    return NULL;
}

/* Receive from every link that may have something. Returns a reason to end the wait, or 0. */
static int listen_once(struct ebk_client_wait *wait, uint64_t credit_bytes, struct ebk_client_wait_outcome *outcome)
{
    int reason = 0;
    outcome->is_dry = true;
    for (uint32_t i = 0; i < wait->link_count; i++) {
        struct heard_link *link = &wait->links[i];
        if (link->is_dry) continue;
        const int found = ebk_zmq_dialled_drain(wait->drain, link->is.socket, link->is.number, link->is.prefix,
                                                wait->answers, BODIES_PER_DRAIN_MAX, BYTES_PER_DRAIN_MAX);
        link->taken_bytes += ebk_zmq_dialled_state(wait->drain)->taken_bytes;
        link->is_dry = found == EBK_ZMQ_EMPTY;
        if (!link->is_dry) outcome->is_dry = false;
        if (link->taken_bytes >= credit_bytes) reason = EBK_CLIENT_WAIT_BOUND;
        if (found != EBK_ZMQ_HELD) continue;
        outcome->link = i;
        outcome->is_dry = false; /* The others behind it were not asked. */
        return EBK_CLIENT_WAIT_HELD;
    }
    return ebk_answers_state(wait->answers)->is_due ? EBK_CLIENT_WAIT_NEWS : reason;
}

/* Adds take their turn, behind the answers to those before. Returns when something of them is to be told. */
static int64_t send(struct ebk_client_wait *wait, struct ebk_client_wait_outcome *outcome)
{
    ebk_turns_take(wait->turns, outcome->now_ns);
    for (uint32_t i = 0; i < wait->link_count; i++)
        if (ebk_links_has_used(wait->sending, wait->links[i].is.number))
            outcome->is_dry = wait->links[i].is_dry = false;
    return ebk_turns_due_ns(wait->turns, outcome->now_ns);
}

/* Look at the descriptors, for so long. Returns a reason to end the wait, or 0. */
static int look(struct ebk_client_wait *wait, int milliseconds, struct ebk_client_wait_outcome *outcome)
{
    struct ebk_ready found[EBK_WAIT_READY_MAX];
    const int count = ebk_wait_set_look(wait->set, milliseconds, found, EBK_WAIT_READY_MAX);
    if (count < 0) return EBK_CLIENT_WAIT_SIGNAL;
    for (int i = 0; i < count; i++) {
        if (found[i].meaning == OTHER)
            outcome->ready[outcome->ready_count++] = found[i].descriptor;
        else if (found[i].meaning == WAKE)
            ebk_turns_heard(wait->turns);
        else
            wait->links[found[i].meaning].is_dry = false;
    }
    for (uint32_t i = 0; i < wait->link_count; i++) outcome->is_dry &= wait->links[i].is_dry;
    return outcome->ready_count == 0 ? 0 : EBK_CLIENT_WAIT_READY;
}

int ebk_client_wait_run(struct ebk_client_wait *wait, int64_t until_ns, int64_t untold_ns, uint64_t credit_bytes,
                        struct ebk_client_wait_outcome *outcome)
{
    const struct ebk_answers_state *const state = ebk_answers_state(wait->answers);
    bool is_untold = state->untold > 0; /* Then until_ns is for that already. */
    memset(outcome, 0, sizeof *outcome);
    for (uint32_t i = 0; i < wait->link_count; i++) {
        wait->links[i].taken_bytes = 0;
        wait->links[i].is_dry = false; /* What was sent and received in between is not known here. */
    }
    for (;;) {
        int reason = listen_once(wait, credit_bytes, outcome);
        outcome->now_ns = ebk_wait_now_ns();
        const int64_t due_ns = send(wait, outcome);
        if (reason == 0 && due_ns <= outcome->now_ns) reason = EBK_CLIENT_WAIT_NEWS;
        if (!is_untold && state->untold > 0) {
            is_untold = true;
            if (outcome->now_ns + untold_ns < until_ns) until_ns = outcome->now_ns + untold_ns;
        }
        /* A wait that ends anyway polls, too, or one busy link would starve the other descriptors. */
        const bool is_over = reason != 0 || outcome->now_ns >= until_ns;
        const bool has_more = !outcome->is_dry || ebk_turns_have_more(wait->turns);
        const int milliseconds =
            is_over || has_more ? 0 : ebk_wait_ms(outcome->now_ns, due_ns < until_ns ? due_ns : until_ns);
        const int seen = look(wait, milliseconds, outcome);
        if (reason == 0) reason = seen;
        if (reason == 0 && is_over) reason = EBK_CLIENT_WAIT_DUE;
        if (reason != 0) return reason;
    }
}

uint64_t ebk_client_wait_taken(const struct ebk_client_wait *wait, uint32_t link)
{
    EBK_ASSERT(link < wait->link_count);
    return wait->links[link].taken_bytes;
}
