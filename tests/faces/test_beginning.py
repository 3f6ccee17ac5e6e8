"""A directory that is not mounted never becomes a new cluster without a word: `create`, parents, addresses."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.client.beginning import check_path
from embedbk.cluster import Cluster
from embedbk.errors import EmbedbkError, StorageError, UsageError

Opening = Callable[..., Any]


def opened(path: Any, **given: Any) -> list[str]:
    with embedbk.open(path, **given) as bk:
        return [each.bookie_id for each in bk.bookies()]


def awaited(path: Any, **given: Any) -> list[str]:
    async def steps() -> list[str]:
        async with aio.open(path, **given) as bk:
            return [each.bookie_id for each in await bk.bookies()]

    return asyncio.run(steps())


def as_peers(path: Any, **given: Any) -> list[str]:
    with Cluster(path, given.pop("bookies", 3), **given) as cluster:
        return list(cluster.bookie_ids)


FACES = [opened, awaited, as_peers]


def everything(path: Path) -> list[Path]:
    return sorted(path.rglob("*"))


def make(path: Path, settings: embedbk.Settings, **given: Any) -> None:
    with (
        embedbk.open(path, settings=settings, **given) as bk,
        bk.create_ledger() as writer,
    ):
        writer.add(b"there")


# A new cluster, and none.


@pytest.mark.parametrize("face", FACES)
def test_what_is_missing_or_empty_is_refused_where_nothing_is_to_be_made(
    tmp_path: Path, settings: embedbk.Settings, face: Opening
) -> None:
    """A mount point without its mount is empty: create=False opens what is there, and makes nothing in it."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "formatted" / "lost+found").mkdir(parents=True)
    (tmp_path / "emptied" / "metadata").mkdir(parents=True)
    before = everything(tmp_path)
    for name in ("missing", "empty", "formatted", "emptied"):
        with pytest.raises(StorageError, match=rf"{name}.*(missing|empty|holds no cluster)") as refused:
            face(tmp_path / name, create=False, settings=settings)
        assert "create=True" in str(refused.value)
    found = [path for path in everything(tmp_path) if path.suffix != ".log"]  # Where a peer says why.
    assert [path for path in found if path.name not in ("b1", "b2", "b3", "OWNER")] == before


@pytest.mark.parametrize("face", FACES)
def test_what_is_there_is_opened(data: Path, settings: embedbk.Settings, face: Opening) -> None:
    make(data, settings)
    assert face(data, create=False, settings=settings) == ["b1", "b2", "b3"]


@pytest.mark.parametrize("face", FACES)
def test_parents_are_never_made(tmp_path: Path, settings: embedbk.Settings, face: Opening) -> None:
    """The device of which a directory was given is not there: nothing is made in its place, whatever `create` says."""
    for create in (True, False):
        with pytest.raises(StorageError, match=r"away is missing.*not mounted") as refused:
            face(tmp_path / "away" / "data", create=create, settings=settings)
        assert refused.value.definite
    for given in (
        {"journal_directories": [tmp_path / "away" / "j"]},
        {"ledger_directories": [tmp_path, tmp_path / "away" / "l"]},
    ):
        with pytest.raises(StorageError, match=r"away is missing.*not mounted"):
            face(tmp_path / "data", settings=settings, **given)
    assert everything(tmp_path) == []


