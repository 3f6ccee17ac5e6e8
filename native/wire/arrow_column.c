/* arrow_column.c: see arrow_column.h.
 *
 *     plain   | validity bits | offsets: i32, one more than rows | bytes |
 *     large   | validity bits | offsets: i64, one more than rows | bytes |
 *     view    | validity bits | views of 16 bytes | part 0 | part 1 | ... | sizes of the parts: i64 |
 *     view    = size i32, then 12 bytes: the row itself, or its prefix, its part i32, where it begins there i32
 *
 * A slice has the buffers of the whole: its first row stands at `offset`. A struct says an offset for all its
 * children, which have their own beside it.
 */
#include "wire/arrow_column.h"

#include "wire/frame.h"

#include <string.h>

#define ROWS_MAX ((int64_t)1 << 48) /* Far above what memory holds, so that no sum of two overflows. */

static int is_count(int64_t value)
{
    return value >= 0 && value <= ROWS_MAX;
}

int ebk_arrow_has_counts(const struct ArrowArray *array)
{
    return array->release != NULL && is_count(array->length) && is_count(array->offset) &&
           is_count(array->n_buffers) && is_count(array->n_children) &&
           (array->n_buffers == 0 || array->buffers != NULL) && (array->n_children == 0 || array->children != NULL);
}

const uint8_t *ebk_arrow_valid(const struct ArrowArray *array)
{
    return array->n_buffers > 0 && array->null_count != 0 ? array->buffers[0] : NULL;
}

/* The first of `count` rows from `first` on that is null; count when none is. */
static uint64_t first_null(const struct ArrowArray *array, uint64_t first, uint64_t count)
{
    const uint8_t *bits = ebk_arrow_valid(array);
    if (bits == NULL) return count;
    for (uint64_t row = 0; row < count; row++) {
        const uint64_t at = first + row;
        if (at % 8 == 0 && count - row >= 8 && bits[at / 8] == 0xFF) {
            row += 7;
            continue;
        }
        if (ebk_arrow_is_null(bits, at)) return row;
    }
    return count;
}

/* Sizes and positions of all rows given by offsets. A row that is null has bytes in some arrays; they are not read. */
static int look_at_offsets(struct ebk_arrow_column *out, uint32_t bytes_max, uint64_t *at)
{
    const int is_large = out->kind == EBK_ARROW_OFFSETS64;
    uint64_t begin = 0;
    for (uint64_t row = 0; row <= out->count; row++) {
        const uint64_t place = out->first + row;
        const uint64_t end = is_large ? ebk_load_u64(out->places + 8 * place) : ebk_load_u32(out->places + 4 * place);
        *at = row == 0 ? 0 : row - 1;
        if (end > (is_large ? (uint64_t)INT64_MAX : (uint64_t)INT32_MAX)) return EBK_ARROW_UNSOUND;
        if (row > 0) {
            if (end < begin) return EBK_ARROW_UNSOUND;
            if (end - begin > bytes_max) return EBK_ARROW_TOO_LONG;
            if (end - begin > out->largest) out->largest = (uint32_t)(end - begin);
            out->bytes += end - begin;
        }
        begin = end;
    }
    return out->bytes > 0 && out->data == NULL ? EBK_ARROW_UNSOUND : EBK_ARROW_SOUND;
}

/* Sizes and positions of all rows given by views. The view of a row that is null says nothing. */
static int look_at_views(const struct ArrowArray *array, struct ebk_arrow_column *out, uint32_t bytes_max,
                         uint64_t *at)
{
    const int64_t part_count = array->n_buffers - 3;
    const uint8_t *sizes = array->buffers[array->n_buffers - 1];
    if (part_count > 0 && sizes == NULL) return EBK_ARROW_UNSOUND;
    for (uint64_t row = 0; row < out->count; row++) {
        if (ebk_arrow_is_null(out->valid, out->first + row)) continue;
        const uint8_t *view = out->places + EBK_ARROW_VIEW_BYTES * (out->first + row);
        const uint32_t size = ebk_load_u32(view);
        *at = row;
        if (size > INT32_MAX) return EBK_ARROW_UNSOUND;
        if (size > EBK_ARROW_INLINE_BYTES) {
            const uint32_t part = ebk_load_u32(view + EBK_ARROW_VIEW_AT_PART);
            const uint32_t begin = ebk_load_u32(view + EBK_ARROW_VIEW_AT_OFFSET);
            if ((int64_t)part >= part_count || begin > INT32_MAX || out->parts[part] == NULL)
                return EBK_ARROW_UNSOUND;
            const uint64_t part_size = ebk_load_u64(sizes + 8 * (size_t)part);
            if (part_size > INT64_MAX || (uint64_t)begin + size > part_size) return EBK_ARROW_UNSOUND;
        }
        if (size > bytes_max) return EBK_ARROW_TOO_LONG;
        if (size > out->largest) out->largest = size;
        out->bytes += size;
    }
    return EBK_ARROW_SOUND;
}

