/* store_format.h: the write cache, entry logs and the index that leads to them, as the files of the entry store see them.
 *
 *     write cache ─flush─▶ entry log: descriptor, states, index section (runs), entries ─start─▶ index: ledger ─▶ runs
 */
#ifndef EBK_STORE_FORMAT_H
#define EBK_STORE_FORMAT_H

#include "base/row_map.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- write cache (store_cache.c) ---------------------------------------------------- */

/* Entries that stand one behind the other in memory, ids ascending. */
struct ebk_span {
    int64_t first, last;
    const uint8_t *bytes;
    uint32_t size, count;
};

/* Its spans (ebk_cached_spans) ascend and do not overlap: the newest copy of an entry is the only one. If there are very
 * many ledgers, most have one span, which is in the row. */
struct ebk_cached_ledger {
    uint64_t ledger_id;
    uint32_t count, capacity; /* capacity 0: at most one, `one` */
    union {
        struct ebk_span one;
        struct ebk_span *many;
    };
    bool is_dropped; /* since it was frozen: not read, and in no index. The loop's thread only */
};

static inline const struct ebk_span *ebk_cached_spans(const struct ebk_cached_ledger *ledger)
{
    return ledger->capacity == 0 ? &ledger->one : ledger->many;
}

struct ebk_cache {
    uint8_t *memory; /* bytes_max of address space, touched as used */
    size_t used, bytes_max;
    struct ebk_cached_ledger *ledgers; /* a mapping that grows without being copied, and is touched as used */
    uint32_t ledger_count, ledger_capacity;
    struct ebk_row_map numbers; /* ledger id to its number in ledgers */
};

int ebk_cache_open(struct ebk_cache *cache, size_t bytes_max);
void ebk_cache_close(struct ebk_cache *cache);
/* Empty it; at most `kept` bytes of its memory stay touched. */
void ebk_cache_reset(struct ebk_cache *cache, size_t kept);
int ebk_cache_put(struct ebk_cache *cache, uint64_t ledger_id, int64_t first, int64_t last, uint32_t count,
                  const uint8_t *body, size_t size, const uint8_t **copy);
/* NULL when it holds nothing of the ledger, or nothing that counts any more. */
const struct ebk_cached_ledger *ebk_cache_find(const struct ebk_cache *cache, uint64_t ledger_id);
/* Forget what was put of a ledger. A frozen cache, which a flush may be reading, keeps the bytes and shows them to
 * nobody; may_change: it is not frozen. */
void ebk_cache_drop(struct ebk_cache *cache, uint64_t ledger_id, bool may_change);
/* Order the ledgers by id; the cache only serves reads from then on. */
void ebk_cache_sort(struct ebk_cache *cache);
/* Whole size of the entry at `entry`, which was checked before. */
uint32_t ebk_cache_entry_size(const uint8_t *entry);
int64_t ebk_cache_entry_id(const uint8_t *entry);

/* ---- entry logs (store_log.c writes, store_load.c and store_roll.c read) --------------- */

#define EBK_LOG_BLOCK_BYTES 4096u
#define EBK_LOG_DESCRIPTOR_BYTES 128u
#define EBK_LOG_RUN_BYTES 56u
#define EBK_LOG_RUN_CRC_BYTES 4u /* at the end of a run, from version 3 on */
#define EBK_RUN_AT_SUMMED 54     /* in the head of a run: 1: its digests are known */
#define EBK_RUN_DIGESTS_MAX 64u
#define EBK_LOG_VERSION_ONE 1u   /* read only: a log that is a whole flush, or a compaction's */
#define EBK_LOG_VERSION_PARTS 2u /* read only: one of several that are a flush together, or with marks of several journals */
#define EBK_LOG_VERSION_TWICE 3u /* the index stands before the entries and behind them, and each run has its CRC */
#define EBK_LOG_VERSION 4u       /* the newest: each run has room for the digests of its entries, too */
#define EBK_LOG_CHUNK_BYTES (1u << 20) /* of one write of an entry log */
#define EBK_LOG_STATE_BYTES 56u /* of a ledger state, of a journal's mark, and of an item of the roll */
#define EBK_LOG_NAME_BYTES 32
#define EBK_PATH_BYTES_MAX 1024
#define EBK_DIRECTORY_BYTES (EBK_PATH_BYTES_MAX - EBK_LOG_NAME_BYTES)
#define EBK_RUN_ENTRIES_MAX 1024u
#define EBK_CODED_BYTES_MAX 15u /* of one entry of a run: its id's distance (10) and its size's difference (5) */
#define EBK_RUN_GAP_MAX 64 /* A wider gap between ids begins another run. */
#define EBK_MODULUS_MAX 64u
#define EBK_LOG_ID_MAX UINT32_MAX

