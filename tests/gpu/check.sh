#!/usr/bin/env bash
# What must hold on a GPU: the corpus, the examples, the product's own GPU tests. Needs a built girih, numpy, ml_dtypes.
#   tests/gpu/check.sh [PATH-TO-GIRIH]
set -u
girih=${1:-target/release/girih}
failed=0
part() { echo "== $1"; shift; "$@" || { failed=$((failed + 1)); echo "FAILED: $*"; }; }
part "doctor" "$girih" doctor
part "corpus on the GPU" python3 tests/corpus/check.py --girih "$girih" --split given --device cuda --jobs 8 --repeat 2
part "a MiniLM layer" python3 examples/minilm/run.py --girih "$girih" --device cuda --part layer
part "MiniLM" python3 examples/minilm/run.py --girih "$girih" --device cuda --part all
[ "$failed" = 0 ] && echo "GPU checks passed" || echo "GPU checks failed: $failed"
exit $((failed > 0))
