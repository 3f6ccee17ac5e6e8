/* link_adds.c: frames from a packer to the links of their seats, and what their answers amount to.
 *
 *     frames ring   | acknowledged, not answered by all | sealed ...
 *                   ^ tail        ^ next of a seat      ^ head      ^ end, next of the others
 *
 * A frame stays in the ring until every seat has answered, as the core keeps it (RP33): a
 * seat that says BUSY is sent it again, by the core, and a frame that was let go of at its
 * ack quorum would have a copy less than was asked for. For the same reason the bound is one
 * of what begins at tail: an answer names its frame by its place, which must still be its own.
 */
#include "link_adds.h"

#include "add_path.h"
#include "ahead.h"
#include "bytes.h"
#include "envelope.h"
#include "errors.h"
#include "frame_header.h"
#include "link_inside.h"
#include "link_tray.h"
#include "message.h"
#include "pace.h"
#include "zmq_calls.h"
#include "zmq_send.h"

#include <stdlib.h>
#include <string.h>

#define HEADS_BYTES_MAX (EBK_ENVELOPE_BYTES + EBK_MESSAGE_HEADER_BYTES + EBK_LINK_CONTROL_BYTES_MAX + EBK_FRAME_HEADER_BYTES)
/* Of a body with any frame, without its envelope: what a link must have room for before a frame is sealed. */
#define BODY_BYTES_MAX (EBK_FRAME_BYTES_MAX + HEADS_BYTES_MAX)
/* As `inflight_frames_max` of embedbk/core/writer.py: frames that lack their ack quorum. */
#define OUT_MAX 64

struct place {
    struct ebk_link_frame frame;
    int64_t lac; /* what every seat is told with it, whenever it is sent */
    uint64_t lac_length;
};

struct ebk_link_adds {
    struct ebk_link_settings settings;
    struct place *places; /* ring; NULL: closed */
    uint64_t place_count;
    uint64_t next[EBK_LINK_SEATS_MAX]; /* by seat: the place that it is sent next */
    int64_t heard_ns[EBK_LINK_SEATS_MAX]; /* by seat: when it was seen that it had answered */
    uint32_t heard, failed; /* a bit for each seat: answered since that was looked at; nothing is kept for it */
    int64_t answered_sent_ns; /* when the oldest was sent of the frames that were answered since; 0: none was */
    int64_t longest_ns;
    uint32_t followed, followed_told; /* a bit for each seat: said since it was told last; told with the LAC before */
    uint64_t tail, head, end;
    uint64_t bytes; /* of the bodies from head on */
    uint64_t behind; /* of the frames from tail to head, with their price */
    int64_t lac, lac_told;
    uint64_t lac_length;
    bool is_ending, is_end_told, is_deaf, is_pressed_told;
    int64_t untold_ns; /* since when there is something to tell that is told late; 0: there is nothing */
    struct ebk_ahead ahead; /* of any thread */
};

_Static_assert((EBK_LINK_FRAMES_MIN & (EBK_LINK_FRAMES_MIN - 1)) == 0, "places in the ring are found by a mask");

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
    ebk_answers_keep(settings->answers);
    adds->lac = adds->lac_told = settings->lac;
    adds->lac_length = settings->lac_length;
    ebk_ahead_begin(&adds->ahead, settings->lac, settings->lac_length);
    return adds;
}

static struct place *place_of(const struct ebk_link_adds *adds, uint64_t place)
{
    return &adds->places[place & (adds->place_count - 1)];
}

static struct ebk_link_frame *at(const struct ebk_link_adds *adds, uint64_t place)
{
    return &place_of(adds, place)->frame;
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

/* Of an acknowledged frame: nobody owes it. */
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
    ebk_answers_forget(adds->settings.answers, adds);
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
    if (adds->behind >= adds->settings.behind_max) return true;
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
 * that is behind. *is_lost: to a seat nothing goes at all. */
static bool have_room(const struct ebk_link_adds *adds, struct ebk_link_sender *sender, bool *is_lost)
{
    uint32_t count = 0;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_sending_link *link = ebk_link_sender_find(sender, adds->settings.seats[seat].link);
        if (link == NULL) *is_lost = true;
        count += link != NULL && adds->next[seat] == adds->end && link->room >= BODY_BYTES_MAX;
    }
    return !*is_lost && count >= adds->settings.ack_quorum;
}

