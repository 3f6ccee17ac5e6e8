"""P3, P4, P5: a writer that was shrunk and restored is the same writer (core/idle_form.py)."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from operator import attrgetter

import pytest

from embedbk.codec.packer import Packer
from embedbk.codec.packer_twin import TwinPacker
from embedbk.core.avoided import Failed
from embedbk.core.ensemble_keeping import MayChange
from embedbk.core.fragment_sums import no_sums
from embedbk.core.idle_form import IdleForm, shrink
from embedbk.core.machine import Effect, Event
from embedbk.core.publishing import Publishing
from embedbk.core.stall import Stall
from embedbk.core.vocabulary import Tick
from embedbk.core.writer import Writer, WriterState
from embedbk.core.writer_options import WriterOptions
from embedbk.errors import LedgerFenced
from embedbk.host.writing import Writing
from tests.rules.world import KEY, Client, Pen, World

WRITERS = (
    "test_p3_adding",
    "test_p4_crossing_changes",
    "test_p4_delayed_change",
    "test_p4_ensemble_change",
    "test_p4_stall",
    "test_p5_closing",
    "test_p5_convergence",
    "test_p5_fencing",
    "test_p5_reading_forward",
    "test_p5_recovery",
    "test_p6_tailing",
    "test_p7_busy",
)
STORIES = [
    story
    for module in WRITERS
    for name, story in vars(importlib.import_module(f"tests.rules.{module}")).items()
    if name.startswith("test_") and not inspect.signature(story).parameters
]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_every_story_of_a_writer_is_the_same_when_it_rests_wherever_it_can(
    story: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3.3, P3.8, P4.2: what a writer has acknowledged, sent and changed, it knows when it is restored."""
    step = Client.step

    def step_and_rest(client: Client, event: Event) -> list[Effect]:
        told = step(client, event)
        if isinstance(client.core, Writer) and (left := shrink(client.core)) is not None:
            before = client.core.digest()
            client.core = left.restore(no_sums)
            assert client.core.digest() == before
        return told

    monkeypatch.setattr(Client, "step", step_and_rest)
    story()


def idle_writer() -> tuple[World, Client, Pen]:
    world = World(4)
    metadata, revision = world.create()
    client, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    world.add(client, pen, b"one")
    world.settle()
    return world, client, pen


def writer_of(client: Client) -> Writer:
    assert isinstance(client.core, Writer)
    return client.core


def test_an_idle_writer_rests_and_goes_on_where_it_was() -> None:
    """P3.1, P3.8: ids, LAC, nonce and what it learnt of its bookies are those of before."""
    world, client, pen = idle_writer()
    before = writer_of(client)
    left = shrink(before)
    assert left is not None
    twin = left.restore(no_sums)
    assert twin is not before
    assert twin.digest() == before.digest()
    assert (twin.lac, twin.lap, twin.in_flight.nonce) == (0, 0, before.in_flight.nonce)
    assert twin.deadline_ns == before.deadline_ns
    client.core = twin
    world.add(client, pen, b"two")
    world.settle()
    assert client.confirmed == 1


def test_idle_writers_share_only_what_is_the_same() -> None:
    """P3.8: "each is restored in the same state"; what differs in one object is not shared."""
    world = World(4)
    bookies = world.bookies

    def idle(options: WriterOptions) -> IdleForm:
        metadata, revision = world.create()
        left = shrink(Writer(metadata, revision, KEY, 1, bookies, world.chance, options))
        assert left is not None
        return left

    usual, other = WriterOptions(), WriterOptions(hands_over=True)
    one, two, three = idle(usual), idle(usual), idle(other)
    assert one.terms is two.terms and two.terms is not three.terms
    assert [each.restore(no_sums).options for each in (one, two, three)] == [usual, usual, other]
    bookies = bookies[:3]
    four = idle(other)
    assert four.terms is not three.terms
    assert len(three.restore(no_sums).bookies) == 4 and len(four.restore(no_sums).bookies) == 3


