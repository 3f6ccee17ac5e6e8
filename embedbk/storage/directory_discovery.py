"""Which directories on a disk belong to a bookie, a metadata member or a whole cluster, and which identities they have.

Decides what a path given by a person means, keeps a node from starting on it meanwhile, and checks the identity files
of the set (P7.2) without trusting any of them. Nothing is written. checking.py and
metadata_checking.py check the contents of the files.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from embedbk.codec.kernels import crc32c
from embedbk.errors import UsageError
from embedbk.storage.checking import BookieFacts, check_bookie
from embedbk.storage.entry_log_reader import Whose, parse_log_name
from embedbk.storage.findings import Findings, Progress
from embedbk.storage.identity import (
    IDENTITY_FILE,
    IDENTITY_MAGIC,
    IDENTITY_VERSIONS,
    OWNER_FILE,
    SLOT_BYTES,
    SLOT_COUNT,
    SLOT_HEADER,
    DirectoryMark,
    IdentityBody,
    IdentityState,
    numbered,
)
from embedbk.storage.layout import LOSS_FILE, PARTS_FILE, read_parts
from embedbk.storage.met_metadata import MET_FILE
from embedbk.storage.metadata_checking import MetadataFacts, check_metadata
from embedbk.storage.raw_files import DiskDirectory, ensure_answer
from embedbk.storage.read_only_marker import READ_ONLY_FILE, read_only_reason
from embedbk.storage.starts import NEVER_STARTED, StartCount
from embedbk.storage.used_reader import USED_FILE, read_used

__all__ = [
    "NodeDirectory",
    "DirectoryReport",
    "check_place",
    "find_places",
    "hold_place",
    "ledger_directories",
]

_PART = re.compile(r"(journal|entries)(-([2-9]|1[0-6]))?")
# Beside the parts of a bookie.
_OWN_NAMES = {
    LOSS_FILE,
    PARTS_FILE,
    READ_ONLY_FILE,
    "SCRUB",
    OWNER_FILE,
    MET_FILE,
    f"{MET_FILE}.new",
}


@dataclass(slots=True)
class NodeDirectory:
    """One bookie or member: its root, and its parts by purpose ("journal", "entries", "entries-2" ...)."""

    kind: str  # "bookie" or "metadata"
    root: Path
    parts: dict[str, Path] = field(default_factory=dict)


@dataclass(slots=True)
class DirectoryReport:
    """The result of checking one directory."""

    place: NodeDirectory
    findings: Findings
    node_id: str = ""
    incarnation: bytes = b""
    cluster_token: bytes = b""
    starts: StartCount = NEVER_STARTED
    facts: BookieFacts | MetadataFacts = field(default_factory=BookieFacts)

    def as_data(self) -> dict[str, Any]:
        """Plain values for JSON."""
        numbers = msgspec.to_builtins(self.facts)
        if self.place.kind == "metadata":
            numbers = {name: numbers[name] for name in ("records", "last_index", "revision")}
        return {
            "kind": self.place.kind,
            "directory": str(self.place.root),
            "id": self.node_id,
            "incarnation": self.incarnation.hex(),
            "cluster": self.cluster_token.hex(),
            "is_clean": self.findings.damage_count == 0,
            "damages": self.findings.damage_count,
            "notes": self.findings.note_count,
            **numbers,
        }


# --- What a path is -----------------------------------------------------------------------------------------


def find_places(
    path: Path, journal_directories: Sequence[Path] = (), ledger_directories: Sequence[Path] = ()
) -> list[NodeDirectory]:
    """The bookies and members that a directory is or holds. A bookie's further directories are where its identity says
    that they were made, unless they are given.

    Raises:
        UsageError: it is not there, cannot be read, is empty, or holds nothing of embedbk.
    """
    names = _names(path)
    place = _place(path, names)
    is_given = bool(journal_directories or ledger_directories)
    if place is None and is_given and all(name in _OWN_NAMES for name in names):
        place = NodeDirectory("bookie", path)  # Everything of it is elsewhere.
    if place is not None:
        for purpose, given in (("journal", journal_directories), ("entries", ledger_directories)):
            if given:
                place.parts = {
                    each: at for each, at in place.parts.items() if each.partition("-")[0] != purpose
                }
                place.parts |= numbered(purpose, given)
        for part in place.parts.values():
            _names(part)
        if place.kind == "bookie":
            _add_parts_elsewhere(place)
        return [place]
    if is_given:
        raise UsageError(
            f"directory {path} is no bookie's: --journal-dir and --ledger-dir go with one",
            hint="give the bookie's own directory; it has a folder 'entries'",
        )
    found = [
        each
        for name in names
        # The file system's own folder, which its administrator alone may read.
        if name != "lost+found"
        and (path / name).is_dir()
        and (each := _place(path / name, _names(path / name))) is not None
    ]
    for each in found:
        if each.kind == "bookie":
            _add_parts_elsewhere(each)
    if found:
        return found
    held = f"holds {', '.join(names[:3])}" + (" ..." if len(names) > 3 else "") if names else "is empty"
    raise UsageError(
        f"directory {path} {held} and nothing of embedbk",
        hint="give the directory of a bookie, of a metadata member, or the one that holds them",
    )


def ledger_directories(path: Path) -> list[Path]:
    """The ledger directories, if they exist, of the bookie whose directory this is; none if it is no bookie's."""
    place = _place(path, _names(path))
    if place is None or place.kind != "bookie" or path in place.parts.values():
        return []
    _add_parts_elsewhere(place)
    purposes = sorted((each for each in place.parts if each.startswith("entries")), key=_number)
    return [place.parts[each] for each in purposes]


