"""A bookie's place in the list of bookies: shows its cookie, and keeps its registration under the session (P7.2).

Decides nothing of what a bookie may serve: one that may have lost something asks for its limbo first (`limbo`), and
one that the cluster knows with other directories tells its node, which ends everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.codec.metadata_messages import ABSENT, Compare, Get, Put, Result, Txn, TxnDone, Value
from embedbk.codec.registration import (
    REGISTRATION_VERSION,
    Registration,
    cookie_path,
    encode_registration,
    registration_path,
)
from embedbk.core.bookie import Bookie
from embedbk.errors import StorageError
from embedbk.host.limbo import LimboAsking
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.witnessing import Witnessing
from embedbk.ports import DurableBookie

__all__ = ["Registering"]

REGISTER_AGAIN_NS = 500_000_000


class Registering:
    """The registration of one bookie.

    Args:
        location: "zone/rack", for the placement of ensembles.
        free_now: free bytes of its device, or None where nobody can tell.
        on_foreign: the cluster knows this id with other directories; nobody must be served.
    """

    def __init__(
        self,
        bookie_id: str,
        endpoints: Sequence[str],
        location: str,
        storage: DurableBookie,
        core: Bookie,
        metadata: MetadataLink,
        limbo: LimboAsking,
        free_now: Callable[[], int | None],
        witness: Witnessing,
        on_foreign: Callable[[int, StorageError], None],
    ) -> None:
        self.is_foreign = False
        self.deadline_ns: int | None = None  # When to try again.
        self._bookie_id = bookie_id
        self._endpoints = list(endpoints)
        self._location = location
        self._storage = storage
        self._core = core
        self._metadata = metadata
        self._limbo = limbo
        self._free_now = free_now
        self._witness = witness
        self._on_foreign = on_foreign
        self._session = 0  # Under which its key was put.
        self._is_writable = False  # As the list of bookies was told last.

    @property
    def is_done(self) -> bool:
        """Whether clients find it: its key was put under the session that lives now."""
        return self._metadata.session != 0 and self._session == self._metadata.session

    def step(self, now_ns: int) -> None:
        if self.deadline_ns is not None and now_ns >= self.deadline_ns:
            self.deadline_ns = None
            self.register(now_ns)
        if self._storage.may_have_lost and self._core.is_serving:
            self._storage.end_loss()  # What may be lost is in durable limbo.
            self.register(now_ns)
        if self.is_done and self._core.is_writable != self._is_writable:
            self._is_writable = self._core.is_writable  # Not asked again each turn; a refusal asks later.
            self.register(now_ns)

    def register_at(self, when_ns: int) -> None:
        self.deadline_ns = when_ns

    def register(self, now_ns: int) -> None:
        """A session is open: show the cookie, then stand in the list of bookies as long as the session lives."""
        if not self._metadata.session or self.is_foreign or not self._witness.is_judged:
            return  # When it is told which metadata this is, it is called again (P10.5).
        if not self._core.is_serving and self._witness.is_doubted:
            self._again(now_ns)  # The listing of an older one may lack ledgers that must be in limbo.
            return
        if not self._core.is_serving:
            self._limbo.list_ledgers(now_ns, on_partial=self._again)
            return
        self._metadata.request(now_ns, Get(cookie_path(self._bookie_id)), self._on_cookie)

    def _again(self, now_ns: int) -> None:
        self.deadline_ns = now_ns + REGISTER_AGAIN_NS

    def _on_cookie(self, now_ns: int, result: Result) -> None:
        if not isinstance(result, Value):
            self._again(now_ns)
            return
        incarnation = self._storage.incarnation
        key = cookie_path(self._bookie_id)
        when, then = [Compare(key, ABSENT)], [Put(key, incarnation)]
        if result.record is not None:
            if result.record.value != incarnation:
                self._refuse(now_ns, result.record.value or b"")
                return
            when, then = [Compare(key, result.record.revision)], []
        self._metadata.request(
            now_ns,
            Get(registration_path(self._bookie_id)),
            lambda now, found: self._put_registration(now, found, when, then),
        )

    def _put_registration(self, now_ns: int, result: Result, when: list[Compare], then: list[Put]) -> None:
        """Only over the registration that was read. A late one of the process before, which the network still carried
        when that process died, must not take the place of ours and then go with its session."""
        if not isinstance(result, Value):
            self._again(now_ns)
            return
        incarnation, key = self._storage.incarnation, registration_path(self._bookie_id)
        when = [*when, Compare(key, ABSENT if result.record is None else result.record.revision)]
        self._is_writable = self._core.is_writable
        registration = Registration(
            REGISTRATION_VERSION,
            self._bookie_id,
            incarnation,
            self._endpoints,
            self._is_writable,
            self._free_now() or 0,
            self._location,
        )
        put = Put(key, encode_registration(registration), is_ephemeral=True)
        session = self._metadata.session
        self._metadata.request(
            now_ns, Txn(when, [*then, put]), lambda now, outcome: self._on_registered(now, session, outcome)
        )

    def _on_registered(self, now_ns: int, session: int, result: Result) -> None:
        if isinstance(result, TxnDone) and result.is_done:
            self._session = session
            self._limbo.ask_at(now_ns)
        else:
            self._again(now_ns)

    def _refuse(self, now_ns: int, known: bytes) -> None:
        """The cluster knows this id with other directories: serve nobody, and say what is to be done (P7.2)."""
        self.is_foreign = True
        failure = StorageError(
            f"bookie {self._bookie_id} is known to the cluster with other directories (incarnation {known.hex()}, "
            f"these are {self._storage.incarnation.hex()}): wiped or swapped disks?",
            hint="give it its own directories back, or start it under a new bookie id",
        )
        self._on_foreign(now_ns, failure)
