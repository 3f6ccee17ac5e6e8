"""`embedbk log create | settings | truncate | roll | seal | cursors | pins`, beside an application and by processes."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import embedbk
from embedbk import Roll
from tests.cli.test_log_commands import SETTINGS, Run, bk, data, run

__all__ = ["bk", "data", "run"]  # Fixtures.


def filled(bk: embedbk.Client, ledgers: int = 4) -> None:
    """Two entries of one byte in each ledger."""
    with bk.log("orders").writer(roll=Roll(bytes=None)) as orders:
        for number in range(ledgers):
            orders.append_many([b"%d" % (2 * number), b"%d" % (2 * number + 1)])
            if number + 1 < ledgers:
                orders.roll()


def told(run: Run, *arguments: object, code: int = 0) -> dict[str, object]:
    ended, out, err = run(*arguments, "--json")
    assert ended == code, err
    read: dict[str, object] = json.loads(out)
    return read


def test_a_log_is_made_with_settings_that_are_shown_and_changed(
    run: Run, data: Path, bk: embedbk.Client
) -> None:
    at = ("--at", data)
    made = told(
        run,
        "log",
        "create",
        "orders",
        *at,
        "--ensemble-size",
        1,
        "--roll-entries",
        5,
        "--property",
        "team=billing",
    )
    assert (made["ensemble_size"], made["roll"]) == (1, {"bytes": None, "entries": 5, "age_s": None})
    assert made["properties"] == {"team": "billing"}
    assert run("log", "create", "orders", *at)[0] == 1
    assert run("log", "list", *at)[1] == "orders\n"
    changed = told(
        run, "log", "settings", "orders", *at, "--roll-age-s", 2.5, "--retention-bytes", 10, "--usual", "ensemble-size",
        "--usual", "write-quorum", "--usual", "ack-quorum", "--property", "a=b=c", "--compression", "zstd",
    )  # fmt: skip
    assert changed["roll"] == {"bytes": None, "entries": 5, "age_s": 2.5}
    assert (changed["ensemble_size"], changed["retention_bytes"], changed["compression"]) == (
        None,
        10,
        "zstd",
    )
    assert changed["properties"] == {"team": "billing", "a": "b=c"}
    assert told(run, "log", "settings", "orders", *at) == changed
    shown = run("log", "settings", "orders", *at)[1]
    assert (
        "retention-bytes: 10" in shown
        and "roll: entries 5, age_s 2.5" in shown
        and "digest: as usual" in shown
    )
    for refused in (
        ("--ensemble-size", 0),
        ("--property", "x"),
        ("--durability", "never"),
        ("--compression", "lz4"),
    ):
        assert run("log", "settings", "orders", *at, *refused)[0] == 1
    assert told(run, "log", "settings", "orders", *at) == changed
    assert run("log", "settings", "another", *at)[0] == 1


def test_the_front_of_a_log_goes_and_what_holds_it_is_said(run: Run, data: Path, bk: embedbk.Client) -> None:
    filled(bk)
    at = ("--at", data)
    assert told(run, "log", "cursors", "orders", "billing", "--set", 5, *at)["cursors"]
    pinned = told(run, "log", "pins", "orders", "copy", "--from", 3, *at)["pins"]
    assert isinstance(pinned, list) and (pinned[0]["name"], pinned[0]["offset"]) == ("copy", 3)
    done = told(run, "log", "truncate", "orders", "--before", 6, *at)
    assert (done["began"], done["reached"], done["ledgers"], done["pin"]) == (0, 2, 1, "copy")
    nothing = told(run, "log", "truncate", "orders", "--before", 6, *at, code=1)
    assert (nothing["reached"], nothing["ledgers"], nothing["held_by"]) == (2, 0, "pin")
    assert run("log", "pins", "orders", "copy", "--remove", *at)[:2] == (0, "pin copy is taken away\n")
    assert run("log", "pins", "orders", "copy", "--remove", *at)[0] == 1
    assert run("log", "pins", "orders", *at)[1] == "no pin\n"
    assert told(run, "log", "truncate", "orders", "--before", 6, *at)["cursor"] == "billing"
    text = run("log", "truncate", "orders", "--before", 6, "--force", *at)[1]
    assert (
        "begins at offset 6 now: 1 ledgers went" in text and "cursor billing holds nothing any more" in text
    )
    assert run("log", "truncate", "orders", *at)[0] == 1
    assert [entry.offset for entry in bk.log("orders").read()] == [6, 7]


def test_what_was_truncated_is_put_back_by_a_place(run: Run, data: Path, bk: embedbk.Client) -> None:
    """P8.15: by an offset or a position; a time of what is gone is no place."""
    filled(bk)
    at = ("--at", data)
    assert told(run, "log", "truncate", "orders", "--before", 6, *at)["reached"] == 6
    back = told(run, "log", "undelete", "orders", "--from", 3, *at)
    assert (back["asked"], back["began"], back["reached"], back["ledgers"], back["why"]) == (3, 6, 2, 2, "")
    text = run("log", "undelete", "orders", "--from", 0, *at)[1]
    assert text == "log orders begins at offset 0 now: 1 ledgers are back\n"
    assert run("log", "check", *at)[0] == 0
    for refused in (("--from", "2026-11-26T08:30:00Z"), ("--from", 1, "--as", "bills")):
        code, _, err = run("log", "undelete", "orders", *refused, *at)
        assert code == 1 and "allowed is LEDGER:ENTRY or an OFFSET" in err


def test_cursors_are_listed_put_and_deleted(run: Run, data: Path, bk: embedbk.Client) -> None:
    filled(bk)
    at = ("--at", data)
    assert run("log", "cursors", "orders", *at)[1] == "no cursor\n"
    run("log", "cursors", "orders", "audit", "--set", 3, "--no-hold", *at)
    with bk.log("orders").cursor("billing").consume(idle_s=0.2) as entries:
        for entry in entries:
            if entry.offset == 6:
                break
        assert entries.commit()
        lines = run("log", "cursors", "orders", *at)[1].splitlines()
    since = r"(, \d+\.\d s)?"  # How old the first of them is; it may have no time.
    assert re.fullmatch(rf"audit: offset 3, 5 entries, 5 bytes{since} behind, does not hold", lines[0])
    assert re.match(rf"billing: offset 6, 2 entries, 2 bytes{since} behind, holds, consumed by ", lines[1])
    one = told(run, "log", "cursors", "orders", "billing", *at)["cursors"]
    assert isinstance(one, list) and (one[0]["offset"], one[0]["consumer"]) == (6, "")
    beyond = run("log", "cursors", "orders", "audit", "--set", 99, *at)[1].splitlines()
    assert "0 entries" in beyond[0] and "that is 91 entries beyond what the log has now" in beyond[1]
    assert "beyond" not in run("log", "cursors", "orders", "audit", "--set", 8, *at)[1]
    assert run("log", "cursors", "orders", "audit", "--delete", *at)[:2] == (0, "cursor audit is deleted\n")
    assert run("log", "cursors", "orders", "audit", "--delete", *at)[0] == 1
    for refused in (("audit",), ("audit", "--set", "x"), ("--delete",), ("b", "--delete", "--set", 1)):
        code, _, said = run("log", "cursors", "orders", *refused, *at)
        assert code == 1 and said


def test_a_log_is_sealed_when_it_is_meant_and_shows_it(run: Run, data: Path, bk: embedbk.Client) -> None:
    filled(bk)
    at = ("--at", data)
    code, _, said = run("log", "seal", "orders", "moved to invoices", *at)
    assert code == 1 and "--yes" in said and bk.log("orders").sealed() is None
    done = told(run, "log", "seal", "orders", "moved to invoices", "--yes", *at)
    assert (done["log"], done["reason"]) == ("orders", "moved to invoices")
    assert "sealed for ever by" in run("log", "show", "orders", *at)[1]
    assert told(run, "log", "show", "orders", *at)["sealed"] == "moved to invoices"
    code, _, said = run("log", "append", "orders", "late", *at)
    assert code == 1 and "sealed for ever: moved to invoices" in said
    assert run("log", "tail", "orders", "--from", 6, *at)[:2] == (0, "6\n7\n"), "a tail without a limit ends"


def test_rolling_asks_before_it_fences(run: Run, data: Path, bk: embedbk.Client) -> None:
    """P8.7: "Nobody else rolls a living owner's log"; one that its writer left open is closed."""
    at = ("--at", data)
    orders = bk.log("orders").writer()
    orders.append(b"0")
    code, _, said = run("log", "roll", "orders", *at)
    assert code == 1 and "--take-over" in said
    orders.append(b"1")
    open_one = orders.ledger_id
    assert told(run, "log", "roll", "orders", "--take-over", *at) == {
        "log": "orders",
        "closed": [open_one],
        "end": 2,
    }
    with pytest.raises(embedbk.LedgerFenced):
        orders.append(b"2")
    assert told(run, "log", "roll", "orders", *at)["closed"] == []
    orders.release()


TRUNCATING = """
import sys, embedbk
with embedbk.open(sys.argv[1]) as bk:
    log = bk.log("orders")
    for before in range(2, 200, 2):
        done = log.truncate(before, may_do_nothing=True)
        print(done.reached, flush=True)
