"""Case P6 and kin: programs that a context starts see its slice and its environment, by whatever way."""

from __future__ import annotations

import json
import textwrap
from importlib.resources import files

import pytest

from support.child import run_child
from support.machine import two_cpus

# Prints what `ask` gives inside a context of the slice in sys.argv[1].
ASK = """
import json, sys, vlcs
{ask}
print(json.dumps(vlcs.VLC(cpus=sys.argv[1], env={{"VLC_TEST_X": "one"}}).run(ask)))
"""

COUNTS = """
def ask():
    import joblib, os, subprocess, sys
    def output(*command, **options):
        done = subprocess.run(command, check=True, capture_output=True, text=True, **options)
        assert not done.stderr, done.stderr  # ld.so complains there of what it cannot preload
        return done.stdout
    python = "import os; print(os.cpu_count())"
    nested = "import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', %r], text=True))"
    path = {"PATH": os.environ["PATH"]}
    lines = lambda text: len([line for line in text.splitlines() if not line.startswith("#")])
    return {
        "joblib": joblib.cpu_count(only_physical_cores=True),
        "nproc": int(output("nproc")),
        "getconf": int(output("getconf", "_NPROCESSORS_ONLN")),
        "lscpu -p=core": lines(output("lscpu", "-p=core")),
        "lscpu -b -p=cpu": lines(output("lscpu", "-b", "-p=cpu")),
        "python": int(output(sys.executable, "-c", python)),
        "python, env={}": int(output(sys.executable, "-c", python, env={})),
        "python, open descriptors": int(output(sys.executable, "-c", python, close_fds=False)),
        "python, preexec_fn": int(output(sys.executable, "-c", python, preexec_fn=lambda: None)),
        "python of a python": int(output(sys.executable, "-c", nested % python)),
        "shell": int(output("nproc", shell=True)),
        "shell, env=": int(output("getconf _NPROCESSORS_ONLN", shell=True, env=path)),
        "os.popen": int(os.popen("nproc").read()),
        "cpuinfo": int(output("grep", "-c", "^processor", "/proc/cpuinfo")),
    }
"""


def ask(program: str, cpus: str) -> dict[str, object]:
    """What the function `ask` of the program gives inside a context."""
    finished = run_child(ASK.format(ask=program), timeout=60, args=[cpus])
    assert not finished.stderr, finished.stderr
    answers: dict[str, object] = json.loads(finished.stdout.splitlines()[-1])
    return answers


@pytest.mark.parametrize("count", [1, 2])
def test_p6_children_count_the_cpus_of_the_slice(count: int) -> None:
    cpus = two_cpus()
    answers = ask(COUNTS, ",".join(map(str, cpus[:count])))
    cores = {"joblib", "lscpu -p=core"}  # two CPUs may be one core
    assert {name: answers[name] for name in answers if name not in cores or count == 1} == {
        name: count for name in answers if name not in cores or count == 1
    }


@pytest.mark.preload
@pytest.mark.parametrize("count", [1, 2])
def test_p6_lightgbm_starts_as_many_threads_as_its_slice_has(count: int) -> None:
    cpus = two_cpus()[:count]
    run_child(
        """
        import os, sys, vlcs
        def load():
            import lightgbm, numpy
        def fit():
            import lightgbm, numpy as np
            x = np.random.default_rng(0).normal(size=(500, 5))
            lightgbm.LGBMClassifier(n_estimators=3, verbose=-1).fit(x, x[:, 0] > 0)
        context = vlcs.VLC(cpus=sys.argv[1])
        context.run(load)  # OpenBLAS has its threads now
        before = set(context.threads())
        context.run(fit)
        started = set(context.threads()) - before
        # The caller is one of the team. Two CPUs may be one core, by which joblib counts.
        assert len(started) <= len(context.cpus) - 1, started
        """,
        timeout=60,
        args=[",".join(map(str, cpus))],
        preload=True,
    )


