"""Elementary functions on float32 as polynomials, which compilers turn into vector code.

TVM's own ``exp``, ``tanh``, ``erf``, ``log`` become one call of the C library per element. The
functions here take and give float32 expressions and are exact to a few units in the last place. NaN
gives NaN; infinities, zeros and overflow behave as in C, save that results below the smallest
normal number may be flushed to zero.

Sub-results that are used repeatedly are bound with ``Let``, which keeps nested calls small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tvm import tirx
from tvm.ir import Expr

_LOG2_E = 1.44269504088896341
# ln 2 in two parts; the first has few bits, so that its multiples by whole numbers are exact.
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_ROUNDER = 1.5 * 2.0**23
_ROUNDER_BITS = 0x4B400000


def exp(x: Expr) -> Expr:
    """E to the power x; 0 for -inf, inf above 88.73, denormal results included."""

    def finite(n: Expr, r: Expr) -> Expr:
        # 2**n can be out of the range of one float, where y * 2**n is not: two factors.
        half = n >> _i32(1)
        return _exp_reduced(r) * _power_of_two(half) * _power_of_two(n - half)

    return _let(x, lambda v: _unless_nan(v, _reduce(_clamp(v, -104.0, 89.0), finite)))


def expm1(x: Expr) -> Expr:
    """E to the power x, less 1, without loss of digits near 0."""

    def finite(n: Expr, r: Expr) -> Expr:
        # 2**n (e**r - 1) + (2**n - 1); with half of 2**n, since n may be 128
        half = _power_of_two(n - _i32(1))
        grown = _let(half, lambda h: h * _expm1_reduced(r) + (h - _f32(0.5)))
        return grown * _f32(2.0)

    def of(v: Expr) -> Expr:
        value = _reduce(_clamp(v, -20.0, 89.0), finite)
        return _unless_nan(v, tirx.Select(tirx.EQ(v, _f32(0.0)), v, value))

    return _let(x, of)


def log(x: Expr) -> Expr:
    """Natural logarithm; -inf for 0, NaN below 0, denormal arguments included."""

    def positive(v: Expr) -> Expr:
        tiny = v < _f32(2.0**-126)
        scaled = tirx.Select(tiny, v * _f32(2.0**23), v)
        shift = tirx.Select(tiny, _f32(-23.0), _f32(0.0))
        return _let(tirx.reinterpret("uint32", scaled), lambda b: parts(b, shift))

    def parts(bits: Expr, shift: Expr) -> Expr:
        # scaled = m * 2**k with m in [sqrt(1/2), sqrt(2))
        root_half = _u32(0x3F3504F3)
        moved = bits + (_u32(0x3F800000) - root_half)
        k = tirx.Cast("float32", tirx.Cast("int32", moved >> _u32(23)) - _i32(127)) + shift
        m = tirx.reinterpret("float32", (moved & _u32(0x007FFFFF)) + root_half)
        return _let(k, lambda kk: _let(m - _f32(1.0), lambda f: _log_reduced(f, kk)))

    def of(v: Expr) -> Expr:
        regular = tirx.Select(v < _f32(math.inf), positive(v), v)
        irregular = tirx.Select(tirx.EQ(v, _f32(0.0)), _f32(-math.inf), _nan())
        return tirx.Select(v > _f32(0.0), regular, irregular)

    return _let(x, of)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + e**-x)."""

    def of(v: Expr, e: Expr) -> Expr:
        return tirx.Select(v < _f32(0.0), e, _f32(1.0)) / (_f32(1.0) + e)

    return _let(x, lambda v: _let(exp_negative(_negate(_abs(v))), lambda e: of(v, e)))


def tanh(x: Expr) -> Expr:
    """Hyperbolic tangent."""
    odd = (
        -5.70498872745e-3,
        2.06390887954e-2,
        -5.37397155531e-2,
        1.33314422036e-1,
        -3.33332819422e-1,
    )

    def of(v: Expr) -> Expr:
        small = _let(v * v, lambda z: (_horner(z, odd) * z) * v + v)
        large = _let(
            exp_negative(_abs(v) * _f32(-2.0)), lambda e: (_f32(1.0) - e) / (_f32(1.0) + e)
        )
        signed = _let(large, lambda t: tirx.Select(v < _f32(0.0), _negate(t), t))
        value = tirx.Select(_abs(v) < _f32(0.625), small, signed)
        return tirx.Select(tirx.EQ(v, _f32(0.0)), v, value)  # keeps the sign of -0

    return _let(x, of)


