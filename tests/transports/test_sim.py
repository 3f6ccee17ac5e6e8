"""The simulated network: the same run from the same seed, and every fault that it can make."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embedbk.errors import UsageError
from embedbk.ports.links import LinkDown, LinkUp, Received
from embedbk.transports.conformance import identity_of
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM, DROP, ROUGH, Faults, Treatment
from embedbk.transports.sim_transport import SimTransport

PROJECT = Path(__file__).resolve().parent.parent.parent
MILLISECOND = 1_000_000
SECOND = 1000 * MILLISECOND


def pair(network: SimNetwork) -> tuple[SimTransport, SimTransport]:
    """a has dialled b; both have been told."""
    a, b = network.transport(identity_of("a")), network.transport(identity_of("b"))
    b.listen("sim://b")
    a.connect("sim://b")
    pass_time(network, 10 * MILLISECOND)
    assert isinstance(a.receive(0)[0], LinkUp)
    assert isinstance(b.receive(0)[0], LinkUp)
    return a, b


def pass_time(network: SimNetwork, ns: int) -> None:
    network.advance(network.now_ns + ns)


def bodies(node: SimTransport) -> list[bytes]:
    return [bytes(event.body) for event in node.receive(0) if isinstance(event, Received)]


def reasons(node: SimTransport) -> list[str]:
    return [event.reason for event in node.receive(0) if isinstance(event, LinkDown)]


def send_numbers(node: SimTransport, count: int) -> list[bytes]:
    sent = [b"%d" % number for number in range(count)]
    for body in sent:
        assert node.send(1, [body])
    return sent


# --- Order and chance ----------------------------------------------------------------------------------------


def trace(seed: int) -> str:
    """Everything that three nodes see in a rough minute, as one digest."""
    network = SimNetwork(seed, ROUGH)
    nodes = {name: network.transport(identity_of(name)) for name in "abc"}
    digest = hashlib.sha256()
    for name, node in nodes.items():
        node.listen(f"sim://{name}")
    for name, other in ("ab", "bc", "ca"):
        nodes[name].connect(f"sim://{other}")
    for turn in range(200):
        pass_time(network, 3 * MILLISECOND)
        if turn == 50:
            network.partition(["a"], ["b", "c"])
        if turn == 120:
            network.heal()
        if turn == 150:
            network.crash("c")
        for name, node in nodes.items():
            for event in node.receive(network.now_ns):
                what = event.body.hex() if isinstance(event, Received) else repr(event)
                digest.update(f"{network.now_ns} {name} {event.link} {what}\n".encode())
            for link in range(1, 3):
                node.send(link, [f"{turn} {name}".encode()])
    return digest.hexdigest()


def test_the_same_seed_gives_the_same_run_under_any_hash_seed() -> None:
    code = "from tests.transports.test_sim import trace; print(trace(5))"
    runs = []
    for hash_seed in ("0", "4242"):
        environment = {**os.environ, "PYTHONPATH": str(PROJECT), "PYTHONHASHSEED": hash_seed}
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(run.stdout.strip())
    assert runs[0] == runs[1]
    assert runs[0] != trace(6)


def test_calm_links_keep_their_contract() -> None:
    network = SimNetwork(1, CALM)
    a, b = pair(network)
    sent = send_numbers(a, 300)
    pass_time(network, SECOND)
    assert bodies(b) == sent


def test_rough_links_lose_double_and_reorder_single_bodies() -> None:
    """N1 to N3: what the protocol above has to survive."""
    network = SimNetwork(2, Faults(loss=0.1, duplication=0.1, reordering=0.1))
    a, b = pair(network)
    sent = send_numbers(a, 1000)
    pass_time(network, SECOND)
    came = bodies(b)
    assert set(came) < set(sent)
    assert 50 < 1000 - len(set(came)) == network.lost_bodies < 200
    assert 50 < len(came) - len(set(came)) < 200
    first_seen = list(dict.fromkeys(came))
    assert first_seen != sorted(first_seen, key=int)


def test_weather_may_change() -> None:
    network = SimNetwork(2, Faults(loss=1.0))
    a, b = pair(network)
    send_numbers(a, 10)
    network.faults = CALM
    assert a.send(1, [b"sun"])
    pass_time(network, SECOND)
    assert bodies(b) == [b"sun"]


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (DROP, [b"0", b"2"]),
        (Treatment(delay_ns=100 * MILLISECOND), [b"0", b"2", b"1"]),
        (Treatment(copies=3), [b"0", b"1", b"1", b"1", b"2"]),
        (Treatment(body=b"!"), [b"0", b"!", b"2"]),
    ],
    ids=["drop", "delay", "copies", "damage"],
)
def test_a_rule_picks_its_bodies(verdict: Treatment, expected: list[bytes]) -> None:
    network = SimNetwork(3)
    a, b = pair(network)
    seen = []

    def rule(sender: str, receiver: str, body: bytes) -> Treatment | None:
        seen.append((sender, receiver, body))
        return verdict if body == b"1" else None

    network.add_rule(rule)
    send_numbers(a, 3)
    assert seen == [("a", "b", b"0"), ("a", "b", b"1"), ("a", "b", b"2")]
    pass_time(network, SECOND)
    came = bodies(b)
    assert came == expected if verdict.copies == 1 else sorted(came) == expected
    network.remove_rule(rule)
    send_numbers(a, 3)
    pass_time(network, SECOND)
    assert bodies(b) == [b"0", b"1", b"2"]


# --- Partitions --------------------------------------------------------------------------------------------


def test_a_short_partition_holds_bodies_back() -> None:
    """A real connection sends again below us: nothing is lost, all comes late and in order."""
    network = SimNetwork(4)
    a, b = pair(network)
    assert a.send(1, [b"before"])
    network.partition(["a"], ["b"])
    sent = send_numbers(a, 5)
    pass_time(network, 400 * MILLISECOND)
    assert b.receive(0) == []
    network.heal()
    pass_time(network, 10 * MILLISECOND)
    assert bodies(b) == [b"before", *sent]
    pass_time(network, SECOND)
    assert not a.receive(0)


def test_a_long_partition_ends_the_link_at_both_ends_by_silence() -> None:
    network = SimNetwork(4)
    a, b = pair(network)
    network.partition(["b"], ["a"])
    send_numbers(a, 5)
    pass_time(network, 600 * MILLISECOND)
    assert reasons(a) == reasons(b) == ["nothing heard for 500 ms"]
    assert not a.send(1, [b"too late"])
    network.heal()
    pass_time(network, SECOND)
    assert a.receive(0) == b.receive(0) == []  # Nothing of the old link comes late.


def test_a_one_way_block_is_noticed_by_the_end_that_hears_nothing() -> None:
    """N6: a -> b is dead; b gives up and its goodbye reaches a."""
    network = SimNetwork(4)
    a, b = pair(network)
    network.block("a", "b")
    assert b.send(1, [b"this way works"])
    pass_time(network, 100 * MILLISECOND)
    assert bodies(a) == [b"this way works"]
    pass_time(network, SECOND)
    assert reasons(b) == ["nothing heard for 500 ms"]
    assert reasons(a) == ["the peer ended the link: nothing heard for 500 ms"]
    network.unblock("a", "b")
    a.connect("sim://b")
    pass_time(network, SECOND)
    assert [type(event) for event in a.receive(0)] == [LinkUp]


def test_a_flapping_block_starts_the_silence_anew() -> None:
    network = SimNetwork(4)
    a, b = pair(network)
    for _ in range(10):
        network.block("a", "b")
        pass_time(network, 400 * MILLISECOND)
        network.unblock("a", "b")
        pass_time(network, 10 * MILLISECOND)
    assert a.receive(0) == b.receive(0) == []


def test_dialling_through_a_partition_gives_up() -> None:
    network = SimNetwork(5)
    a, b = network.transport(identity_of("a")), network.transport(identity_of("b"))
    b.listen("sim://b")
    network.partition(["a"], ["b"])
    a.connect("sim://b")
    pass_time(network, 3 * SECOND)
    assert reasons(a) == ["no Hello from sim://b in 2000 ms"]
    network.heal()
    pass_time(network, SECOND)
    assert a.receive(0) == []
    assert not any(isinstance(event, Received) for event in b.receive(0))


# --- Nodes that stop -----------------------------------------------------------------------------------------


def test_a_crash_is_seen_soon_and_takes_what_was_queued() -> None:
    network = SimNetwork(6)
    a, b = pair(network)
    send_numbers(a, 3)
    network.crash("b")
    pass_time(network, 10 * MILLISECOND)
    assert reasons(a) == ["the peer's connection ended"]
    assert b.receive(0) == []
    assert not b.send(1, [b"from the dead"])
    again = network.transport(identity_of("b"))
    assert again.listen("sim://b") == "sim://b"
    a.connect("sim://b")
    pass_time(network, SECOND)
    assert [type(event) for event in again.receive(0)] == [LinkUp]
    with pytest.raises(UsageError, match="closed or crashed"):
        b.listen("sim://c")


def test_a_crash_behind_a_partition_is_seen_by_silence() -> None:
    network = SimNetwork(6)
    a, _ = pair(network)
    network.partition(["a"], ["b"])
    network.crash("b")
    pass_time(network, 400 * MILLISECOND)
    assert a.receive(0) == []
    pass_time(network, 200 * MILLISECOND)
    assert reasons(a) == ["nothing heard for 500 ms"]


def test_a_paused_node_is_given_up_and_learns_it_when_it_goes_on() -> None:
    """N8: the writer that was stopped; its own clock stood still, so it blames nobody meanwhile."""
    network = SimNetwork(7)
    a, b = pair(network)
    network.pause("a")
    assert b.send(1, [b"held"])
    pass_time(network, 400 * MILLISECOND)
    assert b.receive(0) == []
    pass_time(network, 10 * SECOND)
    assert reasons(b) == ["nothing heard for 500 ms"]
    assert a.receive(0) == []
    network.resume("a")
    pass_time(network, 10 * MILLISECOND)
    held, ended = a.receive(0)
    assert isinstance(held, Received)
    assert held.body == b"held"
    assert isinstance(ended, LinkDown)
    assert ended.reason == "the peer ended the link: nothing heard for 500 ms"


def test_a_short_pause_goes_unnoticed() -> None:
    network = SimNetwork(7)
    a, b = pair(network)
    network.pause("b")
    sent = send_numbers(a, 3)
    pass_time(network, 300 * MILLISECOND)
    network.resume("b")
    pass_time(network, SECOND)
    assert bodies(b) == sent
    assert a.receive(0) == []


def test_a_cut_ends_links_now_and_drops_what_is_on_the_way() -> None:
    network = SimNetwork(8)
    a, b = pair(network)
    send_numbers(a, 3)
    network.cut("b", "a")
    assert reasons(a) == reasons(b) == ["the connection was reset"]
    pass_time(network, SECOND)
    assert b.receive(0) == []


def test_a_node_may_dial_itself() -> None:
    network = SimNetwork(9)
    a = network.transport(identity_of("a"))
    a.listen("sim://a")
    a.connect("sim://a")
    pass_time(network, SECOND)
    assert [event.link for event in a.receive(0)] == [2, 1]
    assert a.send(1, [b"to the listener's end"])
    assert a.send(2, [b"to the dialler's end"])
    pass_time(network, SECOND)
    assert {event.link for event in a.receive(0)} == {1, 2}
    a.drop(1, "enough")
    pass_time(network, SECOND)
    assert [event.link for event in a.receive(0)] == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda network: network.advance(-1),
        lambda network: network.crash("nobody"),
        lambda network: network.transport(identity_of("a")),
    ],
)
def test_misuse_is_named(wrong: Callable[[SimNetwork], object]) -> None:
    network = SimNetwork(9)
    network.transport(identity_of("a"))
    with pytest.raises(UsageError):
        wrong(network)
