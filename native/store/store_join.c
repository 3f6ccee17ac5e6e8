/* store_join.c: one index out of the two copies that stand in a log: of each run, whichever copy is whole.
 *
 *     copy before the entries   run 0 | run 1 | ///// | run 3 |        each run has its own sum, which knows its place
 *     copy behind them          run 0 | ///// | run 2 | run 3 |
 *     joined                    run 0 | run 1 | run 2 | run 3
 *
 * Where neither is whole, what comes next is looked for byte by byte: the run in between is lost, and what stands
 * between the entries of its neighbours is found by a scan. For rescue, not for speed.
 */
#include "store/store_inside.h"

#include "base/bytes.h"

#include <string.h>

/* The end of the last run, from which the next one must continue. */
struct joining {
    const struct ebk_log *log;
    uint32_t seed;
    uint64_t ledger_id, offset; /* of the last run that was found, and where its entries end */
    int64_t last;
    bool has_any, has_hole;
};

/* Bytes of the whole run at `at` of a copy, with its sum; 0 when none stands there. */
static size_t run_at(const struct joining *joining, const uint8_t *copy, uint64_t at, uint64_t *ledger_id, struct ebk_run *run)
{
    const struct ebk_descriptor *descriptor = &joining->log->descriptor;
    const uint64_t left = descriptor->index_size - at;
    if (left < EBK_LOG_RUN_BYTES + EBK_LOG_RUN_CRC_BYTES) return 0;
    const uint64_t coded_size = ebk_load_u32(copy + at + 48);
    if (coded_size > EBK_RUN_ENTRIES_MAX * EBK_CODED_BYTES_MAX) return 0;
    const size_t tail = ebk_run_tail_bytes(descriptor->version, copy[at + 52], ebk_load_u64(copy + at + 24));
    const uint64_t size = EBK_LOG_RUN_BYTES + coded_size + tail - EBK_LOG_RUN_CRC_BYTES;
    if (size + EBK_LOG_RUN_CRC_BYTES > left) return 0;
    const uint32_t count = ebk_load_u32(copy + at + 44);
    if (count == 0 || count > EBK_RUN_ENTRIES_MAX) return 0; /* Spares nearly every sum of bytes that are none. */
    if (ebk_load_u32(copy + at + size) != ebk_run_crc(joining->seed, at, copy + at, size)) return 0;
    const uint8_t *from = copy + at;
    if (!ebk_run_read(joining->log, &from, copy + descriptor->index_size, ledger_id, run)) return 0;
    const bool is_next = !joining->has_any || *ledger_id > joining->ledger_id ||
                         (*ledger_id == joining->ledger_id && run->first > joining->last);
    const bool fits = joining->has_hole ? run->offset > joining->offset : run->offset == joining->offset;
    const uint64_t end = ebk_entries_end(descriptor);
    if (!is_next || !fits || run->offset > end || run->bytes > end - run->offset) return 0;
    return size + EBK_LOG_RUN_CRC_BYTES;
}

size_t ebk_runs_join(const struct ebk_log *log, const uint8_t *one, const uint8_t *other, uint8_t *to)
{
    struct joining joining = {.log = log, .seed = ebk_section_seed(&log->descriptor),
                              .offset = ebk_entries_offset(&log->descriptor)};
    size_t joined = 0;
    for (uint64_t at = 0; at < log->descriptor.index_size;) {
        struct ebk_run run;
        uint64_t ledger_id;
        const uint8_t *copy = one;
        size_t size = run_at(&joining, one, at, &ledger_id, &run);
        if (size == 0) size = run_at(&joining, copy = other, at, &ledger_id, &run);
        if (size == 0) {
            joining.has_hole = true;
            at += 1;
            continue;
        }
        memcpy(to + joined, copy + at, size);
        joined += size;
        at += size;
        joining.ledger_id = ledger_id;
        joining.last = run.last;
        joining.offset = run.offset + run.bytes;
        joining.has_any = true;
        joining.has_hole = false;
    }
    return joined;
}
