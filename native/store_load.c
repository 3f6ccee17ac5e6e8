/* store_load.c: entry logs back into memory: descriptors, ledger states, index; and what to do about damage.
 *
 * The footers are the persisted index: nothing else has to be read, and nothing can part
 * from them. Damage is met in this order:
 *
 *     one descriptor of the two   use the other, report
 *     both descriptors            refuse: ledger states and log mark cannot be known
 *     one copy of the states      use the other, report
 *     both copies                 refuse: a fence might be forgotten (P7.3)
 *     the index                   scan the entries, each of which checks itself; report. Unless they are all
 *                                 there, in their order, nobody knows what stood in the log: it is dark in
 *                                 here, and no id is "absent" any more
 *     an entry                    found when it is read: unreadable, never "absent" (P7.1)
 *     a log between two others    refuse: each names the one before it
 */
#include "store_inside.h"

#include "bytes.h"
#include "crc32c.h"
#include "errors.h"
#include "frame.h"
#include "id_ranges.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SUFFIX ".elog"
#define NAME_DIGITS 8

/* ---- saying what is wrong ----------------------------------------------------------- */

__attribute__((format(printf, 5, 6)))
static int refuse(char *text, size_t room, int code, const struct ebk_log *log, const char *format, ...)
{
    int used = log == NULL ? 0 : snprintf(text, room, "entry log %08x.elog: ", log->descriptor.log_id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, room - (size_t)used, format, arguments);
    va_end(arguments);
    return code;
}

