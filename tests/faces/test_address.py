"""Addresses: there and back."""

from __future__ import annotations

import pytest

from embedbk.client.address import endpoints_of, url_of
from embedbk.errors import UsageError


@pytest.mark.parametrize(
    ("url", "endpoints"),
    [
        ("embedbk://127.0.0.1:7000", ["tcp://127.0.0.1:7000"]),
        ("embedbk://a:1,b:2,[::1]:3", ["tcp://a:1", "tcp://b:2", "tcp://[::1]:3"]),
        ("embedbk://ipc:/run/m1,ipc:/run/m2", ["ipc:///run/m1", "ipc:///run/m2"]),
        ("embedbk://ipc:/run/m1,127.0.0.1:9", ["ipc:///run/m1", "tcp://127.0.0.1:9"]),
    ],
)
def test_an_address_names_endpoints_and_back(url: str, endpoints: list[str]) -> None:
    assert endpoints_of(url) == endpoints
    assert url_of(endpoints) == url


def test_an_endpoint_inside_this_process_has_no_address() -> None:
    with pytest.raises(UsageError, match="other processes"):
        url_of(["local://any-1"])


def test_an_address_names_a_bounded_number_of_members() -> None:
    with pytest.raises(UsageError, match="at most 16"):
        endpoints_of("embedbk://" + ",".join(f"h:{port}" for port in range(1, 18)))
