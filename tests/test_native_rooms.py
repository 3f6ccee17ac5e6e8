"""The folders of native/ and the files in them lean on each other one way only (native/NATIVE.md)."""

from __future__ import annotations

import re
from pathlib import Path

NATIVE = Path(__file__).parents[1] / "native"
ROOMS = ("base", "io", "wire", "journal", "store", "road", "python")  # Each leans on those before it.
INCLUDED = re.compile(r'^#include "((?:\w+/)?\w+\.h)"', re.MULTILINE)
DEFINED = re.compile(r"^[a-z][\w\s*]*?\b(ebk_\w+)\([^;{]*\)\n\{", re.MULTILINE)
CALLED = re.compile(r"\b(ebk_\w+)\(")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def room_of(path: str) -> str:
    return path.split("/")[0]


def texts() -> dict[str, str]:
    """By path in native/, without comments."""
    return {
        str(path.relative_to(NATIVE)): COMMENT.sub("", path.read_text())
        for path in sorted(NATIVE.glob("*/*.[ch]"))
    }


def leans(found: dict[str, str]) -> dict[str, set[str]]:
    """Of each source, the sources whose functions it calls; of each header, the headers that it includes."""
    home = {
        name: path for path, text in found.items() if path.endswith(".c") for name in DEFINED.findall(text)
    }
    called = {
        path: {home[name] for name in CALLED.findall(text) if name in home} - {path}
        for path, text in found.items()
        if path.endswith(".c")
    }
    included = {path: set(INCLUDED.findall(text)) for path, text in found.items() if path.endswith(".h")}
    return called | included


def circle(edges: dict[str, set[str]]) -> list[str]:
    """One, as the files on it in order; empty: there is none."""
    done: set[str] = set()

    def walk(path: str, trail: list[str]) -> list[str]:
        if path in trail:
            return [*trail[trail.index(path) :], path]
        if path in done:
            return []
        for other in sorted(edges.get(path, ())):
            if found := walk(other, [*trail, path]):
                return found
        done.add(path)
        return []

    return next((found for path in sorted(edges) if (found := walk(path, []))), [])


def test_a_file_includes_only_what_stands_in_its_room_or_below() -> None:
    wrong = [
        f"{path} includes {header}"
        for path, text in texts().items()
        for header in INCLUDED.findall(text)
        if ROOMS.index(room_of(header)) > ROOMS.index(room_of(path))
    ]
    assert not wrong


def test_no_two_files_lean_on_each_other() -> None:
    edges = leans(texts())
    assert sum(map(len, edges.values())) > 200, "the text is not understood any more"
    assert not circle(edges)


def test_a_circle_is_found() -> None:
    """The check checks itself: a call back up, and two headers that include each other."""
    up = {
        "base/a.c": "int ebk_a(void)\n{\n return ebk_b();\n}\n",
        "io/b.c": "int ebk_b(void)\n{\n return ebk_a();\n}\n",
    }
    assert circle(leans(up)) == ["base/a.c", "io/b.c", "base/a.c"]
    both = {"io/a.h": '#include "io/b.h"\n', "io/b.h": '#include "io/a.h"\n'}
    assert circle(leans(both)) == ["io/a.h", "io/b.h", "io/a.h"]


def test_the_page_draws_the_rooms_as_they_lean() -> None:
    page = (NATIVE / "NATIVE.md").read_text()
    assert " ◀─ ".join(ROOMS) in page
    assert {path.name for path in NATIVE.iterdir() if path.is_dir() and path.name != "__pycache__"} == set(
        ROOMS
    )