def test_each_device_of_a_cluster_must_be_there(tmp_path: Path, settings: embedbk.Settings) -> None:
    """One of its devices is not mounted: an empty directory in its place is refused and stays empty."""
    devices = {
        "journal_directories": [tmp_path / "j1", tmp_path / "j2"],
        "ledger_directories": [tmp_path / "l1", tmp_path / "l2"],
    }
    data = tmp_path / "data"
    make(data, settings, **devices)
    assert opened(data, create=False, settings=settings, **devices)
    for name in ("j1", "j2", "l1", "l2"):
        (tmp_path / name).rename(tmp_path / "away")
        with pytest.raises(StorageError, match=f"{name} is missing"):
            opened(data, create=False, settings=settings, **devices)
        (tmp_path / name).mkdir()
        with pytest.raises(EmbedbkError, match=name):
            opened(data, create=False, settings=settings, **devices)
        assert everything(tmp_path / name) == []
        (tmp_path / name).rmdir()
        (tmp_path / "away").rename(tmp_path / name)
    devices["ledger_directories"].append(tmp_path / "l3")
    (tmp_path / "l3").mkdir()
    assert opened(
        data, create=False, settings=settings, expands=True, **devices
    )  # What was asked for by name.


def test_no_bookie_is_added_where_nothing_is_to_be_made(data: Path, settings: embedbk.Settings) -> None:
    with embedbk.open(data, bookies=1, settings=settings):
        pass
    with pytest.raises(UsageError, match=r"has 1 .*create=False makes none"):
        embedbk.open(data, bookies=3, create=False, settings=settings)
    assert not (data / "b2").exists()


def test_a_new_cluster_is_told(
    data: Path, settings: embedbk.Settings, caplog: pytest.LogCaptureFixture
) -> None:
    """At WARNING, with its path, once: who expected an old one sees it."""
    caplog.set_level(logging.WARNING, logger="embedbk")
    make(data, settings)
    told = [record for record in caplog.records if str(data) in record.getMessage()]
    assert [(record.levelname, record.getMessage()) for record in told] == [
        ("WARNING", f"a new cluster begins in {data}")
    ]
    caplog.clear()
    make(data, settings)
    assert not [record for record in caplog.records if "begins" in record.getMessage()]


def test_create_is_a_truth_value(data: Path) -> None:
    for given in (0, None, "no"):
        with pytest.raises(UsageError, match="create="):
            opened(data, create=given)
        with pytest.raises(UsageError, match="create="):
            Cluster(data, create=given)  # type: ignore[arg-type]


# Addresses.


@pytest.mark.parametrize("given", ["", "a\0b", "no text \udcff"])
def test_what_is_no_path_for_a_bookie_is_refused_and_nothing_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """A variable that is not set must not begin a cluster in the working directory."""
    monkeypatch.chdir(tmp_path)
    for begin in (
        lambda: embedbk.open(given),
        lambda: Cluster(given),
        lambda: embedbk.open("data", ledger_directories=[given]),
    ):
        with pytest.raises(UsageError, match=r"no path|no text in UTF-8"):
            begin()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "given",
    [
        "http://127.0.0.1:7000", "https://host/x", "embedbk:127.0.0.1:7000", "EMBEDBK://127.0.0.1:7000", "embedbk:/h:1",
        " embedbk://h:1", "tcp://127.0.0.1:7000", "ipc:///tmp/x", "ipc:/tmp/x", "localhost:7000", "127.0.0.1:7000",
        Path("http://127.0.0.1:7000"), Path("embedbk://127.0.0.1:7000"), "s3://bucket/x", b"http://h:1",
    ],
)  # fmt: skip
def test_what_looks_like_an_address_is_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Any
) -> None:
    """A slip in an address must not become an empty cluster in a directory of that name."""
    monkeypatch.chdir(tmp_path)
    if not isinstance(given, bytes):
        with pytest.raises(UsageError, match=r"looks like an address.*embedbk://HOST:PORT"):
            opened(given)
        with pytest.raises(UsageError, match="looks like an address"):
            Cluster(given)
    for name in ("journal_directories", "ledger_directories"):
        if not isinstance(given, bytes):
            with pytest.raises(UsageError, match=f"{name}.*looks like an address"):
                opened(tmp_path / "data", **{name: [given]})
    with pytest.raises(UsageError, match="looks like an address"):
        check_path(given)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "given", ["./http:x", "/tmp/a:1", "data", "run-2026.1", "./localhost:7000", "a:b", "c:"]
)
def test_other_names_are_directories(given: str) -> None:
    assert check_path(given) == Path(given)


