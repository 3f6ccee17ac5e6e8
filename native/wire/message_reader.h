/* message_reader.h: the one strict reader of a message's header and of the values in its control part (codec/WIRE.md 3).
 *
 * For C code that takes common messages past the cores: adds, polls, LACs and answers to adds. It knows the forms that this
 * library writes, and passes the rest: a message that is not read here goes to the core unchanged, and the core decides
 * what is wrong with it.
 *
 *     ebk_message_read ─▶ kind, request id, frames ─▶ control ─▶ array, incarnation, number, number ... ─▶ is_read
 *
 * Values are read in order. From the first one that is not as expected every further one is 0, false or NULL, and
 * `ebk_control_is_read` returns false: so a caller asks once, after the last.
 */
#ifndef EBK_MESSAGE_READER_H
#define EBK_MESSAGE_READER_H

#include "wire/message.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The unread rest of a control part. at NULL: a value was not as expected. */
struct ebk_control {
    const uint8_t *at, *end;
};

/* A message as its header describes it; header and control part have the sum in the header. */
struct ebk_message {
    uint8_t kind;
    uint16_t frame_count;
    uint64_t request_id;
    uint64_t frames_size; /* in both parts */
    struct ebk_control control;
    const uint8_t *frames; /* what of them is in the first part: up to its end */
};

/* The kind that the message claims; -1: it is too short for one. It only decides which reader may look at it. */
static inline int ebk_message_claims(const uint8_t *message, size_t size)
{
    return size > EBK_MESSAGE_AT_KIND ? message[EBK_MESSAGE_AT_KIND] : -1;
}

/* A message in one part, or with the last tail_size bytes of its frames in a second one; borrowed. */
bool ebk_message_read(const uint8_t *head, size_t head_size, size_t tail_size, struct ebk_message *message);

/* ---- values of a control part, in order -------------------------------------------------------------------------- */

/* The head of an array. Returns its number of fields, which is at most 15. */
unsigned ebk_read_array(struct ebk_control *control);
/* A number from 0 to max. */
uint64_t ebk_read_number(struct ebk_control *control, uint64_t max);
/* A number from -1 to max. */
int64_t ebk_read_number_or_minus_one(struct ebk_control *control, int64_t max);
bool ebk_read_bool(struct ebk_control *control);
/* size bytes, at most 255, of exactly that length. */
const uint8_t *ebk_read_bytes(struct ebk_control *control, uint32_t size);
/* Byte string up to the end of the control part, of count records of size bytes, at least one. */
const uint8_t *ebk_read_records(struct ebk_control *control, uint32_t size, uint32_t *count);
/* The incarnation of the bookie that is meant; another one is not as expected. */
void ebk_read_incarnation(struct ebk_control *control, const uint8_t *incarnation);

/* All was as expected, and nothing is left. */
static inline bool ebk_control_is_read(const struct ebk_control *control)
{
    return control->at != NULL && control->at == control->end;
}

#endif
