/* packer.h: the open frame of one writing handle: user threads append, the host seals (ARCHITECTURE.md, data path).
 *
 * Each entry is made here once, straight into the block from which it is sent and journaled:
 * header, payload, CRC32C (WIRE.md section 1). Any thread may call any function. Those who
 * append take turns; the packer's mutex is held for at most 64 KiB or one entry at a time,
 * so the host never waits for a whole batch.
 * Blocks come from one pool of the process (block_pool.h).
 *
 * After a fork the child's copies of packers are dead: appends answer EBK_FAILED,
 * releases do nothing. The child may open packers of its own.
 *
 * The plain Python form is embedbk/codec/packer_twin.py: same ids, same bytes, same frames.
 */
#ifndef EBK_PACKER_H
#define EBK_PACKER_H

#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

/* cffi:begin */
/* Bytes in front of every frame in a block, for the frame's own note; starts on a multiple of EBK_NOTE_ALIGN. */
enum { EBK_NOTE_BYTES = 48, EBK_NOTE_ALIGN = 8 };

/* An entry of a log carries its time where that is not the time of the entry before it, where its id divides by the
 * first, and if its payload has as many bytes as the second: so a search for the time of any entry reads no more
 * than these few before it. */
enum { EBK_TIME_EVERY = 64, EBK_TIME_PAYLOAD_BYTES = 4096 };

enum { EBK_SUMS_MODULUS_MAX = 64 }; /* as many seats as a ledger may have */

struct ebk_packer;

/* Numbers that any thread may read without a call and without the mutex: each by itself is whole and recent. */
struct ebk_packer_state {
    int64_t next_entry;        /* the id that the next entry gets */
    uint64_t length;           /* payload bytes of the ledger before next_entry */
    int64_t lac;               /* what new entries carry */
    uint64_t lac_length;
    uint64_t unreleased_bytes; /* of entries appended and not in a released frame */
    uint64_t bytes_max;
    uint32_t open_count;       /* entries in the open frame */
    uint32_t full_count;       /* frames that are full and not yet taken */
    uint32_t is_stopped;
    uint32_t frames_out;       /* taken and not released */
};

/* A frame that was taken: entries first..last, dense, verbatim at body. */
struct ebk_packed {
    uint8_t *body;
    uint32_t size;
    uint32_t count;
    int64_t first_entry;
    int64_t last_entry;
    uint64_t length; /* payload bytes of the ledger up to and including last_entry */
};

/* How far an append of many came: `taken` entries from first_entry on; should_wake as below. */
struct ebk_appended {
    int64_t first_entry;
    uint64_t taken;
    int should_wake;
};

/* A packer with one reference, or NULL without memory. block_bytes is what a usual block holds, notes included. */
struct ebk_packer *ebk_packer_open(uint64_t ledger_id, int64_t next_entry, uint64_t length, uint32_t block_bytes,
                                   uint64_t bytes_max);
/* Give a reference back; frames that are out keep what they need. Entries not taken are dropped with the last. */
void ebk_packer_unref(struct ebk_packer *packer);

/* The numbers of this packer; they live as long as a reference. */
EBK_SHORT const struct ebk_packer_state *ebk_packer_state(const struct ebk_packer *packer);

/* Append one entry. Returns its id, or a code (errors.h), and then nothing was appended:
 * EBK_FULL: bytes_max or the pool's bound is reached, try again when a frame was released;
 * EBK_FAILED: after ebk_packer_stop(); EBK_USAGE: a payload over the limit, or sizes that do not fit the bytes.
 * *should_wake is set to 1 when the host has something to look at that it had not before (the open frame has reached what
 * is wanted, or no full one waited), also beside a refusal, else to 0. */
int64_t ebk_packer_append(struct ebk_packer *packer, const uint8_t *data, size_t size, int *should_wake);

/* Append `count` entries whose payloads lie behind each other in data, sizes[i] bytes each, as far as they fit.
 * Returns EBK_OK when all were taken, else such a code; *out has how many were. */
int ebk_packer_append_run(struct ebk_packer *packer, const uint8_t *data, size_t size, const uint32_t *sizes,
                          uint64_t count, struct ebk_appended *out);

/* Append again what another packer made: of the entries that lie behind each other in `entries`, as in a frame, `count`
 * from the one at `begin` on (counted from 0), each with attributes and payload as there, and all else as this packer
 * gives it, its time among that. Entries within the bounds there have room here: none of them is refused. The caller
 * releases that frame next. Returns EBK_OK, EBK_FAILED after ebk_packer_stop(), EBK_FULL without memory, EBK_USAGE where no whole entries lie
 * there; out->taken of them were appended. */
int ebk_packer_append_again(struct ebk_packer *packer, const uint8_t *entries, size_t size, uint64_t begin,
                            uint64_t count, struct ebk_appended *out);

/* Entries have times from now on (P8.11): ms since 1970 by the clock on the wall, none below floor_ms, nor below that of
 * the entry before. is_told: use the time of ebk_packer_tell_time() instead of that clock. */
void ebk_packer_begin_times(struct ebk_packer *packer, int64_t floor_ms, int is_told);
void ebk_packer_tell_time(struct ebk_packer *packer, int64_t now_ms);
/* The time that the next entry has at least; -1 before there is any. */
int64_t ebk_packer_time(struct ebk_packer *packer);

/* The LAC that entries appended from now on carry. Needs lac < next_entry, and never a lower one than before. */
void ebk_packer_set_lac(struct ebk_packer *packer, int64_t lac, uint64_t lac_length);

