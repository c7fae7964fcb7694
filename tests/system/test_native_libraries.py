"""Cases L1 to L8, U1 and U4: native libraries of contexts, from Python (tests/native does it from C)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.child import run_child
from support.machine import two_cpus

if TYPE_CHECKING:
    from support.libraries import Builder


def test_l1_one_library_three_counters(build: Builder) -> None:
    counter = build("counter.c", "libcounter.so")
    run_child(
        """
        import ctypes, sys, vlcs
        host = ctypes.CDLL(sys.argv[1])
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        in_a, in_b = a.load_library(sys.argv[1]), b.load_library(sys.argv[1])
        counts = [library.counter_next(step) for _ in range(3)
                  for library, step in ((host, 1), (in_a, 10), (in_b, 100))]
        assert counts == [1, 10, 100, 2, 20, 200, 3, 30, 300], counts
        a.close()
        assert in_b.counter_next(100) == 400 and host.counter_next(1) == 4
        # A guest's ctypes sees a copy of its context, and not of the host.
        assert b.run(lambda path: __import__("ctypes").CDLL(path).counter_next(0), sys.argv[1]) == 400
        """,
        timeout=30,
        args=[str(counter)],
    )


def test_l2_a_library_promotes_another(build: Builder) -> None:
    build("provider.c", "libprovider.so")
    promoter = build("promoter.c", "libpromoter.so", "-Wl,-rpath,$ORIGIN")
    consumer = build("consumer.c", "libconsumer.so")
    run_child(
        """
        import sys, vlcs
        a = vlcs.VLC("a", interpreter=False)
        assert a.load_library(sys.argv[1]).promoter_found(0) == 1
        assert a.load_library(sys.argv[2]).consume(20) == 42
        b = vlcs.VLC("b", interpreter=False)
        try:
            b.load_library(sys.argv[2])
        except vlcs.LoadError as error:
            assert "provided" in str(error) and "libconsumer.so" in str(error), error
        else:
            sys.exit("the promotion reached another context")
        """,
        timeout=30,
        args=[str(promoter), str(consumer)],
    )


def test_l2_onetbb() -> None:
    run_child(
        """
        import os, sys, sysconfig, vlcs
        path = os.path.join(sys.prefix, "lib", "libtbb.so.12")
        for name in "ab":
            context = vlcs.VLC(name, interpreter=False)
            assert context.load_library(path).TBB_runtime_interface_version() >= 12000
        """,
        timeout=30,
    )


def test_l3_pythonapi_is_the_contexts_own() -> None:
    run_child(
        """
        import ctypes, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def address():
            import ctypes
            api = ctypes.pythonapi
            api.PyLong_FromLong.restype = ctypes.py_object
            assert api.PyLong_FromLong(12345) == 12345  # another interpreter's would crash
            return ctypes.cast(api.Py_IncRef, ctypes.c_void_p).value
        addresses = {address(), a.run(address), b.run(address)}
        assert len(addresses) == 3, addresses
        """,
        timeout=30,
    )


def test_l3_lightgbm_imports_and_fits() -> None:
    run_child(
        """
        import vlcs
        def fit():
            import numpy as np, lightgbm
            x = np.arange(400.0).reshape(200, 2)
            model = lightgbm.LGBMRegressor(n_estimators=3, min_child_samples=5, verbose=-1).fit(x, x[:, 0])
            return model.predict(x).sum()
        with_context = vlcs.VLC("a").run(fit)
        assert with_context == fit(), with_context
        """,
        timeout=60,
        preload=True,
    )


def test_l4_a_neighbour_by_its_bare_name(build: Builder) -> None:
    caller = build("caller.c", "libcaller.so", "-Wl,-rpath,$ORIGIN/deps")
    build("neighbour.c", "deps/libneighbour.so")
    run_child(
        """
        import ctypes, sys, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        assert [a.load_library(sys.argv[1]).caller_open(10) for _ in range(2)] == [11, 12]
        assert b.load_library(sys.argv[1]).caller_open(10) == 11
        assert ctypes.CDLL(sys.argv[1]).caller_open(10) == 11
        """,
        timeout=30,
        args=[str(caller)],
    )


def test_l5_locale_and_ctype_from_threads_of_the_host(build: Builder) -> None:
    probe = build("locale_probe.c", "liblocale_probe.so")
    run_child(
        """
        import sys, vlcs
        from concurrent.futures import ThreadPoolExecutor
        contexts = [vlcs.VLC(name) for name in "ab"]
        probes = [context.load_library(sys.argv[1]).locale_probe for context in contexts]
        with ThreadPoolExecutor(8) as pool:
            lines = set(pool.map(lambda turn: probes[turn % 2](turn), range(2000)))
        assert lines == {0}, f"locale_probe.c, lines {lines}"
        """,
        timeout=30,
        args=[str(probe)],
    )


def test_l6_static_tls_runs_out_in_words() -> None:
    run_child(
        """
        import vlcs
        contexts = []
        while len(contexts) < 20:  # libgomp wants initial-exec slots, and the pool is small here
            contexts.append(vlcs.VLC(resident=False))
            try:
                contexts[-1].load_library("libgomp.so.1")
            except vlcs.LimitError as error:
                assert "libgomp" in str(error) and "vlcs run" in str(error), error
                break
        else:
            raise SystemExit("the pool never ran out")
        last = contexts.pop()
        try:  # what the context's own Python hears
            last.run(lambda: __import__("ctypes").CDLL("libgomp.so.1"))
        except OSError as error:
            assert "libgomp" in str(error) and "vlcs run" in str(error), error
        assert len(contexts) >= 2 and vlcs.limits().static_tls_used > 0
        threads = {context.load_library("libgomp.so.1").omp_get_max_threads() for context in contexts}
        assert len(threads) == 1, threads  # earlier contexts still work
        contexts.pop().close()
        assert {last.load_library("libgomp.so.1").omp_get_max_threads()} == threads
        """,
        timeout=30,
    )


def test_l7_exceptions_threads_and_streams_of_cxx(build: Builder) -> None:
    probe = build("cxx_probe.cc", "libcxx_probe.so", "-fno-gnu-unique")
    finished = run_child(
        """
        import sys, threading, vlcs
        a = vlcs.VLC("a")
        library = a.load_library(sys.argv[1])
        assert library.cxx_catch(50) == 59
        assert library.cxx_threads(3) == 3 * 59
        assert a.submit(library.cxx_catch, 50).result() == 59
        seen = []
        threads = [threading.Thread(target=lambda: seen.append(library.cxx_catch(50))) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        assert seen == [59] * 4
        library.cxx_print(0)
        """,
        timeout=30,
        args=[str(probe)],
    )
    assert finished.stdout == "from a context, 42, not flushed"


@pytest.mark.parametrize("library", ["libomp.so.5", "libiomp5.so"])
def test_l8_two_copies_of_intel_and_llvm_openmp(library: str) -> None:
    run_child(
        """
        import ctypes, os, sys, vlcs
        path = sys.argv[1]
        if path == "libiomp5.so":
            path = os.path.join(sys.prefix, "lib", path)  # where the package intel-openmp puts it
        kept = []
        def in_parallel(library):
            seen = []
            callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: seen.append(1))
            kept.append(callback)
            library.GOMP_parallel(callback, None, 2, 0)
            return len(seen)
        contexts = [vlcs.VLC(interpreter=False) for _ in range(2)]
        assert [in_parallel(context.load_library(path)) for context in contexts] == [2, 2]
        assert in_parallel(ctypes.CDLL(path)) == 2
        contexts[0].close()
        assert in_parallel(contexts[1].load_library(path)) == 2
        """,
        timeout=30,
        args=[library],
    )


def test_u1_a_static_work_array_in_two_contexts(build: Builder) -> None:
    first, second = two_cpus()
    kernel = build("static_work.c", "libstatic_work.so")
    run_child(
        """
        import ctypes, sys, threading, vlcs
        path, cpus = sys.argv[1], sys.argv[2:]
        def typed(library):
            library.static_work.restype = ctypes.c_double
            library.static_work.argtypes = [ctypes.c_double, ctypes.c_long]
            return library.static_work
        serial = typed(ctypes.CDLL(path))
        expected = [serial(seed, 500) for seed in (1.0, 2.0)]
        kernels = [typed(vlcs.VLC(cpus=cpu, interpreter=False).load_library(path)) for cpu in cpus]
        for _ in range(5):
            found = [0.0, 0.0]
            def solve(which):
                found[which] = kernels[which](which + 1.0, 500)
            threads = [threading.Thread(target=solve, args=[which]) for which in range(2)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert found == expected, (found, expected)  # bit for bit
        """,
        timeout=60,
        args=[str(kernel), str(first), str(second)],
    )


def test_u4_glpk_handles_belong_to_one_thread() -> None:
    run_child(
        """
        import ctypes, threading, vlcs
        context = vlcs.VLC("glpk")
        glpk = context.load_library("libglpk.so.40")
        glpk.glp_create_prob.restype = ctypes.c_void_p
        glpk.glp_get_obj_val.restype = ctypes.c_double
        pointer, number, integer = ctypes.c_void_p, ctypes.c_double, ctypes.c_int
        glpk.glp_set_obj_coef.argtypes = [pointer, integer, number]
        glpk.glp_set_col_bnds.argtypes = [pointer, integer, integer, number, number]
        for name in ("glp_get_obj_val", "glp_delete_prob"):
            getattr(glpk, name).argtypes = [pointer]
        for name in ("glp_set_obj_dir", "glp_add_cols"):
            getattr(glpk, name).argtypes = [pointer, integer]
        glpk.glp_simplex.argtypes = [pointer, pointer]
        run = lambda function, *arguments: context.submit(function, *arguments).result()
        run(glpk.glp_term_out, 0)
        problem = run(glpk.glp_create_prob)          # from this thread
        answers = []
        def solve():                                 # from another: the work runs on the context's one thread
            run(glpk.glp_set_obj_dir, problem, 2)
            run(glpk.glp_add_cols, problem, 1)
            run(glpk.glp_set_col_bnds, problem, 1, 4, 0.0, 3.0)
            run(glpk.glp_set_obj_coef, problem, 1, 2.0)
            run(glpk.glp_simplex, problem, None)
            answers.append(run(glpk.glp_get_obj_val, problem))
        thread = threading.Thread(target=solve)
        thread.start()
        thread.join()
        run(glpk.glp_delete_prob, problem)
        run(glpk.glp_free_env)
        assert answers == [6.0], answers
        """,
        timeout=30,
    )


def test_r1_the_host_frees_what_a_library_returns(build: Builder) -> None:
    run_child(
        """
        import ctypes, sys, vlcs
        own = vlcs.VLC("own", interpreter=False)
        hosts = vlcs.VLC("hosts", interpreter=False, heap="host")
        host = ctypes.CDLL(None)
        host.free.argtypes, host.free.restype = [ctypes.c_void_p], None
        for vlc in own, hosts:
            library = vlc.load_library(sys.argv[1])
            library.heap_give.restype, library.heap_give.argtypes = ctypes.c_void_p, [ctypes.c_long]
            library.free.argtypes, library.free.restype = [ctypes.c_void_p], None
            for size in (1, 100, 5000, 1 << 20):
                library.free(library.heap_give(size))
                if vlc is hosts:
                    host.free(library.heap_give(size))
        """,
        timeout=30,
        args=[str(build("heap.c", "libheap.so", "-O1", "-fno-builtin"))],
    )
