/* link_adds.c: frames from a packer to their seats, and what their answers amount to.
 *
 *     the table's frames   | acknowledged, not answered by all | sealed ...
 *                          ^ tail        ^ next of a seat      ^ head      ^ end, next of the others
 *
 * An answer names its frame by its place, which is never another frame's; a place is free only when no slot owes it.
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

struct ebk_link_adds {
    struct ebk_link_settings settings;
    const struct ebk_flight_state *flight; /* of the table */
    uint64_t begin; /* the first place that is sent this way */
    uint64_t next[EBK_FLIGHT_SEATS_MAX]; /* by seat: the place that it is sent next */
    uint64_t durable[EBK_FLIGHT_SEATS_MAX]; /* by near seat: the first place that it has not answered */
    int64_t heard_ns[EBK_FLIGHT_SEATS_MAX]; /* by seat: when it was seen that it had answered */
    int64_t answered_ns[EBK_FLIGHT_SEATS_MAX]; /* by seat: when the newest was sent of what it has answered */
    uint32_t slots; /* of the seats, as bits */
    uint32_t heard, failed; /* a bit for each seat: answered since that was looked at; nothing is kept for it */
    int64_t answered_sent_ns; /* when the oldest was sent of the frames that were answered since; 0: none was */
    int64_t longest_ns;
    uint32_t followed, followed_told; /* a bit for each seat: said since it was told last; told with the LAC before */
    int64_t lac, lac_told;
    uint64_t lac_length;
    bool is_ending, is_end_told, is_deaf, is_closed, is_pressed_told;
    int64_t untold_ns; /* since when there is news that is reported late; 0: there is none */
    struct ebk_ahead ahead; /* of any thread */
};

static const struct ebk_flying *at(const struct ebk_link_adds *adds, uint64_t place)
{
    return ebk_in_flight_at(adds->settings.table, place);
}

static uint32_t slot_of(const struct ebk_link_adds *adds, uint32_t seat)
{
    return adds->settings.seats[seat].slot;
}

/* The seat answered OK to what it was asked. */
static void take_answer(struct ebk_link_adds *adds, uint64_t place, uint32_t seat, bool is_followed)
{
    int64_t sent_ns;
    EBK_ASSERT(!adds->is_deaf && place >= adds->begin && place < adds->flight->end);
    EBK_ASSERT(seat < adds->settings.seat_count && place < adds->next[seat]); /* A seat answers only what it was sent. */
    if (adds->failed >> seat & 1) return; /* What it owed may be gone. */
    const int is_counted = ebk_in_flight_answered(adds->settings.table, slot_of(adds, seat), place, &sent_ns);
    EBK_ASSERT(is_counted); /* A request is answered once. */
    adds->heard |= 1u << seat;
    if (sent_ns > adds->answered_ns[seat]) adds->answered_ns[seat] = sent_ns;
    if (adds->answered_sent_ns == 0 || sent_ns < adds->answered_sent_ns) adds->answered_sent_ns = sent_ns;
    if (is_followed) adds->followed |= 1u << seat;
}

struct ebk_link_adds *ebk_link_adds_new(const struct ebk_link_settings *settings)
{
    EBK_ASSERT(settings->seat_count > 0 && settings->seat_count <= EBK_FLIGHT_SEATS_MAX);
    EBK_ASSERT(settings->ack_quorum > 0 && settings->ack_quorum <= settings->seat_count);
    struct ebk_link_adds *adds = calloc(1, sizeof *adds);
    if (adds == NULL) return NULL;
    adds->settings = *settings;
    adds->flight = ebk_in_flight_state(settings->table);
    adds->begin = adds->flight->end;
    for (uint32_t seat = 0; seat < settings->seat_count; seat++) {
        EBK_ASSERT(settings->seats[seat].control_size <= EBK_LINK_CONTROL_BYTES_MAX);
        EBK_ASSERT(settings->seats[seat].slot < EBK_FLIGHT_SLOTS_MAX && !(adds->slots >> settings->seats[seat].slot & 1));
        adds->slots |= 1u << settings->seats[seat].slot;
        adds->next[seat] = adds->durable[seat] = adds->begin;
    }
    if (settings->answers != NULL) ebk_answers_keep(settings->answers, take_answer);
    adds->lac = adds->lac_told = settings->lac;
    adds->lac_length = settings->lac_length;
    ebk_ahead_begin(&adds->ahead, settings->lac, settings->lac_length);
    return adds;
}

