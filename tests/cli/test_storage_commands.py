"""The commands that read what is stored: what they print, their exit codes, and what they say of paths that make no
sense."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cli import main
from embedbk.storage import directory_discovery
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.identity import open_identity
from embedbk.storage.read_only_marker import read_only_reason
from tests.storage.log_places import places_in
from tests.storage.small_bookie import TOKEN, make
from tests.storage.stored_entries import make_frame

PAGE = (Path(directory_discovery.__file__).parent / "CHECKING.md").read_text()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cluster of three bookies that was used and closed."""
    root = tmp_path_factory.mktemp("cluster") / "data"
    with embedbk.open(root, bookies=3) as bk, bk.log("orders").writer() as orders:
        orders.append_many([b"entry %d" % number for number in range(300)])
    return root


@pytest.fixture
def bookie(tmp_path: Path) -> Path:
    """A bookie's directory on the real disk, with all that `small_bookie` makes."""
    parts = {part: tmp_path / "b1" / part for part in ("journal", "entries")}
    make_bookie(parts)
    return tmp_path / "b1"


def make_bookie(parts: dict[str, Path]) -> None:
    identity = open_identity(parts, role="bookie", node_id="b1", cluster_token=TOKEN)
    identity.close()
    for path, content in make(incarnation=identity.incarnation).files.items():
        (parts[path.split("/")[2]] / Path(path).name).write_bytes(content)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """(exit code, lines of standard output, standard error)"""
    try:
        code = main([str(each) for each in arguments])
    except SystemExit as ended:  # argparse, for arguments that it does not understand.
        code = int(str(ended.code))
    said = capsys.readouterr()
    return code, said.out.splitlines(), said.err


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def pictures(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


# --- storage check ------------------------------------------------------------------------------------------


def test_the_folder_of_a_file_system_is_no_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P7.2: a cluster may stand at the root of a device; only root may look into `lost+found`."""
    (tmp_path / "lost+found" / "entries").mkdir(parents=True)
    make_bookie({part: tmp_path / "b1" / part for part in ("journal", "entries")})
    code, lines, _ = run(capsys, "storage", "check", tmp_path)
    assert (code, [line for line in lines if "lost+found" in line]) == (0, [])


def test_a_whole_cluster_is_checked_at_once(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, error = run(capsys, "storage", "check", cluster)
    assert (code, error) == (0, "")
    assert [line.split(":")[0] for line in lines] == [
        *(f"bookie b{number} in {cluster / f'b{number}'}" for number in (1, 2, 3)),
        f"metadata in {cluster / 'metadata'}",
    ]
    assert all(": clean; " in line for line in lines)


def test_nothing_is_written(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = pictures(cluster)
    run(capsys, "storage", "check", cluster)
    run(capsys, "journal", "cat", cluster / "metadata")
    run(capsys, "index", "cat", cluster / "b1")
    assert pictures(cluster) == before


def test_json_is_one_object_a_line_with_the_fields_of_the_page(
    cluster: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, _ = run(capsys, "storage", "check", cluster, "--json")
    found = [json.loads(line) for line in lines]
    assert code == 0
    assert [each["kind"] for each in found] == ["bookie"] * 3 + ["metadata"]
    for each in found:
        assert each["is_clean"]
        for name in each:
            assert f"`{name}`" in PAGE, name


def test_directories_on_other_devices_are_checked_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P7.2, I45: found by the identity, or given when they were moved; one that is not there is damage."""
    places = [tmp_path / "disk1", tmp_path / "disk2" / "ledgers"]
    storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, ledger_directories=places)
    for ledger_id in range(1, 10):
        row = storage.table.create(ledger_id)
        row.last_entry = 49
        storage.table.mark_dirty(row)
        storage.put_frame(make_frame(ledger_id, range(50)))
    storage.close()
    for path in (tmp_path / "b1", *places):
        code, lines, error = run(capsys, "storage", "check", path)
        assert (code, error) == (0, "")
        assert "450 entries in 2 entry logs" in lines[-1]
    found = [json.loads(line) for line in run(capsys, "index", "cat", tmp_path / "b1", "--json")[1]]
    logs = [each["log"] for each in found if "modulus" in each]
    assert logs == sorted(logs)
    assert set(logs) == {"00000001.elog", "00000002.elog"}
    parts = [(each["log"], each["part"], each["part_count"]) for each in found if "part" in each]
    assert parts == [("00000001.elog", 0, 2), ("00000002.elog", 1, 2)]
    (tmp_path / "disk2").rename(tmp_path / "disk3")
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1")
    assert code == 1
    assert any("its entries-2 directory is not here" in line for line in lines)
    moved = tmp_path / "disk3" / "ledgers"
    given = ("--ledger-dir", places[0], "--ledger-dir", moved)
    assert run(capsys, "storage", "check", tmp_path / "b1", *given)[0] == 0
    flip(moved / "00000002.elog", 4096 + 60)
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1", *given)
    assert code == 1
    assert any(f"{moved / '00000002.elog'}" in line for line in lines)
    swapped = ("--ledger-dir", moved, "--ledger-dir", places[0])
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1", *swapped)
    assert code == 1
    assert any("swapped?" in line for line in lines)


