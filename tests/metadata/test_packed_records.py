"""Records as a catalog holds them, against a plain dictionary."""

from __future__ import annotations

import random
from itertools import islice

import pytest

from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Record
from embedbk.errors import StorageError
from embedbk.metadata import packed_records
from embedbk.metadata.packed_records import PackedRecords

GENERATION = 1 << 48


def record(key: str, chance: random.Random) -> Record:
    revision = chance.choice([1, GENERATION, (1 << 63) - 1])
    created = chance.choice([revision, revision, 1])
    value = chance.randbytes(chance.choice([0, 1, 250]))
    return Record(key, value, created, revision, chance.choice([0, 0, 7, (1 << 64) - 1]))


@pytest.mark.parametrize("seed", range(10))
def test_records_are_what_was_put_whatever_comes_and_goes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_records, "LEAF_KEYS", 4)
    chance = random.Random(seed)
    model = {
        key: record(key, chance) for key in sorted(f"/{chance.randrange(300):03}" for _ in range(seed * 5))
    }
    records = PackedRecords()
    assert records.extend(list(model.values()))
    for _ in range(600):
        key = f"/{chance.randrange(300):03}"
        if key in model and chance.random() < 0.7:
            records.remove(key)
            del model[key]
        else:
            model[key] = record(key, chance)
            records.put(model[key])
        if chance.random() < 0.1:
            for each in list(model) if chance.random() < 0.1 else ():
                records.remove(each)
                del model[each]
        first, after = (f"/{chance.randrange(300):03}" for _ in range(2))
        after = after if chance.random() < 0.5 else ""
        expected = [model[each] for each in sorted(model) if each >= first and each > after]
        assert list(islice(records.begin(first, after), 20)) == expected[:20]
        assert [each.key for each in records.begin()] == sorted(model)
        assert (len(records), records.get(first), first in records) == (
            len(model),
            model.get(first),
            first in model,
        )


def test_only_what_follows_is_added_at_the_end() -> None:
    chance, records = random.Random(1), PackedRecords()
    a, b, c = (record(key, chance) for key in ("/a", "/b", "/c"))
    assert records.extend([a, b])
    for refused in ([b], [a, c], [c, c], [c, b]):
        assert not records.extend(refused)
    assert records.extend([]) and records.extend([c])
    assert list(records.begin()) == [a, b, c]


def test_what_no_record_holds_is_refused() -> None:
    """Of a snapshot that nobody here made: nothing of it is taken."""
    records = PackedRecords()
    for wrong in (
        Record("/a", None, 1, 1),
        Record("/a", b"", 1, -1),
        Record("/a", b"", -1, 1),
        Record("/a", b"", 1, 1, 1 << 64),
    ):
        with pytest.raises(StorageError, match="'/a' has no value, or numbers that no record has"):
            records.extend([Record("/0", b"", 1, 1), wrong])
    assert len(records) == 0


def test_a_ledger_of_250_bytes_is_one_piece_of_memory_beside_its_key() -> None:
    """Issue 12: a million of them are 430 MB at most. A record costs its key, its bytes and two places in lists."""
    records = PackedRecords()
    count = 3000
    assert records.extend(
        [
            Record(ledger_key_path(number), bytes(250), GENERATION + number, GENERATION + number)
            for number in range(count)
        ]
    )
    packed = [each for leaf in records._packed for each in leaf]
    assert all(type(each) is bytes and len(each) == 259 for each in packed)
    places = sum(leaf.__sizeof__() for leaf in (*records._keys, *records._packed, records._lasts))
    assert places / count < 18
