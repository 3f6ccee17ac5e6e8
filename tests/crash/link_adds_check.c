/* link_adds_check.c: adds that are sent and counted in C, under the compiler's sanitizers.
 *
 * ZeroMQ is a table of calls here: what is sent is taken apart, what goes by reference is read and let go of by another
 * thread, and a send may be refused. Two threads append and wait for what they appended. The bookies answer what they
 * were asked, in any order, one by one and many at once, and between that everything that must not count: answers to what
 * was never asked, for other handles, seats, links, ledgers and entries, beyond the end, a second time, with another
 * status, cut short, with a bit turned over. Links have no room now and then, and are sent the same bytes later. A plain
 * count of our own says after each step what is acknowledged. A life ends by what the core does, by a link that goes, by a
 * send that is refused, by a seat that has failed at the bound of what is kept, or with the handle itself; what the table
 * has then are the frames that we have not seen answered by all, each with who owes an answer and who was never asked.
 * Prints nothing and returns 0, or stops where the fault is.
 */
#include "base/bytes.h"
#include "base/errors.h"
#include "road/add_path.h"
#include "road/link_adds.h"
#include "road/turns.h"
#include "wire/block_pool.h"
#include "wire/envelope.h"
#include "wire/frame_header.h"
#include "wire/message.h"
#include "wire/zmq_calls.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define SEATS_MAX 5u
#define USERS 2u
#define APPENDS 250u /* of each user, at most */
#define FRAMES_MAX (USERS * APPENDS)
#define LEDGER 7u
#define NONCE 0x1234567890u
#define SEATING 100u
#define LINK 40u
#define PAYLOAD_MAX 30000u
#define KEY "0123456789abcde"
#define CONTROL "what the bookie is asked"

static uint64_t state;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* ---- ZeroMQ ---------------------------------------------------------------------------- */

struct block { /* What lies in the 64 bytes of a message. */
    uint8_t *data;
    size_t size;
    void (*let_go)(void *, void *);
    void *held;
};

struct link { /* What a socket is. */
    uint32_t seat;
    bool refuses;
    uint8_t *head; /* of a message whose second part is on its way */
    size_t head_size;
};

/* What was sent by reference, until the other thread has read it. */
#define WIRE_MAX 4096u
static struct block wire[WIRE_MAX];
static uint32_t wire_count;
static bool is_wire_over;
static pthread_mutex_t wire_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_uint read_bytes;
static int last_error;

static struct block *in(const struct ebk_zmq_message *message)
{
    _Static_assert(sizeof(struct block) <= sizeof message->bytes, "it fits a message");
    return (struct block *)(void *)message->bytes;
}

static int fake_init_size(struct ebk_zmq_message *message, size_t size)
{
    *in(message) = (struct block){.data = malloc(size), .size = size};
    return 0;
}

static int fake_init_data(struct ebk_zmq_message *message, void *data, size_t size, void (*let_go)(void *, void *), void *held)
{
    *in(message) = (struct block){.data = data, .size = size, .let_go = let_go, .held = held};
    return 0;
}

static void let_go(const struct block *block)
{
    unsigned sum = 0;
    for (size_t i = 0; i < block->size; i++) sum += block->data[i];
    atomic_fetch_add(&read_bytes, sum);
    if (block->let_go != NULL)
        block->let_go(block->data, block->held);
    else
        free(block->data);
}

static int fake_close(struct ebk_zmq_message *message)
{
    let_go(in(message));
    return 0;
}

static void *fake_data(struct ebk_zmq_message *message)
{
    return in(message)->data;
}

static int fake_last_error(void)
{
    return last_error;
}

static void hear(const struct link *link, const uint8_t *heads, size_t heads_size, const uint8_t *tail, size_t tail_size);

