"""The writer of a log goes on in a next ledger, by its bounds and when it is asked to (P8.2)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import embedbk
from embedbk import aio
from embedbk.client.log_reading import LogReading
from embedbk.client.password import Password
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import Begun, LogSegment
from embedbk.metadata.levels import LEVEL_OF_LOGS
from embedbk.testing import Cluster
from embedbk.transports.sim_faults import Treatment

NAME = "one"
NEVER = embedbk.Roll(bytes=None)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=91, bookies=4) as cluster:
        yield cluster


def listed(client: embedbk.Client, name: str) -> tuple[LogSegment, ...]:
    return run_blocking(LogReading(client._runtime, name, Password(b"")).listed(), "nothing").segments


def is_closed(client: embedbk.Client, ledger_id: int) -> bool:
    with client.open_ledger(ledger_id, recover=False) as reader:
        return reader.is_closed


def knowing(cluster: Cluster, ledger_id: int) -> list[str]:
    """The bookies that were sent something of this ledger."""
    nodes = cluster.world.nodes
    return [name for name in cluster.world.disks if nodes[name].storage.table.get(ledger_id) is not None]


@pytest.mark.parametrize(
    ("roll", "begun", "most"),
    [
        (embedbk.Roll(bytes=None, entries=20), Begun.ENTRIES, 22),
        (embedbk.Roll(bytes=2_000), Begun.BYTES, 22),
        (embedbk.Roll(bytes=None, age_s=0.05), Begun.AGE, 200),
    ],
    ids=["entries", "bytes", "age"],
)
def test_a_log_rolls_at_each_of_its_bounds(
    cluster: Cluster, roll: embedbk.Roll, begun: Begun, most: int
) -> None:
    """P8.2: "by bytes, entries and age, each drawn up to a tenth to either side"; the list says why (P8.6)."""
    client = cluster.client("w")
    told = []
    with client.log(NAME).writer(roll=roll) as writer:
        epoch = writer.epoch
        for number in range(100):
            told.append(writer.append(b"%099d " % number))
            cluster.run_for(0.01)
        assert writer.epoch == epoch
    segments = listed(client, NAME)
    assert len(segments) >= 4
    assert segments[0].begun == Begun.TAKEOVER
    assert {each.begun for each in segments[1:]} == {begun}
    assert all(each.created_ms > 0 for each in segments)
    assert all(0 < (each.last_entry or 0) + 1 <= most for each in segments[:-2])
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"%099d " % n for n in range(100)]
    assert [entry.position for entry in client.log(NAME).read()] == told
    assert [entry.offset for entry in client.log(NAME).read()] == list(range(100))


def test_a_roll_on_request_keeps_epoch_order_and_places(cluster: Cluster) -> None:
    """P8.2: under the same epoch; conditions and producers go on over the ledgers."""
    client = cluster.client("w")
    with client.log(NAME).writer(roll=NEVER) as writer:
        first_ledger, epoch = writer.ledger_id, writer.epoch
        writer.roll()
        assert writer.ledger_id == first_ledger, "an empty ledger stays"
        one = writer.append(b"one", producer=(7, 0))
        writer.roll()
        assert writer.ledger_id != first_ledger
        assert (writer.epoch, writer.first_offset, writer.last_position) == (epoch, 1, one)
        assert writer.append(b"one", producer=(7, 0)) == one
        two = writer.append(b"two", after=one)
        with pytest.raises(embedbk.AppendConflict):
            writer.append(b"late", after=one)
        writer.roll()
        assert writer.append(b"one", producer=(7, 0)) == one
        writer.append(b"three", after=two)
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"one", b"two", b"three"]
    segments = listed(client, NAME)
    assert [(each.first_offset, each.last_entry) for each in segments[:2]] == [(0, 0), (1, 0)]
    assert [each.begun for each in segments] == [Begun.TAKEOVER, Begun.REQUEST, Begun.REQUEST]


def test_a_writer_keeps_the_list_of_its_log_only_while_it_rolls(cluster: Cluster) -> None:
    """P8.2 (i, iv): from the record of one end until the next ledger is listed; an idle log's is let go, as it may be
    long, and is read again. What others took off the list meanwhile stays off."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    owning = writer._line.owning

    def go_on(number: int) -> None:
        writer.append(b"%d" % number)
        writer.roll()
        cluster.run_for(0.1)

    for number in range(3):
        go_on(number)
        assert owning._recorded is not None
        assert owning._recorded[0].segments == listed(client, NAME)
    client.log(NAME).truncate(writer.first_offset - 1)
    go_on(3)
    assert [each.first_offset for each in listed(client, NAME)] == [2, 3, 4]
    cluster.run_for(3 * client._runtime.log_look_s)
    assert owning._recorded is None
    go_on(4)
    writer.close()
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"2", b"3", b"4"]


