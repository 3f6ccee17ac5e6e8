/* store_log.c: writing one entry log from a frozen half of the write cache.
 *
 *     | descriptor, zeros | states | entries | index | states | zeros | descriptor |
 *     0                 4096                                                   size
 *
 * Everything is known before the first byte is written, so the file is written once,
 * front to back, and its descriptor stands at both ends: no single damage hides where
 * the ledger states (the fences, P7.3) or the index are. The file has its final name
 * only when all of it is synced, and counts only when the directory is synced too.
 */
#include "store_inside.h"

#include "bytes.h"
#include "crc32c.h"
#include "errors.h"
#include "frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (1u << 20)
#define INDEX_BYTES_MIN (64u << 10)

/* Where the numbers of a descriptor stand (STORAGE.md section 1). */
#define AT_MAGIC 0
#define AT_VERSION 4
#define AT_LOG_ID 8
#define AT_PREVIOUS 12
#define AT_TOKEN 16
#define AT_INCARNATION 32
#define AT_MARK 48
#define AT_STATES_SIZE 56
#define AT_ENTRIES_SIZE 64
#define AT_ENTRY_COUNT 72
#define AT_INDEX_SIZE 80
#define AT_FILE_SIZE 88
#define AT_RUN_COUNT 96
#define AT_LEDGER_COUNT 100
#define AT_STATES_CRC 104
#define AT_INDEX_CRC 108
#define AT_RESERVED 112
#define AT_CRC 124
#define IDENTITY_BYTES AT_MARK /* Sections are bound to these: whose file it is and which. */

static const uint8_t MAGIC[4] = {'E', 'B', 'K', 'L'};

_Static_assert(AT_CRC + 4 == EBK_LOG_DESCRIPTOR_BYTES, "the descriptor has no room left");

/* ---- descriptor --------------------------------------------------------------------- */

void ebk_descriptor_write(const struct ebk_descriptor *descriptor, uint8_t *to)
{
    memset(to, 0, EBK_LOG_DESCRIPTOR_BYTES);
    memcpy(to + AT_MAGIC, MAGIC, sizeof MAGIC);
    ebk_store_u32(to + AT_VERSION, EBK_LOG_VERSION);
    ebk_store_u32(to + AT_LOG_ID, descriptor->log_id);
    ebk_store_u32(to + AT_PREVIOUS, descriptor->previous_id);
    memcpy(to + AT_TOKEN, descriptor->cluster_token, 16);
    memcpy(to + AT_INCARNATION, descriptor->incarnation, 16);
    ebk_store_u64(to + AT_MARK, descriptor->mark);
    ebk_store_u64(to + AT_STATES_SIZE, descriptor->states_size);
    ebk_store_u64(to + AT_ENTRIES_SIZE, descriptor->entries_size);
    ebk_store_u64(to + AT_ENTRY_COUNT, descriptor->entry_count);
    ebk_store_u64(to + AT_INDEX_SIZE, descriptor->index_size);
    ebk_store_u64(to + AT_FILE_SIZE, descriptor->file_size);
    ebk_store_u32(to + AT_RUN_COUNT, descriptor->run_count);
    ebk_store_u32(to + AT_LEDGER_COUNT, descriptor->ledger_count);
    ebk_store_u32(to + AT_STATES_CRC, descriptor->states_crc);
    ebk_store_u32(to + AT_INDEX_CRC, descriptor->index_crc);
    ebk_store_u32(to + AT_CRC, ebk_crc32c(0, to, AT_CRC));
}

int ebk_descriptor_read(struct ebk_descriptor *descriptor, const uint8_t *from)
{
    if (memcmp(from + AT_MAGIC, MAGIC, sizeof MAGIC) != 0) return EBK_DAMAGED;
    if (ebk_load_u32(from + AT_CRC) != ebk_crc32c(0, from, AT_CRC)) return EBK_DAMAGED;
    if (ebk_load_u32(from + AT_VERSION) != EBK_LOG_VERSION) return EBK_VERSION;
    *descriptor = (struct ebk_descriptor){
        .log_id = ebk_load_u32(from + AT_LOG_ID),
        .previous_id = ebk_load_u32(from + AT_PREVIOUS),
        .mark = ebk_load_u64(from + AT_MARK),
        .states_size = ebk_load_u64(from + AT_STATES_SIZE),
        .entries_size = ebk_load_u64(from + AT_ENTRIES_SIZE),
        .entry_count = ebk_load_u64(from + AT_ENTRY_COUNT),
        .index_size = ebk_load_u64(from + AT_INDEX_SIZE),
        .file_size = ebk_load_u64(from + AT_FILE_SIZE),
        .run_count = ebk_load_u32(from + AT_RUN_COUNT),
        .ledger_count = ebk_load_u32(from + AT_LEDGER_COUNT),
        .states_crc = ebk_load_u32(from + AT_STATES_CRC),
        .index_crc = ebk_load_u32(from + AT_INDEX_CRC),
    };
    memcpy(descriptor->cluster_token, from + AT_TOKEN, 16);
    memcpy(descriptor->incarnation, from + AT_INCARNATION, 16);
    return EBK_OK;
}

