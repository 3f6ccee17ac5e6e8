/* store_roll.c: which entry logs are there, which of them count, and up to where they hold the journal.
 *
 * The roll of the newest flush that counts lists which older logs must be there. A flush counts when all of its logs
 * do (store_flush.c): of one that a crash cut off, some may be there and some not. Those that are there hold entries
 * that were put, and are read like any others; but neither their roll nor their mark is believed, because what the
 * missing ones would hold is in the journal above an older mark.
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "base/id_ranges.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_SUFFIX ".elog"
#define NAME_DIGITS 8
#define PLACES_MIN 64u

/* ---- names ---------------------------------------------------------------------------- */

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

static int compare_places(const void *a, const void *b)
{
    const struct ebk_log_place *one = a, *other = b;
    return one->log_id < other->log_id ? -1 : one->log_id > other->log_id;
}

/* The names in a directory, one behind the other; NULL when memory was refused. *size: -errno when it cannot be read. */
static char *list_names(struct ebk_store *store, uint32_t directory, int64_t *size)
{
    int64_t room = 4096;
    for (;;) {
        char *names = malloc((size_t)room);
        if (names == NULL) return NULL;
        *size = store->io->list(store->io, store->directories[directory], names, (size_t)room);
        if (*size <= room) return names;
        room = *size;
        free(names);
    }
}

static int add_place(struct ebk_log_list *list, uint32_t *capacity, uint32_t log_id, uint32_t directory)
{
    if (list->count == *capacity) {
        const uint32_t wider = *capacity ? *capacity * 2 : PLACES_MIN;
        struct ebk_log_place *places = realloc(list->places, wider * sizeof *places);
        if (places == NULL) return EBK_NO_MEMORY;
        list->places = places;
        *capacity = wider;
    }
    list->places[list->count++] = (struct ebk_log_place){.log_id = log_id, .directory = directory};
    return EBK_OK;
}

/* All finished logs of all directories, by id. What the store does with them rests on their names, so these must be
 * durable first (I49): a killed process may have left one that a crash takes back. */
static int list_all(struct ebk_store *store, struct ebk_log_list *list, char *text, size_t room)
{
    uint32_t capacity = 0;
    for (uint32_t directory = 0; directory < store->directory_count; directory++) {
        const char *path = store->directories[directory];
        const int unsynced = store->io->sync_directory(store->io, path);
        if (unsynced < 0)
            return ebk_store_refuse(text, room, EBK_IO, NULL, "directory %s cannot be synced: %s", path, strerror(-unsynced));
        int64_t size;
        char *names = list_names(store, directory, &size);
        int refused = names == NULL ? EBK_NO_MEMORY : EBK_OK;
        if (names != NULL && size < 0) {
            free(names);
            return ebk_store_refuse(text, room, EBK_IO, NULL, "directory %s: %s", path, strerror((int)-size));
        }
        for (const char *name = names; refused == EBK_OK && name < names + size; name += strlen(name) + 1) {
            uint32_t log_id;
            bool is_tmp;
            if (!parse_name(name, &log_id, &is_tmp)) continue;
            if (log_id > store->log_id_last) store->log_id_last = log_id;
            if (!is_tmp) refused = add_place(list, &capacity, log_id, directory);
        }
        free(names);
        if (refused < 0) return ebk_store_refuse(text, room, refused, NULL, "names of the entry logs in %s", path);
    }
    if (list->count > 1) qsort(list->places, list->count, sizeof *list->places, compare_places);
    list->all = list->count;
    for (uint32_t i = 1; i < list->count; i++) {
        const struct ebk_log_place *one = &list->places[i - 1], *other = &list->places[i];
        if (one->log_id == other->log_id)
            return ebk_store_refuse(text, room, EBK_DAMAGED, NULL, "entry log %08x.elog is in %s and in %s", one->log_id,
                                    store->directories[one->directory], store->directories[other->directory]);
    }
    return EBK_OK;
}

/* ---- the roll ------------------------------------------------------------------------- */

/* The logs that must be there, by the newest flush that counts. */
struct roll {
    uint32_t log_id; /* of the first log of that flush; 0: there is none */
    struct ebk_id_ranges ids;
};

