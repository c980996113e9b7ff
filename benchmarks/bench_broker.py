"""Headrace beside Apache Kafka 4.3.0: same machine, same clients, one after the other, alternating; medians.

    make bench-broker                                  everything, three rounds: about 45 minutes on two cores
    make bench-broker BENCH='--only "produce 1 KiB"'   the cases whose name has this in it
    make bench-broker BENCH='--quick'                  one round of everything with a fiftieth of the records

Prints a table and writes benchmarks/results/broker-TIME.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.servers import ROOT, ServerFailed

from benchmarks.broker_cases import CASES, Bench, Case, Figures, server_for
from benchmarks.load import LoadFailed

SERVERS = ("headrace", "kafka")
RESULTS = ROOT / "benchmarks" / "results"

console = Console(width=150 if not sys.stdout.isatty() else None)
Measured = dict[str, dict[str, list[Figures]]]


def measure(cases: list[Case], rounds: int, scale: float, servers: list[str], folder: Path) -> Measured:
    measured: Measured = defaultdict(lambda: defaultdict(list))
    total, done = rounds * len(servers) * len(cases), 0
    for number in range(rounds):
        for name in servers if number % 2 == 0 else reversed(servers):
            server = server_for(name, folder / name)
            try:
                for case in cases:
                    done += 1
                    console.print(f"[{done}/{total}] round {number + 1}, {name}: {case.name} ... ", end="")
                    os.sync()  # nobody pays for what an earlier case left in the page cache
                    try:
                        figures = case.run(Bench(server, scale))
                    except (LoadFailed, ServerFailed, AssertionError, TimeoutError) as problem:
                        console.print(f"[red]failed[/red]: {str(problem)[-800:]}")
                        continue
                    measured[case.name][name].append(figures)
                    console.print(", ".join(f"{key} {value:,.2f}" for key, value in figures.items()))
            finally:
                server.kill9() if server.running else None
                shutil.rmtree(folder / name, ignore_errors=True)
    return measured


def medians(rounds: list[Figures]) -> Figures:
    return {key: statistics.median(one[key] for one in rounds) for key in rounds[0]} if rounds else {}


def verdicts(cases: list[Case], measured: Measured) -> list[dict[str, Any]]:
    found = []
    for case in cases:
        ours, theirs = (medians(measured[case.name][name]) for name in SERVERS)
        one, two = ours.get(case.figure), theirs.get(case.figure)
        ratio = one / two if one is not None and two else None
        reached: bool | None = None
        if case.ratio is not None and ratio is not None:
            reached = ratio >= case.ratio
        elif case.limit is not None and one is not None:
            reached = one < case.limit
        found.append(
            {
                "case": case.name,
                "figure": case.figure,
                "headrace": ours,
                "kafka": theirs,
                "ratio": ratio,
                "more_is_better": case.more_is_better,
                "target_ratio": case.ratio,
                "target_limit": case.limit,
                "reached": reached,
            }
        )
    return found


def show(found: list[dict[str, Any]]) -> None:
    table = Table(title="Headrace and Apache Kafka 4.3.0, medians")
    for title in ("case", "figure", "headrace", "kafka", "ratio", "target", ""):
        table.add_column(title, justify="left" if title in ("case", "figure", "") else "right")
    for one in found:
        keys = [one["figure"], *(key for key in one["headrace"] or one["kafka"] if key != one["figure"])]
        for key in keys:
            first = key == one["figure"]
            ours, theirs = one["headrace"].get(key), one["kafka"].get(key)
            target = ""
            if first and one["target_ratio"]:
                target = f">= {one['target_ratio']} x"
            elif first and one["target_limit"]:
                target = f"< {one['target_limit']}"
            table.add_row(
                one["case"] if first else "",
                key,
                "-" if ours is None else f"{ours:,.2f}",
                "-" if theirs is None else f"{theirs:,.2f}",
                f"{ours / theirs:.2f}" if ours is not None and theirs else "",
                target,
                {True: "[green]reached[/green]", False: "[red]not yet[/red]", None: ""}[
                    one["reached"] if first else None
                ],
                style=None if first else "dim",
            )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--only", action="append", metavar="WORDS", help="cases with these words in their name; repeatable"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="how many of the records; 1 is all")
    parser.add_argument(
        "--quick", action="store_true", help="one round, a fiftieth of the records: to see that it works"
    )
    parser.add_argument("--server", choices=SERVERS, action="append", help="only this one")
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".tools" / "bench", help="where the servers keep their data"
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    chosen = parser.parse_args()
    cases = [case for case in CASES if not chosen.only or any(words in case.name for words in chosen.only)]
    if chosen.list or not cases:
        print("\n".join(case.name for case in CASES))
        raise SystemExit(0 if chosen.list else "no case has these words in its name; the names are above")
    rounds, scale = (1, 0.02) if chosen.quick else (chosen.rounds, chosen.scale)
    started = time.time()
    measured = measure(cases, rounds, scale, chosen.server or list(SERVERS), chosen.folder)
    found = verdicts(cases, measured)
    show(found)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / time.strftime("broker-%Y%m%d-%H%M%S.json", time.gmtime(started))
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    content = {"machine": machine, "rounds": rounds, "scale": scale, "results": found, "measured": measured}
    path.write_text(json.dumps(content, indent=1) + "\n")
    console.print(f"{time.time() - started:.0f} s; all figures are in {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
