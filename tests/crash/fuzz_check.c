/* fuzz_check.c: bytes of chance into the readers of C: frame decoder, journal reader, entry-log scanner, index, scrub.
 * `fuzz_check COUNT SEED [FILE]`: so many inputs of each kind; FILE adds one input of its own, first (a finding kept).
 * Prints how many, or stops where one reads outside, answers wrongly, or breaks an invariant.
 *
 * Half of the inputs have their sums made right again, so that what stands behind a sum is reached too: then only
 * memory safety, and that every entry handed out is one, can be judged.
 */
#include "store/scrub.h"
#include "store_check.h"
#include "base/xxh3.h"

#define IMAGE_BYTES_MAX (1u << 20)

static uint8_t image[IMAGE_BYTES_MAX];
static uint64_t sound_count, refused_count;

/* ---- changes ------------------------------------------------------------------------ */

/* One of the numbers that break things, in the width of the field. */
static uint64_t odd_number(void)
{
    static const uint64_t odd[] = {0, 1, 2, 7, 8, 51, 52, 63, 64, 65, 127, 128, 255, 256, 4095, 4096, 65535, 65536,
                                   INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 20};
    const uint64_t found = odd[draw() % (sizeof odd / sizeof *odd)];
    return draw() % 2 ? found : found + draw() % 3 - 1;
}

/* Change image[begin..end) somewhere; returns what is left of size, which a cut may make smaller. */
static size_t mutate(size_t begin, size_t end, size_t size)
{
    for (uint64_t n = 1 + draw() % 4; n > 0 && begin < end; n--) {
        const size_t at = begin + draw() % (end - begin), room = end - at;
        const uint64_t number = odd_number();
        switch (draw() % 6) {
        case 0: image[at] ^= (uint8_t)(1u << draw() % 8); break;
        case 1: image[at] = (uint8_t)draw(); break;
        case 2: memcpy(image + at, &number, room < 8 ? room : draw() % 2 ? 4 : 8); break;
        case 3: memset(image + at, draw() % 2 ? 0 : 0xFF, room < 64 ? room : draw() % 64); break;
        case 4: { /* A copy of what stands elsewhere. */
            const size_t from = begin + draw() % (end - begin), left = end - from;
            const size_t bytes = room < left ? room : left;
            memmove(image + at, image + from, bytes < 256 ? bytes : draw() % 256);
            break;
        }
        default:
            if (end == size && draw() % 8 == 0) return at;
        }
    }
    return size;
}

/* ---- frame decoder -------------------------------------------------------------------- */

#define TAG_AT 36 /* Of the XXH3 tag behind the header, in the entries that make_frame() gives attributes. */

static void sum_entries(size_t size)
{
    for (size_t at = 0; size - at >= EBK_ENTRY_OVERHEAD_BYTES;) {
        const uint64_t whole = EBK_ENTRY_OVERHEAD_BYTES + (uint64_t)ebk_load_u32(image + at + EBK_ENTRY_AT_PAYLOAD_SIZE);
        if (whole > size - at) return;
        uint8_t *tag = image + at + EBK_ENTRY_HEADER_BYTES + TAG_AT;
        if (whole > EBK_ENTRY_OVERHEAD_BYTES + TAG_AT + 8 && tag[-4] == EBK_ATTRIBUTE_XXH3) {
            const uint8_t *rest = tag + 8, *end = image + at + whole - EBK_ENTRY_CRC_BYTES;
            const uint64_t sum = ebk_xxh3(image + at, (size_t)(tag - image - at), rest, (size_t)(end - rest));
            for (int i = 0; i < 8; i++) tag[i] = (uint8_t)(sum >> (56 - 8 * i));
        }
        ebk_store_u32(image + at + whole - 4, ebk_crc32c(0, image + at, whole - 4));
        at += whole;
    }
}

/* A frame of entries, some with parts, a producer and a tag before their payload. */
static size_t make_frame(void)
{
    size_t size = 0;
    payload_base = 90 + (uint32_t)(draw() % 60);
    for (int64_t id = (int64_t)(draw() % 4), count = 1 + (int64_t)(draw() % 6); count > 0; count--, id++) {
        const size_t whole = make_entry(image + size, 9, id);
        uint8_t *entry = image + size, *value = entry + EBK_ENTRY_HEADER_BYTES;
        if (draw() % 2) {
            const uint32_t attributes = 12 + 20 + 12;
            const uint32_t payload = (uint32_t)(whole - EBK_ENTRY_OVERHEAD_BYTES) - attributes;
            memset(value, 0, attributes);
            value[0] = EBK_ATTRIBUTE_PARTS;
            ebk_store_u16(value + 2, 8);
            ebk_store_u32(value + 4, payload / 2);
            ebk_store_u32(value + 8, payload);
            value[12] = EBK_ATTRIBUTE_PRODUCER;
            ebk_store_u16(value + 14, EBK_ATTRIBUTE_PRODUCER_BYTES);
            value[32] = EBK_ATTRIBUTE_XXH3;
            ebk_store_u16(value + 34, EBK_ATTRIBUTE_XXH3_BYTES);
            ebk_store_u16(entry + EBK_ENTRY_AT_ATTRIBUTES, (uint16_t)attributes);
        }
        size += whole;
    }
    sum_entries(size);
    return size;
}

