"""The scrubber: everything stored is read again, in bounded pieces, and what has rotted is found (I55, ST36)."""

from __future__ import annotations

import errno
import select
from pathlib import Path

import pytest

from embedbk.errors import StorageError
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.upkeep import ScrubDamage, ScrubPiece
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.memory import MemoryBookieStorage, Survivors
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.scrubbing import SCRUB_FILE, ScrubState, read_scrub_state
from tests.storage import small_bookie
from tests.storage.log_places import places_in
from tests.storage.small_bookie import make, open_on
from tests.storage.stored_entries import make_frame

SMALL = make()
LOG_1, LOG_2 = "/b1/entries/00000001.elog", "/b1/entries/00000002.elog"
LOG_BYTES = sum(len(content) for path, content in SMALL.files.items() if path.endswith(".elog"))


def one_pass(storage: DurableBookie, bytes_max: int = 1 << 20) -> list[ScrubPiece]:
    pieces: list[ScrubPiece] = []
    while not pieces or not pieces[-1].is_pass_end:
        assert storage.begin_scrub(bytes_max)
        piece = storage.finish_scrub()
        assert piece is not None
        pieces.append(piece)
        assert len(pieces) < 1000
    return pieces


def found(pieces: list[ScrubPiece]) -> list[ScrubDamage]:
    return [damage for piece in pieces for damage in piece.damages]


def scrubbed(files: dict[str, bytes]) -> list[ScrubDamage]:
    """What one pass finds when the bytes change while the bookie runs."""
    disk = MemoryDisk(SMALL.files)
    storage = small_bookie.open_disk(disk)
    for path, content in files.items():
        if content != SMALL.files[path]:
            disk.put(path, content)
    damages = found(one_pass(storage))
    assert storage.scrub_damages() == damages
    storage._release()
    return damages


def changed(path: str, at: int, size: int = 1) -> dict[str, bytes]:
    content = bytearray(SMALL.files[path])
    content[at : at + size] = bytes(byte ^ 0x5A for byte in content[at : at + size])
    return {path: bytes(content)}


def test_a_whole_store_is_read_whole_and_clean() -> None:
    """I55: every section of every entry log, but for padding."""
    storage = open_on(SMALL.files)
    pieces = one_pass(storage)
    assert found(pieces) == []
    read = sum(piece.bytes_read for piece in pieces)
    assert LOG_BYTES - 4 * 3 * 4096 < read < LOG_BYTES
    assert len(pieces) == 4, "a piece does not go beyond its log"
    storage._release()


@pytest.mark.parametrize("bytes_max", [1, 500, 5000])
def test_pieces_are_as_small_as_is_asked(bytes_max: int) -> None:
    """Bounded work per piece: a piece ends with the window that reaches the bound."""
    storage = open_on(SMALL.files)
    pieces = one_pass(storage, bytes_max)
    total = sum(piece.bytes_read for piece in one_pass(storage))
    assert sum(piece.bytes_read for piece in pieces) == total
    assert max(piece.bytes_read for piece in pieces) < bytes_max + 8192
    storage._release()


def test_every_97th_byte_that_rots_is_found_and_reported() -> None:
    """I55, D4: but for padding, which nobody reads."""
    unseen = [
        (path, at)
        for path, content in SMALL.files.items()
        if path.endswith(".elog")
        for at in range(0, len(content), 97)
        if not scrubbed(changed(path, at))
    ]
    assert all(SMALL.files[path][at] == 0 for path, at in unseen)
    assert len(unseen) < LOG_BYTES / 97 * 0.9


def test_damaged_entries_are_told_by_name_and_neighbours_once() -> None:
    at = places_in(SMALL.files[LOG_1]).entries  # Those of ledger 3, each of 82 bytes.
    (damage,) = scrubbed(changed(LOG_1, at + 2 * 82 + 60, 3 * 82))
    assert (damage.path, damage.offset) == (LOG_1, at + 2 * 82)
    assert (damage.ledger_id, damage.first_entry, damage.last_entry) == (3, 2, 5)
    assert damage.what == "entries are damaged"


@pytest.mark.parametrize(
    ("path", "at", "what"),
    [
        (LOG_1, 9, "a descriptor is damaged"),
        (LOG_1, 4096 + 9, "a copy of the ledger states is damaged"),
        (LOG_1, places_in(SMALL.files[LOG_1]).indexes[0], "the index is damaged"),
        (LOG_1, places_in(SMALL.files[LOG_1]).indexes[1] + 9, "the index is damaged"),
        (LOG_1, len(SMALL.files[LOG_1]) - 9, "a descriptor is damaged"),
    ],
)
def test_other_parts_are_told_too(path: str, at: int, what: str) -> None:
    assert [damage.what for damage in scrubbed(changed(path, at))] == [what]


def test_what_the_device_refuses_is_damage_with_its_reason() -> None:
    """D3: a latent sector error."""
    disk = MemoryDisk(SMALL.files)
    storage = small_bookie.open_disk(disk)
    disk.fail("read", stays=True)
    damages = found(one_pass(storage))
    assert damages
    assert all("Input/output error" in damage.what for damage in damages)
    disk.fail("read", nth=0)
    assert found(one_pass(storage)) == []
    assert storage.scrub_damages() == [], "the next pass is what is known now"
    storage._release()


