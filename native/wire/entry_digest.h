/* entry_digest.h: one number for one copy of an entry; those of many add up, modulo 2^64, in whatever order.
 *
 * It is made of id, CRC32C and size. Two copies of one entry that differ in CRC or size have different digests, always:
 * each step maps 64 bits onto 64 bits one to one. Two sums over the same ids that differ somewhere are equal by a chance
 * of 2^-64. What it does not find: other bytes under the same CRC and size, by a chance of 2^-32 or by intent.
 * The plain form is embedbk/codec/entry_digest.py.
 */
#ifndef EBK_ENTRY_DIGEST_H
#define EBK_ENTRY_DIGEST_H

#include "base/bytes.h"
#include "wire/frame.h"

#include <stdint.h>

/* The last steps of MurmurHash3 (fmix64): each bit of x changes half of those of the result. */
static inline uint64_t ebk_mix64(uint64_t x)
{
    x = (x ^ x >> 33) * UINT64_C(0xff51afd7ed558ccd);
    x = (x ^ x >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return x ^ x >> 33;
}

/* Digest of an entry by its parts: `size` bytes with header and CRC. */
static inline uint64_t ebk_digest_of(uint64_t id, uint32_t size, uint32_t crc)
{
    return ebk_mix64(ebk_mix64(id + UINT64_C(0x9e3779b97f4a7c15)) ^ ((uint64_t)size << 32 | crc));
}

/* Digest of the entry at `entry`, `size` bytes with header and CRC, which the caller has checked. */
static inline uint64_t ebk_entry_digest(const uint8_t *entry, uint32_t size)
{
    return ebk_digest_of(ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY), size,
                         ebk_load_u32(entry + size - EBK_ENTRY_CRC_BYTES));
}

#endif
