"""Has an Amazon Bedrock guardrail judge what users say and what models answer, whichever model answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, Protocol

from agent_memory.agent.events import RunEvent
from agent_memory.errors import AgentMemoryError, ConfigurationError, ModelError, ProcessorError, UnavailableError
from agent_memory.messages import Message
from agent_memory.messages.parts import Part, ReasoningPart, TextPart
from agent_memory.processors._own_parts import change_own_parts
from agent_memory.processors.base import HookContext, InputContext, OutputContext, StreamContext

if TYPE_CHECKING:
    from mypy_boto3_bedrock_runtime import BedrockRuntimeClient

    from agent_memory.aws.bedrock import GuardrailVerdict

Side = Literal["INPUT", "OUTPUT"]
DEFAULT_REASON: Final = "the guardrail does not allow this text"


class AppliesGuardrail(Protocol):
    """What asks a guardrail; `agent_memory.aws.bedrock.BedrockGuardrailClient` does."""

    def apply(self, texts: str | Sequence[str], source: Side) -> GuardrailVerdict:
        """Judge texts."""


class BedrockGuardrail:
    """Bedrock guardrail.

    Give it to an agent as input processor, output processor or both. As input processor it judges the texts of the request, before
    the model is called; as output processor the text and the reasoning of the answer. A streamed text is held back until it is
    complete and judged, so nothing of a blocked answer is shown. History is not judged again.

    Where the guardrail intervenes the run is stopped and nothing of the turn is stored. It fails closed: a guardrail that
    cannot be asked fails the run.

    Args:
        guardrail_id: Id or ARN.
        version: A number or ``DRAFT``.
        masked: Where the guardrail only masks (personal data set to ANONYMIZE), go on with the masked text. What it blocks
            is stopped all the same.
        region: AWS region; None takes the environment's.
        client: A client of bedrock-runtime, or anything with ``apply``, to use instead of the process's own.

    Requests: one for the input, one for each block of text in the answer; with `masked` one for each input text.

    Raises:
        ConfigurationError: No guardrail is named.
    """

    id = "bedrock-guardrail"
    name = "BedrockGuardrail"

    def __init__(
        self,
        guardrail_id: str,
        version: str = "DRAFT",
        *,
        masked: bool = False,
        region: str | None = None,
        client: BedrockRuntimeClient | AppliesGuardrail | None = None,
    ) -> None:
        if not guardrail_id:
            raise ConfigurationError("expected the id or ARN of a guardrail, found none", code="GUARDRAIL_MISSING")
        self.guardrail_id = guardrail_id
        self.version = version
        self.masked = masked
        self._region = region
        self._client = client
        self._applies: AppliesGuardrail | None = None

    # -- hooks

    def process_input(self, ctx: InputContext) -> list[Message] | None:
        """Judge the texts of the request."""
        new = [m for m in ctx.messages if ctx.message_list.source(m.id) == "input"]
        texts = [text for message in new for text in _texts(message)]
        shown = dict(zip(texts, self._judged(ctx, texts, "INPUT"), strict=True))
        if all(text == shown[text] for text in texts):
            return None
        changed = {m.id: _replaced(m, shown) for m in new}
        return [changed.get(message.id, message) for message in ctx.messages]

    def process_output_stream(self, ctx: StreamContext) -> RunEvent | list[RunEvent]:
        """Hold a text back until it is complete, and judge it."""
        event = ctx.part
        kind, _, step = event.type.rpartition("-")
        if kind not in ("text", "reasoning") or step not in ("delta", "end"):
            return event
        held: dict[tuple[str, str], list[str]] = ctx.state.setdefault(f"held:{id(self)}", {})
        key = (kind, event.payload["id"])
        if step == "delta":
            held.setdefault(key, []).append(event.payload["text"])
            return []
        text = "".join(held.pop(key, ()))
        if not text:
            return event
        [shown] = self._judged(ctx, [text], "OUTPUT")
        self._passed(ctx).add(shown)
        return [RunEvent(f"{kind}-delta", {"id": event.payload["id"], "text": shown}), event]

    def process_output_result(self, ctx: OutputContext) -> list[Message] | None:
        """Judge what other processors have added to the answer, before it is stored."""
        passed = self._passed(ctx)

        def judged(parts: Sequence[Part]) -> list[Part]:
            said = [part.text for part in parts if isinstance(part, TextPart | ReasoningPart)]
            texts = [text for text in said if text not in passed]
            shown = dict(zip(texts, self._judged(ctx, texts, "OUTPUT"), strict=True))
            return [_part(part, shown) for part in parts]

        return change_own_parts(ctx, judged)

    # -- inside

    def _passed(self, ctx: HookContext) -> set[str]:
        passed: set[str] = ctx.state.setdefault(f"passed:{id(self)}", set())
        return passed

    def _judged(self, ctx: HookContext, texts: Sequence[str], side: Side) -> list[str]:
        """What may be shown in place of each text. Stops the run where the guardrail says so."""
        if not any(text.strip() for text in texts):
            return list(texts)
        if not self.masked:
            verdict = self._ask(texts, side)
            if verdict.action != "NONE":
                self._stop(ctx, verdict, side)
            return list(texts)
        shown: list[str] = []
        for text in texts:
            # One text a call: which output belongs to which text is then beyond doubt.
            verdict = self._ask([text], side)
            if verdict.action == "NONE":
                shown.append(text)
            elif verdict.blocked or len(verdict.outputs) != 1:
                self._stop(ctx, verdict, side)
            else:
                shown.append(verdict.outputs[0])
        return shown

    def _ask(self, texts: Sequence[str], side: Side) -> GuardrailVerdict:
        try:
            verdict = self._adapter().apply(texts, side)
            action = verdict.action
        except AgentMemoryError as error:
            if isinstance(error, ModelError) and not error.retryable:
                raise ProcessorError(
                    f"guardrail {self.guardrail_id} refused to judge a text ({error.code}); the run was stopped. "
                    "Check its id, version, region and the role's bedrock:ApplyGuardrail"
                ) from error
            raise UnavailableError(
                f"guardrail {self.guardrail_id} could not be asked; the run was stopped. Try again later",
                code="GUARDRAIL_UNAVAILABLE",
            ) from error
        except Exception as error:
            raise ProcessorError(
                f"guardrail {self.guardrail_id} raised {type(error).__name__}; the run was stopped"
            ) from error
        if action not in ("NONE", "GUARDRAIL_INTERVENED"):
            raise ProcessorError(f"guardrail {self.guardrail_id} answered with an unknown action; the run was stopped")
        return verdict

    def _adapter(self) -> AppliesGuardrail:
        if self._applies is None:
            given: Any = self._client
            if given is not None and not hasattr(given, "apply_guardrail"):
                self._applies = given
                return self._applies
            from agent_memory.aws.bedrock import BedrockGuardrailClient

            self._applies = BedrockGuardrailClient(self.guardrail_id, self.version, region=self._region, client=given)
        return self._applies

    def _stop(self, ctx: HookContext, verdict: GuardrailVerdict, side: Side) -> NoReturn:
        # The guardrail's own message for users. A masked text in its place quotes what was said, and is not shown.
        reason = verdict.outputs[0] if verdict.blocked and verdict.outputs else DEFAULT_REASON
        metadata = {"guardrailId": self.guardrail_id, "side": side.lower(), "policies": _policies(verdict)}
        ctx.abort(reason, metadata=metadata)


def _policies(verdict: GuardrailVerdict) -> list[str]:
    """Which policies took part. Their findings may quote the text, and stay out."""
    names = {
        name for found in verdict.assessments for name, value in found.items() if name.endswith("Policy") and value
    }
    return sorted(names)


def _texts(message: Message) -> list[str]:
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    return texts or ([message.content.content] if message.content.content else [])


def _replaced(message: Message, shown: dict[str, str]) -> Message:
    if any(isinstance(part, TextPart) for part in message.parts):
        return message.with_parts([_part(part, shown) for part in message.parts])
    text = message.content.content
    return message if text is None else message.with_content(content=shown.get(text, text))


def _part(part: Part, shown: dict[str, str]) -> Part:
    if isinstance(part, TextPart):
        return replace(part, text=shown.get(part.text, part.text))
    if isinstance(part, ReasoningPart) and part.text in shown and shown[part.text] != part.text:
        from agent_memory.messages.legacy import reasoning_part

        return reasoning_part(shown[part.text], created_at=part.created_at)
    return part
