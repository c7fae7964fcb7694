"""The public object: what it checks, in which order it acts, and what it leaves behind."""

from __future__ import annotations

import ctypes
import pickle
import threading
import time
import warnings
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import vlcs
from vlcs._core._registry import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Native


pytestmark = pytest.mark.usefixtures("native")


def add(a: int, b: int = 2) -> int:
    return a + b


def fail() -> None:
    raise ZeroDivisionError("far away")


class TestCreation:
    def test_starts_context_then_interpreter(self, native: Native) -> None:
        vlc = vlcs.VLC(
            "a", cpus="1", env={"X": "1", "Y": None}, share=["libcuda.so.1"], threads=3, heap="host"
        )
        assert native.log == ["create a", "start a"]
        instance = vlc._instance
        assert instance.native.options == {
            "cpus": (1,),
            "env": ("X=1", "Y", "PYTHONHOME", "PYTHONPATH"),  # it knows its prefix and sys.path
            "share": ("libcuda.so.1",),
            "threads": 3,
            "heap": 1,
            "residence": 1,
            "scheduling": 0,
            "nice": None,
            "groups": (),
            "memory": 0,
            "nodes": None,
            "memory_limit": 0,
            "huge_pages": 0,
        }
        assert (vlc.name, vlc.cpus, vlc.closed) == ("a", (1,), False)
        assert repr(vlc) == "<vlcs.VLC 'a' cpus=1>"

    def test_without_name_one_is_made(self) -> None:
        assert vlcs.VLC().name == "vlc-1"

    def test_contexts_are_listed_in_order_until_closed(self) -> None:
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        assert vlcs.contexts() == [a, b]
        a.close()
        assert vlcs.contexts() == [b]

    def test_without_interpreter_there_is_no_python(self, native: Native) -> None:
        vlc = vlcs.VLC("a", interpreter=False)
        assert native.log == ["create a"]
        for call in (vlc.run, vlc.submit):
            with pytest.raises(vlcs.StateError, match="'a': it was made with interpreter=False"):
                call(add, 1)
        with pytest.raises(vlcs.StateError, match="interpreter=False"):
            vlc.import_module("json")

    def test_failed_start_leaves_nothing_behind(self, native: Native) -> None:
        native.interpreter.refuse = "start"
        threads = threading.active_count()
        with pytest.raises(vlcs.LimitError, match="no mappings left"):
            vlcs.VLC("a", cpus="0", exclusive=True)
        assert native.log == ["create a", "destroy a"]
        assert vlcs.contexts() == []
        assert REGISTRY.claims() == []
        assert threading.active_count() == threads

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"name": ""}, "cannot name a context ''"),
            ({"name": "a\nb"}, "a name is printable text"),
            ({"name": 3}, "cannot name a context 3"),
            ({"env": {"": "1"}}, "cannot set the environment variable ''"),
            ({"env": {"A=B": "1"}}, "without '=' and NUL"),
            ({"env": {"A": 1}}, "and this is a int. Write '1'"),
            ({"env": {"A": "b\0"}}, "it holds a NUL"),
            ({"env": {"A": "\ud800"}}, "it cannot be encoded as utf-8"),
            ({"env": {"\ud800": None}}, "it cannot be encoded as utf-8"),
            ({"env": ["A=1"]}, "Give a mapping of names to values"),
            ({"share": "libcuda.so.1"}, "it is a str. Give a list of sonames"),
            ({"share": ["/usr/lib/libcuda.so.1"]}, "Write 'libcuda.so.1'"),
            ({"share": [""]}, "cannot share ''"),
            ({"share": ["\ud800"]}, "a soname is text"),
            ({"threads": 0}, "cannot make a context with threads=0: give an int from 1 to 4096"),
            ({"threads": True}, "threads=True"),
            ({"heap": "hots"}, "heap='hots': \"own\" gives back"),
            ({"resident": "yes"}, "resident='yes': give True, False, or None"),
            ({"python": "/x", "interpreter": False}, "python='/x' with interpreter=False"),
            ({"python": 3, "interpreter": False}, "python=3 with interpreter=False"),
            ({"cpus": "9"}, "the machine has no such CPU online"),
            ({"cpus": 3}, "cannot pick 3 CPUs: the process may use 2"),
            ({"exclusive": True}, "exclusive=True needs cpus="),
            ({"cores": 3}, "cannot pick 3 cores: the process may use 2 (CPU 0-1)"),
            ({"cpus": 1, "cores": 1}, "cannot use cpus=1 with cores=1"),
            ({"node": 1}, "NUMA node 1 does not exist. Nodes with CPUs that the process may use: 0."),
            ({"cores": 1, "near": "a"}, "cannot place a context near 'a': there is no such context"),
        ],
    )
    def test_bad_arguments_make_nothing(self, native: Native, options: dict[str, Any], words: str) -> None:
        with pytest.raises(vlcs.ArgumentError) as caught:
            vlcs.VLC(**options)
        assert words in str(caught.value)
        assert native.log == []

    def test_bytes_of_the_environment_that_are_no_text_go_through(self, native: Native) -> None:
        vlc = vlcs.VLC("a", env={"A": "\udcff"})
        assert "A=\udcff" in vlc._instance.native.options["env"]
        assert native.log == ["create a", "start a"]


