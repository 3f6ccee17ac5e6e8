"""A descriptor that ZeroMQ named may be another's by the time it is asked about: nothing of that is kept open."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from embedbk.transports.zmq_descriptors import shut_down, swallowed_bytes, user_of


@pytest.mark.parametrize("ask", [swallowed_bytes, user_of, shut_down])
def test_a_pipe_that_has_the_number_by_now_ends_when_its_owner_closes_it(
    ask: Callable[[int], object],
) -> None:
    """(subprocess.run waited for ever for the end of a child's output: its pipe had the number of a link that was gone,
    and a copy of that was never closed.)"""
    reader, writer = os.pipe()
    try:
        assert not ask(writer)
        os.close(writer)
        os.set_blocking(reader, False)
        assert os.read(reader, 1) == b"", "nobody holds the other end any more"
    finally:
        os.close(reader)
