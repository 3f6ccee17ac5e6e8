/* store_inside.h: the store itself, shared by the files of the entry store; no other file includes it. */
#ifndef EBK_STORE_INSIDE_H
#define EBK_STORE_INSIDE_H

#include "base/yield.h"
#include "io/io.h"
#include "store/store.h"
#include "store/store_format.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the store (store.c, store_flush.c) ------------------------------------------------ */

#define EBK_OPEN_LOGS_MAX 64u
#define EBK_REPORTS_MAX 64u
#define EBK_REPORT_BYTES 256

enum ebk_flush_state { EBK_FLUSH_NONE, EBK_FLUSH_RUNNING, EBK_FLUSH_ENDED };

/* Input and results of writing one log of a flush; its thread touches this and the frozen half, nothing else. */
struct ebk_flush {
    struct ebk_io *io;
    const char *directory;
    uint32_t directory_number;
    const struct ebk_cache *cache;
    uint32_t slot, slot_count; /* the ledgers of the cache that it writes: those with this slot */
    struct ebk_descriptor descriptor; /* version, log_id, previous_id, token, incarnation, mark, states_size, parts on entry */
    uint8_t *states; /* with the roll behind them; empty in all but the first log of a flush */
    uint8_t *index;  /* out: the index section */
    int result;
    char text[EBK_REPORT_BYTES];
    struct ebk_store *store; /* notified by its thread when it ends */
    pthread_t thread;
    bool has_thread;
};

/* Where a ledger goes among `count` places. The same for ever, as long as there are as many; nothing relies on it. */
static inline uint32_t ebk_ledger_slot(uint64_t ledger_id, uint32_t count)
{
    return count <= 1 ? 0 : ebk_id_map_hash(ledger_id) % count;
}
static inline bool ebk_flush_takes(const struct ebk_flush *flush, const struct ebk_cached_ledger *ledger)
{
    return ledger->count > 0 && ebk_ledger_slot(ledger->ledger_id, flush->slot_count) == flush->slot;
}

struct ebk_store {
    struct ebk_io *io;
    char (*directories)[EBK_DIRECTORY_BYTES];
    uint32_t directory_count;
    struct ebk_store_settings settings;
    bool may_go_back; /* ebk_store_set_may_go_back() */
    struct ebk_cache halves[2];
    uint32_t active; /* which half takes puts */
    bool is_frozen;  /* the other half is written, or the journals still borrow it */
    bool is_flushed; /* all that stands in it is in entry logs: from the end of its flush until the next freeze */
    struct ebk_index index;
    struct ebk_log **logs; /* ascending ids */
    uint32_t log_count, log_capacity, open_count;
    uint64_t clock; /* of uses of files */
    uint32_t log_id_last; /* highest ever seen, also of unfinished files */
    uint32_t roll_id; /* of the newest log with a roll, as the start found it; 0: there was none */
    uint64_t mark, entry_count;
    uint64_t journal_marks[EBK_MARKS_MAX]; /* that go with mark */
    uint32_t journal_count;
    struct ebk_hole *holes; /* of logs: entries with unknown ids, so that no id that may have stood there is absent */
    uint32_t hole_count;
    struct ebk_scan *scan; /* of a hole that is being looked through (store_rebuild.c), or NULL */
    char reports[EBK_REPORTS_MAX][EBK_REPORT_BYTES];
    uint32_t report_count;
    uint64_t freeze_count;
    _Atomic uint32_t yield_word; /* yield.h */
    uint64_t yield_bytes_max;
    bool is_pressed; /* so much was put since the freeze that a flush yields no more */
    uint8_t *frozen_states; /* of the ledgers that changed before the freeze */
    size_t frozen_states_size;
    uint64_t frozen_mark, frozen_marks[EBK_MARKS_MAX];
    uint32_t frozen_marks_count;
    struct ebk_flush flushes[EBK_DIRECTORIES_MAX]; /* one for each log of the flush that goes on */
    uint32_t flush_count;
    _Atomic uint32_t flush_left; /* of its logs, are being written */
    _Atomic int flush_state;
    char failure[EBK_DIRECTORY_BYTES + EBK_REPORT_BYTES];
    struct ebk_copy *copy; /* the compaction that goes on (store_copy.c), or NULL */
    int event_file, copy_event_file, rebuild_event_file;
    struct ebk_piece *pieces; /* the plan of the read that is going on; kept between reads */
    uint32_t piece_capacity;
};