class TestOverlap:
    def test_warns_once_and_names_both(self) -> None:
        vlcs.VLC("a", cpus="0-1")
        with pytest.warns(vlcs.OverlapWarning) as caught:
            vlcs.VLC("b", cpus="1")
        assert len(caught) == 1
        assert str(caught[0].message).startswith("the contexts 'b' and 'a' share CPU 1: ")
        assert caught[0].filename == __file__

    def test_warns_who_calls_by_whatever_way(self) -> None:
        class Mine(vlcs.VLC):
            def __init__(self, name: str) -> None:
                super().__init__(name, cpus="0")

        a = vlcs.VLC("a", cpus="0")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            vlcs.vlc_create("b", cpus="0")
            Mine("c")
            a.resize("0")
        assert len(caught) == 5
        assert {warning.filename for warning in caught} == {__file__}

    def test_warns_of_the_same_line_once(self) -> None:
        vlcs.VLC("a", cpus="0")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _ in range(3):
                vlcs.VLC("b", cpus="0").close()
        assert len(caught) == 1

    def test_without_cpus_nobody_warns(self) -> None:
        vlcs.VLC("a")
        vlcs.VLC("b", cpus="0-1")
        vlcs.VLC("c")

    def test_as_an_error_it_leaves_nothing_behind(self, native: Native) -> None:
        vlcs.VLC("a", cpus="0-1")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(vlcs.OverlapWarning):
                vlcs.VLC("b", cpus="1")
        assert native.log == ["create a", "start a", "create b", "destroy b"]

    def test_exclusive_refuses(self) -> None:
        vlcs.VLC("a", cpus="0", exclusive=True)
        with pytest.raises(vlcs.LimitError, match="it belongs to the context 'a'"):
            vlcs.VLC("b", cpus="0-1")
        assert vlcs.VLC("c", cpus=1).cpus == (1,)

    def test_close_gives_cpus_back(self) -> None:
        vlcs.VLC("a", cpus="0", exclusive=True).close()
        assert vlcs.VLC("b", cpus="0", exclusive=True).cpus == (0,)


class TestSlice:
    def test_cores_fraction_node_near(self) -> None:
        a = vlcs.VLC("a", cores=1)
        assert a.cpus == (0,)
        assert vlcs.VLC("b", fraction=0.5, near=a).cpus == (1,)
        with pytest.warns(vlcs.OverlapWarning):
            assert vlcs.VLC("c", node=0).cpus == (0, 1)
        with pytest.warns(vlcs.OverlapWarning):
            d = vlcs.vlc_create("d", cores=1, near="a")
        assert d.slice.why.startswith(
            "1 CPU on 1 core; next to 'a': in its cache domain; shares CPU 0 with 'a'"
        )

    def test_tells_what_was_given(self) -> None:
        vlc = vlcs.VLC("a", cores=1)
        assert (vlc.slice.cpus, vlc.slice.nodes, vlc.slice.why) == ((0,), (0,), "1 CPU on 1 core")
        assert vlc.slice.report()["cpus"]["state"] == "advisory"
        vlc.resize(fraction=1)
        assert (vlc.slice.cpus, vlc.slice.why) == ((0, 1), "2 CPUs on 2 cores, 1 of 2 CPUs")
        assert vlc.slice.report()["cpus"]["state"] == "enforced"
        vlc.close()
        with pytest.raises(vlcs.StateError, match="slice"):
            _ = vlc.slice

    def test_gpu_warns_and_is_reported(self, native: Native) -> None:
        with pytest.warns(
            vlcs.UnavailableWarning, match=r"gpu=0.5 of the context 'a' is unavailable: .*"
        ) as caught:
            vlc = vlcs.VLC("a", gpu=0.5)
        assert caught[0].filename == __file__
        assert vlc.slice.report()["gpu"]["state"] == "unavailable"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(vlcs.UnavailableWarning):
                vlcs.VLC("b", gpu=1)
        assert native.log[-2:] == ["create b", "destroy b"]

    def test_verify_asks_the_kernel(self, monkeypatch: pytest.MonkeyPatch) -> None:
        vlc = vlcs.VLC("a", cpus="1")
        inside, outside = vlc.threads()[0], 10
        masks = {inside: {1}, outside: {0, 1}}

        def mask(thread: int) -> set[int]:
            if thread not in masks:
                raise ProcessLookupError
            return masks[thread]

        monkeypatch.setattr("os.sched_getaffinity", mask)
        monkeypatch.setattr(vlc._instance.native, "threads", lambda: [inside, outside, 11])
        found = vlc.verify()
        assert found.cpus == (1,)
        assert found.threads == {inside: (1,), outside: (0, 1)}
        assert found.outside == {outside: (0,)}
        assert not found.holds
        masks[outside] = {1}
        assert vlc.verify().holds
        vlc.close()
        with pytest.raises(vlcs.StateError, match="verify"):
            vlc.verify()

    def test_verify_leaves_out_ids_that_are_another_thread_s_by_now(self) -> None:
        vlc = vlcs.VLC("a", cpus="1")
        answers = iter([[*vlc.threads(), threading.get_native_id()], vlc.threads()])
        vlc._instance.native.threads = lambda: next(answers)
        assert threading.get_native_id() not in vlc.verify().threads
        vlc._instance.native.threads = list


