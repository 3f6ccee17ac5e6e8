"""What befalls the disks of metadata members in worlds: copied and started twice, torn, a flipped bit (TESTING.md, 5).

Each check is seen to find the real fault, and to accept the lawful case.
"""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.errors import StorageError
from embedbk.host.peers import PeerLinks
from embedbk.metadata.quorum import Policy
from embedbk.storage import log_use
from embedbk.storage.snapshot_format import parse_snapshot_name
from embedbk.testing import faults, member_bytes
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.invariants import Invariants
from embedbk.testing.member_bytes import OpenedMember
from embedbk.testing.member_copies import COPY_COUNTED, COPY_REFUSED
from embedbk.testing.member_names import METADATA
from embedbk.testing.members_liveness import agree_at_last, has_leader
from embedbk.testing.plan import Step
from embedbk.testing.process_names import twin_of
from embedbk.testing.violation import Violation
from embedbk.testing.world import World
from tests.sim.test_members import Quorum


def follower(quorum: Quorum) -> str:
    return next(name for name in quorum.members.names if name != quorum.leader)


def with_a_copy(policy: Policy = Policy.MAJORITY) -> tuple[Quorum, str]:
    """A copy of a follower runs beside it while others write."""
    quorum = Quorum(3, 3, policy)
    name = follower(quorum)
    assert quorum.put("/before")
    quorum.members.copies.start(name, is_borne=policy is Policy.ROLLBACK_1)
    return quorum, name


def test_a_copy_of_a_directory_is_refused_while_its_member_is_heard() -> None:
    """Story 6, P7.9: the later start neither votes nor acknowledges, whatever is asked of it; its member stays."""
    quorum, name = with_a_copy()
    for number in range(4):
        assert quorum.put(f"/{number}")
    quorum.world.run_for(3 * SECOND)
    assert quorum.seen[COPY_REFUSED] == 1
    assert quorum.world.nodes[twin_of(name)].core.applied_index < quorum.members.applied(name)
    quorum.members.copies.end(name)
    agree_at_last(quorum.world)
    quorum.world.close()


def test_a_copy_that_is_let_in_beside_its_member_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7.9: the check of every seed sees it at the first who links it."""
    refuse = PeerLinks._why_not

    def lets_in(self: PeerLinks, *args: object) -> str:
        reason = refuse(self, *args)  # type: ignore[arg-type]
        return "" if "P7.9" in reason else reason

    monkeypatch.setattr(PeerLinks, "_why_not", lets_in)
    quorum, _ = with_a_copy()
    with pytest.raises(Violation, match=r"P7\.9"):
        quorum.world.run_for(20 * SECOND)
    quorum.world.close()


def test_where_a_copy_comes_first_its_member_is_heard_again() -> None:
    """The lawful other side: a member that has just started hears whoever comes first. The world keeps inside the
    promise: that process ends, and the other one takes its place."""
    quorum, name = with_a_copy()
    third = next(each for each in quorum.members.names if each not in (quorum.leader, name))
    for _ in range(6):
        quorum.world.crash(third)
        quorum.world.run_for(50 * MS)
        quorum.members.start(third)
        quorum.world.run_for(2 * SECOND)
    assert quorum.put("/behind")
    quorum.members.copies.end(name)
    agree_at_last(quorum.world)
    quorum.world.close()


def test_a_copy_may_count_where_the_policy_bears_it() -> None:
    """C1, C2: under rollback-1 it takes the place of its member once that one is gone, and nothing is lost."""
    quorum, name = with_a_copy(Policy.ROLLBACK_1)
    quorum.world.crash(name)
    assert quorum.world.run_until(lambda: quorum.seen[COPY_COUNTED] > 0, 10 * SECOND)
    quorum.members.copies.end(name)
    quorum.members.start(name)
    assert quorum.has("/before")
    agree_at_last(quorum.world)
    quorum.world.close()


# --- Torn and flipped --------------------------------------------------------------------------------------


def written(seed: int) -> tuple[Quorum, str]:
    quorum = Quorum(seed, 3)
    for number in range(8):
        assert quorum.put(f"/{number}")
    return quorum, follower(quorum)


@pytest.mark.parametrize("seed", range(6))
def test_a_torn_group_that_nobody_heard_of_is_lawful(seed: int) -> None:
    """I42, I80: what was durable is there, nothing is doubted, and the member goes on."""
    quorum, name = written(seed)
    quorum.ask(Txn([], [Put("/more", b"x")]))
    assert quorum.world.run_until(lambda: quorum.members.is_pending(name), SECOND)
    quorum.members.tear(name, random.Random(seed))
    quorum.members.start(name)
    assert not quorum.world.nodes[name].log.raft.has_doubt
    agree_at_last(quorum.world)
    quorum.world.close()


def doubting(seed: int) -> tuple[Quorum, str]:
    """A member that lost what it acknowledged, has not got it back, and writes what nobody was told of."""
    quorum, name = written(seed)
    notes = quorum.members._directories[name].notes
    assert notes.used is not None
    notes.used = replace(notes.used, has_doubt=True)
    quorum.ask(Txn([], [Put("/more", b"x")]))
    assert quorum.world.run_until(lambda: quorum.members.is_pending(name), SECOND)
    return quorum, name


def test_a_doubt_from_before_stays_behind_a_torn_group() -> None:
    """I42: the group adds none, and ends none."""
    quorum, name = doubting(0)
    quorum.members.tear(name, random.Random(0))
    quorum.members.start(name)
    agree_at_last(quorum.world)
    quorum.world.close()


def test_a_doubt_that_ends_by_a_torn_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I42: a start that trusts a log again which has less than it acknowledged."""
    quorum, name = doubting(0)
    monkeypatch.setattr(member_bytes._Bytes, "start", lambda log, *args: OpenedMember(log.records, {}))
    with pytest.raises(Violation, match="trusts it again"):
        quorum.members.tear(name, random.Random(0))
    quorum.world.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_flipped_bit_takes_nothing_that_was_committed(seed: int) -> None:
    """Story 9, I42, I81: the member goes on in doubt, or refuses with a word of what helps and is replaced by an empty
    directory; with it or without, everything is there."""
    quorum, name = written(seed)
    refusal = quorum.members.flip(name, random.Random(seed))
    if refusal is not None:
        assert "join again" in refusal.hint
        quorum.members.wipe(name)
    else:
        assert quorum.seen["damaged metadata log gone on with in doubt"] == 1
    quorum.members.start(name)
    for number in range(8):
        assert quorum.has(f"/{number}")
    has_leader(quorum.world)
    quorum.world.close()


