/* store_runs.c: making the index section of an entry log, run by run; the format is STORAGE.md section 3. */
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "wire/entry_digest.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_BYTES_MIN (64u << 10)

/* The residues of the ids modulo a number with which they, and no other id between them, are described. */
static bool find_pattern(const struct ebk_run_maker *maker, uint32_t *modulus, uint64_t *residues)
{
    const int64_t first = maker->ids[0], last = maker->ids[maker->count - 1];
    for (uint32_t m = 1; m <= EBK_MODULUS_MAX; m++) {
        uint64_t mask = 0, held = 0;
        for (uint32_t i = 0; i < maker->count; i++) mask |= UINT64_C(1) << ((uint64_t)maker->ids[i] % m);
        const uint64_t ids = (uint64_t)(last - first) + 1, rounds = ids / m;
        for (uint32_t r = 0; r < m; r++) held += (mask >> r & 1u) * rounds;
        for (uint64_t id = (uint64_t)first + rounds * m; id <= (uint64_t)last; id++) held += mask >> (id % m) & 1u;
        if (held == maker->count) { /* Every held id has its residue in the mask, so none else is described. */
            *modulus = m;
            *residues = mask;
            return true;
        }
    }
    return false;
}

static uint64_t zigzag(int64_t value)
{
    return ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
}

static int make_room(struct ebk_run_maker *maker)
{
    const size_t needed =
        maker->size + EBK_LOG_RUN_BYTES + (size_t)EBK_RUN_ENTRIES_MAX * EBK_CODED_BYTES_MAX +
        EBK_RUN_DIGESTS_MAX * sizeof(uint64_t) + EBK_LOG_RUN_CRC_BYTES;
    if (needed <= maker->capacity) return EBK_OK;
    size_t capacity = maker->capacity ? maker->capacity * 2 : INDEX_BYTES_MIN;
    if (capacity < needed) capacity = needed;
    uint8_t *index = realloc(maker->index, capacity);
    if (index == NULL) return EBK_NO_MEMORY;
    maker->index = index;
    maker->capacity = capacity;
    return EBK_OK;
}

static void write_head(uint64_t ledger_id, const struct ebk_run *run, uint8_t *head)
{
    memset(head, 0, EBK_LOG_RUN_BYTES);
    ebk_store_u64(head, ledger_id);
    ebk_store_u64(head + 8, (uint64_t)run->first);
    ebk_store_u64(head + 16, (uint64_t)run->last);
    ebk_store_u64(head + 24, run->residues);
    ebk_store_u64(head + 32, run->offset);
    ebk_store_u32(head + 40, run->bytes);
    ebk_store_u32(head + 44, run->count);
    ebk_store_u32(head + 48, run->coded_size);
    head[52] = run->modulus;
    head[53] = run->sizes_equal;
}

/* The digests of the run, or zeros where one of its entries was not at hand. Returns where they end. */
static uint8_t *write_digests(const struct ebk_run_maker *maker, const struct ebk_run *run, uint8_t *to)
{
    uint64_t sums[EBK_RUN_DIGESTS_MAX] = {0};
    const uint32_t count = ebk_run_digest_count(run->modulus, run->residues);
    for (uint32_t i = 0; i < maker->count && maker->is_summed; i++)
        sums[ebk_run_digest_of(run, maker->ids[i])] += maker->digests[i];
    for (uint32_t i = 0; i < count; i++, to += sizeof(uint64_t)) ebk_store_u64(to, sums[i]);
    return to;
}

int ebk_run_maker_end(struct ebk_run_maker *maker)
{
    if (maker->count == 0) return EBK_OK;
    if (make_room(maker) < 0) return EBK_NO_MEMORY;
    uint32_t modulus = 0;
    uint64_t residues = 0;
    const bool is_pattern = find_pattern(maker, &modulus, &residues);
    bool sizes_equal = true;
    for (uint32_t i = 1; i < maker->count; i++) sizes_equal &= maker->sizes[i] == maker->sizes[0];

    uint8_t *head = maker->index + maker->size, *coded = head + EBK_LOG_RUN_BYTES, *end = coded;
    for (uint32_t i = 0; i < maker->count; i++) {
        if (!is_pattern && i > 0) end += ebk_varint_write(end, (uint64_t)(maker->ids[i] - maker->ids[i - 1]));
        if (!sizes_equal) end += ebk_varint_write(end, zigzag((int64_t)maker->sizes[i] - (i ? maker->sizes[i - 1] : 0)));
    }
    const struct ebk_run run = {
        .first = maker->ids[0],
        .last = maker->ids[maker->count - 1],
        .residues = residues,
        .offset = maker->offset - maker->bytes,
        .bytes = (uint32_t)maker->bytes,
        .count = maker->count,
        .coded_size = (uint32_t)(end - coded),
        .modulus = (uint8_t)modulus,
        .sizes_equal = sizes_equal,
    };
    write_head(maker->ledger_id, &run, head);
    head[EBK_RUN_AT_SUMMED] = maker->is_summed;
    maker->size = (size_t)(write_digests(maker, &run, end) - maker->index) + EBK_LOG_RUN_CRC_BYTES;
    maker->run_count += 1;
    maker->count = 0;
    maker->bytes = 0;
    return EBK_OK;
}

