"""Splicing ready-made ledgers into a log, at the face (P8.5): beside writers that live, without one, and again."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import embedbk
from embedbk.client.owning import Owning
from embedbk.client.runtime import Runtime
from embedbk.codec.metadata_messages import Compare, Delete
from embedbk.errors import EmbedbkError, LogSealed, OperationTimeout, UsageError
from embedbk.metadata import watching
from embedbk.testing import Cluster
from tests.scenarios.carried import carry_over, end_log

NAME = "orders"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=85, bookies=3) as cluster:
        cluster.world.page_ledgers = 4
        carry_over(cluster.client("carrier"), NAME)
        yield cluster


def staged(log: Any, terms: embedbk.Staging, *values: bytes) -> int:
    with log.stage(terms) as writer:
        writer.add_many(list(values))
        ledger_id: int = writer.ledger_id
    return ledger_id


def values_of(cluster: Cluster, name: str = "reader") -> list[bytes]:
    entries = list(cluster.client(name).log(NAME).read())
    assert [entry.offset for entry in entries] == list(range(len(entries)))
    return [bytes(entry) for entry in entries]


def test_what_is_spliced_comes_all_at_once_in_the_order_that_was_asked_for(cluster: Cluster) -> None:
    """P8.5: "one transaction ... then sets all"; whoever staged, and in which order, decides nothing."""
    log = cluster.client("driver").log(NAME)
    terms = pickle.loads(pickle.dumps(log.staging("import", 1)))
    ids = [
        staged(cluster.client(f"task{number}").log(NAME), terms, b"%d a" % number, b"%d b" % number)
        for number in range(3)
    ]
    assert not cluster.client("driver").log_exists(NAME)
    outcome = log.splice(terms, [ids[2], ids[0]])
    assert outcome == embedbk.SpliceOutcome("import", 1, 0, 4, False, terms.job)
    assert values_of(cluster) == [b"2 a", b"2 b", b"0 a", b"0 b"]
    assert log.spliced("import") == outcome
    assert log.spliced("another") is None
    cluster.run_for(1.0)
    assert ids[1] not in cluster.client("driver").ledgers()  # Staged for it, and not a part of it.
    assert cluster.world.committed("/log-staging/") == {}


def test_a_transaction_that_is_tried_again_comes_to_pass_once(cluster: Cluster) -> None:
    """P8.5: "the transaction's (application, version) is new": by another attempt, by an older one, behind others."""
    log = cluster.client("driver").log(NAME)
    for number in range(3):
        terms = log.staging("import", number)
        assert not log.splice(terms, [staged(log, terms, b"%d" % number)]).is_replay
    for number in range(3):
        again = cluster.client("another").log(NAME)
        terms = again.staging("import", number)
        outcome = again.splice(terms, [staged(again, terms, b"again")])
        assert outcome[:5] == ("import", 2, 2, 3, True) and outcome.job != terms.job
    once = log.staging()
    outcome = log.splice(once, [staged(log, once, b"once")])
    assert log.splice(once, [1]) == outcome._replace(is_replay=True)
    assert values_of(cluster) == [b"0", b"1", b"2", b"once"]


def test_beside_a_writer_that_lives_the_ledgers_stand_between_two_of_its_own(cluster: Cluster) -> None:
    """P8.5: "by the owner inside a roll (close, append the staged, append the next)"; nobody is fenced."""
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"before")
    epoch = writer.epoch
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    outcome = log.splice(terms, [staged(log, terms, b"one", b"two"), staged(log, terms, b"three")])
    assert (outcome.first_offset, outcome.end, outcome.is_replay) == (1, 4, False)
    assert writer.append(b"behind").entry_id == 0
    assert writer.first_offset == 4 and writer.epoch > epoch
    assert values_of(cluster) == [b"before", b"one", b"two", b"three", b"behind"]
    assert cluster.world.committed("/splice-requests/") == {}
    writer.close()


def test_a_client_splices_beside_its_own_writer(cluster: Cluster) -> None:
    client = cluster.client("both")
    with client.log(NAME).writer() as writer:
        writer.append(b"before")
        log = client.log(NAME)
        terms = log.staging("import", 1)
        assert log.splice(terms, [staged(log, terms, b"one")]).first_offset == 1
        writer.append(b"behind")
    assert values_of(cluster) == [b"before", b"one", b"behind"]


def test_a_log_whose_writer_is_gone_is_taken_over_and_kept(cluster: Cluster) -> None:
    """P8.5: "by a process that first took the log over"; the next splice needs no other epoch."""
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"before")
    cluster.crash("writer")
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    cluster.run_for(30.0)  # The session of the writer ends.
    assert log.splice(terms, [ledger_id]).first_offset == 1
    owner = cluster.world.committed(f"/logs/{NAME}/owner")
    terms = log.staging("import", 2)
    log.splice(terms, [staged(log, terms, b"two")])
    assert cluster.world.committed(f"/logs/{NAME}/owner") == owner
    assert values_of(cluster) == [b"before", b"one", b"two"]
    with cluster.client("next").log(NAME).writer() as after:
        after.append(b"behind")
    terms = log.staging("import", 3)
    log.splice(terms, [staged(log, terms, b"three")])
    assert values_of(cluster) == [b"before", b"one", b"two", b"behind", b"three"]


def test_an_owner_whose_session_was_lost_lives_again(cluster: Cluster) -> None:
    """P8.5: "while the owner's session lives" it is asked, also when it has another one: it slept, and nobody took its
    log over meanwhile."""
    orders = cluster.log(NAME, client="owner").writer()
    orders.append(b"before")
    (before,) = cluster.world.committed("/living/")
    cluster.pause("owner")
    assert cluster.run_until(lambda: cluster.world.committed("/living/") == {})
    cluster.resume("owner")
    assert cluster.run_until(lambda: list(cluster.world.committed("/living/")) == [before])
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    log.splice(terms, [staged(log, terms, b"spliced")])
    orders.append(b"behind")  # Nobody took it over: the owner itself spliced.
    assert values_of(cluster) == [b"before", b"spliced", b"behind"]


def test_an_owner_that_may_follow_no_further_key_shows_that_it_lives_once_it_may(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.5, P11.2: a client of very many tails. Else others wait in vain for its answer, or close its ledgers, as it
    never learns that its key went with a session."""
    cluster.client("owner")
    with monkeypatch.context() as full:
        full.setattr(watching, "WATCHES_MAX", 0)
        orders = cluster.log(NAME, client="owner").writer()
        orders.append(b"before")
        cluster.run_for(3.0)
    cluster.run_for(3.0)
    cluster.pause("owner")
    assert cluster.run_until(lambda: cluster.world.committed("/living/") == {})
    cluster.resume("owner")
    assert cluster.run_until(lambda: cluster.world.committed("/living/") != {})
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    log.splice(terms, [staged(log, terms, b"spliced")])
    orders.append(b"behind")
    assert values_of(cluster) == [b"before", b"spliced", b"behind"]


