/* turns.h: the handles whose adds take turns while a loop waits, and the wake-up of that loop by appends.
 *
 * The wait takes these turns (loop_wait.h); a loop that has none, as a simulated one, calls ebk_turns_take itself.
 * One thread, the loop's, but for ebk_turns_wake.
 */
#ifndef EBK_TURNS_H
#define EBK_TURNS_H

#include "base/gil.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_link_adds;
struct ebk_turns;

/* NULL without memory or a descriptor. */
struct ebk_turns *ebk_turns_new(void);
void ebk_turns_free(struct ebk_turns *turns);
/* Let these adds (borrowed) take turns from now on, or no longer. begin returns a code of errors.h. */
EBK_SHORT int ebk_turns_begin(struct ebk_turns *turns, struct ebk_link_adds *adds);
EBK_SHORT void ebk_turns_end(struct ebk_turns *turns, const struct ebk_link_adds *adds);
/* From any thread: a packer of those adds has something. */
EBK_SHORT void ebk_turns_wake(struct ebk_turns *turns);
/* The descriptor that is ready then. */
EBK_SHORT int ebk_turns_fileno(const struct ebk_turns *turns);
/* Each seals and sends as far as allowed, and counts what is acknowledged. */
EBK_SHORT void ebk_turns_take(struct ebk_turns *turns, int64_t now_ns);
/* cffi:end */

/* The wake-up was heard: the packers are looked at behind this. */
void ebk_turns_heard(struct ebk_turns *turns);
/* When a core has to get news: now_ns or earlier, at once; INT64_MAX, there is none. */
int64_t ebk_turns_due_ns(const struct ebk_turns *turns, int64_t now_ns);
/* Another turn would send something at once. */
bool ebk_turns_have_more(const struct ebk_turns *turns);

#endif
