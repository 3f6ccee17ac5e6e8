/* io_disk.c: the table of calls over the real disk.
 *
 * Nothing but the system calls: EINTR and short counts are carried on here, so that no
 * caller has to know of them. Opening a file drops its clean pages: after a failed sync
 * they may differ from what the device holds.
 */
#define _GNU_SOURCE
#include "base/errors.h"
#include "io/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MODE 0644
#define DIRECTORY_MODE 0755

static int answer(int result)
{
    return result < 0 ? -errno : result;
}

static int open_again(const char *path, int native)
{
    int file;
    do {
        file = open(path, native, FILE_MODE);
    } while (file < 0 && errno == EINTR);
    return file;
}

static int disk_open(struct ebk_io *io, const char *path, int flags)
{
    (void)io;
    EBK_ASSERT((flags & ~EBK_OPEN_KNOWN) == 0);
    int native = O_CLOEXEC | O_NONBLOCK | ((flags & EBK_OPEN_WRITE) ? O_RDWR : O_RDONLY);
    if (flags & EBK_OPEN_CREATE) native |= O_CREAT | O_EXCL;
    if (flags & EBK_OPEN_DIRECT) native |= O_DIRECT;
    if (flags & EBK_OPEN_DSYNC) native |= O_DSYNC;
    int file = open_again(path, native);
    if (file < 0) {
        int error = errno;
        /* Linux makes the file before it finds that the file system knows no direct I/O. */
        if ((flags & EBK_OPEN_CREATE) && error == EINVAL) unlink(path);
        return -error;
    }
    struct stat status; /* A pipe or a device under a file's name must not make anybody wait: nothing is written to it. */
    const int error = fstat(file, &status) < 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : !S_ISREG(status.st_mode) ? ESPIPE : 0;
    if (error != 0) {
        close(file);
        return -error;
    }
    if (!(flags & (EBK_OPEN_CREATE | EBK_OPEN_DIRECT))) (void)posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    return file;
}

static int disk_close(struct ebk_io *io, int file)
{
    (void)io;
    return answer(close(file));
}

static int64_t disk_read(struct ebk_io *io, int file, void *to, size_t size, uint64_t offset)
{
    (void)io;
    size_t done = 0;
    while (done < size) {
        ssize_t got = pread(file, (uint8_t *)to + done, size - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

static int64_t disk_write(struct ebk_io *io, int file, const void *from, size_t size, uint64_t offset)
{
    (void)io;
    size_t done = 0;
    while (done < size) {
        ssize_t put = pwrite(file, (const uint8_t *)from + done, size - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return -errno;
        if (put == 0) return -EIO;
        done += (size_t)put;
    }
    return (int64_t)done;
}

static int disk_sync(struct ebk_io *io, int file)
{
    (void)io;
    return answer(fdatasync(file)); /* Also the size, which a reader needs; never retried, whatever the error. */
}

static int disk_allocate(struct ebk_io *io, int file, uint64_t size)
{
    (void)io;
    int result;
    do {
        result = fallocate(file, 0, 0, (off_t)size);
    } while (result < 0 && errno == EINTR);
    if (result < 0 && errno == EOPNOTSUPP) result = ftruncate(file, (off_t)size);
    return answer(result);
}

static int64_t disk_size(struct ebk_io *io, int file)
{
    (void)io;
    struct stat status;
    return fstat(file, &status) < 0 ? -errno : (int64_t)status.st_size;
}

static int disk_rename(struct ebk_io *io, const char *from, const char *to)
{
    (void)io;
    return answer(rename(from, to));
}

static int disk_unlink(struct ebk_io *io, const char *path)
{
    (void)io;
    return answer(unlink(path));
}

/* Synced, or the file system would gather all that is cut off and give it back at once. */
static int disk_shrink(struct ebk_io *io, int file, uint64_t size)
{
    (void)io;
    const int cut = answer(ftruncate(file, (off_t)size));
    return cut < 0 ? cut : answer(fdatasync(file));
}

static int disk_sync_directory(struct ebk_io *io, const char *path)
{
    (void)io;
    int directory = open_again(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return -errno;
    int result = answer(fsync(directory));
    close(directory);
    return result;
}

static int disk_make_directory(struct ebk_io *io, const char *path)
{
    (void)io;
    if (mkdir(path, DIRECTORY_MODE) == 0) return 0;
    if (errno != EEXIST) return -errno;
    struct stat status;
    if (stat(path, &status) < 0) return -errno;
    return S_ISDIR(status.st_mode) ? 0 : -ENOTDIR;
}

static int64_t disk_list(struct ebk_io *io, const char *path, char *names, size_t size)
{
    (void)io;
    DIR *directory = opendir(path);
    if (directory == NULL) return -errno;
    int64_t needed = 0;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(directory);
        if (entry == NULL) break;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        size_t bytes = strlen(entry->d_name) + 1;
        if ((size_t)needed + bytes <= size) memcpy(names + needed, entry->d_name, bytes);
        needed += (int64_t)bytes;
    }
    int error = errno;
    closedir(directory);
    return error ? -error : needed;
}

static int disk_lock(struct ebk_io *io, const char *path)
{
    (void)io;
    int file = open_again(path, O_RDWR | O_CREAT | O_CLOEXEC);
    if (file < 0) return -errno;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) return file;
    int error = errno;
    close(file);
    return -error;
}

static struct ebk_io disk = {
    .open = disk_open,
    .close = disk_close,
    .read = disk_read,
    .write = disk_write,
    .sync = disk_sync,
    .allocate = disk_allocate,
    .size = disk_size,
    .rename = disk_rename,
    .unlink = disk_unlink,
    .shrink = disk_shrink,
    .sync_directory = disk_sync_directory,
    .make_directory = disk_make_directory,
    .list = disk_list,
    .lock = disk_lock,
};

struct ebk_io *ebk_io_disk(void)
{
    return &disk;
}
