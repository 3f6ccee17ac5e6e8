"""Whether nodes of a cluster may stop or be lost: what both faces ask for (P11.3).

Decides which of the named nodes are bookies and which are metadata members, and whether a metadata quorum would be
left. `repair/stopping.py` decides which copies of ledgers would be missing, by the metadata, and by what bookies say
that they hold (P11.4): one that was restarted may still lack what it missed. Where a ledger is written to they are
asked up to the entry that they knew to be acknowledged, and who lacks some is asked again a little later: what is on
its way to a third copy is no reason. The answer holds as of when it was asked; nothing is changed, and no node is
kept from anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from embedbk.client.bookie_reports import registered_now
from embedbk.client.repair_state import ASKED_AT_ONCE, ask_bookies
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.quorum_messages import QuorumStatus, QuorumTold
from embedbk.codec.registration import COOKIES_PREFIX, Registration
from embedbk.core.known_lacs import KnownLacs
from embedbk.core.pausing import Pausing
from embedbk.errors import MetadataUnavailable, PeerError, UsageError
from embedbk.ids import Member
from embedbk.metadata.levels import LEVEL_OF_HOLDINGS
from embedbk.metadata.quorum import Policy, sizes_of
from embedbk.repair.stopping import StopVerdict, as_if_closed, ledgers_of, ledgers_without, seats_lacking

__all__ = ["StopFacts", "look_for_stops", "may_stop", "verdict_on", "with_lacking"]

SHOWN_MAX = 1_000
# What was acknowledged before has come to all its bookies by then, or they missed it.
_ARRIVES_NS = 1_000_000_000


class StopFacts(NamedTuple):
    """What the metadata shows, of which verdicts follow. told: by the leader. bookies: all that the cluster has.
    ledgers: their metadata by key, as far as they were asked for. lacking: of ledgers the bookies that are there and
    lack entries, or did not say."""

    told: QuorumTold
    bookies: frozenset[str]
    registered: Mapping[str, Registration]
    ledgers: Mapping[str, bytes]
    lacking: Mapping[int, Collection[str]] = MappingProxyType({})


async def may_stop(runtime: Runtime, nodes: Sequence[str], *, is_for_good: bool) -> StopVerdict:
    """Whether these bookies and metadata members, by their names, may stop at once. is_for_good: with their disks.

    Raises:
        UsageError: the cluster has no such node; or none is named.
        MetadataUnavailable: no member answers, so nothing is known.
    """
    is_several = isinstance(nodes, Collection) and not isinstance(nodes, str)
    if not is_several or not all(isinstance(each, str) for each in nodes):
        raise UsageError(f"{nodes!r}: names of nodes are allowed, each by itself", hint="one alone is [name]")
    if not nodes:
        raise UsageError("which nodes? none is named")
    what = f"whether {', '.join(nodes)} may stop"
    facts = await with_lacking(runtime, await look_for_stops(runtime, what), nodes, what)
    return verdict_on(facts, nodes, is_for_good=is_for_good)


async def with_lacking(runtime: Runtime, facts: StopFacts, nodes: Collection[str], what: str) -> StopFacts:
    """With what bookies say that they hold of ledgers that name one of these nodes. Below the level of that question
    only metadata tells (P10.8)."""
    found = ledgers_of(facts.ledgers, facts.bookies.intersection(nodes))
    if not found or not runtime.has_level(LEVEL_OF_HOLDINGS):
        return facts
    there = _there(facts)
    written = {number: each for number, each in found.items() if not each.is_closed}
    for begin in range(0, len(written), ASKED_AT_ONCE):
        part = dict(list(written.items())[begin : begin + ASKED_AT_ONCE])
        lacs = await runtime.run(KnownLacs(part, there), what)
        found.update(as_if_closed(part, lacs))
    lacking = seats_lacking(await ask_bookies(runtime, found, there, what), there)
    late = {number: found[number] for number in lacking.keys() & written.keys()}
    if late:
        await runtime.run(Pausing(_ARRIVES_NS), what)
        lacking = {number: each for number, each in lacking.items() if number not in late}
        lacking.update(seats_lacking(await ask_bookies(runtime, late, there, what), there))
    return facts._replace(lacking=lacking)


def _there(facts: StopFacts) -> frozenset[Member]:
    return frozenset(Member(bookie_id, each.incarnation) for bookie_id, each in facts.registered.items())


async def look_for_stops(runtime: Runtime, what: str, *, with_ledgers: bool = True) -> StopFacts:
    """Raises MetadataUnavailable: no member answers, or the leader changed meanwhile."""
    runtime.check()
    cookies = await runtime.list_keys(COOKIES_PREFIX, what)
    told = await runtime.ask(QuorumStatus(), what)
    if not isinstance(told, QuorumTold):
        raise PeerError(f"{what}: the metadata member answered with a {type(told).__name__}")
    if told.role != "leader":
        raise MetadataUnavailable(
            f"{what}: another metadata member has come to lead just now", hint="ask again"
        )
    registered = await registered_now(runtime, what)
    bookies = {each.key.removeprefix(COOKIES_PREFIX) for each in cookies} | set(registered)
    listed = await runtime.list_keys(LEDGERS_PREFIX, what) if with_ledgers else []
    ledgers = {each.key: each.value or b"" for each in listed}
    return StopFacts(told, frozenset(bookies), registered, ledgers)


def verdict_on(facts: StopFacts, nodes: Sequence[str], *, is_for_good: bool) -> StopVerdict:
    """Raises UsageError: the cluster has no such node."""
    members = {each.member.name for each in facts.told.members}
    for name in nodes:
        if name not in facts.bookies and name not in members:
            raise UsageError(
                f"the cluster has no bookie and no metadata member {name!r}",
                hint="embedbk bookie list and embedbk quorum status name them",
            )
    stopping = frozenset(nodes)
    ids, reasons = ledgers_without(
        facts.ledgers, _there(facts), stopping, is_for_good=is_for_good, lacking=facts.lacking
    )
    reasons = [*_without_quorum(facts.told, stopping), *reasons]
    return StopVerdict(tuple(nodes), not reasons, tuple(reasons), tuple(ids[:SHOWN_MAX]))


def _without_quorum(told: QuorumTold, stopping: Collection[str]) -> list[str]:
    """Why the metadata would have no quorum. The two halves of a change under way are not counted here: wait for its
    end."""
    voters = [each for each in told.members if each.role in ("voter", "leaving")]
    going = sorted(each.member.name for each in voters if each.member.name in stopping)
    if not going:
        return []
    if told.is_joint:
        return [
            f"the metadata members change just now, and {', '.join(going)} vote: ask again when that is done"
        ]
    sizes = sizes_of(Policy(told.policy), len(voters))
    needed = max(sizes.commit, sizes.elect)
    left = [each.member.name for each in voters if each.is_heard and each.member.name not in stopping]
    if len(left) >= needed:
        return []
    return [
        f"the metadata quorum would be lost: of {len(voters)} voters {needed} are needed, and {len(left)} would be left"
    ]
