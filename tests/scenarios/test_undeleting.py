"""Putting truncated ledgers back in front of their log (P8.15): what comes back, what cannot, and who is at work
beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from embedbk import Position, Roll
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.codec.registration import PlacementNote, encode_placement, placement_path
from embedbk.codec.tombstone import Tombstone, decode_tombstone, encode_tombstone, tombstone_path
from embedbk.core.truncating import LogTruncating
from embedbk.core.truncation import Terms
from embedbk.errors import LogSealed, NoSuchLedger, Truncated, UsageError, WrongPassword
from embedbk.metadata.levels import LEVEL_OF_FRONTS
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over
from tests.scenarios.test_truncating import NAME, fill, left, listed

ALL = list(range(24))


@pytest.fixture(params=[4, 256], ids=["pages", "no pages"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(seed=83, bookies=3) as cluster:
        cluster.world.page_ledgers = request.param
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def read(cluster: Cluster) -> list[int]:
    """The offsets of all that the log has, each with the payload that was appended there."""
    found = [(entry.offset, bytes(entry)) for entry in cluster.client("reader").log(NAME).read()]
    assert all(payload == b"%d" % offset for offset, payload in found)
    return [offset for offset, _ in found]


def beside(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None]) -> None:
    """Act once, between what an undelete looked at and its transaction."""
    transact, waiting = Runtime.transact, [act]

    async def late(self: Runtime, when: Any, then: Any, what: str) -> bool:
        if "putting ledgers back" in what and waiting:
            waiting.pop()()
        return await transact(self, when, then, what)

    monkeypatch.setattr(Runtime, "transact", late)


def put(cluster: Cluster, *then: Put | Delete) -> None:
    assert run_blocking(cluster.client("stranger")._runtime.transact([], list(then), "a stranger's word"), "")


def stone_of(cluster: Cluster, position: Position) -> Tombstone:
    return decode_tombstone(cluster.world.committed("/deleted/")[tombstone_path(position.ledger_id)])


def test_what_was_truncated_stands_in_front_again_with_its_offsets(cluster: Cluster) -> None:
    """P8.15: "ledgers come back from the newest to the oldest", until the log begins at or before what was asked for;
    truncated again and put back again they are the same."""
    positions = fill(cluster)
    log = cluster.client("another").log(NAME)
    for _ in range(3):
        assert log.truncate(20).reached == 20
        done = log.undelete(13)
        assert done == (13, 20, 12, 4, None, "")
        assert read(cluster) == ALL[12:]
        assert log.undelete(13).ledgers == 0
        with pytest.raises(Truncated):
            list(log.read(11))
        done = log.undelete(positions[5])
        assert done == (5, 12, 4, 4, None, "") and read(cluster) == ALL[4:]
        assert log.undelete() == (None, 4, 0, 2, None, "")
        assert read(cluster) == ALL
        assert cluster.client("another").deleted_ledgers() == [] and left(cluster) == ()
    assert fill(cluster, 2, 12, name="next")[0].ledger_id > positions[-1].ledger_id
    assert read(cluster) == list(range(28))
    with pytest.raises(UsageError, match="is part of log"):
        cluster.client("another").delete_ledger(positions[0].ledger_id)


def test_several_truncations_come_back_and_some_go_again(cluster: Cluster) -> None:
    """P8.15: the number of a page is kept for each round, so what went in many rounds comes back as well."""
    fill(cluster)
    log = cluster.client("another").log(NAME)
    for before in (4, 6, 12, 14, 20):
        assert log.truncate(before).reached == before
    assert log.undelete(10).reached == 10
    assert log.truncate(16).reached == 16
    assert log.undelete(1) == (1, 16, 0, 8, None, "")
    assert read(cluster) == ALL


def test_a_ledger_that_a_quorum_is_not_known_to_hold_stays_deleted_and_is_named(cluster: Cluster) -> None:
    """P8.15: "only where bookies say that an ack quorum holds each of its entries": a bookie that does not answer,
    and one that lost its copy, count as holding nothing."""
    positions = fill(cluster)
    log = cluster.client("another").log(NAME)
    log.truncate(20)
    cluster.crash("b1")
    cluster.run_for(1.0)
    assert log.undelete(16).reached == 16  # Two of three say so.
    cluster.crash("b2")
    cluster.run_for(1.0)
    with pytest.raises(NoSuchLedger, match=r"at offset 16: .*fewer than 2 bookies are known to hold") as told:
        log.undelete(10)
    assert f"ledger {positions[15].ledger_id}" in str(told.value)
    cluster.lose_disk("b1")
    cluster.restart("b2")
    cluster.run_for(20.0)
    assert log.undelete(10).reached == 10  # The disk of one is gone: the other two have all.
    assert read(cluster)[0] == 10


def test_a_gap_ends_the_run_and_is_named(cluster: Cluster) -> None:
    """P8.15: a ledger that was forgotten, or brought back by itself, is not stepped over."""
    positions = fill(cluster)
    client = cluster.client("another")
    log = client.log(NAME)
    log.truncate(20)
    client.undelete_ledger(positions[8].ledger_id)
    done = log.undelete()
    assert (done.reached, done.ledgers) == (10, 5) and done.why
    assert read(cluster) == ALL[10:]
    with pytest.raises(NoSuchLedger, match="still begins at offset 10"):
        log.undelete(3)
    put(cluster, Delete(tombstone_path(positions[6].ledger_id)))
    with pytest.raises(NoSuchLedger, match="is not in its list"):
        log.undelete(positions[6])


def test_files_of_the_archive_another_end_and_another_password_stay(cluster: Cluster) -> None:
    """P8.15: "in files of the archive (P8.14); with another end than the list had": what nobody has read does not come
    back, nor what may be another ledger."""
    positions = fill(cluster)
    client = cluster.client("another")
    log = client.log(NAME)
    log.truncate(20)
    with pytest.raises(WrongPassword):
        client.log(NAME, password=b"x").undelete()
    assert listed(cluster).first_offset == 20
    stone = stone_of(cluster, positions[16])
    metadata = decode_ledger_metadata(stone.metadata)
    other = metadata.with_changes(last_entry=0)
    put(cluster, Put(tombstone_path(stone.ledger_id), encode_tombstone(with_metadata(stone, other))))
    assert log.undelete().reached == 18
    with pytest.raises(NoSuchLedger, match=f"ledger {stone.ledger_id} ends at 0, and the list had 1"):
        log.undelete()
    first = replace(metadata.fragments[0], ensemble=())
    freed = metadata.with_changes(freed=Freed(bytes(16), "somewhere", bytes(32)), fragments=(first,))
    put(cluster, Put(tombstone_path(stone.ledger_id), encode_tombstone(with_metadata(stone, freed))))
    with pytest.raises(NoSuchLedger, match="files of the archive in 'somewhere'"):
        log.undelete()
    assert read(cluster) == ALL[18:]


def with_metadata(stone: Tombstone, metadata: LedgerMetadata) -> Tombstone:
    return replace(stone, metadata=encode_ledger_metadata(metadata))


def test_what_nobody_noted_does_not_come_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: below the level nothing is noted, and nothing is put back."""
    positions = fill(cluster)
    log = cluster.client("another").log(NAME)
    with monkeypatch.context() as older:
        older.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_FRONTS)
        assert log.truncate(8).reached == 8
        with pytest.raises(UsageError, match="level is below 28"):
            log.undelete()
    assert stone_of(cluster, positions[0]).segment is None
    with pytest.raises(NoSuchLedger, match="truncated below the level"):
        log.undelete()
    assert log.truncate(20).reached == 20
    assert log.undelete().reached == 8


