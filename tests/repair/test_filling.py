"""Bookies that are there and lack entries get them, and only them: in whole clusters, every invariant on (P11.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedbk.codec.add_messages import AddRequest
from embedbk.codec.frame import frame_of
from embedbk.codec.holdings_messages import HoldingsRequest
from embedbk.codec.repair_messages import MarkRepairs
from embedbk.codec.repair_state import decode_unrepairable, unrepairable_path
from embedbk.core.client_words import Send
from embedbk.host import bookie_requests
from tests.repair.healed import OPTIONS, Healed, healed
from tests.repair.test_repaired import closed, holders_hold

SETTLED_S = OPTIONS.auditor.settle_ns / 1e9


def short(story: Healed, count: int, lost: list[int], victim: str = "b3", **sizes: int) -> int:
    """A closed ledger of which one bookie never got these adds, each of one entry."""
    writer = story.cluster.client().create_ledger(**sizes)
    for number in range(count):
        rule = None
        if number in lost:
            rule = story.cluster.drop_messages("AddRequest", receiver=victim, ledger_id=writer.ledger_id)
        writer.add(b"entry %04d" % number)
        if rule is not None:
            rule()
    writer.close()
    return writer.ledger_id


def held(story: Healed, name: str, ledger_id: int) -> list[int]:
    storage = story.world.nodes[name].storage
    return sorted(storage.store.ids.get(ledger_id, []))


def rot(story: Healed, name: str, ledger_id: int, entry_id: int) -> None:
    """One copy, which its bookie's scrubber finds."""
    storage = story.world.nodes[name].storage
    storage.begin_flush_if_due(is_due=True)
    storage.finish_flush()
    story.cluster.damage(name, ledger_id, entry_id)
    assert storage.begin_scrub(1 << 20)
    assert storage.finish_scrub().damages


def copied(sends: list[Send]) -> list[int]:
    """Entries that were copied, in the order of sending."""
    return [
        entry_id
        for send in sends
        if isinstance(send.control, AddRequest) and send.control.is_copy
        for _, frame in send.frames
        for entry_id in range(frame.first_entry, frame.last_entry + 1)
    ]


def test_what_a_bookie_lacks_is_copied_to_it_and_nothing_else() -> None:
    """P11.4: "repair copies the missing entries to that same bookie, entry by entry, only what lacks"; no fragment
    changes."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 12, [3, 4, 9])
        assert held(story, "b3", ledger_id) == [0, 1, 2, 5, 6, 7, 8, 10, 11]
        before = story.metadata(ledger_id)
        service = story.repairer()
        sends = story.sends_of("healer")
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        holders_hold(story, ledger_id, 12)
        assert story.metadata(ledger_id) == before
        assert copied(sends) == [3, 4, 9]
        assert {send.member.bookie_id for send in sends if isinstance(send.control, AddRequest)} == {"b3"}
        assert not story.marks()
        assert service.copies == 3


def test_behind_a_repair_the_audit_is_clean_and_lists_no_entries() -> None:
    """P11.4: in the healthy case one small question for each bookie of a ledger, and no entry is read."""
    with healed(bookies=3) as story:
        short(story, 12, [0, 11])
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        sends = story.sends_of("healer")
        lacking = service.auditor.look.lacking
        story.cluster.client().trigger_audit()
        story.cluster.run_for(5)
        assert service.auditor.look.lacking == lacking
        assert [type(send.control) for send in sends] == [HoldingsRequest] * 3
        assert not story.marks()


@pytest.mark.parametrize("sizes", [(4, 2, 2), (5, 3, 2)])
def test_a_seat_of_a_striped_ledger_gets_its_part(sizes: tuple[int, int, int]) -> None:
    """P3.7, P11.4: what a seat does not owe is not missed, and not copied."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    if sizes[1] == sizes[2]:
        named["ack_quorum"] = 1
    with healed(bookies=5) as story:
        ledger_id = short(story, 25, list(range(6, 15)), "b2", **named)
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        holders_hold(story, ledger_id, 25)
        assert not story.marks()