def test_a_process_without_descriptors_finds_no_damage() -> None:
    """I55: what is wanting is this process's. The same piece is read later, and what was known before stays known."""
    disk = MemoryDisk({**SMALL.files, **changed(LOG_1, 5)})
    storage = small_bookie.open_disk(disk)
    known = found(one_pass(storage))
    assert len(known) == 1
    for _ in range(2):
        disk.fail("open", error=errno.EMFILE)
        assert storage.begin_scrub(1 << 20)
        with pytest.raises(StorageError, match=r"00000001\.elog is not read now: too many open files"):
            storage.finish_scrub()
        assert storage.scrub_damages() == known
    assert found(one_pass(storage)) == known
    storage._release()


def test_a_log_that_is_gone_is_told() -> None:
    """D12: a file removed behind the bookie's back."""
    disk = MemoryDisk(SMALL.files)
    storage = small_bookie.open_disk(disk)
    disk.drop(LOG_2)
    (damage,) = found(one_pass(storage))
    assert damage.path == LOG_2
    assert "No such file" in damage.what
    storage._release()


def test_a_replaced_entry_stays_damaged_in_its_file() -> None:
    """P3.4c: the valid copy serves; the file is reported until it goes."""
    at = places_in(SMALL.files[LOG_1]).entries
    disk = MemoryDisk({**SMALL.files, **changed(LOG_1, at + 60)})
    storage = small_bookie.open_disk(disk)
    storage.put_frame(make_frame(3, [0], size=30))
    small_bookie.flush(storage)
    assert [damage.first_entry for damage in found(one_pass(storage))] == [0]
    assert storage.read(3, 0, 0, 1000).frame is not None
    storage._release()


def on_disk(tmp_path: Path, *, threaded: bool) -> BookieStorage:
    return BookieStorage(tmp_path / "b1", "b1", b"T" * 16, threaded=threaded, journal_file_bytes=2 << 20)


def filled(tmp_path: Path) -> None:
    storage = on_disk(tmp_path, threaded=True)
    for first in range(0, 3000, 500):
        storage.put_frame(make_frame(1, range(first, first + 500), size=100))
    storage.close()
    storage = on_disk(tmp_path, threaded=True)
    storage.put_frame(make_frame(2, range(100), size=100))
    storage.close()


def test_a_thread_reads_and_a_descriptor_tells(tmp_path: Path) -> None:
    """The loop never waits for the device: the piece is begun, and finished when its descriptor is readable."""
    filled(tmp_path)
    storage = on_disk(tmp_path, threaded=True)
    pieces = 0
    while True:
        assert storage.begin_scrub(100_000)
        assert not storage.begin_scrub(100_000), "one piece at a time"
        assert select.select(storage.filenos(), [], [], 30)[0]
        piece = storage.finish_scrub()
        while piece is None:  # The descriptor may have told of something else.
            piece = storage.finish_scrub()
        pieces += 1
        assert piece.damages == ()
        if piece.is_pass_end:
            break
    assert pieces == 4
    assert storage.finish_scrub() is None
    storage.close()


def test_it_goes_on_where_it_was_after_a_restart(tmp_path: Path) -> None:
    filled(tmp_path)
    log = tmp_path / "b1" / "entries" / "00000001.elog"
    content = bytearray(log.read_bytes())
    content[5000] ^= 1
    log.write_bytes(content)
    storage = on_disk(tmp_path, threaded=False)
    for _ in range(2):
        assert storage.begin_scrub(100_000)
        storage.finish_scrub()
    known = storage.scrub_damages()
    assert len(known) == 1
    storage.close()
    state = read_scrub_state((tmp_path / "b1" / SCRUB_FILE).read_bytes())
    assert state is not None
    assert (state.log_id, state.offset > 200_000) == (1, True)
    storage = on_disk(tmp_path, threaded=False)
    assert storage.scrub_damages() == known
    rest = one_pass(storage)
    assert found(rest) == []
    assert sum(piece.bytes_read for piece in rest) < 400_000
    assert [damage.first_entry for damage in found(one_pass(storage))] == [known[0].first_entry]
    storage.close()


@pytest.mark.parametrize("content", [b"", b"00000000\n{}", b"nothing", b"\xff" * 100])
def test_a_note_that_is_damaged_is_not_believed(tmp_path: Path, content: bytes) -> None:
    """I41: it only says where to begin; without it, at the beginning."""
    filled(tmp_path)
    (tmp_path / "b1" / SCRUB_FILE).write_bytes(content)
    storage = on_disk(tmp_path, threaded=False)
    assert one_pass(storage)
    storage.close()


def test_a_note_is_read_back_as_it_was() -> None:
    damage = ScrubDamage("/b1/entries/00000007.elog", 5, "entries are damaged", 3, 1, 2)
    state = ScrubState(7, 4096, 2, 100, {7: [damage]})
    assert read_scrub_state(state.encode()) == state
    assert read_scrub_state(state.encode().replace(b"4096", b"4097")) is None


def test_the_twin_finds_what_was_made_unreadable() -> None:
    """I55: the simulator's storage has the same words."""
    storage = MemoryBookieStorage(Survivors(b"I" * 16), flush_bytes=1)
    for first in (0, 10):
        storage.put_frame(make_frame(3, range(first, first + 10), size=30))
        storage.commit()
        assert storage.begin_flush_if_due()
        assert storage.finish_flush()
    storage.make_unreadable(3, 12)
    assert [damage.first_entry for damage in found(one_pass(storage, 200))] == [12]
    assert [damage.first_entry for damage in storage.scrub_damages()] == [12]
    storage.put_frame(make_frame(3, [12], size=30))
    assert storage.scrub_damages() == []
