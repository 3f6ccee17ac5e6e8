"""An operator says which of the copies of an entry is right (P11.5).

Copies that differ and are each whole by themselves are a conflict: nobody here knows which one is right (P11.4), so
nothing is ever chosen here. Where copies are all alike, and not what their writer published, an operator may say that
they stand for it, and none is replaced. Decides what an operator is shown, and what must hold when the word is given:
the ledger is CLOSED and its key is as it was, the copies are those that were shown, and no other word was given since.
The word is put into the metadata before the first copy is replaced; giving it again carries out what is left of it.

    copies of the entry ─▶ shown, confirmed ─▶ one transaction: who, what, why ─▶ each replaced, by a comparison
                                                                               ─▶ the word is noted as done
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from embedbk.client.ledger_ids import check_ledger_id, no_such_ledger
from embedbk.client.password import Password
from embedbk.client.runtime import Runtime
from embedbk.codec.copy_decision import (
    CopyDecision,
    DecidedCopy,
    decided_path,
    decode_copy_decisions,
    encode_copy_decisions,
)
from embedbk.codec.entry_digest import entry_digest
from embedbk.codec.frame import Frame, frame_of, split
from embedbk.codec.ledger_metadata import (
    LedgerMetadata,
    decode_ledger_metadata,
    encode_ledger_metadata,
    ledger_key_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.codec.repair_mark import WHY_CHARS_MAX
from embedbk.core.copy_read import CopyPart, CopyRead
from embedbk.core.quorum import write_set
from embedbk.errors import MetadataConflict, NotEnoughBookies, UsageError
from embedbk.ids import Member, check_why
from embedbk.metadata.levels import LEVEL_OF_CHOICES
from embedbk.repair.copy_replacing import CopyReplacing, ReplacedCopy
from embedbk.repair.holdings import Checked, CheckOptions, HoldingCheck

__all__ = ["ChosenCopy", "EntryCopies", "EntryCopy", "choose_copy", "entry_copies"]

_FALSE_TAG = "its tag is not that of its bytes"


class EntryCopy(NamedTuple):
    """What one bookie of the entry's write set holds. entry: the whole entry, header and CRC included; None: it
    returned none, and `why` has the reason. `why` also says if the entry's tag is false."""

    member: Member
    entry: bytes | None
    why: str = ""

    @property
    def digest(self) -> int | None:
        return None if self.entry is None else entry_digest(self.entry)


class EntryCopies(NamedTuple):
    """The copies of one entry of a CLOSED ledger. decisions: earlier words about it, the newest last. unlike: the first
    and last entry of a fragment of which all bookies hold the same, this entry included, and something else than the
    ledger's writer published (P11.4); None: it is not so, or not known to be."""

    metadata: LedgerMetadata
    revision: int  # The revision of the ledger's key.
    entry_id: int
    copies: tuple[EntryCopy, ...]
    decisions: tuple[CopyDecision, ...]
    decided_revision: int  # The revision of the key of the decisions; ABSENT: there is none.
    unlike: tuple[int, int] | None = None

    @property
    def is_conflict(self) -> bool:
        return len({each.digest for each in self.copies if each.entry is not None}) > 1


class ChosenCopy(NamedTuple):
    """decision: as it stands in the metadata. left: bookies whose copies were not replaced, and why."""

    decision: CopyDecision
    left: Mapping[str, str]


