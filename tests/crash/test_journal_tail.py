"""The journal's tail at every byte: cut, torn and rotten, on new and on recycled files (I40 to I44, P7.1).

A crash may leave any sectors of the one write that was under way. Whatever it leaves, replay gives a prefix of what
was appended that holds everything durable, or refuses: never a hole, never bytes of an earlier use.
"""

from __future__ import annotations

import random

import pytest

from embedbk.errors import StorageError
from embedbk.storage.journal import Journal
from embedbk.storage.memory_disk import MemoryDisk
from tests.storage.journal_pages import BLOCK_BYTES, crc32c, read_file, size_of, table

FILE_BYTES = 65536
SECTOR_BYTES = 512
FIRST = "j/journal-0000000000000001"


def stepped(disk, **settings):
    return Journal("j", io=disk, threaded=False, file_bytes=FILE_BYTES, identity=b"i" * 16, **settings)


def body(token):
    """Different for every token, of sizes from nothing to more than a block."""
    return random.Random(token).randbytes((token * 977) % 6000 if token % 5 else 0)


def append_group(journal, count):
    for _ in range(count):
        token = journal.next_token()
        journal.append(token % 7, token, body(token))
    journal.step()


def replayed(files):
    """Tokens that replay gives from these files, each record checked against what was appended."""
    with stepped(MemoryDisk(files)) as journal:
        tokens = []
        for token, kind, ledger_id, content in journal.replay(0):
            assert (kind, ledger_id, bytes(content)) == (token % 7, token, body(token))
            tokens.append(token)
        assert tokens == list(range(1, journal.next_token()))
        return len(tokens)


def recorded(groups):
    """The stable files before and after the last of some groups, and where that group stands in its file."""
    disk = MemoryDisk()
    journal = stepped(disk)
    for count in groups[:-1]:
        append_group(journal, count)
    before = disk.files()
    append_group(journal, groups[-1])
    after = disk.files()
    journal.close()
    _, found = read_file(after[FIRST])
    return before, after, found


def with_file(files, content):
    return {**files, FIRST: bytes(content)}


# --- Every byte of the tail --------------------------------------------------------------------------------


def test_a_cut_at_every_byte_of_the_last_group_loses_only_that_group():
    """I41, I42: until its last byte that counts is there, a group is not; what was durable before always is."""
    before, after, groups = recorded([3, 2, 2])
    durable, last = sum(len(group.records) for group in groups[:-1]), groups[-1]
    used_end = last.position + last.header["group_bytes"]
    for cut in range(last.position, last.end + 1):
        files = with_file(after, after[FIRST][:cut] + before[FIRST][cut:])
        found = replayed(files)
        assert found in (durable, durable + 2), cut
        assert found == durable + 2 or cut < used_end, cut


def test_every_byte_of_the_last_group_may_rot_and_never_gives_wrong_records():
    """A rotten last group looks torn: it is left out whole, or its padding did not matter (JOURNAL.md, section 4)."""
    _, after, groups = recorded([3, 2])
    last = groups[-1]
    used_end = last.position + last.header["group_bytes"]
    for at in range(last.position, last.end):
        content = bytearray(after[FIRST])
        content[at] ^= 1 << at % 8
        pad = at >= used_end or not counts(last, at)
        assert replayed(with_file(after, content)) == (5 if pad else 3), at