@pytest.mark.parametrize("what", ["truncation", "roll", "forgotten", "brought back", "undelete"])
def test_one_transaction_decides_beside_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """P8.15: it compares the list, the tombstones and the placements: what changed meanwhile is looked at again."""
    positions = fill(cluster)
    client, other = cluster.client("another"), cluster.client("other")
    log = client.log(NAME)
    writer = other.log(NAME).writer(roll=Roll(bytes=None))
    assert log.truncate(16).reached == 16

    def act() -> None:
        if what == "truncation":
            assert other.log(NAME).truncate(20).reached == 20
        elif what == "roll":
            writer.append(b"24")
            writer.roll()
        elif what == "forgotten":
            put(cluster, Delete(tombstone_path(positions[14].ledger_id)))
        elif what == "brought back":
            other.undelete_ledger(positions[14].ledger_id)
        else:
            assert other.log(NAME).undelete(14).reached == 14

    beside(monkeypatch, act)
    if what in ("forgotten", "brought back"):
        with pytest.raises(NoSuchLedger, match="no ledger was put back"):
            log.undelete(10)
        assert read(cluster) == ALL[16:]
        return
    assert log.undelete(10).reached == 10
    writer.append(b"%d" % (25 if what == "roll" else 24))
    writer.close()
    assert read(cluster)[0] == 10 and read(cluster)[-1] == (25 if what == "roll" else 24)


