"""A program of a user of Spark Connect, in a process of its own: a session of Connect and one of another kind do not go
together in one. Told the cluster and a directory, it says as JSON what it saw."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException

import embedbk.spark
from embedbk.spark.session import SHORT_LIVED

ROWS = 20_000


def main(url: str, directory: Path) -> dict[str, Any]:
    spark = embedbk.spark.session("embedbk connect", remote="local[2]", config=SHORT_LIVED)
    told: dict[str, Any] = {"session": type(spark).__module__}
    frame = spark.range(0, ROWS, numPartitions=4).selectExpr("cast(id AS string) AS value")
    sink = frame.write.format("embedbk").options(cluster=url, log="lines", inlineMaxBytes="30000")
    sink.mode("append").save()
    table = spark.read.format("embedbk").options(cluster=url, log="lines", pushdown="true").load()
    told["rows_behind"] = table.where("offset >= 100").count()
    stream = spark.readStream.format("embedbk").options(cluster=url, log="lines", startingOffsets="earliest")
    for _ in range(2):
        copy = stream.load().select("value").writeStream.format("embedbk").options(cluster=url, log="copy")
        copy = copy.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
        told["has_ended"] = copy.start().awaitTermination(200)
    try:
        spark.read.format("embedbk").options(cluster=url, log="nobody").load().count()
    except PySparkException as failed:
        told["failed"] = str(failed)
    spark.stop()
    return told


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
