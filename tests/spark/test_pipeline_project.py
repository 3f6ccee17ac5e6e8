"""`embedbk spark init DIR`: what it writes is a project as Spark's own checks demand, and is never written over.

Whether it runs, only a JVM shows; nothing here starts one.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.pipelines.flow import AutoCdcFlow, Flow
from pyspark.pipelines.graph_element_registry import (
    GraphElementRegistry,
    graph_element_registration_context,
)
from pyspark.pipelines.output import MaterializedView, Output, Sink, StreamingTable

from embedbk.cli import main
from embedbk.spark.options import read_options
from embedbk.spark.pipeline_project import SPEC_NAME, write_project
from embedbk.spark.sink_options import sink_options

CLUSTER = "embedbk://127.0.0.1:4001"


def fields_of(spec: str) -> dict[str, str]:
    """The top of a YAML file as this one is: a field and a string of JSON a line."""
    lines = [line for line in spec.splitlines() if line and line[0] not in " #"]
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def constants_of(source: str) -> dict[str, str]:
    tree = ast.parse(source)
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }


@pytest.mark.parametrize("log", ["orders", 'a "log" of \\ 日本 {x}'])
def test_a_project_is_what_spark_pipelines_demands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str
) -> None:
    """Spark's rules of a spec: known fields alone, a name, an absolute URI as storage, a glob of a folder."""
    directory = tmp_path / "my pipeline"
    given = ["spark", "init", str(directory), "--at", CLUSTER, "--log", log, "--json"]
    assert main(given) == 0
    assert json.loads(capsys.readouterr().out) == {
        "directory": str(directory),
        "log": log,
        "into": f"{log}-copy",
    }
    spec = (directory / SPEC_NAME).read_text("utf-8")
    fields = fields_of(spec)
    assert fields.keys() == {"name", "storage", "libraries"}
    assert json.loads(fields["name"]) == "my pipeline"
    assert json.loads(fields["storage"]) == (directory / "pipeline-storage").as_uri()
    assert "include: transformations/**\n" in spec
    (source,) = (directory / "transformations").iterdir()
    assert constants_of(source.read_text("utf-8")) == {"CLUSTER": CLUSTER, "LOG": log, "INTO": f"{log}-copy"}
    assert str(directory) in (directory / "README.md").read_text("utf-8")


def test_nothing_is_written_over_and_no_log_is_copied_to_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine").write_text("mine")
    given = ["spark", "init", str(tmp_path), "--at", CLUSTER, "--log", "orders"]
    assert main(given) == 1
    assert "is there and not empty" in capsys.readouterr().err
    given[2] = str(tmp_path / "other")
    assert main([*given, "--into", "orders"]) == 1
    assert "to itself" in capsys.readouterr().err
    assert main([*given[:3], "--log", "orders"]) == 1  # Of which cluster?
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


class Recorded(GraphElementRegistry):
    """What Spark's decorators register, without a server to send it to."""

    def __init__(self) -> None:
        self.outputs: dict[str, Output] = {}
        self.flows: dict[str, Flow] = {}

    def register_output(self, output: Output) -> None:
        self.outputs[output.name] = output

    def register_flow(self, flow: Flow) -> None:
        self.flows[flow.name] = flow

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        raise AssertionError

    def register_sql(self, sql_text: str, file_path: Path) -> None:
        raise AssertionError


class Reading:
    """Records what a stream is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    @property
    def readStream(self) -> Reading:  # noqa: N802
        return self

    def format(self, name: str) -> Reading:
        self.asked["format"] = name
        return self

    def option(self, name: str, value: str) -> Reading:
        self.asked[name] = value
        return self

    def load(self) -> Reading:
        return self

    def where(self, _: str) -> Reading:
        return self

    def select(self, *names: str) -> Reading:
        self.asked["columns"] = names
        return self


def test_spark_gets_a_table_a_view_a_sink_and_its_flow(tmp_path: Path) -> None:
    """By Spark's own decorators; source and sink understand the options that they are given there."""
    directory = write_project(tmp_path / "p", CLUSTER, "orders", "copy", "python3")
    registry, spark = Recorded(), Reading()
    source = (directory / "transformations" / "entries.py").read_text()
    with graph_element_registration_context(registry):
        exec(compile(source, "entries.py", "exec"), {"spark": spark, "__name__": "entries"})
    assert {name: type(each) for name, each in registry.outputs.items()} == {
        "entries": StreamingTable,
        "ledgers": MaterializedView,
        "into": Sink,
    }
    assert {name: flow.target for name, flow in registry.flows.items()} == {
        "entries": "entries",
        "ledgers": "ledgers",
        "long_entries": "into",
    }
    registry.flows["long_entries"].func()
    assert spark.asked.pop("format") == "embedbk"
    assert spark.asked.pop("columns") == ("value",)
    assert read_options(spark.asked, is_stream=True).names == ("orders",)
    sink = registry.outputs["into"]
    assert isinstance(sink, Sink) and sink.format == "embedbk"
    assert sink_options(sink.options, is_stream=True).log == "copy"
