"""What clients of real members were told fits one order, while members are killed and stopped (I73 to I75)."""

from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from benchmarks._metadata_load import MetadataLoad
from embedbk.cluster import Cluster
from embedbk.codec.metadata_messages import ABSENT, Compare, Delete, Get, Operation, Put, Result, Txn
from embedbk.config import Settings
from embedbk.testing.history import Call, check_history

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)
KEYS = ("/told/0", "/told/1", "/told/2")
AT_ONCE = 4  # Of each of two clients.
WHOLE_S = 60.0
SIGNALS = (signal.SIGKILL, signal.SIGSTOP)


def draw(number: int, chance: random.Random) -> Operation:
    """Each value is put by one call alone."""
    key, value = chance.choice(KEYS), f"{number}".encode()
    match chance.choice(["put", "get", "get", "make", "delete"]):
        case "put":
            return Txn([], [Put(key, value), Put(f"{key}/also", value)])
        case "make":
            return Txn([Compare(key, ABSENT)], [Put(key, value)])
        case "delete":
            return Txn([], [Delete(key)])
    return Get(key)


def test_what_clients_are_told_fits_one_order_while_leaders_are_killed_and_stopped(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Story 24, I73 to I75, L8: a leader that was stopped goes on and shows nothing older; every call
    ends."""
    faults, chance = int(request.config.getoption("--member-faults")), random.Random(7)
    calls: list[Call] = []
    with Cluster(tmp_path, bookies=1, members=3, settings=PATIENT) as cluster:
        endpoints = [each for name in cluster.members for each in cluster.processes[name].endpoints]
        with MetadataLoad(endpoints, 256) as load:

            def ask_until(answered: int) -> None:
                """Until so many more were answered."""
                end, until_s = (
                    sum(call.answered_ns is not None for call in calls) + answered,
                    time.monotonic() + WHOLE_S,
                )
                while (done := sum(call.answered_ns is not None for call in calls)) < end or answered == 0:
                    for client in (0, 1):
                        is_open = [
                            each
                            for each in calls[-1000:]
                            if each.client == f"{client}" and not each.answered_ns
                        ]
                        if answered and len(is_open) < AT_ONCE:
                            begin(client)
                    if answered == 0 and done == len(calls):
                        return
                    load.turn()
                    assert time.monotonic() < until_s, "L8: a call has no answer"

            def begin(client: int) -> None:
                call = Call(f"{client}", draw(len(calls), chance), time.monotonic_ns())
                calls.append(call)

                def answered(_: int, result: Result) -> None:
                    call.answered_ns, call.result = time.monotonic_ns(), result

                load.begin(client, call.operation, answered)

            for number in range(faults):
                ask_until(60)
                leader = cluster.processes[cluster.leader()]
                leader.send_signal(SIGNALS[number % len(SIGNALS)])
                ask_until(60)
                if SIGNALS[number % len(SIGNALS)] == signal.SIGKILL:
                    cluster.restart(leader.name)
                else:
                    leader.send_signal(signal.SIGCONT)  # It believes for a moment that it leads.
            ask_until(60)
            ask_until(0)
    assert check_history(calls) > faults * 100
