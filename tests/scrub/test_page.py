"""The page of a scrub: what it found, as HTML that stands alone (SCRUB.md, `--html`)."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main
from embedbk.report.document import ROWS_MAX
from embedbk.scrub import CopyFinding, ScrubOptions, ScrubResult
from embedbk.scrub.page import findings_page


class _Cells(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.opened.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_a_page_has_each_finding_and_what_could_not_be_told() -> None:
    """What others wrote is text, also where it looks like markup; nothing is loaded from elsewhere."""
    found = [
        CopyFinding("crc", 7, 3, 3, 1, "b1", "the copy cannot be read"),
        CopyFinding("missing", 7, 10, 19, 10, "b2", "its bookie does not have it"),
        CopyFinding("orphan-ledger", 8, None, None, 0, "", "it names no log", "<script>alert(1)</script>"),
    ]
    result = ScrubResult(found, {(9, "b3"): "it is away", (None, ""): "a list changed"}, ledgers=3, copies=90)
    page = findings_page(result, ScrubOptions(since_ms=1_000), 1_764_000_000_000, "<b>")
    cells = _Cells(page)
    assert not {"script", "img", "link", "b"} & set(cells.opened)
    assert "http" not in page and page.startswith("<!doctype html>")
    rows = [
        ["crc", "7", "3", "b1", "the copy cannot be read"],
        ["missing", "7", "10 to 19", "b2", "its bookie does not have it"],
        ["orphan-ledger", "<script>alert(1)</script>", "8", "it names no log"],
        ["9", "b3", "it is away"],
        ["a list changed"],
    ]
    for row in rows:
        assert any(cells.texts[at : at + len(row)] == row for at in range(len(cells.texts)))
    said = " ".join(cells.texts)
    assert "3 findings: 3 ledgers" in said and "exit status 2" in said
    assert "closed before 1970-01-01 00:00 UTC" in said and "2025-11-24" in said


def test_a_clean_page_says_so() -> None:
    said = " ".join(_Cells(findings_page(ScrubResult(ledgers=2), ScrubOptions(level="crc"), 0)).texts)
    assert "clean: 2 ledgers" in said and "Level crc; exit status 0" in said
    assert "Findings" not in said and "could not be told" not in said


def test_a_page_says_how_many_rows_it_leaves_out() -> None:
    found = [CopyFinding("crc", each, 0, 0, 1, "b1", "bad") for each in range(ROWS_MAX + 5)]
    said = _Cells(findings_page(ScrubResult(found), ScrubOptions(), 0)).texts
    assert said.count("bad") == ROWS_MAX
    assert "5 more are in what --json prints." in said


def test_the_command_writes_a_page_and_takes_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, page = tmp_path / "data", tmp_path / "page.html"
    settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)
    with embedbk.open(data, bookies=1, settings=settings) as bk:
        for _ in range(2):
            with bk.log("orders").writer() as orders:
                orders.append(b"one")
    line = ["spark", "scrub", "--at", str(data), "--json", "--settle-s", "0.05", "--html", str(page)]
    assert main([*line, "--since", "2100-01-01T00:00:00Z"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ledgers"], told["passed"]) == (1, 1)
    assert "1 were closed before, and passed over" in page.read_text()
    for bad, said in (("yesterday", "is no time"), ("2026-11-26T08:30:00", "says no time zone")):
        assert main([*line, "--since", bad]) == 1
        assert said in capsys.readouterr().err
    assert main([*line[:-1], str(tmp_path)]) == 1
    assert "cannot be written" in capsys.readouterr().err
