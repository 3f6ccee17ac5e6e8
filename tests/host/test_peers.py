"""Members' links: who is linked with whom, what is believed, and that nothing waits or repeats without an end."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from copy import deepcopy

import pytest
from msgspec.structs import replace

from embedbk.codec.messages import ErrorAnswer, encode_message
from embedbk.host.loop import clock_ns
from embedbk.host.peers import LINKS_PER_PEER_MAX, REDIAL_NS_MAX, REDIAL_NS_MIN, STRANGERS_MAX
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft_messages import MemberMessage, encode_member_message
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import AppendReply, Boot, Heartbeat, Message, PreVote
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.ports.transport import Transport
from embedbk.transports import open_transport
from embedbk.transports.sim_faults import ROUGH, Faults
from embedbk.transports.sim_transport import SimTransport
from tests.host.members import MS, TOKEN, Disk, Host, Members, configuration_of, member_of

BASE_MS = 500


def commit(world: Members, body: bytes = b"x", within_ms: int = 4 * BASE_MS) -> None:
    """A leader takes it, and all that run apply it."""
    leader = world.lead()
    leader.propose(world.now_ns, body)
    for _ in range(within_ms // 50):
        world.run(50)
        if all(body in host.applied for place, host in world.hosts.items() if place not in world.paused):
            return
    raise AssertionError({place: host.applied for place, host in world.hosts.items()})


def dialler(world: Members, name: str, **changes: object) -> SimTransport:
    """Somebody who speaks the bytes and is no `PeerLinks`."""
    who = Identity("metadata", name, member_of(name).incarnation, TOKEN, b"stranger")
    return world.network.transport(replace(who, **changes), place=f"at-{name}-{world.chance.getrandbits(30)}")


def link_of(world: Members, transport: SimTransport, to: str = "m1") -> tuple[int, list[object]]:
    link = transport.connect(f"sim://{to}")
    world.run(20)
    return link, list(transport.receive(world.now_ns))


def why_ended(events: list[object]) -> str:
    return next((event.reason for event in events if isinstance(event, LinkDown)), "")


# --- Links ---------------------------------------------------------------------------------------------------


def test_members_elect_and_commit_over_their_links() -> None:
    world = Members()
    commit(world)
    for host in world.hosts.values():
        assert len(host.peers.linked()) == 2


@pytest.mark.parametrize("seed", range(6))
def test_members_go_on_where_messages_are_lost_doubled_and_late(seed: int) -> None:
    """RAFT.md, 5: what is lost is sent again by the core; nothing here does."""
    world = Members(seed=seed, faults=Faults(loss=0.05, duplication=0.05, reordering=0.1))
    for number in range(5):
        commit(world, b"%d" % number, within_ms=30 * BASE_MS)
    world.network.faults = ROUGH
    commit(world, b"last", within_ms=30 * BASE_MS)


def test_the_link_that_was_dialled_from_here_is_the_one_that_is_used() -> None:
    """Peers: heartbeats say what came before them, so all that a member sends goes one way."""
    world = Members()
    world.lead()
    host = world.hosts["m1"]
    for process in host.peers._processes.values():
        best = process.best()
        assert best is not None
        assert best.is_dialled
        assert sorted(each.is_dialled for each in process.links) == [False, True]


def test_a_member_whose_address_nobody_knows_is_spoken_to_over_its_own_link() -> None:
    """A quorum that began with one has no address of it; whoever joins dials, and that is enough."""
    members = tuple(map(member_of, ("m1", "m2", "m3")))
    only = Configuration(members, addresses=((members[0], ("sim://m1",)),))
    world = Members(names=())
    world.configuration = only
    for name in ("m1", "m2"):
        world.start(name)
    commit(world)
    assert not world.hosts["m1"].peers._dialling
    assert len(world.hosts["m1"].peers.linked()) == 1


def test_a_link_that_ended_is_dialled_again_and_the_core_hears_of_it() -> None:
    """PeerLost: another process of the same member may come at once."""
    world = Members()
    commit(world, b"before")
    world.network.cut("m1", "m2")
    world.run(2 * BASE_MS)
    for one, other in (("m1", "m2"), ("m2", "m1")):
        assert world.hosts[one].lost == [world.hosts[other].boot]
        assert world.hosts[other].boot in world.hosts[one].peers.linked()
    commit(world, b"after")


def test_the_core_hears_of_a_link_that_was_dropped_here() -> None:
    world = Members()
    world.lead()
    host, other = world.hosts["m1"], world.hosts["m2"]
    for each in [up.link for up in host.peers._processes[other.boot.member].links]:
        host.peers.drop(each, "by hand")
    assert not host.peers.send(Message(1, host.boot, other.boot.member, AppendReply(True, 0)))
    world.run(10)
    assert host.lost == [other.boot]
    world.run(2 * BASE_MS)
    assert other.boot in host.peers.linked()


def test_while_one_of_its_links_lasts_a_process_is_not_lost() -> None:
    """PeerLost: the last link with this process is gone; until then it is heard over the other one."""
    world = Members()
    world.lead()
    host, other = world.hosts["m1"], world.hosts["m2"]
    dialled = next(up for up in host.peers._processes[other.boot.member].links if up.is_dialled)
    host.peers.drop(dialled.link, "by hand")
    assert host.peers.send(Message(host.raft.term, host.boot, other.boot.member, AppendReply(True, 0)))
    world.run(BASE_MS)
    assert not host.lost
    assert other.lost == []
    assert len(host.peers._processes[other.boot.member].links) == 2


def test_no_message_waits_behind_a_snapshot() -> None:
    """A link over which one is pulled is no way for messages, though it is the only one."""
    world = Members(("m1",))
    transport = dialler(world, "m9")
    link_of(world, transport)
    peers = world.hosts["m1"].peers
    message = Message(1, world.hosts["m1"].boot, member_of("m9"), AppendReply(True, 0))
    assert peers.send(message)
    (link,) = peers._links
    peers.leave_to_pulls(link)
    assert not peers.send(message)
    assert peers.unsent_count == 1


@pytest.mark.parametrize("token", [b"", b"another"])
def test_who_was_dialled_must_belong_to_this_cluster(token: bytes) -> None:
    """P10.3: a member that belongs to none yet learns of it by asking, not as a peer that is spoken to."""
    world = Members(names=())
    world.configuration = configuration_of("m1", "m2")
    host = world.start("m1")
    blank = Identity("metadata", "m2", member_of("m2").incarnation, token, b"12345678")
    world.network.transport(blank).listen("sim://m2")
    world.run(4 * BASE_MS)
    assert not host.peers.linked()
    assert "cluster" in host.peers.trouble(member_of("m2"))


def test_pauses_between_dials_grow_and_are_short_again_when_a_link_lasted() -> None:
    """P7.8's pauses: nobody is dialled in a hurry for ever, and a restart is noticed soon."""
    world = Members()
    world.lead()
    world.run(2 * REDIAL_NS_MAX // MS)
    world.crash("m3")
    dialling = world.hosts["m1"].peers._dialling[member_of("m3")]
    pauses = []
    for _ in range(4000):
        world.run(2)
        if not pauses or dialling.pause_ns != pauses[-1]:
            pauses.append(dialling.pause_ns)
    assert pauses[0] <= 2 * REDIAL_NS_MIN
    assert pauses == sorted(pauses)
    assert pauses[-1] == REDIAL_NS_MAX
    assert world.hosts["m1"].peers.trouble(member_of("m3")) == "nobody at sim://m3"
    world.start("m3")
    world.run(2 * REDIAL_NS_MAX // MS)
    assert dialling.link is not None
    assert world.hosts["m1"].peers.trouble(member_of("m3")) == ""


def test_a_flapping_link_is_not_dialled_at_once_each_time() -> None:
    """A link that comes up and ends at once is no sign of health: pauses go on growing."""
    world = Members()
    world.lead()
    ended = 0
    for _ in range(300):
        world.run(10)
        if len(world.hosts["m1"].peers._processes) == 2:
            world.network.cut("m1", "m2")
            ended += 1
    dials = world.hosts["m1"].transport._link_count
    assert world.hosts["m1"].peers._dialling[member_of("m2")].pause_ns == REDIAL_NS_MAX
    assert dials < 40, "3 s of flapping"


def test_the_next_address_has_its_turn_when_one_does_not_answer() -> None:
    configuration = configuration_of("m1", "m2", "m3")
    moved = tuple((member, ("sim://nowhere", *endpoints)) for member, endpoints in configuration.addresses)
    world = Members(names=())
    world.configuration = replace(configuration, addresses=moved)
    for name in ("m1", "m2", "m3"):
        world.start(name)
    commit(world)


@pytest.mark.parametrize("told", [3, 2])
def test_members_that_have_all_moved_find_each_other_where_they_are_told(told: int) -> None:
    """RAFT.md, 8: "what `--join` gives is tried as an address of each": no leader is there that could be told."""
    configuration = configuration_of("m1", "m2", "m3")
    moved = tuple((member, (f"sim://before-{member.name}",)) for member, _ in configuration.addresses)
    world = Members(names=())
    world.configuration = replace(configuration, addresses=moved)
    for name in ("m1", "m2", "m3")[:told]:
        world.start(name, seeds=tuple(f"sim://{each}" for each in ("m1", "m2", "m3")[:told] if each != name))
    commit(world, within_ms=20 * BASE_MS)
    linked = {name: {boot.member.name for boot in host.peers.linked()} for name, host in world.hosts.items()}
    assert linked == {name: set(world.hosts) - {name} for name in world.hosts}


def test_members_that_took_each_others_places_find_each_other_where_they_are_told() -> None:
    """RAFT.md, 8: "what `--join` gives is tried as an address of each"."""
    configuration = configuration_of("m1", "m2", "m3")
    of_another = {"m1": ("sim://m2",), "m2": ("sim://m3",), "m3": ("sim://m1",)}
    moved = tuple((member, of_another[member.name]) for member, _ in configuration.addresses)
    world = Members(names=())
    world.configuration = replace(configuration, addresses=moved)
    for name in ("m1", "m2", "m3"):
        world.start(name, seeds=tuple(f"sim://{each}" for each in ("m1", "m2", "m3") if each != name))
    commit(world, within_ms=20 * BASE_MS)
    for name, host in world.hosts.items():
        assert {boot.member.name for boot in host.peers.linked()} == set(world.hosts) - {name}


def test_where_another_member_answers_nobody_else_is_looked_for() -> None:
    """RAFT.md, 8: "but for places where another one answers"."""
    world = Members(names=())
    world.configuration = configuration_of("m1", "m2", "m3")
    for name in ("m1", "m2"):
        world.start(name, seeds=("sim://m1", "sim://m2", "sim://other"))
    world.lead()
    dialled: list[str] = []
    host = world.hosts["m1"]
    connect = host.transport.connect

    def noted(endpoint: str, expected: Identity | None = None) -> int:
        dialled.append(endpoint)
        return connect(endpoint, expected)

    host.transport.connect = noted  # type: ignore[method-assign]
    world.run(20_000)
    assert {"sim://m3", "sim://other"} <= set(dialled)
    assert "sim://m2" not in dialled


def test_an_address_that_the_transport_does_not_understand_costs_nobody_but_its_member() -> None:
    configuration = configuration_of("m1", "m2", "m3")
    strange = tuple(
        (member, ("tcp://no-sim:1",) if member.name == "m3" else endpoints)
        for member, endpoints in configuration.addresses
    )
    world = Members(names=())
    world.configuration = replace(configuration, addresses=strange)
    for name in ("m1", "m2"):
        world.start(name)
    commit(world)
    assert "is not understood" in world.hosts["m1"].peers.trouble(member_of("m3"))


def test_who_left_the_configuration_is_dialled_no_more() -> None:
    world = Members()
    world.lead()
    host = world.hosts["m1"]
    host.peers.follow(world.now_ns, configuration_of("m1", "m2"))
    assert list(host.peers._dialling) == [member_of("m2")]
    other = configuration_of("m1", "m2")
    host.peers.follow(world.now_ns, replace(other, addresses=((member_of("m2"), ("sim://elsewhere",)),)))
    assert host.peers._dialling[member_of("m2")].endpoints == ("sim://elsewhere",)


# --- Whose message it is -------------------------------------------------------------------------------------


def test_two_processes_of_one_member_and_the_one_that_is_linked_stays() -> None:
    """P7.9: a copied directory is started elsewhere; whoever hears the first one refuses the second, before it has
    voted or acknowledged anything."""
    world = Members()
    commit(world)
    disk = world.disks["m2"]
    copy = world.start("m2", place="copy", disk=deepcopy(disk))
    world.run(20 * BASE_MS)
    for name in ("m1", "m3"):
        assert world.hosts["m2"].boot in world.hosts[name].peers.linked()
        assert copy.boot not in world.hosts[name].heard
    assert not copy.peers.linked() or copy.heard == []
    assert "runs and is heard here (P7.9)" in copy.peers.trouble(member_of("m1"))
    del world.hosts["copy"]
    commit(world, b"still")


def test_the_second_process_is_taken_when_the_first_is_gone() -> None:
    """P7.9: a restart is no rival: the first one's links end with it."""
    world = Members()
    commit(world)
    first = world.hosts["m2"].boot
    world.crash("m2")
    world.start("m2")
    world.run(4 * BASE_MS)
    commit(world, b"again")
    assert first in world.hosts["m1"].lost
    assert world.hosts["m2"].boot in world.hosts["m1"].peers.linked()


def test_a_process_that_comes_back_finds_its_place_taken() -> None:
    """It stood still (SIGSTOP) while its copy was started: now the copy is heard, and it is refused."""
    world = Members()
    commit(world)
    world.pause("m2")
    world.run(4 * BASE_MS)
    copy = world.start("m2", place="copy", disk=deepcopy(world.disks["m2"]))
    world.run(6 * BASE_MS)
    assert copy.boot in world.hosts["m1"].peers.linked()
    heard = len(world.hosts["m1"].heard)
    world.resume("m2")
    world.run(10 * BASE_MS)
    assert world.hosts["m2"].boot not in world.hosts["m1"].heard[heard:]
    assert "(P7.9)" in world.hosts["m2"].peers.trouble(member_of("m1"))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cluster_token": b"another"}, "wrong cluster"),
        ({"incarnation": b"older" + bytes(11)}, ""),
        ({"node_id": "m1", "incarnation": member_of("m1").incarnation}, "a copy of its directory, or itself"),
        ({}, "another process of m2 runs"),
    ],
)
def test_who_may_have_a_link(changes: dict[str, object], reason: str) -> None:
    """Hello's role, token, name, incarnation and start say whose link it is."""
    world = Members()
    world.lead()
    _, events = link_of(world, dialler(world, "m2", **changes))
    ended = why_ended(events)
    assert (reason in ended) if reason else not ended
    assert world.hosts["m2"].boot in world.hosts["m1"].peers.linked()


