/* journal_salvage.c: what is left of a damaged journal, and a start behind the damage (P7.4, I42; JOURNAL.md section 6).
 *
 *     every valid group, in order ─▶ the owner makes its records durable elsewhere ─▶ start file ─▶ open()
 *
 * Nothing on the device changes before ebk_salvage_finish(), and that is one rename: a crash before it leaves the
 * same journal and the same decision, a crash after it leaves a journal that begins with the start file.
 *
 * What counts as lost is judged by tokens. One group is in flight at a time, so a valid header proves that everything
 * before it was durable: what is missing between valid groups is lost. The last header alone may have been torn.
 */
#include "journal/journal_inside.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ebk_salvage {
    struct ebk_journal *journal; /* its memory, its names and its lock; it never commits */
    uint64_t after;
    bool *is_bad;        /* by file: the header, or the length, is not what was written */
    uint32_t index;      /* the file being read */
    int file;            /* -1: files[index] is not open yet */
    uint64_t offset;
    bool has_group;      /* in the journal's buffer */
    struct group_header group;
    uint64_t at;         /* offset in the buffer of the next record */
    uint32_t record;     /* its index */
    bool has_header;     /* one was found: the next can be checked against it */
    uint64_t token;      /* last token of the last header */
    uint64_t sequence;   /* of the last header */
    uint32_t crc;        /* of the last header */
    uint64_t torn_count; /* records above the mark of the last header, when they fail their sums */
    bool is_blind;       /* behind the last header something cannot be read: more may have stood there */
    bool is_done;
    struct ebk_salvage_facts facts;
};

static void path_of(const struct ebk_salvage *salvage, char *path)
{
    ebk_journal_path(salvage->journal, FILE_PREFIX, salvage->journal->files[salvage->index].generation, path);
}

/* Only the first damage is reported; the others add nothing. */
static void note(struct ebk_salvage *salvage, int code, int system_error, const char *reason)
{
    if (salvage->facts.first.code != EBK_OK) return;
    char path[EBK_JOURNAL_PATH_BYTES];
    path_of(salvage, path);
    ebk_fault_set(&salvage->facts.first, code, system_error, path, salvage->offset, "%s", reason);
}

/* ---- open -------------------------------------------------------------------------- */

/* One file's header. Damage is noted; what belongs to others, or to a later program, is refused. */
static int read_header(struct ebk_salvage *salvage, uint32_t index, struct ebk_journal_fault *fault)
{
    struct ebk_journal *journal = salvage->journal;
    struct journal_file *entry = &journal->files[index];
    struct file_header header = {0};
    char path[EBK_JOURNAL_PATH_BYTES];
    ebk_journal_path(journal, FILE_PREFIX, entry->generation, path);
    int file = journal->io->open(journal->io, path, EBK_OPEN_WRITE);
    int code = file < 0 ? ebk_fault_set(fault, EBK_IO, -file, path, 0, "the file cannot be opened")
                        : ebk_journal_read_header(journal, entry, file, path, &header, fault);
    if (file >= 0) journal->io->close(journal->io, file);
    if (code == EBK_VERSION || code == EBK_FOREIGN) return code;
    salvage->is_bad[index] = code < 0;
    entry->bytes = entry->bytes / BLOCK_BYTES * BLOCK_BYTES;
    /* The only header may be the bad one: what its identity is worth, the sums of its groups say. */
    if (code < 0 && !journal->has_identity && header.magic == FILE_MAGIC)
        memcpy(journal->identity, header.identity, sizeof journal->identity);
    return EBK_OK;
}

/* Newest first: what stands before a start behind earlier damage is needed no more. */
static int find_begin(struct ebk_salvage *salvage, struct ebk_journal_fault *fault)
{
    struct ebk_journal *journal = salvage->journal;
    for (uint32_t i = journal->file_count; i > 0; i--) {
        int code = read_header(salvage, i - 1, fault);
        if (code < 0) return code;
        const struct journal_file *entry = &journal->files[i - 1];
        if (entry->start_token == 0) continue;
        salvage->index = i - 1;
        salvage->token = entry->start_token - 1;
        salvage->sequence = entry->start_sequence - 1;
        break;
    }
    return EBK_OK;
}

