/* xxh3.c: see xxh3.h. Names of constants and steps are those of the specification.
 *
 *     0 to 16 bytes, 17 to 128, 129 to 240: few multiplications over the bytes at both ends
 *     more: eight sums over stripes of 64 bytes, scrambled after every 16 stripes, then merged
 */
#include "base/xxh3.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <string.h>

#define SHORT_BYTES_MAX 240u
#define STRIPE_BYTES 64u
#define SECRET_BYTES 192u
#define SECRET_STEP 8u
#define STRIPES_PER_BLOCK ((SECRET_BYTES - STRIPE_BYTES) / SECRET_STEP)
#define SECRET_LAST_AT 7u
#define SECRET_MERGE_AT 11u
#define LANES 8

#define PRIME32_1 0x9E3779B1u
#define PRIME32_2 0x85EBCA77u
#define PRIME32_3 0xC2B2AE3Du
#define PRIME64_1 0x9E3779B185EBCA87u
#define PRIME64_2 0xC2B2AE3D27D4EB4Fu
#define PRIME64_3 0x165667B19E3779F9u
#define PRIME64_4 0x85EBCA77C2B2AE63u
#define PRIME64_5 0x27D4EB2F165667C5u
#define PRIME_MX1 0x165667919E3779F9u
#define PRIME_MX2 0x9FB21C651E98DF25u

