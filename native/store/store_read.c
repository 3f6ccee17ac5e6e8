/* store_read.c: reads over all places where an entry may be.
 *
 * A read walks cursors in id order, newest place first: active half, frozen half, chains
 * of the index. The cursor with the lowest id is next, the newest one if several have it.
 * A flushed half is asked until the next freeze by readers of the newest entries, and by nobody
 * who wants to know what is held: it is gone with the process, and says nothing about the log.
 * An id between two that no cursor has is absent, unless a damaged log may hide it.
 * Only then bytes are fetched, one read for entries that are near, and every entry is checked.
 */
#include "store/store_reading.h"

#include "base/errors.h"
#include "wire/frame.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECES_MIN 256u
#define READ_BYTES_MAX (UINT32_C(1) << 30)
#define READ_GAP_BYTES_MAX (32u << 10) /* Reading over so much costs less than another read. */
#define READ_SPAN_BYTES_MAX (4u << 20)

/* One absent range, as far as there is room; then the read ends there. */
static void add_absent(struct reading *reading, int64_t first, int64_t last)
{
    struct ebk_found *found = reading->found;
    if (first > last || reading->is_over) return;
    if (found->absent_count == EBK_ABSENT_MAX) {
        reading->is_over = true;
        return;
    }
    found->absent[2 * found->absent_count] = first;
    found->absent[2 * found->absent_count + 1] = last;
    found->absent_count += 1;
}

/* No place has ids first..last: absent, unless they may have stood in a hole of a damaged log; those up to `asked` were
 * asked. */
static void add_missing(struct reading *reading, int64_t first, int64_t last, uint32_t asked)
{
    for (; first <= last && asked < reading->store->hole_count; asked++) {
        const struct ebk_hole *hole = &reading->store->holes[asked];
        const uint64_t ledger_id = reading->ledger_id;
        if (ledger_id < hole->ledger_before || ledger_id > hole->ledger_behind) continue;
        const int64_t begin = ledger_id == hole->ledger_before ? hole->id_before + 1 : 0;
        const int64_t end = ledger_id == hole->ledger_behind ? hole->id_behind : INT64_MAX;
        if (begin > last || end <= first) continue;
        add_missing(reading, first, begin - 1, asked + 1);
        if (end == INT64_MAX) return;
        first = end;
    }
    add_absent(reading, first, last);
}

/* The ledger in the half that takes puts, or in the other one: as long as that is in no entry log, and for some reads
 * longer. */
static const struct ebk_cached_ledger *find_cached(const struct reading *reading, bool is_active)
{
    const struct ebk_store *store = reading->store;
    if (!is_active && store->is_flushed && !reading->from_memory) return NULL;
    const uint32_t half = is_active ? store->active : 1 - store->active;
    const struct ebk_cached_ledger *cached = ebk_cache_find(&store->halves[half], reading->ledger_id);
    return cached == NULL || cached->count == 0 ? NULL : cached;
}

/* Whether one span has each id from where its cursor stands to `last`, so that no older place is asked for any of them. */
static bool has_all(const struct ebk_cursor *cursor, int64_t first, int64_t last)
{
    if (!ebk_cursor_has(cursor) || cursor->id != first) return false;
    const struct ebk_span *span = &cursor->spans[cursor->at];
    return span->last >= last && span->last - span->first == (int64_t)span->count - 1;
}

int ebk_reading_open(struct reading *reading, int64_t first, int64_t last)
{
    const struct ebk_cached_ledger *halves[2] = {find_cached(reading, true), find_cached(reading, false)};
    struct ebk_cursor newest[2];
    bool is_found = false;
    for (uint32_t i = 0; i < 2; i++) {
        if (halves[i] == NULL) continue;
        struct ebk_cursor *cursor = &newest[reading->cursor_count++];
        ebk_cursor_over_spans(cursor, ebk_cached_spans(halves[i]), halves[i]->count, first);
        is_found |= has_all(cursor, first, last);
    }
    const struct ebk_indexed_ledger *indexed =
        is_found ? NULL : ebk_index_find(&reading->store->index, reading->ledger_id);
    const uint32_t chains = indexed == NULL ? 0 : indexed->count;
    reading->cursors = malloc((2 + chains) * sizeof *reading->cursors);
    if (reading->cursors == NULL) return EBK_NO_MEMORY;
    memcpy(reading->cursors, newest, reading->cursor_count * sizeof *newest);
    for (uint32_t i = chains; i > 0; i--)
        ebk_cursor_over_runs(&reading->cursors[reading->cursor_count++], ebk_indexed_chains(indexed)[i - 1].runs,
                             ebk_indexed_chains(indexed)[i - 1].count, first);
    return EBK_OK;
}