int ebk_salvage_open(struct ebk_io *io, const char *directory, const struct ebk_journal_settings *settings,
                     uint64_t after, struct ebk_salvage **out, struct ebk_journal_fault *fault)
{
    *out = NULL;
    int code = ebk_journal_check_settings(settings, directory, fault);
    if (code < 0) return code;
    struct ebk_salvage *salvage = calloc(1, sizeof *salvage);
    if (salvage == NULL) return ebk_fault_set(fault, EBK_NO_MEMORY, 0, directory, 0, "memory for it was refused");
    struct ebk_journal *journal = ebk_journal_make(io, directory, settings, fault);
    if (journal == NULL) {
        free(salvage);
        return fault->code;
    }
    *salvage = (struct ebk_salvage){.journal = journal, .after = after, .file = -1};
    code = ebk_journal_take_directory(journal, fault);
    if (code == EBK_OK) code = ebk_journal_list_names(journal, fault);
    if (code == EBK_OK) {
        salvage->is_bad = calloc(journal->file_count + 1, sizeof *salvage->is_bad);
        if (salvage->is_bad == NULL) code = ebk_fault_set(fault, EBK_NO_MEMORY, 0, directory, 0, "no memory for it");
    }
    if (code == EBK_OK) code = find_begin(salvage, fault);
    if (code < 0) {
        ebk_salvage_close(salvage);
        return code;
    }
    *out = salvage;
    return EBK_OK;
}

void ebk_salvage_close(struct ebk_salvage *salvage)
{
    if (salvage == NULL) return;
    if (salvage->file >= 0) salvage->journal->io->close(salvage->journal->io, salvage->file);
    ebk_journal_release(salvage->journal);
    free(salvage->is_bad);
    free(salvage);
}

/* ---- reading ----------------------------------------------------------------------- */

/* Open files[index]; false: it cannot be opened, and is passed by. */
static bool begin_file(struct ebk_salvage *salvage)
{
    struct ebk_io *io = salvage->journal->io;
    char path[EBK_JOURNAL_PATH_BYTES];
    path_of(salvage, path);
    salvage->offset = 0;
    if (salvage->is_bad[salvage->index]) note(salvage, EBK_DAMAGED, 0, "its header or its length is not what was written");
    salvage->file = io->open(io, path, EBK_OPEN_READ);
    salvage->offset = BLOCK_BYTES;
    if (salvage->file >= 0) return true;
    note(salvage, EBK_IO, -salvage->file, "the file cannot be opened");
    salvage->is_blind = true;
    salvage->index += 1;
    return false;
}

/* A valid header proves what must have been before it. False: it is out of order, and is not believed. */
static bool take_header(struct ebk_salvage *salvage, const struct group_header *group, int valid)
{
    uint64_t last = group->first_token + group->record_count - 1, expected = salvage->token + 1;
    if (group->first_token < expected || group->sequence <= salvage->sequence) {
        note(salvage, EBK_DAMAGED, 0, "a group stands out of order");
        salvage->is_blind = true;
        return false;
    }
    salvage->is_blind = false;
    salvage->facts.missing_count += salvage->torn_count; /* It has a follower: it was durable. */
    salvage->torn_count = 0;
    uint64_t needed = expected > salvage->after ? expected : salvage->after + 1;
    if (group->first_token > needed) {
        note(salvage, EBK_DAMAGED, 0, "groups before this one are missing or not what was written");
        salvage->facts.missing_count += group->first_token - needed;
    } else if (salvage->has_header && group->first_token == expected && salvage->token > salvage->after &&
               (group->sequence != salvage->sequence + 1 || group->previous_crc != salvage->crc)) {
        note(salvage, EBK_DAMAGED, 0, "a group does not follow the one before");
        salvage->facts.may_have_lost = true; /* The one before may be an old version of what was acknowledged. */
    }
    salvage->has_header = true;
    salvage->token = last;
    salvage->sequence = group->sequence;
    salvage->crc = group->crc;
    if (valid != 1 && last > salvage->after) {
        uint64_t first = group->first_token > salvage->after ? group->first_token : salvage->after + 1;
        salvage->torn_count = last - first + 1;
        salvage->is_blind = valid < 0; /* Not to be read is not the same as torn. */
    }
    return true;
}