def test_a_writer_with_anything_under_way_does_not_rest() -> None:
    """P3.3, P3.6, P4.1: unanswered adds, also beyond the quorum, are not forgotten."""
    world, client, pen = idle_writer()
    world.add(client, pen, b"two")
    assert shrink(writer_of(client)) is None, "adds are on their way"
    world.settle(hold=lambda packet: packet.bookie_id == "b3")
    assert client.confirmed == 1
    assert shrink(writer_of(client)) is None, "one seat has not answered"
    world.settle()
    assert shrink(writer_of(client)) is not None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("error", LedgerFenced("fenced")),
        ("changes.proposal", object()),
        ("ensemble.may_change", MayChange.FAILED),
        ("ensemble.refusal", (5, "full")),
        ("ensemble.retry_at", 5),
        ("stall", Stall(is_short=True)),
        ("stall", Stall(until_ns=5)),
        ("state", WriterState.CLOSING),
        ("watched", True),
    ],
)
def test_what_a_twin_would_not_know_keeps_a_writer_up(name: str, value: object) -> None:
    """P3.6, P4.2, P4.6: a change, a failure, the end or a watcher is nothing that `IdleForm` holds."""
    _, client, _ = idle_writer()
    writer = writer_of(client)
    assert shrink(writer) is not None
    *owner, field = name.split(".")
    setattr(attrgetter(*owner)(writer) if owner else writer, field, value)
    assert shrink(writer) is None


def test_a_bookie_that_failed_lately_keeps_a_writer_up() -> None:
    """P4.5, P4.6: a bookie that is avoided is not seated again because nothing was appended for a while."""
    _, client, _ = idle_writer()
    writer = writer_of(client)
    writer.ensemble.candidates.failures = {"b1": Failed(1, 5, 3, 2)}
    assert shrink(writer) is None


@pytest.mark.parametrize(
    ("name", "value"), [("is_reading", True), ("is_unsettled", True), ("proposed", object())]
)
def test_what_is_being_published_keeps_a_writer_up(name: str, value: object) -> None:
    """P2.2, P4.2: a compare-and-set in flight, or a read that is to settle it, is not forgotten."""
    _, client, _ = idle_writer()
    publishing = writer_of(client).changes.publishing = Publishing()
    assert shrink(writer_of(client)) is not None
    setattr(publishing, name, value)
    assert shrink(writer_of(client)) is None


def test_who_is_not_to_be_named_keeps_a_writer_up() -> None:
    """P10.6: a bookie whose placement has changed is not chosen again from the same list."""
    _, client, _ = idle_writer()
    publishing = writer_of(client).changes.publishing = Publishing()
    publishing.naming._outdated.add(("b3", 1))
    assert shrink(writer_of(client)) is None


def test_a_twin_numbers_its_compare_and_sets_on() -> None:
    """P2.2: the outcome of one that was sent before the rest is not taken for that of one behind it."""
    _, client, _ = idle_writer()
    writer = writer_of(client)
    assert shrink(writer).restore(no_sums).changes.publishing is None
    writer.changes.publishing = Publishing(7)
    twin = shrink(writer).restore(no_sums)
    publishing = twin.changes.publishing
    assert publishing is not None and publishing.number == 7


def test_a_failed_seat_keeps_a_writer_up() -> None:
    """P4.1: who failed is not seated anew because nothing was appended for a while."""
    _, client, _ = idle_writer()
    assert writer_of(client).in_flight.fail(1, "gone")
    assert shrink(writer_of(client)) is None


def test_a_twin_owes_the_same_explicit_lac() -> None:
    """P6.2: at the same time, and to the same bookies."""
    _, client, _ = idle_writer()
    before, left = writer_of(client), shrink(writer_of(client))
    assert left is not None
    twin, due_ns = left.restore(no_sums), before.deadline_ns
    assert due_ns is not None and twin.deadline_ns == due_ns
    told = before.step(Tick(due_ns))
    assert len(told) == 3
    assert twin.step(Tick(due_ns)) == told


@pytest.mark.parametrize("kind", [Packer, TwinPacker])
def test_a_writer_that_rested_has_the_sums_of_its_packer(kind: type[Packer] | type[TwinPacker]) -> None:
    """P11.4: what it publishes behind a rest is what its handle summed, and nothing where the handle sums nothing."""
    for has_sums in (True, False):
        _, client, pen = idle_writer()
        packer = kind(pen.ledger_id)
        writing = Writing(writer_of(client), packer, lambda _: None, has_sums=has_sums)
        summed = writing.core.in_flight.sums_through
        writing.shrink()
        assert writing.is_shrunk
        assert writing.core.in_flight.sums_through == summed
        assert (summed == packer.sums_through) == has_sums
