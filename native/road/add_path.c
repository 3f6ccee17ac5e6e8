/* add_path.c: takes the common add, tells when it is durable.
 *
 *     message | header 32 | control | frame header 80 | body ... |
 *               kind 1      array     crc, key, lac     entries: scanned
 *
 *     pending ring   | told | due | due | waits for its token | ...
 *                           ^ head                             ^ end
 *
 * What is not read here as a common add is passed, and the core says what is wrong with it.
 */
#include "road/add_path.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/id_map.h"
#include "road/lac_path.h"
#include "wire/frame_header.h"
#include "wire/message_reader.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NO_ENTRY (-1)
#define ADD_FIELDS_LEAST 4u /* As earlier builds send. */
#define ADD_FIELDS 6u
#define PENDING_MIN 64u
#define RECORD_OVERHEAD_BYTES 64u /* as storage/starting.py counts it */
#define ANSWER_BYTES_MAX 128u /* a message with one answer: 32 + 1 + 1 + 2 * 9 + 1 + 3 * 9 + 1 */

struct pending {
    uint64_t token, link;
    uint64_t request_id, nonce, seating;
    uint64_t ledger_id;
    int64_t first, last;
    uint32_t next; /* of the same link among the due; NONE: the last */
    bool is_followed; /* a reader waits, as it is when this is due (P6.2) */
};

/* What is due for one link, in order. */
struct group {
    uint64_t link;
    uint32_t first, last, count;
};

#define NONE UINT32_MAX

struct ebk_add_path {
    struct ebk_add_path_settings settings;
    bool is_stopped;
    uint8_t status; /* of the answers: OK until it is stopped */
    uint64_t records, bytes, unkicked;
    struct pending *pending; /* ring of `room`, a power of two; head..due are answered or about to be, due..end wait */
    uint32_t room;
    uint64_t head, due, end;
    struct ebk_id_map numbers; /* link -> group */
    struct group *groups;
    uint32_t group_count, group_room, group_next;
    uint8_t *message;
    size_t message_room;
};

/* ---- life ---------------------------------------------------------------------------- */

struct ebk_add_path *ebk_add_path_new(const struct ebk_add_path_settings *settings)
{
    struct ebk_add_path *path = calloc(1, sizeof *path);
    if (path == NULL) return NULL;
    path->settings = *settings;
    path->room = PENDING_MIN;
    path->pending = malloc(path->room * sizeof *path->pending);
    if (path->pending == NULL) {
        free(path);
        return NULL;
    }
    return path;
}

void ebk_add_path_free(struct ebk_add_path *path)
{
    if (path == NULL) return;
    ebk_id_map_clear(&path->numbers);
    free(path->pending);
    free(path->groups);
    free(path->message);
    free(path);
}

static struct pending *at(const struct ebk_add_path *path, uint64_t place)
{
    return &path->pending[place & (path->room - 1)];
}

/* Room for one more, so that nothing can fail once the frame is queued. */
static bool make_room(struct ebk_add_path *path)
{
    const uint64_t used = path->end - path->head;
    EBK_ASSERT(path->head <= path->due && path->due <= path->end && used <= path->room);
    if (used < path->room) return true;
    /* What is due is chained by its place in the ring, so the ring stays as it is until all of it was told. */
    if (path->room >= EBK_ADD_PENDING_MAX || path->group_count > 0) return false;
    struct pending *wider = malloc((size_t)path->room * 2 * sizeof *wider);
    if (wider == NULL) return false;
    for (uint64_t i = 0; i < used; i++) wider[(path->head + i) & (path->room * 2 - 1)] = *at(path, path->head + i);
    free(path->pending);
    path->pending = wider;
    path->room *= 2;
    EBK_ASSERT((path->room & (path->room - 1)) == 0 && path->room <= EBK_ADD_PENDING_MAX);
    return true;
}

/* ---- reading a message ---------------------------------------------------------------- */

/* AddRequest: [incarnation, nonce, seating, recovery, deferred, is_copy], perhaps without the last two: of a normal add for
 * us. */