async def entry_copies(runtime: Runtime, ledger_id: int, entry_id: int, password: Password) -> EntryCopies:
    """What each bookie of the entry's write set holds of it. Changes nothing. password: with a wrong one the
    ledger's HMAC tags are not checked, and the copies are shown all the same.

    Raises:
        NoSuchLedger. UsageError: it is not CLOSED, or has no such entry.
    """
    check_ledger_id(ledger_id)
    what = f"looking at the copies of entry {entry_id} of ledger {ledger_id}"
    if isinstance(entry_id, bool) or not isinstance(entry_id, int):
        raise UsageError(f"entry_id={entry_id!r:.80}: a whole number from 0 on is allowed")
    value, revision = await runtime.get(ledger_key_path(ledger_id), what)
    if value is None:
        raise no_such_ledger(ledger_id)
    metadata = decode_ledger_metadata(value, ledger_id)
    if metadata.last_entry is None:
        raise UsageError(
            f"ledger {ledger_id} is not closed: its copies are its writer's, or a recovery's; nothing was changed",
            hint=f"embedbk ledger recover {ledger_id}, if nobody writes it any more",
        )
    if metadata.freed is not None:
        raise UsageError(
            f"the copies of ledger {ledger_id} are files of the archive in {metadata.freed.path!r}: no bookie has to "
            "have one"
        )
    if not 0 <= entry_id <= metadata.last_entry:
        raise UsageError(f"ledger {ledger_id} has the entries 0 to {metadata.last_entry}, not {entry_id}")
    decided, decided_revision = await runtime.get(decided_path(ledger_id, entry_id), what)
    decisions = decode_copy_decisions(decided) if decided is not None else ()
    members = metadata.fragment_of(entry_id).members
    there = {info.member for info in runtime.bookies}
    copies: list[EntryCopy] = []
    for seat in write_set(entry_id, metadata.quorum):
        member = members[seat]
        copies.append(
            await _copy(runtime, metadata, member, entry_id, password)
            if member in there
            else EntryCopy(member, None, "it is away")
        )
    revision_now = ABSENT if decided is None else decided_revision
    shown = EntryCopies(metadata, revision, entry_id, tuple(copies), decisions, revision_now)
    return shown._replace(unlike=await _unlike(runtime, shown, there, what))


async def _unlike(
    runtime: Runtime, shown: EntryCopies, there: set[Member], what: str
) -> tuple[int, int] | None:
    """As `EntryCopies.unlike`. A bookie that is away, or does not tell, may have the right copy."""
    metadata, entry_id = shown.metadata, shown.entry_id
    published = next(
        (each for each in metadata.sums if each.first_entry <= entry_id <= each.last_entry), None
    )
    is_alike = len({each.digest for each in shown.copies}) == 1 and shown.copies[0].entry is not None
    if published is None or not is_alike or not there.issuperset(metadata.fragment_of(entry_id).members):
        return None
    ledger_id = metadata.ledger_id
    core = HoldingCheck({ledger_id: metadata}, frozenset(there), CheckOptions(is_brief=False))
    found: Checked = await runtime.run(core, what)
    if any(ledger_id in each for each in (found.short, found.untold, found.conflicts)):
        return None
    names_it = any(
        each.first <= entry_id <= each.last and entry_id % each.modulus == each.residue
        for each in found.unlike.get(ledger_id, ())
    )
    return (published.first_entry, published.last_entry) if names_it else None


async def _copy(
    runtime: Runtime, metadata: LedgerMetadata, member: Member, entry_id: int, password: Password
) -> EntryCopy:
    """Ask one bookie for its copy. Readers take none whose tag is false, and its bookie's scrubber does not find it; it
    is shown here, so that it can be replaced."""
    unchecked = metadata.with_changes(digest=0)
    if password.verifier != metadata.password_verifier:
        return await _read_copy(runtime, unchecked, member, entry_id, password)
    found = await _read_copy(runtime, metadata, member, entry_id, password)
    if found.entry is None and metadata.digest:
        found = await _read_copy(runtime, unchecked, member, entry_id, password)
        return found._replace(why=_FALSE_TAG) if found.entry is not None else found
    return found


async def _read_copy(
    runtime: Runtime, metadata: LedgerMetadata, member: Member, entry_id: int, password: Password
) -> EntryCopy:
    core = CopyRead(metadata, member, entry_id, entry_id, password.mac_key)
    try:
        part: CopyPart = await runtime.run(core, f"reading from {member.bookie_id}")
    except NotEnoughBookies as silent:
        return EntryCopy(member, None, str(silent))
    for frame in part.frames:
        for found, entry in split(frame):
            if found == entry_id:
                return EntryCopy(member, bytes(entry))
    return EntryCopy(
        member, None, "it denies to have it" if part.absent else "it cannot read it, or cannot tell"
    )


