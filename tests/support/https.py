"""TLS for the HTTP servers of tests."""

from __future__ import annotations

import ssl


def server_context(certificate):
    """The context of a server that shows `certificate` (an `infra.local.emulator.Certificate`)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.file, certificate.key)
    return context


def serve_tls(server, context):
    """Let a server that does not run yet speak TLS where a context is given; the scheme of its address."""
    if context is None:
        return "http"
    # Each connection shakes hands in its own thread, at its first read.
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    return "https"
