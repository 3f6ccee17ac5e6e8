"""What a stranger's client puts into metadata, met by every role: only the handle that needs it fails (P2.5).

A whole cluster in virtual time; the values are sound ones with something changed. An exception that leaves the step of
a node would end a host thread with all that runs there: here it ends the test.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import msgspec
import pytest

from embedbk.client.waiting import run_blocking
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, ledger_key_path, log_key_path
from embedbk.codec.log_identity import log_identity_path, log_name_path
from embedbk.codec.metadata_messages import Put
from embedbk.codec.registration import registration_path
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.codec.tombstone import tombstone_path
from embedbk.core.collector import CollectorOptions
from embedbk.errors import EmbedbkError, StorageError
from embedbk.testing import Cluster
from embedbk.testing.bookie_processes import doubt
from embedbk.testing.clocks import SECOND

TURNS = 4
COLLECTING = CollectorOptions(interval_ns=SECOND // 2)


@contextlib.contextmanager
def collecting(seed: int) -> Iterator[Cluster]:
    """A cluster whose bookies collect often."""
    with Cluster(seed=seed, bookies=4) as made:
        made.world.collector = COLLECTING
        for name in ("b1", "b2", "b3", "b4"):
            made.crash(name)
            made.restart(name)
        assert made.run_until(lambda: all(made.world.nodes[name].is_registered for name in made.world.disks))
        yield made


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with collecting(5) as made:
        yield made


def put(cluster: Cluster, key: str, value: bytes) -> None:
    runtime = cluster.client("stranger")._runtime
    assert run_blocking(runtime.transact([], [Put(key, value)], "a stranger's word"), "")


def get(cluster: Cluster, key: str) -> bytes:
    value, _ = run_blocking(cluster.client("stranger")._runtime.get(key, "a look"), "")
    assert value is not None
    return value


def newer(value: bytes) -> bytes:
    """The same, of a version to come."""
    version, *fields = msgspec.msgpack.decode(value)
    return msgspec.msgpack.encode([version + 1, *fields])


def frames_of(trace: TracebackType | None) -> Iterator[tuple[str, str]]:
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_frame.f_code.co_name
        trace = trace.tb_next


def attempt(what: Callable[[], Any]) -> EmbedbkError | None:
    """Do it; an error of ours is an outcome, unless it went through a node's step: that would have ended its host."""
    found: EmbedbkError | None = None
    try:
        what()
    except EmbedbkError as error:
        found = error
    trace = found.__traceback__ if found is not None else None
    through = [name for path, name in frames_of(trace) if "/host/" in path and name == "step"]
    assert not through, f"{found!r} left a node"
    return found


# --- Directed --------------------------------------------------------------------------------------------


