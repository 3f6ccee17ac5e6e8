"""Who is killed and stopped, when and for how long: drawn from a seed, one fault behind another in each of some lanes.

A fault begins, lasts and ends by itself: who was killed is started again, who was stopped goes on. No disk is lost, so
the protocol promises to outlive all of it.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from embedbk.cluster import Cluster, environment
from embedbk.testing.log_events import LogTaken, events_in

__all__ = ["Fleet", "Lane", "lanes_of"]

PROJECT = Path(__file__).parents[2]
ROLES = {
    "w1": "write",
    "w2": "write",
    "w3": "write",
    "r1": "read",
    "r2": "read",
    "c1": "consume",
    "c2": "consume",
    "t1": "cut",
    "f1": "recover",
}
WRITERS = [name for name, role in ROLES.items() if role == "write"]
HAPPENS_S = (
    20.0  # Others take the log over from an owner that is stopped, and it is told something behind its stop.
)
WORDS_MAX = 4000  # Of what a process wrote to its stderr, for a message.


class Fleet:
    """The processes that use the log, each with a history of its own, and a new one when it is started again."""

    def __init__(self, url: str, seed: int, directory: Path) -> None:
        self._url, self._seed, self._directory = url, seed, directory
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._incarnations: Counter[str] = Counter()

    def start(self, name: str) -> None:
        incarnation = self._incarnations[name]
        self._incarnations[name] += 1
        command = [sys.executable, "-m", "tests.histories.worker", self._url, ROLES[name], name]
        command += [str(incarnation), str(self._seed), str(self._directory)]
        with (self._directory / f"{name}.{incarnation}.stderr").open("wb") as words:
            self._running[name] = subprocess.Popen(
                command, cwd=PROJECT, env=environment(), stdin=subprocess.PIPE, stderr=words
            )

    def send(self, name: str, number: signal.Signals) -> None:
        self._running[name].send_signal(number)

    def kill(self, name: str) -> None:
        """Another is started by `start`."""
        process = self._running.pop(name)
        process.kill()
        process.wait()
        assert process.stdin is not None
        process.stdin.close()

    def owner(self) -> str | None:
        """Which writer that runs took the log last, as far as its history says by now; None when it does not append."""
        epoch, owner = 0, None
        for name in WRITERS:
            said = self.said(name)
            begins = said.rfind(b'["taken"')
            appends = said[said.rfind(b"\n", 0, -1) + 1 :].startswith((b'["append"', b'["told"'))
            for event in events_in(said[begins : said.find(b"\n", begins) + 1]) if begins >= 0 else ():
                if isinstance(event, LogTaken) and event.epoch > epoch:
                    epoch, owner = event.epoch, name if appends else None
        return owner

    def said(self, name: str) -> bytes:
        """The history of a process that runs, by whole lines."""
        path = self._directory / f"{name}.{self._incarnations[name] - 1}.history"
        said = path.read_bytes() if name in self._running and path.exists() else b""
        return said[: said.rfind(b"\n") + 1]

    def check(self) -> None:
        """Nobody ends unasked."""
        for name, process in self._running.items():
            assert process.poll() is None, self._words(name, process)

    def _words(self, name: str, process: subprocess.Popen[bytes]) -> str:
        path = self._directory / f"{name}.{self._incarnations[name] - 1}.stderr"
        said = path.read_text("utf-8", "replace")[-WORDS_MAX:]
        return f"{name} ended with {process.returncode}, and said: {said}"

    def end(self) -> None:
        """Ask all to end, and wait; who hangs ends itself, and says where."""
        for process in self._running.values():
            process.send_signal(signal.SIGCONT)
            assert process.stdin is not None
            process.stdin.close()
        for name, process in self._running.items():
            assert process.wait() == 0, self._words(name, process)
        self._running.clear()

    def kill_all(self) -> None:
        for name in list(self._running):
            self.kill(name)


Fault = tuple[
    str, float, Callable[[], None], Callable[[], None]
]  # What, for how long, how it begins and ends.


class Lane:
    """One fault at a time, then a pause."""

    def __init__(
        self, chance: random.Random, pause_s: float, draw: Callable[[random.Random], Fault | None]
    ) -> None:
        self._chance, self._pause_s, self._draw = chance, pause_s, draw
        self._ends: Callable[[], None] | None = None
        self.due_s = time.monotonic() + self._chance.uniform(0, pause_s)
        self.met: Counter[str] = Counter()

    def step(self) -> None:
        """What is due by now."""
        if self._ends is not None:
            self.heal()
        else:
            fault = self._draw(self._chance)
            if fault is not None:
                what, last_s, begins, self._ends = fault
                begins()
                self.met[what] += 1
                self.due_s = time.monotonic() + last_s
                return
        self.due_s = time.monotonic() + self._chance.uniform(0, self._pause_s)

    def heal(self) -> None:
        ends, self._ends = self._ends, None
        if ends is not None:
            ends()


def lanes_of(cluster: Cluster, fleet: Fleet, seed: int) -> list[Lane]:
    """Two for the processes that use the log, two for bookies, one for metadata members."""
    busy = set[str]()

    def taken(chance: random.Random, names: Sequence[str]) -> str | None:
        free = [name for name in names if name not in busy]
        if not free:
            return None
        name = chance.choice(free)
        busy.add(name)
        return name

    def user(chance: random.Random) -> Fault | None:
        name = taken(chance, chance.choice([list(ROLES), WRITERS, ["c1", "c2"]]))
        if name is None:
            return None

        def starts() -> None:
            fleet.start(name)
            busy.discard(name)

        def goes_on() -> None:
            fleet.send(name, signal.SIGCONT)
            busy.discard(name)

        if chance.random() < 0.5:
            return f"{ROLES[name]} killed", chance.uniform(0, 1), lambda: fleet.kill(name), starts
        last_s = min(8.0, chance.expovariate(1 / 1.5))
        return f"{ROLES[name]} stopped", last_s, lambda: fleet.send(name, signal.SIGSTOP), goes_on

    def server(kind: str, chance: random.Random, names: Sequence[str]) -> Fault | None:
        name = taken(chance, names)
        if name is None:
            return None

        def starts() -> None:
            cluster.restart(name)
            busy.discard(name)

        def goes_on() -> None:
            cluster.processes[name].send_signal(signal.SIGCONT)
            busy.discard(name)

        last_s = min(8.0, chance.expovariate(1 / 2))
        if chance.random() < 0.5:
            return f"{kind} killed", last_s, lambda: cluster.kill(name), starts
        return f"{kind} stopped", last_s, lambda: cluster.processes[name].send_signal(signal.SIGSTOP), goes_on

    def bookie(chance: random.Random) -> Fault | None:
        fault: Fault | None = None
        if busy.isdisjoint(cluster.bookie_ids):
            draw = owed[0] if owed else chance.choice([forget, swap, swap, None, None])
            fault = draw(chance) if draw is not None else None
            if fault is not None:
                del owed[:1]
        if fault is None and not owed:
            fault = server("bookie", chance, cluster.bookie_ids)
        return fault

    def swap(chance: random.Random) -> Fault:
        """Two bookies are killed, or three; they are there again when the others stand still: what only these have is
        not to be found then, so it must not have been acknowledged to anybody, nor shown. Half of the time members
        stand still, too, so that no ensemble is changed meanwhile; then writers are killed, and others take the log
        over."""
        names, count = chance.sample(cluster.bookie_ids, len(cluster.bookie_ids)), chance.choice([2, 3])
        killed, others = names[:count], names[count:]
        is_blind = busy.isdisjoint(cluster.members) and chance.random() < 0.5
        members = cluster.members if is_blind else ()
        writers = [name for name in WRITERS if is_blind and name not in busy]
        mine = {*names, *members, *writers}
        busy.update(mine)

        def begins() -> None:
            signal_all(members, signal.SIGSTOP)
            for name in killed:
                cluster.kill(name)

        def ends() -> None:
            for name in writers:
                fleet.kill(name)
            signal_all(others, signal.SIGSTOP)
            signal_all(members, signal.SIGCONT)
            for name in killed:
                cluster.restart(name)
            for name in writers:
                fleet.start(name)
            time.sleep(chance.uniform(1, 6))
            signal_all(others, signal.SIGCONT)
            busy.difference_update(mine)

        what = "bookies swapped without members" if is_blind else "bookies swapped"
        return what, chance.uniform(0.2, 2), begins, ends

    def forget(chance: random.Random) -> Fault | None:
        """The log's owner is stopped, and others take the log over. All bookies are killed and started again. The owner
        goes on when no member can tell it of that: what bookies wrote down of the fence keeps it from appending."""
        owner = fleet.owner()
        if owner is None or not busy.isdisjoint({owner, *cluster.members}):
            return None
        mine = {owner, *cluster.bookie_ids, *cluster.members}
        busy.update(mine)

        def ends() -> None:
            wait_for(lambda: fleet.owner() not in (None, owner))
            for name in cluster.bookie_ids:
                cluster.kill(name)
            with ThreadPoolExecutor(len(cluster.bookie_ids)) as threads:
                list(threads.map(cluster.restart, cluster.bookie_ids))
            signal_all(cluster.members, signal.SIGSTOP)
            before = len(fleet.said(owner))
            fleet.send(owner, signal.SIGCONT)
            wait_for(lambda: b'["told"' in fleet.said(owner)[before:])
            time.sleep(chance.uniform(0.5, 2))
            signal_all(cluster.members, signal.SIGCONT)
            busy.difference_update(mine)

        what = "bookies started again beside an owner that was stopped"
        return what, 0.0, lambda: fleet.send(owner, signal.SIGSTOP), ends

    def wait_for(is_so: Callable[[], bool]) -> None:
        """A fault is not what it is meant to be where this is over first, and harms nobody."""
        until_s = time.monotonic() + HAPPENS_S
        while not is_so() and time.monotonic() < until_s:
            time.sleep(0.05)

    def signal_all(names: Sequence[str], number: signal.Signals) -> None:
        for name in names:
            cluster.processes[name].send_signal(number)

    def member(chance: random.Random) -> Fault | None:
        if owed:
            return None
        if chance.random() < 0.8:
            return server("member", chance, cluster.members)
        if not busy.isdisjoint(cluster.members):
            return None

        def stand_still() -> None:
            """Nobody is started meanwhile, as that needs members."""
            signal_all(cluster.members, signal.SIGSTOP)
            time.sleep(chance.uniform(0.1, 4))
            signal_all(cluster.members, signal.SIGCONT)

        return "all members stopped", 0.0, stand_still, lambda: None

    # These come before any other fault of bookies and members, so that a short history has both.
    owed = [forget, swap]
    draws = [(user, 1.5), (user, 1.5), (bookie, 4.0), (bookie, 8.0), (member, 6.0)]
    return [
        Lane(random.Random(f"{seed} {number}"), pause_s, draw) for number, (draw, pause_s) in enumerate(draws)
    ]
