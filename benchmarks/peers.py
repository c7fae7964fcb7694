"""What people use instead of contexts: pools of one worker, and interpreters, where Python has them."""

from __future__ import annotations

import functools
import importlib.util
import sys
from concurrent import futures
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contextlib import ExitStack

    from rounds import Call, Way


def pools(function: Any, *args: Any) -> dict[str, Way]:
    """A way for each pool: it calls the function, and waits for the result."""
    made: dict[str, Any] = {
        "ThreadPoolExecutor": lambda: futures.ThreadPoolExecutor(1),
        "ProcessPoolExecutor": lambda: futures.ProcessPoolExecutor(1),
    }
    if importlib.util.find_spec("loky"):
        made["loky"] = lambda: importlib.import_module("loky").ProcessPoolExecutor(1)
    elif importlib.util.find_spec("joblib"):
        loky = "joblib.externals.loky"
        made["loky (joblib's)"] = lambda: importlib.import_module(loky).ProcessPoolExecutor(1)
    else:
        skip("loky: it is not installed")
    if hasattr(futures, "InterpreterPoolExecutor"):
        made["InterpreterPoolExecutor"] = lambda: futures.InterpreterPoolExecutor(1)  # type: ignore[attr-defined]
    else:
        skip("InterpreterPoolExecutor: Python 3.14 has it")
    return {name: pool_way(make, function, args) for name, make in made.items()}


def pool_way(make: Any, function: Any, args: Any) -> Way:
    def way(stack: ExitStack) -> Call:
        pool = stack.enter_context(make())
        return lambda: pool.submit(function, *args).result()

    return way


def interpreter() -> dict[str, Way]:
    """A call of operator.index(1) in an interpreter of CPython's own: no result comes home before 3.14."""
    if sys.version_info < (3, 13):
        skip("_interpreters: Python 3.13 has it")
        return {}

    def way(stack: ExitStack) -> Call:
        interpreters = importlib.import_module("_interpreters")
        made = interpreters.create()
        stack.callback(interpreters.destroy, made)
        interpreters.exec(made, "import operator")
        return lambda: interpreters.exec(made, "operator.index(1)")

    return {"_interpreters.exec, without a result": way}


@functools.cache  # once
def skip(words: str) -> None:
    if not {"--round", "--worker"} & set(sys.argv):
        print(f"skipped: {words}")
