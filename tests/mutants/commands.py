"""What people do at a terminal, and the door of an embedded cluster."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_KNOCKING = "embedbk/client/knocking.py"
_LOG = "embedbk/cli/log.py"
_TESTS = "tests/cli/test_log_commands.py::test_"

MUTANTS = (
    Mutant(
        "door-is-open-to-everybody",
        "T10",
        "every user is told how an embedded cluster is reached",
        ((_KNOCKING, "                if _user_of(link) in ipc_users():", "                if True:"),),
        (_TESTS + "the_door_is_its_users_own",),
    ),
    Mutant(
        "door-of-another-user-is-believed",
        "T10",
        "whoever has the name of a directory's socket says where its cluster is",
        ((_KNOCKING, "    if answers not in ipc_users() | {owner}:", "    if False:"),),
        (_TESTS + "whoever_else_answers_is_not_believed",),
    ),
    Mutant(
        "door-listens-before-a-knock",
        "P8.1",
        "a knock makes a cluster listen in its directory that listens elsewhere already, and its members forget where",
        ((_KNOCKING, "        if not self.url:", "        if True:"),),
        (_TESTS + "whoever_listens_already_is_named_by_the_door",),
    ),
    Mutant(
        "door-is-shut-where-no-descriptor-is-left",
        "T10",
        "who knocks while the process has no descriptor left shuts the door for good",
        ((_KNOCKING, "                if refused.errno in _NONE_LEFT:", "                if False:"),),
        (_TESTS + "who_knocks_when_no_descriptor_is_left_is_answered_and_so_is_the_next",),
    ),
    Mutant(
        "no-door-is-an-error",
        "P7.2",
        "where no process answers, a command does not open the directory itself",
        (
            (
                "embedbk/cli/operators.py",
                '        return ""  # Opening',
                "        raise  # Opening",
            ),
        ),
        (_TESTS + "a_killed_process_leaves_no_door",),
    ),
    Mutant(
        "directory-of-peers-is-opened",
        "P7.2",
        "a command that is given the directory of a cluster of processes opens it, and asks for their end",
        (
            (
                "embedbk/cli/operators.py",
                "    if not url and (served := _served_at(path)):",
                "    if False and (served := _served_at(path)):",
            ),
        ),
        ("tests/cluster/test_cluster.py::test_commands_reach_its_processes_by_its_directory",),
    ),
    Mutant(
        "append-fences-unasked",
        "P8.1",
        "a line appended at a terminal fences the application that writes the log",
        ((_LOG, "        if not options.take_over:", "        if False:"),),
        (_TESTS + "appending_beside_a_writer_asks_before_it_fences",),
    ),
    Mutant(
        "delete-asks-nobody",
        "P2.3",
        "a log is deleted before anybody said that it is meant",
        ((_LOG, "        if not options.yes:", "        if False:"),),
        (_TESTS + "what_goes_has_to_be_meant",),
    ),
)
