"""A snapshot cut in slices while commands go on: it is the state of the moment when it was begun (METADATA.md, 2)."""

from __future__ import annotations

import random

import msgspec
import pytest

from embedbk.codec.metadata_messages import AllocIds, CloseSession, Delete, Put, Txn
from embedbk.errors import StorageError
from embedbk.metadata import cutting
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import FIRST_TERM
from embedbk.metadata.commands import (
    RULES,
    BeginGeneration,
    Command,
    ExpireSession,
    Run,
    StartMember,
    StartSession,
)
from embedbk.metadata.loading import load, load_in_slices


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch):
    """Small ones, so that small catalogs have many."""
    monkeypatch.setattr(cutting, "SLICE_RECORDS", 3)
    monkeypatch.setattr(cutting, "SLICE_BYTES", 500)


def random_command(chance: random.Random, catalog: Catalog, number: int) -> Command:
    """Puts, ephemeral ones, deletes, ids, sessions that come, close and expire, starts; a generation now and then."""
    drawn = chance.random()
    sessions = list(catalog.sessions)
    if not sessions or drawn < 0.05:
        return StartSession(number, 1000, "s" * chance.randint(0, 9), b"secret")
    session = chance.choice(sessions)
    if drawn < 0.08:
        return ExpireSession(session)
    if drawn < 0.1:
        return StartMember(b"%016d" % number)
    if drawn < 0.105:
        return BeginGeneration()
    operation: Txn | AllocIds | CloseSession
    if drawn < 0.13:
        operation = CloseSession()
    elif drawn < 0.18:
        operation = AllocIds(chance.randint(1, 5))
    else:
        keys = chance.sample(range(60), chance.randint(1, 5))
        operation = Txn(
            [],
            [
                Delete(f"/k/{key}")
                if chance.random() < 0.4
                else Put(f"/k/{key}", bytes(chance.randint(0, 200)), chance.random() < 0.2)
                for key in keys
            ],
        )
    below = max(catalog.sessions[session].done_below, number - chance.randint(0, 30))
    return Run(session, number, below, operation, RULES)


def fill(catalog: Catalog, count: int, chance: random.Random, first: int = 1) -> None:
    for number in range(first, first + count):
        catalog.apply(random_command(chance, catalog, number), 1, FIRST_TERM)


@pytest.mark.parametrize("seed", range(40))
def test_a_cut_is_the_state_at_the_cut_whatever_was_applied_meanwhile(seed: int, slices: None) -> None:
    """I80: a snapshot of n is the state by applying 1 to n; commands between its slices are not in it."""
    chance = random.Random(seed)
    catalog = Catalog()
    fill(catalog, chance.randint(0, 150), chance)
    for turn in range(3):
        expected, number = catalog.snapshot(), 1000 * (turn + 1)
        cut = catalog.cut()
        pieces: list[bytes] = []
        while (piece := cut.next_piece()) is not None:
            pieces.append(piece)
            for _ in range(chance.choice([0, 0, 1, 5, 40])):
                catalog.apply(random_command(chance, catalog, number), 1, FIRST_TERM)
                number += 1
        assert cut.set_aside_count == 0
        catalog.end_cut()
        loaded = load(pieces)
        assert loaded.snapshot() == expected
        assert loaded.fast_digest == Catalog.restore(expected).fast_digest == cut.head.digest
        assert (loaded.record_table.bytes, loaded.revision) == (
            Catalog.restore(expected).record_table.bytes,
            cut.head.revision,
        )
        assert loaded.session_table.bytes == Catalog.restore(expected).session_table.bytes
        assert loaded.session_table.shared_bytes == Catalog.restore(expected).session_table.shared_bytes


