"""A voter that lost its disk, and its next incarnation in its place (RAFT.md, 7)."""

from __future__ import annotations

import pytest

from embedbk.codec.metadata_messages import Acknowledged, Result
from embedbk.codec.quorum_messages import ChangeVoters
from embedbk.metadata.quorum import MemberId
from embedbk.metadata.replacing import REST_NS, replaced, why_not_replaced
from tests.quorum.test_governing import Office, name_of, refused

A, B, C = (MemberId(name, name.encode() * 16) for name in "abc")
A2, B2 = (MemberId(name, name.encode() * 8 + bytes(8)) for name in "ab")


def nobody(_: MemberId) -> bool:
    return False


def test_only_another_incarnation_of_the_same_name_is_a_replacement() -> None:
    """Growing, shrinking and swapping one machine for another are none."""
    assert replaced((A, B, C), (A2, B, C)) == [(A, A2)]
    assert replaced((A, B), (A, B, C)) == []
    assert replaced((A, B, C), (A,)) == []
    assert replaced((A, B), (A, C)) == []


@pytest.mark.parametrize(("passed_ns", "may"), [(0, False), (REST_NS - 1, False), (REST_NS, True)])
def test_one_voter_an_hour(passed_ns: int, may: bool) -> None:
    """Story 5, RAFT.md, 7: "one replacement an hour, unless the risk is accepted by name": a script that wipes machine
    after machine is stopped at the second."""
    now_ns = 5 * REST_NS
    answer = why_not_replaced([(B, B2)], nobody, now_ns - passed_ns, now_ns, accepts_risk=False)
    assert (answer == "") is may
    assert why_not_replaced([(B, B2)], nobody, now_ns - passed_ns, now_ns, accepts_risk=True) == ""
    if not may:
        assert "b would be the second within an hour" in answer


def test_two_at_once_only_where_the_risk_is_accepted() -> None:
    """RAFT.md, 7: the same cause may have taken both disks."""
    both = [(A, A2), (B, B2)]
    assert "a and b at once" in why_not_replaced(both, nobody, None, 0, accepts_risk=False)
    assert why_not_replaced(both, nobody, None, 0, accepts_risk=True) == ""


def test_who_is_heard_keeps_its_place_whatever_is_accepted() -> None:
    """RAFT.md, 7: an incarnation that lives is not retired for another one of its name."""
    for accepts in (False, True):
        answer = why_not_replaced([(A, A2)], lambda each: each == A, None, 0, accepts_risk=accepts)
        assert "nobody has to take its place" in answer


class Wiping(Office):
    """Voters a, b, c, whose disks can be lost; whoever lost one comes back empty and learns."""

    def __init__(self) -> None:
        super().__init__("abc")

    def wipe(self, name: str) -> MemberId:
        """The incarnation that learns in its place."""
        [old] = [each for each in self.world.members.values() if each.member.name == name]
        old.crash()
        del self.world.members[old.member]
        self.world.run(3000)
        made = self.newcomer(name)
        assert self.ask(self.join(made)) == Acknowledged(0)
        return made.member

    def replace(self, *fresh: MemberId, accepts_risk: bool = False) -> Result:
        told = self.status()
        names = {each.name for each in fresh}
        stay = [
            each.member for each in told.members if each.role == "voter" and each.member.name not in names
        ]
        voters = (*stay, *map(name_of, fresh))
        return self.ask(ChangeVoters(told.configuration, voters, accepts_risk=accepts_risk))


def test_whoever_leads_by_then_remembers_the_first_replacement() -> None:
    """RAFT.md, 7: the second within an hour is refused, also by one who did not lead at the first."""
    office = Wiping()
    first = office.leader().member.name
    others = sorted({"a", "b", "c"} - {first})
    assert office.replace(office.wipe(others[0])) == Acknowledged(0)
    fresh = office.wipe(first)
    assert office.leader().member.name != first
    code, text = refused(office.replace(fresh))
    assert code == "REFUSED"
    assert f"{first} would be the second within an hour" in text
    assert office.replace(fresh, accepts_risk=True) == Acknowledged(0)
    roles = {each.member: each.role for each in office.status().members}
    assert roles[name_of(fresh)] == "voter"
