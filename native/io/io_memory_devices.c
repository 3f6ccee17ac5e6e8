/* io_memory_devices.c: a disk in memory that is several devices, each with a failure of its own: one is full, one is
 * gone, and the others serve.
 */
#include "io/io_memory_inside.h"

#include "base/errors.h"

#include <errno.h>
#include <string.h>

int ebk_memory_device_refuses(const struct ebk_memory_disk *disk, int call, const char *path)
{
    for (size_t i = 0; i < disk->broken_count; i++) {
        const struct broken *broken = &disk->broken[i];
        if (strncmp(path, broken->part, strlen(broken->part)) != 0) continue;
        if (broken->error != ENOSPC || call == EBK_CALL_ALLOCATE) return -broken->error;
    }
    return 0;
}

void ebk_memory_disk_break(struct ebk_memory_disk *disk, const char *path, int error)
{
    ebk_memory_take(disk);
    size_t at = 0;
    while (at < disk->broken_count && strcmp(disk->broken[at].part, path) != 0) at++;
    if (error != 0) {
        EBK_ASSERT(at < BROKEN_COUNT_MAX && strlen(path) < sizeof disk->broken[at].part);
        strcpy(disk->broken[at].part, path);
        disk->broken[at].error = error;
        if (at == disk->broken_count) disk->broken_count += 1;
    } else if (at < disk->broken_count) {
        disk->broken_count -= 1;
        disk->broken[at] = disk->broken[disk->broken_count];
    }
    ebk_memory_give(disk, 0);
}
