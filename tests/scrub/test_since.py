"""A scrub of what is new: which ledgers metadata proves to have been closed before a time (SCRUB.md, `--since`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import Begun, LogSegment, decode_log_list, log_key_path
from embedbk.codec.metadata_messages import Delete
from embedbk.errors import UsageError
from embedbk.scrub import ScrubOptions, ScrubResult, scrub
from embedbk.scrub.since import closed_before
from embedbk.testing import Cluster
from tests.scrub.planted import Planted

LOG = "orders"


@pytest.fixture
def planted() -> Iterator[Planted]:
    with Cluster(seed=3, bookies=4) as cluster:
        yield Planted(cluster)


def listed(planted: Planted) -> tuple[LogSegment, ...]:
    log_id = planted.client.log(LOG).log_id()
    value = planted.cluster.world.committed(log_key_path(log_id))[log_key_path(log_id)]
    return decode_log_list(value, log_id).segments


def written(planted: Planted, ledgers: int) -> tuple[LogSegment, ...]:
    """One writer's ledgers, each begun ten seconds behind the one before; the last one is closed, too."""
    with planted.client.log(LOG).writer() as writer:
        for number in range(ledgers):
            writer.append_many([b"%d" % number] * 10)
            if number < ledgers - 1:
                planted.cluster.run_for(10)
                writer.roll()
    planted.cluster.run_for(1)
    return listed(planted)


def since(planted: Planted, time_ms: int) -> ScrubResult:
    return scrub(planted.client, ScrubOptions(since_ms=time_ms))


def test_a_ledger_is_passed_over_when_the_one_after_the_next_was_begun_before(planted: Planted) -> None:
    """P8.8: "before the one after the next was begun": the next one may be begun while entries still come."""
    segments = written(planted, 4)
    assert [each.begun for each in segments[1:]] == [Begun.REQUEST] * 3
    for segment in segments:
        planted.lose(planted.members(segment.ledger_id)[0], segment.ledger_id, 4)
    everything = {each.ledger_id for each in segments}

    def of(time_ms: int) -> set[int | None]:
        result = since(planted, time_ms)
        assert result.ledgers == len(segments) - result.passed
        assert len({each.ledger_id for each in result.findings}) == result.ledgers
        return {each.ledger_id for each in result.findings}

    third = segments[2].created_ms
    assert of(third) == everything
    assert of(third + 1) == everything - {segments[0].ledger_id}
    fourth = segments[3].created_ms
    assert of(fourth) == everything - {segments[0].ledger_id}
    assert of(fourth + 1) == of(1 << 60) == everything - {each.ledger_id for each in segments[:2]}


def test_a_takeover_says_when_the_ledger_before_it_had_ended(planted: Planted) -> None:
    """P8.8: "a ledger took its last append before a takeover began the next one"."""
    written(planted, 1)
    planted.cluster.run_for(10)
    with planted.client.log(LOG).writer() as writer:
        writer.append(b"one")
        planted.cluster.run_for(1)
        first, second = listed(planted)
        assert second.begun == Begun.TAKEOVER
        assert since(planted, second.created_ms).passed == 0
        assert since(planted, second.created_ms + 1).passed == 1
    names, runtime = [LOG, "there is none"], planted.client._runtime
    assert run_blocking(closed_before(runtime, names, 1 << 60, "test"), "test") == {first.ledger_id}


def test_what_proves_nothing_is_read(planted: Planted) -> None:
    """ "Cannot tell is never no": ledgers of no log, open ones, the last ones of a log, of a log whose list is gone."""
    bare = planted.closed(30)
    writer = planted.client.create_ledger()
    writer.add_many([b"open"] * 9)
    written(planted, 2)
    assert since(planted, 1 << 60).passed == 0
    planted.lose(planted.members(bare)[0], bare, 4)
    assert {each.ledger_id for each in since(planted, 1 << 60).findings} == {bare}
    with planted.client.log(LOG).writer() as last:
        last.append(b"one")
    assert since(planted, 1 << 60).passed == 2
    planted.transact(Delete(log_key_path(planted.client.log(LOG).log_id())))
    assert since(planted, 1 << 60).passed == 0
    writer.close()


def test_lists_and_strays_are_checked_whatever_their_time(planted: Planted) -> None:
    with planted.client.create_ledger(custom={"log": b"nowhere"}) as orphan:
        orphan.add(b"lost")
    assert [each.kind for each in since(planted, 1 << 60).findings] == ["orphan-ledger"]


def test_a_state_is_of_all_ledgers(tmp_path: Path) -> None:
    """Else a scrub of what is new would end what a scrub of all has noted."""
    with pytest.raises(UsageError, match="a state is of a scrub of all ledgers"):
        ScrubOptions(since_ms=1, state=tmp_path / "state")