def _names(path: Path) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except NotADirectoryError:
        raise UsageError(f"{path} is not a directory", hint="give the directory that it stands in") from None
    except OSError as refused:
        raise UsageError(
            f"directory {path} cannot be read: {refused.strerror}", hint="check the path and its permissions"
        ) from refused


def _place(path: Path, names: list[str]) -> NodeDirectory | None:
    held = set(names)
    if "entries" in held or (LOSS_FILE in held and "journal" in held):
        place = NodeDirectory("bookie", path)
        place.parts = {name: path / name for name in names if _PART.fullmatch(name)}
        return place
    if "journal" in held and (path / "journal").is_dir():
        return NodeDirectory("bookie", path, {"journal": path / "journal"})
    parts = {purpose: at for purpose, at in read_parts(path).items() if at.is_dir()}
    if parts:
        return NodeDirectory("bookie", path, parts)  # All of it is elsewhere.
    has_journal = any(name.startswith("journal-") for name in names)
    has_logs = any(parse_log_name(name) for name in names)
    if has_logs:
        body = _read_identity(path, Findings())
        return NodeDirectory("bookie", path, {body.purpose if body is not None else "entries": path})
    if has_journal:
        body = _read_identity(path, Findings()) if IDENTITY_FILE in held else None
        is_bookies = IDENTITY_FILE in held
        purpose = body.purpose if body is not None else "journal"
        return NodeDirectory("bookie" if is_bookies else "metadata", path, {purpose: path})
    body = _read_identity(path, Findings()) if IDENTITY_FILE in held else None
    return (
        NodeDirectory("bookie", path, {body.purpose: path})
        if body is not None and body.role == "bookie"
        else None
    )


def _add_parts_elsewhere(place: NodeDirectory) -> None:
    """Parts on other devices: where they were made stands in the identity of each part."""
    for path in list(place.parts.values()):
        body = _read_identity(path, Findings())
        for mark in body.directories if body is not None else ():
            if mark.purpose in place.parts or _stood_inside(mark, body):
                continue  # A copy of a bookie without one of its folders must not be given the original's.
            if Path(mark.path).is_dir():
                place.parts[mark.purpose] = Path(mark.path)


