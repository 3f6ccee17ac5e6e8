"""What the writer of a ledger publishes of its fragments, and what audits and repair make of it (P11.4, I56)."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from embedbk.client.runtime import Runtime
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    PublishedSums,
    decode_ledger_metadata,
    encode_ledger_metadata,
)
from embedbk.codec.lost_entries import Losses
from embedbk.codec.packer_twin import TwinPacker
from embedbk.config import Quorum
from embedbk.core.fragment_sums import modulus_of, sums_with
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.metadata.levels import LEVEL_OF_SUMS
from embedbk.repair.published import Unlike, published_digest, published_total, unlike_published
from embedbk.repair.source_check import SOURCE
from embedbk.testing import Cluster
from tests.repair.healed import OPTIONS, Healed, healed
from tests.repair.test_conflicts import plant
from tests.repair.test_holdings import member, metadata
from tests.repair.test_repaired import closed
from tests.rules.scenes import scene
from tests.rules.test_p4_crossing_changes import repair_first_fragment

THREE = Quorum(3, 3, 2)
STRIPED = Quorum(3, 2, 2)
WHOLE = 2**64


def stored(story: Healed, ledger_id: int) -> dict[int, bytes]:
    """Every entry, as any bookie holds it."""
    found: dict[int, bytes] = {}
    for name in sorted(story.named(ledger_id)):
        if name in story.world.nodes:
            found.update(story.world.nodes[name].storage.store.entries.get(ledger_id, {}))
    return found


def sums_of(entries: dict[int, bytes], first: int, last: int, modulus: int) -> tuple[int, ...]:
    sums = [0] * modulus
    for entry_id in range(first, last + 1):
        sums[entry_id % modulus] += entry_digest(entries[entry_id])
    return tuple(each % WHOLE for each in sums)


@pytest.mark.parametrize("sizes", [(3, 3, 2), (3, 2, 2), (4, 2, 1)])
def test_a_close_publishes_the_digests_of_what_is_in_the_last_fragment(sizes: tuple[int, int, int]) -> None:
    """P11.4: "when a fragment ends, its writer publishes digests of its entries by residue"."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with healed() as story:
        ledger_id = closed(story, 30, **named)
        modulus = 1 if sizes[0] == sizes[1] else sizes[0]
        wanted = sums_of(stored(story, ledger_id), 0, 29, modulus)
        assert story.metadata(ledger_id).sums == (PublishedSums(0, 29, wanted),)


def test_a_change_publishes_what_ended_and_what_is_sent_again_counts_once() -> None:
    """P11.4: "only what lies in the fragment and is acknowledged": an entry that was on its way when its bookie failed
    goes to the new seat, and belongs to the fragment that begins with it."""
    with healed(bookies=5) as story:
        writer = story.cluster.client().create_ledger(ensemble_size=3, write_quorum=2, ack_quorum=2)
        for number in range(3):
            writer.add_many([b"entry %d" % each for each in range(7)])
            lost = story.metadata(writer.ledger_id).fragments[-1].ensemble[number][0]
            story.cluster.crash(lost)
            writer.add_many([b"behind %d" % each for each in range(5)])
            story.cluster.restart(lost)
        writer.close()
        found = story.metadata(writer.ledger_id)
        entries = stored(story, writer.ledger_id)
        begins = [each.first_entry for each in found.fragments]
        assert len(begins) > 1
        assert [each.first_entry for each in found.sums] == begins
        assert found.sums[-1].last_entry == found.last_entry == 35
        for each in found.sums:
            assert each.digests == sums_of(entries, each.first_entry, each.last_entry, 3)


