"""`embedbk quorum snapshot | verify | restore | recover | nuke`: a cluster's metadata kept elsewhere, and brought back.

Decides what is asked before something irrevocable is done, what an operator has to type, and what is printed.
`storage/kept_metadata.py` decides which files and directories are accepted, and what is written.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from embedbk.cli.operators import CommandResult
from embedbk.client.address import endpoints_of, is_address
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.lineages import lineage_text
from embedbk.codec.metadata_messages import GENERATION_BITS, Record
from embedbk.codec.quorum_messages import MetTold
from embedbk.codec.registration import BOOKIES_PREFIX, COOKIES_PREFIX, decode_registration
from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.ids import check_member_name
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.levels import LEVEL_OF_LINEAGES
from embedbk.metadata.recovering import given_up
from embedbk.quorum import Quorum
from embedbk.storage.directory_discovery import NodeDirectory, hold_place
from embedbk.storage.kept_metadata import (
    KeptMetadata,
    begin_anew,
    freshest,
    read_snapshot,
    read_survivor,
    why_may_be_lost,
)
from embedbk.storage.layout import LOSS_FILE
from embedbk.storage.member_notes import MEMBER_FILE, FileNotes
from embedbk.storage.met_metadata import MET_FILE, read_met
from embedbk.storage.metadata_log import FIRST_MEMBER
from embedbk.storage.noted import sync_directory
from embedbk.storage.snapshot_format import SNAPSHOT_DIRECTORY

__all__ = ["add_commands", "nuke", "recover", "restore", "take_snapshot", "verify"]

# The files that a member writes beside its journal and its snapshots, and the note by which it is known.
_FILES = ("LOCK", "USED", "ENDPOINTS", "ENDPOINTS.part", LOSS_FILE, f"{LOSS_FILE}.new")
_NOTE = (f"{MEMBER_FILE}.new", MEMBER_FILE)


# --- Keeping ----------------------------------------------------------------------------------------------


def take_snapshot(quorum: Quorum, file: Path) -> CommandResult:
    """Write a snapshot of a running cluster. The file appears when it is whole, durable, and was read back."""
    part = file.with_name(file.name + ".part")
    if file.exists():
        raise UsageError(f"{file} is there: nothing is written over it", hint="name another file")
    try:
        # Its own from here on: another command that wrote into it would change a copy that was found whole.
        writing = part.open("xb")
    except FileExistsError:
        raise UsageError(
            f"{part} is there, of a command that writes it now, or of one that did not end",
            hint="if none runs, remove it, and say the command again",
        ) from None
    except OSError as refused:
        raise StorageError(f"{file} cannot be written: {refused}", definite=True) from refused
    try:
        with writing:
            quorum.take_snapshot(writing.write)
            writing.flush()
            os.fsync(writing.fileno())
        kept = read_snapshot(part)
        part.rename(file)
        sync_directory(file.absolute().parent)
    except EmbedbkError:
        raise  # Also one that is an OSError, as that no answer came in time: the file is not what failed.
    except OSError as refused:
        raise StorageError(f"{file} cannot be written: {refused}", definite=True) from refused
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    data = {"file": str(file), "bytes": file.stat().st_size, **_facts(kept)}
    return CommandResult(data, f"{file}: {data['bytes']} bytes\n{_described(kept)}")


def verify(file: Path) -> CommandResult:
    kept = read_snapshot(file)
    return CommandResult(
        {"file": str(file), "is_whole": True, **_facts(kept)}, f"{file} is whole\n{_described(kept)}"
    )


def _facts(kept: KeptMetadata) -> dict[str, Any]:
    catalog = kept.catalog
    return {
        "cluster_token": kept.cluster_token.hex(),
        "index": kept.index,
        "term": kept.term,
        "revision": catalog.revision,
        "generation": catalog.revision >> GENERATION_BITS,
        "lineage": _lineage_of(catalog),
        "level": catalog.level,
        "next_id": catalog.next_id,
        "ledgers": sum(1 for _ in _records(catalog, LEDGERS_PREFIX)),
        "bytes_by_kind": dict(catalog.record_table.weights.told()),
        "members": [member.name for member in kept.configuration.members],
    }


def _described(kept: KeptMetadata) -> str:
    facts = _facts(kept)
    return (
        f"cluster {facts['cluster_token']}, lineage {facts['lineage']}, level {facts['level']}\n"
        f"entry {kept.index} of term {kept.term}, revision {facts['revision']}: {facts['ledgers']} ledgers, "
        f"ids below {facts['next_id']}, members {', '.join(facts['members'])}"
    )


def _lineage_of(catalog: Catalog) -> str:
    return lineage_text(catalog.descent.lineage, catalog.revision >> GENERATION_BITS)


def _records(catalog: Catalog, prefix: str) -> Iterator[Record]:
    after, has_more = "", True
    while has_more:
        page = catalog.page(prefix, after)
        yield from page.records
        has_more, after = page.has_more, page.records[-1].key if page.records else ""


# --- Bringing back ----------------------------------------------------------------------------------------


def restore(file: Path, options: argparse.Namespace) -> CommandResult:
    return _bring_back([read_snapshot(file)], options)


def recover(survivors: Sequence[Path], options: argparse.Namespace) -> CommandResult:
    return _bring_back([read_survivor(each) for each in survivors], options)


def _bring_back(found: Sequence[KeptMetadata], options: argparse.Namespace) -> CommandResult:
    kept = freshest(found)
    name = check_member_name(options.name)
    token = kept.cluster_token.hex()
    if options.accept_loss not in (None, token):
        raise UsageError(
            f"--accept-loss {options.accept_loss}: this cluster's token is {token}",
            hint="nothing was written",
        )
    endpoints = _endpoints(kept, options.ask or "")
    quorum = Quorum(endpoints, options.timeout_s, options.allow_non_loopback)
    met, missed = quorum.hear_met()
    noted, unread = _noted(options.dir.absolute().parent)
    met |= noted
    missed |= unread
    heard = [each for each in met.values() if each.cluster_token == kept.cluster_token]
    leads = [
        f"{each.name} at {endpoint}"
        for endpoint, each in met.items()
        if each.role == "leader" and each.cluster_token == kept.cluster_token
    ]
    if options.accept_loss is None:
        _refuse_a_living_one(leads, token)
        lost = why_may_be_lost(found)
        if lost and kept.member is not None:
            raise UsageError(
                f"what was committed may be lost: {lost}",
                hint=f"bring more survivors, or say that it is accepted: --accept-loss {token}",
            )
        if not heard and (endpoints or _has_bookies(kept.catalog)):
            raise UsageError(
                f"nobody says which metadata was met: {_missed(missed)}; another recovery may be under way",
                hint=f"start the bookies first (they wait for metadata), or --accept-loss {token}",
            )
    gives_up = given_up(kept.catalog, kept.cluster_token, met.values())
    knows_lineages = kept.catalog.level >= LEVEL_OF_LINEAGES
    may_be_lost = why_may_be_lost(found)
    identity = begin_anew(
        kept, options.dir, gives_up if knows_lineages else (), name=name, is_whole=not may_be_lost
    )
    data = {
        "dir": str(options.dir),
        "from": kept.where,
        **_facts(kept),
        "name": identity.name,
        "incarnation": identity.incarnation.hex(),
        "may_be_lost": may_be_lost or None,
        "heard": sorted({f"{each.role} {each.name}" for each in heard}),
        "not_heard": missed,
        "gives_up": [lineage_text(each.name, each.generation) for each in gives_up],
    }
    lines = [
        f"{options.dir} goes on from {kept.where} as member {identity.name}",
        _described(kept),
        f"it may lack what was committed: {may_be_lost}"
        if may_be_lost
        else "nothing that was committed is lost",
        f"heard: {', '.join(data['heard']) or 'nobody'}; not heard: {_missed(missed) or 'nobody'}",
    ]
    if gives_up:
        lines.append(f"given up: {', '.join(data['gives_up'])}")
    lines.append(
        f"start it: embedbk metadata --dir {options.dir} --listen ENDPOINT; others join it with --join"
    )
    if gives_up and not knows_lineages:
        lines.append(
            f"its level, {kept.catalog.level}, knows no lineages, so nothing is given up yet, and bookies doubt it: "
            "raise the level when it runs (embedbk quorum raise), then start it once more with --may-have-lost "
            f"--gives-up {','.join(data['gives_up'])}"
        )
    return CommandResult(data, "\n".join(lines))


def _refuse_a_living_one(leads: Sequence[str], token: str) -> None:
    if leads:
        raise UsageError(
            f"this cluster's metadata is served by {', '.join(leads)}: nothing needs to be brought back",
            hint=f"stop its members first, or say that what they did is given up: --accept-loss {token}",
        )


def _has_bookies(catalog: Catalog) -> bool:
    return next(_records(catalog, COOKIES_PREFIX), None) is not None


def _endpoints(kept: KeptMetadata, ask: str) -> list[str]:
    """The addresses of bookies and members by the state, and those that the operator names."""
    found = [
        each for member in kept.configuration.members for each in kept.configuration.endpoints_of(member)
    ]
    for record in _records(kept.catalog, BOOKIES_PREFIX):
        if record.value is not None:
            with contextlib.suppress(StorageError):
                found += decode_registration(record.value).endpoints
    found += endpoints_of(ask if is_address(ask) else f"embedbk://{ask}") if ask else []
    return [each for each in dict.fromkeys(found) if not each.startswith("local://")]


def _noted(directory: Path) -> tuple[dict[str, MetTold], dict[str, str]]:
    """The notes of bookies in directories beside the new one, as in an embedded cluster, where no process answers for
    them while it is closed; and why others cannot be read. Whose note that is counts like a bookie that does not
    answer."""
    found: dict[str, MetTold] = {}
    unread: dict[str, str] = {}
    for path in sorted(directory.glob(f"*/{MET_FILE}")):
        try:
            met = read_met(path.parent)
        except StorageError as damaged:
            unread[str(path.parent)] = str(damaged)
            continue
        if met is not None:
            name, told = path.parent.name, (met.cluster_token, met.lineage, met.revision, met.ids_end)
            found[str(path.parent)] = MetTold("bookie", name, *told)
    return found, unread


def _missed(missed: dict[str, str]) -> str:
    return "; ".join(f"{endpoint}: {reason}" for endpoint, reason in missed.items())


# --- Ending -----------------------------------------------------------------------------------------------


def nuke(directories: Sequence[Path], token: str | None) -> CommandResult:
    """Remove the metadata of stopped members. Without any copy of it a cluster's ledgers cannot be found again."""
    with ExitStack() as held:
        for directory in directories:
            hold_place(NodeDirectory("metadata", directory, {}), held)
        found = [(directory, _token_of(directory)) for directory in directories]
        if token is None:
            named = "; ".join(f"{directory} of the cluster {own}" for directory, own in found)
            raise UsageError(
                f"this would remove for ever: {named}",
                hint="say whose by --token TOKEN; embedbk quorum snapshot FILE keeps a copy first",
            )
        others = [f"{directory} is of the cluster {own}" for directory, own in found if own != token]
        if others:
            raise UsageError(f"--token {token}: {'; '.join(others)}", hint="nothing was removed")
        removed = [path for directory in directories for path in _of_a_member(directory)]
        for path in removed:
            try:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            except OSError as refused:
                raise StorageError(
                    f"{path} cannot be removed: {refused.strerror}", hint="say the command again"
                ) from refused
    return CommandResult(
        {"removed": [str(path) for path in removed]}, "\n".join(f"removed {path}" for path in removed)
    )


