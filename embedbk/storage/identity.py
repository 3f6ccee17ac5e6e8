"""Which node directories belong to: the identity file in each, from its first start (P7.2; STORAGE.md section 6).

A bookie must never serve from directories that are not all the ones its identity names: wiped, swapped, added, lost
or another node's. `open_identity` reads all of them, mints an identity where all are empty, and refuses everything
else with what was found, what was expected and what to do. Nothing is ever removed here.

Minting takes two rounds, so that a crash between directories differs from a wiped disk: first every directory gets its
file as PREPARED, then every one as COMPLETE. No COMPLETE file: the bookie never served, so it mints again. One COMPLETE
file: all others were PREPARED before it, so a directory without a file was wiped.

Starts are counted in every directory, in two rounds likewise: begun in all of them, then served. A directory that
counts fewer begun starts than another counts served ones is an older copy (P7.9).

A ledger directory may join later, if the owner asks for it; none ever leaves. It is PREPARED with the whole set in its
file before any other directory names it, and the widest set that a COMPLETE file names counts.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import fcntl
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError, UsageError
from embedbk.ids import INCARNATION_BYTES, START_ID_BYTES, check_bookie_id
from embedbk.storage.noted import sync_directory, sync_name_of
from embedbk.storage.starts import StartCount, Starts

__all__ = ["IDENTITY_FILE", "OWNER_FILE", "HeldIdentity", "hold_directory", "numbered", "open_identity"]

IDENTITY_FILE = "IDENTITY"
OWNER_FILE = "OWNER"  # Locked while the directories are in use; holds the holder's pid.
IDENTITY_MAGIC = b"EBKI"
IDENTITY_VERSION = 2  # If its starts are counted; else 1, which is read as one that never started.
IDENTITY_VERSIONS = (1, 2)
SLOT_BYTES = 4096  # Two of them: a copy is never written over the newest one.
SLOT_COUNT = 2

# magic, version, state, sequence, body_size, crc32c of all before and the body
SLOT_HEADER = struct.Struct("<4sHHQII")
assert SLOT_HEADER.size == 24

_IGNORED = {OWNER_FILE, "lost+found"}  # Names that a directory may hold and still be empty.


class IdentityState(enum.IntEnum):
    """Numbers are on disk: never re-used."""

    PREPARED = 1
    COMPLETE = 2


class DirectoryMark(msgspec.Struct, frozen=True, array_like=True):
    """One directory of the set. path is where it was at the last start: for people, never compared."""

    purpose: str
    mark: bytes  # Random: two directories of one purpose cannot be swapped between bookies unseen.
    path: str


class IdentityBody(msgspec.Struct, frozen=True, array_like=True):
    role: str
    node_id: str
    cluster_token: bytes
    incarnation: bytes
    purpose: str  # The purpose of the directory that has this file.
    directories: list[DirectoryMark]
    starts: int = 0  # Begun.
    served: int = 0  # The newest start for which this was written everywhere, so that it may have served.
    recent: bytes = b""  # Numbers of the last starts, the newest last.
    notes_used: bool = False  # Its journals note which of their files was used last (JOURNAL.md section 9).

    def start_count(self) -> StartCount:
        ids = [self.recent[at : at + START_ID_BYTES] for at in range(0, len(self.recent), START_ID_BYTES)]
        return StartCount(self.starts, tuple(ids))


@dataclass(slots=True)
class _Found:
    """The state of one directory."""

    purpose: str
    path: Path
    body: IdentityBody | None = None
    state: IdentityState | None = None
    sequence: int = 0
    others: tuple[str, ...] = ()  # First names of files that are not the identity's.
    is_damaged: bool = False
    is_named: bool = False  # The name of its file is durable.


class HeldIdentity:
    """The identity of directories that this process holds; `close` lets another process have them."""

    def __init__(self, body: IdentityBody, locks: list[int], found: list[_Found]) -> None:
        self.role = body.role
        self.node_id = body.node_id
        self.cluster_token = body.cluster_token
        self.incarnation = body.incarnation
        self._locks = locks
        self._found = found
        bodies = [each.body for each in found if each.body is not None]
        newest = max(bodies, key=lambda body: body.starts)
        self._before = newest.start_count()
        self._served = max(body.served for body in bodies)
        self.notes_used = any(body.notes_used for body in bodies)
        # Which directories were not there at a start that may have served; empty when all are of one time.
        self.older = ", ".join(
            f"{each.purpose} directory {each.path} knows {each.body.starts} starts and not the "
            f"{self._served} of others"
            for each in found
            if each.body is not None and each.body.starts < self._served
        )

    def count_start(self) -> Starts:
        """Count this start, durably in every directory, before anything of it can be seen.

        Raises:
            StorageError: it cannot be written.
        """
        return Starts(self._before, self._keep)

    def _keep(self, count: StartCount) -> None:
        self._before = count
        for each in self._found:
            assert each.body is not None
            _write(
                each,
                IdentityState.COMPLETE,
                msgspec.structs.replace(each.body, starts=count.count, recent=b"".join(count.recent)),
            )

    def serve(self, *, notes_used: bool) -> None:
        """Note that everything is open and the node may serve from now on. notes_used: its journals note what they use.

        Raises:
            StorageError: it cannot be written.
        """
        self.notes_used = notes_used
        for each in self._found:
            assert each.body is not None
            _write(
                each,
                IdentityState.COMPLETE,
                msgspec.structs.replace(each.body, served=self._before.count, notes_used=notes_used),
            )

    def removed(self) -> str:
        """Which directory was removed while this process holds it; empty: none. What is written to one that is moved
        stays."""
        if all(os.fstat(lock).st_nlink for lock in self._locks):
            return ""
        gone = [str(each.path) for each in self._found if not (each.path / OWNER_FILE).exists()]
        return f"removed beneath it, each by itself or as its file {OWNER_FILE}: {', '.join(gone) or 'a directory'}"

    def close(self) -> None:
        """Let go of the directories. Twice is harmless."""
        while self._locks:
            os.close(self._locks.pop())


def open_identity(
    directories: Mapping[str, Path | str],
    *,
    role: str,
    node_id: str,
    cluster_token: bytes,
    expands: str = "",
) -> HeldIdentity:
    """Hold the directories of one bookie or metadata member, making their identity at the first start.

    Args:
        directories: purpose ("journal", "entries", "entries-2") to path; always the same ones for one node.
        role: "bookie" or "metadata".
        cluster_token: of the cluster that it belongs to; empty takes the one in an existing identity.
        expands: a purpose ("entries") of which further directories may join the set: empty ones, at its end.

    Raises:
        UsageError: this is another node's or another cluster's directory, or it is in use (the holder's pid is said).
        StorageError: a directory of the set is wiped, missing, swapped or damaged.
    """
    check_bookie_id(node_id)
    # Absolute: the process may change its working directory.
    paths = {purpose: Path(os.path.abspath(path)) for purpose, path in directories.items()}
    if len({path.resolve() for path in paths.values()}) != len(paths):
        raise UsageError(f"directories {_listed(paths)}: each purpose needs one of its own")
    locks: list[int] = []
    try:
        found = [_look(purpose, path) for purpose, path in paths.items()]
        _hold(found, locks)
        found = [
            _look(purpose, path) for purpose, path in paths.items()
        ]  # Read again, now that no other process changes them.
        if any(each.state == IdentityState.COMPLETE for each in found):
            body = _check(found, role, node_id, cluster_token, expands, locks)
        else:
            body = _mint(found, role, node_id, cluster_token, locks)
        return HeldIdentity(body, locks, found)
    except BaseException:
        while locks:
            os.close(locks.pop())
        raise


def numbered(purpose: str, paths: Sequence[str | os.PathLike[str]]) -> dict[str, Path]:
    """Several directories of one purpose: "entries", "entries-2", "entries-3" ..."""
    return {
        purpose if number == 1 else f"{purpose}-{number}": Path(path) for number, path in enumerate(paths, 1)
    }


# --- Looking -------------------------------------------------------------------------------------------------


def _look(purpose: str, path: Path) -> _Found:
    found = _Found(purpose, path)
    try:
        names = sorted(entry.name for entry in os.scandir(path))
    except FileNotFoundError:
        return found
    except OSError as refused:
        raise StorageError(
            f"directory {path} cannot be read: {refused}",
            hint="check that its disk is mounted and its permissions",
        ) from refused
    found.others = tuple(name for name in names if name not in _IGNORED and name != IDENTITY_FILE)
    if IDENTITY_FILE in names:
        _read_file(found)
    return found


def _read_file(found: _Found) -> None:
    path = found.path / IDENTITY_FILE
    try:
        content = path.read_bytes()
    except OSError as refused:
        raise StorageError(
            f"{path} cannot be read: {refused}", hint="check its permissions and its disk"
        ) from refused
    for slot in range(SLOT_COUNT):
        copy = _read_slot(path, content[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES])
        if copy is not None and copy[1] >= found.sequence:
            found.state, found.sequence, found.body = copy
    # An empty file is a first start that was cut short before it wrote anything.
    found.is_damaged = found.body is None and any(content)


def _read_slot(path: Path, slot: bytes) -> tuple[IdentityState, int, IdentityBody] | None:
    """(state, sequence, body) of one copy; None when it is not whole."""
    if len(slot) < SLOT_HEADER.size:
        return None
    magic, version, state, sequence, size, crc = SLOT_HEADER.unpack_from(slot)
    body = slot[SLOT_HEADER.size : SLOT_HEADER.size + size]
    if magic != IDENTITY_MAGIC or len(body) != size:
        return None
    if crc32c(body, crc32c(slot[: SLOT_HEADER.size - 4])) != crc:
        return None
    if version not in IDENTITY_VERSIONS:
        raise StorageError(
            f"{path} has version {version}; this embedbk knows {' and '.join(map(str, IDENTITY_VERSIONS))}",
            hint="start it with the version that wrote it, or a later one",
        )
    try:
        return IdentityState(state), sequence, msgspec.msgpack.decode(body, type=IdentityBody)
    except (ValueError, msgspec.MsgspecError):
        return None


# --- Holding -------------------------------------------------------------------------------------------------


def _hold(found: list[_Found], locks: list[int]) -> None:
    """Lock each directory that is there, in the order given; a first start makes them."""
    if all(
        not each.others and each.state != IdentityState.COMPLETE and not each.is_damaged for each in found
    ):
        for each in found:
            _make(each.path)
    for each in found:
        if each.path.is_dir():
            locks.append(hold_directory(each.path))  # noqa: PERF401 - what was locked before a refusal must be let go


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        sync_directory(path.parent)
        sync_name_of(path.parent)  # It may be new as well.
    except OSError as refused:
        raise UsageError(
            f"directory {path} cannot be made: {refused.strerror}",
            hint="give a directory that this process may write to",
        ) from refused


def hold_directory(path: Path) -> int:
    """Keep other processes out of a directory until the descriptor that this gives is closed.

    Raises:
        UsageError: it is in use, and by which process.
        StorageError: it cannot be locked.
    """
    try:
        lock = os.open(path / OWNER_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as refused:
        raise StorageError(
            f"directory {path} cannot be held: {refused}", hint="check its permissions and its disk"
        ) from refused
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as taken:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        raise UsageError(
            f"directory {path} is in use by process {holder}",
            hint="stop that process first; one bookie or member at a time uses a directory",
        ) from taken
    except OSError as refused:
        os.close(lock)
        raise StorageError(
            f"directory {path} cannot be locked, so nobody can tell whether it is in use: {refused.strerror}",
            hint="put it on a file system that has locks (flock), or mount it with them",
        ) from refused
    with contextlib.suppress(OSError):  # For people only: a full device keeps no node from starting (I53).
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock


# --- Deciding ------------------------------------------------------------------------------------------------


def _check(
    found: list[_Found], role: str, node_id: str, cluster_token: bytes, expands: str, locks: list[int]
) -> IdentityBody:
    """Check that all directories have one complete identity, and that it is the one asked for."""
    # An expansion that was cut short is known to some of them only.
    known, body = max(_complete(found), key=lambda each: len(each[1].directories))
    if (body.role, body.node_id) != (role, node_id):
        raise UsageError(
            f"directory {known.path} belongs to {body.role} {body.node_id!r}, not to {role} {node_id!r}",
            hint=f"start it as {body.node_id!r}, or give {node_id!r} directories of its own",
        )
    if cluster_token and body.cluster_token != cluster_token:
        raise UsageError(
            f"directory {known.path} belongs to the cluster {body.cluster_token.hex()}, not to {cluster_token.hex()}",
            hint="check the metadata members' address, or give the directories of this cluster",
        )
    if expands:
        for each in found:  # Before the set is written to a new directory: none of the old ones is lost.
            mark = next((mark for mark in body.directories if mark.purpose == each.purpose), None)
            if mark is not None:
                _check_one(each, body, mark, node_id)
        body = _expand(found, body, expands, locks)
    expected = {mark.purpose: mark for mark in body.directories}
    if set(expected) != {each.purpose for each in found}:
        raise StorageError(
            f"{role} {node_id!r} has directories for {sorted(expected)}; given were {_listed_found(found)}",
            hint="give exactly the directories it was made with, in their order, "
            + _where(body)
            + "; a new ledger directory goes behind them, with --expand (expands=True)",
        )
    for each in found:
        _check_one(each, body, expected[each.purpose], node_id)
    for each in found:
        # The last round of the first start, or of an expansion, was cut short.
        assert each.body is not None
        if each.state == IdentityState.PREPARED or len(each.body.directories) < len(body.directories):
            _write(each, IdentityState.COMPLETE, _body_for(each, body))
    return body


def _complete(found: list[_Found]) -> list[tuple[_Found, IdentityBody]]:
    return [
        (each, each.body) for each in found if each.state == IdentityState.COMPLETE and each.body is not None
    ]


def _body_for(each: _Found, body: IdentityBody) -> IdentityBody:
    return msgspec.structs.replace(body, purpose=each.purpose)


def _expand(found: list[_Found], body: IdentityBody, purpose: str, locks: list[int]) -> IdentityBody:
    """The identity with the empty directories that follow those of this purpose. Each new directory gets the whole set
    before any of the others does, so that it is never taken for a wiped one."""
    have = {mark.purpose for mark in body.directories}
    fresh = [each for each in found if each.purpose not in have]
    if not fresh or have - {each.purpose for each in found}:
        return body  # Nothing new, or something is missing: later checks report it.
    for each in fresh:
        is_begun = (
            each.state == IdentityState.PREPARED
            and each.body is not None
            and each.body.incarnation == body.incarnation
            and each.body.purpose == each.purpose
        )
        if (
            each.purpose.rpartition("-")[0] != purpose
            or each.others
            or each.is_damaged
            or (each.body and not is_begun)
        ):
            raise StorageError(
                f"{each.purpose} directory {each.path} cannot join {body.role} {body.node_id!r}: it is not empty, or "
                f"not a further one of its {purpose} directories",
                hint="give an empty directory behind the others",
            )
        if not each.path.is_dir():
            _make(each.path)
            locks.append(hold_directory(each.path))
    wider = msgspec.structs.replace(
        body,
        directories=[
            *body.directories,
            *(DirectoryMark(each.purpose, os.urandom(8), str(each.path)) for each in fresh),
        ],
    )
    for each in fresh:
        _write(each, IdentityState.PREPARED, _body_for(each, wider))
    return wider


def _check_one(each: _Found, body: IdentityBody, expected: DirectoryMark, node_id: str) -> None:
    """Check one directory against the identity of the set."""
    what = f"{each.purpose} directory {each.path} of {body.role} {node_id!r}"
    if each.is_damaged:
        raise StorageError(f"{what}: both copies in {IDENTITY_FILE} are damaged", hint=_replace_hint(body))
    if each.body is None:
        held = (
            f"holds {', '.join(each.others[:3])} but no {IDENTITY_FILE}"
            if each.others
            else "is empty or missing"
        )
        raise StorageError(
            f"{what} {held}; it was made with incarnation {body.incarnation.hex()}: wiped, swapped or not mounted?",
            hint="give it its own directory back; " + _replace_hint(body),
        )
    own = {mark.purpose: mark.mark for mark in each.body.directories}
    if (
        each.body.incarnation != body.incarnation
        or each.body.purpose != each.purpose
        or own.get(each.purpose) != expected.mark
    ):
        raise StorageError(
            f"{what} is the {each.body.purpose} directory of {each.body.role} {each.body.node_id!r} with incarnation "
            f"{each.body.incarnation.hex()}; expected was {body.incarnation.hex()}: swapped?",
            hint="put each directory back in its place; " + _replace_hint(body),
        )


def _mint(
    found: list[_Found], role: str, node_id: str, cluster_token: bytes, locks: list[int]
) -> IdentityBody:
    """Mint the identity at a first start: every directory is empty, or was left by a first start that was cut short."""
    for each in found:
        if each.others or each.is_damaged:
            held = ", ".join(each.others[:3]) or f"a damaged {IDENTITY_FILE}"
            raise StorageError(
                f"{each.purpose} directory {each.path} holds {held} but no identity of a {role}: foreign, or its "
                f"{IDENTITY_FILE} was removed",
                hint="give an empty directory, or the one that this node was made with",
            )
    if not cluster_token:
        raise UsageError(
            f"{role} {node_id!r}: {_listed_found(found)} are new, and a new directory needs the cluster's token",
            hint="connect to the metadata members first, or make the cluster",
        )
    assert len(locks) == len(found)
    marks = [DirectoryMark(each.purpose, os.urandom(8), str(each.path)) for each in found]
    incarnation = os.urandom(INCARNATION_BYTES)
    bodies = [IdentityBody(role, node_id, cluster_token, incarnation, each.purpose, marks) for each in found]
    for state in (IdentityState.PREPARED, IdentityState.COMPLETE):
        for each, body in zip(found, bodies, strict=True):
            _write(each, state, body)
    return bodies[0]


# --- Writing -------------------------------------------------------------------------------------------------


def _write(each: _Found, state: IdentityState, body: IdentityBody) -> None:
    """Write one copy into the slot that does not hold the newest one, durably."""
    sequence = each.sequence + 1
    packed = _pack(body)
    version = IDENTITY_VERSION if body.starts else 1
    head = SLOT_HEADER.pack(IDENTITY_MAGIC, version, state, sequence, len(packed), 0)[:-4]
    slot = head + crc32c(packed, crc32c(head)).to_bytes(4, "little") + packed
    if len(slot) > SLOT_BYTES:
        raise UsageError(f"directory {each.path}: its path is too long to be kept in {IDENTITY_FILE}")
    path = each.path / IDENTITY_FILE
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            wrote = os.pwrite(file, slot.ljust(SLOT_BYTES, b"\0"), sequence % SLOT_COUNT * SLOT_BYTES)
            if wrote != SLOT_BYTES:
                raise OSError(
                    errno.ENOSPC, os.strerror(errno.ENOSPC)
                )  # The next write would have failed with it.
            os.fsync(file)
        finally:
            os.close(file)
        # Also where there is a file: the start that made it may have been killed before it came to this.
        if not each.is_named:
            sync_directory(each.path)
            each.is_named = True
    except OSError as refused:
        if (
            each.state is None
        ):  # It has no whole copy: half of one would look like a damaged identity for ever.
            with contextlib.suppress(OSError):
                path.unlink()
        raise StorageError(
            f"{path} cannot be written: {refused}", hint="check its permissions, its disk and the room on it"
        ) from refused
    each.sequence, each.state, each.body = sequence, state, body


def _pack(body: IdentityBody) -> bytes:
    """Encode the identity with as many starts as fit; then only the ends of paths, so that one more start always
    fits."""
    packed = msgspec.msgpack.encode(body)
    while len(packed) > SLOT_BYTES - SLOT_HEADER.size and len(body.recent) > START_ID_BYTES:
        kept = len(body.recent) // START_ID_BYTES // 2 * START_ID_BYTES
        body = msgspec.structs.replace(body, recent=body.recent[-kept:])
        packed = msgspec.msgpack.encode(body)
    if len(packed) > SLOT_BYTES - SLOT_HEADER.size and body.starts:
        marks = [DirectoryMark(mark.purpose, mark.mark, mark.path[-16:]) for mark in body.directories]
        packed = msgspec.msgpack.encode(msgspec.structs.replace(body, directories=marks))
    return packed


# --- Saying --------------------------------------------------------------------------------------------------


def _listed(paths: Mapping[str, Path]) -> str:
    return ", ".join(f"{purpose}={path}" for purpose, path in paths.items())


def _listed_found(found: list[_Found]) -> str:
    return _listed({each.purpose: each.path for each in found})


def _where(body: IdentityBody) -> str:
    return "last seen at " + _listed({mark.purpose: Path(mark.path) for mark in body.directories})


def _replace_hint(body: IdentityBody) -> str:
    """How to go on when the data is lost: as another bookie, so that nobody takes it for the old one."""
    if body.role != "bookie":
        return f"if its data is lost, restore the directories of {body.node_id!r} from a copy"
    return (
        f"if its data is lost, leave {body.node_id!r} down and start a new bookie under a new id in empty directories: "
        "python -m embedbk bookie --id NEW-ID --dir EMPTY-DIRECTORY --metadata ..."
    )
