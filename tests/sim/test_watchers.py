"""Whoever watches metadata sees each key's changes once, in order, and none skipped in silence (I82), whatever befalls
it and the members."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from embedbk.codec.metadata_messages import Delete, Put, Record, Txn
from embedbk.metadata.limits import DEFAULT_LIMITS
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.members_liveness import agree_at_last, has_leader
from embedbk.testing.observer import Observer
from embedbk.testing.plan import make_plan
from embedbk.testing.run import run_plan
from embedbk.testing.world import World

PREFIX = "/k/"
KEYS = 6
SHORT = 40  # Changes that members remember, where they are to forget.


class Told(Observer):
    """The one history: by revision, what each key became."""

    def __init__(self) -> None:
        self.changes: list[tuple[int, str, bytes | None]] = []

    def on_metadata(self, revision: int, key: str, old: bytes | None, new: bytes | None) -> None:
        if key.startswith(PREFIX):
            self.changes.append((revision, key, new))

    def between(self, after: int, until: int) -> list[tuple[int, str, bytes | None]]:
        return [change for change in self.changes if after < change[0] <= until]

    def state_at(self, revision: int) -> dict[str, bytes]:
        state: dict[str, bytes] = {}
        for _, key, value in self.between(0, revision):
            if value is None:
                state.pop(key, None)
            else:
                state[key] = value
        return state


class Eye:
    """A client that watches, and what it was shown."""

    def __init__(self, world: World, told: Told, *, may_lag: bool = False) -> None:
        self.world, self.told = world, told
        self.link = world.start_client("eye").metadata
        self.mirror: dict[str, bytes] = {}
        self.revision = self.lists = self.streamed = 0
        self.newest: dict[str, int] = {}
        self.lagging_stream = 0  # Changes that came over the link for streams that may lag.
        self.token = self.link.watch(world.now_of("eye"), PREFIX, self.changed, may_lag=may_lag)
        world.wake("eye")

    def changed(self, records: list[Record], revision: int, is_first: bool) -> None:
        assert revision >= self.revision, "I82: back in time"
        watch = self.link.client._watching._watches[self.token]
        lists = watch.list_count
        for record in records:
            assert record.revision > self.newest.get(record.key, 0), (
                f"I82: {record.key} is told again, or of before"
            )
            self.newest[record.key] = record.revision
            if record.value is None:
                self.mirror.pop(record.key, None)
            else:
                self.mirror[record.key] = record.value
        if lists == self.lists:
            found = [(record.revision, record.key, record.value) for record in records]
            assert found == self.told.between(self.revision, revision), "I82: a gap that nobody told of"
            self.streamed += len(found)
            self.lagging_stream += len(found) if watch.is_lagging else 0
        self.lists, self.revision = lists, revision
        assert self.mirror == self.told.state_at(revision), "I82: the keys are not those of this revision"


class Story:
    def __init__(self, seed: int, history_changes_max: int, *, may_lag: bool = False) -> None:
        self.told, self.seen, self.chance = Told(), Counter[str](), random.Random(seed)
        limits = replace(DEFAULT_LIMITS, history_changes_max=history_changes_max)
        self.world = World(seed, bookies=1, members=3, observers=[self.told], metadata_limits=limits)
        self.world.sometimes = self.seen
        has_leader(self.world)
        self.writer = self.world.start_client("w").metadata
        self.eye = Eye(self.world, self.told, may_lag=may_lag)
        self.written = 0

    def write(self, count: int, every_ns: int = 5 * MS) -> None:
        """Puts and deletes: half of what is there goes again."""
        for _ in range(count):
            key = f"{PREFIX}{self.chance.randrange(KEYS)}"
            self.written += 1
            is_gone = self.chance.random() < 0.5
            change = Delete(key) if is_gone else Put(key, b"%d" % self.written)
            self.writer.request(self.world.now_of("w"), Txn([], [change]), lambda now_ns, result: None)
            self.world.wake("w")
            self.world.run_for(every_ns)

    def end(self) -> None:
        self.world.network.heal()
        self.world.network.narrow.clear()
        self.world.members.start_all()
        agree_at_last(self.world)
        newest = self.told.changes[-1][0]
        assert self.world.run_until(lambda: self.eye.revision >= newest, 60 * SECOND), (
            "L8: it never hears the end"
        )
        assert self.eye.mirror == self.told.state_at(newest)
        self.world.close()


@pytest.mark.parametrize("may_lag", [False, True])
@pytest.mark.parametrize("history", [SHORT, 20_000])
@pytest.mark.parametrize("seed", range(3))
def test_a_watcher_that_is_cut_off_slow_or_starved_misses_nothing_in_silence(
    seed: int, history: int, may_lag: bool
) -> None:
    """Scenario 70, story 18: etcd 15271, 17529, 19179. Cut off for longer than the members remember, deletes at the
    very end of what they remember among what it missed; told slower than changes come; beside leaders that are killed,
    and one that was put to a snapshot before it leads."""
    story = Story(seed, history, may_lag=may_lag)
    world, members = story.world, story.world.members
    story.write(20)
    for more in (-1, 0, 1, 40):  # Around the change from which on it needs a new list.
        world.network.partition(["eye"], members.names)
        until = len(story.told.changes) + SHORT + more
        while len(story.told.changes) < until:
            story.write(1)
        world.network.heal()
        world.run_for(3 * SECOND)
        world.network.narrow["eye"] = 2_000
        story.write(30, MS)
        world.network.narrow.pop("eye")
        leader = members.leader or "m1"
        members.hasten_snapshot(leader)
        world.crash(leader)
        story.write(15, 30 * MS)
        members.start(leader)
        story.write(10)
    assert story.eye.streamed > 50
    assert (story.eye.lagging_stream > 20) == may_lag, "who streamed it is not as it was asked for"
    assert (story.eye.lists > 1) == (history == SHORT), (
        "what it missed was not forgotten, or lists were of no use"
    )
    story.end()


@pytest.mark.parametrize("trouble", ["crash", "silence", "no leader heard"])
def test_a_watch_that_may_lag_goes_on_at_the_leader_when_its_follower_shows_nothing(trouble: str) -> None:
    """METADATA.md 6: a follower that is silent, or has not applied what the leader said a second ago, is left; "then
    the leader streams, from where the watch stands"."""
    story = Story(1, 20_000, may_lag=True)
    world, members = story.world, story.world.members
    client, watch = story.eye.link.client, story.eye.link.client._watching._watches[story.eye.token]
    assert world.run_until(lambda: watch.is_lagging, 30 * SECOND)
    story.write(5)
    assert world.run_until(lambda: story.eye.revision >= story.told.changes[-1][0], 2 * SECOND)
    follower = next(name for name in members.names if name in client._watching._follower.at)
    others = [name for name in members.names if name != follower]
    assert members.leader in others
    if trouble == "crash":
        world.crash(follower)
    elif trouble == "silence":
        world.network.partition(["eye"], [follower])
    else:
        world.network.partition([follower], others)
    story.write(5)
    newest, lists = story.told.changes[-1][0], watch.list_count
    bound_ns = 10 * MS if trouble == "crash" else client.ttl_ms * MS // 3 + 2 * SECOND
    assert world.run_until(lambda: story.eye.revision >= newest, bound_ns)
    assert watch.list_count == lists, "from where it stood"
    story.end()


def test_whole_clusters_list_anew_what_members_forget() -> None:
    """I82: "if changes are not kept any more, the stream is told so": some worlds keep few changes, and list few keys
    in a page, so that clients and bookies work with lists that were made in pages, and anew."""
    plans = [make_plan(seed, is_native=False) for seed in range(200)]
    assert any(plan.history_changes and plan.page_records for plan in plans)
    assert not any(make_plan(seed, is_plain=True).history_changes for seed in range(50))
    outcome = run_plan(replace(make_plan(70804000, is_native=False), history_changes=1, page_records=2))
    assert not outcome.violation
    assert outcome.sometimes["watch listed anew"] and outcome.sometimes["metadata listed in pages"]
