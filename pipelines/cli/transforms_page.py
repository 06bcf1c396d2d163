"""The page ``docs/transforms.md``, made from the docstrings of the transforms and the models of their settings.

python -m slackwater.pipelines.cli.transforms_page > docs/transforms.md
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from typing import Any, Final

import docstring_parser

from slackwater.transforms import beam as transforms
from slackwater.transforms.operators.registry import operators
from slackwater.transforms.operators.spec import OperatorSpec
from slackwater.transforms.settings.signatures import descriptions, parameters

_WIDTH: Final = 118
_HEAD: Final = """\
# Transforms

Made by `python -m slackwater.pipelines.cli.transforms_page`. To change this page, change the docstrings of the
transforms and the strings below their settings.

Each transform is a PTransform in `slackwater.transforms.beam`, a type in templates, and a function of the same
name in `slackwater.transforms.spark` (`sliding_window_join` and so on). The settings are the same everywhere.

```python
import apache_beam as beam
from slackwater.transforms.beam import Reorder

ordered = rows | Reorder(time="ts", disorder={"strategy": "fixed", "slack": "2s"})
ordered.main | "Use" >> beam.Map(print)
ordered.late | "Keep" >> beam.io.WriteToText("late")
```

Elements are `beam.Row`, NamedTuples with typed fields, or, with `with_schema` (`with_schemas` if inputs have
names), dicts and Arrow record batches. Outputs are rows with a schema. `late` has every row that was not
processed, as `input, reason, ts, arrival, row`; `error_handling: {output: bad}` names this output `bad`. If a
column cannot hold a value exactly, such as 1.9 where `int` is declared, the row is there as `bad_record`, with
its values in `raw` and the `fault`. 2.0 is a whole number, and NaN in a column of integers is a missing value.

In Beam YAML, include the file that `slackwater providers` prints:

```yaml
providers:
  - include: "{{ providers }}"
```

```sh
python -m apache_beam.yaml.main --yaml_pipeline_file=my.yaml \\
    --jinja_variables="{\\"providers\\": \\"$(slackwater providers)\\"}"
```
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for spec in operators() for line in _section(spec))])


def _section(spec: OperatorSpec) -> Iterator[str]:
    transform: Any = getattr(transforms, spec.name)
    docs = docstring_parser.parse(transform.__doc__ or "", docstring_parser.DocstringStyle.GOOGLE)
    yield f"## {spec.name}\n"
    for text in (docs.short_description, docs.long_description):
        yield textwrap.fill(_code(" ".join((text or "").split())), _WIDTH) + "\n"
    yield f"Outputs: the main one, `{'`, `'.join(spec.side_outputs)}`.\n"
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    meanings = descriptions(spec.settings)
    for parameter in parameters(spec.settings):
        cells = [f"`{parameter.name}`", _type(parameter), _default(parameter), meanings[parameter.name]]
        yield f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _code(text: str) -> str:
    return text.replace("``", "`")


def _type(parameter: inspect.Parameter) -> str:
    text = inspect.formatannotation(parameter.annotation)
    text = re.sub(r"\btyping\.|\bcollections\.abc\.", "", text).removesuffix(" | None")
    return "any" if text == "Any" else text.replace("dict[str, Any]", "mapping")


def _default(parameter: inspect.Parameter) -> str:
    if parameter.default is inspect.Parameter.empty:
        return "required"
    return "" if parameter.default is None else f"`{parameter.default}`"


if __name__ == "__main__":
    sys.stdout.write(page())
