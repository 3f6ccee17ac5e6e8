"""The arguments of `embedbk bookie` and of `embedbk metadata`, and the settings that follow from them."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from embedbk.cli.member import EPILOG, add_arguments
from embedbk.config import Settings
from embedbk.errors import UsageError
from embedbk.ids import check_bookie_id

__all__ = ["FROM_PARENT", "check_options", "level_of", "parser_of", "settings_of"]

# The value of --metadata if the starter sends it later, on the parent's pipe.
FROM_PARENT = "-"

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def parser_of(role: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"embedbk {role}",
        description=f"Run one {role} until SIGTERM.",
        epilog=EPILOG if role == "metadata" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--dir", required=True, type=Path, help="its directory; made at the first start, its parent never")
    add(
        "--create",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="--no-create: a missing or empty directory is an error, not a new one; for what stands on mounts",
    )
    add(
        "--listen",
        action="append",
        metavar="ENDPOINT",
        help="tcp://HOST:PORT or ipc://PATH; port 0 is any free one (default tcp://127.0.0.1:0)",
    )
    if role == "metadata":
        add_arguments(parser)
        add(
            "--may-have-lost",
            action="store_true",
            help="its directory is an older copy, or lost a part of its log: a new generation of ids and epochs begins",
        )
    if role == "bookie":
        add("--id", required=True, type=_bookie_id, help="its name in the cluster, for ever")
        add(
            "--location",
            default="",
            metavar="ZONE/RACK",
            help="where it stands, for placement over racks or zones",
        )
        add(
            "--may-have-lost",
            action="store_true",
            help="its directories are an older copy, or were repaired: what is missing there counts as unknown",
        )
        add(
            "--metadata",
            required=True,
            metavar="ENDPOINTS",
            help="of the metadata members, as embedbk://HOST:PORT,... or tcp://HOST:PORT,...",
        )
        add(
            "--journal-dir",
            type=Path,
            action="append",
            default=[],
            help="on another device, if it should be; several share the ledgers, always in the same order",
        )
        add(
            "--ledger-dir",
            type=Path,
            action="append",
            default=[],
            help="for entry logs; several, each on a device of its own, always in the same order",
        )
        add(
            "--expand", action="store_true", help="ledger directories at the end are new ones, added for good"
        )
        add(
            "--session-ttl-ms",
            type=int,
            default=Settings().session_ttl_ms,
            help="silent for so long: given up",
        )
        add(
            "--scrub-bytes-per-s",
            type=int,
            default=Settings().scrub_bytes_per_s,
            help="read so much of what is stored, again and again, to find rot; 0: nothing",
        )
        add(
            "--collect-s",
            type=float,
            default=Settings().collect_s,
            help="between two rounds of asking what need not be held any more",
        )
        add(
            "--repair",
            action=argparse.BooleanOptionalAction,
            default=Settings().repairs,
            help="--no-repair: this process repairs nothing, and is no candidate for auditor",
        )
        add(
            "--repair-grace-s",
            type=float,
            default=Settings().repair_grace_s,
            help="a bookie that is away for so long is taken to be lost",
        )
        add(
            "--repair-bytes-per-s",
            type=int,
            default=Settings().repair_bytes_per_s,
            help="read so much for copies; 0: as fast as it goes",
        )
        add(
            "--repair-ledgers-per-s",
            type=int,
            default=Settings().repair_ledgers_per_s,
            help="begin to repair so many; 0: as many as it can",
        )
        add(
            "--balance-bytes-per-s",
            type=int,
            default=Settings().balance_bytes_per_s,
            help="move so much of closed ledgers to bookies with more room, or in other racks; 0: nothing",
        )
        add(
            "--audit-s",
            type=float,
            default=Settings().audit_s,
            help="between two looks of the auditor at all ledgers",
        )
    add("--journal-file-bytes", type=int, default=Settings().journal_file_bytes)
    add(
        "--allow-non-loopback", action="store_true", help="links are not encrypted: on a trusted network only"
    )
    add(
        "--log-level",
        choices=sorted(_LEVELS, key=_LEVELS.__getitem__),
        default="warning",
        help="what is logged on standard error; info says what happens, with figures (default: warning)",
    )
    add("-v", dest="verbose", action="count", default=0, help="one level more; twice: two")
    add("--ready-fd", type=int, help="where to report what was bound (default: standard output)")
    add("--parent-fd", type=int, help="a pipe at whose end this process ends")
    return parser


def _bookie_id(text: str) -> str:
    try:
        return check_bookie_id(text)
    except UsageError as refused:
        raise argparse.ArgumentTypeError(str(refused)) from None


def check_options(options: argparse.Namespace) -> None:
    where = "join" if hasattr(options, "join") else "metadata"
    if getattr(options, where) == FROM_PARENT and options.parent_fd is None:
        raise UsageError(
            f"--{where} {FROM_PARENT}: it is read from the parent's pipe, and --parent-fd names none",
            hint="give the metadata members' endpoints",
        )
    settings_of(options)


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings by the options; those that this kind of peer does not take have their defaults."""
    usual = Settings()
    names = (
        "session_ttl_ms",
        "scrub_bytes_per_s",
        "collect_s",
        "repair_grace_s",
        "repair_bytes_per_s",
        "repair_ledgers_per_s",
        "balance_bytes_per_s",
        "audit_s",
    )
    given = {name: getattr(options, name, getattr(usual, name)) for name in names}
    return Settings(
        journal_file_bytes=options.journal_file_bytes,
        repairs=getattr(options, "repair", usual.repairs),
        **given,
    )


def level_of(options: argparse.Namespace) -> int:
    """The lowest level that is logged."""
    level: int = _LEVELS[options.log_level] - 10 * options.verbose
    return max(level, logging.DEBUG)
