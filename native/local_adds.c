/* local_adds.c: frames from a packer into the bookies beside it.
 *
 *     frames ring   | acknowledged | stored: a token by each seat | ...   held: sealed, and not stored everywhere
 *                                  ^ head                         ^ end
 *
 * A seat's tokens ascend along the ring, so what is durable there is one number. No seat's
 * answer is counted apart: the count is made anew of those numbers for the frame at `head`.
 */
#include "local_adds.h"

#include "ahead.h"
#include "errors.h"
#include "local_inside.h"
#include "pace.h"

#include <stdlib.h>
#include <string.h>

struct near_frame {
    struct ebk_packed packed;
    uint64_t tokens[EBK_LOCAL_SEATS_MAX];
};

struct ebk_local_adds {
    struct ebk_local_settings settings;
    struct near_frame *frames; /* ring of EBK_LOCAL_FRAMES_MAX; NULL: closed */
    uint64_t head, end;
    uint64_t bytes; /* of the bodies in the ring */
    int64_t lac, lac_told;
    uint64_t lac_length;
    uint64_t tokens[EBK_LOCAL_SEATS_MAX];
    struct ebk_packed held; /* body NULL: none */
    bool is_ending, is_end_told;
    int64_t untold_ms; /* since when there is something to tell that is told late; 0: there is nothing */
    struct ebk_ahead ahead; /* of any thread */
};

_Static_assert((EBK_LOCAL_FRAMES_MAX & (EBK_LOCAL_FRAMES_MAX - 1)) == 0, "places in the ring are found by a mask");

struct ebk_local_adds *ebk_local_adds_new(const struct ebk_local_settings *settings)
{
    EBK_ASSERT(settings->seat_count > 0 && settings->seat_count <= EBK_LOCAL_SEATS_MAX);
    EBK_ASSERT(settings->ack_quorum > 0 && settings->ack_quorum <= settings->seat_count);
    struct ebk_local_adds *adds = calloc(1, sizeof *adds);
    if (adds == NULL) return NULL;
    adds->frames = malloc(EBK_LOCAL_FRAMES_MAX * sizeof *adds->frames);
    if (adds->frames == NULL) {
        free(adds);
        return NULL;
    }
    ebk_ahead_begin(&adds->ahead, settings->lac, settings->lac_length);
    adds->settings = *settings;
    adds->lac = adds->lac_told = settings->lac;
    adds->lac_length = settings->lac_length;
    return adds;
}

static struct near_frame *at(const struct ebk_local_adds *adds, uint64_t place)
{
    return &adds->frames[place & (EBK_LOCAL_FRAMES_MAX - 1)];
}

void ebk_local_adds_close(struct ebk_local_adds *adds)
{
    if (adds->frames == NULL) return;
    struct ebk_packed frame;
    adds->is_ending = true;
    while (ebk_local_adds_give(adds, &frame)) ebk_packer_release(frame.body);
    free(adds->frames);
    adds->frames = NULL;
    ebk_ahead_close(&adds->ahead);
}

void ebk_local_adds_free(struct ebk_local_adds *adds)
{
    if (adds == NULL) return;
    ebk_local_adds_close(adds);
    free(adds);
}

/* ---- storing --------------------------------------------------------------------------- */

static uint32_t wanted_count(const struct ebk_local_adds *adds)
{
    if (adds->end == adds->head) return ebk_pace_wanted(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->end - 1)->packed;
    return ebk_pace_wanted(adds->end - adds->head, newest->size, newest->count);
}

static uint32_t woken_count(const struct ebk_local_adds *adds)
{
    if (adds->end == adds->head) return ebk_pace_woken(0, 0, 0);
    const struct ebk_packed *newest = &at(adds, adds->end - 1)->packed;
    return ebk_pace_woken(adds->end - adds->head, newest->size, newest->count);
}

