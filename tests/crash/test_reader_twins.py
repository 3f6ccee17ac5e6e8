"""Bytes of chance to the readers of C and to their plain twins: both read the same, or both refuse (I31, I41, I42).

`--fuzz-inputs N` gives each more to do. Half of the inputs have their sums made right again, so that what stands
behind a sum is compared too. The same readers under sanitizers: `fuzz_check.c`.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

import pytest

from embedbk.codec import kernels, twins
from embedbk.codec.attributes import Producer, encode_attributes
from embedbk.codec.entry import encode_entry
from embedbk.codec.kernels import crc32c
from embedbk.core.ledger_table import LEDGER_STATE
from embedbk.errors import PeerError, StorageError
from embedbk.storage.entry_log_index import RUN
from embedbk.storage.entry_log_layout import DESCRIPTOR
from embedbk.storage.entry_log_reader import ROLL_ITEM, Whose
from embedbk.storage.entry_logs import EntryLogs, LogVerdict
from embedbk.storage.entry_store import NativeEntryStore
from embedbk.storage.findings import Findings
from embedbk.storage.journal import Journal
from embedbk.storage.journal_reader import (
    BLOCK_BYTES,
    FILE_HEADER,
    GROUP_HEADER,
    RECORD_HEADER,
    look_at_journal,
    walk_records,
)
from embedbk.storage.memory_disk import MemoryDisk
from embedbk.storage.raw_files import PictureDirectory
from tests.storage.log_places import places_in
from tests.storage.looking_through import look_through
from tests.storage.older_logs import as_version
from tests.storage.small_bookie import INCARNATION, TOKEN, make

SMALL = make()
SEEDS = 4
ODD = [
    0,
    1,
    2,
    7,
    51,
    52,
    63,
    64,
    65,
    127,
    128,
    255,
    4096,
    65535,
    65536,
    2**31,
    2**32 - 1,
    2**63 - 1,
    2**64 - 1,
]


@pytest.fixture
def inputs(request: pytest.FixtureRequest) -> int:
    return request.config.getoption("--fuzz-inputs")


def mutated(chance: random.Random, content: bytes, begin: int, end: int) -> bytes:
    """The content with one to four changes between begin and end; now and then cut off."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(begin, end)
        kind = chance.randrange(6)
        if kind == 0:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[at] = chance.randrange(256)
        elif kind == 2:
            number = (chance.choice(ODD) + chance.randint(-1, 1)) & (2**64 - 1)
            width = min(chance.choice((1, 2, 4, 8)), end - at)
            changed[at : at + width] = number.to_bytes(8, "little")[:width]
        elif kind == 3:
            width = min(chance.randrange(64), end - at)
            changed[at : at + width] = chance.choice((b"\0", b"\xff")) * width
        elif kind == 4:
            source = chance.randrange(begin, end)
            width = min(chance.randrange(200), end - at, end - source)
            changed[at : at + width] = content[source : source + width]
        elif end == len(content) and chance.random() < 0.2:
            return bytes(changed[:at])
    return bytes(changed)


# --- Frames -------------------------------------------------------------------------------------------------


def a_frame(chance: random.Random) -> bytes:
    parts, length = [], 0
    for entry_id in range(chance.randrange(4), 8):
        payload = chance.randbytes(chance.choice((0, 1, 40)))
        length += len(payload)
        attributes = b""
        if chance.random() < 0.4:
            attributes = encode_attributes([len(payload)], Producer(3, entry_id))
        parts.append(encode_entry(9, entry_id, length + 1000, payload, entry_id - 1, 0, attributes))
    return b"".join(parts)


def summed_entries(body: bytes) -> bytes:
    """Every entry that its own size lets one find, with a right sum."""
    changed, at = bytearray(body), 0
    while len(changed) - at >= 52:
        end = at + 52 + int.from_bytes(changed[at + 4 : at + 8], "little")
        if end > len(changed):
            break
        changed[end - 4 : end] = crc32c(bytes(changed[at : end - 4])).to_bytes(4, "little")
        at = end
    return bytes(changed)