/* A run of the index (STORAGE.md section 3). */
struct ebk_run {
    int64_t first, last;
    uint64_t offset; /* of its first entry in the file */
    uint64_t residues;
    const uint8_t *coded; /* ids and sizes as varints, in the log's index block */
    uint8_t *digests;     /* behind them there, one for each residue, ascending; NULL: the log has no room for them */
    struct ebk_log *log;
    uint32_t bytes, count, coded_size;
    uint8_t modulus;     /* 1: dense; 2 to 64: the ids with id % modulus in residues; 0: ids are coded */
    uint8_t sizes_equal; /* each entry has bytes / count bytes */
};

struct ebk_descriptor { /* The numbers of the descriptor, in the order in which they are stored. */
    uint32_t version, log_id, previous_id;
    uint8_t cluster_token[16], incarnation[16];
    uint64_t mark;
    uint64_t states_size, entries_size, entry_count, index_size, file_size;
    uint32_t run_count, ledger_count, states_crc, index_crc, roll_count;
    uint32_t journal_count; /* marks of journals, between the ledger states and the roll; 0: one journal, `mark` is its own */
    uint32_t part, part_count; /* of its flush: log_id - part is the id of the first; states and roll are in that one */
};

struct ebk_log {
    struct ebk_descriptor descriptor;
    uint32_t directory;
    uint8_t *states; /* NULL once they were forgotten */
    uint8_t *index;  /* the index section; runs point into it */
    int file;        /* -1: not open */
    uint64_t used_at;
    uint64_t live_bytes; /* of its runs that are in the index */
    uint64_t leaves_with; /* the freeze whose flush removes it; 0: it stays */
    bool is_damaged;      /* something of it could not be read: it is never copied from, and never goes */
    struct ebk_rescue *rescue; /* no copy of its index is whole; NULL: one is */
};

/* Runs that a scan found, as an index section of the newest version would have them, without their sums. */
struct ebk_found_runs {
    uint8_t *bytes;
    size_t size;
};

/* What is known of a log of which no copy of the index is whole (store_rebuild.c). */
struct ebk_rescue {
    size_t joined;               /* bytes of the runs in its index block */
    struct ebk_found_runs *found; /* and of its other runs, slice by slice; runs point into them */
    uint32_t found_count;
    uint64_t entries; /* of all these runs */
    bool is_filled;   /* no hole that was looked through has bytes that are not understood */
    bool is_whole;    /* everything that was in it is found: nothing is hidden there, and a copy puts it right */
};

/* ---- what stands in a log (store_descriptor.c) ------------------------------------------ */

/* DIRECTORY/NNNNNNNN.elog, with .tmp behind it while it is written. */
void ebk_log_path(const char *directory, uint32_t log_id, bool is_tmp, char *path);
/* The bytes of a descriptor, with its checksum, and back; 0, or the reason as EBK_DAMAGED / EBK_VERSION. */
void ebk_descriptor_write(const struct ebk_descriptor *descriptor, uint8_t *to);
int ebk_descriptor_read(struct ebk_descriptor *descriptor, const uint8_t *from);
/* Whether the sections lie one behind the other inside a file of file_size bytes. */
bool ebk_descriptor_is_possible(const struct ebk_descriptor *descriptor);
/* Checksum of a section, bound to the file that it stands in. */
uint32_t ebk_section_crc(const struct ebk_descriptor *descriptor, const uint8_t *bytes, size_t size);
uint32_t ebk_section_seed(const struct ebk_descriptor *descriptor); /* what it goes on from */
/* From version 3 on the index stands before the entries too. */
static inline uint64_t ebk_first_index_offset(const struct ebk_descriptor *descriptor)
{
    return EBK_LOG_BLOCK_BYTES + descriptor->states_size;
}
static inline uint64_t ebk_entries_offset(const struct ebk_descriptor *descriptor)
{
    return ebk_first_index_offset(descriptor) + (descriptor->version >= EBK_LOG_VERSION_TWICE ? descriptor->index_size : 0);
}
static inline uint64_t ebk_entries_end(const struct ebk_descriptor *descriptor)
{
    return ebk_entries_offset(descriptor) + descriptor->entries_size;
}
/* Bytes of the ledger states alone: marks of journals and the roll follow them. */
static inline size_t ebk_ledger_states_size(const struct ebk_descriptor *descriptor)
{
    return (size_t)descriptor->states_size -
           ((size_t)descriptor->journal_count + descriptor->roll_count) * EBK_LOG_STATE_BYTES;
}
/* Offset of the index behind the entries: from version 3 on in a block of its own, so that no block holds both copies. */
static inline uint64_t ebk_index_offset(const struct ebk_descriptor *descriptor)
{
    const uint64_t end = ebk_entries_end(descriptor);
    if (descriptor->version < EBK_LOG_VERSION_TWICE) return end;
    return (end + EBK_LOG_BLOCK_BYTES - 1) / EBK_LOG_BLOCK_BYTES * EBK_LOG_BLOCK_BYTES;
}
static inline uint64_t ebk_second_states_offset(const struct ebk_descriptor *descriptor)
{
    return ebk_index_offset(descriptor) + descriptor->index_size;
}

