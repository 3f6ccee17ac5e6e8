/* journal_inside.h: shared by the journal's own sources; no other file includes it.
 *
 *   journal.c         the queue, and what is known of it
 *   journal_commit.c  group commit
 *   journal_threads.c the threads
 *   journal_open.c    open and close
 *   journal_files.c   names, headers, files prepared ahead, recycled and dropped
 *   journal_replay.c  reading groups back: where the tail is, and what damage is
 *   journal_salvage.c what is left of a damaged journal, and a start behind it
 *   journal_used.c    which file was written last, noted before its first group
 */
#ifndef EBK_JOURNAL_INSIDE_H
#define EBK_JOURNAL_INSIDE_H

#include "base/errors.h"
#include "io/io.h"
#include "journal/journal.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the formats are little-endian; add conversions here");

/* ---- bytes on disk (JOURNAL.md; tests/storage/test_journal_format.py holds page and code together) ---- */

#define BLOCK_BYTES EBK_IO_ALIGNMENT
#define FILE_MAGIC 0x4A4B4245u  /* "EBKJ" */
#define GROUP_MAGIC 0x474B4245u /* "EBKG" */
#define FORMAT_VERSION 1u
#define FORMAT_VERSION_START 2u /* of a file that begins behind damage: older programs must not pass it over */
#define RECORD_ALIGNMENT 8u

struct file_header { /* first block of a file */
    uint32_t crc;    /* of the bytes behind it */
    uint32_t magic;
    uint16_t version;
    uint16_t reserved_a;
    uint32_t block_bytes;
    uint8_t identity[EBK_JOURNAL_IDENTITY_BYTES];
    uint64_t generation;
    uint64_t file_bytes;
    uint64_t start_token; /* version 2: the journal begins here, with this token and group; else 0 */
    uint64_t start_sequence;
};

struct group_header { /* at a multiple of BLOCK_BYTES; its records follow */
    uint32_t crc;     /* seeded with identity and generation; of the bytes behind it */
    uint32_t magic;
    uint64_t generation;
    uint64_t position; /* of this header in its file */
    uint64_t sequence; /* of the group in its journal, from 1 */
    uint64_t first_token;
    uint32_t record_count;
    uint32_t group_bytes;  /* header and records; padded with zeros to whole blocks */
    uint32_t records_crc;  /* of the crc fields of all records: binds them to this header */
    uint32_t previous_crc; /* crc of the header of group sequence - 1; 0 for group 1 */
    uint8_t reserved[8];
};

struct record_header { /* at a multiple of RECORD_ALIGNMENT; its body follows, padded with zeros */
    uint32_t crc;      /* seeded with identity, generation and the record's position in its file */
    uint32_t size;     /* of the body */
    uint16_t kind;
    uint16_t reserved;
    uint32_t index; /* in its group: the token is first_token + index */
    uint64_t ledger_id;
};

_Static_assert(sizeof(struct file_header) == 64, "as in JOURNAL.md");
_Static_assert(sizeof(struct group_header) == 64, "as in JOURNAL.md");
_Static_assert(sizeof(struct record_header) == 24, "as in JOURNAL.md");

/* A group stays at or below the cap unless its first record alone is larger. Three full frames fit (FRAME_BLOCK_BYTES); one
 * write of more than 1 MiB is two for the block layer. */
#define GROUP_BYTES_CAP (1u << 20)
#define GROUP_BUFFER_BYTES (EBK_JOURNAL_RECORD_BYTES_MAX + 2u * BLOCK_BYTES)
_Static_assert(GROUP_BUFFER_BYTES >= GROUP_BYTES_CAP + BLOCK_BYTES, "a capped group fits");
_Static_assert(GROUP_BUFFER_BYTES % BLOCK_BYTES == 0, "whole blocks");

/* Less than this is not worth waking another thread for: it is copied in the time that waking takes. */
#define OVERLAP_BYTES_MIN (256u << 10)

#define FILE_COUNT_DEFAULT 4096u
#define DROPPED_BYTES (2u << 20) /* of a file that is dropped, at a time */
#define RECYCLED_COUNT_MAX 2u /* trimmed files kept for use again; more are unlinked */
#define SLOT_COUNT ((uint64_t)EBK_JOURNAL_SLOT_COUNT)
#define CACHE_LINE_BYTES 64

/* ---- memory --------------------------------------------------------------------------- */

/* One queued record. Small and in a row: each goes from the submitter's processor to the committer's, and what is
 * read one behind the other is fetched ahead. Copied bodies stand in an array of their own. */
struct slot {
    const uint8_t *piece[2];
    uint64_t ledger_id;
    uint32_t piece_size[2];
    uint32_t kind;
};

struct journal_file {
    uint64_t generation;
    uint64_t bytes;
    uint64_t first_token;    /* 0: no group yet */
    uint64_t first_sequence; /* of its first group */
    uint64_t start_token;    /* not 0: the journal begins with this file, behind damage */
    uint64_t start_sequence;
};

/* The newest note of which file was written last; number 0: none. */
struct used {
    uint64_t number, generation, first_token;
};

