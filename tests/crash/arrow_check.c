/* arrow_check.c: Arrow columns of chance, in buffers of their exact size, looked through and packed.
 * `arrow_check SEED`: whatever is found sound is appended, from any row on, to a packer with and without times; a
 * sanitizer sees each byte that is read beyond its buffer. Offsets stay within their bytes, as how many there are an array
 * of offsets does not say; views are any bits at all. Then the same with keys, times and headers beside the values.
 */
#include "wire/arrow_beside.h"
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

/* A column of bytes in buffers of its own, which `held` keeps. */
struct bytes_column {
    struct ArrowSchema schema;
    struct ArrowArray array;
    const void *buffers[4];
    int64_t part_sizes[1];
    uint8_t *held[3];
};

static void make_bytes(struct bytes_column *out, const char *name, uint64_t rows, uint64_t front, int is_nullable)
{
    const uint64_t kind = draw() % 3, bytes = draw() % 64;
    uint8_t *data = block(bytes, (int)('a' + draw() % 4)), *bits = block(rows / 8 + 1, 0xFF);
    for (uint64_t at = 0; at < bytes; at++) data[at] = (uint8_t)(data[at] + draw() % 8);
    if (is_nullable && draw() % 2) bits[draw() % (rows / 8 + 1)] ^= (uint8_t)(1u << draw() % 8);
    out->held[0] = data;
    out->held[1] = bits;
    out->held[2] = kind == 2 ? views(rows, bytes) : offsets(rows, kind == 0 ? 4 : 8, bytes);
    out->part_sizes[0] = (int64_t)bytes;
    out->buffers[0] = draw() % 2 ? bits : NULL;
    out->buffers[1] = out->held[2];
    out->buffers[2] = data;
    out->buffers[3] = out->part_sizes;
    out->schema = (struct ArrowSchema){
        .format = kind == 0 ? "z" : kind == 1 ? "U" : "vu", .name = name, .release = release_schema};
    out->array = (struct ArrowArray){
        .length = (int64_t)(rows - front), .null_count = -1, .offset = (int64_t)front,
        .n_buffers = kind == 2 ? 4 : 3, .buffers = out->buffers, .release = release_array};
}

static void free_bytes(struct bytes_column *column)
{
    for (int i = 0; i < 3; i++) free(column->held[i]);
}

/* One batch of values, keys, times and headers; was it sound? */
static int look_beside(void)
{
    static const char *const times[] = {"l", "tss:", "tsm:UTC", "tsu:", "tsn:", "tdD"};
    static const char *const lists[] = {"+m", "+l", "+L"};
    const uint64_t count = draw() % 9, front = draw() % 4, rows = count + front, list = draw() % 3;
    const uint64_t pairs = draw() % 12, pair_front = draw() % 3;
    struct bytes_column value, key, names, values;
    make_bytes(&value, "value", rows, 0, 0);
    make_bytes(&key, "key", rows, 0, 1);
    make_bytes(&names, "name", pairs + pair_front + 1, 1, 0);
    make_bytes(&values, "value", pairs + pair_front, 0, 1);
    uint8_t *numbers = block(8 * rows, 0), *bits = block(rows / 8 + 1, 0xFF);
    for (uint64_t at = 0; at < 8 * rows; at += 8)
        if (draw() % 8) numbers[at + draw() % 7] = (uint8_t)draw(); else numbers[at + 7] = (uint8_t)draw();
    uint8_t *places = offsets(rows, list == 2 ? 8 : 4, pairs);
    if (draw() % 3 == 0) bits[draw() % (rows / 8 + 1)] ^= (uint8_t)(1u << draw() % 8);

    const void *time_buffers[] = {draw() % 2 ? bits : NULL, numbers};
    struct ArrowSchema time_schema = {.format = times[draw() % 6], .name = "time", .release = release_schema};
    struct ArrowArray time_array = {
        .length = (int64_t)rows, .null_count = -1, .n_buffers = 2, .buffers = time_buffers, .release = release_array};
    struct ArrowSchema *pair_schemas[] = {&names.schema, &values.schema};
    struct ArrowArray *pair_arrays[] = {&names.array, &values.array};
    const void *none[] = {NULL};
    struct ArrowSchema pair_schema = {
        .format = "+s", .name = "entries", .n_children = 2, .children = pair_schemas, .release = release_schema};
    struct ArrowArray pair_array = {
        .length = (int64_t)pairs, .offset = (int64_t)pair_front, .n_buffers = 1, .buffers = none, .n_children = 2,
        .children = pair_arrays, .release = release_array};
    struct ArrowSchema *list_schemas[] = {&pair_schema};
    struct ArrowArray *list_arrays[] = {&pair_array};
    const void *list_buffers[] = {draw() % 2 ? bits : NULL, places};
    struct ArrowSchema list_schema = {
        .format = lists[list], .name = "headers", .n_children = 1, .children = list_schemas,
        .release = release_schema};
    struct ArrowArray list_array = {
        .length = (int64_t)rows, .null_count = -1, .n_buffers = 2, .buffers = list_buffers, .n_children = 1,
        .children = list_arrays, .release = release_array};
    struct ArrowSchema *schemas[] = {&value.schema, &key.schema, &time_schema, &list_schema};
    struct ArrowArray *arrays[] = {&value.array, &key.array, &time_array, &list_array};
    const struct ArrowSchema schema = {
        .format = "+s", .n_children = 4, .children = schemas, .release = release_schema};
    const struct ArrowArray array = {
        .length = (int64_t)count, .offset = (int64_t)front, .n_buffers = 1, .buffers = none, .n_children = 4,
        .children = arrays, .release = release_array};
    const struct ebk_arrow_names wanted = {
        draw() % 4 ? "key" : NULL, draw() % 4 ? "time" : NULL, draw() % 4 ? "headers" : NULL};
    struct ebk_arrow_column column;
    enum ebk_arrow_which which;
    uint64_t at;
    int is_sound = 0;
    if (ebk_arrow_column_open(&schema, &array, "value", &column, &at) == EBK_ARROW_SOUND &&
        ebk_arrow_beside_make(&schema, &array, &wanted, &column, &which, &at) == EBK_ARROW_SOUND) {
        pack(&column);
        is_sound = column.beside != NULL;
        ebk_arrow_beside_free(&column);
    }
    free_bytes(&value);
    free_bytes(&key);
    free_bytes(&names);
    free_bytes(&values);
    free(numbers);
    free(bits);
    free(places);
    return is_sound;
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
    uint64_t beside = 0;
    for (int round = 0; round < ROUNDS; round++) beside += (uint64_t)look_beside();
    if (beside < ROUNDS / 16) abort();
    printf("%llu of %d had records, ", (unsigned long long)beside, ROUNDS);
    printf("%llu of %d were sound\n", (unsigned long long)sound, ROUNDS);
    return 0;
}
