/* short_transfers.c: the journal on the real disk, whose system calls are interrupted and do less than they were asked.
 *
 * Built by test_short_transfers.py with pread, pwrite and open wrapped by the linker. Every call with O_DIRECT is
 * checked for the alignment of its address, size and offset (I51). Returns 0, or stops where something is wrong.
 */
#define _GNU_SOURCE
#include "base/errors.h"
#include "io/io.h"
#include "journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES 65536
#define RECORD_COUNT 60

ssize_t __real_pread(int file, void *to, size_t size, off_t offset);
ssize_t __real_pwrite(int file, const void *from, size_t size, off_t offset);

static uint64_t state = 1, direct_calls, short_calls, interruptions;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static bool is_direct(int file)
{
    return fcntl(file, F_GETFL) & O_DIRECT;
}

/* How much of it is done this time: of a direct call whole sectors, as devices do; 0: it is interrupted. */
static size_t part_of(int file, const void *memory, size_t size, off_t offset)
{
    if (is_direct(file)) {
        direct_calls += 1;
        EBK_ASSERT((uintptr_t)memory % EBK_IO_ALIGNMENT == 0);
        EBK_ASSERT(size % EBK_IO_ALIGNMENT == 0);
        EBK_ASSERT((uint64_t)offset % EBK_IO_ALIGNMENT == 0);
        if (draw() % 4 != 0) return size;
        interruptions += 1;
        return 0;
    }
    uint64_t chance = draw() % 4;
    if (chance == 0) {
        interruptions += 1;
        return 0;
    }
    short_calls += chance == 1;
    return chance == 1 ? 1 + draw() % size : size;
}

ssize_t __wrap_pread(int file, void *to, size_t size, off_t offset)
{
    size_t part = part_of(file, to, size, offset);
    if (part > 0) return __real_pread(file, to, part, offset);
    errno = EINTR;
    return -1;
}

ssize_t __wrap_pwrite(int file, const void *from, size_t size, off_t offset)
{
    size_t part = part_of(file, from, size, offset);
    if (part > 0) return __real_pwrite(file, from, part, offset);
    errno = EINTR;
    return -1;
}

static bool refuses_direct;
int __real_open(const char *path, int flags, int mode);

int __wrap_open(const char *path, int flags, int mode)
{
    if (draw() % 4 == 0) {
        errno = EINTR;
        return -1;
    }
    if (refuses_direct && (flags & O_DIRECT)) {
        errno = EINVAL;
        return -1;
    }
    return __real_open(path, flags, mode);
}

static struct ebk_journal *open_journal(const char *directory)
{
    struct ebk_journal_settings settings = {.file_bytes = FILE_BYTES, .identity = "short"};
    struct ebk_journal *journal;
    struct ebk_journal_fault fault;
    int code = ebk_journal_open(ebk_io_disk(), directory, &settings, &journal, &fault);
    if (code < 0) fprintf(stderr, "%s: %s (%d)\n", fault.path, fault.reason, fault.system_error);
    EBK_ASSERT(code == EBK_OK);
    return journal;
}

static void live(const char *directory)
{
    static uint8_t body[9000];
    struct ebk_journal *journal = open_journal(directory);
    for (int i = 0; i < RECORD_COUNT; i++) {
        memset(body, i, sizeof body);
        EBK_ASSERT(ebk_journal_submit(journal, 1, 7, body, (size_t)i * 150, NULL, 0) == i + 1);
        EBK_ASSERT(ebk_journal_step(journal) == 1);
    }
    ebk_journal_close(journal);
    journal = open_journal(directory);
    struct ebk_replay *replay;
    struct ebk_journal_fault fault;
    struct ebk_record record;
    EBK_ASSERT(ebk_replay_open(journal, 0, &replay, &fault) == EBK_OK);
    for (int i = 0; i < RECORD_COUNT; i++) {
        EBK_ASSERT(ebk_replay_next(replay, &record, 1, &fault) == 1);
        EBK_ASSERT(record.token == (uint64_t)i + 1 && record.size == (uint32_t)i * 150);
        for (uint32_t at = 0; at < record.size; at++) EBK_ASSERT(record.data[at] == (uint8_t)i);
    }
    EBK_ASSERT(ebk_replay_next(replay, &record, 1, &fault) == 0);
    ebk_replay_close(replay);
    ebk_journal_close(journal);
}

int main(int count, char **arguments)
{
    EBK_ASSERT(count == 3);
    live(arguments[1]);
    refuses_direct = true;
    live(arguments[2]);
    EBK_ASSERT(short_calls > 20 && interruptions > 20);
    printf("%s\n", direct_calls > 20 ? "direct" : "buffered only");
    return 0;
}