def counts(group, at):
    """Is this byte of the group under a sum? Zeros between records are not."""
    place = group.position + size_of("group")
    for *_, content in group.records:
        end = place + size_of("record") + len(content)
        if end <= at < -(-end // 8) * 8:
            return False
        place = -(-end // 8) * 8
    return True


def test_every_byte_of_an_earlier_group_that_rots_is_damage():
    """I42: an invalid group with a valid one behind it is never skipped and never taken for the tail."""
    _, after, groups = recorded([1, 2, 1])
    for group in groups[:2]:
        used_end = group.position + group.header["group_bytes"]
        for at in range(group.position, used_end):
            if not counts(group, at):
                continue
            content = bytearray(after[FIRST])
            content[at] ^= 1 << at % 8
            with pytest.raises(StorageError, match="is not what was written, and a later one") as caught:
                replayed(with_file(after, content))
            assert f"offset {group.position}" in str(caught.value)


def test_every_byte_of_the_file_header_that_rots_is_refused():
    _, after, _ = recorded([1])
    for at in range(size_of("file")):
        content = bytearray(after[FIRST])
        content[at] ^= 1 << at % 8
        with pytest.raises(StorageError, match=r"header fails its checksum|does not begin as"):
            replayed(with_file(after, content))


# --- Torn writes --------------------------------------------------------------------------------------------


def torn(disk, count, sectors):
    """One more group, whose write loses power with only these sectors stored."""
    journal = stepped(disk)
    durable = journal.durable()
    disk.tear(sectors=sectors)
    append_group(journal, count)
    assert journal.failed()
    assert journal.durable() == durable
    journal.close()
    disk.crash()
    return durable


def test_any_sectors_of_a_torn_group_give_all_of_it_or_nothing():
    """D2: every subset of the eight sectors of a block."""
    before, after, groups = recorded([2, 1, 1])
    last = groups[-1]
    assert last.end - last.position == BLOCK_BYTES
    durable = sum(len(group.records) for group in groups[:-1])
    used = -(-last.header["group_bytes"] // SECTOR_BYTES)
    for sectors in range(256):
        content = bytearray(before[FIRST])
        for sector in range(8):
            if sectors >> sector & 1:
                begin = last.position + sector * SECTOR_BYTES
                content[begin : begin + SECTOR_BYTES] = after[FIRST][begin : begin + SECTOR_BYTES]
        is_whole = sectors & ((1 << used) - 1) == (1 << used) - 1
        assert replayed(with_file(before, content)) == durable + is_whole, sectors


def test_a_torn_group_over_the_remains_of_a_torn_group_is_no_mixture():
    """Same sequence, place and sizes, and each record in a sector of its own: only records_crc keeps the two apart."""
    sizes = [SECTOR_BYTES - size_of("group") - size_of("record")] + 7 * [SECTOR_BYTES - size_of("record")]
    for first in (0b00000000, 0b11111110, 0b01010100, 0b10101010, 0b11110000):
        for second in range(0, 256, 3):
            disk = MemoryDisk()
            for content, sectors in ((b"A", first), (b"B", second)):
                journal = stepped(disk)
                for size in sizes:
                    journal.append(1, 1, content * size)
                disk.tear(sectors=sectors)
                journal.step()
                journal.close()
                disk.crash()
            with stepped(disk) as journal:
                bodies = [bytes(content[:1]) for *_, content in journal.replay(0)]
                assert bodies in ([], [b"B"] * 8), (first, second)


def test_what_a_killed_process_left_in_a_cache_is_durable_once_it_was_believed():
    """A group was written, never synced, and found at the next start: acting on it and losing it later would be worse
    than losing it at once."""
    disk = MemoryDisk()
    disk.refuse_direct()
    journal = stepped(disk)
    journal.append(1, 1, b"not acknowledged")
    disk.fail("sync")
    journal.step()
    assert journal.durable() == 0
    journal.close()
    journal = stepped(disk)
    assert len(list(journal.replay(0))) == 1
    disk.crash()
    with stepped(disk) as journal:
        assert len(list(journal.replay(0))) == 1


def test_a_journal_goes_on_behind_a_torn_tail_and_the_remains_never_return():
    """What is written over the tail is shorter than what was torn there: the rest of it must stay dead."""
    rng = random.Random(5)
    disk = MemoryDisk()
    for _ in range(60):
        durable = torn(disk, count=5, sectors=rng.getrandbits(64))
        journal = stepped(disk)
        assert journal.durable() in (durable, durable + 5)
        append_group(journal, 1)
        journal.trim(journal.durable())
        journal.close()
    with stepped(disk) as journal:
        first = journal.facts().first_token
        tokens = [token for token, *_ in journal.replay(first - 1)]
        assert tokens == list(range(first, journal.next_token()))


# --- Recycled files ------------------------------------------------------------------------------------------


def recycled_disk():
    """A disk whose present file lies over whole groups of an earlier use."""
    disk = MemoryDisk()
    journal = stepped(disk)
    for _ in range(60):
        append_group(journal, 4)
        journal.trim(journal.durable())
        journal.step()
    allocations = disk.calls("allocate")
    while disk.calls("allocate") == allocations and journal.facts().generation < 20:
        append_group(journal, 4)
        journal.trim(journal.durable())
        journal.step()
    assert journal.facts().generation >= 20
    return disk, journal


def test_bytes_of_an_earlier_use_are_never_replayed():
    """I43: behind the tail stand whole groups of an older generation, at places where a next group could begin."""
    disk, journal = recycled_disk()
    last, generation = journal.durable(), journal.facts().generation
    journal.close()
    content = disk.read(f"j/journal-{generation:016x}")
    header, groups = read_file(content)
    tail = groups[-1].end
    stale = [at for at in range(tail, FILE_BYTES, BLOCK_BYTES) if content[at + 4 : at + 8] == b"EBKG"]
    assert stale, "the file was not recycled"
    with stepped(disk) as journal:
        assert journal.durable() == last
        assert journal.facts().generation == generation == header["generation"]


def test_a_cut_over_the_bytes_of_an_earlier_use_gives_a_prefix():
    """I43 at every 64th byte: a half-written group over a whole old one is neither."""
    disk, journal = recycled_disk()
    path = f"j/journal-{journal.facts().generation:016x}"
    durable, before = journal.durable(), disk.files()
    append_group(journal, 3)
    after = disk.files()
    assert path == f"j/journal-{journal.facts().generation:016x}"
    journal.close()
    changed = [at for at in range(FILE_BYTES) if before[path][at] != after[path][at]]
    last = read_file(after[path])[1][-1]
    used_end = last.position + last.header["group_bytes"]
    for cut in range(changed[0], changed[-1] + 1, 64):
        files = {**before, path: after[path][:cut] + before[path][cut:]}
        with stepped(MemoryDisk(files)) as journal:
            assert journal.durable() == (durable if cut < used_end else durable + 3), cut
            tokens = [token for token, *_ in journal.replay(journal.facts().first_token - 1)]
            assert tokens[-1] == journal.durable()


# --- Whole files ------------------------------------------------------------------------------------------------


def several_files():
    disk = MemoryDisk()
    journal = stepped(disk)
    while journal.facts().file_count < 4:
        append_group(journal, 5)
    journal.close()
    return disk


def test_a_missing_file_in_the_middle_is_damage():
    disk = several_files()
    disk.drop("j/journal-0000000000000002")
    with pytest.raises(StorageError, match=r"is not what was written|does not follow"):
        replayed(disk.files())


def test_a_missing_newest_file_is_noticed_by_the_log_mark():
    """What is gone at the end looks like never written; the mark of the entry logs knows better."""
    disk = several_files()
    with stepped(disk) as journal:
        last = journal.durable()
    for path in ("j/journal-0000000000000004", "j/journal-0000000000000005"):
        if path in disk.files():
            disk.drop(path)
    with stepped(disk) as journal, pytest.raises(StorageError, match=f"below the log mark {last}"):
        journal.replay(last)


def test_a_file_without_any_group_left_before_one_with_groups_is_damage():
    disk = several_files()
    path = "j/journal-0000000000000002"
    disk.put(path, disk.read(path)[:BLOCK_BYTES] + bytes(FILE_BYTES - BLOCK_BYTES))
    with pytest.raises(StorageError, match="no group is left"):
        replayed(disk.files())


@pytest.mark.parametrize("size", [0, 100, BLOCK_BYTES, FILE_BYTES - 1])
def test_a_file_cut_short_is_damage(size):
    disk = several_files()
    path = "j/journal-0000000000000002"
    disk.put(path, disk.read(path)[:size])
    with pytest.raises(StorageError, match="cut short"):
        replayed(disk.files())


def test_the_end_of_an_older_file_that_rots_is_damage():
    """Nothing behind it in its own file, and yet no tail: the next file says what must stand there."""
    disk = several_files()
    path = "j/journal-0000000000000002"
    _, groups = read_file(disk.read(path))
    content = bytearray(disk.read(path))
    content[groups[-1].position + 100] ^= 1
    disk.put(path, bytes(content))
    with pytest.raises(StorageError, match="later ones are there") as caught:
        replayed(disk.files())
    assert path in str(caught.value)


def test_a_group_in_the_middle_of_an_older_file_that_rots_is_damage():
    """I42, I44: what stands behind it is never replayed as if nothing were missing."""
    disk = several_files()
    path = "j/journal-0000000000000002"
    _, groups = read_file(disk.read(path))
    assert len(groups) > 2
    content = bytearray(disk.read(path))
    content[groups[1].position + 100] ^= 1
    disk.put(path, bytes(content))
    with pytest.raises(StorageError, match="later ones are there") as caught:
        replayed(disk.files())
    assert f"offset {groups[1].position}" in str(caught.value)


def test_damage_below_the_log_mark_does_not_matter():
    disk = several_files()
    path = "j/journal-0000000000000001"
    _, groups = read_file(disk.read(path))
    content = bytearray(disk.read(path))
    content[groups[-1].position + 100] ^= 1
    disk.put(path, bytes(content))
    with stepped(disk) as journal:
        assert [token for token, *_ in journal.replay(groups[-1].records[-1][0])][-1] == journal.durable()


# --- Crafted bytes -----------------------------------------------------------------------------------------------


def crafted(**changes):
    """One group whose header fields are set at will, with a right sum: as far as a hostile file can get."""
    _, after, groups = recorded([1, 1])
    content, group, places = bytearray(after[FIRST]), groups[-1], table("group")
    for field, value in changes.items():
        offset, size, _ = places[field]
        content[group.position + offset : group.position + offset + size] = value.to_bytes(size, "little")
    seed = crc32c(b"i" * 16 + (1).to_bytes(8, "little"))
    begin = group.position
    content[begin : begin + 4] = crc32c(bytes(content[begin + 4 : begin + 64]), seed).to_bytes(4, "little")
    return with_file(after, content)


@pytest.mark.parametrize(
    "changes",
    [
        {"group_bytes": 0},
        {"group_bytes": 63},
        {"group_bytes": 2**32 - 1},
        {"group_bytes": FILE_BYTES},
        {"record_count": 0},
        {"record_count": 2**32 - 1},
        {"first_token": 0},
        {"sequence": 0},
        {"position": 0},
        {"generation": 2},
    ],
)
def test_impossible_numbers_with_a_right_sum_are_not_followed(changes):
    """BK-62: never an allocation of the claimed size, never a read outside."""
    assert replayed(crafted(**changes)) == 1


@pytest.mark.parametrize("changes", [{"sequence": 7}, {"previous_crc": 1}, {"first_token": 9}])
def test_a_valid_group_that_does_not_follow_is_damage(changes):
    with pytest.raises(StorageError, match="does not follow"):
        replayed(crafted(**changes))


@pytest.mark.parametrize("size", [2**32 - 1, 2**31, FILE_BYTES, 0x7FFFFFF8])
def test_an_impossible_record_size_ends_the_tail(size):
    _, after, groups = recorded([1, 1])
    content = bytearray(after[FIRST])
    at = groups[-1].position + size_of("group") + table("record")["size"][0]
    content[at : at + 4] = size.to_bytes(4, "little")
    assert replayed(with_file(after, content)) == 1


# --- Whole lives ---------------------------------------------------------------------------------------------------


def open_or_refusal(disk, way, mark):
    """(journal, what it holds above the mark, ""), or why it could not be opened and read."""
    journal = None
    try:
        journal = stepped(disk, sync_apart=way == "direct, fdatasync")
        return journal, {token: bytes(content) for token, _, _, content in journal.replay(mark)}, ""
    except StorageError as error:
        if journal is not None:
            journal.close()
        return None, {}, str(error)


@pytest.mark.parametrize("way", ["O_DSYNC", "direct, fdatasync", "buffered, fdatasync"])
@pytest.mark.parametrize("seed", range(1, 41))
def test_any_life_of_crashes_keeps_what_was_durable(seed, way):
    """I40, I43, I44: appends, trims, failing calls, torn writes and power cuts; unsynced sectors survive by chance."""
    rng = random.Random(seed)
    disk = MemoryDisk()
    mark, acknowledged = 0, {}
    for life in range(12):
        if way == "buffered, fdatasync":
            disk.refuse_direct()
        if rng.random() < 0.3:
            disk.fail(
                rng.choice(["write", "sync", "rename", "sync_directory", "open"]), nth=rng.randint(1, 30)
            )
        elif rng.random() < 0.5:
            disk.tear(nth=rng.randint(1, 30), sectors=rng.getrandbits(64))
        journal, found, refusal = open_or_refusal(disk, way, mark)
        if journal is None:
            assert "errno 5" in refusal, (seed, life)  # Only the fault itself, never damage.
            disk.crash(rng.getrandbits(63) + 1)
            continue
        for token, content in acknowledged.items():
            assert token <= mark or found[token] == content, (seed, life, token)
        assert sorted(found) == list(range(mark + 1, journal.next_token()))
        acknowledged.update(found)
        sent = {}
        for _ in range(rng.randint(1, 40)):
            if journal.failed():
                break
            for _ in range(rng.randint(1, 4)):
                content = rng.randbytes(rng.choice([0, 10, 500, 4000, 9000]))
                sent[journal.append(1, life, content)] = content
            journal.step()
            acknowledged.update({token: sent[token] for token in sent if token <= journal.durable()})
            if rng.random() < 0.3:
                mark = max(mark, journal.durable() - rng.randint(0, 10))
                journal.trim(mark)
        disk.crash(rng.getrandbits(63) + 1)
        del journal  # Its descriptors mean nothing any more.
