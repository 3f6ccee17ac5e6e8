"""The specification is the published one: it has the same states; and every broken rule breaks an invariant."""

from __future__ import annotations

import pytest

from tests.spec.explore import Explored, explore, wander
from tests.spec.ledger_spec import MUTANTS, Constants, Spec, State

TWO = Constants(bookies=2, clients=2, write_quorum=2, ack_quorum=1)


def counts(found: Explored[State]) -> tuple[int, int, int]:
    assert found.broken is None, found.path
    assert found.is_whole
    return found.distinct, found.generated, found.depth


def test_has_the_published_states_with_ack_quorum_1():
    """tests/spec/README.md, first row: 2 bookies, 2 clients, Qw 2, Qa 1; all five invariants hold in every state."""
    assert counts(explore(Spec(TWO))) == (285_773, 982_019, 28)


@pytest.mark.timeout(1200)
def test_has_the_published_states_with_ack_quorum_2(full: None):
    """tests/spec/README.md, second row."""
    constants = Constants(bookies=2, clients=2, write_quorum=2, ack_quorum=2)
    assert counts(explore(Spec(constants))) == (1_795_149, 6_965_623, 27)


@pytest.mark.parametrize(
    ("mutant", "depth"),
    [
        ("coverage-one-fewer", 12),
        ("timeout-is-negative", 14),
        ("one-negative-ends", 14),
        ("close-unchecked", 16),
        ("fence-needs-ledger", 16),
        ("add-on-fenced", 16),
        ("close-before-written", 21),
    ],
)
def test_a_broken_rule_truncates_what_was_acknowledged(mutant: str, depth: int):
    """S3, mutants of the smallest world: each is found by the divergence of a client and the metadata."""
    found = explore(Spec(TWO, [mutant]))
    assert (found.broken, found.depth) == ("no divergence", depth), MUTANTS[mutant]


def test_an_lac_over_a_gap_is_found_by_walking():
    """S3: with two entries a LAC that skips one is found at random."""
    constants = Constants(bookies=2, clients=2, write_quorum=2, ack_quorum=1, send_limit=2, inflight_limit=2)
    found = wander(Spec(constants, ["lac-with-gaps"]), seed=1, walks=10_000)
    assert found.broken is not None
    assert wander(Spec(constants), seed=1, walks=1_000).broken is None


def directed(constants: Constants, mutant: str | None, lost_max: int, states_max: int) -> Explored[State]:
    """A search where only the first client writes, it never gives up, and few messages are lost at a time."""
    spec = Spec(constants, [mutant] if mutant else [])
    left_out = {"c2 creates", "c3 creates", "c1 starts recovery", "c1 closes", "c1 fails to close"}
    return explore(
        spec, states_max, lambda name, after: name not in left_out and spec.lost_count(after) <= lost_max
    )


def test_recovery_reads_that_do_not_fence_lose_an_acknowledged_entry():
    """S3, defect #2614: 10 million random states did not find it; a directed search does."""
    constants = Constants(bookies=3, clients=2, write_quorum=3, ack_quorum=2)
    found = directed(constants, "reads-do-not-fence", lost_max=1, states_max=500_000)
    assert (found.broken, found.depth) == ("no divergence", 18)


def test_fragments_of_a_recovery_must_be_published(full: None):
    """S3: else the metadata names a bookie that never got the entry."""
    constants = Constants(bookies=3, clients=2, write_quorum=2, ack_quorum=2)
    found = directed(constants, "fragments-unpublished", lost_max=2, states_max=2_000_000)
    assert found.broken == "committed reach ack quorum"


def test_two_recoverers_need_the_compare_and_set():
    """S3: a second recoverer that closes unchecked truncates; invisible with one. The way there is followed by hand,
    since breadth first it is millions of states wide."""
    script = [
        "c1 creates", "c1 adds 1", "b1 takes add", "c2 starts recovery", "b2 takes fence", "c2 hears fenced",
        "c2 reads 1", "b2 takes read", "c2 hears read done", "c3 starts recovery", "b1 takes fence",
        "c3 hears fenced", "c3 reads 1", "b1 takes read", "c3 hears read done", "c3 writes back 1", "b1 takes add",
        "b2 takes add", "c3 hears added", "c3 hears added", "c3 reads 2", "b1 takes read", "c3 hears read done",
        "c3 closes by recovery", "c2 closes by recovery",
    ]  # fmt: skip
    constants = Constants(bookies=2, clients=3, write_quorum=2, ack_quorum=2)
    assert follow(Spec(constants, ["recovery-close-unchecked"]), script) == "no divergence"
    assert follow(Spec(constants), script[:-1]) is None
    assert follow(Spec(constants), script) == "no such step"


def follow(spec: Spec, script: list[str]) -> str | None:
    """All states along these steps, whatever is lost; the first invariant that breaks in any of them."""
    states = [spec.initial()]
    for name in script:
        states = list(
            dict.fromkeys(after for state in states for told, after in spec.steps(state) if told == name)
        )
        if not states:
            return "no such step"
        broken = next((broken for state in states if (broken := spec.broken(state))), None)
        if broken is not None:
            return broken
    return None