def test_a_change_is_sent_again_with_the_sums_of_its_place() -> None:
    """P11.4, P4.2: entries go on being acknowledged while a change is on its way; they are of the next fragment, also
    where the change is refused and sent again."""
    world, writer, pen = it = scene(bookies=6)
    it.core.in_flight.sums_through = lambda entry_id: (1_000 * (entry_id + 1),)
    world.add(writer, pen, b"zero")
    world.settle()
    world.down.add("b3")
    world.add(writer, pen, b"one")
    world.settle()
    world.catalog.is_held = True
    world.down.add("b2")
    world.add(writer, pen, b"two")
    world.settle()
    assert writer.confirmed == 2
    repair_first_fragment(world, pen.ledger_id)
    world.catalog.is_held = False
    world.settle()
    found, _ = world.catalog.metadata(pen.ledger_id)
    begins = [each.first_entry for each in found.fragments]
    ends = [begin - 1 for begin in begins[1:]]
    assert ends[-1] < 2
    assert [(each.first_entry, each.last_entry) for each in found.sums] == list(
        zip(begins, ends, strict=False)
    )
    assert all(each.digests == (1_000 * (each.last_entry - each.first_entry + 1),) for each in found.sums)


def test_a_ledger_that_closed_empty_and_one_of_a_level_before_publish_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """P10.8: what a build before would drop is not written; P11.4: there is nothing of no entries."""
    with healed() as story:
        assert story.metadata(closed(story, 3)).sums
        with monkeypatch.context() as older:
            older.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_SUMS)
            assert story.metadata(closed(story, 3)).sums == ()
        writer = story.cluster.client().create_ledger()
        writer.close()
        found = story.metadata(writer.ledger_id)
        assert found.sums == ()
        fields = msgspec.msgpack.decode(encode_ledger_metadata(found))
        assert len(fields) == len(msgspec.structs.fields(LedgerMetadata)) - 1
        with_sums = encode_ledger_metadata(replace_sums(found, (PublishedSums(0, 0, (1,)),)))
        assert msgspec.msgpack.decode(with_sums) == [*fields, [[0, 0, [1]]]]


def replace_sums(value: LedgerMetadata, sums: tuple[PublishedSums, ...]) -> LedgerMetadata:
    return value.with_changes(sums=sums)


def test_a_recovery_publishes_none_and_leaves_what_was_published() -> None:
    """P11.4: "a recovery does not read what was confirmed for it, and publishes none"."""
    with healed(bookies=5) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        writer.add_many([b"one", b"two"])
        story.cluster.crash(story.metadata(writer.ledger_id).fragments[-1].ensemble[0][0])
        writer.add(b"three")
        assert story.cluster.run_until(lambda: len(story.metadata(writer.ledger_id).fragments) == 2)
        writer.add(b"four")
        (before,) = story.metadata(writer.ledger_id).sums
        bk.open_ledger(writer.ledger_id, recover=True)
        found = story.metadata(writer.ledger_id)
        assert (found.last_entry, found.sums) == (3, (before,))
        assert before.last_entry < 3


def test_sums_are_of_a_fragment_and_of_nothing_that_cannot_be_told() -> None:
    """P11.4: "where anything cannot be told nothing is published"."""
    packer = TwinPacker(7)
    packer.begin_sums(modulus_of(STRIPED))
    ends = []
    for number in range(4):
        for _ in range(5):
            packer.append(b"x" * number)
        frame = packer.seal()
        assert frame is not None
        ends.append(frame.last_entry)
    begun = metadata(STRIPED, 19, (0, (1, 2, 3)))
    assert sums_with(begun, NO_ENTRY, packer.sums_through(NO_ENTRY)) == ()
    first = sums_with(begun, ends[0], packer.sums_through(ends[0]))
    assert [(each.first_entry, each.last_entry) for each in first] == [(0, 4)]
    assert packer.sums_through(7) == (), "no frame ends there"
    changed = metadata(STRIPED, 19, (0, (1, 2, 3)), (5, (1, 2, 4))).with_changes(sums=first)
    assert sums_with(changed, ends[0], packer.sums_through(ends[0])) == first, (
        "nothing is in the second one yet"
    )
    total = packer.sums_through(ends[2])
    both = sums_with(changed, ends[2], total)
    assert tuple((a + b) % WHOLE for a, b in zip(*(each.digests for each in both), strict=True)) == total
    unsaid = metadata(STRIPED, 19, (0, (1, 2, 3)), (5, (1, 2, 4)))
    assert sums_with(unsaid, ends[2], total) == (), "the first one was not published"


