"""The bookies as one repair knows them (`known_bookies`): who may get seats, and what the list says that counts no more
(P10.6, P11.2)."""

from __future__ import annotations

import random

from embedbk.codec.metadata_messages import Compare
from embedbk.codec.registration import placement_path
from embedbk.config import ANYWHERE, Quorum
from embedbk.core.client_words import BookieInfo
from embedbk.ids import Member
from embedbk.repair.known_bookies import KnownBookies

ONE = Quorum(1, 1, 1)
B1, B2 = (Member(f"b{number}", bytes(16)) for number in (1, 2))


def known(*listed: BookieInfo) -> KnownBookies:
    return KnownBookies(listed, ANYWHERE, random.Random(1))


def test_what_is_compared_is_the_placement_at_the_time_of_the_choice() -> None:
    """P10.6: the one that is listed by now may have been raised since, for the bookie leaves."""
    bookies = known(BookieInfo(B1, True, placement=5))
    assert bookies.choose_all(ONE) == (B1,)
    bookies.listed = (BookieInfo(B1, True, placement=6),)
    assert bookies.compare_placements([B1]) == [Compare(placement_path("b1"), 5)]


def test_who_has_another_placement_than_listed_gets_no_seat_until_it_is_listed_anew() -> None:
    bookies = known(BookieInfo(B1, True, placement=5))
    assert bookies.choose_all(ONE) == (B1,)
    bookies.compare_placements([B1])
    assert bookies.placements_to_read() == ["b1"]
    assert bookies.take_placement("b1", 6)
    assert (bookies.choose_all(ONE), bookies.failed, bookies.failed_targets) == (None, ["b1"], {B1})
    bookies.listed = (BookieInfo(B1, True, placement=6),)
    assert bookies.choose_all(ONE) == (B1,)


def test_who_failed_gets_no_seat_in_this_repair() -> None:
    bookies = known(BookieInfo(B1, True), BookieInfo(B2, True))
    bookies.refuse(B1)
    assert (bookies.choose_all(ONE), bookies.choose_all(Quorum(2, 2, 1))) == ((B2,), None)
    assert (bookies.failed, bookies.there) == (["b1"], {B1, B2})
