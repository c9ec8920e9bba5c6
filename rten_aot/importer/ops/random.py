"""RandomUniform, RandomNormal and their kin.

The same seed gives the same numbers in every run; without a seed every run gives others.
"""

from __future__ import annotations

import numpy as np
from tvm import relax

from rten_aot.dialect.random import FACTORS
from rten_aot.importer.context import OpContext, Size
from rten_aot.importer.registry import op
from rten_aot.importer.sizes import product


def _uniform(ctx: OpContext, shape: list[Size]) -> relax.Expr:
    bounds = {name: ctx.attrs.float(name) for name in ("low", "high")}
    count = ctx.shape_expr([product(shape)])
    return ctx.reshape(ctx.call("random_uniform", *_seed(ctx), count, **bounds), shape)


def _normal(ctx: OpContext, shape: list[Size]) -> relax.Expr:
    moments = {name: ctx.attrs.float(name) for name in ("mean", "scale")}
    count = ctx.shape_expr([product(shape)])
    return ctx.reshape(ctx.call("random_normal", *_seed(ctx), count, **moments), shape)


def _seed(ctx: OpContext) -> tuple[relax.Expr, relax.Expr]:
    """The seed and the factors of the generator."""
    factors = ctx.const(np.array(FACTORS, np.uint64).view(np.int64))
    seed = ctx.attrs.optional_float("seed")
    if seed is None:
        return ctx.call("fresh_seed", ctx.shape_expr([1]), node=ctx.node_index), factors
    # Seeds that differ little, as 1.0 and 2.0, must not give streams that overlap.
    bits = int(np.float32(seed).view(np.uint32)) * 0xD1342543DE82EF95 % (1 << 64)
    return ctx.const(np.array([bits], np.uint64).view(np.int64)), factors


@op("RandomUniform")
def random_uniform(ctx: OpContext) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__RandomUniform.html."""
    return _uniform(ctx, list(ctx.attrs.ints("shape")))


@op("RandomUniformLike")
def random_uniform_like(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html."""
    return _uniform(ctx, ctx.shape(x))


@op("RandomNormal")
def random_normal(ctx: OpContext) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""
    return _normal(ctx, list(ctx.attrs.ints("shape")))


@op("RandomNormalLike")
def random_normal_like(ctx: OpContext, x: relax.Expr) -> relax.Expr:
    """https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html."""
    return _normal(ctx, ctx.shape(x))
