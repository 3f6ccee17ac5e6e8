"""Files of other programs become records of a log, in order, once, or not at all (P8.5)."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from embedbk.archive.importing import ImportTask, RecordColumns, import_files, stage_rows
from embedbk.client.client import Client
from embedbk.client.log import Log
from embedbk.codec.entry_records import EntryRecord
from embedbk.core.log_splicing import SPLICE_LEDGERS_MAX
from embedbk.errors import EmbedbkError, OperationTimeout, UsageError
from tests.archive.scenes import Late
from tests.archive.test_commands import command

PLAIN = RecordColumns()
ALL = RecordColumns("value", "key", "timestamp", "headers")


def records(bk: Client, name: str) -> list[EntryRecord]:
    return [record for entry in bk.log(name).read() for record in entry.records]


def written(folder: Path, name: str, columns: dict[str, Any], **options: Any) -> Path:
    path = folder / name
    pyarrow.parquet.write_table(pa.table(columns), path, **options)
    return path


def test_rows_become_records_in_the_order_of_files_and_rows(bk: Client, name: str, tmp_path: Path) -> None:
    """Also of several row groups, beside a writer that lives; a directory gives its files by their names."""
    for number in range(3):
        values = [b"%d/%d" % (number, row) for row in range(40)]
        written(tmp_path, f"{number}.parquet", {"value": values, "x": list(range(40))}, row_group_size=7)
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / "below").mkdir()
    with bk.log(name).writer() as writer:
        writer.append(b"before")
        done = import_files(bk, name, [tmp_path / "2.parquet", tmp_path])
        writer.append(b"behind")
    assert done.outcome is not None and (done.rows, done.outcome.first_offset, done.outcome.end) == (
        160,
        1,
        161,
    )
    told = [f"{number}/{row}".encode() for number in (2, 0, 1, 2) for row in range(40)]
    assert [each.value for each in records(bk, name)] == [b"before", *told, b"behind"]


@pytest.mark.parametrize("kind", [pa.binary(), pa.string(), pa.large_binary(), pa.large_string()])
def test_keys_timestamps_and_headers_come_along(bk: Client, name: str, tmp_path: Path, kind: Any) -> None:
    columns = {
        "value": pa.array([b"a", b"", b"c"], pa.binary()).cast(kind),
        "key": pa.array([b"k", None, b""], pa.binary()).cast(kind),
        "timestamp": pa.array([5, None, 7_000], pa.timestamp("ms", tz="UTC")),
        "headers": pa.array([[("h", b"1")], None, []], pa.map_(pa.string(), pa.binary())),
    }
    done = import_files(bk, name, [written(tmp_path, "x", columns)], columns=ALL)
    assert done.rows == 3
    assert records(bk, name) == [
        EntryRecord(b"a", b"k", 5, {"h": b"1"}),
        EntryRecord(b""),
        EntryRecord(b"c", b"", 7_000),
    ]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
def test_times_of_fewer_bits_are_ms_too(bk: Client, name: str, tmp_path: Path, kind: Any) -> None:
    columns = {"value": pa.array([b"a", b"b"]), "timestamp": pa.array([5, None], kind)}
    wanted = RecordColumns(value="value", timestamp="timestamp")
    import_files(bk, name, [written(tmp_path, "x", columns)], columns=wanted)
    assert [each.timestamp for each in records(bk, name)] == [5, None]


def test_csv_json_and_arrow_files(bk: Client, name: str, tmp_path: Path) -> None:
    """What looks like a number in a CSV file is taken as it stands there."""
    (tmp_path / "x.csv").write_text('id,body\n1,"007"\n2,"a,""b"""\n3,\n')
    (tmp_path / "x.json").write_text('{"body": "seven", "id": "4"}\n{"body": "ate\\n", "id": "5"}\n')
    pyarrow.feather.write_feather(pa.table({"id": ["6"], "body": [b"nine"]}), tmp_path / "x.arrow")
    columns = RecordColumns("body", "id")
    for file_format in ("csv", "json", "arrow"):
        import_files(bk, name, [tmp_path / f"x.{file_format}"], file_format=file_format, columns=columns)
    assert [(each.key, each.value) for each in records(bk, name)] == [
        (b"1", b"007"), (b"2", b'a,"b"'), (b"3", b""), (b"4", b"seven"), (b"5", b"ate\n"), (b"6", b"nine"),
    ]  # fmt: skip


