/* message.h: the header of a message, and the few forms of MessagePack in control parts, as they are written
 * (codec/WIRE.md 3); message_reader.h reads them. */
#ifndef EBK_MESSAGE_H
#define EBK_MESSAGE_H

#include "base/bytes.h"
#include "base/crc32c.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EBK_MESSAGE_HEADER_BYTES 32u
#define EBK_MESSAGE_BYTES_MAX (4u << 20)
#define EBK_MESSAGE_VERSION 1u
#define EBK_MESSAGE_AT_VERSION 4
#define EBK_MESSAGE_AT_KIND 5
#define EBK_MESSAGE_AT_FRAME_COUNT 6
#define EBK_MESSAGE_AT_CONTROL_SIZE 8
#define EBK_MESSAGE_AT_FRAMES_SIZE 12
#define EBK_MESSAGE_AT_REQUEST 16
#define EBK_MESSAGE_AT_CRC 24
#define EBK_MESSAGE_AT_RESERVED 28
/* In control parts. */
#define EBK_INCARNATION_BYTES 16u
#define EBK_STATUS_OK 0u
#define EBK_LAC_MAX (INT64_MAX / 2) /* codec/bookie_fields.py has the reason */

/* A MessagePack number, written as short as it gets, as msgspec writes it. Returns where to go on. */
static inline uint8_t *ebk_write_count(uint8_t *to, uint64_t value)
{
    const unsigned size = value < 0x80 ? 0 : value <= UINT8_MAX ? 1 : value <= UINT16_MAX ? 2 : value <= UINT32_MAX ? 4 : 8;
    if (size == 0) {
        *to++ = (uint8_t)value;
        return to;
    }
    *to++ = (uint8_t)(size == 1 ? 0xCC : size == 2 ? 0xCD : size == 4 ? 0xCE : 0xCF);
    for (unsigned i = 0; i < size; i++) *to++ = (uint8_t)(value >> (8 * (size - 1 - i)));
    return to;
}

/* The head of a byte string in MessagePack, as short as it gets. */
static inline uint8_t *ebk_write_bytes_head(uint8_t *to, uint32_t size)
{
    const unsigned width = size <= UINT8_MAX ? 1 : size <= UINT16_MAX ? 2 : 4;
    *to++ = (uint8_t)(width == 1 ? 0xC4 : width == 2 ? 0xC5 : 0xC6);
    for (unsigned i = 0; i < width; i++) *to++ = (uint8_t)(size >> (8 * (width - 1 - i)));
    return to;
}

/* Write the header of a message whose control part ends at `end`, in front of its frames; returns the size of both. */
static inline size_t ebk_message_seal_with(uint8_t *message, uint8_t kind, uint16_t frame_count, uint32_t frames_size,
                                           uint64_t request_id, const uint8_t *end)
{
    const size_t size = (size_t)(end - message);
    memset(message, 0, EBK_MESSAGE_HEADER_BYTES);
    memcpy(message, "EBKM", 4);
    message[EBK_MESSAGE_AT_VERSION] = EBK_MESSAGE_VERSION;
    message[EBK_MESSAGE_AT_KIND] = kind;
    ebk_store_u16(message + EBK_MESSAGE_AT_FRAME_COUNT, frame_count);
    ebk_store_u32(message + EBK_MESSAGE_AT_CONTROL_SIZE, (uint32_t)(size - EBK_MESSAGE_HEADER_BYTES));
    ebk_store_u32(message + EBK_MESSAGE_AT_FRAMES_SIZE, frames_size);
    ebk_store_u64(message + EBK_MESSAGE_AT_REQUEST, request_id);
    ebk_store_u32(message + EBK_MESSAGE_AT_CRC, ebk_crc32c(ebk_crc32c(0, message, EBK_MESSAGE_AT_CRC),
                                                       message + EBK_MESSAGE_HEADER_BYTES, size - EBK_MESSAGE_HEADER_BYTES));
    return size;
}

/* The same, of a message without frames. */
static inline size_t ebk_message_seal(uint8_t *message, uint8_t kind, uint64_t request_id, const uint8_t *end)
{
    return ebk_message_seal_with(message, kind, 0, 0, request_id, end);
}

#endif
