/* io_memory_lies.c: the disk in memory that answers OK and did something else: wrong bytes, wrong place, nothing at all.
 *
 * These are D4 to D7 of the fault catalogue while the disk works; at rest they are surgery (ebk_memory_disk_put,
 * ebk_memory_disk_revert). Each lie is planned for one call and happens once.
 */
#include "base/errors.h"
#include "io/io_memory_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *path_of(const struct ebk_memory_disk *disk, const struct inode *inode)
{
    for (size_t i = 0; i < disk->name_count; i++)
        if (disk->names[i].now == inode) return disk->names[i].path;
    return "";
}

/* Does the lie strike this call of this file? It counts the calls that it could strike. */
static bool strikes(struct ebk_memory_disk *disk, struct lie *lie, const struct inode *inode)
{
    if (lie->kind == EBK_LIE_NONE || lie->left == 0) return false;
    if (strstr(path_of(disk, inode), lie->part) == NULL) return false;
    lie->left -= 1;
    if (lie->left != 0) return false;
    disk->lie_count += 1;
    return true;
}

/* Another place in the file, `where` further on and round its end, in whole sectors. */
static size_t elsewhere(const struct inode *inode, size_t offset, int64_t where)
{
    size_t sectors = inode->now_size / SECTOR_BYTES;
    if (sectors < 2) return offset;
    return (offset / SECTOR_BYTES + (size_t)((uint64_t)where / SECTOR_BYTES)) % sectors * SECTOR_BYTES;
}

/* size bytes from offset on, going on at the file's beginning when they reach its end. */
static void store(struct ebk_memory_disk *disk, struct inode *inode, const uint8_t *from, size_t size, size_t offset)
{
    size_t until_end = inode->now_size - offset;
    size_t bytes = size < until_end ? size : until_end;
    ebk_memory_remember(disk, inode, bytes, offset);
    memcpy(inode->now + offset, from, bytes);
    ebk_memory_dirty(inode, offset, offset + bytes);
    if (bytes < size) store(disk, inode, from + bytes, size - bytes, 0);
}

static void forget_held(struct ebk_memory_disk *disk)
{
    free(disk->held.intended);
    disk->held = (struct held){0};
}

static void hold(struct ebk_memory_disk *disk, struct inode *inode, const void *from, size_t size, size_t offset)
{
    forget_held(disk);
    uint8_t *intended = malloc(size);
    EBK_ASSERT(intended != NULL); /* A test's disk: without it the test would claim what it cannot. */
    memcpy(intended, from, size);
    disk->held = (struct held){.inode = inode, .intended = intended, .size = size, .offset = offset};
}

