/* tail_path.c: takes the common poll and hint, makes the common answer.
 *
 *     poll ─▶ LAC is above? ─yes────────────────▶ woken ┐
 *                 └no─▶ parked ─── hint, add ───▶ woken ┤ next, make
 *     hint ─▶ row: LAC ──── if an answer is wanted ▶ told ┘
 *
 * What is woken is answered with the pair that woke it, readers before the writer that gave the hint:
 * readers wait for the entries, no writer for the word that its hint was taken.
 */
#include "road/tail_path.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "wire/frame_header.h"
#include "wire/message_reader.h"

#include <stdlib.h>
#include <string.h>

#define CONTROL_BYTES_MAX 32u /* 1 + 1 + 3 * 9 + 1, of an answer */
#define TRUE 0xC3u
#define FALSE 0xC2u

/* A hint that wants an answer. */
struct told {
    uint64_t link, request_id, ledger_id;
    bool is_awaited;
};

struct ebk_tail_path {
    struct ebk_tail_settings settings;
    int64_t now_ns;
    bool is_open;
    struct ebk_poll_queue woken;
    struct told *told; /* told_next..told_count are due */
    uint32_t told_next, told_count, told_room;
    uint64_t *settled;
    uint32_t settled_count, settled_room;
    uint8_t *message;
    size_t message_room;
};

struct ebk_tail_path *ebk_tail_new(const struct ebk_tail_settings *settings)
{
    struct ebk_tail_path *tail = calloc(1, sizeof *tail);
    if (tail == NULL) return NULL;
    tail->settings = *settings;
    tail->message_room = EBK_MESSAGE_HEADER_BYTES + CONTROL_BYTES_MAX; /* So that an answer without entries never fails. */
    tail->message = malloc(tail->message_room);
    if (tail->message != NULL) return tail;
    free(tail);
    return NULL;
}

void ebk_tail_free(struct ebk_tail_path *tail)
{
    if (tail == NULL) return;
    free(tail->told);
    free(tail->settled);
    free(tail->message);
    free(tail);
}

void ebk_tail_begin(struct ebk_tail_path *tail, int64_t now_ns, bool is_open)
{
    tail->now_ns = now_ns;
    tail->is_open = is_open;
}

bool ebk_tail_is_open(const struct ebk_tail_path *tail)
{
    return tail->is_open;
}

void ebk_tail_set_now(struct ebk_tail_path *tail, int64_t now_ns)
{
    tail->now_ns = now_ns;
}

bool ebk_tail_is_followed(const struct ebk_tail_path *tail, uint64_t ledger_id)
{
    return ebk_parked_is_followed(tail->settings.parked, ledger_id, tail->now_ns);
}

int64_t ebk_tail_deadline(const struct ebk_tail_path *tail)
{
    return ebk_parked_deadline(tail->settings.parked);
}

/* ---- taking --------------------------------------------------------------------------- */

/* A row of which nothing may have been lost, and that takes adds. */
static struct ebk_ledger_row *plain_row(const struct ebk_tail_path *tail, uint64_t ledger_id)
{
    struct ebk_ledger_row *row = ebk_table_find(tail->settings.table, ledger_id);
    return row == NULL || row->is_fenced || row->in_limbo || row->is_dropped ? NULL : row;
}

/* Polls are in the list as their host counts them; those that are taken here it does not. */
static void set_pair(struct ebk_tail_path *tail, uint32_t place, const struct ebk_ledger_row *row)
{
    while (place != 0) {
        struct ebk_poll *poll = ebk_parked_at(tail->settings.parked, place, &place);
        poll->lac = row->lac;
        poll->lac_length = row->lac_length;
    }
}

void ebk_tail_wake(struct ebk_tail_path *tail, struct ebk_ledger_row *row)
{
    struct ebk_poll_queue *const woken = &tail->woken;
    const uint32_t count = woken->count, last = woken->last;
    ebk_parked_wake(tail->settings.parked, row->ledger_id, row->lac, false, woken);
    row->is_awaited = ebk_parked_is_awaited(tail->settings.parked, row->ledger_id);
    if (woken->count == count) return;
    uint32_t first = woken->first;
    if (count > 0) (void)ebk_parked_at(tail->settings.parked, last, &first);
    set_pair(tail, first, row);
}

