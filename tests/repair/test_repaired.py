"""Lost copies are made again: what a worker does to one ledger, in whole clusters, every invariant on (P11.2, I36)."""

from __future__ import annotations

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.holdings_messages import HoldingsRequest
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Delete, Put, Txn
from embedbk.codec.read_messages import ReadRequest
from embedbk.codec.repair_mark import decode_repair_mark, progress_of, repair_mark_path
from embedbk.codec.repair_messages import MarkRepairs
from embedbk.codec.repair_state import (
    CONTROL_KEY,
    RepairControl,
    decode_unrepairable,
    encode_repair_control,
    unrepairable_path,
)
from embedbk.core.metadata_words import Transact
from tests.repair.healed import GRACE_S, Healed, healed


def closed(
    story: Healed, count: int = 30, *, password: bytes = b"", digest: str = "crc32c", **sizes: int
) -> int:
    """A closed ledger that names b1."""
    bk = story.cluster.client()
    while True:
        with bk.create_ledger(password=password, digest=digest, **sizes) as writer:
            writer.add_many([b"entry %04d" % number for number in range(count)])
        if "b1" in story.named(writer.ledger_id):
            return writer.ledger_id


def holders_hold(story: Healed, ledger_id: int, count: int) -> None:
    """Every entry, byte for byte, on each seat of its write set."""
    metadata = story.metadata(ledger_id)
    size, copies = metadata.ensemble_size, metadata.write_quorum
    for fragment in metadata.fragments:
        for entry_id in range(fragment.first_entry, count):
            for seat in ((entry_id + each) % size for each in range(copies)):
                storage = story.world.nodes[fragment.members[seat].bookie_id].storage
                assert storage.read(ledger_id, entry_id, entry_id, 1 << 20).frame is not None


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2), (4, 3, 2)])
@pytest.mark.parametrize("password", [b"", b"secret"])
def test_what_a_lost_bookie_had_is_copied_whole(sizes: tuple[int, int, int], password: bytes) -> None:
    """P11.2: every entry that the seat owes has all of its copies again, striped or not, and whoever repairs knows no
    password. P3.5: the ledger's own key is taken as before."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with healed(bookies=5) as story:
        ledger_id = closed(story, password=password, **named)
        service = story.repairer()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        holders_hold(story, ledger_id, 30)
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        reader = story.cluster.client().open_ledger(ledger_id, password=password)
        assert [bytes(each) for each in reader.read()] == [b"entry %04d" % number for number in range(30)]


def test_nothing_is_copied_before_the_grace_is_over_nor_behind_a_return() -> None:
    """AR02, AR11: who comes back within the grace is not lost; a mark of one that is back ends without a copy."""
    with healed() as story:
        ledger_id = closed(story)
        service = story.repairer()
        story.cluster.run_for(1)
        sends = story.sends_of("healer")
        story.cluster.crash("b1")
        story.cluster.run_for(GRACE_S)  # Its registration lives on for a while.
        story.cluster.restart("b1")
        story.cluster.run_for(3 * GRACE_S)
        assert not sends
        metadata = story.cluster.client()._runtime.node.metadata
        metadata.request(story.world.now_of("client"), MarkRepairs(((ledger_id, ("b1",)),)), lambda *_: None)
        story.world.wake("client")
        assert story.cluster.run_until(lambda: service.outcomes["nothing missing"] == 1)
        assert {type(each.control) for each in sends} == {
            HoldingsRequest
        }  # Whether it has everything (P11.4).
        assert not story.marks()


def test_the_target_stands_in_the_mark_before_the_first_copy() -> None:
    """Scenario 57: #4668. Copies go only to who is named in the mark, which keeps its collector from them (P7.7)."""
    with healed() as story:
        ledger_id = closed(story)
        story.repairer()
        known: list[bool] = []
        before = story.world.nodes["healer"].on_step

        def look(core: object, event: object, effects: list[object]) -> None:
            for effect in effects:
                control = getattr(effect, "control", None)
                if isinstance(control, AddRequest):
                    value = story.world.committed("/ur/").get(repair_mark_path(ledger_id), b"")
                    targets = progress_of(decode_repair_mark(value)).targets
                    known.append((effect.member.bookie_id, effect.member.incarnation) in targets)
            if before is not None:
                before(core, event, effects)

        story.world.nodes["healer"].on_step = look
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        assert known
        assert all(known)


