"""Truncated ledgers stand in front of their log again, by their files (P8.16): which, when, and what is there then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import embedbk
from embedbk.archive import restoring_truncated
from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, archive_lock, directory_of, set_place
from embedbk.archive.manifest import decode_manifest, encode_manifest, metadata_of
from embedbk.archive.place import create_place
from embedbk.archive.restoring_in_place import restore_in_place
from embedbk.archive.restoring_truncated import restore_truncated
from embedbk.archive.verifying import verify_archive
from embedbk.client.client import Client
from embedbk.client.undeleting_files import Filed, put_in_front
from embedbk.client.waiting import run_blocking
from embedbk.codec.freed_ledger import Freed
from embedbk.codec.log_archives import ArchiveState, archive_path
from embedbk.codec.metadata_messages import Delete
from embedbk.codec.tombstone import tombstone_path
from embedbk.errors import LockLost, MetadataConflict, NoSuchLedger, StorageError, UsageError, WrongPassword
from tests.archive.scenes import archived, records_of, write
from tests.archive.test_freeing import Seen, copies_of, seen, shown, wait_until
from tests.archive.test_verifying import manifest_of, parts

COUNTS = (20, 10, 15, 5)
BEGINS = (0, 20, 30, 45)


@pytest.fixture(scope="module")
def bk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Whose bookies look every moment for what they may drop."""
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0, collect_s=0.1)
    data = tmp_path_factory.mktemp("truncated") / "data"
    with embedbk.open(data, bookies=3, listen="tcp://127.0.0.1:0", settings=settings) as client:
        yield client


def verified(bk: Client, name: str, place: Path) -> tuple[list[int], Seen]:
    """A log of four ledgers that are archived and verified, and a fifth; what stands in it."""
    report = archived(bk, name, place, *COUNTS)
    assert verify_archive(bk, name).code == 0
    write(bk, name, 3)
    return [each.ledger_id for each in report.ledgers], seen(bk, name)


def forget(bk: Client, *ledger_ids: int) -> None:
    """As the end of their grace does."""
    gone = [Delete(tombstone_path(each)) for each in ledger_ids]
    assert run_blocking(bk._runtime.transact([], list(gone), "forgetting"), "test")


def test_ledgers_come_back_in_their_files_and_then_to_bookies(bk: Client, name: str, place: Path) -> None:
    """P8.16: "same ids, positions and offsets", with a tombstone and without one, freed before and not."""
    ledgers, before = verified(bk, name, place)
    assert free(bk, name, keep_lag_s=0, ledgers=ledgers[:2]).freed == ledgers[:2]
    log = bk.log(name)
    assert log.truncate(50).reached == 50
    forget(bk, ledgers[0], ledgers[3])
    planned = restore_truncated(bk, name, dry_run=True)
    assert (planned.code, planned.began, planned.begins) == (0, 50, 0) and next(iter(log.read())).offset == 50
    code, out, _ = shown(bk, "spark", "restore", name, "--truncated", "--from", 46)
    assert code == 0 and "began at offset 50, and begins at 45" in out
    assert seen(bk, name) == before[45:]
    report = restore_truncated(bk, name)
    assert (report.code, report.why, report.unread) == (0, "", [])
    assert [(each.ledger_id, each.first_offset) for each in report.ledgers] == [
        *zip(reversed(ledgers[:3]), reversed(BEGINS[:3]), strict=True)
    ]
    assert seen(bk, name) == before
    assert not [each.ledger_id for each in bk.deleted_ledgers() if each.ledger_id in ledgers]
    assert all(record.state == ArchiveState.VERIFIED for record in records_of(bk, name).values())
    wait_until(lambda: not any(copies_of(bk, each, 0) for each in ledgers))
    assert restore_in_place(bk, name).restored == ledgers
    place.rename(place.with_name("elsewhere"))
    assert seen(bk, name) == before, "from bookies"
    place.with_name("elsewhere").rename(place)
    assert shown(bk, "log", "check", name)[0] == 0 and bk.health().is_good
    assert verify_archive(bk, name).code == 0 and free(bk, name, keep_lag_s=0).freed == ledgers
    assert log.truncate(30).reached == 30 and restore_truncated(bk, name).begins == 0


