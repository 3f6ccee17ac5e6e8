/* near_adds_check.c: adds to bookies of the same loop, and the loop that waits, under the compiler's sanitizers.
 *
 * Three bookies on disks in memory, with the threads of their journals; a loop; and three threads that append to one
 * writer and wait for what they appended. Each finds its entry acknowledged when its wait says so. Twice: in the first
 * life the loop ends the adds at some moment, in the second the disk of one bookie fails, and then that of another. What
 * is acknowledged never passes what two of the journals have. Prints nothing and returns 0, or stops where the fault is.
 */
#include "base/errors.h"
#include "base/wait_set.h"
#include "io/io.h"
#include "road/link_adds.h"
#include "road/loop_wait.h"
#include "wire/block_pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define BOOKIES 3u
#define USERS 3u
#define ACK_QUORUM 2u
#define APPENDS 300u /* of each user, at most */
#define LEDGER 7u
#define PAYLOAD_MAX 900u

struct bookie {
    struct ebk_memory_disk *disk;
    struct ebk_journal *journal;
    struct ebk_add_path_settings settings;
    struct ebk_add_path *path;
    struct ebk_near *near;
};

static struct bookie bookies[BOOKIES];
static struct ebk_packer *packer;
static struct ebk_in_flight *table;
static struct ebk_link_adds *adds;
static struct ebk_turns *turns;
static struct ebk_loop_wait *loop;
static atomic_uint users, appended;

static void open_bookie(struct bookie *bookie)
{
    struct ebk_journal_settings journal_settings = {.file_bytes = 4 << 20, .threaded = true, .identity = "check"};
    struct ebk_store_settings store_settings = {.half_bytes_max = 64 << 20, .half_bytes_kept = 1 << 20};
    struct ebk_journal_fault fault;
    struct ebk_ledger_row *row;
    char text[256];
    const char *directory = "e";
    bookie->disk = ebk_memory_disk_new();
    struct ebk_io *io = ebk_memory_disk_io(bookie->disk);
    bookie->settings = (struct ebk_add_path_settings){.cache_bytes_max = 32 << 20, .kick_bytes = 1 << 20};
    EBK_ASSERT(ebk_io_make_directory(io, directory) == EBK_OK);
    EBK_ASSERT(ebk_journal_open(io, "j", &journal_settings, &bookie->journal, &fault) == EBK_OK);
    bookie->settings.journals = ebk_journals_new(&bookie->journal, 1);
    EBK_ASSERT(bookie->settings.journals != NULL);
    EBK_ASSERT(ebk_store_open(io, &directory, 1, &store_settings, &bookie->settings.store, text, sizeof text) == EBK_OK);
    bookie->settings.table = ebk_table_new(4);
    EBK_ASSERT(ebk_table_create(bookie->settings.table, LEDGER, false, &row) == EBK_OK);
    row->has_key = 1;
    row->is_awaited = 0;
    bookie->path = ebk_add_path_new(&bookie->settings);
    bookie->near = ebk_near_new(bookie->path);
    EBK_ASSERT(bookie->path != NULL && bookie->near != NULL);
    ebk_near_show(bookie->near, true, false);
    EBK_ASSERT(ebk_loop_wait_other(loop, ebk_near_event(bookie->near, 0), bookie->near) >= 0);
}

static void close_bookie(struct bookie *bookie)
{
    ebk_near_leave(bookie->near);
    ebk_near_free(bookie->near);
    ebk_add_path_free(bookie->path);
    ebk_journals_free(bookie->settings.journals);
    ebk_journal_close(bookie->journal);
    ebk_store_close(bookie->settings.store);
    ebk_table_free(bookie->settings.table);
    ebk_memory_disk_free(bookie->disk);
}

static void *use(void *argument)
{
    const bool is_alone = argument != NULL;
    uint8_t payload[PAYLOAD_MAX];
    for (uint32_t i = 0; i < APPENDS; i++) {
        int should_wake;
        memset(payload, (int)i, sizeof payload);
        const int64_t entry = ebk_packer_append(packer, payload, i % PAYLOAD_MAX, &should_wake);
        EBK_ASSERT(entry >= 0);
        atomic_fetch_add(&appended, 1);
        if (should_wake) ebk_turns_wake(turns);
        int answer;
        while ((answer = ebk_link_adds_await(adds, entry, is_alone, 50)) == 0) {
        }
        uint64_t length;
        if (answer == EBK_FAILED) break;
        EBK_ASSERT(ebk_link_adds_lac(adds, &length) >= entry && length >= i % PAYLOAD_MAX);
    }
    atomic_fetch_sub(&users, 1);
    return NULL;
}

