"""Which appends of a producer are in the log already: what makes an append idempotent.

A producer numbers its appends, rising. The writer remembers the last of each and where they stand; an append that it
finds there is answered with its old position. Everything is bounded: what fell out of the window is refused, a
producer that fell out is a new one. A writer that takes over learns the window from the entries themselves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from embedbk.codec.attributes import Producer
from embedbk.errors import UsageError
from embedbk.ids import Position

__all__ = ["PRODUCERS_MAX", "SEQUENCES_MAX", "Producers"]

SEQUENCES_MAX = 1000  # Remembered of one producer.
PRODUCERS_MAX = 10_000  # Remembered; the one that appended longest ago is forgotten first.


class Producers:
    """The windows of all producers of one log or ledger."""

    __slots__ = ("_windows", "begun", "producers_max", "sequences_max")

    def __init__(self, sequences_max: int = SEQUENCES_MAX, producers_max: int = PRODUCERS_MAX) -> None:
        self.sequences_max = sequences_max
        self.producers_max = producers_max
        # Producer id -> sequence -> where; producers by their last append, sequences rising. None before the first.
        self._windows: OrderedDict[int, OrderedDict[int, Position]] | None = None
        self.begun: tuple[
            int, ...
        ] = ()  # The producers whose appends are between finding and noting, by their ids.

    def begin(self, producer: Producer) -> None:
        """An append of this producer comes to finding and noting; who called this puts `begun` back behind them.

        Raises UsageError: another one is there, which this one interrupts.
        """
        if producer.producer_id in self.begun:
            raise UsageError(
                f"producer {producer.producer_id} is in the middle of another append in this thread, which this one "
                "interrupts, in a signal handler say; nothing was appended",
                hint="give the handler a producer of its own",
            )
        self.begun = (*self.begun, producer.producer_id)

    def find(self, producer: Producer) -> Position | None:
        """Where this append stands already; None when it is to be done.

        Raises:
            UsageError: a sequence below one that was appended, and not remembered itself.
        """
        if self._windows is None:
            return None
        window = self._windows.get(producer.producer_id)
        if window is None:
            return None
        held = window.get(producer.sequence)
        if held is None and producer.sequence < (newest := next(reversed(window))):
            raise UsageError(
                f"producer {producer.producer_id} has appended sequence {newest}, and {producer.sequence} is not among "
                f"the last {self.sequences_max} that are remembered; nothing was appended",
                hint="sequences of one producer rise; an older append may or may not be in the log: read it",
            )
        return held

    def move(self, now: Callable[[Position], Position | None]) -> None:
        """Move the noted appends to where they stand by now; None: the append stands nowhere, and may be made again."""
        windows = self._windows
        if windows is None:
            return
        for producer_id, window in list(windows.items()):
            for sequence, position in list(window.items()):
                moved = now(position)
                if moved is None:
                    del window[sequence]
                elif moved != position:
                    window[sequence] = moved
            if not window:
                del windows[producer_id]

    def note(self, producer: Producer, position: Position) -> None:
        """Note that the append stands there, behind all that were noted before."""
        if self._windows is None:
            self._windows = OrderedDict()
        window = self._windows.setdefault(producer.producer_id, OrderedDict())
        self._windows.move_to_end(producer.producer_id)
        if window and producer.sequence <= next(reversed(window)):
            return  # Learnt twice.
        window[producer.sequence] = position
        if len(window) > self.sequences_max:
            window.popitem(last=False)
        if len(self._windows) > self.producers_max:
            self._windows.popitem(last=False)