@pytest.mark.parametrize(
    "sums",
    [
        (PublishedSums(3, 2, (1,)),),
        (PublishedSums(0, 5, (1,)), PublishedSums(5, 9, (1,))),
        (PublishedSums(0, 9, ()),),
        (PublishedSums(0, 9, (-1,)),),
    ],
)
def test_sums_that_no_ledger_has_are_refused(sums: tuple[PublishedSums, ...]) -> None:
    """P2.5: what stands in the metadata is somebody's word."""
    with pytest.raises(StorageError):
        decode_ledger_metadata(encode_ledger_metadata(replace_sums(metadata(THREE, 9, (0, (1, 2, 3))), sums)))


# Audits.


def test_a_bookie_whose_digests_are_not_the_published_ones_is_named() -> None:
    """P11.4: "named even where all other copies are lost, or alike"."""
    ledger = replace_sums(metadata(STRIPED, 29, (0, (1, 2, 3))), (PublishedSums(0, 29, (10, 20, 30)),))
    told = {
        (0, 29, 3, 0): {member(1): 10, member(2): 10},
        (0, 29, 3, 1): {member(2): 21, member(3): 21},
        (0, 29, 3, 2): {member(3): 30},
    }
    assert unlike_published(ledger, told) == [Unlike("b2", 0, 29, 3, 1), Unlike("b3", 0, 29, 3, 1)]
    assert unlike_published(replace_sums(ledger, ()), told) == []


def test_the_sum_of_a_whole_ledger_is_known_where_all_of_it_was_published() -> None:
    """P11.4: of "all that it has of a ledger"; a gap, and what was given up, leave nothing to compare."""
    ledger = metadata(THREE, 29, (0, (1, 2, 3)), (10, (1, 2, 4)))
    first, last = PublishedSums(0, 9, (WHOLE - 1,)), PublishedSums(10, 29, (3,))
    assert published_total(replace_sums(ledger, (first, last))) == 2
    assert published_total(replace_sums(ledger, (last,))) is None
    assert published_total(replace_sums(ledger, (first,))) is None
    striped = replace_sums(metadata(STRIPED, 9, (0, (1, 2, 3))), (PublishedSums(0, 9, (1, 2, 3)),))
    assert published_total(striped) == 6


def test_parts_add_up_and_what_was_not_told_whole_is_no_party() -> None:
    """P7.1: "cannot tell" is no difference; P11.4: sums add up, whatever the parts."""
    ledger = replace_sums(metadata(THREE, 29, (0, (1, 2, 3))), (PublishedSums(0, 29, (WHOLE - 1, 3, 4)),))
    told = {
        (0, 9, 1, 0): {member(1): WHOLE - 4, member(2): 1, member(3): 1},
        (10, 29, 1, 0): {member(1): 10, member(3): 4},
    }
    assert unlike_published(ledger, told) == [Unlike("b3", 0, 29, 1, 0)]
    assert published_digest(ledger, 0, 29, 2, 0) is None, "other residues"
    lost = ledger.with_changes(lost=(Losses(((4, 4, 1),), 0, "me", "it is gone"),))
    assert unlike_published(lost, told) == [], "what was given up nobody has"


def test_the_auditor_names_the_bookie_where_both_copies_agree_on_a_wrong_thing() -> None:
    """P11.4, I56: copies that are alike and are not what their writer made; comparing them with each other finds
    nothing."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        ledger_id = closed(story, 12)
        service = story.repairer()
        held = {name: plant(story, name, ledger_id, 7) for name in ("b1", "b2", "b3")}
        assert story.cluster.run_until(lambda: ledger_id in service.auditor.look.unlike)
        assert ledger_id not in service.auditor.look.conflicts
        assert [each[:3] for each in service.auditor.look.unlike[ledger_id]] == [
            (b, 0, 11) for b in ("b1", "b2", "b3")
        ]
        health = bk.health()
        assert (health.is_good, health.unlike, health.conflicts) == (False, 1, 0)
        assert f"not what their writer published: ledger {ledger_id} on b1 b2 b3" in str(health)
        for name, entry in held.items():
            story.world.nodes[name].storage.store.entries[ledger_id][7] = entry
        bk.trigger_audit()
        assert story.cluster.run_until(lambda: not service.auditor.look.unlike)
        assert bk.health().is_good


def test_of_two_copies_that_differ_the_sums_tell_which_is_another() -> None:
    """P11.4: "names the bookie that differs"."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 12)
        service = story.repairer()
        plant(story, "b2", ledger_id, 7)
        assert story.cluster.run_until(lambda: ledger_id in service.auditor.look.conflicts)
        assert {each.bookie_id for each in service.auditor.look.unlike[ledger_id]} == {"b2"}


