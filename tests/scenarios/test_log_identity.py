"""A log has an id that never changes, and a name that points to it (P8.12); deleted, it may come back (P8.13)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

import embedbk
from embedbk.client import log_writer as logs
from embedbk.client.client import Client
from embedbk.client.creating import traits_of
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import decode_ledger_metadata, log_key_path, log_owner_path
from embedbk.codec.log_identity import (
    LogIdentity,
    LogIdentityState,
    decode_log_identity,
    encode_log_identity,
    is_minted,
    log_deleted_path,
    log_identity_path,
    log_name_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.config import Quorum
from embedbk.errors import (
    LedgerFenced,
    LogExists,
    MetadataUnavailable,
    NoSuchLedger,
    StorageError,
    UsageError,
    WrongPassword,
)
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS
from embedbk.testing import Cluster
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.sim_runtime import awaited
from tests.scenarios.carried import end_log, id_of, keys_left

ONE, TWO = "one", "two"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(seed=107, bookies=3) as cluster:
        yield cluster


def fill(client: Client, *payloads: bytes, name: str = ONE, password: bytes = b"") -> list[int]:
    """A ledger for each; their ids."""
    ids = []
    for payload in payloads:
        with client.log(name, password=password).writer() as writer:
            writer.append(payload)
            ids.append(writer.ledger_id)
    return ids


def values(client: Client, name: str = ONE, password: bytes = b"") -> list[bytes]:
    return [bytes(entry) for entry in client.log(name, password=password).read()]


def keys(cluster: Cluster) -> dict[str, bytes]:
    return cluster.world.committed("/log") | cluster.world.committed("/ledgers/")


def identity(cluster: Cluster, log_id: str) -> LogIdentity:
    return decode_log_identity(cluster.world.committed("/log-ids/")[log_identity_path(log_id)], log_id)


def put(client: Client, *changes: Put | Delete) -> None:
    assert run_blocking(client._runtime.transact([], list(changes), "a stranger's word"), "")


def beside(patch: pytest.MonkeyPatch, of: str, act: Callable[[], None]) -> None:
    """Act once, between what was looked at and the first transaction that is for this."""
    transact, is_done = Runtime.transact, [False]

    async def late(self: Runtime, when: Any, then: Any, what: str) -> bool:
        if what.startswith(of) and not is_done[0]:
            is_done[0] = True
            act()
        return await transact(self, when, then, what)

    patch.setattr(Runtime, "transact", late)


def unknown(patch: pytest.MonkeyPatch, of: str, *, comes_to_pass: bool) -> None:
    """Nobody answers the first transaction that is for this."""
    transact, is_done = Runtime.transact, [False]

    async def lost(self: Runtime, when: Any, then: Any, what: str) -> bool:
        if what.startswith(of) and not is_done[0]:
            is_done[0] = True
            if comes_to_pass:
                assert await transact(self, when, then, what)
            raise MetadataUnavailable("nobody answers")
        return await transact(self, when, then, what)

    patch.setattr(Runtime, "transact", lost)


# --- The id -------------------------------------------------------------------------------------------------


def test_a_log_is_made_with_its_id_and_all_of_it_names_that(cluster: Cluster) -> None:
    """P8.12: "ledgers, cursors, pins, splice places name the id"; no key and no ledger has the name."""
    client = cluster.client("a")
    log = client.log(ONE)
    (ledger_id,) = fill(client, b"zero")
    log.cursor("c").set(1)
    log.pin("p")
    log.change(retention_s=9.0)
    terms = log.staging("import", 1)
    with log.stage(terms) as part:
        part.add(b"staged")
    log_id = log.log_id()
    assert is_minted(log_id) and log_id == id_of(cluster, ONE)
    named = [key for key in cluster.world.committed("/log") if ONE in key.split("/")]
    assert named == [log_name_path(ONE)]
    for each in (ledger_id, part.ledger_id):
        assert client.ledger_metadata(each).custom["log"] == log_id.encode()
    assert [key for key in cluster.world.committed("/log-staging/") if log_id not in key] == []
    assert values(client) == [b"zero"]
    assert client.create_log(TWO).log_id() != log_id


def test_two_that_make_a_log_at_once_make_one(cluster: Cluster) -> None:
    """P8.12, I104: "a name never leads to two logs": the second one finds the first, also between look and put."""
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "creating log 'one'", lambda: fill(cluster.client("b"), b"first") and None)
        fill(cluster.client("a"), b"second")
    assert values(cluster.client("a")) == [b"first", b"second"]
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "creating log 'two'", lambda: cluster.client("b").create_log(TWO) and None)
        with pytest.raises(LogExists):
            cluster.client("a").create_log(TWO)
    assert len(cluster.world.committed("/log-ids/")) == 2


def test_a_writer_that_fails_leaves_its_new_log_empty(cluster: Cluster) -> None:
    """P8.12: "A takeover that makes the log and then fails leaves it, empty": readers find no entry, the next writer
    goes on with this very log, and whoever does not want it deletes it."""
    bk = cluster.client("w")
    for name in ("b1", "b2"):
        cluster.crash(name)
    cluster.run_for(30)  # Until nobody lists them any more.
    for name in (ONE, "unwanted"):
        with pytest.raises(embedbk.NotEnoughBookies):
            bk.log(name).writer()
    assert bk.logs() == [ONE, "unwanted"]
    log_id = bk.log(ONE).log_id()
    assert list(bk.log(ONE).read()) == [] and bk.log(ONE).end() == 0
    bk.delete_log("unwanted")
    cluster.heal()
    with bk.log(ONE).writer() as writer:
        writer.append(b"zero")
    assert bk.log(ONE).log_id() == log_id
    assert [bytes(entry) for entry in cluster.client("r").log(ONE).read()] == [b"zero"]
    assert bk.logs() == [ONE]


def test_a_log_from_below_the_level_goes_on_as_it_is(cluster: Cluster) -> None:
    """P8.12: "its id is the name under which it was made"; it is read as it is, and carried over by its writer."""
    client = cluster.client("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_LOG_IDS)
        fill(client, b"old")
        client.log(ONE).cursor("c").set(1)
    before = keys(cluster)
    assert log_key_path(ONE) in before and not cluster.world.committed("/log-names/")
    assert values(client) == [b"old"] and client.logs() == [ONE] and client.log_exists(ONE)
    assert client.log(ONE).log_id() == ONE and client.log(ONE).cursor("c").get().offset == 1
    with pytest.raises(LogExists):
        client.create_log(ONE)
    fill(client, b"new")
    assert id_of(cluster, ONE) == ONE and identity(cluster, ONE).name == ONE
    assert values(client) == [b"old", b"new"] and client.logs() == [ONE]
    client.log(ONE).rename(TWO)
    fill(client, b"another")
    assert values(client) == [b"another"] and values(client, TWO) == [b"old", b"new"]
    assert client.log(TWO).log_id() == ONE and is_minted(client.log(ONE).log_id())
    assert client.logs() == [ONE, TWO]
    end_log(client, TWO)
    end_log(client, ONE)
    assert keys_left(cluster) == set() and identity(cluster, ONE).state == LogIdentityState.GONE
    fill(client, b"third")
    assert client.log(ONE).log_id() != ONE, "an id is never used twice"


def test_who_was_not_told_of_the_level_makes_no_second_log(cluster: Cluster) -> None:
    """P10.8: a key that is there says that the level is in force. Neither where the name is free nor where it was
    taken from an old log is a log made under its name."""
    told, untold = cluster.client("told"), cluster.client("untold")
    untold._runtime.has_level = lambda level: level < LEVEL_OF_LOG_IDS  # type: ignore[method-assign]
    fill(untold, b"old")
    told.log(ONE).rename(TWO)
    fill(untold, b"new")
    assert values(told) == [b"new"] == values(untold) and values(untold, TWO) == [b"old"]
    # It looked before the other one made the log, and puts its epoch behind that.
    with pytest.MonkeyPatch.context() as patch:
        run, is_done = Runtime.run, [False]

        async def late(self: Runtime, core: Any, what: str, timeout_s: float | None = None) -> Any:
            if self is untold._runtime and not is_done[0]:
                is_done[0] = True
                with told.log("three").writer() as writer:
                    writer.append(b"first")
            return await run(self, core, what, timeout_s)

        patch.setattr(Runtime, "run", late)
        fill(untold, b"second", name="three")
    assert values(told, "three") == [b"first", b"second"] == values(untold, "three")
    assert log_owner_path("three") not in cluster.world.committed("/logs/")
    with pytest.raises(UsageError, match="level is below 14"):
        untold.log(ONE).rename("four")
    with pytest.raises(UsageError, match="level is below 14"):
        untold.undelete_log(ONE)
    untold.delete_log(ONE)
    assert [each.name for each in told.deleted_logs()] == [ONE] and untold.logs() == ["three", TWO]


# --- Renaming -----------------------------------------------------------------------------------------------


def test_whoever_has_a_log_open_goes_on_when_it_is_renamed(cluster: Cluster) -> None:
    """P8.12: writer, roll, reader, tail, consumer, pin and staged ledgers stay with the log, whatever it is called."""
    client = cluster.client("a")
    log = client.log(ONE)
    terms = log.staging("import", 1)
    with log.writer() as writer, log.cursor("c").consume(idle_s=1.0) as consumer:
        entries = iter(consumer)
        writer.append_many([b"0", b"1"])
        reading, tail = log.read(), log.tail(0, idle_s=1.0)
        assert [bytes(next(reading)), bytes(next(tail)), bytes(next(entries))] == [b"0", b"0", b"0"]
        log.pin("p", 0)
        with log.stage(terms) as part:
            part.add(b"2")
        log.rename(TWO)
        assert log.name == TWO and client.logs() == [TWO]
        writer.roll()
        writer.append(b"1b")
        log.splice(terms, [part.ledger_id])
        writer.append(b"3")
        assert [bytes(each) for each in reading] == [b"1"]
        assert [bytes(each) for each in tail] == [b"1", b"1b", b"2", b"3"]
        assert [bytes(each) for each in entries] == [b"1", b"1b", b"2", b"3"]
        assert writer.lost(0.1) is False
    assert log.cursor("c").get().offset == 5 and [each.name for each in log.pins()] == ["p"]
    assert values(cluster.client("b"), TWO) == [b"0", b"1", b"1b", b"2", b"3"]
    with pytest.raises(NoSuchLedger, match="no log 'one'"):
        values(client)
    other = client.create_log(ONE)
    with pytest.raises(UsageError, match="no staging"):
        log.splice(terms, [part.ledger_id])
    assert other.log_id() != log.log_id()


def test_a_name_that_is_taken_or_none_changes_nothing(cluster: Cluster) -> None:
    client = cluster.client("a")
    fill(client, b"one")
    client.create_log(TWO)
    before = keys(cluster)
    with pytest.raises(LogExists, match="log 'one' keeps its name"):
        client.log(ONE).rename(TWO)
    with pytest.raises(NoSuchLedger):
        client.log("three").rename("four")
    for bad in ("~0000000000000000", "a/b", "", "x" * 200):
        with pytest.raises(UsageError):
            client.log(ONE).rename(bad)
    client.log(ONE).rename(ONE)
    assert keys(cluster) == before


@pytest.mark.parametrize("first", ["rename", "delete", "create", "takeover"])
def test_of_a_rename_and_what_comes_between_one_sees_the_other(cluster: Cluster, first: str) -> None:
    """P8.12: each is one transaction that compares where the name leads."""
    client, other = cluster.client("a"), cluster.client("b")
    fill(client, b"one")
    acts: dict[str, Callable[[], Any]] = {
        "rename": lambda: other.log(ONE).rename("three"),
        "delete": lambda: other.delete_log(ONE),
        "create": lambda: other.create_log(TWO),
        "takeover": lambda: fill(other, b"two"),
    }
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "renaming log", lambda: acts[first]() and None)
        if first == "takeover":
            client.log(ONE).rename(TWO)
            assert values(client, TWO) == [b"one", b"two"]
            return
        with pytest.raises(LogExists if first == "create" else NoSuchLedger):
            client.log(ONE).rename(TWO)
    if first == "create":
        assert values(client) == [b"one"] and values(client, TWO) == []
    else:
        assert not client.log_exists(TWO)


def test_a_takeover_meets_a_rename_or_a_deletion_before_anybody_is_fenced(cluster: Cluster) -> None:
    """P8.12: "compared with the epoch's put": else a deleted log has an owner, and what it acknowledges goes."""
    client, other = cluster.client("a"), cluster.client("b")
    for act in (lambda: other.log(ONE).rename(TWO), lambda: other.delete_log(ONE)):
        fill(client, b"one")
        log_id = client.log(ONE).log_id()
        with pytest.MonkeyPatch.context() as patch:
            run, is_done = Runtime.run, [False]

            async def late(
                self: Runtime,
                core: Any,
                what: str,
                timeout_s: float | None = None,
                act: Any = act,
                done: Any = is_done,
                run: Any = run,
            ) -> Any:
                if self is client._runtime and what.startswith("taking over") and not done[0]:
                    done[0] = True
                    act()
                return await run(self, core, what, timeout_s)

            patch.setattr(Runtime, "run", late)
            fill(client, b"anew")
        assert client.log(ONE).log_id() != log_id and values(client) == [b"anew"]
        end_log(client, ONE)


@pytest.mark.parametrize("comes_to_pass", [True, False])
def test_a_rename_of_which_nobody_hears_is_told_by_the_identity(
    cluster: Cluster, comes_to_pass: bool
) -> None:
    """P2.2: done where the log has the new name since; else it is not known, and said so."""
    client = cluster.client("a")
    fill(client, b"one")
    log = client.log(ONE)
    with pytest.MonkeyPatch.context() as patch:
        unknown(patch, "renaming log", comes_to_pass=comes_to_pass)
        if comes_to_pass:
            log.rename(TWO)
        else:
            with pytest.raises(MetadataUnavailable):
                log.rename(TWO)
    assert log.name == (TWO if comes_to_pass else ONE)
    assert values(client, log.name) == [b"one"]


def test_a_rename_leaves_nothing_behind_under_the_first_name(cluster: Cluster) -> None:
    """P8.12: the keys of a log from below the level stand under its first name for ever, which leads there no more."""
    client = cluster.client("a")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_LOG_IDS)
        fill(client, b"old")
    client.log(ONE).rename(TWO)
    log = client.log(ONE)
    for act in (log.end, log.settings, log.log_id, lambda: list(log.read()), lambda: log.cursor("c").set(0)):
        with pytest.raises(NoSuchLedger, match="no log 'one'"):
            act()
    assert not client.log_exists(ONE) and client.logs() == [TWO]


# --- Deleted, and brought back ------------------------------------------------------------------------------


def test_a_deleted_log_comes_back_as_it_was(cluster: Cluster) -> None:
    """P8.13: one transaction takes the name and puts the list aside, one brings both back: entries, offsets, cursors,
    pins and settings."""
    client = cluster.client("a")
    ids = fill(client, b"zero", b"one")
    log = client.log(ONE)
    log.cursor("c").set(1)
    log.pin("p", 1)
    log.change(retention_bytes=7)
    before, log_id = client.ledgers(), log.log_id()
    log.delete()
    assert client.logs() == [] and not client.log_exists(ONE) and client.ledgers() == before
    (told,) = client.deleted_logs()
    assert (told.name, told.log_id) == (ONE, log_id) and told.until_ms > told.deleted_ms
    for act in (
        log.end,
        log.cursors,
        log.settings,
        log.log_id,
        lambda: log.truncate(1),
        lambda: log.seal("x"),
    ):
        with pytest.raises(NoSuchLedger):
            act()
    with pytest.raises(NoSuchLedger, match="deleted_logs"):
        client.delete_log(ONE)
    with pytest.raises(UsageError, match="part of a log that was deleted"):
        client.delete_ledger(ids[0])
    assert client.forget_deleted() == [], "its grace is not over"
    back = client.undelete_log(ONE)
    assert back.name == ONE and back.log_id() == log_id and client.deleted_logs() == []
    assert values(client) == [b"zero", b"one"] and back.cursor("c").get().offset == 1
    assert [each.name for each in back.pins()] == ["p"] and back.settings().retention_bytes == 7
    fill(client, b"two")
    assert [entry.offset for entry in back.read()] == [0, 1, 2]
    with pytest.raises(NoSuchLedger, match="deleted_logs"):
        client.undelete_log(ONE)


def test_a_name_is_free_behind_a_deletion_and_ids_tell_logs_apart(cluster: Cluster) -> None:
    client = cluster.client("a")
    for value in (b"first", b"second"):
        fill(client, value)
        client.delete_log(ONE)
    fill(client, b"third")
    first, second = sorted(client.deleted_logs(), key=lambda each: each.deleted_ms)
    before = keys(cluster)
    with pytest.raises(UsageError, match=f"{first.log_id}.*|{second.log_id}.*"):
        client.undelete_log(ONE)
    with pytest.raises(LogExists, match="by now"):
        client.undelete_log(first.log_id)
    with pytest.raises(UsageError):
        client.undelete_log(first.log_id, new_name="~")
    assert keys(cluster) == before
    client.undelete_log(first.log_id, new_name=TWO)
    assert values(client, TWO) == [b"first"] and values(client) == [b"third"]


def test_a_writer_that_lives_is_deleted_only_by_force_and_loses_nothing(cluster: Cluster) -> None:
    """CL30, P8.13: what it was acknowledged is part of the log, and comes back; its next roll is refused."""
    client = cluster.client("a")
    writer = cluster.client("w").log(ONE).writer()
    writer.append(b"0")
    before = keys(cluster)
    with pytest.raises(UsageError, match=r"is OPEN; nothing was changed"):
        client.delete_log(ONE)
    assert keys(cluster) == before
    tail = client.log(ONE).tail(0)
    assert bytes(next(tail)) == b"0"
    client.log(ONE).delete(force=True)
    writer.append(b"1")
    assert writer.lost(1.0) is True
    with pytest.raises(LedgerFenced):
        writer.roll()
    writer.release()
    client.undelete_log(ONE)
    fill(client, b"2")
    assert values(client) == [b"0", b"1", b"2"]


def test_a_wrong_password_neither_deletes_nor_brings_back(cluster: Cluster) -> None:
    client, thief = cluster.client("a"), cluster.client("thief")
    fill(client, b"zero", password=b"sesame")
    for seals in (False, True):
        if seals:
            client.log(ONE, password=b"sesame").seal("so that its end is in the list")
        before = keys(cluster)
        for force in (False, True):
            with pytest.raises(WrongPassword):
                thief.delete_log(ONE, force=force)
        assert keys(cluster) == before
        client.delete_log(ONE, password=b"sesame")
        with pytest.raises(WrongPassword):
            thief.undelete_log(ONE)
        client.undelete_log(ONE, password=b"sesame")
    assert values(client, password=b"sesame") == [b"zero"]


@pytest.mark.parametrize("act", ["delete", "undelete"])
@pytest.mark.parametrize("comes_to_pass", [True, False])
def test_what_nobody_hears_of_is_told_by_the_identity(
    cluster: Cluster, act: str, comes_to_pass: bool
) -> None:
    """P2.2, P8.13."""
    client = cluster.client("a")
    fill(client, b"one")
    if act == "undelete":
        client.delete_log(ONE)
    steps = client.delete_log if act == "delete" else client.undelete_log
    with pytest.MonkeyPatch.context() as patch:
        unknown(patch, "deleting log" if act == "delete" else "bringing log", comes_to_pass=comes_to_pass)
        if comes_to_pass:
            steps(ONE)
        else:
            with pytest.raises(MetadataUnavailable):
                steps(ONE)
    assert client.log_exists(ONE) is ((act == "undelete") is comes_to_pass)


def test_behind_its_grace_a_log_goes_with_all_that_is_its(cluster: Cluster) -> None:
    """P8.13: whoever forgets ends it, wherever the one before was cut short, and nobody brings it back any more."""
    client = cluster.client("a")
    fill(client, b"zero", b"one")
    log = client.log(ONE)
    log.cursor("c").set(1)
    log.pin("p", 0)
    client._runtime.settings = replace(client._runtime.settings, delete_grace_s=0.0)
    client.delete_log(ONE)
    transact, left, tries = Runtime.transact, [0], 0

    async def cut_short(self: Runtime, when: Any, then: Any, what: str) -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise MetadataUnavailable("cut short", definite=True)
        return await transact(self, when, then, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Runtime, "transact", cut_short)
        while True:
            left[0], tries = 1, tries + 1
            try:
                client.forget_deleted()
                break
            except MetadataUnavailable:
                with pytest.raises(NoSuchLedger):
                    client.undelete_log(ONE)
    assert tries > 3 and keys(cluster) == {} and client.deleted_ledgers() == []


def test_of_a_log_that_is_brought_back_and_forgotten_at_once_one_comes_to_pass(cluster: Cluster) -> None:
    client, other = cluster.client("a"), cluster.client("b")
    fill(client, b"one")
    client._runtime.settings = replace(client._runtime.settings, delete_grace_s=0.0)
    client.delete_log(ONE)
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "forgetting deleted logs", lambda: other.undelete_log(ONE) and None)
        client.forget_deleted()
    assert values(client) == [b"one"]
    client.delete_log(ONE)
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "bringing log", lambda: other.forget_deleted() and None)
        with pytest.raises(NoSuchLedger):
            client.undelete_log(ONE)
    client.create_log(TWO)  # Without a ledger whose key would tell.
    client.delete_log(TWO)
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "bringing log", lambda: other.forget_deleted() and None)
        with pytest.raises(NoSuchLedger):
            client.undelete_log(TWO)
    assert keys(cluster) == {}


def test_a_log_is_not_brought_back_over_one_that_is_made_beside_it(cluster: Cluster) -> None:
    """I104: the name that was free when it was looked at is another log's."""
    client, other = cluster.client("a"), cluster.client("b")
    fill(client, b"one")
    client.delete_log(ONE)
    with pytest.MonkeyPatch.context() as patch:
        beside(patch, "bringing log", lambda: fill(other, b"anew") and None)
        with pytest.raises(LogExists):
            client.undelete_log(ONE)
    assert values(client) == [b"anew"] and [each.name for each in client.deleted_logs()] == [ONE]