def erf(x: Expr) -> Expr:
    """The error function."""

    def of(v: Expr) -> Expr:
        large = _let(
            _f32(1.0) - _erfc_large(_abs(v)),
            lambda t: tirx.Select(v < _f32(0.0), _negate(t), t),
        )
        return tirx.Select(_abs(v) > _f32(_ERF_SPLIT), large, _erf_small(v))

    return _let(x, of)


def softplus(x: Expr) -> Expr:
    """log(1 + e**x)."""

    def log1p(u: Expr) -> Expr:
        # 1 + u in [1, 2] is (1 + f) * 2**k exactly, with k 0 or 1
        above = u > _f32(0.41421356)
        tiny = u < _f32(2.0**-25)  # log1p(u) = u; and squares would be denormal, which is slow
        f = tirx.Select(above, (u - _f32(1.0)) * _f32(0.5), tirx.Select(tiny, _f32(0.0), u))
        k = tirx.Select(above, _f32(1.0), _f32(0.0))
        return tirx.Select(tiny, u, _let(f, lambda ff: _log_reduced(ff, k)))

    return _let(
        x,
        lambda v: (
            tirx.Select(v > _f32(0.0), v, _f32(0.0)) + _let(exp_negative(_negate(_abs(v))), log1p)
        ),
    )


def silu(x: Expr) -> Expr:
    """X times sigmoid(x)."""
    return _let(x, lambda v: v * sigmoid(v))


def mish(x: Expr) -> Expr:
    """X times tanh(softplus(x))."""

    def of(v: Expr) -> Expr:
        # tanh(log(1 + w)) = n / (n + 2) with n = w (w + 2), which is 1 long before n overflows
        power = exp(tirx.Select(v > _f32(20.0), _f32(20.0), v))
        ratio = _let(_let(power, lambda w: w * (w + _f32(2.0))), lambda n: n / (n + _f32(2.0)))
        return v * ratio

    return _let(x, of)


def gelu_erf(x: Expr) -> Expr:
    """X times the normal distribution function of x."""

    def of(v: Expr, z: Expr) -> Expr:
        near = _f32(0.5) + _f32(0.5) * _erf_small(z)
        # In the negative tail 1 + erf cancels; its complement does not.
        far = _let(
            _f32(0.5) * _erfc_large(_abs(z)),
            lambda q: tirx.Select(v < _f32(0.0), q, _f32(1.0) - q),
        )
        return v * tirx.Select(_abs(z) > _f32(_ERF_SPLIT), far, near)

    return _let(x, lambda v: _let(v * _f32(math.sqrt(0.5)), lambda z: of(v, z)))


def gelu_tanh(x: Expr) -> Expr:
    """The usual approximation of ``gelu_erf``: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x**3)))."""
    scale = 2.0 * math.sqrt(2.0 / math.pi)

    def of(v: Expr) -> Expr:
        # (1 + tanh u) / 2 = sigmoid(2 u)
        return v * sigmoid(v * (_f32(scale) + _f32(scale * 0.044715) * (v * v)))

    return _let(x, of)


_ERF_SPLIT = 0.927734375


def _erf_small(v: Expr) -> Expr:
    """Erf for arguments up to ``_ERF_SPLIT``."""
    even = (
        -5.96761703e-4,
        4.99119423e-3,
        -2.67681349e-2,
        1.12819925e-1,
        -3.76125336e-1,
        1.28379166e-1,
    )
    return _let(v * v, lambda s: _horner(s, even) * v + v)


def _erfc_large(t: Expr) -> Expr:
    """1 - erf(t) for t above ``_ERF_SPLIT``: e to the power of a polynomial."""
    tail = (
        -1.72853470e-5,
        3.83197126e-4,
        -3.88396438e-3,
        2.42546219e-2,
        -1.06777877e-1,
        -6.34846687e-1,
        -1.28717512e-1,
    )
    return _let(t, lambda a: exp_negative(_horner(a, tail) * a - a))


