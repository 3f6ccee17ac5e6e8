/* answers.c: see answers.h.
 *
 * Requests stand in a table by the low bits of their ids, which rise: no search, and one
 * that is answered needs no taking out. Where an unanswered one is in the way of another
 * the table grows up to its bound; then the older one gives way, and its answer is passed.
 */
#include "road/answers.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "road/add_path.h"
#include "wire/message_reader.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_MIN 64u
#define ANSWER_FIELDS 8u

/* Places in one answer among several. */
#define AT_REQUEST 0
#define AT_NONCE 8
#define AT_SEATING 16
#define AT_LEDGER 24
#define AT_FIRST 32
#define AT_LAST 40
#define AT_STATUS 48
#define AT_RECOVERY 49
#define AT_FOLLOWED 50
#define AT_RESERVED 51

struct slot {
    struct ebk_asked asked; /* request_id 0: free */
    uint32_t group_count;   /* answers of the group, kept at its first request */
    bool is_answered;
    uint32_t seat; /* of adds, with place; adds NULL: a core's request */
    uint64_t place;
    struct ebk_link_adds *adds;
};

struct ebk_answers {
    struct ebk_answers_state state;
    _Atomic uint32_t references; /* the adds that count here, and its maker: the collector frees them in any order */
    ebk_adds_answered *answered; /* once adds count here */
    struct slot *slots;
    uint32_t slot_count;
    struct ebk_counted *untold;
    uint32_t untold_room;
};

struct ebk_answers *ebk_answers_new(void)
{
    struct ebk_answers *answers = calloc(1, sizeof *answers);
    if (answers == NULL) return NULL;
    answers->references = 1;
    answers->state.next_request = 1;
    answers->slot_count = SLOTS_MIN;
    answers->slots = calloc(SLOTS_MIN, sizeof *answers->slots);
    answers->untold_room = EBK_ANSWERS_UNTOLD_MAX;
    answers->untold = malloc(EBK_ANSWERS_UNTOLD_MAX * sizeof *answers->untold);
    if (answers->slots == NULL || answers->untold == NULL) {
        ebk_answers_free(answers);
        return NULL;
    }
    return answers;
}

void ebk_answers_free(struct ebk_answers *answers)
{
    if (answers == NULL) return;
    const uint32_t left = --answers->references;
    EBK_ASSERT(left != UINT32_MAX);
    if (left > 0) return;
    free(answers->slots);
    free(answers->untold);
    free(answers);
}

struct ebk_answers_state *ebk_answers_state(struct ebk_answers *answers)
{
    return &answers->state;
}

/* ---- asking ---------------------------------------------------------------------------- */

static struct slot *slot_of(const struct ebk_answers *answers, uint64_t request_id)
{
    return &answers->slots[request_id & (answers->slot_count - 1)];
}

static bool is_open(const struct slot *slot)
{
    return slot->asked.request_id != 0 && !slot->is_answered;
}

/* Twice as many slots: ids that differ only above the old ones part, no two meet. */
static bool grow(struct ebk_answers *answers)
{
    const uint32_t count = answers->slot_count * 2;
    struct slot *wider = count > EBK_ANSWERS_SLOTS_MAX ? NULL : calloc(count, sizeof *wider);
    if (wider == NULL) return false;
    for (uint32_t i = 0; i < answers->slot_count; i++)
        if (answers->slots[i].asked.request_id != 0)
            wider[answers->slots[i].asked.request_id & (count - 1)] = answers->slots[i];
    free(answers->slots);
    answers->slots = wider;
    answers->slot_count = count;
    EBK_ASSERT((count & (count - 1)) == 0 && count <= EBK_ANSWERS_SLOTS_MAX);
    return true;
}

/* The slot of a new request: a wider table, or else an older one gives way. */
static struct slot *place_for(struct ebk_answers *answers, const struct ebk_asked *asked)
{
    EBK_ASSERT(asked->request_id != 0);
    while (is_open(slot_of(answers, asked->request_id)) && grow(answers)) {
    }
    struct slot *slot = slot_of(answers, asked->request_id);
    EBK_ASSERT(slot->asked.request_id < asked->request_id); /* They rise, so a slot never goes back to an older one. */
    *slot = (struct slot){.asked = *asked};
    return slot;
}

