"""What all tests share: only the machine's loopback, and no state of a user's own."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.campaigns import LIMIT_S, is_campaign

_LIBC = ctypes.CDLL(None)

# Before anything starts a JVM or asks for a proxy: a test speaks to this machine only.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
for name in [name for name in os.environ if name.startswith("EMBEDBK_")]:
    del os.environ[name]

# Hundreds of processes are started. What one has compiled the next one loads, in half the time; the tree and the
# environment stay as they are, and workers have the folder of whoever started them.
if "PYTHONPYCACHEPREFIX" not in os.environ:
    os.environ["PYTHONPYCACHEPREFIX"] = tempfile.mkdtemp(prefix="embedbk-tests-bytecode-")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    atexit.register(shutil.rmtree, os.environ["PYTHONPYCACHEPREFIX"], ignore_errors=True)

# The public suite of transports is no test module by its name, so its asserts are told apart only when asked for. Here:
# tests of several folders import it.
pytest.register_assert_rewrite("embedbk.transports.conformance")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests first: one worker is busy with them while the other does the many short ones. The ten minutes
    that a test may take are for every run; they ended campaigns that were told to take longer."""
    items.sort(key=lambda item: not any(item.iter_markers("xdist_group")))
    if is_campaign(config):
        for item in items:
            item.add_marker(pytest.mark.timeout(LIMIT_S), append=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Give the system back what a module's simulated worlds have freed, which glibc keeps in pieces. No test may stop
    the collector for others: their worlds would stay, some 10 MB and ten descriptors each."""
    yield
    assert gc.isenabled(), "this test leaves the collector stopped, for all that come behind it"
    if (nextitem is None or nextitem.path != item.path) and hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)


# Machines are shared, so no example is timed; and the same examples for everybody, so that a red run can be repeated.
settings.register_profile("embedbk", deadline=None, derandomize=True)
settings.load_profile("embedbk")
