"""`embedbk audit` and `embedbk repair grace`, beside a cluster that a process has open (P11.1)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main

SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


def test_an_audit_is_asked_for_and_its_answer_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit status and lines are those of `embedbk health`, behind a look at all ledgers."""
    data = tmp_path / "data"

    def run(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--at", str(data)])
        told = capsys.readouterr()
        return code, told.out, told.err

    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        with bk.create_ledger() as writer:
            writer.add_many([b"entry %02d" % number for number in range(10)])
        code, out, _ = run("audit", "--json")
        told = json.loads(out)
        assert (code, told["is_good"], told["counted"]) == (0, True, 1)
        code, out, _ = run("repair", "grace", "3600", "--why", "a long upgrade")
        assert (code, out) == (0, "a bookie that is away counts as lost after 3600 s\n")
        code, out, _ = run("repair", "status")
        assert "a bookie counts as lost after 3600 s, by an operator's word" in out
        code, out, _ = run("repair", "grace", "default")
        assert "as each host's settings say" in out
        code, out, _ = run("repair", "status")
        assert "by an operator's word" not in out
        code, _, err = run("repair", "grace", "0.01")
        assert code == 1
        assert "grace_s=0.01: allowed are 0.1 to" in err
        with pytest.raises(SystemExit):
            run("repair", "grace", "soon")
        capsys.readouterr()
        code, out, _ = run("repair", "stop", "--why", "moving racks", "--for-s", "900")
        assert (code, out.partition(",")[0]) == (0, "repair is stopped for 900 s")
        code, out, _ = run("repair", "status")
        assert "repair was switched off until " in out and "(moving racks)" in out
        code, out, _ = run("repair", "status", "--json")
        assert json.loads(out)["stopped_why"] == "moving racks"
        run("repair", "stop", "--why", "moving racks")
        code, _, err = run("audit")
        assert code == 1
        assert "(moving racks), and the auditor with it" in err
