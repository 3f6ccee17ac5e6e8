/* sweep_check.c: change one byte of an entry log and of a journal after the other; no answer is wrong, ever (D4, I31,
 * I41, I42). `sweep_check KIB STEP [PART PARTS]`: of a store of so many KiB every STEP-th byte, in three ways each; of
 * these the PART-th of PARTS, so that several processes share the work. Prints how many changes were judged, or stops
 * where one gave a wrong answer. A large store has beside it a small one.
 *
 * In a small log each of these stands beside a damaged entry, the first, a middle and the last one.
 * A byte inside an entry concerns that entry alone, so the store stays open and its neighbours are read. Any other
 * byte concerns the start, so the store is opened anew.
 */
#include "store_check.h"

#define SMALL_BYTES (256u << 10) /* Where entries are few, states and index are swept at other places of their blocks. */

static uint64_t changes;
static uint64_t part = 0, parts = 1;

static bool is_ours(uint64_t at, uint64_t step)
{
    return at / step % parts == part;
}

static void poke(struct ebk_io *io, int file, uint64_t at, uint8_t byte)
{
    EBK_ASSERT(io->write(io, file, &byte, 1, at) == 1);
}

static uint8_t changed_byte(uint8_t byte, int way, uint64_t at)
{
    return way == 0 ? byte ^ (uint8_t)(1u << at % 8) : way == 1 ? 0 : 0xFF;
}

/* All of the edges, and some by chance: held, and never denied. */
static void judge_opened(struct ebk_memory_disk *disk, uint32_t ledger_count)
{
    struct ebk_store *store = open_store(disk);
    EBK_ASSERT(store != NULL); /* One byte: the second descriptor, the second states or a scan serve. */
    const uint8_t *states;
    EBK_ASSERT(ebk_store_states(store, 0, &states) == (size_t)ledger_count * 56);
    for (uint32_t i = 0; i < 12; i++) {
        const uint64_t ledger = i == 0 ? 1 : i == 1 ? ledger_count : 1 + draw() % ledger_count;
        uint32_t absent;
        EBK_ASSERT(states[(ledger - 1) * 56 + 48] == ledger % 2);
        EBK_ASSERT(judge_read(store, ledger, 0, ENTRIES_PER_LEDGER + 1, &absent) == ENTRIES_PER_LEDGER);
        EBK_ASSERT(absent == 2);
    }
    ebk_store_close(store);
}

/* Each byte outside the entries costs an opening. */
static void sweep_log(uint64_t bytes, uint64_t step)
{
    payload_base = 1000;
    const uint32_t ledger_count = (uint32_t)(bytes / (ENTRIES_PER_LEDGER * (payload_base + 55u))) + 1;
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    struct ebk_io *io = ebk_memory_disk_io(disk);
    make_log(disk, ledger_count);
    size_t size;
    uint8_t *content = read_whole(disk, "e/00000001.elog", &size);
    struct ebk_descriptor descriptor;
    EBK_ASSERT(ebk_descriptor_read(&descriptor, content) == EBK_OK);
    const int file = io->open(io, "e/00000001.elog", EBK_OPEN_WRITE);
    EBK_ASSERT(file >= 0);
    struct ebk_store *store = open_store(disk);
    EBK_ASSERT(store != NULL);
    uint64_t entry_at = ebk_entries_offset(&descriptor), entry_end = entry_at, entry_number = 0, next_number = 0;
    for (uint64_t at = 0; at < size; at += step) {
        const bool is_in_entry = at >= ebk_entries_offset(&descriptor) && at < ebk_entries_end(&descriptor);
        while (is_in_entry && entry_end <= at) { /* To the entry that this byte stands in. */
            entry_at = entry_end;
            entry_number = next_number++;
            entry_end = entry_at + EBK_ENTRY_OVERHEAD_BYTES + payload_bytes((int64_t)(entry_number % ENTRIES_PER_LEDGER));
        }
        if (!is_ours(at, step)) continue;
        for (int way = 0; way < 3; way++) {
            const uint8_t byte = changed_byte(content[at], way, at);
            if (byte == content[at]) continue;
            poke(io, file, at, byte);
            changes += 1;
            if (is_in_entry) {
                const uint64_t ledger = 1 + entry_number / ENTRIES_PER_LEDGER;
                const int64_t id = (int64_t)(entry_number % ENTRIES_PER_LEDGER);
                const int64_t first = id > 0 ? id - 1 : 0, last = id + 1;
                uint32_t absent, others = (uint32_t)(id > 0) + (id + 1 < ENTRIES_PER_LEDGER);
                EBK_ASSERT(judge_read(store, ledger, first, last, &absent) == others);
                EBK_ASSERT(absent == 2 - others - (uint32_t)(id == 0));
            } else {
                judge_opened(disk, ledger_count);
            }
            poke(io, file, at, content[at]);
        }
    }
    ebk_store_close(store);
    io->close(io, file);
    free(content);
    ebk_memory_disk_free(disk);
}

/* The number of the entry that the byte stands in, of all in the log; -1: in none. */
static int64_t entry_of(const struct ebk_descriptor *descriptor, uint64_t at)
{
    if (at < ebk_entries_offset(descriptor) || at >= ebk_entries_end(descriptor)) return -1;
    const uint64_t place = at - ebk_entries_offset(descriptor), ledger = place / truth_at[ENTRIES_PER_LEDGER];
    int64_t id = 0;
    while (truth_at[id + 1] <= place % truth_at[ENTRIES_PER_LEDGER]) id++;
    return (int64_t)ledger * ENTRIES_PER_LEDGER + id;
}

