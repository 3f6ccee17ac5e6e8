/* journal_replay.c: reading groups back; where the tail is, and what is damage (I42, I43).
 *
 * One group is in flight at a time, so a valid header of group n+1 proves that group n
 * was durable. Hence the rule:
 *
 *   - the newest file that has groups is read up to its first invalid one. If a valid
 *     header of the same generation stands anywhere behind that, it is damage; else it
 *     is the tail, torn or not yet written: nothing in it was ever acknowledged;
 *   - an older file is whole only if its groups lead, by sequence, token and the crc of
 *     the header before, to the first group of the next file; anything else is damage.
 */
#include "journal/journal_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct ebk_replay {
    struct ebk_journal *journal;
    uint64_t after;
    uint8_t *buffer;
    struct journal_file *files; /* a copy: trimming does not disturb a replay that has begun */
    uint32_t file_count, index; /* index: the file being read */
    int file;                   /* -1: files[index] is not open yet */
    uint64_t offset;
    bool has_group, has_any; /* a group in buffer; any group read: the chain can be checked */
    struct group_header group;
    uint64_t at;        /* offset in buffer of the next record */
    uint32_t record;    /* its index */
    uint64_t sequence;  /* of the last group read */
    uint64_t token;     /* last token read */
    uint32_t previous_crc;
};

static void path_of(const struct ebk_replay *replay, char *path)
{
    ebk_journal_path(replay->journal, FILE_PREFIX, replay->files[replay->index].generation, path);
}

int ebk_replay_open(struct ebk_journal *journal, uint64_t after, struct ebk_replay **out,
                    struct ebk_journal_fault *fault)
{
    *out = NULL;
    if (after > journal->opened_token)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, journal->directory, 0,
                             "it ends at record %" PRIu64 ", below the log mark %" PRIu64, journal->opened_token, after);
    struct ebk_replay *replay = calloc(1, sizeof *replay);
    uint8_t *buffer = aligned_alloc(BLOCK_BYTES, GROUP_BUFFER_BYTES);
    pthread_mutex_lock(&journal->files_lock);
    uint32_t count = journal->file_count;
    struct journal_file *files = calloc(count + 1, sizeof *files);
    if (files != NULL) memcpy(files, journal->files, count * sizeof *files);
    pthread_mutex_unlock(&journal->files_lock);
    if (replay == NULL || buffer == NULL || files == NULL) {
        free(replay);
        free(buffer);
        free(files);
        return ebk_fault_set(fault, EBK_NO_MEMORY, 0, journal->directory, 0, "no memory to replay it");
    }
    *replay = (struct ebk_replay){.journal = journal, .after = after, .buffer = buffer, .files = files,
                                  .file_count = count, .file = -1};
    *out = replay;
    if (after < journal->opened_token && files[0].first_token > after + 1)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, journal->directory, 0, "its oldest record is %" PRIu64
                             ", and those above the log mark %" PRIu64 " are needed", files[0].first_token, after);
    /* A file is wholly at or below the mark when the next one's first record is at most the one behind it. */
    while (replay->index + 1 < count && files[replay->index + 1].first_token != 0 &&
           files[replay->index + 1].first_token <= after + 1)
        replay->index += 1;
    return EBK_OK;
}

void ebk_replay_close(struct ebk_replay *replay)
{
    if (replay == NULL) return;
    if (replay->file >= 0) replay->journal->io->close(replay->journal->io, replay->file);
    free(replay->buffer);
    free(replay->files);
    free(replay);
}

/* Open files[index] at its first group. */
static int begin_file(struct ebk_replay *replay, struct ebk_journal_fault *fault)
{
    char path[EBK_JOURNAL_PATH_BYTES];
    path_of(replay, path);
    int file = replay->journal->io->open(replay->journal->io, path, EBK_OPEN_READ);
    if (file < 0) return ebk_fault_set(fault, EBK_IO, -file, path, 0, "the file cannot be opened");
    replay->file = file;
    replay->offset = BLOCK_BYTES;
    return EBK_OK;
}