struct ebk_cursor *ebk_reading_lowest(struct reading *reading)
{
    struct ebk_cursor *found = NULL;
    for (uint32_t i = 0; i < reading->cursor_count; i++) {
        struct ebk_cursor *cursor = &reading->cursors[i];
        if (ebk_cursor_has(cursor) && (found == NULL || cursor->id < found->id)) found = cursor;
    }
    return found;
}

int ebk_reading_add_piece(struct reading *reading, const struct ebk_cursor *cursor)
{
    struct ebk_store *store = reading->store;
    if (reading->piece_count == store->piece_capacity) {
        const uint32_t capacity = store->piece_capacity ? store->piece_capacity * 2 : PIECES_MIN;
        struct ebk_piece *pieces = realloc(store->pieces, capacity * sizeof *pieces);
        if (pieces == NULL) return EBK_NO_MEMORY;
        store->pieces = pieces;
        store->piece_capacity = capacity;
    }
    store->pieces[reading->piece_count++] = (struct ebk_piece){
        .id = cursor->id,
        .entry = cursor->entry,
        .log = cursor->spans == NULL ? cursor->runs[cursor->at].log : NULL,
        .offset = cursor->offset,
        .size = cursor->size,
    };
    reading->size += cursor->size;
    return EBK_OK;
}

/* Choose the entries of the read and note what is absent between them. */
static int plan(struct reading *reading, int64_t first, int64_t last, size_t bytes_max, uint32_t modulus,
                uint64_t residues)
{
    int64_t expected = first;
    for (;;) {
        const struct ebk_cursor *cursor = ebk_reading_lowest(reading);
        if (cursor == NULL || cursor->id > last) {
            add_missing(reading, expected, last, 0);
            return EBK_OK;
        }
        const int64_t id = cursor->id;
        add_missing(reading, expected, id - 1, 0);
        if (reading->is_over) return EBK_OK;
        if (residues >> ((uint64_t)id % modulus) & 1u) {
            if (reading->piece_count > 0 && reading->size + cursor->size > bytes_max) return EBK_OK;
            if (ebk_reading_add_piece(reading, cursor) < 0) return EBK_NO_MEMORY;
        }
        for (uint32_t i = 0; i < reading->cursor_count; i++)
            while (ebk_cursor_has(&reading->cursors[i]) && reading->cursors[i].id == id)
                ebk_cursor_next(&reading->cursors[i]);
        if (id == last) return EBK_OK;
        expected = id + 1;
    }
}

/* Bytes of the file from the first of pieces begin..end-1 to the end of the last. */
static size_t span_of(const struct ebk_piece *pieces, uint32_t begin, uint32_t end)
{
    return (size_t)(pieces[end - 1].offset + pieces[end - 1].size - pieces[begin].offset);
}

/* Read the whole span of the pieces at once, what stands between them too; false when that was not possible. */
static bool fetch_span(struct ebk_store *store, int file, uint32_t begin, uint32_t end, size_t size, uint8_t *to)
{
    struct ebk_piece *pieces = store->pieces;
    const size_t span = span_of(pieces, begin, end);
    if (span == size) return store->io->read(store->io, file, to, size, pieces[begin].offset) == (int64_t)size;
    uint8_t *bytes = malloc(span);
    const bool is_read =
        bytes != NULL && store->io->read(store->io, file, bytes, span, pieces[begin].offset) == (int64_t)span;
    for (uint32_t i = begin; is_read && i < end; to += pieces[i].size, i++)
        memcpy(to, bytes + (pieces[i].offset - pieces[begin].offset), pieces[i].size);
    free(bytes);
    return is_read;
}

/* Fetch the pieces begin..end-1, which stand near each other in one log. */
static void fetch_pieces(struct ebk_store *store, uint32_t begin, uint32_t end, size_t size, uint8_t *to)
{
    struct ebk_piece *pieces = store->pieces;
    const int file = ebk_store_log_file(store, pieces[begin].log);
    if (file >= 0 && fetch_span(store, file, begin, end, size, to)) return;
    /* Some part cannot be read: entry by entry, so that the others are found. */
    for (uint32_t i = begin; i < end; to += pieces[i].size, i++) {
        const int64_t got = file < 0 ? file : store->io->read(store->io, file, to, pieces[i].size, pieces[i].offset);
        pieces[i].is_lost = got != (int64_t)pieces[i].size;
        pieces[i].is_want = ebk_is_want(got);
    }
}

/* Whether piece `next` is worth the same read as the one before it. */
static bool is_near(const struct ebk_piece *pieces, uint32_t begin, uint32_t next)
{
    if (pieces[next].log != pieces[begin].log) return false;
    const uint64_t before = pieces[next - 1].offset + pieces[next - 1].size;
    return pieces[next].offset >= before && pieces[next].offset - before <= READ_GAP_BYTES_MAX &&
           span_of(pieces, begin, next + 1) <= READ_SPAN_BYTES_MAX;
}

