"""The life of a ledger, by its metadata: I1, I2, I3, I6, I15, I17, I18, I28, I34 to I37, I56.

Each function checks one fact about one change; `Invariants` decides when it is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from embedbk.codec.entry_digest import DIGEST_MASK, entry_digest
from embedbk.codec.frame import split
from embedbk.codec.ledger_metadata import Fragment, LedgerMetadata, LedgerState, decode_ledger_metadata
from embedbk.codec.lost_entries import is_lost
from embedbk.config import FRAME_BYTES_MAX
from embedbk.core.limbo import is_named
from embedbk.core.naming import newly_seated
from embedbk.errors import StorageError
from embedbk.ids import NO_ENTRY
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.ports.entry_store import EntriesFound
from embedbk.testing.ghost import BookieGhost, Ghost, LedgerGhost
from embedbk.testing.violation import Violation

__all__ = [
    "acked_is_inside",
    "change_is_allowed",
    "change_starts_at_the_lac",
    "closed_is_replicated",
    "closed_once",
    "copies_are_the_same",
    "deletion_is_final",
    "drop_is_safe",
    "fragments_are_sane",
    "length_is_the_sum",
    "listed_is_there",
    "named_while_it_may_be",
    "nothing_was_collected",
    "published_is_what_was_made",
    "recovery_publishes_once",
    "repair_is_safe",
    "types_are_right",
]


def types_are_right(ledger_id: int, new: bytes) -> LedgerMetadata:
    """I1: types. Every node can read what a node publishes: numbers where numbers are due and in their ranges, an end
    exactly when the ledger is closed. The decoder checks all of it; returns its value."""
    try:
        return decode_ledger_metadata(new, ledger_id)
    except StorageError as unread:
        raise Violation("I1", str(unread)) from unread


def closed_once(ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I2: one closer. The first close of the ledger is final: state, last entry and length never change."""
    first = ledger.closed
    if first is None:
        return
    if (new.state, new.last_entry, new.length) != (first.state, first.last_entry, first.length):
        raise Violation(
            "I2",
            f"ledger {ledger.ledger_id} was closed at {first.last_entry}, length {first.length}; now state {new.state} "
            f"at {new.last_entry}, length {new.length}",
        )


def acked_is_inside(ledger: LedgerGhost, end: LedgerMetadata) -> None:
    """I3: no truncation. No acknowledged entry is beyond the end of its closed ledger (P5.3)."""
    assert end.last_entry is not None
    if end.lost and end.lost[0].is_end_named:
        return  # An operator named the end, as nobody else could (P11.5).
    if ledger.acked > end.last_entry:
        raise Violation(
            "I3", f"ledger {ledger.ledger_id} ends at {end.last_entry}; entry {ledger.acked} was acknowledged"
        )