static int fake_send(struct ebk_zmq_message *message, void *socket, int flags)
{
    struct link *link = socket;
    struct block *block = in(message);
    EBK_ASSERT(flags & EBK_ZMQ_DONTWAIT);
    last_error = draw() % 16 == 0 ? EINTR : EAGAIN;
    if (last_error == EINTR || (link->refuses && link->head == NULL)) return -1;
    if (flags & EBK_ZMQ_MORE) {
        link->head = block->data;
        link->head_size = block->size;
        return 0;
    }
    if (link->head == NULL)
        hear(link, block->data, block->size, NULL, 0);
    else
        hear(link, link->head, link->head_size, block->data, block->size);
    free(link->head);
    link->head = NULL;
    pthread_mutex_lock(&wire_lock);
    EBK_ASSERT(wire_count < WIRE_MAX);
    wire[wire_count++] = *block;
    pthread_mutex_unlock(&wire_lock);
    return 0;
}

static void *carry(void *nothing)
{
    for (bool is_over = false; !is_over; sched_yield()) {
        struct block next = {0};
        pthread_mutex_lock(&wire_lock);
        is_over = is_wire_over && wire_count == 0;
        if (wire_count > 0) next = wire[--wire_count];
        pthread_mutex_unlock(&wire_lock);
        if (next.data != NULL) let_go(&next);
    }
    return nothing;
}

/* ---- our own count --------------------------------------------------------------------- */

struct sent {
    int64_t first, last;
    uint64_t first_request, length;
    uint32_t asked, said, answered; /* a bit for each seat: was it asked, did it answer, does that count */
    int64_t lac;              /* that went with it */
};

static struct sent sent[FRAMES_MAX];
static uint32_t sent_count, head; /* from head on they are not acknowledged */
static uint32_t seats, ack_quorum, failed;
static int64_t lac;
static struct link links[SEATS_MAX];
static struct ebk_answers *answers;
static struct ebk_packer *packer;
static struct ebk_links *sending;
static struct ebk_in_flight *table;
static struct ebk_backlog backlog;
static struct ebk_turns *turns;
static struct ebk_link_adds *adds;
static atomic_uint users;

static void count(void)
{
    while (head < sent_count && (uint32_t)__builtin_popcount(sent[head].answered) >= ack_quorum) lac = sent[head++].last;
}

/* A request as a bookie gets it: whole, for this seat, of the next frame. */
static void hear(const struct link *link, const uint8_t *heads, size_t heads_size, const uint8_t *tail, size_t tail_size)
{
    uint8_t prefix[EBK_ENVELOPE_PREFIX_BYTES];
    memset(prefix, (int)(LINK + link->seat), sizeof prefix);
    EBK_ASSERT(ebk_envelope_is_body(prefix, heads, heads_size, tail_size));
    const uint8_t *message = heads + EBK_ENVELOPE_BYTES, *control = message + EBK_MESSAGE_HEADER_BYTES;
    const uint32_t control_size = ebk_load_u32(message + EBK_MESSAGE_AT_CONTROL_SIZE);
    const uint8_t *frame = control + control_size;
    EBK_ASSERT(control_size == sizeof CONTROL && memcmp(control, CONTROL, sizeof CONTROL) == 0);
    EBK_ASSERT(ebk_crc32c(ebk_crc32c(0, message, EBK_MESSAGE_AT_CRC), control, control_size) ==
               ebk_load_u32(message + EBK_MESSAGE_AT_CRC));
    EBK_ASSERT(ebk_load_u32(frame + EBK_FRAME_AT_CRC) == ebk_crc32c(0, frame, EBK_FRAME_AT_CRC));
    EBK_ASSERT(ebk_load_u64(frame + EBK_FRAME_AT_LEDGER) == LEDGER && memcmp(frame + EBK_FRAME_AT_KEY, KEY, 16) == 0);
    const size_t body_size = ebk_load_u32(frame + EBK_FRAME_AT_BODY_SIZE);
    const uint8_t *body = tail != NULL ? tail : frame + EBK_FRAME_HEADER_BYTES;
    EBK_ASSERT(tail != NULL ? body_size == tail_size : body + body_size == heads + heads_size);
    EBK_ASSERT(body[0] == 1); /* The version of an entry. */

    const int64_t first = (int64_t)ebk_load_u64(frame + EBK_FRAME_AT_FIRST);
    const uint64_t request_id = ebk_load_u64(message + EBK_MESSAGE_AT_REQUEST);
    if (sent_count == 0 || first > sent[sent_count - 1].last) {
        EBK_ASSERT(first == (sent_count == 0 ? 0 : sent[sent_count - 1].last + 1) && sent_count < FRAMES_MAX);
        sent[sent_count++] = (struct sent){.first = first, .last = (int64_t)ebk_load_u64(frame + EBK_FRAME_AT_LAST),
                                           .first_request = request_id - link->seat, .lac = lac};
    }
    struct sent *of = &sent[sent_count - 1];
    while (of > sent && of->first > first) of--; /* To a link that had no room. */
    EBK_ASSERT((int64_t)ebk_load_u64(frame + EBK_FRAME_AT_LAC) == of->lac);
    for (struct sent *before = of; before > sent; before--) EBK_ASSERT(before[-1].asked >> link->seat & 1); /* In order. */
    EBK_ASSERT(first == of->first && request_id == of->first_request + link->seat && !(of->asked >> link->seat & 1));
    of->asked |= 1u << link->seat;
}

