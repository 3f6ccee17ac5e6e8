"""What the metadata members of a world have agreed on: observers receive each committed change once, from the member
that applies it first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, ledger_of_key
from embedbk.codec.registration import BOOKIES_PREFIX
from embedbk.metadata.catalog import Catalog

if TYPE_CHECKING:
    from embedbk.testing.world import World

__all__ = ["Agreed"]


class Agreed:
    """The committed history: each change is reported once, in order of revisions."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._values: dict[str, bytes] = {}
        self._seen = 0

    @property
    def revision(self) -> int:
        """The newest that any member has applied."""
        return self._seen

    def begin_again(self, revision: int) -> None:
        """From an older copy: what it holds was reported, and what follows is another history."""
        self._seen = revision

    def look(self, catalog: Catalog) -> None:
        """Report the changes that no member applied before. Revisions that a generation skipped were no changes."""
        world, values = self._world, self._values
        seen = max(self._seen, catalog.history.floor)
        self._seen = max(seen, catalog.revision)
        for revision, records in catalog.history.after(seen, catalog.revision):
            for record in records:
                old = values.get(record.key)
                if record.value is None:
                    values.pop(record.key, None)
                else:
                    values[record.key] = record.value
                world.tell("on_metadata", revision, record.key, old, record.value)
                if record.key.startswith(BOOKIES_PREFIX):
                    world.twins.on_registration(record.key, record.value)

    def under(self, prefix: str) -> dict[str, bytes]:
        """Committed keys under a prefix, as an all-knowing watcher sees them; of ledgers those that are some."""
        found = {key: value for key, value in sorted(self._values.items()) if key.startswith(prefix)}
        if prefix != LEDGERS_PREFIX:
            return found
        return {key: value for key, value in found.items() if ledger_of_key(key) is not None}
