/* packer.c: frames in blocks.
 *
 * A block holds one frame or several small ones, each behind its note:
 *
 *     block | note 48 | entry | entry | pad | note 48 | entry | entry | entry |      free      |
 *             taken, 1 reference              the open frame            ^ used       capacity ^
 *
 * A release finds everything in the note: no table, no allocation per frame. A frame that is
 * sealed early leaves its block open for the next one, so a writer that waits for every
 * entry uses one warm block again and again instead of touching 256 KiB for 100 bytes.
 * When nothing is out or waits, the block goes back to the pool: of thousands of open
 * ledgers only those that are written to hold one, and the pool gives the warm one first.
 * A new frame begins in a block only while half of it is free: a late one would be short.
 *
 * References: a block has one from its packer while it is open or full, and one from
 * each frame that is out. A packer has one from each handle and from each frame that is out.
 */
#include "wire/packer.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/lock.h"
#include "wire/arrow_column.h"
#include "wire/block_pool.h"
#include "wire/entry_digest.h"
#include "wire/frame.h"
#include "wire/packer_sums.h"

#include <stdlib.h>
#include <time.h>

#define LAC_NONE (-1)
#define TIME_NONE (-1)
#define SLICE_BYTES (64u << 10) /* Appended before the host gets a chance to take the mutex. */

struct note {
    struct ebk_packer *packer;
    struct ebk_block *block;
    uint32_t size;
    uint32_t out; /* references to a frame that was taken; 0: it is released */
};
_Static_assert(sizeof(struct note) <= EBK_NOTE_BYTES, "a note fits in front of its frame");

struct ebk_packer {
    struct ebk_packer_state state; /* written under the mutex, read by anybody */
    struct ebk_lock turn;          /* held by an appending thread, for all that it appends at once */
    struct ebk_lock mutex;         /* of everything here, for one slice of that; taken after the turn */
    uint64_t generation; /* of the process that made it */
    uint64_t ledger_id;
    uint32_t block_bytes;
    uint32_t refs;
    uint64_t held_by; /* the caller of which a part was taken, 0: none; no other appends before its rest */
    /* Only for a log (P8.11): entries have times. time_ms is that of the last one, and the least of the next;
     * written_ms the last one that an entry carries. is_told: the caller passes the time, and no clock is read. */
    int64_t time_ms, written_ms;
    int is_timed, is_told;
    struct ebk_packer_sums *sums; /* NULL: nobody asked for them */
    uint32_t wanted;  /* entries of the open frame at which an append wakes the host; written by one thread only */
    struct ebk_block *open; /* has room, perhaps no entry */
    struct ebk_block *full_first, *full_last;
};

/* Readers look without the mutex: a store is never torn. */
#define PUBLISH(packer, field, value) __atomic_store_n(&(packer)->state.field, (value), __ATOMIC_RELAXED)

/* ---- life ------------------------------------------------------------------------- */

static int is_of_parent(const struct ebk_packer *packer)
{
    return packer->generation != ebk_pool_generation;
}

struct ebk_packer *ebk_packer_open(uint64_t ledger_id, int64_t next_entry, uint64_t length, uint32_t block_bytes,
                                   uint64_t bytes_max)
{
    EBK_ASSERT(next_entry >= 0);
    EBK_ASSERT(block_bytes > EBK_NOTE_BYTES);
    struct ebk_packer *packer = calloc(1, sizeof *packer);
    if (packer == NULL) return NULL;
    packer->generation = ebk_pool_generation;
    packer->ledger_id = ledger_id;
    packer->block_bytes = block_bytes;
    packer->refs = 1;
    packer->wanted = 1;
    packer->state.next_entry = next_entry;
    packer->state.length = length;
    packer->state.lac = LAC_NONE;
    packer->time_ms = packer->written_ms = TIME_NONE;
    packer->state.bytes_max = bytes_max;
    return packer;
}

void ebk_packer_ref(struct ebk_packer *packer)
{
    __atomic_add_fetch(&packer->refs, 1, __ATOMIC_RELAXED);
}