/* ---- one run, and cursors (store_run.c) -------------------------------------------------- */

/* The run at *at of the log's index, which moves on to the next one; false when it is not sound. Its own sum is not
 * checked: the caller has checked that of the whole section, or of this run (ebk_runs_join). */
bool ebk_run_read(const struct ebk_log *log, const uint8_t **at, const uint8_t *end, uint64_t *ledger_id,
                  struct ebk_run *run);

/* How many digests a run has: one for each residue that it holds, or one of all, where ids are coded. */
static inline uint32_t ebk_run_digest_count(uint8_t modulus, uint64_t residues)
{
    return modulus == 0 ? 1 : (uint32_t)__builtin_popcountll(residues);
}
/* Bytes behind the coded numbers of a run: its digests and its CRC, as far as the version has them. */
static inline size_t ebk_run_tail_bytes(uint32_t version, uint8_t modulus, uint64_t residues)
{
    if (version < EBK_LOG_VERSION_TWICE) return 0;
    return EBK_LOG_RUN_CRC_BYTES + (version < EBK_LOG_VERSION ? 0 : ebk_run_digest_count(modulus, residues) * sizeof(uint64_t));
}
/* The run's digest that an id belongs to. */
static inline uint32_t ebk_run_digest_of(const struct ebk_run *run, int64_t id)
{
    if (run->modulus == 0) return 0;
    const uint32_t residue = (uint32_t)((uint64_t)id % run->modulus);
    return (uint32_t)__builtin_popcountll(run->residues & ((UINT64_C(1) << residue) - 1));
}
/* Whether its digests are known; the word for that stands in its head, so that all copies of the run share it. */
static inline bool ebk_run_is_summed(const struct ebk_run *run)
{
    return run->digests != NULL && run->coded[EBK_RUN_AT_SUMMED - (int)EBK_LOG_RUN_BYTES] == 1;
}

/* A place in a chain of runs or a list of spans that only moves up. */
struct ebk_cursor {
    const struct ebk_span *spans; /* NULL: a cursor over runs */
    const struct ebk_run *runs;
    uint32_t count, at;    /* spans or runs; which one it stands in */
    uint32_t ordinal;      /* of the entry in its span or run */
    const uint8_t *coded;  /* the next coded number of the run */
    const uint8_t *entry;  /* spans: where the entry stands */
    uint64_t offset;       /* runs: where it stands in the file */
    int64_t id;
    uint32_t size;
};

void ebk_cursor_over_spans(struct ebk_cursor *cursor, const struct ebk_span *spans, uint32_t count, int64_t first);
void ebk_cursor_over_runs(struct ebk_cursor *cursor, const struct ebk_run *runs, uint32_t count, int64_t first);
static inline bool ebk_cursor_has(const struct ebk_cursor *cursor)
{
    return cursor->at < cursor->count;
}
void ebk_cursor_next(struct ebk_cursor *cursor);
/* The last id of those that follow the cursor's without a gap, as its run or span tells without being walked; and the way
 * behind that one. */
int64_t ebk_cursor_block_last(const struct ebk_cursor *cursor);
void ebk_cursor_pass_block(struct ebk_cursor *cursor);
/* Move behind the whole run or span that it stands in. */
void ebk_cursor_pass_run(struct ebk_cursor *cursor);

/* Decode the run whole: ids ascend from first to last, as many as count, sizes possible and adding up to bytes. */
bool ebk_run_is_sound(const struct ebk_run *run);
/* The number coded at *at, before end; *at moves on. False when it is cut short or too large. */
bool ebk_varint_read(const uint8_t **at, const uint8_t *end, uint64_t *value);
/* Returns the bytes written, at most 10. */
uint32_t ebk_varint_write(uint8_t *to, uint64_t value);

