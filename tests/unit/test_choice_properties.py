"""What holds of every choice and every plan, on machines and with claims that nobody thought of."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import vlcs
from support import machines
from vlcs._core import _choice, _machine, _placement, _request
from vlcs._core._choice import Claim
from vlcs._core._kernel_text import parse_list

if TYPE_CHECKING:
    from collections.abc import Callable

    from vlcs._core._machine import Machine
    from vlcs._core._topology import CPU

# Derandomized: a run of the tests finds what the run before it found.
PROPERTY = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@dataclass(frozen=True)
class Situation:
    machine: Machine
    claims: tuple[Claim, ...]

    @property
    def uses(self) -> dict[int, int]:
        return {cpu: sum(cpu in claim.cpus for claim in self.claims) for cpu in self.machine.allowed}

    def groups(self, key: Callable[[CPU], object]) -> list[frozenset[int]]:
        """Free whole cores' CPUs with the same key."""
        found: dict[object, set[int]] = {}
        for core in self.machine.topology.cores(self.machine.allowed):
            if not any(self.uses[cpu] for cpu in core):
                found.setdefault(key(self.machine.topology.cpu(min(core))), set()).update(core)
        return [frozenset(cpus) for cpus in found.values()]

    def cores(self, cpus: Any) -> int:
        return len(self.machine.topology.cores(cpus))


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    cores = draw(st.integers(1, 6))
    model = machines.Model(
        machines.uniform(
            packages=draw(st.integers(1, 3)),
            nodes=(nodes := draw(st.integers(1, 2))),
            cores=cores,
            threads=draw(st.integers(1, 2)),
            # Of the whole package, which may have two nodes, or a part of a node.
            l3=draw(st.sampled_from([None, *(share for share in (1, 2, 3) if cores % share == 0)])),
            number=draw(st.sampled_from(["last", "adjacent", "round"])),
        ),
    )
    total = len({core.node for core in model.cores})
    model = replace(model, distances=machines.distances(total // nodes, nodes))
    machine = _machine.read(machines.root(model))
    cpus = sorted(machine.allowed)
    allowed = draw(st.one_of(st.just(machine.allowed), st.frozensets(st.sampled_from(cpus), min_size=1)))
    some = st.frozensets(st.sampled_from(sorted(allowed)), min_size=1, max_size=6)
    claims = draw(st.lists(st.tuples(some, st.booleans()), max_size=4))
    return Situation(
        replace(machine, allowed=allowed),
        tuple(Claim(f"c{n}", numbers, alone) for n, (numbers, alone) in enumerate(claims)),
    )


amounts = st.one_of(
    st.fixed_dictionaries({"cpus": st.integers(1, 12)}),
    st.fixed_dictionaries({"cores": st.integers(1, 12)}),
    st.fixed_dictionaries({"fraction": st.floats(0.01, 1)}),
)


@PROPERTY
@given(situations(), amounts, st.booleans(), st.booleans())
def test_a_choice_is_what_was_asked_for_or_an_error(
    at: Situation, amount: dict[str, Any], exclusive: bool, packed: bool
) -> None:
    request = _request.read(**amount, exclusive=exclusive)
    assert request is not None
    settled = _choice.settle(request, at.machine)
    try:
        chosen = _choice.choose(request, at.machine, at.claims, packed=packed)
    except vlcs.ArgumentError:
        assert (settled.cores or 0) > at.cores(at.machine.allowed) or (settled.count or 0) > len(
            at.machine.allowed
        )
        return
    except vlcs.LimitError:
        assert at.claims
        return
    cpus = frozenset(chosen.cpus)
    assert cpus <= at.machine.allowed
    if settled.cores is not None:
        assert at.cores(cpus) == settled.cores
        assert all(at.machine.topology.siblings(cpu) & at.machine.allowed <= cpus for cpu in cpus)
    else:
        assert len(cpus) == settled.count
        # As few claimed CPUs as there can be, and those that are claimed least.
        closed = {cpu for claim in at.claims if claim.exclusive or exclusive for cpu in claim.cpus}
        best = sorted(uses for cpu, uses in at.uses.items() if cpu not in closed)[: settled.count]
        assert sorted(at.uses[cpu] for cpu in cpus) == best
    assert not any(claim.cpus & cpus for claim in at.claims if claim.exclusive or exclusive)
    assert set(chosen.overlaps) == {claim for claim in at.claims if claim.cpus & cpus}
    again = _choice.choose(request, at.machine, at.claims[::-1], packed=packed)
    assert again.cpus == chosen.cpus


@PROPERTY
@given(situations(), st.integers(1, 12))
def test_one_group_is_enough_where_one_is_large_enough(at: Situation, count: int) -> None:
    if count > sum(at.cores(group) for group in at.groups(lambda _: 0)):
        return
    request = _request.read(cores=count)
    assert request is not None
    chosen = [at.machine.topology.cpu(cpu) for cpu in _choice.choose(request, at.machine, at.claims).cpus]
    for key in (lambda cpu: cpu.package, lambda cpu: cpu.node, lambda cpu: cpu.domain):
        if any(at.cores(group) >= count for group in at.groups(key)):
            assert len({key(cpu) for cpu in chosen}) == 1


@PROPERTY
@given(situations(), st.integers(1, 12), st.integers(0, 71))
def test_near_is_as_near_as_there_is_room(at: Situation, count: int, index: int) -> None:
    topology = at.machine.topology
    anchor = topology.cpu(sorted(at.machine.allowed)[index % len(at.machine.allowed)])
    at = replace(at, claims=(*at.claims, Claim("near", frozenset({anchor.number}), exclusive=False)))
    if count > sum(at.cores(group) for group in at.groups(lambda _: 0)):
        return
    request = _request.read(cores=count, near="near")
    assert request is not None
    chosen = [topology.cpu(cpu) for cpu in _choice.choose(request, at.machine, at.claims).cpus]
    for key in (lambda cpu: cpu.domain, lambda cpu: cpu.node, lambda cpu: cpu.package):
        room = [group for group in at.groups(key) if key(topology.cpu(min(group))) == key(anchor)]
        if room and at.cores(room[0]) >= count:
            assert {key(cpu) for cpu in chosen} == {key(anchor)}


@PROPERTY
@given(situations(), st.lists(st.tuples(st.integers(1, 5), st.integers(-1, 4)), max_size=6))
def test_a_plan_shares_nothing_that_need_not_be_shared(at: Situation, asked: list[tuple[int, int]]) -> None:
    """Cores only; each context may be near one that is earlier in the list."""
    contexts: dict[str, dict[str, Any]] = {}
    for number, (cores, near) in enumerate(asked):
        options: dict[str, Any] = {"cores": cores}
        if 0 <= near < number:
            options["near"] = f"x{near}"
        contexts[f"x{number}"] = options
    try:
        plan = _placement.place(contexts, at.machine, at.claims)
    except (vlcs.ArgumentError, vlcs.LimitError):
        assert any(cores > at.cores(at.machine.allowed) for cores, _ in asked) or at.claims
        return
    assert json.loads(json.dumps(plan)) == plan
    assert plan == _placement.place(contexts, at.machine, at.claims)
    planned = {name: parse_list(context["cpus"]) for name, context in plan["contexts"].items()}
    for name, (cores, _) in zip(contexts, asked, strict=True):
        assert at.cores(planned[name]) == cores
    if sum(cores for cores, _ in asked) <= sum(at.cores(group) for group in at.groups(lambda _: 0)):
        assert not any(context["overlaps"] for context in plan["contexts"].values())


@PROPERTY
@given(st.text(max_size=12))
def test_any_text_is_a_list_or_an_error(text: str) -> None:
    try:
        numbers = parse_list(text)
    except ValueError:
        return
    assert numbers


@PROPERTY
@given(st.text(alphabet="0123456789:,/-. \ncpusetg\\max", max_size=60), st.text(max_size=40))
def test_any_text_of_the_kernel_is_read(cgroup: str, other: str) -> None:
    """Whatever is in the files, reading them gives a machine."""
    files = machines.files(machines.MODELS["laptop"])
    for path in ("proc/self/cgroup", "proc/self/mountinfo", "proc/self/status"):
        files[path] = cgroup
    for path in (
        "cpu0/topology/core_cpus_list",
        "cpu1/cache/index1/level",
        "cpu2/topology/physical_package_id",
    ):
        files[f"sys/devices/system/cpu/{path}"] = other
    files["sys/devices/system/node/node0/distance"] = other
    files["sys/devices/system/node/node0/meminfo"] = other
    machine = _machine.read(machines.Memory(files))
    assert machine.allowed
    assert machine.nodes == {0}
