"""URLs of UNIX sockets: written, read back, and told apart from those of networks."""

from __future__ import annotations

from mgpu_jupyter.client.connecting import socket_path, unix_url
from mgpu_jupyter.client.discovery import Address, locate


def test_a_path_with_blanks_and_slashes_comes_back() -> None:
    url = unix_url("/run/my dir/m.sock", "/base/")

    assert url == "http+unix://%2Frun%2Fmy%20dir%2Fm.sock/base/"
    assert (socket_path(url), socket_path("http://localhost:1/")) == ("/run/my dir/m.sock", None)


def test_a_socket_named_by_url_is_taken_as_it_is() -> None:
    url = unix_url("/run/m.sock")

    assert locate(None, None, {"MGPU_URL": url.rstrip("/"), "MGPU_TOKEN": "t"}) == Address(url, "t")