def test_a_writer_that_closed_owns_nothing_any_more(cluster: Cluster) -> None:
    """Its client lives, and answers that: nobody waits for it."""
    with cluster.client("writer").log(NAME).writer() as writer:
        writer.append(b"before")
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    assert log.splice(terms, [staged(log, terms, b"one")]).first_offset == 1
    assert values_of(cluster) == [b"before", b"one"]


def test_an_owner_that_does_not_answer_in_time_does_not_splice_later(cluster: Cluster) -> None:
    """P8.5: "no answer in time is an error that changed nothing": the request is withdrawn by a transaction."""
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"before")
    line: Any = writer._line
    line._turn_of = line  # Something that takes long is under way there.
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    with pytest.raises(OperationTimeout, match="withdrawn") as late:
        log.splice(terms, [ledger_id], timeout_s=2.0)
    assert late.value.definite
    line._turn_of = None
    line._signal.notify()
    cluster.run_for(5.0)
    writer.append(b"behind")
    assert values_of(cluster) == [b"before", b"behind"]
    assert log.splice(terms, [ledger_id]).first_offset == 2
    assert values_of(cluster, "later") == [b"before", b"behind", b"one"]


def test_an_owner_that_splices_too_late_is_refused(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """P8.5: "with the request withdrawn by a transaction", also when its owner is about to commit just then."""
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"before")
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    driver: Any = cluster.client("driver")._runtime
    take_over, withdrawn = Owning.take_over, list[bool]()

    async def slow(owning: Owning, renews: int | None = None, joined: Any = None) -> Any:
        for key in cluster.world.committed("/splice-requests/") if joined is not None else ():
            _, revision = await driver.get(key, "a test")
            withdrawn.append(await driver.transact([Compare(key, revision)], [Delete(key)], "withdrawn"))
        return await take_over(owning, renews, joined)

    with monkeypatch.context() as patch:
        patch.setattr(Owning, "take_over", slow)
        with pytest.raises(EmbedbkError, match="nothing was spliced"):
            log.splice(terms, [ledger_id], timeout_s=1.0)
        assert writer.append(b"between").ledger_id == writer.ledger_id
        cluster.run_for(1.0)
        assert withdrawn[0], "by this hand; a later one may come when who asked withdraws it by itself"
    writer.append(b"behind")
    assert values_of(cluster) == [b"before", b"between", b"behind"]