def test_a_ledger_that_is_closed_while_nobody_looks_is_found_soon() -> None:
    """P11.4: the auditor was there before the ledger, and no round is due for long."""
    with healed(bookies=3) as story:
        service = story.repairer()
        story.cluster.run_for(3)
        ledger_id = short(story, 6, [5])
        story.cluster.run_for(SETTLED_S + 5)
        assert service.outcomes["repaired"] == 1
        holders_hold(story, ledger_id, 6)


def test_who_was_away_when_it_was_closed_is_asked_when_it_is_back() -> None:
    """P5.1: a close waits for no copy beyond Qa; P11.4: who was not there did not say, and is asked again."""
    with healed(bookies=3) as story:
        patient = replace(OPTIONS.auditor, grace_ns=1_000 * 10**9, round_ns=1_000 * 10**9)
        service = story.repairer("healer", replace(OPTIONS, auditor=patient))
        story.cluster.run_for(3)
        writer = story.cluster.client().create_ledger()
        writer.add(b"entry 0000")
        story.cluster.crash("b3")
        for number in range(1, 6):
            writer.add(b"entry %04d" % number)
        writer.close()
        story.cluster.run_for(SETTLED_S + 5)
        assert service.outcomes == {}
        story.cluster.restart("b3")
        story.cluster.run_for(SETTLED_S + 15)
        assert service.outcomes["repaired"] == 1
        holders_hold(story, writer.ledger_id, 6)


def test_an_entry_that_rots_is_replaced_from_a_good_copy() -> None:
    """P11.4, I55: the scrubber finds it, the bookie does not count it, and gets a good copy; every copy of one entry is
    bad somewhere, none everywhere."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 12)
        for name, entry_id in (("b1", 4), ("b2", 7), ("b3", 4)):
            rot(story, name, ledger_id, entry_id)
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] >= 1)
        assert story.cluster.run_until(lambda: not story.marks())
        holders_hold(story, ledger_id, 12)


def test_an_entry_without_a_good_copy_is_named_and_not_guessed() -> None:
    """P11.2, P11.4: "if none is certain it is said"; all others are copied."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 12, [2, 4, 5, 6, 9])
        for name in ("b1", "b2"):
            story.cluster.damage(name, ledger_id, 5)
        story.repairer()
        assert story.cluster.run_until(lambda: unrepairable_path(ledger_id) in story.given_up())
        found = decode_unrepairable(story.given_up()[unrepairable_path(ledger_id)])
        assert found.entry_id == 5
        assert held(story, "b3", ledger_id) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_bookie_that_goes_away_while_it_is_filled_gets_the_rest_later() -> None:
    """P11.2: a try that cannot tell is tried again; what was copied stays."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 20, list(range(2, 18)))
        service = story.repairer()
        sends = story.sends_of("healer")
        assert story.cluster.run_until(lambda: len(copied(sends)) > 3)
        story.cluster.crash("b3")
        story.cluster.run_for(1)
        story.cluster.restart("b3")
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1, 900)
        holders_hold(story, ledger_id, 20)


def test_many_gaps_are_filled_round_by_round() -> None:
    """An answer names 64 ranges at most; the count says that there are more."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 160, list(range(0, 160, 2)))
        service = story.repairer()
        sends = story.sends_of("healer")
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1, 900)
        assert sorted(copied(sends)) == list(range(0, 160, 2))
        holders_hold(story, ledger_id, 160)


