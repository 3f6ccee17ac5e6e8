"""Opening, closing, coming back; what a handle refuses, and how a client ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import importlib
import inspect
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import embedbk
from embedbk import EmbedbkError, NoSuchLedger, OperationTimeout, Settings, UsageError
from embedbk.client import runtime
from embedbk.cluster import Cluster
from embedbk.host.loop import Loop
from embedbk.testing import Cluster as SimulatedCluster


def test_the_second_start_finds_everything(data: Path, settings: embedbk.Settings) -> None:
    """Ids are not used again, offsets go on, a released log is recovered."""
    given = [b"%d" % number for number in range(300)]
    with embedbk.open(data, settings=settings) as bk:
        with bk.log("orders").writer() as writer:
            writer.append_many(given[:100])
        open_writer = bk.log("orders").writer()
        open_writer.append_many(given[100:200])
        ledgers = bk.ledgers()
        open_writer.release()
    with embedbk.open(data, settings=settings) as bk:
        assert [each.bookie_id for each in bk.bookies()] == ["b1", "b2", "b3"]
        assert bk.ledgers() == ledgers
        with bk.log("orders").writer() as writer:
            assert writer.first_offset == 200
            assert writer.ledger_id > max(ledgers)
            writer.append_many(given[200:])
        assert [bytes(entry) for entry in bk.log("orders").read()] == given


def test_a_killed_process_loses_nothing_acknowledged(data: Path, settings: embedbk.Settings) -> None:
    """P3.2: what append gave back is on the device."""
    story = (
        "import embedbk, os, sys\n"
        "bk = embedbk.open(sys.argv[1], settings=embedbk.Settings(journal_file_bytes=2 << 20))\n"
        "writer = bk.log('orders').writer()\n"
        "writer.append_many([b'%d' % n for n in range(5000)])\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run([sys.executable, "-c", story, str(data)], check=False, timeout=300)
    assert ended.returncode == -signal.SIGKILL
    with embedbk.open(data, settings=settings) as bk:
        with bk.log("orders").writer() as writer:
            assert writer.first_offset == 5000
        assert [bytes(entry) for entry in bk.log("orders").read()] == [b"%d" % n for n in range(5000)]


def test_a_cluster_grows_by_bookies(data: Path, settings: embedbk.Settings) -> None:
    with embedbk.open(data, bookies=1, settings=settings) as bk, bk.create_ledger() as writer:
        writer.add(b"alone")
    with embedbk.open(data, settings=settings) as bk:
        assert [each.bookie_id for each in bk.bookies()] == ["b1"]
    with embedbk.open(data, bookies=3, settings=settings) as bk:
        assert [each.bookie_id for each in bk.bookies()] == ["b1", "b2", "b3"]
        with bk.create_ledger(ensemble_size=3) as three:
            three.add(b"three")
        assert [bytes(entry) for entry in bk.open_ledger(writer.ledger_id).read()] == [b"alone"]


def test_a_cluster_moves_out_of_the_process_and_back(data: Path, settings: embedbk.Settings) -> None:
    """One directory, one log: embedded, as peers, embedded again."""
    given = [b"embedded", b"peers", b"embedded again"]
    with embedbk.open(data, settings=settings) as bk, bk.log("moving").writer() as writer:
        writer.append(given[0])
    with Cluster(data, bookies=3, settings=settings) as cluster, embedbk.open(cluster.url) as bk:
        with bk.log("moving").writer() as writer:
            writer.append(given[1])
        with pytest.raises(embedbk.EmbedbkError, match="another handle or process has it open"):
            embedbk.open(data, settings=settings)
    with embedbk.open(data, settings=settings) as bk:
        with bk.log("moving").writer() as writer:
            writer.append(given[2])
        assert [bytes(entry) for entry in bk.log("moving").read()] == given


def test_the_metadata_may_be_away_for_a_while(data: Path, settings: embedbk.Settings) -> None:
    """P4.2, P10.1: appends and open readers go on; what needs the metadata says so, and works when it is back."""
    with (
        Cluster(data, bookies=3, settings=settings) as cluster,
        embedbk.open(cluster.url, settings=settings) as bk,
        embedbk.open(cluster.url, settings=settings) as patient,
    ):
        with bk.create_ledger() as closed:
            closed.add(b"closed")
        reader = bk.open_ledger(closed.ledger_id)
        writer = patient.create_ledger()
        cluster.kill("m1")
        assert writer.add_many([b"still", b"going"]).entry_count == 2
        assert [bytes(entry) for entry in reader.read()] == [b"closed"]
        bk._runtime.settings = replace(settings, operation_timeout_s=0.5)
        with pytest.raises(embedbk.MetadataUnavailable, match="did not answer"):
            bk.ledgers()
        with pytest.raises(embedbk.OperationTimeout, match="creating a ledger") as refused:
            bk.create_ledger()
        assert not refused.value.definite
        cluster.restart("m1")
        assert {closed.ledger_id, writer.ledger_id} <= set(patient.ledgers())
        assert writer.add(b"and on") == 2
        assert writer.close() == 2


@pytest.mark.parametrize("kind", ["tcp", "ipc"])
def test_other_processes_reach_a_cluster_that_listens(
    data: Path, tmp_path: Path, settings: embedbk.Settings, kind: str
) -> None:
    listen = "tcp://127.0.0.1:0" if kind == "tcp" else f"ipc://{tmp_path}/m"
    story = (
        "import embedbk, sys\n"
        "with embedbk.open(sys.argv[1]) as bk:\n"
        "    with bk.log('orders').writer() as writer: writer.append(b'from afar')\n"
        "    print([bytes(entry) for entry in bk.log('orders').read()])\n"
    )
    with embedbk.open(data, listen=listen, settings=settings) as bk:
        with bk.log("orders").writer() as writer:
            writer.append(b"from here")
        told = subprocess.run(
            [sys.executable, "-c", story, bk.url], capture_output=True, text=True, check=True, timeout=300
        )
        assert told.stdout.strip() == "[b'from here', b'from afar']"
        assert [bytes(entry) for entry in bk.log("orders").read()] == [b"from here", b"from afar"]


def test_a_cluster_that_does_not_listen_has_no_url(bk: embedbk.Client) -> None:
    with pytest.raises(embedbk.UsageError, match="this process only") as refused:
        _ = bk.url
    assert 'client.listen("tcp://127.0.0.1:0")' in refused.value.hint


def test_handles_refuse_to_be_pickled(bk: embedbk.Client) -> None:
    """The sentence says what to send instead; places and entries travel."""
    log = bk.log("pickled")
    with log.writer() as writer:
        ticket = writer.append_nowait(b"x")
        position = ticket.result()
        ledger = bk.create_ledger()
        reader = bk.open_ledger(ledger.ledger_id)
        for handle in (bk, log, writer, ticket, ledger, reader):
            with pytest.raises(embedbk.UsageError, match="cannot be pickled") as refused:
                pickle.dumps(handle)
            assert refused.value.hint
        reader.close()
        ledger.close()
    entry = next(log.read())
    for value in (position, entry.position, log.segments(), writer.append):
        if callable(value):
            continue
        assert pickle.loads(pickle.dumps(value)) == value
    assert bytes(pickle.loads(pickle.dumps(entry))) == b"x"


def test_a_forked_child_is_told_to_open_again(bk: embedbk.Client) -> None:
    """Threads do not live on in a forked child: its copies are dead, and say so."""
    writer = bk.log("forked").writer()
    writer.append(b"before")
    holders = bk.lock("forked").holders()  # Begun in the parent, it waited on in the child for ever.
    assert next(holders) is None
    read_end, write_end = os.pipe()
    child = forked()
    if child == 0:
        told = []
        for use in (
            lambda: writer.append(b"x"),
            lambda: writer.append_nowait(b"x"),
            bk.ledgers,
            writer.close,
            lambda: next(holders),
        ):
            try:
                use()
                told.append("served")
            except embedbk.UsageError as refused:
                told.append(str(refused))
        bk.close()
        os.write(write_end, "\n".join(told).encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as answers:
        told = answers.read().splitlines()
    os.waitpid(child, 0)
    holders.close()
    assert len(told) == 5
    assert all("parent process" in line and "embedbk.open again" in line for line in told), told
    assert writer.append(b"after").entry_id == 1
    writer.close()


def shared_locks() -> list[Any]:
    """Every lock that a module of the library has for all clients of a process."""
    root = Path(embedbk.__file__).parent
    found = []
    for path in sorted([*root.rglob("*.py"), *(root / "transports").resolve().rglob("*.py")]):
        for name in re.findall(
            r"^(\w+) = (?:\w+\(\s*)?threading\.R?Lock\(\)", path.read_text(), re.MULTILINE
        ):
            parts = path.relative_to(root).parts if path.is_relative_to(root) else ("transports", path.name)
            with contextlib.suppress(ModuleNotFoundError):  # It is of an extra that is not here.
                module = importlib.import_module(".".join(("embedbk", *parts)).removesuffix(".py"))
                found.append(getattr(module, name))
    return found


@pytest.mark.parametrize("held", [True, False])
def test_a_forked_child_opens_its_own_whatever_other_threads_hold(
    data: Path, settings: embedbk.Settings, held: bool
) -> None:
    """Those threads are not there to release it: the child's own client waited for ever."""
    locks = shared_locks()
    assert len(locks) > 8
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as all_of_them:
            for lock in locks if held else ():
                all_of_them.enter_context(lock)
            is_held.set()
            is_over.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    assert is_held.wait(60)
    child = forked()
    if child == 0:
        is_free = all(lock.acquire(blocking=False) for lock in locks)
        for lock in locks if is_free else ():
            lock.release()
        if is_free:
            with embedbk.open(data, settings=settings) as own, own.log("orders").writer() as writer:
                writer.append(b"of the child")
        os._exit(0 if is_free else 1)
    is_over.set()
    holder.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def forked() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 warns of threads, which is the point here.
        return os.fork()


