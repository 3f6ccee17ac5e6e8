/* arrow_beside.c: see arrow_beside.h.
 *
 *     numbers | validity bits | i64, one for each row |
 *     map     | validity bits | offsets: i32, one more than rows | child: a struct of two columns, a row for each pair
 *     list    = map; large list: offsets are i64
 */
#include "wire/arrow_beside.h"

#include "wire/frame.h"

#include <stdlib.h>
#include <string.h>

#define HEADERS_MAX 255u
#define NAME_BYTES_MAX 255u

struct numbers {
    const uint8_t *valid, *values;
    uint64_t first;
    int64_t multiply, divide; /* of a value, for ms */
};

struct maps {
    const uint8_t *valid, *offsets;
    uint64_t first, base; /* base: the pair in which the columns of pairs begin */
    const uint8_t *pairs_valid;
    uint64_t pairs_first;
    int is_large;
    struct ebk_arrow_column names, values; /* of all pairs of the rows */
};

struct beside {
    struct ebk_arrow_column key;
    struct numbers timestamp;
    struct maps headers;
    int has_key, has_timestamp, has_headers;
};

/* The attributes as they grow; a row has at most ROW_BYTES_MAX. */
#define ROW_BYTES_MAX (EBK_ATTRIBUTE_HEADER_BYTES + EBK_ARROW_BESIDE_BYTES_MAX)

struct made {
    uint8_t *bytes;
    uint64_t size, capacity;
};

/* ---- opening ------------------------------------------------------------------------- */

static int open_numbers(const struct ebk_arrow_child *child, struct numbers *out)
{
    const char *format = child->schema->format;
    out->multiply = out->divide = 1;
    if (strncmp(format, "tss:", 4) == 0)
        out->multiply = 1000;
    else if (strncmp(format, "tsu:", 4) == 0)
        out->divide = 1000;
    else if (strncmp(format, "tsn:", 4) == 0)
        out->divide = 1000000;
    else if (strcmp(format, "l") != 0 && strncmp(format, "tsm:", 4) != 0)
        return EBK_ARROW_FORMAT;
    if (child->schema->dictionary != NULL || child->array->dictionary != NULL) return EBK_ARROW_FORMAT;
    if (child->array->n_buffers != 2) return EBK_ARROW_UNSOUND;
    out->valid = ebk_arrow_valid(child->array);
    out->values = child->array->buffers[1];
    out->first = child->first;
    return child->count > 0 && out->values == NULL ? EBK_ARROW_UNSOUND : EBK_ARROW_SOUND;
}

static uint64_t pair_at(const struct maps *maps, uint64_t row)
{
    const uint64_t place = maps->first + row;
    return maps->is_large ? ebk_load_u64(maps->offsets + 8 * place) : ebk_load_u32(maps->offsets + 4 * place);
}

/* One of the two columns of pairs. */
static int open_of_pairs(const struct ArrowSchema *schema, const struct ArrowArray *array, uint64_t first,
                         uint64_t count, struct ebk_arrow_column *out)
{
    uint64_t at;
    if (schema->format == NULL || !ebk_arrow_has_counts(array) || (uint64_t)array->length < first + count)
        return EBK_ARROW_UNSOUND;
    const struct ebk_arrow_child child = {schema, array, (uint64_t)array->offset + first, count};
    return ebk_arrow_bytes_open(&child, out, &at);
}