uint32_t ebk_section_crc(const struct ebk_descriptor *descriptor, const uint8_t *bytes, size_t size)
{
    uint8_t head[EBK_LOG_DESCRIPTOR_BYTES];
    ebk_descriptor_write(descriptor, head);
    return ebk_crc32c(ebk_crc32c(0, head, IDENTITY_BYTES), bytes, size);
}

void ebk_log_path(const char *directory, uint32_t log_id, bool is_tmp, char *path)
{
    snprintf(path, EBK_PATH_BYTES_MAX, "%s/%08x.elog%s", directory, log_id, is_tmp ? ".tmp" : "");
}

/* ---- index section ------------------------------------------------------------------ */

/* The run that is being gathered, and where finished ones go. */
struct run_maker {
    uint8_t *index; /* grows */
    size_t size, capacity;
    uint32_t run_count;
    uint64_t ledger_id, offset; /* of the next entry in the file */
    int64_t ids[EBK_RUN_ENTRIES_MAX];
    uint32_t sizes[EBK_RUN_ENTRIES_MAX];
    uint32_t count;
    uint64_t bytes;
};

/* The residues of the ids modulo a number with which they, and no other id between them, are described. */
static bool find_pattern(const struct run_maker *maker, uint32_t *modulus, uint64_t *residues)
{
    const int64_t first = maker->ids[0], last = maker->ids[maker->count - 1];
    for (uint32_t m = 1; m <= EBK_MODULUS_MAX; m++) {
        uint64_t mask = 0, held = 0;
        for (uint32_t i = 0; i < maker->count; i++) mask |= UINT64_C(1) << ((uint64_t)maker->ids[i] % m);
        const uint64_t ids = (uint64_t)(last - first) + 1, rounds = ids / m;
        for (uint32_t r = 0; r < m; r++) held += (mask >> r & 1u) * rounds;
        for (uint64_t id = (uint64_t)first + rounds * m; id <= (uint64_t)last; id++) held += mask >> (id % m) & 1u;
        if (held == maker->count) { /* Every held id has its residue in the mask, so none else is described. */
            *modulus = m;
            *residues = mask;
            return true;
        }
    }
    return false;
}

static uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static int make_room(struct run_maker *maker)
{
    /* 15 bytes at most for an entry: its id's distance (a small gap: 1) and its size's difference (5). */
    const size_t needed = maker->size + EBK_LOG_RUN_BYTES + (size_t)EBK_RUN_ENTRIES_MAX * 15;
    if (needed <= maker->capacity) return EBK_OK;
    size_t capacity = maker->capacity ? maker->capacity * 2 : INDEX_BYTES_MIN;
    if (capacity < needed) capacity = needed;
    uint8_t *index = realloc(maker->index, capacity);
    if (index == NULL) return EBK_NO_MEMORY;
    maker->index = index;
    maker->capacity = capacity;
    return EBK_OK;
}

static int end_run(struct run_maker *maker)
{
    if (maker->count == 0) return EBK_OK;
    if (make_room(maker) < 0) return EBK_NO_MEMORY;
    uint32_t modulus = 0;
    uint64_t residues = 0;
    const bool is_pattern = find_pattern(maker, &modulus, &residues);
    bool sizes_equal = true;
    for (uint32_t i = 1; i < maker->count; i++) sizes_equal &= maker->sizes[i] == maker->sizes[0];

    uint8_t *head = maker->index + maker->size, *coded = head + EBK_LOG_RUN_BYTES, *end = coded;
    for (uint32_t i = 0; i < maker->count; i++) {
        if (!is_pattern && i > 0) end += ebk_varint_write(end, (uint64_t)(maker->ids[i] - maker->ids[i - 1]));
        if (!sizes_equal) end += ebk_varint_write(end, zigzag((int64_t)maker->sizes[i] - (i ? maker->sizes[i - 1] : 0)));
    }
    memset(head, 0, EBK_LOG_RUN_BYTES);
    ebk_store_u64(head, maker->ledger_id);
    ebk_store_u64(head + 8, (uint64_t)maker->ids[0]);
    ebk_store_u64(head + 16, (uint64_t)maker->ids[maker->count - 1]);
    ebk_store_u64(head + 24, residues);
    ebk_store_u64(head + 32, maker->offset - maker->bytes);
    ebk_store_u32(head + 40, (uint32_t)maker->bytes);
    ebk_store_u32(head + 44, maker->count);
    ebk_store_u32(head + 48, (uint32_t)(end - coded));
    head[52] = (uint8_t)modulus;
    head[53] = sizes_equal;
    maker->size = (size_t)(end - maker->index);
    maker->run_count += 1;
    maker->count = 0;
    maker->bytes = 0;
    return EBK_OK;
}

