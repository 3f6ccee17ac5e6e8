/* journal_files.c: the files of a journal: found at open, prepared ahead, recycled, dropped.
 *
 *     next-G  ── header and zeros durable, then rename ──▶  journal-G  (blank, "next")
 *     journal-G (trimmed) ── rename, new header, rename ──▶  journal-H
 *     journal-G (before a start behind damage) ── rename ──▶  damaged-G  (never read again, never removed)
 *
 * A file called journal-G therefore always has a durable header of generation G, and one
 * called next-G is raw material that open() removes. Overwriting blocks that were written
 * before changes no metadata, so a commit is one device write.
 */
#include "journal/journal_inside.h"

#include "base/crc32c.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LIST_BYTES_MAX (1u << 20)
#define NEXT_PREFIX "next-"
#define ASIDE_PREFIX "damaged-"
#define GENERATION_DIGITS 16

int ebk_fault_set(struct ebk_journal_fault *fault, int code, int system_error, const char *path, uint64_t offset,
                  const char *reason, ...)
{
    fault->code = code;
    fault->system_error = system_error;
    fault->offset = offset;
    snprintf(fault->path, sizeof fault->path, "%s", path);
    va_list arguments;
    va_start(arguments, reason);
    vsnprintf(fault->reason, sizeof fault->reason, reason, arguments);
    va_end(arguments);
    return code;
}

int ebk_code_of(int system_error)
{
    return system_error == ENOSPC || system_error == EDQUOT ? EBK_NO_SPACE : EBK_IO;
}

void ebk_journal_path(const struct ebk_journal *journal, const char *kind, uint64_t generation, char *path)
{
    int size = snprintf(path, EBK_JOURNAL_PATH_BYTES, "%s/%s%016" PRIx64, journal->directory, kind, generation);
    EBK_ASSERT(size > 0 && size < EBK_JOURNAL_PATH_BYTES); /* open() left room for the name. */
}

uint32_t ebk_file_header_crc(const struct file_header *header)
{
    return ebk_crc32c(0, (const uint8_t *)header + sizeof header->crc, sizeof *header - sizeof header->crc);
}

/* ---- opening ----------------------------------------------------------------------- */

int ebk_journal_open_file(struct ebk_journal *journal, const char *path)
{
    int flags = EBK_OPEN_WRITE | (journal->direct ? EBK_OPEN_DIRECT : 0) | (journal->dsync ? EBK_OPEN_DSYNC : 0);
    return journal->io->open(journal->io, path, flags);
}

/* On a device without room for a block: as an open of the newest file is answered. */
static int probe_by_opening(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, journal->files[journal->file_count - 1].generation, path);
    const int file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_DIRECT | EBK_OPEN_DSYNC);
    if (file < 0 && file != -EINVAL)
        return ebk_fault_set(fault, ebk_code_of(-file), -file, path, 0, "the file cannot be opened");
    if (file >= 0) io->close(io, file);
    journal->direct = file >= 0;
    journal->dsync = journal->direct && !journal->settings.sync_apart;
    return EBK_OK;
}

/* Does this file system take direct writes? Some refuse at open, some at the first write. */
int ebk_journal_probe_direct(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, NEXT_PREFIX, 0, path);
    int error = io->unlink(io, path); /* Left by a crash. */
    if (error < 0 && error != -ENOENT)
        return ebk_fault_set(fault, ebk_code_of(-error), -error, path, 0, "a leftover cannot be removed");
    int flags = EBK_OPEN_WRITE | EBK_OPEN_CREATE | EBK_OPEN_DIRECT | EBK_OPEN_DSYNC;
    int file = io->open(io, path, flags);
    if (file == -EINVAL) {
        journal->direct = journal->dsync = false;
        return EBK_OK;
    }
    const bool has_files = journal->file_count > 0; /* Else there is nothing to start with, either. */
    if (file < 0 && has_files && ebk_code_of(-file) == EBK_NO_SPACE) return probe_by_opening(journal, fault);
    if (file < 0)
        return ebk_fault_set(fault, ebk_code_of(-file), -file, path, 0, "a file cannot be made in the directory");
    int64_t wrote = io->write(io, file, journal->zeros, BLOCK_BYTES, 0);
    io->close(io, file);
    io->unlink(io, path); /* If it stays, the next open removes it. */
    if (wrote < 0 && has_files && ebk_code_of((int)-wrote) == EBK_NO_SPACE) return probe_by_opening(journal, fault);
    if (wrote < 0 && wrote != -EINVAL)
        return ebk_fault_set(fault, ebk_code_of((int)-wrote), (int)-wrote, path, 0, "a first block cannot be written");
    journal->direct = wrote >= 0;
    journal->dsync = journal->direct && !journal->settings.sync_apart;
    return EBK_OK;
}

