"""Files behind addresses of somebody else's, fetched without being led to places that only this machine can reach.

Only https. The name is resolved once, every address that it has must be public, and the connection goes to one of those
addresses: asking again while connecting would let a name answer differently the second time. Redirects are followed by
hand, and each hop is held to the same.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import urljoin, urlsplit

from agent_memory.errors import InvalidInputError, TooLargeError
from agent_memory.file_data import FileData
from agent_memory.messages.media import media_type_of

TIMEOUT_S: Final = 10.0  # for all of it, redirects included
MAX_REDIRECTS: Final = 3
MAX_BYTES: Final = 25 * 1024 * 1024  # held in memory while it is fetched, however much a deployment takes
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_NAT64: Final = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], Sequence[str]]
Connect = Callable[[str, int, float], socket.socket]


def fetch(
    address: str,
    *,
    max_bytes: int,
    timeout_s: float = TIMEOUT_S,
    resolve: Resolve | None = None,
    connect: Connect | None = None,
    tls: ssl.SSLContext | None = None,
) -> FileData | None:
    """The bytes behind an https address; None for an address of another scheme, which stays what it is.

    Args:
        address: The URL.
        max_bytes: More is refused; so is more than 25 MB.
        timeout_s: For all of it.
        resolve, connect: Name resolution (host and port to IP addresses) and connections (IP address, port and seconds).
        tls: What certificates are trusted.

    Raises:
        InvalidInputError: The address leads nowhere, or to a place that is not public. The message does not tell which.
        TooLargeError: There is more.
    """
    if address[:8].lower() != "https://":
        return None
    limit = min(max_bytes, MAX_BYTES)
    deadline = time.monotonic() + timeout_s
    for _ in range(MAX_REDIRECTS + 1):
        found = _ask(address, limit, deadline, resolve or _resolve, connect or _connect, tls)
        if isinstance(found, FileData):
            return found
        address = found
    raise _unreachable()


def is_public(ip: str) -> bool:
    """Whether an IP address is one of the open internet."""
    try:
        found: Address = ipaddress.ip_address(ip.partition("%")[0])
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo[1] if found.teredo else None)
        if inner is not None or any(found in network for network in _NAT64):
            # An IPv4 address in disguise: nobody needs one, and what it leads to depends on the network.
            return False
    return found.is_global and not (
        found.is_multicast or found.is_reserved or found.is_private or found.is_loopback or found.is_link_local
    )


class _Pinned(http.client.HTTPSConnection):
    """A connection over a socket that leads to an address that was checked."""

    def __init__(self, host: str, port: int, wire: ssl.SSLSocket) -> None:
        super().__init__(host, port)
        self.sock = wire

    def connect(self) -> None:
        raise http.client.NotConnected  # never anew: that would ask for the address again


def _ask(
    address: str, limit: int, deadline: float, resolve: Resolve, connect: Connect, tls: ssl.SSLContext | None
) -> FileData | str:
    """The bytes, or where the answer sends us."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        raise _unreachable() from None
    if parts.scheme != "https" or not host or parts.username is not None or parts.password is not None:
        raise _unreachable()
    wire: ssl.SSLSocket | None = None
    try:
        ips = list(dict.fromkeys(resolve(host, port)))
        if not ips or not all(is_public(ip) for ip in ips):
            raise _unreachable()
        sock = connect(ips[0], port, _left(deadline))
        context = tls or ssl.create_default_context()
        wire = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        # Time-outs of single reads do not bound an answer that comes a byte at a time; this does.
        cut = threading.Timer(_left(deadline), _shut, (wire,))
        cut.daemon = True
        cut.start()
        try:
            wire.do_handshake()
            found = _exchange(_Pinned(host, port, wire), address, limit)
            _left(deadline)  # an answer without a length that was cut off looks like one that has ended
            return found
        finally:
            cut.cancel()
    except (OSError, http.client.HTTPException, ValueError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise _unreachable() from None
    finally:
        if wire is not None:
            wire.close()


def _exchange(connection: _Pinned, address: str, limit: int) -> FileData | str:
    parts = urlsplit(address)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection.request("GET", path, headers={"accept": "*/*", "accept-encoding": "identity", "connection": "close"})
    with connection.getresponse() as answer:
        location = answer.headers.get("location")
        if answer.status in _REDIRECTS and location:
            return urljoin(address, location)
        if answer.status != 200:
            raise _unreachable()
        said = answer.headers.get("content-length") or ""
        size = int(said) if said.isdigit() else 0
        data = b"" if size > limit else answer.read(limit + 1)
        if max(size, len(data)) > limit:
            raise TooLargeError(
                f"expected a remote file of at most {limit} bytes, found more; upload it instead",
                code="ATTACHMENT_TOO_LARGE",
            )
        if len(data) < size:
            raise _unreachable()
        kind = answer.headers.get_content_type() if answer.headers.get("content-type") else None
        return FileData(data, kind or media_type_of(address))


def _shut(wire: ssl.SSLSocket) -> None:
    with contextlib.suppress(OSError):
        # Of the socket below: the other side must not be waited for.
        socket.socket.shutdown(wire, socket.SHUT_RDWR)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _resolve(host: str, port: int) -> list[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


def _connect(ip: str, port: int, timeout_s: float) -> socket.socket:
    return socket.create_connection((ip, port), timeout=timeout_s)


def _unreachable() -> InvalidInputError:
    # The same for all of them: which addresses answer here is nobody's business.
    return InvalidInputError(
        "messages",
        "expected remote files behind public https addresses, found one that could not be fetched; upload it instead",
        code="ATTACHMENT_NOT_FETCHED",
    )