def closed_is_replicated(ghost: Ghost, ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I6: closed is replicated. Every entry up to the end has Qa copies, less those that the test destroyed."""
    assert new.last_entry is not None
    if new.lost:
        return  # Closed by an operator's word: copies are repair's matter (P11.5).
    for entry_id in range(new.last_entry + 1):
        good, destroyed = ghost.copies(ledger, new, entry_id)
        if good < new.ack_quorum - destroyed:
            raise Violation(
                "I6",
                f"ledger {ledger.ledger_id} closed at {new.last_entry}: entry {entry_id} has {good} stable copies of "
                f"{new.ack_quorum}, {destroyed} were destroyed",
            )


def length_is_the_sum(ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I37: length. A closed ledger's length is the sum of its payloads, counted only up to the last entry."""
    assert new.last_entry is not None
    if new.last_entry >= len(ledger.length):
        return  # Not all of it was written under our eyes.
    wanted = ledger.length[new.last_entry] if new.last_entry >= 0 else 0
    if new.length != wanted:
        raise Violation(
            "I37", f"ledger {ledger.ledger_id} closed with length {new.length}, its payloads have {wanted}"
        )


def named_while_it_may_be(ledger: LedgerGhost, new: LedgerMetadata, closed: Mapping[str, int]) -> None:
    """P10.6: placed nowhere any more. After the change in which a bookie was drained, or listed as read-only,
    and its placement raised (closed: bookie id -> the revision) no ledger newly names it, before it is listed as
    writable again. A ledger that is brought back names it again."""
    old = ledger.metadata
    if old is None and ledger.deleted is not None:
        return
    fresh = newly_seated(old.fragments if old is not None else (), new.fragments)
    if old is not None:  # By repair, also in fragments that no writer writes to.
        known = {member for each in old.fragments for member in each.members}
        fresh |= {member for each in new.fragments for member in each.members} - known
    for member in fresh:
        if member.bookie_id in closed:
            raise Violation(
                "P10.6",
                f"ledger {ledger.ledger_id} newly names {member.bookie_id}, which is read-only since revision "
                f"{closed[member.bookie_id]}",
            )


def fragments_are_sane(new: LedgerMetadata) -> None:
    """I17: fragment shape. E distinct bookies in each, E >= Qw >= Qa >= 1, starts rise strictly from 0."""
    if not new.ensemble_size >= new.write_quorum >= new.ack_quorum >= 1:
        raise Violation(
            "I17",
            f"ledger {new.ledger_id}: E {new.ensemble_size}, Qw {new.write_quorum}, Qa {new.ack_quorum}",
        )
    starts = [fragment.first_entry for fragment in new.fragments]
    if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
        raise Violation("I17", f"ledger {new.ledger_id}: fragments start at {starts}")
    wanted = new.ensemble_size if new.freed is None else 0
    for fragment in new.fragments:
        if len({bookie_id for bookie_id, _ in fragment.ensemble}) != wanted:
            raise Violation("I17", f"ledger {new.ledger_id}: no {wanted} distinct bookies in {fragment}")


def change_is_allowed(ledger: LedgerGhost, revision: int, new: LedgerMetadata) -> None:
    """I18: life cycle. OPEN, IN_RECOVERY, CLOSED, never back; revisions rise; nothing but ensembles, and the numbers of
    copies (P2.6), changes after. One that was deleted comes back CLOSED as it was, with its tombstone, or in its files
    (P8.16), or not at all (CL31)."""
    is_by_files = ledger.deleted is not None and _is_brought_back_by_files(ledger, new)
    if ledger.deleted is not None and not is_by_files and not _is_brought_back(ledger, revision, new):
        raise Violation("I18", f"ledger {ledger.ledger_id} is back after it was deleted, not as it was kept")
    if not ledger.versions:
        return
    before, old = ledger.versions[-1]
    if revision <= before:
        raise Violation("I18", f"ledger {ledger.ledger_id}: revision {revision} after {before}")
    if new.state < old.state:
        raise Violation("I18", f"ledger {ledger.ledger_id} went from state {old.state} back to {new.state}")
    fixed = ["ledger_id", "password_verifier", "created_ms", "custom", "durability", "digest"]
    if not old.is_closed or old.freed is not None:
        fixed.append("quorum")
    for name in fixed:
        if getattr(new, name) != getattr(old, name):
            raise Violation("I18", f"ledger {ledger.ledger_id}: {name} changed")
    has_other_starts = [f.first_entry for f in new.fragments] != [f.first_entry for f in old.fragments]
    if old.is_closed and has_other_starts and not is_by_files:
        raise Violation("I18", f"ledger {ledger.ledger_id}: the fragments of a closed ledger changed")


def _is_brought_back(ledger: LedgerGhost, revision: int, new: LedgerMetadata) -> bool:
    """Whether it came back as it stood, in the transaction that took its tombstone away (CL32)."""
    return ledger.tombstone_gone == revision and new == ledger.closed_last


def _is_brought_back_by_files(ledger: LedgerGhost, new: LedgerMetadata) -> bool:
    """Whether it came back freed, as it stood but for its seats, and no tombstone is left that could be put back."""
    last, kept = ledger.closed_last, ("last_entry", "length", "lost")
    is_same = last is not None and all(getattr(new, name) == getattr(last, name) for name in kept)
    return is_same and new.is_closed and new.freed is not None and not ledger.has_tombstone


def change_starts_at_the_lac(ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I15: ensemble change start. While OPEN a new fragment starts behind everything acknowledged, an equal start
    replaces the last fragment, and no earlier first entry moves."""
    old = ledger.metadata
    if old is None or old.is_closed:
        return
    starts, before = [f.first_entry for f in new.fragments], [f.first_entry for f in old.fragments]
    if starts[: len(before)] != before:
        raise Violation("I15", f"ledger {ledger.ledger_id}: first entries {before} became {starts}")
    if old.state == new.state == LedgerState.OPEN:
        if len(starts) > len(before) + 1:
            raise Violation(
                "I15", f"ledger {ledger.ledger_id}: one change made fragments at {starts[len(before) :]}"
            )
        is_new = len(starts) > len(before)
        is_replaced = new.fragments[len(before) - 1] != old.fragments[-1]
        if is_new and is_replaced:
            raise Violation(
                "I15", f"ledger {ledger.ledger_id}: a fragment was added and the one before it changed"
            )
        if is_new and starts[-1] > ledger.acked + 1:
            # Entries between would belong to the ensemble that failed them.
            raise Violation(
                "I15",
                f"ledger {ledger.ledger_id}: a fragment at {starts[-1]}, acknowledged is up to {ledger.acked}",
            )


def recovery_publishes_once(ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I28: recovery publishes once. Its fragments come with the closing change, all together; marking changes nothing
    but the state."""
    old = ledger.metadata
    if old is None or new.state != LedgerState.IN_RECOVERY:
        return
    if new.fragments[-1] != old.fragments[-1] or len(new.fragments) != len(old.fragments):
        raise Violation("I28", f"ledger {ledger.ledger_id}: IN_RECOVERY, and the last fragment changed")


def deletion_is_final(ledger: LedgerGhost, *, is_forced: bool = False) -> None:
    """I34: deleted is dead. Only a closed ledger is deleted, so that no writer can be acknowledged after it; or one of
    which its maker has never sent anything, and never will (P8.3)."""
    was_used = bool(ledger.length) or ledger.top != NO_ENTRY
    if not is_forced and ledger.versions and ledger.closed is None and was_used:
        raise Violation(
            "I34", f"ledger {ledger.ledger_id} was deleted in state {ledger.versions[-1][1].state}"
        )


def listed_is_there(
    ghost: Ghost, lists: Mapping[str, frozenset[int]], looked_at: Iterable[int], gone: int | None = None
) -> None:
    """I90: a ledger that its log's list names is there. gone: one whose key is being removed just now (P8.3)."""
    for ledger_id in looked_at:
        is_there = ledger_id != gone and ghost.ledger(ledger_id).deleted is None
        naming = [key for key, named in lists.items() if ledger_id in named]
        if naming and not is_there:
            raise Violation("I90", f"{naming[0]} names ledger {ledger_id}, which is gone")


def drop_is_safe(ledger: LedgerGhost, bookie: BookieGhost) -> None:
    """I35: collection is safe. Data goes only when the key is absent and no tombstone keeps it, or the ledger is
    CLOSED, names others, and no repair was under way when the bookie asked: a repair that begins while the answer is on
    its way has copied nothing yet, or the copy forbids the drop (I36 finds one that is gone). A deletion that comes
    while it is on its way does not matter: a ledger brought back names the same bookies."""
    metadata, bookie_id = ledger.metadata, bookie.member.bookie_id
    if not any(bits & bookie.bit for bits in ledger.stable.values()) and (
        metadata is None or metadata.is_closed
    ):
        return  # It gives nothing up: after an unclean start it only promises never to take any (P7.4).
    is_of_others = metadata is not None and metadata.is_closed and not is_named(metadata, bookie_id)
    if ledger.has_tombstone and not is_of_others:
        raise Violation("I35", f"{bookie_id} dropped ledger {ledger.ledger_id}, which can be brought back")
    if metadata is None or ledger.deleted is not None:
        return
    if ledger.is_marked and ledger.unmarked_step <= bookie.collected.get(
        ledger.ledger_id, ledger.unmarked_step
    ):
        raise Violation("I35", f"{bookie_id} dropped ledger {ledger.ledger_id}, which is being repaired")
    names = {name for fragment in metadata.fragments for name, _ in fragment.ensemble}
    if not metadata.is_closed or bookie_id in names:
        raise Violation(
            "I35",
            f"{bookie_id} dropped ledger {ledger.ledger_id}, state {metadata.state}, which names {sorted(names)}",
        )


def nothing_was_collected(bookie: BookieGhost, ledger: LedgerGhost, storage: DurableBookie) -> None:
    """I35: collection is safe. Entries that were on the bookie's disk, and were never dropped, are not absent at the
    end; unreadable ones are not absent either."""
    bit = bookie.bit
    held = [entry_id for entry_id, bits in ledger.stable.items() if bits & bit]
    if not held:
        return
    absent: list[tuple[int, int]] = []
    for found in _read_all(storage, ledger.ledger_id, min(held), max(held)):
        absent += found.absent
    for entry_id in held:
        if any(begin <= entry_id <= end for begin, end in absent):
            raise Violation(
                "I35",
                f"entry {entry_id} of ledger {ledger.ledger_id} was durable on {bookie.member}, which nobody dropped "
                "there, and is gone",
            )


def _read_all(storage: DurableBookie, ledger_id: int, first: int, last: int) -> Iterator[EntriesFound]:
    """The entries of a range that a bookie returns, as far as it can be read from the front on."""
    while first <= last:
        found = storage.read(ledger_id, first, last, FRAME_BYTES_MAX)
        yield found
        if found.frame is None:
            return
        first = found.frame.last_entry + 1


def copies_are_the_same(ledger: LedgerGhost, storages: Mapping[str, DurableBookie]) -> None:
    """I56: same bytes. At the end, after all flushes, compactions and restarts, every copy that a bookie returns of an
    entry of a closed ledger is what its writer made; where we did not see it made, all copies are equal."""
    end = ledger.closed_last
    if end is None or end.last_entry is None:
        return
    known = dict(enumerate(ledger.sent))
    for name, storage in sorted(storages.items()):
        for found in _read_all(storage, ledger.ledger_id, 0, end.last_entry):
            for entry_id, raw in split(found.frame) if found.frame is not None else ():
                if known.setdefault(entry_id, bytes(raw)) != raw:
                    raise Violation(
                        "I56",
                        f"{name} holds other bytes of ledger {ledger.ledger_id} entry {entry_id} than others",
                    )


def published_is_what_was_made(ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I56: what the writer publishes of a fragment is the sum of what was acknowledged there, by residue, each entry
    once (P11.4)."""
    known = ledger.metadata.sums if ledger.metadata is not None else ()
    for each in new.sums:
        if each in known:
            continue
        if each.last_entry > ledger.acked:
            raise Violation(
                "I56",
                f"ledger {ledger.ledger_id}: sums up to entry {each.last_entry}, acknowledged is up to {ledger.acked}",
            )
        wanted = [0] * len(each.digests)
        for entry_id in range(each.first_entry, each.last_entry + 1):
            place = entry_id % len(wanted)
            wanted[place] = wanted[place] + entry_digest(ledger.sent[entry_id]) & DIGEST_MASK
        if tuple(wanted) != each.digests:
            raise Violation(
                "I56", f"ledger {ledger.ledger_id}: {each} was published, and {wanted} was acknowledged"
            )


def lost_is_lost(
    ghost: Ghost, ledger: LedgerGhost, new: LedgerMetadata, retired: Mapping[str, Collection[bytes]]
) -> None:
    """P11.5: given up for ever. A word stays, and no bookie that was not declared gone has a good copy of what it gives
    up, in a seat for it."""
    words = ledger.metadata.lost if ledger.metadata is not None else ()
    if new.lost[: len(words)] != words:
        raise Violation("P11.5", f"ledger {ledger.ledger_id}: what was given up is there again")
    given_up = new.lost[len(words) :]
    if not given_up:
        return
    if ledger.metadata is not None and ledger.metadata.state == LedgerState.OPEN:
        raise Violation("P11.5", f"ledger {ledger.ledger_id} was open, and entries of it are given up")
    end = -1 if new.last_entry is None else new.last_entry
    for entry_id in range(end + 1):
        if not is_lost(given_up, entry_id):
            continue
        bits = ledger.stable.get(entry_id, 0) & ~ledger.damaged.get(entry_id, 0) & ~ghost.lost
        for member in new.fragment_of(entry_id).members:
            if bits & ghost.bit(member) and member.incarnation not in retired.get(member.bookie_id, ()):
                raise Violation(
                    "P11.5",
                    f"entry {entry_id} of ledger {ledger.ledger_id} is given up, and {member} holds it",
                )


def repair_is_safe(ghost: Ghost, ledger: LedgerGhost, new: LedgerMetadata) -> None:
    """I36: repair is safe. A fragment without a writer may change seats only when the new holder has, on disk, every
    entry that the seat owes; or answered OK to it under this repair's mark, where I40 saw it on disk, and a fault has
    destroyed it since: the publisher cannot know that. Entries that it dropped itself, or lost before, are not
    there."""
    old = ledger.metadata
    if old is None or new.freed is not None:
        return
    immutable = len(old.fragments) if old.is_closed else len(old.fragments) - 1
    for number, (before, after) in enumerate(zip(old.fragments, new.fragments, strict=False)):
        if number >= immutable or (before.ensemble == after.ensemble and old.quorum == new.quorum):
            continue
        end = _end_of(old, number)
        for entry_id in range(before.first_entry, end + 1):
            if is_lost(new.lost, entry_id):
                continue  # Nobody owes it (P11.5).
            _seats_hold(ghost, ledger, new, before, after, entry_id)


def _end_of(metadata: LedgerMetadata, number: int) -> int:
    if number + 1 < len(metadata.fragments):
        return metadata.fragments[number + 1].first_entry - 1
    assert metadata.last_entry is not None
    return metadata.last_entry


def _seats_hold(
    ghost: Ghost, ledger: LedgerGhost, new: LedgerMetadata, before: Fragment, after: Fragment, entry_id: int
) -> None:
    assert ledger.metadata is not None
    wanted = ghost.write_mask(new, entry_id)
    destroyed = ledger.copied.get(entry_id, 0) & ledger.damaged.get(entry_id, 0)
    there = ledger.stable.get(entry_id, 0) | destroyed
    # A freed ledger had no bookie in a seat (P8.14), and in another shape each seat owes other entries (P2.6).
    is_same = len(before.members) == len(after.members) and ledger.metadata.quorum == new.quorum
    held = before.members if is_same else (None,) * len(after.members)
    came = [m for m, old in zip(after.members, held, strict=True) if m != old]
    for member in came:
        bookie = ghost.member(member)
        if bookie.bit & wanted and not there & bookie.bit:
            raise Violation(
                "I36",
                f"ledger {ledger.ledger_id}: {member} was named for entry {entry_id} and does not hold it",
            )