def test_a_key_that_is_no_ledgers_ends_no_bookie(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    """P2.5, P7.7: one key beside those of ledgers ended every bookie at its next collection. Now it is named, once by
    each, and what was deleted is collected all the same."""
    client = cluster.client()
    kept, gone = client.create_ledger(), client.create_ledger()
    for ledger in (kept, gone):
        ledger.add(b"entry")
        ledger.close()
    for key in (
        "/ledgers/zz",
        "/ledgers/",
        "/ledgers/+000000000000001",
        "/ledgers/00000000000000001",
        "/deleted/x",
    ):
        put(cluster, key, b"x")
    client.delete_ledger(gone.ledger_id)
    put(cluster, tombstone_path(gone.ledger_id), b"none that anybody reads")
    cluster.run_for(10)
    assert gone.ledger_id in cluster.world.disks["b1"].storage.table.ids()  # type: ignore[union-attr]
    assert client.ledgers() == [kept.ledger_id]
    assert client.deleted_ledgers() == []
    assert cluster.client("reader").open_ledger(kept.ledger_id).read() is not None
    named = [record.getMessage() for record in caplog.records if "'/ledgers/zz'" in record.getMessage()]
    assert sorted(message.split()[1] for message in named) == sorted({m.split()[1] for m in named})
    assert any(message.startswith("bookie b1 cannot read") for message in named)


@pytest.mark.parametrize("change", [newer, lambda _: b"garbage", lambda _: b"", lambda value: value[:-3]])
def test_a_ledger_that_cannot_be_read_fails_alone(cluster: Cluster, change: Callable[[bytes], bytes]) -> None:
    """P2.5: writer, reader, recovery and explanation of that ledger fail with an error that names it; another ledger of
    the same process goes on, and no bookie drops an entry."""
    client = cluster.client()
    other, strange = client.create_ledger(), client.create_ledger()
    other.add(b"before")
    strange.add(b"precious")
    reader = client.open_ledger(strange.ledger_id)
    key = ledger_key_path(strange.ledger_id)
    sound = get(cluster, key)
    put(cluster, key, change(sound))
    cluster.run_for(1)  # Its watch has shown it to the reader.
    named = f"ledger {strange.ledger_id}: "
    for ask in (
        lambda: client.open_ledger(strange.ledger_id),
        lambda: client.open_ledger(strange.ledger_id, recover=True),
        lambda: list(reader.read(0, 0)),
        lambda: client.explain(strange.ledger_id),
        lambda: client.delete_ledger(strange.ledger_id, force=True),
        strange.close,
    ):
        error = attempt(ask)
        assert isinstance(error, StorageError)
        assert str(error).startswith(named)
        assert not error.definite
    cluster.run_for(10)
    other.add(b"after")
    put(cluster, key, sound)
    with client.open_ledger(strange.ledger_id, recover=True) as recovered:
        assert [bytes(entry.data) for entry in recovered.read()] == [b"precious"]


@pytest.mark.parametrize("which", ["ledger", "list"])
def test_a_log_that_cannot_be_read_fails_alone(cluster: Cluster, which: str) -> None:
    """P2.5, P8.1: a takeover ends with an error that names what it cannot read, and changes nothing of it."""
    client = cluster.client()
    other = client.create_ledger()
    writer = client.log("orders").writer()
    writer.append(b"one")
    ledger_id = writer.ledger_id
    writer.release()
    log_id = client.log("orders").log_id()
    key = log_key_path(log_id) if which == "list" else ledger_key_path(ledger_id)
    sound = get(cluster, key)
    put(cluster, key, newer(sound))
    error = attempt(lambda: client.log("orders").writer())
    assert isinstance(error, StorageError)
    assert "version 2" in str(error)
    assert isinstance(attempt(lambda: list(client.log("orders").read())), StorageError)
    assert get(cluster, key) == newer(sound)
    other.add(b"goes on")
    put(cluster, key, sound)
    with client.log("orders").writer() as again:
        again.append(b"two")
    assert [bytes(entry.data) for entry in client.log("orders").read()] == [b"one", b"two"]


def test_a_writer_that_has_to_change_what_it_cannot_read_fails_alone(cluster: Cluster) -> None:
    """P2.5, P4.3: the change is refused, what stands there cannot be read, and adds end with that error: not definite,
    since they may be there."""
    client = cluster.client()
    strange, other = client.create_ledger(), client.create_ledger()
    strange.add(b"zero")
    sound = get(cluster, ledger_key_path(strange.ledger_id))
    put(cluster, ledger_key_path(strange.ledger_id), newer(sound))
    held = [member for member, _ in msgspec.msgpack.decode(sound)[11][0][2]]
    cluster.crash(held[0])
    cluster.crash(held[1])
    error = attempt(lambda: strange.add(b"one"))
    assert isinstance(error, StorageError)
    assert not error.definite
    cluster.restart(held[0])
    cluster.restart(held[1])
    other.add(b"goes on")


def test_a_writer_short_of_bookies_fails_alone_by_what_it_cannot_read(cluster: Cluster) -> None:
    """P2.5, P3.6: it reads whether the ledger is its own still, and cannot tell; adds end with that error."""
    client = cluster.client()
    strange = client.create_ledger()
    strange.add(b"zero")
    key = ledger_key_path(strange.ledger_id)
    sound = get(cluster, key)
    put(cluster, key, newer(sound))
    held = [member for member, _ in msgspec.msgpack.decode(sound)[11][0][2]]
    (spare,) = {"b1", "b2", "b3", "b4"} - {*held}
    cluster.crash(spare)
    cluster.run_for(60)  # Its session ends; nobody is listed who could take a seat.
    cluster.crash(held[0])
    cluster.crash(held[1])
    error = attempt(lambda: strange.add(b"one"))
    assert isinstance(error, StorageError)
    assert not error.definite
    for member in (spare, *held[:2]):
        cluster.restart(member)
    client.create_ledger().add(b"goes on")


def test_a_bookie_that_may_have_lost_entries_serves_beside_what_it_cannot_read(cluster: Cluster) -> None:
    """P2.5, P7.4: what cannot be read may name it, so that ledger is in limbo here; and the bookie comes back."""
    client = cluster.client()
    strange, other = client.create_ledger(), client.create_ledger()
    strange.add(b"zero")
    other.add(b"zero")
    key = ledger_key_path(strange.ledger_id)
    sound = get(cluster, key)
    put(cluster, key, newer(sound))
    put(cluster, ledger_key_path(1 << 40), b"of a ledger that there never was")
    put(cluster, "/ledgers/zz", b"x")
    put(cluster, tombstone_path(1 << 41), b"x")
    cluster.crash("b1")
    doubt(cluster.world, "b1")
    cluster.restart("b1")
    assert cluster.run_until(lambda: cluster.world.nodes["b1"].is_registered)
    limbo = cluster.world.nodes["b1"].core.limbo.ledgers
    assert strange.ledger_id in limbo
    assert {1 << 40, 1 << 41} <= set(limbo)
    cluster.run_for(20)
    assert strange.ledger_id in limbo  # Nobody can tell what it lost.
    put(cluster, key, sound)
    strange.close()
    assert cluster.run_until(lambda: strange.ledger_id not in cluster.world.nodes["b1"].core.limbo.ledgers)


# --- By chance -------------------------------------------------------------------------------------------

NUMBERS = [
    0,
    1,
    -1,
    2,
    3,
    4,
    15,
    16,
    64,
    65,
    255,
    2**31,
    2**62 - 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    -(2**63),
]
OTHERS = [
    None,
    True,
    1.5,
    "",
    "b1",
    "b9",
    "no name/",
    "x" * 600,
    b"",
    b"1" * 16,
    b"1" * 15,
    [],
    {},
    [[]],
    {"a": b""},
]


def changed(value: bytes, chance: random.Random) -> bytes:
    """A sound value with something changed in it."""
    if chance.random() < 0.15:
        at = chance.randrange(len(value) + 1)
        return chance.choice(
            [value[:at], value + b"\0", b"\x91" * 4000, b"\xa3/\xff\xfe", chance.randbytes(at)]
        )
    tree = msgspec.msgpack.decode(value)
    for _ in range(chance.choice([1, 1, 2, 3])):
        tree = _changed_tree(tree, chance)
    return msgspec.msgpack.encode(tree)


def _changed_tree(tree: Any, chance: random.Random) -> Any:
    if not isinstance(tree, list) or not tree:
        if isinstance(tree, int) and chance.random() < 0.5:
            return max(-(2**63), min(2**64 - 1, tree + chance.choice([-1, 1, 2])))
        return chance.choice(NUMBERS if chance.random() < 0.6 else OTHERS)
    copy, at, how = list(tree), chance.randrange(len(tree)), chance.random()
    if how < 0.1:
        del copy[at]
    elif how < 0.2:
        copy.insert(at, copy[at])
    else:
        copy[at] = _changed_tree(copy[at], chance)
    return copy


def live(cluster: Cluster, chance: random.Random, turn: int) -> None:
    """One turn: sound ledgers in every state, strange values in the place of some of theirs, and everybody who may
    meet these."""
    client, second = cluster.client(), cluster.client("second")
    writing, idle, done, doomed = (client.create_ledger() for _ in range(4))
    for ledger in (writing, idle, done, doomed):
        ledger.add(b"zero")
    done.close()
    doomed.close()
    log_name = f"log-{turn}"
    log = client.log(log_name).writer()
    log.append(b"one")
    reader = second.open_ledger(writing.ledger_id)
    closed = second.open_ledger(done.ledger_id)
    ids = [ledger.ledger_id for ledger in (writing, idle, done, doomed)] + [log.ledger_id]
    log_id = client.log(log_name).log_id()
    of_log = [log_key_path(log_id), log_name_path(log_name), log_identity_path(log_id)]
    keys = [ledger_key_path(each) for each in ids] + of_log + [registration_path("b4")]
    sound = {key: get(cluster, key) for key in keys}
    client.delete_ledger(doomed.ledger_id)
    stone = tombstone_path(doomed.ledger_id)
    keys, sound[stone] = [*keys, stone], get(cluster, stone)
    del keys[3]
    for key in chance.sample(keys, chance.choice([1, 2, len(keys)])):
        put(cluster, key, changed(sound[key], chance))
    put(cluster, repair_mark_path(done.ledger_id), chance.randbytes(3))
    for _ in range(3):
        put(
            cluster,
            LEDGERS_PREFIX + chance.choice(["zz", "A" * 16, "f" * 16, f"{turn:016x}x", "\u20ac"]),
            b"x",
        )
    victim = chance.choice(["b1", "b2", "b3"])
    how = chance.random()
    if how < 0.5:
        cluster.crash(victim)
        if victim == "b3":  # One at most, or a ledger that is open has too few that tell what they hold.
            doubt(cluster.world, victim)
    acts: list[Callable[[], Any]] = [
        lambda: writing.add(b"two"),
        lambda: log.append(b"two"),
        lambda: list(reader.read(0, 0)),
        lambda: list(closed.read(0, 0)),
        lambda: reader.last_add_confirmed(),
        writing.close,
        lambda: second.open_ledger(idle.ledger_id, recover=True),
        lambda: list(second.open_ledger(done.ledger_id).read(0, 0)),
        lambda: second.explain(chance.choice(ids)),
        second.ledgers,
        second.bookies,
        second.deleted_ledgers,
        second.forget_deleted,
        lambda: second.undelete_ledger(doomed.ledger_id),
        lambda: second.delete_ledger(done.ledger_id),
        lambda: list(second.log(log_name).read()),
        lambda: second.log(log_name).writer().append(b"three"),
        lambda: cluster.run_for(2),
    ]
    chance.shuffle(acts)
    for act in acts:
        attempt(act)
    if victim not in cluster.world.nodes:
        cluster.restart(victim)
    put(cluster, registration_path("b4"), sound[registration_path("b4")])
    cluster.run_for(8)


@pytest.mark.parametrize("seed", range(4))
def test_no_value_in_metadata_ends_anything_but_its_own_handle(seed: int) -> None:
    """P2.5: sound values with something changed, met by writers, readers, recoveries, takeovers, collectors, limbo; and
    a ledger that nobody touched goes on in each of these processes."""
    chance = random.Random(f"strange values {seed}")
    with collecting(seed) as cluster:
        kept = {name: cluster.client(name).create_ledger() for name in ("client", "second")}
        for turn in range(TURNS):
            live(cluster, chance, turn)
            for ledger in kept.values():
                ledger.add(b"%d" % turn)
        for ledger in kept.values():
            ledger.close()
            found = cluster.client("third").open_ledger(ledger.ledger_id).read()
            assert [bytes(entry.data) for entry in found] == [b"%d" % turn for turn in range(TURNS)]
