"""P8.14: freed ledgers come back in a whole cluster in virtual time, beside workers of repairs and collectors."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from embedbk.client.archiving import ArchiveLock, change_archive, free_ledger
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.restoring_in_place import restore_ledger_in_place
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.frame import Frame
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.codec.log_archives import ArchivePlace
from embedbk.core.archiving import Claim, Copied, Verified
from embedbk.core.collector import CollectorOptions
from embedbk.core.freeing import FreeTerms
from embedbk.errors import EmbedbkError, LockLost, NoSuchLedger, StorageError
from embedbk.host.signal import Signal
from embedbk.testing.archived import frames_in_memory
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.world import World
from tests.repair.healed import Healed, healed

PLACE = ArchivePlace(b"in memory" + bytes(7), "in memory")
PAYLOADS = [b"%d" % number for number in range(12)]
SOON = CollectorOptions(interval_ns=1_000_000_000)
COLLECTED_S = 4.0  # Two rounds of each collector, and more.


class SlowFiles:
    """Gives a frame each so many seconds, as a disk that hangs."""

    def __init__(self, world: World, frames: list[Frame], every_s: float) -> None:
        self.signal, self.is_over = Signal(), False
        self._world, self._frames = world, deque(frames)
        self._every_ns = int(every_s * 1e9)
        self._due_ns = world.now_ns + self._every_ns

    def has_news(self) -> bool:
        return self._world.now_ns >= self._due_ns

    def take(self) -> Frame | None:
        self._due_ns = self._world.now_ns + self._every_ns
        return self._frames.popleft() if self._frames else None

    def close(self) -> None:
        """Nothing is held."""


class Scene:
    """A log whose first ledger is freed; `job` reads its files at the pace that a test asks for."""

    def __init__(self, it: Healed) -> None:
        self.it, self.world, self.cluster = it, it.world, it.cluster
        self.world.collector = SOON
        for name in self.world.disks:
            self.cluster.crash(name)
            self.cluster.restart(name)
        assert self.cluster.run_until(lambda: len(self.cluster.client().bookies()) == len(self.world.disks))
        self.cluster.run_for(1.0)
        with self.cluster.log("orders").writer() as writer:
            writer.append_many(PAYLOADS)
            self.ledger_id = writer.ledger_id
        runtime = self.cluster.client()._runtime
        reading = LogReading(runtime, "orders", Password(b""))
        self.log_id = str(run_blocking(reading.log_id(), "test"))
        with self.cluster.client().open_ledger(self.ledger_id) as ledger:
            frames = run_blocking(self._frames(ledger._reading), "test")
        content = b"".join(bytes(frame.body) for frame in frames)
        self.size = len(content)
        sha256 = hashlib.sha256(content).digest()
        self.world.archived[self.log_id, self.ledger_id, sha256] = content
        self.world.tell("on_archived", self.log_id, self.ledger_id, sha256, content)
        with self.locked(runtime) as epoch:
            for step in (Claim(100), Copied(sha256)):
                run_blocking(change_archive(runtime, self.log_id, self.ledger_id, step, epoch), "test")
        with self.locked(runtime) as epoch:
            step = Verified(sha256)
            run_blocking(change_archive(runtime, self.log_id, self.ledger_id, step, epoch), "test")
            terms = FreeTerms(sha256, PLACE, len(PAYLOADS), 0, "test")
            run_blocking(free_ledger(runtime, self.log_id, self.ledger_id, terms, epoch), "test")

    @staticmethod
    async def _frames(reading: object) -> list[Frame]:
        return [located.frame async for located in reading.frames(0, len(PAYLOADS) - 1)]  # type: ignore[attr-defined]

    @contextmanager
    def locked(self, runtime: Runtime) -> Iterator[int]:
        lock = ArchiveLock(runtime, self.log_id)
        epoch = run_blocking(lock.acquire(60.0), "test")
        try:
            yield epoch
        finally:
            lock.let_go()

    def reads(self, runtime: Runtime, every_s: float = 0.0, harm: bytes | None = None) -> None:
        """From now on this client's files come so slowly."""

        def read(metadata: LedgerMetadata, first: int, last: int) -> SlowFiles:
            frames = frames_in_memory(self.world, metadata, first, last)
            return SlowFiles(self.world, frames[:-1] if harm is not None else frames, every_s)

        runtime.read_archived = read  # type: ignore[method-assign]

    def come_back(
        self, client: str = "job", every_s: float = 0.0, bytes_per_s: float | None = None
    ) -> LedgerMetadata:
        runtime = self.cluster.client(client)._runtime
        self.reads(runtime, every_s)
        with self.locked(runtime) as epoch:
            steps = restore_ledger_in_place(
                runtime, self.log_id, self.ledger_id, epoch, Password(b""), bytes_per_s
            )
            return run_blocking(steps, "test")

    def holders(self) -> list[str]:
        """Bookies that hold all of it."""
        found = []
        for name, disk in self.world.disks.items():
            if disk.storage is not None and name in self.world.nodes:
                read = disk.storage.read(self.ledger_id, 0, len(PAYLOADS) - 1, 1 << 20)
                found += [name] * (read.frame is not None and read.frame.entry_count == len(PAYLOADS))
        return found

    def is_read(self) -> bool:
        self.reads(self.cluster.client("reader")._runtime)
        return [bytes(each) for each in self.cluster.log("orders", client="reader").read()] == PAYLOADS


