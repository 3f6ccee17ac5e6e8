"""From what this metadata descends: starts, lineages, and ids of which a lost future may have made or changed ledgers
(P10.5).

After metadata was brought back from a copy, what happened since the copy is a lost future: bookies may know ledgers of
it that this state does not have. Keeps the chain of starts, by which a bookie tells whether it met a later state, the
lineages, and two sets of ids: **spared** ones, of which a lost future may have made ledgers, and **stale** ones, whose
keys it may have changed (`stale_keys.py`). Leaves to the catalog when each of these changes, and to bookies and
adoptions what follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from embedbk.codec.id_ranges import is_within, without
from embedbk.codec.metadata_messages import GENERATION_BITS, Lineage, Refusal, Reign, Tell, Told
from embedbk.metadata.commands import BeginLineage

__all__ = ["LINEAGES_MAX", "RESTORED_IDS_GAP", "STARTS_KEPT_MAX", "Descent"]

RESTORED_IDS_GAP = 1 << 32  # Ids skipped by a new generation: more than the lost future can have handed out.
# Among so many of the newest ids, those without a key may belong to ledgers that the lost future made.
IN_CREATION_IDS = 4096
LINEAGES_MAX = 4096  # Lineages of one cluster: each is a recovery by an operator, or one that was given up.
# Links of the chain; for older ones the catalog cannot tell whether they are in it.
STARTS_KEPT_MAX = 1 << 16


class Descent:
    """The descent of one state of the metadata; a new one has nothing behind it."""

    __slots__ = ("lineages", "spared", "stale", "start_count", "starts")

    def __init__(self) -> None:
        self.start_count = 0  # Starts of members, over the life of the cluster.
        # Random bytes of the newest starts, each with how far metadata was when it began.
        self.starts: list[Reign] = []
        self.lineages: list[Lineage] = []  # From which it descends, the newest last; the first has no name.
        self.spared: list[tuple[int, int]] = []  # Ranges of ids of which a lost future may have made ledgers.
        self.stale: list[tuple[int, int]] = []  # Ids whose keys a lost future may have changed.

    @property
    def lineage(self) -> bytes:
        """The newest; empty: the cluster's first."""
        return self.lineages[-1].name if self.lineages else b""

    def note_start(self, nonce: bytes, revision: int, next_id: int) -> None:
        """A member started to lead when metadata was so far: one more link of the chain."""
        self.start_count += 1
        self.starts.append(Reign(nonce, revision, next_id))
        del self.starts[:-STARTS_KEPT_MAX]

    def tell(self, asked: Tell, cluster_token: bytes, revision: int, next_id: int) -> Told:
        """How far this metadata is, what came of the start that is asked for, and from which lineages it descends."""
        newest = self.starts[-1].nonce if self.starts else b""
        reign: Reign | None = None
        position = asked.count - (self.start_count - len(self.starts)) - 1
        if 0 <= position < len(self.starts):
            after = self.starts[position + 1] if position + 1 < len(self.starts) else None
            reached, ids_end = (after.revision, after.ids_end) if after else (revision, next_id)
            reign = Reign(self.starts[position].nonce, reached, ids_end)
        return Told(
            cluster_token,
            self.start_count,
            newest,
            revision,
            next_id,
            list(self.spared),
            reign,
            self.lineage,
            not asked.lineage or any(each.name == asked.lineage for each in self.lineages),
            list(self.stale),
        )

    def begun_by(self, command: BeginLineage, revision: int) -> list[Lineage] | Refusal:
        """The lineages that a command adds, the one that it begins last: its generation is above all that is given up.
        What this state descends from already need not be given up."""
        known = {b"": None, **{each.name: None for each in self.lineages}}
        given_up = [each for each in command.gives_up if each.name not in known]
        if len(self.lineages) + len(given_up) >= LINEAGES_MAX:
            return Refusal(
                "UNAVAILABLE",
                f"{len(self.lineages)} lineages of this cluster are known and {len(given_up)} more were given up, "
                f"allowed are {LINEAGES_MAX} with the one to begin",
            )
        parents = [each.name for each in (*self.lineages[-1:], *given_up)]
        heard = (each.generation for each in command.gives_up)
        generation = max(revision >> GENERATION_BITS, *heard, 0) + 1
        return [*given_up, Lineage(command.name, generation, tuple(parents))]

    def spare_lost_ids(self, next_id: int, gap: int, is_known: Callable[[int], bool]) -> None:
        """Ledgers that the lost future made are known to bookies only: that they are absent here proves nothing, for
        ever. Theirs are the ids that are skipped, and of the newest ones those that were given out and have no key.

        is_known: whether the catalog has a key of this ledger, or of its end.
        """
        unmade = [
            ledger_id
            for ledger_id in range(max(1, next_id - IN_CREATION_IDS), next_id)
            if not is_known(ledger_id)
        ]
        for first, end in [*((each, each + 1) for each in unmade), (next_id, next_id + gap)]:
            if self.spared and self.spared[-1][1] == first:
                first = self.spared.pop()[0]
            if not is_within(self.spared, first):
                self.spared.append((first, end))

    def stop_sparing(self, ranges: Sequence[tuple[int, int]]) -> None:
        """An operator's word: nobody wants what lost futures made of these ids, or changed."""
        self.spared, self.stale = without(self.spared, ranges), without(self.stale, ranges)

    def note_adopted(self, ledger_id: int) -> None:
        """The ledger has a key now. A stale key stays stale."""
        self.spared = without(self.spared, [(ledger_id, ledger_id + 1)])
