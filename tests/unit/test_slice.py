"""What a context was given, and how firmly each part is held."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from support.machines import machine
from vlcs._core import _choice, _gpu, _request, _slice

if TYPE_CHECKING:
    import vlcs
    from vlcs._core._machine import Machine


def grant(on: Machine, gpu: object = None, **options: object) -> vlcs.Slice:
    request = _request.read(**options)  # type: ignore[arg-type]
    choice = _choice.choose(request, on) if request else None
    return _slice.grant(request, choice, on, others=[_gpu.resource(gpu)])


def test_what_and_where() -> None:
    granted = grant(machine("epyc-nps4"), cores=9)
    assert granted.cpus == (*range(9), *range(64, 73))
    assert granted.nodes == (0, 1)
    assert granted.why == "18 CPUs on 9 cores; nodes 0-1; package 0; 3 cache domains"


def test_report_is_plain_data() -> None:
    report = grant(machine("laptop"), cores=2).report()
    assert json.loads(json.dumps(report)) == report
    assert set(report) == {"cpus", "gpu"}
    for line in report.values():
        assert set(line) == {"state", "requested", "granted", "reason", "cure"}
        assert type(line["state"]) is str


def test_a_part_of_the_cpus_is_advisory() -> None:
    line = grant(machine("laptop"), cores=2).report()["cpus"]
    assert (line["state"], line["requested"], line["granted"]) == ("advisory", "cores=2", "0-1,4-5")
    assert "a library that makes the system call itself" in line["reason"]
    assert "verify() asks the kernel" in line["cure"]


@pytest.mark.parametrize("options", [{}, {"fraction": 1}, {"cpus": "0-7"}])
def test_all_that_the_kernel_allows_is_enforced(options: dict[str, object]) -> None:
    line = grant(machine("laptop"), **options).report()["cpus"]
    assert (line["state"], line["granted"], line["cure"]) == ("enforced", "0-7", "")


def test_what_the_control_group_allows_is_enforced_by_it() -> None:
    assert grant(machine("docker-v2"), cpus="0-7").report()["cpus"]["state"] == "enforced"
    assert grant(machine("docker-v2"), cpus="0-6").report()["cpus"]["state"] == "advisory"


def test_an_affinity_can_be_left() -> None:
    """taskset narrows what we are given, and not what a library may ask the kernel for."""
    on = replace(machine("laptop"), allowed=frozenset({0, 1}))
    line = grant(on).report()["cpus"]
    assert (line["state"], line["requested"], line["granted"]) == ("advisory", None, "0-1")


def test_gpu_is_unavailable_and_says_why() -> None:
    line = grant(machine("laptop")).report()["gpu"]
    assert (line["state"], line["requested"], line["granted"]) == ("unavailable", None, None)
    assert "contexts do not divide GPUs yet" in line["reason"]
    assert "torch.cuda.set_device" in line["cure"]
    assert grant(machine("laptop"), gpu=0.5).report()["gpu"]["requested"] == "gpu=0.5"
