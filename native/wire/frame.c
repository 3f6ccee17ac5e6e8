/* frame.c: scan, cut, merge and read-out of frame bodies.
 *
 *     body  | header 48 | attributes | payload | crc 4 | header 48 | payload | crc 4 | ...
 *             ^ offset                                   ^ offset + 52 + payload size (attributes included)
 *
 * A scan costs its CRC; the rest of the work on an entry hides behind it. Neighbours of
 * small entries are not summed in parallel: at 100 bytes the serial chain still runs
 * faster than memory delivers a cold body.
 */
#include "wire/frame.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/xxh3.h"
#include "wire/entry_digest.h"

#include <string.h>

#define ENTRY_NONE (-1)

/* Take `count` bytes of the *left ones at *at. False: there are not so many. */
static inline int take(const uint8_t **at, uint32_t *left, uint32_t count)
{
    if (count > *left) return 0;
    *at += count;
    *left -= count;
    return 1;
}

/* A u16, and so many bytes behind it. */
static inline int take_sized(const uint8_t **at, uint32_t *left)
{
    const uint8_t *const size = *at;
    return take(at, left, 2) && take(at, left, ebk_load_u16(size));
}

/* A name of a header, behind that one (NULL: it is the first). */
static int take_name(const uint8_t **at, uint32_t *left, const uint8_t **last)
{
    const uint8_t *const name = *at;
    if (!take(at, left, 1) || name[0] == 0 || !take(at, left, name[0])) return 0;
    for (uint32_t i = 1; i <= name[0]; i++)
        if (name[i] < 0x21 || name[i] > 0x7e) return 0;
    if (*last != NULL) {
        const uint8_t *const before = *last;
        const int order = memcmp(before + 1, name + 1, before[0] < name[0] ? before[0] : name[0]);
        if (order > 0 || (order == 0 && before[0] >= name[0])) return 0;
    }
    *last = name;
    return 1;
}

/* Has the value of RECORDS a set for each of so many records, and nothing behind? */
static int are_records_sound(const uint8_t *at, uint32_t left, uint32_t count)
{
    for (; count > 0; count--) {
        const uint8_t *const head = at, *last = NULL;
        if (!take(&at, &left, 2) || (head[0] & ~(EBK_RECORD_HAS_KEY | EBK_RECORD_HAS_TIMESTAMP)) != 0) return 0;
        if ((head[0] & EBK_RECORD_HAS_KEY) != 0 && !take_sized(&at, &left)) return 0;
        if ((head[0] & EBK_RECORD_HAS_TIMESTAMP) != 0 && (!take(&at, &left, 8) || ebk_load_u64(at - 8) > INT64_MAX)) return 0;
        for (uint32_t headers = head[1]; headers > 0; headers--)
            if (!take_name(&at, &left, &last) || !take_sized(&at, &left)) return 0;
    }
    return left == 0;
}

/* May an entry claim to have so many bytes, and attributes among them, when it is unpacked? A claim beyond the bound of
 * an append is refused here, by all who check the entry, before anybody unpacks a byte of it. */
static int is_claim_sound(const uint8_t *at)
{
    const uint32_t bytes = ebk_load_u32(at);
    return bytes <= EBK_ENTRY_APPEND_BYTES_MAX && ebk_load_u16(at + 4) <= bytes;
}

/* Are these attributes known, in order, and right about a payload of so many bytes? */
static __attribute__((noinline)) int are_attributes_sound(const uint8_t *at, uint32_t size, uint32_t payload)
{
    uint32_t last_kind = 0, records = 1;
    int says_records = 0; /* Has it PARTS or RECORDS? Those of a compressed entry are compressed with its payload. */
    while (size > 0) {
        if (size < EBK_ATTRIBUTE_HEADER_BYTES || at[0] <= last_kind || at[1] != 0) return 0;
        const uint32_t value = ebk_load_u16(at + 2);
        last_kind = at[0];
        at += EBK_ATTRIBUTE_HEADER_BYTES;
        size -= EBK_ATTRIBUTE_HEADER_BYTES;
        if (value > size) return 0;
        if (last_kind == EBK_ATTRIBUTE_PARTS) {
            uint32_t end = 0;
            if (value == 0 || value % 4 != 0) return 0;
            for (uint32_t i = 0; i < value; i += 4) {
                if (ebk_load_u32(at + i) < end) return 0;
                end = ebk_load_u32(at + i);
            }
            if (end != payload) return 0;
            records = value / 4;
            says_records = 1;
        } else if (last_kind == EBK_ATTRIBUTE_RECORDS) {
            if (!are_records_sound(at, value, records)) return 0;
            says_records = 1;
        } else if (last_kind == EBK_ATTRIBUTE_ZSTD) {
            if (value != EBK_ATTRIBUTE_ZSTD_BYTES || says_records || !is_claim_sound(at)) return 0;
        } else if (!((last_kind == EBK_ATTRIBUTE_PRODUCER && value == EBK_ATTRIBUTE_PRODUCER_BYTES) ||
                     (last_kind == EBK_ATTRIBUTE_XXH3 && value == EBK_ATTRIBUTE_XXH3_BYTES) ||
                     (last_kind == EBK_ATTRIBUTE_HMAC && value == EBK_ATTRIBUTE_HMAC_BYTES) ||
                     (last_kind == EBK_ATTRIBUTE_TIME && value == EBK_ATTRIBUTE_TIME_BYTES &&
                      ebk_load_u64(at) <= INT64_MAX))) {
            return 0;
        }
        at += value;
        size -= value;
    }
    return 1;
}