/* ---- answers --------------------------------------------------------------------------- */

struct said {
    uint64_t link, request_id, nonce, seating, ledger_id, first, last;
    uint8_t status, recovery;
};

static struct said right(const struct sent *of, uint32_t seat)
{
    return (struct said){.link = LINK + seat, .request_id = of->first_request + seat, .nonce = NONCE,
                         .seating = SEATING + seat, .ledger_id = LEDGER, .first = (uint64_t)of->first,
                         .last = (uint64_t)of->last};
}

static size_t write_one(uint8_t *to, const struct said *said)
{
    uint8_t *end = to + EBK_MESSAGE_HEADER_BYTES;
    *end++ = 0x97;
    end = ebk_write_count(end, said->status);
    end = ebk_write_count(end, said->nonce);
    end = ebk_write_count(end, said->seating);
    *end++ = said->recovery ? 0xC3 : 0xC2;
    end = ebk_write_count(end, said->ledger_id);
    end = ebk_write_count(end, said->first);
    end = ebk_write_count(end, said->last);
    return ebk_message_seal(to, EBK_KIND_ADD_ANSWER, said->request_id, end);
}

static size_t write_several(uint8_t *to, const struct said *said, uint32_t said_count)
{
    uint8_t *end = to + EBK_MESSAGE_HEADER_BYTES;
    *end++ = 0x91;
    end = ebk_write_bytes_head(end, said_count * EBK_ADD_ANSWER_BYTES);
    for (; said_count > 0; said_count--, said++, end += EBK_ADD_ANSWER_BYTES) {
        const uint64_t numbers[] = {said->request_id, said->nonce, said->seating, said->ledger_id, said->first, said->last};
        memset(end, 0, EBK_ADD_ANSWER_BYTES);
        for (uint32_t i = 0; i < 6; i++) ebk_store_u64(end + 8 * i, numbers[i]);
        end[48] = said->status;
        end[49] = said->recovery;
    }
    return ebk_message_seal(to, EBK_KIND_ADD_ANSWERS, 0, end);
}

/* From exactly its bytes. */
static int offer(uint64_t link, const uint8_t *message, size_t size)
{
    uint8_t *exact = malloc(size ? size : 1);
    memcpy(exact, message, size);
    const int outcome = ebk_answers_take(answers, link, exact, size);
    free(exact);
    return outcome;
}

static int offer_one(const struct said *said)
{
    uint8_t message[256];
    return offer(said->link, message, draw() % 2 ? write_one(message, said) : write_several(message, said, 1));
}

