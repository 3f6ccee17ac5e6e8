"""A bookie is taken out of service: drained, found empty, decommissioned; whole clusters, invariants on (P11.3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

import embedbk.testing
from embedbk.client import draining, retiring
from embedbk.client.bookie_reports import BookieReport
from embedbk.client.presence import answers
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import ledger_key_path
from embedbk.codec.metadata_messages import Put
from embedbk.codec.registration import (
    RETIRED_MAX,
    Cookie,
    PlacementNote,
    decode_cookie,
    decode_placement,
    encode_cookie,
    encode_placement,
    placement_path,
)
from embedbk.codec.repair_messages import MarkRepairs
from embedbk.core.metadata_words import Transact
from embedbk.errors import NoSuchLedger, NotEnoughBookies, StorageError, UsageError
from embedbk.host.repairing import RepairOptions
from embedbk.ids import Member
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.testing.member_names import METADATA
from embedbk.transports.sim_faults import Treatment
from tests.repair.healed import MS, OPTIONS, Healed, healed
from tests.repair.test_repaired import closed, holders_hold

PATIENT = RepairOptions(
    OPTIONS.auditor, OPTIONS.worker, CopyOptions(frame_bytes=400, write_timeout_ns=10_000 * MS)
)


def empty(story: Healed, bookie_id: str = "b1", within_s: float = 60.0) -> BookieReport:
    """Its report, once no ledger names it."""
    bk = story.cluster.client()
    for _ in range(int(within_s)):
        report = bk.bookie(bookie_id)
        if report.is_empty:
            return report
        story.cluster.run_for(1)
    raise AssertionError(f"{report} {story.marks()}")


def placement(story: Healed, bookie_id: str = "b1") -> bytes | None:
    return story.world.committed("/placements/").get(placement_path(bookie_id))


@pytest.mark.parametrize("sizes", [(3, 3, 2), (4, 2, 2), (1, 1, 1), (2, 2, 2)])
def test_what_a_drained_bookie_has_moves_to_others_though_it_is_there(sizes: tuple[int, int, int]) -> None:
    """P11.3: also where it is the only one that has a copy: it is alive, and read from."""
    named = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    with healed(bookies=5) as story:
        ledger_id = closed(story, **named)
        story.repairer()
        bk = story.cluster.client()
        report = bk.drain_bookie("b1", "a new disk")
        assert (report.is_draining, report.why, report.ledger_count) == (True, "a new disk", 1)
        assert empty(story).bookie.state == "draining"
        holders_hold(story, ledger_id, 30)
        reader = bk.open_ledger(ledger_id)
        assert [bytes(each) for each in reader.read()] == [b"entry %04d" % number for number in range(30)]
        assert story.cluster.run_until(lambda: not story.marks())
        assert bk.health().is_seated


def test_while_it_is_drained_health_says_that_nothing_is_missing() -> None:
    """Every seat has its bookie: a mark of one that is there and leaves is no lack."""
    with healed() as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        bk.drain_bookie("b1")
        _mark(story, ledger_id, "b1")
        health = bk.health()
        assert health.is_seated and health.marks == 1
        assert "b1" in bk.bookie("b1").bookie.bookie_id
        assert bk.bookie("b1").ledgers[0].waits_for == "it waits for a worker"


def _mark(story: Healed, ledger_id: int, bookie_id: str) -> None:
    metadata = story.cluster.client()._runtime.node.metadata
    metadata.request(story.world.now_of("client"), MarkRepairs(((ledger_id, (bookie_id,)),)), lambda *_: None)
    story.world.wake("client")
    assert story.cluster.run_until(lambda: bool(story.marks()))


@pytest.mark.parametrize("is_busy", [False, True])
def test_an_open_ledgers_writer_moves_off_it(is_busy: bool) -> None:
    """P11.3: an idle one, too, for which nothing is under way; and no add fails or waits for it."""
    with healed() as story:
        bk = story.cluster.client()
        while True:
            writer = bk.create_ledger()
            if "b1" in story.named(writer.ledger_id):
                break
        writer.add_many([b"before %d" % number for number in range(5)])
        story.repairer()
        bk.drain_bookie("b1")
        if is_busy:
            for number in range(20):
                writer.add(b"meanwhile %d" % number)
        empty(story)
        last = writer.add(b"behind")
        assert writer.close() == last
        holders_hold(story, writer.ledger_id, last + 1)


def test_where_nobody_can_take_a_seat_the_writer_stays_and_adds_go_on() -> None:
    """P11.3: it has not failed. Who was to take its seat died before the writer heard; when it is back, it moves."""
    with healed(bookies=4) as story:
        bk, writing = story.cluster.client(), story.cluster.client("writing")
        while True:
            writer = writing.create_ledger()
            if "b1" in story.named(writer.ledger_id):
                break
        (spare,) = {"b2", "b3", "b4"} - story.named(writer.ledger_id)
        story.cluster.pause("writing")
        bk.drain_bookie("b1")
        story.cluster.crash(spare)
        story.cluster.run_until(lambda: len(bk._runtime.bookies) == 3)
        story.cluster.resume("writing")
        story.cluster.run_until(lambda: len(writing._runtime.bookies) == 3)
        for number in range(10):
            writer.add(b"%d" % number)
        story.cluster.run_for(20)
        assert story.metadata(writer.ledger_id).fragments[-1].first_entry == 0
        assert "b1" in story.named(writer.ledger_id)
        holders_hold(story, writer.ledger_id, 10)
        assert bk.bookie("b1").ledgers[0].waits_for.startswith("its writer moves it")
        story.cluster.restart(spare)
        story.repairer()
        empty(story, within_s=120)
        writer.close()


def test_a_cancelled_drain_takes_ledgers_again_and_moves_nothing_more() -> None:
    """P11.3: reversible until the last step."""
    with healed() as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        bk.drain_bookie("b1")
        assert story.cluster.run_until(lambda: bk.bookies()[0].state == "draining")
        _mark(story, ledger_id, "b1")
        bk.cancel_drain("b1")
        assert story.cluster.run_until(lambda: bk.bookies()[0].state == "writable")
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.outcomes["nothing missing"] == 1)
        assert "b1" in story.named(ledger_id)
        while "b1" not in story.named(bk.create_ledger().ledger_id):
            pass
        with pytest.raises(UsageError, match="is not drained"):
            bk.cancel_drain("b1")


@pytest.mark.parametrize(
    "value",
    [
        b"garbage",
        encode_placement(PlacementNote(99, is_draining=True)),
        encode_placement(PlacementNote())[:-1],
    ],
)
def test_a_placement_that_cannot_be_read_is_kept_whatever_is_asked(value: bytes) -> None:
    """P2.5: a later build decided something there, and which directories are retired stands there as well. To cancel a
    drain put an empty one in its place."""
    with healed() as story:
        bk = story.cluster.client()
        put = bk._runtime.transact([], [Put(placement_path("b1"), value)], "a later build")
        assert run_blocking(put, "a later build")
        for decide in (
            lambda: bk.cancel_drain("b1"),
            lambda: bk.drain_bookie("b1"),
            lambda: bk.decommission_bookie("b1"),
            lambda: bk.replace_bookie("b1"),
            lambda: bk.put_to_read_only("b1", "why", force=True),
            lambda: bk.bound_reads("b1", catch_up=0),
            lambda: bk.bookie("b1"),
        ):
            with pytest.raises(StorageError, match="the placement of bookie b1 cannot be read") as refused:
                decide()
            assert refused.value.definite
        assert placement(story) == value


def test_a_drain_that_cannot_end_is_refused_with_the_count_and_nothing_changes() -> None:
    """P11.3: three bookies, ledgers of three."""
    with healed(bookies=3) as story:
        closed(story)
        bk = story.cluster.client()
        before = placement(story)
        with pytest.raises(
            NotEnoughBookies, match=r"1 ledgers \(\d+\) .* the 2 other writable bookies"
        ) as refused:
            bk.drain_bookie("b1")
        assert refused.value.definite
        assert placement(story) == before
        assert bk.bookies()[0].state == "writable"
        with pytest.raises(UsageError, match="no bookie b9"):
            bk.drain_bookie("b9")
        with pytest.raises(UsageError, match="no bookie b9"):
            bk.bookie("b9")


def test_two_drains_beside_each_other_do_not_count_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.6: the second one looked before the first one landed; its transaction compares the placement of who was to
    take its copies, and is refused."""
    with healed(bookies=4) as story:
        closed(story)
        bk, other = story.cluster.client(), story.cluster.client("other")
        named = story.named(closed(story))
        (spare,) = {"b2", "b3", "b4"} - named
        check = draining._check_takers

        def look_then_wait(*arguments: object) -> None:
            check(*arguments)  # type: ignore[arg-type]
            monkeypatch.setattr(draining, "_check_takers", check)
            other.drain_bookie(spare)

        monkeypatch.setattr(draining, "_check_takers", look_then_wait)
        with pytest.raises(NotEnoughBookies):
            bk.drain_bookie("b1")
        assert not decode_placement(placement(story) or b"").is_draining
        assert decode_placement(placement(story, spare) or b"").is_draining


