/* io_memory.c: a disk in memory that can refuse, fail and tear: the table of calls on it, and how a call is made to fail.
 *
 * The content of its files is in io_memory_files.c, what a power cut leaves of them in io_memory_rest.c.
 */
#include "base/errors.h"
#include "io/io_memory_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which calls fail --------------------------------------------------------------- */

/* Count the call; what a fault makes of it: 0, or -errno. */
static int struck_anywhere(struct ebk_memory_disk *disk, int call)
{
    disk->calls[call] += 1;
    disk->call_count += 1;
    if (disk->halt_at != 0 && disk->call_count >= disk->halt_at) disk->halted = true;
    if (disk->halted) return -EIO;
    struct fault *fault = &disk->faults[call];
    if (fault->at == 0 || disk->calls[call] < fault->at) return 0;
    if (disk->calls[call] > fault->at && !fault->stays) return 0;
    return -fault->error;
}

/* The same of a call about a path, or about an open file, and of the device that it is on. */
static int struck(struct ebk_memory_disk *disk, int call, const char *path)
{
    const int refused = struck_anywhere(disk, call);
    return refused ? refused : ebk_memory_device_refuses(disk, call, path);
}

static int struck_file(struct ebk_memory_disk *disk, int call, int file)
{
    const int refused = struck_anywhere(disk, call);
    if (refused || disk->broken_count == 0) return refused;
    const bool is_open = file >= 0 && file < OPEN_COUNT_MAX && disk->files[file].inode != NULL;
    for (size_t i = 0; is_open && i < disk->name_count; i++)
        if (disk->names[i].now == disk->files[file].inode)
            return ebk_memory_device_refuses(disk, call, disk->names[i].path);
    return 0;
}

/* ---- small pieces ------------------------------------------------------------------ */

static struct ebk_memory_disk *take(struct ebk_io *io)
{
    return ebk_memory_take((struct ebk_memory_disk *)io);
}

static bool path_fits(const char *path)
{
    return strlen(path) < PATH_BYTES_MAX;
}

/* The length of the directory part of a path; 0 when there is none. */
static size_t parent_size(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? 0 : (size_t)(slash - path);
}

static bool is_in(const char *path, const char *directory)
{
    size_t size = parent_size(path);
    return path[0] != 0 && size == strlen(directory) && strncmp(path, directory, size) == 0;
}

static bool has_directory(struct ebk_memory_disk *disk, const char *path, size_t size)
{
    if (size == 0 || (size == 1 && (path[0] == '.' || path[0] == '/'))) return true; /* Where everything starts. */
    for (size_t i = 0; i < disk->directory_count; i++)
        if (strlen(disk->directories[i]) == size && strncmp(disk->directories[i], path, size) == 0) return true;
    return false;
}

static struct open_file *find_file(struct ebk_memory_disk *disk, int file)
{
    if (file < 0 || file >= OPEN_COUNT_MAX || disk->files[file].inode == NULL) return NULL;
    return &disk->files[file];
}

static int take_slot(struct ebk_memory_disk *disk, struct inode *inode, int flags, bool is_lock)
{
    for (int i = 0; i < OPEN_COUNT_MAX; i++)
        if (!disk->files[i].is_taken) {
            disk->files[i] =
                (struct open_file){.inode = inode, .flags = flags, .is_taken = true, .is_lock = is_lock};
            return i;
        }
    return -EMFILE;
}

/* ---- the table --------------------------------------------------------------------- */

