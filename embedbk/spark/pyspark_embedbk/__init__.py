"""What Spark finds by itself: it imports every top-level package named `pyspark_*` and registers its `DefaultSource`.

It is installed at the top, out of this folder (pyproject.toml). One such package that raises takes all others away from
the session, so where something is missing there is just no source: Spark then says to users of the format that it does
not know it.
"""

import contextlib

with contextlib.suppress(Exception):
    from embedbk.spark.source import EmbedbkSource as DefaultSource  # noqa: F401
