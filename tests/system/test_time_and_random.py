"""What Python shows of the state of libc (R5): each guest has its own time zone and random numbers."""

from __future__ import annotations

from support.child import run_child


def test_a_time_zone_of_its_own() -> None:
    run_child(
        """
        import os, time, vlcs
        noon = 1_720_008_000  # 2024-07-03, 12:00 UTC
        def guest(zone):
            import datetime, os, time
            if zone:
                os.environ["TZ"] = zone
                time.tzset()
            noon = 1_720_008_000
            there = datetime.datetime.fromtimestamp(noon).astimezone()
            made = int(time.mktime((2024, 7, 3, there.hour, 0, 0, 0, 0, -1)))
            printed = time.strftime("%H %Z %z %s", time.localtime(noon))
            return there.tzname(), there.hour, time.tzname, time.timezone, made == noon, printed

        os.environ["TZ"] = "UTC0"
        time.tzset()
        a = vlcs.VLC("a", env={"TZ": "XYZ-9"})
        b = vlcs.VLC("b")
        for zone in (None, "ABC-9", None):
            assert b.run(guest, "EST5EDT,M3.2.0,M11.1.0") == (
                "EDT", 8, ("EST", "EDT"), 18000, True, f"08 EDT -0400 {noon}")
            name = "ABC" if zone or a.run(lambda: __import__("os").environ["TZ"]) == "ABC-9" else "XYZ"
            assert a.run(guest, zone) == (name, 21, (name, name), -32400, True, f"21 {name} +0900 {noon}")
            assert time.localtime(noon).tm_hour == 12 and time.tzname == ("UTC", "UTC")
        assert os.environ["TZ"] == "UTC0"
        """,
        timeout=60,
    )


def test_random_numbers_of_c_libraries() -> None:
    run_child(
        """
        import ctypes, vlcs
        def draw(seed):
            import ctypes
            libc = ctypes.CDLL(None)
            if seed is not None:
                libc.srand(seed)
            return [libc.rand() for _ in range(5)]
        fresh = draw(None)  # nobody in this process has drawn before
        a, b = vlcs.VLC("a"), vlcs.VLC("b")
        assert a.run(draw, None) == fresh and b.run(draw, None) == fresh
        assert a.run(draw, 7) == draw(7) == b.run(draw, 7)
        assert a.run(draw, None) == draw(None) != fresh
        """,
        timeout=60,
    )
