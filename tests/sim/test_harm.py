"""Harm to a bookie's files as plans do it: found at the start, or told of; the end of a journal is never touched."""

from __future__ import annotations

import random

import pytest

from embedbk.storage.memory_disk import MemoryDisk
from embedbk.testing.harm import HARMS, harm, lay_lie
from embedbk.testing.plan import make_plan
from embedbk.testing.run import run_plan
from tests.storage.test_lying_disk import ENTRIES, IMAGES, LEDGERS, last_group, outcome


@pytest.mark.parametrize("kind", HARMS)
@pytest.mark.parametrize("image", ["logs", "journal"])
def test_harm_changes_something_and_no_answer_is_wrong(kind: str, image: str) -> None:
    """I7, I31, I42, D4 to D7, D12: whatever chance hits, the start refuses or what is served is true."""
    files, refused, worse = IMAGES[image], 0, 0
    newest = max(path for path in files if "journal-" in path and last_group(files[path]))
    before = {
        path: content[: len(content) // 2] for path, content in files.items()
    }  # Half of it was not there yet.
    for seed in range(25):
        disk = MemoryDisk(files)
        done = harm(disk, kind, random.Random(seed), before)
        after = disk.files()
        assert (after != files) == bool(done)
        end = last_group(files[newest])
        if newest in after:  # Else another bookie's fault would be this one's: who misses its end?
            assert after[newest][end : end + 4096] == files[newest][end : end + 4096]
        served = outcome(disk)
        refused += served is None
        worse += served is not None and served < len(LEDGERS) * ENTRIES
    assert refused + worse or (kind, image) == ("file-harm", "journal")


@pytest.mark.parametrize("kind", HARMS)
def test_a_lie_is_laid_for_what_a_disk_at_work_can_do(kind: str) -> None:
    """D4 to D6 in flight; stale sectors and harmed files are found at rest."""
    assert lay_lie(MemoryDisk(), kind, random.Random(1)) == (kind in ("rot", "misdirected", "lost-write"))


def test_a_disk_that_nobody_harmed_must_not_be_refused() -> None:
    """I42: the run fails when a bookie stays away for no reason."""
    plan = make_plan(3, is_native=True, is_plain=True)
    outcomes = [run_plan(plan), run_plan(plan, prepare=_refuse_b1)]
    assert [found.invariant for found in outcomes] == ["", "I42"]


def _refuse_b1(world: object) -> None:
    """b1's disk is harmed, and the world is not told so."""
    disk = world.disks["b1"]  # type: ignore[attr-defined]

    def strike() -> None:
        world.crash("b1")  # type: ignore[attr-defined]
        for path in disk._disk.files():
            if "journal-" in path:
                disk._disk.put(path, b"\xff" * 65536)
        world.start_bookie("b1")  # type: ignore[attr-defined]

    world.at(200_000_000, strike)  # type: ignore[attr-defined]