/* One group between the queue and the device. */
struct group_job {
    uint8_t *buffer;
    uint64_t first; /* token */
    uint32_t count; /* of its records */
    uint64_t bytes; /* before padding */
    uint64_t bodies;
    uint64_t position; /* in the file */
    uint64_t sequence;
    uint32_t previous_crc;
    struct group_header header; /* once it is built */
};

enum next_state { NEXT_MISSING, NEXT_READY, NEXT_REFUSED };

struct ebk_journal {
    struct ebk_io *io;
    struct ebk_journal_settings settings;
    char directory[EBK_JOURNAL_PATH_BYTES];
    int lock_file;
    pid_t owner; /* the process that opened it: a forked child has no threads to stop */
    bool direct, dsync; /* dsync: a write returns when it is durable; else a sync follows it */
    uint64_t record_bytes_max;

    struct slot *slots; /* token of slot i: slots[token % SLOT_COUNT]; submitted - durable <= SLOT_COUNT */
    uint8_t (*copies)[EBK_JOURNAL_COPY_BYTES_MAX];

    /* Submitting side, in cache lines of its own. */
    _Alignas(CACHE_LINE_BYTES) pthread_mutex_t submit_lock;
    _Atomic uint64_t submitted; /* last token given out */
    _Atomic uint64_t bytes_submitted;
    uint64_t durable_seen; /* as it was when the queue last looked full: the other side's line is left alone */

    /* Commit side: touched only by the thread that runs ebk_journal_commit(). offset, sequence and previous_crc are those
     * behind the last group that was planned; its own are in its job. */
    _Alignas(CACHE_LINE_BYTES) uint8_t *buffer; /* GROUP_BUFFER_BYTES, aligned; also jobs[0].buffer */
    struct group_job jobs[2];
    uint32_t job_index; /* of the next group */
    uint32_t build_index; /* of the group that the build thread makes */
    bool is_ahead;      /* jobs[job_index] is planned, and being built or built */
    struct group_job *held; /* a built group whose write found no room: it is written again, in its place */
    int file;           /* being written */
    uint64_t file_bytes, offset;
    uint64_t generation;
    uint32_t seed; /* CRC of identity and generation */
    uint64_t sequence; /* of the last group */
    uint32_t previous_crc;

    int used_file; /* -1: the device had no room for it, nothing is noted */
    struct used used;

    /* Reported to the submitting side. */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint64_t durable;
    _Atomic uint64_t bytes_durable;
    _Atomic uint32_t durable_word; /* futex of ebk_journal_wait(): the low half of durable, or a change at failure */
    _Atomic uint32_t waiting;
    _Atomic uint32_t armed; /* the event descriptor is to be set by the next group */
    int event;
    _Atomic int failed; /* a code, set after fault */
    _Atomic int stalled; /* errno of the last try: what is queued waits for room, and nothing of it was promised */
    _Atomic uint32_t stalls; /* tries that found no room */
    _Atomic uint32_t stall_word; /* futex of the commit thread while it waits for room */
    struct ebk_journal_fault fault;
    _Atomic uint64_t group_count, group_bytes;

    /* Files. files[0 .. trimmed_count) may be used again; files[file_count - 1] is being written. */
    pthread_mutex_t files_lock;
    pthread_cond_t files_changed;
    struct journal_file *files;
    uint32_t file_count, trimmed_count;
    uint64_t generation_last; /* ever given to a file here */
    enum next_state next_state;
    bool is_preparing_broken; /* a leftover could not be removed: no further try before the next open */
    int next_error;           /* errno of the last try, 0 when it went well: a new try that runs changes nothing */
    int next_file;
    struct journal_file next;
    uint64_t start_token, start_sequence; /* for the next file's header; 0 except in a salvage */
    uint8_t *zeros; /* ZERO_BYTES, never written */

    /* The files and tokens that replay may read: settled at open. */
    uint8_t identity[EBK_JOURNAL_IDENTITY_BYTES];
    bool has_identity; /* read from a file's header */
    uint64_t opened_token, opened_sequence;
    struct used used_found; /* the note as it was read */
    bool is_used_there;     /* the file that it names is, or the journal began behind it */

    /* Threads. */
    pthread_t commit_thread, prepare_thread, build_thread;
    bool is_commit_running, is_prepare_running, is_build_running;
    _Atomic uint32_t builds_asked, builds_done; /* futexes of the build thread; asked is ahead by at most one */
    _Atomic bool stop_building;
    _Atomic uint64_t overlap_count; /* groups that were built while another was written */
    _Alignas(CACHE_LINE_BYTES) _Atomic uint32_t kicks, sleeping;
    _Atomic bool stop_committing;
    bool stop_preparing; /* under files_lock */
    _Atomic bool realtime;
    _Atomic uint32_t *_Atomic busy_word; /* yield.h; NULL: not shown. Set when threads run, after its bit */
    uint32_t busy_bit;
};

#define ZERO_BYTES (1u << 20)

/* ---- shared by the sources ------------------------------------------------------- */