void ebk_packer_unref(struct ebk_packer *packer)
{
    if (is_of_parent(packer)) return;
    if (__atomic_sub_fetch(&packer->refs, 1, __ATOMIC_ACQ_REL) > 0) return;
    EBK_ASSERT(packer->state.frames_out == 0);
    if (packer->open != NULL) ebk_block_unref(packer->open);
    while (packer->full_first != NULL) {
        struct ebk_block *block = packer->full_first;
        packer->full_first = block->next;
        ebk_block_unref(block);
    }
    ebk_packer_sums_free(packer->sums);
    free(packer);
}

const struct ebk_packer_state *ebk_packer_state(const struct ebk_packer *packer)
{
    return &packer->state;
}

/* In the child of a fork no thread will ever unlock what a thread of the parent held; nothing is done there anyway. */
static int try_take(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    return is_of_parent(packer) || ebk_lock_try(lock);
}

static void take(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    if (!is_of_parent(packer)) ebk_lock_take(lock);
}

static void give(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    if (!is_of_parent(packer)) ebk_lock_give(lock);
}

int ebk_packer_try_turn(struct ebk_packer *packer)
{
    return try_take(packer, &packer->turn);
}

void ebk_packer_take_turn(struct ebk_packer *packer)
{
    take(packer, &packer->turn);
}

void ebk_packer_end_turn(struct ebk_packer *packer)
{
    give(packer, &packer->turn);
}

int ebk_packer_try_lock(struct ebk_packer *packer)
{
    return try_take(packer, &packer->mutex);
}

void ebk_packer_lock(struct ebk_packer *packer)
{
    take(packer, &packer->mutex);
}

void ebk_packer_unlock(struct ebk_packer *packer)
{
    give(packer, &packer->mutex);
}

/* ---- append ----------------------------------------------------------------------- */

static void queue_full(struct ebk_packer *packer, int *should_wake)
{
    struct ebk_block *block = packer->open;
    EBK_ASSERT(block->count > 0 && block->used <= block->capacity);
    EBK_ASSERT((packer->full_first == NULL) == (packer->state.full_count == 0));
    if (packer->sums != NULL) ebk_packer_sums_mark(packer->sums, packer->state.next_entry - 1);
    packer->open = NULL;
    block->next = NULL;
    if (packer->full_first == NULL)
        packer->full_first = block;
    else
        packer->full_last->next = block;
    packer->full_last = block;
    if (packer->state.full_count == 0) *should_wake = 1;
    PUBLISH(packer, full_count, packer->state.full_count + 1);
    PUBLISH(packer, open_count, 0);
}

static void begin_frame(struct ebk_packer *packer, struct ebk_block *block, uint32_t begin)
{
    if (packer->sums != NULL) ebk_packer_sums_begin(packer->sums);
    block->begin = begin;
    block->used = begin;
}

/* Where an entry of `whole` bytes goes: the open block, after this. EBK_OK, or EBK_FULL. */
static int make_room(struct ebk_packer *packer, uint32_t whole, int is_again, int *should_wake)
{
    struct ebk_block *block = packer->open;
    if (block != NULL && block->count > 0) {
        if (whole <= block->capacity - block->used) return 0;
        queue_full(packer, should_wake);
    } else if (block != NULL) {
        const uint32_t note = (block->used + EBK_NOTE_ALIGN - 1) / EBK_NOTE_ALIGN * EBK_NOTE_ALIGN;
        const uint32_t begin = note + EBK_NOTE_BYTES;
        if (block->used <= block->capacity / 2 && begin + whole <= block->capacity) {
            begin_frame(packer, block, begin);
            return 0;
        }
        packer->open = NULL;
        ebk_block_unref(block);
    }
    const uint32_t least = EBK_NOTE_BYTES + whole;
    const uint32_t capacity = least > packer->block_bytes ? least : packer->block_bytes;
    block = is_again ? ebk_pool_take_beyond(capacity) : ebk_pool_take(capacity);
    if (block == NULL) return EBK_FULL;
    begin_frame(packer, block, EBK_NOTE_BYTES);
    packer->open = block;
    return 0;
}

/* ---- times -------------------------------------------------------------------------- */

void ebk_packer_begin_times(struct ebk_packer *packer, int64_t floor_ms, int is_told)
{
    ebk_packer_lock(packer);
    EBK_ASSERT(packer->written_ms <= packer->time_ms);
    packer->is_timed = 1;
    packer->is_told = is_told;
    if (floor_ms > packer->time_ms) packer->time_ms = floor_ms;
    ebk_packer_unlock(packer);
}