def test_a_drained_bookie_that_is_started_again_is_still_drained() -> None:
    """P11.3: the decision stands in the metadata; its read-only time keeps it."""
    with healed() as story:
        bk = story.cluster.client()
        bk.drain_bookie("b1", "why")
        story.cluster.run_until(lambda: bk.bookies()[0].state == "draining")
        node = story.world.nodes["b1"]
        node.spacing.set_read_only(story.world.now_of("b1"), True)
        story.cluster.run_for(5)
        assert decode_placement(placement(story) or b"").is_draining
        story.cluster.crash("b1")
        story.cluster.run_for(30)
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: bk.bookies()[0].state == "draining")
        assert not any("b1" in story.named(bk.create_ledger().ledger_id) for _ in range(10))


def test_a_target_that_is_drained_while_it_gets_copies_is_not_named() -> None:
    """P10.6: its placement is compared as it was when it was chosen, not as the list shows it at the end."""
    with healed(bookies=5) as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        story.repairer(options=PATIENT)
        drained: list[str] = []

        def look(core: object, event: object, effects: list[object]) -> None:
            for effect in effects:
                if isinstance(effect, Transact) and effect.tag[0] == "target" and not drained:
                    drained.append(core.copying.holders[next(iter(core.copying.holders))].bookie_id)  # type: ignore[attr-defined]

        story.world.nodes["healer"].on_step = look
        late = Treatment(delay_ns=2_000 * MS)
        story.cluster.drop_messages("AddAnswer", receiver="healer", verdict=late)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: bool(drained))
        bk.drain_bookie(drained[0])
        healer = story.world.nodes["healer"]
        assert story.cluster.run_until(lambda: any(info.is_leaving for info in healer.bookies), 1)
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"), 120)
        assert drained[0] not in story.named(ledger_id)


