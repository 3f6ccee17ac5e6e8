"""P8.14: bookies give their copies up by one transaction, on proof, and never where anything forbids it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from embedbk.codec.freed_ledger import Freed
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgerMetadata,
    LedgerState,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.log_archives import (
    ArchivePlace,
    ArchiveRecord,
    ArchiveState,
    archive_path,
    encode_archive_record,
)
from embedbk.codec.log_cursors import (
    CursorHold,
    CursorRecord,
    LogCursors,
    NamedCursor,
    cursor_path,
    encode_cursor,
    encode_log_cursors,
    log_cursors_path,
)
from embedbk.codec.log_pins import LogPins, PinRecord, encode_log_pins, log_pins_path
from embedbk.codec.lost_entries import Losses
from embedbk.codec.metadata_messages import ABSENT, Delete
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_state import unrepairable_path
from embedbk.core.archiving import Claim
from embedbk.core.freeing import Freeing, FreeTerms
from embedbk.core.machine import Effect
from embedbk.core.metadata_words import KeyRead, Transact
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import (
    LockLost,
    MetadataConflict,
    MetadataUnavailable,
    NoSuchLedger,
    NotFreed,
    StorageError,
)
from tests.rules.test_p8_archives import (
    HASH,
    LEDGER,
    LOCK,
    OTHER_HASH,
    PATH,
    outcome,
    put,
    put_ledger,
    put_record,
)
from tests.rules.test_p8_logs import LOG
from tests.rules.test_p8_pages import run
from tests.rules.test_p8_truncating import NOW_MS, held_at
from tests.rules.world import Client, World

KEY = ledger_key_path(LEDGER)
PLACE = ArchivePlace(b"a" * 16, "/archive")
END = 30  # The ledger has the offsets 20 to 29 of its log.
TERMS = FreeTerms(HASH, PLACE, END, 0, "me")


def freeable(
    state: LedgerState = LedgerState.CLOSED, of: bytes = LOG.encode(), last: int = 9
) -> tuple[World, int]:
    """A world in which the ledger may be freed, and the epoch of the lock that its job has."""
    world = World()
    put_ledger(world, state, of, last)
    put_record(world, ArchiveState.VERIFIED, 1, 2)
    return world, put(world, LOCK, b"me")


def freeing(world: World, epoch: int, terms: FreeTerms = TERMS) -> Client:
    return world.client(f"job at {world.catalog.revision}", Freeing(LOG, LEDGER, terms, LOCK, epoch, NOW_MS))


def freed(world: World, epoch: int, terms: FreeTerms = TERMS) -> Any:
    """The ledger's metadata behind it, or the error."""
    client = run(world, freeing(world, epoch, terms))
    return client.ended.error or client.ended.result


def ledger_in(world: World) -> LedgerMetadata:
    return decode_ledger_metadata(world.catalog.values[KEY][0], LEDGER)


def test_a_verified_ledger_names_no_bookie_any_more() -> None:
    """ "records place and manifest in the ledger's metadata, and takes the bookies out of its fragments"."""
    world, epoch = freeable()
    before = ledger_in(world)
    after = freed(world, epoch)
    assert after == ledger_in(world)
    assert after.freed == Freed(PLACE.archive_id, PLACE.path, HASH, NOW_MS, "me")
    assert [(each.first_entry, each.ensemble) for each in after.fragments] == [(0, ())]
    assert after.with_changes(freed=None, fragments=before.fragments) == before
    assert PATH in world.catalog.values


def test_freeing_compares_all_that_was_looked_at() -> None:
    """ "One transaction compares": record, ledger, pins, cursors, that no repair is marked, and the lock's epoch."""
    world, epoch = freeable()
    freeing(world, epoch).start()
    change = held_at(world, "free").effect
    assert isinstance(change, Transact)
    revisions = {key: world.catalog.values[key][1] for key in (PATH, KEY, LOCK)}
    absent = (log_pins_path(LOG), log_cursors_path(LOG), repair_mark_path(LEDGER), unrepairable_path(LEDGER))
    assert {each.key: each.revision for each in change.when} == {**revisions, **dict.fromkeys(absent, ABSENT)}


