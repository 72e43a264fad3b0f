"""A file that says it is an ONNX model is read in seconds, within bounds, and alone."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mapper.errors import InputError, LimitError
from nestmap import onnx_files
from nestmap.onnx_files import without_weights
from nestmap.onnx_layers import MAX_LAYERS, layers_of_model, load_model

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'nestmap[onnx]'")
helper = onnx.helper
FLOAT = onnx.TensorProto.FLOAT


def info(name: str, shape: list[Any]) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, shape)


def convolution(image: str = "X", name: str = "c", **attributes: Any) -> Any:
    return helper.make_node("Conv", [image, "W"], ["Y"], name=name, **attributes)


def model_of(nodes: list[Any], image: list[Any], **more: Any) -> Any:
    weights = info("W", [1, 1, 1, 1])
    return helper.make_model(helper.make_graph(nodes, "g", [info("X", image), weights], []), **more)


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture(autouse=True)
def within_bounds() -> Iterator[None]:
    """No test takes 4 s of this process or 300 MiB more than there were."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    yield
    assert time.process_time() - began < 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 300 * 1024


def coded(number: int, value: bytes) -> bytes:
    """A field of bytes as protobuf codes it."""
    head, length = bytearray([number << 3 | 2]), len(value)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + value


RELU = coded(1, coded(1, b"x") + coded(2, b"x") + coded(4, b"Relu"))
MANY = {
    "a million nodes": coded(7, RELU * 1_000_000),
    "nodes of two bytes": coded(7, coded(1, b"") * 20_000_000),
    "strides": coded(7, coded(1, coded(4, b"Conv") + coded(5, coded(8, b"\1" * 9_000_000)))),
    "sizes of a tensor": coded(7, coded(5, coded(1, b"\1" * 9_000_000))),
    "graphs within graphs": b"",
}
for _ in range(40):
    MANY["graphs within graphs"] = coded(1, coded(5, coded(6, MANY["graphs within graphs"])))
MANY["graphs within graphs"] = coded(7, MANY["graphs within graphs"])


