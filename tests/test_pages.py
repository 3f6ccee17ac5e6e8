"""The pages beside the code name what is there, and leave out no file whose place a reader would ask for."""

from __future__ import annotations

import ast
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
IN_A_FILE = re.compile(r"`([\w./-]+\.(?:py|c|h)):([\w.]+)`")
# Where pages that name a file without a folder mean it to be, besides their own.
FOLDERS = (
    PROJECT,
    PROJECT / "embedbk",
    PROJECT / "embedbk" / "host",
    PROJECT / "native",
    PROJECT / "tests",
    *(PROJECT / "native").glob("*/"),
)


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
            assert place_of(page, named) is not None, f"{page.name} names {named}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_function_of_c_that_a_page_names_is_there(page: Path) -> None:
    """A public name of the C side stands in a header."""
    headers = "\n".join(path.read_text() for path in sorted((PROJECT / "native").glob("*/*.h")))
    for name in re.findall(r"\bebk_\w+", " ".join(NAMED.findall(page.read_text()))):
        assert re.search(rf"\b{name}\b", headers), f"{page.name} names {name}"


def place_of(page: Path, named: str) -> Path | None:
    """The file that a page means: beside it, from the top of the project, or in a folder that pages speak of."""
    found = (folder / named for folder in (page.parent, *FOLDERS) if (folder / named).is_file())
    return next(found, None)


def is_defined(name: str, path: Path) -> bool:
    """A function of C; or of Python a function, a class, a method, or what a class keeps of itself."""
    text = path.read_text()
    if path.suffix != ".py":
        return re.search(rf"^[a-z][\w\s*]*?\b{name}\([^;{{]*\)\n\{{", text, re.M) is not None
    scope: ast.AST = ast.parse(text)
    for part in name.split("."):
        inside = {
            each.name: each
            for each in ast.iter_child_nodes(scope)
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        }
        kept = {
            each.attr
            for each in ast.walk(scope)
            if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        }
        if part not in inside:
            return isinstance(scope, ast.ClassDef) and part in kept
        scope = inside[part]
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_every_function_that_a_page_names_in_a_file_is_there(page: Path) -> None:
    """As `file:function` or `file:Class.method`."""
    for named, name in IN_A_FILE.findall(page.read_text()):
        path = place_of(page, named)
        assert path is not None, f"{page.name} names {named}"
        assert is_defined(name, path), f"{page.name} names {name} in {named}"


def test_a_function_that_is_not_there_is_found_missing() -> None:
    """The check checks itself."""
    road = PROJECT / "native" / "road" / "link_adds.c"
    assert is_defined("push", road) and is_defined("ebk_link_adds_turn", road)
    assert not is_defined("ebk_packer_seal", road), "called there, not defined"
    core = PROJECT / "embedbk" / "core" / "in_flight.py"
    assert is_defined("InFlight.advance", core) and is_defined("InFlight.pending", core)
    assert not is_defined("advance", core) and not is_defined("InFlight.progress", core)


def test_the_page_of_the_road_has_every_file_of_its_folder() -> None:
    """native/ROAD.md: who follows an add can name each file on its way."""
    page = PROJECT / "native" / "ROAD.md"
    named = set(NAMED.findall(page.read_text())) | {named for named, _ in IN_A_FILE.findall(page.read_text())}
    there = {f"road/{path.name}" for path in (PROJECT / "native" / "road").glob("*.c")}
    assert sorted(there - named) == []


def test_the_table_of_the_c_side_has_every_file() -> None:
    """native/NATIVE.md begins with who decides what."""
    named = set(NAMED.findall((PROJECT / "native" / "NATIVE.md").read_text().split("\n## ")[0]))
    assert {path.name for path in (PROJECT / "native").glob("*/*.[ch]")} <= named


@pytest.mark.parametrize("floor", ["codec", "core", "metadata", "ports", "storage", "host"])
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


# "PAGE.md, 7", "PAGE.md section 7", "PAGE.md (section 7)", "PAGE.md, "Heading"": in text whose lines are joined.
SECTION = re.compile(
    r'\b(?P<page>[A-Z]{4,})\.md(?:`|\]\([^)]*\))?,? \(?(?:(?:sections? )?(?P<number>\d+)\b|"(?P<heading>[A-Z][^"\n]*)")'
)
HEADING = re.compile(r"^#{2,4} (?:(?P<number>\d+)\.? )?(?P<heading>.*)$", re.M)


def cited_sections(text: str) -> list[tuple[str, str]]:
    """Page, and what of it is cited: its number, or its heading."""
    joined = re.sub(r"\s*\n[\s#*/]*", " ", text)
    return [(found["page"], found["number"] or found["heading"]) for found in SECTION.finditer(joined)]


def test_every_section_that_is_cited_is_there() -> None:
    """By its number, or by its heading."""
    pages = {
        page.stem: {part for found in HEADING.finditer(page.read_text()) for part in found.groups() if part}
        for page in PAGES
    }
    sources = [
        path
        for folder in ("embedbk", "native", "tests", "transports", "benchmarks")
        for path in sorted((PROJECT / folder).rglob("*"))
        if path.suffix in (".py", ".c", ".h", ".md") and path != Path(__file__)
    ]
    found = [(path, *cited) for path in sources for cited in cited_sections(path.read_text())]
    assert len(found) > 40
    missing = [
        f"{path.relative_to(PROJECT)}: {page}.md, {part}"
        for path, page, part in found
        if page in pages and part not in pages[page]
    ]
    assert not missing, "no such section: " + "; ".join(missing)


def test_a_section_that_is_not_there_is_found_missing() -> None:
    """The check checks itself."""
    text = 'a (native/SHORTCUTS.md,\n    # "The wait"), WIRE.md 3; RAFT.md, section 7'
    assert cited_sections(text) == [("SHORTCUTS", "The wait"), ("WIRE", "3"), ("RAFT", "7")]
