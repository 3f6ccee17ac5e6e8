/* io_calls.c: the table of calls as functions, for Python; and what an answer is about. */
#include "io/io.h"

#include <errno.h>

bool ebk_is_want(int64_t answer)
{
    return answer == -EMFILE || answer == -ENFILE || answer == -ENOMEM;
}

int ebk_io_make_directory(struct ebk_io *io, const char *path)
{
    return io->make_directory(io, path);
}

int ebk_io_open(struct ebk_io *io, const char *path, int flags)
{
    return io->open(io, path, flags);
}

int ebk_io_close(struct ebk_io *io, int file)
{
    return io->close(io, file);
}

int64_t ebk_io_read(struct ebk_io *io, int file, void *to, size_t size, uint64_t offset)
{
    return io->read(io, file, to, size, offset);
}

int64_t ebk_io_write(struct ebk_io *io, int file, const void *from, size_t size, uint64_t offset)
{
    return io->write(io, file, from, size, offset);
}

int ebk_io_sync(struct ebk_io *io, int file)
{
    return io->sync(io, file);
}

int64_t ebk_io_size(struct ebk_io *io, int file)
{
    return io->size(io, file);
}

int ebk_io_rename(struct ebk_io *io, const char *from, const char *to)
{
    return io->rename(io, from, to);
}

int ebk_io_unlink(struct ebk_io *io, const char *path)
{
    return io->unlink(io, path);
}

int ebk_io_sync_directory(struct ebk_io *io, const char *path)
{
    return io->sync_directory(io, path);
}

int64_t ebk_io_list(struct ebk_io *io, const char *path, char *names, size_t size)
{
    return io->list(io, path, names, size);
}
