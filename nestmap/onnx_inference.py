"""Shape inference in a process of its own, a script that knows nothing of nestmap.

A model comes on stdin; what convolutions read goes out as ``value_info`` of a graph, or nothing
where the model contradicts itself. The argument bounds memory, processor time and the answer.
"""

from __future__ import annotations

import json
import resource
import sys

import onnx
from onnx import shape_inference


def main() -> int:
    """The exit code: 0 if there is an answer, or none is to be had."""
    limits = json.loads(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_DATA, (limits["bytes"], limits["bytes"]))
    resource.setrlimit(resource.RLIMIT_CPU, (limits["seconds"], limits["seconds"]))
    try:
        model = shape_inference.infer_shapes(onnx.load_model_from_string(sys.stdin.buffer.read()))
    except MemoryError:
        return 3
    except Exception as error:
        # The one of cycles of functions is none of InferenceError.
        return 3 if "bad_alloc" in str(error) else 0
    graph = model.graph
    names = {name for node in graph.node if node.op_type == "Conv" for name in node.input[:2]}
    values = [v for v in (*graph.input, *graph.value_info, *graph.output) if v.name in names]
    answer = onnx.GraphProto(value_info=values).SerializeToString()
    if len(answer) > limits["answer"]:
        return 3
    sys.stdout.buffer.write(answer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