@pytest.mark.parametrize("changes", [{"role": "client"}, {"cluster_token": b""}, {"start": b""}])
def test_who_is_no_peer_is_left_to_the_others_and_says_nothing_to_the_core(
    changes: dict[str, object],
) -> None:
    """A link of somebody who has no token yet may ask, and is no member's."""
    world = Members()
    world.lead()
    transport = dialler(world, "m9", **changes)
    link, events = link_of(world, transport)
    assert any(isinstance(event, LinkUp) for event in events)
    assert not any(boot.member.name == "m9" for boot in world.hosts["m1"].peers.linked())
    said = Message(9, Boot(member_of("m9"), b"stranger"), member_of("m1"), PreVote(10, 0, 0))
    transport.send(link, encode_member_message(said))
    world.run(20)
    assert "only a member of this cluster" in why_ended(list(transport.receive(world.now_ns)))
    assert said.sender not in world.hosts["m1"].heard


def test_a_member_of_another_cluster_is_refused_also_where_it_was_dialled() -> None:
    """P10.3: an address leads to somebody else's member; its token is not ours."""
    world = Members(names=())
    world.configuration = configuration_of("m1", "m2", "m3")
    for name, token in (("m1", TOKEN), ("m2", TOKEN), ("m3", b"another")):
        world.start(name, token=token)
    world.run(2 * BASE_MS)
    assert not any(boot.member.name == "m3" for boot in world.hosts["m1"].peers.linked())
    assert "wrong cluster" in world.hosts["m1"].peers.trouble(member_of("m3"))


