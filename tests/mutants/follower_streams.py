"""Watches that may lag: what a follower streams, and when its client leaves it."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_WATCHES = "embedbk/metadata/watches.py"
_STREAMS = "embedbk/metadata/streams.py"
_LINK = "embedbk/metadata/follower_link.py"
_WATCHING = "embedbk/metadata/watching.py"

_HERE = "tests/metadata/test_follower_streams.py::test_"
_STORIES = "tests/sim/test_watchers.py::test_a_watch_that_may_lag_goes_on_at_the_leader_when_its_follower_shows_nothing"

MUTANTS = (
    Mutant(
        "follower-streams-ahead-as-gone",
        "METADATA.md 6",
        "a member that is behind says of a revision which it has not applied that its changes are gone",
        ((_WATCHES, "        return self.may_lag and stream.sent_revision > until\n", "        return False\n"),),
        (_HERE + "a_stream_from_what_this_member_has_not_applied_yet_waits",),
    ),
    Mutant(
        "follower-streams-live-on-behind-a-snapshot",
        "I82",
        "a member that was put to a snapshot goes on streaming behind a gap that it does not say",
        ((_WATCHES, "                seen = stream.sent_revision if stream.is_lagging else self.fed_revision\n", "                seen = catalog_revision\n"),),
        (_HERE + "a_member_that_was_put_to_a_snapshot_says_what_it_cannot_show",),
    ),
    Mutant(
        "follower-streams-drop-behind-a-snapshot",
        "I82",
        "a member that was put to a snapshot forgets its streams, and their watches show nothing new",
        ((_STREAMS, "        self.watches = self.watches.follow_another(revision)\n", "        self.watches = Watches(revision)\n"),),
        (_HERE + "a_member_that_was_put_to_a_snapshot_says_what_it_cannot_show",),
    ),
    Mutant(
        "follower-that-lags-is-kept",
        "METADATA.md 6",
        "a client keeps a member that hears no leader, and shows nothing new",
        ((_LINK, "        if revision < self._leader_revision:\n            return  # It is asked again.\n", ""),),
        (_HERE + "it_streams_only_when_the_member_has_applied_what_the_leader_said", _STORIES),
    ),
    Mutant(
        "silent-stream-is-waited-for",
        "I82",
        "a watch waits for ever for a stream that its member has ended, as the message that said so was lost",
        ((_WATCHING, "            if watch.silence > SILENT_MAX * turn:\n", "            if False:\n"),),
        ("tests/metadata/test_client.py::test_a_stream_whose_end_was_lost_on_the_way_is_asked_for_again",
         _HERE + "a_stream_whose_end_was_lost_on_the_way_is_asked_for_again"),
    ),
    Mutant(
        "silence-counts-marks-of-others",
        "METADATA.md 6",
        "a watch of a link with many counts marks that others had in their turn, and asks for its stream each time",
        ((_WATCHING, "        turn = 1 + len(streams) // MARKS_MAX\n", "        turn = 1\n"),),
        ("tests/metadata/test_client.py::test_a_stream_that_is_told_how_far_it_is_is_not_asked_for_again",),
    ),
    Mutant(
        "streams-of-a-left-follower-stay-there",
        "I82",
        "a watch whose member was left is streamed by nobody",
        ((_WATCHING, "            if session or self._uses_follower:\n", "            if self._uses_follower:\n"),),
        (_STORIES,),
    ),
)  # fmt: skip