int ebk_run_maker_add(struct ebk_run_maker *maker, uint64_t ledger_id, int64_t id, uint32_t size, const uint8_t *entry)
{
    if (maker->count > 0 && (maker->ledger_id != ledger_id || maker->count == EBK_RUN_ENTRIES_MAX ||
                             id - maker->ids[maker->count - 1] > EBK_RUN_GAP_MAX ||
                             maker->bytes + size > UINT32_MAX)) {
        const int refused = ebk_run_maker_end(maker);
        if (refused < 0) return refused;
    }
    maker->ledger_id = ledger_id;
    maker->is_summed = entry != NULL && (maker->count == 0 || maker->is_summed);
    if (entry != NULL) maker->digests[maker->count] = ebk_entry_digest(entry, size);
    maker->ids[maker->count] = id;
    maker->sizes[maker->count] = size;
    maker->count += 1;
    maker->bytes += size;
    maker->offset += size;
    return EBK_OK;
}

int ebk_run_maker_copy(struct ebk_run_maker *maker, uint64_t ledger_id, const struct ebk_run *run)
{
    const int refused = ebk_run_maker_end(maker);
    if (refused < 0) return refused;
    EBK_ASSERT(run->coded_size <= EBK_RUN_ENTRIES_MAX * EBK_CODED_BYTES_MAX);
    if (make_room(maker) < 0) return EBK_NO_MEMORY;
    struct ebk_run copy = *run;
    copy.offset = maker->offset;
    uint8_t *head = maker->index + maker->size, *digests = head + EBK_LOG_RUN_BYTES + run->coded_size;
    const size_t digests_size = ebk_run_digest_count(run->modulus, run->residues) * sizeof(uint64_t);
    write_head(ledger_id, &copy, head);
    memcpy(head + EBK_LOG_RUN_BYTES, run->coded, run->coded_size);
    head[EBK_RUN_AT_SUMMED] = ebk_run_is_summed(run);
    if (ebk_run_is_summed(run)) memcpy(digests, run->digests, digests_size);
    else memset(digests, 0, digests_size);
    maker->size += EBK_LOG_RUN_BYTES + run->coded_size + digests_size + EBK_LOG_RUN_CRC_BYTES;
    maker->offset += run->bytes;
    maker->run_count += 1;
    return EBK_OK;
}

uint32_t ebk_run_crc(uint32_t seed, uint64_t at, const uint8_t *bytes, size_t size)
{
    uint8_t place[8];
    ebk_store_u64(place, at);
    return ebk_crc32c(ebk_crc32c(seed, place, sizeof place), bytes, size);
}

size_t ebk_runs_without_digests(uint8_t *index, size_t size)
{
    uint8_t *to = index;
    for (const uint8_t *head = index, *end = index + size; head < end;) {
        const size_t kept = EBK_LOG_RUN_BYTES + ebk_load_u32(head + 48);
        const uint8_t *next = head + kept + ebk_run_tail_bytes(EBK_LOG_VERSION, head[52], ebk_load_u64(head + 24));
        memmove(to, head, kept);
        to[EBK_RUN_AT_SUMMED] = 0;
        to += kept + EBK_LOG_RUN_CRC_BYTES;
        head = next;
    }
    return (size_t)(to - index);
}

void ebk_runs_seal(const struct ebk_descriptor *descriptor, uint8_t *index)
{
    const uint32_t seed = ebk_section_seed(descriptor);
    for (uint64_t at = 0; at < descriptor->index_size;) {
        uint8_t *head = index + at;
        const size_t tail = ebk_run_tail_bytes(descriptor->version, head[52], ebk_load_u64(head + 24));
        const size_t size = EBK_LOG_RUN_BYTES + ebk_load_u32(head + 48) + tail - EBK_LOG_RUN_CRC_BYTES;
        ebk_store_u64(head + 32, ebk_load_u64(head + 32) + descriptor->index_size);
        ebk_store_u32(head + size, ebk_run_crc(seed, at, head, size));
        at += size + EBK_LOG_RUN_CRC_BYTES;
    }
}
