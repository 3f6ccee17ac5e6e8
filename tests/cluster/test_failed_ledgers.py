"""Bookies of a log's ledger are killed under load: no append fails, nothing is doubled, order is kept (P8.2)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.codec.ledger_metadata import Begun
from embedbk.config import Settings
from tests.faces.test_rolling import listed

pytestmark = pytest.mark.xdist_group("processes")

# A ledger fails after a second without its ack quorum; bookies that are started again have a minute.
SETTINGS = Settings(
    journal_file_bytes=2 << 20, open_timeout_s=60.0, quorum_wait_s=1.0, operation_timeout_s=120.0
)


class Load:
    """Callers of each kind, each of which numbers what it appends."""

    def __init__(self, writer: embedbk.LogWriter) -> None:
        self.told: list[list[int]] = [[] for _ in range(4)]
        self.failed: list[BaseException] = []
        self._is_over = threading.Event()
        calls: list[Callable[[list[bytes]], object]] = [
            lambda texts: [writer.append(text) for text in texts],
            lambda texts: [writer.append(text, timeout_s=300) for text in texts],
            writer.append_many,
            lambda texts: [ticket.result() for ticket in [writer.append_nowait(text) for text in texts]],
        ]
        self._threads = [
            threading.Thread(target=self._run, args=(number, call)) for number, call in enumerate(calls)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, number: int, call: Callable[[list[bytes]], object]) -> None:
        told = self.told[number]
        try:
            while not self._is_over.is_set():
                numbers = range(len(told), len(told) + 7)
                call([b"%d %d" % (number, each) for each in numbers])
                told.extend(numbers)
        except BaseException as error:  # noqa: BLE001  Shown by the test.
            self.failed.append(error)

    def goes_on(self, within_s: float = 240.0) -> bool:
        """Whether each caller is told of more, or one has failed."""
        before = [len(told) for told in self.told]
        for _ in range(int(within_s * 20)):
            if self.failed or all(
                len(told) > count + 14 for told, count in zip(self.told, before, strict=True)
            ):
                return True
            self._is_over.wait(0.05)
        return False

    def end(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()


@pytest.mark.parametrize("bookies", [6, 3])
def test_two_of_three_are_killed_under_load(bookies: int) -> None:
    """P8.2, P4.5. Three others are there: they take the seats, or the next ledger does. Nobody is: the ledger fails,
    and its log goes on when the bookies are back."""
    with (
        Cluster(bookies=bookies, settings=SETTINGS) as cluster,
        embedbk.open(cluster.url, settings=SETTINGS) as bk,
    ):
        writer = bk.log("orders").writer(roll=embedbk.Roll(bytes=None))
        first = writer.ledger_id
        load = Load(writer)
        try:
            assert load.goes_on()
            members = writer._appending.writing.metadata.fragments[-1].members
            victims = [member.bookie_id for member in members[:2]]
            for victim in victims:
                cluster.kill(victim)
            if bookies == 3:
                failing = writer._appending.writing
                for _ in range(2400):
                    if failing.failure is not None:
                        break
                    load._is_over.wait(0.05)
                assert failing.failure is not None
                for victim in victims:
                    cluster.restart(victim)
            assert load.goes_on()
            # And once more, by somebody who recovers the ledger by its id.
            now = writer.ledger_id
            with bk.open_ledger(now, recover=True):
                pass
            assert load.goes_on()
        finally:
            load.end()
        assert not load.failed
        assert writer.ledger_id not in (first, now)
        writer.close()
        segments = listed(bk, "orders")
        assert {each.begun for each in segments[1:]} == {Begun.FAILURE}
        read: list[list[int]] = [[] for _ in range(4)]
        offsets = []
        for entry in bk.log("orders").read():
            number, count = bytes(entry).split()
            read[int(number)].append(int(count))
            offsets.append(entry.offset)
        assert read == load.told
        assert offsets == list(range(len(offsets)))
