"""`embedbk ledger dump | restore`: the metadata of one ledger in a file, and back (client/restoring.py).

Decides the file: JSON for people, around the bytes as they stood and their digest. It never replaces an
existing one.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from embedbk.cli.operators import CommandResult, Commands, client_of
from embedbk.client.adopting import cluster_token
from embedbk.client.client import Client
from embedbk.client.restoring import KeptLedger, keep, put_back
from embedbk.codec.ledger_metadata import LedgerMetadata, LedgerState, decode_ledger_metadata
from embedbk.errors import StorageError, UsageError

__all__ = ["add_dump"]

FORMAT = "embedbk ledger metadata"
VERSION = 1
FILE_BYTES_MAX = 4 << 20  # More than the largest value of the metadata takes in such a file.


def add_dump(commands: Commands) -> None:
    """Two commands of the noun `ledger`."""
    made = commands.add("dump", _dump, "write its metadata to a file", reach=client_of)
    made.add_argument("ledger_id", type=int, metavar="ID", help="of the ledger")
    made.add_argument("file", metavar="FILE", help="a new file")
    made = commands.add(
        "restore", _restore, "put metadata of a CLOSED ledger back from such a file", reach=client_of
    )
    made.add_argument("file", metavar="FILE", help="as dump wrote it")
    made.add_argument(
        "--token", help="of the cluster; without it nothing is changed, and it is said what would be done"
    )


def _dump(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    with reach() as client:
        kept = keep(client, options.ledger_id)
    facts = _facts(kept)
    text = json.dumps({"format": FORMAT, "version": VERSION, **facts}, indent=2) + "\n"
    _write(Path(options.file), text.encode())
    return CommandResult({"file": options.file, **facts}, f"{_named(kept)} is in {options.file}")


def _restore(reach: Callable[[], Client], options: argparse.Namespace) -> CommandResult:
    token, ledger_id, value = _read(Path(options.file))
    with reach() as client:
        own = cluster_token(client).hex()
        if own != token:
            raise UsageError(
                f"{options.file} is of the cluster {token}, and this one is {own}", hint="nothing was changed"
            )
        if options.token not in (None, own):
            raise UsageError(
                f"--token {options.token}: this cluster's token is another one", hint="nothing was changed"
            )
        metadata = put_back(client, ledger_id, value, is_dry=options.token is None)
    ends = f"ledger {ledger_id}, CLOSED, last entry {metadata.last_entry}, {metadata.length} bytes"
    if options.token is None:
        raise UsageError(
            f"this would be put into the metadata: {ends}",
            hint=f"say that it is meant: --token {own}; nothing was changed",
        )
    return CommandResult({"restored": ledger_id, "last_entry": metadata.last_entry}, f"restored: {ends}")


def _facts(kept: KeptLedger) -> dict[str, Any]:
    """The content of the file. All but `value` is for people, and to check that it is whole."""
    metadata: LedgerMetadata | None = None
    with contextlib.suppress(StorageError):  # The value is kept as it is; a restore reports it.
        metadata = decode_ledger_metadata(kept.value, kept.ledger_id)
    return {
        "cluster_token": kept.cluster_token.hex(),
        "ledger_id": kept.ledger_id,
        "revision": kept.revision,
        "dumped_ms": time.time_ns() // 1_000_000,
        "state": None if metadata is None else LedgerState(metadata.state).name,
        "last_entry": None if metadata is None else metadata.last_entry,
        "digest": _digest(kept.ledger_id, kept.value),
        "value": kept.value.hex(),
    }


def _named(kept: KeptLedger) -> str:
    return f"the metadata of ledger {kept.ledger_id}, {len(kept.value)} bytes,"


def _digest(ledger_id: int, value: bytes) -> str:
    return hashlib.blake2b(b"%d " % ledger_id + value, digest_size=16).hexdigest()


def _write(path: Path, data: bytes) -> None:
    try:
        with open(path, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as there:
        raise UsageError(f"{path} is there: nothing is written over it", hint="name a new file") from there
    except OSError as refused:
        raise UsageError(f"{path} cannot be written: {refused}") from refused


def _read(path: Path) -> tuple[str, int, bytes]:
    """The cluster's token, the ledger and the bytes of its metadata. Raises UsageError: it is no such file, whole."""
    try:
        with open(path, "rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as refused:
        raise UsageError(f"{path} cannot be read: {refused}") from refused
    try:
        found = json.loads(data)
        is_known = len(data) <= FILE_BYTES_MAX and (found["format"], found["version"]) == (FORMAT, VERSION)
        token, ledger_id, value = (
            str(found["cluster_token"]),
            int(found["ledger_id"]),
            bytes.fromhex(found["value"]),
        )
        is_whole = found["digest"] == _digest(ledger_id, value)
    except (ValueError, KeyError, TypeError, RecursionError) as broken:
        raise UsageError(f"{path} is no file of `embedbk ledger dump`: {broken!r}"[:300]) from broken
    if not is_known:
        raise UsageError(f"{path} is no file of `embedbk ledger dump` of a version that is known here")
    if not is_whole:
        raise UsageError(f"{path} was changed since it was written: its digest is another one")
    return token, ledger_id, value
