"""A whole cluster in this process: metadata member, bookies and client on one host thread, joined by `local` links.

Decides how a directory is laid out and whether it may be used as it is. With listen= the nodes speak ZeroMQ instead,
and other processes reach them.

    DIRECTORY/OWNER         which process has it
    DIRECTORY/metadata/     log of the metadata member; the cluster's token is minted with it
    DIRECTORY/b1/ b2/ ...   one bookie each; its journals and entry logs may stand on other devices (devices.py)
    DIRECTORY/BOOKIES       which bookies live here, an id on each line: the cluster may have others elsewhere

`embedbk.cluster` lays its directory out alike, so that a cluster grows out of this process by stopping here and
starting there.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from embedbk.client.address import endpoints_of, url_of
from embedbk.client.beginning import IGNORED, check_bookies_path, holds_log, is_new, make, refuse_new
from embedbk.client.devices import IN_PLACE, Devices
from embedbk.client.entering import announcing_of, note_endpoints, others_of
from embedbk.client.knocking import Door
from embedbk.client.password import OPENER
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import FutureResult
from embedbk.codec.registration import cookie_path
from embedbk.config import Settings
from embedbk.core.collector import CollectorOptions
from embedbk.errors import EmbedbkError, StorageError, UsageError
from embedbk.host.announcing import Announcing
from embedbk.host.awaited import Awaited
from embedbk.host.bookie_node import BookieNode
from embedbk.host.client_node import ClientNode
from embedbk.host.loop import Loop, clock_ns
from embedbk.host.metadata_node import MetadataNode
from embedbk.host.repairing import begin_repairing
from embedbk.host.scrub_pace import ScrubPace
from embedbk.ids import INCARNATION_BYTES, Member
from embedbk.metadata.client import Client as MetadataClient
from embedbk.metadata.growing import Growth, offers
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.quorum import listened_at
from embedbk.storage.bookie_storage import BookieStorage
from embedbk.storage.identity import hold_directory
from embedbk.storage.layout import Layout
from embedbk.storage.metadata_opening import open_metadata_store
from embedbk.storage.metadata_store import MetadataStore
from embedbk.storage.native import self_test
from embedbk.storage.noted import replace_durably
from embedbk.transports import open_transport
from embedbk.transports.endpoints import check_endpoint, check_ipc_path_is_free
from embedbk.transports.in_flight import backlog_of_process, table_in_c
from embedbk.transports.near import NativeNear, NearPoll
from embedbk.transports.widened import WidenedTransport

__all__ = ["BOOKIES_DEFAULT", "BOOKIES_MAX", "Opened", "connect", "open_directory"]

logger = logging.getLogger(__name__)

BOOKIES_DEFAULT = 3
BOOKIES_MAX = 64  # Bookies in one process; more would gain nothing.

METADATA_FILE_BYTES_MIN = 4 << 20  # Room for a transaction of the largest size.

_METADATA = "metadata"
_BOOKIES_FILE = "BOOKIES"
_BOOKIE = re.compile(r"b[1-9][0-9]*")
_LOCAL_SCHEME = "local://"
_LOCAL = "local://*"


@dataclass(slots=True)
class Opened:
    """A client's runtime, and what it needs to know of the nodes beside it."""

    runtime: Runtime
    # Ids and endpoints of the bookies that must be registered before a caller is served.
    bookies: dict[str, list[str]]
    url: str | None
    failures: list[Callable[[], EmbedbkError | None]] = field(default_factory=list)
    # For nodes of this process: where they are reached then.
    listen: Callable[[str], list[str]] | None = None

    offers: Callable[[], list[str]] = list  # Sentences about nodes that are there and not used.

    async def ready(self) -> None:
        """Wait until the cluster answers and its bookies are registered; log once which nodes it could use and does
        not."""
        await self.runtime.wait_for_bookies(self.bookies, self._failure)
        for offer in self.offers():
            logger.warning("%s: %s", self.url or "this cluster", offer)

    async def listen_at(self, endpoint: str) -> str:
        """As `Client.listen`."""
        runtime, listen = self.runtime, self.listen
        runtime.check()
        if not isinstance(endpoint, str) or not endpoint.startswith(("tcp://", "ipc://")):
            raise UsageError(f"endpoint {endpoint!r} is not understood: tcp://HOST:PORT or ipc:///PATH")
        if listen is None or self.url is not None:
            raise UsageError(f"{runtime.name} is reached from other processes already", hint="url says where")
        done: Awaited[list[str]] = Awaited()

        def begin() -> None:
            try:
                done.set_result(listen(endpoint))
            except EmbedbkError as refused:
                done.set_exception(refused)

        runtime.call(begin)
        endpoints = await FutureResult(done, runtime.settings.operation_timeout_s, f"listening at {endpoint}")
        self.url = url_of(endpoints)
        return self.url

    def _failure(self) -> EmbedbkError | None:
        return next((failure for ask in self.failures if (failure := ask()) is not None), None)


