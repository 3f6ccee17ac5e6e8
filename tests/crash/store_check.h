/* store_check.h: entries, entry logs and journals for the C checks of this folder, and the truth about them.
 *
 * Everything is drawn from a seed; what an entry or record holds follows from its numbers, so that any answer can be
 * judged. Kept in a header: each check is one program.
 */
#ifndef EBK_STORE_CHECK_H
#define EBK_STORE_CHECK_H

#include "base/bytes.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "io/io.h"
#include "journal/journal_inside.h"
#include "store/store_inside.h"
#include "wire/frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOURNAL_FILE_BYTES 65536u
#define NAMES_BYTES 8192
#define ENTRIES_PER_LEDGER 64
#define RECORDS_MAX 256u
#define RECORD_BYTES_MAX 5000u

static const uint8_t TOKEN[16] = "token", INCARNATION[16] = "incarnation";
static uint64_t state = 1;

static inline uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

/* ---- entries ---------------------------------------------------------------------- */

static uint32_t payload_base; /* Sizes are payload_base to payload_base + 6. */

static inline uint32_t payload_bytes(int64_t id)
{
    return payload_base + (uint32_t)(id % 7);
}

static inline uint64_t length_up_to(int64_t id)
{
    uint64_t length = 0;
    for (int64_t i = 0; i <= id; i++) length += payload_bytes(i);
    return length;
}

/* The entry of these numbers; returns its size. */
static inline size_t make_entry(uint8_t *to, uint64_t ledger_id, int64_t id)
{
    const uint32_t payload = payload_bytes(id);
    memset(to, 0, EBK_ENTRY_HEADER_BYTES);
    to[EBK_ENTRY_AT_VERSION] = EBK_ENTRY_VERSION;
    ebk_store_u32(to + EBK_ENTRY_AT_PAYLOAD_SIZE, payload);
    ebk_store_u64(to + EBK_ENTRY_AT_LEDGER, ledger_id);
    ebk_store_u64(to + EBK_ENTRY_AT_ENTRY, (uint64_t)id);
    ebk_store_u64(to + EBK_ENTRY_AT_LENGTH, length_up_to(id));
    ebk_store_u64(to + EBK_ENTRY_AT_LAC, (uint64_t)(id - 1));
    ebk_store_u64(to + EBK_ENTRY_AT_LAC_LENGTH, length_up_to(id - 1));
    for (uint32_t i = 0; i < payload; i++)
        to[EBK_ENTRY_HEADER_BYTES + i] = (uint8_t)(ledger_id * 31 + (uint64_t)id * 7 + i * (i >> 5));
    const size_t checked = EBK_ENTRY_HEADER_BYTES + payload;
    ebk_store_u32(to + checked, ebk_crc32c(0, to, checked));
    return checked + EBK_ENTRY_CRC_BYTES;
}

/* The entries of all ledgers as they stand one behind the other in the log, made once. */
static uint8_t *truth;
static size_t truth_at[ENTRIES_PER_LEDGER + 1]; /* Of an entry in its ledger's part. */

static inline void make_truth(uint32_t ledger_count)
{
    for (int64_t id = 0; id < ENTRIES_PER_LEDGER; id++)
        truth_at[id + 1] = truth_at[id] + EBK_ENTRY_OVERHEAD_BYTES + payload_bytes(id);
    free(truth);
    truth = malloc(ledger_count * truth_at[ENTRIES_PER_LEDGER]);
    EBK_ASSERT(truth != NULL);
    for (uint64_t ledger = 1; ledger <= ledger_count; ledger++)
        for (int64_t id = 0; id < ENTRIES_PER_LEDGER; id++)
            make_entry(truth + (ledger - 1) * truth_at[ENTRIES_PER_LEDGER] + truth_at[id], ledger, id);
}

static inline bool is_right(const uint8_t *entry, uint64_t ledger, int64_t id, size_t size)
{
    if (id < 0 || id >= ENTRIES_PER_LEDGER || truth_at[id + 1] - truth_at[id] != size) return false;
    return memcmp(truth + (ledger - 1) * truth_at[ENTRIES_PER_LEDGER] + truth_at[id], entry, size) == 0;
}

/* ---- a store ------------------------------------------------------------------------ */

