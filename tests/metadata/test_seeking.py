"""Which member a client asks next: the machine alone, and clients of several members of which one leads."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from embedbk.codec.metadata_messages import (
    AllocIds,
    Get,
    MetadataReply,
    MetadataRequest,
    NotLeader,
    Put,
    Refusal,
    Result,
    Txn,
    TxnDone,
)
from embedbk.metadata.agreed_log import AgreedLog
from embedbk.metadata.client import IN_FLIGHT_MAX
from embedbk.metadata.raft import Raft
from embedbk.metadata.seeking import HOPS_MAX, PAUSE_NS_MAX, PAUSE_NS_MIN, PAUSE_SHARE, Seeker
from embedbk.metadata.vocabulary import Connected, Disconnected
from tests.metadata.world import MS, SECOND, Peer, World, through_the_wire

NAMES = ("m1", "m2", "m3")


def at(name: str) -> str:
    return f"at {name}"


def dial(seeker: Seeker, now_ns: int = 0) -> str:
    found = seeker.dial(max(now_ns, seeker.dial_at_ns or 0))
    assert found is not None
    return found


def test_every_address_has_its_turn_and_pauses_grow_with_the_time_in_vain() -> None:
    seeker = Seeker(["a", "b", "c", "a"])
    now, dialled, pauses = 0, [], []
    for _ in range(90):
        before = now
        now = max(now, seeker.dial_at_ns or 0)
        pauses.append(now - before)
        dialled.append(dial(seeker, now))
        assert seeker.dial(now) is None, "one at a time"
        seeker.left(now)
    assert dialled == ["a", "b", "c"] * 30
    assert pauses[1:] == sorted(pauses[1:])
    assert pauses[1:4] == [PAUSE_NS_MIN] * 3
    for number, pause in enumerate(pauses[1:-1], 1):
        assert pause <= max(PAUSE_NS_MIN, sum(pauses[:number]) // PAUSE_SHARE), "a share of what was waited"
    assert pauses[-1] == PAUSE_NS_MAX
    dial(seeker)
    seeker.answered()
    seeker.left(now)
    assert seeker.dial_at_ns == now + PAUSE_NS_MIN, "and begin anew behind an answer"


def test_a_name_is_followed_at_once_and_its_failure_costs_nobody_the_turn() -> None:
    """m2 names m1, which is gone, for ever; m3 leads and is reached all the same."""
    seeker = Seeker(["m1", "m2", "m3"])
    now = 5 * SECOND
    assert dial(seeker, now) == "m1"
    seeker.left(now)
    assert dial(seeker) == "m2"
    seeker.redirected(["m1"], [])
    seeker.left(now)
    assert seeker.dial_at_ns == now
    assert dial(seeker, now) == "m1"
    seeker.left(now)
    assert seeker.dial_at_ns is not None
    assert seeker.dial_at_ns > now
    assert dial(seeker) == "m3"


@pytest.mark.parametrize("seed", range(20))
def test_every_address_has_its_turn_in_whatever_order_members_are_told(seed: int) -> None:
    """P10.1: any member's address is enough. One that left tells m2 alone, the others tell all three: counted by the
    place in what was told last, m1 was followed by m3 and m3 by m1, and m2, which leads, was never dialled."""
    told = {"m1": ["m2"], "m3": ["m1", "m2", "m3"]}
    chance = random.Random(seed)
    seeker = Seeker(NAMES)
    dialled = []
    for _ in range(60):
        dialled.append(at := dial(seeker))
        if seed == 0:
            seeker.redirected([], told.get(at, []))
        else:
            seeker.redirected([], chance.sample(NAMES, chance.randint(0, 3)))
        seeker.left(0)
    for first in range(len(dialled) - 4):
        assert set(dialled[first : first + 5]) == set(NAMES)


def test_members_that_name_each_other_are_no_busy_loop() -> None:
    seeker = Seeker(["m1", "m2"])
    now, dials = 0, 0
    for _ in range(200):
        now = max(now, seeker.dial_at_ns or 0)
        here = dial(seeker, now)
        dials += 1
        seeker.redirected([here, "m2" if here == "m1" else "m1"], ["m1", "m2"])
        seeker.left(now)
    assert now >= dials // (1 + HOPS_MAX) * PAUSE_NS_MAX // 2
    seeker.redirected([f"x{n}" for n in range(500)], [f"x{n}" for n in range(500)])
    assert len(seeker.addresses) <= 66, "what is told is bounded"


def test_what_a_leader_told_outlives_what_others_say() -> None:
    """A member that was taken out names those of its time: they are asked too, and replace nobody."""
    seeker = Seeker(["given"])
    seeker.learn(["m2", "m3"])
    seeker.learn([])
    seeker.redirected([], ["m1", "given"])
    assert seeker.learnt == ("m2", "m3")
    assert seeker.addresses == ("m2", "m3", "m1", "given")
    assert seeker.patience_ns(0, SECOND) == SECOND
    assert seeker.patience_ns(8 * SECOND, SECOND) == 4 * SECOND
    assert Seeker(["alone"]).patience_ns(0, SECOND) is None, "nobody else to go to"


class ToldLog(AgreedLog):
    """Of one voter, in whose place the world tells of several."""

    def __init__(self, raft: Raft, world: Members) -> None:
        super().__init__(raft)
        self.world = world

    @property
    def members(self) -> tuple[str, ...]:
        return self.world.voters


class Members(World):
    """Three addresses; behind one of them stands the member that leads. What became durable is what all have, so a
    change of leaders is a start of the member from the journal."""

    def __init__(self, **settings: Any) -> None:
        self.leader = "m1"
        # "up", "gone", "silent", "lost" (it knows of no leader), or the name that it gives, rightly or wrongly.
        self.state = dict.fromkeys(NAMES, "up")
        self.voters = tuple(map(at, NAMES))  # As the leader tells.
        self.held: list[tuple[Peer, int | None, Any]] = []  # With the link, of members that are silent.
        super().__init__(**settings)

    def seeker(self, name: str, *known: str, ttl_ms: int = 6_000) -> Peer:
        """A client that was given the addresses of these members."""
        peer = self.peer(name, ttl_ms=ttl_ms, connect=False)
        peer.client.seek([at(each) for each in known])
        self.settle()
        return peer

    def lead(self, name: str, *, before: str = "up") -> None:
        """Another member leads from here on; what becomes of the one before. Its last answers did not arrive."""
        for peer in self.peers.values():
            if self.of(peer) == self.leader:
                peer.to_client.clear()
        for peer in self.peers.values():
            if self.of(peer) == name:
                self.disconnect(peer)  # It starts: what it knew of its links is gone.
        past, self.leader = self.leader, name
        self.start_member(self.journal.crash())
        self.become(past, before)
        self.become(name, "up")

    def log_around(self, raft: Raft) -> AgreedLog:
        return ToldLog(raft, self)

    def become(self, name: str, state: str) -> None:
        """Links of who is gone end; who was silent reads what has come meanwhile."""
        self.state[name] = state
        held, self.held = self.held, []
        for peer, link, message in held:
            if link != peer.link or self.of(peer) != name:
                self.held += [(peer, link, message)] * (link == peer.link)
            elif isinstance(message, MetadataRequest):
                peer.to_member.append(message)
            else:
                peer.to_client.append(message)
        for peer in self.peers.values():
            if peer.link is not None and self.state[self.of(peer)] == "gone":
                self.disconnect(peer)

    def of(self, peer: Peer) -> str:
        return peer.at.removeprefix("at ")

    def dial(self, peer: Peer, endpoint: str) -> None:
        state = self.state.get(endpoint.removeprefix("at "), "gone")
        if state == "gone":
            self.step(peer, Disconnected(self.now_ns))
        elif state != "silent":
            self.link_count += 1
            peer.link = self.link_count
            self.links[peer.link] = peer
            self.step(peer, Connected(self.now_ns))

    def hang_up(self, peer: Peer) -> None:
        if peer.link is None:
            self.step(peer, Disconnected(self.now_ns))
        else:
            self.disconnect(peer)

    def deliver_request(self, peer: Peer) -> None:
        here = self.of(peer)
        state = self.state[here]
        if state == "silent":
            self.held.append((peer, peer.link, peer.to_member.popleft()))
        elif here == self.leader:
            super().deliver_request(peer)
        else:
            request = peer.to_member.popleft()
            named = {"up": self.leader, "lost": ""}.get(state, state)
            told = NotLeader(named, (at(named),) if named else (), tuple(map(at, NAMES)))
            reply = MetadataReply(request.session, request.sequence, told)
            peer.to_client.append(through_the_wire(reply))

    def deliver_answer(self, peer: Peer) -> None:
        if self.state[self.of(peer)] == "silent":
            self.held.append((peer, peer.link, peer.to_client.popleft()))
        else:
            super().deliver_answer(peer)


def put(key: str, value: bytes = b"") -> Txn:
    return Txn([], [Put(key, value)])


@pytest.mark.parametrize("given", NAMES)
def test_any_members_address_is_enough(given: str) -> None:
    """No time passes: the name is followed at once."""
    world = Members()
    world.lead("m2")
    peer = world.seeker("a", given)
    assert world.do(peer, put("/x")) == TxnDone(True, 1)
    assert [endpoint for _, endpoint in peer.dials] == [at(given), *([at("m2")] * (given != "m2"))]


def test_the_session_and_all_that_is_under_way_live_through_a_change_of_leaders() -> None:
    """P2.2, P10.1: no error is seen, each request has the outcome of its one run, in the order of its client, also of
    more than a first window of them."""
    world = Members()
    peer = world.seeker("a", "m1")
    world.watch(peer, "/k/")
    for _ in range(300):  # The window opens.
        world.ask(peer, AllocIds(1))
    world.settle()
    world.is_committing = False
    tokens = [world.ask(peer, put(f"/k/{n:03}")) for n in range(IN_FLIGHT_MAX + 40)]
    for _ in range(100):
        world.deliver_request(peer)
    world.commit(50)  # Half of it is durable; of all that no answer arrives.
    world.lead("m3", before="gone")
    assert peer.link is None
    tokens += [world.ask(peer, put(f"/k/{n}")) for n in range(900, 910)]
    world.is_committing = True
    world.advance(200 * MS)
    assert [peer.results[token] for token in tokens] == [TxnDone(True, n + 1) for n in range(len(tokens))]
    assert (len(peer.sessions), peer.lost) == (1, [])
    assert len(peer.views["/k/"]) == len(tokens)
    assert len([record.key for record in peer.changes["/k/"]]) == len(tokens), "and none is shown twice"


def test_addresses_are_learnt_while_a_session_lives() -> None:
    """A cluster that grew: its first member goes, and its clients know those that came, though nobody told them by
    hand."""
    world = Members()
    world.voters = ()
    world.start_member(())
    peer = world.seeker("a", "m1")
    world.do(peer, put("/x"))
    assert peer.client.members == ()
    world.voters = (at("m1"), at("m2"))
    world.advance(3 * SECOND)
    assert peer.client.members == world.voters
    world.lead("m2", before="gone")
    world.advance(SECOND)
    assert peer.client.session
    assert (peer.lost, len(peer.sessions)) == ([], 1)


def test_a_leader_that_is_silent_is_left_before_the_session_ends() -> None:
    """Stopped, or behind a wall: its link stays up and nothing comes. The session is renewed by who leads instead."""
    world = Members()
    peer = world.seeker("a", *NAMES)
    assert world.do(peer, put("/lock")) == TxnDone(True, 1)
    world.lead("m2", before="silent")
    token = world.ask(peer, put("/x"))
    world.advance(3 * SECOND)
    assert peer.results[token] == TxnDone(True, 2)
    assert (peer.lost, len(peer.sessions)) == ([], 1)


@pytest.mark.parametrize("without_ms", [150, 700, 2_000, 6_000])
def test_who_leads_in_the_end_is_found_soon(without_ms: int) -> None:
    """P10.1: the leader is gone, and for a while nobody leads. The next one is asked within two pauses, each at most
    a tenth of that while, however often those who do not lead were asked in vain."""
    world = Members()
    peer = world.seeker("a", *NAMES, ttl_ms=60_000)
    assert world.do(peer, put("/x")) == TxnDone(True, 1)
    world.become("m1", "gone")
    for name in ("m2", "m3"):
        world.become(name, "m1")  # Both name it still.
    world.leader = ""
    token = world.ask(peer, put("/x"))
    world.advance(without_ms * MS)
    assert token not in peer.results
    world.lead("m3", before="gone")
    world.become("m2", "up")
    most_ms = 2 * max(PAUSE_NS_MIN // MS, without_ms // PAUSE_SHARE) + 50
    world.advance(most_ms * MS)
    assert peer.results[token] == TxnDone(True, 2)


def test_a_member_that_is_only_slow_is_waited_for_in_the_end() -> None:
    """Patience grows with each round in vain: what answers after four seconds is heard."""
    world = Members()
    peer = world.seeker("a", *NAMES, ttl_ms=60_000)
    token = world.ask(peer, put("/x"))
    late: list[tuple[int, int, MetadataRequest]] = []
    at_once = world.deliver_request

    def slowly(to: Peer) -> None:
        if world.of(to) == "m1" and to.link is not None:
            late.append((world.now_ns + 4 * SECOND, to.link, to.to_member.popleft()))
        else:
            at_once(to)

    world.deliver_request = slowly  # type: ignore[method-assign]
    for _ in range(1200):
        world.advance(50 * MS)
        while late and late[0][0] <= world.now_ns:
            _, link, request = late.pop(0)
            if link == peer.link:
                peer.to_member.appendleft(request)
                World.deliver_request(world, peer)
        if token in peer.results:
            break
    assert peer.results[token] == TxnDone(True, 1)
    assert len(peer.dials) < 60


def test_a_cluster_that_is_away_is_asked_less_and_less() -> None:
    """All gone, then all without a leader, then all silent: no busy loop in any of it, and an end when one leads."""
    for state in ("gone", "lost", "silent", "m2"):
        world = Members()
        world.leader = ""
        world.state = dict.fromkeys(NAMES, state)
        peer = world.seeker("a", *NAMES)
        token = world.ask(peer, Get("/x"))
        world.advance(60 * SECOND)
        assert len(peer.dials) <= 60 * (1 + HOPS_MAX) + 30, state
        assert len(peer.dials) >= 10, state
        world.state = dict.fromkeys(NAMES, "up")
        world.leader = "m3"
        world.advance(20 * SECOND)
        assert token in peer.results, state


def test_a_close_is_carried_over_to_the_leader() -> None:
    world = Members()
    peer = world.seeker("a", *NAMES)
    world.do(peer, Txn([], [Put("/e", b"", True)]))
    world.lead("m2")
    world.close(peer)
    world.settle()
    assert peer.is_closed
    assert world.member.catalog.get("/e").record is None


class Story:
    """Clients that put in order while leaders change and members come and go, in any way that a seed has."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = Members(seed=seed)
        self.asked: dict[str, list[int]] = {}
        self.seen: Counter[str] = Counter()
        for name in "ab":
            known = self.chance.sample(NAMES, self.chance.choice([1, 2, 3]))
            peer = self.world.seeker(name, *known, ttl_ms=self.chance.choice([1_000, 6_000, 60_000]))
            self.asked[name] = []
            self.world.watch(peer, "/k/")

    def act(self) -> None:
        world, chance = self.world, self.chance
        action = chance.choices(["put", "move", "lead", "member", "time"], [20, 40, 1, 2, 8])[0]
        peer = world.peers[chance.choice("ab")]
        if action == "put":
            for _ in range(chance.choice([1, 1, 1, 20])):
                self.asked[peer.name].append(
                    world.ask(peer, put(f"/k/{peer.name}{len(self.asked[peer.name])}"))
                )
        elif action == "move":
            self.move(peer)
        elif action == "lead":
            name = chance.choice([each for each in NAMES if each != world.leader])
            before = chance.choice(["up", "gone", "silent", "lost", name])
            world.lead(name, before=before)
            self.seen[f"before: {'named' if before == name else before}"] += 1
        elif action == "member":
            name = chance.choice([each for each in NAMES if each != world.leader])
            world.become(name, chance.choice(["up", "gone", "silent", "lost", *NAMES]))
        elif action == "time":
            world.now_ns += chance.choice([10 * MS, 100 * MS, 700 * MS])
            world.tick_what_is_due()

    def move(self, peer: Peer) -> None:
        world = self.world
        for _ in range(self.chance.choice([1, 5, 40])):
            kind = self.chance.randrange(3)
            if kind == 0 and peer.to_member:
                world.deliver_request(peer)
            elif kind == 1 and peer.to_client:
                world.deliver_answer(peer)
            elif kind == 2 and world.journal.pending:
                world.commit(self.chance.randrange(1, 9))

    def finish(self) -> None:
        for name in NAMES:
            self.world.become(name, "up")
        self.world.advance(60 * SECOND)

    def check(self) -> None:
        """Each request has its outcome; those that are known were run once, in the order in which they were asked."""
        before = self.seen["done"]
        for name, tokens in self.asked.items():
            results: list[Result] = [self.world.peers[name].results[token] for token in tokens]
            done = [result.revision for result in results if isinstance(result, TxnDone)]
            assert done == sorted(set(done))
            lost = bool(self.world.peers[name].lost)
            for result in results:
                assert isinstance(result, TxnDone) or (lost and isinstance(result, Refusal))
            self.seen["done"] += len(done)
            self.seen["a session lost"] += lost
            self.seen["redirected"] += len(self.world.peers[name].dials)
        assert set(self.world.member.catalog.sessions) == {
            peer.client.session for peer in self.world.peers.values()
        }
        views = [peer.views["/k/"] for peer in self.world.peers.values()]
        assert views[0] == views[1]
        assert len(views[0]) >= self.seen["done"] - before


@pytest.mark.parametrize("seed", [pytest.param(seed, id=f"seed{seed}") for seed in range(40)])
def test_a_random_story_comes_out_right(seed: int) -> None:
    """P2.2, P10.1: whoever leads, whoever is gone, silent or wrong."""
    story = Story(seed)
    for _ in range(300):
        story.act()
    story.finish()
    story.check()


def test_these_stories_meet_what_they_are_for() -> None:
    seen: Counter[str] = Counter()
    for seed in range(8):
        story = Story(seed)
        for _ in range(300):
            story.act()
        story.finish()
        story.check()
        seen.update(story.seen)
    for what in ("before: up", "before: gone", "before: silent", "before: lost", "before: named", "done"):
        assert seen[what] >= 3, f"{what}: {seen}"
    assert seen["redirected"] > 100
