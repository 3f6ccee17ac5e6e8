/* packer_sums.h: digests of the entries that a packer made, added up by residue of their ids (P11.4).
 *
 * A running sum over all entries ever appended, and what it was where each frame ended that is not known to be done: so
 * the sum of all entries up to any of these places is known without their bytes. An entry is added once, when it is made:
 * however often its frame is sent, it counts once.
 *
 *     sums   | base: up to the last frame that is done | mark | mark | now: up to the newest entry
 *
 * The packer's mutex is held for each call. The plain form is that of embedbk/codec/packer_twin.py.
 */
#ifndef EBK_PACKER_SUMS_H
#define EBK_PACKER_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum { EBK_SUMS_MARKS_MIN = 4 }; /* of the ring at first; it is doubled */

struct ebk_packer_sums {
    uint32_t modulus;
    uint32_t residue;    /* of the entry that is added next */
    int64_t base_entry;  /* base is the sum up to this one */
    uint64_t *marks;     /* ring: of each the last entry, and the sum by residue */
    uint32_t mark_count, mark_first, marks_room; /* room: 0, or a power of two */
    uint32_t is_broken;  /* there was no memory: nothing can be told any more */
    uint64_t sums[];     /* now, by residue; then base, by residue */
};

/* NULL without memory. */
struct ebk_packer_sums *ebk_packer_sums_new(uint32_t modulus, int64_t next_entry);
void ebk_packer_sums_free(struct ebk_packer_sums *sums);

/* A frame ends behind the entry that was added last. */
void ebk_packer_sums_mark(struct ebk_packer_sums *sums, int64_t last_entry);
/* Every frame up to this entry is done, and no earlier place will be asked for. */
void ebk_packer_sums_pass(struct ebk_packer_sums *sums, int64_t entry);
/* The sum by residue up to this entry, passed by that. False: no frame ends there, or that cannot be told. */
bool ebk_packer_sums_at(struct ebk_packer_sums *sums, int64_t entry, uint64_t *by_residue);
/* Give back what is needed only while frames are out. */
void ebk_packer_sums_rest(struct ebk_packer_sums *sums);

static inline void ebk_packer_sums_add(struct ebk_packer_sums *sums, uint64_t digest)
{
    sums->sums[sums->residue] += digest;
    sums->residue = sums->residue + 1 == sums->modulus ? 0 : sums->residue + 1;
}

#endif
