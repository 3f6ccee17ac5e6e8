"""Identity files: a bookie starts only with exactly the directories it was made with (P7.2)."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import shutil
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from embedbk.codec.kernels import crc32c
from embedbk.errors import StorageError, UsageError
from embedbk.storage import identity
from embedbk.storage.directory_discovery import NodeDirectory, hold_place
from embedbk.storage.identity import (
    IDENTITY_FILE,
    SLOT_BYTES,
    SLOT_HEADER,
    HeldIdentity,
    numbered,
    open_identity,
)

TOKEN = b"T" * 16


def directories(root: Path, name: str = "b1") -> dict[str, Path]:
    return {"journal": root / name / "journal", "entries": root / name / "entries"}


def start(
    where: dict[str, Path], node_id: str = "b1", token: bytes = TOKEN, role: str = "bookie", expands: str = ""
) -> HeldIdentity:
    return open_identity(where, role=role, node_id=node_id, cluster_token=token, expands=expands)


def make(where: dict[str, Path], node_id: str = "b1", token: bytes = TOKEN) -> bytes:
    """A first start and a clean stop; returns the incarnation."""
    held = start(where, node_id, token)
    held.close()
    for path in where.values():
        (path / "data").write_bytes(b"entries of " + node_id.encode())
    return held.incarnation


def test_the_first_start_mints_an_identity_that_stays(tmp_path: Path) -> None:
    where = directories(tmp_path)
    incarnation = make(where)
    held = start(where)
    assert held.incarnation == incarnation
    assert len(incarnation) == 16
    assert (held.role, held.node_id, held.cluster_token) == ("bookie", "b1", TOKEN)
    held.close()
    held.close()
    assert make(directories(tmp_path, "b2"), "b2") != incarnation


def test_a_moved_data_directory_is_still_itself(tmp_path: Path) -> None:
    """Paths are for people: what counts is what the files say."""
    incarnation = make(directories(tmp_path))
    (tmp_path / "b1").rename(tmp_path / "elsewhere")
    held = start(directories(tmp_path, "elsewhere"))
    assert held.incarnation == incarnation
    held.close()


@pytest.mark.parametrize("lost", ["journal", "entries"])
@pytest.mark.parametrize("how", ["removed", "emptied"])
def test_a_wiped_directory_is_refused(tmp_path: Path, lost: str, how: str) -> None:
    """P7.2: wiped disks; the others still name it."""
    where = directories(tmp_path)
    make(where)
    shutil.rmtree(where[lost])
    if how == "emptied":
        where[lost].mkdir()
    with pytest.raises(StorageError, match=f"{lost} directory .* is empty or missing") as caught:
        start(where)
    assert "python -m embedbk bookie --id NEW-ID" in caught.value.hint
    assert not where[lost].exists() or not (where[lost] / IDENTITY_FILE).exists(), (
        "nothing is minted over a loss"
    )


def test_data_without_an_identity_is_refused(tmp_path: Path) -> None:
    where = directories(tmp_path)
    make(where)
    (where["entries"] / IDENTITY_FILE).unlink()
    with pytest.raises(StorageError, match="holds data but no IDENTITY"):
        start(where)
    (where["journal"] / IDENTITY_FILE).unlink()
    with pytest.raises(StorageError, match="foreign, or its IDENTITY was removed"):
        start(where)


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    where = directories(tmp_path)
    where["journal"].mkdir(parents=True)
    (where["journal"] / "holiday.jpg").write_bytes(b"...")
    with pytest.raises(StorageError, match=r"holds holiday\.jpg but no identity"):
        start(where)
    assert not where["entries"].exists()


def test_another_id_or_role_or_cluster_is_refused(tmp_path: Path) -> None:
    where = directories(tmp_path)
    make(where)
    with pytest.raises(UsageError, match="belongs to bookie 'b1', not to bookie 'b7'"):
        start(where, "b7")
    with pytest.raises(UsageError, match="not to metadata 'b1'"):
        start(where, role="metadata")
    with pytest.raises(UsageError, match="belongs to the cluster 5454"):
        start(where, token=b"X" * 16)
    start(where, token=b"").close()


def test_swapped_directories_are_refused(tmp_path: Path) -> None:
    """P7.2: swapped disks, between two bookies and within one."""
    one, other = directories(tmp_path, "b1"), directories(tmp_path, "b2")
    make(one)
    make(other, "b2")
    with pytest.raises(StorageError, match="is the entries directory of bookie 'b2'"):
        start({"journal": one["journal"], "entries": other["entries"]})
    with pytest.raises(StorageError, match="is the entries directory of bookie 'b1'"):
        start({"journal": one["entries"], "entries": one["journal"]})


def test_a_directory_of_an_earlier_incarnation_is_refused(tmp_path: Path) -> None:
    where = directories(tmp_path)
    make(where)
    old = tmp_path / "old"
    where["entries"].rename(old)
    shutil.rmtree(tmp_path / "b1")
    make(where)
    shutil.rmtree(where["entries"])
    old.rename(where["entries"])
    with pytest.raises(StorageError, match="incarnation"):
        start(where)


def test_added_and_missing_directories_are_refused(tmp_path: Path) -> None:
    where = directories(tmp_path)
    make(where)
    with pytest.raises(StorageError, match=r"has directories for \['entries', 'journal'\]"):
        start({**where, "more": tmp_path / "b1" / "more"})
    with pytest.raises(StorageError, match="has directories for"):
        start({"journal": where["journal"]})


@pytest.mark.parametrize("slot", [0, 1])
def test_one_damaged_copy_is_survived(tmp_path: Path, slot: int) -> None:
    """Two copies, alternately written: no single damage loses the identity."""
    where = directories(tmp_path)
    incarnation = make(where)
    path = where["journal"] / IDENTITY_FILE
    content = bytearray(path.read_bytes())
    assert len(content) == 2 * SLOT_BYTES
    content[slot * SLOT_BYTES + 30] ^= 1
    path.write_bytes(content)
    held = start(where)
    assert held.incarnation == incarnation
    held.close()


@pytest.mark.parametrize("purpose", ["journal", "entries"])
def test_two_damaged_copies_are_refused(tmp_path: Path, purpose: str) -> None:
    where = directories(tmp_path)
    make(where)
    path = where[purpose] / IDENTITY_FILE
    content = bytearray(path.read_bytes())
    content[40] ^= 1
    content[SLOT_BYTES + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(StorageError, match="damaged"):
        start(where)


def test_every_flipped_byte_gives_the_same_identity_or_an_error(tmp_path: Path) -> None:
    where = directories(tmp_path)
    incarnation = make(where)
    path = where["entries"] / IDENTITY_FILE
    whole = path.read_bytes()
    for at in [*range(0, 400, 7), *range(SLOT_BYTES, SLOT_BYTES + 400, 7)]:
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        held = start(where)
        assert held.incarnation == incarnation
        held.close()


def test_an_unknown_version_is_refused_with_its_number(tmp_path: Path) -> None:
    where = directories(tmp_path)
    make(where)
    path = where["journal"] / IDENTITY_FILE
    content = bytearray(path.read_bytes())
    size = SLOT_HEADER.unpack_from(content)[4]
    struct.pack_into("<H", content, 4, 9)
    body = content[SLOT_HEADER.size : SLOT_HEADER.size + size]
    struct.pack_into(
        "<I", content, SLOT_HEADER.size - 4, crc32c(body, crc32c(content[: SLOT_HEADER.size - 4]))
    )
    path.write_bytes(content)
    with pytest.raises(StorageError, match="has version 9; this embedbk knows 1 and 2"):
        start(where)


@pytest.mark.parametrize("writes", [0, 1, 2, 3])
def test_a_first_start_that_was_cut_short_is_tried_again(tmp_path: Path, writes: int) -> None:
    """Two rounds, PREPARED then COMPLETE: a power cut between directories is told from a wiped disk."""
    where = directories(tmp_path)
    start(where).close()
    for position, path in enumerate(where.values()):  # Undo the writes behind the cut.
        copies = (path / IDENTITY_FILE).read_bytes()
        prepared, complete = copies[SLOT_BYTES:], copies[:SLOT_BYTES]
        if writes <= 2 + position:
            complete = bytes(SLOT_BYTES)
        if writes <= position:
            prepared = b""
        (path / IDENTITY_FILE).write_bytes(complete + prepared)
    incarnation = make(where)
    held = start(where)
    assert held.incarnation == incarnation
    held.close()


@pytest.mark.parametrize("is_short", [False, True])
@pytest.mark.parametrize("nth", range(1, 7))
def test_a_full_device_at_any_write_leaves_nothing_half_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, is_short: bool
) -> None:
    """I53, P7.2: a first start without room says so, and the next one goes on; the pid in OWNER is for people, and its
    want of room keeps nobody out."""
    where = directories(tmp_path)
    calls = 0

    def write(file: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls != nth:
            return pwrite(file, data, offset)
        if is_short:
            return pwrite(file, data[: len(data) // 50], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    pwrite = os.pwrite
    with monkeypatch.context() as patched:
        patched.setattr(identity.os, "pwrite", write)
        if nth <= len(where):  # Of its pids.
            start(where).close()
        else:
            with pytest.raises(StorageError, match=r"IDENTITY cannot be written: .*No space left") as refused:
                start(where)
            assert "room" in refused.value.hint
    held = start(where)
    incarnation = held.incarnation
    held.close()
    held = start(where)
    assert held.incarnation == incarnation
    held.close()


def test_a_directory_opened_twice_names_the_holder(tmp_path: Path) -> None:
    """Bad input: a bookie directory opened twice (I54)."""
    where = directories(tmp_path)
    held = start(where)
    with pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        start(where)
    held.close()
    start(where).close()


def test_a_directory_without_locks_is_not_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I54: a lock that the file system refuses tells of no other process; nobody can stop one."""
    where = directories(tmp_path)
    make(where)
    open_files = len(os.listdir("/proc/self/fd"))

    def refuse(_file: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match=r"cannot be locked.*No locks available"):
        start(where)
    assert len(os.listdir("/proc/self/fd")) == open_files
    place = NodeDirectory("bookie", tmp_path, dict(where))
    with ExitStack() as held, pytest.raises(UsageError, match=r"cannot be locked.*No locks available"):
        hold_place(place, held)


