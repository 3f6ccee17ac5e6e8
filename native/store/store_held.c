/* store_held.c: which entries of a range are held, and the digests of those (STORAGE.md section 3).
 *
 *     index: whole runs ──their own digests──▶ + ┐
 *     write cache ──the CRC of each entry────▶ + ├─▶ one sum for each residue that was asked for
 *     parts of runs ──read, each checked─────▶ + ┘   (as far as bytes_max allows; beyond, it is not told)
 */
#include "store/store_reading.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/entry_digest.h"

#include <stdlib.h>

/* Ids of first..last with their bit in residues. */
static uint64_t count_asked(int64_t first, int64_t last, uint32_t modulus, uint64_t residues)
{
    const uint64_t ids = (uint64_t)(last - first) + 1;
    uint64_t asked = 0;
    for (uint32_t i = 0; i < modulus && i < ids; i++)
        if (residues >> (((uint64_t)first + i) % modulus) & 1u) asked += (ids - 1 - i) / modulus + 1;
    return asked;
}

static void add_lacking(struct ebk_held *held, int64_t first, int64_t last, uint32_t modulus, uint64_t residues)
{
    if (first > last || held->lacking_count == EBK_LACKING_MAX) return;
    if (count_asked(first, last, modulus, residues) == 0) return;
    held->lacking[2 * held->lacking_count] = first;
    held->lacking[2 * held->lacking_count + 1] = last;
    held->lacking_count += 1;
}

int ebk_store_held(const struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, uint32_t modulus,
                   uint64_t residues, struct ebk_held *held)
{
    EBK_ASSERT(first >= 0 && modulus >= 1 && modulus <= EBK_MODULUS_MAX);
    struct reading reading = {.store = (struct ebk_store *)store, .ledger_id = ledger_id};
    held->count = held->lacking_count = 0;
    if (first > last) return EBK_OK;
    if (ebk_reading_open(&reading, first, last) < 0) return EBK_NO_MEMORY;
    int64_t expected = first;
    struct ebk_cursor *cursor;
    while ((cursor = ebk_reading_lowest(&reading)) != NULL && cursor->id <= last) {
        const int64_t id = cursor->id, end = ebk_cursor_block_last(cursor);
        add_lacking(held, expected, id - 1, modulus, residues);
        held->count += count_asked(id, end < last ? end : last, modulus, residues);
        if (end >= last) break;
        ebk_cursor_pass_block(cursor);
        for (uint32_t i = 0; i < reading.cursor_count; i++)
            while (ebk_cursor_has(&reading.cursors[i]) && reading.cursors[i].id <= end)
                ebk_cursor_next(&reading.cursors[i]);
        expected = end + 1;
    }
    if (cursor == NULL || cursor->id > last) add_lacking(held, expected, last, modulus, residues);
    free(reading.cursors);
    return EBK_OK;
}

/* ---- digests -------------------------------------------------------------------------- */

struct summing {
    struct reading reading;
    struct ebk_sums *sums;
    uint32_t modulus;
    uint64_t residues;
    size_t bytes_max;
    bool is_over; /* more would have to be read than is allowed, or can be now */
};

static bool is_asked(const struct summing *summing, int64_t id)
{
    return summing->residues >> ((uint64_t)id % summing->modulus) & 1u;
}

/* Residues that were asked for have their sums in ascending order. */
static void add(struct summing *summing, int64_t id, uint64_t digest)
{
    const uint32_t residue = (uint32_t)((uint64_t)id % summing->modulus);
    const uint64_t before = summing->residues & ((UINT64_C(1) << residue) - 1);
    summing->sums->digests[__builtin_popcountll(before)] += digest;
}

/* Whether so many bytes more may be read; one entry always may. */
static bool may_read(const struct summing *summing, uint64_t size)
{
    const uint64_t read = summing->sums->bytes_read + summing->reading.size;
    return read + size <= summing->bytes_max;
}

/* Read the pieces and add their digests; entries that differ from their index are named instead. */
static int read_pieces(struct summing *summing)
{
    struct reading *reading = &summing->reading;
    struct ebk_sums *sums = summing->sums;
    uint8_t *bytes = malloc(reading->size + 1);
    if (bytes == NULL) return EBK_NO_MEMORY;
    ebk_reading_fetch(reading, bytes);
    const uint8_t *at = bytes;
    for (uint32_t i = 0; i < reading->piece_count; i++) {
        const struct ebk_piece *piece = &reading->store->pieces[i];
        struct ebk_frame_facts facts;
        if (ebk_piece_is_entry(at, piece, reading->ledger_id, &facts)) add(summing, piece->id, ebk_entry_digest(at, piece->size));
        else if (piece->is_want) summing->is_over = true;
        else if (sums->bad_count < EBK_BAD_MAX) sums->bad[sums->bad_count++] = piece->id;
        at += piece->size;
    }
    sums->bytes_read += reading->size;
    free(bytes);
    return EBK_OK;
}

/* Make the digests of a run that has none known, from its bytes; they stay where the run has room for them. False when it
 * is too large to be read now, or not all of it can be believed. */
