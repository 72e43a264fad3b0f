"""TVM's convolution, tuned by meta_schedule: loaded by ``cpu_server`` in the library's Python.

Tuning takes about 10 s a trial on two cores, so what it finds is kept as a shared object.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

#: TVM's own default, 30 s, is too short on a machine that is busy: importing TVM is in it.
_BUILD_S = 180.0


class Tvm:
    """``topi.nn.conv2d_nchw`` (grouped: ``group_conv2d_nchw``), scheduled by meta_schedule."""

    def __init__(self, threads: int) -> None:
        os.environ["TVM_NUM_THREADS"] = str(threads)
        import tvm  # pyright: ignore[reportMissingImports]

        self._tvm = tvm
        self.threads = threads
        self._target = tvm.target.Target({"kind": "llvm", "mcpu": _cpu(tvm), "num-cores": threads})
        self._result: Any = None

    def versions(self) -> dict[str, str]:
        """TVM and what it compiles for."""
        return {"tvm": str(self._tvm.__version__), "target": str(self._target)}

    def load(self, request: dict[str, Any], image: Any, weights: Any) -> Any:
        """The call that computes the layer; tunes ``trials`` candidates unless it is ``kept``."""
        import numpy as np

        shapes = [list(image.shape), list(weights.shape)]
        parts = [request[key] for key in ("stride", "padding", "dilation", "groups", "trials")]
        text = json.dumps([shapes, parts, self.versions()])
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        path = os.path.join(request["kept"], f"{name}.so")
        if not os.path.exists(path):
            os.makedirs(request["kept"], exist_ok=True)
            self._tune(request, shapes, path)
        function = self._tvm.runtime.load_module(path)["main"]
        shape = (image.shape[0], weights.shape[0], *request["output"])
        self._result = self._tvm.runtime.tensor(np.zeros(shape, np.float32))
        tensors = [self._tvm.runtime.tensor(array) for array in (image, weights)]

        def call() -> Any:
            function(*tensors, self._result)
            return self._result

        return call

    def array(self, result: Any) -> Any:
        """The result as a NumPy array."""
        return result.numpy()

    def _tune(self, request: dict[str, Any], shapes: list[list[int]], path: str) -> None:
        import tempfile

        from tvm import te, topi  # pyright: ignore[reportMissingImports]
        from tvm.s_tir import meta_schedule  # pyright: ignore[reportMissingImports]

        image = te.placeholder(shapes[0], name="image")
        weights = te.placeholder(shapes[1], name="weights")
        how = (tuple(request["stride"]), tuple(request["padding"]), tuple(request["dilation"]))
        if request["groups"] == 1:
            result = topi.nn.conv2d_nchw(image, weights, *how)
        else:
            result = topi.nn.group_conv2d_nchw(image, weights, *how, request["groups"])
        function = te.create_prim_func([image, weights, result])
        module = self._tvm.IRModule({"main": function})
        with tempfile.TemporaryDirectory(prefix="nestmap-tvm-") as folder:
            database = meta_schedule.tune_tir(
                module,
                self._target,
                folder,
                max_trials_global=request["trials"],
                num_trials_per_iter=min(16, request["trials"]),
                builder=meta_schedule.builder.LocalBuilder(
                    max_workers=self.threads, timeout_sec=_BUILD_S
                ),
            )
            schedule = meta_schedule.tir_integration.compile_tir(database, module, self._target)
        if schedule is None:
            raise RuntimeError(f"no schedule among {request['trials']} trials")
        library = self._tvm.compile(schedule.mod, self._target)
        # To another name first: a file that is there is taken as whole.
        library.export_library(path + ".part.so")
        os.replace(path + ".part.so", path)


def _cpu(tvm: Any) -> str:
    """LLVM's name of this machine's CPU."""
    return str(tvm.get_global_func("target.llvm_get_system_cpu")())
