"""A public class name stands for one thing in the whole house; those that stand for more are listed, and get fewer."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

PROJECT = Path(__file__).parents[1]
# The same thing with other words: awaited (`aio`), or in memory for tests of users (`testing.Cluster`).
FACES = {
    "Cluster",
    "Consumer",
    "Cursor",
    "LedgerReader",
    "LedgerWriter",
    "Lock",
    "Log",
    "LogReader",
    "LogWriter",
}
# Each stands for two things or more still. A name leaves this list; none is added.
LEFT = {
    "Client",
    "CloseRequested",
    "Entry",
    "Journal",
    "JournalFailed",
    "LinkLost",
    "Member",
    "Message",
    "Node",
    "Patience",
    "Quorum",
    "Received",
    "Reply",
    "RequestReceived",
    "Send",
    "Tick",
}


def defined(sources: dict[str, str]) -> dict[str, list[str]]:
    """Of each public class name, the modules that define a class of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, text in sources.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def ours() -> dict[str, str]:
    """Every module of the library, by its path; `embedbk/transports` is a link to `transports`."""
    return {
        str(path.relative_to(PROJECT)): path.read_text()
        for folder in ("embedbk", "transports")
        for path in sorted((PROJECT / folder).rglob("*.py"))
        if not path.relative_to(PROJECT).match("embedbk/transports/*")
    }


def ambiguous(sources: dict[str, str]) -> dict[str, list[str]]:
    return {name: paths for name, paths in defined(sources).items() if len(paths) > 1}


def test_a_class_name_stands_for_one_thing() -> None:
    found = ambiguous(ours())
    fresh = {name: paths for name, paths in found.items() if name not in LEFT | FACES}
    assert not fresh, f"two classes of one name: {fresh}"


def test_a_name_that_stands_for_one_thing_leaves_the_list() -> None:
    found = ambiguous(ours())
    assert sorted((LEFT | FACES) - set(found)) == [], "these stand for one thing: take them off the list"


def test_a_second_class_of_a_name_is_found() -> None:
    """The check checks itself."""
    both = {"a.py": "class Frame:\n    pass\n", "b.py": "class Frame:\n    pass\nclass _Frame:\n    pass\n"}
    assert ambiguous(both) == {"Frame": ["a.py", "b.py"]}