# The peer commands.


def peer(*arguments: Any) -> tuple[int, str]:
    """A peer that is to refuse: its exit code, and what it says."""
    command = [sys.executable, "-m", "embedbk", *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return ended.returncode, ended.stderr


def test_peers_refuse_what_open_refuses(tmp_path: Path, settings: embedbk.Settings) -> None:
    """`embedbk metadata --dir` and `embedbk bookie --dir`, `--journal-dir`, `--ledger-dir`: parents, --no-create,
    addresses; and nothing is made."""
    with Cluster(tmp_path / "cluster", bookies=1, settings=settings) as cluster:
        bookie = ["bookie", "--id", "b9", "--metadata", cluster.url]
        empty, away, new = tmp_path / "empty", tmp_path / "away", tmp_path / "new"
        empty.mkdir()
        before = [path for path in everything(tmp_path) if tmp_path / "cluster" not in path.parents]
        for arguments, said in (
            (["metadata", "--dir", away / "m"], "away is missing"),
            (["metadata", "--dir", new, "--no-create"], "new is missing"),
            (["metadata", "--dir", empty, "--no-create"], "empty is empty"),
            (["metadata", "--dir", empty], "empty is empty: does this member begin a cluster, or join one"),
            (["metadata", "--dir", new], "embedbk metadata --new --dir .*new begins .* --join HOST:PORT"),
            (["metadata", "--dir", new, "--new", "--join", cluster.url], "--new and --join"),
            (["metadata", "--dir", new, "--join", cluster.url, "--name", "m 2"], "'m 2' is not allowed"),
            (["metadata", "--dir", new, "--join", "-"], "--join -: it is read from the parent's pipe"),
            (["metadata", "--dir", "embedbk://127.0.0.1:1"], "looks like an address"),
            ([*bookie, "--dir", away / "b9"], "away is missing"),
            ([*bookie, "--dir", new, "--no-create"], "new is missing"),
            ([*bookie, "--dir", empty, "--no-create"], "empty is empty"),
            ([*bookie, "--dir", new, "--journal-dir", away / "j"], "journal directory .*away is missing"),
            ([*bookie, "--dir", new, "--ledger-dir", away / "l"], "ledger directory .*away is missing"),
            ([*bookie, "--dir", new, "--ledger-dir", "http://x"], "ledger directory .*looks like an address"),
            (
                [*bookie, "--dir", empty, "--journal-dir", empty, "--ledger-dir", new, "--no-create"],
                "journal directory .*empty is empty|ledger directory .*new is missing",
            ),
        ):
            code, told = peer(*arguments)
            assert code == 1, told
            assert re.search(said, told), told
        after = [path for path in everything(tmp_path) if tmp_path / "cluster" not in path.parents]
        assert after == before
    said = {name: (tmp_path / "cluster" / f"{name}.log").read_text() for name in ("m1", "b1")}
    assert f"WARNING embedbk.cli.peer: a new cluster begins in {tmp_path}/cluster/metadata" in said["m1"]
    assert f"WARNING embedbk.cli.peer: a new bookie b1 begins in {tmp_path}/cluster/b1" in said["b1"]


def test_what_a_cluster_begins_in_has_its_name_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I49: else a loss of power takes the directories of a cluster that acknowledged appends, and the next start begins
    a new one; and the note of the bookies that live there."""
    synced: list[str] = []
    sync = os.fsync

    def note(file: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{file}"))
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    devices = [tmp_path / "fast"], [tmp_path / "slow"]
    opened(tmp_path / "data", bookies=1, journal_directories=devices[0], ledger_directories=devices[1])
    root = str(tmp_path / "data")
    assert str(tmp_path) in synced
    assert root in synced[synced.index(f"{root}/BOOKIES.new") :]
    assert root in synced[: synced.index(f"{root}/b1/METADATA_MET.new")], "the bookie's own directory"
