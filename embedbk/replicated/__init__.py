"""An application's state, the same on several nodes: kept by a log of its commands and by snapshots.

with embedbk.open("embedbk://10.0.0.1:4001") as bk, ReplicatedDict(bk, "settings") as settings:
    with settings.lead():           # one at a time; the leader before can change nothing any more
        settings["colour"] = "blue"
    settings.follow()               # in every process; `settings.freshness` tells how fresh it is
"""

from embedbk.replicated.dictionary import ReplicatedDict
from embedbk.replicated.machine import StateMachine
from embedbk.replicated.replica import Freshness, Leader, Replica
from embedbk.replicated.sqlite import ReplicatedSqlite

__all__ = ["Freshness", "Leader", "Replica", "ReplicatedDict", "ReplicatedSqlite", "StateMachine"]
