/* store_scan_inside.h: a hole of an entry log that is being looked through, as store_scan.c (the looking) and
 * store_rebuild.c (when, and what becomes of it) know it. */
#ifndef EBK_STORE_SCAN_INSIDE_H
#define EBK_STORE_SCAN_INSIDE_H

#include "store/store_inside.h"
#include "wire/frame.h"

#include <pthread.h>

/* The hole is looked through from its front on: entries follow each other until a place has no valid one. What stands
 * behind that place is a tail if valid entries fill everything from some place on up to the end.
 *
 *     begin           good ////////// tail                end
 *       | entry entry | damaged bytes | entry entry entry |
 */
struct ebk_scan {
    /* The loop's thread only. */
    struct ebk_store *store;
    struct ebk_log *log;
    uint32_t hole_number; /* of the store's holes */
    size_t taken;         /* bytes of the newest found runs that are in the index */
    bool is_taking;       /* a slice has ended, and what it found is being taken in */

    /* Its thread alone has these while a slice runs. */
    struct ebk_io *io;
    char path[EBK_PATH_BYTES_MAX];
    uint32_t log_id;
    int file; /* -1: not open */
    struct ebk_hole hole;
    bool has_begun; /* the file was opened for this hole, and its size is known */
    uint64_t end;   /* of the hole, or of the file before it */
    uint64_t at;    /* what comes next, in the file */
    uint64_t good;  /* where the front ended */
    uint64_t tail;  /* where the entries begin that fill everything up to `at`; hole.end: there are none */
    bool is_front_over, is_over;
    bool is_ordered; /* the entries of the front ascend */
    uint64_t ledger_last;
    int64_t id_last;
    uint64_t entries; /* in the maker: found and not handed over */
    uint8_t *window;  /* EBK_SCAN_WINDOW_BYTES */
    uint64_t window_at, window_end; /* in the file */
    uint64_t slice_bytes, bytes_done;
    uint64_t bytes_summed; /* in this slice: damage may look like entries at every byte */
    bool is_handed_over;   /* the maker's runs are found ones for good */
    struct ebk_run_maker maker;
    int result;
    char text[EBK_REPORT_BYTES];
    pthread_t thread;
    bool has_thread;
    _Atomic int state; /* enum ebk_flush_state */
};

#define EBK_SCAN_ENTRY_BYTES_MAX (EBK_ENTRY_OVERHEAD_BYTES + EBK_ENTRY_PAYLOAD_BYTES_MAX)
#define EBK_SCAN_WINDOW_BYTES                                                                                          \
    ((EBK_LOG_CHUNK_BYTES + EBK_SCAN_ENTRY_BYTES_MAX + 2u * EBK_LOG_BLOCK_BYTES) / EBK_LOG_BLOCK_BYTES * EBK_LOG_BLOCK_BYTES)

/* Look through about slice_bytes more of the hole. EBK_OK; EBK_NO_MEMORY or EBK_IO (no descriptor is left): nothing is
 * lost by that, and the next slice continues. What cannot be read looks like damage. */
int ebk_scan_slice(struct ebk_scan *scan);
/* Whether the hole was looked through to its end, and entries in their order fill it. */
bool ebk_scan_has_filled(const struct ebk_scan *scan);
/* Bytes between its front and its tail, which nobody understands. */
uint64_t ebk_scan_bytes_lost(const struct ebk_scan *scan);

#endif