def test_what_cannot_be_spliced_is_said_and_changes_nothing(cluster: Cluster) -> None:
    log = cluster.client("driver").log(NAME)
    terms, other = log.staging("import", 1), log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    is_open = log.stage(terms)
    is_open.add(b"open")
    empty = staged(log, terms)
    for ids, why in (
        ([], "1 to 60"),
        ([ledger_id, ledger_id], "each once"),
        ([is_open.ledger_id], "not closed"),
        ([ledger_id, empty], "empty"),
        ([ledger_id, 987], "not staged any more"),
    ):
        with pytest.raises(UsageError, match=why):
            log.splice(terms, ids)
    with pytest.raises(UsageError, match="by another attempt"):
        log.splice(other, [ledger_id])
    with pytest.raises(UsageError, match="no staging"):
        cluster.client("driver").log("another").splice(terms, [ledger_id])
    with pytest.raises(UsageError, match="application="):
        log.staging("", 1)
    with pytest.raises(UsageError, match="number="):
        log.staging("import", -1)
    assert not cluster.client("driver").log_exists(NAME)
    writer = cluster.client("writer").log(NAME).writer()
    writer.append(b"before")
    with pytest.raises(UsageError, match=r"the owner of log 'orders' did not splice: .*empty"):
        log.splice(terms, [ledger_id, empty])
    writer.append(b"behind")
    assert values_of(cluster) == [b"before", b"behind"]


def test_what_is_given_up_is_spliced_by_nobody(cluster: Cluster) -> None:
    """P8.5: "still staging": the sweeper takes the mark away in the transaction that deletes."""
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    ids = [staged(log, terms, b"one"), staged(log, terms, b"two")]
    kept = log.staging("import", 2)
    kept_id = staged(log, kept, b"three")
    assert log.unstage(terms) == 2
    assert cluster.client("driver").ledgers() == [kept_id]
    with pytest.raises(UsageError, match="not staged any more"):
        log.splice(terms, ids)
    brief = log.staging("brief", 1, ttl_s=1.0)
    staged(log, brief, b"late")
    cluster.run_for(2.0)
    assert log.unstage(terms) == 1
    assert log.splice(kept, [kept_id]).first_offset == 0


def test_numbers_that_no_message_can_have_are_refused(cluster: Cluster) -> None:
    """Seen: the host thread of the client ended by them, and with it all that the client had open."""
    log = cluster.client("driver").log(NAME)
    for wrong in (float("inf"), float("nan"), None, -1.0, 1e9, True):
        with pytest.raises(UsageError, match="ttl_s="):
            log.staging("import", 1, ttl_s=wrong)  # type: ignore[arg-type]
    terms = log.staging("import", 1)
    for wrong_ms in (1 << 64, 1 << 63, -1):
        with pytest.raises(UsageError, match="is no staging"):
            log.stage(terms._replace(expires_ms=wrong_ms))
    ledger_id = staged(log, terms, b"one")
    with pytest.raises(UsageError, match="is no staging"):
        log.splice(terms._replace(number=1 << 64), [ledger_id])
    assert log.splice(terms, [ledger_id]).end == 1