def test_a_bookie_that_is_drained_meanwhile_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.15, P10.6: the transaction compares "the placements of the bookies that they name": the operator who drains
    one learns that it is named again."""
    fill(cluster)
    log = cluster.client("another").log(NAME)
    log.truncate(20)
    drained = encode_placement(PlacementNote(is_draining=True, why="a test"))
    beside(monkeypatch, lambda: put(cluster, Put(placement_path("b1"), drained)))
    puts: list[bool] = []
    transact = Runtime.transact

    async def seen(self: Runtime, when: Any, then: Any, what: str) -> bool:
        is_done = await transact(self, when, then, what)
        if is_done and "putting ledgers back" in what:
            puts.append(Put(placement_path("b1"), drained) in then)
        return is_done

    monkeypatch.setattr(Runtime, "transact", seen)
    assert log.undelete().reached == 0
    assert puts[0]


def test_what_truncation_has_not_deleted_yet_is_deleted_first(cluster: Cluster) -> None:
    """P8.15: "First what an earlier truncation left is deleted": a crash between the list and the ledgers leaves ids
    under `/logs/ID/truncated`, with their places."""
    fill(cluster)
    runtime: Any = cluster.client("truncator")._runtime
    core = LogTruncating(NAME, Terms(8), Password(b"").verifier, runtime.wall_ms(), 1000, notes_places=True)
    step = core.step

    def dies(event: Any) -> Any:
        effects = step(event)
        return [] if any(getattr(each, "tag", None) == "drop" for each in effects) else effects

    core.step = dies  # type: ignore[method-assign]
    cluster.world.start("truncator", core)
    cluster.run_for(2.0)
    assert len(left(cluster)) == 4 and listed(cluster).first_offset == 8
    assert cluster.client("another").log(NAME).undelete().reached == 0
    assert left(cluster) == () and read(cluster) == ALL


def test_a_bookie_drops_nothing_of_what_came_back(cluster: Cluster) -> None:
    """P7.7: between tombstone and key there is no moment without both; so copies stay through rounds of collection."""
    positions = fill(cluster)
    client = cluster.client("another")
    log = client.log(NAME)
    log.truncate(20)
    assert log.undelete().reached == 0
    assert client.forget_deleted() == []
    cluster.run_for(120.0)
    assert read(cluster) == ALL
    assert all(ledger_key_path(each.ledger_id) in cluster.world.committed("/ledgers/") for each in positions)


@pytest.mark.parametrize("when", ["before", "beside"])
def test_a_sealed_log_gets_its_front_back_and_stays_sealed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """P8.15, P8.9: what comes back stands in front, and nothing is listed behind the seal."""
    fill(cluster)
    log = cluster.client("another").log(NAME)
    log.truncate(20)
    if when == "before":
        log.seal("moved")
    else:
        beside(monkeypatch, lambda: cluster.client("sealer").log(NAME).seal("moved"))
    assert log.undelete().reached == 0
    assert read(cluster) == ALL
    with pytest.raises(LogSealed, match="moved"):
        log.writer()


def test_a_takeover_and_its_appends_beside_it_lose_nothing(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.15, P8.1: the transaction that was refused decides anew on the list of the new owner."""
    fill(cluster)
    log = cluster.client("another").log(NAME)
    log.truncate(20)

    def take_over() -> None:
        with cluster.client("owner").log(NAME).writer() as writer:
            for number in range(24, 30):
                writer.append(b"%d" % number)

    beside(monkeypatch, take_over)
    assert log.undelete().reached == 0
    assert read(cluster) == list(range(30))


@pytest.mark.parametrize("when", ["before", "beside"])
def test_a_splice_beside_it_keeps_its_place(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """P8.15, P8.5: ids of spliced ledgers may be below those that come back; offsets decide, and none of both moves."""
    log = cluster.client("another").log(NAME)
    terms = log.staging("import", 1)
    with log.stage(terms) as part:
        for number in range(24, 28):
            part.add(b"%d" % number)
    fill(cluster)
    log.truncate(20)
    if when == "before":
        assert log.splice(terms, [part.ledger_id]).first_offset == 24
    else:
        beside(monkeypatch, lambda: cluster.client("other").log(NAME).splice(terms, [part.ledger_id]))
    assert log.undelete().reached == 0
    assert read(cluster) == list(range(28))
    assert log.truncate(26).reached == 24
    assert log.undelete(3).reached in (2, 3)
    assert read(cluster)[-4:] == [24, 25, 26, 27]
