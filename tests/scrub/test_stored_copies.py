"""A scrub of bookies on real files, in one process: flipped bits and torn sectors, found and put right (SCRUB.md)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main
from embedbk.client.client import Client
from embedbk.scrub import ScrubOptions, scrub

SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


def damage(data: Path, bookie: str, word: bytes, with_what: bytes) -> None:
    (path,) = [each for each in (data / bookie).rglob("*.elog") if word in each.read_bytes()]
    raw = path.read_bytes()
    at = raw.index(word)
    path.write_bytes(raw[:at] + with_what + raw[at + len(with_what) :])


def test_damage_in_files_is_found_in_its_place_and_put_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        bk.stop_repair("damage is planted")
        with bk.create_ledger() as writer:
            writer.add_many([b"payload %06d " % number * 20 for number in range(3_000)])
    damage(data, "b2", b"payload 001500 ", b"Payload")
    damage(data, "b3", b"payload 000020 ", bytes(512))
    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        found = {
            (each.kind, each.first, each.last, each.bookie)
            for each in scrub(bk, ScrubOptions(settle_s=0.05)).findings
        }
        assert {("crc", 1500, 1500, "b2"), ("under-Qw", 1500, 1500, "")} <= found
        torn = [each for each in found if each[3] == "b3"]
        assert torn and all(each[0] == "crc" and each[1] in (19, 20, 21) for each in torn)
        assert len(found) == 2 + 2 * len(torn)
        assert scrub(bk, ScrubOptions(settle_s=0.05, queues_repair=True)).queued == 1
        bk.start_repair()
        assert is_mended(bk)
    code = main(["spark", "scrub", "--at", str(data), "--json", "--settle-s", "0.05"])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, told["exit_code"], told["findings"], told["copies"]) == (0, 0, 0, 9_000)


def is_mended(bk: Client) -> bool:
    """Within as many scrubs as repair may need looks; each takes a while of its own."""
    return any(scrub(bk, ScrubOptions(settle_s=0.2, rounds=1)).exit_code == 0 for _ in range(100))


def test_the_command_says_what_it_finds_and_what_it_was_not_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status: 1 for arguments that are not understood, 2 for findings."""
    assert main(["spark", "scrub", "--level", "none"]) == 1
    assert main(["spark", "scrub", "--at", str(tmp_path), "--max-mbps", "-1"]) == 1
    capsys.readouterr()
    data = tmp_path / "data"
    with (
        embedbk.open(data, bookies=1, settings=SETTINGS) as bk,
        bk.create_ledger(custom={"log": b"nowhere"}) as writer,
    ):
        writer.add(b"lost")
    assert main(["spark", "scrub", "--at", str(data), "--settle-s", "0"]) == 2
    out = capsys.readouterr().out
    assert f"orphan-ledger: log nowhere, ledger {writer.ledger_id}: it names log 'nowhere'" in out
    assert "1 findings: 1 ledgers, 1 copies of entries" in out
