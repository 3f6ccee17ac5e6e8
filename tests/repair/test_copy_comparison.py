"""Copies that differ are found, narrowed down to entries, and judged: the check by its events (P11.4)."""

from __future__ import annotations

import random

import pytest

from embedbk.codec.bookie_fields import Status
from embedbk.codec.holdings_messages import HOLDINGS_CUTS_MAX, Digests, HoldingsAnswer, HoldingsRequest
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.config import Quorum
from embedbk.core.client_words import Answered, Send, SendFailed
from embedbk.core.quorum import count_ids, write_set
from embedbk.core.vocabulary import Ended, Started
from embedbk.ids import Member
from embedbk.repair.copy_comparison import CONFLICTS_MAX, Conflict, Difference
from embedbk.repair.holdings import Checked, CheckOptions, HoldingCheck
from tests.repair.test_holdings import member, metadata

THREE = Quorum(3, 3, 2)
Copies = dict[Member, dict[int, int]]  # Of each bookie a digest by entry; a negative one cannot be read.


class Bookies:
    """As many as a ledger names, with what each of them holds; they answer as the store does."""

    def __init__(self, ledger: LedgerMetadata) -> None:
        self.ledger = ledger
        self.copies: Copies = {}
        self.read_max = 1 << 30  # Entries whose digests one answer has; what is more cannot be told.
        self.silent: set[tuple[Member, int]] = (
            set()
        )  # Who fails to answer a question of so many ids or fewer.
        self.older: set[Member] = set()  # They know no digests.
        self.asked: list[HoldingsRequest] = []
        assert ledger.last_entry is not None
        ends = [each.first_entry - 1 for each in ledger.fragments[1:]] + [ledger.last_entry]
        for fragment, end in zip(ledger.fragments, ends, strict=True):
            for entry_id in range(fragment.first_entry, end + 1):
                for seat in write_set(entry_id, ledger.quorum):
                    self.copies.setdefault(fragment.members[seat], {})[entry_id] = 1_000 + 7 * entry_id

    def change(self, number: int, *entry_ids: int, digest: int = 5) -> None:
        for entry_id in entry_ids:
            assert entry_id in self.copies[member(number)]
            self.copies[member(number)][entry_id] = digest

    def answer(self, who: Member, asked: HoldingsRequest) -> HoldingsAnswer:
        held = self.copies[who]
        ids = [
            each
            for each in range(asked.first_entry, asked.last_entry + 1)
            if asked.residues >> each % asked.modulus & 1
        ]
        bad = {each for each in ids if asked.wants == Digests.BY_BYTES and held.get(each, 0) < 0}
        lacking = [(each, each) for each in ids if each not in held or each in bad]
        digests: list[int | None] = []
        bounds = [asked.first_entry, *asked.cuts, asked.last_entry + 1]
        left = self.read_max
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True):
            for residue in range(asked.modulus):
                if asked.residues >> residue & 1:
                    part = [each for each in ids if begin <= each < end and each % asked.modulus == residue]
                    left -= len(part)
                    is_told = left >= 0 or len(ids) == 1
                    digests.append(sum(held.get(each, 0) for each in part) % 2**64 if is_told else None)
        if lacking or who in self.older or not asked.wants:
            digests = []
        return HoldingsAnswer(Status.OK, asked.ledger_id, len(ids) - len(lacking), lacking[:64], digests)

    def check(self, chance: random.Random | None = None, **options: int) -> Checked:
        there = frozenset(self.copies)
        check = HoldingCheck({self.ledger.ledger_id: self.ledger}, there, CheckOptions(**options))
        out = list(check.step(Started(0)))
        while True:
            effect = out.pop(chance.randrange(len(out)) if chance is not None else 0)
            if isinstance(effect, Ended):
                assert not out and not check.asked
                return effect.result
            assert isinstance(effect, Send) and isinstance(effect.control, HoldingsRequest)
            self.asked.append(effect.control)
            ids = effect.control.last_entry - effect.control.first_entry + 1
            if any(who == effect.member and ids <= most for who, most in self.silent):
                out += check.step(SendFailed(0, effect.tag, effect.member, "no link"))
            else:
                told = self.answer(effect.member, effect.control)
                out += check.step(Answered(0, effect.tag, effect.member, told))


def entries(found: Checked) -> list[int]:
    return sorted(each.entry_id for conflicts in found.conflicts.values() for each in conflicts)


def test_where_all_copies_are_the_same_each_bookie_is_asked_once() -> None:
    """P11.4: "no entry is listed where that is equal"."""
    bookies = Bookies(metadata(THREE, 9_999, (0, (1, 2, 3))))
    assert bookies.check() == Checked({}, {}, 3)
    assert [(each.wants, each.cuts) for each in bookies.asked] == [(Digests.BY_INDEX, [])] * 3


def test_two_sound_copies_that_differ_are_a_conflict_that_is_named_and_nobody_lacks_anything() -> None:
    """P11.4: "two copies that each pass but differ are a conflict that is named, never overwritten by a guess"."""
    bookies = Bookies(metadata(THREE, 9_999, (0, (1, 2, 3))))
    bookies.change(2, 4_711)
    found = bookies.check()
    right = 1_000 + 7 * 4_711
    assert found.conflicts == {7: [Conflict(4_711, (("b1", right), ("b2", 5), ("b3", right)))]}
    assert (found.short, found.untold) == ({}, {})
    assert bookies.asked[-1].wants == Digests.BY_BYTES
    assert all(each.wants == Digests.BY_INDEX for each in bookies.asked[:-3]), "only where they differ"
    assert len(bookies.asked) <= 3 + 3 * 4, "64 parts each time"


