"""The offline verifier: everything that was written is checked, and what is wrong is told with its place (I31, I41,
I42, I45, P7.1 to P7.5)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from embedbk.codec.kernels import crc32c
from embedbk.metadata.commands import StartSession, encode_command
from embedbk.storage.checking import check_bookie, check_metadata
from embedbk.storage.entry_log_layout import DESCRIPTOR
from embedbk.storage.entry_log_reader import Whose
from embedbk.storage.findings import Finding, Findings
from embedbk.storage.journal import Journal
from embedbk.storage.journal_reader import BLOCK_BYTES
from embedbk.storage.member_notes import MEMBER_FILE, FileNotes, MemoryNotes
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MemberIdentity
from embedbk.storage.raw_files import PictureDirectory
from tests.storage.log_places import places_in
from tests.storage.small_bookie import INCARNATION, TOKEN, commit, flush, make, open_disk
from tests.storage.solo import append
from tests.storage.stored_entries import make_frame
from tests.storage.test_dropping import drop

SMALL = make()
JOURNAL = "/b1/journal/journal-0000000000000001"
LOG_1, LOG_2, LOG_3 = (f"/b1/entries/{number:08x}.elog" for number in (1, 2, 3))


OURS = Whose(TOKEN, INCARNATION)


def check(files: Mapping[str, bytes], whose: Whose = OURS) -> Findings:
    findings = Findings()
    journal, entries = (PictureDirectory(f"/b1/{part}", files) for part in ("journal", "entries"))
    check_bookie([journal], [entries], whose, findings)
    return findings


def changed(path: str, at: int, to: bytes) -> dict[str, bytes]:
    content = bytearray(SMALL.files[path])
    content[at : at + len(to)] = to
    return {**SMALL.files, path: bytes(content)}


def flipped(path: str, at: int, size: int = 1) -> dict[str, bytes]:
    return changed(path, at, bytes(byte ^ 0xA5 for byte in SMALL.files[path][at : at + size]))


def only(findings: Findings) -> Finding:
    assert len(findings.found) == 1, [str(each) for each in findings.found]
    return findings.found[0]


def test_what_a_bookie_wrote_is_clean() -> None:
    findings = Findings()
    journal, entries = (PictureDirectory(f"/b1/{part}", SMALL.files) for part in ("journal", "entries"))
    facts = check_bookie([journal], [entries], Whose(TOKEN, INCARNATION), findings)
    assert findings.found == []
    assert (facts.entry_logs, facts.fenced) == (4, len(SMALL.fenced))
    assert (
        facts.entries + sum(1 for ledger_id, _ in SMALL.entries if ledger_id >= 200) == len(SMALL.entries) + 2
    )
    assert facts.last_token > facts.log_mark > 0


def test_no_changed_byte_stays_unseen() -> None:
    """I41: a byte of an entry log or of a journal's records is under some sum, or is padding that nobody reads."""
    unseen = [
        (path, at)
        for path, content in SMALL.files.items()
        for at in range(0, len(content), 97 if "/entries/" in path else 499)
        if not check(flipped(path, at)).found
    ]
    assert all("/journal/" in path for path, _ in unseen), "every byte of an entry log is looked at"
    for path, at in unseen:  # Behind a journal's last group, or zeros behind a group's records.
        assert SMALL.files[path][at] == 0, (path, at)


def test_a_bad_entry_is_told_with_its_ledger_its_id_and_its_place() -> None:
    """I31: what should be there and cannot be read is damage."""
    at = places_in(SMALL.files[LOG_1]).entries + 3 * 82 + 20  # The fourth entry of ledger 3.
    finding = only(check(flipped(LOG_1, at)))
    assert finding.is_damage
    assert (finding.path, finding.ledger_id, finding.first_entry) == (LOG_1, 3, 3)
    assert finding.offset == at - 20
    assert str(finding).startswith(
        f"{LOG_1} at offset {at - 20}: ledger 3, entry 3: damaged: it fails its digest"
    )


def test_entries_that_changed_places_are_found() -> None:
    """I41: a misdirected write of a whole entry is not the entry that belongs there."""
    at = places_in(SMALL.files[LOG_1]).entries
    moved = SMALL.files[LOG_1][at : at + 82]
    finding = only(check(changed(LOG_1, at + 82, moved)))
    assert (finding.ledger_id, finding.first_entry) == (3, 1)
    assert "ledger 3, entry 0 stands in its place" in finding.what


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (LOG_2, "00000004.elog says that it must be there"),
        (JOURNAL, "and those above the log mark 14 are needed"),
    ],
)
def test_a_missing_file_is_told(path: str, says: str) -> None:
    """D12, P7.5: the newest flush names every log, the mark says what the journal must hold."""
    findings = check({name: content for name, content in SMALL.files.items() if name != path})
    assert any(says in each.what and each.is_damage for each in findings.found), findings.found


