"""Ledgers that their writers left, with a bookie that is gone: closed first, and repaired like any other (P11.2, AR08).
What is open and written is never fenced, in whole clusters, with every invariant on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from embedbk.codec.add_messages import FenceRequest
from embedbk.codec.ledger_metadata import LedgerState, encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import Compare, Put, Txn
from embedbk.codec.repair_mark import decode_repair_mark, is_orphan, progress_of, repair_mark_path
from embedbk.ledger import LedgerWriter
from tests.repair.healed import GRACE_S, OPTIONS, Healed, healed
from tests.repair.test_repaired import holders_hold

ENTRIES = [b"entry %d" % number for number in range(5)]


def opened(story: Healed, password: bytes = b"") -> LedgerWriter:
    """An open ledger of a client "writer", with some entries. Its own client counts nobody as lost for long (P4.1)."""
    bk = story.cluster.client("writer")
    story.world.nodes["writer"].listed.absences._grace_ns = 3_600_000_000_000
    writer = bk.create_ledger(password=password)
    writer.add_many(ENTRIES)
    return writer


def word(story: Healed, ledger_id: int) -> bool:
    value = story.world.committed("/ur/").get(repair_mark_path(ledger_id))
    return value is not None and is_orphan(decode_repair_mark(value))


def test_a_ledger_whose_writer_is_gone_is_closed_and_has_its_copies_again() -> None:
    """AR08: fenced, recovered and closed by a worker, and then repaired; every entry that was acknowledged is there."""
    with healed() as story:
        ledger_id = opened(story).ledger_id
        lost = sorted(story.named(ledger_id))[0]
        service = story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("writer")
        story.cluster.crash(lost)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, lost), 400)
        assert story.metadata(ledger_id).is_closed
        holders_hold(story, ledger_id, len(ENTRIES))
        assert [bytes(each) for each in story.cluster.client().open_ledger(ledger_id).read()] == ENTRIES
        assert service.outcomes["unrepairable"] == 0


def test_an_idle_writer_that_lives_is_never_fenced() -> None:
    """AR08: "only a ledger whose writer's session is gone is recovered first". For long nothing is written, and a
    bookie is dead; then the writer's own client gives the seat away (P4.1), and all copies are there again."""
    with healed() as story:
        writer = opened(story)
        lost = sorted(story.named(writer.ledger_id))[0]
        service = story.repairer()
        sends = story.sends_of("healer")
        story.cluster.run_for(1)
        story.cluster.crash(lost)
        story.cluster.run_for(30 * GRACE_S)
        assert service.outcomes["deferred"] > 0
        assert not [each for each in sends if isinstance(each.control, FenceRequest)]
        story.world.nodes["writer"].listed.absences._grace_ns = 1_000_000_000
        story.world.wake("writer")
        assert story.cluster.run_until(lambda: story.is_healed(writer.ledger_id, lost), 400)
        assert story.metadata(writer.ledger_id).state == LedgerState.OPEN
        writer.add(b"behind")
        writer.close()
        holders_hold(story, writer.ledger_id, len(ENTRIES) + 1)


def test_a_writer_whose_session_comes_back_within_the_grace_is_never_fenced() -> None:
    """AR08, "after the grace": its session is lost, and it has another one before that is over, again and again."""
    with healed() as story:
        writer = opened(story)
        lost = sorted(story.named(writer.ledger_id))[0]
        story.repairer()
        sends = story.sends_of("healer")
        story.cluster.run_for(1)
        story.cluster.crash(lost)
        story.cluster.run_for(2 * GRACE_S)
        for _ in range(4):
            story.cluster.pause("writer")
            assert story.cluster.run_until(lambda: not story.world.committed("/living/"))
            story.cluster.run_for(GRACE_S / 3)
            story.cluster.resume("writer")
            assert story.cluster.run_until(lambda: bool(story.world.committed("/living/")))
            story.cluster.run_for(2)
        assert not [each for each in sends if isinstance(each.control, FenceRequest)]
        writer.add(b"behind")
        assert story.metadata(writer.ledger_id).state == LedgerState.OPEN


def test_a_writer_that_shows_life_again_takes_the_word_from_the_mark() -> None:
    """AR08: what counts is whether it lives now, and the grace begins anew. Meanwhile no worker may close anything."""
    with healed() as story:
        writer = opened(story)
        ledger_id = writer.ledger_id
        lost = sorted(story.named(ledger_id))[0]
        story.repairer(options=replace(OPTIONS, opener=None))
        story.cluster.run_for(1)
        story.cluster.crash(lost)
        story.cluster.pause("writer")
        assert story.cluster.run_until(lambda: word(story, ledger_id), 400)
        story.cluster.resume("writer")
        assert story.cluster.run_until(lambda: bool(story.marks()) and not word(story, ledger_id))
        writer.add(b"behind")
        assert story.metadata(ledger_id).state == LedgerState.OPEN


def test_a_recovery_that_stopped_half_way_is_ended() -> None:
    """AR08: IN_RECOVERY the ledger was fenced by somebody's word; who began that is gone, whether the writer lives or
    not, and no ledger stays short of copies for it."""
    with healed() as story:
        ledger_id = opened(story).ledger_id
        lost = sorted(story.named(ledger_id))[0]
        story.repairer()
        _begin_recovery(story, ledger_id)
        story.cluster.run_for(1)
        story.cluster.crash(lost)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, lost), 400)
        assert story.metadata(ledger_id).is_closed
        holders_hold(story, ledger_id, len(ENTRIES))


