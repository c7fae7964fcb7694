"""Children of a process with contexts: fork, subprocess, multiprocessing; of the host and of a context."""

from __future__ import annotations

from support.child import run_child


def test_a_forked_child_says_that_contexts_stayed_behind() -> None:
    run_child(
        """
        import os, sys, vlcs
        a = vlcs.VLC("a")
        a.run(lambda: __import__("atexit").register(print, "end of a"))
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            load = lambda: a.load_library("libz.so.1")
            for call in (lambda: a.run(len, "x"), lambda: a.submit(len, "x"), a.stats, load):
                try:
                    call()
                except vlcs.StateError as error:
                    assert "'a'" in str(error) and "fork" in str(error), error
                else:
                    os._exit(1)
            assert a.closed
            own = vlcs.VLC("a")  # the child can have contexts of its own
            assert own.run(len, "child") == 5
            own.close()
            sys.exit(7)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7, status
        assert a.run(len, "on") == 2
        """,
        timeout=30,
    )


def test_a_context_forks_and_starts_programs() -> None:
    run_child(
        """
        import sys, vlcs
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        def fork():
            import os
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                import json, threading
                words = []
                thread = threading.Thread(target=words.append, args=["thread"])
                thread.start()
                thread.join()
                os.write(writer, json.dumps(words).encode())
                os._exit(5)
            _, status = os.waitpid(pid, 0)
            return os.read(reader, 100), os.waitstatus_to_exitcode(status)
        def program():
            import subprocess, sys
            return subprocess.check_output([sys.executable, "-c", "print(6 * 7)"], text=True)
        for context in (a, b):
            assert context.run(fork) == (b'["thread"]', 5)
            assert context.submit(fork).result() == (b'["thread"]', 5)
            assert context.run(program) == "42\\n"
        assert program() == "42\\n"
        """,
        timeout=60,
    )


def test_multiprocessing_beside_contexts() -> None:
    run_child(
        """
        import multiprocessing, operator, vlcs
        if __name__ == "__main__":
            a = vlcs.VLC("a")
            for method in ("fork", "spawn"):
                with multiprocessing.get_context(method).Pool(2) as pool:
                    assert pool.starmap(operator.add, [(1, 2), (3, 4)]) == [3, 7], method
            assert a.run(len, "on") == 2
            def inside():
                import multiprocessing, operator
                with multiprocessing.get_context("fork").Pool(2) as pool:
                    return pool.starmap(operator.add, [(1, 2), (3, 4)])
            assert a.run(inside) == [3, 7]
        """,
        timeout=60,
    )