def test_a_takeover_that_a_deletion_overtakes_deletes_nothing_that_may_come_back(cluster: Cluster) -> None:
    """P8.13: the list of a deleted log may name the ledger that a refused takeover made."""
    client = cluster.client("a")
    fill(client, b"zero")
    writer = cluster.client("w").log(ONE).writer()
    writer.append(b"one")
    client.delete_log(ONE, force=True)
    log_id = client.deleted_logs()[0].log_id
    with pytest.raises(UsageError, match="part of a log that was deleted"):
        client.delete_ledger(writer.ledger_id, force=True)
    assert log_deleted_path(log_id) in cluster.world.committed("/logs/")
    writer.release()
    client.undelete_log(ONE)
    assert values(client) == [b"zero", b"one"]


# --- Which there are ----------------------------------------------------------------------------------------


def test_logs_are_watched_by_what_is_there(cluster: Cluster) -> None:
    """P8.12: at once, and whenever the names are others; those of a prefix."""
    client, other = cluster.client("a"), cluster.client("b")
    fill(client, b"zero", name="app.one")
    watched = client.watch_logs("app.", idle_s=2.0)
    assert next(watched) == ["app.one"]
    other.create_log("app.two")
    assert next(watched) == ["app.one", "app.two"]
    other.create_log("else")
    other.log("app.one").rename("app.three")
    assert next(watched) == ["app.three", "app.two"]
    fill(other, b"one", name="app.two")  # Its list changes, and no name does.
    other.delete_log("app.three")
    assert next(watched) == ["app.two"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(other._runtime, "has_level", lambda level: level < LEVEL_OF_LOG_IDS)
        fill(other, b"old", name="app.old")
    assert next(watched) == ["app.old", "app.two"]
    assert list(watched) == [], "nothing more came for idle_s"
    with pytest.raises(UsageError):
        next(client.watch_logs("a/b"))


def test_a_tail_waits_for_a_log_that_is_not_there_yet(cluster: Cluster) -> None:
    """P6.6: by its name, from below the level on as well as with a pointer."""
    client = cluster.client("a")
    assert list(client.log(ONE).tail(0, idle_s=0.3)) == []
    tail = client.log(ONE).tail(0, idle_s=5.0)
    runtime = cluster.client("b")._runtime
    traits = traits_of(runtime, "synced", None, delays_change=False, digest="crc32c")

    def steps() -> Steps:
        yield Sleep(500_000_000)
        taking = logs.take_over(runtime, ONE, Password(b""), Quorum(3, 3, 2), traits)
        appending = (yield from awaited(runtime, taking)).appending
        yield from awaited(runtime, appending.append(b"zero"))

    cluster.world.spawn("b", steps())
    assert bytes(next(tail)) == b"zero"


def test_what_cannot_be_read_of_an_identity_stops_nothing_else(cluster: Cluster) -> None:
    """P2.5: it ends who needs it, by name; other logs are deleted, listed and forgotten beside it."""
    client = cluster.client("a")
    fill(client, b"one")
    put(
        client,
        Put(log_name_path("bad"), b"\xc1"),
        Put(log_identity_path("bad"), b"\xc1"),
        Put(log_identity_path("a b"), encode_log_identity(LogIdentity(1, "x", LogIdentityState.DELETED))),
        Put(log_identity_path("~0000000000000001"), b"\x94\x02\xa1x\x01\x00"),
    )
    for act in (lambda: client.log("bad").end(), lambda: fill(client, b"x", name="bad")):
        with pytest.raises(StorageError):
            act()
    end_log(client, ONE)
    assert client.deleted_logs() == [] and client.ledgers() == []
    assert ONE not in client.logs()


def test_a_pointer_whose_log_says_another_name_is_not_followed_to_write(cluster: Cluster) -> None:
    """I104 holds by transactions; what a stranger puts there is no log."""
    client = cluster.client("a")
    fill(client, b"one")
    value = cluster.world.committed("/log-names/")[log_name_path(ONE)]
    put(client, Put(log_name_path(TWO), value))
    with pytest.raises(embedbk.MetadataConflict, match="leads changed"):
        fill(client, b"two", name=TWO)
    assert values(client) == [b"one"]


def test_a_ledger_of_a_log_is_not_deleted_whatever_its_log_is_called(cluster: Cluster) -> None:
    """P8.12: "today a ledger names its log by name, so whoever moves the list lets delete_ledger delete it"."""
    client = cluster.client("a")
    (ledger_id,) = fill(client, b"one")
    client.log(ONE).rename(TWO)
    fill(client, b"other")
    with pytest.raises(UsageError, match="is part of log"):
        client.delete_ledger(ledger_id)
    metadata = decode_ledger_metadata(cluster.world.committed("/ledgers/")[f"/ledgers/{ledger_id:016x}"])
    assert metadata.custom["log"].decode() == client.log(TWO).log_id()
