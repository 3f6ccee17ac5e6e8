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

from embedbk.cli.learning_cluster import learn_cluster, transport_of
from embedbk.cli.member import run_member
from embedbk.cli.peer_options import FROM_PARENT, check_options, level_of, parser_of, settings_of
from embedbk.cli.serving import Serving, Stopped
from embedbk.client.address import endpoints_of, is_address
from embedbk.client.beginning import check_bookies_path, is_new, refuse_new
from embedbk.codec.kernels import keep_freed_memory
from embedbk.codec.registration import check_place
from embedbk.errors import EmbedbkError, UsageError
from embedbk.host.known_members import KnownMembers, noted_members
from embedbk.ids import INCARNATION_BYTES
from embedbk.ports.links import Identity
from embedbk.storage.noted import replace_durably
from embedbk.transports.endpoints import check_endpoint

if TYPE_CHECKING:
    from embedbk.host.loop import Node

__all__ = ["run_peer"]

logger = logging.getLogger(__name__)


def run_peer(role: str, arguments: Sequence[str]) -> int:
    """Run one peer to its end; the exit code."""
    options = parser_of(role).parse_args(arguments)
    logging.basicConfig(
        level=level_of(options),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    name = f"embedbk {role}" + (f" {options.id}" if role == "bookie" else "")
    serving = Serving(options.ready_fd, options.parent_fd)
    keep_freed_memory()
    try:
        check_options(options)
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
        lambda endpoint, identity: transport_of(options, endpoint, identity),
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
    token = learn_cluster(options, serving, metadata, noted)
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
        transport = transport_of(options, listen[0], identity)
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
    node = ClientNode(transport_of(options, endpoint, identity), metadata, client)
    begin_repairing(node, f"bookie {options.id}", settings_of(options), OPENER)
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


def _settle_memory() -> None:
    """The objects of the start live for ever: the collector need not walk them repeatedly."""
    gc.collect()
    gc.freeze()
