"""A log's bound in bytes (P8.8): at it appends are refused, or the oldest ledgers are let go, as the settings say."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from embedbk import LedgerFenced, LogAtBound, Truncated, UsageError
from embedbk.client.bounding import bound_of
from embedbk.client.ledger import queue_blocking
from embedbk.client.log import Log
from embedbk.client.log_writer import LogWriter
from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import LogList, decode_log_list, log_key_path
from embedbk.codec.log_settings import SettingsRecord, encode_log_settings
from embedbk.config import Roll
from embedbk.core.log_paging import recorded_bytes
from embedbk.testing import Cluster
from embedbk.testing.arrow_bytes import ArrowBytes
from tests.scenarios.carried import id_of

NAME = "one"
BOUND = 1_600
ENTRY = b"x" * 50


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=102, bookies=3) as cluster:
        yield cluster


def listed(cluster: Cluster) -> LogList:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(id_of(cluster, NAME))])


def fill(writer: LogWriter, count: int = 1_000) -> int:
    """Append until it is refused; how many were taken."""
    for number in range(count):
        try:
            writer.append(ENTRY)
        except LogAtBound:
            return number
    return count


def bounded_log(cluster: Cluster, **settings: Any) -> tuple[Log, LogWriter]:
    log = cluster.client("a").create_log(NAME, bytes_max=BOUND, **settings)
    writer = cluster.client("w").log(NAME).writer()
    return log, writer


def test_at_its_bound_a_log_refuses_appends_and_says_what_holds_it(cluster: Cluster) -> None:
    """P8.8: "refused, definitely, by an error that says how many bytes there are, how many may be, and what holds
    them"; "the first append that meets the bound is the last one"."""
    log, writer = bounded_log(cluster)
    told = log.settings()
    assert (told.bytes_max, told.at_bytes_max) == (BOUND, "refuse")
    assert fill(writer) == BOUND // len(ENTRY)
    cluster.run_for(2.0)
    with pytest.raises(LogAtBound, match="has 1600 payload bytes, and its bound is 1600") as met:
        writer.append(ENTRY)
    assert met.value.definite and (met.value.byte_count, met.value.bytes_max) == (BOUND, BOUND)
    assert (met.value.held_by, met.value.holder) == ("", "") and "truncate()" in met.value.hint
    log.cursor("billing").set(5)
    cluster.run_for(2.0)
    with pytest.raises(LogAtBound, match="its cursor 'billing' holds everything from offset 5 on") as met:
        writer.append(ENTRY)
    assert (met.value.held_by, met.value.holder) == ("cursor", "billing")
    log.pin("copy", 3, ttl_s=1_000.0)
    cluster.run_for(2.0)
    with pytest.raises(LogAtBound, match="its pin 'copy' holds everything from offset 3 on") as met:
        writer.append(ENTRY)
    assert (met.value.held_by, met.value.holder) == ("pin", "copy") and "unpin()" in met.value.hint
    assert [len(entry) for entry in log.read()] == [50] * 32, "nothing went, and nothing more came"
    assert not writer.lost(0.1), "the writer is as it was"


def test_every_way_to_append_meets_the_bound(cluster: Cluster) -> None:
    """ "Every way to append"; what a producer appended before is still answered with its place."""
    log, writer = bounded_log(cluster)
    first = writer.append(ENTRY, producer=(7, 1))
    fill(writer)
    ways: list[Callable[[], object]] = [
        lambda: writer.append(ENTRY),
        lambda: writer.append(ENTRY, timeout_s=5.0),
        lambda: writer.append(ENTRY, producer=(7, 2)),
        lambda: writer.append(ENTRY, after=writer.last_position),
        lambda: writer.append_batch([b"a", b"b"]),
        lambda: writer.append_nowait(ENTRY),
        lambda: queue_blocking(writer._appending, ENTRY, ""),
        lambda: writer.append_many([ENTRY, ENTRY]),
        lambda: writer.append_many([ENTRY, ENTRY], timeout_s=5.0),
        lambda: writer.append_arrow(ArrowBytes([ENTRY], "z", chunk=3), ""),
    ]
    for pause_s in (0.0, 2.0):
        for way in ways:
            cluster.run_for(pause_s)  # Behind it the log is looked at again.
            with pytest.raises(LogAtBound) as met:
                way()
            assert met.value.definite
    assert writer.append(ENTRY, producer=(7, 1)) == first
    assert len(list(log.read())) == BOUND // len(ENTRY)


