/* frame.h: reading the body of a frame, a run of entries one behind the other.
 *
 * Pure functions over borrowed bytes, safe from any thread; nothing here allocates. The
 * format is embedbk/codec/WIRE.md sections 1 and 2, the plain Python form of every
 * function embedbk/codec/twins.py. No input is trusted: each function stays inside
 * `size` bytes whatever they are, but only ebk_frame_scan() checks digests and numbers.
 */
#ifndef EBK_FRAME_H
#define EBK_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

/* Where the numbers of an entry stand (WIRE.md section 1). */
#define EBK_ENTRY_VERSION 1u
#define EBK_ENTRY_AT_VERSION 0
#define EBK_ENTRY_AT_FLAGS 1
#define EBK_ENTRY_AT_ATTRIBUTES 2
#define EBK_ENTRY_AT_PAYLOAD_SIZE 4
#define EBK_ENTRY_AT_LEDGER 8
#define EBK_ENTRY_AT_ENTRY 16
#define EBK_ENTRY_AT_LENGTH 24
#define EBK_ENTRY_AT_LAC 32
#define EBK_ENTRY_AT_LAC_LENGTH 40
#define EBK_ENTRY_HEADER_BYTES 48
#define EBK_ENTRY_CRC_BYTES 4
#define EBK_ENTRY_OVERHEAD_BYTES (EBK_ENTRY_HEADER_BYTES + EBK_ENTRY_CRC_BYTES)
#define EBK_ENTRY_APPEND_BYTES_MAX (1u << 20) /* of what is appended, its attributes included */

/* Attributes, before the payload: kind, 0, size, value; kinds ascend. The payload size of the header counts them too. */
#define EBK_ATTRIBUTE_HEADER_BYTES 4
#define EBK_ATTRIBUTE_PARTS 1u    /* u32 ends of the parts in the payload, ascending, the last its size */
#define EBK_ATTRIBUTE_PRODUCER 2u /* u64 producer, u64 sequence */
#define EBK_ATTRIBUTE_PRODUCER_BYTES 16u
#define EBK_ATTRIBUTE_XXH3 3u /* tags: every node checks this one; the other needs the key */
#define EBK_ATTRIBUTE_XXH3_BYTES 8u
#define EBK_ATTRIBUTE_HMAC 4u
#define EBK_ATTRIBUTE_HMAC_BYTES 32u
#define EBK_ATTRIBUTE_TIME 5u /* i64 ms since 1970, put in by the packer of a log; no bound of an append counts it */
#define EBK_ATTRIBUTE_TIME_BYTES 8u
#define EBK_ATTRIBUTE_RECORDS 6u /* for each record: u8 flags, u8 count of headers, [u16 size, key], [i64 ms],
                                  * (u8 size, name, u16 size, value) by ascending name */
#define EBK_ATTRIBUTE_ZSTD 7u /* u32 bytes, u16 of them attributes: these stand in the payload as one zstd frame, first
                               * attributes of the kinds PARTS and RECORDS, then the payload that was appended */
#define EBK_ATTRIBUTE_ZSTD_BYTES 6u
#define EBK_RECORD_HAS_KEY 1u
#define EBK_RECORD_HAS_TIMESTAMP 2u
#define EBK_TIME_BYTES (EBK_ATTRIBUTE_HEADER_BYTES + EBK_ATTRIBUTE_TIME_BYTES)
#define EBK_ENTRY_PAYLOAD_BYTES_MAX (EBK_ENTRY_APPEND_BYTES_MAX + EBK_TIME_BYTES) /* of what is stored */

_Static_assert(EBK_ENTRY_AT_LAC_LENGTH + 8 == EBK_ENTRY_HEADER_BYTES, "the header ends with lac_length");

/* cffi:begin */
/* Faults of a body. The numbers are shared with embedbk/codec/twins.py, which has the texts. */
enum ebk_frame_fault {
    EBK_FRAME_SOUND = 0,
    EBK_FRAME_EMPTY = 1,      /* not one entry */
    EBK_FRAME_CUT_SHORT = 2,  /* fewer bytes left than an entry without payload has */
    EBK_FRAME_UNKNOWN = 3,    /* version, flags or attributes that this reader does not know */
    EBK_FRAME_TOO_LONG = 4,   /* a payload over the limit, or beyond the end of the body */
    EBK_FRAME_DIGEST = 5,     /* CRC32C, or the XXH3 tag */
    EBK_FRAME_IMPOSSIBLE = 6, /* an id or length out of range, or a LAC not below the entry */
    EBK_FRAME_ORDER = 7,      /* the entry does not continue the one before it */
    EBK_FRAME_LARGE = 8       /* more bytes than the answer's offsets can name */
};

