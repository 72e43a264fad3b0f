#!/usr/bin/env bash
# Pack the board's worker into one file that Python runs: nestmap-worker.pyz (docs/boards.md).
# It needs Python 3.11 on the board, and for measuring its numpy and pyopencl, as Debian has them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
target=${1:-nestmap-worker.pyz}
python=${PYTHON:-python3}

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/mapper"
# Of mapper only what plans, outcomes and device profiles are made of.
cp mapper/{__init__,device_profile,errors,host_plan,layer_spec,measurement}.py "$folder/mapper/"
cp -r mapper/profiles "$folder/mapper/"
cp -r worker "$folder/worker"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
printf 'import sys\nfrom worker.agent.command import main\n\nsys.exit(main())\n' > "$folder/__main__.py"
# Every file with the same date: equal sources make equal bytes.
find "$folder" -exec touch -d @315532800 {} +
"$python" -m zipapp "$folder" --python "/usr/bin/env python3" --compress --output "$target"
chmod 755 "$target"
