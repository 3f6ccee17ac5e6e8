"""The peer commands: `embedbk bookie` and `embedbk metadata` (member.py), one node in a process of its own.

Decides how a node is put together from a directory and endpoints, with the core dependencies only. When it serves, one
JSON line on the ready pipe has the bound endpoints; when it cannot, the same line has the error, and stderr one
sentence. A bookie serves when the metadata member has it registered.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from embedbk.cli.member import EPILOG, add_arguments, run_member
from embedbk.cli.serving import Serving, Stopped
from embedbk.client.address import endpoints_of, is_address
from embedbk.client.beginning import check_bookies_path, is_new, refuse_new
from embedbk.codec.kernels import keep_freed_memory
from embedbk.codec.registration import check_place
from embedbk.config import Settings
from embedbk.errors import EmbedbkError, UsageError
from embedbk.host.known_members import KnownMembers, NotedMembers, noted_members
from embedbk.host.reminders import Reminders
from embedbk.ids import INCARNATION_BYTES, check_bookie_id
from embedbk.metadata.seeking import Seeker
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.ports.transport import Transport
from embedbk.storage.noted import replace_durably
from embedbk.transports import open_transport
from embedbk.transports.endpoints import check_endpoint

if TYPE_CHECKING:
    from embedbk.host.loop import Node

__all__ = ["FROM_PARENT", "run_peer"]

logger = logging.getLogger(__name__)

FROM_PARENT = "-"  # The value of --metadata if the starter sends it later, on the parent's pipe.

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_PATIENCE_NS = 2_000_000_000  # Time for a Hello, if another address is known.


def run_peer(role: str, arguments: Sequence[str]) -> int:
    """Run one peer to its end; the exit code."""
    options = _parser(role).parse_args(arguments)
    level = _LEVELS[options.log_level] - 10 * options.verbose
    logging.basicConfig(
        level=max(level, logging.DEBUG),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    name = f"embedbk {role}" + (f" {options.id}" if role == "bookie" else "")
    serving = Serving(options.ready_fd, options.parent_fd)
    keep_freed_memory()
    try:
        _check(options)
        run = _run_bookie if role == "bookie" else _run_metadata
        run(options, serving)
    except Stopped:
        return 0
    except (EmbedbkError, OSError) as error:
        told = error if isinstance(error, EmbedbkError) else UsageError(f"the system refuses: {error}")
        print(f"{name}: {told}", file=sys.stderr)
        serving.tell_error(told)
        return 1
    except BaseException as error:
        serving.tell_error(error)
        raise  # A bug: its traceback is wanted.
    return 0


def _parser(role: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"embedbk {role}",
        description=f"Run one {role} until SIGTERM.",
        epilog=EPILOG if role == "metadata" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--dir", required=True, type=Path, help="its directory; made at the first start, its parent never")
    add(
        "--create",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="--no-create: a missing or empty directory is an error, not a new one; for what stands on mounts",
    )
    add(
        "--listen",
        action="append",
        metavar="ENDPOINT",
        help="tcp://HOST:PORT or ipc://PATH; port 0 is any free one (default tcp://127.0.0.1:0)",
    )
    if role == "metadata":
        add_arguments(parser)
        add(
            "--may-have-lost",
            action="store_true",
            help="its directory is an older copy, or lost a part of its log: a new generation of ids and epochs begins",
        )
    if role == "bookie":
        add("--id", required=True, type=_bookie_id, help="its name in the cluster, for ever")
        add(
            "--location",
            default="",
            metavar="ZONE/RACK",
            help="where it stands, for placement over racks or zones",
        )
        add(
            "--may-have-lost",
            action="store_true",
            help="its directories are an older copy, or were repaired: what is missing there counts as unknown",
        )
        add(
            "--metadata",
            required=True,
            metavar="ENDPOINTS",
            help="of the metadata members, as embedbk://HOST:PORT,... or tcp://HOST:PORT,...",
        )
        add(
            "--journal-dir",
            type=Path,
            action="append",
            default=[],
            help="on another device, if it should be; several share the ledgers, always in the same order",
        )
        add(
            "--ledger-dir",
            type=Path,
            action="append",
            default=[],
            help="for entry logs; several, each on a device of its own, always in the same order",
        )
        add(
            "--expand", action="store_true", help="ledger directories at the end are new ones, added for good"
        )
        add(
            "--session-ttl-ms",
            type=int,
            default=Settings().session_ttl_ms,
            help="silent for so long: given up",
        )
        add(
            "--scrub-bytes-per-s",
            type=int,
            default=Settings().scrub_bytes_per_s,
            help="read so much of what is stored, again and again, to find rot; 0: nothing",
        )
        add(
            "--collect-s",
            type=float,
            default=Settings().collect_s,
            help="between two rounds of asking what need not be held any more",
        )
        add(
            "--repair",
            action=argparse.BooleanOptionalAction,
            default=Settings().repairs,
            help="--no-repair: this process repairs nothing, and is no candidate for auditor",
        )
        add(
            "--repair-grace-s",
            type=float,
            default=Settings().repair_grace_s,
            help="a bookie that is away for so long is taken to be lost",
        )
        add(
            "--repair-bytes-per-s",
            type=int,
            default=Settings().repair_bytes_per_s,
            help="read so much for copies; 0: as fast as it goes",
        )
        add(
            "--repair-ledgers-per-s",
            type=int,
            default=Settings().repair_ledgers_per_s,
            help="begin to repair so many; 0: as many as it can",
        )
        add(
            "--balance-bytes-per-s",
            type=int,
            default=Settings().balance_bytes_per_s,
            help="move so much of closed ledgers to bookies with more room, or in other racks; 0: nothing",
        )
        add(
            "--audit-s",
            type=float,
            default=Settings().audit_s,
            help="between two looks of the auditor at all ledgers",
        )
    add("--journal-file-bytes", type=int, default=Settings().journal_file_bytes)
    add(
        "--allow-non-loopback", action="store_true", help="links are not encrypted: on a trusted network only"
    )
    add(
        "--log-level",
        choices=sorted(_LEVELS, key=_LEVELS.__getitem__),
        default="warning",
        help="what is logged on standard error; info says what happens, with figures (default: warning)",
    )
    add("-v", dest="verbose", action="count", default=0, help="one level more; twice: two")
    add("--ready-fd", type=int, help="where to report what was bound (default: standard output)")
    add("--parent-fd", type=int, help="a pipe at whose end this process ends")
    return parser


def _bookie_id(text: str) -> str:
    try:
        return check_bookie_id(text)
    except UsageError as refused:
        raise argparse.ArgumentTypeError(str(refused)) from None


def _check(options: argparse.Namespace) -> None:
    where = "join" if hasattr(options, "join") else "metadata"
    if getattr(options, where) == FROM_PARENT and options.parent_fd is None:
        raise UsageError(
            f"--{where} {FROM_PARENT}: it is read from the parent's pipe, and --parent-fd names none",
            hint="give the metadata members' endpoints",
        )
    _settings(options)


def _settings(options: argparse.Namespace) -> Settings:
    """The settings by the options; those that this kind of peer does not take have their defaults."""
    usual = Settings()
    names = (
        "session_ttl_ms",
        "scrub_bytes_per_s",
        "collect_s",
        "repair_grace_s",
        "repair_bytes_per_s",
        "repair_ledgers_per_s",
        "balance_bytes_per_s",
        "audit_s",
    )
    given = {name: getattr(options, name, getattr(usual, name)) for name in names}
    return Settings(
        journal_file_bytes=options.journal_file_bytes,
        repairs=getattr(options, "repair", usual.repairs),
        **given,
    )


def _listen(options: argparse.Namespace) -> list[str]:
    endpoints: list[str] = options.listen or ["tcp://127.0.0.1:0"]
    for endpoint in endpoints:
        check_endpoint(endpoint, is_listening=True, allow_non_loopback=options.allow_non_loopback)
    return endpoints


def _check_dialled(options: argparse.Namespace, endpoint: str) -> None:
    check_endpoint(endpoint, is_listening=False, allow_non_loopback=options.allow_non_loopback)


def _metadata_endpoints(text: str, serving: Serving) -> list[str]:
    if text == FROM_PARENT:
        text = serving.read_line()
    if is_address(text):
        return endpoints_of(text)
    return [_endpoint(part.strip()) for part in text.split(",")]


def _endpoint(text: str) -> str:
    """The endpoint of a member's address, which may also be just HOST:PORT."""
    return text if "://" in text else f"tcp://{text}"


