"""What a node notes of the metadata members, and what it makes of such a note (METADATA.md, 6)."""

from __future__ import annotations

import errno
import logging
from functools import partial
from pathlib import Path

import pytest

from embedbk.client.entering import note_endpoints
from embedbk.host.known_members import MEMBERS_FILE, KnownMembers, NotedMembers, noted_members
from embedbk.quorum import listened_at
from embedbk.storage.noted import replace_durably
from embedbk.transports.endpoints import check_endpoint

TOKEN = b"t" * 16
A, B = "tcp://127.0.0.1:1", "tcp://127.0.0.1:2"


def noted(directory: Path) -> NotedMembers:
    return noted_members(directory, partial(check_endpoint, is_listening=False, allow_non_loopback=False))


def test_what_a_leader_told_is_noted_and_outlives_the_process(tmp_path: Path) -> None:
    told: list[str] = []
    node = KnownMembers(tmp_path, TOKEN, lambda: tuple(told), noted(tmp_path), replace_durably)
    assert not node.has_news()
    node.step(0)
    assert not (tmp_path / MEMBERS_FILE).exists(), "nobody told anything"
    told += [A, B]
    assert node.has_news(), "it is stepped when its client has learnt of others"
    node.step(1)
    assert not node.has_news()
    assert noted(tmp_path) == (TOKEN, (A, B))
    told.clear()
    node.step(2)
    assert noted(tmp_path) == (TOKEN, (A, B)), "a client between two leaders forgets nobody"
    told.append(B)
    KnownMembers(tmp_path, TOKEN, lambda: tuple(told), noted(tmp_path), replace_durably).step(3)
    assert noted(tmp_path) == (TOKEN, (B,)), "who left is not asked for ever"
    KnownMembers(tmp_path, b"u" * 16, lambda: tuple(told), noted(tmp_path), replace_durably).step(4)
    assert noted(tmp_path).token == b"u" * 16, "the same address in another cluster"


@pytest.mark.parametrize("where", ["ipc:///tmp/Größe/m 1.sock", "ipc:///tmp/\u2028/m1.sock"])
def test_a_path_of_any_letters_is_noted_as_it_is(tmp_path: Path, where: str) -> None:
    """METADATA.md, 6: and read again, also where a member's directory says where it listened."""
    KnownMembers(tmp_path, TOKEN, lambda: (where, B), noted(tmp_path), replace_durably).step(0)
    assert noted(tmp_path) == (TOKEN, (where, B))
    note_endpoints(tmp_path, [where, B])
    assert listened_at(tmp_path) == [where, B]


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 90, b"xyz\n" + A.encode(), b"74\nnowhere", b"74\ntcp://10.0.0.1:5", b"\xff\n"]
)
def test_a_damaged_note_costs_its_addresses_only(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / MEMBERS_FILE).write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert noted(tmp_path) == (b"", ())
    assert "is not used" in caplog.text
    assert "index" not in caplog.text
    KnownMembers(tmp_path, TOKEN, lambda: (A,), noted(tmp_path), replace_durably).step(0)
    assert noted(tmp_path) == (TOKEN, (A,))


def test_a_note_takes_the_place_of_the_one_before_once_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """METADATA.md, 6: "one that cannot be written stays as it was". Behind a power cut the file was empty."""
    KnownMembers(tmp_path, TOKEN, lambda: (A,), noted(tmp_path), replace_durably).step(0)

    def fails(descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk")

    with monkeypatch.context() as disk:
        disk.setattr("embedbk.storage.noted.os.fsync", fails)
        KnownMembers(tmp_path, TOKEN, lambda: (A, B), noted(tmp_path), replace_durably).step(1)
    assert "cannot be written" in caplog.text
    assert noted(tmp_path) == (TOKEN, (A,))


def test_a_note_that_cannot_be_written_stops_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    gone = tmp_path / "gone"
    KnownMembers(gone, TOKEN, lambda: (A,), noted(gone), replace_durably).step(0)
    assert "cannot be written" in caplog.text
    assert noted(gone) == (b"", ())
