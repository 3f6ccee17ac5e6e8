/* bytes.h: little-endian numbers at any address. Every number on disk and wire is little-endian. */
#ifndef EBK_BYTES_H
#define EBK_BYTES_H

#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define EBK_LITTLE_16(value) __builtin_bswap16(value)
#define EBK_LITTLE_32(value) __builtin_bswap32(value)
#define EBK_LITTLE_64(value) __builtin_bswap64(value)
#else
#define EBK_LITTLE_16(value) (value)
#define EBK_LITTLE_32(value) (value)
#define EBK_LITTLE_64(value) (value)
#endif

static inline uint16_t ebk_load_u16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return EBK_LITTLE_16(value);
}

static inline uint32_t ebk_load_u32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return EBK_LITTLE_32(value);
}

static inline uint64_t ebk_load_u64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, sizeof value);
    return EBK_LITTLE_64(value);
}

static inline void ebk_store_u16(uint8_t *to, uint16_t value)
{
    value = EBK_LITTLE_16(value);
    memcpy(to, &value, sizeof value);
}

static inline void ebk_store_u32(uint8_t *to, uint32_t value)
{
    value = EBK_LITTLE_32(value);
    memcpy(to, &value, sizeof value);
}

static inline void ebk_store_u64(uint8_t *to, uint64_t value)
{
    value = EBK_LITTLE_64(value);
    memcpy(to, &value, sizeof value);
}

#endif
