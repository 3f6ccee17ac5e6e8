"""Ask the metadata members of a cluster how they stand, and have them change: from outside, without a session.

For operators' commands and for processes that start members. Decides which members are asked, which of them leads, and
when a change is asked for again. `cli/quorum.py` shows it to people.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from embedbk.codec.metadata_messages import Acknowledged, NotLeader, Operation, Refusal, Result
from embedbk.codec.quorum_messages import (
    AskMet,
    BeginFormation,
    ChangeVoters,
    CutSnapshot,
    FormationPromised,
    MemberName,
    MetTold,
    PrepareFormation,
    QuorumStatus,
    QuorumTold,
    ReadSnapshot,
    SnapshotBytes,
    SnapshotCut,
)
from embedbk.errors import EmbedbkError, MetadataUnavailable, OperationTimeout, UsageError
from embedbk.host.inquiring import Inquiry
from embedbk.host.loop import Loop, clock_ns
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.governing import IS_FORMING, IS_MEMBER
from embedbk.ports.links import Identity
from embedbk.transports import open_transport

__all__ = [
    "ENDPOINTS_FILE",
    "Quorum",
    "Seen",
    "all_vote",
    "also_lost",
    "listened_at",
    "takes_place",
    "why_no_leader",
]

ENDPOINTS_FILE = "ENDPOINTS"  # In a member's directory: where it was reached last, an address on each line.

_Answer = TypeVar("_Answer")

LOOK_S = 1.0  # How long members that do not answer are waited for, when one has answered.
REST_S = 0.05  # Pause before asking again.
SECOND = 1_000_000_000


class Seen(NamedTuple):
    """The members' answers. leader: the member of the highest term that reports itself as leader; None: none does."""

    told: dict[MemberName, QuorumTold]
    leader: QuorumTold | None
    missed: dict[str, str]  # Endpoint -> why it did not answer.

    @property
    def best(self) -> QuorumTold:
        """The leader, or the member with the newest configuration."""
        return self.leader or max(
            self.told.values(), key=lambda each: (each.configuration, each.commit_index)
        )


