"""P11.5: a bookie replaces a copy by an operator's word alone, and only the copy that the word is about."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from embedbk.codec.add_messages import ReplaceAnswer, ReplaceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.copy_decision import CopyDecision, DecidedCopy
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import Frame, frame_of
from embedbk.codec.messages import ErrorAnswer
from tests.rules.test_p7_bookie import STRANGER, b1, world_with_entries
from tests.rules.world import World

OTHER = encode_entry(1, 1, 14, b"another")
THIRD = encode_entry(1, 1, 14, b"a third")


def frame(entry: bytes) -> Frame:
    return frame_of(memoryview(entry))


def stored(world: World, entry_id: int = 1) -> bytes:
    found = b1(world).storage.read(1, entry_id, entry_id, 1000).frame
    assert found is not None
    return bytes(found.body)


def word(world: World, entry: bytes, replaces: bytes) -> CopyDecision:
    """An operator's, that this copy on b1 gives way to this entry, which b2 has."""
    goes = DecidedCopy("b1", b1(world).member.incarnation, entry_digest(replaces))
    return CopyDecision(DecidedCopy("b2", b"2" * 16, entry_digest(entry)), (goes,))


def asked(
    world: World,
    entry: bytes,
    replaces: bytes,
    *,
    entry_id: int = 1,
    ledger_id: int = 1,
    disk: bytes = b"",
    decided: tuple[CopyDecision, ...] | str | None = "the same",
) -> list[object]:
    request = ReplaceRequest(
        disk or b1(world).member.incarnation, ledger_id, entry_id, entry_digest(replaces)
    )
    told = (word(world, entry, replaces),) if isinstance(decided, str) else decided
    world.decided[ledger_id, entry_id] = told
    world.ask("b1", request, frame(entry))
    return list(world.heard())


def test_the_copy_that_is_meant_is_replaced_and_answered_when_that_is_durable() -> None:
    """P11.5: "a bookie compares": I40: an answer that promises durability follows it."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    assert asked(world, OTHER, held) == []
    b1(world).sync()
    assert world.heard()[-1] == ReplaceAnswer(Status.OK, 1, 1, entry_digest(OTHER))
    assert stored(world) == OTHER
    # Asked again, as after an answer that was lost: it is there.
    assert asked(world, OTHER, held)[-1] == ReplaceAnswer(Status.OK, 1, 1, entry_digest(OTHER))


def test_any_other_copy_stays() -> None:
    """P3.4c: another payload overwrites nothing, unless the word names what is held."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    assert asked(world, OTHER, THIRD) == [ReplaceAnswer(Status.CONFLICT, 1, 1, entry_digest(held))]
    assert stored(world) == held


def test_nobody_replaces_a_copy_who_has_no_word_for_it() -> None:
    """P11.5: a bookie reads the word in the metadata: whoever reaches it can ask. "Cannot tell" is never "yes"."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    meant = word(world, OTHER, held)
    elsewhere = replace(meant.replaced[0], incarnation=b"3" * 16)
    for decided in (
        (),
        (word(world, THIRD, held),),  # Another copy is the right one.
        (word(world, OTHER, THIRD),),  # Another copy gives way.
        (replace(meant, replaced=(elsewhere,)),),  # On another disk.
        (meant, word(world, THIRD, held)),  # A later word.
    ):
        assert asked(world, OTHER, held, decided=decided) == [ReplaceAnswer(Status.WRONG_KEY, 1, 1)]
    assert asked(world, OTHER, held, decided=None) == [ReplaceAnswer(Status.UNKNOWN, 1, 1)]
    assert stored(world) == held
    asked(world, OTHER, held, decided=(word(world, THIRD, held), meant))
    assert stored(world) == OTHER


def test_what_is_not_held_is_not_made() -> None:
    """An entry that was never there, and one beyond the last."""
    world, _, _ = world_with_entries(3)
    beyond = encode_entry(1, 9, 80, b"another")
    assert asked(world, beyond, OTHER, entry_id=9) == [ReplaceAnswer(Status.CONFLICT, 1, 9, 0)]


def test_of_two_words_at_once_one_is_answered_later() -> None:
    """Both would meet the copy that each may replace: the one that was looked up last would win, whoever decided it."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    core = b1(world).core
    request = ReplaceRequest(b1(world).member.incarnation, 1, 1, entry_digest(held))
    looks = core.replacing.on_request(_event(world, request, OTHER), request)
    assert len(looks) == 1
    (reply,) = core.replacing.on_request(_event(world, request, THIRD), request)
    assert reply.control == ReplaceAnswer(Status.BUSY, 1, 1)


def _event(world: World, request: ReplaceRequest, entry: bytes):  # type: ignore[no-untyped-def]
    from embedbk.codec.frame import FrameHeader
    from embedbk.core.bookie_words import RequestReceived

    made = frame(entry)
    header = FrameHeader(1, 1, 1, 1, len(entry), -1, 0, False, bytes(16))
    return RequestReceived(0, 1, 99, request, [(header, made.body)])


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"disk": STRANGER}, Status.WRONG_INCARNATION),
        ({"ledger_id": 77}, Status.NO_SUCH_LEDGER),
        ({"entry_id": 2}, Status.BAD_FRAME),
    ],
)
def test_bytes_that_no_client_sends_change_nothing(change: dict[str, object], status: Status) -> None:
    """P7.2: another disk; an entry of another ledger or id than is asked about."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    (answer,) = asked(world, OTHER, held, **change)  # type: ignore[arg-type]
    assert isinstance(answer, ReplaceAnswer)
    assert answer.status == status
    assert stored(world) == held


def test_a_request_without_its_entry_is_refused() -> None:
    world, _, _ = world_with_entries(3)
    world.ask("b1", ReplaceRequest(b1(world).member.incarnation, 1, 1, 0))
    (answer,) = world.heard()
    assert isinstance(answer, ErrorAnswer)


def test_several_entries_in_one_frame_are_none_of_it() -> None:
    world, _, _ = world_with_entries(3)
    two = OTHER + encode_entry(1, 2, 21, b"another")
    (answer,) = asked(world, two, stored(world))
    assert answer == ReplaceAnswer(Status.BAD_FRAME, 1, 1)


def test_behind_a_failed_journal_nothing_is_promised() -> None:
    """P7.6: the answer to a replacement that will never be durable is unknown, and so is every later one."""
    world, _, _ = world_with_entries(3)
    held = stored(world)
    assert asked(world, OTHER, held) == []
    b1(world).storage.fail_next_sync("a bad sector")
    b1(world).sync()
    assert all(answer.status == Status.UNKNOWN for answer in world.heard())
    assert asked(world, OTHER, held)[-1] == ReplaceAnswer(Status.UNKNOWN, 1, 1)


def test_a_ledger_that_was_dropped_or_never_there_has_no_copy() -> None:
    world, _, _ = world_with_entries(3)
    entry = encode_entry(77, 1, 14, b"another")
    (answer,) = asked(world, entry, entry, ledger_id=77)
    assert answer == ReplaceAnswer(Status.NO_SUCH_LEDGER, 77, 1)
    row = b1(world).core.table.get(1)
    assert row is not None
    row.is_dropped = 1
    assert asked(world, OTHER, OTHER)[-1] == ReplaceAnswer(Status.NO_SUCH_LEDGER, 1, 1)
