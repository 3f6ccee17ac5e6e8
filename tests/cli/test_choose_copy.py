"""`embedbk ledger copies | choose-copy`: what is shown, what has to be typed, what stays written (P11.5)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import embedbk
from embedbk.cli import main
from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.copy_decision import CopyDecision, DecidedCopy, decided_path, encode_copy_decisions
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import frame_of
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.repair.copy_replacing import CopyReplacing

SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


def plant(bk: Client, bookie_id: str, ledger_id: int, entry_id: int) -> None:
    """By a word that no operator gave, and that is gone behind it."""
    copies = bk.copies_of_entry(ledger_id, entry_id).copies
    made = next(each.entry for each in copies if each.member.bookie_id == bookie_id)
    assert made is not None
    length = int.from_bytes(made[24:32], "little")
    other = encode_entry(ledger_id, entry_id, length, b"no entry")
    member = next(info.member for info in bk._runtime.bookies if info.member.bookie_id == bookie_id)
    goes = DecidedCopy(bookie_id, member.incarnation, entry_digest(made))
    word = CopyDecision(DecidedCopy("b9", bytes(16), entry_digest(other)), (goes,))
    key = decided_path(ledger_id, entry_id)
    put = Put(key, encode_copy_decisions((word,)))
    assert run_blocking(bk._runtime.transact([], [put], "planting"), "planting")
    core = CopyReplacing(member, frame_of(memoryview(other), ledger_id), entry_digest(made))
    assert run_blocking(bk._runtime.run(core, "planting"), "planting").is_done
    assert run_blocking(bk._runtime.transact([], [Delete(key)], "planting"), "planting")


def test_a_conflict_is_shown_and_ended_by_the_typed_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        with bk.create_ledger() as writer:
            writer.add_many([b"entry %02d" % number for number in range(10)])
        plant(bk, "b2", writer.ledger_id, 4)
    at, where = ["--at", str(data)], [str(writer.ledger_id), "4"]

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["ledger", *words, *at])
        told = capsys.readouterr()
        return code, told.out, told.err

    code, out, _ = run("copies", *where, "--json")
    shown = json.loads(out)
    digests = {each["bookie"]: each["digest"] for each in shown["copies"]}
    assert (code, shown["differ"], shown["decisions"]) == (1, True, [])
    assert digests["b1"] == digests["b3"] != digests["b2"]
    code, out, _ = run("copies", *where)
    assert f"b2: {digests['b2']}  b'no entry'" in out
    monkeypatch.setattr("sys.stdin", io.StringIO("b1\n"))
    code, _, err = run("choose-copy", *where, "b1", "--why", "b2 was restored")
    assert code == 1 and "type the digest of the right one" in err and "nothing was changed" in err
    code, _, err = run("choose-copy", *where, "b1", "--why", "x", "--digest", digests["b2"])
    assert code == 1 and "that is not the digest of the copy of b1" in err
    monkeypatch.setattr("sys.stdin", io.StringIO(digests["b1"] + "\n"))
    code, out, _ = run("choose-copy", *where, "b1", "--why", "b2 was restored")
    assert code == 0
    assert "the copy of b1 is right, for b2: b2 was restored" in out
    code, out, _ = run("copies", *where, "--json")
    shown = json.loads(out)
    assert (code, shown["differ"], len(shown["decisions"])) == (0, False, 1)
    assert shown["decisions"][0]["replaced"] == [{"bookie": "b2", "digest": digests["b2"]}]
    assert shown["decisions"][0]["is_done"]
    assert main(["health", *at]) == 0
    capsys.readouterr()
    code, _, err = run("choose-copy", *where, "b1", "--why", "again", "--digest", digests["b1"])
    assert code == 1 and "no copy of entry 4 differs" in err


def test_copies_that_are_alike_stand_for_what_was_published_by_the_typed_digest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P11.4, P11.5: the same two commands."""
    data = tmp_path / "data"
    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        with bk.create_ledger() as writer:
            writer.add_many([b"entry %02d" % number for number in range(10)])
        for name in ("b1", "b2", "b3"):
            plant(bk, name, writer.ledger_id, 4)
    at, where = ["--at", str(data)], [str(writer.ledger_id), "0"]
    assert main(["ledger", "copies", *where, *at]) == 1
    out = capsys.readouterr().out
    assert "entries 0 to 9 are not what the ledger's writer published" in out
    assert main(["ledger", "copies", *where, "--json", *at]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert (shown["differ"], shown["unlike"]) == (False, [0, 9])
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    assert main(["ledger", "choose-copy", *where, "b1", "--why", "w", *at]) == 1
    assert "what its writer published goes for ever" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO(shown["copies"][0]["digest"] + "\n"))
    assert main(["ledger", "choose-copy", *where, "b1", "--why", "we take it", *at]) == 0
    assert "the copy of b1 stands for what was published: we take it" in capsys.readouterr().out
    assert main(["ledger", "copies", *where, *at]) == 0
    assert main(["health", *at]) == 0
