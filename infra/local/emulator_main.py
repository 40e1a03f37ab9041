"""Runs inside the emulator's own virtual environment: the AWS emulator, plus what it lacks for daily work.

It stops cleanly when its parent goes away (its standard input ends), and it writes its state every
``SNAPSHOT_EVERY_S`` seconds, because by itself it saves only at a clean stop.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time


def _stop_with_parent() -> None:
    while os.read(0, 1):  # not sys.stdin, whose lock would outlive this thread
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def _snapshot(every_s: float) -> None:
    from ministack import app
    from ministack.core import persistence

    while True:
        time.sleep(every_s)
        persistence.save_all(app._build_persistence_save_dict())


def main() -> None:
    """Serve until the parent goes away or SIGTERM arrives."""
    from ministack import app

    threading.Thread(target=_stop_with_parent, daemon=True).start()
    every_s = float(os.environ.get("SNAPSHOT_EVERY_S", "0"))
    if every_s > 0 and os.environ.get("PERSIST_STATE") == "1":
        threading.Thread(target=_snapshot, args=(every_s,), daemon=True).start()
    app._port_is_bindable = lambda *_: False  # with TLS it would take port 443 as well
    sys.argv = ["ministack"]
    app.main()


if __name__ == "__main__":
    main()
