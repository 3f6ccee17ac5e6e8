/* block_pool.h: the blocks of memory in which packers make their entries, of the whole process, bounded and lazy.
 *
 * A free block of the usual size is kept for the next user, the warm one first;
 * others are given back to the system. Any thread may call any function.
 *
 * A block is counted: one reference from its packer while it is open or full, and one from
 * each frame that is out. The child of a fork begins with a pool of its own: what the parent
 * had is not its, and `ebk_pool_generation` tells it from its own.
 */
#ifndef EBK_BLOCK_POOL_H
#define EBK_BLOCK_POOL_H

#include "base/gil.h"

#include <stdint.h>

/* cffi:begin */
/* Bytes of a block that the pool keeps for the next user; others are given back to the system. */
enum { EBK_POOL_BLOCK_BYTES = 349184 };

/* The bound of all blocks of the process together; 0 until it is set. Blocks beyond a lowered bound stay in use. */
void ebk_pool_set_bytes_max(uint64_t bytes_max);
/* Bytes of blocks in use, and of blocks kept for the next user. */
EBK_SHORT uint64_t ebk_pool_used_bytes(void);
EBK_SHORT uint64_t ebk_pool_kept_bytes(void);
/* cffi:end */

struct ebk_block {
    struct ebk_block *next; /* in the packer's queue of full ones, or in the pool */
    uint32_t capacity;
    uint32_t used;
    uint32_t refs;
    /* The frame that is being filled, or waits full: count == 0 when there is none. */
    uint32_t begin;
    uint32_t count;
    int64_t first_entry;
    uint64_t length; /* up to and including its last entry */
    _Alignas(16) uint8_t data[];
};

/* Rises in the child of a fork. */
extern uint64_t ebk_pool_generation;

/* An empty block with one reference; NULL: the bound is reached, or memory is refused. */
struct ebk_block *ebk_pool_take(uint32_t capacity);
/* The same, also beyond the bound: for a caller that gives as much back at once, and needs this block before it can. */
struct ebk_block *ebk_pool_take_beyond(uint32_t capacity);
/* With the last reference it goes back to the pool. */
void ebk_block_ref(struct ebk_block *block);
void ebk_block_unref(struct ebk_block *block);

#endif