def put_pin(world: World, offset: int, until_ms: int = NOW_MS + 1) -> None:
    pins = LogPins(METADATA_VERSION, (PinRecord("batch", offset, 1, until_ms),))
    put(world, log_pins_path(LOG), encode_log_pins(pins))


def put_cursor(world: World, offset: int, hold: CursorHold = CursorHold.HOLDS) -> None:
    put(world, cursor_path(LOG, "billing"), encode_cursor(CursorRecord(METADATA_VERSION, offset, 0, 1)))
    named = LogCursors(METADATA_VERSION, (NamedCursor("billing", hold),))
    put(world, log_cursors_path(LOG), encode_log_cursors(named))


def give_up_entries(world: World) -> None:
    lost = (Losses(((2, 2, 1),), (), 5, "me", "burnt"),)
    put(world, KEY, encode_ledger_metadata(ledger_in(world).with_changes(lost=lost)))


UNSAFE: dict[str, tuple[str, Callable[[World], object]]] = {
    "nobody archived it": ("unverified", lambda world: world.catalog.transact([], [Delete(PATH)])),
    "it is copied only": ("unverified", lambda world: put_record(world, ArchiveState.COPIED, 1)),
    "it is copied anew": ("unverified", lambda world: put_record(world, ArchiveState.COPYING, 1)),
    "a pin below its end": ("pin", lambda world: put_pin(world, END - 1)),
    "a pin in front of it": ("pin", lambda world: put_pin(world, 0)),
    "a cursor below its end": ("cursor", lambda world: put_cursor(world, END - 1)),
    "a repair is marked": ("repair", lambda world: put(world, repair_mark_path(LEDGER), b"mark")),
    "a repair was given up": ("repair", lambda world: put(world, unrepairable_path(LEDGER), b"why")),
    "entries were given up": ("lost", give_up_entries),
}


@pytest.mark.parametrize("case", UNSAFE)
def test_what_is_unsafe_is_not_freed(case: str) -> None:
    """Each unsafe case: "verified, lag passed, no cursor and no pin below it, not the open ledger"."""
    kept, make = UNSAFE[case]
    world, epoch = freeable()
    make(world)
    error = freed(world, epoch)
    assert isinstance(error, NotFreed) and error.definite and error.kept == kept, error
    assert ledger_in(world).freed is None and ledger_in(world).fragments[0].ensemble


@pytest.mark.parametrize("state", [LedgerState.OPEN, LedgerState.IN_RECOVERY])
def test_only_a_closed_ledger_is_freed(state: LedgerState) -> None:
    world, epoch = freeable(state)
    error = freed(world, epoch)
    assert isinstance(error, NotFreed) and error.kept == "open"


@pytest.mark.parametrize(("of", "last"), [(b"other", 9), (LOG.encode(), -1)])
def test_only_a_ledger_with_entries_of_this_log_is_freed(of: bytes, last: int) -> None:
    world, epoch = freeable(of=of, last=last)
    error = freed(world, epoch)
    assert isinstance(error, NotFreed) and error.kept == "open"


def test_an_archive_that_ends_elsewhere_frees_nothing() -> None:
    world, epoch = freeable(last=10)
    error = freed(world, epoch)
    assert isinstance(error, NotFreed) and error.kept == "unverified" and "ends at 9" in str(error)


def test_another_manifest_than_was_read_frees_nothing() -> None:
    world, epoch = freeable()
    error = freed(world, epoch, TERMS._replace(manifest=OTHER_HASH))
    assert isinstance(error, NotFreed) and error.kept == "unverified"


@pytest.mark.parametrize("keep_lag_ms", [NOW_MS - 1, NOW_MS, 10 * NOW_MS])
def test_what_was_verified_lately_is_kept(keep_lag_ms: int) -> None:
    """ "Younger than keep-lag": the record was changed at 1 ms, and it is NOW_MS; a clock that lags keeps it longer."""
    world, epoch = freeable()
    found = freed(world, epoch, TERMS._replace(keep_lag_ms=keep_lag_ms))
    if keep_lag_ms == NOW_MS - 1:
        assert found.freed is not None
    else:
        assert isinstance(found, NotFreed) and found.kept == "young"


