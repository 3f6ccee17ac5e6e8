/* scrub.h: reading entry logs from the device, piece by piece, to find what has rotted (I55).
 *
 * A scrub shares nothing with the store but the files: it opens them itself, past the page
 * cache where it can, and checks every sum and every entry against the log's own index. So
 * its thread needs no lock, and a log that is deleted meanwhile is no accident. Which log
 * comes next, and when, is the caller's; all calls are made by one thread.
 */
#ifndef EBK_SCRUB_H
#define EBK_SCRUB_H

#include "base/gil.h"
#include "io/io.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_scrub;

enum ebk_scrub_part { /* The damaged part. */
    EBK_SCRUB_FILE = 1,       /* cannot be opened, is missing, or another's */
    EBK_SCRUB_DESCRIPTOR = 2, /* one of the two, or both */
    EBK_SCRUB_STATES = 3,     /* one of their two copies, or both */
    EBK_SCRUB_INDEX = 4,
    EBK_SCRUB_ENTRIES = 5,    /* ledger_id, first_entry, last_entry say which */
    EBK_SCRUB_UNKNOWN = 6     /* entries that no index covers */
};

struct ebk_scrub_damage {
    int part;
    int system_error; /* errno, or 0 when the bytes could be read and are wrong */
    uint64_t offset;  /* in the file */
    uint64_t ledger_id;
    int64_t first_entry, last_entry;
};

enum { EBK_SCRUB_DAMAGES_MAX = 64 };
struct ebk_scrub_piece {
    uint32_t log_id;
    uint64_t offset; /* where the next piece of this log begins */
    bool is_end;     /* the log was read to its end, or cannot be */
    uint64_t bytes;  /* read */
    uint64_t entries; /* checked */
    uint32_t damage_count; /* found, also those beyond the room here */
    struct ebk_scrub_damage damages[64]; /* EBK_SCRUB_DAMAGES_MAX */
};

/* cluster_token and incarnation, 16 bytes each, of the logs. NULL when memory is refused. */
struct ebk_scrub *ebk_scrub_open(struct ebk_io *io, const char *directory, const uint8_t *cluster_token,
                                 const uint8_t *incarnation);
/* Waits for a piece that is being read. */
void ebk_scrub_close(struct ebk_scrub *scrub);

/* Read the piece of a log that begins at offset, 0 for its beginning, in a thread or at once: about bytes_max bytes,
 * at least one entry; descriptors, states and index in one piece. Returns EBK_OK; EBK_FULL while one is not finished;
 * EBK_NO_MEMORY. */
int ebk_scrub_start(struct ebk_scrub *scrub, uint32_t log_id, uint64_t offset, uint64_t bytes_max);
int ebk_scrub_now(struct ebk_scrub *scrub, uint32_t log_id, uint64_t offset, uint64_t bytes_max);
/* Becomes readable when a piece that was started has ended, until ebk_scrub_finish(). */
EBK_SHORT int ebk_scrub_event_file(const struct ebk_scrub *scrub);
/* The findings of the piece that ended. Returns EBK_OK; EBK_FULL while it runs; EBK_END when none was started; EBK_IO: there
 * was no descriptor or no memory to read it with, so it says nothing of the log. */
EBK_SHORT int ebk_scrub_finish(struct ebk_scrub *scrub, struct ebk_scrub_piece *piece);
/* cffi:end */

#endif
