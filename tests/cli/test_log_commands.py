"""`embedbk log` and `embedbk ledger`, beside a cluster that runs and on a directory that nobody has open."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cli import main
from embedbk.client import knocking
from embedbk.client.knocking import knock
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Delete

Run = Callable[..., tuple[int, str, str]]
SETTINGS = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120.0)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(*arguments, given=b""): exit status, standard output, standard error."""

    def run(*arguments: object, given: bytes = b"") -> tuple[int, str, str]:
        capfdbinary.readouterr()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = main([str(each) for each in arguments])
        out, err = capfdbinary.readouterr()
        return code, out.decode(errors="replace"), err.decode()

    return run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def bk(data: Path) -> Iterator[embedbk.Client]:
    with embedbk.open(data, bookies=1, settings=SETTINGS) as opened:
        yield opened


def running(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_log_is_written_and_read_beside_the_application_that_has_the_directory(
    run: Run, data: Path, bk: embedbk.Client
) -> None:
    """The directory is reached through its process; nobody had to listen before."""
    with pytest.raises(embedbk.UsageError, match="this process only"):
        _ = bk.url
    with bk.log("orders").writer() as orders:
        orders.append_many([b"first", b"second"])
        assert run("log", "read", "orders", "--at", data) == (0, "first\nsecond\n", "")
        assert run("log", "list", "--at", data)[:2] == (0, "orders\n")
        code, told, _ = run("log", "show", "orders", "--at", data, "--json")
        assert code == 0 and json.loads(told)["ledgers"][0]["state"] == "OPEN"
        orders.append(b"third")  # Nothing stopped meanwhile.
    assert run("log", "append", "orders", "fourth", "--at", data)[:2] == (
        0,
        "1 entries appended, offsets 3 to 3\n",
    )
    assert [bytes(entry) for entry in bk.log("orders").read()] == [b"first", b"second", b"third", b"fourth"]
    assert run("quorum", "status", "--at", data)[0] == 0


def sockets(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_socket()]


def test_the_door_is_its_users_own(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """T10: the system says who knocks, and nobody else is told anything; it goes with its process."""
    with embedbk.open(data, bookies=1, settings=SETTINGS):
        monkeypatch.setattr(knocking, "ipc_users", lambda: frozenset({os.geteuid() + 1}))
        with pytest.raises(embedbk.StorageError, match="gave no answer"):
            knock(data, 60)
        monkeypatch.undo()
        assert knock(data, 60) == knock(data, 60)
        assert knock(data, 60).startswith("embedbk://ipc:@embedbk-") and not sockets(data)
    with pytest.raises(embedbk.StorageError, match="no process that has"):
        knock(data, 60)


def test_whoever_else_answers_is_not_believed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have the name first: then there is no door, and nobody is led astray."""
    data.mkdir()
    with socket.socket(socket.AF_UNIX) as squatter:
        squatter.bind("\0" + knocking._name(data))
        squatter.listen()
        with embedbk.open(data, bookies=1, settings=SETTINGS) as bk, bk.log("orders").writer() as orders:
            orders.append(b"first")  # Everything else works.

        def answer() -> None:
            with squatter.accept()[0] as link:
                link.sendall(b"embedbk://127.0.0.1:1\n")

        told = threading.Thread(target=answer)
        told.start()
        monkeypatch.setattr(knocking, "_user_of", lambda link: 4711)
        with pytest.raises(embedbk.StorageError, match="a process of user 4711 answers"):
            knock(data, 60)
        told.join(60)


def test_a_directory_that_is_open_can_be_copied_and_the_copy_is_another(data: Path, tmp_path: Path) -> None:
    """`shutil.copytree` fails at a socket; and whoever asks at a copy must not reach the original."""
    with embedbk.open(data, bookies=1, settings=SETTINGS) as bk:
        knock(data, 60)
        with bk.log("orders").writer() as orders:
            orders.append(b"first")
        shutil.copytree(data, tmp_path / "copy")
        with pytest.raises(embedbk.StorageError, match="no process that has"):
            knock(tmp_path / "copy", 60)


def test_a_directory_of_any_length_has_a_door(tmp_path: Path, run: Run) -> None:
    """A socket's path has 107 bytes at most; a directory's has more."""
    deep = tmp_path / ("a" * 100) / ("b" * 100)
    deep.mkdir(parents=True)
    with embedbk.open(deep / "data", bookies=1, settings=SETTINGS) as bk:
        with bk.log("orders").writer() as orders:
            orders.append(b"far")
        assert run("log", "read", "orders", "--at", deep / "data")[:2] == (0, "far\n")


def test_whoever_listens_already_is_named_by_the_door(data: Path) -> None:
    with embedbk.open(data, bookies=1, settings=SETTINGS) as bk:
        first = knock(data, 60)
        url = bk.listen()
        assert knock(data, 60) == bk.url == url != first
        with embedbk.open(first) as other:  # Whoever had the first address keeps it.
            assert other.ledgers() == []
    with embedbk.open(data, settings=SETTINGS, listen="tcp://127.0.0.1:0") as bk:
        assert knock(data, 60) == bk.url


def test_knocks_that_ask_for_nothing_keep_nobody_waiting(data: Path, bk: embedbk.Client) -> None:
    """Whoever connects and leaves, says something, or never reads, is no trouble."""
    links = []
    for number in range(200):
        link = socket.socket(socket.AF_UNIX)
        link.setblocking(False)
        try:
            link.connect("\0" + knocking._name(data))
        except BlockingIOError:  # So many wait there already.
            link.close()
            continue
        if number % 2:
            link.close()
        else:
            links.append(link)
            with contextlib.suppress(OSError):  # It was answered already.
                link.send(b"\0" * 65_536)
    assert knock(data, 60).startswith("embedbk://ipc:")
    with bk.log("orders").writer() as orders:
        orders.append(b"first")
    for link in links:
        link.close()


def test_who_knocks_when_no_descriptor_is_left_is_answered_and_so_is_the_next(tmp_path: Path) -> None:
    """What the system refuses for a while closes no door, and a knock that waits ends no wait of the loop again and
    again: one descriptor is kept for it."""
    asked: list[str] = []

    def listen(endpoint: str) -> list[str]:
        if len(asked) < 1:
            asked.append(endpoint)
            raise OSError(errno.EMFILE, "Too many open files")
        return [endpoint]

    door = knocking.Door(tmp_path, listen)
    bounds, held = resource.getrlimit(resource.RLIMIT_NOFILE), list[int]()
    open_now = len(os.listdir("/proc/self/fd"))
    first, second = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    try:
        first.connect("\0" + knocking._name(tmp_path))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 64, bounds[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        door.step(0)
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
        assert first.recv(4096) == b"it cannot listen: [Errno 24] Too many open files\n"
        second.connect("\0" + knocking._name(tmp_path))
        door.step(1)
        assert second.recv(4096).startswith(b"embedbk://ipc:")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, bounds)
        door.close()
        for each in held:
            os.close(each)
        first.close()
        second.close()
    assert len(os.listdir("/proc/self/fd")) <= open_now - 2


def test_what_is_read_as_json_is_appended_from_json(run: Run, data: Path, bk: embedbk.Client) -> None:
    """A log is copied through a pipe with the keys, timestamps, headers and batches of its records."""
    records = [
        embedbk.EntryRecord(b"text", b"key", 0, {"trace": b"\xff\x00", "a": b"b"}),
        embedbk.EntryRecord(b"\xff", b"\xfe"),
        embedbk.EntryRecord("\u00e4\n\U0001f600".encode()),
    ]
    with bk.log("from").writer() as writer:
        writer.append_many(records)
        writer.append_batch(records)
    code, told, _ = run("log", "read", "from", "--at", data, "--json")
    lines = [json.loads(line) for line in told.splitlines()]
    assert (code, lines[1]) == (
        0,
        {"offset": 1, "ledger_id": 1, "entry_id": 1, "base64": "/w==", "key": {"base64": "/g=="}},
    )
    assert lines[0]["headers"] == {"a": "b", "trace": {"base64": "/wA="}}
    assert [line.get("records") is not None for line in lines] == [False, False, False, True]
    copied = run("log", "append", "to", "--at", data, "--from-json", given=told.encode())
    assert copied[:2] == (0, "4 entries appended, offsets 0 to 3\n")
    assert [entry.records for entry in bk.log("to").read()] == [*([each] for each in records), records]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"no json", "is no JSON"),
        (b"\xff", "is no JSON"),
        (b"[]", "is no JSON object"),
        (b"{}", "either value or base64"),
        (b'{"value": "", "base64": ""}', "either value or base64"),
        (b'{"value": 1}', "bytes are a string"),
        (b'{"base64": "/w="}', "is no base64"),
        (b'{"base64": "\\ud800"}', "is no base64"),
        (b'{"value": "\\ud800"}', "is no text in UTF-8"),
        (b'{"value": "", "colour": "red"}', "'colour' is nothing that a record has"),
        (b'{"value": "", "key": {"base64": "/w==", "a": 1}}', "bytes are a string"),
        (b'{"value": "", "headers": []}', "headers is an object"),
        (b'{"value": "", "headers": {" ": ""}}', "names no header"),
        (b'{"value": "", "timestamp": "now"}', "a whole number of ms"),
        (b'{"value": "", "timestamp": 1e300}', "a whole number of ms"),
        (b'{"records": [1]}', "records is a list of objects"),
        (b'{"records": [], "value": ""}', "nothing stands beside it"),
        (b'{"records": []}', "at least one record"),
        (b"[" * 100_000, "is no JSON"),
    ],
)
def test_a_line_that_is_no_entry_is_refused_and_those_before_it_are_appended(
    run: Run, data: Path, bk: embedbk.Client, line: bytes, said: str
) -> None:
    code, _, err = run("log", "append", "to", "--at", data, "--from-json", given=b'{"value": "a"}\n' + line)
    assert code == 1 and said in err and "the 1 before it are appended" in err
    assert [bytes(entry) for entry in bk.log("to").read()] == [b"a"]


def test_a_directory_that_no_process_has_is_opened_by_the_command(
    run: Run, data: Path, bk: embedbk.Client, tmp_path: Path
) -> None:
    bk.close()
    assert run("log", "append", "orders", "--at", data, given=b"one\ntwo\r\n\nno end of line")[:2] == (
        0,
        "4 entries appended, offsets 0 to 3\n",
    )
    code, told, _ = run("log", "read", "orders", "--at", data, "--json")
    assert [json.loads(line)["value"] for line in told.splitlines()] == ["one", "two\r", "", "no end of line"]
    assert code == 0
    assert run("log", "append", "orders", "--at", data, "--whole", given=b"\xff\n")[0] == 0
    _, told, _ = run("log", "read", "orders", "--from", 4, "--at", data, "--json")
    assert json.loads(told) == {"offset": 4, "ledger_id": 2, "entry_id": 0, "base64": "/wo="}
    for wrong in (tmp_path / "missing", tmp_path):
        code, _, err = run("log", "list", "--at", wrong)
        assert code == 1 and "no metadata member" in err
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_a_killed_process_leaves_no_door(run: Run, data: Path) -> None:
    code = (
        "import embedbk, sys\n"
        "bk = embedbk.open(sys.argv[1], bookies=1)\n"
        "with bk.log('orders').writer() as writer: writer.append(b'kept')\n"
        "print('up', flush=True)\nsys.stdin.read()\n"
    )
    killed = running(code, data)
    try:
        assert killed.stdout is not None and killed.stdout.readline() == "up\n"
        assert run("log", "read", "orders", "--at", data)[:2] == (0, "kept\n")
    finally:
        killed.kill()
        killed.communicate()
    code_, told, err = run("log", "read", "orders", "--at", data)
    assert (code_, told) == (0, "kept\n"), err
    with pytest.raises(embedbk.StorageError, match="no process that has"):
        knock(data, 60)


def test_appending_beside_a_writer_asks_before_it_fences(run: Run, data: Path, bk: embedbk.Client) -> None:
    """P8.1: whoever takes a log over fences its writer."""
    orders = bk.log("orders").writer()
    orders.append(b"first")
    code, _, err = run("log", "append", "orders", "second", "--at", data)
    assert code == 1 and "may be written now" in err and "--take-over" in err
    orders.append(b"second")
    assert run("log", "append", "orders", "third", "--at", data, "--take-over")[0] == 0
    with pytest.raises(embedbk.LedgerFenced):
        orders.append(b"late")
    orders.release()
    assert run("log", "read", "orders", "--at", data)[1] == "first\nsecond\nthird\n"


@pytest.mark.parametrize("is_json", [False, True])
def test_an_entry_that_cannot_be_appended_is_numbered(
    is_json: bool, run: Run, data: Path, bk: embedbk.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = b"fits\n" + b"x" * (5 << 20) + b"\nnever\n"
    extra = ["--json"] if is_json else []
    code, out, err = run("log", "append", "orders", "--at", data, *extra, given=given)
    assert code == 1 and "entry 2" in err and "the 1 before it are appended" in err
    assert ("entry 2" in out) is is_json
    assert [bytes(entry) for entry in bk.log("orders").read()] == [b"fits"]


def test_what_a_log_has_no_room_for_is_numbered(run: Run, data: Path, bk: embedbk.Client) -> None:
    """Nobody was told how many were appended before it, and who gave all of them again appended those twice."""
    bk.create_log("small", bytes_max=6_000)
    given = b"".join(b"%d " % number + b"x" * 1_000 + b"\n" for number in range(20))
    code, _, err = run("log", "append", "small", "--at", data, given=given)
    there = [bytes(entry) for entry in bk.log("small").read()]
    assert 0 < len(there) < 20 and there == given.split(b"\n")[: len(there)]
    assert code == 1 and f"entry {len(there) + 1}: " in err
    assert f"the {len(there)} before it are appended" in err


def test_entries_are_shown_from_place_to_place(run: Run, data: Path, bk: embedbk.Client) -> None:
    for _ in range(2):
        with bk.log("orders").writer() as orders:
            orders.append_many([b"a", b"b", b"c"])
    first, second = (segment.ledger_id for segment in bk.log("orders").segments())
    at = ("orders", "--at", data)
    assert run("log", "read", *at, "--from", 1, "--to", 5, "--raw")[1] == "bcab"
    told = run("log", "read", *at, "--from", f"{second}:0", "--to", f"{second}:2", "--places")[1]
    assert told == f"3 {second}:0 a\n4 {second}:1 b\n"
    assert run("ledger", "read", first, "--at", data, "--from", 1, "--to", 2)[1] == "b\n"
    assert run("ledger", "read", first, "--at", data, "--from", 3)[:2] == (0, "")
    for place in ("x", "-1", "1:2:3", "1:", "9" * 19, "１"):
        code, _, err = run("log", "read", *at, f"--from={place}")
        assert code == 1 and "is no place of a log" in err, place
    code, _, err = run("log", "read", *at, "--from", "77:0")
    assert code == 1 and "77" in err


def test_entries_are_shown_from_time_to_time(run: Run, data: Path, bk: embedbk.Client) -> None:
    """P8.11: "the first entry at or behind a time is found by halving", wherever a place is asked for."""
    log = bk.log("orders")
    with log.writer() as writer:
        writer.append(b"0")
        began = log.time_at(0)
        while log.time_at(log.end() - 1) == began:  # The clock has a next ms soon.
            writer.append(b"%d" % log.end())
    last = log.end() - 1
    time = datetime.fromtimestamp(log.time_at(last) / 1000, UTC)  # type: ignore[operator]
    for text in (time.isoformat(), time.astimezone(timezone(timedelta(hours=2))).isoformat()):
        assert run("log", "read", "orders", "--from", text, "--at", data)[:2] == (0, f"{last}\n")
        told = run("log", "read", "orders", "--to", text, "--at", data)[1].splitlines()
        assert told == [str(offset) for offset in range(last)]
    assert (
        run("log", "tail", "orders", "--from", time.isoformat(), "--idle-s", 0, "--at", data)[1]
        == f"{last}\n"
    )
    run("log", "cursors", "orders", "billing", "--set", time.isoformat(), "--at", data)
    assert log.cursor("billing").get().offset == last
    late = (time + timedelta(days=1)).isoformat()
    assert run("log", "read", "orders", "--from", late, "--at", data)[:2] == (0, "")
    code, _, err = run("log", "read", "orders", "--from", "2026-11-26T08:30:00", "--at", data)
    assert (code, "says no time zone" in err, "08:30:00Z" in err) == (1, True, True)
    code, _, err = run("log", "read", "orders", "--from", "yesterday", "--at", data)
    assert (code, "is no place of a log" in err) == (1, True)


def test_a_check_says_what_does_not_fit(run: Run, data: Path, bk: embedbk.Client) -> None:
    assert run("log", "check", "--at", data) == (0, "no log\n", "")
    with bk.log("orders").writer() as orders:
        orders.append(b"a")
    with bk.log("orders").writer() as orders:
        orders.append(b"b")
    assert run("log", "check", "--at", data) == (0, "log orders: sound\n", "")
    (first, _) = bk.log("orders").segments()
    change = bk._runtime.transact([], [Delete(ledger_key_path(first.ledger_id))], "a test")
    run_blocking(change, "a test")
    code, out, _ = run("log", "check", "orders", "--at", data)
    assert code == 1 and out.startswith(
        f"log orders: 1 findings\n  ledger {first.ledger_id}: the list names it"
    )
    code, out, _ = run("log", "check", "--at", data, "--json")
    assert code == 1 and [each["ledger_id"] for each in json.loads(out)["logs"]["orders"]] == [
        first.ledger_id
    ]
    assert run("log", "check", "nothing", "--at", data)[0] == 1


def test_one_bookies_copy_is_shown_with_what_it_lacks(run: Run, data: Path) -> None:
    """Of two copies on three bookies each has two of three entries; 1 says that something is not there."""
    with embedbk.open(data, bookies=3, settings=SETTINGS) as bk:
        with bk.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2) as writer:
            for each in (b"a", b"b", b"c"):
                writer.add(each)
        ledger_id = writer.ledger_id
        first, *_ = (name for name, _ in bk.ledger_metadata(ledger_id).fragments[0].ensemble)
        at = ("ledger", "read", ledger_id, "--at", data, "--bookie", first)
        assert run(*at) == (1, "a\nc\n", f"embedbk: {first} has not entries 1 to 1\n")
        assert run(*at, "--from", 2) == (0, "c\n", "")
        code, told, _ = run(*at, "--json")
        lines = [json.loads(line) for line in told.splitlines()]
        assert code == 1 and [line.get("entry_id") for line in lines] == [0, 2, None]
        assert lines[-1] == {"bookie": first, "absent": [1, 1]}
        code, _, err = run("ledger", "read", ledger_id, "--at", data, "--bookie", "b9")
        assert code == 1 and "no bookie of that name is there now" in err
        code, _, err = run(*at, "--from", -1)
        assert code == 1 and "the first entry of a ledger is 0" in err


def test_a_tail_ends_when_nothing_comes(run: Run, data: Path, bk: embedbk.Client) -> None:
    with bk.log("orders").writer() as orders:
        orders.append_many([b"a", b"b"])
        assert run("log", "tail", "orders", "--at", data, "--from", 1, "--idle-s", 0)[:2] == (0, "b\n")


# Who began these tests may have them ignore SIGINT, as a shell does for its jobs; a terminal does not.
TAIL = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from embedbk.cli import main; sys.exit(main(sys.argv[1:]))"
)


def test_a_tail_is_interrupted_and_pipes_close_without_a_word(data: Path, bk: embedbk.Client) -> None:
    """As cat and tail do: 130 behind SIGINT, 141 when nobody reads any more, and nothing on standard error."""
    with bk.log("orders").writer() as orders:
        orders.append_many([b"x" * 1000] * 2000)
        tail = running(TAIL, "log", "tail", "orders", "--from", "0", "--at", data)
        try:
            assert tail.stdout is not None
            assert tail.stdout.readline() == "x" * 1000 + "\n"
            os.kill(tail.pid, signal.SIGINT)
            _, err = tail.communicate(timeout=300)
            assert (tail.returncode, err) == (130, "")
        finally:
            if tail.poll() is None:
                tail.kill()
                tail.communicate()
        read = running(TAIL, "log", "read", "orders", "--at", data)
        try:
            assert read.stdout is not None and read.stderr is not None
            assert read.stdout.readline() == "x" * 1000 + "\n"
            read.stdout.close()
            assert (read.wait(300), read.stderr.read()) == (141, "")
        finally:
            if read.poll() is None:
                read.kill()
            read.wait()
            assert read.stdin is not None and read.stderr is not None
            read.stdin.close()
            read.stderr.close()


def test_an_append_is_interrupted_behind_what_was_typed(data: Path, bk: embedbk.Client) -> None:
    """What stands in the log is said, and the log is closed: else the next append would be refused."""
    bk.create_log("orders")
    append = running(TAIL, "log", "append", "orders", "--at", data)
    try:
        assert append.stdin is not None
        append.stdin.write("a\nb\n")
        append.stdin.flush()
        tail = bk.log("orders").tail(0, idle_s=300)
        assert [bytes(next(tail)), bytes(next(tail))] == [b"a", b"b"]
        os.kill(append.pid, signal.SIGINT)
        out, err = append.communicate(timeout=300)
        assert (append.returncode, out) == (130, "interrupted: 2 entries appended, offsets 0 to 1\n"), err
    finally:
        if append.poll() is None:
            append.kill()
            append.communicate()
    assert bk.log("orders").segments()[-1].is_closed


COMMAND = "import sys; from embedbk.cli import main; sys.exit(main(sys.argv[1:]))"


def test_what_cannot_be_written_is_said_in_a_sentence(data: Path, bk: embedbk.Client) -> None:
    bk.create_log("orders")
    command = [sys.executable, "-c", COMMAND, "log", "list", "--at", str(data)]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    said = b"embedbk log: the system refuses: [Errno 28] No space left on device\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_a_command_without_standard_streams_does_its_work(data: Path, bk: embedbk.Client) -> None:
    """No file that it opens gets the number of one, so nothing is written into it that is meant for people; and a log
    whose lines are to come from nowhere is not left open."""
    for given in (["x"], []):
        script = 'exec "$0" -c "$@" <&- >&- 2>&-'
        command = [
            "sh",
            "-c",
            script,
            sys.executable,
            COMMAND,
            "log",
            "append",
            "orders",
            *given,
            "--at",
            str(data),
        ]
        assert subprocess.run(command, check=False).returncode == 0
    log = bk.log("orders")
    assert [bytes(entry) for entry in log.read()] == [b"x"]
    assert all(each.is_closed for each in log.segments())


def test_what_goes_has_to_be_meant(run: Run, data: Path, bk: embedbk.Client) -> None:
    with bk.log("orders").writer() as orders:
        orders.append(b"a")
    code, _, err = run("log", "delete", "orders", "--at", data)
    assert code == 1 and "would delete log 'orders' with its 1 ledgers" in err
    assert bk.logs() == ["orders"]
    assert run("log", "delete", "orders", "--yes", "--at", data)[0] == 0
    assert bk.logs() == [] and run("log", "list", "--at", data)[1] == "no log\n"
    (deleted,) = json.loads(run("log", "deleted", "--json", "--at", data)[1])["logs"]
    assert deleted["name"] == "orders" and deleted["log_id"] in run("log", "deleted", "--at", data)[1]
    back = json.loads(run("log", "undelete", "orders", "--as", "bills", "--json", "--at", data)[1])
    assert back == {"log": "bills", "log_id": deleted["log_id"]}
    assert run("log", "rename", "bills", "orders", "--at", data) == (
        0,
        "log bills is called orders now\n",
        "",
    )
    assert run("log", "read", "orders", "--at", data)[1] == "a\n"
    assert run("log", "deleted", "--at", data)[1] == "no deleted log\n"
    with bk.create_ledger() as alone:
        alone.add(b"a")
    ledger_id = alone.ledger_id
    code, _, err = run("ledger", "delete", ledger_id, "--at", data)
    assert code == 1 and f"would delete: ledger {ledger_id}: CLOSED" in err
    assert run("ledger", "delete", ledger_id, "--yes", "--at", data)[0] == 0
    assert json.loads(run("ledger", "deleted", "--json", "--at", data)[1]) == {"deleted": [ledger_id]}
    assert run("ledger", "undelete", ledger_id, "--at", data)[0] == 0


def test_a_ledger_is_shown_recovered_and_explained(
    run: Run, data: Path, bk: embedbk.Client, tmp_path: Path
) -> None:
    (tmp_path / "password").write_bytes(b"secret\n")
    writer = bk.create_ledger(password=b"secret")
    writer.add(b"a")
    ledger, with_password = (
        str(writer.ledger_id),
        ("--at", data, "--password-file", tmp_path / "password"),
    )
    assert "OPEN" in run("ledger", "explain", ledger, "--at", data)[1]
    code, _, err = run("ledger", "recover", ledger, "--at", data)
    assert code == 1 and "password" in err
    shown: dict[str, Any] = json.loads(run("ledger", "recover", ledger, *with_password, "--json")[1])
    assert (shown["state"], shown["last_entry"], shown["length"]) == ("CLOSED", 0, 1)
    assert shown["fragments"] == [{"first_entry": 0, "ensemble": ["b1"]}]
    told = run("ledger", "show", ledger, *with_password)[1]
    assert told == f"ledger {ledger}: CLOSED, last entry 0, 1 bytes\n  E 1 Qw 1 Qa 1\n  from entry 0 on: b1\n"
    assert run("ledger", "list", "--at", data)[1] == f"{ledger}\n"
    with pytest.raises(embedbk.LedgerFenced):
        writer.add(b"late")
    writer.release()
    code, _, err = run("ledger", "show", ledger, "--at", data, "--password-file", tmp_path / "none")
    assert code == 1 and "cannot be read" in err
    code, _, err = run("ledger", "show", 4711, "--at", data)
    assert code == 1 and "4711" in err


def test_names_are_listed_by_what_they_begin_with(bk: embedbk.Client, run: Run, data: Path) -> None:
    for name in ("orders", "orders.eu", "paid"):
        bk.log(name).writer().close()
    assert bk.logs() == ["orders", "orders.eu", "paid"] and bk.logs("orders.") == ["orders.eu"]
    assert bk.logs("none") == []
    assert run("log", "list", "o", "--at", data)[1] == "orders\norders.eu\n"
    for prefix in ("orders/", "/", 7, "é"):
        with pytest.raises(embedbk.UsageError, match="log name"):
            bk.logs(prefix)  # type: ignore[arg-type]


def test_the_cluster_may_stand_in_the_environment(
    run: Run, data: Path, bk: embedbk.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, err = run("log", "list")
    assert code == 1 and "EMBEDBK_CLUSTER" in err
    monkeypatch.setenv("EMBEDBK_CLUSTER", str(data))
    assert run("log", "list")[:2] == (0, "no log\n")
