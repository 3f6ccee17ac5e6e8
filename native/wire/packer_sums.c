/* packer_sums.c: see packer_sums.h. */
#include "wire/packer_sums.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *mark_at(const struct ebk_packer_sums *sums, uint32_t place)
{
    EBK_ASSERT(place < sums->mark_count);
    return sums->marks + ((sums->mark_first + place) & (sums->marks_room - 1)) * (size_t)(1 + sums->modulus);
}

static uint64_t *base_of(struct ebk_packer_sums *sums)
{
    return sums->sums + sums->modulus;
}

struct ebk_packer_sums *ebk_packer_sums_new(uint32_t modulus, int64_t next_entry)
{
    EBK_ASSERT(modulus > 0 && next_entry >= 0);
    struct ebk_packer_sums *sums = calloc(1, sizeof *sums + 2 * (size_t)modulus * sizeof *sums->sums);
    if (sums == NULL) return NULL;
    sums->modulus = modulus;
    sums->residue = (uint32_t)((uint64_t)next_entry % modulus);
    sums->base_entry = next_entry - 1;
    return sums;
}

void ebk_packer_sums_free(struct ebk_packer_sums *sums)
{
    if (sums == NULL) return;
    free(sums->marks);
    free(sums);
}

static bool widen(struct ebk_packer_sums *sums)
{
    const uint32_t room = sums->marks_room == 0 ? EBK_SUMS_MARKS_MIN : 2 * sums->marks_room;
    const size_t row = 1 + sums->modulus;
    uint64_t *wider = malloc(room * row * sizeof *wider);
    if (wider == NULL) return false;
    for (uint32_t place = 0; place < sums->mark_count; place++)
        memcpy(wider + place * row, mark_at(sums, place), row * sizeof *wider);
    free(sums->marks);
    sums->marks = wider;
    sums->mark_first = 0;
    sums->marks_room = room;
    return true;
}

void ebk_packer_sums_mark(struct ebk_packer_sums *sums, int64_t last_entry)
{
    EBK_ASSERT(last_entry > sums->base_entry);
    if (sums->is_broken) return;
    if (sums->mark_count == sums->marks_room && !widen(sums)) {
        sums->is_broken = 1;
        return;
    }
    sums->mark_count += 1;
    uint64_t *const mark = mark_at(sums, sums->mark_count - 1);
    EBK_ASSERT(sums->mark_count == 1 || (int64_t)*mark_at(sums, sums->mark_count - 2) < last_entry);
    mark[0] = (uint64_t)last_entry;
    memcpy(mark + 1, sums->sums, sums->modulus * sizeof *sums->sums);
}

void ebk_packer_sums_pass(struct ebk_packer_sums *sums, int64_t entry)
{
    while (sums->mark_count > 0 && (int64_t)*mark_at(sums, 0) <= entry) {
        const uint64_t *const mark = mark_at(sums, 0);
        sums->base_entry = (int64_t)mark[0];
        memcpy(base_of(sums), mark + 1, sums->modulus * sizeof *sums->sums);
        sums->mark_count -= 1;
        sums->mark_first = (sums->mark_first + 1) & (sums->marks_room - 1);
    }
}

bool ebk_packer_sums_at(struct ebk_packer_sums *sums, int64_t entry, uint64_t *by_residue)
{
    ebk_packer_sums_pass(sums, entry);
    if (sums->is_broken || sums->base_entry != entry) return false;
    memcpy(by_residue, base_of(sums), sums->modulus * sizeof *by_residue);
    return true;
}

void ebk_packer_sums_rest(struct ebk_packer_sums *sums)
{
    if (sums->mark_count > 0) return;
    free(sums->marks);
    sums->marks = NULL;
    sums->mark_first = sums->marks_room = 0;
}
