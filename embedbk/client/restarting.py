"""Restart the nodes of a cluster one after another, with appends going on: what `embedbk cluster rolling` and
`Cluster.restart_all` do (P11.3).

`repair/restarting.py` decides the order, which node may stop, and which is whole again. This looks at the cluster for
it, hands leadership over, runs the command, and keeps the time. A lock keeps two runs from stopping two nodes at once;
where it is lost nothing more is stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.client.client import Client
from embedbk.client.locking import Locking
from embedbk.client.runtime import Runtime
from embedbk.client.stopping import StopFacts, look_for_stops, verdict_on, with_lacking
from embedbk.client.waiting import Moved, run_blocking
from embedbk.codec.quorum_messages import MemberName, TransferLeadership
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from embedbk.host.signal import Signal
from embedbk.quorum import Quorum
from embedbk.repair.restarting import (
    BookieSeen,
    ClusterLooked,
    ClusterSeen,
    CommandEnded,
    Effect,
    HandOver,
    LookAgain,
    LookFailed,
    MemberSeen,
    NodeSeen,
    Restart,
    Restarting,
    RestartOptions,
    RestartPlan,
    RestartReport,
    RunEnded,
    Say,
    plan_of,
)

__all__ = ["LOCK", "RunCommand", "look_at_nodes", "plan_now", "restart_nodes"]

LOCK = "embedbk.restarting"  # Held by a run, so that there is one at a time.
LOOK_S = 0.5  # Between two looks at a node that comes back,
LEAVE_LOOK_S = 2.0  # and at one that may not stop yet, for which all ledgers are listed.
HAND_OVER_S = 5.0  # For the leader's answer; the next look shows whether it still leads.
_ELSEWHERE = "asyncio.to_thread(...)"

# name, kind ("bookie", "member" or "both"), seconds -> why the node was not restarted; empty: it was.
RunCommand = Callable[[str, str, float], str]
# The leader's endpoints, the member that is to lead, whether links to other machines are allowed.
LetLead = Callable[[Sequence[str], MemberName, bool], None]


async def look_at_nodes(runtime: Runtime, asks: Sequence[str] | None) -> ClusterSeen:
    """asks: of whom it is asked whether they may stop; None: of all.

    Raises MetadataUnavailable: nothing is known just now.
    """
    what = "looking at the nodes"
    facts = await look_for_stops(runtime, what, with_ledgers=asks is None or bool(asks))
    nodes = {name: _node(name, facts) for name in sorted(_names(facts))}
    asked = [name for name in (nodes if asks is None else asks) if name in nodes]
    facts = await with_lacking(runtime, facts, asked, what)
    verdicts = {name: verdict_on(facts, [name], is_for_good=False) for name in asked}
    return ClusterSeen(nodes, facts.told.commit_index, verdicts)


def _names(facts: StopFacts) -> set[str]:
    return {*facts.bookies, *(each.member.name for each in facts.told.members)}


def _node(name: str, facts: StopFacts) -> NodeSeen:
    bookie = None
    if name in facts.bookies:
        there = facts.registered.get(name)
        bookie = BookieSeen(False)
        if there is not None:
            is_embedded = any(each.startswith("local://") for each in there.endpoints)
            bookie = BookieSeen(True, there.start, there.is_writable, there.why, is_embedded)
    # If two have one name (one lost its disk and learns again), take the one that is heard.
    known = [each for each in facts.told.members if each.member.name == name]
    best = max(known, key=lambda each: (each.is_heard, each.role == "voter"), default=None)
    if best is None:
        return NodeSeen(name, bookie)
    is_leader = best.member == facts.told.member
    member = MemberSeen(
        best.member, best.role, best.is_heard, best.index, best.start, is_leader, tuple(best.endpoints)
    )
    return NodeSeen(name, bookie, member)


def plan_now(client: Client, options: RestartOptions) -> RestartPlan:
    """The order as of now. Raises UsageError: see `plan_of`; MetadataUnavailable: nothing is known."""
    seen = run_blocking(look_at_nodes(client._runtime, None), _ELSEWHERE)
    return plan_of(seen, options)


async def _rest(seconds: float) -> None:
    await Moved(Signal(), lambda: False, seconds)


def hand_over(endpoints: Sequence[str], to: MemberName, allow_non_loopback: bool) -> None:
    """Ask the leader, at these endpoints, to let another lead. What became of it the next look shows.

    Raises EmbedbkError: it refuses, or does not answer."""
    Quorum(endpoints, HAND_OVER_S, allow_non_loopback).ask(endpoints, TransferLeadership(to))


def restart_nodes(
    client: Client,
    run: RunCommand,
    options: RestartOptions,
    say: Callable[[str, str], None],
    *,
    let_lead: LetLead = hand_over,
) -> RestartReport:
    """Restart them, and report how far it came. say(node, text): progress, for people. let_lead: asks a leader to hand
    over.

    Raises:
        UsageError: it cannot begin; nothing was changed. Another run is under way, or none may stop now, for example.
        MetadataUnavailable: nobody answers, so it cannot begin.
    """
    lock = client.lock(LOCK, value=client._runtime.owner().encode())
    try:
        lock.acquire(0)
    except OperationTimeout:
        holder = lock.holder()
        who = holder.value.decode("utf-8", "replace") if holder is not None else "another client"
        raise UsageError(
            f"{who} restarts the nodes of this cluster just now; nothing was changed",
            hint="let it end; the lock of a run that was killed is free when its session ends",
        ) from None
    try:
        return _Run(client, run, options, say, let_lead, lock._locking).report()
    finally:
        lock._locking.let_go()


class _Run:
    def __init__(
        self,
        client: Client,
        run: RunCommand,
        options: RestartOptions,
        say: Callable[[str, str], None],
        let_lead: LetLead,
        lock: Locking,
    ) -> None:
        self._runtime, self._run, self._options, self._say = client._runtime, run, options, say
        self._let_lead, self._lock = let_lead, lock
        self._machine = Restarting(options)
        self._leader: tuple[str, ...] = ()  # Where it is reached.
        self._has_handed_over = False  # Since the last look.
        self._report: RestartReport | None = None

    def report(self) -> RestartReport:
        seen = self._look(None)
        effects = self._machine.step(ClusterLooked(self._now_ns(), seen))
        try:
            while self._report is None:
                effects = [more for effect in effects for more in self._carry_out(effect)]
        except KeyboardInterrupt:
            return self._machine.interrupted("it was interrupted")._replace(is_interrupted=True)
        return self._report

    def _carry_out(self, effect: Effect) -> list[Effect]:
        match effect:
            case Say(name, text):
                self._say(name, text)
            case HandOver(to):
                self._hand_over(to)
            case LookAgain(asks, at_once):
                self._rest(asks, at_once)
                return self._look_again(asks)
            case Restart(name, kind):
                return self._restart(name, kind)
            case RunEnded(report):
                self._report = report
        return []

    def _look(self, asks: Sequence[str] | None) -> ClusterSeen:
        seen = run_blocking(look_at_nodes(self._runtime, asks), _ELSEWHERE)
        leading = [each.member for each in seen.nodes.values() if each.member is not None and each.is_leader]
        self._leader = leading[0].endpoints if leading else ()
        return seen

    def _rest(self, asks: Sequence[str], at_once: bool) -> None:
        if not at_once:
            rest_s = LEAVE_LOOK_S if asks and not self._has_handed_over else LOOK_S
            run_blocking(_rest(rest_s), _ELSEWHERE)
        self._has_handed_over = False

    def _look_again(self, asks: Sequence[str]) -> list[Effect]:
        hold = self._lock.hold
        if asks and (hold is None or hold.ended):
            why = hold.ended if hold is not None else "it was released"
            self._report = self._machine.interrupted(f"its lock is lost, and another run may begin: {why}")
            return []
        try:
            seen = self._look(asks)
        except EmbedbkError as unknown:
            return self._machine.step(LookFailed(self._now_ns(), str(unknown.args[0])))
        if asks and not self._lock.is_held:
            return self._machine.step(LookFailed(self._now_ns(), "whether its lock is held cannot be told"))
        return self._machine.step(ClusterLooked(self._now_ns(), seen))

    def _hand_over(self, to: MemberName) -> None:
        """What became of it the next look shows."""
        self._has_handed_over = True
        try:
            self._let_lead(self._leader, to, self._runtime.settings.allow_non_loopback)
        except EmbedbkError as refused:
            self._say(to.name, f"does not take over: {refused.args[0]}")

    def _restart(self, name: str, kind: str) -> list[Effect]:
        trouble = self._run(name, kind, self._options.back_ns / 1e9)
        return self._machine.step(CommandEnded(self._now_ns(), trouble))

    def _now_ns(self) -> int:
        return self._runtime.now_ns()