def test_a_closed_client_is_told_of(data: Path, settings: embedbk.Settings) -> None:
    bk = embedbk.open(data, settings=settings)
    log = bk.log("l")
    writer = log.writer()
    bk.close()
    bk.close()
    for use in (lambda: bk.log("x"), bk.ledgers, bk.create_ledger, log.segments, lambda: list(log.read())):
        with pytest.raises(embedbk.UsageError, match=r"was closed .*open again"):
            use()
    with pytest.raises(embedbk.EmbedbkError, match="closed"):
        writer.append(b"x")


def test_waiters_are_told_when_the_client_closes(data: Path, settings: embedbk.Settings) -> None:
    """Nobody waits for ever for a loop that has gone."""

    async def story() -> None:
        bk = await embedbk.aio.open(data, settings=settings)
        async with bk.log("l").writer() as writer:
            await writer.append(b"x")

        began = asyncio.Event()

        async def follow() -> None:
            async for _ in bk.log("l").tail(0):
                began.set()

        follower = asyncio.create_task(follow())
        await began.wait()
        await bk.close()
        with pytest.raises(embedbk.EmbedbkError, match="closed"):
            await asyncio.wait_for(follower, 20)

    asyncio.run(story())


def test_a_forgotten_client_warns(data: Path, settings: embedbk.Settings) -> None:
    bk = embedbk.open(data, settings=settings)
    runtime = bk._runtime
    with pytest.warns(ResourceWarning, match="never closed"):
        del bk  # The last reference.
    runtime.close()


