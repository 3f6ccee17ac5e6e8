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
        "the socket in a cluster's directory may be used by every user",
        ((_KNOCKING, "os.chmod(path, 0o600)", "os.chmod(path, 0o666)"),),
        (_TESTS + "the_door_is_its_users_own_and_goes_with_the_process",),
    ),
    Mutant(
        "door-listens-before-a-knock",
        "P8.1",
        "a knock makes a cluster listen in its directory that listens elsewhere already, and its members forget where",
        ((_KNOCKING, "        if not self.url:", "        if True:"),),
        (_TESTS + "whoever_listens_already_is_named_by_the_door",),
    ),
    Mutant(
        "door-of-a-dead-process-is-believed",
        "P7.2",
        "a socket that a killed process left keeps a command from opening the directory",
        (
            (
                "embedbk/cli/operators.py",
                '        return ""  # Left by a process',
                "        raise  # Left by a process",
            ),
        ),
        (_TESTS + "what_a_killed_process_left_of_its_door_is_no_door",),
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
