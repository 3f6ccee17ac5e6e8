"""Retention of logs that nobody writes, by one elected host (P8.8): the keeper by its events, and beside owners."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from embedbk.client.password import NO_PASSWORD
from embedbk.codec.ledger_metadata import LogList, decode_log_list, encode_log_list, log_key_path
from embedbk.codec.log_identity import (
    LogIdentity,
    LogIdentityState,
    encode_log_identity,
    log_identity_path,
)
from embedbk.codec.log_settings import SettingsRecord, encode_log_settings, log_settings_path
from embedbk.codec.repair_state import AUDITOR_LOCK
from embedbk.config import Roll
from embedbk.core.machine import Effect, Event
from embedbk.core.metadata_words import (
    KeyRead,
    KeysListed,
    ListKeys,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
)
from embedbk.core.truncating import LogTruncating
from embedbk.core.vocabulary import Started, Tick
from embedbk.metadata.claims import lock_path
from embedbk.metadata.levels import LEVEL, LEVEL_OF_FRONTS
from embedbk.repair.log_keeping import LogKeeper, LogKeeperOptions
from embedbk.testing import Cluster
from tests.repair.healed import OPTIONS as REPAIRS
from tests.repair.healed import Healed
from tests.scenarios.carried import id_of

MS, SECOND = 1_000_000, 1_000_000_000
OPTIONS = LogKeeperOptions(
    NO_PASSWORD,
    round_ns=10 * SECOND,
    look_ns=SECOND,
    page_logs=2,
    logs_per_s=4,
    log_ns=2 * SECOND,
    grace_ms=500,
)
RETAINS = encode_log_settings(SettingsRecord(1, retention_bytes=0))


# --- By its events -----------------------------------------------------------------------------------------


class Desk:
    """The keeper, and a metadata quorum that answers it from a dict."""

    def __init__(self, logs: int, settings: bytes | None = RETAINS) -> None:
        self.keeper = LogKeeper(b"me", (), OPTIONS)
        self.keys: dict[str, bytes] = {lock_path(AUDITOR_LOCK): b"me"}
        for number in range(logs):
            named = LogIdentity(1, f"log{number}", LogIdentityState.NAMED)
            self.keys[log_identity_path(f"~{number:016x}")] = encode_log_identity(named)
            if settings is not None:
                self.keys[log_settings_path(f"~{number:016x}")] = settings
        self.asked: list[str] = []  # Keys and prefixes, in order.
        self.held: list[Effect] = []  # Questions about logs that are not answered.
        self.holds = False
        self.fails = False
        self.level = LEVEL
        self.now_ns = 0
        self.take(self.keeper.step(Started(0)))

    def take(self, todo: list[Effect]) -> None:
        while todo:
            effect, *todo = todo
            if self.holds and isinstance(effect, ReadKey) and effect.key.endswith(("/list", "/truncated")):
                self.held.append(effect)
            else:
                todo += self.keeper.step(self.answer(effect))

    def answer(self, effect: Effect) -> Event:
        now = self.now_ns
        if isinstance(effect, ReadKey):
            self.asked.append(effect.key)
            if self.fails:
                return MetadataFailed(now, effect.tag, "no answer")
            value = self.keys.get(effect.key)
            return KeyRead(now, effect.tag, value, 7 if value is not None else 0, self.level)
        if isinstance(effect, ListKeys):
            self.asked.append(effect.prefix)
            found = sorted(each for each in self.keys.items() if each[0].startswith(effect.prefix))
            found = [each for each in found if each[0] > effect.after]
            return KeysListed(now, effect.tag, found[: effect.limit], len(found) > effect.limit)
        assert isinstance(effect, Transact)
        return Transacted(now, effect.tag, False, 9)

    def run(self, for_ns: int) -> None:
        end = self.now_ns + for_ns
        while (due := self.keeper.deadline_ns) is not None and due <= end:
            self.now_ns = max(self.now_ns, due)
            self.take(self.keeper.step(Tick(self.now_ns)))
        self.now_ns = end

    def count(self, part: str) -> int:
        return sum(part in key for key in self.asked)


def test_who_is_not_the_auditor_looks_at_no_log() -> None:
    """P8.8: "elected is whoever is the auditor"; one question each look."""
    desk = Desk(3)
    desk.keys[lock_path(AUDITOR_LOCK)] = b"another"
    desk.run(100 * SECOND)
    assert set(desk.asked) == {lock_path(AUDITOR_LOCK)} and len(desk.asked) == 100
    desk.keys[lock_path(AUDITOR_LOCK)] = b"me"
    desk.run(2 * SECOND)
    assert desk.count("/settings") > 0


def test_a_round_costs_a_question_a_log_and_so_many_logs_a_second() -> None:
    """P8.8: "page by page, so many per second"; "a log without retention costs one question"."""
    desk = Desk(7, settings=encode_log_settings(SettingsRecord(1, properties={"a": b"1"})))
    desk.run(SECOND)
    assert desk.count("/settings") == 2, "a page"
    desk.run(10 * SECOND)
    assert desk.count("/settings") == 7 and desk.count("/list") == 0 and desk.keeper.rounds == 1
    assert desk.count(lock_path(AUDITOR_LOCK)) >= 4, "before each page it is read again who is elected"
    desk.run(10 * SECOND)
    assert desk.count("/settings") == 14 and desk.keeper.rounds == 2


def test_who_is_elected_no_more_stops_before_the_next_page() -> None:
    desk = Desk(7)
    desk.run(SECOND)
    desk.keys[lock_path(AUDITOR_LOCK)] = b"another"
    desk.run(30 * SECOND)
    assert desk.count("/settings") == 2
    desk.keys[lock_path(AUDITOR_LOCK)] = b"me"
    desk.run(9 * SECOND)
    assert desk.count("/settings") == 9, "from the beginning"


def test_what_is_deleted_or_cannot_be_read_is_passed_over() -> None:
    """P2.5: nothing is judged that cannot be read."""
    desk = Desk(4)
    deleted = LogIdentity(1, "log0", LogIdentityState.DELETED, 1, 2)
    desk.keys[log_identity_path(f"~{0:016x}")] = encode_log_identity(deleted)
    desk.keys[log_identity_path(f"~{1:016x}")] = b"what is this"
    desk.keys[log_settings_path(f"~{2:016x}")] = b"what is this"
    desk.run(5 * SECOND)
    assert desk.count("/settings") == 2 and desk.count("/list") == 1


def test_a_log_that_answers_nothing_is_given_up_and_its_answers_are_no_others() -> None:
    """P8.8: "as long as one log may take"; an answer that comes late is about the log that was asked about. Else: what
    stands in the list of one log is judged, and taken off, by that of another."""
    desk = Desk(2)
    desk.holds = True
    desk.run(SECOND)
    (late,) = desk.held
    assert isinstance(late, ReadKey) and f"~{0:016x}" in late.key
    desk.run(2 * SECOND)  # It is given up, and the next one is under way.
    assert len(desk.held) == 2 and desk.keeper.log == f"~{1:016x}"
    assert desk.keeper.step(desk.answer(late)) == []
    assert desk.keeper.step(MetadataFailed(desk.now_ns, late.tag, "late")) == []
    desk.holds = False
    before = desk.count("/list")
    desk.take([desk.held[1]])
    assert desk.count("/list") == before + 1 and desk.asked[-1] == log_key_path(f"~{1:016x}")


def test_what_retention_truncates_is_compared_with_the_settings_that_ask_for_it() -> None:
    """P8.8: "the transaction of retention and of a bound compares the settings": the core is told at which revision."""
    desk = Desk(1)
    desk.keys[log_key_path(f"~{0:016x}")] = encode_log_list(LogList(1, 0, ()))
    desk.run(SECOND)
    assert desk.count("/settings") == 2, "read again behind the list"


@pytest.mark.parametrize("level", [LEVEL_OF_FRONTS - 1, LEVEL_OF_FRONTS])
def test_where_ledgers_stood_is_noted_from_its_level_on(level: int) -> None:
    """P8.15, P10.8: a build before would drop the note, and takes a list without pages for one that has no number."""
    desk = Desk(1)
    desk.holds, desk.level = True, level
    desk.run(SECOND)
    assert isinstance(desk.keeper.part, LogTruncating)
    assert desk.keeper.part.notes_places == (level >= LEVEL_OF_FRONTS)


def test_metadata_that_does_not_answer_is_asked_again_later() -> None:
    """ "Cannot tell" is never "there is nothing": no round has come to its end."""
    desk = Desk(2)
    desk.fails = True
    desk.run(30 * SECOND)
    assert desk.keeper.rounds == 0
    desk.fails = False
    desk.run(30 * SECOND)
    assert desk.keeper.rounds > 0 and desk.count("/list") >= 2


# --- In a cluster ------------------------------------------------------------------------------------------


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=103, bookies=3) as cluster:
        yield cluster


def listed(cluster: Cluster, name: str) -> LogList:
    return decode_log_list(cluster.world.committed("/logs/")[log_key_path(id_of(cluster, name))])


def written(cluster: Cluster, name: str, password: bytes = b"") -> None:
    log = cluster.client("a").create_log(name, roll=Roll(bytes=None, entries=2), retention_bytes=0)
    assert log is not None
    with cluster.client("w").log(name, password=password).writer() as writer:
        for number in range(8):
            writer.append(b"%d" % number)
            cluster.run_for(0.1)


def test_what_an_elected_host_truncates_can_be_put_back(cluster: Cluster) -> None:
    """P8.15: it notes where the ledgers stood, as an owner does."""
    written(cluster, "one")
    keeping = replace(OPTIONS, round_ns=1_000 * SECOND, grace_ms=600_000)
    Healed(cluster).repairer("h1", replace(REPAIRS, logs=keeping))
    cluster.run_for(20.0)
    began = listed(cluster, "one").first_offset
    assert began >= 6
    log = cluster.client("a").log("one")
    done = log.undelete()
    assert (done.began, done.reached, done.why) == (began, 0, "")
    assert [bytes(each.data) for each in log.read()] == [b"%d" % number for number in range(8)]


def test_one_elected_host_keeps_retention_of_logs_that_nobody_writes(cluster: Cluster) -> None:
    """P8.8: never past a pin or a cursor that holds; a log with a password is its owner's alone; the next host that is
    elected goes on."""
    written(cluster, "one")
    written(cluster, "secret", b"sesame")
    log = cluster.client("a").log("one")
    log.cursor("billing").set(3)
    options = replace(REPAIRS, logs=replace(OPTIONS, round_ns=2 * SECOND))
    hosts = {name: Healed(cluster).repairer(name, options) for name in ("h1", "h2")}
    cluster.run_for(20.0)
    assert listed(cluster, "one").first_offset == 2, "as far as the cursor allows"
    assert listed(cluster, "secret").first_offset == 0
    by = {name: host.retained for name, host in hosts.items()}
    assert sorted(by.values()) == [0, 1], "one of them"
    elected = next(name for name, host in hosts.items() if host.auditor.is_auditor)
    assert by[elected] == 1
    cluster.crash(elected)
    log.cursor("billing").set(8)
    cluster.run_for(60.0)
    assert listed(cluster, "one").first_offset >= 6, "the other one, once the session of the first is over"
    assert len(list(log.read())) == 8 - listed(cluster, "one").first_offset


def test_a_host_whose_clock_is_set_later_goes_by_it(cluster: Cluster) -> None:
    """P8.8: "by the wall clock as it is then": one that began before its clock was right takes nothing for older."""
    log = cluster.client("a").create_log("one", roll=Roll(bytes=None, entries=2), retention_s=3_600)
    with log.writer() as writer:
        for number in range(8):
            writer.append(b"%d" % number)
            cluster.run_for(0.1)
    right_ms = cluster.client("a")._runtime.wall_ms()
    cluster.world.wall_ms = right_ms + 30 * 86_400_000
    Healed(cluster).repairer("h1", replace(REPAIRS, logs=OPTIONS))
    cluster.world.wall_ms = right_ms
    cluster.run_for(30.0)
    assert listed(cluster, "one").first_offset == 0
    cluster.world.wall_ms = right_ms + 2 * 3_600_000
    cluster.run_for(30.0)
    assert listed(cluster, "one").first_offset >= 6
