/* store_scan.c: entries of a log that no index locates, found by their own headers (ST13), in slices. For rescue, not for
 * speed.
 *
 * Each entry checks itself. An entry that a misdirected write has put over others is valid too, but then it is out of
 * order, or the number of all is wrong: so a hole counts as filled only if its entries ascend, and store_rebuild.c counts.
 */
#include "store/store_scan_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <stdio.h>
#include <string.h>

#define SUMMED_PER_BYTE 8u     /* A slice ends when so many times its size was summed. */
#define FOUND_BYTES_MAX (1u << 20) /* Runs that one slice of a front hands over. */

/* Whether an entry with these ids can stand in the hole. */
static bool belongs(const struct ebk_hole *hole, uint64_t ledger_id, int64_t id)
{
    if (ledger_id < hole->ledger_before || (ledger_id == hole->ledger_before && id <= hole->id_before)) return false;
    return ledger_id < hole->ledger_behind || (ledger_id == hole->ledger_behind && id < hole->id_behind);
}

/* Whole size of a valid entry at `at`, or 0. */
static uint32_t valid_entry(struct ebk_scan *scan, const uint8_t *at, const uint8_t *end)
{
    struct ebk_frame_facts facts;
    if ((size_t)(end - at) < EBK_ENTRY_OVERHEAD_BYTES || at[EBK_ENTRY_AT_VERSION] != EBK_ENTRY_VERSION) return 0;
    const uint64_t size = EBK_ENTRY_OVERHEAD_BYTES + (uint64_t)ebk_load_u32(at + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (size > EBK_SCAN_ENTRY_BYTES_MAX || size > (uint64_t)(end - at)) return 0;
    scan->bytes_summed += size;
    if (ebk_frame_scan(at, size, &facts) != EBK_FRAME_SOUND) return 0;
    return belongs(&scan->hole, facts.ledger_id, facts.first_entry) ? (uint32_t)size : 0;
}

/* ---- reading -------------------------------------------------------------------------- */

static int begin_hole(struct ebk_scan *scan)
{
    if (scan->file < 0) scan->file = scan->io->open(scan->io, scan->path, EBK_OPEN_READ);
    const int error = scan->file < 0 ? -scan->file : 0;
    if (ebk_is_want(-error)) {
        snprintf(scan->text, sizeof scan->text, "entry log %08x.elog cannot be opened: %s", scan->log_id, strerror(error));
        scan->file = -1;
        return EBK_IO;
    }
    /* A file that cannot be opened otherwise is as one without bytes: what it holds stays unknown until the next start. */
    const int64_t size = error != 0 ? 0 : scan->io->size(scan->io, scan->file);
    if (error != 0) scan->file = -1;
    const uint64_t file_size = size < 0 ? 0 : (uint64_t)size;
    scan->end = file_size < scan->hole.end ? file_size : scan->hole.end;
    if (scan->end < scan->hole.begin) scan->end = scan->hole.begin;
    scan->at = scan->good = scan->window_at = scan->window_end = scan->hole.begin;
    scan->tail = scan->hole.end;
    scan->is_ordered = true;
    scan->ledger_last = 0;
    scan->id_last = -1;
    scan->maker.offset = scan->at;
    scan->has_begun = true;
    return EBK_OK;
}

/* Have the longest entry that may stand at scan->at in the window, or everything up to the end. Blocks of the window count
 * from the hole's begin on. */
static void fill_window(struct ebk_scan *scan)
{
    const uint64_t wanted = scan->end - scan->at < EBK_SCAN_ENTRY_BYTES_MAX ? scan->end : scan->at + EBK_SCAN_ENTRY_BYTES_MAX;
    if (wanted <= scan->window_end) return;
    const uint64_t begin = scan->at - (scan->at - scan->hole.begin) % EBK_LOG_BLOCK_BYTES;
    const uint64_t kept = scan->window_end > begin ? scan->window_end - begin : 0;
    if (kept > 0) memmove(scan->window, scan->window + (begin - scan->window_at), kept);
    const uint64_t from = begin + kept;
    const uint64_t end = scan->end - begin < EBK_SCAN_WINDOW_BYTES ? scan->end : begin + EBK_SCAN_WINDOW_BYTES;
    const struct ebk_log_source source = {.io = scan->io, .file = scan->file, .size = scan->end};
    if (!ebk_log_read_whole(&source, scan->window + kept, end - from, from))
        ebk_log_read_blocks(&source, scan->window + kept, end - from, from);
    scan->window_at = begin;
    scan->window_end = end;
}

/* ---- finding -------------------------------------------------------------------------- */

static void forget_found(struct ebk_scan *scan)
{
    scan->maker.size = scan->maker.count = scan->maker.run_count = 0;
    scan->maker.bytes = 0;
    scan->maker.offset = scan->at;
    scan->entries = 0;
}

/* Note the entry at scan->at. */
static int take(struct ebk_scan *scan, const uint8_t *entry, uint32_t size)
{
    const uint64_t ledger_id = ebk_load_u64(entry + EBK_ENTRY_AT_LEDGER);
    const int64_t id = ebk_cache_entry_id(entry);
    const bool is_behind = ledger_id > scan->ledger_last || (ledger_id == scan->ledger_last && id > scan->id_last);
    if (!is_behind && ebk_run_maker_end(&scan->maker) < 0) return EBK_NO_MEMORY; /* A run ascends. */
    if (ebk_run_maker_add(&scan->maker, ledger_id, id, size, entry) < 0) return EBK_NO_MEMORY;
    scan->is_ordered &= is_behind;
    scan->ledger_last = ledger_id;
    scan->id_last = id;
    scan->entries += 1;
    scan->at += size;
    return EBK_OK;
}

/* One place further in the tail. Nothing less than entries up to the very end is believed: a payload may hold entries
 * itself, and those are not this bookie's. */
static int step_tail(struct ebk_scan *scan, const uint8_t *entry, uint32_t size)
{
    if (size == 0) {
        scan->at += 1;
        scan->tail = scan->hole.end;
        if (scan->entries > 0) forget_found(scan);
        return EBK_OK;
    }
    if (scan->tail == scan->hole.end) {
        forget_found(scan);
        scan->tail = scan->at;
    }
    return take(scan, entry, size);
}

static bool has_slice_ended(const struct ebk_scan *scan, uint64_t began)
{
    return scan->at - began >= scan->slice_bytes || scan->bytes_summed >= SUMMED_PER_BYTE * scan->slice_bytes + EBK_SCAN_ENTRY_BYTES_MAX ||
           (!scan->is_front_over && scan->maker.size >= FOUND_BYTES_MAX);
}

int ebk_scan_slice(struct ebk_scan *scan)
{
    int refused = scan->has_begun ? EBK_OK : begin_hole(scan);
    const uint64_t began = scan->at;
    bool is_front_ended = false;
    scan->bytes_summed = 0;
    while (refused == EBK_OK && scan->at < scan->end && !is_front_ended && !has_slice_ended(scan, began)) {
        fill_window(scan);
        const uint8_t *entry = scan->window + (scan->at - scan->window_at);
        const uint32_t size = valid_entry(scan, entry, scan->window + (scan->window_end - scan->window_at));
        if (scan->is_front_over) refused = step_tail(scan, entry, size);
        else if (size > 0) refused = take(scan, entry, size);
        else is_front_ended = true;
    }
    if (!scan->is_front_over) scan->good = scan->at;
    scan->bytes_done += scan->at - began;
    if (refused < 0) return refused;
    const bool is_cut_off = scan->end < scan->hole.end; /* Then no entries fill its end. */
    scan->is_over = scan->at == scan->end || (is_front_ended && is_cut_off);
    scan->is_handed_over = !scan->is_front_over || scan->is_over;
    if (scan->is_handed_over && ebk_run_maker_end(&scan->maker) < 0) {
        scan->is_over = scan->is_handed_over = false;
        return EBK_NO_MEMORY;
    }
    scan->is_front_over |= is_front_ended;
    return EBK_OK;
}

bool ebk_scan_has_filled(const struct ebk_scan *scan)
{
    return scan->is_over && scan->good == scan->hole.end && scan->is_ordered;
}

uint64_t ebk_scan_bytes_lost(const struct ebk_scan *scan)
{
    return scan->hole.end - scan->good - (scan->hole.end - scan->tail);
}
