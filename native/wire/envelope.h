/* envelope.h: what stands in front of every body of a ZeroMQ link (transports/TRANSPORTS.md). */
#ifndef EBK_ENVELOPE_H
#define EBK_ENVELOPE_H

#include "base/bytes.h"
#include "base/crc32c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define EBK_ENVELOPE_BYTES 32u
#define EBK_ENVELOPE_PREFIX_BYTES 24u
#define EBK_ENVELOPE_AT_LENGTH 24
#define EBK_ENVELOPE_AT_CRC 28

/* Does this part, with tail_size bytes behind it, bring a body, in order, of the link with this prefix? The first branch
 * of `on_part` in transports/zmq_intake.py. */
static inline bool ebk_envelope_is_body(const uint8_t *prefix, const uint8_t *data, size_t size, size_t tail_size)
{
    return size >= EBK_ENVELOPE_BYTES && memcmp(data, prefix, EBK_ENVELOPE_PREFIX_BYTES) == 0 &&
           ebk_load_u32(data + EBK_ENVELOPE_AT_LENGTH) == size - EBK_ENVELOPE_BYTES + tail_size &&
           ebk_load_u32(data + EBK_ENVELOPE_AT_CRC) == ebk_crc32c(0, data, EBK_ENVELOPE_AT_CRC);
}

#endif