class TestPlan:
    def test_makes_all_contexts_of_a_program(self) -> None:
        plan = vlcs.plan({"b": {"cpus": 1, "threads": 2}, "a": {"cpus": "0", "exclusive": True}})
        made = {name: vlcs.VLC(name, **options) for name, options in plan["options"].items()}
        assert {name: vlc.cpus for name, vlc in made.items()} == {"a": (0,), "b": (1,)}

    def test_sees_open_contexts(self) -> None:
        vlcs.VLC("a", cpus="0")
        assert vlcs.plan({"b": {"cores": 1}})["contexts"]["b"]["cpus"] == "1"

    @pytest.mark.parametrize(
        ("contexts", "words"),
        [
            ([("a", {})], "cannot plan [('a', {})]: it is a list. Give a mapping of names to options"),
            ({"a": 2}, "cannot plan the context 'a' with 2: give a mapping of options under a name"),
            ({1: {}}, "cannot plan the context 1 with {}"),
            ({"a": {"core": 2}}, "the context 'a': there is no option 'core'. Did you mean 'cores'?"),
            ({"a": {"zzz": 2}}, "there is no option 'zzz'. There are cpus, cores,"),
            ({"a": {"name": "b"}}, "there is no option 'name'"),
            ({"a": {"cores": 3}}, "cannot plan the context 'a': cannot pick 3 cores"),
        ],
    )
    def test_bad_input(self, contexts: Any, words: str) -> None:
        with pytest.raises(vlcs.ArgumentError) as caught:
            vlcs.plan(contexts)
        assert words in str(caught.value)


class TestWork:
    def test_run(self) -> None:
        vlc = vlcs.VLC()
        assert vlc.run(add, 1) == 3
        assert vlc.run(add, 1, b=5) == 6
        with pytest.raises(ZeroDivisionError, match="far away"):
            vlc.run(fail)

    def test_submit_runs_on_the_contexts_thread(self) -> None:
        vlc = vlcs.VLC()
        futures = [vlc.submit(threading.get_native_id) for _ in range(3)]
        assert {future.result(5) for future in futures} == set(vlc.threads())
        assert isinstance(vlc.submit(fail).exception(5), ZeroDivisionError)

    def test_what_cannot_be_called(self) -> None:
        with pytest.raises(vlcs.ArgumentError, match=r"cannot run 3 in the context 'a'.*vlc.run\(solve, x\)"):
            vlcs.VLC("a").run(add(1))  # type: ignore[arg-type]

    def test_queued_job_can_be_cancelled(self) -> None:
        vlc = vlcs.VLC()
        go = threading.Event()
        first, second = vlc.submit(go.wait, 5), vlc.submit(add, 1)
        assert vlc.stats().jobs >= 1
        assert second.cancel()
        go.set()
        assert first.result(5)
        with pytest.raises(CancelledError):
            second.result(5)
        vlc.close(5)

    def test_with_block_enters_once_and_nests(self) -> None:
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        with a as same, b, a:
            assert same is a
            assert (a._instance.native.depth, b._instance.native.depth) == (2, 1)
            assert a.run(add, 1) == 3
        assert (a._instance.native.depth, b._instance.native.depth) == (0, 0)
        assert not a.closed

    def test_three_calls_of_the_paper(self) -> None:
        vlc = vlcs.vlc_create(cpus="0")
        assert vlcs.vlc_run(vlc, add, 1, b=1) == 2
        vlcs.vlc_destroy(vlc)
        assert vlc.closed

    def test_stats(self) -> None:
        stats = vlcs.VLC().stats()
        assert (stats.cpu_time, stats.threads, stats.cached_lookups) == (1.5, 3, 3)

    def test_context_does_not_pickle(self) -> None:
        with pytest.raises(TypeError, match="cannot pickle the context 'a'"):
            pickle.dumps(vlcs.VLC("a"))


