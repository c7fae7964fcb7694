"""Where a guest's `print` goes: the host's `sys.stdout` and `sys.stderr`, as they are at that moment."""

import sys

_STDERR = 2


def write(fd: int, text: str) -> None:
    """Writes a guest's text to the host's stream, so that Jupyter, pytest and redirections see it."""
    stream = sys.stderr if fd == _STDERR else sys.stdout
    # Python has no streams in a process without file descriptors 1 and 2 (pythonw, daemons).
    if stream is not None:
        stream.write(text)