/* As `wants_frame` of embedbk/core/writer.py. */
static bool wants_frame(const struct ebk_local_adds *adds)
{
    const struct ebk_packer_state *state = ebk_packer_state(adds->settings.packer);
    const uint64_t out = adds->end - adds->head;
    if (adds->bytes >= adds->settings.bytes_max) return false;
    if (__atomic_load_n(&state->full_count, __ATOMIC_RELAXED) > 0) return out < EBK_LOCAL_FRAMES_MAX;
    return __atomic_load_n(&state->open_count, __ATOMIC_RELAXED) >= wanted_count(adds);
}

static bool are_open(const struct ebk_local_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (!ebk_near_is_open(adds->settings.nears[seat])) return false;
    return true;
}

/* For any frame: its size is known only when it is sealed, and then it must go. */
static bool have_room(const struct ebk_local_adds *adds)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (!ebk_add_path_has_room(ebk_near_path(adds->settings.nears[seat]), EBK_FRAME_BYTES_MAX)) return false;
    return true;
}

/* False: some seat's core has to decide, or refused. A seat that stored it before will find the same bytes there (P3.4). */
static bool store(struct ebk_local_adds *adds, const struct ebk_packed *packed, uint64_t *tokens)
{
    const struct ebk_local_settings *const settings = &adds->settings;
    const struct ebk_add add = {
        .ledger_id = settings->ledger_id, .first = packed->first_entry, .last = packed->last_entry,
        .count = packed->count, .body = packed->body, .body_size = packed->size, .key = settings->key,
        .has_lac = true, .lac = adds->lac, .lac_length = adds->lac_length};
    for (uint32_t seat = 0; seat < settings->seat_count; seat++)
        if (!ebk_add_path_is_common(ebk_near_path(settings->nears[seat]), &add)) return false;
    for (uint32_t seat = 0; seat < settings->seat_count; seat++) {
        tokens[seat] = ebk_add_path_store(ebk_near_path(settings->nears[seat]), &add);
        if (tokens[seat] == 0) return false;
    }
    return true;
}

static void push(struct ebk_local_adds *adds)
{
    const struct ebk_local_settings *const settings = &adds->settings;
    uint64_t stored = 0;
    while (!adds->is_ending && stored < EBK_LOCAL_TURN_BYTES) {
        ebk_packer_want(settings->packer, woken_count(adds));
        if (!wants_frame(adds)) break;
        if (!have_room(adds)) {
            /* What is on its way makes room, or nothing of ours does: then the cores wait for it. */
            if (adds->head == adds->end) adds->is_ending = true;
            break;
        }
        struct near_frame *frame = at(adds, adds->end);
        if (!ebk_packer_seal(settings->packer, &frame->packed)) break;
        EBK_ASSERT(frame->packed.first_entry > adds->lac);
        if (!store(adds, &frame->packed, frame->tokens)) {
            adds->held = frame->packed;
            adds->is_ending = true;
            break;
        }
        memcpy(adds->tokens, frame->tokens, sizeof adds->tokens);
        adds->bytes += frame->packed.size;
        stored += frame->packed.size;
        adds->end += 1;
    }
    if (stored > 0)
        for (uint32_t seat = 0; seat < settings->seat_count; seat++)
            ebk_add_path_kick(ebk_near_path(settings->nears[seat]));
}

/* ---- counting -------------------------------------------------------------------------- */

static bool is_done(const struct ebk_local_adds *adds, const struct near_frame *frame, const uint64_t *durable)
{
    uint32_t count = 0;
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++) count += durable[seat] >= frame->tokens[seat];
    return count >= adds->settings.ack_quorum;
}

static void look(const struct ebk_local_adds *adds, uint64_t *durable)
{
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        durable[seat] = ebk_near_durable(adds->settings.nears[seat]);
}