/* The generation that a name ends with; false when it is not of this form. */
static bool parse_name(const char *name, const char *prefix, uint64_t *generation)
{
    size_t prefix_size = strlen(prefix);
    if (strncmp(name, prefix, prefix_size) != 0 || strlen(name) != prefix_size + GENERATION_DIGITS) return false;
    *generation = 0;
    for (const char *digit = name + prefix_size; *digit; digit++) {
        const char *found = strchr("0123456789abcdef", *digit);
        if (found == NULL) return false;
        *generation = *generation << 4 | (uint64_t)(found - "0123456789abcdef");
    }
    return true;
}

static int by_generation(const void *a, const void *b)
{
    const struct journal_file *left = a, *right = b;
    return (left->generation > right->generation) - (left->generation < right->generation);
}

/* Sort what the directory holds into files[] and leftovers; leftovers are removed. */
static int read_names(struct ebk_journal *journal, char *names, int64_t size, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        uint64_t generation;
        if (parse_name(name, NEXT_PREFIX, &generation)) {
            ebk_journal_path(journal, NEXT_PREFIX, generation, path);
            int error = io->unlink(io, path);
            if (error < 0)
                return ebk_fault_set(fault, ebk_code_of(-error), -error, path, 0, "a leftover cannot be removed");
            if (generation > journal->generation_last) journal->generation_last = generation;
        } else if (parse_name(name, FILE_PREFIX, &generation) && generation > 0) {
            if (journal->file_count == journal->settings.file_count_max)
                return ebk_fault_set(fault, EBK_USAGE, 0, journal->directory, 0, "more than %u files: raise file_count_max",
                                     journal->settings.file_count_max);
            journal->files[journal->file_count++] = (struct journal_file){.generation = generation};
            if (generation > journal->generation_last) journal->generation_last = generation;
        } else if (strncmp(name, FILE_PREFIX, strlen(FILE_PREFIX)) == 0) {
            return ebk_fault_set(fault, EBK_FOREIGN, 0, journal->directory, 0, "%.64s is no name that a journal gives",
                                 name);
        } /* Others (identity files, LOCK) belong to others. */
    }
    qsort(journal->files, journal->file_count, sizeof *journal->files, by_generation);
    return EBK_OK;
}

int ebk_journal_list_names(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    /* The open acts on these names, so they must be durable first (I49): a killed process may have left one that a
     * crash takes back, with everything that is written to its file. */
    int error = io->sync_directory(io, journal->directory);
    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, journal->directory, 0, "the directory cannot be synced");
    char *names = malloc(NAME_LIST_BYTES_MAX);
    if (names == NULL) return ebk_fault_set(fault, EBK_NO_MEMORY, 0, journal->directory, 0, "no memory for its names");
    int64_t size = io->list(io, journal->directory, names, NAME_LIST_BYTES_MAX);
    int code;
    if (size < 0)
        code = ebk_fault_set(fault, EBK_IO, (int)-size, journal->directory, 0, "the directory cannot be read");
    else if (size > (int64_t)NAME_LIST_BYTES_MAX)
        code = ebk_fault_set(fault, EBK_FOREIGN, 0, journal->directory, 0, "too many names for a journal's directory");
    else
        code = read_names(journal, names, size, fault);
    free(names);
    return code;
}