static const uint8_t SECRET[SECRET_BYTES] = { /* As the specification has it. */
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

/* ---- steps -------------------------------------------------------------------------- */

static inline uint64_t fold(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t avalanche(uint64_t hash)
{
    hash ^= hash >> 37;
    hash *= PRIME_MX1;
    return hash ^ hash >> 32;
}

static inline uint64_t avalanche_xxh64(uint64_t hash)
{
    hash ^= hash >> 33;
    hash *= PRIME64_2;
    hash ^= hash >> 29;
    hash *= PRIME64_3;
    return hash ^ hash >> 32;
}

static inline uint64_t rotate(uint64_t value, int by)
{
    return value << by | value >> (64 - by);
}

static inline uint64_t mix(const uint8_t *data, const uint8_t *secret)
{
    return fold(ebk_load_u64(data) ^ ebk_load_u64(secret), ebk_load_u64(data + 8) ^ ebk_load_u64(secret + 8));
}

/* ---- up to 240 bytes ---------------------------------------------------------------- */

static uint64_t hash_to_16(const uint8_t *data, size_t size)
{
    if (size > 8) {
        const uint64_t low = ebk_load_u64(data) ^ (ebk_load_u64(SECRET + 24) ^ ebk_load_u64(SECRET + 32));
        const uint64_t high = ebk_load_u64(data + size - 8) ^ (ebk_load_u64(SECRET + 40) ^ ebk_load_u64(SECRET + 48));
        return avalanche(size + __builtin_bswap64(low) + high + fold(low, high));
    }
    if (size >= 4) {
        const uint64_t first = ebk_load_u32(data), last = ebk_load_u32(data + size - 4);
        uint64_t hash = (last + (first << 32)) ^ (ebk_load_u64(SECRET + 8) ^ ebk_load_u64(SECRET + 16));
        hash ^= rotate(hash, 49) ^ rotate(hash, 24);
        hash *= PRIME_MX2;
        hash ^= (hash >> 35) + size;
        hash *= PRIME_MX2;
        return hash ^ hash >> 28;
    }
    if (size > 0) {
        const uint32_t joined = (uint32_t)data[size - 1] | (uint32_t)size << 8 | (uint32_t)data[0] << 16 |
                                (uint32_t)data[size >> 1] << 24;
        return avalanche_xxh64(joined ^ (uint64_t)(ebk_load_u32(SECRET) ^ ebk_load_u32(SECRET + 4)));
    }
    return avalanche_xxh64(ebk_load_u64(SECRET + 56) ^ ebk_load_u64(SECRET + 64));
}

static uint64_t hash_short(const uint8_t *data, size_t size)
{
    if (size <= 16) return hash_to_16(data, size);
    uint64_t hash = size * PRIME64_1;
    if (size <= 128) {
        for (size_t i = (size - 1) / 32 + 1; i > 0; i--) {
            const size_t at = 16 * (i - 1);
            hash += mix(data + at, SECRET + 2 * at) + mix(data + size - at - 16, SECRET + 2 * at + 16);
        }
        return avalanche(hash);
    }
    const size_t rounds = size / 16;
    for (size_t i = 0; i < 8; i++) hash += mix(data + 16 * i, SECRET + 16 * i);
    hash = avalanche(hash);
    for (size_t i = 8; i < rounds; i++) hash += mix(data + 16 * i, SECRET + 16 * (i - 8) + 3);
    hash += mix(data + size - 16, SECRET + 136 - 17);
    return avalanche(hash);
}

/* ---- more --------------------------------------------------------------------------- */

static inline void accumulate(uint64_t *sums, const uint8_t *stripe, const uint8_t *secret)
{
    for (int i = 0; i < LANES; i++) {
        const uint64_t value = ebk_load_u64(stripe + 8 * i), keyed = value ^ ebk_load_u64(secret + 8 * i);
        sums[i ^ 1] += value;
        sums[i] += (keyed & UINT32_MAX) * (keyed >> 32);
    }
}

static inline void scramble(uint64_t *sums)
{
    const uint8_t *secret = SECRET + SECRET_BYTES - STRIPE_BYTES;
    for (int i = 0; i < LANES; i++) {
        sums[i] ^= sums[i] >> 47;
        sums[i] ^= ebk_load_u64(secret + 8 * i);
        sums[i] *= PRIME32_1;
    }
}

/* The two pieces as one row of bytes. */
struct row {
    const uint8_t *head, *tail;
    size_t head_size, size;
};

/* 64 bytes of the row from `at`, where they stand or put together in `joined`. */
static inline const uint8_t *stripe_at(const struct row *row, size_t at, uint8_t *joined)
{
    if (at >= row->head_size) return row->tail + (at - row->head_size);
    const size_t left = row->head_size - at;
    if (left >= STRIPE_BYTES) return row->head + at;
    memcpy(joined, row->head + at, left);
    memcpy(joined + left, row->tail, STRIPE_BYTES - left);
    return joined;
}

static uint64_t hash_long(const struct row *row)
{
    uint64_t sums[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};
    uint8_t joined[STRIPE_BYTES];
    const size_t stripes = (row->size - 1) / STRIPE_BYTES; /* The last, whole or not, comes at the end. */
    for (size_t i = 0; i < stripes; i++) {
        const size_t in_block = i % STRIPES_PER_BLOCK;
        accumulate(sums, stripe_at(row, i * STRIPE_BYTES, joined), SECRET + in_block * SECRET_STEP);
        if (in_block + 1 == STRIPES_PER_BLOCK) scramble(sums);
    }
    accumulate(sums, stripe_at(row, row->size - STRIPE_BYTES, joined),
               SECRET + SECRET_BYTES - STRIPE_BYTES - SECRET_LAST_AT);
    uint64_t hash = row->size * PRIME64_1;
    for (int i = 0; i < LANES; i += 2)
        hash += fold(sums[i] ^ ebk_load_u64(SECRET + SECRET_MERGE_AT + 8 * i),
                     sums[i + 1] ^ ebk_load_u64(SECRET + SECRET_MERGE_AT + 8 * i + 8));
    return avalanche(hash);
}

uint64_t ebk_xxh3(const uint8_t *head, size_t head_size, const uint8_t *tail, size_t tail_size)
{
    if (head_size + tail_size <= SHORT_BYTES_MAX) {
        uint8_t joined[SHORT_BYTES_MAX];
        if (head_size > 0) memcpy(joined, head, head_size);
        if (tail_size > 0) memcpy(joined + head_size, tail, tail_size);
        return hash_short(joined, head_size + tail_size);
    }
    const struct row row = {.head = head, .tail = tail, .head_size = head_size, .size = head_size + tail_size};
    return hash_long(&row);
}
