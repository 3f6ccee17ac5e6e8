/* packer.c: the life of a packer, its turns and locks, its times and sums; and frames that are sealed and released.
 *
 * A release finds everything in the note: no table, no allocation per frame. What is appended, and where a frame ends
 * because it is full, is decided by packer_append.c and packer_entry.c.
 */
#include "wire/packer_inside.h"

#include "base/errors.h"

#include <stdbool.h>
#include <stdlib.h>

#define LAC_NONE (-1)
#define TIME_NONE (-1)

struct note {
    struct ebk_packer *packer;
    struct ebk_block *block;
    uint32_t size;
    uint32_t out; /* references to a frame that was taken; 0: it is released */
};
_Static_assert(sizeof(struct note) <= EBK_NOTE_BYTES, "a note fits in front of its frame");

/* ---- life ------------------------------------------------------------------------- */

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

int ebk_packer_try_turn(struct ebk_packer *packer)
{
    return packer_try(packer, &packer->turn);
}

void ebk_packer_take_turn(struct ebk_packer *packer)
{
    packer_take(packer, &packer->turn);
}

void ebk_packer_end_turn(struct ebk_packer *packer)
{
    packer_give(packer, &packer->turn);
}

int ebk_packer_try_lock(struct ebk_packer *packer)
{
    return packer_try(packer, &packer->mutex);
}

void ebk_packer_lock(struct ebk_packer *packer)
{
    packer_lock(packer);
}

void ebk_packer_unlock(struct ebk_packer *packer)
{
    packer_unlock(packer);
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
