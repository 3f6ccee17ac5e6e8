/* link_adds.c: frames from a packer to their seats, and what their answers amount to.
 *
 *     frames ring   | acknowledged, not answered by all | sealed ...
 *                   ^ tail        ^ next of a seat      ^ head      ^ end, next of the others
 *
 * A frame stays in the ring until every seat has answered, as the core keeps it (RP33): a
 * seat that says BUSY is sent it again, by the core, and a frame that was let go of at its
 * ack quorum would have a copy less than was asked for. For the same reason the bound is one
 * of what begins at tail: an answer names its frame by its place, which must still be its own.
 */
#include "road/link_adds.h"

#include "base/errors.h"
#include "road/ahead.h"
#include "road/near.h"
#include "road/pace.h"

#include <stdlib.h>
#include <string.h>

/* As `inflight_frames_max` of embedbk/core/writer.py: frames that lack their ack quorum. */
#define OUT_MAX 64

struct place {
    struct ebk_link_frame frame;
    int64_t lac; /* what every seat is told with it, whenever it is sent */
    uint64_t lac_length;
    uint64_t tokens[EBK_LINK_SEATS_MAX]; /* of near seats: up to where each has to be durable */
};

struct ebk_link_adds {
    struct ebk_link_settings settings;
    struct place *places; /* ring; NULL: closed */
    uint64_t place_count;
    uint64_t next[EBK_LINK_SEATS_MAX]; /* by seat: the place that it is sent next */
    uint64_t durable[EBK_LINK_SEATS_MAX]; /* by near seat: the first place that it has not answered */
    int64_t heard_ns[EBK_LINK_SEATS_MAX]; /* by seat: when it was seen that it had answered */
    uint32_t heard, failed; /* a bit for each seat: answered since that was looked at; nothing is kept for it */
    int64_t answered_sent_ns; /* when the oldest was sent of the frames that were answered since; 0: none was */
    int64_t longest_ns;
    uint32_t followed, followed_told; /* a bit for each seat: said since it was told last; told with the LAC before */
    uint64_t tail, head, end;
    uint64_t bytes; /* of the bodies from head on */
    uint64_t behind; /* of the frames from tail to head, with their price */
    uint64_t behind_of_core; /* kept by the core, under the same bound */
    int64_t lac, lac_told;
    uint64_t lac_length;
    bool is_ending, is_end_told, is_deaf, is_pressed_told;
    int64_t untold_ns; /* since when there is something to tell that is told late; 0: there is nothing */
    struct ebk_ahead ahead; /* of any thread */
};

_Static_assert((EBK_LINK_FRAMES_MIN & (EBK_LINK_FRAMES_MIN - 1)) == 0, "places in the ring are found by a mask");

static struct place *place_of(const struct ebk_link_adds *adds, uint64_t place)
{
    return &adds->places[place & (adds->place_count - 1)];
}

static struct ebk_link_frame *at(const struct ebk_link_adds *adds, uint64_t place)
{
    return &place_of(adds, place)->frame;
}

/* The seat answered OK to what it was asked. */
static void take_answer(struct ebk_link_adds *adds, uint64_t place, uint32_t seat, bool is_followed)
{
    EBK_ASSERT(!adds->is_deaf && place < adds->end);
    if (adds->failed >> seat & 1) return; /* What it owed may be gone. */
    EBK_ASSERT(place >= adds->tail);
    struct ebk_link_frame *frame = at(adds, place);
    frame->answered |= 1u << seat;
    adds->heard |= 1u << seat;
    if (adds->answered_sent_ns == 0 || frame->sent_ns < adds->answered_sent_ns) adds->answered_sent_ns = frame->sent_ns;
    if (is_followed) adds->followed |= 1u << seat;
}