def test_the_next_ledger_is_listed_at_four_fifths_of_a_bound_and_not_before(cluster: Cluster) -> None:
    """P8.2 (i): "when that has used 80 % of a bound": idle logs hold no second ledger. It is the last of the list,
    has no place before the one of now ended, and is closed with its writer."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=embedbk.Roll(bytes=None, entries=1_000))
    writer.append_many([b"x"] * 700)
    cluster.run_for(1)
    assert len(listed(client, NAME)) == 1
    writer.append_many([b"x"] * 190)  # Bounds are drawn between 900 and 1,100.
    cluster.run_for(1)
    one, other = listed(client, NAME)
    assert (one.first_offset, one.last_entry, other.first_offset, other.last_entry) == (0, None, None, None)
    assert [each.ledger_id for each in client.log(NAME).segments()] == [one.ledger_id]
    assert writer.ledger_id == one.ledger_id
    writer.close()
    assert is_closed(client, one.ledger_id) and is_closed(client, other.ledger_id)
    with client.log(NAME).writer() as after:
        assert after.first_offset == 890
        after.append(b"y")
    assert len(list(client.log(NAME).read())) == 891


def test_a_roll_by_age_that_failed_is_tried_again(cluster: Cluster) -> None:
    """P8.2: too few bookies are there for the next ledger; the writer stays, and goes on in one when they are back."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(ensemble_size=4, write_quorum=3, roll=embedbk.Roll(bytes=None, age_s=5))
    writer.append(b"one")
    cluster.crash("b4")
    cluster.run_for(90)
    assert len(listed(client, NAME)) == 1
    cluster.restart("b4")
    assert cluster.run_until(lambda: writer.first_offset == 1, 30)
    writer.append(b"two")
    writer.close()
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"one", b"two"]


def test_a_writer_that_lost_its_log_behind_a_roll_grows_no_older(cluster: Cluster) -> None:
    """P8.2, P8.4: its ledger failed while another one took appends behind it, and another client has the log. Nothing
    asks for a roll by age any more, though nobody closes the writer."""
    writer = cluster.client("w").log(NAME).writer(roll=embedbk.Roll(bytes=None, age_s=60))
    writer.append(b"one")
    first = writer._line.appending.ledger_id
    end = cluster.drop_messages("AddRequest", ledger_id=first, verdict=Treatment(delay_ns=1_500_000_000))
    writer.append_nowait(b"two")
    writer._line.roll_behind(Begun.REQUEST)
    assert cluster.run_until(lambda: writer._line.appending.ledger_id != first, 10)
    with cluster.client("v").log(NAME).writer() as other:
        end()
        other.append(b"three")
    cluster.run_for(10)
    with pytest.raises(embedbk.LedgerFenced):
        writer.append(b"four")
    assert writer._line.appending.ledger_id == first, "it has stepped back"
    assert cluster.run_until(lambda: all(each.client != "w" for each in cluster.world.actors.running), 120)