static int open_maps(const struct ebk_arrow_child *child, struct maps *out, uint64_t *at)
{
    const struct ArrowSchema *schema = child->schema;
    const struct ArrowArray *array = child->array;
    *at = 0;
    out->is_large = strcmp(schema->format, "+L") == 0;
    if (!out->is_large && strcmp(schema->format, "+m") != 0 && strcmp(schema->format, "+l") != 0)
        return EBK_ARROW_FORMAT;
    if (array->n_buffers != 2 || schema->n_children != 1 || array->n_children != 1 || schema->children == NULL)
        return EBK_ARROW_UNSOUND;
    const struct ArrowSchema *pair_schema = schema->children[0];
    const struct ArrowArray *pairs = array->children[0];
    if (pair_schema->format == NULL || !ebk_arrow_has_counts(pairs)) return EBK_ARROW_UNSOUND;
    if (strcmp(pair_schema->format, "+s") != 0 || pair_schema->n_children != 2) return EBK_ARROW_FORMAT;
    if (pair_schema->children == NULL || pairs->n_children != 2) return EBK_ARROW_UNSOUND;
    out->valid = ebk_arrow_valid(array);
    out->offsets = array->buffers[1];
    out->first = child->first;
    if (child->count == 0) return EBK_ARROW_SOUND;
    if (out->offsets == NULL) return EBK_ARROW_UNSOUND;

    const uint64_t bound = out->is_large ? (uint64_t)INT64_MAX : (uint64_t)INT32_MAX;
    for (uint64_t row = 0; row < child->count; row++) {
        *at = row;
        if (pair_at(out, row + 1) > bound || pair_at(out, row) > pair_at(out, row + 1)) return EBK_ARROW_UNSOUND;
    }
    *at = 0;
    out->base = pair_at(out, 0);
    const uint64_t end = pair_at(out, child->count);
    if (end > (uint64_t)pairs->length) return EBK_ARROW_UNSOUND;
    const uint64_t first = (uint64_t)pairs->offset + out->base, count = end - out->base;
    out->pairs_valid = ebk_arrow_valid(pairs);
    out->pairs_first = first;
    const int fault = open_of_pairs(pair_schema->children[0], pairs->children[0], first, count, &out->names);
    return fault != EBK_ARROW_SOUND
               ? fault
               : open_of_pairs(pair_schema->children[1], pairs->children[1], first, count, &out->values);
}

/* The column of this name, which only an array of columns has. *is_there: it has rows that are not null. */
static int find(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                struct ebk_arrow_child *out, int *is_there, uint64_t *at)
{
    const int fault = ebk_arrow_child_find(schema, array, name, out, at);
    if (fault == EBK_ARROW_SOUND && out->schema == schema) return EBK_ARROW_NO_COLUMN;
    /* A column of which every row is null has this format, whatever it would be. */
    *is_there = fault == EBK_ARROW_SOUND && strcmp(out->schema->format, "n") != 0;
    return fault;
}

static int open_all(const struct ArrowSchema *schema, const struct ArrowArray *array,
                    const struct ebk_arrow_names *names, struct beside *out, enum ebk_arrow_which *which, uint64_t *at)
{
    struct ebk_arrow_child child;
    int fault = EBK_ARROW_SOUND;
    if (names->key != NULL) {
        *which = EBK_ARROW_KEY;
        fault = find(schema, array, names->key, &child, &out->has_key, at);
        if (out->has_key) fault = ebk_arrow_bytes_open(&child, &out->key, at);
    }
    if (fault == EBK_ARROW_SOUND && names->timestamp != NULL) {
        *which = EBK_ARROW_TIMESTAMP;
        fault = find(schema, array, names->timestamp, &child, &out->has_timestamp, at);
        if (out->has_timestamp) fault = open_numbers(&child, &out->timestamp);
    }
    if (fault == EBK_ARROW_SOUND && names->headers != NULL) {
        *which = EBK_ARROW_HEADERS;
        fault = find(schema, array, names->headers, &child, &out->has_headers, at);
        if (out->has_headers) fault = open_maps(&child, &out->headers, at);
    }
    return fault;
}

/* ---- a row --------------------------------------------------------------------------- */

/* Room for one more row behind what is there. */
static int reserve(struct made *made)
{
    if (made->capacity - made->size >= ROW_BYTES_MAX) return 0;
    const uint64_t capacity = 2 * made->capacity + 4 * ROW_BYTES_MAX;
    uint8_t *bytes = realloc(made->bytes, (size_t)capacity);
    if (bytes == NULL) return -1;
    made->bytes = bytes;
    made->capacity = capacity;
    return 0;
}

/* Where a row's attribute is made: `left` more bytes may follow. */
struct cursor {
    uint8_t *at;
    uint32_t left;
};

static int put(struct cursor *to, const void *data, uint32_t size)
{
    if (size > to->left) return EBK_ARROW_BESIDE;
    if (size > 0) memcpy(to->at, data, size); /* No bytes may stand nowhere. */
    to->at += size;
    to->left -= size;
    return EBK_ARROW_SOUND;
}