struct ebk_link_adds *ebk_link_adds_new(const struct ebk_link_settings *settings)
{
    EBK_ASSERT(settings->seat_count > 0 && settings->seat_count <= EBK_LINK_SEATS_MAX);
    EBK_ASSERT(settings->ack_quorum > 0 && settings->ack_quorum <= settings->seat_count);
    for (uint32_t seat = 0; seat < settings->seat_count; seat++)
        EBK_ASSERT(settings->seats[seat].control_size <= EBK_LINK_CONTROL_BYTES_MAX);
    struct ebk_link_adds *adds = calloc(1, sizeof *adds);
    if (adds == NULL) return NULL;
    adds->place_count = EBK_LINK_FRAMES_MIN;
    adds->places = malloc(adds->place_count * sizeof *adds->places);
    if (adds->places == NULL) {
        free(adds);
        return NULL;
    }
    adds->settings = *settings;
    if (settings->answers != NULL) ebk_answers_keep(settings->answers, take_answer);
    adds->lac = adds->lac_told = settings->lac;
    adds->lac_length = settings->lac_length;
    ebk_ahead_begin(&adds->ahead, settings->lac, settings->lac_length);
    return adds;
}

/* False: every place is taken, and there is no memory for more, or no more are allowed. */
static bool have_place(struct ebk_link_adds *adds)
{
    if (adds->end - adds->tail < adds->place_count) return true;
    const uint64_t count = adds->place_count * 2;
    struct place *wider = count > EBK_LINK_FRAMES_MAX ? NULL : malloc(count * sizeof *wider);
    if (wider == NULL) return false;
    for (uint64_t place = adds->tail; place < adds->end; place++) wider[place & (count - 1)] = *place_of(adds, place);
    free(adds->places);
    adds->places = wider;
    adds->place_count = count;
    EBK_ASSERT((count & (count - 1)) == 0 && adds->end - adds->tail < count);
    return true;
}

