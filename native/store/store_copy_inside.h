/* store_copy_inside.h: a compaction under way, as store_copy_plan.c (what is copied) and store_copy.c (the copying) know
 * it. */
#ifndef EBK_STORE_COPY_INSIDE_H
#define EBK_STORE_COPY_INSIDE_H

#include "store/store_inside.h"

#include <sys/types.h>

#define EBK_COPY_SOURCES_MAX 64u

/* Bytes that stand one behind the other in a source, and will in the new log. */
struct part {
    uint32_t source;
    uint64_t offset, size;
};

struct source {
    struct ebk_log *log; /* the loop's thread only */
    const char *directory;
    struct ebk_descriptor descriptor;
    int file; /* -1: not open yet */
};

struct ebk_copy {
    struct ebk_store *store; /* the loop's thread only */
    pid_t owner; /* the process that copies: a child of it has no say in the new file */
    struct ebk_flush flush;  /* the new log; its `cache` is not used */
    struct source sources[EBK_COPY_SOURCES_MAX];
    uint32_t source_count;
    struct part *parts;
    uint32_t part_count, part_capacity, part_at;
    uint64_t part_done; /* of the part at part_at */
    struct ebk_log_writer writer;
    char tmp[EBK_PATH_BYTES_MAX];
    uint8_t *chunk, *bytes;
    struct ebk_log index_of; /* for walking the new index: only descriptor and index */
    struct ebk_run run;      /* that the cursor walks */
    struct ebk_cursor cursor;
    const uint8_t *run_at;
    uint64_t ledger_id; /* of that run */
    uint8_t *states;    /* of the sources: ledger states, no marks and no rolls */
    size_t states_size;
    uint64_t slice_bytes; /* wished for */
    uint64_t bytes_copied;
    uint32_t bad_source; /* whose bytes ended it; source_count: none's */
    bool is_over;        /* everything is written, or there was nothing to write */
    pthread_t thread;
    bool has_thread;
    _Atomic int state; /* enum ebk_flush_state */
};

/* The number of a log among the sources; source_count when it is none of them. */
uint32_t ebk_copy_source_of(const struct ebk_copy *copy, const struct ebk_log *log);
/* The ledgers that the sources have runs of, ascending, each once; NULL when memory was refused. The caller's. */
uint64_t *ebk_copy_list_ledgers(const struct ebk_copy *copy, uint32_t *count);
/* Say which bytes of the sources are copied, in order, and make the index of the new log. On the loop's thread, once the
 * sources are named. EBK_NO_MEMORY leaves a copy that can only be freed. */
int ebk_copy_plan(struct ebk_copy *copy);

#endif
