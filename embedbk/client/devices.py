"""Journals and ledger directories on devices of their own, for clusters that several bookies of one machine make up.

Decides which directory of a device belongs to which bookie: `DEVICE/b1` is bookie b1's, so the bookies share the
devices and no directory. Where a bookie opens its directories, their content, their number and their identity are
checked (storage/layout.py, storage/identity.py).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embedbk.client.beginning import check_bookies_path, is_new, make
from embedbk.config import check_flag
from embedbk.errors import UsageError
from embedbk.storage.directories import LEDGER_DIRECTORIES_MAX
from embedbk.storage.journals import JOURNALS_MAX

__all__ = ["IN_PLACE", "Devices"]

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Devices:
    """The directories that stand elsewhere than in the cluster's own directory; none by default."""

    journal_directories: tuple[Path, ...] = ()
    ledger_directories: tuple[Path, ...] = ()
    expands: bool = False  # Ledger directories beyond those that the bookies have join, for good.

    def look(self, *, create: bool) -> None:
        """Refuse devices that are not there; for a new cluster, make them and their bookies' directories.

        Raises:
            StorageError: one, or its parent, is missing or cannot be used.
        """
        for name, paths in (
            ("journal directory", self.journal_directories),
            ("ledger directory", self.ledger_directories),
        ):
            for path in paths:
                is_new(path, create=create, what=name)

    @classmethod
    def of(
        cls, journal_directories: Sequence[AnyPath], ledger_directories: Sequence[AnyPath], expands: bool
    ) -> Devices:
        """Raises:
        UsageError: not a list of paths, too many, an address, or one path twice; or expands is no flag.
        """
        check_flag(expands, "expands")
        return cls(
            _paths("journal_directories", journal_directories, JOURNALS_MAX),
            _paths("ledger_directories", ledger_directories, LEDGER_DIRECTORIES_MAX),
            expands,
        )

    def make(self) -> None:
        """Make the devices' own directories; processes of their own make those of the bookies in them."""
        for path in (*self.journal_directories, *self.ledger_directories):
            make(path)

    @property
    def are_given(self) -> bool:
        return self != IN_PLACE

    def journals_of(self, bookie_id: str) -> list[Path]:
        return [device / bookie_id for device in self.journal_directories]

    def ledgers_of(self, bookie_id: str) -> list[Path]:
        return [device / bookie_id for device in self.ledger_directories]


IN_PLACE = Devices()


def _paths(name: str, given: Sequence[AnyPath], most: int) -> tuple[Path, ...]:
    if not isinstance(given, list | tuple) or not all(isinstance(path, str | os.PathLike) for path in given):
        raise UsageError(f"{name}={given!r}: a list of directories is allowed", hint="one alone is [path]")
    if len(given) > most:
        raise UsageError(f"{name}: {len(given)} were given; at most {most} are allowed")
    paths = tuple(check_bookies_path(path, name) for path in given)
    places = [os.path.realpath(path) for path in paths]
    twice = [str(path) for path, place in zip(paths, places, strict=True) if places.count(place) > 1]
    if twice:
        raise UsageError(
            f"{name}: {' and '.join(twice)} are one directory", hint="give each device a directory, once"
        )
    return paths
