/* scrub.c: one piece after the other of an entry log, read from the device and checked.
 *
 *     piece 1: descriptors, states, both copies of the index ─▶ then windows of whole entries, in file order
 *
 * The index of the log being read is kept between pieces, so that a piece costs what it
 * reads. A window that cannot be read whole is read entry by entry: others are found.
 */
#define _GNU_SOURCE
#include "store/scrub.h"

#include "base/errors.h"
#include "store/store_inside.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define WINDOW_BYTES (1u << 20)
#define ENTRY_BYTES_MAX (EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX)
#define BUFFER_BYTES ((WINDOW_BYTES + ENTRY_BYTES_MAX + 3u * EBK_IO_ALIGNMENT) / EBK_IO_ALIGNMENT * EBK_IO_ALIGNMENT)
_Static_assert(BUFFER_BYTES >= WINDOW_BYTES + ENTRY_BYTES_MAX + 2u * EBK_IO_ALIGNMENT, "a window and a block at both ends");
#define WINDOW_ENTRIES_MAX EBK_RUN_ENTRIES_MAX

enum piece_state { PIECE_NONE, PIECE_RUNNING, PIECE_ENDED };

struct ebk_scrub {
    struct ebk_io *io;
    char directory[EBK_PATH_BYTES_MAX - EBK_LOG_NAME_BYTES];
    uint8_t cluster_token[16], incarnation[16];

    /* The piece: its thread's alone while it runs. */
    uint64_t bytes_max;
    int file;
    uint64_t file_size;
    bool is_direct;
    uint8_t *buffer; /* BUFFER_BYTES, aligned */
    struct ebk_scrub_piece piece;
    struct ebk_scrub_damage spare; /* Takes damage that the piece has no room for. */

    /* The log being read: its descriptor, its index, and the run that comes next. */
    bool is_loaded;
    struct ebk_log log;
    const uint8_t *at, *index_end; /* in log.index: behind the run that is being read, and behind all that are known */
    struct ebk_run run;
    struct ebk_cursor cursor; /* over that one run */
    uint64_t ledger_id;       /* of that run */

    bool is_want; /* the piece found no descriptor or no memory: nothing of it counts */

    pthread_t thread;
    _Atomic int state;
    bool has_thread;
    int event_file;
};

/* ---- life --------------------------------------------------------------------------- */

struct ebk_scrub *ebk_scrub_open(struct ebk_io *io, const char *directory, const uint8_t *cluster_token,
                                 const uint8_t *incarnation)
{
    struct ebk_scrub *scrub = calloc(1, sizeof *scrub);
    if (scrub == NULL) return NULL;
    scrub->io = io;
    scrub->file = -1;
    scrub->log.file = -1;
    memcpy(scrub->cluster_token, cluster_token, sizeof scrub->cluster_token);
    memcpy(scrub->incarnation, incarnation, sizeof scrub->incarnation);
    scrub->event_file = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    scrub->buffer = aligned_alloc(EBK_IO_ALIGNMENT, BUFFER_BYTES);
    if (scrub->event_file < 0 || scrub->buffer == NULL || strlen(directory) >= sizeof scrub->directory) {
        const int reason = scrub->event_file < 0 ? EMFILE : ENOMEM;
        ebk_scrub_close(scrub);
        errno = reason;
        return NULL;
    }
    strcpy(scrub->directory, directory);
    return scrub;
}

static void forget_log(struct ebk_scrub *scrub)
{
    free(scrub->log.index);
    scrub->log = (struct ebk_log){.file = -1};
    scrub->is_loaded = false;
    scrub->cursor = (struct ebk_cursor){0};
    scrub->run = (struct ebk_run){0};
    scrub->at = scrub->index_end = NULL;
}

void ebk_scrub_close(struct ebk_scrub *scrub)
{
    if (scrub->has_thread) pthread_join(scrub->thread, NULL);
    forget_log(scrub);
    if (scrub->event_file >= 0) close(scrub->event_file);
    free(scrub->buffer);
    free(scrub);
}

/* ---- telling ------------------------------------------------------------------------ */

