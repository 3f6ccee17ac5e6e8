/* python_calls.h: calls on the path of every append, frame and message as built-in functions of Python.
 *
 * A cffi call gives the GIL away and asks for it back. Beside another thread that is busy
 * in Python that costs a thread switch per append, to copy 100 bytes: 7 thousand appends/s
 * were seen, 5 million with these. They keep the GIL for short work, and work without it
 * where they copy much or would wait for another thread. No thread waits for the GIL while
 * it holds a mutex of the packer, so no thread that holds the GIL can wait for long.
 */
#ifndef EBK_PYTHON_CALLS_H
#define EBK_PYTHON_CALLS_H

#include <stdint.h>

/* cffi:begin */
/* Put five functions into the module embedbk._native:
 *
 *     crc32c(data, crc=0) -> sum
 *     message_head(kind, frame_count, control, frames_size, request_id) -> header and control part, bytes
 *
 * for the few dozen bytes of a header, where asking cffi for the address costs more than summing, and
 *
 *     packing_type(refuse) -> type
 *
 * the base class of `Packer`: one object per packer, which holds a reference to it. After
 * _open(ledger_id, next_entry, length, block_bytes, bytes_max), once:
 *
 *     append(data) -> (entry id or EBK_FULL or EBK_FAILED, should_wake)
 *     append_many(iterable of data[, caller]) -> (first_entry, taken, should_wake)
 *     append_rows(tuple of ArrowColumn, begin, caller) -> (first_entry, taken, should_wake)
 *     give_up_rest(caller)
 *     append_with(data, attributes, expected) -> (entry id or EBK_FULL, EBK_FAILED, EBK_CONFLICT, should_wake)
 *     seal() -> (body, count, first_entry, last_entry, length) or None
 *     set_lac(lac, lac_length), stop(), open_count(), has_full()
 *     is_stopped, next_entry, last_entry, length, unreleased_bytes
 *
 * data is bytes or any contiguous buffer; refuse(data) is called to raise where it is something else or too long,
 * and then nothing was appended. body is a read-only memoryview that releases the frame with the last reference to its
 * bytes. And for these,
 *
 *     frame_address(view) -> where the bytes of a frame begin, or 0 when view is not the whole body of one that is out
 *     frame_view(address, size) -> one more such memoryview of a frame that is out, of which its bytes begin there
 *
 * Returns 0, or -1 without memory. */
int ebk_python_calls_install(void);
/* cffi:end */

#endif
