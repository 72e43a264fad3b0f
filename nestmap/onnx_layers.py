"""Convolutions of an ONNX model as layers.

Only ``Conv`` nodes of the main graph are read, one layer for each, without the activation that
may follow; the operator is described at https://onnx.ai/onnx/operators/onnx__Conv.html. A 1-D
convolution becomes a layer of one row, so that its arrays want a dimension of length 1 before
their last. Needs the package ``onnx`` (``pip install 'nestmap[onnx]'``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mapper.errors import InputError, LimitError, Problem
from mapper.layer_spec import DType, LayerSpec, Layout
from nestmap.onnx_files import inferred, load_model, onnx_package, shown

if TYPE_CHECKING:
    import onnx

MAX_LAYERS = 10_000
_MOST_PROBLEMS = 100
#: As long as the service takes them.
_LONGEST_NAME = 200
_AUTO_PADS = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
#: Dimensions of a 1-D image: images, channels, length.
_LINE_RANK = 3
_PLANE_RANK = 4

Shape = tuple[int | str, ...]

__all__ = ["MAX_LAYERS", "ImportedLayer", "layers_of_model", "load_model"]


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

    @property
    def complete(self) -> bool:
        """Whether every size is a number and the elements are of a type."""
        sizes = bool(self.shape) and all(isinstance(size, int) for size in self.shape)
        return sizes and bool(self.dtype)


def layers_of_model(model: onnx.ModelProto) -> tuple[ImportedLayer, ...]:
    """The convolutions of a model's main graph, in its order; layout NCHW.

    Raises InputError that names each node which is no convolution as nestmap knows it: 3-D,
    of integers, of sizes that are no numbers; LimitError for more than MAX_LAYERS, or shapes
    that take too much to infer.
    """
    tensors = _tensors(model)
    layers: list[ImportedLayer] = []
    problems: list[Problem] = []
    for count, (index, node) in enumerate(_convolutions(model), 1):
        if count > MAX_LAYERS:
            found = f"more than {MAX_LAYERS}"
            raise LimitError(Problem("model", "too many convolutions", found, str(MAX_LAYERS)))
        name = node.name or f"conv{index}"
        try:
            layers.append(_imported(name, node, tensors))
        except InputError as error:
            problems += (
                Problem(f"{shown(name)}: {p.path}", p.message, p.found, p.allowed, p.remedy)
                for p in error.problems
            )
        if len(problems) >= _MOST_PROBLEMS:
            problems.append(Problem("model", "nodes after this one were not looked at"))
            break
    if problems:
        raise InputError(problems)
    return tuple(layers)


def _tensors(model: onnx.ModelProto) -> dict[str, _Tensor]:
    """Shapes and element types of what the main graph names, inferred where not stated."""
    found = _stated(model.graph)
    read = {name for _, node in _convolutions(model) for name in node.input[:2]}
    if all(name in found and found[name].complete for name in read):
        return found
    answer = inferred(model)
    return found if answer is None else {**found, **_stated(answer), **_initial(model.graph)}


def _stated(graph: onnx.GraphProto) -> dict[str, _Tensor]:
    found: dict[str, _Tensor] = {}
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        dims = kind.shape.dim if kind.HasField("shape") else ()
        shape = tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param or "unknown" for d in dims
        )
        found[value.name] = _Tensor(shape, kind.elem_type)
    return found | _initial(graph)


def _initial(graph: onnx.GraphProto) -> dict[str, _Tensor]:
    return {each.name: _Tensor(tuple(each.dims), each.data_type) for each in graph.initializer}


def _convolutions(model: onnx.ModelProto) -> Iterator[tuple[int, onnx.NodeProto]]:
    for index, node in enumerate(model.graph.node):
        if node.op_type == "Conv" and node.domain in ("", "ai.onnx"):
            yield index, node


def _imported(name: str, node: onnx.NodeProto, tensors: Mapping[str, _Tensor]) -> ImportedLayer:
    if len(name) > _LONGEST_NAME:
        raise InputError(
            Problem("name", "is too long", f"{len(name)} characters", str(_LONGEST_NAME))
        )
    inputs = [*node.input[:3], ""][:3]
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
            Problem("kernel_shape", "contradicts the weights",
                    str(attributes["kernel_shape"])[:80], str(list(kernel)))
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
        raise InputError(Problem(shown(name), "the model does not say its shape", "", "numbers"))
    unknown = [size for size in tensor.shape if isinstance(size, str)]
    if unknown:
        raise InputError(
            Problem(shown(name), "sizes are not numbers",
                    ", ".join(shown(size) for size in unknown[:_PLANE_RANK]), "numbers",
                    "onnx.tools.update_model_dims")
        )  # fmt: skip
    return tuple(size for size in tensor.shape if isinstance(size, int))


def _dtype_of(tensor: _Tensor) -> DType:
    kinds = onnx_package().TensorProto
    known = {kinds.FLOAT: DType.FLOAT32, kinds.FLOAT16: DType.FLOAT16}
    if tensor.dtype not in known:
        raise InputError(
            Problem("X", "elements are of another type", _name_of(kinds.DataType, tensor.dtype),
                    ", ".join(known.values()))
        )  # fmt: skip
    return known[tensor.dtype]


def _name_of(kinds: Any, number: int) -> str:
    """The name of a member of an enumeration; a file may have numbers that have none."""
    return kinds.Name(number) if number in kinds.values() else str(number)


def _attributes(node: onnx.NodeProto) -> Iterator[tuple[str, Any]]:
    kinds = onnx_package().AttributeProto
    wanted = {"auto_pad": kinds.STRING, "group": kinds.INT}
    wanted |= dict.fromkeys(("dilations", "kernel_shape", "pads", "strides"), kinds.INTS)
    for attribute in node.attribute:
        name = attribute.name
        if name not in wanted or attribute.type != wanted[name]:
            raise InputError(
                Problem(shown(name), "is no attribute of Conv, or of another type",
                        _name_of(kinds.AttributeType, attribute.type), ", ".join(wanted))
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
