"""Build backend: setuptools, and the three things that pyproject.toml has no words for.

- The C module is described by a cffi script (`build_native.py`), so there is no setup.py for one line.
- Editable installs are strict: type checkers and Spark workers then see the same packages as the interpreter,
  also `embedbk.transports`, which is a link. The price: a new file asks for a new install (`./run` does it).
- A sdist carries the C sources, their headers and these scripts (so there is no MANIFEST.in for one line).
"""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import setuptools
from setuptools import build_meta
from setuptools.build_meta import (
    build_sdist,
    build_wheel,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.sdist import sdist

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None


class SdistWithNative(sdist):
    """Every file of `native/` travels, whichever of them the extension lists as sources."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        native = [str(path) for path in sorted(Path("native").rglob("*")) if path.is_file()]
        super().make_release_tree(base_dir, sorted({*files, *native}))


# build_meta runs "from setuptools import setup; setup()" where there is no setup.py, and so calls this one.
setuptools.setup = functools.partial(
    setuptools.setup, cffi_modules=["native/build_native.py:ffi"], cmdclass={"sdist": SdistWithNative}
)


def _strict(settings: Settings) -> dict[str, Any]:
    return {"editable_mode": "strict", **(settings or {})}


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    return build_meta.build_editable(wheel_directory, _strict(config_settings), metadata_directory)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Settings = None) -> str:
    return build_meta.prepare_metadata_for_build_editable(metadata_directory, _strict(config_settings))