def test_appends_go_on_once_there_is_room(cluster: Cluster) -> None:
    """P8.8: "tried again once the front was truncated": also by retention, which is kept at the bound at once; and a
    higher bound counts at the next look."""
    log, writer = bounded_log(cluster)
    fill(writer)
    cluster.run_for(2.0)
    log.truncate(20)
    begins = listed(cluster).first_offset
    assert 0 < begins <= 20
    assert writer.append(ENTRY) is not None, "it looked again"
    assert fill(writer) == begins - 1, "as many as went"
    assert len(list(log.read())) == BOUND // len(ENTRY)
    log.change(bytes_max=2 * BOUND)
    cluster.run_for(2.0)
    assert fill(writer) == BOUND // len(ENTRY)
    log.cursor("billing").set(70)
    log.change(retention_bytes=0)
    cluster.run_for(2.0)
    assert fill(writer) > 10, "what was consumed went, as retention allows it"
    assert 50 < listed(cluster).first_offset <= 70
    log.change(bytes_max=None)
    cluster.run_for(2.0)
    assert fill(writer, 100) == 100


def test_a_log_may_let_go_of_its_slowest_cursor_and_its_consumer_is_told(cluster: Cluster) -> None:
    """P8.8: "never silently": the cursor says that it holds no more and why, and its consumer gets Truncated."""
    log, writer = bounded_log(cluster, at_bytes_max="let_go")
    log.cursor("forgotten").set(0)
    log.cursor("quick").set(0)
    for number in range(100):
        writer.append(ENTRY)
        if number % 5 == 0:
            log.cursor("quick").set(number)
        cluster.run_for(0.02)
        now = listed(cluster)
        assert recorded_bytes(now) <= BOUND
        assert number < 40 or (number + 1 - now.first_offset) * len(ENTRY) >= BOUND // 2, "no more than must"
    states = {each.name: each for each in log.cursors()}
    assert (states["forgotten"].holds, states["forgotten"].ended) == (False, "bound")
    assert (states["quick"].holds, states["quick"].ended) == (True, "")
    begins = listed(cluster).first_offset
    assert 60 < begins < 95
    left = [len(entry) for entry in log.read()]
    assert BOUND // 2 <= sum(left) <= BOUND
    with pytest.raises(Truncated) as gone, log.cursor("forgotten").consume(idle_s=0.5) as entries:
        next(iter(entries))
    assert gone.value.first_offset == begins


def test_a_pin_is_never_let_go(cluster: Cluster) -> None:
    """P8.8: "never past a pin: what it holds has appends refused"."""
    log, writer = bounded_log(cluster, at_bytes_max="let_go")
    log.cursor("forgotten").set(0)
    log.pin("copy", 0, ttl_s=1_000.0)
    assert fill(writer) == BOUND // len(ENTRY)
    cluster.run_for(2.0)
    with pytest.raises(LogAtBound, match="its pin 'copy' holds everything from offset 0 on"):
        writer.append(ENTRY)
    assert listed(cluster).first_offset == 0
    assert [each.holds for each in log.cursors()] == [True], "nothing is let go of in vain"
    log.unpin("copy")
    cluster.run_for(2.0)
    assert fill(writer, 100) == 100


def test_settings_that_say_refuse_by_now_let_nothing_go(cluster: Cluster) -> None:
    """ "What a held cursor holds is never let go where the setting says refuse": its owner reads them at each look."""
    log, writer = bounded_log(cluster, at_bytes_max="let_go")
    log.cursor("forgotten").set(0)
    assert fill(writer, 26) == 26  # Below 7/8.
    log.change(at_bytes_max="refuse")
    assert fill(writer) == BOUND // len(ENTRY) - 26, "its owner has not looked for changes yet"
    assert [each.holds for each in log.cursors()] == [True] and listed(cluster).first_offset == 0


def test_one_call_stops_where_its_part_met_the_bound(cluster: Cluster) -> None:
    """P8.8: "judged before each part that is queued": what was queued stays, and the error says that."""
    log, writer = bounded_log(cluster)
    writer.append_many([ENTRY] * 31)
    appended = writer.append_many([ENTRY] * 3)
    assert appended.entry_count == 3, "a part goes whole, so that it passes the bound by no more than itself"
    with pytest.raises(LogAtBound):
        writer.append(ENTRY)
    assert len(list(log.read())) == 34


