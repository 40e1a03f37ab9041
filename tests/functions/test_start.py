"""What a function imports before its first event. Everything else loads where it is used.

The names are an allow-list: a new one here is a decision, with `make bench-cold` beside it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from infra.local.template import ROOT
from tests.support import packages

FUNCTIONS = {function.folder.name: function for function in packages.template().functions().values()}
LIBRARY = ROOT / "layers" / "agent_memory" / "agent_memory"

# Log and metrics, with what they bring; of botocore no more than its name and its errors
THIRD_PARTY = {"aws_lambda_powertools", "jmespath", "typing_extensions", "botocore"}
BOTOCORE = {"botocore", "botocore.exceptions", "botocore.vendored"}
HEAVY = {"asyncio", "ctypes", "email", "http", "multiprocessing", "socket", "sqlite3", "ssl", "unittest", "xml"}
# Folders of the library; single modules at its top are small.
PARTS = {path.name for path in LIBRARY.iterdir() if path.is_dir() and not path.name.startswith("_")}
_HTTP = {"agent", "auth", "http", "memory", "messages", "ports"}
OWN = {
    "authorizer": {"auth"},
    "chat": _HTTP,
    "memory": _HTTP,
    "titles": {"messages", "ports"},
    "janitor": {"agent", "jobs", "messages", "ports"},
    "indexer": {"agent", "aws", "jobs", "messages", "ports", "recall"},
}
READ = re.compile(r"""(?:environ(?:\.\w+\(|\[)|getenv\()\s*["'](\w+)["']""")
CPU = "import time; start = time.process_time(); {code}; print(time.process_time() - start)"
CLIENT = "import boto3; boto3.client('dynamodb', region_name='x', aws_access_key_id='x', aws_secret_access_key='x')"


def run(code: str, name: str, **env: str) -> str:
    folders = [ROOT / "layers" / layer for layer in ("agent_memory", "agents", "runtime")]
    folders.append(FUNCTIONS[name].folder)
    path = {"PYTHONPATH": os.pathsep.join(map(str, folders)), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", code], env=path | env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_start_imports_what_it_may_and_no_more(name):
    code = (
        "import sys; before = set(sys.modules); import app, json; print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    # With the function's name set, as on Lambda, the start pays for the log's and the metrics' modules too.
    modules = set(json.loads(run(code, name, AWS_LAMBDA_FUNCTION_NAME=name)))
    top = {module.partition(".")[0] for module in modules}
    own = {module.split(".")[1] for module in modules if module.startswith("agent_memory.")}
    botocore = {".".join(module.split(".")[:2]) for module in modules if module.startswith("botocore")}

    assert own & PARTS - OWN[name] == set()
    assert top - set(sys.stdlib_module_names) - {"app", "agent_memory"} - THIRD_PARTY == set()
    assert botocore - BOTOCORE == set()
    assert top & HEAVY == set()


@pytest.mark.parametrize("name", ["chat", "memory"])
def test_a_start_costs_at_most_half_more_than_boto3_and_a_client(name):
    code = CPU.format(code="import app")
    own = min(float(run(code, name, AWS_LAMBDA_FUNCTION_NAME=name)) for _ in range(3))
    boto = min(float(run(CPU.format(code=CLIENT), name)) for _ in range(3))
    assert own <= 1.5 * boto, f"expected at most 1.5 × {boto:.3f} s, found {own:.3f} s"


def test_only_the_settings_read_variables_of_our_own_case_102():
    """So the template test, which compares the settings with the functions' variables, sees every one of them."""
    files = [*LIBRARY.rglob("*.py"), *(ROOT / "functions").rglob("*.py")]
    read = {name for file in files for name in READ.findall(file.read_text(encoding="utf-8"))}

    assert "AWS_LAMBDA_FUNCTION_NAME" in read, "the pattern finds what is there"
    assert {name for name in read if not name.startswith(("AWS_", "_X_AMZN_"))} == set()