async def choose_copy(
    runtime: Runtime, shown: EntryCopies, bookie_id: str, *, why: str = "", by: str = ""
) -> ChosenCopy:
    """Say that the copy which this bookie holds, as it was shown, is right: those of others that differ are replaced by
    it. Nothing else is touched. If that is cut short, the decision stands, and a second call continues. Where all are
    alike and not what was published (`EntryCopies.unlike`), they stand for it from then on, and none is replaced.

    Raises:
        UsageError: the bookie showed no copy, no copy differs from it or from what was published, no reason was given,
            or the cluster's level is below 16; nothing was changed.
        MetadataConflict: the ledger's key, or its decisions, have changed since; nothing was changed.
    """
    if not isinstance(shown, EntryCopies):
        raise UsageError(
            f"shown={shown!r:.80}: what copies_of_entry showed is allowed; nothing was changed",
        )
    ledger_id, entry_id = shown.metadata.ledger_id, shown.entry_id
    what = f"choosing a copy of entry {entry_id} of ledger {ledger_id}"
    if not runtime.has_level(LEVEL_OF_CHOICES):
        raise UsageError(
            f"copies are chosen at level {LEVEL_OF_CHOICES}, and the cluster's level is lower; nothing was changed",
            hint="embedbk quorum raise, when all nodes know it",
        )
    check_why(why, is_needed=True)
    chosen = next((each for each in shown.copies if each.member.bookie_id == bookie_id), None)
    if chosen is None or chosen.entry is None:
        held = ", ".join(each.member.bookie_id for each in shown.copies if each.entry is not None)
        raise UsageError(
            f"bookie {bookie_id} shows no copy of entry {entry_id}; these do: {held or 'none'}; nothing was changed"
        )
    if chosen.why:
        raise UsageError(f"the copy of bookie {bookie_id} cannot be right: {chosen.why}; nothing was changed")
    others = [each for each in shown.copies if each.entry is not None and each.digest != chosen.digest]
    newest = shown.decisions[-1] if shown.decisions else None
    if not others and newest is not None and not newest.is_done and newest.chosen.digest == chosen.digest:
        done = await _note_done(runtime, decided_path(ledger_id, entry_id), newest, what)
        return ChosenCopy(done, {})
    if not others and shown.unlike is None:
        raise UsageError(f"no copy of entry {entry_id} differs from that of {bookie_id}; nothing was changed")
    frame = frame_of(memoryview(chosen.entry), ledger_id)
    decision = CopyDecision(
        _decided(chosen),
        tuple(_decided(each) for each in others or shown.copies),
        (by or runtime.owner())[:WHY_CHARS_MAX],
        why[:WHY_CHARS_MAX],
        runtime.wall_ms(),
        is_done=not others,
    )
    key, ledger_key = decided_path(ledger_id, entry_id), ledger_key_path(ledger_id)
    when = [Compare(ledger_key, shown.revision), Compare(key, shown.decided_revision)]
    value = encode_copy_decisions((*shown.decisions, decision))
    then = [Put(key, value), *_without_sums(shown, ledger_key)]
    if not await runtime.transact(when, then, what):
        raise MetadataConflict(
            f"{what}: the ledger, or what was decided of the entry, is another by now; nothing was changed",
            hint="look at the copies again",
        )
    if not others:
        return ChosenCopy(decision, {})
    left = await _carry_out(runtime, decision, frame, what)
    if not left:
        decision = await _note_done(runtime, key, decision, what)
    return ChosenCopy(decision, left)


def _without_sums(shown: EntryCopies, ledger_key: str) -> list[Put]:
    """From now on the operator's word stands for the entry, and no longer what its writer published of the fragment
    (P11.4): else audits would go on naming what was chosen, and repair would copy none of it."""
    metadata, entry_id = shown.metadata, shown.entry_id
    sums = tuple(each for each in metadata.sums if not each.first_entry <= entry_id <= each.last_entry)
    if sums == metadata.sums:
        return []
    return [Put(ledger_key, encode_ledger_metadata(metadata.with_changes(sums=sums)))]


def _decided(copy: EntryCopy) -> DecidedCopy:
    assert copy.digest is not None
    return DecidedCopy(copy.member.bookie_id, copy.member.incarnation, copy.digest)


async def _carry_out(runtime: Runtime, decision: CopyDecision, frame: Frame, what: str) -> dict[str, str]:
    left: dict[str, str] = {}
    for each in decision.replaced:
        core = CopyReplacing(Member(each.bookie_id, each.incarnation), frame, each.digest)
        replaced: ReplacedCopy = await runtime.run(core, what)
        if not replaced.is_done:
            left[each.bookie_id] = replaced.why
    return left


async def _note_done(runtime: Runtime, key: str, decision: CopyDecision, what: str) -> CopyDecision:
    """Note it as done, if it is still the newest decision; the copies are replaced in either case."""
    done = replace(decision, is_done=True)
    value, revision = await runtime.get(key, what)
    decisions = decode_copy_decisions(value) if value is not None else ()
    if decisions and decisions[-1] == decision:
        put = Put(key, encode_copy_decisions((*decisions[:-1], done)))
        await runtime.transact([Compare(key, revision)], [put], what)
    return done