/* The header of a frame (WIRE.md 2), with the LAC that was the newest when it was sealed. */
static void write_frame_head(const struct ebk_link_adds *adds, const struct place *place, uint8_t *to)
{
    const struct ebk_packed *const packed = &place->frame.packed;
    const struct ebk_frame_facts facts = {.ledger_id = adds->settings.ledger_id, .count = packed->count,
                                          .first_entry = packed->first_entry, .last_entry = packed->last_entry};
    ebk_frame_header_write(to, &facts, packed->size);
    to[EBK_FRAME_AT_FLAGS] |= EBK_FRAME_FLAG_LAC;
    ebk_store_u64(to + EBK_FRAME_AT_LAC, (uint64_t)place->lac);
    ebk_store_u64(to + EBK_FRAME_AT_LAC_LENGTH, place->lac_length);
    memcpy(to + EBK_FRAME_AT_KEY, adds->settings.key, sizeof adds->settings.key);
    ebk_store_u32(to + EBK_FRAME_AT_CRC, ebk_crc32c(0, to, EBK_FRAME_AT_CRC));
}

/* Heads and frame as one part. */
static int send_copied(void *socket, const uint8_t *heads, size_t heads_size, const struct ebk_packed *packed)
{
    struct ebk_zmq_message message;
    if (ebk_zmq.init_size(&message, heads_size + packed->size) < 0) return EBK_NO_MEMORY;
    uint8_t *to = ebk_zmq.data(&message);
    memcpy(to, heads, heads_size);
    memcpy(to + heads_size, packed->body, packed->size);
    while (ebk_zmq.send(&message, socket, EBK_ZMQ_DONTWAIT) < 0) {
        if (ebk_zmq.last_error() == EINTR) continue;
        (void)ebk_zmq.close(&message);
        return EBK_FULL;
    }
    return EBK_OK;
}

/* One request: envelope, message header, control part, frame. False: nothing was sent. */
static bool ask(const struct ebk_link_seat *seat, struct ebk_sending_link *link, uint64_t request_id,
                const uint8_t *frame_head, const struct ebk_packed *packed)
{
    uint8_t heads[HEADS_BYTES_MAX];
    uint8_t *const message = heads + EBK_ENVELOPE_BYTES;
    uint8_t *end = message + EBK_MESSAGE_HEADER_BYTES;
    memcpy(end, seat->control, seat->control_size);
    end += seat->control_size;
    (void)ebk_message_seal_with(message, EBK_KIND_ADD_REQUEST, 1, EBK_FRAME_HEADER_BYTES + packed->size, request_id, end);
    memcpy(end, frame_head, EBK_FRAME_HEADER_BYTES);
    end += EBK_FRAME_HEADER_BYTES;
    const size_t body_size = (size_t)(end - message) + packed->size;
    memcpy(heads, link->prefix, EBK_ENVELOPE_PREFIX_BYTES);
    ebk_store_u32(heads + EBK_ENVELOPE_AT_LENGTH, (uint32_t)body_size);
    ebk_store_u32(heads + EBK_ENVELOPE_AT_CRC, ebk_crc32c(0, heads, EBK_ENVELOPE_AT_CRC));
    const size_t heads_size = (size_t)(end - heads);
    link->is_used = true;
    int code;
    if (link->socket == NULL)
        code = ebk_link_tray_put(link->tray, message, (uint32_t)(end - message), packed->body, packed->size);
    else if (packed->size <= EBK_LINK_COPIED_BYTES_MAX)
        code = send_copied(link->socket, heads, heads_size, packed);
    else
        code = ebk_zmq_send_frame(link->socket, heads, heads_size, packed->body, packed->size);
    if (code != EBK_OK) return false;
    link->sent += body_size;
    link->room -= body_size;
    return true;
}

/* The frame at `place` to one seat. False: nothing was sent. */
static bool send_to(struct ebk_link_adds *adds, uint32_t seat, struct ebk_sending_link *link, uint64_t place,
                    const uint8_t *frame_head)
{
    const struct ebk_link_settings *const settings = &adds->settings;
    const struct ebk_link_seat *const to = &settings->seats[seat];
    const struct ebk_link_frame *const frame = at(adds, place);
    const uint64_t request_id = frame->first_request + seat;
    if (!ask(to, link, request_id, frame_head, &frame->packed)) {
        adds->is_ending = true; /* Its link is over, or will be found slow: the core decides. */
        return false;
    }
    const struct ebk_asked asked = {
        .link = to->link, .request_id = request_id, .group = request_id, .needed = 1, .nonce = settings->nonce,
        .seating = to->seating, .ledger_id = settings->ledger_id, .first = frame->packed.first_entry,
        .last = frame->packed.last_entry};
    ebk_answers_expect_for(settings->answers, &asked, adds, place, seat);
    adds->next[seat] = place + 1;
    return true;
}

/* To a seat that is behind, what its link has room for. */
static void catch_up(struct ebk_link_adds *adds, struct ebk_link_sender *sender)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count && !adds->is_ending; seat++) {
        if (adds->next[seat] == adds->end) continue;
        struct ebk_sending_link *link = ebk_link_sender_find(sender, adds->settings.seats[seat].link);
        while (link != NULL && link->room >= BODY_BYTES_MAX && adds->next[seat] < adds->end) {
            const uint64_t place = adds->next[seat];
            uint8_t frame_head[EBK_FRAME_HEADER_BYTES];
            write_frame_head(adds, place_of(adds, place), frame_head);
            if (!send_to(adds, seat, link, place, frame_head)) break;
        }
    }
}

