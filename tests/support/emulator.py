"""The emulator for tests: one process for a test session, started when the first test asks for it."""

from __future__ import annotations

import atexit
import functools
import threading
from typing import Any

import boto3

from infra.local.emulator import REGION, Emulator


class SharedEmulator(Emulator):
    """The emulator, with one session behind all clients: a session reads the description of a service for a tenth of a second."""

    def __init__(self) -> None:
        super().__init__()
        self._session = boto3.session.Session(
            aws_access_key_id="test", aws_secret_access_key="test", region_name=REGION
        )
        self._one_at_a_time = threading.Lock()

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client for it, with hooks of its own."""
        with self._one_at_a_time:
            make: Any = self._session.client
            return make(service, endpoint_url=self.endpoint, **options)


@functools.cache
def shared_emulator() -> Emulator:
    """The session's emulator. It keeps nothing and ends with the process."""
    emulator = SharedEmulator().start()
    atexit.register(emulator.stop)
    return emulator
