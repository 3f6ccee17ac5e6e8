/* store_log.c: writing one entry log from a frozen half of the write cache.
 *
 *     | descriptor, zeros | states | index | entries | zeros | index | states | zeros | descriptor |
 *     0                 4096                             n * 4096                                size
 *
 * Everything is known before the first byte is written, so the file is written once,
 * front to back, and all but the entries stands at both ends: no damage of one block hides
 * the ledger states (the fences, P7.3) or where an entry is. The file has its final name
 * only when all of it is synced, and counts only when the directory is synced too.
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- index section ------------------------------------------------------------------ */

/* Build the index section of what the cache holds, and the descriptor's numbers with it. */
static int make_index(struct ebk_flush *flush)
{
    struct ebk_descriptor *descriptor = &flush->descriptor;
    struct ebk_run_maker *maker = calloc(1, sizeof *maker);
    if (maker == NULL) return EBK_NO_MEMORY;
    maker->offset = ebk_first_index_offset(descriptor); /* ebk_runs_seal() moves all by what the index takes there. */
    int refused = EBK_OK;
    for (uint32_t i = 0; i < flush->cache->ledger_count && refused == EBK_OK; i++) {
        const struct ebk_cached_ledger *ledger = &flush->cache->ledgers[i];
        if (!ebk_flush_takes(flush, ledger)) continue;
        descriptor->ledger_count += 1;
        for (uint32_t j = 0; j < ledger->count && refused == EBK_OK; j++) {
            const struct ebk_span *span = &ebk_cached_spans(ledger)[j];
            const uint8_t *entry = span->bytes, *end = entry + span->size;
            for (; entry < end && refused == EBK_OK; entry += ebk_cache_entry_size(entry))
                refused = ebk_run_maker_add(maker, ledger->ledger_id, ebk_cache_entry_id(entry),
                                            ebk_cache_entry_size(entry), entry);
            descriptor->entry_count += span->count;
        }
    }
    if (refused == EBK_OK) refused = ebk_run_maker_end(maker);
    flush->index = maker->index;
    descriptor->run_count = maker->run_count;
    descriptor->entries_size = maker->offset - ebk_first_index_offset(descriptor);
    descriptor->index_size = maker->size;
    free(maker);
    return refused;
}

/* ---- the file ----------------------------------------------------------------------- */

int64_t ebk_log_write_out(struct ebk_log_writer *writer)
{
    if (writer->used == 0) return 0;
    if (writer->yields != NULL) ebk_yield_wait(writer->yields);
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

int64_t ebk_log_append(struct ebk_log_writer *writer, const void *bytes, size_t size)
{
    const uint8_t *from = bytes;
    while (size > 0) {
        const size_t room = EBK_LOG_CHUNK_BYTES - writer->used, part = size < room ? size : room;
        memcpy(writer->chunk + writer->used, from, part);
        writer->used += part;
        from += part;
        size -= part;
        if (writer->used < EBK_LOG_CHUNK_BYTES) return 0;
        const int64_t done = ebk_log_write_out(writer);
        if (done < 0) return done;
    }
    return 0;
}

int64_t ebk_log_append_zeros(struct ebk_log_writer *writer, uint64_t until)
{
    static const uint8_t zeros[EBK_LOG_BLOCK_BYTES];
    while (writer->offset + writer->used < until) {
        const uint64_t left = until - writer->offset - writer->used;
        const int64_t done = ebk_log_append(writer, zeros, left < sizeof zeros ? (size_t)left : sizeof zeros);
        if (done < 0) return done;
    }
    return 0;
}

static int64_t append_entries(struct ebk_log_writer *writer, const struct ebk_flush *flush)
{
    for (uint32_t i = 0; i < flush->cache->ledger_count; i++) {
        const struct ebk_cached_ledger *ledger = &flush->cache->ledgers[i];
        if (!ebk_flush_takes(flush, ledger)) continue;
        for (uint32_t j = 0; j < ledger->count; j++) {
            const struct ebk_span *span = &ebk_cached_spans(ledger)[j];
            const int64_t done = ebk_log_append(writer, span->bytes, span->size);
            if (done < 0) return done;
        }
    }
    return 0;
}

int64_t ebk_log_write_head(struct ebk_log_writer *writer, const struct ebk_flush *flush)
{
    uint8_t head[EBK_LOG_DESCRIPTOR_BYTES];
    int64_t done;
    ebk_descriptor_write(&flush->descriptor, head);
    if ((done = ebk_log_append(writer, head, sizeof head)) < 0) return done;
    if ((done = ebk_log_append_zeros(writer, EBK_LOG_BLOCK_BYTES)) < 0) return done;
    if ((done = ebk_log_append(writer, flush->states, flush->descriptor.states_size)) < 0) return done;
    return ebk_log_append(writer, flush->index, flush->descriptor.index_size);
}

int64_t ebk_log_write_tail(struct ebk_log_writer *writer, const struct ebk_flush *flush)
{
    const struct ebk_descriptor *descriptor = &flush->descriptor;
    uint8_t head[EBK_LOG_DESCRIPTOR_BYTES];
    int64_t done;
    ebk_descriptor_write(descriptor, head);
    EBK_ASSERT(writer->offset + writer->used == ebk_entries_end(descriptor));
    if ((done = ebk_log_append_zeros(writer, ebk_index_offset(descriptor))) < 0) return done;
    if ((done = ebk_log_append(writer, flush->index, descriptor->index_size)) < 0) return done;
    if ((done = ebk_log_append(writer, flush->states, descriptor->states_size)) < 0) return done;
    if ((done = ebk_log_append_zeros(writer, descriptor->file_size - sizeof head)) < 0) return done;
    if ((done = ebk_log_append(writer, head, sizeof head)) < 0) return done;
    EBK_ASSERT(writer->offset + writer->used == descriptor->file_size);
    return ebk_log_write_out(writer);
}

static int64_t write_sections(struct ebk_log_writer *writer, const struct ebk_flush *flush)
{
    int64_t done = ebk_log_write_head(writer, flush);
    if (done == 0) done = append_entries(writer, flush);
    return done < 0 ? done : ebk_log_write_tail(writer, flush);
}

int ebk_log_fail(struct ebk_flush *flush, const char *what, int64_t error)
{
    snprintf(flush->text, sizeof flush->text, "entry log %08x.elog: %s failed: %s", flush->descriptor.log_id, what,
             strerror((int)-error));
    if (ebk_is_want(error)) return EBK_WANT; /* Of this process: it says nothing of the directory. */
    return error == -ENOSPC || error == -EDQUOT ? EBK_NO_SPACE : EBK_IO;
}

int ebk_log_create(struct ebk_flush *flush, struct ebk_log_writer *writer, const char *path, uint8_t *chunk)
{
    struct ebk_io *io = flush->io;
    *writer = (struct ebk_log_writer){.io = io, .path = path, .is_direct = true, .chunk = chunk};
    writer->file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE | EBK_OPEN_DIRECT);
    if (writer->file == -EINVAL) {
        writer->is_direct = false;
        writer->file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE);
    }
    if (writer->file < 0) return ebk_log_fail(flush, "creating it", writer->file);
    const int allocated = io->allocate(io, writer->file, flush->descriptor.file_size);
    return allocated < 0 ? ebk_log_fail(flush, "writing it", allocated) : EBK_OK;
}