@pytest.mark.parametrize("make", [
    lambda world: put_pin(world, END),
    lambda world: put_pin(world, 0, NOW_MS),
    lambda world: put_cursor(world, END),
    lambda world: put_cursor(world, 0, CursorHold.NONE),
])  # fmt: skip
def test_what_does_not_hold_it_keeps_nothing(make: Callable[[World], None]) -> None:
    world, epoch = freeable()
    make(world)
    assert freed(world, epoch).freed is not None


@pytest.mark.parametrize(
    "key", [PATH, log_pins_path(LOG), log_cursors_path(LOG), cursor_path(LOG, "billing")]
)
def test_what_cannot_be_read_frees_nothing(key: str) -> None:
    """P2.5: it is somebody's word, and from what nobody can tell no deletion follows."""
    world, epoch = freeable()
    put_cursor(world, END)
    put(world, key, b"what is this")
    error = freed(world, epoch)
    assert isinstance(error, StorageError)
    assert archive_path(LOG, LEDGER) == PATH and b"what is this" in (world.catalog.values[key][0])


@pytest.mark.parametrize("change", [
    lambda world: put_record(world, ArchiveState.COPIED, 1),
    lambda world: put_pin(world, END - 1),
    lambda world: put_cursor(world, END - 1),
    lambda world: put(world, repair_mark_path(LEDGER), b"mark"),
    lambda world: put(world, unrepairable_path(LEDGER), b"why"),
    give_up_entries,
])  # fmt: skip
def test_what_comes_while_it_is_freed_is_not_passed_over(change: Callable[[World], object]) -> None:
    """Doubted, pinned, consumed from, marked for repair: each between the look and the transaction."""
    world, epoch = freeable()
    client = freeing(world, epoch)
    client.start()
    held_at(world, "free")
    change(world)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NotFreed)
    assert ledger_in(world).freed is None


@pytest.mark.parametrize("keep_lag_ms", [0, 1])
def test_what_was_verified_in_the_future_is_young(keep_lag_ms: int) -> None:
    """The clock of whoever verified it is ahead, or this one lags: nobody knows for how long it was VERIFIED."""
    world, epoch = freeable()
    record = ArchiveRecord(METADATA_VERSION, LEDGER, ArchiveState.VERIFIED, 1, 4, 9, HASH, 2, NOW_MS + 5)
    put(world, PATH, encode_archive_record(record))
    error = freed(world, epoch, TERMS._replace(keep_lag_ms=keep_lag_ms))
    assert isinstance(error, NotFreed) and error.kept == "young"


def test_a_ledger_that_is_truncated_meanwhile_stays_gone() -> None:
    """ "retention not racing": the one key of the ledger decides."""
    world, epoch = freeable()
    client = freeing(world, epoch)
    client.start()
    held_at(world, "free")
    world.catalog.transact([], [Delete(KEY)])
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NoSuchLedger) and KEY not in world.catalog.values


def test_a_job_that_lost_the_lock_frees_nothing() -> None:
    """P9.1: "what is protected checks the epoch"."""
    world, epoch = freeable()
    put(world, LOCK, b"another")
    assert isinstance(freed(world, epoch), LockLost)
    assert ledger_in(world).freed is None


@pytest.mark.parametrize("lands", [True, False, None])
def test_freeing_of_unknown_outcome_is_settled_by_what_stands_there(lands: bool | None) -> None:
    """P2.2."""
    world, epoch = freeable()
    client = freeing(world, epoch)
    client.start()
    first = held_at(world, "free")
    world.catalog.tell_unknown(first, lands=lands)
    if lands is None:
        again = held_at(world, "free")
        assert world.catalog.land(first)
        world.catalog.answer(again)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert client.ended.error is None and client.ended.result == ledger_in(world)
    assert ledger_in(world).freed is not None