/* A request that was asked and is not answered, or is. */
static bool choose(bool is_answered, struct sent **of, uint32_t *seat)
{
    for (uint32_t tries = 0; tries < 32 && sent_count > 0; tries++) {
        const uint32_t back = (uint32_t)draw() % (sent_count < 40 ? sent_count : 40);
        *of = &sent[sent_count - 1 - back];
        *seat = (uint32_t)draw() % seats;
        if (((*of)->asked >> *seat & 1) && ((*of)->said >> *seat & 1) == is_answered) return true;
    }
    return false;
}

/* What must not count. */
static void lie(void)
{
    uint8_t message[1024];
    struct sent *of;
    uint32_t seat;
    const uint32_t kind = (uint32_t)draw() % 16;
    if (!choose(kind == 0, &of, &seat)) return;
    struct said said = right(of, seat);
    if (kind == 1) said.link += 1 + draw() % 9;
    if (kind == 2) said.nonce ^= 1u << draw() % 32;
    if (kind == 3) said.seating += 1;
    if (kind == 4) said.ledger_id += 1;
    if (kind == 5) said.first += 1;
    if (kind == 6) said.last += 1 + draw() % 3;
    if (kind == 7) said.status = (uint8_t)(1 + draw() % 20);
    if (kind == 8) said.recovery = 1;
    if (kind == 9) said.request_id = ebk_answers_state(answers)->next_request + draw() % 100; /* Never sent. */
    if (kind == 10) said.request_id = draw() % 2 ? 0 : UINT64_MAX;
    if (kind == 11) said.first = said.last = UINT64_MAX - draw() % 2;
    if (kind == 12) said.request_id += 64u << draw() % 8; /* Where its place in the table is the same. */
    if (kind < 13) {
        EBK_ASSERT(offer_one(&said) == EBK_ANSWERS_PASSED);
        return;
    }
    const struct said pair[] = {said, right(of, seat)};
    struct said wrong[] = {said, said};
    wrong[1].nonce += 1;
    size_t size = draw() % 2 ? write_one(message, &said) : write_several(message, pair, 1 + (uint32_t)draw() % 2);
    if (kind == 13) message[draw() % size] ^= (uint8_t)(1u << draw() % 8);
    if (kind == 14) size = draw() % size;
    if (kind == 15) size = write_several(message, wrong, 2); /* One that is right and one that is not: neither counts. */
    EBK_ASSERT(offer(said.link, message, size) == EBK_ANSWERS_PASSED);
}

static void note(struct sent *of, uint32_t seat)
{
    of->said |= 1u << seat;
    of->answered |= (1u << seat) & ~failed;
}

static void answer(void)
{
    uint8_t message[1024];
    struct said several[8];
    uint32_t several_count = 0, seat;
    struct sent *of;
    if (!choose(false, &of, &seat)) return;
    if (draw() % 2) {
        const struct said said = right(of, seat);
        EBK_ASSERT(offer_one(&said) == EBK_ANSWERS_COUNTED);
        note(of, seat);
        return;
    }
    for (; of < sent + sent_count && several_count < 7; of++)
        if ((of->asked & ~of->said) >> seat & 1) {
            several[several_count++] = right(of, seat);
            note(of, seat);
        }
    several[several_count] = several[0]; /* Twice in one message counts once. */
    several_count += draw() % 2;
    EBK_ASSERT(offer(LINK + seat, message, write_several(message, several, several_count)) == EBK_ANSWERS_COUNTED);
}

/* ---- a life ---------------------------------------------------------------------------- */

static void *use(void *argument)
{
    const bool is_alone = argument != NULL;
    static _Thread_local uint8_t payload[PAYLOAD_MAX];
    uint32_t own = is_alone ? 1 : 2;
    for (uint32_t i = 0; i < APPENDS; i++) {
        int should_wake, outcome = 1;
        own = own * 1664525u + 1013904223u;
        const int64_t entry = ebk_packer_append(packer, payload, (own >> 28) == 0 ? PAYLOAD_MAX : own >> 24, &should_wake);
        EBK_ASSERT(entry >= 0);
        if (should_wake) ebk_turns_wake(turns);
        while ((own >> 20) % 4 == 0 && (outcome = ebk_link_adds_await(adds, entry, is_alone, 20)) == 0) {
        }
        uint64_t length;
        if (outcome == EBK_FAILED) break;
        if ((own >> 20) % 4 == 0) EBK_ASSERT(ebk_link_adds_lac(adds, &length) >= entry);
    }
    atomic_fetch_sub(&users, 1);
    return NULL;
}

