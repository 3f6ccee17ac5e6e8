"""Where the parts of one bookie stand: its own directory, its journals, its ledger directories (P7.2).

Decides what the paths that an owner gives mean, and keeps a note of parts that are all elsewhere. Leaves to others:
which node the directories belong to (identity.py), whether anything of theirs is gone (loss_note.py), and what a path
means to a person who looks at a stopped bookie (directory_discovery.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from embedbk.errors import UsageError
from embedbk.storage.directories import LEDGER_DIRECTORIES_MAX
from embedbk.storage.identity import numbered
from embedbk.storage.journals import JOURNALS_MAX
from embedbk.storage.noted import sync_name_of

__all__ = ["LOSS_FILE", "PARTS_FILE", "WHOLE", "Layout", "read_parts"]

LOSS_FILE = "MAY_HAVE_LOST"  # It exists from the start that was told of a loss until limbo is durable.
WHOLE = "whole"  # In a member's: the state goes on from all that was committed, and only its lineage is new.

PARTS_FILE = "PARTS"  # Where the parts are of a bookie that has none in its own directory; for tools only.

AnyPath = str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Layout:
    """root: the bookie's own directory; parts that are given stand elsewhere."""

    root: str
    journals: list[str]
    entries: list[str]

    @classmethod
    def of(
        cls,
        bookie_id: str,
        directory: AnyPath,
        journal_directories: Sequence[AnyPath] = (),
        ledger_directories: Sequence[AnyPath] = (),
    ) -> Layout:
        """Make a layout with absolute paths: files are made as long as the bookie runs, in whatever working directory.

        Raises:
            UsageError: more directories than a bookie can have.
        """
        for what, given, most in (
            ("ledger", ledger_directories, LEDGER_DIRECTORIES_MAX),
            ("journal", journal_directories, JOURNALS_MAX),
        ):
            if len(given) > most:
                raise UsageError(
                    f"bookie {bookie_id!r}: {len(given)} {what} directories; at most {most} are allowed"
                )
        root = os.path.abspath(directory)
        return cls(
            root,
            [os.path.abspath(path) for path in journal_directories] or [os.path.join(root, "journal")],
            [os.path.abspath(path) for path in ledger_directories] or [os.path.join(root, "entries")],
        )

    def by_purpose(self) -> dict[str, Path]:
        """The directories by purpose, as the identity names them."""
        return numbered("journal", self.journals) | numbered("entries", self.entries)

    def make_root(self) -> Path:
        """Make the bookie's own directory, for its notes; it does not exist yet where all parts are elsewhere.

        Raises:
            UsageError: it cannot be made.
        """
        path = Path(self.root)
        try:
            path.mkdir(parents=True, exist_ok=True)
            sync_name_of(path)  # Its notes are kept under it.
        except OSError as refused:
            raise UsageError(
                f"directory {path} cannot be made: {refused.strerror}",
                hint="give a directory that this process may write to",
            ) from refused
        return path

    def note_parts(self) -> None:
        """If the bookie's own directory has none of its parts, leave a note there of where they are, for tools that get
        this directory. It is not synced, and each start that finds it wrong writes it anew.

        Raises:
            OSError: it cannot be written; only tools need it.
        """
        parts = {purpose: str(path) for purpose, path in self.by_purpose().items()}
        if any(Path(path).parent == Path(self.root) for path in parts.values()):
            return
        path = Path(self.root, PARTS_FILE)
        content = json.dumps({"directory": self.root, "parts": parts}, indent=1) + "\n"
        try:
            if path.read_text() == content:
                return
        except (OSError, ValueError):
            pass
        path.write_text(content)


def read_parts(directory: Path) -> dict[str, Path]:
    """The note in a bookie's own directory, by purpose; empty: there is none, or it came with a copy of another
    directory, so that the parts belong to the other one."""
    try:
        said = json.loads((directory / PARTS_FILE).read_text())
        if os.path.realpath(said["directory"]) != os.path.realpath(directory):
            return {}
        return {str(purpose): Path(path) for purpose, path in said["parts"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}