def connect(url: str, settings: Settings) -> Opened:
    """A client of the cluster whose metadata members are at these endpoints."""
    endpoints = endpoints_of(url)
    transport = _transport(endpoints[0], _client_identity(b""), settings)
    return Opened(_client(transport, endpoints, settings, b"", Loop("embedbk-client"), url), {}, url)


def open_directory(
    path: str | os.PathLike[str],
    bookies: int | None,
    listen: str | None,
    settings: Settings,
    devices: Devices = IN_PLACE,
    *,
    create: bool = True,
) -> Opened:
    """Start the cluster that lives in a directory; a new one in an empty or missing directory, if create says so."""
    return _Building(check_bookies_path(path), listen, settings, devices, create=create).build(bookies)


# tests/cluster/test_peers.py follows it: a cluster that is not open has nobody to tell that a bookie is gone.
_LOST_FOR_GOOD = (
    "good: serve its `metadata` by embedbk metadata --dir, each other bookie by embedbk bookie --id --dir --metadata, "
    "say embedbk bookie replace ID, start that one in an empty directory, and stop all when embedbk audit ends with 0"
)


class _Building:
    """The parts opened so far, so that a failure half-way closes them again."""

    def __init__(
        self, root: Path, listen: str | None, settings: Settings, devices: Devices, *, create: bool
    ) -> None:
        self.root = root
        self.create = create
        self.listen = listen
        self.settings = settings
        self.devices = devices
        self.opened: list[Callable[[], None]] = []

    def build(self, bookies: int | None) -> Opened:
        try:
            return self._build(bookies)
        except BaseException:
            for close in reversed(self.opened):
                close()
            raise

    def _build(self, bookies: int | None) -> Opened:
        if bookies is not None and bookies > BOOKIES_MAX:
            raise UsageError(f"bookies={bookies}: at most {BOOKIES_MAX} in one process")
        self_test()
        self._begin()
        owner = hold_directory(self.root)
        self.opened.append(lambda: os.close(owner))
        store = open_metadata_store(
            self.root / _METADATA, file_bytes=max(self.settings.journal_file_bytes, METADATA_FILE_BYTES_MIN)
        )
        self.opened.append(store.close)
        token = store.identity.cluster_token
        everywhere = [key.rpartition("/")[2] for key in store.keys(cookie_path(""))]
        noted = self._noted_bookies()
        known = [each for each in everywhere if noted is None or each in noted or (self.root / each).is_dir()]
        bookie_ids = self._bookie_ids(known, bookies, {*everywhere} - {*known})
        stores = [
            self._open_bookie(bookie_id, token, is_known=bookie_id in known) for bookie_id in bookie_ids
        ]
        self._note_bookies(bookie_ids, noted)
        return self._start(token, store, stores, owner, has_elsewhere=len(known) < len(everywhere))

    def _noted_bookies(self) -> set[str] | None:
        """The bookies noted as living here; None: there is no note, and all bookies count as living here."""
        try:
            return set((self.root / _BOOKIES_FILE).read_text("ascii").split())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as refused:
            raise StorageError(
                f"{self.root / _BOOKIES_FILE} cannot be read: {refused}",
                definite=True,
                hint="write into it the bookies that live in this directory, an id on each line",
            ) from refused

    def _note_bookies(self, bookie_ids: list[str], noted: set[str] | None) -> None:
        """Note the bookies that live here, before any of them is registered."""
        if noted == set(bookie_ids):
            return
        note = self.root / _BOOKIES_FILE
        try:
            replace_durably(note, "".join(f"{each}\n" for each in bookie_ids).encode("ascii"))
        except OSError as refused:
            raise StorageError(f"{note} cannot be written: {refused}", definite=True) from refused

    def _begin(self) -> None:
        """Refuse a path that is no place for a cluster, and a new cluster where none may be made; log it where one is
        made."""
        if not is_new(self.root, create=self.create):
            self._refuse_strange()
        begins = not holds_log(self.root / _METADATA)
        if begins and not self.create:
            raise StorageError(
                f"{self.root} holds no cluster, and create=False makes none: wiped, or not mounted?",
                definite=True,
                hint="put it back; create=True begins a new cluster",
            )
        self.devices.look(create=self.create)
        make(self.root)
        if begins:
            logger.warning("a new cluster begins in %s", self.root)

    def _refuse_strange(self) -> None:
        """Refuse a directory of another cluster, or one without the part that identifies the rest."""
        try:
            names = sorted(path.name for path in self.root.iterdir() if path.name not in IGNORED)
        except OSError as refused:
            raise StorageError(
                f"{self.root} cannot be read: {refused}", hint="check its permissions and its disk"
            ) from refused
        metadata = self.root / _METADATA
        if names in ([], [_METADATA]):
            return  # The first start, or one that was cut short.
        if metadata.is_dir() and any(metadata.iterdir()):
            return
        if any(_BOOKIE.fullmatch(name) for name in names):
            raise StorageError(
                f"{metadata} is missing or empty, and there are bookies beside it: wiped, or not mounted?",
                hint="put the metadata directory back; without it nobody knows what the bookies hold",
            )
        raise StorageError(
            f"{self.root} holds {', '.join(names[:3])} and no cluster: foreign; it was left alone",
            hint="give an empty directory, or the one that the cluster was made in",
        )

    def _bookie_ids(self, known: list[str], asked: int | None, elsewhere: set[str]) -> list[str]:
        """The ids of the bookies that the cluster knows or that have a directory; at the first start as many as asked
        for. elsewhere: ids of the cluster's bookies in other places."""
        ids = set(known)
        if known:
            there = {path.name for path in self.root.iterdir() if _BOOKIE.fullmatch(path.name)}
            ids |= there - elsewhere
        if not self.create and asked is not None and asked > len(ids):
            raise UsageError(
                f"bookies={asked}: {self.root} has {len(ids)} ({', '.join(sorted(ids))}), and create=False makes none",
                hint=f"open it with bookies={len(ids)}, or with create=True to add bookies",
            )
        if asked is not None and asked < len(ids):
            raise UsageError(
                f"bookies={asked}: {self.root} has {len(ids)} ({', '.join(sorted(ids))}), and each may hold the only "
                "copies of something",
                hint=f"open it with bookies={len(ids)}, or leave it out",
            )
        numbers = itertools.count(1)
        while len(ids) < (asked or (len(ids) if known else BOOKIES_DEFAULT)):
            bookie_id = f"b{next(numbers)}"
            if bookie_id not in elsewhere:
                ids.add(bookie_id)
        return sorted(ids, key=lambda bookie_id: (len(bookie_id), bookie_id))

    def _open_bookie(self, bookie_id: str, token: bytes, *, is_known: bool) -> BookieStorage:
        directory = self.root / bookie_id
        if is_known and not directory.is_dir():
            raise StorageError(
                f"{directory} is missing, and the cluster knows bookie {bookie_id}: removed, or not mounted?",
                hint="put the directory back; the other bookies alone may not have every entry. If it is lost for "
                + _LOST_FOR_GOOD,
            )
        journals, ledgers = self.devices.journals_of(bookie_id), self.devices.ledgers_of(bookie_id)
        parts = Layout.of(bookie_id, directory, journals, ledgers).by_purpose().values()
        if is_known and not any(part.is_dir() for part in parts):
            raise StorageError(  # Before empty directories are made there: no bookie would take those for its own.
                f"bookie {bookie_id} is known to the cluster with other directories; none of these is there: "
                + ", ".join(map(str, parts)),
                hint="give journal_directories= and ledger_directories= as it was made with; removed, or not mounted? "
                "If they are lost for " + _LOST_FOR_GOOD,
            )
        if not self.create:
            news = [] if not self.devices.expands else ledgers  # BookieStorage decides which ones may be new.
            refuse_new([part for part in parts if part not in news], f"a directory of bookie {bookie_id},")
        storage = BookieStorage(
            directory,
            bookie_id,
            token,
            journal_directories=journals,
            ledger_directories=ledgers,
            expands=self.devices.expands,
            journal_file_bytes=self.settings.journal_file_bytes,
            may_go_back=True,
        )
        self.opened.append(storage.close)
        return storage

    def _start(
        self,
        token: bytes,
        store: MetadataStore,
        stores: list[BookieStorage],
        owner: int,
        *,
        has_elsewhere: bool,
    ) -> Opened:
        nears = self._nears(stores)
        poll = NearPoll(list(nears.values()))
        loop = Loop("embedbk", poll)
        own = store.boot
        member = Identity("metadata", own.member.name, own.member.incarnation, token, own.nonce, LEVEL)
        noted = listened_at(self.root / _METADATA)
        if (
            self.listen is None
            and noted
            and (len(store.beginning.log.configuration.members) > 1 or has_elsewhere)
        ):
            self.listen = noted[0]  # Others look for it there.
        if self.listen is None and len(store.beginning.log.configuration.members) > 1:
            raise UsageError(
                f"{self.root}: its cluster has other metadata members, and it is not known where this one listened",
                hint='open it with listen="tcp://127.0.0.1:0": the others learn the new place',
            )
        transport = self._open_transport(member)
        self.opened.append(transport.close)
        metadata = MetadataNode(store, transport, [self.listen or _LOCAL], now_ns=clock_ns())
        if self.listen is not None:
            note_endpoints(self.root / _METADATA, metadata.endpoints)
        nodes: list[BookieNode] = []
        for storage in stores:
            who = Identity("bookie", storage.bookie_id, storage.incarnation, token, storage.starts.id)
            transport = self._open_transport(who)
            self.opened.append(transport.close)
            endpoint = _beside(self.listen, storage.bookie_id)
            client = _metadata_client(f"bookie {storage.bookie_id}", token, self.settings)
            node = BookieNode(
                storage.bookie_id,
                storage,
                transport,
                [endpoint],
                metadata.endpoints,
                client,
                free_bytes=storage.free_bytes,
                scrub=ScrubPace(storage.bookie_id, storage, self.settings.scrub_bytes_per_s),
                collector=CollectorOptions(interval_ns=int(self.settings.collect_s * 1e9)),
            )
            node.near = nears[Member(storage.bookie_id, storage.incarnation)]
            nodes.append(node)

        def listen(endpoint: str) -> list[str]:
            """Listen there; runs on the host's thread."""
            beside = [_beside(endpoint, node.bookie_id) for node in nodes]
            # All before the first is bound: what is bound stays so, and would be in the way of the next try.
            for each in (endpoint, *beside):
                check_endpoint(each, is_listening=True, allow_non_loopback=self.settings.allow_non_loopback)
                if each.startswith("ipc://"):
                    check_ipc_path_is_free(each)
            endpoints = metadata.listen(endpoint)
            for node, place in zip(nodes, beside, strict=True):
                node.listen(loop.now_ns(), place)
            return endpoints

        def listen_and_note(endpoint: str) -> list[str]:
            endpoints = listen(endpoint)
            note_endpoints(self.root / _METADATA, endpoints)
            door.url = url_of(endpoints)
            return endpoints

        url = url_of(metadata.endpoints) if self.listen is not None else None
        door = Door(self.root, listen, url or "")
        self.opened.append(door.close)
        loop.add(door)
        loop.add(metadata)
        announcing = None
        if others_of(metadata):
            announcing = announcing_of(metadata, [], lambda where, who: _transport(where, who, self.settings))
            loop.add(announcing)
        for node in nodes:
            loop.add(node)
        transport = self._open_transport(_client_identity(token))
        self.opened.append(transport.close)
        runtime = _client(
            transport,
            metadata.endpoints,
            self.settings,
            token,
            loop,
            str(self.root),
            lambda node: node.add_locally(poll, nears),
        )
        if self.settings.repairs:
            loop.call(partial(begin_repairing, runtime.node, f"embedded {self.root}", self.settings, OPENER))
        runtime.after_close.append(lambda: os.close(owner))
        widening: list[MetadataNode | BookieNode | ClientNode] = [metadata, *nodes, runtime.node]
        for each in widening:
            _look_again_when_widened(loop, each)
        opened = Opened(runtime, {node.bookie_id: node.endpoints for node in nodes}, url)
        failing: list[MetadataNode | BookieNode | Announcing] = [metadata, *nodes]
        if announcing is not None:
            failing.append(announcing)
        for failed in failing:
            opened.failures.append(_failure_of(failed))
            failed.on_failed = runtime.signal.notify
        # The catalog belongs to the host's thread: look only at the members' log here.
        opened.offers = lambda: offers(
            [each.name for each in metadata.log.raft.configuration.learners], Growth()
        )

        if self.listen is None:
            opened.listen = listen_and_note
        return opened

    def _open_transport(self, identity: Identity) -> Transport:
        """Without listen= a transport inside this process, until nodes elsewhere have to be reached."""
        if self.listen is not None:
            return _transport(self.listen, identity, self.settings)
        return WidenedTransport(identity, lambda endpoint, who: _transport(endpoint, who, self.settings))

    @staticmethod
    def _nears(stores: list[BookieStorage]) -> dict[Member, NativeNear]:
        nears: dict[Member, NativeNear] = {}
        for storage in stores:
            assert storage.add_path is not None
            nears[Member(storage.bookie_id, storage.incarnation)] = NativeNear(storage.add_path)
        return nears