@pytest.mark.parametrize("what", ["damaged", "missing", "manifest", "unverified"])
def test_what_is_not_sound_or_not_verified_ends_the_run_and_is_named(
    bk: Client, name: str, place: Path, what: str
) -> None:
    """P8.16: "what is not verified, not sound, or cannot be read brings nothing back"; what came before it stays."""
    ledgers, before = verified(bk, name, place)
    assert bk.log(name).truncate(45).reached == 45
    path = next(each for each in parts(place) if f"ledger={ledgers[1]}/" in str(each))
    if what == "damaged":
        good = path.read_bytes()
        path.write_bytes(good[:-9] + b"x" + good[-8:])
    elif what == "missing":
        path.unlink()
    elif what == "manifest":
        manifest = next(path.parent.glob("_manifest-*"))
        manifest.write_bytes(manifest.read_bytes().replace(b'"version"', b'"Version"'))
    else:
        record = archive_path(bk.log(name).log_id(), ledgers[1])
        assert run_blocking(bk._runtime.transact([], [Delete(record)], "taking it away"), "test")
    code, out, _ = shown(bk, "spark", "restore", name, "--truncated", "--json")
    told = json.loads(out)
    assert code == 3 and [each["ledger_id"] for each in told["ledgers"]] == [ledgers[2]]
    assert told["begins"] == 30 and seen(bk, name) == before[30:]
    named = {"damaged": path.name, "missing": path.name}.get(what, "begins at offset 30")
    assert named in told["why"] and bool(told["unread"]) == (what == "manifest")


def test_an_archive_that_is_away_and_wrong_arguments_change_nothing(
    bk: Client, name: str, place: Path
) -> None:
    ledgers, before = verified(bk, name, place)
    assert bk.log(name).truncate(45).reached == 45
    with pytest.raises(UsageError, match="from_offset=-1"):
        restore_truncated(bk, name, from_offset=-1)
    place.rename(place.with_name("elsewhere"))
    with pytest.raises(StorageError):
        restore_truncated(bk, name)
    place.with_name("elsewhere").rename(place)
    for option in (("--in-place",), ("--to", 9), ("--log", name), ("--ledger", 3)):
        code, _, said = shown(bk, "spark", "restore", name, "--truncated", *option)
        assert code == 1 and f"it takes no {option[0]}" in said and "Traceback" not in said
    assert seen(bk, name) == before[45:]
    assert restore_truncated(bk, name, from_offset=25).begins == 20 and ledgers
    nothing = write(bk, name + "-2", 3) and shown(bk, "spark", "restore", name + "-2", "--truncated")
    assert nothing and nothing[0] == 1 and "has no archive" in nothing[2]


@pytest.mark.parametrize("digest", ["hmac", "crc32c"])
def test_a_log_with_a_password_needs_it_and_keeps_it(bk: Client, name: str, place: Path, digest: str) -> None:
    """P8.16: the password is that of the log's other ledgers; tags are read by it, with and without a tombstone."""
    secret, ledgers = b"open sesame", []
    log = bk.log(name, password=secret)
    for number in range(3):
        with log.writer(digest=digest) as writer:
            writer.append_many([b"%d" % each for each in range(number, number + 4)])
            ledgers.append(writer.ledger_id)
    create_place(place)
    set_place(bk, name, place, password=secret)
    assert archive(bk, name, password=secret).is_whole and verify_archive(bk, name, password=secret).code == 0
    before = [bytes(each) for each in log.read()]
    assert log.truncate(8).reached == 8
    forget(bk, ledgers[1])
    if digest == "crc32c":  # Then nothing of it is opened before, and no file asks for the password.
        log.seal("it is whole")
    with pytest.raises(WrongPassword):
        restore_truncated(bk, name, password=b"another")
    with pytest.raises(WrongPassword):
        restore_truncated(bk, name)
    assert restore_truncated(bk, name, password=secret).begins == 0
    assert [bytes(each) for each in log.read()] == before
    with pytest.raises(WrongPassword):
        list(bk.log(name, password=b"another").read())
    assert restore_in_place(bk, name, password=secret).restored == ledgers[:2]
    assert [bytes(each) for each in log.read()] == before


def _filed(bk: Client, name: str, place: Path, ledger_id: int) -> dict[int, Filed]:
    reading, directory = directory_of(bk, name, b"")
    report = restoring_truncated.TruncatedReport(bk.log(name).log_id(), str(place), 0)
    filed = restoring_truncated._filed(reading, directory, records_of(bk, name), report)
    assert ledger_id in filed
    return filed


