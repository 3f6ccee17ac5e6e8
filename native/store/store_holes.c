/* store_holes.c: what is not known of entry logs: holes in their indexes, and which of these are still looked through
 * (P7.1). */
#include "store/store_inside.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

int ebk_store_add_hole(struct ebk_store *store, const struct ebk_hole *hole)
{
    struct ebk_hole *holes = realloc(store->holes, (store->hole_count + 1) * sizeof *holes);
    if (holes == NULL) return EBK_NO_MEMORY;
    store->holes = holes;
    holes[store->hole_count++] = *hole;
    return EBK_OK;
}

void ebk_store_close_holes(struct ebk_store *store, const struct ebk_log *log)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < store->hole_count; i++)
        if (store->holes[i].log != log) store->holes[kept++] = store->holes[i];
    store->hole_count = kept;
}

bool ebk_store_is_dark(const struct ebk_store *store, const struct ebk_log *log)
{
    for (uint32_t i = 0; i < store->hole_count; i++)
        if (store->holes[i].log == log) return true;
    return false;
}

bool ebk_store_is_held_back(const struct ebk_store *store, uint32_t log_id)
{
    for (uint32_t i = 0; i < store->hole_count; i++)
        if (store->holes[i].is_pending && store->holes[i].log->descriptor.log_id > log_id) return true;
    return false;
}

uint32_t ebk_store_next_hole(const struct ebk_store *store)
{
    uint32_t next = store->hole_count;
    for (uint32_t i = 0; i < store->hole_count; i++) {
        if (!store->holes[i].is_pending) continue;
        if (next == store->hole_count ||
            store->holes[i].log->descriptor.log_id > store->holes[next].log->descriptor.log_id)
            next = i;
    }
    return next;
}

bool ebk_store_may_find(const struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last)
{
    for (uint32_t i = 0; i < store->hole_count; i++) {
        const struct ebk_hole *hole = &store->holes[i];
        if (!hole->is_pending || ledger_id < hole->ledger_before || ledger_id > hole->ledger_behind) continue;
        if (ledger_id == hole->ledger_before && last <= hole->id_before) continue;
        if (ledger_id == hole->ledger_behind && first >= hole->id_behind) continue;
        return true;
    }
    return false;
}

bool ebk_store_may_find_ledger(const struct ebk_store *store, uint32_t number, uint64_t *first, uint64_t *last)
{
    for (uint32_t i = 0; i < store->hole_count; i++) {
        if (!store->holes[i].is_pending || number-- > 0) continue;
        *first = store->holes[i].ledger_before;
        *last = store->holes[i].ledger_behind;
        return true;
    }
    return false;
}

bool ebk_found_run_read(struct ebk_log *log, const uint8_t **at, const uint8_t *end, uint64_t *ledger_id, struct ebk_run *run)
{
    static const struct ebk_log newest = {.descriptor = {.version = EBK_LOG_VERSION}};
    const bool is_sound = ebk_run_read(&newest, at, end, ledger_id, run);
    run->log = log;
    return is_sound;
}
