"""The strategies that come with the package, with options that suit samples of a few hundred rows."""

from slackwater.plugins.registry.manager import manager

NEEDED = {
    "drop_ratio": {"drop_ratio": 0.05},
    "external": {"watermark": "w"},
    "fixed": {"slack": "3ms"},
    "life": {"memory": 10},
    "prob": {"memory": 10},
    "random": {"memory": 10},
    "result_slack": {"recall": 0.9, "period": "100ms", "interval": "10ms", "granularity": "2ms"},
    "quality_driven": {
        "recall": 0.9,
        "period": "100ms",
        "interval": "10ms",
        "granularity": "2ms",
        "basic_window": "2ms",
    },
}
BUILT_IN = [
    p.strategy(**NEEDED.get(p.strategy.name, {})) for p in manager().strategies() if p.plugin == "builtin"
]
