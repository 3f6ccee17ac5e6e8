"""A metadata member's way into its configuration: its endpoints are noted in its directory, and announced.

Decides what that note holds (`ENDPOINTS`), and when the others have to learn of it: a member that began alone and
stayed alone announces nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from embedbk.codec.quorum_messages import JoinAsLearner, MemberName
from embedbk.errors import StorageError
from embedbk.host.announcing import Announcing
from embedbk.host.metadata_node import MetadataNode
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.levels import LEVEL
from embedbk.ports.links import Identity
from embedbk.ports.transport import Transport
from embedbk.quorum import ENDPOINTS_FILE
from embedbk.storage.noted import replace_durably

__all__ = ["announcing_of", "note_endpoints", "others_of"]


def others_of(node: MetadataNode) -> list[str]:
    """The addresses of the other members, by this one's own log."""
    configuration, own = node.log.raft.configuration, node.log.raft.member
    return [
        endpoint
        for member in configuration.members
        if member != own
        for endpoint in configuration.endpoints_of(member)
    ]


def announcing_of(
    node: MetadataNode, seeds: Sequence[str], transport_of: Callable[[str, Identity], Transport]
) -> Announcing:
    """Announce this member's address to the leader, until the configuration names it. seeds: possible addresses of
    other members."""
    own = node.store.identity
    where = list(dict.fromkeys((*seeds, *others_of(node), *node.endpoints)))
    member = MemberName(own.name, own.incarnation)
    operation = JoinAsLearner(own.cluster_token, member, node.store.boot.nonce, tuple(node.endpoints), LEVEL)
    speaker = Identity("client", own.name, os.urandom(INCARNATION_BYTES), own.cluster_token)
    return Announcing(transport_of(where[0], speaker), where, operation, lambda: node.is_known)


def note_endpoints(directory: Path, endpoints: Sequence[str]) -> None:
    """Raises StorageError: the note cannot be written."""
    note = directory / ENDPOINTS_FILE
    try:
        # Durable, as the next start listens there: an empty file behind a power cut would have it move.
        replace_durably(note, "".join(f"{endpoint}\n" for endpoint in endpoints).encode())
    except OSError as refused:
        raise StorageError(f"{note} cannot be written: {refused}", definite=True) from refused