void ebk_reading_fetch(struct reading *reading, uint8_t *to)
{
    struct ebk_piece *pieces = reading->store->pieces;
    for (uint32_t i = 0; i < reading->piece_count;) {
        uint32_t end = i + 1;
        size_t size = pieces[i].size;
        if (pieces[i].log == NULL) {
            memcpy(to, pieces[i].entry, size);
        } else {
            for (; end < reading->piece_count && is_near(pieces, i, end); end++) size += pieces[end].size;
            fetch_pieces(reading->store, i, end, size, to);
        }
        to += size;
        i = end;
    }
}

bool ebk_piece_is_entry(const uint8_t *bytes, const struct ebk_piece *piece, uint64_t ledger_id,
                     struct ebk_frame_facts *facts)
{
    return !piece->is_lost && ebk_frame_scan(bytes, piece->size, facts) == EBK_FRAME_SOUND && facts->count == 1 &&
           facts->ledger_id == ledger_id && facts->first_entry == piece->id;
}

/* Keep what is sound, close up over what is not. An entry whose length does not go on from the one before ends the
 * block: both may be sound, but they do not stand in one frame (WIRE.md section 2). Returns the id where it ended. */
static int64_t check(struct reading *reading, uint8_t *body)
{
    struct ebk_found *found = reading->found;
    const uint8_t *from = body;
    uint8_t *to = body;
    for (uint32_t i = 0; i < reading->piece_count; i++) {
        const struct ebk_piece *piece = &reading->store->pieces[i];
        struct ebk_frame_facts facts;
        if (ebk_piece_is_entry(from, piece, reading->ledger_id, &facts)) {
            if (found->count > 0) {
                const uint64_t expected = found->length + facts.payload_bytes;
                if (facts.length < expected || (piece->id == found->last + 1 && facts.length != expected))
                    return piece->id;
            } else {
                found->first = piece->id;
            }
            if (to != from) memmove(to, from, piece->size);
            to += piece->size;
            found->last = piece->id;
            found->length = facts.length;
            found->count += 1;
            found->size += piece->size;
        }
        from += piece->size;
    }
    return INT64_MAX;
}

/* No verdict is given on ids at and above `end`. */
static void cut_absent(struct ebk_found *found, int64_t end)
{
    while (found->absent_count > 0 && found->absent[2 * found->absent_count - 2] >= end) found->absent_count -= 1;
    if (found->absent_count > 0 && found->absent[2 * found->absent_count - 1] >= end)
        found->absent[2 * found->absent_count - 1] = end - 1;
}

/* Whether the system refused what one of the pieces needs: of that one nothing is known. */
static bool is_wanting(const struct reading *reading)
{
    for (uint32_t i = 0; i < reading->piece_count; i++)
        if (reading->store->pieces[i].is_want) return true;
    return false;
}

static bool needs_files(const struct reading *reading)
{
    for (uint32_t i = 0; i < reading->piece_count; i++)
        if (reading->store->pieces[i].log != NULL) return true;
    return false;
}

static int gather(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, size_t bytes_max,
                  uint32_t modulus, uint64_t residues, bool from_memory, struct ebk_found *found, bool memory_only)
{
    EBK_ASSERT(first >= 0 && modulus >= 1 && modulus <= EBK_MODULUS_MAX);
    struct reading reading = {.store = store, .found = found, .ledger_id = ledger_id, .from_memory = from_memory};
    found->body = NULL;
    found->size = 0;
    found->count = found->absent_count = 0;
    if (first > last) return EBK_OK;
    if (bytes_max > READ_BYTES_MAX) bytes_max = READ_BYTES_MAX;
    int refused = ebk_reading_open(&reading, first, last);
    if (refused == EBK_OK) refused = plan(&reading, first, last, bytes_max, modulus, residues);
    free(reading.cursors);
    if (refused < 0 || reading.piece_count == 0) return refused;
    if (memory_only && needs_files(&reading)) return EBK_END;
    found->body = malloc(reading.size);
    if (found->body == NULL) return EBK_NO_MEMORY;
    ebk_reading_fetch(&reading, found->body);
    cut_absent(found, check(&reading, found->body));
    if (found->count > 0) return EBK_OK;
    free(found->body);
    found->body = NULL;
    return is_wanting(&reading) ? EBK_WANT : EBK_OK;
}

int ebk_store_read(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, size_t bytes_max,
                   uint32_t modulus, uint64_t residues, bool from_memory, struct ebk_found *found)
{
    return gather(store, ledger_id, first, last, bytes_max, modulus, residues, from_memory, found, false);
}

int ebk_store_read_memory(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, size_t bytes_max,
                          uint32_t modulus, uint64_t residues, bool from_memory, struct ebk_found *found)
{
    return gather(store, ledger_id, first, last, bytes_max, modulus, residues, from_memory, found, true);
}

void ebk_found_free(uint8_t *body)
{
    free(body);
}
