/* python_calls_inside.h: what the sources of these calls know of each other; no other file includes it.
 *
 *   frame_body.c    the body of a frame as a buffer that releases it
 *   packing.c       the packer as an object
 *   python_calls.c  sums and heads of messages; all of these put into the module
 *
 * Objects of Python are `void *` here, as in arrow_calls.h. Everything wants the GIL.
 */
#ifndef EBK_PYTHON_CALLS_INSIDE_H
#define EBK_PYTHON_CALLS_INSIDE_H

#include "wire/packer.h"

/* Work under the turn or the mutex: at once, or else without the GIL from waiting to the end. */
#define WITHOUT_WAITING(is_taken, take, work, give)  \
    do {                                             \
        if (is_taken) {                              \
            work;                                    \
            give;                                    \
        } else {                                     \
            Py_BEGIN_ALLOW_THREADS                   \
            take;                                    \
            work;                                    \
            give;                                    \
            Py_END_ALLOW_THREADS                     \
        }                                            \
    } while (0)

#define IN_TURN(packer, is_short, work)                                                                    \
    WITHOUT_WAITING((is_short) && ebk_packer_try_turn(packer), ebk_packer_take_turn(packer), work,         \
                    ebk_packer_end_turn(packer))

#define LOCKED(packer, work)                                                                               \
    WITHOUT_WAITING(ebk_packer_try_lock(packer), ebk_packer_lock(packer), work, ebk_packer_unlock(packer))

/* frame_body.c */
/* A memoryview of the frame; on failure, with a Python error, the frame is released. */
void *ebk_frame_body_view(const struct ebk_packed *frame);
/* Put frame_address and frame_view into the module. 0, or -1 with a Python error. */
int ebk_frame_body_install(void *module);

/* packing.c */
/* Put packing_type into the module. 0, or -1 with a Python error. */
int ebk_packing_install(void *module);

#endif