static struct ebk_scrub_damage *tell(struct ebk_scrub *scrub, int part, uint64_t offset, int system_error)
{
    struct ebk_scrub_piece *piece = &scrub->piece;
    struct ebk_scrub_damage *damage =
        piece->damage_count < EBK_SCRUB_DAMAGES_MAX ? &piece->damages[piece->damage_count] : &scrub->spare;
    piece->damage_count += 1;
    *damage = (struct ebk_scrub_damage){.part = part, .system_error = system_error, .offset = offset,
                                        .first_entry = -1, .last_entry = -1};
    return damage;
}

/* Neighbours of one ledger are one damage. */
static void tell_entry(struct ebk_scrub *scrub, uint64_t offset, int64_t entry_id, int64_t previous_id, int system_error)
{
    struct ebk_scrub_piece *piece = &scrub->piece;
    if (piece->damage_count > 0 && piece->damage_count <= EBK_SCRUB_DAMAGES_MAX) {
        struct ebk_scrub_damage *last = &piece->damages[piece->damage_count - 1];
        if (last->part == EBK_SCRUB_ENTRIES && last->ledger_id == scrub->ledger_id && last->last_entry == previous_id &&
            last->system_error == system_error) {
            last->last_entry = entry_id;
            return;
        }
    }
    struct ebk_scrub_damage *damage = tell(scrub, EBK_SCRUB_ENTRIES, offset, system_error);
    damage->ledger_id = scrub->ledger_id;
    damage->first_entry = damage->last_entry = entry_id;
}

/* ---- reading ------------------------------------------------------------------------ */

static void open_file(struct ebk_scrub *scrub)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(scrub->directory, scrub->piece.log_id, false, path);
    scrub->is_direct = true;
    scrub->file = scrub->io->open(scrub->io, path, EBK_OPEN_READ | EBK_OPEN_DIRECT);
    if (scrub->file == -EINVAL) {
        scrub->is_direct = false;
        scrub->file = scrub->io->open(scrub->io, path, EBK_OPEN_READ);
    }
    const int64_t size = scrub->file < 0 ? scrub->file : scrub->io->size(scrub->io, scrub->file);
    scrub->file_size = size < 0 ? 0 : (uint64_t)size;
}

/* Where the bytes offset..offset+size stand in the buffer; NULL with *error (0: the file ends before) otherwise.
 * size is at most what the buffer holds beside two blocks. */
static const uint8_t *fetch(struct ebk_scrub *scrub, uint64_t offset, size_t size, int *error)
{
    const uint64_t begin = offset / EBK_IO_ALIGNMENT * EBK_IO_ALIGNMENT;
    const uint64_t end = (offset + size + EBK_IO_ALIGNMENT - 1) / EBK_IO_ALIGNMENT * EBK_IO_ALIGNMENT;
    EBK_ASSERT(end - begin <= BUFFER_BYTES);
    const int64_t got = scrub->io->read(scrub->io, scrub->file, scrub->buffer, end - begin, begin);
    *error = got < 0 ? (int)-got : 0;
    return got < 0 || (uint64_t)got < offset + size - begin ? NULL : scrub->buffer + (offset - begin);
}

/* A section in memory of its own; NULL when it cannot be read or fails its sum. */
static uint8_t *fetch_section(struct ebk_scrub *scrub, uint64_t offset, uint64_t size, uint32_t crc, int *error)
{
    *error = 0;
    if (offset > scrub->file_size || size > scrub->file_size - offset) return NULL;
    uint8_t *section = malloc(size + 1);
    scrub->is_want |= section == NULL;
    for (uint64_t done = 0; section != NULL && done < size;) {
        const size_t part = size - done < WINDOW_BYTES ? (size_t)(size - done) : WINDOW_BYTES;
        const uint8_t *bytes = fetch(scrub, offset + done, part, error);
        if (bytes == NULL) {
            free(section);
            return NULL;
        }
        memcpy(section + done, bytes, part);
        done += part;
    }
    scrub->piece.bytes += size;
    if (section != NULL && ebk_section_crc(&scrub->log.descriptor, section, size) == crc) return section;
    free(section);
    return NULL;
}

/* ---- the head of a log -------------------------------------------------------------- */

static bool fetch_descriptor(struct ebk_scrub *scrub, uint64_t offset, struct ebk_descriptor *descriptor, int *error)
{
    const uint8_t *bytes = fetch(scrub, offset, EBK_LOG_DESCRIPTOR_BYTES, error);
    scrub->piece.bytes += EBK_LOG_DESCRIPTOR_BYTES;
    return bytes != NULL && ebk_descriptor_read(descriptor, bytes) == EBK_OK && ebk_descriptor_is_possible(descriptor);
}