def test_a_broken_loop_is_told_to_every_caller(data: Path, settings: embedbk.Settings) -> None:
    """A bug in the host ends the loop; nobody hangs, and the directory can be opened again."""
    bk = embedbk.open(data, settings=settings)
    writer = bk.log("l").writer()

    def fail() -> None:
        raise ZeroDivisionError("on the host's thread")

    bk._runtime.loop.call(fail)
    bk._runtime.loop.thread.join(20)
    for use in (bk.ledgers, bk.create_ledger):
        with pytest.raises(embedbk.EmbedbkError, match=r"ZeroDivisionError.*open again"):
            use()
    with pytest.raises(embedbk.EmbedbkError):
        writer.append(b"x")
    bk.close()
    embedbk.open(data, settings=settings).close()


def test_a_call_behind_the_end_of_a_loop_still_runs() -> None:
    loop = Loop()
    loop.start()
    loop.stop()
    seen: list[int] = []
    loop.call(lambda: seen.append(1))
    assert seen == [1]


def test_the_bounds_of_appends_are_settings() -> None:
    """RP33, RP34: what a handle may have on its way, and what may wait for one slow bookie."""
    with pytest.raises(UsageError, match="append_bytes_max=1000"):
        Settings(append_bytes_max=1000)
    with pytest.raises(UsageError, match="slow_bookie_bytes_max=1000"):
        Settings(slow_bookie_bytes_max=1000)