"""


def test_truncation_by_processes_one_of_which_is_killed(tmp_path: Path) -> None:
    """P8.3: list first, then the ledgers; what a crash leaves between is deleted by the next one, and a reader that
    stands in front of it is told where the log begins."""
    with embedbk.open(tmp_path / "data", bookies=1, listen="tcp://127.0.0.1:0", settings=SETTINGS) as bk:
        filled(bk, 60)
        log = bk.log("orders")
        before = {each.ledger_id for each in log.segments()}
        reader = iter(log.read(90))
        assert next(reader).offset == 90
        command = [sys.executable, "-c", TRUNCATING, bk.url]
        first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert first.stdout is not None
        reached = [int(first.stdout.readline()) for _ in range(5)]
        first.send_signal(signal.SIGKILL)
        first.wait()
        first.stdout.close()
        assert reached == [2, 4, 6, 8, 10]
        second = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert int(second.stdout.split()[-1]) == 118
        for gone in (reader, log.read(100)):
            with pytest.raises(embedbk.Truncated) as truncated:
                list(gone)
            assert truncated.value.first_offset == 118
        assert [bytes(entry) for entry in log.read()] == [b"118", b"119"]
        left = {each.ledger_id for each in log.segments()}
        assert (
            set(bk.ledgers()) == left and {each.ledger_id for each in bk.deleted_ledgers()} == before - left
        )