def test_the_next_owner_counts_what_is_there(cluster: Cluster) -> None:
    log, writer = bounded_log(cluster)
    fill(writer, 20)
    with cluster.client("v").log(NAME).writer() as later:
        assert later._line.log_bytes.byte_count() == 20 * len(ENTRY), "before it looks at the list itself"
        assert fill(later) == BOUND // len(ENTRY) - 20
        later.renew()
        cluster.run_for(2.0)
        with pytest.raises(LogAtBound):
            later.append(ENTRY)
    writer.release()
    assert len(list(log.read())) == BOUND // len(ENTRY)


def test_who_lost_the_log_is_told_that_and_not_of_its_bound(cluster: Cluster) -> None:
    """P8.8, P8.4: an owner at its bound sends nothing, so that no bookie says that it is fenced; its look shows it."""
    _, writer = bounded_log(cluster)
    fill(writer)
    with cluster.client("v").log(NAME).writer():
        cluster.run_for(2.0)
        with pytest.raises(LedgerFenced):
            writer.append(ENTRY)
    writer.release()


def test_a_bound_below_what_is_there_is_reached_at_once(cluster: Cluster) -> None:
    """P8.8: "a ledger has at most an eighth of the bound"; one that has more is left, so that it may go."""
    with cluster.client("w").log(NAME).writer(roll=Roll(bytes=None, entries=1_000)) as writer:
        for _ in range(100):
            writer.append(ENTRY)
        log = cluster.client("a").log(NAME)
        log.change(bytes_max=BOUND, at_bytes_max="let_go")
        cluster.run_for(15.0)
        assert len(listed(cluster).segments) == 2, (
            "all was in the ledger of now, which never goes: it was left"
        )
        assert writer.append(ENTRY) is not None
        assert listed(cluster).first_offset == 100


@pytest.mark.parametrize("way", ["timeout", "nowait", "many"])
def test_an_append_that_waits_for_room_keeps_no_ledger_from_being_left(cluster: Cluster, way: str) -> None:
    """P8.8: "one that has more, and nothing comes to, is left". The roll waited for the append, and the append for the
    roll, until one of them gave up (seed 38000168)."""
    bound = 4 * len(ENTRY)
    log = cluster.client("a").create_log(NAME, bytes_max=bound, at_bytes_max="let_go")
    with cluster.client("w").log(NAME).writer(roll=Roll(bytes=None, entries=1_000)) as writer:
        ways: dict[str, Callable[[], object]] = {
            "timeout": lambda: writer.append(ENTRY, timeout_s=20.0),
            "nowait": lambda: writer.append_nowait(ENTRY).result(),
            "many": lambda: writer.append_many([ENTRY] * 5),
        }
        begun_ns = cluster.world.now_ns
        for _ in range(20):
            ways[way]()
        assert cluster.world.now_ns - begun_ns < 10 * 10**9
        assert len(listed(cluster).segments) < 10
        assert sum(len(entry) for entry in log.read()) <= 2 * bound


def test_what_no_list_records_yet_counts(cluster: Cluster) -> None:
    """P8.8: "by what the list records of closed ledgers and by all that it queued itself": also what it queued before
    the log had a bound (seed 38000738), and whatever an older list says, in which its ledgers do not stand yet."""
    cluster.client("a").create_log(NAME)
    writer = cluster.client("w").log(NAME).writer()
    line = writer._line
    older = listed(cluster), line.taken.list_revision
    for count in (20, 40):
        writer.append_many([ENTRY] * 20)
        writer.roll()
        line.log_bytes.note(*older)
        assert line.log_bytes.byte_count() == count * len(ENTRY)
    cluster.run_for(5.0)
    writer.append_many([ENTRY] * 20)
    writer.roll()
    assert line.log_bytes.byte_count() == 60 * len(ENTRY)
    assert len(line.log_bytes._unrecorded) <= 2, "what a list records is forgotten"
    writer.close()


def test_an_owner_that_learns_of_a_bound_keeps_to_it_at_once(cluster: Cluster) -> None:
    """P8.8: "the first append that meets the bound is the last one", also where a splice found the settings that have
    one (seed 68000105: the owner's ledgers rolled by nothing, so that nobody looked before its keeper's next round)."""
    log = cluster.client("a").create_log(NAME, roll=Roll(bytes=None))
    writer = cluster.client("w").log(NAME).writer()
    log.change(bytes_max=BOUND)
    as_found = SettingsRecord(1, bytes_max=BOUND, at_bytes_max=0)
    writer._line.bound_by(bound_of(as_found, 1))
    with contextlib.suppress(LogAtBound):  # No time goes by before the bound, in which its keeper would look.
        for _ in range(100):
            writer.append_nowait(ENTRY)
    assert writer._line.log_bytes.byte_count() == BOUND


