"""Every Conv1d and Conv2d case of the ``onnx`` package's backend tests (converted from PyTorch).

The models come with inputs and with the outputs that PyTorch gave.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from mapper.errors import InputError
from nestmap.onnx_layers import layers_of_model, load_model
from tests.conformance.judging import VARIANTS, Case, judge_reference, judge_variant, shaped
from tests.effort import LONG, combined
from worker.measuring import MeasuringChild

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install 'nestmap[onnx]'")

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
FOLDERS = {
    path.name: path
    for pattern in ("pytorch-converted/test_Conv*", "pytorch-operator/test_operator_conv*")
    for path in sorted(DATA.glob(pattern))
}
OUT_OF_SCOPE = {
    "test_Conv3d": "3-D",
    "test_Conv3d_dilated": "3-D",
    "test_Conv3d_dilated_strided": "3-D",
    "test_Conv3d_groups": "3-D",
    "test_Conv3d_no_bias": "3-D",
    "test_Conv3d_stride": "3-D",
    "test_Conv3d_stride_padding": "3-D",
    "test_ConvTranspose2d": "transposed",
    "test_ConvTranspose2d_no_bias": "transposed",
    "test_operator_convtranspose": "transposed",
}
CASES = [name for name in FOLDERS if name not in OUT_OF_SCOPE]


def array_of(path: Path) -> np.ndarray:
    tensor = onnx.TensorProto()
    tensor.ParseFromString(path.read_bytes())
    return onnx.numpy_helper.to_array(tensor)


@cache
def case_of(name: str) -> Case:
    """The node as a layer, its weights from the model, image and result from the data set."""
    folder = FOLDERS[name]
    model = load_model(folder / "model.onnx")
    (imported,) = layers_of_model(model)
    arrays = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    given = [value.name for value in model.graph.input if value.name not in arrays]
    data = folder / "test_data_set_0"
    for index, input_name in enumerate(given):
        arrays[input_name] = array_of(data / f"input_{index}.pb")
    layer = imported.layer
    operands = [arrays[key] for key in (imported.image, imported.weights, imported.bias) if key]
    expected = array_of(data / "output_0.pb").reshape(layer.output_shape)
    return Case(name, layer, shaped(layer, *operands), expected)


def test_all_cases_of_the_package_are_here_or_out_of_scope():
    assert OUT_OF_SCOPE.keys() <= FOLDERS.keys()
    assert sum("Conv1d" in name for name in CASES) >= 8
    assert sum("Conv2d" in name for name in CASES) >= 11


@pytest.mark.parametrize("name", CASES)
def test_reference(name: str):
    judge_reference(case_of(name))


@pytest.mark.kernels
@pytest.mark.parametrize(("name", "variant"), combined(CASES, VARIANTS))
def test_interpreter_and_kernel(
    name: str, variant: str, device: MeasuringChild, plain_device: MeasuringChild
):
    # As PoCL optimises them where much is tried; what they mean shows without, and is there sooner.
    judge_variant(case_of(name), variant, device if LONG else plain_device)


@pytest.mark.parametrize("name", [name for name in OUT_OF_SCOPE if "Conv3d" in name])
def test_what_is_out_of_scope_is_refused_with_what_was_found(name: str):
    with pytest.raises(InputError, match=r"found 3-D.*allowed: 1-D or 2-D"):
        layers_of_model(load_model(FOLDERS[name] / "model.onnx"))


@pytest.mark.parametrize("name", [n for n in OUT_OF_SCOPE if OUT_OF_SCOPE[n] == "transposed"])
def test_transposed_convolutions_are_no_layers(name: str):
    assert not layers_of_model(load_model(FOLDERS[name] / "model.onnx"))