/* Check the first block of a file; the first file that is read gives the journal's identity. */
static int check_header(struct ebk_journal *journal, struct journal_file *entry, const char *path, int64_t size,
                        const struct file_header *header, struct ebk_journal_fault *fault)
{
    if (header->magic != FILE_MAGIC)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, 0, "the file does not begin as a journal's file does");
    if (header->crc != ebk_file_header_crc(header))
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, 0, "the header fails its checksum");
    if (header->version != FORMAT_VERSION && header->version != FORMAT_VERSION_START)
        return ebk_fault_set(fault, EBK_VERSION, 0, path, 8, "format version %u; this program knows %u and %u",
                             header->version, FORMAT_VERSION, FORMAT_VERSION_START);
    if (header->generation != entry->generation)
        return ebk_fault_set(fault, EBK_FOREIGN, 0, path, 32, "the header says generation %" PRIu64
                             ", the name another: the file was renamed", header->generation);
    if (!journal->has_identity)
        memcpy(journal->identity, header->identity, sizeof journal->identity);
    else if (memcmp(journal->identity, header->identity, sizeof journal->identity) != 0)
        return ebk_fault_set(fault, EBK_FOREIGN, 0, path, 16, "the file belongs to another journal than its neighbours");
    journal->has_identity = true;
    bool is_start = header->version == FORMAT_VERSION_START;
    if (header->block_bytes != BLOCK_BYTES || header->file_bytes % BLOCK_BYTES != 0 ||
        header->file_bytes < EBK_JOURNAL_FILE_BYTES_MIN || (header->start_token != 0) != is_start ||
        (header->start_sequence != 0) != is_start)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, 12, "the header gives impossible sizes");
    if ((uint64_t)size < header->file_bytes)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, (uint64_t)size, "the file is cut short: it had %" PRIu64 " bytes",
                             header->file_bytes);
    entry->bytes = header->file_bytes;
    entry->start_token = header->start_token;
    entry->start_sequence = header->start_sequence;
    return EBK_OK;
}

/* Learn where the file's groups begin, or that it is blank. */
static int read_first_group(struct ebk_journal *journal, struct journal_file *entry, int file, const char *path,
                            struct ebk_journal_fault *fault)
{
    struct group_header group;
    uint32_t seed = ebk_journal_seed(journal->identity, entry->generation);
    int valid = ebk_group_read(journal->io, file, seed, entry->generation, BLOCK_BYTES, entry->bytes, journal->buffer,
                               &group);
    if (valid < 0) return ebk_fault_set(fault, EBK_IO, -valid, path, BLOCK_BYTES, "the file cannot be read");
    if (valid) {
        entry->first_token = group.first_token;
        entry->first_sequence = group.sequence;
        return EBK_OK;
    }
    int64_t later = ebk_group_find(journal->io, file, seed, entry->generation, 2 * BLOCK_BYTES, entry->bytes,
                                   journal->buffer, &group);
    if (later < 0) return ebk_fault_set(fault, EBK_IO, (int)-later, path, BLOCK_BYTES, "the file cannot be read");
    if (later > 0)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, BLOCK_BYTES,
                             "the first group is not what was written, and a later one at %" PRId64 " is", later);
    return EBK_OK;
}

int ebk_journal_read_header(struct ebk_journal *journal, struct journal_file *entry, int file, const char *path,
                            struct file_header *header, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    /* The open acts on everything that it reads from here on, so that must be durable first: a killed process
     * may have left a group that reached the page cache or the device's cache only. */
    int error = io->sync(io, file);
    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, path, 0, "the file cannot be synced");
    int64_t size = io->size(io, file);
    int64_t got = size < (int64_t)BLOCK_BYTES ? size : io->read(io, file, journal->buffer, BLOCK_BYTES, 0);
    if (got < 0) return ebk_fault_set(fault, EBK_IO, (int)-got, path, 0, "the header cannot be read");
    entry->bytes = (uint64_t)size;
    if (got < (int64_t)BLOCK_BYTES)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, (uint64_t)got, "the file is cut short in its header");
    memcpy(header, journal->buffer, sizeof *header);
    return check_header(journal, entry, path, size, header, fault);
}