__attribute__((format(printf, 3, 4)))
static void report(struct ebk_store *store, const struct ebk_log *log, const char *format, ...)
{
    if (store->report_count == EBK_REPORTS_MAX) return;
    char *line = store->reports[store->report_count++];
    const int used = snprintf(line, EBK_REPORT_BYTES, "entry log %08x.elog: ", log->descriptor.log_id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, EBK_REPORT_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
}

/* ---- one file ----------------------------------------------------------------------- */

struct source {
    struct ebk_io *io;
    int file;
    uint64_t size;
};

static bool read_whole(const struct source *source, void *to, size_t size, uint64_t offset)
{
    return source->io->read(source->io, source->file, to, size, offset) == (int64_t)size;
}

bool ebk_descriptor_is_possible(const struct ebk_descriptor *descriptor)
{
    const uint64_t limit = UINT64_C(1) << 48;
    if (descriptor->states_size > limit || descriptor->entries_size > limit || descriptor->index_size > limit)
        return false;
    const uint64_t end = ebk_index_offset(descriptor) + descriptor->index_size + descriptor->states_size +
                         EBK_LOG_DESCRIPTOR_BYTES;
    return descriptor->states_size % EBK_LOG_STATE_BYTES == 0 &&
           descriptor->roll_count <= descriptor->states_size / EBK_LOG_STATE_BYTES && descriptor->file_size % EBK_LOG_BLOCK_BYTES == 0 &&
           descriptor->file_size >= end && descriptor->file_size - end < EBK_LOG_BLOCK_BYTES;
}

static int read_descriptor(const struct source *source, uint64_t offset, struct ebk_descriptor *descriptor)
{
    uint8_t bytes[EBK_LOG_DESCRIPTOR_BYTES];
    if (offset + sizeof bytes > source->size || !read_whole(source, bytes, sizeof bytes, offset)) return EBK_DAMAGED;
    const int code = ebk_descriptor_read(descriptor, bytes);
    return code == EBK_OK && !ebk_descriptor_is_possible(descriptor) ? EBK_DAMAGED : code;
}

static int load_descriptor(struct ebk_store *store, const struct source *source, struct ebk_log *log, char *text,
                           size_t room)
{
    const uint32_t log_id = log->descriptor.log_id;
    struct ebk_descriptor head, tail;
    const uint64_t tail_offset = source->size < EBK_LOG_DESCRIPTOR_BYTES ? 0 : source->size - EBK_LOG_DESCRIPTOR_BYTES;
    const int at_head = read_descriptor(source, 0, &head), at_tail = read_descriptor(source, tail_offset, &tail);
    if (at_head == EBK_VERSION || at_tail == EBK_VERSION)
        return refuse(text, room, EBK_VERSION, log, "at offset %llu: a version other than %u",
                      (unsigned long long)(at_head == EBK_VERSION ? 0 : tail_offset), EBK_LOG_VERSION);
    if (at_head < 0 && at_tail < 0)
        return refuse(text, room, EBK_DAMAGED, log,
                      "at offset 0 and at its end %llu: neither descriptor is whole, so its ledger states (fences) "
                      "and its log mark cannot be known", (unsigned long long)source->size);
    log->descriptor = at_head == EBK_OK ? head : tail;
    const struct ebk_descriptor *found = &log->descriptor;
    if (memcmp(found->cluster_token, store->settings.cluster_token, 16) != 0 ||
        memcmp(found->incarnation, store->settings.incarnation, 16) != 0 || found->log_id != log_id) {
        const uint32_t found_id = found->log_id;
        log->descriptor.log_id = log_id;
        return refuse(text, room, EBK_FOREIGN, log, "at offset 0: it is file %08x of another bookie or disk "
                      "incarnation, or was renamed", found_id);
    }
    if (at_head < 0) report(store, log, "at offset 0: the first descriptor is damaged; the second one was used");
    if (at_tail < 0)
        report(store, log, "at offset %llu: the second descriptor is damaged or cut off; the first one was used",
               (unsigned long long)(found->file_size - EBK_LOG_DESCRIPTOR_BYTES));
    return EBK_OK;
}

/* A section's bytes in memory of their own, or NULL when they cannot be read or fail their checksum. */
static uint8_t *load_section(const struct source *source, const struct ebk_descriptor *descriptor, uint64_t offset,
                             uint64_t size, uint32_t crc)
{
    if (offset > source->size || size > source->size - offset) return NULL;
    uint8_t *bytes = malloc(size + 1); /* Never NULL for an empty section. */
    if (bytes == NULL) return NULL;
    if (read_whole(source, bytes, size, offset) && ebk_section_crc(descriptor, bytes, size) == crc) return bytes;
    free(bytes);
    return NULL;
}

uint8_t *ebk_log_read_states(struct ebk_io *io, int file, const struct ebk_descriptor *descriptor)
{
    const int64_t size = io->size(io, file);
    const struct source source = {.io = io, .file = file, .size = size < 0 ? 0 : (uint64_t)size};
    uint8_t *states =
        load_section(&source, descriptor, EBK_LOG_BLOCK_BYTES, descriptor->states_size, descriptor->states_crc);
    return states != NULL ? states
                          : load_section(&source, descriptor, ebk_index_offset(descriptor) + descriptor->index_size,
                                         descriptor->states_size, descriptor->states_crc);
}

static int load_states(struct ebk_store *store, const struct source *source, struct ebk_log *log, char *text,
                       size_t room)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint64_t second = ebk_index_offset(descriptor) + descriptor->index_size;
    log->states = load_section(source, descriptor, EBK_LOG_BLOCK_BYTES, descriptor->states_size, descriptor->states_crc);
    if (log->states != NULL) {
        uint8_t *copy = load_section(source, descriptor, second, descriptor->states_size, descriptor->states_crc);
        if (copy == NULL)
            report(store, log, "at offset %llu: the second copy of the ledger states is damaged or cut off",
                   (unsigned long long)second);
        free(copy);
        return EBK_OK;
    }
    log->states = load_section(source, descriptor, second, descriptor->states_size, descriptor->states_crc);
    if (log->states == NULL)
        return refuse(text, room, EBK_DAMAGED, log, "at offsets %u and %llu: both copies of the ledger states are "
                      "damaged, a fence could be forgotten", EBK_LOG_BLOCK_BYTES, (unsigned long long)second);
    report(store, log, "at offset %u: the ledger states are damaged; their second copy was used", EBK_LOG_BLOCK_BYTES);
    return EBK_OK;
}

