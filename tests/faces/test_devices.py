"""Several devices under a whole cluster: the directories that `embedbk.open` and `Cluster` take (P7.2, scenario 43)."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.cluster import Cluster


def devices(root: Path, ledger_count: int = 2) -> dict[str, Any]:
    """Two journals and so many ledger directories, each where another device could be."""
    return {
        "journal_directories": [root / f"journal{number}" for number in (1, 2)],
        "ledger_directories": [str(root / f"ledgers{number}") for number in range(1, ledger_count + 1)],
    }


def write(bk: embedbk.Client, ids: list[int], count: int = 4) -> None:
    for _ in range(count):
        with bk.create_ledger() as writer:
            writer.add_many([b"%d %d" % (writer.ledger_id, number) for number in range(100)])
            ids.append(writer.ledger_id)


def check(bk: embedbk.Client, ids: list[int]) -> None:
    for ledger_id in ids:
        with bk.open_ledger(ledger_id) as ledger:
            found = [bytes(entry) for entry in ledger.read()]
        assert found == [b"%d %d" % (ledger_id, number) for number in range(100)]


def test_a_cluster_over_several_devices_in_this_process_and_as_peers(
    tmp_path: Path, data: Path, settings: embedbk.Settings
) -> None:
    """P7.2: one set of directories, one cluster: embedded, as peers with one ledger directory more, embedded again."""
    ids: list[int] = []
    with embedbk.open(data, settings=settings, **devices(tmp_path)) as bk:
        write(bk, ids)
    with (
        Cluster(data, bookies=3, settings=settings, expands=True, **devices(tmp_path, 3)) as cluster,
        embedbk.open(cluster.url) as bk,
    ):
        check(bk, ids)
        write(bk, ids)
        cluster.kill("b1")
        cluster.restart("b1")
        write(bk, ids)

    async def awaited() -> list[int]:
        async with aio.open(data, settings=settings, **devices(tmp_path, 3)) as again:
            return await again.ledgers()

    assert asyncio.run(awaited()) == ids
    with embedbk.open(data, settings=settings, **devices(tmp_path, 3)) as bk:
        check(bk, ids)
    for bookie_id in ("b1", "b2", "b3"):
        for journal in ("journal1", "journal2"):
            assert list((tmp_path / journal / bookie_id).glob("journal-*")), "each has one of its own there"
        assert not (data / bookie_id / "journal").exists()
        assert not (data / bookie_id / "entries").exists()


def test_a_killed_process_loses_nothing_acknowledged_on_any_device(
    tmp_path: Path, data: Path, settings: embedbk.Settings
) -> None:
    """I40, P3.2: acknowledged by a cluster whose ledgers share two journals, then SIGKILL."""
    story = (
        "import embedbk, os, sys\n"
        "data, *places = sys.argv[1:]\n"
        "settings = embedbk.Settings(journal_file_bytes=2 << 20, open_timeout_s=120)\n"
        "bk = embedbk.open(data, settings=settings, journal_directories=places)\n"
        "for number in range(4):\n"
        "    bk.create_ledger().add_many([b'%d' % n for n in range(500)])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    places = [str(place) for place in devices(tmp_path)["journal_directories"]]
    ended = subprocess.run([sys.executable, "-c", story, str(data), *places], check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    with embedbk.open(data, settings=settings, journal_directories=places) as bk:
        assert len(bk.ledgers()) == 4
        for ledger_id in bk.ledgers():
            with bk.open_ledger(ledger_id, recover=True) as ledger:
                assert [bytes(entry) for entry in ledger.read()] == [b"%d" % n for n in range(500)]


def test_other_directories_than_it_was_made_with_are_refused(
    tmp_path: Path, data: Path, settings: embedbk.Settings
) -> None:
    """P7.2: a device that is not there, in another order or beyond the set is said, never taken for an empty one."""
    made, wider = devices(tmp_path), devices(tmp_path, 3)
    ids: list[int] = []
    with embedbk.open(data, settings=settings, **made) as bk:
        write(bk, ids, 2)
    turned = {**made, "journal_directories": made["journal_directories"][::-1]}
    one = {**made, "journal_directories": made["journal_directories"][:1]}
    for given, said in (
        ({}, "with other directories; none of these is there.*journal_directories="),
        (one, "exactly the directories"),
        (turned, "swapped|order"),
        (wider, "expands=True"),
    ):
        with pytest.raises(embedbk.EmbedbkError, match=said):
            embedbk.open(data, settings=settings, **given)
    held = sorted(path.name for path in (data / "b1").glob("*"))
    assert held == ["METADATA_MET", "PARTS"], "nothing was made in their place"
    place = tmp_path / "ledgers2" / "b2"
    place.rename(tmp_path / "away")
    with pytest.raises(embedbk.StorageError, match="ledgers2"):
        embedbk.open(data, settings=settings, **made)
    with pytest.raises(embedbk.StorageError, match="ledgers2"):
        Cluster(data, bookies=3, settings=settings, **made).start()
    assert not place.exists(), "no start made an empty one in its place"
    (tmp_path / "away").rename(place)
    with embedbk.open(data, settings=settings, **made) as bk:
        check(bk, ids)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"journal_directories": "disk1"}, r"journal_directories='disk1': a list of directories"),
        ({"ledger_directories": [b"disk1"]}, r"a list of directories"),
        ({"ledger_directories": ["disk1", "./disk1"]}, "are one directory"),
        ({"journal_directories": [f"disk{number}" for number in range(17)]}, "at most 16"),
    ],
)
def test_what_is_no_set_of_directories(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: embedbk.Settings,
    given: dict[str, Any],
    said: str,
) -> None:
    """Refused with what was given and what is allowed, and nothing is left running."""
    monkeypatch.chdir(tmp_path)
    for begin in (
        lambda: embedbk.open("data", settings=settings, **given),
        lambda: Cluster("data", bookies=1, settings=settings, **given).start(),
    ):
        with pytest.raises(embedbk.UsageError, match=said):
            begin()


def test_an_address_has_no_directories() -> None:
    """Who only asks a cluster for its service cannot say where its bookies keep things."""
    with pytest.raises(embedbk.UsageError, match="is a cluster that runs"):
        embedbk.open("embedbk://127.0.0.1:1", ledger_directories=["disk1"])