static int open_or_make(struct ebk_memory_disk *disk, const char *path, int flags)
{
    if (!path_fits(path)) return -ENAMETOOLONG;
    if ((flags & EBK_OPEN_DIRECT) && disk->refuses_direct_open) return -EINVAL;
    struct name *name = ebk_memory_find_name(disk, path);
    struct inode *inode = name == NULL ? NULL : name->now;
    if (inode != NULL && (flags & EBK_OPEN_CREATE)) return -EEXIST;
    if (inode == NULL && !(flags & EBK_OPEN_CREATE)) return -ENOENT;
    if (inode == NULL) {
        if (!has_directory(disk, path, parent_size(path))) return -ENOENT;
        name = ebk_memory_make_name(disk, path);
        inode = name == NULL ? NULL : ebk_memory_new_inode(disk);
        if (inode == NULL) return -ENOMEM;
        name->now = inode;
        int refused = ebk_memory_queue_change(disk, "", path, inode);
        if (refused) return refused;
    }
    return take_slot(disk, inode, flags, false);
}

static int memory_open(struct ebk_io *io, const char *path, int flags)
{
    EBK_ASSERT((flags & ~EBK_OPEN_KNOWN) == 0);
    struct ebk_memory_disk *disk = take(io);
    int refused = struck(disk, EBK_CALL_OPEN, path);
    return (int)ebk_memory_give(disk, refused ? refused : open_or_make(disk, path, flags));
}

static void destroy(struct ebk_memory_disk *disk)
{
    while (disk->inodes != NULL) {
        struct inode *next = disk->inodes->next;
        ebk_memory_free_inode(disk->inodes);
        disk->inodes = next;
    }
    free(disk->names);
    free(disk->changes);
    free(disk->directories);
    free(disk->held.intended);
    free(disk);
}

static bool has_open_files(const struct ebk_memory_disk *disk)
{
    for (int i = 0; i < OPEN_COUNT_MAX; i++)
        if (disk->files[i].is_taken) return true;
    return false;
}

static int memory_close(struct ebk_io *io, int file)
{
    struct ebk_memory_disk *disk = take(io);
    if (file < 0 || file >= OPEN_COUNT_MAX || !disk->files[file].is_taken) return (int)ebk_memory_give(disk, -EBADF);
    disk->files[file] = (struct open_file){0};
    ebk_memory_sweep(disk);
    bool is_over = disk->is_orphan && !has_open_files(disk);
    ebk_memory_give(disk, 0);
    if (is_over) destroy(disk);
    return 0;
}

static bool is_aligned(const struct open_file *open, const void *memory, size_t size, uint64_t offset)
{
    if (!(open->flags & EBK_OPEN_DIRECT)) return true;
    return ((uintptr_t)memory | size | offset) % EBK_IO_ALIGNMENT == 0;
}

static int64_t memory_read(struct ebk_io *io, int file, void *to, size_t size, uint64_t offset)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck_file(disk, EBK_CALL_READ, file);
    if (refused) return ebk_memory_give(disk, refused);
    struct open_file *open = find_file(disk, file);
    if (open == NULL) return ebk_memory_give(disk, -EBADF);
    if (!is_aligned(open, to, size, offset)) return ebk_memory_give(disk, -EINVAL);
    size_t have = open->inode->now_size;
    if (offset >= have) return ebk_memory_give(disk, 0);
    if (size > have - offset) size = have - (size_t)offset;
    if (!ebk_memory_lie_read(disk, open->inode, to, size, (size_t)offset))
        memcpy(to, open->inode->now + offset, size);
    return ebk_memory_give(disk, (int64_t)size);
}

/* Power goes in the middle of this write: some sectors are on the platter, and all is over. */
static int64_t tear(struct ebk_memory_disk *disk, struct inode *inode, const uint8_t *from, size_t size, size_t offset)
{
    for (size_t begin = 0, i = 0; begin < size; begin += SECTOR_BYTES, i++) {
        if (!((disk->tear_sectors >> (i < 63 ? i : 63)) & 1u)) continue;
        size_t bytes = size - begin < SECTOR_BYTES ? size - begin : SECTOR_BYTES;
        memcpy(inode->now + offset + begin, from + begin, bytes);
        memcpy(inode->stable + offset + begin, from + begin, bytes);
        if (offset + begin + bytes > inode->stable_size) inode->stable_size = offset + begin + bytes;
    }
    disk->halted = true;
    return -EIO;
}

