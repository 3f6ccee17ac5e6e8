"""Logs, by their lists: I91 (how many are open), I92 (one order), I93 (dense places that never move), I103 (a seal
stays); and takeovers: L4 (duels end).

Each check is about one change of one list, or one acknowledgement; `Invariants` calls them. `invariants_life` checks
that a listed ledger is there (I90).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from embedbk.codec.log_list import Begun, LogList, LogSeal, LogSegment
from embedbk.codec.log_pages import decode_log_page, log_page_path
from embedbk.codec.log_pins import PinRecord, decode_log_pins
from embedbk.core.vocabulary import Ended
from embedbk.ids import NO_ENTRY
from embedbk.testing.ghost import Ghost
from embedbk.testing.violation import Violation

__all__ = ["Logs"]


class Logs:
    """The newest list of each log, by key."""

    def __init__(self, ghost: Ghost) -> None:
        self._ghost = ghost
        self._lists: dict[str, tuple[LogSegment, ...]] = {}
        # Ledger -> the one that its owner had listed behind it, to roll over to.
        self._behind: dict[int, int] = {}
        self._takeovers: dict[Any, str] = {}  # The owners of takeovers that have not ended.
        # What each list ever named, as it named it last.
        self._went: dict[str, dict[int, LogSegment]] = {}
        self._seals: dict[str, LogSeal] = {}
        self._pins: dict[str, tuple[PinRecord, ...]] = {}  # The pins of each log, by the key of its list.
        self._spliced: dict[str, dict[str, int]] = {}  # The newest number, by log and application.
        # Lists that went: their ledgers, and the newest numbers spliced. A deleted log may come back (P8.13).
        self._gone: dict[str, tuple[set[int], dict[str, int]]] = {}
        self._pages: dict[str, tuple[LogSegment, ...]] = {}  # The pages that are there, by key.

    def take(self, key: str, new: LogList | None) -> tuple[LogSegment, ...]:
        """A list comes, changes or goes; what it was before."""
        before = self._lists.pop(key, ())
        if new is None:
            self._gone[key] = {each.ledger_id for each in before}, self._spliced.pop(key, {})
        self._a_seal_stays(key, before, new)
        if new is not None:
            self._lists[key] = new.segments
            self._at_most_two_are_open(key, new.segments)
            _places_are_dense(key, new.segments)
            went = self._went.setdefault(key, {})
            went.update((each.ledger_id, each) for each in before)
            self._nothing_moves(key, went, new.segments)
            self._only_the_front_went(key, before, new.segments)
            self._a_splice_is_whole(key, before, new.segments)
            if len(new.segments) > 1 and new.segments[-1].first_offset is None:
                self._behind[new.segments[-2].ledger_id] = new.segments[-1].ledger_id
        return before

    def _a_splice_is_whole(
        self, key: str, before: tuple[LogSegment, ...], segments: tuple[LogSegment, ...]
    ) -> None:
        """I98: ready-made ledgers come in one change, of one transaction that is new, behind closed ledgers only."""
        named = {each.ledger_id for each in before}.union(self._went.get(key, ()))
        had, spliced = self._gone.get(key, (set[int](), dict[str, int]()))
        if not before and had & {each.ledger_id for each in segments}:
            named |= had
            self._spliced[key] = spliced
        fresh = [each for each in segments if each.begun == Begun.SPLICE and each.ledger_id not in named]
        if not fresh:
            return
        told = set()
        for each in fresh:
            metadata = self._ghost.ledger(each.ledger_id).metadata
            told.add(
                metadata.custom.get("staged", b"") if metadata is not None and metadata.is_closed else None
            )
        first = next(iter(told))
        if len(told) != 1 or not first:
            raise Violation("I98", f"{key} has {fresh} spliced in, staged for {told}")
        number, application = first.decode().split(" of ", 1)
        newest = self._spliced.setdefault(key, {})
        if int(number) <= newest.get(application, -1):
            raise Violation("I98", f"{key}: transaction {number} of {application} comes behind {newest}")
        newest[application] = int(number)
        if any(each.last_entry is None for each in segments[: segments.index(fresh[-1])]):
            raise Violation("I98", f"{key} has {fresh} spliced in beside an open ledger")

    def _a_seal_stays(self, key: str, before: tuple[LogSegment, ...], new: LogList | None) -> None:
        """I103: behind a seal nothing is listed, and all that is listed is closed."""
        seal = self._seals.pop(key, None)
        if new is None:
            return
        if new.seal is not None:
            self._seals[key] = new.seal
        elif seal is not None:
            raise Violation("I103", f"{key} was sealed ({seal.reason}), and is not")
        named = {each.ledger_id for each in before}.union(self._went.get(key, ()))
        fresh = [each.ledger_id for each in new.segments if each.ledger_id not in named]
        is_open = [each.ledger_id for each in new.segments if each.last_entry is None]
        if (seal is not None and (fresh or seal != new.seal)) or (new.seal is not None and is_open):
            raise Violation("I103", f"{key} is sealed, and names {fresh} anew, {is_open} as open")

    def take_pins(self, key: str, new: bytes | None) -> None:
        self._pins[key.removesuffix("/pins") + "/list"] = decode_log_pins(new).pins if new is not None else ()

    def _only_the_front_went(
        self, key: str, before: tuple[LogSegment, ...], segments: tuple[LogSegment, ...]
    ) -> None:
        """I96: "whole closed ledgers", "list first, data second"; what closed empty leaves from anywhere (P8.3)."""
        named = {each.ledger_id for each in segments}
        is_front, went = True, False
        for each in before:
            if each.ledger_id in named:
                is_front = False
                continue
            ledger = self._ghost.ledger(each.ledger_id)
            if ledger.deleted is not None or ledger.metadata is None or not ledger.metadata.is_closed:
                raise Violation(
                    "I96", f"{key} lets go of ledger {each.ledger_id}, which is not there and closed"
                )
            if ledger.metadata.last_entry != NO_ENTRY:
                went = True
                if not is_front or each.last_entry is None:
                    raise Violation(
                        "I96", f"{key} lets go of ledger {each.ledger_id}, which is not at its front"
                    )
        front = (segments[0].first_offset or 0) if segments else 0
        pin = next((pin for pin in self._pins.get(key, ()) if went and pin.offset < front), None)
        if pin is not None:
            raise Violation(
                "I96", f"{key} is truncated to offset {front}, and pin {pin} holds what is before"
            )

    def take_page(self, key: str, new: bytes | None) -> None:
        """A page of a list comes or goes; it comes once, and never changes."""
        if new is None:
            self._pages.pop(key, None)
            return
        name, number = key.split("/")[2], int(key.rpartition("/")[2], 16)
        page = decode_log_page(new, name, number).segments
        if self._pages.setdefault(key, page) != page:
            raise Violation("I93", f"{key} was there and is written with other ledgers")

    def whole(self, key: str, log_list: LogList) -> LogList:
        """A list with the ledgers of its pages in front of its own: each page that it names is there (I90)."""
        pages = log_list.pages
        if pages is None:
            return log_list
        older: list[LogSegment] = []
        for number in range(pages.first, pages.end):
            page = self._pages.get(log_page_path(key.split("/")[2], pages, number))
            if page is None:
                raise Violation("I90", f"{key} names its page {number}, which is not there")
            older += page
        older = older[pages.skipped :]
        told = (len(older), sum(each.length or 0 for each in older))
        if told != (pages.ledgers, pages.length) or (older and older[0].first_offset != pages.first_offset):
            raise Violation("I93", f"{key} says {pages} of its pages, and they hold {told[0]} ledgers")
        return LogList(log_list.version, log_list.epoch, (*older, *log_list.segments), seal=log_list.seal)

    def on_acked(self, client: str, ledger_id: int) -> None:
        """I92: the log's order is that of acknowledgement. An append after a roll is acknowledged only when all before
        it are (P8.2 ii)."""
        behind = self._behind.get(ledger_id)
        if behind is not None and self._ghost.ledger(behind).acked_to.get(client, NO_ENTRY) != NO_ENTRY:
            raise Violation(
                "I92",
                f"{client} is told of an append to ledger {ledger_id} behind one to ledger {behind}, the next one",
            )

    def on_takeover(self, node: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        if any(type(effect) is Ended for effect in effects):
            self._takeovers.pop(core, None)
        else:
            self._takeovers[core] = node

    def on_forgotten(self, core: Any) -> None:
        self._takeovers.pop(core, None)

    def on_stopped(self, node: str) -> None:
        self._takeovers = {core: who for core, who in self._takeovers.items() if who != node}

    def at_end(self) -> None:
        """L4: duels end. When nothing fails any more every takeover gets the log, or the answer that another client has
        it."""
        for core, node in self._takeovers.items():
            if node in self._ghost.up and node not in self._ghost.paused:
                raise Violation("L4", f"the takeover of log {core.name!r} by {node} has not ended")

    def _at_most_two_are_open(self, key: str, segments: tuple[LogSegment, ...]) -> None:
        """I91: of a list all but the last two are closed."""
        for segment in segments[:-2]:
            metadata = self._ghost.ledger(segment.ledger_id).metadata
            if segment.last_entry is None and (metadata is None or not metadata.is_closed):
                raise Violation(
                    "I91", f"{key} has {len(segments)} ledgers, and ledger {segment.ledger_id} is open"
                )

    def _nothing_moves(
        self, key: str, before: dict[int, LogSegment], segments: tuple[LogSegment, ...]
    ) -> None:
        """I93: a reported place stays, and an end is that of the closed ledger."""
        for segment in segments:
            old, metadata = before.get(segment.ledger_id), self._ghost.ledger(segment.ledger_id).metadata
            if old is not None and old.first_offset not in (None, segment.first_offset):
                raise Violation(
                    "I93",
                    f"{key}: ledger {segment.ledger_id} moves from offset {old.first_offset} to {segment.first_offset}",
                )
            if segment.last_entry is None or metadata is None:
                continue
            if not metadata.is_closed or metadata.last_entry != segment.last_entry:
                raise Violation(
                    "I93",
                    f"{key}: ledger {segment.ledger_id} ends at {segment.last_entry}, its metadata says "
                    f"{metadata.last_entry}",
                )


def _places_are_dense(key: str, segments: tuple[LogSegment, ...]) -> None:
    """I93: each begins where the one before it ends, as far as that is recorded."""
    for one, other in pairwise(segments):
        if one.first_offset is None or one.last_entry is None or other.first_offset is None:
            continue
        if one.first_offset + one.last_entry + 1 != other.first_offset:
            raise Violation(
                "I93",
                f"{key}: ledger {one.ledger_id} has offsets {one.first_offset} to "
                f"{one.first_offset + one.last_entry}, and ledger {other.ledger_id} begins at {other.first_offset}",
            )