def test_a_lost_index_is_told_and_its_entries_are_still_checked() -> None:
    """ST13: scanned, never taken for empty."""
    places = places_in(SMALL.files[LOG_1])
    for at in places.indexes:
        finding = only(check(flipped(LOG_1, at, 20)))
        assert (finding.offset, finding.is_damage) == (at, True)
        assert "index is damaged" in finding.what
    content = SMALL.files[LOG_1]
    for at in places.indexes:
        content = flip_in(content, at)
    findings = check({**SMALL.files, LOG_1: content})
    assert [each.offset for each in findings.found if "index is damaged" in each.what] == list(places.indexes)
    assert len(findings.found) == 2
    content = flip_in(content, places.entries + 100)
    both = check({**SMALL.files, LOG_1: content})
    assert any("not known to be absent" in each.what and each.is_damage for each in both.found)


def flip_in(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :]


def test_a_forgotten_state_is_told() -> None:
    """P7.3: both copies of the ledger states, or both descriptors."""
    second = places_in(SMALL.files[LOG_2]).second_states
    content = flip_in(flip_in(SMALL.files[LOG_2], 4096), second)
    assert any(
        "a fence could be forgotten" in each.what for each in check({**SMALL.files, LOG_2: content}).found
    )
    content = flip_in(flip_in(SMALL.files[LOG_2], 5), len(content) - 5)
    assert any("neither" in each.what for each in check({**SMALL.files, LOG_2: content}).found)


def test_another_ones_entry_log_is_told() -> None:
    findings = check(SMALL.files, Whose(TOKEN, b"X" * 16))
    assert sum("of another bookie or disk" in each.what for each in findings.found) == 4


def test_a_hole_in_the_journal_is_damage_and_a_torn_tail_is_not() -> None:
    """I42: an invalid group with a valid one behind it, and the same without one."""
    newest = "/b1/journal/journal-0000000000000002"
    groups = [
        at
        for at in range(BLOCK_BYTES, len(SMALL.files[newest]), BLOCK_BYTES)
        if SMALL.files[newest][at + 4 : at + 8] == b"EBKG"
    ]
    hole = check(flipped(newest, groups[-2] + 100))
    assert any("is not what was written, and a later one" in each.what for each in hole.found)
    torn = check(flipped(newest, groups[-1] + 70))
    assert "torn by a crash, or rotten since" in torn.found[0].what
    assert not torn.found[0].is_damage


def test_records_that_mean_nothing_are_damage() -> None:
    """A right sum proves who wrote it, not that it makes sense."""
    disk = MemoryDisk({**SMALL.files, "/b1/.made": b""})
    with Journal("/b1/journal", io=disk, threaded=False, file_bytes=65536) as journal:
        journal.append(77, 1, b"of a later version")
        journal.append(1, 3, b"no frame")
        journal.step()
    texts = [each.what for each in check(disk.files(stable=False)).found if each.is_damage]
    assert any("has kind 77" in text for text in texts)
    assert any("holds no frame of ledger 3" in text for text in texts)


def test_a_log_mark_that_falls_is_told() -> None:
    """I45: marks never move backwards."""
    content = bytearray(SMALL.files[LOG_3])
    for at in (0, len(content) - DESCRIPTOR.size):
        struct.pack_into("<Q", content, at + 48, 1)
        struct.pack_into("<I", content, at + 124, crc32c(bytes(content[at : at + 124])))
    assert any(
        "its log mark 1 is below" in each.what for each in check({**SMALL.files, LOG_3: bytes(content)}).found
    )


def test_two_valid_entries_under_one_id_are_told() -> None:
    """P3.4c: another payload never overwrites. The fourth log holds entries of the first once more."""
    log = "/b1/entries/00000004.elog"
    at = places_in(SMALL.files[log]).entries
    entry = bytearray(SMALL.files[log][at : at + 82])
    entry[60] ^= 1
    entry[-4:] = crc32c(bytes(entry[:-4])).to_bytes(4, "little")
    finding = only(check(changed(log, at, bytes(entry))))
    assert "another entry is stored under this id in 00000001.elog" in finding.what


