/* io_memory_inside.h: what the files of the disk in memory share: io_memory.c (its calls, which can fail),
 * io_memory_files.c (what it holds), io_memory_rest.c (power goes), io_memory_devices.c (several devices) and
 * io_memory_lies.c (calls that answer OK and did something else). */
#ifndef EBK_IO_MEMORY_INSIDE_H
#define EBK_IO_MEMORY_INSIDE_H

#include "io/io.h"

#include <pthread.h>

#define SECTOR_BYTES 512u
#define PATH_BYTES_MAX 512
#define NAME_COUNT_MAX 8192
#define OPEN_COUNT_MAX 4096
#define CHANGE_COUNT_MAX 8192
#define DIRECTORY_COUNT_MAX 1024
#define FILE_BYTES_MAX (1u << 30)
#define BROKEN_COUNT_MAX 8

struct inode {
    uint8_t *now, *stable;
    uint8_t *before; /* while history is kept: each byte as it was before its last write; else NULL */
    size_t now_size, stable_size, capacity;
    size_t dirty_begin, dirty_end; /* now and stable are equal outside, up to the smaller size */
    struct inode *next;
};

struct name {
    char path[PATH_BYTES_MAX];
    struct inode *now, *stable; /* NULL: no such name, now or after a crash */
};

struct change { /* from goes, to comes; an empty path stands for "none" */
    char from[PATH_BYTES_MAX], to[PATH_BYTES_MAX];
    struct inode *inode;
};

struct open_file {
    struct inode *inode; /* NULL: free, or cut off by a crash and not closed yet */
    int flags;
    bool is_taken, is_lock;
};

struct fault {
    uint64_t at; /* the count of calls at which it strikes; 0: never */
    int error;
    bool stays;
};

struct lie { /* one wrong thing that the device will do, and say that it did the right one */
    int kind;    /* EBK_LIE_NONE: nothing is laid */
    uint64_t left; /* matching calls until it strikes; 0: it has struck */
    int64_t where;
    bool spares_last;
    char part[64]; /* of the paths that it may strike; empty: all */
};

struct broken { /* a device: all paths that begin so */
    char part[64];
    int error;
};

struct held { /* what the last write of a file should have been, until a later one proves that it is not the last */
    struct inode *inode; /* NULL: nothing is held */
    uint8_t *intended;
    size_t size, offset;
    bool has_later; /* a later write, which is not synced yet */
};

struct ebk_memory_disk {
    struct ebk_io io; /* first: the table is the disk */
    pthread_mutex_t mutex;
    struct inode *inodes;
    struct name *names;
    size_t name_count;
    struct change *changes;
    size_t change_count;
    char (*directories)[PATH_BYTES_MAX];
    size_t directory_count;
    struct open_file files[OPEN_COUNT_MAX];
    uint64_t calls[EBK_CALL_COUNT];
    struct fault faults[EBK_CALL_COUNT];
    struct broken broken[BROKEN_COUNT_MAX];
    size_t broken_count;
    struct lie read_lie, write_lie;
    struct held held;
    uint64_t lie_count;
    bool keeps_history;
    uint64_t call_count, halt_at; /* of any kind */
    uint64_t tear_at, tear_sectors;
    uint64_t bytes_max;
    bool refuses_direct_open, refuses_direct_write, halted;
    bool is_orphan; /* given up by its owner: the last close frees it */
};

static inline struct ebk_memory_disk *ebk_memory_take(struct ebk_memory_disk *disk)
{
    pthread_mutex_lock(&disk->mutex);
    return disk;
}

static inline int64_t ebk_memory_give(struct ebk_memory_disk *disk, int64_t answer)
{
    pthread_mutex_unlock(&disk->mutex);
    return answer;
}

/* The node of a path, which may be deleted by now; NULL: the path never named anything. */
struct name *ebk_memory_find_name(struct ebk_memory_disk *disk, const char *path);
/* The name, whatever it names; NULL when there are NAME_COUNT_MAX. */
struct name *ebk_memory_make_name(struct ebk_memory_disk *disk, const char *path);
/* An empty file, in the list of all; NULL when memory is refused. */
struct inode *ebk_memory_new_inode(struct ebk_memory_disk *disk);
/* Free a node that is in no list. */
void ebk_memory_free_inode(struct inode *inode);
/* Give back the files that no name, change or open file refers to any more. */
void ebk_memory_sweep(struct ebk_memory_disk *disk);
/* Make `now` size bytes long, zeros behind what there is: 0, or -errno. */
int ebk_memory_grow(struct ebk_memory_disk *disk, struct inode *inode, size_t size);
/* Make durable what differs. */
void ebk_memory_make_stable(struct inode *inode);
/* A change of names that is not durable yet: 0, or -errno. An empty path stands for "none". */
int ebk_memory_queue_change(struct ebk_memory_disk *disk, const char *from, const char *to, struct inode *inode);
/* Make it durable. */
void ebk_memory_apply_change(struct ebk_memory_disk *disk, const struct change *change);
/* The answer of a path's device to a call: 0, or -errno (io_memory_devices.c). */
int ebk_memory_device_refuses(const struct ebk_memory_disk *disk, int call, const char *path);
/* Apply a planned lie to this write. False: there is none, and the caller writes; true: the write is answered. */
bool ebk_memory_lie_write(struct ebk_memory_disk *disk, struct inode *inode, const void *from, size_t size,
                          size_t offset);
/* The same for a read. */
bool ebk_memory_lie_read(struct ebk_memory_disk *disk, struct inode *inode, void *to, size_t size, size_t offset);
/* A later write of this file was done; when it is durable, what is held of the file was lost for good. */
void ebk_memory_lie_outlived(struct ebk_memory_disk *disk, const struct inode *inode, bool is_durable);
/* The file was synced: the same for later writes that were not durable by themselves. */
void ebk_memory_lie_synced(struct ebk_memory_disk *disk, const struct inode *inode);
/* Power goes: a lie about the last write of its file is taken back, and lies are laid no more. */
void ebk_memory_lie_end(struct ebk_memory_disk *disk);
/* Keep what the write is about to replace. */
void ebk_memory_remember(struct ebk_memory_disk *disk, struct inode *inode, size_t size, size_t offset);
/* now differs from stable in begin..end. */
void ebk_memory_dirty(struct inode *inode, size_t begin, size_t end);

#endif