/* is_value: no row may be null, or longer than an entry. */
static int open_bytes(const struct ebk_arrow_child *child, int is_value, struct ebk_arrow_column *out, uint64_t *at)
{
    const struct ArrowSchema *schema = child->schema;
    const struct ArrowArray *array = child->array;
    const uint32_t bytes_max = is_value ? EBK_ENTRY_APPEND_BYTES_MAX : INT32_MAX;
    const char *format = schema->format;
    const int64_t least = 3;
    if (schema->dictionary != NULL || array->dictionary != NULL) return EBK_ARROW_FORMAT;
    if (strcmp(format, "z") == 0 || strcmp(format, "u") == 0)
        out->kind = EBK_ARROW_OFFSETS32;
    else if (strcmp(format, "Z") == 0 || strcmp(format, "U") == 0)
        out->kind = EBK_ARROW_OFFSETS64;
    else if (strcmp(format, "vz") == 0 || strcmp(format, "vu") == 0)
        out->kind = EBK_ARROW_VIEWS;
    else
        return EBK_ARROW_FORMAT;
    if (array->n_buffers < least || (out->kind != EBK_ARROW_VIEWS && array->n_buffers > least))
        return EBK_ARROW_UNSOUND;
    out->first = child->first;
    out->count = child->count;
    if (child->count == 0) return EBK_ARROW_SOUND; /* Its buffers may be none. */
    out->places = array->buffers[1];
    if (out->places == NULL) return EBK_ARROW_UNSOUND;
    const uint64_t row = is_value ? first_null(array, child->first, child->count) : child->count;
    *at = row;
    if (row < child->count) return EBK_ARROW_NULL;
    out->valid = is_value ? NULL : ebk_arrow_valid(array);
    if (out->kind == EBK_ARROW_VIEWS) {
        out->parts = (const uint8_t *const *)array->buffers + 2;
        return look_at_views(array, out, bytes_max, at);
    }
    out->data = array->buffers[2];
    return look_at_offsets(out, bytes_max, at);
}

int ebk_arrow_bytes_open(const struct ebk_arrow_child *child, struct ebk_arrow_column *out, uint64_t *at)
{
    *out = (struct ebk_arrow_column){.count = 0};
    *at = 0;
    return open_bytes(child, 0, out, at);
}

int ebk_arrow_child_find(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                         struct ebk_arrow_child *out, uint64_t *at)
{
    *at = 0;
    if (schema->release == NULL || schema->format == NULL || !ebk_arrow_has_counts(array)) return EBK_ARROW_UNSOUND;
    const uint64_t first = (uint64_t)array->offset, count = (uint64_t)array->length;
    *out = (struct ebk_arrow_child){schema, array, first, count};
    if (strcmp(schema->format, "+s") != 0) return EBK_ARROW_SOUND;

    int64_t found = -1;
    if (!is_count(schema->n_children) || schema->n_children != array->n_children ||
        (schema->n_children > 0 && schema->children == NULL))
        return EBK_ARROW_UNSOUND;
    for (int64_t i = 0; i < schema->n_children; i++) {
        const char *its = schema->children[i]->name;
        if (its == NULL || strcmp(its, name) != 0) continue;
        if (found >= 0) return EBK_ARROW_NO_COLUMN;
        found = i;
    }
    if (found < 0) return EBK_ARROW_NO_COLUMN;
    *at = first_null(array, first, count);
    if (*at < count) return EBK_ARROW_NULL;
    *at = 0;
    const struct ArrowSchema *its_schema = schema->children[found];
    const struct ArrowArray *its = array->children[found];
    if (its_schema->format == NULL || !ebk_arrow_has_counts(its) || (uint64_t)its->length < first + count)
        return EBK_ARROW_UNSOUND;
    *out = (struct ebk_arrow_child){its_schema, its, (uint64_t)its->offset + first, count};
    return EBK_ARROW_SOUND;
}

int ebk_arrow_column_open(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                          struct ebk_arrow_column *out, uint64_t *at)
{
    struct ebk_arrow_child child;
    *out = (struct ebk_arrow_column){.count = 0};
    const int fault = ebk_arrow_child_find(schema, array, name, &child, at);
    return fault != EBK_ARROW_SOUND ? fault : open_bytes(&child, 1, out, at);
}
