"""What a cluster's metadata says, as tables: `embedbk sql`, Spark's option `view`, and Python (VIEWS.md)."""

from embedbk.views.sql import sql
from embedbk.views.tables import VIEWS, MetadataView, view

__all__ = ["VIEWS", "MetadataView", "sql", "view"]