def _start_in_child(where: dict[str, Path], result: object) -> None:
    try:
        start(where)
    except UsageError as refused:
        result.send(str(refused))  # type: ignore[attr-defined]
    else:
        result.send("opened")  # type: ignore[attr-defined]


def test_another_process_is_told_the_pid(tmp_path: Path) -> None:
    where = directories(tmp_path)
    held = start(where)
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_start_in_child, args=(where, there))
    child.start()
    said = here.recv()
    child.join()
    assert f"in use by process {os.getpid()}" in said
    held.close()


# --- Several ledger directories ------------------------------------------------------------------------------


def several(root: Path, count: int, name: str = "b1") -> dict[str, Path]:
    places = [root / name / f"ledgers{number}" for number in range(count)]
    return {"journal": root / name / "journal", **numbered("entries", places)}


def test_directories_of_one_purpose_have_numbers(tmp_path: Path) -> None:
    where = several(tmp_path, 3)
    assert list(where) == ["journal", "entries", "entries-2", "entries-3"]
    incarnation = make(where)
    held = start(where)
    assert held.incarnation == incarnation
    held.close()


@pytest.mark.parametrize("lost", ["entries", "entries-2", "entries-3"])
def test_one_of_several_that_was_wiped_is_refused(tmp_path: Path, lost: str) -> None:
    """P7.2, D13: one of several directories wiped; also when the owner expands."""
    where = several(tmp_path, 3)
    make(where)
    shutil.rmtree(where[lost])
    where[lost].mkdir()
    fresh = tmp_path / "fresh"
    for more in ({}, {"entries-4": fresh}):
        with pytest.raises(StorageError, match=f"{lost} directory .* is empty or missing"):
            start(where | more, expands="entries")
    with pytest.raises(StorageError, match=f"{lost} directory .* is empty or missing"):
        start(where)
    assert not fresh.exists(), "nothing joins what has lost a part"


