"""What worlds expect of a scrub beside an archive: seeds seldom come to that, so it is shown here (I55, P8.14)."""

from __future__ import annotations

import pytest

from embedbk.codec.log_archives import ArchiveRecord, ArchiveState, archive_path, encode_archive_record
from embedbk.codec.metadata_messages import Put
from embedbk.testing import Cluster
from embedbk.testing.differing_copies import scrub_finds
from embedbk.testing.violation import Violation
from tests.scrub.planted import Planted

MANIFEST = b"m" * 32


@pytest.mark.parametrize("state", [ArchiveState.COPIED, ArchiveState.VERIFIED])
def test_a_scrub_of_a_world_sees_what_its_archive_holds(state: ArchiveState) -> None:
    """A copy that differs is another than that of the archive, where another job has looked at the files. Where all
    copies are others, the archive alone says so, which no world may pass over."""
    with Cluster(seed=3, bookies=4) as cluster:
        planted, world = Planted(cluster), cluster.world
        ledger_id = planted.closed(20)
        one, two, three = planted.members(ledger_id)
        log_id = "some log"
        held = planted.store(one).entries[ledger_id]
        world.archived[log_id, ledger_id, MANIFEST] = b"".join(held[each] for each in range(20))
        epoch = 2 if state == ArchiveState.VERIFIED else 0
        record = ArchiveRecord(1, ledger_id, state, 1, 20, 19, MANIFEST, epoch, 0)
        planted.transact(Put(archive_path(log_id, ledger_id), encode_archive_record(record)))
        scrub_finds(world, set(), "before")
        planted.replace(one, ledger_id, 7)
        scrub_finds(world, {(ledger_id, 7)}, "behind one other copy")
        planted.replace(two, ledger_id, 7)
        planted.replace(three, ledger_id, 7)
        if state == ArchiveState.COPIED:
            scrub_finds(world, set(), "behind three other copies")
        else:
            with pytest.raises(Violation, match="archive-differs"):
                scrub_finds(world, set(), "behind three other copies")