static int add_entry(struct run_maker *maker, uint64_t ledger_id, const uint8_t *entry)
{
    const int64_t id = ebk_cache_entry_id(entry);
    const uint32_t size = ebk_cache_entry_size(entry);
    if (maker->count > 0 && (maker->ledger_id != ledger_id || maker->count == EBK_RUN_ENTRIES_MAX ||
                             id - maker->ids[maker->count - 1] > EBK_RUN_GAP_MAX ||
                             maker->bytes + size > UINT32_MAX)) {
        const int refused = end_run(maker);
        if (refused < 0) return refused;
    }
    maker->ledger_id = ledger_id;
    maker->ids[maker->count] = id;
    maker->sizes[maker->count] = size;
    maker->count += 1;
    maker->bytes += size;
    maker->offset += size;
    return EBK_OK;
}

/* Build the index section of what the cache holds, and the descriptor's numbers with it. */
static int make_index(struct ebk_flush *flush)
{
    struct ebk_descriptor *descriptor = &flush->descriptor;
    struct run_maker *maker = calloc(1, sizeof *maker);
    if (maker == NULL) return EBK_NO_MEMORY;
    maker->offset = ebk_entries_offset(descriptor);
    int refused = EBK_OK;
    for (uint32_t i = 0; i < flush->cache->ledger_count && refused == EBK_OK; i++) {
        const struct ebk_cached_ledger *ledger = &flush->cache->ledgers[i];
        descriptor->ledger_count += ledger->count > 0;
        for (uint32_t j = 0; j < ledger->count && refused == EBK_OK; j++) {
            const uint8_t *entry = ledger->spans[j].bytes, *end = entry + ledger->spans[j].size;
            for (; entry < end && refused == EBK_OK; entry += ebk_cache_entry_size(entry))
                refused = add_entry(maker, ledger->ledger_id, entry);
            descriptor->entry_count += ledger->spans[j].count;
        }
    }
    if (refused == EBK_OK) refused = end_run(maker);
    flush->index = maker->index;
    descriptor->run_count = maker->run_count;
    descriptor->entries_size = maker->offset - ebk_entries_offset(descriptor);
    descriptor->index_size = maker->size;
    free(maker);
    return refused;
}

/* ---- the file ----------------------------------------------------------------------- */

/* Writes front to back in whole chunks from one aligned buffer: direct where the file system takes it, so that a
 * flush neither fills the page cache nor makes a sync of it long beside the journal's. */
struct writer {
    struct ebk_io *io;
    const char *path;
    int file;
    bool is_direct;
    uint8_t *chunk;
    size_t used;
    uint64_t offset; /* of the chunk in the file */
};

static int64_t write_out(struct writer *writer)
{
    if (writer->used == 0) return 0;
    int64_t done = writer->io->write(writer->io, writer->file, writer->chunk, writer->used, writer->offset);
    if (done == -EINVAL && writer->is_direct) { /* Some file systems open with O_DIRECT and refuse to write. */
        (void)writer->io->close(writer->io, writer->file);
        writer->is_direct = false;
        writer->file = writer->io->open(writer->io, writer->path, EBK_OPEN_WRITE);
        if (writer->file < 0) return writer->file;
        done = writer->io->write(writer->io, writer->file, writer->chunk, writer->used, writer->offset);
    }
    if (done < 0) return done;
    writer->offset += writer->used;
    writer->used = 0;
    return 0;
}

static int64_t append(struct writer *writer, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    while (size > 0) {
        const size_t room = CHUNK_BYTES - writer->used, part = size < room ? size : room;
        memcpy(writer->chunk + writer->used, from, part);
        writer->used += part;
        from += part;
        size -= part;
        if (writer->used < CHUNK_BYTES) return 0;
        const int64_t done = write_out(writer);
        if (done < 0) return done;
    }
    return 0;
}

static int64_t append_zeros(struct writer *writer, uint64_t until)
{
    static const uint8_t zeros[EBK_LOG_BLOCK_BYTES];
    while (writer->offset + writer->used < until) {
        const uint64_t left = until - writer->offset - writer->used;
        const int64_t done = append(writer, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros);
        if (done < 0) return done;
    }
    return 0;
}