@pytest.mark.parametrize("what", ["sender", "nonce", "receiver", "bytes", "kind"])
def test_a_message_that_is_not_what_its_link_says_ends_the_link(what: str) -> None:
    """P7.2, P10.3: every message's sender is the one of Hello, its receiver this very member."""
    world = Members()
    world.lead()
    stranger = member_of("m9")
    transport = dialler(world, "m9")
    link, events = link_of(world, transport)
    assert not why_ended(events)
    before = world.hosts["m1"].raft.term
    sender, receiver = Boot(stranger, b"stranger"), member_of("m1")
    if what == "sender":
        sender = Boot(member_of("m2"), b"stranger")
    elif what == "nonce":
        sender = Boot(stranger, b"another!")
    elif what == "receiver":
        receiver = MemberId("m1", bytes(16))
    body = encode_member_message(Message(before + 9, sender, receiver, Heartbeat(0, 1)))
    if what == "bytes":
        body = [b"no message at all"]
    elif what == "kind":
        body = encode_message(1, ErrorAnswer("not for a member"))
    transport.send(link, body)
    transport.send(
        link,
        encode_member_message(
            Message(before + 9, Boot(stranger, b"stranger"), member_of("m1"), Heartbeat(0, 1))
        ),
    )
    world.run(20)
    assert why_ended(list(transport.receive(world.now_ns)))
    assert world.hosts["m1"].raft.term == before, "what follows on such a link is not heard"


