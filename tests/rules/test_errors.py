"""Every error says whose fault it is and whether its answer is final (P3.6)."""

from __future__ import annotations

import inspect

import pytest

from embedbk import errors
from embedbk.errors import EmbedbkError, InvariantError, ensure

# True: what was asked certainly did not happen, or certainly is not there. False: either may turn out to be so.
DEFINITE = {
    "AppendConflict": True,
    "ArchiveUnreadable": False,
    "EmbedbkError": True,
    "EntryUnreadable": False,
    "LedgerClosed": False,
    "LedgerFenced": False,
    "LockLost": False,
    "LogFull": True,
    "Lost": True,
    "MetadataConflict": True,
    "MetadataUnavailable": False,
    "NoSuchEntry": True,
    "NoSuchLedger": True,
    "NotEnoughBookies": False,
    "NotFreed": True,
    "NotTruncated": True,
    "OperationTimeout": False,
    "PeerError": False,
    "RecoveryInconclusive": False,
    "StaleEpoch": True,
    "StorageError": False,
    "Truncated": True,
    "UsageError": True,
    "WrongPassword": True,
    "CursorLost": False,
    "LogAtBound": True,
    "LogExists": True,
    "LogSealed": True,
    "NoSuchCursor": True,
}


def test_every_error_has_its_answer_here() -> None:
    found = {
        name: kind.definite
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, EmbedbkError)
    }
    assert found == DEFINITE


@pytest.mark.parametrize("name", DEFINITE)
def test_an_instance_may_know_better_and_shows_its_hint(name: str) -> None:
    kind = getattr(errors, name)
    error = kind("what happened", definite=not DEFINITE[name], hint="do this")
    assert error.definite is not DEFINITE[name]
    assert str(error) == "what happened (do this)"
    assert kind.definite is DEFINITE[name]


def test_a_broken_promise_is_no_ordinary_error() -> None:
    """A bug is not swallowed by whoever handles ordinary errors; checked also under python -O."""
    assert not issubclass(InvariantError, EmbedbkError)
    ensure(True, "fine")
    with pytest.raises(InvariantError, match="the LAC fell"):
        ensure(False, "the LAC fell")