/* Either descriptor of an open log, when it is this log's. */
static bool read_either(const struct ebk_log_source *source, uint32_t log_id, struct ebk_descriptor *descriptor)
{
    const uint64_t tail_offset = source->size < EBK_LOG_DESCRIPTOR_BYTES ? 0 : source->size - EBK_LOG_DESCRIPTOR_BYTES;
    const bool is_read = ebk_log_read_descriptor(source, 0, descriptor) == EBK_OK ||
                         ebk_log_read_descriptor(source, tail_offset, descriptor) == EBK_OK;
    return is_read && descriptor->log_id == log_id;
}

/* Open a log of which a descriptor can be read. False: none of it can be believed, and nothing is open. */
static bool open_log(struct ebk_store *store, const struct ebk_log_place *place, struct ebk_log_source *source,
                     struct ebk_descriptor *descriptor)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(store->directories[place->directory], place->log_id, false, path);
    *source = (struct ebk_log_source){.io = store->io, .file = store->io->open(store->io, path, EBK_OPEN_READ)};
    if (source->file < 0) return false;
    const int64_t size = store->io->size(store->io, source->file);
    source->size = size < 0 ? 0 : (uint64_t)size;
    if (read_either(source, place->log_id, descriptor)) return true;
    (void)store->io->close(store->io, source->file);
    return false;
}

/* Whether the logs behind the first one of a flush, at places[0], are its other parts, all of them. */
static bool has_all_parts(struct ebk_store *store, struct ebk_log_list *list, const struct ebk_log_place *places,
                          uint32_t count, const struct ebk_descriptor *first)
{
    if (count < first->part_count) return false;
    for (uint32_t part = 1; part < first->part_count; part++) {
        struct ebk_log_source source;
        struct ebk_descriptor descriptor;
        if (places[part].log_id != first->log_id + part) return false;
        if (!open_log(store, &places[part], &source, &descriptor)) {
            list->unread = &places[part];
            return false;
        }
        (void)store->io->close(store->io, source.file);
        if (descriptor.part != part || descriptor.part_count != first->part_count) return false;
    }
    return true;
}

/* The roll of the log at places[0], if it has one that counts. Where that cannot be read no older one stands for it: that one
 * names logs which are gone since. */
static int read_roll(struct ebk_store *store, struct ebk_log_list *list, const struct ebk_log_place *places, uint32_t count,
                     struct roll *roll)
{
    const uint32_t log_id = places[0].log_id;
    struct ebk_log_source source;
    struct ebk_descriptor descriptor;
    if (!open_log(store, &places[0], &source, &descriptor)) {
        list->unread = &places[0];
        return EBK_OK;
    }
    const bool has_roll = descriptor.roll_count > 0 && has_all_parts(store, list, places, count, &descriptor);
    uint8_t *states = has_roll ? ebk_log_read_states(store->io, source.file, &descriptor) : NULL;
    (void)store->io->close(store->io, source.file);
    if (has_roll && states == NULL) list->unread = &places[0];
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

/* Keep those that are to be loaded, and put behind them what is below the newest roll and not in it: it was copied, or
 * written once more elsewhere. */
static int part_by_roll(struct ebk_log_list *list, const struct roll *roll)
{
    struct ebk_log_place *left = malloc(((size_t)list->count + 1) * sizeof *left);
    if (left == NULL) return EBK_NO_MEMORY;
    uint32_t kept = 0, left_count = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        const struct ebk_log_place *place = &list->places[i];
        const bool is_kept = place->log_id >= roll->log_id || ebk_id_ranges_find(&roll->ids, place->log_id) != NULL;
        if (is_kept) list->places[kept++] = *place;
        else left[left_count++] = *place;
    }
    if (left_count > 0) memcpy(list->places + kept, left, left_count * sizeof *left);
    list->count = kept;
    free(left);
    return EBK_OK;
}

static int find_missing(const struct ebk_log_list *list, const struct roll *roll, char *text, size_t room)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < roll->ids.count; i++)
        for (uint64_t id = roll->ids.ranges[i].first; id <= roll->ids.ranges[i].last; id++, at++)
            if (at >= list->count || list->places[at].log_id != id)
                return ebk_store_refuse(text, room, EBK_DAMAGED, NULL, "entry log %08x.elog is missing here; %08x.elog "
                                        "says that it must be there", (uint32_t)id, roll->log_id);
    return EBK_OK;
}

