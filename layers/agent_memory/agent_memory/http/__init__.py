"""The HTTP application: from an event of a front door to status, headers and a body that may stream.

`Application` is what a function serves; everything else here is reached through its route table.
"""

from agent_memory.http.application import Application
from agent_memory.http.request import Request
from agent_memory.http.response import Response

__all__ = ["Application", "Request", "Response"]