static int find_file(struct ebk_journal *journal, uint32_t index, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    struct journal_file *entry = &journal->files[index];
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, entry->generation, path);
    int file = io->open(io, path, EBK_OPEN_WRITE);
    if (file < 0) return ebk_fault_set(fault, EBK_IO, -file, path, 0, "the file cannot be opened");
    struct file_header header;
    int code = ebk_journal_read_header(journal, entry, file, path, &header, fault);
    if (code == EBK_OK) code = read_first_group(journal, entry, file, path, fault);
    io->close(io, file);
    return code;
}

/* files[0 .. count) stand before the file with which the journal begins: what they held is in entry logs as far as
 * it could be read (journal_salvage.c). They are kept for people, under a name that no journal reads. */
static int set_aside(struct ebk_journal *journal, uint32_t count, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    for (uint32_t i = 0; i < count; i++) {
        char from[EBK_JOURNAL_PATH_BYTES], to[EBK_JOURNAL_PATH_BYTES];
        ebk_journal_path(journal, FILE_PREFIX, journal->files[i].generation, from);
        ebk_journal_path(journal, ASIDE_PREFIX, journal->files[i].generation, to);
        int error = io->rename(io, from, to);
        if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, from, 0, "a damaged file cannot be set aside");
    }
    int error = io->sync_directory(io, journal->directory);
    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, journal->directory, 0, "the directory cannot be synced");
    journal->file_count -= count;
    memmove(journal->files, journal->files + count, journal->file_count * sizeof *journal->files);
    return EBK_OK;
}

/* Groups fill files in order of generation; blank ones may only stand at the end. */
static int check_order(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    char path[EBK_JOURNAL_PATH_BYTES];
    for (uint32_t i = 1; i < journal->file_count; i++) {
        const struct journal_file *before = &journal->files[i - 1], *entry = &journal->files[i];
        if (entry->first_token == 0) continue;
        ebk_journal_path(journal, FILE_PREFIX, before->generation, path);
        if (before->first_token == 0)
            return ebk_fault_set(fault, EBK_DAMAGED, 0, path, BLOCK_BYTES, "no group is left, and a later file has some");
        if (entry->first_token <= before->first_token || entry->first_sequence <= before->first_sequence)
            return ebk_fault_set(fault, EBK_DAMAGED, 0, path, BLOCK_BYTES, "its numbers do not precede the next file's");
    }
    return EBK_OK;
}

/* Find the files, check their headers and their order, newest first: what stands before a start behind damage is not
 * looked at. files[] holds all of them afterwards. */
int ebk_journal_find_files(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int code = ebk_journal_list_names(journal, fault);
    uint32_t begin = journal->file_count;
    while (code == EBK_OK && begin > 0 && (begin == journal->file_count || journal->files[begin].start_token == 0))
        code = find_file(journal, --begin, fault);
    if (code == EBK_OK && begin > 0) code = set_aside(journal, begin, fault);
    return code == EBK_OK ? check_order(journal, fault) : code;
}

/* ---- preparing --------------------------------------------------------------------- */

/* Files grow with what was written: a journal with few records stays small, a busy one soon rolls rarely. */
uint64_t ebk_journal_next_bytes(const struct ebk_journal *journal)
{
    const struct ebk_journal_settings *settings = &journal->settings;
    uint64_t newest = journal->file_count == 0 ? 0 : journal->files[journal->file_count - 1].bytes;
    uint64_t bytes = 2 * newest < settings->file_bytes_max ? 2 * newest : settings->file_bytes_max;
    return bytes > settings->file_bytes ? bytes : settings->file_bytes;
}