/* Fill *fault and return code. */
__attribute__((format(printf, 6, 7)))
int ebk_fault_set(struct ebk_journal_fault *fault, int code, int system_error, const char *path, uint64_t offset,
                  const char *reason, ...);

/* EBK_NO_SPACE for ENOSPC and EDQUOT, EBK_IO for the others. */
int ebk_code_of(int system_error);

static inline uint64_t round_up(uint64_t size, uint64_t alignment)
{
    return (size + alignment - 1) / alignment * alignment;
}

/* Bytes of one record in a group. */
static inline uint64_t record_extent(uint64_t body_size)
{
    return sizeof(struct record_header) + round_up(body_size, RECORD_ALIGNMENT);
}

/* journal.c */
/* A thread that waits for room looks again now. */
void ebk_journal_try_again(struct ebk_journal *journal);

/* journal_commit.c */
/* Make one group of what is queued durable. Returns its records, 0 when nothing is queued, EBK_NO_SPACE when there is no
 * room for it, and it waits; or EBK_FAILED. */
int64_t ebk_journal_commit(struct ebk_journal *journal);
/* Lay a planned group out in its buffer, on the build thread too. */
void ebk_journal_build(const struct ebk_journal *journal, struct group_job *job);

/* journal_threads.c */
int ebk_journal_start_threads(struct ebk_journal *journal, struct ebk_journal_fault *fault);
/* The commit thread commits what is queued first. Also after a start that failed half-way. */
void ebk_journal_stop_threads(struct ebk_journal *journal);

/* journal_open.c */
/* NULL when memory or a descriptor is refused; *fault has the reason then. */
struct ebk_journal *ebk_journal_make(struct ebk_io *io, const char *directory,
                                     const struct ebk_journal_settings *settings, struct ebk_journal_fault *fault);
void ebk_journal_release(struct ebk_journal *journal);
int ebk_journal_check_settings(const struct ebk_journal_settings *settings, const char *directory,
                               struct ebk_journal_fault *fault);
/* The directory is there, its name durable, and ours alone. */
int ebk_journal_take_directory(struct ebk_journal *journal, struct ebk_journal_fault *fault);

/* journal_files.c */
/* The size of the next file. The caller holds files_lock. */
uint64_t ebk_journal_next_bytes(const struct ebk_journal *journal);
#define FILE_PREFIX "journal-"
/* files[] by their names only, leftovers removed. */
int ebk_journal_list_names(struct ebk_journal *journal, struct ebk_journal_fault *fault);
/* Sync the file and check its first block; *entry learns its sizes. */
int ebk_journal_read_header(struct ebk_journal *journal, struct journal_file *entry, int file, const char *path,
                            struct file_header *header, struct ebk_journal_fault *fault);
void ebk_journal_path(const struct ebk_journal *journal, const char *kind, uint64_t generation, char *path);
uint32_t ebk_file_header_crc(const struct file_header *header);
int ebk_journal_probe_direct(struct ebk_journal *journal, struct ebk_journal_fault *fault);
int ebk_journal_find_files(struct ebk_journal *journal, struct ebk_journal_fault *fault);
int ebk_journal_open_file(struct ebk_journal *journal, const char *path);
int ebk_journal_prepare(struct ebk_journal *journal);
/* More trimmed files than are kept, or one in the place of the next file. Takes files_lock for granted. */
bool ebk_journal_has_excess(const struct ebk_journal *journal);
void ebk_journal_tidy(struct ebk_journal *journal);

/* journal_used.c */
int ebk_journal_open_used(struct ebk_journal *journal, struct ebk_journal_fault *fault);
void ebk_journal_find_used(struct ebk_journal *journal);
int ebk_journal_compare_used(struct ebk_journal *journal, struct ebk_journal_fault *fault);
/* A file is about to get its first group. 0 or -errno; block: BLOCK_BYTES, aligned, to be written over. *is_written: it is only
 * the sync that failed, which is not tried again (P7.6). */
int ebk_journal_note(struct ebk_journal *journal, uint8_t *block, uint64_t generation, uint64_t first_token, bool *is_written);

/* journal_groups.c */
/* CRC seeds: identity and generation; then the position of a record. */
uint32_t ebk_journal_seed(const uint8_t *identity, uint64_t generation);
uint32_t ebk_journal_record_crc(uint32_t seed, uint64_t position, const struct record_header *record);
uint32_t ebk_journal_group_crc(uint32_t seed, const struct group_header *group);
bool ebk_group_is_valid_header(uint32_t seed, uint64_t generation, uint64_t offset, uint64_t file_bytes,
                               const struct group_header *group);
/* 1: whole and valid, in buffer; 0: not a valid group; or -errno. */
int ebk_group_read(struct ebk_io *io, int file, uint32_t seed, uint64_t generation, uint64_t offset,
                   uint64_t file_bytes, uint8_t *buffer, struct group_header *header);
/* The offset of the first valid group header at or behind `from`; 0: none; or -errno. */
int64_t ebk_group_find(struct ebk_io *io, int file, uint32_t seed, uint64_t generation, uint64_t from,
                       uint64_t file_bytes, uint8_t *buffer, struct group_header *header);

#endif