/* LacRequest: [incarnation, ledger_id, after_lac, wait_ms, bytes_max], of a reader that waits. */
static bool take_poll(struct ebk_tail_path *tail, uint64_t link, struct ebk_message *message)
{
    struct ebk_control *const control = &message->control;
    const unsigned fields = ebk_read_array(control);
    ebk_read_incarnation(control, tail->settings.incarnation);
    const uint64_t ledger_id = ebk_read_number(control, INT64_MAX);
    const int64_t after = ebk_read_number_or_minus_one(control, EBK_LAC_MAX);
    uint64_t wait_ms = ebk_read_number(control, INT64_MAX);
    uint64_t bytes_max = ebk_read_number(control, UINT32_MAX);
    if (fields != 5 || !ebk_control_is_read(control) || wait_ms == 0) return false;
    struct ebk_ledger_row *row = plain_row(tail, ledger_id);
    if (row == NULL) return false;
    if (wait_ms > tail->settings.wait_ms_max) wait_ms = tail->settings.wait_ms_max;
    if (bytes_max > tail->settings.bytes_max) bytes_max = tail->settings.bytes_max;
    struct ebk_poll poll = {.link = link, .request_id = message->request_id, .ledger_id = ledger_id,
                            .after_lac = after,
                            .until_ns = tail->now_ns + (int64_t)wait_ms * 1000000,
                            .lac = row->lac, .lac_length = row->lac_length, .bytes_max = (uint32_t)bytes_max};
    if (row->lac > poll.after_lac) {
        if (!ebk_parked_queue(tail->settings.parked, &poll, &tail->woken)) return false;
    } else {
        if (!ebk_parked_park(tail->settings.parked, &poll)) return false;
        row->is_awaited = 1;
    }
    ebk_parked_note_asked(tail->settings.parked, ledger_id, tail->now_ns);
    return true;
}

static bool make_told_room(struct ebk_tail_path *tail)
{
    EBK_ASSERT(tail->told_next <= tail->told_count && tail->told_count <= tail->told_room);
    if (tail->told_count < tail->told_room) return true;
    if (tail->told_room >= EBK_TAIL_TOLD_MAX) return false;
    const uint32_t room = tail->told_room ? tail->told_room * 2 : 16;
    struct told *wider = realloc(tail->told, room * sizeof *wider);
    if (wider == NULL) return false;
    tail->told = wider;
    tail->told_room = room;
    return true;
}

/* ExplicitLacRequest: [incarnation, ledger_id, ledger_key, lac, lac_length, is_hint, wants_answer], a hint. */
static bool take_hint(struct ebk_tail_path *tail, uint64_t link, struct ebk_message *message)
{
    struct ebk_control *const control = &message->control;
    const unsigned fields = ebk_read_array(control);
    ebk_read_incarnation(control, tail->settings.incarnation);
    const uint64_t ledger_id = ebk_read_number(control, UINT64_MAX);
    const uint8_t *const key = ebk_read_bytes(control, EBK_KEY_BYTES);
    const int64_t lac = (int64_t)ebk_read_number(control, EBK_LAC_MAX);
    const uint64_t lac_length = ebk_read_number(control, INT64_MAX);
    const bool is_hint = ebk_read_bool(control);
    const bool wants_answer = ebk_read_bool(control);
    if (fields != 7 || !ebk_control_is_read(control) || !is_hint) return false;
    struct ebk_ledger_row *row = plain_row(tail, ledger_id);
    if (row == NULL || !row->has_key || memcmp(row->key, key, EBK_KEY_BYTES) != 0) return false;
    if (wants_answer) {
        if (!make_told_room(tail)) return false;
        const bool is_awaited = ebk_tail_is_followed(tail, ledger_id);
        tail->told[tail->told_count++] =
            (struct told){.link = link, .request_id = message->request_id, .ledger_id = ledger_id, .is_awaited = is_awaited};
    }
    if (lac > row->lac) {
        row->lac = lac;
        row->lac_length = lac_length;
        ebk_tail_wake(tail, row);
    }
    return true;
}

bool ebk_tail_take(struct ebk_tail_path *tail, uint64_t link, const uint8_t *bytes, size_t size)
{
    struct ebk_message message;
    const int kind = ebk_message_claims(bytes, size);
    if (!tail->is_open || (kind != EBK_KIND_LAC_REQUEST && kind != EBK_KIND_EXPLICIT_LAC_REQUEST)) return false;
    if (!ebk_message_read(bytes, size, 0, &message) || message.frame_count != 0) return false;
    return kind == EBK_KIND_LAC_REQUEST ? take_poll(tail, link, &message) : take_hint(tail, link, &message);
}

/* ---- telling -------------------------------------------------------------------------- */

int ebk_tail_next(const struct ebk_tail_path *tail, uint64_t *link)
{
    if (tail->woken.count > 0) {
        uint32_t next;
        *link = ebk_parked_at(tail->settings.parked, tail->woken.first, &next)->link;
        return 1;
    }
    if (tail->told_next == tail->told_count) return 0;
    *link = tail->told[tail->told_next].link;
    return 1;
}