def test_records_that_are_gone_and_not_doubted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I42: a start that goes on behind damage as if nothing had been."""
    monkeypatch.setattr(log_use, "_doubt_behind_damage", lambda *args: None)
    quorum, name = written(0)
    with pytest.raises(Violation, match="does not doubt"):
        quorum.members.flip(name, random.Random(0))
    quorum.world.close()


def test_a_torn_group_that_costs_more_than_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """I80, I42: a start that cuts away what was durable, and one that refuses what is lawful."""
    for start, match in (
        (lambda log, *args: OpenedMember(log.records[:-1], {}), "durable records"),
        (lambda log, *args: OpenedMember(log.records, {}, is_in_doubt=True), "doubts"),
        (lambda log, *args: OpenedMember(log.records, {}, refusal=StorageError("no")), "refused"),
    ):
        quorum, name = written(1)
        monkeypatch.setattr(member_bytes._Bytes, "start", start)
        quorum.ask(Txn([], [Put("/more", b"x")]))
        assert quorum.world.run_until(lambda: quorum.members.is_pending(name), SECOND)  # noqa: B023
        with pytest.raises(Violation, match=match):
            quorum.members.tear(name, random.Random(1))
        quorum.world.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_that_cannot_be_written_is_written_later(seed: int) -> None:
    """I53, D8, D9: the log is kept meanwhile, and everything goes on."""
    world = World(seed, bookies=1, observers=[Invariants()])
    node = world.start_client("c1")
    assert world.run_until(lambda: node.is_ready)
    step = Step(0, 0, "snapshot-fails", METADATA, for_ns=2 * SECOND, seed=seed)
    faults.begin(world, step)
    world.run_for(3 * SECOND)
    assert world.sometimes["metadata snapshot not written"] == 1
    directory = world.members._directories[METADATA]
    assert not [name for name in directory.disk.files() if parse_snapshot_name(name.rpartition("/")[2])]
    world.run_for(12 * SECOND)
    assert [name for name in directory.disk.files() if parse_snapshot_name(name.rpartition("/")[2])]
    world.close()
