"""A library's convolution in a process of its own: run as a script by the library's Python.

It imports nothing of nestmap, for that Python may have other packages. A request is a line of
JSON on stdin, the answer a line on stdout:

``{"op": "hello", "contestant": …, "threads": n}`` -> versions
``{"op": "load", "folder": …, …sizes}`` -> first output as ``<contestant>.npy`` in the folder
``{"op": "turn", "seconds": s, "least": n}`` -> wall seconds of every run, wall and CPU of all

Arrays are .npy files: image [N][C][H][W], weights [M][C / groups][kh][kw], result
[N][M][OH][OW], all float32.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

Call = Callable[[], Any]


class Im2Col:
    """Every window of the padded image as a column of a matrix, then BLAS."""

    def __init__(self, threads: int) -> None:
        import numpy

        self._np = numpy
        self.threads = threads

    def versions(self) -> dict[str, str]:
        """NumPy and its BLAS."""
        config: Any = self._np.show_config(mode="dicts")
        blas = config.get("Build Dependencies", {}).get("blas", {})
        name = f"{blas.get('name', 'unknown BLAS')} {blas.get('version', '')}".strip()
        return {"numpy": self._np.__version__, "blas": name}

    def load(self, request: dict[str, Any], image: Any, weights: Any) -> Call:
        """The call that computes the layer."""
        np = self._np
        top, left, bottom, right = request["padding"]
        step_y, step_x = request["stride"]
        apart_y, apart_x = request["dilation"]
        groups = request["groups"]
        filters, channels, height, width = weights.shape
        rows, columns = request["output"]
        batch = image.shape[0]
        matrices = weights.reshape(groups, filters // groups, channels * height * width)
        edges = ((0, 0), (0, 0), (top, bottom), (left, right))
        result = np.empty((batch, groups, filters // groups, rows * columns), np.float32)
        unfolded = np.empty((groups, channels, height, width, rows, columns), np.float32)
        padded = any((top, left, bottom, right))

        def call() -> Any:
            whole = np.pad(image, edges) if padded else image
            for index in range(batch):
                grouped = whole[index].reshape(groups, channels, *whole.shape[2:])
                for y in range(height):
                    for x in range(width):
                        first_y, first_x = y * apart_y, x * apart_x
                        unfolded[:, :, y, x] = grouped[
                            :,
                            :,
                            first_y : first_y + step_y * (rows - 1) + 1 : step_y,
                            first_x : first_x + step_x * (columns - 1) + 1 : step_x,
                        ]
                np.matmul(
                    matrices,
                    unfolded.reshape(groups, channels * height * width, rows * columns),
                    out=result[index],
                )
            return result.reshape(batch, filters, rows, columns)

        return call

    def array(self, result: Any) -> Any:
        """The result as a NumPy array."""
        return result


class Torch:
    """torch.nn.functional.conv2d on the CPU, which is oneDNN."""

    def __init__(self, threads: int, channels_last: bool) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        torch.set_num_threads(threads)
        self._torch = torch
        self._channels_last = channels_last
        self.threads = torch.get_num_threads()

    def versions(self) -> dict[str, str]:
        """torch, and what its build says of oneDNN."""
        lines = [line.strip() for line in self._torch.__config__.show().splitlines()]
        onednn = [line for line in lines if "MKL-DNN" in line or "oneDNN" in line]
        return {"torch": self._torch.__version__, "onednn": "; ".join(onednn).strip("- ")}

    def load(self, request: dict[str, Any], image: Any, weights: Any) -> Call:
        """The call that computes the layer."""
        torch = self._torch
        inputs, filters = torch.from_numpy(image), torch.from_numpy(weights)
        if self._channels_last:
            inputs = inputs.to(memory_format=torch.channels_last)
            filters = filters.to(memory_format=torch.channels_last)
        top, left, bottom, right = request["padding"]
        symmetric = top == bottom and left == right

        def call() -> Any:
            with torch.no_grad():
                padded = inputs
                if not symmetric:
                    padded = torch.nn.functional.pad(inputs, (left, right, top, bottom))
                return torch.nn.functional.conv2d(
                    padded,
                    filters,
                    None,
                    tuple(request["stride"]),
                    (top, left) if symmetric else (0, 0),
                    tuple(request["dilation"]),
                    request["groups"],
                )

        return call

    def array(self, result: Any) -> Any:
        """The result as a NumPy array."""
        return result.contiguous().numpy()


def _contestant(name: str, threads: int) -> Any:
    if name == "im2col":
        return Im2Col(threads)
    if name in ("torch", "torch-channels-last"):
        return Torch(threads, name == "torch-channels-last")
    if name == "tvm":
        # Beside this script, which is run by its path.
        from tvm_contestant import Tvm  # pyright: ignore[reportMissingImports]

        return Tvm(threads)
    raise ValueError(f"no contestant {name!r}")


def turn(call: Call, seconds: float, least: int) -> dict[str, Any]:
    """Run for so many seconds and at least so often; ``wall`` and ``cpu`` are of all runs."""
    times: list[float] = []
    processor, begun = time.process_time(), time.perf_counter()
    while len(times) < least or time.perf_counter() - begun < seconds:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    wall = time.perf_counter() - begun
    return {"times": times, "wall": wall, "cpu": time.process_time() - processor}


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What libraries print must not mix with the answers.
    os.dup2(2, 1)
    contestant: Any = None
    name = ""
    call: Call | None = None
    for line in sys.stdin:
        request = json.loads(line)
        answer: dict[str, Any] = {}
        try:
            if request["op"] == "hello":
                name = request["contestant"]
                contestant = _contestant(name, request["threads"])
                answer = {"versions": contestant.versions(), "threads": contestant.threads}
            elif request["op"] == "load":
                call = None
                call = _loaded(contestant, name, request)
            elif call is not None:
                answer = turn(call, request["seconds"], request["least"])
            else:
                answer = {"error": "nothing is loaded"}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:2000]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _loaded(contestant: Any, name: str, request: dict[str, Any]) -> Call:
    import numpy as np

    folder = request["folder"]
    image, weights = (
        np.load(os.path.join(folder, f"{part}.npy"), allow_pickle=False)
        for part in ("image", "weights")
    )
    call = contestant.load(request, image, weights)
    result = contestant.array(call())
    np.save(os.path.join(folder, f"{name}.npy"), result, allow_pickle=False)
    return call


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
