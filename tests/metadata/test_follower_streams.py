"""Watches that may lag: a member that does not lead streams what it has applied, and a client leaves one that is behind
(METADATA.md, 6; I82)."""

from __future__ import annotations

import pytest

from embedbk.codec.metadata_messages import (
    BUSY,
    Acknowledged,
    Get,
    KeepAlive,
    List,
    Listed,
    MetadataReply,
    NotLeader,
    Put,
    Refusal,
    Txn,
    Unwatch,
    Watch,
)
from embedbk.metadata import streams as streams_module
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.command_log import Entry
from embedbk.metadata.commands import RULES, Run, encode_command
from embedbk.metadata.follower_link import (
    AGAIN_NS_MAX,
    AGAIN_NS_MIN,
    ASKED_MAX,
    LAG_NS,
    FollowerLink,
)
from embedbk.metadata.following import FollowedPrefix
from embedbk.metadata.vocabulary import (
    CatalogReplaced,
    Dial,
    HangUp,
    LinkLost,
    MessageReceived,
    Send,
    WatchChanged,
    WatchRequested,
)
from embedbk.metadata.watching import SILENT_MAX, Watching
from tests.metadata.test_command_log import Stand
from tests.metadata.test_member import Desk
from tests.metadata.test_member import put as put_at

FOLLOWER = 7  # A link.


def put(key: str) -> Txn:
    return Txn([], [Put(key, b"")])


def following() -> tuple[Stand, int]:
    """A member that has applied /a and does not lead any more; and the number of the session that put it."""
    stand = Stand()
    session = stand.open()
    stand.ask(put("/a"), session, 1)
    stand.commit()
    stand.depose()
    stand.commit()
    stand.told.clear()
    stand.sent.clear()
    return stand, session


def applied_by_another(stand: Stand, session: int, key: str) -> None:
    """The leader of now has had it put for that session, and it is committed."""
    index = len(stand.log.entries) + 1
    run = Run(session, index, index, put(key), RULES)
    stand.log.entries.append(Entry(index, 2, encode_command(run)))
    stand.commit()


def streamed(stand: Stand) -> list[tuple[int, list[str], bool]]:
    """(up to which revision, keys, whether it said that something is gone) of each message."""
    found = [
        (each.events.revision, [r.key for r in each.events.records], each.events.is_compacted)
        for each in stand.sent
    ]
    stand.sent.clear()
    return found


# --- A member ----------------------------------------------------------------------------------------------


def test_a_member_that_does_not_lead_streams_what_it_has_applied_and_answers_nothing_else() -> None:
    """METADATA.md 6: by Watch without a session; each message and each mark says the revision that it reaches."""
    stand, session = following()
    stand.ask(Watch(1, "/", 0), link=FOLLOWER)
    assert stand.results() == [Acknowledged(1)]
    assert streamed(stand) == [(1, ["/a"], False)]
    stand.ask(KeepAlive(), link=FOLLOWER)
    assert stand.results() == [Acknowledged(1)]
    assert streamed(stand) == [(1, [], False)], "a mark"
    for operation in (Get("/a"), List("/"), put("/b")):
        stand.ask(operation, link=FOLLOWER)
        stand.ask(operation, session, 9, link=FOLLOWER)
    stand.ask(Watch(2, "/", 0), session, 10, link=FOLLOWER)
    stand.ask(KeepAlive(), session, 11, link=FOLLOWER)
    assert stand.results() == []
    assert len(stand.sent_away) == 8, "what may not lag is the leader's"
    stand.ask(Unwatch(1), link=FOLLOWER)
    stand.ask(KeepAlive(), link=FOLLOWER)
    assert streamed(stand) == []


def test_a_stream_from_what_this_member_has_not_applied_yet_waits() -> None:
    """METADATA.md 6: "it cannot tell a future that it lacks from one that there never was"."""
    stand, session = following()
    stand.ask(Watch(1, "/", 2), link=FOLLOWER)
    assert streamed(stand) == []
    assert stand.member.deadline_ns is None, "and it keeps the loop at rest"
    applied_by_another(stand, session, "/b")
    assert streamed(stand) == [(2, [], False)], "/b is of the revision that its client has"
    applied_by_another(stand, session, "/c")
    assert streamed(stand) == [(3, ["/c"], False)]


def test_a_leader_that_has_applied_everything_knows_that_a_future_never_was() -> None:
    """METADATA.md 1: what cannot be given any more is said; only a follower may be behind."""
    stand, _ = following()
    stand.ask(Watch(1, "/", 77), link=FOLLOWER)
    stand.lead()
    assert streamed(stand) == [], "not before what earlier leaders promised is applied"
    stand.commit()
    assert [is_compacted for _, _, is_compacted in streamed(stand)] == [True]
    stand.ask(Watch(2, "/", 0), link=FOLLOWER)
    assert streamed(stand) == [(1, ["/a"], False)], "a leader streams to whoever bears that it lags, too"


