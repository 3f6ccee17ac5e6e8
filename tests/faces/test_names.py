"""One set of names: what the blocking face offers, the awaited one offers too, with the same parameters."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

import embedbk
from embedbk import aio


def public(kind: type) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    "name", ["Client", "Log", "LogReader", "LogWriter", "LedgerWriter", "LedgerReader", "Cursor", "Consumer"]
)
def test_both_faces_have_the_same_names_and_parameters(name: str) -> None:
    blocking, awaited = public(getattr(embedbk, name)), public(getattr(aio, name))
    assert set(blocking) == set(awaited)
    for member, function in blocking.items():
        if inspect.isfunction(function):
            there = inspect.signature(awaited[member])  # type: ignore[arg-type]
            assert list(inspect.signature(function).parameters) == list(there.parameters), member


def test_every_public_name_is_there() -> None:
    for name in embedbk.__all__:
        assert getattr(embedbk, name) is not None
    assert set(embedbk.__all__) <= set(dir(embedbk))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = embedbk.nonsense  # type: ignore[attr-defined]


def test_every_public_error_is_a_face_s_own() -> None:
    """One root; an InvariantError is a bug, and no `except` for ordinary errors swallows it."""
    errors = [value for name in embedbk.__all__ if isinstance(value := getattr(embedbk, name), type)]
    kinds = [kind for kind in errors if issubclass(kind, Exception)]
    assert len(kinds) > 15
    assert [kind for kind in kinds if not issubclass(kind, embedbk.EmbedbkError)] == [embedbk.InvariantError]


def test_importing_it_loads_nothing_before_it_is_used() -> None:
    """Tools start quickly, and no module is imported that a process does not use."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import embedbk, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert not {"zmq", "asyncio", "msgspec", "embedbk._native"} & set(loaded)
