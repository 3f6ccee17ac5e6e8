"""Bringing a freed ledger back to bookies (P8.14), as a coroutine for jobs and for the simulator.

Decides the order: a mark that names who gets copies, then the copies, of entries that were checked as they were read,
then the transaction that makes them the ledger's seats; and that all is begun anew where something came in between.
What a step means, `core.restoring_in_place` decides.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from embedbk.client.archived import ClosableSource
from embedbk.client.ledger_ids import no_such_ledger
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.client.waiting import Moved
from embedbk.codec.digest import check_tags
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.ledger_metadata import LedgerMetadata, decode_ledger_metadata, ledger_key_path
from embedbk.codec.log_archives import archive_lock_name
from embedbk.codec.metadata_messages import Compare, Delete
from embedbk.codec.repair_mark import repair_mark_path
from embedbk.config import ANYWHERE, FRAME_BYTES_MAX, Placement
from embedbk.core.copying_in_place import CopyingInPlace, PieceCopied
from embedbk.core.naming import Naming
from embedbk.core.restoring_in_place import (
    RENEW_NS,
    ArchiveHold,
    InPlacePlan,
    NamingInPlace,
    PublishingInPlace,
    RenewingInPlace,
)
from embedbk.errors import EmbedbkError, MetadataConflict, NotEnoughBookies, PeerError, StorageError
from embedbk.ids import Member
from embedbk.metadata.claims import lock_path

__all__ = ["restore_ledger_in_place"]

_ROUNDS_MAX = 5  # Bookies that fail, marks that go, placements that are raised, one after the other.
_PIECE_BYTES = 4 << 20  # Read, and not durable at each of its bookies yet.


async def restore_ledger_in_place(
    runtime: Runtime,
    log_id: str,
    ledger_id: int,
    epoch: int,
    password: Password,
    bytes_per_s: float | None = None,
) -> LedgerMetadata:
    """The ledger's metadata, which names bookies that hold all of it; by the holder of the archive's lock under this
    epoch. One that bookies have already stays as it is. bytes_per_s: so much is read and copied, on the average.

    Raises:
        NoSuchLedger: it is gone. WrongPassword. LockLost.
        ArchiveUnreadable: a file is away, or is not what was recorded. StorageError: the entries are not all of it.
        NotEnoughBookies: too few take copies. MetadataConflict: something came in between, again and again.
        MetadataUnavailable, not definite: the last change may still come to pass.
    """
    what = f"bringing ledger {ledger_id} back"
    value, _ = await runtime.get(ledger_key_path(ledger_id), what)
    if value is None:
        raise no_such_ledger(ledger_id)
    ledger = decode_ledger_metadata(value, ledger_id)
    if ledger.freed is None:
        return ledger
    password.check(ledger)
    hold = ArchiveHold(log_id, lock_path(archive_lock_name(log_id)), epoch)
    return await _Job(runtime, ledger, hold, password, what, bytes_per_s).run()


class _Job:
    def __init__(
        self,
        runtime: Runtime,
        ledger: LedgerMetadata,
        hold: ArchiveHold,
        password: Password,
        what: str,
        bytes_per_s: float | None,
    ) -> None:
        self.runtime = runtime
        self.ledger = ledger
        self.hold = hold
        self.password = password
        self.what = what
        self.bytes_per_s = bytes_per_s
        self.naming = Naming()
        self.failed: dict[Member, None] = {}  # In an earlier round; not chosen again.
        self.plan: InPlacePlan | None = None  # As the mark says it by now.
        self.renew_at = 0

    async def run(self) -> LedgerMetadata:
        why: EmbedbkError | None = None
        for _ in range(_ROUNDS_MAX):
            plan = await self._named()
            if plan is None:
                return await self._as_it_stands()
            try:
                plan = await self._copied(plan)
                published: LedgerMetadata = await self.runtime.run(
                    PublishingInPlace(plan, self.hold, self.naming), self.what
                )
                return published
            except _TargetFailed as failed:
                self.failed[failed.member] = None
                why = NotEnoughBookies(f"{self.what}: {failed}")
                await self._take_mark_away()
            except MetadataConflict as changed:
                why = changed
                await self._take_mark_away()
            except EmbedbkError:
                await self._take_mark_away()
                raise
        assert why is not None
        raise why

    async def _named(self) -> InPlacePlan | None:
        freed, placement = self.ledger.freed, self.runtime.placement
        assert freed is not None
        bookies = self.runtime.bookies
        self.naming.listed(bookies)
        if placement == ANYWHERE and any(info.location for info in bookies):
            placement = Placement("rack")  # As repair does: its creator may have asked for it.
        core = NamingInPlace(
            self.ledger.ledger_id,
            self.hold,
            freed,
            self.naming,
            bookies,
            frozenset(self.failed),
            placement,
            self.runtime.new_chance(),
            self.runtime.wall_ms(),
        )
        self.plan = await self.runtime.run(core, self.what)
        return self.plan

    async def _as_it_stands(self) -> LedgerMetadata:
        value, _ = await self.runtime.get(ledger_key_path(self.ledger.ledger_id), self.what)
        if value is None:
            raise no_such_ledger(self.ledger.ledger_id)
        return decode_ledger_metadata(value, self.ledger.ledger_id)

    async def _copied(self, plan: InPlacePlan) -> InPlacePlan:
        """The plan, with the mark as it stands when every copy is durable."""
        self._renewed()
        begun, copied_bytes = self.runtime.now_ns(), 0
        async with aclosing(self._pieces()) as pieces:
            async for frames in pieces:
                nonce = self.runtime.chance.getrandbits(63)
                core = CopyingInPlace(plan.ledger.quorum, plan.ensemble, frames, nonce)
                copied: PieceCopied = await self.runtime.run_to_its_end(core, self.what)
                if copied.failed is not None:
                    raise _TargetFailed(copied.failed, copied.why)
                await self._renew_if_due()
                copied_bytes += sum(len(frame.body) for frame in frames)
                await self._paced(begun, copied_bytes)
        assert self.plan is not None
        return self.plan

    async def _paced(self, begun: int, copied_bytes: int) -> None:
        """Wait until so many bytes are allowed; the mark stays postponed meanwhile."""
        runtime = self.runtime
        due = begun if self.bytes_per_s is None else begun + int(copied_bytes * 1e9 / self.bytes_per_s)
        while (left := due - runtime.now_ns()) > 0 and not runtime.is_ended:
            await Moved(runtime.signal, lambda: runtime.is_ended, min(left, RENEW_NS) / 1e9)
            await self._renew_if_due()

    def _renewed(self) -> None:
        self.renew_at = self.runtime.now_ns() + RENEW_NS

    async def _renew_if_due(self) -> None:
        """The mark stays postponed, however long files and bookies take."""
        if self.runtime.now_ns() >= self.renew_at:
            assert self.plan is not None
            revision = await self.runtime.run(RenewingInPlace(self.plan, self.hold), self.what)
            self.plan = self.plan._replace(mark_revision=revision)
            self._renewed()

    async def _next(self, source: ClosableSource) -> Frame | None:
        while not source.has_news():
            await Moved(source.signal, source.has_news, RENEW_NS / 1e9)
            await self._renew_if_due()
        return source.take()

    async def _pieces(self) -> AsyncGenerator[list[Frame], None]:
        """All entries, in order, each checked; what is not the whole ledger is an error, behind what could be read."""
        ledger, following, length = self.ledger, 0, 0
        assert ledger.last_entry is not None
        source = self.runtime.read_archived(ledger, 0, ledger.last_entry)
        held: list[Frame] = []
        held_bytes = 0
        try:
            while (read := await self._next(source)) is not None:
                if (read.ledger_id, read.first_entry) != (ledger.ledger_id, following) or read.has_gaps:
                    raise StorageError(
                        f"{self.what}: its files give entry {read.first_entry}, want {following}"
                    )
                try:
                    check_tags(read, ledger.digest, self.password.mac_key)
                except PeerError as wrong:
                    raise StorageError(
                        f"{self.what}: its files are not what its writer wrote: {wrong}"
                    ) from wrong
                following, length = read.last_entry + 1, read.length
                for frame in _parts(read):
                    if held and held_bytes + len(frame.body) > _PIECE_BYTES:
                        yield held
                        held, held_bytes = [], 0
                    held.append(frame)
                    held_bytes += len(frame.body)
        finally:
            source.close()
        if (following - 1, length) != (ledger.last_entry, ledger.length):
            raise StorageError(
                f"{self.what}: its files end at entry {following - 1} with {length} bytes, and the ledger at "
                f"{ledger.last_entry} with {ledger.length}"
            )
        yield held

    async def _take_mark_away(self) -> None:
        """So that bookies drop what was copied, soon. Where that fails a worker of repairs does it, somewhat later."""
        if self.plan is not None:
            key = repair_mark_path(self.ledger.ledger_id)
            with contextlib.suppress(EmbedbkError):
                await self.runtime.transact([Compare(key, self.plan.mark_revision)], [Delete(key)], self.what)


class _TargetFailed(EmbedbkError):
    def __init__(self, member: Member, why: str) -> None:
        super().__init__(f"bookie {member.bookie_id} did not take a copy: {why}")
        self.member = member


def _parts(frame: Frame) -> Iterator[Frame]:
    """The frame in pieces that a message has room for."""
    if len(frame.body) <= FRAME_BYTES_MAX:
        yield frame
        return
    begin = end = 0
    for _, entry in split(frame):
        if end + len(entry) - begin > FRAME_BYTES_MAX:
            yield frame_of(frame.body[begin:end], frame.ledger_id)
            begin = end
        end += len(entry)
    yield frame_of(frame.body[begin:end], frame.ledger_id)
