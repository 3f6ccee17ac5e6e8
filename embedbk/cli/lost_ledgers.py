"""`embedbk ledger lost | forget`: ledgers of a future that was lost when metadata was brought back (P7.7, P10.5).

Decides what an operator sees of them, and has to type before they go. Bookies keep them until then: that metadata does
not know a ledger of a spared id proves nothing. So do copies that a stale key does not name, and a ledger that was open
in the copy is closed by an adoption alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from embedbk.cli.operators import CommandResult, Commands
from embedbk.codec.id_ranges import is_within
from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    LedgerState,
    decode_ledger_metadata,
    ledger_key_path,
    ledger_of_key,
)
from embedbk.codec.metadata_messages import Acknowledged, List, Listed, Record, Tell, Told
from embedbk.codec.quorum_messages import ID_RANGES_MAX, AskHeld, ForgetIds, HeldTold
from embedbk.codec.registration import BOOKIES_PREFIX, decode_registration
from embedbk.errors import StorageError, UsageError
from embedbk.ids import LEDGER_ID_MAX
from embedbk.quorum import Quorum

__all__ = ["add_lost_ledgers", "forget", "lost", "parse_ids"]

PAGE = 1000
LAST_KEY = "\U0010ffff"  # Above every key.
_RANGE = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)


class _Seen(NamedTuple):
    told: Told
    holders: dict[int, list[str]]  # By ledger: the bookies that hold it.
    missed: dict[str, str]  # Bookies that did not report what they hold, and why.
    # Ledgers that were not closed in the copy: their state there, or that it cannot be read.
    stale: dict[int, str]


def add_lost_ledgers(commands: Commands) -> None:
    """Two commands of the noun `ledger`."""
    commands.add(
        "lost", lambda quorum, _: lost(quorum()), "those that bookies hold and metadata does not know"
    )
    made = commands.add(
        "forget",
        lambda quorum, options: forget(quorum(), options.ids, options.token),
        "let bookies drop them, for ever",
    )
    made.add_argument("ids", metavar="IDS", help="of ledgers, as in 5,7-9")
    made.add_argument(
        "--token", help="of the cluster; without it nothing is changed, and it is said what would go"
    )


def lost(quorum: Quorum) -> CommandResult:
    """Every ledger of a spared id that some bookie holds and metadata does not know, and every one that a copy of the
    metadata knows and that was not closed there."""
    seen = _look(quorum)
    spared = [f"{first} to {end - 1}" for first, end in seen.told.spared]
    data = {
        "cluster_token": seen.told.cluster_token.hex(),
        "spared": seen.told.spared,
        "ledgers": {str(each): names for each, names in sorted(seen.holders.items())},
        "stale": seen.told.stale,
        "open_in_the_copy": {str(each): state for each, state in seen.stale.items()},
        "not_heard": seen.missed,
    }
    lines = [f"ids of which a lost future may have made ledgers: {', '.join(spared) or 'none'}"]
    lines += [f"ledger {each} on {', '.join(names)}" for each, names in sorted(seen.holders.items())]
    lines += [f"not heard: {name}: {reason}" for name, reason in seen.missed.items()]
    if spared and not seen.holders:
        lines.append("no bookie that answers holds one")
    if stale := [f"{first} to {end - 1}" for first, end in seen.told.stale]:
        lines.append(f"ids whose keys are those of a copy, and may have changed since: {', '.join(stale)}")
    lines += [f"ledger {each}, {state} in the copy: adopt it" for each, state in seen.stale.items()]
    return CommandResult(data, "\n".join(lines))


def forget(quorum: Quorum, ids: str, token: str | None) -> CommandResult:
    """Let bookies drop what they hold under these ids. Without the cluster's token, only print what would go."""
    ranges, seen = parse_ids(ids), _look(quorum)
    own = seen.told.cluster_token.hex()
    gone = sorted(each for each in seen.holders if is_within(ranges, each))
    what = f"ledgers {', '.join(map(str, gone))}" if gone else "no ledger that a bookie names"
    if believed := [each for each in seen.stale if is_within(ranges, each)]:
        ids = ", ".join(map(str, believed))
        what += (
            f"; and what a lost future changed of ledgers {ids}, which then end where the copy's bookies know"
        )
    if token is None:
        raise UsageError(
            f"this would let go for ever: {what}",
            hint=f"say that it is meant: --token {own}; nothing was changed",
        )
    if token != own:
        raise UsageError(f"--token {token}: this cluster's token is another one", hint="nothing was changed")
    for begin in range(0, len(ranges), ID_RANGES_MAX):
        quorum.tell(ForgetIds(tuple(ranges[begin : begin + ID_RANGES_MAX])), Acknowledged)
    data = {"forgotten": ranges, "ledgers": gone, "believed": believed, "not_heard": seen.missed}
    return CommandResult(data, f"forgotten: {what}; each bookie drops them at its next collection")


