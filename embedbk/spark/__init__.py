"""embedbk under Apache Spark: `session()` and the data source `format("embedbk")`.

Importing this package imports neither pyspark nor pyarrow; `pip install embedbk[spark]` brings both.
"""

from embedbk.spark.session import session

__all__ = ["session"]
