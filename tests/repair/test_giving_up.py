"""What is lost for good has an end: an operator gives it up, and readers are told; whole clusters (P11.5)."""

from __future__ import annotations

import io
from argparse import Namespace
from collections.abc import Callable, Collection
from itertools import count

import pytest

import embedbk.testing
from embedbk.cli import give_up, ledger
from embedbk.cli.operators import CommandResult
from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.lost_entries import LOSSES_MAX, Losses
from embedbk.codec.metadata_messages import Put
from embedbk.errors import EntryUnreadable, Lost, MetadataConflict, RecoveryInconclusive, UsageError
from tests.repair.healed import Healed, healed
from tests.repair.test_draining import away
from tests.repair.test_repaired import closed

STRIPED = {"ensemble_size": 3, "write_quorum": 1, "ack_quorum": 1}


def gone(story: Healed, *bookies: str) -> None:
    """They die, and an operator declares them lost for good."""
    bk = story.cluster.client()
    for name in bookies:
        incarnation = bk.bookie(name).incarnation
        away(story, name)
        bk.give_up_bookie(name, incarnation, "burnt", accepts_loss=True)


def entries(number: int, lost: Collection[int] = ()) -> list[bytes]:
    return [b"entry %04d" % each for each in range(number) if each not in lost]


def read(bk: Client, ledger_id: int, **how: bool) -> list[bytes]:
    with bk.open_ledger(ledger_id) as reader:
        return [bytes(each) for each in reader.read(**how)]


def test_what_was_given_up_is_explained() -> None:
    """P11.5: no bookie is asked to come back for it."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 9, ensemble_size=1, write_quorum=1, ack_quorum=1)
        bk = story.cluster.client()
        gone(story, *story.named(ledger_id))
        assert "bring one of these bookies back" in str(bk.explain(ledger_id))
        bk.give_up_entries(bk.lost_entries(ledger_id), "burnt")
        text = str(bk.explain(ledger_id))
        assert "P11.5: 9 of its entries were given up" in text
        assert "bring" not in text and "skip_lost=True" in text


def test_what_only_bookies_had_that_are_gone_is_given_up_and_readers_are_told_so() -> None:
    """P11.5: by a word with its reason; readers get the exact gap, and go on behind it where they ask for that."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 9, **STRIPED)
        bk = story.cluster.client()
        seat = [name for name, _ in story.metadata(ledger_id).fragments[0].ensemble].index("b1")
        lost = {each for each in range(9) if each % 3 == seat}
        gone(story, "b1")
        with pytest.raises(EntryUnreadable):
            read(bk, ledger_id)
        shown = bk.lost_entries(ledger_id)
        assert (shown.runs, shown.entry_count) == (((seat, seat + 6, 3),), 3)
        assert not shown.is_end_named and [name for name, _ in shown.gone] == ["b1"]
        with pytest.raises(UsageError, match="needs its reason"):
            bk.give_up_entries(shown, " ")
        bk.give_up_entries(shown, "the rack burnt")
        word = story.metadata(ledger_id).lost[-1]
        assert (word.runs, word.why) == (shown.runs, "the rack burnt") and word.by and word.lost_ms
        with pytest.raises(Lost, match=r"given up by .* \(the rack burnt\)") as told:
            read(bk, ledger_id)
        assert (told.value.first_entry, told.value.last_entry) == (seat, seat)
        assert told.value.next_offset == seat + 1 and told.value.definite
        assert read(bk, ledger_id, skip_lost=True) == entries(9, lost)
        with pytest.raises(UsageError, match="nothing is lost"):
            bk.lost_entries(ledger_id)


def test_who_may_come_back_is_waited_for_and_named() -> None:
    """P11.5: a bookie that is away, and of which nobody said that it is gone, may have every entry."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 6, **STRIPED)
        bk = story.cluster.client()
        before = story.metadata(ledger_id)
        with pytest.raises(UsageError, match="nothing is lost"):
            bk.lost_entries(ledger_id)
        away(story)
        with pytest.raises(RecoveryInconclusive, match="b1: it is away, and not declared gone"):
            bk.lost_entries(ledger_id)
        assert story.metadata(ledger_id) == before
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: len(bk._runtime.bookies) == 3)
        assert read(bk, ledger_id) == entries(6)


def test_whoever_is_there_and_cannot_tell_ends_it() -> None:
    """P7.1, P11.5: a copy that cannot be read is no proof that there is none, whoever else is gone."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 6)
        bk = story.cluster.client()
        gone(story, "b1", "b2")
        story.cluster.damage("b3", ledger_id, 4)
        with pytest.raises(RecoveryInconclusive, match=r"whether entry 4 .* \(b3: it cannot read it"):
            bk.lost_entries(ledger_id)


