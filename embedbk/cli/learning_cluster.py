"""Which cluster a bookie's directory must belong to: its process asks the metadata members before it opens anything.

Decides which member is asked, for how long, and whose answer counts.
"""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence

from embedbk.cli.serving import Serving
from embedbk.host.known_members import NotedMembers
from embedbk.host.reminders import Reminders
from embedbk.ids import INCARNATION_BYTES
from embedbk.metadata.seeking import Seeker
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.ports.transport import Transport
from embedbk.transports import open_transport

__all__ = ["learn_cluster", "transport_of"]

logger = logging.getLogger(__name__)

_PATIENCE_NS = 2_000_000_000  # Time for a Hello, if another address is known.


def transport_of(options: argparse.Namespace, endpoint: str, identity: Identity) -> Transport:
    return open_transport(endpoint, identity, allow_non_loopback=options.allow_non_loopback)


def learn_cluster(
    options: argparse.Namespace, serving: Serving, endpoints: Sequence[str], noted: NotedMembers
) -> bytes:
    """The token of the cluster to which the directory must belong, from a metadata member's Hello (P7.2)."""
    identity = Identity("client", options.id, os.urandom(INCARNATION_BYTES), b"")
    asking = _Asking(transport_of(options, endpoints[0], identity), endpoints, noted)
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
