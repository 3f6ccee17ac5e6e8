/* packer_entry.c: one entry, made in the block from which it is sent.
 *
 * It decides whether the bounds and the open block have room for an entry, where a frame ends because they have not,
 * whether the entry carries its time (P8.11), and its bytes. What is appended is packer_append.c's.
 */
#include "wire/packer_inside.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "wire/entry_digest.h"
#include "wire/frame.h"

/* ---- room ------------------------------------------------------------------------- */

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

/* ---- one entry ---------------------------------------------------------------------- */

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

/* Rare, so that the rest stays short. */
static __attribute__((noinline)) void write_time(uint8_t *to, const struct ebk_packer *packer)
{
    memset(to, 0, EBK_ATTRIBUTE_HEADER_BYTES);
    to[0] = EBK_ATTRIBUTE_TIME;
    ebk_store_u16(to + 2, EBK_ATTRIBUTE_TIME_BYTES);
    ebk_store_u64(to + EBK_ATTRIBUTE_HEADER_BYTES, (uint64_t)packer->time_ms);
}

static inline __attribute__((always_inline)) uint32_t write_entry(uint8_t *to, const struct ebk_packer *packer,
                                                                  const struct packer_attributes *attributes,
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
                                                                const struct packer_attributes *attributes,
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

int64_t ebk_packer_append_locked(struct ebk_packer *packer, uint64_t caller,
                                 const struct packer_attributes *attributes, const uint8_t *data, size_t size,
                                 int *should_wake)
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

int64_t ebk_packer_append_again_locked(struct ebk_packer *packer, const struct packer_attributes *attributes,
                                       const uint8_t *data, size_t size, int *should_wake)
{
    return put_locked(packer, attributes, data, size, 1, should_wake);
}