def _transport(options: argparse.Namespace, endpoint: str, identity: Identity) -> Transport:
    return open_transport(endpoint, identity, allow_non_loopback=options.allow_non_loopback)


# --- Metadata member ----------------------------------------------------------------------------------------


def _run_metadata(options: argparse.Namespace, serving: Serving) -> None:
    listen = _listen(options)
    seeds = _metadata_endpoints(options.join, serving) if options.join is not None else []
    _begin(options, "a member" if seeds else "a new cluster", [_Place("directory", options.dir)])
    run_member(
        options,
        serving,
        listen,
        seeds,
        lambda endpoint, identity: _transport(options, endpoint, identity),
        _settle_memory,
    )


# --- Bookie -------------------------------------------------------------------------------------------------


def _run_bookie(options: argparse.Namespace, serving: Serving) -> None:
    from embedbk.core.collector import CollectorOptions
    from embedbk.host.bookie_node import BookieNode
    from embedbk.host.scrub_pace import ScrubPace
    from embedbk.metadata.client import Client
    from embedbk.storage.bookie_storage import BookieStorage

    listen = _listen(options)
    check_place(listen, options.location)
    metadata = _metadata_endpoints(options.metadata, serving)
    noted = noted_members(options.dir, partial(_check_dialled, options))
    token = _learn_cluster(options, serving, metadata, noted)
    if noted.token == token:
        metadata = list(dict.fromkeys((*metadata, *noted.endpoints)))
    places = _bookies_places(options)
    for place in places:
        check_bookies_path(place.path, place.what)
    _begin(options, f"a new bookie {options.id}", places)
    with ExitStack() as opened:  # Closed again when the rest cannot be opened.
        storage = BookieStorage(
            options.dir,
            options.id,
            token,
            journal_directories=options.journal_dir,
            ledger_directories=options.ledger_dir,
            expands=options.expand,
            journal_file_bytes=options.journal_file_bytes,
            may_have_lost=options.may_have_lost,
            may_go_back=True,
        )
        opened.callback(storage.close)
        identity = Identity("bookie", options.id, storage.incarnation, token, storage.starts.id)
        transport = _transport(options, listen[0], identity)
        opened.callback(transport.close)
        client = Client(ttl_ms=options.session_ttl_ms, label=f"bookie {options.id}", cluster_token=token)
        node = BookieNode(
            options.id,
            storage,
            transport,
            listen,
            metadata,
            client,
            free_bytes=storage.free_bytes,
            location=options.location,
            scrub=ScrubPace(options.id, storage, options.scrub_bytes_per_s),
            collector=CollectorOptions(interval_ns=int(options.collect_s * 1e9)),
        )
        opened.pop_all()
    beside: list[Node] = [KnownMembers(options.dir, token, lambda: client.members, noted, replace_durably)]
    if options.repair:
        beside.append(_repairing(options, listen[0], metadata, token))
    _settle_memory()
    serving.serve(
        node,
        is_ready=lambda: node.is_registered,
        failure=lambda: node.failure,
        report=lambda: {
            "role": "bookie",
            "id": options.id,
            "endpoints": node.endpoints,
            "incarnation": storage.incarnation.hex(),
            "pid": os.getpid(),
        },
        beside=beside,
    )


