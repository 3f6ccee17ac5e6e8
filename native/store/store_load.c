/* store_load.c: entry logs back into memory: descriptors, ledger states, index; and what to do about damage.
 *
 * The footers are the persisted index: nothing else has to be read, and nothing can part
 * from them. Damage is met in this order:
 *
 *     one descriptor of the two   use the other, report
 *     both descriptors            refuse: ledger states and log mark cannot be known
 *     one copy of the states      use the other, report
 *     both copies                 refuse: a fence might be forgotten (P7.3)
 *     one copy of the index       use the other, report
 *     both copies, or the one     use the runs that are whole in either; report. Between them are holes: no id that
 *     of an older version         belongs there is "absent". They are looked through while the store serves
 *                                 (store_rebuild.c); a hole ends when its entries are all there, in their order
 *     an entry                    found when it is read: unreadable, never "absent" (P7.1)
 *     a log between two others    refuse: each names the one before it
 */
#include "store/store_inside.h"

#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

static int load_descriptor(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log, char *text,
                           size_t room)
{
    const uint32_t log_id = log->descriptor.log_id;
    struct ebk_descriptor head, tail;
    const uint64_t tail_offset = source->size < EBK_LOG_DESCRIPTOR_BYTES ? 0 : source->size - EBK_LOG_DESCRIPTOR_BYTES;
    const int at_head = ebk_log_read_descriptor(source, 0, &head), at_tail = ebk_log_read_descriptor(source, tail_offset, &tail);
    if (at_head == EBK_VERSION || at_tail == EBK_VERSION)
        return ebk_store_refuse(text, room, EBK_VERSION, log, "at offset %llu: a version other than %u to %u",
                      (unsigned long long)(at_head == EBK_VERSION ? 0 : tail_offset), EBK_LOG_VERSION_ONE,
                      EBK_LOG_VERSION);
    if (at_head < 0 && at_tail < 0)
        return ebk_store_refuse(text, room, EBK_DAMAGED, log,
                      "at offset 0 and at its end %llu: neither descriptor is whole, so its ledger states (fences) "
                      "and its log mark cannot be known", (unsigned long long)source->size);
    log->descriptor = at_head == EBK_OK ? head : tail;
    const struct ebk_descriptor *found = &log->descriptor;
    if (memcmp(found->cluster_token, store->settings.cluster_token, 16) != 0 ||
        memcmp(found->incarnation, store->settings.incarnation, 16) != 0 || found->log_id != log_id) {
        const uint32_t found_id = found->log_id;
        log->descriptor.log_id = log_id;
        return ebk_store_refuse(text, room, EBK_FOREIGN, log, "at offset 0: it is file %08x of another bookie or disk "
                      "incarnation, or was renamed", found_id);
    }
    if (at_head < 0) ebk_store_tell(store, log, "at offset 0: the first descriptor is damaged; the second one was used");
    if (at_tail < 0)
        ebk_store_tell(store, log, "at offset %llu: the second descriptor is damaged or cut off; the first one was used",
               (unsigned long long)(found->file_size - EBK_LOG_DESCRIPTOR_BYTES));
    return EBK_OK;
}

static int load_states(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log, char *text,
                       size_t room)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint64_t second = ebk_second_states_offset(descriptor);
    log->states = ebk_log_read_section(source, descriptor, EBK_LOG_BLOCK_BYTES, descriptor->states_size, descriptor->states_crc);
    if (log->states != NULL) {
        uint8_t *copy = ebk_log_read_section(source, descriptor, second, descriptor->states_size, descriptor->states_crc);
        if (copy == NULL)
            ebk_store_tell(store, log, "at offset %llu: the second copy of the ledger states is damaged or cut off",
                   (unsigned long long)second);
        free(copy);
        return EBK_OK;
    }
    log->states = ebk_log_read_section(source, descriptor, second, descriptor->states_size, descriptor->states_crc);
    if (log->states == NULL)
        return ebk_store_refuse(text, room, EBK_DAMAGED, log, "at offsets %u and %llu: both copies of the ledger states are "
                      "damaged, a fence could be forgotten", EBK_LOG_BLOCK_BYTES, (unsigned long long)second);
    ebk_store_tell(store, log, "at offset %u: the ledger states are damaged; their second copy was used", EBK_LOG_BLOCK_BYTES);
    return EBK_OK;
}

