/* journal_groups.c: one group of a journal: its checksums, whether it is whole, and where the next one stands.
 *
 * A header is believed by its CRC, which is seeded with the journal's random identity and
 * the file's generation and covers its position: neither an earlier use of the file nor
 * the bytes of an entry can pass for one. JOURNAL.md lists the cases that this cannot tell apart.
 */
#include "journal/journal_inside.h"

#include "base/crc32c.h"
#include "base/errors.h"

#include <string.h>

#define FIND_BYTES (256u * BLOCK_BYTES)
_Static_assert(FIND_BYTES <= GROUP_BUFFER_BYTES, "a search reads into a group's buffer");

uint32_t ebk_journal_seed(const uint8_t *identity, uint64_t generation)
{
    return ebk_crc32c(ebk_crc32c(0, identity, EBK_JOURNAL_IDENTITY_BYTES), &generation, sizeof generation);
}

uint32_t ebk_journal_record_crc(uint32_t seed, uint64_t position, const struct record_header *record)
{
    uint32_t crc = ebk_crc32c(seed, &position, sizeof position);
    return ebk_crc32c(crc, (const uint8_t *)record + sizeof record->crc,
                      sizeof *record - sizeof record->crc + record->size);
}

uint32_t ebk_journal_group_crc(uint32_t seed, const struct group_header *group)
{
    return ebk_crc32c(seed, (const uint8_t *)group + sizeof group->crc, sizeof *group - sizeof group->crc);
}

bool ebk_group_is_valid_header(uint32_t seed, uint64_t generation, uint64_t offset, uint64_t file_bytes,
                               const struct group_header *group)
{
    if (group->magic != GROUP_MAGIC || group->generation != generation || group->position != offset) return false;
    if (group->crc != ebk_journal_group_crc(seed, group)) return false;
    return group->record_count > 0 && group->first_token > 0 && group->sequence > 0 &&
           group->group_bytes >= sizeof *group + sizeof(struct record_header) &&
           round_up(group->group_bytes, BLOCK_BYTES) <= GROUP_BUFFER_BYTES &&
           round_up(group->group_bytes, BLOCK_BYTES) <= file_bytes - offset;
}

/* Every length is checked against what is left before it is used. */
static bool are_valid_records(uint32_t seed, uint64_t offset, const struct group_header *group, const uint8_t *buffer)
{
    uint64_t at = sizeof *group;
    uint32_t records_crc = 0;
    for (uint32_t index = 0; index < group->record_count; index++) {
        if (group->group_bytes - at < sizeof(struct record_header)) return false;
        const struct record_header *record = (const struct record_header *)(buffer + at);
        if (record->size > group->group_bytes - at - sizeof *record || record->index != index) return false;
        if (record_extent(record->size) > group->group_bytes - at) return false;
        if (record->crc != ebk_journal_record_crc(seed, offset + at, record)) return false;
        records_crc = ebk_crc32c(records_crc, &record->crc, sizeof record->crc);
        at += record_extent(record->size);
        EBK_ASSERT(at <= group->group_bytes);
    }
    return at == group->group_bytes && records_crc == group->records_crc;
}

int ebk_group_read(struct ebk_io *io, int file, uint32_t seed, uint64_t generation, uint64_t offset,
                   uint64_t file_bytes, uint8_t *buffer, struct group_header *header)
{
    if (offset + BLOCK_BYTES > file_bytes) return 0;
    int64_t got = io->read(io, file, buffer, BLOCK_BYTES, offset);
    if (got < 0) return (int)got;
    if (got < (int64_t)BLOCK_BYTES) return 0;
    memcpy(header, buffer, sizeof *header);
    if (!ebk_group_is_valid_header(seed, generation, offset, file_bytes, header)) return 0;
    size_t rest = round_up(header->group_bytes, BLOCK_BYTES) - BLOCK_BYTES;
    EBK_ASSERT(rest <= GROUP_BUFFER_BYTES - BLOCK_BYTES); /* As its header was judged: the buffer takes it. */
    if (rest > 0) {
        got = io->read(io, file, buffer + BLOCK_BYTES, rest, offset + BLOCK_BYTES);
        if (got < 0) return (int)got;
        if ((uint64_t)got < rest) return 0;
    }
    return are_valid_records(seed, offset, header, buffer);
}

int64_t ebk_group_find(struct ebk_io *io, int file, uint32_t seed, uint64_t generation, uint64_t from,
                       uint64_t file_bytes, uint8_t *buffer, struct group_header *header)
{
    for (uint64_t begin = from; begin < file_bytes; begin += FIND_BYTES) {
        uint64_t size = file_bytes - begin < FIND_BYTES ? file_bytes - begin : FIND_BYTES;
        int64_t got = io->read(io, file, buffer, size, begin);
        if (got < 0) return got;
        for (uint64_t at = 0; at + BLOCK_BYTES <= (uint64_t)got; at += BLOCK_BYTES) {
            memcpy(header, buffer + at, sizeof *header);
            if (ebk_group_is_valid_header(seed, generation, begin + at, file_bytes, header))
                return (int64_t)(begin + at);
        }
    }
    return 0;
}
