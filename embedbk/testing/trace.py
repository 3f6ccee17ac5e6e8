"""A run for people: every message with its sender and receiver, in virtual time, as text or drawn as a sequence chart
(SVG).

12.402 ms  w1 ──▶ b2       AddRequest ledger 1 entries 0..3
12.911 ms  -- fault [3] 12.9 ms: crash b2 for 50 ms
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embedbk.codec.add_messages import AddAnswers
from embedbk.codec.messages import Message, decode_message, split_bundle
from embedbk.errors import PeerError
from embedbk.testing.member_names import METADATA
from embedbk.testing.world import World

__all__ = ["Trace", "describe"]

EVENTS_MAX = 200_000  # A longer chart is of no use.
CHART_EVENTS_MAX = 1_500
LANE = 150
ROW = 16
HIDDEN = ("KeepAlive",)


@dataclass(frozen=True, slots=True)
class Event:
    now_ns: int
    sender: str  # Empty: a note.
    receiver: str
    text: str


class Trace:
    """Collects from a world what arrives and what its plan does. Give `attach` to `run_plan(prepare=)`."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.dropped = 0

    def attach(self, world: World) -> None:
        world.on_body = self._on_body
        world.on_note = lambda text: self._add(Event(world.now_ns, "", "", text))

    def _on_body(self, now_ns: int, sender: str, receiver: str, body: bytes) -> None:
        self._add(Event(now_ns, sender, receiver, describe(body)))

    def _add(self, event: Event) -> None:
        if len(self.events) < EVENTS_MAX:
            self.events.append(event)
        else:
            self.dropped += 1

    def lines(self) -> Iterator[str]:
        """One line per event; keep-alives of sessions are left out."""
        for event in self.events:
            if event.text.startswith(HIDDEN):
                continue
            when = f"{event.now_ns / 1e6:12.3f} ms  "
            if event.sender:
                yield f"{when}{event.sender:>9} ──▶ {event.receiver:<9} {event.text}"
            else:
                yield f"{when}-- {event.text}"
        if self.dropped:
            yield f"... and {self.dropped} more"

    def save_chart(self, path: Path) -> int:
        """Draw the sequence chart; returns how many events it shows (the last ones, where the failure is)."""
        shown = [event for event in self.events if not event.text.startswith(HIDDEN)][-CHART_EVENTS_MAX:]
        path.write_text(_chart(shown), encoding="utf-8")
        return len(shown)


def describe(body: bytes) -> str:
    """One message in a few words."""
    try:
        messages = [decode_message(part) for part in split_bundle(memoryview(body))]
    except PeerError as broken:
        return f"(unreadable: {broken})"
    return " + ".join(_message(message) for message in messages)


def _message(message: Message) -> str:
    words = [_control(message.control)]
    for header, _ in message.frames:
        entries = f"entries {header.first_entry}..{header.last_entry}"
        words.append(f"ledger {header.ledger_id} {entries} lac {header.lac}")
    return ", ".join(words)


def _control(control: Any) -> str:
    operation = getattr(control, "operation", None)
    if operation is not None:  # A request to the metadata.
        return f"{type(operation).__name__}{_fields(operation)}"
    result = getattr(control, "result", None)
    if result is not None:
        return f"{type(result).__name__}{_fields(result)}"
    if isinstance(control, AddAnswers):
        try:
            return " ".join(_control(answer) for _, answer in control.unpack())
        except PeerError:
            return "AddAnswers that are none"
    return f"{type(control).__name__}{_fields(control)}"


def _fields(value: Any) -> str:
    """The fields that matter, short."""
    told = []
    for name in getattr(value, "__struct_fields__", ()):
        field = getattr(value, name)
        if name in ("incarnation", "ledger_key", "nonce", "seating", "done_below") or field in (
            b"",
            [],
            False,
        ):
            continue
        if isinstance(field, bytes):
            field = f"{len(field)} bytes"
        elif hasattr(field, "name"):
            field = field.name
        text = str(field)
        told.append(f"{name}={text if len(text) < 60 else text[:57] + '...'}")
    return f"({' '.join(told)})" if told else ""


def _chart(events: list[Event]) -> str:
    lanes: dict[str, int] = {}
    for event in events:
        for name in (event.sender, event.receiver):
            if name:
                lanes.setdefault(name, 0)
    for number, name in enumerate(sorted(lanes, key=_lane_order)):
        lanes[name] = 120 + number * LANE
    width, height = 120 + len(lanes) * LANE + 300, 60 + len(events) * ROW
    size = f'width="{width}" height="{height}"'
    tip = '<marker id="tip" markerWidth="8" markerHeight="8" refX="7" refY="3" orient="auto">'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="10">',
        f'<defs>{tip}<path d="M0,0 L7,3 L0,6 z"/></marker></defs>',
        f'<rect {size} fill="white"/>',
    ]
    for name, x in lanes.items():
        parts.append(f'<line x1="{x}" y1="30" x2="{x}" y2="{height}" stroke="#bbb"/>')
        parts.append(
            f'<text x="{x}" y="22" text-anchor="middle" font-weight="bold">{html.escape(name)}</text>'
        )
    for row, event in enumerate(events):
        y = 50 + row * ROW
        text = html.escape(event.text[:90])
        parts.append(f'<text x="4" y="{y}" fill="#777">{event.now_ns / 1e6:.3f} ms</text>')
        if not event.sender:
            parts.append(
                f'<line x1="110" y1="{y + 3}" x2="{width}" y2="{y + 3}" stroke="#c33" stroke-dasharray="4"/>'
            )
            parts.append(f'<text x="120" y="{y}" fill="#c33">{text}</text>')
            continue
        begin, end = lanes[event.sender], lanes[event.receiver]
        parts.append(
            f'<line x1="{begin}" y1="{y}" x2="{end}" y2="{y}" stroke="black" marker-end="url(#tip)"/>'
        )
        parts.append(f'<text x="{min(begin, end) + 6}" y="{y - 3}">{text}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _lane_order(name: str) -> tuple[int, str]:
    """Clients left, bookies in the middle, metadata right."""
    is_member = name == METADATA or (name[0] == "m" and name[1:].isdigit())
    return (2 if is_member else 1 if name.startswith("b") else 0, name)
