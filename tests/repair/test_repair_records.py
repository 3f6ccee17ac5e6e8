"""What workers and auditors keep in the metadata: their bytes (METADATA.md, 11)."""

from __future__ import annotations

import msgspec
import pytest

from embedbk.codec.repair_mark import (
    TARGETS_MAX,
    WHY_CHARS_MAX,
    MarkProgress,
    RepairMark,
    decode_repair_mark,
    encode_repair_mark,
    progress_of,
    with_progress,
)
from embedbk.codec.repair_state import (
    AuditNote,
    RepairControl,
    Unrepairable,
    decode_audit_note,
    decode_repair_control,
    decode_unrepairable,
    encode_audit_note,
    encode_repair_control,
    encode_unrepairable,
)
from embedbk.errors import StorageError

MARK = RepairMark(1, ("b1",), 1000, 2, True)
TARGET = ("b4", bytes(16))


def test_a_mark_carries_its_targets_and_why_it_failed() -> None:
    """P11.2: behind the catalog's own fields, of which the build before decides nothing."""
    mark = with_progress(MARK, MarkProgress((TARGET,), "no answer"))
    read = decode_repair_mark(encode_repair_mark(mark))
    assert progress_of(read) == MarkProgress((TARGET,), "no answer")
    assert (read.missing, read.tries, read.is_postponed) == (("b1",), 2, True)
    assert progress_of(MARK) == MarkProgress()


@pytest.mark.parametrize(
    "rest", [(b"\xc0",), (b"\x91\x92\xa2b4\xc4\x01x",), (b"\x90", b"\x01"), (b"\xa1b", b"\xc0")]
)
def test_progress_that_cannot_be_read_is_none(rest: tuple[bytes, ...]) -> None:
    """P2.5: any client may write there."""
    assert progress_of(msgspec.structs.replace(MARK, rest=rest)) == MarkProgress()


def test_a_mark_keeps_the_newest_targets() -> None:
    """Fields of later builds stay."""
    targets = tuple((f"b{number}", bytes(16)) for number in range(TARGETS_MAX + 2))
    later = msgspec.structs.replace(MARK, rest=(b"\x90", b"\xa0", b"\x07"))
    mark = with_progress(later, MarkProgress(targets, "x" * (WHY_CHARS_MAX + 1)))
    assert progress_of(mark) == MarkProgress(targets[2:], "x" * WHY_CHARS_MAX)
    assert mark.rest[2:] == (b"\x07",)


def test_the_others_are_read_as_written_and_other_versions_refused() -> None:
    """P10.8."""
    control, note = (
        RepairControl(is_stopped=True, triggers=3, by="somebody"),
        AuditNote(after=7, away=("b1",)),
    )
    lost = Unrepairable(1, 0, 17, ("b1",), "entry 17", b"d" * 16)
    assert decode_repair_control(encode_repair_control(control)) == control
    assert decode_audit_note(encode_audit_note(note)) == note
    assert decode_unrepairable(encode_unrepairable(lost)) == lost
    for decode, value in (
        (decode_repair_control, encode_repair_control(RepairControl(2))),
        (decode_audit_note, encode_audit_note(AuditNote(2))),
        (decode_unrepairable, encode_unrepairable(msgspec.structs.replace(lost, version=2))),
    ):
        with pytest.raises(StorageError, match="version 2"):
            decode(value)
