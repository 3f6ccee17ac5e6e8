"""The figures of a space report, from what was gathered (REPORT.md). Pure.

Decides what is counted where. Bytes are payload bytes; stored bytes count each of the Qw copies. What a ledger grew by
in a day is not written anywhere: its bytes are spread evenly over the time from its creation to the next one of its
log, and to now where there is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.core.quorum import count_ids, write_set_mask

__all__ = [
    "BookieRoom",
    "BookieSpace",
    "HotLedger",
    "KeptLog",
    "LedgerSpace",
    "LogSpace",
    "Reclaimable",
    "SpaceReport",
    "figures_of",
]

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
AGES = (("an hour", HOUR_MS), ("a day", DAY_MS), ("a week", 7 * DAY_MS), ("30 days", 30 * DAY_MS))
GROWTH_DAYS, WEEK_DAYS = 14, 7
HOT_MAX = 20
KEPT_MAX = 10  # Entry logs of all bookies together.
KEEPERS_MAX = 5  # Ledgers that are named for each of them.
UNKNOWN = "(not in the metadata)"  # A ledger that was deleted and forgotten, and is not collected yet.


class LedgerSpace(NamedTuple):
    """log: its id, as the ledger names it; empty: of none. entries, length: up to its end or its LAC, as far as a
    bookie told. was_entries, was_length: the same a while before, where that was asked. deleted_until_ms: it can be
    brought back until then for certain; 0: it is not deleted."""

    metadata: LedgerMetadata
    log: str
    entries: int
    length: int
    is_told: bool = True
    was_entries: int | None = None
    was_length: int | None = None
    deleted_until_ms: int = 0
    is_staged: bool = False

    @property
    def stored(self) -> int:
        if self.metadata.freed is not None:
            return 0  # Files have it (P8.14).
        return self.length * self.metadata.write_quorum


class LogSpace(NamedTuple):
    """state: "", "deleted", "unknown" (ledgers name it, and it is not there). owner: of its newest writer. oldest_ms:
    when its oldest ledger was begun. consumed_bytes: what lies before all of its cursors and pins; None: it has none,
    or that cannot be told. day_bytes: grown in the last day."""

    name: str
    owner: str
    state: str
    ledgers: int
    open_ledgers: int
    entries: int
    payload_bytes: int
    stored_bytes: int
    oldest_ms: int
    newest_ms: int
    consumed_bytes: int | None
    day_bytes: int


class Reclaimable(NamedTuple):
    """stored_bytes that go when `how` is done."""

    what: str
    stored_bytes: int
    how: str


class HotLedger(NamedTuple):
    """is_measured: between two looks; else on the average since it was begun."""

    ledger_id: int
    log: str
    entries_per_s: float
    bytes_per_s: float
    is_measured: bool


class KeptLog(NamedTuple):
    """An entry log of a bookie, of which dead_bytes count no more, and the ledgers that keep it: (ledger id, the name
    of its log, live bytes), the largest first, at most KEEPERS_MAX of `keeper_count`."""

    bookie_id: str
    entry_log: int
    file_bytes: int
    dead_bytes: int
    keeper_count: int
    keepers: tuple[tuple[int, str, int], ...]


class BookieSpace(NamedTuple):
    """disk_bytes: what its entry logs take; dead_bytes: what of that counts no more. None: it does not tell."""

    bookie_id: str
    state: str
    free_bytes: int
    owed_bytes: int  # Payload bytes that ledgers say it holds, by the share of their entries.
    ledgers: int
    disk_bytes: int | None = None
    dead_bytes: int | None = None


class BookieRoom(NamedTuple):
    """What a bookie, or the metadata, says of it. disk_bytes, dead_bytes: as in `BookieSpace`."""

    bookie_id: str
    state: str
    free_bytes: int
    disk_bytes: int | None = None
    dead_bytes: int | None = None


class SpaceReport(NamedTuple):
    """untold: open ledgers of which no bookie told how long they are; unread: keys that are no ledgers'. ages: (at most
    so old, stored bytes). growth: (begin of a day before now, payload bytes), the oldest first. logs: the largest
    first. kept: the entry logs with the most dead bytes, and what keeps them.
    days_left: until the room is used, if it grows on as in the last week; None: it does not grow, or nobody knows, as
    where nothing is older than a day."""

    made_ms: int
    payload_bytes: int
    stored_bytes: int
    logs: tuple[LogSpace, ...]
    owners: tuple[tuple[str, int], ...]
    reclaimable: tuple[Reclaimable, ...]
    ages: tuple[tuple[str, int], ...]
    growth: tuple[tuple[int, int], ...]
    hot: tuple[HotLedger, ...]
    bookies: tuple[BookieSpace, ...]
    kept: tuple[KeptLog, ...]
    days_left: float | None
    untold: tuple[int, ...]
    unread: tuple[str, ...]


class ReportedLog(NamedTuple):
    """What the report says of a log: its name, its owner, whether it was deleted; bytes before cursors and pins."""

    name: str
    owner: str = ""
    is_deleted: bool = False
    consumed_bytes: int | None = None


def figures_of(
    ledgers: Sequence[LedgerSpace],
    logs: Mapping[str, ReportedLog],
    bookies: Iterable[BookieRoom],
    now_ms: int,
    sample_s: float,
    unread: Sequence[str] = (),
    kept: Iterable[KeptLog] = (),
) -> SpaceReport:
    """kept: the logs that their keepers name are ids, and have their names in the report."""
    by_log: dict[str, list[LedgerSpace]] = defaultdict(list)
    for each in ledgers:
        if not each.deleted_until_ms:
            by_log[each.log].append(each)
    growth = {now_ms - (day + 1) * DAY_MS: 0 for day in reversed(range(GROWTH_DAYS))}
    found: list[LogSpace] = []
    for log in sorted({*by_log, *logs}):
        mine = sorted(by_log.get(log, []), key=lambda each: each.metadata.created_ms)
        grown = _spread(mine, now_ms, is_log=bool(log))
        for begin in growth:
            growth[begin] += _within(grown, begin, begin + DAY_MS)
        found.append(_log(log, mine, logs.get(log), _within(grown, now_ms - DAY_MS, now_ms)))
    found.sort(key=lambda each: (-each.stored_bytes, each.name))
    owners: dict[str, int] = defaultdict(int)
    for log_space in found:
        owners[log_space.owner] += log_space.stored_bytes
    spaces = _bookies(ledgers, bookies)
    payload, stored = sum(each.length for each in ledgers), sum(each.stored for each in ledgers)
    logs_of = {
        each.metadata.ledger_id: logs[each.log].name if each.log in logs else each.log for each in ledgers
    }
    return SpaceReport(
        now_ms,
        payload,
        stored,
        tuple(found),
        tuple(sorted(owners.items(), key=lambda each: (-each[1], each[0]))),
        _reclaimable(ledgers, found, now_ms),
        _ages(ledgers, now_ms),
        tuple(sorted(growth.items())),
        _hot(ledgers, logs, now_ms, sample_s),
        spaces,
        tuple(_named(each, logs_of) for each in kept),
        _days_left(spaces, growth, payload, stored, _days_since_first(ledgers, now_ms)),
        tuple(each.metadata.ledger_id for each in ledgers if not each.is_told),
        tuple(unread),
    )


def _log(log: str, mine: Sequence[LedgerSpace], facts: ReportedLog | None, day_bytes: int) -> LogSpace:
    created = [each.metadata.created_ms for each in mine]
    state = "" if not log else "unknown" if facts is None else "deleted" if facts.is_deleted else ""
    stored = sum(each.stored for each in mine)
    return LogSpace(
        facts.name if facts is not None else log,
        facts.owner if facts is not None else "",
        state,
        len(mine),
        sum(not each.metadata.is_closed for each in mine),
        sum(each.entries for each in mine),
        sum(each.length for each in mine),
        stored,
        min(created, default=0),
        max(created, default=0),
        facts.consumed_bytes if facts is not None else None,
        day_bytes,
    )


def _spread(mine: Sequence[LedgerSpace], now_ms: int, *, is_log: bool) -> list[tuple[int, int, int]]:
    """(from, until, bytes). Ledgers of no log have nothing behind them: a closed one counts where it was begun."""
    spans: list[tuple[int, int, int]] = []
    for place, each in enumerate(mine):
        begin = each.metadata.created_ms
        end = mine[place + 1].metadata.created_ms if is_log and place + 1 < len(mine) else now_ms
        if not is_log and each.metadata.is_closed:
            end = begin
        spans.append((begin, max(begin, end), each.length))
    return spans


def _within(spans: Iterable[tuple[int, int, int]], begin: int, end: int) -> int:
    total = 0
    for first, last, size in spans:
        if first == last:
            total += size if begin <= first < end else 0
        else:
            total += size * max(0, min(last, end) - max(first, begin)) // (last - first)
    return total


def _reclaimable(
    ledgers: Sequence[LedgerSpace], logs: Sequence[LogSpace], now_ms: int
) -> tuple[Reclaimable, ...]:
    deleted = [each for each in ledgers if each.deleted_until_ms]
    over = sum(each.stored for each in deleted if each.deleted_until_ms <= now_ms)
    held = sum(each.stored for each in deleted if each.deleted_until_ms > now_ms)
    staged = sum(each.stored for each in ledgers if each.is_staged and not each.deleted_until_ms)
    gone = sum(each.stored_bytes for each in logs if each.state == "deleted")
    unknown = sum(each.stored_bytes for each in logs if each.state == "unknown")
    found = [
        Reclaimable("deleted ledgers whose grace is over", over, "forget_deleted()"),
        Reclaimable(
            "deleted ledgers that can be brought back", held, "forget_deleted(), when their grace is over"
        ),
        Reclaimable("deleted logs", gone, "forget_deleted(), when their grace is over"),
        Reclaimable("staged for logs, and not spliced in", staged, "the next splice, or its time"),
        Reclaimable(
            "ledgers that name a log which is not there", unknown, "look at them: embedbk spark scrub"
        ),
    ]
    for log in logs:
        if log.consumed_bytes and log.payload_bytes and not log.state:
            stored = log.consumed_bytes * log.stored_bytes // log.payload_bytes
            how = f"embedbk log truncate {log.name}"
            found.append(Reclaimable(f"before all cursors and pins of log {log.name}", stored, how))
    return tuple(each for each in found if each.stored_bytes)


def _ages(ledgers: Iterable[LedgerSpace], now_ms: int) -> tuple[tuple[str, int], ...]:
    sums = dict.fromkeys([name for name, _ in AGES] + ["older"], 0)
    for each in ledgers:
        age_ms = now_ms - each.metadata.created_ms
        sums[next((name for name, most in AGES if age_ms <= most), "older")] += each.stored
    return tuple(sums.items())


def _hot(
    ledgers: Iterable[LedgerSpace], logs: Mapping[str, ReportedLog], now_ms: int, sample_s: float
) -> tuple[HotLedger, ...]:
    found: list[HotLedger] = []
    for each in ledgers:
        if each.metadata.is_closed or each.deleted_until_ms or not each.is_told:
            continue
        is_measured = sample_s > 0 and each.was_entries is not None and each.was_length is not None
        seconds = sample_s if is_measured else max(1, now_ms - each.metadata.created_ms) / 1000
        entries = each.entries - (each.was_entries or 0 if is_measured else 0)
        size = each.length - (each.was_length or 0 if is_measured else 0)
        name = logs[each.log].name if each.log in logs else each.log
        found.append(HotLedger(each.metadata.ledger_id, name, entries / seconds, size / seconds, is_measured))
    found.sort(key=lambda each: (-each.bytes_per_s, each.ledger_id))
    return tuple(each for each in found[:HOT_MAX] if each.entries_per_s > 0)


def _bookies(ledgers: Iterable[LedgerSpace], bookies: Iterable[BookieRoom]) -> tuple[BookieSpace, ...]:
    owed: dict[str, int] = defaultdict(int)
    held: dict[str, int] = defaultdict(int)
    for each in ledgers:
        metadata = each.metadata
        size, quorum = metadata.ensemble_size, metadata.quorum
        named: set[str] = set()
        starts = [part.first_entry for part in metadata.fragments] + [each.entries]
        for number, fragment in enumerate(metadata.fragments):
            last = min(starts[number + 1], each.entries) - 1
            for seat, member in enumerate(fragment.members):
                named.add(member.bookie_id)
                residues = sum(1 << r for r in range(size) if write_set_mask(r, quorum) >> seat & 1)
                count = count_ids(fragment.first_entry, last, size, residues)
                owed[member.bookie_id] += each.length * count // max(1, each.entries)
        for name in named:
            held[name] += 1
    known = {each.bookie_id: each for each in bookies}
    found: list[BookieSpace] = []
    for name in sorted({*known, *held}):
        facts = known.get(name, BookieRoom(name, "away", 0))
        found.append(
            BookieSpace(
                name,
                facts.state,
                facts.free_bytes,
                owed[name],
                held[name],
                facts.disk_bytes,
                facts.dead_bytes,
            )
        )
    return tuple(found)


def _named(kept: KeptLog, logs_of: Mapping[int, str]) -> KeptLog:
    return kept._replace(
        keepers=tuple((each[0], logs_of.get(each[0], UNKNOWN), each[2]) for each in kept.keepers)
    )


def _days_since_first(ledgers: Sequence[LedgerSpace], now_ms: int) -> float:
    return max(((now_ms - each.metadata.created_ms) / DAY_MS for each in ledgers), default=0.0)


def _days_left(
    bookies: Sequence[BookieSpace], growth: Mapping[int, int], payload: int, stored: int, days: float
) -> float | None:
    """Until the free bytes of bookies that take entries are used, if it grows on as in the last week. days: since the
    first ledger that is there began; a cluster that is younger than a week grew in these only."""
    week = sum(size for _, size in sorted(growth.items())[-WEEK_DAYS:])
    free = sum(each.free_bytes for each in bookies if each.state == "writable")
    if not week or not payload or not free or days < 1:
        return None
    return free / (week / min(days, WEEK_DAYS) * stored / payload)
