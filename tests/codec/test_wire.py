"""codec/WIRE.md and the constants of the code say the same: every table and the example of the page is read here."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec
import pytest

from embedbk.codec import (
    add_messages,
    attributes,
    bookie_fields,
    entry,
    frame,
    gathering,
    journal_records,
    kernels,
    lac_messages,
    ledger_metadata,
    log_archives,
    log_cursors,
    log_identity,
    log_pages,
    log_pins,
    log_settings,
    log_splices,
    messages,
    metadata_messages,
    quorum_messages,
    registration,
    repair_messages,
    twins,
)
from embedbk.config import ENTRY_BYTES_MAX, FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, STORED_BYTES_MAX
from embedbk.errors import PeerError
from embedbk.metadata import raft_messages, raft_vocabulary, replication

PAGE = (Path(entry.__file__).parent / "WIRE.md").read_text()
TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q"}


def rows(table: str) -> list[list[str]]:
    """The cells of the table that stands behind its comment, without the two lines of its head."""
    found = re.search(rf"<!-- table: {table} -->\n((?:\|.*\n)+)", PAGE)
    assert found, table
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]
    return lines[2:]


def check_layout(table: str, parts: Sequence[struct.Struct], size: int) -> None:
    """The rows lie end to end, fill the header, and have the types that the code packs."""
    code, end = "<", 0
    for offset, field_size, kind, *_ in rows(table):
        assert int(offset) == end
        packed = TYPES.get(kind) or f"{int(kind.removesuffix(' B'))}s"
        assert struct.calcsize("<" + packed) == int(field_size)
        code, end = code + packed, end + int(field_size)
    assert end == size
    assert code == "<" + "".join(part.format.removeprefix("<") for part in parts)


def fields(cell: str) -> tuple[str, ...]:
    return tuple(cell.split(", ")) if cell else ()


def tagged(union: Iterable[object]) -> dict[int, tuple[str, tuple[str, ...]]]:
    return {
        kind.__struct_config__.tag: (kind.__name__, kind.__struct_fields__)
        for kind in union
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__struct_config__.tag
    }


def test_the_headers_lie_as_the_page_says() -> None:
    check_layout("entry", [entry.ENTRY_HEADER], 48)
    check_layout("frame", [frame._HEADER, frame._CRC], frame.FRAME_HEADER_BYTES)
    check_layout("message", [messages._HEADER], messages.MESSAGE_HEADER_BYTES)
    check_layout("add answer", [add_messages._ADD_ANSWER], add_messages.ADD_ANSWER_BYTES)
    check_layout("explicit lac", [lac_messages._EXPLICIT_LAC], lac_messages.EXPLICIT_LAC_BYTES)
    assert twins._HEADER.format == entry.ENTRY_HEADER.format
    assert entry.ENTRY_OVERHEAD_BYTES == 52


def test_the_bounds_are_those_of_the_page() -> None:
    more = STORED_BYTES_MAX - ENTRY_BYTES_MAX
    assert f"together at most {ENTRY_BYTES_MAX}, and {more} more where a TIME is among them |" in PAGE
    assert f"at most {FRAME_BYTES_MAX} |" in PAGE
    assert f"at most {MESSAGE_BYTES_MAX} bytes" in PAGE
    assert f"at most {messages.FRAMES_PER_MESSAGE_MAX} frames" in PAGE


def test_magics_versions_and_flags_are_those_of_the_page() -> None:
    assert rows("frame")[0][4] == f"`{frame.FRAME_MAGIC.decode()}`"
    assert rows("message")[0][4] == f"`{messages.MESSAGE_MAGIC.decode()}`"
    assert {name: int(version) for name, version, _ in rows("versions")} == {
        "entry": entry.ENTRY_VERSION,
        "frame": frame.FRAME_VERSION,
        "message": messages.MESSAGE_VERSION,
        "values": ledger_metadata.METADATA_VERSION,
    }
    assert registration.REGISTRATION_VERSION == ledger_metadata.METADATA_VERSION
    assert {flag: int(bit) for bit, flag, _ in rows("frame flags")} == {
        "FLAG_LAC": frame.FLAG_LAC,
        "FLAG_GAPS": frame.FLAG_GAPS,
    }


def test_kinds_statuses_and_states_are_those_of_the_page() -> None:
    assert {int(kind): (name, fields(cell)) for kind, name, cell in rows("kinds")} == {
        kind: (struct_type.__name__, struct_type.__struct_fields__)
        for struct_type, kind in messages._kind_of.items()
    }
    assert {int(number): name for number, name, _ in rows("statuses")} == {
        status.value: status.name for status in bookie_fields.Status
    }
    assert {int(kind): name for kind, name, _ in rows("attributes")} == {
        kind.value: kind.name for kind in attributes.AttributeKind
    }
    assert f"at most {attributes.PARTS_MAX} |" in PAGE
    assert {int(number): name for number, name, _ in rows("states")} == {
        state.value: state.name for state in ledger_metadata.LedgerState
    }
    assert {int(kind): name for kind, name, _ in rows("records")} == {
        kind.value: kind.name for kind in journal_records.RecordKind
    }
    assert journal_records._LAC.format == "<" + TYPES["i64"] + TYPES["u64"]


def test_values_and_operations_are_those_of_the_page() -> None:
    for name, cell in rows("values"):
        home = next(
            each
            for each in (
                registration,
                log_archives,
                log_identity,
                log_pages,
                log_pins,
                log_cursors,
                log_settings,
                log_splices,
                ledger_metadata,
            )
            if hasattr(each, name)
        )
        assert fields(cell) == getattr(home, name).__struct_fields__, name
    for name, cell in rows("parts"):
        home = next(each for each in (metadata_messages, quorum_messages) if hasattr(each, name))
        assert fields(cell) == getattr(home, name).__struct_fields__, name
    assert {int(tag): (name, fields(cell)) for tag, name, cell in rows("operations")} == tagged(
        (*vars(metadata_messages).values(), *vars(quorum_messages).values(), *vars(repair_messages).values())
    )
    assert {int(tag): (name, fields(cell)) for tag, name, cell in rows("member bodies")} == tagged(
        vars(raft_vocabulary).values()
    )
    assert {int(number): name for number, name, _ in rows("pull statuses")} == {
        status.value: status.name for status in raft_messages.PullStatus
    }
    assert f"at most {raft_vocabulary.APPEND_ENTRIES_MAX} entries" in PAGE
    assert f"at most {replication.APPEND_BYTES_MAX >> 10} KiB" in PAGE
    assert "0: the key must not exist; -1" in PAGE
    assert (metadata_messages.ABSENT, metadata_messages.ANY) == (0, -1)


def test_the_example_of_the_page_is_an_entry() -> None:
    found = re.search(r"```text\n(01 00 .*?)```", PAGE, re.DOTALL)
    assert found
    lines = [line.split("  ")[0] for line in found[1].splitlines()]
    made = entry.encode_entry(7, 2, 12, b"hello", 0, 3)
    assert bytes.fromhex("".join(lines)) == made
    assert entry.read_entry(memoryview(made)).data == b"hello"


@pytest.mark.parametrize("kind", [0, 11, 63, 69, 255])
def test_a_kind_that_the_page_does_not_have_is_refused(kind: int) -> None:
    (whole,) = messages.encode_message(1, messages.ErrorAnswer("x"))
    body = bytearray(whole)
    body[5] = kind
    body[24:28] = kernels.crc32c(body[32:], kernels.crc32c(body[:24])).to_bytes(4, "little")
    with pytest.raises(PeerError, match=f"kind {kind} "):
        messages.decode_message(body)


def test_where_the_leader_is_comes_back_as_said_and_more_than_any_cluster_has_is_refused() -> None:
    """WIRE section 5: an endpoint is a text of up to 255 letters, a list has up to 64."""

    def carried(said: metadata_messages.NotLeader) -> messages.Control:
        (whole,) = messages.encode_message(1, metadata_messages.MetadataReply(7, 3, said))
        return messages.decode_message(whole).control

    for said in (
        metadata_messages.NotLeader("m2", ("tcp://[::1]:4001",), ("tcp://a:1", "ipc:///tmp/m2")),
        metadata_messages.NotLeader(""),
    ):
        assert carried(said) == metadata_messages.MetadataReply(7, 3, said)
    for endpoints in (("x" * 256,), ("tcp://a:1",) * 65):
        with pytest.raises(PeerError):
            carried(metadata_messages.NotLeader("m2", endpoints))


@pytest.mark.parametrize(
    "count", [1, 2, metadata_messages.GATHERED_MAX, metadata_messages.GATHERED_MAX + 1, 1000]
)
@pytest.mark.parametrize("size", [0, 250, gathering.GATHERED_BYTES_MAX])
def test_what_is_gathered_goes_in_order_and_within_its_bounds(count: int, size: int) -> None:
    """WIRE section 5: as many messages as needed, none beyond its bounds, and together all of it in order; keys of
    letters that take four bytes weigh what they take."""
    if size > 250:
        count = min(count, 5)
    key = "/" + "\U0001f512" * 20
    requests = [
        metadata_messages.MetadataRequest(
            1 << 62, at, 1, metadata_messages.Txn([], [metadata_messages.Put(key, bytes(size))]), bytes(16)
        )
        for at in range(count)
    ]
    record = metadata_messages.Record(key, bytes(size), 1 << 62, 1 << 62)
    replies = [
        metadata_messages.MetadataReply(1 << 62, at, metadata_messages.Value(record, 1 << 62))
        for at in range(count)
    ]
    asked: list[metadata_messages.MetadataRequest] = []
    for whole in gathering.encode_requests(requests, 7):
        control = messages.decode_message(b"".join(whole)).control
        one = isinstance(control, metadata_messages.MetadataRequest)
        part = [control] if one else control.requests  # type: ignore[union-attr, attr-defined]
        assert len(part) == 1 or sum(map(len, whole)) <= gathering.GATHERED_BYTES_MAX + 1000
        assert one == (len(part) == 1), "one alone is readable by whoever knows no others"
        asked += part
    assert asked == requests
    told: list[metadata_messages.MetadataReply] = []
    for whole in gathering.encode_replies(replies):
        control = messages.decode_message(b"".join(whole)).control
        assert isinstance(control, metadata_messages.MetadataReplies)
        assert len(control.replies) == 1 or sum(map(len, whole)) <= gathering.GATHERED_BYTES_MAX + 1000
        told += control.replies
    assert told == replies


def test_nothing_and_too_much_is_not_gathered() -> None:
    """A message without a request, or with more than a message may have, is of nobody of ours."""
    one = metadata_messages.MetadataRequest(1, 1, 1, metadata_messages.Get("/x"))
    for many in ([], [one] * (metadata_messages.GATHERED_MAX + 1)):
        (whole,) = messages.encode_message(1, metadata_messages.MetadataRequests(many))
        with pytest.raises(PeerError):
            messages.decode_message(whole)