def test_how_long_a_writer_goes_on_without_its_quorum_is_a_setting(tmp_path: Path) -> None:
    """P4.5: of ledgers and of logs; another client may have another one."""
    with pytest.raises(UsageError, match="quorum_wait_s=0"):
        Settings(quorum_wait_s=0)
    with embedbk.open(tmp_path, bookies=1, settings=Settings(quorum_wait_s=1.5)) as bk:
        writers = bk.create_ledger(), bk.log("orders").writer()
        options = [writer._appending.writing.core.options for writer in writers]
        assert [each.quorum_wait_ns for each in options] == [1_500_000_000] * 2


def test_an_append_that_finds_no_room_says_so(tmp_path: Path) -> None:
    """RP33: the bound is the handle's, by its settings; nothing of what is refused was sent."""
    settings = Settings(append_bytes_max=8 << 20)
    with embedbk.open(tmp_path, bookies=1, settings=settings) as bk:
        runtime = bk._runtime
        is_held, held = threading.Event(), threading.Event()
        with bk.create_ledger() as writer:
            runtime.call(lambda: (is_held.set(), held.wait(60)))  # The host does nothing meanwhile.
            try:
                assert is_held.wait(60)
                tickets = [writer.add_nowait(bytes(1 << 20)) for _ in range(7)]
                with pytest.raises(OperationTimeout, match="no room") as late:
                    writer.add(bytes(1 << 20), timeout_s=0.01)
                assert late.value.definite
            finally:
                held.set()
            assert [ticket.result().entry_id for ticket in tickets] == list(range(7))
            assert writer.add(bytes(1 << 20)) == 7


@pytest.mark.parametrize("meanwhile", ["nothing", "deleted"])
def test_a_close_that_timed_out_can_be_called_again(meanwhile: str) -> None:
    """P5.1: the metadata member is away for longer than the call waits. What becomes of it in the end is told to the
    call that follows, once; then the writer is closed as ever."""
    with SimulatedCluster(seed=3, bookies=3) as cluster:
        writer = cluster.client("w").create_ledger()
        writer.add(b"zero")
        cluster.crash("metadata")
        for _ in range(2):
            with pytest.raises(OperationTimeout, match="not done within"):
                writer.close()
        with pytest.raises(UsageError, match="closed or released"):
            writer.add(b"one")
        if meanwhile == "deleted":
            cluster.pause("w")
        cluster.restart("metadata")
        if meanwhile == "deleted":
            cluster.client("other").delete_ledger(writer.ledger_id, force=True)
            cluster.resume("w")
            with pytest.raises(NoSuchLedger):
                writer.close()
        assert writer.close() == 0
        assert writer.close() == 0
        if meanwhile == "nothing":
            with cluster.client("other").open_ledger(writer.ledger_id, recover=False) as reader:
                assert reader.is_closed