int ebk_log_end(struct ebk_flush *flush, struct ebk_log_writer *writer, int64_t written)
{
    const char *what = "writing it";
    if (written == 0) {
        written = writer->io->sync(writer->io, writer->file); /* Not tried again when it fails: the next is another file (P7.6). */
        what = "syncing it";
    }
    if (writer->file >= 0) (void)writer->io->close(writer->io, writer->file);
    writer->file = -1;
    return written < 0 ? ebk_log_fail(flush, what, written) : EBK_OK;
}

static int write_file(struct ebk_flush *flush, const char *path, uint8_t *chunk)
{
    struct ebk_log_writer writer;
    const int refused = ebk_log_create(flush, &writer, path, chunk);
    writer.yields = &flush->store->yield_word;
    if (refused == EBK_OK) return ebk_log_end(flush, &writer, write_sections(&writer, flush));
    if (writer.file >= 0) (void)writer.io->close(writer.io, writer.file);
    return refused;
}

int ebk_log_publish(struct ebk_flush *flush, const char *tmp)
{
    char path[EBK_PATH_BYTES_MAX];
    ebk_log_path(flush->directory, flush->descriptor.log_id, false, path);
    int done = flush->io->rename(flush->io, tmp, path);
    if (done < 0) return ebk_log_fail(flush, "renaming it", done);
    done = flush->io->sync_directory(flush->io, flush->directory);
    return done < 0 ? ebk_log_fail(flush, "syncing its directory", done) : EBK_OK;
}

void ebk_log_seal(struct ebk_flush *flush)
{
    struct ebk_descriptor *descriptor = &flush->descriptor;
    if (descriptor->version < EBK_LOG_VERSION)
        descriptor->index_size = ebk_runs_without_digests(flush->index, descriptor->index_size);
    ebk_runs_seal(descriptor, flush->index);
    const uint64_t end = ebk_second_states_offset(descriptor) + descriptor->states_size + EBK_LOG_DESCRIPTOR_BYTES;
    descriptor->file_size = (end + EBK_LOG_BLOCK_BYTES - 1) / EBK_LOG_BLOCK_BYTES * EBK_LOG_BLOCK_BYTES;
    descriptor->states_crc = ebk_section_crc(descriptor, flush->states, descriptor->states_size);
    descriptor->index_crc = ebk_section_crc(descriptor, flush->index, descriptor->index_size);
}

void ebk_log_flush(struct ebk_flush *flush)
{
    struct ebk_descriptor *descriptor = &flush->descriptor;
    char tmp[EBK_PATH_BYTES_MAX];
    uint8_t *chunk = NULL;
    flush->text[0] = 0;
    flush->result = make_index(flush);
    if (flush->result == EBK_OK && posix_memalign((void **)&chunk, EBK_IO_ALIGNMENT, EBK_LOG_CHUNK_BYTES) != 0)
        flush->result = EBK_NO_MEMORY;
    if (flush->result < 0) {
        snprintf(flush->text, sizeof flush->text, "entry log %08x: memory was refused", descriptor->log_id);
        return;
    }
    ebk_log_seal(flush);
    ebk_log_path(flush->directory, descriptor->log_id, true, tmp);
    flush->result = write_file(flush, tmp, chunk);
    if (flush->result == EBK_OK) flush->result = ebk_log_publish(flush, tmp);
    if (flush->result < 0) (void)flush->io->unlink(flush->io, tmp); /* It may hold the last room of a full device. */
    free(chunk);
}
