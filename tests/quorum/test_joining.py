"""Whom a blank member believes (P10.3)."""

from __future__ import annotations

from embedbk.codec.quorum_messages import MemberName, MemberTold, QuorumTold
from embedbk.metadata.joining import Adoption

T, U = b"t" * 16, b"u" * 16


def member(name: str) -> MemberName:
    return MemberName(name, name.encode() * 16)


def told(
    name: str, voters: str, *, at: int = 1, token: bytes = T, learners: str = "", is_joint: bool = False
) -> QuorumTold:
    members = [MemberTold(member(each), "voter", (f"at {each}",), False, 0) for each in voters]
    members += [MemberTold(member(each), "learner", (f"at {each}",), False, 0) for each in learners]
    return QuorumTold(
        token, member(name), "follower", 1, "", at, at, at, at, is_joint, "majority", 500, tuple(members)
    )


def heard(*answers: QuorumTold) -> Adoption:
    adoption = Adoption(["seed"])
    for answer in answers:
        adoption.hear("seed", answer)
    return adoption


def test_a_token_is_taken_from_a_majority_of_those_that_are_voters_by_their_own_word() -> None:
    assert heard(told("a", "a")).token == T
    one = heard(told("a", "abc"))
    assert one.token == b""
    assert one.endpoints == ("seed", "at a", "at b", "at c"), "and those that it names are asked"
    assert "1 of 3 voters answered" in one.why_not
    assert "b at at b; c at at c" in one.why_not
    assert heard(told("a", "abc"), told("b", "abc")).token == T
    assert "no voter answered at seed" in heard().why_not


def test_whoever_has_no_vote_and_whoever_asks_again_counts_for_nobody() -> None:
    learner = told("d", "abc", learners="d")
    assert heard(learner).token == b""
    assert heard(learner, told("a", "abc"), told("a", "abc")).token == b""
    outsider = told("z", "a", at=90, learners="z")
    assert heard(outsider, told("a", "abc", at=3)).token == b"", "who votes is believed of voters only"
    assert heard(told("a", "abcd"), told("b", "abcd")).token == b"", "half is no majority"
    assert heard(told("a", "abc", is_joint=True), told("b", "abc", is_joint=True)).token == b""
    assert "under way" in heard(told("a", "abc", is_joint=True)).why_not


def test_a_machine_that_was_taken_out_lures_nobody() -> None:
    """Story 7: it was one of three, and two of them are there; or alone once, and the others have gone
    on without it."""
    assert heard(told("old", "old" and "xyz")).token == b""
    gone_on = heard(told("a", "a", at=3), told("b", "bcd", at=90))
    assert gone_on.token == b""
    assert heard(told("a", "a", at=3), told("b", "bcd", at=90), told("c", "bcd", at=90)).token == T


def test_two_clusters_are_told_and_none_is_joined() -> None:
    both = heard(told("a", "a"), told("b", "b", token=U))
    assert both.token == b""
    assert T.hex() in both.conflict
    assert U.hex() in both.conflict
    blank = heard(told("x", "", token=b""))
    assert (blank.token, blank.conflict) == (b"", "")