def test_frames_of_many_entries_are_read_once_and_sent_to_all_who_owe() -> None:
    """P11.2: two seats are lost; a frame is read once, and copied to both."""
    with healed(bookies=6) as story:
        ledger_id = closed(story, ensemble_size=4, write_quorum=4, ack_quorum=2)
        lost = [name for name, _ in story.metadata(ledger_id).fragments[0].ensemble][:2]
        for name in lost:
            story.cluster.crash(name)
        # Their sessions end one behind the other; whoever looks for the first time then finds both lost.
        registered = story.world.committed
        assert story.cluster.run_until(
            lambda: not {*registered("/bookies/")} & {f"/bookies/{each}" for each in lost}
        )
        story.repairer()
        sends = story.sends_of("healer")
        assert story.cluster.run_until(lambda: not story.named(ledger_id) & {*lost} and not story.marks())
        reads = [each for each in sends if isinstance(each.control, ReadRequest)]
        copies = [each for each in sends if isinstance(each.control, AddRequest)]
        assert len(copies) == 2 * len(reads)
        assert len(reads) < 15


def test_the_last_fragment_of_an_open_ledger_is_its_writers() -> None:
    """Scenario 55: BK-386; P11.2. While it is open nothing of its last fragment is copied by a worker; its writer, for
    which nothing is under way, replaces the seat (P4.1), and then the fragment before is repaired. Nobody is fenced."""
    with healed() as story:
        bk = story.cluster.client()
        story.world.nodes["client"].listed.absences._grace_ns = 10_000_000_000
        writer = bk.create_ledger()
        writer.add_many([b"one", b"two"])
        lost = sorted(story.named(writer.ledger_id))[0]
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash(lost)
        assert story.cluster.run_until(lambda: service.outcomes["deferred"] > 0)
        assert lost in story.named(writer.ledger_id)
        assert story.cluster.run_until(lambda: story.is_healed(writer.ledger_id, lost), 400)
        assert len(story.metadata(writer.ledger_id).fragments) == 2
        writer.add(b"three")
        writer.close()
        holders_hold(story, writer.ledger_id, 3)


def test_an_entry_without_a_good_copy_stops_its_fragment_and_is_named() -> None:
    """P11.2, AR10: it is named, nothing is published, nothing is tried again until something changes; when the lost
    bookie is there again, nothing is missing."""
    with healed() as story:
        ledger_id = closed(story)
        before = story.metadata(ledger_id)
        for name in ("b2", "b3", "b4"):
            if name in story.named(ledger_id):
                story.cluster.damage(name, ledger_id, 17)
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: bool(story.given_up()))
        found = decode_unrepairable(story.given_up()[unrepairable_path(ledger_id)])
        assert (found.entry_id, found.missing) == (17, ("b1",))
        assert "entry 17 has no good copy" in found.why
        story.cluster.run_for(1)
        tried = service.outcomes["unrepairable"]
        story.cluster.run_for(300)
        assert service.outcomes["unrepairable"] == tried
        assert story.metadata(ledger_id) == before
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: not story.given_up() and not story.marks())
        assert story.metadata(ledger_id) == before


def test_a_source_that_is_bad_at_one_entry_gives_the_others() -> None:
    """D17: different entries are bad on each of the copies that are left, and none on both."""
    with healed() as story:
        ledger_id = closed(story)
        left = sorted(story.named(ledger_id) - {"b1"})
        for place, name in enumerate(left):
            for entry_id in range(3 + place, 30, 7):
                story.cluster.damage(name, ledger_id, entry_id)
        story.repairer()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        target = (story.named(ledger_id) - {*left}).pop()
        held = story.world.nodes[target].storage
        assert all(held.read(ledger_id, each, each, 1 << 20).frame is not None for each in range(30))


