"""The high-level convolution: what is computed, nothing about how.

"Auto-Generation of Specialized Direct Convolutions for Mobile GPUs" (GPGPU'20), Listing 3,
and "Mapping Parallelism in a Functional IR through Constraint Satisfaction" (CC'22),
Listing 2. Output [output_height][output_width][M].
"""

from __future__ import annotations

from mapper.ast_model.builders import Builder, call, get
from mapper.ast_model.nodes import Join, Kernel, Literal, Node, Program, Ref, Zip
from mapper.layer_spec import LayerSpec
from mapper.programs.common import WEIGHTS, layer_inputs, layer_sizes, padded_image, windows


def high_level_convolution(layer: LayerSpec) -> Program:
    """One kernel with three maps (rows, columns, filters) around a sequential reduction."""
    build = Builder()

    def one_output(window: Node, weights: Node) -> Node:
        pairs = Zip((Join(Join(window)), Join(Join(weights))))
        return build.reduce(
            lambda acc, x: call("fma", get(x, 0), get(x, 1), acc), Literal(0.0), pairs
        )

    body = build.map(
        "row",
        lambda row: build.map(
            "column",
            lambda window: Join(build.map("filter", lambda w: one_output(window, w), Ref(WEIGHTS))),
            row,
        ),
        windows(build, layer, padded_image(build, layer, 0)),
    )
    return Program(
        name="high_level_convolution",
        sizes=layer_sizes(layer),
        parameters=(),
        requirements=(),
        functions=(),
        inputs=layer_inputs(),
        kernels=(Kernel("convolution", body),),
    )