static void end(struct ebk_salvage *salvage)
{
    struct ebk_salvage_facts *facts = &salvage->facts;
    if (salvage->token < salvage->after) {
        salvage->is_blind = true;
        if (facts->first.code == EBK_OK)
            ebk_fault_set(&facts->first, EBK_DAMAGED, 0, salvage->journal->directory, 0,
                          "it ends at record %" PRIu64 ", below the log mark %" PRIu64, salvage->token, salvage->after);
    }
    facts->may_have_lost = facts->may_have_lost || salvage->is_blind || facts->missing_count > 0;
    facts->start_token = (salvage->token > salvage->after ? salvage->token : salvage->after) + 1;
    facts->start_sequence = salvage->sequence + 1;
    salvage->is_done = true;
}

/* Read the next valid group into the buffer; false at the end of the last file. */
static bool next_group(struct ebk_salvage *salvage)
{
    struct ebk_journal *journal = salvage->journal;
    while (salvage->index < journal->file_count) {
        if (salvage->file < 0 && !begin_file(salvage)) continue;
        const struct journal_file *entry = &journal->files[salvage->index];
        if (salvage->offset + BLOCK_BYTES > entry->bytes) {
            journal->io->close(journal->io, salvage->file);
            salvage->file = -1;
            if (salvage->is_bad[salvage->index]) salvage->is_blind = true; /* Perhaps it was longer. */
            salvage->index += 1;
            continue;
        }
        struct group_header group = {0};
        uint32_t seed = ebk_journal_seed(journal->identity, entry->generation);
        int valid = ebk_group_read(journal->io, salvage->file, seed, entry->generation, salvage->offset, entry->bytes,
                                   journal->buffer, &group);
        if (valid < 0) {
            note(salvage, EBK_IO, -valid, "a part of the file cannot be read");
            salvage->is_blind = true;
        }
        if (!ebk_group_is_valid_header(seed, entry->generation, salvage->offset, entry->bytes, &group)) {
            salvage->offset += BLOCK_BYTES;
            continue;
        }
        bool is_taken = take_header(salvage, &group, valid);
        salvage->offset += round_up(group.group_bytes, BLOCK_BYTES);
        if (!is_taken || valid != 1) continue;
        salvage->group = group;
        salvage->has_group = true;
        salvage->at = sizeof group;
        salvage->record = 0;
        return true;
    }
    end(salvage);
    return false;
}

int64_t ebk_salvage_next(struct ebk_salvage *salvage, struct ebk_record *records, size_t count_max)
{
    EBK_ASSERT(count_max > 0);
    while (!salvage->is_done) {
        if (!salvage->has_group && !next_group(salvage)) break;
        size_t count = 0;
        const uint8_t *buffer = salvage->journal->buffer;
        for (; count < count_max && salvage->record < salvage->group.record_count; salvage->record++) {
            const struct record_header *record = (const struct record_header *)(buffer + salvage->at);
            uint64_t token = salvage->group.first_token + salvage->record;
            salvage->at += record_extent(record->size);
            if (token <= salvage->after) continue;
            records[count++] = (struct ebk_record){.token = token, .ledger_id = record->ledger_id,
                                                   .kind = record->kind, .size = record->size,
                                                   .data = (const uint8_t *)(record + 1)};
        }
        salvage->has_group = salvage->record < salvage->group.record_count;
        if (count > 0) return (int64_t)count;
    }
    return 0;
}

void ebk_salvage_tell(const struct ebk_salvage *salvage, struct ebk_salvage_facts *facts)
{
    EBK_ASSERT(salvage->is_done);
    *facts = salvage->facts;
}

/* ---- going on ---------------------------------------------------------------------- */

int ebk_salvage_finish(struct ebk_salvage *salvage, struct ebk_journal_fault *fault)
{
    EBK_ASSERT(salvage->is_done);
    struct ebk_journal *journal = salvage->journal;
    journal->start_token = salvage->facts.start_token;
    journal->start_sequence = salvage->facts.start_sequence;
    int code = ebk_journal_probe_direct(journal, fault);
    if (code < 0) return code;
    int error = ebk_journal_prepare(journal);
    if (error < 0)
        return ebk_fault_set(fault, ebk_code_of(-error), -error, journal->directory, 0, "the start file cannot be made");
    return EBK_OK;
}
