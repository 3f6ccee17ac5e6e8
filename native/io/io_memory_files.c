/* io_memory_files.c: the names and files of the disk in memory, each as it is now and as a power cut leaves it.
 *
 * Each file has two contents: `now`, what a reader sees, and `stable`, what a power cut
 * leaves. A synced write goes to both, another one to `now` until sync() copies what it
 * dirtied. Names work alike: changes of names queue up in `changes` and reach `stable`
 * when their directory is synced, in order, a rename as one change.
 *
 *     name ── now ──▶ inode ── now bytes      (volatile)
 *          └ stable ▶       └─ stable bytes   (survive ebk_memory_disk_crash)
 */
#include "base/errors.h"
#include "io/io_memory_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct name *ebk_memory_find_name(struct ebk_memory_disk *disk, const char *path)
{
    for (size_t i = 0; i < disk->name_count; i++)
        if (strcmp(disk->names[i].path, path) == 0) return &disk->names[i];
    return NULL;
}

struct name *ebk_memory_make_name(struct ebk_memory_disk *disk, const char *path)
{
    struct name *name = ebk_memory_find_name(disk, path);
    if (name != NULL) return name;
    for (size_t i = 0; i < disk->name_count && name == NULL; i++)
        if (disk->names[i].now == NULL && disk->names[i].stable == NULL) name = &disk->names[i];
    if (name == NULL) {
        if (disk->name_count == NAME_COUNT_MAX) return NULL;
        name = &disk->names[disk->name_count++];
    }
    memset(name, 0, sizeof *name);
    strcpy(name->path, path);
    return name;
}

struct inode *ebk_memory_new_inode(struct ebk_memory_disk *disk)
{
    struct inode *inode = calloc(1, sizeof *inode);
    if (inode == NULL) return NULL;
    inode->next = disk->inodes;
    disk->inodes = inode;
    return inode;
}

void ebk_memory_free_inode(struct inode *inode)
{
    free(inode->now);
    free(inode->stable);
    free(inode->before);
    free(inode);
}

static bool is_used(struct ebk_memory_disk *disk, const struct inode *inode)
{
    for (size_t i = 0; i < disk->name_count; i++)
        if (disk->names[i].now == inode || disk->names[i].stable == inode) return true;
    for (size_t i = 0; i < disk->change_count; i++)
        if (disk->changes[i].inode == inode) return true;
    for (int i = 0; i < OPEN_COUNT_MAX; i++)
        if (disk->files[i].inode == inode) return true;
    return disk->held.inode == inode;
}

void ebk_memory_sweep(struct ebk_memory_disk *disk)
{
    struct inode **link = &disk->inodes;
    while (*link != NULL) {
        struct inode *inode = *link;
        if (is_used(disk, inode)) {
            link = &inode->next;
        } else {
            *link = inode->next;
            ebk_memory_free_inode(inode);
        }
    }
}

static uint64_t bytes_used(const struct ebk_memory_disk *disk)
{
    uint64_t bytes = 0;
    for (const struct inode *inode = disk->inodes; inode != NULL; inode = inode->next) bytes += inode->now_size;
    return bytes;
}

int ebk_memory_grow(struct ebk_memory_disk *disk, struct inode *inode, size_t size)
{
    if (size <= inode->now_size) return 0;
    if (size > FILE_BYTES_MAX) return -EFBIG;
    if (disk->bytes_max != 0 && bytes_used(disk) + (size - inode->now_size) > disk->bytes_max) return -ENOSPC;
    if (size > inode->capacity) {
        size_t capacity = inode->capacity * 2 > size ? inode->capacity * 2 : size;
        uint8_t *now = realloc(inode->now, capacity);
        if (now == NULL) return -ENOMEM;
        inode->now = now;
        uint8_t *stable = realloc(inode->stable, capacity);
        if (stable == NULL) return -ENOMEM;
        inode->stable = stable;
        if (inode->before != NULL) {
            uint8_t *before = realloc(inode->before, capacity);
            if (before == NULL) return -ENOMEM;
            inode->before = before;
            memset(before + inode->capacity, 0, capacity - inode->capacity);
        }
        memset(now + inode->capacity, 0, capacity - inode->capacity);
        memset(stable + inode->capacity, 0, capacity - inode->capacity);
        inode->capacity = capacity;
    }
    inode->now_size = size;
    return 0;
}

void ebk_memory_dirty(struct inode *inode, size_t begin, size_t end)
{
    if (inode->dirty_begin == inode->dirty_end) {
        inode->dirty_begin = begin;
        inode->dirty_end = end;
        return;
    }
    if (begin < inode->dirty_begin) inode->dirty_begin = begin;
    if (end > inode->dirty_end) inode->dirty_end = end;
}

void ebk_memory_make_stable(struct inode *inode)
{
    if (inode->dirty_end > inode->dirty_begin)
        memcpy(inode->stable + inode->dirty_begin, inode->now + inode->dirty_begin,
               inode->dirty_end - inode->dirty_begin);
    inode->dirty_begin = inode->dirty_end = 0;
    inode->stable_size = inode->now_size;
}

int ebk_memory_queue_change(struct ebk_memory_disk *disk, const char *from, const char *to, struct inode *inode)
{
    if (disk->change_count == CHANGE_COUNT_MAX) return -ENOSPC;
    struct change *change = &disk->changes[disk->change_count++];
    strcpy(change->from, from);
    strcpy(change->to, to);
    change->inode = inode;
    return 0;
}

void ebk_memory_apply_change(struct ebk_memory_disk *disk, const struct change *change)
{
    struct name *from = change->from[0] ? ebk_memory_find_name(disk, change->from) : NULL;
    if (from != NULL) from->stable = NULL;
    if (!change->to[0]) return;
    struct name *to = ebk_memory_make_name(disk, change->to);
    EBK_ASSERT(to != NULL);
    to->stable = change->inode;
}
