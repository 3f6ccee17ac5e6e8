"""The nodes of a cluster are restarted one after another, with appends going on (P11.3)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import embedbk.testing
from embedbk.cli.operators import Commands
from embedbk.cli.restarting import add_rolling, split_command
from embedbk.client.restarting import LOCK, look_at_nodes, restart_nodes
from embedbk.client.waiting import run_blocking
from embedbk.codec.quorum_messages import MemberName, TransferLeadership
from embedbk.errors import UsageError
from embedbk.repair.restarting import (
    UNTOLD_NS,
    BookieSeen,
    ClusterLooked,
    ClusterSeen,
    CommandEnded,
    Effect,
    HandOver,
    LookAgain,
    LookFailed,
    MemberSeen,
    NodeSeen,
    Restart,
    Restarting,
    RestartOptions,
    RestartReport,
    RunEnded,
    Say,
    plan_of,
    why_not_whole,
)
from embedbk.repair.stopping import StopVerdict
from embedbk.testing.actors import Steps
from embedbk.testing.operator import Operator
from tests.repair.healed import Healed

S = 1_000_000_000
OPTIONS = RestartOptions(wait_ns=60 * S, back_ns=30 * S)


def bookie(name: str, start: bytes = b"1", *, takes: bool = True, there: bool = True) -> NodeSeen:
    return NodeSeen(name, BookieSeen(there, start, takes, "" if takes else "its disk is full"))


def member(
    name: str,
    start: bytes = b"1",
    *,
    leads: bool = False,
    heard: bool = True,
    end: int = 10,
    role: str = "voter",
) -> NodeSeen:
    return NodeSeen(name, None, MemberSeen(MemberName(name, bytes(16)), role, heard, end, start, leads))


def seen(*nodes: NodeSeen, commit: int = 10, no: Sequence[str] = ()) -> ClusterSeen:
    verdicts = {
        each.name: StopVerdict(
            (each.name,), each.name not in no, ("ledger 7 would be short",) * (each.name in no)
        )
        for each in nodes
    }
    return ClusterSeen({each.name: each for each in nodes}, commit, verdicts)


class Story:
    """A run, event by event."""

    def __init__(self, *nodes: NodeSeen, options: RestartOptions = OPTIONS, no: Sequence[str] = ()) -> None:
        self.machine, self.now_ns = Restarting(options), 0
        self.nodes = {each.name: each for each in nodes}
        self.said = self._did(self.machine.step(ClusterLooked(0, seen(*nodes, no=no))))

    def _did(self, effects: list[Effect]) -> list[Effect]:
        self.effects: list[Effect] = [each for each in effects if not isinstance(each, Say)]
        return self.effects

    def looks(
        self, *changed: NodeSeen, no: Sequence[str] = (), after_s: int = 1, commit: int = 10
    ) -> list[Effect]:
        self.now_ns += after_s * S
        self.nodes.update({each.name: each for each in changed})
        return self._did(
            self.machine.step(ClusterLooked(self.now_ns, seen(*self.nodes.values(), no=no, commit=commit)))
        )

    def ended(self, trouble: str = "") -> list[Effect]:
        self.now_ns += S
        return self._did(self.machine.step(CommandEnded(self.now_ns, trouble)))

    @property
    def report(self) -> RestartReport:
        (last,) = self.effects
        assert isinstance(last, RunEnded)
        return last.report


# The order.


def test_bookies_go_first_then_who_follows_and_the_leader_last() -> None:
    """P11.3: a node that is both goes among the members, once."""
    both = NodeSeen("n", bookie("n").bookie, member("n").member)
    plan = plan_of(seen(member("a", leads=True), both, bookie("b2"), member("c"), bookie("b1")), OPTIONS)
    assert [name for name, _ in plan.order] == ["b1", "b2", "c", "n", "a"]
    assert (plan.order[3][1], plan.order[4][1]) == (
        "both, follows",
        "member, leads: it hands over, and goes last",
    )


def test_who_is_away_is_left_out_unless_it_is_named_and_then_it_is_the_first() -> None:
    nodes = seen(bookie("b1"), bookie("b2", there=False), member("m1"), member("m2", heard=False))
    plan = plan_of(nodes, OPTIONS)
    assert [name for name, _ in plan.order] == ["b1", "m1"]
    assert [name for name, _ in plan.skipped] == ["b2", "m2"]
    named = plan_of(nodes, OPTIONS._replace(only=("b1", "b2")))
    assert (named.order, named.skipped) == (
        (("b2", "bookie, away: it needs no leave"), ("b1", "bookie: bookies go first")),
        (),
    )
    story = Story(bookie("b1"), bookie("b2", b"", there=False), options=OPTIONS._replace(only=("b1", "b2")))
    assert story.effects == [Restart("b2", "bookie")]
    story.ended()
    assert story.looks(bookie("b2", b"9")) == [Restart("b1", "bookie")]


def test_the_order_is_made_of_who_leads_by_then() -> None:
    story = Story(member("m1"), member("m2"), member("m3", leads=True))
    assert story.effects == [Restart("m1", "member")]
    story.ended()
    story.looks(member("m1", b"2"), member("m2", leads=True), member("m3"))
    assert story.effects == [Restart("m3", "member")]


# May it stop?


def test_a_node_that_may_not_stop_is_waited_for_and_the_run_ends_at_the_time_limit() -> None:
    """P11.3: nothing is done to it, nor behind it."""
    story = Story(bookie("b1"), bookie("b2"), no=["b1"])
    assert story.effects == [LookAgain(("b1",))]
    assert story.looks(no=["b1"], after_s=58) == [LookAgain(("b1",))]
    story.looks(no=["b1"], after_s=2)
    assert (story.report.done, story.report.failed, story.report.left) == ((), "b1", ("b2",))
    assert story.report.why == "it may not stop within 60 s: ledger 7 would be short"


def test_where_it_cannot_be_told_nothing_stops_and_nobody_is_whole() -> None:
    """Cannot tell is never yes: a look that failed neither gives leave nor ends a wait before its time."""
    story = Story(bookie("b1"), bookie("b2"), no=["b1"])
    assert story._did(story.machine.step(LookFailed(S, "nobody answers"))) == [LookAgain(("b1",))]
    assert story.looks() == [Restart("b1", "bookie")]
    story.ended()
    assert story._did(story.machine.step(LookFailed(story.now_ns + S, "nobody answers"))) == [LookAgain(())]
    story._did(story.machine.step(LookFailed(story.now_ns + 31 * S, "nobody answers")))
    assert story.report.why == "it is not whole within 30 s: nobody answers"


def test_a_run_that_cannot_begin_changes_nothing_and_says_why() -> None:
    with pytest.raises(UsageError, match=r"none of them may stop now: b1: ledger 7 .* nothing was changed"):
        Story(bookie("b1"), bookie("b2"), no=["b1", "b2"])
    with pytest.raises(UsageError, match="no bookie and no metadata member 'b9'; nothing was changed"):
        Story(bookie("b1"), options=OPTIONS._replace(only=("b9",)))
    with pytest.raises(UsageError, match="embedded in one process"):
        Story(NodeSeen("b1", BookieSeen(True, b"1", True, "", True)))
    with pytest.raises(UsageError, match="no node is there"):
        Story(bookie("b1", there=False))
    with pytest.raises(UsageError, match="m1 is the only voter"):
        Story(bookie("b1"), member("m1", leads=True), no=["m1"])


def test_the_only_voter_is_restarted_when_the_outage_is_accepted_and_hands_over_to_nobody() -> None:
    story = Story(
        bookie("b1"), member("m1", leads=True), no=["m1"], options=OPTIONS._replace(accepts_outage=True)
    )
    story.ended()
    assert story.looks(bookie("b1", b"2"), no=["m1"]) == [Restart("m1", "member")]
    story.ended()
    story.looks(member("m1", b"2", leads=True))
    assert story.report.done == ("b1", "m1")
    with pytest.raises(
        UsageError, match="none of them may stop"
    ):  # What it accepts is of no bookie's ledgers.
        Story(bookie("b1"), no=["b1"], options=OPTIONS._replace(accepts_outage=True))


# A leader.


def test_a_leader_hands_over_until_it_follows_and_to_one_that_was_restarted() -> None:
    """P11.3: the request may be lost, so it is asked again; who was restarted leads no second time."""
    story = Story(member("m1"), member("m2", leads=True), member("m3", role="learner"))
    for name in ("m1", "m3"):
        assert story.effects == [Restart(name, "member")]
        story.ended()
        story.looks(member(name, b"2", role="learner" if name == "m3" else "voter"))
    for _ in range(2):
        assert story.effects == [HandOver(MemberName("m1", bytes(16))), LookAgain(("m2",))]
        story.looks()
    assert story.looks(member("m1", b"2", leads=True), member("m2"), no=["m2"]) == [LookAgain(("m2",))]
    assert story.looks() == [Restart("m2", "member")]
    alone = Story(member("m1", leads=True), member("m2", heard=False), member("m3", heard=False))
    assert alone.effects == [LookAgain(("m1",))]  # Nobody can take over.


# Whole again?


@pytest.mark.parametrize(
    ("was", "now", "why"),
    [
        (bookie("b"), bookie("b", b"2"), ""),
        (bookie("b"), bookie("b", there=False), "it is not registered"),
        (bookie("b"), bookie("b"), "registered as before"),
        (bookie("b"), bookie("b", b"2", takes=False), "takes no entries: its disk is full"),
        (bookie("b", takes=False), bookie("b", b"2", takes=False), ""),
        (bookie("b"), None, "has it no more"),
        (member("m"), member("m", b"2"), ""),
        (member("m"), member("m", b"2", heard=False), "does not hear it"),
        (member("m"), member("m"), "heard as before"),
        (member("m"), member("m", b"2", role="learner"), "it voted, and is a learner now"),
        (member("m", role="learner"), member("m", b"2", role="learner"), ""),
        (member("m"), member("m", b"2", end=9), "its log ends at 9, and 10 is committed"),
        (member("m", heard=False), member("m"), ""),
    ],
)
def test_a_node_is_whole_when_it_is_again_what_it_was_in_another_start(
    was: NodeSeen, now: NodeSeen | None, why: str
) -> None:
    """P11.3."""
    found = why_not_whole(was, now, 10, S)
    assert found == "" if not why else why in found


def test_where_a_start_is_not_told_a_node_that_stays_long_enough_was_restarted() -> None:
    """Of an older build: it is not known whether it stopped yet."""
    for was, now in ((bookie("b", b""), bookie("b", b"")), (member("m"), member("m", b""))):
        assert "as before" in why_not_whole(was, now, 10, UNTOLD_NS - 1)
        assert why_not_whole(was, now, 10, UNTOLD_NS) == ""


def test_a_members_log_is_to_have_what_was_committed_when_it_came_back() -> None:
    """What is committed meanwhile does not keep it waiting for ever; what it lacked does."""
    story = Story(member("m1"), member("m2", leads=True), options=OPTIONS._replace(only=("m1",)))
    story.ended()
    assert story.looks(member("m1", b"2", end=8)) == [LookAgain(())]
    assert story.looks(member("m1", b"2", end=9), commit=20) == [LookAgain(())]
    story.looks(member("m1", b"2", end=10), commit=30)
    assert story.report.done == ("m1",)


def test_behind_a_node_that_failed_nothing_is_touched() -> None:
    """P11.3: whatever is wrong with it, the next may be needed."""
    story = Story(bookie("b1"), bookie("b2"), bookie("b3"))
    story.ended()
    story.looks(bookie("b1", b"2"))
    story.ended("COMMAND ended with 3")
    assert story.report == RestartReport(("b1",), "b2", "COMMAND ended with 3", story.report.hint, ("b3",))
    story = Story(bookie("b1"), bookie("b2"))
    story.ended()
    assert story.looks(bookie("b1", there=False), after_s=29) == [LookAgain(())]
    story.looks(after_s=1)
    assert (story.report.done, story.report.failed, story.report.left) == ((), "b1", ("b2",))
    assert "look at b1 first" in story.report.hint


# Whole clusters.


def leads_on(cluster: embedbk.testing.Cluster) -> Callable[[Sequence[str], MemberName, bool], None]:
    operator = Operator(cluster.world, 99, random.Random(1))

    def asked(endpoints: Sequence[str], to: MemberName) -> Steps:
        yield from operator.ask(list(endpoints), TransferLeadership(to))

    def let_lead(endpoints: Sequence[str], to: MemberName, allows: bool) -> None:
        actor = cluster.world.spawn("hand-over", asked(endpoints, to))
        assert cluster.run_until(lambda: actor.is_over)

    return let_lead


def test_all_nodes_are_restarted_while_a_log_is_written_and_no_append_fails() -> None:
    """P11.3: whoever leads hands over before; a second run is refused while the first has the lock."""
    with embedbk.testing.Cluster(seed=5, bookies=3, members=3) as cluster:
        bk, orders = cluster.client("operator"), cluster.log("orders").writer()
        Healed(cluster).repairer()
        done: list[str] = []
        tickets = []
        led: list[bool] = []

        def run(name: str, kind: str, limit_s: float) -> str:
            led.append(name == cluster.leader())
            cluster.crash(name)
            tickets.append(orders.append_nowait(name.encode()))
            cluster.run_for(0.1)
            if not done:
                with pytest.raises(UsageError, match="operator restarts the nodes"):
                    restart_nodes(cluster.client("other"), run, OPTIONS, lambda *_: None)
            cluster.restart(name)
            done.append(name)
            return ""

        first = cluster.leader()
        report = restart_nodes(bk, run, OPTIONS, lambda *_: None, let_lead=leads_on(cluster))
        followers = [name for name in ("m1", "m2", "m3") if name != first]
        assert report == RestartReport(("b1", "b2", "b3", *followers, first))
        assert not any(led)
        # Where a bookie missed an entry the log went on in a next ledger, so that repair could copy it.
        assert [each.result() for each in tickets] == sorted(each.result() for each in tickets)
        assert [bytes(each).decode() for each in cluster.log("orders").read()] == done
        assert bk.lock(LOCK).holder() is None


def rolling(bk: embedbk.Client, *arguments: str) -> int:
    commands = Commands("cluster", "")
    given, command = split_command(["rolling", *arguments])
    add_rolling(commands, command, reach=lambda options: bk)
    return commands.run(given)


def test_the_command_is_filled_in_and_where_it_fails_the_run_ends(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with embedbk.testing.Cluster(seed=6, bookies=3) as cluster:
        only = ("--only", "b1", "--only", "b2", "--json")
        seen_at, script = tmp_path / "seen", 'echo "$0 $1" >> "$2"; exit 3'
        command = ("--", "sh", "-c", script, "x-{node}", "{kind}", str(seen_at))
        assert rolling(cluster.client("one"), *only, *command) == 1
        said = json.loads(capsys.readouterr().out)
        assert (said["failed"], said["why"], said["left"]) == ("b1", "COMMAND ended with 3", ["b2"])
        assert seen_at.read_text() == "x-b1 bookie\n"
        # It ends well, and restarts nobody.
        assert rolling(cluster.client("two"), *only, "--back-s", "5", "--", "true", "{node}") == 1
        said = json.loads(capsys.readouterr().out)
        assert said["why"].startswith("it is not whole within 5 s: it is registered as before")
        assert rolling(cluster.client("three"), *only, "--", "/no/such/program", "{node}") == 1
        assert "cannot be run" in json.loads(capsys.readouterr().out)["why"]
        assert rolling(cluster.client("four"), "--dry", "--json") == 1
        said = json.loads(capsys.readouterr().out)
        assert [each["node"] for each in said["order"]] == ["b1", "b2", "b3", "m1"]
        assert "the metadata quorum would be lost" in said["order"][-1]["why"]
        assert rolling(cluster.client("five"), *only, "--dry") == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--", "restart", "everything"], "has no {node}"),
        ([], "no COMMAND"),
        (["--wait-s", "-1", "--", "{node}"], "--wait-s: seconds from 0"),
        (["--", "{node}"], "the only voter of the metadata"),
        (["--only", "b9", "--", "{node}"], "no metadata member 'b9'"),
    ],
)
def test_what_cannot_be_asked_is_refused_and_changes_nothing(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with embedbk.testing.Cluster(seed=6, bookies=1) as cluster:
        assert rolling(cluster.client(), *arguments) == 1
        assert says in capsys.readouterr().err


def test_a_leader_tells_which_start_of_each_member_it_hears() -> None:
    """By that a restarted member is told from one that has not stopped yet."""
    with embedbk.testing.Cluster(seed=5, bookies=1, members=3) as cluster:
        bk = cluster.client()
        follower = next(name for name in ("m1", "m2", "m3") if name != cluster.leader())

        def start() -> bytes:
            found = run_blocking(look_at_nodes(bk._runtime, ()), "").nodes[follower].member
            assert found is not None
            return found.start if found.is_heard else b""

        before = start()
        cluster.crash(follower)
        cluster.restart(follower)
        assert cluster.run_until(lambda: start() not in (b"", before), within_s=20)
        assert before