def test_a_good_copy_anywhere_keeps_its_entry() -> None:
    """P11.5: two of three are gone; what the third has is not lost."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 6)
        bk = story.cluster.client()
        gone(story, "b1", "b2")
        with pytest.raises(UsageError, match="nothing is lost"):
            bk.lost_entries(ledger_id)
        assert read(bk, ledger_id) == entries(6)


def test_an_open_ledger_is_its_writers() -> None:
    """P11.5: a recovery fences it first; only what that cannot settle is given up."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add(b"entry 0000")
        with pytest.raises(UsageError, match="is open: its writer may live"):
            bk.lost_entries(writer.ledger_id)
        writer.add(b"entry 0001")
        writer.close()


def test_a_recovery_that_the_gone_alone_could_settle_ends_at_what_others_have() -> None:
    """P11.5: of three seats two are gone, so that no recovery gets its coverage. What the third has is kept."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add_many(entries(5))
        assert story.cluster.run_until(lambda: holds(story, "b3", writer.ledger_id, 4))
        gone(story, "b1", "b2")
        other = story.cluster.client("other")
        with pytest.raises(RecoveryInconclusive):
            other.open_ledger(writer.ledger_id, recover=True)
        assert story.metadata(writer.ledger_id).state == LedgerState.IN_RECOVERY
        shown = other.lost_entries(writer.ledger_id)
        assert shown.is_end_named and (shown.last_entry, shown.length, shown.entry_count) == (4, 50, 0)
        other.give_up_entries(shown, "two of three burnt")
        assert story.metadata(writer.ledger_id).is_closed
        assert read(other, writer.ledger_id) == entries(5)
        with pytest.raises(UsageError, match="nothing is lost"):
            other.lost_entries(writer.ledger_id)


def test_a_recovery_that_can_be_made_is_made_instead() -> None:
    """P11.5: a gone bookie counts as no copy only where nobody who is there can settle it."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add_many(entries(5))
        gone(story, "b1")
        other = story.cluster.client("other")
        story.cluster.crash("b2")
        with pytest.raises(RecoveryInconclusive):
            other.open_ledger(writer.ledger_id, recover=True)
        story.cluster.restart("b2")
        assert story.cluster.run_until(lambda: len(other._runtime.bookies) == 2)
        with pytest.raises(UsageError, match="can be closed without giving anything up"):
            other.lost_entries(writer.ledger_id)
        with other.open_ledger(writer.ledger_id, recover=True) as reader:
            assert [bytes(each) for each in reader.read()] == entries(5)


def holds(story: Healed, name: str, ledger_id: int, entry_id: int) -> bool:
    storage = story.world.nodes[name].storage
    return storage.read(ledger_id, entry_id, entry_id, 1 << 20).frame is not None


