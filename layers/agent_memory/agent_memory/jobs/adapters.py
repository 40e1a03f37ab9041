"""The adapters that jobs need, by what they must be able to do. Each raises ConfigurationError where there is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent_memory.errors import ConfigurationError
from agent_memory.ports.archive import Archive
from agent_memory.ports.portable import PortableStore

if TYPE_CHECKING:
    from agent_memory.agent.services import Services
    from agent_memory.ports import MessageStore


def store_of(services: Services) -> MessageStore:
    """Threads and messages."""
    if services.store is None:
        raise ConfigurationError("this job needs the message store; set THREADS_TABLE and MESSAGES_TABLE")
    return services.store


def portable_of(services: Services) -> PortableStore:
    """A message store that hands out and takes whole histories."""
    store: object = services.store
    if not isinstance(store, PortableStore):
        raise ConfigurationError("this job needs a message store that hands out and takes whole histories")
    return store


def blobs_of(services: Services) -> Archive:
    """A bucket."""
    if not isinstance(services.blobs, Archive):
        raise ConfigurationError("this job needs a bucket; set ATTACHMENTS_BUCKET", code="SETTING_MISSING")
    return services.blobs
