/* add_path_check.c: the add path under the compiler's sanitizers; test_sanitizers.py builds and runs it.
 *
 * Adds of three links and four ledgers, most of them sound, some with bits turned over or cut short (in blocks of their
 * exact size, so that one byte too far is seen), commits, answers, a failed disk. Every answer must be for a frame
 * that is durable. Prints nothing and returns 0, or stops where the fault is.
 */
#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "io/io.h"
#include "road/add_path.h"
#include "road/lac_path.h"
#include "wire/frame.h"

#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define LEDGERS 4u
#define LINKS 3u
#define ROUNDS 4000u
#define FAILS_AT (ROUNDS - 100u) /* The disk refuses every write from there on. */
#define HEAD_BYTES (32 + 22 + 80)
#define BODY_BYTES_MAX 2048u

static uint64_t state;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static int64_t next_entry[LEDGERS];
static uint64_t length[LEDGERS];

static size_t write_entry(uint8_t *to, uint64_t ledger_id, int64_t entry_id, uint64_t total, uint32_t payload)
{
    memset(to, 0, EBK_ENTRY_HEADER_BYTES);
    to[EBK_ENTRY_AT_VERSION] = EBK_ENTRY_VERSION;
    ebk_store_u32(to + EBK_ENTRY_AT_PAYLOAD_SIZE, payload);
    ebk_store_u64(to + EBK_ENTRY_AT_LEDGER, ledger_id);
    ebk_store_u64(to + EBK_ENTRY_AT_ENTRY, (uint64_t)entry_id);
    ebk_store_u64(to + EBK_ENTRY_AT_LENGTH, total);
    ebk_store_u64(to + EBK_ENTRY_AT_LAC, UINT64_MAX);
    memset(to + EBK_ENTRY_HEADER_BYTES, (int)entry_id, payload);
    const size_t size = EBK_ENTRY_HEADER_BYTES + payload;
    ebk_store_u32(to + size, ebk_crc32c(0, to, size));
    return size + EBK_ENTRY_CRC_BYTES;
}

/* A sound add of the ledger's next entries; returns its size. */
static size_t write_add(uint8_t *to, uint64_t ledger_id, uint64_t request_id, int64_t *last, uint64_t *total)
{
    uint8_t *control = to + 32, *header = control + 22, *body = header + 80;
    const uint32_t count = 1 + (uint32_t)(draw() % 5);
    size_t size = 0;
    *total = length[ledger_id];
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t payload = (uint32_t)(draw() % 200);
        *total += payload;
        size += write_entry(body + size, ledger_id, next_entry[ledger_id] + i, *total, payload);
    }
    *last = next_entry[ledger_id] + count - 1;
    memset(control, 0, 22 + 80);
    memcpy(control, "\x94\xC4\x10", 3); /* incarnation (zeros), nonce, seating, recovery */
    control[19] = (uint8_t)(draw() % 128);
    memcpy(control + 20, "\x07\xC2", 2);
    memcpy(header, "EBKF\x01\x00\x50\x00", 8);
    ebk_store_u32(header + 8, count);
    ebk_store_u32(header + 12, (uint32_t)size);
    ebk_store_u64(header + 16, ledger_id);
    ebk_store_u64(header + 24, (uint64_t)next_entry[ledger_id]);
    ebk_store_u64(header + 32, (uint64_t)*last);
    ebk_store_u64(header + 40, UINT64_MAX);
    ebk_store_u32(header + 76, ebk_crc32c(0, header, 76));
    memset(to, 0, 32);
    memcpy(to, "EBKM\x01\x01\x01\x00", 8);
    ebk_store_u32(to + 8, 22);
    ebk_store_u32(to + 12, (uint32_t)(80 + size));
    ebk_store_u64(to + 16, request_id);
    ebk_store_u32(to + 24, ebk_crc32c(ebk_crc32c(0, to, 24), control, 22));
    return 32 + 22 + 80 + size;
}