static bool read_control(const struct ebk_add_path *path, struct ebk_control *control, struct ebk_add *add)
{
    const unsigned fields = ebk_read_array(control);
    ebk_read_incarnation(control, path->settings.incarnation);
    add->nonce = ebk_read_number(control, UINT64_MAX);
    add->seating = ebk_read_number(control, INT64_MAX);
    const bool by_recovery = ebk_read_bool(control);
    const bool is_deferred = fields > ADD_FIELDS_LEAST && ebk_read_bool(control);
    const bool is_copy = fields > ADD_FIELDS_LEAST + 1 && ebk_read_bool(control);
    return fields >= ADD_FIELDS_LEAST && fields <= ADD_FIELDS && ebk_control_is_read(control) && !by_recovery && !is_deferred &&
           !is_copy;
}

static bool read_frame_header(const uint8_t *from, struct ebk_add *add)
{
    if (memcmp(from, "EBKF", 4) != 0 || from[EBK_FRAME_AT_VERSION] != EBK_FRAME_VERSION ||
        ebk_load_u16(from + EBK_FRAME_AT_HEADER_SIZE) != EBK_FRAME_HEADER_BYTES ||
        ebk_load_u32(from + EBK_FRAME_AT_CRC) != ebk_crc32c(0, from, EBK_FRAME_AT_CRC))
        return false;
    const uint8_t flags = from[EBK_FRAME_AT_FLAGS];
    if ((flags & ~(EBK_FRAME_FLAG_LAC | EBK_FRAME_FLAG_GAPS)) != 0 || ebk_load_u32(from + EBK_FRAME_AT_RESERVED) != 0) return false;
    add->count = ebk_load_u32(from + EBK_FRAME_AT_COUNT);
    add->body_size = ebk_load_u32(from + EBK_FRAME_AT_BODY_SIZE);
    add->ledger_id = ebk_load_u64(from + EBK_FRAME_AT_LEDGER);
    add->first = (int64_t)ebk_load_u64(from + EBK_FRAME_AT_FIRST);
    add->last = (int64_t)ebk_load_u64(from + EBK_FRAME_AT_LAST);
    add->lac = (int64_t)ebk_load_u64(from + EBK_FRAME_AT_LAC);
    add->lac_length = ebk_load_u64(from + EBK_FRAME_AT_LAC_LENGTH);
    add->key = from + EBK_FRAME_AT_KEY;
    add->has_lac = (flags & EBK_FRAME_FLAG_LAC) != 0;
    /* No answer could name such an entry, or carry such a LAC (codec/frame.py). */
    if (add->last > EBK_LAC_MAX || add->lac_length > INT64_MAX) return false;
    if (add->ledger_id > INT64_MAX || add->first < 0 || add->last < add->first || add->count == 0 ||
        add->body_size == 0 || add->body_size > EBK_FRAME_BYTES_MAX)
        return false;
    const uint64_t dense = (uint64_t)(add->last - add->first) + 1;
    if (add->count > dense || (add->count != dense) != ((flags & EBK_FRAME_FLAG_GAPS) != 0)) return false;
    if (add->lac < NO_ENTRY || add->lac >= add->first) return false;
    return add->has_lac || (add->lac == NO_ENTRY && add->lac_length == 0);
}

static bool read_add(const struct ebk_add_path *path, const uint8_t *head, size_t head_size, const uint8_t *tail,
                     size_t tail_size, struct ebk_add *add)
{
    struct ebk_message message;
    if (!ebk_message_read(head, head_size, tail_size, &message) || message.kind != EBK_KIND_ADD_REQUEST || message.frame_count != 1)
        return false;
    if ((size_t)(head + head_size - message.frames) < EBK_FRAME_HEADER_BYTES || !read_control(path, &message.control, add)) return false;
    if (!read_frame_header(message.frames, add) || message.frames_size != EBK_FRAME_HEADER_BYTES + add->body_size) return false;
    if (tail_size > 0 && tail_size != add->body_size) return false; /* Not handed over as header(s), then body. */
    add->request_id = message.request_id;
    add->body = tail_size > 0 ? tail : message.frames + EBK_FRAME_HEADER_BYTES;
    return true;
}

/* ---- taking --------------------------------------------------------------------------- */

/* The row says that the core would store it: known ledger, right key, nothing against normal adds, ids above the
 * highest accepted. */
static bool is_plain(const struct ebk_ledger_row *row, const struct ebk_add *add)
{
    return row != NULL && row->has_key && memcmp(row->key, add->key, EBK_KEY_BYTES) == 0 && !row->is_fenced &&
           !row->in_limbo && !row->is_dropped && add->first > row->last_entry;
}