/* The newest frame to every seat that is not behind and has room. */
static void send_newest(struct ebk_link_adds *adds, struct ebk_link_sender *sender)
{
    const uint64_t place = adds->end - 1;
    uint8_t frame_head[EBK_FRAME_HEADER_BYTES];
    write_frame_head(adds, place_of(adds, place), frame_head);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        struct ebk_sending_link *link = ebk_link_sender_find(sender, adds->settings.seats[seat].link);
        if (adds->next[seat] == place && link->room >= BODY_BYTES_MAX) (void)send_to(adds, seat, link, place, frame_head);
    }
}

static void push(struct ebk_link_adds *adds, struct ebk_link_sender *sender, int64_t now_ns)
{
    uint64_t sent = 0;
    catch_up(adds, sender);
    while (!adds->is_ending && sent < EBK_LINK_TURN_BYTES) {
        ebk_packer_want(adds->settings.packer, woken_count(adds));
        if (!wants_frame(adds)) break;
        bool is_lost = false;
        if (!have_room(adds, sender, &is_lost) || !have_place(adds)) {
            if (is_lost) adds->is_ending = true;
            break;
        }
        struct place *place = place_of(adds, adds->end);
        *place = (struct place){.frame.sent_ns = now_ns, .lac = adds->lac, .lac_length = adds->lac_length};
        if (!ebk_packer_seal(adds->settings.packer, &place->frame.packed)) break;
        EBK_ASSERT(place->frame.packed.first_entry > adds->lac);
        uint64_t *const request_id = &ebk_answers_state(adds->settings.answers)->next_request;
        place->frame.first_request = *request_id;
        *request_id += adds->settings.seat_count;
        adds->bytes += place->frame.packed.size;
        sent += place->frame.packed.size;
        adds->end += 1;
        send_newest(adds, sender);
    }
}

/* ---- counting -------------------------------------------------------------------------- */

void ebk_link_adds_answered(struct ebk_link_adds *adds, uint64_t place, uint32_t seat, bool is_followed)
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

/* In entry order only: the LAC never passes a frame that is not done (P3.3). */
static void reap(struct ebk_link_adds *adds, int64_t now_ns)
{
    const int64_t before = adds->lac;
    note_times(adds, now_ns);
    while (adds->head < adds->end &&
           (uint32_t)__builtin_popcount(at(adds, adds->head)->answered) >= adds->settings.ack_quorum) {
        const struct ebk_packed *done = &at(adds, adds->head)->packed;
        EBK_ASSERT(done->last_entry > adds->lac);
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

/* ---- the loop's side ------------------------------------------------------------------- */

void ebk_link_adds_turn(struct ebk_link_adds *adds, struct ebk_link_sender *sender, int64_t now_ns)
{
    reap(adds, now_ns);
    push(adds, sender, now_ns);
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

bool ebk_link_adds_has_more(const struct ebk_link_adds *adds, struct ebk_link_sender *sender)
{
    bool is_lost = false;
    if (adds->is_ending) return false;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) {
        const struct ebk_sending_link *link = ebk_link_sender_find(sender, adds->settings.seats[seat].link);
        if (adds->next[seat] < adds->end && link != NULL && link->room >= BODY_BYTES_MAX) return true;
    }
    return wants_frame(adds) && have_room(adds, sender, &is_lost);
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

void ebk_link_adds_tell(struct ebk_link_adds *adds, int64_t now_ns, struct ebk_link_facts *facts)
{
    if (!adds->is_deaf) reap(adds, now_ns);
    *facts = (struct ebk_link_facts){.lac = adds->lac, .lac_length = adds->lac_length, .is_ending = adds->is_ending};
    facts->pending = (uint32_t)(adds->end - adds->head);
    facts->oldest_sent_ns = adds->tail < adds->end ? at(adds, adds->tail)->sent_ns : 0;
    facts->longest_ns = adds->longest_ns;
    adds->longest_ns = 0;
    facts->followed = adds->followed;
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

void ebk_link_adds_fail(struct ebk_link_adds *adds, uint32_t seat)
{
    EBK_ASSERT(seat < adds->settings.seat_count);
    adds->failed |= 1u << seat;
    adds->is_ending = true;
}

int ebk_link_adds_give(struct ebk_link_adds *adds, struct ebk_link_frame *frame)
{
    be_deaf(adds);
    ebk_packer_want(adds->settings.packer, 1);
    while (adds->tail < adds->end) {
        const uint64_t place = adds->tail++;
        *frame = *at(adds, place);
        if (place < adds->head) count_behind(adds, -kept_bytes(&frame->packed));
        if (place >= adds->head || !is_over(adds, place)) {
            for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
                if (adds->next[seat] <= place) frame->unsent |= 1u << seat;
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
