"""Copies by whom no key is known, and what keeps them where they are (P3.5, P7.7, P11.2)."""

from __future__ import annotations

from typing import ClassVar

import pytest

from embedbk.codec.add_messages import AddAnswer, AddRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry import encode_entry
from embedbk.codec.frame import encode_frame_header, frame_of
from embedbk.codec.ledger_metadata import encode_ledger_metadata, ledger_key_path
from embedbk.codec.metadata_messages import ABSENT, Compare, Told
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.repair_state import unrepairable_path
from embedbk.core.client_words import Answered, Send
from embedbk.core.collector import Collector, CollectorOptions
from embedbk.core.machine import Effect, Handlers, Machine
from embedbk.core.metadata_words import KeyRead, KeysListed, ReadKey, Transact
from embedbk.core.upkeep_words import AskMetadata, HeldListed, ListHeld, MetadataTold
from embedbk.core.vocabulary import Ended, Started, Tick
from embedbk.ids import Member
from embedbk.testing import Cluster
from tests.repair.test_auditor import ledger

LEDGER = 9
ZEROS, KEY, OTHER = bytes(16), b"k" * 16, b"o" * 16


class _Add(Machine):
    """One add, and the status of its answer."""

    def __init__(self, member: Member, entry_id: int, key: bytes, *, recovery: bool, is_copy: bool) -> None:
        self.member, self.entry_id, self.key = member, entry_id, key
        self.recovery, self.is_copy = recovery, is_copy

    def _on_started(self, event: Started) -> list[Effect]:
        frame = frame_of(memoryview(encode_entry(LEDGER, self.entry_id, 4 * (self.entry_id + 1), b"data")))
        request = AddRequest(self.member.incarnation, 5, 1, self.recovery, is_copy=self.is_copy)
        return [Send(self.member, request, "add", ((encode_frame_header(frame, self.key), frame),))]

    def _on_answered(self, event: Answered) -> list[Effect]:
        assert isinstance(event.control, AddAnswer)
        return [Ended(None, event.control.status)]

    HANDLERS: ClassVar[Handlers] = {Started: _on_started, Answered: _on_answered}


def add(
    cluster: Cluster, entry_id: int, key: bytes, *, recovery: bool = True, is_copy: bool = False
) -> Status:
    member = Member("b1", cluster.world.disks["b1"].incarnation)
    done = cluster.world.start("client", _Add(member, entry_id, key, recovery=recovery, is_copy=is_copy))
    assert cluster.run_until(done.future.done)
    status: Status = done.future.result()
    return status


@pytest.mark.parametrize("native", [False, True])
def test_a_copy_passes_the_key_and_binds_none(native: bool) -> None:
    """P3.5, P11.2: also where a key is bound; where none is, the first who has one binds it, also behind a crash."""
    with Cluster(seed=3, bookies=3, native=native) as cluster:
        cluster.client()
        assert add(cluster, 0, ZEROS, is_copy=True) == Status.OK
        cluster.crash("b1")
        cluster.restart("b1")
        cluster.run_for(3)
        assert add(cluster, 1, KEY) == Status.OK
        assert add(cluster, 2, OTHER) == Status.WRONG_KEY
        assert add(cluster, 2, ZEROS, is_copy=True) == Status.OK
        assert add(cluster, 3, ZEROS) == Status.WRONG_KEY


@pytest.mark.parametrize("native", [False, True])
def test_a_normal_add_that_says_it_is_a_copy_is_checked(native: bool) -> None:
    """P3.5: only recovery adds are copies; bytes that no client sends open no ledger."""
    with Cluster(seed=3, bookies=3, native=native) as cluster:
        cluster.client()
        assert add(cluster, 0, KEY, recovery=False) == Status.OK
        assert add(cluster, 1, OTHER, recovery=False, is_copy=True) == Status.WRONG_KEY
        assert add(cluster, 1, KEY, recovery=False, is_copy=True) == Status.OK


def test_what_was_given_up_is_kept_by_every_collector() -> None:
    """P7.7: a copy that a stopped repair made may be the last good one; it is checked together with the mark."""
    value = encode_ledger_metadata(ledger(1, 1, 2, 3))
    core = Collector("b4", CollectorOptions())
    core.step(Started(0))
    (held,) = core.step(Tick(10**15))
    assert isinstance(held, ListHeld)
    _, listing = core.step(HeldListed(0, held.tag, [1], False))
    (ask,) = core.step(KeysListed(0, listing.tag, [(ledger_key_path(1), value)], False))  # type: ignore[union-attr]
    assert isinstance(ask, AskMetadata)
    (read,) = core.step(MetadataTold(0, ask.tag, Told(b"t" * 16, 1, b"n" * 16, 9, 9), ""))
    assert isinstance(read, ReadKey)
    (check,) = core.step(KeyRead(0, read.tag, value, 3))
    assert isinstance(check, Transact)
    absent = [Compare(path(1), ABSENT) for path in (repair_mark_path, unrepairable_path)]
    assert all(each in check.when for each in absent)