def _repairing(options: argparse.Namespace, endpoint: str, metadata: list[str], token: bytes) -> Node:
    """A client of the cluster in this process, which repairs what others lost (P11)."""
    from embedbk.client.password import OPENER
    from embedbk.host.client_node import ClientNode
    from embedbk.host.loop import Beside
    from embedbk.host.repairing import begin_repairing
    from embedbk.metadata.client import Client

    incarnation = os.urandom(INCARNATION_BYTES)
    identity = Identity("client", f"repair-{options.id}", incarnation, token)
    client = Client(
        ttl_ms=options.session_ttl_ms, label=f"repair of bookie {options.id}", cluster_token=token
    )
    node = ClientNode(_transport(options, endpoint, identity), metadata, client)
    begin_repairing(node, f"bookie {options.id}", _settings(options), OPENER)
    return Beside(node)  # The bookie waits: its adds go without a turn of the loop.


class _Place(NamedTuple):
    """A directory that was given: how it is called, and whether it may be a new one, or empty, with --no-create."""

    what: str
    path: Path
    may_be_new: bool = False
    may_be_empty: bool = False


def _bookies_places(options: argparse.Namespace) -> list[_Place]:
    # If all parts are elsewhere, its own directory holds notes only.
    is_elsewhere = bool(options.journal_dir and options.ledger_dir)
    return [
        _Place("directory", options.dir, may_be_empty=is_elsewhere),
        *(_Place("journal directory", path) for path in options.journal_dir),
        # Which of them is new with --expand is judged where they are opened.
        *(_Place("ledger directory", path, options.expand, options.expand) for path in options.ledger_dir),
    ]


