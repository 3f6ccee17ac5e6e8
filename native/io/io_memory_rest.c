/* io_memory_rest.c: changes of the disk in memory between its uses: power goes, a process ends, files are looked at, put
 * there and taken away.
 */
#include "io/io_memory_inside.h"

#include <errno.h>
#include <string.h>

/* A draw from the seed (splitmix64): the same crash on every machine. */
static uint64_t draw(uint64_t *seed)
{
    uint64_t value = (*seed += 0x9E3779B97F4A7C15u);
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
}

static void crash_inode(struct inode *inode, uint64_t *seed)
{
    if (*seed != 0 && inode->dirty_end > inode->dirty_begin) {
        if (draw(seed) & 1u) inode->stable_size = inode->now_size;
        for (size_t at = inode->dirty_begin / SECTOR_BYTES * SECTOR_BYTES; at < inode->dirty_end; at += SECTOR_BYTES) {
            if (!(draw(seed) & 1u)) continue;
            size_t bytes = inode->capacity - at < SECTOR_BYTES ? inode->capacity - at : SECTOR_BYTES;
            memcpy(inode->stable + at, inode->now + at, bytes);
        }
    }
    if (inode->capacity > 0) {
        memset(inode->stable + inode->stable_size, 0, inode->capacity - inode->stable_size);
        memcpy(inode->now, inode->stable, inode->capacity);
    }
    inode->now_size = inode->stable_size;
    inode->dirty_begin = inode->dirty_end = 0;
}

/* What was open is so no more, and calls are answered again. */
static void end_process(struct ebk_memory_disk *disk)
{
    /* Their numbers stay taken until closed: a caller that missed it must not reach another's file. */
    for (int i = 0; i < OPEN_COUNT_MAX; i++) disk->files[i].inode = NULL;
    disk->tear_at = 0;
    disk->halt_at = 0;
    disk->halted = false;
}

void ebk_memory_disk_crash(struct ebk_memory_disk *disk, uint64_t seed)
{
    ebk_memory_take(disk);
    ebk_memory_lie_end(disk);
    /* A file system with a journal keeps a prefix of the changes of names. */
    size_t kept = seed == 0 ? 0 : (size_t)(draw(&seed) % (disk->change_count + 1));
    for (size_t i = 0; i < kept; i++) ebk_memory_apply_change(disk, &disk->changes[i]);
    disk->change_count = 0;
    for (size_t i = 0; i < disk->name_count; i++) disk->names[i].now = disk->names[i].stable;
    for (struct inode *inode = disk->inodes; inode != NULL; inode = inode->next) crash_inode(inode, &seed);
    end_process(disk);
    memset(disk->faults, 0, sizeof disk->faults);
    disk->broken_count = 0;
    ebk_memory_sweep(disk);
    ebk_memory_give(disk, 0);
}

void ebk_memory_disk_kill(struct ebk_memory_disk *disk)
{
    ebk_memory_take(disk);
    end_process(disk);
    ebk_memory_sweep(disk);
    ebk_memory_give(disk, 0);
}

int64_t ebk_memory_disk_names(struct ebk_memory_disk *disk, bool stable, char *names, size_t size)
{
    ebk_memory_take(disk);
    size_t needed = 0;
    for (size_t i = 0; i < disk->name_count; i++) {
        const struct name *name = &disk->names[i];
        if ((stable ? name->stable : name->now) == NULL) continue;
        size_t bytes = strlen(name->path) + 1;
        if (needed + bytes <= size) memcpy(names + needed, name->path, bytes);
        needed += bytes;
    }
    return ebk_memory_give(disk, (int64_t)needed);
}

int64_t ebk_memory_disk_read(struct ebk_memory_disk *disk, bool stable, const char *path, void *to, size_t size)
{
    ebk_memory_take(disk);
    const struct name *name = ebk_memory_find_name(disk, path);
    const struct inode *inode = name == NULL ? NULL : (stable ? name->stable : name->now);
    if (inode == NULL) return ebk_memory_give(disk, -ENOENT);
    size_t have = stable ? inode->stable_size : inode->now_size;
    size_t copied = size < have ? size : have;
    if (copied > 0) memcpy(to, stable ? inode->stable : inode->now, copied);
    return ebk_memory_give(disk, (int64_t)have);
}

int ebk_memory_disk_put(struct ebk_memory_disk *disk, const char *path, const void *from, size_t size)
{
    ebk_memory_take(disk);
    if (strlen(path) >= PATH_BYTES_MAX) return (int)ebk_memory_give(disk, -ENAMETOOLONG);
    struct name *name = ebk_memory_make_name(disk, path);
    struct inode *inode = name == NULL ? NULL : ebk_memory_new_inode(disk);
    if (inode == NULL) return (int)ebk_memory_give(disk, -ENOMEM);
    name->now = name->stable = inode;
    int refused = ebk_memory_grow(disk, inode, size);
    if (refused == 0 && size > 0) {
        memcpy(inode->now, from, size);
        memcpy(inode->stable, from, size);
        inode->stable_size = size;
    }
    ebk_memory_sweep(disk);
    return (int)ebk_memory_give(disk, refused);
}

int ebk_memory_disk_drop(struct ebk_memory_disk *disk, const char *path)
{
    ebk_memory_take(disk);
    struct name *name = ebk_memory_find_name(disk, path);
    if (name == NULL) return (int)ebk_memory_give(disk, -ENOENT);
    name->now = name->stable = NULL;
    ebk_memory_sweep(disk);
    return (int)ebk_memory_give(disk, 0);
}