def told(call: object, *arguments: object) -> object:
    """What a kernel answers, as plain values; a refusal by its text, which names fault and offset."""
    try:
        found = call(*arguments)  # type: ignore[operator]
    except PeerError as refused:
        return str(refused)
    if isinstance(found, tuple) and any(isinstance(each, memoryview) for each in found):
        return tuple(bytes(each) for each in found)
    return bytes(found) if isinstance(found, bytearray | bytes) else found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_frames_are_read_alike(seed: int, inputs: int) -> None:
    """P3.1: scan, cut and both read-outs, refusals at the same offset for the same reason."""
    chance = random.Random(seed)
    sound = refused = 0
    for _ in range(inputs * 5):
        body = a_frame(chance)
        if chance.random() < 0.9:
            body = mutated(chance, body, 0, len(body))
        if chance.random() < 0.5:
            body = summed_entries(body)
        seats = chance.randint(1, 5)
        seat = chance.randrange(seats)
        for name, arguments in (("scan", ()), ("offsets", ()), ("values", ()), ("cut", (seats, 1, seat))):
            native = told(getattr(kernels, name), body, *arguments)
            assert native == told(getattr(twins, name), body, *arguments), (name, body.hex())
        is_refused = isinstance(told(kernels.scan, body), str)
        sound, refused = sound + (not is_refused), refused + is_refused
    assert sound > 0
    assert refused > 0


# --- Journals -----------------------------------------------------------------------------------------------


def a_journal() -> dict[str, bytes]:
    disk = MemoryDisk({"/j/.made": b""})
    with Journal("/j/j", io=disk, threaded=False, file_bytes=65536, identity=b"i" * 16) as journal:
        for number in range(18):
            for token in range(number % 3 + 1):
                journal.append(
                    number % 7, number, random.Random(number + token).randbytes(number * 300 % 5000)
                )
            journal.step()
            journal.step()
    return {path: content for path, content in disk.files().items() if "journal-" in path}