class TestResize:
    def test_moves_and_claims(self) -> None:
        vlc = vlcs.VLC("a", cpus="0", exclusive=True)
        resized = vlc.resize("1")
        assert vlc.cpus == resized.cpus == (1,)
        assert [pool.library for pool in resized.left_behind] == ["liba.so"]
        assert resized.pools[0] == vlcs.Pool(
            "OpenBLAS",
            "/lib/libopenblas.so",
            1,
            follows=True,
            reason="it uses so many threads from its next call on",
        )
        line = vlc.slice.report()["libraries"]
        assert (line["state"], line["granted"]) == ("advisory", "OpenBLAS 1, liba.so 3")
        assert line["reason"] == "liba.so 3: it made these threads and has no way to be told another number"
        assert vlcs.VLC("b", cpus="0").cpus == (0,)

    def test_without_cpus_it_claims_nothing(self) -> None:
        vlc = vlcs.VLC("a", cpus="0")
        vlc.resize(None)
        assert vlc.cpus == (0, 1)
        vlcs.VLC("b", cpus="0")

    def test_refused_it_changes_nothing(self, native: Native) -> None:
        vlc = vlcs.VLC("a", cpus="0")
        with pytest.raises(vlcs.ArgumentError):
            vlc.resize("7")
        native.context.refuse = "resize"
        with pytest.raises(vlcs.SystemRefusedError):
            vlc.resize("1")
        assert vlc.cpus == (0,)
        assert [claim.cpus for claim in REGISTRY.claims()] == [{0}]

    @pytest.mark.parametrize("after", ["the change", "the groups", "the claim"])
    def test_interrupted_it_goes_back(self, after: str, monkeypatch: pytest.MonkeyPatch) -> None:
        vlc = vlcs.VLC("a", cpus="0")
        instance = vlc._instance
        confined = [(0,)]  # as a control group would be
        interrupts = iter([after])

        def interrupt(here: str) -> None:
            if here == after and next(interrupts, None):
                raise KeyboardInterrupt

        @contextmanager
        def moving(cpus: Any) -> Iterator[None]:
            before = confined[-1]
            try:
                yield
                interrupt("the change")
            except BaseException:
                confined.append(before)
                raise
            confined.append(tuple(cpus))
            interrupt("the groups")

        grant = instance._grant

        def granting(*args: Any) -> None:
            grant(*args)
            interrupt("the claim")

        monkeypatch.setattr(instance._service, "moving", moving)
        monkeypatch.setattr(instance, "_grant", granting)
        with pytest.raises(KeyboardInterrupt):
            vlc.resize("1")
        assert vlc.cpus == vlc.slice.cpus == confined[-1] == (0,)
        assert [claim.cpus for claim in REGISTRY.claims()] == [{0}]
        vlc.resize("1")
        assert vlc.cpus == vlc.slice.cpus == confined[-1] == (1,)


