"""The commands: `python -m embedbk COMMAND ...`, or `embedbk COMMAND ...`.

Decides which command runs, and what an error looks like at a terminal: one sentence and an exit code, 2 for arguments
that are not understood, 1 for everything else; 130 for a command that was interrupted, 141 for one whose reader is
gone, as of other programs that signals end. Each command is imported when it is asked for, so that a peer pays for
nothing but what it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

__all__ = ["INTERRUPTED", "READER_IS_GONE", "let_go_of_output", "main"]

INTERRUPTED, READER_IS_GONE = 130, 141

_USAGE = """\
usage: embedbk COMMAND ...

  demo [FILE]   a replicated log survives kill -9 of a bookie and of its writer
  bookie        run one bookie (a peer process);
                bookie list|show|drain|read-only|reads|decommission|replace|gone: the bookies of a cluster, how fast
                they read, and taking them out of service
  cluster       cluster can-stop NODE...: whether bookies and metadata members may stop, and why not;
                cluster rolling -- COMMAND {node}: restart one node after another, with appends going on
  metadata      run a metadata member (a peer process)
  quorum        quorum status|join|reconfigure|replace|transfer|raise: the metadata members of a cluster;
                quorum snapshot|verify|restore|recover|nuke: its metadata kept elsewhere, and brought back
  log           log list|show|append|read|tail|delete: the logs of a cluster, by its address or its directory;
                log create|settings|truncate|roll|seal|rename|cursors|pins|check|undelete|deleted: what is kept of one
  ledger        ledger list|show|read|recover|delete|undelete|deleted|explain|dump|restore: one ledger;
                ledger lost|adopt|forget: what a lost future left on bookies when metadata was brought back;
                ledger copies|choose-copy|give-up: which copy is right, and which entries are lost for good
  sql           a question in SQL over what the metadata says: logs, ledgers, replicas, cursors, ...
  health        whether every entry has all of its copies, and what is done where not; 0 when it is so
  audit         all ledgers are looked at now, on all of their bookies; then as health
  repair        repair status|marks|start|stop|trigger|grace: what lost bookies had is copied to others
  spark         spark scrub|report: every copy of every entry is read and checked; where the space is
                spark archive|verify-archive|free|restore: closed ledgers as Parquet files, on Spark or without;
                spark import: the rows of Parquet, Arrow, CSV and JSON files as records;
                spark init DIR: a project for Declarative Pipelines
  sim           whole clusters in virtual time, one world per seed
  storage       storage check DIR: read every byte of what is stored, and say what is damaged;
                storage read-only|writable DIR: whether a bookie takes normal adds
  journal       journal cat DIR: the records of a journal
  entrylog      entrylog cat FILE: the entries of an entry log
  index         index cat DIR|FILE: which ledger's entries stand where
  version       say which version this is

embedbk COMMAND --help says what each takes.
"""


_BOOKIE_VERBS = ("list", "show", "drain", "read-only", "reads", "decommission", "replace", "gone")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    _open_missing_streams()
    try:
        code = _run(given)
        sys.stdout.flush()  # Here, where its failure can still be reported.
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        let_go_of_output()
        return READER_IS_GONE
    except OSError as refused:
        let_go_of_output()
        print(f"embedbk {' '.join(given[:1])}: the system refuses: {refused}", file=sys.stderr)
        return 1
    return code


def _open_missing_streams() -> None:
    """Give the process those of the standard streams that it was started without, with nothing behind them: else a file
    that it opens gets the number of one, and in it what is written to that one."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nothing, "w" if number else "r", encoding="utf-8"))


def let_go_of_output() -> None:
    """Give up what a failed write left. Python flushes once more when it ends, and that must not fail then."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError):  # Another stream may stand there, without a descriptor.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(given: list[str]) -> int:
    command, rest = (given[0], given[1:]) if given else ("", [])
    if command == "bookie" and rest and rest[0] in _BOOKIE_VERBS:
        from embedbk.cli.bookies import run_bookies

        return run_bookies(rest)
    if command == "cluster":
        from embedbk.cli.bookies import run_cluster

        return run_cluster(rest)
    if command in ("bookie", "metadata"):
        from embedbk.cli.peer import run_peer

        return run_peer(command, rest)
    if command == "quorum":
        from embedbk.cli.quorum import run_quorum

        return run_quorum(rest)
    if command == "ledger":
        from embedbk.cli.ledger import run_ledger

        return run_ledger(rest)
    if command == "audit":
        from embedbk.cli.repair import run_audit

        return run_audit(rest)
    if command == "health":
        from embedbk.cli.repair import run_health

        return run_health(rest)
    if command == "sql":
        from embedbk.cli.sql import run_sql

        return run_sql(rest)
    if command == "repair":
        from embedbk.cli.repair import run_repair

        return run_repair(rest)
    if command == "spark":
        from embedbk.cli.spark import run_spark

        return run_spark(rest)
    if command == "log":
        from embedbk.cli.log import run_log

        return run_log(rest)
    if command == "demo":
        from embedbk.demo import run_demo

        return run_demo(rest)
    if command == "sim":
        from embedbk.cli.simulation import run_sim

        return run_sim(rest)
    if command in ("storage", "journal", "entrylog", "index"):
        from embedbk.cli.storage import run_storage

        return run_storage(command, rest)
    if command == "version":
        from importlib.metadata import version

        print(version("embedbk"))
        return 0
    if command in ("help", "-h", "--help"):
        print(_USAGE, end="")
        return 0
    print(f"embedbk: {command!r} is no command\n{_USAGE}" if command else _USAGE, end="", file=sys.stderr)
    return 2
