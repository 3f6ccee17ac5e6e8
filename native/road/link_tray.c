/* link_tray.c: see link_tray.h. */
#include "road/link_tray.h"

#include "base/bytes.h"
#include "base/errors.h"

#include <stdlib.h>
#include <string.h>

struct ebk_link_tray {
    uint8_t *bytes;
    uint64_t size, capacity;
    uint64_t room;
};

struct ebk_link_tray *ebk_link_tray_new(void)
{
    return calloc(1, sizeof(struct ebk_link_tray));
}

void ebk_link_tray_free(struct ebk_link_tray *tray)
{
    if (tray == NULL) return;
    free(tray->bytes);
    free(tray);
}

void ebk_link_tray_set_room(struct ebk_link_tray *tray, uint64_t room)
{
    tray->room = room;
}

const uint8_t *ebk_link_tray_take(struct ebk_link_tray *tray, uint64_t *size)
{
    *size = tray->size;
    tray->size = 0;
    return tray->bytes;
}

int ebk_link_tray_put(struct ebk_link_tray *tray, const uint8_t *head, uint32_t head_size, const uint8_t *body, uint32_t size)
{
    const uint64_t message_size = (uint64_t)head_size + size;
    if (message_size > tray->room) return EBK_FULL;
    const uint64_t wanted = tray->size + 4 + message_size;
    if (wanted > tray->capacity) {
        uint8_t *wider = realloc(tray->bytes, 2 * wanted);
        if (wider == NULL) return EBK_NO_MEMORY;
        tray->bytes = wider;
        tray->capacity = 2 * wanted;
    }
    EBK_ASSERT(wanted <= tray->capacity && tray->size < wanted);
    uint8_t *to = tray->bytes + tray->size;
    ebk_store_u32(to, (uint32_t)message_size);
    memcpy(to + 4, head, head_size);
    memcpy(to + 4 + head_size, body, size);
    tray->size = wanted;
    tray->room -= message_size;
    return EBK_OK;
}