bool ebk_memory_lie_write(struct ebk_memory_disk *disk, struct inode *inode, const void *from, size_t size,
                          size_t offset)
{
    struct lie *lie = &disk->write_lie;
    if (size == 0 || !strikes(disk, lie, inode)) return false;
    if (lie->spares_last) hold(disk, inode, from, size, offset);
    if (lie->kind == EBK_LIE_MISDIRECTED) {
        store(disk, inode, from, size, elsewhere(inode, offset, lie->where));
    } else if (lie->kind == EBK_LIE_FLIPPED) {
        size_t bit = (size_t)((uint64_t)lie->where % (size * 8));
        store(disk, inode, from, size, offset);
        inode->now[offset + bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    return true;
}

bool ebk_memory_lie_read(struct ebk_memory_disk *disk, struct inode *inode, void *to, size_t size, size_t offset)
{
    struct lie *lie = &disk->read_lie;
    if (size == 0 || !strikes(disk, lie, inode)) return false;
    const uint8_t *from = inode->now;
    size_t place = offset;
    if (lie->kind == EBK_LIE_MISDIRECTED) place = elsewhere(inode, offset, lie->where);
    if (lie->kind == EBK_LIE_STALE && inode->before != NULL) from = inode->before;
    size_t bytes = size < inode->now_size - place ? size : inode->now_size - place;
    memcpy(to, from + place, bytes);
    memcpy((uint8_t *)to + bytes, from, size - bytes); /* Round the end. */
    size_t bit = (size_t)((uint64_t)lie->where % (size * 8));
    if (lie->kind == EBK_LIE_FLIPPED) ((uint8_t *)to)[bit / 8] ^= (uint8_t)(1u << bit % 8);
    return true;
}

void ebk_memory_lie_outlived(struct ebk_memory_disk *disk, const struct inode *inode, bool is_durable)
{
    if (disk->held.inode != inode) return;
    disk->held.has_later = true;
    if (is_durable) forget_held(disk);
}

void ebk_memory_lie_synced(struct ebk_memory_disk *disk, const struct inode *inode)
{
    if (disk->held.inode == inode && disk->held.has_later) forget_held(disk);
}

void ebk_memory_lie_end(struct ebk_memory_disk *disk)
{
    struct held *held = &disk->held;
    if (held->inode != NULL && held->offset + held->size <= held->inode->stable_size) {
        memcpy(held->inode->now + held->offset, held->intended, held->size);
        memcpy(held->inode->stable + held->offset, held->intended, held->size);
    }
    forget_held(disk);
    disk->read_lie = disk->write_lie = (struct lie){0};
}

void ebk_memory_remember(struct ebk_memory_disk *disk, struct inode *inode, size_t size, size_t offset)
{
    if (!disk->keeps_history || size == 0) return;
    if (inode->before == NULL) {
        inode->before = calloc(1, inode->capacity);
        EBK_ASSERT(inode->before != NULL);
        memcpy(inode->before, inode->now, inode->now_size);
    }
    memcpy(inode->before + offset, inode->now + offset, size);
}

void ebk_memory_disk_lie(struct ebk_memory_disk *disk, int call, int kind, const char *part, uint64_t nth,
                         int64_t where, bool spares_last)
{
    EBK_ASSERT(call == EBK_CALL_READ || call == EBK_CALL_WRITE);
    EBK_ASSERT(kind >= EBK_LIE_NONE && kind <= EBK_LIE_STALE);
    ebk_memory_take(disk);
    struct lie *lie = call == EBK_CALL_READ ? &disk->read_lie : &disk->write_lie;
    EBK_ASSERT(strlen(part) < sizeof lie->part);
    *lie = (struct lie){.kind = nth == 0 ? EBK_LIE_NONE : kind, .left = nth, .where = where, .spares_last = spares_last};
    strcpy(lie->part, part);
    ebk_memory_give(disk, 0);
}

uint64_t ebk_memory_disk_lies(struct ebk_memory_disk *disk)
{
    ebk_memory_take(disk);
    uint64_t count = disk->lie_count;
    ebk_memory_give(disk, 0);
    return count;
}

void ebk_memory_disk_keep_history(struct ebk_memory_disk *disk)
{
    ebk_memory_take(disk);
    disk->keeps_history = true;
    ebk_memory_give(disk, 0);
}

int ebk_memory_disk_revert(struct ebk_memory_disk *disk, const char *path, uint64_t offset, uint64_t size)
{
    ebk_memory_take(disk);
    struct inode *inode = NULL;
    for (size_t i = 0; i < disk->name_count; i++)
        if (strcmp(disk->names[i].path, path) == 0) inode = disk->names[i].now;
    bool is_there = inode != NULL && inode->before != NULL;
    if (is_there && offset < inode->now_size) {
        size_t bytes = size < inode->now_size - offset ? (size_t)size : inode->now_size - (size_t)offset;
        memcpy(inode->now + offset, inode->before + offset, bytes);
        memcpy(inode->stable + offset, inode->before + offset, bytes);
    }
    ebk_memory_give(disk, 0);
    return is_there ? 0 : -ENOENT;
}
