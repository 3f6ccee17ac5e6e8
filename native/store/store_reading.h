/* store_reading.h: one walk over all places where entries of a ledger may be, as reads and counts share it. */
#ifndef EBK_STORE_READING_H
#define EBK_STORE_READING_H

#include "store/store_inside.h"
#include "wire/frame.h"

/* One entry of a read: where it is, and where it goes. */
struct ebk_piece {
    int64_t id;
    const uint8_t *entry; /* NULL: in a log */
    struct ebk_log *log;
    uint64_t offset; /* in the log's file */
    uint32_t size;
    bool is_lost; /* its bytes could not be read */
    bool is_want; /* a descriptor was wanting: they may be as good as ever */
};

struct reading {
    struct ebk_store *store;
    struct ebk_found *found;
    uint64_t ledger_id;
    bool from_memory; /* also from the half that was flushed, while it stands there */
    struct ebk_cursor *cursors; /* newest place first */
    uint32_t cursor_count, piece_count;
    size_t size; /* of the pieces together */
    bool is_over;
};

/* Cursors over every place that has something of first..last of the ledger; the caller frees them. */
int ebk_reading_open(struct reading *reading, int64_t first, int64_t last);
/* The newest cursor among those with the lowest id, or NULL. */
struct ebk_cursor *ebk_reading_lowest(struct reading *reading);
/* Note the entry that the cursor stands on as the next one that is read. */
int ebk_reading_add_piece(struct reading *reading, const struct ebk_cursor *cursor);
/* Bring all of them, one behind the other; `to` has room for reading->size bytes. */
void ebk_reading_fetch(struct reading *reading, uint8_t *to);
/* Whether the bytes are the entry that the index promised. */
bool ebk_piece_is_entry(const uint8_t *bytes, const struct ebk_piece *piece, uint64_t ledger_id,
                        struct ebk_frame_facts *facts);

#endif