/* Of the next entry log that is written. */
uint32_t ebk_store_log_version(const struct ebk_store *store);

/* Write what the flush takes of its cache as one entry log; fills result, text, index and the rest of the descriptor. */
void ebk_log_flush(struct ebk_flush *flush);

/* Writes front to back in whole chunks from one aligned buffer: direct where the file system takes it, so that a
 * flush neither fills the page cache nor makes a sync of it long beside the journal's. */
struct ebk_log_writer {
    struct ebk_io *io;
    const char *path;
    int file;
    bool is_direct;
    uint8_t *chunk;
    size_t used;
    uint64_t offset; /* of the chunk in the file */
    _Atomic uint32_t *yields; /* to journals, before each chunk (yield.h); NULL: to none */
};

/* The parts of writing a log, for what does it piece by piece: sums and sizes, once index and states are there; the file;
 * what stands before the entries; what stands behind them; sync and close; the final name. Those that answer int64_t
 * give 0 or -errno, those that answer int a code, and text says more. */
void ebk_log_seal(struct ebk_flush *flush);
int ebk_log_create(struct ebk_flush *flush, struct ebk_log_writer *writer, const char *path, uint8_t *chunk);
int64_t ebk_log_write_head(struct ebk_log_writer *writer, const struct ebk_flush *flush);
int64_t ebk_log_append(struct ebk_log_writer *writer, const void *bytes, size_t size);
int64_t ebk_log_append_zeros(struct ebk_log_writer *writer, uint64_t until);
int64_t ebk_log_write_out(struct ebk_log_writer *writer);
int64_t ebk_log_write_tail(struct ebk_log_writer *writer, const struct ebk_flush *flush);
int ebk_log_end(struct ebk_flush *flush, struct ebk_log_writer *writer, int64_t written);
int ebk_log_publish(struct ebk_flush *flush, const char *tmp);
int ebk_log_fail(struct ebk_flush *flush, const char *what, int64_t error);

/* store_index.c: put the runs of a log's index section into the index; EBK_DAMAGED when they are not sound. frozen: NULL, or the
 * half that was written as this log; ledgers dropped meanwhile stay out. */
int ebk_store_index_log(struct ebk_store *store, struct ebk_log *log, const struct ebk_cache *frozen);

/* ---- the logs of a store (store_logs.c) --------------------------------------------------- */

/* Report a log because of which the start is refused, or in spite of which it continues. refuse returns code. */
__attribute__((format(printf, 5, 6)))
int ebk_store_refuse(char *text, size_t room, int code, const struct ebk_log *log, const char *format, ...);
__attribute__((format(printf, 3, 4)))
void ebk_store_tell(struct ebk_store *store, const struct ebk_log *log, const char *format, ...);
int ebk_store_add_log(struct ebk_store *store, struct ebk_log *log); /* in its place by id */
/* Open the log's file if it is not; -errno when that fails. */
int ebk_store_log_file(struct ebk_store *store, struct ebk_log *log);
void ebk_log_free(struct ebk_log *log);

/* ---- one log read from its file (store_source.c) ------------------------------------------ */