static int put_sized(struct cursor *to, const uint8_t *data, uint32_t size)
{
    uint8_t encoded[2];
    if (size > EBK_ARROW_BESIDE_BYTES_MAX) return EBK_ARROW_BESIDE;
    ebk_store_u16(encoded, (uint16_t)size);
    const int fault = put(to, encoded, sizeof encoded);
    return fault != EBK_ARROW_SOUND ? fault : put(to, data, size);
}

static int is_name(const uint8_t *name, uint32_t size)
{
    if (size == 0 || size > NAME_BYTES_MAX) return 0;
    for (uint32_t i = 0; i < size; i++)
        if (name[i] < 0x21 || name[i] > 0x7e) return 0;
    return 1;
}

/* Below 0, 0 or above, as the names of two pairs are ordered. */
static int compare(const struct maps *maps, uint64_t one, uint64_t other)
{
    uint32_t size, other_size;
    const uint8_t *name = ebk_arrow_row(&maps->names, one, &size);
    const uint8_t *other_name = ebk_arrow_row(&maps->names, other, &other_size);
    const int order = memcmp(name, other_name, size < other_size ? size : other_size);
    return order != 0 ? order : (int)size - (int)other_size;
}

/* The pairs of a row in the order of their names. */
static int sort(const struct maps *maps, uint64_t begin, uint32_t count, uint64_t *sorted)
{
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t pair = begin + i;
        uint32_t size, place = i;
        if (ebk_arrow_is_null(maps->pairs_valid, maps->pairs_first + pair) ||
            ebk_arrow_is_null(maps->names.valid, maps->names.first + pair) ||
            ebk_arrow_is_null(maps->values.valid, maps->values.first + pair))
            return EBK_ARROW_NULL;
        const uint8_t *name = ebk_arrow_row(&maps->names, pair, &size);
        if (!is_name(name, size)) return EBK_ARROW_NAME;
        for (; place > 0; place--) {
            const int order = compare(maps, pair, sorted[place - 1]);
            if (order == 0) return EBK_ARROW_TWICE;
            if (order > 0) break;
            sorted[place] = sorted[place - 1];
        }
        sorted[place] = pair;
    }
    return EBK_ARROW_SOUND;
}

static int put_headers(struct cursor *to, const struct maps *maps, uint64_t row, uint8_t *count_at)
{
    uint64_t sorted[HEADERS_MAX];
    const uint64_t begin = pair_at(maps, row) - maps->base, count = pair_at(maps, row + 1) - maps->base - begin;
    if (count > HEADERS_MAX) return EBK_ARROW_MANY;
    *count_at = (uint8_t)count;
    int fault = sort(maps, begin, (uint32_t)count, sorted);
    for (uint32_t i = 0; i < count && fault == EBK_ARROW_SOUND; i++) {
        uint32_t size;
        const uint8_t *name = ebk_arrow_row(&maps->names, sorted[i], &size);
        const uint8_t encoded = (uint8_t)size;
        fault = put(to, &encoded, 1);
        if (fault == EBK_ARROW_SOUND) fault = put(to, name, size);
        if (fault != EBK_ARROW_SOUND) break;
        const uint8_t *value = ebk_arrow_row(&maps->values, sorted[i], &size);
        fault = put_sized(to, value, size);
    }
    return fault;
}

/* ms since 1970; below 0: it is no time. Fractions of a ms are left off. */
static int64_t ms_of(const struct numbers *numbers, uint64_t row)
{
    const int64_t value = (int64_t)ebk_load_u64(numbers->values + 8 * (numbers->first + row));
    if (value < 0 || value > INT64_MAX / numbers->multiply) return -1;
    return value * numbers->multiply / numbers->divide;
}