def test_a_writer_that_was_released_is_closed_without_a_word() -> None:
    """P5.1: in either order; releasing what is being closed takes nothing back."""
    with SimulatedCluster(seed=3, bookies=3) as cluster:
        writer = cluster.log("one").writer()
        writer.append(b"zero")
        writer.release()
        assert writer.close() == (writer.ledger_id, 0)
        writer = cluster.log("one").writer()
        writer.append(b"one")
        writer.close()
        writer.release()
        assert writer.close() == (writer.ledger_id, 0)


def test_two_threads_that_close_a_client_close_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else descriptors are closed twice, which may be another file's by then."""
    closed: list[str] = []
    with SimulatedCluster(seed=1, bookies=3) as cluster:
        client = cluster.client("a")
        client._runtime.after_close.append(lambda: closed.append("once"))
        lock = threading.Lock()

        class ComesFirst:
            """As where the other thread comes between a look and the lock."""

            def __enter__(self) -> None:
                monkeypatch.setattr(runtime, "_BEHIND", lock)
                other = threading.Thread(target=client.close)
                other.start()
                other.join()
                lock.acquire()

            def __exit__(self, *_: object) -> None:
                lock.release()

        monkeypatch.setattr(runtime, "_BEHIND", ComesFirst())
        client.close()
    assert closed == ["once"]