/* No answer counts here from now on: the core gets them. */
static void be_deaf(struct ebk_link_adds *adds)
{
    adds->is_ending = true;
    if (adds->is_deaf) return;
    adds->is_deaf = true;
    if (adds->settings.answers != NULL) ebk_answers_forget(adds->settings.answers, adds);
}

void ebk_link_adds_close(struct ebk_link_adds *adds)
{
    if (adds->is_closed) return;
    adds->is_closed = true;
    be_deaf(adds);
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

static uint64_t out_count(const struct ebk_link_adds *adds)
{
    return adds->flight->end - adds->flight->head;
}

static uint32_t wanted_count(const struct ebk_link_adds *adds)
{
    if (out_count(adds) == 0) return ebk_pace_wanted(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->flight->end - 1)->packed;
    return ebk_pace_wanted(out_count(adds), newest->size, newest->count);
}

static uint32_t woken_count(const struct ebk_link_adds *adds)
{
    if (out_count(adds) == 0) return ebk_pace_woken(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->flight->end - 1)->packed;
    return ebk_pace_woken(out_count(adds), newest->size, newest->count);
}

static bool is_pressed(const struct ebk_link_adds *adds)
{
    return ebk_in_flight_is_pressed(adds->settings.table, adds->settings.behind_max);
}

/* As `wants_frame` of embedbk/core/writer.py. */
static bool wants_frame(const struct ebk_link_adds *adds)
{
    const struct ebk_packer_state *state = ebk_packer_state(adds->settings.packer);
    if (adds->flight->pending_bytes >= adds->settings.bytes_max || is_pressed(adds)) return false;
    if (__atomic_load_n(&state->full_count, __ATOMIC_RELAXED) > 0) return out_count(adds) < OUT_MAX;
    const uint32_t open_count = __atomic_load_n(&state->open_count, __ATOMIC_RELAXED);
    /* The last frame of a handle that takes no more appends does not grow, so it goes like a full one. */
    if (__atomic_load_n(&state->is_stopped, __ATOMIC_RELAXED)) return open_count > 0 && out_count(adds) < OUT_MAX;
    return open_count >= wanted_count(adds);
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
        is_stuck |= room == EBK_SEAT_FULL && adds->settings.seats[seat].near != NULL && adds->flight->tail == adds->flight->end;
        count += room == EBK_SEAT_OPEN && adds->next[seat] == adds->flight->end;
    }
    if (is_stuck && count < adds->settings.ack_quorum) adds->is_ending = true;
    return !adds->is_ending && count >= adds->settings.ack_quorum;
}

static struct ebk_seat_add add_of(const struct ebk_link_adds *adds, uint64_t place)
{
    const struct ebk_flying_sent *const sent = ebk_in_flight_sent(adds->settings.table, place);
    EBK_ASSERT(at(adds, place)->packed.body != NULL);
    return (struct ebk_seat_add){.ledger_id = adds->settings.ledger_id, .key = adds->settings.key,
                                 .packed = &at(adds, place)->packed, .lac = sent->lac, .lac_length = sent->lac_length};
}

