/* message_reader.c: see message_reader.h. */
#include "wire/message_reader.h"

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"

#include <string.h>

#define ARRAY 0x90u
#define ARRAY_FIELDS_MAX 15u
#define FALSE 0xC2u
#define TRUE 0xC3u
#define BYTES_8 0xC4u
#define BYTES_32 0xC6u
#define NUMBER_8 0xCCu
#define NUMBER_64 0xCFu
#define MINUS_ONE 0xFFu

bool ebk_message_read(const uint8_t *head, size_t head_size, size_t tail_size, struct ebk_message *message)
{
    if (head_size < EBK_MESSAGE_HEADER_BYTES || head_size + tail_size > EBK_MESSAGE_BYTES_MAX) return false;
    if (memcmp(head, "EBKM", 4) != 0 || head[EBK_MESSAGE_AT_VERSION] != EBK_MESSAGE_VERSION ||
        ebk_load_u32(head + EBK_MESSAGE_AT_RESERVED) != 0)
        return false;
    const uint64_t control_size = ebk_load_u32(head + EBK_MESSAGE_AT_CONTROL_SIZE);
    const uint64_t frames_size = ebk_load_u32(head + EBK_MESSAGE_AT_FRAMES_SIZE);
    const uint16_t frame_count = ebk_load_u16(head + EBK_MESSAGE_AT_FRAME_COUNT);
    if (control_size > head_size - EBK_MESSAGE_HEADER_BYTES || (frame_count == 0) != (frames_size == 0) ||
        EBK_MESSAGE_HEADER_BYTES + control_size + frames_size != head_size + tail_size)
        return false;
    const uint8_t *const control = head + EBK_MESSAGE_HEADER_BYTES;
    const uint32_t crc = ebk_crc32c(ebk_crc32c(0, head, EBK_MESSAGE_AT_CRC), control, control_size);
    if (crc != ebk_load_u32(head + EBK_MESSAGE_AT_CRC)) return false;
    *message = (struct ebk_message){
        .kind = head[EBK_MESSAGE_AT_KIND], .frame_count = frame_count,
        .request_id = ebk_load_u64(head + EBK_MESSAGE_AT_REQUEST), .frames_size = frames_size,
        .control = {.at = control, .end = control + control_size}, .frames = control + control_size};
    return true;
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The next size bytes, which are then behind us. NULL: there are not so many, or something before was not as expected. */
static const uint8_t *take(struct ebk_control *control, size_t size)
{
    const uint8_t *const from = control->at;
    const bool is_there = from != NULL && (size_t)(control->end - from) >= size;
    control->at = is_there ? from + size : NULL;
    return is_there ? from : NULL;
}

static void refuse(struct ebk_control *control)
{
    control->at = NULL;
}

/* A number of so many bytes; MessagePack is big-endian. */
static uint64_t take_big_endian(struct ebk_control *control, size_t size)
{
    const uint8_t *const from = take(control, size);
    uint64_t value = 0;
    for (size_t i = 0; from != NULL && i < size; i++) value = value << 8 | from[i];
    return value;
}

unsigned ebk_read_array(struct ebk_control *control)
{
    const uint8_t *const head = take(control, 1);
    if (head != NULL && (*head & ~ARRAY_FIELDS_MAX) == ARRAY) return *head & ARRAY_FIELDS_MAX;
    refuse(control);
    return 0;
}

uint64_t ebk_read_number(struct ebk_control *control, uint64_t max)
{
    const uint8_t *const head = take(control, 1);
    if (head == NULL) return 0;
    uint64_t value = *head;
    if (*head >= NUMBER_8 && *head <= NUMBER_64)
        value = take_big_endian(control, (size_t)1 << (*head - NUMBER_8));
    else if (*head >= 0x80)
        refuse(control);
    if (value > max) refuse(control);
    return control->at == NULL ? 0 : value;
}

int64_t ebk_read_number_or_minus_one(struct ebk_control *control, int64_t max)
{
    EBK_ASSERT(max >= 0);
    if (control->at == NULL || control->at == control->end || *control->at != MINUS_ONE)
        return (int64_t)ebk_read_number(control, (uint64_t)max);
    control->at += 1;
    return -1;
}

bool ebk_read_bool(struct ebk_control *control)
{
    const uint8_t *const value = take(control, 1);
    if (value != NULL && *value != TRUE && *value != FALSE) refuse(control);
    return value != NULL && *value == TRUE;
}

/* The head of a byte string. Returns the length that it announces. */
static uint64_t read_bytes_head(struct ebk_control *control)
{
    const uint8_t *const head = take(control, 1);
    if (head != NULL && *head >= BYTES_8 && *head <= BYTES_32)
        return take_big_endian(control, (size_t)1 << (*head - BYTES_8));
    refuse(control);
    return 0;
}

const uint8_t *ebk_read_bytes(struct ebk_control *control, uint32_t size)
{
    EBK_ASSERT(size > 0 && size <= UINT8_MAX);
    if (read_bytes_head(control) != size) refuse(control);
    return take(control, size);
}

const uint8_t *ebk_read_records(struct ebk_control *control, uint32_t size, uint32_t *count)
{
    EBK_ASSERT(size > 0);
    const uint64_t length = read_bytes_head(control);
    *count = (uint32_t)(length / size);
    if (length == 0 || length % size != 0 || control->at == NULL || length != (size_t)(control->end - control->at))
        refuse(control);
    return take(control, length);
}

void ebk_read_incarnation(struct ebk_control *control, const uint8_t *incarnation)
{
    const uint8_t *const said = ebk_read_bytes(control, EBK_INCARNATION_BYTES);
    if (said != NULL && memcmp(said, incarnation, EBK_INCARNATION_BYTES) != 0) refuse(control);
}
