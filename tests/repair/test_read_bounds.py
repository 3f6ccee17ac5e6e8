"""An operator bounds what a bookie reads for each class of reads, at run time (P6.7)."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from embedbk.cli import bookies as commands
from embedbk.client.read_bounds import bound_reads
from embedbk.codec.metadata_messages import Compare, Delete, Put
from embedbk.codec.registration import (
    UNBOUNDED,
    PlacementNote,
    ReadBounds,
    decode_placement,
    encode_placement,
    placement_path,
)
from embedbk.config import READ_BYTES_PER_S_MAX, READ_BYTES_PER_S_MIN, Settings
from embedbk.errors import UsageError
from embedbk.metadata.levels import LEVEL_OF_READ_BOUNDS
from tests.repair.healed import Healed, healed
from tests.repair.test_repaired import closed, holders_hold

NONE = (0, 0, 0, 0)


def kept(story: Healed, bookie_id: str = "b1") -> tuple[int, ...]:
    """As the bookie itself has them."""
    bounds: tuple[int, ...] = story.world.nodes[bookie_id].core.read_budget.bounds
    return bounds


def note_of(story: Healed, bookie_id: str = "b1") -> PlacementNote:
    return decode_placement(story.world.committed("/placements/").get(placement_path(bookie_id), b""))


def test_a_bookie_obeys_at_once_and_after_a_restart_and_each_bound_stands_for_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ "An operator bounds the bytes per second of each class but the first, at run time"."""
    caplog.set_level(logging.INFO, logger="embedbk.host.registering")
    with healed() as story:
        bk = story.cluster.client()
        assert bk.bookie("b1").read_bounds == UNBOUNDED
        report = bk.bound_reads("b1", batch=1_000_000)
        assert report.read_bounds.by_class == (0, 0, 1_000_000, 0)
        assert (report.read_bounds.by, report.read_bounds.since_ms > 0) == ("client", True)
        assert story.cluster.run_until(lambda: kept(story) == (0, 0, 1_000_000, 0))
        assert "b1 reads so many bytes per second, by client: " in caplog.text
        assert "catch-up as fast as it goes, batch 1000000, upkeep as fast as it goes" in caplog.text
        bk.bound_reads("b1", upkeep=70_000, catch_up=80_000)
        assert story.cluster.run_until(lambda: kept(story) == (0, 80_000, 1_000_000, 70_000))
        assert kept(story, "b2") == NONE
        story.cluster.crash("b1")
        story.cluster.run_for(1)
        story.cluster.restart("b1")
        assert story.cluster.run_until(lambda: kept(story) == (0, 80_000, 1_000_000, 70_000))
        revision = note_of(story)
        bk.bound_reads("b1", upkeep=70_000)  # Said again it changes nothing.
        assert note_of(story) == revision
        bk.bound_reads("b1", upkeep=0, catch_up=0, batch=0)
        assert story.cluster.run_until(lambda: kept(story) == NONE)


def test_a_job_is_read_slowly_and_a_user_beside_it_is_not() -> None:
    """A job of 60 KB over bookies that read 64 KiB a second for jobs, counted as whole frames while they are read."""
    with healed() as story:
        ledger_id = closed(story)
        bk, job = story.cluster.client(), story.cluster.client("job", settings=Settings(reads_as="batch"))
        for name in sorted(story.named(ledger_id)):
            bk.bound_reads(name, batch=READ_BYTES_PER_S_MIN)
        story.cluster.run_for(1)
        reads = [bytes(each) for each in job.open_ledger(ledger_id).read()]
        assert reads == [b"entry %04d" % number for number in range(30)]
        began_ns = story.world.now_ns
        for _ in range(400):
            assert len(list(job.open_ledger(ledger_id).read())) == 30
        slow_ns = story.world.now_ns - began_ns
        for _ in range(400):
            assert len(list(bk.open_ledger(ledger_id).read())) == 30
        fast_ns = story.world.now_ns - began_ns - slow_ns
        assert slow_ns > 1.5 * fast_ns, (slow_ns, fast_ns)


def test_repair_ends_though_each_source_is_bounded() -> None:
    with healed(bookies=4) as story:
        ledger_id = closed(story)
        bk = story.cluster.client()
        for name in ("b1", "b2", "b3", "b4"):
            bk.bound_reads(name, upkeep=READ_BYTES_PER_S_MIN)
        story.cluster.run_for(1)
        story.repairer()
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: story.is_healed(ledger_id, "b1"))
        holders_hold(story, ledger_id, 30)


