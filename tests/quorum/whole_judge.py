"""What must hold in a world of whole metadata members, by the one history that they all apply."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from embedbk.codec.metadata_messages import (
    Allocated,
    Operation,
    Put,
    Record,
    Refusal,
    Result,
    Txn,
    TxnDone,
    Value,
)
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_messages import RepairsEnded, RepairsMarked, RepairsTaken
from embedbk.metadata.catalog import Catalog
from embedbk.metadata.claims import REPAIRERS_PREFIX, REPAIRING_PREFIX, repairing_path
from embedbk.metadata.commands import decode_command
from embedbk.metadata.raft_vocabulary import Boot, Entry

if TYPE_CHECKING:
    from tests.quorum.whole_world import Node, Peer, WholeWorld


# Values there may be equal: they say nothing of who put them.
OF_REPAIRS = (REPAIR_PREFIX, REPAIRING_PREFIX, REPAIRERS_PREFIX)


class WholeJudge:
    def __init__(self, catalog: Catalog) -> None:
        """catalog: as it is before the first entry."""
        self.entries: list[Entry] = []  # As they were first applied, by index from 1.
        self.catalog = catalog  # Of these.
        self._seen: dict[Boot, int] = {}
        self._of_key: dict[str, tuple[list[int], list[Record]]] = {}
        self._values: dict[bytes, int] = {}  # Every value that was put, with its revision.
        self._open: dict[
            tuple[str, int], tuple[Operation, int]
        ] = {}  # With what was acknowledged when it was asked.
        self._acknowledged = 0  # The highest revision that somebody was told.
        self._ids: set[int] = set()
        self.held_by: dict[tuple[int, int], str] = {}  # (ledger id, epoch) -> who was told so.
        self.completed_count = 0
        self.refused: dict[str, int] = {}

    # --- Members -------------------------------------------------------------------------------------------

    def look(self, node: Node) -> None:
        assert node.core is not None
        raft, applied = node.log.raft, node.core.applied_index
        seen = self._seen.get(node.boot, raft.log.first_index - 1)
        if seen < raft.log.first_index - 1:
            seen = applied  # Put to a snapshot.
        for entry in raft.log.between(seen + 1, applied) if seen < applied else ():
            self._applied(entry)
        self._seen[node.boot] = applied

    def _applied(self, entry: Entry) -> None:
        place = entry.index - 1
        assert place <= len(self.entries), "I72: applied with a gap"
        if place < len(self.entries):
            assert self.entries[place] == entry, f"I65: {entry} where others applied {self.entries[place]}"
            return
        self.entries.append(entry)
        if not isinstance(entry.body, bytes):
            return
        before = self.catalog.revision
        self.catalog.apply(decode_command(entry.body), entry.index, entry.term)
        for revision in range(before + 1, self.catalog.revision + 1):
            for record in self.catalog.history.at(revision):
                revisions, records = self._of_key.setdefault(record.key, ([], []))
                revisions.append(revision)
                records.append(record)
                if record.value is not None and not record.key.startswith(OF_REPAIRS):
                    assert record.value not in self._values, f"I74: {record} was put before"
                    self._values[record.value] = revision

    def leases(self, world: WholeWorld) -> None:
        """No session ends while its client still counts on it."""
        for peer in world.peers:
            number = peer.client.session
            if number and number not in self.catalog.sessions:
                session = peer.client._session
                assert session is not None
                assert session.lease_until_ns <= world.now_ns, (
                    f"session {number} of {peer.name} ended too early"
                )

    # --- Clients -------------------------------------------------------------------------------------------

    def asked(self, peer: Peer, token: int, operation: Operation) -> None:
        self._open[peer.name, token] = operation, self._acknowledged

    def completed(self, peer: Peer, token: int, result: Result) -> None:
        """I73, I75: it is as the history says at its revision, and that is no older than what was acknowledged before
        it was asked."""
        operation, floor = self._open.pop((peer.name, token))
        if isinstance(result, Refusal):
            self.refused[result.code] = self.refused.get(result.code, 0) + 1
            return
        self.completed_count += 1
        if isinstance(result, Allocated):
            ids = set(range(result.first_id, result.first_id + result.count))
            assert not ids & self._ids, "ids were given twice"
            self._ids |= ids
            return
        assert isinstance(result, TxnDone | Value | RepairsMarked | RepairsTaken | RepairsEnded)
        assert floor <= result.revision <= self.catalog.revision, (
            "I75: it shows less than was acknowledged before"
        )
        self._acknowledged = max(self._acknowledged, result.revision)
        if isinstance(result, Value):
            assert result.record == self._at(operation.key, result.revision), "I73: not what stands there"
        elif isinstance(result, RepairsTaken):
            for ledger_id, _, _ in result.marks:
                hold = self._at(repairing_path(ledger_id), result.revision)
                assert hold is not None, "I73: it was told that it holds what nobody held then"
                assert (hold.revision, hold.created) == (result.epoch, result.asked)
                assert self.held_by.setdefault((ledger_id, result.epoch), peer.name) == peer.name, (
                    f"P11.1: {ledger_id} was held by two under {result.epoch}"
                )
        elif isinstance(result, TxnDone) and result.is_done:
            assert isinstance(operation, Txn)
            for change in operation.then:
                assert isinstance(change, Put)
                assert self._values.get(change.value) == result.revision, (
                    "an acknowledged change is not there"
                )

    def _at(self, key: str, revision: int) -> Record | None:
        revisions, records = self._of_key.get(key, ([], []))
        place = bisect_right(revisions, revision)
        record = records[place - 1] if place else None
        return record if record is not None and record.value is not None else None

    def end(self, world: WholeWorld) -> None:
        digest = self.catalog.digest()
        for node in world.nodes.values():
            assert node.core is not None
            assert node.core.applied_index == len(self.entries), f"L6: {node.name} stays behind"
            assert node.core.catalog.digest() == digest, f"I65: the state of {node.name} is another"
        for peer in world.peers:
            there, after = {}, ""
            while (page := self.catalog.page(peer.prefix, after)).records:
                there |= {record.key: record for record in page.records}
                after = page.records[-1].key
            assert peer.view == there, "I82: a watch does not show what is there"