void ebk_packer_tell_time(struct ebk_packer *packer, int64_t now_ms)
{
    ebk_packer_lock(packer);
    if (now_ms > packer->time_ms) packer->time_ms = now_ms;
    ebk_packer_unlock(packer);
}

int64_t ebk_packer_time(struct ebk_packer *packer)
{
    ebk_packer_lock(packer);
    const int64_t time_ms = packer->time_ms;
    ebk_packer_unlock(packer);
    return time_ms;
}

/* The time for all entries that are appended under the mutex this time. It never goes back. */
static inline void look_at_clock(struct ebk_packer *packer)
{
    struct timespec now;
    if (!packer->is_timed || packer->is_told || clock_gettime(CLOCK_REALTIME, &now) != 0) return;
    const int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (now_ms > packer->time_ms) packer->time_ms = now_ms;
}

/* Bytes of the time that the next entry carries: one that is not the time of the entry before it, and of those that are,
 * each beyond which a search for a time must not have to look. */
static inline uint32_t time_size(const struct ebk_packer *packer, size_t size)
{
    if (!packer->is_timed) return 0;
    if (packer->time_ms == packer->written_ms && packer->state.next_entry % EBK_TIME_EVERY != 0 &&
        size < EBK_TIME_PAYLOAD_BYTES)
        return 0;
    return EBK_TIME_BYTES;
}

/* Attributes without those that the packer makes: what stands before the time, and behind it. Kinds ascend. */
struct attributes {
    const uint8_t *before, *behind;
    size_t before_size, behind_size;
};

static const struct attributes no_attributes = {(const uint8_t *)"", (const uint8_t *)"", 0, 0};

/* How many bytes from `at` on are sound attributes of the kinds up to this one. */
static size_t kinds_up_to(const uint8_t *attributes, size_t at, size_t size, uint8_t kind)
{
    const size_t begin = at;
    while (size - at >= EBK_ATTRIBUTE_HEADER_BYTES && attributes[at] <= kind) {
        const size_t whole = EBK_ATTRIBUTE_HEADER_BYTES + (size_t)ebk_load_u16(attributes + at + 2);
        if (whole > size - at) break;
        at += whole;
    }
    return at - begin;
}

/* Sound attributes without those of the kinds first..EBK_ATTRIBUTE_TIME, which are left out. */
static struct attributes part(const uint8_t *attributes, size_t size, uint8_t first)
{
    const size_t before = kinds_up_to(attributes, 0, size, first - 1);
    const size_t left_out = kinds_up_to(attributes, before, size, EBK_ATTRIBUTE_TIME);
    return (struct attributes){attributes, attributes + before + left_out, before, size - before - left_out};
}

/* ---- one entry ---------------------------------------------------------------------- */

/* Rare, so that the rest stays short. */
static __attribute__((noinline)) void write_time(uint8_t *to, const struct ebk_packer *packer)
{
    memset(to, 0, EBK_ATTRIBUTE_HEADER_BYTES);
    to[0] = EBK_ATTRIBUTE_TIME;
    ebk_store_u16(to + 2, EBK_ATTRIBUTE_TIME_BYTES);
    ebk_store_u64(to + EBK_ATTRIBUTE_HEADER_BYTES, (uint64_t)packer->time_ms);
}

