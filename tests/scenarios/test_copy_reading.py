"""One bookie's copy of a ledger, as a person looks at it: what it has, has not, and cannot tell (P7.1)."""

from __future__ import annotations

import pytest

from embedbk.client.batches import Located, entries_of
from embedbk.client.client import Client
from embedbk.client.copy_reading import read_copy
from embedbk.client.password import Password
from embedbk.codec.bookie_fields import Status
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.read_messages import ReadAnswer, ReadRequest
from embedbk.core.client_words import Answered, SendFailed
from embedbk.core.copy_read import CopyPart, CopyRead
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.errors import NoSuchLedger, NotEnoughBookies, UsageError, WrongPassword
from embedbk.testing import Cluster
from tests.rules.test_p10_adopting import written
from tests.rules.world import Pen, member

NONE = Password(b"")


Ids = list[int]


def copy(client: Client, ledger_id: int, bookie_id: str, first: int, last: int) -> tuple[Ids, Ids, Ids]:
    """Ids that it has, has not, and cannot tell about."""
    has, absent, unknown, expected = list[int](), list[int](), list[int](), first
    for part in read_copy(client, ledger_id, bookie_id, NONE, first, last):
        assert part.next_entry > expected
        for frame in part.frames:
            has += [each.entry_id for each in entries_of(Located(frame, 0))]
        absent += [each for low, high in part.absent for each in range(low, high + 1)]
        unknown += [each for low, high in part.unknown for each in range(low, high + 1)]
        expected = part.next_entry
    assert expected == last + 1
    return has, absent, unknown


def test_it_shows_one_copy_and_not_what_a_reader_would_get() -> None:
    """Striped over three, two copies each; one is damaged, and one of the bookies is in nobody's ensemble."""
    with Cluster(seed=1, bookies=4, native=False) as cluster:
        client = cluster.client()
        with client.create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2) as writer:
            for number in range(30):
                writer.add(b"%d" % number)
        ledger_id = writer.ledger_id
        seats = [name for name, _ in client.ledger_metadata(ledger_id).fragments[0].ensemble]
        (other,) = {"b1", "b2", "b3", "b4"} - set(seats)
        for seat, name in enumerate(seats):
            owed = [each for each in range(30) if seat in (each % 3, (each + 1) % 3)]
            assert copy(client, ledger_id, name, 0, 29) == (owed, sorted(set(range(30)) - set(owed)), [])
        assert copy(client, ledger_id, other, 0, 29) == ([], list(range(30)), [])
        cluster.damage(seats[0], ledger_id, 6)
        has, absent, unknown = copy(client, ledger_id, seats[0], 4, 8)
        assert (has, absent, unknown) == ([5, 8], [4, 7], [6])
        assert len(list(client.open_ledger(ledger_id).read())) == 30, "a reader takes the other copy"


def test_what_is_asked_wrongly_is_said() -> None:
    with Cluster(seed=2, bookies=3) as cluster:
        client = cluster.client()
        with client.create_ledger(password=b"secret") as writer:
            writer.add(b"zero")
        with pytest.raises(WrongPassword):
            copy(client, writer.ledger_id, "b1", 0, 0)
        with pytest.raises(NoSuchLedger):
            copy(client, 77, "b1", 0, 0)
        with client.create_ledger() as writer:
            writer.add(b"zero")
        with pytest.raises(
            UsageError, match="--bookie b9: no bookie of that name is there now; there are b1, b2"
        ):
            copy(client, writer.ledger_id, "b9", 0, 0)
        cluster.partition(["client"], ["b2"])
        with pytest.raises(NotEnoughBookies, match="bookie b2 does not say what it has"):
            copy(client, writer.ledger_id, "b2", 0, 0)


def question() -> tuple[CopyRead, Pen]:
    it = written(entries=1)
    metadata, _ = it.world.catalog.metadata(it.ledger_id)
    core = CopyRead(metadata, member("b1"), 5, 9, b"")
    (sent,) = core.step(Started(0))
    assert isinstance(sent.control, ReadRequest) and not sent.control.fence, "it changes nothing"
    return core, Pen(it.ledger_id)


def answered(core: CopyRead, answer: object, *frames: bytes) -> Ended:
    (ended,) = core.step(Answered(1, member("b1"), "copy", answer, [(b"", each) for each in frames]))  # type: ignore[arg-type]
    assert isinstance(ended, Ended) and core.deadline_ns is None
    return ended


def test_what_was_not_spoken_of_is_unknown_up_to_the_last_that_was() -> None:
    """P7.1: what is neither given nor denied is neither yes nor no. The bookie gives as much as fits: what is behind
    that is asked next."""
    core, pen = question()
    pen.frame(*[b"x"] * 5)
    frame = pen.frame(b"five", b"six")
    part: CopyPart = answered(core, ReadAnswer(Status.OK, 1, [(8, 8)]), frame.body).result  # type: ignore[assignment]
    assert (len(part.frames), part.absent, part.unknown, part.next_entry) == (1, ((8, 8),), ((7, 7),), 9)


@pytest.mark.parametrize("frames", [(), ("before",)])
def test_an_answer_that_says_nothing_ends_the_question(frames: tuple[str, ...]) -> None:
    """Also one of a bookie that gives what nobody asked for: whoever asks goes on behind it."""
    core, pen = question()
    bodies = [pen.frame(b"zero").body] if frames else []
    part: CopyPart = answered(core, ReadAnswer(Status.OK, 1), *bodies).result  # type: ignore[assignment]
    assert (part.absent, part.unknown, part.next_entry) == ((), ((5, 9),), 10)


def test_limbo_and_a_ledger_that_was_never_there() -> None:
    core, _ = question()
    assert answered(core, ReadAnswer(Status.IN_LIMBO, 1)).result == CopyPart((), (), ((5, 9),), 10)
    core, _ = question()
    assert answered(core, ReadAnswer(Status.NO_SUCH_LEDGER, 1)).result == CopyPart((), ((5, 9),), (), 10)


def test_no_answer_is_an_error() -> None:
    core, _ = question()
    assert core.deadline_ns is not None
    (late,) = core.step(Tick(core.deadline_ns))
    assert "no answer in time" in str(late.error)
    assert core.step(Tick(1 << 60)) == [] and core.step(SendFailed(1, member("b1"), "copy", "no link")) == []
    core, _ = question()
    (refused,) = core.step(SendFailed(1, member("b1"), "copy", "no link"))
    assert isinstance(refused.error, NotEnoughBookies) and "no link" in str(refused.error)
    core, _ = question()
    assert "who are you" in str(answered(core, ErrorAnswer("who are you")).error)
    core, _ = question()
    assert answered(core, ReadAnswer(Status.OK, 1), b"garbage").error is not None
    core, _ = question()
    assert "BUSY" in str(answered(core, ReadAnswer(Status.BUSY, 1)).error)
