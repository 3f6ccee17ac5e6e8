/* journal.h: an append-only sequence of records made durable by group commit.
 *
 * One journal is one directory, opened by one handle at a time. A record gets a token;
 * tokens rise by one per record for ever, across restarts, so a token is also the log
 * mark that others store. The format is embedbk/storage/JOURNAL.md.
 *
 * Threads: submit, kick, durable, reap, trim and the facts may be called from any thread.
 * A threaded journal has one commit thread, which never allocates and knows nothing of
 * Python, one that builds the next group when much is queued, and one that prepares files
 * ahead; an unthreaded one is stepped by its caller.
 * open, close and replay belong to one thread.
 *
 * A failed write or sync ends the journal (P7.6): nothing is acknowledged any more, and
 * nothing is tried again; open it anew and replay.
 */
#ifndef EBK_JOURNAL_H
#define EBK_JOURNAL_H

#include "io/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

/* cffi:begin */
#define EBK_JOURNAL_IDENTITY_BYTES 16
#define EBK_JOURNAL_PATH_BYTES 512
#define EBK_JOURNAL_REASON_BYTES 256
#define EBK_JOURNAL_FILE_BYTES_MIN 65536 /* a file smaller than this is refused */
#define EBK_JOURNAL_RECORD_BYTES_MAX 1179648 /* body of one record: a frame of the largest entry, and some */
#define EBK_JOURNAL_COPY_BYTES_MAX 128   /* body that ebk_journal_submit_copy() takes */
#define EBK_JOURNAL_SLOT_COUNT 16384     /* records queued and not yet durable */

struct ebk_journal;
struct ebk_replay;

struct ebk_journal_settings {
    uint64_t file_bytes;      /* of files made from now on; a multiple of 4096 */
    uint64_t file_bytes_max;  /* each file is twice as large as the one before, up to this; 0: file_bytes */
    uint32_t file_count_max;  /* files that are not trimmed yet; 0: 4096 */
    bool threaded;
    bool sync_apart;          /* with direct I/O: a sync behind each write, not O_DSYNC */
    uint8_t identity[16];     /* of a new journal: random bytes; an old one keeps its own */
};

/* Where a call failed and why, for people. */
struct ebk_journal_fault {
    int code;         /* of errors.h */
    int system_error; /* errno, or 0 */
    uint64_t offset;
    char path[512];
    char reason[256];
};

struct ebk_journal_facts {
    bool direct;              /* past the page cache; else buffered writes and fdatasync */
    bool dsync;               /* the write itself is synced (O_DSYNC); else fdatasync behind it */
    bool realtime;            /* the commit thread got its real-time class */
    bool is_file_ready;       /* the next file is prepared: a roll costs nothing */
    int prepare_error;        /* errno why the next file could not be prepared, until a try goes well; or 0 */
    bool is_stalled;          /* there is no room for what is queued: it waits until there is */
    uint64_t generation;      /* of the file being written */
    uint64_t file_count;      /* that hold groups or will next, trimmed ones included */
    uint64_t trimmed_count;   /* of those, wait to be recycled */
    uint64_t first_token;     /* oldest record still there; 0: none */
    uint64_t group_count;     /* commits since open */
    uint64_t group_bytes;     /* written by them, padding included */
    uint64_t overlap_count;   /* of them, were built while another one was written */
    uint64_t record_bytes_max;
};

/* The note of the file that was written last, as open() read it. */
struct ebk_journal_used {
    bool is_kept;          /* it can be noted: its device had room for that */
    bool is_noted;
    bool is_there;         /* that file is still there, or was set aside behind damage */
    uint64_t generation;   /* of that file */
    uint64_t first_token;  /* of its first group: all below was durable before it */
    uint64_t opened_token; /* the last record that was there at open */
};

struct ebk_record {
    uint64_t token;
    uint64_t ledger_id;
    uint32_t kind;
    uint32_t size;
    const uint8_t *data;
};

/* Open or make the journal in a directory whose parent exists. On error *fault says why
 * and nothing stays open. io must outlive the journal. */
int ebk_journal_open(struct ebk_io *io, const char *directory, const struct ebk_journal_settings *settings,
                     struct ebk_journal **out, struct ebk_journal_fault *fault);

/* Commit what is queued (if the journal still works), stop the threads, give everything
 * back. In a forked child only memory and descriptors are given back. */
void ebk_journal_close(struct ebk_journal *journal);

/* Queue one record of two pieces (either may be empty). The pieces are borrowed until the
 * token is durable or the journal is closed: do not change or free them before then.
 * Returns the token (> 0), EBK_FULL (nothing queued), EBK_FAILED, or EBK_USAGE for a kind
 * above 65535 or a body that no file can hold. kick wakes the commit thread for it. */
EBK_SHORT
int64_t ebk_journal_submit(struct ebk_journal *journal, uint32_t kind, uint64_t ledger_id, const void *head,
                           size_t head_size, const void *tail, size_t tail_size);

