/* store.h: entries by (ledger, entry): write cache, entry logs and their index as one.
 *
 * All calls are made by one thread, the bookie's loop; the thread that
 * ebk_store_flush_start() makes touches only the frozen half of the write cache and its
 * own file. The format of an entry log is embedbk/storage/STORAGE.md.
 *
 *     put ──▶ active half ──freeze──▶ frozen half ──flush──▶ NNNNNNNN.elog
 *               │ newest                │                       │ index, oldest
 *               └───────────────────────┴──────── read ─────────┘
 */
#ifndef EBK_STORE_H
#define EBK_STORE_H

#include "base/gil.h"
#include "io/io.h"
#include "store/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
#define EBK_DIRECTORIES_MAX 16 /* of one store */
#define EBK_MARKS_MAX 16       /* marks of journals beside the log mark */
struct ebk_store;

struct ebk_store_settings {
    uint8_t cluster_token[16], incarnation[16]; /* in every entry log; a log with others is refused */
    uint64_t half_bytes_max;  /* address space of each half of the write cache: no put goes beyond */
    uint64_t half_bytes_kept; /* memory that a half keeps when it is given free, and an eighth more while it can be read */
};

/* Open the entry logs of all directories and read their index. They are numbered as given, from 0; a log may be in any
 * of them. text has room for `room` bytes and says, on an error, which file, where and why. Returns EBK_OK with *store;
 * EBK_DAMAGED, EBK_FOREIGN, EBK_VERSION, EBK_IO, EBK_NO_MEMORY, EBK_USAGE. */
int ebk_store_open(struct ebk_io *io, const char *const *directories, uint32_t directory_count,
                   const struct ebk_store_settings *settings, struct ebk_store **store, char *text, size_t room);
/* Wait for what its threads are at, a slice of a copying too, and give everything back. Entries that are only in the write
 * cache are freed: the journal has them. */
void ebk_store_close(struct ebk_store *store);

/* Whether builds may come back that read entry logs up to version 3: new ones are of that version then, without digests,
 * as long as none of version 4 is there. At first: no. */
EBK_SHORT void ebk_store_set_may_go_back(struct ebk_store *store, bool may_go_back);

/* Damage that was found and could be worked around, one line each, NULL beyond the last. */
EBK_SHORT const char *ebk_store_report(const struct ebk_store *store, uint32_t number);
/* How many entry logs there are, and the states of ledgers in the footer of each, oldest first.
 * Returns bytes; *states is borrowed until ebk_store_forget_states(). */
EBK_SHORT uint32_t ebk_store_log_count(const struct ebk_store *store);
EBK_SHORT uint32_t ebk_store_log_id(const struct ebk_store *store, uint32_t log); /* ascending */
EBK_SHORT uint32_t ebk_store_log_directory(const struct ebk_store *store, uint32_t log);
EBK_SHORT size_t ebk_store_states(const struct ebk_store *store, uint32_t log, const uint8_t **states);
EBK_SHORT void ebk_store_forget_states(struct ebk_store *store);
/* The journal token below and at which everything is in entry logs. */
EBK_SHORT uint64_t ebk_store_mark(const struct ebk_store *store);
/* The marks of several journals, in their own tokens, which add up to the mark; 0 of them where one journal serves.
 * Returns how many; at most EBK_MARKS_MAX. */
EBK_SHORT uint32_t ebk_store_journal_marks(const struct ebk_store *store, uint64_t *marks);
EBK_SHORT uint64_t ebk_store_entry_count(const struct ebk_store *store); /* in entry logs, replaced ones counted too */

/* Copy a checked frame body into the write cache. *copy stays unchanged until its half is released.
 * Returns EBK_OK; EBK_FULL when the half has no room, EBK_NO_MEMORY: nothing was taken. */
EBK_SHORT int ebk_store_put(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, uint32_t count,
                  const uint8_t *body, size_t size, const uint8_t **copy);
/* The ledger was dropped, durably: nothing of it is found any more. Its bytes on disk go with their entry logs. */
EBK_SHORT void ebk_store_drop(struct ebk_store *store, uint64_t ledger_id);
/* The same for every ledger that the table knows as dropped: after a start. */
void ebk_store_drop_dead(struct ebk_store *store, const struct ebk_table *table);
/* Bytes in the write cache that no entry log holds. */
EBK_SHORT uint64_t ebk_store_cached_bytes(const struct ebk_store *store);
EBK_SHORT uint64_t ebk_store_active_bytes(const struct ebk_store *store);
/* A word for ebk_journal_show_busy(), as long as the store lives: while a journal writes, a flush lets it go first,
 * until bytes_max were put since the freeze (yield.h). */
EBK_SHORT void *ebk_store_yield_word(struct ebk_store *store, uint64_t bytes_max);

/* Freeze the active half; puts go to the other one from now. states: of the ledgers that changed since the last
 * freeze (copied). mark: every record up to this journal token is durable, and its content is in the table or in
 * this store; journal_marks: how far each journal is then, where there are several. Returns EBK_OK; EBK_FULL while a
 * frozen half is not released; EBK_NO_MEMORY. */
