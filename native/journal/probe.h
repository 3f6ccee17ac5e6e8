/* probe.h: what the machine itself can do: for benchmarks, and for the choice of a sync method at start.
 *
 * The raw probe is the least that a journal must do: one thread hands a block to another
 * of the same scheduling class as a commit thread, that one writes it with one synced
 * write into a zero-filled file and hands the word back. No records, no sums.
 */
#ifndef EBK_PROBE_H
#define EBK_PROBE_H

#include "io/io.h"
#include "journal/journal.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_probe;

/* Make the zero-filled file and the thread. direct: past the page cache; dsync: O_DSYNC, else a sync behind each write.
 * Returns EBK_OK, or -errno with nothing left open. */
int ebk_probe_open(struct ebk_io *io, const char *path, uint64_t file_bytes, uint32_t write_bytes, bool direct,
                   bool dsync, struct ebk_probe **out);
void ebk_probe_close(struct ebk_probe *probe);

/* count synced writes, one outstanding, each handed over and back. Returns EBK_OK, or EBK_FAILED. */
int ebk_probe_writes(struct ebk_probe *probe, uint32_t count);

/* count synced writes, the next one always handed over before the one under way is done. */
int ebk_probe_stream(struct ebk_probe *probe, uint32_t count);

/* The same through a journal: submit one record of size bytes, kick, wait, count times. */
int ebk_probe_journal(struct ebk_journal *journal, const uint8_t *body, size_t size, uint32_t count);

/* count records as fast as the journal takes them, waiting only when its queue is full; trims as it goes. */
int ebk_probe_journal_stream(struct ebk_journal *journal, const uint8_t *body, size_t size, uint32_t count);

/* Replay everything above `after`; answers the bytes of all bodies, or a code. */
int64_t ebk_probe_replay(struct ebk_journal *journal, uint64_t after);
/* cffi:end */

#endif
