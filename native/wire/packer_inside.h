/* packer_inside.h: what the sources of a packer know of each other; no other file includes it.
 *
 *   packer.c         its life, turns, times and sums; frames sealed and released
 *   packer_entry.c   one entry, made in the open block
 *   packer_append.c  the ways to append: from which memory, in slices, and whose rest is waited for
 *
 * A block holds one frame or several small ones, each behind its note:
 *
 *     block | note 48 | entry | entry | pad | note 48 | entry | entry | entry |      free      |
 *             taken, 1 reference              the open frame            ^ used       capacity ^
 *
 * A frame that is sealed early leaves its block open for the next one, so a writer that waits for every
 * entry uses one warm block again and again instead of touching 256 KiB for 100 bytes.
 * When nothing is out or waits, the block goes back to the pool: of thousands of open
 * ledgers only those that are written to hold one, and the pool gives the warm one first.
 * A new frame begins in a block only while half of it is free: a late one would be short.
 *
 * References: a block has one from its packer while it is open or full, and one from
 * each frame that is out. A packer has one from each handle and from each frame that is out.
 */
#ifndef EBK_PACKER_INSIDE_H
#define EBK_PACKER_INSIDE_H

#include "base/lock.h"
#include "wire/block_pool.h"
#include "wire/packer.h"
#include "wire/packer_sums.h"

#include <stddef.h>
#include <stdint.h>

struct ebk_packer {
    struct ebk_packer_state state; /* written under the mutex, read by anybody */
    struct ebk_lock turn;          /* held by an appending thread, for all that it appends at once */
    struct ebk_lock mutex;         /* of everything here, for one slice of that; taken after the turn */
    uint64_t generation; /* of the process that made it */
    uint64_t ledger_id;
    uint32_t block_bytes;
    uint32_t refs;
    uint64_t held_by; /* the caller of which a part was taken, 0: none; no other appends before its rest */
    /* Only for a log (P8.11): entries have times. time_ms is that of the last one, and the least of the next;
     * written_ms the last one that an entry carries. is_told: the caller passes the time, and no clock is read. */
    int64_t time_ms, written_ms;
    int is_timed, is_told;
    struct ebk_packer_sums *sums; /* NULL: nobody asked for them */
    uint32_t wanted;  /* entries of the open frame at which an append wakes the host; written by one thread only */
    struct ebk_block *open; /* has room, perhaps no entry */
    struct ebk_block *full_first, *full_last;
};

/* Readers look without the mutex: a store is never torn. */
#define PUBLISH(packer, field, value) __atomic_store_n(&(packer)->state.field, (value), __ATOMIC_RELAXED)

static inline int is_of_parent(const struct ebk_packer *packer)
{
    return packer->generation != ebk_pool_generation;
}

/* In the child of a fork no thread will ever unlock what a thread of the parent held; nothing is done there anyway. */
static inline int packer_try(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    return is_of_parent(packer) || ebk_lock_try(lock);
}

static inline void packer_take(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    if (!is_of_parent(packer)) ebk_lock_take(lock);
}

static inline void packer_give(const struct ebk_packer *packer, struct ebk_lock *lock)
{
    if (!is_of_parent(packer)) ebk_lock_give(lock);
}

/* As ebk_packer_lock() and ebk_packer_unlock(), inline: on the path of every append. */
static inline void packer_lock(struct ebk_packer *packer)
{
    packer_take(packer, &packer->mutex);
}

static inline void packer_unlock(struct ebk_packer *packer)
{
    packer_give(packer, &packer->mutex);
}

/* packer_entry.c. The caller has the mutex. */

/* Attributes without those that the packer makes: what stands before the time, and behind it. Kinds ascend. */
struct packer_attributes {
    const uint8_t *before, *behind;
    size_t before_size, behind_size;
};

/* One more entry. Returns its id; or, and then there is none: EBK_USAGE, EBK_FAILED, or EBK_FULL, also where another
 * caller's rest is waited for. *should_wake is set to 1 as ebk_packer_append() does, and else left as it is. */
int64_t ebk_packer_append_locked(struct ebk_packer *packer, uint64_t caller,
                                 const struct packer_attributes *attributes, const uint8_t *data, size_t size,
                                 int *should_wake);
/* One that was within the bounds before, in another packer: EBK_FULL only without memory. */
int64_t ebk_packer_append_again_locked(struct ebk_packer *packer, const struct packer_attributes *attributes,
                                       const uint8_t *data, size_t size, int *should_wake);

#endif