/* Besides, its LAC must wake no reader. */
static bool is_quiet(const struct ebk_ledger_row *row, const struct ebk_add *add)
{
    return !(row->is_awaited && add->has_lac && add->lac > row->lac);
}

bool ebk_add_path_has_room(const struct ebk_add_path *path, uint32_t body_size)
{
    const struct ebk_add_path_settings *const settings = &path->settings;
    return ebk_store_active_bytes(settings->store) + body_size <= settings->cache_bytes_max &&
           ebk_journals_has_room(settings->journals, EBK_ADD_SLOTS_KEPT);
}

bool ebk_add_path_is_common(const struct ebk_add_path *path, const struct ebk_add *add)
{
    const struct ebk_ledger_row *row = ebk_table_find(path->settings.table, add->ledger_id);
    return !path->is_stopped && is_plain(row, add) && is_quiet(row, add);
}

static bool is_sound(const struct ebk_add *add)
{
    struct ebk_frame_facts facts;
    return ebk_frame_scan(add->body, add->body_size, &facts) == EBK_FRAME_SOUND && facts.ledger_id == add->ledger_id &&
           facts.first_entry == add->first && facts.last_entry == add->last && facts.count == add->count;
}

static void note_queued(struct ebk_add_path *path, uint32_t records, uint32_t body_size)
{
    const uint64_t bytes = (uint64_t)records * (body_size + RECORD_OVERHEAD_BYTES);
    path->records += records;
    path->bytes += bytes;
    path->unkicked += bytes;
    if (path->unkicked >= path->settings.kick_bytes) ebk_add_path_kick(path);
}

uint64_t ebk_add_path_store(struct ebk_add_path *path, const struct ebk_add *add)
{
    const struct ebk_add_path_settings *const settings = &path->settings;
    const uint8_t *copy;
    if (!is_sound(add)) return 0;
    if (ebk_store_put(settings->store, add->ledger_id, add->first, add->last, add->count, add->body, add->body_size,
                      &copy) < 0)
        return 0;
    /* Refused only by a journal that has failed since: the core learns of it, and puts the same bytes again. */
    const int64_t token =
        ebk_journals_submit(settings->journals, EBK_RECORD_FRAME, add->ledger_id, copy, add->body_size, NULL, 0);
    if (token < 0) return 0;
    struct ebk_ledger_row *row = ebk_table_find(settings->table, add->ledger_id);
    EBK_ASSERT(row != NULL && (uint64_t)token > row->last_token && add->last > row->last_entry);
    EBK_ASSERT((uint64_t)token < ebk_journals_next_token(settings->journals));
    row->last_entry = add->last;
    row->last_token = (uint64_t)token;
    ebk_table_mark_dirty(settings->table, row);
    if (add->has_lac && add->lac > row->lac) {
        row->lac = add->lac;
        row->lac_length = add->lac_length;
    }
    note_queued(path, 1, add->body_size);
    return (uint64_t)token;
}

static bool take_lacs(struct ebk_add_path *path, const uint8_t *message, size_t size)
{
    const struct ebk_add_path_settings *const settings = &path->settings;
    const struct ebk_lac_terms terms = {.table = settings->table, .journals = settings->journals, .tail = settings->tail,
                                        .incarnation = settings->incarnation, .slots_kept = EBK_ADD_SLOTS_KEPT};
    uint32_t records;
    if (!ebk_lac_path_take(&terms, message, size, &records)) return false;
    note_queued(path, records, 16);
    return true;
}

