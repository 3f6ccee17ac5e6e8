"""Whether what processes were told of a log fits one log (I99), by what they wrote down alone (`log_events`).

Decides what the log was (`WholeLog`: what its last owner reads, and in front of that what its consumers saw before it
was truncated), and whether every append and every takeover fits it. Whether what readers saw fits it, `log_readings`
decides.

Of an append without an outcome it is not known whether it was done: it stands there once or not at all. An append by a
producer may have been asked for several times, also by several processes; all of that is one append.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from embedbk.errors import UsageError
from embedbk.testing.log_events import AppendAsked, AppendTold, LogEvent, LogTaken
from embedbk.testing.log_readings import WholeLog, check_readings
from embedbk.testing.violation import Violation

__all__ = ["check_log"]

NOWHERE = -1
PRODUCER_ENTRIES_MAX = 10_000  # So many entries a new owner reads back, to know what producers appended.
LATE_NS = 1 << 62  # Behind every time.


class _Append(Struct):
    """One entry that somebody appends, however often it is asked for."""

    text: str
    process: str
    tenure: int
    asked_ns: int  # First.
    asked: int = 0  # So often.
    refused: int = 0
    acknowledged_ns: int | None = None  # First.
    told_ns: int = 0  # Last.
    without_outcome: int = 0  # Calls.
    # At which it was acknowledged, each with the offset where one was told.
    places: dict[tuple[int, int], int | None] = {}
    epoch: int = 0
    fate: str = ""
    found: list[int] = []  # The offsets at which the log has it.

    @property
    def is_refused(self) -> bool:
        return self.refused == self.asked

    @property
    def stands(self) -> int:
        return self.found[0] if self.found else NOWHERE

    def __str__(self) -> str:
        return f"{self.text} of {self.process}, tenure {self.tenure}"


def check_log(told: Mapping[str, Sequence[LogEvent]]) -> Counter[str]:
    """Check the histories of all processes; how often what was met.

    Raises:
        Violation: no log explains what they were told; it names the promise and what breaks it.
        UsageError: these are no histories: two calls append one text, or nobody read the whole log in the end.
    """
    log = WholeLog(told)
    history = _Appends(told)
    history.find_in(log)
    history.check_outcomes(log)
    history.check_calls()
    history.check_tenures()
    history.check_real_time()
    history.check_epochs()
    history.check_order_of_epochs()
    log.check_times()
    met = history.met
    taken = [(each.at_ns, each.first_offset) for each in history.taken.values()]
    own = defaultdict[str, list[tuple[int, int]]](list)
    for append in history.appends.values():
        if append.acknowledged_ns is not None and append.stands >= 0:
            own[append.process].append((append.acknowledged_ns, append.stands))
    met += check_readings(told, log, taken, own)
    return met


class _Appends:
    def __init__(self, told: Mapping[str, Sequence[LogEvent]]) -> None:
        self.appends: dict[str, _Append] = {}
        # By process and call; in the order of the call's texts.
        self.calls: dict[tuple[str, int], list[_Append]] = {}
        self.taken: dict[tuple[str, int, int], LogTaken] = {}  # By process, tenure and epoch.
        self.met: Counter[str] = Counter()
        for process, events in told.items():
            for event in events:
                match event:
                    case AppendAsked():
                        self._ask(process, event)
                    case LogTaken():
                        self.taken[process, event.tenure, event.epoch] = event
        for process, events in told.items():
            for event in events:
                if isinstance(event, AppendTold):
                    self._tell(process, event)

    def _ask(self, process: str, event: AppendAsked) -> None:
        call = self.calls[process, event.call] = []
        for text in event.texts:
            append = self.appends.get(text)
            if append is None:
                append = _Append(text, process, event.tenure, event.asked_ns)
                self.appends[text] = append
            elif not event.has_producer:
                raise UsageError(f"two calls append {text!r}: nobody could tell them apart")
            if event.asked_ns < append.asked_ns:
                append.process, append.tenure, append.asked_ns = process, event.tenure, event.asked_ns
            append.asked += 1
            append.without_outcome += 1
            call.append(append)

    def _tell(self, process: str, event: AppendTold) -> None:
        call = self.calls[process, event.call]
        self.met[event.outcome] += len(call)
        for number, append in enumerate(call):
            if event.outcome in ("survived", "lost"):
                append.fate = event.outcome
                continue
            append.without_outcome -= 1
            append.told_ns = max(append.told_ns, event.at_ns)
            if event.outcome == "refused":
                append.refused += 1
            elif event.outcome == "acknowledged":
                self._acknowledge(append, event, number)

    def _acknowledge(self, append: _Append, event: AppendTold, number: int) -> None:
        place = event.places[number]
        self.met["acknowledged again at its place"] += place in append.places
        if event.offsets or place not in append.places:
            append.places[place] = event.offsets[number] if event.offsets else None
        append.epoch = event.epoch
        if append.acknowledged_ns is None or event.at_ns < append.acknowledged_ns:
            append.acknowledged_ns = event.at_ns

    def find_in(self, log: WholeLog) -> None:
        """What stands in the log was appended by somebody, and stands there once. A producer's entry is appended again
        where the one before it is truncated, or so far in front that no new owner reads it back."""
        for offset, placed in enumerate(log.entries):
            append = self.appends.get(placed.text)
            if append is None:
                raise Violation("I99", f"offset {offset} has {placed.text!r}, which nobody appended")
            if append.found:
                until_ns = LATE_NS if append.without_outcome else append.told_ns
                is_gone = append.found[-1] < log.may_begin_at(until_ns)
                if append.asked == 1 or not (is_gone or offset - append.found[-1] > PRODUCER_ENTRIES_MAX):
                    raise Violation(
                        "I99", f"{append} stands at offset {append.found[-1]} and at offset {offset}"
                    )
                self.met["appended again behind its truncation"] += 1
            append.found.append(offset)

    def check_outcomes(self, log: WholeLog) -> None:
        """What was acknowledged is where it was told, what was refused is nowhere, and a fate is true (P3.6)."""
        for append in self.appends.values():
            if append.acknowledged_ns is None:
                self._check_open(append)
                continue
            if append.fate == "lost":
                raise Violation("I39", f"{append} was acknowledged, and told that it is lost")
            if not append.found:
                raise Violation("I99", f"{append} was acknowledged at {append.places}, and is lost")
            there = {log.entries[offset][:2]: offset for offset in append.found}
            for place, offset in append.places.items():
                if place not in there or offset not in (None, there[place]):
                    raise Violation(
                        "I93", f"{append} was acknowledged at {place}, offset {offset}, and stands at {there}"
                    )

    def _check_open(self, append: _Append) -> None:
        if append.is_refused and append.stands >= 0:
            raise Violation("I99", f"{append} was definitely refused, and stands at offset {append.stands}")
        if append.fate == "lost" and append.stands >= 0:
            raise Violation("I39", f"{append} was told that it is lost, and stands at offset {append.stands}")
        if append.fate == "survived" and append.stands < 0:
            raise Violation("I39", f"{append} was told that it survived, and stands nowhere")
        if not append.is_refused:
            self.met["not known, and there" if append.stands >= 0 else "not known, and not there"] += 1

    def check_calls(self) -> None:
        """P3.1, P8.2: the entries of one call stand behind each other, from the first one on."""
        for (process, number), call in self.calls.items():
            stands = [append.stands for append in call]
            there = [each for each in stands if each >= 0]
            if there != stands[: len(there)]:
                raise Violation("P3.1", f"call {number} of {process} lacks entries before others: {stands}")
            if there and there != list(range(there[0], there[0] + len(there))):
                raise Violation(
                    "P3.1", f"call {number} of {process} has others' entries in between: {stands}"
                )

    def check_tenures(self) -> None:
        """I92, P8.2: the entries of one handle stand in the order in which it was given them, and none is left out in
        front of another. What was asked for several times is no matter of one handle."""
        handles = defaultdict[tuple[str, int], list[_Append]](list)
        for (process, _), call in self.calls.items():
            for append in call:
                if append.asked == 1:
                    handles[process, append.tenure].append(append)
        for appends in handles.values():
            last: _Append | None = None
            missing: _Append | None = None
            for append in appends:
                if append.stands < 0:
                    missing = missing or (None if append.is_refused else append)
                    continue
                if missing is not None:
                    raise Violation("I92", f"{append} is there, and {missing}, given before it, is not")
                if last is not None and last.stands > append.stands:
                    raise Violation("I92", f"{append} was given behind {last}, and stands before it")
                last = append

    def check_real_time(self) -> None:
        """I92: what was acknowledged before another append was asked for stands before it, whoever asked."""
        newest: _Append | None = None
        for append in self._standing():
            told_ns = append.acknowledged_ns
            if newest is not None and told_ns is not None and told_ns < newest.asked_ns:
                raise Violation(
                    "I92", f"{append} was acknowledged before {newest} was asked for, and stands behind it"
                )
            if newest is None or append.asked_ns > newest.asked_ns:
                newest = append

    def check_epochs(self) -> None:
        """I94: behind the place at which a new owner begins nothing of anybody before is there, so nobody is
        acknowledged it; and an owner's entries are behind the place at which it began."""
        taken = sorted(self.taken.items(), key=lambda each: each[1].epoch)
        firsts = [each.first_offset for _, each in taken]
        if firsts != sorted(firsts):
            raise Violation("I94", f"owners begin at {firsts}: a later one before an earlier one")
        self.met["taken over"] += len(taken)
        begins: dict[tuple[str, int], int] = {}
        # Where the next owner begins. Between two epochs of one handle nobody else owned the log (P8.1).
        ends: dict[tuple[str, int], LogTaken] = {}
        for number, (key, one) in enumerate(taken):
            begins.setdefault(key[:2], one.first_offset)
            ends.pop(key[:2], None)
            if number + 1 < len(taken):
                ends[key[:2]] = taken[number + 1][1]
        for append in self._standing():
            if append.asked > 1:
                continue
            handle = append.process, append.tenure
            if append.stands < begins[handle]:
                raise Violation(
                    "I94", f"{append} stands at {append.stands}, and its owner began at {begins[handle]}"
                )
            if handle in ends and append.stands >= ends[handle].first_offset:
                other = ends[handle]
                raise Violation(
                    "I94",
                    f"{append} stands at {append.stands}; epoch {other.epoch} began at {other.first_offset}",
                )

    def check_order_of_epochs(self) -> None:
        """I94: in the log the epochs under which entries were acknowledged never fall."""
        last: _Append | None = None
        for append in self._standing():
            if append.acknowledged_ns is None or not append.epoch or append.asked > 1:
                continue
            if last is not None and last.epoch > append.epoch:
                raise Violation(
                    "I94", f"{append} of epoch {append.epoch} stands behind {last} of epoch {last.epoch}"
                )
            last = append

    def _standing(self) -> list[_Append]:
        """What stands there once, in the order of the log."""
        return sorted(
            (each for each in self.appends.values() if len(each.found) == 1), key=lambda each: each.stands
        )