int ebk_log_list_read(struct ebk_store *store, struct ebk_log_list *list, char *text, size_t room)
{
    struct roll roll = {0};
    int refused = list_all(store, list, text, room);
    if (refused < 0) return refused;
    for (uint32_t i = list->count; i > 0 && roll.log_id == 0 && list->unread == NULL && refused == EBK_OK; i--)
        refused = read_roll(store, list, &list->places[i - 1], list->count - i + 1, &roll);
    if (list->unread != NULL) return EBK_OK;
    if (refused < 0) {
        (void)ebk_store_refuse(text, room, refused, NULL, "entry log %08x.elog: its roll is impossible", roll.log_id);
    } else if ((refused = part_by_roll(list, &roll)) < 0) {
        (void)ebk_store_refuse(text, room, refused, NULL, "entry logs");
    } else {
        refused = find_missing(list, &roll, text, room);
        store->roll_id = roll.log_id;
    }
    ebk_id_ranges_clear(&roll.ids);
    return refused;
}

void ebk_log_list_clear(struct ebk_log_list *list)
{
    free(list->places);
    *list = (struct ebk_log_list){0};
}

/* ---- the mark ------------------------------------------------------------------------- */

/* Whether the log at `at` is the first of a flush, and all the others of it are there. */
static bool is_whole_flush(const struct ebk_store *store, uint32_t at)
{
    const struct ebk_descriptor *first = &store->logs[at]->descriptor;
    if (first->part != 0 || store->log_count - at < first->part_count) return false;
    for (uint32_t part = 1; part < first->part_count; part++) {
        const struct ebk_descriptor *other = &store->logs[at + part]->descriptor;
        if (other->log_id != first->log_id + part || other->part != part || other->part_count != first->part_count)
            return false;
    }
    return true;
}

int ebk_store_settle_mark(struct ebk_store *store, char *text, size_t room)
{
    for (uint32_t i = 0; i < store->log_count; i++) {
        const struct ebk_log *log = store->logs[i];
        const uint64_t mark = log->descriptor.mark;
        if (mark == 0 || !is_whole_flush(store, i)) continue;
        if (mark < store->mark)
            return ebk_store_refuse(text, room, EBK_DAMAGED, log, "its log mark %llu is below %llu, an older one's",
                                    (unsigned long long)mark, (unsigned long long)store->mark);
        store->mark = mark;
        store->journal_count = log->descriptor.journal_count;
        const uint8_t *item = log->states + ebk_ledger_states_size(&log->descriptor);
        uint64_t sum = 0;
        for (uint32_t each = 0; each < store->journal_count; each++, item += EBK_LOG_STATE_BYTES)
            sum += store->journal_marks[each] = ebk_load_u64(item + 8);
        if (store->journal_count > 0 && sum != mark)
            return ebk_store_refuse(text, room, EBK_DAMAGED, log, "the marks of its journals do not add up to its log mark");
    }
    return EBK_OK;
}

/* ---- what a crash has left ------------------------------------------------------------- */

/* Unfinished logs below the newest finished one: their content was in the journal and is in a later log. Those
 * above stay until the next flush has a higher id: ids are never used again (I48). */
static void drop_unfinished(struct ebk_store *store, uint32_t directory)
{
    const uint32_t newest = store->log_count > 0 ? store->logs[store->log_count - 1]->descriptor.log_id : 0;
    int64_t size;
    char *names = list_names(store, directory, &size);
    for (const char *name = names; names != NULL && name < names + size; name += strlen(name) + 1) {
        char path[EBK_PATH_BYTES_MAX];
        uint32_t log_id;
        bool is_tmp;
        if (!parse_name(name, &log_id, &is_tmp) || !is_tmp || log_id >= newest) continue;
        ebk_log_path(store->directories[directory], log_id, true, path);
        (void)store->io->unlink(store->io, path);
    }
    free(names);
}

void ebk_log_list_tidy(struct ebk_store *store, const struct ebk_log_list *list)
{
    for (uint32_t directory = 0; directory < store->directory_count; directory++) drop_unfinished(store, directory);
    for (uint32_t i = list->count; i < list->all; i++) { /* A crash came between the flush that removed it and the deletion. */
        char path[EBK_PATH_BYTES_MAX];
        ebk_log_path(store->directories[list->places[i].directory], list->places[i].log_id, false, path);
        (void)store->io->unlink(store->io, path);
    }
}