void ebk_backlog_add(struct ebk_backlog *backlog, int64_t bytes)
{
    __atomic_fetch_add(&backlog->kept_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

uint64_t ebk_backlog_kept(const struct ebk_backlog *backlog)
{
    return __atomic_load_n(&backlog->kept_bytes, __ATOMIC_RELAXED);
}

static void count_behind(struct ebk_link_adds *adds, int64_t bytes)
{
    EBK_ASSERT(bytes >= 0 || (uint64_t)-bytes <= adds->behind);
    adds->behind += (uint64_t)bytes;
    if (adds->settings.backlog != NULL) ebk_backlog_add(adds->settings.backlog, bytes);
}

static int64_t kept_bytes(const struct ebk_packed *packed)
{
    return (int64_t)packed->size + EBK_LINK_FRAME_PRICE;
}

static uint32_t all_seats(const struct ebk_link_adds *adds)
{
    return (1u << adds->settings.seat_count) - 1;
}

/* Wants an acknowledged frame: every seat has answered it, or failed. */
static bool is_over(const struct ebk_link_adds *adds, uint64_t place)
{
    return (at(adds, place)->answered | adds->failed) == all_seats(adds);
}

/* No answer counts here from now on: the core hears of them. */
static void be_deaf(struct ebk_link_adds *adds)
{
    adds->is_ending = true;
    if (adds->is_deaf) return;
    adds->is_deaf = true;
    if (adds->settings.answers != NULL) ebk_answers_forget(adds->settings.answers, adds);
}

void ebk_link_adds_close(struct ebk_link_adds *adds)
{
    if (adds->places == NULL) return;
    struct ebk_link_frame frame;
    while (ebk_link_adds_give(adds, &frame)) ebk_packer_release(frame.packed.body);
    be_deaf(adds);
    free(adds->places);
    adds->places = NULL;
    ebk_ahead_close(&adds->ahead);
}

void ebk_link_adds_free(struct ebk_link_adds *adds)
{
    if (adds == NULL) return;
    ebk_link_adds_close(adds);
    ebk_answers_free(adds->settings.answers);
    free(adds);
}

/* ---- sending --------------------------------------------------------------------------- */

static uint32_t wanted_count(const struct ebk_link_adds *adds)
{
    if (adds->end == adds->head) return ebk_pace_wanted(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->end - 1)->packed;
    return ebk_pace_wanted(adds->end - adds->head, newest->size, newest->count);
}

static uint32_t woken_count(const struct ebk_link_adds *adds)
{
    if (adds->end == adds->head) return ebk_pace_woken(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->end - 1)->packed;
    return ebk_pace_woken(adds->end - adds->head, newest->size, newest->count);
}

/* As `InFlight.is_pressed` of embedbk/core/in_flight.py. */
static bool is_pressed(const struct ebk_link_adds *adds)
{
    const struct ebk_backlog *backlog = adds->settings.backlog;
    if (adds->behind + adds->behind_of_core >= adds->settings.behind_max) return true;
    return adds->behind > 0 && backlog != NULL && ebk_backlog_kept(backlog) >= backlog->bytes_max;
}

/* As `wants_frame` of embedbk/core/writer.py. */
static bool wants_frame(const struct ebk_link_adds *adds)
{
    const struct ebk_packer_state *state = ebk_packer_state(adds->settings.packer);
    if (adds->bytes >= adds->settings.bytes_max || is_pressed(adds)) return false;
    if (__atomic_load_n(&state->full_count, __ATOMIC_RELAXED) > 0) return adds->end - adds->head < OUT_MAX;
    return __atomic_load_n(&state->open_count, __ATOMIC_RELAXED) >= wanted_count(adds);
}

/* For any frame: its size is known only when it is sealed, and then it must go to an ack quorum at once: not to a seat
 * that is behind. Where nothing goes to a seat at all, or nothing of ours will make room at a bookie of this loop, the core
 * goes on. */
static bool have_room(struct ebk_link_adds *adds)
{
    uint32_t count = 0;
    bool is_stuck = false;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const enum ebk_seat_room room = ebk_seat_room(&adds->settings.seats[seat], adds->settings.links);
        if (room == EBK_SEAT_GONE) adds->is_ending = true;
        is_stuck |= room == EBK_SEAT_FULL && adds->settings.seats[seat].near != NULL && adds->tail == adds->end;
        count += room == EBK_SEAT_OPEN && adds->next[seat] == adds->end;
    }
    if (is_stuck && count < adds->settings.ack_quorum) adds->is_ending = true;
    return !adds->is_ending && count >= adds->settings.ack_quorum;
}

static struct ebk_seat_add add_of(const struct ebk_link_adds *adds, uint64_t place)
{
    const struct place *const it = place_of(adds, place);
    return (struct ebk_seat_add){.ledger_id = adds->settings.ledger_id, .key = adds->settings.key,
                                 .packed = &it->frame.packed, .lac = it->lac, .lac_length = it->lac_length};
}

/* The frame at `place` to one seat that is open. False: nothing was sent. */
static bool send_to(struct ebk_link_adds *adds, uint32_t seat, uint64_t place,
                    struct ebk_seat_add *add)
{
    const struct ebk_link_settings *const settings = &adds->settings;
    const struct ebk_link_seat *const to = &settings->seats[seat];
    const struct ebk_link_frame *const frame = at(adds, place);
    EBK_ASSERT(adds->next[seat] == place && place >= adds->tail && place < adds->end);
    EBK_ASSERT((frame->answered >> seat & 1) == 0); /* Nobody has answered what it was not sent. */
    add->request_id = frame->first_request + seat;
    if (!ebk_seat_send(to, settings->links, add, &place_of(adds, place)->tokens[seat])) {
        adds->is_ending = true; /* Its link is over or slow, or its core decides: so does ours. */
        return false;
    }
    adds->next[seat] = place + 1;
    if (to->near != NULL) return true;
    const struct ebk_asked asked = {
        .link = to->link, .request_id = add->request_id, .group = add->request_id, .needed = 1, .nonce = settings->nonce,
        .seating = to->seating, .ledger_id = settings->ledger_id, .first = frame->packed.first_entry,
        .last = frame->packed.last_entry};
    ebk_answers_expect_for(settings->answers, &asked, adds, place, seat);
    return true;
}

/* To a seat that is behind, what it has room for. */
static void catch_up(struct ebk_link_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count && !adds->is_ending; seat++)
        while (adds->next[seat] < adds->end && ebk_seat_room(&adds->settings.seats[seat], adds->settings.links) == EBK_SEAT_OPEN) {
            const uint64_t place = adds->next[seat];
            struct ebk_seat_add add = add_of(adds, place);
            if (!send_to(adds, seat, place, &add)) break;
        }
}

