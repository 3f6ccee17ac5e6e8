"""Restarting the nodes of a cluster one after another, by what the metadata shows (P11.3).

Decides the order, whether the next node may stop now, whom a leader hands over to, and whether a node is whole again.
A pure machine: `client/restarting.py` looks at the cluster, runs the command and keeps the time; the simulator drives
the same machine beside writers.

    waiting ──(it may stop)──▶ [handing over] ──▶ restarted ──(its command ended)──▶ returning ──(whole)──▶ the next

Bookies go first, by name, then members that follow, and the leader last; a node that is both goes among the members,
once. Nothing goes on behind a node that failed: whatever is wrong with it, the next may be needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from embedbk.codec.quorum_messages import MemberName
from embedbk.errors import UsageError
from embedbk.repair.stopping import StopVerdict

__all__ = [
    "BookieSeen",
    "ClusterSeen",
    "CommandEnded",
    "RunEnded",
    "HandOver",
    "LookAgain",
    "LookFailed",
    "ClusterLooked",
    "MemberSeen",
    "NodeSeen",
    "Restart",
    "RestartOptions",
    "RestartPlan",
    "RestartReport",
    "Restarting",
    "Say",
    "plan_of",
    "why_not_whole",
]

BOOKIE, MEMBER, BOTH = "bookie", "member", "both"
# Where an older build does not say which start a process is: a node that was not restarted yet is noticed as away
# within this time, which is longer than any election base.
UNTOLD_NS = 15_000_000_000

_AGAIN = "begin again: what was done is restarted once more, unless --only names the rest"


class BookieSeen(NamedTuple):
    """start: a random number of its process; empty: not known. why: it is not writable."""

    is_there: bool
    start: bytes = b""
    is_writable: bool = False
    why: str = ""
    is_embedded: bool = False


class MemberSeen(NamedTuple):
    """As the leader tells. start: a random number of its process; empty: not known."""

    name: MemberName
    role: str
    is_heard: bool
    log_end: int
    start: bytes = b""
    is_leader: bool = False
    endpoints: tuple[str, ...] = ()


class NodeSeen(NamedTuple):
    name: str
    bookie: BookieSeen | None = None
    member: MemberSeen | None = None

    @property
    def kind(self) -> str:
        if self.bookie is None:
            return MEMBER
        return BOOKIE if self.member is None else BOTH

    @property
    def is_there(self) -> bool:
        return (self.bookie is None or self.bookie.is_there) and (self.member is None or self.member.is_heard)

    @property
    def is_leader(self) -> bool:
        return self.member is not None and self.member.is_leader


class ClusterSeen(NamedTuple):
    """verdicts: of the nodes that were asked about, whether each alone may stop."""

    nodes: Mapping[str, NodeSeen]
    commit_index: int
    verdicts: Mapping[str, StopVerdict]


class RestartOptions(NamedTuple):
    """only: these nodes; empty: all that are there. accepts_outage: also the only voter of the metadata."""

    wait_ns: int
    back_ns: int
    only: tuple[str, ...] = ()
    accepts_outage: bool = False


class RestartPlan(NamedTuple):
    """The order as of now, each with its reason; who is left out, and why; who may not stop now, and why."""

    order: tuple[tuple[str, str], ...]
    skipped: tuple[tuple[str, str], ...]
    not_now: tuple[tuple[str, str], ...]


class RestartReport(NamedTuple):
    """done: restarted, and whole again, in that order. failed: the node at which it ended, and why; empty: at none.
    hint: what to do. left: not touched. skipped: pairs (name, why)."""

    done: tuple[str, ...]
    failed: str = ""
    why: str = ""
    hint: str = ""
    left: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    is_interrupted: bool = False

    @property
    def is_done(self) -> bool:
        return not self.failed


# Events.


class ClusterLooked(NamedTuple):
    now_ns: int
    seen: ClusterSeen


class LookFailed(NamedTuple):
    """Nothing is known: nobody answered, or the leader changed meanwhile."""

    now_ns: int
    why: str


class CommandEnded(NamedTuple):
    """trouble: why the command is not done; empty: it is."""

    now_ns: int
    trouble: str


Event = ClusterLooked | LookFailed | CommandEnded

# Effects.


class LookAgain(NamedTuple):
    """asks: of whom it is asked whether they may stop. at_once: else soon."""

    asks: tuple[str, ...]
    at_once: bool = False


class HandOver(NamedTuple):
    to: MemberName


class Restart(NamedTuple):
    """Run the command; its end is the next event."""

    name: str
    kind: str


class Say(NamedTuple):
    """For people."""

    name: str
    text: str


class RunEnded(NamedTuple):
    report: RestartReport


Effect = LookAgain | HandOver | Restart | Say | RunEnded


def plan_of(seen: ClusterSeen, options: RestartOptions) -> RestartPlan:
    """The verdicts of all nodes must be in `seen`.

    Raises UsageError: a node that is not there; or an embedded cluster; nothing was changed.
    """
    for name in options.only:
        if name not in seen.nodes:
            raise UsageError(
                f"the cluster has no bookie and no metadata member {name!r}; nothing was changed",
                hint=f"it has {', '.join(seen.nodes) or 'none'}",
            )
    if any(each.bookie is not None and each.bookie.is_embedded for each in seen.nodes.values()):
        raise UsageError(
            "the bookies are embedded in one process, which is restarted as a whole; nothing was changed",
            hint="close it and open it again",
        )
    wanted = [each for each in seen.nodes.values() if (each.name in options.only or not options.only)]
    planned = [each for each in wanted if each.is_there or each.name in options.only]
    skipped = [
        (each.name, "away: start it, or name it with --only") for each in wanted if each not in planned
    ]
    order = sorted(planned, key=_rank)
    verdicts = [(each.name, _why_not_now(each, seen, options)) for each in order]
    return RestartPlan(
        tuple((each.name, _reason(each)) for each in order),
        tuple(skipped),
        tuple((name, why) for name, why in verdicts if why),
    )


def _rank(node: NodeSeen) -> tuple[bool, bool, bool, str]:
    return node.is_there, node.member is not None, node.is_leader, node.name


def _reason(node: NodeSeen) -> str:
    if not node.is_there:
        return f"{node.kind}, away: it needs no leave"
    if node.is_leader:
        return f"{node.kind}, leads: it hands over, and goes last"
    return f"{node.kind}: bookies go first" if node.member is None else f"{node.kind}, follows"


def _why_not_now(node: NodeSeen, seen: ClusterSeen, options: RestartOptions) -> str:
    """Empty: it may stop."""
    if not node.is_there:
        return ""  # It has stopped.
    if options.accepts_outage and node.kind == MEMBER and _is_only_voter(node, seen):
        return ""
    verdict = seen.verdicts.get(node.name)
    if verdict is None:
        return "it was not asked"
    return "; ".join(verdict.reasons)


def _is_only_voter(node: NodeSeen, seen: ClusterSeen) -> bool:
    voters = [
        each.name
        for each in seen.nodes.values()
        if each.member is not None and each.member.role in ("voter", "leaving")
    ]
    return voters == [node.name]


def why_not_whole(was: NodeSeen, now: NodeSeen | None, commit_index: int, since_ns: int) -> str:
    """Why a node is not again what it was; empty: it is.

    was: as it was before. commit_index: up to where a member's log must be durable. since_ns: how long ago its command
    ended.
    """
    if now is None:
        return "the cluster has it no more"
    if was.bookie is not None:
        if now.bookie is None or not now.bookie.is_there:
            return "it is not registered"
        started = was.bookie.start, now.bookie.start, was.bookie.is_there
        if not _is_anew(*started, since_ns):
            return "it is registered as before: nobody has restarted it"
        if was.bookie.is_writable and not now.bookie.is_writable:
            return f"it takes no entries: {now.bookie.why or 'it does not say why'}"
    if was.member is not None:
        if now.member is None:
            return "it is no member any more"
        if not now.member.is_heard:
            return "the leader does not hear it"
        if not _is_anew(was.member.start, now.member.start, was.member.is_heard, since_ns):
            return "it is heard as before: nobody has restarted it"
        if was.member.role == "voter" and now.member.role != "voter":
            return f"it voted, and is a {now.member.role} now"
        if now.member.log_end < commit_index:
            return f"its log ends at {now.member.log_end}, and {commit_index} is committed"
    return ""


def _is_anew(was: bytes, now: bytes, was_there: bool, since_ns: int) -> bool:
    if not was_there:
        return True
    if was and now:
        return was != now
    return since_ns >= UNTOLD_NS


class Restarting:
    """One run over a cluster. Its first event is a `ClusterLooked` with the verdicts of all nodes."""

    def __init__(self, options: RestartOptions) -> None:
        self._options = options
        self._done: list[str] = []
        self._left: list[str] = []
        self._skipped: tuple[tuple[str, str], ...] = ()
        self._current = ""
        self._was: NodeSeen | None = None  # The current node before its command; None: it waits for leave.
        self._since_ns = 0  # When it began to wait, its command was begun, or its command ended.
        self._due_ns = 0
        self._target: int | None = None  # Committed when the member was heard again.
        self._told = ""
        self._begun = False
        self._handlers: dict[type[Any], Callable[[Any], list[Effect]]] = {
            ClusterLooked: self._on_looked,
            LookFailed: self._on_look_failed,
            CommandEnded: self._on_command_ended,
        }

    def step(self, event: Event) -> list[Effect]:
        """Raises UsageError at the first event: the run cannot begin, and nothing was changed."""
        return self._handlers[type(event)](event)

    def interrupted(self, why: str) -> RestartReport:
        """How far it came."""
        if self._was is None:
            hint = f"nothing was done to it; {_AGAIN}"
            return self._report(self._current, why, hint)
        return self._report(self._current, why, self._look_at_it())

    def _on_looked(self, event: ClusterLooked) -> list[Effect]:
        if not self._begun:
            return self._begin(event)
        return self._wait(event) if self._was is None else self._return(event)

    def _begin(self, event: ClusterLooked) -> list[Effect]:
        plan = plan_of(event.seen, self._options)
        if not plan.order:
            raise UsageError("no node is there to be restarted; nothing was changed")
        for node in (event.seen.nodes[name] for name, _ in plan.order):
            if _is_only_voter(node, event.seen) and _why_not_now(node, event.seen, self._options):
                raise UsageError(
                    f"{node.name} is the only voter of the metadata: while it restarts nothing is created, opened or "
                    "closed; nothing was changed",
                    hint="name the others with --only; or accept that (--accept-outage); or let more members join",
                )
        if len(plan.not_now) == len(plan.order):
            why = "; ".join(f"{name}: {why}" for name, why in plan.not_now[:3])
            raise UsageError(
                f"none of them may stop now: {why}; nothing was changed",
                hint="embedbk health says what is missing, and what is done about it",
            )
        self._begun, self._skipped = True, plan.skipped
        self._left = [name for name, _ in plan.order]
        return self._next(event)

    def _next(self, event: ClusterLooked) -> list[Effect]:
        """The order is made of who leads now."""
        gone = [name for name in self._left if name not in event.seen.nodes]
        if gone:
            return self._stop(gone[0], "the cluster has it no more", "look at embedbk bookie list")
        if not self._left:
            return [RunEnded(self._report())]
        self._left.sort(key=lambda name: _rank(event.seen.nodes[name]))
        self._current, self._was, self._told, self._target = self._left[0], None, "", None
        self._since_ns, self._due_ns = event.now_ns, event.now_ns + self._options.wait_ns
        if self._current in event.seen.verdicts:
            return self._wait(event)
        return [LookAgain((self._current,), at_once=True)]

    def _wait(self, event: ClusterLooked) -> list[Effect]:
        """For leave; a leader then hands over, and is asked about again."""
        node = event.seen.nodes.get(self._current)
        if node is None:
            return self._stop(self._current, "the cluster has it no more", "look at embedbk bookie list")
        why = _why_not_now(node, event.seen, self._options)
        effects: list[Effect] = []
        if not why and node.is_leader and not _is_only_voter(node, event.seen):
            heir = self._heir(node, event.seen)
            why = f"it leads, and {heir.name if heir else 'nobody'} can take over"
            effects = [HandOver(heir)] if heir is not None else []
        if not why:
            self._was, self._since_ns = node, event.now_ns
            return [Say(node.name, "restarts"), Restart(node.name, node.kind)]
        return [*effects, *self._later(event.now_ns, why, (self._current,))]

    def _heir(self, leader: NodeSeen, seen: ClusterSeen) -> MemberName | None:
        """A voter that is heard; one that was restarted before others, as it leads no second time then."""
        able = [
            (each.name in self._done, each.member.log_end, each.name, each.member.name)
            for each in seen.nodes.values()
            if each.member is not None and each.member.role == "voter" and each.member.is_heard
            if each.name != leader.name
        ]
        return max(able)[3] if able else None

    def _on_look_failed(self, event: LookFailed) -> list[Effect]:
        assert self._begun
        return self._later(event.now_ns, event.why, (self._current,) if self._was is None else ())

    def _on_command_ended(self, event: CommandEnded) -> list[Effect]:
        assert self._was is not None
        if event.trouble:
            return self._stop(self._current, event.trouble, self._look_at_it())
        self._since_ns, self._due_ns = event.now_ns, event.now_ns + self._options.back_ns
        return [LookAgain(())]

    def _return(self, event: ClusterLooked) -> list[Effect]:
        assert self._was is not None
        node = event.seen.nodes.get(self._current)
        since_ns = event.now_ns - self._since_ns
        why = why_not_whole(self._was, node, self._target or 0, since_ns)
        if not why and self._target is None:
            # What is committed grows while it is waited for: its log is to have what there was when it came back.
            self._target = event.seen.commit_index
            why = why_not_whole(self._was, node, self._target, since_ns)
        if why:
            return self._later(event.now_ns, why, ())
        name = self._current
        self._done.append(name)
        self._left.remove(name)
        return [Say(name, "is whole again"), *self._next(event)]

    def _later(self, now_ns: int, why: str, asks: tuple[str, ...]) -> list[Effect]:
        """Look again, or give up at the time limit."""
        if now_ns >= self._due_ns:
            if self._was is None:
                what = f"it may not stop within {self._options.wait_ns / 1e9:g} s: {why}"
                return self._stop(self._current, what, f"nothing was done to it; when that is over, {_AGAIN}")
            what = f"it is not whole within {self._options.back_ns / 1e9:g} s: {why}"
            return self._stop(self._current, what, self._look_at_it())
        is_news, self._told = why != self._told, why
        said: list[Effect] = [Say(self._current, f"waits: {why}")] if is_news else []
        return [*said, LookAgain(asks)]

    def _look_at_it(self) -> str:
        return f"look at {self._current} first, and start it; then {_AGAIN}"

    def _stop(self, name: str, why: str, hint: str) -> list[Effect]:
        return [RunEnded(self._report(name, why, hint))]

    def _report(self, failed: str = "", why: str = "", hint: str = "") -> RestartReport:
        left: Sequence[str] = [name for name in self._left if name != failed]
        return RestartReport(tuple(self._done), failed, why, hint, tuple(left), self._skipped)
