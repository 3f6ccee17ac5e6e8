"""Bad input: the right class, what was given, what is allowed, what to do; and the process stays usable."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import CUSTOM_BYTES_MAX, ENTRY_BYTES_MAX
from embedbk.report import space_report


@pytest.fixture(autouse=True)
def still_usable(bk: embedbk.Client) -> object:
    """Whatever was refused: the next one is served."""
    yield
    with bk.create_ledger() as writer:
        assert writer.add(b"still here") == 0


@pytest.mark.parametrize("quorum", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0), (65, 3, 2)])
def test_quorums_that_are_none(bk: embedbk.Client, quorum: tuple[int, int, int]) -> None:
    """P1: E >= Qw >= Qa >= 1."""
    size, write, ack = quorum
    with pytest.raises(embedbk.UsageError) as refused:
        bk.create_ledger(ensemble_size=size, write_quorum=write, ack_quorum=ack)
    assert refused.value.definite
    assert f"ensemble_size={size}, write_quorum={write}, ack_quorum={ack}" in str(refused.value)


@pytest.mark.parametrize("size", ["3", b"3", (3,), 3.0, True])
def test_what_is_no_size(bk: embedbk.Client, size: Any) -> None:
    with pytest.raises(embedbk.UsageError, match="each must be a whole number"):
        bk.create_ledger(ensemble_size=size)


@pytest.mark.parametrize("why", ["\udcff", 5, b"x", None])
def test_what_is_no_reason(bk: embedbk.Client, why: Any) -> None:
    """As it comes of a terminal, say; metadata keeps text."""
    for decide in (
        lambda: bk.stop_repair(why),
        lambda: bk.set_repair_grace(5.0, why),
        lambda: bk.drain_bookie("b1", why),
        lambda: bk.cancel_drain("b1", why),
        lambda: bk.decommission_bookie("b1", why),
        lambda: bk.replace_bookie("b1", why),
        lambda: bk.give_up_bookie("b1", "00", why),
        lambda: bk.put_to_read_only("b1", why, force=True),
    ):
        with pytest.raises(embedbk.UsageError, match=r"why=.* text in UTF-8 is allowed; nothing was changed"):
            decide()
    assert not bk.health().is_stopped and all(each.state == "writable" for each in bk.bookies())


@pytest.mark.parametrize("nodes", ["b1", b"b1", ["b1", 5], [None]])
def test_what_are_no_names_of_nodes(bk: embedbk.Client, nodes: Any) -> None:
    with pytest.raises(embedbk.UsageError, match="names of nodes are allowed"):
        bk.can_i_lose(nodes)
    with pytest.raises(embedbk.UsageError, match="names of nodes are allowed"):
        bk.can_i_stop(5)  # type: ignore[arg-type]


def test_more_bookies_than_there_are(bk: embedbk.Client) -> None:
    """Refused before any write."""
    before = bk.ledgers()
    with pytest.raises(
        embedbk.NotEnoughBookies, match=r"ensemble of 4 .* 3 writable .*start more"
    ) as refused:
        bk.create_ledger(ensemble_size=4)
    assert refused.value.definite
    with pytest.raises(embedbk.NotEnoughBookies):
        bk.log("wide").writer(ensemble_size=4)
    assert bk.ledgers() == before


def test_a_ledger_that_does_not_exist(bk: embedbk.Client) -> None:
    for ask in (bk.open_ledger, bk.delete_ledger):
        with pytest.raises(embedbk.NoSuchLedger, match=r"no ledger 123456789 .*bk\.ledgers") as refused:
            ask(123456789)
        assert refused.value.definite


def test_a_log_that_does_not_exist(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.NoSuchLedger, match="no log 'nowhere'"):
        list(bk.log("nowhere").read())


@pytest.mark.parametrize("ledger_id", [-1, 2**63, "7", None, True, 1.0])
def test_what_is_no_ledger_id(bk: embedbk.Client, ledger_id: object) -> None:
    with pytest.raises(embedbk.UsageError, match="is not allowed: a whole number"):
        bk.open_ledger(ledger_id)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", "a/b", "../x", "-x", "x" * 200, "ü", 7])
def test_what_is_no_log_name(bk: embedbk.Client, name: object) -> None:
    with pytest.raises(embedbk.UsageError, match=r"log name .* is not allowed"):
        bk.log(name)  # type: ignore[arg-type]


def test_a_wrong_password(bk: embedbk.Client) -> None:
    """P3.5: refused, nothing changed, and nothing secret in the sentence."""
    writer = bk.create_ledger(password=b"right")
    for ask in (
        lambda: bk.open_ledger(writer.ledger_id, password=b"wrong", recover=True),
        lambda: bk.delete_ledger(writer.ledger_id, password=b"wrong", force=True),
    ):
        with pytest.raises(embedbk.WrongPassword, match="nothing was changed") as refused:
            ask()
        assert "right" not in str(refused.value).replace("right class", "")
    assert writer.add(b"not fenced") == 0
    writer.close()


def test_a_log_with_another_password_is_not_taken_over(bk: embedbk.Client) -> None:
    with bk.log("locked", password=b"right").writer() as writer:
        writer.append(b"x")
        with pytest.raises(embedbk.WrongPassword):
            bk.log("locked", password=b"wrong").writer()
    with pytest.raises(embedbk.WrongPassword):
        list(bk.log("locked").read())


def test_what_is_no_password(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="a password is bytes, not str"):
        bk.create_ledger(password="secret")  # type: ignore[arg-type]


def test_an_entry_over_the_limit(bk: embedbk.Client) -> None:
    """Refused before anything is sent; the handle goes on."""
    too_large = bytes(ENTRY_BYTES_MAX + 1)
    with bk.create_ledger() as writer:
        for add in (writer.add, writer.add_nowait, lambda data: writer.add_many([b"fits", data])):
            with pytest.raises(
                embedbk.UsageError, match=f"{ENTRY_BYTES_MAX + 1} bytes: at most {ENTRY_BYTES_MAX}"
            ):
                add(too_large)
        assert writer.add(b"next") == 0


@pytest.mark.parametrize("data", ["text", None, 7, [b"x"]])
def test_what_is_no_entry(bk: embedbk.Client, data: object) -> None:
    with bk.create_ledger() as writer:
        with pytest.raises(embedbk.UsageError, match="an entry is bytes"):
            writer.add(data)  # type: ignore[arg-type]
        with pytest.raises(embedbk.UsageError):
            writer.add_many([b"x", data])  # type: ignore[list-item]
        with pytest.raises(embedbk.UsageError, match="takes a list"):
            writer.add_many(b"xyz")  # type: ignore[arg-type]


def test_a_range_that_is_none(bk: embedbk.Client) -> None:
    with bk.create_ledger() as writer:
        writer.add_many([b"x"] * 10)
    reader = bk.open_ledger(writer.ledger_id)
    for first, last in ((5, 4), (-1, 3), (0, 10), (11, None)):
        with pytest.raises(embedbk.UsageError, match=r"allowed is 0 <= first <= last <= 9"):
            list(reader.read(first, last))


@pytest.mark.parametrize("place", [-1, "7", 1.5, True])
def test_what_is_no_place_in_a_log(bk: embedbk.Client, place: object) -> None:
    with bk.log("places").writer() as writer:
        writer.append(b"x")
    with pytest.raises(embedbk.UsageError, match="no place in a log"):
        list(bk.log("places").read(place))  # type: ignore[arg-type]


@pytest.mark.parametrize("entry_id", [-7, "7", 0.5, True, 1 << 63])
def test_what_is_no_entry_of_a_place_in_a_log(bk: embedbk.Client, entry_id: Any) -> None:
    with bk.log("places").writer() as writer:
        writer.append(b"x")
        place = embedbk.Position(writer.ledger_id, entry_id)
    log = bk.log("places")
    for use in (lambda: list(log.read(place)), lambda: log.pin("a", place), lambda: log.truncate(place)):
        with pytest.raises(embedbk.UsageError, match="no place in a log"):
            use()


def test_what_no_list_of_pins_or_cursors_could_hold_is_not_put_there(
    bk: embedbk.Client, log_name: str
) -> None:
    """Else it could not be read again: no pin could be taken away, and the log never truncated."""
    log = bk.log(log_name)
    for _ in range(2):
        with log.writer() as writer:
            writer.append(b"x")
    last = log.segments()[-1].ledger_id
    for place in (1 << 63, 1 << 70, embedbk.Position(last, (1 << 63) - 1)):
        for keep in (lambda at: log.pin("a", at), lambda at: log.cursor("a").set(at)):
            with pytest.raises(embedbk.UsageError, match="no place in a log"):
                keep(place)
    assert not log.pins() and not log.cursors()
    log.pin("a", (1 << 63) - 1)
    log.cursor("a").set((1 << 63) - 1)
    assert log.pins()[0].offset == log.cursors()[0].offset == (1 << 63) - 1
    assert log.truncate(1).ledgers == 1


def test_a_closed_handle(bk: embedbk.Client) -> None:
    writer = bk.create_ledger()
    writer.close()
    assert writer.close() == embedbk.NO_ENTRY, "twice is allowed"
    with pytest.raises(embedbk.UsageError, match="closed or released; nothing was appended"):
        writer.add(b"x")
    reader = bk.open_ledger(writer.ledger_id)
    reader.close()
    with pytest.raises(embedbk.UsageError, match="was closed"):
        reader.last_add_confirmed()


def test_custom_metadata_that_is_too_large(bk: embedbk.Client) -> None:
    """Refused before anything is asked of the cluster; the largest that is allowed is kept."""
    most = {"name": bytes(CUSTOM_BYTES_MAX - 4)}
    with pytest.raises(embedbk.UsageError, match=f"custom metadata of {CUSTOM_BYTES_MAX + 1} bytes"):
        bk.create_ledger(custom={**most, "x": b""})
    with bk.create_ledger(custom=most) as writer:
        assert bk.open_ledger(writer.ledger_id).metadata.custom == most


def test_custom_metadata_that_is_no_bytes(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="names that map to bytes"):
        bk.create_ledger(custom={"a": "text"})  # type: ignore[dict-item]


# --- Directories and addresses ---------------------------------------------------------------------------


def test_a_foreign_directory_is_left_alone(data: Path, settings: embedbk.Settings) -> None:
    data.mkdir()
    (data / "thesis.tex").write_text("years of work")
    with pytest.raises(embedbk.StorageError, match=r"holds thesis\.tex .*foreign"):
        embedbk.open(data, settings=settings)
    assert [path.name for path in data.iterdir()] == ["thesis.tex"]


def test_a_first_start_that_was_cut_short_is_no_foreign_directory(
    data: Path, settings: embedbk.Settings
) -> None:
    (data / "metadata").mkdir(parents=True)
    (data / "OWNER").write_text("")
    embedbk.open(data, settings=settings).close()


def test_a_file_where_a_directory_should_be(data: Path, settings: embedbk.Settings) -> None:
    data.write_text("a file")
    for path in (data, data / "below"):
        with pytest.raises(embedbk.StorageError, match="is not a directory"):
            embedbk.open(path, settings=settings)


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unreadable for root")
def test_an_unreadable_directory(data: Path, settings: embedbk.Settings) -> None:
    data.mkdir(mode=0o000)
    with pytest.raises(embedbk.StorageError, match="permissions"):
        embedbk.open(data, settings=settings)


def test_a_directory_opened_twice(data: Path, settings: embedbk.Settings) -> None:
    with embedbk.open(data, settings=settings) as first:
        with pytest.raises(embedbk.UsageError, match=f"in use by process {os.getpid()}"):
            embedbk.open(data, settings=settings)
        assert [each.bookie_id for each in first.bookies()] == ["b1", "b2", "b3"]
    embedbk.open(data, settings=settings).close()


def test_a_directory_opened_by_two_processes(data: Path, settings: embedbk.Settings) -> None:
    again = "import embedbk, sys\ntry: embedbk.open(sys.argv[1])\nexcept embedbk.UsageError as e: print(e)"
    with embedbk.open(data, settings=settings):
        told = subprocess.run(
            [sys.executable, "-c", again, str(data)], capture_output=True, text=True, check=True, timeout=300
        )
    assert f"in use by process {os.getpid()}" in told.stdout


def damage_journal(data: Path) -> None:
    """Flip bytes of the first bookie's records, far before the last of them."""
    for journal in sorted((data / "b1" / "journal").iterdir()):
        content = bytearray(journal.read_bytes())
        if any(content[8192:12288]):  # Not the lock, and not a file that is only prepared.
            content[8192:12288] = bytes(byte ^ 0xFF for byte in content[8192:12288])
            journal.write_bytes(content)


