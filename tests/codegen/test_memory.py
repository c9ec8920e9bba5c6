"""Placement of buffers: no two that live together overlap, and sharing happens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rten_aot.codegen.memory import Lifetime, place

lifetimes = st.lists(
    st.builds(
        lambda size, first, length: Lifetime(size, first, first + length),
        st.integers(0, 5000),
        st.integers(0, 30),
        st.integers(0, 10),
    ),
    max_size=25,
)


@given(lifetimes)
def test_buffers_that_live_together_do_not_overlap(buffers: list[Lifetime]) -> None:
    offsets, total = place(buffers)
    for i, a in enumerate(buffers):
        assert offsets[i] % 64 == 0
        assert offsets[i] + a.size <= total
        for j, b in enumerate(buffers[:i]):
            together = a.first <= b.last and b.first <= a.last
            apart = offsets[i] + a.size <= offsets[j] or offsets[j] + b.size <= offsets[i]
            assert apart or not together or not a.size or not b.size


@given(lifetimes)
def test_the_total_is_at_most_the_sum(buffers: list[Lifetime]) -> None:
    _, total = place(buffers)
    assert total <= sum(-(-b.size // 64) * 64 for b in buffers)


def test_a_chain_needs_two_buffers() -> None:
    _, total = place([Lifetime(640, i, i + 1) for i in range(10)])
    assert total == 2 * 640


def test_nothing_to_place() -> None:
    assert place([]) == ([], 0)