static int write_header(struct ebk_journal *journal, int file, uint64_t generation, uint64_t bytes)
{
    uint8_t *block = aligned_alloc(BLOCK_BYTES, BLOCK_BYTES); /* Never on the commit path. */
    if (block == NULL) return -ENOMEM;
    struct file_header header = {.magic = FILE_MAGIC,
                                 .version = journal->start_token == 0 ? FORMAT_VERSION : FORMAT_VERSION_START,
                                 .block_bytes = BLOCK_BYTES, .generation = generation, .file_bytes = bytes,
                                 .start_token = journal->start_token, .start_sequence = journal->start_sequence};
    memcpy(header.identity, journal->identity, sizeof header.identity);
    header.crc = ebk_file_header_crc(&header);
    memset(block, 0, BLOCK_BYTES);
    memcpy(block, &header, sizeof header);
    int64_t wrote = journal->io->write(journal->io, file, block, BLOCK_BYTES, 0);
    free(block);
    return wrote < 0 ? (int)wrote : journal->io->sync(journal->io, file);
}

static int write_zeros(struct ebk_journal *journal, int file, uint64_t bytes)
{
    struct ebk_io *io = journal->io;
    int error = io->allocate(io, file, bytes);
    for (uint64_t at = 0; error == 0 && at < bytes; at += ZERO_BYTES) {
        uint64_t size = bytes - at < ZERO_BYTES ? bytes - at : ZERO_BYTES;
        int64_t wrote = io->write(io, file, journal->zeros, size, at);
        if (wrote < 0) error = (int)wrote;
    }
    return error;
}

/* Raw material under its next- name: the oldest trimmed file if it has the right size, else a new one. */
static int make_raw(struct ebk_journal *journal, const struct journal_file *old, uint64_t bytes, const char *path)
{
    struct ebk_io *io = journal->io;
    int direct = journal->direct ? EBK_OPEN_DIRECT : 0;
    if (old->generation == 0) {
        int file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE | direct);
        if (file < 0) return file;
        int error = write_zeros(journal, file, bytes);
        if (error == 0) return file;
        io->close(io, file);
        return error;
    }
    char from[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, old->generation, from);
    int error = io->rename(io, from, path);
    /* The old name must be gone for good before the header is changed. */
    if (error == 0) error = io->sync_directory(io, journal->directory);
    return error < 0 ? error : io->open(io, path, EBK_OPEN_WRITE | direct);
}

/* Take the oldest trimmed file off the list if it can be used again. */
static struct journal_file take_trimmed(struct ebk_journal *journal)
{
    struct journal_file old = {0};
    if (journal->trimmed_count > 0 && journal->files[0].bytes == ebk_journal_next_bytes(journal)) {
        EBK_ASSERT(journal->trimmed_count < journal->file_count && journal->files[0].generation != 0);
        old = journal->files[0];
        journal->file_count -= 1;
        journal->trimmed_count -= 1;
        memmove(journal->files, journal->files + 1, journal->file_count * sizeof *journal->files);
    }
    return old;
}

/* Make the next file. Answers its descriptor, open for commits, or -errno with nothing left behind. */
static int make_next(struct ebk_journal *journal, const struct journal_file *old, uint64_t generation, uint64_t bytes,
                     bool *is_broken)
{
    struct ebk_io *io = journal->io;
    char raw[EBK_JOURNAL_PATH_BYTES], path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, NEXT_PREFIX, generation, raw);
    ebk_journal_path(journal, FILE_PREFIX, generation, path);
    int file = make_raw(journal, old, bytes, raw);
    int error = file < 0 ? file : write_header(journal, file, generation, bytes);
    if (file >= 0) io->close(io, file);
    if (error == 0) error = io->rename(io, raw, path);
    if (error == 0) error = io->sync_directory(io, journal->directory);
    if (error == 0) error = file = ebk_journal_open_file(journal, path);
    if (error >= 0) return file;
    /* A blank file that stays under its final name would look like damage once a later one is in use. */
    int gone = io->unlink(io, path);
    *is_broken = gone < 0 && gone != -ENOENT;
    io->unlink(io, raw); /* If it stays, the next open removes it. */
    return error;
}

/* Make the next file and publish it, or why that was refused. Never on the commit path of a threaded journal.
 * Takes and leaves files_lock. Returns 0 or -errno. */
