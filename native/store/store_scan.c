/* store_scan.c: entries of a log that no index locates, found by their own headers (ST13). For
 * rescue, not for speed.
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

/* Whether an entry with these ids can stand in the hole. */
static bool belongs(const struct ebk_hole *hole, uint64_t ledger_id, int64_t id)
{
    if (ledger_id < hole->ledger_before || (ledger_id == hole->ledger_before && id <= hole->id_before)) return false;
    return ledger_id < hole->ledger_behind || (ledger_id == hole->ledger_behind && id < hole->id_behind);
}

/* Whole size of a valid entry at `at`, or 0. */
static uint32_t valid_entry(const struct ebk_hole *hole, const uint8_t *at, const uint8_t *end)
{
    struct ebk_frame_facts facts;
    if ((size_t)(end - at) < EBK_ENTRY_OVERHEAD_BYTES || at[EBK_ENTRY_AT_VERSION] != EBK_ENTRY_VERSION) return 0;
    const uint64_t size = EBK_ENTRY_OVERHEAD_BYTES + (uint64_t)ebk_load_u32(at + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (size > EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX || size > (uint64_t)(end - at)) return 0;
    if (ebk_frame_scan(at, size, &facts) != EBK_FRAME_SOUND) return 0;
    return belongs(hole, facts.ledger_id, facts.first_entry) ? (uint32_t)size : 0;
}

/* One run per entry: the scan is for rescue, not for speed. */
static int add_scanned(struct ebk_store *store, struct ebk_log *log, const uint8_t *entry, uint32_t size,
                       uint64_t offset)
{
    const int64_t id = ebk_cache_entry_id(entry);
    const struct ebk_run run = {.first = id, .last = id, .offset = offset, .residues = 1, .coded = log->index,
                                .log = log, .bytes = size, .count = 1, .modulus = 1, .sizes_equal = 1};
    return ebk_index_add(&store->index, ebk_load_u64(entry + EBK_ENTRY_AT_LEDGER), &run);
}

/* Where a run of valid entries that begins at `at` ends. */
static const uint8_t *end_of_valid(const struct ebk_hole *hole, const uint8_t *at, const uint8_t *end)
{
    for (uint32_t size; at < end && (size = valid_entry(hole, at, end)) > 0;) at += size;
    return at;
}

/* The first place at or above `at` from where valid entries fill everything up to `end`; `end` when there is none.
 * Nothing less is believed: a payload may hold entries itself, and those are not this bookie's. */
static const uint8_t *find_tail(const struct ebk_hole *hole, const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at++) {
        const uint8_t *ended = end_of_valid(hole, at, end);
        if (ended == end) return at;
        at = ended; /* No start between the two does better: they would end at the same place. */
    }
    return end;
}

static int add_range(struct ebk_store *store, struct ebk_log *log, uint64_t offset, const uint8_t *at, const uint8_t *end,
                     uint64_t *count)
{
    while (at < end) {
        const uint32_t size = ebk_cache_entry_size(at);
        if (add_scanned(store, log, at, size, offset) < 0) return EBK_NO_MEMORY;
        at += size;
        offset += size;
        *count += 1;
    }
    return EBK_OK;
}

/* An entry that a misdirected write has put over others is valid too, but it is out of order, or the number of all is
 * wrong. */
static bool is_in_order(const uint8_t *at, const uint8_t *end)
{
    uint64_t ledger_before = 0;
    int64_t id_before = -1;
    for (; at < end; at += ebk_cache_entry_size(at)) {
        const uint64_t ledger = ebk_load_u64(at + EBK_ENTRY_AT_LEDGER);
        const int64_t id = ebk_cache_entry_id(at);
        if (ledger < ledger_before || (ledger == ledger_before && id <= id_before)) return false;
        ledger_before = ledger;
        id_before = id;
    }
    return true;
}

static int scan_bytes(struct ebk_store *store, struct ebk_log *log, struct ebk_hole *hole, const uint8_t *bytes,
                      uint64_t have, uint64_t *count)
{
    const uint8_t *end = bytes + have, *good = end_of_valid(hole, bytes, end), *tail = end;
    const bool is_whole = have == hole->end - hole->begin;
    if (is_whole && good < end) tail = find_tail(hole, good, end);
    hole->is_filled = is_whole && good == end && is_in_order(bytes, end);
    if (!hole->is_filled)
        ebk_store_tell(store, log, "at offset %llu: %llu bytes of its entries are damaged or cut off, and no index says what "
               "they were: what is not found elsewhere is unreadable",
               (unsigned long long)(hole->begin + (uint64_t)(good - bytes)),
               (unsigned long long)(hole->end - hole->begin - (uint64_t)(good - bytes) - (uint64_t)(end - tail)));
    if (add_range(store, log, hole->begin, bytes, good, count) < 0) return EBK_NO_MEMORY;
    return add_range(store, log, hole->begin + (uint64_t)(tail - bytes), tail, end, count);
}

int ebk_store_scan_hole(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log,
                        struct ebk_hole *hole, uint64_t *count)
{
    const uint64_t size = hole->end - hole->begin;
    uint64_t have = source->size > hole->begin ? source->size - hole->begin : 0;
    if (have > size) have = size;
    uint8_t *bytes = malloc(have + 1);
    if (bytes == NULL) return EBK_NO_MEMORY;
    ebk_log_read_blocks(source, bytes, have, hole->begin);
    const int refused = scan_bytes(store, log, hole, bytes, have, count);
    free(bytes);
    return refused;
}
