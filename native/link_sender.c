/* link_sender.c: the links that adds go over, and the wake-up of who sends on them (link_adds.h). */
#include "errors.h"
#include "link_adds.h"
#include "link_inside.h"
#include "link_tray.h"
#include "wait_set.h"
#include "zmq_calls.h"

#include <stdlib.h>
#include <string.h>

struct ebk_link_sender {
    struct ebk_wake wake;
    struct ebk_sending_link *links;
    uint32_t link_count, link_room;
    struct ebk_link_adds **adds;
    uint32_t adds_count, adds_room;
};

struct ebk_link_sender *ebk_link_sender_new(void)
{
    struct ebk_link_sender *sender = calloc(1, sizeof *sender);
    if (sender == NULL) return NULL;
    if (ebk_wake_open(&sender->wake)) return sender;
    free(sender);
    return NULL;
}

void ebk_link_sender_free(struct ebk_link_sender *sender)
{
    if (sender == NULL) return;
    ebk_wake_close(&sender->wake);
    free(sender->links);
    free(sender->adds);
    free(sender);
}

/* Room for one more of `size` bytes. */
static bool widen(void **array, uint32_t count, uint32_t *room, size_t size)
{
    if (count < *room) return true;
    const uint32_t wider = *room ? *room * 2 : 8;
    void *grown = realloc(*array, wider * size);
    if (grown == NULL) return false;
    *array = grown;
    *room = wider;
    return true;
}

/* ---- links ----------------------------------------------------------------------------- */

struct ebk_sending_link *ebk_link_sender_find(struct ebk_link_sender *sender, uint64_t link)
{
    for (uint32_t i = 0; i < sender->link_count; i++)
        if (sender->links[i].number == link) return &sender->links[i];
    return NULL;
}

/* A new one if need be; NULL without memory. */
static struct ebk_sending_link *link_of(struct ebk_link_sender *sender, uint64_t link)
{
    struct ebk_sending_link *found = ebk_link_sender_find(sender, link);
    if (found != NULL) return found;
    if (!widen((void **)&sender->links, sender->link_count, &sender->link_room, sizeof *sender->links)) return NULL;
    found = &sender->links[sender->link_count++];
    *found = (struct ebk_sending_link){.number = link};
    return found;
}

int ebk_link_sender_up(struct ebk_link_sender *sender, uint64_t link, void *socket, const uint8_t *prefix, uint64_t room)
{
    struct ebk_sending_link *found = link_of(sender, link);
    if (found == NULL) return EBK_NO_MEMORY;
    EBK_ASSERT(ebk_zmq.is_loaded && socket != NULL);
    found->socket = socket;
    memcpy(found->prefix, prefix, sizeof found->prefix);
    found->room = room;
    return EBK_OK;
}

int ebk_link_sender_up_tray(struct ebk_link_sender *sender, uint64_t link, struct ebk_link_tray *tray, uint64_t room)
{
    struct ebk_sending_link *found = link_of(sender, link);
    if (found == NULL) return EBK_NO_MEMORY;
    found->tray = tray;
    found->room = room;
    return EBK_OK;
}

void ebk_link_sender_down(struct ebk_link_sender *sender, uint64_t link)
{
    struct ebk_sending_link *found = ebk_link_sender_find(sender, link);
    if (found != NULL) *found = sender->links[--sender->link_count];
}

uint64_t ebk_link_sender_sent(struct ebk_link_sender *sender, uint64_t link)
{
    struct ebk_sending_link *found = ebk_link_sender_find(sender, link);
    if (found == NULL) return 0;
    const uint64_t sent = found->sent;
    found->sent = 0;
    return sent;
}

bool ebk_link_sender_has_used(struct ebk_link_sender *sender, uint64_t link)
{
    struct ebk_sending_link *found = ebk_link_sender_find(sender, link);
    if (found == NULL || !found->is_used) return false;
    found->is_used = false;
    return true;
}

/* ---- adds ------------------------------------------------------------------------------ */

int ebk_link_sender_begin(struct ebk_link_sender *sender, struct ebk_link_adds *adds)
{
    if (!widen((void **)&sender->adds, sender->adds_count, &sender->adds_room, sizeof *sender->adds))
        return EBK_NO_MEMORY;
    sender->adds[sender->adds_count++] = adds;
    return EBK_OK;
}

void ebk_link_sender_end(struct ebk_link_sender *sender, const struct ebk_link_adds *adds)
{
    for (uint32_t i = 0; i < sender->adds_count; i++)
        if (sender->adds[i] == adds) {
            sender->adds_count -= 1; /* The others keep their order: they take turns in it. */
            memmove(&sender->adds[i], &sender->adds[i + 1], (sender->adds_count - i) * sizeof *sender->adds);
            return;
        }
}

void ebk_link_sender_wake(struct ebk_link_sender *sender)
{
    ebk_wake_up(&sender->wake);
}

int ebk_link_sender_fileno(const struct ebk_link_sender *sender)
{
    return sender->wake.descriptor;
}

void ebk_link_sender_be_awake(struct ebk_link_sender *sender)
{
    ebk_wake_heard(&sender->wake);
}

void ebk_link_sender_turn(struct ebk_link_sender *sender, int64_t now_ns)
{
    if (atomic_load(&sender->wake.is_up)) ebk_link_sender_be_awake(sender);
    for (uint32_t i = 0; i < sender->adds_count; i++) ebk_link_adds_turn(sender->adds[i], sender, now_ns);
}

int64_t ebk_link_sender_due_ns(const struct ebk_link_sender *sender, int64_t now_ns)
{
    int64_t due_ns = INT64_MAX;
    for (uint32_t i = 0; i < sender->adds_count; i++) {
        const int64_t of_adds = ebk_link_adds_due_ns(sender->adds[i], now_ns);
        if (of_adds < due_ns) due_ns = of_adds;
    }
    return due_ns;
}

bool ebk_link_sender_has_more(const struct ebk_link_sender *sender)
{
    for (uint32_t i = 0; i < sender->adds_count; i++)
        if (ebk_link_adds_has_more(sender->adds[i], (struct ebk_link_sender *)sender)) return true;
    return false;
}