/* ---- the index of one log ----------------------------------------------------------- */

bool ebk_run_read(const struct ebk_log *log, const uint8_t **at, const uint8_t *end, uint64_t *ledger_id,
                  struct ebk_run *run)
{
    if ((size_t)(end - *at) < EBK_LOG_RUN_BYTES) return false;
    const uint8_t *head = *at;
    *ledger_id = ebk_load_u64(head);
    *run = (struct ebk_run){
        .first = (int64_t)ebk_load_u64(head + 8),
        .last = (int64_t)ebk_load_u64(head + 16),
        .residues = ebk_load_u64(head + 24),
        .offset = ebk_load_u64(head + 32),
        .coded = head + EBK_LOG_RUN_BYTES,
        .log = (struct ebk_log *)log,
        .bytes = ebk_load_u32(head + 40),
        .count = ebk_load_u32(head + 44),
        .coded_size = ebk_load_u32(head + 48),
        .modulus = head[52],
        .sizes_equal = head[53],
    };
    if (run->coded_size > (size_t)(end - run->coded)) return false;
    *at = run->coded + run->coded_size;
    return ebk_run_is_sound(run);
}

/* Walk the index section: its runs tile the entries, ledger by ledger. add: put them into the index. frozen: NULL,
 * or what was written as this log, of which ledgers may have been dropped since (scenario 51). */
static int walk_index(struct ebk_store *store, const struct ebk_log *log, const struct ebk_cache *frozen, bool add)
{
    const struct ebk_descriptor *descriptor = &log->descriptor;
    const uint8_t *at = log->index, *end = log->index + descriptor->index_size;
    uint64_t ledger_before = 0, offset = ebk_entries_offset(descriptor), entries = 0;
    int64_t last_before = -1;
    for (uint32_t i = 0; i < descriptor->run_count; i++) {
        uint64_t ledger_id;
        struct ebk_run run;
        if (!ebk_run_read(log, &at, end, &ledger_id, &run)) return EBK_DAMAGED;
        const bool is_next_ledger = i == 0 || ledger_id > ledger_before;
        if (!is_next_ledger && (ledger_id != ledger_before || run.first <= last_before)) return EBK_DAMAGED;
        if (run.offset != offset) return EBK_DAMAGED;
        offset += run.bytes;
        entries += run.count;
        ledger_before = ledger_id;
        last_before = run.last;
        if (!add || (frozen != NULL && ebk_cache_find(frozen, ledger_id) == NULL)) continue;
        if (ebk_index_add(&store->index, ledger_id, &run) < 0) return EBK_NO_MEMORY;
    }
    return at == end && offset == ebk_index_offset(descriptor) && entries == descriptor->entry_count ? EBK_OK
                                                                                                     : EBK_DAMAGED;
}

int ebk_store_index_log(struct ebk_store *store, struct ebk_log *log, const struct ebk_cache *frozen)
{
    const int sound = walk_index(store, log, frozen, false);
    return sound < 0 ? sound : walk_index(store, log, frozen, true);
}

/* ---- scan of the entries where the index is lost ------------------------------------ */

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
        report(store, log, "at offset %llu: %llu bytes of its entries are damaged or cut off, and no index says what "
               "they were: what is not found elsewhere is unreadable",
               (unsigned long long)(ebk_entries_offset(descriptor) + (uint64_t)(good - bytes)),
               (unsigned long long)(descriptor->entries_size - (uint64_t)(good - bytes) - (uint64_t)(end - tail)));
        store->is_dark = true;
    }
    uint64_t count = 0;
    if (add_range(store, log, bytes, bytes, good, &count) < 0) return EBK_NO_MEMORY;
    if (add_range(store, log, bytes, tail, end, &count) < 0) return EBK_NO_MEMORY;
    report(store, log, "at offset %llu: the index is damaged or cut off; %llu of %llu entries were found by a scan",
           (unsigned long long)ebk_index_offset(descriptor), (unsigned long long)count,
           (unsigned long long)descriptor->entry_count);
    return EBK_OK;
}