def test_new_disks_under_its_id_have_no_bounds() -> None:
    """P11.5: decisions about disks that were replaced are void."""
    with healed() as story:
        bk = story.cluster.client()
        bk.bound_reads("b1", batch=70_000)
        story.cluster.crash("b1")
        assert story.cluster.run_until(lambda: "/bookies/b1" not in story.world.committed("/bookies/"))
        bk.give_up_bookie("b1", bk.bookie("b1").incarnation, "burnt")
        assert note_of(story).read_bounds != UNBOUNDED
        bk.replace_bookie("b1")
        assert note_of(story).read_bounds == UNBOUNDED


def test_what_is_no_bound_changes_nothing() -> None:
    """P10.8: builds before would drop the bounds, so they are not written below their level."""
    with healed() as story:
        bk = story.cluster.client()
        before = story.world.committed("/placements/")
        for wrong in (READ_BYTES_PER_S_MIN - 1, READ_BYTES_PER_S_MAX + 1, -1, True, 1e6, "5MB"):
            with pytest.raises(
                UsageError, match=r"batch=.*: allowed are bytes per second, 65536 to \d+, or 0"
            ):
                bk.bound_reads("b1", batch=wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no bookie b9"):
            bk.bound_reads("b9", batch=0)
        with pytest.raises(UsageError, match="reads_as='tail': allowed are 'catch-up' and 'batch'"):
            Settings(reads_as="tail")
        metadata = bk._runtime.node.metadata.client
        known, metadata.cluster_level = metadata.cluster_level, LEVEL_OF_READ_BOUNDS - 1
        with pytest.raises(UsageError, match=f"needs level {LEVEL_OF_READ_BOUNDS}"):
            bk.bound_reads("b1", batch=70_000)
        metadata.cluster_level = known
        assert story.world.committed("/placements/") == before


def test_a_word_beside_it_is_kept() -> None:
    """The transaction compares the placement that was read."""
    with healed() as story:
        bk = story.cluster.client()
        runtime = bk._runtime
        transact, beside = runtime.transact, [True]

        async def late(when: list[Compare], then: list[Put | Delete], what: str) -> bool:
            if beside and beside.pop():
                await bound_reads(runtime, "b1", batch=80_000)
            return await transact(when, then, what)

        runtime.transact = late  # type: ignore[method-assign, assignment]
        assert bk.bound_reads("b1", upkeep=70_000).read_bounds.by_class == (0, 0, 80_000, 70_000)


def test_a_note_of_a_build_before_says_no_bounds() -> None:
    """WIRE.md: the field is appended."""
    note = encode_placement(PlacementNote(1, True, "old", "me", 7))
    assert note[0] == 0x98
    bounds = bytes([0x95, 0, 0, 0, 0xA0, 0])
    assert note.endswith(bounds)
    assert decode_placement(bytes([0x97]) + note[1 : -len(bounds)]) == PlacementNote(1, True, "old", "me", 7)
    with_bounds = PlacementNote(read_bounds=ReadBounds(1, 2, 3, "me", 4))
    assert decode_placement(encode_placement(with_bounds)) == with_bounds


def test_the_command_shows_and_changes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with healed() as story:
        bk = story.cluster.client()

        class Kept:
            def __enter__(self) -> object:
                return bk

            def __exit__(self, *_: object) -> None:
                pass

        monkeypatch.setattr(commands, "client_of", lambda options: Kept())
        monkeypatch.setattr(sys, "argv", ["embedbk"])

        def run(*words: str) -> str:
            assert commands.run_bookies(["reads", "b1", *words, "--at", "embedbk://127.0.0.1:1"]) == 0
            return capsys.readouterr().out

        fast = "as fast as it goes"
        everything = f"reads: catch-up {fast}, batch {fast}, repair and scrubs {fast}\n"
        assert run() == everything
        assert run("--batch", "70000").startswith(
            "reads: catch-up as fast as it goes, batch 70000 bytes/s, repair and scrubs as fast as it goes, since "
        )
        told = json.loads(run("--upkeep", "80000", "--json"))
        assert (told["bookie"], told["batch"], told["upkeep"], told["by"]) == ("b1", 70_000, 80_000, "client")
        story.cluster.run_for(1)
        assert commands.run_bookies(["show", "b1", "--at", "embedbk://127.0.0.1:1"]) == 0
        assert "batch 70000 bytes/s" in capsys.readouterr().out