static int64_t memory_write(struct ebk_io *io, int file, const void *from, size_t size, uint64_t offset)
{
    struct ebk_memory_disk *disk = take(io);
    int64_t refused = struck_file(disk, EBK_CALL_WRITE, file);
    if (refused) return ebk_memory_give(disk, refused);
    struct open_file *open = find_file(disk, file);
    if (open == NULL || !(open->flags & EBK_OPEN_WRITE)) return ebk_memory_give(disk, -EBADF);
    if ((open->flags & EBK_OPEN_DIRECT) && disk->refuses_direct_write) return ebk_memory_give(disk, -EINVAL);
    if (!is_aligned(open, from, size, offset)) return ebk_memory_give(disk, -EINVAL);
    if (offset > FILE_BYTES_MAX || size > FILE_BYTES_MAX) return ebk_memory_give(disk, -EFBIG);
    struct inode *inode = open->inode;
    refused = ebk_memory_grow(disk, inode, (size_t)offset + size);
    if (refused) return ebk_memory_give(disk, refused);
    if (disk->tear_at != 0 && disk->calls[EBK_CALL_WRITE] >= disk->tear_at)
        return ebk_memory_give(disk, tear(disk, inode, from, size, (size_t)offset));
    bool is_lie = ebk_memory_lie_write(disk, inode, from, size, (size_t)offset);
    if (!is_lie) {
        ebk_memory_remember(disk, inode, size, (size_t)offset);
        memcpy(inode->now + offset, from, size);
        ebk_memory_dirty(inode, (size_t)offset, (size_t)offset + size);
    }
    if (open->flags & EBK_OPEN_DSYNC) ebk_memory_make_stable(inode);
    if (!is_lie) ebk_memory_lie_outlived(disk, inode, (open->flags & EBK_OPEN_DSYNC) != 0);
    return ebk_memory_give(disk, (int64_t)size);
}

static int memory_sync(struct ebk_io *io, int file)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck_file(disk, EBK_CALL_SYNC, file);
    struct open_file *open = find_file(disk, file);
    if (refused == 0 && open == NULL) refused = -EBADF;
    if (refused == 0) ebk_memory_make_stable(open->inode);
    if (refused == 0) ebk_memory_lie_synced(disk, open->inode);
    return (int)ebk_memory_give(disk, refused);
}

static int memory_allocate(struct ebk_io *io, int file, uint64_t size)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck_file(disk, EBK_CALL_ALLOCATE, file);
    struct open_file *open = find_file(disk, file);
    if (refused == 0 && open == NULL) refused = -EBADF;
    if (refused == 0) refused = size > FILE_BYTES_MAX ? -EFBIG : ebk_memory_grow(disk, open->inode, (size_t)size);
    return (int)ebk_memory_give(disk, refused);
}

static int memory_shrink(struct ebk_io *io, int file, uint64_t size)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck_file(disk, EBK_CALL_SHRINK, file);
    struct open_file *open = find_file(disk, file);
    if (refused == 0 && open == NULL) refused = -EBADF;
    if (refused == 0 && size > open->inode->now_size) refused = -EINVAL;
    if (refused == 0) {
        memset(open->inode->now + size, 0, open->inode->now_size - size); /* As what it may grow by later. */
        open->inode->now_size = size;
        ebk_memory_make_stable(open->inode);
    }
    return (int)ebk_memory_give(disk, refused);
}

static int64_t memory_size(struct ebk_io *io, int file)
{
    struct ebk_memory_disk *disk = take(io);
    struct open_file *open = find_file(disk, file);
    return ebk_memory_give(disk, open == NULL ? -EBADF : (int64_t)open->inode->now_size);
}