/* What is acknowledged has an ack quorum of journals, as long as it is kept: until all of them have it. */
static void check(const struct ebk_link_facts *facts, int64_t before)
{
    EBK_ASSERT(facts->lac >= before && facts->lac < (int64_t)(USERS * APPENDS));
    for (uint64_t place = 0; place < USERS * APPENDS; place++) {
        uint32_t stored = 0, durable = 0;
        struct ebk_packed frame = {0};
        for (uint32_t i = 0; i < BOOKIES; i++) {
            uint64_t token, length;
            int64_t lac;
            if (!ebk_link_adds_show(adds, place, i, &frame, &token, &lac, &length)) continue;
            EBK_ASSERT(lac < frame.first_entry);
            stored += 1;
            durable += ebk_near_durable(bookies[i].near) >= token;
        }
        EBK_ASSERT(stored == 0 || frame.last_entry > facts->lac || durable >= ACK_QUORUM);
    }
}

static void live(unsigned seed, bool fails)
{
    turns = ebk_turns_new();
    const struct ebk_loop_parts parts = {.turns = turns};
    loop = turns == NULL ? NULL : ebk_loop_wait_new(&parts);
    packer = ebk_packer_open(LEDGER, 0, 0, 16 << 10, 1 << 20);
    table = ebk_in_flight_new();
    EBK_ASSERT(loop != NULL && packer != NULL && table != NULL);
    EBK_ASSERT(ebk_packer_begin_sums(packer, BOOKIES) == EBK_OK);
    struct ebk_link_settings settings = {
        .packer = packer, .table = table, .seat_count = BOOKIES, .ack_quorum = ACK_QUORUM, .ledger_id = LEDGER, .lac = -1,
        .bytes_max = 1 << 20, .behind_max = 32 << 20};
    for (uint32_t i = 0; i < BOOKIES; i++) {
        open_bookie(&bookies[i]);
        settings.seats[i].near = bookies[i].near;
        settings.seats[i].slot = i;
    }
    adds = ebk_link_adds_new(&settings);
    EBK_ASSERT(adds != NULL && ebk_turns_begin(turns, adds) == EBK_OK);
    pthread_t threads[USERS];
    atomic_store(&users, USERS);
    atomic_store(&appended, 0);
    for (uint32_t i = 0; i < USERS; i++) EBK_ASSERT(pthread_create(&threads[i], NULL, use, i ? packer : NULL) == 0);

    const uint32_t until = 200 + seed * 97 % 400;
    struct ebk_link_facts facts = {.lac = -1};
    uint32_t failed = 0;
    while (!facts.is_ending) {
        const int64_t before = facts.lac;
        const int64_t until_ns = ebk_wait_now_ns() + 20000000;
        const struct ebk_loop_terms terms = {.until_ns = until_ns, .late_ns = INT64_MAX, .credit_bytes = UINT64_MAX};
        struct ebk_loop_outcome outcome;
        (void)ebk_loop_wait_run(loop, &terms, &outcome);
        for (uint32_t i = 0; i < outcome.ready_count; i++)
            for (uint32_t bookie = 0; bookie < BOOKIES; bookie++)
                if (outcome.ready[i] == ebk_near_event(bookies[bookie].near, 0))
                    ebk_near_show(bookies[bookie].near, !ebk_add_path_has_failed(bookies[bookie].path), false);
        if (atomic_load(&appended) > until && !fails) ebk_link_adds_fail(adds, 0);
        for (; fails && failed < 2 && atomic_load(&appended) > until + failed; failed++)
            ebk_memory_disk_fail(bookies[failed].disk, EBK_CALL_WRITE, 1, 5, true);
        ebk_link_adds_tell(adds, ebk_wait_now_ns(), &facts);
        check(&facts, before);
        uint64_t sums[EBK_SUMS_MODULUS_MAX]; /* A change of the ensemble asks for them while others append. */
        const uint32_t residues = ebk_packer_sums_through(packer, facts.lac, sums);
        EBK_ASSERT(residues == 0 || residues == BOOKIES);
        if (atomic_load(&users) == 0) break;
    }
    if (facts.is_ending) {
        const struct ebk_flight_state *const state = ebk_in_flight_state(table);
        struct ebk_link_owed owed;
        uint64_t place = 0;
        int64_t next = facts.lac + 1;
        ebk_link_adds_end(adds);
        while (ebk_link_adds_next_owed(adds, &place, &owed)) EBK_ASSERT(owed.asked == 0 && owed.unsent != 0);
        for (place = state->head; place < state->end; place++) {
            const struct ebk_packed *const packed = &ebk_in_flight_at(table, place)->packed;
            EBK_ASSERT(packed->first_entry == next && packed->body[0] == 1);
            next = packed->last_entry + 1;
        }
    }
    ebk_turns_end(turns, adds);
    ebk_link_adds_close(adds);
    for (uint32_t i = 0; i < USERS; i++) pthread_join(threads[i], NULL);
    ebk_link_adds_free(adds);
    ebk_in_flight_free(table);
    for (uint32_t i = 0; i < BOOKIES; i++) close_bookie(&bookies[i]);
    ebk_packer_unref(packer);
    ebk_loop_wait_free(loop);
    ebk_turns_free(turns);
}

int main(int argc, char **argv)
{
    const unsigned seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    ebk_pool_set_bytes_max(64 << 20);
    live(seed, false);
    live(seed, true);
    return 0;
}