void ebk_answers_expect(struct ebk_answers *answers, const struct ebk_asked *asked)
{
    (void)place_for(answers, asked);
}

void ebk_answers_expect_for(struct ebk_answers *answers, const struct ebk_asked *asked, struct ebk_link_adds *adds,
                            uint64_t place, uint32_t seat)
{
    EBK_ASSERT(adds != NULL && answers->answered != NULL);
    struct slot *slot = place_for(answers, asked);
    slot->adds = adds;
    slot->place = place;
    slot->seat = seat;
}

void ebk_answers_keep(struct ebk_answers *answers, ebk_adds_answered *answered)
{
    EBK_ASSERT(answers->answered == NULL || answers->answered == answered);
    answers->answered = answered;
    answers->references += 1;
}

void ebk_answers_forget(struct ebk_answers *answers, const struct ebk_link_adds *adds)
{
    for (uint32_t i = 0; i < answers->slot_count; i++)
        if (answers->slots[i].adds == adds) answers->slots[i] = (struct slot){.is_answered = true};
}

/* ---- taking ---------------------------------------------------------------------------- */

/* The request that this answer is to, if the answer says OK to all that was asked, and nothing else. */
static struct slot *expected(const struct ebk_answers *answers, const struct ebk_asked *said)
{
    struct slot *slot = slot_of(answers, said->request_id);
    const struct ebk_asked *asked = &slot->asked;
    const bool is_same = asked->request_id == said->request_id && asked->link == said->link &&
                         asked->nonce == said->nonce && asked->seating == said->seating &&
                         asked->ledger_id == said->ledger_id && asked->first == said->first &&
                         asked->last == said->last;
    return is_same && is_open(slot) ? slot : NULL;
}

/* AddAnswer, as a message has it alone: [status, nonce, seating, recovery, ledger_id, first_entry, last_entry,
 * is_followed], perhaps without the last. */
static bool read_one(struct ebk_control *control, struct ebk_asked *said, bool *is_followed)
{
    const unsigned fields = ebk_read_array(control);
    const uint64_t status = ebk_read_number(control, UINT8_MAX);
    said->nonce = ebk_read_number(control, UINT64_MAX);
    said->seating = ebk_read_number(control, UINT64_MAX);
    const bool by_recovery = ebk_read_bool(control);
    said->ledger_id = ebk_read_number(control, UINT64_MAX);
    said->first = (int64_t)ebk_read_number(control, INT64_MAX);
    said->last = (int64_t)ebk_read_number(control, INT64_MAX);
    *is_followed = fields == ANSWER_FIELDS && ebk_read_bool(control);
    return (fields == ANSWER_FIELDS || fields == ANSWER_FIELDS - 1) && ebk_control_is_read(control) &&
           status == EBK_STATUS_OK && !by_recovery;
}

static bool read_record(const uint8_t *from, struct ebk_asked *said, bool *is_followed)
{
    static const uint8_t none[EBK_ADD_ANSWER_BYTES - AT_RESERVED];
    said->request_id = ebk_load_u64(from + AT_REQUEST);
    said->nonce = ebk_load_u64(from + AT_NONCE);
    said->seating = ebk_load_u64(from + AT_SEATING);
    said->ledger_id = ebk_load_u64(from + AT_LEDGER);
    said->first = (int64_t)ebk_load_u64(from + AT_FIRST);
    said->last = (int64_t)ebk_load_u64(from + AT_LAST);
    *is_followed = from[AT_FOLLOWED] == 1;
    return from[AT_STATUS] == EBK_STATUS_OK && from[AT_RECOVERY] == 0 && from[AT_FOLLOWED] <= 1 &&
           memcmp(from + AT_RESERVED, none, sizeof none) == 0;
}

static bool make_room(struct ebk_answers *answers, uint32_t more)
{
    const uint32_t wanted = answers->state.untold + more;
    if (wanted <= answers->untold_room) return true;
    struct ebk_counted *wider = realloc(answers->untold, (size_t)wanted * sizeof *wider);
    if (wider == NULL) return false;
    answers->untold = wider;
    answers->untold_room = wanted;
    EBK_ASSERT(answers->state.untold + more <= answers->untold_room);
    return true;
}

