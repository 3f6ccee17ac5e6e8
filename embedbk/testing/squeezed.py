"""Entries of worlds that are stored compressed: what their applications appended, and what is stored of it.

Observers compare what is stored, which is what bookies hold and what lengths count. A reader of the faces is given what
was appended: that is judged here, and the observers are told what is stored in its place.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from embedbk.client.compression import unpacked
from embedbk.codec.attributes import claim_of
from embedbk.testing.violation import Violation

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["appended_of", "note_squeezed", "stored_of", "varied"]


def appended_of(attributes: Any, payload: Any) -> Any:
    """The payload that an application appended, of an entry as a packer takes it."""
    claim = claim_of(attributes)
    return payload if claim is None else unpacked(memoryview(payload), claim)[1]


def note_squeezed(world: World, ledger_id: int, entry_id: int, appended: Any, stored: Any) -> None:
    if appended != stored:
        world.squeezed[ledger_id, entry_id] = (bytes(appended), bytes(stored))
        world.sometimes["entry stored compressed"] += 1


def stored_of(world: World, client: str, ledger_id: int, entry_id: int, given: bytes) -> bytes:
    """What is stored of the entry whose payload a reader was given. Raises Violation (I7): it was given something else
    than what was appended."""
    known = world.squeezed.get((ledger_id, entry_id))
    if known is None:
        return given
    appended, stored = known
    if given != appended:
        raise Violation(
            "I7", f"entry {entry_id} of ledger {ledger_id} is compressed, and {client} is given {given!r}"
        )
    world.sometimes["compressed entry read"] += 1
    return stored


def varied(payload: bytes, chance: random.Random | None) -> bytes:
    """The payload, or a longer one: one that becomes much smaller, or one that hardly does. chance None: as it is."""
    more = 0 if chance is None else chance.choice([0, 0, 40, 400, 4_000])
    if chance is None or not more:
        return payload
    # No second one may say that a producer stands before it.
    rest = chance.randbytes(more).replace(b"#", b"$") if chance.random() < 0.4 else b"over and over " * more
    return payload + rest[:more]