def test_a_change_of_many_keys_is_in_a_snapshot_whole_or_not_at_all(slices: None) -> None:
    """Scenario 77: ZK-3127. A transaction over keys in front of the walk and behind it, between any two slices: the
    snapshot has none of it, and the one that is begun behind it has all."""
    keys = [f"/k/{number:02}" for number in range(40)]
    old, new = (Txn([], [Put(key, value) for key in keys]) for value in (b"old", b"new"))
    for slices_before in range(30):
        catalog = Catalog()
        catalog.apply(StartSession(1, 1000, "w"), 1, FIRST_TERM)
        catalog.apply(Run(1, 1, 1, old, RULES), 2, FIRST_TERM)
        cut = catalog.cut()
        pieces = [piece for _ in range(slices_before) if (piece := cut.next_piece()) is not None]
        catalog.apply(Run(1, 2, 2, new, RULES), 3, FIRST_TERM)
        pieces += iter(cut.next_piece, None)
        catalog.end_cut()
        for told, value in ((pieces, b"old"), (all_pieces(catalog), b"new")):
            found = load(told)
            assert {record.value for record in found.page("/k/").records} == {value}, slices_before
            assert {record.revision for record in found.page("/k/").records} == {found.revision}
    assert len(pieces) > 5, "there are slices to come between"


def test_equal_states_give_equal_pieces(slices: None) -> None:
    """2.10 of the plan: members compare snapshots by digest, so the pieces follow from the state and nothing else."""
    catalog = Catalog()
    fill(catalog, 120, random.Random(7))
    pieces = all_pieces(catalog)
    assert all_pieces(load(pieces)) == pieces


def all_pieces(catalog: Catalog) -> list[bytes]:
    cut = catalog.cut()
    pieces = list(iter(cut.next_piece, None))
    catalog.end_cut()
    return pieces


def test_a_writer_in_front_of_the_walk_does_not_hold_it_up(
    monkeypatch: pytest.MonkeyPatch, slices: None
) -> None:
    """Keys that came since the cut are looked at and not written: as many a slice as a turn can bring, and none of
    them behind the last that was there."""
    monkeypatch.setattr(cutting, "SLICE_KEYS", 20)
    catalog = Catalog()
    catalog.apply(StartSession(1, 1000, "w"), 1, FIRST_TERM)
    for key in ("/a", "/m", "/z"):
        catalog.apply(
            Run(1, catalog.revision + 1, catalog.revision + 1, Txn([], [Put(key, b"")]), RULES), 1, FIRST_TERM
        )
    expected = catalog.snapshot()
    cut = catalog.cut()
    pieces, number = [], 100
    while (piece := cut.next_piece()) is not None:
        pieces.append(piece)
        for _ in range(10):
            number += 1
            catalog.apply(Run(1, number, number, Txn([], [Put(f"/b/{number}", b"")]), RULES), 1, FIRST_TERM)
            catalog.apply(
                Run(1, number + 10_000, number, Txn([], [Put(f"/zz/{number}", b"")]), RULES), 1, FIRST_TERM
            )
        assert len(pieces) < 20
    assert load(pieces).snapshot() == expected


def test_a_slice_is_bounded_in_records_and_in_bytes() -> None:
    """A slice is some milliseconds of work and a piece one chunk of a file, whatever stands in the catalog."""
    catalog = Catalog()
    catalog.apply(StartSession(1, 1000, "w"), 1, FIRST_TERM)
    for number in range(1, 3001):
        put = Put(f"/k/{number:05}", bytes(262144 if number % 1300 == 0 else 40))
        catalog.apply(Run(1, number, number, Txn([], [put]), RULES), 1, FIRST_TERM)
    pieces = all_pieces(catalog)
    assert max(map(len, pieces)) < cutting.SLICE_BYTES + 262144 + 100_000 < cutting.PIECE_BYTES_MAX
    counts = [
        len(found.records)
        for found in map(cutting.decode_piece.decode, pieces)
        if isinstance(found, cutting.Records)
    ]
    assert max(counts) == cutting.SLICE_RECORDS
    assert sum(counts) == 3000


def test_sessions_with_many_answers_go_in_slices_too(slices: None) -> None:
    """10,000 sessions with 256 answers each are more than a slice."""
    catalog = Catalog()
    for session in range(1, 31):
        catalog.apply(StartSession(session, 1000, "s", b"x"), 1, FIRST_TERM)
        for sequence in range(1, 6):
            catalog.apply(Run(session, sequence, 1, AllocIds(1), RULES), 1, FIRST_TERM)
    expected = catalog.snapshot()
    cut = catalog.cut()
    pieces = [cut.next_piece(), cut.next_piece()]
    for session in (1, 30, 29):  # The first was written, the others are parked.
        catalog.apply(Run(session, 6, 6, AllocIds(1), RULES), 1, FIRST_TERM)
        catalog.apply(ExpireSession(session), 1, FIRST_TERM)
    pieces += iter(cut.next_piece, None)
    assert len(pieces) == 31
    assert load(pieces).snapshot() == expected  # type: ignore[arg-type]