def test_several_journals_are_checked_by_their_own_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scenario 43, I42, I45: each above its mark; a damaged and a missing one among several is damage."""
    places = [tmp_path / f"journal{number}" for number in (1, 2)]
    storage = BookieStorage(tmp_path / "b1", "b1", TOKEN, journal_directories=places)
    for first in (0, 50):
        for ledger_id in range(1, 10):
            row = storage.table.get(ledger_id) or storage.table.create(ledger_id)
            row.last_entry = first + 49
            storage.table.mark_dirty(row)
            token = storage.put_frame(make_frame(ledger_id, range(first, first + 50)))
        storage._open_journals().wait(token)
        storage.durable()
        if first == 0:
            storage.flushes.begin()
            storage.flushes.wait()
    storage._release()
    for path in (tmp_path / "b1", *places):
        code, lines, error = run(capsys, "storage", "check", path)
        assert (code, error) == (0, ""), lines
        assert "450 entries in 1 entry logs, 9 journal records above the log mark 9, 9 ledgers" in lines[-1]
    code, lines, _ = run(capsys, "journal", "cat", places[1])
    assert (code, len(lines)) == (0, 4)
    code, lines, _ = run(capsys, "index", "cat", tmp_path / "b1")
    assert lines[0].startswith("00000001.elog: after 00000000, log mark 9 (7 + 2), 450 entries of 9 ledgers")
    given = ("--journal-dir", places[1], "--journal-dir", places[0])
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1", *given)
    assert code == 1
    assert any("swapped?" in line for line in lines)
    file = next(path for path in places[1].iterdir() if path.name.startswith("journal-"))
    flip(file, 4096 + 64 + 30)
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1")
    assert code == 1
    assert any(str(file) in line for line in lines)
    places[0].rename(tmp_path / "gone")
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1")
    assert code == 1
    assert any("its journal directory is not here" in line for line in lines)


def test_damage_is_told_with_its_place_and_exit_code_1(
    bookie: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = bookie / "entries" / "00000001.elog"
    flip(log, places_in(log.read_bytes()).entries + 60)
    code, lines, _ = run(capsys, "storage", "check", bookie)
    assert code == 1
    assert lines[0].startswith(f"DAMAGE  {log} at offset ")
    assert "ledger 3, entry 0: damaged:" in lines[0]
    assert "1 DAMAGED" in lines[-1]
    code, lines, _ = run(capsys, "storage", "check", bookie, "--json")
    first = json.loads(lines[0])
    assert (code, first["finding"], first["ledger_id"], first["first_entry"]) == (1, "damage", 3, 0)
    for name in first:
        assert f"`{name}`" in PAGE, name


def test_a_directory_in_use_is_refused_unless_told(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """I54: beside a running bookie what is being written would look like damage."""
    with open(bookie / "journal" / "OWNER", "r+b") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        owner.write(b"4321\n")
        owner.flush()
        code, lines, error = run(capsys, "storage", "check", bookie)
        assert (code, lines) == (2, [])
        assert "is in use by process 4321" in error
        assert "--in-use" in error
        assert run(capsys, "storage", "check", bookie, "--in-use")[0] == 0


def test_while_it_checks_nobody_can_start(bookie: Path) -> None:
    """The lock is shared: two checks go side by side, a bookie waits."""
    with ExitStack() as first, ExitStack() as second:
        for stack in (first, second):
            directory_discovery.hold_place(directory_discovery.find_places(bookie)[0], stack)
        with pytest.raises(embedbk.UsageError, match="is in use"):
            open_identity(
                {part: bookie / part for part in ("journal", "entries")},
                role="bookie",
                node_id="b1",
                cluster_token=TOKEN,
            )


def test_swapped_directories_are_told(
    bookie: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P7.2: the journal of one bookie beside the entries of another."""
    others = {part: tmp_path / "b2" / part for part in ("journal", "entries")}
    open_identity(others, role="bookie", node_id="b2", cluster_token=TOKEN).close()
    (bookie / "journal" / "IDENTITY").write_bytes((tmp_path / "b2" / "journal" / "IDENTITY").read_bytes())
    code, lines, _ = run(capsys, "storage", "check", bookie)
    assert code == 1
    assert any("this is the journal directory of bookie 'b2'" in line for line in lines)


