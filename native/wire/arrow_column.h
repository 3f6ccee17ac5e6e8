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

/* Why a column is refused. The numbers are shared with embedbk/codec/arrow_rows.py, which has the texts. */
enum ebk_arrow_fault {
    EBK_ARROW_SOUND = 0,
    EBK_ARROW_NO_COLUMN = 1, /* no column of that name, or more than one */
    EBK_ARROW_FORMAT = 2,    /* neither binary nor string */
    EBK_ARROW_NULL = 3,      /* a row without a value */
    EBK_ARROW_TOO_LONG = 4,  /* a row that no entry can hold */
    EBK_ARROW_UNSOUND = 5,   /* numbers that no array has */
    EBK_ARROW_TIME = 6,      /* a timestamp before 1970, or more ms than an i64 holds */
    EBK_ARROW_NAME = 7,      /* a header whose name is none */
    EBK_ARROW_TWICE = 8,     /* a row with two headers of one name */
    EBK_ARROW_MANY = 9,      /* a row with more headers than a record may have */
    EBK_ARROW_BESIDE = 10,   /* a row with a key and headers of more bytes than a record may have beside its value */
    EBK_ARROW_TOGETHER = 11  /* a row whose value fits an entry, and with what stands beside it does not */
};

enum ebk_arrow_kind { EBK_ARROW_OFFSETS32, EBK_ARROW_OFFSETS64, EBK_ARROW_VIEWS };

struct ebk_arrow_column {
    enum ebk_arrow_kind kind;
    uint32_t largest;     /* bytes of its longest row, with what it has beside its value */
    uint64_t count;       /* rows */
    uint64_t first;       /* where the first of them stands in the buffers */
    uint64_t bytes;       /* of all rows, with what they have beside their values */
    const uint8_t *valid; /* a bit for each row in the buffers, 0: it is null; NULL: none is */
    const uint8_t *places; /* offsets, or views */
    const uint8_t *data;   /* of rows given by offsets */
    const uint8_t *const *parts; /* of rows given by views */
    uint8_t *beside;             /* each row's key, timestamp and headers as an attribute (arrow_beside.h); NULL: none */
    uint64_t *beside_ends;       /* where those of each row end */
};

#define EBK_ARROW_VIEW_BYTES 16u
#define EBK_ARROW_INLINE_BYTES 12u /* A view of so few bytes holds them itself, from byte 4 on. */
#define EBK_ARROW_VIEW_AT_PART 8u
#define EBK_ARROW_VIEW_AT_OFFSET 12u

/* The column `name` of an array of columns, or the array itself where it is no struct. Returns EBK_ARROW_SOUND with
 * *out set, which lives as long as the array; else what is wrong, and *at says in which row. Both are only read. */
int ebk_arrow_column_open(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                          struct ebk_arrow_column *out, uint64_t *at);

/* A column among others of the same array, and which of its rows are wanted. */
struct ebk_arrow_child {
    const struct ArrowSchema *schema;
    const struct ArrowArray *array;
    uint64_t first, count;
};

/* Find the column `name` as above. */
int ebk_arrow_child_find(const struct ArrowSchema *schema, const struct ArrowArray *array, const char *name,
                         struct ebk_arrow_child *out, uint64_t *at);
/* Open a column of bytes, some of which may be null, and may be longer than an entry. */
int ebk_arrow_bytes_open(const struct ebk_arrow_child *child, struct ebk_arrow_column *out, uint64_t *at);
/* Are these numbers those of an array? */
int ebk_arrow_has_counts(const struct ArrowArray *array);
/* The validity bits of an array, NULL: no row is null. */
const uint8_t *ebk_arrow_valid(const struct ArrowArray *array);

static inline int ebk_arrow_is_null(const uint8_t *valid, uint64_t place)
{
    return valid != NULL && !(valid[place / 8] >> (place % 8) & 1);
}

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

/* The attribute of a row with what it has beside its value, and how many bytes it has; none: 0. */
static inline const uint8_t *ebk_arrow_beside(const struct ebk_arrow_column *column, uint64_t row, uint32_t *size)
{
    if (column->beside == NULL) {
        *size = 0;
        return (const uint8_t *)"";
    }
    const uint64_t begin = row == 0 ? 0 : column->beside_ends[row - 1];
    *size = (uint32_t)(column->beside_ends[row] - begin);
    return column->beside + begin;
}

#endif
