"""What packers of applications take, told to the observers: each entry as it is stored, and as it was appended.

The packer under it decides as ever. Knows by handle what was taken, for those that judge where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from embedbk.client.appending import Appending
from embedbk.client.compression import SqueezingPacker, squeezed
from embedbk.codec.arrow_rows import Rows
from embedbk.codec.frame import Frame, iter_entries
from embedbk.codec.packing import Packing
from embedbk.testing.squeezed import appended_of, note_squeezed
from embedbk.testing.world import World

__all__ = ["watched"]


class _TellingPacker:
    """A packer that reports to the observers what it took."""

    def __init__(
        self,
        packer: Packing,
        tell: Callable[[int, bytes, bytes], None],
        sometimes: Counter[str],
        before: Callable[[], None],
    ) -> None:
        """tell(entry id, what is stored, what was appended). before: called before something is appended that an
        application gave."""
        self._packer, self._on_taken, self._sometimes, self._before = packer, tell, sometimes, before
        self.taken: dict[int, bytes] = {}  # Payloads as they were appended.

    def __getattr__(self, name: str) -> Any:
        return getattr(self._packer, name)

    def _tell(self, entry_id: int, payload: Any, attributes: bytes = b"") -> None:
        """payload, attributes: as they are stored."""
        appended = appended_of(attributes, payload)
        self.taken[entry_id] = appended
        self._on_taken(entry_id, payload, appended)

    def _begin(self, caller: int = 0) -> None:
        """Nothing comes to a packer that is stopped, and the rest of a call that it holds itself for comes anyway."""
        if not self._packer.is_stopped and not (caller and self._packer.held_by == caller):
            self._before()

    def append(self, data: bytes) -> tuple[int, bool]:
        self._begin()
        taken = self._packer.append(data)
        if taken[0] >= 0:
            found = squeezed(b"", data) if isinstance(self._packer, SqueezingPacker) else None
            attributes, payload = found or (b"", data)
            self._tell(taken[0], payload, attributes)
        return taken

    def append_many(self, payloads: list[bytes], caller: int, *attributes: Any) -> tuple[int, int, bool]:
        self._begin(caller)
        first, taken, should_wake = self._packer.append_many(payloads, caller, *attributes)
        for number in range(taken):
            self._tell(first + number, payloads[number], attributes[0][number] if attributes else b"")
        if 0 < taken < len(payloads) and not self._packer.is_stopped:
            self._sometimes["rest waited for room"] += 1
        return first, taken, should_wake

    def append_rows(self, columns: Any, begin: int, caller: int) -> tuple[int, int, bool]:
        self._begin(caller)
        first, taken, should_wake = self._packer.append_rows(columns, begin, caller)
        rows = Rows(columns, begin)
        for number, attribute in zip(range(taken), rows.attributes(), strict=False):
            self._tell(first + number, rows[number], attribute)
        self._sometimes["rows of Arrow appended"] += taken > 0
        return first, taken, should_wake

    def append_again(self, frame: Frame, begin: int, count: int) -> int:
        first = self._packer.next_entry
        taken = self._packer.append_again(frame, begin, count)
        for number, entry in enumerate(list(iter_entries(frame))[begin : begin + taken]):
            self._tell(first + number, bytes(entry.data), bytes(entry.attributes))
        return taken

    def append_with(self, data: bytes, attributes: bytes, expected: int, told: list[int]) -> tuple[int, bool]:
        self._begin()
        taken = self._packer.append_with(data, attributes, expected, told)
        if taken[0] >= 0:
            self._tell(taken[0], data, attributes)
        return taken


def watched(
    world: World, client: str, appending: Appending, before: Callable[[], None] = lambda: None
) -> Appending:
    writing: Any = appending.writing

    def tell(entry_id: int, payload: bytes, appended: bytes) -> None:
        note_squeezed(world, appending.ledger_id, entry_id, appended, payload)
        world.tell("on_sent", client, writing, appending.ledger_id, entry_id, payload)

    writing.packer = _TellingPacker(writing.packer, tell, world.sometimes, before)
    return appending
