"""The commands that read what is stored, offline: `storage check`, `journal cat`, `entrylog cat`, `index cat`; and two
that write one file, the read-only marker of a bookie: `storage read-only`, `storage writable`.

Decide how what was read is shown: results on standard output, one line each or with --json one object a line, all else
on standard error. Exit code 0: clean; 1: damage was found; 2: the arguments or the path make no sense, or the result
cannot be written; 141: nobody reads it any more, so nothing is concluded. Nothing else is written anywhere
(embedbk/storage/CHECKING.md).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from embedbk.cli import let_go_of_output
from embedbk.cli.entry_log_cat import entry_log_cat, index_cat
from embedbk.cli.journal_cat import journal_cat
from embedbk.cli.offline import CLEAN, USAGE
from embedbk.cli.storage_check import check
from embedbk.errors import StorageError, UsageError
from embedbk.storage.directory_discovery import find_places
from embedbk.storage.read_only_marker import end_read_only, keep_read_only

__all__ = ["run_storage"]


_READ_ONLY = (
    "a bookie, running or not, shall take no normal adds until `writable` is said: its open ledgers leave it, where "
    "others can take their seats; embedbk bookie read-only is a word in the metadata, and lets them stay"
)


def run_storage(noun: str, arguments: Sequence[str]) -> int:
    """Run one of the commands; its exit code."""
    options = _parser(noun).parse_args(arguments)
    run = {
        ("storage", "check"): check,
        ("storage", "read-only"): _read_only,
        ("storage", "writable"): _writable,
        ("journal", "cat"): journal_cat,
        ("entrylog", "cat"): entry_log_cat,
        ("index", "cat"): index_cat,
    }[noun, options.verb]
    try:
        code = run(options)
        sys.stdout.flush()  # What nobody could read is no result.
    except BrokenPipeError:
        raise
    except (UsageError, StorageError, OSError) as wrong:
        let_go_of_output()
        told = f"the system refuses: {wrong}" if isinstance(wrong, OSError) else str(wrong)
        print(f"embedbk {noun} {options.verb}: {told}", file=sys.stderr)
        return USAGE
    return code


def _read_only(options: argparse.Namespace) -> int:
    keep_read_only(_bookie_root(options.path), options.reason)
    print(f"{options.path}: read-only; a running bookie sees it within seconds")
    return CLEAN


def _writable(options: argparse.Namespace) -> int:
    had_word = end_read_only(_bookie_root(options.path))
    print(
        f"{options.path}: {'writable again, as far as it has room' if had_word else 'nobody had said read-only'}"
    )
    return CLEAN


def _bookie_root(path: Path) -> Path:
    """The directory of one bookie."""
    places = find_places(path)
    if [(place.kind, place.root) for place in places] != [("bookie", path)]:
        raise UsageError(
            f"{path} is no directory of one bookie", hint="give what `embedbk bookie --dir` was given"
        )
    for purpose, part in places[0].parts.items():
        if part == path:  # A bookie never looks for a marker there.
            raise UsageError(
                f"{path} is the {purpose} directory of a bookie, not its own",
                hint="give what `embedbk bookie --dir` was given; with embedbk.open, the bookie's folder in the "
                "cluster's directory",
            )
    return path


def _parser(noun: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"embedbk {noun}", allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    if noun == "storage":
        verb = verbs.add_parser(
            "check",
            allow_abbrev=False,
            help="read every byte of a stopped bookie, member or cluster and say what is damaged",
            description="Read every byte of the directories of a bookie, of a metadata member, or of a directory that "
            "holds several, and say what is damaged. Trusts nothing and writes nothing. "
            "Exit code 0: clean; 1: damaged; 2: cannot be checked.",
        )
        verb.add_argument(
            "path", type=Path, metavar="DIR", help="of one bookie or member, or of several together"
        )
        verb.add_argument(
            "--journal-dir",
            type=Path,
            action="append",
            default=[],
            help="the bookie's journal, when it is elsewhere; several in their order",
        )
        verb.add_argument(
            "--ledger-dir",
            type=Path,
            action="append",
            default=[],
            help="a directory of the bookie's entry logs, when they are elsewhere; several in their order",
        )
        verb.add_argument(
            "--in-use",
            action="store_true",
            help="also while a process has it in use: what is being written looks bad",
        )
        verb.add_argument("--quiet", action="store_true", help="no notes, only damage and the result")
        for name, says in (
            ("read-only", _READ_ONLY),
            ("writable", "the bookie may take normal adds again"),
        ):
            word = verbs.add_parser(name, allow_abbrev=False, help=says, description=says.capitalize() + ".")
            word.add_argument("path", type=Path, metavar="DIR", help="of the bookie")
            if name == "read-only":
                word.add_argument("--reason", default="", help="for people: it stands in DIR/READ_ONLY")
    elif noun == "journal":
        verb = verbs.add_parser(
            "cat", allow_abbrev=False, help="the records of a bookie's or member's journal"
        )
        verb.add_argument("path", type=Path, metavar="DIR", help="that holds the files journal-...")
        verb.add_argument(
            "--after", type=int, default=0, metavar="TOKEN", help="only records above this token"
        )
        verb.add_argument("--ledger", type=int, metavar="ID", help="only records of this ledger")
    elif noun == "entrylog":
        verb = verbs.add_parser("cat", allow_abbrev=False, help="the entries of one entry log")
        verb.add_argument("path", type=Path, metavar="FILE", help="NNNNNNNN.elog")
        verb.add_argument("--ledger", type=int, metavar="ID", help="only entries of this ledger")
        verb.add_argument("--payload", action="store_true", help="with --json: the payloads too, in base64")
    else:
        verb = verbs.add_parser(
            "cat", allow_abbrev=False, help="the index in the footers of entry logs: runs and states"
        )
        verb.add_argument(
            "path", type=Path, metavar="DIR|FILE", help="a directory of entry logs, or one of them"
        )
        verb.add_argument("--ledger", type=int, metavar="ID", help="only of this ledger")
    verb.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser
