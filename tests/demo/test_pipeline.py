"""The judge of the demo's acts behind the writing: it must see whatever does not hold; and what it damages, where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from embedbk.codec.entry import encode_entry
from embedbk.demo import sparked
from embedbk.demo.copying import held_batch_of, is_between_commits, rows_per_batch_of
from embedbk.demo.damage import damage_copy
from embedbk.demo.lines import copy_file
from embedbk.demo.pipeline import PipelineOutcome, lines_with
from embedbk.demo.sparked import SeenRows, SparkGroup, why_no_spark
from embedbk.demo.verdict import LogComparison
from embedbk.errors import EmbedbkError
from embedbk.scrub.judging import CopyFinding
from embedbk.spark import java

ROWS = SeenRows([SparkGroup(1, 0, 60, 600, 5), SparkGroup(2, 60, 40, 400, 9)])
CRC = CopyFinding("crc", 1, 50, 50, 1, "b2", "")
UNDER = CopyFinding("under-Qw", 1, 50, 50, 1, "", "")


def good() -> PipelineOutcome:
    return PipelineOutcome(
        100,
        is_with_spark=True,
        is_with_archive=True,
        spark=ROWS,
        words=[("self", 7)],
        word_lines=7,
        killed_at=68,
        was_between_commits=True,
        copied=LogComparison(100, 1000, 0, 0, 0),
        copied_seen=ROWS,
        archived_rows=100,
        archived_seen=ROWS,
        is_verified=True,
        planted=(1, 50, "b2"),
        findings=[CRC, UNDER],
        is_scrub_complete=True,
        is_mended=True,
    )


FEWER = SeenRows(ROWS.groups[:1])
OTHERS = SeenRows([SparkGroup(1, 0, 100, 1000, 11)])


@pytest.mark.parametrize(
    "changed",
    [
        {"spark": FEWER},
        {"spark": None},
        {"word_lines": 8},
        {"was_between_commits": False},
        {"copied": LogComparison(99, 990, 1, 0, 0)},
        {"copied": LogComparison(101, 1010, 0, 1, 0)},
        {"copied_seen": OTHERS},
        {"archived_rows": 99},
        {"archived_seen": OTHERS},
        {"is_verified": False},
        {"planted": None},
        {"planted": (1, 51, "b2")},
        {"planted": (1, 50, "b1")},
        {"findings": [UNDER]},
        {"findings": [CRC, UNDER, CRC._replace(first=3, last=3)]},
        {"is_scrub_complete": False},
        {"is_mended": False},
    ],
    ids=str,
)
def test_each_fact_that_does_not_hold_is_seen(changed: dict[str, object]) -> None:
    assert good().holds
    assert not replace(good(), **changed).holds


def test_what_was_left_out_is_not_demanded_and_not_shown() -> None:
    alone = PipelineOutcome(100, False, False, planted=(1, 50, "b2"), findings=[CRC, UNDER])
    alone.is_scrub_complete = alone.is_mended = True
    assert alone.holds
    told = alone.as_json()
    assert [told[name] for name in ("spark_rows", "copied_rows", "archived_rows")] == [None] * 3
    assert told["scrub_found"] == 1 and len(alone.rows()) == 1
    assert len(good().rows()) == 6


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 100, 300_000])
def test_a_micro_batch_that_is_there_is_held(count: int) -> None:
    batches = -(-count // rows_per_batch_of(count))
    assert 0 <= held_batch_of(count) < batches <= 3
    assert held_batch_of(count) == (1 if count > 1 else 0)


def test_a_checkpoint_tells_whether_spark_has_committed(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    assert not is_between_commits(tmp_path, 1)
    (tmp_path / "offsets" / "1").touch()
    assert is_between_commits(tmp_path, 1)
    (tmp_path / "commits" / "1").touch()
    assert not is_between_commits(tmp_path, 1)


def test_python_counts_words_as_spark_does(tmp_path: Path) -> None:
    """Runs of letters and underscores; a word counts once in a line; bytes that are no text divide words."""
    (tmp_path / "input").write_bytes(b"self self\nmyself, _self self_\nself.x\n\xffself\xe9 1self2\n\n")
    assert lines_with(copy_file(str(tmp_path / "input"), tmp_path / "lines", None), "self") == 3


def test_one_byte_of_the_payload_changes_wherever_the_entry_stands(tmp_path: Path) -> None:
    wanted, other = encode_entry(7, 3, 30, b"payload"), encode_entry(7, 4, 40, b"payload")
    ids = wanted[8:24]  # By chance in another's payload: no entry stands there.
    decoy = encode_entry(8, 0, 60, ids * 3)
    for name, parts in (("1.elog", [decoy, wanted, other]), ("2.elog", [other, wanted])):
        (tmp_path / name).write_bytes(b"".join(parts))
    damage_copy(tmp_path, 7, 3)
    damaged = wanted.replace(b"payload", b"qayload")
    assert (tmp_path / "1.elog").read_bytes() == decoy + damaged + other
    assert (tmp_path / "2.elog").read_bytes() == other + damaged
    with pytest.raises(EmbedbkError, match="has entry 9 of ledger 7"):
        damage_copy(tmp_path, 7, 9)


@pytest.mark.parametrize(
    ("has_spark", "java_home", "says"),
    [
        (True, Path("/java"), ""),
        (True, None, "needs Java 17 or newer, and there is none"),
        (False, Path("/java"), "Spark is not installed"),
    ],
)
def test_what_spark_lacks_here_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, has_spark: bool, java_home: Path | None, says: str
) -> None:
    find: Callable[[str], object] = lambda name: object() if has_spark else None  # noqa: E731
    monkeypatch.setattr(sparked, "find_spec", find)
    monkeypatch.setattr(java, "find_java", lambda **_: java_home)
    lacking = why_no_spark()
    assert (says in lacking) if says else lacking == ""