# Decommissioning.


def test_a_drained_bookie_is_forgotten_and_its_directories_are_refused() -> None:
    """P11.3: registration, then cookie; the process that runs ends, and is refused as itself with a sentence."""
    with healed() as story:
        closed(story)
        story.repairer()
        bk = story.cluster.client()
        bk.drain_bookie("b1")
        empty(story)
        bk.decommission_bookie("b1", "it is old")
        assert not any(
            key.endswith("/b1")
            for prefix in ("/cookies/", "/bookies/")
            for key in story.world.committed(prefix)
        )
        node = story.world.nodes["b1"]
        assert story.cluster.run_until(lambda: node.failure is not None)
        assert "b1 was decommissioned by" in str(node.failure) and "it is old" in str(node.failure)
        assert [each.bookie_id for each in bk.bookies()] == ["b2", "b3", "b4"]
        story.cluster.crash("b1")
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: story.world.nodes["b1"].failure is not None)
        assert [each.bookie_id for each in bk.bookies()] == ["b2", "b3", "b4"]
        bk.decommission_bookie("b1")  # Again: nothing changes.


def test_it_is_refused_while_a_ledger_names_it_or_while_it_is_there_and_not_drained() -> None:
    """P11.3: nothing changes; the ledgers are listed, also deleted ones that can be brought back."""
    with healed() as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        before = placement(story)
        with pytest.raises(UsageError, match=r"is there, at .*, and is not drained"):
            bk.decommission_bookie("b1")
        story.cluster.crash("b1")
        story.cluster.run_until(lambda: bk.bookies()[0].state == "away")
        with pytest.raises(UsageError, match=rf"named by 1 ledgers \({ledger_id}\)"):
            bk.decommission_bookie("b1")
        bk.delete_ledger(ledger_id)
        with pytest.raises(UsageError, match=rf"named by 1 ledgers \({ledger_id}\)"):
            bk.decommission_bookie("b1")
        assert placement(story) == before
        with pytest.raises(UsageError, match="no bookie b9"):
            bk.decommission_bookie("b9")