def test_what_follows_on_a_link_that_was_dropped_is_not_heard() -> None:
    """Two bodies of one turn: the first ends the link, so the second is nobody's."""
    world = Members(("m1",))
    transport = dialler(world, "m9")
    link_of(world, transport)
    host = world.hosts["m1"]
    (link,) = host.peers._links
    sender = Boot(member_of("m9"), b"stranger")
    good = MemberMessage(9, sender, host.boot.member, Heartbeat(0, 1))
    assert host.peers.on_message(world.now_ns, link, good) is not None
    assert host.peers.on_message(world.now_ns, link, replace(good, sender=host.boot)) is None
    assert host.peers.on_message(world.now_ns, link, good) is None


# --- Bounds --------------------------------------------------------------------------------------------------


def test_strangers_are_bounded_and_members_have_their_place_all_the_same() -> None:
    """Unknown incarnations may be answered (Retired), never without a bound."""
    world = Members(("m1", "m2"))
    refused = 0
    for number in range(STRANGERS_MAX + 3):
        _, events = link_of(world, dialler(world, f"s{number}"))
        refused += f"{STRANGERS_MAX} processes are linked" in why_ended(events)
    assert refused == 3
    commit(world)
    assert len(world.hosts["m1"].peers._processes) == STRANGERS_MAX + 1