/* What the core finds: in the table, and of the requests that are open. */
static void check_end(void)
{
    const struct ebk_flight_state *const state = ebk_in_flight_state(table);
    struct ebk_link_owed owed;
    const uint32_t all = (1u << seats) - 1;
    uint32_t next = 0, left = 0;
    uint64_t place = 0;
    ebk_link_adds_end(adds);
    while (ebk_link_adds_next_owed(adds, &place, &owed)) {
        while (next < sent_count && (sent[next].answered | failed) == all) next += 1;
        const struct ebk_flying *const flying = ebk_in_flight_at(table, place - 1);
        EBK_ASSERT(flying->packed.first_entry == owed.first_entry && flying->packed.body[0] == 1);
        left += 1;
        if (next == sent_count) {
            EBK_ASSERT(owed.unsent == (all & ~failed) && owed.asked == 0); /* Nobody took it. */
            continue;
        }
        EBK_ASSERT(owed.first_entry == sent[next].first && owed.first_request == sent[next].first_request);
        EBK_ASSERT(owed.unsent == (all & ~failed & ~sent[next].asked));
        EBK_ASSERT(owed.asked == (all & ~failed & sent[next].asked & ~sent[next].answered));
        next += 1;
    }
    while (next < sent_count && (sent[next].answered | failed) == all) next += 1;
    EBK_ASSERT(next == sent_count && state->end - state->head >= sent_count - head);
    for (uint64_t at = state->head; at < state->end; at++) EBK_ASSERT(ebk_in_flight_at(table, at)->packed.first_entry > lac);
    EBK_ASSERT(backlog.kept_bytes == state->behind_bytes && state->behind_count <= left);
    struct sent *of;
    uint32_t seat;
    if (!choose(false, &of, &seat)) return;
    const struct said late = right(of, seat);
    EBK_ASSERT(offer_one(&late) == EBK_ANSWERS_PASSED); /* It is the core's now. */
}

enum { BY_CORE, BY_LINK, BY_REFUSAL, BY_CLOSE, BY_BOUND, BY_NOBODY, WAYS };

