"""The deployed functions, loaded into this process and called as Lambda calls them."""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from infra.local.template import Function
from streaming_runtime.api import Invocation
from streaming_runtime.loop import Context

Handler = Callable[[Any, Any], Any]


class Functions:
    """Handlers of the template's functions by logical id, each loaded when it is first called.

    Args:
        functions: The template's functions.
        handlers: Handlers to use in place of the files (tests).
    """

    def __init__(self, functions: Mapping[str, Function], handlers: Mapping[str, Handler] | None = None) -> None:
        self._functions = functions
        self._handlers: dict[str, Handler] = dict(handlers or {})
        self._lock = threading.RLock()

    def __contains__(self, name: object) -> bool:
        return name in self._handlers or (name in self._functions and self._file(str(name)).exists())

    def handler(self, name: str) -> Handler:
        """The handler of a function."""
        with self._lock:
            if name not in self._handlers:
                self._handlers[name] = self._load(name)
            return self._handlers[name]

    def call(self, name: str, event: Any) -> Any:
        """Call a function with an event."""
        function = self._functions[name]
        deadline_ms = int((time.time() + function.timeout_s) * 1000)
        arn = f"arn:aws:lambda:us-east-1:000000000000:function:{name}"
        invocation = Invocation(str(uuid.uuid4()), event, deadline_ms, arn, None, None, None)
        return self.handler(name)(event, Context(invocation))

    def _file(self, name: str) -> Path:
        function = self._functions[name]
        return function.folder / (function.handler.rpartition(".")[0].replace(".", "/") + ".py")

    def _load(self, name: str) -> Handler:
        file = self._file(name)
        # Every function's module is called app; here they live in one process, under names of their own.
        module_name = f"local_function_{name}"
        spec = importlib.util.spec_from_file_location(module_name, file)
        if spec is None or spec.loader is None or not file.exists():
            raise FileNotFoundError(f"expected the code of {name} in {file}, found none")
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        spec.loader.exec_module(module)
        handler: Handler = getattr(module, self._functions[name].handler.rpartition(".")[2])
        return handler
