/* io.h: the table of calls through which all of embedbk's C code touches files.
 *
 * Two backings: the real disk (io_disk.c) and a disk in memory (io_memory.c) that can
 * refuse, fail, tear and forget, so that the code that ships is the code that is tested.
 *
 * Every call answers a value >= 0, or -errno; errno itself is never used by a caller.
 * Reads and writes are whole: a short write is carried on inside, a short read means
 * the end of the file. Paths are the caller's, absolute or relative to the process.
 * Any call may be made from any thread.
 */
#ifndef EBK_IO_H
#define EBK_IO_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>

/* Offsets, sizes and addresses of direct I/O are multiples of this: the physical block. */
#define EBK_IO_ALIGNMENT 4096u

/* cffi:begin */
enum ebk_open {
    EBK_OPEN_READ = 0,   /* reading only */
    EBK_OPEN_WRITE = 1,  /* reading and writing */
    EBK_OPEN_CREATE = 2, /* with WRITE: a new file; refused with -EEXIST if there is one */
    EBK_OPEN_DIRECT = 4, /* past the page cache; -EINVAL where the file system refuses that */
    EBK_OPEN_DSYNC = 8,  /* a write returns when its bytes are durable */
    EBK_OPEN_KNOWN = 15
};
/* cffi:end */

struct ebk_io {
    /* Opens a file; returns its number, >= 0, for later calls. */
    int (*open)(struct ebk_io *io, const char *path, int flags);
    int (*close)(struct ebk_io *io, int file);
    /* Bytes read: fewer than size only at the end of the file. */
    int64_t (*read)(struct ebk_io *io, int file, void *to, size_t size, uint64_t offset);
    /* size, or -errno; after an error any part may be written. */
    int64_t (*write)(struct ebk_io *io, int file, const void *from, size_t size, uint64_t offset);
    /* The file's bytes and its size are durable. After an error its content is unknown: never retry. */
    int (*sync)(struct ebk_io *io, int file);
    /* Make the file size bytes long and reserve the room where the file system can. */
    int (*allocate)(struct ebk_io *io, int file, uint64_t size);
    int64_t (*size)(struct ebk_io *io, int file);
    /* A rename replaces the target. Names are durable only after sync_directory(). */
    int (*rename)(struct ebk_io *io, const char *from, const char *to);
    int (*unlink)(struct ebk_io *io, const char *path);
    /* Cut the file off at size, and return when the room behind it was given back for good. */
    int (*shrink)(struct ebk_io *io, int file, uint64_t size);
    int (*sync_directory)(struct ebk_io *io, const char *path);
    /* 0 also when it is there already. The parent must be there. */
    int (*make_directory)(struct ebk_io *io, const char *path);
    /* The names in a directory, each ended by NUL, in no order. Answers the bytes that all
     * of them need; names holds all of them only when that is at most size. */
    int64_t (*list)(struct ebk_io *io, const char *path, char *names, size_t size);
    /* Open (and create) path and hold it exclusively until close(); -EWOULDBLOCK if it is held. */
    int (*lock)(struct ebk_io *io, const char *path);
};

/* Whether the answer of a call is about this process and not about the file: it has no descriptor or no memory left. The file
 * is as it was, and is asked later. io_calls.c. */
bool ebk_is_want(int64_t answer);

/* cffi:begin */
struct ebk_io;
struct ebk_memory_disk;

/* The real disk: one for the process, never released. */
struct ebk_io *ebk_io_disk(void);

/* The calls of the table, for Python: files that it writes itself (snapshots of metadata). io_calls.c. */
int ebk_io_make_directory(struct ebk_io *io, const char *path);
int ebk_io_open(struct ebk_io *io, const char *path, int flags);
int ebk_io_close(struct ebk_io *io, int file);
int64_t ebk_io_read(struct ebk_io *io, int file, void *to, size_t size, uint64_t offset);
int64_t ebk_io_write(struct ebk_io *io, int file, const void *from, size_t size, uint64_t offset);
int ebk_io_sync(struct ebk_io *io, int file);
int64_t ebk_io_size(struct ebk_io *io, int file);
int ebk_io_rename(struct ebk_io *io, const char *from, const char *to);
int ebk_io_unlink(struct ebk_io *io, const char *path);
int ebk_io_sync_directory(struct ebk_io *io, const char *path);
int64_t ebk_io_list(struct ebk_io *io, const char *path, char *names, size_t size);

enum ebk_memory_call { /* which calls a fault counts */
    EBK_CALL_OPEN,
    EBK_CALL_READ,
    EBK_CALL_WRITE,
    EBK_CALL_SYNC,
    EBK_CALL_ALLOCATE,
    EBK_CALL_RENAME,
    EBK_CALL_UNLINK,
    EBK_CALL_SYNC_DIRECTORY,
    EBK_CALL_LIST,
    EBK_CALL_SHRINK,
    EBK_CALL_COUNT
};

