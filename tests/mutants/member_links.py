"""Members of a quorum with each other: whose message it is, which link it takes, and snapshots that are pulled."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_PEERS = "embedbk/host/peers.py"
_FETCHING = "embedbk/host/fetching.py"
_HANDING = "embedbk/host/handing_out.py"
_FILE = "embedbk/storage/fetched_file.py"
_PIECES = "embedbk/storage/file_in_pieces.py"
_MESSAGES = "embedbk/metadata/raft_messages.py"
_MEMBERSHIP = "embedbk/metadata/membership.py"
_PATIENCE = "embedbk/metadata/patience.py"

_NODE = "embedbk/host/metadata_node.py"

_WHOLE = "tests/host/test_several_members.py::test_"
_LINKS = "tests/host/test_peers.py::test_"
_PULLS = "tests/host/test_fetching.py::test_"
_BYTES = "tests/metadata/test_raft_messages.py::test_"

MUTANTS = (
    Mutant(
        "peers-a-message-of-another-process",
        "P10.3",
        "a message counts for the process that it names, whoever stands behind the link",
        ((_PEERS, "        elif sender != up.boot:\n", "        elif sender.member != up.boot.member:\n"),),
        (_LINKS + "a_message_that_is_not_what_its_link_says_ends_the_link[nonce]",),
    ),
    Mutant(
        "peers-a-message-for-another-incarnation",
        "P10.3",
        "a message for the incarnation before this one is heard",
        (
            (
                _PEERS,
                "        elif receiver != self.own.member:\n",
                "        elif receiver.name != self.own.member.name:\n",
            ),
        ),
        (_LINKS + "a_message_that_is_not_what_its_link_says_ends_the_link[receiver]",),
    ),
    Mutant(
        "peers-a-copy-of-a-directory-is-linked",
        "P7.9",
        "a second process of a member that is linked is linked, too",
        (
            (
                _PEERS,
                "        if process is not None and process.boot != boot:\n",
                "        if process is not None and process.boot.member != boot.member:\n",
            ),
        ),
        (
            _LINKS + "two_processes_of_one_member_and_the_one_that_is_linked_stays",
            "tests/sim/test_member_disks.py::test_a_copy_of_a_directory_is_refused_while_its_member_is_heard",
            _LINKS + "a_process_that_comes_back_finds_its_place_taken",
        ),
    ),
    Mutant(
        "peers-a-blank-member-is-a-peer",
        "P10.3",
        "who was dialled is spoken to though it belongs to no cluster",
        (
            (
                _PEERS,
                "        if peer.cluster_token != self._token:\n            return f",
                "        if peer.cluster_token and peer.cluster_token != self._token:\n            return f",
            ),
        ),
        (_LINKS + "who_was_dialled_must_belong_to_this_cluster[]",),
    ),
    Mutant(
        "peers-lost-with-its-first-link",
        "P10.1",
        "a process counts as lost when one of its links ended and another stands",
        (
            (
                _PEERS,
                "        if process.links:\n            return None\n        del self",
                "        if any(each.is_dialled for each in process.links):\n            return None\n        del self",
            ),
        ),
        (_LINKS + "while_one_of_its_links_lasts_a_process_is_not_lost",),
    ),
    Mutant(
        "peers-messages-behind-a-snapshot",
        "P10.1",
        "a link over which a snapshot is pulled carries messages as well",
        ((_PEERS, "if not each.is_bulk and not each.is_over:\n", "if not each.is_over:\n"),),
        (_LINKS + "no_message_waits_behind_a_snapshot",),
    ),
    Mutant(
        "peers-a-dropped-link-is-heard",
        "P10.3",
        "what was on its way on a link that was dropped still reaches the core",
        (
            (
                _PEERS,
                "        if up is not None and up.is_over:\n            return False  # This was on its way.\n",
                "",
            ),
        ),
        (_LINKS + "what_follows_on_a_link_that_was_dropped_is_not_heard",),
    ),
    Mutant(
        "peers-dialled-in-a-hurry",
        "P7.8",
        "a link that flaps is dialled again after the shortest pause each time",
        (
            (
                _PEERS,
                "            if up is not None and now_ns - up.since_ns >= REDIAL_NS_MAX:\n",
                "            if up is not None:\n",
            ),
        ),
        (_LINKS + "a_flapping_link_is_not_dialled_at_once_each_time",),
    ),
    Mutant(
        "peers-strangers-without-a-bound",
        "T13",
        "as many processes of no member may be linked as come",
        (
            (
                _PEERS,
                "len(self._strangers()) >= STRANGERS_MAX:\n",
                "len(self._strangers()) >= 100 * STRANGERS_MAX:\n",
            ),
        ),
        (_LINKS + "strangers_are_bounded_and_members_have_their_place_all_the_same",),
    ),
    Mutant(
        "messages-entries-with-a-gap",
        "I65",
        "entries that do not follow what they say they follow reach the core",
        (
            (
                _MESSAGES,
                "            check_entries(body.entries, body.previous_index, body.previous_term, control.term)\n",
                "            pass\n",
            ),
        ),
        (_BYTES + "what_no_member_sends_is_refused_with_its_reason",),
    ),
    Mutant(
        "membership-a-change-forgets-addresses",
        "P10.3",
        "the end of a joint change knows nobody's address any more",
        (
            (
                _MEMBERSHIP,
                "            final = replace(final, addresses=_kept(final, ()))\n",
                "            final = replace(final, addresses=())\n",
            ),
        ),
        ("tests/quorum/test_scenarios.py::test_a_configuration_says_where_its_members_listen",),
    ),
    Mutant(
        "handing-out-without-a-pin",
        "I81",
        "a snapshot goes while somebody pulls it",
        (
            (_HANDING, "            self._snapshots.pin(named.name)\n", ""),
            (_HANDING, "            self._snapshots.unpin(puller.named.name)\n", "            pass\n"),
        ),
        (_PULLS + "it_is_pinned_at_its_source_while_it_is_pulled",),
    ),
    Mutant(
        "handing-out-pins-for-ever",
        "I81",
        "what was pulled once stays pinned when the link is gone",
        ((_HANDING, "            self._snapshots.unpin(puller.named.name)\n", "            pass\n"),),
        (_PULLS + "it_is_pinned_at_its_source_while_it_is_pulled", _PULLS + "pullers_are_bounded"),
    ),
    Mutant(
        "fetching-begins-anew-with-each-link",
        "RAFT.md, 8",
        "a lost link costs all that was pulled",
        (
            (
                _FETCHING,
                "            task.file.stop()\n            task.file, task.is_checked",
                "            task.file.stop(keep=False)\n            task.file, task.is_checked",
            ),
        ),
        (_PULLS + "after_a_lost_link_it_goes_on_where_it_was[3145728]",),
    ),
    Mutant(
        "fetching-believes-what-is-whole",
        "I80",
        "a whole file counts, whatever its source's log names",
        (
            (
                _FETCHING,
                "            if named != (header.file_bytes, header.digest):\n",
                "            if named[0] != header.file_bytes:\n",
            ),
        ),
        (_PULLS + "what_its_source_says_of_it_is_what_it_must_be[wrong0]",),
    ),
    Mutant(
        "fetching-takes-a-piece-of-elsewhere",
        "I80",
        "an answer that came twice, or late, is put behind what is here",
        (
            (
                _FETCHING,
                "        if (piece.index, piece.term, piece.offset) != (wanted.index, wanted.term, file.offset):\n",
                "        if (piece.index, piece.term) != (wanted.index, wanted.term):\n",
            ),
        ),
        (_PULLS + "pieces_that_are_lost_doubled_and_late_are_pulled_once",),
    ),
    Mutant(
        "fetched-file-is-not-looked-at",
        "I80",
        "a fetched snapshot counts without a look at its sums",
        (
            (
                _FILE,
                "            for _ in read_pieces(self._file, header):\n                if self._is_stopping:\n                    return\n",
                "",
            ),
        ),
        (_PULLS + "a_byte_that_the_disk_damaged_starts_it_anew",),
    ),
    Mutant(
        "fetched-file-is-not-synced",
        "I80",
        "a fetched snapshot counts before it is durable",
        (
            (
                _FILE,
                "        self._file.sync()\n        self._file.close()\n        self._file = None\n        self._files.sync()\n",
                "        self._file.close()\n        self._file = None\n",
            ),
        ),
        (_PULLS + "a_snapshot_is_pulled_whole_and_its_configuration_with_it",),
    ),
    Mutant(
        "fetched-file-outlives-a-failed-sync",
        "P7.6",
        "what a sync refused is synced once more",
        (
            (
                _PIECES,
                "        except OSError as refused:\n            self._drop()\n",
                "        except OSError as refused:\n",
            ),
        ),
        (_PULLS + "a_failed_sync_is_never_tried_again_on_what_is_here",),
    ),
    Mutant(
        "file-whose-thread-ended-in-silence",
        "I53",
        "whatever is no refusal of the disk ends the thread that writes a file, and its owner waits for ever",
        (
            (
                _PIECES,
                '                self.failure = OSError(f"{self.name} cannot be written: {unforeseen!r}")\n',
                "",
            ),
        ),
        ("tests/storage/test_snapshots.py::test_whatever_ends_the_writing_of_a_snapshot_is_told",),
    ),
    Mutant(
        "patience-without-an-end",
        "RAFT.md, 8",
        "a peer that hangs is asked for ever",
        (
            (
                _PATIENCE,
                "        if self.stalls < STALLS_MAX:\n            return False\n        self.stalls = 0\n        return True\n",
                "        return False\n",
            ),
        ),
        (_PULLS + "patience_follows_what_is_measured",),
    ),
    Mutant(
        "node-hears-what-follows-on-a-dropped-link",
        "T10",
        "behind bytes that end a member's link, what else came on it in that turn is heard",
        (
            (
                _NODE,
                "        self.members.drop(link, reason)\n",
                "        self.transport.drop(link, reason)\n",
            ),
        ),
        (_WHOLE + "what_no_member_says_ends_its_link_and_nothing_behind_it_is_heard",),
    ),
    Mutant(
        "fetching-only-where-an-address-is-known",
        "P10.3",
        "a learner gives up each snapshot, as it has no configuration before it has one",
        (
            (
                _FETCHING,
                "        found = self._shared(member)\n",
                "        found = self._shared(member) if self._configuration.voters else None\n",
            ),
        ),
        (_WHOLE + "who_joins_behind_a_trimmed_log_learns_of_all_others_by_a_snapshot",),
    ),
    Mutant(
        "a-source-that-moved-is-asked-where-it-was",
        "P10.3 L6",
        "who lacks the entry with a source's new place asks for the snapshot at the former one, for ever",
        (
            (
                _FETCHING,
                "        if found is not None:\n",
                "        if found is not None and not endpoints:\n",
            ),
        ),
        (_PULLS + "from_a_source_that_has_moved_it_is_pulled_over_the_link_of_its_messages",),
    ),
)
