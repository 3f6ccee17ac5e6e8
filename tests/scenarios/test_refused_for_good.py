"""What the metadata refuses for good is said at once, with what is full, and not asked again without end (P2.2)."""

from __future__ import annotations

import logging
from typing import ClassVar

import pytest

from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import Begun
from embedbk.codec.metadata_messages import Put
from embedbk.config import METADATA_VALUE_BYTES_MAX, Quorum
from embedbk.core.creation import Creation
from embedbk.core.log import LogTakeover
from embedbk.core.log_listing import NewLedger
from embedbk.core.machine import Effect, Event, Handlers, Machine
from embedbk.core.metadata_words import Transact, TransactUnknown
from embedbk.core.vocabulary import Ended, Started
from embedbk.errors import MetadataUnavailable
from embedbk.testing import Cluster


@pytest.mark.parametrize("kind", [Creation, LogTakeover])
def test_a_transaction_that_passes_a_bound_ends_what_asked_for_it(
    kind: type, caplog: pytest.LogCaptureFixture
) -> None:
    """A value beyond its bound, through the real catalog: an error within a second, definite, and no line a time."""
    caplog.set_level(logging.WARNING, logger="embedbk")
    with Cluster(seed=85, bookies=3) as cluster:
        runtime = cluster.client("client")._runtime
        large = bytes(METADATA_VALUE_BYTES_MAX)
        quorum, chance = Quorum(3, 3, 2), runtime.new_chance()
        core: Machine
        if kind is Creation:
            core = Creation(quorum, b"", 0, {"large": large}, runtime.bookies, chance)
        else:
            core = LogTakeover(
                "one",
                large + b"!",
                NewLedger(quorum, b"", 0, Begun.TAKEOVER),
                bytes(16),
                runtime.bookies,
                chance,
            )
        began = cluster.now_s
        with pytest.raises(MetadataUnavailable, match="bytes of value, allowed are 262144") as told:
            run_blocking(runtime.run(core, "a test"), "nothing")
        assert told.value.definite
        assert cluster.now_s - began < 1.0
    assert len(caplog.records) <= 1


class Persistent(Machine):
    """A core that takes every outcome but "done" for one that cannot be told, and asks again."""

    def __init__(self) -> None:
        self.rounds = 0

    def _on_event(self, event: Event) -> list[Effect]:
        self.rounds += 1
        if self.rounds > 500:
            return [Ended()]
        return [Transact("put", [], [Put("/large", bytes(METADATA_VALUE_BYTES_MAX + 1))])]

    HANDLERS: ClassVar[Handlers] = {Started: _on_event, TransactUnknown: _on_event}


def test_what_is_refused_again_and_again_is_told_rarely(caplog: pytest.LogCaptureFixture) -> None:
    """Who cannot end with a refusal tries again; the log has a line for it and not one each time."""
    caplog.set_level(logging.WARNING, logger="embedbk.host.asking")
    with Cluster(seed=86, bookies=1) as cluster:
        core = Persistent()
        run_blocking(cluster.client("client")._runtime.run(core, "a test"), "nothing")
    assert core.rounds == 501
    assert len(caplog.records) <= 3
    assert all("allowed are 262144" in record.getMessage() for record in caplog.records)
