"""Loaded models in Python: results, errors, lifetime, threads, forks."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rten_aot.runtime import InputError, Model, ModelLoadError, ModelRunError, load
from tests.runtime import fake_library as fakes
from tests.runtime.fake_library import WEIGHTS, build_fake, feed

TASKS, NESTED, BUFFERS, BLOCKS, SEED_0, SEED_1, MISALIGNED = range(7)


def check(results: dict[str, Any], inputs: dict[str, Any]) -> None:
    x = inputs["x"]
    np.testing.assert_array_equal(results["y"], np.maximum(x + WEIGHTS, 0))
    np.testing.assert_array_equal(results["picked"], x[inputs["index"]])
    np.testing.assert_array_equal(results["rows"], np.flatnonzero(x.sum(1) > 0))
    assert results["facts"][BUFFERS] == 1
    assert results["facts"][MISALIGNED] == 0


def test_description(model: Model, fake: Path) -> None:
    assert [(i.name, i.dtype, i.shape) for i in model.inputs] == [
        ("x", "float32", ("batch", 4)),
        ("index", "int32", (None,)),
        ("mode", "int32", ()),
        ("scale", "uint8", ("batch",)),
    ]
    assert [o.name for o in model.outputs] == ["y", "picked", "rows", "facts"]
    assert model.metadata["target"]["kind"] == "llvm"
    assert repr(model).startswith(f"<Model {fake} (x: float32 (batch, 4), index: int32 (?,), ")


def test_sizes_may_change_from_run_to_run(model: Model) -> None:
    for batch in (3, 1, 50, 0, 3, 1000, 2):
        inputs = feed(batch, index=[] if batch == 0 else [batch - 1, -batch, 0])
        check(model.run(inputs), inputs)


def test_results_come_in_order_with_their_types(model: Model) -> None:
    results = model.run(feed(3))
    assert list(results) == ["y", "picked", "rows", "facts"]
    assert [a.dtype.name for a in results.values()] == ["float32", "float32", "int32", "int32"]
    assert all(a.flags.owndata and a.flags.writeable for a in results.values())


def test_results_own_their_memory(model: Model) -> None:
    first = model.run(feed(3))
    kept = {name: array.copy() for name, array in first.items()}
    model.run({**feed(3), "x": np.full((3, 4), 9, np.float32)})
    model.close()
    for name, array in first.items():
        np.testing.assert_array_equal(array, kept[name])


def test_call_takes_the_order_of_the_graph(model: Model) -> None:
    inputs = feed(2)
    results = model(*inputs.values())
    assert isinstance(results, tuple)
    check(dict(zip(("y", "picked", "rows", "facts"), results, strict=True)), inputs)
    with pytest.raises(
        InputError, match=r'takes 4 inputs \("x", "index", "mode", "scale"\), got 1'
    ):
        model(inputs["x"])


def test_arrays_in_any_layout(model: Model) -> None:
    inputs = feed(6)
    expected = model.run(inputs)
    wide = np.zeros((6, 8), np.float32)
    wide[:, ::2] = inputs["x"]
    raw = bytearray(5 + inputs["x"].nbytes)
    shifted = np.frombuffer(raw, np.float32, count=24, offset=4).reshape(6, 4)
    shifted[:] = inputs["x"]
    askew = np.frombuffer(raw[:1] + bytes(raw[4:]), np.float32, count=24, offset=1).reshape(6, 4)
    assert not askew.flags.aligned
    read_only = inputs["x"].copy()
    read_only.flags.writeable = False
    for x in (
        np.asfortranarray(inputs["x"]),
        wide[:, ::2],
        inputs["x"][::-1][::-1],
        inputs["x"].astype(">f4"),
        shifted,
        askew,
        read_only,
        inputs["x"].tolist(),
    ):
        results = model.run({**inputs, "x": x})
        np.testing.assert_array_equal(results["y"], expected["y"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.zeros((3, 5), np.float32)},
         r'input "x": dimension 1 is 5, expected 4 \(shape \(3, 5\), expected \(batch, 4\)\)'),
        ({"x": np.zeros(12, np.float32)},
         r'input "x": expected 2 dimensions \(batch, 4\), got 1 \(12,\)'),
        ({"mode": np.zeros((1, 1), np.int32)},
         r'input "mode": expected 0 dimensions \(\), got 2 \(1, 1\)'),
        ({"scale": np.zeros(4, np.uint8)},
         r'input "scale": dimension 0 \(batch\) is 4, but batch is 3 in input "x"'),
        ({"x": np.zeros((3, 4))}, 'input "x": expected float32, got float64\nhint: convert it: '),
        ({"x": "text"}, 'input "x": expected float32, got text'),
        ({"index": np.zeros(1001, np.int32)},
         r"at most 1000 are possible \(index.shape\[0\] is 1001\)"),
    ],
)  # fmt: skip
def test_wrong_inputs(model: Model, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        model.run({**feed(3), **change})
    inputs = feed(3)
    check(model.run(inputs), inputs)


def test_wrong_names(model: Model) -> None:
    inputs = feed(3)
    with pytest.raises(InputError, match='no input "indx"; did you mean "index"'):
        model.run({"indx": 1, **inputs})
    with pytest.raises(InputError, match='no input "zzz"; it has "x", "index", "mode", "scale"'):
        model.run({"zzz": 1, **inputs})
    with pytest.raises(InputError, match=r'input "mode" missing: expected int32 \(\)$'):
        model.run({k: v for k, v in inputs.items() if k != "mode"})
    with pytest.raises(InputError, match=r'"mode", "scale" missing: .*\(\), uint8 \(batch,\)$'):
        model.run({k: v for k, v in inputs.items() if k in ("x", "index")})
    with pytest.raises(InputError, match="takes a mapping from input names to arrays, got list"):
        model.run([1, 2, 3, 4])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        (fakes.DIVIDE, r'^in node "enc/div" \(Div\): division by zero$'),
        (fakes.EXHAUST, r"^out of memory: 1152921504606846976 bytes for results of this run$"),
        (fakes.MISFIT, r'^in node "sum" \(Add\): size 5 does not fit the other shapes$'),
        (fakes.FORGET, r'^output "rows" was not produced$'),
        (fakes.STOP, r"^in the model: index 9 is out of range$"),
        (fakes.RAW_FAILURE, r"^the model failed at run time \(-1\)$"),
        (fakes.NAMELESS, r"^in unnamed node 3 \(Slice\): value 5 is not supported at run time$"),
    ],
)
def test_failures_at_run_time(model: Model, mode: int, message: str) -> None:
    with pytest.raises(ModelRunError, match=message):
        model.run(feed(3, mode=mode))
    inputs = feed(3)
    check(model.run(inputs), inputs)


@pytest.mark.parametrize("index", [7, 3, -4, -(2**31)])
def test_index_out_of_range(model: Model, index: int) -> None:
    message = rf'^in node "pick" \(Gather\): index {index} is out of range$'
    with pytest.raises(ModelRunError, match=message):
        model.run(feed(3, index=[0, index]))


def test_blocks_of_a_run_stay_where_they_are(model: Model) -> None:
    for _ in range(3):
        inputs = feed(3, mode=fakes.BLOCKS)
        results = model.run(inputs)
        check(results, inputs)
        assert results["facts"][BLOCKS] == 1


@pytest.mark.parametrize("threads", [1, 2, 4, 9])
def test_number_of_threads(fake: Path, threads: int) -> None:
    with load(fake, num_threads=threads) as model:
        inputs = feed(37, mode=fakes.NESTED)
        for _ in range(5):
            results = model.run(inputs)
            check(results, inputs)
            # A launch inside a task runs on that task's own thread.
            assert results["facts"][TASKS] == results["facts"][NESTED] == threads


def threads_of_process() -> int:
    return len(os.listdir("/proc/self/task"))


def test_one_thread_makes_no_pool_and_the_last_handle_ends_it(fake: Path) -> None:
    before = threads_of_process()
    with load(fake, num_threads=1) as single:
        single.run(feed(3))
        assert threads_of_process() == before
        with load(fake, num_threads=4) as many:
            many.run(feed(3))
            assert threads_of_process() == before + 3
            with load(fake, num_threads=2) as few:
                few.run(feed(3))
                assert threads_of_process() == before + 3
        assert threads_of_process() == before + 3
    assert threads_of_process() == before


def test_environment_sets_the_number_of_threads(
    fake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tasks(num_threads: int | None = None) -> int:
        with load(fake, num_threads) as model:
            return int(model.run(feed(9))["facts"][TASKS])

    monkeypatch.delenv("RTEN_AOT_NUM_THREADS", raising=False)
    assert 1 <= tasks() <= len(os.sched_getaffinity(0))
    monkeypatch.setenv("RTEN_AOT_NUM_THREADS", "3")
    assert tasks() == 3
    assert tasks(2) == 2
    for text in ("0", "many", "-1", "2x", "99999999999999999999"):
        monkeypatch.setenv("RTEN_AOT_NUM_THREADS", text)
        with pytest.raises(ModelLoadError, match=f'RTEN_AOT_NUM_THREADS is "{text}", expected a'):
            load(fake)
    monkeypatch.setenv("RTEN_AOT_NUM_THREADS", "")
    assert tasks() >= 1


def test_affinity_limits_the_default(fake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RTEN_AOT_NUM_THREADS", raising=False)
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        with load(fake) as model:
            assert model.run(feed(9))["facts"][TASKS] == 1
    finally:
        os.sched_setaffinity(0, allowed)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run ``work(i)`` at the same time; the first exception is raised here."""
    failures: list[BaseException] = []

    def guarded(index: int) -> None:
        try:
            work(index)
        except BaseException as err:
            failures.append(err)

    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_handles_run_at_the_same_time(fake: Path) -> None:
    def work(index: int) -> None:
        with load(fake, num_threads=1 + index % 3) as model:
            for step in range(150):
                inputs = feed(1 + (step * 7 + index) % 23)
                inputs["x"] += index
                check(model.run(inputs), inputs)

    in_threads(5, work)


