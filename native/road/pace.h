/* pace.h: when a frame that is not full is sealed, where adds are sealed in C: the rule of `Writer.wants_frame`
 * (embedbk/core/writer.py), which says why. */
#ifndef EBK_PACE_H
#define EBK_PACE_H

#include <stdint.h>

/* cffi:begin */
enum { EBK_LARGE_FRAME_BYTES = 65536 }; /* beside such a one another costs little */
/* cffi:end */

/* How many entries the open frame must have, while it may grow. out: frames that are not acknowledged, the newest of
 * them of so many bytes and entries. UINT32_MAX: it waits for an answer. */
static inline uint32_t ebk_pace_wanted(uint64_t out, uint32_t newest_bytes, uint32_t newest_count)
{
    if (out > 1) return UINT32_MAX;
    return out == 0 || newest_bytes >= EBK_LARGE_FRAME_BYTES ? 1 : newest_count;
}

/* From how many entries on an append wakes the sender: from as many; but beside a large frame from the first one, since
 * a number that changes with every frame of a bulk would cost each of them a turn at the packer's mutex. */
static inline uint32_t ebk_pace_woken(uint64_t out, uint32_t newest_bytes, uint32_t newest_count)
{
    return newest_bytes >= EBK_LARGE_FRAME_BYTES ? 1 : ebk_pace_wanted(out, newest_bytes, newest_count);
}

#endif