/* Bytes of attributes of an entry. */
static inline uint32_t attributes_size(const uint8_t *entry)
{
    return ebk_load_u16(entry + EBK_ENTRY_AT_ATTRIBUTES);
}

/* Is the XXH3 tag right, where there is one? It covers the entry without itself and without its CRC32C; its attributes
 * were found sound before. A tag under a key (HMAC) only clients can check. */
static __attribute__((noinline)) int is_tag_right(const uint8_t *entry, size_t checked)
{
    const uint8_t *at = entry + EBK_ENTRY_HEADER_BYTES, *end = at + attributes_size(entry);
    for (; at < end; at += EBK_ATTRIBUTE_HEADER_BYTES + ebk_load_u16(at + 2)) {
        if (at[0] != EBK_ATTRIBUTE_XXH3) continue;
        const uint8_t *tag = at + EBK_ATTRIBUTE_HEADER_BYTES, *rest = tag + EBK_ATTRIBUTE_XXH3_BYTES;
        const uint64_t found = ebk_xxh3(entry, (size_t)(tag - entry), rest, checked - (size_t)(rest - entry));
        uint8_t expected[EBK_ATTRIBUTE_XXH3_BYTES];
        for (uint32_t i = 0; i < EBK_ATTRIBUTE_XXH3_BYTES; i++) expected[i] = (uint8_t)(found >> (56 - 8 * i));
        return memcmp(expected, tag, sizeof expected) == 0;
    }
    return 1;
}

/* How many parts the payload of a checked entry has, 0 when it is one record. PARTS is the lowest kind. */
static inline uint32_t part_count(const uint8_t *entry)
{
    const uint8_t *first = entry + EBK_ENTRY_HEADER_BYTES;
    if (attributes_size(entry) == 0 || first[0] != EBK_ATTRIBUTE_PARTS) return 0;
    return ebk_load_u16(first + 2) / 4u;
}

/* The highest kind of attribute that a checked entry has, 0 when it has none. RECORDS and ZSTD are the highest of all, and
 * stand in no entry together. */
static inline uint8_t highest_kind(const uint8_t *entry)
{
    const uint8_t *at = entry + EBK_ENTRY_HEADER_BYTES, *const end = at + attributes_size(entry);
    uint8_t last_kind = 0;
    for (; at < end; at += EBK_ATTRIBUTE_HEADER_BYTES + ebk_load_u16(at + 2)) last_kind = at[0];
    return last_kind;
}