/* The frame at `place` to one seat that is open. False: nothing was sent. */
static bool send_to(struct ebk_link_adds *adds, uint32_t seat, uint64_t place,
                    struct ebk_seat_add *add)
{
    const struct ebk_link_settings *const settings = &adds->settings;
    const struct ebk_link_seat *const to = &settings->seats[seat];
    const struct ebk_packed *const packed = &at(adds, place)->packed;
    struct ebk_flying_sent *const sent = ebk_in_flight_sent(settings->table, place);
    EBK_ASSERT(adds->next[seat] == place);
    EBK_ASSERT(at(adds, place)->owed >> to->slot & 1); /* No seat has answered what it was not sent. */
    add->request_id = sent->first_request + seat;
    if (!ebk_seat_send(to, settings->links, add, &sent->tokens[seat])) {
        adds->is_ending = true; /* Its link is over or slow, or its core decides: so does ours. */
        return false;
    }
    adds->next[seat] = place + 1;
    if (to->near != NULL) {
        /* The tokens of a near seat ascend, so that one number says how far it is durable. */
        EBK_ASSERT(place == adds->begin || place == adds->flight->tail ||
                   ebk_in_flight_sent(settings->table, place - 1)->tokens[seat] < sent->tokens[seat]);
        return true;
    }
    EBK_ASSERT(settings->answers != NULL);
    const struct ebk_asked asked = {
        .link = to->link, .request_id = add->request_id, .group = add->request_id, .needed = 1, .nonce = settings->nonce,
        .seating = to->seating, .ledger_id = settings->ledger_id, .first = packed->first_entry, .last = packed->last_entry};
    ebk_answers_expect_for(settings->answers, &asked, adds, place, seat);
    return true;
}

/* To a seat that is behind, what it has room for. */
static void catch_up(struct ebk_link_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count && !adds->is_ending; seat++)
        while (adds->next[seat] < adds->flight->end && ebk_seat_room(&adds->settings.seats[seat], adds->settings.links) == EBK_SEAT_OPEN) {
            const uint64_t place = adds->next[seat];
            struct ebk_seat_add add = add_of(adds, place);
            if (!send_to(adds, seat, place, &add)) break;
        }
}

/* The newest frame to every seat that is not behind and has room. */
static void send_newest(struct ebk_link_adds *adds)
{
    const uint64_t place = adds->flight->end - 1;
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
        if (!wants_frame(adds) || !have_room(adds) || !ebk_in_flight_reserve(adds->settings.table)) break;
        struct ebk_packed packed;
        if (!ebk_packer_seal_behind(adds->settings.packer, adds->lac, &packed)) break;
        EBK_ASSERT(packed.first_entry > adds->lac);
        EBK_ASSERT(out_count(adds) == 0 || packed.first_entry == at(adds, adds->flight->end - 1)->packed.last_entry + 1);
        const int64_t place = ebk_in_flight_put(adds->settings.table, &packed);
        EBK_ASSERT(place >= 0); /* There is room. */
        *ebk_in_flight_sent(adds->settings.table, (uint64_t)place) = (struct ebk_flying_sent){
            .first_request = take_requests(adds), .lac = adds->lac, .lac_length = adds->lac_length};
        for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
            ebk_in_flight_owe(adds->settings.table, slot_of(adds, seat), (uint64_t)place, now_ns);
        sent += packed.size;
        send_newest(adds);
    }
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) ebk_seat_flush(&adds->settings.seats[seat]);
}

/* ---- counting -------------------------------------------------------------------------- */

/* How long the answers took that came since the last look: a bookie is late against the usual times (P4.7). */
static void note_times(struct ebk_link_adds *adds, int64_t now_ns)
{
    if (adds->heard == 0) return;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (adds->heard >> seat & 1) adds->heard_ns[seat] = now_ns;
    EBK_ASSERT(adds->heard >> adds->settings.seat_count == 0);
    if (now_ns - adds->answered_sent_ns > adds->longest_ns) adds->longest_ns = now_ns - adds->answered_sent_ns;
    adds->heard = 0;
    adds->answered_sent_ns = 0;
}