/* As submit, with a body of at most EBK_JOURNAL_COPY_BYTES_MAX that is copied at once. */
EBK_SHORT
int64_t ebk_journal_submit_copy(struct ebk_journal *journal, uint32_t kind, uint64_t ledger_id, const void *data,
                                size_t size);

/* Wake the commit thread if it sleeps. Once per batch of submits. */
EBK_SHORT void ebk_journal_kick(struct ebk_journal *journal);

/* Tell in this word, which outlives the journal, while there are groups to write: bit `number`, below 16 (yield.h). Before
 * the first record. */
EBK_SHORT void ebk_journal_show_busy(struct ebk_journal *journal, void *word, uint32_t number);

/* Unthreaded: write one group of what is queued, or prepare a file if nothing is.
 * Returns the records made durable; EBK_NO_SPACE, and what is queued waits; or EBK_FAILED. */
int64_t ebk_journal_step(struct ebk_journal *journal);

/* Every record up to this token is durable. Never falls. */
EBK_SHORT uint64_t ebk_journal_durable(const struct ebk_journal *journal);

/* As durable; also clears the event descriptor and asks for it to be set by the next group. */
EBK_SHORT uint64_t ebk_journal_reap(struct ebk_journal *journal);

/* Wait until the token is durable. Returns EBK_OK; EBK_NO_SPACE when a try found no room and it waits for that; or
 * EBK_FAILED when it never will be. Threaded only. */
int ebk_journal_wait(struct ebk_journal *journal, uint64_t token);

/* Readable when a group has become durable, or the journal failed, since the last reap; -1 when unthreaded. */
EBK_SHORT int ebk_journal_event(const struct ebk_journal *journal);

EBK_SHORT uint64_t ebk_journal_next_token(const struct ebk_journal *journal);
EBK_SHORT uint64_t ebk_journal_queued_bytes(const struct ebk_journal *journal);

/* EBK_OK while the journal works; else the code, with *fault set. */
EBK_SHORT int ebk_journal_failure(struct ebk_journal *journal, struct ebk_journal_fault *fault);

/* Records up to token are needed no more (only the caller knows: P7.5): files wholly below are used again. */
void ebk_journal_trim(struct ebk_journal *journal, uint64_t token);

void ebk_journal_facts(struct ebk_journal *journal, struct ebk_journal_facts *facts);

EBK_SHORT void ebk_journal_used(const struct ebk_journal *journal, struct ebk_journal_used *used);

/* Note durably that the files that are there now are the journal. Call it before the first record is queued. */
int ebk_journal_accept(struct ebk_journal *journal, struct ebk_journal_fault *fault);

/* Read the records above `after` that were there at open. Returns EBK_OK, or EBK_DAMAGED
 * when records above `after` are missing (trimmed too far, or the end is gone). */
int ebk_replay_open(struct ebk_journal *journal, uint64_t after, struct ebk_replay **out,
                    struct ebk_journal_fault *fault);

/* Up to count_max records, in token order; their data is valid until the next call.
 * Returns how many, 0 at the end, or a code with *fault set. */
int64_t ebk_replay_next(struct ebk_replay *replay, struct ebk_record *records, size_t count_max,
                        struct ebk_journal_fault *fault);

void ebk_replay_close(struct ebk_replay *replay);

/* The rest of a journal that open() or replay() refused as damaged (journal_salvage.c). */
struct ebk_salvage;

struct ebk_salvage_facts {
    uint64_t missing_count;         /* records above the mark that were there and cannot be read */
    bool may_have_lost;             /* some are missing, or may be */
    uint64_t start_token;           /* above every token that was ever given, as far as can be seen */
    uint64_t start_sequence;
    struct ebk_journal_fault first; /* damage that was met first; its code is EBK_OK if there is none */
};

/* Take the directory as open() does. after: the log mark; what it covers cannot be lost here. */
int ebk_salvage_open(struct ebk_io *io, const char *directory, const struct ebk_journal_settings *settings,
                     uint64_t after, struct ebk_salvage **out, struct ebk_journal_fault *fault);

/* As ebk_replay_next, of what can be read before, between and behind damage: tokens rise and may leave gaps. */
int64_t ebk_salvage_next(struct ebk_salvage *salvage, struct ebk_record *records, size_t count_max);

/* After ebk_salvage_next() answered 0. */
void ebk_salvage_tell(const struct ebk_salvage *salvage, struct ebk_salvage_facts *facts);

/* Let the journal begin with start_token: everything below must be durable elsewhere, or given up for lost. The next
 * open() sets the older files aside. After an error it may be closed and done again from the beginning. */
int ebk_salvage_finish(struct ebk_salvage *salvage, struct ebk_journal_fault *fault);

void ebk_salvage_close(struct ebk_salvage *salvage);
/* cffi:end */

#endif