def test_a_value_of_a_csv_file_may_have_lines(bk: Client, name: str, tmp_path: Path) -> None:
    """Also where pyarrow cuts a large file into blocks: at an end of a line that is none of a row."""
    value = "\n".join(f"line {number}" for number in range(9_000))
    (tmp_path / "x.csv").write_text("value\n" + f'"{value}"\n' * 20)
    assert import_files(bk, name, [tmp_path / "x.csv"], file_format="csv").rows == 20
    assert {bytes(each.value) for each in records(bk, name)} == {value.encode()}


def test_a_transaction_is_imported_once(bk: Client, name: str, tmp_path: Path) -> None:
    path = written(tmp_path, "x", {"value": [b"a", b"b"]})
    first = import_files(bk, name, [path], application="feed", number=7)
    path.unlink()
    written(tmp_path, "x", {"value": [b"other"]})
    again = import_files(bk, name, [path], application="feed", number=7)
    assert first.outcome is not None and first.rows == 2
    assert (again.outcome, again.rows) == (first.outcome._replace(is_replay=True), 0)
    assert [each.value for each in records(bk, name)] == [b"a", b"b"]


def test_a_task_without_an_answer_imports_nothing(bk: Client, name: str, tmp_path: Path) -> None:
    """P8.5: all of it, or nothing. Seen: the rows of the other files were appended."""
    for each in ("a", "b"):
        written(tmp_path, each, {"value": [each.encode()]})
    with pytest.raises(EmbedbkError, match="1 answers came of 2 tasks; nothing was appended"):
        import_files(bk, name, [tmp_path], run=lambda log, tasks: [stage_rows(log, tasks[0])])
    assert records(bk, name) == []


def test_a_job_that_another_one_of_its_transaction_overtakes_has_imported_nothing(
    bk: Client, name: str, tmp_path: Path
) -> None:
    """ "rows: 0: it was done before". Seen: it told its own rows, which are not in the log."""
    mine, other = (written(tmp_path, each, {"value": [each.encode()]}) for each in ("mine", "other"))

    def run(log: Log, tasks: Sequence[ImportTask]) -> Iterator[tuple[int, int]]:
        yield from [stage_rows(log, task) for task in tasks]
        assert import_files(bk, name, [other], application="feed", number=7).rows == 1

    done = import_files(bk, name, [mine], run=run, application="feed", number=7)
    assert done.outcome is not None and (done.outcome.is_replay, done.rows) == (True, 0)
    assert [each.value for each in records(bk, name)] == [b"other"]


@pytest.mark.parametrize("how", ["deleted", "renamed"])
def test_what_was_staged_for_a_log_is_not_put_into_another_of_its_name(
    bk: Client, name: str, tmp_path: Path, how: str
) -> None:
    """P8.12: staged ledgers name the log's id. Nothing of the import is in either log, and it may be done again."""
    path = written(tmp_path, "x", {"value": [b"a", b"b"]})

    def run(log: Log, tasks: Sequence[ImportTask]) -> Iterator[tuple[int, int]]:
        yield from [stage_rows(log, task) for task in tasks]
        if how == "deleted":
            bk.delete_log(name, force=True)
        else:
            bk.log(name).rename(f"{name}-before")
        with bk.log(name).writer() as writer:
            writer.append(b"of another log")

    with pytest.raises(UsageError, match="is not staged any more"):
        import_files(bk, name, [path], run=run, application="feed", number=7)
    assert [each.value for each in records(bk, name)] == [b"of another log"]
    if how == "renamed":
        assert records(bk, f"{name}-before") == []
    assert import_files(bk, name, [path], application="feed", number=7).rows == 2
    assert [each.value for each in records(bk, name)] == [b"of another log", b"a", b"b"]


def test_bookies_that_are_late_are_no_fault_of_a_file(bk: Client, name: str, tmp_path: Path) -> None:
    """Seen: the file "cannot be read as parquet: no answer came in time", as a time-out is an OSError, too."""
    path = written(tmp_path, "x", {"value": [b"a", b"b"]})

    def run(log: Log, tasks: Sequence[ImportTask]) -> Iterator[tuple[int, int]]:
        return (stage_rows(Late.of(log), task) for task in tasks)

    with pytest.raises(OperationTimeout, match=r"^no answer came in time$"):
        import_files(bk, name, [path], run=run)
    assert records(bk, name) == []


