"""The pages beside the code name what is there, and leave out no file whose place a reader would ask for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]
PAGES = [
    PROJECT / "README.md",
    *sorted(
        page
        for folder in ("benchmarks", "embedbk", "native", "tests", "transports")
        for page in (PROJECT / folder).rglob("*.md")
        if not page.relative_to(PROJECT).match("embedbk/transports/*")  # A link to transports/.
    ),
]
NAMED = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./-]+\.(?:py|c|h|md)")


def section(page: Path, heading: str) -> str:
    """The text under a heading, up to the next one as high."""
    found = re.search(rf"^{re.escape(heading)}\n(.*?)(?=^## |\Z)", page.read_text(), re.M | re.S)
    assert found is not None, f"{page.name} has no {heading}"
    return found.group(1)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """Beside the page, from the top of the project, or in one of the folders that nearly all pages speak of."""
    for named in NAMED.findall(page.read_text()):
        if FILE.fullmatch(named):
            places = (
                page.parent,
                PROJECT,
                PROJECT / "embedbk",
                PROJECT / "embedbk" / "host",
                PROJECT / "native",
                PROJECT / "tests",
                *(PROJECT / "native").glob("*/"),
            )
            assert any((place / named).exists() for place in places), f"{page.name} names {named}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_function_of_c_that_a_page_names_is_there(page: Path) -> None:
    """A public name of the C side stands in a header."""
    headers = "\n".join(path.read_text() for path in sorted((PROJECT / "native").glob("*/*.h")))
    for name in re.findall(r"\bebk_\w+", " ".join(NAMED.findall(page.read_text()))):
        assert re.search(rf"\b{name}\b", headers), f"{page.name} names {name}"


def test_the_table_of_the_c_side_has_every_file() -> None:
    """native/NATIVE.md begins with who decides what."""
    named = set(NAMED.findall((PROJECT / "native" / "NATIVE.md").read_text().split("\n## ")[0]))
    assert {path.name for path in (PROJECT / "native").glob("*/*.[ch]")} <= named


@pytest.mark.parametrize("floor", ["codec", "core", "metadata", "storage", "host"])
def test_the_architecture_has_every_module_of_a_floor(floor: str) -> None:
    """Under "Where what is decided" each module stands with its neighbours."""
    text = section(PROJECT / "embedbk" / "ARCHITECTURE.md", "## Where what is decided")
    (rows,) = re.findall(rf"^### `{floor}/`\n(.*?)(?=^### |\Z)", text, re.M | re.S)
    there = {path.stem for path in (PROJECT / "embedbk" / floor).glob("*.py")} - {"__init__"}
    named = {name for name in NAMED.findall(rows) if name.isidentifier()}
    assert sorted(there - named) == []
    assert sorted(named - there) == [], "those are not there"


def test_the_parts_of_the_simulator_and_of_the_zmq_transport_are_all_named() -> None:
    """TESTING.md, section 3, and TRANSPORTS.md, "zmq"."""
    parts = section(PROJECT / "embedbk" / "testing" / "TESTING.md", "## 3. Parts")
    for path in (PROJECT / "embedbk" / "testing").glob("[!_]*.py"):
        assert f"`{path.name}`" in parts or path.name.startswith("invariants"), path.name
    table = section(PROJECT / "transports" / "TRANSPORTS.md", "## zmq")
    for path in (PROJECT / "transports").glob("zmq*.py"):
        assert f"`{path.name}`" in table, path.name


def test_every_page_and_number_that_is_cited_is_there() -> None:
    """Code and tests cite pages of this project only; threats stand in TRANSPORTS.md, liveness in PROTOCOL.md."""
    pages = {page.stem for page in PAGES}
    known = set(re.findall(r"^\| (T\d+) ", (PROJECT / "transports" / "TRANSPORTS.md").read_text(), re.M))
    known |= set(
        re.findall(r"^\| (L\d+) \|", (PROJECT / "embedbk" / "core" / "PROTOCOL.md").read_text(), re.M)
    )
    for folder in ("embedbk", "native", "tests", "transports"):
        for path in sorted((PROJECT / folder).rglob("*.[pch]*")):
            if path.suffix not in (".py", ".c", ".h") or path == Path(__file__):
                continue
            text = path.read_text()
            for name in re.findall(r"\b([A-Z]{4,})\.md\b|\b([A-Z]{5,}) (?:section )?T?\d+\.\d", text):
                assert (name[0] or name[1]) in pages, f"{path.relative_to(PROJECT)} cites {name}"
            for number in re.findall(
                r"(?<![\w<\[.])((?:T|L)\d{1,2})(?=[:;.)\"]|,? (?:and |to )?[TLPI]\d)", text
            ):
                assert number in known, f"{path.relative_to(PROJECT)} cites {number}"
