"""The level of a cluster: what it lets through, and who stands in the way of raising it."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_CATALOG = "embedbk/metadata/catalog.py"
_GOVERNING = "embedbk/metadata/governing.py"
_LEVELS = "embedbk/metadata/levels.py"
_MEMBER = "embedbk/metadata/member.py"
_ORDERS = "embedbk/metadata/orders.py"

_TESTS = "tests/metadata/test_levels.py::test_"

MUTANTS = (
    Mutant(
        "level-raised-over-an-older-client",
        "P10.8",
        "a leader raises the level though a client with a session does not know it",
        ((_ORDERS, "        if lacking:\n", "        if lacking and not lacking:\n"),),
        (_TESTS + "a_client_of_an_older_build_stands_in_the_way_by_its_name",),
    ),
    Mutant(
        "level-raised-over-an-opening",
        "P10.8",
        "a session that is being opened is not looked at",
        ((_ORDERS, "self.levels.lacking((*labels, *openings), level)", "self.levels.lacking(labels, level)"),),
        (_TESTS + "a_session_that_is_being_opened_stands_in_the_way_too",),
    ),
    Mutant(
        "level-raised-over-a-silent-voter",
        "P10.8",
        "a voter that is not heard is taken for one that knows the level",
        ((_LEVELS, "        elif not said and configuration.is_voter(member):\n", "        elif not said and not configuration.is_voter(member):\n"),),
        (_TESTS + "every_voter_has_to_be_heard_and_to_know_it",),
    ),
    Mutant(
        "level-lowered",
        "I83",
        "a command that comes again lowers the level",
        ((_CATALOG, "max(self.level, command.level)", "command.level"),),
        (_TESTS + "a_level_is_raised_once_and_never_lowered",),
    ),
    Mutant(
        "level-not-known-and-gone-on",
        "P10.8",
        "a member applies a level that its build does not know",
        ((_CATALOG, "        if command.level > self.limits.level_known:\n", "        if command.level < 0:\n"),),
        (_TESTS + "a_member_that_does_not_know_the_level_serves_no_more",),
    ),
    Mutant(
        "level-of-a-snapshot-not-looked-at",
        "P10.8",
        "a build starts on a snapshot of a level that it does not know",
        (("embedbk/metadata/loading.py", "            if piece.level > limits.level_known:\n", "            if piece.level < 0:\n"),),
        (_TESTS + "until_it_is_raised_the_build_before_reads_everything_and_then_nothing",),
    ),
    Mutant(
        "level-of-a-joiner-not-asked",
        "P10.8",
        "a member of the build before is let in after the level was raised",
        ((_GOVERNING, "        if asked.level < self._catalog().level:\n", "        if asked.level < 0:\n"),),
        (_TESTS + "a_member_of_an_older_build_neither_joins_nor_votes_once_it_is_raised",),
    ),
    Mutant(
        "level-of-a-newcomer-not-asked",
        "P10.8",
        "a learner that went back to the build before gets a vote",
        ((_GOVERNING, "                    if known < self._catalog().level and not configuration.is_voter(member):\n", "                    if known < 0:\n"),),
        (_TESTS + "a_member_of_an_older_build_neither_joins_nor_votes_once_it_is_raised",),
    ),
    Mutant(
        "level-begun-over-a-used-cluster",
        "P10.8",
        "the leader raises the level by itself where ledgers were made, so that the build before cannot come back",
        ((_GOVERNING, "        if catalog.next_id > 1 or catalog.level >= known", "        if catalog.level >= known"),),
        (_TESTS + "a_new_cluster_begins_with_the_newest_level_that_all_know",),
    ),
    Mutant(
        "level-begun-over-a-member-that-lacks-it",
        "P10.8",
        "the leader raises the level of a new cluster by itself over a member that does not know it",
        ((_GOVERNING, "        if self._begun_in == raft.term or self._why_not_raised(known, raft) is not None:\n", "        if self._begun_in == raft.term:\n"),),
        (_TESTS + "a_new_cluster_begins_with_the_newest_level_that_all_know",),
    ),
    Mutant(
        "level-raised-over-clients-not-known-yet",
        "P10.8 I83",
        "a new leader raises the level before it has applied the sessions of clients that do not know it",
        ((_ORDERS, "        if not knows_all and not self._log.is_new:\n", "        if not self._log.term:\n"),),
        (_TESTS + "a_leader_that_has_not_applied_the_log_before_it_raises_nothing",),
    ),
    Mutant(
        "refused-by-a-level-that-the-log-may-raise",
        "P10.8 P2.2",
        "a leader that has not applied its log answers LACKING for good, and the log has that very request behind the raise",
        ((_MEMBER, "refusal.code == LACKING and not self._knows_all", "False"),),
        (_TESTS + "a_leader_refuses_nothing_by_a_level_that_its_log_may_raise",),
    ),
    Mutant(
        "watches-of-a-refused-client-told-nothing",
        "P10.8",
        "a client that is too old ends, and whoever follows a key by it waits for ever",
        (("embedbk/metadata/client.py", "        effects += [Completed(token, self._ended) for token in watches]\n", "        del watches\n"),),
        (_TESTS + "who_watches_is_told_that_its_client_is_too_old",),
    ),
    Mutant(
        "bookie-that-is-too-old-goes-on",
        "P10.8",
        "a bookie whose build does not know the level stays without a word, and without a registration",
        (("embedbk/host/bookie_node.py", "        self._serve_nobody(now_ns, UsageError(reason), reason)\n", "        del now_ns, reason\n"),),
        ("tests/host/test_bookie_node.py::test_a_bookie_that_does_not_know_the_level_ends_and_serves_nobody",),
    ),
    Mutant(
        "list-not-read-is-list-changed",
        "P2.2",
        "an owner whose list cannot be read is told that others changed it",
        (("embedbk/core/log_listing.py", "        self.unread = event.reason\n", "        self.unread = \"\"\n"),),
        ("tests/rules/test_p8_rolling.py::test_a_list_that_cannot_be_read_is_not_said_to_have_changed",),
    ),
    Mutant(
        "entry-logs-that-the-build-before-refuses",
        "P10.8",
        "a bookie writes entry logs of the newest version, whatever the cluster's level is: the build before does not start on them",
        (("native/store/store_logs.c", "    if (!store->may_go_back) return EBK_LOG_VERSION;\n", "    if (store->log_count == 0 || !store->may_go_back) return EBK_LOG_VERSION;\n"),),
        ("tests/storage/test_entry_log_format.py::test_while_the_build_before_can_come_back_logs_are_as_it_reads_them",),
    ),
    Mutant(
        "level-that-storage-does-not-hear-of",
        "P10.8",
        "a bookie writes what the build before reads also when it cannot come back",
        (("embedbk/host/bookie_node.py", "            self.storage.note_level(self._level)\n", ""),),
        ("tests/faces/test_levels.py::test_entry_logs_are_what_builds_read_that_may_come_back",),
    ),
)  # fmt: skip