/* A bookie of this loop has answered what its journals have durable: its tokens ascend along the table. */
static void hear_near(struct ebk_link_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_near *near = adds->settings.seats[seat].near;
        if (near == NULL || adds->durable[seat] == adds->next[seat] || (adds->failed >> seat & 1)) continue;
        const uint64_t durable = ebk_near_durable(near);
        while (adds->durable[seat] < adds->next[seat] &&
               ebk_in_flight_sent(adds->settings.table, adds->durable[seat])->tokens[seat] <= durable)
            take_answer(adds, adds->durable[seat]++, seat, false);
    }
}

/* In entry order only: the LAC never passes a frame that is not done (P3.3). */
static void reap(struct ebk_link_adds *adds, int64_t now_ns)
{
    const int64_t before = adds->lac;
    hear_near(adds);
    note_times(adds, now_ns);
    while (out_count(adds) > 0 && (uint32_t)__builtin_popcount(at(adds, adds->flight->head)->acked & adds->slots) >=
                                      adds->settings.ack_quorum) {
        const struct ebk_packed *done = &at(adds, adds->flight->head)->packed;
        EBK_ASSERT(done->last_entry > adds->lac && done->length >= adds->lac_length);
        adds->lac = done->last_entry;
        adds->lac_length = done->length;
        ebk_in_flight_confirm(adds->settings.table);
    }
    if (adds->lac != before) ebk_ahead_show(&adds->ahead, adds->lac, adds->lac_length);
}

/* What every turn relies on, and leaves behind. */
static void check(const struct ebk_link_adds *adds)
{
    EBK_ASSERT(adds->lac_told <= adds->lac && adds->begin <= adds->flight->end);
    EBK_ASSERT(out_count(adds) == 0 || at(adds, adds->flight->head)->packed.first_entry > adds->lac);
    EBK_ASSERT(!adds->is_deaf || adds->is_ending);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        EBK_ASSERT(adds->durable[seat] <= adds->next[seat] && adds->next[seat] <= adds->flight->end);
        /* A place that is free was answered by this seat, or nothing is kept for it. */
        EBK_ASSERT(adds->next[seat] >= adds->flight->tail || (adds->failed >> seat & 1));
    }
}

/* ---- the loop's side ------------------------------------------------------------------- */

void ebk_link_adds_turn(struct ebk_link_adds *adds, int64_t now_ns)
{
    check(adds);
    reap(adds, now_ns);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_near *near = adds->settings.seats[seat].near;
        if (near != NULL && !ebk_near_is_open(near)) adds->is_ending = true; /* Nothing else will say so. */
    }
    push(adds, now_ns);
    check(adds);
}

int64_t ebk_link_adds_due_ns(struct ebk_link_adds *adds, int64_t now_ns)
{
    if (adds->is_ending && !adds->is_end_told) return now_ns;
    if (is_pressed(adds) && !adds->is_pressed_told) return now_ns;
    /* A seat where a reader newly waits is reported also after the LAC was. */
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
        if (adds->next[seat] < adds->flight->end) return true;
        count += 1;
    }
    return count >= adds->settings.ack_quorum && wants_frame(adds);
}

/* By seat, since when it has answered nothing of what it owes. */
static void look_for_silence(const struct ebk_link_adds *adds, int64_t *silent_ns)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        if (adds->flight->owed_count[slot_of(adds, seat)] == 0) continue;
        const int64_t sent_ns = adds->flight->oldest_sent_ns[slot_of(adds, seat)];
        silent_ns[seat] = sent_ns > adds->heard_ns[seat] ? sent_ns : adds->heard_ns[seat];
    }
}

/* When the oldest was sent of the frames that a seat has not answered; 0: there is none. */
static int64_t oldest_sent_ns(const struct ebk_link_adds *adds)
{
    int64_t oldest_ns = 0;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        if (adds->flight->owed_count[slot_of(adds, seat)] == 0) continue;
        const int64_t sent_ns = adds->flight->oldest_sent_ns[slot_of(adds, seat)];
        if (oldest_ns == 0 || sent_ns < oldest_ns) oldest_ns = sent_ns;
    }
    return oldest_ns;
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

