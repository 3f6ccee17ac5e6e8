"""What a blank member answers while others may form a cluster with it (RAFT.md, 11)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import (
    Acknowledged,
    BeginFormation,
    FormationPromised,
    KeepAlive,
    NotLeader,
    PrepareFormation,
    QuorumStatus,
    QuorumTold,
    Refusal,
)
from embedbk.metadata.forming import PROMISE_NS, Forming
from embedbk.metadata.joining import Adoption

A, B, C = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3")
ONE = PrepareFormation(b"one", A, (A, B, C))
TWO = PrepareFormation(b"two", B, (A, B))


def text_of(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.text


def test_a_blank_member_says_that_it_holds_nothing_and_nobody_adopts_that() -> None:
    """2.10: a BLANK member answers; it can never be taken for a voter, nor its answer for a cluster."""
    told = Forming("m1", [A]).answer(0, QuorumStatus())
    assert isinstance(told, QuorumTold)
    assert (told.role, told.cluster_token, told.leader) == ("blank", b"", "")
    adoption = Adoption([A])
    adoption.hear(told)
    assert adoption.token == b"" and adoption.endpoints == (A,)


def test_whoever_looks_for_a_leader_is_told_that_nobody_is_known() -> None:
    """P10.1: any address may be asked; the next one is."""
    assert Forming("m1", [A]).answer(0, KeepAlive()) == NotLeader("")


def test_a_promise_is_for_one_formation_until_it_was_not_asked_for_any_more() -> None:
    """RAFT.md, 11: of two formations that share a member at most one has all promises at one time."""
    forming = Forming("m1", [A])
    assert forming.answer(0, ONE) == FormationPromised(b"one", "m1")
    assert A in text_of(forming.answer(1, TWO))
    assert forming.answer(PROMISE_NS - 1, ONE) == FormationPromised(b"one", "m1")  # Asked for again.
    assert "another formation" in text_of(forming.answer(2 * PROMISE_NS - 2, TWO))
    assert forming.answer(2 * PROMISE_NS - 1, TWO) == FormationPromised(b"two", "m1")
    assert forming.others == (B, A, B)


def test_only_who_promised_begins_and_only_that_formation() -> None:
    """RAFT.md, 11: whoever restarts has promised nothing; a promise that ended is none."""
    forming = Forming("m1", [A])
    assert "no such formation" in text_of(forming.answer(0, BeginFormation(b"one")))
    forming.answer(0, ONE)
    assert "no such formation" in text_of(forming.answer(1, BeginFormation(b"two")))
    assert "too long ago" in text_of(forming.answer(PROMISE_NS, BeginFormation(b"one")))
    assert not forming.is_founder
    forming.answer(PROMISE_NS, ONE)
    assert forming.answer(PROMISE_NS + 1, BeginFormation(b"one")) == Acknowledged(0)
    assert forming.is_founder


def test_a_founder_that_began_promises_nothing_any_more_and_repeats_its_answer() -> None:
    """RAFT.md, 11: a founder begins at most one cluster, also when its first answer was lost."""
    forming = Forming("m1", [A])
    forming.answer(0, ONE)
    forming.answer(1, BeginFormation(b"one"))
    assert forming.answer(2, BeginFormation(b"one")) == Acknowledged(0)
    assert "another formation" in text_of(forming.answer(3, TWO))
    assert "another formation" in text_of(forming.answer(PROMISE_NS * 2, TWO))


def test_a_member_whose_seeds_have_a_cluster_forms_no_other() -> None:
    """2.10: unanimity of blank members; whoever is about to join a cluster is not one."""
    forming = Forming("m1", [A])
    forming.met = b"\xab" * 16
    assert "ab" * 16 in text_of(forming.answer(0, ONE))