static bool sum_run(struct summing *summing, const struct ebk_run *run)
{
    struct ebk_store *store = summing->reading.store;
    uint64_t digests[EBK_RUN_DIGESTS_MAX] = {0};
    if (run->digests == NULL || !may_read(summing, run->bytes)) return false;
    uint8_t *bytes = malloc(run->bytes);
    const int file = ebk_store_log_file(store, run->log);
    bool is_sound = bytes != NULL && file >= 0 &&
                    store->io->read(store->io, file, bytes, run->bytes, run->offset) == (int64_t)run->bytes;
    struct ebk_cursor cursor;
    for (ebk_cursor_over_runs(&cursor, run, 1, run->first); is_sound && ebk_cursor_has(&cursor); ebk_cursor_next(&cursor)) {
        const struct ebk_piece piece = {.id = cursor.id, .size = cursor.size};
        const uint8_t *entry = bytes + (cursor.offset - run->offset);
        struct ebk_frame_facts facts;
        is_sound = ebk_piece_is_entry(entry, &piece, summing->reading.ledger_id, &facts);
        if (is_sound) digests[ebk_run_digest_of(run, cursor.id)] += ebk_entry_digest(entry, cursor.size);
    }
    free(bytes);
    if (!is_sound) return false; /* Entry by entry, then. */
    summing->sums->bytes_read += run->bytes;
    for (uint32_t i = 0; i < ebk_run_digest_count(run->modulus, run->residues); i++)
        ebk_store_u64(run->digests + 8 * i, digests[i]);
    ((uint8_t *)run->coded)[EBK_RUN_AT_SUMMED - (int)EBK_LOG_RUN_BYTES] = 1;
    return true;
}

/* Add the digests of the whole run in which the cursor stands. False where that would not be what was asked: no other place
 * may have an id of it, none of it may be beyond what was asked, and it must tell apart the residues that are. */
static bool add_run(struct summing *summing, const struct ebk_cursor *cursor, int64_t last)
{
    const struct reading *reading = &summing->reading;
    if (cursor->spans != NULL || cursor->ordinal > 0) return false;
    const struct ebk_run *run = &cursor->runs[cursor->at];
    if (run->last > last) return false;
    if (summing->modulus > 1 && (run->modulus == 0 || run->modulus % summing->modulus != 0)) return false;
    for (uint32_t i = 0; i < reading->cursor_count; i++) {
        const struct ebk_cursor *other = &reading->cursors[i];
        if (other != cursor && ebk_cursor_has(other) && other->id <= run->last) return false;
    }
    if (!ebk_run_is_summed(run) && !sum_run(summing, run)) return false;
    uint64_t left = run->modulus == 0 ? 1 : run->residues;
    for (uint32_t i = 0; left != 0; i++, left &= left - 1) {
        const int64_t residue = __builtin_ctzll(left);
        if (is_asked(summing, residue)) add(summing, residue, ebk_load_u64(run->digests + 8 * i));
    }
    return true;
}

static int add_entry(struct summing *summing, const struct ebk_cursor *cursor, bool by_bytes)
{
    struct reading *reading = &summing->reading;
    if (cursor->entry != NULL && !by_bytes) {
        add(summing, cursor->id, ebk_entry_digest(cursor->entry, cursor->size));
        return EBK_OK;
    }
    const bool is_first = reading->piece_count == 0 && summing->sums->bytes_read == 0;
    if (!is_first && !may_read(summing, cursor->size)) {
        summing->is_over = true;
        return EBK_OK;
    }
    return ebk_reading_add_piece(reading, cursor);
}

int ebk_store_sum(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, uint32_t modulus,
                  uint64_t residues, size_t bytes_max, bool by_bytes, struct ebk_sums *sums)
{
    EBK_ASSERT(first >= 0 && modulus >= 1 && modulus <= EBK_MODULUS_MAX);
    struct summing summing = {.reading = {.store = store, .ledger_id = ledger_id}, .sums = sums, .modulus = modulus,
                              .residues = residues, .bytes_max = bytes_max};
    struct reading *reading = &summing.reading;
    *sums = (struct ebk_sums){.is_told = true};
    if (first > last) return EBK_OK;
    int refused = ebk_reading_open(reading, first, last);
    struct ebk_cursor *cursor;
    while (refused == EBK_OK && !summing.is_over && (cursor = ebk_reading_lowest(reading)) != NULL && cursor->id <= last) {
        const int64_t id = cursor->id;
        if (!by_bytes && add_run(&summing, cursor, last)) {
            ebk_cursor_pass_run(cursor);
            continue;
        }
        if (is_asked(&summing, id)) refused = add_entry(&summing, cursor, by_bytes);
        for (uint32_t i = 0; i < reading->cursor_count; i++)
            while (ebk_cursor_has(&reading->cursors[i]) && reading->cursors[i].id == id)
                ebk_cursor_next(&reading->cursors[i]);
    }
    free(reading->cursors);
    if (refused == EBK_OK && !summing.is_over && reading->piece_count > 0) refused = read_pieces(&summing);
    sums->is_told = refused == EBK_OK && !summing.is_over && sums->bad_count == 0;
    return refused;
}