def test_one_process_has_a_few_links_and_the_newest_stay() -> None:
    world = Members(("m1",))
    transport = dialler(world, "m9")
    links = [link_of(world, transport)[0] for _ in range(LINKS_PER_PEER_MAX)]
    newest, events = link_of(world, transport)
    assert [event.link for event in events if isinstance(event, LinkDown)] == [links[0]]
    assert len(world.hosts["m1"].peers._links) == LINKS_PER_PEER_MAX
    assert newest not in links


def test_a_message_that_a_link_cannot_take_is_gone_and_the_core_sends_again() -> None:
    """No queue grows beside the links': a peer that reads slowly costs its window."""
    world = Members()
    leader = world.lead()
    slow = next(name for name in world.hosts if world.hosts[name] is not leader)
    world.network.narrow[slow] = 1000
    for number in range(200):
        leader.propose(world.now_ns, b"%d" % number + bytes(500))
        world.run(0.1)
    assert leader.peers.unsent_count
    world.network.narrow.clear()
    commit(world, b"last", within_ms=20 * BASE_MS)
    assert len(world.hosts[slow].applied) == 201


def test_a_black_holed_peer_does_not_hold_up_the_others() -> None:
    """NEWER: a peer that swallows everything: two of three go on, and it is linked anew when it answers."""
    world = Members()
    leader = world.lead()
    hole = next(name for name in world.hosts if world.hosts[name] is not leader)
    for name in world.hosts:
        if name != hole:
            world.network.block(name, hole)
            world.network.block(hole, name)
    for number in range(20):
        leader.propose(world.now_ns, b"%d" % number)
        world.run(20)
        assert leader.applied[-1] == b"%d" % number
    world.run(10 * BASE_MS)
    assert world.hosts[hole].boot in leader.lost
    world.network.heal()
    commit(world, b"all", within_ms=10 * BASE_MS)


