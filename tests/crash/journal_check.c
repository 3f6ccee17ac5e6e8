/* journal_check.c: the journal's own code under the compiler's sanitizers; test_sanitizers.py builds and runs it.
 *
 * What Python tests cannot see: reads one byte too far, a race between submitter and commit thread, memory that
 * is not given back. Prints nothing and returns 0, or stops where the fault is.
 */
#include "base/errors.h"
#include "io/io.h"
#include "journal/journal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES 65536
#define FILE_COUNT_MAX 64
#define NAME_BYTES_MAX 8192

static uint64_t state;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static struct ebk_journal *open_sized(struct ebk_memory_disk *disk, bool threaded, uint64_t file_bytes)
{
    struct ebk_journal_settings settings = {.file_bytes = file_bytes, .threaded = threaded, .identity = "check"};
    struct ebk_journal *journal;
    struct ebk_journal_fault fault;
    int code = ebk_journal_open(ebk_memory_disk_io(disk), "j", &settings, &journal, &fault);
    return code == EBK_OK ? journal : NULL;
}

static struct ebk_journal *open_journal(struct ebk_memory_disk *disk, bool threaded)
{
    return open_sized(disk, threaded, FILE_BYTES);
}

static int64_t append(struct ebk_journal *journal, size_t size)
{
    static uint8_t body[9000];
    return size <= EBK_JOURNAL_COPY_BYTES_MAX ? ebk_journal_submit_copy(journal, 1, 7, body, size)
                                              : ebk_journal_submit(journal, 2, 7, body, size / 2, body, size - size / 2);
}

static uint64_t replay(struct ebk_journal *journal, uint64_t after)
{
    struct ebk_replay *cursor;
    struct ebk_journal_fault fault;
    struct ebk_record records[3];
    uint64_t sum = 0, token = after;
    if (ebk_replay_open(journal, after, &cursor, &fault) == EBK_OK) {
        int64_t count;
        while ((count = ebk_replay_next(cursor, records, 3, &fault)) > 0)
            for (int64_t i = 0; i < count; i++) {
                EBK_ASSERT(records[i].token == ++token);
                for (uint32_t at = 0; at < records[i].size; at++) sum += records[i].data[at];
            }
    }
    ebk_replay_close(cursor);
    return sum;
}

/* What is left of a damaged journal; with luck, a start behind it. */
static void salvage(struct ebk_memory_disk *disk)
{
    struct ebk_journal_settings settings = {.file_bytes = FILE_BYTES, .identity = "check"};
    struct ebk_salvage *found;
    struct ebk_salvage_facts facts;
    struct ebk_journal_fault fault;
    struct ebk_record records[3];
    if (ebk_salvage_open(ebk_memory_disk_io(disk), "j", &settings, draw() % 100, &found, &fault) != EBK_OK) return;
    uint64_t token = 0, sum = 0;
    int64_t count;
    while ((count = ebk_salvage_next(found, records, 3)) > 0)
        for (int64_t i = 0; i < count; i++) {
            EBK_ASSERT(records[i].token > token);
            token = records[i].token;
            for (uint32_t at = 0; at < records[i].size; at++) sum += records[i].data[at];
        }
    ebk_salvage_tell(found, &facts);
    EBK_ASSERT(facts.start_token > token);
    ebk_salvage_close(found);
}

/* Lives of a stepped journal with torn writes, power cuts and trimming. */
static void live(struct ebk_memory_disk *disk)
{
    uint64_t mark = 0;
    for (int life = 0; life < 20; life++) {
        struct ebk_journal *journal = open_journal(disk, false);
        EBK_ASSERT(journal != NULL);
        replay(journal, mark);
        if (draw() % 2) ebk_memory_disk_tear(disk, 1 + draw() % 20, draw() << 20 | draw());
        for (int i = 0; i < 30; i++) {
            append(journal, draw() % 4 ? draw() % 200 : draw() % 9000);
            if (draw() % 2) ebk_journal_step(journal);
            if (draw() % 4 == 0) ebk_journal_trim(journal, mark = ebk_journal_durable(journal));
        }
        ebk_journal_close(journal);
        ebk_memory_disk_crash(disk, draw() % 2 ? draw() + 1 : 0);
    }
}

