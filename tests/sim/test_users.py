"""Applications of random worlds that use the faces: which terms they draw, and what they judge themselves."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from embedbk.client.waiting import Moved
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, Durability, decode_ledger_metadata, ledger_key_path
from embedbk.core.producers import Producers
from embedbk.errors import OperationTimeout, UsageError
from embedbk.testing import Cluster
from embedbk.testing.actor import Repair
from embedbk.testing.applications import APPLICATIONS
from embedbk.testing.campaign import run_seed
from embedbk.testing.clocks import SECOND
from embedbk.testing.drawn_terms import keys_of
from embedbk.testing.plan import FEATURES, make_plan
from embedbk.testing.run import run_plan
from embedbk.testing.sim_runtime import SimRuntime, awaited
from embedbk.testing.world import World


def test_every_feature_and_every_application_is_drawn() -> None:
    """S5: each seed switches some on, and some seeds none."""
    plans = [make_plan(seed) for seed in range(300)]
    drawn = Counter(feature for plan in plans for feature in plan.features)
    assert set(drawn) == set(FEATURES)
    assert sum(1 for plan in plans if not plan.features) > 30
    assert {step.kind for plan in plans for step in plan.steps} >= set(APPLICATIONS)


def test_a_plain_plan_is_what_plans_were_first() -> None:
    """A seed that found something stays what it was: nothing that came later, and no other draw by it."""
    plain, full = make_plan(6, is_plain=True), make_plan(6)
    assert plain.features == ()
    assert full.features
    assert {step.kind for step in plain.steps} < {step.kind for step in full.steps}
    assert (plain.bookies, plain.quorum, plain.network) == (full.bookies, full.quorum, full.network)


def test_ledgers_are_made_with_all_terms() -> None:
    """P3.1, P3.2, P3.5: deferred sync, tags, passwords and custom metadata reach the cluster in some worlds."""
    made = set()
    worlds: list[World] = []
    for seed in (0, 6, 17, 18):
        assert not run_plan(make_plan(seed), prepare=worlds.append).violation
        for value in worlds[-1].committed(LEDGERS_PREFIX).values():
            metadata = decode_ledger_metadata(value)
            made |= {f"digest {metadata.digest}"} | {name.split(" ")[0] for name in metadata.custom}
            made |= {"deferred"} if metadata.durability == Durability.DEFERRED else set()
            made |= {"password"} if metadata.password_verifier else set()
    assert made >= {"digest 0", "digest 1", "digest 2", "app", "note", "log", "deferred", "password"}


@pytest.mark.parametrize("method", ["find", "note"])
def test_an_append_that_stands_twice_is_found(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """With the window of producers broken, a world in which one repeats itself fails."""
    monkeypatch.setattr(Producers, method, lambda *_: None)
    assert any(
        run_seed(seed)["invariant"] == "idempotence"
        for seed in range(60)
        if "producers" in make_plan(seed).features
    )


def test_a_caller_gives_up_where_its_call_waits_and_what_it_began_beside_goes_on() -> None:
    """P9: a call is interrupted once, by what no `except Exception` catches, and cleans up as long as it likes; what
    the client does beside its calls is not interrupted."""
    world = World(1)
    runtime = SimRuntime(world, "c1", world.start_client("c1"))
    world.impatience.begin("c1", random.Random(1), share=1.0)
    seen: list[str] = []

    async def call() -> None:
        try:
            await Moved(runtime.signal, lambda: False, 3.0)
        except Exception:
            seen.append("caught")
            raise
        finally:
            await Moved(runtime.signal, lambda: False, 3.0)
            seen.append("cleaned up")

    async def beside() -> None:
        await Moved(runtime.signal, lambda: False, 3.0)
        seen.append("beside")

    actor = world.spawn("c1", awaited(runtime, call()))
    runtime.behind(beside())
    assert world.run_until(lambda: actor.is_over and "beside" in seen, 10 * SECOND)
    assert sorted(seen) == ["beside", "cleaned up"]
    assert isinstance(actor.error, OperationTimeout)
    assert not actor.error.definite
    world.close()


def test_calls_that_are_given_up_are_drawn_for_applications_only_while_faults_act() -> None:
    plans = [plan for plan in map(make_plan, range(200)) if "gives-up" in plan.on]
    assert len(plans) > 20
    for plan in plans:
        users = {step.target for step in plan.steps if step.kind in APPLICATIONS}
        given_up = [step for step in plan.steps if step.kind == "gives-up"]
        assert {step.target for step in given_up} <= users
        assert max(step.at_ns for step in given_up) <= plan.duration_ns


def test_a_wait_lets_time_pass_even_if_it_is_shorter_than_a_tick() -> None:
    """A coroutine that waits for what is left of its time must come to its end."""
    world = World(1)
    node = world.start_client("c1")
    runtime = SimRuntime(world, "c1", node)
    waited: list[bool] = []

    async def wait_shortly() -> None:
        until_s = runtime.clock_s() + 1e-4
        while runtime.clock_s() < until_s:
            waited.append(await Moved(runtime.signal, lambda: False, (until_s - runtime.clock_s()) * 0.5))
        raise OperationTimeout("as told")

    actor = world.spawn("c1", awaited(runtime, wait_shortly()))
    assert world.run_until(lambda: actor.is_over, SECOND)
    assert isinstance(actor.error, OperationTimeout)
    assert waited
    assert not any(waited)
    world.close()


def test_a_seat_is_not_given_to_who_has_one() -> None:
    """P2.4: two menders with one target; seed 901588 had a fragment with a bookie twice."""
    with Cluster(seed=7, bookies=4) as cluster:
        with cluster.client().create_ledger() as orders:
            orders.add(b"one")
        value = cluster.world.committed(LEDGERS_PREFIX)[ledger_key_path(orders.ledger_id)]
        first, second, _ = decode_ledger_metadata(value).fragments[0].members
        key = keys_of(decode_ledger_metadata(value)).key
        operation = cluster.world.start("client", Repair(orders.ledger_id, first, second, key, 5))
        assert cluster.run_until(operation.future.done)
        assert isinstance(operation.future.exception(), UsageError)
        assert cluster.world.committed(LEDGERS_PREFIX)[ledger_key_path(orders.ledger_id)] == value


def test_a_crash_ends_what_its_client_was_doing() -> None:
    """P10: a coroutine that is thrown away with its process cleans up nothing in the cluster."""
    world = World(1)
    runtime = SimRuntime(world, "c1", world.start_client("c1"))
    ended: list[str] = []

    async def wait_for_ever() -> None:
        try:
            await Moved(runtime.signal, lambda: False)
        finally:
            ended.append("closed" if runtime.is_closed else "alive")

    world.spawn("c1", awaited(runtime, wait_for_ever()))
    world.crash("c1")
    assert ended == ["closed"]
    world.close()