def empty_metadata(data: Path) -> None:
    shutil.rmtree(data / "metadata")


def remove_bookie(data: Path) -> None:
    shutil.rmtree(data / "b2")


def empty_bookie(data: Path) -> None:
    shutil.rmtree(data / "b2")
    (data / "b2").mkdir()


def swap_bookies(data: Path) -> None:
    (data / "b1").rename(data / "aside")
    (data / "b2").rename(data / "b1")
    (data / "aside").rename(data / "b2")


def damage_identity(data: Path) -> None:
    (data / "b1" / "journal" / "IDENTITY").write_bytes(b"\xff" * 8192)


def clone_bookie(data: Path) -> None:
    """A backup of yesterday's beside today's metadata, under a new name."""
    shutil.copytree(data / "b1", data / "b4")


@pytest.mark.parametrize(
    ("damage", "kind", "told"),
    [
        (damage_journal, embedbk.StorageError, "b1"),
        (empty_metadata, embedbk.StorageError, "metadata is missing or empty"),
        (remove_bookie, embedbk.StorageError, "b2 is missing"),
        (empty_bookie, embedbk.StorageError, "other directories"),
        (swap_bookies, embedbk.UsageError, "belongs to bookie 'b2'"),
        (damage_identity, embedbk.StorageError, "IDENTITY"),
        (clone_bookie, embedbk.UsageError, "belongs to bookie 'b1'"),
    ],
)
def test_a_damaged_directory(
    data: Path,
    settings: embedbk.Settings,
    damage: Callable[[Path], None],
    kind: type[embedbk.EmbedbkError],
    told: str,
) -> None:
    """P7.2: never serve from directories that are not the ones that the cluster knows."""
    bk = embedbk.open(data, settings=settings)
    writer = bk.log("l").writer()
    for _ in range(20):
        writer.append(bytes(1000))  # Each a record of its own.
    if damage is damage_journal:
        kill_copy(data)  # As a killed process leaves it: a clean stop would have emptied the journal.
    writer.close()
    bk.close()
    if damage is damage_journal:
        shutil.rmtree(data)
        (data.parent / "killed").rename(data)
    damage(data)
    with pytest.raises(kind) as refused:
        embedbk.open(data, settings=settings)
    assert told in str(refused.value)
    assert refused.value.hint