/* The size of the entry at `offset`, whole, or a negated fault of layout. */
static inline int64_t entry_size(const uint8_t *body, size_t size, size_t offset)
{
    if (size - offset < EBK_ENTRY_OVERHEAD_BYTES) return -EBK_FRAME_CUT_SHORT;
    const uint8_t *entry = body + offset;
    if (entry[EBK_ENTRY_AT_VERSION] != EBK_ENTRY_VERSION || entry[EBK_ENTRY_AT_FLAGS] != 0)
        return -EBK_FRAME_UNKNOWN;
    const uint32_t payload = ebk_load_u32(entry + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (payload > EBK_ENTRY_PAYLOAD_BYTES_MAX || payload > size - offset - EBK_ENTRY_OVERHEAD_BYTES)
        return -EBK_FRAME_TOO_LONG;
    const uint32_t attributes = attributes_size(entry);
    if (attributes != 0 &&
        (attributes > payload ||
         !are_attributes_sound(entry + EBK_ENTRY_HEADER_BYTES, attributes, payload - attributes)))
        return -EBK_FRAME_UNKNOWN;
    return (int64_t)EBK_ENTRY_OVERHEAD_BYTES + payload;
}

/* Attributes included. Without any check, for a body that was counted. */
static inline uint32_t payload_size(const uint8_t *entry)
{
    return ebk_load_u32(entry + EBK_ENTRY_AT_PAYLOAD_SIZE);
}

static int fault(struct ebk_frame_facts *facts, size_t offset, int what)
{
    facts->fault_at = offset;
    return what;
}

int ebk_frame_scan(const uint8_t *body, size_t size, struct ebk_frame_facts *facts)
{
    uint64_t ledger_id = 0, total = 0, count = 0, payload_bytes = 0;
    int64_t first = ENTRY_NONE, last = ENTRY_NONE;

    if (size == 0) return fault(facts, 0, EBK_FRAME_EMPTY);
    for (size_t offset = 0; offset < size;) {
        const int64_t whole = entry_size(body, size, offset);
        if (whole < 0) return fault(facts, offset, (int)-whole);
        const uint8_t *entry = body + offset;
        const size_t checked = (size_t)whole - EBK_ENTRY_CRC_BYTES;
        if (ebk_crc32c(0, entry, checked) != ebk_load_u32(entry + checked))
            return fault(facts, offset, EBK_FRAME_DIGEST);
        if (attributes_size(entry) != 0 && !is_tag_right(entry, checked))
            return fault(facts, offset, EBK_FRAME_DIGEST);

        const uint64_t payload = checked - EBK_ENTRY_HEADER_BYTES - attributes_size(entry);
        const uint64_t ledger = ebk_load_u64(entry + EBK_ENTRY_AT_LEDGER);
        const int64_t entry_id = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        const uint64_t length = ebk_load_u64(entry + EBK_ENTRY_AT_LENGTH);
        const int64_t lac = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_LAC);
        const uint64_t lac_length = ebk_load_u64(entry + EBK_ENTRY_AT_LAC_LENGTH);
        if (entry_id < 0 || ledger > INT64_MAX || length > INT64_MAX || length < payload || lac < ENTRY_NONE ||
            lac >= entry_id || lac_length > length)
            return fault(facts, offset, EBK_FRAME_IMPOSSIBLE);
        if (count > 0) {
            /* None of these overflows: lengths and ids are below 2^63 here, payloads below 2^21. */
            const uint64_t expected = total + payload;
            if (ledger != ledger_id || entry_id <= last || length < expected ||
                (entry_id == last + 1 && length != expected))
                return fault(facts, offset, EBK_FRAME_ORDER);
        } else {
            first = entry_id;
            ledger_id = ledger;
        }
        last = entry_id;
        total = length;
        count += 1;
        payload_bytes += payload;
        offset += (size_t)whole;
    }
    facts->ledger_id = ledger_id;
    facts->first_entry = first;
    facts->last_entry = last;
    facts->length = total;
    facts->count = count;
    facts->payload_bytes = payload_bytes;
    return EBK_FRAME_SOUND;
}

int ebk_frame_count(const uint8_t *body, size_t size, struct ebk_frame_facts *facts)
{
    uint64_t count = 0, records = 0, with_records = 0, payload_bytes = 0;
    for (size_t offset = 0; offset < size;) {
        const int64_t whole = entry_size(body, size, offset);
        if (whole < 0) return fault(facts, offset, (int)-whole);
        const uint32_t parts = part_count(body + offset);
        count += 1;
        records += parts > 0 ? parts : 1;
        with_records += highest_kind(body + offset) == EBK_ATTRIBUTE_RECORDS;
        payload_bytes += (uint64_t)whole - EBK_ENTRY_OVERHEAD_BYTES - attributes_size(body + offset);
        offset += (size_t)whole;
    }
    facts->count = count;
    facts->records = records;
    facts->with_records = with_records;
    facts->payload_bytes = payload_bytes;
    return EBK_FRAME_SOUND;
}

void ebk_frame_offsets(const uint8_t *body, uint64_t count, int64_t *ids, uint32_t *spans)
{
    size_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        const uint32_t payload = payload_size(entry), attributes = attributes_size(entry);
        ids[i] = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        spans[2 * i] = (uint32_t)(offset + EBK_ENTRY_HEADER_BYTES) + attributes;
        spans[2 * i + 1] = payload - attributes;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload;
    }
}

uint64_t ebk_frame_attributed(const uint8_t *body, uint64_t count, uint32_t *places)
{
    uint64_t found = 0;
    size_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        if (attributes_size(entry) != 0) places[found++] = (uint32_t)i;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload_size(entry);
    }
    return found;
}

uint64_t ebk_frame_compressed(const uint8_t *body, uint64_t count)
{
    uint64_t found = 0;
    size_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        if (attributes_size(entry) != 0) found += highest_kind(entry) == EBK_ATTRIBUTE_ZSTD;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload_size(entry);
    }
    return found;
}

