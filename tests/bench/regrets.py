"""Regret of each recommendation of `cache_policy` on the 40 planted traces: `python tests/bench/regrets.py [SEED]`.

Columns in percent of the reads; what is claimed is the fresh share on the page, the other shares are on fresh
traces of the same process.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from planted_regrets import regrets


def main() -> None:
    """Print the table and its summary."""
    table = regrets(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    print(table.to_string(float_format="{:.2f}".format, index=False))
    print(
        f"\nfamily as expected: {table.is_expected.sum()} of {len(table)}; regret: mean {table.regret.mean():.2f}, "
        f"median {table.regret.median():.2f}, most {table.regret.max():.2f} points; "
        f"stale within the limit: {(table.stale <= table.max_stale).sum()} of {len(table)}; "
        f"{table.cpu_s.median():.1f} s of CPU time a trace (median)"
    )


if __name__ == "__main__":
    main()
