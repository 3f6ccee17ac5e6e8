/* store_cache.c: the write cache: frame bodies copied once into an arena, found by ledger and entry.
 *
 *     memory | body | body | body | ............ |      a copy never moves: the journal borrows it
 *              ^      ^      ^
 *     spans  [0..63][64..127][128..191]                 of one ledger, ascending, without overlap
 *
 * Where a frame brings ids that are there already, its entries and those of the spans
 * it meets are merged into spans anew; the newest copy of an id wins.
 */
#define _GNU_SOURCE
#include "store/store_inside.h"

#include "base/bytes.h"
#include "base/errors.h"
#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define COPY_ALIGNMENT 64u
#define SPANS_MIN 2u /* where one is not enough */
#define LEDGERS_MIN 4096u /* rows; and so many stay touched when the cache is emptied */

uint32_t ebk_cache_entry_size(const uint8_t *entry)
{
    return EBK_ENTRY_OVERHEAD_BYTES + ebk_load_u32(entry + EBK_ENTRY_AT_PAYLOAD_SIZE);
}

int64_t ebk_cache_entry_id(const uint8_t *entry)
{
    return (int64_t)ebk_load_u64(entry + EBK_ENTRY_AT_ENTRY);
}

/* Address space that is touched as it is used; NULL when it is refused. */
static void *reserve(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static size_t rows_size(const struct ebk_cache *cache)
{
    return cache->ledger_capacity * sizeof *cache->ledgers;
}

/* Twice as many rows. They move as pages do: an array that is copied leaves a hole in the heap, and both are touched. */
static int widen(struct ebk_cache *cache)
{
    const uint32_t capacity = cache->ledger_capacity ? cache->ledger_capacity * 2 : LEDGERS_MIN;
    const size_t size = capacity * sizeof *cache->ledgers;
    void *wider = cache->ledgers == NULL ? reserve(size) : mremap(cache->ledgers, rows_size(cache), size, MREMAP_MAYMOVE);
    if (wider == NULL || wider == MAP_FAILED) return EBK_NO_MEMORY;
    cache->ledgers = wider;
    cache->ledger_capacity = capacity;
    return EBK_OK;
}

int ebk_cache_open(struct ebk_cache *cache, size_t bytes_max)
{
    *cache = (struct ebk_cache){.bytes_max = bytes_max};
    cache->memory = reserve(bytes_max);
    return cache->memory == NULL ? EBK_NO_MEMORY : EBK_OK;
}

static uint64_t id_of(const void *ledgers, uint32_t number)
{
    return ((const struct ebk_cached_ledger *)ledgers)[number].ledger_id;
}

/* The ledger's number, or EBK_ROW_MAP_NONE. */
static uint32_t number_of(const struct ebk_cache *cache, uint64_t ledger_id)
{
    return ebk_row_map_get(&cache->numbers, cache->ledgers, id_of, ledger_id);
}

static void forget_ledgers(struct ebk_cache *cache)
{
    for (uint32_t i = 0; i < cache->ledger_count; i++)
        if (cache->ledgers[i].capacity > 0) free(cache->ledgers[i].many);
    cache->ledger_count = 0;
    ebk_row_map_clear(&cache->numbers);
}

void ebk_cache_close(struct ebk_cache *cache)
{
    forget_ledgers(cache);
    if (cache->memory != NULL) munmap(cache->memory, cache->bytes_max);
    if (cache->ledgers != NULL) munmap(cache->ledgers, rows_size(cache));
    cache->memory = NULL;
    cache->ledgers = NULL;
    cache->ledger_capacity = 0;
}

void ebk_cache_reset(struct ebk_cache *cache, size_t kept)
{
    forget_ledgers(cache);
    if (cache->ledger_capacity > LEDGERS_MIN &&
        mremap(cache->ledgers, rows_size(cache), LEDGERS_MIN * sizeof *cache->ledgers, 0) != MAP_FAILED)
        cache->ledger_capacity = LEDGERS_MIN;
    kept = (kept + EBK_IO_ALIGNMENT - 1) / EBK_IO_ALIGNMENT * EBK_IO_ALIGNMENT;
    if (cache->used > kept) (void)madvise(cache->memory + kept, cache->used - kept, MADV_DONTNEED);
    cache->used = 0;
}

const struct ebk_cached_ledger *ebk_cache_find(const struct ebk_cache *cache, uint64_t ledger_id)
{
    const uint32_t number = number_of(cache, ledger_id);
    EBK_ASSERT(number == EBK_ROW_MAP_NONE || number < cache->ledger_count);
    return number == EBK_ROW_MAP_NONE || cache->ledgers[number].is_dropped ? NULL : &cache->ledgers[number];
}

void ebk_cache_drop(struct ebk_cache *cache, uint64_t ledger_id, bool may_change)
{
    const uint32_t number = number_of(cache, ledger_id);
    if (number == EBK_ROW_MAP_NONE) return;
    if (may_change) cache->ledgers[number].count = 0;
    else cache->ledgers[number].is_dropped = true;
}

static struct ebk_cached_ledger *find_or_make(struct ebk_cache *cache, uint64_t ledger_id)
{
    const uint32_t number = number_of(cache, ledger_id);
    if (number != EBK_ROW_MAP_NONE) return &cache->ledgers[number];
    if (cache->ledger_count == cache->ledger_capacity && widen(cache) < 0) return NULL;
    if (ebk_row_map_reserve(&cache->numbers, cache->ledgers, id_of) < 0) return NULL;
    EBK_ASSERT(cache->ledger_count < cache->ledger_capacity);
    ebk_row_map_add(&cache->numbers, cache->ledgers, id_of, ledger_id, cache->ledger_count);
    struct ebk_cached_ledger *ledger = &cache->ledgers[cache->ledger_count++];
    *ledger = (struct ebk_cached_ledger){.ledger_id = ledger_id};
    return ledger;
}

static struct ebk_span *spans_of(struct ebk_cached_ledger *ledger)
{
    return ledger->capacity == 0 ? &ledger->one : ledger->many;
}

static int make_room(struct ebk_cached_ledger *ledger, uint32_t count)
{
    if (count <= 1 || count <= ledger->capacity) return EBK_OK;
    uint32_t capacity = ledger->capacity ? ledger->capacity * 2 : SPANS_MIN;
    if (capacity < count) capacity = count;
    struct ebk_span *spans = realloc(ledger->capacity == 0 ? NULL : ledger->many, capacity * sizeof *spans);
    if (spans == NULL) return EBK_NO_MEMORY;
    if (ledger->capacity == 0) spans[0] = ledger->one; /* Whether it counts or not. */
    ledger->many = spans;
    ledger->capacity = capacity;
    EBK_ASSERT(ledger->count <= capacity && count <= capacity);
    return EBK_OK;
}

/* Add the entry behind the last span of a list, into it where it continues it in memory. */
static void join(struct ebk_span *list, uint32_t *count, const uint8_t *entry, bool may_extend)
{
    const uint32_t size = ebk_cache_entry_size(entry);
    struct ebk_span *last = *count > 0 ? &list[*count - 1] : NULL;
    if (last != NULL && may_extend && last->bytes + last->size == entry) {
        last->last = ebk_cache_entry_id(entry);
        last->size += size;
        last->count += 1;
        return;
    }
    const int64_t id = ebk_cache_entry_id(entry);
    list[(*count)++] = (struct ebk_span){.first = id, .last = id, .bytes = entry, .size = size, .count = 1};
}

/* Merge the new span with spans begin..end-1, entry by entry: what they hold both, the new one holds. */
static int merge(struct ebk_cached_ledger *ledger, uint32_t begin, uint32_t end, const struct ebk_span *new)
{
    uint64_t entries = new->count;
    for (uint32_t i = begin; i < end; i++) entries += spans_of(ledger)[i].count;
    if (entries > UINT32_MAX / 2) return EBK_NO_MEMORY;
    struct ebk_span *list = malloc(entries * sizeof *list);
    if (list == NULL) return EBK_NO_MEMORY;
    uint32_t count = 0;
    const uint8_t *fresh = new->bytes, *fresh_end = new->bytes + new->size;
    for (uint32_t i = begin; i < end; i++) {
        const uint8_t *entry = spans_of(ledger)[i].bytes, *entry_end = entry + spans_of(ledger)[i].size;
        bool is_first = true; /* Two frames may stand side by side in memory: their spans stay apart. */
        for (; entry < entry_end; entry += ebk_cache_entry_size(entry)) {
            const int64_t id = ebk_cache_entry_id(entry);
            for (; fresh < fresh_end && ebk_cache_entry_id(fresh) < id; fresh += ebk_cache_entry_size(fresh))
                join(list, &count, fresh, fresh != new->bytes);
            if (fresh < fresh_end && ebk_cache_entry_id(fresh) == id) continue; /* Replaced. */
            join(list, &count, entry, !is_first);
            is_first = false;
        }
    }
    for (; fresh < fresh_end; fresh += ebk_cache_entry_size(fresh)) join(list, &count, fresh, fresh != new->bytes);

    EBK_ASSERT(begin <= end && end <= ledger->count && count > 0 && count <= entries);
    const uint32_t after = ledger->count - end;
    int refused = make_room(ledger, begin + count + after);
    if (refused == EBK_OK) {
        struct ebk_span *spans = spans_of(ledger);
        memmove(spans + begin + count, spans + end, after * sizeof *list);
        memcpy(spans + begin, list, count * sizeof *list);
        ledger->count = begin + count + after;
        EBK_ASSERT(begin == 0 || spans[begin - 1].last < spans[begin].first);
        EBK_ASSERT(after == 0 || spans[begin + count - 1].last < spans[begin + count].first);
    }
    free(list);
    return refused;
}

static int insert(struct ebk_cached_ledger *ledger, const struct ebk_span *new)
{
    const struct ebk_span *spans = spans_of(ledger);
    if (ledger->count == 0 || spans[ledger->count - 1].last < new->first) { /* The common case. */
        if (make_room(ledger, ledger->count + 1) < 0) return EBK_NO_MEMORY;
        EBK_ASSERT(ledger->count == 0 || ledger->count < ledger->capacity);
        spans_of(ledger)[ledger->count++] = *new;
        return EBK_OK;
    }
    uint32_t begin = 0;
    while (spans[begin].last < new->first) begin += 1;
    uint32_t end = begin;
    while (end < ledger->count && spans[end].first <= new->last) end += 1;
    EBK_ASSERT(begin < ledger->count); /* The last one ends at the new one or behind it. */
    return merge(ledger, begin, end, new);
}

int ebk_cache_put(struct ebk_cache *cache, uint64_t ledger_id, int64_t first, int64_t last, uint32_t count,
                  const uint8_t *body, size_t size, const uint8_t **copy)
{
    EBK_ASSERT(size > 0 && size <= UINT32_MAX && count > 0 && first >= 0 && first <= last);
    EBK_ASSERT(ebk_cache_entry_id(body) == first);
    const size_t room = (size + COPY_ALIGNMENT - 1) / COPY_ALIGNMENT * COPY_ALIGNMENT;
    EBK_ASSERT(cache->used <= cache->bytes_max && cache->used % COPY_ALIGNMENT == 0);
    if (room > cache->bytes_max - cache->used) return EBK_FULL;
    struct ebk_cached_ledger *ledger = find_or_make(cache, ledger_id);
    if (ledger == NULL) return EBK_NO_MEMORY;
    uint8_t *bytes = cache->memory + cache->used;
    memcpy(bytes, body, size);
    const struct ebk_span span = {.first = first, .last = last, .bytes = bytes, .size = (uint32_t)size, .count = count};
    const int refused = insert(ledger, &span);
    if (refused < 0) return refused;
    cache->used += room;
    EBK_ASSERT(cache->used <= cache->bytes_max);
    *copy = bytes;
    return EBK_OK;
}

static int compare_ledgers(const void *a, const void *b)
{
    const uint64_t one = ((const struct ebk_cached_ledger *)a)->ledger_id;
    const uint64_t other = ((const struct ebk_cached_ledger *)b)->ledger_id;
    return one < other ? -1 : one > other;
}

void ebk_cache_sort(struct ebk_cache *cache)
{
    if (cache->ledger_count < 2) return;
    qsort(cache->ledgers, cache->ledger_count, sizeof *cache->ledgers, compare_ledgers);
    /* The slots told rows by where they stood. There are as many as before, so the room is there. */
    memset(cache->numbers.slots, 0, cache->numbers.slot_count * sizeof *cache->numbers.slots);
    cache->numbers.count = 0;
    for (uint32_t i = 0; i < cache->ledger_count; i++) {
        EBK_ASSERT(i == 0 || cache->ledgers[i - 1].ledger_id < cache->ledgers[i].ledger_id);
        ebk_row_map_add(&cache->numbers, cache->ledgers, id_of, cache->ledgers[i].ledger_id, i);
    }
    EBK_ASSERT(cache->numbers.count == cache->ledger_count);
}
