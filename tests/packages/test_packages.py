"""Each function as it is deployed: its built package under the genuine runtime client on a bare Python 3.13."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import uuid

import pytest

from infra import check_build, release
from infra.local.template import ROOT
from tests.support import events, packages
from tests.support.events import CASES, Answer, Feeder
from tests.support.runtime_api import RuntimeApiServer

REASON = packages.missing()
pytestmark = [pytest.mark.package, pytest.mark.skipif(REASON is not None, reason=str(REASON))]
NAMES = sorted(packages.template().functions())
UNCHECKED_HASH = b"\x01\0\0\0"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return packages.build(tmp_path_factory.mktemp("packages"))


@pytest.fixture(scope="module")
def world():
    with events.world(packages.template(), f"p-{uuid.uuid4().hex[:8]}") as made:
        yield made


@pytest.fixture(scope="module")
def feeder(built, world, tmp_path_factory):
    """Feeds events to one process per function, each started when its first event comes."""
    folder = tmp_path_factory.mktemp("processes")
    started = {}

    def call(name, event):
        package = next(package for package in built.values() if package.function.folder.name == name)
        if name not in started:
            api = RuntimeApiServer()
            variables = world.variables(package.function.variables)
            running = packages.start(package.function, package.task, package.opt, api, folder / name, variables)
            started[name] = (api, running)
        api, running = started[name]
        answer = api.invoke(event, timeout_s=package.function.timeout_s)
        while not answer.done.wait(0.1):
            if api.init_failed.is_set() or running.process.poll() is not None:
                pytest.fail(f"{name} did not start: {api.init_error}\n{running.said()}")
        if answer.error is not None:
            return Answer(error=answer.error["errorType"], value=answer.error["errorMessage"])
        if answer.headers.get("lambda-runtime-function-response-mode") == "streaming":
            assert answer.trailers == {}, answer.trailers
            return Answer(answer.prelude["statusCode"], answer.prelude["headers"], answer.payload)
        if isinstance(answer.json, dict) and "statusCode" in answer.json:
            return Answer(answer.json["statusCode"], answer.json["headers"], answer.json["body"].encode())
        return Answer(value=answer.json)

    yield Feeder(world, call)
    for api, running in started.values():
        running.stop()
        api.close()


@pytest.mark.parametrize("name", CASES)
def test_a_built_function_answers_its_events(feeder, name):
    feeder.feed_and_check(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_module_of_a_package_has_bytecode_that_is_never_checked(built, name):
    package = built[name]
    magic = magic_of_313()
    for folder in (package.task, package.opt):
        sources = [file for file in folder.rglob("*.py") if not file.is_relative_to(folder / "bin")]
        assert sources or folder is package.opt
        for source in sources:
            compiled = source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc"
            assert compiled.exists(), f"{source} has no bytecode"
            assert compiled.read_bytes()[:8] == magic + UNCHECKED_HASH, compiled


def magic_of_313():
    code = "import importlib.util; print(importlib.util.MAGIC_NUMBER.hex())"
    done = subprocess.run([packages.python313(), "-c", code], capture_output=True, text=True, check=True)
    return bytes.fromhex(done.stdout)


def test_the_compiled_paths_are_those_on_lambda(built):
    """A traceback in a log then names a file that is there."""
    file = next(built["ChatFunction"].opt.rglob("agent_memory/http/__pycache__/application.cpython-313.pyc"))
    assert b"/opt/python/agent_memory/http/application.py" in file.read_bytes()


def test_sizes_are_within_the_budget_and_nothing_for_tests_is_inside(built, capsys):
    layers = {}
    for package in built.values():
        folder = package.opt.parents[1] / "built"
        layers |= {path.name: path for path in folder.iterdir() if path.name.endswith("Layer")}
    with capsys.disabled():
        found = check_build.problems(next(iter(layers.values())).parent)
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_a_package_brings_nothing_that_the_runtime_has(built, name):
    top = {path.name.partition(".")[0] for path in (built[name].opt / "python").iterdir()}
    assert not top & {"boto3", "botocore", "s3transfer", "urllib3", "awslambdaric"}


def test_no_module_of_this_machine_is_seen_by_a_package(built, world, tmp_path):
    """The proof of the others: what is installed here for tests cannot be imported there."""
    assert importlib.util.find_spec("pytest") is not None
    package = built["MemoryFunction"]
    (tmp_path / "app.py").write_text("import pytest\nhandler = print\n")
    with RuntimeApiServer() as api:
        running = packages.start(package.function, tmp_path, package.opt, api, tmp_path / "run", {})
        assert api.init_failed.wait(20), running.said()
        running.stop()
    assert api.init_error["errorType"] == "Runtime.ImportModuleError"
    assert "No module named 'pytest'" in api.init_error["errorMessage"]


def test_the_search_for_python_names_what_is_missing():
    done = subprocess.run(
        [ROOT / "infra" / "find-python", packages.VERSION],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
    )
    if sys.version_info[:2] == (3, 13):
        assert done.returncode == 0
    else:
        assert "expected Python 3.13" in done.stderr


def test_a_release_of_the_same_sources_has_the_same_bytes(tmp_path):
    sums = []
    for number in ("one", "two"):
        (tmp_path / number).mkdir()
        built = release.build("agent-memory", "arm64", packages.python313(), tmp_path / number)
        sums.append(release.pack(built, tmp_path / f"{number}.zip"))
    assert sums[0] == sums[1]
