"""The settings of a deployment, from the environment."""

from __future__ import annotations

import inspect
import subprocess
import sys

import pytest

from agent_memory.errors import ConfigurationError
from agent_memory.runtime import Deployment
from agent_memory.settings import NAMES, Settings


def test_an_empty_environment_gives_the_defaults():
    settings = Settings.from_env({})

    assert settings == Settings()
    assert settings.model == "demo"
    assert settings.auth_mode == "iam"
    assert settings.cors_origins == ()


def test_empty_and_blank_values_count_as_absent():
    assert Settings.from_env({"EMBEDDER": "", "OPENSEARCH_URL": "  ", "MAX_BODY_BYTES": ""}) == Settings()


def test_values_are_read_by_the_upper_case_name():
    settings = Settings.from_env(
        {
            "THREADS_TABLE": "threads",
            "OPENSEARCH_URL": "https://search.example/",
            "OPENSEARCH_SERVERLESS": "True",
            "CORS_ORIGINS": "https://app.example, http://localhost:3000/,https://app.example",
            "AUTH_MODE": "JWT",
            "LOG_LEVEL": "debug",
            "MAX_BODY_BYTES": "1000",
            "RETENTION_DAYS": "30",
        }
    )

    assert settings.threads_table == "threads"
    assert settings.opensearch_url == "https://search.example"
    assert settings.opensearch_serverless is True
    assert settings.cors_origins == ("https://app.example", "http://localhost:3000")
    assert settings.auth_mode == "jwt"
    assert settings.log_level == "DEBUG"
    assert settings.max_body_bytes == 1000
    assert settings.retention_days == 30


@pytest.mark.parametrize(("days", "kept_s"), [("30", 30 * 86_400), ("0", None), ("", None)])
def test_the_store_of_a_deployment_keeps_to_its_retention(monkeypatch, days, kept_s):
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    settings = Settings.from_env({"THREADS_TABLE": "t", "MESSAGES_TABLE": "m", "RETENTION_DAYS": days})
    assert Deployment(settings).store._retention_s == kept_s


def test_a_missing_setting_is_named_at_call_time_case_102():
    settings = Settings.from_env({})

    with pytest.raises(ConfigurationError, match="THREADS_TABLE") as caught:
        settings.required("threads_table")
    assert caught.value.code == "SETTING_MISSING"
    assert Settings(threads_table="t").required("threads_table") == "t"


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("OPENSEARCH_URL", "search.example"),
        ("OPENSEARCH_SERVERLESS", "perhaps"),
        ("AUTH_MODE", "open"),
        ("LOG_LEVEL", "LOUD"),
        ("MAX_BODY_BYTES", "-1"),
        ("MAX_BODY_BYTES", "0"),
        ("MAX_BODY_BYTES", "²"),
        ("CORS_ORIGINS", "*"),
        ("CORS_ORIGINS", "https://*.example"),
        ("CORS_ORIGINS", "https://app.example/path"),
        ("CORS_ORIGINS", "app.example"),
    ],
)
def test_a_value_that_cannot_be_understood_is_refused_by_name(variable, text):
    with pytest.raises(ConfigurationError, match=variable):
        Settings.from_env({variable: text})


def test_every_setting_is_described():
    described = inspect.getdoc(Settings) or ""

    assert [name for name in NAMES if f"    {name}: " not in described] == []


def test_importing_needs_no_environment_and_no_heavy_module_case_102():
    code = "import sys, agent_memory.settings; print([m for m in ('boto3', 'pydantic', 'numpy') if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], env={}, capture_output=True, text=True, check=True)

    assert answer.stdout.strip() == "[]"
