"""The structs in C behind what a host hands on by its ports, for the modules here that import the compiled module.

No port names them: a host passes on an add path, or a bookie of its loop, as it got it. What implements such a port in
C keeps its struct as `handle`, and C refuses one of another kind.
"""

from __future__ import annotations

from typing import Any

from embedbk.ports.add_path import AddPath
from embedbk.ports.adds import Near

__all__ = ["near_struct", "path_struct"]


def path_struct(path: AddPath) -> Any:
    """That of native/road/add_path.h."""
    return path.handle  # type: ignore[attr-defined]


def near_struct(near: Near) -> Any:
    """That of native/road/near.h."""
    return near.handle  # type: ignore[attr-defined]
