"""An operator puts a bookie to read-only by a word in the metadata: it takes nothing new, and nothing moves (P11.3)."""

from __future__ import annotations

import argparse
import json

import pytest

from embedbk.cli import bookies as commands
from embedbk.client.client import Client
from embedbk.client.read_only import put_to_read_only
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.codec.registration import (
    PlacementNote,
    decode_placement,
    decode_registration,
    encode_placement,
    placement_path,
)
from embedbk.errors import NotEnoughBookies, UsageError
from embedbk.metadata.levels import LEVEL_OF_READ_ONLY_WORDS
from tests.repair.healed import Healed, healed
from tests.repair.test_draining import empty
from tests.repair.test_repaired import closed, holders_hold


def is_listed(story: Healed, bookie_id: str = "b1") -> bool:
    """Whether it is listed as writable."""
    return decode_registration(story.world.committed("/bookies/")["/bookies/" + bookie_id]).is_writable


def put_away(story: Healed, bk: Client, bookie_id: str = "b1") -> None:
    bk.put_to_read_only(bookie_id, "its fan is loud")
    assert story.cluster.run_until(lambda: not is_listed(story, bookie_id))
    story.cluster.run_for(0.5)


def note_of(story: Healed, bookie_id: str = "b1") -> PlacementNote:
    return decode_placement(story.world.committed("/placements/")[placement_path(bookie_id)])


def test_it_takes_no_new_ledger_and_serves_on_what_it_has_and_nothing_moves() -> None:
    """P11.3, P10.6: its open ledgers keep their seats there and are added to; closed ones stay, whoever repairs."""
    with healed(bookies=4) as story:
        old = closed(story)
        bk = story.cluster.client()
        while True:
            writer = bk.create_ledger()
            if "b1" in story.named(writer.ledger_id):
                break
        writer.add(b"before")
        had = "b1" in story.named(old)
        put_away(story, bk)
        story.repairer()
        fragments = story.metadata(writer.ledger_id).fragments
        for number in range(10):
            writer.add(b"behind %d" % number)
        made = [bk.create_ledger().ledger_id for _ in range(6)]
        story.cluster.run_for(60)
        assert not [each for each in made if "b1" in story.named(each)]
        assert story.metadata(writer.ledger_id).fragments == fragments
        assert ("b1" in story.named(old)) == had
        assert not story.marks()
        holders_hold(story, writer.ledger_id, 11)
        assert [bytes(each) for each in bk.open_ledger(old).read()] == [b"entry %04d" % n for n in range(30)]


def test_it_is_shown_with_the_reason_survives_a_restart_and_ends_by_a_word() -> None:
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        put_away(story, bk)
        state = bk.bookies()[0]
        assert (state.state, state.why) == ("read-only", "read-only by client (its fan is loud)")
        assert str(bk.health()).endswith("; takes nothing new: b1 (read-only by client (its fan is loud))")
        story.cluster.crash("b1")
        story.cluster.run_for(1)
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: story.world.nodes["b1"].is_registered)
        assert not is_listed(story)
        word = note_of(story).read_only
        bk.put_to_read_only("b1", "another reason")  # Said again it changes nothing.
        assert note_of(story).read_only == word
        bk.end_read_only("b1")
        assert story.cluster.run_until(lambda: is_listed(story))
        story.cluster.run_for(0.5)
        assert "takes nothing new" not in str(bk.health())
        assert any("b1" in story.named(bk.create_ledger().ledger_id) for _ in range(20))


def test_a_drain_and_a_read_only_word_stand_for_themselves() -> None:
    """A drain that is cancelled leaves the word, and a word that ends leaves the drain."""
    with healed(bookies=5) as story:
        closed(story)
        bk = story.cluster.client()
        put_away(story, bk)
        assert bk.drain_bookie("b1", "a new disk").is_draining
        story.repairer()
        assert empty(story).bookie.state == "draining"
        bk.cancel_drain("b1")
        story.cluster.run_for(1)
        assert (is_listed(story), bk.bookies()[0].state) == (False, "read-only")
        bk.drain_bookie("b1")
        bk.end_read_only("b1")
        story.cluster.run_for(1)
        report = bk.put_to_read_only("b1", "again")
        assert (report.is_draining, report.bookie.state) == (True, "draining")
        bk.end_read_only("b1")
        story.cluster.run_for(1)
        assert (is_listed(story), bk.bookies()[0].state) == (False, "draining")
        bk.put_to_read_only("b1", "again")
        bk.decommission_bookie("b1")
        assert note_of(story).read_only is None  # Another bookie may get its id.


