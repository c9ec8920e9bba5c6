"""Operators on generated shapes and attributes, against NumPy.

Every family gets seeded random cases, each with fixed and free sizes and with constant operands.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.ops import test_conv, test_matmul, test_norm, test_pooling, test_reduce, test_resize
from tests.support.cases import Case, assert_matches, outcomes

SIZES = [1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 20, 24, 31, 32, 33, 40, 48, 64, 65]
SMALL = SIZES[:18]
COUNT = 65
SEEDS = (1, 2)


class Generator:
    """Draws cases of one family; the same seed gives the same cases."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = np.random.default_rng(seed)

    def pick(self, *values: Any) -> Any:
        return self.random.choice(values)

    def array(self, *shape: int) -> npt.NDArray[np.float32]:
        return self.numbers.normal(size=shape).astype(np.float32)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def conv(self, name: str) -> Case:
        kernel = [self.pick(1, 2, 3, 3, 5, 7), self.pick(1, 2, 3, 3, 5)]
        strides = [self.pick(1, 1, 2, 3), self.pick(1, 1, 2)]
        dilations = [self.pick(1, 1, 1, 2), self.pick(1, 1, 1, 3)]
        pads = [self.random.randrange(4) for _ in range(4)]
        sizes = [
            max(
                self.random.randrange(1, 24),
                (kernel[d] - 1) * dilations[d] + 1 - pads[d] - pads[d + 2],
            )
            for d in (0, 1)
        ]
        groups, per_group, out = self.pick(1, 1, 1, 2, 3), self.pick(*SIZES), self.pick(*SIZES)
        if self.chance(0.2):  # depthwise
            groups, per_group, out = per_group, 1, self.pick(1, 1, 1, 2)
        x = self.array(self.pick(1, 1, 2, 3), per_group * groups, *sizes)
        return test_conv.conv(
            name,
            x,
            self.array(out * groups, per_group, *kernel),
            bias=self.chance(0.5),
            pads=pads,
            strides=strides,
            dilations=dilations,
            groups=groups,
        )

    def conv_transpose(self, name: str) -> Case:
        kernel = [self.pick(1, 2, 3, 4, 5), self.pick(1, 2, 3, 4)]
        strides = [self.pick(1, 2, 2, 3), self.pick(1, 2)]
        groups, per_group = self.pick(1, 1, 2, 4), self.pick(1, 2, 3, 8, 16, 17)
        sizes = [self.random.randrange(1, 12) for _ in range(2)]
        pads = [
            min(self.random.randrange(3), ((sizes[d] - 1) * strides[d] + kernel[d] - 1) // 2)
            for d in (0, 1)
        ]
        return test_conv.conv_transpose(
            name,
            self.array(self.pick(1, 2), per_group * groups, *sizes),
            self.array(per_group * groups, self.pick(1, 2, 3, 8, 16, 33), *kernel),
            bias=self.chance(0.5),
            pads=pads + pads,
            strides=strides,
            output_padding=[self.random.randrange(s) for s in strides],
            groups=groups,
        )

    def pooling(self, name: str) -> Case:
        kernel = [self.pick(1, 2, 3, 3, 5), self.pick(1, 2, 3, 4)]
        sizes = [self.random.randrange(k, 20) for k in kernel]
        op = self.pick("MaxPool", "AveragePool")
        return test_pooling.case(
            op,
            name,
            self.array(self.pick(1, 2), self.pick(*SIZES), *sizes),
            kernel,
            pads=[self.random.randrange(kernel[d % 2]) for d in range(4)],
            strides=[self.pick(1, 2, 2, 3), self.pick(1, 2, 4)],
            ceil_mode=self.chance(0.4),
            include_pad=op == "AveragePool" and self.chance(0.5),
        )

    def matmul(self, name: str) -> Case:
        m, k, n = (self.pick(*SIZES, 100, 130) for _ in range(3))
        kind = self.random.random()
        if kind < 0.7:
            batch = [self.pick(1, 2, 3), self.pick(1, 4)][: self.random.randrange(3)]
            other = [self.pick(1, b) for b in batch] if self.chance(0.5) else []
            operands = [self.array(*batch, m, k), self.array(*other, k, n)]
            return Case(name, "MatMul", operands, np.matmul, tolerance="approximate")
        swap_a, swap_b = self.chance(0.5), self.chance(0.5)
        return Case(
            name,
            "Gemm",
            [
                self.array(*((k, m) if swap_a else (m, k))),
                self.array(*((n, k) if swap_b else (k, n))),
                self.array(*self.pick((n,), (m, 1), (m, n), (1,))),
            ],
            test_matmul.gemm(1.5, 0.5, swap_a, swap_b),
            {"alpha": 1.5, "beta": 0.5, "transA": int(swap_a), "transB": int(swap_b)},
            tolerance="approximate",
        )

    def _shape(self) -> list[int]:
        rank = self.random.randrange(1, 5)
        return [self.pick(*(SMALL if rank > 2 else [*SIZES, 200, 1000])) for _ in range(rank)]

    def reduction(self, name: str) -> Case:
        shape = self._shape()
        keep = self.chance(0.5)
        if self.chance(0.3):
            op, axis = self.pick("ArgMax", "ArgMin"), self.random.randrange(len(shape))
            x = self.array(*shape).round(1)  # with equal elements
            return test_reduce.position(op, name, x, axis, keep_dims=keep)
        axes = sorted(
            self.random.sample(range(len(shape)), self.random.randrange(1, len(shape) + 1))
        )
        if self.chance(0.15):
            shape[axes[0]] = 0
        op = "ReduceSum" if 0 in shape else self.pick(*test_reduce.REDUCTIONS)
        x = self.array(*shape)
        if op == "ReduceProd":  # stays near 1
            x = (1 + x * 0.1).astype(np.float32)
        return test_reduce.reduction(name, op, x, axes, keep_dims=keep, tolerance="approximate")

    def normalisation(self, name: str) -> Case:
        shape = self._shape()
        axis = self.random.randrange(len(shape))
        kind = self.random.random()
        if kind < 0.6:
            op, function = self.pick(
                ("Softmax", test_norm.softmax), ("LogSoftmax", test_norm.log_softmax)
            )
            x = self.array(*shape) * 5
            expected = lambda v: function(v, axis)  # noqa: E731  (a case keeps it)
            return Case(name, op, [x], expected, {"axis": axis}, tolerance="approximate")
        if kind < 0.8 or len(shape) < 3:
            operands = [self.array(*shape), self.array(*shape[axis:]), self.array(*shape[axis:])]
            expected = test_norm.layer_norm(axis)
            attrs = {"axis": axis}
            return Case(
                name, "LayerNormalization", operands, expected, attrs, tolerance="approximate"
            )
        operands = [self.array(*shape), self.array(shape[1]), self.array(shape[1])]
        return Case(
            name,
            "InstanceNormalization",
            operands,
            test_norm.instance_norm,
            {"epsilon": 1e-3},
            tolerance="approximate",
        )

    def resize(self, name: str) -> Case:
        n, c = self.pick(1, 2), self.pick(*SIZES)
        sizes = [self.random.randrange(1, 12) for _ in range(2)]
        scales = [1, 1, self.pick(0.5, 1, 2, 3, 1.5, 0.75, 4), self.pick(0.5, 1, 2, 1.25)]
        fits = all(int(s * k) > 0 for s, k in zip(sizes, scales[2:], strict=True))
        if fits and self.chance(0.5):
            target: dict[str, Any] = {"scales": scales}
        else:
            target = {"sizes": [n, c, self.random.randrange(1, 20), self.random.randrange(1, 20)]}
        return test_resize.resize(
            name,
            self.array(n, c, *sizes),
            mode=self.pick("nearest", "linear"),
            coords=self.pick(*test_resize.COORDINATES),
            nearest=self.pick(*test_resize.NEAREST),
            **target,
        )


FAMILIES: dict[str, Callable[[Generator, str], Case]] = {
    "conv": Generator.conv,
    "conv_transpose": Generator.conv_transpose,
    "pooling": Generator.pooling,
    "matmul": Generator.matmul,
    "reduction": Generator.reduction,
    "normalisation": Generator.normalisation,
    "resize": Generator.resize,
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("mode", ["static", "dynamic", "constant"])
@pytest.mark.parametrize("family", FAMILIES)
def test_generated(family: str, mode: str, seed: int) -> None:
    generator = Generator(seed)
    drawn = [FAMILIES[family](generator, str(i)) for i in range(COUNT)]
    cases = [c for c in drawn if mode in c.modes and c.distinct(mode)]
    if not cases:
        pytest.skip(f"{family} has no operands but one: nothing to make constant")
    results = outcomes(cases, mode)
    wrong = []
    for case in cases:
        try:
            result = results[case.id]
            if isinstance(result, Exception):
                raise result
            for run in result:
                for got, want in zip(run, case.want(), strict=True):
                    assert_matches(got, want, case.tolerance)
        except Exception as err:
            shapes = [None if x is None else x.shape for x in case.inputs]
            wrong.append(f"{case.op} {shapes} {case.attrs}: {str(err).strip()[:300]}")
    assert not wrong, f"{len(wrong)} of {len(cases)} are wrong:\n" + "\n".join(wrong)
