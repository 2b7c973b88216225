"""Compares this package with the outputs of published implementations, case by case: python scripts/check_golden.py DIR

A case is a folder with case.json, io.safetensors and its weights. Prints the largest absolute error of every expected
tensor; exit code 0 if all known cases are within their own tolerance, 1 if not, 2 if there is no case.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from mstar_plan.errors import ConfigError
from mstar_plan.evaluation.golden.case import CaseResult
from mstar_plan.evaluation.golden.check import check_folder, find_cases


def show(result: CaseResult, quiet: bool) -> None:
    """Prints what came of a case."""
    if result.skipped:
        print(f"{result.name:<28} skipped: of no kind that is known here")
        return
    word = "ok" if result.ok else "FAIL"
    print(f"{result.name:<28} {word:<5} largest error {result.error:.3g} of {len(result.comparisons)} tensors")
    for each in result.comparisons:
        if not quiet or not each.ok:
            note = f"  {each.note}" if each.note else ""
            print(f"    {each.tensor:<36} {each.error:<10.3g} {'ok' if each.ok else 'FAIL'}{note}")
    if result.unchecked:
        print(f"    not compared: {', '.join(result.unchecked)}")
    if result.failure:
        print(f"    {result.failure}")


def main(arguments: list[str] | None = None) -> int:
    """Checks every case of a folder; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("tests/golden"), help="of cases, or one case")
    parser.add_argument("--quiet", action="store_true", help="print tensors only where they fail")
    words = parser.parse_args(arguments)
    torch.set_num_threads(1)
    try:
        results = [check_folder(folder) for folder in find_cases(words.folder)]
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    for result in results:
        show(result, words.quiet)
    run = [each for each in results if not each.skipped]
    bad = [each.name for each in run if not each.ok]
    print(f"{len(run) - len(bad)} of {len(run)} cases ok, {len(results) - len(run)} skipped")
    return 1 if bad or not run else 0


if __name__ == "__main__":
    sys.exit(main())
