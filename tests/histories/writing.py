"""The writers of the histories: they take the log from each other, append in every way there is, and give it up."""

from __future__ import annotations

import time
from collections.abc import Callable

import embedbk
from embedbk.client.tickets import Ticket
from embedbk.errors import AppendConflict, EmbedbkError, OperationTimeout, UsageError
from embedbk.ids import Position
from embedbk.testing.log_events import AppendAsked, AppendTold, LogTaken
from tests.histories.payloads import parts_of_text
from tests.histories.process import Process, read_history

__all__ = ["write"]


def write(process: Process) -> None:
    writing = Writing(process)
    for _ in process.rounds():
        process.pause(process.chance.choice([0.0, 0.5, 3.0]))
        writing.take_over()


class Writing:
    """One writer process. Its producer id is that of all its incarnations: each tries first what the one before it does
    not know the outcome of."""

    def __init__(self, process: Process) -> None:
        self._process, self._chance = process, process.chance
        self._calls = self._texts = self._tenure = self._sequence = 0
        self._acknowledged = -1  # The newest offset of ours.
        self._open: list[tuple[int, Ticket]] = []  # Calls whose fate is asked later.
        self._producer = 1 + int(process.name.strip("abcdefghijklmnopqrstuvwxyz"))
        self._again: list[tuple[str, int]] = []  # Texts with their sequences.
        self._done: list[tuple[str, int]] = []
        self._learn()

    def _learn(self) -> None:
        """What incarnations before asked of the producer, by their own files."""
        process, asked, done = self._process, dict[str, int](), set[str]()
        for incarnation in range(process.incarnation):
            calls: dict[int, str] = {}
            path = process.directory / f"{process.name}.{incarnation}.history"
            for event in read_history(path) if path.exists() else ():
                match event:
                    case AppendAsked(has_producer=True):
                        (text,) = event.texts
                        calls[event.call] = text
                        asked.setdefault(text, len(asked) + 1)
                    case AppendTold(outcome="acknowledged") if event.call in calls:
                        done.add(calls[event.call])
        self._sequence = len(asked)
        self._again = [each for each in asked.items() if each[0] not in done]
        self._done = [each for each in asked.items() if each[0] in done][-10:]

    # One tenure.

    def take_over(self) -> None:
        process, asked_ns = self._process, time.monotonic_ns()
        try:
            writer = process.log.writer()
        except EmbedbkError:
            return
        self._tenure += 1
        self._taken(writer, asked_ns)
        goes_on = self._ask_fates() and self._append_again(writer)
        left = self._chance.choice([3, 50, 400])
        while goes_on and left and not process.ends.is_set():
            goes_on = self._do(writer)
            left -= 1
            if self._chance.random() < 0.5:
                process.pause(0.03)
        self._leave(writer, goes_on=goes_on)
        if self._chance.random() < 0.5:
            self._read_own(writer)

    def _taken(self, writer: embedbk.LogWriter, asked_ns: int) -> None:
        taken = LogTaken(asked_ns, time.monotonic_ns(), self._tenure, writer.epoch, writer.first_offset)
        self._process.write(taken)

    def _leave(self, writer: embedbk.LogWriter, *, goes_on: bool) -> None:
        if goes_on and self._chance.random() < 0.5:
            try:
                writer.close()
            except EmbedbkError:
                writer.release()
        else:
            writer.release()

    def _ask_fates(self) -> bool:
        """The ledgers of before are closed now, so tickets can tell (P3.6)."""
        tickets, self._open = self._open, []
        for call, ticket in tickets:
            try:
                fate = ticket.fate().value
            except EmbedbkError:
                continue
            if fate != "unknown":
                self._process.write(AppendTold(time.monotonic_ns(), call, fate))
        return True

    def _append_again(self, writer: embedbk.LogWriter) -> bool:
        while self._again:
            if not self._produce(writer, *self._again[0]):
                return False
            self._done.append(self._again.pop(0))
        return True

    # One call.

    def _do(self, writer: embedbk.LogWriter) -> bool:
        """False: this writer is to be left."""
        draw = self._chance.choices(
            [
                *(self._run, self._many, self._batch, self._one, self._conditional, self._timed),
                *(self._producing, self._read_own, self._roll, self._renew),
            ],
            [30, 20, 10, 10, 10, 8, 20, 4, 2, 0.5],
        )[0]
        return draw(writer)

    def _text(self, tail: str = "") -> str:
        self._texts += 1
        pad = tail or self._chance.choice(["", "", f"+{self._chance.choice([40, 700, 9000])}"])
        return f"{self._process.name}.{self._process.incarnation}.{self._texts}{pad}"

    def _ask(self, *texts: str, has_producer: bool = False) -> int:
        self._calls += 1
        asked = AppendAsked(time.monotonic_ns(), self._calls, self._tenure, texts, has_producer)
        self._process.write(asked)
        return self._calls

    def _acknowledge(
        self, call: int, places: list[Position], offsets: tuple[int, ...] = (), epoch: int = 0
    ) -> bool:
        stands = tuple((each.ledger_id, each.entry_id) for each in places)
        self._process.write(AppendTold(time.monotonic_ns(), call, "acknowledged", stands, offsets, epoch))
        if offsets:
            self._acknowledged = max(self._acknowledged, offsets[-1])
        return True

    def _failed(self, call: int, failed: EmbedbkError, *, is_final: bool = True) -> bool:
        """Whether the writer goes on behind it. is_final: nobody appends it again, so its ticket knows its fate."""
        outcome = "refused" if failed.definite else "unknown"
        why = f"{type(failed).__name__}: {failed}"
        self._process.write(AppendTold(time.monotonic_ns(), call, outcome, why=why))
        if is_final and failed.ticket is not None and not failed.definite and len(self._open) < 200:
            self._open.append((call, failed.ticket))
        return isinstance(failed, AppendConflict | OperationTimeout)

    def _told(
        self, writer: embedbk.LogWriter, texts: list[str], append: Callable[[], list[Position]]
    ) -> bool:
        call, epoch = self._ask(*texts), writer.epoch
        try:
            places = append()
        except EmbedbkError as failed:
            return self._failed(call, failed)
        return self._acknowledge(call, places, epoch=epoch if epoch == writer.epoch else 0)

    def _run(self, writer: embedbk.LogWriter) -> bool:
        """Several under way at once."""
        tickets, goes_on = list[tuple[int, Ticket]](), True
        for _ in range(self._chance.choice([1, 5, 40])):
            text = self._text()
            call = self._ask(text)
            try:
                tickets.append((call, writer.append_nowait(parts_of_text(text)[0])))
            except EmbedbkError as failed:
                goes_on = self._failed(call, failed)
                break
        for call, ticket in tickets:
            try:
                place = ticket.result()
            except EmbedbkError as failed:
                goes_on = self._failed(call, failed) and goes_on
            else:
                self._acknowledge(call, [place], (ticket.offset,), ticket.epoch or 0)
        return goes_on

    def _many(self, writer: embedbk.LogWriter) -> bool:
        texts = [self._text() for _ in range(self._chance.choice([2, 10, 60]))]
        payloads = [parts_of_text(text)[0] for text in texts]

        def append() -> list[Position]:
            return [
                Position(part.ledger_id, entry_id)
                for part in writer.append_many(payloads).parts
                for entry_id in range(part.first_entry, part.last_entry + 1)
            ]

        return self._told(writer, texts, append)

    def _batch(self, writer: embedbk.LogWriter) -> bool:
        text = self._text(f"*{self._chance.randint(2, 6)}")
        return self._told(writer, [text], lambda: [writer.append_batch(parts_of_text(text))])

    def _one(self, writer: embedbk.LogWriter) -> bool:
        text = self._text()
        return self._told(writer, [text], lambda: [writer.append(parts_of_text(text)[0])])

    def _conditional(self, writer: embedbk.LogWriter) -> bool:
        """Half of the conditions are wrong."""
        text, last = self._text(), writer.last_position
        after = last if self._chance.random() < 0.5 else Position(last.ledger_id, last.entry_id + 1)
        return self._told(writer, [text], lambda: [writer.append(parts_of_text(text)[0], after=after)])

    def _timed(self, writer: embedbk.LogWriter) -> bool:
        text, timeout_s = self._text(), self._chance.choice([0.0, 0.0005, 0.002])
        return self._told(
            writer, [text], lambda: [writer.append(parts_of_text(text)[0], timeout_s=timeout_s)]
        )

    def _producing(self, writer: embedbk.LogWriter) -> bool:
        """A new one; or one that was acknowledged, again: it may be truncated, and is refused then."""
        if self._done and self._chance.random() < 0.3:
            return self._produce(writer, *self._chance.choice(self._done), may_be_gone=True)
        self._sequence += 1
        new = self._text(), self._sequence
        self._again.append(new)
        if self._append_again(writer):
            del self._done[:-10]
            return True
        return False

    def _produce(
        self, writer: embedbk.LogWriter, text: str, sequence: int, *, may_be_gone: bool = False
    ) -> bool:
        call = self._ask(text, has_producer=True)
        try:
            place = writer.append(parts_of_text(text)[0], producer=(self._producer, sequence))
        except EmbedbkError as failed:
            if isinstance(failed, UsageError) and not may_be_gone:
                raise
            self._failed(call, failed, is_final=False)
            return isinstance(failed, UsageError)
        return self._acknowledge(call, [place])

    def _read_own(self, writer: embedbk.LogWriter) -> bool:
        """Read your own writes: a read of this process has all that was acknowledged to it, also behind its writer."""
        start = max(0, self._acknowledged - 20)
        seeing = self._process.reading("read", start)
        with seeing.judged():
            seeing.all_of(self._process.log.read(start))
            seeing.ended("end")
        return True

    def _roll(self, writer: embedbk.LogWriter) -> bool:
        try:
            writer.roll()
        except EmbedbkError:
            return False
        return True

    def _renew(self, writer: embedbk.LogWriter) -> bool:
        asked_ns = time.monotonic_ns()
        try:
            writer.renew()
        except EmbedbkError:
            return False
        self._taken(writer, asked_ns)
        return True