/* ---- index (store_index.c) ----------------------------------------------------------- */

/* Runs of one ledger. A chain ascends without overlap; a later chain is newer than all of an earlier one, so that
 * the first chain that holds an id, from the last chain backwards, holds its newest copy. */
struct ebk_chain {
    struct ebk_run *runs;
    uint32_t count, capacity;
};

struct ebk_indexed_ledger {
    uint64_t ledger_id;
    uint32_t count; /* of its chains (ebk_indexed_chains) */
    bool has_many;  /* else at most one, which nearly every ledger has: `one` */
    union {
        struct ebk_chain one;
        struct ebk_chain *many;
    };
};

static inline const struct ebk_chain *ebk_indexed_chains(const struct ebk_indexed_ledger *ledger)
{
    return ledger->has_many ? ledger->many : &ledger->one;
}

struct ebk_index {
    struct ebk_indexed_ledger *ledgers;
    uint32_t ledger_count, ledger_capacity;
    struct ebk_row_map numbers;
};

/* Put runs of one log, all of this ledger, beneath those of newer logs and above those of older ones. EBK_NO_MEMORY: none is
 * put. */
int ebk_index_insert(struct ebk_index *index, uint64_t ledger_id, const struct ebk_run *runs, uint32_t count);
/* Runs of one ledger come in ascending order, logs from the oldest to the newest. */
int ebk_index_add(struct ebk_index *index, uint64_t ledger_id, const struct ebk_run *run);
const struct ebk_indexed_ledger *ebk_index_find(const struct ebk_index *index, uint64_t ledger_id);
/* In these ledgers, runs of logs for which is_old says so give way to those of `log` (NULL: to none), which stand in their
 * place by its number. A ledger that has none of the old ones any more was dropped meanwhile, and stays as it is. */
int ebk_index_replace(struct ebk_index *index, const uint64_t *ledger_ids, uint32_t count,
                      bool (*is_old)(const struct ebk_log *log, const void *context), const void *context,
                      const struct ebk_log *log);
/* Forget runs whose entries are all in newer logs, too. */
int ebk_index_prune(struct ebk_index *index);
/* Forget a ledger; nothing happens when it is not there. */
void ebk_index_drop(struct ebk_index *index, uint64_t ledger_id);
void ebk_index_close(struct ebk_index *index);

/* ---- making an index section (store_runs.c) ------------------------------------------- */

/* The run that is being gathered, and where finished ones go. */
struct ebk_run_maker {
    uint8_t *index; /* grows */
    size_t size, capacity;
    uint32_t run_count;
    uint64_t ledger_id, offset; /* of the next entry in the file */
    int64_t ids[EBK_RUN_ENTRIES_MAX];
    uint32_t sizes[EBK_RUN_ENTRIES_MAX];
    uint64_t digests[EBK_RUN_ENTRIES_MAX]; /* of each entry, while is_summed */
    uint32_t count;
    uint64_t bytes;
    bool is_summed;
};

/* Entries come by ledger, then by id. entry: its bytes, or NULL where they are not at hand: its run has no digests then.
 * All return EBK_OK or EBK_NO_MEMORY. */
int ebk_run_maker_add(struct ebk_run_maker *maker, uint64_t ledger_id, int64_t id, uint32_t size, const uint8_t *entry);
/* Take a whole run over as it is; its entries will stand at maker->offset. */
int ebk_run_maker_copy(struct ebk_run_maker *maker, uint64_t ledger_id, const struct ebk_run *run);
int ebk_run_maker_end(struct ebk_run_maker *maker);
/* The CRC of a run's head, coded numbers and digests, which begin at `at` of its section; seed: ebk_section_seed(). */
uint32_t ebk_run_crc(uint32_t seed, uint64_t at, const uint8_t *bytes, size_t size);
/* Take the digests out of the runs of an index section, for a log of version 3. Returns the size that is left. */
size_t ebk_runs_without_digests(uint8_t *index, size_t size);
/* Finish an index section whose runs were made as if the entries were in its place: they are behind it, and each run
 * gets its sum. */
void ebk_runs_seal(const struct ebk_descriptor *descriptor, uint8_t *index);

/* ---- both copies of an index (store_join.c) -------------------------------------------- */

/* The runs that are sound in one of two copies of a log's index section, in their order, one behind the other at `to`.
 * The copies and `to` have room for index_size bytes; what could not be read is zeros. Returns the bytes at `to`. */
size_t ebk_runs_join(const struct ebk_log *log, const uint8_t *one, const uint8_t *other, uint8_t *to);

#endif