def test_directories_in_another_order_or_of_another_bookie_are_refused(tmp_path: Path) -> None:
    """P7.2: swapped among themselves, or with those of another one; fewer than there were."""
    where, others = several(tmp_path, 3), several(tmp_path, 3, "b2")
    make(where)
    make(others, "b2")
    with pytest.raises(StorageError, match=r"is the entries-3 directory .* swapped"):
        start({**where, "entries-2": where["entries-3"], "entries-3": where["entries-2"]})
    with pytest.raises(StorageError, match="swapped"):
        start({**where, "entries-2": others["entries-2"]})
    for expands in ("", "entries"):
        with pytest.raises(StorageError, match=r"has directories for .*entries-3.*; given were"):
            start({each: path for each, path in where.items() if each != "entries-3"}, expands=expands)


def test_an_empty_directory_joins_when_its_owner_says_so(tmp_path: Path) -> None:
    """P7.2, ST21: storage expansion is asked for, and is for good."""
    where, wider = several(tmp_path, 1), several(tmp_path, 3)
    incarnation = make(where)
    with pytest.raises(StorageError, match="given were") as caught:
        start(wider)
    assert "--expand" in caught.value.hint
    assert not wider["entries-2"].exists()
    held = start(wider, expands="entries")
    assert held.incarnation == incarnation
    with pytest.raises(UsageError, match="in use by process"):
        start(wider)
    held.close()
    start(wider).close()
    start(wider, expands="entries").close()  # Said once more it changes nothing.
    with pytest.raises(StorageError, match="has directories for"):
        start(where)