def test_who_does_not_answer_makes_no_ledger_unrepairable() -> None:
    """P11.2: cannot tell is never no: a source that is cut off is asked again later."""
    with healed() as story:
        ledger_id = closed(story)
        left = sorted(story.named(ledger_id) - {"b1"})
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("b1")
        story.cluster.partition(["healer"], left)
        assert story.cluster.run_until(lambda: service.outcomes["postponed"] > 0)
        assert not story.given_up()
        story.cluster.heal()  # Which starts b1 again.
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"), 400)


def test_who_lost_its_hold_publishes_nothing() -> None:
    """P9.1: while a worker copies, its session ends, and the seats stay as they are by its hand."""
    with healed() as story:
        ledger_id = closed(story, count=60)
        story.repairer("slow")
        sends = story.sends_of("slow")
        published: list[object] = []
        before = story.world.nodes["slow"].on_step

        def look(core: object, event: object, effects: list[object]) -> None:
            published.extend(
                effect
                for effect in effects
                if isinstance(effect, Transact)
                and any(put.key == ledger_key_path(ledger_id) for put in effect.then)
            )
            if before is not None:
                before(core, event, effects)

        story.world.nodes["slow"].on_step = look
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: any(isinstance(each.control, AddRequest) for each in sends))
        story.world.pause("slow")
        story.cluster.run_for(10)
        other = story.repairer("other")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        revision = story.metadata(ledger_id)
        assert story.cluster.run_until(lambda: other.outcomes["repaired"] == 1)
        story.world.resume("slow")
        story.cluster.run_for(10)
        assert story.metadata(ledger_id) == revision
        assert not story.marks()


def test_a_mark_that_is_taken_away_keeps_what_was_copied_from_being_published() -> None:
    """P7.7, scenario 57: without the mark the target's collector may drop the copies at any moment."""
    with healed() as story:
        ledger_id = closed(story, count=60)
        before = story.metadata(ledger_id)
        service = story.repairer()
        story.cluster.run_for(1)
        sends = story.sends_of("healer")
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: any(isinstance(each.control, AddRequest) for each in sends))
        metadata = story.cluster.client()._runtime.node.metadata
        gone = Txn([], [Delete(repair_mark_path(ledger_id))])
        metadata.request(story.world.now_of("client"), gone, lambda *_: None)
        story.world.wake("client")
        assert story.cluster.run_until(lambda: sum(service.outcomes.values()) == 1)
        assert story.metadata(ledger_id) == before
        assert service.outcomes["repaired"] == 0


def test_too_few_bookies_are_waited_for() -> None:
    """AR10: nobody can take the seat; as soon as a bookie comes it is judged again."""
    with healed(bookies=3) as story:
        ledger_id = closed(story)
        story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: bool(story.given_up()))
        assert (
            "no bookie can take the seat of b1"
            in decode_unrepairable(next(iter(story.given_up().values()))).why
        )
        story.world.start_bookie("b9")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1") and not story.given_up())
        assert "b9" in story.named(ledger_id)


def test_a_ledger_that_is_deleted_or_empty_ends_its_mark() -> None:
    """Scenario 58: #2180, BK-742, #3239. Ledgers without entries, and those that are gone, are done with."""
    with healed() as story:
        empty, gone = closed(story, count=0), closed(story)
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("b1")
        story.cluster.client().delete_ledger(gone)
        assert story.cluster.run_until(lambda: story.is_healed(empty, "b1"))
        assert service.outcomes["unrepairable"] == 0


def test_a_switch_stops_all_and_lets_all_go_on() -> None:
    """P11: while it is off nobody marks or copies; one that cannot be read says off (P2.5)."""
    with healed() as story:
        ledger_id = closed(story)
        metadata = story.cluster.client()._runtime.node.metadata
        for value in (encode_repair_control(RepairControl(is_stopped=True)), b"strange"):
            change = Txn([], [Put(CONTROL_KEY, value)])
            metadata.request(story.world.now_of("client"), change, lambda *_: None)
            story.world.wake("client")
            story.cluster.run_for(1)
            if value != b"strange":
                story.repairer()
                sends = story.sends_of("healer")
                story.cluster.crash("b1")
            story.cluster.run_for(4 * GRACE_S)
            assert not sends
            assert not story.marks()
        metadata.request(story.world.now_of("client"), Txn([], [Delete(CONTROL_KEY)]), lambda *_: None)
        story.world.wake("client")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
