"""Snapshots of the metadata as files: what counts, what stays, what goes."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_SNAPSHOTS = "embedbk/storage/snapshots.py"
_WRITER = "embedbk/storage/snapshot_writer.py"
_FORMAT = "embedbk/storage/snapshot_format.py"
_STORE = "embedbk/storage/metadata_store.py"
_LOG = "embedbk/storage/metadata_log.py"

_FILES = "tests/storage/test_snapshots.py::test_"
_POWER = "tests/crash/test_metadata_power.py::test_no_acknowledged_change_is_lost_when_the_power_goes"

MUTANTS = (
    Mutant(
        "snapshot-counts-when-it-is-written",
        "I80",
        "the log is trimmed when a snapshot's name is queued, not when it is durable",
        ((_SNAPSHOTS, " and self._named[0] <= durable_token:", ":"),),
        (_FILES + "a_snapshot_counts_when_the_log_names_it_durably_and_nothing_goes_before",),
    ),
    Mutant(
        "snapshot-named-twice-counts-twice",
        "I81",
        "two records that name one file are two snapshots",
        ((_SNAPSHOTS, "for each in named if latest[each.name] is each]", "for each in named]"),),
        (_FILES + "a_snapshot_that_is_named_twice_is_one",),
    ),
    Mutant(
        "snapshot-given-up-keeps-its-name",
        "I80",
        "a snapshot that is given up as it gets its name stays for as long as the member runs",
        ((_SNAPSHOTS, "            if writer.written is not None:\n", "            if False:\n"),),
        (_FILES + "a_snapshot_that_is_given_up_as_it_gets_its_name_leaves_no_file",),
    ),
    Mutant(
        "log-trimmed-up-to-the-newest-snapshot",
        "I80 I81",
        "with the newest snapshot the only way to the state of the log is gone",
        (
            (
                _SNAPSHOTS,
                "        older = self.kept[-KEPT_SNAPSHOTS]\n",
                "        older = self.kept[-1]\n",
            ),
        ),
        (_FILES + "a_damaged_newest_snapshot_costs_nothing_and_is_set_aside",),
    ),
    Mutant(
        "snapshot-without-a-log-behind-it-counts",
        "I80",
        "one whose file a crash has put back is kept for when the next one is damaged, and nothing follows it",
        ((_LOG, "for each in files.kept if each.index >= self._begins]", "for each in files.kept]"),),
        (_FILES + "one_behind_which_the_log_was_trimmed_counts_no_more",),
    ),
    Mutant(
        "snapshot-renamed-before-its-sync",
        "I80 D1",
        "a snapshot is named that a loss of power leaves with holes",
        (
            (
                _WRITER,
                "        self._file.write(header.encode(), 0)\n        self._file.sync()\n",
                "        self._file.write(header.encode(), 0)\n",
            ),
        ),
        (_POWER,),
    ),
    Mutant(
        "snapshots-name-not-synced",
        "D14",
        "a snapshot is named whose name a loss of power takes back",
        (
            (
                "embedbk/storage/snapshot_files.py",
                "        _checked(code, self.place(name))\n        self._sync_directory(self.path)\n",
                "        _checked(code, self.place(name))\n",
            ),
        ),
        (_POWER,),
    ),
    Mutant(
        "snapshot-of-what-is-not-durable",
        "I80",
        "a whole file stands for commands that a crash takes back",
        (
            (
                _SNAPSHOTS,
                "        if self._is_whole and self._durable_index >= self._index:\n",
                "        if self._is_whole:\n",
            ),
        ),
        (_FILES + "a_file_of_commands_that_are_not_durable_is_not_finished",),
    ),
    Mutant(
        "snapshot-of-another-digest-is-taken",
        "I81",
        "any whole snapshot under a right name is the state of the log",
        ((_SNAPSHOTS, "        if found != named:\n", "        if found.index != named.index:\n"),),
        (_FILES + "a_foreign_file_under_a_right_name_is_not_taken",),
    ),
    Mutant(
        "snapshot-of-another-cluster-is-taken",
        "P10.3",
        "a snapshot of another cluster is the state of the log",
        (
            (
                _SNAPSHOTS,
                "        if header.cluster_token != cluster_token:\n",
                '        if header.cluster_token == b"":\n',
            ),
        ),
        (_FILES + "a_foreign_file_under_a_right_name_is_not_taken",),
    ),
    Mutant(
        "snapshots-chunks-are-believed",
        "I81",
        "a flipped bit in a chunk is loaded",
        (
            (
                _FORMAT,
                "        if len(piece) < size or crc32c(piece, crc32c(head[4:])) != crc:\n",
                "        if len(piece) < size:\n",
            ),
            (_FORMAT, "    if digest.digest() != header.digest:\n", "    if not header.digest:\n"),
            (_FORMAT, "    if file.read(at, len(end) + 1) != end:\n", "    if not end:\n"),
        ),
        (_FILES + "two_damaged_snapshots_behind_a_trimmed_log_are_refused_with_their_names",),
    ),
    Mutant(
        "pinned-snapshot-goes",
        "METADATA.md",
        "a snapshot is deleted under a transfer",
        ((_SNAPSHOTS, "            if not self._pins[each.name]:\n", "            if each.name:\n"),),
        (_FILES + "what_is_pinned_stays_until_it_is_unpinned_as_often",),
    ),
    Mutant(
        "the-one-before-is-the-neighbour",
        "I80",
        "behind a damaged snapshot the one that the log stands behind is removed",
        (
            (
                _SNAPSHOTS,
                "        before = [older for older in named[:at] if older.name in names]\n",
                "        before = [older for older in named[max(0, at - 1) : at] if older.name in names]\n",
            ),
        ),
        (_FILES + "the_one_before_a_damaged_one_stays_beside_the_next",),
    ),
    Mutant(
        "failed-snapshot-is-not-due-again",
        "I53",
        "behind a snapshot that could not be written the log grows for as long again before the next",
        ((_STORE, "        self._entry_bytes += self._entry_bytes_before\n", ""),),
        (_FILES + "a_disk_that_refuses_a_snapshot_changes_nothing_else",),
    ),
    Mutant(
        "loaded-records-are-not-compared",
        "I72",
        "a snapshot whose records differ from the catalog that was cut is loaded",
        (
            (
                "embedbk/metadata/loading.py",
                "    if head.digest and head.digest != catalog.fast_digest:\n",
                "    if False:\n",
            ),
        ),
        ("tests/metadata/test_cutting.py::test_a_snapshot_with_another_record_than_was_cut_is_refused",),
    ),
    Mutant(
        "digest-keeps-what-was-deleted",
        "I72",
        "the sum of the records depends on the way they came",
        (
            (
                "embedbk/metadata/record_table.py",
                "        self.sum -= record_digest(before)\n        self.bytes -= size\n",
                "        self.bytes -= size\n",
            ),
        ),
        (
            "tests/metadata/test_cutting.py::test_a_cut_is_the_state_at_the_cut_whatever_was_applied_meanwhile",
        ),
    ),
    Mutant(
        "what-was-cut-is-not-summed-up",
        "I72",
        "a record that changed in memory is written into every snapshot",
        (("embedbk/host/snapshotting.py", "        if is_true:\n", "        if is_true or True:\n"),),
        ("tests/sim/test_members.py::test_a_record_that_changed_where_it_lay_is_found_by_the_next_snapshot",),
    ),
    Mutant(
        "two-snapshots-at-a-time",
        "METADATA.md, 10",
        "whoever asks for a copy while a snapshot is being written ends the member",
        (
            (
                "embedbk/host/snapshotting.py",
                "        if snapshots.is_under_way:\n            return False\n",
                "",
            ),
        ),
        ("tests/host/test_backing_up.py::test_a_copy_asked_for_while_a_snapshot_is_written_is_of_the_next",),
    ),
)