def test_the_last_copy_of_anything_is_named() -> None:
    with healed() as story:
        ledger_id = closed(story, ensemble_size=1, write_quorum=1, ack_quorum=1)
        bk = story.cluster.client()
        story.cluster.crash("b1")
        story.cluster.run_until(lambda: bk.bookies()[0].state == "away")
        with pytest.raises(UsageError, match=f"of {ledger_id} nobody else who is there has a copy"):
            bk.decommission_bookie("b1")


def test_a_dead_bookie_whose_copies_were_made_again_is_forgotten() -> None:
    """P11.3: it is raised first, then listed: what is listed then is final."""
    with healed() as story:
        ledger_id = closed(story)
        story.repairer()
        bk = story.cluster.client()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        bk.decommission_bookie("b1")
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: story.world.nodes["b1"].failure is not None)
        assert isinstance(story.world.nodes["b1"].failure, StorageError)


def test_a_ledger_that_comes_back_between_two_listings_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """P10.6: it was deleted when ledgers were listed, and back when deleted ones were. Bringing it back raises the
    placement of who is drained, so the removal is refused and looks again."""
    with healed() as story:
        ledger_id = closed(story)
        bk, other = story.cluster.client(), story.cluster.client("other")
        bk.drain_bookie("b1")
        bk.delete_ledger(ledger_id)
        runtime = bk._runtime
        plain, listed = runtime.list_keys, []

        async def list_keys(prefix: str, what: str) -> list[object]:
            found = await plain(prefix, what)
            if prefix == "/ledgers/" and "decommissioning" in what and not listed:
                listed.append(len(found))
                other.undelete_ledger(ledger_id)
            return found  # type: ignore[return-value]

        monkeypatch.setattr(runtime, "list_keys", list_keys)
        with pytest.raises(UsageError, match=rf"named by 1 ledgers \({ledger_id}\)"):
            bk.decommission_bookie("b1")
        assert listed == [0]
        assert "/cookies/b1" in story.world.committed("/cookies/")
        with pytest.raises(NoSuchLedger):
            other.undelete_ledger(ledger_id)


@pytest.mark.parametrize("what", ["spared", "stale"])
def test_behind_a_restore_nobody_knows_what_a_bookie_has(what: str) -> None:
    """P10.5: a lost future may have made ledgers on it, or seated it in one that the copy knows; whoever adopts that
    has to hear it."""
    with embedbk.testing.Cluster(seed=3, bookies=4) as cluster:
        bk = cluster.client()
        bk.drain_bookie("b1")
        descent = cluster.world.nodes[METADATA].core.catalog.descent
        setattr(descent, what, [(1, 9)])
        with pytest.raises(UsageError, match="or entries of ledgers, that it does not know of"):
            bk.decommission_bookie("b1")
        setattr(descent, what, [])
        bk.decommission_bookie("b1")


def test_what_cannot_be_read_may_name_anybody() -> None:
    """P2.5: a ledger of a build to come; a stranger's key that no ledger has is nobody's."""
    with embedbk.testing.Cluster(seed=3, bookies=3) as cluster:
        bk = cluster.client()
        bk.drain_bookie("b1")
        put = bk._runtime.transact([], [Put("/ledgers/zz", b"x"), Put(ledger_key_path(77), b"x")], "a test")
        run_blocking(put, "a test")
        assert [(each.ledger_id, each.state) for each in bk.bookie("b1").ledgers] == [(77, "unreadable")]
        with pytest.raises(UsageError, match=r"named by 1 ledgers \(77\)"):
            bk.decommission_bookie("b1")
        assert bk.can_i_stop("b1").reasons == (
            "the metadata of ledger 77 cannot be read, so nobody knows who is needed",
        )


