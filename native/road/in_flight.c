/* in_flight.c: see in_flight.h.
 *
 * What a slot owes is a bit in each frame, and one number: the first place at which it owes anything. So it is known
 * without a search which slots are behind, and since when; that number only moves forward over frames that are
 * answered.
 */
#include "road/in_flight.h"

#include "base/errors.h"

#include <stdlib.h>

struct place {
    struct ebk_flying flying;
    struct ebk_flying_sent sent;
    int64_t sent_ns[EBK_FLIGHT_SLOTS_MAX]; /* by slot, where it owes */
};

struct ebk_in_flight {
    struct ebk_flight_state state;
    uint64_t first_owed[EBK_FLIGHT_SLOTS_MAX]; /* by slot, where owed_count says that there is one */
    struct place *places; /* ring */
    uint64_t place_count;
    struct ebk_backlog *backlog;
};

_Static_assert((EBK_FLIGHT_FRAMES_MIN & (EBK_FLIGHT_FRAMES_MIN - 1)) == 0, "places in the ring are found by a mask");
_Static_assert(EBK_FLIGHT_SLOTS_MAX == 2 * EBK_FLIGHT_SEATS_MAX && EBK_FLIGHT_SLOTS_MAX <= 32, "slots are bits");

void ebk_backlog_add(struct ebk_backlog *backlog, int64_t bytes)
{
    const uint64_t before = __atomic_fetch_add(&backlog->kept_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
    EBK_ASSERT(bytes >= 0 || before >= (uint64_t)-bytes); /* A handle takes back only what it counted. */
}

uint64_t ebk_backlog_kept(const struct ebk_backlog *backlog)
{
    return __atomic_load_n(&backlog->kept_bytes, __ATOMIC_RELAXED);
}

/* ---- life ------------------------------------------------------------------------------ */

static struct place *place_of(const struct ebk_in_flight *table, uint64_t place)
{
    return &table->places[place & (table->place_count - 1)];
}

struct ebk_in_flight *ebk_in_flight_new(void)
{
    struct ebk_in_flight *table = calloc(1, sizeof *table);
    if (table == NULL) return NULL;
    table->place_count = EBK_FLIGHT_FRAMES_MIN;
    table->places = malloc(table->place_count * sizeof *table->places);
    if (table->places != NULL) return table;
    free(table);
    return NULL;
}

void ebk_in_flight_free(struct ebk_in_flight *table)
{
    if (table == NULL) return;
    ebk_in_flight_give_up(table);
    free(table->places);
    free(table);
}

const struct ebk_flight_state *ebk_in_flight_state(const struct ebk_in_flight *table)
{
    return &table->state;
}

static void count_behind(struct ebk_in_flight *table, const struct ebk_packed *packed, bool is_kept)
{
    const int64_t bytes = (int64_t)packed->size + EBK_FLIGHT_FRAME_PRICE;
    EBK_ASSERT(is_kept || (table->state.behind_count > 0 && (uint64_t)bytes <= table->state.behind_bytes));
    table->state.behind_count += is_kept ? 1 : -1;
    table->state.behind_bytes += (uint64_t)(is_kept ? bytes : -bytes);
    EBK_ASSERT((table->state.behind_count == 0) == (table->state.behind_bytes == 0));
    if (table->backlog != NULL) ebk_backlog_add(table->backlog, is_kept ? bytes : -bytes);
}

void ebk_in_flight_count_in(struct ebk_in_flight *table, struct ebk_backlog *backlog)
{
    if (table->backlog != NULL) ebk_backlog_add(table->backlog, -(int64_t)table->state.behind_bytes);
    table->backlog = backlog;
    if (backlog != NULL) ebk_backlog_add(backlog, (int64_t)table->state.behind_bytes);
}

bool ebk_in_flight_is_pressed(const struct ebk_in_flight *table, uint64_t behind_max)
{
    const struct ebk_backlog *const backlog = table->backlog;
    if (table->state.behind_bytes >= behind_max) return true;
    return table->state.behind_bytes > 0 && backlog != NULL && ebk_backlog_kept(backlog) >= backlog->bytes_max;
}

/* What every call relies on, and leaves behind. */
static void check(const struct ebk_in_flight *table)
{
    const struct ebk_flight_state *const state = &table->state;
    EBK_ASSERT(state->tail <= state->head && state->head <= state->end && state->end - state->tail <= table->place_count);
    EBK_ASSERT(state->head < state->end || state->pending_bytes == 0);
    EBK_ASSERT(state->behind_count <= state->head - state->tail);
    EBK_ASSERT(state->behind_bytes >= state->behind_count * EBK_FLIGHT_FRAME_PRICE);
    EBK_ASSERT(state->owed_sum <= (state->end - state->tail) * EBK_FLIGHT_SLOTS_MAX);
}

/* ---- frames ---------------------------------------------------------------------------- */

static bool widen(struct ebk_in_flight *table)
{
    const uint64_t count = table->place_count * 2;
    struct place *wider = malloc(count * sizeof *wider);
    if (wider == NULL) return false;
    for (uint64_t place = table->state.tail; place < table->state.end; place++)
        wider[place & (count - 1)] = *place_of(table, place);
    free(table->places);
    table->places = wider;
    table->place_count = count;
    EBK_ASSERT((count & (count - 1)) == 0 && table->state.end - table->state.tail < count);
    return true;
}

static bool is_room(const struct ebk_in_flight *table)
{
    return table->state.end - table->state.tail < table->place_count;
}

bool ebk_in_flight_reserve(struct ebk_in_flight *table)
{
    return is_room(table) || (table->place_count < EBK_FLIGHT_FRAMES_MAX && widen(table));
}

const struct ebk_flying *ebk_in_flight_at(const struct ebk_in_flight *table, uint64_t place)
{
    EBK_ASSERT(place >= table->state.tail && place < table->state.end);
    return &place_of(table, place)->flying;
}

struct ebk_flying_sent *ebk_in_flight_sent(const struct ebk_in_flight *table, uint64_t place)
{
    EBK_ASSERT(place >= table->state.tail && place < table->state.end);
    return &place_of(table, place)->sent;
}

int64_t ebk_in_flight_put(struct ebk_in_flight *table, const struct ebk_packed *packed)
{
    if (!is_room(table) && !widen(table)) return EBK_NO_MEMORY;
    const uint64_t place = table->state.end;
    EBK_ASSERT(packed->body != NULL && packed->size > 0 && packed->first_entry <= packed->last_entry);
    EBK_ASSERT(place == table->state.tail || packed->first_entry > place_of(table, place - 1)->flying.packed.last_entry);
    *place_of(table, place) = (struct place){.flying.packed = *packed};
    table->state.pending_bytes += packed->size;
    table->state.end = place + 1;
    check(table);
    return (int64_t)place;
}

int64_t ebk_in_flight_find(const struct ebk_in_flight *table, int64_t first_entry)
{
    uint64_t low = table->state.tail, high = table->state.end;
    while (low < high) { /* Frames stand in entry order. */
        const uint64_t middle = low + (high - low) / 2;
        const int64_t found = place_of(table, middle)->flying.packed.first_entry;
        if (found == first_entry) return (int64_t)middle;
        if (found < first_entry)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

/* The bytes of a frame, if they are here still. */
static void drop(struct ebk_in_flight *table, uint64_t place)
{
    struct ebk_packed *const packed = &place_of(table, place)->flying.packed;
    if (packed->body == NULL) return;
    if (place < table->state.head)
        count_behind(table, packed, false);
    else {
        EBK_ASSERT(packed->size <= table->state.pending_bytes);
        table->state.pending_bytes -= packed->size;
    }
    ebk_packer_release(packed->body);
    packed->body = NULL;
}

/* Places that are not needed any more are free again, in order. */
static void retire(struct ebk_in_flight *table)
{
    while (table->state.tail < table->state.head && place_of(table, table->state.tail)->flying.owed == 0) {
        EBK_ASSERT(place_of(table, table->state.tail)->flying.packed.body == NULL);
        table->state.tail += 1;
    }
    check(table);
}

void ebk_in_flight_confirm(struct ebk_in_flight *table)
{
    EBK_ASSERT(table->state.head < table->state.end);
    const uint64_t place = table->state.head;
    const struct ebk_flying *const flying = &place_of(table, place)->flying;
    EBK_ASSERT(flying->packed.body != NULL && flying->packed.size <= table->state.pending_bytes);
    table->state.pending_bytes -= flying->packed.size;
    table->state.head = place + 1;
    count_behind(table, &flying->packed, true);
    if (flying->owed == 0) drop(table, place);
    retire(table);
}

void ebk_in_flight_drop_oldest_behind(struct ebk_in_flight *table)
{
    uint64_t place = table->state.tail;
    while (place < table->state.head && place_of(table, place)->flying.packed.body == NULL) place++;
    EBK_ASSERT(place < table->state.head);
    drop(table, place);
}

void ebk_in_flight_let_go(struct ebk_in_flight *table)
{
    for (uint64_t place = table->state.tail; place < table->state.head; place++) drop(table, place);
    EBK_ASSERT(table->state.behind_count == 0);
    check(table);
}

void ebk_in_flight_give_up(struct ebk_in_flight *table)
{
    for (uint64_t place = table->state.tail; place < table->state.end; place++) drop(table, place);
    table->state.head = table->state.end;
    EBK_ASSERT(table->state.behind_count == 0 && table->state.pending_bytes == 0);
    retire(table);
}

/* ---- what is owed ---------------------------------------------------------------------- */

/* The slot owes nothing before `place`. */
static void note_first_owed(struct ebk_in_flight *table, uint32_t slot, uint64_t place)
{
    while (place < table->state.end && !(place_of(table, place)->flying.owed >> slot & 1)) place++;
    EBK_ASSERT((place == table->state.end) == (table->state.owed_count[slot] == 0));
    table->first_owed[slot] = place;
    table->state.oldest_sent_ns[slot] = place < table->state.end ? place_of(table, place)->sent_ns[slot] : 0;
}

void ebk_in_flight_owe(struct ebk_in_flight *table, uint32_t slot, uint64_t place, int64_t now_ns)
{
    EBK_ASSERT(slot < EBK_FLIGHT_SLOTS_MAX && place >= table->state.tail && place < table->state.end);
    struct place *const it = place_of(table, place);
    if (it->flying.owed >> slot & 1) return;
    it->flying.owed |= 1u << slot;
    it->sent_ns[slot] = now_ns;
    table->state.owed_sum += 1;
    EBK_ASSERT(table->state.owed_count[slot] < table->state.owed_sum);
    if (table->state.owed_count[slot]++ > 0 && table->first_owed[slot] < place) return;
    table->first_owed[slot] = place;
    table->state.oldest_sent_ns[slot] = now_ns;
}

int64_t ebk_in_flight_sent_ns(const struct ebk_in_flight *table, uint32_t slot, uint64_t place)
{
    EBK_ASSERT(ebk_in_flight_at(table, place)->owed >> slot & 1);
    return place_of(table, place)->sent_ns[slot];
}

int ebk_in_flight_answered(struct ebk_in_flight *table, uint32_t slot, uint64_t place, int64_t *sent_ns)
{
    EBK_ASSERT(slot < EBK_FLIGHT_SLOTS_MAX);
    if (place < table->state.tail || place >= table->state.end) return 0;
    struct place *const it = place_of(table, place);
    if (!(it->flying.owed >> slot & 1)) return 0;
    *sent_ns = it->sent_ns[slot];
    it->flying.owed &= ~(1u << slot);
    it->flying.acked |= 1u << slot;
    EBK_ASSERT(table->state.owed_count[slot] > 0 && table->state.owed_sum >= table->state.owed_count[slot]);
    EBK_ASSERT(table->first_owed[slot] <= place);
    table->state.owed_count[slot] -= 1;
    table->state.owed_sum -= 1;
    if (table->first_owed[slot] == place) note_first_owed(table, slot, place);
    if (place >= table->state.head || it->flying.owed != 0) return 1;
    drop(table, place);
    retire(table);
    return 1;
}

int ebk_in_flight_took(struct ebk_in_flight *table, uint32_t slot, uint64_t place)
{
    EBK_ASSERT(slot < EBK_FLIGHT_SLOTS_MAX);
    if (place < table->state.head || place >= table->state.end) return 0;
    struct ebk_flying *const flying = &place_of(table, place)->flying;
    if (!(flying->owed >> slot & 1)) return 0;
    flying->received |= 1u << slot;
    return 1;
}

void ebk_in_flight_excuse(struct ebk_in_flight *table, uint32_t slot)
{
    EBK_ASSERT(slot < EBK_FLIGHT_SLOTS_MAX);
    if (table->state.owed_count[slot] == 0) return;
    EBK_ASSERT(table->first_owed[slot] >= table->state.tail && table->first_owed[slot] < table->state.end);
    EBK_ASSERT(table->state.owed_count[slot] <= table->state.owed_sum);
    for (uint64_t place = table->first_owed[slot]; place < table->state.end; place++) {
        struct ebk_flying *const flying = &place_of(table, place)->flying;
        flying->owed &= ~(1u << slot);
        if (place < table->state.head && flying->owed == 0) drop(table, place);
    }
    table->state.owed_sum -= table->state.owed_count[slot];
    table->state.owed_count[slot] = 0;
    table->state.oldest_sent_ns[slot] = 0;
    retire(table);
}

void ebk_in_flight_empty(struct ebk_in_flight *table, uint32_t slots)
{
    EBK_ASSERT(slots >> EBK_FLIGHT_SLOTS_MAX == 0);
    for (uint32_t slot = 0; slot < EBK_FLIGHT_SLOTS_MAX; slot++)
        if (slots >> slot & 1) ebk_in_flight_excuse(table, slot);
    for (uint64_t place = table->state.head; place < table->state.end; place++) {
        place_of(table, place)->flying.acked &= ~slots;
        place_of(table, place)->flying.received &= ~slots;
    }
}