/* Returns whether this one is news: it is the one that its frame needed. */
static bool count_in_group(struct ebk_answers *answers, struct slot *slot)
{
    EBK_ASSERT(slot->adds == NULL && slot->asked.group <= slot->asked.request_id);
    slot->is_answered = true;
    struct slot *head = slot_of(answers, slot->asked.group);
    /* Where the first of the group gave way, none was counted: then each is news. */
    if (head->asked.request_id != slot->asked.group) return true;
    head->group_count += 1;
    return head->group_count == slot->asked.needed;
}

static void count(struct ebk_answers *answers, struct slot *slot, bool is_followed)
{
    EBK_ASSERT(is_open(slot) && answers->state.untold < answers->untold_room);
    answers->state.counted += 1;
    if (slot->adds != NULL) {
        EBK_ASSERT(answers->answered != NULL);
        slot->is_answered = true;
        answers->answered(slot->adds, slot->place, slot->seat, is_followed);
        return;
    }
    answers->untold[answers->state.untold++] = (struct ebk_counted){slot->asked.link, slot->asked.request_id, is_followed};
    if (count_in_group(answers, slot) || answers->state.is_eager || answers->state.untold >= EBK_ANSWERS_UNTOLD_MAX)
        answers->state.is_due = 1;
}

void ebk_answers_answered(struct ebk_answers *answers, uint64_t request_id)
{
    struct slot *slot = slot_of(answers, request_id);
    if (slot->asked.request_id == request_id && is_open(slot)) (void)count_in_group(answers, slot);
}

/* AddAnswers: [records]. */
static int take_several(struct ebk_answers *answers, uint64_t link, struct ebk_control *control)
{
    uint32_t record_count;
    const unsigned fields = ebk_read_array(control);
    const uint8_t *const records = ebk_read_records(control, EBK_ADD_ANSWER_BYTES, &record_count);
    if (fields != 1 || !ebk_control_is_read(control)) return EBK_ANSWERS_PASSED;
    struct ebk_asked said = {.link = link};
    bool is_followed = false;
    for (uint32_t i = 0; i < record_count; i++) {
        if (!read_record(records + (size_t)i * EBK_ADD_ANSWER_BYTES, &said, &is_followed)) return EBK_ANSWERS_PASSED;
        if (expected(answers, &said) == NULL) return EBK_ANSWERS_PASSED;
    }
    if (!make_room(answers, record_count)) return EBK_ANSWERS_PASSED;
    for (uint32_t i = 0; i < record_count; i++) {
        (void)read_record(records + (size_t)i * EBK_ADD_ANSWER_BYTES, &said, &is_followed);
        struct slot *slot = expected(answers, &said);
        if (slot != NULL) count(answers, slot, is_followed); /* NULL: said twice in one message, and counted. */
    }
    return EBK_ANSWERS_COUNTED;
}

static int take_one(struct ebk_answers *answers, uint64_t link, struct ebk_message *message)
{
    struct ebk_asked said = {.link = link, .request_id = message->request_id};
    bool is_followed = false;
    struct slot *slot = read_one(&message->control, &said, &is_followed) ? expected(answers, &said) : NULL;
    if (slot == NULL || !make_room(answers, 1)) return EBK_ANSWERS_PASSED;
    count(answers, slot, is_followed);
    return EBK_ANSWERS_COUNTED;
}

int ebk_answers_take(struct ebk_answers *answers, uint64_t link, const uint8_t *bytes, size_t size)
{
    struct ebk_message message;
    const int kind = ebk_message_claims(bytes, size);
    if (kind != EBK_KIND_ADD_ANSWER && kind != EBK_KIND_ADD_ANSWERS) return EBK_ANSWERS_PASSED;
    if (!ebk_message_read(bytes, size, 0, &message) || message.frame_count != 0) return EBK_ANSWERS_PASSED;
    return kind == EBK_KIND_ADD_ANSWER ? take_one(answers, link, &message) : take_several(answers, link, &message.control);
}

const struct ebk_counted *ebk_answers_tell(struct ebk_answers *answers)
{
    EBK_ASSERT(answers->state.untold <= answers->untold_room);
    answers->state.untold = 0;
    answers->state.is_due = 0;
    return answers->untold;
}