static int64_t append_entries(struct writer *writer, const struct ebk_cache *cache)
{
    for (uint32_t i = 0; i < cache->ledger_count; i++) {
        const struct ebk_cached_ledger *ledger = &cache->ledgers[i];
        for (uint32_t j = 0; j < ledger->count; j++) {
            const int64_t done = append(writer, ledger->spans[j].bytes, ledger->spans[j].size);
            if (done < 0) return done;
        }
    }
    return 0;
}

static int64_t write_sections(struct writer *writer, const struct ebk_flush *flush)
{
    const struct ebk_descriptor *descriptor = &flush->descriptor;
    uint8_t head[EBK_LOG_DESCRIPTOR_BYTES];
    int64_t done;
    ebk_descriptor_write(descriptor, head);
    if ((done = append(writer, head, sizeof head)) < 0) return done;
    if ((done = append_zeros(writer, EBK_LOG_BLOCK_BYTES)) < 0) return done;
    if ((done = append(writer, flush->states, descriptor->states_size)) < 0) return done;
    if ((done = append_entries(writer, flush->cache)) < 0) return done;
    EBK_ASSERT(writer->offset + writer->used == ebk_index_offset(descriptor));
    if ((done = append(writer, flush->index, descriptor->index_size)) < 0) return done;
    if ((done = append(writer, flush->states, descriptor->states_size)) < 0) return done;
    if ((done = append_zeros(writer, descriptor->file_size - sizeof head)) < 0) return done;
    if ((done = append(writer, head, sizeof head)) < 0) return done;
    EBK_ASSERT(writer->offset + writer->used == descriptor->file_size);
    return write_out(writer);
}

static int fail(struct ebk_flush *flush, const char *what, int64_t error)
{
    snprintf(flush->text, sizeof flush->text, "entry log %08x.elog: %s failed: %s", flush->descriptor.log_id, what,
             strerror((int)-error));
    return error == -ENOSPC || error == -EDQUOT ? EBK_NO_SPACE : EBK_IO;
}

static int write_file(struct ebk_flush *flush, const char *path, uint8_t *chunk)
{
    struct ebk_io *io = flush->io;
    struct writer writer = {.io = io, .path = path, .is_direct = true, .chunk = chunk};
    writer.file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE | EBK_OPEN_DIRECT);
    if (writer.file == -EINVAL) {
        writer.is_direct = false;
        writer.file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE);
    }
    if (writer.file < 0) return fail(flush, "creating it", writer.file);
    const int allocated = io->allocate(io, writer.file, flush->descriptor.file_size);
    int64_t done = allocated < 0 ? allocated : write_sections(&writer, flush);
    const char *what = "writing it";
    if (done == 0) {
        done = io->sync(io, writer.file); /* Not tried again when it fails: the next attempt is another file (P7.6). */
        what = "syncing it";
    }
    if (writer.file >= 0) (void)io->close(io, writer.file);
    return done < 0 ? fail(flush, what, done) : EBK_OK;
}

static int publish(struct ebk_flush *flush, const char *tmp)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(flush->directory, flush->descriptor.log_id, false, path);
    int done = flush->io->rename(flush->io, tmp, path);
    if (done < 0) return fail(flush, "renaming it", done);
    done = flush->io->sync_directory(flush->io, flush->directory);
    return done < 0 ? fail(flush, "syncing its directory", done) : EBK_OK;
}

void ebk_log_flush(struct ebk_flush *flush)
{
    struct ebk_descriptor *descriptor = &flush->descriptor;
    char tmp[EBK_PATH_BYTES_MAX];
    uint8_t *chunk = NULL;
    flush->text[0] = 0;
    flush->result = make_index(flush);
    if (flush->result == EBK_OK && posix_memalign((void **)&chunk, EBK_IO_ALIGNMENT, CHUNK_BYTES) != 0)
        flush->result = EBK_NO_MEMORY;
    if (flush->result < 0) {
        snprintf(flush->text, sizeof flush->text, "entry log %08x: memory was refused", descriptor->log_id);
        return;
    }
    const uint64_t end = ebk_index_offset(descriptor) + descriptor->index_size + descriptor->states_size +
                         EBK_LOG_DESCRIPTOR_BYTES;
    descriptor->file_size = (end + EBK_LOG_BLOCK_BYTES - 1) / EBK_LOG_BLOCK_BYTES * EBK_LOG_BLOCK_BYTES;
    descriptor->states_crc = ebk_section_crc(descriptor, flush->states, descriptor->states_size);
    descriptor->index_crc = ebk_section_crc(descriptor, flush->index, descriptor->index_size);
    ebk_log_path(flush->directory, descriptor->log_id, true, tmp);
    flush->result = write_file(flush, tmp, chunk);
    if (flush->result == EBK_OK) flush->result = publish(flush, tmp);
    if (flush->result < 0) (void)flush->io->unlink(flush->io, tmp); /* It may hold the last room of a full device. */
    free(chunk);
}