def test_a_quorum_of_one_dials_nobody_and_has_nothing_due() -> None:
    world = Members(("m1",))
    world.run(BASE_MS)
    host = world.hosts["m1"]
    assert host.peers.deadline_ns() is None
    assert host.transport._link_count == 0
    commit(world)


# --- Over sockets --------------------------------------------------------------------------------------------


class Sockets:
    """Three members over ZeroMQ, stepped by hand with the real clock."""

    def __init__(self) -> None:
        self.transports: dict[str, Transport] = {}
        self.boots: dict[str, Boot] = {}
        endpoints: dict[str, str] = {}
        for name in ("m1", "m2", "m3"):
            self._open(name)
            endpoints[name] = self.transports[name].listen("tcp://127.0.0.1:0")
        members = tuple(map(member_of, endpoints))
        at = tuple((member, (endpoints[member.name],)) for member in members)
        self.configuration = Configuration(members, addresses=at)
        self.disks = {name: Disk() for name in endpoints}
        self.hosts = {name: self._host(name) for name in endpoints}

    def _open(self, name: str) -> None:
        who = Identity("metadata", name, member_of(name).incarnation, TOKEN, os.urandom(8))
        self.transports[name] = open_transport("tcp", who)
        self.boots[name] = Boot(member_of(name), who.start)

    def _host(self, name: str) -> Host:
        transport, boot = self.transports[name], self.boots[name]
        return Host(transport, boot, self.configuration, self.disks[name], now_ns=clock_ns())

    def restart(self, name: str) -> None:
        self.transports[name].close()
        self._open(name)
        self.transports[name].listen(self.configuration.endpoints_of(member_of(name))[0])
        self.hosts[name] = self._host(name)

    def until(self, done: Callable[[], bool]) -> None:
        end_ns = clock_ns() + 30_000_000_000
        while not done():
            assert clock_ns() < end_ns
            filenos = [each for host in self.hosts.values() for each in host.transport.filenos()]
            select.select(filenos, [], [], 0.005)
            for host in self.hosts.values():
                host.step(clock_ns())

    def leader(self) -> Host | None:
        leading = [host for host in self.hosts.values() if host.raft.role is Role.LEADER]
        return max(leading, key=lambda host: host.raft.term, default=None)

    def commit(self, body: bytes) -> None:
        """Proposed again, as a client does, when its leader lost its place."""
        asked: set[int] = set()

        def done() -> bool:
            leader = self.leader()
            if leader is not None and leader.raft.term not in asked:
                asked.add(leader.raft.term)
                leader.propose(clock_ns(), body)
            return all(body in host.applied for host in self.hosts.values())

        self.until(done)

    def close(self) -> None:
        for transport in self.transports.values():
            transport.close()


def test_members_agree_over_zeromq_and_a_restarted_one_comes_back() -> None:
    world = Sockets()
    try:
        world.commit(b"first")
        leader = world.leader()
        assert leader is not None
        name = next(name for name, host in world.hosts.items() if host is not leader)
        before = world.boots[name]
        world.restart(name)
        world.commit(bytes(1 << 20))
        assert before in leader.lost
        assert world.boots[name] in leader.peers.linked()
    finally:
        world.close()