def test_where_no_thread_can_begin_what_is_done_beside_calls_waits_for_one(
    data: Path, settings: embedbk.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P8.2: an append failed though its entry was taken, each try left descriptors, and the log never rolled again."""
    start, refused, is_refused = threading.Thread.start, [0], True

    def begins(thread: threading.Thread) -> None:
        if is_refused and thread.name.endswith(" behind"):
            refused[0] += 1
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begins)
    monkeypatch.setattr(
        runtime.Runtime, "log_look_s", 3600.0
    )  # Else the look after its log asks for a thread, too.
    with embedbk.open(data, settings=settings) as bk:
        log = bk.log("rolled")
        with log.writer(roll=embedbk.Roll(entries=4, bytes=None)) as writer:
            before = len(os.listdir("/proc/self/fd"))
            for number in range(20):
                assert writer.append(b"%d" % number).ledger_id == writer.ledger_id
            assert refused[0] and len(os.listdir("/proc/self/fd")) == before
            assert len(log.segments()) == 1
            is_refused = False
            until = time.monotonic() + 60
            while len(log.segments()) == 1 and time.monotonic() < until:
                time.sleep(0.05)
            writer.append(b"20")
        assert len(log.segments()) > 1
        assert [bytes(entry) for entry in log.read()] == [b"%d" % number for number in range(21)]


@pytest.mark.parametrize(
    "refusal", [OSError(errno.EMFILE, "Too many open files"), ImportError("_asyncio.so")]
)
def test_what_is_done_beside_calls_waits_until_it_can_be_loaded(
    data: Path, settings: embedbk.Settings, monkeypatch: pytest.MonkeyPatch, refusal: Exception
) -> None:
    """P8.2: its module is imported when it is first needed. A process without a descriptor could not, and the entry was
    taken, the append failed, and the log never rolled again, or was never looked after."""
    refused = [0]

    class NoDescriptors:
        @staticmethod
        def find_spec(name: str, *_: object) -> None:
            if name == "embedbk.client.behind" and is_refused:
                refused[0] += 1
                raise refusal

    is_refused = True
    monkeypatch.delitem(sys.modules, "embedbk.client.behind", raising=False)
    monkeypatch.setattr(sys, "meta_path", [NoDescriptors, *sys.meta_path])
    with embedbk.open(data, settings=settings) as bk:
        log = bk.log("rolled")
        with log.writer(roll=embedbk.Roll(entries=4, bytes=None)) as writer:
            for number in range(20):
                assert writer.append(b"%d" % number).ledger_id == writer.ledger_id
            assert refused[0]
            is_refused = False
            until = time.monotonic() + 60
            while len(log.segments()) == 1 and time.monotonic() < until:
                time.sleep(0.05)
        assert len(log.segments()) > 1
        assert [bytes(entry) for entry in log.read()] == [b"%d" % number for number in range(20)]


def test_a_client_that_never_got_that_thread_ends_what_waits_for_it(
    data: Path, settings: embedbk.Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else Python names each of them on stderr."""
    monkeypatch.setattr("asyncio.new_event_loop", lambda: (_ for _ in ()).throw(OSError("no descriptors")))

    async def steps() -> None:
        raise AssertionError

    waiting = steps()
    with embedbk.open(data, settings=settings) as bk:
        bk._runtime.behind(waiting)
        assert inspect.getcoroutinestate(waiting) == inspect.CORO_CREATED
    assert inspect.getcoroutinestate(waiting) == inspect.CORO_CLOSED


def test_who_waits_is_told_that_the_client_was_closed(data: Path, settings: embedbk.Settings) -> None:
    """Who watched the logs waited on for ever, also behind a failure of the host's thread."""
    outcomes: dict[str, EmbedbkError | None] = {}

    def wait(name: str, call: Callable[[], object]) -> None:
        try:
            call()
            outcomes[name] = None
        except EmbedbkError as told:
            outcomes[name] = told

    bk = embedbk.open(data, settings=settings)
    with bk.log("l").writer() as writer:
        writer.append(b"x")
    held = bk.lock("held")
    held.acquire()
    logs, entries, holders = bk.watch_logs(), bk.log("l").tail(0), held.holders()
    assert next(logs) == ["l"] and bytes(next(entries)) == b"x" and next(holders) is not None
    calls = {
        "logs": lambda: next(logs),
        "entries": lambda: next(entries),
        "holders": lambda: next(holders),
        "lock": held.until_lost,
    }
    waiting = [threading.Thread(target=wait, args=each, daemon=True) for each in calls.items()]
    for thread in waiting:
        thread.start()

    def waits(thread: threading.Thread) -> bool:
        frame = sys._current_frames().get(thread.ident or 0)
        return frame is not None and frame.f_code.co_filename.endswith("host/signal.py")

    until = time.monotonic() + 30
    while not all(map(waits, waiting)) and time.monotonic() < until:
        time.sleep(0.01)
    bk.close()
    for thread in waiting:
        thread.join(20)
    assert outcomes.keys() == calls.keys()
    assert all("was closed" in str(told) for name, told in outcomes.items() if name != "lock")


@pytest.mark.parametrize(
    ("module", "asked"), [("gevent.monkey", "is_module_patched"), ("eventlet.patcher", "is_monkey_patched")]
)
def test_threads_that_are_not_the_systems_are_refused(
    module: str, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside them the host thread would stop all others, and the call would never return. What is installed is no
    reason: only what was put in the place of the system's."""
    library = types.ModuleType(module)
    patched = {"threading", "time"}
    setattr(library, asked, patched.__contains__)
    monkeypatch.setitem(sys.modules, module, library)
    with pytest.raises(UsageError, match=rf"{module.partition('.')[0]} has replaced .*nothing was opened"):
        embedbk.open(tmp_path / "data")
    with pytest.raises(UsageError, match="monkey patching"):
        asyncio.run(opened_async(tmp_path / "data"))
    assert not (tmp_path / "data").exists()
    patched.remove("threading")
    embedbk.open(tmp_path / "data").close()


async def opened_async(directory: Path) -> None:
    async with embedbk.aio.open(directory):
        pass
