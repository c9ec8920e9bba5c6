"""Random operators: range, moments, seeds; what is equal from run to run and what is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rten_aot
from tests.ops.test_control_flow import GraphMaker, compiled
from tests.support.rten_writer import write_model

MANY = (1000, 1001)


def graph() -> GraphMaker:
    main = GraphMaker()
    x = main.input("x", ("n", 3))
    uniform = {"low": -1.0, "high": 3.0}
    main.op("RandomUniform", name="u", shape=MANY, **uniform)
    main.op("RandomUniform", name="u_again", shape=MANY, **uniform)
    main.op("RandomUniform", name="u_7", shape=MANY, seed=7.0, **uniform)
    main.op("RandomUniform", name="u_8", shape=MANY, seed=8.0, **uniform)
    main.op("RandomNormal", name="n", shape=MANY, mean=1.0, scale=2.0)
    main.op("RandomNormal", name="n_7", shape=MANY, mean=1.0, scale=2.0, seed=7.0)
    main.op("RandomUniformLike", x, name="ul", **uniform)
    main.op("RandomNormalLike", x, name="nl_7", mean=0.0, scale=1.0, seed=7.0)
    main.op("RandomUniform", name="number", shape=(), **uniform)
    main.op("RandomNormal", name="empty", shape=(0, 3), mean=0.0, scale=1.0)
    return main


NAMES = ["u", "u_again", "u_7", "u_8", "n", "n_7", "ul", "nl_7", "number", "empty"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("random")
    main = graph()
    outputs = [i for i, node in enumerate(main.nodes) if node.name in {f"{n}_0" for n in NAMES}]
    path = write_model(main.graph(*outputs), folder / "model.rten")
    return rten_aot.compile(path, target="llvm -mcpu=native")


def run(library: Path, rows: int = 5, threads: int = 2) -> dict[str, np.ndarray]:
    with rten_aot.load(library, num_threads=threads) as model:
        return dict(zip(NAMES, model(np.zeros((rows, 3), np.float32)), strict=True))


def test_uniform(library: Path) -> None:
    results = run(library)
    for name in ("u", "u_7"):
        x = results[name].astype(np.float64)
        assert x.shape == MANY
        assert x.min() >= -1
        assert x.max() < 3
        assert abs(x.mean() - 1) < 0.006
        assert abs(x.var() - 16 / 12) < 0.01
        counts, _ = np.histogram(x, 100, (-1, 3))
        assert ((counts - x.size / 100) ** 2 / (x.size / 100)).sum() < 180
        flat = x.ravel()
        assert abs(np.corrcoef(flat[:-1], flat[1:])[0, 1]) < 0.005


def test_normal(library: Path) -> None:
    results = run(library)
    for name in ("n", "n_7"):
        x = results[name].astype(np.float64)
        z = (x.ravel() - 1) / 2
        assert np.isfinite(z).all()
        assert abs(z.mean()) < 0.005
        assert abs(z.var() - 1) < 0.01
        assert abs((z**3).mean()) < 0.02
        assert abs((z**4).mean() - 3) < 0.05
        assert abs((np.abs(z) < 1).mean() - 0.6827) < 0.003
        assert abs(np.corrcoef(z[:-1], z[1:])[0, 1]) < 0.005


def test_shapes(library: Path) -> None:
    for rows in (0, 1, 20):
        results = run(library, rows)
        assert results["ul"].shape == results["nl_7"].shape == (rows, 3)
        assert results["number"].shape == ()
        assert results["empty"].shape == (0, 3)


def test_seeds(library: Path) -> None:
    with rten_aot.load(library, num_threads=2) as model:
        first, second = (
            dict(zip(NAMES, model(np.zeros((5, 3), np.float32)), strict=True)) for _ in range(2)
        )
    other = run(library, threads=1)
    for name in ("u_7", "u_8", "n_7", "nl_7"):
        np.testing.assert_array_equal(first[name], second[name])
        np.testing.assert_array_equal(first[name], other[name])
    for name in ("u", "u_again", "n", "ul", "number"):
        assert not np.array_equal(first[name], second[name])
        assert not np.array_equal(first[name], other[name])
    assert not np.array_equal(first["u"], first["u_again"])
    assert not np.array_equal(first["u_7"], first["u_8"])
    assert abs(np.corrcoef(first["u_7"].ravel(), first["u_8"].ravel())[0, 1]) < 0.005


def test_the_seed_of_a_handle(library: Path) -> None:
    """It fixes what the model leaves open, run by run; it does not touch what the model fixes."""

    def two_runs(seed: int | None) -> list[dict[str, np.ndarray]]:
        with rten_aot.load(library, num_threads=2, seed=seed) as model:
            x = np.zeros((5, 3), np.float32)
            return [dict(zip(NAMES, model(x), strict=True)) for _ in range(2)]

    first, again, other = two_runs(5), two_runs(5), two_runs(6)
    for name in ("u", "u_again", "n", "ul", "number"):
        for run_, same in zip(first, again, strict=True):
            np.testing.assert_array_equal(run_[name], same[name])
        assert not np.array_equal(first[0][name], first[1][name])
        assert not np.array_equal(first[0][name], other[0][name])
    np.testing.assert_array_equal(first[0]["u_7"], other[1]["u_7"])
    assert abs(np.corrcoef(first[0]["u"].ravel(), other[0]["u"].ravel())[0, 1]) < 0.005


def test_one_number_only_is_in_an_empty_range(tmp_path: Path) -> None:
    main = GraphMaker()
    x = main.op("RandomUniform", shape=(100,), low=2.0, high=2.0)
    (result,) = compiled(main.graph(x), tmp_path)()
    np.testing.assert_array_equal(result, np.full(100, 2.0))