/* Files with bytes changed at will: opened or refused, never read past their end. */
static void rot(struct ebk_memory_disk *disk)
{
    static uint8_t content[FILE_BYTES], changed[FILE_BYTES];
    char names[NAME_BYTES_MAX];
    int64_t size = ebk_memory_disk_names(disk, true, names, sizeof names);
    for (const char *name = names; name < names + size; name += strlen(name) + 1) {
        int64_t bytes = ebk_memory_disk_read(disk, true, name, content, sizeof content);
        if (bytes < FILE_BYTES) continue;
        for (int i = 0; i < 60; i++) {
            memcpy(changed, content, sizeof changed);
            for (uint64_t n = 1 + draw() % 3; n > 0; n--) {
                uint64_t block = draw() % (FILE_BYTES / 4096) * 4096;
                changed[block + draw() % (draw() % 2 ? 128 : 4096)] ^= (uint8_t)(1 + draw() % 255);
            }
            ebk_memory_disk_put(disk, name, changed, draw() % 8 ? FILE_BYTES : draw() % FILE_BYTES);
            struct ebk_journal *journal = open_journal(disk, false);
            if (journal != NULL) replay(journal, 0);
            ebk_journal_close(journal);
            salvage(disk);
        }
        ebk_memory_disk_put(disk, name, content, FILE_BYTES);
    }
}

static void *submit_many(void *argument)
{
    struct ebk_journal *journal = argument;
    for (int i = 0; i < 500; i++) {
        int64_t token = append(journal, (size_t)i * 7 % 3000);
        EBK_ASSERT(token > 0);
        ebk_journal_kick(journal);
        if (i % 50 == 0) EBK_ASSERT(ebk_journal_wait(journal, (uint64_t)token) == EBK_OK);
    }
    return NULL;
}

/* Two submitters, a trimmer and the journal's own threads at once; close commits the rest. */
static void run_threads(struct ebk_memory_disk *disk)
{
    struct ebk_journal *journal = open_journal(disk, true);
    EBK_ASSERT(journal != NULL);
    uint64_t before = ebk_journal_durable(journal);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) EBK_ASSERT(pthread_create(&threads[i], NULL, submit_many, journal) == 0);
    struct ebk_journal_facts facts;
    struct ebk_journal_fault fault;
    while (ebk_journal_reap(journal) < before + 900) {
        ebk_journal_trim(journal, ebk_journal_durable(journal));
        ebk_journal_facts(journal, &facts);
        EBK_ASSERT(ebk_journal_failure(journal, &fault) == EBK_OK);
        ebk_journal_queued_bytes(journal);
        ebk_journal_kick(journal);
    }
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    ebk_journal_close(journal);
    journal = open_journal(disk, false);
    EBK_ASSERT(journal != NULL);
    EBK_ASSERT(ebk_journal_durable(journal) == before + 1000);
    ebk_journal_close(journal);
}

/* So much is queued that groups are built ahead. */
static void run_ahead(struct ebk_memory_disk *disk)
{
    struct ebk_journal *journal = open_sized(disk, true, 4u << 20);
    EBK_ASSERT(journal != NULL);
    int64_t token = 0;
    for (int i = 0; i < 3000; i++) token = append(journal, 1000);
    ebk_journal_kick(journal);
    EBK_ASSERT(ebk_journal_wait(journal, (uint64_t)token) == EBK_OK);
    struct ebk_journal_facts facts;
    ebk_journal_facts(journal, &facts);
    EBK_ASSERT(facts.overlap_count > 0);
    ebk_journal_close(journal);
    journal = open_sized(disk, false, 4u << 20);
    EBK_ASSERT(journal != NULL);
    replay(journal, 0);
    EBK_ASSERT(ebk_journal_durable(journal) == (uint64_t)token);
    ebk_journal_close(journal);
}

int main(int count, char **arguments)
{
    state = count > 1 ? strtoull(arguments[1], NULL, 10) : 1;
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    live(disk);
    rot(disk);
    ebk_memory_disk_free(disk);
    disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    run_threads(disk);
    ebk_memory_disk_free(disk);
    disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    run_ahead(disk);
    ebk_memory_disk_free(disk);
    return 0;
}
