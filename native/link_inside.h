/* link_inside.h: what link_adds.c and link_sender.c ask each other. */
#ifndef EBK_LINK_INSIDE_H
#define EBK_LINK_INSIDE_H

#include "link_adds.h"

struct ebk_sending_link {
    uint64_t number;
    void *socket; /* NULL: it leads to the tray */
    struct ebk_link_tray *tray;
    uint64_t room, sent;
    bool is_used; /* a send may have swallowed what its descriptor would tell of */
    uint8_t prefix[24];
};

/* NULL: it is not up. */
struct ebk_sending_link *ebk_link_sender_find(struct ebk_link_sender *sender, uint64_t link);

void ebk_link_adds_turn(struct ebk_link_adds *adds, struct ebk_link_sender *sender, int64_t now_ns);
/* As ebk_link_sender_due_ns and _has_more, of these. */
int64_t ebk_link_adds_due_ns(struct ebk_link_adds *adds, int64_t now_ns);
bool ebk_link_adds_has_more(const struct ebk_link_adds *adds, struct ebk_link_sender *sender);

#endif
