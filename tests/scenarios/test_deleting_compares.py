"""What a deletion looked at and what it says in its transaction are the same keys, each of them (P2.2, P8.3, CL30)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from embedbk.client.runtime import Runtime
from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import (
    METADATA_VERSION,
    LedgersLeft,
    encode_ledgers_left,
    ledger_key_path,
    log_deleting_path,
    log_key_path,
    log_left_path,
    log_owner_path,
)
from embedbk.codec.metadata_messages import Delete, Put
from embedbk.codec.tombstone import tombstone_path
from embedbk.errors import EmbedbkError
from embedbk.metadata.levels import LEVEL_OF_LOG_IDS
from embedbk.testing import Cluster

NAME = "one"


@pytest.fixture(autouse=True)
def _below_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a log is its name, and ends at once; what comes before that from the level on, `test_log_identity` has."""
    monkeypatch.setattr(Runtime, "has_level", lambda self, level: level < LEVEL_OF_LOG_IDS)


class Scene:
    """A log with a closed ledger and an empty one at its end, and a ledger of no log."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.one, self.other = cluster.client("one"), cluster.client("other")
        self.one._runtime.settings = replace(self.one._runtime.settings, delete_grace_s=0)
        with self.one.create_ledger() as alone:
            alone.add(b"zero")
        self.alone = alone.ledger_id
        with self.one.log(NAME).writer() as writer:
            writer.append(b"first")
        self.listed = writer.ledger_id
        with self.one.log(NAME).writer() as writer:
            self.last = writer.ledger_id

    def put(self, key: str, value: bytes | None) -> None:
        then: list[Put | Delete] = [Put(key, value) if value is not None else Delete(key)]
        assert run_blocking(self.other._runtime.transact([], then, "a stranger's word"), "")

    def value(self, key: str) -> bytes | None:
        return run_blocking(self.other._runtime.get(key, "a look"), "")[0]

    def unlist(self) -> None:
        """The log's list is gone, its ledgers are there, as where a deletion was cut short."""
        ids = encode_ledgers_left(LedgersLeft(METADATA_VERSION, (self.listed, self.last)))
        self.put(log_key_path(NAME), None)
        self.put(log_deleting_path(NAME), ids)

    def lose_the_last(self) -> None:
        self.put(ledger_key_path(self.last), None)


def _delete(scene: Scene) -> None:
    scene.one.delete_ledger(scene.alone)


def _delete_unlisted(scene: Scene) -> None:
    scene.put(log_key_path(NAME), None)
    scene.one.delete_ledger(scene.listed)


def _delete_dropped_from_the_list(scene: Scene) -> None:
    with scene.other.log("two").writer() as writer:
        writer.append(b"x")
    scene.put(log_key_path(NAME), scene.value(log_key_path("two")))
    scene.one.delete_ledger(scene.listed)


def _delete_log(scene: Scene) -> None:
    scene.one.delete_log(NAME)


def _delete_log_without_its_last(scene: Scene) -> None:
    scene.lose_the_last()
    scene.one.delete_log(NAME)


def _go_on(scene: Scene) -> None:
    scene.put(ledger_key_path(scene.listed), None)
    scene.put(ledger_key_path(scene.last), None)
    scene.unlist()
    scene.one.delete_log(NAME)


def _undelete(scene: Scene) -> None:
    scene.one.delete_ledger(scene.alone)
    scene.one.undelete_ledger(scene.alone)


def _forget(scene: Scene) -> None:
    scene.one.delete_ledger(scene.alone)
    scene.cluster.run_for(1)
    scene.one.forget_deleted()


CASES: list[tuple[str, Callable[[Scene], None], int, Callable[[Scene], str]]] = [
    ("a ledger", _delete, 1, lambda it: ledger_key_path(it.alone)),
    ("a ledger that no list has: the list", _delete_unlisted, 1, lambda it: log_key_path(NAME)),
    (
        "a ledger that its list left out: the list",
        _delete_dropped_from_the_list,
        1,
        lambda it: log_key_path(NAME),
    ),
    ("a log: its list", _delete_log, 1, lambda it: log_key_path(NAME)),
    ("a log: its last ledger", _delete_log, 1, lambda it: ledger_key_path(it.last)),
    ("a log: its last ledger, gone", _delete_log_without_its_last, 1, lambda it: ledger_key_path(it.last)),
    ("a log: its owner", _delete_log, 1, lambda it: log_owner_path(NAME)),
    ("a log: what left it", _delete_log, 1, lambda it: log_left_path(NAME)),
    ("a log: what is being deleted of it", _delete_log, 1, lambda it: log_deleting_path(NAME)),
    ("the ledgers of a log: their ids", _go_on, 1, lambda it: log_deleting_path(NAME)),
    ("bringing back: the tombstone", _undelete, 2, lambda it: tombstone_path(it.alone)),
    ("bringing back: no ledger", _undelete, 2, lambda it: ledger_key_path(it.alone)),
    ("forgetting: the tombstone", _forget, 2, lambda it: tombstone_path(it.alone)),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_nothing_is_deleted_on_what_was_true_a_moment_ago(case: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """P2.2, P8.3, CL30: whichever of the keys that a deletion looked at changes before its transaction arrives, that
    transaction changes nothing."""
    _, act, number, key_of = case
    with Cluster(seed=21, bookies=3) as cluster:
        scene = Scene(cluster)
        transact, count, outcomes = Runtime.transact, [0], []

        async def beside(self: Runtime, when: Sequence[Any], then: Sequence[Any], what: str) -> bool:
            if self is not scene.one._runtime:
                return await transact(self, when, then, what)
            count[0] += 1
            if count[0] == number:
                key = key_of(scene)
                scene.put(key, scene.value(key) or encode_ledgers_left(LedgersLeft(METADATA_VERSION, ())))
            is_done = await transact(self, when, then, what)
            outcomes.append(is_done)
            return is_done

        monkeypatch.setattr(Runtime, "transact", beside)
        with contextlib.suppress(EmbedbkError):  # What stands there now may be nothing that it can read.
            act(scene)
        assert outcomes[number - 1 : number] == [False]
