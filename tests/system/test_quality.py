"""Nice values, policies and control groups of the threads that contexts own, as the kernel has them."""

from __future__ import annotations

import os

import pytest

from support.child import run_child


def test_own_threads_have_the_nice_value_and_policy_and_visitors_keep_theirs() -> None:
    run_child(
        """
        import os, threading, vlcs
        nice = lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        outside = nice()

        def work():
            import os, threading, numpy as np
            np.ones((300, 300)) @ np.ones((300, 300))
            found = []
            look = lambda: found.append((os.getpriority(os.PRIO_PROCESS, threading.get_native_id()),
                                         os.sched_getscheduler(0)))
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
            look()
            return found

        vlc = vlcs.VLC("a", nice=outside + 7, scheduling="batch", threads=2)
        own = (outside + 7, os.SCHED_BATCH)
        assert vlc.submit(work).result() == [own, own]
        assert vlc.run(work) == [own, (outside, os.SCHED_OTHER)]  # the thread that it makes is the context's
        assert nice() == outside and os.sched_getscheduler(0) == os.SCHED_OTHER
        report = vlc.slice.report()
        for name, granted in (("nice", str(outside + 7)), ("scheduling", "batch")):
            line = report[name]
            assert (line["state"], line["granted"]) == ("advisory", granted), line
            assert "one that calls in" in line["reason"] and "resident=True" in line["cure"], line
        assert vlc.verify().holds, vlc.verify()

        moved = vlc.threads()[0]
        os.setpriority(os.PRIO_PROCESS, moved, 19)
        os.sched_setscheduler(moved, os.SCHED_IDLE, os.sched_param(0))
        found = vlc.verify()
        assert not found.holds and not found.outside
        assert found.differences == (
            f"thread {moved} has nice value 19, not {outside + 7}",
            f"thread {moved} has policy SCHED_IDLE, not SCHED_BATCH",
        ), found
        resident = vlcs.VLC("b", nice=outside + 3, resident=True)
        assert resident.run(work)[1][0] == outside + 3
        assert "runs on threads of its own" in resident.slice.report()["nice"]["reason"]
        """,
        timeout=60,
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="no-setuid: only root may become another user")
def test_a_nice_value_that_the_kernel_refuses_is_unavailable_and_nothing_is_changed() -> None:
    run_child(
        """
        import os, warnings, vlcs
        os.setuid(65534)
        nice = os.getpriority(os.PRIO_PROCESS, os.getpid())
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            vlc = vlcs.VLC("a", nice=nice - 1, interpreter=False)
        (warning,) = caught
        assert warning.category is vlcs.UnavailableWarning
        text = f"nice={nice - 1} of the context 'a' is unavailable: the process may not come before others: "
        assert str(warning.message).startswith(text), warning
        line = vlc.slice.report()["nice"]
        assert (line["state"], line["granted"]) == ("unavailable", None)
        assert line["requested"] == f"nice={nice - 1}"
        assert "CAP_SYS_NICE" in line["cure"]
        assert {os.getpriority(os.PRIO_PROCESS, thread) for thread in vlc.threads()} <= {nice}
        assert vlc.verify().holds
        """,
        timeout=30,
    )
