/* arrow_check.c: Arrow columns of chance, in buffers of their exact size, looked through and packed.
 * `arrow_check SEED`: whatever is found sound is appended, from any row on, to a packer with and without times; a
 * sanitizer sees each byte that is read beyond its buffer. Offsets stay within their bytes, as how many there are an array
 * of offsets does not say; views are any bits at all.
 */
#include "wire/arrow_column.h"
#include "wire/block_pool.h"
#include "wire/packer.h"

#include <stdio.h>
#include <stdlib.h>

#define ROUNDS 20000
#define NUMBER_BYTES 8

static uint64_t state;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

static void *block(size_t size, int fill)
{
    void *made = malloc(size > 0 ? size : 1);
    if (made == NULL) abort();
    memset(made, fill, size > 0 ? size : 1);
    return made;
}

static void release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static void release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

/* Offsets that never fall and end within `bytes`. */
static uint8_t *offsets(uint64_t rows, size_t width, uint64_t bytes)
{
    uint8_t *places = block(width * (rows + 1), 0);
    uint64_t end = 0;
    for (uint64_t row = 0; row <= rows; row++) {
        memcpy(places + width * row, &end, width);
        const uint64_t step = draw() % NUMBER_BYTES;
        if (end + step <= bytes) end += step;
    }
    return places;
}

/* Views, most of them into a part of `bytes`, some of any numbers. */
static uint8_t *views(uint64_t rows, uint64_t bytes)
{
    uint8_t *places = block(EBK_ARROW_VIEW_BYTES * rows, 0);
    for (uint64_t row = 0; row < rows; row++) {
        const uint32_t at = (uint32_t)(draw() % (bytes + 1));
        uint32_t view[4] = {(uint32_t)(draw() % (bytes - at + 1)), 0, 0, at};
        if (draw() % 8 == 0) view[draw() % 4] = (uint32_t)draw() >> draw() % 32;
        memcpy(places + EBK_ARROW_VIEW_BYTES * row, view, sizeof view);
    }
    return places;
}

static void pack(const struct ebk_arrow_column *column)
{
    const struct ebk_arrow_column *columns[] = {column, column};
    struct ebk_packer *packer = ebk_packer_open(7, 0, 0, 4096, 1u << 20);
    struct ebk_appended done;
    struct ebk_packed frame;
    if (packer == NULL) abort();
    if (draw() % 2) ebk_packer_begin_times(packer, 5, (int)(draw() % 2));
    const uint64_t begin = draw() % (2 * column->count + 1);
    ebk_packer_take_turn(packer);
    ebk_packer_append_rows_in_turn(packer, 1, columns, 2, begin, &done);
    ebk_packer_end_turn(packer);
    if (done.taken != 2 * column->count - begin) abort();
    while (ebk_packer_seal(packer, &frame)) ebk_packer_release(frame.body);
    ebk_packer_unref(packer);
}

int main(int argc, char **argv)
{
    uint64_t sound = 0;
    ebk_pool_set_bytes_max(1u << 26);
    state = UINT64_C(88172645463325252) + (argc > 1 ? strtoull(argv[1], NULL, 10) : 0);
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t kind = draw() % 3, count = draw() % 9, front = draw() % 4, bytes = draw() % 64;
        const uint64_t rows = count + front;
        uint8_t *data = block(bytes, 1), *bits = block(rows / 8 + 1, 0xFF);
        uint8_t *places = kind == 2 ? views(rows, bytes) : offsets(rows, kind == 0 ? 4 : 8, bytes);
        const int64_t sizes[] = {(int64_t)bytes};
        const void *buffers[] = {draw() % 2 ? bits : NULL, places, data, sizes};
        if (draw() % 4 == 0) bits[draw() % (rows / 8 + 1)] ^= (uint8_t)(1u << draw() % 8);
        const struct ArrowSchema schema = {
            .format = kind == 0 ? "z" : kind == 1 ? "Z" : "vz", .release = release_schema};
        const struct ArrowArray array = {
            .length = (int64_t)count, .null_count = -1, .offset = (int64_t)front, .n_buffers = kind == 2 ? 4 : 3,
            .buffers = buffers, .release = release_array};
        struct ebk_arrow_column column;
        uint64_t at;
        if (ebk_arrow_column_open(&schema, &array, "value", &column, &at) == EBK_ARROW_SOUND) {
            pack(&column);
            sound += 1;
        }
        free(data);
        free(bits);
        free(places);
    }
    if (sound < ROUNDS / 4 || sound == ROUNDS) abort(); /* It looked at nothing, or refused nothing. */
    printf("%llu of %d were sound\n", (unsigned long long)sound, ROUNDS);
    return 0;
}
