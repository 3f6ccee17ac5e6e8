"""Short calls into C keep the GIL (native/base/gil.h): no other thread gets a turn in the middle of the host's work."""

from __future__ import annotations

import gc
import operator
import re
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from embedbk._native import ffi, lib
from embedbk.codec.packer import Packer

NATIVE = Path(__file__).parents[2] / "native"


@pytest.fixture
def turns() -> Iterator[list[int]]:
    """turns[0] counts on whenever another thread has the GIL; it asks for it without end."""
    count, is_done = [0], threading.Event()

    def take_turns() -> None:
        while not is_done.is_set():
            count[0] += 1

    interval = sys.getswitchinterval()
    other = threading.Thread(target=take_turns)
    other.start()
    sys.setswitchinterval(1e-6)
    gc.disable()  # It calls Python code (hypothesis watches it), which takes breaks of its own.
    yield count
    gc.enable()
    sys.setswitchinterval(interval)
    is_done.set()
    other.join()


def turns_during(call: Callable[[], object], turns: list[int]) -> int:
    """Turns of the other thread while call runs 20,000 times in a loop of C, which never gives the GIL away itself."""
    seen = list(map(operator.call, [turns.copy, *[call] * 20_000, turns.copy]))
    before, after = seen[0], seen[-1]
    assert isinstance(before, list)
    assert isinstance(after, list)
    return int(after[0] - before[0])


def short_calls() -> dict[str, Callable[[], object]]:
    packer = Packer(7)
    packer.append(b"entry")
    frame = packer.seal()
    assert frame is not None
    body = ffi.from_buffer(frame.body)
    facts = ffi.new("struct ebk_frame_facts *")
    return {
        "crc32c": partial(lib.ebk_crc32c, 0, body, len(body)),
        "scan": partial(lib.ebk_frame_scan, body, len(body), facts),
        "append": partial(packer.append, b"entry"),
        "append_many": partial(packer.append_many, [b"one", b"two"]),
        "seal": super(Packer, packer).seal,
        "set_lac": partial(packer.set_lac, 0, 5),
    }


@pytest.mark.parametrize("name", sorted(short_calls()))
def test_another_thread_gets_no_turn(turns: list[int], name: str) -> None:
    call = short_calls()[name]
    for _ in range(3):
        assert turns_during(call, turns) == 0


def test_another_thread_gets_turns_where_the_gil_is_given_away(turns: list[int]) -> None:
    """The test above can fail: a call without the mark lets the other thread in."""
    packer = Packer(7)
    call = partial(lib.ebk_packer_stop, ffi.cast("struct ebk_packer *", packer._address))
    while turns_during(call, turns) == 0:
        pass


def test_another_thread_gets_turns_while_very_many_entries_without_a_byte_are_appended(
    turns: list[int],
) -> None:
    """They take time, too, and the packer's mutex: all of them at once would keep the host waiting."""
    packer, given = Packer(7), [b""] * 200_000
    for _ in range(50):
        before, _taken, after = map(
            operator.call, [turns.copy, partial(packer.append_many, given), turns.copy]
        )
        if after[0] > before[0]:
            return
        while (frame := packer.seal()) is not None:
            packer.release(frame)
    raise AssertionError("no other thread had a turn")


def test_every_mark_is_one_that_the_build_can_read() -> None:
    """A mark that build_native.py does not see would be silently without effect."""
    for header in NATIVE.glob("*/*.h"):
        text = header.read_text()
        marks = len(re.findall(r"^EBK_SHORT\b", text, re.MULTILINE))
        assert marks == len(re.findall(r"\bEBK_SHORT\s+[\w\s*]*?\b(ebk_\w+)\(", text)), header.name
