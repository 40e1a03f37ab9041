"""The local stack: the deployed functions in one process, in front of an emulator."""

import sys
from pathlib import Path

# The layers as they lie on the functions' path: the library, the agents of the deployment, the runtime.
for _layer in ("agent_memory", "agents", "runtime"):
    _folder = str(Path(__file__).resolve().parents[2] / "layers" / _layer)
    if _folder not in sys.path:
        sys.path.append(_folder)