def test_a_member_that_was_put_to_a_snapshot_says_what_it_cannot_show() -> None:
    """I82, METADATA.md 6: "one that was put to a snapshot remembers nothing from before, and says so"."""
    stand, _ = following()
    stand.ask(Watch(1, "/", 1), link=FOLLOWER)
    stand.ask(Watch(2, "/", 3), link=FOLLOWER)
    stand.sent.clear()
    desk = Desk()
    session = desk.open()
    for key in ("/a", "/b", "/c"):
        desk.do(put_at(key), session)
    stand.step(CatalogReplaced(0, 50, Catalog.restore(desk.member.catalog.snapshot())))
    told = {each.events.watch_id: each.events for each in stand.sent}
    assert told[1].is_compacted
    assert not told[2].is_compacted, "its client has all of that"
    assert (told[2].revision, told[2].records) == (3, [])


def test_links_with_streams_that_may_lag_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """FOLLOWING_LINKS_MAX: the others are for sessions; a link that ends gives its place."""
    monkeypatch.setattr(streams_module, "FOLLOWING_LINKS_MAX", 2)
    stand, _ = following()
    for link in (11, 12, 13, 12):
        stand.ask(Watch(1, "/", 0), link=link)
    refused = [result for result in stand.results() if isinstance(result, Refusal)]
    assert [each.code for each in refused] == ["UNAVAILABLE"]
    assert "ask another member" in refused[0].text
    stand.step(LinkLost(0, 11))
    stand.ask(Watch(1, "/", 0), link=13)
    assert stand.results() == [Acknowledged(1)]


# --- A client ----------------------------------------------------------------------------------------------


class Line:
    """A client's second link by hand."""

    def __init__(self, number: int = 5) -> None:
        self.link = FollowerLink()
        self.now_ns = 0
        self.number = number
        self.members: tuple[str, ...] = ("a", "b", "c")
        self.leader = "a"
        self.done: list[object] = []

    def seek(self, after_ns: int = 0) -> list[object]:
        self.now_ns += after_ns
        self.link.seek(self.now_ns, self.members, self.leader, self.number, self.done)  # type: ignore[arg-type]
        return self.take()

    def take(self) -> list[object]:
        done, self.done = self.done, []
        return done

    def answer(self, sequence: int, result: Acknowledged | Refusal | NotLeader) -> list[object]:
        self.link.take(MetadataReply(0, sequence, result), self.now_ns, self.done)  # type: ignore[arg-type]
        return self.take()

    def up(self, revision: int = 10) -> None:
        """Dialled, and far enough."""
        [dial] = self.seek(max(0, (self.link.deadline_ns or 0) - self.now_ns))
        assert isinstance(dial, Dial)
        self.link.connected(self.now_ns, self.done)  # type: ignore[arg-type]
        [look] = self.take()
        assert isinstance(look, Send)
        assert isinstance(look.request.operation, KeepAlive)
        self.answer(look.request.sequence, Acknowledged(revision))
        assert self.link.is_up


def sent(effects: list[object]) -> list[tuple[int, object]]:
    assert all(isinstance(each, Send) and each.is_for_streams for each in effects)
    return [(each.request.sequence, each.request.operation) for each in effects if isinstance(each, Send)]


def test_another_member_than_the_leader_is_dialled_and_clients_are_spread() -> None:
    """METADATA.md 6: "another than the leader where there is one; clients are spread over them"."""
    dialled = []
    for number in (1, 2, 3, 4):
        line = Line(number)
        [dial] = line.seek()
        assert isinstance(dial, Dial)
        assert dial.is_for_streams
        dialled.append(dial.endpoint)
    assert sorted(dialled) == ["b", "b", "c", "c"]
    for members, number in ((("a",), 1), ((), 1), (("a", "b"), 0)):
        line = Line(number)
        line.members = members
        assert line.seek() == [], "nobody else is there, nobody wants it, or there is no session"
        assert line.link.deadline_ns is None