def test_a_splice_that_is_too_much_is_refused_whole(cluster: Cluster) -> None:
    """P8.8: "what is spliced is judged by its whole length, before any of it is": by whoever splices, and by the
    owner; it may be tried again."""
    log, writer = bounded_log(cluster)
    fill(writer, 25)
    other = cluster.client("b").log(NAME)
    terms = other.staging("import", 1)
    with other.stage(terms) as part:
        part.add_many([ENTRY] * 10)
    with pytest.raises(LogAtBound, match="500 more bytes are to be spliced") as met:
        other.splice(terms, [part.ledger_id])
    assert met.value.definite and met.value.bytes_max == BOUND
    with pytest.raises(LogAtBound):
        cluster.client("w").log(NAME).splice(terms, [part.ledger_id])
    assert len(list(log.read())) == 25
    writer.append(ENTRY)  # No list has it yet.
    room = BOUND - recorded_bytes(listed(cluster))
    assert room // 50 * 50 + 26 * 50 > BOUND, "by the list alone there is room"
    closer = other.staging("closer", 1)
    with other.stage(closer) as part_of_it:
        part_of_it.add_many([ENTRY] * (room // 50))
    with pytest.raises(LogAtBound, match="the owner of log 'one' did not splice") as met:
        other.splice(closer, [part_of_it.ledger_id])
    assert met.value.definite and met.value.bytes_max == BOUND
    log.truncate(10)
    assert other.splice(terms, [part.ledger_id]).first_offset == 26
    writer.close()
    late = other.staging("import", 2)
    with other.stage(late) as part:
        part.add_many([ENTRY] * 20)
    with pytest.raises(LogAtBound):  # Nobody writes, and whoever splices judges alone.
        other.splice(late, [part.ledger_id])
    log.change(at_bytes_max="let_go")
    log.cursor("forgotten").set(12)
    assert other.splice(late, [part.ledger_id]).end == 56
    assert [each.ended for each in log.cursors()] == ["bound"]
    huge = other.staging("import", 3)
    with other.stage(huge) as part:
        part.add_many([ENTRY] * 40)
    before = listed(cluster)
    with pytest.raises(LogAtBound):
        other.splice(huge, [part.ledger_id])
    assert listed(cluster) == before, "nothing is let go for what does not fit in any case"


def test_who_cannot_look_is_refused_and_told_why(cluster: Cluster) -> None:
    """ "Cannot tell" is never "there is room"; the wait for it ends."""
    log, writer = bounded_log(cluster)
    fill(writer)
    cluster.run_for(2.0)
    cluster.crash("metadata")
    with pytest.raises(LogAtBound, match=r"and its list cannot be looked at: .*did not answer") as met:
        writer.append(ENTRY)
    assert met.value.definite
    cluster.restart("metadata")
    cluster.run_for(5.0)
    log.truncate(10)
    assert writer.append(ENTRY) is not None


def test_bad_bounds_change_nothing(cluster: Cluster) -> None:
    log = cluster.client("a").create_log(NAME)
    before = log.settings()
    bad: list[dict[str, Any]] = [
        {"bytes_max": 0},
        {"bytes_max": 1.5},
        {"bytes_max": True},
        {"bytes_max": 10, "at_bytes_max": "drop"},
        {"at_bytes_max": "let_go"},
    ]
    for wanted in bad:
        with pytest.raises(UsageError):
            log.change(**wanted)
    assert log.settings() == before
    log.change(bytes_max=10, at_bytes_max="let_go")
    assert log.change(bytes_max=20).at_bytes_max == "let_go"
    assert log.change(at_bytes_max=None)[11:13] == (20, "refuse")
    assert log.change(bytes_max=None)[11:13] == (None, None)


def test_below_the_level_there_is_none(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8: owners of the build before do not keep it, and settings without it are written as they read them."""
    log = cluster.client("a").create_log(NAME)
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < 20)
    with pytest.raises(UsageError, match="needs level 20"):
        log.change(bytes_max=1_000)
    with pytest.raises(UsageError, match="needs level 20"):
        cluster.client("a").create_log("two", bytes_max=1_000)
    assert len(encode_log_settings(SettingsRecord(1))) == 1 + 1 + 8 + 1, "ten fields, as ever"