def test_more_files_than_ledgers_of_a_transaction(bk: Client, name: str, tmp_path: Path) -> None:
    """Tasks travel to other processes; files without a row leave nothing behind."""
    count = SPLICE_LEDGERS_MAX + 5
    for number in range(count):
        values = [b"%d" % number] if number % 3 else []
        written(tmp_path, f"{number:03}", {"value": pa.array(values, pa.binary())})
    tasks: list[ImportTask] = []

    def run(log: Log, given: Sequence[ImportTask]) -> Iterator[tuple[int, int]]:
        tasks.extend(pickle.loads(pickle.dumps(list(given))))
        return (stage_rows(log, task) for task in tasks)

    before = set(bk.ledgers())
    done = import_files(bk, name, [tmp_path], run=run)
    assert len(tasks) == SPLICE_LEDGERS_MAX
    told = [b"%d" % number for number in range(count) if number % 3]
    assert done.rows == len(told) and [each.value for each in records(bk, name)] == told
    listed = {segment.ledger_id for segment in bk.log(name).segments()}
    assert set(bk.ledgers()) - before <= listed, "an empty ledger stays"


def test_files_without_any_row_are_nothing(bk: Client, name: str, tmp_path: Path) -> None:
    path = written(tmp_path, "x", {"value": pa.array([], pa.binary())})
    done = import_files(bk, name, [path])
    assert (done.outcome, done.rows) == (None, 0) and not records(bk, name)


def refused(bk: Client, name: str, paths: list[Path], match: str, **options: Any) -> None:
    before = set(bk.ledgers())
    with pytest.raises(UsageError, match=match):
        import_files(bk, name, paths, **options)
    assert not bk.log_exists(name) or not records(bk, name), "something was appended"
    assert set(bk.ledgers()) == before, "a staged ledger was left"


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"value": pa.array([b"a", None, b"c"], pa.binary())}, "'.*/x', behind row 0: .*null"),
        ({"value": [1, 2]}, "behind row 0: column value is int64, and a record's value is binary or text"),
        ({"other": [b"a"], "more": [1]}, "it has no column value; there are other, more"),
    ],
    ids=["a null", "numbers", "another column"],
)
def test_rows_that_are_no_records_are_refused(
    bk: Client, name: str, tmp_path: Path, columns: Any, match: str
) -> None:
    """All or nothing: the file before it was fine, and nothing of it stands in the log."""
    fine = written(tmp_path, "a", {"value": [b"fine"]})
    refused(bk, name, [fine, written(tmp_path, "x", columns)], match)


def test_what_stands_beside_values_is_checked_too(bk: Client, name: str, tmp_path: Path) -> None:
    columns = {"value": [b"a"], "key": [1], "timestamp": ["now"], "headers": [{"a": 1}]}
    path = written(tmp_path, "x", columns)
    refused(bk, name, [path], "a record's key is", columns=RecordColumns(key="key"))
    refused(bk, name, [path], "a record's timestamp is", columns=RecordColumns(timestamp="timestamp"))
    refused(bk, name, [path], "a record's headers is", columns=RecordColumns(headers="headers"))


@pytest.mark.parametrize("file_format", ["parquet", "arrow", "csv", "json"])
def test_files_of_another_kind_are_refused(bk: Client, name: str, tmp_path: Path, file_format: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(bytes(range(256)) * 20)
    refused(bk, name, [path], "x'", file_format=file_format)


def test_files_that_are_not_there_or_none(bk: Client, name: str, tmp_path: Path) -> None:
    refused(bk, name, [], "no file was named")
    refused(bk, name, [tmp_path / "absent"], "absent' cannot be read")
    refused(bk, name, [tmp_path], "has no file")
    os.mkfifo(tmp_path / "pipe")
    refused(bk, name, [tmp_path / "pipe"], "neither a file nor a directory")
    refused(bk, name, [tmp_path / "absent"], "it is one of parquet, arrow, csv, json", file_format="xml")


def test_the_command(bk: Client, name: str, tmp_path: Path) -> None:
    path = written(tmp_path, "x", {"body": ["a", "b"], "id": ["1", "2"]})
    options = ("--value", "body", "--key", "id", "--application", "feed", "--number", 1)
    code, out, _ = command(bk, "import", name, path, *options)
    assert code == 0 and "2 rows appended, offsets 0 to 1" in out
    code, out, _ = command(bk, "import", name, path, *options, "--json")
    assert code == 0 and json.loads(out) == {"rows": 0, "first_offset": 0, "end": 2, "is_replay": True}
    assert records(bk, name) == [EntryRecord(b"a", b"1"), EntryRecord(b"b", b"2")]
    code, _, said = command(bk, "import", f"{name}-2", path)
    assert code == 1 and "it has no column value" in said and "Traceback" not in said