/* The value of the attribute of a row; it stays empty where nothing stands beside the row's value. */
static int put_row(struct cursor *to, const struct beside *beside, uint64_t row, enum ebk_arrow_which *which)
{
    uint8_t *const head = to->at;
    int fault = put(to, "\0\0", 2);
    if (beside->has_key && !ebk_arrow_is_null(beside->key.valid, beside->key.first + row)) {
        uint32_t size;
        const uint8_t *key = ebk_arrow_row(&beside->key, row, &size);
        head[0] |= EBK_RECORD_HAS_KEY;
        *which = EBK_ARROW_KEY;
        fault = put_sized(to, key, size);
    }
    const struct numbers *times = &beside->timestamp;
    if (fault == EBK_ARROW_SOUND && beside->has_timestamp && !ebk_arrow_is_null(times->valid, times->first + row)) {
        uint8_t encoded[8];
        const int64_t time_ms = ms_of(times, row);
        *which = EBK_ARROW_TIMESTAMP;
        if (time_ms < 0) return EBK_ARROW_TIME;
        ebk_store_u64(encoded, (uint64_t)time_ms);
        head[0] |= EBK_RECORD_HAS_TIMESTAMP;
        fault = put(to, encoded, sizeof encoded);
    }
    const struct maps *maps = &beside->headers;
    if (fault == EBK_ARROW_SOUND && beside->has_headers && !ebk_arrow_is_null(maps->valid, maps->first + row)) {
        *which = EBK_ARROW_HEADERS;
        fault = put_headers(to, maps, row, head + 1);
    }
    if (fault == EBK_ARROW_SOUND && head[0] == 0 && head[1] == 0) to->at = head;
    return fault;
}

static int put_rows(const struct beside *beside, struct ebk_arrow_column *column, struct made *made, uint64_t *ends,
                    enum ebk_arrow_which *which, uint64_t *at)
{
    for (uint64_t row = 0; row < column->count; row++) {
        if (reserve(made) != 0) return EBK_ARROW_NO_MEMORY;
        uint8_t *const begin = made->bytes + made->size;
        struct cursor to = {begin + EBK_ATTRIBUTE_HEADER_BYTES, EBK_ARROW_BESIDE_BYTES_MAX};
        const int fault = put_row(&to, beside, row, which);
        *at = row;
        if (fault != EBK_ARROW_SOUND) return fault;
        const uint32_t value_bytes = (uint32_t)(to.at - begin) - EBK_ATTRIBUTE_HEADER_BYTES;
        if (value_bytes > 0) {
            uint32_t size;
            (void)ebk_arrow_row(column, row, &size);
            memset(begin, 0, EBK_ATTRIBUTE_HEADER_BYTES);
            begin[0] = EBK_ATTRIBUTE_RECORDS;
            ebk_store_u16(begin + 2, (uint16_t)value_bytes);
            const uint32_t attribute_bytes = EBK_ATTRIBUTE_HEADER_BYTES + value_bytes;
            *which = EBK_ARROW_VALUE;
            if (size + attribute_bytes > EBK_ENTRY_APPEND_BYTES_MAX) return EBK_ARROW_TOGETHER;
            if (size + attribute_bytes > column->largest) column->largest = size + attribute_bytes;
            made->size += attribute_bytes;
        }
        ends[row] = made->size;
    }
    return EBK_ARROW_SOUND;
}

int ebk_arrow_beside_make(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const struct ebk_arrow_names *names, struct ebk_arrow_column *column,
                          enum ebk_arrow_which *which, uint64_t *at)
{
    struct beside beside = {.has_key = 0};
    struct made made = {NULL, 0, 0};
    int fault = open_all(schema, array, names, &beside, which, at);
    if (fault != EBK_ARROW_SOUND || column->count == 0) return fault;
    uint64_t *ends = malloc(sizeof *ends * (size_t)column->count);
    fault = ends == NULL ? EBK_ARROW_NO_MEMORY : put_rows(&beside, column, &made, ends, which, at);
    if (fault != EBK_ARROW_SOUND || made.size == 0) { /* Nothing stands beside any row: they are values alone. */
        free(made.bytes);
        free(ends);
        return fault;
    }
    column->beside = made.bytes;
    column->beside_ends = ends;
    column->bytes += made.size;
    return EBK_ARROW_SOUND;
}

void ebk_arrow_beside_free(struct ebk_arrow_column *column)
{
    free(column->beside);
    free(column->beside_ends);
    column->beside = NULL;
    column->beside_ends = NULL;
}
