/* zmq_listening.c: see zmq_listening.h.
 *
 * A wait is right only when each socket said that it is empty since anything was sent on
 * it: a send does ZeroMQ's housekeeping, and may swallow the change that a descriptor
 * tells of. So each is received dry once, and then when its descriptor tells, or when adds
 * were sent on it.
 */
#define _GNU_SOURCE
#include "zmq_listening.h"

#include "errors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BODIES_PER_DRAIN_MAX 256u
#define BYTES_PER_DRAIN_MAX ((size_t)2 << 20)
#define WAIT_MS_MAX 60000
#define OTHER UINT32_MAX
#define WAKE (UINT32_MAX - 1)

struct heard_link {
    struct ebk_heard_link is;
    uint64_t taken_bytes;
    bool is_dry;
};

struct ebk_listening {
    struct ebk_zmq_answers *drain;
    struct ebk_answers *answers;
    struct ebk_link_sender *sender;
    int epoll;
    uint32_t link_count;
    struct heard_link links[];
};

/* The loop's clock: its deadlines hold however often the wait is woken before. Nothing else is decided by it. */
static int64_t clock_ns(void)
{
    struct timespec now;
    const int code = clock_gettime(CLOCK_BOOTTIME, &now);
    EBK_ASSERT(code == 0);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void ebk_listening_free(struct ebk_listening *listening)
{
    if (listening == NULL) return;
    if (listening->epoll >= 0) close(listening->epoll);
    free(listening);
}

static bool watch(int epoll, int descriptor, uint32_t meaning)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)meaning << 32 | (uint32_t)descriptor};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event) == 0;
}

struct ebk_listening *ebk_listening_new(struct ebk_zmq_answers *drain, struct ebk_answers *answers,
                                        struct ebk_link_sender *sender,
                                        const struct ebk_heard_link *links, uint32_t link_count, const int *others,
                                        uint32_t other_count)
{
    struct ebk_listening *listening = calloc(1, sizeof *listening + link_count * sizeof *listening->links);
    if (listening == NULL) return NULL;
    listening->drain = drain;
    listening->answers = answers;
    listening->sender = sender;
    listening->link_count = link_count;
    listening->epoll = epoll_create1(EPOLL_CLOEXEC);
    bool is_made = listening->epoll >= 0 && watch(listening->epoll, ebk_link_sender_fileno(sender), WAKE);
    for (uint32_t i = 0; is_made && i < link_count; i++) {
        listening->links[i].is = links[i];
        is_made = watch(listening->epoll, links[i].descriptor, i);
    }
    for (uint32_t i = 0; is_made && i < other_count; i++) is_made = watch(listening->epoll, others[i], OTHER);
    if (is_made) return listening;
    ebk_listening_free(listening);
    return NULL;
}

/* Receive from every link that may have something. Returns a reason to end the wait, or 0. */
static int listen_once(struct ebk_listening *listening, uint64_t credit_bytes, struct ebk_heard *heard)
{
    int reason = 0;
    heard->is_dry = true;
    for (uint32_t i = 0; i < listening->link_count; i++) {
        struct heard_link *link = &listening->links[i];
        if (link->is_dry) continue;
        const int found = ebk_zmq_answers_drain(listening->drain, link->is.socket, link->is.number, link->is.prefix,
                                                listening->answers, BODIES_PER_DRAIN_MAX, BYTES_PER_DRAIN_MAX);
        link->taken_bytes += ebk_zmq_answers_state(listening->drain)->taken_bytes;
        link->is_dry = found == EBK_ZMQ_EMPTY;
        if (!link->is_dry) heard->is_dry = false;
        if (link->taken_bytes >= credit_bytes) reason = EBK_HEARD_BOUND;
        if (found != EBK_ZMQ_HELD) continue;
        heard->link = i;
        heard->is_dry = false; /* Of the others behind it nobody knows. */
        return EBK_HEARD_HELD;
    }
    return ebk_answers_state(listening->answers)->is_due ? EBK_HEARD_NEWS : reason;
}