@pytest.mark.parametrize("strange", ["journal-2", "entries-2"])
def test_only_an_empty_ledger_directory_joins(tmp_path: Path, strange: str) -> None:
    where = several(tmp_path, 1)
    make(where)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    if strange == "entries-2":
        (fresh / "letters").write_bytes(b"mine")
    with pytest.raises(StorageError, match="cannot join bookie 'b1'"):
        start({**where, strange: fresh}, expands="entries")
    assert sorted(path.name for path in fresh.iterdir() if path.name != "OWNER") == (
        ["letters"] if strange == "entries-2" else []
    )


def test_an_expansion_that_is_cut_short_anywhere_is_gone_on_with(tmp_path: Path) -> None:
    """P7.2: after a crash behind each write of it, the bookie starts with its old set or goes on to the new one."""
    for crash in range(1, 7):
        root = tmp_path / str(crash)
        where, wider = several(root, 1), several(root, 2)
        incarnation = make(where)
        writes = 0

        real = identity._write

        def write_some(*arguments: Any, limit: int = crash, write: Any = real) -> None:
            nonlocal writes
            writes += 1
            if writes == limit:
                raise InterruptedError("power")
            write(*arguments)

        identity._write = write_some
        try:
            start(wider, expands="entries").close()
        except InterruptedError:
            pass
        finally:
            identity._write = real
        held = start(wider, expands="entries")
        assert held.incarnation == incarnation
        held.close()
        start(wider).close()


def test_a_new_directory_needs_the_clusters_token(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs the cluster's token"):
        start(directories(tmp_path), token=b"")


def test_one_directory_for_two_purposes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one of its own"):
        start({"journal": tmp_path / "x", "entries": tmp_path / "y" / ".." / "x"})


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageError, match="Not a directory"):
        start({"journal": tmp_path / "file" / "journal"})
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "link")
    with pytest.raises(UsageError, match="cannot be made"):
        start({"journal": tmp_path / "link"})


@pytest.mark.parametrize("node_id", ["", "a b", "-x", "host:3181", "x" * 200])
def test_an_id_is_a_name(tmp_path: Path, node_id: str) -> None:
    with pytest.raises(UsageError, match="bookie id"):
        start(directories(tmp_path), node_id)


class Killed(BaseException):
    """The process ends at once."""


class Machine:
    """Processes that are killed, and a loss of power that takes the names of files whose directory was not synced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.synced: set[str] = set()
        self._left = 0
        monkeypatch.setattr(os, "fsync", self._sync)

    def _sync(self, file: int) -> None:
        self._left -= 1
        if self._left == 0:
            raise Killed
        self.synced.add(os.readlink(f"/proc/self/fd/{file}"))

    def start(self, where: dict[str, Path], killed_at: int = 0, expands: str = "") -> bool:
        """Start a process; killed_at: number of the sync at which it is killed. Whether it came to its end."""
        self._left = killed_at
        try:
            held = start(where, expands=expands)
        except Killed:
            return False
        try:
            held.count_start()
        except Killed:
            return False
        finally:
            held.close()
        return True

    def lose_power(self, where: dict[str, Path]) -> None:
        for path in where.values():
            if str(path) not in self.synced:
                (path / IDENTITY_FILE).unlink(missing_ok=True)


@pytest.mark.parametrize("joins", [False, True])
def test_a_kill_and_then_a_loss_of_power_in_a_first_start_leave_no_directory_that_looks_wiped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joins: bool
) -> None:
    """I49, P7.2: a file of a killed start has its name for good before another directory rests on it. Likewise where a
    directory joins (ST21)."""
    machine = Machine(monkeypatch)
    for first in range(1, 15):
        for second in range(15):
            root = tmp_path / f"{first}-{second}"
            where, expands = several(root, 2), ""
            if joins:
                assert machine.start(several(root, 1))
                expands = "entries"
            machine.start(where, first, expands)
            machine.start(where, second, expands)
            machine.lose_power(where)
            assert machine.start(where, expands=expands)


def test_a_first_start_makes_the_names_of_its_directories_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I49: also that of the bookie's own directory, which it makes above them."""
    machine = Machine(monkeypatch)
    assert machine.start(directories(tmp_path))
    assert {str(tmp_path), str(tmp_path / "b1")} <= machine.synced
