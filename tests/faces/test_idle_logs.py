"""What an idle writer of a log consists of, since there may be very many in one process."""

from __future__ import annotations

import gc
from collections import Counter

from embedbk.testing import Cluster

COUNT = 30
ITS_OWN = ("embedbk.client.", "embedbk.host.", "_thread")
# One of each. A kind that is added here is one that each of 10,000 idle logs pays for: `log/10k/memory`.
OF_AN_IDLE_LOG = {
    "Appending",
    "LogWriter",
    "Owning",
    "Past",
    "RollBounds",
    "Signal",
    "Succession",
    "Tenure",
    "Writing",
    "_LedgerFailed",
}


def counted() -> Counter[str]:
    """The objects that handles are made of, by kind; locks, which the collector does not list, among them."""
    gc.collect()
    found: dict[int, object] = {}
    for each in gc.get_objects():
        for held in (each, *gc.get_referents(each)):
            if str(type(held).__module__).startswith(ITS_OWN):
                found[id(held)] = held
    return Counter(type(each).__name__ for each in found.values())


def grown_since(before: Counter[str]) -> dict[str, int]:
    """Kinds of which there is one more, or nearly, for each writer."""
    return {kind: count for kind, count in (counted() - before).items() if count >= COUNT // 2}


def test_an_idle_writer_of_a_log_is_few_objects() -> None:
    """P8.1, P8.2: what it needs to roll, to be replaced, to keep a bound or to know producers is made when it is first
    needed; locks and terms are shared."""
    with Cluster(seed=31, bookies=3) as cluster:
        client = cluster.client("w")
        client.log("first").writer().append(b"x")
        cluster.run_for(5.0)
        before = counted()
        writers = [client.log(f"log-{number}").writer() for number in range(COUNT)]
        for writer in writers:
            writer.append(b"x")
        cluster.run_for(5.0)
        assert grown_since(before) == dict.fromkeys(OF_AN_IDLE_LOG, COUNT)
        for writer in writers:
            writer.close()
        cluster.run_for(5.0)
        before = counted()
        again = [client.log(f"log-{number}").writer() for number in range(COUNT)]
        cluster.run_for(5.0)
        assert grown_since(before) == dict.fromkeys((*OF_AN_IDLE_LOG, "_Tail"), len(again))