def summed_journal(content: bytes) -> bytes:
    """File header, groups and records with right sums for what they say now."""
    changed = bytearray(content)
    if len(changed) < BLOCK_BYTES:
        return content
    struct.pack_into("<I", changed, 0, crc32c(bytes(changed[4 : FILE_HEADER.size])))
    seed = crc32c(bytes(changed[16:40]))
    for at in range(BLOCK_BYTES, len(changed) - BLOCK_BYTES + 1, BLOCK_BYTES):
        if changed[at + 4 : at + 8] != b"EBKG":
            continue
        count, crcs, place = int.from_bytes(changed[at + 40 : at + 44], "little"), b"", at + GROUP_HEADER.size
        for _ in range(min(count, 20)):
            size = int.from_bytes(changed[place + 4 : place + 8], "little")
            end = place + RECORD_HEADER.size + size
            if end > len(changed):
                break
            place_seed = crc32c(place.to_bytes(8, "little"), seed)
            crc = crc32c(bytes(changed[place + 4 : end]), place_seed)
            struct.pack_into("<I", changed, place, crc)
            crcs += bytes(changed[place : place + 4])
            place += RECORD_HEADER.size + -(-size // 8) * 8
        struct.pack_into("<I", changed, at + 48, crc32c(crcs))
        struct.pack_into("<I", changed, at, crc32c(bytes(changed[at + 4 : at + GROUP_HEADER.size]), seed))
    return bytes(changed)


def native_journal(files: dict[str, bytes]) -> list[tuple[int, int, int, bytes]] | None:
    try:
        disk = MemoryDisk({**files, "/j/.made": b""})
        with Journal("/j/j", io=disk, threaded=False, file_bytes=65536, identity=b"i" * 16) as journal:
            return [(token, kind, ledger, bytes(body)) for token, kind, ledger, body in journal.replay(0)]
    except StorageError:
        return None


def plain_journal(files: dict[str, bytes]) -> list[tuple[int, int, int, bytes]] | None:
    findings = Findings()
    directory = PictureDirectory("/j/j", files)
    picture = look_at_journal(directory, findings)
    found = [
        (record.token, record.kind, record.ledger_id, bytes(record.body))
        for record in walk_records(directory, picture, 0, findings)
    ]
    return None if findings.damage_count else found


@pytest.mark.parametrize("seed", range(SEEDS))
def test_journals_are_read_alike(seed: int, inputs: int) -> None:
    """I41, I42, I43: the same records, or both refuse."""
    chance = random.Random(seed)
    whole = a_journal()
    truth = native_journal(whole)
    assert truth is not None
    assert plain_journal(whole) == truth
    sound = refused = 0
    for _ in range(inputs):
        path = chance.choice(sorted(whole))
        content = whole[path]
        blocks = len(content.rstrip(b"\0")) // BLOCK_BYTES + 1
        begin = chance.randrange(blocks) * BLOCK_BYTES
        end = min(begin + 200, len(content)) if chance.random() < 0.7 else len(content)
        content = mutated(chance, content, begin, end)
        if chance.random() < 0.5:
            content = summed_journal(content)
        files = {**whole, path: content}
        native = native_journal(files)
        assert native == plain_journal(files), (path, seed)
        sound, refused = sound + (native is not None), refused + (native is None)
    assert sound > 0
    assert refused > 0


# --- Entry logs: scanner and index --------------------------------------------------------------------------

LOGS = {path: content for path, content in SMALL.files.items() if path.endswith(".elog")}
IDS = sorted(
    {*(key for key in SMALL.entries if key[0] < 200), *((3, i) for i in range(110, 125)), (4, 0), (5, 1)}
)


def summed_log(content: bytes) -> bytes:
    """Both descriptors and the sections with right sums, if the first descriptor says where they are."""
    changed = bytearray(content)
    if len(changed) < 4096:
        return content
    fields = DESCRIPTOR.unpack_from(changed)
    states_size, entries_size, index_size = fields[7], fields[8], fields[10]
    has_two = fields[1] == 3
    begin = 4096 + states_size + entries_size
    if has_two:
        begin = -(-(begin + index_size) // 4096) * 4096
    if begin + index_size + states_size + DESCRIPTOR.size > len(changed):
        return content
    states = bytes(changed[4096 : 4096 + states_size])
    if has_two:
        first = 4096 + states_size
        sum_runs(changed, begin, begin + index_size)
        changed[first : first + index_size] = changed[begin : begin + index_size]
    changed[begin + index_size : begin + index_size + states_size] = states
    seed = crc32c(bytes(changed[:48]))
    struct.pack_into("<I", changed, 104, crc32c(states, seed))
    struct.pack_into("<I", changed, 108, crc32c(bytes(changed[begin : begin + index_size]), seed))
    struct.pack_into("<I", changed, 124, crc32c(bytes(changed[:124])))
    changed[-DESCRIPTOR.size :] = changed[: DESCRIPTOR.size]
    return bytes(changed)


def sum_runs(changed: bytearray, begin: int, end: int) -> None:
    """Each run of the section as it says it ends, with a right sum."""
    seed, at = crc32c(bytes(changed[:48])), begin
    while end - at >= RUN.size:
        residues = int.from_bytes(changed[at + 24 : at + 32], "little").bit_count() if changed[at + 52] else 1
        crc_at = at + RUN.size + int.from_bytes(changed[at + 48 : at + 52], "little") + 8 * residues
        if crc_at + 4 > end:
            return
        crc = crc32c(bytes(changed[at:crc_at]), crc32c((at - begin).to_bytes(8, "little"), seed))
        struct.pack_into("<I", changed, crc_at, crc)
        at = crc_at + 4


def native_verdicts(
    files: dict[str, bytes], slice_bytes: int = 1 << 20
) -> dict[tuple[int, int], bytes | LogVerdict] | None:
    """Behind the search for what lost indexes located, in slices of so many bytes; what was said before it is no other
    verdict, but for what is not known yet (ST38)."""
    try:
        store = NativeEntryStore(
            ["/b1/entries"], TOKEN, INCARNATION, io=MemoryDisk(files), half_bytes_max=1 << 20
        )
    except StorageError:
        return None
    before = now_said(store)
    look_through(store, slice_bytes)
    found = now_said(store)
    for key, verdict in before.items():
        assert verdict != LogVerdict.ABSENT or found[key] == LogVerdict.ABSENT, key
    store.close()
    return found


def now_said(store: NativeEntryStore) -> dict[tuple[int, int], bytes | LogVerdict]:
    found: dict[tuple[int, int], bytes | LogVerdict] = {}
    for ledger_id, entry_id in IDS:
        read = store.read(ledger_id, entry_id, entry_id, 1 << 20)
        if read.frame is not None:
            found[ledger_id, entry_id] = bytes(read.frame.body)
        else:
            found[ledger_id, entry_id] = LogVerdict.ABSENT if read.absent else LogVerdict.UNREADABLE
    return found


def plain_verdicts(files: dict[str, bytes]) -> dict[tuple[int, int], bytes | LogVerdict] | None:
    logs = EntryLogs([PictureDirectory("/b1/entries", files)], Whose(TOKEN, INCARNATION), Findings())
    return None if logs.is_refused else {key: logs.verdict(*key) for key in IDS}


def places(content: bytes) -> Iterator[tuple[int, int]]:
    """Where to change a log: all of it, its descriptor, its index, its entries."""
    found = places_in(content)
    yield from (
        (0, len(content)),
        (0, DESCRIPTOR.size),
        *found.index_ranges(),
        (found.entries, found.entries_end),
    )


@pytest.mark.parametrize(("first", "last"), [(2, 1), (2 << 24, 3), (1, 4), (1, 2**64 - 1)])
def test_an_impossible_roll_is_refused_by_both(first: int, last: int) -> None:
    """I41, STORAGE.md section 2: a roll names logs below its own; nothing else is believed, however right its sum."""
    path = max(LOGS)
    content = bytearray(LOGS[path])
    roll_at = 4096 + DESCRIPTOR.unpack_from(content)[7] - LEDGER_STATE.size
    assert ROLL_ITEM.unpack_from(content, roll_at) == (1, 3)
    ROLL_ITEM.pack_into(content, roll_at, first, last)
    files = {**LOGS, path: summed_log(bytes(content))}
    assert native_verdicts(files) is None
    assert plain_verdicts(files) is None


@pytest.mark.parametrize("seed", range(SEEDS))
def test_entry_logs_are_read_alike(seed: int, inputs: int) -> None:
    """I31, ST13: the same verdict for every id: held with these bytes, absent, or unreadable; or both refuse."""
    chance, sizes = random.Random(seed), random.Random(f"slices {seed}")
    assert native_verdicts(LOGS) == plain_verdicts(LOGS)
    kinds = {"refused": 0, "whole": 0, "unreadable": 0}
    for _ in range(inputs):
        path = chance.choice(sorted(LOGS))
        whole = LOGS[path] if chance.random() < 0.7 else as_version(chance.choice((1, 2)), LOGS[path])
        begin, end = chance.choice(list(places(whole)))
        content = mutated(chance, whole, begin, end)
        if chance.random() < 0.4 and len(content) == len(whole):  # Joined, and the scanner.
            for begin, end in places_in(whole).index_ranges():
                content = mutated(chance, content, begin, end)
        if chance.random() < 0.4 and len(content) == len(whole):
            content = summed_log(content)
        files = {**LOGS, path: content}
        native = native_verdicts(files, sizes.choice([1, 60, 4096, 1 << 20]))
        assert native == plain_verdicts(files), (path, seed)
        values = native.values() if native is not None else ()
        kinds[
            "refused" if native is None else "unreadable" if LogVerdict.UNREADABLE in values else "whole"
        ] += 1
    assert all(kinds.values()), kinds


@pytest.mark.parametrize("seed", range(SEEDS))
def test_several_lost_indexes_are_read_alike(seed: int, inputs: int) -> None:
    """I31, ST38: the same where several logs are damaged, whose entries are found one log after the other."""
    chance = random.Random(f"several {seed}")
    for _ in range(inputs // 4):
        files = dict(LOGS)
        for path in chance.sample(sorted(LOGS), chance.randint(2, len(LOGS))):
            content = LOGS[path] if chance.random() < 0.7 else as_version(chance.choice((1, 2)), LOGS[path])
            for begin, end in places_in(content).index_ranges():
                content = mutated(chance, content, begin, end) if len(content) > end else content
            files[path] = content
        native = native_verdicts(files, chance.choice([60, 1 << 20]))
        assert native == plain_verdicts(files), seed