EBK_SHORT int ebk_store_freeze(struct ebk_store *store, const uint8_t *states, size_t states_size, uint64_t mark,
                               const uint64_t *journal_marks, uint32_t journal_count);
/* Write the frozen half, each ledger into one of the directories whose bits are set: one entry log in each of them that
 * gets a ledger, and at least one. In a thread for each, or at once in the caller's. After a failure it may be called
 * again, with others too: it writes other files under other ids. */
int ebk_store_flush_start(struct ebk_store *store, uint32_t directories);
int ebk_store_flush_now(struct ebk_store *store, uint32_t directories);
/* The result of the last flush that ended in this directory: EBK_OK, also when it wrote nothing there, or an error. */
EBK_SHORT int ebk_store_flush_code(const struct ebk_store *store, uint32_t directory);
/* Becomes readable when a flush that was started has ended, until ebk_store_flush_finish(). */
EBK_SHORT int ebk_store_event_file(const struct ebk_store *store);
/* Take the ended flush in, once all its logs are durable: its entries are in the index, its mark holds. Returns EBK_OK;
 * EBK_FULL while it runs; EBK_END when none was started; or the error of one of its logs (ebk_store_failure() says more),
 * and then none of them counts. */
EBK_SHORT int ebk_store_flush_finish(struct ebk_store *store);
/* Use the frozen half again: it is not borrowed any more (the journal is past it) and its flush is taken in. */
void ebk_store_release(struct ebk_store *store);
EBK_SHORT const char *ebk_store_failure(const struct ebk_store *store);

/* The bytes of one entry log, and how many of them still count. */
struct ebk_log_facts {
    uint32_t log_id, directory;
    bool is_damaged; /* something of it cannot be read: it is never copied from, and never goes */
    bool is_held_back; /* not copied from before a newer log was looked through */
    bool is_rescued;   /* its index is lost on disk, and all of its entries were found: a copy puts it right */
    bool is_leaving; /* nothing of it is needed any more but its ledger states, until the next flush has them */
    uint64_t file_bytes, entries_bytes, live_bytes;
};
/* number: below ebk_store_log_count(), oldest first. */
EBK_SHORT void ebk_store_log_facts(const struct ebk_store *store, uint32_t number, struct ebk_log_facts *facts);

/* A ledger that keeps an entry log: what of it is live there. */
struct ebk_log_keeper {
    uint64_t ledger_id, live_entries, live_bytes;
};
/* Those of log log_id with ids above `after` (-1: all), ascending, at most `most`; returns how many. None: the log is not
 * here, or nothing of it lives. */
EBK_SHORT uint32_t ebk_store_log_keepers(const struct ebk_store *store, uint32_t log_id, int64_t after,
                                         struct ebk_log_keeper *keepers, uint32_t most);

/* Compaction. Begin to copy what lives of at most 64 entry logs into a new one in `directory`; nothing lives: nothing is
 * copied. Returns EBK_OK; EBK_FULL while another copying goes on; EBK_DAMAGED for a log that is none, damaged or
 * leaving. */
int ebk_store_copy_begin(struct ebk_store *store, const uint32_t *log_ids, uint32_t count, uint32_t directory);
/* Copy about so many bytes more, in a thread of its own or at once. */
int ebk_store_copy_slice(struct ebk_store *store, uint64_t bytes, bool threaded);
/* Becomes readable when a slice has ended, until ebk_store_copy_poll(). */
EBK_SHORT int ebk_store_copy_event_file(const struct ebk_store *store);
/* The slice that ended: 0 more is to be copied, 1 all is in the new log, synced; EBK_FULL while it runs; EBK_END when
 * nothing is copied; or an error, and nothing is copied any more (ebk_store_failure() says more): EBK_DAMAGED, a source
 * is left alone from now on. *bytes: of this slice. */
EBK_SHORT int ebk_store_copy_poll(struct ebk_store *store, uint64_t *bytes);
/* Behind 1: the ledger states of the sources, borrowed until the commit. They must be dirty in the table before the
 * commit, so that the next freeze has the newest ones. Returns bytes. */
EBK_SHORT size_t ebk_store_copy_states(const struct ebk_store *store, const uint8_t **states);
/* The index names the new log from now on, and the sources leave with the next flush. EBK_OK or EBK_NO_MEMORY. */
int ebk_store_copy_commit(struct ebk_store *store);
/* Wait for a running slice and forget what was copied. */
void ebk_store_copy_abandon(struct ebk_store *store);
/* Entry logs that a finished flush made useless: delete them; returns how many of them are gone now. */
EBK_SHORT uint32_t ebk_store_leaving(const struct ebk_store *store);
uint32_t ebk_store_remove_left(struct ebk_store *store);

/* Entry logs of which no copy of the index is whole are looked through while the store serves; until then what may stand in
 * their holes is unreadable. How many of them, and bytes of their holes, are left. */
