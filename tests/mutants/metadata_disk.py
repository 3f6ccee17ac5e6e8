"""The disk of one of several metadata members: steps, what is taken back, what a trim leaves, doubt."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_STORAGE = "embedbk/storage/"
_LOG = _STORAGE + "metadata_log.py"
_MARKS = _STORAGE + "log_marks.py"
_SNAPSHOTS = _STORAGE + "snapshots.py"
_STORE = _STORAGE + "metadata_store.py"
_USE = _STORAGE + "log_use.py"
_RECORDS = "embedbk/metadata/log_records.py"

_STEPS = "tests/storage/test_metadata_log.py::test_"
_ANY = _STEPS + "a_start_finds_what_was_durable_whatever_was_taken_back"
_DOUBT = "tests/storage/test_doubt.py::test_"
_WHOLE = "tests/host/test_member_in_doubt.py::test_a_member_that_lost_acknowledged_entries_elects_nobody_before_it_has_them_again"
_BYTES = "tests/metadata/test_log_records.py::test_"

MUTANTS = (
    Mutant(
        "note-of-a-killed-process-believed",
        "I49 P10.5",
        "a note is believed that its writer was killed before it was durable",
        (("embedbk/storage/noted.py", "            make_durable(self.path)\n", ""),),
        ("tests/storage/test_noted.py::test_a_note_is_durable_before_it_is_believed",),
    ),
    Mutant(
        "word-of-a-loss-dies-with-its-start",
        "P2.1 P9.2",
        "an owner's declaration of a loss is not kept until its generation has begun: behind a crash the log looks whole",
        ((_STORE, "            elif self.begins_generation:\n", "            elif False:\n"),),
        ("tests/storage/test_member_notes.py::test_an_owners_word_outlives_the_start_that_it_was_said_to",),
    ),
    Mutant(
        "salvage-takes-what-stands-behind-a-hole",
        "I81 I65",
        "a step behind missing records is put behind entries of which nobody can tell whether they still held",
        (
            (
                "embedbk/storage/log_salvage.py",
                "                self._settle(run, entries)\n                run, entries = _Run(token), []\n",
                "                self._settle(run, entries)\n                run = _Run(token, run.last)\n",
            ),
        ),
        ("tests/storage/test_log_salvage.py::test_every_byte_may_rot_and_it_goes_on_with_a_log_that_it_had",),
    ),
    Mutant(
        "salvage-knows-no-doubt",
        "I81",
        "a log that begins behind a damaged one is taken for all that the member ever had",
        (
            (
                "embedbk/storage/log_use.py",
                "    if is_several and found.salvaged is not None:\n",
                "    if is_several and found.salvaged is not None:\n        return Verdict(used)\n    if False:\n",
            ),
        ),
        ("tests/storage/test_log_salvage.py::test_every_byte_may_rot_and_it_goes_on_with_a_log_that_it_had",),
    ),
    Mutant(
        "salvage-gives-the-damaged-log-up-first",
        "I42",
        "the journal begins anew before what is whole of the damaged one is durable anywhere else",
        (
            (
                "embedbk/storage/log_salvage.py",
                "        _write(SnapshotFiles(directory, io=io), _Kept(_VERSION, first_token, whole.kept(used)))\n        salvage.finish()\n",
                "        salvage.finish()\n        _write(SnapshotFiles(directory, io=io), _Kept(_VERSION, first_token, whole.kept(used)))\n",
            ),
        ),
        ("tests/storage/test_log_salvage.py::test_the_power_may_go_before_every_call_of_a_salvage",),
    ),
    Mutant(
        "doubt-is-forgotten-with-the-first-record-of-a-start",
        "I81 P10.3",
        "a start that found less than was used and dies before its first note is followed by one that knows of no loss",
        (
            (
                "embedbk/storage/metadata_store.py",
                "            elif verdict.doubt is not None and verdict.used is not None:\n",
                "            elif False:\n",
            ),
        ),
        (
            "tests/storage/test_doubt.py::test_a_doubt_is_noted_before_the_start_that_found_it_writes_anything",
        ),
    ),
    Mutant(
        "trim-forgets-term-and-vote",
        "I61",
        "what stands in trimmed records alone is gone: a member votes twice in a term",
        ((_STORE, "        self._append_step(Persist(0, self._term, self._vote, self._index, ()))\n", ""),),
        (_STEPS + "a_trim_behind_snapshots_of_others_alone_leaves_term_and_vote",),
    ),
    Mutant(
        "entries-that-were-taken-back-stand-again",
        "I65",
        "a start keeps entries that another leader's took the place of",
        ((_LOG, "        del found.entries[max(0, keep_index - found.index) :]\n", ""),),
        (_STEPS + "what_a_later_record_takes_back_is_gone_with_its_configuration", _ANY),
    ),
    Mutant(
        "trim-past-the-name-of-the-older-snapshot",
        "I80",
        "a log begins behind the record that names the snapshot before it, or in the midst of what was taken back",
        (
            (_MARKS, " and marks[1][1] < below:\n", ":\n"),
            (_MARKS, " and marks[0][1] < below else 0\n", " else 0\n"),
        ),
        (_ANY,),
    ),
    Mutant(
        "marks-outlive-what-they-stand-for",
        "I80",
        "behind entries that were taken back the log is not trimmed where it may be, or where it may not",
        ((_MARKS, "        while marks and marks[-1][0] > keep_index:\n", "        while False:\n"),),
        (_STEPS + "marks_are_few_and_never_say_too_much",),
    ),
    Mutant(
        "a-file-begins-in-what-was-taken-back",
        "I80",
        "the first record of the first file that is left goes on from an entry that was taken back behind the snapshot",
        (
            (_MARKS, "marks[1][2] <= index and", "marks[1][0] <= index and"),
            (_MARKS, "marks[0][2] <= index and", "marks[0][0] <= index and"),
        ),
        (_STEPS + "a_trimmed_log_goes_on_from_its_snapshot_however_many_marks_were_let_go",),
    ),
    Mutant(
        "what-a-snapshot-stands-for-is-taken-back",
        "I65",
        "a record may take back what is applied",
        (
            (
                _STORE,
                "        stands = self.snapshots.newest_index if self.snapshots is not None else 0\n",
                "        stands = 0\n",
            ),
        ),
        (_STEPS + "a_record_behind_the_end_or_below_a_snapshot_is_an_error",),
    ),
    Mutant(
        "vote-that-changed-in-its-term-is-believed",
        "I61",
        "a log in which a member voted twice is gone on with",
        (
            (
                _LOG,
                "        if record.term < found.term or is_second_vote:\n",
                "        if record.term < found.term:\n",
            ),
        ),
        (_STEPS + "a_record_that_no_step_wrote_is_refused",),
    ),
    Mutant(
        "fetched-snapshot-beside-what-it-replaced",
        "I80",
        "entries that do not agree with a fetched snapshot stand behind it at the next start",
        ((_LOG, "        if named.origin is Origin.FETCHED_INSTEAD:\n", "        if False:\n"),),
        (_ANY, _STEPS + "a_log_whose_beginning_is_damaged_is_refused_with_the_file_and_the_way_out"),
    ),
    Mutant(
        "fetched-snapshot-is-named-before-it-is-there",
        "I80 I81",
        "the log begins behind a file that a loss of power takes back",
        (
            (
                _SNAPSHOTS,
                "            self._files.rename(name + FETCHED_SUFFIX, name)\n",
                "            self._deferred = name\n",
            ),
        ),
        (_STEPS + "a_snapshot_that_takes_the_place_of_the_log_is_what_the_next_start_begins_with",),
    ),
    Mutant(
        "snapshot-of-an-old-state-goes-on",
        "I80",
        "what was cut before a fetched snapshot took its place is named behind it",
        (
            (
                _SNAPSHOTS,
                "        header, name = self.look_at_fetched(index, term), snapshot_name(index, term)\n        self.abandon()\n",
                "        header, name = self.look_at_fetched(index, term), snapshot_name(index, term)\n",
            ),
        ),
        (_STEPS + "a_snapshot_that_is_cut_here_meanwhile_is_given_up",),
    ),
    Mutant(
        "doubt-is-forgotten-by-the-next-start",
        "P10.3",
        "a member that lost what it acknowledged votes again when it starts once more",
        (
            (
                _USE,
                "            *(term, last_index, doubt is not None),\n",
                "            *(term, last_index, False),\n",
            ),
        ),
        (_DOUBT + "a_doubt_lasts_over_starts_until_the_core_has_none",),
    ),
    Mutant(
        "loss-is-judged-by-the-last-entry",
        "P10.3",
        "a lawful truncation makes a member doubt, and after a power cut of all nobody is elected",
        (
            (
                _USE,
                "    if used is None or not (missing or used.has_doubt):\n",
                "    if used is None or not (missing or used.has_doubt or found.last_index < used.last_index + 5):\n",
            ),
        ),
        (_DOUBT + "entries_that_were_lawfully_taken_back_are_no_loss",),
    ),
    Mutant(
        "joint-member-counts-as-the-only-one",
        "P10.3 I77",
        "while a change of the voters is under way a member with less asks nobody",
        ((_LOG, " and not newest.is_joint\n", "\n"),),
        (_DOUBT + "whoever_was_ever_one_of_several_as_far_as_the_log_goes_is_in_doubt",),
    ),
    Mutant(
        "doubt-without-the-log-of-the-other-copy",
        "P10.3",
        "the bounds of a doubt are those of the note, and what the log itself has may have been acknowledged, too",
        (
            (
                _USE,
                "    doubt = Doubt(max(used.term, found.term), max(used.last_index, found.last_index))\n",
                "    doubt = Doubt(used.term, used.last_index)\n",
            ),
        ),
        (_DOUBT + "a_log_of_another_copy_is_a_doubt_of_both",),
    ),
    Mutant(
        "doubt-is-not-told-to-the-core",
        "P10.3 I64",
        "a member that lost what it acknowledged elects whoever lacks it, too",
        (("embedbk/host/metadata_node.py", "            doubt=begun.doubt,\n", "            doubt=None,\n"),),
        (_WHOLE,),
    ),
    Mutant(
        "doubt-that-is-over-stays-noted",
        "P10.3",
        "every start of the member doubts again, and each crash of another stops the cluster",
        (
            (
                "embedbk/host/metadata_node.py",
                "        if self._has_doubt and not self.log.raft.has_doubt:\n",
                "        if False:\n",
            ),
        ),
        (_WHOLE,),
    ),
    Mutant(
        "record-with-a-gap-is-believed",
        "I65",
        "entries of a record need not follow each other",
        (
            (
                _RECORDS,
                "        if entry.index != after_index + 1 or entry.index > NUMBER_MAX:\n",
                "        if entry.index > NUMBER_MAX:\n",
            ),
        ),
        (_BYTES + "what_no_member_writes_is_refused_with_its_reason",),
    ),
    Mutant(
        "configuration-without-voters-is-believed",
        "P10.3",
        "bytes of others may end every quorum",
        ((_RECORDS, "    if not configuration.voters:\n", "    if False:\n"),),
        (_BYTES + "a_configuration_that_no_leader_proposes_is_refused",),
    ),
)