def test_a_writer_ends_although_its_bound_asks_for_one_roll_after_the_other(cluster: Cluster) -> None:
    """L2: a roll waits for bookies until its time is over; the next one is asked for meanwhile. Closing comes first."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(ensemble_size=4, write_quorum=3)
    writer.append(b"one")
    cluster.crash("b4")
    cluster.run_for(5)
    for _ in range(3):
        writer._line.roll_behind(Begun.AGE)
        cluster.run_for(8)
    began_s = cluster.now_s
    writer.close()
    assert cluster.now_s - began_s < 20, "the roll under way ends, and no other comes first"
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"one"]


def test_who_takes_the_log_over_closes_both(cluster: Cluster) -> None:
    """P8.2, I91: "takeover closes both": the owner is away with its next ledger listed, and another in use."""
    client, other = cluster.client("w"), cluster.client("v")
    writer = client.log(NAME).writer(roll=embedbk.Roll(bytes=None, entries=10))
    count = 0
    while len(before := listed(client, NAME)) < 2:  # Where the bound is near is drawn.
        writer.append(b"%d" % count)
        count += 1
        cluster.run_for(1)
    assert count < 10
    with other.log(NAME).writer() as after:
        assert after.first_offset == count
        assert is_closed(other, before[0].ledger_id) and is_closed(other, before[1].ledger_id)
        after.append(b"%d" % count)
    with pytest.raises(embedbk.LedgerFenced):
        writer.append(b"late")
    with pytest.raises(embedbk.EmbedbkError):
        writer.roll()
    assert [bytes(entry) for entry in other.log(NAME).read()] == [b"%d" % n for n in range(count + 1)]


def test_a_tail_follows_over_ledgers(cluster: Cluster) -> None:
    """I97: every entry once, in order, also in front of a ledger whose place is not recorded yet."""
    client, reader = cluster.client("w"), cluster.client("r")
    seen: list[int] = []
    with client.log(NAME).writer(roll=embedbk.Roll(bytes=None, entries=5)) as writer:
        writer.append(b"0")
        tail = reader.log(NAME).tail(0, idle_s=1.0)
        for number in range(1, 60):
            writer.append(b"%d" % number)
            if number % 7 == 0:
                seen += [int(bytes(next(tail))) for _ in range(5)]
        seen += [int(bytes(entry)) for entry in tail]
    assert seen == list(range(60))
    assert len(listed(client, NAME)) > 8


def test_below_its_level_a_roll_is_a_takeover_from_itself(cluster: Cluster) -> None:
    """P10.8, METADATA.md 8: builds before level 4 read no ledger without a place."""
    client = cluster.client("w")
    client._runtime.node.metadata.client.cluster_level = LEVEL_OF_LOGS - 1
    with client.log(NAME).writer(roll=NEVER) as writer:
        epoch, first = writer.epoch, writer.append(b"one")
        writer.roll()
        assert writer.epoch > epoch and writer.ledger_id != first.ledger_id
        writer.append(b"two")
    assert [bytes(entry) for entry in client.log(NAME).read()] == [b"one", b"two"]
    assert {(each.created_ms, each.begun) for each in listed(client, NAME)} == {(0, Begun.UNKNOWN)}


@pytest.mark.parametrize(
    "terms", [{"bytes": 0}, {"bytes": True}, {"entries": 1.5}, {"age_s": 0}, {"age_s": "1"}], ids=str
)
def test_a_bound_that_is_none_is_refused(terms: dict[str, Any]) -> None:
    (name,) = terms
    with pytest.raises(embedbk.UsageError, match=rf"Roll\({name}=.*allowed is"):
        embedbk.Roll(**terms)


def test_what_is_no_bound_is_refused_before_anything_is_touched(bk: embedbk.Client, log_name: str) -> None:
    roll: Any = 5
    with pytest.raises(embedbk.UsageError, match="roll=5: allowed is"):
        bk.log(log_name).writer(roll=roll)

    async def awaited() -> None:
        await aio.Client(bk).log(log_name).writer(roll=roll)

    with pytest.raises(embedbk.UsageError, match="roll=5: allowed is"):
        asyncio.run(awaited())
    with pytest.raises(embedbk.NoSuchLedger):
        list(bk.log(log_name).read())


def test_appends_of_other_threads_go_on_while_it_rolls(bk: embedbk.Client, log_name: str) -> None:
    """P8.2: none fails, and the log's order is each thread's order."""
    failed: list[BaseException] = []
    is_over = threading.Event()
    counts = [0] * 5  # The last one is of this thread: a ledger that has nothing yet is not left.

    def append(number: int) -> None:
        try:
            while not is_over.is_set() or counts[number] < 30:
                text = b"%d %d" % (number, counts[number])
                if number == 0:
                    writer.append(text)
                elif number == 1:
                    writer.append(text, timeout_s=60)
                elif number == 2:
                    writer.append_many([text])
                else:
                    writer.append_nowait(text).result()
                counts[number] += 1
        except BaseException as error:  # noqa: BLE001  Shown by the test.
            failed.append(error)

    with bk.log(log_name).writer(roll=embedbk.Roll(bytes=None, entries=40)) as writer:
        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        ledgers = {writer.ledger_id}
        for count in range(8):
            writer.append(b"4 %d" % count)
            counts[4] += 1
            writer.roll()
            ledgers.add(writer.ledger_id)
        is_over.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert len(ledgers) == 9
    read: list[list[int]] = [[] for _ in range(5)]
    for entry in bk.log(log_name).read():
        number, count = bytes(entry).split()
        read[int(number)].append(int(count))
    assert read == [list(range(count)) for count in counts]


def test_tasks_append_while_it_rolls(bk: embedbk.Client, log_name: str) -> None:
    """P8.2: the same, awaited."""

    async def run() -> int:
        count = 0
        async with aio.Client(bk).log(log_name).writer(roll=embedbk.Roll(bytes=None, entries=15)) as writer:

            async def append() -> None:
                nonlocal count
                for _ in range(30):
                    await writer.append(b"entry")
                    await writer.append_batch([b"a", b"b"], timeout_s=60)
                    count += 2

            tasks = [asyncio.create_task(append()) for _ in range(3)]
            for _ in range(3):
                await writer.roll()
            await asyncio.gather(*tasks)
        return count

    assert asyncio.run(run()) == len(list(bk.log(log_name).read()))
    assert len(listed(bk, log_name)) > 3


def test_a_ticket_is_of_the_ledger_that_took_the_entry(cluster: Cluster) -> None:
    """P8.2: the log may go on in the next ledger, by another thread, in the middle of a task's call."""
    with cluster.client("w").log(NAME).writer(roll=NEVER) as writer:
        writer.append(b"zero")
        line, took = writer._line, writer._line.appending

        class RollsOnceItTook(aio.LogWriter):
            """As when the thread behind gets its turn between two lines of the call."""

            __slots__ = ()
            looks = 0

            @property
            def _appending(self) -> Any:
                RollsOnceItTook.looks += 1
                if RollsOnceItTook.looks == 2:
                    writer.roll()
                return line.appending

        ticket = RollsOnceItTook(NAME, line).append_nowait(b"one")
        if RollsOnceItTook.looks == 1:
            writer.roll()
        assert line.appending is not took
        assert ticket.position == embedbk.Position(took.ledger_id, 1) and ticket.offset == 1
        writer.append_many([b"two", b"three"])
        assert ticket.result() == ticket.position