/* The last sequence that files[index] must hold. */
static uint64_t last_sequence(const struct ebk_replay *replay)
{
    uint32_t next = replay->index + 1;
    if (next < replay->file_count && replay->files[next].first_sequence != 0 &&
        replay->files[next].first_sequence <= replay->journal->opened_sequence)
        return replay->files[next].first_sequence - 1;
    return replay->journal->opened_sequence;
}

/* Does this group follow the one read before it? */
static bool is_next(const struct ebk_replay *replay, const struct group_header *group)
{
    if (!replay->has_any) return true;
    return group->sequence == replay->sequence + 1 && group->first_token == replay->token + 1 &&
           group->previous_crc == replay->previous_crc;
}

/* Read the next group into the buffer. 1, 0 at the end of what was there at open, or a code. */
static int next_group(struct ebk_replay *replay, struct ebk_journal_fault *fault)
{
    char path[EBK_JOURNAL_PATH_BYTES];
    for (;;) {
        if (replay->token == replay->journal->opened_token && replay->has_any) return 0;
        if (replay->file < 0) {
            int code = begin_file(replay, fault);
            if (code < 0) return code;
        }
        if (!replay->has_any || replay->sequence < last_sequence(replay)) break;
        replay->journal->io->close(replay->journal->io, replay->file);
        replay->file = -1;
        replay->index += 1;
        EBK_ASSERT(replay->index < replay->file_count);
    }
    path_of(replay, path);
    const struct journal_file *entry = &replay->files[replay->index];
    struct group_header group;
    int valid = ebk_group_read(replay->journal->io, replay->file,
                               ebk_journal_seed(replay->journal->identity, entry->generation), entry->generation,
                               replay->offset, entry->bytes, replay->buffer, &group);
    if (valid < 0) return ebk_fault_set(fault, EBK_IO, -valid, path, replay->offset, "the file cannot be read");
    if (!valid)
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, replay->offset,
                             "a group is not what was written, and later ones are there");
    if (!is_next(replay, &group))
        return ebk_fault_set(fault, EBK_DAMAGED, 0, path, replay->offset,
                             "group %" PRIu64 " does not follow the one before it: files are missing or exchanged",
                             group.sequence);
    replay->group = group;
    replay->has_group = replay->has_any = true;
    replay->sequence = group.sequence;
    replay->token = group.first_token + group.record_count - 1;
    replay->previous_crc = group.crc;
    replay->offset += round_up(group.group_bytes, BLOCK_BYTES);
    replay->at = sizeof group;
    replay->record = 0;
    return 1;
}

/* Hand out what the buffer still holds above `after`. */
static size_t take_records(struct ebk_replay *replay, struct ebk_record *records, size_t count_max)
{
    size_t count = 0;
    for (; count < count_max && replay->record < replay->group.record_count; replay->record++) {
        const struct record_header *record = (const struct record_header *)(replay->buffer + replay->at);
        uint64_t token = replay->group.first_token + replay->record;
        replay->at += record_extent(record->size);
        if (token <= replay->after) continue;
        records[count++] = (struct ebk_record){.token = token, .ledger_id = record->ledger_id, .kind = record->kind,
                                               .size = record->size, .data = (const uint8_t *)(record + 1)};
    }
    if (replay->record == replay->group.record_count) replay->has_group = false;
    return count;
}

int64_t ebk_replay_next(struct ebk_replay *replay, struct ebk_record *records, size_t count_max,
                        struct ebk_journal_fault *fault)
{
    EBK_ASSERT(count_max > 0);
    if (replay->after == replay->journal->opened_token) return 0;
    for (;;) {
        if (!replay->has_group) {
            int code = next_group(replay, fault);
            if (code <= 0) return code;
        }
        size_t count = take_records(replay, records, count_max);
        if (count > 0) return (int64_t)count;
    }
}
