"""Three mutants in the ordinary run (S3), one that is none, and whether every patch still applies."""

from __future__ import annotations

import re

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import Mutant
from tests.mutants.planting import (
    PROJECT,
    TEST_TIMEOUT_S,
    DoesNotApply,
    limit_of_tests_s,
    plant,
    try_mutant,
)

THREE = ("coverage-by-count", "add-accepted-on-a-fenced-ledger", "commit-without-epoch")
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


@pytest.mark.parametrize("name", THREE)
def test_a_mutant_is_found_by_its_directed_test(name: str) -> None:
    """S3, and by random seeds within its number where it is a shallow one."""
    mutant = BY_NAME[name]
    outcome = try_mutant(mutant)
    assert outcome.is_killed, outcome
    assert outcome.seeds is None if mutant.seeds is None else 0 < (outcome.seeds or 0) <= mutant.seeds


def test_what_changes_nothing_is_not_killed() -> None:
    """The control, without which a kill would mean nothing: the same tests pass where only a comment is planted."""
    edit = (BY_NAME[THREE[0]].edits[0][0], "import enum\n", "import enum  # The same.\n")
    killers = tuple(killer for name in THREE for killer in BY_NAME[name].killers)
    assert try_mutant(Mutant("harmless", "", "", (edit,), killers)).status == "survived"


def test_a_patch_that_no_longer_applies_is_a_failure() -> None:
    source = BY_NAME[THREE[0]].edits[0][0]
    gone = Mutant("gone", "", "", ((source, "nobody writes this", ""),), BY_NAME[THREE[0]].killers)
    assert try_mutant(gone).status == "does not apply"


def test_the_time_limit_grows_with_the_tests() -> None:
    """All directed tests run on the untouched tree first: each of them may take its own limit."""
    tests = tuple({killer for mutant in MUTANTS for killer in mutant.killers})
    assert limit_of_tests_s(tests) == len(tests) * TEST_TIMEOUT_S > limit_of_tests_s(tests[:1])


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_patch_applies_to_the_tree_as_it_is(mutant: Mutant) -> None:
    """Nothing is planted here; whoever changes a line that a mutant needs is told at once."""
    for path, old, new in mutant.edits:
        assert (PROJECT / path).read_text().count(old) == 1, f"{path}: {old!r}"
        assert old != new


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_directed_test_is_there_under_its_name(mutant: Mutant) -> None:
    """S3: whoever renames a test that a mutant names is told at once, and not by the next run of all mutants."""
    for killer in mutant.killers:
        path, *names = killer.partition("[")[0].split("::")
        text = (PROJECT / path).read_text()
        for name in names:
            assert re.search(rf"^ *(?:async )?(?:def|class) {name}\b", text, re.MULTILINE), killer


def test_planting_says_which_text_is_not_there(tmp_path: object) -> None:
    with pytest.raises(DoesNotApply, match="found 0 times"):
        plant(PROJECT / "nowhere", MUTANTS[0])


def test_names_are_told_apart() -> None:
    assert len(BY_NAME) == len(MUTANTS)