@pytest.mark.parametrize("case", ["lock", "record", "back", "other end", "list"])
def test_one_transaction_compares_all_that_was_looked_at(
    bk: Client, name: str, place: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.16: "It compares the list, what truncation left, the key, which is absent, the tombstone, the record and the
    lock's epoch"."""
    ledgers, before = verified(bk, name, place)
    log, newest = bk.log(name), ledgers[2]
    assert log.truncate(45).reached == 45
    reading, _ = directory_of(bk, name, b"")
    filed = _filed(bk, name, place, newest)
    changed: list[Callable[[], object]] = []
    runtime, transact = bk._runtime, bk._runtime.transact

    async def changed_before(when: object, then: object, what: str) -> bool:
        if what.startswith("putting ledgers back in front") and changed:
            changed.pop()()
        return await transact(when, then, what)  # type: ignore[arg-type]

    record = archive_path(log.log_id(), newest)
    with archive_lock(reading) as lock:
        errors: dict[str, type[Exception]] = {
            "lock": LockLost,
            "record": MetadataConflict,
            "back": NoSuchLedger,
        }
        if case == "lock":
            with pytest.raises(errors[case]):
                run_blocking(put_in_front(reading, filed, newest, lock.epoch + 1), "test")
        elif case == "other end":
            metadata = filed[newest].metadata
            filed[newest] = Filed(
                filed[newest].segment, metadata.with_changes(length=(metadata.length or 0) + 1)
            )
            with pytest.raises(StorageError, match="keeps another end"):
                run_blocking(put_in_front(reading, filed, newest, lock.epoch), "test")
        else:
            act = {
                "record": lambda: _in_thread(bk, [Delete(record)]),
                "back": lambda: _in_other(bk, name),
                "list": lambda: write(bk, name, 1),
            }[case]
            changed.append(act)
            monkeypatch.setattr(runtime, "transact", changed_before)
            if case == "list":
                run_blocking(put_in_front(reading, filed, newest, lock.epoch), "test")
            else:
                with pytest.raises(errors[case]):
                    run_blocking(put_in_front(reading, filed, newest, lock.epoch), "test")
    begins = {"list": 30, "back": 0}.get(case, 45)
    assert seen(bk, name)[: 53 - begins] == before[begins:]


def _in_thread(bk: Client, then: list[Delete]) -> None:
    """Another client's change, while this thread is in the middle of a step."""
    with embedbk.open(bk.url or "") as other:
        assert run_blocking(other._runtime.transact([], list(then), "meanwhile"), "test")


def _in_other(bk: Client, name: str) -> None:
    with embedbk.open(bk.url or "") as other:
        other.log(name).undelete()


def test_a_manifest_that_says_too_little_brings_nothing_back(bk: Client, name: str, place: Path) -> None:
    """What was attached to a ledger stands as text in its manifest: other bytes would come back as others."""
    ledgers, _ = verified(bk, name, place)
    part = next(each for each in parts(place) if f"ledger={ledgers[0]}/" in str(each))
    manifest = decode_manifest(manifest_of(part).read_bytes(), bk.log(name).log_id(), ledgers[0])
    freed = Freed(bytes(16), "somewhere", bytes(32))
    made = metadata_of(manifest, b"", freed)
    was = bk.open_ledger(ledgers[0]).metadata
    assert made == was.with_changes(
        fragments=made.fragments, freed=freed, sums=(), writer="", password_verifier=b""
    )
    for change in (
        {"custom": {**manifest.ledger["custom"], "mine": "\ufffd"}},
        {"custom": {"log": "another"}},
        {"ensemble_size": "3"},
        {"durability": None},
        {"lost": [[1, 2]]},
    ):
        strange = msgspec.structs.replace(manifest, ledger={**manifest.ledger, **change})
        again = decode_manifest(encode_manifest(strange), manifest.log_id, ledgers[0])
        with pytest.raises(StorageError):
            metadata_of(again, b"", freed)
    lacking = msgspec.structs.replace(manifest, ledger={})
    with pytest.raises(StorageError, match="cannot be made from it"):
        metadata_of(lacking, b"", freed)