/* The host's count stays one too high where memory for this is refused, which ends a link after very many of them. */
static void note_settled(struct ebk_tail_path *tail, uint64_t link)
{
    if (tail->settled_count == tail->settled_room) {
        const uint32_t room = tail->settled_room ? tail->settled_room * 2 : 16;
        uint64_t *wider = realloc(tail->settled, room * sizeof *wider);
        if (wider == NULL) return;
        tail->settled = wider;
        tail->settled_room = room;
    }
    tail->settled[tail->settled_count++] = link;
}

int ebk_tail_settled(struct ebk_tail_path *tail, uint64_t *link)
{
    if (tail->settled_count == 0) return 0;
    *link = tail->settled[--tail->settled_count];
    return 1;
}

static bool make_message_room(struct ebk_tail_path *tail, size_t size)
{
    if (size <= tail->message_room) return true;
    uint8_t *wider = realloc(tail->message, size);
    if (wider == NULL) return false;
    tail->message = wider;
    tail->message_room = size;
    return true;
}

/* The entries that the LAC allows, behind the LacAnswer of control_size bytes. Returns their bytes with their header, 0
 * where there are none: they are read as ever. */
static size_t add_entries(struct ebk_tail_path *tail, const struct ebk_poll *poll, size_t frame_at)
{
    struct ebk_found found;
    if (ebk_store_read(tail->settings.store, poll->ledger_id, poll->after_lac + 1, poll->lac, poll->bytes_max, 1, 1,
                       true, &found) != EBK_OK ||
        found.body == NULL)
        return 0;
    size_t size = 0;
    if (make_message_room(tail, frame_at + EBK_FRAME_HEADER_BYTES + found.size)) {
        const struct ebk_frame_facts facts = {.ledger_id = poll->ledger_id, .first_entry = found.first,
                                              .last_entry = found.last, .count = found.count};
        ebk_frame_header_write(tail->message + frame_at, &facts, (uint32_t)found.size);
        memcpy(tail->message + frame_at + EBK_FRAME_HEADER_BYTES, found.body, found.size);
        size = EBK_FRAME_HEADER_BYTES + found.size;
    }
    ebk_found_free(found.body);
    return size;
}

/* LacAnswer: [status, ledger_id, lac, lac_length, is_fenced]. */
static size_t answer_poll(struct ebk_tail_path *tail, const struct ebk_poll *poll, uint64_t room_bytes)
{
    EBK_ASSERT(poll->lac > poll->after_lac); /* A reader that is woken here learns a newer LAC. */
    uint8_t control[CONTROL_BYTES_MAX], *to = control;
    *to++ = 0x95;
    *to++ = EBK_STATUS_OK;
    to = ebk_write_count(to, poll->ledger_id);
    to = ebk_write_count(to, (uint64_t)poll->lac);
    to = ebk_write_count(to, poll->lac_length);
    *to++ = FALSE;
    const size_t head_size = EBK_MESSAGE_HEADER_BYTES + (size_t)(to - control);
    const bool has_room = poll->bytes_max > 0 && room_bytes >= tail->settings.room_bytes;
    const size_t frames_size = has_room ? add_entries(tail, poll, head_size) : 0;
    memcpy(tail->message + EBK_MESSAGE_HEADER_BYTES, control, (size_t)(to - control));
    return frames_size + ebk_message_seal_with(tail->message, EBK_KIND_LAC_ANSWER, frames_size > 0, (uint32_t)frames_size,
                                               poll->request_id, tail->message + head_size);
}

/* ExplicitLacAnswer: [status, ledger_id, is_awaited]. */
static size_t answer_hint(struct ebk_tail_path *tail, const struct told *told)
{
    uint8_t *to = tail->message + EBK_MESSAGE_HEADER_BYTES;
    *to++ = 0x93;
    *to++ = EBK_STATUS_OK;
    to = ebk_write_count(to, told->ledger_id);
    *to++ = told->is_awaited ? TRUE : FALSE;
    return ebk_message_seal(tail->message, EBK_KIND_EXPLICIT_LAC_ANSWER, told->request_id, to);
}

void ebk_tail_make(struct ebk_tail_path *tail, uint64_t room_bytes, const uint8_t **message, size_t *size)
{
    struct ebk_poll poll;
    if (ebk_parked_pop(tail->settings.parked, &tail->woken, &poll)) {
        if (poll.is_counted) note_settled(tail, poll.link);
        *size = answer_poll(tail, &poll, room_bytes);
    } else {
        EBK_ASSERT(tail->told_next < tail->told_count);
        *size = answer_hint(tail, &tail->told[tail->told_next++]);
        if (tail->told_next == tail->told_count) tail->told_next = tail->told_count = 0;
    }
    *message = tail->message;
}
