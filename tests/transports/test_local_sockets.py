"""Local sockets (`ipc`): only this process's own user and root are at the other end (T10).

The system says of no local socket how much came on it, so what others send there could not be bounded by its bytes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedbk.transports.conformance import Arena
from embedbk.transports.endpoints import ipc_users
from tests.transports.arenas import TcpArena
from tests.transports.test_zmq import still_serves

OTHER_USER = 65_534

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a while")

CALLER = f"""
import os, socket, sys
os.seteuid({OTHER_USER})
with socket.socket(socket.AF_UNIX) as caller:
    caller.settimeout(20)
    caller.connect(sys.argv[1])
    try:
        print(len(caller.recv(100)))
    except ConnectionResetError:
        print(0)
"""

LISTENER = f"""
import os, socket, sys
os.seteuid({OTHER_USER})
with socket.socket(socket.AF_UNIX) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def arena() -> Iterator[Arena]:
    arena = TcpArena()
    yield arena
    arena.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to every user, unlike those that pytest gives."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o777)
        yield Path(made)


def test_another_user_is_not_even_greeted(arena: Arena, folder: Path) -> None:
    """T10: it is hung up on before a byte of it is read, also where the path is open to everybody."""
    node = arena.node("b")
    endpoint = node.transport.listen(f"ipc://{folder}/open")
    (folder / "open").chmod(0o777)
    call = [sys.executable, "-c", CALLER, str(folder / "open")]
    said = subprocess.run(call, capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.strip() == "0"
    node.events += node.transport.receive(time.monotonic_ns())
    assert node.events == []
    still_serves(arena, node, endpoint)


def test_a_listener_of_another_user_gets_no_link(arena: Arena, folder: Path) -> None:
    """T10: whoever may write into a folder may listen there."""
    command = [sys.executable, "-c", LISTENER, str(folder / "theirs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        node = arena.node("a")
        link = node.transport.connect(f"ipc://{folder}/theirs")
        arena.run([node], lambda: node.is_down(link))
        process.kill()
    assert f"another user (uid {OTHER_USER}) listens at ipc://{folder}/theirs" in node.reason(link)


def test_who_may_be_there() -> None:
    """T10: both can end this process without any message."""
    assert ipc_users() == {os.geteuid(), 0}
