/* arrow_calls.h: rows of the Arrow C data interface as objects of Python.
 *
 * Capsules of the Arrow PyCapsule interface come in, from whichever library made them; nothing of pyarrow is needed.
 */
#ifndef EBK_ARROW_CALLS_H
#define EBK_ARROW_CALLS_H

#include "base/gil.h"

struct ebk_arrow_column;

/* cffi:begin */
/* Put two functions into the module embedbk._native:
 *
 *     arrow_column(schema, array, value, key, timestamp, headers) -> ArrowColumn or (fault, row, text)
 *     arrow_column_of_stream(stream, value, key, timestamp, headers) -> the same of the stream's next array; None at
 *         its end
 *
 * schema, array and stream are capsules; the array is taken out of its one, a stream stays in it. The others are names
 * of columns, UTF-8: value is ignored where the array is no struct; the last three may be left out, or None
 * (wire/arrow_beside.h). A fault is one of enum ebk_arrow_fault, and 16 more for each column by which the one that has
 * it stands behind value; text names the columns that are there, or the format. RuntimeError: the stream failed, with
 * its own words. ValueError: no such capsules.
 *
 * An ArrowColumn keeps its array until it is gone: len(column), column[row] -> bytes, column.byte_count,
 * column.largest; column.has_records, and column.attribute(row) -> bytes, what stands beside that value.
 * Returns 0, or -1 without memory. */
int ebk_arrow_calls_install(void);
/* cffi:end */

/* The column of an ArrowColumn, which lives as long as that; NULL where the object is none. Wants the GIL. */
const struct ebk_arrow_column *ebk_arrow_column_of(void *object);

#endif