static int memory_rename(struct ebk_io *io, const char *from, const char *to)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck(disk, EBK_CALL_RENAME, to);
    if (refused) return (int)ebk_memory_give(disk, refused);
    if (!path_fits(to)) return (int)ebk_memory_give(disk, -ENAMETOOLONG);
    struct name *old = ebk_memory_find_name(disk, from);
    if (old == NULL || old->now == NULL || !has_directory(disk, to, parent_size(to))) return (int)ebk_memory_give(disk, -ENOENT);
    struct name *new = ebk_memory_make_name(disk, to);
    if (new == NULL) return (int)ebk_memory_give(disk, -ENOSPC);
    refused = ebk_memory_queue_change(disk, from, to, old->now);
    if (refused) return (int)ebk_memory_give(disk, refused);
    struct inode *inode = old->now;
    old->now = NULL;
    new->now = inode;
    return (int)ebk_memory_give(disk, 0);
}

static int memory_unlink(struct ebk_io *io, const char *path)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck(disk, EBK_CALL_UNLINK, path);
    struct name *name = refused ? NULL : ebk_memory_find_name(disk, path);
    if (refused == 0 && (name == NULL || name->now == NULL)) refused = -ENOENT;
    if (refused == 0) refused = ebk_memory_queue_change(disk, path, "", NULL);
    if (refused == 0) name->now = NULL;
    return (int)ebk_memory_give(disk, refused);
}

static int memory_sync_directory(struct ebk_io *io, const char *path)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck(disk, EBK_CALL_SYNC_DIRECTORY, path);
    if (refused == 0 && !has_directory(disk, path, strlen(path))) refused = -ENOENT;
    if (refused) return (int)ebk_memory_give(disk, refused);
    size_t kept = 0;
    for (size_t i = 0; i < disk->change_count; i++) {
        struct change *change = &disk->changes[i];
        if (is_in(change->from, path) || is_in(change->to, path))
            ebk_memory_apply_change(disk, change);
        else
            disk->changes[kept++] = *change;
    }
    disk->change_count = kept;
    ebk_memory_sweep(disk);
    return (int)ebk_memory_give(disk, 0);
}

static int memory_make_directory(struct ebk_io *io, const char *path)
{
    struct ebk_memory_disk *disk = take(io);
    int answer = disk->halted ? -EIO : 0;
    if (answer == 0 && !path_fits(path)) answer = -ENAMETOOLONG;
    if (answer == 0 && !has_directory(disk, path, strlen(path))) {
        if (disk->directory_count == DIRECTORY_COUNT_MAX)
            answer = -ENOSPC;
        else
            strcpy(disk->directories[disk->directory_count++], path);
    }
    return (int)ebk_memory_give(disk, answer);
}

static int64_t memory_list(struct ebk_io *io, const char *path, char *names, size_t size)
{
    struct ebk_memory_disk *disk = take(io);
    int refused = struck(disk, EBK_CALL_LIST, path);
    if (refused == 0 && !has_directory(disk, path, strlen(path))) refused = -ENOENT;
    if (refused) return ebk_memory_give(disk, refused);
    size_t needed = 0;
    for (size_t i = 0; i < disk->name_count; i++) {
        const struct name *name = &disk->names[i];
        if (name->now == NULL || !is_in(name->path, path)) continue;
        const char *last = path[0] ? name->path + strlen(path) + 1 : name->path;
        size_t bytes = strlen(last) + 1;
        if (needed + bytes <= size) memcpy(names + needed, last, bytes);
        needed += bytes;
    }
    return ebk_memory_give(disk, (int64_t)needed);
}

static int memory_lock(struct ebk_io *io, const char *path)
{
    struct ebk_memory_disk *disk = take(io);
    if (disk->halted) return (int)ebk_memory_give(disk, -EIO);
    struct name *name = ebk_memory_find_name(disk, path);
    bool is_there = name != NULL && name->now != NULL;
    for (int i = 0; is_there && i < OPEN_COUNT_MAX; i++)
        if (disk->files[i].is_lock && disk->files[i].inode == name->now) return (int)ebk_memory_give(disk, -EWOULDBLOCK);
    int file = open_or_make(disk, path, is_there ? EBK_OPEN_WRITE : EBK_OPEN_WRITE | EBK_OPEN_CREATE);
    if (file >= 0) disk->files[file].is_lock = true;
    return (int)ebk_memory_give(disk, file);
}