@pytest.mark.parametrize("part", ["journal", "entries"])
def test_a_lost_part_is_told(bookie: Path, part: str, capsys: pytest.CaptureFixture[str]) -> None:
    """D13: one of the directories is gone, or empty."""
    for path in (bookie / part).iterdir():
        path.unlink()
    assert run(capsys, "storage", "check", bookie)[0] == 1
    (bookie / part).rmdir()
    code, lines, _ = run(capsys, "storage", "check", bookie)
    assert code == 1
    assert any(f"its {part} directory is not here" in line for line in lines)


@pytest.mark.parametrize("part", ["journal", "entries"])
def test_a_copy_without_a_part_is_not_given_the_originals(
    bookie: Path, tmp_path: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """D13: the folder stood inside the bookie's directory, so the copy must have its own."""
    copy = shutil.copytree(bookie, tmp_path / "copy")
    assert run(capsys, "storage", "check", copy)[0] == 0
    shutil.rmtree(copy / part)
    code, lines, _ = run(capsys, "storage", "check", copy)
    assert code == 1
    assert any(f"its {part} directory is not here" in line for line in lines)


def test_a_bookie_that_is_not_beside_its_metadata_is_told(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """D13: it may stand elsewhere, so it is a note; who checks a whole cluster must not miss it."""
    copy = shutil.copytree(cluster, tmp_path / "copy")
    shutil.rmtree(copy / "b2")
    code, lines, _ = run(capsys, "storage", "check", copy)
    assert code == 0
    assert any("the cluster knows bookie 'b2', whose directory is not here" in line for line in lines)
    assert not any("not here" in line for line in run(capsys, "storage", "check", copy / "metadata")[1])


def test_a_journal_elsewhere_is_found_by_the_identity_or_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = {"journal": tmp_path / "fast" / "j", "entries": tmp_path / "b1" / "entries"}
    make_bookie(parts)
    code, lines, _ = run(capsys, "storage", "check", tmp_path / "b1")
    assert (code, "journal records above the log mark 14" in lines[-1]) == (0, True)
    (tmp_path / "fast" / "j").rename(tmp_path / "moved")
    assert run(capsys, "storage", "check", tmp_path / "b1")[0] == 1
    assert run(capsys, "storage", "check", tmp_path / "b1", "--journal-dir", tmp_path / "moved")[0] == 0


def test_a_bookie_that_the_metadata_beside_it_knows_with_other_disks(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I33: cookies and identities are compared where both are here."""
    copy = shutil.copytree(cluster, tmp_path / "copy")
    shutil.rmtree(copy / "b2")
    with embedbk.open(tmp_path / "another", bookies=3):
        pass
    shutil.copytree(tmp_path / "another" / "b2", copy / "b2")
    code, lines, _ = run(capsys, "storage", "check", copy)
    assert code == 1
    assert any("belongs to the cluster" in line for line in lines)


# --- cat ----------------------------------------------------------------------------------------------------


def test_the_records_of_a_journal(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, error = run(capsys, "journal", "cat", bookie / "journal", "--json")
    records = [json.loads(line) for line in lines]
    assert (code, error) == (0, "")
    assert [each["token"] for each in records] == list(range(1, records[-1]["token"] + 1))
    assert {each["name"] for each in records} == {"FRAME", "BIRTH", "FENCE", "EXPLICIT_LAC"}
    code, lines, _ = run(capsys, "journal", "cat", bookie / "journal", "--after", 14, "--ledger", 201)
    assert (code, lines[0].split()[:5]) == (0, ["16", "FRAME", "ledger", "201", "entries"])
    assert lines[-1].split()[1:] == ["FENCE", "ledger", "201"]


def test_the_commands_of_a_metadata_log(cluster: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, "journal", "cat", cluster / "metadata", "--json")
    records = [json.loads(line) for line in lines]
    names = [each["name"] for each in records]
    assert (code, names[0], set(names[1:])) == (0, "IDENTITY", {"STEP"})
    assert (records[0]["member"], records[0]["start"]) == ("m1", 1)
    entries = [entry for each in records[1:] for entry in each["entries"]]
    assert [entry["index"] for entry in entries] == list(range(1, len(entries) + 1))
    assert [entry["kind"] for entry in entries[:2]] == [
        None,
        "StartMember",
    ]  # What a leader begins with, first.


def test_the_entries_of_a_log(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = bookie / "entries" / "00000002.elog"
    code, lines, _ = run(capsys, "entrylog", "cat", path, "--ledger", 9, "--json", "--payload")
    head, *entries = [json.loads(line) for line in lines]
    assert (code, head["log"], [each["entry_id"] for each in entries]) == (0, path.name, [1, 101, 1500])
    assert entries[0]["payload"] == "OToxLg=="  # 9:1.
    code, lines, _ = run(capsys, "entrylog", "cat", path, "--ledger", 9)
    assert lines[1].split()[:4] == ["ledger", "9", "entry", "1"]
    flip(path, entries[1]["offset"] + 50)
    code, lines, error = run(capsys, "entrylog", "cat", path, "--ledger", 9)
    assert (code, len(lines)) == (1, 3)
    assert "ledger 9, entry 101" in error


def test_the_index(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines, _ = run(capsys, "index", "cat", bookie, "--json")
    found = [json.loads(line) for line in lines]
    runs = [each for each in found if "modulus" in each and each["log"] == "00000001.elog"]
    assert code == 0
    assert {(each["ledger_id"], each["entries"], each["modulus"]) for each in runs} >= {
        (3, 40, 1),
        (5, 20, 3),
    }
    assert [each["flags"] for each in found if each.get("state_of") == 5][1] == ["fenced"]
    one = run(capsys, "index", "cat", bookie / "entries" / "00000001.elog")[1]
    assert one[0].startswith("00000001.elog: after 00000000, log mark ")


# --- What makes no sense ------------------------------------------------------------------------------------


def test_paths_that_make_no_sense_are_refused_with_what_to_do(
    tmp_path: Path, bookie: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "holiday.jpg").write_bytes(b"")
    for arguments, says in (
        (("storage", "check", tmp_path / "gone"), "cannot be read: No such file"),
        (("storage", "check", tmp_path / "empty"), "is empty and nothing of embedbk"),
        (("storage", "check", tmp_path / "strange"), "holds holiday.jpg and nothing of embedbk"),
        (("storage", "check", tmp_path / "strange" / "holiday.jpg"), "is not a directory"),
        (
            ("storage", "check", tmp_path / "strange", "--journal-dir", tmp_path),
            "--journal-dir and --ledger-dir go with one",
        ),
        (("journal", "cat", bookie), f"give {bookie / 'journal'}"),
        (("journal", "cat", bookie / "journal", "--after", -1), "tokens are 0 or more"),
        (("entrylog", "cat", bookie / "entries"), "is a directory"),
        (("entrylog", "cat", tmp_path / "strange" / "holiday.jpg"), "is not named as an entry log"),
        (("entrylog", "cat", bookie / "entries" / "00000077.elog"), "cannot be read: No such file"),
        (("index", "cat", bookie / "journal"), "holds no entry logs"),
    ):
        code, lines, error = run(capsys, *arguments)
        assert (code, lines) == (2, []), arguments
        assert says in error, (arguments, error)
        assert "Traceback" not in error


@pytest.mark.parametrize(
    "arguments",
    [("storage",), ("storage", "mend", "x"), ("storage", "check"), ("journal", "cat", "x", "--after", "y")],
)
def test_arguments_that_make_no_sense_are_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, lines, error = run(capsys, *arguments)
    assert (code, lines) == (2, [])
    assert error.startswith(f"usage: embedbk {arguments[0]}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_no_damage(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P7.1: "cannot tell" is never "no"."""
    (bookie / "entries" / "00000001.elog").chmod(0)
    code, lines, error = run(capsys, "storage", "check", bookie)
    assert (code, lines) == (2, [])
    assert "Permission denied" in error


@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_result_that_nobody_could_read_is_not_clean(bookie: Path, is_buffered: bool) -> None:
    """The exit code says what was found, also where a script looks at nothing else."""
    flip(bookie / "entries" / "00000001.elog", 5000)
    command = [sys.executable, "-c", "import sys; from embedbk.cli import main; sys.exit(main(sys.argv[1:]))"]
    command += ["storage", "check", str(bookie)]
    environment = {**os.environ, "PYTHONUNBUFFERED": "" if is_buffered else "1"}
    reader, nobody = os.pipe()
    os.close(reader)
    with open("/dev/full", "wb") as full:
        codes = []
        for out in (subprocess.PIPE, nobody, full):
            done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment, check=False)
            codes.append((done.returncode, done.stderr.decode()))
    os.close(nobody)
    assert codes[:2] == [(1, ""), (141, "")]
    assert codes[2] == (2, "embedbk storage check: the system refuses: [Errno 28] No space left on device\n")


def test_too_few_descriptors_are_no_damage(bookie: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """P7.1: "cannot tell" is never "no": whichever file is the first that cannot be opened."""
    assert run(capsys, "storage", "check", bookie)[0] == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # The limit is on the number, not on how many there are: so none below the highest in use stays free.
    highest = max(map(int, os.listdir("/proc/self/fd")))
    filling = [os.dup(0)]
    while filling[-1] <= highest:
        filling.append(os.dup(0))
    held = filling.pop()
    os.close(held)
    refusals = []
    try:
        for more in range(32):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            while (free := os.dup(0)) < held:  # What an earlier test left open was closed meanwhile.
                filling.append(free)
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (held + more, hard))
            code, _, error = run(capsys, "storage", "check", bookie)
            if code == 0:
                break
            refusals.append((code, error))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in filling:
            os.close(descriptor)
    assert code == 0
    assert len(refusals) >= 4
    for code, error in refusals:
        assert code == 2, error
        assert "Too many open files" in error


@pytest.mark.parametrize("puts", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_told_and_the_others_are_shown(
    bookie: Path, capsys: pytest.CaptureFixture[str], puts: Callable[[Path], None]
) -> None:
    """I31: a pipe or a directory in the place of an entry log makes nobody wait, and hides no other log."""
    first, second = (bookie / "entries" / f"0000000{number}.elog" for number in (1, 2))
    first.unlink()
    puts(first)
    code, lines, error = run(capsys, "index", "cat", bookie)
    assert code == 1
    assert any(line.startswith(f"{second.name}: ") for line in lines)
    assert f"DAMAGE  {first}: the file cannot be read" in error
    code, lines, error = run(capsys, "entrylog", "cat", first)
    assert (code, lines) == (2, [])
    assert str(first) in error and "Traceback" not in error
    assert run(capsys, "storage", "check", bookie)[0] == 1


def test_an_operator_says_read_only_and_takes_it_back(
    bookie: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rule P7.8, ST27: a word in a file, which the check of the directory shows and no check takes for damage."""
    code, lines, _ = run(capsys, "storage", "read-only", bookie, "--reason", "a new disk on Monday")
    assert (code, lines) == (0, [f"{bookie}: read-only; a running bookie sees it within seconds"])
    assert read_only_reason(bookie) == "a new disk on Monday"
    code, lines, _ = run(capsys, "storage", "check", bookie)
    assert code == 0
    assert any("read-only by an operator's word: a new disk on Monday" in line for line in lines)
    code, lines, _ = run(capsys, "storage", "writable", bookie)
    assert code == 0 and "writable again" in lines[0]
    assert read_only_reason(bookie) is None
    code, lines, _ = run(capsys, "storage", "writable", bookie)
    assert code == 0 and "nobody had said" in lines[0]


def test_a_word_is_taken_by_bookies_only(
    cluster: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word in the wrong place would be one that nobody hears."""
    for path in (cluster, cluster / "metadata", tmp_path / "nowhere"):
        code, _, said = run(capsys, "storage", "read-only", path)
        assert code == 2 and str(path) in said
    assert not list(cluster.rglob("READ_ONLY"))


def test_a_bookie_whose_devices_are_elsewhere_hears_the_word_in_its_own_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """P7.8: said where it looks, and refused where it does not; a copy of the directory says nothing of the parts."""
    elsewhere = {"journal": tmp_path / "nvme" / "j", "ledger": tmp_path / "disk" / "l"}
    given: dict[str, Any] = {f"{kind}_directories": [path] for kind, path in elsewhere.items()}
    root = tmp_path / "b1"
    storage = BookieStorage(root, "b1", TOKEN, **given)
    for kind, path in elsewhere.items():
        for verb in ("read-only", "writable"):
            code, lines, error = run(capsys, "storage", verb, path)
            assert (code, lines) == (2, []), kind
            assert f"{path} is the " in error and "--dir" in error
    for reason in ("not UTF-8: \udcff", "a new disk"):
        assert run(capsys, "storage", "read-only", root, "--reason", reason)[0] == 0
    assert storage.read_only_reason() == "a new disk"
    code, lines, _ = run(capsys, "storage", "writable", root)
    assert code == 0 and "writable again" in lines[0]
    assert storage.read_only_reason() is None
    storage.close()
    assert run(capsys, "storage", "check", root)[0] == run(capsys, "storage", "check", tmp_path)[0] == 0
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    code, _, error = run(capsys, "storage", "read-only", copy)
    assert code == 2 and str(copy) in error
    (root / "PARTS").write_bytes(b"\xff{")
    assert run(capsys, "storage", "read-only", root)[0] == 2
    BookieStorage(root, "b1", TOKEN, **given).close()
    assert run(capsys, "storage", "read-only", root)[0] == 0


def test_it_is_found_where_a_user_looks() -> None:
    """`python -m embedbk`, its help, the README and the page."""
    said = subprocess.run(
        [sys.executable, "-m", "embedbk", "--help"], capture_output=True, text=True, check=True, timeout=300
    ).stdout
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert "storage read-only|writable" in said
    assert "`embedbk storage read-only DIR`" in PAGE and "`embedbk storage writable DIR`" in PAGE
    for command in ("storage check", "journal cat", "entrylog cat", "index cat"):
        assert command in said
        assert f"embedbk {command}" in PAGE
    assert "embedbk storage check" in readme