def _stood_inside(mark: DirectoryMark, body: IdentityBody | None) -> bool:
    """Whether a part was made as a folder of the bookie's own directory, beside the one that has this identity."""
    assert body is not None
    own = next((each for each in body.directories if each.purpose == body.purpose), mark)
    both = (Path(mark.path), Path(own.path))
    return both[0].parent == both[1].parent and [each.name for each in both] == [mark.purpose, own.purpose]


# --- Holding it ---------------------------------------------------------------------------------------------


def hold_place(place: NodeDirectory, stack: ExitStack) -> None:
    """Keep it from being started until the stack is left, without writing anything.

    Raises:
        UsageError: a process has it in use, and which; or it cannot be told.
    """
    for path in {place.root, *place.parts.values()}:
        for name in (OWNER_FILE, "LOCK"):
            try:
                descriptor = os.open(path / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            except OSError as refused:
                raise UsageError(
                    f"{path / name} cannot be opened, so nobody can tell whether the directory is in use: "
                    f"{refused.strerror}",
                    hint="run this as the user that the bookie runs as, or give --in-use to read it as it is",
                ) from refused
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
                raise UsageError(
                    f"directory {path} is in use" + (f" by process {holder}" if holder else ""),
                    hint="stop that process first, or give --in-use: what is being written then looks like damage",
                ) from None
            except OSError as refused:
                raise UsageError(
                    f"{path / name} cannot be locked, so nobody can tell whether the directory is in use: "
                    f"{refused.strerror}",
                    hint="give --in-use to read it as it is, if no process has it",
                ) from refused


# --- Whose it is --------------------------------------------------------------------------------------------


def _read_identity(directory: Path, findings: Findings) -> IdentityBody | None:
    """The newest whole copy in a directory's IDENTITY; None when there is none, and the reason is reported."""
    path = directory / IDENTITY_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        findings.damage(str(path), "it is missing: the directory was wiped, or is another's")
        return None
    except OSError as refused:
        ensure_answer(str(path), refused)
        findings.damage(str(path), f"the file cannot be read: {refused.strerror}")
        return None
    best: tuple[int, IdentityState, IdentityBody] | None = None
    bad: list[int] = []
    for slot in range(SLOT_COUNT):
        copy = _read_copy(content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        if copy is None:
            bad.append(slot * SLOT_BYTES)
        elif best is None or copy[0] > best[0]:
            best = copy
    if best is None:
        findings.damage(str(path), "both copies are damaged: nobody can tell whose directory it is", offset=0)
        return None
    if best[1] != IdentityState.COMPLETE:
        findings.note(str(path), "the first start was cut short; the next one makes another identity")
    for offset in bad if best[0] > 1 else ():  # At the very first copy the other slot was never written.
        findings.damage(str(path), "one of the two copies is damaged; the other one serves", offset=offset)
    return best[2]


def _read_copy(slot: bytes) -> tuple[int, IdentityState, IdentityBody] | None:
    if len(slot) < SLOT_HEADER.size:
        return None
    magic, version, state, sequence, size, crc = SLOT_HEADER.unpack_from(slot)
    body = slot[SLOT_HEADER.size : SLOT_HEADER.size + size]
    if magic != IDENTITY_MAGIC or version not in IDENTITY_VERSIONS or len(body) != size:
        return None
    if crc != crc32c(body, crc32c(slot[: SLOT_HEADER.size - 4])):
        return None
    try:
        return sequence, IdentityState(state), msgspec.msgpack.decode(body, type=IdentityBody)
    except (ValueError, msgspec.MsgspecError):
        return None


def _check_identities(place: NodeDirectory, findings: Findings) -> IdentityBody | None:
    """The identity files of a bookie's parts against each other; the one to believe."""
    bodies = {
        purpose: body
        for purpose, path in sorted(place.parts.items())
        if (body := _read_identity(path, findings)) is not None
    }
    if not bodies:
        return None
    known = max(bodies.values(), key=lambda body: len(body.directories))
    if known.role != place.kind:
        findings.damage(str(place.root), f"its identity is that of a {known.role}, not of a {place.kind}")
    marks = {mark.purpose: mark.mark for mark in known.directories}
    _check_times(place, bodies, findings)
    for purpose in sorted(marks.keys() - place.parts.keys()):
        findings.damage(
            str(place.root),
            f"its {purpose} directory is not here: give it, or it was lost and nothing says what it held",
        )
    for purpose, body in bodies.items():
        own = {mark.purpose: mark.mark for mark in body.directories}
        same = (body.node_id, body.cluster_token, body.incarnation) == (
            known.node_id,
            known.cluster_token,
            known.incarnation,
        )
        if not same or body.purpose != purpose or own.get(purpose) != marks.get(purpose):
            findings.damage(
                str(place.parts[purpose] / IDENTITY_FILE),
                f"this is the {body.purpose} directory of {body.role} {body.node_id!r}, incarnation "
                f"{body.incarnation.hex()}; expected was the {purpose} directory of {known.node_id!r}, incarnation "
                f"{known.incarnation.hex()}: swapped?",
            )
    return known


def _check_times(place: NodeDirectory, bodies: dict[str, IdentityBody], findings: Findings) -> None:
    """Check that all parts are of one time, and that the journals' notes are where they were kept (P7.9)."""
    served = max(body.served for body in bodies.values())
    for purpose, body in bodies.items():
        if body.starts < served:
            findings.damage(
                str(place.parts[purpose]),
                f"it knows {body.starts} starts, and others of its directories served in start {served}: an older copy",
            )
        if not purpose.startswith("journal") or not any(each.notes_used for each in bodies.values()):
            continue
        try:
            is_noted = read_used(DiskDirectory(place.parts[purpose])) is not None
        except OSError:
            continue  # Reported where the journal is read.
        if not is_noted:
            findings.damage(
                str(place.parts[purpose] / USED_FILE),
                "the note of what the journal used is gone: nobody can tell whether it has less",
            )


# --- The check ----------------------------------------------------------------------------------------------


def check_place(place: NodeDirectory, *, progress: Progress | None = None) -> DirectoryReport:
    """Check one bookie or member whole. The caller holds it, or knows that it is in use."""
    findings = Findings()
    report = DirectoryReport(place, findings)
    options = {} if progress is None else {"progress": progress}
    if place.kind == "metadata":
        facts = check_metadata(DiskDirectory(place.parts["journal"]), findings, **options)
        report.facts = facts
        report.node_id, report.incarnation, report.cluster_token = (
            "metadata",
            facts.incarnation,
            facts.cluster_token,
        )
        return report
    if (place.root / LOSS_FILE).exists():
        findings.note(
            str(place.root / LOSS_FILE), "it may have lost entries, and is not through with telling which"
        )
    if (reason := read_only_reason(place.root)) is not None:
        findings.note(
            str(place.root / READ_ONLY_FILE),
            f"read-only by an operator's word: {reason or 'no reason given'}",
        )
    body = _check_identities(place, findings)
    whose = Whose()
    if body is not None:
        report.node_id, report.incarnation, report.cluster_token = (
            body.node_id,
            body.incarnation,
            body.cluster_token,
        )
        report.starts = body.start_count()
        whose = Whose(body.cluster_token, body.incarnation)
    parts = {purpose: DiskDirectory(path) for purpose, path in place.parts.items()}
    purposes = [mark.purpose for mark in body.directories] if body is not None else sorted(parts, key=_number)
    journals = [parts.get(purpose) for purpose in purposes if purpose.startswith("journal")]
    entries = [parts[purpose] for purpose in purposes if purpose.startswith("entries") and purpose in parts]
    report.facts = check_bookie(journals, entries, whose, findings, **options)
    return report


def _number(purpose: str) -> int:
    """The number of a part among those of its kind: 1 for "entries", 2 for "entries-2"."""
    return int(purpose.rpartition("-")[2]) if "-" in purpose else 1