def test_failures_stay_with_their_handle(fake: Path) -> None:
    def work(index: int) -> None:
        with load(fake, num_threads=2) as model:
            for _ in range(100):
                if index % 2:
                    with pytest.raises(ModelRunError, match=f"index {100 + index} is out"):
                        model.run(feed(3, index=[100 + index]))
                else:
                    inputs = feed(3)
                    check(model.run(inputs), inputs)

    in_threads(4, work)


def test_runs_of_one_model_are_serialised(model: Model) -> None:
    def work(index: int) -> None:
        for batch in range(1, 60):
            inputs = feed(batch + index)
            check(model.run(inputs), inputs)

    in_threads(4, work)


def test_two_handles_run_in_parallel(fake: Path) -> None:
    """A slow run of one handle does not hold up another's, workers or not."""
    with load(fake, num_threads=2) as first, load(fake, num_threads=2) as second:
        models = [first, second]
        first.run(feed(2))
        start = time.perf_counter()
        in_threads(
            2, lambda i: [models[i].run(feed(2, mode=fakes.SLOW)) for _ in range(4)] and None
        )
        # Each run sleeps 30 ms in its tasks: one after another, on one thread each, is 240 ms.
        assert time.perf_counter() - start < 0.22


def run_in_child(work: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_uses_its_parents_model(fake: Path) -> None:
    with load(fake, num_threads=3) as model:
        inputs = feed(20)
        check(model.run(inputs), inputs)

        def work() -> None:
            assert threads_of_process() == 1
            for _ in range(3):
                results = model.run(inputs)
                check(results, inputs)
                assert results["facts"][TASKS] == 3
            assert threads_of_process() == 3
            with load(fake, num_threads=4) as other:
                check(other.run(inputs), inputs)
            model.close()
            assert threads_of_process() == 1

        assert run_in_child(work) == 0
        check(model.run(inputs), inputs)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_fork_during_a_run(fake: Path) -> None:
    with load(fake, num_threads=2) as model:
        stop = threading.Event()

        def spin() -> None:
            while not stop.is_set():
                model.run(feed(4, mode=fakes.SLOW))

        thread = threading.Thread(target=spin)
        thread.start()
        try:
            for _ in range(5):
                time.sleep(0.015)
                inputs = feed(5)
                assert run_in_child(lambda: check(model.run(inputs), inputs)) == 0  # noqa: B023
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_models_are_not_copied(duplicate: Callable[[Model], object], model: Model) -> None:
    """A copy would free the handle a second time."""
    with pytest.raises(TypeError, match="cannot be copied or pickled; load its library again"):
        duplicate(model)
    gc.collect()
    model.run(feed(3))


def test_outputs_come_by_name(model: Model) -> None:
    message = "outputs is a mapping from output names to arrays, got list"
    with pytest.raises(InputError, match=message):
        model.run(feed(3), outputs=[np.zeros(3)])  # type: ignore[arg-type]


def mapped(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_closing(tmp_path: Path) -> None:
    path = build_fake(tmp_path)
    model = load(path, num_threads=3)
    model.run(feed(3))
    assert mapped(path)
    model.close()
    model.close()
    assert not mapped(path)
    with pytest.raises(ModelRunError, match=r"fake.so: the model is closed"):
        model.run(feed(3))
    model = load(path)
    model.run(feed(3))
    del model
    gc.collect()
    assert not mapped(path)


def test_a_replaced_file_is_another_model(tmp_path: Path) -> None:
    with load(build_fake(tmp_path), num_threads=1) as old:
        changed = build_fake(tmp_path, name="new.so", defines={"BIAS": "1000"})
        os.replace(changed, tmp_path / "fake.so")
        with load(tmp_path / "fake.so", num_threads=1) as new:
            inputs = feed(2)
            check(old.run(inputs), inputs)
            assert new.run(inputs)["y"].min() > 900
            check(old.run(inputs), inputs)


def test_random_seeds(fake: Path) -> None:
    def seeds(seed: int | None) -> list[tuple[int, int]]:
        with load(fake, 1, seed=seed) as model:
            runs = [model.run(feed(1))["facts"] for _ in range(3)]
        return [(int(facts[SEED_0]), int(facts[SEED_1])) for facts in runs]

    assert seeds(5) == seeds(5)
    assert seeds(5) != seeds(6)
    assert seeds(None) != seeds(None)
    assert len({value for pair in seeds(5) for value in pair}) == 6


@pytest.mark.parametrize("options", [{"num_threads": 0}, {"num_threads": -2}, {"seed": 0}])
def test_values_out_of_range(fake: Path, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"is -?\d, expected 1 "):
        load(fake, **options)  # type: ignore[arg-type]
