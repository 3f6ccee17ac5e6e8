"""`CREATE TABLE t USING embedbk OPTIONS (...)`: what a table was made with, where its readers and writers find it.

Spark gives a table's options to `schema()` only, and none to reader and writer; but it keeps the schema. So the options
stand in the metadata of the first column. A password never does: anybody who reads the catalog would have it.

Rows that were read carry that metadata along, into whatever they are written to: it names their own log, and not the
one of the table that they are inserted into. Spark replaces it by the table's only where it renames or casts a column,
and then takes the type out of it that a column of varchar was declared with. So that stands in ours as well, and a
writer that finds it there has not been told where to write.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

from embedbk.errors import UsageError

__all__ = ["options_for", "options_of_writer", "with_options"]

_KEY = "embedbk"
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"  # Spark's; a type as SQL has it.
_SECRET = "password"


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, and in its first column what was given."""
    kept = {name: value for name, value in options.items() if name.lower() != _SECRET}
    first, *others = schema.fields
    metadata = {_KEY: kept, _DECLARED: first.dataType.simpleString()}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *others])


def options_for(options: Mapping[str, str], schema: StructType, allowed: tuple[str, ...]) -> dict[str, str]:
    """What was given now; where that is nothing, what the table was made with, as far as it is allowed here."""
    if options:
        return dict(options)
    known = {name.lower() for name in allowed}
    made_with = schema.fields[0].metadata.get(_KEY, {}) if schema.fields else {}
    return {name: value for name, value in made_with.items() if name.lower() in known}


def options_of_writer(
    options: Mapping[str, str], schema: StructType, allowed: tuple[str, ...]
) -> dict[str, str]:
    """As `options_for`. Raises UsageError: neither they nor a table says where to write."""
    metadata = schema.fields[0].metadata if schema.fields else {}
    if not options and (_KEY not in metadata or _DECLARED in metadata):
        raise UsageError(
            "nothing says which log these rows are for: they have no options, and Spark names the table that they are "
            "inserted into only where it renames or casts a column; nothing was written",
            hint='.option("cluster", url).option("log", name), or INSERT INTO copy SELECT value AS v FROM orders',
        )
    return options_for(options, schema, allowed)