def _look_again_when_widened(loop: Loop, node: MetadataNode | BookieNode | ClientNode) -> None:
    if isinstance(node.transport, WidenedTransport):
        node.transport.on_widened = lambda: loop.look_again(node)


def _client(
    transport: Transport,
    endpoints: list[str],
    settings: Settings,
    token: bytes,
    loop: Loop,
    name: str,
    prepare: Callable[[ClientNode], None] = lambda _: None,
) -> Runtime:
    """The client node, prepared as the last node on the loop; the loop starts."""
    label = f"client {socket.gethostname()}:{os.getpid()}"
    node = ClientNode(
        transport,
        endpoints,
        _metadata_client(label, token, settings),
        slow_bookie_bytes_max=settings.slow_bookie_bytes_max,
        backlog=backlog_of_process(),
        table_of=table_in_c,
        seat_grace_ns=int(settings.repair_grace_s * 1e9),
    )
    node.on_wake = loop.wake
    prepare(node)
    loop.add(node)
    runtime = Runtime(loop, node, settings, name)
    loop.start()
    return runtime


def _metadata_client(label: str, token: bytes, settings: Settings) -> MetadataClient:
    return MetadataClient(ttl_ms=settings.session_ttl_ms, label=label, cluster_token=token)


def _client_identity(token: bytes) -> Identity:
    incarnation = os.urandom(INCARNATION_BYTES)
    return Identity("client", f"client-{incarnation[:6].hex()}", incarnation, token)


def _transport(endpoint: str, identity: Identity, settings: Settings) -> Transport:
    if endpoint.startswith(_LOCAL_SCHEME):
        return open_transport(endpoint, identity)
    return open_transport(endpoint, identity, allow_non_loopback=settings.allow_non_loopback)


def _beside(listen: str | None, bookie_id: str) -> str:
    """Where a bookie listens when the metadata member listens there."""
    if listen is None:
        return _LOCAL
    if listen.startswith("ipc://"):
        return f"{listen}.{bookie_id}"
    return listen.rpartition(":")[0] + ":0"


def _failure_of(node: MetadataNode | BookieNode | Announcing) -> Callable[[], EmbedbkError | None]:
    return lambda: node.failure
