"""The repair of one ledger by its events: ledgers of many fragments (P11.2)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HoldingsAnswer
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    Fragment,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.lost_entries import Losses
from embedbk.codec.metadata_messages import Put
from embedbk.codec.read_messages import ReadAnswer
from embedbk.codec.repair_mark import RepairMark, encode_repair_mark, repair_mark_path
from embedbk.codec.repair_state import decode_unrepairable, unrepairable_path
from embedbk.core.client_words import Answered, BookieInfo, BookiesChanged, Send
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import (
    KeyRead,
    MetadataFailed,
    ReadKey,
    Transact,
    Transacted,
    TransactUnknown,
)
from embedbk.core.vocabulary import Started, Tick
from embedbk.ids import Member
from embedbk.metadata.claims import repairing_path
from embedbk.repair.circumstances import circumstances
from embedbk.repair.copy_pace import CopyPace
from embedbk.repair.ledger_repair import LedgerRepair

FRAGMENTS = 3_000


def begun(
    metadata: LedgerMetadata, bookies: tuple[BookieInfo, ...], missing: tuple[str, ...]
) -> tuple[LedgerRepair, list[Effect]]:
    """A repair that has read its hold, its mark and its ledger, and what it asks for next."""
    core = LedgerRepair(1, 7, 8, bookies, 9, random.Random(1), CopyPace(0))
    stored = {
        repairing_path(1): (b"me", 7),
        repair_mark_path(1): (encode_repair_mark(RepairMark(1, missing)), 8),
        ledger_key_path(1): (encode_ledger_metadata(metadata), 9),
    }
    effects = core.step(Started(0))
    while isinstance(asked := effects[0], ReadKey):
        effects = core.step(KeyRead(0, asked.tag, *stored[asked.key]))
    return core, effects


def repair(has_room: bool) -> list[Effect]:
    """What a repair of a ledger whose bookies are all gone ends with."""
    gone = tuple((f"b{number}", bytes(16)) for number in (1, 2, 3))
    fragments = tuple(Fragment(number, number, gone) for number in range(FRAGMENTS))
    metadata = LedgerMetadata(
        METADATA_VERSION, 1, 3, 3, 2, LedgerState.CLOSED, FRAGMENTS - 1, FRAGMENTS, b"v", 1, {}, fragments
    )
    bookies = tuple(info(number, is_writable=has_room) for number in (4, 5, 6))
    core, effects = begun(metadata, bookies, ("b1", "b2", "b3"))
    (asked,) = effects
    assert isinstance(asked, Transact)
    return core.step(Transacted(0, asked.tag, True, 10)) if has_room else effects


def info(number: int, *, is_writable: bool = True, is_leaving: bool = False) -> BookieInfo:
    return BookieInfo(Member(f"b{number}", bytes(16)), is_writable, is_leaving=is_leaving)


@pytest.mark.parametrize("has_room", [True, False])
def test_a_ledger_of_very_many_fragments_that_nobody_can_repair_is_given_up(has_room: bool) -> None:
    """AR10, whether nobody has a copy or nobody can take the seats: with the bookies whose copies are missing. A deeper
    call for each fragment ended the process that repairs."""
    (told,) = repair(has_room)
    assert isinstance(told, Transact)
    assert told.then[0].key == unrepairable_path(1)
    assert decode_unrepairable(told.then[0].value).missing == ("b1", "b2", "b3")


def test_what_was_judged_before_somebody_came_is_judged_again() -> None:
    """AR10: nobody can take the seat of b1; while b2 is asked what it holds b4 gets room. The record said that with all
    of these nobody can, so that nobody ever tried again (seed 38000628)."""
    metadata = LedgerMetadata(
        METADATA_VERSION, 1, 3, 3, 2, LedgerState.CLOSED, 9, 90, b"v", 1, {},
        (Fragment(0, 0, tuple((f"b{number}", bytes(16)) for number in (1, 2, 3))),),
    )  # fmt: skip
    full = info(4, is_writable=False)
    for came in (full, info(4)):
        core, (asked,) = begun(metadata, (info(2), info(3), full), ("b1", "b2"))
        assert isinstance(asked, Send)
        core.step(BookiesChanged(0, (info(2), info(3), came)))
        (told,) = core.step(Answered(0, asked.tag, asked.member, HoldingsAnswer(Status.OK, 1, 10)))
        assert isinstance(told, Transact)
        assert told.then[0].key == (unrepairable_path(1) if came is full else repair_mark_path(1))


def test_what_was_judged_of_other_metadata_is_judged_again() -> None:
    """AR10: "judged again when its metadata changes". Entry 0 has no good copy; while the next fragment is repaired an
    operator gives it up. The record said that of the metadata behind his word, so that nobody ever tried again."""
    seats = tuple((f"b{number}", bytes(16)) for number in (1, 2, 3))
    later = (("b1", bytes(16)), ("b4", bytes(16)), ("b5", bytes(16)))
    metadata = LedgerMetadata(
        METADATA_VERSION, 1, 3, 3, 2, LedgerState.CLOSED, 9, 90, b"v", 1, {},
        (Fragment(0, 0, seats), Fragment(5, 45, later)),
    )  # fmt: skip
    given_up = metadata.with_changes(lost=(Losses(((0, 4, 1),), (), 1, "", "", False),))
    stored = {
        repairing_path(1): (b"me", 7),
        repair_mark_path(1): (encode_repair_mark(RepairMark(1, ("b1",))), 8),
        ledger_key_path(1): (encode_ledger_metadata(metadata), 9),
    }
    core = LedgerRepair(1, 7, 8, tuple(map(info, (2, 3, 4, 5))), 9, random.Random(1), CopyPace(0))
    effects, number, judged = core.step(Started(0)), 10, list[int]()
    while effects or core.deadline_ns is not None:
        if not effects:
            effects = core.step(Tick(core.deadline_ns or 0))
            continue
        asked, *effects = effects
        if isinstance(asked, ReadKey):
            effects += core.step(KeyRead(0, asked.tag, *stored[asked.key]))
        elif isinstance(asked, Send):
            effects += core.step(Answered(0, asked.tag, asked.member, ReadAnswer(Status.NO_SUCH_LEDGER, 1)))
        elif isinstance(asked, Transact):
            number += 1
            put = asked.then[0]
            assert isinstance(put, Put)
            is_word = (
                asked.tag[0] == "target" and stored[ledger_key_path(1)][1] == 9 and bool(core.plan.stopped)
            )
            if is_word:  # Nobody knows what became of it, and the metadata is read again.
                stored[ledger_key_path(1)] = encode_ledger_metadata(given_up), number
                effects += core.step(TransactUnknown(0, asked.tag))
                continue
            stored[put.key] = put.value, number
            if put.key == unrepairable_path(1):
                judged.append(decode_unrepairable(put.value).entry_id)
            effects += core.step(Transacted(0, asked.tag, True, number))
        else:
            break
    assert judged == [5], "of which nothing was given up"
    assert decode_ledger_metadata(stored[ledger_key_path(1)][0], 1).fragments[0].ensemble != seats


def test_a_drain_and_its_end_are_other_circumstances() -> None:
    """AR10, P11.3: of a bookie that is read-only, too."""
    states = [info(1, is_writable=is_writable, is_leaving=is_leaving)
              for is_writable in (True, False) for is_leaving in (True, False)]  # fmt: skip
    assert len({circumstances(b"", [state]) for state in states}) == 4


def test_placements_that_nobody_answers_are_no_end_of_a_repair() -> None:
    """P11.2, P10.6: the publication is refused, and the metadata gives no answer about the placement that it compared.
    The repair waited for that answer without an end, and its ledger was locked for as long as the session lived."""
    seats = tuple((f"b{number}", bytes(16)) for number in (1, 2, 3))
    metadata = LedgerMetadata(
        METADATA_VERSION, 1, 3, 3, 2, LedgerState.CLOSED, 0, 1, b"v", 1, {}, (Fragment(0, 0, seats),),
        lost=(Losses(((0, 0, 1),), (), 1, "", "", False),),
    )  # fmt: skip
    target = BookieInfo(Member("b4", bytes(16)), True, placement=5)
    core, (named,) = begun(metadata, (info(2), info(3), target), ("b1",))
    effects = core.step(Transacted(0, named.tag, True, 10))
    while isinstance(asked := effects[0], Send):
        effects = core.step(Answered(0, asked.tag, asked.member, ReadAnswer(Status.NO_SUCH_LEDGER, 1)))
    assert isinstance(asked, Transact)
    (read,) = core.step(Transacted(0, asked.tag, False, 0))
    assert isinstance(read, ReadKey)
    assert core.step(MetadataFailed(0, read.tag, "it takes no more")) == []
    assert core.deadline_ns is not None, "it begins anew"
    (again,) = core.step(Tick(core.deadline_ns))
    assert again == ReadKey(again.tag, repairing_path(1))
    late = KeyRead(0, read.tag, b"", 6)
    assert core.step(late) == [], "an answer that comes late is of a question that was given up"
