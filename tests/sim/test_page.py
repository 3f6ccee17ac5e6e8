"""TESTING.md and the code say the same."""

from __future__ import annotations

import re
from pathlib import Path

import embedbk.testing
from embedbk.testing.plan import FAULT_KINDS, FEATURES

PAGE = (Path(embedbk.testing.__file__).parent / "TESTING.md").read_text(encoding="utf-8")


def test_the_table_of_faults_is_the_catalogue() -> None:
    """Each kind once, with its number."""
    table = PAGE.partition("<!-- table: faults -->")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `([a-z-]+)` \| ([A-Z]\d+) \|", table, re.MULTILINE)) == FAULT_KINDS


def test_the_table_of_features_is_what_plans_draw() -> None:
    """Each once, in the same order."""
    table = PAGE.partition("<!-- table: features -->")[2].partition("\n\n")[0]
    assert tuple(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)) == FEATURES


def test_the_example_runs() -> None:
    """Examples in documents run as tests."""
    example = PAGE.partition("```python\n")[2].partition("```")[0]
    exec(compile(example, "TESTING.md", "exec"), {})


def test_every_file_that_the_page_names_is_there() -> None:
    """Section 3; patterns count as well."""
    parts = PAGE.partition("## 3. Parts")[2].partition("## 4.")[0]
    folder = Path(embedbk.testing.__file__).parent
    named = re.findall(r"`([a-z_*]+\.py)`", parts)
    assert named
    for name in named:
        assert list(folder.glob(name)), name
