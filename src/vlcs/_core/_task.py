"""Functions that always run in one context."""

from __future__ import annotations

import functools
import sys
import weakref
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, TypeVar

from vlcs._core import _awaiting
from vlcs._core._bridge import look_up
from vlcs._core._errors import ArgumentError, StateError, describe
from vlcs._core._registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from vlcs._core._vlc import VLC

P = ParamSpec("P")
T = TypeVar("T")

_HERE: str | None = getattr(sys.modules.get("_vlcs_guest"), "name", None)
"""The context whose interpreter this is; None: the host's."""


class Task(Generic[P, T]):
    """A function that always runs in one context; `VLC.task` and `in_context` make it.

    Calling it is `vlc.run(function, ...)`, on the calling thread. In the context itself, where its module is
    imported again, calling it calls the function. `__wrapped__` is the function.

    Raises what `vlc.run` does, and StateError where there is no such context.
    """

    __wrapped__: Callable[P, T]

    def __init__(self, function: Callable[P, T], context: str, vlc: VLC | None = None, /) -> None:
        """`context`: its name. `vlc`: itself, which is kept then; None: the one that is open at the call."""
        if not callable(function):
            raise ArgumentError(
                f"cannot make a task of {function!r} for the context {context!r}: it cannot be called. "
                "Decorate a function.",
                repr(function),
            )
        _awaiting.refuse_coroutines(function, context)
        functools.update_wrapper(self, function)
        self._context = context
        self._vlc = vlc
        self._latest: Callable[[], VLC | None] = lambda: None

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls the function in the context, on this thread."""
        if self._context == _HERE:
            return self.__wrapped__(*args, **kwargs)
        return self._find().run(self.__wrapped__, *args, **kwargs)

    def submit(self, /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Queues a call for the context's own threads, as `VLC.submit`; not from inside the context."""
        return self._find().submit(self.__wrapped__, *args, **kwargs)

    async def run_async(self, /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Awaits a call on one of its own threads, as `VLC.run_async`; not from inside the context."""
        return await self._find().run_async(self.__wrapped__, *args, **kwargs)

    def __set_name__(self, owner: type, name: str) -> None:
        raise ArgumentError(
            f"cannot make the method {owner.__qualname__}.{name}() a task of the context {self._context!r}: "
            "it would get no `self`. Write @staticmethod above it, or make it a function.",
            name,
        )

    def __repr__(self) -> str:
        return f"<vlcs.Task {describe(self.__wrapped__)} in context {self._context!r}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        # A context keeps to its interpreter; in another, the one of that name is meant.
        path, found = look_up(self)[1:]
        if found is self:
            return ".".join(path)
        return Task, (self.__wrapped__, self._context)

    def _find(self) -> VLC:
        found = self._vlc or self._latest()
        if found is None or (self._vlc is None and found.closed):
            found = next((vlc for vlc in _open_contexts() if vlc.name == self._context), None)
            if found is None:
                self._refuse()
            self._latest = weakref.ref(found)
        return found

    def _refuse(self) -> NoReturn:
        subject = f"cannot run {describe(self.__wrapped__)} in the context {self._context!r}"
        if self._context == _HERE:
            raise StateError(
                f"{subject} on a thread of its pool: this is its own interpreter, and the pool is for those "
                "outside. Call the function, or use threads of your own here.",
                self._context,
            )
        if _HERE is not None:
            raise StateError(
                f"{subject}: this is the interpreter of the context {_HERE!r}, which sees only contexts that "
                "were made in it. Call it from where that context was made.",
                self._context,
            )
        names = ", ".join(repr(vlc.name) for vlc in _open_contexts()) or "none"
        raise StateError(
            f"{subject}: no context of that name is open. Open are: {names}. Make it before the call: "
            f"vlcs.VLC({self._context!r}).",
            self._context,
        )


def in_context(name: str, /) -> Callable[[Callable[P, T]], Task[P, T]]:
    """Makes functions run in the context of that name, as a decorator: `@vlcs.in_context("blas")`.

    The context is looked for at each call, so it may be made, closed and made anew after the module is
    imported. It imports the module too, so vlcs has to be installed for its Python; there the function
    runs directly. Raises ArgumentError for what is no name, and for an `async def`.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f'cannot use {name!r} as the name of a context: write @vlcs.in_context("blas"), with the name '
            "that the context is made with.",
            repr(name),
        )

    def decorate(function: Callable[P, T], /) -> Task[P, T]:
        return Task(function, name)

    return decorate


def _open_contexts() -> list[VLC]:
    return [vlc for vlc in REGISTRY.owners() if not vlc.closed]
