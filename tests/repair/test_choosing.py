"""Of copies that differ one is chosen by an operator's word, and by nothing else (P11.4, P11.5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedbk.client.copy_choosing import ChosenCopy, EntryCopies, choose_copy
from embedbk.client.waiting import run_blocking
from embedbk.codec.copy_decision import (
    DECISIONS_MAX,
    CopyDecision,
    DecidedCopy,
    decided_path,
    decode_copy_decisions,
    encode_copy_decisions,
)
from embedbk.codec.entry import encode_entry
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import frame_of
from embedbk.codec.ledger_metadata import encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Put
from embedbk.errors import MetadataConflict, NoSuchLedger, UsageError
from embedbk.repair.copy_replacing import CopyReplacing
from embedbk.scrub import scrub
from embedbk.testing import Cluster
from tests.repair.healed import Healed
from tests.repair.test_conflicts import plant
from tests.repair.test_repaired import closed


@contextmanager
def unwatched(bookies: int) -> Iterator[Healed]:
    """Without invariants: what differs here no writer made (I7)."""
    with Cluster(seed=1, bookies=bookies) as cluster:
        cluster.client()
        yield Healed(cluster)


def choose(
    story: Healed, shown: EntryCopies, bookie_id: str, why: str = "the others were restored"
) -> ChosenCopy:
    runtime = story.cluster.client()._runtime
    return run_blocking(choose_copy(runtime, shown, bookie_id, why=why), "choosing")


def held(story: Healed, name: str, ledger_id: int, entry_id: int) -> bytes:
    entry: bytes = story.world.nodes[name].storage.store.entries[ledger_id][entry_id]
    return entry


def decisions(story: Healed, ledger_id: int, entry_id: int):  # type: ignore[no-untyped-def]
    return decode_copy_decisions(story.world.committed("/decided/")[decided_path(ledger_id, entry_id)])


@pytest.mark.parametrize("right", ["b1", "b2"])
@pytest.mark.parametrize("password", [b"", b"secret"])
def test_the_chosen_copy_takes_the_place_of_the_others(right: str, password: bytes) -> None:
    """P11.5: "the others that differ are replaced by it, and nothing else is": of many, or of one; who decided what
    and why stays; the cluster is whole again, with repair at work all the time."""
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12, password=password)
        service = story.repairer()
        plant(story, "b2", ledger_id, 7)
        assert story.cluster.run_until(lambda: ledger_id in service.auditor.look.conflicts)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        assert shown.is_conflict
        before = {name: held(story, name, ledger_id, 7) for name in ("b1", "b2", "b3")}
        chosen = choose(story, shown, right)
        assert chosen.left == {} and chosen.decision.is_done
        assert {held(story, name, ledger_id, 7) for name in before} == {before[right]}
        (decision,) = decisions(story, ledger_id, 7)
        assert decision == chosen.decision
        assert (decision.chosen.bookie_id, decision.chosen.digest) == (right, entry_digest(before[right]))
        wrong = [name for name in before if before[name] != before[right]]
        assert sorted(each.bookie_id for each in decision.replaced) == wrong
        assert (decision.by, decision.why) == ("client", "the others were restored")
        bk.trigger_audit()
        assert story.cluster.run_until(lambda: not service.auditor.look.conflicts)
        assert bk.health().is_good
        assert scrub(bk).exit_code == 0
        assert service.copies == 0
        story.cluster.crash(wrong[0])
        story.cluster.restart(wrong[0])
        story.cluster.run_for(5)
        assert held(story, wrong[0], ledger_id, 7) == before[right], "it is durable"


@pytest.mark.parametrize("digest", ["xxh3", "hmac"])
def test_a_copy_whose_tag_is_false_is_shown_and_never_right(digest: str) -> None:
    """P11.5: no reader takes it, and a scrub names it. Nobody could replace it: it counted as no copy, so that none
    differed (seed 37100830)."""
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12, digest=digest)
        plant(story, "b2", ledger_id, 7)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        assert [each.why for each in shown.copies if each.member.bookie_id == "b2"] == [
            "its tag is not that of its bytes"
        ]
        assert shown.is_conflict
        with pytest.raises(UsageError, match="cannot be right: its tag"):
            choose(story, shown, "b2")
        assert choose(story, shown, "b1").left == {}
        assert held(story, "b2", ledger_id, 7) == held(story, "b1", ledger_id, 7)


def test_nothing_is_chosen_of_what_was_not_shown() -> None:
    """The bookie compares: a copy that became another one after the operator looked is kept, and the word stands as not
    done. Saying it again, of what is there by then, carries it out."""
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12)
        plant(story, "b2", ledger_id, 7)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        length = int.from_bytes(held(story, "b2", ledger_id, 7)[24:32], "little")
        third = encode_entry(ledger_id, 7, length, b"a third one")
        story.world.nodes["b2"].storage.store.entries[ledger_id][7] = third
        chosen = choose(story, shown, "b1")
        assert set(chosen.left) == {"b2"} and not chosen.decision.is_done
        assert f"{entry_digest(third):016x}" in chosen.left["b2"]
        assert held(story, "b2", ledger_id, 7) == third
        with pytest.raises(MetadataConflict, match="nothing was changed"):
            choose(story, shown, "b2")
        again = choose(story, bk.copies_of_entry(ledger_id, 7), "b3", "looked again")
        assert again.left == {}
        assert held(story, "b2", ledger_id, 7) == held(story, "b1", ledger_id, 7)
        assert [each.is_done for each in decisions(story, ledger_id, 7)] == [False, True]


def test_what_changed_since_it_was_shown_is_refused() -> None:
    """Compare-and-set: the ledger's key is another one (seats moved), or it is gone."""
    with unwatched(bookies=4) as story:
        ledger_id = closed(story, 12)
        plant(story, "b1", ledger_id, 7)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        runtime, metadata = bk._runtime, story.metadata(ledger_id)
        other = metadata.with_changes(custom={"moved": b"1"})
        put = Put(ledger_key_path(ledger_id), encode_ledger_metadata(other))
        run_blocking(runtime.transact([], [put], "changing"), "changing")
        with pytest.raises(MetadataConflict):
            choose(story, shown, "b1")
        assert not story.world.committed("/decided/")
        bk.delete_ledger(ledger_id)
        with pytest.raises(MetadataConflict):
            choose(story, copies_shown_before(shown), "b1")
        with pytest.raises(NoSuchLedger):
            bk.copies_of_entry(ledger_id, 7)