/* In entry order only: the LAC never passes a frame that is not done (P3.3). */
static void reap(struct ebk_local_adds *adds)
{
    if (adds->head == adds->end) return;
    const int64_t before = adds->lac;
    uint64_t durable[EBK_LOCAL_SEATS_MAX];
    look(adds, durable);
    while (adds->head < adds->end && is_done(adds, at(adds, adds->head), durable)) {
        const struct ebk_packed *done = &at(adds, adds->head)->packed;
        EBK_ASSERT(done->last_entry > adds->lac);
        adds->lac = done->last_entry;
        adds->lac_length = done->length;
        adds->bytes -= done->size;
        adds->head += 1;
        ebk_packer_release(done->body); /* The bookies have copies. */
    }
    if (adds->lac != before) ebk_ahead_show(&adds->ahead, adds->lac, adds->lac_length);
}

/* ---- the loop's side ------------------------------------------------------------------- */

void ebk_local_adds_turn(struct ebk_local_adds *adds)
{
    reap(adds);
    if (!are_open(adds)) adds->is_ending = true;
    push(adds);
}

int ebk_local_adds_show(const struct ebk_local_adds *adds, uint64_t place, struct ebk_packed *frame, uint64_t *tokens)
{
    if (adds->frames == NULL || place < adds->head || place >= adds->end) return 0;
    *frame = at(adds, place)->packed;
    memcpy(tokens, at(adds, place)->tokens, adds->settings.seat_count * sizeof *tokens);
    return 1;
}

bool ebk_local_adds_has_news(struct ebk_local_adds *adds, int64_t now_ms, bool *is_late)
{
    if (adds->is_ending && !adds->is_end_told) return true;
    if (adds->lac == adds->lac_told) return false;
    if (!atomic_load(&adds->ahead.is_late)) return true;
    if (adds->untold_ms == 0) adds->untold_ms = now_ms;
    *is_late = true;
    return now_ms - adds->untold_ms >= EBK_LOCAL_TELL_MS;
}

bool ebk_local_adds_has_more(const struct ebk_local_adds *adds)
{
    return !adds->is_ending && wants_frame(adds) && are_open(adds) && have_room(adds);
}

void ebk_local_adds_end(struct ebk_local_adds *adds)
{
    adds->is_ending = true;
}

void ebk_local_adds_tell(struct ebk_local_adds *adds, struct ebk_local_facts *facts)
{
    *facts = (struct ebk_local_facts){.lac = adds->lac, .lac_length = adds->lac_length, .is_ending = adds->is_ending};
    facts->pending = (uint32_t)(adds->end - adds->head);
    facts->has_held = adds->held.body != NULL;
    memcpy(facts->tokens, adds->tokens, sizeof facts->tokens);
    look(adds, facts->durable);
    for (uint32_t seat = 0; seat < adds->settings.seat_count; seat++)
        if (ebk_near_is_followed(adds->settings.nears[seat], adds->settings.ledger_id)) facts->followed |= 1u << seat;
    adds->lac_told = adds->lac;
    adds->is_end_told = adds->is_ending;
    adds->untold_ms = 0;
    atomic_store(&adds->ahead.is_late, false); /* Until somebody awaits again, and says so. */
}

int ebk_local_adds_give(struct ebk_local_adds *adds, struct ebk_packed *frame)
{
    EBK_ASSERT(adds->is_ending);
    ebk_packer_want(adds->settings.packer, 1);
    if (adds->head < adds->end) {
        *frame = at(adds, adds->head)->packed;
        adds->head += 1;
        return 1;
    }
    if (adds->held.body == NULL) return 0;
    *frame = adds->held;
    adds->held.body = NULL;
    return 1;
}

/* ---- users' threads -------------------------------------------------------------------- */

int64_t ebk_local_adds_lac(const struct ebk_local_adds *adds, uint64_t *length)
{
    return ebk_ahead_lac(&adds->ahead, length);
}

int ebk_local_adds_await(struct ebk_local_adds *adds, int64_t entry_id, bool is_alone, int timeout_ms)
{
    return ebk_ahead_await(&adds->ahead, entry_id, is_alone, timeout_ms);
}
