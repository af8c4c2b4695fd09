"""The addresses of this machine and their interfaces. Asks the C library; changes nothing."""

from __future__ import annotations

import ctypes
import ipaddress
import socket
import struct
from collections.abc import Iterator

from mgpu_agent.protocol.meeting import Way

_IFF_UP = 0x1
_V4_LENGTH, _V6_LENGTH = 4, 16


class _SockAddr(ctypes.Structure):
    _fields_ = (("family", ctypes.c_ushort), ("data", ctypes.c_ubyte * 26))


class _IfAddrs(ctypes.Structure):
    pass


_IfAddrs._fields_ = (
    ("next", ctypes.POINTER(_IfAddrs)),
    ("name", ctypes.c_char_p),
    ("flags", ctypes.c_uint),
    ("address", ctypes.POINTER(_SockAddr)),
)


def ways_here(announced: str) -> tuple[Way, ...]:
    """Return the addresses by which this machine may be reached: the announced one first, loopback last."""
    found = list(dict.fromkeys(_addresses()))
    if announced and announced not in {way.address for way in found}:
        found.append(Way(announced))
    return tuple(sorted(found, key=lambda way: _order(way.address, announced)))


def _order(address: str, announced: str) -> tuple[bool, bool, int]:
    try:
        known = ipaddress.ip_address(address)
    except ValueError:  # a host name
        return False, address != announced, 4
    return known.is_loopback, address != announced, known.version


def _addresses() -> Iterator[Way]:
    """Yield every address of an interface that is up, except link-local ones."""
    libc = ctypes.CDLL(None, use_errno=True)
    first = ctypes.POINTER(_IfAddrs)()
    if libc.getifaddrs(ctypes.byref(first)) != 0:
        return
    try:
        entry = first
        while entry:
            one = entry.contents
            text = _text(one.address.contents) if one.address and one.flags & _IFF_UP else ""
            if text and not ipaddress.ip_address(text).is_link_local:
                yield Way(text, one.name.decode(errors="replace"))
            entry = one.next
    finally:
        libc.freeifaddrs(first)


def _text(address: _SockAddr) -> str:
    data = bytes(address.data)
    if address.family == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, struct.unpack_from(f"{_V4_LENGTH}s", data, 2)[0])
    if address.family == socket.AF_INET6:
        return socket.inet_ntop(socket.AF_INET6, struct.unpack_from(f"{_V6_LENGTH}s", data, 6)[0])
    return ""