static inline struct ebk_store *open_store(struct ebk_memory_disk *disk)
{
    struct ebk_store_settings settings = {.half_bytes_max = 24u << 20, .half_bytes_kept = 1u << 20};
    memcpy(settings.cluster_token, TOKEN, 16);
    memcpy(settings.incarnation, INCARNATION, 16);
    const char *directory = "e";
    struct ebk_store *store;
    char text[512];
    const int code = ebk_store_open(ebk_memory_disk_io(disk), &directory, 1, &settings, &store, text, sizeof text);
    if (code != EBK_OK) return NULL;
    struct ebk_rebuild_piece piece; /* What lost indexes located is looked for, as a host does it while it serves. */
    static uint64_t slice_bytes;
    while (ebk_store_rebuild_slice(store, 1 + (slice_bytes += 977) % 8192, false) == EBK_OK)
        while (ebk_store_rebuild_poll(store, NULL, &piece) == 1) continue;
    return store;
}

/* One entry log, e/00000001.elog, with ledgers 1 to ledger_count; half of them fenced. */
static inline void make_log(struct ebk_memory_disk *disk, uint32_t ledger_count)
{
    make_truth(ledger_count);
    const size_t size = truth_at[ENTRIES_PER_LEDGER];
    uint8_t *states = calloc(ledger_count, 56);
    EBK_ASSERT(states != NULL && ebk_io_make_directory(ebk_memory_disk_io(disk), "e") == 0);
    struct ebk_store *store = open_store(disk);
    EBK_ASSERT(store != NULL);
    for (uint64_t ledger = 1; ledger <= ledger_count; ledger++) {
        const uint8_t *copy, *frame = truth + (ledger - 1) * size;
        const int put = ebk_store_put(store, ledger, 0, ENTRIES_PER_LEDGER - 1, ENTRIES_PER_LEDGER, frame, size, &copy);
        EBK_ASSERT(put == EBK_OK);
        uint8_t *row = states + (ledger - 1) * 56;
        ebk_store_u64(row, ledger);
        ebk_store_u64(row + 8, ENTRIES_PER_LEDGER - 1);
        ebk_store_u64(row + 16, UINT64_MAX);
        row[48] = ledger % 2;
    }
    EBK_ASSERT(ebk_store_freeze(store, states, (size_t)ledger_count * 56, 1, NULL, 0) == EBK_OK);
    EBK_ASSERT(ebk_store_flush_now(store, 1) == EBK_OK);
    EBK_ASSERT(ebk_store_flush_finish(store) == EBK_OK);
    ebk_store_release(store);
    ebk_store_close(store);
    free(states);
}

/* Read first..last of a ledger and judge every answer. Returns how many are held; *absent how many are denied. */
static inline uint32_t judge_read(struct ebk_store *store, uint64_t ledger, int64_t first, int64_t last, uint32_t *absent)
{
    static struct ebk_found found;
    uint32_t held = 0;
    *absent = 0;
    while (first <= last) {
        EBK_ASSERT(ebk_store_read(store, ledger, first, last, 1u << 20, 1, 1, false, &found) == EBK_OK);
        int64_t reached = first;
        const uint8_t *at = found.body;
        for (uint32_t i = 0; i < found.count; i++) {
            const uint32_t size = ebk_cache_entry_size(at);
            EBK_ASSERT(ebk_load_u64(at + EBK_ENTRY_AT_LEDGER) == ledger);
            EBK_ASSERT(is_right(at, ledger, ebk_cache_entry_id(at), size));
            reached = ebk_cache_entry_id(at) + 1;
            EBK_ASSERT(reached > first && reached - 1 <= last);
            held += 1;
            at += size;
        }
        EBK_ASSERT(at == found.body + found.size || found.body == NULL);
        for (uint32_t i = 0; i < found.absent_count; i++) {
            EBK_ASSERT(found.absent[2 * i] <= found.absent[2 * i + 1]);
            *absent += (uint32_t)(found.absent[2 * i + 1] - found.absent[2 * i] + 1);
            if (found.absent[2 * i + 1] >= reached) reached = found.absent[2 * i + 1] + 1;
        }
        ebk_found_free(found.body);
        if (reached == first) break;
        first = reached;
    }
    return held;
}