static int scan_entries(struct ebk_store *store, const struct source *source, struct ebk_log *log)
{
    const uint64_t begin = ebk_entries_offset(&log->descriptor);
    uint64_t have = source->size > begin ? source->size - begin : 0;
    if (have > log->descriptor.entries_size) have = log->descriptor.entries_size;
    uint8_t *bytes = malloc(have + 1);
    if (bytes == NULL) return EBK_NO_MEMORY;
    memset(bytes, 0, have); /* What cannot be read looks like damage. */
    for (uint64_t done = 0; done < have; done += EBK_LOG_BLOCK_BYTES) {
        const uint64_t part = have - done < EBK_LOG_BLOCK_BYTES ? have - done : EBK_LOG_BLOCK_BYTES;
        if (!read_whole(source, bytes + done, part, begin + done)) memset(bytes + done, 0, part);
    }
    const int refused = scan_bytes(store, log, bytes, have);
    free(bytes);
    return refused;
}

/* ---- all of them -------------------------------------------------------------------- */

static int load_log(struct ebk_store *store, const struct source *source, struct ebk_log *log, char *text, size_t room)
{
    int refused = load_descriptor(store, source, log, text, room);
    if (refused == EBK_OK) refused = load_states(store, source, log, text, room);
    if (refused < 0) return refused;
    const struct ebk_descriptor *descriptor = &log->descriptor;
    log->index = load_section(source, descriptor, ebk_index_offset(descriptor), descriptor->index_size,
                              descriptor->index_crc);
    int code = log->index == NULL ? EBK_DAMAGED : ebk_store_index_log(store, log, NULL);
    if (code == EBK_DAMAGED) {
        log->is_damaged = true; /* What of it cannot be told is dark: that would be forgotten with the file. */
        code = scan_entries(store, source, log);
    }
    if (code < 0) return refuse(text, room, code, log, "its index could not be read in");
    return EBK_OK;
}

/* Which logs must be there, as the newest flush says. */
struct roll {
    uint32_t log_id; /* of that flush; 0: none says */
    struct ebk_id_ranges ids;
};

/* The roll of one log, if it has one and can be read; damage is told when the log is loaded. */
static int read_roll(struct ebk_store *store, uint32_t log_id, struct roll *roll)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(store->directory, log_id, false, path);
    struct source source = {.io = store->io, .file = store->io->open(store->io, path, EBK_OPEN_READ)};
    if (source.file < 0) return EBK_OK;
    const int64_t size = store->io->size(store->io, source.file);
    source.size = size < 0 ? 0 : (uint64_t)size;
    struct ebk_descriptor descriptor;
    const uint64_t tail_offset = source.size < EBK_LOG_DESCRIPTOR_BYTES ? 0 : source.size - EBK_LOG_DESCRIPTOR_BYTES;
    const bool is_read = read_descriptor(&source, 0, &descriptor) == EBK_OK ||
                         read_descriptor(&source, tail_offset, &descriptor) == EBK_OK;
    uint8_t *states = NULL;
    if (is_read && descriptor.log_id == log_id && descriptor.roll_count > 0)
        states = ebk_log_read_states(store->io, source.file, &descriptor);
    (void)store->io->close(store->io, source.file);
    if (states == NULL) return EBK_OK;
    int refused = EBK_OK;
    const uint8_t *item = states + descriptor.states_size - (size_t)descriptor.roll_count * EBK_LOG_STATE_BYTES;
    for (uint32_t i = 0; i < descriptor.roll_count && refused == EBK_OK; i++, item += EBK_LOG_STATE_BYTES) {
        const uint64_t first = ebk_load_u64(item), last = ebk_load_u64(item + 8);
        refused = first > last || last >= log_id ? EBK_DAMAGED : ebk_id_ranges_add(&roll->ids, first, last);
    }
    free(states);
    roll->log_id = log_id;
    return refused;
}