class Quorum:
    """Asks the members of one cluster."""

    def __init__(self, endpoints: Sequence[str], timeout_s: float, allow_non_loopback: bool = False) -> None:
        """Raises UsageError: timeout_s is no time."""
        # Also what is more nanoseconds than a float holds.
        if not math.isfinite(timeout_s) or not math.isfinite(timeout_s * SECOND):
            raise UsageError(f"a time-out of {timeout_s} s: a number of seconds is wanted", hint="as in 30")
        self._endpoints = list(dict.fromkeys(endpoints))
        self._until_ns = clock_ns() + int(timeout_s * SECOND)
        self._allows = allow_non_loopback

    def look(self) -> Seen:
        """Ask every member that any of them names.

        Raises:
            MetadataUnavailable: none answers.
            UsageError: those that answer belong to different clusters.
        """
        told: dict[MemberName, QuorumTold] = {}
        missed: dict[str, str] = {}

        def heard(endpoint: str, result: Result) -> None:
            missed.pop(endpoint, None)
            if isinstance(result, QuorumTold):
                told[result.member] = result
                inquiry.also(each for member in result.members for each in member.endpoints)

        def miss(endpoint: str, reason: str) -> None:
            missed[endpoint] = reason

        inquiry = self._inquiry(self._endpoints, QuorumStatus(), heard, miss)
        self._run(inquiry, lambda: inquiry.has_asked_all, LOOK_S, lambda: bool(told))
        if not told:
            why = (
                "; ".join(f"{endpoint}: {reason}" for endpoint, reason in missed.items()) or "nobody answered"
            )
            raise MetadataUnavailable(
                f"no metadata member answers: {why}",
                hint="start one, or give the address of one that runs with --at",
            )
        tokens = {each.cluster_token for each in told.values() if each.cluster_token}
        if len(tokens) > 1:
            names = "; ".join(f"{each.member.name} to {each.cluster_token.hex()}" for each in told.values())
            raise UsageError(
                f"those that answered belong to different clusters: {names}", hint="name members of one only"
            )
        leading = [each for each in told.values() if each.role == "leader"]
        return Seen(told, max(leading, key=lambda each: each.term, default=None), missed)

    def look_for_leader(self) -> tuple[Seen, QuorumTold]:
        """Raises OperationTimeout: no member led in time."""
        while True:
            seen = self.look()
            if seen.leader is not None:
                return seen, seen.leader
            if clock_ns() >= self._until_ns:
                raise OperationTimeout(
                    f"no member leads: {why_no_leader(seen)}", hint="start the members that are missing"
                )
            time.sleep(REST_S)

    def change(self, wanted: Callable[[QuorumTold], Operation | None], what: str) -> Seen:
        """Send the leader the request that `wanted` makes of its status, again while the leader refuses it for now,
        until `wanted` returns None: the state is reached.

        Raises:
            UsageError: the request is refused for good.
            OperationTimeout: the state was not reached in time; the message says why.
        """
        trouble = ""
        while True:
            try:
                seen, leader = self.look_for_leader()
            except EmbedbkError:  # The last look ran out of time; an earlier refusal is more useful.
                if not trouble or clock_ns() < self._until_ns:
                    raise
                raise self._too_late(what, trouble) from None
            operation = wanted(leader)
            if operation is None:
                return seen
            own = next(each for each in leader.members if each.member == leader.member)
            # One that is gone is not asked for ever: another may lead by now.
            result = self.ask(own.endpoints or self._endpoints, operation, is_patient=False)
            if result is None:
                # At the end of the time there is none for an answer: an earlier refusal is more useful.
                trouble = trouble or f"{leader.member.name}, which led, did not answer"
            elif isinstance(result, Refusal):
                trouble = result.text
                if result.code != "REFUSED":
                    raise UsageError(f"{what}: {trouble}")
            if clock_ns() >= self._until_ns:
                raise self._too_late(what, trouble or "nobody led")
            if not isinstance(result, Acknowledged):
                time.sleep(REST_S)

    @staticmethod
    def _too_late(what: str, trouble: str) -> OperationTimeout:
        return OperationTimeout(
            f"{what} was not done in time: {trouble}",
            hint="embedbk quorum status shows how the members stand; a larger --timeout-s waits longer",
        )

    def form(self) -> None:
        """Have the blank members at these addresses begin a cluster, the first of them as its founder: all of them or
        none (RAFT.md, 11). Ends when each may receive the log.

        Raises:
            UsageError: one of them is no blank member, or takes part in another formation; nothing was begun.
            OperationTimeout: one did not answer, and nothing was begun; or the last step is not done yet.
        """
        prepare = PrepareFormation(os.urandom(16), self._endpoints[0], tuple(self._endpoints))
        promised: dict[str, str] = {}
        missed: dict[str, str] = {}
        busy: dict[
            str, str
        ] = {}  # Members that promised another formation; it may have failed, and promises end.
        refused: list[str] = []

        def heard(endpoint: str, result: Result) -> None:
            busy.pop(endpoint, None)
            if isinstance(result, Refusal) and result.code == IS_FORMING:
                busy[endpoint] = result.text
            elif isinstance(result, FormationPromised) and result.nonce == prepare.nonce:
                promised[endpoint] = result.name
            else:
                text = result.text if isinstance(result, Refusal) else "is no blank metadata member"
                refused.append(f"{endpoint}: {text}")

        inquiry = self._inquiry(self._endpoints, prepare, heard, missed.__setitem__)
        self._run(inquiry, lambda: bool(refused) or len(promised) == len(self._endpoints))
        refused += [f"{endpoint}: {text}" for endpoint, text in busy.items()]
        names = sorted(promised.values())
        if not refused and len(set(names)) < len(names):
            refused.append(f"two members have one name, of {', '.join(names)}")
        if refused:
            raise UsageError(
                f"no cluster is formed, nothing was begun: {'; '.join(refused)}",
                hint="name blank members only, each with a name of its own (embedbk metadata --join)",
            )
        silent = [endpoint for endpoint in self._endpoints if endpoint not in promised]
        if silent:
            why = "; ".join(f"{endpoint}: {missed.get(endpoint, 'no answer')}" for endpoint in silent)
            raise OperationTimeout(
                f"no cluster is formed, nothing was begun: all must answer, and {why}",
                hint="start those members, or name only those that run",
            )
        result = self.ask([prepare.founder], BeginFormation(prepare.nonce))
        if (
            isinstance(result, Refusal) and result.code != IS_MEMBER
        ):  # It answers as a member: it began, and that answer was lost.
            raise UsageError(f"no cluster is formed, nothing was begun: {result.text}", hint="try again")
        while True:
            with contextlib.suppress(MetadataUnavailable):
                leader = self.look_for_leader()[1]
                if {each.member.name for each in leader.members} >= set(names):
                    return
            if clock_ns() >= self._until_ns:
                raise OperationTimeout(
                    f"{promised[prepare.founder]} was told to begin the cluster, and not all have joined it yet",
                    hint="embedbk quorum status shows who has; embedbk quorum join lets them vote when all have",
                )
            time.sleep(REST_S)

    def take_snapshot(self, write: Callable[[bytes], object]) -> SnapshotCut:
        """Have the leader cut a snapshot of all that is committed, and write its file, piece by piece.

        Raises:
            UsageError: it is refused; the message says why.
            OperationTimeout: no member led, or the file was not complete in time; what was written is a part of it.
        """
        leader = self.look_for_leader()[1]
        own = next(each for each in leader.members if each.member == leader.member)
        where = own.endpoints or self._endpoints
        cut = self._answer(where, CutSnapshot(), SnapshotCut)
        offset = 0
        while offset < cut.file_bytes:
            data = self._answer(where, ReadSnapshot(cut.index, cut.term, offset), SnapshotBytes).data
            if not data:
                raise UsageError(f"the snapshot's file ends at byte {offset}, and {cut.file_bytes} were told")
            write(data)
            offset += len(data)
        return cut

    def _answer(self, endpoints: Sequence[str], operation: Operation, kind: type[_Answer]) -> _Answer:
        result = self.ask(endpoints, operation)
        if isinstance(result, kind):
            return result
        if isinstance(result, Refusal):
            raise UsageError(f"the leader refuses: {result.text}")
        if isinstance(result, NotLeader):
            raise UsageError("another member leads since it was asked", hint="say the command again")
        raise OperationTimeout(
            "no answer came in time", hint="say the command again; a larger --timeout-s waits longer"
        )

    def hear_met(self) -> tuple[dict[str, MetTold], dict[str, str]]:
        """Which metadata each of these bookies and members knows, and why others did not answer, by endpoint. All are
        asked until each has answered, or time is over."""
        met: dict[str, MetTold] = {}
        missed: dict[str, str] = {}

        def heard(endpoint: str, result: Result) -> None:
            missed.pop(endpoint, None)
            if isinstance(result, MetTold):
                met[endpoint] = result
            else:
                missed[endpoint] = "it has no word for what it knows"

        if self._endpoints:
            inquiry = self._inquiry(self._endpoints, AskMet(), heard, missed.__setitem__)
            self._run(inquiry, lambda: inquiry.has_asked_all)
        silent = (each for each in self._endpoints if each not in met)
        return met, {endpoint: missed.get(endpoint, "no answer") for endpoint in silent}

    def tell(self, operation: Operation, kind: type[_Answer]) -> _Answer:
        """The leader's answer. Raises UsageError: it refuses; OperationTimeout: none came in time."""
        leader = self.look_for_leader()[1]
        own = next(each for each in leader.members if each.member == leader.member)
        return self._answer(own.endpoints or self._endpoints, operation, kind)

    def ask(
        self, endpoints: Sequence[str], operation: Operation, *, is_patient: bool = True
    ) -> Result | None:
        """The first answer of these endpoints; None: none came in time, or, if not is_patient, each was tried once in
        vain: so time is left for others."""
        results: list[Result] = []
        inquiry = self._inquiry(endpoints, operation, lambda _, result: results.append(result))
        self._run(inquiry, lambda: bool(results) or (not is_patient and inquiry.has_asked_all))
        return results[0] if results else None

    def _inquiry(
        self,
        endpoints: Sequence[str],
        operation: Operation,
        heard: Callable[[str, Result], None],
        missed: Callable[[str, str], None] = lambda _endpoint, _reason: None,
    ) -> Inquiry:
        identity = Identity("client", "quorum", os.urandom(INCARNATION_BYTES), b"")
        transport = open_transport(endpoints[0], identity, allow_non_loopback=self._allows)
        return Inquiry(transport, endpoints, operation, heard, missed)

    def _run(
        self,
        inquiry: Inquiry,
        is_over: Callable[[], bool],
        enough_s: float = 0.0,
        is_enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Run the inquiry until it is complete or time is over; or until it suffices, and the rest had some time."""
        loop, until_ns = Loop(), self._until_ns
        loop.add(inquiry)
        try:
            while not is_over() and clock_ns() < until_ns:
                if is_enough():
                    until_ns = min(until_ns, clock_ns() + int(enough_s * SECOND))
                    is_enough = _never
                inquiry.until_ns = until_ns
                loop.turn()
        finally:
            loop.stop()


def _never() -> bool:
    return False


def all_vote(leader: QuorumTold, policy: str = "", *, allows_even: bool = False) -> ChangeVoters | None:
    """The change by which every learner votes, also in place of a voter of its name; None: there is none to make."""
    learners = [each.member for each in leader.members if each.role == "learner"]
    if not learners and not leader.is_joint:
        return None
    names = {each.name for each in learners}
    stay = [each.member for each in leader.members if each.role == "voter" and each.member.name not in names]
    return ChangeVoters(leader.configuration, (*stay, *learners), policy, allows_even)


def takes_place(leader: QuorumTold, name: str, *, accepts_risk: bool = False) -> ChangeVoters | None:
    """The change by which the learner of this name votes in the place of the voter of this name, which lost its disk;
    None: no such learner is there."""
    learner = next(
        (each for each in leader.members if each.role == "learner" and each.member.name == name), None
    )
    if learner is None:
        return None
    voters = [each.member for each in leader.members if each.role == "voter"]
    if all(each.name != name for each in voters):
        raise UsageError(
            f"{name} learns, and no voter of that name is there to be replaced",
            hint="embedbk quorum join lets it vote beside the others",
        )
    stay = (each for each in voters if each.name != name)
    return ChangeVoters(leader.configuration, (*stay, learner.member), "", True, accepts_risk)


def also_lost(seen: Seen, name: str) -> str:
    """The other members that hold no data, or may have lost some, of those that answered; empty: none."""
    blank = [told.member.name for told in seen.told.values() if told.role == "blank"]
    doubting = [told.member.name for told in seen.told.values() if told.has_doubt]
    texts = [f"{each} holds no data" for each in blank if each != name]
    texts += [f"{each} may have lost something" for each in doubting if each != name]
    return ", ".join(texts)


def why_no_leader(seen: Seen) -> str:
    best = seen.best
    blank = [told.member.name for told in seen.told.values() if told.role == "blank"]
    if len(blank) == len(seen.told):
        names = ", ".join(sorted(blank))
        return f"{names} {'holds' if len(blank) == 1 else 'hold'} no data"
    there = [each.name for each in seen.told]
    silent = [
        each.member.name for each in best.members if each.role == "voter" and each.member not in seen.told
    ]
    text = f"{', '.join(there)} answered" + "".join(f", {name} holds no data" for name in blank)
    return f"{text}; not {', '.join(silent)}" if silent else f"{text}; an election is under way"


def listened_at(directory: Path) -> list[str]:
    """Where the member of this directory listened last, or those of the directories in it; empty: nowhere."""
    found = [directory / ENDPOINTS_FILE, *sorted(directory.glob(f"*/{ENDPOINTS_FILE}"))]
    # One on each line: a path of a local socket may have blanks, and any letters.
    notes = [path.read_text(encoding="utf-8") for path in found if path.is_file()]
    return [line for note in notes for line in note.split("\n") if line]
