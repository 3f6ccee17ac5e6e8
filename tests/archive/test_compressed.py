"""Archives of logs whose entries are stored compressed (P8.14; WIRE.md 1, ZSTD)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from embedbk import EntryRecord
from embedbk.archive.columns import SCHEMA, SCHEMA_WITH_STORED
from embedbk.archive.files import EntryRun, sound_rows
from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, directory_of, set_place
from embedbk.archive.place import create_place
from embedbk.archive.restoring import restore
from embedbk.archive.restoring_in_place import restore_in_place
from embedbk.archive.verifying import verify_archive
from embedbk.cli import main
from embedbk.client import compression
from embedbk.client.client import Client
from embedbk.errors import PeerError
from tests.archive.scenes import rows_in

TEXT = b"all of this is said over and over again. " * 40
KEYED = EntryRecord(TEXT, b"k" * 200, 5, {"n": TEXT[:200]})
SMALL = b"over and over"


def written(bk: Client, name: str) -> None:
    """Two ledgers: one with entries of all kinds, one whose entries are too small to be compressed."""
    bk.create_log(name, compression="zstd")
    with bk.log(name).writer() as writer:
        for number in range(6):
            writer.append(TEXT)
            writer.append(SMALL)
            writer.append(KEYED)
            writer.append_batch([TEXT, b"", KEYED, b"%d" % number])
            writer.append_batch([SMALL, SMALL])
    with bk.log(name).writer() as writer:
        writer.append_many([SMALL] * 3)


def records_in(bk: Client, name: str) -> list[tuple[int, list[EntryRecord]]]:
    return [(entry.offset, entry.records) for entry in bk.log(name).read()]


def test_files_have_what_was_appended_and_give_back_what_is_stored(
    bk: Client, name: str, place: Path
) -> None:
    """P8.14: whoever reads Parquet reads records; and an archive has the same bytes as bookies: it is verified against
    them, frees them, is read in their place, and brings them back."""
    written(bk, name)
    before = records_in(bk, name)
    create_place(place)
    set_place(bk, name, place)
    assert archive(bk, name, slice_bytes=300).is_whole
    rows = rows_in(place)
    flat = [(offset, slot, bytes(each.value)) for offset, entry in before for slot, each in enumerate(entry)]
    columns = [rows.column(column).to_pylist() for column in ("offset", "slot", "value")]
    assert list(zip(*columns, strict=True)) == flat
    schemas = {pq.read_schema(path).names[-1] for path in place.rglob("*.parquet")}
    assert schemas == {SCHEMA.names[-1], SCHEMA_WITH_STORED.names[-1]}, (
        "a file without such entries is as ever"
    )
    assert verify_archive(bk, name).code == 0
    report = free(bk, name, keep_lag_s=0)
    assert report.code == 0 and len(report.freed) == 2, (
        "payload bytes of the manifest are those of the ledger"
    )
    assert records_in(bk, name) == before
    assert restore_in_place(bk, name).restored == report.freed
    assert records_in(bk, name) == before
    assert bk.open_ledger(report.freed[0]).metadata.freed is None


def test_restored_to_another_log_records_are_what_they_were(bk: Client, name: str, place: Path) -> None:
    written(bk, name)
    create_place(place)
    set_place(bk, name, place)
    archive(bk, name, slice_bytes=300)
    reading, directory = directory_of(bk, name, b"")
    restore(bk, f"into-{name}", directory, str(reading.name))
    assert records_in(bk, f"into-{name}") == records_in(bk, name)


@pytest.mark.parametrize("column", ["value", "stored"])
def test_a_row_that_is_not_what_is_stored_of_it_is_found(
    bk: Client, name: str, place: Path, tmp_path: Path, column: str
) -> None:
    """P8.14: "then it makes the rows again, and compares all columns"."""
    written(bk, name)
    create_place(place)
    set_place(bk, name, place)
    archive(bk, name, slice_bytes=1 << 20)
    path = max(place.rglob("*.parquet"), key=lambda each: each.stat().st_size)
    table = pq.read_table(path)
    other = table.column(column).to_pylist()
    other[0] = other[0][:-1] + b"?"
    changed = table.set_column(table.schema.get_field_index(column), column, pa.array(other, pa.binary()))
    pq.write_table(changed, tmp_path / "changed", write_page_checksum=True)
    facts = {key.decode(): value.decode() for key, value in pq.read_metadata(path).metadata.items()}
    first, last = map(int, facts["embedbk.entries"].split("-"))
    run = EntryRun(facts["embedbk.log"], int(facts["embedbk.ledger"]), first, last, 0)
    with open(path, "rb") as sound:
        assert sum(rows.num_rows for rows, _ in sound_rows(sound, run)) == table.num_rows
    with open(tmp_path / "changed", "rb") as file, pytest.raises(PeerError):
        list(sound_rows(file, run))


def test_where_nothing_unpacks_it_cannot_be_told_what_is_wrong(
    bk: Client, name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.14: "cannot tell" is no finding, and verifies nothing."""

    def missing() -> None:
        raise ImportError("No module named 'backports.zstd'")

    written(bk, name)
    create_place(place)
    set_place(bk, name, place)
    archive(bk, name)
    monkeypatch.setattr(compression, "_library", missing)
    report = verify_archive(bk, name)
    assert report.code == 3 and not report.findings


def test_one_copy_of_a_bookie_is_shown_as_it_was_appended(
    bk: Client, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written(bk, name)
    (ledger_id, *_) = (each.ledger_id for each in bk.log(name).segments())
    at = ("--at", bk.url) if bk.url else ()
    code = main(["ledger", "read", str(ledger_id), *at, "--bookie", "b1"])
    shown = capsys.readouterr().out.encode()
    assert code == 0 and shown.count(TEXT) == 24


def test_the_stored_bytes_of_a_large_batch_are_in_its_file_once(bk: Client, name: str, place: Path) -> None:
    """P8.14: `stored` and `attributes` stand in the first row of their entry. A copy of both was made for each row on
    the way there: of one batch of 8,192 parts, a gigabyte."""
    bk.create_log(name, compression="zstd")
    with bk.log(name).writer() as writer:
        writer.append_batch([b"%d of the parts" % part for part in range(8192)])
    create_place(place)
    set_place(bk, name, place)
    before = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()
    assert archive(bk, name).is_whole
    assert verify_archive(bk, name).code == 0
    assert pa.default_memory_pool().max_memory() - max(before) < 100 << 20
    rows = rows_in(place)
    assert [len(rows.column(column).drop_null()) for column in ("value", "stored", "attributes")] == [
        8192,
        1,
        1,
    ]
