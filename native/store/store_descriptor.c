/* store_descriptor.c: the descriptor at both ends of an entry log, and what binds a section to its file;
 * the format is STORAGE.md section 1.
 */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"

#include <stdio.h>
#include <string.h>

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
#define AT_ROLL_COUNT 112
#define AT_PART 116
#define AT_PART_COUNT 118
#define AT_JOURNAL_COUNT 120
#define AT_RESERVED 122
#define AT_CRC 124
#define IDENTITY_BYTES AT_MARK /* Sections are bound to these: whose file it is and which. */

static const uint8_t MAGIC[4] = {'E', 'B', 'K', 'L'};

_Static_assert(AT_CRC + 4 == EBK_LOG_DESCRIPTOR_BYTES, "the descriptor has no room left");

void ebk_descriptor_write(const struct ebk_descriptor *descriptor, uint8_t *to)
{
    memset(to, 0, EBK_LOG_DESCRIPTOR_BYTES);
    memcpy(to + AT_MAGIC, MAGIC, sizeof MAGIC);
    ebk_store_u32(to + AT_VERSION, descriptor->version);
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
    ebk_store_u32(to + AT_ROLL_COUNT, descriptor->roll_count);
    if (descriptor->version != EBK_LOG_VERSION_ONE) {
        ebk_store_u16(to + AT_PART, (uint16_t)descriptor->part);
        ebk_store_u16(to + AT_PART_COUNT, (uint16_t)descriptor->part_count);
        ebk_store_u16(to + AT_JOURNAL_COUNT, (uint16_t)descriptor->journal_count);
    }
    ebk_store_u32(to + AT_CRC, ebk_crc32c(0, to, AT_CRC));
}

int ebk_descriptor_read(struct ebk_descriptor *descriptor, const uint8_t *from)
{
    if (memcmp(from + AT_MAGIC, MAGIC, sizeof MAGIC) != 0) return EBK_DAMAGED;
    if (ebk_load_u32(from + AT_CRC) != ebk_crc32c(0, from, AT_CRC)) return EBK_DAMAGED;
    const uint32_t version = ebk_load_u32(from + AT_VERSION);
    if (version < EBK_LOG_VERSION_ONE || version > EBK_LOG_VERSION) return EBK_VERSION;
    const bool is_part = version != EBK_LOG_VERSION_ONE;
    *descriptor = (struct ebk_descriptor){
        .version = version,
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
        .roll_count = ebk_load_u32(from + AT_ROLL_COUNT),
        .part = is_part ? ebk_load_u16(from + AT_PART) : 0,
        .part_count = is_part ? ebk_load_u16(from + AT_PART_COUNT) : 1,
        .journal_count = is_part ? ebk_load_u16(from + AT_JOURNAL_COUNT) : 0,
    };
    memcpy(descriptor->cluster_token, from + AT_TOKEN, 16);
    memcpy(descriptor->incarnation, from + AT_INCARNATION, 16);
    return EBK_OK;
}

uint32_t ebk_section_crc(const struct ebk_descriptor *descriptor, const uint8_t *bytes, size_t size)
{
    return ebk_crc32c(ebk_section_seed(descriptor), bytes, size);
}

uint32_t ebk_section_seed(const struct ebk_descriptor *descriptor)
{
    uint8_t head[EBK_LOG_DESCRIPTOR_BYTES];
    ebk_descriptor_write(descriptor, head);
    return ebk_crc32c(0, head, IDENTITY_BYTES);
}

void ebk_log_path(const char *directory, uint32_t log_id, bool is_tmp, char *path)
{
    snprintf(path, EBK_PATH_BYTES_MAX, "%s/%08x.elog%s", directory, log_id, is_tmp ? ".tmp" : "");
}

bool ebk_descriptor_is_possible(const struct ebk_descriptor *descriptor)
{
    const uint64_t limit = UINT64_C(1) << 48;
    if (descriptor->states_size > limit || descriptor->entries_size > limit || descriptor->index_size > limit)
        return false;
    const uint64_t end = ebk_second_states_offset(descriptor) + descriptor->states_size + EBK_LOG_DESCRIPTOR_BYTES;
    const bool is_alone = descriptor->part_count == 1 && descriptor->part == 0;
    const bool is_part = descriptor->part_count > 1 && descriptor->part_count <= EBK_DIRECTORIES_MAX &&
                         descriptor->part < descriptor->part_count && descriptor->part < descriptor->log_id;
    return (is_alone || is_part) && descriptor->states_size % EBK_LOG_STATE_BYTES == 0 &&
           descriptor->journal_count <= EBK_MARKS_MAX &&
           (uint64_t)descriptor->journal_count + descriptor->roll_count <= descriptor->states_size / EBK_LOG_STATE_BYTES &&
           descriptor->file_size % EBK_LOG_BLOCK_BYTES == 0 && descriptor->file_size >= end && descriptor->file_size - end < EBK_LOG_BLOCK_BYTES;
}
