"""Messages that are of a form and say what nobody should, met by every role: a link may end, a host never (T10).

Sound messages with something changed in their control part, sums right again, in both directions: to bookies and to the
metadata member, and from them to clients (a stranger may register as a bookie). What is said may be a lie that nobody
can see, so promises are not asked here: only that nothing but errors of ours leaves a handle, and nothing a node.
"""

from __future__ import annotations

import random
import struct
from typing import Any

import msgspec
import pytest

from embedbk.codec.kernels import crc32c
from embedbk.errors import EmbedbkError, LedgerFenced
from embedbk.testing import Cluster
from embedbk.transports.sim_faults import Treatment
from tests.sim.test_strange_values import attempt, changed

SHARE = 0.04


def said_otherwise(body: bytes, chance: random.Random) -> bytes | None:
    """The message with something changed in its control part; None for what has none to change."""
    if len(body) < 32 or body[:4] != b"EBKM" or body[5] == 13:
        return None
    (size,) = struct.unpack_from("<I", body, 8)
    try:
        control = changed(body[32 : 32 + size], chance)
    except (msgspec.MsgspecError, OverflowError):
        return None
    head = bytearray(body[:32])
    struct.pack_into("<I", head, 8, len(control))
    struct.pack_into("<I", head, 24, crc32c(control, crc32c(bytes(head[:24]))))
    return bytes(head) + control + body[32 + size :]


@pytest.mark.parametrize("seed", range(6))
def test_nothing_that_a_peer_says_ends_a_host(seed: int) -> None:
    """T10: every core, handle and node is told sound messages with something changed."""
    chance = random.Random(f"strange bodies {seed}")
    told = 0

    def rule(sender: str, receiver: str, body: bytes) -> Treatment | None:
        nonlocal told
        if chance.random() >= SHARE or (strange := said_otherwise(body, chance)) is None:
            return None
        told += 1
        return Treatment(body=strange)

    with Cluster(seed=seed, bookies=4) as cluster:
        names = ("client", "second", "third")
        for name in names:
            cluster.client(name)
        cluster.network.add_rule(rule)
        for turn in range(6):
            client, second = (cluster.client(name) for name in chance.sample(names, 2))
            ledgers: list[Any] = []
            attempt(lambda: ledgers.append(client.create_ledger()))  # noqa: B023 - Called at once.
            for ledger in ledgers:
                attempt(lambda: ledger.add(b"one"))  # noqa: B023
                attempt(lambda: ledger.add_many([b"two", b"three"]))  # noqa: B023
                attempt(lambda: list(second.open_ledger(ledger.ledger_id).read()))  # noqa: B023
                attempt(lambda: list(second.open_ledger(ledger.ledger_id, recover=True).read()))  # noqa: B023
                attempt(ledger.close)
            attempt(lambda: second.log("log").writer().append(b"%d" % turn))  # noqa: B023
            attempt(lambda: list(client.log("log").read()))  # noqa: B023
            attempt(lambda: list(client.log("log").tail(idle_s=1)))  # noqa: B023
            attempt(second.ledgers)
            cluster.run_for(1)
        cluster.heal()
        for name in names:
            for left in reversed(range(3)):
                try:
                    with cluster.client(name).create_ledger() as ledger:
                        ledger.add(b"goes on")
                    break
                except EmbedbkError as error:
                    # Who asks for a fence is believed: it may be of an id that nobody had yet.
                    if not isinstance(error, LedgerFenced) or not left:
                        raise AssertionError(f"{name} does not go on: {error!r}") from error
    assert told > 20
