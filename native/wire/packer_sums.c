/* packer_sums.c: see packer_sums.h. */
#include "wire/packer_sums.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *row_at(const struct ebk_packer_sums *sums, uint32_t place)
{
    EBK_ASSERT(place < sums->row_count && sums->row_count <= sums->rows_room);
    return sums->rows + ((sums->row_first + place) & (sums->rows_room - 1)) * (size_t)(1 + sums->modulus);
}

struct ebk_packer_sums *ebk_packer_sums_new(uint32_t modulus, int64_t next_entry)
{
    EBK_ASSERT(modulus > 0 && modulus <= UINT8_MAX && next_entry >= 0);
    struct ebk_packer_sums *sums = calloc(1, sizeof *sums + modulus * sizeof *sums->now);
    if (sums == NULL) return NULL;
    sums->modulus = (uint8_t)modulus;
    sums->residue = (uint8_t)((uint64_t)next_entry % modulus);
    sums->done_entry = next_entry - 1;
    return sums;
}

void ebk_packer_sums_free(struct ebk_packer_sums *sums)
{
    if (sums == NULL) return;
    free(sums->rows);
    free(sums);
}

static bool widen(struct ebk_packer_sums *sums)
{
    const uint32_t room = sums->rows_room == 0 ? EBK_SUMS_ROWS_MIN : 2 * sums->rows_room;
    const size_t row = 1 + sums->modulus;
    uint64_t *wider = malloc(room * row * sizeof *wider);
    if (wider == NULL) return false;
    for (uint32_t place = 0; place < sums->row_count; place++)
        memcpy(wider + place * row, row_at(sums, place), row * sizeof *wider);
    free(sums->rows);
    sums->rows = wider;
    sums->row_first = 0;
    sums->rows_room = room;
    return true;
}

static void push(struct ebk_packer_sums *sums, int64_t last_entry)
{
    if (sums->is_broken) return;
    if (sums->row_count == sums->rows_room && !widen(sums)) {
        sums->is_broken = 1;
        return;
    }
    sums->row_count += 1;
    uint64_t *const row = row_at(sums, sums->row_count - 1);
    row[0] = (uint64_t)last_entry;
    memcpy(row + 1, sums->now, sums->modulus * sizeof *sums->now);
}

void ebk_packer_sums_begin(struct ebk_packer_sums *sums)
{
    if (sums->row_count == 0) push(sums, sums->done_entry);
    EBK_ASSERT(sums->is_broken || (int64_t)*row_at(sums, 0) == sums->done_entry);
}

void ebk_packer_sums_mark(struct ebk_packer_sums *sums, int64_t last_entry)
{
    EBK_ASSERT(last_entry > sums->done_entry);
    EBK_ASSERT(sums->is_broken || (int64_t)*row_at(sums, sums->row_count - 1) < last_entry);
    push(sums, last_entry);
}

void ebk_packer_sums_pass(struct ebk_packer_sums *sums, int64_t entry)
{
    while (sums->row_count > 1 && (int64_t)*row_at(sums, 1) <= entry) {
        sums->done_entry = (int64_t)*row_at(sums, 1);
        sums->row_count -= 1;
        sums->row_first = (sums->row_first + 1) & (sums->rows_room - 1);
    }
}

bool ebk_packer_sums_at(struct ebk_packer_sums *sums, int64_t entry, uint64_t *by_residue)
{
    ebk_packer_sums_pass(sums, entry);
    if (sums->is_broken || sums->done_entry != entry) return false;
    const uint64_t *const done = sums->row_count > 0 ? row_at(sums, 0) + 1 : sums->now;
    memcpy(by_residue, done, sums->modulus * sizeof *by_residue);
    return true;
}

void ebk_packer_sums_rest(struct ebk_packer_sums *sums)
{
    if (sums->row_count != 1) return;
    EBK_ASSERT(sums->is_broken || memcmp(row_at(sums, 0) + 1, sums->now, sums->modulus * sizeof *sums->now) == 0);
    free(sums->rows);
    sums->rows = NULL;
    sums->row_count = sums->row_first = sums->rows_room = 0;
}
