"""What is remembered for watches: bounded as memory has it, fair to the quiet folders, found without a search."""

from __future__ import annotations

import random
import sys
import tracemalloc

import pytest

from embedbk.codec.metadata_messages import Record
from embedbk.metadata import history as history_module
from embedbk.metadata.history import CHANGE_BYTES, History


def change(key: str, revision: int, value: bytes | None = b"") -> Record:
    return Record(key, value, revision, revision)


def test_what_is_put_elsewhere_takes_nothing_from_a_quiet_folder() -> None:
    """METADATA.md, 1: the oldest changes of the folder that holds most go first."""
    history = History(0, bytes_max=20 * CHANGE_BYTES, changes_max=1000)
    history.add(1, (change("/quiet/a", 1),))
    for revision in range(2, 500):
        history.add(revision, (change(f"/loud/{revision}", revision, bytes(200)),))
    part = history.part("/quiet/", 0, 499, 1 << 20)
    assert part is not None
    assert ([record.key for record in part.records], part.revision) == (["/quiet/a"], 499)
    assert history.part("/quiet/never", 0, 499, 1 << 20) is not None
    assert history.part("/loud/", 0, 499, 1 << 20) is None
    assert history.part("/", 0, 499, 1 << 20) is None
    assert history.part("/loud/", 490, 499, 1 << 20) is not None
    assert history.bytes <= 20 * CHANGE_BYTES


def test_the_history_is_bounded_in_changes_and_in_bytes_as_memory_has_them() -> None:
    """Issue 11, 12: a bound of bytes as encoded was reached after 20,000 ledgers only."""
    history = History(0, bytes_max=1 << 40, changes_max=100)
    for revision in range(1, 400):
        history.add(revision, tuple(change(f"/k/{revision}/{n}", revision) for n in range(3)))
    assert 97 <= history.count <= 100
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        held = History(1 << 40, bytes_max=1 << 20, changes_max=1 << 20)
        for number in range((1 << 40) + 1, (1 << 40) + 6001):
            key = f"/ledgers/{number:016x}"
            held.add(number, (Record(key, bytes(number % 300), number, number),))
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.6 * taken < held.bytes < 1.6 * taken
    assert taken < 1.7 * (1 << 20)


def test_what_is_not_shown_yet_never_goes() -> None:
    history = History(0, bytes_max=1, changes_max=1)
    history.hold = 2
    for revision in range(1, 10):
        history.add(revision, (change("/k/a", revision),))
    part = history.part("/k/", 2, 9, 1 << 20)
    assert part is not None
    assert [record.revision for record in part.records] == list(range(3, 10))
    history.hold = 9
    history.trim()
    assert (history.count, history.floor) == (1, 8)


def test_folders_that_clients_invent_are_bounded() -> None:
    """FOLDERS_MAX: a folder is a client's word. What is forgotten of one is said, not guessed."""
    history = History(0, bytes_max=1 << 30, changes_max=1 << 20)
    for revision in range(1, 2 * history_module.FOLDERS_MAX):
        history.add(revision, (change(f"/f{revision}/k", revision),))
    assert len(history._folders) <= history_module.FOLDERS_MAX
    assert history.part("/f1/", 0, revision, 1 << 20) is None
    assert history.part("/never/", 0, revision, 1 << 20) is None
    assert history.part(f"/f{revision}/", revision - 1, revision, 1 << 20) is not None


def test_a_watch_resumed_long_ago_looks_at_its_own_changes_only() -> None:
    """Costs grow with the work, not with history: 0.1 s for 100,000 revisions of others was seen."""
    history = History(0, bytes_max=1 << 40, changes_max=1 << 20)
    for revision in range(1, 20_000):
        history.add(revision, (change(f"/ledgers/{revision:016x}", revision),))
    one = history.part(f"/ledgers/{77:016x}", 0, revision, 1 << 20)
    assert one is not None
    assert ([record.revision for record in one.records], one.revision) == ([77], revision)
    assert one.cost < 10
    many = history.part("/ledgers/", 0, revision, 1 << 30)  # Too many keys to look up: a slice of them.
    assert many is not None
    assert len(many.records) == history_module.SCANNED_MAX == many.revision


@pytest.mark.parametrize("seed", range(30))
def test_a_part_is_whole_or_said_to_be_gone(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """I82: every change under the prefix, in order, or nothing: whatever went in between."""
    chance = random.Random(seed)
    monkeypatch.setattr(history_module, "FOLDERS_MAX", chance.choice([2, 3, 100]))
    monkeypatch.setattr(history_module, "LOOKED_UP_MAX", chance.choice([0, 2, 100]))
    monkeypatch.setattr(history_module, "SCANNED_MAX", chance.choice([1, 5, 100]))
    history = History(0, chance.choice([5, 30]) * CHANGE_BYTES, chance.choice([4, 1000]))
    history.hold = 0 if chance.random() < 0.5 else None
    everything: list[Record] = []
    keys = ["/a", "/b", "/x/1", "/x/2", "/x/12", "/y/1", "/y/1/z", "/z/1"]
    seen = 0
    for revision in range(1, 150):
        records = tuple(
            change(key, revision, chance.choice([None, bytes(chance.randrange(2000))]))
            for key in chance.sample(keys, chance.randrange(1, 4))
        )
        history.add(revision, records)
        everything += records
        if history.hold is not None and chance.random() < 0.3:
            history.hold = chance.randrange(history.hold, revision + 1)
            history.trim()
        prefix = chance.choice(["", "/", "/x", "/x/", "/x/1", "/y/1", "/q/", *keys])
        begin = chance.randrange(max(0, revision - 20), revision + 1)
        part = history.part(prefix, begin, revision, chance.choice([1, 3000, 1 << 20]))
        if part is None:
            assert history.hold is None or begin < history.hold
            continue
        seen += 1
        assert part.revision > begin or begin == revision
        assert part.records == [
            record
            for record in everything
            if begin < record.revision <= part.revision and record.key.startswith(prefix)
        ]
    assert seen > 10
    assert history.count == sum(len(records) for records in history._changes.values())
    assert sys.getsizeof(history._folders) < 100_000
