/* zmq_calls.c: see zmq_calls.h. */
#define _GNU_SOURCE
#include "wire/zmq_calls.h"

#include "base/errors.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct ebk_zmq_calls ebk_zmq;

static bool find(void *library, const char *name, void *call)
{
    void *found = dlsym(library, name);
    if (found == NULL) return false;
    memcpy(call, &found, sizeof found);
    return true;
}

int ebk_zmq_load(void *socket, int major, int minor, int patch)
{
    if (ebk_zmq.is_loaded) return EBK_OK;
    /* A socket begins with the table of its class, which lies in the library that made it. */
    Dl_info made_by;
    void *class_table;
    memcpy(&class_table, socket, sizeof class_table);
    if (class_table == NULL || dladdr(class_table, &made_by) == 0 || made_by.dli_fname == NULL) return EBK_UNSUPPORTED;
    void *library = dlopen(made_by.dli_fname, RTLD_LAZY | RTLD_NOLOAD); /* Never let go: it is pyzmq's. */
    if (library == NULL) return EBK_UNSUPPORTED;
    void (*version)(int *, int *, int *);
    int is[3] = {0};
    const bool is_found =
        find(library, "zmq_version", &version) && find(library, "zmq_msg_init", &ebk_zmq.init) &&
        find(library, "zmq_msg_init_size", &ebk_zmq.init_size) &&
        find(library, "zmq_msg_init_data", &ebk_zmq.init_data) && find(library, "zmq_msg_send", &ebk_zmq.send) &&
        find(library, "zmq_msg_recv", &ebk_zmq.recv) && find(library, "zmq_msg_close", &ebk_zmq.close) &&
        find(library, "zmq_msg_data", &ebk_zmq.data) && find(library, "zmq_msg_size", &ebk_zmq.size) &&
        find(library, "zmq_msg_more", &ebk_zmq.more) && find(library, "zmq_msg_get", &ebk_zmq.get) &&
        find(library, "zmq_errno", &ebk_zmq.last_error);
    if (is_found) version(&is[0], &is[1], &is[2]);
    if (!is_found || is[0] != major || is[1] != minor || is[2] != patch) {
        dlclose(library);
        return EBK_UNSUPPORTED;
    }
    ebk_zmq.is_loaded = true;
    return EBK_OK;
}

int ebk_zmq_skip(void *socket)
{
    if (!ebk_zmq.is_loaded) return 0;
    struct ebk_zmq_message part;
    (void)ebk_zmq.init(&part);
    while (ebk_zmq_receive(&part, socket) && ebk_zmq.more(&part)) continue;
    (void)ebk_zmq.close(&part);
    return 1;
}

static char drawing[128]; /* of random(), whose state rand() shares */
static char *before;

void ebk_rand_begin(uint32_t seed)
{
    before = initstate(seed, drawing, sizeof drawing);
    srand(seed);
}

void ebk_rand_end(void)
{
    if (before != NULL) (void)setstate(before);
}
