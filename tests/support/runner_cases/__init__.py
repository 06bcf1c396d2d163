"""The cases of the runner contract: the same answer on every runner, for every operator and strategy."""

from runner_contract import Case

from . import (
    algorithms,
    bad_rows,
    chains,
    groups,
    guards,
    joins,
    promises,
    scores,
    shards,
    sheds,
    strategies,
    templates,
    windows,
)

MODULES = (
    *(algorithms, strategies, joins, promises, shards, scores, windows),
    *(groups, sheds, guards, bad_rows, chains, templates),
)
CASES: dict[str, Case] = {case.name: case for module in MODULES for case in module.CASES}
