/* store_keepers.c: which ledgers keep an entry log on the disk, and by how many bytes. For people and reports: nothing is
 * decided by it.
 *
 *     index section of the log: ledgers that it was written with ──▶ those of which the index still names runs in it
 *
 * Its heads were checked when it was read in, and are walked here without their numbers. Of a damaged log, and of
 * one whose index was lost, the section does not say everything: there all ledgers of the index are asked, which takes
 * longer.
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <stdlib.h>

/* What the index names of one ledger in this log. */
static struct ebk_log_keeper keeper_of(const struct ebk_indexed_ledger *ledger, const struct ebk_log *log)
{
    struct ebk_log_keeper keeper = {.ledger_id = ledger->ledger_id};
    for (uint32_t i = 0; i < ledger->count; i++) {
        const struct ebk_chain *chain = &ebk_indexed_chains(ledger)[i];
        for (uint32_t j = 0; j < chain->count; j++) {
            if (chain->runs[j].log != log) continue;
            keeper.live_entries += chain->runs[j].count;
            keeper.live_bytes += chain->runs[j].bytes;
        }
    }
    return keeper;
}

static uint32_t from_section(const struct ebk_store *store, const struct ebk_log *log, int64_t after,
                             struct ebk_log_keeper *keepers, uint32_t most)
{
    const uint8_t *at = log->index, *end = log->index + log->descriptor.index_size;
    int64_t last = after; /* Ids are below 2^63, and ascend. */
    uint32_t count = 0;
    while (at < end && count < most) {
        const int64_t ledger_id = (int64_t)ebk_load_u64(at);
        at += EBK_LOG_RUN_BYTES + ebk_load_u32(at + 48) +
              ebk_run_tail_bytes(log->descriptor.version, at[52], ebk_load_u64(at + 24));
        EBK_ASSERT(at <= end);
        if (ledger_id <= last) continue; /* Told before, or another run of it. */
        last = ledger_id;
        const struct ebk_indexed_ledger *ledger = ebk_index_find(&store->index, (uint64_t)ledger_id);
        if (ledger == NULL) continue;
        const struct ebk_log_keeper keeper = keeper_of(ledger, log);
        if (keeper.live_entries > 0) keepers[count++] = keeper;
    }
    return count;
}

/* Put one into its place by ledger among the lowest `most`. */
static void keep_lowest(struct ebk_log_keeper *keepers, uint32_t *count, uint32_t most, const struct ebk_log_keeper *keeper)
{
    if (*count == most && keepers[most - 1].ledger_id < keeper->ledger_id) return;
    uint32_t at = *count < most ? (*count)++ : most - 1;
    for (; at > 0 && keepers[at - 1].ledger_id > keeper->ledger_id; at--) keepers[at] = keepers[at - 1];
    keepers[at] = *keeper;
}

static uint32_t from_index(const struct ebk_store *store, const struct ebk_log *log, int64_t after,
                           struct ebk_log_keeper *keepers, uint32_t most)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < store->index.ledger_count; i++) {
        const struct ebk_indexed_ledger *ledger = &store->index.ledgers[i];
        if ((int64_t)ledger->ledger_id <= after) continue;
        const struct ebk_log_keeper keeper = keeper_of(ledger, log);
        if (keeper.live_entries > 0) keep_lowest(keepers, &count, most, &keeper);
    }
    return count;
}

uint32_t ebk_store_log_keepers(const struct ebk_store *store, uint32_t log_id, int64_t after, struct ebk_log_keeper *keepers,
                               uint32_t most)
{
    for (uint32_t i = 0; i < store->log_count && most > 0; i++) {
        const struct ebk_log *log = store->logs[i];
        if (log->descriptor.log_id != log_id || log->live_bytes == 0) continue;
        const bool is_whole = !log->is_damaged && log->rescue == NULL;
        return is_whole ? from_section(store, log, after, keepers, most) : from_index(store, log, after, keepers, most);
    }
    return 0;
}
