"""Official artifacts of a peer that runs on Java, as a `.pom.xml` beside this file names them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from benchmarks.peers.peer import Absent, require

__all__ = ["jars_of"]

HERE = Path(__file__).parent
KEPT = HERE.parents[1] / ".run"


def jars_of(pom: str, version: str) -> Path:
    """The directory of the jars that `pom` names; Maven fetches them once, and they stay until `./run clean`.

    Raises:
        Absent: there is no Maven, or it cannot fetch them.
    """
    place = KEPT / f"{pom}-{version}"
    if not place.exists():
        maven = require("mvn", "maven")
        half = place.with_suffix(".part")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={half}"]
        fetched = subprocess.run(
            [maven, "-q", "-B", "-f", str(HERE / f"{pom}.pom.xml"), *goal],
            capture_output=True,
            text=True,
        )
        if fetched.returncode:
            shutil.rmtree(half, ignore_errors=True)
            raise Absent(f"its artifacts could not be fetched: {fetched.stdout.strip()[-300:]}")
        half.rename(place)
    return place