def test_what_was_declared_meanwhile_is_looked_at_again() -> None:
    """P10.6, P11.5: one transaction compares the ledger and the words about its bookies."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 6, **STRIPED)
        bk = story.cluster.client()
        gone(story, "b1")
        first, second = bk.lost_entries(ledger_id), bk.lost_entries(ledger_id)
        bk.give_up_entries(first, "burnt")
        with pytest.raises(MetadataConflict, match="is another by now"):
            bk.give_up_entries(second, "burnt")
        assert len(story.metadata(ledger_id).lost) == 1


def test_repair_and_health_ask_for_nothing_that_was_given_up() -> None:
    """P11.4, P11.5: the rest gets all of its copies; nothing stays marked, and health counts the loss apart."""
    with healed(bookies=6) as story:
        sizes = {"ensemble_size": 4, "write_quorum": 2, "ack_quorum": 2}
        ledger_id = closed(story, 30, **sizes)
        bk = story.cluster.client()
        before = bk.health()
        assert (before.lost, before.lost_ledgers) == (0, 0)
        ensemble = [name for name, _ in story.metadata(ledger_id).fragments[0].ensemble]
        seat = ensemble.index("b1")
        beside = ensemble[(seat + 1) % 4]
        lost = {each for each in range(30) if each % 4 == seat}
        gone(story, "b1", beside)
        service = story.repairer()
        assert story.cluster.run_until(lambda: bool(story.given_up()))
        shown = bk.lost_entries(ledger_id)
        assert shown.entry_count == len(lost) and {name for name, _ in shown.gone} == {"b1", beside}
        bk.give_up_entries(shown, "burnt")
        assert read(bk, ledger_id, skip_lost=True) == entries(30, lost)
        bk.trigger_audit()
        assert story.cluster.run_until(
            lambda: not {"b1", beside} & story.named(ledger_id) and not story.marks() and not story.given_up()
        )
        assert story.cluster.run_until(lambda: bool(service.outcomes["repaired"]))
        after = bk.health()
        assert after.is_good and (after.lost, after.lost_ledgers) == (len(lost), 1)
        assert f"{len(lost)} entries of 1 ledgers were given up for ever" in str(after)
        assert read(bk, ledger_id, skip_lost=True) == entries(30, lost)


def test_of_one_ledger_entries_are_given_up_a_bounded_number_of_times() -> None:
    """The bound of words about one ledger."""
    with embedbk.testing.Cluster(seed=1, bookies=3) as cluster:
        bk = cluster.client()
        with bk.create_ledger() as writer:
            writer.add_many(entries(3))
        story = Healed(cluster)
        word = Losses(((0, 0, 1),), (), 1, "me", "burnt")
        known = story.metadata(writer.ledger_id).with_changes(lost=(word,) * LOSSES_MAX)
        put = Put(ledger_key_path(writer.ledger_id), encode_ledger_metadata(known))
        run_blocking(bk._runtime.transact([], [put], "a stranger's words"), "put")
        with pytest.raises(UsageError, match=f"given up {LOSSES_MAX} times"):
            bk.lost_entries(writer.ledger_id)


def test_readers_of_a_log_are_told_and_go_on_behind_it() -> None:
    """P6.6, P11.5: by the offsets of the log, in both faces, in bulk, at the tail, and by record batches' buffers."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        log = bk.log("orders")
        for _ in range(2):
            with log.writer(**STRIPED) as writer:
                writer.append_many(entries(9))
        ledger_ids = [each.ledger_id for each in log.segments()]
        seats = {
            each: [name for name, _ in story.metadata(each).fragments[0].ensemble].index("b1")
            for each in ledger_ids
        }
        gone(story, "b1")
        for each in ledger_ids:
            bk.give_up_entries(bk.lost_entries(each), "burnt")
        lost = [9 * n + each for n, known in enumerate(ledger_ids) for each in range(seats[known], 9, 3)]
        left = [each for each in range(18) if each not in lost]
        with pytest.raises(Lost) as told:
            list(log.read())
        assert (told.value.first_offset, told.value.next_offset) == (lost[0], lost[0] + 1)
        assert [each.offset for each in log.read(skip_lost=True)] == left
        assert [each.offset for each in log.tail(0, idle_s=0.1, skip_lost=True)] == left
        met: list[int] = []
        with log.reader() as reader:
            got: list[int] = []
            while len(got) + len(met) < 18:
                try:
                    bulk = reader.read_bulk()
                except Lost as gap:
                    met += range(gap.first_offset, gap.next_offset)
                    reader.seek(gap.next_offset)
                else:
                    got += [b.first_offset + each for b in bulk.batches for each in b.ids]
        assert (met, got) == (lost, left)
        with log.reader(skip_lost=True) as reader:
            assert len(reader.read_bulk()) == len(left)
        with pytest.raises(Lost):
            list(log.tail(0, idle_s=0.1))


def test_an_operator_sees_it_and_types_the_id(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`embedbk ledger give-up`, and reading behind it at a terminal."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 6, **STRIPED)
        seat = [name for name, _ in story.metadata(ledger_id).fragments[0].ensemble].index("b1")
        gone(story, "b1")
        given = {"ledger_id": ledger_id, "why": "burnt", "yes": False, "password_file": None, "json": False}

        numbers = count()

        def run(verb: Callable[..., CommandResult], **options: object) -> CommandResult:
            return verb(lambda: story.cluster.client(f"operator-{next(numbers)}"), Namespace(**options))

        told = run(give_up._run, **given, dry_run=True)
        assert (told.text or "").startswith(f"of ledger {ledger_id} 2 entries would be given up")
        monkeypatch.setattr("sys.stdin", io.StringIO("b1\n"))
        with pytest.raises(UsageError, match="that is not its id; nothing was changed"):
            run(give_up._run, **given, dry_run=False)
        assert not story.metadata(ledger_id).lost
        monkeypatch.setattr("sys.stdin", io.StringIO(f"{ledger_id}\n"))
        told = run(give_up._run, **given, dry_run=False)
        assert f"entries {seat} to {seat + 3}, each 3th" in (told.text or "")
        capsys.readouterr()
        shown = {"first": 0, "end": None, "bookie": None, "places": True, "raw": False, **given}
        with pytest.raises(Lost):
            run(ledger._read, **shown, skip_lost=False)
        capsys.readouterr()
        told = run(ledger._read, **shown, skip_lost=True)
        out, err = capsys.readouterr()
        assert told.code == 1 and err.count("given up by") == 2
        assert [line.split(":")[1].split()[0] for line in out.splitlines()] == [
            str(each) for each in range(6) if each % 3 != seat
        ]