struct ebk_rebuild_left {
    uint32_t logs;
    uint64_t bytes;
};
EBK_SHORT void ebk_store_rebuild_left(const struct ebk_store *store, struct ebk_rebuild_left *left);
/* Look through about so many bytes more, in a thread of its own or at once. EBK_OK; EBK_END: nothing is left; EBK_FULL while
 * a slice runs or is being taken in; EBK_NO_MEMORY. */
int ebk_store_rebuild_slice(struct ebk_store *store, uint64_t bytes, bool threaded);
/* Becomes readable when a slice has ended, until ebk_store_rebuild_poll(). */
EBK_SHORT int ebk_store_rebuild_event_file(const struct ebk_store *store);
struct ebk_rebuild_piece {
    uint64_t bytes;   /* looked through in the slice */
    uint32_t log_id;  /* of the log */
    bool is_log_over; /* all of it was looked through */
    bool is_whole;    /* and nothing is hidden in it */
};
/* Take in what the slice that ended has found, a part of it at a time: 1 while there is more; EBK_OK: *piece says what it
 * was; EBK_FULL while it runs; EBK_END when none does; EBK_NO_MEMORY, EBK_IO: poll again, or begin a slice again, later
 * (ebk_store_failure() says more). Ledgers that the table knows as dropped stay out; NULL: none is. */
int ebk_store_rebuild_poll(struct ebk_store *store, const struct ebk_table *table, struct ebk_rebuild_piece *piece);
/* Whether an entry first..last of the ledger may stand in what is still to be looked through. */
EBK_SHORT bool ebk_store_may_find(const struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last);
/* The ledgers first..last of which an entry may stand in the hole of this number, of those that are left; false: there are
 * not so many. */
EBK_SHORT bool ebk_store_may_find_ledger(const struct ebk_store *store, uint32_t number, uint64_t *first, uint64_t *last);

enum { EBK_ABSENT_MAX = 512 };
struct ebk_found {
    uint8_t *body; /* NULL: nothing held was found. The caller's, to be given to ebk_found_free() */
    size_t size;
    int64_t first, last; /* of the entries in body */
    uint64_t length;     /* from the header of the last entry */
    uint32_t count;
    uint32_t absent_count;
    int64_t absent[1024]; /* EBK_ABSENT_MAX pairs (first, last), ascending */
};

/* Gather entries first..last with bit (id % modulus) set in residues, 1 <= modulus <= 64, ascending, in one block of
 * at most bytes_max bytes (the first entry always fits). Every entry in body was checked; an absent range is proven
 * by the index; what is in neither is unreadable or beyond what fitted. from_memory: what the last flush wrote is taken
 * from the write cache while it stands there, and its entry log is not looked at. Returns EBK_OK, EBK_NO_MEMORY, or EBK_WANT
 * where nothing was found and the system had no descriptor or memory to look with: nothing is known then. */
int ebk_store_read(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, size_t bytes_max,
                   uint32_t modulus, uint64_t residues, bool from_memory, struct ebk_found *found);
/* As ebk_store_read() when nothing but memory is needed; else EBK_END, and nothing in *found. */
EBK_SHORT int ebk_store_read_memory(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last,
                                    size_t bytes_max, uint32_t modulus, uint64_t residues, bool from_memory,
                                    struct ebk_found *found);
EBK_SHORT void ebk_found_free(uint8_t *body);

enum { EBK_LACKING_MAX = 64 };
struct ebk_held {
    uint64_t count; /* of the entries asked for: those that the write cache or the index has */
    uint32_t lacking_count;
    int64_t lacking[128]; /* EBK_LACKING_MAX pairs (first, last), ascending: of the ids in them none that was asked for is
                           * held. The first ones; with more than fit, count says so. No proof that it never was here */
};

/* How many of the ids first..last with bit (id % modulus) set in residues are held, as far as the index knows: no entry
 * is read. Returns EBK_OK, or EBK_NO_MEMORY. */
EBK_SHORT int ebk_store_held(const struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last,
                             uint32_t modulus, uint64_t residues, struct ebk_held *held);

enum { EBK_BAD_MAX = 64 };
struct ebk_sums {
    bool is_told; /* else nothing is known of the digests: too much had to be read, or something of it is bad */
    uint32_t bad_count;
    int64_t bad[64]; /* EBK_BAD_MAX ids, ascending: their bytes were read, and are not what the index says */
    uint64_t digests[64]; /* for each bit of residues, ascending */
    uint64_t bytes_read;
};

/* The digests of those (entry_digest.h): a sum for each residue. What neither index nor write cache knows is read, at most
 * bytes_max bytes, but one entry always. by_bytes: all of it is read and checked. Returns EBK_OK, or EBK_NO_MEMORY. */
int ebk_store_sum(struct ebk_store *store, uint64_t ledger_id, int64_t first, int64_t last, uint32_t modulus,
                  uint64_t residues, size_t bytes_max, bool by_bytes, struct ebk_sums *sums);
/* cffi:end */

#endif