/* Adds take their turn, behind the answers to those before. Returns when something of them is to be told. */
static int64_t send(struct ebk_listening *listening, struct ebk_heard *heard)
{
    ebk_link_sender_turn(listening->sender, heard->now_ns);
    for (uint32_t i = 0; i < listening->link_count; i++)
        if (ebk_link_sender_has_used(listening->sender, listening->links[i].is.number))
            heard->is_dry = listening->links[i].is_dry = false;
    return ebk_link_sender_due_ns(listening->sender, heard->now_ns);
}

/* Rounded up: a wait that ends before its time would spin. */
static int wait_ms(int64_t from_ns, int64_t until_ns)
{
    if (until_ns <= from_ns) return 0;
    if ((until_ns - from_ns) / 1000000 >= WAIT_MS_MAX) return WAIT_MS_MAX;
    return (int)((until_ns - from_ns + 999999) / 1000000);
}

/* Look at the descriptors, for so long. Returns a reason to end the wait, or 0. */
static int look(struct ebk_listening *listening, int milliseconds, struct ebk_heard *heard)
{
    struct epoll_event found[EBK_HEARD_READY_MAX];
    const int count = epoll_wait(listening->epoll, found, EBK_HEARD_READY_MAX, milliseconds);
    if (count < 0) {
        EBK_ASSERT(errno == EINTR);
        return EBK_HEARD_SIGNAL;
    }
    for (int i = 0; i < count; i++) {
        const uint32_t meaning = (uint32_t)(found[i].data.u64 >> 32);
        if (meaning == OTHER)
            heard->ready[heard->ready_count++] = (int)(uint32_t)found[i].data.u64;
        else if (meaning == WAKE)
            ebk_link_sender_be_awake(listening->sender);
        else
            listening->links[meaning].is_dry = false;
    }
    for (uint32_t i = 0; i < listening->link_count; i++) heard->is_dry &= listening->links[i].is_dry;
    return heard->ready_count == 0 ? 0 : EBK_HEARD_READY;
}

int ebk_listening_wait(struct ebk_listening *listening, int64_t until_ns, int64_t untold_ns, uint64_t credit_bytes,
                       struct ebk_heard *heard)
{
    const struct ebk_answers_state *const state = ebk_answers_state(listening->answers);
    bool is_untold = state->untold > 0; /* Then until_ns is for that already. */
    memset(heard, 0, sizeof *heard);
    for (uint32_t i = 0; i < listening->link_count; i++) {
        listening->links[i].taken_bytes = 0;
        listening->links[i].is_dry = false; /* What was sent and received in between is not known here. */
    }
    for (;;) {
        int reason = listen_once(listening, credit_bytes, heard);
        heard->now_ns = clock_ns();
        const int64_t due_ns = send(listening, heard);
        if (reason == 0 && due_ns <= heard->now_ns) reason = EBK_HEARD_NEWS;
        if (!is_untold && state->untold > 0) {
            is_untold = true;
            if (heard->now_ns + untold_ns < until_ns) until_ns = heard->now_ns + untold_ns;
        }
        /* A wait that ends anyway looks, too: whoever is heard without a pause must not hide the other descriptors. */
        const bool is_over = reason != 0 || heard->now_ns >= until_ns;
        const bool has_more = !heard->is_dry || ebk_link_sender_has_more(listening->sender);
        const int milliseconds = is_over || has_more ? 0 : wait_ms(heard->now_ns, due_ns < until_ns ? due_ns : until_ns);
        const int seen = look(listening, milliseconds, heard);
        if (reason == 0) reason = seen;
        if (reason == 0 && is_over) reason = EBK_HEARD_DUE;
        if (reason != 0) return reason;
    }
}

uint64_t ebk_listening_taken(const struct ebk_listening *listening, uint32_t link)
{
    EBK_ASSERT(link < listening->link_count);
    return listening->links[link].taken_bytes;
}