def kill_copy(data: Path) -> None:
    """The metadata last: what bookies have met of it stands in its copy, however long the copying takes."""
    killed = data.parent / "killed"
    killed.mkdir()
    for each in sorted(data.iterdir(), key=lambda path: path.name == "metadata"):
        if each.is_dir():
            shutil.copytree(each, killed / each.name)
        elif each.is_file():
            shutil.copy2(each, killed / each.name)


def test_fewer_bookies_than_there_are(data: Path, settings: embedbk.Settings) -> None:
    embedbk.open(data, bookies=3, settings=settings).close()
    with pytest.raises(embedbk.UsageError, match=r"bookies=2: .* has 3 \(b1, b2, b3\)"):
        embedbk.open(data, bookies=2, settings=settings)


@pytest.mark.parametrize("bookies", [0, -1, "3", 1.0, True, 65])
def test_what_is_no_number_of_bookies(data: Path, bookies: object) -> None:
    with pytest.raises(embedbk.UsageError, match="bookies="):
        embedbk.open(data, bookies=bookies)  # type: ignore[arg-type]


def test_a_port_in_use(data: Path, settings: embedbk.Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(embedbk.UsageError, match="is in use"):
            embedbk.open(data, listen=endpoint, settings=settings)
    embedbk.open(data, settings=settings).close()  # Nothing was left locked.


@pytest.mark.parametrize(
    "listen", ["tcp://0.0.0.0:0", "tcp://127.0.0.1", "http://x", "nonsense", "tcp://8.8.8.8:1"]
)
def test_what_is_no_place_to_listen(data: Path, settings: embedbk.Settings, listen: str) -> None:
    with pytest.raises(embedbk.UsageError):
        embedbk.open(data, listen=listen, settings=settings)
    embedbk.open(data, settings=settings).close()


@pytest.mark.parametrize(
    "url",
    [
        "embedbk://",
        "embedbk://host",
        "embedbk://host:0",
        "embedbk://host:99999",
        "embedbk://a:1,,b:2",
        "embedbk://a:1/x",
    ],
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(embedbk.UsageError, match="embedbk://HOST:PORT"):
        embedbk.open(url)


def test_nobody_at_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(embedbk.MetadataUnavailable, match="nobody answered") as refused:
        embedbk.open(f"embedbk://127.0.0.1:{port}", settings=embedbk.Settings(open_timeout_s=0.3))
    assert refused.value.definite


def test_an_address_takes_no_bookies() -> None:
    with pytest.raises(embedbk.UsageError, match="are for a directory"):
        embedbk.open("embedbk://127.0.0.1:1", bookies=3)


@pytest.mark.parametrize("target", [None, 7, b"data"])
def test_what_is_neither_directory_nor_address(target: object) -> None:
    with pytest.raises(embedbk.UsageError, match="neither a directory nor"):
        embedbk.open(target)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "setting",
    [
        {"open_timeout_s": 0},
        {"session_ttl_ms": 1},
        {"journal_file_bytes": 1},
        {"journal_file_bytes": (2 << 20) + 1},
        {"journal_file_bytes": float(2 << 20)},
        {"session_ttl_ms": 6_000.5},
        {"read_ahead_bytes": 1e6},
        {"repair_bytes_per_s": 1.5},
        {"collect_s": float("nan")},
        {"allow_non_loopback": "no"},
        {"placement": "rack"},
    ],
)
def test_a_setting_out_of_bounds(setting: dict[str, Any]) -> None:
    with pytest.raises(embedbk.UsageError, match=next(iter(setting))):
        embedbk.Settings(**setting)


@pytest.mark.parametrize(
    "given", [{"local": "b1"}, {"local": ["b1"]}, {"local": (1,)}, {"domain": "rack", "is_strict": "no"}]
)
def test_what_is_no_placement(given: dict[str, Any]) -> None:
    with pytest.raises(embedbk.UsageError, match=next(reversed(given))):
        embedbk.Placement(**given)


@pytest.mark.parametrize("given", [{}, "fast", 5, object])
def test_what_are_no_settings(tmp_path: Path, given: object) -> None:
    """Refused at once, and nothing is made."""
    with pytest.raises(embedbk.UsageError, match=r"settings=.*allowed is embedbk\.Settings"):
        embedbk.open(tmp_path / "new", settings=given)  # type: ignore[arg-type]
    with pytest.raises(embedbk.UsageError, match=r"settings="):
        Cluster(tmp_path / "new", settings=given)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("given", ["x", b"x", 5, {"domain": "rack"}, ["rack"], True])
def test_what_is_no_placement_of_an_ensemble_ends_nobody(
    bk: embedbk.Client, log_name: str, given: Any
) -> None:
    """It reached a core of the host's thread, which ended: an embedded cluster with all of its bookies."""
    for make in (
        lambda: bk.create_ledger(placement=given),
        lambda: bk.log(log_name).writer(placement=given),
    ):
        with pytest.raises(embedbk.UsageError, match=r"placement=.*allowed are embedbk\.Placement"):
            make()


@pytest.mark.parametrize("given", [[], {}, {"a": 1}, 5, "", b"synced", True, None])
def test_what_is_no_way_to_write_a_ledger(bk: embedbk.Client, log_name: str, given: Any) -> None:
    for name in ("durability", "digest", "compression"):
        if given is None and name == "compression":
            continue
        with pytest.raises(embedbk.UsageError, match=f"{name}="):
            bk.create_ledger(**{name: given})
        if given is not None:
            with pytest.raises(embedbk.UsageError, match=f"{name}="):
                bk.log(log_name).writer(**{name: given})
    if given != {}:
        with pytest.raises(embedbk.UsageError, match=r"custom.*names that map to bytes"):
            bk.create_ledger(custom=given)


@pytest.mark.parametrize("given", ["no", b"", 0, 1, None, [], 0.0])
def test_what_is_neither_true_nor_false_lets_nothing_happen(
    bk: embedbk.Client, log_name: str, given: Any
) -> None:
    """ "no" is true in Python: a log was deleted by force that should not be; a reader went on behind lost entries."""
    log = bk.log(log_name)
    with log.writer() as writer:
        writer.append(b"x")
        reader = bk.open_ledger(writer.ledger_id)
        for name, act in (
            ("delays_change", lambda: bk.create_ledger(delays_change=given)),
            ("recover", lambda: bk.open_ledger(writer.ledger_id, recover=given)),
            ("force", lambda: bk.delete_ledger(writer.ledger_id, force=given)),
            ("force", lambda: bk.delete_log(log_name, force=given)),
            ("force", lambda: log.delete(force=given)),
            ("force", lambda: log.truncate(1, force=given)),
            ("may_do_nothing", lambda: log.truncate(1, may_do_nothing=given)),
            ("force", lambda: bk.put_to_read_only("b1", "why", force=given)),
            ("accepts_loss", lambda: bk.replace_bookie("b1", accepts_loss=given)),
            ("accepts_loss", lambda: bk.give_up_bookie("b1", "00", "why", accepts_loss=given)),
            ("expands", lambda: embedbk.open("nowhere", expands=given)),
            ("expands", lambda: Cluster(expands=given)),
            ("skip_lost", lambda: log.reader(skip_lost=given)),
            ("skip_lost", lambda: next(log.read(skip_lost=given))),
            ("skip_lost", lambda: next(log.read_batches(skip_lost=given))),
            ("skip_lost", lambda: next(log.tail(0, skip_lost=given))),
            ("skip_lost", lambda: next(reader.read(skip_lost=given))),
            ("skip_lost", lambda: next(reader.read_batches(skip_lost=given))),
            ("with_records", lambda: log.record_batches(with_records=given)),
            ("with_records", lambda: reader.record_batches(with_records=given)),
        ):
            with pytest.raises(embedbk.UsageError, match=f"{name}=.*True and False are allowed"):
                act()
        writer.append(b"y")
    assert [bytes(entry) for entry in log.read()] == [b"x", b"y"]


@pytest.mark.parametrize("given", [None, b"1", "1", 1.5, float("nan"), [], {}, True, embedbk.Position(1, 1)])
def test_what_is_no_id_of_an_entry(bk: embedbk.Client, given: Any) -> None:
    with bk.create_ledger() as writer:
        writer.add_many([b"x"] * 3)
    reader = bk.open_ledger(writer.ledger_id)
    for read in (reader.read, reader.read_batches, reader.read_unconfirmed):
        with pytest.raises(embedbk.UsageError, match=r"first=.*a whole number"):
            next(read(given))
        if given is not None:
            with pytest.raises(embedbk.UsageError, match=r"last=.*a whole number"):
                next(read(0, given))
    with pytest.raises(embedbk.UsageError, match=r"entry_id=.*a whole number"):
        bk.copies_of_entry(writer.ledger_id, given)
    with pytest.raises(embedbk.UsageError, match="has the entries 0 to 2"):
        bk.copies_of_entry(writer.ledger_id, 10**400)


def test_an_id_of_another_library_is_a_whole_number(bk: embedbk.Client) -> None:
    class Number:
        def __index__(self) -> int:
            return 1

    with bk.create_ledger() as writer:
        writer.add_many([b"0", b"1", b"2"])
    reader = bk.open_ledger(writer.ledger_id)
    assert [bytes(entry) for entry in reader.read(Number(), Number())] == [b"1"]  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, 5, 1.5, True, object()])