static bool load_descriptor(struct ebk_scrub *scrub)
{
    const uint64_t tail_at =
        scrub->file_size < EBK_LOG_DESCRIPTOR_BYTES ? 0 : scrub->file_size - EBK_LOG_DESCRIPTOR_BYTES;
    struct ebk_descriptor head, tail;
    int head_error, tail_error;
    const bool has_head = fetch_descriptor(scrub, 0, &head, &head_error);
    const bool has_tail = fetch_descriptor(scrub, tail_at, &tail, &tail_error);
    if (!has_head) tell(scrub, EBK_SCRUB_DESCRIPTOR, 0, head_error);
    if (!has_tail) tell(scrub, EBK_SCRUB_DESCRIPTOR, tail_at, tail_error);
    if (!has_head && !has_tail) return false;
    scrub->log.descriptor = has_head ? head : tail;
    const struct ebk_descriptor *found = &scrub->log.descriptor;
    if (found->log_id == scrub->piece.log_id && memcmp(found->cluster_token, scrub->cluster_token, 16) == 0 &&
        memcmp(found->incarnation, scrub->incarnation, 16) == 0)
        return true;
    tell(scrub, EBK_SCRUB_FILE, 0, 0);
    return false;
}

/* Whether the runs tile the entries, as the store asks before it believes an index. */
static bool is_index_sound(struct ebk_scrub *scrub, const uint8_t *index)
{
    const uint8_t *at = index, *end = at + scrub->log.descriptor.index_size;
    uint64_t offset = ebk_entries_offset(&scrub->log.descriptor);
    while (at < end) {
        if (!ebk_run_read(&scrub->log, &at, end, &scrub->ledger_id, &scrub->run) || scrub->run.offset != offset)
            return false;
        offset += scrub->run.bytes;
    }
    return offset == ebk_entries_end(&scrub->log.descriptor);
}

/* The readable rest of an index whose copies are both damaged, as the store takes it; NULL: nothing. */
static uint8_t *join_copies(struct ebk_scrub *scrub, size_t *joined)
{
    const struct ebk_descriptor *descriptor = &scrub->log.descriptor;
    const uint64_t size = descriptor->index_size;
    if (descriptor->version < EBK_LOG_VERSION_TWICE || size > scrub->file_size) return NULL;
    uint8_t *copies = calloc(3, size + 1); /* Both, and behind them what is made of them. */
    scrub->is_want |= copies == NULL;
    for (uint32_t copy = 0; copies != NULL && copy < 2; copy++) {
        const uint64_t offset = copy == 0 ? ebk_first_index_offset(descriptor) : ebk_index_offset(descriptor);
        for (uint64_t done = 0; done < size; done += EBK_LOG_BLOCK_BYTES) {
            const size_t part = size - done < EBK_LOG_BLOCK_BYTES ? (size_t)(size - done) : EBK_LOG_BLOCK_BYTES;
            int error;
            const uint8_t *bytes = fetch(scrub, offset + done, part, &error);
            if (bytes != NULL) memcpy(copies + copy * size + done, bytes, part);
        }
    }
    if (copies == NULL) return NULL;
    *joined = ebk_runs_join(&scrub->log, copies, copies + size, copies + 2 * size);
    memmove(copies, copies + 2 * size, *joined);
    return copies;
}

static void load_index(struct ebk_scrub *scrub)
{
    const struct ebk_descriptor *descriptor = &scrub->log.descriptor;
    const uint64_t places[2] = {ebk_first_index_offset(descriptor), ebk_index_offset(descriptor)};
    size_t size = descriptor->index_size;
    uint8_t *index = NULL;
    for (int copy = descriptor->version < EBK_LOG_VERSION_TWICE; copy < 2; copy++) {
        int error;
        uint8_t *section = fetch_section(scrub, places[copy], descriptor->index_size, descriptor->index_crc, &error);
        const bool is_sound = section != NULL && is_index_sound(scrub, section);
        if (!is_sound) tell(scrub, EBK_SCRUB_INDEX, places[copy], error);
        if (is_sound && index == NULL) index = section;
        else free(section);
    }
    if (index == NULL) index = join_copies(scrub, &size);
    scrub->log.index = index;
    scrub->at = index;
    scrub->index_end = index == NULL ? NULL : index + size;
}

