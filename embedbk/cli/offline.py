"""How the commands that read what is stored take a directory, show what they found and end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from embedbk.errors import UsageError
from embedbk.storage.findings import Finding, Findings

__all__ = ["CLEAN", "DAMAGED", "USAGE", "Shown", "existing_directory", "tell"]

CLEAN, DAMAGED, USAGE = 0, 1, 2  # Exit codes.


class Shown:
    """Results on standard output, damage and notes where they belong."""

    def __init__(self, is_json: bool) -> None:
        self.is_json = is_json

    def line(self, data: dict[str, Any], text: str) -> None:
        print(json.dumps(data, separators=(",", ":")) if self.is_json else text)

    def finding(self, finding: Finding) -> None:
        self.line(finding.as_data(), f"{'DAMAGE' if finding.is_damage else 'note'}  {finding}")


def existing_directory(path: Path) -> Path:
    try:
        os.listdir(path)
    except NotADirectoryError:
        raise UsageError(f"{path} is not a directory", hint="give the directory that it stands in") from None
    except OSError as refused:
        raise UsageError(f"directory {path} cannot be read: {refused.strerror}") from refused
    return path


def tell(findings: Findings, shown: Shown) -> int:
    """Damage and notes behind the results; in text on standard error, so that results can be piped."""
    for finding in findings.found:
        if shown.is_json:
            shown.finding(finding)
        else:
            print(f"{'DAMAGE' if finding.is_damage else 'note'}  {finding}", file=sys.stderr)
    return DAMAGED if findings.damage_count else CLEAN
