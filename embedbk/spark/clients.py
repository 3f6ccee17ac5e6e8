"""One embedbk client for each cluster in this process: Spark uses its Python workers again, for task after task.

A client that is made for a task costs a session and a look at the bookies; a stream's tasks last a tenth of a second.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading

import embedbk
from embedbk.client.client import Client
from embedbk.config import Settings
from embedbk.errors import MetadataUnavailable
from embedbk.forking import free_in_children

__all__ = ["client_of", "close_clients"]

JOB = Settings(reads_as="batch")  # Bookies serve a job's reads behind those of readers that wait (P6.7).

_WORKERS = "pyspark.daemon"  # What the processes that run tasks were started as.
_lock = free_in_children(threading.Lock())
_clients: dict[tuple[int, str], Client] = {}


def client_of(cluster: str) -> Client:
    """The client of the cluster at this address; it stays open until the process ends.

    A worker that was forked has none of its parent's clients.

    Raises:
        MetadataUnavailable: nobody answers there.
    """
    with _lock:
        key = os.getpid(), cluster
        client = _clients.get(key)
        if client is None:
            try:
                client = _clients[key] = embedbk.open(cluster, settings=JOB)
                _keep_modules_out_of_collections()
            except MetadataUnavailable as away:
                away.hint = 'start that cluster, or give the address of one that runs: option("cluster", url)'
                raise
        return client


def _keep_modules_out_of_collections() -> None:
    """A worker of Spark collects garbage behind each task, which walks through every module that is loaded: 40 ms of a
    task whose entries take a second. What is there by now stays for as long as the worker, as modules do."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is not None and main.name == _WORKERS:
        gc.freeze()


@atexit.register
def close_clients() -> None:
    """Close all clients of this process; a later read opens them anew."""
    with _lock:
        for (pid, _), client in _clients.items():
            if pid == os.getpid():
                client.close()
        _clients.clear()