/* The body stands at the end of a block of its own, so that a sanitizer sees one byte too many. */
static void read_frame(const uint8_t *bytes, size_t size)
{
    struct ebk_frame_facts facts = {0}, counted = {0}, cut = {0};
    uint8_t *body = malloc(size + 1);
    EBK_ASSERT(body != NULL);
    uint8_t *at = body + 1; /* Not aligned. */
    memcpy(at, bytes, size);
    const int fault = ebk_frame_scan(at, size, &facts);
    EBK_ASSERT(fault == EBK_FRAME_SOUND || facts.fault_at <= size);
    sound_count += fault == EBK_FRAME_SOUND;
    refused_count += fault != EBK_FRAME_SOUND;
    if (ebk_frame_count(at, size, &counted) == EBK_FRAME_SOUND && size > 0) {
        int64_t *ids = malloc(counted.records * sizeof *ids);
        uint32_t *spans = malloc(counted.count * 2 * sizeof *spans);
        int32_t *ends = malloc((counted.records + 1) * sizeof *ends);
        uint8_t *values = malloc(counted.payload_bytes + 1);
        EBK_ASSERT(ids != NULL && spans != NULL && ends != NULL && values != NULL);
        ebk_frame_offsets(at, counted.count, ids, spans);
        for (uint64_t i = 0; i < counted.count; i++) EBK_ASSERT(spans[2 * i] + (uint64_t)spans[2 * i + 1] <= size);
        ebk_frame_values(at, counted.count, ids, ends, values);
        EBK_ASSERT((uint64_t)(uint32_t)ends[counted.records] == counted.payload_bytes);
        if (fault == EBK_FRAME_SOUND)
            EBK_ASSERT(facts.count == counted.count && facts.payload_bytes == counted.payload_bytes);
        free(ids);
        free(spans);
        free(ends);
        free(values);
    }
    uint8_t *taken = malloc(size + 1);
    EBK_ASSERT(taken != NULL);
    size_t taken_size = 0;
    const uint32_t seats = 1 + (uint32_t)(draw() % 5);
    if (ebk_frame_cut(at, size, seats, 1, (uint32_t)(draw() % seats), taken, &taken_size, &cut) == EBK_FRAME_SOUND) {
        EBK_ASSERT(taken_size <= size);
        if (fault == EBK_FRAME_SOUND && taken_size > 0)
            EBK_ASSERT(ebk_frame_scan(taken, taken_size, &cut) == EBK_FRAME_SOUND);
    }
    free(taken);
    free(body);
}

static void fuzz_frames(uint64_t count)
{
    for (; count > 0; count--) {
        size_t size = make_frame();
        if (draw() % 16 != 0) size = mutate(0, size, size);
        if (draw() % 2) sum_entries(size);
        read_frame(image, size);
    }
}

/* ---- entry logs: scanner and index ---------------------------------------------------- */

static uint32_t ledgers_in_log;

static void read_log(struct ebk_memory_disk *disk, const uint8_t *content, size_t size, bool is_truth_known)
{
    ebk_memory_disk_put(disk, "e/00000001.elog", content, size);
    struct ebk_store *store = open_store(disk);
    sound_count += store != NULL;
    refused_count += store == NULL;
    for (uint64_t ledger = 0; store != NULL && ledger <= ledgers_in_log + 1u; ledger++) {
        uint32_t absent;
        const uint32_t held = judge_read(store, ledger, 0, ENTRIES_PER_LEDGER + 5, &absent);
        if (!is_truth_known) continue;
        const bool is_stored = ledger >= 1 && ledger <= ledgers_in_log;
        EBK_ASSERT(held <= (is_stored ? ENTRIES_PER_LEDGER : 0u));
        EBK_ASSERT(absent <= (is_stored ? 6u : ENTRIES_PER_LEDGER + 6u)); /* What is stored is never denied. */
    }
    if (store != NULL) ebk_store_close(store);

    struct ebk_scrub *scrub = ebk_scrub_open(ebk_memory_disk_io(disk), "e", TOKEN, INCARNATION);
    static struct ebk_scrub_piece piece;
    EBK_ASSERT(scrub != NULL);
    piece = (struct ebk_scrub_piece){0};
    for (int pieces = 0; !piece.is_end; pieces++) {
        const uint64_t before = piece.offset;
        EBK_ASSERT(ebk_scrub_now(scrub, 1, before, 1 + draw() % 5000) == EBK_OK);
        EBK_ASSERT(ebk_scrub_finish(scrub, &piece) == EBK_OK);
        EBK_ASSERT(piece.is_end || piece.offset > before);
        EBK_ASSERT(pieces < 100000);
    }
    ebk_scrub_close(scrub);
}