def exp_negative(x: Expr) -> Expr:
    """E to the power x for x <= 0, with results below the normal numbers flushed to 0."""

    def of(v: Expr) -> Expr:
        value = _reduce(
            _clamp(v, -87.33, 0.0),
            lambda n, r: _exp_reduced(r) * _power_of_two(n),
        )
        flushed = tirx.Select(v < _f32(-87.33), _f32(0.0), value)
        return _unless_nan(v, flushed)

    return _let(x, of)


def _reduce(x: Expr, use: Callable[[Expr, Expr], Expr]) -> Expr:
    """``use(n, r)`` where x = n ln 2 + r, n a whole number as int32, |r| <= ln 2 / 2.

    x must not exceed a few thousand. Rounding is by an addition, after which the sum has no digits
    after the point and n in its last ones: not every CPU has an instruction for it.
    """

    def of(v: Expr, shifted: Expr) -> Expr:
        n = shifted - _f32(_ROUNDER)
        r = _let(n, lambda m: v - m * _f32(_LN2_HIGH) - m * _f32(_LN2_LOW))
        whole = tirx.reinterpret("int32", shifted) - _i32(_ROUNDER_BITS)
        return _let(whole, lambda w: _let(r, lambda rr: use(w, rr)))

    return _let(x, lambda v: _let(v * _f32(_LOG2_E) + _f32(_ROUNDER), lambda s: of(v, s)))


def _expm1_reduced(r: Expr) -> Expr:
    coefficients = (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
    return _horner(r, coefficients) * (r * r) + r


def _exp_reduced(r: Expr) -> Expr:
    return _expm1_reduced(r) + _f32(1.0)


def _log_reduced(f: Expr, k: Expr) -> Expr:
    """log((1 + f) * 2**k) for 1 + f in [sqrt(1/2), sqrt(2))."""

    def with_s(s: Expr) -> Expr:
        series = _let(
            s * s,
            lambda z: z * _horner(z, (0.24279078841, 0.28498786688, 0.40000972152, 0.66666662693)),
        )
        half_square = _f32(0.5) * f * f
        low = s * (half_square + series) + k * _f32(_LN2_LOW)
        return k * _f32(_LN2_HIGH) + (f - (half_square - low))

    return _let(f / (f + _f32(2.0)), with_s)


def _power_of_two(n: Expr) -> Expr:
    """2**n for an int32 n in [-126, 127]."""
    return tirx.reinterpret("float32", (n + _i32(127)) << _i32(23))


def _clamp(x: Expr, low: float, high: float) -> Expr:
    """X within the bounds; NaN becomes a bound, so that a conversion to int is defined."""
    bounded = tirx.Select(x > _f32(low), x, _f32(low))
    return _let(bounded, lambda b: tirx.Select(b < _f32(high), b, _f32(high)))


def _unless_nan(x: Expr, value: Expr) -> Expr:
    """``value``, or ``x`` if that is NaN (tirx.isnan would be vectorised by nobody)."""
    return tirx.Select(x <= _f32(math.inf), value, x)


def _horner(x: Expr, coefficients: Sequence[float]) -> Expr:
    """The polynomial in x, highest power first."""
    result = _f32(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * x + _f32(coefficient)
    return result


def _let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """``body(value)`` with the value computed once."""
    value = tirx.convert(value)  # an indexed te.Tensor is no expression yet
    if isinstance(value, (tirx.Var, tirx.FloatImm, tirx.IntImm)):
        return body(value)
    var = tirx.Var("v", str(value.ty))
    return tirx.Let(var, value, body(var))


def _abs(x: Expr) -> Expr:
    return tirx.abs(x)


def _negate(x: Expr) -> Expr:
    return x * _f32(-1.0)


def _f32(value: float) -> Expr:
    return tirx.FloatImm("float32", value)


def _i32(value: int) -> Expr:
    return tirx.IntImm("int32", value)


def _u32(value: int) -> Expr:
    return tirx.const(value, "uint32")


def _nan() -> Expr:
    return tirx.reinterpret("float32", _u32(0x7FC00000))
