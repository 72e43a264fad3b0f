"""cuDNN through torch: the convolution of a layer, its time on the GPU, its workspace.

Strict fp32 (TF32 off) with the algorithm that cuDNN's benchmark mode picks.
"""

from __future__ import annotations

from typing import Any, assert_never

from bench.kernels.graph_call import GraphCall
from bench.kernels.operands import Array, Operands, own_layout
from mapper.errors import DeviceError, Problem
from mapper.layer_spec import Activation, LayerSpec


def load_torch() -> Any:
    """torch, with a GPU and fp32 that is fp32; DeviceError says what is missing."""
    try:
        import torch  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DeviceError(
            Problem(
                "torch",
                "is not installed, so there is no cuDNN to compare with",
                str(error),
                remedy="pip install torch (a CUDA build), or --no-cudnn",
            )
        ) from error
    if not torch.cuda.is_available():
        raise DeviceError(
            Problem(
                "torch",
                "sees no GPU, so there is no cuDNN to compare with",
                torch.__version__,
                "a CUDA build and an NVIDIA GPU",
                "--no-cudnn",
            )
        )
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def versions(torch: Any) -> dict[str, str]:
    """What torch and cuDNN there are, and on which GPU."""
    return {
        "torch": str(torch.__version__),
        "cudnn": str(torch.backends.cudnn.version()),
        "cuda": str(torch.version.cuda),
        "gpu": str(torch.cuda.get_device_name(0)),
    }


def convolution(torch: Any, layer: LayerSpec, tensors: tuple[Any, Any, Any | None]) -> Any:
    """A call without arguments that computes the layer on tensors as libraries take them."""
    functional = torch.nn.functional
    image, weights, bias = tensors
    symmetric = layer.pad_top == layer.pad_bottom and layer.pad_left == layer.pad_right
    padding = (layer.pad_top, layer.pad_left) if symmetric else (0, 0)
    activation = _activation(torch, layer)

    def call() -> Any:
        padded = image
        if not symmetric:
            edges = (layer.pad_left, layer.pad_right, layer.pad_top, layer.pad_bottom)
            padded = functional.pad(image, edges)
        result = functional.conv2d(
            padded,
            weights,
            bias,
            (layer.stride_y, layer.stride_x),
            padding,
            (layer.dilation_y, layer.dilation_x),
            layer.groups,
        )
        return activation(result)

    return call


def _activation(torch: Any, layer: LayerSpec) -> Any:
    functional = torch.nn.functional
    match layer.activation:
        case Activation.NONE:
            return lambda x: x
        case Activation.RELU:
            return functional.relu
        case Activation.RELU6:
            return functional.relu6
        case Activation.LEAKY_RELU:
            return lambda x: functional.leaky_relu(x, layer.activation_slope)
        case Activation.SIGMOID:
            return torch.sigmoid
        case _:
            assert_never(layer.activation)


class CudnnLayer:
    """A layer on the GPU, ready to be timed (``graph``); DeviceError if it does not run."""

    def __init__(self, torch: Any, layer: LayerSpec, operands: Operands) -> None:
        self._torch = torch
        self._layer = layer
        tensors = [
            None if array is None else torch.from_numpy(array).cuda()
            for array in (operands.image, operands.weights, operands.bias)
        ]
        self._call = convolution(torch, layer, (tensors[0], tensors[1], tensors[2]))
        try:
            self._prepare()
        except RuntimeError as error:
            raise DeviceError(Problem(layer.name, "cuDNN does not run it", str(error))) from error

    def _prepare(self) -> None:
        torch = self._torch
        with torch.no_grad():
            # The first call tries the algorithms, with workspaces of their own.
            self._call()
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = self._call()
            torch.cuda.synchronize()
            used = torch.cuda.max_memory_allocated() - before
            self.workspace_bytes = max(0, used - result.element_size() * result.nelement())
            del result
        self.graph = GraphCall(torch, self._call)

    def output(self) -> Array:
        """What the last replay computed, in the layer's own layout."""
        return own_layout(self._layer, self.graph.result.cpu().numpy())

    def kernel_names(self) -> list[str]:
        """The GPU kernels of one call, in order, as torch's profiler names them."""
        profiler = self._torch.profiler
        with (
            self._torch.no_grad(),
            profiler.profile(
                activities=[profiler.ProfilerActivity.CUDA], acc_events=True
            ) as profile,
        ):
            self._call()
            self._torch.cuda.synchronize()
        return [
            str(event.key)
            for event in profile.key_averages()
            if "cuda" in str(event.device_type).lower() and not str(event.key).startswith("cuda")
        ]