int ebk_add_path_take(struct ebk_add_path *path, uint64_t link, const uint8_t *head, size_t head_size,
                      const uint8_t *tail, size_t tail_size)
{
    struct ebk_add add;
    struct ebk_tail_path *const readers = path->settings.tail;
    if (path->is_stopped) return EBK_ADD_PASSED;
    const int kind = ebk_message_claims(head, head_size);
    if (ebk_is_lacs(kind))
        return tail_size == 0 && take_lacs(path, head, head_size) ? EBK_ADD_TAKEN : EBK_ADD_PASSED;
    if (kind != EBK_KIND_ADD_REQUEST)
        return readers != NULL && tail_size == 0 && ebk_tail_take(readers, link, head, head_size) ? EBK_ADD_TAKEN
                                                                                                  : EBK_ADD_PASSED;
    if (!read_add(path, head, head_size, tail, tail_size, &add)) return EBK_ADD_PASSED;
    struct ebk_ledger_row *row = ebk_table_find(path->settings.table, add.ledger_id);
    if (!is_plain(row, &add)) return EBK_ADD_PASSED;
    const bool wakes = !is_quiet(row, &add);
    if (wakes && (readers == NULL || !ebk_tail_is_open(readers))) return EBK_ADD_PASSED;
    if (!ebk_add_path_has_room(path, add.body_size) || !make_room(path)) return EBK_ADD_PASSED;
    const uint64_t token = ebk_add_path_store(path, &add);
    if (token == 0) return EBK_ADD_PASSED;
    EBK_ASSERT(row->last_token == token && row->last_entry == add.last);
    if (wakes) ebk_tail_wake(readers, row);
    EBK_ASSERT(path->end - path->head < path->room);
    EBK_ASSERT(path->due == path->end || at(path, path->end - 1)->token < token); /* They come due in this order. */
    *at(path, path->end) = (struct pending){
        .token = token, .link = link, .request_id = add.request_id, .nonce = add.nonce,
        .seating = add.seating, .ledger_id = add.ledger_id, .first = add.first, .last = add.last, .next = NONE};
    path->end += 1;
    EBK_ASSERT(path->end - path->head <= path->room);
    return EBK_ADD_TAKEN;
}

void ebk_add_path_kick(struct ebk_add_path *path)
{
    if (path->unkicked == 0) return;
    path->unkicked = 0;
    ebk_journals_kick(path->settings.journals);
}

/* ---- telling -------------------------------------------------------------------------- */

/* Put the pending add behind what is due for its link. Without memory it stays where it is, and waits for the next reap. */
static bool chain(struct ebk_add_path *path, uint64_t place)
{
    struct pending *add = at(path, place);
    const uint32_t index = (uint32_t)(place & (path->room - 1));
    uint32_t number = ebk_id_map_get(&path->numbers, add->link);
    if (number == EBK_ID_MAP_NONE) {
        if (path->group_count == path->group_room) {
            const uint32_t room = path->group_room ? path->group_room * 2 : 8;
            struct group *groups = realloc(path->groups, room * sizeof *groups);
            if (groups == NULL) return false;
            path->groups = groups;
            path->group_room = room;
        }
        number = path->group_count;
        if (ebk_id_map_add(&path->numbers, add->link, number) < 0) return false;
        path->groups[path->group_count++] = (struct group){.link = add->link, .first = NONE, .last = NONE};
    }
    EBK_ASSERT(number < path->group_count);
    if (number < path->group_next) path->group_next = number; /* All that was due for it was told, and now there is more. */
    struct group *group = &path->groups[number];
    EBK_ASSERT(group->link == add->link && (group->first == NONE) == (group->last == NONE));
    add->next = NONE;
    add->is_followed = path->status == EBK_STATUS_OK && path->settings.tail != NULL &&
                       ebk_tail_is_followed(path->settings.tail, add->ledger_id);
    EBK_ASSERT(group->last == NONE || path->pending[group->last].token < add->token); /* Told in the order of coming. */
    if (group->first == NONE)
        group->first = index;
    else
        path->pending[group->last].next = index;
    group->last = index;
    group->count += 1;
    return true;
}

/* Everything that was due is answered: the ring and the groups begin anew. */
static void forget_told(struct ebk_add_path *path)
{
    for (uint32_t i = 0; i < path->group_count; i++) EBK_ASSERT(path->groups[i].count == 0);
    path->head = path->due;
    path->group_count = path->group_next = 0;
    ebk_id_map_clear(&path->numbers);
}

uint32_t ebk_add_path_reap(struct ebk_add_path *path, uint64_t durable)
{
    EBK_ASSERT(path->status != EBK_STATUS_OK || durable < ebk_journals_next_token(path->settings.journals));
    while (path->due < path->end && at(path, path->due)->token <= durable && chain(path, path->due)) path->due += 1;
    EBK_ASSERT(path->head <= path->due && path->due <= path->end);
    return (uint32_t)(path->due - path->head);
}

uint32_t ebk_add_path_stop(struct ebk_add_path *path, uint8_t status)
{
    path->is_stopped = true;
    path->status = status;
    return ebk_add_path_reap(path, UINT64_MAX);
}

static bool make_message_room(struct ebk_add_path *path, size_t size)
{
    if (size <= path->message_room) return true;
    uint8_t *message = realloc(path->message, size);
    if (message == NULL) return false;
    path->message = message;
    path->message_room = size;
    return true;
}