/* The newest frame to every seat that is not behind and has room. */
static void send_newest(struct ebk_link_adds *adds)
{
    const uint64_t place = adds->end - 1;
    struct ebk_seat_add add = add_of(adds, place);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (adds->next[seat] == place && ebk_seat_room(&adds->settings.seats[seat], adds->settings.links) == EBK_SEAT_OPEN)
            (void)send_to(adds, seat, place, &add);
}

/* Request ids of the same count as the core's, one for each seat. */
static uint64_t take_requests(const struct ebk_link_adds *adds)
{
    if (adds->settings.answers == NULL) return 0;
    uint64_t *const next = &ebk_answers_state(adds->settings.answers)->next_request;
    const uint64_t first = *next;
    *next += adds->settings.seat_count;
    return first;
}

static void push(struct ebk_link_adds *adds, int64_t now_ns)
{
    uint64_t sent = 0;
    catch_up(adds);
    while (!adds->is_ending && sent < EBK_LINK_TURN_BYTES) {
        ebk_packer_want(adds->settings.packer, woken_count(adds));
        if (!wants_frame(adds) || !have_room(adds) || !have_place(adds)) break;
        struct place *place = place_of(adds, adds->end);
        *place = (struct place){.frame.sent_ns = now_ns, .lac = adds->lac, .lac_length = adds->lac_length};
        if (!ebk_packer_seal(adds->settings.packer, &place->frame.packed)) break;
        EBK_ASSERT(place->frame.packed.first_entry > adds->lac);
        EBK_ASSERT(adds->end == adds->head || place->frame.packed.first_entry == at(adds, adds->end - 1)->packed.last_entry + 1);
        place->frame.first_request = take_requests(adds);
        adds->bytes += place->frame.packed.size;
        sent += place->frame.packed.size;
        adds->end += 1;
        send_newest(adds);
    }
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) ebk_seat_flush(&adds->settings.seats[seat]);
}

/* ---- counting -------------------------------------------------------------------------- */

/* How long the answers took that came since this was looked at: who is late is told by what is usual (P4.7). */
static void note_times(struct ebk_link_adds *adds, int64_t now_ns)
{
    if (adds->heard == 0) return;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (adds->heard >> seat & 1) adds->heard_ns[seat] = now_ns;
    if (now_ns - adds->answered_sent_ns > adds->longest_ns) adds->longest_ns = now_ns - adds->answered_sent_ns;
    adds->heard = 0;
    adds->answered_sent_ns = 0;
}

/* A bookie of this loop has answered what its journals have durable: its tokens ascend along the ring. */
static void hear_near(struct ebk_link_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_near *near = adds->settings.seats[seat].near;
        if (near == NULL || adds->durable[seat] == adds->next[seat] || (adds->failed >> seat & 1)) continue;
        const uint64_t durable = ebk_near_durable(near);
        while (adds->durable[seat] < adds->next[seat] && place_of(adds, adds->durable[seat])->tokens[seat] <= durable)
            take_answer(adds, adds->durable[seat]++, seat, false);
    }
}