static void damage(uint8_t *message, size_t size)
{
    const size_t control_size = ebk_load_u32(message + 8);
    message[draw() % size] ^= (uint8_t)(1u << draw() % 8);
    if (draw() % 2 || control_size != 22) return;
    ebk_store_u32(message + 24, ebk_crc32c(ebk_crc32c(0, message, 24), message + 32, 22));
    ebk_store_u32(message + 54 + 76, ebk_crc32c(0, message + 54, 76));
}

/* A poll, or a hint, of zeros' incarnation and key. */
static size_t write_reader(uint8_t *to, uint64_t ledger_id, uint64_t request_id, bool is_hint)
{
    uint8_t *at = to + 32;
    memset(to, 0, 32);
    memcpy(to, "EBKM\x01", 5);
    to[5] = is_hint ? EBK_KIND_EXPLICIT_LAC_REQUEST : EBK_KIND_LAC_REQUEST;
    memcpy(at, is_hint ? "\x97\xC4\x10" : "\x95\xC4\x10", 3);
    memset(at + 3, 0, 16);
    at += 19;
    *at++ = (uint8_t)ledger_id;
    if (is_hint) {
        memcpy(at, "\xC4\x10", 2);
        memset(at + 2, 0, 16);
        at += 18;
    }
    at[0] = !is_hint && draw() % 4 == 0 ? 0xFF : 0xCD; /* -1, or a number of 16 bits */
    at += 1;
    if (at[-1] == 0xCD) {
        *at++ = (uint8_t)(draw() % 4);
        *at++ = (uint8_t)draw();
    }
    *at++ = (uint8_t)(draw() % 128); /* the length, or how long to wait */
    if (is_hint) {
        *at++ = 0xC3;
        *at++ = draw() % 2 ? 0xC2 : 0xC3;
    } else {
        memcpy(at, "\xCD\x03\xE8", 3);
        at += 3;
    }
    ebk_store_u32(to + 8, (uint32_t)(at - to - 32));
    ebk_store_u64(to + 16, request_id);
    ebk_store_u32(to + 24, ebk_crc32c(ebk_crc32c(0, to, 24), to + 32, (size_t)(at - to - 32)));
    return (size_t)(at - to);
}

/* LACs of idle writers, of one ledger, with zeros' incarnation and key. */
static size_t write_lacs(uint8_t *to, uint64_t ledger_id)
{
    const uint32_t count = 1 + draw() % 3;
    uint8_t *at = to + 32;
    memset(to, 0, 32);
    memcpy(to, "EBKM\x01", 5);
    to[5] = EBK_KIND_EXPLICIT_LACS;
    memcpy(at, "\x92\xC4\x10", 3);
    memset(at + 3, 0, 16);
    at += 19;
    *at++ = 0xC4;
    *at++ = (uint8_t)(count * EBK_LAC_BYTES);
    for (uint32_t i = 0; i < count; i++, at += EBK_LAC_BYTES) {
        memset(at, 0, EBK_LAC_BYTES);
        ebk_store_u64(at, ledger_id);
        ebk_store_u64(at + 8, draw() % 512);
        ebk_store_u64(at + 16, draw());
    }
    ebk_store_u32(to + 8, (uint32_t)(at - to - 32));
    ebk_store_u32(to + 24, ebk_crc32c(ebk_crc32c(0, to, 24), to + 32, (size_t)(at - to - 32)));
    return (size_t)(at - to);
}

/* Offer one, whole or with a fault, from exactly its bytes. */
static void offer_reader(struct ebk_add_path *path, uint64_t ledger_id, uint64_t request_id)
{
    uint8_t whole[256];
    size_t size = draw() % 4 == 0 ? write_lacs(whole, ledger_id) : write_reader(whole, ledger_id, request_id, draw() % 2);
    if (draw() % 4 == 0) {
        whole[draw() % size] ^= (uint8_t)(1u << draw() % 8);
        if (draw() % 2) ebk_store_u32(whole + 24, ebk_crc32c(ebk_crc32c(0, whole, 24), whole + 32, size - 32));
        if (draw() % 4 == 0) size = draw() % size;
    }
    uint8_t *exact = malloc(size + 1);
    memcpy(exact, whole, size);
    (void)ebk_add_path_take(path, draw() % LINKS, exact, size, NULL, 0);
    free(exact);
}

