"""Which logs there are: a log is a name with a list of ledgers under it."""

from __future__ import annotations

from embedbk.client.runtime import Runtime
from embedbk.codec.ledger_metadata import log_key_path
from embedbk.ids import check_log_name

__all__ = ["log_names"]

_FOLDER, _ = log_key_path("|").split("|")


async def log_names(runtime: Runtime, prefix: str) -> list[str]:
    """Those that begin with prefix, ascending. Raises UsageError: no name begins so."""
    if prefix != "":
        check_log_name(prefix)  # What a name begins with is a name.
    names = []
    for record in await runtime.list_keys(_FOLDER + prefix, "listing the logs"):
        name, _, _ = record.key.removeprefix(_FOLDER).partition("/")
        if record.key == log_key_path(name):  # Beside it stand its owner and what left it.
            names.append(name)
    return sorted(names)