/* In entry order only: the LAC never passes a frame that is not done (P3.3). */
static void reap(struct ebk_link_adds *adds, int64_t now_ns)
{
    const int64_t before = adds->lac;
    hear_near(adds);
    note_times(adds, now_ns);
    while (adds->head < adds->end &&
           (uint32_t)__builtin_popcount(at(adds, adds->head)->answered) >= adds->settings.ack_quorum) {
        const struct ebk_packed *done = &at(adds, adds->head)->packed;
        EBK_ASSERT(done->last_entry > adds->lac && done->length >= adds->lac_length && done->size <= adds->bytes);
        adds->lac = done->last_entry;
        adds->lac_length = done->length;
        adds->bytes -= done->size;
        count_behind(adds, kept_bytes(done));
        adds->head += 1;
    }
    while (adds->tail < adds->head && is_over(adds, adds->tail)) {
        count_behind(adds, -kept_bytes(&at(adds, adds->tail)->packed));
        ebk_packer_release(at(adds, adds->tail)->packed.body);
        adds->tail += 1;
    }
    if (adds->lac != before) ebk_ahead_show(&adds->ahead, adds->lac, adds->lac_length);
}

/* What every turn relies on, and leaves behind. */
static void check(const struct ebk_link_adds *adds)
{
    EBK_ASSERT(adds->tail <= adds->head && adds->head <= adds->end && adds->end - adds->tail <= adds->place_count);
    EBK_ASSERT((adds->bytes == 0) == (adds->head == adds->end) && (adds->behind == 0) == (adds->tail == adds->head));
    EBK_ASSERT(adds->lac_told <= adds->lac);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        EBK_ASSERT(adds->durable[seat] <= adds->next[seat] && adds->next[seat] <= adds->end);
        /* A place that is given back was answered by this seat, or nothing is kept for it. */
        EBK_ASSERT(adds->next[seat] >= adds->tail || (adds->failed >> seat & 1));
    }
}

/* ---- the loop's side ------------------------------------------------------------------- */

void ebk_link_adds_turn(struct ebk_link_adds *adds, int64_t now_ns)
{
    check(adds);
    reap(adds, now_ns);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_near *near = adds->settings.seats[seat].near;
        if (near != NULL && !ebk_near_is_open(near)) adds->is_ending = true; /* Nobody else will say so. */
    }
    push(adds, now_ns);
    check(adds);
}

int64_t ebk_link_adds_due_ns(struct ebk_link_adds *adds, int64_t now_ns)
{
    if (adds->is_ending && !adds->is_end_told) return now_ns;
    if (is_pressed(adds) && !adds->is_pressed_told) return now_ns;
    /* Who is new among those where readers wait is told of also behind the LAC. */
    if (adds->lac == adds->lac_told && (adds->followed & ~adds->followed_told) == 0) return INT64_MAX;
    if (!atomic_load(&adds->ahead.is_late)) return now_ns;
    if (adds->untold_ns == 0) adds->untold_ns = now_ns;
    return adds->untold_ns + EBK_LINK_TELL_NS;
}

bool ebk_link_adds_has_more(const struct ebk_link_adds *adds)
{
    uint32_t count = 0;
    if (adds->is_ending) return false;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        if (ebk_seat_room(&adds->settings.seats[seat], adds->settings.links) != EBK_SEAT_OPEN) continue;
        if (adds->next[seat] < adds->end) return true;
        count += 1;
    }
    return count >= adds->settings.ack_quorum && wants_frame(adds);
}

/* By seat, since when it has answered nothing of what it owes. */
static void look_for_silence(const struct ebk_link_adds *adds, int64_t *silent_ns)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        uint64_t place = adds->tail;
        while (place < adds->end && (at(adds, place)->answered >> seat & 1)) place++;
        if (place == adds->end) continue;
        const int64_t sent_ns = at(adds, place)->sent_ns;
        silent_ns[seat] = sent_ns > adds->heard_ns[seat] ? sent_ns : adds->heard_ns[seat];
    }
}

/* Near seats do not say so with each answer, so they are asked. */
static uint32_t followed_near(const struct ebk_link_adds *adds)
{
    uint32_t followed = 0;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_near *near = adds->settings.seats[seat].near;
        if (near != NULL && ebk_near_is_followed(near, adds->settings.ledger_id)) followed |= 1u << seat;
    }
    return followed;
}

/* Nothing more is sent this way to a seat that was not sent everything. */
static bool has_unsent(const struct ebk_link_adds *adds)
{
    bool found = false;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        found |= adds->next[seat] < adds->end && !(adds->failed >> seat & 1);
    return found && adds->is_ending;
}

