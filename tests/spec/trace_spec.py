"""The rules P2 to P5 as states and allowed steps over the events of a run; a step that is not allowed is told.

Plain tuples and dicts, and nothing of the product: what a quorum, a write set or a verdict is, is said here again.
Richer than `ledger_spec`: striping, the double quorum while an ensemble change is in flight, seats and their holders,
several recoverers and rounds, disks that forget what was not synced. Liveness is not judged, nor what readers get.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["NotAllowed", "TraceSpec"]

Member = tuple[str, bytes]
Metadata = dict[str, Any]


class NotAllowed(AssertionError):
    """A step that no rule allows."""


@dataclass
class Writing:
    """What the rules let one writer know."""

    ledger: int
    metadata: Metadata  # As published, as far as it has heard.
    lap: int = -1
    lac: int = -1
    is_failed: bool = False
    numbers: dict[int, int] = field(default_factory=dict)  # Seat -> number of its present holding.
    parts: dict[Any, list[int]] = field(default_factory=dict)  # What was asked under which name -> entry ids.
    acked: dict[int, set[int]] = field(default_factory=dict)  # Entry -> numbers of holdings that have it.
    proposals: list[Metadata] = field(default_factory=list)  # Sent, and not settled (P2.2).
    starts: set[int] = field(default_factory=set)  # First entries of the change that is being tried.
    is_outdated: bool = False  # A placement that the newest of these compared has changed (P10.6).


@dataclass
class Recovering:
    """What the rules let one recovery know, since its present round began."""

    ledger: int
    base: Metadata
    round: int
    fenced: set[int] = field(default_factory=set)
    start: int = -1
    is_reading: bool = False
    found: dict[int, bytes] = field(default_factory=dict)
    absent: dict[int, list[tuple[int, int]]] = field(default_factory=dict)  # Seat -> ranges.
    parts: dict[Any, list[int]] = field(default_factory=dict)
    acked: dict[tuple[Member, int], set[int]] = field(default_factory=dict)  # (holder, entry) -> numbers.


@dataclass
class Storing:
    """What one bookie has on its disk, and has told."""

    incarnation: bytes
    durable: int
    entries: dict[int, dict[int, tuple[bytes, int]]] = field(default_factory=dict)  # (bytes, token)
    fences: dict[int, int] = field(default_factory=dict)  # Ledger -> token.
    # Fenced before a start by a record that the journal has not: an entry log that was flushed before may have it.
    flushed: set[int] = field(default_factory=set)
    # Ids that are fenced as those of ledgers that are gone (P7.3, P7.4): first, last, token; 0: as `flushed`.
    gone: list[tuple[int, int, int]] = field(default_factory=list)
    told: set[int] = field(default_factory=set)  # Ledgers whose fence it has confirmed.
    damaged: set[tuple[int, int]] = field(default_factory=set)

    def is_fenced(self, ledger: int) -> bool:
        """Durably, as far as can be told."""
        if ledger in self.flushed or self.fences.get(ledger, self.durable + 1) <= self.durable:
            return True
        return any(first <= ledger <= last and token <= self.durable for first, last, token in self.gone)


class TraceSpec:
    """Takes the events of one run in their order; raises NotAllowed at the first that breaks a rule."""

    def __init__(self) -> None:
        self.metadata: dict[int, Metadata] = {}
        self.born: dict[int, Metadata] = {}
        self.recovered_from: dict[int, Metadata] = {}  # As it was when recovery began.
        self.highest: dict[int, int] = {}  # Ledger -> highest entry told to its application (ACKED).
        self.writers: dict[int, Writing] = {}
        self.recoverers: dict[int, Recovering] = {}
        self.bookies: dict[str, Storing] = {}
        self.counts: dict[str, int] = {}
        self.events = 0
        self._takers: dict[str, Callable[..., None]] = {
            name.replace("_", " ").strip(): getattr(self, name)
            for name in dir(self)
            if name.startswith("_") and not name.startswith("__") and callable(getattr(self, name))
        }

    def take(self, event: tuple[Any, ...]) -> None:
        self.events += 1
        self.counts[event[0]] = self.counts.get(event[0], 0) + 1
        self._takers[event[0]](*event[1:])

    # Metadata (P2.3, P2.4, P5.3).

    def _metadata(self, ledger: int, new: Metadata) -> None:
        old = self.metadata.get(ledger)
        self.metadata[ledger] = new
        if new["state"] == "GONE":
            return
        ensembles = [ensemble for _, ensemble in new["fragments"]]
        starts = [first for first, _ in new["fragments"]]
        allow(starts[0] == 0 and starts == sorted(set(starts)), "P2.4: first entries rise from 0", starts)
        for ensemble in ensembles:
            names = {name for name, _ in ensemble}
            seats = 0 if new["freed"] else new["E"]
            allow(
                len(ensemble) == len(names) == seats,
                "P2.4: E distinct bookies, or none of a freed ledger",
                ensemble,
            )
        if old is None or old["state"] == "GONE":
            self.born[ledger] = new
            return
        step = (old["state"], new["state"])
        allowed = {
            ("OPEN", "OPEN"), ("OPEN", "IN_RECOVERY"), ("OPEN", "CLOSED"), ("IN_RECOVERY", "CLOSED"),
            ("CLOSED", "CLOSED"), ("IN_RECOVERY", "IN_RECOVERY"),
        }  # fmt: skip
        allow(step in allowed, "P2.3: no such transition", step)
        allow(not new["freed"] or old["state"] == "CLOSED", "P8.14: freed, and it was not closed", old, new)
        if new["freed"] or old["freed"]:  # Freed, or back with bookies.
            allow(
                starts == [first for first, _ in old["fragments"]],
                "P2.3: a first entry of a freed ledger moved",
                old,
                new,
            )
        if step == ("IN_RECOVERY", "IN_RECOVERY"):
            # Only who moves seats of fragments that nobody writes to (P11.2) publishes this.
            allow(starts == [first for first, _ in old["fragments"]], "P2.3: recovery's fragments", old, new)
            allow(new["fragments"][-1] == old["fragments"][-1], "P2.3: recovery's last fragment", old, new)
            self.recovered_from[ledger] = new
        if old["state"] == "CLOSED":
            allow(new["last"] == old["last"], "P2.3: the end of a closed ledger changed", old, new)
        if step == ("OPEN", "IN_RECOVERY"):
            allow(new["fragments"] == old["fragments"], "P5.2a: marking changes nothing else", old, new)
            self.recovered_from[ledger] = new
        if new["state"] == "CLOSED":
            acked = self.highest.get(ledger, -1)
            allow(acked <= new["last"], "P5.3: acknowledged beyond the end", acked, new["last"])

    # Writers (P3, P4, P5.1).

    def _writer(self, handle: int, ledger: int) -> Writing:
        if handle not in self.writers:
            self.writers[handle] = Writing(ledger, self.born[ledger])
        return self.writers[handle]

    def _seal(self, handle: int, ledger: int, last: int) -> None:
        writer = self._writer(handle, ledger)
        allow(last > writer.lap, "P3.1: ids are dense and rise", last, writer.lap)
        allow(not writer.is_failed, "P3.6: a failed handle takes no more")
        writer.lap = last

    def _ask_add(
        self, handle: int, role: str, ledger: int, member: Member, asked: Any, entries: dict[int, bytes]
    ) -> None:
        number, _, _, recovery = asked
        if role == "recovery":
            self._write_back(handle, member, asked, entries)
            return
        writer = self._writer(handle, ledger)
        allow(not recovery, "P5.2d: a writer's add passes no fence")
        allow(not writer.is_failed, "P3.6: a failed handle sends no more")
        ensemble = writer.metadata["fragments"][-1][1]
        allow(member in ensemble, "P4.4: sent to a bookie without a seat", member, ensemble)
        seat = ensemble.index(member)
        allow(
            writer.numbers.setdefault(seat, number) == number,
            "P3.8: another number for the same holding", seat, number, writer.numbers,
        )  # fmt: skip
        for entry_id in entries:
            allow(seat in write_set(entry_id, writer.metadata), "P3.1: outside the write set", entry_id, seat)
        writer.parts[asked] = list(entries)

    def _hear_add(self, handle: int, member: Member, asked: Any, status: str) -> None:
        number = asked[0]
        recoverer = self.recoverers.get(handle)
        if recoverer is not None:
            if status == "OK":
                for entry_id in recoverer.parts.get(asked, ()):
                    recoverer.acked.setdefault((member, entry_id), set()).add(number)
            return
        writer = self.writers.get(handle)
        if writer is None or asked not in writer.parts:
            return  # To another handle's request: counts for nothing (P3.8).
        if status == "OK":
            for entry_id in writer.parts[asked]:
                writer.acked.setdefault(entry_id, set()).add(number)
        elif status == "FENCED" and number in writer.numbers.values():
            writer.is_failed = True  # P3.6, from this very step on.

    def _confirm(self, handle: int, lac: int) -> None:
        writer = self.writers[handle]
        allow(not writer.is_failed, "P3.6: the LAC of a failed handle is frozen", lac)
        allow(writer.lac < lac <= writer.lap, "P3.3: the LAC rises, within what was sent", writer.lac, lac)
        for entry_id in range(writer.lac + 1, lac + 1):
            self._judge_done(writer, entry_id)
        writer.lac = lac
        self.highest[writer.ledger] = max(self.highest.get(writer.ledger, -1), lac)
        metadata = self.metadata[writer.ledger]
        if metadata["state"] == "CLOSED":
            allow(lac <= metadata["last"], "P5.3: acknowledged beyond the end", lac, metadata["last"])

    def _judge_done(self, writer: Writing, entry_id: int) -> None:
        """Qa of the write set in the published ensemble, and in every proposed one that is not settled."""
        published = writer.metadata["fragments"][-1][1]
        acked = writer.acked.get(entry_id, set())
        seats = [s for s in write_set(entry_id, writer.metadata) if writer.numbers.get(s) in acked]
        need = writer.metadata["Qa"]
        allow(len(seats) >= need, "P3.3: fewer than Qa seated members have it", entry_id, seats)
        for proposal in writer.proposals:
            first, ensemble = proposal["fragments"][-1]
            if entry_id >= first:
                both = [seat for seat in seats if ensemble[seat] == published[seat]]
                allow(len(both) >= need, "P4.2: not also Qa of the proposed ensemble", entry_id, both)

    def _fail(self, handle: int) -> None:
        if handle in self.writers:
            self.writers[handle].is_failed = True

    def _cas(self, handle: int, role: str, tag: Any, ledger: int, proposed: Metadata) -> None:
        if role == "recovery":
            self._recovery_publishes(handle, ledger, proposed)
            return
        writer = self._writer(handle, ledger)
        if proposed["state"] == "CLOSED":
            allow(
                proposed["last"] == writer.lac,
                "P5.1: a writer closes at its LAC",
                proposed["last"],
                writer.lac,
            )
            return
        allow(proposed["state"] == "OPEN", "P2.3: a writer changes or closes", proposed)
        first = proposed["fragments"][-1][0]
        last_first = writer.metadata["fragments"][-1][0]
        if not writer.starts:
            writer.starts.add(writer.lac + 1)
        allow(first in writer.starts, "P4.1: a new fragment starts at LAC+1", first, writer.starts)
        kept = writer.metadata["fragments"][:-1] if first == last_first else writer.metadata["fragments"]
        allow(
            [f for f, _ in proposed["fragments"][:-1]] == [f for f, _ in kept],
            "P4.1: only the last fragment changes", kept, proposed["fragments"],
        )  # fmt: skip
        writer.proposals.append(proposed)
        writer.is_outdated = False

    def _cas_refused(self, handle: int, is_change: bool) -> None:
        """P2.2: not run, and never will be. One before it may be still."""
        writer = self.writers.get(handle)
        if writer is not None and is_change and writer.proposals:
            writer.proposals.pop()

    def _placement_changed(self, handle: int) -> None:
        """P10.6: what compared it, and has not landed by now, never does; whether it has, the ledger's key says."""
        if handle in self.writers:
            self.writers[handle].is_outdated = True

    def _cas_told(self, handle: int, tag: Any, is_done: bool) -> None:
        writer = self.writers.get(handle)
        if writer is not None and is_done and writer.proposals:
            self._seat(writer, writer.proposals[-1])

    def _metadata_read(self, handle: int, revision: int, found: Metadata) -> None:
        writer = self.writers.get(handle)
        if writer is None:
            return
        if found["state"] == "OPEN":
            published = self.metadata[writer.ledger]
            if found["fragments"] != writer.metadata["fragments"]:
                self._seat(writer, found)
            elif published["fragments"] != found["fragments"]:
                return  # Settled meanwhile, and this answer is older: it proves nothing.
            elif writer.is_outdated:
                writer.proposals.clear()
                writer.starts.clear()
        elif writer.proposals:
            writer.is_failed = True  # P4.3.

    def _seat(self, writer: Writing, metadata: Metadata) -> None:
        """Published: from now on the holders are these; who lost a seat counts no more (P4.4)."""
        before, after = writer.metadata["fragments"][-1][1], metadata["fragments"][-1][1]
        for seat, (old, new) in enumerate(zip(before, after, strict=True)):
            if old != new:
                writer.numbers.pop(seat, None)
        writer.metadata = metadata
        writer.proposals.clear()
        writer.starts.clear()

    # Recovery (P5.2).

    def _ask_fence(self, handle: int, ledger: int, member: Member, number: int) -> None:
        recoverer = self.recoverers.get(handle)
        if recoverer is None or recoverer.round != number:
            base = self.recovered_from.get(ledger)
            allow(base is not None, "P5.2a: fenced before IN_RECOVERY is published", ledger)
            assert base is not None
            recoverer = self.recoverers[handle] = Recovering(ledger, base, number)
            recoverer.start = base["fragments"][-1][0] - 1
        allow(member in recoverer.base["fragments"][-1][1], "P5.2b: not of the last fragment", member)

    def _hear_fence(self, handle: int, member: Member, number: int, status: str, lac: int) -> None:
        recoverer = self.recoverers.get(handle)
        if recoverer is None or recoverer.round != number or recoverer.is_reading or status != "OK":
            return
        recoverer.fenced.add(recoverer.base["fragments"][-1][1].index(member))
        recoverer.start = max(recoverer.start, lac)

    def _ask_read(self, handle: int, ledger: int, member: Member, number: int, asked: Any) -> None:
        first, _, fence = asked
        recoverer = self.recoverers[handle]
        base, ensemble = recoverer.base, recoverer.base["fragments"][-1][1]
        allow(fence, "P5.2c: a recovery read fences")
        if not recoverer.is_reading:
            recoverer.is_reading = True
            for residue in range(base["E"]):
                covered = recoverer.fenced & set(write_set(residue, base))
                allow(len(covered) >= coverage(base), "P5.2b: no coverage of a write set", residue, covered)
            allow(
                first == recoverer.start + 1,
                "P5.2b: reads begin after the highest LAC",
                first,
                recoverer.start,
            )
        allow(first > recoverer.start, "P5.2c: reads go forward", first, recoverer.start)
        allow(member in ensemble, "P5.2c: read outside the ensemble it began with (I26)", member)
        seat = ensemble.index(member)
        allow(seat in write_set(first, base), "P5.2c: read outside the write set", first, seat)

    def _hear_read(
        self, handle: int, member: Member, number: int, found: dict[int, bytes], absent: list[tuple[int, int]]
    ) -> None:
        recoverer = self.recoverers.get(handle)
        if recoverer is None or recoverer.round != number:
            return
        seat = recoverer.base["fragments"][-1][1].index(member)
        recoverer.absent.setdefault(seat, []).extend(absent)
        for entry_id, entry in found.items():
            recoverer.found.setdefault(entry_id, entry)

    def _write_back(self, handle: int, member: Member, asked: Any, entries: dict[int, bytes]) -> None:
        recoverer = self.recoverers[handle]
        allow(asked[3], "P5.2d: a write-back has the recovery flag")
        for entry_id, entry in entries.items():
            allow(
                recoverer.found.get(entry_id) == entry, "P5.2d: written back is not what was read", entry_id
            )
        recoverer.parts[asked] = list(entries)

    def _recovery_publishes(self, handle: int, ledger: int, proposed: Metadata) -> None:
        if proposed["state"] == "IN_RECOVERY":
            return  # P5.2a; that it changes nothing else is judged when it lands.
        allow(proposed["state"] == "CLOSED", "P5.2d: recovery publishes only at its close", proposed["state"])
        allow(handle in self.recoverers, "P5.2b: closed without a fence")
        recoverer = self.recoverers[handle]
        base, last = recoverer.base, proposed["last"]
        allow(
            recoverer.is_reading and last >= recoverer.start, "P5.2e: the end is at or above the start", last
        )
        negative = [
            seat
            for seat in write_set(last + 1, base)
            if any(low <= last + 1 <= high for low, high in recoverer.absent.get(seat, ()))
        ]
        allow(
            len(negative) >= coverage(base),
            "P5.2c: too few say that there is nothing more",
            last + 1,
            negative,
        )
        for entry_id in range(recoverer.start + 1, last + 1):
            ensemble = next(e for first, e in reversed(proposed["fragments"]) if first <= entry_id)
            held = [
                seat for seat in write_set(entry_id, base) if recoverer.acked.get((ensemble[seat], entry_id))
            ]
            allow(len(held) >= base["Qa"], "P5.2d: closed before it is written back", entry_id, held)

    # Bookies (P3.2, P3.4, P5.2f, P7.1, P7.3).

    def _started(self, name: str, incarnation: bytes, last_token: int) -> None:
        known = self.bookies.get(name)
        if known is not None and known.incarnation == b"":
            known.incarnation = incarnation
        if known is None or known.incarnation != incarnation:
            self.bookies[name] = Storing(incarnation, last_token)
            return
        known.durable = last_token
        for held in known.entries.values():
            for entry_id in [e for e, (_, token) in held.items() if token > last_token]:
                del held[entry_id]
        known.flushed |= {ledger for ledger, token in known.fences.items() if token > last_token}
        known.fences = {ledger: token for ledger, token in known.fences.items() if token <= last_token}
        known.gone = [(*ids, token if token <= last_token else 0) for *ids, token in known.gone]
        allow(all(map(known.is_fenced, known.told)), "P7.3: a confirmed fence is forgotten", name)

    def _at(self, name: str) -> Storing:
        """Who watches a world after its bookies were started has not heard of their start."""
        return self.bookies.setdefault(name, Storing(b"", 0))

    def _disk_lost(self, name: str) -> None:
        self.bookies.pop(name, None)

    def _disk_doubted(self, name: str) -> None:
        """An older copy may stand in its place: the fences that it told may be in no record of it (P7.4, D13)."""
        if name in self.bookies:
            self.bookies[name].told.clear()

    def _damaged(self, name: str, ledger: int, entry_id: int) -> None:
        self._at(name).damaged.add((ledger, entry_id))

    def _durable(self, name: str, token: int) -> None:
        self._at(name).durable = max(self._at(name).durable, token)

    def _store(self, name: str, token: int, ledger: int, entries: dict[int, bytes]) -> None:
        bookie = self._at(name)
        held = bookie.entries.setdefault(ledger, {})
        for entry_id, entry in entries.items():
            if entry_id in held and (ledger, entry_id) not in bookie.damaged:
                allow(held[entry_id][0] == entry, "P3.4c: another payload overwrites", name, entry_id)
            bookie.damaged.discard((ledger, entry_id))
            held[entry_id] = (entry, token)

    def _set_fence(self, name: str, token: int, ledger: int) -> None:
        self._at(name).fences.setdefault(ledger, token)

    def _fence_what_is_gone(self, name: str, token: int, first: int, last: int) -> None:
        self._at(name).gone.append((first, last, token))

    def _decide_to_drop(self, name: str, ledger: int) -> None:
        metadata = self.metadata.get(ledger, {"state": "GONE"})
        may_go = metadata["state"] == "GONE" or (metadata["state"] == "CLOSED" and not _gives(metadata, name))
        allow(may_go, "P7.7: dropped what the metadata give to it", name, ledger)

    def _drop(self, name: str, ledger: int) -> None:
        self._at(name).entries.pop(ledger, None)

    def _answer_add(
        self, name: str, ledger: int, status: str, recovery: bool, entries: dict[int, bytes]
    ) -> None:
        bookie = self._at(name)
        if status == "RECEIVED":
            allow(recovery or ledger not in bookie.told, "P3.4a: received behind a fence", name, ledger)
        if status != "OK":
            return
        allow(
            recovery or ledger not in bookie.told,
            "P3.4a: a normal add behind a confirmed fence",
            name,
            ledger,
        )
        held = bookie.entries.get(ledger, {})
        for entry_id, entry in entries.items():
            stored, token = held.get(entry_id, (None, 0))
            allow(stored == entry, "P3.2: acknowledged what it does not hold", name, entry_id)
            allow(token <= bookie.durable, "P3.2: acknowledged before it is durable", name, entry_id)

    def _answer_fence(self, name: str, ledger: int, status: str) -> None:
        if status == "OK":
            self._tells_fence(name, ledger)

    def _answer_read(self, name: str, ledger: int, fence: bool) -> None:
        if fence:
            self._tells_fence(name, ledger)

    def _look_up(self, name: str, ledger: int, absent: list[tuple[int, int]]) -> None:
        bookie = self._at(name)
        for entry_id, (_, token) in bookie.entries.get(ledger, {}).items():
            # One that never became durable was never acknowledged (a journal that failed).
            said_no = token <= bookie.durable and any(low <= entry_id <= high for low, high in absent)
            allow(not said_no, "P7.1: said no of an entry it holds", name, ledger, entry_id)

    def _tells_fence(self, name: str, ledger: int) -> None:
        bookie = self._at(name)
        allow(bookie.is_fenced(ledger), "P5.2f: told before the fence is durable", name, ledger)
        bookie.told.add(ledger)


def _gives(metadata: Metadata, name: str) -> bool:
    """Whether CLOSED metadata give an entry to this bookie. A repair that publishes it for a fragment without entries
    copies nothing to it, and so may do it between the bookie's look and its decision: nothing is dropped by that."""
    fragments = metadata["fragments"]
    ends = [first - 1 for first, _ in fragments[1:]] + [metadata["last"]]
    return any(
        first <= end and any(name == member[0] for member in ensemble)
        for (first, ensemble), end in zip(fragments, ends, strict=True)
    )


def write_set(entry_id: int, metadata: Metadata) -> list[int]:
    return [(entry_id + i) % metadata["E"] for i in range(metadata["Qw"])]


def coverage(metadata: Metadata) -> int:
    return int(metadata["Qw"] - metadata["Qa"] + 1)


def allow(is_so: object, rule: str, *told: object) -> None:
    if not is_so:
        raise NotAllowed(f"{rule}: {', '.join(map(repr, told))}")