def test_a_state_whose_last_entry_is_nowhere_is_told() -> None:
    """P7.1: a whole log that is gone from the end, with what it held."""
    last = "/b1/entries/00000004.elog"
    content = bytearray(SMALL.files[last])
    state = bytearray(content[4096 : 4096 + 56])
    struct.pack_into("<q", state, 8, 4000)
    size = len(content)
    second = size - DESCRIPTOR.size
    places = places_in(SMALL.files[last])
    index_end, states_size = places.second_states, places.states_size
    content[4096 : 4096 + 56] = content[index_end : index_end + 56] = state
    states = bytes(content[4096 : 4096 + states_size])
    for at in (0, second):
        struct.pack_into("<I", content, at + 104, crc32c(states, crc32c(bytes(content[at : at + 48]))))
        struct.pack_into("<I", content, at + 124, crc32c(bytes(content[at : at + 124])))
    finding = only(check({**SMALL.files, last: bytes(content)}))
    assert "neither an entry log nor the journal has it" in finding.what
    assert finding.first_entry == 4000


def test_what_is_not_a_bookies_is_a_note() -> None:
    files = {**SMALL.files, "/b1/entries/notes.txt": b"x", "/b1/entries/00000009.elog.tmp": b"half"}
    findings = check(files)
    assert [each.is_damage for each in findings.found] == [False, False]


# --- Metadata member ----------------------------------------------------------------------------------------


def metadata_files() -> dict[str, bytes]:
    disk = MemoryDisk({"/m/.made": b""})
    identity, notes = MemberIdentity(TOKEN, INCARNATION), MemoryNotes()
    store = open_metadata_store(
        "/m", io=disk, file_bytes=4 << 20, threaded=False, new_identity=identity, notes=notes
    )
    for index in range(1, 6):
        append(store, index, encode_command(StartSession(index, 1000, "a session")))
        store._journal.step()  # A group of its own.
    store.durable()
    store.close()
    files = {path: content for path, content in disk.files().items() if path.startswith("/m/journal-")}
    with TemporaryDirectory() as place:
        assert notes.used is not None
        FileNotes(Path(place)).write(notes.used, is_synced=True)
        return {**files, f"/m/{MEMBER_FILE}": (Path(place) / MEMBER_FILE).read_bytes()}


METADATA = metadata_files()


def test_a_metadata_log_is_read_to_its_end() -> None:
    findings = Findings()
    facts = check_metadata(PictureDirectory("/m", METADATA), findings)
    assert findings.found == []
    assert (facts.records, facts.last_index, facts.cluster_token, facts.incarnation) == (
        6,
        5,
        TOKEN,
        INCARNATION,
    )


def test_a_damaged_metadata_log_is_told() -> None:
    """I41, I42: the first group of it, with others behind."""
    path = "/m/journal-0000000000000001"
    content = METADATA[path]
    findings = Findings()
    files = {**METADATA, path: content[:4100] + b"?" + content[4101:]}
    check_metadata(PictureDirectory("/m", files), findings)
    assert findings.damage_count


def test_a_journal_that_began_anew_behind_damage_is_clean_again() -> None:
    """I42, P7.4: what was set aside is a note; the file that it begins with says what comes first."""
    at = SMALL.files[JOURNAL].rindex(b"EBKG") - 4
    disk = MemoryDisk({**flipped(JOURNAL, at + 70), "/b1/.made": b""})
    assert check(disk.files()).damage_count
    storage = open_disk(disk, may_have_lost=True)
    storage.put_frame(make_frame(300, range(5)))
    commit(storage)
    storage._release()
    findings = check(disk.files(stable=False))
    assert findings.damage_count == 0, [str(each) for each in findings.found]
    assert all("set aside" in each.what for each in findings.found)
    assert len(findings.found) == 2


def test_a_dropped_ledger_whose_entries_are_not_compacted_yet_is_no_damage() -> None:
    """P7.3: its state is a range by then, its entries stand in their log, and nothing is wrong with that."""
    disk = MemoryDisk(SMALL.files)
    storage = open_disk(disk)
    for ledger_id in (3, 9):
        drop(storage, ledger_id)
    flush(storage)
    assert storage.table.ranges() == [(3, 3), (9, 9)]
    storage.close()
    findings = check(disk.files())
    assert [str(each) for each in findings.found if each.is_damage] == []
