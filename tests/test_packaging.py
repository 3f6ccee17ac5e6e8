"""What a user gets: a sdist that builds anywhere, and one wheel for CPython 3.11 and newer that carries everything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
PARTS = ("pyproject.toml", "README.md", "LICENSE", "embedbk", "native", "transports")
FOR_SPARK = "embedbk/spark/pyspark_embedbk"  # Installed at the top.
BUILT = shutil.ignore_patterns("__pycache__", "*.so", "*.o", "*.egg-info")

pytestmark = pytest.mark.xdist_group("packaging")  # One build for all of them.


def run(*words: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy: a build leaves files in its tree."""
    room = tmp_path_factory.mktemp("sdist")
    tree = room / "tree"
    tree.mkdir()
    for part in PARTS:
        if (PROJECT / part).is_dir():
            shutil.copytree(PROJECT / part, tree / part, symlinks=True, ignore=BUILT)
        elif (PROJECT / part).exists():
            shutil.copy(PROJECT / part, tree / part)
    script = "import sys, build_backend; build_backend.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", script, room, cwd=tree, PYTHONPATH=str(tree / "native"))
    return next(room.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """Made from the sdist alone, as an installer does."""
    # What the build needs is in the environment already (pyproject's `dev`), so no package index is asked.
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-cache-dir")
    run(*pip, "-w", sdist.parent, sdist, cwd=sdist.parent)
    return next(sdist.parent.glob("*.whl"))


def tracked(folder: str, suffixes: tuple[str, ...]) -> set[str]:
    paths = (PROJECT / folder).rglob("*")
    return {str(path.relative_to(PROJECT)) for path in paths if path.suffix in suffixes}


def test_the_sdist_has_every_native_source_and_both_build_scripts(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert tracked("native", (".c", ".h", ".py", ".md")) <= names
    assert "LICENSE" in names


def test_the_wheel_is_one_for_all_versions_and_has_every_module(wheel: Path) -> None:
    assert "-cp311-abi3-" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "embedbk/_native.abi3.so" in names
    elsewhere = tracked("embedbk/transports", (".py",)) | tracked(FOR_SPARK, (".py",))
    assert tracked("embedbk", (".py", ".pyi", ".typed", ".md")) - elsewhere <= names
    assert "pyspark_embedbk/__init__.py" in names
    assert not {name for name in names if name.startswith(FOR_SPARK)}
    assert {f"embedbk/{name}" for name in tracked("transports", (".py",))} <= names
    assert "embedbk/py.typed" in names
    tops = {"embedbk", "pyspark_embedbk"}  # The second is Spark's to find (embedbk/spark/pyspark_embedbk).
    strangers = {name for name in names if name.split("/")[0] not in tops and ".dist-info/" not in name}
    assert not strangers


def test_the_wheel_imports_where_there_is_no_source_tree(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    script = "import embedbk, embedbk.transports, embedbk.codec.kernels; print(embedbk.__file__)"
    found = run(sys.executable, "-c", script, cwd=elsewhere, PYTHONPATH=str(site))
    assert Path(found.strip()) == site / "embedbk" / "__init__.py"
