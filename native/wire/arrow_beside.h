/* arrow_beside.h: keys, timestamps and headers of Arrow columns, as the attribute that each row's entry carries.
 *
 * Each row is one record. What it has beside its value is made once, when its array is opened: an attribute RECORDS
 * (WIRE.md section 1) for each row that has anything, all behind each other. So a packer that waits for room goes on
 * with the same bytes, and a row that is refused refuses all before the first is appended.
 *
 * Pure functions over borrowed bytes; the plain Python form is embedbk/codec/arrow_twin.py.
 */
#ifndef EBK_ARROW_BESIDE_H
#define EBK_ARROW_BESIDE_H

#include "wire/arrow_column.h"

#define EBK_ARROW_BESIDE_BYTES_MAX 32000u /* of one record: codec.entry_records.RECORDS_BYTES_MAX */

/* Names of columns; NULL: there is none. key: bytes, as a value. timestamp: i64 ms since 1970, or an Arrow timestamp,
 * fractions of a ms left off. headers: a map, or a list of structs of two, of names to values. A null: not there. */
struct ebk_arrow_names {
    const char *key, *timestamp, *headers;
};

enum ebk_arrow_which { EBK_ARROW_VALUE = 0, EBK_ARROW_KEY = 1, EBK_ARROW_TIMESTAMP = 2, EBK_ARROW_HEADERS = 3 };
#define EBK_ARROW_NO_MEMORY (-1)

/* Make what stands beside the rows of `column`, which the same array gave. Returns EBK_ARROW_SOUND, and the column has
 * it until ebk_arrow_beside_free(); EBK_ARROW_NO_MEMORY; or a fault, with *which column and *at which row. */
int ebk_arrow_beside_make(const struct ArrowSchema *schema, const struct ArrowArray *array,
                          const struct ebk_arrow_names *names, struct ebk_arrow_column *column,
                          enum ebk_arrow_which *which, uint64_t *at);
void ebk_arrow_beside_free(struct ebk_arrow_column *column);

#endif
