"""Members of a quorum that speak over a transport: `PeerLinks` and the core on a disk that is always in time.

What a whole member is beside that (store, commands, clients) is not here: only who hears whom.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field

from embedbk.codec.messages import decode_message
from embedbk.errors import PeerError
from embedbk.host.peers import PeerLinks
from embedbk.metadata.quorum import Configuration, MemberId
from embedbk.metadata.raft import Raft
from embedbk.metadata.raft_log import RaftLog
from embedbk.metadata.raft_messages import MemberMessage
from embedbk.metadata.raft_state import Role
from embedbk.metadata.raft_vocabulary import Apply, Boot, Durable, Entry, Event, Persist, Propose, Send, Tick
from embedbk.ports.links import Identity, LinkDown, LinkUp, Received
from embedbk.ports.transport import Transport
from embedbk.transports.sim import SimNetwork
from embedbk.transports.sim_faults import CALM, Faults

MS = 1_000_000
TOKEN = b"t" * 16
NAMES = ("m1", "m2", "m3")


def member_of(name: str) -> MemberId:
    return MemberId(name, name[:1].encode() * 14 + name[1:].zfill(2).encode())


def configuration_of(*names: str) -> Configuration:
    members = tuple(map(member_of, names))
    return Configuration(members, addresses=tuple((each, (f"sim://{each.name}",)) for each in members))


@dataclass
class Disk:
    term: int = 0
    vote: Boot | None = None
    entries: list[Entry] = field(default_factory=list)


class Host:
    """One process of a member."""

    def __init__(
        self,
        transport: Transport,
        boot: Boot,
        configuration: Configuration,
        disk: Disk,
        *,
        now_ns: int = 0,
        seed: int = 1,
        token: bytes = TOKEN,
        seeds: tuple[str, ...] = (),
    ) -> None:
        log = RaftLog(configuration, entries=disk.entries)
        chance = random.Random(f"{boot.member.name} {seed}")
        self.raft = Raft(boot, log, term=disk.term, vote=disk.vote, now_ns=now_ns, chance=chance)
        self.peers = PeerLinks(transport, boot, token, seeds)
        self.boot = boot
        self.transport = transport
        self.disk = disk
        self.applied: list[bytes] = []
        self.lost: list[Boot] = []
        self.heard: list[Boot] = []

    def step(self, now_ns: int) -> None:
        self.peers.follow(now_ns, self.raft.configuration)
        for event in self.transport.receive(now_ns):
            match event:
                case LinkUp():
                    self.peers.on_link_up(now_ns, event)
                case LinkDown():
                    lost = self.peers.on_link_down(now_ns, event)
                    if lost is not None:
                        self.lost.append(lost.boot)
                        self.take(lost)
                case Received(link, body):
                    self._take_body(now_ns, link, body)
        self.peers.tick(now_ns)
        if self.raft.deadline_ns is not None and now_ns >= self.raft.deadline_ns:
            self.take(Tick(now_ns))

    def _take_body(self, now_ns: int, link: int, body: memoryview) -> None:
        try:
            control = decode_message(body).control
            if not isinstance(control, MemberMessage):
                raise PeerError(f"a {type(control).__name__} is not for a member")
        except PeerError as broken:
            self.peers.drop(link, str(broken))
            return
        received = self.peers.on_message(now_ns, link, control)
        if received is not None:
            self.heard.append(received.message.sender)
            self.take(received)

    def take(self, event: Event) -> None:
        events = [event]
        while events:
            event = events.pop(0)
            for effect in self.raft.step(event):
                match effect:
                    case Persist():
                        del self.disk.entries[effect.keep_index :]
                        self.disk.entries.extend(effect.entries)
                        self.disk.term, self.disk.vote = effect.term, effect.vote
                        events.append(Durable(event.now_ns, effect.sequence))
                    case Send(message):
                        self.peers.send(message)
                    case Apply(entries):
                        self.applied += [entry.body for entry in entries if isinstance(entry.body, bytes)]

    def propose(self, now_ns: int, *bodies: bytes) -> None:
        self.take(Propose(now_ns, 1, bodies))

    def deadline_ns(self) -> int:
        due = [self.raft.deadline_ns, self.peers.deadline_ns(), self.transport.deadline_ns()]
        return min((each for each in due if each is not None), default=sys.maxsize)


class Members:
    """Some of them on one simulated network."""

    def __init__(self, names: tuple[str, ...] = NAMES, *, seed: int = 1, faults: Faults = CALM) -> None:
        self.network = SimNetwork(seed, faults)
        self.configuration = configuration_of(*names)
        self.chance = random.Random(seed)
        self.hosts: dict[str, Host] = {}
        self.disks = {name: Disk() for name in names}
        self.paused: set[str] = set()
        for name in names:
            self.start(name)

    @property
    def now_ns(self) -> int:
        return self.network.now_ns

    def start(
        self,
        name: str,
        *,
        place: str = "",
        disk: Disk | None = None,
        token: bytes = TOKEN,
        incarnation: bytes = b"",
        configuration: Configuration | None = None,
        seeds: tuple[str, ...] = (),
    ) -> Host:
        """A process of member `name`; at another place: a second one, on a copy of its directory."""
        place = place or name
        member = MemberId(name, incarnation or member_of(name).incarnation)
        boot = Boot(member, self.chance.randbytes(8))
        who = Identity("metadata", name, member.incarnation, token, boot.nonce)
        transport = self.network.transport(who, place=place)
        transport.listen(f"sim://{place}")
        found = disk or self.disks.get(name) or Disk()
        host = Host(
            transport,
            boot,
            configuration or self.configuration,
            found,
            now_ns=self.now_ns,
            seed=self.chance.getrandbits(30),
            token=token,
            seeds=seeds,
        )
        self.hosts[place] = host
        return host

    def crash(self, place: str) -> None:
        self.network.crash(place)
        del self.hosts[place]

    def pause(self, place: str) -> None:
        self.network.pause(place)
        self.paused.add(place)

    def resume(self, place: str) -> None:
        self.network.resume(place)
        self.paused.discard(place)

    def run(self, ms: float) -> None:
        end_ns = self.now_ns + int(ms * MS)
        while True:
            running = [host for place, host in self.hosts.items() if place not in self.paused]
            due_ns = [host.deadline_ns() for host in running]
            next_ns = self.network.next_event_ns()
            if next_ns is not None:
                due_ns.append(next_ns)
            due = max(min(due_ns, default=end_ns), self.now_ns)
            if due >= end_ns:
                self.network.advance(end_ns)
                return
            self.network.advance(due)
            for host in running:
                if host.deadline_ns() <= self.now_ns:
                    host.step(self.now_ns)

    def leader(self) -> Host | None:
        leading = [host for host in self.hosts.values() if host.raft.role is Role.LEADER]
        return max(leading, key=lambda host: host.raft.term, default=None)

    def lead(self) -> Host:
        for _ in range(40):
            leader = self.leader()
            if leader is not None and leader.raft.commit_index >= leader.raft.log.first_index:
                return leader
            self.run(250)
        raise AssertionError("nobody leads")
