/* frame.c: scan, cut and read-out of frame bodies.
 *
 *     body  | header 48 | payload | crc 4 | header 48 | payload | crc 4 | ...
 *             ^ offset                      ^ offset + 52 + payload size
 *
 * A scan costs its CRC; the rest of the work on an entry hides behind it. Neighbours of
 * small entries are not summed in parallel: at 100 bytes the serial chain still runs
 * faster than memory delivers a cold body.
 */
#include "frame.h"

#include "bytes.h"
#include "crc32c.h"
#include "errors.h"

#define ENTRY_NONE (-1)

/* The size of the entry at `offset`, whole, or a negated fault of layout. */
static inline int64_t entry_size(const uint8_t *body, size_t size, size_t offset)
{
    if (size - offset < EBK_ENTRY_OVERHEAD_BYTES) return -EBK_FRAME_CUT_SHORT;
    const uint8_t *entry = body + offset;
    if (entry[EBK_ENTRY_AT_VERSION] != EBK_ENTRY_VERSION || entry[EBK_ENTRY_AT_FLAGS] != 0 ||
        ebk_load_u16(entry + EBK_ENTRY_AT_ATTRIBUTES) != 0)
        return -EBK_FRAME_UNKNOWN;
    const uint32_t payload = ebk_load_u32(entry + EBK_ENTRY_AT_PAYLOAD_SIZE);
    if (payload > EBK_ENTRY_PAYLOAD_BYTES_MAX || payload > size - offset - EBK_ENTRY_OVERHEAD_BYTES)
        return -EBK_FRAME_TOO_LONG;
    return (int64_t)EBK_ENTRY_OVERHEAD_BYTES + payload;
}

/* Without any check, for a body that was counted. */
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

        const uint64_t payload = checked - EBK_ENTRY_HEADER_BYTES;
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
    uint64_t count = 0, payload_bytes = 0;
    for (size_t offset = 0; offset < size;) {
        const int64_t whole = entry_size(body, size, offset);
        if (whole < 0) return fault(facts, offset, (int)-whole);
        count += 1;
        payload_bytes += (uint64_t)whole - EBK_ENTRY_OVERHEAD_BYTES;
        offset += (size_t)whole;
    }
    facts->count = count;
    facts->payload_bytes = payload_bytes;
    return EBK_FRAME_SOUND;
}

void ebk_frame_offsets(const uint8_t *body, uint64_t count, int64_t *ids, uint32_t *spans)
{
    size_t offset = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        const uint32_t payload = payload_size(entry);
        ids[i] = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        spans[2 * i] = (uint32_t)(offset + EBK_ENTRY_HEADER_BYTES);
        spans[2 * i + 1] = payload;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload;
    }
}

void ebk_frame_values(const uint8_t *body, uint64_t count, int64_t *ids, int32_t *ends, uint8_t *values)
{
    size_t offset = 0;
    uint32_t end = 0;
    ends[0] = 0;
    for (uint64_t i = 0; i < count; i++) {
        const uint8_t *entry = body + offset;
        const uint32_t payload = payload_size(entry);
        ids[i] = (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
        memcpy(values + end, entry + EBK_ENTRY_HEADER_BYTES, payload);
        end += payload;
        ends[i + 1] = (int32_t)end;
        offset += EBK_ENTRY_OVERHEAD_BYTES + (size_t)payload;
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
