/* journal_used.c: which file was written last, noted before its first group (JOURNAL.md section 9, P7.9).
 *
 * Files come and go, and a journal whose newest files are gone looks like one that never was longer. The note stands
 * in a file of its own, two blocks of which the newer one counts, so that a torn one leaves the one before.
 */
#include "journal/journal_inside.h"

#include "base/crc32c.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define USED_NAME "USED"
#define USED_MAGIC 0x554B4245u /* "EBKU" */
#define USED_VERSION 1u
#define USED_BYTES (2u * BLOCK_BYTES)

struct used_note { /* at the beginning of a block; zeros behind it */
    uint32_t crc;  /* of the bytes behind it */
    uint32_t magic;
    uint16_t version;
    uint16_t reserved_a;
    uint32_t reserved_b;
    uint64_t number; /* rises by one per note; block = number mod 2 */
    uint64_t generation;
    uint64_t first_token; /* of the file's first group */
};

_Static_assert(sizeof(struct used_note) == 40, "as in JOURNAL.md");

static uint32_t note_crc(const struct used_note *note)
{
    return ebk_crc32c(0, (const uint8_t *)note + sizeof note->crc, sizeof *note - sizeof note->crc);
}

static int make_file(struct ebk_journal *journal, const char *path)
{
    struct ebk_io *io = journal->io;
    int flags = EBK_OPEN_WRITE | EBK_OPEN_CREATE | (journal->direct ? EBK_OPEN_DIRECT : 0);
    int error = io->unlink(io, path);
    if (error < 0 && error != -ENOENT) return error;
    int file = io->open(io, path, flags);
    if (file < 0) return file;
    int64_t wrote = io->write(io, file, journal->zeros, USED_BYTES, 0);
    error = wrote < 0 ? (int)wrote : io->sync(io, file);
    io->close(io, file);
    if (error == 0) error = io->sync_directory(io, journal->directory);
    if (error == 0) return ebk_journal_open_file(journal, path);
    io->unlink(io, path);
    return error;
}

static int read_notes(struct ebk_journal *journal, const char *path, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    int error = io->sync(io, journal->used_file); /* The note must be durable before it is believed. */
    if (error < 0) return ebk_fault_set(fault, EBK_IO, -error, path, 0, "the file cannot be synced");
    int64_t got = io->read(io, journal->used_file, journal->buffer, USED_BYTES, 0);
    if (got < 0) return ebk_fault_set(fault, EBK_IO, (int)-got, path, 0, "the file cannot be read");
    for (uint64_t at = 0; at + BLOCK_BYTES <= (uint64_t)got; at += BLOCK_BYTES) {
        struct used_note note;
        memcpy(&note, journal->buffer + at, sizeof note);
        if (note.magic != USED_MAGIC || note.crc != note_crc(&note)) continue;
        if (note.version != USED_VERSION)
            return ebk_fault_set(fault, EBK_VERSION, 0, path, at + 8, "format version %u; this program knows %u",
                                 note.version, USED_VERSION);
        if (note.number > journal->used.number)
            journal->used = (struct used){note.number, note.generation, note.first_token};
    }
    return EBK_OK;
}

int ebk_journal_open_used(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    struct ebk_io *io = journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    int size = snprintf(path, sizeof path, "%.*s/" USED_NAME, EBK_JOURNAL_PATH_BYTES - 32, journal->directory);
    EBK_ASSERT(size > 0 && size < EBK_JOURNAL_PATH_BYTES);
    int file = ebk_journal_open_file(journal, path);
    if (file >= 0 && io->size(io, file) < (int64_t)USED_BYTES) { /* Cut short, or never whole: it holds no note. */
        io->close(io, file);
        file = -ENOENT;
    }
    if (file == -ENOENT) file = make_file(journal, path);
    if (file < 0 && ebk_code_of(-file) == EBK_NO_SPACE) return EBK_OK; /* That is no reason not to start. */
    if (file < 0) return ebk_fault_set(fault, EBK_IO, -file, path, 0, "the file cannot be opened or made");
    journal->used_file = file;
    return read_notes(journal, path, fault);
}

int ebk_journal_note(struct ebk_journal *journal, uint8_t *block, uint64_t generation, uint64_t first_token, bool *is_written)
{
    struct ebk_io *io = journal->io;
    const struct used *used = &journal->used;
    *is_written = false;
    if (journal->used_file < 0 || (used->generation == generation && used->first_token == first_token)) return 0;
    struct used_note note = {.magic = USED_MAGIC, .version = USED_VERSION, .number = used->number + 1,
                             .generation = generation, .first_token = first_token};
    note.crc = note_crc(&note);
    memset(block, 0, BLOCK_BYTES);
    memcpy(block, &note, sizeof note);
    int64_t wrote = io->write(io, journal->used_file, block, BLOCK_BYTES, note.number % 2 * BLOCK_BYTES);
    if (wrote < 0) return (int)wrote;
    *is_written = true;
    int error = journal->dsync ? 0 : io->sync(io, journal->used_file);
    if (error == 0) journal->used = (struct used){note.number, generation, first_token};
    return error;
}

/* The note of the file that the journal continues in. */
static int note_present(struct ebk_journal *journal)
{
    const struct journal_file *entry = &journal->files[journal->file_count - 1];
    uint64_t first = entry->first_token != 0 ? entry->first_token : journal->opened_token + 1;
    bool is_written;
    return ebk_journal_note(journal, journal->buffer, entry->generation, first, &is_written);
}

/* files[] are those that were found: a new journal's first file, which is made later, may have the same generation. */
void ebk_journal_find_used(struct ebk_journal *journal)
{
    const struct used used = journal->used_found = journal->used;
    const struct journal_file *oldest = &journal->files[0];
    journal->is_used_there = journal->file_count > 0 && oldest->start_token != 0 && oldest->generation > used.generation;
    for (uint32_t i = 0; i < journal->file_count; i++)
        journal->is_used_there = journal->is_used_there || journal->files[i].generation == used.generation;
}

/* The journal has found its tail. */
int ebk_journal_compare_used(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    const struct used used = journal->used_found;
    /* Noted, and a crash came before its first group. It is blank, and may be dropped. */
    bool is_blank = journal->is_used_there && used.generation > journal->generation;
    if (used.number == 0 && journal->files[journal->file_count - 1].first_token == 0)
        is_blank = true; /* A new journal: its first group costs nothing more. */
    if (!is_blank || journal->opened_token + 1 < used.first_token) return EBK_OK;
    int error = note_present(journal);
    if (error < 0)
        return ebk_fault_set(fault, ebk_code_of(-error), -error, journal->directory, 0, USED_NAME " cannot be written");
    return EBK_OK;
}

int ebk_journal_accept(struct ebk_journal *journal, struct ebk_journal_fault *fault)
{
    int error = note_present(journal);
    if (error < 0)
        return ebk_fault_set(fault, ebk_code_of(-error), -error, journal->directory, 0, USED_NAME " cannot be written");
    journal->used_found = journal->used;
    journal->is_used_there = true;
    return EBK_OK;
}

void ebk_journal_used(const struct ebk_journal *journal, struct ebk_journal_used *used)
{
    *used = (struct ebk_journal_used){
        .is_kept = journal->used_file >= 0,
        .is_noted = journal->used_found.number > 0,
        .is_there = journal->is_used_there,
        .generation = journal->used_found.generation,
        .first_token = journal->used_found.first_token,
        .opened_token = journal->opened_token,
    };
}