def test_a_staged_ledger_that_a_user_deletes_leaves_no_mark(cluster: Cluster) -> None:
    client = cluster.client("driver")
    log = client.log(NAME)
    terms = log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    client.delete_ledger(ledger_id)
    assert cluster.world.committed("/log-staging/") == {}
    with pytest.raises(UsageError, match="not staged any more"):
        log.splice(terms, [ledger_id])
    terms = log.staging("import", 1)
    ledger_id = staged(log, terms, b"one")
    log.splice(terms, [ledger_id])
    with pytest.raises(UsageError, match="is part of log"):
        client.delete_ledger(ledger_id)


def test_a_log_that_is_deleted_takes_along_what_was_staged_for_it(cluster: Cluster) -> None:
    client = cluster.client("driver")
    log = client.log(NAME)
    terms = log.staging("import", 1)
    log.splice(terms, [staged(log, terms, b"one")])
    staged(log, log.staging("import", 2), b"two")
    end_log(client, NAME)
    assert client.ledgers() == []
    assert cluster.world.committed("/log-staging/") == {}
    terms = log.staging("import", 1)
    assert not log.splice(terms, [staged(log, terms, b"anew")]).is_replay


def test_nothing_is_spliced_behind_a_seal(cluster: Cluster) -> None:
    log = cluster.client("driver").log(NAME)
    terms = log.staging("import", 1)
    log.splice(terms, [staged(log, terms, b"one")])
    log.seal("enough")
    terms = log.staging("import", 2)
    with pytest.raises(LogSealed):
        log.splice(terms, [staged(log, terms, b"two")])
    assert values_of(cluster) == [b"one"]


def test_a_writer_goes_on_behind_a_splice_and_pages_hold_both(cluster: Cluster) -> None:
    """P8.10: ids in any order; read, tail, truncate and a time of it."""
    log = cluster.client("driver").log(NAME)
    tail = cluster.client("tail").log(NAME)
    early = [staged(log, terms := log.staging("early", 1), b"early %d" % n) for n in range(1)]
    expected = []
    for number in range(6):
        with cluster.client(f"writer{number}").log(NAME).writer() as writer:
            writer.append(b"w%d" % number)
        terms_now = log.staging("import", number)
        log.splice(terms_now, [staged(log, terms_now, b"s%d" % number)])
        expected += [b"w%d" % number, b"s%d" % number]
        cluster.run_for(0.1)
    log.splice(terms, early)
    expected.append(b"early 0")
    assert values_of(cluster) == expected
    assert len(cluster.world.committed("/log-pages/")) >= 2
    positions = [entry.position for entry in log.read()]
    assert [entry.offset for entry in log.read(positions[3], positions[-1])] == list(range(3, 12))
    assert [bytes(entry) for entry in tail.tail(positions[5], idle_s=1.0)] == expected[5:]
    times = [log.time_at(offset) for offset in range(len(expected))]
    assert None not in times and times == sorted(times, key=lambda each: each or 0)
    assert log.first_at(times[7] or 0) <= 7
    assert log.truncate(positions[4]).reached == 4
    assert values_from(cluster, 4) == expected[4:]


def values_from(cluster: Cluster, offset: int) -> list[bytes]:
    return [bytes(entry) for entry in cluster.client("from").log(NAME).read(offset)]


def test_nothing_is_staged_below_the_level(cluster: Cluster) -> None:
    """P10.8: a list with ids in any order is written only behind a raised level."""
    log = cluster.client("driver").log(NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "has_level", lambda self, level: level < 12)
        with pytest.raises(UsageError, match="below 12"):
            log.stage(log.staging("import", 1))
        with cluster.client("writer").log(NAME).writer() as writer:
            writer.append(b"one")
    (owner,) = cluster.world.committed(f"/logs/{NAME}/owner").values()
    assert b"living" not in owner