static bool next_run(struct ebk_scrub *scrub)
{
    if (scrub->at == scrub->index_end) return false;
    const bool is_sound = ebk_run_read(&scrub->log, &scrub->at, scrub->index_end, &scrub->ledger_id, &scrub->run);
    EBK_ASSERT(is_sound);
    ebk_cursor_over_runs(&scrub->cursor, &scrub->run, 1, scrub->run.first);
    return true;
}

static bool load_log(struct ebk_scrub *scrub)
{
    forget_log(scrub);
    if (!load_descriptor(scrub)) return false;
    const struct ebk_descriptor *descriptor = &scrub->log.descriptor;
    const uint64_t states[2] = {EBK_LOG_BLOCK_BYTES, ebk_second_states_offset(descriptor)};
    int error;
    for (int copy = 0; copy < 2; copy++) {
        uint8_t *section = fetch_section(scrub, states[copy], descriptor->states_size, descriptor->states_crc, &error);
        if (section == NULL) tell(scrub, EBK_SCRUB_STATES, states[copy], error);
        free(section);
    }
    load_index(scrub);
    scrub->is_loaded = true;
    return true;
}

/* ---- entries ------------------------------------------------------------------------ */

static bool is_entry(const uint8_t *bytes, uint32_t size, uint64_t ledger_id, int64_t entry_id)
{
    struct ebk_frame_facts facts;
    return ebk_frame_scan(bytes, size, &facts) == EBK_FRAME_SOUND && facts.count == 1 &&
           facts.ledger_id == ledger_id && facts.first_entry == entry_id;
}

/* Whole entries of the run, as many as make one window; the cursor stands behind them. */
static void read_window(struct ebk_scrub *scrub)
{
    struct { int64_t id; uint64_t offset; uint32_t size; } entries[WINDOW_ENTRIES_MAX];
    uint32_t count = 0;
    uint64_t size = 0;
    EBK_ASSERT(ebk_cursor_has(&scrub->cursor));
    const uint64_t begin = scrub->cursor.offset;
    while (ebk_cursor_has(&scrub->cursor) && (count == 0 || size + scrub->cursor.size <= WINDOW_BYTES)) {
        entries[count].id = scrub->cursor.id;
        entries[count].offset = scrub->cursor.offset;
        entries[count].size = scrub->cursor.size;
        size += scrub->cursor.size;
        count += 1;
        ebk_cursor_next(&scrub->cursor);
    }
    int error;
    const uint8_t *bytes = fetch(scrub, begin, size, &error);
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *entry = bytes != NULL ? bytes + (entries[i].offset - begin)
                                             : fetch(scrub, entries[i].offset, entries[i].size, &error);
        if (entry == NULL || !is_entry(entry, entries[i].size, scrub->ledger_id, entries[i].id))
            tell_entry(scrub, entries[i].offset, entries[i].id, i > 0 ? entries[i - 1].id : -1, entry == NULL ? error : 0);
    }
    scrub->piece.bytes += size;
    scrub->piece.entries += count;
    scrub->piece.offset = begin + size;
}

/* Up to `end` no index covers the bytes: valid entries one after another; the first that is not valid hides what comes
 * behind. */
static void read_unindexed(struct ebk_scrub *scrub, uint64_t end)
{
    uint64_t offset = scrub->piece.offset;
    const uint64_t left = end - offset;
    const size_t size = left < WINDOW_BYTES + ENTRY_BYTES_MAX ? (size_t)left : WINDOW_BYTES + ENTRY_BYTES_MAX;
    int error;
    const uint8_t *bytes = fetch(scrub, offset, size, &error);
    size_t done = 0;
    while (bytes != NULL && done < size && done < WINDOW_BYTES && size - done >= EBK_ENTRY_OVERHEAD_BYTES) {
        const uint64_t whole = ebk_cache_entry_size(bytes + done);
        struct ebk_frame_facts facts;
        if (whole > size - done || ebk_frame_scan(bytes + done, whole, &facts) != EBK_FRAME_SOUND) break;
        done += whole;
        scrub->piece.entries += 1;
    }
    offset += done;
    scrub->piece.bytes += done;
    scrub->piece.offset = offset;
    if (bytes != NULL && (done == size || done >= WINDOW_BYTES)) return;
    tell(scrub, EBK_SCRUB_UNKNOWN, offset, error);
    scrub->piece.offset = end;
}

