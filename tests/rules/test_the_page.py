"""embedbk/core/PROTOCOL.md and the code that cites it: every number is there, and every built rule has its test."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "embedbk" / "core" / "PROTOCOL.md"
NUMBER = re.compile(r"\b(?:P\d+(?:\.\d+[a-f]?)?|(?:I|RP|CL|ST|MD|AR|LG)\d+)\b")
OF_TESTS = re.compile(
    r"\b[SD][1-9]\d?\b"
)  # Letters that stand for other things elsewhere: in sentences only.
# Kinds of faults (testing/TESTING.md, section 5). O is no list of this project.
OF_FAULTS = re.compile(r"(?<![-\w])[NO][1-9]\d?\b")
SOURCES = {".py", ".pyi", ".md", ".c", ".h"}
SCENARIOS = re.compile(r"[Ss]cenarios? \d+(?:(?:, | and )\d+)*")
STORIES = re.compile(r"\b[Ss]tor(?:y|ies) \d+(?:(?:, | and )\d+)*")
SECTIONS = re.compile(r'"""(?:METADATA )?\d\.\d+(?: no\. \d+)?: |\bMETADATA \d\.\d+|\(\d\.\d{1,2}, S\d\)')
NO_RULE = {"P50", "P95", "P99"}  # Percentiles and the like.


@lru_cache
def cited_in(*folders: str, pattern: re.Pattern[str] = NUMBER) -> dict[str, str]:
    """Number -> one place that cites it."""
    found: dict[str, str] = {}
    for folder in folders:
        for path in sorted((PROJECT / folder).rglob("*")):
            if path.suffix in SOURCES and path != PAGE and path != Path(__file__):
                for line, text in enumerate(path.read_text().splitlines(), 1):
                    for number in pattern.findall(text):
                        found.setdefault(number, f"{path.relative_to(PROJECT)}:{line}")
    return {number: place for number, place in found.items() if number not in NO_RULE}


def numbers_on_the_page() -> set[str]:
    text = PAGE.read_text()
    found = set(re.findall(r"\*\*([A-Z]+\d+(?:\.\d+[a-f]?)?)\*\*", text))
    for row in re.findall(r"^\| ([A-Z]+\d+(?:, [A-Z]+\d+)*) \|", text, re.MULTILINE):
        found |= set(row.split(", "))
    return found | {number.split(".")[0] for number in found if number.startswith("P")} | {"P1"}


def rules() -> dict[str, str]:
    """Rule -> how far the page says it is built, of those that are told one by one."""
    return dict(re.findall(r"\*\*(P\d+\.\d+)\*\* (Built|In part|Not built)", PAGE.read_text()))


def test_every_number_that_is_cited_stands_on_the_page() -> None:
    known = numbers_on_the_page()
    cited = cited_in("embedbk", "transports", "native", "tests", "benchmarks")
    missing = [f"{number} ({place})" for number, place in cited.items() if number not in known]
    assert not missing, "not in embedbk/core/PROTOCOL.md: " + ", ".join(missing)
    assert len(cited) > 60


def test_every_rule_says_how_far_it_is_built() -> None:
    marked = rules()
    alone = {n for n in numbers_on_the_page() if re.fullmatch(r"P\d+\.\d+", n)}
    assert alone == set(marked)
    assert len(marked) > 45


@pytest.mark.parametrize("rule", [rule for rule, mark in rules().items() if mark != "Not built"])
def test_a_built_rule_is_quoted_by_a_test(rule: str) -> None:
    """A rule that no test quotes is a rule that nobody would miss."""
    cited = cited_in("tests")
    assert any(number == rule or number[:-1] == rule for number in cited), rule


@pytest.mark.parametrize("rule", [rule for rule, mark in rules().items() if mark == "Built"])
def test_a_built_rule_is_cited_by_code(rule: str) -> None:
    """And one that no code cites is not built, or not to be found."""
    cited = cited_in("embedbk", "transports", "native")
    assert any(number == rule or number[:-1] == rule for number in cited), rule


def test_every_number_of_the_simulator_and_of_disks_stands_on_the_page() -> None:
    """S and D: what the simulator promises of itself, and what disks do. L and T: tests/test_pages.py."""
    known = numbers_on_the_page()
    missing = [
        f"{number} ({place})"
        for number, place in cited_in("embedbk", "transports", "native", "tests", pattern=OF_TESTS).items()
        if number not in known
    ]
    assert not missing, "not in embedbk/core/PROTOCOL.md: " + ", ".join(missing)


def test_every_kind_of_fault_that_is_cited_stands_in_the_table_of_faults() -> None:
    """N, by its number: embedbk/testing/TESTING.md, section 5, says what happens then."""
    page = (PROJECT / "embedbk" / "testing" / "TESTING.md").read_text()
    known = set(re.findall(r"^\| `[\w-]+` \| (\w+) \|", page, re.MULTILINE))
    cited = cited_in("embedbk", "transports", "native", "tests", pattern=OF_FAULTS)
    assert len(cited) > 8
    assert set(cited) <= known, {number: place for number, place in cited.items() if number not in known}


@pytest.mark.parametrize(
    ("heading", "cited_as"),
    [("# Known accidents, as tests", SCENARIOS), ("## Stories of the metadata quorum", STORIES)],
)
def test_every_story_that_is_cited_stands_in_the_list_and_its_tests_cite_it(
    heading: str, cited_as: re.Pattern[str]
) -> None:
    """tests/scenarios/README.md: a number leads to what happened, and to the tests that tell it again."""
    page = (PROJECT / "tests" / "scenarios" / "README.md").read_text()
    part = page.split(heading + "\n")[1].split("\n## ")[0]
    listed = dict(re.findall(r"^\| (\d+) \| .* \| (.*) \|$", part, re.MULTILINE))
    cited = {
        number
        for text in cited_in("embedbk", "native", "tests", pattern=cited_as)
        for number in re.findall(r"\d+", text)
    }
    assert cited <= set(listed), f"not in the list: {sorted(cited - set(listed), key=int)}"
    for number, files in listed.items():
        for name in re.findall(r"`(.*?)`", files):
            told = " ".join(cited_as.findall((PROJECT / "tests" / name).read_text()))
            assert re.search(rf"\b{number}\b", told), f"{name} does not tell {number}"


def test_the_traps_that_are_listed_are_told() -> None:
    """tests/scenarios/README.md: each names a test that is there."""
    page = (PROJECT / "tests" / "scenarios" / "README.md").read_text()
    found = re.findall(r"`([\w/]+\.py)::(\w+)`", page)
    assert found
    for name, test in found:
        assert f"def {test}(" in (PROJECT / "tests" / name).read_text(), f"{name} has no {test}"


def test_nothing_cites_a_section_by_its_number_alone() -> None:
    """A section is cited with its page: "RAFT.md, 7", never "2.13" or "METADATA 2.13"."""
    found = cited_in("embedbk", "transports", "native", "tests", pattern=SECTIONS)
    assert not found, f"without a page: {found}"
