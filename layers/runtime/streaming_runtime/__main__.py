"""What the exec wrapper starts."""

from streaming_runtime.loop import main

main()
