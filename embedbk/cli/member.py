"""`embedbk metadata`: one metadata member in a process of its own; how it begins, joins, and comes back.

Decides what an empty directory becomes: the first member of a new cluster (`--new`), or a member that joins (`--join`),
never one of them by default: a directory that is empty by mistake would begin a second cluster beside the first.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from embedbk.cli.serving import Serving
from embedbk.client.beginning import holds_log
from embedbk.codec.lineages import parse_lineages
from embedbk.codec.metadata_messages import Result
from embedbk.codec.quorum_messages import QuorumStatus, QuorumTold
from embedbk.errors import UsageError
from embedbk.host.blank_member import BlankMember
from embedbk.host.inquiring import Inquiry
from embedbk.host.loop import clock_ns
from embedbk.host.reminders import Reminders
from embedbk.ids import INCARNATION_BYTES, check_member_name
from embedbk.metadata.joining import Adoption
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.storage.metadata_log import FIRST_MEMBER, MemberIdentity

__all__ = ["EPILOG", "add_arguments", "run_member"]

logger = logging.getLogger(__name__)


_FILE_BYTES_MIN = 4 << 20  # A transaction of the largest size needs so much.

EPILOG = """\
Three members find each other by any address of one that runs:

  embedbk metadata --new --dir A --listen tcp://127.0.0.1:4001
  embedbk metadata --join 127.0.0.1:4001 --dir B --name m2
  embedbk metadata --join 127.0.0.1:4001 --dir C --name m3
  embedbk quorum join --at embedbk://127.0.0.1:4001

The two that join receive the log at once; they vote when the last command has ended.

Or all of them wait for each other, and begin together:

  embedbk metadata --join 127.0.0.1:4002 --dir A --name m1 --listen tcp://127.0.0.1:4001
  embedbk metadata --join 127.0.0.1:4001 --dir B --name m2 --listen tcp://127.0.0.1:4002
  embedbk metadata --join 127.0.0.1:4001 --dir C --name m3 --listen tcp://127.0.0.1:4003
  embedbk quorum init --at embedbk://127.0.0.1:4001,127.0.0.1:4002,127.0.0.1:4003
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--new", action="store_true", help="its directory is empty: begin a new cluster in it")
    add(
        "--join",
        metavar="ENDPOINTS",
        help="its directory is empty: join the cluster of these members, as HOST:PORT,... or embedbk://HOST:PORT,...; "
        "one that has joined looks for the others there, too, as when all have moved to other addresses",
    )
    add(
        "--gives-up",
        metavar="LINEAGES",
        help="with --may-have-lost: lineages that bookies met, as they name them, and whose changes are lost for good",
    )
    add("--name", help="of this member in its quorum (default: m1 with --new, else its directory's)")


def run_member(
    options: argparse.Namespace,
    serving: Serving,
    listen: Sequence[str],
    seeds: Sequence[str],
    transport_of: Callable[[str, Identity], Transport],
    settle: Callable[[], None],
) -> None:
    """Serve until the process is to end.

    Raises:
        UsageError, StorageError: it cannot, or must not; the message says which command helps.
    """
    from embedbk.client.entering import announcing_of, note_endpoints, others_of
    from embedbk.host.metadata_node import MetadataNode
    from embedbk.storage.metadata_opening import open_metadata_store

    file_bytes = max(options.journal_file_bytes, _FILE_BYTES_MIN)
    new_identity, listen = _new_identity(options, serving, listen, seeds, transport_of)
    with ExitStack() as opened:  # Closed again when the rest cannot be opened.
        store = open_metadata_store(
            options.dir,
            file_bytes=file_bytes,
            may_have_lost=options.may_have_lost,
            gives_up=parse_lineages(options.gives_up or ""),
            new_identity=new_identity,
        )
        opened.callback(store.close)
        own = store.identity
        if options.name not in (None, own.name):
            raise UsageError(
                f"--name {options.name}: {options.dir} is member {own.name}'s, and a member keeps its name",
                hint=f"leave --name away, or say --name {own.name}",
            )
        identity = Identity("metadata", own.name, own.incarnation, own.cluster_token, store.boot.nonce, LEVEL)
        transport = transport_of(listen[0], identity)
        opened.callback(transport.close)
        node = MetadataNode(store, transport, listen, now_ns=clock_ns(), seeds=seeds)
        opened.callback(node.close)
        known = others_of(node)
        if not own.is_founder and not known and not seeds:
            raise UsageError(
                f"member {own.name} in {options.dir} was not let in yet, and knows no other member",
                hint=f"embedbk metadata --join HOST:PORT --dir {options.dir}",
            )
        announcing = None
        if known or seeds:
            announcing = announcing_of(node, seeds, transport_of)
        opened.pop_all()
    note_endpoints(options.dir, node.endpoints)
    settle()
    serving.serve(
        node,
        is_ready=lambda: announcing is None or node.is_known or bool(known),
        failure=lambda: node.failure or (announcing.failure if announcing is not None else None),
        report=lambda: {
            "role": "metadata",
            "name": own.name,
            "endpoints": node.endpoints,
            "incarnation": own.incarnation.hex(),
            "pid": os.getpid(),
        },
        beside=[announcing] if announcing is not None else [],
    )