/* Two bytes of a small log, one of them in its first, middle or last entry: no other entry than the damaged ones is
 * lost, and what was never there stays absent. */
static void sweep_pairs(uint64_t step)
{
    const uint32_t ledger_count = 3;
    payload_base = 20;
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    struct ebk_io *io = ebk_memory_disk_io(disk);
    make_log(disk, ledger_count);
    size_t size;
    uint8_t *content = read_whole(disk, "e/00000001.elog", &size);
    struct ebk_descriptor descriptor;
    EBK_ASSERT(ebk_descriptor_read(&descriptor, content) == EBK_OK);
    const int file = io->open(io, "e/00000001.elog", EBK_OPEN_WRITE);
    EBK_ASSERT(file >= 0);
    const uint64_t begin = ebk_entries_offset(&descriptor);
    const uint64_t pairs[3] = {begin + 60, begin + descriptor.entries_size / 2, begin + descriptor.entries_size - 9};
    for (int pair = 0; pair < 3; pair++) {
        poke(io, file, pairs[pair], content[pairs[pair]] ^ 0x24);
        for (uint64_t at = 0; at < size; at += step)
            for (int way = 0; way < 3 && is_ours(at, step); way++) {
                const uint8_t byte = changed_byte(content[at], way, at);
                if (byte == content[at] || at == pairs[pair]) continue;
                poke(io, file, at, byte);
                changes += 1;
                const int64_t lost[2] = {entry_of(&descriptor, pairs[pair]), entry_of(&descriptor, at)};
                struct ebk_store *store = open_store(disk);
                EBK_ASSERT(store != NULL);
                for (uint64_t ledger = 1; ledger <= ledger_count + 1u; ledger++) {
                    uint32_t absent, left = ledger <= ledger_count ? ENTRIES_PER_LEDGER : 0;
                    for (int each = 0; each < 2; each++)
                        left -= lost[each] >= 0 && (uint64_t)lost[each] / ENTRIES_PER_LEDGER + 1 == ledger &&
                                (each == 0 || lost[0] != lost[1]);
                    EBK_ASSERT(judge_read(store, ledger, 0, ENTRIES_PER_LEDGER + 1, &absent) == left);
                    EBK_ASSERT(absent == (ledger <= ledger_count ? 2u : ENTRIES_PER_LEDGER + 2u));
                }
                ebk_store_close(store);
                poke(io, file, at, content[at]);
            }
        poke(io, file, pairs[pair], content[pairs[pair]]);
    }
    io->close(io, file);
    free(content);
    ebk_memory_disk_free(disk);
}

static void sweep_journal(uint64_t step)
{
    struct ebk_memory_disk *disk = ebk_memory_disk_new();
    EBK_ASSERT(disk != NULL);
    struct ebk_io *io = ebk_memory_disk_io(disk);
    uint64_t last_first;
    const int64_t last = (int64_t)make_journal(disk, 40, &last_first);
    EBK_ASSERT(judge_journal(disk, true) == last);
    char names[NAMES_BYTES];
    const int64_t names_size = ebk_memory_disk_names(disk, true, names, sizeof names);
    EBK_ASSERT(names_size <= (int64_t)sizeof names);
    uint64_t refused = 0, whole = 0;
    for (const char *name = names; name < names + names_size; name += strlen(name) + 1) {
        if (strncmp(name, "j/journal-", 10) != 0) continue;
        size_t size;
        uint8_t *content = read_whole(disk, name, &size);
        const int file = io->open(io, name, EBK_OPEN_WRITE);
        EBK_ASSERT(file >= 0);
        for (uint64_t at = 0; at < size; at += step)
            for (int way = 0; way < 3 && is_ours(at, step); way++) {
                const uint8_t byte = changed_byte(content[at], way, at);
                if (byte == content[at]) continue;
                poke(io, file, at, byte);
                changes += 1;
                const int64_t found = judge_journal(disk, true);
                /* The last group alone may look torn (JOURNAL.md section 4). */
                EBK_ASSERT(found == -1 || found == last || found == (int64_t)last_first - 1);
                refused += found == -1;
                whole += found == last;
                poke(io, file, at, content[at]);
            }
        io->close(io, file);
        free(content);
    }
    EBK_ASSERT(refused > 0 && whole > 0);
    EBK_ASSERT(judge_journal(disk, true) == last);
    ebk_memory_disk_free(disk);
}

int main(int count, char **arguments)
{
    const uint64_t bytes = count > 1 ? strtoull(arguments[1], NULL, 10) << 10 : 256 << 10;
    const uint64_t step = count > 2 ? strtoull(arguments[2], NULL, 10) : 997;
    EBK_ASSERT(step > 0);
    if (count > 4) {
        part = strtoull(arguments[3], NULL, 10);
        parts = strtoull(arguments[4], NULL, 10);
    }
    EBK_ASSERT(part < parts);
    if (bytes > SMALL_BYTES) sweep_log(bytes, step);
    sweep_log(bytes > SMALL_BYTES ? SMALL_BYTES : bytes, step);
    sweep_pairs(step);
    sweep_journal(step);
    printf("%llu changes, none gave a wrong answer\n", (unsigned long long)changes);
    return 0;
}