def test_the_newest_retired_directories_are_kept() -> None:
    """P11.3: in the placement of their id; so many that none is refused by mistake for want of room."""
    note = PlacementNote()
    for number in range(RETIRED_MAX + 2):
        cookie = encode_cookie(Cookie(2, bytes([number]) * 16))
        note = replace(note, retired=retiring._retired(note, cookie, None, "b1", number, "me", "old"))
    assert [each.retired_ms for each in note.retired] == list(range(2, RETIRED_MAX + 2))
    assert decode_placement(encode_placement(note)) == note


# May it stop?


def test_can_i_stop_says_which_ledgers_would_be_below_their_ack_quorum() -> None:
    """P11.3: of three copies with two to acknowledge one may stop, and not two; of two with two none."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        closed(story)
        assert bk.can_i_stop("b1").is_safe
        assert not bk.can_i_stop("b1", "b2").is_safe
        assert bk.can_i_lose(["b1"]).is_safe
        strict = closed(story, ensemble_size=2, write_quorum=2, ack_quorum=2)
        verdict = bk.can_i_stop("b1")
        assert (verdict.is_safe, verdict.ledgers) == (False, (strict,))
        assert verdict.reasons == (f"ledger {strict} would be below the ack quorum",)
        with pytest.raises(UsageError, match="no bookie and no metadata member 'b9'"):
            bk.can_i_stop("b9")


def test_who_is_away_counts_as_stopped_and_an_entry_may_be_on_any_qa() -> None:
    """P11.3: an acknowledged entry is on any Qa of its write set."""
    with healed(bookies=5) as story:
        bk = story.cluster.client()
        wide = closed(story, ensemble_size=5, write_quorum=5, ack_quorum=2)
        assert bk.can_i_stop("b1").is_safe
        assert bk.can_i_lose(["b1"]).is_safe
        stopped, lost = bk.can_i_stop("b1", "b2"), bk.can_i_lose(["b1", "b2"])
        assert stopped.ledgers == lost.ledgers == (wide,)
        assert stopped.reasons[0].endswith("alone, and could be neither read nor recovered meanwhile")
        assert lost.reasons[0].endswith("alone, and would be lost")
        assert "below the ack quorum" in bk.can_i_stop("b1", "b2", "b3", "b4").reasons[0]
        story.cluster.crash("b5")
        story.cluster.run_until(lambda: len(bk._runtime.bookies) == 4)
        assert not bk.can_i_stop("b1").is_safe


def test_a_bookie_that_was_restarted_counts_once_it_has_what_it_missed() -> None:
    """P11.3, P11.4: b1 was away while a ledger was written and closed. With b2 stopped its entries would be on b3
    alone, until they are copied to b1, which itself may stop."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        story.cluster.crash("b1")
        writer.add_many([b"one", b"two"])
        writer.close()
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: story.world.nodes["b1"].is_registered)
        story.cluster.run_for(0.5)
        refused = bk.can_i_stop("b2")
        assert (refused.is_safe, refused.ledgers) == (False, (writer.ledger_id,))
        assert refused.reasons[-1] == "b1 may lack entries of them: wait until they are repaired"
        assert not bk.can_i_lose(["b3"]).is_safe
        assert bk.can_i_stop("b1").is_safe
        story.repairer()
        assert story.cluster.run_until(lambda: bk.can_i_stop("b2").is_safe)
        holders_hold(story, writer.ledger_id, 2)