def test_new_disks_under_its_id_are_not_read_only() -> None:
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        put_away(story, bk)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: "/bookies/b1" not in story.world.committed("/bookies/"))
        incarnation = bk.bookie("b1").incarnation
        bk.give_up_bookie("b1", incarnation, "burnt")
        assert note_of(story).read_only is not None
        bk.replace_bookie("b1")
        assert note_of(story).read_only is None


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    """P10.8: builds before would list it as writable, and drop the word, so it is not written below its level."""
    with healed() as story:
        bk = story.cluster.client()
        before = story.world.committed("/placements/")
        with pytest.raises(UsageError, match="needs its reason"):
            bk.put_to_read_only("b1", " ")
        with pytest.raises(UsageError, match="no bookie b9"):
            bk.put_to_read_only("b9", "why")
        with pytest.raises(UsageError, match="not read-only by an operator's word"):
            bk.end_read_only("b1")
        metadata = bk._runtime.node.metadata.client
        known, metadata.cluster_level = metadata.cluster_level, LEVEL_OF_READ_ONLY_WORDS - 1
        with pytest.raises(UsageError, match=f"needs level {LEVEL_OF_READ_ONLY_WORDS}"):
            bk.put_to_read_only("b1", "why")
        metadata.cluster_level = known
        assert story.world.committed("/placements/") == before


def test_the_last_bookies_that_take_entries_are_kept_for_what_is_written() -> None:
    """P11.3, "refused with the counts where fewer bookies than any open log/ledger needs would take entries": of an
    open ledger, and of a log whose newest ledger is closed, as the next one has as many seats; nothing was changed. By
    an operator's word it is done all the same."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        wide = bk.create_ledger(ensemble_size=4, write_quorum=3, ack_quorum=2)
        before = story.world.committed("/placements/")
        with pytest.raises(
            NotEnoughBookies, match=r"3 other bookies take entries \(b2, b3, b4\), and 4 are needed"
        ):
            bk.put_to_read_only("b1", "its fan")
        assert story.world.committed("/placements/") == before
        wide.close()
        with bk.log("orders").writer() as writer:
            writer.append(b"one")
        # Listed as writable still, and counted as what its placement says.
        bk.put_to_read_only("b1", "its fan")
        with pytest.raises(
            NotEnoughBookies, match=r"2 other bookies take entries \(b3, b4\), and 3 are needed"
        ):
            bk.put_to_read_only("b2", "its fan")
        assert bk.put_to_read_only("b2", "its fan", force=True).read_only is not None


def test_two_words_at_once_do_not_count_on_each_others_bookie() -> None:
    """P10.6: the transaction compares the placements of those who take entries."""
    with healed(bookies=4) as story:
        bk = story.cluster.client()
        bk.create_ledger()
        story.cluster.run_for(0.5)
        runtime = bk._runtime
        transact, beside = runtime.transact, [True]

        async def late(when: list[Compare], then: list[Put | Delete], what: str) -> bool:
            if beside and beside.pop():
                await put_to_read_only(runtime, "b2", why="beside it")
            return await transact(when, then, what)

        runtime.transact = late  # type: ignore[method-assign, assignment]
        with pytest.raises(NotEnoughBookies, match="2 other bookies take entries"):
            bk.put_to_read_only("b1", "its fan")
        assert note_of(story).read_only is None
        assert note_of(story, "b2").read_only is not None


def test_a_note_of_a_build_before_says_no_such_word() -> None:
    """WIRE.md: the field is appended."""
    note = encode_placement(PlacementNote(1, True, "old", "me", 7))
    bounds = bytes([0x95, 0, 0, 0, 0xA0, 0])
    assert note[0] == 0x98 and note.endswith(bytes([0xC0]) + bounds)
    rest = note[1 : -1 - len(bounds)]
    assert decode_placement(bytes([0x96]) + rest) == PlacementNote(1, True, "old", "me", 7)


def test_the_command_says_what_holds_by_now(capsys: pytest.CaptureFixture[str]) -> None:
    with healed() as story:
        bk = story.cluster.client()
        shown = commands._read_only(
            lambda: bk, argparse.Namespace(id="b1", off=False, why="its fan", force=False)
        )
        assert "read-only since " in shown.text and shown.text.splitlines()[1].endswith(" by client: its fan")
        assert json.loads(json.dumps(shown.data, default=str))["read_only"]["why"] == "its fan"
        other = story.cluster.client("other")
        ended = commands._read_only(lambda: other, argparse.Namespace(id="b1", off=True, why=""))
        assert ended.data is not None and ended.data["read_only"] is None
        assert {each.text.splitlines()[-1] for each in (shown, ended)} == {
            "its list of itself follows within seconds, where it runs"
        }


def test_whoever_chose_it_from_an_older_list_names_it_no_more() -> None:
    """P10.6: the word raises its placement, so that the creation compares an older one, and chooses anew."""
    with healed(bookies=4) as story:
        bk, late = story.cluster.client(), story.cluster.client("late")
        story.cluster.run_for(0.5)
        listed = late._runtime.node.bookies
        bk.put_to_read_only("b1", "its fan")
        late._runtime.node.listed.bookies = listed
        for _ in range(8):
            assert "b1" not in story.named(late.create_ledger().ledger_id)