/* Keep of ids, ascending, those that are to be loaded, and refuse when one is missing. What is below the newest flush
 * and not in its roll was copied or written once more elsewhere: it is put behind, at ids[*count]... */
static int apply_roll(struct ebk_store *store, uint32_t *ids, uint32_t *count, char *text, size_t room)
{
    struct roll roll = {0};
    int refused = EBK_OK;
    for (uint32_t i = *count; i > 0 && roll.log_id == 0 && refused == EBK_OK; i--)
        refused = read_roll(store, ids[i - 1], &roll);
    if (refused < 0) refused = refuse(text, room, refused, NULL, "entry log %08x.elog: its roll is impossible", roll.log_id);
    uint32_t *left = malloc((*count + 1) * sizeof *left);
    if (refused == EBK_OK && left == NULL) refused = refuse(text, room, EBK_NO_MEMORY, NULL, "entry logs");
    uint32_t kept = 0, left_count = 0;
    for (uint32_t i = 0; i < *count && refused == EBK_OK; i++) {
        if (ids[i] >= roll.log_id || ebk_id_ranges_find(&roll.ids, ids[i]) != NULL) ids[kept++] = ids[i];
        else left[left_count++] = ids[i];
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < roll.ids.count && refused == EBK_OK; i++)
        for (uint64_t id = roll.ids.ranges[i].first; id <= roll.ids.ranges[i].last && refused == EBK_OK; id++, at++)
            if (at >= kept || ids[at] != id)
                refused = refuse(text, room, EBK_DAMAGED, NULL, "entry log %08x.elog is missing here; %08x.elog says "
                                 "that it must be there", (uint32_t)id, roll.log_id);
    if (refused == EBK_OK) {
        memcpy(ids + kept, left, left_count * sizeof *left);
        *count = kept;
        store->roll_id = roll.log_id;
    }
    free(left);
    ebk_id_ranges_clear(&roll.ids);
    return refused;
}

/* Above the newest roll, each flush names the log before it. One between the two may be there all the same: its flush
 * failed when its name was to be made durable, and was done again as the next one. */
static bool has_log(const struct ebk_store *store, uint32_t log_id)
{
    for (uint32_t i = store->log_count; i > 0; i--)
        if (store->logs[i - 1]->descriptor.log_id == log_id) return true;
    return log_id == 0; /* It was the first, or is no flush. */
}

static int load_file(struct ebk_store *store, uint32_t log_id, char *text, size_t room)
{
    char path[EBK_PATH_BYTES_MAX];
    struct ebk_log *log = calloc(1, sizeof *log);
    if (log == NULL) return refuse(text, room, EBK_NO_MEMORY, NULL, "entry logs");
    log->file = -1;
    log->descriptor.log_id = log_id;
    ebk_log_path(store->directory, log_id, false, path);
    struct source source = {.io = store->io, .file = store->io->open(store->io, path, EBK_OPEN_READ)};
    int refused;
    if (source.file < 0) {
        refused = refuse(text, room, EBK_IO, log, "cannot be opened: %s", strerror(-source.file));
    } else {
        const int64_t size = store->io->size(store->io, source.file);
        source.size = size < 0 ? 0 : (uint64_t)size;
        refused = load_log(store, &source, log, text, room);
        (void)store->io->close(store->io, source.file);
    }
    if (refused == EBK_OK && log_id > store->roll_id && !has_log(store, log->descriptor.previous_id))
        refused = refuse(text, room, EBK_DAMAGED, log, "it was written after %08x.elog, which is missing here",
                         log->descriptor.previous_id);
    if (refused == EBK_OK && log->descriptor.mark != 0 && log->descriptor.mark < store->mark)
        refused = refuse(text, room, EBK_DAMAGED, log, "its log mark %llu is below %llu, an older one's",
                         (unsigned long long)log->descriptor.mark, (unsigned long long)store->mark);
    if (refused == EBK_OK) refused = ebk_store_add_log(store, log);
    /* A log that was refused stays reachable until close: the index may name it. */
    if (refused < 0 && ebk_store_add_log(store, log) < 0) ebk_log_free(log);
    return refused;
}

