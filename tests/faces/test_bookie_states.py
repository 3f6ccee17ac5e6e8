"""`bk.bookies()`: all that the cluster ever had, and what each of them is doing (P7.8, RP47)."""

from __future__ import annotations

import asyncio

import pytest

import embedbk
from embedbk.cli.bookies import state_text
from embedbk.client.bookie_states import BookieState
from embedbk.testing import Cluster


def states(client: embedbk.Client) -> list[tuple[str, str, str]]:
    return [(each.bookie_id, each.state, each.why) for each in client.bookies()]


def test_states_say_who_takes_entries_who_does_not_and_why_and_who_is_away() -> None:
    with Cluster(seed=6, bookies=3) as cluster:
        client = cluster.client("c")
        assert states(client) == [(name, "writable", "") for name in ("b1", "b2", "b3")]
        node = cluster.world.nodes["b2"]
        node.spacing.set_read_only(cluster.world.now_of("b2"), True)
        cluster.crash("b3")
        cluster.run_for(30)
        assert states(client) == [
            ("b1", "writable", ""),
            ("b2", "read-only", "operator"),
            ("b3", "away", ""),
        ]
        there = client.bookies()[0]
        assert there == BookieState("b1", "writable", "", ("sim://b1",), "", there.free_bytes)


def test_states_are_told_also_while_the_metadata_is_away() -> None:
    """As they were known last; nothing is raised."""
    with Cluster(seed=6, bookies=3) as cluster:
        client = cluster.client("c")
        before = client.bookies()
        cluster.crash("metadata")
        assert client.bookies() == before


def test_states_of_an_embedded_cluster_in_both_faces(bk: embedbk.Client) -> None:
    found = bk.bookies()
    assert [(each.bookie_id, each.state) for each in found] == [(f"b{n}", "writable") for n in (1, 2, 3)]
    assert all(each.free_bytes > 0 for each in found)


def test_states_awaited(data: object, settings: embedbk.Settings) -> None:
    async def look() -> list[str]:
        async with embedbk.aio.open(data, settings=settings) as bk:  # type: ignore[arg-type]
            return [each.bookie_id for each in await bk.bookies()]

    assert asyncio.run(look()) == ["b1", "b2", "b3"]


def test_an_embedded_bookie_is_drained_and_stays(bk: embedbk.Client) -> None:
    """P11.3: its process starts all of its bookies, so none of them is decommissioned."""
    assert bk.can_i_stop("b1").is_safe
    report = bk.drain_bookie("b1", "why")
    assert (report.bookie.bookie_id, report.is_empty, report.is_draining) == ("b1", True, True)
    with pytest.raises(embedbk.UsageError, match="one of an embedded cluster"):
        bk.decommission_bookie("b1")
    with pytest.raises(embedbk.UsageError, match="registered with these directories"):
        bk.replace_bookie("b1")
    bk.cancel_drain("b1")
    assert not bk.bookie("b1").is_draining


def test_taking_bookies_out_of_service_awaited(data: object, settings: embedbk.Settings) -> None:
    async def look() -> None:
        async with embedbk.aio.open(data, settings=settings) as bk:  # type: ignore[arg-type]
            assert (await bk.drain_bookie("b2")).is_empty
            assert (await bk.bookie("b2")).is_draining
            await bk.cancel_drain("b2")
            assert (await bk.can_i_stop("b2")).is_safe
            assert (await bk.can_i_lose(["b2"])).is_safe

    asyncio.run(look())


def test_a_bookie_whose_logs_hide_something_is_told_with_the_way_out() -> None:
    """ST38: nothing else says why recoveries wait for it though it answers."""
    there = BookieState("b2", "writable", "", ("sim://b2",), "", 0, dark_logs=2)
    assert "2 entry logs hide something from it, so that it denies no entry" in state_text(there)
    assert "embedbk bookie drain b2, then decommission" in state_text(there)
    assert "hide" not in state_text(there._replace(dark_logs=0))
