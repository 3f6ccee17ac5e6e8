/* links.h: the links of one transport that frames of writing handles are sent over: to seats that are reached by messages.
 *
 * One thread, the loop's.
 */
#ifndef EBK_LINKS_H
#define EBK_LINKS_H

#include "base/gil.h"

#include <stdbool.h>
#include <stdint.h>

/* cffi:begin */
struct ebk_link_tray;
struct ebk_links;

/* NULL without memory. */
struct ebk_links *ebk_links_new(void);
void ebk_links_free(struct ebk_links *links);
/* A dialled link that is up: socket is borrowed until ebk_links_down. Frames may be sent for room bytes of bodies from
 * now on. EBK_NO_MEMORY: there are none then. */
EBK_SHORT int ebk_links_up(struct ebk_links *links, uint64_t link, void *socket, const uint8_t *prefix, uint64_t room);
/* The same, of a link that leads to a tray, which is borrowed. */
EBK_SHORT int ebk_links_up_tray(struct ebk_links *links, uint64_t link, struct ebk_link_tray *tray, uint64_t room);
EBK_SHORT void ebk_links_down(struct ebk_links *links, uint64_t link);
/* Bytes of bodies that were sent on a link since this was asked last. */
EBK_SHORT uint64_t ebk_links_sent(struct ebk_links *links, uint64_t link);
/* cffi:end */

struct ebk_sending_link {
    uint64_t number;
    void *socket; /* NULL: it leads to the tray */
    struct ebk_link_tray *tray;
    uint64_t room, sent;
    bool is_used; /* a send may have swallowed what its descriptor would tell of */
    uint8_t prefix[24];
};

/* NULL: it is not up. */
struct ebk_sending_link *ebk_links_find(struct ebk_links *links, uint64_t link);
/* Sent on this link since it was asked last by this: its socket is not known to be empty. */
bool ebk_links_has_used(struct ebk_links *links, uint64_t link);

#endif