class TestClose:
    def test_stops_interpreter_then_context(self, native: Native) -> None:
        vlc = vlcs.VLC("a")
        vlc.close()
        vlc.close()
        assert native.log == ["create a", "start a", "destroy a"]
        assert (vlc.closed, vlc.cpus, repr(vlc)) == (True, (), "<vlcs.VLC 'a' closed>")

    def test_waits_for_submitted_work(self) -> None:
        vlc = vlcs.VLC("a")
        futures = [vlc.submit(time.sleep, 0.02) for _ in range(3)]
        vlc.close()
        assert all(future.done() for future in futures)

    def test_closed_context_refuses_everything(self) -> None:
        vlc = vlcs.VLC("a")
        library = vlc.load_library("libx.so")
        function = library.f
        vlc.close()
        uses = {
            f"{__name__}.add()": lambda: vlc.run(add, 1),
            "import json": lambda: vlc.import_module("json"),
            "load_library('libx.so')": lambda: vlc.load_library("libx.so"),
            "a `with` block": vlc.__enter__,
            "resize()": lambda: vlc.resize("0"),
            "verify()": vlc.verify,
            "stats()": vlc.stats,
            "libx.so.f()": function,
            "libx.so: g": lambda: library.g,
        }
        for what, use in uses.items():
            with pytest.raises(vlcs.StateError) as caught:
                use()
            assert f"{what} in the context 'a': it is closed. Make another" in str(caught.value)
        with pytest.raises(vlcs.StateError):
            vlc.submit(add, 1)

    def test_busy_names_what_runs_and_can_be_tried_again(self, native: Native) -> None:
        vlc = vlcs.VLC("a")
        go = threading.Event()
        running, queued = vlc.submit(go.wait, 5), vlc.submit(add, 1)
        with pytest.raises(vlcs.BusyError) as caught:
            vlc.close(0.05)
        assert f"after 0.05 s it still runs threading.Event.wait(), {__name__}.add() (queued)" in str(
            caught.value
        )
        assert vlc.closed
        with pytest.raises(vlcs.StateError):
            vlc.run(add, 1)
        go.set()
        vlc.close(5)
        assert (running.result(), queued.result()) == (True, 3)
        assert native.log[-1] == "destroy a"

    def test_native_busy_can_be_tried_again(self, native: Native) -> None:
        vlc = vlcs.VLC("a")
        native.context.refuse = "destroy"
        with pytest.raises(vlcs.BusyError, match=r"libx\.so"):
            vlc.close()
        assert vlcs.contexts() == [vlc]  # so that it can be found, to be closed again
        vlc.close()
        assert native.log[-1] == "destroy a"
        assert vlcs.contexts() == []

    def test_not_from_inside(self) -> None:
        vlc = vlcs.VLC("a")
        with vlc, pytest.raises(vlcs.StateError, match="from inside it"):
            vlc.close()
        with pytest.raises(vlcs.StateError, match="from inside it"):
            vlc.run(vlc.close)
        assert isinstance(vlc.submit(vlc.close).exception(5), vlcs.StateError)
        assert not vlc.closed

    def test_arrays_held_outside_are_counted(self) -> None:
        vlc = vlcs.VLC("a")
        vlc._instance._interpreter.leases = 2
        assert vlc.stats().leases == 2

    def test_two_closers(self, native: Native) -> None:
        vlc = vlcs.VLC("a")
        closers = [threading.Thread(target=vlc.close) for _ in range(4)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join()
        assert native.log.count("destroy a") == 1

    @pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
    def test_bad_timeout(self, timeout: Any) -> None:
        with pytest.raises(vlcs.ArgumentError, match="give seconds"):
            vlcs.VLC().close(timeout)


class TestLibrary:
    def test_loads_and_calls_inside(self, native: Native) -> None:
        vlc = vlcs.VLC("a", interpreter=False)
        library = vlc.load_library("libx.so")
        assert native.log[-1] == "load libx.so 2"
        assert repr(library) == "<vlcs.Library 'libx.so' in context 'a'>"
        assert library.f is library.f
        assert library["f"] is not library["f"]
        assert repr(library.f) == "<function 'f' of 'libx.so' in context 'a'>"
        assert library.address_of("f") == 4096 + 77

    def test_missing(self) -> None:
        vlc = vlcs.VLC("a", interpreter=False)
        with pytest.raises(vlcs.LoadError, match="no such file"):
            vlc.load_library("libmissing.so")
        library = vlc.load_library("libx.so")
        for ask in (
            lambda: library.missing,
            lambda: library["missing"],
            lambda: library.address_of("missing"),
        ):
            with pytest.raises(vlcs.SymbolError, match="cannot find missing"):
                ask()
        assert not hasattr(library, "missing")

    def test_ctypes_is_told_how_to_ask(self) -> None:
        library = vlcs.VLC("a", interpreter=False).load_library("libx.so")
        for ask in (
            lambda: ctypes.c_int.in_dll(library, "f"),
            lambda: ctypes.CFUNCTYPE(None)(("f", library)),
        ):
            with pytest.raises(vlcs.SymbolError, match=r"library\.address_of"):
                ask()

    @pytest.mark.parametrize("name", ["", "a\0b", 3, None, b"libx.so", "\ud800"])
    def test_no_path(self, name: Any) -> None:
        with pytest.raises(vlcs.ArgumentError, match="give a path or a soname as text"):
            vlcs.VLC("a", interpreter=False).load_library(name)