int ebk_journal_prepare(struct ebk_journal *journal)
{
    pthread_mutex_lock(&journal->files_lock);
    EBK_ASSERT(journal->next_state != NEXT_READY);
    uint64_t bytes = ebk_journal_next_bytes(journal);
    struct journal_file old = take_trimmed(journal);
    uint64_t generation = ++journal->generation_last;
    bool is_broken = journal->is_preparing_broken;
    pthread_mutex_unlock(&journal->files_lock);

    int file = is_broken ? -EIO : make_next(journal, &old, generation, bytes, &is_broken);

    pthread_mutex_lock(&journal->files_lock);
    EBK_ASSERT(journal->next_state != NEXT_READY); /* One prepares at a time. */
    EBK_ASSERT(generation <= journal->generation_last);
    journal->is_preparing_broken = is_broken;
    if (file < 0 && !is_broken) journal->generation_last -= 1; /* Nothing has it: tries may be many on a full device. */
    journal->next_state = file < 0 ? NEXT_REFUSED : NEXT_READY;
    journal->next_error = file < 0 ? -file : 0;
    journal->next_file = file;
    journal->next = (struct journal_file){.generation = generation, .bytes = bytes};
    pthread_cond_broadcast(&journal->files_changed);
    pthread_mutex_unlock(&journal->files_lock);
    return file < 0 ? file : 0;
}

/* Whether the next file is wanted, or the journal is being closed: what is not urgent waits, or goes at once. */
static bool is_pressed(struct ebk_journal *journal)
{
    pthread_mutex_lock(&journal->files_lock);
    const bool is_wanted = journal->next_state == NEXT_MISSING || journal->stop_preparing;
    pthread_mutex_unlock(&journal->files_lock);
    return is_wanted;
}

/* Unlink a file. A file system that reports free blocks to the device (mount option discard) does so with all of a file in
 * one command, and no commit goes past that: 8 ms for 32 MiB and 13 ms for 64 on the device of benchmarks/README.md. So the
 * room of a large one is given back in pieces, once its name is gone for good: a name that came back after a crash with
 * a part of the file would be damage. */
static void drop_file(struct ebk_journal *journal, const struct journal_file *dropped)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, dropped->generation, path);
    int file = dropped->bytes > DROPPED_BYTES ? io->open(io, path, EBK_OPEN_WRITE) : -1;
    int error = io->unlink(io, path);
    if (file < 0) return;
    if (error == 0) error = io->sync_directory(io, journal->directory);
    for (uint64_t bytes = dropped->bytes; error == 0 && bytes > DROPPED_BYTES && !is_pressed(journal);) {
        bytes -= DROPPED_BYTES;
        error = io->shrink(io, file, bytes);
    }
    io->close(io, file); /* Its blocks are freed at once. */
}

bool ebk_journal_has_excess(const struct ebk_journal *journal)
{
    const bool is_in_the_way = journal->file_count == journal->settings.file_count_max && journal->next_state == NEXT_READY;
    return journal->trimmed_count > (is_in_the_way ? 0 : RECYCLED_COUNT_MAX);
}

/* Drop trimmed files that will not be used again, oldest first so that no hole appears. A file that cannot
 * be removed is left to the next open, which finds it below the log mark. */
void ebk_journal_tidy(struct ebk_journal *journal)
{
    for (;;) {
        pthread_mutex_lock(&journal->files_lock);
        bool is_odd = journal->trimmed_count > 0 && journal->files[0].bytes != ebk_journal_next_bytes(journal);
        bool is_excess = ebk_journal_has_excess(journal) || is_odd;
        const struct journal_file dropped = journal->files[0];
        if (is_excess) {
            EBK_ASSERT(journal->trimmed_count > 0 && journal->trimmed_count < journal->file_count);
            journal->file_count -= 1;
            journal->trimmed_count -= 1;
            memmove(journal->files, journal->files + 1, journal->file_count * sizeof *journal->files);
        }
        pthread_mutex_unlock(&journal->files_lock);
        if (!is_excess) return;
        drop_file(journal, &dropped);
    }
}