def parse_ids(text: str) -> list[tuple[int, int]]:
    """Ranges (first, end) of a list such as `5,7-9`. Raises UsageError: this is no such list."""
    ranges: list[tuple[int, int]] = []
    for word in text.replace(",", " ").split():
        match = _RANGE.fullmatch(word)
        first, last = (int(match[1]), int(match[2] or match[1])) if match is not None else (1, 0)
        if not 0 < first <= last < LEDGER_ID_MAX:
            raise UsageError(f"{word[:80]!r} is no id of a ledger, nor a range of them", hint="as in 5,7-9")
        ranges.append((first, last + 1))
    if not ranges:
        raise UsageError("no id was given", hint="embedbk ledger lost names them")
    return ranges


def _look(quorum: Quorum) -> _Seen:
    told = quorum.tell(Tell(0), Told)
    holders: dict[int, list[str]] = {}
    missed: dict[str, str] = {}
    stale = _not_closed(quorum, told.stale)
    if not told.spared:
        return _Seen(told, holders, missed, stale)
    first, end = min(told.spared)[0], max(stop for _, stop in told.spared)
    for record in _records(quorum, BOOKIES_PREFIX):
        name = record.key.removeprefix(BOOKIES_PREFIX)
        try:
            endpoints = decode_registration(record.value or b"").endpoints
            held = _held(quorum, endpoints, first, end)
        except (StorageError, UsageError) as unheard:
            missed[name] = str(unheard)
            continue
        for each in held:
            if told.is_spared(each):
                holders.setdefault(each, []).append(name)
    for each in _known(quorum, holders):
        del holders[each]
    return _Seen(told, holders, missed, stale)


def _not_closed(quorum: Quorum, ranges: Sequence[tuple[int, int]]) -> dict[int, str]:
    """The ledgers in these ranges of ids whose keys do not say CLOSED, or cannot be read."""
    found: dict[int, str] = {}
    for first, end in ranges:
        after = ledger_key_path(first - 1) if first else ""
        for record in _records(quorum, LEDGERS_PREFIX, after, ledger_key_path(end - 1)):
            ledger_id = ledger_of_key(record.key)
            if ledger_id is None or not first <= ledger_id < end:
                continue
            try:
                state = decode_ledger_metadata(record.value or b"", ledger_id).state
            except StorageError as unread:
                found[ledger_id] = str(unread)
                continue
            if state != LedgerState.CLOSED:
                found[ledger_id] = LedgerState(state).name
    return found


def _records(quorum: Quorum, prefix: str, after: str = "", last: str = LAST_KEY) -> Iterator[Record]:
    """The records under a prefix, behind one key and up to another."""
    has_more = True
    while has_more and after < last:
        page = quorum.tell(List(prefix, after, PAGE), Listed)
        yield from page.records
        has_more, after = page.has_more, page.records[-1].key if page.records else last


def _held(quorum: Quorum, endpoints: Sequence[str], first: int, end: int) -> list[int]:
    found: list[int] = []
    while True:
        # One that cannot be reached from here must not use up the time for all.
        told = quorum.ask(endpoints, AskHeld(first, end), is_patient=False)
        if not isinstance(told, HeldTold):
            raise UsageError("it did not say what it holds")
        found += told.ids
        if not told.next_id:
            return found
        if told.next_id <= first:
            raise UsageError(f"it says that it goes on at ledger {told.next_id}, and was asked from there on")
        first = told.next_id


def _known(quorum: Quorum, holders: dict[int, list[str]]) -> list[int]:
    """Those of these ledgers that metadata knows."""
    if not holders:
        return []
    first, last = ledger_key_path(min(holders) - 1), ledger_key_path(max(holders))
    ids = (ledger_of_key(record.key) for record in _records(quorum, LEDGERS_PREFIX, first, last))
    return [each for each in ids if each is not None and each in holders]