static bool parse_name(const char *name, uint32_t *log_id, bool *is_tmp)
{
    uint32_t id = 0;
    for (int i = 0; i < NAME_DIGITS; i++) {
        const char digit = name[i];
        if (digit >= '0' && digit <= '9') id = id << 4 | (uint32_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f') id = id << 4 | (uint32_t)(digit - 'a' + 10);
        else return false;
    }
    *log_id = id;
    *is_tmp = strcmp(name + NAME_DIGITS, NAME_SUFFIX ".tmp") == 0;
    return *is_tmp || strcmp(name + NAME_DIGITS, NAME_SUFFIX) == 0;
}

static int compare_ids(const void *a, const void *b)
{
    const uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;
    return one < other ? -1 : one > other;
}

static char *list_names(struct ebk_store *store, int64_t *size)
{
    int64_t room = 4096;
    for (;;) {
        char *names = malloc((size_t)room);
        if (names == NULL) return NULL;
        *size = store->io->list(store->io, store->directory, names, (size_t)room);
        if (*size <= room) return names;
        room = *size;
        free(names);
    }
}

/* Unfinished logs below the newest finished one: their content was in the journal and is in a later log. Those
 * above stay until the next flush has a higher id: ids are never used again (I48). */
static void drop_unfinished(struct ebk_store *store, const char *names, int64_t size)
{
    const uint32_t newest = store->log_count > 0 ? store->logs[store->log_count - 1]->descriptor.log_id : 0;
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        char path[EBK_PATH_BYTES_MAX];
        uint32_t log_id;
        bool is_tmp;
        if (!parse_name(name, &log_id, &is_tmp) || !is_tmp || log_id >= newest) continue;
        ebk_log_path(store->directory, log_id, true, path);
        (void)store->io->unlink(store->io, path);
    }
}

/* A log that is on no roll any more: a crash came between the flush that said so and its end. */
static void drop_left(struct ebk_store *store, uint32_t log_id)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(store->directory, log_id, false, path);
    (void)store->io->unlink(store->io, path);
}

int ebk_store_load(struct ebk_store *store, char *text, size_t room)
{
    int64_t size;
    char *names = list_names(store, &size);
    uint32_t *ids = names == NULL ? NULL : malloc(((size_t)(size < 0 ? 0 : size) / NAME_DIGITS + 1) * sizeof *ids);
    if (ids == NULL) {
        free(names);
        return refuse(text, room, EBK_NO_MEMORY, NULL, "names of the entry logs in %s", store->directory);
    }
    int refused = EBK_OK;
    uint32_t count = 0;
    if (size < 0) refused = refuse(text, room, EBK_IO, NULL, "directory %s: %s", store->directory, strerror((int)-size));
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        uint32_t log_id;
        bool is_tmp;
        if (!parse_name(name, &log_id, &is_tmp)) continue;
        if (log_id > store->log_id_last) store->log_id_last = log_id;
        if (!is_tmp) ids[count++] = log_id;
    }
    qsort(ids, count, sizeof *ids, compare_ids);
    const uint32_t all = count;
    if (refused == EBK_OK) refused = apply_roll(store, ids, &count, text, room);
    for (uint32_t i = 0; i < count && refused == EBK_OK; i++) refused = load_file(store, ids[i], text, room);
    if (refused == EBK_OK && ebk_index_prune(&store->index) < 0)
        refused = refuse(text, room, EBK_NO_MEMORY, NULL, "index");
    if (refused == EBK_OK) drop_unfinished(store, names, size);
    for (uint32_t i = count; i < all && refused == EBK_OK; i++) drop_left(store, ids[i]);
    free(ids);
    free(names);
    return refused;
}
