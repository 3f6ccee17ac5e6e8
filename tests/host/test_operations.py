"""What a handle sees of a core at work: the two sides of an operation run on two threads."""

from __future__ import annotations

from typing import Any

import pytest

from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import frame_of
from embedbk.core.client_words import EntriesReady
from embedbk.core.machine import Machine
from embedbk.core.vocabulary import Ended
from embedbk.errors import EntryUnreadable
from embedbk.host.operations import Reading
from embedbk.host.signal import Signal

FRAME = frame_of(memoryview(encode_entry(1, 0, 3, b"one")))


class Watched(Reading):
    """Looks as another thread may: right after any change."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if getattr(self, "is_watched", False) and self.is_over:
            self.seen.append((len(self.frames), self.error))


def test_whoever_sees_the_end_of_a_read_sees_why() -> None:
    """P7.1: a read that failed is never taken for one that is done, however the threads are switched."""
    reading = Watched(Machine(), lambda *_: None)
    reading.seen = []  # type: ignore[attr-defined]
    reading.is_watched = True  # type: ignore[attr-defined]
    failure = EntryUnreadable("no copy")
    reading.on_effect(EntriesReady(FRAME))
    reading.on_effect(Ended(failure))
    reading.publish()
    assert set(reading.seen) == {(1, failure)}  # type: ignore[attr-defined]
    assert reading.take() is FRAME
    with pytest.raises(EntryUnreadable):
        reading.take()


def test_a_reader_is_woken_for_news_only() -> None:
    """A turn that asked for more, and brought nothing, wakes nobody."""
    woken: list[int] = []
    reading = Reading(Machine(), lambda *_: None)

    class Bell(Signal):
        def notify(self) -> None:
            woken.append(len(reading.frames))

    reading.signal = Bell()
    reading.publish()
    assert woken == []
    reading.on_effect(EntriesReady(FRAME))
    reading.on_effect(EntriesReady(FRAME))
    reading.publish()
    reading.publish()
    assert woken == [2]
    reading.on_effect(Ended())
    reading.publish()
    assert woken == [2, 2]
