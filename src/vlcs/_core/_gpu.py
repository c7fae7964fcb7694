"""Shares of a GPU: the option is reserved."""

from vlcs._core._resource import Resource, State


def resource(requested: object) -> Resource:
    """What became of `gpu=`: nothing, and why."""
    return Resource(
        "gpu",
        State.UNAVAILABLE,
        requested=None if requested is None else f"gpu={requested!r}",
        granted=None,
        reason="contexts do not divide GPUs yet: a process has one driver, and libraries of every context "
        "see all devices",
        cure="Choose devices in the libraries, as torch.cuda.set_device does.",
    )