static inline __attribute__((always_inline)) uint32_t write_entry(uint8_t *to, const struct ebk_packer *packer,
                                                                  const struct attributes *attributes,
                                                                  uint32_t time_bytes, const uint8_t *data,
                                                                  uint32_t size)
{
    const uint32_t attributes_all = (uint32_t)(attributes->before_size + attributes->behind_size) + time_bytes;
    const struct ebk_packer_state *state = &packer->state;
    memset(to, 0, EBK_ENTRY_AT_PAYLOAD_SIZE); /* no flags */
    to[EBK_ENTRY_AT_VERSION] = EBK_ENTRY_VERSION;
    ebk_store_u16(to + EBK_ENTRY_AT_ATTRIBUTES, (uint16_t)attributes_all);
    ebk_store_u32(to + EBK_ENTRY_AT_PAYLOAD_SIZE, attributes_all + size);
    ebk_store_u64(to + EBK_ENTRY_AT_LEDGER, packer->ledger_id);
    ebk_store_u64(to + EBK_ENTRY_AT_ENTRY, (uint64_t)state->next_entry);
    ebk_store_u64(to + EBK_ENTRY_AT_LENGTH, state->length + size);
    ebk_store_u64(to + EBK_ENTRY_AT_LAC, (uint64_t)state->lac);
    ebk_store_u64(to + EBK_ENTRY_AT_LAC_LENGTH, state->lac_length);
    uint8_t *at = to + EBK_ENTRY_HEADER_BYTES;
    memcpy(at, attributes->before, attributes->before_size);
    at += attributes->before_size;
    if (time_bytes != 0) write_time(at, packer);
    at += time_bytes;
    memcpy(at, attributes->behind, attributes->behind_size);
    memcpy(at + attributes->behind_size, data, size);
    const size_t checked = EBK_ENTRY_HEADER_BYTES + (size_t)attributes_all + size;
    const uint32_t crc = ebk_crc32c(0, to, checked);
    ebk_store_u32(to + checked, crc);
    return crc;
}

/* One more entry, for which the bounds have room. is_again: it counted for them before. Inline: a call of its own is
 * 6 % of an append of 100 B. */
static inline __attribute__((always_inline)) int64_t put_locked(struct ebk_packer *packer,
                                                                const struct attributes *attributes,
                                                                const uint8_t *data, size_t size, int is_again,
                                                                int *should_wake)
{
    const uint32_t time_bytes = time_size(packer, size);
    const size_t attributes_size = attributes->before_size + attributes->behind_size;
    const uint32_t whole = EBK_ENTRY_OVERHEAD_BYTES + time_bytes + (uint32_t)(attributes_size + size);
    const uint64_t unreleased = packer->state.unreleased_bytes;
    if (make_room(packer, whole, is_again, should_wake) != 0) return EBK_FULL;

    struct ebk_block *block = packer->open;
    EBK_ASSERT(whole <= block->capacity - block->used && block->begin <= block->used);
    const int64_t entry_id = packer->state.next_entry;
    const uint64_t length = packer->state.length + size;
    const uint32_t crc =
        write_entry(block->data + block->used, packer, attributes, time_bytes, data, (uint32_t)size);
    if (packer->sums != NULL) ebk_packer_sums_add(packer->sums, ebk_digest_of((uint64_t)entry_id, whole, crc));
    if (time_bytes != 0) packer->written_ms = packer->time_ms;
    if (block->count == 0) block->first_entry = entry_id;
    block->used += whole;
    block->count += 1;
    block->length = length;
    PUBLISH(packer, open_count, block->count);
    if (packer->state.full_count == 0 && block->count == packer->wanted) *should_wake = 1;
    PUBLISH(packer, unreleased_bytes, unreleased + whole);
    PUBLISH(packer, length, length);
    PUBLISH(packer, next_entry, entry_id + 1);
    return entry_id;
}

static int64_t append_locked(struct ebk_packer *packer, uint64_t caller, const struct attributes *attributes,
                             const uint8_t *data, size_t size, int *should_wake)
{
    const size_t attributes_size = attributes->before_size + attributes->behind_size;
    if (size > EBK_ENTRY_APPEND_BYTES_MAX || attributes_size > EBK_ENTRY_APPEND_BYTES_MAX - size) return EBK_USAGE;
    if (packer->state.is_stopped || is_of_parent(packer)) return EBK_FAILED;
    if (packer->held_by != 0 && packer->held_by != caller) return EBK_FULL;
    const uint64_t unreleased = packer->state.unreleased_bytes;
    /* The first entry always fits, however low the bound: else it never would. */
    if (unreleased > 0 && unreleased + EBK_ENTRY_OVERHEAD_BYTES + time_size(packer, size) + attributes_size + size >
                              packer->state.bytes_max)
        return EBK_FULL;
    return put_locked(packer, attributes, data, size, 0, should_wake);
}

int64_t ebk_packer_append_in_turn(struct ebk_packer *packer, const uint8_t *data, size_t size, int *should_wake)
{
    *should_wake = 0;
    ebk_packer_lock(packer);
    look_at_clock(packer);
    const int64_t entry_id = append_locked(packer, 0, &no_attributes, data, size, should_wake);
    ebk_packer_unlock(packer);
    return entry_id;
}

