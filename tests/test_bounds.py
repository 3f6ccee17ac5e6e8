"""BOUNDS.md and the code say the same: each bound stands there with its value and with a test that reaches it."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import embedbk
import embedbk.codec
from embedbk.codec import messages
from embedbk.codec.attributes import SEQUENCE_MAX, Producer, encode_attributes
from embedbk.codec.entry import ENTRY_LENGTH_MAX, encode_entry, read_entry
from embedbk.codec.field_types import ENDPOINTS_MAX as MEMBERS_ENDPOINTS_MAX
from embedbk.codec.frame import encode_frame_header, frame_of
from embedbk.codec.messages import (
    FRAMES_PER_MESSAGE_MAX,
    MESSAGES_PER_BUNDLE_MAX,
    ErrorAnswer,
    decode_message,
    encode_bundle,
    encode_message,
    split_bundle,
)
from embedbk.codec.metadata_messages import MetadataReply, MetadataRequest, NotLeader
from embedbk.codec.quorum_messages import MEMBERS_MAX, ChangeVoters, MemberName
from embedbk.codec.registration import (
    ENDPOINTS_MAX,
    REGISTRATION_VERSION,
    TEXT_CHARS_MAX,
    Registration,
    decode_registration,
    encode_registration,
)
from embedbk.errors import PeerError, StorageError, UsageError

TESTS = Path(__file__).parent
PAGE = (Path(embedbk.__file__).parent / "BOUNDS.md").read_text()

_BOUND = re.compile(r"^([A-Z][A-Z0-9_]*_(?:MAX|MIN)(?:_[A-Z0-9_]+)?)(?:\s*:[^=\n]+)?\s*=", re.MULTILINE)


def in_code() -> Iterator[tuple[str, int]]:
    """Every bound with a public name, as the page calls it."""
    names = ["embedbk.config", "embedbk.ids"]
    names += [f"embedbk.codec.{found.name}" for found in pkgutil.iter_modules(embedbk.codec.__path__)]
    for name in names:
        module = importlib.import_module(name)
        path = Path(str(module.__file__))
        for bound in _BOUND.findall(path.read_text()) if path.suffix == ".py" else ():
            yield f"{name.rpartition('.')[2]}.{bound}", getattr(module, bound)


def rows() -> list[list[str]]:
    """Of both tables: bound, value, ..., the test."""
    lines = [line for line in PAGE.splitlines() if re.match(r"\| [a-z_]+\.[A-Z_]+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_bound_stands_on_the_page_with_its_value() -> None:
    on_page = {row[0]: row[1] for row in rows()}
    assert len(on_page) == len(rows()), "one row each"
    assert on_page == {name: str(value) for name, value in in_code()}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_each_is_reached_by_a_test(row: list[str]) -> None:
    path, _, name = row[-1].partition("::")
    assert re.search(rf"^ *(?:async )?def {name}\(", (TESTS / path).read_text(), re.MULTILINE), row[-1]
    assert all(row[2:4]), "what reaches it and what it answers, or what it holds"


# Those that no other test reaches.


def test_a_producer_or_sequence_beyond_its_bound_is_refused() -> None:
    assert encode_attributes((), Producer(SEQUENCE_MAX, SEQUENCE_MAX))
    for beyond in (Producer(SEQUENCE_MAX + 1, 0), Producer(0, SEQUENCE_MAX + 1), Producer(0, -1)):
        with pytest.raises(UsageError, match=f"whole numbers of 0 to {SEQUENCE_MAX}"):
            encode_attributes((), beyond)


def test_no_entry_says_a_length_beyond_its_bound() -> None:
    """The payload bytes of a ledger so far: an int64 in everything that is built on it."""
    assert read_entry(memoryview(encode_entry(1, 0, ENTRY_LENGTH_MAX, b"x"))).length == ENTRY_LENGTH_MAX
    with pytest.raises(PeerError, match="impossible numbers"):
        read_entry(memoryview(encode_entry(1, 0, ENTRY_LENGTH_MAX + 1, b"x")))


def test_a_message_of_too_many_frames_is_refused() -> None:
    frame = frame_of(memoryview(encode_entry(1, 0, 1, b"x")))
    header = encode_frame_header(frame, bytes(16))
    most = b"".join(encode_message(1, ErrorAnswer(""), [(header, frame)] * FRAMES_PER_MESSAGE_MAX))
    assert len(decode_message(most).frames) == FRAMES_PER_MESSAGE_MAX
    more = b"".join(encode_message(1, ErrorAnswer(""), [(header, frame)] * (FRAMES_PER_MESSAGE_MAX + 1)))
    with pytest.raises(PeerError):
        decode_message(more)


def test_a_bundle_of_too_many_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    one = [b"".join(encode_message(1, ErrorAnswer("")))]
    most = b"".join(encode_bundle([one] * MESSAGES_PER_BUNDLE_MAX))
    assert len(split_bundle(memoryview(most))) == MESSAGES_PER_BUNDLE_MAX
    with monkeypatch.context() as patch:  # As a peer that knows no bound would.
        patch.setattr(messages, "MESSAGES_PER_BUNDLE_MAX", MESSAGES_PER_BUNDLE_MAX + 1)
        more = b"".join(encode_bundle([one] * (MESSAGES_PER_BUNDLE_MAX + 1)))
    with pytest.raises(PeerError, match="bundle"):
        split_bundle(memoryview(more))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            [f"--listen=ipc:///tmp/{number}" for number in range(ENDPOINTS_MAX + 1)],
            r"17 endpoints.*at most 16",
        ),
        (["--location", "z" * (TEXT_CHARS_MAX + 1)], r"513 characters.*at most 512"),
    ],
)
def test_a_bookie_that_nobody_could_read_does_not_start(tmp_path: Path, given: list[str], said: str) -> None:
    """Its registration would be refused by everybody who reads it: it is told so, before anything is made."""
    command = [sys.executable, "-m", "embedbk", "bookie", "--id", "b1", "--dir", str(tmp_path / "b1")]
    command += ["--metadata", "tcp://127.0.0.1:1", *given]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 1
    assert re.search(said, ended.stderr), ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_registration_at_its_bounds_is_read_and_one_beyond_is_not() -> None:
    text = "x" * TEXT_CHARS_MAX
    most = Registration(REGISTRATION_VERSION, "b1", bytes(16), [text] * ENDPOINTS_MAX, True, 0, text)
    assert decode_registration(encode_registration(most)) == most
    for beyond in (
        Registration(REGISTRATION_VERSION, "b1", bytes(16), ["x"] * (ENDPOINTS_MAX + 1), True, 0),
        Registration(REGISTRATION_VERSION, "b1", bytes(16), [text + "x"], True, 0),
        Registration(REGISTRATION_VERSION, "b1", bytes(16), [], True, 0, text + "x"),
    ):
        with pytest.raises(StorageError):
            decode_registration(encode_registration(beyond))


def test_no_answer_names_more_endpoints_than_a_cluster_can_have() -> None:
    """Seven voters with eight endpoints each, and no more than a client has to remember."""
    for count, is_known in ((MEMBERS_ENDPOINTS_MAX, True), (MEMBERS_ENDPOINTS_MAX + 1, False)):
        answer = MetadataReply(1, 1, NotLeader("", (), ("tcp://127.0.0.1:1",) * count))
        with contextlib.nullcontext() if is_known else pytest.raises(PeerError):
            assert decode_message(b"".join(encode_message(1, answer))).control == answer


def test_no_change_names_more_members_than_a_cluster_can_have() -> None:
    """Voters, those that leave, and learners."""
    for count, is_known in ((MEMBERS_MAX, True), (MEMBERS_MAX + 1, False)):
        change = ChangeVoters(1, tuple(MemberName(f"m{n}", bytes(16)) for n in range(count)))
        request = MetadataRequest(0, 1, 1, change)
        with contextlib.nullcontext() if is_known else pytest.raises(PeerError):
            assert decode_message(b"".join(encode_message(1, request))).control == request
