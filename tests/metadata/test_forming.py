"""What a blank member answers while others may form a cluster with it (RAFT.md, 11)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import Acknowledged, KeepAlive, NotLeader, Refusal
from embedbk.codec.quorum_messages import (
    BeginFormation,
    FormationPromised,
    MemberName,
    MemberTold,
    PrepareFormation,
    QuorumStatus,
    QuorumTold,
)
from embedbk.metadata.forming import PROMISE_NS, PROMISED_MAX, Forming
from embedbk.metadata.joining import Adoption

A, B, C = ("tcp://127.0.0.1:1", "tcp://127.0.0.1:2", "tcp://127.0.0.1:3")
NONCE, OTHER = b"1" * 16, b"2" * 16
ONE = PrepareFormation(NONCE, A, (A, B, C))
TWO = PrepareFormation(OTHER, B, (A, B))


def text_of(answer: object) -> str:
    assert isinstance(answer, Refusal), answer
    return answer.text


def test_a_blank_member_says_that_it_holds_nothing_and_nobody_adopts_that() -> None:
    """RAFT.md, 11: a blank member answers; it can never be taken for a voter, nor its answer for a cluster."""
    told = Forming("m1", [A]).answer(0, QuorumStatus())
    assert isinstance(told, QuorumTold)
    assert (told.role, told.cluster_token, told.leader) == ("blank", b"", "")
    adoption = Adoption([A])
    adoption.hear(A, told)
    assert adoption.token == b"" and adoption.endpoints == (A,)


def test_whoever_looks_for_a_leader_is_told_that_nobody_is_known() -> None:
    """P10.1: any address may be asked; the next one is."""
    assert Forming("m1", [A]).answer(0, KeepAlive()) == NotLeader("")


def test_a_promise_is_for_one_formation_until_it_was_not_asked_for_any_more() -> None:
    """RAFT.md, 11: of two formations that share a member at most one has all promises at one time."""
    forming = Forming("m1", [A])
    assert forming.answer(0, ONE) == FormationPromised(NONCE, "m1")
    assert A in text_of(forming.answer(1, TWO))
    assert forming.answer(PROMISE_NS - 1, ONE) == FormationPromised(NONCE, "m1")  # Asked for again.
    assert "another formation" in text_of(forming.answer(2 * PROMISE_NS - 2, TWO))
    assert forming.answer(2 * PROMISE_NS - 1, TWO) == FormationPromised(OTHER, "m1")
    assert forming.others == (B, A, B)


def test_only_who_promised_begins_and_only_that_formation() -> None:
    """RAFT.md, 11: whoever restarts has promised nothing; a promise that ended is none."""
    forming = Forming("m1", [A])
    assert "no such formation" in text_of(forming.answer(0, BeginFormation(NONCE)))
    forming.answer(0, ONE)
    assert "no such formation" in text_of(forming.answer(1, BeginFormation(OTHER)))
    assert "too long ago" in text_of(forming.answer(PROMISE_NS, BeginFormation(NONCE)))
    assert not forming.is_founder
    forming.answer(PROMISE_NS, ONE)
    assert forming.answer(PROMISE_NS + 1, BeginFormation(NONCE)) == Acknowledged(0)
    assert forming.is_founder


def test_a_founder_that_began_promises_nothing_any_more_and_repeats_its_answer() -> None:
    """RAFT.md, 11: a founder begins at most one cluster, also when its first answer was lost."""
    forming = Forming("m1", [A])
    forming.answer(0, ONE)
    forming.answer(1, BeginFormation(NONCE))
    assert forming.answer(2, BeginFormation(NONCE)) == Acknowledged(0)
    assert "another formation" in text_of(forming.answer(3, TWO))
    assert "another formation" in text_of(forming.answer(PROMISE_NS * 2, TWO))


def test_a_member_whose_seeds_have_a_cluster_forms_no_other() -> None:
    """RAFT.md, 11: unanimity of blank members; whoever is about to join a cluster is not one."""
    forming = Forming("m1", [A])
    forming.met = b"\xab" * 16
    assert "ab" * 16 in text_of(forming.answer(0, ONE))


def told_by(name: str, endpoint: str, token: bytes) -> QuorumTold:
    """By the only voter of a cluster."""
    own = MemberName(name, b"i" * 16)
    return QuorumTold(
        token,
        own,
        "leader",
        1,
        name,
        1,
        1,
        1,
        1,
        False,
        "",
        0,
        (MemberTold(own, "voter", (endpoint,), True, 1),),
    )


def test_whoever_a_formation_names_counts_for_the_cluster_of_that_formation_only() -> None:
    """RAFT.md, 11: an `init` with the address of another database draws nobody into that one."""
    forming, adoption = Forming("m2", [B]), Adoption([B])
    forming.answer(0, ONE)
    assert forming.promised == (NONCE,)
    adoption.hear(C, told_by("older", C, b"o" * 16), forming.promised)
    assert (adoption.met, adoption.token, adoption.conflict, adoption.endpoints) == (b"", b"", "", (B,))
    forming.met = adoption.met
    assert forming.answer(2 * PROMISE_NS, TWO) == FormationPromised(OTHER, "m2")
    # The first may have begun all the same, when its founder was told so at the last moment.
    assert forming.promised == (NONCE, OTHER)
    adoption.hear(A, told_by("m1", A, NONCE), forming.promised)
    assert (adoption.met, adoption.token) == (NONCE, NONCE)
    adoption.hear(C, told_by("older", C, b"o" * 16), forming.promised)
    assert adoption.conflict == ""


def test_a_founder_begins_the_cluster_whose_token_those_who_promised_wait_for() -> None:
    """RAFT.md, 11: the formation's nonce becomes the token; one of another length is refused."""
    forming = Forming("m1", [A])
    assert "16 are allowed" in text_of(forming.answer(0, PrepareFormation(b"short", A, (A,))))
    forming.answer(0, ONE)
    assert forming.founded == b""
    forming.answer(1, BeginFormation(NONCE))
    assert forming.founded == NONCE


def test_the_formations_that_are_remembered_have_a_bound() -> None:
    """RAFT.md, 11: the newest count."""
    forming = Forming("m1", [A])
    for number in range(PROMISED_MAX + 3):
        forming.answer(number * PROMISE_NS, PrepareFormation(bytes([number]) * 16, A, (A,)))
    assert len(forming.promised) == PROMISED_MAX and forming.promised[0] == b"\3" * 16
