"""Without pyarrow there is no archive to compare copies with."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("pyarrow") is not None else ["test_archived.py"]
