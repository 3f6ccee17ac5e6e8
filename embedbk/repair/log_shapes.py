"""Reading what the settings of many logs name as their numbers of copies (P2.6): so many questions at a time.

What cannot be read names none. Without an answer of the metadata it ends with an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from embedbk.codec.log_settings import log_settings_path
from embedbk.config import Quorum
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import KeyRead, MetadataFailed, ReadKey
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import MetadataUnavailable
from embedbk.repair.reshaping import shape_of_settings

__all__ = ["LogShapes"]

_AT_ONCE = 64


class LogShapes(Machine):
    """Ends with the E, Qw and Qa of each log that names some, by the log's id. Errors: MetadataUnavailable."""

    def __init__(self, logs: Iterable[str]) -> None:
        self.left = sorted({*logs}, reverse=True)
        self.asked: set[str] = set()
        self.found: dict[str, Quorum] = {}

    @property
    def deadline_ns(self) -> int | None:
        return None

    def _on_started(self, event: Started) -> list[Effect]:
        return self._go_on()

    def _go_on(self) -> list[Effect]:
        effects: list[Effect] = []
        while self.left and len(self.asked) < _AT_ONCE:
            log = self.left.pop()
            self.asked.add(log)
            effects.append(ReadKey(log, log_settings_path(log)))
        return effects if effects or self.asked else [Ended(None, self.found)]

    def _on_read(self, event: KeyRead) -> list[Effect]:
        self.asked.discard(event.tag)
        quorum = shape_of_settings(event.value, event.tag)
        if quorum is not None:
            self.found[event.tag] = quorum
        return self._go_on()

    def _on_failed(self, event: MetadataFailed) -> list[Effect]:
        self.asked.clear()
        return [Ended(MetadataUnavailable(f"the settings of log {event.tag} are not read: {event.reason}"))]

    HANDLERS: ClassVar[Handlers] = {Started: _on_started, KeyRead: _on_read, MetadataFailed: _on_failed}
