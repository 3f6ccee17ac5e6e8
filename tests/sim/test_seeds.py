"""Whole clusters under seeds: whatever fails, what was acknowledged is readable and a ledger has one end."""

from __future__ import annotations

import pytest

from embedbk.testing.plan import make_plan
from embedbk.testing.run import replay_line, run_plan
from embedbk.testing.world import World

# Seeds that once found a bug, each with what it found. They stay for ever, as plain as plans were then.
FOUND = {
    26: "a fence, whose record has no bytes, was never synced on the disk in memory",
    94: "the same, on every bookie of a ledger",
    11043: "entries that survived in an entry log whose journal had failed counted as lost",
    42142: "a late registration of the process before took the place of the new one and went with its session",
    43371: "the same",
    43988: "the same: the only bookie of a ledger stayed unregistered for ever, while its session lived",
    44456: "the same",
    10403: "a run ended while adds were in flight that no application waited for",
}

# The same with plans of all that there is to draw; such a plan means another run when something new can be drawn.
FOUND_IN_FULL = {
    70902837: "a member that could not name the snapshot which its log counts on was never started again",
    70760253: "a bookie that had a seat and was not listed counted as standing in a rack of its own",
    70667957: "a bookie that had its seat again while the writer idled was not told the LAC",
    70672574: "what was dropped of a ledger that came back counted as lost",
    70661720: "a bookie that a check had stopped, which has another disk, was not started again",
    70667869: "a refused change whose reason the writer could not read, sent again, taken for a new choice",
    70664463: "a copy of a disk took the place of one that a power cut left with more",
    70666384: "a roll that was not done, asked about later while its ledger was empty: a division by zero",
    70512333: "the end of a stream was lost on the way: its watch, the auditor's of the bookies, showed nothing more",
    70400128: "the rest of a run waited for ever for a ledger in the place of one that the log was about to leave",
    70373109: "a run of appends whose rest met a second failed ledger was made again as a whole",
    70377545: "sums of other residues than the copies have since were asked to tell whose copy differs",
    70340497: "a change without an outcome counted as possible still, under a placement that had changed",
    70340029: "a ledger whose length a build before did not record was held against the owner's bound",
    70200069: "a creation of unknown outcome made a ledger a second time, which others had deleted",
    70204517: "a writer that had lost its log behind a roll grew old for ever, by a ledger that it had left again",
    70221175: "a ledger that a writer went on in, after all had been listed, counted as one that clients want closed",
    70209083: "an owner that began anew while its writer answered a splice did not let that one go",
    70206613: "a change that was refused was sent again for what had been read before it",
    70183506: "beside older metadata a recovery asked those that it names, whose no closed a ledger for good",
    70183410: "a bookie that can deny nothing, as a log of its hides something, counted as one that ends a recovery",
    910545: "a record of a torn group counted as held when the journal went on above its token",
    3300621: "a repair that began while a collector's check was answered, taken for one that the check had missed",
    3000566: "a bookie that was not back in service counted as one that a writer may rely on",
    5012848: "a ledger of others, deleted while a collector's check was answered, called dropped in its grace",
    5003898: "a handle that had heard of the close gave an entry beyond the end to a read that began before it",
    770000013: "who was avoided had no seat in a shortage, and an older add's end took all others' chance",
    13208079: "a copy that a fault destroyed while its seat was being published, taken for one never made",
    15004263: "a drop that was taken back before it was carried out counted as done",
    13210158: "a change sent again, its outcome unknown, taken for a choice of somebody who had left since",
    13206948: "a file that a start had set aside, taken away as the newest of its journal",
    13208857: "the debt of an unclean start was forgiven by the next one, which was blamed for a fence then",
    15006135: "a snapshot that a crash had put back counted, though the log did not go on behind it any more",
    15010946: "the clock of one node told another's writer how long nothing had failed",
    70146076: "entries whose index was lost at a start, and made again, counted as gone",
    71850393: "who waited behind a ledger that failed, in a handle that had taken nothing, waited for ever",
    71800218: "a ledger that was done before the next one's handle knew of it kept that one waiting for ever",
    70153005: "a bookie that lost its disk before it was known to anybody, restarted by a rolling restart for ever",
    70162145: "the same, where the entry that it cannot deny is not the one behind the acknowledged ones",
    70147256: "a bookie that can deny no entry, as an index of its is lost, named by no operator as gone",
    3100366: "adds sent while the late one's replacement was published were owed by nobody, and never ended",
}


def test_seeds_keep_every_promise(seeds: range) -> None:
    """I2 I3 I5 I7 I37 L1 L2 and the step invariants: under every fault of the catalogue, in and after it."""
    for seed in seeds:
        plan = make_plan(seed)
        outcome = run_plan(plan)
        assert not outcome.violation, f"{outcome.violation}\nreplay: {replay_line(plan)}"


@pytest.mark.parametrize("seed", sorted(FOUND))
def test_seeds_that_found_something_stay_clean(seed: int) -> None:
    """A simulation failure's seed stays in the suite."""
    outcome = run_plan(make_plan(seed, is_plain=True))
    assert not outcome.violation, f"{FOUND[seed]} is back: {outcome.violation}"


@pytest.mark.parametrize("seed", sorted(FOUND_IN_FULL))
def test_full_seeds_that_found_something_stay_clean(seed: int) -> None:
    """As above."""
    outcome = run_plan(make_plan(seed))
    assert not outcome.violation, f"{FOUND_IN_FULL[seed]} is back: {outcome.violation}"


def test_a_mistake_of_any_kind_is_told_by_its_seed() -> None:
    """The next seeds of a campaign run all the same."""

    def prepare(world: World) -> None:
        world.at(1, lambda: {"what": 1}["who"])

    outcome = run_plan(make_plan(0), prepare=prepare)
    assert outcome.invariant == "escape"
    assert outcome.violation.startswith("escaped: KeyError: 'who' (") and "test_seeds.py" in outcome.violation


@pytest.mark.parametrize("seed", range(12))
def test_more_lost_than_promised_ends_in_refusal(seed: int) -> None:
    """S4: with a write quorum of disks lost, ledgers are refused; none is ever silently shorter."""
    outcome = run_plan(make_plan(seed, is_outside=True))
    assert not outcome.violation, f"{outcome.violation}\nreplay: {replay_line(outcome.plan)}"


def test_some_plan_outside_the_model_is_refused() -> None:
    """S4: the test above would be blind if nothing ever had to be refused."""
    assert any(run_plan(make_plan(seed, is_outside=True)).refusals for seed in range(12))


@pytest.mark.parametrize("seed", range(6))
def test_the_storage_that_ships_keeps_every_promise(seed: int) -> None:
    """The same plans on the storage in C, its disk in memory torn and cut off."""
    outcome = run_plan(make_plan(seed, is_native=True))
    assert not outcome.violation, f"{outcome.violation}\nreplay: {replay_line(outcome.plan)} --native"