/* AddAnswer: [status, nonce, seating, recovery, ledger_id, first_entry, last_entry, is_followed] */
static uint8_t *write_one(const struct ebk_add_path *path, uint8_t *to, const struct pending *add)
{
    *to++ = 0x98;
    to = ebk_write_count(to, path->status);
    to = ebk_write_count(to, add->nonce);
    to = ebk_write_count(to, add->seating);
    *to++ = 0xC2;
    to = ebk_write_count(to, add->ledger_id);
    to = ebk_write_count(to, (uint64_t)add->first);
    to = ebk_write_count(to, (uint64_t)add->last);
    *to++ = add->is_followed ? 0xC3 : 0xC2;
    return to;
}

static uint8_t *write_record(const struct ebk_add_path *path, uint8_t *to, const struct pending *add)
{
    ebk_store_u64(to, add->request_id);
    ebk_store_u64(to + 8, add->nonce);
    ebk_store_u64(to + 16, add->seating);
    ebk_store_u64(to + 24, add->ledger_id);
    ebk_store_u64(to + 32, (uint64_t)add->first);
    ebk_store_u64(to + 40, (uint64_t)add->last);
    memset(to + 48, 0, EBK_ADD_ANSWER_BYTES - 48);
    to[48] = path->status;
    to[50] = add->is_followed;
    return to + EBK_ADD_ANSWER_BYTES;
}

int ebk_add_path_next(struct ebk_add_path *path, uint64_t *link, uint32_t *answers, const uint8_t **message,
                      size_t *size)
{
    while (path->group_next < path->group_count && path->groups[path->group_next].first == NONE) path->group_next += 1;
    if (path->group_next == path->group_count) {
        if (path->group_count > 0) forget_told(path);
        return 0;
    }
    struct group *group = &path->groups[path->group_next];
    const uint32_t count = group->count < EBK_ADD_ANSWERS_MAX ? group->count : EBK_ADD_ANSWERS_MAX;
    if (!make_message_room(path, ANSWER_BYTES_MAX + (size_t)count * EBK_ADD_ANSWER_BYTES)) return 0; /* Later. */
    EBK_ASSERT(count > 0 && group->first < path->room);
    uint8_t *to = path->message + EBK_MESSAGE_HEADER_BYTES;
    const struct pending *add = &path->pending[group->first];
    *link = group->link;
    *answers = count;
    *message = path->message;
    if (count == 1) {
        *size = ebk_message_seal(path->message, EBK_KIND_ADD_ANSWER, add->request_id, write_one(path, to, add));
        group->first = add->next;
    } else {
        *to++ = 0x91;
        to = ebk_write_bytes_head(to, count * EBK_ADD_ANSWER_BYTES);
        for (uint32_t i = 0; i < count; i++) {
            add = &path->pending[group->first];
            to = write_record(path, to, add);
            group->first = add->next;
        }
        *size = ebk_message_seal(path->message, EBK_KIND_ADD_ANSWERS, 0, to);
    }
    group->count -= count;
    if (group->first == NONE) group->last = NONE; /* More may be due for it before the others are answered. */
    EBK_ASSERT((group->count == 0) == (group->first == NONE));
    EBK_ASSERT(*size <= path->message_room);
    return 1;
}

/* ---- asking --------------------------------------------------------------------------- */

uint64_t ebk_add_path_durable(const struct ebk_add_path *path)
{
    return ebk_journals_durable(path->settings.journals);
}

int ebk_add_path_has_failed(const struct ebk_add_path *path)
{
    struct ebk_journal_fault why; /* For a person, who asks the journal. */
    return ebk_journals_failure(path->settings.journals, &why) != EBK_OK;
}

void ebk_add_path_clear(struct ebk_add_path *path)
{
    (void)ebk_journals_reap(path->settings.journals);
}

uint32_t ebk_add_path_pending(const struct ebk_add_path *path)
{
    return (uint32_t)(path->end - path->head);
}

uint64_t ebk_add_path_records(const struct ebk_add_path *path)
{
    return path->records;
}

uint64_t ebk_add_path_bytes(const struct ebk_add_path *path)
{
    return path->bytes;
}

int ebk_add_path_event(const struct ebk_add_path *path, uint32_t part)
{
    return ebk_journals_event(path->settings.journals, part);
}

struct ebk_tail_path *ebk_add_path_tail(const struct ebk_add_path *path)
{
    return path->settings.tail;
}
