/* store_scan.c: the entries of a log whose index is lost, found by what each says of itself (ST13). For rescue, not for
 * speed.
 */
#include "store_inside.h"

#include "bytes.h"
#include "errors.h"
#include "frame.h"

#include <stdlib.h>
#include <string.h>

/* Whole size of a valid entry at `at`, or 0. */
static uint32_t valid_entry(const uint8_t *at, const uint8_t *end)
{
    struct ebk_frame_facts facts;
    if ((size_t)(end - at) < EBK_ENTRY_OVERHEAD_BYTES || at[EBK_ENTRY_AT_VERSION] != EBK_ENTRY_VERSION) return 0;
    const uint64_t size = EBK_ENTRY_OVERHEAD_BYTES + (uint64_t)ebk_load_u32(at + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (size > EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX || size > (uint64_t)(end - at)) return 0;
    return ebk_frame_scan(at, size, &facts) == EBK_FRAME_SOUND ? (uint32_t)size : 0;
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
static const uint8_t *end_of_valid(const uint8_t *at, const uint8_t *end)
{
    for (uint32_t size; at < end && (size = valid_entry(at, end)) > 0;) at += size;
    return at;
}

/* The first place at or above `at` from where valid entries fill everything up to `end`; `end` when there is none.
 * Nothing less is believed: a payload may hold entries itself, and those are not this bookie's. */
static const uint8_t *find_tail(const uint8_t *at, const uint8_t *end)
{
    for (; at < end; at++) {
        const uint8_t *ended = end_of_valid(at, end);
        if (ended == end) return at;
        at = ended; /* No start between the two does better: they would end at the same place. */
    }
    return end;
}

static int add_range(struct ebk_store *store, struct ebk_log *log, const uint8_t *bytes, const uint8_t *at,
                     const uint8_t *end, uint64_t *count)
{
    while (at < end) {
        const uint32_t size = ebk_cache_entry_size(at);
        const uint64_t offset = ebk_entries_offset(&log->descriptor) + (uint64_t)(at - bytes);
        if (add_scanned(store, log, at, size, offset) < 0) return EBK_NO_MEMORY;
        at += size;
        *count += 1;
    }
    return EBK_OK;
}

/* Whether these are all the entries of the log in their order: then what is not among them was never in it. An entry
 * that a misdirected write has put over others is valid too, but it is out of order, or the number is wrong. */
static bool is_complete(const struct ebk_log *log, const uint8_t *at, const uint8_t *end)
{
    uint64_t count = 0, ledger_before = 0;
    int64_t id_before = -1;
    for (; at < end; at += ebk_cache_entry_size(at), count++) {
        const uint64_t ledger = ebk_load_u64(at + EBK_ENTRY_AT_LEDGER);
        const int64_t id = ebk_cache_entry_id(at);
        if (count > 0 && (ledger < ledger_before || (ledger == ledger_before && id <= id_before))) return false;
        ledger_before = ledger;
        id_before = id;
    }
    return count == log->descriptor.entry_count;
}

static int scan_bytes(struct ebk_store *store, struct ebk_log *log, const uint8_t *bytes, size_t have)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint8_t *end = bytes + have, *good = end_of_valid(bytes, end), *tail = end;
    const bool is_whole = have == descriptor->entries_size;
    if (is_whole && good < end) tail = find_tail(good, end);
    if (!is_whole || good < end || !is_complete(log, bytes, end)) {
        ebk_store_tell(store, log, "at offset %llu: %llu bytes of its entries are damaged or cut off, and no index says what "
               "they were: what is not found elsewhere is unreadable",
               (unsigned long long)(ebk_entries_offset(descriptor) + (uint64_t)(good - bytes)),
               (unsigned long long)(descriptor->entries_size - (uint64_t)(good - bytes) - (uint64_t)(end - tail)));
        store->is_dark = true;
    }
    uint64_t count = 0;
    if (add_range(store, log, bytes, bytes, good, &count) < 0) return EBK_NO_MEMORY;
    if (add_range(store, log, bytes, tail, end, &count) < 0) return EBK_NO_MEMORY;
    ebk_store_tell(store, log, "at offset %llu: the index is damaged or cut off; %llu of %llu entries were found by a scan",
           (unsigned long long)ebk_index_offset(descriptor), (unsigned long long)count,
           (unsigned long long)descriptor->entry_count);
    return EBK_OK;
}

int ebk_store_scan_entries(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log)
{
    const uint64_t begin = ebk_entries_offset(&log->descriptor);
    uint64_t have = source->size > begin ? source->size - begin : 0;
    if (have > log->descriptor.entries_size) have = log->descriptor.entries_size;
    uint8_t *bytes = malloc(have + 1);
    if (bytes == NULL) return EBK_NO_MEMORY;
    memset(bytes, 0, have); /* What cannot be read looks like damage. */
    for (uint64_t done = 0; done < have; done += EBK_LOG_BLOCK_BYTES) {
        const uint64_t part = have - done < EBK_LOG_BLOCK_BYTES ? have - done : EBK_LOG_BLOCK_BYTES;
        if (!ebk_log_read_whole(source, bytes + done, part, begin + done)) memset(bytes + done, 0, part);
    }
    const int refused = scan_bytes(store, log, bytes, have);
    free(bytes);
    return refused;
}
