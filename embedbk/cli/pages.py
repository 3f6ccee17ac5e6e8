"""Pages of HTML that commands write beside what they print (`--html FILE`)."""

from __future__ import annotations

from pathlib import Path

from embedbk.errors import UsageError

__all__ = ["write_page"]


def write_page(path: Path, page: str) -> None:
    """Raises UsageError: the file cannot be written."""
    try:
        path.write_text(page, "utf-8")
    except OSError as failed:
        raise UsageError(f"--html {path} cannot be written: {failed}") from failed
