"""An operator who changes the voters of a world: makes members, has them join, and asks the leader (RAFT.md, 7).

Does by hand what `embedbk metadata --join` and `embedbk quorum join | reconfigure` do, with the same parts: a member
that is not in the configuration announces itself (host/announcing.py), and the leader is asked for the wanted voters
until they are the voters (host/inquiring.py). Decides which members shall vote; the members decide whether they may.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from typing import Any, Protocol

from embedbk.codec.metadata_messages import Operation, Refusal, Result
from embedbk.codec.quorum_messages import ChangeVoters, JoinAsLearner, MemberName, QuorumStatus, QuorumTold
from embedbk.host.announcing import Announcing
from embedbk.host.inquiring import Inquiry
from embedbk.host.metadata_node import MetadataNode
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.clocks import MS
from embedbk.testing.member_directories import CLUSTER_TOKEN
from embedbk.testing.member_names import METADATA
from embedbk.testing.world import World

__all__ = ["OPERATOR", "Operator"]

OPERATOR = "operator"
ANSWERED_NS = 2_500 * MS
LOOK_NS = 10 * MS
TRIES = 5  # Refusals, before others are chosen.


class _Node(Protocol):
    def step(self, now_ns: int) -> None: ...
    def deadline_ns(self) -> int | None: ...
    def close(self, failure: BaseException | None = None) -> None: ...


class _Beside:
    """A process of its own, as a world knows processes."""

    def __init__(self, transport: Transport, node: _Node) -> None:
        self.transport = transport
        self.on_step: Any = None
        self.step = node.step
        self.deadline_ns = node.deadline_ns
        self.close = node.close


class Operator:
    """Changes to so many voters, one after the other."""

    def __init__(self, world: World, number: int, chance: random.Random) -> None:
        self._world, self._members = world, world.members
        self.name = f"{OPERATOR}-{number}"
        self._chance = chance
        self._counts: list[int] = []  # The numbers of voters wanted, the next one first.
        self._drops_leader = False  # The leader is among those that leave, if any leave.
        self._announcing: dict[str, bytes] = {}  # The nonce of the process that announces, by member.
        self._chosen: list[MemberName] = []
        self._refusals = 0

    @property
    def count(self) -> int:
        """The number of voters in the end."""
        return self._counts[-1] if self._counts else len(self._members.configuration.voters)

    def want(self, count: int) -> None:
        """Behind what is wanted already."""
        self._counts.append(count)
        if len(self._counts) == 1:
            self._drops_leader = self._chance.random() < 0.5
            self._world.spawn(self.name, self._govern())

    def _govern(self) -> Steps:
        while self._counts:
            told = yield from self._look()
            self._let_in()
            if told is not None:
                wanted = self._wanted(told)
                if wanted is None:
                    self._be_done()
                elif isinstance(wanted, ChangeVoters):
                    result = yield from self.ask([self._endpoint_of(told)], wanted)
                    self._refusals += any(isinstance(each, Refusal) for each in result)
                    if self._refusals > TRIES:
                        self._chosen, self._refusals = [], 0
            yield Sleep(self._chance.choice([5, 30, 200]) * MS)
        for name in list(self._announcing):
            self._end_announcing(name)

    def _be_done(self) -> None:
        """Some of the removed members end; others run on, and are informed."""
        del self._counts[0]
        self._chosen, self._drops_leader = [], self._chance.random() < 0.5
        for each in self._members.configuration.retired:
            if self._is_there(_name(each)) and self._chance.random() < 0.5:
                self._members.remove(each.name)

    # The members that are to vote.

    def _wanted(self, told: QuorumTold) -> ChangeVoters | str | None:
        """None: it is done. A text: it cannot be asked for yet."""
        voters = [each for each in told.members if each.role == "voter"]
        if told.is_joint:
            return "a change is under way"
        is_heard = {each.member for each in told.members if each.is_heard}
        gone = [each.member for each in voters if not self._is_there(each.member)]
        if len(voters) == self._counts[0] and not gone:
            return None
        able = [each.member for each in told.members if each.member in is_heard]
        if any(member not in able for member in self._chosen) or len(self._chosen) != self._counts[0]:
            self._chosen = []
            if len(able) < self._counts[0]:
                self._make_one_more(able)
                return "too few are there"
            old = [each.member for each in voters if each.member in is_heard]
            new = [member for member in able if member not in old]
            last = told.member if self._drops_leader and len(old) > 1 else None
            self._chosen = sorted(old, key=lambda each: each == last)[: self._counts[0]]
            self._chosen += new[: self._counts[0] - len(self._chosen)]
        # Disks are lost often here; who accepts no risk waits for an hour (tests/quorum/test_replacing.py).
        return ChangeVoters(told.configuration, tuple(self._chosen), accepts_risk=True)

    def _is_there(self, member: MemberName) -> bool:
        return (
            self._members.exists(member.name) and self._members.incarnation(member.name) == member.incarnation
        )

    def _make_one_more(self, able: list[MemberName]) -> None:
        """In an empty directory; one that was taken out gives its place."""
        members, names = self._members, [each.name for each in able]
        free = [name for name in members.names if name not in names and not members.exists(name)]
        retired = [each.name for each in members.configuration.retired if self._is_there(_name(each))]
        for name in free or retired:
            if members.exists(name):
                members.remove(name)
            members.make(name)
            members.start(name)
            return

    # Letting in.

    def _let_in(self) -> None:
        """Every process that is in no configuration announces itself to the leader."""
        for name in self._members.names:
            node = self._world.nodes.get(name)
            nonce = node.store.boot.nonce if node is not None and not node.is_known else b""
            if self._announcing.get(name, b"") == nonce:
                continue
            self._end_announcing(name)
            if nonce and node is not None and node.log.raft.member not in self._members.configuration.retired:
                self._announce(name, node)

    def _announce(self, name: str, node: MetadataNode) -> None:
        own, world = node.store.identity, self._world
        self._announcing[name] = node.store.boot.nonce
        joins = JoinAsLearner(
            CLUSTER_TOKEN,
            MemberName(own.name, own.incarnation),
            node.store.boot.nonce,
            tuple(node.endpoints),
            world.level_of(name),
        )
        place = f"{self.name}-{name}"
        transport = world.network.transport(
            Identity("client", own.name, world.fresh(), CLUSTER_TOKEN), place=place
        )
        announcing = Announcing(transport, self._members.endpoints, joins, lambda: node.is_known)
        world.enter(place, "client", _Beside(transport, announcing))

    def _end_announcing(self, name: str) -> None:
        if self._announcing.pop(name, b""):
            self._world.leave(f"{self.name}-{name}")

    # Asking.

    def _look(self) -> Generator[Sleep, Any, QuorumTold | None]:
        """The leader's answer about its quorum; None: no leader answers."""
        endpoints = [f"sim://{name}" for name in self._members.names if name in self._world.nodes]
        results = yield from self.ask(endpoints, QuorumStatus())
        leading = [each for each in results if isinstance(each, QuorumTold) and each.role == "leader"]
        return max(leading, key=lambda each: each.term, default=None)

    def _endpoint_of(self, told: QuorumTold) -> str:
        """Where the member that answered listens. A member that is all of its quorum has a place of its own name."""
        name = told.member.name
        return f"sim://{name if name in self._members else METADATA}"

    def ask(self, endpoints: Sequence[str], operation: Operation) -> Generator[Sleep, Any, list[Result]]:
        """The answers within a while; at once when all have answered, or failed."""
        world, results = self._world, list[Result]()
        if not endpoints:
            return results
        transport = world.network.transport(Identity("client", self.name, world.fresh(), b""))
        inquiry = Inquiry(transport, endpoints, operation, lambda endpoint, result: results.append(result))
        world.enter(self.name, "client", _Beside(transport, inquiry))
        until_ns = world.now_ns + ANSWERED_NS
        while not inquiry.has_asked_all and world.now_ns < until_ns:
            yield Sleep(LOOK_NS)
        world.leave(self.name)
        return results


def _name(member: Any) -> MemberName:
    return MemberName(member.name, member.incarnation)
