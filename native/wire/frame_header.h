/* frame_header.h: the 80 bytes in front of a frame's body (codec/WIRE.md 2). */
#ifndef EBK_FRAME_HEADER_H
#define EBK_FRAME_HEADER_H

#include "base/bytes.h"
#include "base/crc32c.h"
#include "wire/frame.h"

#include <string.h>

#define EBK_FRAME_HEADER_BYTES 80u
#define EBK_FRAME_VERSION 1u
#define EBK_FRAME_AT_VERSION 4
#define EBK_FRAME_AT_FLAGS 5
#define EBK_FRAME_AT_HEADER_SIZE 6
#define EBK_FRAME_AT_COUNT 8
#define EBK_FRAME_AT_BODY_SIZE 12
#define EBK_FRAME_AT_LEDGER 16
#define EBK_FRAME_AT_FIRST 24
#define EBK_FRAME_AT_LAST 32
#define EBK_FRAME_AT_LAC 40
#define EBK_FRAME_AT_LAC_LENGTH 48
#define EBK_FRAME_AT_KEY 56
#define EBK_FRAME_AT_RESERVED 72
#define EBK_FRAME_AT_CRC 76
#define EBK_FRAME_FLAG_LAC 1u
#define EBK_FRAME_FLAG_GAPS 2u
#define EBK_FRAME_NO_LAC (-1)

_Static_assert(EBK_FRAME_AT_CRC + 4 == EBK_FRAME_HEADER_BYTES, "the header ends with its crc");

/* Write a header as for entries in an answer to a reader: no LAC, no key. */
static inline void ebk_frame_header_write(uint8_t *to, const struct ebk_frame_facts *facts, uint32_t body_size)
{
    const uint64_t dense = (uint64_t)(facts->last_entry - facts->first_entry) + 1;
    memset(to, 0, EBK_FRAME_HEADER_BYTES);
    memcpy(to, "EBKF", 4);
    to[EBK_FRAME_AT_VERSION] = EBK_FRAME_VERSION;
    to[EBK_FRAME_AT_FLAGS] = facts->count != dense ? EBK_FRAME_FLAG_GAPS : 0;
    ebk_store_u16(to + EBK_FRAME_AT_HEADER_SIZE, EBK_FRAME_HEADER_BYTES);
    ebk_store_u32(to + EBK_FRAME_AT_COUNT, (uint32_t)facts->count);
    ebk_store_u32(to + EBK_FRAME_AT_BODY_SIZE, body_size);
    ebk_store_u64(to + EBK_FRAME_AT_LEDGER, facts->ledger_id);
    ebk_store_u64(to + EBK_FRAME_AT_FIRST, (uint64_t)facts->first_entry);
    ebk_store_u64(to + EBK_FRAME_AT_LAST, (uint64_t)facts->last_entry);
    ebk_store_u64(to + EBK_FRAME_AT_LAC, (uint64_t)(int64_t)EBK_FRAME_NO_LAC);
    ebk_store_u32(to + EBK_FRAME_AT_CRC, ebk_crc32c(0, to, EBK_FRAME_AT_CRC));
}

#endif
