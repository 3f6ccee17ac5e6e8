/* store_source.c: one entry log read from its file, part by part: its descriptors, its ledger states, its blocks.
 */
#include "store/store_inside.h"

#include "base/errors.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool ebk_log_read_whole(const struct ebk_log_source *source, void *to, size_t size, uint64_t offset)
{
    const int64_t got = source->io->read(source->io, source->file, to, size, offset);
    if (got < 0 && source->error != NULL) *source->error = (int)got;
    return got == (int64_t)size;
}

int ebk_log_read_descriptor(const struct ebk_log_source *source, uint64_t offset, struct ebk_descriptor *descriptor)
{
    uint8_t bytes[EBK_LOG_DESCRIPTOR_BYTES];
    if (offset + sizeof bytes > source->size || !ebk_log_read_whole(source, bytes, sizeof bytes, offset)) return EBK_DAMAGED;
    const int code = ebk_descriptor_read(descriptor, bytes);
    return code == EBK_OK && !ebk_descriptor_is_possible(descriptor) ? EBK_DAMAGED : code;
}

void ebk_log_read_blocks(const struct ebk_log_source *source, uint8_t *to, uint64_t size, uint64_t offset)
{
    for (uint64_t done = 0; done < size; done += EBK_LOG_BLOCK_BYTES) {
        const uint64_t part = size - done < EBK_LOG_BLOCK_BYTES ? size - done : EBK_LOG_BLOCK_BYTES;
        if (!ebk_log_read_whole(source, to + done, part, offset + done)) memset(to + done, 0, part);
    }
}

uint8_t *ebk_log_read_section(const struct ebk_log_source *source, const struct ebk_descriptor *descriptor, uint64_t offset,
                             uint64_t size, uint32_t crc)
{
    if (offset > source->size || size > source->size - offset) return NULL;
    uint8_t *bytes = malloc(size + 1); /* Never NULL for an empty section. */
    if (bytes == NULL && source->error != NULL) *source->error = -ENOMEM;
    if (bytes == NULL) return NULL;
    if (ebk_log_read_whole(source, bytes, size, offset) && ebk_section_crc(descriptor, bytes, size) == crc) return bytes;
    free(bytes);
    return NULL;
}

uint8_t *ebk_log_read_states(struct ebk_io *io, int file, const struct ebk_descriptor *descriptor)
{
    const int64_t size = io->size(io, file);
    const struct ebk_log_source source = {.io = io, .file = file, .size = size < 0 ? 0 : (uint64_t)size};
    uint8_t *states =
        ebk_log_read_section(&source, descriptor, EBK_LOG_BLOCK_BYTES, descriptor->states_size, descriptor->states_crc);
    return states != NULL ? states
                          : ebk_log_read_section(&source, descriptor, ebk_second_states_offset(descriptor),
                                         descriptor->states_size, descriptor->states_crc);
}
