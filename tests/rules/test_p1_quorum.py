"""P1: terms. Write sets, ack quorums, coverage and the recovery verdict, all of them against their definitions."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from embedbk.config import ENSEMBLE_SIZE_MAX, Quorum, quorum_for
from embedbk.core.quorum import (
    Verdict,
    has_ack_quorum,
    has_coverage,
    recovery_verdict,
    residues_of,
    write_set,
    write_set_mask,
)
from embedbk.errors import UsageError

QUORUMS = [
    Quorum(size, write, ack)
    for size in range(1, 6)
    for write in range(1, size + 1)
    for ack in range(1, write + 1)
]


def name_of(quorum: Quorum) -> str:
    return f"{quorum.ensemble_size}-{quorum.write_quorum}-{quorum.ack_quorum}"


every_quorum = pytest.mark.parametrize("quorum", QUORUMS, ids=name_of)


def ack_quorums(entry_id: int, quorum: Quorum) -> list[tuple[int, ...]]:
    """Every set of Qa seats that could have acknowledged the entry, by the definition of P1."""
    seats = [(entry_id + i) % quorum.ensemble_size for i in range(quorum.write_quorum)]
    return list(combinations(seats, quorum.ack_quorum))


def mask(seats: tuple[int, ...]) -> int:
    return sum(1 << seat for seat in seats)


def test_all_quorums_up_to_five_are_here() -> None:
    assert len(QUORUMS) == 35


@every_quorum
def test_a_write_set_is_qw_seats_in_a_row_from_the_entry_on(quorum: Quorum) -> None:
    """P1: ensemble positions `(e + i) mod E` for `i < Qw`."""
    for entry_id in range(3 * quorum.ensemble_size):
        seats = write_set(entry_id, quorum)
        assert len(set(seats)) == quorum.write_quorum
        assert seats == tuple((entry_id + i) % quorum.ensemble_size for i in range(quorum.write_quorum))
        assert write_set_mask(entry_id, quorum) == mask(seats)


@every_quorum
def test_residues_stand_for_every_write_set_of_a_run(quorum: Quorum) -> None:
    """P3.7: a frame is confirmed when each of its entries is done, so each of their write sets must be looked at."""
    for first in range(quorum.ensemble_size + 2):
        for last in range(first, first + 2 * quorum.ensemble_size + 2):
            named = {frozenset(write_set(residue, quorum)) for residue in residues_of(first, last, quorum)}
            assert named == {frozenset(write_set(e, quorum)) for e in range(first, last + 1)}


@every_quorum
def test_an_ack_quorum_is_qa_seats_of_each_write_set(quorum: Quorum) -> None:
    """P3.3: done for e when Qa bookies seated in the write set of e acknowledged it."""
    size = quorum.ensemble_size
    for acked in range(1 << size):
        is_done = [any(mask(seats) & ~acked == 0 for seats in ack_quorums(e, quorum)) for e in range(size)]
        for first in range(size):
            for last in range(first, first + size):
                wanted = all(is_done[e % size] for e in range(first, last + 1))
                assert has_ack_quorum(acked, residues_of(first, last, quorum), quorum) == wanted


@every_quorum
def test_coverage_means_that_no_ack_quorum_lacks_the_property(quorum: Quorum) -> None:
    """P1: at least (Qw - Qa) + 1 of every write set; equivalently no ack quorum exists without it."""
    every = [mask(seats) for e in range(quorum.ensemble_size) for seats in ack_quorums(e, quorum)]
    for seats in range(1 << quorum.ensemble_size):
        assert has_coverage(seats, quorum) == all(ack_quorum & seats for ack_quorum in every)


@every_quorum
def test_the_verdict_over_all_answer_vectors(quorum: Quorum) -> None:
    """P5.2c: recoverable on one positive; not there only when no ack quorum can hold it; else unknown.

    Each seat answers yes, no, or nothing that counts. An entry may have been acknowledged by an ack quorum in
    which nobody said no; only when there is none may it be given up. Seats outside the write set say nothing.
    """
    size = quorum.ensemble_size
    for entry_id in range(size):
        seats = write_set(entry_id, quorum)
        quorums = ack_quorums(entry_id, quorum)
        for answers in product((True, False, None), repeat=size):
            positive = mask(tuple(seat for seat in range(size) if answers[seat] is True))
            negative = mask(tuple(seat for seat in range(size) if answers[seat] is False))
            may_be_acked = any(all(answers[seat] is not False for seat in acks) for acks in quorums)
            if any(answers[seat] is True for seat in seats):
                wanted = Verdict.RECOVERABLE
            else:
                wanted = Verdict.UNDECIDED if may_be_acked else Verdict.NOT_THERE
            assert recovery_verdict(entry_id, positive, negative, quorum) is wanted


def test_three_answers_may_cover_nothing() -> None:
    """P1, scenario 7: E5 Qw3 Qa2 and answers of seats 0, 1 and 4: the write set 1 2 3 has only one of them."""
    quorum = Quorum(5, 3, 2)
    assert not has_coverage(0b10011, quorum)
    assert has_coverage(0b11011, quorum)  # With seat 3 every three neighbours have two.


def test_one_answer_covers_when_every_copy_is_asked_for_an_ack() -> None:
    """P1, scenario 6: Qw2 Qa2 and one member gone: the other's answer is coverage."""
    assert has_coverage(0b01, Quorum(2, 2, 2))
    assert recovery_verdict(0, 0, 0b10, Quorum(2, 2, 2)) is Verdict.NOT_THERE


@pytest.mark.parametrize(
    "numbers", [(2, 3, 2), (3, 2, 3), (3, 3, 0), (0, 0, 0), (ENSEMBLE_SIZE_MAX + 1, 3, 2)]
)
def test_e_qw_qa_must_descend_to_one(numbers: tuple[int, int, int]) -> None:
    """P1: `E >= Qw >= Qa >= 1`, else creation fails; the error says what was given and what is allowed."""
    with pytest.raises(UsageError, match=f"ensemble_size={numbers[0]}") as refused:
        Quorum(*numbers)
    assert refused.value.definite


def test_quorum_defaults() -> None:
    assert quorum_for(5) == Quorum(3, 3, 2)
    assert quorum_for(2) == Quorum(1, 1, 1)
    assert quorum_for(9, ensemble_size=5, write_quorum=3) == Quorum(5, 3, 2)