void ebk_link_adds_tell(struct ebk_link_adds *adds, int64_t now_ns, struct ebk_link_facts *facts)
{
    if (!adds->is_deaf) reap(adds, now_ns);
    *facts = (struct ebk_link_facts){.lac = adds->lac, .lac_length = adds->lac_length, .is_ending = adds->is_ending};
    facts->pending = (uint32_t)(adds->end - adds->head);
    facts->has_unsent = has_unsent(adds);
    facts->oldest_sent_ns = adds->tail < adds->end ? at(adds, adds->tail)->sent_ns : 0;
    facts->longest_ns = adds->longest_ns;
    adds->longest_ns = 0;
    facts->followed = adds->followed | followed_near(adds);
    adds->followed_told = adds->lac == adds->lac_told ? adds->followed_told | adds->followed : adds->followed;
    adds->followed = 0;
    adds->lac_told = adds->lac;
    adds->is_end_told = adds->is_ending;
    memcpy(facts->heard_ns, adds->heard_ns, sizeof facts->heard_ns);
    facts->is_pressed = adds->is_pressed_told = is_pressed(adds);
    if (facts->is_pressed) look_for_silence(adds, facts->silent_ns);
    adds->untold_ns = 0;
    atomic_store(&adds->ahead.is_late, false); /* Until somebody awaits again, and says so. */
}

void ebk_link_adds_keep_beside(struct ebk_link_adds *adds, uint64_t bytes)
{
    adds->behind_of_core = bytes;
}

void ebk_link_adds_fail(struct ebk_link_adds *adds, uint32_t seat)
{
    EBK_ASSERT(seat < adds->settings.seat_count);
    adds->failed |= 1u << seat;
    adds->is_ending = true;
}

int ebk_link_adds_show(const struct ebk_link_adds *adds, uint64_t place, uint32_t seat, struct ebk_packed *frame,
                       uint64_t *token, int64_t *lac, uint64_t *lac_length)
{
    EBK_ASSERT(seat < adds->settings.seat_count && adds->settings.seats[seat].near != NULL);
    if (adds->places == NULL || place < adds->tail || place >= adds->next[seat]) return 0;
    const struct place *const it = place_of(adds, place);
    *frame = it->frame.packed;
    *token = it->tokens[seat];
    *lac = it->lac;
    *lac_length = it->lac_length;
    return 1;
}

/* Stored at a bookie of this loop, and no request is on its way that would be answered. It is asked by one: what it has it
 * finds there (P3.4b). */
static bool is_near_only(const struct ebk_link_adds *adds, uint32_t seat, const struct ebk_link_frame *frame)
{
    return adds->settings.seats[seat].near != NULL && !(frame->answered >> seat & 1);
}

int ebk_link_adds_give(struct ebk_link_adds *adds, struct ebk_link_frame *frame)
{
    be_deaf(adds);
    EBK_ASSERT(adds->is_ending && adds->is_deaf);
    ebk_packer_want(adds->settings.packer, 1);
    while (adds->tail < adds->end) {
        const uint64_t place = adds->tail++;
        *frame = *at(adds, place);
        if (place < adds->head) count_behind(adds, -kept_bytes(&frame->packed));
        if (place >= adds->head || !is_over(adds, place)) {
            for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
                if (adds->next[seat] <= place || is_near_only(adds, seat, frame)) frame->unsent |= 1u << seat;
            return 1;
        }
        ebk_packer_release(frame->packed.body);
    }
    return 0;
}

/* ---- users' threads -------------------------------------------------------------------- */

int64_t ebk_link_adds_lac(const struct ebk_link_adds *adds, uint64_t *length)
{
    return ebk_ahead_lac(&adds->ahead, length);
}

int ebk_link_adds_await(struct ebk_link_adds *adds, int64_t entry_id, bool is_alone, int timeout_ms)
{
    return ebk_ahead_await(&adds->ahead, entry_id, is_alone, timeout_ms);
}