/* Digests of all entries are added up by residue of their ids from the first entry on (P11.4), modulo `modulus`, which is
 * 1 to EBK_SUMS_MODULUS_MAX. Before the first append. Returns EBK_OK, or EBK_NO_MEMORY. */
int ebk_packer_begin_sums(struct ebk_packer *packer, uint32_t modulus);
/* Those of the entries up to `entry`, where a frame that was sealed ends; every frame up to there is done, and no earlier
 * place is asked for any more. Writes the modulus of them, which it returns; 0: that cannot be told. */
uint32_t ebk_packer_sums_through(struct ebk_packer *packer, int64_t entry, uint64_t *by_residue);

/* Wake the host when the open frame has so many entries: 1 at first; UINT32_MAX: never. After lowering it, look at the
 * open frame at once: earlier appends wake no thread. From one thread. */
EBK_SHORT void ebk_packer_want(struct ebk_packer *packer, uint32_t count);

/* Take the oldest full frame, or the open one when none is full. Returns 1 with *out set, 0 when nothing waits.
 * The body stays unchanged until ebk_packer_release(body), which is owed exactly once. */
int ebk_packer_seal(struct ebk_packer *packer, struct ebk_packed *out);
void ebk_packer_release(uint8_t *body);
/* One more owner of a frame that is out: one more release is owed, and only the last lets go. */
EBK_SHORT void ebk_packer_retain(uint8_t *body);
/* The ledger of a frame that is out. */
EBK_SHORT uint64_t ebk_packer_ledger_of(uint8_t *body);

/* The caller whose rest is waited for (ebk_packer_append_each_in_turn), 0: none; and wait for this caller's from now on. */
uint64_t ebk_packer_held_by(struct ebk_packer *packer);
void ebk_packer_hold_for(struct ebk_packer *packer, uint64_t caller);

/* No appends from now on; what was appended can still be taken. */
void ebk_packer_stop(struct ebk_packer *packer);
/* cffi:end */

/* Keep the bytes of a body that is out as they are, also when its frame is released meanwhile, until
 * ebk_packer_let_go(what was answered), which is owed exactly once, from any thread and without the GIL: for a socket
 * that sends them where they are. The frame stops counting in its packer with its release, not with this. */
void *ebk_packer_hold(uint8_t *body);
void ebk_packer_let_go(void *held);

/* One more reference. */
void ebk_packer_ref(struct ebk_packer *packer);

/* The same in parts, for callers that must not wait: take the turn, or the mutex, at once or not at all (1 or 0).
 * append needs the turn, the `_locked` functions need the mutex; a thread that has the mutex waits for nothing. */
int ebk_packer_try_turn(struct ebk_packer *packer);
void ebk_packer_take_turn(struct ebk_packer *packer);
void ebk_packer_end_turn(struct ebk_packer *packer);
int64_t ebk_packer_append_in_turn(struct ebk_packer *packer, const uint8_t *data, size_t size, int *should_wake);
/* As append, with attributes, which count for the limit too. expected: append only if this id is the next, else
 * EBK_CONFLICT and nothing was appended; below 0: whichever is. */
int64_t ebk_packer_append_with_in_turn(struct ebk_packer *packer, int64_t expected, const uint8_t *attributes,
                                       size_t attributes_size, const uint8_t *data, size_t size, int *should_wake);
/* Payloads anywhere: data[i] has sizes[i] bytes, and attributes[i] attribute_sizes[i], together within the limit.
 * attributes NULL: there are none. */
struct ebk_payloads {
    const uint8_t *const *data;
    const uint32_t *sizes;
    const uint8_t *const *attributes;
    const uint32_t *attribute_sizes;
    uint64_t count;
};
/* As append_run, of these. caller, unless it is 0: when only some were taken, every other append answers EBK_FULL until
 * this caller has appended the rest, or gives it up. */
int ebk_packer_append_each_in_turn(struct ebk_packer *packer, uint64_t caller, const struct ebk_payloads *payloads,
                                   struct ebk_appended *out);
/* The same for rows of Arrow columns, one column behind the other, from the row `begin` of all of them on, each with
 * what stands beside its value. */
struct ebk_arrow_column;
int ebk_packer_append_rows_in_turn(struct ebk_packer *packer, uint64_t caller,
                                   const struct ebk_arrow_column *const *columns, uint64_t column_count,
                                   uint64_t begin, struct ebk_appended *out);
/* Wants the mutex. The caller appends no more of what it began, if it was held up; else nothing is done. */
void ebk_packer_give_up_rest_locked(struct ebk_packer *packer, uint64_t caller);

int ebk_packer_try_lock(struct ebk_packer *packer);
void ebk_packer_lock(struct ebk_packer *packer);
void ebk_packer_unlock(struct ebk_packer *packer);
int ebk_packer_seal_locked(struct ebk_packer *packer, struct ebk_packed *out);
/* As ebk_packer_seal, for a caller that knows every frame up to `done` to be done. */
int ebk_packer_seal_behind(struct ebk_packer *packer, int64_t done, struct ebk_packed *out);
void ebk_packer_set_lac_locked(struct ebk_packer *packer, int64_t lac, uint64_t lac_length);
void ebk_packer_stop_locked(struct ebk_packer *packer);
/* The packer of a body that is out; and its release, after which the frame's reference to the packer is the caller's. */
struct ebk_packer *ebk_packer_of(uint8_t *body);
void ebk_packer_release_locked(struct ebk_packer *packer, uint8_t *body);

#endif
