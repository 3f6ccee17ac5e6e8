"""Copies on bookies beside the files of their archive: `archive-differs`, and what proves nothing (SCRUB.md)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedbk.archive.freeing import free
from embedbk.archive.jobs import archive, set_place
from embedbk.archive.place import create_place
from embedbk.archive.verifying import verify_archive
from embedbk.client.waiting import run_blocking
from embedbk.codec.log_archives import archive_path, decode_archive_record, encode_archive_record
from embedbk.codec.metadata_messages import Put
from embedbk.repair.copy_check import CopyBlock, CopyTask
from embedbk.scrub import ScrubOptions, ScrubResult, scrub
from embedbk.scrub.options import EXIT_CLEAN, EXIT_FINDINGS, EXIT_INCOMPLETE
from embedbk.scrub.scrubbing import check_here, check_options, scrub_cluster
from embedbk.testing import Cluster
from tests.scrub.planted import Planted

LOG = "orders"
ENTRIES = 40
SLICE_BYTES = 100  # A file has some ten entries.


class Archived(Planted):
    """A log of one closed ledger, of which files stand in an archive."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        super().__init__(cluster)
        self.place = place
        with self.client.log(LOG).writer() as writer:
            writer.append_many([b"entry %04d" % number for number in range(ENTRIES)])
            self.ledger_id = writer.ledger_id
        create_place(place)
        set_place(self.client, LOG, place)
        archive(self.client, LOG, slice_bytes=SLICE_BYTES)
        cluster.run_for(1)

    def verified(self) -> Archived:
        report = verify_archive(self.client, LOG)
        assert (report.verified, report.findings) == ([self.ledger_id], [])
        return self

    def change(self, entry_id: int, *names: str) -> None:
        """Another whole entry on these bookies; on all of them if none is named."""
        for name in names or self.members(self.ledger_id):
            self.replace(name, self.ledger_id, entry_id)

    def files(self) -> list[Path]:
        return sorted(self.place.rglob("*.parquet"), key=lambda path: int(path.name.split("-")[0]))

    def file_of(self, entry_id: int) -> Path:
        """The file that has this entry."""
        return [each for each in self.files() if int(each.name.split("-")[0]) <= entry_id][-1]

    def reads(self, options: ScrubOptions) -> tuple[ScrubResult, int]:
        """(what a scrub finds, rounds of reads)."""
        runtime, rounds = self.client._runtime, 0

        async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
            nonlocal rounds
            rounds += 1
            return await check_here(runtime, check_options(options))(tasks)

        return run_blocking(scrub_cluster(runtime, options, check), "scrub"), rounds


@pytest.fixture
def archived(tmp_path: Path) -> Iterator[Archived]:
    with Cluster(seed=3, bookies=4) as cluster:
        yield Archived(cluster, tmp_path / "archive")


def found(result: ScrubResult) -> list[tuple[str, int | None, int | None, int, str]]:
    return sorted((each.kind, each.first, each.last, each.entries, each.bookie) for each in result.findings)


def test_copies_that_are_what_the_archive_holds_are_read_once(archived: Archived) -> None:
    """The cheapest true way: the sums that are there already, and one manifest."""
    archived.verified()
    assert len(archived.files()) > 2
    result, rounds = archived.reads(ScrubOptions())
    assert (result.findings, result.untold, result.exit_code) == ([], {}, EXIT_CLEAN)
    assert (result.copies, rounds) == (3 * ENTRIES, 1)
    for path in archived.files():
        path.unlink()  # A file is read only where a sum is another: that it is gone is another command's finding.
    assert scrub(archived.client).exit_code == EXIT_CLEAN


def test_copies_that_agree_and_are_others_than_the_archives_are_found(archived: Archived) -> None:
    """`archive-differs`: no bookie differs from another, and each is named with the entries that its archive has
    otherwise."""
    archived.verified()
    for entry_id in (7, 8, 33):
        archived.change(entry_id)
    result = scrub(archived.client)
    names = archived.members(archived.ledger_id)
    expected = [("archive-differs", 7, 8, 2, name) for name in names]
    expected += [("archive-differs", 33, 33, 1, name) for name in names]
    assert found(result) == sorted(expected)
    assert (result.exit_code, result.is_complete) == (EXIT_FINDINGS, True)
    assert archived.file_of(33).name in str(result.findings[-1])


def test_the_archive_says_which_of_two_copies_is_another(archived: Archived) -> None:
    archived.verified()
    name = archived.members(archived.ledger_id)[1]
    archived.change(12, name)
    assert found(scrub(archived.client)) == [
        ("archive-differs", 12, 12, 1, name),
        ("replicas-differ", 12, 12, 1, ""),
    ]
    assert [each[0] for each in found(scrub(archived.client, ScrubOptions(level="crc")))] == []


def test_a_copy_that_is_missing_is_no_other_one(archived: Archived) -> None:
    """The sums cannot be made of that bookie's copies; the entries of the others are those of the file."""
    archived.verified()
    one, two, three = archived.members(archived.ledger_id)
    archived.lose(one, archived.ledger_id, 12)
    kinds = {each.kind for each in scrub(archived.client).findings}
    assert kinds == {"missing", "under-Qw"}
    archived.lose(two, archived.ledger_id, 12)
    archived.lose(three, archived.ledger_id, 12)
    result = scrub(archived.client)
    assert {each.kind for each in result.findings} == {"missing", "under-Qa"}
    assert "entry 12" in result.untold[archived.ledger_id, ""]