# Repair.


@pytest.mark.parametrize("sizes", [(2, 2, 1), (3, 2, 1)])
def test_a_copy_that_is_not_what_was_published_takes_no_seat(sizes: tuple[int, int, int]) -> None:
    """P11.4: "repair checks what it copied": the one copy that is left is whole by itself, and is not what the writer
    made. The fragment stays as it is, and says why."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with Cluster(seed=1, bookies=5) as cluster:  # Unobserved: what was planted breaks I7 when it is copied.
        cluster.client()
        story = Healed(cluster)
        ledger_id = closed(story, 12, **named)
        before = story.metadata(ledger_id)
        seat = before.fragments[0].members.index(
            next(m for m in before.fragments[0].members if m.bookie_id == "b1")
        )
        # Both of an entry of which b1 has a copy.
        entry_id = next(each for each in range(12) if "b1" in holders(before, each))
        other = next(name for name in holders(before, entry_id) if name != "b1")
        plant(story, other, ledger_id, entry_id)
        story.repairer()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: bool(story.given_up()))
        assert story.metadata(ledger_id).fragments[0].members[seat].bookie_id == "b1"
        (why,) = story.given_up().values()
        assert b"are not what their writer published" in why


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 3, 2)])
@pytest.mark.parametrize("frame_bytes", [400, 1 << 16])
def test_repair_copies_from_whoever_has_what_was_published(
    sizes: tuple[int, int, int], frame_bytes: int
) -> None:
    """P11.4: "b2 has another e1 than was written, b1 is lost, and b4 gets the wrong one, though b3 has the right one":
    where all sources are asked first, and where one read has all. Nobody has to say a word."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with Cluster(seed=1, bookies=6) as cluster:  # Unobserved: what was planted breaks I7.
        writer = cluster.client().create_ledger(**named)
        writer.add_many([b"entry %04d" % number for number in range(24)])
        writer.close()
        story, ledger_id = Healed(cluster), writer.ledger_id
        before = story.metadata(ledger_id).fragments[0].members
        lost, wrong, right = (each.bookie_id for each in before[:3])
        plant(story, wrong, ledger_id, 8)  # Of the write set of these three, and read from that one first.
        made = stored(story, ledger_id)
        made[8] = story.world.nodes[right].storage.store.entries[ledger_id][8]
        story.repairer(options=replace(OPTIONS, copying=replace(OPTIONS.copying, frame_bytes=frame_bytes)))
        sent = story.sends_of("healer")
        story.cluster.crash(lost)
        assert story.cluster.run_until(
            lambda: lost not in {each.bookie_id for each in story.metadata(ledger_id).fragments[0].members}
        )
        assert not story.given_up()
        after = story.metadata(ledger_id).fragments[0].members[0]
        copied = story.world.nodes[after.bookie_id].storage.store.entries[ledger_id]
        assert 8 in copied and all(copied[each] == made[each] for each in copied)
        assert any(each.tag[0] == SOURCE for each in sent) == (frame_bytes == 400)


def holders(value: LedgerMetadata, entry_id: int) -> list[str]:
    fragment, quorum = value.fragment_of(entry_id), value.quorum
    seats = [(entry_id + each) % quorum.ensemble_size for each in range(quorum.write_quorum)]
    return [fragment.members[seat].bookie_id for seat in seats]
