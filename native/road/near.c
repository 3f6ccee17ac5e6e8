/* near.c: see near.h.
 *
 * A journal that tells durability concerns first of all the adds that wait for it. Where nobody else does, its node is not
 * stepped: the second of three journals ends an append, and what the third one says afterwards moves nothing.
 */
#include "road/near.h"

#include "base/errors.h"

#include <stdlib.h>

struct ebk_near {
    struct ebk_add_path *path; /* NULL: it has left */
    uint64_t durable;          /* as far as it was when it left */
    uint64_t bytes_seen;       /* of the path, when its node was stepped last */
    bool is_open, is_told;
};

struct ebk_near *ebk_near_new(struct ebk_add_path *path)
{
    struct ebk_near *near = calloc(1, sizeof *near);
    if (near != NULL) near->path = path;
    return near;
}

void ebk_near_free(struct ebk_near *near)
{
    free(near);
}

void ebk_near_show(struct ebk_near *near, bool is_open, bool is_told)
{
    near->is_open = is_open && near->path != NULL;
    near->is_told = is_told;
    if (near->path != NULL) near->bytes_seen = ebk_add_path_bytes(near->path);
}

void ebk_near_leave(struct ebk_near *near)
{
    if (near->path != NULL) near->durable = ebk_add_path_durable(near->path);
    near->path = NULL;
    near->is_open = false;
}

bool ebk_near_is_open(const struct ebk_near *near)
{
    EBK_ASSERT(!near->is_open || near->path != NULL);
    return near->is_open;
}

bool ebk_near_is_followed(const struct ebk_near *near, uint64_t ledger_id)
{
    const struct ebk_tail_path *readers = near->path == NULL ? NULL : ebk_add_path_tail(near->path);
    return readers != NULL && ebk_tail_is_followed(readers, ledger_id);
}

struct ebk_add_path *ebk_near_path(const struct ebk_near *near)
{
    EBK_ASSERT(near->path != NULL);
    return near->path;
}

uint64_t ebk_near_durable(const struct ebk_near *near)
{
    return near->path != NULL ? ebk_add_path_durable(near->path) : near->durable;
}

bool ebk_near_concerns_node(struct ebk_near *near)
{
    if (near->path == NULL || near->is_told) return true;
    ebk_add_path_clear(near->path);
    return ebk_add_path_has_failed(near->path) || ebk_add_path_pending(near->path) > 0 ||
           ebk_add_path_bytes(near->path) - near->bytes_seen >= EBK_NEAR_UNSEEN_BYTES_MAX;
}

int ebk_near_event(const struct ebk_near *near, uint32_t part)
{
    return near->path != NULL ? ebk_add_path_event(near->path, part) : -1;
}