def test_loading_goes_piece_by_piece() -> None:
    """An install beside links that are served takes a slice now and then."""
    catalog = Catalog()
    fill(catalog, 100, random.Random(3))
    pieces = all_pieces(catalog)
    steps = load_in_slices(pieces)
    for _ in pieces:
        assert next(steps) is None
    with pytest.raises(StopIteration) as whole:
        next(steps)
    assert whole.value.value.digest() == catalog.digest()


def test_pieces_that_are_no_snapshot_are_refused() -> None:
    """I80, I81: half a snapshot, or another order, is never a catalog."""
    catalog = Catalog()
    fill(catalog, 100, random.Random(5))
    pieces = all_pieces(catalog)
    encode = msgspec.msgpack.encode
    foreign = encode(cutting.Head(9, 0, 1, 0, 0, 0, 0, 0, 0))
    orphan = encode(cutting.Records([cutting.Record("/x", b"", 1, 1, 77)]))
    head = encode(cutting.Head(2, 5, 1, 0, 0, 0, 1, 0, 0))
    twice = encode(cutting.Records([cutting.Record("/x", b"", 1, 1), cutting.Record("/x", b"", 1, 1)]))
    for broken, said in [
        ([], "before it is whole"),
        (pieces[:-1], "before it is whole"),
        (pieces[1:], "without its head"),
        ([pieces[0], *pieces], "another head"),
        ([pieces[0], *pieces[:0:-1]], "before its time"),
        ([*pieces, pieces[-1]], "more than its head says"),
        ([foreign], "has version 9; this embedbk knows 1 and 2"),
        ([head, orphan], "of no session"),
        ([head, twice], "out of order"),
        ([b"\xc1"], "piece 0 of a metadata snapshot holds none"),
    ]:
        with pytest.raises(StorageError, match=said):
            load(broken)


def test_a_snapshot_with_another_record_than_was_cut_is_refused() -> None:
    """I72: the digest in the head is that of the catalog that was cut, and whatever came of the pieces must give it."""
    catalog = Catalog()
    fill(catalog, 100, random.Random(6))
    head, *rest = all_pieces(catalog)
    decoded = [cutting.decode_piece.decode(piece) for piece in rest]
    at, records = next((at, each) for at, each in enumerate(decoded) if isinstance(each, cutting.Records))
    first, *others = records.records
    for other in (
        msgspec.structs.replace(first, value=(first.value or b"") + b"x"),
        msgspec.structs.replace(first, revision=first.revision + 1),
        msgspec.structs.replace(first, created=first.created + 1),
    ):
        changed = [*rest]
        changed[at] = msgspec.msgpack.encode(cutting.Records([other, *others]))
        with pytest.raises(StorageError, match="other records than the catalog"):
            load([head, *changed])
    older = msgspec.structs.replace(cutting.decode_piece.decode(head), digest=b"")
    assert load([msgspec.msgpack.encode(older), *rest]).fast_digest == catalog.fast_digest


def test_two_catalogs_that_differ_in_one_counter_differ_in_their_digest() -> None:
    """I72: ids that were given out and sessions are state too, though they are in no record."""
    catalog = Catalog()
    fill(catalog, 50, random.Random(8))
    before = {catalog.fast_digest}
    for number, command in enumerate(
        (StartMember(b"n" * 16), StartSession(9999, 1000, "s", b"secret")), 10_000
    ):
        catalog.apply(command, number, FIRST_TERM)
        assert catalog.fast_digest not in before
        before.add(catalog.fast_digest)
    catalog.apply(Run(9999, 1, 1, AllocIds(1), RULES), 10_002, FIRST_TERM)
    assert catalog.fast_digest not in before