/* A log's file while it is read in. */
struct ebk_log_source {
    struct ebk_io *io;
    int file;
    uint64_t size;
    int *error; /* takes -errno of what the system refuses; NULL: nobody asks */
};
bool ebk_log_read_whole(const struct ebk_log_source *source, void *to, size_t size, uint64_t offset);
int ebk_log_read_descriptor(const struct ebk_log_source *source, uint64_t offset, struct ebk_descriptor *descriptor);
/* Block by block; what cannot be read, and looks like damage then, is zeros. */
void ebk_log_read_blocks(const struct ebk_log_source *source, uint8_t *to, uint64_t size, uint64_t offset);
/* A section's bytes in memory of their own, or NULL when they cannot be read or fail their checksum. */
uint8_t *ebk_log_read_section(const struct ebk_log_source *source, const struct ebk_descriptor *descriptor, uint64_t offset,
                              uint64_t size, uint32_t crc);
/* The whole states section of a log, checked, from either copy; NULL when neither is sound, or memory was refused. */
uint8_t *ebk_log_read_states(struct ebk_io *io, int file, const struct ebk_descriptor *descriptor);

/* ---- what is not known of logs (store_holes.c, store_rebuild.c) ------------------------------ */

/* Bytes of the entries of a log that no index covers. Only ids between those of the neighbours can stand there; with none
 * before it, the ledger is 0 and the entry -1, with none behind it both are the highest. */
struct ebk_hole {
    uint64_t begin, end; /* in the file */
    uint64_t ledger_before, ledger_behind;
    int64_t id_before, id_behind;
    struct ebk_log *log;
    bool is_pending; /* it is still to be looked through */
};
int ebk_store_add_hole(struct ebk_store *store, const struct ebk_hole *hole);
/* Forget the holes of a log: nothing is hidden in it. */
void ebk_store_close_holes(struct ebk_store *store, const struct ebk_log *log);
bool ebk_store_is_dark(const struct ebk_store *store, const struct ebk_log *log); /* whether it has holes */
/* Whether a newer log has a hole that is still looked through: a copy of this one's entries would be newer than those. */
bool ebk_store_is_held_back(const struct ebk_store *store, uint32_t log_id);
/* The first pending hole of the newest log that has one; hole_count: there is none. */
uint32_t ebk_store_next_hole(const struct ebk_store *store);
/* A run of what a scan found of the log, as ebk_run_read(). */
bool ebk_found_run_read(struct ebk_log *log, const uint8_t **at, const uint8_t *end, uint64_t *ledger_id, struct ebk_run *run);
/* All of the log's holes were looked through, or it has none: is it whole? */
void ebk_store_judge_log(struct ebk_store *store, struct ebk_log *log);
/* Waits for a running slice, and forgets where it was. */
void ebk_store_rebuild_end(struct ebk_store *store);

/* ---- the start (store_load.c, store_roll.c) ---------------------------------- */

/* Read all entry logs of the directories into the store. */
int ebk_store_load(struct ebk_store *store, char *text, size_t room);


/* The logs that are there, and those of them that count (store_roll.c). */
struct ebk_log_place {
    uint32_t log_id, directory;
};
struct ebk_log_list {
    struct ebk_log_place *places; /* ascending ids */
    uint32_t count; /* to be loaded */
    uint32_t all;   /* those from places[count] on are on no roll any more */
    const struct ebk_log_place *unread; /* it may have the newest roll, and cannot be read; NULL: none. Its load has the words */
};
/* List the directories, and apply the newest roll. On an error text has the reason; clear it in any case. */
int ebk_log_list_read(struct ebk_store *store, struct ebk_log_list *list, char *text, size_t room);
void ebk_log_list_clear(struct ebk_log_list *list);
/* All logs are loaded: remove what a crash has left. */
void ebk_log_list_tidy(struct ebk_store *store, const struct ebk_log_list *list);
/* All logs are loaded: the log mark is that of the newest flush of which every log is there (I45). */
int ebk_store_settle_mark(struct ebk_store *store, char *text, size_t room);

/* store_copy.c: waits for its thread. */
void ebk_copy_free(struct ebk_copy *copy);
/* store_flush.c: waits for a running flush and forgets it. */
void ebk_store_flush_end(struct ebk_store *store);

#endif
