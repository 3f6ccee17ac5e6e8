/* packer_append.c: the ways to append: one entry, many from anywhere, rows of columns, and what another packer made.
 *
 * It decides in which slices the mutex is taken, what stands in front of the time and behind it, and whose rest is
 * waited for when not all of a call found room. Each entry is packer_entry.c's.
 */
#include "wire/packer_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/arrow_column.h"
#include "wire/frame.h"

#include <time.h>

#define SLICE_BYTES (64u << 10) /* Appended before the host gets a chance to take the mutex. */

/* The time for all entries that are appended under the mutex this time. It never goes back. */
static inline void look_at_clock(struct ebk_packer *packer)
{
    struct timespec now;
    if (!packer->is_timed || packer->is_told || clock_gettime(CLOCK_REALTIME, &now) != 0) return;
    const int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    if (now_ms > packer->time_ms) packer->time_ms = now_ms;
}

static const struct packer_attributes no_attributes = {(const uint8_t *)"", (const uint8_t *)"", 0, 0};

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
static struct packer_attributes part(const uint8_t *attributes, size_t size, uint8_t first)
{
    const size_t before = kinds_up_to(attributes, 0, size, first - 1);
    const size_t left_out = kinds_up_to(attributes, before, size, EBK_ATTRIBUTE_TIME);
    return (struct packer_attributes){attributes, attributes + before + left_out, before, size - before - left_out};
}

int64_t ebk_packer_append_in_turn(struct ebk_packer *packer, const uint8_t *data, size_t size, int *should_wake)
{
    *should_wake = 0;
    packer_lock(packer);
    look_at_clock(packer);
    const int64_t entry_id = ebk_packer_append_locked(packer, 0, &no_attributes, data, size, should_wake);
    packer_unlock(packer);
    return entry_id;
}

int64_t ebk_packer_append_with_in_turn(struct ebk_packer *packer, int64_t expected, const uint8_t *attributes,
                                       size_t attributes_size, const uint8_t *data, size_t size, int *should_wake)
{
    *should_wake = 0;
    if (attributes_size > UINT16_MAX - EBK_TIME_BYTES) return EBK_USAGE;
    const struct packer_attributes parted = part(attributes, attributes_size, EBK_ATTRIBUTE_TIME);
    packer_lock(packer);
    look_at_clock(packer);
    int64_t entry_id = EBK_CONFLICT;
    /* A stopped packer returns that, whatever was expected. */
    EBK_ASSERT(parted.before_size + parted.behind_size <= attributes_size);
    if (expected < 0 || expected == packer->state.next_entry || packer->state.is_stopped || is_of_parent(packer))
        entry_id = ebk_packer_append_locked(packer, 0, &parted, data, size, should_wake);
    packer_unlock(packer);
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
        packer_lock(packer);
        look_at_clock(packer);
        while (out->taken < payloads->count && sliced < SLICE_BYTES) {
            const uint64_t i = out->taken;
            const uint32_t size = payloads->sizes[i];
            struct packer_attributes attributes = no_attributes;
            if (payloads->attributes != NULL)
                attributes = part(payloads->attributes[i], payloads->attribute_sizes[i], EBK_ATTRIBUTE_TIME);
            answer = ebk_packer_append_locked(packer, caller, &attributes, run != NULL ? run : payloads->data[i], size,
                                              &out->should_wake);
            if (answer < 0) break;
            if (run != NULL) run += size;
            sliced += EBK_ENTRY_OVERHEAD_BYTES + size + attributes.before_size + attributes.behind_size;
            out->taken += 1;
        }
        if (caller != 0 && (answer < 0 || out->taken == payloads->count))
            note_rest(packer, caller, answer, out->taken);
        packer_unlock(packer);
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
        packer_lock(packer);
        look_at_clock(packer);
        while (column < column_count && sliced < SLICE_BYTES) {
            uint32_t size, beside_size;
            const uint8_t *data = ebk_arrow_row(columns[column], row, &size);
            const uint8_t *beside = ebk_arrow_beside(columns[column], row, &beside_size);
            /* RECORDS stands behind the time. */
            const struct packer_attributes attributes = {no_attributes.before, beside, 0, beside_size};
            answer = ebk_packer_append_locked(packer, caller, &attributes, data, size, &out->should_wake);
            if (answer < 0) break;
            sliced += EBK_ENTRY_OVERHEAD_BYTES + size + beside_size;
            out->taken += 1;
            row += 1;
            for (; column < column_count && row == columns[column]->count; column++) row = 0;
        }
        if (answer < 0 || column == column_count) note_rest(packer, caller, answer, out->taken);
        packer_unlock(packer);
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
        packer_lock(packer);
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
                const struct packer_attributes parted = part(attributes, attributes_size, EBK_ATTRIBUTE_XXH3);
                answer = ebk_packer_append_again_locked(packer, &parted, attributes + attributes_size, data_size,
                                                        &out->should_wake);
                if (answer < 0) break;
                out->taken += 1;
            }
            at += 1;
            entries += whole;
            size -= whole;
            sliced += whole;
        }
        packer_unlock(packer);
    }
    ebk_packer_end_turn(packer);
    return answer < 0 ? (int)answer : 0;
}

uint64_t ebk_packer_held_by(struct ebk_packer *packer)
{
    packer_lock(packer);
    const uint64_t caller = packer->held_by;
    packer_unlock(packer);
    return caller;
}

void ebk_packer_hold_for(struct ebk_packer *packer, uint64_t caller)
{
    packer_lock(packer);
    packer->held_by = caller;
    packer_unlock(packer);
}
