"""Who joins while others write: it votes when it keeps up, and not before (RAFT.md, 7; story 15)."""

from __future__ import annotations

import pytest

from embedbk.metadata.quorum import MemberId
from embedbk.metadata.raft_vocabulary import Append, Message
from tests.quorum.test_scenarios import BASE_MS, commit
from tests.quorum.world import Image, Member, Snapshot, World, over_a_link

ENTRY_MS = 4.0  # What an entry takes on the line to who joins.
BEHIND = 25


class SlowLine(World):
    """What goes to "d" goes one after the other, as on a link, and entries take their time."""

    free_ms = 0.0

    def carry(self, message: Message) -> None:
        if message.receiver.name != "d":
            super().carry(message)
            return
        sent = over_a_link(message)
        entries = len(message.body.entries) if isinstance(message.body, Append) else 0
        self.free_ms = max(self.free_ms, self.now_ms) + ENTRY_MS * entries
        self.later(self.free_ms - self.now_ms + 0.1, lambda: self._deliver(sent))


@pytest.mark.parametrize(("percent", "joins"), [(50, True), (90, True), (130, False)])
def test_who_joins_votes_when_it_keeps_up_with_the_writers(percent: int, joins: bool) -> None:
    """Story 15: others write at 50, 90 and 130 % of what its line carries. Whoever falls behind is refused with that
    reason by each change that would let it vote, takes nothing from the others, and votes when they write less."""
    world = SlowLine(percent, "abc")
    world.run(4 * BASE_MS)
    commit(world, BEHIND)
    known = next(iter(world.members.values())).disk.snapshot.configuration
    joining = Member(world, MemberId("d", b"d" * 16), Image(Snapshot(0, 0, known, ())))
    world.members[joining.member] = joining
    joining.start()
    world.admit(joining)
    for _ in range(700):
        world.propose()
        world.run(ENTRY_MS * 100 / percent)
    leader = world.leader()
    assert leader is not None
    stays = [leader, *(member for member in world.members.values() if member not in (leader, joining))][:2]
    world.changes.clear()
    world.change(*stays, joining)
    for _ in range(20):
        world.propose()
        world.run(ENTRY_MS * 100 / percent)
    assert len(world.judge.acknowledged) > 700, "the others were held up"
    [said] = world.changes
    assert said.endswith("not: d") if not joins else said == "", said
    if not joins:
        world.run(20 * BASE_MS)
        world.change(*stays, joining)
        world.run(4 * BASE_MS)
        assert world.changes[-1] == ""
    commit(world)
    world.judge.end()


def test_who_joins_one_that_was_alone_for_long_has_to_have_everything_first() -> None:
    """RAFT.md, 7: "it keeps up when it has what was committed a base ago": one that is alone has no rounds, and looks
    at nothing; the first newcomer would stop it if it voted before it has the log."""
    world = SlowLine(1, "a")
    world.run(4 * BASE_MS)
    commit(world, 400)
    world.run(20 * BASE_MS)
    [alone] = world.members.values()
    raft = alone.raft
    assert raft is not None and raft._leading is not None
    assert raft._leading.settled_index == raft.commit_index
    joining = Member(
        world, MemberId("d", b"d" * 16), Image(Snapshot(0, 0, alone.disk.snapshot.configuration, ()))
    )
    world.members[joining.member] = joining
    joining.start()
    world.admit(joining)
    world.run(100)  # Enough to be heard, and for 25 entries.
    world.changes.clear()
    world.change(alone, joining, allows_even=True)
    world.run(100)
    [said] = world.changes
    assert said.endswith("not: d"), said
    world.run(10 * BASE_MS)
    world.change(alone, joining, allows_even=True)
    world.run(4 * BASE_MS)
    assert world.changes[-1] == ""
    world.judge.end()
