"""The indexes behind a name: the one that is searched, the one being built to take its place, and one that goes.

A name is an alias. Indexes are numbered: ``<name>.1`` and up. ``<name>.building`` is the alias of the one being built, and
``<name>.old`` of one that was replaced and not removed yet. An index is created together with its alias, and one request
moves all aliases, so a crash leaves nothing that the next call would not understand. Serverless collections take all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from agent_memory.aws._opensearch_client import translated
from agent_memory.errors import ConfigurationError, UnavailableError

Described = tuple[str, dict[str, Any]]
"""An index's own name, and its mappings and settings."""


class Aliases:
    """The indexes behind one name.

    Args:
        client: An opensearch-py client.
        name: The alias that searches name.
        body: Settings and mapping of a new index for rows of these stamps.
    """

    def __init__(self, client: Any, name: str, body: Callable[[Iterable[str]], dict[str, Any]]) -> None:
        self._client = client
        self._name = name
        self._body = body
        self._building = f"{name}.building"
        self._old = f"{name}.old"

    def current(self) -> Described | None:
        """The index that is searched, or None. One request."""
        return self._described(self._name)

    def building(self) -> Described | None:
        """The index that is being built, or None. One request."""
        return self._described(self._building)

    def names(self) -> tuple[str, ...]:
        """The own names of all indexes of this name: searched, being built, and replaced. Three requests."""
        found = [self._described(alias) for alias in (self._name, self._building, self._old)]
        return tuple(dict.fromkeys(described[0] for described in found if described is not None))

    def create(self) -> Described:
        """The index that is searched, made where there is none. Raises UnavailableError while a first one is built."""
        found = self.current()
        if found is None:
            if self.building() is not None:
                raise UnavailableError(
                    f"search index {self._name} is being built by a re-index, which has to finish first",
                    code="INDEX_BEING_BUILT",
                )
            self._create(1, self._name, (self._name,))
            found = self.current()
        if found is None:
            raise UnavailableError(
                f"search index {self._name} was created and is not there yet", code="INDEX_UNAVAILABLE"
            )
        return found

    def build(self, stamps: Iterable[str]) -> Described:
        """The index that is being built, begun where none is; one that was begun for other rows is begun anew."""
        wanted = frozenset(stamps)
        found = self.building()
        if found is not None and not wanted <= stamps_of(found, self._name):
            self._delete(self._building)
            found = None
        if found is None:
            current = self.current()
            number = 0 if current is None else _number(current[0])
            self._create(number + 1, self._building, wanted)
            found = self.building()
        if found is None:
            raise ConfigurationError(
                f"expected {self._building} to name the index that is being built, found an index of its number "
                "without that alias; remove that index",
                code="INDEX_LEFT_BEHIND",
            )
        return found

    def switch(self) -> bool:
        """Let the name mean what was built, and remove what it meant before. False where nothing was being built."""
        built = self.building()
        if built is not None:
            current = self.current()
            actions = [
                {"add": {"index": built[0], "alias": self._name}},
                {"remove": {"index": built[0], "alias": self._building}},
            ]
            if current is not None:
                actions += [
                    {"remove": {"index": current[0], "alias": self._name}},
                    {"add": {"index": current[0], "alias": self._old}},
                ]
            with translated(self._name):
                self._client.indices.update_aliases(body={"actions": actions})
        self._delete(self._old)
        return built is not None

    def drop(self) -> bool:
        """Remove all indexes of this name; False where there was none."""
        removed = [self._delete(alias) for alias in (self._building, self._old, self._name)]
        return any(removed)

    # -- inside

    def _described(self, alias: str) -> Described | None:
        with translated(self._name):
            # Ignored, because the client logs every other 404 as a warning, and this one is what mostly comes.
            found: dict[str, Any] = self._client.indices.get(index=alias, ignore=[404])
        return None if found.get("status") == 404 else next(iter(found.items()), None)

    def _create(self, number: int, alias: str, stamps: Iterable[str]) -> None:
        from opensearchpy.exceptions import RequestError

        body = {**self._body(stamps), "aliases": {alias: {}}}
        with translated(self._name):
            try:
                self._client.indices.create(index=f"{self._name}.{number}", body=body)
            except RequestError as error:
                # Two first uses at once: the other one was quicker.
                if error.error != "resource_already_exists_exception":
                    raise

    def _delete(self, alias: str) -> bool:
        found = self._described(alias)
        if found is None:
            return False
        if "embedder" not in found[1].get("mappings", {}).get("_meta", {}):
            raise ConfigurationError(
                f"expected {alias} to be an index of this library, found another; nothing was removed"
            )
        with translated(self._name):
            self._client.indices.delete(index=found[0], ignore=[404])
        return True


def stamps_of(found: Described, name: str) -> frozenset[str]:
    """The stamps of the rows that an index holds. One of an earlier version of this library names none but its own."""
    return frozenset(found[1].get("mappings", {}).get("_meta", {}).get("stamps") or (name,))


def _number(index: str) -> int:
    last = index.rpartition(".")[2]
    return int(last) if last.isdigit() else 0
