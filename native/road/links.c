/* links.c: see links.h. */
#include "road/links.h"

#include "base/errors.h"
#include "wire/zmq_calls.h"

#include <stdlib.h>
#include <string.h>

struct ebk_links {
    struct ebk_sending_link *links;
    uint32_t count, room;
};

struct ebk_links *ebk_links_new(void)
{
    return calloc(1, sizeof(struct ebk_links));
}

void ebk_links_free(struct ebk_links *links)
{
    if (links == NULL) return;
    free(links->links);
    free(links);
}

/* Room for one more. */
static bool widen(struct ebk_links *links)
{
    EBK_ASSERT(links->count <= links->room);
    if (links->count < links->room) return true;
    const uint32_t wider = links->room ? links->room * 2 : 8;
    void *grown = realloc(links->links, wider * sizeof *links->links);
    if (grown == NULL) return false;
    links->links = grown;
    links->room = wider;
    return true;
}

struct ebk_sending_link *ebk_links_find(struct ebk_links *links, uint64_t link)
{
    for (uint32_t i = 0; i < links->count; i++)
        if (links->links[i].number == link) return &links->links[i];
    return NULL;
}

/* A new one if need be; NULL without memory. */
static struct ebk_sending_link *link_of(struct ebk_links *links, uint64_t link)
{
    struct ebk_sending_link *found = ebk_links_find(links, link);
    if (found != NULL) return found;
    if (!widen(links)) return NULL;
    found = &links->links[links->count++];
    *found = (struct ebk_sending_link){.number = link};
    return found;
}

int ebk_links_up(struct ebk_links *links, uint64_t link, void *socket, const uint8_t *prefix, uint64_t room)
{
    struct ebk_sending_link *found = link_of(links, link);
    if (found == NULL) return EBK_NO_MEMORY;
    EBK_ASSERT(ebk_zmq.is_loaded && socket != NULL);
    found->socket = socket;
    memcpy(found->prefix, prefix, sizeof found->prefix);
    found->room = room;
    return EBK_OK;
}

int ebk_links_up_tray(struct ebk_links *links, uint64_t link, struct ebk_link_tray *tray, uint64_t room)
{
    struct ebk_sending_link *found = link_of(links, link);
    if (found == NULL) return EBK_NO_MEMORY;
    found->tray = tray;
    found->room = room;
    return EBK_OK;
}

void ebk_links_down(struct ebk_links *links, uint64_t link)
{
    struct ebk_sending_link *found = ebk_links_find(links, link);
    if (found != NULL) *found = links->links[--links->count];
}

uint64_t ebk_links_sent(struct ebk_links *links, uint64_t link)
{
    struct ebk_sending_link *found = ebk_links_find(links, link);
    if (found == NULL) return 0;
    const uint64_t sent = found->sent;
    found->sent = 0;
    return sent;
}

bool ebk_links_has_used(struct ebk_links *links, uint64_t link)
{
    struct ebk_sending_link *found = ebk_links_find(links, link);
    if (found == NULL || !found->is_used) return false;
    found->is_used = false;
    return true;
}