static void live(uint32_t way)
{
    sent_count = head = failed = 0;
    lac = -1;
    is_wire_over = false;
    seats = 1 + (uint32_t)draw() % SEATS_MAX;
    ack_quorum = 1 + (uint32_t)draw() % seats;
    answers = ebk_answers_new();
    sending = ebk_links_new();
    turns = ebk_turns_new();
    packer = ebk_packer_open(LEDGER, 0, 0, 64 << 10, 64 << 20);
    table = ebk_in_flight_new();
    EBK_ASSERT(table != NULL);
    backlog = (struct ebk_backlog){.bytes_max = UINT64_MAX};
    ebk_in_flight_count_in(table, &backlog);
    struct ebk_link_settings settings = {.packer = packer, .table = table, .links = sending, .answers = answers, .seat_count = seats,
                                         .ack_quorum = ack_quorum, .ledger_id = LEDGER, .nonce = NONCE, .lac = -1,
                                         .bytes_max = draw() % 2 ? 100 << 10 : 16 << 20,
                                         .behind_max = way == BY_BOUND ? 64 << 10 : 64 << 20};
    memcpy(settings.key, KEY, 16);
    for (uint32_t seat = 0; seat < seats; seat++) {
        links[seat] = (struct link){.seat = seat};
        settings.seats[seat] = (struct ebk_link_seat){.link = LINK + seat, .seating = SEATING + seat,
                                                      .slot = seat % 2 ? seat : seat + SEATS_MAX,
                                                      .control_size = sizeof CONTROL};
        memcpy(settings.seats[seat].control, CONTROL, sizeof CONTROL);
    }
    adds = ebk_link_adds_new(&settings);
    EBK_ASSERT(answers != NULL && sending != NULL && turns != NULL && packer != NULL && adds != NULL);
    EBK_ASSERT(ebk_turns_begin(turns, adds) == EBK_OK);
    pthread_t threads[USERS], carrier;
    atomic_store(&users, USERS);
    for (uint32_t i = 0; i < USERS; i++) EBK_ASSERT(pthread_create(&threads[i], NULL, use, i ? packer : NULL) == 0);
    EBK_ASSERT(pthread_create(&carrier, NULL, carry, NULL) == 0);

    const uint32_t end_at = 20 + (uint32_t)draw() % 80; /* frames */
    const uint32_t chosen = (uint32_t)draw() % seats;
    struct ebk_link_facts facts = {.lac = -1};
    bool is_down = false;
    for (int64_t now_ns = 1; !facts.is_ending; now_ns += 1000, sched_yield()) {
        uint8_t prefix[EBK_ENVELOPE_PREFIX_BYTES];
        for (uint32_t seat = 0; seat < seats; seat++) {
            memset(prefix, (int)(LINK + seat), sizeof prefix);
            if (!is_down || seat != chosen)
                EBK_ASSERT(ebk_links_up(sending, LINK + seat, &links[seat], prefix, draw() % 8 ? 8 << 20 : 0) == EBK_OK);
        }
        ebk_turns_take(turns, now_ns);
        for (uint64_t acts = draw() % 6; acts > 0; acts--) draw() % 3 ? answer() : lie();
        count();
        ebk_link_adds_tell(adds, now_ns, &facts);
        uint64_t length;
        EBK_ASSERT(facts.lac == lac && ebk_link_adds_lac(adds, &length) == lac && length == facts.lac_length);
        EBK_ASSERT(facts.pending >= sent_count - head && facts.oldest_sent_ns <= now_ns);
        EBK_ASSERT(!facts.is_pressed || way == BY_BOUND);
        if (facts.is_pressed) {
            EBK_ASSERT(facts.silent_ns[chosen] <= now_ns);
            ebk_link_adds_fail(adds, chosen);
            failed = 1u << chosen;
        }
        if (sent_count > 0 && lac == sent[sent_count - 1].last && atomic_load(&users) == 0 &&
            lac == ebk_packer_state(packer)->next_entry - 1)
            break;
        if (sent_count < end_at) continue;
        if (way == BY_CORE || way == BY_CLOSE) break;
        links[chosen].refuses = way == BY_REFUSAL;
        if (way == BY_LINK && !is_down) {
            ebk_links_down(sending, LINK + chosen);
            is_down = true;
        }
    }
    if (way != BY_CLOSE) check_end();
    ebk_turns_end(turns, adds);
    ebk_link_adds_close(adds);
    for (uint32_t i = 0; i < USERS; i++) pthread_join(threads[i], NULL);
    pthread_mutex_lock(&wire_lock);
    is_wire_over = true;
    pthread_mutex_unlock(&wire_lock);
    pthread_join(carrier, NULL);
    ebk_link_adds_free(adds);
    ebk_in_flight_free(table);
    EBK_ASSERT(backlog.kept_bytes == 0);
    ebk_turns_free(turns);
    ebk_links_free(sending);
    ebk_answers_free(answers);
    EBK_ASSERT(ebk_packer_state(packer)->frames_out == 0);
    ebk_packer_unref(packer);
}

int main(int argc, char **argv)
{
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    ebk_pool_set_bytes_max(128 << 20);
    ebk_zmq = (struct ebk_zmq_calls){
        .is_loaded = true, .init_size = fake_init_size, .init_data = fake_init_data, .send = fake_send,
        .close = fake_close, .data = fake_data, .last_error = fake_last_error};
    for (uint32_t way = 0; way < WAYS; way++)
        for (uint32_t again = 0; again < 3; again++) live(way);
    EBK_ASSERT(ebk_pool_used_bytes() == 0);
    return 0;
}
