/* store_logs.c: the entry logs of a store: their list, their open files, and reports of damaged ones.
 */
#include "store/store_inside.h"

#include "base/errors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define LOGS_MIN 16u

void ebk_log_free(struct ebk_log *log)
{
    for (uint32_t i = 0; log->rescue != NULL && i < log->rescue->found_count; i++) free(log->rescue->found[i].bytes);
    if (log->rescue != NULL) free(log->rescue->found);
    free(log->rescue);
    free(log->states);
    free(log->index);
    free(log);
}

int ebk_store_add_log(struct ebk_store *store, struct ebk_log *log)
{
    if (store->log_count == store->log_capacity) {
        const uint32_t capacity = store->log_capacity ? store->log_capacity * 2 : LOGS_MIN;
        struct ebk_log **logs = realloc(store->logs, capacity * sizeof *logs);
        if (logs == NULL) return EBK_NO_MEMORY;
        store->logs = logs;
        store->log_capacity = capacity;
    }
    uint32_t at = store->log_count++;
    for (; at > 0 && store->logs[at - 1]->descriptor.log_id > log->descriptor.log_id; at--)
        store->logs[at] = store->logs[at - 1];
    store->logs[at] = log;
    store->entry_count += log->descriptor.entry_count;
    return EBK_OK;
}

static void close_oldest(struct ebk_store *store)
{
    struct ebk_log *oldest = NULL;
    for (uint32_t i = 0; i < store->log_count; i++)
        if (store->logs[i]->file >= 0 && (oldest == NULL || store->logs[i]->used_at < oldest->used_at))
            oldest = store->logs[i];
    EBK_ASSERT(oldest != NULL);
    (void)store->io->close(store->io, oldest->file);
    oldest->file = -1;
    store->open_count -= 1;
}

int ebk_store_log_file(struct ebk_store *store, struct ebk_log *log)
{
    char path[EBK_PATH_BYTES_MAX];
    log->used_at = ++store->clock;
    if (log->file >= 0) return log->file;
    if (store->open_count == EBK_OPEN_LOGS_MAX) close_oldest(store);
    ebk_log_path(store->directories[log->directory], log->descriptor.log_id, false, path);
    log->file = store->io->open(store->io, path, EBK_OPEN_READ);
    if (ebk_is_want(log->file) && store->open_count > 0) { /* One of its own does more for this one. */
        close_oldest(store);
        log->file = store->io->open(store->io, path, EBK_OPEN_READ);
    }
    if (log->file < 0) {
        const int refused = log->file;
        log->file = -1;
        return refused;
    }
    store->open_count += 1;
    return log->file;
}

int ebk_store_refuse(char *text, size_t room, int code, const struct ebk_log *log, const char *format, ...)
{
    int used = log == NULL ? 0 : snprintf(text, room, "entry log %08x.elog: ", log->descriptor.log_id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, room - (size_t)used, format, arguments);
    va_end(arguments);
    return code;
}

void ebk_store_tell(struct ebk_store *store, const struct ebk_log *log, const char *format, ...)
{
    if (store->report_count == EBK_REPORTS_MAX) return;
    char *line = store->reports[store->report_count++];
    if (store->report_count == EBK_REPORTS_MAX) {
        snprintf(line, EBK_REPORT_BYTES, "more was met in entry logs than is told: %u lines are kept", EBK_REPORTS_MAX);
        return;
    }
    const int used = snprintf(line, EBK_REPORT_BYTES, "entry log %08x.elog: ", log->descriptor.log_id);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + used, EBK_REPORT_BYTES - (size_t)used, format, arguments);
    va_end(arguments);
}

void ebk_store_set_may_go_back(struct ebk_store *store, bool may_go_back)
{
    store->may_go_back = may_go_back;
}

uint32_t ebk_store_log_version(const struct ebk_store *store)
{
    if (!store->may_go_back) return EBK_LOG_VERSION;
    for (uint32_t i = 0; i < store->log_count; i++) /* Who cannot read one of them does not come back here. */
        if (store->logs[i]->descriptor.version == EBK_LOG_VERSION) return EBK_LOG_VERSION;
    return EBK_LOG_VERSION_TWICE;
}