def test_it_streams_only_when_the_member_has_applied_what_the_leader_said() -> None:
    """METADATA.md 6: it is left "when it has not said within 1 s that it has applied what the leader said"."""
    line = Line()
    line.link.heard_leader(0, 10, line.done)  # type: ignore[arg-type]
    line.seek()
    line.link.connected(0, line.done)  # type: ignore[arg-type]
    [(sequence, _)] = sent(line.take())
    assert line.answer(sequence, Acknowledged(9)) == []
    assert not line.link.is_up
    [(sequence, _)] = sent(line.seek(LAG_NS // 2))
    line.answer(sequence, Acknowledged(10))
    assert line.link.is_up
    assert line.link.deadline_ns is None
    line.link.heard_leader(line.now_ns, 20, line.done)  # type: ignore[arg-type]
    [(sequence, _)] = sent(line.take())
    line.answer(sequence, Acknowledged(19))
    assert line.link.is_up
    assert sent(line.seek(LAG_NS - 1)), "asked again"
    [left] = line.seek(1)
    assert isinstance(left, HangUp)
    assert not line.link.is_up


def test_a_silent_member_is_left_and_another_is_tried_later_each_time() -> None:
    """METADATA.md 6: "another is tried after 1 s, or twice as long each time up to 60 s"."""
    line = Line()
    pauses, dialled = [], []
    for _ in range(9):
        before = line.now_ns
        [dial] = line.seek(max(0, (line.link.deadline_ns or 0) - line.now_ns))
        assert isinstance(dial, Dial)
        pauses.append(line.now_ns - before)
        dialled.append(dial.endpoint)
        [left] = line.seek(LAG_NS)
        assert isinstance(left, HangUp)
        assert line.link.deadline_ns is None
        line.link.disconnected(line.now_ns)
    assert set(dialled) == {"b", "c"}
    assert pauses[1:] == [AGAIN_NS_MIN << n for n in range(6)] + [AGAIN_NS_MAX] * 2
    line.up()
    line.now_ns += AGAIN_NS_MAX
    line.link.disconnected(line.now_ns)
    assert line.link.deadline_ns == line.now_ns + AGAIN_NS_MIN, (
        "one that served for long is no sign of trouble"
    )


@pytest.mark.parametrize(
    "result", [NotLeader("a"), Refusal("SESSION_GONE", "x"), Refusal("UNAVAILABLE", "full")]
)
def test_a_member_that_does_not_stream_is_left(result: NotLeader | Refusal) -> None:
    """METADATA.md 6: it has no room, or is of a build that streams only by session."""
    line = Line()
    line.seek()
    line.link.connected(0, line.done)  # type: ignore[arg-type]
    [(sequence, _)] = sent(line.take())
    [left] = line.answer(sequence, result)
    assert isinstance(left, HangUp)


def test_streams_are_asked_for_in_turns_and_again_where_that_is_lost() -> None:
    """ASKED_MAX; links lose messages only with themselves, but nothing counts on it."""
    line = Line()
    line.up()
    watches = [
        FollowedPrefix(n, f"/{n}/", may_lag=True, revision=3, watch_id=n + 1, is_asking=True)
        for n in range(80)
    ]
    for watch in watches:
        line.link.follow(watch, line.now_ns, line.done)  # type: ignore[arg-type]
    asked = sent(line.take())
    assert [operation for _, operation in asked] == [Watch(n + 1, f"/{n}/", 3) for n in range(ASKED_MAX)]
    [(_, operation)] = sent(line.answer(asked[0][0], Acknowledged(10)))
    assert operation == Watch(ASKED_MAX + 1, f"/{ASKED_MAX}/", 3)
    assert not watches[0].is_asking
    watches[1].watch_id = 99  # Ended meanwhile: it is not asked for again.
    assert line.answer(asked[2][0], Refusal(BUSY, "later")) == []
    line.now_ns += LAG_NS
    line.link.heard_leader(line.now_ns, 10, line.done)  # type: ignore[arg-type]
    [(look, _)] = sent(line.take())
    again = [operation.watch_id for _, operation in sent(line.answer(look, Acknowledged(10)))]  # type: ignore[attr-defined]
    assert 2 not in again
    assert len(again) == ASKED_MAX


def test_a_stream_whose_end_was_lost_on_the_way_is_asked_for_again() -> None:
    """I82: a member ends a stream with the message that its changes are gone. Where that was lost, nothing else comes,
    though the member goes on to say how far it is."""
    line = Line()
    line.up()
    watching = Watching()
    watching._follower, watching._uses_follower = line.link, True
    watching.watch(WatchRequested(line.now_ns, "w", "/k/", may_lag=True), None, line.done)  # type: ignore[arg-type]
    [listing] = watching.requests
    watching.take_answer(listing, Listed([], False, 10), line.now_ns, line.done)  # type: ignore[arg-type]

    def looked() -> list[tuple[int, object]]:
        """The member says how far it is, and of the stream nothing."""
        line.link.heard_leader(line.now_ns, 10, line.done)  # type: ignore[arg-type]
        [(look, _)] = sent(line.take())
        answer = MessageReceived(line.now_ns, MetadataReply(0, look, Acknowledged(10)))
        watching.on_follower(answer, line.done)  # type: ignore[arg-type]
        return sent(line.take())

    [shown, asking] = line.take()
    assert isinstance(shown, WatchChanged)
    [(sequence, begun)] = sent([asking])
    answer = MessageReceived(line.now_ns, MetadataReply(0, sequence, Acknowledged(10)))
    watching.on_follower(answer, line.done)  # type: ignore[arg-type]
    asked = [looked() for _ in range(SILENT_MAX + 1)]
    assert asked[:-1] == [[]] * SILENT_MAX
    assert [operation for _, operation in asked[-1]] == [begun]
    assert begun == Watch(1, "/k/", 10)


def test_it_is_left_when_no_stream_needs_it_or_the_member_is_one_no_more() -> None:
    line = Line(4)
    line.up()
    at = line.link.at
    line.leader = at
    assert line.seek() == [], "one that leads by now goes on"
    line.members = tuple(each for each in line.members if each != at)
    [left] = line.seek()
    assert isinstance(left, HangUp)
