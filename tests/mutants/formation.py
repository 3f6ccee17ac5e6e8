"""Blank members that begin a cluster together: who promises, and what begins."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_FORMING = "embedbk/metadata/forming.py"
_GOVERNING = "embedbk/metadata/governing.py"
_TESTS = "tests/metadata/test_forming.py::test_"
_WHOLE = "tests/cluster/test_formation.py::test_"

MUTANTS = (
    Mutant(
        "two-formations-are-promised",
        "P10.3",
        "a blank member takes part in two formations, which can both have all promises and begin two clusters",
        ((_FORMING, "held is not None and held != asked", "False"),),
        (_TESTS + "a_promise_is_for_one_formation_until_it_was_not_asked_for_any_more",),
    ),
    Mutant(
        "founder-begins-what-it-did-not-promise",
        "P10.3",
        "a member that restarted meanwhile begins a cluster of which it knows nothing",
        ((_FORMING, "held is None or held.nonce != nonce or now_ns >= self._until_ns", "held is None"),),
        (_TESTS + "only_who_promised_begins_and_only_that_formation",),
    ),
    Mutant(
        "formation-beside-a-cluster-that-a-seed-has",
        "P10.3",
        "whoever is about to join a cluster promises to form another one",
        ((_FORMING, "if held is None and self.met:", "if False:"),),
        (_TESTS + "a_member_whose_seeds_have_a_cluster_forms_no_other",),
    ),
    Mutant(
        "a-formation-names-another-cluster-and-is-believed",
        "P10.3",
        "an init with the address of another database draws blank members into that one",
        (
            (
                "embedbk/metadata/joining.py",
                "(endpoint not in self.endpoints and told.cluster_token not in promised)",
                "not endpoint",
            ),
        ),
        (_TESTS + "whoever_a_formation_names_counts_for_the_cluster_of_that_formation_only",),
    ),
    Mutant(
        "a-founder-mints-another-token",
        "P10.3",
        "those who promised wait for ever for a cluster that has another name",
        (
            (
                _FORMING,
                "return self._promised.nonce if self.is_founder",
                "return b'x' * 16 if self.is_founder",
            ),
        ),
        (_TESTS + "a_founder_begins_the_cluster_whose_token_those_who_promised_wait_for",),
    ),
    Mutant(
        "formation-without-those-that-do-not-answer",
        "P10.3",
        "a cluster begins though not all of its members have promised",
        (
            (
                "embedbk/quorum.py",
                "        if silent:\n            why = ",
                "        if len(silent) > 1:\n            why = ",
            ),
        ),
        (_WHOLE + "a_member_of_another_cluster_or_one_that_is_silent_makes_it_fail_and_nothing_begins",),
    ),
)