def copies_shown_before(shown: EntryCopies) -> EntryCopies:
    return shown._replace(revision=shown.revision + 1)


def test_a_bookie_that_is_away_is_not_decided_about() -> None:
    """What it holds was not shown: when it is back the copies differ again, and are named again."""
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12)
        plant(story, "b2", ledger_id, 7)
        plant(story, "b3", ledger_id, 7)
        bk = story.cluster.client()
        story.cluster.partition(["client"], ["b3"])
        shown = bk.copies_of_entry(ledger_id, 7)
        assert [
            (each.member.bookie_id, each.entry is None) for each in shown.copies if each.entry is None
        ] == [("b3", True)]
        assert choose(story, shown, "b1").left == {}
        with pytest.raises(UsageError, match="no copy of entry 7 differs"):
            choose(story, bk.copies_of_entry(ledger_id, 7), "b1")
        with pytest.raises(UsageError, match="bookie b3 shows no copy"):
            choose(story, bk.copies_of_entry(ledger_id, 7), "b3")
        story.cluster.heal()
        story.cluster.run_for(30)
        assert bk.copies_of_entry(ledger_id, 7).is_conflict


def test_a_bookie_without_an_answer_is_told_again() -> None:
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12)
        plant(story, "b2", ledger_id, 7)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        story.cluster.crash("b2")
        assert set(choose(story, shown, "b1").left) == {"b2"}
        story.cluster.restart("b2")
        story.cluster.run_for(10)
        again = bk.copies_of_entry(ledger_id, 7)
        if again.is_conflict:
            assert choose(story, again, "b1").left == {}
        assert held(story, "b2", ledger_id, 7) == held(story, "b1", ledger_id, 7)


def test_a_word_without_reason_level_or_closed_ledger_changes_nothing() -> None:
    with unwatched(bookies=3) as story:
        ledger_id = closed(story, 12)
        plant(story, "b2", ledger_id, 7)
        bk = story.cluster.client()
        shown = bk.copies_of_entry(ledger_id, 7)
        with pytest.raises(UsageError, match="needs its reason"):
            choose(story, shown, "b1", " ")
        with pytest.raises(UsageError, match="has the entries 0 to 11, not 12"):
            bk.copies_of_entry(ledger_id, 12)
        writer = bk.create_ledger()
        writer.add(b"open")
        with pytest.raises(UsageError, match="is not closed"):
            bk.copies_of_entry(writer.ledger_id, 0)
        bk._runtime.has_level = lambda level: level < 16  # type: ignore[method-assign]
        with pytest.raises(UsageError, match="at level 16"):
            choose(story, shown, "b1")
        assert not story.world.committed("/decided/")


def test_bookies_on_real_storage_keep_the_chosen_copy() -> None:
    """The store in C: in its cache, behind a flush, behind a crash; indexes tell the digest of what is kept."""
    with Cluster(seed=2, bookies=3, native=True) as cluster:
        bk = cluster.client()
        with bk.create_ledger() as writer:
            writer.add_many([b"entry %04d" % number for number in range(20)])
        ledger_id = writer.ledger_id
        story = Healed(cluster)
        for times, entry_id in enumerate((3, 11, 3)):
            right = bk.copies_of_entry(ledger_id, entry_id).copies
            assert len({each.digest for each in right}) == 1
            made = right[0].entry
            assert made is not None
            length = int.from_bytes(made[24:32], "little")
            other = encode_entry(ledger_id, entry_id, length, b"other%05d" % times)
            put_other(story, "b2", ledger_id, entry_id, made, other)
            assert bk.copies_of_entry(ledger_id, entry_id).is_conflict
            assert bk.health().conflicts == 1
            if times == 1:
                cluster.crash("b2")
                cluster.restart("b2")
                cluster.run_for(5)
            assert choose(story, bk.copies_of_entry(ledger_id, entry_id), "b1").left == {}
            assert not bk.copies_of_entry(ledger_id, entry_id).is_conflict
            assert bk.health().is_good
        cluster.crash("b2")
        cluster.restart("b2")
        cluster.run_for(5)
        assert scrub(bk).exit_code == 0
        with bk.open_ledger(ledger_id) as reader:
            assert [bytes(each) for each in reader.read()] == [b"entry %04d" % number for number in range(20)]


