"""A bookie in its place: carries out what its core asks for on transport and storage, and keeps it registered.

Decides nothing of the protocol. Order is the contract: effects are carried out in list order, and what became durable
is told to the core before anything else of the turn, so that no answer can leave early.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from embedbk.codec.messages import decode_message, encode_message
from embedbk.codec.metadata_messages import ABSENT, Compare, Get, Put, Result, Txn, TxnDone, Value
from embedbk.codec.registration import (
    REGISTRATION_VERSION,
    Registration,
    cookie_path,
    encode_registration,
    registration_path,
)
from embedbk.core.bookie import Bookie
from embedbk.core.machine import earliest
from embedbk.core.vocabulary import (
    Effect,
    EntriesRead,
    Event,
    JournalAppend,
    JournalDurable,
    JournalFailed,
    LinkLost,
    ReadEntries,
    Reply,
    RequestReceived,
    StoreFrame,
    Tick,
)
from embedbk.errors import EmbedbkError, PeerError, StorageError, ensure
from embedbk.host.metadata_link import MetadataLink
from embedbk.metadata.client import Client
from embedbk.ports import DurableBookie, LinkDown, LinkUp, Received, Transport

__all__ = ["BookieNode"]

logger = logging.getLogger(__name__)

REGISTER_AGAIN_NS = 500_000_000


class BookieNode:
    """One bookie: core, storage, links of its clients, and its registration with the metadata quorum."""

    def __init__(
        self,
        bookie_id: str,
        storage: DurableBookie,
        transport: Transport,
        listen: Sequence[str],
        metadata_endpoints: Sequence[str],
        client: Client,
        *,
        free_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """listen: endpoints to bind; what was bound stands in `endpoints`, and in the registration."""
        self.bookie_id = bookie_id
        self.storage = storage
        self.transport = transport
        self.endpoints = [transport.listen(endpoint) for endpoint in listen]
        self.core = Bookie(storage.incarnation, storage.table, storage.next_token())
        self.metadata = MetadataLink(transport, metadata_endpoints, client, on_session=self._register)
        self.is_registered = False
        self.failure: EmbedbkError | None = None  # Why this bookie must not serve: shown to whoever runs it.
        self._register_at: int | None = None
        self._free_bytes = free_bytes
        self._events: deque[Event] = deque()
        # Told of each step of the core, before its effects are carried out (testing).
        self.on_step: Callable[[Bookie, Event, list[Effect]], None] | None = None

    def step(self, now_ns: int) -> None:
        self._tell_durable(now_ns)
        for event in self.transport.receive(now_ns):
            if isinstance(event, Received):
                self._take_body(now_ns, event)
            elif isinstance(event, LinkUp):
                if event.link == self.metadata.link:
                    self.metadata.on_link_up(now_ns)
            elif event.link == self.metadata.link:
                self.metadata.on_link_down(now_ns, event.reason)
            else:
                assert isinstance(event, LinkDown)
                self._step_core(LinkLost(now_ns, event.link))
        self.metadata.tick(now_ns)
        if self._register_at is not None and now_ns >= self._register_at:
            self._register_at = None
            self._register(now_ns, b"")
        deadline = self.core.deadline_ns
        if deadline is not None and now_ns >= deadline:
            self._step_core(Tick(now_ns))
        self.storage.kick()
        self.storage.finish_flush()
        self.storage.begin_flush_if_due()

    def deadline_ns(self) -> int | None:
        return earliest(
            self.core.deadline_ns,
            self.metadata.deadline_ns(),
            self.transport.deadline_ns(),
            self._register_at,
        )

    def filenos(self) -> list[int]:
        return [*self.transport.filenos(), *self.storage.filenos()]

    def close(self) -> None:
        """Leave the cluster and make everything durable."""
        self.metadata.close(0)
        self.transport.close()
        self.storage.close()

    def _take_body(self, now_ns: int, event: Received) -> None:
        try:
            message = decode_message(event.body)
        except PeerError as broken:
            logger.warning("bookie %s drops a link: %s", self.bookie_id, broken)
            self.transport.drop(event.link, str(broken))
            return
        if event.link == self.metadata.link:
            self.metadata.on_message(now_ns, message)
            return
        self._step_core(
            RequestReceived(now_ns, event.link, message.request_id, message.control, message.frames)
        )

    def _tell_durable(self, now_ns: int) -> None:
        failure = self.storage.failed()
        if failure is not None and self.core.failure is None:
            logger.critical("bookie %s: journal failed: %s", self.bookie_id, failure)
            self.failure = StorageError(
                f"bookie {self.bookie_id}: its journal failed and acknowledges nothing more: {failure}",
                hint="check the disk, then start the bookie again",
            )
            self._step_core(JournalFailed(now_ns, failure))
        token = self.storage.durable()
        if token > self.core.durable and self.core.failure is None:
            self._step_core(JournalDurable(now_ns, token))

    def _step_core(self, event: Event) -> None:
        """Step the core and carry its effects out; completions that are there at once are events behind them."""
        self._events.append(event)
        while self._events:
            event = self._events.popleft()
            effects = self.core.step(event)
            if self.on_step is not None:
                self.on_step(self.core, event, effects)
            for effect in effects:
                self._carry_out(effect, event.now_ns)

    def _carry_out(self, effect: Effect, now_ns: int) -> None:
        if isinstance(effect, Reply):
            pieces = encode_message(effect.request_id, effect.control, effect.frames)
            if not self.transport.send(effect.link, pieces):
                # An answer that is lost would leave its client waiting; a lost link it understands.
                self.transport.drop(effect.link, "its queue of answers is full")
        elif isinstance(effect, StoreFrame):
            self._ensure_token(self._try(lambda: self.storage.put_frame(effect.frame)), effect.token)
        elif isinstance(effect, JournalAppend):
            token = self._try(lambda: self.storage.append(effect.kind, effect.ledger_id, effect.body))
            self._ensure_token(token, effect.token)
        else:
            assert isinstance(effect, ReadEntries)
            found = self.storage.read(
                effect.ledger_id,
                effect.first_entry,
                effect.last_entry,
                effect.bytes_max,
                effect.modulus,
                effect.residues,
            )
            self._events.append(EntriesRead(now_ns, effect.read_id, found.frame, found.absent))

    def _try(self, append: Callable[[], int]) -> int | None:
        try:
            return append()
        except StorageError as failed:
            # The journal's own failure is told in the next turn; what waits for this record is answered then.
            logger.error("bookie %s: %s", self.bookie_id, failed)
            return None

    def _ensure_token(self, given: int | None, expected: int) -> None:
        ensure(given in (None, expected), f"the journal numbered a record {given}, the core {expected}")

    # Registration (P7.2).

    def _register(self, now_ns: int, _cluster_token: bytes) -> None:
        """A session is open: show the cookie, then stand in the list of bookies as long as the session lives."""
        self.is_registered = False
        self.metadata.request(now_ns, Get(cookie_path(self.bookie_id)), self._on_cookie)

    def _on_cookie(self, now_ns: int, result: Result) -> None:
        if not isinstance(result, Value):
            self._register_at = now_ns + REGISTER_AGAIN_NS
            return
        incarnation = self.storage.incarnation
        key = cookie_path(self.bookie_id)
        when, then = [Compare(key, ABSENT)], [Put(key, incarnation)]
        if result.record is not None:
            if result.record.value != incarnation:
                self.failure = StorageError(
                    f"bookie {self.bookie_id} is known to the cluster with other directories (incarnation "
                    f"{(result.record.value or b'').hex()}, these are {incarnation.hex()}): wiped or swapped disks?",
                    hint="give it its own directories back, or start it under a new bookie id",
                )
                logger.critical("%s", self.failure)
                return
            when, then = [Compare(key, result.record.revision)], []
        registration = Registration(
            REGISTRATION_VERSION,
            self.bookie_id,
            incarnation,
            self.endpoints,
            self.core.is_writable,
            self._free_bytes(),
        )
        then.append(
            Put(registration_path(self.bookie_id), encode_registration(registration), is_ephemeral=True)
        )
        self.metadata.request(now_ns, Txn(when, list(then)), self._on_registered)

    def _on_registered(self, now_ns: int, result: Result) -> None:
        self.is_registered = isinstance(result, TxnDone) and result.is_done
        if not self.is_registered:
            self._register_at = now_ns + REGISTER_AGAIN_NS
