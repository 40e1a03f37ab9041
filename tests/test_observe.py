"""Log lines and metrics of a function on Lambda."""

from __future__ import annotations

import ast
import json
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_memory import embedding_usage, observe
from agent_memory.agent.pool import submit
from agent_memory.errors import ConfigurationError, ModelError
from tests.support.operator_log import on_lambda

ROOT = Path(__file__).resolve().parents[1]
CONTEXT = SimpleNamespace(aws_request_id="0a1b-2c")
_log = logging.getLogger("agent_memory.test")


def test_an_invocation_has_the_ids_of_its_event_and_one_cold_start():
    @observe.function("titles")
    def handler(event, context):
        _log.info("at work", extra={"count": 3})
        return "done"

    with on_lambda("titles") as log:
        assert handler({"correlationId": "page-1"}, CONTEXT) == "done"
        assert handler({"Records": []}, CONTEXT) == "done"
        assert handler([], None) == "done"

    first, second, third = log.lines
    assert (first["service"], first["level"], first["count"]) == ("titles", "INFO", 3)
    assert (first["correlation_id"], first["request_id"]) == ("page-1", "0a1b-2c")
    assert second["correlation_id"] == "0a1b-2c"
    assert "correlation_id" not in third
    assert log.metrics == {"ColdStarts": 1}


def test_what_a_handler_raises_is_logged_and_leaves_without_its_words():
    @observe.function("indexer")
    def handler(event, _context):
        raise event["error"]

    with on_lambda("indexer") as log:
        with pytest.raises(observe.HandlerError, match=r"^KeyError$") as unknown:
            handler({"error": KeyError("a secret")}, CONTEXT)
        with pytest.raises(observe.HandlerError, match=r"^ModelError MODEL_FAILED$"):
            handler({"error": ModelError("no answer to: a secret")}, CONTEXT)
        with pytest.raises(ConfigurationError, match="RUNS_TABLE"):
            handler({"error": ConfigurationError("set RUNS_TABLE")}, CONTEXT)

    assert unknown.value.__suppress_context__
    assert log.metrics == {"ColdStarts": 1, "InvocationFailures": 3}
    first, second, _ = log.of("an invocation failed")
    assert (first["error"], second["error"], second["code"]) == ("KeyError", "ModelError", "MODEL_FAILED")
    assert first["places"][-1].endswith("handler")
    assert "secret" not in log.text


def test_an_exception_that_a_function_answers_with_is_no_failure():
    class No(Exception):
        pass

    @observe.function("authorizer", answers=(No,))
    def handler(_event, _context):
        raise No("No")

    with on_lambda("authorizer") as log, pytest.raises(No):
        handler({}, CONTEXT)
    assert log.lines == []


def test_a_traceback_never_holds_what_an_exception_says():
    with on_lambda() as log:
        try:
            raise ValueError("a secret")
        except ValueError:
            _log.warning("it went wrong", exc_info=True)
            logging.getLogger("streaming_runtime").exception("the answer failed")
    assert [line["error"] for line in log.lines] == ["ValueError", "ValueError"]
    assert "secret" not in log.text


def test_ids_go_along_to_threads_of_the_pool_and_end_with_their_scope():
    with on_lambda() as log, observe.scope(correlation_id="page-1", run_id=None):
        submit(_log.info, "in the pool").result()
        with observe.scope(correlation_id="page-2"):
            _log.info("inside")
        _log.info("outside")
    assert [line["correlation_id"] for line in log.lines] == ["page-1", "page-2", "page-1"]
    assert "run_id" not in log.text
    assert observe.correlation_id() is None


def test_an_event_keeps_the_id_it_has_and_takes_that_of_the_sender_otherwise():
    assert observe.with_correlation({"a": 1}) == {"a": 1}
    with observe.scope(correlation_id="page-1"):
        assert observe.with_correlation({"a": 1, "correlationId": None})["correlationId"] == "page-1"
        assert observe.with_correlation({"correlationId": "run-7"})["correlationId"] == "run-7"


@pytest.mark.parametrize(("level", "expected"), [("DEBUG", ["a", "b", "c"]), ("WARNING", ["c"]), (None, ["b", "c"])])
def test_the_level_comes_from_the_environment(level, expected):
    code = (
        "import logging; from agent_memory import observe; observe.start('chat');"
        "log = logging.getLogger('agent_memory.x'); log.debug('a'); log.info('b'); log.warning('c')"
    )
    env = {"PATH": os.environ["PATH"], **({"LOG_LEVEL": level} if level else {})}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert [json.loads(line)["message"] for line in done.stdout.splitlines()] == expected
    assert done.stderr == ""


def test_lines_and_metrics_name_the_deployment(monkeypatch):
    monkeypatch.setenv("STACK_NAME", "blue")
    with on_lambda("chat") as log:
        _log.info("here")
        observe.metrics(Turns=1)
    assert [entry["service"] for entry in log.entries] == ["blue-chat", "blue-chat"]


def test_off_lambda_nothing_is_printed_and_nothing_of_powertools_is_loaded():
    code = (
        "import sys; from agent_memory import observe;"
        "observe.function('chat')(lambda e, c: observe.metrics(Turns=1))({}, None);"
        "print([name for name in sys.modules if 'powertools' in name])"
    )
    env = {"PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_metric_that_nobody_described_is_a_mistake():
    with pytest.raises(KeyError):
        observe.metrics(Zebras=1)


def test_every_metric_is_emitted_somewhere_and_no_other():
    """Names in the calls of `observe.metrics`, and in the mappings that are handed to it."""
    found = set()
    for folder in ("layers/agent_memory/agent_memory", "functions"):
        for file in (ROOT / folder).rglob("*.py"):
            if file.name == "observe.py":
                found |= _keywords(file)
            elif "observe.metrics(" in file.read_text(encoding="utf-8"):
                found |= _keywords(file) | (_texts(file) & observe.METRICS.keys())
    assert found == observe.METRICS.keys()


def _keywords(file: Path) -> set[str]:
    calls = [node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    named = [call for call in calls if ast.unparse(call.func) in ("observe.metrics", "metrics")]
    return {keyword.arg for call in named for keyword in call.keywords if keyword.arg is not None}


def _texts(file: Path) -> set[str]:
    """Texts that are keys of a mapping."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    keys = [key for node in nodes if isinstance(node, ast.Dict) for key in node.keys]
    return {key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}


def test_tokens_of_embedders_are_counted_in_threads_too_and_no_longer_than_asked():
    with embedding_usage.measure() as outer:
        submit(embedding_usage.note, 3).result()
        with embedding_usage.measure() as inner:
            embedding_usage.note(4)
        embedding_usage.note(None)
        embedding_usage.note("5")
    embedding_usage.note(9)
    assert (outer.tokens, inner.tokens) == (7, 4)