def _begin(options: argparse.Namespace, who: str, places: list[_Place]) -> None:
    """Log that something new begins, or refuse it; the directories are made when they are opened."""
    begins = True
    for what, path, may_be_new, may_be_empty in places:
        begins &= is_new(path, create=options.create or may_be_new, what=what)
        if not options.create and not may_be_empty:
            refuse_new([path], what)
    if begins:
        logger.warning("%s begins in %s", who, ", ".join(str(place.path) for place in places))


def _learn_cluster(
    options: argparse.Namespace, serving: Serving, endpoints: Sequence[str], noted: NotedMembers
) -> bytes:
    """The token of the cluster to which the directory must belong, from a metadata member's Hello (P7.2)."""
    identity = Identity("client", options.id, os.urandom(INCARNATION_BYTES), b"")
    asking = _Asking(_transport(options, endpoints[0], identity), endpoints, noted)
    serving.run_until(asking, lambda: asking.cluster_token != b"")
    return asking.cluster_token


class _Asking:
    """A node that dials the metadata members in turn until one that belongs to a cluster sends Hello."""

    def __init__(self, transport: Transport, endpoints: Sequence[str], noted: NotedMembers) -> None:
        """endpoints: the given ones, which define the cluster. noted: noted ones, which count for that cluster only."""
        self.cluster_token = b""
        self._transport = transport
        self._given, self._noted = endpoints, noted
        self._seeker = Seeker([*endpoints, *noted.endpoints])
        self._link: int | None = None
        self._give_up_ns: int | None = None
        self._trouble = "nobody answered yet"
        self._reminders = Reminders(logger)

    def step(self, now_ns: int) -> None:
        for event in self._transport.receive(now_ns):
            if isinstance(event, LinkUp):
                self._take(now_ns, event)
            elif isinstance(event, LinkDown):
                self._trouble, self._link = event.reason, None
                self._seeker.left(now_ns)
        if not self.cluster_token:
            text = f"waiting for a metadata member at {', '.join(self._seeker.given)}: {self._trouble}"
            self._reminders.lasts(now_ns, "metadata", text)
        endpoint = self._seeker.dial(now_ns)
        if endpoint is not None:
            self._link = self._transport.connect(endpoint)
            patience_ns = self._seeker.patience_ns(now_ns, _PATIENCE_NS)
            self._give_up_ns = None if patience_ns is None else now_ns + patience_ns
        elif self._link is not None and self._give_up_ns is not None and now_ns >= self._give_up_ns:
            self._give_up_ns = None
            self._transport.drop(self._link, f"{self._seeker.at} did not answer")

    def _take(self, now_ns: int, event: LinkUp) -> None:
        peer = event.peer
        is_other = self._seeker.at not in self._given and peer.cluster_token != self._noted.token
        if peer.role == "metadata" and peer.cluster_token and not is_other:
            self.cluster_token = peer.cluster_token
            self._reminders.over(now_ns, "metadata", "a metadata member is reached")
        else:
            which = "another cluster" if is_other and peer.cluster_token else "no cluster"
            self._transport.drop(event.link, f"{peer.node_id} is a {peer.role} of {which}")

    def has_news(self) -> bool:
        return self._transport.has_events()

    def deadline_ns(self) -> int | None:
        due = [self._transport.deadline_ns(), self._give_up_ns, self._seeker.dial_at_ns]
        return min((each for each in due if each is not None), default=None)

    def filenos(self) -> list[int]:
        return self._transport.filenos()

    def close(self, failure: BaseException | None = None) -> None:
        self._transport.close()


def _settle_memory() -> None:
    """The objects of the start live for ever: the collector need not walk them repeatedly."""
    gc.collect()
    gc.freeze()