struct ebk_frame_facts {
    uint64_t ledger_id;
    int64_t first_entry;
    int64_t last_entry;
    uint64_t length;        /* payload bytes of the ledger up to and including last_entry */
    uint64_t count;         /* entries */
    uint64_t payload_bytes; /* of these entries alone */
    uint64_t records;       /* entries, those with parts counted by part; set by ebk_frame_count() */
    uint64_t with_records;  /* entries with RECORDS; set by ebk_frame_count() */
    uint64_t fault_at;      /* offset of the entry that is wrong, when a fault is returned */
};

/* Check every entry of body: layout, digest, numbers, order, one ledger (P3.1).
 * Returns a fault, EBK_FRAME_SOUND for none; *facts is set but for fault_at then. */
EBK_SHORT int ebk_frame_scan(const uint8_t *body, size_t size, struct ebk_frame_facts *facts);

/* Count entries, records and payload bytes by their headers alone: for a body that was scanned before.
 * Returns a fault of layout, or EBK_FRAME_SOUND with count, records and payload_bytes set. */
EBK_SHORT int ebk_frame_count(const uint8_t *body, size_t size, struct ebk_frame_facts *facts);

/* Where each payload stands: ids[i], spans[2i] = its offset in body, spans[2i + 1] = its size.
 * Room is for `count` entries, as ebk_frame_count() gave them; body at most 4 GiB - 1. */
EBK_SHORT void ebk_frame_offsets(const uint8_t *body, uint64_t count, int64_t *ids, uint32_t *spans);

/* Which of `count` entries have attributes: places[0..answer - 1], from 0 and ascending. Room is for count. */
EBK_SHORT uint64_t ebk_frame_attributed(const uint8_t *body, uint64_t count, uint32_t *places);

/* How many of the first `count` entries of a body that was counted are compressed. */
EBK_SHORT uint64_t ebk_frame_compressed(const uint8_t *body, uint64_t count);

/* Add to sums[id % modulus] the digest (entry_digest.h) of each entry first..last of a body that was scanned before, and
 * 1 to counts[id % modulus]. Wants modulus > 0. */
EBK_SHORT void ebk_frame_digests(const uint8_t *body, size_t size, int64_t first, int64_t last, uint32_t modulus,
                                 uint64_t *sums, uint64_t *counts);

/* Records one behind the other, an entry with parts part by part: ids[i] is the entry's, and record i stands at ends[i]
 * to ends[i + 1] of values. count entries; room is for records ids, records + 1 ends and payload_bytes values, at most 2 GiB - 1 of the last. */
EBK_SHORT void ebk_frame_values(const uint8_t *body, uint64_t count, int64_t *ids, int32_t *ends, uint8_t *values);

/* Copy the entries that `seat` holds, (seat - entry) mod ensemble_size < write_quorum (P1), to `to`, which has
 * room for `size` bytes and does not overlap body. *taken is how many bytes were copied. Wants
 * 0 <= seat < ensemble_size. Returns a fault of layout, or EBK_FRAME_SOUND. */
EBK_SHORT
int ebk_frame_cut(const uint8_t *body, size_t size, uint32_t ensemble_size, uint32_t write_quorum, uint32_t seat,
                  uint8_t *to, size_t *taken, struct ebk_frame_facts *facts);

enum { EBK_MERGE_MAX = 64 };

/* Put together what members hold (striping): the entries first, first + 1 ... last as far as they follow without a gap
 * and their lengths go on, out of 1 .. EBK_MERGE_MAX bodies that were scanned before; where several have one, any of
 * them. to has room for all of them and overlaps none. Returns the bytes copied; first_entry, last_entry, count and
 * length of *facts are set when there are any. */
EBK_SHORT
size_t ebk_frame_merge(const uint8_t *const *bodies, const size_t *sizes, uint32_t body_count, int64_t first,
                       int64_t last, uint8_t *to, struct ebk_frame_facts *facts);
/* cffi:end */

#endif