/* ---- the index of one log ----------------------------------------------------------- */

/* Runs that are whole; what lies between them is to be looked through while the store serves (store_rebuild.c), and dark
 * until then. joined: bytes of the runs in log->index. */
static int take_joined(struct ebk_store *store, struct ebk_log *log, size_t joined)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint8_t *at = log->index, *end = log->index + joined;
    struct ebk_hole hole = {.begin = ebk_entries_offset(descriptor), .id_before = -1, .log = log, .is_pending = true};
    const struct ebk_hole everything = {.id_before = -1, .ledger_behind = UINT64_MAX, .id_behind = INT64_MAX, .log = log};
    bool is_over = false;
    log->rescue->joined = joined;
    log->rescue->is_filled = true;
    while (!is_over) {
        struct ebk_run run = {.offset = ebk_entries_end(descriptor), .first = INT64_MAX};
        uint64_t ledger_id = UINT64_MAX;
        is_over = at == end;
        const bool is_sound = is_over || ebk_run_read(log, &at, end, &ledger_id, &run);
        EBK_ASSERT(is_sound); /* Each was when they were joined. */
        if (run.offset > hole.begin) {
            hole.end = run.offset;
            hole.ledger_behind = ledger_id;
            hole.id_behind = run.first;
            if (ebk_store_add_hole(store, &hole) < 0) return EBK_NO_MEMORY;
        }
        if (!is_over && ebk_index_add(&store->index, ledger_id, &run) < 0) return EBK_NO_MEMORY;
        log->rescue->entries += run.count;
        hole.begin = run.offset + run.bytes;
        hole.ledger_before = ledger_id;
        hole.id_before = run.last;
    }
    ebk_store_tell(store, log, "at offset %llu: the index is damaged or cut off%s; %llu of %llu entries are known, and the "
                   "others are looked for while the bookie serves",
                   (unsigned long long)ebk_index_offset(descriptor),
                   descriptor->version < EBK_LOG_VERSION_TWICE ? "" : ", and so is its first copy",
                   (unsigned long long)log->rescue->entries, (unsigned long long)descriptor->entry_count);
    if (ebk_store_is_dark(store, log)) return EBK_OK;
    ebk_store_judge_log(store, log);
    return log->rescue->is_whole ? EBK_OK : ebk_store_add_hole(store, &everything);
}

/* No copy of the index is whole: what is left of two. */
static int load_pieces(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint64_t size = descriptor->version < EBK_LOG_VERSION_TWICE ? 0 : descriptor->index_size;
    size_t joined = 0;
    if (size > 0 && size <= source->size) {
        uint8_t *copies = malloc(2 * size);
        log->index = malloc(size);
        if (copies == NULL || log->index == NULL) {
            free(copies);
            return EBK_NO_MEMORY;
        }
        ebk_log_read_blocks(source, copies, size, ebk_first_index_offset(descriptor));
        ebk_log_read_blocks(source, copies + size, size, ebk_index_offset(descriptor));
        joined = ebk_runs_join(log, copies, copies + size, log->index);
        free(copies);
        if (joined == size && ebk_store_index_log(store, log, NULL) == EBK_OK) {
            ebk_store_tell(store, log, "at offsets %llu and %llu: both copies of the index are damaged; together they are whole",
                           (unsigned long long)ebk_first_index_offset(descriptor),
                           (unsigned long long)ebk_index_offset(descriptor));
            return EBK_OK;
        }
    }
    log->is_damaged = true; /* Its unknown parts are dark: that would be forgotten with the file. */
    log->rescue = calloc(1, sizeof *log->rescue);
    return log->rescue == NULL ? EBK_NO_MEMORY : take_joined(store, log, joined);
}

static int load_index(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint64_t places[2] = {ebk_first_index_offset(descriptor), ebk_index_offset(descriptor)};
    for (int copy = descriptor->version < EBK_LOG_VERSION_TWICE; copy < 2; copy++) {
        log->index = ebk_log_read_section(source, descriptor, places[copy], descriptor->index_size, descriptor->index_crc);
        const int code = log->index == NULL ? EBK_DAMAGED : ebk_store_index_log(store, log, NULL);
        if (code == EBK_OK && copy == 1 && descriptor->version >= EBK_LOG_VERSION_TWICE)
            ebk_store_tell(store, log, "at offset %llu: the index is damaged; its second copy was used",
                           (unsigned long long)places[0]);
        if (code != EBK_DAMAGED) return code;
        free(log->index);
        log->index = NULL;
    }
    return load_pieces(store, source, log);
}