def test_a_client_that_goes_away_while_its_log_rolls_hangs_nowhere(
    data: Any, settings: embedbk.Settings
) -> None:
    """What goes on behind users' calls ends with the client; what it leaves, the next writer closes."""
    with embedbk.open(data, settings=settings) as client:
        writer = client.log(NAME).writer(roll=embedbk.Roll(bytes=None, entries=3, age_s=0.01))
        for number in range(100):
            writer.append(b"%d" % number)
    with embedbk.open(data, settings=settings) as client, client.log(NAME).writer() as after:
        assert after.first_offset == 100
        assert [int(bytes(entry)) for entry in client.log(NAME).read()] == list(range(100))


def test_the_last_frame_of_a_ledger_that_is_left_waits_for_no_answer(cluster: Cluster) -> None:
    """P8.2 (ii): what is appended to the next ledger waits for it, and it grows no more. Else: it is sent when a frame
    in front of it is acknowledged, and all that comes waits for one more round of answers."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    first = writer.append(b"one").ledger_id
    end = cluster.drop_messages("AddRequest", ledger_id=first, verdict=Treatment(delay_ns=1_500_000_000))
    late = []
    for number in range(5):
        late.append(writer.append_nowait(b"%d" % number))
        cluster.run_for(0.01)
    before = writer._appending.writing
    assert before.core.lap < before.packer.last_entry, "two frames are out, so that the third may grow"
    client._runtime.behind(writer._line.roll())
    cluster.run_for(1.0)
    assert writer.ledger_id != first and not any(each.done() for each in late)
    assert before.core.lap == before.packer.last_entry
    end()
    assert [each.result().entry_id for each in late] == [1, 2, 3, 4, 5]
    writer.close()


def test_nothing_is_sent_to_the_next_ledger_before_all_adds_are_done(cluster: Cluster) -> None:
    """P8.2 (ii). Else: b in the next ledger is acknowledged, while a, sent before it, dies with the present one."""
    client = cluster.client("w")
    writer = client.log(NAME).writer(roll=NEVER)
    first = writer.append(b"one").ledger_id
    end = cluster.drop_messages("AddRequest", ledger_id=first, verdict=Treatment(delay_ns=1_500_000_000))
    late = writer.append_nowait(b"two")
    client._runtime.behind(writer._line.roll())
    cluster.run_for(1.0)
    assert len(listed(client, NAME)) == 2, "listed meanwhile"
    assert writer.ledger_id != first and not late.done()
    kept = writer.append_nowait(b"three")
    cluster.run_for(0.3)
    (state,) = (each for each in client.handles() if each.kind == "log writer")
    assert (state.rule, state.can_go_on) == (
        "P8.2",
        False,
    ) and f"ledger {first} to be durable" in state.waits_for
    assert not kept.done() and not knowing(cluster, writer.ledger_id)
    end()
    behind = writer.append(b"four")  # It waits for the roll.
    assert late.result().ledger_id == first != behind.ledger_id == writer.ledger_id
    assert [kept.result().entry_id, behind.entry_id] == [0, 1] and knowing(cluster, writer.ledger_id)
    assert cluster.run_until(lambda: listed(client, NAME)[1].first_offset == 2)
    writer.close()