def test_a_copy_that_fails_its_own_check_is_bad_and_lacks() -> None:
    """P11.4, I55: "a copy that fails its own check is bad"; it gets a good one, and is no conflict."""
    bookies = Bookies(metadata(THREE, 99, (0, (1, 2, 3))))
    bookies.change(3, 50, digest=-3)
    found = bookies.check()
    assert (found.conflicts, found.untold) == ({}, {})
    assert {name: each.copies for name, each in found.short[7].items()} == {"b3": 1}


def test_who_did_not_say_is_no_party_and_who_differs_is_asked_again() -> None:
    """P7.1: "cannot tell" is neither good nor a conflict."""
    bookies = Bookies(metadata(THREE, 99, (0, (1, 2, 3))))
    bookies.change(2, 50)
    bookies.silent = {(member(2), 1)}
    found = bookies.check()
    assert (found.conflicts, found.short, found.untold) == ({}, {}, {7: {"b2": "no link"}})


def test_a_part_that_was_not_told_is_asked_for_again() -> None:
    """P7.1: what would take too much reading at once is no "equal"; it is read part by part."""
    bookies = Bookies(metadata(THREE, 999, (0, (1, 2, 3))))
    bookies.change(2, 990)
    right = bookies.answer

    def answer(who: Member, asked: HoldingsRequest) -> HoldingsAnswer:
        bookies.read_max = 1_000 if not asked.cuts or asked.first_entry > 0 else 100
        return right(who, asked)

    bookies.answer = answer  # type: ignore[method-assign]
    assert entries(bookies.check()) == [990]


def test_a_build_that_knows_no_digests_is_not_compared() -> None:
    """P10.8: what it holds is counted as before."""
    bookies = Bookies(metadata(THREE, 99, (0, (1, 2, 3))))
    bookies.change(2, 50)
    bookies.older = {member(2)}
    assert bookies.check() == Checked({}, {}, 3)


def test_copies_that_differ_in_everything_have_a_bound() -> None:
    bookies = Bookies(metadata(THREE, 9_999, (0, (1, 2, 3))))
    bookies.change(1, *range(10_000))
    found = bookies.check()
    assert len(found.conflicts[7]) == CONFLICTS_MAX
    assert len(bookies.asked) < 1_000


def test_an_index_that_tells_another_digest_than_the_bytes_is_not_called_good() -> None:
    """P7.1: all copies are the same, and something is wrong all the same."""
    bookies = Bookies(metadata(THREE, 9, (0, (1, 2, 3))))
    bookies.change(1, 4)
    right = bookies.answer

    def answer(who: Member, asked: HoldingsRequest) -> HoldingsAnswer:
        if asked.wants == Digests.BY_BYTES:
            bookies.change(1, 4, digest=1_028)
        return right(who, asked)

    bookies.answer = answer  # type: ignore[method-assign]
    found = bookies.check()
    assert (found.conflicts, found.short) == ({}, {})
    assert set(found.untold[7]) == {"b1", "b2", "b3"}


def test_who_joined_later_is_compared_with_who_was_there_before() -> None:
    """P11.4: they are asked in several questions each, which begin at other entries and end at the same ones."""
    bookies = Bookies(metadata(THREE, 399, (0, (1, 2, 3)), (150, (1, 2, 4))))
    bookies.change(4, 240)
    assert entries(bookies.check(ids_max=100)) == [240]


def test_any_conflicts_are_found_and_no_others() -> None:
    """By chance: striped ledgers, ensembles that changed, parts of questions, answers that have not all digests."""
    chance = random.Random(3)
    for _ in range(60):
        size = chance.choice([2, 3, 4, 5])
        quorum = Quorum(size, chance.randint(2, size), 1)
        last, numbers = chance.randint(5, 400), list(range(1, 8))
        begins = sorted({0, *(chance.randint(1, last) for _ in range(chance.choice([0, 1, 3])))})
        fragments = [(first, tuple(chance.sample(numbers, size))) for first in begins]
        bookies = Bookies(metadata(quorum, last, *fragments))
        bookies.read_max = chance.choice([1, 70, 1 << 30])
        changed = set()
        for _ in range(chance.choice([0, 1, 3, 20])):
            number = chance.choice(sorted(bookies.copies)).bookie_id[1:]
            entry_id = chance.choice(sorted(bookies.copies[member(int(number))]))
            if entry_id not in changed:
                bookies.change(int(number), entry_id)
                changed.add(entry_id)
        found = bookies.check(
            chance, at_once=chance.choice([1, 4, 64]), ids_max=chance.choice([100, 1 << 18])
        )
        if bookies.read_max > 400:
            assert entries(found) == sorted(changed)
        assert set(entries(found)) <= changed
        assert (found.short, found.untold) == ({}, {})


@pytest.mark.parametrize(
    ("first", "last", "modulus"), [(3, 3, 1), (3, 900, 1), (4, 9_004, 5), (0, 63, 1), (0, 64, 1)]
)
def test_a_difference_is_cut_into_smaller_ones(first: int, last: int, modulus: int) -> None:
    """L14: each round is smaller than the one before, and what it spans is all of it."""
    whole = Difference(first, last, modulus, first % modulus, ())
    bounds = [first, *whole.cuts, last + 1]
    assert len(whole.cuts) <= HOLDINGS_CUTS_MAX
    parts = [
        count_ids(begin, end - 1, modulus, 1 << whole.residue)
        for begin, end in zip(bounds[:-1], bounds[1:], strict=True)
    ]
    assert all(parts) and sum(parts) == count_ids(first, last, modulus, 1 << whole.residue)
    assert whole.is_one or max(parts) < sum(parts)