/* Each run as it says it ends, with a right sum. */
static void sum_runs(const struct ebk_descriptor *descriptor, uint8_t *index)
{
    if (descriptor->version < EBK_LOG_VERSION_TWICE) return;
    for (uint64_t at = 0; at + EBK_LOG_RUN_BYTES <= descriptor->index_size;) {
        const size_t tail = ebk_run_tail_bytes(descriptor->version, index[at + 52], ebk_load_u64(index + at + 24));
        const uint64_t size = EBK_LOG_RUN_BYTES + (uint64_t)ebk_load_u32(index + at + 48) + tail - EBK_LOG_RUN_CRC_BYTES;
        if (size + EBK_LOG_RUN_CRC_BYTES > descriptor->index_size - at) return;
        ebk_store_u32(index + at + size, ebk_run_crc(ebk_section_seed(descriptor), at, index + at, size));
        at += size + EBK_LOG_RUN_CRC_BYTES;
    }
}

/* Both descriptors, with right sums over the sections as they stand in the image. */
static void sum_log(size_t size)
{
    struct ebk_descriptor descriptor;
    uint8_t *head = image, *tail = image + size - EBK_LOG_DESCRIPTOR_BYTES;
    ebk_store_u32(head + 124, ebk_crc32c(0, head, 124));
    if (ebk_descriptor_read(&descriptor, head) != EBK_OK || !ebk_descriptor_is_possible(&descriptor)) return;
    if (descriptor.file_size != size) return;
    descriptor.states_crc = ebk_section_crc(&descriptor, image + EBK_LOG_BLOCK_BYTES, descriptor.states_size);
    uint8_t *index = image + ebk_index_offset(&descriptor);
    if (draw() % 2) sum_runs(&descriptor, index);
    descriptor.index_crc = ebk_section_crc(&descriptor, index, descriptor.index_size);
    memcpy(image + ebk_first_index_offset(&descriptor), index, descriptor.index_size);
    memcpy(image + ebk_second_states_offset(&descriptor), image + EBK_LOG_BLOCK_BYTES, descriptor.states_size);
    ebk_descriptor_write(&descriptor, head);
    memcpy(tail, head, EBK_LOG_DESCRIPTOR_BYTES);
}

static void fuzz_logs(uint64_t count, const uint8_t *extra, size_t extra_size)
{
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    payload_base = 20;
    ledgers_in_log = 3;
    make_log(disk, ledgers_in_log);
    size_t whole;
    uint8_t *content = read_whole(disk, "e/00000001.elog", &whole);
    struct ebk_descriptor descriptor;
    EBK_ASSERT(whole <= sizeof image && ebk_descriptor_read(&descriptor, content) == EBK_OK);
    const size_t entries = ebk_entries_offset(&descriptor), entries_end = ebk_entries_end(&descriptor);
    const size_t index = ebk_index_offset(&descriptor), first_index = ebk_first_index_offset(&descriptor);
    if (extra_size > 0) read_log(disk, extra, extra_size, false);
    for (; count > 0; count--) {
        memcpy(image, content, whole);
        size_t size = whole;
        const bool is_summed = draw() % 2;
        switch (draw() % 5) {
        case 0: size = mutate(0, whole, whole); break;
        case 1: mutate(index, index + descriptor.index_size, whole); break; /* Then a scan, or a crafted index. */
        case 2: /* Entries, and no index to find them by: the scanner. */
            mutate(entries, entries_end, whole);
            image[index + draw() % descriptor.index_size] ^= 0x11;
            image[first_index + draw() % descriptor.index_size] ^= 0x11;
            break;
        case 3: /* Both copies: they are joined. */
            mutate(index, index + descriptor.index_size, whole);
            mutate(first_index, first_index + descriptor.index_size, whole);
            break;
        default: mutate(0, EBK_LOG_DESCRIPTOR_BYTES, whole); break;
        }
        if (is_summed && size == whole) sum_log(whole);
        read_log(disk, image, size, !is_summed);
    }
    free(content);
    ebk_memory_disk_free(disk);
}