/* Go to the run that holds the piece's offset: after a restart. */
static void find_run(struct ebk_scrub *scrub)
{
    while (next_run(scrub))
        if (scrub->run.offset + scrub->run.bytes > scrub->piece.offset) return;
}

static void read_piece(struct ebk_scrub *scrub)
{
    struct ebk_scrub_piece *piece = &scrub->piece;
    const bool is_known = scrub->is_loaded && scrub->log.descriptor.log_id == piece->log_id && piece->offset > 0;
    if (!is_known) {
        if (!load_log(scrub)) {
            piece->is_end = true;
            return;
        }
        const uint64_t begin = ebk_entries_offset(&scrub->log.descriptor);
        if (piece->offset < begin) piece->offset = begin;
        find_run(scrub);
    }
    const uint64_t end = ebk_entries_end(&scrub->log.descriptor);
    do {
        const bool has_run = ebk_cursor_has(&scrub->cursor) || next_run(scrub);
        const uint64_t known = has_run ? scrub->run.offset : end;
        if (piece->offset < known) read_unindexed(scrub, known);
        else if (has_run) read_window(scrub);
        piece->is_end = piece->offset >= end;
    } while (!piece->is_end && piece->bytes < scrub->bytes_max);
}

/* ---- pieces ------------------------------------------------------------------------- */

static void *run_piece(void *argument)
{
    struct ebk_scrub *scrub = argument;
    const uint64_t one = 1;
    open_file(scrub);
    if (ebk_is_want(scrub->file)) {
        scrub->is_want = true;
    } else if (scrub->file < 0) {
        tell(scrub, EBK_SCRUB_FILE, 0, -scrub->file);
        scrub->piece.is_end = true;
    } else {
        read_piece(scrub);
        (void)scrub->io->close(scrub->io, scrub->file);
    }
    if (scrub->piece.is_end || scrub->is_want) forget_log(scrub);
    atomic_store_explicit(&scrub->state, PIECE_ENDED, memory_order_release);
    const ssize_t written = write(scrub->event_file, &one, sizeof one);
    EBK_ASSERT(written == sizeof one);
    return NULL;
}

static int prepare(struct ebk_scrub *scrub, uint32_t log_id, uint64_t offset, uint64_t bytes_max)
{
    if (scrub->state != PIECE_NONE) return EBK_FULL;
    scrub->piece = (struct ebk_scrub_piece){.log_id = log_id, .offset = offset};
    scrub->bytes_max = bytes_max;
    scrub->is_want = false;
    scrub->state = PIECE_RUNNING;
    return EBK_OK;
}

int ebk_scrub_start(struct ebk_scrub *scrub, uint32_t log_id, uint64_t offset, uint64_t bytes_max)
{
    const int refused = prepare(scrub, log_id, offset, bytes_max);
    if (refused < 0) return refused;
    if (pthread_create(&scrub->thread, NULL, run_piece, scrub) != 0) {
        scrub->state = PIECE_NONE;
        return EBK_NO_MEMORY;
    }
    scrub->has_thread = true;
    return EBK_OK;
}

int ebk_scrub_now(struct ebk_scrub *scrub, uint32_t log_id, uint64_t offset, uint64_t bytes_max)
{
    const int refused = prepare(scrub, log_id, offset, bytes_max);
    if (refused < 0) return refused;
    run_piece(scrub);
    return EBK_OK;
}

int ebk_scrub_event_file(const struct ebk_scrub *scrub)
{
    return scrub->event_file;
}

int ebk_scrub_finish(struct ebk_scrub *scrub, struct ebk_scrub_piece *piece)
{
    const int state = atomic_load_explicit(&scrub->state, memory_order_acquire);
    if (state == PIECE_NONE) return EBK_END;
    if (state == PIECE_RUNNING) return EBK_FULL;
    if (scrub->has_thread) pthread_join(scrub->thread, NULL);
    scrub->has_thread = false;
    uint64_t wakes;
    (void)!read(scrub->event_file, &wakes, sizeof wakes);
    scrub->state = PIECE_NONE;
    if (scrub->is_want) return EBK_IO;
    *piece = scrub->piece;
    return EBK_OK;
}
