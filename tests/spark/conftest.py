"""Without Spark there is nothing to drive: `./run check` collects all tests where only the tools are installed."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("pyspark") is not None else ["test_source.py"]