def test_what_is_no_list(bk: embedbk.Client, log_name: str, given: Any) -> None:
    log = bk.log(log_name)
    with log.writer() as writer, bk.create_ledger() as ledger:
        staging = log.staging("application")
        for act in (
            lambda: writer.append_many(given),
            lambda: writer.append_batch(given),
            lambda: ledger.add_many(given),
            lambda: ledger.add_batch(given),
            lambda: ledger.add_batch(each for each in [b"x"]),  # type: ignore[arg-type]
            lambda: bk.can_i_lose(given),
            lambda: log.splice(staging, given),
            lambda: log.splice(staging, [given, [given]]),
        ):
            with pytest.raises(embedbk.UsageError):
                act()
        assert ledger.add(b"x") == 0 and writer.append(b"x").entry_id == 0


@pytest.mark.parametrize("given", [None, b"x", "x", 5, (), {}])
def test_what_was_not_shown_is_not_decided(bk: embedbk.Client, given: Any) -> None:
    with pytest.raises(embedbk.UsageError, match=r"shown=.*what copies_of_entry showed"):
        bk.choose_copy(given, "b1", "why")
    with pytest.raises(embedbk.UsageError, match=r"shown=.*what lost_entries showed"):
        bk.give_up_entries(given, "why")
    if not isinstance(given, str):
        with pytest.raises(embedbk.UsageError, match=r"incarnation=.*hexadecimal digits"):
            bk.give_up_bookie("b1", given, "why")
    with pytest.raises(embedbk.UsageError, match=r"sample_s=.*0 to 3600"):
        space_report(bk, sample_s=-1 if given == 5 else given)


@pytest.mark.parametrize("given", ["3", -1, -0.5, float("nan"), True, b"1", pytest.param(10**400, id="huge")])
def test_what_is_no_time(bk: embedbk.Client, log_name: str, given: Any) -> None:
    """Refused at once: nothing is appended, and nothing is waited for."""
    log = bk.log(log_name)
    with log.writer() as writer:
        ticket = writer.append_nowait(b"one")
        for refused in (
            lambda: writer.append(b"two", timeout_s=given),
            lambda: writer.append_batch([b"two"], timeout_s=given),
            lambda: writer.append_many([b"two"], timeout_s=given),
            lambda: writer.flush(given),
            lambda: writer.force(given),
            lambda: ticket.result(given),
            lambda: log.tail(idle_s=given),
            lambda: log.reader().read_bulk(wait_s=given),
            lambda: writer.lost(given),
            lambda: bk.lock("a").until_lost(given),
            lambda: bk.audit(given),
        ):
            with pytest.raises(
                embedbk.UsageError, match=r"(timeout|idle|wait)_s.*(seconds from 0 on|is no time)"
            ):
                refused()
        assert writer.append(b"two").entry_id == 1