int64_t ebk_packer_append_with_in_turn(struct ebk_packer *packer, int64_t expected, const uint8_t *attributes,
                                       size_t attributes_size, const uint8_t *data, size_t size, int *should_wake)
{
    *should_wake = 0;
    if (attributes_size > UINT16_MAX - EBK_TIME_BYTES) return EBK_USAGE;
    const struct attributes parted = part(attributes, attributes_size, EBK_ATTRIBUTE_TIME);
    ebk_packer_lock(packer);
    look_at_clock(packer);
    int64_t entry_id = EBK_CONFLICT;
    /* A stopped packer returns that, whatever was expected. */
    EBK_ASSERT(parted.before_size + parted.behind_size <= attributes_size);
    if (expected < 0 || expected == packer->state.next_entry || packer->state.is_stopped || is_of_parent(packer))
        entry_id = append_locked(packer, 0, &parted, data, size, should_wake);
    ebk_packer_unlock(packer);
    return entry_id;
}

int64_t ebk_packer_append(struct ebk_packer *packer, const uint8_t *data, size_t size, int *should_wake)
{
    ebk_packer_take_turn(packer);
    const int64_t entry_id = ebk_packer_append_in_turn(packer, data, size, should_wake);
    ebk_packer_end_turn(packer);
    return entry_id;
}

/* Hold the packer for a caller that has begun and has more to append, as long as there is no room for it. */
static void note_rest(struct ebk_packer *packer, uint64_t caller, int64_t answer, uint64_t taken)
{
    const int is_callers = packer->held_by == caller;
    EBK_ASSERT(caller != 0);
    if (answer == EBK_FULL && (taken > 0 || is_callers))
        packer->held_by = caller;
    else if (answer >= 0 && is_callers)
        packer->held_by = 0;
}

/* In slices under the mutex. run: where the payloads lie one behind the other; NULL: each lies at its data. */
static int append_slices(struct ebk_packer *packer, uint64_t caller, const uint8_t *run,
                         const struct ebk_payloads *payloads, struct ebk_appended *out)
{
    int64_t answer = 0;
    *out = (struct ebk_appended){.first_entry = packer->state.next_entry};
    while (out->taken < payloads->count && answer >= 0) {
        size_t sliced = 0;
        ebk_packer_lock(packer);
        look_at_clock(packer);
        while (out->taken < payloads->count && sliced < SLICE_BYTES) {
            const uint64_t i = out->taken;
            const uint32_t size = payloads->sizes[i];
            struct attributes attributes = no_attributes;
            if (payloads->attributes != NULL)
                attributes = part(payloads->attributes[i], payloads->attribute_sizes[i], EBK_ATTRIBUTE_TIME);
            answer = append_locked(packer, caller, &attributes, run != NULL ? run : payloads->data[i], size,
                                   &out->should_wake);
            if (answer < 0) break;
            if (run != NULL) run += size;
            sliced += EBK_ENTRY_OVERHEAD_BYTES + size + attributes.before_size + attributes.behind_size;
            out->taken += 1;
        }
        if (caller != 0 && (answer < 0 || out->taken == payloads->count))
            note_rest(packer, caller, answer, out->taken);
        ebk_packer_unlock(packer);
    }
    EBK_ASSERT(out->taken <= payloads->count && (answer < 0 || out->taken == payloads->count));
    return answer < 0 ? (int)answer : 0;
}

int ebk_packer_append_each_in_turn(struct ebk_packer *packer, uint64_t caller, const struct ebk_payloads *payloads,
                                   struct ebk_appended *out)
{
    return append_slices(packer, caller, NULL, payloads, out);
}

