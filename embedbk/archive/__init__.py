"""Closed ledgers of logs kept as Parquet files (P8.14): copied, verified and restored, with pyarrow and without Spark.

The layout, and what can fail: `ARCHIVE.md`. `embedbk.spark.archiving` spreads the same tasks over executors.
"""
