/* xxh3.h: XXH3 of 64 bits without a seed (github.com/Cyan4973/xxHash, doc/xxhash_spec.md), as the tag of an entry needs it.
 *
 * The bytes are given in two pieces, since a tag covers an entry without itself. Plain C; a
 * tag is made by clients with the xxhash package, and tests hold the two together.
 */
#ifndef EBK_XXH3_H
#define EBK_XXH3_H

#include <stddef.h>
#include <stdint.h>

#include "base/gil.h"

/* cffi:begin */
/* XXH3-64 of head and tail, one behind the other. Either may be empty. Safe from any thread, allocates nothing. */
EBK_SHORT uint64_t ebk_xxh3(const uint8_t *head, size_t head_size, const uint8_t *tail, size_t tail_size);
/* cffi:end */

#endif
