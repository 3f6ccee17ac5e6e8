"""`explain`: who answered what, which rule applies, which quorum is missing, what is safe to do next."""

from __future__ import annotations

import embedbk
from embedbk.client.explaining import conclude
from embedbk.config import Quorum
from embedbk.core.status_query import STATUS_QUERY_NS, StatusQuery
from tests.rules.world import THREE, World


def queried(world: World, *silent: str) -> str:
    metadata, _ = world.catalog.metadata(1)
    client = world.client("status query", StatusQuery(metadata))
    client.start()
    world.settle(hold=lambda packet: packet.bookie_id in silent)
    if not client.has_ended:
        world.tick(client, STATUS_QUERY_NS)
    return str(conclude(metadata, client.ended.result))


def test_an_open_ledger_names_the_write_set_that_is_short() -> None:
    """P5.2b, P4.5: judged write set by write set; nobody is fenced by asking."""
    short = "1 more of b2 (no link), b3 (no answer)"
    for quorum in (THREE, Quorum(3, 2, 2)):
        world = World(3)
        world.create(quorum)
        world.down.add("b2")
        text = queried(world, "b3")
        assert "ledger 1: OPEN" in text
        assert text.count("missing:") == 1
        assert f"missing: {short}" in text
        assert "next: bring back" in text
        assert all(not node.storage.table.get(1) for node in world.nodes.values())


def test_a_ledger_says_what_can_be_done_at_every_stage(bk: embedbk.Client) -> None:
    writer = bk.create_ledger()
    writer.add(b"x")
    told = bk.explain(writer.ledger_id)
    assert (told.state, told.missing) == ("OPEN", ())
    assert "recover=True" in told.next_step
    assert len(told.seats) == 3
    writer.close()
    told = bk.explain(writer.ledger_id)
    assert (told.state, told.last_entry, told.missing) == ("CLOSED", 0, ())
    assert all(seat.holds_last for seat in told.seats)
    assert "every copy" in str(told)
    bk.delete_ledger(writer.ledger_id)
    assert bk.explain(writer.ledger_id).state == "DELETED"
    assert bk.explain(987654321).state == "ABSENT"
