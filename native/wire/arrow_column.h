/* arrow_column.h: one column of bytes as the Arrow C data interface hands it over, row by row.
 *
 * The layouts of the interface are fixed (arrow.apache.org, "The Arrow C data interface", "... stream interface"), so
 * nothing of Arrow's code is needed: binary and string in their plain, large and view forms. A column is looked
 * through once, when it is opened: behind that no row is null, none is longer than an entry may be, and each lies
 * at its offsets. The producer's pointers are trusted, as in all C.
 *
 * Pure functions over borrowed bytes; the plain Python form is embedbk/codec/arrow_columns_twin.py.
 */
#ifndef EBK_ARROW_COLUMN_H
#define EBK_ARROW_COLUMN_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children;
    struct ArrowSchema *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
};

struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

/* Why a column is refused. The numbers are shared with embedbk/codec/arrow_columns_twin.py, which has the texts. */
enum ebk_arrow_fault {
    EBK_ARROW_SOUND = 0,
    EBK_ARROW_NO_COLUMN = 1, /* no column of that name, or more than one */
    EBK_ARROW_FORMAT = 2,    /* neither binary nor string */
    EBK_ARROW_NULL = 3,      /* a row without a value */
    EBK_ARROW_TOO_LONG = 4,  /* a row that no entry can hold */
    EBK_ARROW_UNSOUND = 5    /* numbers that no array has */
};

enum ebk_arrow_kind { EBK_ARROW_OFFSETS32, EBK_ARROW_OFFSETS64, EBK_ARROW_VIEWS };

struct ebk_arrow_column {
    enum ebk_arrow_kind kind;
    uint32_t largest;     /* bytes of its longest row */
    uint64_t count;       /* rows */
    uint64_t first;       /* where the first of them stands in the buffers */
    uint64_t bytes;       /* of all rows */
    const uint8_t *places; /* offsets, or views */
    const uint8_t *data;   /* of rows given by offsets */
    const uint8_t *const *parts; /* of rows given by views */
};

#define EBK_ARROW_VIEW_BYTES 16u
#define EBK_ARROW_INLINE_BYTES 12u /* A view of so few bytes holds them itself, from byte 4 on. */
#define EBK_ARROW_VIEW_AT_PART 8u
#define EBK_ARROW_VIEW_AT_OFFSET 12u

/* The column `name` of an array of columns, or the array itself where it is no struct. Returns EBK_ARROW_SOUND with
 * *out set, which lives as long as the array; else what is wrong, and *at says in which row. Both are only read. */
int ebk_arrow_column_open(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                          struct ebk_arrow_column *out, uint64_t *at);

/* The bytes of a row, and how many. */
static inline const uint8_t *ebk_arrow_row(const struct ebk_arrow_column *column, uint64_t row, uint32_t *size)
{
    const uint64_t at = column->first + row;
    if (column->kind == EBK_ARROW_OFFSETS32) {
        const uint32_t begin = ebk_load_u32(column->places + 4 * at);
        *size = ebk_load_u32(column->places + 4 * at + 4) - begin;
        return column->data + begin;
    }
    if (column->kind == EBK_ARROW_OFFSETS64) {
        const uint64_t begin = ebk_load_u64(column->places + 8 * at);
        *size = (uint32_t)(ebk_load_u64(column->places + 8 * at + 8) - begin);
        return column->data + begin;
    }
    const uint8_t *view = column->places + EBK_ARROW_VIEW_BYTES * at;
    *size = ebk_load_u32(view);
    if (*size <= EBK_ARROW_INLINE_BYTES) return view + 4;
    return column->parts[ebk_load_u32(view + EBK_ARROW_VIEW_AT_PART)] + ebk_load_u32(view + EBK_ARROW_VIEW_AT_OFFSET);
}

#endif