# --- What an empty directory becomes ----------------------------------------------------------------------


def _new_identity(
    options: argparse.Namespace,
    serving: Serving,
    listen: Sequence[str],
    seeds: Sequence[str],
    transport_of: Callable[[str, Identity], Transport],
) -> tuple[MemberIdentity | None, Sequence[str]]:
    """To which cluster an empty directory will belong, and where it listens from then on; None for one that belongs to
    a member already."""
    if options.new and seeds:
        raise UsageError(
            "--new and --join: a member begins a cluster or joins one",
            hint="say --new for the first member only",
        )
    directory = options.dir
    if holds_log(directory):
        if options.new:
            raise UsageError(
                f"--new: {directory} holds a member's log already; nothing was changed",
                hint=f"embedbk metadata --dir {directory} starts that member; a new cluster needs an empty directory",
            )
        return None, listen
    if options.new:
        return MemberIdentity.mint(_name(options.name or FIRST_MEMBER)), listen
    if not seeds:
        raise UsageError(
            f"{directory} is empty: does this member begin a cluster, or join one?",
            hint=f"embedbk metadata --new --dir {directory} begins a cluster; "
            f"embedbk metadata --join HOST:PORT --dir {directory} joins that of the member at this address",
        )
    name = _name(options.name or directory.resolve().name)
    token, is_founder, listen = _adopt(name, serving, listen, seeds, transport_of)
    return MemberIdentity(token, os.urandom(INCARNATION_BYTES), name, is_founder), listen


def _name(name: str) -> str:
    try:
        return check_member_name(name)
    except UsageError as refused:
        raise UsageError(str(refused), hint="give one with --name") from None


def _adopt(
    name: str,
    serving: Serving,
    listen: Sequence[str],
    seeds: Sequence[str],
    transport_of: Callable[[str, Identity], Transport],
) -> tuple[bytes, bool, Sequence[str]]:
    """The token that a majority of a cluster's voters report, or, True, of the cluster that it is to begin as the
    founder of a formation; and the endpoints it was bound to meanwhile."""
    adoption, reminders = Adoption(seeds), Reminders(logger)
    identity = Identity("client", name, os.urandom(INCARNATION_BYTES), b"")
    listener = Identity("metadata", name, os.urandom(INCARNATION_BYTES), b"")

    def heard(endpoint: str, result: Result) -> None:
        if isinstance(result, QuorumTold):
            adoption.hear(endpoint, result, blank.forming.promised)
            blank.forming.met = adoption.met
            inquiry.also(adoption.endpoints)

    inquiry = Inquiry(transport_of(seeds[0], identity), seeds, QuorumStatus(), heard)
    blank = BlankMember(transport_of(listen[0], listener), listen, name, inquiry.also)

    def is_reached() -> bool:
        if adoption.conflict:
            raise UsageError(
                f"{name} joins no cluster: {adoption.conflict}; nothing was made",
                hint="name members of one cluster only with --join",
            )
        reminders.lasts(
            clock_ns(),
            "token",
            f"metadata member {name} at {', '.join(blank.endpoints)} waits for its cluster: {adoption.why_not}",
        )
        # Also when a majority was quicker: another seed may belong to another cluster.
        return blank.forming.is_founder or (inquiry.has_asked_all and adoption.token != b"")

    serving.run_until(inquiry, is_reached, [blank])
    founded = blank.forming.founded
    return founded or adoption.token, founded != b"", blank.endpoints
