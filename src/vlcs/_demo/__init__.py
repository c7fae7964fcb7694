"""`python -m vlcs demo`: pairs of real workloads at the same time, in one process as usual and in contexts.

`_workloads`: what is run; `_pairs`: which run together; `_setting`, `_search`: tuning by hand; `_ways`,
`_serve`, `_worker`: the processes that run them; `_measure`: the rounds; `_ratio`, `_table`: the outcome.
"""

__all__ = ["main"]


def main(argv: list[str] | None = None) -> int:
    """Runs the demo; gives its exit code: 0, 1 for a failure or numbers that differ, 2 for wrong use."""
    # Late, because contexts import this package for its workloads alone.
    from vlcs._demo._command import run

    return run(argv)
