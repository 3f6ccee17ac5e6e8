"""Two processes that claim one identity: a bookie's directories copied, and both started (P7.9).

A name of a world is the bookie that the cluster knows; its twin runs beside it, at another place and endpoint, and must
serve no client. Once the list of bookies names the twin's start, the two change places: from then on it is the bookie,
started on what its disk has, and the process before is the twin. The plan decides when, and for which bookie.

Kept inside the promise: what a copy of the present start lacks is not known (P7.9), so a twin that would have to be
believed without that ends first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from embedbk.codec.bookie_fields import Status
from embedbk.codec.messages import ErrorAnswer
from embedbk.codec.registration import BOOKIES_PREFIX, decode_registration
from embedbk.core.bookie_words import LossFound, Reply
from embedbk.testing.bookie_processes import run_bookie, tell_started
from embedbk.testing.disks import BookieDisk
from embedbk.testing.process_names import bookie_of, twin_of
from embedbk.testing.violation import Violation

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["Twins"]


@dataclass(slots=True)
class _Twin:
    disk: BookieDisk
    copied: tuple[bytes, int]  # Start of the bookie when its disk was copied, and how much was durable.
    is_less: bool = False  # It found out that it has less than the cluster knows: limbo came first.
    is_before: bool = False  # It is the process whose place was taken.


class Twins:
    """The twins of one world, by the bookie's name: one at a time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._twins: dict[str, _Twin] = {}

    def __contains__(self, bookie: str) -> bool:
        return bookie in self._twins

    def any(self) -> bool:
        return bool(self._twins)

    def disk(self, name: str) -> BookieDisk | None:
        twin = self._twins.get(bookie_of(name)) if bookie_of(name) != name else None
        return None if twin is None else twin.disk

    # Called by faults and tests.

    def copy(self, bookie: str) -> None:
        """Copy the directories of a bookie as they are now; `start` runs a process on them."""
        disk = self._world.disks[bookie]
        storage = disk.storage
        copied = (b"", 0) if storage is None else (storage.starts.id, storage.durable())
        self._twins[bookie] = _Twin(disk.copy(), copied)
        self._world.tell("on_disk_copied", bookie)

    def start(self, bookie: str) -> None:
        """Run the process that has the other place, if it does not run."""
        name = twin_of(bookie)
        if bookie in self._twins and name not in self._world.nodes:
            run_bookie(self._world, name, self._twins[bookie].disk)

    def end(self, bookie: str) -> None:
        """Kill the process at the other place; its directories are gone."""
        twin = self._twins.get(bookie)
        if twin is None:
            return
        self.look(bookie)
        if twin_of(bookie) in self._world.nodes:
            self._world.crash(twin_of(bookie))
        twin.disk.close()
        del self._twins[bookie]

    def end_all(self) -> None:
        for bookie in list(self._twins):
            self.end(bookie)

    def look(self, bookie: str) -> None:
        """Was the twin refused?"""
        node = self._world.nodes.get(twin_of(bookie))
        if node is not None and node.registering.is_foreign:
            self._world.sometimes["clone refused"] += 1

    # Called by the world.

    def on_trouble(self, name: str, *, stops: bool = True) -> None:
        """This process is about to stop or to pause: a twin that does not know what it has done cannot take its
        place. stops: what it has written and not synced may be on its disk from then on."""
        twin = self._twins.get(name)
        if twin is None or twin.is_before or name not in self._world.nodes:
            return
        storage = self._world.nodes[name].storage
        has_done = storage.durable() != twin.copied[1] or (stops and self._world.disks[name].is_pending())
        if storage.starts.id == twin.copied[0] and has_done:
            self.end(name)

    def on_resumed(self, name: str) -> None:
        """This process continues. A twin that found it silent and did not take its place yet would take it from a
        living one, without a second question."""
        twin, node = self._twins.get(name), self._world.nodes.get(twin_of(name))
        if twin is not None and not twin.is_before and node is not None and node.registering.has_found_nobody:
            self.end(name)

    def on_registration(self, key: str, value: bytes | None) -> None:
        """The list of bookies is committed as it is now."""
        bookie = key.removeprefix(BOOKIES_PREFIX)
        twin = self._twins.get(bookie)
        if twin is None:
            return
        if value is None:
            self.on_trouble(bookie)  # A place that no process has is taken without a question.
            return
        node = self._world.nodes.get(twin_of(bookie))
        registration = decode_registration(value, bookie)
        if node is not None and registration.start == node.storage.starts.id:
            self._change_places(bookie, twin)

    def on_step(self, name: str, core: Any, event: Any, effects: Sequence[Any]) -> None:
        """P7.9: a process that has not taken its place in the list of bookies serves no client."""
        twin = self._twins.get(bookie_of(name))
        if twin is None or twin.is_before:
            return  # The invariants of clients judge what it still sends over its old links.
        if type(event) is LossFound:
            twin.is_less = True
            self._world.tell("on_copy_doubted", bookie_of(name))
        for effect in effects:
            is_answer = type(effect) is Reply and type(effect.control) is not ErrorAnswer
            if is_answer and getattr(effect.control, "status", None) != Status.BUSY:
                raise Violation("P7.9", f"a copy of {bookie_of(name)} that has no place in the list serves")

    def _change_places(self, bookie: str, twin: _Twin) -> None:
        world, name = self._world, twin_of(bookie)
        what = (
            "stopped bookie replaced by a clone"
            if bookie in world.paused
            else "crashed bookie replaced by a clone"
        )
        if bookie not in world.nodes or bookie in world.paused:
            world.sometimes[what] += 1
        world.note(f"{bookie} is the process on the copy from now on")
        if twin.is_less:
            world.tell("on_disk_doubted", bookie)
        if bookie in world.nodes:
            world.tell("on_stopped", bookie)
        world.tell("on_places_changed", bookie)
        world.disks[bookie], before = twin.disk, world.disks[bookie]
        is_less, twin.disk = twin.is_less, before
        twin.is_less, twin.is_before = False, not twin.is_before
        world.change_places(bookie, name)
        tell_started(world, bookie, may_have_lost=is_less)
