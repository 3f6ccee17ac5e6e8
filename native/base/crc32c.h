/* crc32c.h: CRC32C (Castagnoli), the checksum of every frame and every stored byte.
 *
 * Pure functions, no state that a caller can see, safe from any thread. The fastest
 * kind that the processor has is chosen once, when the module is loaded; every kind
 * gives the same values (tests/storage/test_crc32c.py holds each against crcmod).
 */
#ifndef EBK_CRC32C_H
#define EBK_CRC32C_H

#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

/* cffi:begin */
enum ebk_crc32c_kind {
    EBK_CRC32C_PORTABLE = 0, /* eight tables, eight bytes a step; any machine */
    EBK_CRC32C_X86 = 1,      /* SSE4.2 crc32, three streams, joined by PCLMUL */
    EBK_CRC32C_ARM = 2,      /* ARMv8 crc32c */
    EBK_CRC32C_X86_WIDE = 3  /* AVX-512 with VPCLMULQDQ: 256 bytes a step, folded; else as X86 */
};

/* Continue crc (0 at the start) over size bytes. crc32c(crc32c(0, a), b) == crc32c(0, a + b). */
EBK_SHORT uint32_t ebk_crc32c(uint32_t crc, const void *data, size_t size);

/* The CRC of a + b from the CRC of each and the size of b, without reading either again. */
EBK_SHORT uint32_t ebk_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

/* The kind that ebk_crc32c() uses here. */
EBK_SHORT int ebk_crc32c_kind(void);

/* As ebk_crc32c() by the given kind: for tests and the start-up check.
 * Returns EBK_OK and sets *out, or EBK_UNSUPPORTED where the processor lacks that kind. */
int ebk_crc32c_with(int kind, uint32_t crc, const void *data, size_t size, uint32_t *out);
/* cffi:end */

#endif
