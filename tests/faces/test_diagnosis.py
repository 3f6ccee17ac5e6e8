"""`embedbk.doctor()`: what this machine gives, as data and as text."""

from __future__ import annotations

import json
from pathlib import Path

import embedbk


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
