"""Run by the Python of .venv-peers: what torch says convolutions are, as .npz files.

``torch_results.py samples FOLDER``: PyTorch's own sample inputs of its convolutions, with
their results. ``torch_results.py layers FOLDER``: the results of the layers that lie there.
Exit code 3: a package is missing, which stands on stderr.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

SAMPLED = ("nn.functional.conv1d", "nn.functional.conv2d")
MISSING = 3


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def write_samples(folder: Path) -> None:
    """N.json has the arguments of sample N, N.npz its arrays; operators.json what there is."""
    import torch  # pyright: ignore[reportMissingImports]
    from torch.testing._internal.common_methods_invocations import (  # pyright: ignore[reportMissingImports]
        op_db,
    )

    torch.manual_seed(0)
    operators = {
        op.name: sorted(str(dtype).removeprefix("torch.") for dtype in op.dtypes)
        for op in op_db
        if "conv" in op.name
    }
    (folder / "operators.json").write_text(json.dumps(operators))
    number = 0
    for op in op_db:
        if op.name not in SAMPLED:
            continue
        for sample in op.sample_inputs("cpu", torch.float32):
            weights, bias = sample.args
            arrays = {"image": sample.input, "weights": weights}
            if bias is not None:
                arrays["bias"] = bias
            exact = [None if a is None else a.double() for a in (sample.input, weights, bias)]
            arrays["expected"] = op(*exact, **sample.kwargs)
            np.savez(folder / f"{number}.npz", **{k: v.numpy() for k, v in arrays.items()})
            arguments = {key: plain(value) for key, value in sample.kwargs.items()}
            arguments["operator"] = op.name
            (folder / f"{number}.json").write_text(json.dumps(arguments))
            number += 1


def write_results(folder: Path) -> None:
    """For N.json (a layer) and N.npz (its inputs) the result, in float64, as N.out.npy."""
    import torch  # pyright: ignore[reportMissingImports]

    functional = torch.nn.functional
    for path in sorted(folder.glob("*.json")):
        layer = json.loads(path.read_text())
        arrays = np.load(path.with_suffix(".npz"))
        given = {name: torch.from_numpy(arrays[name]).double() for name in arrays.files}
        image, weights = given["image"], given["weights"]
        if layer["layout"] == "NHWC":
            image = image.reshape(-1, *image.shape[-3:]).permute(0, 3, 1, 2)
            weights = weights.permute(0, 3, 1, 2)
        elif layer["layout"] == "NCHW16c":
            image = image.permute(0, 1, 4, 2, 3).flatten(1, 2)
        sides = (layer[f"pad_{side}"] for side in ("left", "right", "top", "bottom"))
        result = functional.conv2d(
            functional.pad(image, tuple(sides)),
            weights,
            given.get("bias"),
            (layer["stride_y"], layer["stride_x"]),
            0,
            (layer["dilation_y"], layer["dilation_x"]),
            layer["groups"],
        )
        match layer["activation"]:
            case "none":
                pass
            case "leaky_relu":
                result = functional.leaky_relu(result, layer["activation_slope"])
            case "sigmoid":
                result = torch.sigmoid(result)
            case name:
                result = getattr(functional, name)(result)
        if layer["layout"] == "NHWC":
            result = result.permute(0, 2, 3, 1)
            result = result[0] if layer["batch"] == 1 else result
        elif layer["layout"] == "NCHW16c":
            result = result.unflatten(1, (-1, min(16, layer["filters"]))).permute(0, 1, 3, 4, 2)
        np.save(path.with_suffix(".out.npy"), result.contiguous().numpy())


def main() -> int:
    modes = {"samples": write_samples, "layers": write_results}
    try:
        modes[sys.argv[1]](Path(sys.argv[2]))
    except ModuleNotFoundError as error:
        print(error, file=sys.stderr)
        return MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main())