def test_copies_carry_the_entries_as_they_were_made() -> None:
    """I7, I8, P3.1: verbatim."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 8, [6])
        story.repairer()
        assert story.cluster.run_until(lambda: len(held(story, "b3", ledger_id)) == 8)
        bodies = [
            bytes(story.world.nodes[name].storage.read(ledger_id, 6, 6, 1 << 20).frame.body)
            for name in ("b1", "b3")
        ]
        assert bodies[0] == bodies[1]
        assert frame_of(memoryview(bodies[0]), ledger_id).first_entry == 6


def test_below_its_level_nobody_is_asked_and_repair_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.8, AR11: a bookie of a build before would end the link; a mark of one that is there ends without a copy."""
    monkeypatch.setattr(bookie_requests, "_LEVEL_NEEDED", dict.fromkeys(bookie_requests._LEVEL_NEEDED, 99))
    monkeypatch.setattr("embedbk.client.repair_state.LEVEL_OF_HOLDINGS", 99)
    with healed(bookies=3) as story:
        ledger_id = short(story, 6, [5])
        service = story.repairer()
        asked: list[object] = []
        for name in ("b1", "b2", "b3"):
            story.world.nodes[name].on_step = lambda core, event, effects: asked.append(event)
        metadata = story.cluster.client()._runtime.node.metadata
        metadata.request(story.world.now_of("client"), MarkRepairs(((ledger_id, ("b3",)),)), lambda *_: None)
        story.world.wake("client")
        assert story.cluster.run_until(lambda: service.outcomes["nothing missing"] == 1)
        story.cluster.run_for(30)
        assert not [each for each in asked if isinstance(getattr(each, "control", None), HoldingsRequest)]
        health = story.cluster.client().health()
        assert (health.is_seated, health.is_good) == (True, False)
        assert "entries are not counted below" in str(health)


def test_marks_of_a_bookie_that_does_not_say_are_tried_again() -> None:
    """P11.4: "cannot tell" ends no mark."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 6, [5])
        service = story.repairer()
        assert story.cluster.run_until(lambda: bool(story.marks()))
        rule = story.cluster.drop_messages("HoldingsAnswer", sender="b3")
        assert story.cluster.run_until(lambda: service.outcomes["postponed"] > 0 or not story.marks(), 60)
        assert story.marks()
        rule()
        assert story.cluster.run_until(lambda: not story.marks(), 900)
        holders_hold(story, ledger_id, 6)


def test_a_bookie_that_is_read_only_gets_nothing_until_it_is_writable() -> None:
    """P7.8: what it has left is for fences; P11.4: the mark stays, and says why."""
    with healed(bookies=3) as story:
        ledger_id = short(story, 6, [5])
        story.world.nodes["b3"].storage.is_read_only = True
        story.cluster.run_for(3)
        service = story.repairer()
        sends = story.sends_of("healer")
        assert story.cluster.run_until(lambda: service.outcomes["postponed"] > 0)
        assert copied(sends) == []
        assert any(
            "b3 may lack entries, and is read-only" in each.why
            for each in story.cluster.client().health().ledgers
        )
        story.world.nodes["b3"].storage.is_read_only = False
        assert story.cluster.run_until(lambda: not story.marks(), 900)
        holders_hold(story, ledger_id, 6)


def test_what_a_bookie_lacks_is_copied_though_nobody_can_take_another_seat() -> None:
    """P11.4, AR10: of three bookies one is gone for good, so that every ledger is given up. One more copy rots: it had
    a good one left, and nobody made it again (seed 38000114)."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 12)
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: unrepairable_path(ledger_id) in story.given_up())
        rot(story, "b3", ledger_id, 4)
        assert story.cluster.run_until(lambda: service.filled == 1, 300)
        assert story.cluster.run_until(lambda: not story.marks())
        assert story.world.nodes["b3"].storage.read(ledger_id, 4, 4, 1 << 20).frame is not None
        found = decode_unrepairable(story.given_up()[unrepairable_path(ledger_id)])
        assert found.missing == ("b1",)


def test_a_bookie_that_does_not_say_keeps_no_other_from_being_filled() -> None:
    """P11.2: what cannot be done now is tried again, behind all that can be."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 12)
        (fragment,) = story.metadata(ledger_id).fragments
        silent, _, rotten = (member.bookie_id for member in fragment.members)
        for name in (silent, rotten):
            rot(story, name, ledger_id, 8 if name == rotten else 3)
        service = story.repairer()
        assert story.cluster.run_until(lambda: bool(story.marks()))
        rule = story.cluster.drop_messages("HoldingsAnswer", sender=silent)
        storage = story.world.nodes[rotten].storage
        assert story.cluster.run_until(lambda: storage.read(ledger_id, 8, 8, 1 << 20).frame is not None, 60)
        assert service.outcomes["repaired"] == 0
        rule()
        assert story.cluster.run_until(lambda: not story.marks(), 900)
        holders_hold(story, ledger_id, 12)
