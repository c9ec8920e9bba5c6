"""Choices: each has its effect, numbers stay right whatever is chosen, bad ones are refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

import rten_aot.dialect.arithmetic
import rten_aot.dialect.attention
import rten_aot.dialect.conv
import rten_aot.dialect.elementwise
import rten_aot.dialect.matmul
import rten_aot.dialect.winograd  # noqa: F401
from rten_aot.dialect.functions import bindings
from rten_aot.dialect.registry import attrs_of, call, op_def
from rten_aot.errors import CompileError
from rten_aot.passes.fuse import fuse
from rten_aot.passes.legalize import legalize
from rten_aot.passes.pack_weights import pack_weights
from rten_aot.targets.base import Machine
from rten_aot.targets.common.choices import Choice, Decisions, check, faults
from rten_aot.targets.common.problems import Problem
from rten_aot.targets.common.schedule import schedule
from tests.targets.anchors import AVX2, AVX512, IN_ORDER, MACHINES, Array, ints, sym, tensor_type
from tests.targets.networks import module, run
from tests.targets.test_conv2d import Case

Build = Callable[..., relax.Expr]
machines = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@dataclass(frozen=True)
class Net:
    """A kernel with one problem in it, inputs for it, and what it is to give."""

    shapes: Sequence[Sequence[Any]]
    """Those of the inputs as the compiler knows them."""
    build: Build
    inputs: Sequence[Array]
    expected: Array

    def packed(self, machine: Machine, *choices: Choice) -> tvm.IRModule:
        """With packed weights, by a choice for the problem if one is given."""
        mod = module([tensor_type(shape) for shape in self.shapes], self.build)
        by_key = {self.problem(machine).key: choice for choice in choices}
        return pack_weights(mod, machine, lambda _line: None, by_key)

    def problem(self, machine: Machine) -> Problem:
        """The problem."""
        mod = module([tensor_type(shape) for shape in self.shapes], self.build)
        packed = pack_weights(mod, machine, lambda _line: None)
        calls = [value for _, value in bindings(packed["main"]) if op_def(value) is not None]
        (key,) = (a["rten.key"] for c in calls if (a := attrs_of(c).get("annotations")))
        problem = Problem.parse(key)
        assert problem is not None
        return problem

    def check(self, machine: Machine, choice: Choice) -> None:
        """Fail unless the numbers are right."""
        (value,) = run(self.packed(machine, choice), machine, self.inputs)
        largest = abs(self.expected).max(initial=1)
        np.testing.assert_allclose(
            value, self.expected, rtol=1e-5, atol=1e-5 * largest, err_msg=str(choice)
        )


def array(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype="float32")


def convolution(case: Case, *, free: bool = False) -> Net:
    """``relu(conv(x, w) + bias)``; if ``free``, only a run tells batch, height and width."""
    x, w, bias = array(*case.image), array(*case.weight_shape()), array(1, 1, 1, case.out)

    def build(b: relax.BlockBuilder, image: relax.Expr) -> relax.Expr:
        attrs = {"strides": list(case.strides), "dilations": list(case.dilations)}
        y = call(
            "conv", image, relax.const(w), ints(*case.pads),
            groups=case.groups, layout="NHWC", **attrs,
        )  # fmt: skip
        y = b.emit(call("add", b.emit(y), relax.const(bias)))
        return b.emit(call("relu", y))

    shape: list[Any] = list(case.image)
    if free:
        shape[:3] = [sym("n"), sym("h"), sym("w")]
    return Net([shape], build, [x], np.maximum(case.reference(x, w) + bias, 0))


def gemm(rows: Sequence[Any], inner: int, columns: int, sizes: Sequence[int] | None = None) -> Net:
    """``a @ w + bias``, where ``sizes`` are those that ``rows`` have when it runs."""
    a, w, bias = array(*(sizes or rows), inner), array(inner, columns), array(columns)

    def build(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = b.emit(call("matmul", x, relax.const(w)))
        return b.emit(call("add", y, relax.const(bias)))

    return Net([[*rows, inner]], build, [a], a.astype(np.float64) @ w + bias)


def matmul(left: Sequence[int], right: Sequence[int], *, transposed: bool = False) -> Net:
    """``a @ b``."""
    a, b = array(*left), array(*right)

    def build(builder: relax.BlockBuilder, x: relax.Expr, y: relax.Expr) -> relax.Expr:
        return builder.emit(call("matmul", x, y, transpose_b=transposed))

    other = np.swapaxes(b, -1, -2) if transposed else b
    return Net([left, right], build, [a, b], a.astype(np.float64) @ other)


def attention(batch: int, rows: int, keys: int, depth: int, channels: int, *, free: bool) -> Net:
    """``softmax(q @ k) @ v``; if ``free``, only a run tells rows and keys."""
    q, k, v = array(batch, rows, depth), array(batch, depth, keys), array(batch, keys, channels)

    def build(b: relax.BlockBuilder, *inputs: relax.Expr) -> relax.Expr:
        axes = {f"{x}_axes": [0, 1, 2] for x in ("q", "k", "v", "out")}
        return b.emit(call("attention", *inputs, steps=[], **axes))

    scores = q.astype(np.float64) @ k
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    m, n = (sym("m"), sym("n")) if free else (rows, keys)
    shapes = [[batch, m, depth], [batch, depth, n], [batch, n, channels]]
    return Net(shapes, build, [q, k, v], raised / raised.sum(-1, keepdims=True) @ v)


PADDED = (1, 1, 1, 1)
NETS: dict[str, Net] = {
    "conv": convolution(Case((1, 9, 11, 20), 37, (3, 2), (2, 1), pads=(1, 0, 1, 1))),
    "conv-1x1": convolution(Case((2, 7, 9, 33), 50, (1, 1))),
    "conv-grouped": convolution(Case((1, 6, 7, 12), 51, pads=PADDED, groups=3)),
    "conv-few-channels": convolution(Case((1, 8, 5, 3), 5, (5, 5), pads=PADDED)),
    "conv-free": convolution(Case((2, 5, 13, 8), 40, (1, 3), (1, 2), pads=PADDED), free=True),
    "plain": convolution(Case((1, 13, 12, 24), 40, pads=PADDED)),
    "plain-few-channels": convolution(Case((1, 6, 5, 2), 3, pads=PADDED)),
    "plain-free": convolution(Case((1, 11, 6, 17), 20, pads=PADDED), free=True),
    "depthwise": convolution(Case((1, 9, 13, 75), 75, pads=PADDED, groups=75)),
    "depthwise-few": convolution(Case((1, 5, 7, 6), 12, (3, 3), (2, 2), groups=6)),
    "depthwise-free": convolution(Case((1, 6, 19, 40), 40, pads=PADDED, groups=40), free=True),
    "gemm": gemm([3, 17], 29, 100),
    "gemm-one-row": gemm([1], 70, 45),
    "gemm-few-columns": gemm([23], 9, 5),
    "gemm-free": gemm([sym("m"), 2], 31, 70, [11, 2]),
    "matmul": matmul([3, 14, 21], [3, 21, 53]),
    "matmul-shared": matmul([2, 9, 16], [16, 37]),
    "matmul-few-columns": matmul([7, 12], [12, 6]),
    "matmul-transposed": matmul([4, 10, 13], [4, 27, 13], transposed=True),
    "attention": attention(3, 17, 37, 10, 20, free=False),
    "attention-few": attention(2, 5, 6, 8, 3, free=False),
    "attention-free": attention(2, 13, 70, 16, 40, free=True),
}


def draw(rng: random.Random, machine: Machine, problem: Problem) -> Choice:
    """Any choice that is possible."""
    vector = machine.lanes("float32")
    pool: dict[str, Sequence[Any]] = {
        "algorithm": ["direct", "winograd"],
        "width": [*(vector * n for n in range(1, 10)), 1, 2, 4, 8],
        "rows": range(1, 16),
        "run": [1, 2, 3, 7, 64, 1 << 16],
        "block": [1, 2, 5, 33, 1000],
        "ahead": [False, True],
        "group": [*(vector * n for n in range(1, 10)), 1000],
    }
    fields = {f: rng.choice(values) for f, values in pool.items() if rng.random() < 0.7}
    while found := list(faults(machine, problem, Choice(**fields))):
        for field, _ in found:
            fields.pop(field, None)
    return Choice(**fields)


@machines
@pytest.mark.parametrize("name", NETS)
def test_numbers_stay_right(name: str, machine: Machine) -> None:
    rng = random.Random(f"{name} {machine.name}")
    NETS[name].check(machine, draw(rng, machine, NETS[name].problem(machine)))


@pytest.mark.slow
@machines
@pytest.mark.parametrize("name", NETS)
def test_numbers_stay_right_for_many(name: str, machine: Machine) -> None:
    rng = random.Random(f"many {name} {machine.name}")
    problem = NETS[name].problem(machine)
    for choice in {draw(rng, machine, problem) for _ in range(15)}:
        NETS[name].check(machine, choice)


# -- effects ----------------------------------------------------------------------------------


def scheduled(net: Net, machine: Machine, *choices: Choice) -> tuple[str, Decisions]:
    """The loops of the kernel, and what was decided on the way."""
    lowered = fuse(legalize(net.packed(machine, *choices)))
    (function,) = (f for f in lowered.functions.values() if isinstance(f, tirx.PrimFunc))
    made: list[Decisions] = []
    notes: list[str] = []
    text = str(schedule(function, machine, notes.append, made.append).script())
    (decisions,) = made
    assert notes == [str(decisions)]
    return text, decisions


LARGE = {
    "conv": convolution(Case((1, 40, 40, 64), 128, pads=PADDED)),
    "depthwise": NETS["depthwise"],
    "gemm": gemm([64], 64, 96),
    "matmul": matmul([2, 32, 16], [2, 16, 48]),
    "transposed": matmul([2, 32, 16], [2, 48, 16], transposed=True),
    "attention": NETS["attention"],
}
EFFECTS: list[tuple[str, Choice, Choice]] = [
    ("conv", Choice("winograd"), Choice("direct")),
    ("conv", Choice("winograd", block=200), Choice("winograd", block=40)),
    ("conv", Choice("winograd", run=1), Choice("winograd", run=2)),
    ("conv", Choice("direct", width=16), Choice("direct", width=8)),
    ("conv", Choice("direct", width=16, rows=6), Choice("direct", width=16, rows=5)),
    ("conv", Choice("direct", run=2), Choice("direct", run=5)),
    ("conv", Choice("direct", ahead=True), Choice("direct", ahead=False)),
    ("gemm", Choice(width=16), Choice(width=24)),
    ("gemm", Choice(rows=6, width=16), Choice(rows=3, width=16)),
    ("gemm", Choice(run=1), Choice(run=4)),
    ("gemm", Choice(ahead=False), Choice(ahead=True)),
    ("matmul", Choice(width=16), Choice(width=8)),
    ("matmul", Choice(rows=4), Choice(rows=3)),
    ("matmul", Choice(run=1), Choice(run=2)),
    ("transposed", Choice(width=16), Choice(width=24)),
    ("attention", Choice(width=16), Choice(width=24)),
    ("attention", Choice(rows=4), Choice(rows=3)),
    ("depthwise", Choice(width=16), Choice(width=24)),
    ("depthwise", Choice(rows=4), Choice(rows=3)),
    ("depthwise", Choice(width=16, group=16), Choice(width=16, group=32)),
]


@pytest.mark.parametrize(("name", "one", "other"), EFFECTS, ids=str)
def test_each_choice_has_an_effect(name: str, one: Choice, other: Choice) -> None:
    texts = []
    for choice in (one, other):
        text, decisions = scheduled(LARGE[name], AVX2, choice)
        assert choice.fields.items() <= decisions.choice.fields.items()
        texts.append(text)
    assert texts[0] != texts[1]
    assert scheduled(LARGE[name], AVX2, one)[0] == texts[0]


@machines
@pytest.mark.parametrize("name", NETS)
def test_the_model_chooses_what_a_record_could_say(name: str, machine: Machine) -> None:
    """Its whole choice, given as a record, makes the same loops."""
    net = NETS[name]
    text, decisions = scheduled(net, machine)
    assert decisions.key == net.problem(machine).key
    check(machine, decisions.key, decisions.choice)
    again, tuned = scheduled(net, machine, decisions.choice)
    assert again == text
    assert tuned.choice == decisions.choice


def test_reasons() -> None:
    assert str(scheduled(LARGE["gemm"], AVX2, Choice(rows=3))[1]) == (
        "gemm 64x64x96: width 16, rows 3 (tuned), run 1 (weights fit the level-2 cache), "
        "ahead no (weights fit the level-2 cache)"
    )


# -- refusals ---------------------------------------------------------------------------------

CONV = "conv 64->128 5x5 strides 1x1 dilations 1x1 pads 1x1x1x1 groups 1 image 1x56x56"
PLAIN = CONV.replace("5x5", "3x3")
FEW = "gemm 10x20x5"
ATTENTION = "attention 2x9x8 by 9 keys of 32 channels"
DEPTHWISE = "depthwise 24->24 3x3 strides 1x1 dilations 1x1 pads 1x1x1x1 image 1x9x9"


@pytest.mark.parametrize(
    ("machine", "key", "choice", "field", "fault"),
    [
        (AVX2, CONV, Choice(width=12), "width", "12 is no whole number of vectors of 8"),
        (AVX512, CONV, Choice(width=24), "width", "24 is no whole number of vectors of 16"),
        (AVX2, CONV, Choice(width=4), "width", "4 is no whole number of vectors of 8"),
        (AVX2, CONV, Choice(width=0), "width", "0 is not positive"),
        (AVX2, CONV, Choice(width=-8), "width", "-8 is not positive"),
        (AVX2, CONV, Choice(width=64), "width", "64 are too many for the 16 vector registers"),
        (AVX512, CONV, Choice(width=256), "width", "256 are too many for the 32 vector registers"),
        (AVX2, FEW, Choice(width=5), "width", "5 is no part of a vector of 8"),
        (AVX2, FEW, Choice(width=12), "width", "12 is no whole number of vectors of 8"),
        (AVX2, CONV, Choice(rows=7), "rows", "a tile of 7x16 does not fit the registers"),
        (AVX2, CONV, Choice(width=24, rows=5), "rows", "a tile of 5x24 does not fit the registers"),
        (AVX512, CONV, Choice(rows=13, width=16), "rows", "a tile of 13x16 does not fit the regis"),
        (IN_ORDER, CONV, Choice(width=64), "width", "64 are too many for the 32 vector registers"),
        (IN_ORDER, CONV, Choice(rows=10), "rows", "a tile of 10x8 does not fit the registers"),
        (AVX2, CONV, Choice(rows=0), "rows", "0 is not positive"),
        (AVX2, CONV, Choice(run=0), "run", "0 is not between 1 and 65536"),
        (AVX2, CONV, Choice(run=1 << 60), "run", f"{1 << 60} is not between 1 and 65536"),
        (AVX2, CONV, Choice("winograd"), "algorithm", "Winograd needs a plain kernel of 3x3"),
        (AVX2, PLAIN, Choice(block=8), "block", 'needs the field "algorithm" to be "winograd"'),
        (AVX2, PLAIN, Choice("direct", block=8), "block", 'needs the field "algorithm" to be'),
        (AVX2, PLAIN, Choice("winograd", block=0), "block", "0 is not between 1 and 5461"),
        (AVX2, PLAIN, Choice("winograd", block=9999), "block", "9999 is not between 1 and 5461"),
        (AVX2, FEW, Choice("direct"), "algorithm", "there is no such choice for a gemm"),
        (AVX2, DEPTHWISE, Choice(run=1), "run", "there is no such choice for a depthwise"),
        (AVX2, DEPTHWISE, Choice(width=32), "width", "32 is more than the 24 that there are"),
        (AVX2, DEPTHWISE, Choice(rows=8), "rows", "a tile of 8x16 does not fit the registers"),
        (AVX2, DEPTHWISE, Choice(group=24), "group", "24 is no whole number of blocks of 16"),
        (AVX2, DEPTHWISE, Choice(width=8, group=0), "group", "0 is no whole number of blocks of 8"),
        (AVX2, ATTENTION, Choice(run=1), "run", "there is no such choice for an attention"),
        (AVX2, ATTENTION, Choice(width=8, rows=7), "rows", "a tile of 7x8 does not fit"),
        (AVX2, "matmul 9x3 by 3x9", Choice(ahead=True), "ahead", "no such choice for a matmul"),
        (AVX2, "matmul 9x3 by 3x9", Choice(width=16), "width", "16 is more than the 9 that there"),
        (AVX2, "matmul 9x3 by 3x5", Choice(width=8), "width", "8 is more than the 5 that there"),
    ],
    ids=lambda value: value.name if isinstance(value, Machine) else str(value),
)
def test_what_kernels_cannot_be_made_of(
    machine: Machine, key: str, choice: Choice, field: str, fault: str
) -> None:
    with pytest.raises(CompileError) as caught:
        check(machine, key, choice)
    start = f'tuning record "{key}", field "{field}": '
    assert str(caught.value).startswith(start)
    assert fault in str(caught.value)[len(start) :]


def test_fields_of_the_wrong_kind() -> None:
    for fields, message in [
        (
            {"witdh": 8},
            '"witdh" is no choice; choices: algorithm, width, rows, run, block, ahead, group',
        ),
        ({"width": "8"}, "\"width\" cannot be '8'"),
        ({"width": 8.0}, '"width" cannot be 8.0'),
        ({"rows": True}, '"rows" cannot be True'),
        ({"rows": None}, '"rows" cannot be None'),
        ({"ahead": 1}, '"ahead" cannot be 1'),
        ({"algorithm": "fft"}, "\"algorithm\" cannot be 'fft'"),
        ({"algorithm": []}, '"algorithm" cannot be []'),
    ]:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            Choice.parse(fields)
        assert str(caught.value) == message


def test_a_choice_and_its_fields() -> None:
    choice = Choice("winograd", rows=6, ahead=False)
    assert choice.fields == {"algorithm": "winograd", "rows": 6, "ahead": False}
    assert Choice.parse(choice.fields) == choice
    assert str(choice) == "algorithm winograd, rows 6, ahead no"
    assert str(Choice()) == ""