/* An empty disk in memory. NULL when memory is refused. */
struct ebk_memory_disk *ebk_memory_disk_new(void);
/* Give the disk up: it goes when its last open file is closed. */
void ebk_memory_disk_free(struct ebk_memory_disk *disk);
struct ebk_io *ebk_memory_disk_io(struct ebk_memory_disk *disk);

/* Refuse (or accept again) direct I/O with -EINVAL: at open, or, as some file systems do, at the first write. */
void ebk_memory_disk_refuse_direct(struct ebk_memory_disk *disk, bool at_open, bool at_write);
/* At most this many bytes in all files; a write or an allocation beyond answers -ENOSPC. 0: no limit. */
void ebk_memory_disk_limit(struct ebk_memory_disk *disk, uint64_t bytes);
/* The nth call of this kind from now (1: the next one) answers -error; so do the later ones if stays. 0: no fault. */
void ebk_memory_disk_fail(struct ebk_memory_disk *disk, int call, uint64_t nth, int error, bool stays);
/* Everything below a path is a device of its own, and it answers -error from now on: ENOSPC, to what makes room in a
 * file; any other error, every call. 0: it is well again. At most 8 at a time; a crash mends them. */
void ebk_memory_disk_break(struct ebk_memory_disk *disk, const char *path, int error);
/* Power goes away in the middle of the nth write from now: of its sectors of 512 bytes those are on the
 * platter that `sectors` says (bit i: sector i, beyond 63 the last bit repeats); every later call answers -EIO. */
void ebk_memory_disk_tear(struct ebk_memory_disk *disk, uint64_t nth, uint64_t sectors);
/* Power goes away before the nth call of any kind from now, or the process ends there (ebk_memory_disk_kill): it and every
 * later one answer -EIO. 0: it stays. */
void ebk_memory_disk_halt(struct ebk_memory_disk *disk, uint64_t nth);
enum ebk_memory_lie { /* what a device does that answers OK */
    EBK_LIE_NONE,
    EBK_LIE_LOST,        /* a write is nowhere (D6) */
    EBK_LIE_MISDIRECTED, /* a write goes, or a read comes from, `where` bytes further on in the file, round its end (D5) */
    EBK_LIE_FLIPPED,     /* bit `where` (modulo its bits) of what is written or read is another one (D4) */
    EBK_LIE_STALE        /* a read gives what was there before the last write (D7); needs history */
};

/* The nth read or write (1: the next one) of a file whose path contains `part` is such a lie. nth 0 takes back what
 * was laid. spares_last, for writes: a lie about the last write of its file before a crash was none after all. Such
 * a one no reader of that file could ever tell from a loss of power in the middle of it. */
void ebk_memory_disk_lie(struct ebk_memory_disk *disk, int call, int kind, const char *part, uint64_t nth,
                         int64_t where, bool spares_last);
/* How many calls were answered with a lie. */
uint64_t ebk_memory_disk_lies(struct ebk_memory_disk *disk);
/* Remember from now on, for every byte, what its last write replaced. */
void ebk_memory_disk_keep_history(struct ebk_memory_disk *disk);
/* Stale sectors at rest: size bytes from offset on are again what their last write replaced, as far as the file goes.
 * -ENOENT: no such file, or no history. */
int ebk_memory_disk_revert(struct ebk_memory_disk *disk, const char *path, uint64_t offset, uint64_t size);

/* How many calls of this kind were made; of any kind for EBK_CALL_COUNT. */
uint64_t ebk_memory_disk_calls(struct ebk_memory_disk *disk, int call);

/* Power off and on: what was not synced is gone, open files and locks are closed, faults are lifted. With a
 * seed other than 0, each unsynced sector and name survives or not by a draw from it, as on a real disk. */
void ebk_memory_disk_crash(struct ebk_memory_disk *disk, uint64_t seed);
/* The process ends and the system goes on: open files and locks are closed, what was not synced is still there. */
void ebk_memory_disk_kill(struct ebk_memory_disk *disk);

/* Surgery and inspection, for tests. stable: what a crash would leave, else what a reader sees now.
 * Names: as list(), of all files on the disk, whole paths. Read: bytes in the file or -errno; copies at most size. */
int64_t ebk_memory_disk_names(struct ebk_memory_disk *disk, bool stable, char *names, size_t size);
int64_t ebk_memory_disk_read(struct ebk_memory_disk *disk, bool stable, const char *path, void *to, size_t size);
/* Make path hold exactly these bytes, durably. */
int ebk_memory_disk_put(struct ebk_memory_disk *disk, const char *path, const void *from, size_t size);
/* Forget path, durably. */
int ebk_memory_disk_drop(struct ebk_memory_disk *disk, const char *path);
/* cffi:end */

#endif
