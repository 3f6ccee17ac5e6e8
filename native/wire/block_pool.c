/* block_pool.c: see block_pool.h. */
#include "wire/block_pool.h"

#include "base/errors.h"

#include <pthread.h>
#include <stdlib.h>

#define KEPT_BYTES_MAX (64u << 20)

static struct {
    pthread_mutex_t mutex;
    struct ebk_block *kept;
    uint64_t kept_bytes;
    uint64_t used_bytes;
    uint64_t bytes_max;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER};

uint64_t ebk_pool_generation;

/* In the child: another thread of the parent may have held the mutex or half-changed the list. */
static void forget_parent(void)
{
    ebk_pool_generation += 1;
    pthread_mutex_init(&pool.mutex, NULL);
    pool.kept = NULL;
    pool.kept_bytes = 0;
    pool.used_bytes = 0;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_parent);
}

static struct ebk_block *take_block(uint32_t capacity, int is_beyond)
{
    struct ebk_block *block = NULL;
    pthread_mutex_lock(&pool.mutex);
    if (!is_beyond && pool.used_bytes + capacity > pool.bytes_max) {
        pthread_mutex_unlock(&pool.mutex);
        return NULL;
    }
    pool.used_bytes += capacity;
    EBK_ASSERT(pool.used_bytes >= capacity);
    if (capacity == EBK_POOL_BLOCK_BYTES && pool.kept != NULL) {
        block = pool.kept;
        EBK_ASSERT(block->capacity == capacity && pool.kept_bytes >= capacity);
        pool.kept = block->next;
        pool.kept_bytes -= capacity;
    }
    pthread_mutex_unlock(&pool.mutex);
    if (block == NULL) block = malloc(sizeof *block + capacity);
    if (block == NULL) {
        pthread_mutex_lock(&pool.mutex);
        pool.used_bytes -= capacity;
        pthread_mutex_unlock(&pool.mutex);
        return NULL;
    }
    *block = (struct ebk_block){.capacity = capacity, .refs = 1};
    return block;
}

struct ebk_block *ebk_pool_take(uint32_t capacity)
{
    return take_block(capacity, 0);
}

struct ebk_block *ebk_pool_take_beyond(uint32_t capacity)
{
    return take_block(capacity, 1);
}

static void give(struct ebk_block *block)
{
    pthread_mutex_lock(&pool.mutex);
    EBK_ASSERT(block->refs == 0 && pool.used_bytes >= block->capacity);
    pool.used_bytes -= block->capacity;
    if (block->capacity == EBK_POOL_BLOCK_BYTES && pool.kept_bytes + block->capacity <= KEPT_BYTES_MAX) {
        pool.kept_bytes += block->capacity;
        block->next = pool.kept;
        pool.kept = block;
        EBK_ASSERT(pool.kept_bytes <= KEPT_BYTES_MAX);
        block = NULL;
    }
    pthread_mutex_unlock(&pool.mutex);
    free(block);
}

/* The packer takes its references under its mutex; the holder of a body takes one on any thread. */
void ebk_block_ref(struct ebk_block *block)
{
    const uint32_t now = __atomic_add_fetch(&block->refs, 1, __ATOMIC_RELAXED);
    EBK_ASSERT(now > 1); /* Only a holder of a block takes a reference to it. */
}

void ebk_block_unref(struct ebk_block *block)
{
    const uint32_t left = __atomic_sub_fetch(&block->refs, 1, __ATOMIC_ACQ_REL);
    EBK_ASSERT(left != UINT32_MAX);
    if (left == 0) give(block);
}

void ebk_pool_set_bytes_max(uint64_t bytes_max)
{
    pthread_mutex_lock(&pool.mutex);
    pool.bytes_max = bytes_max;
    pthread_mutex_unlock(&pool.mutex);
}

uint64_t ebk_pool_used_bytes(void)
{
    return __atomic_load_n(&pool.used_bytes, __ATOMIC_RELAXED);
}

uint64_t ebk_pool_kept_bytes(void)
{
    return __atomic_load_n(&pool.kept_bytes, __ATOMIC_RELAXED);
}