int ebk_packer_append_rows_in_turn(struct ebk_packer *packer, uint64_t caller,
                                   const struct ebk_arrow_column *const *columns, uint64_t column_count,
                                   uint64_t begin, struct ebk_appended *out)
{
    int64_t answer = 0;
    uint64_t column = 0, row = begin;
    *out = (struct ebk_appended){.first_entry = packer->state.next_entry};
    for (; column < column_count && row >= columns[column]->count; column++) row -= columns[column]->count;
    while (column < column_count && answer >= 0) {
        size_t sliced = 0;
        ebk_packer_lock(packer);
        look_at_clock(packer);
        while (column < column_count && sliced < SLICE_BYTES) {
            uint32_t size, beside_size;
            const uint8_t *data = ebk_arrow_row(columns[column], row, &size);
            const uint8_t *beside = ebk_arrow_beside(columns[column], row, &beside_size);
            /* RECORDS stands behind the time. */
            const struct attributes attributes = {no_attributes.before, beside, 0, beside_size};
            answer = append_locked(packer, caller, &attributes, data, size, &out->should_wake);
            if (answer < 0) break;
            sliced += EBK_ENTRY_OVERHEAD_BYTES + size + beside_size;
            out->taken += 1;
            row += 1;
            for (; column < column_count && row == columns[column]->count; column++) row = 0;
        }
        if (answer < 0 || column == column_count) note_rest(packer, caller, answer, out->taken);
        ebk_packer_unlock(packer);
    }
    return answer < 0 ? (int)answer : 0;
}

void ebk_packer_give_up_rest_locked(struct ebk_packer *packer, uint64_t caller)
{
    if (packer->held_by == caller) packer->held_by = 0;
}

int ebk_packer_append_run(struct ebk_packer *packer, const uint8_t *data, size_t size, const uint32_t *sizes,
                          uint64_t count, struct ebk_appended *out)
{
    uint64_t sum = 0;
    uint32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        sum += sizes[i];
        if (sizes[i] > largest) largest = sizes[i];
    }
    *out = (struct ebk_appended){.first_entry = packer->state.next_entry};
    if (sum != size || largest > EBK_ENTRY_APPEND_BYTES_MAX) return EBK_USAGE;
    ebk_packer_take_turn(packer);
    const struct ebk_payloads payloads = {.sizes = sizes, .count = count};
    const int answer = append_slices(packer, 0, data, &payloads, out);
    ebk_packer_end_turn(packer);
    return answer;
}