@pytest.mark.parametrize("how", ["away", "other", "manifest"])
def test_an_archive_that_cannot_be_read_is_incomplete_and_no_finding(archived: Archived, how: str) -> None:
    """ "Cannot tell is never no": not mounted, another one in its place, a manifest that is not the one that counts."""
    archived.verified()
    archived.change(12)
    if how == "away":
        archived.place.rename(archived.place.with_name("unmounted"))
    elif how == "other":
        archived.place.rename(archived.place.with_name("unmounted"))
        create_place(archived.place)
    else:
        (manifest,) = archived.place.rglob("_manifest-*")
        manifest.write_bytes(manifest.read_bytes() + b"\n")
    result = scrub(archived.client)
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)
    assert set(result.untold) == {(archived.ledger_id, "")}


def test_a_file_that_cannot_be_read_leaves_the_sum_of_its_manifest(archived: Archived) -> None:
    """What the manifest that counts says of a file is known without it: its entries are named, and no bookie."""
    archived.verified()
    archived.change(12)
    path = archived.file_of(12)
    first, last = (int(each) for each in path.name.split("-")[:2])
    path.write_bytes(path.read_bytes()[:-1])
    result = scrub(archived.client)
    assert found(result) == [("archive-differs", first, last, last - first + 1, "")]
    assert result.is_complete
    archived.lose(archived.members(archived.ledger_id)[0], archived.ledger_id, 13)
    archived.change(14, archived.members(archived.ledger_id)[1])
    result = scrub(archived.client)
    assert "archive-differs" not in {each.kind for each in result.findings}
    assert path.name in result.untold[archived.ledger_id, ""]


def test_copies_that_are_missing_are_no_others_than_those_of_a_file_that_is_away(archived: Archived) -> None:
    """The sum of what is left is another than the manifest's, and says nothing."""
    archived.verified()
    for name in archived.members(archived.ledger_id):
        archived.lose(name, archived.ledger_id, 12)
    archived.file_of(12).unlink()
    result = scrub(archived.client)
    assert {each.kind for each in result.findings} == {"missing", "under-Qa"}
    assert not result.is_complete


def test_without_pyarrow_the_sums_are_compared(archived: Archived, monkeypatch: pytest.MonkeyPatch) -> None:
    archived.verified()
    monkeypatch.setitem(sys.modules, "embedbk.archive.reading", None)
    assert scrub(archived.client).exit_code == EXIT_CLEAN
    archived.change(12)
    assert [each.kind for each in scrub(archived.client).findings] == ["archive-differs"]


def test_only_what_is_verified_and_not_freed_is_compared(archived: Archived) -> None:
    """Files that nobody but their writer has looked at prove nothing; behind `free` no bookie owes a copy."""
    archived.change(12)
    assert scrub(archived.client).exit_code == EXIT_CLEAN
    archived.verified()
    assert scrub(archived.client).exit_code == EXIT_FINDINGS
    archived.client.log(LOG).writer().close()  # The last ledger of a log is not freed.
    report = free(archived.client, LOG, keep_lag_s=0.0)
    assert report.freed == [archived.ledger_id]
    assert scrub(archived.client).exit_code == EXIT_CLEAN


def test_an_archive_that_ends_elsewhere_than_its_ledger_is_found(archived: Archived) -> None:
    archived.verified()
    metadata = archived.metadata(archived.ledger_id)
    archived.put(metadata.with_changes(last_entry=ENTRIES - 2))
    kinds = [each.kind for each in scrub(archived.client).findings]
    assert "archive-differs" in kinds


def test_a_record_that_cannot_be_read_is_incomplete(archived: Archived) -> None:
    archived.verified()
    key = archive_path(archived.client.log(LOG).log_id(), archived.ledger_id)
    record = decode_archive_record(archived.cluster.world.committed(key)[key], archived.ledger_id)
    archived.transact(Put(key, encode_archive_record(record) + b"more"))
    result = scrub(archived.client)
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)


def test_what_changes_between_two_looks_is_no_finding(archived: Archived) -> None:
    """Copied anew meanwhile: what was found beside the old files is judged again by the record as it is then."""
    archived.verified()
    archived.change(12)
    runtime, rounds = archived.client._runtime, 0

    async def check(tasks: list[CopyTask]) -> list[CopyBlock]:
        nonlocal rounds
        rounds += 1
        if rounds == 3:  # Behind the comparison by the sums of each file, in front of the one by entries.
            key = archive_path(archived.client.log(LOG).log_id(), archived.ledger_id)
            await runtime.transact([], [Put(key, b"")], "changing")
        return await check_here(runtime, check_options(ScrubOptions()))(tasks)

    result = run_blocking(scrub_cluster(runtime, ScrubOptions(), check), "scrub")
    assert (result.findings, result.exit_code) == ([], EXIT_INCOMPLETE)


def test_a_ledger_is_done_when_its_archive_was_compared(archived: Archived, tmp_path: Path) -> None:
    """A state notes no ledger whose archive could not be read, and one that was compared is not read again."""
    archived.verified()
    other = archived.closed(10)
    name = archived.members(other)[0]
    options = ScrubOptions(state=tmp_path / "state")
    aside = archived.place.with_name("unmounted")
    os.rename(archived.place, aside)
    assert scrub(archived.client, options).exit_code == EXIT_INCOMPLETE
    os.rename(aside, archived.place)
    archived.flip(name, other, 0)
    result = scrub(archived.client, options)
    assert result.skipped == 1  # The other one was sound at that time.
    assert result.copies == 3 * ENTRIES


def test_the_least_rate_is_a_bound() -> None:
    """SCRUB.md: "bounds what each bookie sends". Below a byte a second it said that there was no bound."""
    rates = {mbps: check_options(ScrubOptions(mbps_max=mbps)).bytes_per_s for mbps in (0.0, 1e-9, 2.5)}
    assert rates == {0.0: 0, 1e-9: 1, 2.5: 2_500_000}
