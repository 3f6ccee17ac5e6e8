"""Which closed ledgers are marked for their numbers of copies, by events (P2.6)."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import (
    LEDGERS_PREFIX,
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_settings import SettingsRecord, encode_log_settings, log_settings_path
from embedbk.codec.metadata_messages import Refusal
from embedbk.codec.repair_messages import MarkRepairs, RepairsMarked
from embedbk.config import Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import KeyRead, KeysListed, ListKeys, MetadataFailed, ReadKey
from embedbk.core.repair_words import AskQuorum, QuorumAnswered
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import MetadataUnavailable
from embedbk.ids import NO_ENTRY, Member
from embedbk.repair.log_shapes import LogShapes
from embedbk.repair.misfits import Misfits, MisfitSearch, SearchOptions

ONE, THREE = Quorum(1, 1, 1), Quorum(3, 3, 2)


def ledger(
    ledger_id: int, *, quorum: Quorum = ONE, is_open: bool = False, log: bytes = b"jobs"
) -> LedgerMetadata:
    sizes = (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum)
    end = (LedgerState.OPEN, None, None) if is_open else (LedgerState.CLOSED, 4, 40)
    seats = tuple((f"b{number}", bytes(16)) for number in range(1, quorum.ensemble_size + 1))
    return LedgerMetadata(
        METADATA_VERSION, ledger_id, *sizes, *end, b"", 1, {"log": log}, (Fragment(0, 0, seats),)
    )


class Searched:
    """A search, and a metadata quorum that answers it from a dict."""

    def __init__(self, *ledgers: LedgerMetadata, bookies: int = 3, page: int = 2, left_max: int = 10) -> None:
        self.keys = {ledger_key_path(each.ledger_id): encode_ledger_metadata(each) for each in ledgers}
        self.bookies = [BookieInfo(Member(f"b{number}", bytes(16)), True) for number in range(1, bookies + 1)]
        self.options = SearchOptions(page_ledgers=page, ledgers_per_s=page, left_max=left_max)
        self.has_room = self.answers = True
        self.marked: list[int] = []
        self.pages = self.reads = 0

    def run(self, after: int = NO_ENTRY, again: tuple[int, ...] = ()) -> Misfits:
        core = MisfitSearch({"jobs": THREE}, self.bookies, after, again, 7, self.options)
        effects, now_ns = core.step(Started(0)), 0
        while True:
            if not effects:
                assert core.deadline_ns is not None
                now_ns = core.deadline_ns
                effects = core.step(Tick(now_ns))
                continue
            (effect,) = effects
            if isinstance(effect, Ended):
                return effect.result  # type: ignore[no-any-return]
            effects = core.step(self._answer(effect, now_ns))

    def _answer(self, effect: Effect, now_ns: int) -> KeyRead | KeysListed | QuorumAnswered | MetadataFailed:
        if isinstance(effect, AskQuorum):
            assert isinstance(effect.operation, MarkRepairs)
            if not self.has_room:
                return QuorumAnswered(now_ns, effect.tag, Refusal("FULL", "no room"))
            self.marked += [ledger_id for ledger_id, _ in effect.operation.marks]
            assert all(missing == ("b1",) for _, missing in effect.operation.marks)
            return QuorumAnswered(now_ns, effect.tag, RepairsMarked(9))
        assert isinstance(effect, ReadKey | ListKeys)
        if not self.answers:
            return MetadataFailed(now_ns, effect.tag, "nobody answers")
        if isinstance(effect, ReadKey):
            self.reads += 1
            return KeyRead(now_ns, effect.tag, self.keys.get(effect.key), 3)
        self.pages += 1
        found = [each for each in sorted(self.keys.items()) if each[0] > effect.after]
        return KeysListed(now_ns, effect.tag, found[: effect.limit], len(found) > effect.limit)


def test_all_ledgers_are_looked_at_once_and_then_those_that_are_newer_or_were_left() -> None:
    """P2.6: costs grow with the work: "what was left, one read each", and the pages behind the newest."""
    searched = Searched(
        ledger(1), ledger(2, quorum=THREE), ledger(3, is_open=True), ledger(4, log=b"other"), ledger(5)
    )
    assert searched.run() == Misfits(5, (1, 3, 5), 2, True)
    assert (searched.marked, searched.pages) == ([1, 5], 3)
    searched.keys[ledger_key_path(1)] = encode_ledger_metadata(ledger(1, quorum=THREE))
    searched.keys[ledger_key_path(6)] = encode_ledger_metadata(ledger(6))
    del searched.keys[ledger_key_path(5)]
    assert searched.run(5, (1, 3, 5)) == Misfits(6, (3, 6), 1, True)
    assert (searched.marked, searched.pages, searched.reads) == ([1, 5, 6], 4, 3)


def test_no_mark_is_made_where_too_few_bookies_take_copies_or_none_has_any() -> None:
    """P2.6: "Where too few bookies take copies [...] the ledger stays as it is, and is looked at again"; a mark never
    names a bookie that is away, which would lose its seats at once (P11.2)."""
    searched = Searched(ledger(1), bookies=2)
    assert searched.run() == Misfits(1, (1,), 0, True)
    searched.bookies = [BookieInfo(Member(f"b{number}", bytes(16)), True) for number in (2, 3, 4)]
    assert searched.run() == Misfits(1, (1,), 0, True) and searched.marked == []


def test_strangers_keys_and_what_cannot_be_read_end_no_search() -> None:
    """P2.5: pages that are full of others' keys are walked through, too."""
    searched = Searched(ledger(1), ledger(9))
    searched.keys |= {f"{LEDGERS_PREFIX}zz{number}": b"?" for number in range(5)}
    searched.keys[ledger_key_path(4)] = b"?"
    searched.keys[ledger_key_path(5)] = encode_ledger_metadata(ledger(5, log=b"\xff"))
    assert searched.run() == Misfits(9, (1, 9), 2, True)


@pytest.mark.parametrize("has_room", [True, False])
def test_what_is_not_marked_or_not_remembered_is_looked_at_again(has_room: bool) -> None:
    """P2.6: "looked at again": a refused mark, and a search without answers, leave what they found."""
    searched = Searched(*(ledger(number) for number in range(1, 6)), page=9, left_max=10 if has_room else 3)
    searched.has_room = has_room
    assert searched.run() == (
        Misfits(5, (1, 2, 3, 4, 5), 5, True) if has_room else Misfits(5, (1, 2, 3), 0, False)
    )
    searched.answers = False
    assert searched.run(5, (1, 2)) == Misfits(5, (1, 2), 0, False)


def test_the_settings_of_many_logs_are_read_some_at_a_time() -> None:
    """P2.6: health asks for each log's settings, and is an error where no member answers."""
    core = LogShapes(f"log{number}" for number in range(200))
    effects, asked = core.step(Started(0)), 0
    value = encode_log_settings(SettingsRecord(1, 3, 3, 2))
    while not isinstance(effects[-1], Ended):
        assert len(core.asked) <= 64
        effect, *effects = effects
        assert isinstance(effect, ReadKey)
        asked += 1
        given = value if effect.key == log_settings_path("log7") else b"?" if asked % 2 else None
        effects += core.step(KeyRead(0, effect.tag, given, 3))
    assert effects == [Ended(None, {"log7": THREE})] and asked == 200
    core = LogShapes(["jobs"])
    (effect,) = core.step(Started(0))
    assert isinstance(effect, ReadKey)
    (ended,) = core.step(MetadataFailed(0, effect.tag, "nobody answers"))
    assert isinstance(ended, Ended) and isinstance(ended.error, MetadataUnavailable)
