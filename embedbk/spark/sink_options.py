"""The options of `format("embedbk")` for writing: each is checked before any cluster is asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from embedbk.codec.log_splices import APPLICATION_MAX
from embedbk.errors import UsageError
from embedbk.ids import LEDGER_ID_MAX, check_log_name, is_text
from embedbk.spark.options import DIGITS_MAX, SECONDS_MAX, cluster_of

__all__ = ["OF_SINK", "SinkOptions", "sink_options"]

INLINE_BYTES_MAX = 1 << 20
STAGED_SECONDS = 86_400

OF_BOTH = (
    "cluster",
    "log",
    "password",
    "orderBy",
    "txnAppId",
    "inlineMaxBytes",
    "stagedSeconds",
    "commitSeconds",
    "onReplay",
)
OF_BATCH = ("txnVersion",)
OF_SINK = OF_BOTH + OF_BATCH
# A stream's checkpoint directory and name. Spark passes both to the sink as well, which needs neither.
OF_SPARK = ("checkpointlocation", "queryname")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where to write, and how; plain data, for it travels to the executors."""

    cluster: str
    log: str
    password: bytes
    order_by: str  # The column that gives the order; empty: partition order.
    application: str  # Empty: of a stream its query id, of a batch one of its own.
    number: int
    inline_bytes_max: int
    staged_s: float
    commit_s: float | None
    may_replay: bool = True  # A transaction that was done before is passed over; else it is an error.


def sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    """Raises UsageError: an option is missing, unknown or not allowed."""
    allowed = OF_BOTH if is_stream else OF_BOTH + OF_BATCH
    known = {name.lower() for name in allowed}
    given = {name.lower(): value for name, value in options.items()}
    if is_stream:
        for name in OF_SPARK:
            given.pop(name, None)
    for name in sorted(given):
        if name not in known:
            what = "a stream's sink" if is_stream else "a batch's sink"
            raise UsageError(f"option {name} is none of {what}: allowed are {', '.join(allowed)}")
    if not given.get("log"):
        raise UsageError(
            "option log missing: the log that is written to",
            hint='df.write.format("embedbk").option("cluster", url).option("log", name).mode("append").save()',
        )
    application = given.get("txnappid", "")
    if len(application) > APPLICATION_MAX or not is_text(application):
        raise UsageError(
            f"option txnAppId={application!r:.80}: allowed are 1 to {APPLICATION_MAX} characters"
        )
    if not is_stream and bool(application) != ("txnversion" in given):
        raise UsageError(
            "options txnAppId and txnVersion stand together: an application, and the number of this transaction"
        )
    return SinkOptions(
        cluster=cluster_of(given),
        log=check_log_name(given["log"]),
        password=given.get("password", "").encode(),
        order_by=given.get("orderby", ""),
        application=application,
        number=_number(given, "txnVersion", 0),
        inline_bytes_max=_number(given, "inlineMaxBytes", INLINE_BYTES_MAX),
        staged_s=_number(given, "stagedSeconds", STAGED_SECONDS, SECONDS_MAX),
        commit_s=_number(given, "commitSeconds", 0, SECONDS_MAX) or None,
        may_replay=_may_replay(given),
    )


def _may_replay(given: Mapping[str, str]) -> bool:
    value = given.get("onreplay", "skip")
    if value not in ("skip", "fail"):
        raise UsageError(f"option onReplay={value!r}: allowed are skip and fail")
    return value == "skip"


def _number(given: Mapping[str, str], name: str, default: int, most: int = LEDGER_ID_MAX) -> int:
    value = given.get(name.lower())
    if value is None:
        return default
    if not value.isdecimal() or len(value) > DIGITS_MAX or int(value) > most:
        raise UsageError(f"option {name}={value!r:.80}: a whole number from 0 to {most} is allowed")
    return int(value)
