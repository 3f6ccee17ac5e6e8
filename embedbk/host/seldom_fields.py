"""The fields of writing handles that few of them ever set: there may be very many handles of which nothing is asked."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from embedbk.forking import free_in_children

if TYPE_CHECKING:
    from embedbk.host.writing import Writing

__all__ = ["CLOSING", "SeldomField", "SeldomFields"]

T = TypeVar("T")

# Guards the outcomes and signals of all writing handles, for a moment each.
CLOSING = free_in_children(threading.RLock())


class SeldomFields:
    """The fields of a handle that few handles ever set: made when the first of them is."""

    __slots__ = (
        "_closed",
        "_outcome",
        "behind",
        "ensemble_changes",
        "following",
        "has_missed",
        "is_handed_over",
        "outstanding",
        "recorded_revision",
    )


class SeldomField(Generic[T]):
    """One of them, which has its first value until it is set."""

    __slots__ = ("_first", "_name")

    def __init__(self, first: T) -> None:
        self._first = first

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, writing: None, owner: type) -> SeldomField[T]: ...
    @overload
    def __get__(self, writing: Writing, owner: type) -> T: ...
    def __get__(self, writing: Writing | None, owner: type) -> SeldomField[T] | T:
        if writing is None:
            return self
        seldom = writing._seldom
        return self._first if seldom is None else getattr(seldom, self._name, self._first)

    def __set__(self, writing: Writing, value: T) -> None:
        if writing._seldom is None:
            if value is self._first:
                return
            with CLOSING:  # Threads may set two of them at once.
                writing._seldom = writing._seldom or SeldomFields()
        setattr(writing._seldom, self._name, value)