def _token_of(directory: Path) -> str:
    used = FileNotes(directory).read()
    if used is None:
        raise UsageError(
            f"{directory} is no metadata member's directory: nothing was removed",
            hint="give the directory that embedbk metadata was started with",
        )
    return used.cluster_token.hex()


def _of_a_member(directory: Path) -> list[Path]:
    """The files of a member, in the order of removal. The note goes last, so that a command which was cut short can be
    repeated."""
    names = [path.name for path in sorted(directory.iterdir())]
    there = [each for each in names if each.startswith("journal-") or each in (SNAPSHOT_DIRECTORY, *_FILES)]
    return [directory / each for each in (*there, *(each for each in _NOTE if each in names))]


# --- The commands -----------------------------------------------------------------------------------------


def add_commands(command: Callable[..., argparse.ArgumentParser]) -> None:
    """command: the function of `cli/quorum.py` that makes a command with the common arguments."""
    keep = command(
        "snapshot",
        lambda quorum, options: take_snapshot(quorum(), options.file),
        "keep a copy of all metadata, of a cluster that runs",
    )
    check = command(
        "verify",
        lambda _, options: verify(options.file),
        "whether a copy is whole, and of what it is",
        is_at=False,
    )
    back = command(
        "restore",
        lambda _, options: restore(options.file, options),
        "begin a member with a copy, where no member is left; its first start begins a lineage",
        is_at=False,
    )
    for made in (keep, check, back):
        made.add_argument("file", metavar="FILE", type=Path)
    left = command(
        "recover",
        lambda _, options: recover(options.survivors, options),
        "begin a member with what survivors have, where too few are left to elect a leader; they are not changed",
        is_at=False,
    )
    left.add_argument("survivors", metavar="DIR", type=Path, nargs="+", help="of stopped members")
    for made in (back, left):
        add = made.add_argument
        add("--dir", metavar="NEW", type=Path, required=True, help="a directory that is not there yet")
        add("--name", default=FIRST_MEMBER, help=f"of the new member (default: {FIRST_MEMBER})")
        add("--ask", metavar="ENDPOINTS", help="bookies and members to ask, beside those that the copy names")
        add(
            "--accept-loss",
            metavar="TOKEN",
            help="though something may be lost, or nobody says what was met, or the cluster is there: its token",
        )
    end = command(
        "nuke",
        lambda _, options: nuke(options.directories, options.token),
        "remove the metadata of stopped members for ever",
        is_at=False,
    )
    end.add_argument("directories", metavar="DIR", type=Path, nargs="+")
    end.add_argument(
        "--token", help="of their cluster; without it nothing is removed, and it is said what would be"
    )