void ebk_frame_digests(const uint8_t *body, size_t size, int64_t first, int64_t last, uint32_t modulus, uint64_t *sums,
                       uint64_t *counts)
{
    EBK_ASSERT(modulus > 0);
    size_t offset = 0;
    while (offset < size) {
        const uint8_t *entry = body + offset;
        const uint32_t whole = EBK_ENTRY_OVERHEAD_BYTES + payload_size(entry);
        const int64_t entry_id = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        if (first <= entry_id && entry_id <= last) {
            const uint64_t residue = (uint64_t)entry_id % modulus;
            sums[residue] += ebk_entry_digest(entry, whole);
            counts[residue] += 1;
        }
        offset += whole;
    }
}

void ebk_frame_values(const uint8_t *body, uint64_t count, int64_t *ids, int32_t *ends, uint8_t *values)
{
    size_t offset = 0;
    uint32_t end = 0;
    ends[0] = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        const uint32_t size = payload_size(entry), attributes = attributes_size(entry), parts = part_count(entry);
        const int64_t entry_id = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        memcpy(values + end, entry + EBK_ENTRY_HEADER_BYTES + attributes, size - attributes);
        const uint8_t *part_ends = entry + EBK_ENTRY_HEADER_BYTES + EBK_ATTRIBUTE_HEADER_BYTES;
        for (uint32_t part = 0; part + 1 < parts; part++) {
            *ids++ = entry_id;
            *++ends = (int32_t)(end + ebk_load_u32(part_ends + (size_t)4 * part));
        }
        end += size - attributes;
        *ids++ = entry_id;
        *++ends = (int32_t)end;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)size;
    }
}

int ebk_frame_cut(const uint8_t *body, size_t size, uint32_t ensemble_size, uint32_t write_quorum, uint32_t seat,
                  uint8_t *to, size_t *taken, struct ebk_frame_facts *facts)
{
    EBK_ASSERT(seat < ensemble_size);
    size_t used = 0;
    for (size_t offset = 0; offset < size;) {
        const int64_t whole = entry_size(body, size, offset);
        if (whole < 0) return fault(facts, offset, (int)-whole);
        const uint64_t entry_id = ebk_load_u64(body + offset + EBK_ENTRY_AT_ENTRY);
        if (entry_id > INT64_MAX) return fault(facts, offset, EBK_FRAME_IMPOSSIBLE);
        const uint32_t turn = (uint32_t)(entry_id % ensemble_size);
        const uint32_t place = seat >= turn ? seat - turn : seat + ensemble_size - turn;
        if (place < write_quorum) {
            memcpy(to + used, body + offset, (size_t)whole);
            used += (size_t)whole;
        }
        offset += (size_t)whole;
    }
    *taken = used;
    return EBK_FRAME_SOUND;
}

size_t ebk_frame_merge(const uint8_t *const *bodies, const size_t *sizes, uint32_t body_count, int64_t first,
                       int64_t last, uint8_t *to, struct ebk_frame_facts *facts)
{
    EBK_ASSERT(body_count >= 1);
    EBK_ASSERT(body_count <= EBK_MERGE_MAX);
    size_t at[EBK_MERGE_MAX] = {0}, used = 0;
    uint64_t length = 0;
    uint32_t turn = 0; /* The body that is tried first: members take turns, so mostly it has the entry. */

    facts->first_entry = first;
    facts->count = 0;
    for (int64_t wanted = first; wanted <= last; wanted++) {
        const uint8_t *entry = NULL;
        for (uint32_t tried = 0; tried < body_count && entry == NULL; tried++, turn = (turn + 1) % body_count) {
            const uint8_t *body = bodies[turn];
            while (at[turn] < sizes[turn]) {
                const uint8_t *here = body + at[turn];
                const int64_t entry_id = (int64_t)ebk_load_u64(here + EBK_ENTRY_AT_ENTRY);
                if (entry_id == wanted) entry = here;
                if (entry_id >= wanted) break;
                at[turn] += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload_size(here);
            }
        }
        if (entry == NULL) break;
        const uint64_t grown = payload_size(entry) - attributes_size(entry);
        const uint64_t total = ebk_load_u64(entry + EBK_ENTRY_AT_LENGTH);
        if (wanted > first && total != length + grown) break;
        const size_t whole = EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload_size(entry);
        memcpy(to + used, entry, whole);
        used += whole;
        length = total;
        facts->last_entry = wanted;
        facts->count += 1;
    }
    facts->length = length;
    return used;
}
