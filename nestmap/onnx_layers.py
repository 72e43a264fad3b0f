"""Convolutions of an ONNX model as layers.

Only ``Conv`` nodes of the main graph are read, one layer for each, without the activation that
may follow; the operator is described at https://onnx.ai/onnx/operators/onnx__Conv.html. A 1-D
convolution becomes a layer of one row, so that its arrays want a dimension of length 1 before
their last. Needs the package ``onnx`` (``pip install 'nestmap[onnx]'``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mapper.errors import InputError, LimitError, Problem
from mapper.layer_spec import DType, LayerSpec, Layout

if TYPE_CHECKING:
    import onnx

MAX_BYTES = 512 * 2**20
_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
#: Dimensions of a 1-D image: images, channels, length.
_LINE_RANK = 3
_PLANE_RANK = 4

Shape = tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class ImportedLayer:
    """A layer, and the names that the graph gives to what it reads and writes.

    ``bias`` is empty where there is none.
    """

    layer: LayerSpec
    image: str
    weights: str
    bias: str
    result: str


@dataclass(frozen=True, slots=True)
class _Tensor:
    shape: Shape
    dtype: int


def load_model(path: Path, max_bytes: int = MAX_BYTES) -> onnx.ModelProto:
    """A model from a file; tensors that it keeps in other files are not read.

    Raises InputError for a file that is absent or no model, LimitError for one that is too
    long.
    """
    onnx = _onnx()
    from google.protobuf.message import DecodeError

    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except OSError as error:
        raise InputError(
            Problem(str(path), f"cannot be read: {error.strerror}", "", "an ONNX model")
        ) from None
    if len(content) > max_bytes:
        raise LimitError(
            Problem(str(path), "is too long", f"more than {max_bytes} bytes", f"{max_bytes} bytes")
        )
    try:
        return onnx.load_model_from_string(content)
    except (DecodeError, ValueError) as error:
        raise InputError(
            Problem(str(path), "is no ONNX model", str(error)[:80], "an ONNX model")
        ) from None


def layers_of_model(model: onnx.ModelProto) -> tuple[ImportedLayer, ...]:
    """The convolutions of a model's main graph, in its order; layout NCHW.

    Raises InputError that names each node which is no convolution as nestmap knows it: 3-D,
    of integers, of sizes that are no numbers.
    """
    tensors = _tensors(model)
    layers: list[ImportedLayer] = []
    problems: list[Problem] = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Conv" or node.domain not in ("", "ai.onnx"):
            continue
        name = node.name or f"conv{index}"
        try:
            layers.append(_imported(name, node, tensors))
        except InputError as error:
            problems += (
                Problem(f"{name}: {p.path}", p.message, p.found, p.allowed, p.remedy)
                for p in error.problems
            )
    if problems:
        raise InputError(problems)
    return tuple(layers)


def _onnx() -> Any:
    try:
        import onnx
    except ModuleNotFoundError:
        raise InputError(
            Problem("onnx", "the package is not installed", "", "", "pip install 'nestmap[onnx]'")
        ) from None
    return onnx


def _tensors(model: onnx.ModelProto) -> dict[str, _Tensor]:
    """Shapes and element types of what the main graph names, inferred where not stated."""
    onnx = _onnx()
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except onnx.shape_inference.InferenceError:
        graph = model.graph  # what it states itself may be enough
    found: dict[str, _Tensor] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        dims = kind.shape.dim if kind.HasField("shape") else ()
        shape = tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param or "unknown" for d in dims
        )
        found[value.name] = _Tensor(shape, kind.elem_type)
    for initial in graph.initializer:
        found[initial.name] = _Tensor(tuple(initial.dims), initial.data_type)
    return found


def _imported(name: str, node: onnx.NodeProto, tensors: Mapping[str, _Tensor]) -> ImportedLayer:
    inputs = [*node.input, ""][:3]
    if len(node.input) not in (2, 3) or len(node.output) != 1:
        found = f"{len(node.input)} inputs and {len(node.output)} outputs"
        raise InputError(Problem("inputs", "are not those of Conv", found, "X, W and perhaps B"))
    image, weights = (_shape_of(tensors, key) for key in inputs[:2])
    dtype = _dtype_of(tensors[inputs[0]])
    rank = len(image)
    if rank not in (_LINE_RANK, _PLANE_RANK) or len(weights) != rank:
        kind = f"{max(0, rank - 2)}-D, weights of {len(weights)} dimensions"
        raise InputError(Problem("X", "a convolution of this rank is not done", kind, "1-D or 2-D"))
    attributes = dict(_attributes(node))
    kernel = weights[2:]
    if tuple(attributes.get("kernel_shape", kernel)) != kernel:
        raise InputError(
            Problem("kernel_shape", "contradicts the weights", str(attributes["kernel_shape"]),
                    str(list(kernel)))
        )  # fmt: skip
    strides, dilations = (
        _numbers(attributes, key, (1,) * len(kernel)) for key in ("strides", "dilations")
    )
    pads = _pads(attributes, image[2:], kernel, strides, dilations)
    groups = attributes.get("group", 1)
    if image[1] != weights[1] * groups:
        raise InputError(
            Problem("group", "channels of X are not those of W times the groups", str(image[1]),
                    f"{weights[1]} x {groups}")
        )  # fmt: skip
    line = rank == _LINE_RANK
    (kernel_y, kernel_x), (stride_y, stride_x), (dilation_y, dilation_x) = (
        (1, values[0]) if line else values for values in (kernel, strides, dilations)
    )
    top, left, bottom, right = (0, pads[0], 0, pads[1]) if line else pads
    layer = LayerSpec(
        channels=image[1],
        height=1 if line else image[2],
        width=image[-1],
        filters=weights[0],
        kernel_height=kernel_y,
        kernel_width=kernel_x,
        stride_y=stride_y,
        stride_x=stride_x,
        pad_top=top,
        pad_left=left,
        pad_bottom=bottom,
        pad_right=right,
        name=name,
        batch=image[0],
        groups=groups,
        dilation_y=dilation_y,
        dilation_x=dilation_x,
        bias=bool(inputs[2]),
        dtype=dtype,
        layout=Layout.NCHW,
    )
    return ImportedLayer(layer, inputs[0], inputs[1], inputs[2], node.output[0])


def _shape_of(tensors: Mapping[str, _Tensor], name: str) -> tuple[int, ...]:
    tensor = tensors.get(name)
    if tensor is None or not tensor.shape:
        raise InputError(Problem(name, "the model does not say its shape", "", "numbers"))
    unknown = [str(size) for size in tensor.shape if isinstance(size, str)]
    if unknown:
        raise InputError(
            Problem(name, "sizes are not numbers", ", ".join(unknown), "numbers",
                    "onnx.tools.update_model_dims")
        )  # fmt: skip
    return tuple(size for size in tensor.shape if isinstance(size, int))


def _dtype_of(tensor: _Tensor) -> DType:
    kinds = _onnx().TensorProto
    known = {kinds.FLOAT: DType.FLOAT32, kinds.FLOAT16: DType.FLOAT16}
    if tensor.dtype not in known:
        raise InputError(
            Problem("X", "elements are of another type", kinds.DataType.Name(tensor.dtype),
                    ", ".join(known.values()))
        )  # fmt: skip
    return known[tensor.dtype]


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    kinds = _onnx().AttributeProto
    wanted = {"auto_pad": kinds.STRING, "group": kinds.INT}
    wanted |= dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"), kinds.INTS)
    for attribute in node.attribute:
        name = attribute.name
        if name not in wanted or attribute.type != wanted[name]:
            raise InputError(
                Problem(name[:80], "is no attribute of Conv, or of another type",
                        kinds.AttributeType.Name(attribute.type), ", ".join(wanted))
            )  # fmt: skip
        match name:
            case "auto_pad":
                yield name, attribute.s.decode("utf-8", "replace")
            case "group":
                yield name, attribute.i
            case _:
                yield name, tuple(attribute.ints)


def _numbers(attributes: Mapping[str, Any], name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    values: tuple[int, ...] = attributes.get(name, default)
    if len(values) != len(default):
        raise InputError(
            Problem(name, "another number of values", str(len(values)), str(len(default)))
        )
    return values


def _pads(
    attributes: Mapping[str, Any],
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    """Padding before each dimension, then after each."""
    stated = _numbers(attributes, "pads", (0,) * (2 * len(kernel)))
    mode = attributes.get("auto_pad", "NOTSET")
    if mode not in _AUTO_PADS:
        raise InputError(Problem("auto_pad", "unknown", repr(mode)[:80], ", ".join(_AUTO_PADS)))
    if mode == "NOTSET":
        return stated
    before: list[int] = []
    after: list[int] = []
    for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = 0
        if mode != "VALID":
            # As many outputs as there are strides in the input.
            outputs = -(-size // max(1, stride))
            total = max(0, (outputs - 1) * stride + (length - 1) * dilation + 1 - size)
        smaller = total // 2
        before.append(total - smaller if mode == "SAME_LOWER" else smaller)
        after.append(smaller if mode == "SAME_LOWER" else total - smaller)
    return (*before, *after)