void ebk_link_adds_tell(struct ebk_link_adds *adds, int64_t now_ns, struct ebk_link_facts *facts)
{
    if (!adds->is_deaf) reap(adds, now_ns);
    *facts = (struct ebk_link_facts){.lac = adds->lac, .lac_length = adds->lac_length, .is_ending = adds->is_ending};
    facts->pending = (uint32_t)out_count(adds);
    facts->oldest_sent_ns = oldest_sent_ns(adds);
    facts->longest_ns = adds->longest_ns;
    adds->longest_ns = 0;
    facts->followed = adds->followed | followed_near(adds);
    adds->followed_told = adds->lac == adds->lac_told ? adds->followed_told | adds->followed : adds->followed;
    adds->followed = 0;
    adds->lac_told = adds->lac;
    adds->is_end_told = adds->is_ending;
    memcpy(facts->heard_ns, adds->heard_ns, sizeof facts->heard_ns);
    memcpy(facts->answered_ns, adds->answered_ns, sizeof facts->answered_ns);
    facts->is_pressed = adds->is_pressed_told = is_pressed(adds);
    if (facts->is_pressed) look_for_silence(adds, facts->silent_ns);
    adds->untold_ns = 0;
    atomic_store(&adds->ahead.is_late, false); /* Until a thread awaits again, and says so. */
}

void ebk_link_adds_fail(struct ebk_link_adds *adds, uint32_t seat)
{
    EBK_ASSERT(seat < adds->settings.seat_count);
    adds->failed |= 1u << seat;
    adds->is_ending = true;
    ebk_in_flight_excuse(adds->settings.table, slot_of(adds, seat));
}

int ebk_link_adds_show(const struct ebk_link_adds *adds, uint64_t place, uint32_t seat, struct ebk_packed *frame,
                       uint64_t *token, int64_t *lac, uint64_t *lac_length)
{
    EBK_ASSERT(seat < adds->settings.seat_count && adds->settings.seats[seat].near != NULL);
    if (adds->is_closed || place < adds->begin || place < adds->flight->tail || place >= adds->next[seat]) return 0;
    if (at(adds, place)->packed.body == NULL) return 0;
    const struct ebk_flying_sent *const sent = ebk_in_flight_sent(adds->settings.table, place);
    *frame = at(adds, place)->packed;
    *token = sent->tokens[seat];
    *lac = sent->lac;
    *lac_length = sent->lac_length;
    return 1;
}

void ebk_link_adds_end(struct ebk_link_adds *adds)
{
    be_deaf(adds);
    ebk_packer_want(adds->settings.packer, 1);
}

int ebk_link_adds_next_owed(const struct ebk_link_adds *adds, uint64_t *place, struct ebk_link_owed *owed)
{
    EBK_ASSERT(adds->is_deaf && !adds->is_closed);
    if (*place < adds->begin) *place = adds->begin;
    if (*place < adds->flight->tail) *place = adds->flight->tail;
    while (*place < adds->flight->end) {
        const uint64_t looked = (*place)++;
        *owed = (struct ebk_link_owed){.first_entry = at(adds, looked)->packed.first_entry,
                                       .first_request = ebk_in_flight_sent(adds->settings.table, looked)->first_request};
        for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
            if (!(at(adds, looked)->owed >> slot_of(adds, seat) & 1)) continue;
            /* The core sends a request for what a bookie of this loop has stored, and the bookie finds it there
             * (P3.4b). */
            if (adds->next[seat] > looked && adds->settings.seats[seat].near == NULL)
                owed->asked |= 1u << seat;
            else
                owed->unsent |= 1u << seat;
        }
        if (owed->asked | owed->unsent) return 1;
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
