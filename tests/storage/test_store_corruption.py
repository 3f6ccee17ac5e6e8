"""Bytes of a small store changed one at a time: a start refuses, or every answer is right or "unreadable" (D4, I31,
I41, I42). Every 97th byte here; `tests/crash/test_every_byte.py --every-byte` does all of 16 MiB."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from embedbk.codec.journal_records import RecordKind
from embedbk.errors import StorageError
from embedbk.metadata.commands import StartSession, encode_command
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from tests.storage.journal_pages import read_file
from tests.storage.looking_through import look_through_all
from tests.storage.small_bookie import make, open_on
from tests.storage.solo import append, replayed

SMALL, SEVERAL = make(), make(devices=2)
PATHS = [(1, path) for path in sorted(SMALL.files)] + [(2, path) for path in sorted(SEVERAL.files)]
LEDGERS = sorted({ledger_id for ledger_id, _ in SMALL.entries})
STEP = 97
KINDS = ("flip", "zero", "ones")


def last_group(files: Mapping[str, bytes], path: str) -> tuple[range, set[int]]:
    """Where the last group of a journal stands, if it is in this file, and which fences only it holds."""
    directory = path.rpartition("/")[0]
    inside = [
        each for each in files if each.startswith(f"{directory}/journal-") and read_file(files[each])[1]
    ]
    if not inside or path != max(inside):
        return range(0), set()
    group = read_file(files[path])[1][-1]
    assert all(kind != 1 for _, kind, _, _ in group.records), (
        "no entry: a lost one could not be told from a torn one"
    )
    return range(group.position, group.end), {
        ledger for _, kind, ledger, _ in group.records if kind == RecordKind.FENCE
    }


def changes(content: bytes, step: int) -> Iterator[tuple[int, bytes]]:
    """(offset, content) for every so many bytes; the three kinds take turns. Where nothing stands, fewer."""
    used = len(content.rstrip(b"\0"))
    for number, at in enumerate(range(0, len(content), step)):
        if at > used + 4096 and number % 16:
            continue
        changed = bytearray(content)
        kind = KINDS[number % 3]
        changed[at] = {"flip": content[at] ^ 1 << number % 8, "zero": 0, "ones": 0xFF}[kind]
        if changed[at] == content[at]:
            changed[at] ^= 0x5A
        yield at, bytes(changed)


def answers(storage: BookieStorage, ledger_id: int) -> tuple[dict[int, bytes], set[int]]:
    """(held entries by id, ids proven absent) up to some way behind the last entry."""
    held: dict[int, bytes] = {}
    absent: set[int] = set()
    first, last = 0, 2600
    while first <= last:
        found = storage.read(ledger_id, first, last, 1 << 20)
        reached = first
        if found.frame is not None:
            at, body = 0, found.frame.body
            while at < len(body):
                end = at + 52 + int.from_bytes(body[at + 4 : at + 8], "little")
                held[int.from_bytes(body[at + 16 : at + 24], "little")] = bytes(body[at:end])
                at = end
            reached = found.frame.last_entry + 1
        for begin, end in found.absent:
            absent.update(range(begin, end + 1))
            reached = max(reached, end + 1)
        first = reached if reached > first else last + 1
    return held, absent


def check_answers(storage: BookieStorage) -> int:
    """Every answer is right or none; returns how many entries are unreadable."""
    unreadable = 0
    for ledger_id in (*LEDGERS, 4, 77):
        truth = {entry: raw for (ledger, entry), raw in SMALL.entries.items() if ledger == ledger_id}
        held, absent = answers(storage, ledger_id)
        assert held == {entry: truth[entry] for entry in held}, f"ledger {ledger_id}: wrong bytes"
        assert not absent & truth.keys(), f"ledger {ledger_id}: a stored entry is called absent"
        unreadable += len(truth) - len(held)
    return unreadable


@pytest.mark.parametrize("devices", [1, 2])
def test_the_whole_store_answers_everything(devices: int) -> None:
    storage = open_on((SMALL if devices == 1 else SEVERAL).files, devices)
    assert check_answers(storage) == 0
    storage._release()


@pytest.mark.parametrize(("devices", "path"), PATHS)
def test_no_changed_byte_gives_a_wrong_answer(devices: int, path: str) -> None:
    """I31, I41, I42: refused, unreadable, or right; and no fence is forgotten (P7.3). Also of a bookie with two
    journals and two ledger directories (I45), there at fewer places."""
    store = SMALL if devices == 1 else SEVERAL
    last, last_fences = last_group(store.files, path)
    unreadable = whole = 0
    refusals: list[str] = []
    for at, content in changes(
        store.files[path], STEP if devices == 1 or path.endswith(".elog") else 4 * STEP
    ):
        try:
            storage = open_on({**store.files, path: content}, devices)
        except StorageError as refusal:
            refusals.append(str(refusal))
            continue
        try:
            look_through_all(storage)
            missing = check_answers(storage)
            for ledger_id in store.fenced - (last_fences if at in last else set()):
                row = storage.table.get(ledger_id)
                assert row is not None, (at, ledger_id)
                assert row.is_fenced, (at, ledger_id)
        except AssertionError as wrong:
            raise AssertionError(f"{path} at offset {at}: {wrong}") from wrong
        finally:
            storage._release()
        unreadable += missing > 0
        whole += missing == 0
        assert missing <= 1, "one changed byte hides one entry at most"
    assert whole > 0
    assert all("/b1/journal" in refusal for refusal in refusals)
    if path.endswith("/USED"):
        assert (refusals, unreadable) == ([], 0), "the note before it counts then"
    elif path.endswith(".elog"):
        assert (refusals, unreadable > 0) == ([], True), "descriptors and states stand there twice"
    else:
        assert unreadable == 0
        assert refusals, "a record above the log mark is either whole or a reason to refuse"


def test_no_changed_byte_of_a_metadata_log_gives_another_catalog() -> None:
    """I41, I42, P10: refused, or the same commands; only the last group may look torn."""

    def opened(files: dict[str, bytes]) -> tuple[int, bytes]:
        store = open_metadata_store("/m", io=MemoryDisk(files), file_bytes=4 << 20, threaded=False)
        found = (store.index, replayed(store).digest())
        store.close()
        return found

    disk = MemoryDisk({"/m/.made": b""})
    identity = MemberIdentity(b"T" * 16, b"I" * 16)
    store = open_metadata_store("/m", io=disk, file_bytes=4 << 20, threaded=False, new_identity=identity)
    for index in range(1, 7):
        append(store, index, encode_command(StartSession(index, 1000, "a session")))
        store._journal.step()  # A group of its own.
    store.close()
    path = "/m/journal-0000000000000001"
    files = {path: disk.read(path)}
    truth = opened(files)
    last = read_file(files[path])[1][-1]
    refused = 0
    for at in range(0, last.end + 4096, STEP):
        content = bytearray(files[path])
        content[at] ^= 1 << at % 8
        try:
            found = opened({path: bytes(content)})
        except StorageError:
            refused += 1
            continue
        if last.position <= at < last.end:
            assert found[0] in (truth[0], truth[0] - 1), at
        else:
            assert found == truth, at
    assert refused > 3