/* ---- all of them -------------------------------------------------------------------- */

static int load_log(struct ebk_store *store, const struct ebk_log_source *source, struct ebk_log *log, char *text, size_t room)
{
    int refused = load_descriptor(store, source, log, text, room);
    if (refused == EBK_OK) refused = load_states(store, source, log, text, room);
    if (refused < 0) return refused;
    const int code = load_index(store, source, log);
    return code < 0 ? ebk_store_refuse(text, room, code, log, "its index could not be read in") : EBK_OK;
}

/* Above the newest roll, each flush names the log before it. One between the two may be there all the same: its flush
 * failed when its name was to be made durable, and was done again as the next one. */
static bool has_log(const struct ebk_store *store, uint32_t log_id)
{
    for (uint32_t i = store->log_count; i > 0; i--)
        if (store->logs[i - 1]->descriptor.log_id == log_id) return true;
    return log_id == 0; /* It was the first, or is no flush. */
}

static int load_file(struct ebk_store *store, const struct ebk_log_place *place, char *text, size_t room)
{
    const uint32_t log_id = place->log_id;
    char path[EBK_PATH_BYTES_MAX];
    struct ebk_log *log = calloc(1, sizeof *log);
    if (log == NULL) return ebk_store_refuse(text, room, EBK_NO_MEMORY, NULL, "entry logs");
    log->file = -1;
    log->directory = place->directory;
    log->descriptor.log_id = log_id;
    ebk_log_path(store->directories[place->directory], log_id, false, path);
    int refused, error = 0;
    struct ebk_log_source source = {.io = store->io, .file = store->io->open(store->io, path, EBK_OPEN_READ), .error = &error};
    if (source.file < 0) {
        refused = ebk_store_refuse(text, room, EBK_IO, log, "cannot be opened: %s", strerror(-source.file));
    } else {
        const int64_t size = store->io->size(store->io, source.file);
        source.size = size < 0 ? 0 : (uint64_t)size;
        if (size < 0) error = (int)size;
        refused = load_log(store, &source, log, text, room);
        /* Bytes that could not be read may be as they were written: the bookie is not to be given up for them. */
        if (refused == EBK_DAMAGED && error < 0)
            refused = ebk_store_refuse(text, room, EBK_IO, log, "cannot be read: %s", strerror(-error));
        (void)store->io->close(store->io, source.file);
    }
    if (refused == EBK_OK && log_id > store->roll_id && !has_log(store, log->descriptor.previous_id))
        refused = ebk_store_refuse(text, room, EBK_DAMAGED, log, "it was written after %08x.elog, which is missing here",
                         log->descriptor.previous_id);
    if (refused == EBK_OK) refused = ebk_store_add_log(store, log);
    /* A log that was refused stays reachable until close: the index may name it. */
    if (refused < 0 && ebk_store_add_log(store, log) < 0) ebk_log_free(log);
    return refused;
}

/* Why a log cannot be read without which the newest roll is not known. */
static int refuse_unread(struct ebk_store *store, const struct ebk_log_place *place, char *text, size_t room)
{
    store->roll_id = place->log_id; /* What stands before it is not looked at. */
    const int refused = load_file(store, place, text, room);
    if (refused < 0) return refused;
    return ebk_store_refuse(text, room, EBK_IO, NULL, "entry log %08x.elog could not be read, and could be a moment later",
                            place->log_id);
}

int ebk_store_load(struct ebk_store *store, char *text, size_t room)
{
    struct ebk_log_list list = {0};
    int refused = ebk_log_list_read(store, &list, text, room);
    if (refused == EBK_OK && list.unread != NULL) refused = refuse_unread(store, list.unread, text, room);
    for (uint32_t i = 0; i < list.count && refused == EBK_OK; i++)
        refused = load_file(store, &list.places[i], text, room);
    if (refused == EBK_OK) refused = ebk_store_settle_mark(store, text, room);
    if (refused == EBK_OK && ebk_index_prune(&store->index) < 0)
        refused = ebk_store_refuse(text, room, EBK_NO_MEMORY, NULL, "index");
    if (refused == EBK_OK) ebk_log_list_tidy(store, &list);
    ebk_log_list_clear(&list);
    return refused;
}
