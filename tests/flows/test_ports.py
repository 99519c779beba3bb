"""Services that start at the same time take different ports."""

from __future__ import annotations

import socket
from pathlib import Path

from flows.server_process import _listen
from flows.service_launch import reserved_port


def test_a_port_reserved_by_one_start_is_not_given_to_another() -> None:
    with reserved_port(0) as first, reserved_port(first) as second:
        assert second != first
        # It is only reserved: the service itself can take it.
        with socket.create_server(("127.0.0.1", first)):
            pass
    with reserved_port(first) as again:
        assert again == first


def test_a_port_in_use_is_not_given_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with reserved_port(port) as other:
            assert other != port


def test_the_managed_server_answers_without_delay(tmp_path: Path) -> None:
    # asyncio sets TCP_NODELAY only on sockets whose protocol says TCP; accepted ones inherit it.
    with _listen(tmp_path) as listener:
        assert listener.proto == socket.IPPROTO_TCP
