#!/usr/bin/env bash
# Fuzz targets of the trace core under AddressSanitizer and UBSan; see tests/fuzz/README.md.
#
#   tests/fuzz/run.sh                        build, replay corpus.zip and the bombs: a minute or two
#   tests/fuzz/run.sh fuzz decode SECONDS    fuzz on from there (or `encode`, `profile`, `kineto`, `columns`); needs clang
#   tests/fuzz/run.sh mutate SECONDS         tests.fuzz.mutations, whose Python has the core so built
#   tests/fuzz/run.sh keep                   put the smallest inputs that cover as much into corpus.zip
#
# CXX chooses the compiler: g++ or clang++. Everything is built and kept below build/fuzz.
set -euo pipefail
cd "$(dirname "$0")/../.."
action=${1:-replay}
case $action in
  replay) compiler=${CXX:-c++} ;;
  mutate) compiler=${CXX:-g++} ;;
  fuzz | keep) compiler=${CXX:-clang++} ;;
  *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
work=build/fuzz/$(basename "$compiler")
kept=build/fuzz/kept
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1

if [ "$action" = mutate ]; then
  python=$(realpath -s "$(command -v "${PYTHON:-python3}")") tree=build/fuzz/tree
  cmake -S . -B build/fuzz/python -DCMAKE_CXX_COMPILER="$compiler" -DPROFILE_SD3_SANITIZE=ON \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DPython_EXECUTABLE="$python" >/dev/null
  cmake --build build/fuzz/python --parallel 2
  rm -rf "$tree" && mkdir -p "$tree"
  git ls-files -z profiler tests | xargs -0 cp --parents -t "$tree"
  cmake --install build/fuzz/python --prefix "$tree" >/dev/null
  cd "$tree"
  # Not what an editable installation finds ahead of the path.
  echo 'import sys; sys.meta_path[:] = [f for f in sys.meta_path if "ScikitBuild" not in type(f).__name__]' \
    >sitecustomize.py
  # Python is not built with the sanitizers: their libraries come first, and what it leaks is its own.
  LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so)" \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:malloc_context_size=4:quarantine_size_mb=32 \
    PYTHONFAULTHANDLER=1 PYTHONPATH=. \
    exec nice "$python" -m tests.fuzz.mutations --core --seconds "$2" "${@:3}"
fi

cmake -S . -B "$work" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=None \
  -DPROFILE_SD3_FUZZ=ON >/dev/null
cmake --build "$work" --parallel 2
rm -rf "$kept"
python3 -m zipfile -e tests/fuzz/corpus.zip "$kept"

case $action in
  replay)
    python3 -m tests.fuzz.bombs build/fuzz/bombs --size 100000
    for target in decode encode profile kineto columns; do
      "$work/tests/fuzz/${target}_replay" "$kept/$target" >build/fuzz/replay.log 2>&1 ||
        { cat build/fuzz/replay.log; exit 1; }
      tail -n 1 build/fuzz/replay.log
    done
    "$work/tests/fuzz/decode_replay" build/fuzz/bombs >build/fuzz/replay.log 2>&1 ||
      { cat build/fuzz/replay.log; exit 1; }
    tail -n 1 build/fuzz/replay.log
    ;;
  fuzz)
    target=$2 seconds=$3
    mkdir -p "build/fuzz/$target" build/fuzz/found
    "${PYTHON:-python3}" -m tests.fuzz.seeds build/fuzz/seeds
    nice "$work/tests/fuzz/${target}_fuzzer" "build/fuzz/$target" "$kept/$target" \
      "build/fuzz/seeds/$target" -dict=build/fuzz/seeds/trace.dict -max_len=16384 -timeout=10 \
      -malloc_limit_mb=1000 -artifact_prefix=build/fuzz/found/ -print_final_stats=1 \
      -max_total_time="$seconds"
    ;;
  keep)
    rm -rf build/fuzz/smallest
    for target in decode encode profile kineto columns; do
      mkdir -p "build/fuzz/smallest/$target" "build/fuzz/$target"
      "$work/tests/fuzz/${target}_fuzzer" -merge=1 -use_counters=0 -max_len=2048 \
        "build/fuzz/smallest/$target" "$kept/$target" "build/fuzz/$target"
      for input in "build/fuzz/smallest/$target"/*; do # short names make a small archive
        name=$(basename "$input")
        mv -n "$input" "build/fuzz/smallest/$target/${name:0:10}"
      done
    done
    (cd build/fuzz/smallest && python3 -m zipfile -c ../../../tests/fuzz/corpus.zip decode encode profile kineto columns)
    ;;
esac