/* ---- a journal ---------------------------------------------------------------------- */

static inline struct ebk_journal *open_journal(struct ebk_memory_disk *disk)
{
    struct ebk_journal_settings settings = {.file_bytes = JOURNAL_FILE_BYTES, .identity = "check"};
    struct ebk_journal *journal;
    struct ebk_journal_fault fault;
    const int code = ebk_journal_open(ebk_memory_disk_io(disk), "j", &settings, &journal, &fault);
    return code == EBK_OK ? journal : NULL;
}

/* What record `token` holds, made once; its size follows from the token too. */
static uint8_t record_truth[RECORDS_MAX][RECORD_BYTES_MAX];

static inline size_t record_size(uint64_t token)
{
    return (size_t)(token * 977 % RECORD_BYTES_MAX);
}

static inline const uint8_t *make_record(uint64_t token)
{
    EBK_ASSERT(token < RECORDS_MAX);
    for (size_t i = 0; i < record_size(token); i++) record_truth[token][i] = (uint8_t)(token * 131 + i * (i >> 7));
    return record_truth[token];
}

/* Groups of one to three records over several files. Returns the last token; *last_first: the first of the last group. */
static inline uint64_t make_journal(struct ebk_memory_disk *disk, uint32_t groups, uint64_t *last_first)
{
    struct ebk_journal *journal = open_journal(disk);
    EBK_ASSERT(journal != NULL);
    uint64_t token = 0;
    for (uint32_t group = 0; group < groups; group++) {
        *last_first = token + 1;
        for (uint32_t i = 0; i <= group % 3; i++) {
            token += 1;
            const uint8_t *body = make_record(token);
            const int64_t given = ebk_journal_submit(journal, 1 + token % 6, token, body, record_size(token), NULL, 0);
            EBK_ASSERT(given == (int64_t)token);
        }
        while (ebk_journal_durable(journal) < token) EBK_ASSERT(ebk_journal_step(journal) >= 0);
        ebk_journal_step(journal); /* Idle: the next file is prepared. */
    }
    ebk_journal_close(journal);
    return token;
}

/* Open and replay; every record is the one of its token. Returns the last token, or -1 when it was refused. */
static inline int64_t judge_journal(struct ebk_memory_disk *disk, bool is_content_ours)
{
    struct ebk_io *io = ebk_memory_disk_io(disk);
    struct ebk_journal *journal = open_journal(disk);
    if (journal == NULL) {
        EBK_ASSERT(io->sync_directory(io, "j") == 0); /* As below: thousands of refused starts in a row. */
        return -1;
    }
    struct ebk_replay *replay;
    struct ebk_journal_fault fault;
    struct ebk_record records[16];
    int64_t last = 0, count = ebk_replay_open(journal, 0, &replay, &fault);
    if (count == EBK_OK)
        while ((count = ebk_replay_next(replay, records, 16, &fault)) > 0)
            for (int64_t i = 0; i < count; i++) {
                last += 1;
                if (!is_content_ours) continue;
                EBK_ASSERT(records[i].token == (uint64_t)last && records[i].ledger_id == records[i].token);
                EBK_ASSERT(records[i].kind == 1 + records[i].token % 6);
                EBK_ASSERT(records[i].token < RECORDS_MAX && records[i].size == record_size(records[i].token));
                EBK_ASSERT(memcmp(records[i].data, record_truth[records[i].token], records[i].size) == 0);
            }
    ebk_replay_close(replay);
    ebk_journal_close(journal);
    EBK_ASSERT(io->sync_directory(io, "j") == 0); /* What the open has made and removed does not pile up. */
    return count < 0 ? -1 : last;
}

/* ---- files -------------------------------------------------------------------------- */

static inline uint8_t *read_whole(struct ebk_memory_disk *disk, const char *path, size_t *size)
{
    const int64_t bytes = ebk_memory_disk_read(disk, true, path, NULL, 0);
    EBK_ASSERT(bytes >= 0);
    uint8_t *content = malloc((size_t)bytes + 1);
    EBK_ASSERT(content != NULL);
    ebk_memory_disk_read(disk, true, path, content, (size_t)bytes);
    *size = (size_t)bytes;
    return content;
}

#endif
