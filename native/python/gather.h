/* gather.h: the pieces of a message as one block, in memory that is used again.
 *
 * A message of 256 KiB from malloc is a mapping of its own: the kernel clears its 64 pages
 * and takes them back for every message, which costs more than copying the pieces. Blocks
 * that come back are kept for the next message, so their pages stay warm.
 */
#ifndef EBK_GATHER_H
#define EBK_GATHER_H

#include <stdint.h>

#include "base/gil.h"

/* cffi:begin */
/* Put one function into the module embedbk._native:
 *
 *     gather(tuple of buffers) -> one buffer with all of them, one behind the other
 *
 * bytes where it is short; else an object with the buffer protocol and a length, read-only, whose block is kept for
 * the next when the last view of it is gone, on whichever thread. Returns 0, or -1 without memory. */
int ebk_gather_install(void);

/* Bytes of the blocks that are kept now. */
EBK_SHORT uint64_t ebk_gather_kept_bytes(void);

/* For processes of our own only: have malloc keep what it was given back, for messages that come in. */
void ebk_keep_freed_memory(void);
/* cffi:end */

#endif