@pytest.mark.parametrize("what", MANY)
def test_fields_are_counted_before_objects_are_made(what: str, tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(MANY[what])
    with pytest.raises(LimitError, match=r"500000 fields|100 levels") as caught:
        load_model(path)
    assert caught.value.problems[0].path == str(path)


@pytest.mark.parametrize(
    "content",
    [b"", b"\x3a\x05ab", b"\x3a" + b"\xff" * 12, coded(7, b"\x0b"), b"\x00\x00", b"PK\3\4" * 99,
     coded(7, coded(5, b"\x08" + b"\x80" * 30))],
)  # fmt: skip
def test_what_is_no_model_is_refused(content: bytes, tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no ONNX model"):
        load_model(path)


def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(InputError, match=r"not a regular file|cannot be read"):
            load_model(path)
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(LimitError, match="too long"):
        load_model(tmp_path / "huge", max_bytes=2**20)


@pytest.mark.parametrize("where", ["pipe", "../pipe", "link", "/dev/zero", "../../../etc/passwd"])
def test_data_outside_the_file_is_never_read(where: str, tmp_path: Path):
    folder = tmp_path / "models"
    folder.mkdir()
    for place in (folder, tmp_path):
        os.mkfifo(place / "pipe")  # whoever opens one waits for ever
    (folder / "link").symlink_to("/dev/zero")
    model = model_of([convolution("R"), helper.make_node("Relu", ["X"], ["R"])], [1, 1, 4, 4])
    del model.graph.input[1]
    weights = model.graph.initializer.add(name="W", data_type=FLOAT, dims=[1, 1, 1, 1])
    weights.data_location = onnx.TensorProto.EXTERNAL
    weights.external_data.add(key="location", value=where)
    loaded = load_model(saved(model, folder))
    assert len(layers_of_model(loaded)) == 1
    assert not loaded.graph.initializer[0].raw_data


def test_weights_are_left_out_and_shapes_are_not():
    model = model_of([convolution()], [1, 1, 4, 4])
    for name, values in (("large", b"\0" * 10_000), ("small", b"\0" * 80)):
        model.graph.initializer.add(name=name, data_type=FLOAT, dims=[1], raw_data=values)
    kept = onnx.load_model_from_string(without_weights(model.SerializeToString()))
    assert [len(each.raw_data) for each in kept.graph.initializer] == [0, 80]
    model.graph.initializer[0].ClearField("raw_data")
    assert kept == model


def functions(depth: int) -> list[Any]:
    """Functions that call the one before twice each."""
    domains = [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]
    made: list[Any] = []
    for number in range(depth):
        name, domain = (f"F{number - 1}", "d") if number else ("Relu", "")
        calls = [
            helper.make_node(name, [a], [b], domain=domain) for a, b in (("a", "m"), ("m", "b"))
        ]
        made.append(helper.make_function("d", f"F{number}", ["a"], ["b"], calls, domains))
    return made


def test_inference_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(onnx_files, "INFERENCE_CPU_S", 1)
    call = helper.make_node("F39", ["X"], ["R"], domain="d")
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]
    model = model_of(
        [call, convolution("R")], [1, 1, 4, 4], functions=functions(40), opset_imports=opsets
    )
    with pytest.raises(LimitError, match="inferring its shapes takes too much"):
        layers_of_model(model)


def test_inference_has_so_much_memory():
    nodes = [helper.make_node("Relu", [f"x{i}"], [f"x{i + 1}"]) for i in range(3_000)]
    nodes += [helper.make_node("Relu", ["X"], ["x0"]), convolution("R")]
    nodes.sort(key=lambda node: node.input[0] != "X")
    model = model_of(nodes, [1] * 100_000)
    with pytest.raises(LimitError, match="inferring its shapes takes too much"):
        layers_of_model(model)


def test_functions_that_call_themselves_say_no_shapes():
    domains = [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]
    call = helper.make_node("F", ["a"], ["b"], domain="d")
    function = helper.make_function("d", "F", ["a"], ["b"], [call], domains)
    nodes = [helper.make_node("F", ["X"], ["R"], domain="d"), convolution("R")]
    model = model_of(nodes, [1, 1, 4, 4], functions=[function], opset_imports=domains)
    with pytest.raises(InputError, match="c: R: the model does not say its shape"):
        layers_of_model(model)


@pytest.mark.parametrize(
    "image",
    [[-1, 1, 4, 4], [2**62, 1, 2**62, 2**62], [2**63 - 1] * 4, [0, 0, 0, 0], [1] * 1_000,
     ["N" * 1_000_000, 1, 1, 1], ["\x1b[2J\n\0", 1, 1, 1], ["N"] * 50_000],
)  # fmt: skip
def test_odd_sizes_are_refused_in_a_short_line(image: list[Any]):
    with pytest.raises(InputError) as caught:
        layers_of_model(model_of([convolution()], image))
    for problem in caught.value.problems:
        assert len(str(problem)) < 500
        assert str(problem).isprintable()
        assert str(problem).startswith("c: ")


@pytest.mark.parametrize(
    "attributes",
    [{"strides": [2**62, -(2**62)], "auto_pad": "SAME_UPPER"}, {"strides": [1] * 9_000},
     {"kernel_shape": [1] * 9_000}, {"group": 0}, {"group": -(2**63)}, {"pads": [2**62] * 4},
     {"dilations": [2**62] * 2, "auto_pad": "SAME_LOWER"}, {"auto_pad": "\x1b[2J" * 900}],
)  # fmt: skip
def test_odd_attributes_are_refused_in_a_short_line(attributes: dict[str, Any]):
    with pytest.raises(InputError) as caught:
        layers_of_model(model_of([convolution(**attributes)], [1, 1, 4, 4]))
    for problem in caught.value.problems:
        assert len(str(problem)) < 500
        assert str(problem).isprintable()


def test_types_that_have_no_name_are_refused():
    model = model_of([convolution()], [1, 1, 4, 4])
    model.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(InputError, match="elements are of another type; found 99"):
        layers_of_model(model)


def test_names_are_short_and_harmless():
    with pytest.raises(InputError, match="name: is too long; found 5000 characters"):
        layers_of_model(model_of([convolution(name="c" * 5_000)], [1, 1, 4, 4]))
    with pytest.raises(InputError) as caught:
        layers_of_model(model_of([convolution("\x1b]0;\a", "\x1b[2J")], [1, 1, 4, 4]))
    assert str(caught.value).isprintable()


def test_convolutions_and_problems_are_bounded():
    one = model_of([convolution()], [1, 1, 4, 4])
    for _ in range(MAX_LAYERS):
        one.graph.node.add().CopyFrom(one.graph.node[0])
    with pytest.raises(LimitError, match="too many convolutions"):
        layers_of_model(one)
    one.graph.input[0].type.tensor_type.elem_type = 99
    with pytest.raises(InputError) as caught:
        layers_of_model(one)
    assert len(caught.value.problems) == 101
