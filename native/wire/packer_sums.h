/* packer_sums.h: digests of the entries that a packer made, added up by residue of their ids (P11.4).
 *
 * A running sum over all entries ever appended, and what it was where each frame ended that is not known to be done: so
 * the sum of all entries up to any of these places is known without their bytes. An entry is added once, when it is made:
 * however often its frame is sent, it counts once.
 *
 *     rows   | up to the last frame that is done | up to the next | up to the next | now: up to the newest entry
 *
 * Where every frame is done the first row is what `now` is, and there are no rows: there may be very many packers at rest.
 *
 * The packer's mutex is held for each call. The plain form is that of embedbk/codec/packer_twin.py.
 */
#ifndef EBK_PACKER_SUMS_H
#define EBK_PACKER_SUMS_H

#include <stdbool.h>
#include <stdint.h>

enum { EBK_SUMS_ROWS_MIN = 4 }; /* the ring has so many at first; it is doubled */

struct ebk_packer_sums {
    int64_t done_entry; /* the last entry of the last frame that is known to be done */
    uint64_t *rows;     /* NULL: at rest. Ring: of each the last entry, and the sum by residue; the first is done_entry's */
    uint32_t row_count, row_first, rows_room; /* room: 0, or a power of two */
    uint8_t modulus;
    uint8_t residue;   /* of the entry that is added next */
    uint8_t is_broken; /* there was no memory: nothing can be told any more */
    uint64_t now[];    /* by residue */
};

/* NULL without memory. */
struct ebk_packer_sums *ebk_packer_sums_new(uint32_t modulus, int64_t next_entry);
void ebk_packer_sums_free(struct ebk_packer_sums *sums);

/* A frame begins: call it before its first entry is added. */
void ebk_packer_sums_begin(struct ebk_packer_sums *sums);
/* A frame ends behind the entry that was added last. */
void ebk_packer_sums_mark(struct ebk_packer_sums *sums, int64_t last_entry);
/* Every frame up to this entry is done, and no earlier place will be asked for. */
void ebk_packer_sums_pass(struct ebk_packer_sums *sums, int64_t entry);
/* The sum by residue up to this entry, passed by that. False: no frame ends there, or that cannot be told. */
bool ebk_packer_sums_at(struct ebk_packer_sums *sums, int64_t entry, uint64_t *by_residue);
/* No frame has begun: give back what is needed only while some are not done. */
void ebk_packer_sums_rest(struct ebk_packer_sums *sums);

static inline void ebk_packer_sums_add(struct ebk_packer_sums *sums, uint64_t digest)
{
    sums->now[sums->residue] += digest;
    sums->residue = sums->residue + 1 == sums->modulus ? 0 : (uint8_t)(sums->residue + 1);
}

#endif
