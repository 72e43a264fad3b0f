"""PyTorch's own sample inputs of its convolutions, and torch's results for random layers.

torch runs in .venv-peers, in a process of its own.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings

from bench.space_solving.measuring import PEERS_PYTHON
from mapper.layer_spec import LayerSpec, Layout
from tests.conformance.judging import (
    PROCESSOR_SKETCHES,
    VARIANTS,
    Case,
    judge_reference,
    judge_variant,
    shaped,
)
from tests.conformance.random_layers import inputs_of, layers
from tests.conformance.torch_results import MISSING, SAMPLED
from tests.effort import LONG
from worker.measuring import MeasuringChild

pytestmark = pytest.mark.needs(str(PEERS_PYTHON), install="run `make peers`")

SCRIPT = Path(__file__).with_name("torch_results.py")
RANDOM_LAYERS = 150
OPERATORS_OUT_OF_SCOPE = {
    "nn.functional.conv3d": "3-D",
    "nn.functional.conv_transpose1d": "transposed",
    "nn.functional.conv_transpose2d": "transposed",
    "nn.functional.conv_transpose3d": "transposed",
}
TYPES_OUT_OF_SCOPE = {
    "bfloat16": "no OpenCL C type",
    "complex32": "complex",
    "complex64": "complex",
    "complex128": "complex",
    "float64": "layers are of 16 or 32 bits",
    "int64": "integers",
}


def run_torch(mode: str, folder: Path) -> None:
    done = subprocess.run(
        [str(PEERS_PYTHON), str(SCRIPT), mode, str(folder)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode == MISSING:
        pytest.skip(f"{done.stderr.strip()} in .venv-peers: run `make peers`")
    assert done.returncode == 0, done.stderr


def pads_of(padding: Any, extents: list[int]) -> list[tuple[int, int]]:
    """Before and after each dimension, of torch's padding; ``same`` puts the odd one after."""
    if padding == "valid":
        return [(0, 0)] * len(extents)
    if padding == "same":
        return [((extent - 1) // 2, extent // 2) for extent in extents]
    return [(pad, pad) for pad in spread(padding, len(extents))]


def spread(value: Any, count: int) -> list[int]:
    """One for all dimensions, or one for each, as torch takes them."""
    values = value if isinstance(value, list) else [value]
    return values * count if len(values) == 1 else values


def case_of_sample(path: Path) -> Case:
    arguments = json.loads(path.read_text())
    arrays = np.load(path.with_suffix(".npz"))
    weights = arrays["weights"]
    count = weights.ndim - 2
    image = arrays["image"]
    batched = image.ndim == weights.ndim
    image = image if batched else image[np.newaxis]
    kernel = list(weights.shape[2:])
    stride, dilation = (spread(arguments.get(key, 1), count) for key in ("stride", "dilation"))
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    pads = pads_of(arguments.get("padding", 0), extents)
    missing = 2 - count  # a 1-D convolution has one row
    layer = LayerSpec(
        channels=image.shape[1],
        height=1 if missing else image.shape[2],
        width=image.shape[-1],
        filters=weights.shape[0],
        kernel_height=1 if missing else kernel[0],
        kernel_width=kernel[-1],
        stride_y=1 if missing else stride[0],
        stride_x=stride[-1],
        pad_top=0 if missing else pads[0][0],
        pad_bottom=0 if missing else pads[0][1],
        pad_left=pads[-1][0],
        pad_right=pads[-1][1],
        batch=image.shape[0],
        groups=arguments.get("groups", 1),
        dilation_y=1 if missing else dilation[0],
        dilation_x=dilation[-1],
        bias="bias" in arrays.files,
        layout=Layout.NCHW,
    )
    operands = [arrays[name] for name in ("bias",) if name in arrays.files]
    expected = arrays["expected"]
    assert expected.ndim == weights.ndim - (not batched)
    return Case(
        f"{arguments['operator']}/{path.stem}",
        layer,
        shaped(layer, image, weights, *operands),
        expected.reshape(layer.output_shape),
    )


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    run_torch("samples", folder)
    return folder


@pytest.fixture(scope="module")
def cases(samples: Path) -> list[Case]:
    return [case_of_sample(path) for path in sorted(samples.glob("[0-9]*.json"))]


def test_every_convolution_of_torch_is_here_or_out_of_scope(samples: Path):
    operators = json.loads((samples / "operators.json").read_text())
    assert operators.keys() == {*SAMPLED, *OPERATORS_OUT_OF_SCOPE}
    for name in SAMPLED:
        assert set(operators[name]) <= {"float32", "float16", *TYPES_OUT_OF_SCOPE}


def test_reference_gives_what_torch_gives(cases: list[Case]):
    assert len(cases) >= 40
    assert len({case.name.split("/")[0] for case in cases}) == len(SAMPLED)
    for case in cases:
        judge_reference(case)


@pytest.mark.kernels
@pytest.mark.parametrize("variant", VARIANTS)
def test_interpreter_and_kernels_give_what_torch_gives(
    cases: list[Case], variant: str, plain_device: MeasuringChild
):
    # The program as it is written takes every other sample, and so do the sketches of a GPU.
    first = 0 if variant == PROCESSOR_SKETCHES else 1
    chosen = cases if LONG else cases[first::2]
    for case in chosen:
        judge_variant(case, variant, plain_device)


def test_reference_of_random_layers_is_torchs(tmp_path: Path):
    found: dict[str, LayerSpec] = {}

    @settings(max_examples=RANDOM_LAYERS, derandomize=True, database=None, phases=[Phase.generate])
    @given(layer=layers())
    def collect(layer: LayerSpec):
        name = str(len(found))
        found[name] = layer
        (tmp_path / f"{name}.json").write_text(json.dumps(layer.to_json()))
        arrays: dict[str, Any] = dict(inputs_of(layer))
        np.savez(tmp_path / f"{name}.npz", **arrays)

    collect()
    assert len(found) >= RANDOM_LAYERS // 2
    run_torch("layers", tmp_path)
    for name, layer in found.items():
        judge_reference(
            Case(str(layer), layer, inputs_of(layer), np.load(tmp_path / f"{name}.out.npy"))
        )