def _begin_recovery(story: Healed, ledger_id: int) -> None:
    key = ledger_key_path(ledger_id)
    begun = encode_ledger_metadata(story.metadata(ledger_id).with_changes(state=LedgerState.IN_RECOVERY))
    metadata = story.cluster.client()._runtime.node.metadata
    metadata.request(story.world.now_of("client"), Txn([], [Put(key, begun)]), lambda *_: None)
    story.world.wake("client")


@pytest.mark.parametrize("kind", ["password", "nameless"])
def test_what_a_worker_may_not_or_cannot_close_stays_and_is_told(kind: str) -> None:
    """AR08: of a ledger that names no writer (made below the level of that) nobody can tell, and "cannot tell" is never
    "gone"; a ledger with a password is closed by those who know it."""
    with healed() as story:
        ledger_id = opened(story, b"secret" if kind == "password" else b"").ledger_id
        if kind == "nameless":
            before = story.metadata(ledger_id).with_changes(writer="")
            metadata = story.cluster.client()._runtime.node.metadata
            put = Put(ledger_key_path(ledger_id), encode_ledger_metadata(before))
            metadata.request(story.world.now_of("client"), Txn([], [put]), lambda *_: None)
            story.world.wake("client")
        lost = sorted(story.named(ledger_id))[0]
        story.repairer()
        sends = story.sends_of("healer")
        story.cluster.run_for(1)
        story.cluster.crash("writer")
        story.cluster.crash(lost)
        story.cluster.run_for(30 * GRACE_S)
        assert not [each for each in sends if isinstance(each.control, FenceRequest)]
        assert story.metadata(ledger_id).state == LedgerState.OPEN
        (value,) = story.world.committed("/ur/").values()
        why = {"password": "only who knows its password can recover it", "nameless": "is its writer's"}[kind]
        assert why in progress_of(decode_repair_mark(value)).why
        assert word(story, ledger_id) == (kind == "password")


def test_the_transaction_that_fences_compares_that_the_writer_shows_no_life() -> None:
    """AR08: a writer may come back between the auditor's word and the worker."""
    with healed() as story:
        writer = opened(story)
        ledger_id, metadata = writer.ledger_id, story.metadata(writer.ledger_id)
        lost = sorted(story.named(ledger_id))[0]
        compared: list[Compare] = []
        story.repairer()
        before = story.world.nodes["healer"].on_step

        def look(core: object, event: object, effects: list[object]) -> None:
            for effect in effects:
                for put in getattr(effect, "then", []):
                    if put.key == ledger_key_path(ledger_id) and not compared:
                        compared.extend(effect.when)
            if before is not None:
                before(core, event, effects)

        story.world.nodes["healer"].on_step = look
        story.cluster.run_for(1)
        story.cluster.crash("writer")
        story.cluster.crash(lost)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, lost), 400)
        assert Compare(f"/living/{metadata.writer}", 0) in compared


def test_a_ledger_that_its_writer_left_is_closed_for_a_bookie_that_is_drained() -> None:
    """AR08, P11.3: "an open ledger that its writer left is closed first"; a drain needs no operator for it. Nobody is
    away, and the bookie that leaves is read from."""
    with healed() as story:
        writer = opened(story)
        ledger_id, leaves = writer.ledger_id, sorted(story.named(writer.ledger_id))[0]
        story.repairer()
        story.cluster.run_for(1)
        story.cluster.crash("writer")
        bk = story.cluster.client()
        bk.drain_bookie(leaves, why="old disks")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, leaves), 120)
        assert story.metadata(ledger_id).is_closed
        holders_hold(story, ledger_id, len(ENTRIES))
        assert bk.bookie(leaves).is_empty
        assert [bytes(each) for each in bk.open_ledger(ledger_id).read()] == ENTRIES


def test_a_living_writer_that_cannot_move_its_seat_from_a_drained_bookie_is_not_fenced() -> None:
    """AR08: it may not change its ensemble for long, and nothing is written; then it gives the seat away by itself."""
    with healed() as story:
        writer = opened(story)
        ledger_id, leaves = writer.ledger_id, sorted(story.named(writer.ledger_id))[0]
        story.repairer()
        sends = story.sends_of("healer")
        bk = story.cluster.client()
        core = writer._appending.writing.core
        core.changes.count = core.options.changes_max // 2  # The other half is for failures.
        bk.drain_bookie(leaves, why="old disks")
        story.cluster.run_for(20 * GRACE_S)
        assert leaves in story.named(ledger_id)
        assert not story.marks()
        core.changes.count = 0
        story.cluster.crash("client")
        bk = story.cluster.client("another")
        assert story.cluster.run_until(lambda: len(story.metadata(ledger_id).fragments) == 2, 60)
        assert story.cluster.run_until(lambda: bk.bookie(leaves).is_empty, 60)
        assert not story.metadata(ledger_id).is_closed
        assert not [each for each in sends if isinstance(each.control, FenceRequest)]


def test_rounds_that_follow_each_other_closely_leave_writers_their_turn() -> None:
    """AR08: `Settings.audit_s` may be a second, and each look of the auditor finds the next round due."""
    with healed() as story:
        ledger_id = opened(story).ledger_id
        lost = sorted(story.named(ledger_id))[0]
        story.repairer(options=replace(OPTIONS, auditor=replace(OPTIONS.auditor, round_ns=1)))
        story.cluster.run_for(1)
        story.cluster.crash("writer")
        story.cluster.crash(lost)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, lost), 60)
        assert story.metadata(ledger_id).is_closed
