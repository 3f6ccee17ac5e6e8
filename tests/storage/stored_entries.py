"""Frames for storage tests: small entries whose content tells who they are."""

from __future__ import annotations

from collections.abc import Iterable

from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import Frame, frame_of, iter_entries
from embedbk.ids import NO_ENTRY


def payload(ledger_id: int, entry_id: int, size: int = 0) -> bytes:
    text = f"{ledger_id}:{entry_id}.".encode()
    return (text * (size // len(text) + 1))[:size] if size else text


def length_up_to(ledger_id: int, entry_id: int, size: int = 0) -> int:
    return (
        sum(len(payload(ledger_id, each, size)) for each in range(entry_id + 1))
        if not size
        else size * (entry_id + 1)
    )


def make_frame(ledger_id: int, entry_ids: Iterable[int], *, size: int = 0, lac: int = NO_ENTRY) -> Frame:
    """A frame with the given entries; lengths count every entry of the ledger, also those not in it."""
    parts = []
    for entry_id in entry_ids:
        known = min(lac, entry_id - 1)  # A LAC stands below its entry.
        total, up_to = length_up_to(ledger_id, entry_id, size), length_up_to(ledger_id, known, size)
        parts.append(
            encode_entry(ledger_id, entry_id, total, payload(ledger_id, entry_id, size), known, up_to)
        )
    body = b"".join(parts)
    return frame_of(memoryview(body), ledger_id)


def ids_in(frame: Frame | None) -> list[int]:
    return [entry.entry_id for entry in iter_entries(frame)] if frame is not None else []


def payloads_in(frame: Frame | None) -> dict[int, bytes]:
    return {entry.entry_id: bytes(entry.data) for entry in iter_entries(frame)} if frame is not None else {}
