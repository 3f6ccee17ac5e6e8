"""AdoptLedger: a key of a lost future's ledger is put, and its id is spared no more, by one command (P7.7, P10.5)."""

from __future__ import annotations

import pytest

from embedbk.codec.adopted import AdoptedLedger, adopted_path, decode_adopted, encode_adopted
from embedbk.codec.metadata_messages import ABSENT, AdoptLedger, Compare, Put, Refusal, TxnDone
from embedbk.errors import StorageError
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import (
    RULES,
    RaiseTo,
    Run,
    StartSession,
    StopSparing,
    decode_command,
    encode_command,
)
from embedbk.metadata.levels import LACKING, LEVEL_OF_ADOPTION
from embedbk.metadata.loading import load
from tests.metadata.test_levels import pieces

KEY = "/ledgers/0000000000000007"


def begun(level: int = LEVEL_OF_ADOPTION) -> Catalog:
    """With a session, 1, and ids 5 to 9 of a lost future."""
    catalog = Catalog()
    catalog.apply(RaiseTo(level), 1, 1)
    catalog.apply(StartSession(0, 1000, "operator", b"s", level), 2, 1)
    catalog.descent.spared.append((5, 10))
    return catalog


def run(catalog: Catalog, sequence: int, ledger_id: int = 7, key: str = KEY) -> object:
    (session,) = catalog.sessions
    asked = AdoptLedger([Compare(key, ABSENT)], [Put(key, b"closed")], ledger_id)
    command = encode_command(Run(session, sequence, sequence, asked, RULES))
    return catalog.apply(decode_command(command), 2 + sequence, 1)


def test_key_and_id_are_settled_by_one_command() -> None:
    catalog = begun()
    before = catalog.fast_digest
    assert run(catalog, 1) == TxnDone(True, catalog.revision)
    assert catalog.get(KEY).record is not None
    assert catalog.descent.spared == [(5, 7), (8, 10)]
    assert catalog.fast_digest != before, "I72"
    twin = load(pieces(catalog))
    assert (twin.descent.spared, twin.digest()) == (catalog.descent.spared, catalog.digest())
    assert run(catalog, 1) == TxnDone(True, catalog.revision), "I74: repeated, its first answer"
    assert run(catalog, 2) == TxnDone(False, catalog.revision), "the key is there"
    assert catalog.descent.spared == [(5, 7), (8, 10)]


@pytest.mark.parametrize("ledger_id", [4, 10, 1 << 40])
def test_an_id_that_is_not_spared_is_not_adopted(ledger_id: int) -> None:
    """P7.7: its absence proves that its ledger is gone, so its bookies may drop it at any moment."""
    catalog = begun()
    before = catalog.digest()
    refused = run(catalog, 1, ledger_id)
    assert isinstance(refused, Refusal) and refused.code == "BAD_REQUEST"
    assert "is of no lost future, or was forgotten or adopted before" in refused.text
    assert (catalog.get(KEY).record, catalog.descent.spared) == (None, [(5, 10)])
    assert before != b""


def test_who_forgets_first_was_first() -> None:
    catalog = begun()
    catalog.apply(StopSparing(((7, 8),)), 3, 1)
    assert isinstance(run(catalog, 2), Refusal)
    assert catalog.get(KEY).record is None


def test_a_comparison_that_fails_spares_on() -> None:
    catalog = begun()
    (session,) = catalog.sessions
    asked = AdoptLedger([Compare("/placements/b1", 99)], [Put(KEY, b"closed")], 7)
    assert catalog.apply(Run(session, 1, 1, asked, RULES), 3, 1) == TxnDone(False, catalog.revision)
    assert catalog.descent.spared == [(5, 10)]


def test_a_full_catalog_spares_on() -> None:
    """P10.7: what finds no room changes nothing, also of the ids."""
    catalog = begun()
    catalog.record_table.bytes = catalog.limits.catalog_bytes_max + catalog.limits.catalog_reserve_bytes
    assert isinstance(run(catalog, 1), Refusal)
    assert (catalog.get(KEY).record, catalog.descent.spared) == (None, [(5, 10)])


def test_below_its_level_nothing_is_adopted() -> None:
    """P10.8: "What a level brings is refused before, and not written"."""
    catalog = begun(LEVEL_OF_ADOPTION - 1)
    refused = run(catalog, 1)
    assert isinstance(refused, Refusal) and refused.code == LACKING
    assert "AdoptLedger needs level 9" in refused.text
    assert catalog.descent.spared == [(5, 10)]


def test_what_is_known_of_an_adopted_ledger_is_read_as_it_is_written_and_nothing_else_is() -> None:
    record = AdoptedLedger(1, 7, 5, "somebody", 3, (("b1", bytes(16)),), ((2, 2),), 4, ("b1", "b2"))
    assert decode_adopted(encode_adopted(record)) == record
    assert adopted_path(7) == "/adopted/0000000000000007"
    wrong = (
        AdoptedLedger(2, 7, 5, "", 3, (), (), 4, ()),
        AdoptedLedger(1, -1, 5, "", 3, (), (), 4, ()),
        AdoptedLedger(1, 7, 5, "x" * 201, 3, (), (), 4, ()),
        AdoptedLedger(1, 7, 5, "", -2, (), (), 4, ()),
        AdoptedLedger(1, 7, 5, "", 3, (("no name!", bytes(16)),), (), 4, ()),
        AdoptedLedger(1, 7, 5, "", 3, (("b1", b"short"),), (), 4, ()),
        AdoptedLedger(1, 7, 5, "", 3, (), ((0, 0),) * 1025, 4, ()),
    )
    for each in wrong:
        with pytest.raises(StorageError):
            decode_adopted(encode_adopted(each))
