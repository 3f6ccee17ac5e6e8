/* probe.c: the raw device and the journal at depth 1, driven from C. */
#define _GNU_SOURCE
#include "journal/probe.h"

#include "base/errors.h"
#include "base/futex.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KICK_EVERY 64u    /* as a host that submits a turn's frames and then kicks */
#define REPLAY_RECORDS 256

struct ebk_probe {
    struct ebk_io *io;
    uint64_t file_bytes, offset;
    uint32_t write_bytes;
    bool direct, dsync;
    int file;
    uint8_t *block;
    pthread_t thread;
    _Atomic uint32_t asked, done; /* futexes; write number `done` is durable */
    _Atomic bool stop;
    _Atomic int error;
};

static void write_one(struct ebk_probe *probe)
{
    if (probe->offset + probe->write_bytes > probe->file_bytes) probe->offset = 0;
    int64_t wrote = probe->io->write(probe->io, probe->file, probe->block, probe->write_bytes, probe->offset);
    int synced = wrote < 0 || probe->dsync ? 0 : probe->io->sync(probe->io, probe->file);
    probe->offset += probe->write_bytes;
    if (wrote < 0 || synced < 0) atomic_store(&probe->error, EBK_FAILED);
}

static void *run(void *argument)
{
    struct ebk_probe *probe = argument;
    const struct sched_param parameters = {.sched_priority = 1}; /* As a commit thread asks for. */
    (void)pthread_setschedparam(pthread_self(), SCHED_RR, &parameters);
    for (;;) {
        uint32_t asked = atomic_load(&probe->asked);
        if (atomic_load(&probe->stop)) return NULL;
        if (asked == atomic_load(&probe->done)) {
            ebk_futex_wait(&probe->asked, asked);
            continue;
        }
        write_one(probe);
        atomic_fetch_add(&probe->done, 1);
        ebk_futex_wake(&probe->done);
    }
}

static void release(struct ebk_probe *probe)
{
    if (probe->file >= 0) probe->io->close(probe->io, probe->file);
    free(probe->block);
    free(probe);
}

static int fill(struct ebk_probe *probe, const char *path)
{
    struct ebk_io *io = probe->io;
    int mode = probe->direct ? EBK_OPEN_DIRECT : 0;
    int file = io->open(io, path, EBK_OPEN_WRITE | EBK_OPEN_CREATE | mode);
    if (file < 0 && file != -EEXIST) return file;
    bool is_new = file >= 0; /* Another probe of the same size has made it already. */
    int error = is_new ? io->allocate(io, file, probe->file_bytes) : 0;
    for (uint64_t at = 0; is_new && error == 0 && at < probe->file_bytes; at += probe->write_bytes) {
        int64_t wrote = io->write(io, file, probe->block, probe->write_bytes, at);
        if (wrote < 0) error = (int)wrote;
    }
    if (is_new && error == 0) error = io->sync(io, file);
    if (is_new) io->close(io, file);
    if (error < 0) return error;
    probe->file = io->open(io, path, EBK_OPEN_WRITE | mode | (probe->dsync ? EBK_OPEN_DSYNC : 0));
    return probe->file < 0 ? probe->file : 0;
}

int ebk_probe_open(struct ebk_io *io, const char *path, uint64_t file_bytes, uint32_t write_bytes, bool direct,
                   bool dsync, struct ebk_probe **out)
{
    *out = NULL;
    if (write_bytes == 0 || write_bytes % EBK_IO_ALIGNMENT != 0 || file_bytes % write_bytes != 0) return -EINVAL;
    struct ebk_probe *probe = calloc(1, sizeof *probe);
    if (probe == NULL) return -ENOMEM;
    *probe = (struct ebk_probe){.io = io, .file_bytes = file_bytes, .write_bytes = write_bytes, .direct = direct,
                                .dsync = dsync,
                                .file = -1};
    probe->block = aligned_alloc(EBK_IO_ALIGNMENT, write_bytes);
    int error = probe->block == NULL ? -ENOMEM : 0;
    if (error == 0) {
        memset(probe->block, 0, write_bytes);
        error = fill(probe, path);
    }
    if (error == 0) error = -pthread_create(&probe->thread, NULL, run, probe);
    if (error < 0) {
        release(probe);
        return error;
    }
    memset(probe->block, 0x5A, write_bytes);
    *out = probe;
    return EBK_OK;
}

void ebk_probe_close(struct ebk_probe *probe)
{
    if (probe == NULL) return;
    atomic_store(&probe->stop, true);
    atomic_fetch_add(&probe->asked, 1);
    ebk_futex_wake(&probe->asked);
    pthread_join(probe->thread, NULL);
    release(probe);
}

int ebk_probe_writes(struct ebk_probe *probe, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t done = atomic_load(&probe->done);
        atomic_fetch_add(&probe->asked, 1);
        ebk_futex_wake(&probe->asked);
        while (atomic_load(&probe->done) == done) ebk_futex_wait(&probe->done, done);
        if (atomic_load(&probe->error) != 0) return EBK_FAILED;
    }
    return EBK_OK;
}

int ebk_probe_stream(struct ebk_probe *probe, uint32_t count)
{
    uint32_t begin = atomic_load(&probe->done);
    for (uint32_t i = 0; i <= count; i++) {
        if (i < count) {
            atomic_fetch_add(&probe->asked, 1);
            ebk_futex_wake(&probe->asked);
        }
        uint32_t done, behind = i < count ? 1 : 0; /* One under way and one behind it; at the end none. */
        while (done = atomic_load(&probe->done), done - begin + behind < i) ebk_futex_wait(&probe->done, done);
        if (atomic_load(&probe->error) != 0) return EBK_FAILED;
    }
    return EBK_OK;
}

int ebk_probe_journal(struct ebk_journal *journal, const uint8_t *body, size_t size, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        int64_t token = ebk_journal_submit(journal, 1, 1, body, size, NULL, 0);
        if (token < 0) return (int)token;
        ebk_journal_kick(journal);
        int code = ebk_journal_wait(journal, (uint64_t)token);
        if (code < 0) return code;
    }
    return EBK_OK;
}

int ebk_probe_journal_stream(struct ebk_journal *journal, const uint8_t *body, size_t size, uint32_t count)
{
    int64_t token = 0;
    for (uint32_t i = 0; i < count; i++) {
        while ((token = ebk_journal_submit(journal, 1, 1, body, size, NULL, 0)) == EBK_FULL) {
            ebk_journal_kick(journal);
            uint64_t next = ebk_journal_next_token(journal);
            int code = ebk_journal_wait(journal, next - EBK_JOURNAL_SLOT_COUNT / 2);
            if (code < 0) return code;
            ebk_journal_trim(journal, ebk_journal_durable(journal));
        }
        if (token < 0) return (int)token;
        if (i % KICK_EVERY == 0) ebk_journal_kick(journal);
    }
    ebk_journal_kick(journal);
    return count == 0 ? EBK_OK : ebk_journal_wait(journal, (uint64_t)token);
}

int64_t ebk_probe_replay(struct ebk_journal *journal, uint64_t after)
{
    struct ebk_replay *replay;
    struct ebk_journal_fault fault;
    struct ebk_record records[REPLAY_RECORDS];
    int code = ebk_replay_open(journal, after, &replay, &fault);
    int64_t count = code, bytes = 0;
    while (code == EBK_OK && (count = ebk_replay_next(replay, records, REPLAY_RECORDS, &fault)) > 0)
        for (int64_t i = 0; i < count; i++) bytes += records[i].size;
    ebk_replay_close(replay);
    return count < 0 ? count : bytes;
}
