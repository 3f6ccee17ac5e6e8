"""`embedbk.doctor()`: what this machine gives, as data and as text."""

from __future__ import annotations

import json
from pathlib import Path

import embedbk
from embedbk.ports.upkeep import ScrubDamage
from embedbk.storage.scrubbing import SCRUB_FILE, ScrubState


def test_it_says_how_each_directory_commits(tmp_path: Path) -> None:
    report = embedbk.doctor(tmp_path, tmp_path / "absent")
    found = {finding["subject"]: finding for finding in json.loads(json.dumps(report.as_data()))}
    assert found["crc32c"]["value"] == "agrees with crcmod"
    assert found["python"]["is_good"]
    assert found[f"directory {tmp_path}"]["value"] in ("commits by O_DIRECT|O_DSYNC", "commits by fdatasync")
    assert found[f"directory {tmp_path / 'absent'}"]["value"] == "does not exist"
    assert not report.is_good
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_the_text_has_a_line_for_each_finding(tmp_path: Path) -> None:
    report = embedbk.doctor(tmp_path)
    text = str(report)
    assert all(finding.subject in text for finding in report.findings)
    assert "CLOCK_BOOTTIME" in text


def test_what_a_scrubber_has_found_is_told(tmp_path: Path) -> None:
    """I55: reported where somebody looks."""
    (tmp_path / "b1").mkdir()
    damage = ScrubDamage(
        str(tmp_path / "b1" / "entries" / "00000001.elog"), 5000, "entries are damaged", 3, 1, 2
    )
    (tmp_path / "b1" / SCRUB_FILE).write_bytes(ScrubState(passes=2, damages={1: [damage]}).encode())
    (found,) = [each for each in embedbk.doctor(tmp_path).findings if each.subject.startswith("scrub")]
    assert not found.is_good
    assert found.value.startswith("1 damaged places known, 2 passes")
    assert "00000001.elog at offset 5000" in found.advice