def test_freeing_that_may_have_landed_is_no_definite_no() -> None:
    """ "Cannot tell" is never "no": a pin comes behind a change of unknown outcome."""
    world, epoch = freeable()
    client = freeing(world, epoch)
    client.start()
    world.catalog.tell_unknown(held_at(world, "free"), lands=None)
    put_pin(world, 0)
    world.catalog.is_held = False
    world.run(until=lambda: client.has_ended)
    assert isinstance(client.ended.error, NotFreed) and not client.ended.error.definite


def test_an_answer_of_a_round_before_says_nothing_of_where_a_cursor_stands() -> None:
    """That it stood at the end was read before its cursors were: it may have gone back in between."""
    world, epoch = freeable()
    put_cursor(world, END)
    core = Freeing(LOG, LEDGER, TERMS, LOCK, epoch, NOW_MS)

    def told(round_number: int, *kinds: tuple[str, str]) -> list[Effect]:
        effects: list[Effect] = []
        for kind, key in kinds:
            value, revision = world.catalog.values.get(key, (None, 0))
            effects = core.step(KeyRead(0, (kind, round_number, ""), value, revision))
        return effects

    to_cursors = (
        ("record", PATH), ("ledger", KEY), ("pins", log_pins_path(LOG)), ("cursors", log_cursors_path(LOG)),
    )  # fmt: skip
    core.step(Started(0))
    told(1, *to_cursors)
    assert core.step(KeyRead(0, ("cursor", 1, "billing"), None, 0)) == []
    assert core.deadline_ns is not None
    core.step(Tick(core.deadline_ns))
    assert len(told(2, *to_cursors)) == 1
    late = encode_cursor(CursorRecord(METADATA_VERSION, END, 0, 1))
    assert core.step(KeyRead(0, ("cursor", 1, "billing"), late, 9)) == [] and core.asked == {"billing"}
    now = encode_cursor(CursorRecord(METADATA_VERSION, 0, 0, 2))
    (ended,) = core.step(KeyRead(0, ("cursor", 2, "billing"), now, 10))
    assert isinstance(ended, Ended) and isinstance(ended.error, NotFreed) and ended.error.kept == "cursor"


def test_what_metadata_does_not_run_frees_nothing() -> None:
    world, epoch = freeable()
    world.catalog.refuses = "it is full"
    error = freed(world, epoch)
    assert isinstance(error, MetadataUnavailable) and error.definite and ledger_in(world).freed is None


def test_freed_again_it_is_what_it_was() -> None:
    world, epoch = freeable()
    first, revision = freed(world, epoch), world.catalog.values[KEY][1]
    assert freed(world, epoch, TERMS._replace(by="another")) == first
    assert world.catalog.values[KEY][1] == revision


def test_nobody_copies_a_freed_ledger_anew() -> None:
    """Its files are all there is: a claim would make the manifest that counts one that does not."""
    world, epoch = freeable()
    freed(world, epoch)
    error = outcome(world, Claim(4, anew=True), epoch)
    assert isinstance(error, MetadataConflict) and "are all there is" in str(error)


# --- What stands in the metadata ------------------------------------------------------------------------------


def the_freed() -> LedgerMetadata:
    world, epoch = freeable()
    result: LedgerMetadata = freed(world, epoch)
    return result


BROKEN: dict[str, Callable[[LedgerMetadata], LedgerMetadata]] = {
    "open": lambda it: it.with_changes(state=LedgerState.OPEN, last_entry=None, length=None),
    "empty": lambda it: it.with_changes(last_entry=-1, length=0),
    "no log's": lambda it: it.with_changes(custom={}),
    "with entries given up": lambda it: it.with_changes(lost=(Losses(((2, 2, 1),), (), 5, "me", "burnt"),)),
    "with a bookie": lambda it: it.with_changes(
        fragments=(it.fragments[0], it.fragments[0].__class__(5, 50, (("b1", bytes(16)),)))
    ),
    "without bookies, and not freed": lambda it: it.with_changes(freed=None),
}


@pytest.mark.parametrize("case", BROKEN)
def test_no_ledger_is_freed_in_part(case: str) -> None:
    with pytest.raises(StorageError, match=r"P8\.14|P2\.4"):
        decode_ledger_metadata(encode_ledger_metadata(BROKEN[case](the_freed())), LEDGER)
