"""A bookie's place in the list of bookies: counts its start in the cookie, keeps its registration under the session
(P7.2, P7.9), raises its placement when it goes read-only (P10.6), and lists it as leaving while it is drained (P11.3).

Decides what the cookie means for this start: to which bookie these directories belong, whether they are an older copy
or were taken out of service, and which of two processes with one identity stays. Leaves to others: what a bookie may
serve meanwhile (`core/bookie.py`), limbo (`limbo`), and whether the other one is alive (`rival`). Where the cluster
knows other directories, or the bookie runs elsewhere too, it notifies its node, which ends everything.

    session ─▶ limbo, where something may be lost ─▶ cookie ─▶ registration ─▶ is another start of it alive?
        ─▶ its placement, made if it is absent ─▶ all in one transaction, over what was read ─▶ settled; told again when
        more is durable, or when operators decided something else of it
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from embedbk.codec.metadata_messages import (
    ABSENT,
    Compare,
    Get,
    Put,
    Record,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.codec.read_messages import ReadClass
from embedbk.codec.registration import (
    COOKIE_VERSION,
    REGISTRATION_VERSION,
    TEXT_CHARS_MAX,
    Cookie,
    PlacementNote,
    ReadBounds,
    Registration,
    RetiredDirectories,
    cookie_path,
    decode_cookie,
    decode_placement,
    decode_registration,
    encode_cookie,
    encode_registration,
    placement_path,
    registration_path,
)
from embedbk.core.bookie import Bookie
from embedbk.core.bookie_words import CountSettled, LossFound, ReadBoundsSet, ServeAlone
from embedbk.core.machine import Event, earliest
from embedbk.errors import StorageError
from embedbk.host.limbo import LimboAsking
from embedbk.host.loop import utc_text
from embedbk.host.metadata_link import MetadataLink
from embedbk.host.rival import Rival
from embedbk.host.witnessing import Witnessing
from embedbk.metadata.client import is_unknown
from embedbk.metadata.levels import LEVEL_OF_KEEPERS
from embedbk.ports.durable_bookie import DurableBookie

__all__ = ["Registering"]

logger = logging.getLogger(__name__)

REGISTER_AGAIN_NS = 500_000_000
# A bookie that just started waits so long for metadata before it serves without it: no member greets, or none answers.
ALONE_NS, UNANSWERED_NS = 500_000_000, 5_000_000_000
TELL_NS = 10_000_000_000  # Between two reports to metadata of how much is durable.
FREE_SHARE = 20  # Free bytes are told again when they have changed by one part in so many of what was told.
LEAVE_NS = 1_000_000_000  # For the answers to the last report at a clean stop, and to the session's end.


class Registering:
    """The registration of one bookie.

    Args:
        location: "zone/rack", for the placement of ensembles.
        free_now: free bytes of its device, or None where not known.
        dark_logs: how many entry logs hide something from it now, for people.
        tell_bookie: steps the bookie's core.
        on_foreign: the cluster knows this id with other directories, or elsewhere; no client must be served.
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
        rival: Rival,
        free_now: Callable[[], int | None],
        why: Callable[[], str],
        dark_logs: Callable[[], int],
        witness: Witnessing,
        tell_bookie: Callable[[Event], None],
        on_foreign: Callable[[int, StorageError], None],
    ) -> None:
        self.is_foreign = False
        self.may_go_alone = True  # Switch: False for directories that a simulation knows to be an older copy.
        self._since_ns: int | None = None  # The time of its first turn.
        self._again_ns: int | None = None  # When to try again.
        self._tell_ns: int | None = None  # When to report how much is durable, if that changed.
        self._bookie_id = bookie_id
        self._endpoints = list(endpoints)
        self._location = location
        self._storage = storage
        self._core = core
        self._metadata = metadata
        self._limbo = limbo
        self._rival = rival
        self._free_now = free_now
        self._why = why
        self._dark_logs = dark_logs
        self._witness = witness
        self._tell_bookie = tell_bookie
        self._on_foreign = on_foreign
        self._session = 0  # The session under which its key was put.
        self._is_writable = False  # Whether its core is writable, as the list of bookies has it.
        self._noted = b""  # The value of its placement, as it was read last.
        self._is_following = False  # Its placement is watched.
        self._is_placed = False  # Listed with one.
        self._told: tuple[int, ...] = ()  # Tokens, as they were reported to metadata last.
        self._told_dark = self._told_free = 0
        self._written = ABSENT  # Revision of the cookie that was written last; no other one is under way.
        # A cookie that knows more than these directories: what may be lost is in limbo for it.
        self._suffered = b""
        self._dead = 0  # Revision of a registration whose process is not alive.
        self._trouble = ""  # Why it cannot register, as it was logged last.
        self._leave_ns: int | None = None  # It stops: how long it waits for the answer to its last report.
        self._is_last_word_said = self._is_leave_over = False

    @property
    def is_done(self) -> bool:
        """Whether clients find it: its key was put under the session that lives now."""
        return self._metadata.session != 0 and self._session == self._metadata.session

    @property
    def has_found_nobody(self) -> bool:
        """Whether the process that had its place did not answer when it was asked."""
        return self._dead != 0

    @property
    def deadline_ns(self) -> int | None:
        if self._leave_ns is not None:
            return None if self._is_leave_over else self._leave_ns
        return earliest(self._again_ns, self._tell_ns, self._rival.deadline_ns, self._alone_ns())

    def _alone_ns(self) -> int | None:
        """When the bookie stops waiting for metadata and serves alone; None: it does not wait, or never does so."""
        if not self._core.is_waiting or self._since_ns is None or not self.may_go_alone or self.is_foreign:
            return None
        return self._since_ns + (UNANSWERED_NS if self._metadata.is_up else ALONE_NS)

    def step(self, now_ns: int) -> None:
        if self._leave_ns is not None:
            self._go_on_leaving(now_ns)
            return
        self._rival.step(now_ns)
        self._since_ns = now_ns if self._since_ns is None else self._since_ns
        alone_ns = self._alone_ns()
        if alone_ns is not None and now_ns >= alone_ns:
            self._tell_bookie(ServeAlone(now_ns))
        if self._again_ns is not None and now_ns >= self._again_ns:
            self._again_ns = None
            self.register(now_ns)
        if self._storage.may_have_lost and self._core.is_serving:
            self._storage.end_loss()  # All that may be lost is in durable limbo.
            self.register(now_ns)
        if self.is_done and self._core.is_writable != self._is_writable:
            self._is_writable = self._core.is_writable  # Not asked again each turn; a refusal asks later.
            self.register(now_ns)
        if self._tell_ns is not None and now_ns >= self._tell_ns:
            self._tell_ns = now_ns + TELL_NS
            # Without a placement it can be neither drained nor raised: there may be room for one by now.
            if self.is_done and (self._has_news or not self._is_placed):
                self.register(now_ns)

    @property
    def _has_news(self) -> bool:
        if self._storage.durable_tokens() != self._told or self._dark_logs() != self._told_dark:
            return True
        # Others fill the device and make room on it: ensembles are placed by it, and operators look at it.
        return abs((self._free_now() or 0) - self._told_free) * FREE_SHARE > self._told_free

    def listens_at(self, now_ns: int, endpoints: Sequence[str]) -> None:
        """Register under these endpoints: clients find the bookie there from now on."""
        self._endpoints = list(endpoints)
        self.register(now_ns)

    def register_at(self, when_ns: int) -> None:
        self._again_ns = when_ns

    def register(self, now_ns: int) -> None:
        """A session is open: count this start, then keep the bookie in the list as long as the session lives."""
        if not self._metadata.session or self.is_foreign or not self._witness.is_judged:
            return  # It is called again when it is known which metadata this is (P10.5).
        if not self._core.is_serving and self._witness.is_doubted:
            self._again(now_ns)  # The listing of an older one may lack ledgers that must be in limbo.
            return
        if not self._core.is_serving:
            self._limbo.list_ledgers(now_ns, on_partial=self._again)
            return
        self._metadata.request(now_ns, Get(cookie_path(self._bookie_id)), self._on_cookie)

    def leave(self, now_ns: int) -> None:
        """The bookie stops, and everything is durable: report to metadata how much that is, then end the session. It
        waits for both answers, where metadata can be reached."""
        self._leave_ns = now_ns + LEAVE_NS
        self._go_on_leaving(now_ns)

    def has_left(self, now_ns: int) -> bool:
        """Nothing is waited for any more."""
        is_over = self._leave_ns is not None and now_ns >= self._leave_ns
        return is_over or not self._metadata.is_up or not self._metadata.session

    def _go_on_leaving(self, now_ns: int) -> None:
        self._is_leave_over = self._leave_ns is not None and now_ns >= self._leave_ns
        if self._metadata.is_closed or self._is_last_word_said:
            return
        if not self.is_done or (self._written != ABSENT and self._storage.durable_tokens() == self._told):
            self._metadata.close(now_ns)
        elif self._written != ABSENT:  # Else an earlier word is under way.
            self._is_last_word_said = True
            key, own = cookie_path(self._bookie_id), self._cookie()
            last = Txn([Compare(key, self._written)], [Put(key, encode_cookie(own))])
            self._metadata.request(now_ns, last, lambda now, _: self._metadata.close(now))

    def _again(self, now_ns: int) -> None:
        self._again_ns = now_ns + REGISTER_AGAIN_NS

    def _cookie(self) -> Cookie:
        storage = self._storage
        return Cookie(
            COOKIE_VERSION,
            storage.incarnation,
            storage.starts.count,
            storage.starts.id,
            storage.durable_tokens(),
            storage.place[-TEXT_CHARS_MAX:],
            self._endpoints if self._metadata.client.cluster_level >= LEVEL_OF_KEEPERS else [],
        )

    def _on_cookie(self, now_ns: int, result: Result) -> None:
        if not isinstance(result, Value):
            self._again(now_ns)
            return
        try:
            cookie = None if result.record is None else decode_cookie(result.record.value or b"")
        except StorageError as unread:
            self._wait(now_ns, str(unread))  # Not known: neither its own, nor another's.
            return
        if cookie is not None and cookie.incarnation != self._storage.incarnation:
            self._refuse(now_ns, cookie.incarnation)
            return
        self._metadata.request(
            now_ns,
            Get(registration_path(self._bookie_id)),
            partial(self._on_registration, record=result.record, cookie=cookie),
        )

    def _on_registration(
        self, now_ns: int, result: Result, *, record: Record | None, cookie: Cookie | None
    ) -> None:
        """Before the place of another start is taken, its process is asked whether it is there."""
        if not isinstance(result, Value):
            self._again(now_ns)
            return
        try:
            there = (
                None
                if result.record is None
                else decode_registration(result.record.value or b"", self._bookie_id)
            )
        except StorageError as unread:
            self._wait(now_ns, str(unread))
            return
        go_on = partial(self._compare, record=record, cookie=cookie, registered=result.record, there=there)
        revision = ABSENT if result.record is None else result.record.revision
        if there is None or there.start == self._storage.starts.id or revision == self._dead:
            go_on(now_ns)
        else:
            self._rival.ask(
                now_ns,
                there.endpoints,
                lambda now, is_alive: self._on_rival(now, is_alive, there, cookie, revision, go_on),
            )

    def _on_rival(
        self,
        now_ns: int,
        is_alive: bool,
        there: Registration,
        cookie: Cookie | None,
        revision: int,
        go_on: Callable[[int], None],
    ) -> None:
        if not is_alive:
            self._dead = revision
            go_on(now_ns)
            return
        where = f" ({cookie.place})" if cookie is not None and cookie.place else ""
        self._end(
            now_ns,
            f"bookie {self._bookie_id} runs already at {', '.join(there.endpoints)}{where}; this one, at "
            f"{', '.join(self._endpoints)} ({self._storage.place}), has a copy of its directories, or the same ones",
            "stop one of them; a copy of a bookie's directories is started only in their place, or under another id in "
            "empty ones",
        )

    def _compare(
        self,
        now_ns: int,
        *,
        record: Record | None,
        cookie: Cookie | None,
        registered: Record | None,
        there: Registration | None,
    ) -> None:
        """Check that these directories hold what the cluster knows of them; else limbo comes first (P7.4)."""
        known = b"" if record is None else record.value or b""
        lack = "" if cookie is None or known == self._suffered else self._lack_of(cookie)
        if cookie is None or not lack:
            go_on = partial(self._put, record=record, cookie=cookie, registered=registered, there=there)
            self._read_placement(now_ns, partial(self._on_placement, go_on=go_on))
            return
        try:
            self._storage.note_less(lack)
            self._storage.starts.pass_by(cookie.starts)
        except StorageError as refused:
            self._wait(now_ns, str(refused))
            return
        self._suffered = known
        self._tell_bookie(LossFound(now_ns))
        self.register(now_ns)

    def _lack_of(self, cookie: Cookie) -> str:
        """Why these directories are not what the cluster knows, in words; empty when they are."""
        starts, storage = self._storage.starts, self._storage
        if cookie.starts and not starts.has(cookie.starts, cookie.start):
            return (
                f"the cluster knows a start number {cookie.starts} of it at {cookie.place or 'another place'} that "
                f"is none of these directories', which are at {starts.count}: an older copy, or copied"
            )
        if cookie.start == starts.id:
            return ""  # Its own words.
        pairs = list(zip(cookie.tokens, storage.replayed, strict=False))
        if cookie.tokens and len(cookie.tokens) != len(storage.replayed):
            return f"it had {len(cookie.tokens)} journals, and has {len(storage.replayed)}"
        missing = [(number, told, have) for number, (told, have) in enumerate(pairs, 1) if told > have]
        if missing:
            number, told, have = missing[0]
            return f"record {told} of its journal {number} was durable, and the last one there is {have}"
        return ""

    def _read_placement(self, now_ns: int, go_on: Callable[[int, int | None, bytes], None]) -> None:
        """The revision of its placement and its value; made where it is absent, so that it can be raised in a full
        catalog, too. Where there is no room for it, the bookie is listed without, nothing compares it, and it is tried
        again with each word to metadata (P10.6)."""
        key = placement_path(self._bookie_id)

        def on_read(now_ns: int, result: Result) -> None:
            if not isinstance(result, Value):
                self._again(now_ns)
            elif result.record is not None:
                go_on(now_ns, result.record.revision, result.record.value or b"")
            else:
                self._metadata.request(now_ns, Txn([Compare(key, ABSENT)], [Put(key, b"")]), on_made)

        def on_made(now_ns: int, result: Result) -> None:
            if isinstance(result, TxnDone) and result.is_done:
                go_on(now_ns, result.revision, b"")
            elif isinstance(result, Refusal) and not is_unknown(result):
                go_on(now_ns, None, b"")
            else:
                self._again(now_ns)

        self._metadata.request(now_ns, Get(key), on_read)

    def _on_placement(
        self,
        now_ns: int,
        placement: int | None,
        value: bytes,
        *,
        go_on: Callable[[int, int | None, bytes, PlacementNote], None],
    ) -> None:
        """The decisions of operators about it (P11.3)."""
        note = _noted(value)
        for retired in note.retired:
            if retired.incarnation == self._storage.incarnation:
                self._end_retired(now_ns, retired)
                return
        self._noted = value
        self._bound_reads(now_ns, note.read_bounds)
        go_on(now_ns, placement, value, note)

    def _bound_reads(self, now_ns: int, bounds: ReadBounds) -> None:
        """Say it when they change: what reads slowly then has its reason in the log."""
        if bounds.by_class == self._core.read_budget.bounds:
            return
        self._tell_bookie(ReadBoundsSet(now_ns, bounds.by_class))
        told = ", ".join(
            f"{kind.name.lower().replace('_', '-')} {bound or 'as fast as it goes'}"
            for kind, bound in zip(ReadClass, bounds.by_class, strict=True)
            if kind != ReadClass.TAIL
        )
        logger.info(
            "bookie %s reads so many bytes per second, by %s: %s",
            self._bookie_id,
            bounds.by or "nobody",
            told,
        )

    def _end_retired(self, now_ns: int, retired: RetiredDirectories) -> None:
        when = utc_text(retired.retired_ms)
        why = f" ({retired.why})" if retired.why else ""
        what, rest = "given up", "its copies were made again elsewhere, as far as others had them"
        if retired.was_empty:
            what, rest = "decommissioned", "no ledger has copies here"
        self._end(
            now_ns,
            f"bookie {self._bookie_id} was {what} by {retired.by} at {when}{why}, with its directories "
            f"({self._storage.place}): {rest}",
            "remove them; in empty ones it may join again, under another id, or under this one if it is free",
        )

    def _follow_placement(self, now_ns: int) -> None:
        """Watch it, so that operators' decisions are known at once."""
        if self._is_following:
            return
        self._is_following = True
        key = placement_path(self._bookie_id)

        def on_changed(records: list[Record], revision: int, is_first: bool) -> None:
            for record in records:
                if record.key == key and (record.value or b"") != self._noted:
                    self._again_ns = 0  # In its next turn.

        def on_refused(reason: str) -> None:
            self._is_following = False  # Asked for again when it is registered next.

        self._metadata.watch(now_ns, key, on_changed, on_refused)

    def _put(
        self,
        now_ns: int,
        placement: int | None,
        noted: bytes,
        note: PlacementNote,
        *,
        record: Record | None,
        cookie: Cookie | None,
        registered: Record | None,
        there: Registration | None,
    ) -> None:
        """Register only over what was read. A late registration of the process before, which the network still carried
        when that process died, must not replace ours and then go with its session.

        Read-only, it raises its placement, unless it is listed as read-only since the last time: a client that chose it
        from an older list compares an older revision. Listed as writable it shows the revision that this compares.
        While it is drained, or read-only by an operator's word, it is not listed as writable; the operator's
        decision raised its placement (P11.3)."""
        key, place = cookie_path(self._bookie_id), registration_path(self._bookie_id)
        when = [
            Compare(key, ABSENT if record is None else record.revision),
            Compare(place, ABSENT if registered is None else registered.revision),
        ]
        then: list[Put] = []
        own = self._cookie()
        if cookie != own:
            then.append(Put(key, encode_cookie(own)))
        self._is_writable, self._is_placed = self._core.is_writable, placement is not None
        is_writable = self._is_writable and not note.takes_nothing_new
        was_raised = there is not None and not there.is_writable and there.placement is not None
        if placement is not None:
            when.append(Compare(placement_path(self._bookie_id), placement))
            if not is_writable and not was_raised and not note.takes_nothing_new:
                then.append(Put(placement_path(self._bookie_id), noted))
        dark_logs = self._told_dark = self._dark_logs()
        free_bytes = self._told_free = self._free_now() or 0
        registration = encode_registration(
            Registration(
                REGISTRATION_VERSION,
                self._bookie_id,
                self._storage.incarnation,
                self._endpoints,
                is_writable,
                free_bytes,
                self._location,
                self._storage.starts.id,
                self._why_not(note),
                placement,
                note.is_draining,
                dark_logs,
            )
        )
        session = self._metadata.session
        if registered is None or registered.session != session or registered.value != registration:
            then.append(Put(place, registration, is_ephemeral=True))
        self._written = ABSENT
        self._metadata.request(
            now_ns, Txn(when, list(then)), partial(self._on_put, session=session, own=own, record=record)
        )

    def _why_not(self, note: PlacementNote) -> str:
        """Why it takes nothing new, for people; empty while it does."""
        if not self._core.is_writable:
            return self._why()[:TEXT_CHARS_MAX]
        if note.is_draining:
            return f"drained by {note.by}{f' ({note.why})' if note.why else ''}"[:TEXT_CHARS_MAX]
        if note.read_only is not None:
            return f"read-only by {note.read_only.by} ({note.read_only.why})"[:TEXT_CHARS_MAX]
        return ""

    def _on_put(
        self, now_ns: int, result: Result, *, session: int, own: Cookie, record: Record | None
    ) -> None:
        if isinstance(result, Refusal) and not is_unknown(result):
            self._wait(now_ns, f"metadata refuses: {result.text}")
            return
        if not isinstance(result, TxnDone) or not result.is_done:
            # Also after an unknown outcome: the value there then is its own, or it is not (P2.2).
            self._again(now_ns)
            return
        is_same = record is not None and record.value == encode_cookie(own)
        self._written = record.revision if record is not None and is_same else result.revision
        self._session, self._told, self._suffered, self._trouble = session, own.tokens, b"", ""
        self._tell_ns = now_ns + TELL_NS
        self._follow_placement(now_ns)
        if not self._core.is_settled:
            self._tell_bookie(CountSettled(now_ns))
        self._limbo.ask_at(now_ns)

    def _wait(self, now_ns: int, trouble: str) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            logger.error("bookie %s cannot register: %s", self._bookie_id, trouble)
        self._again(now_ns)

    def _refuse(self, now_ns: int, known: bytes) -> None:
        """The cluster knows this id with other directories: serve no client, and log what is to be done (P7.2)."""
        self._end(
            now_ns,
            f"bookie {self._bookie_id} is known to the cluster with other directories (incarnation {known.hex()}, "
            f"these are {self._storage.incarnation.hex()}): wiped or swapped disks?",
            "give it its own directories back, or start it under a new bookie id; if its disks are gone, embedbk "
            f"bookie replace {self._bookie_id} lets empty ones take their place",
        )

    def _end(self, now_ns: int, why: str, hint: str) -> None:
        self.is_foreign = True
        self._on_foreign(now_ns, StorageError(why, hint=hint))


def _noted(value: bytes) -> PlacementNote:
    """A value that cannot be read was put there for a reason that this build does not know: nothing is placed here
    (P2.5)."""
    try:
        return decode_placement(value)
    except StorageError as unread:
        return PlacementNote(is_draining=True, why=str(unread)[:100], by="somebody")