/* ---- the disk as an object --------------------------------------------------------- */

struct ebk_memory_disk *ebk_memory_disk_new(void)
{
    struct ebk_memory_disk *disk = calloc(1, sizeof *disk);
    if (disk == NULL) return NULL;
    disk->names = calloc(NAME_COUNT_MAX, sizeof *disk->names);
    disk->changes = calloc(CHANGE_COUNT_MAX, sizeof *disk->changes);
    disk->directories = calloc(DIRECTORY_COUNT_MAX, sizeof *disk->directories);
    if (disk->names == NULL || disk->changes == NULL || disk->directories == NULL) {
        destroy(disk);
        return NULL;
    }
    pthread_mutex_init(&disk->mutex, NULL);
    disk->io = (struct ebk_io){
        .open = memory_open,
        .close = memory_close,
        .read = memory_read,
        .write = memory_write,
        .sync = memory_sync,
        .allocate = memory_allocate,
        .size = memory_size,
        .rename = memory_rename,
        .unlink = memory_unlink,
        .shrink = memory_shrink,
        .sync_directory = memory_sync_directory,
        .make_directory = memory_make_directory,
        .list = memory_list,
        .lock = memory_lock,
    };
    return disk;
}

void ebk_memory_disk_free(struct ebk_memory_disk *disk)
{
    if (disk == NULL) return;
    ebk_memory_take(disk);
    disk->is_orphan = true;
    bool is_over = !has_open_files(disk);
    ebk_memory_give(disk, 0);
    if (is_over) destroy(disk);
}

struct ebk_io *ebk_memory_disk_io(struct ebk_memory_disk *disk)
{
    return &disk->io;
}

void ebk_memory_disk_refuse_direct(struct ebk_memory_disk *disk, bool at_open, bool at_write)
{
    ebk_memory_take(disk);
    disk->refuses_direct_open = at_open;
    disk->refuses_direct_write = at_write;
    ebk_memory_give(disk, 0);
}

void ebk_memory_disk_limit(struct ebk_memory_disk *disk, uint64_t bytes)
{
    ebk_memory_take(disk);
    disk->bytes_max = bytes;
    ebk_memory_give(disk, 0);
}

void ebk_memory_disk_fail(struct ebk_memory_disk *disk, int call, uint64_t nth, int error, bool stays)
{
    EBK_ASSERT(call >= 0 && call < EBK_CALL_COUNT);
    ebk_memory_take(disk);
    disk->faults[call] =
        (struct fault){.at = nth == 0 ? 0 : disk->calls[call] + nth, .error = error, .stays = stays};
    ebk_memory_give(disk, 0);
}

void ebk_memory_disk_tear(struct ebk_memory_disk *disk, uint64_t nth, uint64_t sectors)
{
    ebk_memory_take(disk);
    disk->tear_at = nth == 0 ? 0 : disk->calls[EBK_CALL_WRITE] + nth;
    disk->tear_sectors = sectors;
    ebk_memory_give(disk, 0);
}

void ebk_memory_disk_halt(struct ebk_memory_disk *disk, uint64_t nth)
{
    ebk_memory_take(disk);
    disk->halt_at = nth == 0 ? 0 : disk->call_count + nth;
    ebk_memory_give(disk, 0);
}

uint64_t ebk_memory_disk_calls(struct ebk_memory_disk *disk, int call)
{
    EBK_ASSERT(call >= 0 && call <= EBK_CALL_COUNT);
    ebk_memory_take(disk);
    return (uint64_t)ebk_memory_give(disk, (int64_t)(call == EBK_CALL_COUNT ? disk->call_count : disk->calls[call]));
}
