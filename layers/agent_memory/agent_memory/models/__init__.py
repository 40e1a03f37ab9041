"""Chat models, by name.

A name is ``provider/model`` or ``provider:model``: ``bedrock/us.amazon.nova-lite-v1:0``, ``openai:gpt-5-mini``, or just
``demo``. Adapters are imported when a model of theirs is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from agent_memory.errors import ConfigurationError
from agent_memory.ports import ChatModel

_NAME: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)(?:[/:](.+))?", re.DOTALL)


def resolve_model(model: str | ChatModel, **settings: Any) -> ChatModel:
    """The model that `model` names; a ChatModel is returned as it is.

    Args:
        model: A name, or a model.
        settings: Handed to the adapter, e.g. ``region`` or ``base_url``.

    Raises:
        ConfigurationError: No such provider, no model named, or a setting the adapter does not know.
    """
    if not isinstance(model, str):
        if isinstance(model, ChatModel):
            return model
        raise ConfigurationError(
            f"a model is `provider/model` or an object with provider, model_id and stream; found {type(model).__name__}",
            code="MODEL_INVALID",
        )
    found = _NAME.fullmatch(model.strip())
    provider = _ALIASES.get(found[1].lower(), found[1].lower()) if found else ""
    make = _PROVIDERS.get(provider)
    if found is None or make is None:
        raise ConfigurationError(
            f"expected a model named `provider/model` of {', '.join(sorted(_PROVIDERS))}; found {model!r:.80}",
            code="MODEL_UNKNOWN",
        )
    if not found[2] and provider not in ("demo", "scripted"):
        raise ConfigurationError(
            f"expected `{provider}/model`, found no model id in {model!r:.80}", code="MODEL_UNKNOWN"
        )
    try:
        return make(found[2], settings)
    except TypeError as error:
        raise ConfigurationError(f"settings of {provider}: {error}", code="MODEL_SETTING_UNKNOWN") from None


def _demo(model_id: str | None, settings: dict[str, Any]) -> ChatModel:
    from agent_memory.models.demo import DemoModel

    return DemoModel(model_id or "demo", **settings)


def _scripted(model_id: str | None, settings: dict[str, Any]) -> ChatModel:
    from agent_memory.models.scripted import ScriptedModel

    return ScriptedModel(model_id or "conformance", **settings)


def _bedrock(model_id: str | None, settings: dict[str, Any]) -> ChatModel:
    from agent_memory.aws.bedrock import BedrockModel

    return BedrockModel(model_id or "", **settings)


def _openai(model_id: str | None, settings: dict[str, Any]) -> ChatModel:
    from agent_memory.openai.chat import OpenAIModel
    from agent_memory.openai.keys import key_of
    from agent_memory.settings import Settings

    found = Settings.from_env()
    if "base_url" not in settings and found.openai_base_url:
        settings["base_url"] = found.openai_base_url
    if "api_key" not in settings:
        settings["api_key"] = key_of(found)
    return OpenAIModel(model_id or "", **settings)


_PROVIDERS: Final[dict[str, Callable[[str | None, dict[str, Any]], ChatModel]]] = {
    "bedrock": _bedrock,
    "demo": _demo,
    "openai": _openai,
    "scripted": _scripted,
}
_ALIASES: Final = {"amazon-bedrock": "bedrock"}

__all__ = ["resolve_model"]