/* The size of the whole entry at `entry`, of which `left` bytes are there; 0 where that is none. */
static size_t whole_entry(const uint8_t *entry, size_t left)
{
    if (left < EBK_ENTRY_OVERHEAD_BYTES) return 0;
    const uint32_t size = ebk_load_u32(entry + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (size > EBK_ENTRY_PAYLOAD_BYTES_MAX || ebk_load_u16(entry + EBK_ENTRY_AT_ATTRIBUTES) > size) return 0;
    const size_t whole = EBK_ENTRY_OVERHEAD_BYTES + (size_t)size;
    return whole <= left ? whole : 0;
}

int ebk_packer_append_again(struct ebk_packer *packer, const uint8_t *entries, size_t size, uint64_t begin,
                            uint64_t count, struct ebk_appended *out)
{
    int64_t answer = 0;
    uint64_t at = 0;
    ebk_packer_take_turn(packer);
    *out = (struct ebk_appended){.first_entry = packer->state.next_entry};
    while (out->taken < count && answer >= 0) {
        size_t sliced = 0;
        ebk_packer_lock(packer);
        look_at_clock(packer);
        if (packer->state.is_stopped || is_of_parent(packer)) answer = EBK_FAILED;
        while (answer >= 0 && out->taken < count && sliced < SLICE_BYTES) {
            const size_t whole = whole_entry(entries, size);
            if (whole == 0) {
                answer = EBK_USAGE;
                break;
            }
            if (at >= begin) {
                const size_t attributes_size = ebk_load_u16(entries + EBK_ENTRY_AT_ATTRIBUTES);
                const uint8_t *attributes = entries + EBK_ENTRY_HEADER_BYTES;
                const size_t data_size = whole - EBK_ENTRY_OVERHEAD_BYTES - attributes_size;
                /* Its time is made anew, as its place is: it is behind that of what stands before it there. And no tag
                 * comes along: it covers the place that the entry had, and this ledger has none (TwinPacker is for those
                 * that have). */
                const struct attributes parted = part(attributes, attributes_size, EBK_ATTRIBUTE_XXH3);
                answer = put_locked(packer, &parted, attributes + attributes_size, data_size, 1, &out->should_wake);
                if (answer < 0) break;
                out->taken += 1;
            }
            at += 1;
            entries += whole;
            size -= whole;
            sliced += whole;
        }
        ebk_packer_unlock(packer);
    }
    ebk_packer_end_turn(packer);
    return answer < 0 ? (int)answer : 0;
}

uint64_t ebk_packer_held_by(struct ebk_packer *packer)
{
    ebk_packer_lock(packer);
    const uint64_t caller = packer->held_by;
    ebk_packer_unlock(packer);
    return caller;
}

void ebk_packer_hold_for(struct ebk_packer *packer, uint64_t caller)
{
    ebk_packer_lock(packer);
    packer->held_by = caller;
    ebk_packer_unlock(packer);
}

/* ---- sums (P11.4) ----------------------------------------------------------------- */

int ebk_packer_begin_sums(struct ebk_packer *packer, uint32_t modulus)
{
    EBK_ASSERT(modulus > 0 && modulus <= EBK_SUMS_MODULUS_MAX);
    struct ebk_packer_sums *sums = ebk_packer_sums_new(modulus, 0);
    if (sums == NULL) return EBK_NO_MEMORY;
    ebk_packer_lock(packer);
    EBK_ASSERT(packer->sums == NULL && packer->state.next_entry == 0);
    packer->sums = sums;
    ebk_packer_unlock(packer);
    return EBK_OK;
}

static void rest_sums(struct ebk_packer *packer)
{
    if (packer->sums != NULL && packer->open == NULL && packer->full_first == NULL) ebk_packer_sums_rest(packer->sums);
}

static void pass_sums(struct ebk_packer *packer, int64_t done)
{
    if (packer->sums == NULL || is_of_parent(packer)) return;
    ebk_packer_sums_pass(packer->sums, done);
    rest_sums(packer);
}

uint32_t ebk_packer_sums_through(struct ebk_packer *packer, int64_t entry, uint64_t *by_residue)
{
    ebk_packer_lock(packer);
    const bool is_told =
        packer->sums != NULL && !is_of_parent(packer) && ebk_packer_sums_at(packer->sums, entry, by_residue);
    const uint32_t modulus = is_told ? packer->sums->modulus : 0;
    ebk_packer_unlock(packer);
    return modulus;
}

void ebk_packer_set_lac_locked(struct ebk_packer *packer, int64_t lac, uint64_t lac_length)
{
    EBK_ASSERT(lac < packer->state.next_entry);
    EBK_ASSERT(lac >= packer->state.lac);
    EBK_ASSERT(lac_length <= packer->state.length);
    EBK_ASSERT(lac_length >= packer->state.lac_length);
    PUBLISH(packer, lac, lac);
    PUBLISH(packer, lac_length, lac_length);
    pass_sums(packer, lac);
}

void ebk_packer_set_lac(struct ebk_packer *packer, int64_t lac, uint64_t lac_length)
{
    ebk_packer_lock(packer);
    ebk_packer_set_lac_locked(packer, lac, lac_length);
    ebk_packer_unlock(packer);
}

void ebk_packer_want(struct ebk_packer *packer, uint32_t count)
{
    if (packer->wanted == count) return;
    ebk_packer_lock(packer); /* Later appends see it; the caller sees earlier ones. */
    packer->wanted = count;
    ebk_packer_unlock(packer);
}

void ebk_packer_stop_locked(struct ebk_packer *packer)
{
    PUBLISH(packer, is_stopped, 1);
}

void ebk_packer_stop(struct ebk_packer *packer)
{
    ebk_packer_lock(packer);
    ebk_packer_stop_locked(packer);
    ebk_packer_unlock(packer);
}

/* ---- seal and release ------------------------------------------------------------- */

static struct note *note_of(uint8_t *body)
{
    return (struct note *)(void *)(body - EBK_NOTE_BYTES);
}

static int is_idle(const struct ebk_packer *packer)
{
    return packer->state.open_count == 0 && packer->state.full_count == 0;
}

int ebk_packer_seal_locked(struct ebk_packer *packer, struct ebk_packed *out)
{
    if (is_of_parent(packer) || is_idle(packer)) return 0;
    const int is_full = packer->full_first != NULL;
    struct ebk_block *block = is_full ? packer->full_first : packer->open;
    uint8_t *body = block->data + block->begin;
    const uint32_t size = block->used - block->begin;
    EBK_ASSERT(block->count > 0 && block->begin < block->used && block->used <= block->capacity);
    EBK_ASSERT(block->length <= packer->state.length);
    /* Dense, and nothing is behind the open one (P3.1). */
    EBK_ASSERT(block->first_entry + block->count <= packer->state.next_entry);
    EBK_ASSERT(is_full || block->first_entry + block->count == packer->state.next_entry);
    *note_of(body) = (struct note){.packer = packer, .block = block, .size = size, .out = 1};
    *out = (struct ebk_packed){
        .body = body,
        .size = size,
        .count = block->count,
        .first_entry = block->first_entry,
        .last_entry = block->first_entry + block->count - 1,
        .length = block->length,
    };
    block->count = 0;
    if (is_full) {
        packer->full_first = block->next; /* The packer's reference becomes the frame's. */
        PUBLISH(packer, full_count, packer->state.full_count - 1);
    } else {
        ebk_block_ref(block);
        if (packer->sums != NULL) ebk_packer_sums_mark(packer->sums, packer->state.next_entry - 1);
        PUBLISH(packer, open_count, 0);
    }
    EBK_ASSERT((packer->full_first == NULL) == (packer->state.full_count == 0));
    ebk_packer_ref(packer);
    PUBLISH(packer, frames_out, packer->state.frames_out + 1);
    EBK_ASSERT(out->size <= packer->state.unreleased_bytes && out->first_entry <= out->last_entry);
    return 1;
}

int ebk_packer_seal(struct ebk_packer *packer, struct ebk_packed *out)
{
    ebk_packer_lock(packer);
    const int found = ebk_packer_seal_locked(packer, out);
    ebk_packer_unlock(packer);
    return found;
}

int ebk_packer_seal_behind(struct ebk_packer *packer, int64_t done, struct ebk_packed *out)
{
    ebk_packer_lock(packer);
    pass_sums(packer, done);
    const int found = ebk_packer_seal_locked(packer, out);
    ebk_packer_unlock(packer);
    return found;
}

struct ebk_packer *ebk_packer_of(uint8_t *body)
{
    return note_of(body)->packer;
}

void ebk_packer_release_locked(struct ebk_packer *packer, uint8_t *body)
{
    struct note *note = note_of(body);
    if (is_of_parent(packer)) return;
    EBK_ASSERT(note->out > 0 && note->packer == packer);
    EBK_ASSERT(packer->state.frames_out > 0 && note->size <= packer->state.unreleased_bytes);
    if (__atomic_sub_fetch(&note->out, 1, __ATOMIC_ACQ_REL) > 0) return;
    PUBLISH(packer, unreleased_bytes, packer->state.unreleased_bytes - note->size);
    PUBLISH(packer, frames_out, packer->state.frames_out - 1);
    ebk_block_unref(note->block);
    EBK_ASSERT(packer->state.unreleased_bytes > 0 || is_idle(packer));
    if (packer->state.unreleased_bytes == 0 && packer->open != NULL) {
        ebk_block_unref(packer->open);
        packer->open = NULL;
    }
    rest_sums(packer);
}

uint64_t ebk_packer_ledger_of(uint8_t *body)
{
    EBK_ASSERT(note_of(body)->out > 0);
    return note_of(body)->packer->ledger_id;
}

void ebk_packer_retain(uint8_t *body)
{
    struct note *note = note_of(body);
    if (is_of_parent(note->packer)) return;
    EBK_ASSERT(note->out > 0);
    __atomic_add_fetch(&note->out, 1, __ATOMIC_RELAXED);
    ebk_packer_ref(note->packer); /* Each release gives one back. */
}

void *ebk_packer_hold(uint8_t *body)
{
    const struct note *note = note_of(body);
    EBK_ASSERT(note->out > 0);
    ebk_block_ref(note->block);
    return note->block;
}

void ebk_packer_let_go(void *held)
{
    ebk_block_unref(held);
}

void ebk_packer_release(uint8_t *body)
{
    struct ebk_packer *packer = ebk_packer_of(body);
    ebk_packer_lock(packer);
    ebk_packer_release_locked(packer, body);
    ebk_packer_unlock(packer);
    ebk_packer_unref(packer);
}