def test_a_ledger_comes_back_beside_workers_and_collectors_however_slow_its_files_are() -> None:
    """The mark is put again while files hang: no worker ends it, no collector drops a copy, nothing begins anew."""
    with healed() as it:
        it.repairer()
        scene = Scene(it)
        it.cluster.run_for(COLLECTED_S)
        assert scene.holders() == [] and it.metadata(scene.ledger_id).freed is not None
        began_s = it.cluster.now_s
        back = scene.come_back(every_s=13.0)
        assert 40.0 < it.cluster.now_s - began_s < 60.0  # Three frames and their end, once.
        assert back.freed is None and it.named(scene.ledger_id) == set(scene.holders()) and not it.marks()
        it.cluster.run_for(COLLECTED_S)
        assert set(scene.holders()) == it.named(scene.ledger_id) and scene.is_read()


def test_a_rate_is_kept_and_the_mark_stays_meanwhile() -> None:
    """ARCHIVE.md: "bounds what is read and copied in a second", and "while a job waits for that its mark stays"."""
    with healed() as it:
        it.repairer()
        scene = Scene(it)
        it.cluster.run_for(COLLECTED_S)
        began_s = it.cluster.now_s
        back = scene.come_back(bytes_per_s=scene.size / 60.0)
        assert 60.0 <= it.cluster.now_s - began_s < 90.0
        assert back.freed is None and it.named(scene.ledger_id) == set(scene.holders()) and not it.marks()
        assert scene.is_read()


@pytest.mark.parametrize("fate", ["it dies", "it stands still"])
def test_a_job_that_is_gone_leaves_a_mark_that_a_worker_ends_and_copies_that_go(fate: str) -> None:
    """When all is copied and nothing is published. One that goes on then publishes nothing; the next job brings the
    ledger back (I35 and I36 are asked after each step)."""
    with healed() as it:
        it.repairer()
        scene = Scene(it)
        it.cluster.run_for(COLLECTED_S)
        runtime = it.cluster.client("job")._runtime
        scene.reads(runtime)
        epoch = run_blocking(ArchiveLock(runtime, scene.log_id).acquire(1.0), "test")
        ended: list[EmbedbkError] = []

        async def job() -> None:
            try:
                await restore_ledger_in_place(runtime, scene.log_id, scene.ledger_id, epoch, Password(b""))
            except EmbedbkError as error:
                ended.append(error)

        it.world.spawn("job", awaited(runtime, job()))
        assert it.cluster.run_until(lambda: len(scene.holders()) == 3)
        (it.cluster.crash if fate == "it dies" else it.cluster.pause)("job")
        assert len(it.marks()) == 1 and it.metadata(scene.ledger_id).freed is not None
        assert it.cluster.run_until(lambda: not it.marks(), 120.0)
        it.cluster.run_for(COLLECTED_S)
        assert scene.holders() == [] and scene.is_read()
        if fate == "it stands still":
            it.cluster.resume("job")
            assert it.cluster.run_until(lambda: bool(ended))
            assert isinstance(ended[0], LockLost) and not it.marks()
        assert it.metadata(scene.ledger_id).freed is not None
        assert scene.come_back("another").freed is None and scene.is_read()


def test_a_bookie_that_is_gone_is_not_waited_for() -> None:
    """It is listed until its session ends; whoever does not take a copy is not chosen again."""
    with healed(bookies=4) as it:
        scene = Scene(it)
        it.cluster.crash("b1")
        back = scene.come_back()
        assert back.freed is None and it.named(scene.ledger_id) == {"b2", "b3", "b4"}
        assert scene.holders() == ["b2", "b3", "b4"] and not it.marks()


def test_files_that_are_not_all_of_it_bring_nothing_back() -> None:
    """A manifest that ends early, say: what was copied goes, and the mark with it at once."""
    with healed() as it:
        scene = Scene(it)
        runtime = it.cluster.client("job")._runtime
        scene.reads(runtime, harm=b"")
        with scene.locked(runtime) as epoch:
            steps = restore_ledger_in_place(runtime, scene.log_id, scene.ledger_id, epoch, Password(b""))
            with pytest.raises(StorageError, match="its files end at entry 9"):
                run_blocking(steps, "test")
        assert it.metadata(scene.ledger_id).freed is not None and not it.marks()


def test_one_that_is_deleted_while_it_comes_back_stays_deleted() -> None:
    """ "Named and left"."""
    with healed() as it:
        scene = Scene(it)
        runtime = it.cluster.client("job")._runtime
        scene.reads(runtime, 3.0)
        with scene.locked(runtime) as epoch:
            steps = restore_ledger_in_place(runtime, scene.log_id, scene.ledger_id, epoch, Password(b""))

            ended: list[NoSuchLedger] = []

            async def job() -> None:
                try:
                    await steps
                except NoSuchLedger as gone:
                    ended.append(gone)

            it.world.spawn("job", awaited(runtime, job()))
            assert it.cluster.run_until(lambda: len(it.marks()) == 1)
            with it.cluster.log("orders").writer() as writer:
                writer.append(b"behind it")
            it.cluster.log("orders").truncate(len(PAYLOADS))
            assert it.cluster.run_until(lambda: bool(ended), 120.0)
        assert not it.marks() and scene.ledger_id not in it.cluster.client().ledgers()