static uint32_t tell_readers(struct ebk_tail_path *tail, uint32_t *answers)
{
    uint64_t link;
    uint32_t sum = 0;
    const uint8_t *message;
    size_t size;
    while (ebk_tail_next(tail, &link)) {
        ebk_tail_make(tail, draw() % 2 ? UINT64_MAX : 0, &message, &size);
        for (size_t i = 0; i < size; i++) sum += message[i];
        *answers += 1;
    }
    while (ebk_tail_settled(tail, &link)) EBK_ASSERT(false); /* Nobody else parks here. */
    return sum;
}

static uint32_t tell(struct ebk_add_path *path, uint32_t *told)
{
    uint64_t link;
    uint32_t answers, sum = 0;
    const uint8_t *message;
    size_t size;
    while (ebk_add_path_next(path, &link, &answers, &message, &size)) {
        EBK_ASSERT(link < LINKS && answers > 0 && memcmp(message, "EBKM", 4) == 0);
        EBK_ASSERT(ebk_load_u32(message + 8) == size - 32);
        for (size_t i = 0; i < size; i++) sum += message[i];
        *told += answers;
    }
    return sum;
}

int main(int argc, char **argv)
{
    state = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    struct ebk_io *io = ebk_memory_disk_io(disk);
    struct ebk_journal_settings journal_settings = {.file_bytes = 4 << 20, .identity = "check"};
    struct ebk_journal_fault fault;
    struct ebk_journal *parts[2];
    struct ebk_store_settings store_settings = {.half_bytes_max = 64 << 20, .half_bytes_kept = 1 << 20};
    struct ebk_add_path_settings settings = {.cache_bytes_max = 32 << 20, .kick_bytes = 1 << 10};
    char text[256];
    const char *directories[] = {"e", "f", "g"};
    const uint32_t several = state % 2; /* Two journals and three ledger directories, or one of each. */
    for (uint32_t i = 0; i < 3; i++) EBK_ASSERT(ebk_io_make_directory(io, directories[i]) == EBK_OK);
    EBK_ASSERT(ebk_journal_open(io, "j", &journal_settings, &parts[0], &fault) == EBK_OK);
    EBK_ASSERT(ebk_journal_open(io, "k", &journal_settings, &parts[1], &fault) == EBK_OK);
    settings.journals = ebk_journals_new(parts, 1 + several);
    EBK_ASSERT(settings.journals != NULL);
    EBK_ASSERT(ebk_store_open(io, directories, 1 + 2 * several, &store_settings, &settings.store, text, sizeof text) ==
               EBK_OK);
    settings.table = ebk_table_new(LEDGERS);
    EBK_ASSERT(settings.table != NULL);
    for (uint64_t ledger_id = 0; ledger_id < LEDGERS; ledger_id++) {
        struct ebk_ledger_row *row;
        EBK_ASSERT(ebk_table_create(settings.table, ledger_id, false, &row) == EBK_OK);
        row->has_key = 1;
    }
    struct ebk_tail_settings tail_settings = {.table = settings.table, .store = settings.store,
                                              .parked = ebk_parked_new(100, 1000000), .wait_ms_max = 500,
                                              .bytes_max = 2000, .room_bytes = 1};
    EBK_ASSERT(tail_settings.parked != NULL);
    settings.tail = ebk_tail_new(&tail_settings);
    EBK_ASSERT(settings.tail != NULL);
    struct ebk_add_path *path = ebk_add_path_new(&settings);
    EBK_ASSERT(path != NULL);

    static uint8_t whole[HEAD_BYTES + BODY_BYTES_MAX];
    uint32_t taken = 0, told = 0, answers = 0;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint64_t ledger_id = draw() % LEDGERS;
        int64_t last;
        uint64_t total;
        size_t size = write_add(whole, ledger_id, round, &last, &total);
        const bool is_damaged = draw() % 4 == 0;
        if (is_damaged && draw() % 3 == 0) size = draw() % size;
        uint8_t *message = malloc(size + 1);
        memcpy(message, whole, size);
        if (is_damaged && size >= HEAD_BYTES) damage(message, size);
        const size_t head = draw() % 2 && size > HEAD_BYTES ? HEAD_BYTES : size;
        uint8_t *tail = malloc(size - head + 1);
        memcpy(tail, message + head, size - head);
        uint8_t *exact = malloc(head == 0 ? 1 : head);
        memcpy(exact, message, head);
        struct ebk_ledger_row *row = ebk_table_find(settings.table, ledger_id);
        const int64_t before = row->last_entry;
        if (ebk_add_path_take(path, draw() % LINKS, exact, head, tail, size - head)) {
            EBK_ASSERT(row->last_entry == last && last > before);
            next_entry[ledger_id] = last + 1;
            length[ledger_id] = total;
            taken += 1;
        } else {
            EBK_ASSERT((is_damaged || round > FAILS_AT) && row->last_entry == before);
        }
        free(message);
        free(tail);
        free(exact);
        ebk_tail_begin(settings.tail, (int64_t)round * 10000, draw() % 8 != 0);
        while (draw() % 3 != 0) offer_reader(path, draw() % (LEDGERS + 1), round);
        if (draw() % 4 == 0) (void)tell_readers(settings.tail, &answers);
        if (draw() % 50 == 0) {
            struct ebk_poll_queue over = {0};
            struct ebk_poll poll;
            if (draw() % 2)
                ebk_parked_expire(tail_settings.parked, (int64_t)round * 10000, &over);
            else
                ebk_parked_forget(tail_settings.parked, draw() % LINKS, &over);
            while (ebk_parked_pop(tail_settings.parked, &over, &poll)) EBK_ASSERT(poll.link < LINKS);
        }
        if (draw() % 20 == 0) {
            for (uint32_t i = 0; i <= several; i++)
                while (ebk_journal_step(parts[i]) > 0) {
                }
        }
        if (draw() % 30 == 0) {
            const uint64_t durable = ebk_journals_reap(settings.journals);
            const uint32_t due = ebk_add_path_reap(path, durable);
            const uint32_t old = told;
            (void)tell(path, &told);
            /* What is durable and was not told are LACs. */
            EBK_ASSERT(told - old == due && told <= durable && durable - told <= ebk_add_path_records(path) - taken);
        }
        if (round % (ROUNDS / 4) == ROUNDS / 8 && round < FAILS_AT) { /* With threads, one for each directory. */
            const uint8_t nothing = 0;
            uint64_t marks[2];
            for (uint32_t i = 0; i < 2; i++) marks[i] = i <= several ? ebk_journals_mark(settings.journals, i) : 0;
            const uint64_t before_flush = ebk_store_mark(settings.store);
            EBK_ASSERT(ebk_store_freeze(settings.store, &nothing, 0, marks[0] + marks[1], marks, several ? 2 : 0) == EBK_OK);
            EBK_ASSERT(ebk_store_flush_start(settings.store, several ? 7 : 1) == EBK_OK);
            int code;
            while ((code = ebk_store_flush_finish(settings.store)) == EBK_FULL) sched_yield();
            EBK_ASSERT(code == EBK_OK && ebk_store_mark(settings.store) >= before_flush);
            for (uint32_t i = 0; i <= several; i++)
                while (ebk_journal_step(parts[i]) > 0) {
                }
            ebk_store_release(settings.store);
        }
        if (round == FAILS_AT) ebk_memory_disk_fail(disk, EBK_CALL_WRITE, 1, 5, true);
    }
    EBK_ASSERT(taken > ROUNDS / 2 && told < taken);
    (void)ebk_add_path_stop(path, 9);
    (void)tell(path, &told);
    EBK_ASSERT(told == taken && ebk_add_path_pending(path) == 0);
    (void)tell_readers(settings.tail, &answers);
    EBK_ASSERT(answers > ROUNDS / 4);
    ebk_add_path_free(path);
    ebk_tail_free(settings.tail);
    ebk_parked_free(tail_settings.parked);
    ebk_journals_free(settings.journals);
    for (uint32_t i = 0; i < 2; i++) ebk_journal_close(parts[i]);
    ebk_store_close(settings.store);
    ebk_table_free(settings.table);
    ebk_memory_disk_free(disk);
    return 0;
}
