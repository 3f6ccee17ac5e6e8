/* packer_calls.h: the packer's calls as built-in functions of Python, for the path of every append.
 *
 * A cffi call gives the GIL away and asks for it back. Beside another thread that is busy
 * in Python that costs a thread switch per append, to copy 100 bytes: 7 thousand appends/s
 * were seen, 5 million with these. These functions
 * keep the GIL for short work and give it away where they copy much or must wait for the
 * packer's mutex; no Python code runs while the mutex is held.
 */
#ifndef EBK_PACKER_CALLS_H
#define EBK_PACKER_CALLS_H

#include <stdint.h>

/* cffi:begin */
/* Put the function `packer_calls` into the module embedbk._native:
 *
 *     packer_calls(address of an ebk_packer, refuse) -> (append, append_many, seal, set_lac)
 *
 *     append(data) -> (entry id or EBK_PACKER_FULL or EBK_PACKER_STOPPED, should_wake)
 *     append_many(iterable of data) -> (first_entry, taken, should_wake)
 *     seal() -> (address of the body, size, count, first_entry, last_entry, length) or None
 *     set_lac(lac, lac_length) -> None
 *
 * data is bytes or any contiguous buffer; refuse(data) is called to raise where it is something else or too long,
 * and then nothing was appended. The four hold a reference to the packer. Returns 0, or -1 without memory. */
int ebk_packer_calls_install(void);
/* cffi:end */

#endif