/* ---- journals ------------------------------------------------------------------------- */

/* Every group of the image, and the header of the file, with right sums for what they say now. */
static void sum_journal(size_t size)
{
    struct file_header *header = (struct file_header *)image;
    header->crc = ebk_file_header_crc(header);
    const uint32_t seed = ebk_journal_seed(header->identity, header->generation);
    for (size_t at = BLOCK_BYTES; at + BLOCK_BYTES <= size; at += BLOCK_BYTES) {
        struct group_header *group = (struct group_header *)(image + at);
        if (group->magic != GROUP_MAGIC) continue;
        uint32_t records_crc = 0;
        uint64_t place = sizeof *group;
        for (uint32_t i = 0; i < group->record_count && i < 100; i++) {
            struct record_header *record = (struct record_header *)(image + at + place);
            if (size - at - place < sizeof *record || record->size > size - at - place - sizeof *record) break;
            record->crc = ebk_journal_record_crc(seed, at + place, record);
            records_crc = ebk_crc32c(records_crc, &record->crc, sizeof record->crc);
            place += record_extent(record->size);
            if (place >= size - at) break;
        }
        group->records_crc = records_crc;
        group->crc = ebk_journal_group_crc(seed, group);
    }
}

/* Is the newest group of this file another one in the image? Then it and those damaged before it look torn: no valid
 * group stands behind them (I42). */
static bool is_newest_group_changed(const uint8_t *content, size_t whole, size_t size)
{
    size_t newest = 0;
    for (size_t at = BLOCK_BYTES; at + BLOCK_BYTES <= whole; at += BLOCK_BYTES)
        if (((const struct group_header *)(content + at))->magic == GROUP_MAGIC) newest = at;
    if (newest == 0) return false;
    const size_t end = newest + ((const struct group_header *)(content + newest))->group_bytes;
    return size < end || memcmp(content + newest, image + newest, end - newest) != 0;
}

static void fuzz_journals(uint64_t count)
{
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    uint64_t last_first;
    const int64_t last = (int64_t)make_journal(disk, 20, &last_first);
    char names[NAMES_BYTES];
    const int64_t names_size = ebk_memory_disk_names(disk, true, names, sizeof names);
    const char *files[16];
    uint32_t file_count = 0;
    for (const char *name = names; name < names + names_size && file_count < 16; name += strlen(name) + 1)
        if (strncmp(name, "j/journal-", 10) == 0) files[file_count++] = name;
    for (; count > 0; count--) {
        const char *name = files[draw() % file_count];
        size_t whole;
        uint8_t *content = read_whole(disk, name, &whole);
        EBK_ASSERT(whole <= sizeof image);
        memcpy(image, content, whole);
        /* Headers are where the numbers are. */
        const size_t block = draw() % (whole / BLOCK_BYTES) * BLOCK_BYTES;
        const size_t size = draw() % 2 ? mutate(block, block + 120, whole) : mutate(0, whole, whole);
        const bool is_summed = draw() % 2;
        if (is_summed && size == whole) sum_journal(size);
        ebk_memory_disk_put(disk, name, image, size);
        const int64_t found = judge_journal(disk, !is_summed);
        if (!is_summed && found != -1 && found != last)
            EBK_ASSERT(found < last && is_newest_group_changed(content, whole, size));
        sound_count += found >= 0;
        refused_count += found < 0;
        ebk_memory_disk_put(disk, name, content, whole);
        free(content);
    }
    ebk_memory_disk_free(disk);
}

int main(int count, char **arguments)
{
    const uint64_t inputs = count > 1 ? strtoull(arguments[1], NULL, 10) : 200;
    static uint8_t extra[IMAGE_BYTES_MAX];
    size_t extra_size = 0;
    state = count > 2 ? strtoull(arguments[2], NULL, 10) : 1;
    if (count > 3) {
        FILE *file = fopen(arguments[3], "rb");
        EBK_ASSERT(file != NULL);
        extra_size = fread(extra, 1, sizeof extra, file);
        fclose(file);
        read_frame(extra, extra_size);
    }
    fuzz_frames(inputs * 20);
    fuzz_logs(inputs, extra, extra_size);
    fuzz_journals(inputs);
    EBK_ASSERT(sound_count > 0 && refused_count > 0);
    printf("%llu inputs, %llu read, %llu refused\n", (unsigned long long)(inputs * 22), (unsigned long long)sound_count,
           (unsigned long long)refused_count);
    return 0;
}
