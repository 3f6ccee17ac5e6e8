"""RAFT.md and the code say the same: files, bounds, sizes."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from embedbk.metadata import quorum
from embedbk.metadata.quorum import Policy, sizes_of
from tests.quorum.free_messages import FreeBounds
from tests.quorum.small_world import Bounds
from tests.quorum.test_free_messages import LARGE as FREE_LARGE
from tests.quorum.test_free_messages import LARGER as FREE_LARGER
from tests.quorum.test_free_messages import WHOLE as FREE_WHOLE
from tests.quorum.test_small_worlds import LARGE, WHOLE

FOLDER = Path(quorum.__file__).parent
PAGE = (FOLDER / "RAFT.md").read_text()


def rows(head: str) -> list[list[str]]:
    lines = PAGE.split(head + "\n")[1].splitlines()[1:]
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_page_names_files_that_are_there() -> None:
    for row in rows("| file | decides | touches |"):
        assert (FOLDER / row[0].strip("`")).exists(), row


def test_bounds_have_the_values_of_the_page() -> None:
    for name, value, *_ in rows("| bound | value | who hits it | what happens |"):
        module, constant = name.split(".")
        assert getattr(import_module(f"embedbk.metadata.{module}"), constant) == int(value), name


def test_policies_have_the_sizes_of_the_page() -> None:
    for name, *cells, _ in rows("| policy | n=3 | n=4 | n=5 | n=7 | price |"):
        for count, cell in zip((3, 4, 5, 7), cells, strict=True):
            sizes = sizes_of(Policy(name.strip("`")), count)
            assert cell.split(" (")[0] == f"{sizes.commit}, {sizes.elect}", (name, count)
            assert sizes.forgetful == (int(cell[-2]) if "(" in cell else 0), (name, count)


def test_every_small_world_that_is_explored_stands_on_the_page() -> None:
    told = {
        Bounds(int(voters), Policy(policy), int(terms), int(entries), int(crashes), int(forgets))
        for voters, policy, terms, entries, crashes, forgets, *_ in rows(
            "| voters | policy | terms | entries | crashes | lost memories | states | depth |"
        )
    }
    assert told == {*WHOLE, *LARGE}


def test_every_world_with_free_messages_stands_on_the_page() -> None:
    head = "| voters | policy | terms | entries | crashes | heartbeats | syncs are steps | states | depth |"
    told = [
        (
            FreeBounds(
                int(n), Policy(policy), int(terms), int(entries), int(crashes), int(beats), syncs == "yes"
            ),
            states.split(",")[-1] == " whole",
        )
        for n, policy, terms, entries, crashes, beats, syncs, states, _ in rows(head)
    ]
    assert told == [(FREE_WHOLE, True), (FREE_LARGER, True), *((bounds, False) for bounds in FREE_LARGE)]
