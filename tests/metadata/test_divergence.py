"""Members compare their states through the log (METADATA.md, 2; I72)."""

from __future__ import annotations

from embedbk.codec.metadata_messages import Put, Txn
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.commands import RULES, CheckDigest, Run, StartSession
from embedbk.metadata.divergence import DIGEST_NS, Divergence


def catalog_of(*values: bytes) -> Catalog:
    catalog = Catalog()
    catalog.apply(StartSession(7, 1000, "s", b"secret"), 1, 1)
    for number, value in enumerate(values, 1):
        catalog.apply(Run(7, number, number, Txn([], [Put(f"/{number}", value)]), RULES), 1 + number, 1)
    return catalog


def test_equal_states_go_on_and_another_is_found_at_the_next_comparison() -> None:
    """I72: both noted their state at the same entry; what differs there is found one comparison later."""
    leader, follower, other = Divergence(3), Divergence(3), Divergence(3)
    same, wrong = catalog_of(b"a", b"b"), catalog_of(b"a", b"c")
    first = leader.propose(0)
    assert first == CheckDigest(0, b"")
    assert [leader.apply(4, first, same), follower.apply(4, first, same), other.apply(4, first, wrong)] == [
        ""
    ] * 3
    second = leader.propose(0)
    assert second == CheckDigest(4, same.fast_digest)
    assert leader.apply(9, second, same) == follower.apply(9, second, same) == ""
    said = other.apply(9, second, wrong)
    assert "entry 4" in said and same.fast_digest.hex() in said and wrong.fast_digest.hex() in said


def test_whoever_noted_nothing_there_compares_nothing() -> None:
    """METADATA.md, 2: whoever just started, or was given another's state, cannot tell yet."""
    follower, catalog = Divergence(), catalog_of(b"a")
    assert follower.apply(9, CheckDigest(4, b"x" * 16), catalog) == ""
    assert follower.apply(12, CheckDigest(9, catalog.fast_digest), catalog) == ""
    follower.forget()
    assert follower.apply(20, CheckDigest(12, b"x" * 16), catalog) == ""
    assert follower.apply(30, CheckDigest(20, b"x" * 16), catalog) != ""


def test_a_comparison_is_due_by_entries_or_by_time_and_not_in_an_idle_cluster() -> None:
    """METADATA.md, 2: after so many entries, or after a while in which anything was applied."""
    leader, catalog = Divergence(3), catalog_of()
    leader.begin_to_lead(100)
    assert leader.due_ns is None
    leader.apply(1, StartSession(7, 1000, "s"), catalog)
    assert leader.due_ns == 100 + DIGEST_NS
    for index in (2, 3):
        leader.apply(index, None, catalog)
    assert leader.due_ns == 100  # At once.
    check = leader.propose(200)
    assert leader.due_ns is None  # Under way.
    leader.apply(4, check, catalog)
    assert leader.due_ns is None  # It is itself no reason for another.
    leader.apply(5, None, catalog)
    assert leader.due_ns == 200 + DIGEST_NS
    leader.propose(300)
    leader.begin_to_lead(400)  # What was under way is not known to come.
    assert leader.due_ns == 400 + DIGEST_NS