def test_a_bookie_that_missed_entries_of_a_ledger_that_is_written_to_counts_as_without_a_copy() -> None:
    """P11.3, P11.4: b1 was away while entries were acknowledged by b2 and b3, and sits in the ledger again. With b3
    lost they would be on b2 alone, though metadata names three bookies that are all there."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        writer = bk.create_ledger()
        story.cluster.crash("b1")
        writer.add_many([b"one", b"two"])
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: story.world.nodes["b1"].is_registered)
        story.cluster.run_for(0.5)
        writer.add(b"three")
        refused = bk.can_i_lose(["b3"])
        assert (refused.is_safe, refused.ledgers) == (False, (writer.ledger_id,))
        assert refused.reasons[-1] == "b1 may lack entries of them: wait until they are repaired"
        assert not bk.can_i_stop("b2").is_safe
        assert bk.can_i_stop("b1").is_safe
        writer.close()
        story.repairer()
        assert story.cluster.run_until(lambda: bk.can_i_lose(["b3"]).is_safe)


def test_a_log_leaves_the_ledger_of_which_a_bookie_missed_entries_and_its_copies_are_made_whole() -> None:
    """P8.7, P11.2: repair copies what b1 missed once the ledger is closed, which its owner does at its next look; one
    that missed nothing stays."""
    for misses in (True, False):
        with healed(bookies=3) as story:
            bk = story.cluster.client()
            story.repairer()
            orders = bk.log("orders").writer()
            orders.append(b"zero")
            story.cluster.crash("b1")
            if misses:
                orders.append_many([b"one", b"two"])
            story.cluster.restart("b1")
            assert story.cluster.run_until(lambda: story.world.nodes["b1"].is_registered)
            story.cluster.run_for(1.0)
            orders.append(b"three")
            assert bk.can_i_lose(["b3"]).is_safe is not misses
            story.cluster.run_for(60.0)
            assert bk.can_i_lose(["b3"]).is_safe
            assert len(bk.log("orders").segments()) == 1 + misses
            orders.append(b"four")
            texts = [bytes(each) for each in bk.log("orders").read()]
            assert texts == [b"zero", *[b"one", b"two"] * misses, b"three", b"four"]


def test_what_is_on_its_way_to_a_third_copy_is_no_reason() -> None:
    """P11.3: a busy log would never let anybody stop. Who lacks an entry is asked again; who still lacks it counts."""
    for late_ms, is_safe in ((300, True), (3_000, False)):
        with healed(bookies=3) as story:
            bk = story.cluster.client()
            writer = bk.create_ledger()
            writer.add(b"one")
            story.cluster.run_for(0.5)
            late = Treatment(delay_ns=late_ms * MS)
            story.cluster.drop_messages("AddRequest", receiver="b1", verdict=late)
            writer.add(b"two")
            writer.add(b"three")
            assert bk.can_i_stop("b2").is_safe is is_safe
            story.cluster.run_for(6.0)
            assert bk.can_i_stop("b2").is_safe
            writer.close()


def test_a_bookie_that_does_not_say_what_it_holds_counts_as_without_a_copy() -> None:
    """P11.3, "where something cannot be told nothing is stopped"."""
    with healed(bookies=3) as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        assert bk.can_i_stop("b2").is_safe
        story.cluster.partition(["client"], ["b1"])
        refused = bk.can_i_stop("b2")
        assert (refused.is_safe, refused.ledgers) == (False, (ledger_id,))
        assert "b1 may lack entries" in refused.reasons[-1]


def test_a_metadata_member_may_stop_while_a_quorum_is_left() -> None:
    """P10.4."""
    with embedbk.testing.Cluster(seed=3, bookies=3, members=3) as cluster:
        bk = cluster.client()
        assert bk.can_i_stop("m1").is_safe
        verdict = bk.can_i_stop("m1", "m2")
        assert verdict.reasons == (
            "the metadata quorum would be lost: of 3 voters 2 are needed, and 1 would be left",
        )


# Whose disks are gone.


def away(story: Healed, bookie_id: str = "b1") -> None:
    bk = story.cluster.client()
    story.cluster.crash(bookie_id)
    assert story.cluster.run_until(
        lambda: {each.bookie_id: each.state for each in bk.bookies()}[bookie_id] == "away"
    )


def test_directories_that_are_gone_for_good_are_refused_if_they_come_back() -> None:
    """P11.5: by a word, of one incarnation, while it is not registered; the id stays bound to them, and ledgers are
    repaired as of a bookie that stays away."""
    with healed() as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        incarnation = bk.bookie("b1").incarnation
        with pytest.raises(UsageError, match="registered with these directories"):
            bk.give_up_bookie("b1", incarnation, "burnt")
        away(story)
        with pytest.raises(UsageError, match="no incarnation 'ff'") as refused:
            bk.give_up_bookie("b1", "ff", "burnt")
        assert incarnation in str(refused.value)
        with pytest.raises(UsageError, match="needs its reason"):
            bk.give_up_bookie("b1", incarnation, " ")
        bk.give_up_bookie("b1", incarnation, "burnt")
        bk.give_up_bookie("b1", incarnation, "burnt")
        assert len(decode_placement(placement(story) or b"").retired) == 1
        story.cluster.restart("b1")
        node = story.world.nodes["b1"]
        assert story.cluster.run_until(lambda: node.failure is not None)
        assert "b1 was given up by" in str(node.failure) and "(burnt)" in str(node.failure)
        story.repairer()
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        bk.decommission_bookie("b1")


def unheard(story: Healed) -> None:
    """b1 serves its clients, and no metadata member hears it: its session has ended."""
    story.cluster.partition(["b1"], [METADATA])
    assert story.cluster.run_until(lambda: "/bookies/b1" not in story.world.committed("/bookies/"))


def test_a_bookie_that_answers_is_not_given_up_though_its_session_has_ended() -> None:
    """P11.5: "refused while it answers": metadata does not hear it, and others are acknowledged by it."""
    with healed() as story:
        closed(story)
        bk = story.cluster.client()
        incarnation = bk.bookie("b1").incarnation
        story.cluster.run_for(5)  # Its cookie is written now and then, with where it is.
        unheard(story)
        before = placement(story)
        verbs: tuple[Callable[[], object], ...] = (
            lambda: bk.give_up_bookie("b1", incarnation, "burnt"),
            lambda: bk.replace_bookie("b1"),
            lambda: bk.decommission_bookie("b1"),
        )
        for verb in verbs:
            with pytest.raises(UsageError, match="b1 answers at sim://b1 with these directories"):
                verb()
        assert placement(story) == before
        story.cluster.pause("b1")
        bk.give_up_bookie("b1", incarnation, "burnt")
        assert len(decode_placement(placement(story) or b"").retired) == 1
        assert not bk._runtime.node.links._heard_of


def test_whoever_stands_where_it_was_is_not_taken_for_it() -> None:
    """P7.2: what answers there must be this bookie in this incarnation; a cookie of a build before names no place."""
    with healed() as story:
        closed(story)
        bk = story.cluster.client()
        cookie = decode_cookie(story.world.committed("/cookies/")["/cookies/b1"])
        assert cookie.endpoints == ["sim://b1"]
        away(story)
        member = Member("b1", cookie.incarnation)
        runtime: Any = bk._runtime
        for endpoints, is_there in (([], False), (["sim://b1"], False), (["sim://b2"], False)):
            asked = run_blocking(answers(runtime, member, endpoints), "a test")
            assert asked is is_there, endpoints


@pytest.mark.parametrize("size", [1, 3])
def test_the_last_copy_is_not_given_up_by_mistake(size: int) -> None:
    """P11.5: while any other copy may come back, its bookies are named; a word accepts the loss. Striped, who else has
    a seat has other entries."""
    with healed() as story:
        ledger_id = closed(story, ensemble_size=size, write_quorum=1, ack_quorum=1)
        bk = story.cluster.client()
        away(story)
        before = placement(story)
        for verb in (
            bk.replace_bookie,
            lambda each: bk.give_up_bookie(each, bk.bookie(each).incarnation, "lost"),
        ):
            with pytest.raises(UsageError, match=rf"of 1 ledgers \({ledger_id}\) nobody else"):
                verb("b1")
        assert placement(story) == before
        old = bk.replace_bookie("b1", accepts_loss=True)
        assert old == decode_placement(placement(story) or b"").retired[0].incarnation.hex()
        assert "b1" not in [each.bookie_id for each in bk.bookies()]


def test_a_bookie_whose_drain_was_under_way_is_replaced_by_one_that_takes_ledgers() -> None:
    """P11.3: the drain was of the directories that are gone."""
    with healed() as story:
        closed(story)
        bk = story.cluster.client()
        bk.drain_bookie("b1")
        away(story)
        bk.replace_bookie("b1")
        assert not decode_placement(placement(story) or b"").is_draining
        assert "/cookies/b1" not in story.world.committed("/cookies/")
