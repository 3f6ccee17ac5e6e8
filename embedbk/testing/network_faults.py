"""Faults of the network: messages that are lost, late or misrouted, links that are cut, receivers that are slow.

Targeted rules stand here too: `rule_for(DROP, kind="AddAnswer", sender="b2", nth=3)` hits exactly one message.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from embedbk.codec.add_messages import AddAnswers, CopiesAnswer
from embedbk.codec.messages import Message, decode_message, split_bundle
from embedbk.errors import PeerError
from embedbk.testing.plan import MS, Step
from embedbk.testing.world import World
from embedbk.transports.sim_faults import DROP, Rule, Treatment

__all__ = ["BEGIN", "between", "one_way", "rule_for", "with_rule"]


def rule_for(
    verdict: Treatment,
    *,
    kind: str = "",
    sender: str = "",
    receiver: str = "",
    ledger_id: int | None = None,
    nth: int = 0,
) -> Rule:
    """A rule for `SimNetwork.add_rule`: the verdict for messages of this kind (the control's class name: AddRequest,
    FenceAnswer ...), from, to, of this ledger; nth: only the nth of them (1 is the first), 0: all."""
    seen = 0

    def is_meant(message: Message) -> bool:
        names = (type(message.control).__name__, _SINGLE.get(type(message.control)))
        return (not kind or kind in names) and (ledger_id is None or ledger_id in _ledgers(message))

    def judge(come_from: str, go_to: str, body: bytes) -> Treatment | None:
        nonlocal seen
        if (sender and sender != come_from) or (receiver and receiver != go_to):
            return None
        if kind or ledger_id is not None:
            try:
                messages = [decode_message(part) for part in split_bundle(memoryview(body))]
                if not any(is_meant(message) for message in messages):
                    return None
            except PeerError:  # Whole, or the answers in it.
                return None
        seen += 1
        return verdict if nth in (0, seen) else None

    return judge


_SINGLE: dict[type, str] = {
    AddAnswers: "AddAnswer"
}  # A message with several of a kind is also one of that kind.


def _ledgers(message: Any) -> list[int]:
    if isinstance(message.control, AddAnswers):
        return [answer.ledger_id for _, answer in message.control.unpack()]
    if isinstance(message.control, CopiesAnswer):
        return [copy.ledger_id for copy in message.control.copies]
    named = getattr(message.control, "ledger_id", None)
    return [header.ledger_id for header, _ in message.frames] + ([named] if named is not None else [])


def between(world: World, step: Step, *pairs: tuple[str, str]) -> bool:
    for sender, receiver in pairs:
        world.network.block(sender, receiver)

    def end() -> None:
        if world.is_healed:
            return  # This has ended, and what is blocked now, somebody else has blocked.
        for sender, receiver in pairs:
            world.network.unblock(sender, receiver)

    world.after(step.for_ns, end)
    return True


def _partition(world: World, step: Step, chance: random.Random) -> bool:
    """N5: the target and perhaps others on one side, the rest on the other."""
    names = [*world.members.names, *world.disks, *world.writings]
    some = {step.target, *(name for name in names if chance.random() < 0.3)}
    others = [name for name in names if name not in some]
    pairs = [pair for one in sorted(some) for other in others for pair in ((one, other), (other, one))]
    return between(world, step, *pairs)


def _clog(world: World, step: Step, chance: random.Random) -> bool:
    return between(world, step, (step.target, step.other), (step.other, step.target))


def one_way(world: World, step: Step, chance: random.Random) -> bool:
    return between(world, step, (step.target, step.other))


def _silence(world: World, step: Step, chance: random.Random) -> bool:
    """N8: nothing leaves or reaches it, without any notice."""
    others = [name for name in (*world.members.names, *world.disks, *world.writings) if name != step.target]
    return between(world, step, *[(step.target, o) for o in others], *[(o, step.target) for o in others])


def _chain(world: World, step: Step, chance: random.Random) -> bool:
    """N7: every client reaches only some bookies."""
    pairs = []
    for client in world.writings:
        for bookie in world.disks:
            if chance.random() < 0.4:
                pairs += [(client, bookie), (bookie, client)]
    return between(world, step, *pairs)


def with_rule(world: World, step: Step, rule: Rule) -> bool:
    world.network.add_rule(rule)
    world.after(step.for_ns, lambda: world.network.remove_rule(rule))
    return True


def _lose_nth(world: World, step: Step, chance: random.Random) -> bool:
    """N1, targeted: exactly one message of a kind, to or from one bookie."""
    kind = chance.choice(
        ["AddRequest", "AddAnswer", "FenceRequest", "FenceAnswer", "ReadRequest", "ReadAnswer", "LacAnswer"]
    )
    to_bookie = kind.endswith("Request")
    return with_rule(
        world,
        step,
        rule_for(
            DROP,
            kind=kind,
            sender="" if to_bookie else step.target,
            receiver=step.target if to_bookie else "",
            nth=chance.randint(1, 4),
        ),
    )


def _misroute(world: World, step: Step, chance: random.Random) -> bool:
    """N12: an answer of another request comes in the place of the right one."""
    before: list[bytes] = []

    def swap(sender: str, receiver: str, body: bytes) -> Treatment | None:
        if sender != step.target or chance.random() > 0.1:
            return None
        other = before.pop() if before else None
        before.append(body)
        return Treatment(body=other) if other is not None else None

    return with_rule(world, step, swap)


def _slow_receiver(world: World, step: Step, chance: random.Random) -> bool:
    """N10: it takes in so slowly that windows fill."""
    world.network.narrow[step.target] = chance.choice([2_000, 20_000])
    world.slow_ns[step.target] = 100 * MS

    def end() -> None:
        world.network.narrow.pop(step.target, None)
        world.slow_ns.pop(step.target, None)

    world.after(step.for_ns, end)
    return True


BEGIN: dict[str, Callable[[World, Step, random.Random], bool]] = {
    "partition": _partition, "clog": _clog, "one-way": one_way, "silence": _silence, "chain": _chain,
    "lose-nth": _lose_nth, "misroute": _misroute, "slow-receiver": _slow_receiver,
}  # fmt: skip
