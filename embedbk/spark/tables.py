"""`CREATE TABLE t USING embedbk OPTIONS (...)`: what a table was made with, where its readers and writers find it.

Spark gives a table's options to `schema()` only, and none to reader and writer; but it keeps the schema. So the options
stand in the metadata of the first column. A password never does: anybody who reads the catalog would have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

__all__ = ["options_for", "with_options"]

_KEY = "embedbk"
_SECRET = "password"


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, and in its first column what was given."""
    kept = {name: value for name, value in options.items() if name.lower() != _SECRET}
    first, *others = schema.fields
    return StructType([StructField(first.name, first.dataType, first.nullable, {_KEY: kept}), *others])


def options_for(options: Mapping[str, str], schema: StructType, allowed: tuple[str, ...]) -> dict[str, str]:
    """What was given now; where that is nothing, what the table was made with, as far as it is allowed here."""
    if options:
        return dict(options)
    known = {name.lower() for name in allowed}
    made_with = schema.fields[0].metadata.get(_KEY, {}) if schema.fields else {}
    return {name: value for name, value in made_with.items() if name.lower() in known}