def put_other(story: Healed, name: str, ledger_id: int, entry_id: int, made: bytes, other: bytes) -> None:
    """By the same road, with a word that no operator gave: so that a conflict is there."""
    runtime = story.cluster.client()._runtime
    member = next(info.member for info in runtime.bookies if info.member.bookie_id == name)
    goes = DecidedCopy(name, member.incarnation, entry_digest(made))
    word = CopyDecision(DecidedCopy("b9", bytes(16), entry_digest(other)), (goes,))
    put = Put(decided_path(ledger_id, entry_id), encode_copy_decisions((word,)))
    assert run_blocking(runtime.transact([], [put], "planting"), "planting")
    core = CopyReplacing(member, frame_of(memoryview(other), ledger_id), entry_digest(made))
    assert run_blocking(runtime.run(core, "planting"), "planting").is_done


def test_of_very_many_decisions_about_one_entry_the_newest_are_kept() -> None:
    """A bound of what stands under one key."""
    one, other = DecidedCopy("b1", bytes(16), 1), DecidedCopy("b2", bytes(16), 2)
    many = tuple(CopyDecision(one, (other,), decided_ms=number) for number in range(DECISIONS_MAX + 3))
    kept = decode_copy_decisions(encode_copy_decisions(many))
    assert [each.decided_ms for each in kept] == list(range(3, DECISIONS_MAX + 3))


def wrong_everywhere(story: Healed) -> tuple[int, bytes]:
    """A ledger of which all three bookies hold the same other entry 7 than was written; its id, and what was."""
    ledger_id = closed(story, 12)
    members = story.metadata(ledger_id).fragments[0].members
    made = [plant(story, each.bookie_id, ledger_id, 7) for each in members]
    return ledger_id, made[0]


def test_copies_that_are_all_alike_may_stand_for_what_was_published() -> None:
    """P11.4: "that word replaces nothing: what they hold stands for it"; from then on it is healthy, and copied."""
    with unwatched(4) as story:
        ledger_id, made = wrong_everywhere(story)
        bk = story.cluster.client()
        assert bk.health().unlike == 1
        shown = bk.copies_of_entry(ledger_id, 3)
        assert (shown.is_conflict, shown.unlike) == (False, (0, 11))
        one, two, three = (each.member.bookie_id for each in shown.copies)
        word = choose(story, shown, one, why="the application takes it")
        assert (word.left, word.decision.is_done, word.decision.why) == ({}, True, "the application takes it")
        assert {each.bookie_id for each in word.decision.replaced} == {one, two, three}
        assert decisions(story, ledger_id, 3) == (word.decision,)
        assert story.metadata(ledger_id).sums == ()
        assert held(story, two, ledger_id, 7) != made and bk.health().is_good
        after = bk.copies_of_entry(ledger_id, 3)
        assert after.unlike is None and after.decisions == (word.decision,)
        with pytest.raises(UsageError, match="no copy of entry 3 differs"):
            choose(story, after, one)
        story.repairer()
        story.cluster.crash(three)
        (four,) = {"b1", "b2", "b3", "b4"} - {one, two, three}
        assert story.cluster.run_until(
            lambda: four in {each.bookie_id for each in story.metadata(ledger_id).fragments[0].members}
        )
        assert held(story, four, ledger_id, 7) == held(story, one, ledger_id, 7)


def test_nothing_stands_for_what_was_published_while_another_copy_may_come() -> None:
    """P11.4: "where all bookies of the fragment are there, and tell that they hold all, and the same"; P7.1."""
    with unwatched(3) as story:
        ledger_id, made = wrong_everywhere(story)
        bk = story.cluster.client()
        before = story.metadata(ledger_id)
        store = story.world.nodes["b3"].storage.store
        entries, ids = store.entries[ledger_id], store.ids[ledger_id]
        wrong, entries[7] = entries[7], made
        assert bk.copies_of_entry(ledger_id, 3).unlike is None, "one of them differs elsewhere"
        entries[7] = wrong
        ids.remove(5)
        assert bk.copies_of_entry(ledger_id, 3).unlike is None, "one of them lacks an entry"
        ids.insert(5, 5)
        assert bk.copies_of_entry(ledger_id, 3).unlike == (0, 11)
        story.cluster.crash("b3")
        story.cluster.run_for(20)
        away = bk.copies_of_entry(ledger_id, 3)
        assert away.unlike is None
        with pytest.raises(UsageError, match="no copy of entry 3 differs"):
            choose(story, away, "b1")
        assert story.metadata(ledger_id) == before