def test_children_have_the_environment_of_their_context() -> None:
    run_child(
        """
        import os, subprocess, sys, vlcs
        os.environ.update(VLC_TEST_X="host", OMP_NUM_THREADS="7")
        def show():
            import os, subprocess, sys
            command = 'printf "%s" "$VLC_TEST_X <$OMP_NUM_THREADS>"'
            def system():
                reader, writer = os.pipe()
                os.dup2(writer, 9)  # inheritable, and one digit, as shells want it
                os.close(writer)
                status = os.system(f"({command}) >&9; exit 3")
                os.close(9)
                with open(reader) as file:
                    assert os.waitstatus_to_exitcode(status) == 3
                    return file.read()
            def forked(start):
                reader, writer = os.pipe()
                pid = os.fork()
                if pid == 0:
                    os.dup2(writer, 1)
                    start()
                    os._exit(1)
                os.close(writer)
                with open(reader) as file:
                    text = file.read()
                assert os.waitpid(pid, 0)[1] == 0, text
                return text
            def spawned():
                reader, writer = os.pipe()
                actions = [(os.POSIX_SPAWN_DUP2, writer, 1)]
                pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, file_actions=actions)
                os.close(writer)
                with open(reader) as file:
                    text = file.read()
                assert os.waitpid(pid, 0)[1] == 0, text
                return text
            return {
                subprocess.check_output(command, shell=True, text=True),
                os.popen(command).read(),
                system(),
                forked(lambda: os.execv("/bin/sh", ["sh", "-c", command])),
                forked(lambda: os.execvp("sh", ["sh", "-c", command])),
                forked(lambda: os.execlp("sh", "sh", "-c", command)),
                forked(lambda: os.execve("/bin/sh", ["sh", "-c", command], os.environ)),
                spawned(),
            }
        def change():
            import os
            os.environ["VLC_TEST_X"] = "changed"
        a, b = vlcs.VLC("a", env={"VLC_TEST_X": "one"}), vlcs.VLC("b", env={"OMP_NUM_THREADS": "2"})
        assert a.run(show) == {"one <>"}, a.run(show)
        assert b.run(show) == {"host <2>"}, b.run(show)
        a.run(change)
        assert a.run(show) == {"changed <>"}, a.run(show)
        assert a.submit(show).result() == {"changed <>"}
        assert show() == {"host <7>"}, show()
        """,
        timeout=60,
    )


def test_children_of_the_host_see_the_whole_process() -> None:
    first, _ = two_cpus()
    run_child(
        """
        import os, subprocess, sys, vlcs
        def children():
            import os, subprocess, sys
            code = "import os; print(os.cpu_count(), 'VLCS_CHILD_CPUS' in os.environ)"
            return subprocess.check_output([sys.executable, "-c", code], text=True).split()
        before = children()
        assert before == [str(os.cpu_count()), "False"], before
        with vlcs.VLC(cpus=sys.argv[1]) as context:
            assert context.run(children) == ["1", "True"]
            context.resize(sorted(os.sched_getaffinity(0)))
            assert context.run(children)[0] == str(len(os.sched_getaffinity(0)))
            assert children() == before
        assert children() == before
        """,
        timeout=60,
        args=[str(first)],
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing_of_a_context_sees_its_slice(method: str) -> None:
    first, _ = two_cpus()
    program = f"""
    def ask():
        import multiprocessing, os
        with multiprocessing.get_context({method!r}).Pool(1) as pool:
            return [pool.apply(os.cpu_count), pool.apply(os.getenv, ["VLC_TEST_X"])]
    """
    assert ask(textwrap.dedent(program), str(first)) == [1, "one"]


def test_a_child_can_have_contexts_of_its_own() -> None:
    first, second = two_cpus()
    run_child(
        """
        import subprocess, sys, vlcs
        inner = '''
        import os, vlcs
        def count():
            import os, subprocess
            return os.cpu_count(), int(subprocess.check_output(["getconf", "_NPROCESSORS_ONLN"]))
        assert count() == (1, 1), count()
        with vlcs.VLC() as context:
            assert context.run(count) == (1, 1), context.run(count)
            assert list(context.cpus) == [CPU], context.cpus
        '''
        def start(text, cpu):
            import subprocess, sys, textwrap
            code = textwrap.dedent(text).replace("CPU", cpu)
            return subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True).stderr
        for cpu in sys.argv[1:]:
            with vlcs.VLC(cpus=cpu) as context:
                stderr = context.run(start, inner, cpu)
                assert not stderr, stderr
        """,
        timeout=60,
        args=[str(first), str(second)],
    )


@pytest.mark.parametrize("value", [None, "", "x", "1-", "3-1", "1x", ",", "99999"])
def test_a_missing_or_malformed_slice_is_no_slice(value: str | None) -> None:
    library = str(files("vlcs._core").joinpath("libvlcs_child.so"))
    program = "import os; print(os.cpu_count(), open('/sys/devices/system/cpu/online').read().strip())"
    env = {"LD_PRELOAD": library, "VLCS_CHILD_CPUS": value}
    assert run_child(program, timeout=20, env=env).lines == run_child(program, timeout=20).lines
