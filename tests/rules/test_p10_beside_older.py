"""P10.5: a bookie that met newer metadata than what answers now denies nothing: nobody goes by the older one."""

from __future__ import annotations

import pytest

from embedbk.codec.ledger_metadata import LedgerState, ledger_key_path
from embedbk.codec.messages import ErrorAnswer, FenceRequest, HoldingsRequest, ReadRequest
from embedbk.core.bookie_words import OlderMetadata, Reply, RequestReceived
from embedbk.errors import RecoveryInconclusive
from tests.rules.world import KEY, Pen, World

OLD, NEW = ("b1", "b2", "b3"), ("b4", "b5", "b6")


def meet(world: World, *, is_older: bool) -> None:
    for node in world.nodes.values():
        assert node.core.step(OlderMetadata(world.now_ns, is_older)) == []


Value = tuple[bytes, int]


def with_older_metadata() -> tuple[World, int, Value]:
    """e0 is on b1 to b3, and e1 acknowledged by b4 to b6, which took all seats. Then the metadata of before the change
    is put back: a copy. Also returns the newest."""
    world = World(6)
    metadata, revision = world.create()
    assert {member.bookie_id for member in metadata.fragments[0].members} == {*OLD}
    writer, pen = world.writer(metadata, revision), Pen(metadata.ledger_id)
    world.add(writer, pen, b"zero")
    world.settle()
    key = ledger_key_path(metadata.ledger_id)
    copy = world.catalog.values[key]
    world.down.update(OLD)
    world.add(writer, pen, b"one")
    world.run(until=lambda: writer.confirmed == 1)
    assert {each.bookie_id for each in world.catalog.metadata(pen.ledger_id)[0].fragments[-1].members} == {
        *NEW
    }
    world.down.clear()
    writer.is_gone = True
    newest, world.catalog.values[key] = world.catalog.values[key], copy
    del world.catalog.history[key][1:]
    return world, pen.ledger_id, newest


def test_no_recovery_ends_by_what_older_metadata_says() -> None:
    """P10.5: "a recovery asks the bookies that the copy names, which do not have what was acknowledged in other seats
    since, the ledger is closed before that": all of them are there, and none says no."""
    world, ledger_id, _ = with_older_metadata()
    meet(world, is_older=True)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert isinstance(recovery.ended.error, RecoveryInconclusive)
    assert world.catalog.metadata(ledger_id)[0].state == LedgerState.IN_RECOVERY


def test_when_the_newer_is_back_they_say_no_again() -> None:
    """P10.5: "until the newer is put back or an operator begins a generation"."""
    world, ledger_id, newest = with_older_metadata()
    meet(world, is_older=True)
    key = ledger_key_path(ledger_id)
    world.catalog.values[key] = newest
    meet(world, is_older=False)
    recovery = world.recovery(ledger_id)
    recovery.start()
    world.run(until=lambda: recovery.has_ended)
    assert recovery.ended.error is None
    assert world.catalog.metadata(ledger_id)[0].last_entry == 1


@pytest.mark.parametrize("kind", ["read", "fence", "holdings"])
def test_what_it_has_no_trace_of_is_neither_denied_nor_taken(kind: str) -> None:
    """P10.5: "denies no entry and takes no ledger of which it has no trace"; what it has it gives as ever."""
    world, ledger_id, _ = with_older_metadata()
    node = world.nodes["b4"]
    meet(world, is_older=True)
    asked = {
        "read": ReadRequest(node.core.incarnation, 77, 0, 5, 1 << 20),
        "fence": FenceRequest(node.core.incarnation, 77, KEY),
        "holdings": HoldingsRequest(node.core.incarnation, 77, 0, 5),
    }[kind]
    (reply,) = node.core.step(RequestReceived(world.now_ns, 1, 1, asked, []))
    assert isinstance(reply, Reply) and isinstance(reply.control, ErrorAnswer)
    assert "met newer metadata" in reply.control.text
    assert node.core.table.get(77) is None
    row = node.core.table.get(ledger_id)
    assert row is not None and row.last_entry == 1
